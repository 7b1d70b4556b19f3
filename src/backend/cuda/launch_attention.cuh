/* The launches of kernels/attention_kernels.cuh: variant, grid, shared memory (see kernels.h). Its kernels are most of what
 * a build for a device compiles, so launch_attention.cu chooses, and files of their own have the larger heads. */
#ifndef PI_LAUNCH_ATTENTION_CUH
#define PI_LAUNCH_ATTENTION_CUH

#include "backend/cuda/launch.cuh"
#include "attention_kernels.cuh"

/* launch_attention_mid.cu: heads of 128 and 192 values; launch_attention_wide.cu: of 256 and 512. */
int pi__k_attention_mid(void *stream, const pi__k_attn *a);
int pi__k_attention_wide(void *stream, const pi__k_attn *a);

/* Most KV splits of a tile of rows: its keys may begin and end within one. */
static int32_t most_splits(const pi__k_attn *a) { return a->max_keys / KV_SPLIT + 2; }

template <int D, bool SPLIT> static int run(void *stream, const pi__k_attn *a)
{
    constexpr int WIDE = SPLIT || D > 256 ? 1 : D > 128 ? 2 : 4; /* what shared memory holds */
    int32_t group = a->n_head / a->cache.n_head_kv, rows = a->n_tokens * group, heads = a->cache.n_head_kv;
    int32_t tiles = rows / 16 + a->n_seqs, wide = rows / (16 * WIDE) + a->n_seqs, splits = most_splits(a);
    size_t units = (size_t) tiles * (size_t) heads * (size_t) splits, bytes = units * 16 * (D + 2) * sizeof(float);
    if (a->n_sm && a->scratch && splits > 2 && tiles * heads < 2 * a->n_sm && units <= MAX_UNITS && bytes <= a->scratch_size) {
        dim3 grid((unsigned) tiles, (unsigned) heads, (unsigned) splits);
        int rc = pi_launch(stream, attention<D, 1, SPLIT, true>, grid, dim3(THREADS), shape<D, 1, SPLIT>::total, *a, splits);
        if (rc) return rc;
        return pi_launch(stream, combine<D>, dim3((unsigned) tiles, (unsigned) heads, 16), dim3(D), 0, *a, splits);
    }
    if (WIDE > 1 && rows > 32 * a->n_seqs && wide * heads >= a->n_sm) {
        return pi_launch(stream, attention<D, WIDE, SPLIT, false>, dim3((unsigned) wide, (unsigned) heads), dim3(THREADS),
                         shape<D, WIDE, SPLIT>::total, *a, splits);
    }
    return pi_launch(stream, attention<D, 1, SPLIT, false>, dim3((unsigned) tiles, (unsigned) heads), dim3(THREADS),
                     shape<D, 1, SPLIT>::total, *a, splits);
}

/* Launches for heads of D values. */
template <int D> static int run_for(void *stream, const pi__k_attn *a)
{
    bool split = false;
#define ROW(t, fn, side, minimum, wide) split = split || ((a->cache.type_k == PI__##t || a->cache.type_v == PI__##t) && wide);
    PI__CACHE_TYPES(ROW)
#undef ROW
    return split ? run<D, true>(stream, a) : run<D, false>(stream, a);
}

#endif
