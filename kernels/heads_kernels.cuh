/* Per-head matrices times few rows of x (op head_linear, defined in ops.h), for the types of w16.cuh. For head h and
 * row r: y[r][h] = W[h] x[r][h], then n_tail values copied from x.
 *
 *     heads_w16      products as for experts in moe_w16_kernels.cuh, with all rows for each head. Nothing is listed or
 *                    sorted, and results go directly to their rows. It may have an epilogue (tail.cuh)
 *     heads_prepare  a launch before heads_w16, if rows are long or many. A block per row and head packs the head's
 *                    part of the row (w16.cuh) as row head * n_rows + row, and copies the values after the head's
 *                    results. For queries of latent attention it applies op mla_qkv to these values, and to the
 *                    token's row
 *
 * Without heads_prepare, heads_w16 also does this work (OWN). A block packs its head's parts of the rows in shared
 * memory while its first weights load: one warp per row, or several if rows are few. The block with a head's first rows
 * of W also computes the values that follow the head's results. Some blocks process the tokens' cache rows:
 *
 *     blocks    head 0: rows 0..63 of W | 64..127 .. | head 1: 0..63 | .. | rows of the cache, a warp each
 *     shared    sums of slices, stages of W, rows: [blocks of 32 columns][rows] 64 bytes, factors
 *
 * All blocks that share a head read its rows, from L2: 64 kB for 32 rows of 512 values. This takes less time than a
 * launch.
 *
 * More rows use the experts' own kernels, with bitwise identical results; head_linear_kernels.cuh lists their tiles. */
#ifndef PI_HEADS_KERNELS_CUH
#define PI_HEADS_KERNELS_CUH

#include "backend/cuda/kernels_heads.h"
#include "mla.cuh"
#include "moe_w16.cuh"
#include "tail.cuh"

namespace heads {

/* Limits of OWN: bytes of a head's rows in shared memory; values after a head's results (n_tail). */
enum { OWN_BYTES = PI__K_HEADS_OWN_BYTES, OWN_TAIL = PI__K_HEADS_OWN_TAIL };

/* Bytes of a head's packed rows in shared memory, without their factors: 2 per value. */
__host__ __device__ static inline size_t own_bytes(int32_t n_rows, int64_t n_in)
{
    return (size_t) n_rows * (size_t) n_in * 2;
}

/* Arguments of heads_w16(). The lists of tiles in w16_experts are unused. */
template <bool OWN_> struct w16_heads : w16_experts {
    static constexpr bool OWN = OWN_;
    int32_t n_rows, n_head;
    uint32_t row_blocks;  /* blocks of threads for the tokens' cache rows */
    pi__k_heads h;        /* arguments of the op; only read if OWN */
    pi__k_tail tail;
};

/* Returns item i: a head times one part of its rows of W. A head has one tile, of all rows of x. */
template <bool OWN> PI_FN w16_item item_of(const w16_heads<OWN> &p, uint32_t i)
{
    const int32_t head = (int32_t) (i / p.n_item);
    return {{head, head * p.n_rows, p.n_rows}, (int32_t) (i % p.n_item)};
}

/* Values 2 i and 2 i + 1 after a head's part of row r. load_behind loads them; put_behind writes them to y, unchanged
 * or, if a.prep.n_tokens is not 0, as queries that are scaled and rotated by RoPE (mla.cuh). x: the values after the
 * head's part. */
struct behind {
    float u, v, c, s; /* the two values; cosine and sine of their RoPE angle */
};
PI_FN behind load_behind(const pi__k_heads &a, int64_t r, const float *x, int32_t i)
{
    const float *table = a.prep.a.rope + r * a.n_tail;
    behind b = {x[2 * i], 0, 1, 0};
    if (2 * i + 1 < a.n_tail) b.v = x[2 * i + 1];
    if (a.prep.n_tokens) b.c = table[i], b.s = table[a.n_tail / 2 + i];
    return b;
}
PI_FN void put_behind(const pi__k_heads &a, behind b, float *y, int32_t i)
{
    if (a.prep.n_tokens) {
        b.u *= a.prep.a.q_scale, b.v *= a.prep.a.q_scale;
        rotate_pair(b.u, b.v, b.c, b.s);
    }
    y[2 * i] = b.u;
    if (2 * i + 1 < a.n_tail) y[2 * i + 1] = b.v;
}

/* Packs a head's part of a row for heads_w16() to words and factor (w16.cuh), and writes the values after the head's
 * result to y. Grid: x = row; y = head; y == n_head: processes the token's cache row (make_row()). */
__global__ void __launch_bounds__(THREADS)
    heads_prepare(PI_CONSTANT pi__k_heads a, bool bf16, uint16_t *words, float *factor)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    const int64_t r = blockIdx.x, h = blockIdx.y, n_in = a.w.n_in;
    const float *x = a.x + r * a.ldx + h * a.x_step;
    if (h == a.n_head) {
        if (threadIdx.x < 32) make_row(a.prep, (int32_t) r, a.n_head, (float *) raw, (int) threadIdx.x);
        return;
    }
    put_halves({x, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, h * a.n_rows + r, n_in, true, bf16, {0, 1}, words,
               factor, (float *) raw);
    float *y = a.y + r * a.ldy + h * a.y_step + a.w.n_out;
    for (int32_t i = (int32_t) threadIdx.x; 2 * i < a.n_tail; i += (int32_t) blockDim.x)
        put_behind(a, load_behind(a, r, x + n_in, i), y, i);
}

/* ------------------------------------------------------------------------------------------- packing in the block */

/* Returns the largest magnitude in words first, first + step, .. of a row x of n values, over the warp; infinity if one
 * is infinite or NaN. A word has values i and i + 16 of a block of 32. n is a multiple of 32. */
PI_FN float own_max(const float *x, int32_t first, int32_t step, int32_t n)
{
    float most = 0;
#pragma unroll 4
    for (int32_t i = first; i < n / 2; i += step) {
        const float *v = x + i / 16 * 32 + i % 16;
        most = fmaxf(most, fmaxf(abs_or_inf(v[0]), abs_or_inf(v[16])));
    }
    return warp_max(most);
}

/* Number of warps that share a row: more than one if there are up to 4 rows. */
PI_FN int32_t warps_of_row(int32_t n_rows) { return n_rows > 4 ? 1 : n_rows > 2 ? 2 : n_rows > 1 ? 4 : 8; }
static_assert(THREADS / 32 == 8, "warps_of_row() assumes 8 warps");

/* Packs head h's parts of all rows into shared memory: words [blocks of 32 columns][rows] 64 bytes, and a factor per
 * row. ends: also writes the values after the head's results to y. most: one float per warp. Called by all threads. */
template <bool BF16>
PI_FN void own_rows(const pi__k_heads &a, int32_t h, bool ends, unsigned char *words, float *factor, float *most)
{
    const int32_t lane = (int32_t) threadIdx.x % 32, warp = (int32_t) threadIdx.x / 32, n = (int32_t) a.w.n_in;
    const int32_t share = warps_of_row(a.n_rows), part = warp % share, first = lane + 32 * part, step = 32 * share;
#pragma unroll 1
    for (int32_t r = warp / share; r < a.n_rows || share > 1; r += THREADS / 32) {
        const bool there = r < a.n_rows;
        const float *x = a.x + (there ? r : 0) * a.ldx + h * a.x_step;
        const bool has = there && part == 0 && ends && 2 * lane < a.n_tail;
        /* Load the values after the results early; they are written below. */
        behind b = {};
        if (has) b = load_behind(a, r, x + n, lane);
        /* Largest magnitude of the row; warps that share it combine their results. */
        float largest = own_max(x, first, step, n), by;
        if (share > 1) {
            if (lane == 0) most[warp] = largest;
            __syncthreads();
            for (int32_t k = 0; k < share; k++) largest = fmaxf(largest, most[warp - part + k]);
        }
        if (!there) break;
        /* Scale the row and store it as 16-bit floats. */
        const float f = mid_factor(largest, by);
        if (lane == 0 && part == 0) factor[r] = f;
#pragma unroll 2
        for (int32_t i = first; i < n / 2; i += step) {
            const int32_t block = i / 16, c = i % 16;
            const float *v = x + block * 32 + c;
            uint32_t *to = (uint32_t *) (words + (block * a.n_rows + r / 8 * 8) * 64) +
                           w16_word_at((uint32_t) r % 8, (uint32_t) c);
            *to = mid_word(v[0], v[16], by, BF16);
        }
        if (has) put_behind(a, b, a.y + r * a.ldy + h * a.y_step + a.w.n_out, lane);
        if (share > 1) break;
    }
}

/* Processes the tokens' cache rows (make_row()), one warp each. block: index of this block among the row_blocks. rows:
 * shared memory, a.prep.a.dim floats per warp, rounded up to a multiple of 32. */
PI_CALL void own_tokens(const pi__k_heads &a, uint32_t block, float *rows)
{
    const int32_t warp = (int32_t) threadIdx.x / 32, r = (int32_t) block * (THREADS / 32) + warp;
    if (r < a.n_rows)
        make_row(a.prep, r, a.n_head, rows + warp * ((a.prep.a.dim + 31) / 32 * 32), (int) threadIdx.x % 32);
}

/* ------------------------------------------------------------------------------------------------------- products */

/* Multiplies a sum by the factors of its row and of the matrix, by `by`, and by the 2^DOWN of w16.cuh. */
template <int TYPE> struct head_times {
    const float *factor; /* [rows] factors of the packed rows */
    float w, by;
    __device__ __forceinline__ head_times(const float *factor_, const float *scale, float by_)
        : factor(factor_), w(scale ? *scale : 1.0f), by(by_)
    {
        w *= __uint_as_float((uint32_t) (127 + w16<TYPE>::DOWN) << 23);
    }
    __device__ __forceinline__ float operator()(int r, float sum) const { return sum * factor[r] * w * by; }
};

/* Computes the items of a block. An item is a head times FEW_TILES tiles of 16 rows of its W; the items are evenly
 * divided over `blocks` blocks. raw: shared memory. */
template <int TYPE, int NT, bool OWN>
PI_FN void multiply_heads(const w16_heads<OWN> &p, uint32_t blocks, unsigned char *raw)
{
    using S = expert_stream<TYPE, NT, false, w16_heads<OWN>>;
    const uint32_t n = p.n_item * (uint32_t) p.n_head, first = part_of(n, blockIdx.x, blocks),
                   end = part_of(n, blockIdx.x + 1, blocks);
    unsigned char *words = raw + S::BYTES; /* used if OWN */
    float *part = (float *) raw, *factor = (float *) (words + own_bytes(p.n_rows, p.a.w.n_in));
    int32_t head = -1;
    const auto begin = [&](const w16_item &i) {
        if constexpr (OWN) {
            if (head < 0) ptx_wait_grids(); /* weights load while the previous kernel still computes x */
            if (i.t.expert == head) return;
            if (head >= 0) __syncthreads(); /* all threads are done with the old factors */
            head = i.t.expert;
            own_rows<w16<TYPE>::BF16>(p.h, head, i.part == 0, words, factor, part);
            __syncthreads();
        }
    };
    few_items<S, TYPE, NT, false>(
        p, first, end, raw + S::SUMS, begin, [&](const w16_item &i, const float(&acc)[FEW_TILES][NT][4]) {
            const float *scale = p.a.w.scale ? p.a.w.scale + i.t.expert : nullptr;
            const head_times<TYPE> times(OWN ? factor : p.factor + i.t.first, scale, p.by);
            float *y = results_of(p, i.t, false);
            put_tiles<NT, FEW_TILES, S::ONCE>(acc, part, i.t.n, [&](int r, int row, int o, float sum) {
                const int32_t at = (i.part * FEW_TILES + r) * 16 + o;
                if (at < p.a.w.n_out) y[row * p.a.ldy + at] = times(row, sum);
            });
        });
}

/* Computes the products of all heads. Grid: x = blocks for products, then p.row_blocks blocks for the tokens' cache
 * rows. Block: 8 warps, one per slice. */
template <int TYPE, int NT, bool OWN>
__global__ void __launch_bounds__(THREADS, NT == 1 ? 2 : 1) heads_w16(PI_CONSTANT w16_heads<OWN> p)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    const uint32_t blocks = gridDim.x - p.row_blocks;
    const bool multiplies = blockIdx.x < blocks;
    if (!OWN || !multiplies) ptx_wait_grids();
    if (multiplies) multiply_heads<TYPE, NT, OWN>(p, blocks, raw);
    else own_tokens(p.h, blockIdx.x - blocks, (float *) raw);
    if (p.tail.arrived) run_tail(p.tail, raw);
}

} /* namespace heads */

#endif
