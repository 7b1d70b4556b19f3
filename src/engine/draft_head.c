/* The drafter that is a head of the model (MTP) or a small model made for it, which read the target's hidden states.
 *
 * One with a cache of its own (MTP), in a group beside the target's, keeps at position p what token x(p) and the target's
 * hidden state before it give; it is run over everything that the target computes for a sequence that chose it. The hidden
 * state before a token is there only in the step that computes the token before it: a chunk of a prompt takes the token
 * behind it along, whose block is reserved for that. Blocks of requests without the drafter have nothing of it, and are no
 * prefix for those with it. Where it is not known (after a prefix hit, after a step without drafts,
 * where a grammar went ahead) the drafter takes zeros; so it does for tokens of a sequence that got no drafts, which are left for
 * the time when it gets some (pi__drafter_rests). s->spec.n_computed: tokens that its cache has.
 *
 * Drafts of all sequences are made together, one more of each in a pass, as many sequences as there are rows of logits.
 * Only the step thread is here. After DeepSeek-V3's multi-token prediction (arXiv 2412.19437). */
#include "engine/draft_head.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cache/cache.h"
#include "engine/config.h"

typedef struct draft_head {
    pi__drafter base;          /* what drafting.c sees */
    pi__model *drafter;        /* the target itself, or a model beside it */
    pi__backend *be;           /* where it runs */
    pi__cache *cache;          /* of keys and values, its own included */
    pi__rows *rows;            /* for its logits */
    pi__batch_builder batch;   /* what it runs */
    int32_t max_tokens;        /* of that */
    float p_min;               /* a less probable token ends a sequence's drafts */
    int32_t *hidden;           /* [max_tokens] the batch's hidden_row */
    pi__seq **seq;             /* [max_seqs] sequence of each row of its batch */
} draft_head;

/* Token t of the draft batch has the hidden state of the step's token h before it. */
static void add(draft_head *d, pi__seq *s, const int32_t *tokens, int32_t pos, int32_t n, int32_t h)
{
    const pi__batch *b = &d->batch.b;
    for (int32_t i = 0; i < n; i++) d->hidden[b->n_tokens + i] = h + i;
    d->seq[b->n_seqs] = s;
    pi__batch_add(&d->batch, d->cache, s->row, tokens, pos, n, n);
}

/* Queues the drafter's step of that kind over the draft batch, unless the backend replays it (begin gives NULL). */
static void queue(draft_head *d, int kind)
{
    const pi__batch *b = d->be->dev->begin(d->be, &d->batch.b, kind);
    const bool chained = kind == PI__STEP_DRAFT_NEXT || kind == PI__STEP_CHAINED;
    if (b) d->drafter->arch->draft(d->drafter, b, chained, d->batch.b.n_rows ? d->rows->logits : NULL);
}

/* Runs it, and picks a token of each row. */
static int run(draft_head *d, int kind, pi_error *err)
{
    queue(d, kind);
    return pi__rows_pick(d->rows, d->batch.b.n_rows, d->p_min, err);
}

/* After a decode step all sequences have as many tokens to catch up with, which can be captured. */
static int catch_up_kind(const draft_head *d)
{
    const pi__batch *b = &d->batch.b;
    const int32_t each = b->n_tokens / b->n_seqs;
    for (int32_t q = 0; q < b->n_seqs; q++)
        if (b->seq_start[q + 1] - b->seq_start[q] != each || each > d->base.n_max) return PI__STEP_ANY;
    return PI__STEP_CATCH_UP;
}

/* The n tokens that the step computed of s, from its token `first` on, but for the first one, where it is there already; and the
 * one behind them where it is known, and there is room. Before them what was left for later. spare: tokens that the batch has room
 * for beside those of the step. */
static void catch_up_with(draft_head *d, pi__seq *s, int32_t first, int32_t n, int32_t *spare)
{
    const int32_t pos = s->n_computed, seen = s->spec.n_computed > 0 ? s->spec.n_computed : 1;
    const int32_t from = seen > pos ? pos + 1 : seen, late = from < pos ? pos - from : 0;
    int32_t end = pos + n;
    if (pi__drafter_rests(s)) return;
    if (late > *spare) end = from + *spare, *spare = 0; /* and the step's own are left for later */
    else *spare -= late;
    if (end == pos + n && end < s->n_tokens && (from > pos || *spare) && pi__cache_reserve(d->cache, s->row, end + 1)) {
        *spare -= from <= pos;
        end++;
    }
    d->base.n_caught += end < pos ? end - from : late;
    s->spec.n_computed = end;
    if (from >= end) return;
    const int32_t t = d->batch.b.n_tokens;
    add(d, s, s->tokens + from, from, end - from, first + from - 1 - pos);
    for (int32_t i = from; i <= pos && i < end; i++) d->hidden[t + i - from] = -1; /* the state before it is not at hand */
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
    return d->batch.b.n_tokens ? run(d, catch_up_kind(d), err) : PI_OK;
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

/* The rows of the draft batch gave the tokens in ids; sequences that want more drafts are in the next one. */
static void take(draft_head *d, int32_t n_rows)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch); /* the new one is filled behind the rows that are read: it has no more sequences */
    for (int32_t r = 0; r < n_rows; r++) {
        pi__seq *s = d->seq[r];
        if (d->rows->ids[r] < 0) continue; /* it is not sure enough, or gave nothing usable */
        const int32_t last = s->n_tokens + s->n_draft++;
        s->tokens[last] = d->rows->ids[r];
        if (s->n_draft == s->n_wish) continue;
        add(d, s, &s->tokens[last], d->drafter->arch->draft_has_cache ? last : s->n_tokens - 1, 1, r);
        pi__batch_add_row(&d->batch, b->n_tokens - 1);
    }
}

/* The index at which the drafter finds the hidden state of position pos of the sampled sequence q of the step. */
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

/* The same by a device that has its own tokens: the i-th draft of the n sequences in `round` was queued. */
static void queue_next(draft_head *d, pi__seq *const *round, int32_t n, int32_t i)
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
static int run_round(draft_head *d, pi_error *err)
{
    pi__backend *be = d->be;
    const pi__batch *b = &d->batch.b;
    pi__seq *round[PI__MAX_ROWS];
    const int32_t n = b->n_seqs;
    for (int32_t q = 0; q < n; q++) round[q] = d->seq[q];
    for (int32_t i = 0; b->n_seqs; i++) {
        queue(d, i ? PI__STEP_CHAINED : PI__STEP_DRAFT);
        pi__rows_search(d->rows, b->n_rows, i, d->p_min > 0);
        queue_next(d, round, n, i);
    }
    int rc = be->dev->finish(be, err);
    for (int32_t i = 0; i < PI__MAX_DRAFT && !rc; i++) {
        for (int32_t q = 0, r = 0; q < n; q++) {
            pi__seq *s = round[q];
            if (s->n_wish <= i) continue;
            const int32_t id = pi__rows_found(d->rows, i, r++, d->p_min);
            if (id >= 0 && s->n_draft == i) s->tokens[s->n_tokens + s->n_draft++] = id; /* what is behind one that is none goes, too */
        }
    }
    return rc;
}

/* Drafts for up to max_rows sequences of the step from the q-th on; returns where to go on. */
static int32_t make_some(draft_head *d, const pi__batch *step, pi__seq *const *seq, int32_t q, pi_error *err, int *rc)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (; q < step->n_seqs && b->n_seqs < d->rows->max_rows; q++) {
        pi__seq *s = seq[q];
        if (!s || !s->n_wish) continue;
        if (d->drafter->arch->draft_has_cache && s->spec.n_computed < s->n_tokens - 1) continue; /* left for later: not this time */
        s->spec.n_computed = s->n_tokens;
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
    return pi__batch_bytes(shape) + (size_t) shape->max_tokens * sizeof(int32_t) + (size_t) shape->max_seqs * sizeof(pi__seq *) +
           sizeof(draft_head);
}

int pi__draft_head_create(pi__drafter **out, pi__model *drafter, pi__backend *be, pi__cache *cache, pi__rows *rows,
                          const pi__batch_shape *shape, int32_t n_max, float p_min, pi_error *err)
{
    static const pi__drafter_fns fns = {.start = head_start, .catch_up = head_catch_up, .verify = head_verify, .offer = head_offer,
                                        .draft = head_draft, .destroy = head_destroy};
    draft_head *d = pi__calloc(1, sizeof *d);
    if (!d) return pi__fail_mem(err, "drafts");
    *d = (draft_head) {.base = {.fns = &fns, .n_max = n_max}, .drafter = drafter, .be = be, .cache = cache, .rows = rows,
                       .max_tokens = shape->max_tokens, .p_min = p_min};
    d->hidden = pi__calloc((size_t) shape->max_tokens, sizeof *d->hidden);
    d->seq = pi__calloc((size_t) shape->max_seqs, sizeof(pi__seq *));
    int rc = d->hidden && d->seq ? pi__batch_init(&d->batch, shape, err) : pi__fail_mem(err, "drafts");
    d->batch.b.hidden_row = d->hidden;
    if (rc) head_destroy(&d->base);
    else *out = &d->base;
    return rc;
}
