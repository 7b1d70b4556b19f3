/* One step: batches the scheduled tokens, runs the model, samples a token for each sequence that is up to date.
 *
 * Lookahead (device-fed) steps: if the device samples the next token of a sequence by itself, the host need not know
 * the token before the next step is queued. The device samples the argmax, or draws from the top values or the full
 * row; nothing else may influence the choice. The device then inserts the token id into the next step. If all
 * sequences of a step allow this, the step stays in flight. The device then does not wait for the host between steps:
 *
 *     host     | queue n | queue n+1 | wait for n: tokens, ends | queue n+2 | wait for n+1 ..
 *     device             | n                      | n+1                     | n+2 ..
 *
 * A sequence that ended with step n was computed once too often in n+1. The host ignores that row, and its writes are
 * harmless: keys and values after the last token are in a block without a hash, since it is not full. The block's next
 * owner overwrites them in a later step. Rows of a recurrent state since the last chunk are discarded when the next
 * owner starts.
 *
 * Only init allocates. Logits rows are computed up to rows->max_rows per pass, so their memory does not grow with the
 * number of prompt rows that are requested. A device error ends the sequences of the step. Step thread only. */
#include "engine/runner.h"

#include <math.h>
#include <string.h>

#include "backend/profile.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "model/adapter.h"

enum { MAX_FORCED = 256 }; /* max tokens that a grammar may force per sequence and step, without logits */

static const char NO_LOGITS[] = "the model computed logits that are not finite";

int pi__runner_init(pi__runner *r, const pi__runner_config *config, const pi__batch_shape *shape, pi_error *err)
{
    *r = (pi__runner) {.config = *config};
    int rc = pi__batch_init(&r->batch, shape, err);
    if (rc) return rc;
    r->batch.b.save = config->snapshots->save;
    r->raw_row = pi__calloc((size_t) config->m->n_vocab, sizeof *r->raw_row);
    if (!r->raw_row) return pi__fail_mem(err, "a row of logits");
    return pi__sampler_scratch_create(&r->scratch, config->m->n_vocab, err);
}

size_t pi__runner_bytes(const pi__batch_shape *shape, int32_t n_vocab)
{
    return pi__batch_bytes(shape) + (size_t) n_vocab * sizeof(float) + pi__sampler_scratch_bytes(n_vocab);
}

void pi__runner_destroy(pi__runner *r)
{
    pi__batch_destroy(&r->batch);
    pi__sampler_scratch_free(r->scratch);
    pi__free(r->raw_row);
    memset(r, 0, sizeof *r);
}

/* ------------------------------------------------------------------------------------------------------- the batch */

/* True if the token at this position needs a logits row. */
static bool wants_row(const pi__seq *s, int32_t pos)
{
    if (pos >= s->n_tokens - 1) return true; /* rows to sample from, and rows of drafts */
    return s->params.logits == PI__LOGITS_ALL && pos < s->n_prompt && pos >= s->n_rows_given;
}

/* Fills the batch with the plan's sequences, in its order. */
static void build_batch(pi__runner *r)
{
    pi__batch_builder *bb = &r->batch;
    pi__snapshots *sn = r->config.snapshots;
    pi__batch_clear(bb);
    bb->b.hidden_row = NULL;
    r->hidden = false;
    for (int32_t q = 0; q < r->plan->n_seqs; q++) {
        pi__seq *s = r->plan->seq[q];
        const int32_t known = s->n_tokens - s->n_computed, sure = s->n_new < known ? s->n_new : known;
        const int32_t first = bb->b.n_tokens;
        pi__batch_add(bb, r->config.cache, s->row, s->tokens + s->n_computed, s->n_computed, s->n_new, sure);
        pi__batch_add_images(bb, &s->images, s->whole_images);
        bb->save_start[q] = sn->n_saving;
        pi__snapshots_plan(sn, s, s->n_computed + sure);
        r->hidden |= s->params.hidden;
        pi__loras_add(bb, q, &s->lora);
        for (int32_t i = 0; i < s->n_new; i++)
            if (wants_row(s, s->n_computed + i)) pi__batch_add_row(bb, first + i);
    }
    bb->save_start[bb->b.n_seqs] = sn->n_saving;
    pi__batch_end(bb);
}

/* -------------------------------------------------------------------------------------------------------- sampling */

static bool in_list(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* True if token number n_gen of the answer must not end it. */
static bool forbids_end(const pi__seq *s, int32_t n_gen)
{
    return s->params.ignore_eos || n_gen < s->params.min_tokens;
}

/* Returns the topk request that suffices to sample token number n_gen of the answer: on the host, or for a step that
 * stays in flight on the device. k 0 = the full row is needed. With a grammar the top values may be forbidden, and
 * log-probabilities cover only allowed tokens; so both together need the full row. */
static pi__topk_request ask_of(const pi__runner *r, const pi__seq *s, int32_t n_gen)
{
    const pi__special *sp = r->config.special;
    const pi__rows *rows = r->config.rows;
    const bool forbid = !s->matcher && forbids_end(s, n_gen);
    const bool later = forbid && s->probs; /* log-probabilities include forbidden tokens */
    bool sum;
    if (!rows->skip || s->call.on_logits || s->params.n_bad || s->params.n_logprobs > PI__MAX_TOP)
        return (pi__topk_request) {0};
    if (s->probs && (s->matcher || s->params.probs_drawn)) return (pi__topk_request) {0};
    int32_t k = r->stays ? pi__sampler_draw_top(s->sampler, &sum)
                         : pi__sampler_top(s->sampler, s->matcher ? 1 : later ? (size_t) sp->n_eog : 0, &sum);
    if (k && s->probs && k < s->params.n_logprobs) k = s->params.n_logprobs;
    return (pi__topk_request) {k, forbid && !later ? rows->n_skip : sp->n_suppress, sum || s->probs};
}

/* Masks the last token of every bad-words sequence if the answer ends with its other tokens. */
static void forbid_bad(const pi__seq *s, float *row)
{
    const int32_t *at = s->params.bad, *end = at + s->params.n_bad;
    for (int32_t n; at < end; at += n + 2) {
        for (n = 0; at[n + 1] >= 0;) n++; /* tokens before the last one of the sequence */
        const bool ends = n <= s->n_tokens - s->n_prompt &&
                          !memcmp(s->tokens + s->n_tokens - n, at, (size_t) n * sizeof *at);
        if (ends) row[at[n]] = -INFINITY;
    }
}

/* Samples the next token of s from the full row. */
static int32_t choose_from_row(pi__runner *r, pi__seq *s, const pi__mask *mask, float *row, int32_t n_gen)
{
    const pi__special *sp = r->config.special;
    int32_t V = r->config.m->n_vocab, id;
    bool forbid = !mask && forbids_end(s, n_gen); /* a mask already forbids it */
    r->config.stats->n_from_row++;
    for (int32_t i = 0; i < sp->n_suppress; i++) row[sp->suppress[i]] = -INFINITY;
    if (mask) pi__row_allow(row, V, mask->bits);
    if (s->probs && !s->params.probs_drawn) memcpy(r->raw_row, row, (size_t) V * sizeof *row);
    forbid_bad(s, row);
    if (s->probs && s->params.probs_drawn)
        return pi__sampler_sample_drawn(s->sampler, r->scratch, row, forbid ? sp->eog : NULL,
                                        forbid ? (size_t) sp->n_eog : 0, s->params.n_logprobs, s->probs);
    if (!forbid && pi__sampler_is_argmax(s->sampler)) id = pi__argmax(row, V);
    else id = pi__sampler_sample(s->sampler, r->scratch, row, forbid ? sp->eog : NULL, forbid ? (size_t) sp->n_eog : 0);
    if (s->probs && id >= 0) pi__logprobs(r->raw_row, V, id, s->params.n_logprobs, s->probs, r->scratch);
    return id;
}

/* Samples the next token of s from the topk result of row i. Returns PI__NEED_ROW if only the full row suffices. */
static int32_t choose_from_topk(pi__runner *r, pi__seq *s, const pi__mask *mask, int32_t i, float *row, int32_t n_gen)
{
    const pi__special *sp = r->config.special;
    const pi__top t = pi__rows_topk(r->config.rows, i);
    const bool later = !mask && s->probs && forbids_end(s, n_gen);
    const pi__excluded x = {later ? sp->eog : NULL, later ? (size_t) sp->n_eog : 0, mask ? mask->bits : NULL};
    if (s->probs && t.odd) return PI__NEED_ROW;
    int32_t id = pi__sampler_sample_top(s->sampler, r->scratch, &t, row, &x);
    if (id == PI__NEED_ROW) return id;
    r->config.stats->n_from_topk++;
    if (s->probs && id >= 0) pi__logprobs_top(&t, id, s->params.n_logprobs, s->probs);
    return id;
}

/* Fills log-probabilities for a token that is the only choice: its probability is 1. */
static void fill_certain_probs(pi__seq *s, int32_t id)
{
    for (int32_t i = 0; s->probs && i <= s->params.n_logprobs; i++)
        s->probs[i] = i > 1 ? (pi_token_prob) {-1, -INFINITY} : (pi_token_prob) {id, 0};
}

/* Fills the log-probabilities of a forced token from the full row. */
static void fill_forced_probs(pi__runner *r, pi__seq *s, float *row, int32_t id)
{
    const pi__special *sp = r->config.special;
    for (int32_t i = 0; i < sp->n_suppress; i++) row[sp->suppress[i]] = -INFINITY;
    if (s->params.probs_drawn) fill_certain_probs(s, id);
    else pi__logprobs(row, r->config.m->n_vocab, id, s->params.n_logprobs, s->probs, r->scratch);
}

/* Recomputes row i of the batch in full if some row of the step has inexact values (pi__best_rows). */
static void complete_row(pi__runner *r, int32_t i)
{
    const pi__rows *rows = r->config.rows;
    pi__model *m = r->config.m;
    if (!rows->wanted.partial) return;
    pi__batch_drop_lora_rows(&r->batch);
    m->lora = pi__batch_lora_rows(&r->batch, i, 1);
    m->arch->logits(m, i, 1, rows->logits + (size_t) i * (size_t) m->n_vocab);
    m->lora = NULL;
}

/* Samples the next token of s from row i, and copies the full row to the host if needed. *id -1 = no usable logits. */
static int sample_token(pi__runner *r, pi__seq *s, const pi__mask *mask, int32_t i, float *row, int32_t *id,
                        pi_error *err)
{
    const int32_t n_gen = s->n_tokens - s->n_prompt;
    pi__rows *rows = r->config.rows;
    pi__backend *be = r->config.be;
    int32_t forced = pi__thoughts_forced(s->thoughts);
    if (forced >= 0 && mask && !pi__mask_has(mask, forced)) forced = -1; /* the grammar takes precedence */
    if (forced >= 0) *id = s->probs ? PI__NEED_ROW : forced;
    else *id = rows->request[i].k ? choose_from_topk(r, s, mask, i, row, n_gen) : PI__NEED_ROW;
    if (*id != PI__NEED_ROW) return PI_OK;
    if (rows->request[i].k) {
        complete_row(r, i);
        pi__rows_copy(rows, i, 1);
        int rc = be->dev->finish(be, err);
        if (rc) return rc;
    }
    *id = forced >= 0 ? forced : choose_from_row(r, s, mask, row, n_gen);
    if (forced >= 0) fill_forced_probs(r, s, row, forced);
    return PI_OK;
}

static void finish_seq(const pi__runner *r, pi__seq *s, int reason, int code, const char *msg)
{
    r->config.finish(r->config.ud, s, reason, code, msg);
}

/* Appends token id to s, with its log-probabilities in s->probs. True: s has ended and may be freed. */
static bool append_token(pi__runner *r, pi__seq *s, int32_t id)
{
    const pi__special *sp = r->config.special;
    int reason = PI_FINISH_NONE;
    pi_error why;
    pi__token_out out = {.id = id, .probs = s->probs, .n_probs = s->probs ? 1 + s->params.n_logprobs : 0,
                         .n_cached = (uint32_t) s->n_cached};
    out.calls_bound = s->params.calls && pi__matcher_is_bound(s->matcher);
    out.eog = (!s->params.no_stop && in_list(sp->eog, (size_t) sp->n_eog, id)) ||
              in_list(s->params.stop_ids, s->params.n_stop_ids, id);
    s->tokens[s->n_tokens++] = id;
    pi__sampler_accept(s->sampler, id);
    if (s->thoughts) pi__thoughts_accept(s->thoughts, id);
    r->config.stats->generated_tokens++;
    if (s->call.on_token(s->call.ud, &out) || out.eog) reason = PI_FINISH_STOP;
    else if (s->n_tokens == s->max_total) reason = PI_FINISH_LENGTH;
    const int rc = s->matcher && !reason ? pi__matcher_accept(s->matcher, id, &why) : PI_OK;
    if (rc) finish_seq(r, s, PI_FINISH_ERROR, rc, why.msg);
    else if (reason) finish_seq(r, s, reason, PI_OK, "");
    return rc || reason;
}

bool pi__runner_ready(pi__runner *r, const pi__seq *s)
{
    return !s->matcher || pi__matcher_ready(s->matcher, &r->mask_steps);
}

/* Gets the mask of tokens that the grammar of s allows next. True: s has ended, since nothing can follow or on an
 * error. */
static bool allowed_next(pi__runner *r, pi__seq *s, pi__mask *mask)
{
    pi_error why;
    const int rc = pi__matcher_mask(s->matcher, !forbids_end(s, s->n_tokens - s->n_prompt), mask, &why);
    if (rc) finish_seq(r, s, PI_FINISH_ERROR, rc, why.msg);
    else if (!mask->n) finish_seq(r, s, PI_FINISH_STOP, PI_OK, "");
    return rc || !mask->n;
}

/* Appends tokens that the grammar of s forces. They need no logits; the next step computes them in one chunk, like a
 * prompt. next: mask of the first one, or NULL. True: s has ended. */
static bool append_forced(pi__runner *r, pi__seq *s, const pi__mask *next)
{
    pi__mask mask;
    if (!next && (!s->matcher || s->call.on_logits)) return false; /* with on_logits every token needs its row */
    for (int i = 0; i < MAX_FORCED; i++) {
        if (!next && !pi__runner_ready(r, s)) return false;
        if (!next && allowed_next(r, s, &mask)) return true;
        if (!next) next = &mask;
        if (next->n != 1) return false;
        const int32_t id = next->only;
        next = NULL;
        r->config.stats->n_forced++;
        fill_certain_probs(s, id);
        if (append_token(r, s, id)) return true;
        if (s->call.on_logits) return false;
    }
    return false;
}

static void record_time(pi__seq *s)
{
    s->t.last = pi__now_ms();
    if (!s->t.first) s->t.first = s->t.last;
}

/* Samples the next token of s from row i and appends it, with the tokens that the grammar then forces. *ended: s has
 * ended and may be freed. */
static int next_token(pi__runner *r, pi__seq *s, int32_t i, float *row, bool *ended, pi_error *err)
{
    int32_t id;
    pi__mask mask;
    *ended = true;
    record_time(s);
    if (s->n_tokens >= s->max_total) { /* no token was to be generated */
        finish_seq(r, s, s->params.hidden ? PI_FINISH_STOP : PI_FINISH_LENGTH, PI_OK, "");
        return PI_OK;
    }
    if (s->matcher && allowed_next(r, s, &mask)) return PI_OK;
    const int32_t known = s->n_tokens;
    if (s->matcher && mask.n == 1) {
        *ended = append_forced(r, s, &mask);
        if (!*ended) s->n_ahead = s->n_tokens - known;
        return PI_OK;
    }
    int rc = sample_token(r, s, s->matcher ? &mask : NULL, i, row, &id, err);
    *ended = !rc;
    if (rc) return rc;
    if (id < 0) {
        finish_seq(r, s, PI_FINISH_ERROR, PI_EINTERNAL, !s->matcher ? NO_LOGITS
                   : "no token that the grammar allows may be sampled: logit-bias or the model's own logits "
                     "forbid them all");
        return PI_OK;
    }
    *ended = append_token(r, s, id) || append_forced(r, s, NULL);
    if (!*ended && s->matcher) s->n_ahead = s->n_tokens - known;
    return PI_OK;
}

/* -------------------------------------------------------------------------------------------------------- the step */

/* Checks the draft at pos. True: the draft equals the sampled token, so the row after it is valid. */
static bool verify_draft(pi__runner *r, pi__seq *s, int32_t pos, int32_t draft)
{
    s->n_drafted++;
    r->config.stats->n_drafted++;
    if (pos != s->n_computed || pos >= s->n_tokens || s->tokens[pos] != draft || !pi__runner_ready(r, s)) return false;
    s->n_accepted++;
    r->config.stats->n_accepted++;
    s->n_computed = pos + 1;
    pi__cache_commit(r->config.cache, s->row, s->tokens, s->n_computed, s->cacheable);
    return true;
}

/* True if all values of a vector are finite. */
static bool all_finite(const float *v, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!isfinite(v[i])) return false;
    return true;
}

/* Delivers row first + i of the batch, row i of this pass: to on_logits, and to sampling if it is the last of its
 * sequence. */
static int deliver_row(pi__runner *r, int32_t first, int32_t i, pi_error *err)
{
    const pi__batch *b = &r->batch.b;
    int32_t t = b->logits_indices[first + i], pos = b->pos[t];
    float *row = pi__row(r->config.rows, i);
    pi__seq *s = r->plan->seq[b->seq[t]];
    if (!s || (pos >= s->n_computed && !verify_draft(r, s, pos, b->token[t]))) return PI_OK;
    if (s->params.hidden && !all_finite(pi__row_hidden(r->config.rows, i), r->config.m->n_embd)) {
        finish_seq(r, s, PI_FINISH_ERROR, PI_EINTERNAL, "the model computed vectors that are not finite");
        r->plan->seq[b->seq[t]] = NULL;
        return PI_OK;
    }
    bool fresh = pos >= s->n_rows_given;
    bool last = pos == s->n_tokens - 1, ended = false; /* evaluated before a token is appended */
    bool give = pos < s->n_prompt ? fresh : s->params.logits == PI__LOGITS_GENERATED;
    if (s->call.on_logits && give)
        s->call.on_logits(s->call.logits_ud, (uint32_t) pos, s->params.hidden ? pi__row_hidden(r->config.rows, i) : row,
                          (size_t) (s->params.hidden ? r->config.m->n_embd : r->config.m->n_vocab));
    if (pos < s->n_prompt && fresh) s->n_rows_given = pos + 1;
    int rc = last ? next_token(r, s, i, row, &ended, err) : PI_OK;
    if (ended) r->plan->seq[b->seq[t]] = NULL;
    return rc;
}

/* Reports prompt progress to on_prefill. before: tokens computed before this step. */
static void tell_progress(const pi__seq *s, int32_t before)
{
    if (!s->call.on_prefill || before >= s->n_prompt) return;
    s->call.on_prefill(s->call.ud, (uint32_t) (s->n_computed < s->n_prompt ? s->n_computed : s->n_prompt),
                       (uint32_t) s->n_cached, pi__now_ms() - s->t.start);
}

static void commit_step(pi__runner *r)
{
    for (int32_t q = 0; q < r->plan->n_seqs; q++) {
        pi__seq *s = r->plan->seq[q];
        const int32_t before = s->n_computed;
        s->n_computed += r->batch.n_verified[q];
        s->spec.n_in_step = s->n_new - r->batch.n_verified[q];
        s->n_draft = 0;
        pi__cache_commit(r->config.cache, s->row, s->tokens, s->n_computed, s->cacheable);
        pi__media_release(r->config.media, s, s->n_computed);
        tell_progress(s, before);
    }
}

/* True if row k of the batch is a hidden state. */
static bool is_hidden(const pi__runner *r, int32_t k)
{
    const pi__batch *b = &r->batch.b;
    const pi__seq *s = r->hidden ? r->plan->seq[b->seq[b->logits_indices[k]]] : NULL;
    return s && s->params.hidden;
}

/* Queues the computation of rows first..first+n of the batch, in runs of logits and hidden states. */
static void compute_rows(pi__runner *r, int32_t first, int32_t n)
{
    const pi__rows *rows = r->config.rows;
    pi__model *m = r->config.m;
    pi__batch_drop_lora_rows(&r->batch); /* the device no longer reads the previous ones */
    for (int32_t i = 0, end; i < n; i = end) {
        const bool hidden = is_hidden(r, first + i);
        for (end = i + 1; end < n && is_hidden(r, first + end) == hidden;) end++;
        m->lora = pi__batch_lora_rows(&r->batch, first + i, end - i);
        if (hidden) m->arch->hidden(m, first + i, end - i, rows->hidden + (size_t) i * (size_t) m->n_embd);
        else m->arch->logits(m, first + i, end - i, rows->logits + (size_t) i * (size_t) m->n_vocab);
    }
    m->lora = NULL;
}

/* Returns the values that are required of the step's logits rows, if the rows are one pass; NULL = all values. */
static pi__best_rows *wanted_rows(const pi__runner *r)
{
    pi__rows *rows = r->config.rows;
    const pi__batch *b = &r->batch.b;
    if (!b->top.request || !r->config.be->opt->best_rows) return NULL;
    if (r->hidden || (b->lora.n_runs && pi__adapters_of_logits(r->config.m, &b->lora))) return NULL;
    rows->wanted = (pi__best_rows) {.request = rows->request};
    return &rows->wanted;
}

/* Sets the topk requests of rows first..first+n of the batch. */
static void request_rows(const pi__runner *r, int32_t first, int32_t n)
{
    const pi__batch *b = &r->batch.b;
    for (int32_t i = 0; i < n; i++) {
        const int32_t t = b->logits_indices[first + i];
        const pi__seq *s = r->plan->seq[b->seq[t]];
        const bool sampled = s && !s->params.hidden;
        r->config.rows->request[i] = sampled ? ask_of(r, s, b->pos[t] + 1 - s->n_prompt) : (pi__topk_request) {0};
    }
}

/* Waits for the step and for the topk results of its rows first..first+n, or full rows where needed. found: topk was
 * a part of the step. */
static int fetch_rows(pi__runner *r, int32_t first, int32_t n, bool found, pi_error *err)
{
    const pi__batch *b = &r->batch.b;
    pi__rows *rows = r->config.rows;
    pi__backend *be = r->config.be;
    int32_t from = 0; /* first row of the next copy */
    if (!found) request_rows(r, first, n);
    if (!found && !pi__rows_request(rows, n)) memset(rows->request, 0, (size_t) n * sizeof *rows->request);
    for (int32_t i = 0; i < n; i++) {
        const pi__seq *s = r->plan->seq[b->seq[b->logits_indices[first + i]]];
        if (s && !s->params.hidden && !rows->request[i].k) continue;
        pi__rows_copy(rows, from, i - from);
        from = i + 1;
    }
    pi__rows_copy(rows, from, n - from);
    if (r->hidden) pi__rows_copy_hidden(rows, 0, n);
    return be->dev->finish(be, err);
}

/* True for a decode step: all sequences decode with the same number of drafts, so the step can be captured and
 * replayed. */
static bool is_decoding(const pi__runner *r)
{
    const pi__batch *b = &r->batch.b;
    const int32_t each = b->n_seqs ? b->n_tokens / b->n_seqs : 0;
    if (!each || r->hidden || b->input_row || r->config.snapshots->n_saving || b->n_rows != b->n_tokens ||
        each > 1 + r->config.n_draft)
        return false;
    for (int32_t s = 0; s < b->n_seqs; s++)
        if (b->seq_start[s + 1] - b->seq_start[s] != each) return false;
    /* Logits rows of several passes have separate adapter lists per pass; a captured step cannot have these. */
    return !b->lora.n_runs || b->n_rows <= r->config.rows->max_rows || !pi__adapters_of_logits(r->config.m, &b->lora);
}

/* Drops drafts that the grammar forbids: they need no verification. */
static void drop_drafts(const pi__step_plan *plan)
{
    for (int32_t q = 0; q < plan->n_seqs; q++) {
        pi__seq *s = plan->seq[q];
        if (s && s->matcher && s->n_draft)
            s->n_draft = pi__matcher_count(s->matcher, s->tokens + s->n_tokens, s->n_draft);
    }
}

static int32_t at_hand(const pi__rows *rows, int32_t n) { return n < rows->max_rows ? n : rows->max_rows; }

/* Builds the batch of a lookahead step: one token per sequence, not known to the host. */
static void build_ahead(pi__runner *r)
{
    static const int32_t any = 0; /* placeholder: the device inserts the token that it sampled */
    pi__batch_builder *bb = &r->batch;
    pi__batch_clear(bb);
    r->hidden = false;
    for (int32_t q = 0; q < r->plan->n_seqs; q++) {
        const pi__seq *s = r->plan->seq[q];
        pi__batch_add(bb, r->config.cache, s->row, &any, s->n_tokens, 1, 1);
        pi__batch_add_images(bb, &s->images, s->whole_images);
        pi__batch_add_row(bb, q);
        pi__loras_add(bb, q, &s->lora);
    }
    memset(bb->save_start, 0, ((size_t) bb->b.n_seqs + 1) * sizeof *bb->save_start);
    bb->b.hidden_row = r->plan->from;
    pi__batch_end(bb);
}

/* True if the device can sample the next token of s, and nothing on the host depends on it except the end of s. */
static bool can_be_fed(const pi__runner *r, const pi__seq *s)
{
    pi__draw d;
    const bool looks = s->matcher || s->thoughts || s->params.n_bad || s->call.on_logits || s->probs;
    if (looks || r->config.drafting->of[s->spec.kind] || s->n_tokens >= s->max_total) return false;
    return pi__sampler_is_argmax(s->sampler) || (r->config.be->opt->draw && pi__sampler_draw(s->sampler, 0, &d, NULL));
}

/* True if the step may stay in flight: its rows can be searched on the device, and the device can sample all its
 * tokens. */
static bool may_stay_in_flight(const pi__runner *r)
{
    const pi__step_plan *p = r->plan;
    bool all = r->config.ahead && r->config.be->opt->mark && p->n_tokens == p->n_seqs && is_decoding(r);
    for (int32_t q = 0; q < p->n_seqs && all; q++) all = can_be_fed(r, p->seq[q]);
    return all;
}

/* Queues sampling on the device for all rows, unless the argmax of every row suffices. */
static void draw_rows(const pi__runner *r)
{
    const pi__batch *b = &r->batch.b;
    const pi__rows *rows = r->config.rows;
    pi__backend *be = r->config.be;
    bool penalties = false, drawn = false, whole = false;
    for (int32_t i = 0; i < b->n_rows; i++) {
        const int32_t t = b->logits_indices[i];
        const pi__seq *s = r->plan->seq[b->seq[t]];
        pi__draw *d = &rows->draw[i];
        const bool can = pi__sampler_draw(s->sampler, b->pos[t] + 1 - s->n_tokens, d,
                                          rows->seen + (size_t) i * PI__MAX_SEEN);
        pi__assert(can);
        (void) can;
        penalties |= d->n_seen || d->fed;
        whole |= d->row;
        drawn |= !pi__sampler_is_argmax(s->sampler);
    }
    if (drawn) be->opt->draw(be, &(pi__draws) {rows->draw, penalties ? rows->seen : NULL, whole});
}

/* Queues the model's graph and the logits rows of the first pass, with their topk if these are all rows. Queues
 * nothing if the backend replays a captured step (begin returns NULL). True: topk is included. */
static bool run_graph(pi__runner *r)
{
    pi__backend *be = r->config.be;
    pi__model *m = r->config.m;
    pi__rows *rows = r->config.rows;
    const int32_t n = r->batch.b.n_rows;
    r->batch.b.top = (pi__step_top) {0};
    rows->wanted.partial = false;
    const bool searches = n && n <= rows->max_rows && pi__rows_searches(rows);
    r->stays = r->plan->ahead || (searches && may_stay_in_flight(r));
    if (searches) {
        request_rows(r, 0, n);
        r->batch.b.top = pi__rows_of_step(rows, n);
    }
    const bool asks = r->batch.b.top.request != NULL;
    if (r->stays) draw_rows(r);
    const int kind = r->plan->ahead ? PI__STEP_FED : is_decoding(r) ? PI__STEP_DECODE : PI__STEP_ANY;
    pi__profile_step(be->profile, n == r->batch.b.n_tokens);
    const pi__batch *b = be->dev->begin(be, &r->batch.b, kind);
    if (!b) return asks;
    m->lora = b->lora.n_runs ? &b->lora : NULL;
    m->arch->forward(m, b, m->n_trunk);
    m->lora = NULL;
    m->best = wanted_rows(r);
    compute_rows(r, 0, at_hand(rows, b->n_rows));
    m->best = NULL;
    return asks && pi__rows_request_in_step(rows, b, at_hand(rows, b->n_rows));
}

/* Returns the clock for drafting costs, ms: on the CPU the thread's own time, since load by other processes should
 * not reduce drafting; on a device the elapsed time. */
static double cost_ms(const pi__runner *r) { return r->config.drafting->any ? r->config.drafting->clock() : 0; }

int pi__runner_step(pi__runner *r, pi__step_plan *plan, pi_error *err)
{
    const pi__rows *rows = r->config.rows;
    double t0 = cost_ms(r), drafting; /* t0: start, moved forward by the time of drafters */
    r->plan = plan;
    pi__profile_end(r->config.be->profile, PI__PART_SCHEDULE);
    build_batch(r);
    const int32_t n_rows = r->batch.b.n_rows;
    const bool found = run_graph(r);
    r->stays &= found;
    if (r->stays) {
        r->flight = plan;
        pi__rows_mark(r->config.rows, r->turn, n_rows);
        return PI_OK;
    }
    r->mask_steps = PI__MASK_STEPS;
    int rc = fetch_rows(r, 0, at_hand(rows, n_rows), found, err);
    /* Assign block hashes before any sequence ends, so that its computed tokens can be found again. */
    drafting = cost_ms(r);
    if (!rc) rc = pi__drafts_catch_up(r->config.drafting, &r->batch.b, plan->seq, err);
    t0 += cost_ms(r) - drafting;
    pi__snapshots_done(r->config.snapshots, rc == PI_OK);
    if (!rc) commit_step(r);
    for (int32_t first = 0; first < n_rows && !rc; first += rows->max_rows) {
        const int32_t n = at_hand(rows, n_rows - first);
        if (first) {
            compute_rows(r, first, n);
            rc = fetch_rows(r, first, n, false, err);
        }
        for (int32_t i = 0; i < n && !rc; i++) rc = deliver_row(r, first, i, err);
    }
    if (!rc)
        rc = pi__drafts_make(r->config.drafting, &r->batch.b, plan->seq, cost_ms(r) - t0, plan->n_prefill > 0, err);
    r->config.stats->draft_total_ns = r->config.drafting->ns;
    if (!rc) drop_drafts(plan);
    pi__profile_end(r->config.be->profile, PI__PART_TOKENS);
    return rc;
}

/* ------------------------------------------------------------------------------------------------------- lookahead */

void pi__runner_ahead(pi__runner *r, pi__step_plan *next)
{
    pi__assert(r->flight && !r->next);
    r->plan = r->next = next;
    build_ahead(r);
    const bool found = run_graph(r);
    pi__assert(found); /* always true: the step before has the same or more sequences */
    (void) found;
    pi__rows_mark(r->config.rows, 1 - r->turn, r->batch.b.n_rows);
}

/* Removes the q-th sequence of the step in flight, which has ended, from this step and from the lookahead step. */
static void drop_from_flight(pi__runner *r, int32_t q)
{
    r->flight->seq[q] = NULL;
    for (int32_t i = 0; r->next && i < r->next->n_seqs; i++)
        if (r->next->from[i] == q) r->next->seq[i] = NULL;
}

/* Appends the token that the device sampled for s, -1 = no usable logits. True: s has ended. */
static bool append_device_token(pi__runner *r, pi__seq *s, int32_t id)
{
    record_time(s);
    r->config.stats->n_from_topk++;
    if (id >= 0) return append_token(r, s, id);
    finish_seq(r, s, PI_FINISH_ERROR, PI_EINTERNAL, NO_LOGITS);
    return true;
}

int pi__runner_complete(pi__runner *r, pi_error *err)
{
    pi__backend *be = r->config.be;
    pi__step_plan *p = r->flight;
    const int rc = be->opt->wait(be, r->turn, err);
    for (int32_t q = 0; q < p->n_seqs && !rc; q++) {
        pi__seq *s = p->seq[q];
        if (s) pi__cache_commit(r->config.cache, s->row, s->tokens, ++s->n_computed, s->cacheable);
    }
    for (int32_t q = 0; q < p->n_seqs && !rc; q++)
        if (p->seq[q] && append_device_token(r, p->seq[q], pi__rows_best(r->config.rows, r->turn, q)))
            drop_from_flight(r, q);
    r->flight = rc ? NULL : r->next;
    r->next = NULL;
    r->turn = 1 - r->turn;
    if (rc) be->dev->finish(be, NULL); /* drops the lookahead step */
    return rc;
}
