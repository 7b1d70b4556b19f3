/* RoPE frequencies, scaled to contexts longer than the training context if metadata (or the user's override) says so.
 * Pure except for reading metadata. Threads: any.
 *
 *     linear     f_i = b^(-2i/n) / s
 *     yarn       f_i = (1 - r_i) b^(-2i/n) / s + r_i b^(-2i/n)     (Peng et al., "YaRN", arXiv 2309.00071)
 *
 * r_i falls from 1 to 0 between the pairs that rotate beta_fast and beta_slow times over the training context, so
 * fast pairs keep their frequency. The two pair indices are rounded outwards to integers, or kept as fractions
 * (pi__model.yarn_exact). YaRN also multiplies cosines and sines by 1 + 0.1 ln s, to compensate for flatter
 * attention. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/declare.h"

static const double PI = 3.14159265358979323846;

enum { NONE, LINEAR, YARN };

typedef struct scaling {
    int kind;
    float factor;         /* s: how many times longer the max context is than the training context */
    int32_t trained;      /* training context in tokens */
    float ext;            /* factor of r_i: 0 = linear scaling only */
    float attn;           /* factor of cosines and sines, in addition to YaRN's */
    /* coefficient of ln s that the model applies to scores elsewhere, and that is divided out here */
    float all;
    float fast, slow;     /* beta_fast, beta_slow, in rotations */
} scaling;

static bool is(pi__str s, const char *word) { return s.n == strlen(word) && !memcmp(s.p, word, s.n); }

static scaling read_scaling(pi__model *m)
{
    char key[96];
    pi__str type = {0};
    scaling s = {.factor = 1};
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch->name);
    if (pi__model_ok(m)) pi__gguf_get_str(m->g, key, &type, &m->error);
    s.factor = pi__hp_f32_or(m, "rope.scaling.factor", pi__hp_f32_or(m, "rope.scale_linear", 1));
    s.attn = pi__hp_f32_or(m, "rope.scaling.attn_factor", 1);
    s.ext = pi__hp_f32_or(m, "rope.scaling.yarn_ext_factor", 1);
    s.all = pi__hp_f32_or(m, "rope.scaling.yarn_log_multiplier", 0);
    s.fast = pi__hp_f32_or(m, "rope.scaling.yarn_beta_fast", 32);
    s.slow = pi__hp_f32_or(m, "rope.scaling.yarn_beta_slow", 1);
    s.trained = pi__hp_u32_or(m, "rope.scaling.original_context_length", (uint32_t) m->n_ctx_train, 1, 1 << 28);
    s.kind = !type.p || is(type, "linear") ? LINEAR : is(type, "yarn") ? YARN : NONE;
    if (s.kind == NONE && !is(type, "none"))
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s is not \"none\", \"linear\" or \"yarn\"", key);
    if (s.kind == NONE) s.factor = s.attn = 1;
    if (!(s.factor > 0) || !(s.attn > 0) || !(s.all >= 0) || !(s.slow > 0) || !(s.fast >= s.slow) || s.ext < 0 ||
        s.ext > 1)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.rope.scaling: factor, attn_factor and yarn_beta_slow must be "
                         "positive, yarn_log_multiplier not negative, "
                         "yarn_beta_fast at least yarn_beta_slow, yarn_ext_factor 0 to 1", m->arch->name);
    return s;
}

/* Returns the index of the pair (of n / 2) that rotates `turns` times over the training context; a fraction. */
static double pair_of(const scaling *s, int32_t n, double base, double turns)
{
    return n * log(s->trained / (turns * 2 * PI)) / (2 * log(base));
}

float pi__rope_freqs(pi__model *m, const char *base_key, float base, bool scaled, int32_t n, float *freq)
{
    base = pi__hp_f32_or(m, base_key, base);
    const scaling s = scaled ? read_scaling(m) : (scaling) {.kind = NONE, .factor = 1, .attn = 1};
    if (!(base > 1)) pi__model_refuse(m, PI_EFORMAT, "metadata %s.%s must be above 1", m->arch->name, base_key);
    if (!pi__model_ok(m)) return 1;
    double low = 0, high = 0, mscale = s.attn;
    if (s.kind == YARN) {
        if (s.ext > 0) mscale = s.attn * (1 + 0.1 * log(s.factor)) / (1 + 0.1 * (double) s.all * log(s.factor));
        low = pair_of(&s, n, base, s.fast), high = pair_of(&s, n, base, s.slow);
        if (!m->yarn_exact) low = floor(low), high = ceil(high);
        low = fmax(0, low), high = fmin(n - 1, high);
    }
    for (int32_t i = 0; i < n / 2; i++) {
        const double f = pow(base, -2.0 * i / n);
        const double r = s.kind == YARN ? s.ext * (1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)))) : 0;
        freq[i] = (float) ((1 - r) * (f / s.factor) + r * f);
    }
    return (float) mscale;
}
