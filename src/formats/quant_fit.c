/* Fits a scale (and an offset) to a group of values: the basis of all writers of block formats.
 *
 * The cost is the weighted squared error  sum w_i (x_i - y_i)^2. y_i is the quantized value. For given codes the
 * best scale is a least-squares solution; for a given scale the best codes are roundings. First several scales
 * around amax / (largest code) are tried, because the cost has many local minima. Then the two steps alternate from
 * the best one. Codes are kept as floats so that loops vectorize. Sums use four lanes in a fixed order, so that a
 * file does not depend on the compiler. */
#include "formats/formats_impl.h"

#define LANES 4
#define ROUND 12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to nearest even */
#define N_LLOYD 4         /* max alternations of codes and scale; nearly all groups converge before */

static float total(const float *lane) { return lane[0] + lane[1] + (lane[2] + lane[3]); }

/* Returns 1 / scale; 0 if |scale| is below 1e-35, so that the result is finite (after pi__clean no values need a
 * smaller scale). */
static float inverse(float scale) { return scale > 1e-35f || scale < -1e-35f ? 1 / scale : 0; }

/* q[i] = x[i] * inv + off, clamped to lo..hi and rounded. */
static void to_codes(const float *x, int n, float inv, float off, float lo, float hi, float *q)
{
    for (int i = 0; i < n; i++) {
        float t = x[i] * inv + off;
        t = t < lo ? lo : t;
        t = t > hi ? hi : t;
        q[i] = (t + ROUND) - ROUND;
    }
}

uint16_t pi__finite_half(float f)
{
    const float limit = 65504.0f;
    f = f > limit ? limit : f < -limit ? -limit : f;
    return f == f ? pi__f32_to_f16(f) : 0;
}

typedef struct sums {
    float wq, wqq, wxq; /* sums of w q, w q q, w x q */
} sums;

static sums sum_codes(const float *x, const float *w, const float *q, int n)
{
    float a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0};
    for (int i = 0; i < n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            float t = w[i + k] * q[i + k];
            a[k] += t;
            b[k] += t * q[i + k];
            c[k] += t * x[i + k];
        }
    }
    return (sums) {total(a), total(b), total(c)};
}

/* Returns the reduction of the error sum w x^2 by the best scale (wxq / wqq) for these codes. */
static float gain(sums s) { return s.wqq > 0 ? s.wxq * s.wxq / s.wqq : 0; }

float pi__fit_scale(const float *x, const float *w, int n, int lo, int hi, float *q)
{
    float amax = 0, xmax = 0;
    for (int i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        if (a > amax) amax = a, xmax = x[i];
    }
    memset(q, 0, (size_t) n * sizeof *q);
    if (!(amax > 0)) return 0;
    float best = 0, scale = 0, trial[PI__FIT_MAX];
    float top = lo < 0 ? (float) lo : (float) hi; /* code of the value with the largest magnitude */
    for (int step = -8; step <= 12; step++) {
        float inv = (top < 0 ? top - (float) step * 0.125f : top + (float) step * 0.125f) / xmax;
        to_codes(x, n, inv, 0, (float) lo, (float) hi, trial);
        sums s = sum_codes(x, w, trial, n);
        if (gain(s) > best) {
            best = gain(s);
            scale = s.wxq / s.wqq;
        }
    }
    for (int i = 0; i < N_LLOYD && scale != 0; i++) {
        to_codes(x, n, inverse(scale), 0, (float) lo, (float) hi, trial);
        sums s = sum_codes(x, w, trial, n);
        if (i > 0 && !(gain(s) > best)) break;
        best = gain(s);
        scale = s.wqq > 0 ? s.wxq / s.wqq : 0;
        memcpy(q, trial, (size_t) n * sizeof *q);
    }
    return scale;
}

typedef struct line {
    float scale, off; /* x ~ scale * q + off */
    float err;        /* weighted squared error, minus the constant sum w x x */
} line;

/* Returns the weighted least-squares line x ~ scale * q + off. If the scale is not positive, or off is positive and
 * any_offset is false, returns the best line with off = 0. sw, swx: sums of w and of w x. */
static line best_line(sums s, float sw, float swx, bool any_offset)
{
    line r = {0, 0, 0};
    float det = sw * s.wqq - s.wq * s.wq;
    bool spread = det > 1e-6f * sw * s.wqq; /* false = all codes are equal: det is only rounding noise */
    if (spread) {
        r.scale = (sw * s.wxq - s.wq * swx) / det;
        r.off = (s.wqq * swx - s.wq * s.wxq) / det;
    }
    if (!spread || r.scale <= 0 || (r.off > 0 && !any_offset)) {
        r.off = 0;
        r.scale = s.wqq > 0 && s.wxq > 0 ? s.wxq / s.wqq : 0;
    }
    r.err = -(r.scale * s.wxq + r.off * swx);
    return r;
}

float pi__fit_line(const float *x, const float *w, int n, int hi, bool any_offset, float *off, float *q)
{
    float min = x[0], max = x[0], sw = 0, swx = 0, trial[PI__FIT_MAX];
    for (int i = 0; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        sw += w[i];
        swx += w[i] * x[i];
    }
    if (min > 0 && !any_offset) min = 0;
    memset(q, 0, (size_t) n * sizeof *q);
    *off = min;
    if (!(max > min)) return 0;
    line best = {0, 0, 0};
    for (int step = -6; step <= 10; step++) {
        float inv = ((float) hi + (float) step * 0.125f) / (max - min);
        to_codes(x, n, inv, -min * inv, 0, (float) hi, trial);
        line r = best_line(sum_codes(x, w, trial, n), sw, swx, any_offset);
        if (step == -6 || r.err < best.err) best = r;
    }
    for (int i = 0; i < N_LLOYD && best.scale > 0; i++) {
        to_codes(x, n, inverse(best.scale), -best.off * inverse(best.scale), 0, (float) hi, trial);
        line r = best_line(sum_codes(x, w, trial, n), sw, swx, any_offset);
        if (i > 0 && !(r.err < best.err)) break;
        best = r;
        memcpy(q, trial, (size_t) n * sizeof *q);
    }
    *off = best.off;
    return best.scale;
}

float pi__try_codes(const float *x, const float *w, int n, float scale, float off, int lo, int hi, float *q)
{
    float inv = inverse(scale), lane[LANES] = {0};
    to_codes(x, n, inv, -off * inv, (float) lo, (float) hi, q);
    for (int i = 0; i < n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            float e = scale * q[i + k] + off - x[i + k];
            lane[k] += w[i + k] * e * e;
        }
    }
    return total(lane);
}

/* v[i] = level nearest to x[i] * inv: starts at the lowest level and adds the step to the next level for each midpoint
 * below x[i] * inv. */
static void to_levels(const pi__levels *l, const float *x, int n, float inv, float *v)
{
    for (int i = 0; i < n; i++) v[i] = l->value[0];
    for (int k = 1; k < l->n; k++) {
        float mid = 0.5f * (l->value[k - 1] + l->value[k]), rise = l->value[k] - l->value[k - 1];
        for (int i = 0; i < n; i++) v[i] += x[i] * inv > mid ? rise : 0.0f;
    }
}

float pi__fit_levels(const pi__levels *l, const float *x, const float *w, int n)
{
    float amax = 0, xmax = 0, v[PI__FIT_MAX];
    for (int i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        if (a > amax) amax = a, xmax = x[i];
    }
    if (!(amax > 0)) return 0;
    float best = 0, scale = 0;
    for (int step = -12; step <= 12; step++) {
        for (int end = 0; end < 2; end++) {
            float inv = l->value[end ? l->n - 1 : 0] * (1 + (float) step * 0.0125f) / xmax;
            to_levels(l, x, n, inv, v);
            sums s = sum_codes(x, w, v, n);
            if (gain(s) > best) {
                best = gain(s);
                scale = s.wxq / s.wqq;
            }
        }
    }
    for (int i = 0; i < N_LLOYD && scale != 0; i++) {
        to_levels(l, x, n, inverse(scale), v);
        sums s = sum_codes(x, w, v, n);
        if (!(gain(s) > best)) break;
        best = gain(s);
        scale = s.wxq / s.wqq;
    }
    return scale;
}

float pi__try_levels(const pi__levels *l, const float *x, const float *w, int n, float scale)
{
    float lane[LANES] = {0}, v[PI__FIT_MAX];
    to_levels(l, x, n, inverse(scale), v);
    for (int i = 0; i < n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            float e = scale * v[i + k] - x[i + k];
            lane[k] += w[i + k] * e * e;
        }
    }
    return total(lane);
}

void pi__level_codes(const pi__levels *l, const float *x, int n, float scale, uint8_t *code)
{
    float inv = inverse(scale);
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k + 1 < l->n && x[i] * inv > 0.5f * (l->value[k] + l->value[k + 1])) k++;
        code[i] = l->code[k];
    }
}
