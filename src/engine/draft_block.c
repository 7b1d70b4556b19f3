/* The drafter of blocks (DFlash): a sequence's last token and masks behind it go through the drafter once, and each mask gives
 * the token at its place.
 *
 * What it attends to are keys and values that it makes of the target's hidden states, of every token that the target computes
 * for a sequence that chose it, drafts included: those of a wrong one are written again with the token that took its place.
 * So its cache has all that is computed, and none of it is its own guess: what a block leaves there lies behind that.
 *
 *     the step computed   x(0) .. x(n-1)          injected at 0 .. n-1
 *     and gave            x(n)
 *     the block           x(n) mask mask mask     at n .. n+3, gives drafts for n+1, n+2, n+3
 *
 * A block is as long as drafts are allowed, however few are wanted: the drafter was made to see a whole block. Memory: all at
 * create. Only the step thread is here. */
#include "engine/draft_block.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cache/cache.h"
#include "engine/config.h"

typedef struct draft_block {
    pi__drafter base;          /* what drafting.c sees */
    pi__draft_block_config c;  /* as given */
    pi__rows rows;             /* the same, as wide as the drafter's head */
    pi__batch_builder batch;   /* what it runs */
    int32_t max_tokens;        /* of that */
    int32_t *row;              /* [max_tokens] row of the target's step that each of its tokens is */
    pi__seq **seq;             /* [max_seqs] sequences of its batch */
} draft_block;

static int block_catch_up(pi__drafter *base, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    draft_block *d = (draft_block *) base;
    pi__model *m = d->c.drafter;
    pi__batch_clear(&d->batch);
    for (int32_t q = 0; q < b->n_seqs; q++) {
        const int32_t first = b->seq_start[q], n = b->seq_start[q + 1] - first, t = d->batch.b.n_tokens;
        if (!seq[q]) continue;
        for (int32_t i = 0; i < n; i++) d->row[t + i] = first + i;
        pi__batch_add(&d->batch, d->c.cache, seq[q]->row, b->token + first, b->pos[first], n, n);
    }
    if (!d->batch.b.n_tokens) return PI_OK;
    m->arch->inject(m, d->c.be->dev->begin(d->c.be, &d->batch.b, PI__STEP_ANY), d->row);
    return d->c.be->dev->finish(d->c.be, err);
}

static int32_t block_offer(pi__drafter *base, pi__seq *s, int32_t most)
{
    (void) base;
    s->spec.level = 0;
    return most;
}

/* Tokens of the block of s: a whole one, if it may become so long and there is room in the cache. */
static int32_t block_size(const draft_block *d, const pi__seq *s)
{
    const int32_t last = s->n_tokens - 1;
    int32_t n = d->base.n_max + 1;
    if (n > s->max_total - last) n = s->max_total - last;
    if (n > s->n_wish + 1 && !pi__cache_reserve(d->c.cache, s->row, last + n)) n = s->n_wish + 1;
    return n;
}

/* The blocks of as many sequences as go into a batch, from the q-th on; returns where to go on. */
static int32_t add_blocks(draft_block *d, const pi__batch *step, pi__seq *const *seq, int32_t q)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (; q < step->n_seqs; q++) {
        pi__seq *s = seq[q];
        if (!s || !s->n_wish) continue;
        int32_t token[PI__MAX_DRAFT + 1] = {s->tokens[s->n_tokens - 1]};
        const int32_t n = block_size(d, s), first = b->n_tokens;
        if (first + n > d->max_tokens) break;
        for (int32_t i = 1; i < n; i++) token[i] = d->c.drafter->block.mask;
        d->seq[b->n_seqs] = s;
        pi__batch_add(&d->batch, d->c.cache, s->row, token, s->n_tokens - 1, n, n);
        for (int32_t i = 1; i <= s->n_wish; i++) pi__batch_add_row(&d->batch, first + i);
    }
    return q;
}

/* Waits for the best token of each of n rows, with what there has to be for its probability. */
static int pick(draft_block *d, int32_t n, bool *found, pi_error *err)
{
    pi__rows *rows = &d->rows;
    for (int32_t r = 0; r < n; r++) rows->request[r] = (pi__topk_request) {.k = rows->skip != NULL, .sum = d->c.p_min > 0};
    *found = pi__rows_request(rows, n);
    if (!*found) pi__rows_copy(rows, 0, n);
    return d->c.be->dev->finish(d->c.be, err);
}

/* The token that row r gives, -1: none that is worth being verified. */
static int32_t token_of(const draft_block *d, int32_t r, bool found)
{
    const pi__top top = found ? pi__rows_topk(&d->rows, r) : (pi__top) {0};
    const float *x = pi__row(&d->rows, r);
    const int32_t id = found ? pi__top_best(&top) : pi__argmax(x, d->rows.n_vocab), *name = d->c.drafter->block.token;
    double sum = found ? top.sum : 0;
    if (id < 0) return -1;
    for (int32_t i = 0; i < d->rows.n_vocab && d->c.p_min > 0 && !found; i++) sum += (double) expf(x[i] - x[id]);
    if (d->c.p_min > 0 && !(sum > 0 && 1 / sum >= (double) d->c.p_min)) return -1;
    return name ? name[id] : id;
}

/* Rows first..first+n of the batch are at hand: a token that is none ends its sequence's drafts. */
static void take(draft_block *d, int32_t first, int32_t n, bool found)
{
    const pi__batch *b = &d->batch.b;
    for (int32_t r = 0; r < n; r++) {
        const int32_t t = b->logits_indices[first + r];
        pi__seq *s = d->seq[b->seq[t]];
        if (b->pos[t] != s->n_tokens + s->n_draft) continue; /* behind one that ended them */
        const int32_t id = token_of(d, r, found);
        if (id >= 0) s->tokens[s->n_tokens + s->n_draft++] = id;
    }
}

/* Runs the batch and takes the drafts, as many at a time as there are rows of logits. */
static int run(draft_block *d, pi_error *err)
{
    pi__model *m = d->c.drafter;
    const int32_t n_rows = d->batch.b.n_rows;
    bool found = false;
    int rc = PI_OK;
    m->arch->forward(m, d->c.be->dev->begin(d->c.be, &d->batch.b, PI__STEP_ANY), m->n_layer);
    for (int32_t first = 0; first < n_rows && !rc; first += d->rows.max_rows) {
        const int32_t n = n_rows - first < d->rows.max_rows ? n_rows - first : d->rows.max_rows;
        m->arch->logits(m, first, n, d->rows.logits);
        rc = pick(d, n, &found, err);
        if (!rc) take(d, first, n, found);
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
        rc = run(d, err);
    }
    return rc;
}

static void block_destroy(pi__drafter *base)
{
    draft_block *d = (draft_block *) base;
    pi__batch_destroy(&d->batch);
    pi__free(d->row);
    pi__free(d->seq);
    pi__free(d);
}

size_t pi__draft_block_bytes(const pi__batch_shape *shape)
{
    return sizeof(draft_block) + pi__batch_bytes(shape) + (size_t) shape->max_tokens * sizeof(int32_t) +
           (size_t) shape->max_seqs * sizeof(pi__seq *);
}

/* Drafts at most: of a block, and of a step. */
static int32_t most_drafts(const pi__draft_block_config *c, const pi__batch_shape *shape)
{
    int32_t n = c->n_max < c->drafter->block.size - 1 ? c->n_max : c->drafter->block.size - 1;
    return n < shape->max_tokens - 1 ? n : shape->max_tokens - 1;
}

int pi__draft_block_create(pi__drafter **out, const pi__draft_block_config *c, const pi__batch_shape *shape, pi_error *err)
{
    static const pi__drafter_fns fns = {.catch_up = block_catch_up, .offer = block_offer, .draft = block_draft,
                                        .destroy = block_destroy};
    draft_block *d = pi__calloc(1, sizeof *d);
    if (!d) return pi__fail_mem(err, "drafts");
    *d = (draft_block) {.base = {&fns, most_drafts(c, shape)}, .c = *c, .rows = *c->rows, .max_tokens = shape->max_tokens};
    d->rows.n_vocab = c->drafter->block.n_out;
    d->row = pi__calloc((size_t) shape->max_tokens, sizeof *d->row);
    d->seq = pi__calloc((size_t) shape->max_seqs, sizeof(pi__seq *));
    int rc = d->row && d->seq ? pi__batch_init(&d->batch, shape, err) : pi__fail_mem(err, "drafts");
    if (rc) block_destroy(&d->base);
    else *out = &d->base;
    return rc;
}
