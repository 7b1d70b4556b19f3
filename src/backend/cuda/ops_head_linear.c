/* Heads' own matrices (pi__head_linear) on the device: they are multiplied as experts are, each with all rows
 * (kernels/head_linear_kernels.cuh), so many rows at a time that scratch stays small. Few rows of packed types in 16-bit floats
 * take two launches (kernels/heads_kernels.cuh) instead of four.
 *
 * Memory: of the backend's scratch, [three lists of tiles][their lengths][prepared input][columns: input, then results]. The step
 * thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_heads.h"
#include "formats/formats.h"

enum { ROWS = 128 /* at a time */ };

/* Layout of the op's scratch, in bytes from its start. */
typedef struct head_layout {
    size_t tile[3], n_tile; /* lists of tiles; [3] */
    size_t prepared;        /* [columns, n_in] */
    size_t column;          /* [columns, the larger of n_in and n_out] */
    size_t end;
} head_layout;

static head_layout layout(size_t at, int32_t n_rows, int32_t n_head, int64_t n_in, int64_t n_out)
{
    const int32_t columns = n_rows * n_head;
    head_layout p;
    for (int i = 0; i < 3; i++)
        p.tile[i] = pi__cuda_take(&at, (size_t) pi__k_max_tiles(n_rows, n_head, n_head, i) * sizeof(pi__k_tile));
    p.n_tile = pi__cuda_take(&at, 3 * sizeof(int32_t));
    p.prepared = pi__cuda_take(&at, pi__k_mma16_prepared_bytes(PI__BF16, columns, (n_in + 31) / 32 * 32)); /* the largest form */
    p.column = pi__cuda_take(&at, (size_t) columns * (size_t) (n_in > n_out ? n_in : n_out) * sizeof(float));
    p.end = at;
    return p;
}

size_t pi__cuda_head_linear_bytes(const pi__limits *lim)
{
    if (!lim->n_head_mat) return 0;
    return layout(0, lim->max_tokens < ROWS ? lim->max_tokens : ROWS, lim->n_head_mat, lim->head_in, lim->head_out).end;
}

bool pi__cuda_few_heads(const pi__cuda *c, const pi__head_linear *a)
{
    const int32_t type = pi__cuda_packed_type(a->w->type);
    return a->n_rows > 0 && a->n_rows <= PI__K_HEADS_ROWS && pi__cuda_form(c->ways, type, a->w->n_in) == PI__FORM_W16;
}

void pi__cuda_queue_heads(pi__cuda *c, const pi__head_linear *a, const pi__k_mla_qkv *prep, const pi__k_tail *then)
{
    const int32_t n_head = (int32_t) a->w->n_mat;
    const head_layout p = layout(c->at.heads, a->n_rows, n_head, a->w->n_in, a->w->n_out);
    pi__k_heads k = {.w = pi__cuda_matrix(a->w), .n_rows = a->n_rows, .n_head = n_head, .x = a->x, .ldx = a->ldx,
                     .x_step = a->x_step, .n_tail = a->n_tail, .y = a->y, .ldy = a->ldy, .y_step = a->y_step,
                     .prepared = c->scratch + p.prepared, .n_sm = c->info.n_sm, .tail = then};
    if (prep) k.prep = *prep;
    PI__QUEUE(c, pi__k_heads_run(pi__rt_stream(c->rt), &k));
}

/* The input of columns, and the lists of tiles. 16-bit floats are made of rows as they lie, which then need not be gathered, and
 * what is copied is, too: of k nothing is left to do of that. */
static void prepare(pi__cuda *c, const pi__head_linear *a, int form, pi__k_head_rows *k, void *prepared)
{
    void *stream = pi__rt_stream(c->rt);
    const pi__k_input in = {.kind = PI__IN_PLAIN, .x = k->column, .ldx = k->n_in};
    const pi__k_matrix w = pi__cuda_matrix(a->w);
    if (form != PI__FORM_W16) {
        PI__QUEUE(c, pi__k_head_rows_run(stream, k));
        PI__QUEUE(c, pi__cuda_prepare(stream, form, &in, w.type, k->n_rows * k->n_head, k->n_in, prepared));
        return;
    }
    const pi__k_heads some = {.w = w, .n_rows = k->n_rows, .n_head = k->n_head, .x = k->x, .ldx = k->ldx, .x_step = k->x_step,
                              .n_tail = k->n_tail, .y = k->y, .ldy = k->ldy, .y_step = k->y_step, .prepared = prepared};
    pi__k_head_rows lists = *k;
    lists.column = NULL;
    PI__QUEUE(c, pi__k_head_rows_run(stream, &lists));
    PI__QUEUE(c, pi__k_heads_prepare(stream, &some));
    k->n_tail = 0;
}

/* Rows from first on. */
static void multiply(pi__cuda *c, const pi__head_linear *a, int32_t first, int32_t n_rows)
{
    const int32_t n_head = (int32_t) a->w->n_mat;
    const int64_t n_in = a->w->n_in, n_out = a->w->n_out;
    const head_layout p = layout(c->at.heads, n_rows, n_head, n_in, n_out);
    void *stream = pi__rt_stream(c->rt), *prepared = c->scratch + p.prepared;
    float *column = (float *) (void *) (c->scratch + p.column);
    pi__k_head_rows k = {.n_rows = n_rows, .n_head = n_head, .x = a->x + first * a->ldx, .ldx = a->ldx, .x_step = a->x_step,
                         .n_in = n_in, .n_out = n_out, .n_tail = a->n_tail, .y = a->y + first * a->ldy, .ldy = a->ldy,
                         .y_step = a->y_step, .column = column, .n_tile = (int32_t *) (void *) (c->scratch + p.n_tile)};
    pi__k_routes r = {.n_rows = n_rows, .n_expert = n_head, .n_used = n_head, .n_tile = k.n_tile};
    for (int i = 0; i < 3; i++) r.tile[i] = k.tile[i] = (pi__k_tile *) (void *) (c->scratch + p.tile[i]);
    const pi__k_experts e = {.w = pi__cuda_matrix(a->w), .y = column, .ldy = n_out, .n_sm = c->info.n_sm};
    const int form = pi__cuda_form(c->ways, e.w.type, n_in);
    prepare(c, a, form, &k, prepared);
    PI__QUEUE(c, pi__cuda_experts(stream, form, &r, &e, prepared));
    PI__QUEUE(c, pi__k_put_heads(stream, &k));
}

void pi__cuda_head_linear(pi__backend *be, const pi__batch *b, const pi__head_linear *a)
{
    pi__cuda *c = (pi__cuda *) be;
    (void) b;
    if (pi__cuda_few_heads(c, a)) {
        pi__cuda_queue_heads(c, a, NULL, NULL);
        return;
    }
    for (int32_t i = 0; i < a->n_rows; i += ROWS) multiply(c, a, i, a->n_rows - i < ROWS ? a->n_rows - i : ROWS);
}
