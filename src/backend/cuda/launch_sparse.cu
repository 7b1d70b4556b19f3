/* Launches of kernels/sparse_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/kernels_sparse.h"
#include "backend/cuda/launch.cuh"
#include "sparse_kernels.cuh"

/* With a block a split, for as many tokens a launch as scratch has room for. */
template <int KIND, int W> static int run_units(void *stream, const pi__k_sparse *a, int32_t splits, int32_t at_once, uint32_t *arrived)
{
    using S = shape<KIND, W, true>;
    static_assert(2 * S::THREADS >= S::W * WIDTH, "when splits are folded, a thread has two columns");
    const unsigned blocks = (unsigned) (a->a.n_head + S::HEADS - 1) / S::HEADS;
    int code = 0;
    for (int32_t t = 0; t < a->n_tokens && !code; t += at_once) {
        const unsigned n = (unsigned) min(at_once, a->n_tokens - t);
        const dim3 grid(blocks, n, (unsigned) splits);
        code = pi_launch_dependent(stream, sparse<KIND, W, true>, grid, dim3(S::THREADS), S::total, *a, t, splits, arrived);
    }
    return code;
}

/* Lists are split where blocks that take whole ones would leave half of the multiprocessors without: sums in scratch are as
 * many bytes as the rows. */
template <int KIND, int W> static int run(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    using S = shape<KIND, W, false>;
    const int32_t blocks = (a->a.n_head + S::HEADS - 1) / S::HEADS, tiles = (a->a.n_head + 15) / 16;
    const int32_t splits = min((a->most + KV_SPLIT - 1) / KV_SPLIT, (int32_t) MOST_SPLITS);
    const size_t token = (size_t) tiles * (size_t) splits * 16 * (size_t) (a->a.dim + 2) * sizeof(float);
    const size_t room = arrived && a->scratch && splits > 1 ? a->scratch_size / token : 0; /* tokens */
    if (2 * (int64_t) a->n_tokens * blocks <= a->n_sm && room)
        return run_units<KIND, W>(stream, a, splits, (int32_t) min(room, (size_t) a->n_tokens), arrived);
    return pi_launch_dependent(stream, sparse<KIND, W, false>, dim3((unsigned) blocks, (unsigned) a->n_tokens),
                               dim3(S::THREADS), S::total, *a, 0, splits, arrived);
}

/* Warps for rows of as many values. */
template <int KIND> static int run_for(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    if (a->a.dim > 8 * WIDTH) return run<KIND, 9>(stream, a, arrived);
    return a->a.dim > 2 * WIDTH ? run<KIND, 8>(stream, a, arrived) : run<KIND, 2>(stream, a, arrived);
}

int pi__k_sparse_split(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    const int32_t type = a->rows.cache.type_k, other = a->entries.cache.base ? a->entries.cache.type_k : type;
    bool split = false;
#define ROW(t, fn, side, minimum, wide, ...) split = split || ((type == PI__##t || other == PI__##t) && wide);
    PI__CACHE_TYPES(ROW)
#undef ROW
    if (a->n_tokens < 1) return 0;
    if (a->a.dim > 9 * WIDTH || a->a.dim_v > 8 * WIDTH || a->a.dim % 2) return 1;
    if (type == PI__F16 && other == PI__F16) return run_for<COPIED>(stream, a, arrived);
    return split ? run_for<TWO>(stream, a, arrived) : run_for<ONE>(stream, a, arrived);
}

int pi__k_sparse_run(void *stream, const pi__k_sparse *a) { return pi__k_sparse_split(stream, a, nullptr); }
