/* Launches of kernels/sparse_kernels.cuh: variant, shared memory (see kernels_sparse.h; launch_sparse.cuh has the
 * grid). KIND: COPIED (all rows are F16), ONE (rows are converted to one F16) or TWO (hi + lo). W: warps per block. */
#include "backend/cuda/launch_sparse.cuh"
#include "sparse_kernels.cuh"

using namespace sparse;

template <int KIND, int W> static int run(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    return run_lists<shape<KIND, W, false>, shape<KIND, W, true>>(stream, a, sparse::sparse<KIND, W, false>,
                                                                  sparse::sparse<KIND, W, true>, arrived);
}

/* Selects the number of warps by the values per cache row; a warp has WIDTH of them. Rows of more than 8 * WIDTH values
 * use another kernel if q and P may be rounded to F16 (launch_latent.cu). */
template <int KIND> static int run_for(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    if (a->a.dim > 8 * WIDTH && a->fast && KIND != TWO) return pi__k_latent(stream, a, KIND == COPIED, arrived);
    if (a->a.dim > 8 * WIDTH) return run<KIND, 9>(stream, a, arrived);
    return a->a.dim > 2 * WIDTH ? run<KIND, 8>(stream, a, arrived) : run<KIND, 2>(stream, a, arrived);
}

static_assert(PI__K_RAW_QUERIES <= 8 * WIDTH, "longer queries use another kernel");

static_assert(PI__K_GROUPED_DIM == 8 * WIDTH, "results of longer heads have another layout");

int pi__k_sparse_split(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    const int32_t type = a->rows.cache.type_k, other = a->entries.cache.base ? a->entries.cache.type_k : type;
    bool split = false;
#define ROW(t, fn, side, minimum, wide, ...) split = split || ((type == PI__##t || other == PI__##t) && wide);
    PI__CACHE_TYPES(ROW)
#undef ROW
    if (a->n_tokens < 1) return 0;
    if (a->a.dim > 9 * WIDTH || a->a.dim_v > 8 * WIDTH || a->a.dim % 2) return 1;
    if (a->raw && a->a.dim > PI__K_RAW_QUERIES) return 1;
    if (a->groups.words && !pi__k_sparse_groups(&a->a, a->groups.heads)) return 1;
    if (type == PI__F16 && other == PI__F16) return run_for<COPIED>(stream, a, arrived);
    return split ? run_for<TWO>(stream, a, arrived) : run_for<ONE>(stream, a, arrived);
}

int pi__k_sparse_run(void *stream, const pi__k_sparse *a) { return pi__k_sparse_split(stream, a, nullptr); }
