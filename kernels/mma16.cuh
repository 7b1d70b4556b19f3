/* Shared by products of F16 or BF16 matrices with float x on 16-bit tensor cores (mma16_kernels.cuh,
 * moe_mma16_kernels.cuh). x is packed as a sum of 16-bit terms: 2 for F16, 3 for BF16 matrices. This file has the
 * products of a block of 32 columns, of a warp's slice (few rows) and of a tile in a pipeline (many rows).
 *
 *     packed x: [groups of 8 rows][blocks of 32 columns]{ [terms][32 lanes] four words of B, F16: [8 rows] scale }
 *
 * Lane 4 g + t holds columns 8 t .. 8 t + 7 of three rows: rows g and g + 8 of W as in the file, and row g of x. These
 * columns are not the ones that the instruction assigns to the lane. Both operands permute them equally, so W needs no
 * packing.
 *
 * ORDER. Each block has its own sum, smallest term first, which is added to its slice with float rounding. Slices are
 * added as in linear.cuh. Tensor cores truncate their sums instead of rounding; a separate sum per block keeps these
 * sums short. */
#ifndef PI_MMA16_CUH
#define PI_MMA16_CUH

#include "linear.cuh"
#include "pipe.cuh"

template <int TYPE> struct mma16 {
    static constexpr int TERMS = TYPE == PI__BF16 ? 3 : 2;
    static constexpr int BYTES = TERMS * 512 + (TYPE == PI__F16 ? 32 : 0); /* bytes of 8 packed rows of 32 columns */
};
enum { MMA16_ROWS = 128, MMA16_GROUPS = 8, MMA16_STAGES = 4, MMA16_W = MMA16_ROWS * 64 /* bytes of W in a stage */ };

/* Returns the bytes of n_rows packed rows of n_in columns. */
static inline size_t mma16_bytes(int32_t type, int64_t n_rows, int64_t n_in)
{
    size_t block = type == PI__BF16 ? mma16<PI__BF16>::BYTES : mma16<PI__F16>::BYTES;
    return (size_t) ((n_rows + 7) / 8) * (size_t) ((n_in + 31) / 32) * block;
}

/* Loads a block of 8 packed rows of 32 columns: the lane's words b[term], and the scales of the two rows of x that the
 * lane's accumulators belong to (BF16: 1). */
template <int TYPE> PI_FN void load_terms(const uint8_t *block, uint4 (&b)[mma16<TYPE>::TERMS], float (&scale)[2])
{
    for (int k = 0; k < mma16<TYPE>::TERMS; k++) b[k] = ((const uint4 *) block)[k * 32 + (int) threadIdx.x % 32];
    for (int i = 0; i < 2; i++)
        scale[i] = TYPE == PI__F16 ? ((const float *) (block + 1024))[threadIdx.x % 4 * 2 + i] : 1.0f;
}

/* Adds the products of a block of 32 columns to acc, the lane's accumulators of 16 rows of W times 8 rows of x. w0, w1:
 * the lane's words of rows g and g + 8 of W. b, scale: from load_terms(). */
template <int TYPE>
PI_FN void add_mma16(uint4 w0, uint4 w1, const uint4 (&b)[mma16<TYPE>::TERMS], const float (&scale)[2], float (&acc)[4])
{
    float d[4] = {};
#pragma unroll
    /* smallest term first */
    for (int k = mma16<TYPE>::TERMS - 1; k >= 0; k--) {
        if (TYPE == PI__BF16) {
            ptx_mma_bf16(d, {w0.x, w1.x, w0.y, w1.y}, {b[k].x, b[k].y});
            ptx_mma_bf16(d, {w0.z, w1.z, w0.w, w1.w}, {b[k].z, b[k].w});
        } else {
            ptx_mma_f16(d, {w0.x, w1.x, w0.y, w1.y}, {b[k].x, b[k].y});
            ptx_mma_f16(d, {w0.z, w1.z, w0.w, w1.w}, {b[k].z, b[k].w});
        }
    }
    for (int i = 0; i < 4; i++) acc[i] = TYPE == PI__F16 ? fmaf(d[i], scale[i % 2], acc[i]) : acc[i] + d[i];
}

/* Multiplies the warp's slice of the first min(16, n_out) rows at w by n_group groups of 8 rows of x (at most NT). The
 * slice number is the warp number; rows of W are `pitch` bytes apart. x.load(g, c, words, scales) does the work of
 * load_terms() for group g and block c. W is prefetched to registers AHEAD blocks early. wait() is called after the
 * first loads of W and before x is read. */
template <int TYPE, int NT, class X, class F>
PI_FN void mma16_add_slice(const uint8_t *w, size_t pitch, int64_t n_in, int64_t n_out, const X &x, int n_group,
                           const F &wait, float (&acc)[NT][4])
{
    enum { AHEAD = 2 };
    int lane = (int) threadIdx.x % 32, slice = (int) threadIdx.x / 32, n = (int) ((n_in + 31) / 32);
    w += (size_t) (lane / 4) * pitch + lane % 4 * 16;
    const int first = n * slice / SLICES, end = n * (slice + 1) / SLICES;
    const uint8_t *next_rows = w + 8 * pitch;
    uint4 ahead[AHEAD][2];
    auto fetch = [&](int c, uint4 (&to)[2]) {
        const bool inside = c < end && c * 32 + lane % 4 * 8 < n_in;
        to[0] = to[1] = {0, 0, 0, 0};
        if (inside && lane / 4 < n_out) to[0] = *(const uint4 *) (w + (size_t) (uint32_t) c * 64);
        if (inside && lane / 4 + 8 < n_out) to[1] = *(const uint4 *) (next_rows + (size_t) (uint32_t) c * 64);
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++) fetch(first + i, ahead[i]);
    wait();
#pragma unroll 1
    for (int c0 = first; c0 < end; c0 += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int c = c0 + i;
            if (c >= end) break;
            const uint4 w0 = ahead[i][0], w1 = ahead[i][1];
            fetch(c + AHEAD, ahead[i]);
#pragma unroll
            for (int g = 0; g < NT; g++) {
                if (g >= n_group) break;
                uint4 b[mma16<TYPE>::TERMS];
                float scale[2];
                x.load(g, c, b, scale);
                add_mma16<TYPE>(w0, w1, b, scale, acc[g]);
            }
        }
    }
}

using mma16_pipe = pipe<MMA16_STAGES, PIPE_SMALL>;
template <int TYPE> constexpr uint32_t mma16_stage = MMA16_W + MMA16_GROUPS * mma16<TYPE>::BYTES;

/* Starts the copies of block c (32 columns) to stage i: the first 128 of n_out rows of W, 64 bytes per row, and 8
 * groups of x. Rows and columns beyond the end of W become zeros. x.fill(q, i, to, c) copies the calling warp's
 * group. */
template <class X>
PI_FN void mma16_fill(const uint8_t *w, size_t pitch, int64_t n_in, int64_t n_out, const X &x, const mma16_pipe &q,
                      int32_t i, int32_t c, uint32_t group_bytes)
{
    for (uint32_t k = threadIdx.x; k < MMA16_ROWS * 4; k += THREADS) {
        int64_t at = (int64_t) c * 64 + k % 4 * 16;
        bool there = k / 4 < n_out && at < 2 * n_in;
        ptx_cp_async16(q.address(i) + k * 16, w + (there ? (size_t) (k / 4) * pitch + (size_t) at : 0), there ? 16 : 0);
    }
    x.fill(q, i, MMA16_W + threadIdx.x / 32 * group_bytes, c);
}

/* Computes y[row * ldy + o] = result(row, sum), by a thread block. Bounds: the first min(n_row, 64) rows of x, the
 * first min(n_out, 128) rows o at w. Each of the 8 warps computes 32 rows of W times 32 rows of x. raw: shared memory
 * of the pipe. */
template <int TYPE, class X, class F>
PI_FN void mma16_tile(const uint8_t *w, size_t pitch, int64_t n_in, int64_t n_out, const X &x, int64_t n_row,
                      unsigned char *raw, const F &result, float *y, int64_t ldy)
{
    constexpr int BYTES = mma16<TYPE>::BYTES;
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, first_w = warp / 2 * 32, first_g = warp % 2 * 4;
    int32_t n = (int32_t) ((n_in + 31) / 32), end = slice_end(n, 0);
    int n_group = (int) (min((int64_t) MMA16_GROUPS * 8, n_row) + 7) / 8 - first_g;
    float acc[2][4][4] = {}, total[2][4][4] = {}; /* [2 tiles of 16 rows of W][4 groups of 8 rows of x] */
    mma16_pipe q(raw, mma16_stage<TYPE>);
    auto fill = [&](int32_t i, int32_t c) { mma16_fill(w, pitch, n_in, n_out, x, q, i, c, BYTES); };
    q.run(n, 1, fill, [&](const unsigned char *stage, int32_t c) {
        /* 8 rows of 64 bytes are 32 uint4 */
        const uint4 *rows = (const uint4 *) (stage + (first_w + lane / 4) * 64) + lane % 4;
        uint4 a[4] = {rows[0], rows[32], rows[64], rows[96]}, b[mma16<TYPE>::TERMS];
        float scale[2];
#pragma unroll
        for (int g = 0; g < 4; g++) {
            if (g >= n_group) break;
            load_terms<TYPE>(stage + MMA16_W + (first_g + g) * BYTES, b, scale);
            add_mma16<TYPE>(a[0], a[1], b, scale, acc[0][g]);
            add_mma16<TYPE>(a[2], a[3], b, scale, acc[1][g]);
        }
        /* End of a slice: add it to the total. */
        if (c + 1 < end) return;
        end_slice(acc[0], total[0]);
        end_slice(acc[1], total[1]);
        end = slice_end(n, end);
    });
    auto shifted = [&](int row, float sum) { return result(first_g * 8 + row, sum); };
#pragma unroll
    for (int h = 0; h < 2; h++) {
        put_totals(total[h], shifted, y + first_g * 8 * ldy + first_w + 16 * h, ldy, n_row - first_g * 8,
                   n_out - first_w - 16 * h);
    }
}

#endif
