/* Loads keys and values of the cache into shared memory: a tile of K and one of V in f16, for ldmatrix
 * (attention_kernels.cuh).
 *
 *     F16, BF16     copied to their place by cp.async, one tile ahead; each thread then converts its bf16 to f16
 *     other types   copied in the cache's layout, one tile ahead: the codes of 16 keys are contiguous, and so are
 *                   their sides (scales). Then converted to f16 in a separate buffer
 *     HILO (F32)    read from the cache and split into hi + lo, without cp.async
 *
 *     shared memory   [ parts of scores ][ facts ][ K, V ][ K, V ]             F16, BF16: two stages
 *                     [ parts of scores ][ facts ][ K, V ][ raw ][ raw ]       others
 *                     [ parts of scores ][ facts ][ K hi, lo, V hi, lo ]       HILO
 *
 * The 16-byte pieces of a row are swizzled, so that the 8 rows of an ldmatrix access lie in different banks. Keys that
 * no row of the tile attends to are stored as zeros, because the cache may hold NaN for them. Columns past the end of
 * the head are zeros, too. */
#ifndef PI_ATTENTION_KEYS_CUH
#define PI_ATTENTION_KEYS_CUH

#include "attention.cuh"

namespace attention {

/* Index of piece c of row r of a tile after swizzling; depends on the last three bits of r. */
template <class S> PI_FN int swizzled(int r, int c) { return c ^ (S::COLS % 8 ? r >> 1 & 3 : r & 7); }

/* Returns the shared address of piece first + 2 i of row r, which begins at address `row`. Where the warp's columns
 * allow it, the part that does not depend on i is separate: this saves instructions and registers. */
template <class S> PI_FN uint32_t piece_at(uint32_t row, int r, int first, int i)
{
    constexpr int GROUP = S::COLS % 8 ? 4 : 8; /* pieces permuted among each other */
    if constexpr (S::N % GROUP == 0 || GROUP % S::N == 0)
        return ((row + 16 * (uint32_t) swizzled<S>(r, first)) ^ (uint32_t) (32 * i % (16 * GROUP))) +
               (uint32_t) (2 * i / GROUP * GROUP * 16);
    else return row + 16 * (uint32_t) swizzled<S>(r, first + 2 * i);
}

PI_FN int32_t block_of(const pi__k_attn &a, const keys_at &at, int32_t key)
{
    return at.table[key >> block_shift(a.cache.block_size)];
}
PI_FN int32_t offset_of(const pi__k_attn &a, int32_t key) { return key & (a.cache.block_size - 1); }

/* True if the block's rows attend to any of the 16 keys from `key` (a multiple of 16). */
PI_FN bool any_seen(const work &w, int32_t key) { return key + 15 >= w.lo && key <= w.hi; }

/* The copying threads. LANES adjacent threads copy one row of K and of V. With enough threads for both (HALVES), the
 * first half of the threads copies K and the second half V. */
template <class S> struct copies {
    static constexpr int LANES = S::COLS % 8 ? 4 : 8, ROWS = S::COPIERS / LANES;
    static constexpr bool HALVES = ROWS > S::TILE;
    static constexpr int PASSES = HALVES ? 1 : S::TILE / ROWS, EACH = S::COLS / LANES; /* rows; pieces per row */
};

/* Index of the thread among the copying threads. */
template <class S> PI_FN int copier() { return (int) threadIdx.x - S::FIRST_COPIER; }
/* Calls f(pass, row of the tile, first piece, byte offset of that piece in the tile of K) for each row that the thread
 * copies. The offset of the thread's i-th piece is i NEXT larger. */
template <class S, class F> PI_FN void each_row(const F &f)
{
    using C = copies<S>;
    const int r = copier<S>() / C::LANES % S::TILE, c = copier<S>() % C::LANES;
#pragma unroll
    for (int n = 0; n < C::PASSES; n++)
        f(n, r + n * C::ROWS, c, (uint32_t) (r + n * C::ROWS) * S::PITCH + 16 * (uint32_t) swizzled<S>(r, c));
}
/* True if the thread copies rows of K; true if it copies rows of V. */
template <class S> PI_FN bool copies_k() { return !copies<S>::HALVES || copier<S>() < S::COPIERS / 2; }
template <class S> PI_FN bool copies_v() { return !copies<S>::HALVES || copier<S>() >= S::COPIERS / 2; }

/* Finds the cache block of each row (key) that the thread copies; 0 for keys that no row attends to. */
template <class S>
PI_FN void find_blocks(const pi__k_attn &a, const keys_at &at, const work &w, int32_t key0,
                       int32_t (&block)[copies<S>::PASSES])
{
    each_row<S>([&](int n, int row, int, uint32_t) {
        block[n] = any_seen(w, (key0 + row) & ~15) ? block_of(a, at, key0 + row) : 0;
    });
}

/* Copies the keys and values from key0, one tile of two-byte values, to shared address `to`. WHOLE: the block's rows
 * attend to all of these keys. */
template <class S, bool WHOLE>
PI_FN void copy_tile(const pi__k_attn &a, const keys_at &at, const work &w, int32_t key0,
                     const int32_t (&block)[copies<S>::PASSES], uint32_t to)
{
    using C = copies<S>;
    if (C::HALVES && copies_v<S>()) to += S::PLANE;
    each_row<S>([&](int n, int row, int c, uint32_t place) {
        const int32_t key = key0 + row;
        const bool there = WHOLE || (key >= w.lo && key <= w.hi);
        const uint64_t from = (uint64_t) (uint32_t) block[n] * (uint32_t) a.cache.stride +
                              (uint32_t) (offset_of(a, key) * a.cache.head_dim * 2 + 16 * c);
        const char *k = at.k.base + from, *v = at.v.base + from;
        if (C::HALVES && copies_v<S>()) k = v;
#pragma unroll
        for (int i = 0; i < C::EACH; i++) {
            const bool in = there && S::has_column(8 * (c + i * C::LANES), a.cache.head_dim);
            /* A size of 0 fills the 16 bytes with zeros. */
            ptx_cp_async16(to + place + (uint32_t) i * S::NEXT, k + 16 * i * C::LANES, in ? 16 : 0);
            if (C::HALVES) continue;
            ptx_cp_async16(to + S::PLANE + place + (uint32_t) i * S::NEXT, v + 16 * i * C::LANES, in ? 16 : 0);
        }
    });
}

/* Writes 8 floats as f16 (16 bytes); low: receives the remainders as f16, or NULL. */
PI_FN void put8(unsigned char *to, unsigned char *low, const float (&f)[8])
{
    uint32_t h[4], l[4];
    for (int i = 0; i < 4; i++) {
        h[i] = ptx_half2(f[2 * i], f[2 * i + 1]);
        if (low) l[i] = ptx_half2(f[2 * i] - ptx_floats(h[i]).x, f[2 * i + 1] - ptx_floats(h[i]).y);
    }
    *(uint4 *) to = {h[0], h[1], h[2], h[3]};
    if (low) *(uint4 *) low = {l[0], l[1], l[2], l[3]};
}

/* Reads values 8 c .. 8 c + 7 of a row of type TYPE, clamped to the range of f16. Codes give no NaN, since their scales
 * are never NaN. */
template <int TYPE> PI_FN void get8(const cache_row &row, int c, float (&f)[8])
{
#define ROW(t, fn, ...) if (TYPE == PI__##t) cache_get8_##fn(row, c, f);
    PI__CACHE_TYPES(ROW)
#undef ROW
    constexpr bool CODES = TYPE != PI__F32 && TYPE != PI__F16 && TYPE != PI__BF16;
    for (int i = 0; i < 8; i++) f[i] = CODES ? fminf(fmaxf(f[i], -65504.0f), 65504.0f) : clean(f[i]);
}

/* Converts the BF16 values that the thread has copied to f16, in place. */
template <class S> PI_FN void make_f16(const pi__k_cache &cache, unsigned char *tile)
{
    using C = copies<S>;
#pragma unroll 1
    for (int v = 0; v < 2; v++) {
        if ((v ? cache.type_v : cache.type_k) == PI__F16 || !(v ? copies_v<S>() : copies_k<S>())) continue;
        each_row<S>([&](int, int, int, uint32_t place) {
#pragma unroll 1
            for (int i = 0; i < C::EACH; i++) {
                unsigned char *p = tile + (v ? S::PLANE : 0) + place + (uint32_t) i * S::NEXT;
                float f[8];
                get8<PI__BF16>({(char *) p, nullptr}, 0, f);
                put8(p, nullptr, f);
            }
        });
    }
}

/* Copies the codes and sides of a tile's keys and values from key0, in the cache's layout, to shared address `to`. */
template <class S> PI_FN void copy_raw(const pi__k_attn &a, const keys_at &at, const work &w, int32_t key0, uint32_t to)
{
#pragma unroll 1
    for (int i = 0; i < 2 * S::TILE / 16; i++) {
        const cache_plane &p = i < S::TILE / 16 ? at.k : at.v;
        const int32_t key = key0 + 16 * (i % (S::TILE / 16));
        const uint32_t codes = p.row, pieces = p.row + p.side; /* 16-byte pieces of 16 keys */
        if (any_seen(w, key)) {
            const cache_row from = cache_token(p, block_of(a, at, key), offset_of(a, key));
#pragma unroll 1
            for (uint32_t n = threadIdx.x; n < pieces; n += S::THREADS)
                ptx_cp_async16(to + 16 * n, n < codes ? from.codes + 16 * n : from.sides + 16 * (n - codes));
        }
        to += 16 * pieces;
    }
}

/* Bytes written by copy_raw(). */
template <class S> PI_FN uint32_t raw_bytes(const keys_at &at)
{
    return S::TILE * (at.k.row + at.k.side + at.v.row + at.v.side);
}

/* Converts a tile of K or of V (plane p) to f16: from the copy of copy_raw(), or from the cache (HILO). */
template <class S, int TYPE>
PI_FN void convert_type(const pi__k_attn &a, const keys_at &at, const work &w, const cache_plane &p, int32_t key0,
                        unsigned char *raw, unsigned char *tile)
{
#pragma unroll 1
    for (int i = (int) threadIdx.x; i < S::TILE * S::COLS; i += S::THREADS) {
        const int r = i / S::COLS, c = i % S::COLS;
        const int32_t key = key0 + r;
        const uint32_t n = (uint32_t) r % 16;
        char *first = (char *) raw + ((uint32_t) r - n) * (p.row + p.side);
        float f[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (key >= w.lo && key <= w.hi && 8 * c < a.cache.head_dim) {
            cache_row row = {first + n * p.row, first + 16 * p.row + n * p.side};
            if (S::KIND == HILO) row = cache_token(p, block_of(a, at, key), offset_of(a, key));
            get8<TYPE>(row, c, f);
        }
        unsigned char *to = tile + (uint32_t) (r * S::D * 2 + 16 * swizzled<S>(r, c));
        put8(to, S::KIND == HILO ? to + S::PLANE : nullptr, f);
    }
}

/* Converts the tile of K and the tile of V from key0. */
template <class S>
PI_FN void convert_tile(const pi__k_attn &a, const keys_at &at, const work &w, int32_t key0, unsigned char *raw,
                        unsigned char *tile)
{
#pragma unroll 1
    for (int v = 0; v < 2; v++) {
        const cache_plane &p = v ? at.v : at.k;
        switch (v ? a.cache.type_v : a.cache.type_k) {
#define ROW(t, ...) case PI__##t: convert_type<S, PI__##t>(a, at, w, p, key0, raw, tile); break;
        PI__CACHE_TYPES(ROW)
#undef ROW
        default: break;
        }
        raw += S::TILE * (p.row + p.side);
        tile += S::PLANES * S::PLANE;
    }
}

/* Returns the index of the next tile to attend to after tile i. Sparse prefill: the first tile of the next key block
 * with a set bit. The search ends, because the bit of the rows' own block is set. */
template <class S> PI_FN int32_t next_tile(const keys_at &at, int32_t i)
{
    constexpr int32_t EACH = PI__SPARSE_BLOCK / S::TILE;
    i++;
    if (!at.taken || i % EACH) return i;
    int32_t block = i / EACH;
    uint32_t bits = at.taken[block / 32] >> block % 32;
    while (!(bits & 1)) {
        block = bits ? block + 1 : (block | 31) + 1;
        bits = bits ? bits >> 1 : at.taken[block / 32];
    }
    return block * EACH;
}

/* Starts the copy of tile i to shared address `to`; then finds the cache blocks of the next tile. block: cache blocks
 * of tile i's rows, replaced by the next tile's. last: index of the last tile. */
template <class S>
PI_FN void copy_next(const pi__k_attn &a, const keys_at &at, const work &w, int32_t i, int32_t last,
                     int32_t (&block)[copies<S>::PASSES], uint32_t to)
{
    const int32_t key0 = i * S::TILE;
    if (key0 >= w.lo && key0 + S::TILE - 1 <= w.hi) copy_tile<S, true>(a, at, w, key0, block, to);
    else copy_tile<S, false>(a, at, w, key0, block, to);
    if (i < last) find_blocks<S>(a, at, w, next_tile<S>(at, i) * S::TILE, block);
}

/* Fetches the tiles of keys and values of a block of threads, double buffered. */
template <class S> struct tiles {
    const pi__k_attn &a;
    const work &w;
    const keys_at &at;
    unsigned char *shared; /* start of the tiles' buffers */
    int32_t last;          /* index of the last tile */
    int32_t n;             /* tiles fetched so far; the parity selects the stage */
    int32_t block[copies<S>::PASSES]; /* cache blocks of the next tile to copy */

    __device__ __forceinline__ unsigned char *stage(int32_t i) const
    {
        if (S::COMES == COPIED) return shared + (i & 1 ? S::TILES : 0);
        return shared + S::TILES + (i & 1 ? raw_bytes<S>(at) : 0);
    }

    /* Starts the copy of tile i into the next stage, unless i is past the last tile. */
    __device__ __forceinline__ void fetch(int32_t i)
    {
        if (S::KIND == HILO) return;
        if (i <= last && S::COMES == RAW) copy_raw<S>(a, at, w, i * S::TILE, ptx_shared(stage(n)));
        else if (i <= last) copy_next<S>(a, at, w, i, last, block, ptx_shared(stage(n)));
        ptx_cp_async_commit();
        n++;
    }

    __device__ __forceinline__ void begin(int32_t first)
    {
        n = 0;
        if (S::COMES == COPIED) find_blocks<S>(a, at, w, first * S::TILE, block);
        fetch(first);
    }

    /* Waits for tile i, starts the copy of the next one, and returns the tile's shared address. Called by all
     * threads. */
    __device__ __forceinline__ uint32_t get(int32_t i)
    {
        unsigned char *here = stage(n - 1);
        ptx_cp_async_wait<0>();
        if (S::COMES == COPIED) make_f16<S>(a.cache, here);
        __syncthreads(); /* the tile is complete, and all threads have read the other stage */
        fetch(i < last ? next_tile<S>(at, i) : i + 1);
        if (S::COMES == COPIED) return ptx_shared(here);
        convert_tile<S>(a, at, w, i * S::TILE, here, shared);
        __syncthreads();
        return ptx_shared(shared);
    }
};

} /* namespace attention */

#endif
