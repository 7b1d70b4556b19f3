/* The launches of kernels/attention_kernels.cuh: variant, grid, shared memory (see kernels.h). Its kernels are most of what
 * a build for a device compiles, so launch_attention.cu chooses, and files of their own have the larger heads. */
#ifndef PI_LAUNCH_ATTENTION_CUH
#define PI_LAUNCH_ATTENTION_CUH

#include "backend/cuda/launch.cuh"
#include "attention_kernels.cuh"

/* launch_attention_mid.cu: heads of 112, 128 and 192 values; launch_attention_wide.cu: of 256 and 512. */
int pi__k_attention_mid(void *stream, const pi__k_attn *a);
int pi__k_attention_wide(void *stream, const pi__k_attn *a);

enum { BLOCKS_A_SM = 8 /* with which a split a block is not too little */ };

/* The job's units where each is 1 << shift keys, and as many kv heads a launch as scratch has room for; 0: it has none. The
 * keys of a tile may begin and end within a unit. */
static int32_t use_units(attn_job *j, int32_t shift)
{
    j->unit_shift = shift;
    j->n_units = (j->a.max_keys >> shift) + 2;
    size_t one = (size_t) j->a.n_tokens * (size_t) j->group * (size_t) j->n_units * ((size_t) j->a.cache.head_dim + 2) * sizeof(float);
    size_t most = j->a.scratch_size / one;
    return most < (size_t) j->a.cache.n_head_kv ? (int32_t) most : j->a.cache.n_head_kv;
}

/* Tiles of R rows by units: some kv heads after the others, if scratch is too small for all of them. */
template <int D, int R, bool SPLIT> static int run_units(void *stream, attn_job j, int32_t tiles, int32_t heads)
{
    unsigned threads = (unsigned) (j.a.cache.head_dim + 31) / 32 * 32;
    int rc = 0;
    for (j.kv_head0 = 0; j.kv_head0 < j.a.cache.n_head_kv && !rc; j.kv_head0 += heads) {
        j.n_kv_heads = min(heads, j.a.cache.n_head_kv - j.kv_head0);
        dim3 grid((unsigned) tiles, (unsigned) j.n_kv_heads, (unsigned) j.n_units);
        rc = pi_launch(stream, attention<D, R, SPLIT>, grid, dim3(THREADS), shape<D, R, SPLIT>::total, j);
        grid.z = R;
        if (!rc) rc = pi_launch(stream, combine<R>, grid, dim3(threads), 0, j);
    }
    return rc;
}

/* Tiles of R rows, which have to be few enough that keys are split over blocks, if that is wanted. */
template <int D, int R, bool SPLIT> static int run_few(void *stream, attn_job j)
{
    const pi__k_attn &a = j.a;
    int32_t tiles = a.n_tokens * j.group / R + a.n_seqs, heads = a.cache.n_head_kv, at_once = 0;
    if (a.n_sm && a.scratch && a.max_keys >> KV_SHIFT && tiles * heads < 2 * a.n_sm) {
        int64_t blocks = (int64_t) tiles * heads * ((a.max_keys >> KV_SHIFT) + 2);
        if (blocks <= BLOCKS_A_SM * (int64_t) a.n_sm) at_once = use_units(&j, KV_SHIFT);
        if (!at_once && a.max_keys >> SPAN_SHIFT) at_once = use_units(&j, SPAN_SHIFT);
    }
    if (at_once) return run_units<D, R, SPLIT>(stream, j, tiles, at_once);
    j.n_units = 0;
    return pi_launch(stream, attention<D, R, SPLIT>, dim3((unsigned) tiles, (unsigned) heads), dim3(THREADS),
                     shape<D, R, SPLIT>::total, j);
}

template <int D, bool SPLIT> static int run(void *stream, const pi__k_attn *a)
{
    constexpr int WIDE = SPLIT || D > 256 ? 16 : D > 128 ? 32 : 64; /* what shared memory holds */
    attn_job j = {*a, a->n_head / a->cache.n_head_kv, 0, a->cache.n_head_kv, 0, 0};
    int32_t rows = a->n_tokens * j.group, heads = a->cache.n_head_kv, wide = rows / WIDE + a->n_seqs;
    if (WIDE > 16 && rows > 32 * a->n_seqs && wide * heads >= a->n_sm) {
        return pi_launch(stream, attention<D, WIDE, SPLIT>, dim3((unsigned) wide, (unsigned) heads), dim3(THREADS),
                         shape<D, WIDE, SPLIT>::total, j);
    }
    /* Of 8 rows where that lets two blocks be on a multiprocessor of 100 KiB. */
    if constexpr (D == 256 && !SPLIT) {
        if (rows <= 8 * a->n_seqs) return run_few<D, 8, SPLIT>(stream, j);
    }
    return run_few<D, 16, SPLIT>(stream, j);
}

/* Launches for heads of up to D values. */
template <int D> static int run_for(void *stream, const pi__k_attn *a)
{
    bool split = false;
#define ROW(t, fn, side, minimum, wide, ...) split = split || ((a->cache.type_k == PI__##t || a->cache.type_v == PI__##t) && wide);
    PI__CACHE_TYPES(ROW)
#undef ROW
    return split ? run<D, true>(stream, a) : run<D, false>(stream, a);
}

#endif
