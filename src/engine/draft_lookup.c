/* Prompt lookup: searches the prompt and answer of a sequence for its last tokens, and drafts the tokens that
 * followed them. Good where an answer repeats its prompt: edits, quotes, code.
 *
 *     prompt ... the quick brown fox jumps over ...  answer ... the quick brown
 *                ^^^^ equal ^^^^  drafts >>>                    ^^^^^^^^^^^^^^^
 *
 * If the match ends close to the end of the text, later drafts copy earlier ones: a text that repeats itself may do so
 * again. With `shared`, the last `shared` tokens of ended requests are kept, each with its tenant. Drafts come only
 * from texts of the request's tenant.
 *
 * Cost: a token is indexed once (ngrams.h), a search is a few comparisons; no model runs. Memory: one index per row,
 * and the shared text, allocated at init. Step thread only. After prompt lookup decoding (A. Saxena, 2023). */
#include "engine/draft_lookup.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cache/block_pool.h"
#include "engine/ngrams.h"

enum { MOST_INDEXED = 1 << 15 /* max tokens of a sequence in its index */ };

typedef struct draft_lookup {
    pi__drafter base;          /* interface of drafting.c */
    int32_t n;                 /* min tokens that must match */
    int32_t max_seqs;          /* number of rows */
    pi__ngrams *own;           /* [max_seqs] index of each row's sequence */
    /* Texts of ended requests. */
    pi__ngrams others;         /* index; window 0 = disabled */
    pi__text text;             /* points to token and owner below */
    int32_t *token;            /* [others.window] */
    uint64_t *owner;           /* [others.window] tenant of each token; 0 = dropped */
} draft_lookup;

static int32_t n_indexed_tokens(const pi__lookup_shape *s)
{
    return s->longest < MOST_INDEXED ? s->longest : MOST_INDEXED;
}

size_t pi__draft_lookup_bytes(const pi__lookup_shape *s)
{
    const size_t index = sizeof(pi__ngrams) + pi__ngrams_bytes(n_indexed_tokens(s));
    size_t n = sizeof(draft_lookup) + (size_t) s->max_seqs * index;
    /* head and prev, then tokens, then owners of twice the width */
    if (s->shared) n += pi__ngrams_bytes(s->shared) / 2 * 5;
    return n;
}

static pi__text own_text(const pi__seq *s)
{
    /* no token follows the last one */
    return (pi__text) {.token = s->tokens, .mask = INT32_MAX, .end = s->n_tokens - 1};
}

/* Returns an owner number of the tenant that is not 0, since 0 marks dropped tokens. */
static uint64_t number_of(uint64_t tenant) { return tenant | 1; }

static uint64_t tenant_of(const pi__seq *s)
{
    return number_of(pi__tenant_of(s->params.salt));
}

static void lookup_start(pi__drafter *base, pi__seq *s)
{
    draft_lookup *d = (draft_lookup *) base;
    s->spec.n_computed = 0;
    pi__ngrams_clear(&d->own[s->row]);
}

/* Adds the tokens of s that are not yet in its index. */
static void index_own(draft_lookup *d, pi__seq *s, const pi__text *t)
{
    int32_t at = s->spec.n_computed;
    if (at < t->end - d->own[s->row].window) at = t->end - d->own[s->row].window;
    for (; at < t->end; at++)
        if (at >= d->n - 1 && !pi__images_cover(&s->images, at)) pi__ngrams_add(&d->own[s->row], t, at);
    s->spec.n_computed = t->end;
}

static int32_t lookup_offer(pi__drafter *base, pi__seq *s, int32_t most)
{
    /* min match length of each level */
    static const int8_t least[PI__DRAFT_LEVELS] = {0, 4, 5, 7, 10, 16, 32, PI__MOST_MATCH};
    draft_lookup *d = (draft_lookup *) base;
    const pi__text own = own_text(s);
    int32_t length, other = 0;
    index_own(d, s, &own);
    s->spec.from = pi__ngrams_find(&d->own[s->row], &own, s->tokens, s->n_tokens, 0, &length);
    s->spec.elsewhere = false;
    if (d->others.window && s->cacheable && !s->sample_group && length < PI__MOST_MATCH) {
        const int32_t at = pi__ngrams_find(&d->others, &d->text, s->tokens, s->n_tokens, tenant_of(s), &other);
        if (at >= 0 && other > length && at + 1 < d->text.end) {
            s->spec.from = at;
            s->spec.elsewhere = true;
            length = other;
            if (most > d->text.end - 1 - at) most = d->text.end - 1 - at;
        }
    }
    if (s->spec.from < 0) return 0;
    s->spec.level = PI__DRAFT_LEVELS - 1;
    while (length < least[s->spec.level]) s->spec.level--;
    return most;
}

static int lookup_draft(pi__drafter *base, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    const draft_lookup *d = (const draft_lookup *) base;
    (void) err;
    for (int32_t q = 0; q < b->n_seqs; q++) {
        pi__seq *s = seq[q];
        if (!s) continue;
        const pi__text t = s->spec.elsewhere ? d->text : own_text(s);
        for (; s->n_draft < s->n_wish; s->n_draft++) { /* may read drafts written here: the text repeats itself */
            if (!s->spec.elsewhere && pi__images_cover(&s->images, s->spec.from + 1 + s->n_draft)) break;
            s->tokens[s->n_tokens + s->n_draft] = t.token[(s->spec.from + 1 + s->n_draft) & t.mask];
        }
    }
    return PI_OK;
}

void pi__draft_lookup_keep(pi__drafter *base, const pi__seq *s)
{
    draft_lookup *d = (draft_lookup *) base;
    pi__text *t = &d->text;
    /* tokens up to the last image are left out: soft tokens are not text */
    const int32_t W = d->others.window, text = s->n_tokens - pi__images_end(&s->images), n = text < W ? text : W;
    if (!W || !s->cacheable || s->sample_group || n < d->n) return;
    if (t->end > INT32_MAX - W - n) pi__draft_lookup_clear(base, NULL);
    const int32_t start = t->end;
    const uint64_t tenant = tenant_of(s);
    for (int32_t i = 0; i < n; i++) {
        const int32_t at = t->end++;
        d->token[at & t->mask] = s->tokens[s->n_tokens - n + i];
        d->owner[at & t->mask] = tenant;
        if (t->end - t->first > W) t->first = t->end - W;
        if (at - start >= d->n - 1) pi__ngrams_add(&d->others, t, at);
    }
}

void pi__draft_lookup_clear(pi__drafter *base, const uint64_t *tenant)
{
    draft_lookup *d = (draft_lookup *) base;
    if (!d->others.window) return;
    for (int32_t i = 0; i < d->others.window; i++)
        if (!tenant || d->owner[i] == number_of(*tenant)) d->owner[i] = 0, d->token[i] = 0;
    if (tenant) return;
    d->text.first = d->text.end = 0;
    pi__ngrams_clear(&d->others);
}

static void lookup_destroy(pi__drafter *base)
{
    draft_lookup *d = (draft_lookup *) base;
    for (int32_t i = 0; i < d->max_seqs && d->own; i++) pi__ngrams_destroy(&d->own[i]);
    pi__ngrams_destroy(&d->others);
    pi__free(d->own);
    pi__free(d->token);
    pi__free(d->owner);
    pi__free(d);
}

static int init_others(draft_lookup *d, const pi__lookup_shape *s, pi_error *err)
{
    int rc = pi__ngrams_init(&d->others, s->shared, s->n, err);
    if (rc) return rc;
    d->token = pi__calloc((size_t) d->others.window, sizeof *d->token);
    d->owner = pi__calloc((size_t) d->others.window, sizeof *d->owner);
    d->text = (pi__text) {.token = d->token, .owner = d->owner, .mask = d->others.window - 1};
    return d->token && d->owner ? PI_OK : pi__fail_mem(err, "texts of other requests");
}

int pi__draft_lookup_create(pi__drafter **out, const pi__lookup_shape *s, pi_error *err)
{
    static const pi__drafter_fns fns = {.start = lookup_start, .offer = lookup_offer, .draft = lookup_draft,
                                        .destroy = lookup_destroy};
    draft_lookup *d = pi__calloc(1, sizeof *d);
    if (!d) return pi__fail_mem(err, "drafts");
    *d = (draft_lookup) {.base = {.fns = &fns, .n_max = s->n_max}, .n = s->n, .max_seqs = s->max_seqs};
    d->own = pi__calloc((size_t) s->max_seqs, sizeof *d->own);
    int rc = d->own ? PI_OK : pi__fail_mem(err, "drafts");
    for (int32_t i = 0; i < s->max_seqs && !rc; i++) rc = pi__ngrams_init(&d->own[i], n_indexed_tokens(s), s->n, err);
    if (!rc && s->shared) rc = init_others(d, s, err);
    if (rc) lookup_destroy(&d->base);
    else *out = &d->base;
    return rc;
}
