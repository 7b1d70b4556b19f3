/* y = W x for F16 and BF16 matrices on 16-bit tensor cores, with the accuracy of float products. W is exact in its
 * type. x is the sum of two F16 terms with a power-of-two scale per 32 columns (at least 22 bits), or of three BF16
 * terms (24 bits). Layouts and ORDER: mma16.cuh. Kernels: mma16_prepare packs x. In mma16_few_rows each warp sums one
 * slice; in mma16_many_rows each warp sums all slices of its rows.
 *
 * cuBLAS (option cublas) does not suffice: its choice of kernel, and so its order of sums, depends on the number of
 * rows. Products must be batch-invariant. */
#ifndef PI_MMA16_KERNELS_CUH
#define PI_MMA16_KERNELS_CUH

#include "backend/cuda/kernels_mma16.h"
#include "mma16_rows.cuh"

/* Packs x. Grid: one block per row, up to the next multiple of 8 rows; rows from n_rows on are packed as zeros. X:
 * pi__k_input; a template is compiled only in the file that launches it. */
template <class X>
__global__ void __launch_bounds__(THREADS)
    mma16_prepare(X in, int32_t type, int32_t n_rows, int64_t n_in, uint8_t *blocks)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    const int64_t row = blockIdx.x;
    const bool there = row < n_rows;
    const input_row x = open_row(in, row, n_in, there, (float *) raw);
    if (type == PI__BF16) put_terms<PI__BF16>(x, row, n_in, there, {0, 1}, blocks);
    else put_terms<PI__F16>(x, row, n_in, there, {0, 1}, blocks);
}

/* Packed rows of x in global memory, as argument x of mma16_add_slice(). Rows from n_rows on read as zeros. */
template <int TYPE> struct term_rows {
    const uint8_t *blocks;
    int n_block, n_rows;

    __device__ __forceinline__ void load(int g, int c, uint4 (&b)[mma16<TYPE>::TERMS], float (&scale)[2]) const
    {
        scale[0] = scale[1] = 0;
        for (int k = 0; k < mma16<TYPE>::TERMS; k++) b[k] = {0, 0, 0, 0};
        const uint8_t *block = blocks + ((size_t) g * (size_t) n_block + (size_t) c) * mma16<TYPE>::BYTES;
        if (8 * g + (int) threadIdx.x % 32 / 4 < n_rows) {
            for (int k = 0; k < mma16<TYPE>::TERMS; k++)
                b[k] = ((const uint4 *) block)[k * 32 + (int) threadIdx.x % 32];
        }
        for (int i = 0; i < 2 && TYPE == PI__F16; i++)
            scale[i] = ((const float *) (block + 1024))[threadIdx.x % 4 * 2 + i];
    }
};

/* Arguments of mma16_few_rows(): n matrices of one type that multiply the same few rows of x. */
struct mma16_products {
    const uint8_t *x;     /* packed rows of x */
    int64_t n_in;
    int32_t n_rows;       /* rows of x */
    int32_t n;            /* number of matrices */
    struct {
        const uint8_t *data;
        size_t pitch;     /* bytes between rows of W */
        const float *scale;
        float *y;
        int64_t ldy, n_out;
        uint32_t first;   /* index of the matrix's first thread block in the grid */
    } w[PI__K_MAX_MMA16];
};

/* Multiplies tile `tile` (16 rows) of w by n_rows packed rows (at most 8 NT) and writes w.y, by a thread block; each
 * warp has one slice. w has fields data, scale, y, ldy and n_out; its rows are `pitch` bytes apart. raw:
 * sums_bytes<NT>. */
template <int TYPE, int NT, class W>
PI_FN void mma16_few(const W &w, size_t pitch, int64_t n_in, uint32_t tile, const uint8_t *blocks, int32_t n_rows,
                     unsigned char *raw)
{
    const int64_t row = (int64_t) tile * 16, n_out = w.n_out - row;
    const term_rows<TYPE> x = {blocks, (int) ((n_in + 31) / 32), n_rows};
    float acc[NT][4] = {};
    const auto wait = [] { ptx_wait_grids(); }; /* loads of W start before the previous kernel has finished x */
    mma16_add_slice<TYPE>(w.data + (size_t) row * pitch, pitch, n_in, n_out, x, (n_rows + 7) / 8, wait, acc);
    put_sums(acc, (float *) raw, times(w.scale), w.y + row, w.ldy, n_rows, n_out);
}

/* Min resident thread blocks per multiprocessor, which limits the registers of mma16_few_rows(). */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
template <int NT> constexpr int mma16_side_by_side = NT == 1 ? 3 : 2;
#else
template <int NT> constexpr int mma16_side_by_side = NT == 1 ? 4 : 2;
#endif
/* y = W x for up to 8 NT rows of x and up to PI__K_MAX_MMA16 matrices. Grid: one block per 16 rows of a matrix. */
template <int TYPE, int NT>
__global__ void __launch_bounds__(THREADS, mma16_side_by_side<NT>) mma16_few_rows(PI_CONSTANT mma16_products p)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    int i = 0;
    while (i + 1 < p.n && blockIdx.x >= p.w[i + 1].first) i++;
    const auto &w = p.w[i];
    mma16_few<TYPE, NT>(w, w.pitch, p.n_in, blockIdx.x - w.first, p.x, p.n_rows, raw);
}

/* A group of 8 packed rows of x in global memory, as argument x of mma16_tile(). */
template <int TYPE> struct term_group {
    const uint8_t *blocks; /* NULL = the warp has no group */

    __device__ __forceinline__ void fill(const mma16_pipe &q, int32_t i, uint32_t to, int32_t c) const
    {
        if (blocks) q.copy(i, to, blocks + (size_t) c * mma16<TYPE>::BYTES, mma16<TYPE>::BYTES);
    }
};

/* y = W x for many rows of x. Grid: x = 64 rows of x, y = 128 rows of W. */
template <int TYPE> __global__ void __launch_bounds__(THREADS) mma16_many_rows(product p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    int64_t row = (int64_t) blockIdx.y * MMA16_ROWS, first = (int64_t) blockIdx.x * MMA16_GROUPS * 8;
    size_t group = (size_t) blockIdx.x * MMA16_GROUPS + threadIdx.x / 32, n = (size_t) (p.w.n_in + 31) / 32;
    bool there = group * 8 < (size_t) p.n_rows;
    const term_group<TYPE> x = {there ? (const uint8_t *) p.codes + group * n * mma16<TYPE>::BYTES : nullptr};
    size_t pitch = p.w.shape.tile_bytes;
    mma16_tile<TYPE>(p.w.data + (size_t) row * pitch, pitch, p.w.n_in, p.w.n_out - row, x, p.n_rows - first, raw,
                      times(p.w.scale), p.y + first * p.ldy + row, p.ldy);
}

#endif
