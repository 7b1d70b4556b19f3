/* Shared by products with 16-bit weights (w16.cuh) that have a list of items as their work. An item is some rows of a
 * weight matrix times a tile of columns; a column is one token's activations. Used for experts (moe_w16_kernels.cuh and
 * moe_down_kernels.cuh, which divide items over blocks) and for the matrices of attention heads (heads_kernels.cuh).
 * few_items() multiplies items of up to 8 NT columns. */
#ifndef PI_MOE_W16_CUH
#define PI_MOE_W16_CUH

#include "moe.cuh"
#include "w16.cuh"

enum { MID_BLOCK = 544 /* bytes of 8 columns times 32 values of mid: 512 of words, 32 of factors */ };

/* Arguments of the kernels of experts and heads. tile, n_tile: the three lists of tiles, as in pi__k_routes. */
struct w16_experts {
    pi__k_experts a;
    const pi__k_tile *tile[3];
    const int32_t *n_tile;
    const uint8_t *x;      /* packed rows, or mid */
    const float *factor;   /* [rows] factors of packed rows */
    uint32_t n_item;       /* items per tile: parts of the matrix's rows */
    bool mid_bf16;         /* mid is BF16, else F16 */
    uint32_t many;         /* work units of an item with a tile of list 2; items of lists 0 and 1 are one unit */
    static constexpr bool OWN = false; /* true: blocks pack their rows; false: rows are packed */
    /* floats between the results of two experts, in addition to the offset of the column; 0 = the column alone
     * determines the address */
    int64_t y_step;
    float by;              /* common factor of all results */
};

/* ----------------------------------------------------------------------------------------------------------- items */

/* An item: a tile of columns times a part of the rows of its expert's matrix. */
struct w16_item {
    pi__k_tile t;
    int32_t part; /* index of the part, 0 .. n_item - 1 */
};

PI_FN w16_item item_of(const w16_experts &p, uint32_t i)
/* Returns item i. Items are ordered by list of tiles, largest first, then by tile, then by part. */
{
    int32_t tile = (int32_t) (i / p.n_item), k = 2;
    const int32_t part = (int32_t) (i % p.n_item);
    while (k && tile >= p.n_tile[k]) tile -= p.n_tile[k--];
    return {p.tile[k][tile], part};
}

/* Returns all * i / n, rounded down: the start of part i of n. Intermediate products stay below 2^32 for i <= n <=
 * 65,536. */
PI_FN uint32_t part_of(uint32_t all, uint32_t i, uint32_t n) { return all / n * i + all % n * i / n; }

/* Sets first and end: the block's items are first .. end - 1. Items are divided so that blocks get about equal numbers
 * of work units. Work units are below 2^32: at most 2.4 million tiles for 65,536 rows, times the parts of a matrix. */
PI_FN void items_of_block(const w16_experts &p, uint32_t &first, uint32_t &end)
{
    const uint32_t large = (uint32_t) p.n_tile[2] * p.n_item, small = (uint32_t) (p.n_tile[0] + p.n_tile[1]) * p.n_item;
    const uint32_t all = p.many * large + small;
    auto item_at = [&](uint32_t share) { /* index of the first item that begins at work unit `share` or later */
        return share < p.many * large ? (share + p.many - 1) / p.many : share - (p.many - 1) * large;
    };
    first = item_at(part_of(all, blockIdx.x, gridDim.x));
    end = item_at(part_of(all, blockIdx.x + 1, gridDim.x));
}

/* The matrices of an item's expert; second NULL = it has one. MID: x is mid, so it has one. */
struct w16_matrices {
    const uint8_t *first, *second;
};
template <bool MID> PI_FN w16_matrices matrices_of(const w16_experts &p, const w16_item &i)
{
    return {expert_matrix(p.a, i.t.expert, false), !MID && p.a.data2 ? expert_matrix(p.a, i.t.expert, true) : nullptr};
}

/* Returns the address of tile r among an item's n tiles of 16 rows of W. With two matrices, the first n / 2 tiles are
 * from the first matrix, the others are the same rows of the second. Past the end, the last tile of the matrix. */
PI_FN const uint8_t *tile_of(const w16_experts &p, const w16_matrices &w, const w16_item &i, int32_t n, int32_t r)
{
    const int32_t half = n / 2, last = (int32_t) ((p.a.w.n_out + 15) / 16 - 1);
    const bool second = w.second && r >= half;
    const int32_t tile = w.second ? i.part * half + r - (second ? half : 0) : i.part * n + r;
    return (second ? w.second : w.first) + (size_t) min(tile, last) * p.a.w.shape.tile_bytes;
}

/* Returns the index of the 16-byte piece, within the group of row r, that the lane copies to its own place in the
 * gathered group. Row r then is row lane / 4 there; the swizzle of w16.cuh is adjusted. */
PI_FN uint32_t piece_of(uint32_t r)
{
    const uint32_t lane = threadIdx.x % 32;
    return r % 8 * 4 + (lane % 4 ^ lane / 8 ^ r % 8 / 2);
}

/* Returns the address of the results of tile t's first column, for the expert's first or second matrix. */
PI_FN float *results_of(const w16_experts &p, const pi__k_tile &t, bool second)
{
    return (second ? p.a.y2 : p.a.y) + t.expert * p.y_step + t.first * p.a.ldy;
}

/* Returns the factor of values with largest magnitude `most`, as in scale_of_row(). by: receives the multiplier of the
 * values before rounding. If `most` is infinite, the factor is NaN and `by` is 0. */
PI_FN float mid_factor(float most, float &by)
{
    const row_scale scale = scale_of_row(most);
    by = scale.bad ? 0.0f : scale.by;
    return scale.factor;
}

/* Returns v scaled by `by` and rounded to BF16 or F16 bits. */
PI_FN uint16_t mid_value(float v, float by, bool bf16)
{
    v = by > 0 ? v * by : 0.0f;
    return bf16 ? ptx_bf16(v) : ptx_half(v);
}
/* Returns two values scaled by `by` and rounded, as a word. */
PI_FN uint32_t mid_word(float low, float high, float by, bool bf16)
{
    return by > 0 ? w16_word(low * by, high * by, bf16) : 0;
}

/* Result functor: the sum of column c times the factors of matrix and row, the common factor p.by, and 2^DOWN. MID:
 * factors of the input are already in the sum. */
template <int TYPE, bool MID> struct expert_times {
    const w16_experts &p;
    const pi__k_tile &t;
    float w;
    __device__ __forceinline__ expert_times(const w16_experts &p_, const pi__k_tile &t_, const float *scale)
        : p(p_), t(t_), w(scale ? scale[t_.expert] : 1.0f)
    {
        w *= __uint_as_float((uint32_t) (127 + w16<TYPE>::DOWN) << 23);
    }
    __device__ __forceinline__ float operator()(int c, float sum) const
    {
        return (MID ? sum * w : sum * p.factor[row_of(p.a, t, c)] * w) * p.by;
    }
};

/* ------------------------------------------------------------------------------------------------ small row counts */

enum { FEW_TILES = 4 /* tiles of 16 rows of W in an item */ };

/* A pipeline that streams a warp's slice of the columns of W and x through shared memory, for all items of the block in
 * sequence. NT: max groups of 8 columns per tile. MID: x is mid. P: type of the launch's arguments, for item_of(). With
 * P::OWN all rows of the launch are in shared memory after the stages: block by block, in the layout of w16.cuh but
 * without the rows past the last. OWN_ROOM bytes of rows fit without reducing the blocks per multiprocessor. */
template <int TYPE, int NT, bool MID, class P = w16_experts> struct expert_stream {
    using T = w16<TYPE>;
    static constexpr uint32_t X_BLOCK = P::OWN ? 0 : MID ? MID_BLOCK : 512, SIDE_AT = FEW_TILES * T::CODE,
                              SUPER_AT = SIDE_AT + FEW_TILES * T::SIDE, X_AT = SUPER_AT + FEW_TILES * T::SUPER,
                              STAGE = X_AT + NT * X_BLOCK;
    static constexpr uint32_t OWN_ROOM = P::OWN ? NT * 8192 : 0;
    static constexpr uint32_t ROOM = (NT == 1 ? ROOM_OF_TWO : ROOM_OF_ONE) - OWN_ROOM;
    template <int N> static constexpr int FIT = (int) ((ROOM - (uint32_t) tiles_bytes<NT, N>) / SLICES / STAGE);
    /* Number of tiles whose slices are added in one round of put_tiles(): the largest for which two stages still
     * fit. */
    static constexpr int ONCE = NT > 1 ? 1 : FIT<4> >= 2 ? 4 : FIT<2> >= 2 ? 2 : 1;
    static constexpr int STAGES = FIT<ONCE> < 6 ? FIT<ONCE> : 6;
    static_assert(STAGES >= 2, "one stage is filled while another is used");
    static constexpr size_t SUMS = tiles_bytes<NT, ONCE>;
    static constexpr uint32_t CODE_LANES = T::CODE / 16, SIDE_LANES = FEW_TILES * T::SIDE / 16,
                              /* 16-byte pieces: codes of a tile; scales of all tiles; scales, and scales of scales, of
                               * all tiles */
                              ALL_SIDES = SIDE_LANES + FEW_TILES * T::SUPER / 16;
    /* 16-byte pieces of codes per lane and block */
    static constexpr uint32_t CODES = (FEW_TILES * CODE_LANES + 31) / 32;
    static_assert(ALL_SIDES <= 32, "at most one scale copy per lane");
    static_assert(FEW_TILES * CODE_LANES == 32 * CODES, "every lane copies the same number of code pieces");
    static constexpr size_t BYTES = SUMS + (size_t) SLICES * STAGES * STAGE;

    const P &p;
    uint32_t item, last_item, to;
    int32_t b, end;               /* next block to copy, and end of the slice, in the current item */
    int n_group;
    /* Scales of block b are at side + (b >> side_shift) * side_step: scales per block, or scales of scales per 8
     * blocks. */
    uint32_t side_step, side_shift;
    uint64_t once;                /* L2 policy evict_first for weights */
    const uint8_t *code[CODES], *side;
    /* x: offsets of the lane's words of each group, in 16 bytes (P::OWN: shared addresses). f: with MID in lanes 0 ..
     * 7, offsets of factors, in 4 bytes. */
    uint32_t x[NT], f[NT];

    __device__ __forceinline__ expert_stream(const P &p_, uint32_t first, uint32_t end_, const unsigned char *stages)
        : p(p_), item(first), last_item(end_), b(0), end(0)
    {
        const bool sup = threadIdx.x % 32 >= SIDE_LANES;
        to = ptx_shared(stages) + threadIdx.x / 32 * STAGES * STAGE;
        side_step = sup ? T::SUPER : T::SIDE;
        side_shift = sup ? 3 : 0;
        once = ptx_read_once();
    }
    /* Sets the addresses of item `item`. Returns false if there is none, or the warp's slice is empty. */
    __device__ __forceinline__ bool open()
    {
        if (item >= last_item) return false;
        const w16_item i = item_of(p, item);
        const w16_matrices w = matrices_of<MID>(p, i);
        const uint32_t lane = threadIdx.x % 32, n_block = (uint32_t) p.a.w.shape.n_block;
#pragma unroll
        for (uint32_t k = 0; k < CODES; k++) {
            const uint32_t at = lane + 32 * k;
            code[k] = tile_of(p, w, i, FEW_TILES, (int32_t) (at / CODE_LANES)) + at % CODE_LANES * 16;
        }
        const w16_side_piece own = w16_side_piece_of<TYPE, FEW_TILES>(lane, SIDE_LANES, T::SIDE / 16);
        side = tile_of(p, w, i, FEW_TILES, (int32_t) own.tile) +
               (own.sup ? p.a.w.shape.super_at : p.a.w.shape.side_at) + own.piece * 16;
        n_group = (i.t.n + 7) / 8;
#pragma unroll
        for (int g = 0; g < NT && !P::OWN; g++) {
            uint32_t r = (uint32_t) row_of(p.a, i.t, 8 * g + (int) lane / 4);
            x[g] = r / 8 * n_block * (X_BLOCK / 16) + piece_of(r);
            r = (uint32_t) row_of(p.a, i.t, 8 * g + (int) lane % 8);
            f[g] = r / 8 * n_block * (X_BLOCK / 4) + 128 + r % 8;
        }
        if constexpr (P::OWN) open_own();
        b = (int32_t) (n_block * (threadIdx.x / 32) / SLICES);
        end = (int32_t) (n_block * (threadIdx.x / 32 + 1) / SLICES);
        if (b == end) item = last_item; /* fewer blocks than slices: this warp's slice is empty in every item */
        return b < end;
    }
    /* P::OWN: computes the shared addresses of the lane's words in the slice's first block, in the order of
     * w16_words(). */
    __device__ __forceinline__ void open_own()
    {
        const uint32_t lane = threadIdx.x % 32, rows = (uint32_t) p.n_rows;
        const uint32_t warp = threadIdx.x / 32, first = (uint32_t) p.a.w.shape.n_block * warp / SLICES;
        const uint32_t at = to + (SLICES - warp) * (STAGES * STAGE) + first * rows * 64;
#pragma unroll
        for (uint32_t g = 0; g < NT; g++) {
            const uint32_t r = min(8 * g + lane % 8, rows - 1);
            x[g] = at + r * 64 + (lane / 8 ^ r % 8 / 2) * 16;
        }
    }
    /* Returns the lane's words of B of group g. at: the stage with block k of the slice. */
    __device__ __forceinline__ uint4 words(const unsigned char *at, int g, int32_t k) const
    {
        if constexpr (P::OWN) {
            uint32_t r[4];
            ptx_ldmatrix_x4(r, x[g] + (uint32_t) k * (uint32_t) p.n_rows * 64);
            return {r[0], r[1], r[2], r[3]};
        } else {
            return w16_words(at + X_AT + g * X_BLOCK);
        }
    }
    /* Starts the copies of the next block of the items, if any, to a stage. */
    __device__ __forceinline__ void fill(int32_t stage)
    {
        if (b == end && !open()) return;
        const uint32_t lane = threadIdx.x % 32, dst = to + (uint32_t) stage * STAGE + lane * 16;
#pragma unroll
        for (uint32_t k = 0; k < CODES; k++)
            ptx_cp_async16_once(dst + k * 512, code[k] + (size_t) (uint32_t) b * T::CODE, once);
        ptx_cp_async16_once_below(dst + SIDE_AT, side + (size_t) (((uint32_t) b >> side_shift) * side_step), (int) lane,
                                  ALL_SIDES, once);
#pragma unroll
        for (int g = 0; g < NT && !P::OWN; g++) {
            if (g && g >= n_group) break;
            const uint8_t *from = p.x + (size_t) (uint32_t) b * X_BLOCK;
            ptx_cp_async16(dst + X_AT + (uint32_t) g * X_BLOCK, from + (size_t) x[g] * 16);
            if (MID)
                ptx_cp_async4_below(dst - lane * 12 + X_AT + (uint32_t) g * X_BLOCK + 512, from + (size_t) f[g] * 4,
                                    (int) lane, 8);
        }
        if (++b == end) item++;
    }
};

/* Adds the products of a block of 32 columns of W (a) and a group of x to acc. x: the lane's words of the group. f:
 * with MID, the factors of this block in the lane's two columns of the tile. */
template <int TYPE, bool MID> PI_FN void add_words(const uint32_t (&a)[2][4], uint4 x, float2 f, float (&acc)[4])
{
    if (!MID) {
        w16_add<TYPE>(a, x, acc);
        return;
    }
    float d[4] = {};
    w16_add<TYPE>(a, x, d);
#pragma unroll
    for (int i = 0; i < 4; i++) acc[i] = fmaf(d[i], i % 2 ? f.y : f.x, acc[i]);
}

/* Adds the products of block k of the slice, in the stage at `at`, to acc[tile][group]. */
template <class S, int TYPE, int NT, bool MID>
PI_FN void expert_block(const S &in, int32_t k, int n_group, const unsigned char *at, float (&acc)[FEW_TILES][NT][4])
{
    using T = w16<TYPE>;
    /* the lane unpacks the scales of one tile, and the four lanes of a row exchange them */
    const int lane = (int) threadIdx.x % 32, tile = lane % FEW_TILES;
    const unsigned char *sup = at + S::SUPER_AT;
    const w16_packed scales = w16_pack<TYPE>(at + S::SIDE_AT + tile * T::SIDE,
                                             sup + w16_super_at<TYPE>((uint32_t) tile, 0),
                                             sup + w16_super_at<TYPE>((uint32_t) tile, 1), lane / 4);
    uint4 x[NT];
    float2 f[NT];
#pragma unroll
    for (int g = 0; g < NT; g++) {
        if (g && g >= n_group) break; /* group 0 always exists */
        x[g] = in.words(at, g, k);
        if (MID) f[g] = ((const float2 *) (at + S::X_AT + g * S::X_BLOCK + 512))[lane % 4];
    }
#pragma unroll
    for (int r = 0; r < FEW_TILES; r++) {
        uint32_t a[2][4];
        w16_weights<TYPE>(at + r * T::CODE, w16_packed_of<TYPE>(scales, r), lane, a);
#pragma unroll
        for (int g = 0; g < NT; g++) {
            if (g && g >= n_group) break;
            add_words<TYPE, MID>(a, x[g], f[g], acc[r][g]);
        }
    }
}

/* Computes items first .. end - 1, by all threads of a block. begin(item) is called before an item's products, while
 * weights are in flight. put(item, acc) gets the warp's sums of each item; it needs a barrier before it writes to the
 * shared memory of sums. stages: shared memory of expert_stream. Rounds k < 0 of the first item only fill the first
 * stages, so that the code for filling exists once. */
template <class S, int TYPE, int NT, bool MID, class P, class B, class F>
PI_FN void few_items(const P &p, uint32_t first, uint32_t end, const unsigned char *stages, const B &begin,
                     const F &put)
{
    const int32_t slice = (int32_t) threadIdx.x / 32, n_block = (int32_t) p.a.w.shape.n_block;
    const int32_t n = n_block * (slice + 1) / SLICES - n_block * slice / SLICES;
    const unsigned char *mine = stages + (uint32_t) slice * S::STAGES * S::STAGE;
    S in(p, first, end, stages);
    /* k: round, = block of the slice. stage: the stage to fill. The stage after it is the oldest, which is
     * multiplied. */
    int32_t k = 1 - S::STAGES, stage = 0;
#pragma unroll 1
    for (uint32_t at = first; at < end; at++, k = 0) {
        const w16_item i = item_of(p, at);
        const int n_group = (i.t.n + 7) / 8;
        float acc[FEW_TILES][NT][4] = {};
#pragma unroll 1
        for (;; k++) {
            if (k == 0) begin(i);
            if (k >= n) break;
            if (k >= 0) {
                ptx_cp_async_wait<S::STAGES - 2>();
                __syncwarp(); /* the block has arrived for all lanes, and all have finished with the previous one */
            }
            in.fill(stage);
            ptx_cp_async_commit();
            stage = stage + 1 == S::STAGES ? 0 : stage + 1;
            if (k < 0) continue;
            expert_block<S, TYPE, NT, MID>(in, k, n_group, mine + (uint32_t) stage * S::STAGE, acc);
        }
        put(i, acc);
    }
}

#endif
