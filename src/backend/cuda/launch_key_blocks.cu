/* Launches of kernels/key_blocks_kernels.cuh: variant, grid, shared memory (see kernels.h). Grids: mean_keys x = key
 * block, y = KV head; rank_keys x = query block, y = query head; choose_keys x = query block, y = KV head. */
#include "backend/cuda/launch.cuh"
#include "key_blocks_kernels.cuh"

using namespace attention;

/* Returns the template parameter D, a padded head size, of the kernel for this head size. */
static int32_t padded(int32_t head_dim) { return head_dim == 80 ? 96 : head_dim == 112 ? 128 : head_dim; }
/* Returns the number of means, padded to a multiple of MEANS_ALIGN. */
static int32_t means_of(int32_t key_blocks) { return (key_blocks + MEANS_ALIGN - 1) / MEANS_ALIGN * MEANS_ALIGN; }

size_t pi__k_blocks_scratch(int32_t key_blocks, int32_t query_blocks, int32_t n_head, int32_t n_head_kv,
                            int32_t head_dim)
{
    const size_t n = (size_t) means_of(key_blocks);
    return n * ((size_t) n_head_kv * (size_t) padded(head_dim) * 2 + (size_t) query_blocks * (size_t) n_head * 4);
}

template <int D> static int rank(void *stream, const blocks_job &j)
{
    using S = rank_shape<D>;
    const dim3 grid((unsigned) j.a.n, (unsigned) j.a.a.n_head);
    return pi_launch_dependent(stream, rank_keys<S>, grid, dim3(S::THREADS), RANK_BYTES<S>, j);
}

int pi__k_blocks_run(void *stream, const pi__k_blocks *a)
{
    const blocks_job j = {*a, means_of(a->first_key + a->n), padded(a->a.cache.head_dim)};
    const dim3 means((unsigned) j.n_means, (unsigned) a->a.cache.n_head_kv);
    int code = pi_launch_dependent(stream, mean_keys, means, dim3(MEAN_THREADS), MEAN_BYTES, j);
    if (code) return code;
    switch (j.dim) {
    case 32: code = rank<32>(stream, j); break;
    case 64: code = rank<64>(stream, j); break;
    case 96: code = rank<96>(stream, j); break;
    case 128: code = rank<128>(stream, j); break;
    case 192: code = rank<192>(stream, j); break;
    case 256: code = rank<256>(stream, j); break;
    default: code = rank<512>(stream, j); break;
    }
    if (code) return code;
    return pi_launch_dependent(stream, choose_keys, dim3((unsigned) a->n, (unsigned) a->a.cache.n_head_kv), dim3(32), 0,
                               j);
}
