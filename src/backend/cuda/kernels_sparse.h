/* Op sparse (latent attention), with the merge of KV splits in the same launch (kernels/sparse.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_SPARSE_H
#define PI__CUDA_KERNELS_SPARSE_H

#include <stdbool.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_RAW_QUERIES = 512 /* max values per head with pi__k_sparse.raw */ };

enum { PI__K_GROUPED_DIM = 512 /* max values per head of packed results */ };
/* Returns true if results can be packed in groups of `heads` heads (pi__k_groups). */
static inline bool pi__k_sparse_groups(const pi__sparse *a, int32_t heads)
{
    const bool divides =
        heads > 0 && heads <= PI__K_MAX_GROUPED && (heads & (heads - 1)) == 0 && a->n_head % heads == 0;
    return divides && a->dim % 32 == 0 && a->dim_v == a->dim && a->dim <= PI__K_GROUPED_DIM;
}
/* Op sparse. Each token has a list of cache rows. One block processes the list for a group of heads. If one block per
 * list would leave half of the SMs idle, and scratch has space for partial sums, several blocks share a list. arrived:
 * arrival counter, 0 before and after the launch; NULL = never split. */
int pi__k_sparse_split(void *stream, const pi__k_sparse *a, uint32_t *arrived);
/* Called by pi__k_sparse_split for rows of more than 512 values with `fast` (launch_latent.cu); caches are not F32.
 * copied: all cache rows are F16, so the kernel copies them to shared memory unchanged. */
int pi__k_latent(void *stream, const pi__k_sparse *a, bool copied, uint32_t *arrived);

#ifdef __cplusplus
}
#endif
#endif
