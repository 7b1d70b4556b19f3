/* Kernels of the gated delta rule for AVX-512 (see vec_avx512.h). */
#include "backend/cpu/vec_avx512.h"

#define PI__GDN_ROWS 8
#define PI__GDN_VECS 2
#define PI__GDN_FOLD 8
#define PI__KERNELS pi__cpu_gdn_avx512
#include "backend/cpu/gdn_kernels.h"
