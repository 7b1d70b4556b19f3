/* Several devices as one (tensor parallelism): creation, weights and scratch memory.
 *
 * Each device is a rank. The graph runs once, on the step thread, and only records ops; finish() lets every rank
 * execute the same calls on its own device. The following are sharded, so that each rank has only a part:
 *
 *   matrices    by rows, if these divide; a rank computes its columns of the result, which are all-gathered
 *   cache       by KV heads, if these divide; then queries, keys and values stay sharded too, and only the output
 *               of attention is all-gathered
 *   experts     the rows of gate and up, and of down, of every expert
 *   embeddings  by rows, one per token of the vocabulary
 *
 * Everything else is replicated: norms, rotations, recurrent states, a clustered lm_head, tensors that do not
 * divide. Each value of a result, sums included, is computed by one rank in the same way as on a single device. So
 * results are bitwise identical for any number of ranks.
 *
 * Activations are replicated on all ranks. Pointers in the graph are rank 0's addresses; each rank looks up its own.
 * Memory: this object, and on each device a `stage`: a buffer for the shards of a result before they are copied to
 * their columns of the result. Threads: as device.h says. Rank 0's device is used by the step thread, each other device
 * by its rank's thread; between runs the step thread may use all of them. Invariant: between runs, all ranks have
 * executed the same calls.
 *
 * The ranks may be processes on one or several machines. Then each process has one device, and this object with
 * only that rank in it. Rank 0 sends commands to the others (tensor_orders.c), which execute them
 * (tensor_follow.c). Calls are sent as records (tensor_wire.c).
 *
 * One object in several files. A file calls only files to its right:
 *
 *   tensor.c -> tensor_memory.c -> tensor_record.c -> tensor_orders.c -> tensor_wire.c -> tensor_ops.c -> tensor_run.c
 *               memory, copies     calls, runs        commands           records          ops of a rank    rank's run
 *
 * tensor_shards.c (a rank's addresses and rows) and tensor_check.c (received records) are below these.
 *
 * If the devices capture decode steps, each captures its own queue with its all-gathers. A captured all-gather can only
 * meet all-gathers that the other ranks captured with it. So all ranks must capture and replay the same steps. They do,
 * since all ranks get the same steps. A rank that deviates, because of a failure, leaves the link immediately. */
#include "backend/tensor.h"

#include <stdio.h>
#include <string.h>

#include "backend/tensor_impl.h"
#include "backend/tensor_wire.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"

static size_t align64(size_t n) { return (n + 63) & ~(size_t) 63; }

/* ---------------------------------------------------------------------------------------------------------- weights */

static size_t tensor_weight_size(const pi__backend *be, pi__weight *w)
{
    const rank *k = pi__tensor_first(be);
    piece p[MAX_FUSED];
    size_t size = 0;
    if (!pi__tensor_is_cut(k->t, w)) return k->be->dev->weight_size(k->be, w);
    for (int32_t i = 0, n = pi__tensor_pieces(k, w, p); i < n; i++) {
        /* the last part is not padded, because matrices of a stack are adjacent */
        const size_t own = i + 1 < n ? align64(p[i].w.size) : p[i].w.size;
        if (!p[i].w.size || !pi__add_ok(size, own, &size)) return 0;
        w->layout = p[i].w.layout;
    }
    return size;
}

/* Loads rank k's shard of rows row..row + n of matrix mat. src: these rows in the file's format. */
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

static void tensor_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n,
                               const void *src)
{
    pi__tensor *t = pi__tensor_settled(be);
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

static size_t tensor_kv_bytes(const pi__backend *be, int32_t type_k, int32_t type_v, int32_t n_head_kv,
                              int32_t head_dim, int32_t block_size)
{
    const rank *k = pi__tensor_first(be);
    if (n_head_kv % k->t->n == 0) n_head_kv /= k->t->n;
    return k->be->dev->kv_bytes(k->be, type_k, type_v, n_head_kv, head_dim, block_size);
}

/* A cache row belongs to all heads, so caches of rows are replicated. */
static size_t tensor_row_bytes(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows)
{
    const rank *k = pi__tensor_first(be);
    return k->be->opt->row_bytes(k->be, type, n, n_rows);
}

static size_t tensor_state_bytes(const pi__backend *be, const pi__state_layer *st)
{
    return pi__tensor_first(be)->be->dev->state_bytes(pi__tensor_first(be)->be, st);
}
static size_t tensor_snapshot_bytes(const pi__backend *be, const pi__state_layer *st)
{
    return pi__tensor_first(be)->be->dev->snapshot_bytes(pi__tensor_first(be)->be, st);
}

/* Returns the size of `stage` in floats. The shards of all ranks of an op's result for a step's tokens must fit.
 * Results of op linear, and gate and up of op moe, may be wider; these ops all-gather some rows at a time, so one row
 * must fit. */
static size_t stage_floats(const pi__tensor *t, const pi__limits *lim)
{
    const size_t wide = (size_t) (t->n > 2 ? t->n : 2) * (size_t) lim->max_n_in * (size_t) lim->max_tokens;
    const size_t row = PI__MAX_LIN * (size_t) lim->max_n_out + (size_t) lim->max_ff_exp;
    return wide > row ? wide : row;
}

static size_t tensor_scratch_bytes(const pi__backend *be, const pi__limits *lim)
{
    const rank *k = pi__tensor_first(be);
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

/* Links the devices at the first reserve(): linking may be slow, and backends that only plan memory do not need it. */
static int join_ranks(pi__tensor *t, pi_error *err)
{
    pi__backend *dev[PI__MAX_RANKS];
    if (t->link) return PI_OK;
    if (t->ranks) return t->ranks->rank ? pi__fail(err, PI_EINTERNAL, "rank %d did not join the others",
                                                   t->ranks->rank) : pi__order_join(t, err);
    for (int32_t i = 0; i < t->n; i++) dev[i] = t->rank[i].be;
    return dev[0]->opt->join(&t->link, dev, t->n, err);
}

/* Allocates the scratch memory and the stage of one rank. */
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
    pi__tensor *t = pi__tensor_settled(be);
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
    const rank *k = pi__tensor_first(be);
    return k->be->opt->topk_here(k->be);
}

/* -------------------------------------------------------------------------------------------------- create, destroy */

static const char *tensor_describe(const pi__backend *be) { return ((const pi__tensor *) be)->desc; }
static int32_t tensor_n_threads(const pi__backend *be)
{
    const rank *k = pi__tensor_first(be);
    return k->be->dev->n_threads(k->be) * k->t->n;
}

static void tensor_destroy(pi__backend *be)
{
    pi__tensor *t = (pi__tensor *) be;
    if (!t) return;
    pi__order_close(t);
    pi__tensor_stop_ranks(t);
    for (int32_t i = t->first; i < t->end; i++) {
        free_rank_scratch(&t->rank[i]);
        pi__tensor_graph_reset(&t->rank[i]);
    }
    if (t->link) t->link->ops->destroy(t->link);
    if (t->ranks) pi__tensor_free_regions(t); /* the regions of a worker rank were allocated by commands of rank 0 */
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
    .weight_size = tensor_weight_size,
    .weight_load = tensor_weight_load,
    .kv_bytes = tensor_kv_bytes,
    .state_bytes = tensor_state_bytes,
    .snapshot_bytes = tensor_snapshot_bytes,
    .scratch_bytes = tensor_scratch_bytes,
    .reserve = tensor_reserve,
};

static void destroy_all(pi__backend *const *dev, int32_t n)
{
    for (int32_t i = 0; i < n; i++) dev[i]->dev->destroy(dev[i]);
}

/* Creates the backend of n ranks. dev: devices of the n_here ranks from `first` on; the other ranks are in other
 * processes. */
static int create(pi__backend **out, pi__backend *const *dev, int32_t n, int32_t first, int32_t n_here,
                  pi__ranks *ranks, const pi__rank_device *as, pi_error *err)
{
    pi__tensor *t = pi__calloc(1, sizeof *t);
    if (!t) {
        destroy_all(dev, n_here);
        return pi__fail_mem(err, "the devices");
    }
    t->dev = tensor_device;
    t->be = (pi__backend) {.dev = &t->dev, .opt = &t->opt, .ops = &t->ops, .discrete = dev[0]->discrete,
                           .integrated = dev[0]->integrated, .n_ranks = n};
    t->n = n, t->first = first, t->end = first + n_here;
    t->ranks = ranks;
    if (as) t->device = *as;
    for (int32_t i = 0; i < n; i++) t->rank[i] = (rank) {.t = t, .i = i, .met = true};
    for (int32_t i = 0; i < n_here; i++) t->rank[first + i].be = dev[i];
    pi__tensor_set_memory(t);
    pi__tensor_set_calls(t);
    if (dev[0]->opt->row_bytes) t->opt.row_bytes = tensor_row_bytes;
    if (dev[0]->opt->topk_here) t->opt.topk_here = tensor_topk_here;
    const char *one = dev[0]->dev->describe(dev[0]);
    if (ranks) snprintf(t->desc, sizeof t->desc, "%.70s, %d ranks", one, n);
    else snprintf(t->desc, sizeof t->desc, "%d x %.80s", n, one);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    pthread_cond_init(&t->made, NULL);
    t->calls = pi__calloc(MAX_CALLS, sizeof *t->calls);
    int rc = t->calls ? PI_OK : pi__fail_mem(err, "the devices");
    if (!rc && !dev[0]->opt->join)
        rc = pi__fail(err, PI_EUNSUPPORTED, "%s: split-mode tensor is not supported", t->desc);
    if (!rc) rc = pi__tensor_start_ranks(t, err);
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

int pi__tensor_create_rank(pi__backend **out, pi__backend *dev, pi__ranks *ranks, const pi__rank_device *as,
                           pi_error *err)
{
    *out = NULL;
    return create(out, &dev, ranks->n, ranks->rank, 1, ranks, as, err);
}
