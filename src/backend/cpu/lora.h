/* Internals of LoRA adapters on the CPU: the description of one call, which the files that call lora.c fill in, and the
 * kernels of each instruction set. A's rows are adjacent in memory, and so are the tiles of B's columns (see
 * pi__lora_pair), so both products read memory sequentially. */
#ifndef PI__CPU_LORA_H
#define PI__CPU_LORA_H

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "formats/formats.h"

struct pi__cpu_lora_kernels {
    /* t[i * ldt] = a . x[i] for n_rows rows of x, ldx floats apart. a: n values of `type`; n is a multiple of 16. */
    void (*dot)(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t,
                int64_t ldt);
    /* y[i] += scale * (sum over r < rank of t[i * ldt + r] * column r of b), for n_rows rows and the first n values
     * of y. type: of b. b points to the first values of column 0 in one of its tiles. */
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
    const float *scale;       /* by expert: factors of the added values; NULL = no factors */
} pi__cpu_lora_lin;

/* One call: y += scale * factor * B (A in) for n entries, grouped into runs of one adapter. An entry is a row of
 * the input and a row of y. */
typedef struct pi__cpu_lora_work {
    pi__lin_in in;
    int64_t n_in;             /* values per row of in, and of A */
    /* only for an embedding: [input rows] the row of A that replaces the product A in; else NULL */
    const int32_t *token;
    pi__cpu_lora_lin lin[PI__MAX_LIN];
    int32_t n_lin;
    const pi__lora_run *run;  /* [n_runs] in the order of addition; run.first and run.n are a range of entries */
    int32_t n_runs;
    const int32_t *from, *to; /* [n] for each entry: its row of in, its row of y */
    int32_t n;
    float scale;              /* factor of all added values, in addition to the run's scale */
    char *scratch;            /* pi__cpu_lora_bytes() bytes */
} pi__cpu_lora_work;

/* Returns the scratch bytes for inputs of n_in values. n_rank: sum of the matrices' max ranks, each rounded up to a
 * multiple of 4. */
size_t pi__cpu_lora_bytes(int64_t n_in, int64_t n_rank);
void pi__cpu_lora_add(pi__cpu *cpu, const pi__cpu_lora_work *w);

/* pi__cpu_lora_value returns the bytes of a value of A and B. pi__cpu_lora_a and _b return the address of A and of
 * B for matrix `mat` of a stack; p is a pair of the run. */
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

/* The columns of a moe op's results as entries for lora.c (moe_lora.c); a column is one (row, expert) pair, in moe.c's
 * order. */
typedef struct pi__cpu_moe_lora {
    const pi__moe_lora *a;
    int32_t n_rows, n_used;
    const int32_t *pair;      /* [n_rows * n_used] index of the (row, expert) pair of each column */
    const int32_t *id;        /* [n_rows * n_used] expert of each pair, by pair index */
    int32_t *of_row;          /* [n_rows] run of each row, or -1; this and the following fields are scratch */
    int32_t *from, *to;       /* [n_rows * n_used] */
    pi__lora_run *run;        /* [n_rows * n_used] */
    char *scratch;            /* scratch of the pi__cpu_lora_work that is passed to lora.c */
} pi__cpu_moe_lora;

/* Takes the scratch memory for l->n_rows rows with l->n_used experts each, and inputs of n_in values. */
void pi__cpu_moe_lora_layout(pi__cpu_moe_lora *l, pi__arena *a, int64_t n_in);
/* Adds the adapters of all rows to the results y of work's matrices, column by column. by_row: the input `work->in`
 * has one row per row of the batch; false = one row per column. */
void pi__cpu_moe_lora_add(pi__cpu *cpu, const pi__cpu_moe_lora *l, const pi__cpu_lora_work *work, bool by_row);

#endif
