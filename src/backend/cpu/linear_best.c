/* Op linear with pi__best_rows: computes only the largest values of each row exactly, for the LM head of a batch that
 * samples.
 *
 * With 15-bit activations a product is two byte products, and a small model's LM head is a third to two thirds of a
 * decode step's products. So this op first multiplies with 8-bit activations, then recomputes with 15 bits all tiles
 * with values that may be among the largest. The other values of a row are inexact, but too low to be selected. Op
 * topk's result is bitwise identical to its result for an exact row.
 *
 *     |w . x15 - w . x8|  <=  norm(w) * norm(x15 - x8)           for a row w of the matrix (Cauchy-Schwarz);
 *     reach of a tile      =  norm(x15 - x8) * the max norm of its rows
 *     L                    =  the k-th largest of (value - reach) in a row of the batch
 *     recomputed           =  tiles with some value + reach >= L; at least k values are >= L
 *
 * x15, x8: an activation row with 15 and 8 bits; k: the number of values that the row's request needs. The quantization
 * error of x8 is computed from the float row; the error of x15 is at most half of its block's scale per value. The
 * norms of the matrix are computed at its first use.
 *
 * Memory: the backend's scratch, and the norms (4 bytes per tile of 16 matrix rows). Threads: called by the step
 * thread, which forks and joins the pool inside. One thread processes a row of the batch, so results do not depend on
 * the other rows. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/simd.h"
#include "backend/cpu/top.h"
#include "base/alloc.h"

enum {
    FEW_ROWS = 4,      /* min batch rows: with fewer, the product is limited by memory, so 8 bits are as slow as 15 */
    SHORT_ROW = 256,   /* min values per logits row: with fewer, the second pass costs more than it saves */
    BLOCK = PI__LOGITS_BLOCK, /* values tested together; a multiple of a tile's 16 */
};

typedef struct best_job {
    pi__cpu *cpu;
    const pi__linear *a;
    const pi__cpu_linear_kernels *k8;
    pi__lin_shape s;
    uint32_t want;    /* bit i set = the matrix has enum pi__lin_kind i */
    float slack;      /* bound of the rounding error of float sums, relative to norm(w) * norm(x) */
    _Atomic bool partial; /* set if a row has a border, so that some of its values may be inexact */
} best_job;

/* Working memory of a thread. */
typedef struct best_work {
    pi__lin_x x8, x15; /* one row of the batch, quantized to 8 bits; the same row, quantized to 15 bits */
    uint64_t *key;     /* [PI__MAX_TOP + PI__MAX_SKIP] heap (pi__top_put) of the keys of the k largest lower bounds */
    uint8_t *tile;     /* memory for one canonical tile */
} best_work;

size_t pi__lin_best_bytes(int64_t n_blk)
{
    const size_t heap = (PI__MAX_TOP + PI__MAX_SKIP) * sizeof(uint64_t);
    return pi__lin_row_stride(1, n_blk, true) + pi__lin_row_stride(2, n_blk, true) + heap + pi__lin_tile_bytes(n_blk);
}

static best_work work_of(const best_job *j, int32_t ith)
{
    char *p = j->cpu->scratch + (size_t) ith * pi__lin_best_bytes(j->s.n_blk);
    best_work w;
    pi__lin_group(p, 1, j->s.n_blk, 1, true, &w.x8);
    p += pi__lin_row_stride(1, j->s.n_blk, true);
    pi__lin_group(p, 2, j->s.n_blk, 1, false, &w.x15);
    p += pi__lin_row_stride(2, j->s.n_blk, true);
    w.key = (uint64_t *) (void *) p;
    w.tile = (uint8_t *) (w.key + PI__MAX_TOP + PI__MAX_SKIP);
    return w;
}

/* ---------------------------------------------------------------------------------------------------------- norms */

/* sum[row] += sum of squares of the row's 32 values in a canonical block, for its 16 rows. */
static void add_squares(const pi__cpu_linear_kernels *k, int32_t type, const uint8_t *block, double *sum)
{
    enum { LONGEST = 128 }; /* codes of a line with 8 columns x 16 rows */
    const int32_t kind = pi__lin_format_of(type).kind;
    const pi__lin_codes codes = pi__lin_codes_of(k, type);
    const int halves = kind == PI__LK_OFF16 || kind == PI__LK_MIN16 ? 2 : 1, line = 16 * k->line_cols,
              part = 512 / halves;
    const bool min = kind == PI__LK_MIN32 || kind == PI__LK_MIN16;
    const float *side = (const float *) (const void *) (block + 512);
    for (int h = 0; h < halves; h++) {
        int32_t square[LONGEST] = {0}, plain[LONGEST] = {0};
        for (int i = h * part; i < (h + 1) * part; i += line)
            for (int c = 0; c < line; c++) {
                const int32_t v = pi__lin_code(codes, block[i + c]);
                square[c] += v * v;
                plain[c] += v;
            }
        for (int lane = 0; lane < 16; lane++) {
            int32_t s2 = 0, s1 = 0;
            for (int c = lane * k->line_cols; c < (lane + 1) * k->line_cols; c++) s2 += square[c], s1 += plain[c];
            const double s = (double) side[16 * h + lane], m = min ? (double) side[16 * (halves + h) + lane] : 0;
            sum[lane] += s * s * s2 + 2 * s * m * s1 + m * m * (32 / halves);
        }
    }
}

static void find_norms(void *arg, int32_t ith, int32_t nth)
{
    (void) nth;
    enum { STEP = 16 };
    const best_job *j = arg;
    const pi__weight *w = j->a->lin[0].w;
    const int32_t kind = pi__lin_format_of(w->type).kind, n = (int32_t) ((j->s.n_tile + STEP - 1) / STEP);
    uint8_t *buf = work_of(j, ith).tile;
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, n)) >= 0;) {
        for (int64_t t = i * STEP; t < (i + 1) * STEP && t < j->s.n_tile; t++) {
            pi__lin_tile tile = pi__lin_tile_of(j->cpu->lin, w, &j->s, 0, t, buf);
            double sum[16] = {0}, most = 0;
            pi__lin_tile_unpack(&tile);
            for (int64_t b = 0; b < j->s.n_blk; b++)
                add_squares(j->cpu->lin, w->type, tile.w.data + (size_t) b * pi__lin_block_size(kind), sum);
            for (int lane = 0; lane < 16; lane++) most = sum[lane] > most || isnan(sum[lane]) ? sum[lane] : most;
            j->cpu->norms.tile[t] = (float) (sqrt(most) * fabs((double) tile.scale) * 1.00001);
        }
    }
}

/* Sets cpu->norms to the max row norms per tile of the op's matrix; keeps them if they already belong to it. Returns
 * false if out of memory. */
static bool have_norms(const best_job *j)
{
    const void *of = j->a->lin[0].w->data;
    pi__cpu *cpu = j->cpu;
    if (cpu->norms.of == of) return true;
    pi__free(cpu->norms.tile);
    cpu->norms.of = NULL;
    cpu->norms.tile = pi__calloc((size_t) j->s.n_tile, sizeof *cpu->norms.tile);
    if (!cpu->norms.tile) return false;
    pi__pool_run(cpu->pool, find_norms, (void *) j);
    cpu->norms.least = cpu->norms.most = cpu->norms.tile[0];
    for (int64_t t = 1; t < j->s.n_tile; t++) {
        cpu->norms.least = fminf(cpu->norms.least, cpu->norms.tile[t]);
        cpu->norms.most = fmaxf(cpu->norms.most, cpu->norms.tile[t]);
    }
    cpu->norms.of = of;
    return true;
}

/* --------------------------------------------------------------------------------------------- a row of the batch */

/* Returns the max difference of the 8-bit and the 15-bit product of w's row of the batch with a matrix row of norm
 * 1. */
static float reach_of(const best_job *j, const best_work *w)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < 32 * j->s.n_blk; i++) {
        const double x = (double) w->x8.f[i],
                     e = fabs(x - (double) w->x8.d[i / 32] * w->x8.q[i]) + fabs((double) w->x15.d[i / 32]) / 2;
        off += e * e;
        size += x * x;
    }
    return (float) (sqrt(off) * 1.001 + sqrt(size) * (double) j->slack);
}

/* Returns L minus the margin: tiles that may have a value >= it are recomputed. -INFINITY = all values have to be
 * recomputed: a value is NaN, fewer than k values exist, or the largest exceeds a->best->most. y: the row's 8-bit
 * results. */
static float border(const best_job *j, const best_work *w, const float *y, float reach, int32_t k)
{
    const float *norm = j->cpu->norms.tile, least_reach = reach * j->cpu->norms.least;
    const int32_t n = (int32_t) j->a->lin[0].w->n_out;
    float least = -INFINITY, top = -INFINITY;
    int32_t n_key = 0;
    bool odd = false;
    for (int32_t i = 0; i < n; i += BLOCK) {
        const int32_t len = n - i < BLOCK ? n - i : BLOCK;
        const float most = j->cpu->top->max(y + i, len, &odd);
        if (most > top) top = most;
        if (!(most - least_reach > least)) continue;
        for (int32_t t = i; t < i + len; t++) {
            const float v = y[t] - reach * norm[t / 16];
            if (!(v > least)) continue;
            n_key = pi__top_put(w->key, n_key, k, pi__logit_key(v, t));
            if (n_key == k) least = pi__key_logit(w->key[0]);
        }
    }
    return odd || n_key < k || !(top <= j->a->best->most) ? -INFINITY : least - j->a->best->margin;
}

/* Recomputes the 16 values of tile t with 15-bit activations and writes them to the row's results y. */
static void compute_tile(const best_job *j, const best_work *w, int32_t t, float *y)
{
    const pi__lin *lin = &j->a->lin[0];
    pi__lin_tile tile = pi__lin_tile_of(j->cpu->lin, lin->w, &j->s, 0, t, w->tile);
    pi__lin_tile_mul(&tile, &w->x15, y + 16 * t, lin->ldy, true);
}

static void do_row(best_job *j, const best_work *w, int32_t row)
{
    const pi__linear *a = j->a;
    const pi__topk_request *asked = &a->best->request[row];
    const int32_t n = (int32_t) a->lin[0].w->n_out, k = asked->k + asked->n_skip;
    float *y = a->lin[0].y + row * a->lin[0].ldy;
    j->k8->input(&a->in, a->lin[0].w->n_in, row, 1, 0, j->s.n_blk, &w->x8, 0, j->want | 1u << PI__LK_F32);
    j->cpu->lin->input(&a->in, a->lin[0].w->n_in, row, 1, 0, j->s.n_blk, &w->x15, 0, j->want);
    const float reach = reach_of(j, w), most_reach = reach * j->cpu->norms.most;
    const bool bounded = most_reach <= FLT_MAX && k <= n;
    const float least = bounded ? border(j, w, y, reach, k) : -INFINITY;
    const bool whole = !(least >= -FLT_MAX);
    bool odd;
    if (!whole) atomic_store(&j->partial, true);
    for (int32_t i = 0; i < n; i += BLOCK) {
        const int32_t len = n - i < BLOCK ? n - i : BLOCK;
        if (!whole && j->cpu->top->max(y + i, len, &odd) + most_reach < least) continue;
        for (int32_t t = i / 16; t < (i + len + 15) / 16; t++) {
            const int32_t lanes = n - 16 * t < 16 ? n - 16 * t : 16;
            if (whole || j->cpu->top->max(y + 16 * t, lanes, &odd) + reach * j->cpu->norms.tile[t] >= least)
                compute_tile(j, w, t, y);
        }
    }
}

/* Returns true if the request needs all values of the row exactly. */
static bool is_whole(const pi__topk_request *q)
{
    return q->k < 1 || q->k > PI__MAX_TOP || q->sum || q->n_skip > PI__MAX_SKIP;
}

static void do_rows(void *arg, int32_t ith, int32_t nth)
{
    (void) nth;
    best_job *j = arg;
    const best_work w = work_of(j, ith);
    for (int32_t r; (r = pi__pool_next(j->cpu->pool, j->a->n_rows)) >= 0;)
        if (!is_whole(&j->a->best->request[r])) do_row(j, &w, r);
}

/* --------------------------------------------------------------------------------------------------------- the op */

/* Returns the index of the first row >= `row` that needs all values exactly, or n_rows if none does. *end = end of the
 * run of consecutive rows that need all values exactly. */
static int32_t next_whole(const pi__linear *a, int32_t row, int32_t *end)
{
    while (row < a->n_rows && !is_whole(&a->best->request[row])) row++;
    for (*end = row; *end < a->n_rows && is_whole(&a->best->request[*end]);) ++*end;
    return row;
}

/* Returns true if two passes need fewer products than op linear with 15 bits (cost 2 per row). Cost of two passes: 1
 * per row for 8 bits, plus 2 per row of each run that needs all values exactly. A run shorter than FEW_ROWS costs as
 * much as FEW_ROWS rows. Recomputed tiles are not counted. */
static bool is_worth_it(const pi__cpu *cpu, const pi__linear *a, const pi__lin_shape *s)
{
    const pi__weight *w = a->lin[0].w;
    int32_t cost = a->n_rows, end; /* in products of a row with 8 bits */
    if (cpu->lin->digits != 2 || a->n_lin != 1 || a->n_rows < FEW_ROWS || w->n_out < SHORT_ROW || w->n_mat != 1)
        return false;
    if (pi__lin_format_of(w->type).kind >= PI__LK_F32 || s->n_tile > INT32_MAX / 16) return false;
    for (int32_t r = next_whole(a, 0, &end); r < a->n_rows; r = next_whole(a, end, &end))
        cost += 2 * (end - r > FEW_ROWS ? end - r : FEW_ROWS);
    return cost < 2 * a->n_rows;
}

/* Computes all values of rows first..end - 1 with 15 bits, like op linear. */
static void compute_whole(const best_job *j, int32_t first, int32_t end)
{
    pi__lin_in in = j->a->in;
    pi__lin lin = j->a->lin[0];
    in.x += first * in.ldx;
    if (in.x2) in.x2 += first * in.ldx2;
    lin.y += first * lin.ldy;
    pi__lin_run(j->cpu, j->cpu->lin, &in, end - first, &lin, 1);
}

bool pi__lin_best(pi__cpu *cpu, const pi__linear *a)
{
    best_job j = {.cpu = cpu, .a = a};
    int32_t end;
    if (!pi__lin_shape_of(a->lin[0].w, &j.s) || !is_worth_it(cpu, a, &j.s)) return false;
    j.k8 = pi__cpu_linear_kernels_of(cpu->isa, 8);
    j.want = 1u << pi__lin_format_of(a->lin[0].w->type).kind;
    /* the factor 8: in formats with minima, the summed terms (scale * code, minimum) are larger than the values */
    j.slack = 8 * (float) (2 * j.s.n_blk + 16) * FLT_EPSILON;
    if (!have_norms(&j)) return false;
    pi__lin_run(cpu, j.k8, &a->in, a->n_rows, a->lin, 1);
    pi__pool_run(cpu->pool, do_rows, &j);
    for (int32_t r = next_whole(a, 0, &end); r < a->n_rows; r = next_whole(a, end, &end)) compute_whole(&j, r, end);
    a->best->partial |= j.partial;
    return true;
}
