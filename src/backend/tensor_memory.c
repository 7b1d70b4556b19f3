/* Memory of a tensor-parallel backend (see tensor.c): allocations, arenas, uploads and background copies. Each function
 * does its work on every rank of this process, and sends a command to the other processes (tensor_orders.c).
 *
 * Memory: the devices'; the object has the table of regions. Threads: the one thread that uses the backend. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/tensor_impl.h"

/* Returns a free entry of t->region; NULL = all entries are in use. */
static region *free_region(pi__tensor *t)
{
    for (region *r = t->region; r < t->region + MAX_REGIONS; r++)
        if (!r->base) return r;
    return NULL;
}

static void region_free(pi__tensor *t, region *r)
{
    for (int32_t i = t->first; i < t->end; i++) {
        pi__backend *dev = t->rank[i].be;
        if (r->at[i] && r->arena) dev->opt->arena_free(dev, r->at[i], r->size);
        else if (r->at[i]) dev->dev->free(dev, r->at[i], r->size);
    }
    memset(r, 0, sizeof *r);
}

static region *region_of(pi__tensor *t, const void *p)
{
    for (region *r = t->region; r < t->region + MAX_REGIONS; r++)
        if (p && r->base == p) return r;
    return NULL;
}

/* Allocates memory, or an arena's addresses, on all devices of this process. All devices use the same size:
 * matrices are sharded evenly. Returns NULL if out of memory. */
static region *region_alloc(pi__tensor *t, size_t size, bool arena)
{
    region *r = free_region(t);
    if (!r) return NULL;
    bool all = true;
    r->size = size, r->arena = arena;
    for (int32_t i = t->first; i < t->end && all; i++) {
        pi__backend *dev = t->rank[i].be;
        r->at[i] = arena ? dev->opt->arena_alloc(dev, size) : dev->dev->alloc(dev, size);
        all = r->at[i] != NULL;
    }
    if (!all) region_free(t, r);
    return all ? r : NULL;
}

/* Allocates memory, or reserves an arena, on all devices, in other processes too. Returns rank 0's address, or NULL. */
static void *alloc_all(pi__backend *be, size_t size, bool arena)
{
    pi__tensor *t = pi__tensor_settled(be);
    region *r = region_alloc(t, size, arena);
    if (!r) return NULL;
    r->base = r->at[0];
    if (pi__order_memory(t, arena ? PI__ORDER_ARENA : PI__ORDER_ALLOC, r->base, size)) return r->base;
    pi__order_memory(t, PI__ORDER_FREE, r->base, size);
    region_free(t, r);
    return NULL;
}
static void *tensor_alloc(pi__backend *be, size_t size) { return alloc_all(be, size, false); }
static void *tensor_arena_alloc(pi__backend *be, size_t size) { return alloc_all(be, size, true); }

static void tensor_free(pi__backend *be, void *p, size_t size)
{
    pi__tensor *t = pi__tensor_settled(be);
    region *r = region_of(t, p);
    if (!r) return;
    pi__order_memory(t, PI__ORDER_FREE, p, size);
    region_free(t, r);
}

int pi__tensor_keep_region(pi__tensor *t, char *base, size_t size, bool arena)
{
    region *r = base && (!arena || t->opt.arena_alloc) ? region_alloc(t, size, arena) : NULL;
    if (!r) return PI_ENOMEM;
    r->base = base;
    return PI_OK;
}

void pi__tensor_drop_region(pi__tensor *t, const char *base)
{
    region *r = region_of(t, base);
    if (r) region_free(t, r);
}

/* Returns the minimum of the free bytes over the devices of this process; 0 = unknown. */
static uint64_t tensor_free_memory(pi__backend *be)
{
    pi__tensor *t = pi__tensor_settled(be);
    uint64_t least = 0;
    for (int32_t i = t->first; i < t->end; i++) {
        pi__backend *dev = t->rank[i].be;
        const uint64_t bytes = dev->opt->free_memory ? dev->opt->free_memory(dev) : 0;
        if (i == t->first || bytes < least) least = bytes;
    }
    return least;
}

enum { COMMIT_MOST = 1 << 30 /* max bytes per PI__ORDER_COMMIT, few enough that no rank exceeds the timeout */ };

static void tensor_commit(pi__backend *be, void *p, size_t size)
{
    pi__tensor *t = pi__tensor_settled(be);
    for (size_t at = 0; at < size; at += COMMIT_MOST) {
        const size_t n = size - at < COMMIT_MOST ? size - at : COMMIT_MOST;
        for (int32_t i = t->first; i < t->end; i++) {
            rank *k = &t->rank[i];
            k->be->dev->commit(k->be, (char *) pi__tensor_at(k, p) + at, n);
        }
        pi__order_memory(t, PI__ORDER_COMMIT, (char *) p + at, n);
    }
}

static void tensor_trim(pi__backend *be, void *p, size_t size)
{
    pi__tensor *t = pi__tensor_settled(be);
    for (int32_t i = t->first; i < t->end; i++)
        t->rank[i].be->dev->trim(t->rank[i].be, pi__tensor_at(&t->rank[i], p), size);
    pi__order_memory(t, PI__ORDER_TRIM, p, size);
}

/* Unmaps p..p + size on the ranks of this process with numbers below `end`. */
static void unmap_ranks(pi__tensor *t, int32_t end, void *p, size_t size)
{
    for (int32_t i = t->first; i < end; i++) {
        rank *k = &t->rank[i];
        k->be->opt->arena_unmap(k->be, pi__tensor_at(k, p), size);
    }
}

static bool tensor_arena_map(pi__backend *be, void *p, size_t size)
{
    pi__tensor *t = pi__tensor_settled(be);
    int32_t i = t->first;
    for (bool ok = true; i < t->end && ok; i += ok) {
        rank *k = &t->rank[i];
        ok = k->be->opt->arena_map(k->be, pi__tensor_at(k, p), size);
    }
    const bool all = i == t->end && pi__order_memory(t, PI__ORDER_MAP, p, size);
    if (!all) unmap_ranks(t, i, p, size);
    return all;
}

static void tensor_arena_unmap(pi__backend *be, void *p, size_t size)
{
    pi__tensor *t = pi__tensor_settled(be);
    unmap_ranks(t, t->end, p, size);
    pi__order_memory(t, PI__ORDER_UNMAP, p, size);
}

/* Returns a mark for the memory of rank k, derived from the mark of all devices' memory. */
static pi__digest mark_of(const pi__digest *mark, const rank *k)
{
    return pi__hash_chain(PI__HASH_IMAGE_RANK, mark, &k->i, sizeof k->i);
}

static int tensor_arena_share(pi__backend *be, void *p, size_t size, const pi__digest *mark, int *fd, pi_error *err)
{
    pi__tensor *t = pi__tensor_settled(be);
    int32_t i = 0;
    int rc = PI_OK;
    for (int32_t r = 0; r < t->n; r++) fd[r] = -1;
    for (; i < t->n && !rc; i += !rc) {
        const rank *k = &t->rank[i];
        const pi__digest own = mark_of(mark, k);
        rc = k->be->opt->arena_share(k->be, pi__tensor_at(k, p), size, &own, &fd[i], err);
    }
    if (!rc) return PI_OK;
    unmap_ranks(t, i, p, size);
    while (i-- > 0) {
        (void) close(fd[i]);
        fd[i] = -1;
    }
    return rc;
}

static int tensor_arena_adopt(pi__backend *be, void *p, size_t size, const pi__digest *mark, const int *fd,
                              pi_error *err)
{
    pi__tensor *t = pi__tensor_settled(be);
    int32_t i = 0;
    int rc = PI_OK;
    for (; i < t->n && !rc; i += !rc) {
        const rank *k = &t->rank[i];
        const pi__digest own = mark_of(mark, k);
        rc = k->be->opt->arena_adopt(k->be, pi__tensor_at(k, p), size, &own, &fd[i], err);
    }
    if (rc) unmap_ranks(t, i, p, size);
    return rc;
}

static void tensor_identify(const pi__backend *be, char *out, size_t size)
{
    const pi__tensor *t = (const pi__tensor *) be;
    *out = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const size_t at = strlen(out);
        const int sep = i ? snprintf(out + at, size - at, ",") : 0;
        if (at + (size_t) sep < size)
            t->rank[i].be->opt->identify(t->rank[i].be, out + at + sep, size - at - (size_t) sep);
    }
}

static void tensor_upload(pi__backend *be, void *dst, const void *src, size_t n)
{
    pi__tensor *t = pi__tensor_settled(be);
    for (int32_t i = t->first; i < t->end; i++)
        t->rank[i].be->dev->upload(t->rank[i].be, pi__tensor_at(&t->rank[i], dst), src, n);
    pi__order_upload(t, dst, src, n);
}

static void *tensor_host_alloc(pi__backend *be, size_t size)
{
    pi__backend *own = pi__tensor_settled(be)->rank[0].be;
    return own->dev->host_alloc(own, size);
}
static void tensor_host_free(pi__backend *be, void *p, size_t size)
{
    pi__backend *own = pi__tensor_settled(be)->rank[0].be;
    own->dev->host_free(own, p, size);
}

/* Queues a background copy of n bytes on each rank; the ranks' parts lie in rank order in host memory. Returns the
 * copy's number. If a rank cannot queue its copy, waits for the copies of the others and returns 0: the caller may
 * reuse the memory. */
static uint64_t copy_all(pi__backend *be, void *device, char *host, size_t n, bool out)
{
    pi__tensor *t = pi__tensor_settled(be);
    int32_t i = 0;
    for (bool ok = true; i < t->n && ok; i += ok) {
        rank *k = &t->rank[i];
        void *at = pi__tensor_at(k, device), *part = host + (size_t) i * n;
        ok = out ? k->be->opt->copy_out(k->be, part, at, n) : k->be->opt->copy_in(k->be, at, part, n);
    }
    if (i == t->n) return ++t->n_copies;
    for (uint64_t ended; i-- > 0;) {
        rank *k = &t->rank[i];
        (void) k->be->opt->copies(k->be, true, &ended);
        k->n_unnumbered++;
    }
    return 0;
}
static uint64_t tensor_copy_out(pi__backend *be, void *host, const void *src, size_t n)
{
    return copy_all(be, (void *) src, host, n, true);
}
static uint64_t tensor_copy_in(pi__backend *be, void *dst, const void *host, size_t n)
{
    return copy_all(be, dst, (char *) host, n, false);
}

static bool tensor_copies(pi__backend *be, bool wait, uint64_t *ended)
{
    pi__tensor *t = (pi__tensor *) be;
    bool all = true;
    *ended = t->n_copies;
    for (int32_t i = 0; i < t->n; i++) {
        rank *k = &t->rank[i];
        uint64_t n = 0;
        all = k->be->opt->copies(k->be, wait, &n) && all;
        n = n > k->n_unnumbered ? n - k->n_unnumbered : 0;
        if (n < *ended) *ended = n;
    }
    return all;
}

/* Pins host memory by the first device; it is then pinned for all devices. */
static bool tensor_pin(pi__backend *be, void *host, size_t n)
{
    const rank *k = pi__tensor_first(be);
    return k->be->opt->pin(k->be, host, n);
}
static void tensor_unpin(pi__backend *be, void *host, size_t n)
{
    const rank *k = pi__tensor_first(be);
    k->be->opt->unpin(k->be, host, n);
}

void pi__tensor_free_regions(pi__tensor *t)
{
    for (region *r = t->region; r < t->region + MAX_REGIONS; r++)
        if (r->base) region_free(t, r);
}

/* Sets the page size of the arenas: the largest page size of the devices, which is a multiple of all others; 0 if a
 * device has no pages. Also sets `exports`: all devices can export memory, and all are in this process. */
static void set_page(pi__tensor *t)
{
    for (int32_t i = t->first; i < t->end; i++) {
        const size_t page = t->rank[i].be->page;
        if (i == t->first || !page || (t->be.page && page > t->be.page)) t->be.page = page;
        t->be.exports = !t->ranks && (i == t->first || t->be.exports) && t->rank[i].be->exports;
    }
}

/* If the ranks are processes, background copies are left out: a block's host copy would be spread over all
 * processes. */
void pi__tensor_set_memory(pi__tensor *t)
{
    const pi__device_opt *can = t->rank[t->first].be->opt;
    t->dev.alloc = tensor_alloc;
    t->dev.free = tensor_free;
    t->opt.free_memory = tensor_free_memory;
    t->dev.commit = tensor_commit;
    t->dev.trim = tensor_trim;
    t->dev.upload = tensor_upload;
    t->dev.host_alloc = tensor_host_alloc;
    t->dev.host_free = tensor_host_free;
    if (can->copy_out && !t->ranks) {
        t->opt.copy_out = tensor_copy_out;
        t->opt.copy_in = tensor_copy_in;
        t->opt.copies = tensor_copies;
        t->opt.pin = tensor_pin;
        t->opt.unpin = tensor_unpin;
    }
    if (can->identify && !t->ranks) t->opt.identify = tensor_identify;
    set_page(t);
    if (!t->be.page) return;
    t->opt.arena_alloc = tensor_arena_alloc;
    t->opt.arena_free = tensor_free;
    t->opt.arena_map = tensor_arena_map;
    t->opt.arena_unmap = tensor_arena_unmap;
    t->opt.arena_share = tensor_arena_share;
    t->opt.arena_adopt = tensor_arena_adopt;
}
