/* Latent attention that merges KV splits in the same launch (kernels/sparse.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_SPARSE_H
#define PI__CUDA_KERNELS_SPARSE_H

#include <stdbool.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_RAW_QUERIES = 512 /* max values per head of queries with `raw` */ };

/* True if results can be packed in groups of `heads` heads. */
bool pi__k_sparse_groups(const pi__sparse *a, int32_t heads);
/* pi__k_sparse_run, which has one block per list, or with lists split among several blocks. Splits where scratch has
 * room for the sums and more of the device is filled. arrived: a counter, 0 before and after the launch. */
int pi__k_sparse_split(void *stream, const pi__k_sparse *a, uint32_t *arrived);
/* The case of rows of more than 512 values that are not F32, with `fast` (launch_latent.cu). copied: all rows are
 * F16. */
int pi__k_latent(void *stream, const pi__k_sparse *a, bool copied, uint32_t *arrived);

#ifdef __cplusplus
}
#endif
#endif
