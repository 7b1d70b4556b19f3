/* linear_avxvnni.c for processors that have its instruction only as an AVX-512 (EVEX) one; see that file. */
#include "backend/cpu/simd.h"

#ifdef PI__SIMD_X86
#define PI__ISA_FUNC pi__lin_kernels_avxvnni_evex
#include "backend/cpu/linear.h"
const pi__cpu_linear_kernels *PI__ISA_FUNC(int bits);
#include "backend/cpu/linear_avxvnni.c"
#else
typedef int pi_nothing_here; /* ISO C forbids an empty translation unit */
#endif
