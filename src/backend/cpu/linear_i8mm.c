/* Matrix kernels for ARMv8.2 with the int8 matrix extension: smmla multiplies 8 columns of 2 rows by two columns of
 * the batch. The sums equal the sums of linear_neon.c, so results are bitwise identical. */
#include "backend/cpu/linear_neon.h"

#define PI__ISA_NAME "i8mm"
#define PI__ISA_FUNC pi__lin_kernels_i8mm
#define PI__ISA_LINE_COLS 8

/* t += [x0 w0, x0 w1, x1 w0, x1 w1] for two columns and two rows of 8 codes each. */
OP ri ri_mmla(ri t, rb x, rb w) { return vmmlaq_s32(t, x, w); }
OP rb rb_pair(const int8_t *p) { return vld1q_s8(p); }
OP rb rb_two(const int8_t *p, const int8_t *q) { return vcombine_s8(vld1_s8(p), vld1_s8(q)); }

/* Combine two results of ri_mmla: ri_first returns the rows' sums of the first column, ri_second of the second
 * column. */
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
/* Duplicate the row factors to match results of ri_mmla: for the part's first rows, and for its last rows. */
OP rf rf_twice_low(rf x)
{
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(x)));
}
OP rf rf_twice_high(rf x)
{
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(x)));
}

#include "backend/cpu/linear_kernel.inc.h"
