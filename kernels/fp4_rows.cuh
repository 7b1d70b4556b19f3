/* Packing of a row of x in FP4 or FP8: layout of fp4.cuh, rounding of fp4_quant.cuh. Used by the kernel that packs rows
 * (fp4_put_row()), by epilogues (tail.cuh), and by products that write packed rows (fp4_glu_kernels.cuh, fp4_mid.cuh).
 * All of them give the same bits.
 *
 * A thread rounds a unit, 16 columns: a group of NVFP4, or half a group of the other formats. A step has 8 units:
 *
 *     step    chunk 0                   chunk 1
 *     units   0 1 2 3                   4 5 6 7
 *     groups  NVFP4 0 1 2 3, others 0 0 1 1 ...
 *
 * NVFP4 scales become bytes only when the row's largest scale is known. Until then provisional scales are stored in the
 * place of the step's scale bytes: the upper 16 bits of each float scale, which hold all 4 significant bits. That place
 * is large enough, since the bytes are stored twice. */
#ifndef PI_FP4_ROWS_CUH
#define PI_FP4_ROWS_CUH

#include "fp4_quant.cuh"
#include "prepare.cuh"

/* The chunks of a step: `first`, its first chunk, and `end`, the end of its slice. A row has n chunks. Steps past the
 * row's end get {n, n}. */
struct fp4_chunks {
    int32_t first, end;
};
PI_FN fp4_chunks fp4_chunks_of(int32_t n, int32_t step)
{
    for (int k = 0; k < SLICES; k++) {
        const int32_t first = n * k / SLICES, end = n * (k + 1) / SLICES, steps = (end - first + 1) / 2;
        if (step < steps) return {first + 2 * step, end};
        step -= steps;
    }
    return {n, n};
}

/* Position of chunk `chunk` in a row of n chunks: its step, its index c (0, 1) in the step, and `alone`: the step has
 * no other chunk. */
struct fp4_place_of_chunk {
    int32_t step;
    uint32_t c;
    bool alone;
};
PI_FN fp4_place_of_chunk fp4_find_chunk(int32_t n, int32_t chunk)
{
    int slice = 0;
    while (chunk >= n * (slice + 1) / SLICES) slice++;
    const int32_t at = chunk - n * slice / SLICES;
    return {fp4_steps(n, slice) + at / 2, (uint32_t) at % 2, at % 2 == 0 && chunk + 1 == n * (slice + 1) / SLICES};
}

/* Returns the address of a row's piece of step `step`. n_step: steps of a row. */
template <int WAY> PI_FN uint8_t *fp4_piece_of(uint8_t *prepared, int64_t row, int32_t n_step, int32_t step)
{
    return prepared + ((size_t) (row / 8) * (size_t) n_step + (size_t) step) * fp4_way<WAY>::GROUP +
           fp4_row_at<WAY>((uint32_t) (row % 8));
}

/* Stores the provisional scale of unit u (0 .. 7) of an NVFP4 piece. */
PI_FN void fp4_keep_scale(uint8_t *piece, uint32_t u, float scale)
{
    ((uint16_t *) (piece + fp4_way<FP4_NV>::WORDS))[u] = (uint16_t) (__float_as_uint(scale) >> 16);
}

/* Rounds the 16 values v to unit u of an NVFP4 piece: writes codes and provisional scale, and returns the scale. Errors
 * are added in the order in which fp4_round() adds them over 16 lanes: columns 8 apart, then 4, 2, 1. */
PI_FN float fp4_put_group(uint8_t *piece, uint32_t u, const float (&v)[16])
{
    float most = 0, e6[8], e4[8];
#pragma unroll
    for (int i = 0; i < 16; i++) most = fmaxf(most, size_of(v[i]));
    const float s6 = nv_scale(most, 6.0f), s4 = nv_scale(most, 4.0f), i6 = nv_inverse(s6), i4 = nv_inverse(s4);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        e6[i] = nv_error(v[i], i6) + nv_error(v[i + 8], i6);
        e4[i] = nv_error(v[i], i4) + nv_error(v[i + 8], i4);
    }
#pragma unroll
    for (int o = 4; o; o >>= 1) {
#pragma unroll
        for (int i = 0; i < o; i++) e6[i] += e6[i + o], e4[i] += e4[i + o];
    }
    const bool four = nv_is_four(e4[0], s4, e6[0], i6);
    const float scale = four ? s4 : s6, inverse = four ? i4 : i6;
    uint32_t *words = (uint32_t *) piece + u / 4 * 2 + u % 2 + u % 4 / 2 * 8;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) word |= e2m1_of(v[8 * h + i] * inverse) << 4 * i;
        words[4 * h] = word;
    }
    fp4_keep_scale(piece, u, scale);
    return scale;
}

/* Rounds the 16 values v to unit u, half a group of MXFP4 or MXFP8, times `inverse`. The group's first half also writes
 * the scale byte `scale`. */
template <int WAY>
PI_FN void fp4_put_half(uint8_t *piece, uint32_t u, const float (&v)[16], uint32_t scale, float inverse)
{
    const uint32_t c = u / 4, block = u % 4 / 2, half = u % 2;
#pragma unroll
    for (uint32_t t = 0; t < 4; t++) {
        uint32_t word = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const float f = v[4 * t + i] * inverse;
            word |= fp4_way<WAY>::A8 ? e4m3_of(f) << 8 * i : e2m1_of(f) << 4 * i;
        }
        if (fp4_way<WAY>::A8) ((uint32_t *) piece)[c * 16 + t * 4 + block * 2 + half] = word;
        else ((uint16_t *) piece)[2 * (t * 4 + c * 2 + block) + half] = (uint16_t) word;
    }
    if (!half) fp4_put_scale<WAY>(piece, c, u % 4 * 16, scale);
}

/* Rounds the 16 values v to unit u of a piece. Lanes 2 i and 2 i + 1 must have adjacent units, which form a group of
 * MXFP4 or MXFP8. there: false = write nothing. Returns the group's scale for NVFP4, else 0. */
template <int WAY> PI_FN float fp4_put_unit(uint8_t *piece, uint32_t u, const float (&v)[16], bool there)
{
    if constexpr (fp4_way<WAY>::NV) {
        return there ? fp4_put_group(piece, u, v) : 0.0f;
    } else {
        float most = 0, inverse;
#pragma unroll
        for (int i = 0; i < 16; i++) most = fmaxf(most, size_of(v[i]));
        const uint32_t scale = mx_scale<fp4_way<WAY>::A8>(fmaxf(most, __shfl_xor_sync(PI_FULL, most, 1)), inverse);
        if (there) fp4_put_half<WAY>(piece, u, v, scale, inverse);
        return 0.0f;
    }
}

/* Writes unit u of a piece as zeros. */
template <int WAY> PI_FN void fp4_put_nothing(uint8_t *piece, uint32_t u)
{
    const float none[16] = {};
    if constexpr (fp4_way<WAY>::NV) fp4_put_group(piece, u, none);
    else fp4_put_half<WAY>(piece, u, none, 0, 0.0f);
}

/* fp4_kept_most: returns the largest provisional scale of an NVFP4 piece. fp4_end_scales: replaces the piece's
 * provisional scales by bytes. by: 1 / the row's factor. */
PI_FN float fp4_kept_most(const uint8_t *piece)
{
    const uint4 w = *(const uint4 *) (piece + fp4_way<FP4_NV>::WORDS);
    float most = 0;
    for (uint32_t v : {w.x, w.y, w.z, w.w})
        most = fmaxf(most, fmaxf(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)));
    return most;
}
PI_FN void fp4_end_scales(uint8_t *piece, float by)
{
    uint4 *at = (uint4 *) (piece + fp4_way<FP4_NV>::WORDS);
    const uint4 w = *at;
    auto two = [by](uint32_t v) {
        return nv_byte(__uint_as_float(v << 16), by) | nv_byte(__uint_as_float(v & 0xffff0000u), by) << 16;
    };
    /* The groups of a chunk come in the order 0 1 2 3; their bytes are stored in the order 0 2 1 3 (fp4_load_a()). */
    auto four = [&](uint32_t a, uint32_t b) {
        const uint32_t u = two(a), v = two(b);
        return (u & 0xff) | (v & 0xff) << 8 | (u & 0xff0000) | (v & 0xff0000) << 8;
    };
    const uint32_t first = four(w.x, w.y), second = four(w.z, w.w);
    *at = {first, second, first, second};
}

/* Called by one warp when all units of row `row` are written: computes the row's factor from its provisional scales,
 * and writes factors[row] and the scale bytes. NVFP4 only. */
PI_FN void fp4_end_row(uint8_t *prepared, float *factors, int64_t row, int32_t n_step)
{
    const int32_t lane = (int32_t) threadIdx.x % 32;
    float most = 0;
    for (int32_t s = lane; s < n_step; s += 32)
        most = fmaxf(most, fp4_kept_most(fp4_piece_of<FP4_NV>(prepared, row, n_step, s)));
    const float factor = nv_factor(warp_max(most)), by = nv_by(factor);
    for (int32_t s = lane; s < n_step; s += 32) fp4_end_scales(fp4_piece_of<FP4_NV>(prepared, row, n_step, s), by);
    if (lane == 0) factors[row] = factor;
}

/* v = columns i .. i + 15 of a row of n columns, a multiple of 16; zeros if i >= n. */
PI_FN void fp4_unit_at(const input_row &x, int64_t i, int64_t n, float (&v)[16])
{
    for (float &f : v) f = 0;
    if (i >= n) return;
    const float *w = x.kind == PI__IN_RMSNORM ? x.w : nullptr;
    if ((((uintptr_t) x.x | (uintptr_t) x.x2 | (uintptr_t) w) & 15) == 0) {
#pragma unroll
        for (int k = 0; k < 16; k += 4) x.four(i + k, v + k);
    } else {
#pragma unroll
        for (int k = 0; k < 16; k++) v[k] = x.at_noinline(i + k);
    }
}

/* Packs row `row` of x, of n_in columns, with all threads of a block. of: the block's part of the row; NVFP4 needs {0,
 * 1}, the complete row. there: false = write zeros (rows past the last). prepared, factors: packed x. scratch: one
 * float per warp, in use until the next barrier. */
template <int WAY>
PI_FN void fp4_put_row(const input_row &x, int64_t row, int64_t n_in, bool there, row_share of, uint8_t *prepared,
                       float *factors, float *scratch)
{
    const int32_t n_chunk = (int32_t) ((n_in + 63) / 64), n_step = fp4_steps(n_chunk), threads = (int32_t) blockDim.x;
    float most = 0;
    for (int32_t first = (int32_t) of.first * threads; first < n_step * 8; first += (int32_t) of.step * threads) {
        const int32_t i = first + (int32_t) threadIdx.x, step = i / 8;
        const uint32_t u = (uint32_t) i % 8;
        const fp4_chunks at = fp4_chunks_of(n_chunk, step);
        const int32_t chunk = at.first + (int32_t) u / 4;
        float v[16];
        fp4_unit_at(x, there && chunk < at.end ? (int64_t) chunk * 64 + u % 4 * 16 : n_in, n_in, v);
        most = fmaxf(most, fp4_put_unit<WAY>(fp4_piece_of<WAY>(prepared, row, n_step, step), u, v, step < n_step));
    }
    if (!fp4_way<WAY>::NV) {
        if (threadIdx.x == 0 && of.first == 0) factors[row] = 1.0f;
        return;
    }
    /* NVFP4: the row's largest scale gives the row's factor; then the scales become bytes. */
    most = warp_max(most);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = most;
    __syncthreads();
    for (int32_t i = 0; i < threads / 32; i++) most = fmaxf(most, scratch[i]);
    const float factor = nv_factor(most), by = nv_by(factor);
    if (threadIdx.x == 0) factors[row] = factor;
    for (int32_t s = (int32_t) threadIdx.x; s < n_step; s += threads)
        fp4_end_scales(fp4_piece_of<WAY>(prepared, row, n_step, s), by);
}

#endif
