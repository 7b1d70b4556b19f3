/* The engine: opening, closing, and facts that callers read.
 *
 * Open allocates all memory of the step thread and starts it last; close joins it and frees everything. The facts are
 * immutable after open, except state and counters, which are atomic. */
#include "engine/core.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/versioned.h"
#include "engine/core_impl.h"
#include "engine/drafters.h"
#include "engine/fit.h"
#include "engine/plan.h"

/* ----------------------------------------------------------------------------------------------------- open, close */

static bool hook_yield(void *ud) { return pi__offload_yield(&((pi__core *) ud)->tiering.offload); }
static bool hook_wait(void *ud, pi__seq *s, int32_t got)
{
    return pi__tiering_wait(&((pi__core *) ud)->tiering, s, got);
}

static bool hook_ready(void *ud, pi__seq *s) { return pi__runner_ready(&((pi__core *) ud)->runner, s); }

static int32_t hook_images(void *ud, pi__seq *s, int32_t n)
{
    return pi__media_ready(&((pi__core *) ud)->media, s, n);
}

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
    pi__media_release(&e->media, s, INT32_MAX);
    pi__drafts_forget(&e->drafting, s);
    pi__tiering_touch(&e->tiering, s);
}

static int open_vocab(pi__core *e, pi_error *err)
{
    pi__str t;
    int rc = pi__vocab_load(&e->vocab, e->setup.g, err);
    if (!rc) rc = pi__special_collect(&e->special, e->vocab, e->setup.g, e->setup.m->n_vocab, err);
    if (!rc)
        rc = pi__grammars_create(&e->grammars, e->vocab, e->setup.m->n_vocab, e->special.suppress,
                                 e->special.n_suppress, err);
    if (!rc) pi__grammars_on_ready(e->grammars, pi__core_poke, e);
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
    pi__logf(&e->setup.cfg.log, PI_LOG_WARN, "mlock: %zu MiB of weights can be swapped out (%s): raise the limit "
             "(ulimit -l, LimitMEMLOCK= of a service), or give CAP_IPC_LOCK", left >> 20, strerror(error));
}

static int load_weights(pi__core *e, pi_error *err)
{
    const pi__setup *s = &e->setup;
    const pi__model *second = pi__setup_second_model(s);
    int rc = pi__setup_load(&e->setup, false, err);
    if (!rc && s->cfg.mlock) lock_weights(e, s->m);
    if (!rc && s->cfg.mlock && second) lock_weights(e, second);
    if (!rc && s->cfg.mlock && s->tower) lock_weights(e, pi__tower_model(s->tower));
    return rc;
}

/* Opens the cache, the scheduler and snapshots. */
static int open_sched(pi__core *e, pi_error *err)
{
    const pi__memory *mem = &e->setup.mem;
    const pi__sched_config sched = {
        .max_seqs = mem->lim.max_seqs, .log = e->setup.cfg.log,
        .by_priority = e->setup.cfg.policy == PI__POLICY_PRIORITY, .max_wait_ms = e->setup.cfg.max_wait_ms,
        .min_prefill = mem->lim.key_blocks ? PI__SPARSE_BLOCK : 0,
        .hooks = {e, hook_yield, hook_wait, hook_ready, hook_admitted, hook_leaves, hook_images},
    };
    int rc = pi__cache_init(&e->cache, mem->spec, mem->map.n_groups, mem->lim.max_seqs, mem->longest, err);
    if (!rc && e->setup.draft_model)
        rc = pi__cache_init(&e->draft_cache, e->setup.draft_model_mem.spec, e->setup.draft_model_mem.map.n_groups,
                            mem->lim.max_seqs, mem->longest, err);
    if (!rc) rc = pi__sched_init(&e->sched, &sched, &e->cache, &e->stats, err);
    if (rc) return rc;
    const pi__snapshots_config snapshots = {
        .cache = &e->cache, .stats = &e->stats, .row_seq = e->sched.row_seq, .be = e->setup.be,
        .layer = e->setup.m->state,
        .n_layers = e->setup.m->n_state, .group = mem->state_group, .interval = pi__memory_interval(mem),
        .turn_id = e->special.turn_id, .n_turn_ids = e->special.n_turn_ids, .max_saves = pi__plan_max_saves(mem),
    };
    e->cache.reuse_point = pi__reuse_point;
    e->cache.reuse_point_ud = &e->snapshots;
    return pi__snapshots_init(&e->snapshots, &snapshots, err);
}

static int open_tiering(pi__core *e, pi_error *err)
{
    pi__tiering_config c = pi__plan_tiering(&e->setup);
    if (e->setup.be->integrated && e->setup.cfg.cache_ram) {
        pi__logf(&e->setup.cfg.log, PI_LOG_INFO,
                 "cache-ram is disabled: %s shares host memory",
                 e->setup.be->dev->describe(e->setup.be));
    }
    c.offload.cache = &e->cache;
    c.offload.stats = &e->stats;
    c.wake = pi__core_poke;
    c.wake_ud = e;
    if (c.dir) c.fingerprint = pi__setup_fingerprint(&e->setup);
    return pi__tiering_open(&e->tiering, &c, err);
}

/* Opens the modules that compute: rows, drafting, runner. */
static int open_runner(pi__core *e, pi_error *err)
{
    pi__setup *s = &e->setup;
    const pi__batch_shape step = pi__plan_shape(s);
    const pi__runner_config runner = {
        .be = s->be, .m = s->m, .cache = &e->cache, .rows = &e->rows, .drafting = &e->drafting,
        .snapshots = &e->snapshots, .media = &e->media,
        .special = &e->special, .stats = &e->stats, .n_draft = s->n_draft, .ahead = s->cfg.ahead,
        .finish = pi__core_finish,
        .ud = e,
    };
    int rc = pi__media_init(&e->media, s->encoder, s->n_image_rows, s->be, &e->stats, err);
    if (!rc && s->encoder) s->m->image_rows = e->media.rows, s->m->image_ld = s->encoder->width;
    if (!rc) rc = pi__rows_init(&e->rows, s->be, s->mem.lim.max_rows, s->m->n_vocab, s->m->n_embd, &e->special, err);
    if (!rc) rc = pi__drafters_create(&e->drafting, s, &e->cache, &e->draft_cache, &e->rows, err);
    if (!rc) rc = pi__runner_init(&e->runner, &runner, &step, err);
    return rc ? rc : s->be->dev->finish(s->be, err); /* reports errors of alloc and upload */
}

static int open_all(pi__core *e, const pi__config *c, pi_error *err)
{
    int rc = pi__plan_setup(&e->setup, c, &e->reserved, err);
    e->pace.target_ms = c->step_target_ms;
    if (!rc) rc = open_vocab(e, err);
    if (!rc) rc = copy_metadata(e, err);
    if (!rc) rc = pi__fit_check(&e->setup, err);
    if (!rc) pi__plan_log(&e->setup, &e->plan);
    if (!rc) rc = load_weights(e, err);
    if (!rc) rc = pi__memory_alloc(&e->setup.mem, err);
    if (!rc && e->setup.draft_model) rc = pi__memory_alloc(&e->setup.draft_model_mem, err);
    if (!rc) rc = open_sched(e, err);
    if (rc) return rc;
    /* the weights are loaded: the host tier is sized by the memory that the pools will leave */
    pi__reserve_memory(&e->reserved, pi__plan_unwritten(&e->setup, &e->cache, &e->draft_cache));
    rc = open_tiering(e, err);
    if (!rc) rc = open_runner(e, err);
    if (rc) return rc;
    pi__core_update_stats(e);
    pi__setup_close_files(&e->setup); /* everything needed was copied */
    if (!pi__thread_start(&e->thread, pi__core_step_thread, e))
        return pi__fail(err, PI_ENOMEM, "cannot start the step thread");
    e->thread_started = true;
    return PI_OK;
}

static void core_free(pi__core *e)
{
    pi__tiering_close(&e->tiering); /* first: its loads write into the pools */
    pi__runner_destroy(&e->runner);
    pi__drafting_destroy(&e->drafting);
    pi__media_destroy(&e->media);
    pi__rows_destroy(&e->rows);
    pi__snapshots_destroy(&e->snapshots);
    pi__sched_destroy(&e->sched);
    pi__cache_destroy(&e->cache);
    pi__cache_destroy(&e->draft_cache);
    pi__loras_destroy(&e->loras, e->setup.be);
    pi__setup_free(&e->setup);
    pi__reserve_memory(&e->reserved, 0);
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
const pi__tower *pi__core_tower(const pi__core *e) { return e->setup.tower; }
const pi__dense_heads *pi__core_dense(const pi__core *e) { return &e->setup.m->dense; }
const pi__gguf_copy *pi__core_metadata(const pi__core *e) { return e->metadata; }

int pi__core_info(const pi__core *e, pi_info *out)
{
    const pi__model *m = e->setup.m;
    const pi__backend *be = e->setup.be;
    pi_info i = {
        .arch = m->arch->name, .name = m->name, .type_desc = m->desc, .n_params = m->n_params,
        .file_bytes = m->file_bytes, .n_vocab = (uint32_t) m->n_vocab, .n_ctx_train = (uint32_t) m->n_ctx_train,
        .n_embd = (uint32_t) m->n_embd, .n_layer = (uint32_t) m->n_layer, .ctx_size = (uint32_t) e->setup.mem.longest,
        .n_threads = (uint32_t) be->dev->n_threads(be), .device = be->dev->describe(be), .bos = pi__vocab_bos(e->vocab),
        .eos = pi__vocab_eos(e->vocab), .chat_template = e->chat_template ? e->chat_template : "",
        .pooling = m->pooling,
        .n_labels = (uint32_t) m->classifier.n_labels, .labels = m->classifier.labels,
    };
    return pi__versioned_copy(out, &i, sizeof i);
}

int pi__core_memory(const pi__core *e, pi_plan *out) { return pi__versioned_copy(out, &e->plan, sizeof e->plan); }
const pi__stats *pi__core_counters(const pi__core *e) { return &e->stats; }
struct pi__profile *pi__core_profile(const pi__core *e) { return e->setup.be->profile; }

int pi__core_stats(const pi__core *e, pi_stats *out)
{
    const pi__memory *mem = &e->setup.mem;
    pi_stats s = {.size = sizeof s};
    pi__stats_tell(&e->stats, e->cache.n_groups, &s);
    for (uint32_t i = 0; i < s.n_groups; i++) {
        s.group_name[i] = mem->spec[i].name;
        s.group[i].n_blocks = (uint64_t) mem->spec[i].n_blocks;
        s.group[i].n_used = s.group[i].n_blocks - s.group[i].n_free;
        s.group[i].committed_bytes = (e->setup.cfg.kv_commit ? s.group[i].n_blocks : e->stats.group[i].n_written) *
                                     pi__block_bytes(&mem->map, (int32_t) i);
    }
    return pi__versioned_copy(out, &s, sizeof s);
}
