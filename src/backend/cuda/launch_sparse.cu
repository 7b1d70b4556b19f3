/* Launches of kernels/sparse_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "sparse_kernels.cuh"

template <int KIND, int W> static int run(void *stream, const pi__k_sparse *a)
{
    using S = shape<KIND, W>;
    const int32_t tiles = (a->a.n_head + 15) / 16, blocks = (tiles + S::GROUPS - 1) / S::GROUPS;
    const int32_t splits = (a->most + KV_SPLIT - 1) / KV_SPLIT;
    const size_t units = (size_t) a->n_tokens * (size_t) tiles * (size_t) splits;
    const size_t bytes = units * 16 * (size_t) (a->a.dim + 2) * sizeof(float);
    const bool few = (int64_t) a->n_tokens * blocks < a->n_sm, room = units <= MAX_UNITS && bytes <= a->scratch_size;
    dim3 grid((unsigned) blocks, (unsigned) a->n_tokens, 1);
    if (!a->scratch || splits < 2 || !few || !room)
        return pi_launch(stream, sparse<KIND, W, false>, grid, dim3(S::THREADS), S::total, *a, splits);
    grid.z = (unsigned) splits;
    int code = pi_launch(stream, sparse<KIND, W, true>, grid, dim3(S::THREADS), S::total, *a, splits);
    const unsigned pairs = (unsigned) (a->a.dim / 2 + 31) / 32 * 32;
    return code ? code : pi_launch(stream, combine, dim3((unsigned) a->a.n_head, grid.y), dim3(pairs), 0, *a, splits);
}

/* Warps for rows of as many values. */
template <int KIND> static int run_for(void *stream, const pi__k_sparse *a)
{
    return a->a.dim > 2 * WIDTH ? run<KIND, 8>(stream, a) : run<KIND, 2>(stream, a);
}

int pi__k_sparse_run(void *stream, const pi__k_sparse *a)
{
    const int32_t type = a->rows.cache.type_k, other = a->entries.cache.base ? a->entries.cache.type_k : type;
    bool split = false;
#define ROW(t, fn, side, minimum, wide, ...) split = split || ((type == PI__##t || other == PI__##t) && wide);
    PI__CACHE_TYPES(ROW)
#undef ROW
    if (a->n_tokens < 1) return 0;
    if (a->a.dim > 8 * WIDTH || a->a.dim % 2) return 1;
    if (type == PI__F16 && other == PI__F16) return run_for<COPIED>(stream, a);
    return split ? run_for<TWO>(stream, a) : run_for<ONE>(stream, a);
}
