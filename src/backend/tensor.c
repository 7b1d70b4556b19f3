/* Several devices as one (tensor parallelism): memory, weights, threads and steps. tensor_ops.c has the ops.
 *
 * Each device is a rank. The graph runs once, on the step thread, and only records ops; finish() lets every rank
 * make the same calls on its own device. These are sharded, so that each rank has only a part:
 *
 *   matrices    by rows, if these divide; a rank computes its columns of the result, which are all-gathered
 *   cache       by KV heads, if these divide; then queries, keys and values stay sharded too, and only the output
 *               of attention is all-gathered
 *   experts     the rows of gate and up, and of down, of every expert
 *   embeddings  by tokens
 *
 * Everything else is replicated: norms, rotations, recurrent states, a clustered lm_head, tensors that do not
 * divide. Each value of a result, sums included, is computed by one rank in the same way as on a single device. So
 * results are bitwise identical for any number of ranks.
 *
 * Activations are replicated on all ranks. Pointers in the graph are rank 0's; each rank looks up its own
 * address. Memory: this object, and on each device a stage: a buffer for results in transit. Threads: as device.h
 * says. Rank 0's device is used by the step thread, each other device by its rank's thread; between runs the step
 * thread may use all of them. Invariant: between runs, all ranks have made the same calls.
 *
 * The ranks may be processes on one or several machines. Then each process has one device, and this object with
 * only that rank in it. Rank 0 sends commands to the others (tensor_orders.c), which execute them
 * (tensor_follow.c). Calls are sent as records (tensor_wire.c).
 *
 * If the devices capture decode steps, each captures its own queue with its all-gathers. A captured all-gather can
 * only meet those that the other ranks captured with it. So all ranks must capture and replay the same steps. They
 * do, since all are given the same steps. A rank that deviates, because of a failure, leaves the link immediately. */
#include "backend/tensor.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/tensor_impl.h"
#include "backend/tensor_wire.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"
#include "formats/formats.h"

static size_t align64(size_t n) { return (n + 63) & ~(size_t) 63; }
static rank *first_of(const pi__backend *be)
{
    pi__tensor *t = (pi__tensor *) be;
    return &t->rank[t->first];
}

/* ------------------------------------------------------------------------------------------------------------- runs */

/* Drops captured graphs, which refer to the link, before the rank leaves it. */
static void graph_reset(rank *k)
{
    if (k->be->dev->graph_reset) k->be->dev->graph_reset(k->be);
}

static void leave(rank *k)
{
    pi__link *l = k->t->link;
    k->lost = true;
    pthread_mutex_lock(&k->t->lock);
    k->t->any_lost = true;
    pthread_cond_broadcast(&k->t->made);
    pthread_mutex_unlock(&k->t->lock);
    graph_reset(k);
    if (l) l->ops->leave(l, k->i);
}

/* In a step that may be captured: makes this rank's graph, and waits until all ranks have made theirs. Only then
 * may a graph be replayed, because on its device it waits for the other ranks. All ranks call this at the same
 * calls. If a rank has left, the others do not wait. */
void pi__tensor_meet(rank *k)
{
    pi__tensor *t = k->t;
    if (k->met || t->kind == PI__STEP_ANY || t->replays || !k->be->dev->make_graph) return;
    k->met = true;
    if (!k->be->dev->make_graph(k->be)) k->lost = k->failed = true;
    pthread_mutex_lock(&t->lock);
    t->n_met++;
    t->any_lost |= k->lost;
    pthread_cond_broadcast(&t->made);
    while (t->n_met < t->end - t->first && !t->any_lost) pthread_cond_wait(&t->made, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

/* Waits for the rank's queued work, including its all-gathers. */
static void end_rank(rank *k)
{
    const pi__device_fns *op = k->be->dev;
    pi__link *l = k->t->link;
    int how = PI__LINK_DONE;
    if (op->end_capture && !op->end_capture(k->be)) how = PI__LINK_FAILED;
    else if (l) how = l->ops->wait(l, k->i);
    k->failed = how == PI__LINK_FAILED;
    if (how != PI__LINK_DONE) leave(k);
}

void pi__tensor_run_rank(rank *k)
{
    pi__tensor *t = k->t;
    const bool was_lost = k->lost;
    for (int32_t i = 0; i < t->n_calls && !k->lost; i++) t->calls[i].run(k, &t->calls[i]);
    if (t->ends && !k->lost) pi__tensor_meet(k);
    if (k->lost && !was_lost) leave(k);
    if (!t->ends) return;
    if (!k->lost) end_rank(k);
    memset(&k->err, 0, sizeof k->err);
    k->rc = k->be->dev->finish(k->be, &k->err);
}

static void *rank_main(void *arg)
{
    rank *k = arg;
    pi__tensor *t = k->t;
    uint64_t seen = 0;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->run_no == seen && !t->quit) pthread_cond_wait(&t->wake, &t->lock);
        if (t->quit) break;
        seen = t->run_no;
        pthread_mutex_unlock(&t->lock);
        pi__tensor_run_rank(k);
        pthread_mutex_lock(&t->lock);
        t->n_done++;
        pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Sets t->rc to the first error. Ranks that failed themselves come first, then ranks that were left by others. */
static void keep_error(pi__tensor *t)
{
    const bool dead = t->ranks && atomic_load(&t->ranks->dead);
    if (dead && !t->rc) t->rc = pi__fail(&t->err, t->rank[0].rc, "%s", t->rank[0].err.msg);
    for (int32_t pass = 0; pass < 3; pass++)
        for (int32_t i = 0; i < t->n && !t->rc; i++) {
            const rank *k = &t->rank[i];
            const bool own = k->failed || !k->lost;
            if (k->rc && (own || pass)) t->rc = pi__fail(&t->err, k->rc, "device %d of %d: %s", i + 1, t->n, k->err.msg);
            else if (k->lost && pass == 2)
                t->rc = pi__fail(&t->err, PI_EDEVICE, "device %d of %d: the other devices did not respond",
                                 i + 1, t->n);
        }
    for (int32_t i = 0; i < t->n; i++) t->rank[i].lost = t->rank[i].failed = false;
    t->any_lost = false;
}

/* Makes the recorded calls on every rank. ends: also waits for them. */
static void run(pi__tensor *t, bool ends)
{
    const bool told = pi__order_run(t, ends);
    pthread_mutex_lock(&t->lock);
    t->ends = ends;
    t->n_done = 0;
    t->run_no++;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    if (!told) t->rank[0].lost = true;
    pi__tensor_run_rank(&t->rank[0]);
    pthread_mutex_lock(&t->lock);
    while (t->n_done < t->end - t->first - 1) pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
    pi__order_run_end(t, ends);
    if (ends) keep_error(t);
    t->n_calls = 0;
}

/* Makes the recorded calls before the step thread uses a device directly. */
static pi__tensor *settled(pi__backend *be)
{
    pi__tensor *t = (pi__tensor *) be;
    if (t->n_calls) run(t, true);
    return t;
}

call *pi__tensor_note(pi__tensor *t, void (*run_one)(rank *k, const call *c))
{
    if (t->n_calls == MAX_CALLS) run(t, false);
    call *c = &t->calls[t->n_calls++];
    c->run = run_one;
    return c;
}

static int tensor_finish(pi__backend *be, pi_error *err)
{
    pi__tensor *t = (pi__tensor *) be;
    run(t, true);
    int rc = t->rc;
    if (rc) pi__fail(err, rc, "%s", t->err.msg);
    t->rc = PI_OK;
    be->n_attended = be->n_possible = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const rank *k = &t->rank[i];
        be->n_attended += k->be ? k->be->n_attended : k->n_attended;
        be->n_possible += k->be ? k->be->n_possible : k->n_possible;
    }
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

void *pi__tensor_at(const rank *k, const void *p)
{
    if (!p || !k->i) return (void *) p;
    for (const region *r = k->t->region; r < k->t->region + MAX_REGIONS; r++) {
        const uintptr_t off = (uintptr_t) p - (uintptr_t) r->base;
        if (r->base && off < r->size) return r->at[k->i] + off;
    }
    return k->t->ranks ? NULL : (void *) p; /* a host address of rank 0, in another process */
}

/* Returns a free entry; NULL = all entries are in use. */
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
        if (r->at[i] && r->arena) dev->dev->arena_free(dev, r->at[i], r->size);
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
        r->at[i] = arena ? dev->dev->arena_alloc(dev, size) : dev->dev->alloc(dev, size);
        all = r->at[i] != NULL;
    }
    if (!all) region_free(t, r);
    return all ? r : NULL;
}

/* Allocates on all devices, also in other processes. Returns rank 0's address. */
static void *alloc_all(pi__backend *be, size_t size, bool arena)
{
    pi__tensor *t = settled(be);
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
    pi__tensor *t = settled(be);
    region *r = region_of(t, p);
    if (!r) return;
    pi__order_memory(t, PI__ORDER_FREE, p, size);
    region_free(t, r);
}

int pi__tensor_keep_region(pi__tensor *t, char *base, size_t size, bool arena)
{
    region *r = base && (!arena || t->dev.arena_alloc) ? region_alloc(t, size, arena) : NULL;
    if (!r) return PI_ENOMEM;
    r->base = base;
    return PI_OK;
}

void pi__tensor_drop_region(pi__tensor *t, const char *base)
{
    region *r = region_of(t, base);
    if (r) region_free(t, r);
}

/* Returns the minimum over the devices of this process. */
static uint64_t tensor_free_memory(pi__backend *be)
{
    pi__tensor *t = settled(be);
    uint64_t least = 0;
    for (int32_t i = t->first; i < t->end; i++) {
        pi__backend *dev = t->rank[i].be;
        const uint64_t bytes = dev->dev->free_memory ? dev->dev->free_memory(dev) : 0;
        if (i == t->first || bytes < least) least = bytes;
    }
    return least;
}

enum { COMMIT_MOST = 1 << 30 /* bytes per call, few enough that no rank exceeds the timeout */ };

static void tensor_commit(pi__backend *be, void *p, size_t size)
{
    pi__tensor *t = settled(be);
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
    pi__tensor *t = settled(be);
    for (int32_t i = t->first; i < t->end; i++) t->rank[i].be->dev->trim(t->rank[i].be, pi__tensor_at(&t->rank[i], p), size);
    pi__order_memory(t, PI__ORDER_TRIM, p, size);
}

/* Unmaps p on the ranks of this process below `end`. */
static void unmap_ranks(pi__tensor *t, int32_t end, void *p, size_t size)
{
    for (int32_t i = t->first; i < end; i++) {
        rank *k = &t->rank[i];
        k->be->dev->arena_unmap(k->be, pi__tensor_at(k, p), size);
    }
}

static bool tensor_arena_map(pi__backend *be, void *p, size_t size)
{
    pi__tensor *t = settled(be);
    int32_t i = t->first;
    for (bool ok = true; i < t->end && ok; i += ok) {
        rank *k = &t->rank[i];
        ok = k->be->dev->arena_map(k->be, pi__tensor_at(k, p), size);
    }
    const bool all = i == t->end && pi__order_memory(t, PI__ORDER_MAP, p, size);
    if (!all) unmap_ranks(t, i, p, size);
    return all;
}

static void tensor_arena_unmap(pi__backend *be, void *p, size_t size)
{
    pi__tensor *t = settled(be);
    unmap_ranks(t, t->end, p, size);
    pi__order_memory(t, PI__ORDER_UNMAP, p, size);
}

/* Derives the mark of one device's memory. */
static pi__digest mark_of(const pi__digest *mark, const rank *k)
{
    return pi__hash_chain(PI__HASH_IMAGE_RANK, mark, &k->i, sizeof k->i);
}

static int tensor_arena_share(pi__backend *be, void *p, size_t size, const pi__digest *mark, int *fd, pi_error *err)
{
    pi__tensor *t = settled(be);
    int32_t i = 0;
    int rc = PI_OK;
    for (; i < t->n && !rc; i += !rc) {
        const rank *k = &t->rank[i];
        const pi__digest own = mark_of(mark, k);
        rc = k->be->dev->arena_share(k->be, pi__tensor_at(k, p), size, &own, &fd[i], err);
    }
    if (!rc) return PI_OK;
    unmap_ranks(t, i, p, size);
    while (i-- > 0) {
        (void) close(fd[i]);
        fd[i] = -1;
    }
    return rc;
}

static int tensor_arena_adopt(pi__backend *be, void *p, size_t size, const pi__digest *mark, const int *fd, pi_error *err)
{
    pi__tensor *t = settled(be);
    int32_t i = 0;
    int rc = PI_OK;
    for (; i < t->n && !rc; i += !rc) {
        const rank *k = &t->rank[i];
        const pi__digest own = mark_of(mark, k);
        rc = k->be->dev->arena_adopt(k->be, pi__tensor_at(k, p), size, &own, &fd[i], err);
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
        if (at + (size_t) sep < size) t->rank[i].be->dev->identify(t->rank[i].be, out + at + sep, size - at - (size_t) sep);
    }
}

static void tensor_upload(pi__backend *be, void *dst, const void *src, size_t n)
{
    pi__tensor *t = settled(be);
    for (int32_t i = t->first; i < t->end; i++)
        t->rank[i].be->dev->upload(t->rank[i].be, pi__tensor_at(&t->rank[i], dst), src, n);
    pi__order_upload(t, dst, src, n);
}

void pi__tensor_run_download(rank *k, const call *c)
{
    pi__tensor_meet(k); /* a download ends the capture */
    if (!k->i && !k->lost) k->be->dev->download(k->be, c->download.dst, c->download.src, c->download.n);
}
static void tensor_download(pi__backend *be, void *dst, const void *src, size_t n)
{
    call *c = pi__tensor_note((pi__tensor *) be, pi__tensor_run_download);
    c->download.dst = dst, c->download.src = src, c->download.n = n;
}

static void *tensor_host_alloc(pi__backend *be, size_t size)
{
    pi__backend *own = settled(be)->rank[0].be;
    return own->dev->host_alloc(own, size);
}
static void tensor_host_free(pi__backend *be, void *p, size_t size)
{
    pi__backend *own = settled(be)->rank[0].be;
    own->dev->host_free(own, p, size);
}

/* Queues a background copy of n bytes on each rank; their parts lie in rank order in host memory. If a rank cannot
 * queue its copy, waits for the others' copies: the caller reuses the memory. */
static uint64_t copy_all(pi__backend *be, void *device, char *host, size_t n, bool out)
{
    pi__tensor *t = settled(be);
    int32_t i = 0;
    for (bool ok = true; i < t->n && ok; i += ok) {
        rank *k = &t->rank[i];
        void *at = pi__tensor_at(k, device), *part = host + (size_t) i * n;
        ok = out ? k->be->dev->copy_out(k->be, part, at, n) : k->be->dev->copy_in(k->be, at, part, n);
    }
    if (i == t->n) return ++t->n_copies;
    for (uint64_t ended; i-- > 0;) {
        rank *k = &t->rank[i];
        (void) k->be->dev->copies(k->be, true, &ended);
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
        all = k->be->dev->copies(k->be, wait, &n) && all;
        n = n > k->n_unnumbered ? n - k->n_unnumbered : 0;
        if (n < *ended) *ended = n;
    }
    return all;
}

/* Memory that one device pins is accessible to all. */
static bool tensor_pin(pi__backend *be, void *host, size_t n)
{
    const rank *k = first_of(be);
    return k->be->dev->pin(k->be, host, n);
}
static void tensor_unpin(pi__backend *be, void *host, size_t n)
{
    const rank *k = first_of(be);
    k->be->dev->unpin(k->be, host, n);
}

/* ---------------------------------------------------------------------------------------------------------- weights */

/* Fills in the rows of the matrices fused in w; returns their number. */
static int32_t fused_rows_of(const pi__weight *w, int64_t rows[MAX_FUSED])
{
    int32_t n = 0;
    while (n < MAX_FUSED && w->fused_rows[n]) rows[n] = w->fused_rows[n], n++;
    if (!n) rows[n++] = w->n_out;
    return n;
}

bool pi__tensor_is_cut(const pi__tensor *t, const pi__weight *w)
{
    int64_t rows[MAX_FUSED], unit = (int64_t) PI__TILE_ROWS * t->n;
    /* Columns of an expert's down are rows of its gate and up, and vice versa: all three are sharded, or none. */
    if (w->whole) return false;
    if (w->routed && (!t->rank[t->first].be->dev->moe_shards || w->n_in % unit)) return false;
    for (int32_t p = 0, n = fused_rows_of(w, rows); p < n; p++)
        if (rows[p] % unit) return false;
    return true;
}

int32_t pi__tensor_pieces(const rank *k, const pi__weight *w, piece out[MAX_FUSED])
{
    int64_t rows[MAX_FUSED], first = 0;
    int32_t n = fused_rows_of(w, rows);
    char *data = pi__tensor_at(k, w->data);
    for (int32_t p = 0; p < n; p++) {
        out[p] = (piece) {.w = *w, .first = first, .n = rows[p] / k->t->n};
        out[p].w.n_out = out[p].n;
        out[p].w.data = data;
        out[p].w.scale = pi__tensor_at(k, w->scale);
        memset(out[p].w.fused_rows, 0, sizeof w->fused_rows);
        out[p].w.size = k->be->dev->weight_size(k->be, &out[p].w);
        if (data) data += align64(out[p].w.size);
        first += rows[p];
    }
    return n;
}

static size_t tensor_weight_size(const pi__backend *be, pi__weight *w)
{
    const rank *k = first_of(be);
    piece p[MAX_FUSED];
    size_t size = 0;
    if (!pi__tensor_is_cut(k->t, w)) return k->be->dev->weight_size(k->be, w);
    for (int32_t i = 0, n = pi__tensor_pieces(k, w, p); i < n; i++) {
        /* no padding last: matrices of a stack are adjacent */
        const size_t own = i + 1 < n ? align64(p[i].w.size) : p[i].w.size;
        if (!p[i].w.size || !pi__add_ok(size, own, &size)) return 0;
        w->layout = p[i].w.layout;
    }
    return size;
}

bool pi__tensor_share(const piece *p, int32_t r, int64_t row, int64_t n, int64_t *lo, int64_t *hi)
{
    const int64_t at = p->first + r * p->n;
    *lo = row > at ? row : at;
    *hi = row + n < at + p->n ? row + n : at + p->n;
    return *lo < *hi;
}

/* Loads rank k's part of rows row..row + n of the file, which are at src. */
static void load_pieces(const rank *k, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const char *src)
{
    piece p[MAX_FUSED];
    int64_t lo, hi;
    const size_t bytes = pi__row_size(pi__type_info_of(w->type), w->n_in);
    for (int32_t i = 0, n_piece = pi__tensor_pieces(k, w, p); i < n_piece; i++) {
        if (!pi__tensor_share(&p[i], k->i, row, n, &lo, &hi)) continue;
        const int64_t at = p[i].first + k->i * p[i].n;
        k->be->dev->weight_load(k->be, &p[i].w, mat, lo - at, hi - lo, src + (size_t) (lo - row) * bytes);
    }
}

static void tensor_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src)
{
    pi__tensor *t = settled(be);
    const bool cut = pi__tensor_is_cut(t, w);
    pi__order_load(t, w, cut, mat, row, n, src);
    for (int32_t i = t->first; i < t->end; i++) {
        rank *k = &t->rank[i];
        if (cut) {
            load_pieces(k, w, mat, row, n, src);
            continue;
        }
        pi__weight whole = *w;
        whole.data = pi__tensor_at(k, w->data);
        k->be->dev->weight_load(k->be, &whole, mat, row, n, src);
    }
}

/* ---------------------------------------------------------------------------------------- cache, states and scratch */

static size_t tensor_kv_bytes(const pi__backend *be, int32_t type_k, int32_t type_v, int32_t n_head_kv, int32_t head_dim,
                              int32_t block_size)
{
    const rank *k = first_of(be);
    if (n_head_kv % k->t->n == 0) n_head_kv /= k->t->n;
    return k->be->dev->kv_bytes(k->be, type_k, type_v, n_head_kv, head_dim, block_size);
}

/* A cache row belongs to all heads, so rows are replicated. */
static size_t tensor_row_bytes(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows)
{
    const rank *k = first_of(be);
    return k->be->dev->row_bytes(k->be, type, n, n_rows);
}

static size_t tensor_state_bytes(const pi__backend *be, const pi__state_layer *st)
{
    return first_of(be)->be->dev->state_bytes(first_of(be)->be, st);
}
static size_t tensor_snapshot_bytes(const pi__backend *be, const pi__state_layer *st)
{
    return first_of(be)->be->dev->snapshot_bytes(first_of(be)->be, st);
}

/* Returns the stage's size: all ranks' shards of any op's results for a step's tokens. Ops linear and moe work in
 * parts, so for them one row must fit. */
static size_t stage_floats(const pi__tensor *t, const pi__limits *lim)
{
    const size_t wide = (size_t) (t->n > 2 ? t->n : 2) * (size_t) lim->max_n_in * (size_t) lim->max_tokens;
    const size_t row = PI__MAX_LIN * (size_t) lim->max_n_out + (size_t) lim->max_ff_exp;
    return wide > row ? wide : row;
}

static size_t tensor_scratch_bytes(const pi__backend *be, const pi__limits *lim)
{
    const rank *k = first_of(be);
    return k->be->dev->scratch_bytes(k->be, lim) + stage_floats(k->t, lim) * sizeof(float);
}

static void free_rank_scratch(rank *k)
{
    if (k->stage) k->be->dev->free(k->be, k->stage, k->t->stage_floats * sizeof(float));
    pi__free(k->embd_row);
    pi__free(k->owner);
    pi__lora_local_destroy(&k->lora);
    k->stage = NULL;
    k->embd_row = k->owner = NULL;
}

int pi__tensor_join_rank(pi__tensor *t, const char id[PI__RANK_ID_BYTES], pi_error *err)
{
    const pi__ranks *r = t->ranks;
    pi__seat seat = {.ranks = t->ranks, .rank = r->rank, .n = r->n, .timeout_ms = r->timeout_ms};
    memcpy(seat.id, id, sizeof seat.id);
    return t->link ? PI_OK : pi__device_join_rank(&t->link, t->rank[t->first].be, t->device.name, &seat, err);
}

/* Links the devices. This may be slow, and is not needed for a plan; so it is done at reserve(). */
static int join_ranks(pi__tensor *t, pi_error *err)
{
    pi__backend *dev[PI__MAX_RANKS];
    if (t->link) return PI_OK;
    if (t->ranks) return t->ranks->rank ? pi__fail(err, PI_EINTERNAL, "rank %d did not join the others",
                                                   t->ranks->rank) : pi__order_join(t, err);
    for (int32_t i = 0; i < t->n; i++) dev[i] = t->rank[i].be;
    return dev[0]->dev->join(&t->link, dev, t->n, err);
}

/* Allocates scratch and stage of one rank. */
static int reserve_rank(rank *k, const pi__limits *lim, pi_error *err)
{
    int rc = k->be->dev->reserve(k->be, lim, err);
    if (!rc) rc = pi__lora_local_init(&k->lora, lim, err);
    if (rc) return rc;
    k->stage = k->be->dev->alloc(k->be, k->t->stage_floats * sizeof(float));
    k->embd_row = pi__calloc(2 * (size_t) lim->max_tokens, sizeof *k->embd_row);
    k->owner = pi__calloc(2 * (size_t) lim->max_tokens, sizeof *k->owner);
    return k->stage && k->embd_row && k->owner ? PI_OK : pi__fail_mem(err, "buffers for results between devices");
}

static int tensor_reserve(pi__backend *be, const pi__limits *lim, pi_error *err)
{
    pi__tensor *t = settled(be);
    int rc = pi__order_open(t, err);
    if (!rc) rc = join_ranks(t, err);
    if (rc) return rc;
    for (int32_t i = t->first; i < t->end; i++) free_rank_scratch(&t->rank[i]);
    t->stage_floats = stage_floats(t, lim);
    t->lim = *lim;
    for (int32_t i = t->first; i < t->end && !rc; i++) rc = reserve_rank(&t->rank[i], lim, err);
    if (!rc && t->ranks) {
        pi__wire_free(t->wire);
        t->wire = pi__wire_create(lim);
        if (!t->wire) rc = pi__fail_mem(err, "buffers for calls between ranks");
    }
    return rc ? rc : pi__order_reserve(t, lim, err);
}

static bool tensor_topk_here(const pi__backend *be)
{
    const rank *k = first_of(be);
    return k->be->dev->topk_here(k->be);
}

/* -------------------------------------------------------------------------------------------------- create, destroy */

static const char *tensor_describe(const pi__backend *be) { return ((const pi__tensor *) be)->desc; }
static int32_t tensor_n_threads(const pi__backend *be)
{
    const rank *k = first_of(be);
    return k->be->dev->n_threads(k->be) * k->t->n;
}

static void tensor_destroy(pi__backend *be)
{
    pi__tensor *t = (pi__tensor *) be;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pi__order_close(t);
    for (int32_t i = t->first; i < t->end; i++) {
        if (t->rank[i].started) pthread_join(t->rank[i].thread, NULL);
        free_rank_scratch(&t->rank[i]);
        graph_reset(&t->rank[i]);
    }
    if (t->link) t->link->ops->destroy(t->link);
    for (region *r = t->region; t->ranks && r < t->region + MAX_REGIONS; r++)
        if (r->base) region_free(t, r); /* regions of a worker rank */
    for (int32_t i = t->first; i < t->end; i++) t->rank[i].be->dev->destroy(t->rank[i].be);
    pi__wire_free(t->wire);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->made);
    pi__free(t->calls);
    pi__free(t);
}

static const pi__device_fns tensor_device = {
    .destroy = tensor_destroy,
    .describe = tensor_describe,
    .n_threads = tensor_n_threads,
    .alloc = tensor_alloc,
    .free = tensor_free,
    .free_memory = tensor_free_memory,
    .commit = tensor_commit,
    .trim = tensor_trim,
    .upload = tensor_upload,
    .download = tensor_download,
    .host_alloc = tensor_host_alloc,
    .host_free = tensor_host_free,
    .weight_size = tensor_weight_size,
    .weight_load = tensor_weight_load,
    .kv_bytes = tensor_kv_bytes,
    .state_bytes = tensor_state_bytes,
    .snapshot_bytes = tensor_snapshot_bytes,
    .scratch_bytes = tensor_scratch_bytes,
    .reserve = tensor_reserve,
    .finish = tensor_finish,
};

/* Sets the functions that only some devices have. Background copies are not supported for several processes: a
 * block's host copy would be spread over all of them. */
static void set_optional(pi__tensor *t)
{
    const pi__device_fns *can = t->rank[t->first].be->dev;
    if (can->row_bytes) t->dev.row_bytes = tensor_row_bytes;
    if (can->topk_here) t->dev.topk_here = tensor_topk_here;
    if (can->copy_out && !t->ranks) {
        t->dev.copy_out = tensor_copy_out;
        t->dev.copy_in = tensor_copy_in;
        t->dev.copies = tensor_copies;
        t->dev.pin = tensor_pin;
        t->dev.unpin = tensor_unpin;
    }
    for (int32_t i = t->first; i < t->end; i++) { /* pages of the largest size suit all; 0 if a device has no pages */
        const size_t page = t->rank[i].be->page;
        if (i == t->first || !page || (t->be.page && page > t->be.page)) t->be.page = page;
        t->be.exports = !t->ranks && (i == t->first || t->be.exports) && t->rank[i].be->exports;
    }
    if (can->identify && !t->ranks) t->dev.identify = tensor_identify;
    if (!t->be.page) return;
    t->dev.arena_alloc = tensor_arena_alloc;
    t->dev.arena_free = tensor_free;
    t->dev.arena_map = tensor_arena_map;
    t->dev.arena_unmap = tensor_arena_unmap;
    t->dev.arena_share = tensor_arena_share;
    t->dev.arena_adopt = tensor_arena_adopt;
}

static int start_ranks(pi__tensor *t, pi_error *err)
{
    for (int32_t i = t->first + 1; i < t->end; i++) {
        rank *k = &t->rank[i];
        if (!pi__thread_start(&k->thread, rank_main, k)) return pi__fail(err, PI_ENOMEM, "cannot start a device's thread");
        k->started = true;
    }
    return PI_OK;
}

static void destroy_all(pi__backend *const *dev, int32_t n)
{
    for (int32_t i = 0; i < n; i++) dev[i]->dev->destroy(dev[i]);
}

/* Creates the backend of n ranks; dev has the n_here ranks from `first` on. */
static int create(pi__backend **out, pi__backend *const *dev, int32_t n, int32_t first, int32_t n_here, pi__ranks *ranks,
                  const pi__rank_device *as, pi_error *err)
{
    pi__tensor *t = pi__calloc(1, sizeof *t);
    if (!t) {
        destroy_all(dev, n_here);
        return pi__fail_mem(err, "the devices");
    }
    t->dev = tensor_device;
    pi__tensor_set_ops(t, dev[0]);
    t->be = (pi__backend) {.dev = &t->dev, .ops = &t->ops, .discrete = dev[0]->discrete, .integrated = dev[0]->integrated, .n_ranks = n};
    t->n = n, t->first = first, t->end = first + n_here;
    t->ranks = ranks;
    if (as) t->device = *as;
    for (int32_t i = 0; i < n; i++) t->rank[i] = (rank) {.t = t, .i = i, .met = true};
    for (int32_t i = 0; i < n_here; i++) t->rank[first + i].be = dev[i];
    set_optional(t);
    const char *one = dev[0]->dev->describe(dev[0]);
    if (ranks) snprintf(t->desc, sizeof t->desc, "%.70s, %d ranks", one, n);
    else snprintf(t->desc, sizeof t->desc, "%d x %.80s", n, one);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    pthread_cond_init(&t->made, NULL);
    t->calls = pi__calloc(MAX_CALLS, sizeof *t->calls);
    int rc = t->calls ? PI_OK : pi__fail_mem(err, "the devices");
    if (!rc && !dev[0]->dev->join) rc = pi__fail(err, PI_EUNSUPPORTED, "%s: split-mode tensor is not supported",
                                                 t->desc);
    if (!rc) rc = start_ranks(t, err);
    if (rc) tensor_destroy(&t->be);
    else *out = &t->be;
    return rc;
}

int pi__tensor_create(pi__backend **out, pi__backend *const *dev, int32_t n, pi_error *err)
{
    *out = NULL;
    int rc = n < 1 || n > PI__MAX_RANKS ? pi__fail(err, PI_EUNSUPPORTED, "%d devices: give at most %d",
                                                   n, PI__MAX_RANKS)
                                        : PI_OK;
    for (int32_t i = 1; i < n && !rc; i++)
        if (dev[i]->dev != dev[0]->dev)
            rc = pi__fail(err, PI_EUNSUPPORTED, "split-mode tensor: %s and %s are of different kinds: "
                          "name devices of one kind", dev[0]->dev->describe(dev[0]),
                          dev[i]->dev->describe(dev[i]));
    if (rc) {
        destroy_all(dev, n);
        return rc;
    }
    return create(out, dev, n, 0, n, NULL, NULL, err);
}

int pi__tensor_create_rank(pi__backend **out, pi__backend *dev, pi__ranks *ranks, const pi__rank_device *as, pi_error *err)
{
    *out = NULL;
    return create(out, &dev, ranks->n, ranks->rank, 1, ranks, as, err);
}
