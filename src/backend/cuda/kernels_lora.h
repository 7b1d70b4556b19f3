/* Launches of adapters' kernels (kernels/lora_kernels.cuh), as functions; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_LORA_H
#define PI__CUDA_KERNELS_LORA_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_LORA_ROWS = 4 /* of a group */ };

/* Up to PI__K_LORA_ROWS rows of one adapter at one scale; n 0: none, and no pair. */
typedef struct pi__k_lora_group {
    const pi__lora_pair *pair; /* by target */
    float scale;
    int32_t first, n;          /* entries of pi__k_lora.row */
    int32_t unused;
} pi__k_lora_group;

typedef struct pi__k_lora {
    pi__k_input in;
    int64_t n_in;
    struct {
        int64_t n_out, ldy;
        float *y;
        int32_t target;
        int32_t at;            /* its first value of an entry's t */
    } lin[PI__MAX_LIN];
    int32_t n_lin;
    int32_t n_groups;          /* rows of different groups are different ones */
    const pi__k_lora_group *group;
    const int32_t *row;        /* of x and y */
    float *t;                  /* [n_groups * PI__K_LORA_ROWS, ldt] A x of all matrices */
    int32_t ldt;
    int32_t max_rank;
    int64_t max_out;
    const int32_t *token;      /* instead of in: by row, the row of A that is A in */
    float scale;               /* of all that is added, beside the groups' */
} pi__k_lora;

/* t = A in; then y += scale * factor * B t. */
int pi__k_lora_run(void *stream, const pi__k_lora *a);

/* Of a matrix for each head: the same, each for its part of the rows, which are x_step and y_step apart. */
typedef struct pi__k_lora_heads {
    const float *x;
    int64_t ldx, x_step, n_in;
    float *y;
    int64_t ldy, y_step, n_out;
    int32_t n_head, target;
    int32_t max_rank, n_groups;
    const pi__k_lora_group *group;
    const int32_t *row;        /* of x and y */
} pi__k_lora_heads;

/* y += scale * factor * B (A x). */
int pi__k_lora_heads_run(void *stream, const pi__k_lora_heads *a);

/* Of routed experts: the same by pairs of a row and one of its experts. */
typedef struct pi__k_lora_experts {
    pi__k_input in;
    int64_t n_in;
    struct {
        int64_t n_out, ldy;
        float *y;              /* by column */
        int32_t target;
        int32_t at;            /* its first value of a pair's t */
        int32_t first;         /* the matrix's row that the first column of y is of */
        const float *scale;    /* by expert: factors of what is added; NULL: none */
    } lin[2];
    int32_t n_lin;
    int32_t n_groups;
    const pi__k_lora_group *group;
    const int32_t *row;        /* of entries; the op's row is that less row0, */
    int32_t row0, n_rows;      /* and in 0..n_rows, or it has no such row */
    int32_t n_used;            /* experts a row */
    int32_t by_column;         /* in has a row for each column, not for each row */
    const int32_t *id, *column; /* [n_rows * n_used] expert and column of each pair */
    float *t;                  /* [n_rows * n_used, ldt] A x */
    int32_t ldt, max_rank;
    int64_t max_out;
} pi__k_lora_experts;

/* t = A in; y += scale * factor * B t. */
int pi__k_lora_experts_shrink(void *stream, const pi__k_lora_experts *a);
int pi__k_lora_experts_expand(void *stream, const pi__k_lora_experts *a);

#ifdef __cplusplus
}
#endif
#endif
