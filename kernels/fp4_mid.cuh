/* Output of gate and up as the packed activations of the down projection (mid), for a block of threads that computes
 * one chunk of mid: 64 rows of both matrices, times many rows of x. Used by fp4_glu_kernels.cuh and by
 * moe_fp4_kernels.cuh; there a "row" is a column, a pair of a row of x and its expert.
 *
 * Half of a block's tiles are gate's, half up's. The warps write their sums to shared memory (fp4_exchange()). Then
 * each thread computes and packs a unit of 16 columns (fp4_put_chunk()):
 *
 *     [gate, up][4 units of the chunk][rows]{ 16 results, 4 floats of padding against bank conflicts } */
#ifndef PI_FP4_MID_CUH
#define PI_FP4_MID_CUH

#include "tail.cuh"

/* Layout of the exchange buffer: 64 columns of each matrix. at(): index of the first float of a unit, for which = 0
 * (gate) or 1 (up). HALF: tiles per matrix. */
template <class S> struct fp4_meeting {
    static constexpr int ROWS = S::GROUPS * 8, HALF = S::TILES / 2;
    static constexpr int UNIT = ROWS * 20 + 8, EACH = 4 * UNIT; /* floats of a unit; of a matrix */
    static constexpr size_t BYTES = 2 * (size_t) EACH * sizeof(float);
    static_assert(HALF == 4, "a half of mid is one chunk");

    __device__ __forceinline__ static int at(int which, int unit, int row)
    {
        return which * EACH + unit * UNIT + row * 20;
    }
};

/* Writes result(which, row, sum) for each of the warp's totals to the exchange buffer `to`, for rows below n_row.
 * which: 0 = gate, 1 = up. total: sums in the mma accumulator layout. */
template <class S, class F>
PI_FN void fp4_exchange(const float (&total)[S::RT][S::RG][4], const F &result, int32_t n_row, float *to)
{
    using M = fp4_meeting<S>;
    const int lane = (int) threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < S::RT; r++) {
        const int tile = S::tile() + r, which = tile / M::HALF;
#pragma unroll
        for (int i = 0; i < S::RG * 4; i++) {
            const int row = (S::group() + i / 4) * 8 + 2 * (lane % 4) + i % 2, o = lane / 4 + 8 * (i % 4 / 2);
            if (row < n_row) to[M::at(which, tile % M::HALF, row) + o] = result(which, row, total[r][i / 4][i % 4]);
        }
    }
}

/* Applies the activation act(gate) * up and writes chunk `chunk` of n rows of mid, from row `first`. Called by the 256
 * multiplying threads when all results are in the exchange buffer `from`. columns: columns of mid from the chunk's
 * start to the row's end; units past these become zeros. n_chunk, n_step: chunks and steps of a row of mid. */
template <int WAY, class S>
PI_FN void fp4_put_chunk(const float *from, int32_t act, float limit, int64_t columns, uint8_t *mid, int32_t n_chunk,
                         int32_t n_step, int32_t chunk, int64_t first, int32_t n)
{
    using M = fp4_meeting<S>;
    const fp4_place_of_chunk to = fp4_find_chunk(n_chunk, chunk);
    const int unit = (int) threadIdx.x % 4;
    const uint32_t u = to.c * 4 + (uint32_t) unit;
    for (int row = (int) threadIdx.x / 4; row < M::ROWS; row += FP4_WARPS * 8) {
        const bool there = row < n;
        const float *gate = from + M::at(0, unit, row), *up = from + M::at(1, unit, row);
        float v[16];
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            const bool has = there && unit * 16 < columns;
            const float4 none = {0, 0, 0, 0}, g = has ? *(const float4 *) (gate + i) : none,
                         h = has ? *(const float4 *) (up + i) : none;
            v[i] = gated(act, g.x, h.x, limit), v[i + 1] = gated(act, g.y, h.y, limit);
            v[i + 2] = gated(act, g.z, h.z, limit), v[i + 3] = gated(act, g.w, h.w, limit);
        }
        uint8_t *piece = fp4_piece_of<WAY>(mid, first + row, n_step, to.step);
        fp4_put_unit<WAY>(piece, u, v, there);
        if (there && to.alone) fp4_put_nothing<WAY>(piece, u + 4);
    }
}

/* Returns the producer warp's source of the block's 8 tiles: 4 tiles of gate for the chunk, then 4 of up. */
template <class S>
PI_FN fp4_source<S> fp4_both(const pi__cuda_shape &shape, const uint8_t *gate, const uint8_t *up, int32_t chunk,
                             int64_t n_out)
{
    const int32_t i = (int32_t) (threadIdx.x % 32) % S::TILES;
    const bool second = i >= S::TILES / 2;
    /* fp4_source adds the lane's index i to the tile that it is given. */
    return fp4_source<S>(shape, second ? up : gate, chunk * 4 - (second ? S::TILES / 2 : 0),
                         (int32_t) (n_out / 16 - 1));
}

/* Converts the NVFP4 scales of all rows of mid (fp4_end_row()), in the blocks of the launch that arrive last, with
 * FP4_WARPS warps each. Called by all blocks. arrived: counter, 0 before and after. shared: one free word. */
PI_FN void fp4_end_rows(uint8_t *mid, float *factors, int32_t n_rows, int32_t n_step, uint32_t *arrived,
                        const pi__k_waits &waits, unsigned char *shared)
{
    const uint32_t total = blocks_of_launch(), most = blocks_for(PI__K_TAIL_STAY, waits);
    const tail_share s = arrive_of(arrived, total, min(most, total), waits.stuck, (uint32_t *) shared);
    if (!s.parts) return;
    for (int32_t row = s.part * FP4_WARPS + (int32_t) threadIdx.x / 32; row < n_rows; row += s.parts * FP4_WARPS)
        fp4_end_row(mid, factors, row, n_step);
}

#endif
