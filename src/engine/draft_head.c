/* The drafter that reads the target's hidden states: an MTP head of the model, or a small model trained for it.
 *
 * A drafter with its own cache (MTP) uses a separate cache group of the target's cache. The entry at position p is
 * computed from token x(p) and the target's hidden state at position p - 1. The drafter runs over all tokens that the
 * target computes for the sequences that chose it. The hidden state at p - 1 exists only in the step that computes
 * token x(p - 1). So a prompt chunk of the drafter includes the token after the target's chunk; the block for that
 * token is reserved. Blocks of requests without the drafter lack these entries: they are not a prefix for requests
 * with it.
 *
 * If the hidden state is unknown, the drafter reads zeros: after a prefix hit, after a step without drafts, or after
 * tokens forced by a grammar. Tokens of a sequence that gets no drafts are skipped until it gets some
 * (pi__drafter_rests); they read zeros, too. s->spec.n_computed: tokens in the drafter's cache.
 *
 * A pass makes one draft for each sequence, for up to max_rows sequences. Step thread only. After
 * DeepSeek-V3's multi-token prediction (arXiv 2412.19437). */
#include "engine/draft_head.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cache/cache.h"
#include "engine/config.h"

typedef struct draft_head {
    pi__drafter base;          /* interface of drafting.c */
    pi__model *drafter;        /* the target itself, or a separate model */
    pi__backend *be;           /* runs the drafter */
    pi__cache *cache;          /* keys and values, the drafter's included */
    pi__rows *rows;            /* buffers for logits */
    pi__batch_builder batch;   /* batch of a pass */
    int32_t max_tokens;        /* max tokens of the batch */
    float p_min;               /* a less probable token ends a sequence's drafts */
    int32_t *hidden;           /* [max_tokens] hidden_row of the batch */
    pi__seq **seq;             /* [max_seqs] sequence of each row of the batch */
} draft_head;

/* Adds n tokens of s from position pos on. Token i reads hidden state h + i of the step: that of the token before. */
static void add_head_tokens(draft_head *d, pi__seq *s, const int32_t *tokens, int32_t pos, int32_t n, int32_t h)
{
    const pi__batch *b = &d->batch.b;
    for (int32_t i = 0; i < n; i++) d->hidden[b->n_tokens + i] = h + i;
    d->seq[b->n_seqs] = s;
    pi__batch_add(&d->batch, d->cache, s->row, tokens, pos, n, n);
    pi__batch_add_images(&d->batch, &s->images, false);
}

/* Queues the drafter's step of that kind over the draft batch, unless the backend replays it (begin returns NULL). */
static void queue_head_step(draft_head *d, int kind)
{
    const pi__batch *b = d->be->dev->begin(d->be, &d->batch.b, kind);
    const bool chained = kind == PI__STEP_DRAFT_NEXT || kind == PI__STEP_CHAINED;
    if (b) d->drafter->arch->draft(d->drafter, b, chained, d->batch.b.n_rows ? d->rows->logits : NULL);
}

/* Runs the drafter's step of this kind over the draft batch, and stores the token of each row in rows->ids; -1 = no
 * token is probable enough. Waits for the device. */
static int run_head_step(draft_head *d, int kind, pi_error *err)
{
    queue_head_step(d, kind);
    return pi__rows_pick(d->rows, d->batch.b.n_rows, d->p_min, err);
}

/* Returns the step kind. After a decode step all sequences have the same number of tokens, which can be captured. */
static int catch_up_kind(const draft_head *d)
{
    const pi__batch *b = &d->batch.b;
    const int32_t each = b->n_tokens / b->n_seqs;
    if (b->input_row) return PI__STEP_ANY;
    for (int32_t q = 0; q < b->n_seqs; q++)
        if (b->seq_start[q + 1] - b->seq_start[q] != each || each > d->base.n_max) return PI__STEP_ANY;
    return PI__STEP_CATCH_UP;
}

/* Adds the n tokens of s that the step computed, from the step's token `first` on; without the first one if the
 * drafter's cache has it. Adds the token after them if it is known and the batch and the cache have space. Adds skipped
 * tokens before them. spare: tokens that the batch can hold in addition to the step's. */
static void catch_up_with(draft_head *d, pi__seq *s, int32_t first, int32_t n, int32_t *spare)
{
    const int32_t pos = s->n_computed, seen = s->spec.n_computed > 0 ? s->spec.n_computed : 1;
    const int32_t from = seen > pos ? pos + 1 : seen, late = from < pos ? pos - from : 0;
    int32_t end = pos + n;
    if (pi__drafter_rests(s)) return;
    if (late > *spare) end = from + *spare, *spare = 0; /* the step's own tokens are skipped, too */
    else *spare -= late;
    if (end == pos + n && end < s->n_tokens && (from > pos || *spare) && pi__cache_reserve(d->cache, s->row, end + 1)) {
        *spare -= from <= pos;
        end++;
    }
    d->base.n_caught += end < pos ? end - from : late;
    s->spec.n_computed = end;
    if (from >= end) return;
    const int32_t t = d->batch.b.n_tokens;
    add_head_tokens(d, s, s->tokens + from, from, end - from, first + from - 1 - pos);
    /* the hidden states before these tokens are not available */
    for (int32_t i = from; i <= pos && i < end; i++) d->hidden[t + i - from] = -1;
}

static int head_catch_up(pi__drafter *base, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    draft_head *d = (draft_head *) base;
    int32_t spare = d->max_tokens - b->n_tokens;
    base->n_caught = 0;
    if (!d->drafter->arch->draft_has_cache) return PI_OK;
    pi__batch_clear(&d->batch);
    for (int32_t q = 0; q < b->n_seqs; q++)
        if (seq[q]) catch_up_with(d, seq[q], b->seq_start[q], seq[q]->n_new, &spare);
    return d->batch.b.n_tokens ? run_head_step(d, catch_up_kind(d), err) : PI_OK;
}

static void head_start(pi__drafter *base, pi__seq *s)
{
    (void) base;
    s->spec.n_computed = s->n_computed;
}

static void head_verify(pi__drafter *base, pi__seq *s)
{
    (void) base;
    if (s->spec.n_computed > s->n_computed) s->spec.n_computed = s->n_computed;
}

static int32_t head_offer(pi__drafter *base, pi__seq *s, int32_t most)
{
    (void) base;
    s->spec.level = 0;
    return most;
}

/* Appends the tokens in ids as drafts to the sequences of the rows, and builds the batch of the next draft for
 * sequences with n_draft < n_wish. */
static void take_head_drafts(draft_head *d, int32_t n_rows)
{
    const pi__batch *b = &d->batch.b;
    /* the new batch has no more sequences than the old one has rows: it overwrites only entries already read */
    pi__batch_clear(&d->batch);
    for (int32_t r = 0; r < n_rows; r++) {
        pi__seq *s = d->seq[r];
        if (d->rows->ids[r] < 0) continue; /* not probable enough, or no usable logits */
        const int32_t last = s->n_tokens + s->n_draft++;
        s->tokens[last] = d->rows->ids[r];
        if (s->n_draft == s->n_wish) continue;
        add_head_tokens(d, s, &s->tokens[last], d->drafter->arch->draft_has_cache ? last : s->n_tokens - 1, 1, r);
        pi__batch_add_row(&d->batch, b->n_tokens - 1);
    }
}

/* Returns the index of the hidden state of position pos of sequence q of the step, as the drafter reads it. */
static int32_t hidden_of(const draft_head *d, const pi__batch *step, int32_t q, int32_t pos)
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

/* Builds the batch of draft i + 1 of the n sequences in `round` after draft i was queued; the device inserts the
 * tokens. */
static void queue_next(draft_head *d, pi__seq *const *round, int32_t n, int32_t i)
{
    static const int32_t any = 0; /* placeholder: the device inserts the token that the pass before found */
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (int32_t q = 0, r = 0; q < n; q++) {
        pi__seq *s = round[q];
        if (s->n_wish <= i) continue; /* s had no row in draft i */
        if (s->n_wish > i + 1) {
            add_head_tokens(d, s, &any, d->drafter->arch->draft_has_cache ? s->n_tokens + i : s->n_tokens - 1, 1, r);
            pi__batch_add_row(&d->batch, b->n_tokens - 1);
        }
        r++;
    }
}

/* Makes the drafts of the batch's sequences. All passes are queued before the host waits: the device reads the tokens
 * of each pass from the results of the pass before. */
static int run_round(draft_head *d, pi_error *err)
{
    pi__backend *be = d->be;
    const pi__batch *b = &d->batch.b;
    pi__seq *round[PI__MAX_ROWS];
    const int32_t n = b->n_seqs;
    for (int32_t q = 0; q < n; q++) round[q] = d->seq[q];
    for (int32_t i = 0; b->n_seqs; i++) {
        queue_head_step(d, i ? PI__STEP_CHAINED : PI__STEP_DRAFT);
        pi__rows_search(d->rows, b->n_rows, i, d->p_min > 0);
        queue_next(d, round, n, i);
    }
    int rc = be->dev->finish(be, err);
    for (int32_t i = 0; i < PI__MAX_DRAFT && !rc; i++) {
        for (int32_t q = 0, r = 0; q < n; q++) {
            pi__seq *s = round[q];
            if (s->n_wish <= i) continue;
            const int32_t id = pi__rows_found(d->rows, i, r++, d->p_min);
            /* a draft after one that is missing is dropped, too */
            if (id >= 0 && s->n_draft == i) s->tokens[s->n_tokens + s->n_draft++] = id;
        }
    }
    return rc;
}

/* Makes drafts for up to max_rows sequences of the step from index q on. Returns the index of the next sequence. */
static int32_t make_some(draft_head *d, const pi__batch *step, pi__seq *const *seq, int32_t q, pi_error *err, int *rc)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (; q < step->n_seqs && b->n_seqs < d->rows->max_rows; q++) {
        pi__seq *s = seq[q];
        if (!s || !s->n_wish) continue;
        /* skipped tokens are missing: no drafts this time */
        if (d->drafter->arch->draft_has_cache && s->spec.n_computed < s->n_tokens - 1) continue;
        s->spec.n_computed = s->n_tokens;
        add_head_tokens(d, s, s->tokens + s->n_tokens - 1, s->n_tokens - 1, 1,
                        hidden_of(d, step, q, s->n_computed - 1));
        pi__batch_add_row(&d->batch, b->n_tokens - 1);
    }
    if (b->n_seqs && d->be->opt->chains && pi__rows_searches(d->rows)) {
        *rc = run_round(d, err);
        return q;
    }
    for (int kind = PI__STEP_DRAFT; b->n_seqs && !*rc; kind = PI__STEP_DRAFT_NEXT) {
        *rc = run_head_step(d, kind, err);
        if (!*rc) take_head_drafts(d, b->n_rows);
    }
    return q;
}

static int head_draft(pi__drafter *base, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    draft_head *d = (draft_head *) base;
    int rc = PI_OK;
    for (int32_t q = 0; q < b->n_seqs && !rc;) q = make_some(d, b, seq, q, err, &rc);
    return rc;
}

static void head_destroy(pi__drafter *base)
{
    draft_head *d = (draft_head *) base;
    pi__batch_destroy(&d->batch);
    pi__free(d->hidden);
    pi__free(d->seq);
    pi__free(d);
}

size_t pi__draft_head_bytes(const pi__batch_shape *shape)
{
    return pi__batch_bytes(shape) + (size_t) shape->max_tokens * sizeof(int32_t) +
           (size_t) shape->max_seqs * sizeof(pi__seq *) + sizeof(draft_head);
}

int pi__draft_head_create(pi__drafter **out, pi__model *drafter, pi__backend *be, pi__cache *cache, pi__rows *rows,
                          const pi__batch_shape *shape, int32_t n_max, float p_min, pi_error *err)
{
    static const pi__drafter_fns fns = {.start = head_start,
                                        .catch_up = head_catch_up,
                                        .verify = head_verify,
                                        .offer = head_offer,
                                        .draft = head_draft,
                                        .destroy = head_destroy};
    draft_head *d = pi__calloc(1, sizeof *d);
    if (!d) return pi__fail_mem(err, "drafts");
    *d = (draft_head) {.base = {.fns = &fns, .n_max = n_max},
                       .drafter = drafter,
                       .be = be,
                       .cache = cache,
                       .rows = rows,
                       .max_tokens = shape->max_tokens,
                       .p_min = p_min};
    d->hidden = pi__calloc((size_t) shape->max_tokens, sizeof *d->hidden);
    d->seq = pi__calloc((size_t) shape->max_seqs, sizeof(pi__seq *));
    int rc = d->hidden && d->seq ? pi__batch_init(&d->batch, shape, err) : pi__fail_mem(err, "drafts");
    d->batch.b.hidden_row = d->hidden;
    if (rc) head_destroy(&d->base);
    else *out = &d->base;
    return rc;
}
