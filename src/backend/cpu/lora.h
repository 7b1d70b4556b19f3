/* Internals of LoRA adapters on the CPU: the description of an addition, which callers of lora.c fill in, and the
 * kernels of each instruction set. A's rows are consecutive, and so are tiles of B's columns (see pi__lora_pair), so
 * both products read memory sequentially. */
#ifndef PI__CPU_LORA_H
#define PI__CPU_LORA_H

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "formats/formats.h"

struct pi__cpu_lora_kernels {
    /* t[i * ldt] = a . x[i] for n_rows rows of x. n values each, a multiple of 16. type: of a. */
    void (*dot)(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t,
                int64_t ldt);
    /* y[i] += scale * (sum over r of t[i * ldt + r] * column r of b), for the first n values of n_rows rows. type: of
     * b. b starts with the first tile of its first column. */
    void (*add)(int32_t type, const void *b, int32_t rank, const float *t, int64_t ldt, int32_t n_rows, float scale,
                float *const *y, int64_t n);
};

extern const pi__cpu_lora_kernels pi__cpu_lora_generic;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx2;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx512;
extern const pi__cpu_lora_kernels pi__cpu_lora_neon;
extern const pi__cpu_lora_kernels pi__cpu_lora_sve256;

/* A matrix, or an expert's matrix, and its results. */
typedef struct pi__cpu_lora_lin {
    int32_t target, rank;     /* target number of its pairs; max rank of the runs */
    int64_t n_out;            /* columns of y: results of n_out rows of the matrix, */
    int64_t first;            /* from row `first` on; a multiple of 16 */
    float *y;                 /* [any, ldy] */
    int64_t ldy;
    const float *scale;       /* by expert: factors of the added values; NULL = none */
} pi__cpu_lora_lin;

/* y += scale * factor * B (A in) for entries, grouped into runs of one adapter. An entry is a row of the input and a
 * row of y. */
typedef struct pi__cpu_lora_work {
    pi__lin_in in;
    int64_t n_in;             /* values of in, and of A's rows */
    const int32_t *token;     /* for an embedding, instead of in: by input row, the row of A that is A in */
    pi__cpu_lora_lin lin[PI__MAX_LIN];
    int32_t n_lin;
    const pi__lora_run *run;  /* [n_runs] in the order of addition; first, n: entries, consecutive from run to run */
    int32_t n_runs;
    const int32_t *from, *to; /* [n] rows of in, of y */
    int32_t n;
    float scale;              /* multiplies all added values, in addition to the run's scale */
    char *scratch;            /* pi__cpu_lora_bytes() bytes */
} pi__cpu_lora_work;

/* Returns the scratch bytes for inputs of n_in values. n_rank: sum of the matrices' ranks, each rounded up to a
 * multiple of 4. */
size_t pi__cpu_lora_bytes(int64_t n_in, int64_t n_rank);
void pi__cpu_lora_add(pi__cpu *cpu, const pi__cpu_lora_work *w);

/* A, and B, of a run's matrix number mat. */
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

/* Entries for the pairs of a layer of experts (moe_lora.c), in the order of moe.c. */
typedef struct pi__cpu_moe_lora {
    const pi__moe_lora *a;
    int32_t n_rows, n_used;
    const int32_t *pair;      /* [n_rows * n_used] (row, expert) pair of each column */
    const int32_t *id;        /* [n_rows * n_used] expert of each pair */
    int32_t *of_row;          /* [n_rows] scratch from here on */
    int32_t *from, *to;       /* [n_rows * n_used] */
    pi__lora_run *run;        /* [n_rows * n_used] */
    char *scratch;            /* scratch of a pi__cpu_lora_work */
} pi__cpu_moe_lora;

/* Takes the scratch for n_rows rows with n_used experts each, and inputs of n_in values. */
void pi__cpu_moe_lora_layout(pi__cpu_moe_lora *l, pi__arena *a, int64_t n_in);
/* Adds the adapters of all rows to the results, column by column; `work` gives input and matrices. by_row: the input
 * has one row per batch row; else one per column. */
void pi__cpu_moe_lora_add(pi__cpu *cpu, const pi__cpu_moe_lora *l, const pi__cpu_lora_work *work, bool by_row);

#endif
