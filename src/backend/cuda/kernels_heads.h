/* Products of per-head matrices (op head_linear) in 16-bit floats (kernels/heads_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_HEADS_H
#define PI__CUDA_KERNELS_HEADS_H

#include <stdbool.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_HEADS_ROWS = 32 /* max rows of pi__k_heads_run */ };
/* Limits of rows that the blocks of the products pack themselves (pi__k_heads_own): bytes of a head's packed rows, and
 * values after a head's results (n_tail). */
enum { PI__K_HEADS_OWN_BYTES = 32 << 10, PI__K_HEADS_OWN_TAIL = 64 };

/* True if rows are so short that each block of the products packs them in its shared memory: 2 bytes per value. */
static inline bool pi__k_heads_are_short(int32_t n_rows, int64_t n_in, int32_t n_tail)
{
    return (size_t) n_rows * (size_t) n_in * 2 <= PI__K_HEADS_OWN_BYTES && n_tail <= PI__K_HEADS_OWN_TAIL;
}
/* Returns pi__k_w16_packed_x_bytes(), without the kernels. */
static inline size_t pi__k_heads_row_bytes(int32_t n_rows, int64_t n_in)
{
    const size_t groups = (size_t) ((n_rows + 7) / 8);
    return groups * (size_t) (n_in / 32) * 512 + groups * 8 * sizeof(float);
}

typedef struct pi__k_heads { /* fields as in pi__head_linear of ops.h */
    /* head 0; the next matrix follows after shape.mat_bytes. scale: one factor per head, or NULL. The type is one
     * that pi__k_w16_has */
    pi__k_matrix w;
    int32_t n_rows;      /* at most PI__K_HEADS_ROWS; any number for pi__k_heads_pack_x */
    int32_t n_head;
    const float *x;
    int64_t ldx, x_step;
    int32_t n_tail;
    float *y;
    int64_t ldy, y_step;
    /* packed input, unless pi__k_heads_own(): pi__k_w16_packed_x_bytes() of n_rows * n_head rows */
    void *prepared;
    int32_t n_sm;        /* SMs to fill; 0 = unknown. Affects speed only */
    /* fused op mla_qkv: y are its queries (without a norm), and its `row` is stored to the cache; its `q` is not read.
     * n_tokens 0 = none */
    pi__k_mla_qkv prep;
    const pi__k_tail *tail; /* epilogue of the product, or NULL; requires n_rows <= PI__K_TAIL_ROWS */
} pi__k_heads;

/* Queues the products. ready: pi__k_heads_pack_x has already packed the input; an error if pi__k_heads_own(). */
int pi__k_heads_run(void *stream, const pi__k_heads *a, bool ready);
/* Returns true if the blocks of the products pack their own input. Then `prepared` is not used. */
bool pi__k_heads_own(const pi__k_heads *a);
/* Packs the input, for any number of rows: packed row head * n_rows + row. Also writes the n_tail values of each head
 * to y, and processes prep's part of these values and its row. */
int pi__k_heads_pack_x(void *stream, const pi__k_heads *a);
/* Products of packed rows, for any number of rows (launch_moe_w16.cu), like pi__k_w16_experts: each expert is a head,
 * and has all rows. The result of row r and head h, times `by`, is written to y + r * ldy + h * y_step. */
int pi__k_w16_heads(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared, int64_t y_step,
                    float by);

#ifdef __cplusplus
}
#endif
#endif
