/* y = W x for packed matrices on 16-bit tensor cores (option matmul). Weights become F16 in registers while the next
 * ones are loaded. This takes fewer instructions per byte than the exact integer products of linear_kernels.cuh, and
 * far fewer per product. Layouts and ORDER: w16.cuh. Kernels: w16_prepare packs x; w16_few and w16_many multiply.
 *
 * Up to 64 rows of x (w16_few): a thread block computes 64 rows of W, or 32 or 16 for small matrices. Each of its 8
 * warps has a slice of the columns. A warp streams its W and x through shared memory, in most cases one block of 32
 * columns per stage. It uses all stages that fit, so that memory stays busy even with fewer thread blocks than
 * multiprocessors. x is read once for all of the block's rows of W.
 *
 *     shared: [8 warps][stages]{ codes [tiles], scales [tiles], scales of scales [tiles], words of x [groups] }
 *
 * More rows of x (w16_many): a thread block computes 128 rows of W times 128 rows of x, a warp 32 times 64. A stage has
 * two blocks of 32 columns:
 *
 *     stage: 8 tiles of W: { codes [2], scales [2], scales of scales }
 *            16 groups of x: words [2]
 *
 * A tile is 16 rows of W, a group 8 rows of x. At the ends of W and x, the last existing tile or group takes the place
 * of missing ones; w16_few skips missing groups. If there are few tiles, several blocks divide the slices of a tile
 * (split.cuh). */
#ifndef PI_W16_KERNELS_CUH
#define PI_W16_KERNELS_CUH

#include "pipe.cuh"
#include "split.cuh"

/* Arguments of w16_few(), w16_many() and w16_wgmma(): n matrices of one type that multiply the same x. */
struct w16_products {
    pi__cuda_shape shape; /* shape of all matrices; mat_bytes is not used */
    const uint4 *x;       /* packed rows of x */
    const float *factor;  /* [n_rows] factor of each packed row */
    int32_t n_rows;       /* rows of x */
    int32_t n;            /* number of matrices */
    struct {
        const uint8_t *data;
        const float *scale;
        float *y;
        int64_t ldy, n_out;
        uint32_t first;   /* first blockIdx.x of the matrix; w16_many, w16_wgmma: blockIdx.y */
        float add;        /* w16_many, w16_wgmma: as in pi__k_product */
    } w[PI__K_MAX_LINEAR];
    pi__k_tail tail;      /* w16_few: epilogue */
    split_sums split;     /* w16_many: memory for partial sums, if gridDim.z > 1 */
};

/* Returns the index of the matrix of thread block `block`. */
PI_FN int w16_which(const w16_products &p, uint32_t block)
{
    int i = 0;
    while (i + 1 < p.n && block >= p.w[i + 1].first) i++;
    return i;
}

/* Result functor: a sum times the factors of the matrix and of row r of x, and times 2^DOWN. */
template <int TYPE> struct w16_times {
    float w;
    const float *row; /* factors of the rows of x; row[0] is for r = 0 */
    __device__ __forceinline__ w16_times(const float *scale, const float *row_) : w(scale ? *scale : 1.0f), row(row_)
    {
        w *= __uint_as_float((uint32_t) (127 + w16<TYPE>::DOWN) << 23);
    }
    __device__ __forceinline__ float operator()(int r, float sum) const { return sum * row[r] * w; }
};

/* ---------------------------------------------------------------------------------------------------------- pack x */

/* Packs x. Grid: one block per row, up to the next multiple of 8 rows; rows from n_rows on are packed as zeros. words,
 * factor: the parts of packed x. X: pi__k_input; a template is compiled only in the file that launches it. */
template <class X>
__global__ void __launch_bounds__(THREADS)
    w16_prepare(X in, int32_t n_rows, int64_t n_in, bool bf16, uint16_t *words, float *factor)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    int64_t row = blockIdx.x;
    bool there = row < n_rows;
    input_row x = open_row(in, row, n_in, there, (float *) raw);
    put_halves(x, row, n_in, there, bf16, {0, 1}, words, factor, (float *) raw + THREADS / 32);
}

/* ------------------------------------------------------------------------------------------------ small row counts */

/* Max bytes of shared memory of a thread block of w16_few(). With up to 8 rows of x (NT = 1), three blocks fit on a
 * multiprocessor with 228 KiB (sm_90). One block then has more bytes in flight than a multiprocessor of an RTX PRO 6000
 * or GB10 receives in a microsecond. */
template <int NT> constexpr uint32_t w16_room = (NT == 1 ? 75 : 99) << 10;
enum { W16_MAX_STAGES = 6 };

/* W16_TILES: max tiles of W per thread block of w16_few(). With up to 8 rows of x, blocks have fewer tiles if the grid
 * would have fewer than W16_MIN_BLOCKS blocks. Most devices run about that many concurrently. A grid of twice the
 * device's capacity or less can leave nearly half of the device idle at its end. */
enum { W16_TILES = 4, W16_MIN_BLOCKS = 256 };

/* A pipeline that streams a warp's slice of the columns of R tiles of W, and of up to NT groups of x, through shared
 * memory. If R is below W16_TILES, a stage has several blocks of columns, aligned to their number. The overhead of a
 * round is then shared by more of W. With one tile there is no shared memory left for x: each lane loads its words of x
 * to registers, one round ahead. */
template <int TYPE, int NT, int R> struct w16_stream {
    using T = w16<TYPE>;
    /* BLOCKS: blocks of 32 columns in a stage; PARTS: (tile, block) pairs in a stage */
    static constexpr int BLOCKS = W16_TILES / R, PARTS = R * BLOCKS;
    static constexpr bool STAGED = R > 1; /* x is copied to shared memory, too */
    static_assert(PARTS == 4 && (BLOCKS == 1 || NT == 1), "one of four lanes holds a part's scales");
    static constexpr uint32_t SIDE_AT = PARTS * T::CODE, SUPER_AT = SIDE_AT + PARTS * T::SIDE,
                              X_AT = SUPER_AT + R * T::SUPER, STAGE = X_AT + (STAGED ? BLOCKS * NT * 512 : 0);
    static constexpr int FIT = (int) (w16_room<NT> / SLICES / STAGE),
                         STAGES = FIT < W16_MAX_STAGES ? FIT : W16_MAX_STAGES;
    static_assert(STAGES >= 2, "one stage is filled while another is used");
    /* WARP: bytes of a warp's stages. Counts of 16-byte pieces in a stage: a tile's codes, a tile's scales, all tiles'
     * scales, scales and scales of scales. */
    static constexpr uint32_t WARP = STAGES * STAGE, TILE_CODES = BLOCKS * T::CODE / 16,
                              TILE_SIDES = BLOCKS * T::SIDE / 16, SIDE_LANES = R * TILE_SIDES,
                              ALL_SIDES = SIDE_LANES + R * T::SUPER / 16;
    static constexpr uint32_t CODES = (R * TILE_CODES + 31) / 32; /* max 16-byte pieces of codes per lane and stage */
    static_assert(ALL_SIDES <= 32, "at most one scale copy per lane");

    int32_t first, end, base; /* blocks of the slice: first .. end - 1; first block of the first stage */
    /* Addresses of the lane's 16-byte pieces at block 0. The lane copies a piece only if the first block of the stage
     * is below the piece's `_end`. */
    /* x: if STAGED, x[0] only; else one address for each of the lane's four words */
    const uint8_t *code[CODES], *side, *x[4];
    int32_t code_end[CODES], side_end, x_end;
    /* Scales of block b are at side + (b >> side_shift) * side_step: scales per block, or scales of scales per 8
     * blocks. to: shared address of the lane's first piece in stage 0. */
    uint32_t side_step, side_shift, to;
    int n_group;
    size_t group; /* bytes between groups of x */
    uint64_t once; /* L2 policy evict_first: a step reads W once */

    /* rows: packed x. rows_there: number of rows of x. tile_of(r) returns the address of the r-th tile. shared: bytes()
     * bytes. */
    template <class F>
    __device__ __forceinline__ w16_stream(const pi__cuda_shape &shape, const uint4 *rows, int32_t rows_there,
                                          const F &tile_of, const unsigned char *shared)
    {
        const uint32_t lane = threadIdx.x % 32;
        const int32_t n_block = (int32_t) shape.n_block, slice = (int32_t) threadIdx.x / 32;
        first = n_block * slice / SLICES, end = n_block * (slice + 1) / SLICES, base = first / BLOCKS * BLOCKS;
#pragma unroll
        for (uint32_t i = 0; i < CODES; i++) {
            const uint32_t at = lane + 32 * i, k = at % TILE_CODES;
            code[i] = ptx_pin(tile_of(min(at / TILE_CODES, (uint32_t) R - 1)) + k * 16);
            code_end[i] = kept(at < R * TILE_CODES ? end - (int32_t) (k * 16 / T::CODE) : 0);
        }
        const w16_side_piece own = w16_side_piece_of<TYPE, R>(lane, SIDE_LANES, TILE_SIDES);
        side = ptx_pin(tile_of(own.tile) + (own.sup ? shape.super_at : shape.side_at) + own.piece * 16);
        side_end = kept(lane >= ALL_SIDES ? 0 : own.sup ? end : end - (int32_t) (own.piece * 16 / T::SIDE));
        side_step = kept(own.sup ? T::SUPER : T::SIDE);
        side_shift = kept(own.sup ? 3u : 0u);
        if constexpr (STAGED) {
            x[0] = ptx_pin((const uint8_t *) (rows + lane));
        } else {
            const uint32_t row = lane / 4;
            for (uint32_t j = 0; j < 4; j++)
                x[j] = ptx_pin((const uint8_t *) rows + row * 64 + (j ^ row / 2) * 16 + lane % 4 * 4);
        }
        /* With NT = 1 only existing rows are loaded, 4 pieces each: one row of 8 is an eighth of the x that all blocks
         * read. */
        x_end = kept(NT > 1 || lane < 4 * (uint32_t) rows_there ? end : 0);
        group = (size_t) shape.n_block * 512;
        n_group = (rows_there + 7) / 8;
        to = ptx_pin(ptx_shared(shared) + threadIdx.x / 32 * WARP + lane * 16);
        once = ptx_read_once();
    }
    /* Pins x to a register, except with four groups: there sm_90 runs two blocks per multiprocessor, and the
     * accumulators need the registers. */
    static __device__ __forceinline__ uint32_t kept(uint32_t x) { return NT != 4 ? ptx_pin(x) : x; }
    static __device__ __forceinline__ int32_t kept(int32_t x) { return (int32_t) kept((uint32_t) x); }
    /* Returns true if group g exists. Groups up to NT / 2 always exist, as the kernel for NT / 2 would be used
     * otherwise. */
    __device__ __forceinline__ bool has(int g) const { return g <= NT / 2 || g < n_group; }
    /* With NT = 1: writes zeros to the rows of x that no copy writes, in all stages. mine: the warp's stages. */
    __device__ __forceinline__ void clear_x(unsigned char *mine) const
    {
        if constexpr (STAGED && NT == 1) {
#pragma unroll 1
            for (int i = x_end ? STAGES * BLOCKS : 0; i < STAGES * BLOCKS; i++)
                *(uint4 *) (mine + i / BLOCKS * STAGE + X_AT + i % BLOCKS * 512 + threadIdx.x % 32 * 16) = {0, 0, 0, 0};
        }
    }
    /* fill_w() and fill_x() start the copies of W and x, from block b on, to the stage at byte offset `at`. */
    __device__ __forceinline__ void fill_w(uint32_t at, int32_t b) const
    {
        const uint32_t dst = to + at;
#pragma unroll
        for (uint32_t i = 0; i < CODES; i++)
            ptx_cp_async16_once_below(dst + i * 512, code[i] + (size_t) (uint32_t) b * T::CODE, b, code_end[i], once);
        ptx_cp_async16_once_below(dst + SIDE_AT, side + (size_t) (((uint32_t) b >> side_shift) * side_step), b,
                                  side_end, once);
    }
    __device__ __forceinline__ void fill_x(uint32_t at, int32_t b) const
    {
        if constexpr (!STAGED) return;
        const uint32_t dst = to + at + X_AT;
        const uint8_t *from = x[0] + (size_t) (uint32_t) b * 512;
#pragma unroll
        for (uint32_t g = 0; g < NT; g++) {
            if (!has((int) g)) continue;
#pragma unroll
            for (int k = 0; k < BLOCKS; k++)
                ptx_cp_async16_below(dst + (g * BLOCKS + k) * 512, from + g * group + k * 512, b + k, x_end);
        }
    }
    /* Loads the lane's words of x for blocks b .. b + N - 1, if the slice has all of them; without STAGED. */
    template <int N> __device__ __forceinline__ void read_x(int32_t b, uint4 (&words)[N]) const
    {
        if (b + N > x_end) return;
        const size_t at = (size_t) (uint32_t) b * 512;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const auto word = [&](int j) { return *(const uint32_t *) (x[j] + at + k * 512); };
            words[k] = {word(0), word(1), word(2), word(3)};
        }
    }
    static constexpr int ONCE = NT == 1 ? R : 1; /* tiles whose slices are added in one round of put_tiles() */
    static constexpr size_t SUMS = tiles_bytes<NT, ONCE>;
    static constexpr size_t bytes() { return WARP * SLICES > SUMS ? WARP * SLICES : SUMS; }
};

/* Adds the products of block k of the stage at `at` to acc[tile][group]. x: the lane's words per group. scales(part)
 * returns the scales of a (tile, block) pair. */
template <int TYPE, int NT, int R, class F>
PI_FN void w16_block_of(const w16_stream<TYPE, NT, R> &in, const unsigned char *at, const F &scales, int k,
                        const uint4 (&x)[NT], float (&acc)[R][NT][4])
{
    using S = w16_stream<TYPE, NT, R>;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int part = r * S::BLOCKS + k;
        uint32_t a[2][4];
        w16_weights<TYPE>(at + part * w16<TYPE>::CODE, scales(part), (int) threadIdx.x % 32, a);
#pragma unroll
        for (int g = 0; g < NT; g++)
            if (in.has(g)) w16_add<TYPE>(a, x[g], acc[r][g]);
    }
}

/* Multiplies the warp's slice of the columns: adds to acc[tile][group]. shared: in.bytes() of shared memory. */
template <int TYPE, int NT, int R>
PI_FN void w16_slice(const w16_stream<TYPE, NT, R> &in, unsigned char *shared, float (&acc)[R][NT][4])
{
    using S = w16_stream<TYPE, NT, R>;
    using T = w16<TYPE>;
    const int lane = (int) threadIdx.x % 32;
    enum { AHEAD = (S::STAGES - 1) * S::BLOCKS };
    unsigned char *mine = shared + threadIdx.x / 32 * S::WARP;
/* Prologue: fill the first stages, with W first. The previous kernel may not have finished x yet. */
#pragma unroll 1
    for (int i = 0; i < S::STAGES - 1; i++) in.fill_w(i * S::STAGE, in.base + i * S::BLOCKS);
    in.clear_x(mine);
    ptx_wait_grids(); /* loads of W start before the previous kernel has finished x */
#pragma unroll 1
    for (int i = 0; i < S::STAGES - 1; i++) {
        in.fill_x(i * S::STAGE, in.base + i * S::BLOCKS);
        ptx_cp_async_commit();
    }
    uint4 ahead[S::BLOCKS] = {}; /* words of x for the next round; rows past the last stay zeros */
    if (!S::STAGED) in.read_x(in.base, ahead);
    /* Byte offsets of a part's scales within a stage. Each lane unpacks the scales of one of the four parts; the four
     * lanes of a row then exchange them. */
    const auto side_at = [](uint32_t part) { return S::SIDE_AT + part * T::SIDE; };
    const auto super_at = [](uint32_t part, uint32_t half) {
        return S::SUPER_AT + w16_super_at<TYPE>(part / S::BLOCKS, half);
    };
    const uint32_t own = (uint32_t) lane % S::PARTS, words = in.kept(S::X_AT + w16_words_of_lane());
    const uint32_t side = in.kept(side_at(own)), super = in.kept(super_at(own, 0)), next = super_at(own, 1);
    uint32_t now = 0, before = S::WARP - S::STAGE;
#pragma unroll 1
    for (int32_t b = in.base; b < in.end; b += S::BLOCKS) {
        /* Wait for the oldest stage, then refill the previous one, which has been multiplied. */
        ptx_cp_async_wait<S::STAGES - 2>();
        __syncwarp(); /* the stage has arrived for all lanes, and all have finished with the previous stage */
        in.fill_w(before, b + AHEAD);
        in.fill_x(before, b + AHEAD);
        ptx_cp_async_commit();
        const unsigned char *at = mine + now;
        if (S::BLOCKS == 1 || (b >= in.first && b + S::BLOCKS <= in.end)) {
            const w16_packed of_lane = w16_pack<TYPE>(at + side, at + super, at + next, lane / 4);
            const auto scales = [&](int part) { return w16_packed_of<TYPE>(of_lane, part); };
#pragma unroll
            for (int k = 0; k < S::BLOCKS; k++) {
                uint4 x[NT] = {ahead[k]};
#pragma unroll
                for (int g = 0; g < NT && S::STAGED; g++)
                    if (in.has(g)) x[g] = w16_words(at + (g * S::BLOCKS + k) * 512, words);
                w16_block_of<TYPE, NT, R>(in, at, scales, k, x, acc);
            }
        } else { /* the slice has only a part of this stage's blocks */
            const auto scales = [&](int of) {
                const uint32_t part = (uint32_t) of;
                return w16_pack<TYPE>(at + side_at(part), at + super_at(part, 0), at + super_at(part, 1), lane / 4);
            };
#pragma unroll 1
            for (int k = max(in.first - b, 0); k < min(in.end - b, (int32_t) S::BLOCKS); k++) {
                uint4 x[1] = {};
                if (S::STAGED) x[0] = w16_words(at + k * 512, words);
                else in.read_x(b + k, x);
                w16_block_of<TYPE, NT, R>(in, at, scales, k, (const uint4 (&)[NT]) x, acc);
            }
        }
        if (!S::STAGED) in.read_x(b + S::BLOCKS, ahead);
        before = now;
        now = now + S::STAGE == S::WARP ? 0 : now + S::STAGE;
    }
}

/* Computes w.y for R tiles of matrix w, from `tile` on, times n_rows packed rows x, by a thread block. w has fields
 * data, scale, y, ldy and n_out. factor: of the rows of x. raw: w16_stream::bytes(). */
template <int TYPE, int NT, int R, class W>
PI_FN void w16_tiles(const pi__cuda_shape &shape, const W &w, int32_t tile, const uint4 *x, const float *factor,
                     int32_t n_rows, unsigned char *raw)
{
    const int32_t last = (int32_t) ((w.n_out + 15) / 16 - 1);
    auto tile_of = [&](uint32_t r) { return w.data + (size_t) min(tile + (int32_t) r, last) * shape.tile_bytes; };
    const w16_stream<TYPE, NT, R> in(shape, x, n_rows, tile_of, raw);
    float acc[R][NT][4] = {};
    w16_slice<TYPE, NT>(in, raw, acc);
    const w16_times<TYPE> result(w.scale, factor);
    /* Add the slices and write y. */
    put_tiles<NT, R, w16_stream<TYPE, NT, R>::ONCE>(acc, (float *) raw, n_rows, [&](int r, int row, int o, float sum) {
        const int32_t at = (tile + r) * 16 + o;
        if (at < w.n_out) w.y[row * w.ldy + at] = result(row, sum);
    });
}

/* Min resident thread blocks per multiprocessor, where shared memory suffices; this limits the registers. With a single
 * block, a scheduler has two warps, which would wait for most of their results. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 800)
template <int NT> constexpr int w16_side_by_side = NT == 1 && __CUDA_ARCH__ == 900 ? 3 : NT <= 4 ? 2 : 1;
#else
template <int NT> constexpr int w16_side_by_side = 1;
#endif
/* y = W x for up to 8 NT rows of x, then the epilogue, if any. Grid: one block per R tiles of a matrix. */
template <int TYPE, int NT, int R>
__global__ void __launch_bounds__(THREADS, w16_side_by_side<NT>) w16_few(PI_CONSTANT w16_products p)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    const auto &w = p.w[w16_which(p, blockIdx.x)];
    w16_tiles<TYPE, NT, R>(p.shape, w, (int32_t) (blockIdx.x - w.first) * R, p.x, p.factor, p.n_rows, raw);
    if (p.tail.arrived) run_tail(p.tail, raw);
}

/* ------------------------------------------------------------------------------------------------ large row counts */

enum { W16_MANY_TILES = 8, W16_MANY_GROUPS = 16, W16_BLOCKS = 2 /* blocks of 32 columns in a stage */, W16_STAGES = 4 };

/* Byte offsets in a stage of w16_many(): in a tile SIDE_AT and SUPER_AT; TILE = bytes of a tile; X_AT = start of x. */
template <int TYPE> struct w16_stage {
    using T = w16<TYPE>;
    static constexpr uint32_t SIDE_AT = W16_BLOCKS * T::CODE, SUPER_AT = SIDE_AT + W16_BLOCKS * T::SIDE,
                              TILE = SUPER_AT + T::SUPER, X_AT = W16_MANY_TILES * TILE,
                              SIZE = X_AT + W16_MANY_GROUPS * W16_BLOCKS * 512;
};

/* cp.async: the pieces are too small for bulk copies, which take more instructions */
using w16_pipe = pipe<W16_STAGES, PIPE_SMALL>;

/* Source addresses of a warp's copies for each stage: one tile of W, and two groups of x. */
template <int TYPE> struct w16_source {
    using T = w16<TYPE>;
    using S = w16_stage<TYPE>;
    /* 16-byte pieces of a tile: codes per block, scales per block, scales of scales */
    static constexpr uint32_t CODES = T::CODE / 16, SIDES = T::SIDE / 16, SUPERS = T::SUPER / 16;
    const uint8_t *code, *side, *x[2]; /* the lane's pieces at block 0; side: scales or scales of scales */
    /* side_step, side_shift: as in w16_stream. to: offset of the lane's first piece of W in a stage. */
    uint32_t side_step, side_shift, to, n_block;

    __device__ __forceinline__ w16_source(const pi__cuda_shape &s, const uint8_t *tile, const uint8_t *x0,
                                          const uint8_t *x1)
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
    /* Starts the copies of blocks b and b + 1 (if b + 1 exists) to stage i. */
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

/* Adds the products of block k (of 32 columns) of a stage to acc[tile][group]: two tiles of W at w, 8 groups of x at
 * x. */
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

/* Computes the thread block's slices; n: blocks of 32 columns in a row. The first and last slice may begin or end
 * inside a stage. Each slice's sums are added to `total` or stored, as split.cuh describes. busy: false = the warp has
 * no tiles or groups to multiply. w, x: byte offsets of the warp's two tiles and 8 groups in a stage. */
template <int TYPE>
PI_FN void w16_many_slices(const w16_source<TYPE> &from, unsigned char *raw, int32_t n, bool busy, uint32_t w,
                           uint32_t x, const split_sums &split, float (&total)[2][8][4])
{
    const int32_t first = n * split_first() / SLICES, base = first / W16_BLOCKS * W16_BLOCKS,
                  most = n * split_end() / SLICES - base;
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

/* Returns the sources of the warp's copies: the tile of W at `tile`, and two of the block's groups of x. */
template <int TYPE> PI_FN w16_source<TYPE> w16_source_of(const w16_products &p, const uint8_t *tile)
{
    const int32_t first = (int32_t) (blockIdx.x * W16_MANY_GROUPS + threadIdx.x / 32 * 2),
                  last = (p.n_rows + 7) / 8 - 1;
    auto x = [&](int g) {
        return (const uint8_t *) p.x + (size_t) min(first + g, last) * (size_t) p.shape.n_block * 512;
    };
    return w16_source<TYPE>(p.shape, tile, x(0), x(1));
}

/* y = W x for many rows of x. Grid: x = 128 rows of x, y = 128 rows of a matrix, z = part of the slices (split.cuh). */
template <int TYPE> __global__ void __launch_bounds__(THREADS, 1) w16_many(w16_products p)
{
    ptx_wait_dependency();
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
    w16_many_slices<TYPE>(from, raw, n, busy, (uint32_t) first_w * S::TILE, S::X_AT + first_g * W16_BLOCKS * 512,
                          p.split, total);
    /* Add the parts of the slices; only the tile's last block to arrive writes y. */
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
