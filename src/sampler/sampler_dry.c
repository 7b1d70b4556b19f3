/* DRY: penalizes tokens that would continue a repetition; the penalty grows with the length of the repetition.
 *
 * Each earlier position in the window has a match length: how many tokens that end there equal the newest tokens. It is
 * the Z-function of the window read backwards, computed in linear time. Matches do not extend over the newest sequence
 * breaker.
 *
 *     window:     a b c c b c y a b c         the newest token is the last
 *     repeats:    0 0 3 1 0 2 0 0 0           "a b c" also ends at position 2, so the c at position 3 would continue it
 *
 * Memory: allocated by init for the longest window; nothing is allocated later. One thread. */
#include "base/alloc.h"
#include "base/error.h"
#include "sampler/sampler_impl.h"

/* Copies the breakers, sorted by head. Returns false if out of memory. */
static bool copy_breakers(pi__dry *d, const int32_t *const *seq, size_t n)
{
    size_t total = 0, at = 0, used = 0;
    uint64_t *order = pi__calloc(n, sizeof *order);
    if (!order) return false;
    for (size_t i = 0; i < n; i++) {
        if (!seq[i] || seq[i][0] < 0) continue; /* empty */
        order[used++] = (uint64_t) (uint32_t) seq[i][0] << 32 | (uint32_t) i;
        for (size_t j = 0; seq[i][j] >= 0; j++) total++;
    }
    pi__keys_sort(order, used);
    d->tokens = pi__calloc(total, sizeof *d->tokens);
    d->breaker = pi__calloc(used, sizeof *d->breaker);
    bool ok = d->tokens && d->breaker;
    for (size_t i = 0; ok && i < used; i++) {
        const int32_t *t = seq[(uint32_t) order[i]];
        size_t start = at;
        while (*t >= 0) d->tokens[at++] = *t++;
        d->breaker[i] = (pi__dry_breaker){d->tokens[start], (int32_t) (at - start - 1), d->tokens + start + 1};
    }
    d->n_breakers = ok ? used : 0;
    pi__free(order);
    return ok;
}

int pi__dry_init(pi__sampler *s, const pi__sampling *p, int32_t max_history, pi_error *err)
{
    pi__dry *d = &s->dry;
    int32_t last_n = p->dry_penalty_last_n;
    bool on = p->dry_multiplier != 0 && p->dry_base >= 1 && last_n != 0;
    if (!on) return PI_OK;
    d->window = last_n < 0 || last_n > max_history ? max_history : last_n;
    /* ln(FLT_MAX) / ln(base) */
    d->max_exponent = p->dry_base > 1.000001f ? (int32_t) (88.7228391 / log((double) p->dry_base)) : 0;
    int32_t distinct = d->window < s->n_vocab ? d->window : s->n_vocab;
    d->z = pi__calloc((size_t) d->window, sizeof *d->z);
    if (!d->z || !pi__idmap_init(&d->longest, distinct) ||
        (p->n_dry_breakers && !copy_breakers(d, p->dry_breakers, p->n_dry_breakers))) {
        return pi__fail_mem(err, "the DRY sampler");
    }
    return PI_OK;
}

void pi__dry_free(pi__dry *d)
{
    pi__idmap_free(&d->longest);
    pi__free(d->breaker);
    pi__free(d->tokens);
    pi__free(d->z);
}

/* Returns the index of the first breaker with this head; n_breakers = not found. */
static size_t first_breaker(const pi__dry *d, int32_t head)
{
    size_t lo = 0, hi = d->n_breakers;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->breaker[mid].head < head) lo = mid + 1;
        else hi = mid;
    }
    return lo < d->n_breakers && d->breaker[lo].head == head ? lo : d->n_breakers;
}

/* Returns the tail length of the longest breaker that starts i tokens before the newest token; -1 = no breaker starts
 * there. */
static int32_t breaker_at(const pi__sampler *s, int32_t i)
{
    const pi__dry *d = &s->dry;
    int32_t head = pi__back(s, i), longest = -1;
    for (size_t b = first_breaker(d, head); b < d->n_breakers && d->breaker[b].head == head; b++) {
        const pi__dry_breaker *k = &d->breaker[b];
        if (k->tail_len <= longest || k->tail_len > i) continue;
        int32_t j = 0;
        while (j < k->tail_len && k->tail[j] == pi__back(s, i - 1 - j)) j++;
        if (j == k->tail_len) longest = k->tail_len;
    }
    return longest;
}

/* Returns the maximum repetition length: the number of tokens after the newest breaker. */
static int32_t repeat_limit(const pi__sampler *s, int32_t n)
{
    for (int32_t i = 0; s->dry.n_breakers && i < n; i++) {
        int32_t tail = breaker_at(s, i);
        if (tail >= 0) return i - tail;
    }
    return n;
}

/* Sets z[k] for k in [1, n): the match length of the token k positions before the newest one. */
static void repeats(const pi__sampler *s, int32_t n)
{
    int32_t *z = s->dry.z;
    /* of all matches so far (tokens [left, end) equal [0, end - left)), the one with the largest end */
    int32_t left = 0, end = 0;
    for (int32_t k = 1; k < n; k++) {
        int32_t len = k < end ? (z[k - left] < end - k ? z[k - left] : end - k) : 0;
        while (k + len < n && pi__back(s, len) == pi__back(s, k + len)) len++;
        z[k] = len;
        if (k + len > end) {
            left = k;
            end = k + len;
        }
    }
}

static bool is_single_breaker(const pi__dry *d, int32_t id)
{
    for (size_t b = first_breaker(d, id); b < d->n_breakers && d->breaker[b].head == id; b++) {
        if (d->breaker[b].tail_len == 0) return true;
    }
    return false;
}

static float penalty(const pi__sampler *s, int32_t repeat)
{
    int32_t e = repeat - s->p.dry_allowed_length;
    if (s->dry.max_exponent > 0 && e > s->dry.max_exponent) e = s->dry.max_exponent;
    return (float) ((double) s->p.dry_multiplier * pow((double) s->p.dry_base, e));
}

void pi__stage_dry(pi__cands *v, pi__sampler *s)
{
    pi__dry *d = &s->dry;
    int32_t n = s->ring_len < d->window ? s->ring_len : d->window, allowed = s->p.dry_allowed_length;
    if (n <= allowed) return;
    int32_t limit = repeat_limit(s, n);
    if (limit < allowed) return;
    repeats(s, n);
    pi__idmap_clear(&d->longest);
    for (int32_t k = 1; k < n; k++) {
        int32_t len = d->z[k] < limit ? d->z[k] : limit, next = pi__back(s, k - 1);
        if (len < allowed || next < 0 || next >= s->n_vocab || is_single_breaker(d, next)) continue;
        int32_t *longest = pi__idmap_put(&d->longest, next);
        if (len > *longest) *longest = len;
    }
    const pi__idmap *m = &d->longest;
    if (!v->list) {
        for (int32_t i = 0; i < m->n; i++) {
            float *x = &v->row[m->entry[i].id];
            *x = pi__logit_clamp(*x - penalty(s, m->entry[i].val));
        }
        return;
    }
    for (size_t i = 0; i < v->n; i++) {
        uint64_t *key = &v->w->key[i];
        int32_t *len = pi__idmap_get(m, pi__key_id(*key));
        if (len) *key = pi__logit_key(pi__logit_clamp(pi__key_logit(*key) - penalty(s, *len)), pi__key_id(*key));
    }
}
