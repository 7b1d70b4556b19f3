/* The CUDA backend: creation, the layout of device memory, and the table of ops (kernels are in kernels/).
 *
 * Memory: a small object, and that of load.c while weights are loaded. alloc() returns device memory for weights,
 * caches and activations, which the caller frees. On devices that share the host's memory, weights_alloc() returns
 * memory that the host also writes (pi__rt_info.shares); only weights are there. Scratch holds the step's batch and
 * the data that ops pass between kernels:
 *
 *     step:     [batch][row numbers][arrival counters][frequencies][topk]
 *     matmul:   [packed input][packed input of down, FP4][row maxima][split-K sums][packed floats][second packed input]
 *     ops:      [experts][heads' matrices][clusters][rows of delta nets][cuBLAS workspace][indexer's scores]
 *     further:  [key blocks][taken key blocks][key block counts][KV splits][adapters][residual streams]
 *
 * Threads: as device.h says. Invariant: ops only queue work. The first error is kept; after it nothing more is
 * queued, and finish() returns it. */
#include "backend/cuda/impl.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/comm.h"
#include "backend/cuda/kernels_hyper.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"


/* -------------------------------------------------------------------------------------------------------------
 * memory */

static void *cuda_alloc(pi__backend *be, size_t size)
{
    pi__cuda *c = (pi__cuda *) be;
    void *p;
    pi__cuda_record_error(c, pi__rt_alloc(c->rt, &p, size));
    return p;
}
static void *cuda_weights_alloc(pi__backend *be, size_t size)
{
    pi__cuda *c = (pi__cuda *) be;
    void *p;
    if (!c->info.shares) return cuda_alloc(be, size);
    pi__cuda_record_error(c, pi__rt_alloc_shared(c->rt, &p, size));
    if (p) memset(p, 0, size);
    return p;
}
static void cuda_free(pi__backend *be, void *p, size_t size)
{
    (void) size;
    pi__rt_free(((pi__cuda *) be)->rt, p);
}

static uint64_t cuda_free_memory(pi__backend *be)
{
    pi__cuda *c = (pi__cuda *) be;
    uint64_t bytes;
    pi__cuda_record_error(c, pi__rt_free_memory(c->rt, &bytes));
    return bytes;
}

static void *cuda_arena_alloc(pi__backend *be, size_t size)
{
    pi__cuda *c = (pi__cuda *) be;
    void *p;
    pi__cuda_record_error(c, pi__rt_reserve(c->rt, &p, size));
    return p;
}
static void cuda_arena_free(pi__backend *be, void *arena, size_t size)
{
    pi__rt_unreserve(((pi__cuda *) be)->rt, arena, size);
}
static bool cuda_arena_map(pi__backend *be, void *p, size_t size)
{
    pi__cuda *c = (pi__cuda *) be;
    bool done;
    pi__cuda_record_error(c, pi__rt_map(c->rt, p, size, &done));
    return done;
}
static bool cuda_arena_map_host(pi__backend *be, void *p, size_t size)
{
    pi__cuda *c = (pi__cuda *) be;
    bool done;
    pi__cuda_record_error(c, pi__rt_map_host(c->rt, p, size, &done));
    return done;
}
static void cuda_arena_unmap(pi__backend *be, void *p, size_t size) { pi__rt_unmap(((pi__cuda *) be)->rt, p, size); }

/* commit and trim do nothing: device memory is committed at allocation, and cannot be trimmed. */
static void cuda_commit_trim(pi__backend *be, void *p, size_t size)
{
    (void) be;
    (void) p;
    (void) size;
}

static void *cuda_host_alloc(pi__backend *be, size_t size)
{
    pi__cuda *c = (pi__cuda *) be;
    void *p;
    pi__cuda_record_error(c, pi__rt_host_alloc(c->rt, &p, size));
    return p;
}
static void cuda_host_free(pi__backend *be, void *p, size_t size)
{
    (void) size;
    pi__rt_host_free(((pi__cuda *) be)->rt, p);
}

/* copy_out and copy_in return the number of the queued copy, or 0 if it was not queued. This is not an error of the
 * step: the caller continues without the copy. */
static uint64_t cuda_copy_out(pi__backend *be, void *host, const void *src, size_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__cuda_flush(c);
    return pi__rt_copy_out(c->rt, host, src, n) ? 0 : ++c->n_copies;
}
static uint64_t cuda_copy_in(pi__backend *be, void *dst, const void *host, size_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__cuda_flush(c);
    return pi__rt_copy_in(c->rt, dst, host, n) ? 0 : ++c->n_copies;
}
static bool cuda_copies(pi__backend *be, bool wait, uint64_t *ended)
{
    return pi__rt_copies(((pi__cuda *) be)->rt, wait, ended) == 0;
}
static bool cuda_pin(pi__backend *be, void *host, size_t n) { return pi__rt_pin(((pi__cuda *) be)->rt, host, n) == 0; }
static void cuda_unpin(pi__backend *be, void *host, size_t n)
{
    (void) n;
    pi__rt_unpin(((pi__cuda *) be)->rt, host);
}

/* -------------------------------------------------------------------------------------------------------------
 * weights */

static size_t cuda_weight_size(const pi__backend *be, pi__weight *w)
{
    const cuda_disabled *disabled = &((const pi__cuda *) be)->f.disabled;
    pi__cuda_shape s;
    w->layout = 0;
    if ((disabled->packed && !pi__type_is_float(w->type)) || (disabled->experts && w->n_mat > 1)) return 0;
    if (w->n_mat < 1 || !pi__cuda_shape_of(w->type, w->n_in, w->n_out, &s)) return 0;
    if ((size_t) w->n_mat > SIZE_MAX / 2 / s.mat_bytes) return 0;
    return (s.mat_bytes * (size_t) w->n_mat + 63) & ~(size_t) 63;
}

/* --------------------------------------------------------------------------------------------------- cache and
 * scratch */

static size_t cuda_kv_bytes(const pi__backend *be, int32_t type_k, int32_t type_v, int32_t n_head_kv, int32_t head_dim,
                            int32_t block_size)
{
    if (((const pi__cuda *) be)->f.disabled.attention) return 0;
    const int32_t types[] = {type_k, type_v};
    size_t row = 0;
    for (int i = 0; i < 2; i++) {
        int32_t t = types[i];
        if (pi__kv_index(t) < 0) return 0;
        if (head_dim < 1 || head_dim % pi__kv_group(t)) return 0;
        row += pi__kv_row_size(t, head_dim);
    }
    if (!pi__k_attention_has(head_dim) || n_head_kv < 1) return 0;
    if (block_size != 16 && block_size != 32 && block_size != 64) return 0;
    return (row * (size_t) n_head_kv * (size_t) block_size + 63) & ~(size_t) 63;
}

/* Returns the bytes for partial results of KV splits (kernels/attention_kernels.cuh). A partial result is a row of
 * head_dim + 2 floats per query row and unit of keys. Keys are split only in launches with fewer than two tiles of 16
 * query rows per SM. If this memory is too small for all KV heads, attention uses several launches. For op sparse
 * (kernels/sparse.cuh) there are at most SPARSE_SPLITS splits, and each launch has the tokens that fit. MOST: max
 * partial rows. MIN_KEYS, SPAN_KEYS: keys per unit of one split, of a span. BLOCKS: max blocks per SM with units of one
 * split. */
static size_t kv_split_bytes(const pi__cuda *c, const pi__limits *lim)
{
    enum { MOST = 1 << 16, MIN_KEYS = 256, SPAN_KEYS = 1024, BLOCKS = 8, SPARSE_SPLITS = 16 };
    const size_t n_sm = (size_t) c->info.n_sm, ctx = (size_t) lim->max_ctx,
                 all = (size_t) lim->max_tokens * (size_t) lim->max_n_head;
    size_t rows = 2 * n_sm * 16, fine = all * (ctx / MIN_KEYS + 2), sparse = ctx / MIN_KEYS + 2, n;
    sparse = rows * (sparse < SPARSE_SPLITS ? sparse : SPARSE_SPLITS);
    if (rows > all) rows = all;
    n = rows * (ctx / SPAN_KEYS + 2);
    if (fine > BLOCKS * n_sm * 16) fine = BLOCKS * n_sm * 16;
    if (n < fine) n = fine;
    n = (n < MOST ? n : MOST) * ((size_t) lim->max_head_dim + 2);
    sparse = (sparse < MOST ? sparse : MOST) * (lim->max_row ? (size_t) lim->max_row + 2 : 0);
    return (n > sparse ? n : sparse) * sizeof(float);
}

/* Returns the bytes for partial sums of split-K (kernels/split.cuh); 0 if no step has enough rows, wgmma is used, or
 * split-K is disabled. */
static size_t slices_bytes(const pi__cuda *c, const pi__limits *lim)
{
    const bool fp4 = c->f.matmul_modes & (PI__WAY_FP4 | PI__WAY_W4A8),
               w16 = c->f.matmul_modes & (PI__WAY_W16 | PI__WAY_W4A16);
    if (c->f.wgmma || c->f.disabled.slices || !(fp4 || w16) ||
        lim->max_tokens <= (fp4 ? PI__CUDA_FEW_ROWS : PI__K_MMA_ROWS))
        return 0;
    return pi__k_split_bytes(c->info.n_sm);
}

/* Returns the layout of the scratch for these limits. */
static cuda_scratch scratch_of(const pi__cuda *c, const pi__limits *lim)
{
    size_t i = sizeof(int32_t), at = 0;
    int64_t n_in = (lim->max_n_in + 31) / 32 * 32;
    cuda_scratch s;
    s.batch = pi__cuda_take(&at, pi__cuda_image_ints(lim) * i);
    s.rows = pi__cuda_take(&at, (size_t) pi__cuda_max_gather(lim) * i);
    s.arrived = pi__cuda_take(&at, PI__CUDA_COUNTERS * sizeof(uint32_t));
    s.freq = pi__cuda_take(&at, PI__CUDA_MAX_ROPES * PI__CUDA_MAX_FREQ * sizeof(float));
    s.picks = pi__cuda_take(&at, pi__cuda_top_bytes(lim));
    /* size of the largest activation format: 6 bytes per value; integers take 2.5, FP4 0.6 */
    s.prepared = pi__cuda_take(&at, pi__k_mma16_packed_x_bytes(PI__BF16, lim->max_tokens, n_in));
    const bool fp4 = c->f.fuses && c->f.matmul_modes & (PI__WAY_FP4 | PI__WAY_W4A8);
    s.mid = pi__cuda_take(&at, fp4 ? pi__k_fp4_packed_x_bytes(lim->max_tokens, n_in) : 0);
    s.row_most = pi__cuda_take(&at, (size_t) lim->max_tokens * sizeof(uint32_t));
    s.n_slices = slices_bytes(c, lim);
    s.slices = pi__cuda_take(&at, s.n_slices);
    const int32_t tails = pi__tail_rows(&c->f);
    const size_t floats = pi__k_packed_x_bytes(lim->max_tokens, n_in, 1),
                 terms = pi__k_mma16_packed_x_bytes(PI__BF16, tails, n_in);
    /* this region also holds the 16-bit terms of up to `tails` rows, so that `prepared` can hold another format at the
     * same time */
    s.floats = pi__cuda_take(&at, floats > terms ? floats : terms);
    /* the second packed input of an epilogue, for the shared expert's down: integers are the largest format */
    const int32_t few = lim->max_expert ? tails : 0;
    s.beside = pi__cuda_take(&at, pi__k_packed_x_bytes(few, n_in, 0));
    s.experts = pi__cuda_take(&at, pi__cuda_moe_bytes(lim));
    s.heads = pi__cuda_take(&at, pi__cuda_head_linear_bytes(lim));
    s.clusters = pi__cuda_take(&at, pi__cuda_centroid_bytes(lim));
    s.gdn = pi__cuda_take(&at, pi__cuda_gdn_scratch(lim));
    s.blas = pi__cuda_take(&at, c->blas ? pi__blas_workspace(c->blas) : 0);
    s.indexer = pi__cuda_take(&at, pi__cuda_indexer_bytes(lim));
    const int32_t query_blocks = lim->key_blocks ? lim->max_tokens / PI__SPARSE_BLOCK : 0;
    s.key_blocks = pi__cuda_take(&at, pi__k_blocks_scratch(lim->key_blocks, query_blocks, lim->max_n_head,
                                                           lim->sparse_heads, lim->max_head_dim));
    s.taken = pi__cuda_take(&at, (size_t) query_blocks * (size_t) lim->sparse_heads * ((size_t) lim->key_blocks + 31) /
                                     32 * 4);
    s.counts = pi__cuda_take(&at, 2 * sizeof(unsigned long long));
    s.kv_splits = pi__cuda_take(&at, kv_split_bytes(c, lim));
    s.lora = pi__cuda_take(&at, pi__cuda_lora_bytes(lim));
    s.streams = pi__cuda_take(&at,
                              lim->max_stream ? pi__k_hyper_sums(lim->max_tokens, lim->max_stream) * sizeof(float) : 0);
    s.total = at;
    return s;
}

static size_t cuda_scratch_bytes(const pi__backend *be, const pi__limits *lim)
{
    const pi__cuda *c = (const pi__cuda *) be;
    /* graph_bytes: the driver allocates this memory when steps are captured */
    return scratch_of(c, lim).total + (c->records ? c->info.graph_bytes : 0);
}

static int cuda_reserve(pi__backend *be, const pi__limits *lim, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    cuda_scratch at = scratch_of(c, lim);
    size_t ints = pi__cuda_image_ints(lim);
    char *p = cuda_alloc(be, at.total);
    int32_t *image = cuda_host_alloc(be, ints * sizeof *image);
    if (!p || !image) {
        pi__rt_free(c->rt, p);
        pi__rt_host_free(c->rt, image);
        return pi__fail_mem(err, "scratch of the device");
    }
    if (c->blas) pi__cuda_record_error(c, pi__blas_use(c->blas, p + at.blas, pi__blas_workspace(c->blas)));
    pi__cuda_free_graphs(c);
    pi__rt_free(c->rt, c->scratch);
    pi__rt_host_free(c->rt, c->image);
    c->scratch = p;
    c->image = image;
    c->max_ints = ints;
    memset(c->freq, 0, sizeof c->freq);
    c->skip = c->order = NULL;
    c->at = at;
    c->f.lim = *lim;
    c->f.prepared_bytes = at.mid - at.prepared;
    c->open = false;
    c->loads = true;
    static const uint32_t none[PI__CUDA_COUNTERS];
    pi__cuda_record_error(c, pi__rt_upload(c->rt, p + at.arrived, none, sizeof none));
    for (size_t i = 0, n = (size_t) lim->max_tokens * sizeof *none; i < n; i += sizeof none)
        pi__cuda_record_error(c, pi__rt_upload(c->rt, p + at.row_most + i, none,
                                               n - i < sizeof none ? n - i : sizeof none));
    return PI_OK;
}

/* ---------------------------------------------------------------------------------------------------- create,
 * destroy */

static const char *cuda_describe(const pi__backend *be) { return ((const pi__cuda *) be)->desc; }
static int32_t cuda_n_threads(const pi__backend *be)
{
    (void) be;
    return 1;
}

static int cuda_join(pi__link **out, pi__backend *const *be, int32_t n, pi_error *err)
{
    pi__rt *rt[PI__RT_MAX];
    if (n > PI__RT_MAX) return pi__fail(err, PI_EUNSUPPORTED, "at most %d CUDA devices are supported: name fewer",
                                        PI__RT_MAX);
    bool records = true;
    for (int32_t i = 0; i < n; i++) {
        rt[i] = ((pi__cuda *) be[i])->rt;
        records = records && ((pi__cuda *) be[i])->records;
    }
    for (int32_t i = 0; i < n; i++) { /* all devices capture the same steps, or none does */
        ((pi__cuda *) be[i])->joined = true;
        ((pi__cuda *) be[i])->records = records;
    }
    return pi__comm_create(out, rt, n, err);
}

int pi__cuda_rank_id(char id[PI__RANK_ID_BYTES], pi_error *err) { return pi__comm_id(id, err); }

int pi__cuda_join_rank(pi__link **out, pi__backend *be, const pi__seat *seat, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    c->joined = true; /* all ranks are of one kind and have the same options, so they capture the same steps */
    return pi__comm_create_rank(out, c->rt, seat, err);
}

/* Waits for queued work (pi__cuda_finish). The first call after a load ends the load, and frees its host memory. */
static int cuda_finish(pi__backend *be, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    int rc = pi__cuda_finish(be, err);
    if (c->stage.pool) pi__cuda_load_end(c);
    c->loads = false;
    return rc;
}

static void cuda_destroy(pi__backend *be)
{
    pi__cuda *c = (pi__cuda *) be;
    if (!c) return;
    pi__cuda_free_graphs(c);
    pi__cuda_load_end(c);
    pi__blas_close(c->blas);
    pi__rt_free(c->rt, c->scratch);
    pi__rt_host_free(c->rt, c->image);
    pi__rt_close(c->rt);
    pi__free(c->ops);
    pi__free(c);
}

static bool cuda_topk_here(const pi__backend *be) { return !((const pi__cuda *) be)->f.disabled.topk; }

static const pi__device_fns cuda_device = {
    .destroy = cuda_destroy,
    .describe = cuda_describe,
    .n_threads = cuda_n_threads,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .commit = cuda_commit_trim,
    .trim = cuda_commit_trim,
    .upload = pi__cuda_load_values,
    .download = pi__cuda_download,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .weight_size = cuda_weight_size,
    .weight_load = pi__cuda_weight_load,
    .kv_bytes = cuda_kv_bytes,
    .state_bytes = pi__cuda_state_bytes,
    .snapshot_bytes = pi__cuda_snapshot_bytes,
    .scratch_bytes = cuda_scratch_bytes,
    .reserve = cuda_reserve,
    .begin = pi__cuda_begin,
    .finish = cuda_finish,
};
static const pi__device_opt cuda_opt = {
    .free_memory = cuda_free_memory,
    .weights_alloc = cuda_weights_alloc,
    .arena_alloc = cuda_arena_alloc,
    .arena_free = cuda_arena_free,
    .arena_map = cuda_arena_map,
    .arena_unmap = cuda_arena_unmap,
    .arena_map_host = cuda_arena_map_host,
    .slots_bytes = pi__cuda_slots_bytes,
    .arena_share = pi__cuda_arena_share,
    .arena_adopt = pi__cuda_arena_adopt,
    .identify = pi__cuda_identify,
    .copy_out = cuda_copy_out,
    .copy_in = cuda_copy_in,
    .copies = cuda_copies,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .row_bytes = pi__cuda_row_bytes,
    .join = cuda_join,
    .graph_lookup = pi__cuda_graph_lookup,
    .graph_segment = pi__cuda_graph_segment,
    .make_graph = pi__cuda_make_graph,
    .end_capture = pi__cuda_end_capture,
    .graph_reset = pi__cuda_graph_reset,
    .moe_shards = true,
    .mark = pi__cuda_mark,
    .wait = pi__cuda_wait,
    .draw = pi__cuda_draw,
    .follow = pi__cuda_follow,
    .feed = pi__cuda_feed,
    .topk_here = cuda_topk_here,
    .chains = true,
};

/* run_NAME records a call of op NAME. */
#define FN(name, type)                                                                                                 \
    static void run_##name(pi__backend *be, const pi__batch *b, const type *a)                                         \
    {                                                                                                                  \
        pi__cuda_record((pi__cuda *) be, PI__OP_##name, b, a);                                                         \
    }
PI__OPS_ALL(FN)
PI__OPS_DEVICE(FN)
#undef FN
#define FN(name, type) .name = run_##name,
static const pi__op_fns cuda_fns = {PI__OPS_ALL(FN) PI__OPS_DEVICE(FN)};
#undef FN

/* Appends a word to the comma-separated list in a buffer of `size` bytes; truncates it if the buffer is full. */
static void add_word(char *list, size_t size, const char *word)
{
    size_t n = strlen(list);
    snprintf(list + n, size - n, "%s%s", n ? ", " : "", word);
}

/* Writes to `list` the names of the matrix types that the engine reads, and that have no CUDA kernels. Kernels read the
 * type that a matrix has after loading. */
static void tell_lacks(char *list, size_t size)
{
    pi__cuda_shape s;
    *list = 0;
    for (int32_t i = 0; i < PI__N_TYPES; i++) {
        const pi__type_info *t = pi__type_info_of(i);
        if (!t || !t->readable) continue;
        const int32_t loaded = pi__loaded_type(i);
        if (!pi__cuda_shape_of(loaded, pi__type_info_of(loaded)->blck_size, 1, &s)) add_word(list, size, t->name);
    }
}

bool pi__cuda_tell(int32_t index, pi__device_info *out)
{
    pi__rt_info info = {0};
    int code = pi__rt_tell(index, &info);
    *out = (pi__device_info) {.memory = info.memory, .usable = !code};
    snprintf(out->desc, sizeof out->desc, "%s", info.name);
    if (code) snprintf(out->lacks, sizeof out->lacks, "%s", pi__rt_text(code));
    else tell_lacks(out->lacks, sizeof out->lacks);
    return !code || info.memory || !index;
}

static void drop_library(pi__cuda *c)
{
    pi__blas_close(c->blas);
    c->blas = NULL;
    c->f.blas = false;
}

/* The subject of a product test: a matmul mode, or cuBLAS. A mode with wrong results is disabled, with a line in the
 * log. */
enum { OF_FP4, OF_BLAS, OF_MMA16, OF_INT8, OF_W16, OF_W4A8 };

/* Disables the mode `way` (OF_*) and logs it. name: matrix type of the failed test. wrong: PI__WRONG_*. */
static void give_up(pi__cuda *c, int way, const char *name, int wrong, const pi__log *log)
{
    static const char *const then[] = {"in FP4: fp4-mode w4a16 is used", "by cuBLAS: cublas is disabled",
                                       "by 16-bit tensor cores: they use F32 and are slower",
                                       ("by int8 tensor cores: quantized models cannot run: update the driver, "
                                        "or give device cpu"),
                                       "in 16-bit floats: matmul exact is used",
                                       "with activations in FP8: fp4-mode w4a16 is used"};
    const bool many = way == OF_INT8 && !(wrong & PI__WRONG_FEW);
    pi__logf(log, PI_LOG_WARN, "%s multiplies %s matrices wrongly %s", c->desc, name,
             many ? "with many rows: 32 rows are computed per launch, prompts are slower" : then[way]);
    if (way == OF_FP4) c->f.matmul_modes = (c->f.matmul_modes & ~PI__WAY_FP4) | PI__WAY_W4A16;
    else if (way == OF_W4A8) c->f.matmul_modes &= ~PI__WAY_W4A8; /* W4A16 is enabled as well */
    else if (way == OF_BLAS) drop_library(c);
    else if (way == OF_MMA16) c->f.matmul_modes &= ~PI__WAY_MMA16;
    else if (way == OF_W16) c->f.matmul_modes &= ~(PI__WAY_W16 | PI__WAY_W4A16);
    else if (many) c->f.disabled.many_rows = true;
    else c->f.disabled.packed = true;
}

/* Returns the PI__WAY_* bit of a mode OF_*; 0 = the mode has none. */
static int way_of(int of)
{
    static const int modes[] = {PI__WAY_FP4, 0, PI__WAY_MMA16, 0, PI__WAY_W16, PI__WAY_W4A8};
    return modes[of];
}

/* Tests each enabled mode with some matrix types, and disables the modes with wrong results. */
static int check_products(pi__cuda *c, const pi__log *log, pi_error *err)
{
    static const struct { int32_t type; int of; } modes[] = {
        {PI__Q8_0, OF_INT8}, {PI__Q4_K, OF_INT8}, {PI__NVFP4, OF_INT8}, {PI__F16, OF_MMA16}, {PI__BF16, OF_MMA16},
        {PI__NVFP4, OF_FP4}, {PI__MXFP4, OF_FP4}, {PI__MXFP4, OF_W4A8}, {PI__F16, OF_BLAS}, {PI__BF16, OF_BLAS},
        {PI__Q8_0, OF_W16},   {PI__Q4_K, OF_W16},  {PI__MXFP4, OF_W16},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes && c->info.arch; i++) {
        const int32_t type = modes[i].type;
        const int of = modes[i].of;
        const bool off[] = {!(c->f.matmul_modes & PI__WAY_FP4),
                            !c->blas,
                            !(c->f.matmul_modes & PI__WAY_MMA16),
                            c->f.disabled.packed,
                            !(c->f.matmul_modes & (PI__WAY_W16 | PI__WAY_W4A16)),
                            !(c->f.matmul_modes & PI__WAY_W4A8)};
        int wrong;
        /* slow devices (emulators): only the first test of each mode */
        if (off[of] || (c->info.slow && i && modes[i - 1].of == of)) continue;
        int rc = pi__cuda_check_product(c->rt, type, way_of(of), of == OF_BLAS ? c->blas : NULL, c->info.slow,
                                        &wrong, err);
        if (rc) return rc;
        if (wrong) give_up(c, of, pi__type_info_of(type)->name, wrong, log);
    }
    return PI_OK;
}

/* Sets c->f.wgmma: products of many rows in 16-bit floats use wgmma on sm_90, if its results pass the self-test. */
static int choose_wgmma(pi__cuda *c, const pi__log *log, pi_error *err)
{
    bool wrong = false;
    c->f.wgmma = c->info.arch == 90 && c->f.matmul_modes & (PI__WAY_W16 | PI__WAY_W4A16);
    const int rc = c->f.wgmma && !c->info.slow ? pi__cuda_check_wgmma(c->rt, &wrong, err) : PI_OK;
    if (wrong) {
        c->f.wgmma = false;
        pi__logf(log, PI_LOG_WARN, "%s: wgmma is disabled, its results differ from mma.sync; prompts are slower: "
                 "build for sm_90a, or update the driver", c->desc);
    }
    return rc;
}

/* Returns the PI__WAY_* bits for FP4 matrices. By default MXFP4 uses W4A8 on devices with FP4 tensor cores, unless
 * option matmul is exact or w16. The error of W4A8 is within the bound of the types that matmul auto computes in 16-bit
 * floats (docs/perf/modes.md). */
static int fp4_modes(const pi__cuda *c, const pi__cuda_params *p, const pi__log *log)
{
    const bool can = c->info.arch / 10 == 12;
    if (p->fp4 == PI__FP4_OFF) return 0;
    if (p->fp4 == PI__FP4_AUTO) return can && p->matmul == PI__MATMUL_AUTO ? PI__WAY_W4A8 : 0;
    if (can && p->fp4 == PI__FP4_W4A4) return PI__WAY_FP4;
    if (can && p->fp4 == PI__FP4_W4A8) return PI__WAY_W4A8 | PI__WAY_W4A16;
    if (p->fp4 != PI__FP4_W4A16) pi__logf(log, PI_LOG_WARN, "%s has no FP4 tensor cores: fp4-mode w4a16 is used",
                                          c->desc);
    return PI__WAY_W4A16;
}

/* Sets c->f.matmul_modes, c->blas and c->f.wgmma once, and disables the modes that fail the self-test. All modes are
 * batch-invariant, except for cublas (blas.h). */
static int choose_products(pi__cuda *c, const pi__cuda_params *p, const pi__log *log, pi_error *err)
{
    const bool can = c->info.arch / 10 == 12;
    c->f.matmul_modes = PI__WAY_MMA16 | fp4_modes(c, p, log) | (p->matmul != PI__MATMUL_EXACT ? PI__WAY_W16 : 0);
    int code = p->blas ? pi__blas_open(&c->blas, c->rt) : 0;
    if (code) return pi__fail(err, PI_EDEVICE, "cuBLAS cannot use %s: %.300s", c->desc, pi__rt_text(code));
    c->f.blas = c->blas;
    if (p->blas && !c->blas) pi__logf(log, PI_LOG_WARN, "%s: cublas is disabled, cuBLAS was not found: install it",
                                      c->desc);
    int rc = check_products(c, log, err);
    if (!rc) rc = choose_wgmma(c, log, err);
    if (rc) return rc;
    pi__logf(log, PI_LOG_INFO, "%s: matmuls use int8 tensor cores with 15-bit activations, and 16-bit tensor cores "
             "with split operands%s%s%s", c->desc,
             !(c->f.matmul_modes & PI__WAY_W16) ? ""
             : c->f.wgmma ? ", or weights and activations in 16-bit floats (matmul), many rows by wgmma"
                        : ", or weights and activations in 16-bit floats (matmul)",
             c->blas ? ", cuBLAS for F16 and BF16 matrices from 64 rows on" : "",
             c->f.matmul_modes & PI__WAY_FP4 ? "; FP4 tensor cores for NVFP4 and MXFP4 matrices, activations in FP4"
             : c->f.matmul_modes & PI__WAY_W4A8 ? "; FP8 tensor cores for MXFP4 matrices, activations in FP8"
             : can  ? " (fp4-mode enables FP4 tensor cores for NVFP4 and MXFP4 matrices)"
                    : "");
    return PI_OK;
}

/* Loads all kernels now, as loading takes device memory and blocks the host. Logs a warning if some kernels are loaded
 * at their first launch instead. */
static int load_kernels(pi__cuda *c, const pi__log *log, pi_error *err)
{
    const char *lazy;
    int code = pi__rt_load_kernels(c->rt, &lazy);
    if (code) return pi__fail(err, PI_EDEVICE, "cannot load the kernels to %s: %.300s", c->desc, pi__rt_text(code));
    if (lazy) {
        pi__logf(log, PI_LOG_WARN, "%s: kernels are loaded at first use (%.100s): "
                 "first steps are slower and allocate memory outside the plan", c->desc, lazy);
    }
    return PI_OK;
}

int pi__cuda_create(pi__backend **out, int32_t index, const pi__cuda_params *p, const pi__log *log, pi_error *err)
{
    *out = NULL;
    pi__cuda *c = pi__calloc(1, sizeof *c);
    if (c) c->ops = pi__calloc(1, sizeof *c->ops);
    if (!c || !c->ops) {
        pi__free(c);
        return pi__fail_mem(err, "the CUDA backend");
    }
    c->be.dev = &cuda_device;
    c->be.opt = &cuda_opt;
    c->be.ops = &cuda_fns;
    c->be.discrete = true;
    c->n_threads = p->n_threads;
    c->records = !p->no_graphs;
    c->f.fuses = !p->no_fuse;
    c->f.rules_off = p->rules_off;
    c->one_f16 = p->matmul != PI__MATMUL_EXACT;
    int code = pi__rt_open(&c->rt, index, &c->info);
    if (code) {
        const pi__rt_info info = c->info;
        pi__free(c->ops);
        pi__free(c);
        return pi__fail(err, PI_EDEVICE, "CUDA device %d%s%s cannot be used: %.200s", index, *info.name ? ", " : "",
                        info.name, pi__rt_text(code));
    }
    if (p->no_dependent) pi__rt_in_order(c->rt);
    if (p->waiting_blocks && p->waiting_blocks < c->info.places) c->info.places = p->waiting_blocks;
    c->f.places = c->info.places;
    pi__cuda_kernel_facts(&c->f);
    const char *name = c->info.name;
    if (strcmp(name, pi__rt_kind)) snprintf(c->desc, sizeof c->desc, "%s (%s)", pi__rt_kind, name);
    else snprintf(c->desc, sizeof c->desc, "%s", name);
    c->be.integrated = c->info.integrated;
    c->be.exports = c->info.exports;
    if (p->exports && c->info.exports) c->info.shares = false; /* host-written memory cannot be exported */
    c->be.page = c->info.shares ? 0 : c->info.page; /* host-written memory is not mapped by page */
    if (c->info.shares) pi__logf(log, PI_LOG_INFO, "%s shares host memory: weights are packed in place", c->desc);
    else if (!c->be.page) pi__logf(log, PI_LOG_INFO, "%s cannot map memory page by page: weights are one allocation",
                                   c->desc);
    int rc = load_kernels(c, log, err);
    if (!rc) rc = choose_products(c, p, log, err);
    if (!rc && c->info.arch && !c->info.slow) rc = pi__cuda_check_ops(c, log, err);
    c->be.rounds_mxfp4 = c->f.matmul_modes & PI__WAY_W4A8;
    if (rc) cuda_destroy(&c->be);
    else *out = &c->be;
    return rc;
}