/* The sampler: the chain of stages and the draw. See sampler.h.
 *
 * A random number depends only on the seed, the number of accepted tokens and its purpose (DRAW_*). Drawing again at
 * the same position (after a rejected draft or a preemption) gives the same token, and one stage's draw does not change
 * another's. Memory: the sampler's, allocated by create, and one scratch per thread. */
#include "sampler/sampler.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sampler/sampler_impl.h"

int pi__sampler_scratch_create(pi__sampler_scratch **out, int32_t n_vocab, pi_error *err)
{
    *out = NULL;
    if (n_vocab <= 0) return pi__fail(err, PI_EINVAL, "sampler: a vocabulary of %d tokens is not supported",
                                      (int) n_vocab);
    pi__sampler_scratch *w = pi__calloc(1, sizeof *w);
    if (w) {
        w->n_vocab = n_vocab;
        w->key = pi__calloc((size_t) n_vocab, sizeof *w->key);
        w->weight = pi__calloc((size_t) n_vocab, sizeof *w->weight);
    }
    if (!w || !w->key || !w->weight) {
        pi__sampler_scratch_free(w);
        return pi__fail_mem(err, "the sampler's candidates");
    }
    *out = w;
    return PI_OK;
}

size_t pi__sampler_scratch_bytes(int32_t n_vocab)
{
    const pi__sampler_scratch *w = NULL;
    return sizeof *w + (size_t) n_vocab * (sizeof *w->key + sizeof *w->weight);
}

void pi__sampler_scratch_free(pi__sampler_scratch *w)
{
    if (!w) return;
    pi__free(w->key);
    pi__free(w->weight);
    pi__free(w);
}

/* SplitMix64's output function: a bijection that mixes the bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

enum { DRAW_TOKEN = 0, DRAW_XTC = 1, DRAWS = 2 };

/* Returns the 53 random bits of draw `which` at position n_seen. */
static uint64_t random_bits(const pi__sampler *s, uint64_t n_seen, int which)
{
    uint64_t i = n_seen * DRAWS + (uint64_t) which + 1;
    return mix(s->key + i * 0x9E3779B97F4A7C15u) >> 11;
}

/* Returns draw `which` of the current position, uniform in [0, 1). */
static double uniform(const pi__sampler *s, int which) { return (double) random_bits(s, s->n_seen, which) * 0x1p-53; }

static int check(const pi__sampling *p, int32_t n_vocab, int32_t max_history, pi_error *err)
{
    const struct { const char *name; float value, min, max; } f[] = {
        {"temp", p->temp, -FLT_MAX, FLT_MAX},
        {"dynatemp-range", p->dynatemp_range, 0, 1e30f},
        {"dynatemp-exp", p->dynatemp_exponent, 0, 1e30f},
        {"mirostat", (float) p->mirostat, 0, 2},
        {"mirostat-ent", p->mirostat_tau, 0, 1e30f},
        {"mirostat-lr", p->mirostat_eta, 0, 1e30f},
        {"adaptive-target", p->adaptive_target, -FLT_MAX, 1},
        {"adaptive-decay", p->adaptive_decay, 0, 0.99f},
        {"top-p", p->top_p, 0, FLT_MAX},
        {"min-p", p->min_p, 0, 1},
        {"typical", p->typical_p, 0, FLT_MAX},
        {"top-n-sigma", p->top_n_sigma, -FLT_MAX, FLT_MAX},
        {"repeat-penalty", p->repeat_penalty, 1e-30f, 1e30f},
        {"presence-penalty", p->presence_penalty, -1e30f, 1e30f},
        {"frequency-penalty", p->frequency_penalty, -1e30f, 1e30f},
        {"dry-multiplier", p->dry_multiplier, 0, 1e30f},
        {"dry-base", p->dry_base, 0, 1e30f},
        {"xtc-probability", p->xtc_probability, 0, FLT_MAX},
        {"xtc-threshold", p->xtc_threshold, 0, FLT_MAX},
    };
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) {
        if (!(f[i].value >= f[i].min && f[i].value <= f[i].max))
            return pi__fail(err, PI_EINVAL, "%s: %g is out of range", f[i].name, (double) f[i].value);
    }
    if (n_vocab <= 0 || max_history <= 0) return pi__fail(err, PI_EINVAL, "sampler: an empty vocabulary or context");
    if (p->repeat_last_n < -1) return pi__fail(err, PI_EINVAL, "repeat-last-n: %d is below -1: give -1 or more",
                                               (int) p->repeat_last_n);
    if (p->dry_penalty_last_n < -1)
        return pi__fail(err, PI_EINVAL, "dry-penalty-last-n: %d is below -1: give -1 or more",
                        (int) p->dry_penalty_last_n);
    if (p->dry_allowed_length < 0 || p->min_keep < 0)
        return pi__fail(err, PI_EINVAL, "dry-allowed-length and min-keep must not be negative");
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || p->bias[i].id >= n_vocab)
            return pi__fail(err, PI_EINVAL, "logit-bias: the vocabulary has no token %d", (int) p->bias[i].id);
        if (!(p->bias[i].bias <= FLT_MAX)) return pi__fail(err, PI_EINVAL, "logit-bias: a bias is NaN or +inf");
    }
    for (size_t i = 0; p->chain[i] != PI__SMP_N; i++) {
        if (i == PI__SMP_N || p->chain[i] > PI__SMP_N) return pi__fail(err, PI_EINVAL, "samplers: not a valid chain");
    }
    return PI_OK;
}

/* Returns true if the parameters enable the stage. */
static bool is_active(const pi__sampler *s, int kind)
{
    const pi__sampling *p = &s->p;
    switch (kind) {
    case PI__SMP_PENALTIES: return s->penalty_window > 0;
    case PI__SMP_DRY: return s->dry.window > 0;
    case PI__SMP_TOP_N_SIGMA: return p->top_n_sigma > 0;
    case PI__SMP_TOP_K: return p->top_k > 0 && p->top_k < s->n_vocab;
    case PI__SMP_TYPICAL: return p->typical_p < 1;
    case PI__SMP_TOP_P: return p->top_p < 1;
    case PI__SMP_MIN_P: return p->min_p > 0;
    case PI__SMP_XTC: return p->xtc_probability > 0 && p->xtc_threshold <= 0.5f;
    case PI__SMP_TEMPERATURE: return p->temp != 1 || p->dynatemp_range > 0;
    default: return false; /* Mirostat and adaptive-p: set_chain appends them */
    }
}

/* Returns true for stages that keep the most likely token and leave all logits unchanged. */
static bool keeps_argmax(int kind)
{
    return kind == PI__SMP_TOP_N_SIGMA || kind == PI__SMP_TOP_K || kind == PI__SMP_TOP_P || kind == PI__SMP_MIN_P;
}

static bool in_chain(const pi__sampling *p, int kind)
{
    for (const uint8_t *c = p->chain; *c != PI__SMP_N; c++) {
        if (*c == kind) return true;
    }
    return false;
}

/* Sets s->chain to the active stages of p, and s->has_feedback. A greedy chain ends before the temperature stage.
 * Filters at its end are left out, because they keep the most likely token. Mirostat and adaptive-p determine the
 * token's choice, so they come last, regardless of their position in p. */
static void set_chain(pi__sampler *s, const pi__sampling *p)
{
    static const uint8_t around_mirostat[] = {PI__SMP_TEMPERATURE, PI__SMP_N};
    const int last = p->mirostat ? PI__SMP_MIROSTAT : PI__SMP_ADAPTIVE_P;
    size_t n = 0;
    for (const uint8_t *c = p->mirostat ? around_mirostat : p->chain; *c != PI__SMP_N; c++) {
        if (*c == PI__SMP_TEMPERATURE && s->greedy) break;
        if (is_active(s, *c)) s->chain[n++] = *c;
    }
    while (s->greedy && n > 0 && keeps_argmax(s->chain[n - 1])) n--;
    s->has_feedback = !s->greedy && (p->mirostat || (p->adaptive_target >= 0 && in_chain(p, PI__SMP_ADAPTIVE_P)));
    if (s->has_feedback) s->chain[n++] = (uint8_t) last;
    s->chain[n] = PI__SMP_N;
}

/* Returns true if the temperature is never above 0. With temp <= 0, a dynamic range may still include values above
 * 0. */
static bool is_greedy(const pi__sampling *p)
{
    return p->temp <= 0 &&
           !(p->dynatemp_range > 0 && p->temp + p->dynatemp_range > 0 && in_chain(p, PI__SMP_TEMPERATURE));
}

/* Allocates the history (ring) and the memory of penalties and DRY, if these stages are in p's chain and enabled. */
static int init_history(pi__sampler *s, const pi__sampling *p, int32_t max_history, pi_error *err)
{
    bool penal = p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    if (penal && in_chain(p, PI__SMP_PENALTIES)) {
        int32_t w = p->repeat_last_n < 0 || p->repeat_last_n > max_history ? max_history : p->repeat_last_n;
        s->penalty_window = w;
        int32_t distinct = w < s->n_vocab ? w : s->n_vocab;
        if (w > 0 && !pi__idmap_init(&s->counts, distinct)) return pi__fail_mem(err, "the penalties' counts");
    }
    if (in_chain(p, PI__SMP_DRY)) {
        int rc = pi__dry_init(s, p, max_history, err);
        if (rc) return rc;
    }
    s->ring_cap = s->penalty_window > s->dry.window ? s->penalty_window : s->dry.window;
    if (s->ring_cap > 0) {
        s->ring = pi__calloc((size_t) s->ring_cap, sizeof *s->ring);
        if (!s->ring) return pi__fail_mem(err, "the sampler's history");
    }
    return PI_OK;
}

int pi__sampler_create(pi__sampler **out, const pi__sampling *p, int32_t n_vocab, int32_t max_history, pi_error *err)
{
    *out = NULL;
    int rc = check(p, n_vocab, max_history, err);
    if (rc) return rc;
    pi__sampler *s = pi__calloc(1, sizeof *s);
    if (!s) return pi__fail_mem(err, "a sampler");
    s->p = *p;
    s->p.bias = NULL;
    s->p.dry_breakers = NULL;
    s->n_vocab = n_vocab;
    if (p->mirostat) s->p.dynatemp_range = 0;
    s->key = mix(p->seed + 0x9E3779B97F4A7C15u);
    s->greedy = is_greedy(&s->p);
    pi__feedback_init(&s->feedback, p);
    rc = init_history(s, p, max_history, err);
    if (rc) goto out;
    if (p->n_bias) {
        s->bias = pi__calloc(p->n_bias, sizeof *s->bias);
        if (!s->bias) {
            rc = pi__fail_mem(err, "logit biases");
            goto out;
        }
        memcpy(s->bias, p->bias, p->n_bias * sizeof *s->bias);
    }
    set_chain(s, p);
    *out = s;
    s = NULL;
out:
    pi__sampler_free(s);
    return rc;
}

void pi__sampler_free(pi__sampler *s)
{
    if (!s) return;
    pi__idmap_free(&s->counts);
    pi__dry_free(&s->dry);
    pi__free(s->ring);
    pi__free(s->bias);
    pi__free(s);
}

/* Returns false for placeholder ids of images and other media, which are in the history but are not counted. */
static bool is_token(const pi__sampler *s, int32_t id) { return id >= 0 && id < s->n_vocab; }

void pi__sampler_accept(pi__sampler *s, int32_t id)
{
    s->n_seen++;
    if (s->has_feedback) pi__feedback_accept(s, id);
    if (!s->ring) return;
    if (s->penalty_window > 0) {
        if (s->ring_len >= s->penalty_window) {
            int32_t old = pi__back(s, s->penalty_window - 1);
            int32_t *count = is_token(s, old) ? pi__idmap_get(&s->counts, old) : NULL;
            if (count && --*count == 0) pi__idmap_del(&s->counts, old);
        }
        if (is_token(s, id)) ++*pi__idmap_put(&s->counts, id);
    }
    s->ring[s->ring_next] = id;
    s->ring_next = s->ring_next + 1 == s->ring_cap ? 0 : s->ring_next + 1;
    if (s->ring_len < s->ring_cap) s->ring_len++;
}

void pi__sampler_apply(pi__sampler *s, int kind, pi__cands *v)
{
    const pi__sampling *p = &s->p;
    size_t min_keep = (size_t) p->min_keep;
    switch (kind) {
    case PI__SMP_PENALTIES: pi__stage_penalties(v, s); break;
    case PI__SMP_DRY: pi__stage_dry(v, s); break;
    case PI__SMP_TOP_N_SIGMA: pi__stage_top_n_sigma(v, p->top_n_sigma); break;
    case PI__SMP_TOP_K: pi__stage_top_k(v, p->top_k); break;
    case PI__SMP_TYPICAL: pi__stage_typical(v, p->typical_p, min_keep); break;
    case PI__SMP_TOP_P: pi__stage_top_p(v, p->top_p, min_keep); break;
    case PI__SMP_MIN_P: pi__stage_min_p(v, p->min_p, min_keep); break;
    case PI__SMP_XTC:
        if (uniform(s, DRAW_XTC) < (double) p->xtc_probability) pi__stage_xtc(v, p->xtc_threshold, min_keep);
        break;
    case PI__SMP_ADAPTIVE_P: pi__stage_adaptive_p(v, s); break;
    case PI__SMP_MIROSTAT: pi__stage_mirostat(v, s); break;
    case PI__SMP_TEMPERATURE:
        if (p->dynatemp_range > 0) pi__stage_dynamic_temperature(v, p->temp, p->dynatemp_range, p->dynatemp_exponent);
        else pi__stage_temperature(v, p->temp);
        break;
    }
}

static int32_t pick_greedy(const pi__cands *v)
{
    if (!v->list) return pi__argmax(v->row, v->n_row);
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < v->n; i++) best = v->w->key[i] < best ? v->w->key[i] : best;
    return v->n ? pi__key_id(best) : -1;
}

/* Turns the list into a row: writes the list's logits to v->row, and -inf to all other entries. */
static void spread(pi__cands *v)
{
    for (int32_t i = 0; i < v->n_row; i++) v->row[i] = -INFINITY;
    for (size_t i = 0; i < v->n; i++) v->row[pi__key_id(v->w->key[i])] = pi__key_logit(v->w->key[i]);
    v->list = false;
    v->clean = true;
}

static int32_t pick_random(pi__cands *v, double u)
{
    enum { LONG_LIST = 1024 }; /* for longer lists, sorting takes longer than a pass over a row */
    const float max = pi__cands_max(v);
    if (max == -INFINITY) return -1;
    if (v->list && v->n > LONG_LIST) spread(v);
    if (!v->list) return pi__row_draw(v->row, v->n_row, max, u);
    pi__keys_sort_by_id(v->w->key, v->n);
    return pi__keys_draw(v->w->key, v->n, max, u);
}

int32_t pi__sampler_pick(pi__sampler *s, pi__cands *v)
{
    const int32_t id = s->greedy ? pick_greedy(v) : pick_random(v, uniform(s, DRAW_TOKEN));
    if (s->has_feedback) pi__feedback_drawn(s, v, id);
    return id;
}

/* Applies biases, forbidden tokens and all stages to the row; returns the remaining candidates. */
static pi__cands left_of(pi__sampler *s, pi__sampler_scratch *w, float *logits, const int32_t *forbid, size_t n_forbid)
{
    for (size_t i = 0; i < s->p.n_bias; i++) {
        float *x = &logits[s->bias[i].id];
        *x = pi__biased(*x, s->bias[i].bias);
    }
    for (size_t i = 0; i < n_forbid; i++) {
        if (is_token(s, forbid[i])) logits[forbid[i]] = -INFINITY;
    }
    pi__cands v = {.w = w, .row = logits, .n_row = s->n_vocab};
    for (const uint8_t *c = s->chain; *c != PI__SMP_N; c++) pi__sampler_apply(s, *c, &v);
    return v;
}

int32_t pi__sampler_sample(pi__sampler *s, pi__sampler_scratch *w, float *logits, const int32_t *forbid,
                           size_t n_forbid)
{
    pi__cands v = left_of(s, w, logits, forbid, n_forbid);
    return pi__sampler_pick(s, &v);
}

/* Stores log-probabilities of id and of the n most likely candidates of a list; sorts the list. */
static void list_logprobs(pi__cands *v, int32_t id, int32_t n, pi_token_prob *out)
{
    const uint64_t *key = v->w->key;
    const float max = pi__cands_max(v);
    double sum = 0;
    pi__keys_sort(v->w->key, v->n);
    for (size_t i = 0; i < v->n; i++) sum += (double) pi__exp_neg(pi__key_logit(key[i]) - max);
    const double log_sum = sum > 0 ? log(sum) : 0;
    out[0] = (pi_token_prob) {id, -INFINITY};
    for (size_t i = 0; i < v->n; i++)
        if (pi__key_id(key[i]) == id)
            out[0].logprob = (float) ((double) pi__key_logit(key[i]) - (double) max - log_sum);
    pi__put_logprobs(key, v->n, max, log_sum, n, out + 1);
}

int32_t pi__sampler_sample_drawn(pi__sampler *s, pi__sampler_scratch *w, float *logits, const int32_t *forbid,
                                 size_t n_forbid, int32_t n, pi_token_prob *out)
{
    pi__cands v = left_of(s, w, logits, forbid, n_forbid);
    const int32_t id = pi__sampler_pick(s, &v);
    if (s->greedy) { /* greedy: the token has probability 1 */
        for (int32_t i = 0; i <= n; i++) out[i] = i < 2 ? (pi_token_prob) {id, 0} : (pi_token_prob) {-1, -INFINITY};
    } else if (v.list) {
        list_logprobs(&v, id, n, out);
    } else {
        pi__logprobs(logits, s->n_vocab, id, n, out, w);
    }
    return id;
}

bool pi__sampler_is_argmax(const pi__sampler *s)
{
    return s->greedy && s->chain[0] == PI__SMP_N && s->p.n_bias == 0;
}

/* Stores the penalties in *out, and the penalized tokens with their counts in seen (if not NULL). ahead 1: for the draw
 * after the next token. The device adds the next token itself; the oldest token, which then leaves the window, is not
 * counted here. */
static void put_seen(const pi__sampler *s, int32_t ahead, pi__draw *out, uint32_t *seen)
{
    const pi__idmap *m = &s->counts;
    const int32_t leaves = ahead && s->ring_len >= s->penalty_window ? pi__back(s, s->penalty_window - 1) : -1;
    out->repeat = s->p.repeat_penalty, out->presence = s->p.presence_penalty, out->frequency = s->p.frequency_penalty;
    out->fed = ahead;
    for (int32_t i = 0; i < m->n; i++) {
        const int32_t count = m->entry[i].val - (m->entry[i].id == leaves);
        if (count && seen) seen[out->n_seen] = PI__SEEN(m->entry[i].id, count);
        out->n_seen += count != 0;
    }
}

bool pi__sampler_draw(const pi__sampler *s, int32_t ahead, pi__draw *out, uint32_t *seen)
{
    const pi__sampling *p = &s->p;
    const uint64_t u = random_bits(s, s->n_seen + (uint64_t) ahead, DRAW_TOKEN);
    const uint8_t *c = s->chain;
    *out = (pi__draw) {.low = (uint32_t) u,
                       .high = (uint32_t) (u >> 32),
                       .top_p = 1,
                       .log_min_p = -INFINITY,
                       .temp = s->greedy ? 0 : 1};
    if (pi__sampler_is_argmax(s)) return true;
    if (s->has_feedback || p->n_bias || p->min_keep > 1 || p->dynatemp_range > 0) return false;
    if (*c == PI__SMP_PENALTIES) {
        if (!pi__only_lowers(p) || s->penalty_window > PI__MAX_SEEN || s->n_vocab > 1 << PI__SEEN_BITS) return false;
        put_seen(s, ahead, out, seen);
        c++;
    }
    if (s->greedy) return *c == PI__SMP_N;
    out->row = *c != PI__SMP_TOP_K;
    if (!out->row && p->top_k > (s->penalty_window ? PI__MAX_TOP - PI__MAX_SEEN : PI__MAX_TOP)) return false;
    if (!out->row) out->top_k = s->penalty_window ? p->top_k : 0, c++;
    if (*c == PI__SMP_TOP_P) out->top_p = p->top_p, c++;
    if (*c == PI__SMP_MIN_P) out->log_min_p = logf(p->min_p), c++;
    if (*c == PI__SMP_TEMPERATURE) out->temp = p->temp, c++;
    return *c == PI__SMP_N;
}

void pi__put_logprobs(const uint64_t *key, size_t n_key, float max, double log_sum, int32_t n, pi_token_prob *out)
{
    for (int32_t i = 0; i < n; i++) {
        bool there = (size_t) i < n_key;
        float x = there ? pi__key_logit(key[i]) : -INFINITY;
        out[i].id = there ? pi__key_id(key[i]) : -1;
        out[i].logprob = there ? (float) ((double) x - (double) max - log_sum) : -INFINITY;
    }
}

void pi__logprobs(const float *logits, int32_t n_vocab, int32_t id, int32_t n, pi_token_prob *out,
                  pi__sampler_scratch *w)
{
    bool odd;
    float max = pi__row_max(logits, n_vocab, &odd);
    double log_sum = 0;
    if (!odd) {
        log_sum = max == -INFINITY ? 0 : log(pi__row_exp_sum(logits, n_vocab, max));
    } else {
        max = max > FLT_MAX ? FLT_MAX : max;
        double sum = 0;
        for (int32_t i = 0; i < n_vocab; i++) {
            float x = pi__logit_clamp(logits[i]);
            if (x > -INFINITY) sum += (double) pi__exp_neg(x - max);
        }
        log_sum = sum > 0 ? log(sum) : 0;
    }
    float own = id >= 0 && id < n_vocab ? pi__logit_clamp(logits[id]) : -INFINITY;
    out[0] = (pi_token_prob){id, max == -INFINITY ? -INFINITY : (float) ((double) own - (double) max - log_sum)};
    size_t got = n > 0 ? pi__row_top(logits, n_vocab, n, w->key) : 0;
    pi__keys_sort(w->key, got);
    pi__put_logprobs(w->key, got, max, log_sum, n, out + 1);
}
