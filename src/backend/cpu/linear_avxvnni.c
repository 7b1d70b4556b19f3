/* Matrix kernels for AVX2 with AVX-VNNI (Alder Lake, Gracemont and later, which have no AVX-512). Like linear_avx2.c,
 * but a byte dot product is one instruction (vpdpbusd). For processors without AVX-VNNI, tests compile this file with
 * the 256-bit instructions of AVX-512 VNNI, which have the same arithmetic. */
#include "backend/cpu/linear_ymm.h"

#define PI__ISA_NAME "avxvnni"
#define PI__ISA_COLS 4
#define PI__ISA_DIRECT 1
#define PI__ISA_LINES
#define PI__ISA_BIAS 128 /* vpdpbusd takes unsigned codes */
#define PI__ISA_SIGNED(digits) 0
#ifndef PI__ISA_FUNC
#define PI__ISA_FUNC pi__lin_kernels_avxvnni
#endif

#ifdef __AVXVNNI__
#define DOT _mm256_dpbusd_avx_epi32
#else
#define DOT _mm256_dpbusd_epi32
#endif
OP vi vi_dot_line(int digits, int offset, vi t, vb w, const int8_t *x)
{
    (void) digits, (void) offset;
    __m256i v = four(x);
    return BOTH(vi, DOT(t.a, w.a, v), DOT(t.b, w.b, v));
}
#undef DOT

#include "backend/cpu/linear_kernel.inc.h"
