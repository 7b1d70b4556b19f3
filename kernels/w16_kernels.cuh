/* Packed matrices times x by 16-bit tensor cores (option matmul): weights become F16 in registers while the next ones are
 * on their way, for fewer instructions a byte than linear_kernels.cuh's exact products, and far fewer a product. Layouts
 * and ORDER: as w16.cuh says.
 *
 * Few rows of x (w16_few, up to 64): a block of threads makes 64 rows of W, or 32 or 16 where there are few of them; a
 * warp a slice. What a warp needs, of W and of x, goes to shared memory ahead of it, in stages of one block of 32 columns: as many
 * as there is room for, so that memory is busy even where there are fewer blocks of threads than multiprocessors. x is
 * read once for all of the block's rows of W.
 *
 *     shared: [8 warps][stages]{ codes [tiles], scales [tiles], scales of scales [tiles], words of x [groups] }
 *
 * Many rows (w16_many): a block makes 128 rows of W times 128 of x, a warp 32 times 64. Two blocks of 32 columns are a
 * stage:
 *
 *     stage: 8 tiles of W: { codes [2], scales [2], scales of scales }
 *            16 groups of x: words [2]
 *
 * Where the last tile or group of a stage is not there, the last that is stands for it; of few rows groups are left out.
 * Where tiles are few their slices are shared out among blocks (split.cuh). */
#ifndef PI_W16_KERNELS_CUH
#define PI_W16_KERNELS_CUH

#include "pipe.cuh"
#include "split.cuh"

/* Matrices of one type with the same x: one launch. */
struct w16_products {
    pi__cuda_shape shape; /* what they have in common: all but mat_bytes */
    const uint4 *x;       /* prepared rows */
    const float *factor;  /* of each */
    int32_t n_rows;       /* of x */
    int32_t n;            /* matrices */
    struct {
        const uint8_t *data;
        const float *scale;
        float *y;
        int64_t ldy, n_out;
        uint32_t first;   /* block of threads that makes its first rows; of many rows, in y */
        float add;        /* as in pi__k_product; of many rows */
    } w[PI__K_MOST_LINEAR];
    pi__k_tail tail;      /* of few rows */
    split_sums split;     /* of many rows, where a tile is several blocks' */
};

PI_FN int w16_which(const w16_products &p, uint32_t block)
{
    int i = 0;
    while (i + 1 < p.n && block >= p.w[i + 1].first) i++;
    return i;
}

/* Epilogue: a sum times the factors of matrix and row. */
template <int TYPE> struct w16_times {
    float w;
    const float *row; /* of the first */
    __device__ __forceinline__ w16_times(const float *scale, const float *row_) : w(scale ? *scale : 1.0f), row(row_)
    {
        w *= __uint_as_float((uint32_t) (127 + w16<TYPE>::DOWN) << 23);
    }
    __device__ __forceinline__ float operator()(int r, float sum) const { return sum * row[r] * w; }
};

/* ------------------------------------------------------------------------------------------------------------- prepare */

/* A block of threads: a row; row numbers up to a multiple of 8 are rows of zeros. */
template <bool BF16> __global__ void __launch_bounds__(THREADS) w16_prepare(pi__k_input in, int32_t n_rows, int64_t n_in,
                                                                             uint16_t *words, float *factor)
{
    ptx_take_turn();
    PI_SMEM(raw);
    int64_t row = blockIdx.x;
    bool there = row < n_rows;
    input_row x = open_row(in, row, n_in, there, (float *) raw);
    put_halves(x, row, n_in, there, BF16, {0, 1}, words, factor, (float *) raw + THREADS / 32);
}

/* ------------------------------------------------------------------------------------------------------------ few rows */

/* Bytes of shared memory that a block of threads may have: with up to 8 rows three fit side by side where a multiprocessor has
 * 228 KiB (sm_90), and one has more on its way than an RTX PRO 6000's or GB10's multiprocessor takes in a microsecond. */
template <int NT> constexpr uint32_t w16_room = (NT == 1 ? 75 : 99) << 10;
enum { W16_MOST_STAGES = 6 };

/* Tiles of W that a block of threads makes of up to 64 rows. Of up to 8 rows fewer where blocks would be fewer than most devices can
 * run side by side: with twice as many as there is room for, nearly half of it is idle at the end. */
enum { W16_TILES = 4, W16_LEAST_BLOCKS = 256 };

/* What a warp's slice of R tiles of W and up to NT groups of x passes through. */
template <int TYPE, int NT, int R> struct w16_stream {
    using T = w16<TYPE>;
    static constexpr uint32_t SIDE_AT = R * T::CODE, SUPER_AT = SIDE_AT + R * T::SIDE, X_AT = SUPER_AT + R * T::SUPER,
                              STAGE = X_AT + NT * 512;
    static constexpr int FIT = (int) (w16_room<NT> / SLICES / STAGE), STAGES = FIT < W16_MOST_STAGES ? FIT : W16_MOST_STAGES;
    static_assert(STAGES >= 2, "one is filled while another is used");
    static constexpr uint32_t WARP = STAGES * STAGE, CODE_LANES = T::CODE / 16, SIDE_LANES = R * T::SIDE / 16,
                              ALL_SIDES = SIDE_LANES + R * T::SUPER / 16; /* 16-byte pieces */
    static constexpr uint32_t CODES = (R * CODE_LANES + 31) / 32; /* of them, of the codes, a lane's at most */
    static_assert(ALL_SIDES <= 32, "one of scales a lane");

    const uint8_t *code[CODES], *side, *x;
    uint32_t side_step, side_shift, to;
    int n_group;
    uint32_t n_rows;
    size_t group; /* bytes from group to group */
    uint64_t once; /* W is not read again in a step */

    /* tile_of(r): the r-th tile. */
    template <class F>
    __device__ __forceinline__ w16_stream(const pi__cuda_shape &shape, const uint4 *rows, int32_t rows_there, const F &tile_of,
                                          const unsigned char *shared)
    {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t i = 0; i < CODES; i++)
            code[i] = tile_of((lane + 32 * i) / CODE_LANES) + (lane + 32 * i) % CODE_LANES * 16;
        bool sup = lane >= SIDE_LANES;
        uint32_t k = sup ? lane - SIDE_LANES : lane, n = (sup ? T::SUPER : T::SIDE) / 16;
        side = tile_of(n ? k / n : 0) + (sup ? shape.super_at : shape.side_at) + (n ? k % n * 16 : 0);
        side_step = sup ? T::SUPER : T::SIDE;
        side_shift = sup ? 3 : 0;
        x = (const uint8_t *) (rows + lane);
        group = (size_t) shape.n_block * 512;
        n_group = (rows_there + 7) / 8, n_rows = (uint32_t) rows_there;
        to = ptx_shared(shared) + threadIdx.x / 32 * WARP + lane * 16;
        once = ptx_read_once();
    }
    /* One more than half of NT groups is always there, or a kernel with half as many would do. */
    __device__ __forceinline__ bool has(int g) const { return g <= NT / 2 || g < n_group; }
    /* Of a group alone the rows that are there, 4 pieces of 16 bytes each: one row is an eighth of what is read by all blocks. */
    __device__ __forceinline__ bool has_row() const { return NT > 1 || threadIdx.x % 32 < 4 * n_rows; }
    /* The others are zeros in all stages. */
    __device__ __forceinline__ void clear_x(unsigned char *mine) const
    {
        if (has_row()) return;
#pragma unroll
        for (int i = 0; i < STAGES; i++) *(uint4 *) (mine + i * STAGE + X_AT + threadIdx.x % 32 * 16) = {0, 0, 0, 0};
    }
    /* Block b to a stage: W, and x. */
    __device__ __forceinline__ void fill_w(int32_t stage, int32_t b) const
    {
        const uint32_t dst = to + (uint32_t) stage * STAGE;
#pragma unroll
        for (uint32_t i = 0; i < CODES; i++)
            if (threadIdx.x % 32 + i * 32 < R * CODE_LANES) ptx_cp_async16_once(dst + i * 512, code[i] + (size_t) b * T::CODE, once);
        if (threadIdx.x % 32 < ALL_SIDES) ptx_cp_async16_once(dst + SIDE_AT, side + ((uint32_t) b >> side_shift) * side_step, once);
    }
    __device__ __forceinline__ void fill_x(int32_t stage, int32_t b) const
    {
        const uint32_t dst = to + (uint32_t) stage * STAGE;
        const uint8_t *from = x + (size_t) b * 512;
#pragma unroll
        for (uint32_t g = 0; g < NT; g++)
            if (has((int) g) && has_row()) ptx_cp_async16(dst + X_AT + g * 512, from + g * group);
    }
    __device__ __forceinline__ void fill(int32_t stage, int32_t b) const
    {
        fill_w(stage, b);
        fill_x(stage, b);
    }
    static constexpr size_t bytes() { return WARP * SLICES > sums_bytes<NT> ? WARP * SLICES : sums_bytes<NT>; }
};

/* The warp's slice: acc[tile][group]. */
template <int TYPE, int NT, int R>
PI_FN void w16_slice(const w16_stream<TYPE, NT, R> &in, int32_t n_block, unsigned char *shared, float (&acc)[R][NT][4])
{
    using S = w16_stream<TYPE, NT, R>;
    using T = w16<TYPE>;
    int lane = (int) threadIdx.x % 32, slice = (int) threadIdx.x / 32;
    int32_t first = n_block * slice / SLICES, end = n_block * (slice + 1) / SLICES, stage = 0;
    for (int i = 0; i < S::STAGES - 1; i++)
        if (first + i < end) in.fill_w(i, first + i);
    in.clear_x(shared + (uint32_t) slice * S::WARP);
    ptx_wait_grids(); /* weights come while the kernel before makes x */
    for (int i = 0; i < S::STAGES - 1; i++) {
        if (first + i < end) in.fill_x(i, first + i);
        ptx_cp_async_commit();
    }
    const unsigned char *mine = shared + (uint32_t) slice * S::WARP;
#pragma unroll 1
    for (int32_t b = first; b < end; b++) {
        ptx_cp_async_wait<S::STAGES - 2>();
        __syncwarp(); /* the block is there for all lanes, and all are done with the one before */
        int32_t next = stage ? stage - 1 : S::STAGES - 1;
        if (b + S::STAGES - 1 < end) in.fill(next, b + S::STAGES - 1);
        ptx_cp_async_commit();
        const unsigned char *at = mine + (uint32_t) stage * S::STAGE;
        uint4 x[NT];
#pragma unroll
        for (int g = 0; g < NT; g++)
            if (in.has(g)) x[g] = w16_words(at + S::X_AT + g * 512);
#pragma unroll
        for (uint32_t r = 0; r < R; r++) {
            uint32_t a[2][4];
            w16_weights<TYPE>(at + r * T::CODE, at + S::SIDE_AT + r * T::SIDE, at + S::SUPER_AT + r * T::SUPER, lane, a);
#pragma unroll
            for (int g = 0; g < NT; g++)
                if (in.has(g)) w16_add<TYPE>(a, x[g], acc[r][g]);
        }
        stage = stage + 1 == S::STAGES ? 0 : stage + 1;
    }
}

/* R tiles of a matrix (data, scale, y, ldy and n_out of w) from `tile` on, times prepared rows x with these factors. */
template <int TYPE, int NT, int R, class W>
PI_FN void w16_tiles(const pi__cuda_shape &shape, const W &w, int32_t tile, const uint4 *x, const float *factor, int32_t n_rows,
                     unsigned char *raw)
{
    const int32_t last = (int32_t) ((w.n_out + 15) / 16 - 1);
    auto tile_of = [&](uint32_t r) { return w.data + (size_t) min(tile + (int32_t) r, last) * shape.tile_bytes; };
    const w16_stream<TYPE, NT, R> in(shape, x, n_rows, tile_of, raw);
    float acc[R][NT][4] = {};
    w16_slice<TYPE, NT>(in, (int32_t) shape.n_block, raw, acc);
    const w16_times<TYPE> result(w.scale, factor);
#pragma unroll
    for (int r = 0; r < R; r++) {
        __syncthreads(); /* all are done with what is there in shared memory */
        put_sums(acc[r], (float *) raw, result, w.y + (tile + r) * 16, w.ldy, n_rows, w.n_out - (tile + r) * 16);
    }
}

/* Blocks that run side by side where shared memory has room for them: registers are for so many. Two warps of a scheduler
 * would wait for most of their results. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
template <int NT> constexpr int w16_side_by_side = NT == 1 ? 3 : NT <= 4 ? 2 : 1;
#else
template <int NT> constexpr int w16_side_by_side = 1;
#endif
template <int TYPE, int NT, int R> __global__ void __launch_bounds__(THREADS, w16_side_by_side<NT>) w16_few(PI_CONSTANT w16_products p)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    const auto &w = p.w[w16_which(p, blockIdx.x)];
    w16_tiles<TYPE, NT, R>(p.shape, w, (int32_t) (blockIdx.x - w.first) * R, p.x, p.factor, p.n_rows, raw);
    if (p.tail.arrived) run_tail(p.tail, raw);
}

/* ----------------------------------------------------------------------------------------------------------- many rows */

enum { W16_MANY_TILES = 8, W16_MANY_GROUPS = 16, W16_BLOCKS = 2 /* of a stage */, W16_STAGES = 4 };

template <int TYPE> struct w16_stage {
    using T = w16<TYPE>;
    static constexpr uint32_t SIDE_AT = W16_BLOCKS * T::CODE, SUPER_AT = SIDE_AT + W16_BLOCKS * T::SIDE,
                              TILE = SUPER_AT + T::SUPER, X_AT = W16_MANY_TILES * TILE,
                              SIZE = X_AT + W16_MANY_GROUPS * W16_BLOCKS * 512;
};

using w16_pipe = pipe<W16_STAGES, PIPE_SMALL>; /* pieces are too small for bulk copies: these take more instructions */

/* What a warp copies to each stage: a tile of W, and two groups of x. */
template <int TYPE> struct w16_source {
    using T = w16<TYPE>;
    using S = w16_stage<TYPE>;
    static constexpr uint32_t CODES = T::CODE / 16, SIDES = T::SIDE / 16, SUPERS = T::SUPER / 16; /* 16-byte pieces of a block */
    const uint8_t *code, *side, *x[2]; /* the lane's pieces of block 0, and of the scales of scales */
    uint32_t side_step, side_shift, to, n_block;

    __device__ __forceinline__ w16_source(const pi__cuda_shape &s, const uint8_t *tile, const uint8_t *x0, const uint8_t *x1)
    {
        uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        bool sup = lane >= W16_BLOCKS * SIDES;
        code = tile + lane * 16;
        side = tile + (sup ? s.super_at + (lane - W16_BLOCKS * SIDES) * 16 : s.side_at + lane * 16);
        side_step = sup ? T::SUPER : T::SIDE;
        side_shift = sup ? 3 : 0;
        x[0] = x0 + lane * 16, x[1] = x1 + lane * 16;
        to = warp * S::TILE + lane * 16;
        n_block = (uint32_t) s.n_block;
    }
    /* Blocks b and, if it is there, b + 1 to stage i. */
    __device__ __forceinline__ void fill(const w16_pipe &q, int32_t i, int32_t b) const
    {
        uint32_t lane = threadIdx.x % 32, dst = q.address(i), at = (uint32_t) b, n = at + 1 < n_block ? 2 : 1;
        const uint8_t *from = code + (size_t) at * T::CODE;
#pragma unroll
        for (uint32_t k = 0; k < W16_BLOCKS * CODES; k += 32)
            if (lane + k < n * CODES) ptx_cp_async16(dst + to + k * 16, from + k * 16);
        bool sup = lane >= W16_BLOCKS * SIDES && lane < W16_BLOCKS * SIDES + SUPERS;
        if (lane < n * SIDES || sup) ptx_cp_async16(dst + to + S::SIDE_AT, side + (at >> side_shift) * side_step);
        dst += S::X_AT + threadIdx.x / 32 * 2 * W16_BLOCKS * 512 + lane * 16;
#pragma unroll
        for (uint32_t g = 0; g < 2; g++) {
            const uint8_t *words = x[g] + (size_t) at * 512;
            ptx_cp_async16(dst + g * W16_BLOCKS * 512, words);
            if (n == 2) ptx_cp_async16(dst + g * W16_BLOCKS * 512 + 512, words + 512);
        }
    }
};

/* Block k of 32 columns of a stage: two tiles of W at w, 8 groups of x. */
template <int TYPE>
PI_FN void w16_block(const unsigned char *w, const unsigned char *x, uint32_t k, float (&acc)[2][8][4])
{
    using T = w16<TYPE>;
    using S = w16_stage<TYPE>;
    int lane = (int) threadIdx.x % 32;
    uint32_t a[2][2][4];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const unsigned char *tile = w + h * S::TILE;
        w16_weights<TYPE>(tile + k * T::CODE, tile + S::SIDE_AT + k * T::SIDE, tile + S::SUPER_AT, lane, a[h]);
    }
#pragma unroll
    for (int g = 0; g < 8; g++) {
        const uint4 words = w16_words(x + (g * W16_BLOCKS + k) * 512);
        w16_add<TYPE>(a[0], words, acc[0][g]);
        w16_add<TYPE>(a[1], words, acc[1][g]);
    }
}

/* The block's slices of n blocks of columns, of which the first may begin inside of a stage, or end there: the sums of each go
 * where split.cuh says. busy: some of the warp's results are wanted, which are those of the tiles and groups at w and x. */
template <int TYPE>
PI_FN void w16_many_slices(const w16_source<TYPE> &from, unsigned char *raw, int32_t n, bool busy, uint32_t w, uint32_t x,
                           const split_sums &split, float (&total)[2][8][4])
{
    const int32_t first = n * split_first() / SLICES, base = first / W16_BLOCKS * W16_BLOCKS, most = n * split_end() / SLICES - base;
    float acc[2][8][4] = {};
    w16_pipe q(raw, w16_stage<TYPE>::SIZE);
    auto fill = [&](int32_t i, int32_t b) { from.fill(q, i, base + b); };
    const unsigned char *stage = raw;
    int32_t b = base;
    q.start(most, W16_BLOCKS, fill);
    for (int32_t slice = split_first(); slice < split_end(); slice++) {
        for (int32_t end = n * (slice + 1) / SLICES; b < end; b++) {
            if (b % W16_BLOCKS == 0) stage = q.next(b - base, most, W16_BLOCKS, fill);
            if (busy && b >= first) w16_block<TYPE>(stage + w, stage + x, (uint32_t) b % W16_BLOCKS, acc);
        }
        if (busy) split_end_slice(split, slice, acc, total);
#pragma unroll
        for (int i = 0; i < 64; i++) acc[i / 32][i / 4 % 8][i % 4] = 0;
    }
}

/* Of the block's groups of x the warp's two, which it copies. */
template <int TYPE> PI_FN w16_source<TYPE> w16_source_of(const w16_products &p, const uint8_t *tile)
{
    const int32_t first = (int32_t) (blockIdx.x * W16_MANY_GROUPS + threadIdx.x / 32 * 2), last = (p.n_rows + 7) / 8 - 1;
    auto x = [&](int g) { return (const uint8_t *) p.x + (size_t) min(first + g, last) * (size_t) p.shape.n_block * 512; };
    return w16_source<TYPE>(p.shape, tile, x(0), x(1));
}

template <int TYPE> __global__ void __launch_bounds__(THREADS, 1) w16_many(w16_products p)
{
    ptx_take_turn();
    PI_SMEM(raw);
    using S = w16_stage<TYPE>;
    const auto &w = p.w[w16_which(p, blockIdx.y)];
    int warp = (int) threadIdx.x / 32;
    int32_t tile = (int32_t) (blockIdx.y - w.first) * W16_MANY_TILES, last = (int32_t) ((w.n_out + 15) / 16 - 1);
    int32_t group = (int32_t) blockIdx.x * W16_MANY_GROUPS, last_group = (p.n_rows + 7) / 8 - 1;
    int32_t n = (int32_t) p.shape.n_block, first_w = warp / 2 * 2, first_g = warp % 2 * 8;
    const w16_source<TYPE> from = w16_source_of<TYPE>(p, w.data + (size_t) min(tile + warp, last) * p.shape.tile_bytes);
    bool busy = tile + first_w <= last && group + first_g <= last_group;
    float total[2][8][4] = {};
    w16_many_slices<TYPE>(from, raw, n, busy, (uint32_t) first_w * S::TILE, S::X_AT + first_g * W16_BLOCKS * 512, p.split, total);
    if (!split_last(p.split, total, busy, raw)) return;
    int64_t row = (int64_t) (group + first_g) * 8, o = (int64_t) (tile + first_w) * 16;
    const w16_times<TYPE> result(w.scale, p.factor + row);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float *y = w.y + row * w.ldy + o + 16 * h;
        if (w.add != 0) add_totals(total[h], result, w.add, y, w.ldy, p.n_rows - row, w.n_out - o - 16 * h);
        else put_totals(total[h], result, y, w.ldy, p.n_rows - row, w.n_out - o - 16 * h);
    }
}

#endif
