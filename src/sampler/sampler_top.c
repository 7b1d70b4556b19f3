/* Sampling from the topk result of a logits row. The token is the same as from the full row.
 *
 * A topk result (sampler.h, pi__top) has the largest values of a row. All other values rank after the last of them, the
 * border. Stages that only lower logits (penalties, DRY, biases below 0, excluded ids) cannot raise an unknown value
 * above the border. The known values that are still at or above the border after these stages are therefore the best
 * ones of the full row:
 *
 *     head     9.1  8.7  8.2  7.9  7.5 | unknown, at most 7.5
 *     lowered  8.7  8.2  7.9  7.5 | 6.6            the first four are the row's best four; the row's fifth is not known
 *
 * If the first filter keeps only such values, the rest of the chain runs as usual. Otherwise the caller needs the full
 * row. The sampled token is the same in both cases. No memory; one thread at a time. */
#include "sampler/sampler_impl.h"

/* maximum number of biases; largest top-k that is tried if stages before it lower logits */
enum { MAX_BIASES = 64, ROOM = 128 };

/* Returns true if penalties and biases never raise a logit, and there are at most MAX_BIASES biases. */
static bool only_lowers(const pi__sampler *s)
{
    const pi__sampling *p = &s->p;
    if (p->n_bias > MAX_BIASES) return false;
    for (size_t i = 0; i < p->n_bias; i++)
        if (s->bias[i].bias > 0) return false;
    return pi__only_lowers(p);
}

static bool lowers(int kind) { return kind == PI__SMP_PENALTIES || kind == PI__SMP_DRY; }

int32_t pi__sampler_top(const pi__sampler *s, size_t n_forbid, bool *sum)
{
    const uint8_t *c = s->chain;
    *sum = false;
    if (pi__sampler_is_argmax(s) && !n_forbid) return 1;
    if (!only_lowers(s)) return 0;
    while (lowers(*c)) c++;
    const bool as_it_is = c == s->chain && !s->p.n_bias && !n_forbid;
    switch (*c) {
    case PI__SMP_N: return s->greedy ? PI__MAX_TOP : 0;
    case PI__SMP_TOP_K:
        return as_it_is && s->p.top_k <= PI__MAX_TOP ? s->p.top_k : s->p.top_k <= ROOM ? PI__MAX_TOP : 0;
    case PI__SMP_MIN_P: return PI__MAX_TOP;
    case PI__SMP_TOP_P: return *sum = as_it_is, as_it_is ? PI__MAX_TOP : 0;
    default: return 0;
    }
}

int32_t pi__sampler_draw_top(const pi__sampler *s, bool *sum)
{
    const bool row = !s->greedy && s->chain[s->chain[0] == PI__SMP_PENALTIES] != PI__SMP_TOP_K;
    if (!row) return pi__sampler_top(s, 0, sum);
    *sum = s->chain[0] == PI__SMP_TOP_P;
    return *sum || s->chain[0] == PI__SMP_MIN_P ? PI__MAX_TOP : 1;
}

/* Adds the biases of s to the list's logits, and sets the logits of excluded tokens to -inf. */
static void lower(const pi__sampler *s, pi__cands *v, const pi__excluded *x)
{
    for (size_t i = 0; i < v->n; i++) {
        uint64_t *key = &v->w->key[i];
        const int32_t id = pi__key_id(*key);
        for (size_t j = 0; j < s->p.n_bias; j++)
            if (s->bias[j].id == id) *key = pi__logit_key(pi__biased(pi__key_logit(*key), s->bias[j].bias), id);
        for (size_t j = 0; j < x->n_forbid; j++)
            if (x->forbid[j] == id) *key = pi__logit_key(-INFINITY, id);
        if (x->allowed && !(x->allowed[id >> 6] >> (id & 63) & 1)) *key = pi__logit_key(-INFINITY, id);
    }
}

/* Drops excluded tokens and keys after the border from the list, and sorts it. */
static void keep_known(pi__cands *v, uint64_t border)
{
    const uint64_t least = pi__logit_key(-INFINITY, 0); /* smallest key of a -inf logit */
    uint64_t *key = v->w->key;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        if (key[i] < least && key[i] <= border) key[n++] = key[i];
    v->n = n;
    pi__keys_sort(key, n);
}

/* Applies top-k to a sorted list. all: the list has every value above -inf. Returns false if the list has fewer than k
 * values and more values exist. */
static bool top_k(pi__cands *v, size_t k, bool all)
{
    if (k > v->n) return all;
    v->n = k;
    return true;
}

static bool min_p(pi__cands *v, const pi__sampling *p, uint64_t border, bool all)
{
    const float limit = pi__min_p_limit(pi__key_logit(v->w->key[0]), p->min_p);
    size_t n = 0;
    while (n < v->n && pi__key_logit(v->w->key[n]) >= limit) n++;
    if (!all && pi__key_logit(border) >= limit) return false;
    if (p->min_keep > 1 && n < (size_t) p->min_keep)
        return p->min_keep <= PI__MAX_TOP && top_k(v, (size_t) p->min_keep, all);
    v->n = n;
    pi__keys_sort_by_id(v->w->key, n); /* in the order of min-p on a row: later stages add in this order */
    return true;
}

static bool first_filter(const pi__sampler *s, int kind, pi__cands *v, const pi__top *t, uint64_t border)
{
    switch (kind) {
    case PI__SMP_N: return s->greedy; /* greedy needs only the best value */
    case PI__SMP_TOP_K: return s->p.top_k <= PI__MAX_TOP && top_k(v, (size_t) s->p.top_k, t->all);
    case PI__SMP_MIN_P: return min_p(v, &s->p, border, t->all);
    case PI__SMP_TOP_P:
        return pi__cands_keep_mass(v, pi__mass_units((double) s->p.top_p * t->sum), (size_t) s->p.min_keep, t->all);
    default: return false;
    }
}

float pi__top_logit(uint64_t key) { return pi__key_logit(key); }

int32_t pi__sampler_sample_top(pi__sampler *s, pi__sampler_scratch *w, const pi__top *t, float *scribble,
                               const pi__excluded *x)
{
    const bool whole = !x->n_forbid && !x->allowed; /* no token is excluded */
    const uint64_t border = t->all || !t->n ? UINT64_MAX : t->key[t->n - 1];
    const uint8_t *c = s->chain;
    pi__cands v = {.w = w, .row = scribble, .n_row = s->n_vocab, .list = true, .n = (size_t) t->n};
    if (pi__sampler_is_argmax(s) && whole) return pi__top_best(t);
    if (t->odd || !only_lowers(s)) return PI__NEED_ROW;
    memcpy(w->key, t->key, (size_t) t->n * sizeof *t->key);
    lower(s, &v, x);
    for (; lowers(*c); c++) pi__sampler_apply(s, *c, &v);
    keep_known(&v, border);
    if (!v.n) return t->all ? -1 : PI__NEED_ROW;
    const bool as_it_is = c == s->chain && !s->p.n_bias && whole && t->sum > 0;
    if ((*c == PI__SMP_TOP_P && !as_it_is) || !first_filter(s, *c, &v, t, border)) return PI__NEED_ROW;
    if (*c != PI__SMP_N) c++;
    for (; *c != PI__SMP_N; c++) pi__sampler_apply(s, *c, &v);
    return pi__sampler_pick(s, &v);
}

void pi__logprobs_top(const pi__top *t, int32_t id, int32_t n, pi_token_prob *out)
{
    const float max = pi__key_logit(t->key[0]);
    const double log_sum = log(t->sum);
    float own = -INFINITY;
    for (int32_t i = 0; i < t->n; i++)
        if (pi__key_id(t->key[i]) == id) own = pi__key_logit(t->key[i]);
    out[0] = (pi_token_prob) {id, (float) ((double) own - (double) max - log_sum)};
    pi__put_logprobs(t->key, (size_t) t->n, max, log_sum, n, out + 1);
}
