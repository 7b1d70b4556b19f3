/* The block drafter (DFlash): one pass over a sequence's last token and mask tokens after it; each mask gives the
 * token at its position.
 *
 * The drafter attends to keys and values computed from the target's hidden states. The drafter computes ("injects")
 * them for every token that the target computes for its sequences, drafts included. The token at the position of a
 * rejected draft overwrites the draft's entries. So the drafter's cache covers all computed tokens and never depends on
 * drafts: entries of a block lie after the computed tokens.
 *
 *     the step computed   x(0) .. x(n-1)          injected at 0 .. n-1
 *     and gave            x(n)
 *     the block           x(n) mask mask mask     at n .. n+3, gives drafts for n+1, n+2, n+3
 *
 * A chained drafter (DSpark: each token depends on the one before) also makes one pass over the block. Then it takes
 * one token per sequence at a time, with logits that depend on the token before.
 *
 * A drafter with a selector (DFlash2) gives candidates for each token; draft_select.c chooses among them.
 *
 * A block has the maximal number of drafts even if fewer are requested: the drafter was trained on complete blocks.
 * Memory: allocated at create. Step thread only. */
#include "engine/draft_block.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cache/cache.h"
#include "engine/config.h"
#include "engine/draft_select.h"

/* Max tokens of a captured injection, padding included: the drafter processes that many in one pass. */
enum { INJECTED = 256 };

typedef struct draft_block {
    pi__drafter base;          /* interface of drafting.c */
    pi__draft_block_config c;  /* copy of the config given to create */
    pi__rows rows;             /* copy of the engine's rows, with n_vocab set to the width of the drafter's output */
    pi__batch_builder batch;   /* batch of a pass */
    int32_t max_tokens;        /* max tokens of the batch */
    /* [max_tokens] row of the target's step for each token of the batch; -1 = not available */
    int32_t *row;
    pi__seq **seq;             /* [max_seqs] sequences of the batch */
    int32_t *at;               /* [max_seqs] first logits row of each sequence */
    float sure[PI__MAX_ROWS];  /* confidence logit of each row, for drafters with a confidence output */
    pi__selector select;       /* n 0 = the drafter has no selector */
} draft_block;

/* Returns the index within a block of the first token that gives a draft: 0, or 1 if the block has no anchor. */
static int32_t first_slot(const draft_block *d) { return !d->c.drafter->block.anchor; }

/* Adds the n tokens of s that the step computed, from the step's token `first` on. Adds up to *spare skipped tokens
 * before them and subtracts these from *spare. If *spare is too small, the step's tokens are skipped, too. Hidden
 * states of skipped tokens are no longer available; zeros replace them. */
static void inject_of(draft_block *d, pi__seq *s, int32_t first, int32_t n, int32_t *spare)
{
    const int32_t pos = s->n_computed, t = d->batch.b.n_tokens,
                  from = s->spec.n_computed < pos ? s->spec.n_computed : pos;
    const int32_t end = pos - from > *spare ? from + *spare : pos + n;
    if (pi__drafter_rests(s) || from == end) return;
    *spare -= (end < pos ? end : pos) - from;
    d->base.n_caught += (end < pos ? end : pos) - from;
    for (int32_t i = from; i < end; i++) d->row[t + i - from] = i < pos ? -1 : first + i - pos;
    pi__batch_add(&d->batch, d->c.cache, s->row, s->tokens + from, from, end - from, end - from);
    s->spec.n_computed = end;
}

static int block_catch_up(pi__drafter *base, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    draft_block *d = (draft_block *) base;
    pi__model *m = d->c.drafter;
    int32_t spare = d->max_tokens - b->n_tokens;
    base->n_caught = 0;
    pi__batch_clear(&d->batch);
    for (int32_t q = 0; q < b->n_seqs; q++)
        if (seq[q]) inject_of(d, seq[q], b->seq_start[q], seq[q]->n_new, &spare);
    if (!d->batch.b.n_tokens) return PI_OK;
    const pi__batch *step = &d->batch.b;
    /* true after decode steps: the injection can be captured */
    const bool even = pi__batch_is_even(step, d->base.n_max + 1, 0) && 2 * step->n_tokens <= INJECTED;
    const pi__batch *own = d->c.be->dev->begin(d->c.be, &d->batch.b, even ? PI__STEP_INJECT : PI__STEP_ANY);
    if (own) m->arch->inject(m, own, own->hidden_row);
    return d->c.be->dev->finish(d->c.be, err);
}

static void block_start(pi__drafter *base, pi__seq *s)
{
    (void) base;
    s->spec.n_computed = s->n_computed;
}

static void block_verify(pi__drafter *base, pi__seq *s)
{
    (void) base;
    if (s->spec.n_computed > s->n_computed) s->spec.n_computed = s->n_computed;
}

static int32_t block_offer(pi__drafter *base, pi__seq *s, int32_t most)
{
    (void) base;
    s->spec.level = 0;
    return most;
}

/* Returns the number of tokens of the block of s: a complete block, if max_total and the cache allow it. */
static int32_t tokens_of_block(const draft_block *d, const pi__seq *s)
{
    const int32_t last = s->n_tokens - 1;
    int32_t n = d->base.n_max + first_slot(d);
    if (n > s->max_total - last) n = s->max_total - last;
    if (n > s->n_wish + first_slot(d) && !pi__cache_reserve(d->c.cache, s->row, last + n))
        n = s->n_wish + first_slot(d);
    return n;
}

/* Adds the blocks of the sequences that fit a batch, from index q on. Returns the index of the next sequence. */
static int32_t add_blocks(draft_block *d, const pi__batch *step, pi__seq *const *seq, int32_t q)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (; q < step->n_seqs; q++) {
        pi__seq *s = seq[q];
        /* skipped tokens are missing: no drafts this time */
        if (!s || !s->n_wish || s->spec.n_computed < s->n_tokens - 1) continue;
        if (d->c.drafter->block.chained && b->n_seqs == d->rows.max_rows) break;
        int32_t token[PI__MAX_DRAFT + 1] = {s->tokens[s->n_tokens - 1]};
        const int32_t n = tokens_of_block(d, s), first = b->n_tokens;
        if (first + n > d->max_tokens) break;
        for (int32_t i = 1; i < n; i++) token[i] = d->c.drafter->block.mask;
        d->seq[b->n_seqs] = s;
        d->at[b->n_seqs] = b->n_rows;
        pi__batch_add(&d->batch, d->c.cache, s->row, token, s->n_tokens - 1, n, n);
        for (int32_t i = 0; i < s->n_wish; i++) pi__batch_add_row(&d->batch, first + first_slot(d) + i);
    }
    return q;
}

/* Requests the top tokens of the first n logits rows, with the data for their probabilities, and waits for the
 * device. */
static int pick_block_drafts(draft_block *d, int32_t n, bool *found, pi_error *err)
{
    pi__rows *rows = &d->rows;
    const int32_t k = d->select.n ? d->select.n : 1;
    for (int32_t r = 0; r < n; r++)
        rows->request[r] = (pi__topk_request) {.k = rows->skip ? k : 0, .sum = !d->select.n && d->c.p_min > 0};
    if (d->select.n) pi__selector_copy(&d->select, n);
    if (d->c.drafter->block.sure && d->c.p_min > 0)
        d->c.be->dev->download(d->c.be, d->sure, d->c.drafter->block.sure, (size_t) n * sizeof *d->sure);
    *found = pi__rows_request(rows, n);
    if (!*found) pi__rows_copy(rows, 0, n);
    return d->c.be->dev->finish(d->c.be, err);
}

/* Returns the probability of token id of row r; from the drafter's confidence output if it has one. */
static double draft_probability(const draft_block *d, int32_t r, int32_t id, const pi__top *top)
{
    const float *x = pi__row(&d->rows, r);
    double sum = top ? top->sum : 0;
    if (d->c.drafter->block.sure) return 1 / (1 + exp(-(double) (d->sure[r] + d->c.drafter->block.sure_bias)));
    for (int32_t i = 0; i < d->rows.n_vocab && !top; i++) sum += (double) expf(x[i] - x[id]);
    return sum > 0 ? 1 / sum : 0;
}

/* Returns the token drafted from row r; -1 = no token is probable enough. found: read topk results, else the full
 * row. */
static int32_t token_of(const draft_block *d, int32_t r, bool found)
{
    const pi__top top = found ? pi__rows_topk(&d->rows, r) : (pi__top) {0};
    const int32_t *name = d->c.drafter->block.token;
    const int32_t id = found ? pi__top_best(&top) : pi__argmax(pi__row(&d->rows, r), d->rows.n_vocab);
    if (id < 0) return -1;
    if (d->c.p_min > 0 && !(draft_probability(d, r, id, found ? &top : NULL) >= (double) d->c.p_min)) return -1;
    return name ? name[id] : id;
}

/* Appends the tokens drafted from logits rows first..first+n as drafts to their sequences. A missing token ends the
 * drafts of its sequence. */
static void take_block_drafts(draft_block *d, int32_t first, int32_t n, bool found)
{
    const pi__batch *b = &d->batch.b;
    for (int32_t r = 0; r < n; r++) {
        const int32_t t = b->logits_indices[first + r];
        pi__seq *s = d->seq[b->seq[t]];
        if (b->pos[t] != s->n_tokens + s->n_draft) continue; /* a missing token ended the drafts */
        const int32_t id = token_of(d, r, found);
        if (id >= 0) s->tokens[s->n_tokens + s->n_draft++] = id;
    }
}

/* Returns the sequence of row first + r of the batch if the row continues its drafts, else NULL. */
static pi__seq *going_on(const draft_block *d, int32_t first, int32_t r)
{
    const pi__batch *b = &d->batch.b;
    const int32_t t = b->logits_indices[first + r];
    pi__seq *s = d->seq[b->seq[t]];
    return b->pos[t] == s->n_tokens + s->n_draft ? s : NULL;
}

/* Like take_block_drafts with a selector: stores the candidates of all rows, then chooses one per row in order. */
static int take_selected(draft_block *d, int32_t first, int32_t n, bool found, pi_error *err)
{
    const pi__batch *b = &d->batch.b;
    for (int32_t r = 0; r < n; r++) {
        const pi__top top = found ? pi__rows_topk(&d->rows, r) : (pi__top) {0};
        const pi__seq *s = going_on(d, first, r);
        pi__selector_row(&d->select, r, found ? NULL : pi__row(&d->rows, r), found ? &top : NULL,
                         s ? s->tokens[s->n_tokens + s->n_draft - 1] : -1);
    }
    const int rc = pi__selector_read(&d->select, n, err);
    for (int32_t r = 0, from = -1; r < n && !rc; r++) {
        pi__seq *s = going_on(d, first, r);
        double p;
        if (!s) continue;
        if (!r || b->seq[b->logits_indices[first + r]] != b->seq[b->logits_indices[first + r - 1]]) from = -1;
        from = pi__selector_best(&d->select, r, from, &p);
        if (from >= 0 && p >= (double) d->c.p_min)
            s->tokens[s->n_tokens + s->n_draft++] = pi__selector_token(&d->select, r, from);
    }
    return rc;
}

/* True if all blocks have the same shape and their logits rows fit one pass: the step can be captured. */
static bool is_even(const draft_block *d)
{
    return pi__batch_is_even(&d->batch.b, d->base.n_max + 1, d->rows.max_rows);
}

/* Runs the batch and takes the drafts, max_rows logits rows at a time. */
static int run_block_step(draft_block *d, pi_error *err)
{
    pi__model *m = d->c.drafter;
    const int32_t n_rows = d->batch.b.n_rows;
    const bool even = is_even(d);
    bool found = false;
    int rc = PI_OK;
    const pi__batch *b = d->c.be->dev->begin(d->c.be, &d->batch.b, even ? PI__STEP_BLOCK : PI__STEP_ANY);
    if (b) m->arch->forward(m, b, m->n_layer);
    if (b && even) m->arch->logits(m, 0, b->n_rows, d->rows.logits);
    for (int32_t first = 0; first < n_rows && !rc; first += d->rows.max_rows) {
        const int32_t n = n_rows - first < d->rows.max_rows ? n_rows - first : d->rows.max_rows;
        if (!even) m->arch->logits(m, first, n, d->rows.logits);
        rc = pick_block_drafts(d, n, &found, err);
        if (!rc && d->select.n) rc = take_selected(d, first, n, found, err);
        else if (!rc) take_block_drafts(d, first, n, found);
    }
    return rc;
}

/* Adds the i-th token of the sequences that have all drafts before it. Returns the number of sequences; d->seq and
 * d->at are reduced to them. */
static int32_t add_next(draft_block *d, int32_t n, int32_t i)
{
    int32_t k = 0;
    pi__batch_clear(&d->batch);
    for (int32_t q = 0; q < n; q++) {
        pi__seq *s = d->seq[q];
        if (s->n_draft < i || s->n_wish <= i) continue;
        d->seq[k] = s;
        d->at[k] = d->at[q];
        d->row[k] = d->at[k] + i;
        pi__batch_add(&d->batch, d->c.cache, s->row, &s->tokens[s->n_tokens + i - 1], s->n_tokens - 1 + i, 1, 1);
        pi__batch_add_row(&d->batch, k++);
    }
    return k;
}

/* Like run_block_step for a chained drafter: one token of each sequence at a time. */
static int run_chained(draft_block *d, pi_error *err)
{
    pi__model *m = d->c.drafter;
    pi__backend *be = d->c.be;
    int32_t n = d->batch.b.n_seqs;
    bool found = false;
    const pi__batch *b = be->dev->begin(be, &d->batch.b, is_even(d) ? PI__STEP_BLOCK : PI__STEP_ANY);
    if (b) m->arch->forward(m, b, m->n_layer);
    int rc = be->dev->finish(be, err);
    for (int32_t i = 0; !rc && (n = add_next(d, n, i)) > 0; i++) {
        b = be->dev->begin(be, &d->batch.b, PI__STEP_DRAFT);
        if (b) m->arch->draft(m, b, i > 0, d->rows.logits);
        rc = pick_block_drafts(d, n, &found, err);
        for (int32_t r = 0; r < n && !rc; r++) {
            pi__seq *s = d->seq[r];
            const int32_t id = token_of(d, r, found);
            if (id >= 0) s->tokens[s->n_tokens + s->n_draft++] = id;
        }
    }
    return rc;
}

static int block_draft(pi__drafter *base, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    draft_block *d = (draft_block *) base;
    int rc = PI_OK;
    for (int32_t q = 0; q < b->n_seqs && !rc;) {
        q = add_blocks(d, b, seq, q);
        if (!d->batch.b.n_seqs) break;
        rc = d->c.drafter->block.chained ? run_chained(d, err) : run_block_step(d, err);
    }
    return rc;
}

static void block_destroy(pi__drafter *base)
{
    draft_block *d = (draft_block *) base;
    pi__batch_destroy(&d->batch);
    pi__selector_destroy(&d->select);
    pi__free(d->row);
    pi__free(d->seq);
    pi__free(d->at);
    pi__free(d);
}

size_t pi__draft_block_bytes(const pi__model *drafter, const pi__batch_shape *shape, int32_t max_rows)
{
    return sizeof(draft_block) + pi__selector_bytes(drafter, max_rows) + pi__batch_bytes(shape) +
           (size_t) shape->max_tokens * sizeof(int32_t) +
           (size_t) shape->max_seqs * (sizeof(pi__seq *) + sizeof(int32_t));
}

/* Returns the max drafts per sequence: the configured number, limited by the block size and by the tokens of a step. */
static int32_t most_drafts(const pi__draft_block_config *c, const pi__batch_shape *shape)
{
    const int32_t idle = !c->drafter->block.anchor, of_block = c->drafter->block.size - idle;
    const int32_t n = c->n_max < of_block ? c->n_max : of_block;
    return n < shape->max_tokens - idle ? n : shape->max_tokens - idle;
}

int pi__draft_block_create(pi__drafter **out, const pi__draft_block_config *c, const pi__batch_shape *shape,
                           pi_error *err)
{
    static const pi__drafter_fns fns = {.start = block_start, .catch_up = block_catch_up, .verify = block_verify,
                                        .offer = block_offer, .draft = block_draft, .destroy = block_destroy};
    draft_block *d = pi__calloc(1, sizeof *d);
    if (!d) return pi__fail_mem(err, "drafts");
    *d = (draft_block) {.base = {.fns = &fns, .n_max = most_drafts(c, shape), .once = true},
                        .c = *c, .rows = *c->rows, .max_tokens = shape->max_tokens};
    d->rows.n_vocab = c->drafter->block.n_out;
    d->row = pi__calloc((size_t) shape->max_tokens, sizeof *d->row);
    d->seq = pi__calloc((size_t) shape->max_seqs, sizeof(pi__seq *));
    d->at = pi__calloc((size_t) shape->max_seqs, sizeof *d->at);
    int rc = d->row && d->seq && d->at ? pi__batch_init(&d->batch, shape, err) : pi__fail_mem(err, "drafts");
    if (!rc) rc = pi__selector_init(&d->select, c->drafter, c->be, c->rows->max_rows, shape->max_tokens, err);
    d->batch.b.hidden_row = d->row;
    if (rc) block_destroy(&d->base);
    else *out = &d->base;
    return rc;
}
