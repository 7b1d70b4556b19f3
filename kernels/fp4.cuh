/* Products of FP4 matrices on the block-scaled tensor cores of sm_120 and sm_121: operand layouts, the ring of shared
 * memory stages, producer and multiplying warps. Used by fp4_kernels.cuh, fp4_glu_kernels.cuh and moe_fp4_kernels.cuh.
 *
 * W is the matrix [n_out][n_in]; x are the rows of activations. The template parameter WAY is the mode, the formats of
 * W and x:
 *
 *     FP4_NV   NVFP4 times x in NVFP4                   k64, a scale (ue4m3) per 16 columns
 *     FP4_MX   MXFP4 times x in MXFP4                   k64, a scale (a power of two) per 32
 *     FP4_MX8  MXFP4 times x in MXFP8, e4m3             k32, the same scales
 *
 * STEPS. A chunk is 64 columns: two blocks of W (pack.h); the last chunk of MXFP4 may have one block. The chunks are
 * cut into 8 slices of nearly equal length. A slice is cut into steps of two chunks; its last step may have one chunk.
 * In a step that is not complete, the missing columns of x are zeros, and W repeats its last block.
 *
 * ORDER. One accumulator of the tensor core sums a slice in order, and the slices are added in order. The bits of a row
 * do not depend on other rows, on the shape of the tiles, or on the assignment of slices to blocks of threads.
 *
 *     packed x: [groups of 8 rows][steps][8 rows, even rows first]{ words of B, scales, padding }
 *               [rows] factor
 *
 * The part of one row and one step is a piece. The tensor core allows any order of columns, as long as W and x agree
 * and scales match. So a lane's words are the ones cheapest to extract from W's packed form. The order of rows, scales
 * and padding avoids bank conflicts in shared memory, for words and for the scales of four groups read in one access. A
 * piece is contiguous, so one copy gathers a row's step for an expert. */
#ifndef PI_FP4_CUH
#define PI_FP4_CUH

#include "linear.cuh"

enum { FP4_NV, FP4_MX, FP4_MX8 };
enum { FP4_CODES = 1024 /* bytes of a tile's codes (16 rows) per step */ };
/* Kernels with a ring: FP4_WARPS warps multiply; FP4_THREADS is the block's thread count. Registers are assigned to
 * groups of four warps. The last group is the producer warp and three warps that exit; it keeps FP4_FEW_REGISTERS per
 * thread, and the multiplying warps get FP4_MANY_REGISTERS. */
enum { FP4_WARPS = 8, FP4_THREADS = 32 * (FP4_WARPS + 4), FP4_FEW_REGISTERS = 48, FP4_MANY_REGISTERS = 224 };

/* Sizes of a mode, in bytes. NV: NVFP4. A8: x is FP8. */
template <int WAY> struct fp4_way {
    static constexpr bool NV = WAY == FP4_NV, A8 = WAY == FP4_MX8;
    /* scales of a block of W (16 rows, 32 columns) */
    static constexpr uint32_t SIDE = NV ? 32 : 16;
    static constexpr uint32_t TILE = FP4_CODES + 4 * SIDE;              /* a tile of W, per step */
    /* A row of x, per step: WORDS bytes of codes; PIECE: codes, scales and padding. */
    static constexpr uint32_t WORDS = A8 ? 128 : 64, PIECE = WORDS + 16;
    /* pieces of 8 rows in device memory; bytes between groups in a stage */
    static constexpr uint32_t GROUP = 8 * PIECE, GROUP_STRIDE = GROUP + 16;
};
/* Bytes of a piece, for a mode that is known only at run time. */
static __host__ __device__ __forceinline__ constexpr uint32_t fp4_piece(int way) { return way == FP4_MX8 ? 144 : 80; }

/* Returns the number of steps in slices 0 .. slice - 1 of a row of n chunks; by default in all slices. */
static __host__ __device__ __forceinline__ int32_t fp4_steps(int32_t n, int slice = SLICES)
{
    int32_t steps = 0;
    for (int k = 0; k < slice; k++) steps += (n * (k + 1) / SLICES - n * k / SLICES + 1) / 2;
    return steps;
}
/* Packed x: bytes of the pieces of n_rows rows of n_in columns; offset in bytes of the rows' factors. */
static __host__ __device__ __forceinline__ size_t fp4_rows_bytes(int way, int64_t n_rows, int64_t n_in)
{
    return (size_t) ((n_rows + 7) / 8 * 8) * (size_t) fp4_steps((int32_t) ((n_in + 63) / 64)) * fp4_piece(way);
}
static __host__ __device__ __forceinline__ size_t fp4_factors_at(int way, int64_t n_rows, int64_t n_in)
{
    return (fp4_rows_bytes(way, n_rows, n_in) + 15) / 16 * 16;
}

/* Row r (0 .. 7) of a group. fp4_place: its position among the 8 pieces: 0 4 1 5 2 6 3 7. fp4_row_at: byte offset of
 * its piece. fp4_scale_at: byte offset of its scales. A piece repeats its scales up to its end, and each place reads
 * another copy, which avoids bank conflicts. So a piece can be copied to the place of any row. */
PI_FN uint32_t fp4_place(uint32_t r) { return r / 2 + r % 2 * 4; }
template <int WAY> PI_FN uint32_t fp4_row_at(uint32_t r) { return fp4_place(r) * fp4_way<WAY>::PIECE; }
template <int WAY> PI_FN uint32_t fp4_scale_at(uint32_t r)
{
    return fp4_row_at<WAY>(r) + fp4_way<WAY>::WORDS + (fp4_way<WAY>::A8 ? fp4_place(r) % 4 * 4 : r / 2 % 2 * 8);
}

/* ------------------------------------------------------------------------------------------------------ fragments */

/* The lane's words of operand A of a tile, for both chunks of a step (FP4_MX8: as packed, not yet expanded to bytes),
 * and the lane's word of scales. Of the threads that supply an instruction's scales, thread 0 holds the scales of the
 * first chunk, thread 1 of the second. */
template <int WAY> struct fp4_a {
    uint32_t w[2][4];
    uint32_t scale;
};
/* The lane's words of operand B of a group of 8 rows of x, for both chunks of a step. */
template <int WAY> struct fp4_b {
    uint4 w[fp4_way<WAY>::A8 ? 2 : 1];
};
/* The lane's scales of x: w[0] for the first chunk, w[1] for the second (FP4_MX8: w[0] has both). If four groups are
 * loaded together, the lane has the scales of group lane % 4, row lane / 4. */
struct fp4_scales {
    uint32_t w[2];
};

/* Replaces scale byte 0x7f (480 in packed NVFP4, see pack.h) by 0x7e (448), in the four bytes of s. The instruction
 * cannot represent 480. */
PI_FN uint32_t fp4_no_480(uint32_t s) { return s - ((s + 0x01010101) >> 7 & 0x01010101); }
/* Replaces scale byte 255, which is NaN for the instruction but the largest scale in files, by 254. */
PI_FN uint32_t fp4_no_nan(uint32_t s) { return min(s, 254u); }

/* a = the lane's words and scales of a tile for a step of four blocks. codes, side: the tile's codes and scales of that
 * step. n: number of blocks that exist, 1 to 4 (NVFP4: 2 or 4); missing blocks repeat the last one.
 *
 * NVFP4: a register holds 8 columns of one group of 16. In the packed form a lane has four columns of each of a block's
 * two groups. Lanes 0 and 1 of a row take the first block, lanes 2 and 3 the second: columns 0..7 or 8..15 of both its
 * groups, from two lanes' words. For the second block the two reads are swapped, which avoids bank conflicts with the
 * first. The groups of a chunk are then in the order 0 2 1 3. */
template <int WAY>
PI_FN void fp4_load_a(const unsigned char *codes, const unsigned char *side, uint32_t lane, fp4_a<WAY> &a,
                      uint32_t n = 4)
{
    const uint32_t row = lane / 4 + 8 * (lane & 1), second = lane >> 1 & 1;
    auto block = [n](uint32_t i) { return n == 4 ? i : min(i, n - 1); };
    if constexpr (fp4_way<WAY>::NV) {
        const unsigned char *p = codes + second * 256 + lane / 4 * 32 + (lane & 1) * 16;
        const uint32_t low = second ? 0x1054 : 0x5410, high = second ? 0x3276 : 0x7632;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const unsigned char *q = p + block(2 * (uint32_t) c) / 2 * 512;
            uint2 u = *(const uint2 *) (q + 8 * second), v = *(const uint2 *) (q + 8 - 8 * second);
            a.w[c][0] = ptx_permute(u.x, v.x, low), a.w[c][1] = ptx_permute(u.y, v.y, low);
            a.w[c][2] = ptx_permute(u.x, v.x, high), a.w[c][3] = ptx_permute(u.y, v.y, high);
        }
        const unsigned char *s = side + block(2 * second) / 2 * 64 + row * 2; /* scales of chunk `second` */
        a.scale = fp4_no_480(ptx_permute(*(const uint16_t *) s, *(const uint16_t *) (s + 32), 0x5140));
    } else {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t first = 2 * (uint32_t) c;
            uint2 u = *(const uint2 *) (codes + block(first) * 256 + lane * 8);
            uint2 v = *(const uint2 *) (codes + block(first + 1) * 256 + lane * 8);
            a.w[c][0] = u.x, a.w[c][1] = u.y, a.w[c][2] = v.x, a.w[c][3] = v.y;
        }
        auto scale = [&](uint32_t i) { return fp4_no_nan(side[block(i) * 16 + row]); };
        if (fp4_way<WAY>::A8) a.scale = scale(0) | scale(1) << 8 | scale(2) << 16 | scale(3) << 24;
        else a.scale = scale(2 * second) | scale(2 * second + 1) << 8;
    }
}

/* b = the lane's words of row lane / 4 of a group of x, for a step. group: the group's 8 pieces of that step. */
template <int WAY> PI_FN void fp4_load_b(const unsigned char *group, uint32_t lane, fp4_b<WAY> &b)
{
    const uint4 *p = (const uint4 *) (group + fp4_row_at<WAY>(lane / 4)) + lane % 4;
    b.w[0] = p[0];
    if constexpr (fp4_way<WAY>::A8) b.w[1] = p[4];
}

/* Loads the lane's scales of N groups of x, 4 or 1, for a step. stride: bytes between the groups. */
template <int WAY, int N> PI_FN fp4_scales fp4_load_scales(const unsigned char *groups, uint32_t lane, uint32_t stride)
{
    const unsigned char *p = groups + (N == 4 ? lane % 4 * stride : 0) + fp4_scale_at<WAY>(lane / 4);
    if (fp4_way<WAY>::A8) return {{*(const uint32_t *) p, 0}};
    uint2 u = *(const uint2 *) p;
    return {{u.x, u.y}};
}

/* Expands four e2m1 codes to the four bytes of a word, as the MXFP8 instruction reads e2m1: a code in bits 5..2 of its
 * byte. which: 0x1100 = the codes in the low 16 bits of `codes`, 0x3322 = in the high 16 bits. */
PI_FN uint32_t fp4_bytes(uint32_t codes, uint32_t which)
{
    uint32_t w = ptx_permute(codes, 0, which);
    return ptx_and_or(w >> 2, 0x3c003c00, w << 2 & 0x003c003c);
}

/* acc += chunk CHUNK (0, 1) of a step: a tile of W times one group of x. K: index of the thread that supplies the
 * group's scales, 0 .. 3 for the group's index among four loaded groups. */
template <int WAY, int CHUNK, int K>
PI_FN void fp4_multiply(const fp4_a<WAY> &a, const fp4_b<WAY> &b, const fp4_scales &s, float (&acc)[4])
{
    if constexpr (WAY == FP4_NV) {
        const uint32_t w[2] = {CHUNK ? b.w[0].z : b.w[0].x, CHUNK ? b.w[0].w : b.w[0].y};
        ptx_mma_mxf4nvf4<0, CHUNK, 0, K>(acc, a.w[CHUNK], w, a.scale, s.w[CHUNK]);
    } else if constexpr (WAY == FP4_MX) {
        const uint32_t w[2] = {CHUNK ? b.w[0].z : b.w[0].x, CHUNK ? b.w[0].w : b.w[0].y};
        ptx_mma_mxf4<0, CHUNK, 0, K>(acc, a.w[CHUNK], w, a.scale, s.w[CHUNK]);
    } else {
        const uint32_t *u = a.w[CHUNK];
        const uint4 x = b.w[CHUNK];
        const uint32_t first[4] = {fp4_bytes(u[0], 0x1100), fp4_bytes(u[1], 0x1100), fp4_bytes(u[0], 0x3322),
                                   fp4_bytes(u[1], 0x3322)};
        const uint32_t second[4] = {fp4_bytes(u[2], 0x1100), fp4_bytes(u[3], 0x1100), fp4_bytes(u[2], 0x3322),
                                    fp4_bytes(u[3], 0x3322)};
        ptx_mma_mxf8_e2m1_e4m3<2 * CHUNK, 0, 2 * CHUNK, K>(acc, first, {x.x, x.y}, a.scale, s.w[0]);
        ptx_mma_mxf8_e2m1_e4m3<2 * CHUNK + 1, 0, 2 * CHUNK + 1, K>(acc, second, {x.z, x.w}, a.scale, s.w[0]);
    }
}

/* acc[first + g] += a step (both chunks) of a tile of W times group g of x, g < N, N 4 or 1. */
template <int WAY, int N, int RG>
PI_FN void fp4_multiply_tile(const fp4_a<WAY> &a, const fp4_b<WAY> (&b)[N], const fp4_scales &s, int first,
                             float (&acc)[RG][4])
{
    fp4_multiply<WAY, 0, 0>(a, b[0], s, acc[first]);
    if constexpr (N == 4) {
        fp4_multiply<WAY, 0, 1>(a, b[1], s, acc[first + 1]);
        fp4_multiply<WAY, 0, 2>(a, b[2], s, acc[first + 2]);
        fp4_multiply<WAY, 0, 3>(a, b[3], s, acc[first + 3]);
    }
    fp4_multiply<WAY, 1, 0>(a, b[0], s, acc[first]);
    if constexpr (N == 4) {
        fp4_multiply<WAY, 1, 1>(a, b[1], s, acc[first + 1]);
        fp4_multiply<WAY, 1, 2>(a, b[2], s, acc[first + 2]);
        fp4_multiply<WAY, 1, 3>(a, b[3], s, acc[first + 3]);
    }
}

/* ------------------------------------------------------------------------------------------------------- the ring */

/* Ring of shared memory stages between the producer warp, which fills them by bulk copies, and the warps that multiply.
 * A stage has two mbarriers. full: counts the bytes copied into it. empty: counts the warps that have finished reading
 * it. No block-wide barrier is needed. Shared: mbarriers [HEAD bytes], stages [STAGES][size]. Each thread has its own
 * copy of this struct. */
template <int STAGES> struct fp4_ring {
    static constexpr uint32_t HEAD = 128;
    static_assert(STAGES * 16 <= (int) HEAD, "mbarriers before the stages");
    unsigned char *raw;
    uint32_t size;            /* bytes of a stage */
    int32_t now = 0;          /* current stage */
    uint32_t round = 0;       /* number of completed passes over all stages; its parity is the mbarriers' phase */

    __device__ __forceinline__ fp4_ring(unsigned char *raw_, uint32_t size_) : raw(raw_), size(size_) {}
    static constexpr size_t bytes(size_t stage) { return HEAD + STAGES * stage; }
    __device__ __forceinline__ uint32_t full() const { return ptx_shared(raw) + 8 * (uint32_t) now; }
    __device__ __forceinline__ uint32_t empty() const { return full() + 8 * STAGES; }
    __device__ __forceinline__ uint32_t address() const { return ptx_shared(raw) + HEAD + (uint32_t) now * size; }
    __device__ __forceinline__ const unsigned char *stage() const { return raw + HEAD + (uint32_t) now * size; }
    /* Initializes the mbarriers. Called once, by all threads of the block. */
    __device__ __forceinline__ void open() const
    {
        if (threadIdx.x == 0) {
            for (uint32_t i = 0; i < STAGES; i++) {
                ptx_mbarrier_init(ptx_shared(raw) + 8 * i, 1);
                ptx_mbarrier_init(ptx_shared(raw) + 8 * (STAGES + i), FP4_WARPS);
            }
            ptx_fence_async();
        }
        __syncthreads();
    }
    __device__ __forceinline__ void next()
    {
        if (++now == STAGES) now = 0, round++;
    }
    /* wait_full: waits until the current stage is filled. wait_empty: waits until all warps have released it; returns
     * immediately in the first round, when all stages are empty. */
    __device__ __forceinline__ void wait_full() const { ptx_mbarrier_wait(full(), round & 1); }
    __device__ __forceinline__ void wait_empty() const { ptx_mbarrier_wait(empty(), ~round & 1); }
    /* Called by all lanes of a warp that has finished reading the current stage. */
    __device__ __forceinline__ void release() const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(empty());
    }
};

/* Work of a block of threads: TILES tiles of 16 rows of W times GROUPS groups of 8 rows of x. WT warps share the tiles,
 * WG warps the groups; a warp has RT tiles and RG groups. A stage holds one step:
 *
 *     [tiles]{ [4 blocks] codes, [4 blocks] scales } [groups][8 rows] pieces */
template <int WAY_, int TILES_, int GROUPS_, int WT> struct fp4_shape {
    static constexpr int WAY = WAY_;
    using W = fp4_way<WAY>;
    static constexpr int TILES = TILES_, GROUPS = GROUPS_, WG = FP4_WARPS / WT, RT = TILES / WT, RG = GROUPS / WG;
    static constexpr uint32_t X_AT = TILES * W::TILE, STAGE = X_AT + GROUPS * W::GROUP_STRIDE;
    /* bytes copied into a stage, without the gaps between groups */
    static constexpr uint32_t BYTES = TILES * W::TILE + GROUPS * W::GROUP;
    static constexpr int FIT = (int) (((99 << 10) - 128) / STAGE), STAGES = FIT < 8 ? FIT : 8;
    static_assert(STAGES >= 2 && RT * WT == TILES && RG * WG == GROUPS && (RG % 4 == 0 || RG == 1), "warps divide the "
                  "tiles and column groups evenly");
    using ring = fp4_ring<STAGES>;
    static constexpr size_t SHARED = ring::bytes(STAGE);
    static constexpr int N = RG < 4 ? RG : 4, PARTS = RG / N; /* groups per load of B; loads of B per step, 1 or 2 */

    /* The warp's first tile and first group in the block. */
    __device__ __forceinline__ static int tile() { return (int) threadIdx.x / 32 / WG * RT; }
    __device__ __forceinline__ static int group() { return (int) threadIdx.x / 32 % WG * RG; }
};

/* Source of W for the producer warp: copies the block's tiles into a stage. Lane i < TILES copies the codes of tile i,
 * lane TILES + i its scales. The constructor gets the block's first tile, and the matrix's last tile, which replaces
 * tiles past the end. */
template <class S> struct fp4_source {
    using W = typename S::W;
    const uint8_t *from; /* source of the lane's tile: codes or scales of chunk 0 */
    uint32_t to, block;  /* byte offset in a stage; bytes of a block, 0 = the lane copies nothing */

    __device__ __forceinline__ fp4_source(const pi__cuda_shape &s, const uint8_t *data, int32_t tile, int32_t last)
    {
        uint32_t lane = threadIdx.x % 32, i = lane % S::TILES;
        from = data + (size_t) min(tile + (int32_t) i, last) * s.tile_bytes + (lane < S::TILES ? 0 : s.side_at);
        to = i * W::TILE + (lane < S::TILES ? 0 : FP4_CODES);
        block = lane < S::TILES ? 256 : lane < 2 * S::TILES ? W::SIDE : 0;
    }
    /* Copies n (1 to 4) blocks from chunk c on to the stage at shared address `stage`; the mbarrier at `full` counts
     * the bytes. Missing blocks repeat the last one (NVFP4: the last two). */
    __device__ __forceinline__ void fill(uint32_t stage, uint32_t full, int32_t c, int32_t n) const
    {
        if (!block) return;
        const uint8_t *p = from + (size_t) c * 2 * block;
        ptx_bulk_copy(stage + to, p, (uint32_t) n * block, full);
        for (int32_t i = n; i < 4; i++)
            ptx_bulk_copy(stage + to + (uint32_t) i * block, p + (uint32_t) (W::NV ? i % 2 : n - 1) * block, block,
                          full);
    }
};

/* Producer warp: fills stages with the steps of slices k0 .. k1 - 1. n_block: blocks of a row of W. x: source of the
 * rows, with fill(stage, full, step), which copies the block's groups for a step. */
template <class S, class RING, class X>
PI_FN void fp4_produce(RING &ring, const fp4_source<S> &w, const X &x, int32_t n_block, int k0, int k1)
{
    int32_t n = (n_block + 1) / 2, step = fp4_steps(n, k0);
    for (int k = k0; k < k1; k++) {
        int32_t end = n * (k + 1) / SLICES;
        for (int32_t c = n * k / SLICES; c < end; c += 2, step++, ring.next()) {
            ring.wait_empty();
            if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive_expect(ring.full(), S::BYTES);
            w.fill(ring.address(), ring.full(), c, min(min(4, 2 * (end - c)), n_block - 2 * c));
            x.fill(ring.address(), ring.full(), step);
        }
    }
}

/* Operand words of a multiplying warp, loaded from a stage of the ring. */
template <int WAY, class S> struct fp4_hand {
    using W = fp4_way<WAY>;
    fp4_a<WAY> a[S::RT] = {};
    /* Words of B, and scales, of two sets of N groups. One set is multiplied while the other one is loaded. */
    fp4_b<WAY> b[2][S::N] = {};
    fp4_scales s[2] = {};

    /* load_a: loads tile r of the warp's RT tiles. load_b: loads groups part * N .. of the warp's groups into set
     * `to`. */
    __device__ __forceinline__ void load_a(const unsigned char *stage, int r)
    {
        const unsigned char *p = stage + (uint32_t) (S::tile() + r) * W::TILE;
        fp4_load_a<WAY>(p, p + FP4_CODES, threadIdx.x % 32, a[r]);
    }
    __device__ __forceinline__ void load_b(const unsigned char *stage, int part, int to)
    {
        const unsigned char *p = stage + S::X_AT + (uint32_t) (S::group() + part * S::N) * W::GROUP_STRIDE;
#pragma unroll
        for (int g = 0; g < S::N; g++) fp4_load_b<WAY>(p + g * W::GROUP_STRIDE, threadIdx.x % 32, b[to][g]);
        s[to] = fp4_load_scales<WAY, S::N>(p, threadIdx.x % 32, W::GROUP_STRIDE);
    }
};

/* Multiplying warp: computes slices k0 .. k1 - 1, and calls end(slice, acc) with the sums of each: acc[tile][group][4]
 * in the mma accumulator layout. Words of B are loaded from shared memory while the previous groups are multiplied;
 * words of A when the step no longer needs the old ones. */
template <int WAY, class S, class RING, class END>
PI_FN void fp4_consume(RING &ring, int32_t n_block, int k0, int k1, const END &end)
{
    static_assert(S::PARTS <= 2, "at most two register sets");
    constexpr int RT = S::RT, RG = S::RG, LAST = S::PARTS - 1;
    const int32_t n = (n_block + 1) / 2;
    int32_t left = fp4_steps(n, k1) - fp4_steps(n, k0);
    fp4_hand<WAY, S> w;
    if (left) {
        ring.wait_full();
        w.load_b(ring.stage(), 0, 0);
#pragma unroll
        for (int r = 0; r < RT; r++) w.load_a(ring.stage(), r);
    }
    for (int k = k0; k < k1; k++) {
        float acc[RT][RG][4] = {};
#pragma unroll 1
        for (int32_t i = (n * (k + 1) / SLICES - n * k / SLICES + 1) / 2; i; i--) {
            /* Load the second set of groups, if there is one; the stage is then completely read. */
            if (LAST) w.load_b(ring.stage(), 1, 1);
            ring.release();
            ring.next();
#pragma unroll
            for (int r = 0; r < RT && LAST; r++) fp4_multiply_tile<WAY, S::N, RG>(w.a[r], w.b[0], w.s[0], 0, acc[r]);
            /* Load the first groups of the next step during the last products of this one. */
            const bool more = --left > 0;
            if (more) {
                ring.wait_full();
                w.load_b(ring.stage(), 0, 1 - LAST);
            }
#pragma unroll
            for (int r = 0; r < RT; r++) {
                fp4_multiply_tile<WAY, S::N, RG>(w.a[r], w.b[LAST], w.s[LAST], LAST * S::N, acc[r]);
                if (more) w.load_a(ring.stage(), r);
            }
#pragma unroll
            for (int g = 0; g < S::N && !LAST; g++) w.b[0][g] = w.b[1][g];
            if (!LAST) w.s[0] = w.s[1];
        }
        end(k, acc);
    }
}

/* total += acc. */
template <int RT, int RG> PI_FN void fp4_add(float (&total)[RT][RG][4], const float (&acc)[RT][RG][4])
{
#pragma unroll
    for (int i = 0; i < RT * RG * 4; i++) total[i / 4 / RG][i / 4 % RG][i % 4] += acc[i / 4 / RG][i / 4 % RG][i % 4];
}

#endif
