/* Math functions on vectors of 16 floats, written once: each vec_ISA.h defines the type vf and its operations vf_*,
 * then includes this file. A lane's result depends on that lane only. No memory and no state. */
#ifndef PI__CPU_VEC_MATH_H
#define PI__CPU_VEC_MATH_H

#include <math.h>

#include "backend/cpu/inline.h"

#if defined(__clang__)
#define PI__UNROLL _Pragma("clang loop unroll(full)")
#else
#define PI__UNROLL _Pragma("GCC unroll 16")
#endif

/* Returns e^c within about 1 ulp, for c in [-87.3, 88] or NaN. */
PI__INLINE vf vf_exp_of(vf c)
{
    vf n = vf_round(vf_mul(c, vf_set1(1.44269504088896341f)));
    vf r = vf_fma(n, vf_set1(-0.693359375f), c);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf y = vf_set1(1.9875691500e-4f);
    y = vf_fma(y, r, vf_set1(1.3981999507e-3f));
    y = vf_fma(y, r, vf_set1(8.3334519073e-3f));
    y = vf_fma(y, r, vf_set1(4.1665795894e-2f));
    y = vf_fma(y, r, vf_set1(1.6666665459e-1f));
    y = vf_fma(y, r, vf_set1(5.0000001201e-1f));
    y = vf_add(vf_fma(y, vf_mul(r, r), r), vf_set1(1.0f));
    return vf_scale2(y, n);
}

/* Returns e^x for all x: 0 below -87.3, so that masked scores (-INFINITY) contribute nothing; e^88 above 88; NaN for
 * NaN. */
PI__INLINE vf vf_exp(vf x)
{
    vf lowest = vf_set1(-87.33654f);
    vf y = vf_exp_of(vf_max(vf_min(x, vf_set1(88.0f)), lowest));
    return vf_select_lt(x, lowest, vf_zero(), vf_select_nan(x, y));
}

/* Returns e^x for x <= 0, -INFINITY or NaN, with a relative error of at most 2e-7 + 6e-8 |x|; e^-87 = 1.6e-38 for all
 * x below -87. For softmax, where large |x| have no weight and the sum is at least 1: cheaper than vf_exp. */
PI__INLINE vf vf_exp_down(vf x)
{
    const vf c = vf_max(vf_set1(-87.0f), x); /* propagates NaN */
    const vf n = vf_round(vf_mul(c, vf_set1(1.44269504088896341f)));
    const vf g = vf_fma(c, vf_set1(-1.44269504088896341f), n); /* e^c = 2^n 2^-g, g in [-0.5, 0.5] */
    vf y = vf_set1(-1.326472731307149e-3f);
    y = vf_fma(y, g, vf_set1(9.671512991189957e-3f));
    y = vf_fma(y, g, vf_set1(-5.550733581185341e-2f));
    y = vf_fma(y, g, vf_set1(2.4022242426872253e-1f));
    y = vf_fma(y, g, vf_set1(-6.931470036506653e-1f));
    return vf_scale2(vf_fma(y, g, vf_set1(1.0f)), n);
}

PI__INLINE float exp1(float x)
{
    float y[16];
    vf_store(y, vf_exp(vf_set1(x)));
    return y[0];
}

/* Returns tanh(x) within 2 ulp: a polynomial for |x| < 0.625, otherwise computed from e^(2|x|). */
PI__INLINE vf vf_tanh(vf x)
{
    vf a = vf_abs(x);
    vf z = vf_mul(x, x);
    vf p = vf_set1(-5.70498872745e-3f);
    p = vf_fma(p, z, vf_set1(2.06390887954e-2f));
    p = vf_fma(p, z, vf_set1(-5.37397155531e-2f));
    p = vf_fma(p, z, vf_set1(1.33314422036e-1f));
    p = vf_fma(p, z, vf_set1(-3.33332819422e-1f));
    p = vf_fma(vf_mul(p, z), x, x);
    vf e = vf_exp(vf_add(a, a));
    vf t = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), vf_add(e, vf_set1(1.0f))));
    return vf_select_lt(a, vf_set1(0.625f), p, vf_copysign(t, x));
}

/* Returns gelu(x) = x/2 (1 + erf(x / sqrt(2))), with erf within 2e-7: Abramowitz and Stegun, 7.1.26. */
PI__INLINE vf vf_gelu_erf(vf x)
{
    vf a = vf_mul(vf_abs(x), vf_set1(0.70710678118654752f));
    vf t = vf_div(vf_set1(1.0f), vf_fma(a, vf_set1(0.3275911f), vf_set1(1.0f)));
    vf p = vf_set1(1.061405429f);
    p = vf_fma(p, t, vf_set1(-1.453152027f));
    p = vf_fma(p, t, vf_set1(1.421413741f));
    p = vf_fma(p, t, vf_set1(-0.284496736f));
    p = vf_fma(p, t, vf_set1(0.254829592f));
    vf rest = vf_mul(vf_mul(p, t), vf_exp(vf_sub(vf_zero(), vf_mul(a, a)))); /* 1 - erf(a) */
    vf erf = vf_copysign(vf_sub(vf_set1(1.0f), rest), x);
    return vf_mul(vf_mul(x, vf_set1(0.5f)), vf_add(vf_set1(1.0f), erf));
}

/* Returns x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): GELU's approximation. The bounds keep
 * the exponential finite; the order of operands propagates NaN, see vf_sigmoid. */
PI__INLINE vf vf_gelu_tanh(vf x)
{
    vf u = vf_mul(x, vf_fma(vf_mul(x, x), vf_set1(-2.0f * 0.7978845608f * 0.044715f), vf_set1(-2.0f * 0.7978845608f)));
    vf e = vf_exp_of(vf_min(vf_set1(87.0f), vf_max(vf_set1(-87.0f), u)));
    return vf_div(x, vf_add(e, vf_set1(1.0f)));
}

/* Returns 1 / (1 + e^-x). The bounds are the first operands of min and max, because on x86 these return the second
 * operand if one is NaN: so a NaN is propagated. */
PI__INLINE vf vf_sigmoid(vf x)
{
    vf e = vf_exp_of(vf_min(vf_set1(87.0f), vf_max(vf_set1(-87.0f), vf_sub(vf_zero(), x))));
    return vf_rcp(vf_add(vf_set1(1.0f), e));
}

/* Returns log(1 + e^x) = max(x, 0) + log1p(z), with z = e^-|x| and log1p(z) = 2 atanh(z / (2 + z)). The series of atanh
 * converges quickly because the argument is at most 1/3. Accurate to a few ulp, also for small results, so small log
 * decays are not lost. */
PI__INLINE vf vf_softplus(vf x)
{
    vf z = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    vf s = vf_div(z, vf_add(z, vf_set1(2.0f))), q = vf_mul(s, s);
    vf p = vf_set1(1.0f / 15);
    p = vf_fma(p, q, vf_set1(1.0f / 13));
    p = vf_fma(p, q, vf_set1(1.0f / 11));
    p = vf_fma(p, q, vf_set1(1.0f / 9));
    p = vf_fma(p, q, vf_set1(1.0f / 7));
    p = vf_fma(p, q, vf_set1(1.0f / 5));
    p = vf_fma(p, q, vf_set1(1.0f / 3));
    s = vf_add(s, s);
    vf y = vf_add(vf_max(x, vf_zero()), vf_fma(vf_mul(p, q), s, s));
    return vf_select_nan(x, y);
}

/* Returns the n <= 16 values at x in lanes 0..n - 1 and `fill` in the other lanes. */
PI__INLINE vf vf_load_tail(const float *x, int n, float fill)
{
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = i < n ? x[i] : fill;
    return vf_load(t);
}

/* Returns 1 / sqrt(mean of x[i]^2 + eps) of n values. Sums by lane = i mod 16, then adds lanes 8, 4, 2, 1 apart. */
PI__INLINE float rms_factor(const float *x, int64_t n, float eps)
{
    vf sum = vf_zero();
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vf a = vf_load(x + i);
        sum = vf_add(sum, vf_mul(a, a));
    }
    if (i < n) {
        vf a = vf_load_tail(x + i, (int) (n - i), 0);
        sum = vf_add(sum, vf_mul(a, a));
    }
    return 1.0f / sqrtf(vf_hsum(sum) / (float) n + eps);
}

#endif
