/* Launches of op sparse (kernels/sparse.cuh): each token attends to a list of cache rows. Grid: x = S::HEADS query
 * heads, y = token, z = KV split of the list; without splits z has one block, which walks the complete list. */
#ifndef PI__LAUNCH_SPARSE_CUH
#define PI__LAUNCH_SPARSE_CUH

#include "backend/cuda/kernels_sparse.h"
#include "backend/cuda/launch.cuh"
#include "sparse.cuh"

using namespace sparse;

typedef void sparse_kernel(const pi__k_sparse, int32_t, int32_t, uint32_t *);

/* Launches one block per group of heads, token and KV split. A launch has at most at_once tokens, the number for which
 * scratch has space for partial sums. */
template <class S>
static int run_units(void *stream, const pi__k_sparse *a, sparse_kernel *kernel, int32_t splits, int32_t at_once,
                     uint32_t *arrived)
{
    static_assert(2 * S::THREADS >= S::W * WIDTH, "folding splits: two columns per thread");
    const unsigned blocks = (unsigned) (a->a.n_head + S::HEADS - 1) / S::HEADS;
    int code = 0;
    for (int32_t t = 0; t < a->n_tokens && !code; t += at_once) {
        const unsigned n = (unsigned) min(at_once, a->n_tokens - t);
        const dim3 grid(blocks, n, (unsigned) splits);
        code = pi_launch_dependent(stream, kernel, grid, dim3(S::THREADS), S::total, *a, t, splits, arrived);
    }
    return code;
}

/* Launches one block per list and group of heads. Lists are split only if these blocks would leave half of the SMs
 * idle, because partial sums cost as many bytes of memory traffic as the cache rows. S, `whole`: shape and kernel for
 * complete lists; U, `units`: for splits. */
template <class S, class U>
static int run_lists(void *stream, const pi__k_sparse *a, sparse_kernel *whole, sparse_kernel *units, uint32_t *arrived)
{
    const int32_t blocks = (a->a.n_head + S::HEADS - 1) / S::HEADS, tiles = (a->a.n_head + 15) / 16;
    const int32_t splits = most_splits<S::FEW>(a->most);
    const size_t token = (size_t) tiles * (size_t) splits * 16 * (size_t) (a->a.dim + 2) * sizeof(float);
    /* number of tokens that scratch can store partial sums for */
    const size_t room = arrived && a->scratch && splits > 1 ? a->scratch_size / token : 0;
    if (2 * (int64_t) a->n_tokens * blocks <= a->n_sm && room)
        return run_units<U>(stream, a, units, splits, (int32_t) min(room, (size_t) a->n_tokens), arrived);
    return pi_launch_dependent(stream, whole, dim3((unsigned) blocks, (unsigned) a->n_tokens), dim3(S::THREADS),
                               S::total, *a, 0, splits, arrived);
}

#endif
