/* Drafts by a model that reads tokens as any model does: a smaller one with the same vocabulary, or the first layers of the
 * target with its output (early exit). Greedy: of each row the most likely token.
 *
 *     pass 1   tokens that it has not seen yet, up to the last one  ->  d1
 *     pass 2   d1  ->  d2          pass 3   d2  ->  d3          all sequences in each pass
 *
 * EARLY EXIT shares the target's cache: what its layers write for a token, the target's step writes again, the same bits, and
 * recurrent states take it as drafts that were dropped. So it has seen whatever the target has.
 *
 * A MODEL BESIDE has a cache of its own, a second pi__cache with the same rows and the same rules: blocks, hashes, prefixes of
 * tenants; so it reuses what it computed for others, or for this sequence before it was preempted, which need not be what the
 * target still has. s->spec.n_computed is what it has of a sequence. What is missing is computed in chunks beside the target's
 * steps, as soon as drafts are expected to be worth it (draft_worth.h), a prompt, too; a sequence that lacks more
 * than a few gets no drafts until then, and one that its pools have no room for none at all: nobody is preempted for drafts.
 *
 *     n_computed   tokens that are right whatever becomes of drafts; verify adds those that were accepted
 *     n_guessed    drafts behind them that it computed
 *
 * Memory: a batch, at init. Only the step thread is here. */
#include "engine/draft_model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cache/cache.h"

enum { CHUNK = 64 /* tokens that are caught up with beside a step that has fewer */ };

typedef struct draft_model {
    pi__drafter base;          /* what drafting.c sees */
    pi__draft_model_config c;  /* as given */
    pi__rows rows;             /* as given, rows as wide as its vocabulary */
    pi__batch_builder batch;   /* what it runs */
    int32_t max_tokens;        /* of that */
    int32_t few;               /* tokens that may be missing and are then computed together with the first draft */
    pi__seq **seq;             /* [max_seqs] sequence of each row of its batch */
} draft_model;

static int32_t seen(const draft_model *d, const pi__seq *s) { return d->c.own ? s->spec.n_computed : s->n_tokens - 1; }

static void model_start(pi__drafter *base, pi__seq *s)
{
    const draft_model *d = (const draft_model *) base;
    int32_t longest;
    if (!d->c.own) return;
    s->spec.n_computed = s->spec.n_guessed = 0;
    pi__cache_start(d->c.cache, s->row, s->params.salt);
    if (s->sample_group) pi__cache_start_private(d->c.cache, s->row, &s->sample_group->root);
    if (d->c.keeps && s->keeps) s->spec.n_computed = pi__cache_match(d->c.cache, s->row, s->tokens, s->n_tokens, &longest);
}

static void model_forget(pi__drafter *base, pi__seq *s)
{
    const draft_model *d = (const draft_model *) base;
    if (d->c.own) pi__cache_release(d->c.cache, s->row);
}

static void model_verify(pi__drafter *base, pi__seq *s)
{
    (void) base;
    const int32_t most = s->spec.n_computed + s->spec.n_guessed;
    if (s->n_computed > s->spec.n_computed) s->spec.n_computed = s->n_computed < most ? s->n_computed : most;
    s->spec.n_guessed = 0;
}

static int32_t model_offer(pi__drafter *base, pi__seq *s, int32_t most)
{
    const draft_model *d = (const draft_model *) base;
    s->spec.level = 0;
    s->spec.n_guessed = 0; /* of drafts that did not get into the step */
    return s->n_tokens - seen(d, s) <= d->few ? most : 0;
}

/* n tokens from position pos on, of which those before `sure` stay; row: the last one gets a row of logits. Recurrent states
 * take in for good what stays. */
static void add(draft_model *d, pi__seq *s, int32_t pos, int32_t n, int32_t sure, bool row)
{
    const pi__batch *b = &d->batch.b;
    const int32_t first = b->n_tokens;
    if (row) d->seq[b->n_rows] = s;
    pi__batch_add(&d->batch, d->c.cache, s->row, s->tokens + pos, pos, n, sure - pos < n ? sure - pos : n);
    for (int32_t i = first; i < b->n_tokens; i++) /* tokens that only the target has */
        if (d->batch.token[i] >= d->c.m->n_vocab) d->batch.token[i] = 0;
    if (row) pi__batch_add_row(&d->batch, b->n_tokens - 1);
}

/* Queues the batch, unless the backend replays it (begin gives NULL). Where a step has drafts, all sequences have one token in
 * most passes, or two in the first one after all drafts were right, which can be captured. */
static int run(draft_model *d, pi_error *err)
{
    pi__model *m = d->c.m;
    const pi__batch *b = &d->batch.b;
    pi__batch_end(&d->batch);
    const bool even = b->n_rows && pi__batch_is_even(b, d->base.n_max + 1, d->rows.max_rows);
    b = d->c.be->dev->begin(d->c.be, b, !even ? PI__STEP_ANY : d->c.own ? PI__STEP_MODEL : PI__STEP_EXIT);
    if (b) m->arch->forward(m, b, d->c.n_layer);
    if (b && b->n_rows) m->arch->logits(m, 0, b->n_rows, d->rows.logits);
    return pi__rows_pick(&d->rows, d->batch.b.n_rows, d->c.p_min, err);
}

/* s has n tokens now in its cache that stay. */
static void keep(draft_model *d, pi__seq *s, int32_t n)
{
    s->spec.n_computed = n;
    pi__cache_commit(d->c.cache, s->row, s->tokens, n, d->c.keeps && s->keeps);
}

/* Tokens that are known and were not seen, where it is worth it and they are more than a few, as many as the step had; of prompts
 * above all. */
static int model_catch_up(pi__drafter *base, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    draft_model *d = (draft_model *) base;
    int32_t left = b->n_tokens > CHUNK ? b->n_tokens : CHUNK;
    base->n_caught = 0;
    if (!d->c.own) return PI_OK;
    if (left > d->max_tokens) left = d->max_tokens;
    pi__batch_clear(&d->batch);
    for (int32_t q = 0; q < b->n_seqs && left > 0; q++) {
        pi__seq *s = seq[q];
        if (!s || !s->spec.wanted || s->n_tokens - s->spec.n_computed <= d->few) continue;
        int32_t n = s->n_tokens - 1 - s->spec.n_computed;
        if (n > left) n = left;
        if (!pi__cache_reserve(d->c.cache, s->row, s->spec.n_computed + n)) continue;
        add(d, s, s->spec.n_computed, n, s->n_tokens, false);
        s->spec.n_guessed = 0;
        left -= n;
    }
    if (!d->batch.b.n_tokens) return PI_OK;
    base->n_caught = d->batch.b.n_tokens;
    const int rc = run(d, err);
    for (int32_t q = 0, k = 0; k < d->batch.b.n_seqs && !rc; q++)
        if (seq[q] && seq[q]->row == d->batch.state_slot[k]) keep(d, seq[q], d->batch.seq_len[k++]);
    return rc;
}

/* The first pass: up to max_rows sequences from the q-th on; returns where to go on. */
static int32_t first_pass(draft_model *d, const pi__batch *step, pi__seq *const *seq, int32_t q)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (; q < step->n_seqs && b->n_seqs < d->rows.max_rows; q++) {
        pi__seq *s = seq[q];
        if (!s || !s->n_wish) continue;
        const int32_t from = seen(d, s), n = s->n_tokens - from;
        if (b->n_tokens + n > d->max_tokens) break; /* they go with the next */
        if (d->c.own && !pi__cache_reserve(d->c.cache, s->row, s->n_tokens + s->n_wish)) continue;
        add(d, s, from, n, d->c.own ? s->n_tokens : s->n_tokens - 1, true);
    }
    return q;
}

/* The rows of the batch gave the tokens in ids; sequences that want more are in the next batch. first: it had all tokens that
 * were missing. */
static void take(draft_model *d, bool first)
{
    const int32_t n_rows = d->batch.b.n_rows;
    pi__batch_clear(&d->batch); /* filled behind the rows that are read */
    for (int32_t r = 0; r < n_rows; r++) {
        pi__seq *s = d->seq[r];
        if (d->c.own && first) keep(d, s, s->n_tokens);
        else if (d->c.own) s->spec.n_guessed++;
        if (d->rows.ids[r] < 0) continue; /* it is not sure enough, or gave nothing usable */
        s->tokens[s->n_tokens + s->n_draft++] = d->rows.ids[r];
        if (s->n_draft < s->n_wish) add(d, s, s->n_tokens + s->n_draft - 1, 1, d->c.own ? s->n_tokens : s->n_tokens - 1, true);
    }
}

static int model_draft(pi__drafter *base, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    draft_model *d = (draft_model *) base;
    int rc = PI_OK;
    for (int32_t q = 0; q < b->n_seqs && !rc;) {
        q = first_pass(d, b, seq, q);
        if (!d->batch.b.n_seqs) break;
        for (bool first = true; d->batch.b.n_seqs && !rc; first = false) {
            rc = run(d, err);
            if (!rc) take(d, first);
        }
    }
    return rc;
}

static void model_destroy(pi__drafter *base)
{
    draft_model *d = (draft_model *) base;
    pi__batch_destroy(&d->batch);
    pi__free(d->seq);
    pi__free(d);
}

size_t pi__draft_model_bytes(const pi__batch_shape *shape)
{
    return sizeof(draft_model) + pi__batch_bytes(shape) + (size_t) shape->max_seqs * sizeof(pi__seq *);
}

int pi__draft_model_create(pi__drafter **out, const pi__draft_model_config *config, const pi__batch_shape *shape, pi_error *err)
{
    static const pi__drafter_fns fns = {.start = model_start, .catch_up = model_catch_up, .verify = model_verify,
                                        .offer = model_offer, .draft = model_draft, .forget = model_forget,
                                        .destroy = model_destroy};
    draft_model *d = pi__calloc(1, sizeof *d);
    if (!d) return pi__fail_mem(err, "drafts");
    *d = (draft_model) {.c = *config, .rows = *config->rows, .max_tokens = shape->max_tokens};
    d->base = (pi__drafter) {.fns = &fns, .n_max = config->n_max, .share = config->share, .asks = config->own};
    d->rows.n_vocab = config->m->n_vocab;
    d->few = config->n_max + 1 < shape->max_tokens ? config->n_max + 1 : shape->max_tokens;
    d->seq = pi__calloc((size_t) shape->max_seqs, sizeof(pi__seq *));
    int rc = d->seq ? pi__batch_init(&d->batch, shape, err) : pi__fail_mem(err, "drafts");
    if (rc) model_destroy(&d->base);
    else *out = &d->base;
    return rc;
}
