/* Speculative decoding: drafters guess the next tokens, and the next step verifies the guesses in the same batch as
 * the prefill and decode of other sequences.
 *
 *   step n     the target computes x(b-1) and gives x(b); the drafter guesses d1 d2 d3
 *   step n+1   the target computes x(b) d1 d2 d3 as a ragged sequence of the batch; each row is sampled as if the
 *              token before it were accepted; rows after the first rejected draft are dropped
 *
 * Sampled tokens never depend on drafts; only the number of steps does. Each sequence has at most one drafter, so
 * drafts of several drafters are verified in the same batch. This file calls the drafters in order and limits the
 * number of drafts (draft_worth.h). Step thread only. After speculative decoding (arXiv 2211.17192). */
#include "engine/drafting.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

int pi__drafting_init(pi__drafting *d, pi__cache *cache, int32_t max_seqs, int32_t n_min, bool adaptive, bool alike,
                      pi_error *err)
{
    *d = (pi__drafting) {.cache = cache, .n_min = n_min, .adaptive = adaptive, .alike = alike,
                          .clock = alike ? pi__now_ms : pi__thread_ms};
    d->mine = pi__calloc(2 * (size_t) max_seqs, sizeof *d->mine);
    if (!d->mine) return pi__fail_mem(err, "drafts");
    d->wishing = d->mine + max_seqs;
    return PI_OK;
}

size_t pi__drafting_bytes(int32_t max_seqs) { return 2 * (size_t) max_seqs * sizeof(pi__seq *); }

void pi__drafting_add(pi__drafting *d, int kind, pi__drafter *drafter)
{
    d->of[kind] = drafter;
    d->any = true;
    d->worth.share[kind] = drafter->share;
    d->worth.once[kind] = drafter->once;
}

void pi__drafting_destroy(pi__drafting *d)
{
    for (int k = 0; k < PI__N_SPEC; k++)
        if (d->of[k]) d->of[k]->fns->destroy(d->of[k]);
    pi__free(d->mine);
    memset(d, 0, sizeof *d);
}

/* Decides whether a drafter with `asks` should catch up with s. */
static void update_wanted(const pi__drafting *d, const pi__drafter *r, pi__seq *s)
{
    s->spec.wanted = !d->adaptive || pi__worth_wants(&d->worth, s, s->n_tokens - s->spec.n_computed, r->n_max);
}

void pi__drafts_start(pi__drafting *d, pi__seq *s)
{
    pi__drafter *r = d->of[s->spec.kind];
    s->spec.n_in_step = s->spec.n_idle = 0;
    if (r && r->fns->start) r->fns->start(r, s);
    if (r && r->asks) update_wanted(d, r, s);
}

void pi__drafts_forget(pi__drafting *d, pi__seq *s)
{
    pi__drafter *r = d->of[s->spec.kind];
    if (r && r->fns->forget) r->fns->forget(r, s);
    if (r && s->n_tokens > s->n_prompt) pi__worth_ended(&d->worth, s->n_tokens - s->n_prompt);
}

/* Collects the step's sequences with this drafter in d->mine. Returns their number. */
static int32_t those_of(pi__drafting *d, int kind, const pi__batch *b, pi__seq *const *seq)
{
    int32_t n = 0;
    for (int32_t q = 0; q < b->n_seqs; q++) {
        const bool his = seq[q] && seq[q]->spec.kind == kind;
        d->mine[q] = his ? seq[q] : NULL;
        n += his;
    }
    return n;
}

int pi__drafts_catch_up(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    int rc = PI_OK;
    const int64_t t0 = pi__now_ns();
    for (int k = 0; k < PI__N_SPEC && d->any && !rc; k++) {
        pi__drafter *r = d->of[k];
        if (!r || !r->fns->catch_up || !those_of(d, k, b, seq)) continue;
        const double from = d->clock();
        rc = r->fns->catch_up(r, b, d->mine, err);
        pi__worth_caught_up(&d->worth, k, r->n_caught, d->clock() - from, r->asks);
    }
    d->ns += (uint64_t) (pi__now_ns() - t0);
    return rc;
}

/* Records the outcome of the drafts that were in the step. */
static void record_outcomes(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, bool prefill)
{
    int32_t n[PI__N_SPEC] = {0}, drafts[PI__N_SPEC] = {0}, right[PI__N_SPEC] = {0};
    for (int32_t q = 0; q < b->n_seqs; q++) {
        pi__seq *s = seq[q];
        pi__drafter *r = s ? d->of[s->spec.kind] : NULL;
        if (!r) continue;
        n[s->spec.kind]++;
        if (!s->spec.n_in_step) continue;
        const int32_t sure = b->pos[b->seq_start[q]] + b->n_verified[q];
        drafts[s->spec.kind] += s->spec.n_in_step;
        right[s->spec.kind] += s->n_computed - sure;
        pi__worth_verified(&d->worth, s, s->spec.n_in_step, s->n_computed - sure);
        if (r->fns->verify) r->fns->verify(r, s);
        s->spec.n_in_step = 0;
    }
    for (int k = 0; k < PI__N_SPEC; k++) /* in a step with prefill, draft rows are not charged */
        if (n[k])
            pi__worth_settle(&d->worth, k, b->n_seqs, prefill ? b->n_seqs : b->n_tokens, prefill ? 0 : drafts[k],
                             right[k]);
}

/* Returns the number of drafts that drafter r can make and s can use. Verification gives one token anyway, so s can use
 * one less than the number of tokens that it may still generate. */
static int32_t offered_drafts(pi__drafter *r, pi__seq *s)
{
    const int32_t left = s->max_total - s->n_tokens - 1, most = left < r->n_max ? left : r->n_max;
    return most > 0 ? r->fns->offer(r, s, most) : 0;
}

/* Returns n_wish of s, limited to the min number of drafts until the time of a pass of its drafter was measured. */
static int32_t first_draft_len(const pi__drafting *d, const pi__seq *s)
{
    const int k = s->spec.kind, least = d->n_min > 1 ? d->n_min : 1;
    const bool measured = k == PI__SPEC_NGRAM || d->worth.pass_ms[k] > 0 || d->of[k]->once;
    return measured || s->n_wish < least ? s->n_wish : least;
}

/* Sets n_wish of each sequence: the offered or the profitable number of drafts; 0 if the cache has no blocks for
 * them. */
static void set_wishes(pi__drafting *d, const pi__batch *b, pi__seq *const *seq)
{
    int32_t n = 0, n_seqs = 0;
    for (int32_t q = 0; q < b->n_seqs; q++) {
        pi__seq *s = seq[q];
        if (!s) continue;
        s->n_wish = s->n_draft = 0;
        pi__drafter *r = d->of[s->spec.kind];
        if (r && r->asks) update_wanted(d, r, s);
        if (s->n_computed != s->n_tokens - 1) continue; /* s is in prefill, or its grammar forced tokens: no drafts */
        n_seqs++;
        s->spec.n_idle++;
        if (r) s->n_wish = offered_drafts(r, s);
        if (r && d->adaptive) s->n_wish = first_draft_len(d, s);
        if (s->n_wish) d->wishing[n++] = s;
    }
    if (d->adaptive && n) pi__worth_choose(&d->worth, d->wishing, n, n_seqs, d->alike);
    for (int32_t i = 0; i < n; i++) {
        pi__seq *s = d->wishing[i];
        if (s->n_wish < d->n_min || !pi__cache_reserve(d->cache, s->row, s->n_tokens + s->n_wish)) s->n_wish = 0;
        if (s->n_wish) s->spec.n_idle = 0;
    }
}

/* Makes the drafts of one drafter for its sequences of step b, drops drafts below the min number, and charges the
 * time. */
static int run_drafter(pi__drafting *d, int kind, const pi__batch *b, pi__seq *const *seq, pi_error *err)
{
    pi__drafter *r = d->of[kind];
    const double t0 = d->clock();
    int32_t most = 0;
    if (!those_of(d, kind, b, seq)) return PI_OK;
    const int rc = r->fns->draft(r, b, d->mine, err);
    for (int32_t q = 0; q < b->n_seqs && !rc; q++) {
        pi__seq *s = d->mine[q];
        if (!s) continue;
        if (s->n_draft < d->n_min) s->n_draft = 0;
        most = s->n_draft > most ? s->n_draft : most;
    }
    pi__worth_drafting(&d->worth, kind, r->once ? most > 0 : most, d->clock() - t0);
    return rc;
}

int pi__drafts_make(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, double ms, bool prefill, pi_error *err)
{
    if (!d->any) return PI_OK;
    const int64_t t0 = pi__now_ns();
    if (!prefill) pi__worth_step(&d->worth, b->n_seqs, b->n_tokens, ms);
    record_outcomes(d, b, seq, prefill);
    set_wishes(d, b, seq);
    int rc = PI_OK;
    for (int k = 0; k < PI__N_SPEC && !rc; k++)
        if (d->of[k]) rc = run_drafter(d, k, b, seq, err);
    d->ns += (uint64_t) (pi__now_ns() - t0);
    return rc;
}
