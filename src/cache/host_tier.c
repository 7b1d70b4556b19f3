/* The host tier (see host_tier.h): slots, and the thread that pins their memory. */
#include "cache/host_tier.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"

enum { CHUNK = 32 << 20 /* bytes pinned at a time; a chunk has at least one slot */ };

typedef struct host_group {
    pi__block_pool pool;   /* pool of the group's slots */
    char *base;            /* address of the first chunk */
    size_t bytes;          /* bytes per slot */
    size_t chunk_bytes;    /* bytes per chunk, a multiple of the page size */
    int32_t per_chunk;     /* slots per chunk */
    int32_t n_chunks;      /* chunks in total */
    atomic_int n_ready;    /* pinned chunks */
    atomic_int wanted;     /* chunks requested so far; written with the lock held */
} host_group;

struct pi__host_tier {
    pi__host_config config; /* copy of the config given to open */
    host_group group[PI__HOST_MAX_GROUPS];
    char *region;          /* memory of all chunks */
    size_t region_size;    /* bytes */
    atomic_bool full;      /* pinning failed: no more chunks are pinned */
    pthread_mutex_t lock;  /* guards wanted and closing, which the pinning thread waits for */
    pthread_cond_t wake;   /* signals that wanted or closing changed */
    pthread_t thread;
    bool thread_started;
    bool closing;
};

static size_t page_size(void) { return (size_t) sysconf(_SC_PAGESIZE); }

/* Sets the sizes of group i's chunks in g. Returns the bytes of all its chunks; 0 = the group has no slots, SIZE_MAX =
 * overflow. */
static size_t lay_out(host_group *g, const pi__host_config *c, int32_t i)
{
    size_t page = page_size(), all;
    g->bytes = c->group[i].bytes;
    if (!c->group[i].n_slots) return 0;
    if (!g->bytes || g->bytes > SIZE_MAX / 4) return SIZE_MAX;
    g->per_chunk = g->bytes < CHUNK ? (int32_t) (CHUNK / g->bytes) : 1;
    if (g->per_chunk > c->group[i].n_slots) g->per_chunk = c->group[i].n_slots;
    g->chunk_bytes = ((size_t) g->per_chunk * g->bytes + page - 1) / page * page;
    g->n_chunks = (int32_t) (((int64_t) c->group[i].n_slots + g->per_chunk - 1) / g->per_chunk);
    return pi__mul_ok((size_t) g->n_chunks, g->chunk_bytes, &all) ? all : SIZE_MAX;
}

size_t pi__host_memory(const pi__host_config *c)
{
    size_t all = 0;
    for (int32_t i = 0; i < c->n_groups; i++) {
        host_group g = {.bytes = 0};
        if (!pi__add_ok(all, lay_out(&g, c, i), &all)) return SIZE_MAX;
    }
    return all;
}

size_t pi__host_lists(const pi__host_config *c)
{
    size_t all = 0;
    for (int32_t i = 0; i < c->n_groups; i++) all += pi__block_pool_bytes(c->group[i].n_slots, c->group[i].block_size);
    return all;
}

/* ------------------------------------------------------------------------------------------------------ the thread */

/* Returns the group with the fewest pinned chunks among the groups that requested more; NULL = no group did. */
static host_group *next_to_grow(pi__host_tier *h)
{
    host_group *best = NULL;
    for (int32_t i = 0; i < h->config.n_groups; i++) {
        host_group *g = &h->group[i];
        if (g->n_ready < g->wanted && (!best || g->n_ready < best->n_ready)) best = g;
    }
    return best;
}

/* Pins the group's next chunk. On failure, sets h->full: no chunk is pinned from now on. */
static void take_chunk(pi__host_tier *h, host_group *g)
{
    if (h->config.pin(h->config.ud, g->base + (size_t) g->n_ready * g->chunk_bytes, g->chunk_bytes)) {
        atomic_fetch_add(&g->n_ready, 1);
        return;
    }
    atomic_store(&h->full, true);
    pi__logf(&h->config.log, PI_LOG_WARN,
             "the host cache (cache-ram) cannot pin more memory: it keeps its current size");
}

static void *grow(void *arg)
{
    pi__host_tier *h = arg;
    pthread_mutex_lock(&h->lock);
    while (!h->closing) {
        host_group *g = h->full ? NULL : next_to_grow(h);
        if (!g) {
            pthread_cond_wait(&h->wake, &h->lock);
            continue;
        }
        pthread_mutex_unlock(&h->lock);
        take_chunk(h, g);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void want_chunks(pi__host_tier *h, host_group *g, int32_t n)
{
    if (n > g->n_chunks) n = g->n_chunks;
    if (g->wanted >= n || h->full) return;
    pthread_mutex_lock(&h->lock);
    g->wanted = n;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
}

/* ----------------------------------------------------------------------------------------------------- open, close */

static int open_groups(pi__host_tier *h, pi_error *err)
{
    const pi__host_config *c = &h->config;
    h->region_size = pi__host_memory(c);
    h->region = h->region_size && h->region_size != SIZE_MAX ? pi__map(h->region_size) : NULL;
    if (!h->region) return pi__fail_mem(err, "the host cache (cache-ram)");
    size_t at = 0;
    for (int32_t i = 0; i < c->n_groups; i++) {
        host_group *g = &h->group[i];
        g->base = h->region + at;
        at += lay_out(g, c, i);
        int rc = pi__block_pool_init(&g->pool, c->group[i].n_slots, c->group[i].block_size, err);
        if (rc) return rc;
    }
    return PI_OK;
}

static bool start_thread(pi__host_tier *h) { return h->thread_started = pi__thread_start(&h->thread, grow, h); }

int pi__host_open(pi__host_tier **out, const pi__host_config *config, pi_error *err)
{
    *out = NULL;
    pi__host_tier *h = pi__calloc(1, sizeof *h);
    if (!h) return pi__fail_mem(err, "the host cache");
    h->config = *config;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->wake, NULL);
    int rc = open_groups(h, err);
    for (int32_t i = 0; i < config->n_groups && !rc && !h->full; i++) {
        h->group[i].wanted = h->group[i].n_chunks > 0;
        if (h->group[i].wanted) take_chunk(h, &h->group[i]);
    }
    if (!rc && !start_thread(h)) rc = pi__fail(err, PI_ENOMEM, "cannot start the host cache's thread");
    if (rc) {
        pi__host_close(h);
        return rc;
    }
    *out = h;
    return PI_OK;
}

void pi__host_close(pi__host_tier *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->closing = true;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
    if (h->thread_started) pthread_join(h->thread, NULL);
    for (int32_t i = 0; i < h->config.n_groups; i++) {
        host_group *g = &h->group[i];
        for (int32_t k = 0; k < g->n_ready; k++)
            h->config.unpin(h->config.ud, g->base + (size_t) k * g->chunk_bytes, g->chunk_bytes);
        pi__block_pool_destroy(&g->pool);
    }
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->lock);
    if (h->region) pi__unmap(h->region, h->region_size);
    pi__free(h);
}

/* ----------------------------------------------------------------------------------------------------------- slots */

int32_t pi__host_take(pi__host_tier *h, int32_t group)
{
    host_group *g = &h->group[group];
    for (;;) {
        int32_t id = pi__block_get_new(&g->pool);
        if (id < 0) return -1;
        int32_t chunk = id / g->per_chunk;
        bool full = h->full; /* read before n_ready: if full is set, n_ready no longer changes */
        /* in the second half of a chunk: requests the next chunk in advance */
        if (id % g->per_chunk >= g->per_chunk / 2) want_chunks(h, g, chunk + 2);
        if (chunk < g->n_ready) return id;
        /* the chunk will never be pinned: keep the reference, so that the slot is not handed out again */
        if (full) continue;
        want_chunks(h, g, chunk + 1);
        pi__block_release(&g->pool, id);
        return -1;
    }
}

void *pi__host_at(const pi__host_tier *h, int32_t group, int32_t slot)
{
    const host_group *g = &h->group[group];
    return g->base + (size_t) (slot / g->per_chunk) * g->chunk_bytes + (size_t) (slot % g->per_chunk) * g->bytes;
}

bool pi__host_grows(const pi__host_tier *h)
{
    bool any = false;
    for (int32_t i = 0; i < h->config.n_groups; i++) any = any || h->group[i].n_ready < h->group[i].wanted;
    return any && !h->full;
}

pi__block_pool *pi__host_pool(pi__host_tier *h, int32_t group) { return &h->group[group].pool; }

void pi__host_clear(pi__host_tier *h, const uint64_t *tenant)
{
    for (int32_t i = 0; i < h->config.n_groups; i++) pi__block_pool_clear(&h->group[i].pool, tenant);
}

void pi__host_count(const pi__host_tier *h, uint64_t *entries, uint64_t *bytes)
{
    *entries = *bytes = 0;
    for (int32_t i = 0; i < h->config.n_groups; i++) {
        *entries += (uint64_t) h->group[i].pool.n_cached;
        *bytes += (uint64_t) h->group[i].pool.n_cached * h->group[i].bytes;
    }
}
