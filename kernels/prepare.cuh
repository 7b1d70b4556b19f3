/* A row of x in the form that products read, by the threads of a block: integers of 15 bits (linear.cuh), floats, F16 or BF16
 * with a power of two (w16.cuh). For the kernels that prepare rows alone, and for those that do it last (tail.cuh): the bits
 * do not depend on who does. */
#ifndef PI_PREPARE_CUH
#define PI_PREPARE_CUH

#include "input.cuh"
#include "w16.cuh"

/* 32 values, one a lane, of row `row` of a group, as block b. */
PI_FN void put_block(uint8_t *codes, block_meta *meta, int64_t block, int row, float v, int lane)
{
    float most = warp_max(fabsf(v)), scale = most / 16256.0f;
    bool bad = __any_sync(PI_FULL, !(fabsf(v) <= 3.4e38f)); /* infinite or NaN: so is every result */
    int q = scale > 0 && !bad ? __float2int_rn(v / scale) : 0;
    int high = (q + 64) >> 7, low = q - 128 * high;
    int32_t sum = q; /* over the half */
    for (int o = 8; o; o >>= 1) sum += __shfl_xor_sync(PI_FULL, sum, o);
    uint8_t *p = codes + ((size_t) block * 32 + (size_t) (row * 4 + lane % 16 / 4)) * 16 + lane / 16 * 4 + lane % 4;
    p[0] = (uint8_t) high;
    p[8] = (uint8_t) low;
    if (lane % 16 == 0) meta[(size_t) block * 8 + (size_t) row].sum[lane / 16] = sum;
    if (lane == 0) meta[(size_t) block * 8 + (size_t) row].scale = bad ? __uint_as_float(0x7fc00000) : scale;
}

PI_FN void put_floats(const input_row &x, int64_t row, int64_t n_in, row_share of, float *to)
{
    for (int64_t i = of.first * blockDim.x + threadIdx.x; i < n_in; i += of.step * blockDim.x) to[row * n_in + i] = x.at(i);
}

/* there: of a row behind the last, zeros are put. */
PI_FN void put_integers(const input_row &x, int64_t row, int64_t n_in, bool there, row_share of, uint8_t *codes, block_meta *meta)
{
    const int lane = (int) threadIdx.x % 32;
    const int64_t n = (n_in + 31) / 32 * 32;
    for (int64_t i = of.first * blockDim.x + threadIdx.x; i < n; i += of.step * blockDim.x)
        put_block(codes, meta, row / 8 * (n_in / 32) + i / 32, (int) (row % 8), there ? x.at(i) : 0.0f, lane);
}

/* Largest absolute value of a row that the block's threads hold parts of; infinite if one is infinite or NaN. scratch: a float a
 * warp, in use until the next barrier. */
PI_FN float row_max(const input_row &x, int64_t n_in, bool there, float *scratch)
{
    float most = 0;
    const auto see = [&](float v) { most = fabsf(v) <= 3.4e38f ? fmaxf(most, fabsf(v)) : INFINITY; };
    if (x.kind == PI__IN_PLAIN && n_in % 4 == 0 && (uintptr_t) x.x % 16 == 0) {
        for (int64_t i = threadIdx.x; i < n_in / 4 && there; i += blockDim.x) {
            const float4 v = ((const float4 *) x.x)[i];
            see(v.x), see(v.y), see(v.z), see(v.w);
        }
    } else {
        for (int64_t i = threadIdx.x; i < n_in && there; i += blockDim.x) see(x.at(i));
    }
    most = warp_max(most);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = most;
    __syncthreads();
    for (int i = 0; i < (int) blockDim.x / 32; i++) most = fmaxf(most, scratch[i]);
    return most;
}

/* A row in 16-bit floats; scratch as of row_max. */
PI_FN void put_halves(const input_row &x, int64_t row, int64_t n_in, bool there, bool bf16, row_share of, uint16_t *words,
                      float *factor, float *scratch)
{
    const row_scale scale = scale_of_row(row_max(x, n_in, there, scratch));
    if (threadIdx.x == 0 && of.first == 0) factor[row] = scale.factor;
    for (int64_t i = of.first * blockDim.x + threadIdx.x; i < n_in; i += of.step * blockDim.x) {
        float v = there && !scale.bad ? x.at(i) * scale.by : 0.0f;
        const uint32_t c = (uint32_t) (i % 32), at = w16_word_at((uint32_t) (row % 8), c % 16) * 2 + c / 16;
        words[(row / 8 * (n_in / 32) + i / 32) * 256 + at] = bf16 ? float_to_bf16(v) : float_to_half(v);
    }
}

#endif
