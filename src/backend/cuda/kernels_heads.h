/* Products of heads' own matrices in 16-bit floats (kernels/heads_kernels.cuh), as functions; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_HEADS_H
#define PI__CUDA_KERNELS_HEADS_H

#include <stdbool.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_HEADS_ROWS = 32 };

typedef struct pi__k_heads { /* fields as in pi__head_linear of ops.h */
    pi__k_matrix w;      /* of head 0; the next is shape.mat_bytes on; scale: a factor a head, or NULL. Of a type that pi__k_w16_has */
    int32_t n_rows;      /* at most PI__K_HEADS_ROWS */
    int32_t n_head;
    const float *x;
    int64_t ldx, x_step;
    int32_t n_tail;
    float *y;
    int64_t ldy, y_step;
    void *prepared;      /* pi__k_w16_prepared_bytes() of n_rows * n_head rows: work, where rows are long */
    int32_t n_sm;        /* as of pi__k_experts */
    pi__k_mla_qkv prep;  /* what op mla_qkv would do with y as its queries, which it does not norm, and with the row; of it q is not
                          * read. n_tokens 0: nothing */
    const pi__k_tail *tail; /* of the product, or NULL; then n_rows is at most PI__K_TAIL_ROWS */
} pi__k_heads;

/* ready: what pi__k_heads_prepare does was done. */
int pi__k_heads_run(void *stream, const pi__k_heads *a, bool ready);
/* Blocks of the products make what they read, and nothing is prepared. */
bool pi__k_heads_own(const pi__k_heads *a);
/* What it does before products alone, for any number of rows: prepared row head * n_rows + row, and what lies behind the results. */
int pi__k_heads_prepare(void *stream, const pi__k_heads *a);
/* The products of many such rows (launch_moe_w16.cu): of pi__k_w16_experts, where each expert, a head, has all rows, and
 * row r's results of head h, times by, go to y + r * ldy + h * y_step. */
int pi__k_w16_heads(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared, int64_t y_step, float by);

#ifdef __cplusplus
}
#endif
#endif
