/* Op head_linear: per-head matrices. Their products use the expert kernels: every head is an expert, and every row uses
 * all experts (kernels/head_linear_kernels.cuh). A pass has at most ROWS rows, so that scratch stays small.
 *
 * Format W16 packs rows directly from x and writes results directly to y: three launches instead of four, or one or two
 * with few rows (kernels/heads_kernels.cuh). Op mla_qkv can be fused, with the results as its queries. Op sparse can
 * write this op's input already packed. Large matrices (`large`) with more than ROWS rows are separate products, as
 * each of them fills the device.
 *
 * Memory: of the backend's scratch, [three lists of tiles][their lengths][packed input][columns: input, then results].
 * A column is one row of one head. The step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_heads.h"
#include "formats/formats.h"

enum { ROWS = PI__CUDA_HEAD_ROWS };

/* Layout of the op's scratch: byte offsets, from the argument `at` of layout() on. */
typedef struct head_layout {
    size_t tile[3], n_tile; /* three lists of tiles; their lengths, [3] */
    size_t prepared;        /* [columns, n_in] packed input, in the activation format */
    size_t column;          /* [columns, max of n_in and n_out] input or results as floats */
    size_t end;
} head_layout;

static head_layout layout(size_t at, int32_t n_rows, int32_t n_head, int64_t n_in, int64_t n_out)
{
    const int32_t columns = n_rows * n_head;
    head_layout p;
    for (int i = 0; i < 3; i++)
        p.tile[i] = pi__cuda_take(&at, (size_t) pi__k_max_tiles(n_rows, n_head, n_head, i) * sizeof(pi__k_tile));
    p.n_tile = pi__cuda_take(&at, 3 * sizeof(int32_t));
    /* size of the largest format */
    p.prepared = pi__cuda_take(&at, pi__k_mma16_packed_x_bytes(PI__BF16, columns, (n_in + 31) / 32 * 32));
    p.column = pi__cuda_take(&at, (size_t) columns * (size_t) (n_in > n_out ? n_in : n_out) * sizeof(float));
    p.end = at;
    return p;
}

size_t pi__cuda_head_linear_bytes(const pi__limits *lim)
{
    if (!lim->n_head_mat) return 0;
    return layout(0, lim->max_tokens < ROWS ? lim->max_tokens : ROWS, lim->n_head_mat, lim->head_in, lim->head_out).end;
}

/* Returns the arguments for rows first to first + n_rows - 1 of the op; `column` is NULL. */
static pi__k_head_rows rows_of(const pi__cuda *c, const pi__head_linear *a, const head_layout *p, int32_t first,
                               int32_t n_rows)
{
    pi__k_head_rows k = {.n_rows = n_rows, .n_head = (int32_t) a->w->n_mat, .x = a->x + first * a->ldx, .ldx = a->ldx,
                         .x_step = a->x_step, .n_in = a->w->n_in, .n_out = a->w->n_out, .n_tail = a->n_tail,
                         .y = a->y + first * a->ldy, .ldy = a->ldy, .y_step = a->y_step,
                         .n_tile = (int32_t *) (void *) (c->scratch + p->n_tile)};
    for (int i = 0; i < 3; i++) k.tile[i] = (pi__k_tile *) (void *) (c->scratch + p->tile[i]);
    return k;
}

/* Returns routes that send every row to every head, with heads as experts. */
static pi__k_routes routes_of(const pi__k_head_rows *k)
{
    pi__k_routes r = {.n_rows = k->n_rows, .n_expert = k->n_head, .n_used = k->n_head, .n_tile = k->n_tile};
    for (int i = 0; i < 3; i++) r.tile[i] = k->tile[i];
    return r;
}

/* Returns the arguments of products in 16-bit floats that read rows and write results in place (launch_heads.cu). */
static pi__k_heads heads_of(const pi__cuda *c, const pi__head_linear *a, const pi__k_head_rows *k, size_t prepared)
{
    return (pi__k_heads) {.w = pi__cuda_matrix(a->w),
                          .n_rows = k->n_rows,
                          .n_head = k->n_head,
                          .x = k->x,
                          .ldx = k->ldx,
                          .x_step = k->x_step,
                          .n_tail = k->n_tail,
                          .y = k->y,
                          .ldy = k->ldy,
                          .y_step = k->y_step,
                          .prepared = c->scratch + prepared,
                          .n_sm = c->info.n_sm};
}

/* Returns prep for the n tokens from `first` on. */
static pi__k_mla_qkv part_of(const pi__k_mla_qkv *prep, int32_t first, int32_t n)
{
    pi__k_mla_qkv part = *prep;
    part.n_tokens = n;
    part.a.rope += (int64_t) first * prep->a.n_rot;
    if (part.a.row) part.a.row += first * prep->a.ldr;
    if (part.rows.slot) part.rows.slot += first;
    return part;
}

/* Queues rows first to first + n_rows - 1 in 16-bit floats. Tile lists depend only on n_rows: the lists of the previous
 * pass are reused, except in the first pass and in a shorter last one. */
static void queue_in_16(pi__cuda *c, const pi__head_linear *a, int32_t first, int32_t n_rows, bool ready,
                        const pi__k_mla_qkv *prep)
{
    const head_layout p = layout(c->at.heads, n_rows, (int32_t) a->w->n_mat, a->w->n_in, a->w->n_out);
    const pi__k_head_rows k = rows_of(c, a, &p, first, n_rows);
    const pi__k_routes r = routes_of(&k);
    pi__k_heads heads = heads_of(c, a, &k, p.prepared);
    const pi__k_experts e = {.w = heads.w, .y = k.y, .ldy = k.ldy, .n_sm = c->info.n_sm};
    void *stream = pi__rt_stream(c->rt);
    if (prep) heads.prep = part_of(prep, first, n_rows);
    if (first == 0 || n_rows < ROWS) PI__QUEUE(c, pi__k_head_rows_run(stream, &k));
    if (!ready) PI__QUEUE(c, pi__k_heads_pack_x(stream, &heads));
    PI__QUEUE(c, pi__k_w16_heads(stream, &r, &e, heads.prepared, k.y_step, prep ? prep->a.q_scale : 1.0f));
}

/* Queues a separate product for each head, in any format. ready: location of the packed rows of each matrix; NULL = not
 * packed yet. */
static void queue_apart(pi__cuda *c, const pi__head_linear *a, const pi__k_groups *ready)
{
    for (int32_t i = 0; i < a->w->n_mat; i++) {
        const pi__weight w = pi__head_matrix(a, i);
        const pi__linear one = pi__head_product(a, &w, i);
        cuda_packed_x packed = {.n_rows = 0};
        if (ready)
            packed = pi__cuda_packed_by(&(pi__k_tail) {.n_rows = a->n_rows,
                                                       .in = pi__cuda_input(&one.in),
                                                       .n_in = w.n_in,
                                                       .halves = ready->words + (size_t) i * ready->step,
                                                       .bf16 = ready->bf16});
        pi__cuda_queue_linear(c, &packed, &one);
    }
}

pi__k_groups pi__cuda_groups(const pi__cuda *c, const pi__head_linear *a, int32_t heads)
{
    const int32_t n = (int32_t) a->w->n_mat, rows = a->n_rows;
    const int64_t n_in = a->w->n_in;
    const size_t size = pi__k_w16_packed_x_bytes(rows, n_in), words = size - pi__k_w16_factor_bytes(rows);
    pi__k_groups g = {.heads = heads, .bf16 = pi__w16_input(&c->f, pi__cuda_packed_type(a->w->type))};
    if (pi__heads_apart(a)) {
        g.words = c->scratch + c->at.prepared, g.factor = g.words + words, g.step = size;
        return g;
    }
    const head_layout p = layout(c->at.heads, rows, n, n_in, a->w->n_out);
    g.words = c->scratch + p.prepared,
    g.factor = g.words + pi__k_w16_packed_x_bytes(rows * n, n_in) - pi__k_w16_factor_bytes(rows * n), g.rows = rows;
    return g;
}

void pi__cuda_queue_heads(pi__cuda *c, const pi__head_linear *a, bool ready, const pi__k_mla_qkv *prep,
                          const pi__k_tail *then)
{
    if (a->n_rows <= PI__K_HEADS_ROWS) {
        const head_layout p = layout(c->at.heads, a->n_rows, (int32_t) a->w->n_mat, a->w->n_in, a->w->n_out);
        const pi__k_head_rows k = rows_of(c, a, &p, 0, a->n_rows);
        pi__k_heads heads = heads_of(c, a, &k, p.prepared);
        if (prep) heads.prep = *prep;
        heads.tail = then;
        PI__QUEUE(c, pi__k_heads_run(pi__rt_stream(c->rt), &heads, ready));
        return;
    }
    if (pi__heads_apart(a)) {
        const pi__k_groups g = pi__cuda_groups(c, a, 0);
        queue_apart(c, a, ready ? &g : NULL);
        return;
    }
    for (int32_t i = 0; i < a->n_rows; i += ROWS)
        queue_in_16(c, a, i, a->n_rows - i < ROWS ? a->n_rows - i : ROWS, ready, prep);
}

/* Queues n_rows rows from `first` on in formats other than W16: gathers them by head, multiplies, scatters to y. */
static void multiply(pi__cuda *c, const pi__head_linear *a, int32_t first, int32_t n_rows)
{
    const head_layout p = layout(c->at.heads, n_rows, (int32_t) a->w->n_mat, a->w->n_in, a->w->n_out);
    void *stream = pi__rt_stream(c->rt), *prepared = c->scratch + p.prepared;
    pi__k_head_rows k = rows_of(c, a, &p, first, n_rows);
    k.column = (float *) (void *) (c->scratch + p.column);
    const pi__k_routes r = routes_of(&k);
    const pi__k_input in = {.kind = PI__IN_PLAIN, .x = k.column, .ldx = k.n_in};
    const pi__k_experts e = {.w = pi__cuda_matrix(a->w), .y = k.column, .ldy = k.n_out, .n_sm = c->info.n_sm};
    const int form = pi__form(&c->f, e.w.type, k.n_in);
    PI__QUEUE(c, pi__k_head_rows_run(stream, &k));
    PI__QUEUE(c, pi__cuda_pack_x(stream, form, &in, e.w.type, n_rows * k.n_head, k.n_in, prepared));
    PI__QUEUE(c, pi__cuda_experts(stream, form, &r, &e, prepared));
    PI__QUEUE(c, pi__k_scatter_heads(stream, &k));
}

void pi__cuda_head_linear(pi__backend *be, const pi__batch *b, const pi__head_linear *a)
{
    pi__cuda *c = (pi__cuda *) be;
    (void) b;
    if (pi__heads_in_16(&c->f, a)) {
        pi__cuda_queue_heads(c, a, false, NULL, NULL);
        return;
    }
    if (pi__heads_apart(a)) {
        queue_apart(c, a, NULL);
        return;
    }
    for (int32_t i = 0; i < a->n_rows; i += ROWS) multiply(c, a, i, a->n_rows - i < ROWS ? a->n_rows - i : ROWS);
}