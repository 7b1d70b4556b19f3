/* Matrix kernels for 256-bit SVE registers with the int8 matrix extension: like linear_i8mm.c, with parts of 8 rows.
 * Unpacking of tiles and quantization of batch rows use NEON. */
#include <arm_sve.h>

#define PI__ISA_PART_ROWS 8
#include "backend/cpu/linear_neon.h"

#define PI__ISA_NAME "sve256"
#define PI__ISA_FUNC pi__lin_kernels_sve256
#define PI__ISA_LINE_COLS 8

typedef svint8_t rb __attribute__((arm_sve_vector_bits(256)));
typedef svint32_t ri __attribute__((arm_sve_vector_bits(256)));
typedef svfloat32_t rf __attribute__((arm_sve_vector_bits(256)));

OP rb rb_load(const void *p) { return svld1_s8(svptrue_b8(), p); }
OP ri ri_zero(void) { return svdup_n_s32(0); }
OP ri ri_add(ri x, ri y) { return svadd_s32_x(svptrue_b32(), x, y); }
OP ri ri_shl7(ri x) { return svlsl_n_s32_x(svptrue_b32(), x, 7); }
OP rf rf_load(const float *p) { return svld1_f32(svptrue_b32(), p); }
OP void rf_store(float *p, rf x) { svst1_f32(svptrue_b32(), p, x); }
OP rf rf_dup(const float *p) { return svdup_n_f32(*p); }
OP rf rf_from(ri x) { return svcvt_f32_s32_x(svptrue_b32(), x); }
OP rf rf_mul(rf x, rf y) { return svmul_f32_x(svptrue_b32(), x, y); }
OP rf rf_fma(rf x, rf y, rf z) { return svmla_f32_x(svptrue_b32(), z, x, y); }

/* In each 16 bytes: t += [x0 . w0, x0 . w1, x1 . w0, x1 . w1]. x: 8 codes each of batch rows x0, x1; w: 8 codes each of
 * matrix rows w0, w1. */
OP ri ri_mmla(ri t, rb x, rb w) { return svmmla_s32(t, x, w); }
OP rb rb_pair(const int8_t *p) { return svld1rq_s8(svptrue_b8(), p); }
OP rb rb_two(const int8_t *p, const int8_t *q)
{
    uint64_t a, b;
    memcpy(&a, p, 8);
    memcpy(&b, q, 8);
    return svreinterpret_s8_u64(svdupq_n_u64(a, b));
}

/* These functions do the same as in linear_i8mm.c, in each 16 bytes for *_first and *_second. */
OP ri ri_first(ri a, ri b)
{
    return svreinterpret_s32_s64(svuzp1_s64(svreinterpret_s64_s32(a), svreinterpret_s64_s32(b)));
}
OP ri ri_second(ri a, ri b)
{
    return svreinterpret_s32_s64(svuzp2_s64(svreinterpret_s64_s32(a), svreinterpret_s64_s32(b)));
}
OP rf rf_first(rf a, rf b)
{
    return svreinterpret_f32_f64(svuzp1_f64(svreinterpret_f64_f32(a), svreinterpret_f64_f32(b)));
}
OP rf rf_second(rf a, rf b)
{
    return svreinterpret_f32_f64(svuzp2_f64(svreinterpret_f64_f32(a), svreinterpret_f64_f32(b)));
}
OP rf rf_twice_low(rf x)
{
    return svreinterpret_f32_f64(svzip1_f64(svreinterpret_f64_f32(x), svreinterpret_f64_f32(x)));
}
OP rf rf_twice_high(rf x)
{
    return svreinterpret_f32_f64(svzip2_f64(svreinterpret_f64_f32(x), svreinterpret_f64_f32(x)));
}

#include "backend/cpu/linear_kernel.inc.h"
