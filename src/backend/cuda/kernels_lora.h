/* LoRA kernels (kernels/lora_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_LORA_H
#define PI__CUDA_KERNELS_LORA_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_LORA_ROWS = 4 /* rows per group */ };

/* Up to PI__K_LORA_ROWS rows with one adapter at one scale. n 0 = empty group, without pairs. */
typedef struct pi__k_lora_group {
    const pi__lora_pair *pair; /* indexed by target */
    float scale;
    int32_t first, n;          /* range of entries of pi__k_lora.row */
    int32_t unused;
} pi__k_lora_group;

typedef struct pi__k_lora {
    pi__k_input in;
    int64_t n_in;
    struct {
        int64_t n_out, ldy;
        float *y;
        int32_t target;
        int32_t at;            /* its offset in an entry's t */
    } lin[PI__MAX_LIN];
    int32_t n_lin;
    int32_t n_groups;          /* groups have no rows in common */
    const pi__k_lora_group *group;
    const int32_t *row;        /* rows of x and y */
    float *t;                  /* [n_groups * PI__K_LORA_ROWS, ldt] A x of all matrices */
    int32_t ldt;
    int32_t max_rank;
    int64_t max_out;
    const int32_t *token;      /* replaces `in`: token of each row; A's row of that token is A in */
    float scale;               /* factor of all results, in addition to the groups' scale */
} pi__k_lora;

/* t = A in; then y += scale * factor * B t. */
int pi__k_lora_run(void *stream, const pi__k_lora *a);

/* Per-head matrices: each head reads and writes its part of a row. x_step and y_step are the distances between
 * parts. */
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

/* y += scale * factor * B (A x). */
int pi__k_lora_heads_run(void *stream, const pi__k_lora_heads *a);

/* Routed experts: one result per pair of a row and one of its experts. */
typedef struct pi__k_lora_experts {
    pi__k_input in;
    int64_t n_in;
    struct {
        int64_t n_out, ldy;
        float *y;              /* by column */
        int32_t target;
        int32_t at;            /* its offset in a pair's t */
        int32_t first;         /* row of the matrix for the first column of y */
        const float *scale;    /* factors of the results by expert; NULL = 1 */
    } lin[2];
    int32_t n_lin;
    int32_t n_groups;
    const pi__k_lora_group *group;
    const int32_t *row;        /* rows of the entries. The op's row is row[i] - row0; entries outside of */
    int32_t row0, n_rows;      /* 0..n_rows are skipped */
    int32_t n_used;            /* experts per row */
    int32_t by_column;         /* not 0: `in` has one row per column instead of one per row */
    const int32_t *id, *column; /* [n_rows * n_used] expert of each pair; column of each pair */
    float *t;                  /* [n_rows * n_used, ldt] A x */
    int32_t ldt, max_rank;
    int64_t max_out;
} pi__k_lora_experts;

/* shrink: t = A in. expand: y += scale * factor * B t. */
int pi__k_lora_experts_shrink(void *stream, const pi__k_lora_experts *a);
int pi__k_lora_experts_expand(void *stream, const pi__k_lora_experts *a);

#ifdef __cplusplus
}
#endif
#endif
