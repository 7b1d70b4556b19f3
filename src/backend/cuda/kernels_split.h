/* Products of many rows whose slices blocks of threads share (kernels/split.cuh), where a launch has too few tiles to keep a device
 * busy. A choice of speed alone: no bit depends on it. See kernels.h. */
#ifndef PI__CUDA_KERNELS_SPLIT_H
#define PI__CUDA_KERNELS_SPLIT_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_SPLIT_TILES = 256 /* most of a launch that does so */ };
typedef struct pi__k_split {
    int32_t n_sm;      /* multiprocessors to fill */
    float *sums;       /* [n_sums] work */
    size_t n_sums;
    uint32_t *arrived; /* [PI__K_SPLIT_TILES] 0 before and after the launch */
} pi__k_split;
/* Bytes of sums that a device of so many multiprocessors has use for. */
size_t pi__k_split_bytes(int32_t n_sm);
/* launch_w16.cu: as pi__k_w16_linear; so with more rows than PI__K_MMA_ROWS. split: NULL as there. */
int pi__k_w16_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                           const pi__k_split *split);
/* launch_fp4.cu: as pi__k_fp4_linear and pi__k_w4a8_linear; so with more than 32 rows. */
int pi__k_fp4_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                           const pi__k_split *split);
int pi__k_w4a8_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                            const pi__k_split *split);

#ifdef __cplusplus
}
#endif

#endif
