/* LoRA adapters of per-head matrices on the CPU: the addition of op lora after op head_linear.
 *
 *     y[row, h] += scale * factor * B[h] (A[h] x[row, h])
 *
 * An item is a head and up to ROWS rows. One thread computes both products of an item: it processes the runs in order,
 * PIECE of their rows per kernel call. So no thread waits, and a head's A and B are read once per PIECE rows. Memory:
 * cpu->scratch, one region per thread. Invariant: one kernel call computes each sum (lora_kernels.h), and a row's
 * adapters are added in the order of its runs. */
#include <string.h>

#include "backend/cpu/lora.h"

/* ROWS: max rows per item. PIECE: max rows per kernel call */
enum { ROWS = 64, PIECE = 16 };

typedef struct heads_job {
    pi__cpu *cpu;
    const pi__lora *a;
    int64_t n_in, n_out;
    int64_t x_step, y_step; /* floats from one head to the next, in x and in y */
    int32_t n_parts;        /* number of parts that the rows are split into */
    size_t each;            /* floats of a thread's part of the scratch memory */
} heads_job;

/* Returns the floats of scratch memory per thread: the inputs of PIECE rows, and their products with A. */
static size_t region(int64_t n_in) { return PIECE * (size_t) (n_in + PI__MAX_LORA_RANK); }

size_t pi__cpu_lora_heads_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    return lim->n_head_mat ? (size_t) pi__pool_size(cpu->pool) * region(lim->head_in) * sizeof(float) : 0;
}

/* Adds a run's adapter to head h of the n <= PIECE rows row[0 .. n - 1]. x: the thread's scratch memory. */
static void add_piece(const heads_job *j, const pi__lora_run *run, int32_t h, const int32_t *row, int32_t n, float *x)
{
    const pi__lin *lin = &j->a->of.lin[0];
    const pi__lora_pair *p = &run->pair[lin->w->target];
    const char *a = pi__cpu_lora_a(run, p, h);
    const size_t line = (size_t) p->lda * pi__cpu_lora_value(p);
    float *t = x + PIECE * j->n_in, *y[PIECE];
    for (int32_t i = 0; i < n; i++) {
        memcpy(x + i * j->n_in, j->a->of.in.x + row[i] * j->a->of.in.ldx + h * j->x_step, (size_t) j->n_in * sizeof *x);
        y[i] = lin->y + row[i] * lin->ldy + h * j->y_step;
    }
    for (int32_t r = 0; r < p->rank; r++)
        j->cpu->lora->dot(p->type, a + (size_t) r * line, p->lda, x, j->n_in, n, t + r, PI__MAX_LORA_RANK);
    j->cpu->lora->add(p->type, pi__cpu_lora_b(run, p, h), p->rank, t, PI__MAX_LORA_RANK, n, run->scale * p->factor, y,
                      j->n_out);
}

/* Adds all runs to head h of rows r0..r1 - 1. x: the thread's scratch memory. */
static void do_item(const heads_job *j, int32_t h, int32_t r0, int32_t r1, float *x)
{
    const pi__lora_rows *rows = j->a->rows;
    for (int32_t k = 0; k < rows->n_runs; k++) {
        const pi__lora_run *run = &rows->run[k];
        int32_t i = run->first;
        const int32_t last = run->first + run->n;
        if (!run->pair[j->a->of.lin[0].w->target].rank) continue;
        while (i < last && rows->row[i] < r0) i++;
        while (i < last && rows->row[i] < r1) {
            int32_t n = 0;
            while (n < PIECE && i + n < last && rows->row[i + n] < r1) n++;
            add_piece(j, run, h, rows->row + i, n, x);
            i += n;
        }
    }
}

static void heads_main(void *arg, int32_t ith, int32_t nth)
{
    const heads_job *j = arg;
    const int64_t n = j->a->of.n_rows;
    float *x = (float *) (void *) j->cpu->scratch + (size_t) ith * j->each;
    (void) nth;
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, (int32_t) j->a->of.lin[0].w->n_mat * j->n_parts)) >= 0;) {
        const int32_t part = i % j->n_parts;
        do_item(j, i / j->n_parts, (int32_t) (n * part / j->n_parts), (int32_t) (n * (part + 1) / j->n_parts), x);
    }
}

void pi__cpu_lora_heads(pi__cpu *cpu, const pi__lora *a)
{
    const pi__weight *w = a->of.lin[0].w;
    heads_job j = {.cpu = cpu,
                   .a = a,
                   .n_in = w->n_in,
                   .n_out = w->n_out,
                   .x_step = a->of.in.ldx / w->n_mat,
                   .y_step = a->of.lin[0].ldy / w->n_mat,
                   .n_parts = (a->of.n_rows + ROWS - 1) / ROWS,
                   .each = region(w->n_in)};
    if (a->of.n_rows > 0) pi__pool_run(cpu->pool, heads_main, &j);
}
