/* Inside of adapters (LoRA) on the CPU: what is added to which rows, by whoever has made these (lora.c), and the kernels that
 * each instruction set has. A's rows lie one behind the other, and so do tiles of B's columns (see pi__lora_pair), so both
 * products read memory from its first byte to its last. */
#ifndef PI__CPU_LORA_H
#define PI__CPU_LORA_H

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "formats/formats.h"

struct pi__cpu_lora_kernels {
    /* t[i * ldt] = a . x[i], for n_rows rows of x; n, a multiple of 16, values each. type: of a. */
    void (*dot)(int32_t type, const void *a, int64_t n, const float *x, int64_t ldx, int32_t n_rows, float *t, int64_t ldt);
    /* y[i] += scale * (sum over r of t[i * ldt + r] * column r of b), for the first n values of n_rows rows. type: of b, whose
     * first column's first tile is here. */
    void (*add)(int32_t type, const void *b, int32_t rank, const float *t, int64_t ldt, int32_t n_rows, float scale,
                float *const *y, int64_t n);
};

extern const pi__cpu_lora_kernels pi__cpu_lora_generic;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx2;
extern const pi__cpu_lora_kernels pi__cpu_lora_avx512;
extern const pi__cpu_lora_kernels pi__cpu_lora_neon;
extern const pi__cpu_lora_kernels pi__cpu_lora_sve256;

/* A matrix, or an expert's, and its results. */
typedef struct pi__cpu_lora_lin {
    int32_t target, rank;     /* number of its pairs; the largest rank that a run has */
    int64_t n_out;            /* columns of y, */
    int64_t first;            /* which are the results of the matrix's rows from here on, a multiple of 16 */
    float *y;                 /* [any, ldy] */
    int64_t ldy;
    const float *scale;       /* by expert: factors of what is added; NULL: none */
} pi__cpu_lora_lin;

/* y += scale * factor * B (A in), for entries: a row of the input and one of y each, by runs of one adapter. */
typedef struct pi__cpu_lora_work {
    pi__lin_in in;
    int64_t n_in;             /* values of in, and of A's rows */
    const int32_t *token;     /* instead of in: by row of it, the row of A that is A in (an embedding) */
    pi__cpu_lora_lin lin[PI__MAX_LIN];
    int32_t n_lin;
    const pi__lora_run *run;  /* [n_runs] in the order in which they are added; first, n: entries, one run's behind the other's */
    int32_t n_runs;
    const int32_t *from, *to; /* [n] rows of in, of y */
    int32_t n;
    float scale;              /* of all that is added, beside the run's */
    char *scratch;            /* pi__cpu_lora_bytes() */
} pi__cpu_lora_work;

/* Bytes for inputs of n_in values and matrices whose ranks, each rounded up to a multiple of 4, are n_rank together. */
size_t pi__cpu_lora_bytes(int64_t n_in, int64_t n_rank);
void pi__cpu_lora_add(pi__cpu *cpu, const pi__cpu_lora_work *w);

/* A, and B, of a run's matrix number mat. */
static inline size_t pi__cpu_lora_value(const pi__lora_pair *p) { return p->type == PI__F32 ? sizeof(float) : sizeof(uint16_t); }
static inline const char *pi__cpu_lora_a(const pi__lora_run *run, const pi__lora_pair *p, int32_t mat)
{
    return (const char *) run->pair + p->a + (size_t) mat * (size_t) (p->rank * p->lda) * pi__cpu_lora_value(p);
}
static inline const char *pi__cpu_lora_b(const pi__lora_run *run, const pi__lora_pair *p, int32_t mat)
{
    return (const char *) run->pair + p->b + (size_t) mat * (size_t) (p->rank * p->ldb) * pi__cpu_lora_value(p);
}

/* lora_heads.c: op lora of matrices of heads. */
size_t pi__cpu_lora_heads_scratch(const pi__cpu *cpu, const pi__limits *lim);
void pi__cpu_lora_heads(pi__cpu *cpu, const pi__lora *a);

/* Entries of the pairs of a layer of experts (moe_lora.c), which moe.c has sorted. */
typedef struct pi__cpu_moe_lora {
    const pi__moe_lora *a;
    int32_t n_rows, n_used;
    const int32_t *pair;      /* [n_rows * n_used] pair of a column */
    const int32_t *id;        /* [the same] expert of a pair */
    int32_t *of_row;          /* [n_rows] what follows is scratch */
    int32_t *from, *to;       /* [n_rows * n_used] */
    pi__lora_run *run;        /* [the same] */
    char *scratch;            /* of a work */
} pi__cpu_moe_lora;

/* Takes the scratch for n_rows rows, n_used experts each, and inputs of n_in values. */
void pi__cpu_moe_lora_layout(pi__cpu_moe_lora *l, pi__arena *a, int64_t n_in);
/* Adds what work says of input and matrices for all rows that have adapters: of each column of results. by_row: the input has a
 * row for each row, and not one for each column. */
void pi__cpu_moe_lora_add(pi__cpu *cpu, const pi__cpu_moe_lora *l, const pi__cpu_lora_work *work, bool by_row);

#endif
