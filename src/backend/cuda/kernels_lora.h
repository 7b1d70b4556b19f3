/* LoRA kernels (kernels/lora_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_LORA_H
#define PI__CUDA_KERNELS_LORA_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_LORA_ROWS = 4 /* rows per group */ };

/* Up to PI__K_LORA_ROWS rows with one adapter at one scale. n 0 = empty group, without an adapter. */
typedef struct pi__k_lora_group {
    const pi__lora_pair *pair; /* the adapter's pairs, indexed by target (pi__weight.target) */
    float scale;
    int32_t first, n;          /* the group's rows are entries first to first + n - 1 of pi__k_lora.row */
    int32_t unused;
} pi__k_lora_group;

typedef struct pi__k_lora {
    pi__k_input in;            /* input of all matrices, by batch row; not used with `token` */
    int64_t n_in;
    struct { /* one matrix of the model */
        int64_t n_out, ldy;
        float *y;
        int32_t target;        /* index in pi__k_lora_group.pair */
        int32_t at;            /* offset of this matrix's A x in a row of t */
    } lin[PI__MAX_LIN];
    int32_t n_lin;
    int32_t n_groups;          /* groups have no rows in common */
    const pi__k_lora_group *group; /* [n_groups] */
    const int32_t *row;        /* rows of x and y, by group */
    float *t;                  /* [n_groups * PI__K_LORA_ROWS, ldt] scratch: A x, by row of the groups */
    int32_t ldt;               /* sum of the max ranks of all matrices */
    int32_t max_rank;          /* max over all matrices */
    int64_t max_out;           /* max n_out of all matrices */
    /* not NULL: adapters of an embedding, without `in`: token id of each row. A x is then the token's row of A */
    const int32_t *token;
    float scale;               /* factor of all results, in addition to the groups' scale */
} pi__k_lora;

/* t = A in; then y += scale * factor * B t, for each matrix of a->lin. scale: a->scale times the group's scale; factor:
 * see pi__lora_pair. */
int pi__k_lora_run(void *stream, const pi__k_lora *a);

/* Per-head matrices: head h reads x + h * x_step and writes y + h * y_step of each row. */
typedef struct pi__k_lora_heads {
    const float *x;
    int64_t ldx, x_step, n_in;
    float *y;
    int64_t ldy, y_step, n_out;
    int32_t n_head, target;
    int32_t max_rank, n_groups;
    const pi__k_lora_group *group;
    const int32_t *row;        /* rows of x and y */
} pi__k_lora_heads;

/* y += scale * factor * B (A x), with the group's scale. */
int pi__k_lora_heads_run(void *stream, const pi__k_lora_heads *a);

/* Routed experts: one result per pair of a row and one of its experts. */
typedef struct pi__k_lora_experts {
    pi__k_input in;
    int64_t n_in;
    struct {
        int64_t n_out, ldy;
        float *y;              /* by column of the experts' results */
        int32_t target;
        int32_t at;            /* offset of this matrix's A x in a row of t */
        int32_t first;         /* row of B for column 0 of y; not 0 for shards */
        const float *scale;    /* factors of the matrix's results, by expert; NULL = 1 */
    } lin[2];
    int32_t n_lin;
    int32_t n_groups;
    const pi__k_lora_group *group;
    /* row: batch rows, by group; groups refer to ranges of it. The op's row is row[i] - row0; entries outside of
     * 0 .. n_rows - 1 are skipped */
    const int32_t *row;
    int32_t row0, n_rows;
    int32_t n_used;            /* experts per row */
    int32_t by_column;         /* not 0: `in` has one row per column instead of one per row */
    /* [n_rows * n_used] expert, and column, of each pair (a row and one of its experts) */
    const int32_t *id, *column;
    float *t;                  /* [n_rows * n_used, ldt] scratch: A x by pair */
    int32_t ldt, max_rank;     /* sum of the max ranks of `lin`; max over `lin` */
    int64_t max_out;           /* max n_out of `lin` */
} pi__k_lora_experts;

/* shrink: t = A in. expand: y += scale * factor * B t, where scale is the group's scale times lin.scale. */
int pi__k_lora_experts_shrink(void *stream, const pi__k_lora_experts *a);
int pi__k_lora_experts_expand(void *stream, const pi__k_lora_experts *a);

#ifdef __cplusplus
}
#endif
#endif
