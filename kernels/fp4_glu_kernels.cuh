/* Gate and up projections in FP4, or with x in FP8, in one launch that writes the packed activations of the down
 * projection: mid [n_rows][n_out] = act(gate x) * up x, rounded as in fp4_rows.cuh. Neither product is written to
 * memory as floats. The sums are bitwise identical to the sums of fp4_kernels.cuh. Kernels:
 *
 *     fp4_glu_few     up to 32 rows of x. A block of threads computes the columns of one group of mid: 16 rows of both
 *                     matrices (MXFP4: 32). A thread rounds one column, with errors added in the order of fp4_rows.cuh
 *     fp4_glu_tiles   many rows. A block computes a chunk of mid: 64 rows of both matrices, times up to 128 rows of x
 *                     (fp4_mid.cuh)
 *     fp4_end         after fp4_glu_tiles in NVFP4: converts scales
 *
 * NVFP4 scales of a row become bytes when all scales of the row are known (fp4_rows.cuh): for few rows in the last
 * blocks of the launch, like an epilogue (tail.cuh); for many rows in fp4_end(). */
#ifndef PI_FP4_GLU_KERNELS_CUH
#define PI_FP4_GLU_KERNELS_CUH

#include "fp4_kernels.cuh"
#include "fp4_mid.cuh"

namespace fp4 {

/* Arguments of fp4_glu_few() and fp4_glu_tiles(). */
struct fp4_glu {
    pi__cuda_shape shape;  /* shape of both matrices */
    const uint8_t *w[2];   /* gate, up */
    const float *scale[2]; /* their factors (one float each); NULL = 1 */
    int64_t n_out;         /* rows of each matrix */
    const uint8_t *x;      /* packed x */
    const float *factors;  /* [n_rows] factors of the rows of x */
    int32_t n_rows, n_step; /* rows of x; steps of a row */
    int32_t act;
    float limit;
    uint8_t *mid;          /* output: packed rows of n_out columns; mid_factors [n_rows] */
    float *mid_factors;
    int32_t mid_chunks, mid_steps; /* chunks and steps of a row of mid */
    uint32_t *arrived;     /* fp4_glu_few, NVFP4: arrival counter */
    pi__k_waits waits;     /* with arrived */
};

/* Writes zeros to units u .. 7 of a step of mid, which are past the row's last column or missing in the step. A unit is
 * 16 columns (fp4_rows.cuh). piece: the row's piece of that step. */
template <int WAY> PI_FN void fp4_clear_from(uint8_t *piece, uint32_t u)
{
    for (; u < 8; u++) fp4_put_nothing<WAY>(piece, u);
}

/* ------------------------------------------------------------------------------------------------------- few rows */

/* group_max: maximum of v over N adjacent lanes. group_sum: sum over 16 adjacent lanes. All of these lanes get the
 * result. */
template <int N> PI_FN float group_max(float v)
{
    for (int o = N / 2; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(PI_FULL, v, o));
    return v;
}
PI_FN float group_sum(float v)
{
    for (int o = 8; o; o >>= 1) v += __shfl_xor_sync(PI_FULL, v, o);
    return v;
}
/* Returns the OR of v over the lanes whose indices differ only in the bits of `mask`. */
PI_FN uint32_t lanes_or(uint32_t v, int mask)
{
    for (int o = 16; o; o >>= 1)
        if (mask & o) v |= __shfl_xor_sync(PI_FULL, v, o);
    return v;
}

/* Rounds the lane's value v; the lanes of a group (NVFP4: 16, else 32) have its columns. Returns the lane's code.
 * scale: receives the group's scale. NVFP4: the scale itself; MXFP4, MXFP8: its byte, as a float. */
template <int WAY> PI_FN uint32_t fp4_round(float v, float &scale)
{
    if (fp4_way<WAY>::NV) {
        float most = group_max<16>(size_of(v)), s6 = nv_scale(most, 6.0f), s4 = nv_scale(most, 4.0f);
        float i6 = nv_inverse(s6), i4 = nv_inverse(s4);
        bool four = nv_is_four(group_sum(nv_error(v, i4)), s4, group_sum(nv_error(v, i6)), i6);
        scale = four ? s4 : s6;
        return e2m1_of(v * (four ? i4 : i6));
    }
    float inverse;
    scale = (float) mx_scale<fp4_way<WAY>::A8>(group_max<32>(size_of(v)), inverse);
    return fp4_way<WAY>::A8 ? e4m3_of(v * inverse) : e2m1_of(v * inverse);
}

/* fp4_few_columns: tiles and rows (N) of each matrix per block of fp4_glu_few(), which are N columns of mid.
 * fp4_few_sums: floats per tile of sums; the padding puts two adjacent tiles in different banks. */
template <int WAY> struct fp4_few_columns {
    static constexpr int TILES = fp4_way<WAY>::NV ? 1 : 2, N = 16 * TILES;
};
template <int NT> constexpr size_t fp4_few_sums = sums_bytes<NT> / sizeof(float) + 16;

/* Rounds the lane's value v and writes it to column `column` of row `row` of mid. The lanes of a group have adjacent
 * columns of a row. Called by all lanes. there: false = the row does not exist, nothing is written. The last group of a
 * row or of a step with one chunk also clears the units after it. */
template <int WAY> PI_FN void fp4_put_lane(const fp4_glu &p, int row, int64_t column, float v, bool there)
{
    using C = fp4_few_columns<WAY>;
    const uint32_t lane = threadIdx.x % 32, at = (uint32_t) (column % 64);
    const fp4_place_of_chunk to = fp4_find_chunk(p.mid_chunks, (int32_t) (column / 64));
    const fp4_spot spot = fp4_spot_of<WAY>(to.c, at);
    float scale;
    uint32_t word = fp4_round<WAY>(v, scale) << spot.shift;
    word = lanes_or(word, fp4_way<WAY>::A8 ? 3 : fp4_way<WAY>::NV ? 7 : 19);
    if (!there) return;
    uint8_t *piece = fp4_piece_of<WAY>(p.mid, row, p.mid_steps, to.step);
    if (!(lane & (fp4_way<WAY>::A8 ? 3 : fp4_way<WAY>::NV ? 7 : 19))) ((uint32_t *) piece)[spot.word] = word;
    if (lane % C::N) return;
    if (fp4_way<WAY>::NV) fp4_keep_scale(piece, to.c * 4 + at / 16, scale);
    else fp4_put_scale<WAY>(piece, to.c, at, (uint32_t) scale);
    const int64_t end = column + C::N;
    if (end == p.n_out || (end % 64 == 0 && to.alone)) fp4_clear_from<WAY>(piece, to.c * 4 + at / 16 + C::TILES);
}

/* Completes the rows of mid after the block has written its columns: the rows' factors and, for NVFP4, their scales.
 * Called by all threads; NVFP4: only the launch's last blocks do the work. */
template <int WAY> PI_FN void fp4_end_few(const fp4_glu &p, unsigned char *shared)
{
    if (!fp4_way<WAY>::NV) {
        if (blockIdx.x == 0 && (int32_t) threadIdx.x < p.n_rows) p.mid_factors[threadIdx.x] = 1.0f;
        return;
    }
    fp4_end_rows(p.mid, p.mid_factors, p.n_rows, p.mid_steps, p.arrived, p.waits, shared);
}

/* Computes mid for up to 8 NT rows of x. Grid: a block of 8 warps per C::N columns of mid, for all rows. A warp has one
 * slice. Shared: sums [gate's tiles, up's tiles][fp4_few_sums]. */
template <int WAY, int NT> __global__ void __launch_bounds__(THREADS, NT < 4 ? 2 : 1) fp4_glu_few(PI_CONSTANT fp4_glu p)
{
    using C = fp4_few_columns<WAY>;
    ptx_wait_dependency();
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    float *part = (float *) raw;
    constexpr int SUMS = (int) fp4_few_sums<NT>;
    /* Compute the warp's slice of each tile: gate's tiles, then up's. */
#pragma unroll 1
    for (int r = 0; r < 2 * C::TILES; r++) {
        const uint8_t *codes = (r < C::TILES ? p.w[0] : p.w[1]) +
                               (size_t) (blockIdx.x * C::TILES + (uint32_t) (r % C::TILES)) * p.shape.tile_bytes;
        fp4_reader<WAY, NT> in = {codes, codes + p.shape.side_at, {}, (int32_t) p.shape.n_block};
#pragma unroll
        for (int g = 0; g < NT; g++)
            in.x[g] = p.x + (size_t) min(g, (p.n_rows - 1) / 8) * (size_t) p.n_step * fp4_way<WAY>::GROUP;
        float acc[NT][4] = {};
        fp4_slice<WAY, NT>(in, acc);
        keep_sums<NT>(acc, part + r * SUMS);
    }
    __syncthreads();
    /* Add the slices, apply the activation, round and write. A thread has row at, column o of the block; missing rows
     * repeat the last one. */
    const fp4_result gate = {p.factors, times(p.scale[0])}, up = {p.factors, times(p.scale[1])};
    for (int i = (int) threadIdx.x; i < NT * 8 * C::N; i += THREADS) {
        const int at = i / C::N, row = min(at, p.n_rows - 1), o = i % C::N;
        const float *sums = part + o / 16 * SUMS;
        const float g = gate(row, sum_of_slices<NT>(sums, row, o % 16));
        const float u = up(row, sum_of_slices<NT>(sums + C::TILES * SUMS, row, o % 16));
        fp4_put_lane<WAY>(p, row, (int64_t) blockIdx.x * C::N + o, gated(p.act, g, u, p.limit), at < p.n_rows);
    }
    fp4_end_few<WAY>(p, raw);
}

/* ------------------------------------------------------------------------------------------------------ many rows */

/* Computes mid for many rows of x. Grid: x = S::GROUPS groups of 8 rows of x; y = chunk of mid. Block: FP4_THREADS.
 * Shared: the ring; at the end the exchange buffer of fp4_mid.cuh at the place of the stages. */
template <int WAY, class S> __global__ void __launch_bounds__(FP4_THREADS, 1) fp4_glu_tiles(fp4_glu p)
{
    ptx_wait_dependency();
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    static_assert(S::ring::HEAD + fp4_meeting<S>::BYTES <= S::SHARED, "partial sums fit where the stages were");
    const int32_t chunk = (int32_t) blockIdx.y, group = (int32_t) blockIdx.x * S::GROUPS,
                  n_block = (int32_t) p.shape.n_block;
    typename S::ring ring(raw, S::STAGE);
    ring.open();
    /* Producer warp; the other three warps of its group exit. */
    if (threadIdx.x / 32 >= FP4_WARPS) {
        ptx_fewer_registers<FP4_FEW_REGISTERS>();
        if (threadIdx.x / 32 > FP4_WARPS) return;
        const fp4_group_source<S> groups(p.x, p.n_step, group, (p.n_rows - 1) / 8);
        fp4_produce<S>(ring, fp4_both<S>(p.shape, p.w[0], p.w[1], chunk, p.n_out), groups, n_block, 0, SLICES);
        return;
    }
    ptx_more_registers<FP4_MANY_REGISTERS>();
    float total[S::RT][S::RG][4] = {};
    fp4_consume<WAY, S>(ring, n_block, 0, SLICES,
                        [&](int, const float(&acc)[S::RT][S::RG][4]) { fp4_add(total, acc); });
    const int32_t first = group * 8, n = min(S::GROUPS * 8, p.n_rows - first);
    float *meet = (float *) (raw + S::ring::HEAD);
    const fp4_result gate = {p.factors + first, times(p.scale[0])}, up = {p.factors + first, times(p.scale[1])};
    ptx_sync_first<FP4_WARPS * 32>(); /* no warp reads a stage any more */
    fp4_exchange<S>(
        total, [&](int which, int row, float sum) { return which ? up(row, sum) : gate(row, sum); }, n, meet);
    ptx_sync_first<FP4_WARPS * 32>();
    fp4_put_chunk<WAY, S>(meet, p.act, p.limit, p.n_out - (int64_t) chunk * 64, p.mid, p.mid_chunks, p.mid_steps, chunk,
                          first, n);
    if (!fp4_way<WAY>::NV && chunk == 0 && (int32_t) threadIdx.x < n)
        p.mid_factors[first + (int32_t) threadIdx.x] = 1.0f;
}

/* Converts the NVFP4 scales of all rows of mid to bytes (fp4_end_row()). Grid: 8 warps per block, a warp per row. */
[[maybe_unused]] static __global__ void __launch_bounds__(THREADS) fp4_end(uint8_t *mid, float *factors, int64_t n_rows,
                                                                          int32_t n_step)
{
    ptx_wait_dependency();
    const int64_t row = (int64_t) blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row < n_rows) fp4_end_row(mid, factors, row, n_step);
}

} /* namespace fp4 */

#endif
