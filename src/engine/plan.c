/* The memory plan of an engine (see plan.h).
 *
 * Without an explicit size, the cache is the largest one that memory permits:
 *
 *     free memory of the device, or available memory of the host
 *     |<-------------------- memory_share -------------------->|<- margin ->|
 *     | weights | scratch, tables, drafters, adapters | cache  |            |
 *
 * Nearly every size depends on the number of tokens: pools, snapshots, block tables, the pools of a draft model. So
 * the number is found by binary search over complete plans. Its upper limit is max_seqs requests of full length, since
 * more blocks would only be a larger prefix cache. One request of a given ctx_size, or of 32768 tokens, may use most of
 * the margin. The host's memory is counted once for all backends in it, and without
 * the memory that earlier engines of the process have reserved.
 *
 * Memory: as declaring needs. The search runs before anything is loaded. */
#include "engine/plan.h"

#include <string.h>

#include "base/error.h"
#include "base/versioned.h"
#include "engine/core.h"
#include "engine/drafters.h"
#include "engine/fit.h"
#include "engine/rows.h"
#include "engine/runner.h"
#include "engine/sched.h"
#include "engine/snapshots.h"

enum { SMALLEST_MARGIN = 32 /* 1/32 of the host's memory is left free in any case */ };

/* --------------------------------------------------------------------------------------------- sizes of the modules */

pi__tiering_config pi__plan_tiering(pi__setup *s)
{
    const pi__config *c = &s->cfg;
    /* The host tier of an integrated device would be in the same memory as its pools. */
    const bool copies = !s->be->integrated && pi__backend_at(s->be, PI__AT_DEVICE)->discrete;
    const int64_t ram = copies ? c->cache_ram : 0;
    return (pi__tiering_config) {
        .offload = {.be = s->be, .map = &s->mem.map, .prefix_cache = c->prefix_cache, .ram = ram,
                    .to_disk = c->prefix_dir != NULL, .ahead = s->mem.lim.max_tokens, .ahead_seqs = s->mem.lim.max_seqs,
                    .log = c->log},
        .dir = c->prefix_dir, .dir_key = c->prefix_key, .dir_bytes = c->prefix_dir_bytes,
        .dir_read_only = c->prefix_dir_read_only,
    };
}

pi__batch_shape pi__plan_shape(const pi__setup *setup)
{
    const pi__memory *mem = &setup->mem;
    pi__batch_shape s = pi__batch_shape_of(mem->spec, mem->map.n_groups, mem->lim.max_tokens, mem->lim.max_seqs,
                                           mem->longest, mem->lim.max_rows);
    s.runs = mem->lim.key_blocks > 0;
    s.images = setup->encoder != NULL;
    s.mrope = s.images && setup->encoder->mrope && setup->m->mrope;
    return s;
}

int32_t pi__plan_max_saves(const pi__memory *mem)
{
    int32_t least = mem->cfg->block_size;
    for (int32_t i = 0; i < mem->map.n_groups; i++)
        if (mem->spec[i].block_size < least) least = mem->spec[i].block_size;
    return pi__max_saves(least, mem->lim.max_tokens, mem->lim.max_seqs);
}

/* Returns the bytes of host memory that the modules allocate with any backend: the sum of the bytes that each module
 * reports for its init. */
static size_t host_bytes(pi__setup *s)
{
    const pi__memory *mem = &s->mem;
    const pi__tiering_config tiering = pi__plan_tiering(s);
    const pi__batch_shape step = pi__plan_shape(s);
    size_t n = pi__cache_bytes(mem->spec, mem->map.n_groups, mem->lim.max_seqs, mem->longest);
    n += pi__sched_bytes(mem->lim.max_seqs) + pi__snapshots_bytes(pi__plan_max_saves(mem));
    n += pi__rows_bytes(s->be->discrete, mem->lim.max_rows, s->m->n_vocab, s->m->n_embd);
    n += pi__runner_bytes(&step, s->m->n_vocab) + pi__classifier_bytes(&s->m->classifier);
    n += pi__dense_heads_bytes(&s->m->dense) + pi__media_host_bytes(s->encoder);
    n += pi__drafters_bytes(s);
    if (s->draft_model)
        n += pi__cache_bytes(s->draft_model_mem.spec, s->draft_model_mem.map.n_groups, mem->lim.max_seqs,
                             mem->longest);
    return n + pi__tiering_bytes(&tiering);
}

/* Returns the maximum bytes of the host tier. */
static uint64_t tier_bytes(pi__setup *s)
{
    const pi__tiering_config tiering = pi__plan_tiering(s);
    pi__host_config host;
    return pi__offload_plan(&tiering.offload, &host) ? pi__host_memory(&host) : 0;
}

/* -------------------------------------------------------------------------------------------- needed and free bytes */

/* Bytes by location. Memory of integrated devices counts in both. */
typedef struct bytes_at {
    uint64_t host;                      /* memory of the host */
    uint64_t device[PI__N_PLACEMENTS];  /* memory of each discrete device */
} bytes_at;

typedef struct room {
    bytes_at free;   /* UINT64_MAX = unknown */
    uint64_t swap;   /* bytes of swap of the host */
} room;

typedef struct need {
    bytes_at all;    /* everything */
    bytes_at kv;     /* cache pools, part of all */
} need;

static void read_room(pi__setup *s, room *r)
{
    pi__system_memory m;
    pi__system_memory_now(&m);
    r->free.host = m.available < m.mappable ? m.available : m.mappable;
    r->swap = m.swap;
    for (int32_t i = 0; i < pi__n_placements(s->be); i++) {
        pi__backend *be = pi__backend_at(s->be, i);
        const uint64_t left = be->discrete && be->opt->free_memory ? be->opt->free_memory(be) : 0;
        r->free.device[i] = left ? left : UINT64_MAX;
    }
}

/* Returns the number of ranks of be in this process. */
static uint64_t local_ranks(const pi__setup *s, const pi__backend *be)
{
    return be->n_ranks > 1 && !s->cfg.ranks ? (uint64_t) be->n_ranks : 1;
}

/* Adds the bytes of one backend. */
static void add_place(const pi__setup *s, const pi_plan *p, int32_t i, need *n)
{
    const pi__backend *be = pi__backend_at(s->be, i);
    const bool shared = s->cfg.weights_from && *s->cfg.weights_from; /* the owner process has the memory already */
    const uint64_t kv = p->place[i].kv_bytes, ranks = local_ranks(s, be);
    const uint64_t all = kv + (shared ? 0 : p->place[i].weights_bytes) + p->place[i].state_bytes +
                         p->place[i].scratch_bytes;
    if (be->discrete) n->all.device[i] += all, n->kv.device[i] += kv;
    if (be->discrete && !be->integrated) return;
    n->all.host += all * ranks;
    n->kv.host += kv * ranks;
}

/* Computes the sizes of the configured number of tokens, and their bytes. */
static int measure(pi__setup *s, need *n, pi_error *err)
{
    pi_plan p = {.size = sizeof p};
    *n = (need) {.all = {0}};
    int rc = pi__setup_size(s, err);
    if (rc) return rc;
    pi__setup_tell(s, 0, &p);
    for (uint32_t i = 0; i < p.n_places; i++) add_place(s, &p, (int32_t) i, n);
    n->all.host += host_bytes(s) + s->cfg.adapter_bytes;
    for (int32_t i = 0; i < PI__N_REGIONS; i++) n->all.host += s->m->weights[i].host;
    n->all.device[pi__default_placement(s->be)] += s->cfg.adapter_bytes;
    if (s->be->n_stages)
        n->all.host += s->mem.scratch + s->mem.image_bytes + pi__logits_bytes(&s->mem) +
                       s->m->weights_size[PI__AT_BOTH];
    return PI_OK;
}

/* True if the free memory is known wherever the cache has pools. */
static bool is_known(pi__setup *s, const room *r, const need *n)
{
    bool known = !n->kv.host || r->free.host != UINT64_MAX;
    for (int32_t i = 0; i < pi__n_placements(s->be); i++)
        known = known && (!n->kv.device[i] || r->free.device[i] != UINT64_MAX);
    return known;
}

static uint64_t part_of(uint64_t bytes, double share)
{
    return bytes == UINT64_MAX ? bytes : (uint64_t) ((double) bytes * share);
}

/* Returns the bytes that the plan may use on device i. */
static uint64_t device_limit(const pi__setup *s, const room *r, int32_t i, double share)
{
    const uint64_t left = r->free.device[i], limit = part_of(left, share);
    if (left == UINT64_MAX || !s->cfg.fit_margin || share >= 1) return limit;
    const uint64_t rest = left > s->cfg.fit_margin ? left - s->cfg.fit_margin : 0;
    return rest < limit ? rest : limit;
}

/* True if the plan fits this part of the free memory. Ranks of other processes may run on this machine, so each gets a
 * part of the host's memory. Where the host has pools, its tier of a device's evicted prefixes counts, but only half of
 * the memory that pools could use. Share 1 leaves only a small margin, and no tier. */
static bool fits(pi__setup *s, const room *r, const need *n, double share)
{
    for (int32_t i = 0; i < pi__n_placements(s->be); i++)
        if (n->all.device[i] > device_limit(s, r, i, share)) return false;
    if (!n->kv.host || r->free.host == UINT64_MAX) return true;
    const double most = 1 - 1.0 / SMALLEST_MARGIN;
    const double part = (share < most ? share : most) / (s->cfg.ranks ? s->be->n_ranks : 1);
    const uint64_t limit = part_of(r->free.host, part), fixed = n->all.host - n->kv.host;
    if (n->all.host > limit) return false;
    uint64_t tier = share < 1 ? tier_bytes(s) : 0;
    if (tier > (limit - fixed) / 2) tier = (limit - fixed) / 2;
    return n->all.host + tier <= limit;
}

/* -------------------------------------------------------------------------------------------- the size of the cache */

/* Finds the largest number of blocks in 0..hi whose plan fits; `block` tokens each. */
static int find_largest(pi__setup *s, const room *r, double share, int32_t block, int64_t hi, int64_t *n, pi_error *err)
{
    int64_t lo = 0, mid = hi; /* most caches fit completely */
    int rc = PI_OK;
    while (lo < hi && !rc) {
        need now;
        s->cfg.kv_tokens = (uint64_t) (mid * block);
        rc = measure(s, &now, err);
        if (!rc && fits(s, r, &now, share)) lo = mid;
        else hi = mid - 1;
        mid = lo + (hi - lo + 1) / 2;
    }
    *n = lo;
    return rc;
}

/* Returns the free bytes of the device, or of the host, whose memory the plan uses most of. */
static uint64_t limiting_bytes(pi__setup *s, const room *r, const need *n)
{
    uint64_t bytes = n->kv.host && r->free.host != UINT64_MAX ? r->free.host : 0;
    double used = bytes ? (double) n->all.host / (double) bytes : 0;
    for (int32_t i = 0; i < pi__n_placements(s->be); i++) {
        const uint64_t left = r->free.device[i];
        if (!n->kv.device[i] || left == UINT64_MAX || (double) n->all.device[i] <= used * (double) left) continue;
        used = (double) n->all.device[i] / (double) left;
        bytes = left;
    }
    return bytes;
}

static unsigned long long mib(uint64_t bytes) { return (unsigned long long) (bytes >> 20); }

/* Sets kv_tokens to the size that memory permits, at least one block. `smallest` blocks may use the margin. If they do
 * not fit either, only the number of tokens for a given ctx_size uses it, and a cache that would otherwise be empty. */
static int size_by_memory(pi__setup *s, const room *r, int32_t block, int64_t smallest, pi_error *err)
{
    const int64_t one = (s->mem.ctx + (int64_t) block - 1) / block;
    int64_t all = one * s->mem.lim.max_seqs, n, with_margin = 0;
    need now;
    if (all > INT32_MAX / 2) all = INT32_MAX / 2; /* blocks have numbers of 32 bits */
    int rc = find_largest(s, r, s->cfg.memory_share, block, all, &n, err);
    if (!rc && n < smallest) rc = find_largest(s, r, 1, block, smallest, &with_margin, err);
    if (rc) return rc;
    if (with_margin == smallest || s->cfg.ctx_size || !n) n = with_margin > n ? with_margin : n;
    if (!n) n = 1; /* does not fit: check_host or pi__fit_check reports the numbers */
    s->cfg.kv_tokens = (uint64_t) (n * block);
    s->cache_limit = n == all ? PI_CACHE_LIMIT_PARALLEL : PI_CACHE_LIMIT_MEMORY;
    rc = measure(s, &now, err);
    s->free_bytes = limiting_bytes(s, r, &now);
    return rc;
}

/* Sizes the cache: by its options, by the free memory, or as one request if that is unknown. */
static int size_cache(pi__setup *s, const room *r, pi_error *err)
{
    need least;
    int rc = measure(s, &least, err);
    if (rc) return rc;
    s->cache_limit = PI_CACHE_LIMIT_OPTION;
    s->free_bytes = limiting_bytes(s, r, &least);
    if (s->cfg.kv_tokens || s->cfg.kv_bytes) return PI_OK;
    s->cache_limit = PI_CACHE_LIMIT_UNKNOWN;
    if (s->cfg.memory_share <= 0 || !is_known(s, r, &least)) return PI_OK;
    int32_t block = s->cfg.block_size;
    int64_t smallest = 0;
    for (int32_t i = 0; i < s->mem.map.n_groups; i++) {
        const pi__group_spec *g = &s->mem.spec[i];
        if (g->block_size > block) block = g->block_size;
    }
    for (int32_t i = 0; i < s->mem.map.n_groups; i++) {
        const pi__group_spec *g = &s->mem.spec[i];
        const int64_t tokens = (int64_t) g->n_blocks * g->block_size;
        if (!g->state && tokens > smallest) smallest = tokens;
    }
    s->cache_limit = PI_CACHE_LIMIT_MEMORY;
    return size_by_memory(s, r, block, (smallest + block - 1) / block, err);
}

/* ----------------------------------------------------------------------------------------------------------- checks */

/* Refuses a ctx-size above the longest request that the cache holds. */
static int check_context(const pi__setup *s, pi_error *err)
{
    const int32_t asked = s->cfg.ctx_size, longest = s->mem.longest;
    if (!asked || longest >= asked) return PI_OK;
    if (s->cache_limit == PI_CACHE_LIMIT_OPTION)
        return pi__fail(err, PI_EINVAL,
                        "ctx-size is %d, but a cache of this size holds requests of up to %d tokens: lower ctx-size "
                        "to %d, or raise kv-cache-%s",
                        asked, longest, longest, s->cfg.kv_bytes ? "bytes" : "tokens");
    return pi__fail(err, PI_EINVAL,
                    "ctx-size is %d, but the cache that fits the %llu MiB of free memory holds requests of up to %d "
                    "tokens: lower ctx-size to %d, or give cache-type-k and cache-type-v smaller types",
                    asked, mib(s->free_bytes), longest, longest);
}

/* Warns about contexts that the model was not trained for. */
static void warn_trained(const pi__setup *s)
{
    const double stretch = s->cfg.rope.scale > 1 ? s->cfg.rope.scale : 1;
    const double trained = s->m->n_ctx_train * stretch;
    if (s->cfg.ctx_size <= trained) return;
    pi__logf(&s->cfg.log, PI_LOG_WARN,
             "ctx-size: %d tokens, but the model was trained for %.0f: answers beyond are unreliable, unless "
             "rope-scaling stretches the context",
             s->cfg.ctx_size, trained);
}

/* Refuses a model that the host's memory cannot hold: the system would end the process while it loads. A cache that
 * was asked for by options is committed later, so it is only a warning. Weights in weights-cache are a mapped file,
 * which the system can drop and read again. */
static int check_host(const pi__setup *s, const room *r, const need *n, pi_error *err)
{
    const bool file = s->cfg.weights_cache && *s->cfg.weights_cache;
    const bool with_cache = s->cfg.kv_commit || s->cache_limit == PI_CACHE_LIMIT_MEMORY;
    const uint64_t all = n->all.host, fixed = all - n->kv.host;
    const uint64_t left = r->free.host, most = left > UINT64_MAX - r->swap ? UINT64_MAX : left + r->swap;
    if (file || left == UINT64_MAX || all <= left) return PI_OK;
    if (fixed > most || (with_cache && all > most))
        return pi__fail(err, PI_ENOMEM,
                        "the model needs %llu MiB of host memory%s, and %llu MiB are available, with %llu MiB of swap: "
                        "free memory, raise the cgroup's limit, or give a smaller model%s",
                        mib(with_cache ? all : fixed), with_cache ? " with its cache" : "", mib(left), mib(r->swap),
                        with_cache ? " or cache" : "");
    pi__logf(&s->cfg.log, PI_LOG_WARN,
             "the model with its cache needs up to %llu MiB of host memory, and %llu MiB are available: the system may "
             "swap, or end the process; lower kv-cache-tokens",
             mib(all), mib(left));
    return PI_OK;
}

/* Sizes the cache by the memory that is free now, and reserves the host's part of it. */
static int size_and_reserve(pi__setup *s, pi__reservation *r, pi_error *err)
{
    room room;
    need now;
    pi__reserve_begin();
    read_room(s, &room);
    int rc = size_cache(s, &room, err);
    if (!rc) rc = measure(s, &now, err);
    if (!rc && r) rc = check_host(s, &room, &now, err);
    if (!rc && r) rc = check_context(s, err);
    if (!rc && r) pi__reserve_memory(r, now.all.host + tier_bytes(s));
    pi__reserve_end();
    return rc;
}

int pi__plan_check_weights(pi__setup *s, pi_error *err)
{
    room r;
    pi_plan p = {.size = sizeof p};
    uint64_t weights = 0;
    read_room(s, &r);
    pi__setup_tell(s, 0, &p);
    for (uint32_t i = 0; i < p.n_places; i++) {
        const pi__backend *be = pi__backend_at(s->be, (int32_t) i);
        if (!be->discrete || be->integrated) weights += p.place[i].weights_bytes * local_ranks(s, be);
    }
    if (r.free.host == UINT64_MAX || weights <= r.free.host || weights - r.free.host <= r.swap) return PI_OK;
    return pi__fail(err, PI_ENOMEM,
                    "the weights need %llu MiB of host memory, and %llu MiB are available, with %llu MiB of swap: free "
                    "memory, raise the cgroup's limit, or give a smaller model",
                    mib(weights), mib(r.free.host), mib(r.swap));
}

int pi__plan_setup(pi__setup *s, const pi__config *c, pi__reservation *r, pi_error *err)
{
    int rc = pi__setup_open(s, c, err);
    if (!rc && c->placement.fit) rc = pi__fit(s, err);
    if (!rc) rc = size_and_reserve(s, r, err);
    if (!rc && r) warn_trained(s);
    return rc;
}

uint64_t pi__plan_unwritten(const pi__setup *s, const pi__cache *cache, const pi__cache *draft_cache)
{
    const pi__memory *mem[] = {&s->mem, &s->draft_model_mem};
    const pi__cache *of[] = {cache, draft_cache};
    uint64_t n = 0;
    if (s->cfg.kv_commit) return 0;
    for (int k = 0; k < 2; k++) {
        for (int32_t i = 0; i < pi__n_placements(s->be); i++) {
            const pi__backend *be = pi__backend_at(s->be, i);
            if (be->discrete) continue; /* devices commit at allocation */
            const uint64_t ranks = local_ranks(s, be);
            for (int32_t g = 0; g < of[k]->n_groups; g++) {
                const int32_t left = mem[k]->map.n_blocks[g] - of[k]->group[g].pool.n_written;
                n += (uint64_t) left * mem[k]->map.bytes[g][i] * ranks;
            }
        }
    }
    return n;
}

/* ----------------------------------------------------------------------------------------------------------- report */

void pi__plan_tell(pi__setup *s, pi_plan *out)
{
    pi_plan p = {.size = sizeof p};
    pi__setup_tell(s, host_bytes(s), &p);
    p.host_cache_bytes = tier_bytes(s);
    p.cache_limit = s->cache_limit;
    p.free_bytes = s->free_bytes;
    (void) pi__versioned_copy(out, &p, sizeof p);
}

int pi__core_plan(const pi__config *c, pi_plan *out, pi_error *err)
{
    pi__setup s;
    pi__config meta = *c; /* only the metadata of its file is read */
    if (meta.load_mode == PI__LOAD_READ) meta.load_mode = PI__LOAD_MMAP;
    meta.progress = NULL;
    int rc = pi__versioned_check(out);
    if (rc) return rc;
    rc = pi__plan_setup(&s, &meta, NULL, err);
    if (!rc) pi__plan_tell(&s, out);
    pi__setup_free(&s);
    return rc;
}

static double in_mib(uint64_t bytes) { return (double) bytes / (1 << 20); }

/* Logs the placement of a split model. */
static void log_placement(const pi__log *log, const pi_plan *p)
{
    for (uint32_t i = 0; p->n_places > 1 && i < p->n_places; i++) {
        const uint64_t weights = p->place[i].weights_bytes, scratch = p->place[i].scratch_bytes;
        const uint64_t cache = p->place[i].kv_bytes + p->place[i].state_bytes;
        pi__logf(log, PI_LOG_INFO, "device   %8.1f  %s: weights %.1f, cache %.1f, scratch %.1f",
                 in_mib(weights + cache + scratch), p->place[i].name, in_mib(weights), in_mib(cache), in_mib(scratch));
    }
}

/* Logs the pools of a cache group. */
static void log_group(const pi__log *log, const pi_plan *p, uint32_t i)
{
    const uint64_t n = p->group[i].n_blocks, bytes = n * p->group[i].block_bytes;
    if (!strcmp(p->group[i].name, "recurrent")) {
        pi__logf(log, PI_LOG_INFO, "%-8s %8.1f  states of %u layers for %u requests", "states", in_mib(p->state_bytes),
                 p->group[i].n_layers, p->max_requests);
        pi__logf(log, PI_LOG_INFO, "%-8s %8.1f  %llu saved states", "snapshots", in_mib(bytes), (unsigned long long) n);
        return;
    }
    pi__logf(log, PI_LOG_INFO, "%-8s %8.1f  cache of %u layers: %llu blocks of %u tokens, %llu tokens%s",
             p->group[i].name, in_mib(bytes), p->group[i].n_layers, (unsigned long long) n, p->group[i].block_size,
             (unsigned long long) (n * p->group[i].block_size), p->group[i].window ? " within windows" : "");
}

/* Logs the number of requests that the cache holds, and the way to hold more. */
static void log_requests(const pi__log *log, const pi_plan *p)
{
    static const char *const more[] = {
        [PI_CACHE_LIMIT_OPTION] = "raise kv-cache-tokens or kv-cache-bytes, or leave them out",
        [PI_CACHE_LIMIT_PARALLEL] = "raise parallel",
        [PI_CACHE_LIMIT_MEMORY] = "raise memory-utilization, free memory, or give cache-type-k and cache-type-v "
                                  "smaller types",
        [PI_CACHE_LIMIT_UNKNOWN] = "set kv-cache-tokens",
    };
    const uint32_t usual = p->ctx_size < 1024 ? p->ctx_size : 1024;
    pi__logf(log, PI_LOG_INFO,
             "requests %8u  of %u tokens fit the cache, or %u of %u; at most %u run at the same time; for more %s",
             p->n_requests, p->ctx_size, p->n_requests_1k, usual, p->max_requests, more[p->cache_limit]);
}

void pi__plan_log(pi__setup *s, pi_plan *out)
{
    const pi__log *log = &s->cfg.log;
    *out = (pi_plan) {.size = sizeof *out};
    pi__plan_tell(s, out);
    if (!log->fn || log->level < PI_LOG_INFO) return;
    pi__logf(log, PI_LOG_INFO, s->cfg.tensor ? "memory        MiB of each device" : "memory        MiB");
    pi__logf(log, PI_LOG_INFO, "weights  %8.1f", in_mib(out->weights_bytes));
    for (uint32_t i = 0; i < out->n_groups; i++) log_group(log, out, i);
    pi__logf(log, PI_LOG_INFO, "scratch  %8.1f  steps of up to %d tokens", in_mib(out->scratch_bytes),
             s->cfg.max_batch_tokens);
    if (out->host_weights_bytes)
        pi__logf(log, PI_LOG_INFO, "host     %8.1f  host memory for experts, with copies of %d per layer on the device",
                 in_mib(out->host_weights_bytes), s->cfg.placement.n_slot);
    if (out->host_cache_bytes)
        pi__logf(log, PI_LOG_INFO, "host     %8.1f  host memory, at most, for prefixes evicted from the device",
                 in_mib(out->host_cache_bytes));
    pi__logf(log, PI_LOG_INFO, "total    %8.1f  context %u, up to %u running requests", in_mib(out->total_bytes),
             out->ctx_size, out->max_requests);
    log_requests(log, out);
    log_placement(log, out);
}
