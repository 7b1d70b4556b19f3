/* The engine: accepting jobs, and the loop of the step thread, which calls the modules in order.
 *
 * Two domains: see core_impl.h. A job crosses over once, through the inbox; a cancel is a flag on the job. The step
 * thread's memory is allocated before open returns.
 *
 *     core_open  ->  core, setup (fit, memory)           open, close, facts
 *     core_lora  ->  loras                               adapters
 *     core  ->  sched  ->  cache                         the plan of a step
 *           ->  runner  ->  drafting, rows, snapshots    the tokens of a step
 *           ->  tiering  ->  offload                     transfers between the pools and lower tiers
 *
 * Lower modules do not know the core: they report to it through callbacks. */
#include "engine/core.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/profile.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "engine/core_impl.h"
#include "engine/drafters.h"
#include "engine/plan.h"

/* ---------------------------------------------------------------------------------------------------------- submit */

void pi__core_poke(void *ud)
{
    pi__core *e = ud;
    pthread_mutex_lock(&e->lock);
    e->poke = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

void pi__seq_cancel(pi__core *e, pi__seq *s)
{
    atomic_store(&s->cancel, true);
    pi__core_poke(e);
}

/* Validates a job for a bidirectional (encoder) model. */
static int validate_bidirectional(const pi__core *e, const pi__job *j, pi_error *err)
{
    const int32_t most = e->setup.mem.lim.max_tokens;
    if (!j->params.hidden)
        return pi__fail(err, PI_EUNSUPPORTED,
                        "a %s model generates nothing: ask for vectors, or scores (option pooling)",
                        e->setup.m->arch->name);
    if (j->n_prompt > (size_t) most)
        return pi__fail(err, PI_ETOOBIG,
                        "the prompt has %zu tokens, a step at most %d, and a %s model needs it "
                        "in one step: raise ubatch-size to %zu",
                        j->n_prompt, most, e->setup.m->arch->name, j->n_prompt);
    return PI_OK;
}

/* Validates the images of a job. */
static int validate_images(const pi__core *e, const pi__job *j, pi_error *err)
{
    const pi__encoder *en = e->setup.encoder;
    const pi__limits *lim = &e->setup.mem.lim;
    if (!j->n_media) return PI_OK;
    if (!en)
        return pi__fail(err, PI_EUNSUPPORTED, "the engine reads no images: give its vision model (option mmproj)");
    int rc = pi__images_check(j, err);
    for (int32_t i = 0; i < j->n_media && !rc; i++) {
        const int32_t n = j->media[i].n, others = lim->max_seqs - 1;
        if (n > e->setup.n_image_rows)
            rc = pi__fail(err, PI_ETOOBIG, "image %d has %d tokens, and at most %d fit: raise mmproj-cache, or lower "
                          "image-max-tokens", i, n, e->setup.n_image_rows);
        else if (en->attention != PI__SPAN_CAUSAL && n > lim->max_tokens - others)
            rc = pi__fail(err, PI_ETOOBIG, "image %d has %d tokens, which a %s model needs in one step of at most %d, "
                          "beside %d answers: raise ubatch-size to %d, or lower parallel", i, n,
                          e->setup.m->arch->name, lim->max_tokens, others, n + others);
    }
    return rc;
}

static int validate_job(const pi__core *e, const pi__job *j, int32_t *max_total, int *drafter, pi_error *err)
{
    if (!j->n_prompt) return pi__fail(err, PI_EINVAL, "the prompt is empty");
    int32_t longest = e->setup.mem.longest, gen = j->params.max_tokens;
    const char *limit = longest < e->setup.mem.ctx ? "the cache" : "the context";
    if (j->n_prompt + (gen != 0) > (size_t) longest)
        return pi__fail(err, PI_ETOOBIG, "the prompt has %zu tokens; %s holds %d, so at most %d fit", j->n_prompt,
                        limit, longest, longest - (gen != 0));
    int rc = e->setup.m->bidirectional ? validate_bidirectional(e, j, err) : PI_OK;
    if (!rc) rc = validate_images(e, j, err);
    if (rc) return rc;
    int32_t n = (int32_t) j->n_prompt;
    for (int32_t i = 0; i < n; i++)
        if (j->prompt[i] < 0 || j->prompt[i] >= e->setup.m->n_vocab)
            return pi__fail(err, PI_EINVAL, "prompt token %d is %d; the vocabulary has 0 to %d", i, j->prompt[i],
                            e->setup.m->n_vocab - 1);
    *max_total = gen < 0 || gen > longest - n ? longest : n + gen;
    return pi__drafter_of(&e->setup, j->params.spec, drafter, err);
}

/* Warns if max_tokens does not fit: the answer then ends with the context. */
static void log_shortened(const pi__core *e, const pi__seq *s)
{
    const int32_t longest = e->setup.mem.longest, fit = s->max_total - s->n_prompt;
    const bool cache = longest < e->setup.mem.ctx;
    if (s->params.max_tokens <= fit) return;
    pi__logf(&e->setup.cfg.log, PI_LOG_WARN, "max-tokens: of %d tokens, %d fit after a prompt of %d: "
             "%s holds %d (%s)", s->params.max_tokens, fit, s->n_prompt, cache ? "the cache" : "the context", longest,
             cache ? "kv-cache-tokens" : "ctx-size");
}

/* Admission control: returns an error if n more jobs cannot be accepted. Call with the lock held. */
static int check_admission(const pi__core *e, size_t n, pi_error *err)
{
    if (e->state == PI_STATE_FAILED)
        return pi__fail(err, PI_ECLOSED, "the engine failed and accepts no requests: close it: %s", e->failure);
    if (e->closing || e->draining) return pi__fail(err, PI_ECLOSED, "the engine is closing and accepts no requests");
    if (n > 1 && n > (size_t) e->setup.cfg.max_queue)
        return pi__fail(err, PI_ETOOBIG,
                        "max-queue: %zu answers do not fit the queue of %d: raise it, or request fewer", n,
                        e->setup.cfg.max_queue);
    if (e->n_queued + (int64_t) n > e->setup.cfg.max_queue)
        return pi__fail(err, PI_EBUSY, "max-queue: the queue has %d requests of at most %d: try again later",
                        e->n_queued, e->setup.cfg.max_queue);
    return PI_OK;
}

/* Resolves the adapters of all n jobs into s[i]->lora and makes the jobs their users until they end. On error the jobs
 * use no adapter. Call with the lock held. */
static int use_adapters(pi__core *e, const pi__job *j, pi__seq **s, size_t n, pi_error *err)
{
    int rc = PI_OK;
    size_t made = 0;
    for (; made < n && !rc; made += !rc) rc = pi__loras_use(&e->loras, &j[made].params, &s[made]->lora, err);
    for (size_t i = 0; i < made && rc; i++) pi__loras_release(&s[i]->lora);
    return rc;
}

/* Appends all n sequences to the inbox. Call with the lock held. */
static void enqueue_jobs(pi__core *e, pi__seq **s, size_t n)
{
    if (s[0]->sample_group) s[0]->sample_group->root = pi__block_root_private(e->n_submitted);
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

/* Makes n > 1 sequences with params.cache false a sample group: they share prefixes only with each other. */
static int make_sample_group(pi__seq **s, size_t n, pi_error *err)
{
    if (n < 2 || s[0]->params.cache) return PI_OK;
    pi__sample_group *f = pi__calloc(1, sizeof *f);
    if (!f) return pi__fail_mem(err, "the request");
    f->n_left = n;
    for (size_t i = 0; i < n; i++) s[i]->sample_group = f;
    return PI_OK;
}

/* Returns the sparse span of a prompt. The last two blocks of the prompt stay dense: the last one may be incomplete,
 * and the logits that are read come from these blocks. */
static pi__sparse_span sparse_span(const pi__config *c, int32_t n_prompt)
{
    enum { STEP = PI__SPARSE_BLOCK, DENSE_TAIL = 2 * STEP };
    const int32_t from = (int32_t) (((int64_t) c->sparse_from + STEP - 1) / STEP * STEP);
    const int32_t end = (int32_t) (((int64_t) n_prompt + STEP - 1) / STEP * STEP - DENSE_TAIL);
    if (!(c->sparsity > 0)) return (pi__sparse_span) {0};
    return (pi__sparse_span) {from, end > from ? end : from, STEP};
}

int pi__core_submit(pi__core *e, const pi__job *j, size_t n, pi__seq **out, pi_error *err)
{
    size_t made = 0;
    int rc = PI_OK;
    double now = pi__now_ms();
    for (; made < n && !rc; made += !rc) {
        int32_t max_total = 0;
        int drafter;
        rc = validate_job(e, &j[made], &max_total, &drafter, err);
        if (!rc) rc = pi__seq_create(&j[made], max_total, e->setup.m->n_vocab, e->vocab, &out[made], err);
        if (!rc) out[made]->t.submit = now, out[made]->spec.kind = drafter;
        if (!rc) out[made]->sparse = sparse_span(&e->setup.cfg, out[made]->n_prompt);
        if (!rc) out[made]->whole = e->setup.m->bidirectional;
        if (!rc && out[made]->images.n) out[made]->whole_images = e->setup.encoder->attention != PI__SPAN_CAUSAL;
        if (!rc && out[made]->whole_images) out[made]->sparse = (pi__sparse_span) {0};
        if (!rc) out[made]->skip_groups = pi__drafter_skip_groups(&e->setup, drafter);
    }
    if (!rc) rc = make_sample_group(out, n, err);
    if (!rc) {
        for (size_t i = 0; i < n; i++)
            out[i]->cacheable = (out[i]->params.cache || out[i]->sample_group) && e->setup.cfg.prefix_cache &&
                                !out[i]->whole;
        pthread_mutex_lock(&e->lock);
        rc = check_admission(e, n, err);
        if (!rc) rc = use_adapters(e, j, out, n, err);
        if (!rc) enqueue_jobs(e, out, n);
        pthread_mutex_unlock(&e->lock);
    }
    if (!rc) {
        log_shortened(e, out[0]);
        return PI_OK;
    }
    if (made) pi__free(out[0]->sample_group);
    for (size_t i = 0; i < n; i++) {
        if (i < made) pi__seq_free(out[i]);
        out[i] = NULL;
    }
    return rc;
}

/* ----------------------------------------------------------------------------------------------------- step thread */

void pi__core_update_stats(pi__core *e)
{
    e->stats.n_waiting = (unsigned) e->sched.waiting.n;
    e->stats.n_running = (unsigned) e->sched.running.n;
    pi__stats_pools(&e->stats, &e->cache);
    pi__tiering_stats(&e->tiering);
    pi__stats_blocks(&e->stats, e->setup.be);
    const uint64_t tier = e->plan.host_cache_bytes, in_tier = e->stats.host_bytes;
    pi__reserve_memory(&e->reserved, pi__plan_unwritten(&e->setup, &e->cache, &e->draft_cache) +
                       (tier > in_tier ? tier - in_tier : 0));
}

static const char *miss_reason(const pi__core *e, const pi__seq *s)
{
    if ((!s->params.cache && !s->n_cached) || !e->setup.cfg.prefix_cache) return "prefix cache disabled";
    if (s->whole) return "attention is bidirectional";
    const int32_t bs = e->cache.reuse_block, most = (s->n_prompt - 1) / bs * bs, from = s->params.logits_from;
    if (s->n_cached >= most) return "";
    if (s->params.logits == PI__LOGITS_ALL && s->n_cached >= from / bs * bs)
        return from ? "logits of the remaining prompt requested" : "logits of all prompt tokens requested";
    if (s->n_matched > s->n_cached) return "a cache group had dropped its part of the prefix";
    return s->n_cached ? "the rest was not in the cache" : "not in the cache";
}

/* Removes s from its sample group. The last sequence to leave drops the prefixes of the group and frees it. */
static void leave_sample_group(pi__core *e, pi__seq *s)
{
    if (!s->sample_group) return;
    pi__assert(s->sample_group->n_left > 0);
    if (--s->sample_group->n_left) return;
    pi__cache_clear(&e->cache, &s->sample_group->root.tenant);
    pi__cache_clear(&e->draft_cache, &s->sample_group->root.tenant);
    pi__free(s->sample_group);
}

void pi__core_finish(void *ud, pi__seq *s, int reason, int code, const char *msg)
{
    pi__core *e = ud;
    const bool waited = s->row < 0;
    bool broken = code == PI_EDEVICE || code == PI_EINTERNAL || code == PI_ENOMEM || e->state == PI_STATE_FAILED;
    if (!waited && !broken) pi__drafters_keep(&e->drafting, s);
    pi__sched_remove(&e->sched, s, !broken);
    if (waited) {
        pthread_mutex_lock(&e->lock);
        e->n_queued--; /* on_done may submit the next job */
        pthread_mutex_unlock(&e->lock);
    }
    leave_sample_group(e, s);
    double now = pi__now_ms(), start = s->t.start ? s->t.start : now, first = s->t.first ? s->t.first : now;
    pi__job_end end = {
        .reason = reason, .code = code, .msg = msg, .prompt_tokens = (uint32_t) s->n_prompt,
        .cached_tokens = (uint32_t) s->n_cached, .generated_tokens = (uint32_t) (s->n_tokens - s->n_prompt),
        .n_preempted = s->n_preempted, .n_drafted = s->n_drafted, .n_accepted = s->n_accepted,
        .miss_reason = s->t.start ? miss_reason(e, s) : "never started",
        .queue_ms = start - s->t.submit, .prefill_ms = s->t.start ? first - start : 0,
        .decode_ms = s->t.first ? s->t.last - s->t.first : 0,
    };
    e->stats.n_finished++; /* on_done sees counters that include this job */
    pi__core_update_stats(e);
    pthread_mutex_lock(&e->lock);
    e->lora_work |= pi__loras_release(&s->lora);
    pthread_mutex_unlock(&e->lock);
    s->call.on_done(s->call.ud, &end);
    pi__seq_release(s);
    pthread_mutex_lock(&e->lock);
    e->n_live--;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Moves new jobs from the inbox to the waiting list. Call with the lock held. */
static void take_inbox(pi__core *e)
{
    while (e->inbox_head) {
        pi__seq *s = e->inbox_head;
        e->inbox_head = s->next;
        s->next = NULL;
        pi__sched_add(&e->sched, s);
    }
    e->inbox_tail = NULL;
}

/* True if s was cancelled or its deadline has passed. */
static bool is_due(const pi__seq *s, double now)
{
    return atomic_load(&s->cancel) || (s->params.deadline_ms > 0 && now - s->t.submit > s->params.deadline_ms);
}

/* Ends the sequences of l that were cancelled or passed their deadline. code not PI_OK: ends all with that error. */
static void reap_seqs(pi__core *e, pi__seq_list *l, int code, const char *msg)
{
    double now = pi__now_ms();
    for (pi__seq *s = l->head, *next; s; s = next) {
        next = s->next;
        if (code) pi__core_finish(e, s, PI_FINISH_ERROR, code, msg);
        else if (!is_due(s, now)) continue;
        else if (atomic_load(&s->cancel)) pi__core_finish(e, s, PI_FINISH_CANCEL, PI_ECANCELED, "canceled");
        else pi__core_finish(e, s, PI_FINISH_ERROR, PI_ETIMEDOUT, "the request's deadline passed");
    }
}

/* Returns the memory of recurrent states, and of cache blocks without a prefix, to the system. Call while no sequence
 * runs. */
static void trim_pools(pi__core *e)
{
    pi__memory_trim(&e->setup.mem, &e->cache);
    if (e->setup.draft_model) pi__memory_trim(&e->setup.draft_model_mem, &e->draft_cache);
    pi__core_update_stats(e);
}

/* Polling intervals, ms: of copies, of deadlines and masks; idle time after which pools are trimmed. */
enum { COPY_MS = 1, LOOK_MS = 10, TRIM_MS = 500 };

/* Sleeps until there is work, or until a polling interval has passed. Trims the pools after TRIM_MS without work. Call
 * with the lock held. */
static void wait_for_work(pi__core *e)
{
    bool trimmed = e->setup.cfg.kv_commit, busy = pi__tiering_busy(&e->tiering, e->sched.waiting.n);
    const bool looks = e->sched.waiting.n || e->sched.running.n; /* running sequences wait for masks */
    while (!e->inbox_head && !e->poke && !e->closing && !e->lora_work) {
        if (trimmed && !looks && !busy) {
            pthread_cond_wait(&e->wake, &e->lock);
            continue;
        }
        struct timespec t = pi__deadline(busy ? COPY_MS : looks ? LOOK_MS : TRIM_MS);
        int rc = pthread_cond_timedwait(&e->wake, &e->lock, &t);
        if (looks || busy) return;
        if (rc != ETIMEDOUT) continue;
        trim_pools(e);
        trimmed = true;
    }
}

/* Executes a cache_clear request. Call with the lock held. */
static void clear_prefixes(pi__core *e)
{
    const uint64_t salted = pi__tenant_of(e->clear_salt), *tenant = e->clear_salt ? &salted : NULL;
    pi__cache_clear(&e->cache, tenant);
    pi__tiering_clear(&e->tiering, tenant);
    pi__drafters_clear(&e->drafting, tenant);
    pi__cache_clear(&e->draft_cache, tenant);
    pi__core_update_stats(e);
}

/* After a device error the device's memory is not reliable: sets the engine's state to FAILED. */
static void note_failure(pi__core *e, int code, const char *msg)
{
    if (code != PI_EDEVICE) return;
    pthread_mutex_lock(&e->lock);
    snprintf(e->failure, sizeof e->failure, "%s", msg);
    e->state = PI_STATE_FAILED;
    pthread_mutex_unlock(&e->lock);
    pi__logf(&e->setup.cfg.log, PI_LOG_ERROR, "the engine failed: %s", msg);
}

/* Ends every remaining sequence of the step with this error. */
static void fail_step(pi__core *e, const pi__step_plan *plan, int code, const char *msg)
{
    note_failure(e, code, msg);
    for (int32_t i = 0; i < plan->n_seqs; i++)
        if (plan->seq[i]) pi__core_finish(e, plan->seq[i], PI_FINISH_ERROR, code, msg);
}

/* Ends the measurement of a step: its time goes into the statistics and the averages that limit prefill (pace.h).
 * n_decode: all tokens that are not prefill, drafts included. The next measurement begins. */
static void count_step(pi__core *e, int32_t n_prefill, int32_t n_decode)
{
    const double now = pi__now_ms(), ms = now - e->step_start;
    e->step_start = now;
    pi__pace_measure(&e->pace, n_prefill, n_decode, ms);
    pi__stats_step(&e->stats, ms);
    pi__core_update_stats(e);
}

static void run_step(pi__core *e, pi__step_plan *plan)
{
    const int32_t n_prefill = plan->n_prefill, n_decode = plan->n_tokens - n_prefill;
    pi_error err = {0};
    e->step_start = pi__now_ms();
    int rc = pi__runner_step(&e->runner, plan, &err);
    if (rc) fail_step(e, plan, rc, err.msg);
    if (!e->runner.flight) count_step(e, n_prefill, n_decode);
}

/* Computes the next part of an image. step_ms: duration of the step that decoded just now; the sequences of that step
 * wait until the part is complete. 0 = no sequence decodes. An error ends the sequences that wait for the image. */
static void encode_image(pi__core *e, double step_ms)
{
    pi_error err = {0};
    pi__image_part part = {.max_work = step_ms > 0 ? pi__pace_image_limit(&e->pace, step_ms) : 0};
    const double start = pi__now_ms();
    const int rc = pi__media_step(&e->media, &part, &err);
    pi__pace_measure_image(&e->pace, part.work, pi__now_ms() - start);
    if (!rc) return;
    note_failure(e, rc, err.msg);
    for (pi__seq *s = e->sched.running.head, *next; s; s = next) {
        next = s->next;
        if (pi__media_failed(&e->media, s)) pi__core_finish(e, s, PI_FINISH_ERROR, rc, err.msg);
    }
}

/* True if the step thread has nothing to do except the next tokens of running sequences. */
static bool is_quiet(pi__core *e)
{
    const double now = pi__now_ms();
    pthread_mutex_lock(&e->lock);
    bool quiet = !e->inbox_head && !e->lora_work && !e->poke && !e->closing && e->clear_asked == e->clear_done;
    pthread_mutex_unlock(&e->lock);
    quiet = quiet && !pi__media_busy(&e->media);
    for (const pi__seq *s = e->sched.running.head; s && quiet; s = s->next) quiet = !is_due(s, now);
    for (const pi__seq *s = e->sched.waiting.head; s && quiet; s = s->next) quiet = !is_due(s, now);
    return quiet;
}

/* Completes the step in flight and ends its measurement. If the step thread has no other work, queues a lookahead step
 * before it waits; the lookahead step is then in flight. Other work is done only while no step is in flight. */
static void complete_step(pi__core *e)
{
    pi__step_plan *plan = e->runner.flight;
    const int32_t n_decode = plan->n_tokens;
    pi_error err = {0};
    pi__step_plan *next = is_quiet(e) ? pi__schedule_ahead(&e->sched) : NULL;
    if (next && next->n_seqs) pi__runner_ahead(&e->runner, next);
    int rc = pi__runner_complete(&e->runner, &err);
    if (rc) fail_step(e, plan, rc, err.msg);
    count_step(e, 0, n_decode);
    pi__tiering_poll(&e->tiering);
}

void *pi__core_step_thread(void *arg)
{
    pi__core *e = arg;
    bool idle = true;
    for (;;) {
        while (e->runner.flight) complete_step(e);
        pthread_mutex_lock(&e->lock);
        if (idle) wait_for_work(e);
        take_inbox(e);
        e->poke = false;
        bool closing = e->closing, clear = e->clear_asked > e->clear_done, lora_work = e->lora_work;
        e->lora_work = false;
        if (clear) {
            clear_prefixes(e);
            e->clear_done = e->clear_asked;
            pthread_cond_broadcast(&e->changed);
        }
        pthread_mutex_unlock(&e->lock);
        if (lora_work) pi__loras_serve(&e->loras, e->setup.be, &e->lock, &e->changed);

        bool failed = e->state == PI_STATE_FAILED;
        int code = closing || failed ? PI_ECLOSED : PI_OK;
        reap_seqs(e, &e->sched.running, code, failed ? "the engine failed" : "the engine is closing");
        reap_seqs(e, &e->sched.waiting, code, failed ? "the engine failed" : "the engine is closing");
        if (closing) return NULL;
        pi__tiering_poll(&e->tiering);
        e->sched.max_prefill = pi__pace_limit(&e->pace, pi__media_busy(&e->media));
        e->runner.mask_steps = PI__MASK_STEPS;
        pi__step_plan *plan = pi__schedule(&e->sched, e->setup.mem.lim.max_tokens);
        pthread_mutex_lock(&e->lock);
        /* before the step: admitted sequences no longer count in the queue */
        e->n_queued = e->n_live - e->sched.running.n;
        pthread_mutex_unlock(&e->lock);
        const bool decodes = plan->n_tokens > plan->n_prefill;
        const double start = pi__now_ms();
        if (plan->n_seqs) run_step(e, plan);
        while (pi__media_busy(&e->media) && e->runner.flight) complete_step(e);
        const bool encodes = pi__media_busy(&e->media);
        if (encodes) encode_image(e, decodes ? pi__now_ms() - start : 0);
        idle = plan->n_tokens == 0 && !encodes;
        if (idle) pi__profile_idle(e->setup.be->profile);
        pi__core_update_stats(e);
    }
}

/* -------------------------------------------------------------------------------------------- drain, events, clear */

/* Waits for `changed` until time `until`, ms; negative = forever. False = time is up. Call with the lock held. */
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

int pi__core_on_cache_event(pi__core *e, pi_cache_event_fn fn, void *ud, pi_error *err)
{
    int rc;
    /* before the first request, the step thread does not use the cache without the lock */
    pthread_mutex_lock(&e->lock);
    if (e->cache.index) rc = pi__fail(err, PI_EBUSY, "a cache event listener is already registered");
    else if (e->n_submitted)
        rc = pi__fail(err, PI_EBUSY, "register the cache event listener before the first request");
    else rc = pi__cache_listen(&e->cache, pi__drafter_skip_groups(&e->setup, e->setup.cfg.spec), fn, ud, err);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

void pi__core_cache_clear(pi__core *e, const char *salt)
{
    pthread_mutex_lock(&e->lock);
    while (e->clear_done < e->clear_asked) pthread_cond_wait(&e->changed, &e->lock); /* another caller's clear */
    uint64_t ticket = ++e->clear_asked;
    e->clear_salt = salt;
    e->poke = true;
    pthread_cond_signal(&e->wake);
    while (e->clear_done < ticket) pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}
