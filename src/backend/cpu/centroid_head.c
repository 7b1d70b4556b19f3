/* LM head that multiplies only some clusters of vocabulary rows (op centroid_head, pi__centroid_head), on the CPU.
 *
 * First an ordinary linear op computes the scores of the centroids, and each row picks its n_pick best clusters. Then
 * one pool job runs three phases, with barriers between them:
 *
 *   - pack the rows' activations;
 *   - multiply each row by the matrices of its clusters, one row at a time, because rows seldom pick the same cluster;
 *   - write each row's logits: the computed ones, and a lower value for all other tokens.
 *
 * Memory: cpu->scratch for the packed activations and the tiles, with the layout of a linear op. */
#include "backend/cpu/linear.h"

typedef struct centroid_job {
    pi__cpu *cpu;
    const pi__centroid_head *a;
    int32_t n_rows;
    pi__lin_shape s;    /* shape of the head's matrices */
    int64_t n_blk;      /* blocks of 32 columns */
    size_t stride;      /* bytes from one row's packed activations to the next */
    bool floats;        /* the head has a float format */
    char *tiles;        /* one canonical tile per thread; address of thread 0's */
} centroid_job;

/* x = the activation group of row r alone, in cpu->scratch. */
static void row_at(const centroid_job *j, int32_t r, pi__lin_x *x)
{
    pi__lin_group(j->cpu->scratch + (size_t) r * j->stride, j->cpu->lin->digits, j->n_blk, 1, j->floats, x);
}

static void round_rows(const centroid_job *j, int32_t ith, int32_t nth)
{
    const pi__weight *w = j->a->head;
    for (int32_t r = ith; r < j->n_rows; r += nth) {
        pi__lin_x x;
        row_at(j, r, &x);
        j->cpu->lin->input(&j->a->in, w->n_in, r, 1, 0, j->n_blk, &x, 0, 1u << pi__lin_format_of(w->type).kind);
    }
}

/* Multiplies the matrix of one cluster by one row: item i = row * n_pick + number of the cluster among the row's
 * picks. */
static void run_item(const centroid_job *j, int32_t i, uint8_t *buf)
{
    const pi__weight *w = j->a->head;
    float *y = j->a->some + (int64_t) i * w->n_out;
    pi__lin_x x;
    row_at(j, i / j->a->n_pick, &x);
    for (int64_t t = 0; t < j->s.n_tile; t++) {
        pi__lin_tile tile = pi__lin_tile_of(j->cpu->lin, w, &j->s, j->a->pick[i], t, buf);
        pi__lin_tile_mul(&tile, &x, y + 16 * t, w->n_out, true);
    }
}

/* Writes row r's n_vocab logits: the computed values at their tokens (a->order), and the smallest computed value - 1 at
 * all other tokens. */
static void scatter(const centroid_job *j, int32_t r)
{
    const pi__centroid_head *a = j->a;
    const int64_t n = a->head->n_out, n_vocab = n * a->head->n_mat;
    const float *some = a->some + (int64_t) r * a->n_pick * n;
    const int32_t *pick = a->pick + (int64_t) r * a->n_pick;
    float *logits = a->logits + r * n_vocab, least = some[0];
    for (int64_t i = 1; i < a->n_pick * n; i++)
        if (some[i] < least) least = some[i];
    for (int64_t i = 0; i < n_vocab; i++) logits[i] = least - 1.0f;
    for (int32_t k = 0; k < a->n_pick; k++)
        for (int64_t i = 0; i < n; i++) logits[a->order[pick[k] * n + i]] = some[k * n + i];
}

static void centroid_main(void *arg, int32_t ith, int32_t nth)
{
    const centroid_job *j = arg;
    uint8_t *buf = (uint8_t *) j->tiles + (size_t) ith * pi__lin_tile_bytes(j->n_blk);
    round_rows(j, ith, nth);
    pi__pool_barrier(j->cpu->pool);
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, j->n_rows * j->a->n_pick)) >= 0;) run_item(j, i, buf);
    pi__pool_barrier(j->cpu->pool);
    for (int32_t r = ith; r < j->n_rows; r += nth) scatter(j, r);
}

void pi__cpu_centroid_head(pi__backend *be, const pi__batch *b, const pi__centroid_head *a)
{
    (void) b;
    pi__cpu *cpu = (pi__cpu *) be;
    centroid_job j = {.cpu = cpu, .a = a, .n_rows = a->n_rows, .n_blk = (a->head->n_in + 31) / 32};
    if (a->n_rows <= 0 || !pi__lin_shape_of(a->head, &j.s)) return;
    j.floats = pi__lin_format_of(a->head->type).kind >= PI__LK_F32;
    j.stride = pi__lin_row_stride(cpu->lin->digits, j.n_blk, j.floats);
    j.tiles = cpu->scratch + (size_t) a->n_rows * j.stride;
    const int32_t n_mat = (int32_t) a->head->n_mat;
    pi__cpu_linear(be, NULL, &(pi__linear) {.in = a->in, .n_rows = a->n_rows, .n_lin = 1,
                                             .lin = {{a->centroids, a->scores, n_mat}}});
    for (int32_t r = 0; r < a->n_rows; r++)
        pi__cpu_best_of(a->scores + (int64_t) r * n_mat, n_mat, a->n_pick, a->pick + (int64_t) r * a->n_pick);
    pi__pool_run(cpu->pool, centroid_main, &j);
}
