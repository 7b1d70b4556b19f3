/* Internals of LoRA adapters on the CPU: pi__cpu_lora_work, the arguments of pi__cpu_lora_add, and the kernels of each
 * instruction set. A [rank, n_in] is stored row by row; B [n_out, rank] in tiles of PI__LORA_TILE outputs, column by
 * column (see pi__lora_pair). So both products read memory sequentially. */
#ifndef PI__CPU_LORA_H
#define PI__CPU_LORA_H

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "formats/formats.h"

struct pi__cpu_lora_kernels {
    /* t[i * ldt] = dot product of a and row i of x, for n_rows rows of x, ldx floats apart. a: n values of `type` (a
     * row of A); n is a multiple of 16. */
    void (*dot)(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t,
                int64_t ldt);
    /* y[i] += scale * (sum over r < rank of t[i * ldt + r] * column r of b), for n_rows rows and the first n values of
     * y. type: of the values of b. b points into a tile of B, at the value of column 0 for y[i][0]. */
    void (*add)(int32_t type, const void *b, int32_t rank, const float *t, int64_t ldt, int32_t n_rows, float scale,
                float *const *y, int64_t n);
};

extern const pi__cpu_lora_kernels pi__cpu_lora_generic;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx2;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx512;
extern const pi__cpu_lora_kernels pi__cpu_lora_neon;
extern const pi__cpu_lora_kernels pi__cpu_lora_sve256;

/* A matrix, or a stack of experts' matrices, and its results y. */
typedef struct pi__cpu_lora_lin {
    int32_t target, rank;     /* target number of the matrix; max rank of the runs for it */
    int64_t n_out;            /* columns of y: the results of n_out rows of the matrix */
    int64_t first;            /* index of the first of these rows; a multiple of 16 */
    float *y;                 /* [any, ldy] */
    int64_t ldy;
    const float *scale;       /* [expert] factor of the added values; NULL = 1 */
} pi__cpu_lora_lin;

/* One call: y += scale * factor * B (A in) for n entries, grouped into runs of one adapter. An entry is a pair of a row
 * of the input (from) and a row of y (to). */
typedef struct pi__cpu_lora_work {
    pi__lin_in in;
    int64_t n_in;             /* values per row of in, and of A */
    /* embeddings: [input rows] token ids; row `token` of A [tokens, rank] replaces the product A in. NULL = not an
     * embedding */
    const int32_t *token;
    pi__cpu_lora_lin lin[PI__MAX_LIN];
    int32_t n_lin;
    /* [n_runs] in the order of addition; entries run.first to run.first + run.n - 1 use the run's adapter */
    const pi__lora_run *run;
    int32_t n_runs;
    const int32_t *from, *to; /* [n] for each entry: its row of in, its row of y */
    int32_t n;
    float scale;              /* factor of all added values, in addition to the run's scale */
    char *scratch;            /* pi__cpu_lora_bytes() bytes */
} pi__cpu_lora_work;

/* Returns the scratch bytes of pi__cpu_lora_add for inputs of n_in values. n_rank: sum of the matrices' max ranks, each
 * rounded up to a multiple of 4. */
size_t pi__cpu_lora_bytes(int64_t n_in, int64_t n_rank);
void pi__cpu_lora_add(pi__cpu *cpu, const pi__cpu_lora_work *w);

/* pi__cpu_lora_value returns the bytes of a value of A and B: 4 for F32, 2 for F16 and BF16. pi__cpu_lora_a and
 * pi__cpu_lora_b return the address of A and of B for matrix `mat` (0 = first) of a stack. p: one of run->pair. */
static inline size_t pi__cpu_lora_value(const pi__lora_pair *p)
{
    return p->type == PI__F32 ? sizeof(float) : sizeof(uint16_t);
}
static inline const char *pi__cpu_lora_a(const pi__lora_run *run, const pi__lora_pair *p, int32_t mat)
{
    return (const char *) run->pair + p->a + (size_t) mat * (size_t) (p->rank * p->lda) * pi__cpu_lora_value(p);
}
static inline const char *pi__cpu_lora_b(const pi__lora_run *run, const pi__lora_pair *p, int32_t mat)
{
    return (const char *) run->pair + p->b + (size_t) mat * (size_t) (p->rank * p->ldb) * pi__cpu_lora_value(p);
}

/* lora_heads.c: op lora for per-head matrices. */
size_t pi__cpu_lora_heads_scratch(const pi__cpu *cpu, const pi__limits *lim);
void pi__cpu_lora_heads(pi__cpu *cpu, const pi__lora *a);

/* State of moe_lora.c, which makes entries for lora.c from the columns of a moe op. A column is one (row, expert) pair;
 * moe.c sorts columns by expert. */
typedef struct pi__cpu_moe_lora {
    const pi__moe_lora *a;
    int32_t n_rows, n_used;
    const int32_t *pair;      /* [n_rows * n_used] index of the (row, expert) pair of each column */
    const int32_t *id;        /* [n_rows * n_used] expert of each pair, by pair index */
    /* [n_rows] run of each row, -1 = none; this and the following fields are scratch memory */
    int32_t *of_row;
    int32_t *from, *to;       /* [n_rows * n_used] */
    pi__lora_run *run;        /* [n_rows * n_used] */
    char *scratch;            /* scratch of the pi__cpu_lora_work that is passed to lora.c */
} pi__cpu_moe_lora;

/* Takes l's scratch arrays from arena a, for l->n_rows rows with l->n_used experts each and inputs of n_in values. */
void pi__cpu_moe_lora_layout(pi__cpu_moe_lora *l, pi__arena *a, int64_t n_in);
/* Adds the adapters of all rows to the results y of work->lin. Row j of y is column j. by_row: true = work->in has one
 * row per batch row; false = one row per column. */
void pi__cpu_moe_lora_add(pi__cpu *cpu, const pi__cpu_moe_lora *l, const pi__cpu_lora_work *work, bool by_row);

#endif
