/* One step: the scheduled tokens as a batch, the model, then a token for each sequence that is up to date.
 *
 * Nothing here allocates. Rows of logits are computed a few at a time, so their memory does not grow with the number of
 * sequences. A device error ends the sequences of the step. Only the step thread is here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/core_impl.h"

/* Whether logits of this position are computed. */
static bool wants_row(const pi__seq *s, int32_t pos)
{
    if (pos >= s->n_tokens - 1) return true; /* the row that is sampled from, and those of drafts */
    return s->params.logits == PI__LOGITS_ALL && pos < s->n_prompt && pos >= s->n_rows_given;
}

/* Fills the batch arrays for the sequences with n_new > 0, in running order. */
static void build_batch(pi__core *e)
{
    pi__batch_builder *bb = &e->batch;
    pi__batch_clear(bb);
    for (pi__seq *s = e->running.head; s; s = s->next) {
        if (!s->n_new) continue;
        const int32_t known = s->n_tokens - s->n_computed, sure = s->n_new < known ? s->n_new : known;
        const int32_t first = bb->b.n_tokens;
        int32_t q = pi__batch_add(bb, &e->cache, s->row, s->tokens + s->n_computed, s->n_computed, s->n_new, sure);
        e->step_seq[q] = s;
        bb->save_start[q] = e->n_saving;
        pi__snapshots_plan(e, q, s->n_computed + sure);
        for (int32_t i = 0; i < s->n_new; i++)
            if (wants_row(s, s->n_computed + i)) pi__batch_add_row(bb, first + i);
    }
    bb->save_start[bb->b.n_seqs] = e->n_saving;
    pi__batch_end(bb);
}

static const char *miss_reason(const pi__core *e, const pi__seq *s)
{
    if ((!s->params.cache && !s->n_cached) || !e->cfg.prefix_cache) return "prefix cache off";
    const int32_t bs = e->cache.reuse_block, most = (s->n_prompt - 1) / bs * bs, from = s->params.logits_from;
    if (s->n_cached >= most) return "";
    if (s->params.logits == PI__LOGITS_ALL && s->n_cached >= from / bs * bs)
        return from ? "logits of the rest of the prompt wanted" : "logits of the whole prompt wanted";
    if (s->n_wanted > s->n_cached) return "a cache group had dropped its part of the prefix";
    return s->n_cached ? "the rest was not in the cache" : "not in the cache";
}

/* The last of a family takes along what they shared. */
static void leave_family(pi__core *e, pi__seq *s)
{
    if (!s->family || --s->family->n_left) return;
    pi__cache_clear(&e->cache, &s->family->root);
    pi__free(s->family);
}

void pi__seq_finish(pi__core *e, pi__seq_list *l, pi__seq *s, int reason, int code, const char *msg)
{
    if (l) pi__list_remove(l, s);
    if (l == &e->waiting) {
        pthread_mutex_lock(&e->lock);
        e->n_queued--; /* who hears of the end may submit the next one */
        pthread_mutex_unlock(&e->lock);
    }
    bool broken = code == PI_EDEVICE || code == PI_EINTERNAL || code == PI_ENOMEM || e->state == PI_STATE_FAILED;
    pi__seq_drop_row(e, s, !broken);
    leave_family(e, s);
    double now = pi__now_ms(), start = s->t_start ? s->t_start : now, first = s->t_first ? s->t_first : now;
    pi__job_end end = {
        .reason = reason, .code = code, .msg = msg, .prompt_tokens = (uint32_t) s->n_prompt,
        .cached_tokens = (uint32_t) s->n_cached, .generated_tokens = (uint32_t) (s->n_tokens - s->n_prompt),
        .n_preempted = s->n_preempted, .n_drafted = s->n_drafted, .n_accepted = s->n_accepted,
        .miss_reason = s->t_start ? miss_reason(e, s) : "never started",
        .queue_ms = start - s->t_submit, .prefill_ms = s->t_start ? first - start : 0,
        .decode_ms = s->t_first ? s->t_last - s->t_first : 0,
    };
    e->st.n_finished++; /* who hears of the end finds it in the counters */
    pi__update_stats(e);
    s->on_done(s->ud, &end);
    pi__seq_release(s);
    pthread_mutex_lock(&e->lock);
    e->n_live--;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static bool in_list(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* Whether token number n_gen of the answer may not end it. */
static bool forbids_end(const pi__seq *s, int32_t n_gen) { return s->params.ignore_eos || n_gen < s->params.min_tokens; }

/* Queues the copy of rows r..r+n at hand. */
static void queue_rows(pi__core *e, int32_t r, int32_t n)
{
    const size_t V = (size_t) e->m->n_vocab;
    if (n && e->rows != e->logits)
        e->be->dev->download(e->be, e->rows + (size_t) r * V, e->logits + (size_t) r * V, (size_t) n * V * sizeof(float));
}

/* What of its row is enough to sample token number n_gen of the answer, where the device looks for it. */
static pi__ask ask_of(const pi__core *e, const pi__seq *s, int32_t n_gen)
{
    const bool forbid = forbids_end(s, n_gen), later = forbid && s->probs; /* log-probabilities know of what is forbidden */
    bool sum;
    if (!e->skip || s->on_logits || s->params.n_logprobs > PI__MAX_TOP) return (pi__ask) {0};
    int32_t k = pi__sampler_top(s->sampler, later ? (size_t) e->n_eog : 0, &sum);
    if (k && s->probs && k < s->params.n_logprobs) k = s->params.n_logprobs;
    return (pi__ask) {k, forbid && !later ? e->n_skip : e->n_suppress, sum || s->probs};
}

/* What the device found in row r of those at hand. */
static pi__top found(const pi__core *e, int32_t r)
{
    const uint64_t *w = e->found + (size_t) r * (size_t) (2 + e->found_k);
    const int32_t missing = (int32_t) (uint32_t) w[0];
    pi__top t = {.key = w + 2, .n = e->ask[r].k - missing, .all = missing > 0, .odd = w[0] >> 32};
    memcpy(&t.sum, &w[1], sizeof t.sum);
    return t;
}

/* The next token of s, from the whole row. */
static int32_t choose(pi__core *e, pi__seq *s, float *row, int32_t n_gen)
{
    int32_t V = e->m->n_vocab, id;
    bool forbid = forbids_end(s, n_gen);
    e->st.n_whole++;
    for (int32_t i = 0; i < e->n_suppress; i++) row[e->suppress[i]] = -INFINITY;
    if (s->probs) memcpy(e->raw_row, row, (size_t) V * sizeof *row);
    if (!forbid && pi__sampler_is_argmax(s->sampler)) id = pi__argmax(row, V);
    else id = pi__sampler_sample(s->sampler, e->scratch, row, forbid ? e->eog : NULL, forbid ? (size_t) e->n_eog : 0);
    if (s->probs && id >= 0) pi__logprobs(e->raw_row, V, id, s->params.n_logprobs, s->probs, e->scratch);
    return id;
}

/* The same from what the device found in row r. PI__NEED_ROW: that is not enough. */
static int32_t choose_found(pi__core *e, pi__seq *s, int32_t r, float *row, int32_t n_gen)
{
    const pi__top t = found(e, r);
    const bool later = s->probs && forbids_end(s, n_gen);
    if (s->probs && t.odd) return PI__NEED_ROW;
    int32_t id = pi__sampler_sample_top(s->sampler, e->scratch, &t, row, later ? e->eog : NULL, later ? (size_t) e->n_eog : 0);
    if (id == PI__NEED_ROW) return id;
    e->st.n_heads++;
    if (s->probs && id >= 0) pi__logprobs_top(&t, id, s->params.n_logprobs, s->probs);
    return id;
}

/* The next token of s from row r of those at hand, which is fetched if need be; -1: there is none. */
static int sample(pi__core *e, pi__seq *s, int32_t r, float *row, int32_t n_gen, int32_t *id, pi_error *err)
{
    *id = e->ask[r].k ? choose_found(e, s, r, row, n_gen) : PI__NEED_ROW;
    if (*id != PI__NEED_ROW) return PI_OK;
    if (e->ask[r].k) {
        queue_rows(e, r, 1);
        int rc = e->be->dev->finish(e->be, err);
        if (rc) return rc;
    }
    *id = choose(e, s, row, n_gen);
    return PI_OK;
}

/* Samples the next token of s from row r of those at hand. *ended: that ended s, which may be gone now. */
static int next_token(pi__core *e, pi__seq *s, int32_t r, float *row, bool *ended, pi_error *err)
{
    int32_t n_gen = s->n_tokens - s->n_prompt, id;
    int reason = PI_FINISH_NONE;
    *ended = true;
    s->t_last = pi__now_ms();
    if (!s->t_first) s->t_first = s->t_last;
    if (s->n_tokens >= s->max_total) { /* nothing was to be generated */
        pi__seq_finish(e, &e->running, s, PI_FINISH_LENGTH, PI_OK, "");
        return PI_OK;
    }
    int rc = sample(e, s, r, row, n_gen, &id, err);
    *ended = !rc;
    if (rc) return rc;
    if (id < 0) {
        pi__seq_finish(e, &e->running, s, PI_FINISH_ERROR, PI_EINTERNAL, "the model gave no usable logits");
        return PI_OK;
    }
    pi__token_out out = {.id = id, .probs = s->probs, .n_probs = s->probs ? 1 + s->params.n_logprobs : 0};
    out.eog = (!s->params.no_stop && pi__vocab_is_eog(e->vocab, id)) || in_list(s->params.stop_ids, s->params.n_stop_ids, id);
    s->tokens[s->n_tokens++] = id;
    pi__sampler_accept(s->sampler, id);
    e->st.generated_tokens++;
    if (s->on_token(s->ud, &out) || out.eog) reason = PI_FINISH_STOP;
    else if (s->n_tokens == s->max_total) reason = PI_FINISH_LENGTH;
    if (reason) pi__seq_finish(e, &e->running, s, reason, PI_OK, "");
    *ended = reason != PI_FINISH_NONE;
    return PI_OK;
}

/* The row at pos was computed for a draft. true: the draft is what was sampled, and the row as good as any. */
static bool accept(pi__core *e, pi__seq *s, int32_t pos, int32_t draft)
{
    s->n_drafted++;
    e->st.n_drafted++;
    if (pos != s->n_tokens - 1 || s->tokens[pos] != draft) return false;
    s->n_accepted++;
    e->st.n_accepted++;
    s->n_computed = pos + 1;
    pi__cache_commit(&e->cache, s->row, s->tokens, s->n_computed, pi__seq_keeps(e, s));
    return true;
}

/* Row first + r of the batch, the r-th of those at hand. */
static int deliver_row(pi__core *e, int32_t first, int32_t r, pi_error *err)
{
    const pi__batch *b = &e->batch.b;
    int32_t t = b->row[first + r], pos = b->pos[t];
    float *row = e->rows + (size_t) r * (size_t) e->m->n_vocab;
    pi__seq *s = e->step_seq[b->seq[t]];
    if (!s || (pos >= s->n_computed && !accept(e, s, pos, b->token[t]))) return PI_OK;
    bool fresh = pos >= s->n_rows_given;
    bool last = pos == s->n_tokens - 1, ended = false; /* before a token is added */
    bool give = pos < s->n_prompt ? fresh : s->params.logits == PI__LOGITS_GENERATED;
    if (s->on_logits && give) s->on_logits(s->logits_ud, (uint32_t) pos, row, (size_t) e->m->n_vocab);
    if (pos < s->n_prompt && fresh) s->n_rows_given = pos + 1;
    int rc = last ? next_token(e, s, r, row, &ended, err) : PI_OK;
    if (ended) e->step_seq[b->seq[t]] = NULL;
    return rc;
}

/* Every sequence of the step that did not end yet ends with this error. After one of the device nothing that lies there can
 * be relied on, so the engine has failed. */
static void fail_step(pi__core *e, int code, const char *msg)
{
    if (code == PI_EDEVICE) {
        pthread_mutex_lock(&e->lock);
        snprintf(e->failure, sizeof e->failure, "%s", msg);
        e->state = PI_STATE_FAILED;
        pthread_mutex_unlock(&e->lock);
        pi__logf(&e->cfg.log, PI_LOG_ERROR, "the engine failed: %s", msg);
    }
    for (int32_t i = 0; i < e->batch.b.n_seqs; i++)
        if (e->step_seq[i]) pi__seq_finish(e, &e->running, e->step_seq[i], PI_FINISH_ERROR, code, msg);
}

static void commit_step(pi__core *e)
{
    for (int32_t i = 0; i < e->batch.b.n_seqs; i++) {
        pi__seq *s = e->step_seq[i];
        s->n_computed += e->batch.seq_sure[i];
        s->n_draft = 0;
        pi__cache_commit(&e->cache, s->row, s->tokens, s->n_computed, pi__seq_keeps(e, s));
    }
}

void pi__update_stats(pi__core *e)
{
    e->st.n_waiting = (unsigned) e->waiting.n;
    e->st.n_running = (unsigned) e->running.n;
    for (int32_t i = 0; i < e->cache.n_groups; i++) {
        const pi__block_pool *p = &e->cache.group[i].pool;
        e->st.group[i].n_free = (unsigned) p->n_free;
        e->st.group[i].n_cached = (unsigned) p->n_cached;
        e->st.group[i].n_shared = (unsigned) p->n_shared;
        e->st.group[i].n_written = (unsigned) p->n_written;
        e->st.group[i].n_evicted = p->n_evicted;
    }
    pi__tiers_stats(e);
}

/* Queues what is asked of the first n rows at hand. false: they have to come themselves. */
static bool queue_asks(pi__core *e, int32_t n)
{
    int32_t most = 0;
    for (int32_t r = 0; r < n; r++) most = e->ask[r].k > most ? e->ask[r].k : most;
    if (!most) return false; /* and what was found before stays: a drafter may catch up before it is looked at */
    e->found_k = most;
    if (!e->be->dev->topk_here(e->be)) return false;
    pi__op_topk(e->be, NULL, &(pi__topk) {.x = e->logits, .n_rows = n, .n = e->m->n_vocab, .skip = e->skip,
                                          .n_skip = e->n_skip, .ask = e->ask, .out = e->found});
    return true;
}

int pi__fetch_picks(pi__core *e, int32_t n, pi_error *err)
{
    for (int32_t r = 0; r < n; r++) e->ask[r] = (pi__ask) {.k = e->skip != NULL};
    const bool asked = queue_asks(e, n);
    if (!asked) queue_rows(e, 0, n);
    int rc = e->be->dev->finish(e->be, err);
    for (int32_t r = 0; r < n && !rc; r++) {
        const float *row = e->rows + (size_t) r * (size_t) e->m->n_vocab;
        const pi__top t = asked ? found(e, r) : (pi__top) {0};
        e->picked[r] = asked ? pi__top_best(&t) : pi__argmax(row, e->m->n_vocab);
    }
    return rc;
}

/* Waits for the step, and for what its rows first..first+n are wanted for: what the device found in them, or they
 * themselves. */
static int fetch_rows(pi__core *e, int32_t first, int32_t n, pi_error *err)
{
    const pi__batch *b = &e->batch.b;
    int32_t from = 0; /* of the rows that are copied next */
    for (int32_t r = 0; r < n; r++) {
        const int32_t t = b->row[first + r];
        const pi__seq *s = e->step_seq[b->seq[t]];
        e->ask[r] = s ? ask_of(e, s, b->pos[t] + 1 - s->n_prompt) : (pi__ask) {0};
    }
    if (!queue_asks(e, n)) memset(e->ask, 0, (size_t) n * sizeof *e->ask);
    for (int32_t r = 0; r < n; r++) {
        if (e->step_seq[b->seq[b->row[first + r]]] && !e->ask[r].k) continue;
        queue_rows(e, from, r - from);
        from = r + 1;
    }
    queue_rows(e, from, n - from);
    return e->be->dev->finish(e->be, err);
}

/* Whether all sequences decode, each with as many drafts. */
static bool is_decoding(const pi__core *e)
{
    const pi__batch *b = &e->batch.b;
    const int32_t each = b->n_seqs ? b->n_tokens / b->n_seqs : 0;
    if (!each || e->n_saving || b->n_rows != b->n_tokens || each > 1 + e->cfg.n_draft) return false;
    for (int32_t s = 0; s < b->n_seqs; s++)
        if (b->seq_start[s + 1] - b->seq_start[s] != each) return false;
    return true;
}

/* Queues the model's graph and the first rows of logits, unless the backend knows how they go. */
static void run_graph(pi__core *e)
{
    const pi__batch *b = &e->batch.b;
    b = e->be->dev->begin(e->be, b, is_decoding(e) ? PI__STEP_DECODE : PI__STEP_ANY);
    if (!b) return;
    e->m->arch->forward(e->m, b);
    if (b->n_rows) e->m->arch->logits(e->m, 0, b->n_rows < e->lim.max_rows ? b->n_rows : e->lim.max_rows, e->logits);
}

void pi__step(pi__core *e)
{
    double t0 = pi__now_ms();
    pi_error err = {0};
    build_batch(e);
    int32_t rows = e->batch.b.n_rows, most = e->lim.max_rows;
    run_graph(e);
    int rc = fetch_rows(e, 0, rows < most ? rows : most, &err);
    /* Keys are given before any sequence ends, so that what it computed can be found again. */
    if (!rc) rc = pi__drafts_catch_up(e, &err);
    pi__snapshots_done(e, rc == PI_OK);
    if (!rc) commit_step(e);
    for (int32_t first = 0; first < rows && !rc; first += most) {
        int32_t n = rows - first < most ? rows - first : most;
        if (first) {
            e->m->arch->logits(e->m, first, n, e->logits);
            rc = fetch_rows(e, first, n, &err);
        }
        for (int32_t r = 0; r < n && !rc; r++) rc = deliver_row(e, first, r, &err);
    }
    if (!rc) rc = pi__drafts_make(e, &err);
    if (rc) fail_step(e, rc, err.msg);
    e->st.n_steps++;
    e->st.last_step_us = (unsigned long long) ((pi__now_ms() - t0) * 1e3);
    pi__update_stats(e);
}
