/* Launches of kernels/attention_kernels.cuh: variant, grid, shared memory (see kernels.h). These kernels dominate
 * the compile time of a device. So each of several files instantiates some head sizes, and launch_attention.cu
 * dispatches.
 *
 * Grid: x = tile of S::R query rows of one sequence and KV head (a row is a token and one of the query heads that share
 * the KV head), y = KV head, z = unit of keys. Without KV splits z has one block, which walks all keys. The number of
 * tiles is an upper bound: each sequence may end with a partial tile. */
#ifndef PI_LAUNCH_ATTENTION_CUH
#define PI_LAUNCH_ATTENTION_CUH

#include "backend/cuda/launch.cuh"
#include "attention_kernels.cuh"

using namespace attention;

/* launch_attention_mid.cu: heads of 112, 128 and 192 values; launch_attention_wide.cu: of 256 and 512. */
int pi__k_attention_mid(void *stream, const pi__k_attn *a);
int pi__k_attention_wide(void *stream, const pi__k_attn *a);

enum { BLOCKS_A_SM = 8 /* max blocks per SM with units of 1 << KV_SHIFT keys (one KV split each) */ };

/* Splits the keys into units of 1 << shift keys, one block each: sets j->unit_shift and j->n_units. Two units are added
 * because a tile's first and last key may lie within a unit. Returns the number of KV heads per launch for which
 * scratch has space for partial results; 0 = none. */
static int32_t use_units(attn_job *j, int32_t shift)
{
    j->unit_shift = shift;
    j->n_units = (j->a.max_keys >> shift) + 2;
    size_t one = (size_t) j->a.n_tokens * (size_t) j->group * (size_t) j->n_units * ((size_t) j->a.cache.head_dim + 2) *
                 sizeof(float);
    size_t most = j->a.scratch_size / one;
    return most < (size_t) j->a.cache.n_head_kv ? (int32_t) most : j->a.cache.n_head_kv;
}

/* Properties of the cache types of K and V. */
struct cache_kind {
    bool hilo;   /* at least one of the two types is converted to hi + lo */
    bool copied; /* both types are copied unchanged */
    size_t raw;  /* bytes of a row of K plus a row of V in the cache */
};
static cache_kind kind_of(const pi__k_cache &c)
{
    cache_kind kind = {false, true, 0};
    for (int32_t type : {c.type_k, c.type_v}) {
        kind.copied = kind.copied && (type == PI__F16 || type == PI__BF16);
#define ROW(t, fn, side, minimum, split, ...)                                                                          \
    if (type == PI__##t) {                                                                                             \
        kind.hilo = kind.hilo || split;                                                                                \
        kind.raw += (size_t) c.head_dim * (PI__KV_CODES_##t + side) / 32;                                              \
    }
        PI__CACHE_TYPES(ROW)
#undef ROW
    }
    return kind;
}

/* Returns the bytes of shared memory of a block (attention_keys.cuh). HILO: one tile of K and V, hi and lo. COPIED: two
 * tiles as F16, one being computed and one being loaded. RAW: one converted tile, and two as stored in the cache. */
template <class S> static size_t shared_bytes(const pi__k_cache &c)
{
    constexpr size_t FIXED = S::EXCHANGE + block_facts<S>::SIZE;
    if (S::KIND == HILO) return FIXED + S::TILES;
    return FIXED + (S::COMES == COPIED ? 2 * S::TILES : S::TILES + 2 * S::TILE * kind_of(c).raw);
}

template <class S> static int run_blocks(void *stream, const attn_job &j, int32_t tiles, int32_t heads, int32_t units)
{
    const dim3 grid((unsigned) tiles, (unsigned) heads, (unsigned) units);
    return pi_launch_dependent(stream, attention::attention<S>, grid, dim3(S::THREADS), shared_bytes<S>(j.a.cache), j);
}

/* Launches one block per tile, KV head and unit of keys. A launch has at most `heads` KV heads, so there are several if
 * scratch is too small for all heads. Only the last launch has the epilogue. */
template <class S> static int run_units(void *stream, attn_job j, int32_t tiles, int32_t heads)
{
    const pi__k_tail tail = j.tail;
    int rc = 0;
    for (j.kv_head0 = 0; j.kv_head0 < j.a.cache.n_head_kv && !rc; j.kv_head0 += heads) {
        j.n_kv_heads = min(heads, j.a.cache.n_head_kv - j.kv_head0);
        j.tail.arrived = nullptr;
        if (j.kv_head0 + heads >= j.a.cache.n_head_kv) j.tail = tail;
        rc = run_blocks<S>(stream, j, tiles, j.n_kv_heads, j.n_units);
    }
    return rc;
}

/* Launches tiles of 16 rows. Keys are split among blocks if there are fewer than two tiles per SM, the caller provides
 * scratch, and a sequence has more keys than one split. Units of one split if that gives at most BLOCKS_A_SM blocks per
 * SM, else units of a span (four splits). */
template <class S> static int run_few(void *stream, attn_job j)
{
    static_assert(S::R == UNIT_ROWS, "same row count as the combine kernel");
    const pi__k_attn &a = j.a;
    int32_t tiles = a.n_tokens * j.group / S::R + a.n_seqs, heads = a.cache.n_head_kv, at_once = 0;
    if (a.n_sm && a.scratch && !a.run_seq && a.max_keys >> KV_SHIFT && tiles * heads < 2 * a.n_sm) {
        int64_t blocks = (int64_t) tiles * heads * ((a.max_keys >> KV_SHIFT) + 2);
        if (blocks <= BLOCKS_A_SM * (int64_t) a.n_sm) at_once = use_units(&j, KV_SHIFT);
        if (!at_once && a.max_keys >> SPAN_SHIFT) at_once = use_units(&j, SPAN_SHIFT);
    }
    if (at_once) return run_units<S>(stream, j, tiles, at_once);
    j.n_units = 0;
    return run_blocks<S>(stream, j, tiles, heads, 1);
}

/* Launches larger tiles if the sequences fill, on average, more than half of a tile and the tiles fill all SMs; else
 * tiles of 16 rows. D: padded head size. KIND: FAST, EXACT or HILO, the terms of Q and of keys. COMES: COPIED if cache
 * rows reach shared memory unchanged, else RAW. The shape of the larger tiles depends on the kernel's registers. */
template <int D, int KIND, int COMES> static int run(void *stream, const pi__k_attn *a)
{
    constexpr int FEW = head<D>::PARTS, LEAST = D <= 96 ? 1 : D == 128 ? (COMES == COPIED ? 1 : 2) : D <= 256 ? 2 : 4;
    constexpr int MANY = KIND == FAST || D == 32 || D == 192 ? LEAST : D <= 128 ? 2 : 2 * LEAST;
    using many = shape<D, D < 256 || MANY == 2 ? 4 : 8 / MANY, MANY, KIND, COMES>;
    attn_job j = {*a, a->n_head / a->cache.n_head_kv, 0, a->cache.n_head_kv, 0, 0, {}};
    if (a->tail) j.tail = *a->tail;
    int32_t rows = a->n_tokens * j.group, heads = a->cache.n_head_kv, tiles = rows / many::R + a->n_seqs;
    if constexpr (KIND != HILO) {
        if (rows > many::R / 2 * a->n_seqs && tiles * heads >= a->n_sm)
            return run_blocks<many>(stream, j, tiles, heads, 1);
    }
    return run_few<shape<D, 1, FEW, KIND, COMES>>(stream, j);
}

/* Launches the kernel for heads of up to D values that matches the cache types and a->fast. */
template <int D> static int run_for(void *stream, const pi__k_attn *a)
{
    const cache_kind kind = kind_of(a->cache);
    if (kind.hilo) return run<D, HILO, RAW>(stream, a);
    if (kind.copied) return a->fast ? run<D, FAST, COPIED>(stream, a) : run<D, EXACT, COPIED>(stream, a);
    return a->fast ? run<D, FAST, RAW>(stream, a) : run<D, EXACT, RAW>(stream, a);
}

#endif
