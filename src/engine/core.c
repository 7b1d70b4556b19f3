/* The engine: opening, closing, taking jobs in, and the loop of the step thread.
 *
 * Two worlds. Callers touch only what `lock` guards (inbox, counters, flags), the atomics, and immutable facts. The step
 * thread owns the lists, the cache, the model and the device. A job crosses over once, through the inbox; a cancel is a
 * flag on the job. Everything the step thread needs is allocated before open returns. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "engine/core_impl.h"

/* ---------------------------------------------------------------------------------------------------------- sequences */

static void seq_free(pi__seq *s)
{
    pi__sampler_free(s->sampler);
    pi__free(s->tokens);
    pi__free(s->probs);
    pi__free((void *) s->params.stop_ids);
    pi__free((void *) s->params.salt);
    pi__free(s);
}

void pi__seq_release(pi__seq *s)
{
    if (s && atomic_fetch_sub(&s->ref, 1) == 1) seq_free(s);
}

void pi__seq_cancel(pi__core *e, pi__seq *s)
{
    atomic_store(&s->cancel, true);
    pthread_mutex_lock(&e->lock);
    e->poke = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

static int validate(const pi__core *e, const pi__job *j, int32_t *max_total, pi_error *err)
{
    if (!j->n_prompt) return pi__fail(err, PI_EINVAL, "the prompt is empty");
    int32_t longest = e->longest, gen = j->params.max_tokens;
    const char *limit = longest < e->ctx ? "the cache" : "the context";
    if (j->n_prompt + (gen != 0) > (size_t) longest)
        return pi__fail(err, PI_ETOOBIG, "the prompt has %zu tokens; %s holds %d, so at most %d fit", j->n_prompt, limit,
                        longest, longest - (gen != 0));
    int32_t n = (int32_t) j->n_prompt;
    if (gen > longest - n)
        return pi__fail(err, PI_ETOOBIG, "a prompt of %d tokens and max-tokens %d do not fit %s of %d: at most %d can be "
                        "generated", n, gen, limit, longest, longest - n);
    for (int32_t i = 0; i < n; i++)
        if (j->prompt[i] < 0 || j->prompt[i] >= e->m->n_vocab)
            return pi__fail(err, PI_EINVAL, "prompt token %d is %d; the vocabulary has 0 to %d", i, j->prompt[i],
                            e->m->n_vocab - 1);
    *max_total = gen < 0 ? longest : n + gen;
    return PI_OK;
}

static int seq_create(pi__core *e, const pi__job *j, int32_t max_total, pi__seq **out, pi_error *err)
{
    pi__seq *s = pi__calloc(1, sizeof *s);
    if (!s) return pi__fail_mem(err, "the request");
    *s = (pi__seq){.row = -1, .n_tokens = (int32_t) j->n_prompt, .n_prompt = (int32_t) j->n_prompt, .max_total = max_total,
                   .params = j->params, .ud = j->ud, .on_token = j->on_token, .on_done = j->on_done,
                   .n_rows_given = j->params.logits == PI__LOGITS_ALL ? j->params.logits_from : 0,
                   .on_logits = j->params.logits == PI__LOGITS_NONE ? NULL : j->on_logits, .logits_ud = j->logits_ud};
    atomic_init(&s->ref, 2);
    s->params.stop_ids = NULL;
    s->params.salt = NULL;
    s->tokens = pi__calloc((size_t) max_total + 1, sizeof *s->tokens);
    int32_t *stop = pi__calloc(j->params.n_stop_ids, sizeof *stop);
    s->params.stop_ids = stop;
    if (j->params.n_logprobs >= 0) s->probs = pi__calloc((size_t) j->params.n_logprobs + 1, sizeof *s->probs);
    char *salt = j->params.salt ? pi__strdup(j->params.salt) : NULL;
    s->params.salt = salt;
    int rc = PI_OK;
    if ((j->params.salt && !salt) || !s->tokens || !stop || (j->params.n_logprobs >= 0 && !s->probs)) rc = pi__fail_mem(err, "the request");
    if (!rc) rc = pi__sampler_create(&s->sampler, &j->params.sampling, e->m->n_vocab, max_total + 1, err);
    if (rc) {
        seq_free(s);
        return rc;
    }
    memcpy(s->tokens, j->prompt, j->n_prompt * sizeof *s->tokens);
    if (j->params.n_stop_ids) memcpy(stop, j->params.stop_ids, j->params.n_stop_ids * sizeof *stop);
    for (size_t i = 0; i < j->n_prompt; i++) pi__sampler_accept(s->sampler, j->prompt[i]);
    memset(&s->params.sampling, 0, sizeof s->params.sampling); /* its arrays are the submitter's; the sampler has copies */
    *out = s;
    return PI_OK;
}

/* Whether n more may come; the lock is held. */
static int admissible(const pi__core *e, size_t n, pi_error *err)
{
    if (e->state == PI_STATE_FAILED)
        return pi__fail(err, PI_ECLOSED, "the engine failed and takes no requests, close it: %s", e->failure);
    if (e->closing || e->draining) return pi__fail(err, PI_ECLOSED, "the engine is closing and takes no requests");
    if (n > 1 && n > (size_t) e->cfg.max_queue)
        return pi__fail(err, PI_ETOOBIG, "%zu answers at once do not fit the queue of %d (max-queue)", n,
                        e->cfg.max_queue);
    if (e->n_queued + (int64_t) n > e->cfg.max_queue)
        return pi__fail(err, PI_EBUSY, "the queue holds %d requests, its limit (max-queue) is %d: try again later",
                        e->n_queued, e->cfg.max_queue);
    return PI_OK;
}

/* All n go to the inbox; the lock is held. */
static void enqueue(pi__core *e, pi__seq **s, size_t n)
{
    if (s[0]->family) { /* another root, and another tenant, for each family */
        s[0]->family->root.lo += e->n_submitted;
        s[0]->family->root.hi += e->n_submitted;
    }
    for (size_t i = 0; i < n; i++) {
        s[i]->arrival = ++e->n_submitted;
        if (e->inbox_tail) e->inbox_tail->next = s[i];
        else e->inbox_head = s[i];
        e->inbox_tail = s[i];
    }
    e->n_live += (int32_t) n;
    e->n_queued += (int32_t) n;
    pthread_cond_signal(&e->wake);
}

/* n sequences that keep nothing for others share among themselves. */
static int make_family(pi__seq **s, size_t n, pi_error *err)
{
    if (n < 2 || s[0]->params.cache) return PI_OK;
    pi__family *f = pi__calloc(1, sizeof *f);
    if (!f) return pi__fail_mem(err, "the request");
    f->n_left = n;
    f->root = pi__key_root("jobs of one submit");
    for (size_t i = 0; i < n; i++) s[i]->family = f;
    return PI_OK;
}

int pi__core_submit(pi__core *e, const pi__job *j, size_t n, pi__seq **out, pi_error *err)
{
    size_t made = 0;
    int rc = PI_OK;
    double now = pi__now_ms();
    for (; made < n && !rc; made += !rc) {
        int32_t max_total = 0;
        rc = validate(e, &j[made], &max_total, err);
        if (!rc) rc = seq_create(e, &j[made], max_total, &out[made], err);
        if (!rc) out[made]->t_submit = now;
    }
    if (!rc) rc = make_family(out, n, err);
    if (!rc) {
        pthread_mutex_lock(&e->lock);
        rc = admissible(e, n, err);
        if (!rc) enqueue(e, out, n);
        pthread_mutex_unlock(&e->lock);
    }
    if (!rc) return PI_OK;
    if (made) pi__free(out[0]->family);
    for (size_t i = 0; i < n; i++) {
        if (i < made) seq_free(out[i]);
        out[i] = NULL;
    }
    return rc;
}

/* ------------------------------------------------------------------------------------------------------- step thread */

/* Moves new jobs to the waiting list; the lock is held. */
static void take_inbox(pi__core *e)
{
    while (e->inbox_head) {
        pi__seq *s = e->inbox_head;
        e->inbox_head = s->next;
        s->next = NULL;
        pi__list_insert(e, &e->waiting, s);
    }
    e->inbox_tail = NULL;
}

/* Ends what was cancelled or is late; all of them with code where that is not PI_OK. */
static void reap(pi__core *e, pi__seq_list *l, int code, const char *msg)
{
    double now = pi__now_ms();
    for (pi__seq *s = l->head, *next; s; s = next) {
        next = s->next;
        if (code) pi__seq_finish(e, l, s, PI_FINISH_ERROR, code, msg);
        else if (atomic_load(&s->cancel)) pi__seq_finish(e, l, s, PI_FINISH_CANCEL, PI_ECANCELED, "canceled");
        else if (s->params.deadline_ms > 0 && now - s->t_submit > s->params.deadline_ms)
            pi__seq_finish(e, l, s, PI_FINISH_ERROR, PI_ETIMEDOUT, "the request's deadline passed");
    }
}

typedef struct trim_job {
    pi__core *e;
    int32_t group;
} trim_job;

static void trim_block(void *ud, int32_t id)
{
    const trim_job *j = ud;
    for (int32_t i = 0; i < PI__N_SIDES; i++) {
        pi__backend *be = pi__backend_at(j->e->be, i);
        size_t bytes = j->e->gp[j->group].block_bytes[i];
        if (bytes) be->dev->trim(be, (char *) j->e->pool[j->group][i] + (size_t) id * bytes, bytes);
    }
}

/* Nobody runs: blocks that hold no prefix go back to the system, and all states. */
static void trim_pools(pi__core *e)
{
    for (int32_t i = 0; i < PI__N_SIDES; i++) {
        pi__backend *be = pi__backend_at(e->be, i);
        if (e->slots[i]) be->dev->trim(be, e->slots[i], (size_t) e->lim.max_seqs * e->slot_bytes[i]);
    }
    for (int32_t i = 0; i < e->cache.n_groups; i++)
        pi__block_pool_trim(&e->cache.group[i].pool, trim_block, &(trim_job){e, i});
    pi__update_stats(e);
}

/* How often copies and deadlines are looked at; how long idle before pools are trimmed. */
enum { COPY_MS = 1, LOOK_MS = 10, TRIM_MS = 500 };

/* Sleeps until there is something to do. The lock is held. */
static void wait_for_work(pi__core *e)
{
    bool trimmed = e->cfg.kv_commit, busy = pi__tiers_busy(e);
    while (!e->inbox_head && !e->poke && !e->closing) {
        if (trimmed && !e->waiting.n && !busy) {
            pthread_cond_wait(&e->wake, &e->lock);
            continue;
        }
        struct timespec t = pi__deadline(busy ? COPY_MS : e->waiting.n ? LOOK_MS : TRIM_MS);
        int rc = pthread_cond_timedwait(&e->wake, &e->lock, &t);
        if (e->waiting.n || busy) return;
        if (rc != ETIMEDOUT) continue;
        trim_pools(e);
        trimmed = true;
    }
}

/* What cache_clear asks for; the lock is held. */
static void clear_prefixes(pi__core *e)
{
    pi__key root = pi__key_root(e->clear_salt);
    const pi__key *tenant = e->clear_salt ? &root : NULL;
    pi__cache_clear(&e->cache, tenant);
    pi__tiers_clear(e, tenant);
    pi__update_stats(e);
}

static void *step_thread(void *arg)
{
    pi__core *e = arg;
    bool idle = true;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        if (idle) wait_for_work(e);
        take_inbox(e);
        e->poke = false;
        bool closing = e->closing, clear = e->clear_asked > e->clear_done;
        if (clear) {
            clear_prefixes(e);
            e->clear_done = e->clear_asked;
            pthread_cond_broadcast(&e->changed);
        }
        pthread_mutex_unlock(&e->lock);

        bool failed = e->state == PI_STATE_FAILED;
        int code = closing || failed ? PI_ECLOSED : PI_OK;
        reap(e, &e->running, code, failed ? "the engine failed" : "the engine is closing");
        reap(e, &e->waiting, code, failed ? "the engine failed" : "the engine is closing");
        if (closing) return NULL;
        pi__tiers_poll(e);
        int32_t n = pi__schedule(e);
        pthread_mutex_lock(&e->lock);
        e->n_queued = e->n_live - e->running.n; /* before the step: who was admitted leaves room in the queue */
        pthread_mutex_unlock(&e->lock);
        if (n) pi__step(e);
        idle = n == 0;
        pi__update_stats(e);
    }
}

/* ------------------------------------------------------------------------------------------------------- open, close */

/* Everything a step needs of the host. */
static int alloc_batch(pi__core *e, pi_error *err)
{
    const size_t T = (size_t) e->lim.max_tokens, S = (size_t) e->lim.max_seqs, saves = pi__most_saves(e);
    pi__batch_shape shape = pi__step_shape(e, true);
    int rc = pi__batch_init(&e->batch, &shape, err);
    if (rc) return rc;
    e->save = pi__calloc(saves, sizeof *e->save);
    e->saving = pi__calloc(saves, sizeof *e->saving);
    e->step_seq = pi__calloc(S, sizeof(pi__seq *));
    e->row_seq = pi__calloc(S, sizeof(pi__seq *));
    e->raw_row = pi__calloc((size_t) e->m->n_vocab, sizeof *e->raw_row);
    if (!e->save || !e->saving || !e->step_seq || !e->row_seq || !e->raw_row) return pi__fail_mem(err, "a step's batch");
    e->batch.b.save = e->save;
    if (!e->drafter) return PI_OK;
    shape = pi__step_shape(e, false);
    rc = pi__batch_init(&e->draft_batch, &shape, err);
    e->draft_hidden = pi__calloc(T, sizeof *e->draft_hidden);
    e->draft_seq = pi__calloc(S, sizeof(pi__seq *));
    return rc || (e->draft_hidden && e->draft_seq) ? rc : pi__fail_mem(err, "drafts");
}

static size_t pool_bytes(const pi__core *e, int32_t g, int32_t side)
{
    return (size_t) e->gp[g].spec.n_blocks * e->gp[g].block_bytes[side];
}
static size_t logits_bytes(const pi__core *e)
{
    return (size_t) e->lim.max_rows * (size_t) e->m->n_vocab * sizeof(float);
}

/* What samplers want of rows is found where the rows are, if the device can and what it has to skip is not too much. */
static int alloc_picks(pi__core *e, pi_error *err)
{
    const size_t n = (size_t) e->n_suppress + (size_t) e->n_eog;
    e->found = e->be->dev->host_alloc(e->be, pi__picks_bytes(e));
    if (!e->found) return pi__fail_mem(err, "logits");
    e->ask = (pi__ask *) (void *) (e->found + (size_t) e->lim.max_rows * (2 + PI__MAX_TOP));
    e->picked = (int32_t *) (void *) (e->ask + e->lim.max_rows);
    if (!e->be->dev->topk_here || n > PI__MAX_SKIP || e->m->n_vocab > PI__MAX_TOP_ROW) return PI_OK;
    e->skip = pi__calloc(n + 1, sizeof *e->skip);
    if (!e->skip) return pi__fail_mem(err, "logits");
    e->n_skip = (int32_t) n;
    if (e->n_suppress) memcpy(e->skip, e->suppress, (size_t) e->n_suppress * sizeof *e->skip);
    if (e->n_eog) memcpy(e->skip + e->n_suppress, e->eog, (size_t) e->n_eog * sizeof *e->skip);
    return PI_OK;
}

static size_t states_bytes(const pi__core *e, int32_t side) { return (size_t) e->lim.max_seqs * e->slot_bytes[side]; }

/* A slot for each sequence, and where each layer's part of slots and snapshots is. */
static int alloc_states(pi__core *e, pi_error *err)
{
    for (int32_t i = 0; i < PI__N_SIDES; i++) {
        pi__backend *be = pi__backend_at(e->be, i);
        if (!e->slot_bytes[i]) continue;
        e->slots[i] = be->dev->alloc(be, states_bytes(e, i));
        if (!e->slots[i])
            return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of recurrent states: lower parallel",
                            states_bytes(e, i) >> 20);
    }
    size_t slot[PI__N_SIDES] = {0}, snap[PI__N_SIDES] = {0};
    for (int32_t i = 0; i < e->m->n_state; i++) {
        pi__state_layer *st = &e->m->state[i];
        const int32_t side = st->place;
        const pi__backend *be = pi__backend_at(e->be, side);
        char *pool = e->pool[e->state_group][side];
        st->base = e->slots[side] + slot[side];
        st->stride = e->slot_bytes[side];
        st->snap = pool ? pool + snap[side] : NULL; /* there may be none */
        st->snap_stride = e->gp[e->state_group].block_bytes[side];
        slot[side] += (be->dev->state_bytes(be, st) + 63) & ~(size_t) 63;
        snap[side] += (be->dev->snapshot_bytes(be, st) + 63) & ~(size_t) 63;
    }
    return PI_OK;
}

/* The parts of group g's blocks on one side. */
static int alloc_pool(pi__core *e, int32_t g, int32_t side, pi_error *err)
{
    pi__backend *be = pi__backend_at(e->be, side);
    size_t bytes = pool_bytes(e, g, side);
    if (!bytes) return PI_OK; /* no layers there, or no snapshots */
    void *p = e->pool[g][side] = be->dev->alloc(be, bytes);
    if (!p)
        return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of %s cache: lower kv-cache-tokens or ctx-size", bytes >> 20,
                        e->gp[g].spec.name);
    if (e->cfg.kv_commit) be->dev->commit(be, p, bytes);
    return PI_OK;
}

static int alloc_pools(pi__core *e, pi_error *err)
{
    pi__group_spec spec[PI__MAX_GROUPS];
    int rc = PI_OK;
    for (int32_t i = 0; i < e->m->n_groups; i++) {
        spec[i] = e->gp[i].spec;
        for (int32_t side = 0; side < PI__N_SIDES && !rc; side++) rc = alloc_pool(e, i, side, err);
    }
    if (rc) return rc;
    size_t at[PI__MAX_GROUPS][PI__N_SIDES] = {0};
    for (int32_t i = 0; i < e->m->n_kv; i++) {
        pi__kv_layer *kv = &e->m->kv[i];
        kv->base = (char *) e->pool[kv->group][kv->place] + at[kv->group][kv->place];
        kv->stride = e->gp[kv->group].block_bytes[kv->place];
        at[kv->group][kv->place] += pi__kv_bytes(e, kv);
    }
    rc = alloc_states(e, err);
    if (!rc) rc = pi__cache_init(&e->cache, spec, e->m->n_groups, e->lim.max_seqs, e->longest, err);
    e->cache_ready = rc == PI_OK;
    e->cache.place = pi__place;
    e->cache.place_ud = e;
    return rc;
}

/* tokenizer.ggml.suppress_tokens: placeholders of images and the like. */
static int collect_suppressed(pi__core *e, pi_error *err)
{
    const char *key = "tokenizer.ggml.suppress_tokens";
    const pi__gguf_kv *kv = pi__gguf_find(e->g, key);
    if (!kv) return PI_OK;
    if (kv->type != PI__GGUF_ARR || kv->arr_type > PI__GGUF_I32 || kv->n > (uint64_t) e->m->n_vocab)
        return pi__fail(err, PI_EFORMAT, "metadata %s is not an array of token ids", key);
    if (!kv->n) return PI_OK;
    e->suppress = pi__calloc((size_t) kv->n, sizeof *e->suppress);
    if (!e->suppress) return pi__fail_mem(err, "the vocabulary");
    for (uint64_t i = 0; i < kv->n; i++) {
        int64_t id = pi__gguf_elem_i64(kv, i);
        if (id < 0 || id >= e->m->n_vocab)
            return pi__fail(err, PI_EFORMAT, "metadata %s has token %lld, of %d", key, (long long) id, e->m->n_vocab);
        e->suppress[e->n_suppress++] = (int32_t) id;
    }
    return PI_OK;
}

static int collect_text(pi__core *e, pi_error *err)
{
    int rc = pi__vocab_load(&e->vocab, e->g, err);
    if (rc) return rc;
    int32_t n = pi__vocab_size(e->vocab);
    if (n > e->m->n_vocab)
        return pi__fail(err, PI_EFORMAT, "tokenizer.ggml.tokens has %d entries, token_embd.weight only %d rows", n,
                        e->m->n_vocab);
    for (int pass = 0; pass < 2; pass++) {
        int32_t k = 0;
        for (int32_t id = 0; id < n; id++)
            if (pi__vocab_is_eog(e->vocab, id)) {
                if (pass) e->eog[k] = id;
                k++;
            }
        if (pass) break;
        e->n_eog = k;
        e->eog = pi__calloc((size_t) k, sizeof *e->eog);
        if (!e->eog) return pi__fail_mem(err, "the vocabulary");
    }
    rc = collect_suppressed(e, err);
    if (rc) return rc;
    e->n_turn_ids = pi__vocab_turn_starts(e->vocab, e->turn_id, PI__MAX_TURNS);
    pi__str t;
    rc = pi__gguf_get_str(e->g, "tokenizer.chat_template", &t, err);
    if (rc || !t.p) return rc;
    e->chat_template = pi__strndup(t.p, t.n);
    return e->chat_template ? PI_OK : pi__fail_mem(err, "the chat template");
}

static void free_pools(pi__core *e)
{
    for (int32_t side = 0; e->be && side < PI__N_SIDES; side++) {
        pi__backend *be = pi__backend_at(e->be, side);
        for (int32_t i = 0; i < PI__MAX_GROUPS; i++)
            if (e->pool[i][side]) be->dev->free(be, e->pool[i][side], pool_bytes(e, i, side));
        if (e->slots[side]) be->dev->free(be, e->slots[side], states_bytes(e, side));
    }
}

static void core_free(pi__core *e)
{
    const pi__device_fns *op = e->be ? e->be->dev : NULL;
    pi__tiers_close(e); /* its loads write into the pools */
    if (e->cache_ready) pi__cache_destroy(&e->cache);
    free_pools(e);
    if (e->rows != e->logits && e->rows) op->host_free(e->be, e->rows, logits_bytes(e));
    if (e->logits) op->free(e->be, e->logits, logits_bytes(e));
    if (e->found) op->host_free(e->be, e->found, pi__picks_bytes(e));
    pi__free(e->skip);
    if (e->drafter != e->m) pi__model_free(e->drafter);
    pi__model_free(e->m);
    if (op) op->destroy(e->be);
    pi__vocab_free(e->vocab);
    pi__places_free(e->places);
    pi__gguf_close(e->g);
    pi__gguf_close(e->draft_g);
    pi__sampler_scratch_free(e->scratch);
    pi__free(e->eog);
    pi__free(e->suppress);
    pi__free(e->chat_template);
    pi__batch_destroy(&e->batch);
    pi__batch_destroy(&e->draft_batch);
    pi__free(e->draft_hidden);
    pi__free(e->draft_seq);
    pi__free(e->save);
    pi__free(e->saving);
    pi__free(e->step_seq);
    pi__free(e->row_seq);
    pi__free(e->raw_row);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->changed);
    pi__free(e);
}

static void log_progress(void *ud, float done)
{
    pi__core *e = ud;
    pi__logf(&e->cfg.log, PI_LOG_DEBUG, "loading: %.0f %%", (double) done * 100);
}

static int open_all(pi__core *e, const pi__config *c, pi_error *err)
{
    int rc = pi__core_prepare(e, c, err);
    if (!rc) e->m->want_digest = e->cfg.prefix_dir != NULL;
    if (!rc) e->m->check_tensors = e->cfg.check_tensors;
    if (!rc && e->drafter) e->drafter->check_tensors = e->cfg.check_tensors;
    if (!rc) rc = collect_text(e, err);
    if (!rc) rc = pi__core_size(e, NULL, err);
    if (!rc) rc = pi__fit_check(e, err);
    if (!rc) rc = e->be->dev->reserve(e->be, &e->lim, err);
    if (!rc) rc = pi__model_load(e->m, &e->lim, log_progress, e, err);
    if (!rc && e->drafter && e->drafter != e->m) rc = pi__model_load(e->drafter, &e->lim, NULL, NULL, err);
    if (!rc) rc = e->be->dev->finish(e->be, err); /* uploads report nothing else */
    if (!rc) rc = alloc_pools(e, err);
    if (!rc) rc = alloc_batch(e, err);
    if (!rc) rc = pi__tiers_open(e, err);
    if (!rc) rc = pi__sampler_scratch_create(&e->scratch, e->m->n_vocab, err);
    if (rc) return rc;
    e->logits = e->be->dev->alloc(e->be, logits_bytes(e));
    e->rows = e->be->far ? e->be->dev->host_alloc(e->be, logits_bytes(e)) : e->logits;
    if (!e->logits || !e->rows) return pi__fail_mem(err, "logits");
    rc = alloc_picks(e, err);
    if (!rc) rc = e->be->dev->finish(e->be, err); /* what alloc and upload do not tell */
    if (rc) return rc;
    pi__update_stats(e);
    pi__gguf_close(e->g); /* what is needed of it was copied */
    pi__gguf_close(e->draft_g);
    e->g = e->draft_g = NULL;
    e->cfg.model = e->cfg.prefix_dir = e->cfg.draft_model = NULL;
    e->cfg.cpu.isa = e->cfg.device = NULL;
    e->cfg.places.override = e->cfg.override_kv = NULL;
    if (pthread_create(&e->thread, NULL, step_thread, e)) return pi__fail(err, PI_ENOMEM, "cannot start the step thread");
    e->thread_started = true;
    return PI_OK;
}

int pi__core_open(pi__core **out, const pi__config *c, pi_error *err)
{
    *out = NULL;
    pi__core *e = pi__calloc(1, sizeof *e);
    if (!e) return pi__fail_mem(err, "the engine");
    pthread_mutex_init(&e->lock, NULL);
    (void) pi__cond_init(&e->wake); /* fails on no system that we know of */
    (void) pi__cond_init(&e->changed);
    int rc = open_all(e, c, err);
    if (rc) {
        pi_error why; /* a device that is dead has no memory either: then say that */
        if (rc == PI_ENOMEM && e->be && e->be->dev->finish(e->be, &why) == PI_EDEVICE)
            rc = pi__fail(err, PI_EDEVICE, "%s", why.msg);
        core_free(e);
        return rc;
    }
    *out = e;
    return PI_OK;
}

void pi__core_close(pi__core *e)
{
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (e->thread_started) pthread_join(e->thread, NULL);
    core_free(e);
}

/* ------------------------------------------------------------------------------------------------------------- facts */

int pi__core_state(const pi__core *e) { return atomic_load(&((pi__core *) e)->state); }
const pi__vocab *pi__core_vocab(const pi__core *e) { return e->vocab; }

int pi__core_info(const pi__core *e, pi_info *out)
{
    pi_info i = {
        .size = out->size, .arch = e->m->arch->name, .name = e->m->name, .type_desc = e->m->desc,
        .n_params = e->m->n_params, .file_bytes = e->m->file_bytes, .n_vocab = (uint32_t) e->m->n_vocab,
        .n_ctx_train = (uint32_t) e->m->n_ctx_train, .n_embd = (uint32_t) e->m->n_embd, .n_layer = (uint32_t) e->m->n_layer,
        .ctx_size = (uint32_t) e->ctx, .n_threads = (uint32_t) e->be->dev->n_threads(e->be),
        .device = e->be->dev->describe(e->be), .bos = pi__vocab_bos(e->vocab), .eos = pi__vocab_eos(e->vocab),
        .chat_template = e->chat_template ? e->chat_template : "",
    };
    memcpy(out, &i, out->size < sizeof i ? out->size : sizeof i);
    return PI_OK;
}

int pi__core_stats(const pi__core *ce, pi_stats *out)
{
    pi__core *e = (pi__core *) ce;
    pi_stats s = {
        .size = out->size, .n_waiting = e->st.n_waiting, .n_running = e->st.n_running, .n_finished = e->st.n_finished,
        .n_preempted = e->st.n_preempted, .n_steps = e->st.n_steps, .prompt_tokens = e->st.prompt_tokens,
        .cached_tokens = e->st.cached_tokens, .generated_tokens = e->st.generated_tokens,
        .n_groups = (uint32_t) e->cache.n_groups, .last_step_ms = (double) e->st.last_step_us * 1e-3,
    };
    s.n_drafted = e->st.n_drafted;
    s.n_accepted = e->st.n_accepted;
    s.n_prefix_hits = e->st.n_prefix_hits;
    s.n_snapshots_saved = e->st.n_saved;
    s.n_snapshots_restored = e->st.n_restored;
    s.disk_entries = e->st.disk_entries;
    s.disk_bytes = e->st.disk_bytes;
    s.disk_reads = e->st.disk_reads;
    s.disk_writes = e->st.disk_writes;
    s.host_entries = e->st.host_entries;
    s.host_bytes = e->st.host_bytes;
    s.host_reads = e->st.host_reads;
    s.host_writes = e->st.host_writes;
    for (uint32_t i = 0; i < s.n_groups; i++) {
        s.group_name[i] = e->gp[i].spec.name;
        s.group[i].n_blocks = (uint64_t) e->gp[i].spec.n_blocks;
        s.group[i].n_free = e->st.group[i].n_free;
        s.group[i].n_cached = e->st.group[i].n_cached;
        s.group[i].n_used = s.group[i].n_blocks - s.group[i].n_free;
        s.group[i].n_shared = e->st.group[i].n_shared;
        s.group[i].n_evicted = e->st.group[i].n_evicted;
        s.group[i].committed_bytes = (e->cfg.kv_commit ? s.group[i].n_blocks : e->st.group[i].n_written) *
                                     pi__block_bytes(e, (int32_t) i);
    }
    memcpy(out, &s, out->size < sizeof s ? out->size : sizeof s);
    return PI_OK;
}

/* Waits for `changed` until the moment (timeout_ms from the start, -1: for ever). false: time is up. Lock held. */
static bool wait_changed(pi__core *e, double until)
{
    if (until < 0) return pthread_cond_wait(&e->changed, &e->lock) == 0;
    double left = until - pi__now_ms();
    if (left <= 0) return false;
    struct timespec t = pi__deadline(left);
    pthread_cond_timedwait(&e->changed, &e->lock, &t);
    return true;
}

int pi__core_drain(pi__core *e, int timeout_ms)
{
    double until = timeout_ms < 0 ? -1 : pi__now_ms() + timeout_ms;
    pthread_mutex_lock(&e->lock);
    e->draining = true;
    int ready = PI_STATE_READY;
    atomic_compare_exchange_strong(&e->state, &ready, PI_STATE_DRAINING);
    bool in_time = true;
    while (e->n_live && in_time) in_time = wait_changed(e, until);
    int rc = e->n_live ? PI_ETIMEDOUT : PI_OK;
    pthread_mutex_unlock(&e->lock);
    return rc;
}

void pi__core_cache_clear(pi__core *e, const char *salt)
{
    pthread_mutex_lock(&e->lock);
    while (e->clear_done < e->clear_asked) pthread_cond_wait(&e->changed, &e->lock); /* another caller's */
    uint64_t ticket = ++e->clear_asked;
    e->clear_salt = salt;
    e->poke = true;
    pthread_cond_signal(&e->wake);
    while (e->clear_done < ticket) pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}
