/* Writer of IQ4_XS: 256 values in groups of 32 at 16 unevenly spaced levels. Each group has a 6-bit scale, and all
 * groups share a half d: value = d * scale * level.
 *
 * As for the K formats (quant_k.c), each group is fitted separately, and d is derived from the fits. Then each group
 * tries adjacent scales with d fixed. In up to ROUNDS rounds, d is solved again by least squares with the levels fixed,
 * and the scales are refined again. A round is kept only if it lowers the error. No memory, no state. */
#include "formats/formats_impl.h"

enum { GROUPS = 8, GROUP = 32, SCALE_LO = -32, SCALE_HI = 31, ROUNDS = 2 };

typedef struct super { /* a super-block during the fit: values, weights, current scales */
    float x[PI__QK], w[PI__QK];
    float d;             /* rounded to a half; x ~ d * scale * level */
    int scale[GROUPS];
} super;

static float as_half(float f) { return pi__f16_to_f32(pi__finite_half(f)); }

/* Returns a / b, rounded to an integer and clamped to SCALE_LO..SCALE_HI; 0 if b is 0. */
static int quotient(float a, float b)
{
    float q = b != 0 ? a / b : 0;
    q = q < SCALE_LO ? SCALE_LO : q > SCALE_HI ? SCALE_HI : q;
    return (int) (q + (q < 0 ? -0.5f : 0.5f));
}

static float error_of(const super *b, int g, int scale)
{
    const float *x = b->x + g * GROUP, *w = b->w + g * GROUP;
    return pi__try_levels(&pi__levels_iq4nl, x, w, GROUP, b->d * (float) scale);
}

/* Sets each group's scale to the best of the current scale and the scales 1 below and 1 above, for the current d.
 * Returns the weighted squared error of the super-block. */
static float refine(super *b)
{
    float sum = 0;
    for (int g = 0; g < GROUPS; g++) {
        int was = b->scale[g];
        float best = error_of(b, g, was);
        for (int s = was - 1; s <= was + 1; s += 2) {
            float err = s < SCALE_LO || s > SCALE_HI ? best : error_of(b, g, s);
            if (!(err < best)) continue;
            best = err;
            b->scale[g] = s;
        }
        sum += best;
    }
    return sum;
}

/* Sets d by least squares, with each value's level fixed to its level for the current d and scales. */
static void solve(super *b)
{
    float xv = 0, vv = 0;
    for (int g = 0; g < GROUPS; g++) {
        uint8_t code[GROUP];
        pi__level_codes(&pi__levels_iq4nl, b->x + g * GROUP, GROUP, b->d * (float) b->scale[g], code);
        for (int i = 0; i < GROUP; i++) {
            float v = (float) b->scale[g] * pi__levels_iq4nl.value[code[i]], w = b->w[g * GROUP + i];
            xv += w * v * b->x[g * GROUP + i];
            vv += w * v * v;
        }
    }
    if (vv > 0) b->d = as_half(xv / vv);
}

static void fit_super(super *b, const float *src, const float *importance)
{
    float alone[GROUPS], power[GROUPS], unused[GROUPS];
    pi__clean(src, b->x, PI__QK);
    pi__weights(b->x, importance, PI__QK, b->w);
    for (int g = 0; g < GROUPS; g++) {
        const float *x = b->x + g * GROUP, *w = b->w + g * GROUP;
        alone[g] = pi__fit_levels(&pi__levels_iq4nl, x, w, GROUP);
        power[g] = 0;
        for (int i = 0; i < GROUP; i++) power[g] += alone[g] != 0 ? w[i] * (x[i] / alone[g]) * (x[i] / alone[g]) : 0;
    }
    b->d = as_half(pi__fit_scale(alone, power, GROUPS, SCALE_LO, SCALE_HI, unused));
    for (int g = 0; g < GROUPS; g++) b->scale[g] = quotient(alone[g], b->d);
    float err = refine(b);
    for (int i = 0; i < ROUNDS; i++) {
        super next = *b;
        solve(&next);
        float e = refine(&next);
        if (!(e < err)) break;
        err = e;
        *b = next;
    }
}

/* Stores the super-block at dst; dequant_iq.c describes the layout. */
static void store(const super *b, uint8_t *dst)
{
    unsigned high = 0;
    pi__store16(dst, pi__f32_to_f16(b->d));
    memset(dst + 4, 0, 4);
    for (int g = 0; g < GROUPS; g++) {
        uint8_t code[GROUP], *q = dst + 8 + 16 * g;
        unsigned s = (unsigned) (b->scale[g] - SCALE_LO);
        high |= s >> 4 << 2 * g;
        dst[4 + g / 2] |= (uint8_t) ((s & 15) << g % 2 * 4);
        pi__level_codes(&pi__levels_iq4nl, b->x + g * GROUP, GROUP, b->d * (float) b->scale[g], code);
        for (int j = 0; j < 16; j++) q[j] = (uint8_t) (code[j] | code[j + 16] << 4);
    }
    pi__store16(dst + 2, (uint16_t) high);
}

void pi__write_iq4_xs(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 136) {
        super b;
        fit_super(&b, src + i * PI__QK, importance ? importance + i * PI__QK : NULL);
        store(&b, dst);
    }
}
