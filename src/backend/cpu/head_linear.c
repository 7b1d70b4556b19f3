/* Per-head matrices on the CPU (op head_linear): each head's matrix multiplies its own part of the rows.
 *
 * An item is a head and up to ROWS rows. One thread packs the item's activations and multiplies them by all tiles of
 * the head's matrix. Each tile is unpacked once for all rows of the item. With too few items for the threads, the tiles
 * of a head are split as well. With more than FEW rows, large matrices run as ordinary linear ops, one after the other,
 * each with all threads. This is faster and bitwise identical. Memory: cpu->scratch, one region per thread. Invariant:
 * a result is the kernels' own sum over n_in (linear.h), independent of the other rows. */
#include <string.h>

#include "backend/cpu/linear.h"
#include "base/alloc.h"

/* ROWS: max rows per item. FEW: max rows for which large matrices (a->large) are computed as items; with more rows,
 * head by head */
enum { ROWS = 64, FEW = 32 };

typedef struct head_job {
    pi__cpu *cpu;
    const pi__head_linear *a;
    pi__lin_shape shape;
    uint32_t want;     /* bit i set = the matrices have enum pi__lin_kind i */
    bool floats;       /* the matrices have a float format */
    int32_t n_parts;   /* number of parts that the rows are split into */
    int32_t n_cuts;    /* number of parts that a head's tiles are split into */
    char *work;        /* working memory of thread 0: a canonical tile, then packed activations */
    size_t tile, each; /* bytes of a tile; bytes from one thread's memory to the next */
} head_job;

static void take_scratch(head_job *j, pi__arena *ar, int64_t n_in)
{
    const int64_t n_blk = (n_in + 31) / 32;
    j->tile = pi__lin_tile_bytes(n_blk);
    j->each = j->tile + ROWS * pi__lin_row_stride(j->cpu->lin->digits, n_blk, true);
    j->work = pi__arena_take(ar, (size_t) pi__pool_size(j->cpu->pool) * j->each);
}

size_t pi__cpu_head_linear_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    head_job j = {.cpu = (pi__cpu *) cpu};
    pi__arena ar = {0};
    if (!lim->n_head_mat) return 0;
    take_scratch(&j, &ar, lim->head_in);
    return ar.used;
}

/* Multiplies rows first..first + n - 1 by part `cut` of n_cuts of head h's tiles. Part 0 also copies the n_tail values
 * after the n_in inputs of each row to after its n_out outputs. work: this thread's working memory. */
static void do_item(const head_job *j, int32_t h, int32_t first, int32_t n, int32_t cut, char *work)
{
    const pi__head_linear *a = j->a;
    const pi__weight *w = a->w;
    const int64_t n_blk = j->shape.n_blk;
    const int32_t digits = j->cpu->lin->digits;
    const int32_t most = j->cpu->lin->max_cols, n_group = (n + most - 1) / most;
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = a->x + h * a->x_step, .ldx = a->ldx};
    const size_t stride = pi__lin_row_stride(digits, n_blk, j->floats);
    float *y = a->y + h * a->y_step;
    pi__lin_x x[ROWS];
    int32_t start[ROWS + 1] = {0};
    for (int32_t g = 0; g < n_group; g++) {
        start[g + 1] = (int32_t) ((int64_t) n * (g + 1) / n_group);
        pi__lin_group(work + j->tile + (size_t) start[g] * stride, digits, n_blk, start[g + 1] - start[g], j->floats,
                      &x[g]);
        j->cpu->lin->input(&in, w->n_in, first + start[g], start[g + 1] - start[g], 0, n_blk, &x[g], 0, j->want);
    }
    const int64_t end = j->shape.n_tile * (cut + 1) / j->n_cuts;
    for (int64_t t = j->shape.n_tile * cut / j->n_cuts; t < end; t++) {
        pi__lin_tile tile = pi__lin_tile_of(j->cpu->lin, w, &j->shape, h, t, (uint8_t *) work);
        for (int32_t g = 0; g < n_group; g++)
            pi__lin_tile_mul(&tile, &x[g], y + (first + start[g]) * a->ldy + 16 * t, a->ldy, n_group == 1);
    }
    for (int32_t r = first; r < first + n && a->n_tail && !cut; r++)
        memcpy(y + r * a->ldy + w->n_out, in.x + r * a->ldx + w->n_in, (size_t) a->n_tail * sizeof *y);
}

/* Returns the number of parts to split a head's tiles into, so that each thread gets about ITEMS items. */
static int32_t cuts_of(const head_job *j)
{
    enum { ITEMS = 3 /* per thread */ };
    const int64_t items = j->a->w->n_mat * j->n_parts,
                  want = (ITEMS * (int64_t) pi__pool_size(j->cpu->pool) + items - 1) / items;
    return (int32_t) (want < j->shape.n_tile ? want : j->shape.n_tile);
}

static void head_main(void *arg, int32_t ith, int32_t nth)
{
    const head_job *j = arg;
    const int64_t n = j->a->n_rows;
    (void) nth;
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, (int32_t) j->a->w->n_mat * j->n_parts * j->n_cuts)) >= 0;) {
        const int32_t k = i / j->n_cuts, part = k % j->n_parts, first = (int32_t) (n * part / j->n_parts);
        do_item(j, k / j->n_parts, first, (int32_t) (n * (part + 1) / j->n_parts) - first, i % j->n_cuts,
                j->work + (size_t) ith * j->each);
    }
}

static void multiply_apart(pi__backend *be, const pi__batch *b, const pi__head_linear *a)
{
    for (int32_t h = 0; h < a->w->n_mat; h++) {
        const pi__weight w = pi__head_matrix(a, h);
        const pi__linear one = pi__head_product(a, &w, h);
        pi__cpu_linear(be, b, &one);
    }
}

void pi__cpu_head_linear(pi__backend *be, const pi__batch *b, const pi__head_linear *a)
{
    head_job j = {.cpu = (pi__cpu *) be, .a = a, .n_parts = (a->n_rows + ROWS - 1) / ROWS};
    const int kind = pi__lin_format_of(a->w->type).kind;
    pi__arena ar = {.base = j.cpu->scratch, .size = j.cpu->scratch_size};
    if (a->large && a->n_rows > FEW) {
        multiply_apart(be, b, a);
        return;
    }
    if (a->n_rows < 1 || !pi__lin_shape_of(a->w, &j.shape)) return;
    j.n_cuts = cuts_of(&j);
    j.want = 1u << kind;
    j.floats = kind >= PI__LK_F32;
    take_scratch(&j, &ar, a->w->n_in);
    pi__pool_run(j.cpu->pool, head_main, &j);
}
