/* Packs one row of x for products, by the threads of a block: put_integers() as 15-bit integers (linear.cuh),
 * put_floats() as floats, put_halves() as F16 or BF16 with a power-of-two factor (w16.cuh). Used by packing kernels and
 * by epilogues (tail.cuh), with bitwise identical results. In all functions `row` is the row's index in the output and
 * n_in its number of columns, a multiple of 32 except for floats. */
#ifndef PI_PREPARE_CUH
#define PI_PREPARE_CUH

#include "input.cuh"
#include "w16.cuh"

/* Packs 32 values v, one per lane, as block `block` of row `row` (0 .. 7) of a group of 8 rows. `block` is counted from
 * the start of codes and meta. Layout: linear.cuh. */
PI_FN void put_block(uint8_t *codes, block_meta *meta, int64_t block, int row, float v, int lane)
{
    float most = warp_max(fabsf(v)), scale = most / 16256.0f;
    bool bad = __any_sync(PI_FULL, !(fabsf(v) <= 3.4e38f)); /* an infinite or NaN input makes every result NaN */
    /* q is a code of 15 bits, |q| <= 16256, split into two signed bytes: q = 128 * high + low. */
    int q = scale > 0 && !bad ? __float2int_rn(v / scale) : 0;
    int high = (q + 64) >> 7, low = q - 128 * high;
    int32_t sum = q; /* sum of the codes of the lane's half block, lanes 0 .. 15 or 16 .. 31 */
    for (int o = 8; o; o >>= 1) sum += __shfl_xor_sync(PI_FULL, sum, o);
    uint8_t *p = codes + ((size_t) block * 32 + (size_t) (row * 4 + lane % 16 / 4)) * 16 + lane / 16 * 4 + lane % 4;
    p[0] = (uint8_t) high;
    p[8] = (uint8_t) low;
    if (lane % 16 == 0) meta[(size_t) block * 8 + (size_t) row].sum[lane / 16] = sum;
    if (lane == 0) meta[(size_t) block * 8 + (size_t) row].scale = bad ? __uint_as_float(0x7fc00000) : scale;
}

/* Writes part `of` of a row as floats to row `row` of `to`, [rows][n_in]. */
PI_FN void put_floats(const input_row &x, int64_t row, int64_t n_in, row_share of, float *to)
{
    x.each(of, n_in, [&](int32_t i, float v) { to[row * n_in + i] = v; });
}

/* Packs part `of` of a row as 15-bit integers to codes and meta. there: false = the row is past the last one; zeros are
 * packed. */
PI_FN void put_integers(const input_row &x, int64_t row, int64_t n_in, bool there, row_share of, uint8_t *codes,
                        block_meta *meta)
{
    const int lane = (int) threadIdx.x % 32;
    const auto put = [&](int32_t i, float v) {
        put_block(codes, meta, row / 8 * (n_in / 32) + i / 32, (int) (row % 8), v, lane);
    };
    if (there) return x.each(of, n_in, put);
    for (int64_t i = of.first * blockDim.x + threadIdx.x; i < n_in; i += of.step * blockDim.x) put((int32_t) i, 0.0f);
}

/* Returns the largest absolute value of a row, or infinity if a value is infinite or NaN. there: false = returns 0. All
 * threads of the block call it. scratch: one float per warp, in use until the next barrier. */
PI_FN float row_max(const input_row &x, int64_t n_in, bool there, float *scratch)
{
    float most = 0;
    const auto see = [&](float v) { most = fmaxf(most, abs_or_inf(v)); };
    if (x.kind == PI__IN_PLAIN && n_in % 4 == 0 && (uintptr_t) x.x % 16 == 0) {
        const float4 *four = (const float4 *) x.x;
        row_values((int32_t) threadIdx.x, (int32_t) blockDim.x, there ? (int32_t) (n_in / 4) : 0,
                   [four](int32_t i) { return four[i]; },
                   [&](int32_t, const float4 &v) { see(v.x), see(v.y), see(v.z), see(v.w); });
    } else {
        x.each({0, 1}, there ? n_in : 0, [&](int32_t, float v) { see(v); });
    }
    return block_max(most, scratch);
}

/* Packs part `of` of a row as BF16 or F16 to words, and the row's factor to factor[row]. Every block reads the complete
 * row for its scale. there: false = zeros are packed. scratch: as in row_max(). */
PI_FN void put_halves(const input_row &x, int64_t row, int64_t n_in, bool there, bool bf16, row_share of,
                      uint16_t *words, float *factor, float *scratch)
{
    /* The scale depends on the largest value of the row, so a first pass finds that. */
    const row_scale scale = scale_of_row(row_max(x, n_in, there, scratch));
    if (threadIdx.x == 0 && of.first == 0) factor[row] = scale.factor;
    const uint32_t c = threadIdx.x % 32; /* column within a block of 32 */
    uint16_t *to = words + row / 8 * (n_in / 32) * 256 + w16_word_at((uint32_t) (row % 8), c % 16) * 2 + c / 16;
    const auto put = [&](int32_t i, float v) { to[i / 32 * 256] = bf16 ? ptx_bf16(v) : ptx_half(v); };
    if (there && !scale.bad) return x.each(of, n_in, [&](int32_t i, float v) { put(i, v * scale.by); });
    for (int64_t i = of.first * blockDim.x + threadIdx.x; i < n_in; i += of.step * blockDim.x) put((int32_t) i, 0.0f);
}

#endif
