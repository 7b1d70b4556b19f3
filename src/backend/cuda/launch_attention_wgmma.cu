/* Launches of kernels/attention_wgmma_kernels.cuh, for prompts on sm_90: conditions, grid, shared memory (see
 * kernels.h). Grid: x = tile of S::R query rows of one sequence and KV head, y = KV head. A block has S::THREADS
 * threads that multiply, and 128 that copy K and V to shared memory. Requires F16 or BF16 caches, queries in one F16
 * (`fast`), no epilogue, and no biases of scores. */
#include "backend/cuda/launch.cuh"
#include "attention_wgmma_kernels.cuh"

using namespace attention;

template <class S> static constexpr size_t BYTES = S::FACTS_AT + block_facts<S>::SIZE;

/* True if wgmma is faster: the average sequence fills more than half of a tile's rows, and blocks fill half of the SMs.
 * Otherwise smaller tiles are equally fast. */
template <class S> static bool pays(const pi__k_attn &a, int32_t tiles)
{
    return a.n_tokens * (a.n_head / a.cache.n_head_kv) > S::R / 2 * a.n_seqs && tiles * a.cache.n_head_kv >= a.n_sm / 2;
}

/* Queues the launch for heads of up to D values, and sets *code to its error code. Returns false, and queues nothing,
 * if wgmma is not faster. */
template <int D> static bool run_for(void *stream, const pi__k_attn *a, int *code)
{
    using S = wgmma_heads<D>;
    static_assert(BYTES<S> <= WGMMA_ROOM, "shared memory of a block fits the limit");
    const int32_t group = a->n_head / a->cache.n_head_kv, tiles = a->n_tokens * group / S::R + a->n_seqs;
    if (!pays<S>(*a, tiles)) return false;
    const attn_job j = {*a, group, 0, a->cache.n_head_kv, 0, 0, {}};
    const dim3 grid((unsigned) tiles, (unsigned) a->cache.n_head_kv);
    *code = pi_launch_dependent(stream, attention_wgmma<S>, grid, dim3(S::THREADS + 128), BYTES<S>, j);
    return true;
}

int pi__k_attention_wgmma(void *stream, const pi__k_attn *a, int *code)
{
    const auto copied = [](int32_t type) { return type == PI__F16 || type == PI__BF16; };
    *code = 0;
    if (!a->fast || a->tail || a->rel || !copied(a->cache.type_k) || !copied(a->cache.type_v)) return 0;
    switch (a->cache.head_dim) {
    case 64: return run_for<64>(stream, a, code);
    case 112:
    case 128: return run_for<128>(stream, a, code);
    case 256: return run_for<256>(stream, a, code);
    default: return 0;
    }
}
