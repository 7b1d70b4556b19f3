/* Loads keys and values of the paged cache into shared memory: a tile of K and one of V, TILE rows of D f16 each, as
 * ldmatrix reads them (attention_kernels.cuh). `tiles` is the entry point: begin(), then get() per tile.
 *
 *     F16, BF16     copied to their place by cp.async, one tile ahead; each thread then converts its bf16 to f16
 *     other types   copied in the cache's layout, one tile ahead: the codes of 16 keys are contiguous, and so are
 *                   their sides (scales). Then converted to f16 in a separate buffer
 *     HILO (F32)    read from the cache and split into hi + lo, without cp.async
 *
 *     shared memory   [ parts of scores ][ facts ][ K, V ][ K, V ]             F16, BF16: two stages
 *                     [ parts of scores ][ facts ][ K, V ][ raw ][ raw ]       others: one tile, two raw stages
 *                     [ parts of scores ][ facts ][ K hi, lo, V hi, lo ]       HILO
 *
 * The 16-byte pieces of a row are swizzled, so that the 8 rows of an ldmatrix access lie in different banks. Keys that
 * no row of the block attends to are stored as zeros, because the cache may hold NaN for them. Columns past the end of
 * the head are zeros, too. */
#ifndef PI_ATTENTION_KEYS_CUH
#define PI_ATTENTION_KEYS_CUH

#include "attention.cuh"

namespace attention {

/* Returns where piece c (16 bytes) of row r of a tile is stored: its index in the row. Depends on the last three bits
 * of r. */
template <class S> PI_FN int swizzled(int r, int c) { return c ^ (S::COLS % 8 ? r >> 1 & 3 : r & 7); }

/* Returns the shared address of piece first + 2 i of row r; `row` is the shared address of the row's start. If the
 * warp's number of pieces allows it, the part that does not depend on i is computed separately, which saves
 * registers. */
template <class S> PI_FN uint32_t piece_at(uint32_t row, int r, int first, int i)
{
    constexpr int GROUP = S::COLS % 8 ? 4 : 8; /* a row's swizzle permutes pieces within groups of this many */
    if constexpr (S::N % GROUP == 0 || GROUP % S::N == 0)
        return ((row + 16 * (uint32_t) swizzled<S>(r, first)) ^ (uint32_t) (32 * i % (16 * GROUP))) +
               (uint32_t) (2 * i / GROUP * GROUP * 16);
    else return row + 16 * (uint32_t) swizzled<S>(r, first + 2 * i);
}

/* Cache block of the key at position `key`, and the key's offset (token) in that block. */
PI_FN int32_t block_of(const pi__k_attn &a, const keys_at &at, int32_t key)
{
    return at.table[key >> block_shift(a.cache.block_size)];
}
PI_FN int32_t offset_of(const pi__k_attn &a, int32_t key) { return key & (a.cache.block_size - 1); }

/* True if any row of the block attends to any of the keys `key` .. key + 15; key is a multiple of 16. */
PI_FN bool any_seen(const work &w, int32_t key) { return key + 15 >= w.lo && key <= w.hi; }

/* Division of a tile among the COPIERS copying threads. LANES adjacent threads copy one row; ROWS rows are copied at
 * the same time. HALVES: there are threads for all rows of K and of V; the first half copies K, the second half V.
 * Otherwise each thread copies rows of both. */
template <class S> struct copies {
    static constexpr int LANES = S::COLS % 8 ? 4 : 8, ROWS = S::COPIERS / LANES;
    static constexpr bool HALVES = ROWS > S::TILE;
    /* PASSES: rows per thread and matrix; EACH: pieces of a row per thread */
    static constexpr int PASSES = HALVES ? 1 : S::TILE / ROWS, EACH = S::COLS / LANES;
};

/* Index of the thread among the copying threads, 0 .. COPIERS - 1. */
template <class S> PI_FN int copier() { return (int) threadIdx.x - S::FIRST_COPIER; }
/* Calls f(n, row, c, place) for each row of the tile that the thread copies. n: pass; c: the thread's first piece of
 * the row, then c + LANES, ..; place: byte offset of piece c in the tile of K or V. Piece c + i LANES is at place + i
 * NEXT. */
template <class S, class F> PI_FN void each_row(const F &f)
{
    using C = copies<S>;
    const int r = copier<S>() / C::LANES % S::TILE, c = copier<S>() % C::LANES;
#pragma unroll
    for (int n = 0; n < C::PASSES; n++)
        f(n, r + n * C::ROWS, c, (uint32_t) (r + n * C::ROWS) * S::PITCH + 16 * (uint32_t) swizzled<S>(r, c));
}
/* copies_k: true if the thread copies rows of K. copies_v: of V. */
template <class S> PI_FN bool copies_k() { return !copies<S>::HALVES || copier<S>() < S::COPIERS / 2; }
template <class S> PI_FN bool copies_v() { return !copies<S>::HALVES || copier<S>() >= S::COPIERS / 2; }

/* block[n] = cache block of the row (key) that the thread copies in pass n of the tile from position key0; 0 if the
 * rows of the block attend to none of the 16 keys around it. */
template <class S>
PI_FN void find_blocks(const pi__k_attn &a, const keys_at &at, const work &w, int32_t key0,
                       int32_t (&block)[copies<S>::PASSES])
{
    each_row<S>([&](int n, int row, int, uint32_t) {
        block[n] = any_seen(w, (key0 + row) & ~15) ? block_of(a, at, key0 + row) : 0;
    });
}

/* Starts the copy of a tile of K and V, from position key0, to shared address `to`. F16 and BF16 only. block: from
 * find_blocks(). WHOLE: the block's rows attend to keys within the whole tile; false = keys outside w.lo .. w.hi become
 * zeros. */
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
            /* The last argument is the number of bytes read; 0 fills the 16 bytes with zeros. */
            ptx_cp_async16(to + place + (uint32_t) i * S::NEXT, k + 16 * i * C::LANES, in ? 16 : 0);
            if (C::HALVES) continue;
            ptx_cp_async16(to + S::PLANE + place + (uint32_t) i * S::NEXT, v + 16 * i * C::LANES, in ? 16 : 0);
        }
    });
}

/* Writes 8 floats as f16 to `to` (16 bytes). low: also writes the remainders f - f16(f), as f16, there; NULL = not
 * written. */
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

/* f = values 8 c .. 8 c + 7 of a cache row of type TYPE, clamped to the range of f16. NaN becomes 0 (clean()). Only
 * float types can hold NaN: the scales of codes are never NaN. */
template <int TYPE> PI_FN void get8(const cache_row &row, int c, float (&f)[8])
{
#define ROW(t, fn, ...) if (TYPE == PI__##t) cache_get8_##fn(row, c, f);
    PI__CACHE_TYPES(ROW)
#undef ROW
    constexpr bool CODES = TYPE != PI__F32 && TYPE != PI__F16 && TYPE != PI__BF16;
    for (int i = 0; i < 8; i++) f[i] = CODES ? fminf(fmaxf(f[i], -65504.0f), 65504.0f) : clean(f[i]);
}

/* Converts to f16, in place, the bf16 values that this thread has copied to `tile` (K, then V). F16 values stay. No
 * barrier is needed before, since a thread sees its own completed copies. */
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

/* Starts the copy of the codes and sides of a tile of K and V, from position key0, to shared address `to`. The copy has
 * per 16 keys: their codes, then their sides (scales), as in the cache. Groups of 16 keys that no row attends to are
 * skipped. Called by all threads. */
template <class S> PI_FN void copy_raw(const pi__k_attn &a, const keys_at &at, const work &w, int32_t key0, uint32_t to)
{
#pragma unroll 1
    for (int i = 0; i < 2 * S::TILE / 16; i++) {
        const cache_plane &p = i < S::TILE / 16 ? at.k : at.v;
        const int32_t key = key0 + 16 * (i % (S::TILE / 16));
        /* codes and all, in 16-byte pieces per 16 keys: p.row bytes * 16 keys / 16 */
        const uint32_t codes = p.row, pieces = p.row + p.side;
        if (any_seen(w, key)) {
            const cache_row from = cache_token(p, block_of(a, at, key), offset_of(a, key));
#pragma unroll 1
            for (uint32_t n = threadIdx.x; n < pieces; n += S::THREADS)
                ptx_cp_async16(to + 16 * n, n < codes ? from.codes + 16 * n : from.sides + 16 * (n - codes));
        }
        to += 16 * pieces;
    }
}

/* Bytes of a stage of copy_raw(): TILE keys of K and of V. */
template <class S> PI_FN uint32_t raw_bytes(const keys_at &at)
{
    return S::TILE * (at.k.row + at.k.side + at.v.row + at.v.side);
}

/* Converts a tile of K or of V, from position key0, to f16 at `tile`. p: addresses of K or V. Source: the stage `raw`
 * of copy_raw(); HILO: the cache, with remainders at tile + PLANE. A thread converts 8 values of a key at a time. Keys
 * that no row attends to become zeros. */
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

/* Converts the tiles of K and V from position key0, of any cache type. raw: stage of copy_raw(), unused by HILO. */
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

/* Returns the index of the tile to process after tile i: i + 1. Sparse prefill, at the end of a key block: the first
 * tile of the next key block with a set bit in at.taken. The search ends, because the bit of the rows' own block is
 * set. */
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

/* Starts the copy of tile i (F16, BF16) to shared address `to`, then finds the cache blocks of the next tile early.
 * block: in, the cache blocks of tile i's rows (find_blocks()); out, the next tile's. last: index of the last tile. */
template <class S>
PI_FN void copy_next(const pi__k_attn &a, const keys_at &at, const work &w, int32_t i, int32_t last,
                     int32_t (&block)[copies<S>::PASSES], uint32_t to)
{
    const int32_t key0 = i * S::TILE;
    if (key0 >= w.lo && key0 + S::TILE - 1 <= w.hi) copy_tile<S, true>(a, at, w, key0, block, to);
    else copy_tile<S, false>(a, at, w, key0, block, to);
    if (i < last) find_blocks<S>(a, at, w, next_tile<S>(at, i) * S::TILE, block);
}

/* The tiles of keys and values of a block of threads, double buffered: while a tile is used, the next one is copied. */
template <class S> struct tiles {
    const pi__k_attn &a;
    const work &w;
    const keys_at &at;
    unsigned char *shared; /* start of the buffers for tiles */
    int32_t last;          /* index of the last tile */
    int32_t n;             /* tiles whose copies have started; tile number n is copied to stage n % 2 */
    int32_t block[copies<S>::PASSES]; /* cache blocks of the next tile to copy */

    /* Address of stage i % 2: a converted tile (COPIED), or a raw one (RAW), after the buffer of the converted tile. */
    __device__ __forceinline__ unsigned char *stage(int32_t i) const
    {
        if (S::COMES == COPIED) return shared + (i & 1 ? S::TILES : 0);
        return shared + S::TILES + (i & 1 ? raw_bytes<S>(at) : 0);
    }

    /* Starts the copy of tile i into the next stage, unless i is past the last tile. Nothing to do for HILO. */
    __device__ __forceinline__ void fetch(int32_t i)
    {
        if (S::KIND == HILO) return;
        if (i <= last && S::COMES == RAW) copy_raw<S>(a, at, w, i * S::TILE, ptx_shared(stage(n)));
        else if (i <= last) copy_next<S>(a, at, w, i, last, block, ptx_shared(stage(n)));
        ptx_cp_async_commit();
        n++;
    }

    /* Starts the copy of the walk's first tile. */
    __device__ __forceinline__ void begin(int32_t first)
    {
        n = 0;
        if (S::COMES == COPIED) find_blocks<S>(a, at, w, first * S::TILE, block);
        fetch(first);
    }

    /* Waits for tile i, starts the copy of the tile after it, and returns the shared address of tile i's K in f16.
     * Called by all threads, for the tiles in the order of next_tile(). */
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
