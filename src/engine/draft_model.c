/* Drafts by a transformer that reads tokens: a smaller model with the target's vocabulary, or the target's first
 * layers with its output matrix (early exit). Drafting is greedy: the most likely token of each row.
 *
 *     pass 1   tokens that it has not seen yet, up to the last one  ->  d1
 *     pass 2   d1  ->  d2          pass 3   d2  ->  d3          all sequences in each pass
 *
 * EARLY EXIT shares the target's cache. The target's step writes the entries of the drafted tokens again, bitwise
 * identical. Recurrent states treat them as rejected drafts. So early exit has always seen all tokens of the target.
 *
 * A SEPARATE MODEL has its own pi__cache with the same rows and the same rules: blocks, hashes, prefixes of tenants.
 * So it reuses prefixes that it computed for other sequences, or for this one before its preemption, independently of
 * the target's cache. s->spec.n_computed is the number of tokens in this cache.
 *
 * Missing tokens, also of prompts, are computed in chunks alongside the target's steps once drafts are expected to pay
 * off (draft_worth.h). A sequence that misses more than a few tokens gets no drafts until then. A sequence without
 * free blocks in the pools gets no drafts: nothing is preempted for drafts.
 *
 *     n_computed   tokens that stay valid even if all drafts are rejected; verify adds accepted drafts
 *     n_guessed    drafts after them that it computed
 *
 * Memory: a batch, allocated at init. Step thread only. */
#include "engine/draft_model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cache/cache.h"

enum { CHUNK = 64 /* max tokens to catch up with in a step that had fewer tokens */ };

typedef struct draft_model {
    pi__drafter base;          /* interface of drafting.c */
    pi__draft_model_config c;  /* copy of the config given to create */
    pi__rows rows;             /* copy of the engine's rows, with n_vocab of the drafter's model */
    pi__batch_builder batch;   /* batch of a pass */
    int32_t max_tokens;        /* max tokens of the batch */
    int32_t few;               /* max missing tokens that are computed together with the first draft */
    pi__seq **seq;             /* [max_seqs] sequence of each logits row of the batch */
} draft_model;

static int32_t n_tokens_seen(const draft_model *d, const pi__seq *s)
{
    return d->c.own ? s->spec.n_computed : s->n_tokens - 1;
}

static void model_start(pi__drafter *base, pi__seq *s)
{
    const draft_model *d = (const draft_model *) base;
    int32_t longest;
    if (!d->c.own) return;
    s->spec.n_computed = s->spec.n_guessed = 0;
    pi__cache_start(d->c.cache, s->row, s->params.salt);
    if (s->sample_group) pi__cache_start_private(d->c.cache, s->row, &s->sample_group->root);
    if (d->c.prefix_cache && s->cacheable)
        s->spec.n_computed = pi__cache_match(d->c.cache, s->row, s->tokens, s->n_tokens, &longest);
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
    s->spec.n_guessed = 0; /* drafts that did not get into the step are not kept */
    return s->n_tokens - n_tokens_seen(d, s) <= d->few ? most : 0;
}

/* Adds n tokens from position pos on; tokens before position `sure` are committed. row: the last one gets a logits
 * row. Recurrent states can absorb committed tokens. */
static void add_model_tokens(draft_model *d, pi__seq *s, int32_t pos, int32_t n, int32_t sure, bool row)
{
    const pi__batch *b = &d->batch.b;
    const int32_t first = b->n_tokens;
    if (row) d->seq[b->n_rows] = s;
    pi__batch_add(&d->batch, d->c.cache, s->row, s->tokens + pos, pos, n, sure - pos < n ? sure - pos : n);
    if (!d->c.own) pi__batch_add_images(&d->batch, &s->images, false); /* a separate model reads token ids only */
    for (int32_t i = first; i < b->n_tokens; i++) /* replace tokens that only the target has */
        if (d->batch.token[i] >= d->c.m->n_vocab) d->batch.token[i] = 0;
    if (row) pi__batch_add_row(&d->batch, b->n_tokens - 1);
}

/* Queues the batch, unless the backend replays a capture (begin returns NULL), waits for the device, and stores the
 * token of each row in rows.ids. In most passes all sequences have one token, or two in the first pass after all drafts
 * were accepted; these passes can be captured. */
static int run_model_step(draft_model *d, pi_error *err)
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

/* Commits the first n tokens of s to the drafter's cache. */
static void commit_tokens(draft_model *d, pi__seq *s, int32_t n)
{
    s->spec.n_computed = n;
    pi__cache_commit(d->c.cache, s->row, s->tokens, n, d->c.prefix_cache && s->cacheable);
}

/* Computes known tokens that the drafter has not seen, mostly of prompts. Only for sequences that miss more than a
 * few and where it pays off. Max tokens per call: the number of tokens of the step, or CHUNK if the step had fewer. */
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
        add_model_tokens(d, s, s->spec.n_computed, n, s->n_tokens, false);
        s->spec.n_guessed = 0;
        left -= n;
    }
    if (!d->batch.b.n_tokens) return PI_OK;
    base->n_caught = d->batch.b.n_tokens;
    const int rc = run_model_step(d, err);
    for (int32_t q = 0, k = 0; k < d->batch.b.n_seqs && !rc; q++)
        if (seq[q] && seq[q]->row == d->batch.state_slot[k]) commit_tokens(d, seq[q], d->batch.seq_len[k++]);
    return rc;
}

/* Builds the first pass: up to max_rows sequences from index q on. Returns the index of the next sequence. */
static int32_t first_pass(draft_model *d, const pi__batch *step, pi__seq *const *seq, int32_t q)
{
    const pi__batch *b = &d->batch.b;
    pi__batch_clear(&d->batch);
    for (; q < step->n_seqs && b->n_seqs < d->rows.max_rows; q++) {
        pi__seq *s = seq[q];
        if (!s || !s->n_wish) continue;
        const int32_t from = n_tokens_seen(d, s), n = s->n_tokens - from;
        if (b->n_tokens + n > d->max_tokens) break; /* this sequence goes into the next first pass */
        if (d->c.own && !pi__cache_reserve(d->c.cache, s->row, s->n_tokens + s->n_wish)) continue;
        add_model_tokens(d, s, from, n, d->c.own ? s->n_tokens : s->n_tokens - 1, true);
    }
    return q;
}

/* Appends the tokens in ids as drafts to the sequences, and builds the next pass for sequences with n_draft < n_wish.
 * first: the pass also computed the missing tokens. */
static void take_model_drafts(draft_model *d, bool first)
{
    const int32_t n_rows = d->batch.b.n_rows;
    /* the new batch has no more sequences than the old one has rows: it overwrites only entries already read */
    pi__batch_clear(&d->batch);
    for (int32_t r = 0; r < n_rows; r++) {
        pi__seq *s = d->seq[r];
        if (d->c.own && first) commit_tokens(d, s, s->n_tokens);
        else if (d->c.own) s->spec.n_guessed++;
        if (d->rows.ids[r] < 0) continue; /* not probable enough, or no usable logits */
        s->tokens[s->n_tokens + s->n_draft++] = d->rows.ids[r];
        if (s->n_draft < s->n_wish)
            add_model_tokens(d, s, s->n_tokens + s->n_draft - 1, 1, d->c.own ? s->n_tokens : s->n_tokens - 1, true);
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
            rc = run_model_step(d, err);
            if (!rc) take_model_drafts(d, first);
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

int pi__draft_model_create(pi__drafter **out, const pi__draft_model_config *config, const pi__batch_shape *shape,
                           pi_error *err)
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
