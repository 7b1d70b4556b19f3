/* y = W x with integer tensor cores, for 1 to 32 rows of x. Larger row counts use gemm_kernels.cuh, with bitwise
 * identical results. linear.cuh describes the packing of x and the order of sums. Kernels: prepare packs x, linear
 * multiplies packed matrices, linear_floats F32, F16 and BF16 matrices, embed looks up rows of the embedding matrix.
 *
 * F32, F16 and BF16 matrices keep the file's layout. linear_floats has a warp per row of W and uses float
 * multiply-adds. It is for few rows of x; with many rows it is compute-bound. */
#ifndef PI_LINEAR_KERNELS_CUH
#define PI_LINEAR_KERNELS_CUH

#include "tail.cuh"

namespace linear {

/* --------------------------------------------------------------------------------------------------------- pack x */

/* Packs x, [n_rows, n_in] floats, to codes and meta. Grid: one block per row, up to a multiple of 8 rows; rows from
 * n_rows on become zeros. floats not NULL (unpacked matrices): writes the input as floats instead; grid: n_rows
 * blocks. */
__global__ void __launch_bounds__(THREADS) prepare(pi__k_input in, int32_t n_rows, int64_t n_in, float *floats,
                                                   uint8_t *codes, block_meta *meta)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    int64_t row = blockIdx.x;
    bool there = row < n_rows;
    input_row x = open_row(in, row, n_in, there, (float *) raw);
    if (floats) put_floats(x, row, n_in, {0, 1}, floats);
    else put_integers(x, row, n_in, there, {0, 1}, codes, meta);
}

/* ---------------------------------------------------------------------------------------------------- the product */

/* Packed rows of x in global memory, as argument x of add_slice(). */
struct prepared_rows {
    const uint4 *words;      /* the lane's words of group 0, block 0 */
    const block_meta *metas; /* metas of the lane's first row of group 0, block 0 */
    int64_t n_block;         /* blocks per row */
    int32_t n_rows;          /* rows from n_rows on are not read: their codes are 0 */

    __device__ __forceinline__ uint4 codes(int g, int64_t b) const
    {
        bool there = 8 * g + (int32_t) (threadIdx.x % 32 / 4) < n_rows;
        return there ? words[(g * n_block + b) * 32] : uint4{0, 0, 0, 0};
    }
    __device__ __forceinline__ const block_meta *meta(int g, int64_t b, int i) const
    {
        return metas + (g * n_block + b) * 8 + i;
    }
};

/* Arguments of linear(): n matrices of one type that multiply the same x in one launch. A layer's matrices are too
 * small to fill a device one by one. */
struct products {
    pi__cuda_shape shape;   /* shape of all matrices; mat_bytes is not used */
    const uint4 *codes;     /* packed x: words of B, and metas */
    const block_meta *meta;
    int32_t n_rows;         /* rows of x */
    int32_t n;              /* number of matrices */
    struct {
        const uint8_t *data;
        const float *scale;
        float *y;
        int64_t ldy, n_out;
        uint32_t first;     /* index of the matrix's first thread block in the grid */
    } w[PI__K_MAX_LINEAR];
    pi__k_tail tail;
};

/* y = W x for n_rows (up to 8 NT) rows of x, then the epilogue, if any. Grid: one block per 16 rows of a matrix; each
 * of its 8 warps multiplies one slice. Shared memory: slice_bytes(). */
template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) linear(PI_CONSTANT products p)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    int lane = (int) threadIdx.x % 32, i = 0;
    while (i + 1 < p.n && blockIdx.x >= p.w[i + 1].first) i++;
    const auto &w = p.w[i];
    uint32_t tile = blockIdx.x - w.first;
    prepared_rows x = {p.codes + lane, p.meta + 2 * (lane % 4), p.shape.n_block, p.n_rows};
    float acc[NT][4] = {};
    add_slice<TYPE>(p.shape, w.data + tile * p.shape.tile_bytes, x, (p.n_rows + 7) / 8, raw, acc);
    put_sums(acc, (float *) raw, times(w.scale), w.y + tile * 16, w.ldy, p.n_rows, w.n_out - tile * 16);
    if (p.tail.arrived) run_tail(p.tail, raw);
}

/* y = W x for F32, F16 and BF16 matrices. Grid: x = FLOAT_WARPS rows of W, one per warp; y = FLOAT_ROWS rows of x. */
template <int TYPE> __global__ void __launch_bounds__(FLOAT_WARPS * 32) linear_floats(product p)
{
    ptx_wait_dependency();
    int64_t w_row = (int64_t) blockIdx.x * FLOAT_WARPS + threadIdx.x / 32, first = (int64_t) blockIdx.y * FLOAT_ROWS;
    const float *x = (const float *) p.codes + first * p.w.n_in;
    int n = (int) min((int64_t) FLOAT_ROWS, p.n_rows - first);
    if (w_row >= p.w.n_out) return;
    float_rows<TYPE>(
        p.w.data + (size_t) w_row * p.w.shape.tile_bytes, p.w.n_in, [&](int r) { return x + r * p.w.n_in; }, n,
        p.w.scale ? *p.w.scale : 1.0f, p.y + first * p.ldy + w_row, p.ldy);
}

/* ------------------------------------------------------------------------------------------------------ embedding */

/* Returns the value in row `row` and column i of a packed matrix, without the matrix's factor. */
template <int TYPE> PI_FN float packed_at(const pi__k_matrix &w, int64_t row, int64_t i)
{
    using F = format<TYPE>;
    const uint8_t *tile = w.data + (size_t) (row / 16) * w.shape.tile_bytes;
    int r = (int) (row % 16), k = (int) (i % 32);
    uint32_t a[4];
    float s[2], m[2];
    load_codes<TYPE>(tile + (size_t) (i / 32) * w.shape.code_bytes, r % 8 * 4 + k % 16 / 4, a);
    load_scales<TYPE>(w.shape, tile, i / 32, r, s, m);
    uint32_t word = k < 16 ? (r < 8 ? a[0] : a[1]) : (r < 8 ? a[2] : a[3]);
    int code = (int8_t) (word >> 8 * (k % 4));
    return s[k / 16] * (float) (code - F::OFFSET) - m[k / 16];
}

/* Writes row `row` of w times factor to out [n_in], by a block. */
template <int TYPE> PI_FN void embed_row(const pi__k_matrix &w, int64_t row, float factor, float *out)
{
    for (int64_t i = threadIdx.x; i < w.n_in; i += blockDim.x) {
        float v;
        if constexpr (TYPE == PI__F32 || TYPE == PI__F16 || TYPE == PI__BF16) {
            v = value_at<TYPE>(w.data + (size_t) row * w.shape.tile_bytes, i);
        } else {
            v = packed_at<TYPE>(w, row, i);
        }
        out[i] = v * factor;
    }
}

/* out[t] = row token[t] of w, times scale and w's factor; [tokens, n_in]. Grid: one block per token. */
__global__ void embed(PI_CONSTANT pi__k_matrix w, const int32_t *token, float scale, float *out)
{
    ptx_wait_dependency();
    const int64_t row = token[blockIdx.x];
    const float factor = w.scale ? *w.scale * scale : scale;
    out += blockIdx.x * w.n_in;
    switch (w.type) {
#define RUN(t, ...) case PI__##t: embed_row<PI__##t>(w, row, factor, out); break;
        PACKED_TYPES(RUN)
        FLOAT_TYPES(RUN)
#undef RUN
    }
}

} /* namespace linear */

#endif
