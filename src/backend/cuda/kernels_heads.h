/* Products of per-head matrices in 16-bit floats (kernels/heads_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_HEADS_H
#define PI__CUDA_KERNELS_HEADS_H

#include <stdbool.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_HEADS_ROWS = 32 };

typedef struct pi__k_heads { /* fields as in pi__head_linear of ops.h */
    /* head 0; the next matrix follows after shape.mat_bytes. scale: one factor per head, or NULL. The type is one
     * that pi__k_w16_has */
    pi__k_matrix w;
    int32_t n_rows;      /* at most PI__K_HEADS_ROWS */
    int32_t n_head;
    const float *x;
    int64_t ldx, x_step;
    int32_t n_tail;
    float *y;
    int64_t ldy, y_step;
    void *prepared;      /* scratch for long rows: pi__k_w16_packed_x_bytes() of n_rows * n_head rows */
    int32_t n_sm;        /* as in pi__k_experts */
    /* op mla_qkv with y as its queries, without a norm of the queries, and with its row; `q` is not read. n_tokens 0
     * = none */
    pi__k_mla_qkv prep;
    const pi__k_tail *tail; /* epilogue of the product, or NULL; requires n_rows <= PI__K_TAIL_ROWS */
} pi__k_heads;

/* ready: pi__k_heads_pack_x has already run. */
int pi__k_heads_run(void *stream, const pi__k_heads *a, bool ready);
/* Returns true if the blocks of the products pack their own input, so that no packing launch is needed. */
bool pi__k_heads_own(const pi__k_heads *a);
/* Packs the input, for any number of rows: packed row head * n_rows + row, and writes the values after the
 * results. */
int pi__k_heads_pack_x(void *stream, const pi__k_heads *a);
/* Products of many packed rows (launch_moe_w16.cu), as of pi__k_w16_experts: each expert is a head and has all rows.
 * Results of row r and head h, times `by`, go to y + r * ldy + h * y_step. */
int pi__k_w16_heads(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared, int64_t y_step,
                    float by);

#ifdef __cplusplus
}
#endif
#endif
