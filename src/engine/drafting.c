/* Drafts: a small model guesses the tokens that follow, and the next step verifies them in the same batch as
 * everybody's prefill and decode.
 *
 *   step n     the target computes x(b-1) and gives x(b); the drafter guesses d1 d2 d3
 *   step n+1   the target computes x(b) d1 d2 d3 as one more ragged sequence of the batch; each row is sampled as if
 *              the token before it were known to be right; the rows behind the first wrong one are dropped
 *
 * What is sampled never depends on drafts, only how many steps it takes. A drafter with a cache of its own (MTP) keeps,
 * at position p, what token x(p) and the target's hidden state before it give; it is run over everything the target
 * computes. After a prefix hit one hidden state is not known, and the drafter takes zeros. Only the step thread is here.
 * After DeepSeek-V3's multi-token prediction (arXiv 2412.19437) and speculative decoding (arXiv 2211.17192). */
#include "engine/drafting.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/config.h"

int pi__drafting_init(pi__drafting *d, pi__model *drafter, pi__backend *be, pi__cache *cache, pi__rows *rows,
                      const pi__batch_shape *shape, pi_error *err)
{
    *d = (pi__drafting) {.drafter = drafter, .be = be, .cache = cache, .rows = rows};
    if (!drafter) return PI_OK;
    d->hidden = pi__calloc((size_t) shape->max_tokens, sizeof *d->hidden);
    d->seq = pi__calloc((size_t) shape->max_seqs, sizeof(pi__seq *));
    if (!d->hidden || !d->seq) return pi__fail_mem(err, "drafts");
    const int rc = pi__batch_init(&d->batch, shape, err);
    d->batch.b.hidden_row = d->hidden;
    return rc;
}

size_t pi__drafting_bytes(const pi__batch_shape *shape)
{
    return pi__batch_bytes(shape) + (size_t) shape->max_tokens * sizeof(int32_t) + (size_t) shape->max_seqs * sizeof(pi__seq *);
}

void pi__drafting_destroy(pi__drafting *d)
{
    pi__batch_destroy(&d->batch);
    pi__free(d->hidden);
    pi__free(d->seq);
    memset(d, 0, sizeof *d);
}

/* Token t of the draft batch has the hidden state of the step's token h before it. */
static void add(pi__drafting *d, pi__seq *s, const int32_t *tokens, int32_t pos, int32_t n, int32_t h)
{
    const pi__batch *b = &d->batch.b;
    for (int32_t i = 0; i < n; i++) d->hidden[b->n_tokens + i] = h + i;
    d->seq[b->n_seqs] = s;
    pi__batch_add(&d->batch, d->cache, s->row, tokens, pos, n, n);
}

/* Queues the drafter's step of that kind over the draft batch, unless the backend replays it (begin gives NULL). */
static void queue(pi__drafting *d, int kind)
{
    const pi__batch *b = d->be->dev->begin(d->be, &d->batch.b, kind);
    const bool chained = kind == PI__STEP_DRAFT_NEXT || kind == PI__STEP_CHAINED;
    if (b) d->drafter->arch->draft(d->drafter, b, chained, d->batch.b.n_rows ? d->rows->logits : NULL);
}

/* Runs it, and picks a token of each row. */
static int run(pi__drafting *d, int kind, pi_error *err)
{
    queue(d, kind);
    return pi__rows_pick(d->rows, d->batch.b.n_rows, err);
}

/* After a decode step all sequences have as many tokens to catch up with, which can be captured. */
static int catch_up_kind(const pi__drafting *d)
{
    const pi__batch *b = &d->batch.b;
    const int32_t each = b->n_tokens / b->n_seqs;
    for (int32_t q = 0; q < b->n_seqs; q++)
        if (b->seq_start[q + 1] - b->seq_start[q] != each || each > d->drafter->n_draft) return PI__STEP_ANY;
    return PI__STEP_CATCH_UP;
}

int pi__drafts_catch_up(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    const pi__batch *own = &d->batch.b;
    if (!d->drafter || !d->drafter->arch->draft_has_cache) return PI_OK;
    pi__batch_clear(&d->batch);
    for (int32_t q = 0; q < b->n_seqs; q++) {
        pi__seq *s = seq[q];
        int32_t first = b->seq_start[q], n = s->n_new, pos = s->n_computed;
        bool unknown = s->no_hidden && pos > 0;
        s->no_hidden = false;
        if (unknown) { /* the step's first token, after one that was not computed here */
            int32_t t = own->n_tokens;
            add(d, s, b->token + first, pos, n, first - 1);
            d->hidden[t] = -1;
        } else if (n > 1) {
            add(d, s, b->token + first + 1, pos + 1, n - 1, first);
        }
    }
    return own->n_tokens ? run(d, catch_up_kind(d), err) : PI_OK;
}

/* Number of drafts that s can use: no more than it may still generate beside the token that verifying gives anyway, if
 * there is room for them in the cache. */
static int32_t wish(pi__drafting *d, const pi__seq *s)
{
    int32_t n = s->max_total - s->n_tokens - 1;
    if (n > d->drafter->n_draft) n = d->drafter->n_draft;
    return n > 0 && pi__cache_reserve(d->cache, s->row, s->n_tokens + n) ? n : 0;
}

/* The rows of the draft batch gave the tokens in ids; sequences that want more drafts are in the next one. */
static void take(pi__drafting *d, int32_t n_rows)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch); /* the new one is filled behind the rows that are read: it has no more sequences */
    for (int32_t r = 0; r < n_rows; r++) {
        pi__seq *s = d->seq[r];
        int32_t last = s->n_tokens + s->n_draft++;
        s->tokens[last] = d->rows->ids[r] < 0 ? 0 : d->rows->ids[r]; /* any token, where the drafter gave nothing usable */
        if (s->n_draft == s->n_wish) continue;
        add(d, s, &s->tokens[last], d->drafter->arch->draft_has_cache ? last : s->n_tokens - 1, 1, r);
        pi__batch_add_row(&d->batch, b->n_tokens - 1);
    }
}

/* The index at which the drafter finds the hidden state of position pos of the sampled sequence q of the step. */
static int32_t hidden_of(const pi__drafting *d, const pi__batch *step, int32_t q, int32_t pos)
{
    int32_t t = step->seq_start[q] + pos - step->pos[step->seq_start[q]], lo = 0, hi = step->n_rows - 1;
    if (d->drafter->arch->draft_has_cache) return t;
    while (lo < hi) { /* rows are in the order of tokens */
        int32_t mid = (lo + hi) / 2;
        if (step->logits_indices[mid] < t) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* The same by a device that has its own tokens: the i-th draft of the n sequences in `round` was queued. */
static void queue_next(pi__drafting *d, pi__seq *const *round, int32_t n, int32_t i)
{
    static const int32_t any = 0; /* the device puts in what it found */
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (int32_t q = 0, r = 0; q < n; q++) {
        pi__seq *s = round[q];
        if (s->n_wish <= i) continue; /* it had no row in that draft */
        if (s->n_wish > i + 1) {
            add(d, s, &any, d->drafter->arch->draft_has_cache ? s->n_tokens + i : s->n_tokens - 1, 1, r);
            pi__batch_add_row(&d->batch, b->n_tokens - 1);
        }
        r++;
    }
}

/* Drafts of the sequences of the draft batch, all of them queued before the device is waited for: the tokens of each are
 * what the last one's rows gave, which the device knows. */
static int run_round(pi__drafting *d, pi_error *err)
{
    pi__backend *be = d->be;
    const pi__batch *b = &d->batch.b;
    pi__seq *round[PI__MAX_ROWS];
    const int32_t n = b->n_seqs;
    for (int32_t q = 0; q < n; q++) round[q] = d->seq[q];
    for (int32_t i = 0; b->n_seqs; i++) {
        queue(d, i ? PI__STEP_CHAINED : PI__STEP_DRAFT);
        pi__rows_search(d->rows, b->n_rows, i);
        queue_next(d, round, n, i);
    }
    int rc = be->dev->finish(be, err);
    for (int32_t i = 0; i < PI__MAX_DRAFT && !rc; i++) {
        for (int32_t q = 0, r = 0; q < n; q++) {
            pi__seq *s = round[q];
            if (s->n_wish > i) s->tokens[s->n_tokens + s->n_draft++] = pi__rows_found(d->rows, i, r++);
        }
    }
    return rc;
}

/* Drafts for up to max_rows sequences of the step from the q-th on; returns where to go on. */
static int32_t make_some(pi__drafting *d, const pi__batch *step, pi__seq *const *seq, int32_t q, pi_error *err, int *rc)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (; q < step->n_seqs && b->n_seqs < d->rows->max_rows; q++) {
        pi__seq *s = seq[q];
        if (s && s->n_computed < s->n_tokens - 1 && s->n_tokens > s->n_prompt) s->no_hidden = true; /* its grammar went ahead */
        if (!s || s->n_computed != s->n_tokens - 1) continue; /* ended, or in the middle of its prefill */
        s->n_draft = 0;
        s->n_wish = wish(d, s);
        s->no_hidden = !s->n_wish; /* then a drafter with a cache misses this token */
        if (!s->n_wish) continue;
        add(d, s, s->tokens + s->n_tokens - 1, s->n_tokens - 1, 1, hidden_of(d, step, q, s->n_computed - 1));
        pi__batch_add_row(&d->batch, b->n_tokens - 1);
    }
    if (b->n_seqs && d->be->dev->chains && pi__rows_searches(d->rows)) {
        *rc = run_round(d, err);
        return q;
    }
    for (int kind = PI__STEP_DRAFT; b->n_seqs && !*rc; kind = PI__STEP_DRAFT_NEXT) {
        *rc = run(d, kind, err);
        if (!*rc) take(d, b->n_rows);
    }
    return q;
}

int pi__drafts_make(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    int rc = PI_OK;
    for (int32_t q = 0; d->drafter && q < b->n_seqs && !rc;) q = make_some(d, b, seq, q, err, &rc);
    return rc;
}
