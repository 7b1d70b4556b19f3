/* Launches of kernels/sparse_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch_sparse.cuh"
#include "sparse_kernels.cuh"

template <int KIND, int W, bool FAST> static int run(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    return run_lists<shape<KIND, W, false, FAST>, shape<KIND, W, true, FAST>>(stream, a, sparse<KIND, W, false, FAST>,
                                                                             sparse<KIND, W, true, FAST>, arrived);
}

/* Warps for rows of as many values. */
template <int KIND, bool FAST> static int run_for(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    if (a->a.dim > 2 * WIDTH) return run<KIND, 8, FAST>(stream, a, arrived);
    return run<KIND, 2, FAST>(stream, a, arrived);
}

/* Products are exact, or not. */
template <int KIND> static int run_as(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    const bool is_long = a->a.dim > 8 * WIDTH;
    if constexpr (KIND != TWO) {
        if (a->fast && is_long) return pi__k_latent(stream, a, KIND == COPIED, arrived);
        if (a->fast) return run_for<KIND, true>(stream, a, arrived);
    }
    return is_long ? run<KIND, 9, false>(stream, a, arrived) : run_for<KIND, false>(stream, a, arrived);
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
    if (type == PI__F16 && other == PI__F16) return run_as<COPIED>(stream, a, arrived);
    return split ? run_as<TWO>(stream, a, arrived) : run_as<ONE>(stream, a, arrived);
}

int pi__k_sparse_run(void *stream, const pi__k_sparse *a) { return pi__k_sparse_split(stream, a, nullptr); }
