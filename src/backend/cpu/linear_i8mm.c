/* Matrix kernels for ARMv8.2 with the int8 matrix extension: smmla multiplies 8 matrix columns of 2 rows by 8 codes of
 * two batch rows. The sums equal the sums of linear_neon.c, so results are bitwise identical. */
#include "backend/cpu/linear_neon.h"

#define PI__ISA_NAME "i8mm"
#define PI__ISA_FUNC pi__lin_kernels_i8mm
#define PI__ISA_LINE_COLS 8

/* t += [x0 . w0, x0 . w1, x1 . w0, x1 . w1]. x: 8 codes each of batch rows x0, x1; w: 8 codes each of matrix rows w0,
 * w1. */
OP ri ri_mmla(ri t, rb x, rb w) { return vmmlaq_s32(t, x, w); }
OP rb rb_pair(const int8_t *p) { return vld1q_s8(p); }
OP rb rb_two(const int8_t *p, const int8_t *q) { return vcombine_s8(vld1_s8(p), vld1_s8(q)); }

/* Combine results a (first two rows) and b (next two rows) of ri_mmla: *_first returns the 4 rows' sums for batch row
 * x0, *_second for batch row x1. */
OP ri ri_first(ri a, ri b)
{
    return vreinterpretq_s32_s64(vuzp1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
OP ri ri_second(ri a, ri b)
{
    return vreinterpretq_s32_s64(vuzp2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
OP rf rf_first(rf a, rf b)
{
    return vreinterpretq_f32_f64(vuzp1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
OP rf rf_second(rf a, rf b)
{
    return vreinterpretq_f32_f64(vuzp2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
/* Duplicate the row factors x to match results of ri_mmla: low: [x0, x1, x0, x1] for the part's first rows; high: [x2,
 * x3, x2, x3] for its last rows. */
OP rf rf_twice_low(rf x)
{
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(x)));
}
OP rf rf_twice_high(rf x)
{
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(x)));
}

#include "backend/cpu/linear_kernel.inc.h"
