/* Latent attention whose KV splits are folded where they are made (kernels/sparse.cuh), as functions; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_SPARSE_H
#define PI__CUDA_KERNELS_SPARSE_H

#include <stdbool.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_RAW_QUERIES = 512 /* values of a head whose queries may be raw */ };

/* Results may be rows of groups of so many heads. */
bool pi__k_sparse_groups(const pi__sparse *a, int32_t heads);
/* As pi__k_sparse_run, which has a block for each list; with lists split over blocks, where there is room for their sums and that fills
 * more of the device. arrived: a counter, 0 before and after the launch. */
int pi__k_sparse_split(void *stream, const pi__k_sparse *a, uint32_t *arrived);
/* Of it, rows of more than 512 values that are not F32, not exactly (launch_latent.cu). copied: all are F16. */
int pi__k_latent(void *stream, const pi__k_sparse *a, bool copied, uint32_t *arrived);

#ifdef __cplusplus
}
#endif
#endif
