/* The CUDA backend: the op table over the kernels of kernels/, what lies in device memory, and a step's way there.
 *
 * Memory: a small object and a buffer for packing on the host; weights, cache and activations are the caller's, from
 * alloc; scratch holds the step's batch and what ops need between kernels:
 *
 *     [batch: integers][row numbers][frequencies][prepared input][the same as floats][parts of attention]
 *
 * Threads: as backend.h says. Invariant: ops only queue work. The first error is kept; after it nothing is queued any
 * more, and finish() returns it. Mixtures of experts and recurrent states have no kernels here: weight_size and state_bytes
 * say so, before any such op could be called. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/runtime.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"

enum { MAX_FREQ = 512, PART = 256, MAX_UNITS = 4096, MIN_BLOCK = 16 };

/* A batch's arrays in device memory. */
typedef struct cuda_batch {
    const pi__batch *host;  /* NULL: none */
    const int32_t *token, *pos, *seq_start;
    const int32_t *slot[PI__MAX_GROUPS], *table[PI__MAX_GROUPS];
} cuda_batch;

/* Scratch in device memory: where its parts begin, and its size. */
typedef struct cuda_scratch {
    size_t batch, rows, freq, prepared, floats, parts, total; /* bytes */
} cuda_scratch;

typedef struct pi__cuda {
    pi__backend be;         /* first: the public face */
    pi__rt *rt;             /* device and queue */
    pi__rt_info info;       /* describe(), multiprocessors */
    pi__limits lim;         /* of reserve() */
    cuda_scratch at;        /* layout of scratch */
    char *scratch;          /* device memory */
    int32_t *ints;          /* host image of the batch, at.rows - at.batch bytes */
    size_t n_ints;          /* of it in use */
    cuda_batch batch[2];    /* the step's, and its wanted rows */
    char *pack;             /* host memory for packing weights */
    size_t pack_size;       /* bytes */
    int error;              /* the first one since the last finish() */
    bool no_room;           /* a batch was larger than its limits, or the host had no memory */
} pi__cuda;

static bool failed(const pi__cuda *c) { return c->error || c->no_room; }
static void keep(pi__cuda *c, int code)
{
    if (!c->error) c->error = code;
}

/* ------------------------------------------------------------------------------------------------------------- memory */

static void *cuda_alloc(pi__backend *be, size_t size) { return pi__rt_alloc(((pi__cuda *) be)->rt, size); }
static void cuda_free(pi__backend *be, void *p, size_t size)
{
    (void) size;
    pi__rt_free(((pi__cuda *) be)->rt, p);
}

/* Device memory is taken when it is allocated, and kept. */
static void cuda_commit_trim(pi__backend *be, void *p, size_t size)
{
    (void) be;
    (void) p;
    (void) size;
}

static void cuda_upload(pi__backend *be, void *dst, const void *src, size_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    if (!failed(c)) keep(c, pi__rt_upload(c->rt, dst, src, n));
}
static void cuda_download(pi__backend *be, void *dst, const void *src, size_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    if (!failed(c)) keep(c, pi__rt_download(c->rt, dst, src, n));
}

/* ------------------------------------------------------------------------------------------------------------- weights */

static size_t cuda_weight_size(const pi__backend *be, pi__weight *w)
{
    (void) be;
    pi__cuda_shape s;
    w->layout = 0;
    return w->n_mat == 1 && pi__cuda_shape_of(w->type, w->n_in, w->n_out, &s) ? (s.mat_bytes + 63) & ~(size_t) 63 : 0;
}

static bool pack_room(pi__cuda *c, size_t size)
{
    if (size <= c->pack_size) return true;
    char *p = pi__realloc_array(c->pack, size, 1);
    if (!p) {
        c->no_room = true;
        return false;
    }
    c->pack = p;
    c->pack_size = size;
    return true;
}

static void cuda_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src)
{
    (void) mat; /* there is one */
    pi__cuda *c = (pi__cuda *) be;
    pi__cuda_shape s;
    pi__cuda_shape_of(w->type, w->n_in, w->n_out, &s);
    if (!s.n_block) {
        cuda_upload(be, (char *) w->data + (size_t) row * s.tile_bytes, src, (size_t) n * s.tile_bytes);
        return;
    }
    size_t tiles = (size_t) (n + 15) / 16, file_row = pi__row_size(pi__type_info_of(w->type), w->n_in);
    if (!pack_room(c, tiles * s.tile_bytes)) return;
    for (size_t i = 0; i < tiles; i++) {
        int64_t left = n - (int64_t) i * 16;
        pi__cuda_pack_tile(w->type, &s, w->n_in, (const uint8_t *) src + i * 16 * file_row, left < 16 ? (int32_t) left : 16,
                           (uint8_t *) c->pack + i * s.tile_bytes);
    }
    cuda_upload(be, (char *) w->data + (size_t) (row / 16) * s.tile_bytes, c->pack, tiles * s.tile_bytes);
}

/* --------------------------------------------------------------------------------------------------- cache and scratch */

static size_t cuda_kv_bytes(const pi__backend *be, int32_t type_k, int32_t type_v, int32_t n_head_kv, int32_t head_dim,
                            int32_t block_size)
{
    (void) be;
    const int32_t types[] = {type_k, type_v};
    size_t row = 0;
    for (int i = 0; i < 2; i++) {
        int32_t t = types[i];
        if (t != PI__F32 && t != PI__F16 && t != PI__BF16 && t != PI__Q8_0 && t != PI__Q4_0) return 0;
        if (head_dim > 0 && head_dim % 32 == 0) row += pi__row_size(pi__type_info_of(t), head_dim);
    }
    if (!pi__k_attention_has(head_dim) || n_head_kv < 1) return 0;
    if (block_size != 16 && block_size != 32 && block_size != 64) return 0;
    return (row * (size_t) n_head_kv * (size_t) block_size + 63) & ~(size_t) 63;
}

static size_t cuda_state_bytes(const pi__backend *be, const pi__state_layer *st)
{
    (void) be;
    (void) st;
    return 0;
}

static size_t take(size_t *at, size_t size)
{
    size_t p = *at;
    *at += (size + 255) & ~(size_t) 255;
    return p;
}

static cuda_scratch scratch_of(const pi__cuda *c, const pi__limits *lim)
{
    size_t tokens = (size_t) lim->max_tokens, seqs = (size_t) lim->max_seqs, i = sizeof(int32_t), at = 0;
    size_t table = seqs * ((size_t) lim->max_ctx / MIN_BLOCK + 2), dim = (size_t) lim->max_head_dim;
    size_t units = 2 * (size_t) c->info.n_sm * ((size_t) lim->max_ctx / PART + 2);
    int64_t n_in = (lim->max_n_in + 31) / 32 * 32;
    cuda_scratch s;
    s.batch = take(&at, 2 * (2 * tokens + seqs + 1) * i + PI__MAX_GROUPS * (tokens + table) * i);
    s.rows = take(&at, tokens * i);
    s.freq = take(&at, MAX_FREQ * sizeof(float));
    s.prepared = take(&at, pi__k_prepared_bytes(lim->max_tokens, n_in, 0));
    s.floats = take(&at, pi__k_prepared_bytes(lim->max_tokens, n_in, 1));
    s.parts = take(&at, (units < MAX_UNITS ? units : MAX_UNITS) * 16 * (dim + 2) * sizeof(float));
    s.total = at;
    return s;
}

static size_t cuda_scratch_bytes(const pi__backend *be, const pi__limits *lim)
{
    return scratch_of((const pi__cuda *) be, lim).total;
}

static int cuda_reserve(pi__backend *be, const pi__limits *lim, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    cuda_scratch at = scratch_of(c, lim);
    char *p = pi__rt_alloc(c->rt, at.total);
    int32_t *ints = pi__malloc(at.rows - at.batch);
    if (!p || !ints) {
        pi__rt_free(c->rt, p);
        pi__free(ints);
        return pi__fail_mem(err, "scratch of the device");
    }
    pi__rt_free(c->rt, c->scratch);
    pi__free(c->ints);
    c->scratch = p;
    c->ints = ints;
    c->at = at;
    c->lim = *lim;
    return PI_OK;
}

/* --------------------------------------------------------------------------------------------------------------- steps */

/* n integers of the batch: where they will be on the device. NULL: no room. */
static const int32_t *put(pi__cuda *c, const int32_t *src, size_t n)
{
    size_t room = (c->at.rows - c->at.batch) / sizeof(int32_t);
    if (!src || n > room - c->n_ints) {
        c->no_room |= src != NULL;
        return NULL;
    }
    memcpy(c->ints + c->n_ints, src, n * sizeof(int32_t));
    const int32_t *p = (const int32_t *) (c->scratch + c->at.batch) + c->n_ints;
    c->n_ints += n;
    return p;
}

static void put_batch(pi__cuda *c, cuda_batch *d, const pi__batch *b)
{
    size_t n = (size_t) b->n_tokens, seqs = (size_t) b->n_seqs;
    d->host = b;
    d->token = put(c, b->token, n);
    d->pos = put(c, b->pos, n);
    d->seq_start = put(c, b->seq_start, seqs + 1);
}

static void cuda_begin(pi__backend *be, const pi__batch *b)
{
    pi__cuda *c = (pi__cuda *) be;
    memset(c->batch, 0, sizeof c->batch);
    c->n_ints = 0;
    put_batch(c, &c->batch[0], b);
    if (b->wanted) put_batch(c, &c->batch[1], b->wanted);
    for (int32_t g = 0; g < b->n_groups; g++) {
        const pi__kv_batch *kv = &b->kv[g];
        c->batch[0].slot[g] = put(c, kv->slot, (size_t) b->n_tokens);
        c->batch[0].table[g] = put(c, kv->block_table, (size_t) b->n_seqs * (size_t) kv->table_stride);
        c->batch[1].table[g] = c->batch[0].table[g]; /* the same sequences */
    }
    cuda_upload(be, c->scratch + c->at.batch, c->ints, c->n_ints * sizeof(int32_t));
}

static int cuda_finish(pi__backend *be, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    int code = c->error ? c->error : pi__rt_wait(c->rt);
    bool no_room = c->no_room;
    c->error = 0;
    c->no_room = false;
    if (code) return pi__fail(err, PI_EDEVICE, "%s failed: %.400s", c->info.name, pi__rt_text(code));
    if (no_room) return pi__fail(err, PI_ENOMEM, "%s: no room for what the device was given", c->info.name);
    return PI_OK;
}

/* The device's arrays of the batch given to begin, or of its wanted rows. */
static const cuda_batch *batch_of(const pi__cuda *c, const pi__batch *b)
{
    return c->batch[1].host == b ? &c->batch[1] : &c->batch[0];
}

/* ----------------------------------------------------------------------------------------------------------------- ops */

/* Queues a kernel, unless something failed. */
#define QUEUE(c, call)                                                                                                  \
    do {                                                                                                                \
        if (!failed(c)) keep(c, call);                                                                                  \
    } while (0)

static bool is_float(int32_t type) { return type == PI__F32 || type == PI__F16 || type == PI__BF16; }

static pi__k_matrix matrix_of(const pi__weight *w)
{
    pi__k_matrix m = {.data = w->data, .type = w->type, .n_in = w->n_in, .n_out = w->n_out, .scale = w->scale};
    pi__cuda_shape_of(w->type, w->n_in, w->n_out, &m.shape);
    return m;
}

static void cuda_embed(pi__backend *be, const pi__batch *b, const pi__weight *w, float scale, float *out)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__k_matrix m = matrix_of(w);
    QUEUE(c, pi__k_embed(pi__rt_stream(c->rt), &m, batch_of(c, b)->token, b->n_tokens, scale, out));
}

static void cuda_linear(pi__backend *be, const pi__lin_in *in, int32_t n_rows, const pi__lin *lin, int32_t n_lin)
{
    pi__cuda *c = (pi__cuda *) be;
    void *stream = pi__rt_stream(c->rt), *to[2] = {c->scratch + c->at.prepared, c->scratch + c->at.floats};
    pi__k_input k = {in->kind, in->x, in->ldx, NULL, in->ldx2, in->w, in->eps};
    if (in->kind == PI__IN_GEGLU || in->kind == PI__IN_SWIGLU) k.x2 = in->x2;
    bool ready[2] = {false, false};
    for (int32_t i = 0; i < n_lin; i++) {
        pi__k_matrix m = matrix_of(lin[i].w);
        int f = is_float(m.type);
        if (!ready[f]) QUEUE(c, pi__k_prepare(stream, &k, n_rows, m.n_in, f, to[f]));
        ready[f] = true;
        QUEUE(c, pi__k_linear(stream, &m, to[f], n_rows, lin[i].y, lin[i].ldy));
    }
}

static void cuda_add_norm(pi__backend *be, float *x, const float *y, const float *w, float eps, float scale, int32_t n_rows,
                          int64_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    QUEUE(c, pi__k_add_norm(pi__rt_stream(c->rt), x, y, w, eps, scale, n_rows, n));
}

static void cuda_norm(pi__backend *be, float *out, int64_t ldo, const float *x, const float *w, float eps, int32_t n_rows,
                      int64_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    QUEUE(c, pi__k_norm(pi__rt_stream(c->rt), out, ldo, x, w, eps, n_rows, n));
}

/* freq is the model's, on the host. */
static void cuda_rope(pi__backend *be, const pi__batch *b, const float *freq, int32_t n_freq, float mscale, float *table)
{
    pi__cuda *c = (pi__cuda *) be;
    float *f = (float *) (c->scratch + c->at.freq);
    if (n_freq > MAX_FREQ) {
        c->no_room = true;
        return;
    }
    cuda_upload(be, f, freq, (size_t) n_freq * sizeof *f);
    QUEUE(c, pi__k_rope(pi__rt_stream(c->rt), batch_of(c, b)->pos, b->n_tokens, f, n_freq, mscale, table));
}

static pi__k_cache cache_of(const pi__batch *b, const pi__kv_layer *kv)
{
    return (pi__k_cache) {kv->base, kv->stride, kv->type_k, kv->type_v, kv->n_head_kv, kv->head_dim,
                          b->kv[kv->group].block_size};
}

static void cuda_qkv(pi__backend *be, const pi__batch *b, const pi__qkv *a, const pi__kv_layer *kv)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_batch *d = batch_of(c, b);
    bool store = a->k && d->slot[kv->group];
    pi__k_qkv k = {
        .q = a->q, .ldq = a->ldq, .q_stride = a->q_stride ? a->q_stride : kv->head_dim, .k = store ? a->k : NULL,
        .v = store ? a->v : NULL, .ldk = a->ldk, .ldv = a->ldv, .n_head = a->n_head, .n_tokens = b->n_tokens,
        .q_norm = a->q_norm, .k_norm = a->k_norm, .v_norm = a->v_norm, .eps = a->eps, .rope = a->rope, .n_rot = a->n_rot,
        .pair_stride = a->pair_stride, .q_scale = a->q_scale, .slot = d->slot[kv->group], .cache = cache_of(b, kv),
    };
    QUEUE(c, pi__k_qkv_run(pi__rt_stream(c->rt), &k));
}

/* Keys from the first that a sequence's first token sees to the last of its last. */
static int32_t most_keys(const pi__batch *b, int32_t window)
{
    int32_t most = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        if (b->seq_start[s + 1] == b->seq_start[s]) continue;
        int32_t from = b->pos[b->seq_start[s]], to = b->pos[b->seq_start[s + 1] - 1];
        int32_t lo = window > 0 && from >= window ? from - window + 1 : 0;
        if (to - lo + 1 > most) most = to - lo + 1;
    }
    return most;
}

static void cuda_attention(pi__backend *be, const pi__batch *b, const pi__attn *a, const pi__kv_layer *kv)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_batch *d = batch_of(c, b);
    pi__k_attn k = {
        .q = a->q, .ldq = a->ldq, .q_stride = a->q_stride ? a->q_stride : kv->head_dim, .gate = a->gate, .out = a->out,
        .ldo = a->ldo, .n_head = a->n_head, .window = a->window, .first = a->first, .past = a->past, .softcap = a->softcap,
        .sinks = a->sinks, .n_tokens = b->n_tokens, .n_seqs = b->n_seqs, .pos = d->pos, .seq_start = d->seq_start,
        .block_table = d->table[kv->group], .table_stride = b->kv[kv->group].table_stride,
        .max_keys = most_keys(b, a->window), .cache = cache_of(b, kv), .scratch = c->scratch + c->at.parts,
        .scratch_size = c->at.total - c->at.parts, .n_sm = c->info.n_sm,
    };
    QUEUE(c, pi__k_attention(pi__rt_stream(c->rt), &k));
}

static void cuda_gather_rows(pi__backend *be, const int32_t *row, int32_t n_rows, const float *x, int64_t n, float *out)
{
    pi__cuda *c = (pi__cuda *) be;
    int32_t *rows = (int32_t *) (c->scratch + c->at.rows);
    if (n_rows > c->lim.max_tokens) {
        c->no_room = true;
        return;
    }
    cuda_upload(be, rows, row, (size_t) n_rows * sizeof *rows);
    QUEUE(c, pi__k_gather_rows(pi__rt_stream(c->rt), x, rows, n_rows, n, out));
}

static void cuda_softcap(pi__backend *be, float *x, float cap, size_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    QUEUE(c, pi__k_softcap(pi__rt_stream(c->rt), x, cap, n));
}

/* ---------------------------------------------------------------------------------------------------- create, destroy */

static const char *cuda_describe(const pi__backend *be) { return ((const pi__cuda *) be)->info.name; }
static int32_t cuda_n_threads(const pi__backend *be)
{
    (void) be;
    return 1;
}

static void cuda_destroy(pi__backend *be)
{
    pi__cuda *c = (pi__cuda *) be;
    if (!c) return;
    pi__rt_free(c->rt, c->scratch);
    pi__rt_close(c->rt);
    pi__free(c->ints);
    pi__free(c->pack);
    pi__free(c);
}

static const pi__backend_ops cuda_ops = {
    .destroy = cuda_destroy,
    .describe = cuda_describe,
    .n_threads = cuda_n_threads,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .commit = cuda_commit_trim,
    .trim = cuda_commit_trim,
    .upload = cuda_upload,
    .download = cuda_download,
    .weight_size = cuda_weight_size,
    .weight_load = cuda_weight_load,
    .kv_bytes = cuda_kv_bytes,
    .state_bytes = cuda_state_bytes,
    .snapshot_bytes = cuda_state_bytes,
    .scratch_bytes = cuda_scratch_bytes,
    .reserve = cuda_reserve,
    .begin = cuda_begin,
    .finish = cuda_finish,
    .embed = cuda_embed,
    .linear = cuda_linear,
    .add_norm = cuda_add_norm,
    .rope = cuda_rope,
    .qkv = cuda_qkv,
    .attention = cuda_attention,
    .gather_rows = cuda_gather_rows,
    .softcap = cuda_softcap,
    .norm = cuda_norm,
};

int pi__cuda_create(pi__backend **out, const pi__cpu_params *p, const pi__log *log, pi_error *err)
{
    (void) p;
    (void) log;
    *out = NULL;
    pi__cuda *c = pi__calloc(1, sizeof *c);
    if (!c) return pi__fail_mem(err, "the CUDA backend");
    c->be.ops = &cuda_ops;
    c->be.far = true;
    int code = pi__rt_open(&c->rt, 0, &c->info);
    if (code) {
        pi__free(c);
        return pi__fail(err, PI_EDEVICE, "no CUDA device: %.200s", pi__rt_text(code));
    }
    *out = &c->be;
    return PI_OK;
}
