/* Writers of the K formats: 256 values in groups, with quantized group scales (and minima) that the super-block's scale
 * d (and dmin) multiplies.
 *
 * Each group is fitted separately (quant_fit.c), and the super-block's scales are derived from the fits. Then each
 * group tries adjacent quantized scales with new codes, with d and dmin fixed. After that, d and dmin are solved again
 * by least squares with the codes fixed, and the groups are refined again. A round is kept only if it lowers the error.
 * No memory, no state. */
#include "formats/formats_impl.h"

#define N_ROUNDS 2
#define MAX_GROUPS 16

typedef struct super { /* a super-block during the fit */
    float x[PI__QK], w[PI__QK];
    float code[PI__QK];         /* codes of the values */
    float scale[MAX_GROUPS];    /* quantised scale of each group */
    float min[MAX_GROUPS];      /* quantised minimum of each group */
    float d, dmin;              /* x ~ d * scale * code - dmin * min */
    int n_groups, group;        /* values per group */
    int lo, hi;                 /* range of codes */
    int scale_lo, scale_hi;     /* range of quantised scales; minima: 0..scale_hi */
    bool has_min;
} super;

static float as_half(float f) { return pi__f16_to_f32(pi__finite_half(f)); }

static float clamp(float v, float lo, float hi) { return v < lo ? lo : v > hi ? hi : v; }

/* code [group] = group g's best codes for quantized scale s and minimum m. Returns their weighted squared error. */
static float try_group(const super *b, int g, float s, float m, float *code)
{
    const float *x = b->x + g * b->group, *w = b->w + g * b->group;
    return pi__try_codes(x, w, b->group, b->d * s, -b->dmin * m, b->lo, b->hi, code);
}

/* Sets group g's quantized scale and minimum to the best combination within 1 of the current values, and its codes.
 * Returns the group's weighted squared error. */
static float refine_group(super *b, int g)
{
    float *code = b->code + g * b->group, trial[PI__FIT_MAX];
    float s0 = b->scale[g], m0 = b->min[g];
    float best = try_group(b, g, s0, m0, code);
    for (int dm = -1; dm <= 1; dm++) {
        if (dm && !b->has_min) continue;
        for (int ds = -1; ds <= 1; ds++) {
            float s = s0 + (float) ds, m = m0 + (float) dm;
            if (!ds && !dm) continue;
            if (s < (float) b->scale_lo || s > (float) b->scale_hi || m < 0 || m > (float) b->scale_hi) continue;
            float err = try_group(b, g, s, m, trial);
            if (err >= best) continue;
            best = err;
            b->scale[g] = s;
            b->min[g] = m;
            memcpy(code, trial, (size_t) b->group * sizeof *code);
        }
    }
    return best;
}

/* Fits each group separately, then sets d, dmin, and the groups' quantised scales and minima from the fits. */
static void fit_groups(super *b)
{
    float s[MAX_GROUPS], m[MAX_GROUPS], ws[MAX_GROUPS], wm[MAX_GROUPS];
    for (int g = 0; g < b->n_groups; g++) {
        const float *x = b->x + g * b->group, *w = b->w + g * b->group;
        float *code = b->code + g * b->group, off = 0;
        if (b->has_min) s[g] = pi__fit_line(x, w, b->group, b->hi, false, &off, code);
        else s[g] = pi__fit_scale(x, w, b->group, b->lo, b->hi, code);
        m[g] = -off;
        ws[g] = wm[g] = 0;
        for (int i = 0; i < b->group; i++) {
            ws[g] += w[i] * code[i] * code[i];
            wm[g] += w[i];
        }
    }
    b->d = as_half(pi__fit_scale(s, ws, b->n_groups, b->scale_lo, b->scale_hi, b->scale));
    b->dmin = b->has_min ? as_half(pi__fit_scale(m, wm, b->n_groups, 0, b->scale_hi, b->min)) : 0;
    for (int g = 0; g < b->n_groups; g++) { /* rounding d and dmin to halves may have made them 0 */
        b->scale[g] = b->d != 0 ? clamp(b->scale[g], (float) b->scale_lo, (float) b->scale_hi) : 0;
        if (!b->has_min || b->dmin == 0) b->min[g] = 0;
    }
}

/* Solves d and dmin by least squares for the current codes and quantised scales. */
static void solve(super *b)
{
    float ss = 0, sm = 0, mm = 0, xs = 0, xm = 0;
    for (int g = 0; g < b->n_groups; g++) {
        float qq = 0, q = 0, one = 0, xq = 0, x1 = 0;
        for (int i = g * b->group; i < (g + 1) * b->group; i++) {
            float wq = b->w[i] * b->code[i];
            qq += wq * b->code[i];
            q += wq;
            one += b->w[i];
            xq += wq * b->x[i];
            x1 += b->w[i] * b->x[i];
        }
        float s = b->scale[g], m = b->min[g];
        ss += s * s * qq;
        sm += s * m * q;
        mm += m * m * one;
        xs += s * xq;
        xm += m * x1;
    }
    /* d ss - dmin sm = xs,  d sm - dmin mm = xm */
    float det = ss * mm - sm * sm;
    if (b->has_min && det > 1e-6f * ss * mm) {
        b->d = as_half((xs * mm - xm * sm) / det);
        b->dmin = as_half((xs * sm - xm * ss) / det);
        if (b->dmin >= 0) return;
    }
    b->dmin = 0;
    b->d = ss > 0 ? as_half(xs / ss) : 0;
}

static float refine(super *b)
{
    float err = 0;
    for (int g = 0; g < b->n_groups; g++) err += refine_group(b, g);
    return err;
}

static void fit_super(super *b, const float *src, const float *importance)
{
    pi__clean(src, b->x, PI__QK);
    pi__weights(b->x, importance, PI__QK, b->w);
    memset(b->min, 0, sizeof b->min);
    fit_groups(b);
    float err = refine(b);
    for (int i = 0; i < N_ROUNDS; i++) {
        super next = *b;
        solve(&next);
        float e = refine(&next);
        if (!(e < err)) break;
        err = e;
        *b = next;
    }
}

static const float *at(const float *importance, int64_t block)
{
    return importance ? importance + block * PI__QK : NULL;
}

/* Stores the low 2 bits of (code + bias) of all 256 values in q[64]: byte l of each 32 holds values l, l + 32, l + 64,
 * l + 96 of 128. */
static void store_crumbs(const super *b, int bias, uint8_t *q)
{
    for (int i = 0; i < 64; i++) {
        const float *c = b->code + i / 32 * 128 + i % 32;
        int v = 0;
        for (int k = 0; k < 4; k++) v |= (((int) c[32 * k] + bias) & 3) << 2 * k;
        q[i] = (uint8_t) v;
    }
}

void pi__write_q2_k(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 84) {
        super b = {.n_groups = 16, .group = 16, .hi = 3, .scale_hi = 15, .has_min = true};
        fit_super(&b, src + i * PI__QK, at(importance, i));
        for (int g = 0; g < 16; g++) dst[g] = (uint8_t) ((int) b.scale[g] | (int) b.min[g] << 4);
        store_crumbs(&b, 0, dst + 16);
        pi__store16(dst + 80, pi__f32_to_f16(b.d));
        pi__store16(dst + 82, pi__f32_to_f16(b.dmin));
    }
}

void pi__write_q3_k(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 110) {
        super b = {.n_groups = 16, .group = 16, .lo = -4, .hi = 3, .scale_lo = -32, .scale_hi = 31};
        fit_super(&b, src + i * PI__QK, at(importance, i));
        memset(dst, 0, 32);
        for (int k = 0; k < PI__QK; k++) dst[k % 32] |= (uint8_t) ((b.code[k] >= 0) << k / 32);
        store_crumbs(&b, 4, dst + 32);
        memset(dst + 96, 0, 12);
        for (int g = 0; g < 16; g++) {
            int s = (int) b.scale[g] + 32;
            dst[96 + g % 8] |= (uint8_t) ((s & 15) << g / 8 * 4);
            dst[104 + g % 4] |= (uint8_t) (s >> 4 << g / 4 * 2);
        }
        pi__store16(dst + 108, pi__f32_to_f16(b.d));
    }
}

/* Packs scales and minima of 8 groups, 6 bits each, in 12 bytes. Scales (minima) 0..3 are in the low 6 bits of bytes
 * 0..3 (4..7). Scales and minima 4..7 have their low nibbles in bytes 8..11, and their top two bits in the top bits of
 * bytes 0..3 and 4..7. */
static void store_scale_min(const super *b, uint8_t *p)
{
    memset(p, 0, 12);
    for (int g = 0; g < 4; g++) {
        int s = (int) b->scale[g + 4], m = (int) b->min[g + 4];
        p[g] = (uint8_t) ((int) b->scale[g] | s >> 4 << 6);
        p[g + 4] = (uint8_t) ((int) b->min[g] | m >> 4 << 6);
        p[g + 8] = (uint8_t) ((s & 15) | (m & 15) << 4);
    }
}

/* Stores the low 4 bits of all 256 codes in q[128]: byte l of each 32 holds values l and l + 32 of 64. */
static void store_pairs(const super *b, uint8_t *q)
{
    for (int i = 0; i < 128; i++) {
        const float *c = b->code + i / 32 * 64 + i % 32;
        q[i] = (uint8_t) (((int) c[0] & 15) | ((int) c[32] & 15) << 4);
    }
}

void pi__write_q4_k(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 144) {
        super b = {.n_groups = 8, .group = 32, .hi = 15, .scale_hi = 63, .has_min = true};
        fit_super(&b, src + i * PI__QK, at(importance, i));
        pi__store16(dst, pi__f32_to_f16(b.d));
        pi__store16(dst + 2, pi__f32_to_f16(b.dmin));
        store_scale_min(&b, dst + 4);
        store_pairs(&b, dst + 16);
    }
}

void pi__write_q5_k(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 176) {
        super b = {.n_groups = 8, .group = 32, .hi = 31, .scale_hi = 63, .has_min = true};
        fit_super(&b, src + i * PI__QK, at(importance, i));
        pi__store16(dst, pi__f32_to_f16(b.d));
        pi__store16(dst + 2, pi__f32_to_f16(b.dmin));
        store_scale_min(&b, dst + 4);
        memset(dst + 16, 0, 32);
        for (int k = 0; k < PI__QK; k++) dst[16 + k % 32] |= (uint8_t) ((b.code[k] >= 16) << k / 32);
        store_pairs(&b, dst + 48);
    }
}

void pi__write_q6_k(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 210) {
        super b = {.n_groups = 16, .group = 16, .lo = -32, .hi = 31, .scale_lo = -128, .scale_hi = 127};
        fit_super(&b, src + i * PI__QK, at(importance, i));
        memset(dst, 0, 192);
        for (int k = 0; k < PI__QK; k++) {
            int q = (int) b.code[k] + 32, half = k / 128, l = k % 128;
            dst[half * 64 + l % 64] |= (uint8_t) ((q & 15) << l / 64 * 4);
            dst[128 + half * 32 + l % 32] |= (uint8_t) (q >> 4 << l / 32 * 2);
        }
        for (int g = 0; g < 16; g++) dst[192 + g] = (uint8_t) (int8_t) b.scale[g];
        pi__store16(dst + 208, pi__f32_to_f16(b.d));
    }
}
