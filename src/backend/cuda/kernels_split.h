/* Split-K for products of many rows (kernels/split.cuh): several blocks share the sum of an output tile where a
 * launch has too few tiles to fill a device. Affects speed only; results are bitwise identical. See kernels.h. */
#ifndef PI__CUDA_KERNELS_SPLIT_H
#define PI__CUDA_KERNELS_SPLIT_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_SPLIT_TILES = 256 /* max output tiles of a split launch */ };
typedef struct pi__k_split {
    int32_t n_sm;      /* SMs to fill */
    float *sums;       /* [n_sums] scratch for partial sums */
    size_t n_sums;     /* floats */
    uint32_t *arrived; /* [PI__K_SPLIT_TILES] arrival counters, 0 before and after the launch */
} pi__k_split;
/* Returns the bytes of `sums` that a device with n_sm SMs can use. */
size_t pi__k_split_bytes(int32_t n_sm);
/* launch_w16.cu: pi__k_w16_linear() that can split above PI__K_MMA_ROWS rows. split NULL = never. */
int pi__k_w16_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                           const pi__k_split *split);
/* launch_fp4.cu: pi__k_fp4_linear() and pi__k_w4a8_linear() that can split above 32 rows. */
int pi__k_fp4_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                           const pi__k_split *split);
int pi__k_w4a8_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                            const pi__k_split *split);

#ifdef __cplusplus
}
#endif

#endif
