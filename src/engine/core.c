/* The engine: opening, closing, accepting jobs, and the loop of the step thread, which calls the modules in order.
 *
 * Two domains. Callers touch only the data guarded by `lock` (inbox, counters, flags), the atomics, and immutable
 * data. The step thread owns the lists, the cache, the model and the device. A job crosses over once, through the
 * inbox; a cancel is a flag on the job. The step thread's memory is allocated before open returns.
 *
 *     core  ->  setup (fit, memory)                      files, devices, sizes
 *           ->  sched  ->  cache                         the plan of a step
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
#include "base/thread.h"
#include "engine/drafters.h"
#include "engine/fit.h"
#include "engine/pace.h"
#include "engine/runner.h"
#include "engine/sched.h"
#include "engine/setup.h"
#include "engine/tiering.h"

struct pi__core {
    pi__setup setup;           /* config, devices, models, memory */
    pi__vocab *vocab;          /* tokenizer */
    pi__special special;       /* special tokens */
    char *chat_template;       /* text, or NULL */
    pi__grammars *grammars;    /* compiled grammars for this vocabulary */
    pi__gguf_copy *metadata;   /* metadata of the model's file */

    /* step thread only */
    pi__cache cache;           /* block tables and prefixes */
    pi__cache draft_cache;     /* block tables and prefixes of a separate draft model */
    pi__sched sched;           /* queues and plans */
    pi__rows rows;             /* logits rows */
    pi__drafting drafting;     /* drafters */
    pi__snapshots snapshots;   /* snapshots of recurrent states */
    pi__runner runner;         /* runs steps */
    pi__pace pace;             /* limits prefill per step */
    double step_start;         /* start of the step in flight, or end of the step before it, ms */
    pi__tiering tiering;       /* host memory and disk below the pools */
    pi__stats stats;           /* written by the step thread, read by any thread */

    /* shared with callers, under lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;       /* the step thread has something to do */
    pthread_cond_t changed;    /* n_live, state or clear_done changed */
    pi__seq *inbox_head, *inbox_tail; /* submitted, not yet seen by the step thread */
    int32_t n_live;            /* jobs submitted and not ended */
    int32_t n_queued;          /* of n_live, jobs that are not running */
    uint64_t n_submitted;      /* last arrival number */
    bool closing, draining;    /* no more submits */
    char failure[256];         /* reason for PI_STATE_FAILED */
    bool poke;                 /* a cancel or clear is waiting for the step thread */
    uint64_t clear_asked, clear_done; /* cache_clear tickets; at most one is pending */
    const char *clear_salt;    /* pending clear: salt of the tenant, NULL = all tenants */
    pi__loras loras;           /* adapters */
    bool lora_work;            /* an adapter must be placed or freed */
    bool thread_started;       /* thread must be joined */
    pthread_t thread;          /* runs steps */
    atomic_int state;          /* PI_STATE_* */
};

/* ---------------------------------------------------------------------------------------------------------- submit */

/* Wakes the step thread. */
static void poke(void *ud)
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
    poke(e);
}

/* Validates a job for a bidirectional (encoder) model. */
static int validate_both_ways(const pi__core *e, const pi__job *j, pi_error *err)
{
    const int32_t most = e->setup.mem.lim.max_tokens;
    if (!j->params.hidden)
        return pi__fail(err, PI_EUNSUPPORTED, "a %s model generates nothing: ask for vectors, or scores (option pooling)",
                        e->setup.m->arch->name);
    if (j->n_prompt > (size_t) most)
        return pi__fail(err, PI_ETOOBIG, "the prompt has %zu tokens, a step %d, and tokens of a %s model see each other: raise "
                        "ubatch-size to %zu", j->n_prompt, most, e->setup.m->arch->name, j->n_prompt);
    return PI_OK;
}

static int validate(const pi__core *e, const pi__job *j, int32_t *max_total, int *drafter, pi_error *err)
{
    if (!j->n_prompt) return pi__fail(err, PI_EINVAL, "the prompt is empty");
    int32_t longest = e->setup.mem.longest, gen = j->params.max_tokens;
    const char *limit = longest < e->setup.mem.ctx ? "the cache" : "the context";
    if (j->n_prompt + (gen != 0) > (size_t) longest)
        return pi__fail(err, PI_ETOOBIG, "the prompt has %zu tokens; %s holds %d, so at most %d fit", j->n_prompt, limit,
                        longest, longest - (gen != 0));
    int rc = e->setup.m->both_ways ? validate_both_ways(e, j, err) : PI_OK;
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
    pi__logf(&e->setup.cfg.log, PI_LOG_WARN, "of %d tokens to generate (max-tokens) %d fit behind a prompt of %d: %s holds %d "
             "(%s)", s->params.max_tokens, fit, s->n_prompt, cache ? "the cache" : "the context", longest,
             cache ? "kv-cache-tokens" : "ctx-size");
}

/* Admission control: returns an error if n more jobs cannot be accepted. Call with the lock held. */
static int admissible(const pi__core *e, size_t n, pi_error *err)
{
    if (e->state == PI_STATE_FAILED)
        return pi__fail(err, PI_ECLOSED, "the engine failed and takes no requests, close it: %s", e->failure);
    if (e->closing || e->draining) return pi__fail(err, PI_ECLOSED, "the engine is closing and takes no requests");
    if (n > 1 && n > (size_t) e->setup.cfg.max_queue)
        return pi__fail(err, PI_ETOOBIG, "%zu answers at once do not fit the queue of %d (max-queue)", n,
                        e->setup.cfg.max_queue);
    if (e->n_queued + (int64_t) n > e->setup.cfg.max_queue)
        return pi__fail(err, PI_EBUSY, "the queue holds %d requests, its limit (max-queue) is %d: try again later",
                        e->n_queued, e->setup.cfg.max_queue);
    return PI_OK;
}

/* Resolves the adapters of all n jobs and holds them until the jobs end. Call with the lock held. */
static int use_adapters(pi__core *e, const pi__job *j, pi__seq **s, size_t n, pi_error *err)
{
    int rc = PI_OK;
    size_t made = 0;
    for (; made < n && !rc; made += !rc) rc = pi__loras_use(&e->loras, &j[made].params, &s[made]->lora, err);
    for (size_t i = 0; i < made && rc; i++) pi__loras_release(&s[i]->lora);
    return rc;
}

/* Appends all n sequences to the inbox. Call with the lock held. */
static void enqueue(pi__core *e, pi__seq **s, size_t n)
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

/* Returns the sparse span of a prompt. Its last two blocks stay dense: the last one may be incomplete, and readers of
 * its logits look there. */
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
        rc = validate(e, &j[made], &max_total, &drafter, err);
        if (!rc) rc = pi__seq_create(&j[made], max_total, e->setup.m->n_vocab, e->vocab, &out[made], err);
        if (!rc) out[made]->t.submit = now, out[made]->spec.kind = drafter;
        if (!rc) out[made]->sparse = sparse_span(&e->setup.cfg, out[made]->n_prompt);
        if (!rc) out[made]->whole = e->setup.m->both_ways;
        if (!rc) out[made]->without = pi__drafter_without(&e->setup, drafter);
    }
    if (!rc) rc = make_sample_group(out, n, err);
    if (!rc) {
        for (size_t i = 0; i < n; i++)
            out[i]->keeps = (out[i]->params.cache || out[i]->sample_group) && e->setup.cfg.prefix_cache && !out[i]->whole;
        pthread_mutex_lock(&e->lock);
        rc = admissible(e, n, err);
        if (!rc) rc = use_adapters(e, j, out, n, err);
        if (!rc) enqueue(e, out, n);
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

/* Publishes the counts of lists, pools and tiers for pi__core_stats. */
static void update_stats(pi__core *e)
{
    e->stats.n_waiting = (unsigned) e->sched.waiting.n;
    e->stats.n_running = (unsigned) e->sched.running.n;
    pi__stats_pools(&e->stats, &e->cache);
    pi__tiering_stats(&e->tiering);
    pi__stats_blocks(&e->stats, e->setup.be);
}

static const char *miss_reason(const pi__core *e, const pi__seq *s)
{
    if ((!s->params.cache && !s->n_cached) || !e->setup.cfg.prefix_cache) return "prefix cache off";
    if (s->whole) return "tokens see those behind them";
    const int32_t bs = e->cache.reuse_block, most = (s->n_prompt - 1) / bs * bs, from = s->params.logits_from;
    if (s->n_cached >= most) return "";
    if (s->params.logits == PI__LOGITS_ALL && s->n_cached >= from / bs * bs)
        return from ? "logits of the rest of the prompt wanted" : "logits of the whole prompt wanted";
    if (s->n_matched > s->n_cached) return "a cache group had dropped its part of the prefix";
    return s->n_cached ? "the rest was not in the cache" : "not in the cache";
}

/* Removes s from its sample group. The last one drops the group's prefixes. */
static void leave_sample_group(pi__core *e, pi__seq *s)
{
    if (!s->sample_group) return;
    pi__assert(s->sample_group->n_left > 0);
    if (--s->sample_group->n_left) return;
    pi__cache_clear(&e->cache, &s->sample_group->root.tenant);
    pi__cache_clear(&e->draft_cache, &s->sample_group->root.tenant);
    pi__free(s->sample_group);
}

/* Ends s: removes it from its list, releases everything it holds and calls on_done. */
static void finish(void *ud, pi__seq *s, int reason, int code, const char *msg)
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
    update_stats(e);
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

/* Ends cancelled and late sequences of the list; all of them if code is not PI_OK. */
static void reap(pi__core *e, pi__seq_list *l, int code, const char *msg)
{
    double now = pi__now_ms();
    for (pi__seq *s = l->head, *next; s; s = next) {
        next = s->next;
        if (code) finish(e, s, PI_FINISH_ERROR, code, msg);
        else if (!is_due(s, now)) continue;
        else if (atomic_load(&s->cancel)) finish(e, s, PI_FINISH_CANCEL, PI_ECANCELED, "canceled");
        else finish(e, s, PI_FINISH_ERROR, PI_ETIMEDOUT, "the request's deadline passed");
    }
}

/* Returns pool memory without a prefix to the system. Call while no sequence runs. */
static void trim_pools(pi__core *e)
{
    pi__memory_trim(&e->setup.mem, &e->cache);
    if (e->setup.beside) pi__memory_trim(&e->setup.beside_mem, &e->draft_cache);
    update_stats(e);
}

/* Polling intervals: of copies, of deadlines and masks; idle time before pools are trimmed. */
enum { COPY_MS = 1, LOOK_MS = 10, TRIM_MS = 500 };

/* Sleeps until there is work. Call with the lock held. */
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
    update_stats(e);
}

/* Ends every remaining sequence of the step with this error. After a device error the device's memory is not
 * reliable, so the engine state becomes FAILED. */
static void fail_step(pi__core *e, const pi__step_plan *plan, int code, const char *msg)
{
    if (code == PI_EDEVICE) {
        pthread_mutex_lock(&e->lock);
        snprintf(e->failure, sizeof e->failure, "%s", msg);
        e->state = PI_STATE_FAILED;
        pthread_mutex_unlock(&e->lock);
        pi__logf(&e->setup.cfg.log, PI_LOG_ERROR, "the engine failed: %s", msg);
    }
    for (int32_t i = 0; i < plan->n_seqs; i++)
        if (plan->seq[i]) finish(e, plan->seq[i], PI_FINISH_ERROR, code, msg);
}

/* Updates statistics after a step of n_prefill + n_decode tokens. */
static void count_step(pi__core *e, int32_t n_prefill, int32_t n_decode)
{
    const double now = pi__now_ms(), ms = now - e->step_start;
    e->step_start = now;
    pi__pace_measure(&e->pace, n_prefill, n_decode, ms);
    pi__stats_step(&e->stats, ms);
    update_stats(e);
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

/* True if the step thread has no other work than the next tokens of running sequences. */
static bool is_quiet(pi__core *e)
{
    const double now = pi__now_ms();
    pthread_mutex_lock(&e->lock);
    bool quiet = !e->inbox_head && !e->lora_work && !e->poke && !e->closing && e->clear_asked == e->clear_done;
    pthread_mutex_unlock(&e->lock);
    for (const pi__seq *s = e->sched.running.head; s && quiet; s = s->next) quiet = !is_due(s, now);
    for (const pi__seq *s = e->sched.waiting.head; s && quiet; s = s->next) quiet = !is_due(s, now);
    return quiet;
}

/* Completes the step in flight. Before waiting for it, queues a lookahead step if there is no other work; that step
 * is then in flight. All other work is done while no step is in flight. */
static void land_step(pi__core *e)
{
    pi__step_plan *plan = e->runner.flight;
    const int32_t n_decode = plan->n_tokens;
    pi_error err = {0};
    pi__step_plan *next = is_quiet(e) ? pi__schedule_ahead(&e->sched) : NULL;
    if (next && next->n_seqs) pi__runner_ahead(&e->runner, next);
    int rc = pi__runner_land(&e->runner, &err);
    if (rc) fail_step(e, plan, rc, err.msg);
    count_step(e, 0, n_decode);
    pi__tiering_poll(&e->tiering);
}

static void *step_thread(void *arg)
{
    pi__core *e = arg;
    bool idle = true;
    for (;;) {
        while (e->runner.flight) land_step(e);
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
        reap(e, &e->sched.running, code, failed ? "the engine failed" : "the engine is closing");
        reap(e, &e->sched.waiting, code, failed ? "the engine failed" : "the engine is closing");
        if (closing) return NULL;
        pi__tiering_poll(&e->tiering);
        e->sched.max_prefill = pi__pace_limit(&e->pace);
        e->runner.mask_steps = PI__MASK_STEPS;
        pi__step_plan *plan = pi__schedule(&e->sched, e->setup.mem.lim.max_tokens);
        pthread_mutex_lock(&e->lock);
        /* before the step: admitted sequences no longer count in the queue */
        e->n_queued = e->n_live - e->sched.running.n;
        pthread_mutex_unlock(&e->lock);
        if (plan->n_seqs) run_step(e, plan);
        idle = plan->n_tokens == 0;
        if (idle) pi__profile_idle(e->setup.be->profile);
        update_stats(e);
    }
}

/* -------------------------------------------------------------------------------------------------------- the plan */

static pi__tiering_config tiering_of(pi__setup *s)
{
    const pi__config *c = &s->cfg;
    /* The host tier of an integrated device would be in the same memory as its pools. */
    const bool copies = !s->be->integrated && pi__backend_at(s->be, PI__AT_DEVICE)->discrete;
    const int64_t ram = copies ? c->cache_ram : 0;
    return (pi__tiering_config) {
        .offload = {.be = s->be, .map = &s->mem.map, .keeps = c->prefix_cache, .ram = ram,
                    .to_disk = c->prefix_dir != NULL, .ahead = s->mem.lim.max_tokens, .ahead_seqs = s->mem.lim.max_seqs,
                    .log = c->log},
        .dir = c->prefix_dir, .dir_key = c->prefix_key, .dir_bytes = c->prefix_dir_bytes, .dir_read_only = c->prefix_dir_read_only,
    };
}

static pi__batch_shape shape_of(const pi__memory *mem)
{
    pi__batch_shape s = pi__batch_shape_of(mem->spec, mem->map.n_groups, mem->lim.max_tokens, mem->lim.max_seqs, mem->longest,
                                           mem->lim.max_rows);
    s.runs = mem->lim.key_blocks > 0;
    return s;
}

static int32_t max_saves_of(const pi__memory *mem)
{
    int32_t least = mem->cfg->block_size;
    for (int32_t i = 0; i < mem->map.n_groups; i++)
        if (mem->spec[i].block_size < least) least = mem->spec[i].block_size;
    return pi__most_saves(least, mem->lim.max_tokens, mem->lim.max_seqs);
}

/* Returns the host memory of all modules for any device; each module reports the bytes that its init allocates. */
static size_t host_bytes(pi__setup *s)
{
    const pi__memory *mem = &s->mem;
    const pi__tiering_config tiering = tiering_of(s);
    const pi__batch_shape step = shape_of(mem);
    size_t n = pi__cache_bytes(mem->spec, mem->map.n_groups, mem->lim.max_seqs, mem->longest);
    n += pi__sched_bytes(mem->lim.max_seqs) + pi__snapshots_bytes(max_saves_of(mem));
    n += pi__rows_bytes(s->be->discrete, mem->lim.max_rows, s->m->n_vocab, s->m->n_embd);
    n += pi__runner_bytes(&step, s->m->n_vocab) + pi__classifier_bytes(&s->m->classifier) + pi__dense_heads_bytes(&s->m->dense);
    n += pi__drafters_bytes(s);
    if (s->beside) n += pi__cache_bytes(s->beside_mem.spec, s->beside_mem.map.n_groups, mem->lim.max_seqs, mem->longest);
    return n + pi__tiering_bytes(&tiering);
}

/* Decides placement and sizes. Loads nothing. */
static int prepare(pi__setup *s, const pi__config *c, pi_error *err)
{
    int rc = pi__setup_open(s, c, err);
    if (!rc && c->placement.fit) rc = pi__fit(s, err);
    return rc ? rc : pi__setup_size(s, err);
}

int pi__core_plan(const pi__config *c, pi_plan *out, pi_error *err)
{
    pi__setup s;
    pi__host_config host;
    pi__config meta = *c; /* only the metadata of its file is read */
    if (meta.load_mode == PI__LOAD_READ) meta.load_mode = PI__LOAD_MMAP;
    meta.progress = NULL;
    int rc = prepare(&s, &meta, err);
    if (!rc) {
        const pi__tiering_config tiering = tiering_of(&s);
        pi_plan p = {.size = out->size};
        pi__setup_tell(&s, host_bytes(&s), &p);
        if (pi__offload_plan(&tiering.offload, &host)) p.host_cache_bytes = pi__host_memory(&host);
        memcpy(out, &p, out->size < sizeof p ? out->size : sizeof p);
    }
    pi__setup_free(&s);
    return rc;
}

/* ----------------------------------------------------------------------------------------------------- open, close */

static bool hook_yield(void *ud) { return pi__offload_yield(&((pi__core *) ud)->tiering.offload); }
static bool hook_wait(void *ud, pi__seq *s, int32_t got) { return pi__tiering_wait(&((pi__core *) ud)->tiering, s, got); }

static bool hook_ready(void *ud, pi__seq *s) { return pi__runner_ready(&((pi__core *) ud)->runner, s); }

static void hook_admitted(void *ud, pi__seq *s)
{
    pi__core *e = ud;
    pi__snapshot_restore(&e->snapshots, s);
    pi__drafts_start(&e->drafting, s);
}

static void hook_leaves(void *ud, pi__seq *s, bool intact)
{
    pi__core *e = ud;
    if (intact) pi__snapshot_last(&e->snapshots, s);
    pi__drafts_forget(&e->drafting, s);
    pi__tiering_touch(&e->tiering, s);
}

static int open_vocab(pi__core *e, pi_error *err)
{
    pi__str t;
    int rc = pi__vocab_load(&e->vocab, e->setup.g, err);
    if (!rc) rc = pi__special_collect(&e->special, e->vocab, e->setup.g, e->setup.m->n_vocab, err);
    if (!rc) rc = pi__grammars_create(&e->grammars, e->vocab, e->setup.m->n_vocab, e->special.suppress, e->special.n_suppress, err);
    if (!rc) pi__grammars_on_ready(e->grammars, poke, e);
    if (!rc) rc = pi__gguf_get_str(e->setup.g, "tokenizer.chat_template", &t, err);
    if (rc || !t.p) return rc;
    e->chat_template = pi__strndup(t.p, t.n);
    return e->chat_template ? PI_OK : pi__fail_mem(err, "the chat template");
}

static int copy_metadata(pi__core *e, pi_error *err)
{
    e->metadata = pi__gguf_copy_of(e->setup.g);
    return e->metadata ? PI_OK : pi__fail_mem(err, "the model's metadata");
}

/* Locks the weights in memory. A failure only logs a warning. */
static void lock_weights(const pi__core *e, const pi__model *m)
{
    size_t left;
    const int error = pi__weights_lock(m, &left);
    if (!error) return;
    pi__logf(&e->setup.cfg.log, PI_LOG_WARN, "mlock: %zu MiB of weights can be swapped out (%s): raise the limit (ulimit -l, "
             "LimitMEMLOCK= of a service), or give CAP_IPC_LOCK", left >> 20, strerror(error));
}

static int load(pi__core *e, pi_error *err)
{
    const pi__setup *s = &e->setup;
    const pi__model *beside = pi__setup_beside(s);
    int rc = pi__setup_load(&e->setup, false, err);
    if (!rc && s->cfg.mlock) lock_weights(e, s->m);
    if (!rc && s->cfg.mlock && beside) lock_weights(e, beside);
    return rc;
}

/* Opens the cache, the scheduler and snapshots. */
static int open_sched(pi__core *e, pi_error *err)
{
    const pi__memory *mem = &e->setup.mem;
    const pi__sched_config sched = {
        .max_seqs = mem->lim.max_seqs, .log = e->setup.cfg.log,
        .by_priority = e->setup.cfg.policy == PI__POLICY_PRIORITY, .max_wait_ms = e->setup.cfg.max_wait_ms,
        .least_prefill = mem->lim.key_blocks ? PI__SPARSE_BLOCK : 0,
        .hooks = {e, hook_yield, hook_wait, hook_ready, hook_admitted, hook_leaves},
    };
    int rc = pi__cache_init(&e->cache, mem->spec, mem->map.n_groups, mem->lim.max_seqs, mem->longest, err);
    if (!rc && e->setup.beside)
        rc = pi__cache_init(&e->draft_cache, e->setup.beside_mem.spec, e->setup.beside_mem.map.n_groups, mem->lim.max_seqs,
                            mem->longest, err);
    if (!rc) rc = pi__sched_init(&e->sched, &sched, &e->cache, &e->stats, err);
    if (rc) return rc;
    const pi__snapshots_config snapshots = {
        .cache = &e->cache, .stats = &e->stats, .row_seq = e->sched.row_seq, .be = e->setup.be, .layer = e->setup.m->state,
        .n_layers = e->setup.m->n_state, .group = mem->state_group, .interval = e->setup.cfg.snapshot_interval,
        .turn_id = e->special.turn_id, .n_turn_ids = e->special.n_turn_ids, .max_saves = max_saves_of(mem),
    };
    e->cache.reuse_point = pi__reuse_point;
    e->cache.reuse_point_ud = &e->snapshots;
    return pi__snapshots_init(&e->snapshots, &snapshots, err);
}

static int open_tiering(pi__core *e, pi_error *err)
{
    pi__tiering_config c = tiering_of(&e->setup);
    if (e->setup.be->integrated && e->setup.cfg.cache_ram) {
        pi__logf(&e->setup.cfg.log, PI_LOG_INFO, "cache-ram is off: the memory of %s is the host's, a copy would win nothing",
                 e->setup.be->dev->describe(e->setup.be));
    }
    c.offload.cache = &e->cache;
    c.offload.stats = &e->stats;
    c.wake = poke;
    c.wake_ud = e;
    if (c.dir) c.fingerprint = pi__setup_fingerprint(&e->setup);
    return pi__tiering_open(&e->tiering, &c, err);
}

/* Opens the modules that compute: rows, drafting, runner. */
static int open_runner(pi__core *e, pi_error *err)
{
    pi__setup *s = &e->setup;
    const pi__batch_shape step = shape_of(&s->mem);
    const pi__runner_config runner = {
        .be = s->be, .m = s->m, .cache = &e->cache, .rows = &e->rows, .drafting = &e->drafting, .snapshots = &e->snapshots,
        .special = &e->special, .stats = &e->stats, .n_draft = s->n_draft, .ahead = s->cfg.ahead, .finish = finish, .ud = e,
    };
    int rc = pi__rows_init(&e->rows, s->be, s->mem.lim.max_rows, s->m->n_vocab, s->m->n_embd, &e->special, err);
    if (!rc) rc = pi__drafters_create(&e->drafting, s, &e->cache, &e->draft_cache, &e->rows, err);
    if (!rc) rc = pi__runner_init(&e->runner, &runner, &step, err);
    return rc ? rc : s->be->dev->finish(s->be, err); /* reports errors of alloc and upload */
}

static int open_all(pi__core *e, const pi__config *c, pi_error *err)
{
    int rc = prepare(&e->setup, c, err);
    e->pace.target_ms = c->step_target_ms;
    if (!rc) rc = open_vocab(e, err);
    if (!rc) rc = copy_metadata(e, err);
    if (!rc) rc = pi__fit_check(&e->setup, err);
    if (!rc) rc = load(e, err);
    if (!rc) rc = pi__memory_alloc(&e->setup.mem, err);
    if (!rc && e->setup.beside) rc = pi__memory_alloc(&e->setup.beside_mem, err);
    if (!rc) rc = open_sched(e, err);
    if (!rc) rc = open_tiering(e, err);
    if (!rc) rc = open_runner(e, err);
    if (rc) return rc;
    update_stats(e);
    pi__setup_close_files(&e->setup); /* everything needed was copied */
    if (!pi__thread_start(&e->thread, step_thread, e)) return pi__fail(err, PI_ENOMEM, "cannot start the step thread");
    e->thread_started = true;
    return PI_OK;
}

static void core_free(pi__core *e)
{
    pi__tiering_close(&e->tiering); /* first: its loads write into the pools */
    pi__runner_destroy(&e->runner);
    pi__drafting_destroy(&e->drafting);
    pi__rows_destroy(&e->rows);
    pi__snapshots_destroy(&e->snapshots);
    pi__sched_destroy(&e->sched);
    pi__cache_destroy(&e->cache);
    pi__cache_destroy(&e->draft_cache);
    pi__loras_destroy(&e->loras, e->setup.be);
    pi__setup_free(&e->setup);
    pi__grammars_free(e->grammars);
    pi__vocab_free(e->vocab);
    pi__special_free(&e->special);
    pi__free(e->chat_template);
    pi__free(e->metadata);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->changed);
    pi__free(e);
}

int pi__core_open(pi__core **out, const pi__config *c, pi_error *err)
{
    *out = NULL;
    pi__core *e = pi__calloc(1, sizeof *e);
    if (!e) return pi__fail_mem(err, "the engine");
    pthread_mutex_init(&e->lock, NULL);
    (void) pi__cond_init(&e->wake); /* fails on no known system */
    (void) pi__cond_init(&e->changed);
    int rc = open_all(e, c, err);
    if (rc) {
        pi_error why; /* a dead device cannot allocate either: report the device error */
        if (rc == PI_ENOMEM && e->setup.be && e->setup.be->dev->finish(e->setup.be, &why) == PI_EDEVICE)
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

/* ----------------------------------------------------------------------------------------------------------- facts */

int pi__core_state(const pi__core *e) { return atomic_load(&((pi__core *) e)->state); }
const pi__vocab *pi__core_vocab(const pi__core *e) { return e->vocab; }

int pi__core_grammar(pi__core *e, const pi__grammar_parts *parts, pi__work *work, pi__grammar **out, pi_error *err)
{
    return pi__grammar_get_within(e->grammars, parts, work, out, err);
}
const pi__classifier *pi__core_classifier(const pi__core *e) { return &e->setup.m->classifier; }
const pi__dense_heads *pi__core_dense(const pi__core *e) { return &e->setup.m->dense; }
const pi__gguf_copy *pi__core_metadata(const pi__core *e) { return e->metadata; }

int pi__core_info(const pi__core *e, pi_info *out)
{
    const pi__model *m = e->setup.m;
    const pi__backend *be = e->setup.be;
    pi_info i = {
        .size = out->size, .arch = m->arch->name, .name = m->name, .type_desc = m->desc, .n_params = m->n_params,
        .file_bytes = m->file_bytes, .n_vocab = (uint32_t) m->n_vocab, .n_ctx_train = (uint32_t) m->n_ctx_train,
        .n_embd = (uint32_t) m->n_embd, .n_layer = (uint32_t) m->n_layer, .ctx_size = (uint32_t) e->setup.mem.ctx,
        .n_threads = (uint32_t) be->dev->n_threads(be), .device = be->dev->describe(be), .bos = pi__vocab_bos(e->vocab),
        .eos = pi__vocab_eos(e->vocab), .chat_template = e->chat_template ? e->chat_template : "", .pooling = m->pooling,
        .n_labels = (uint32_t) m->classifier.n_labels, .labels = m->classifier.labels,
    };
    memcpy(out, &i, out->size < sizeof i ? out->size : sizeof i);
    return PI_OK;
}

const pi__stats *pi__core_counters(const pi__core *e) { return &e->stats; }
struct pi__profile *pi__core_profile(const pi__core *e) { return e->setup.be->profile; }

int pi__core_stats(const pi__core *e, pi_stats *out)
{
    const pi__memory *mem = &e->setup.mem;
    pi_stats s = {.size = out->size};
    pi__stats_tell(&e->stats, e->cache.n_groups, &s);
    for (uint32_t i = 0; i < s.n_groups; i++) {
        s.group_name[i] = mem->spec[i].name;
        s.group[i].n_blocks = (uint64_t) mem->spec[i].n_blocks;
        s.group[i].n_used = s.group[i].n_blocks - s.group[i].n_free;
        s.group[i].committed_bytes = (e->setup.cfg.kv_commit ? s.group[i].n_blocks : e->stats.group[i].n_written) *
                                     pi__block_bytes(&mem->map, (int32_t) i);
    }
    memcpy(out, &s, out->size < sizeof s ? out->size : sizeof s);
    return PI_OK;
}

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

/* Fails with the error that requests without own adapters would get more than PI__MAX_LORA. */
static int too_many(const char *name, pi_error *err)
{
    return pi__fail(err, PI_EINVAL, "adapter '%.60s': requests that do not choose would have more than %d adapters: give some of them "
                    "the scale 0", name, PI__MAX_LORA);
}

static int no_adapter(const char *name, pi_error *err) { return pi__fail(err, PI_ENOENT, "there is no adapter '%.60s'", name); }

/* Waits until n is ready or has failed. Call with the lock held; the wait releases it. */
static int await_adapter(pi__core *e, pi__lora_entry *n, pi_error *err)
{
    int rc = PI_OK;
    n->n_users++; /* this call is a user */
    e->lora_work = true;
    pthread_cond_signal(&e->wake);
    while (!n->there && !n->gone) pthread_cond_wait(&e->changed, &e->lock);
    if (n->code) rc = pi__fail(err, n->code, "%s", n->err.msg);
    n->n_users--;
    e->lora_work |= n->gone;
    return rc;
}

int pi__core_lora_replace(pi__core *e, const char *name, const char *path, pi_error *err)
{
    pi__adapter *a;
    int rc = pi__adapter_read(&a, e->setup.m, path, err);
    if (rc) return rc;
    pthread_mutex_lock(&e->lock);
    pi__lora_entry *old = pi__loras_find(&e->loras, name);
    const bool up = e->state != PI_STATE_FAILED && !e->closing, can = old && up;
    pi__lora_entry *n = can ? pi__loras_offer(&e->loras, name, path, a, 0, old) : NULL;
    if (n) rc = await_adapter(e, n, err);
    pthread_mutex_unlock(&e->lock);
    if (n) return rc;
    if (can) return pi__fail_mem(err, "an adapter");
    pi__adapter_free(a, NULL);
    return up ? no_adapter(name, err) : pi__fail(err, PI_ECLOSED, "the engine failed or is closing");
}

int pi__core_lora_load(pi__core *e, const char *name, const char *path, float scale, pi_error *err)
{
    pi__adapter *a;
    int rc = pi__adapter_read(&a, e->setup.m, path, err);
    if (rc) return rc;
    pthread_mutex_lock(&e->lock);
    const bool there = pi__loras_taken(&e->loras, name), up = e->state != PI_STATE_FAILED && !e->closing;
    const bool few = pi__loras_may_have(&e->loras, NULL, scale);
    pi__lora_entry *n = there || !up || !few ? NULL : pi__loras_offer(&e->loras, name, path, a, scale, NULL);
    if (n) rc = await_adapter(e, n, err);
    pthread_mutex_unlock(&e->lock);
    if (n) return rc;
    if (there || !up || !few) pi__adapter_free(a, NULL);
    if (!up) return pi__fail(err, PI_ECLOSED, "the engine failed or is closing");
    if (!there && !few) return too_many(name, err);
    return there ? pi__fail(err, PI_EBUSY, "an adapter '%.60s' is loaded already: unload it first, or take another name", name)
                 : pi__fail_mem(err, "an adapter");
}

/* Finds an adapter and unloads it or changes its scale. */
static int change_adapter(pi__core *e, const char *name, bool unload, float scale, pi_error *err)
{
    pthread_mutex_lock(&e->lock);
    pi__lora_entry *n = pi__loras_find(&e->loras, name);
    const bool few = !n || unload || pi__loras_may_have(&e->loras, n, scale);
    if (n && unload) n->gone = e->lora_work = true;
    else if (n && few) n->scale = scale;
    if (n) pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (!few) return too_many(name, err);
    return n ? PI_OK : no_adapter(name, err);
}

int pi__core_lora_unload(pi__core *e, const char *name, pi_error *err) { return change_adapter(e, name, true, 0, err); }
int pi__core_lora_scale(pi__core *e, const char *name, float scale, pi_error *err)
{
    return change_adapter(e, name, false, scale, err);
}

int pi__core_lora_at(pi__core *e, size_t i, pi_lora *out)
{
    pthread_mutex_lock(&e->lock);
    const pi__lora_entry *n = pi__loras_at(&e->loras, i);
    pi_lora l = {.size = out->size < sizeof l ? out->size : (uint32_t) sizeof l};
    if (n) {
        snprintf(l.name, sizeof l.name, "%s", n->name);
        snprintf(l.path, sizeof l.path, "%s", n->path);
        l.scale = n->scale;
        l.rank = (uint32_t) n->adapter->max_rank;
        l.n_matrices = (uint32_t) n->adapter->n_pairs;
        l.bytes = n->adapter->size;
        l.n_running = (uint32_t) n->n_users;
        memcpy(out, &l, l.size);
    }
    pthread_mutex_unlock(&e->lock);
    return n ? PI_OK : PI_ENOENT;
}

int pi__core_on_cache_event(pi__core *e, pi_cache_event_fn fn, void *ud, pi_error *err)
{
    int rc;
    /* before the first request, the step thread does not use the cache without the lock */
    pthread_mutex_lock(&e->lock);
    if (e->cache.index) rc = pi__fail(err, PI_EBUSY, "somebody is told of the cache's changes already");
    else if (e->n_submitted)
        rc = pi__fail(err, PI_EBUSY, "who is to be told of the cache's changes has to say so before the first request");
    else rc = pi__cache_listen(&e->cache, pi__drafter_without(&e->setup, e->setup.cfg.spec), fn, ud, err);
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
