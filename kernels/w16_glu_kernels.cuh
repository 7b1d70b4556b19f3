/* Gate and up projections with 16-bit tensor cores in one launch that writes act(gate x) * up x. Neither product is
 * written to memory. The sums are bitwise identical to w16_kernels.cuh. The output is the packed input of the down
 * projection, bitwise identical to that of w16_prepare.
 *
 * Large row counts (w16_glu): a thread block computes 64 rows of both matrices times 128 rows of x. A stage's 8 tiles
 * alternate between gate and up, so that a warp has both sums of a value in corresponding registers:
 *
 *     stage: { gate 0 } { up 0 } { gate 1 } { up 1 } ..
 *     warps 0 and 1: tiles 0 and 1, 64 rows of x each; warps 2 and 3: ..
 *
 * The factor of a packed row depends on its largest value, and a block computes only part of a row. So the launch
 * writes floats, and each row's maximum by atomics. A second launch (w16_round) reads the floats once and packs them.
 *
 * Small row counts (w16_glu_few): as w16_few(), with alternating tiles of gate and up. Up to PI__K_TAIL_ROWS rows are
 * packed by the last-arriving blocks, as in epilogues (tail.cuh). With few rows, each of these blocks packs part of a
 * row; it needs only the row's maximum from the other blocks. */
#ifndef PI_W16_GLU_KERNELS_CUH
#define PI_W16_GLU_KERNELS_CUH

#include "backend/cuda/kernels_w16_glu.h"
#include "w16_kernels.cuh"

/* Arguments of w16_glu(), w16_glu_few() and wgmma_glu(). p.w[0] is gate, p.w[1] is up. act(gate x) * up x is written as
 * floats to p.w[0].y. act, limit: as kind and limit of gated() in input.cuh. */
struct w16_both {
    w16_products p;
    int32_t act;
    float limit;
    uint32_t *most; /* [n_rows] bits of the largest absolute value of each row; 0 before the launch */
    /* The following are for w16_glu_few only. */
    uint32_t *arrived; /* arrival counter of packing in this launch; NULL = a second launch packs */
    pi__k_waits waits;
    int32_t bf16;
    uint4 *words;      /* output: packed rows, and their factors */
    float *factor;
};

/* Fills *to for n_rows packed rows at `prepared`. Returns false if the kernels do not support n_out or the alignment of
 * y. */
static inline bool w16_both_of(const pi__k_w16_glu &a, const void *prepared, int32_t n_rows, w16_both *to)
{
    const pi__k_matrix &m = a.gate;
    const char *factors = (const char *) prepared + w16_rows_bytes(n_rows, m.n_in);
    *to = {};
    to->p = {m.shape, (const uint4 *) prepared, (const float *) factors, n_rows, 2, {}, {}, {}};
    to->act = a.act, to->limit = a.limit, to->most = a.most, to->waits = a.waits;
    to->p.w[0] = {m.data, m.scale, a.y, a.ldy, m.n_out, 0, 0};
    to->p.w[1] = {a.up, a.up_scale, nullptr, 0, m.n_out, 0, 0};
    return m.n_out >= 1 && m.n_out % 32 == 0 && a.ldy % 4 == 0 && (uintptr_t) a.y % 16 == 0;
}

/* Writes a warp's results to y: 16 columns (rows of W) of act(gate x) * up x, for the first min(n_row, 8 NT) rows of x.
 * gates: the lane's sums with gate. ups(g) returns its sums with up for group g of 8 rows. gate, up: result functors
 * (w16_times). most[row] is raised to the bits of the row's largest absolute value. */
template <int NT, class F, class U>
PI_FN void put_gated(const float (&gates)[NT][4], const U &ups, const F &gate, const F &up, const w16_both &a, float *y,
                     int64_t ldy, int64_t n_row, uint32_t *most)
{
    const int lane = (int) threadIdx.x % 32;
#pragma unroll
    for (int g = 0; g < NT; g++) {
        const float4 u = ups(g);
        const float sums[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int row = 8 * g + 2 * (lane % 4) + odd;
            uint32_t largest = 0;
#pragma unroll
            for (int k = odd; k < 4 && row < n_row; k += 2) {
                const float v = gated(a.act, gate(row, gates[g][k]), up(row, sums[k]), a.limit);
                y[row * ldy + lane / 4 + 8 * (k / 2)] = v;
                largest = max(largest, __float_as_uint(v) & 0x7fffffffu);
            }
            for (int o = 4; o < 32; o *= 2) largest = max(largest, __shfl_xor_sync(PI_FULL, largest, o));
            if (lane < 4 && row < n_row) atomicMax(most + row, largest);
        }
    }
}

/* Writes act(gate x) * up x and the rows' maxima, for many rows of x. Grid: x = 128 rows of x, y = 64 rows of both
 * matrices, z = part of the slices (split.cuh). */
template <int TYPE> __global__ void __launch_bounds__(THREADS, 1) w16_glu(w16_both a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    using S = w16_stage<TYPE>;
    const w16_products &p = a.p;
    const int warp = (int) threadIdx.x / 32, first_g = warp % 2 * 8;
    const int32_t tile = (int32_t) blockIdx.y * (W16_MANY_TILES / 2) + warp / 2,
                  last = (int32_t) (p.w[0].n_out / 16 - 1);
    const int32_t group = (int32_t) blockIdx.x * W16_MANY_GROUPS + first_g;
    const uint8_t *matrix = warp % 2 ? p.w[1].data : p.w[0].data;
    const w16_source<TYPE> from = w16_source_of<TYPE>(p, matrix + (size_t) min(tile, last) * p.shape.tile_bytes);
    const bool busy = tile <= last && group < (p.n_rows + 7) / 8;
    float total[2][8][4] = {};
    w16_many_slices<TYPE>(from, raw, (int32_t) p.shape.n_block, busy, (uint32_t) (warp / 2 * 2) * S::TILE,
                          S::X_AT + first_g * W16_BLOCKS * 512, p.split, total);
    if (!split_last(p.split, total, busy, raw) || !busy) return;
    const int64_t row = (int64_t) group * 8;
    const w16_times<TYPE> gate(p.w[0].scale, p.factor + row), up(p.w[1].scale, p.factor + row);
    auto ups = [&](int g) { return float4 {total[1][g][0], total[1][g][1], total[1][g][2], total[1][g][3]}; };
    put_gated(total[0], ups, gate, up, a, p.w[0].y + row * p.w[0].ldy + (int64_t) tile * 16, p.w[0].ldy, p.n_rows - row,
              a.most + row);
}

/* Transposes the words of four adjacent lanes, four words each: lane k (0 .. 3) gets word k of every lane. */
PI_FN uint4 transpose_words(uint4 w, uint32_t k)
{
    const bool odd = k & 1, high = k & 2;
    uint32_t a = __shfl_xor_sync(PI_FULL, odd ? w.x : w.y, 1), b = __shfl_xor_sync(PI_FULL, odd ? w.z : w.w, 1);
    if (odd) w.x = a, w.z = b;
    else w.y = a, w.w = b;
    a = __shfl_xor_sync(PI_FULL, high ? w.x : w.z, 2), b = __shfl_xor_sync(PI_FULL, high ? w.y : w.w, 2);
    if (high) w.x = a, w.y = b;
    else w.z = a, w.w = b;
    return w;
}

/* Packs part `of` of row `row` (n blocks of 32 columns), with known scale, to words. Four threads pack a block of
 * columns; each reads eight values of x and writes 16 bytes. there: false = zeros are packed. */
template <bool BF16>
PI_FN void round_row(const float *x, const row_scale &scale, int64_t row, bool there, int64_t n, row_share of,
                     uint4 *words)
{
    const uint32_t k = threadIdx.x % 4, r = (uint32_t) (row % 8);
    const float4 *from = (const float4 *) x;
    for (int64_t first = of.first * (THREADS / 4); first < n; first += of.step * (THREADS / 4)) {
        const int64_t b = first + threadIdx.x / 4;
        float4 low = {0, 0, 0, 0}, high = low;
        if (b < n && there && !scale.bad) low = from[b * 8 + k], high = from[b * 8 + 4 + k];
        const float by = scale.by;
        const uint4 w = transpose_words(
            {w16_word(low.x * by, high.x * by, BF16), w16_word(low.y * by, high.y * by, BF16),
             w16_word(low.z * by, high.z * by, BF16), w16_word(low.w * by, high.w * by, BF16)},
            k);
        if (b < n) words[(row / 8 * n + b) * 32 + r * 4 + (k ^ r / 2)] = w;
    }
}

/* Packs x [n_rows] rows as w16_prepare() does, but with known maxima `most`, which are reset to 0. Grid: one block per
 * row, up to a multiple of 8 rows. Rows start at multiples of 16 bytes. WORDS: uint4, a template as w16_prepare(). */
template <class WORDS>
__global__ void __launch_bounds__(THREADS) w16_round(const float *x, int64_t ldx, uint32_t *most, int32_t n_rows,
                                                     int64_t n_in, bool bf16, WORDS *words, float *factor)
{
    ptx_wait_dependency();
    const int64_t row = blockIdx.x;
    const bool there = row < n_rows;
    const row_scale scale = scale_of_row(there ? __uint_as_float(most[row]) : 0.0f);
    __syncthreads();
    if (threadIdx.x == 0) factor[row] = scale.factor;
    if (threadIdx.x == 0 && there) most[row] = 0;
    if (bf16) round_row<true>(x + row * ldx, scale, row, there, n_in / 32, {0, 1}, words);
    else round_row<false>(x + row * ldx, scale, row, there, n_in / 32, {0, 1}, words);
}

/* ------------------------------------------------------------------------------------------------ small row counts */

/* Adds the slices of a tile of gate and a tile of up in shared memory. Writes act(gate x) * up x to y for all rows of
 * x, and raises the rows' maxima a.most. part: 2 * sums_bytes<NT>. Called by all threads of the block. */
template <int NT, class F>
PI_FN void put_gated_sums(const float (&gates)[NT][4], const float (&ups)[NT][4], float *part, const F &gate,
                          const F &up, const w16_both &a, float *y, int64_t ldy)
{
    float *second = part + sums_bytes<NT> / sizeof *part;
    keep_sums<NT>(gates, part);
    keep_sums<NT>(ups, second);
    __syncthreads();
    for (int i = (int) threadIdx.x; i < NT * 8 * 16; i += THREADS) {
        const int row = i / 16, o = i % 16;
        const bool there = row < a.p.n_rows;
        const float g = sum_of_slices<NT>(part, row, o), u = sum_of_slices<NT>(second, row, o);
        const float v = there ? gated(a.act, gate(row, g), up(row, u), a.limit) : 0.0f;
        if (there) y[row * ldy + o] = v;
        uint32_t largest = __float_as_uint(v) & 0x7fffffffu;
        for (int k = 8; k; k /= 2) largest = max(largest, __shfl_xor_sync(PI_FULL, largest, k));
        if (o == 0 && there) atomicMax(a.most + row, largest);
    }
}

/* Epilogue: the last-arriving blocks pack all rows, to a.words and a.factor. shared: one free word of shared memory. */
PI_FN void round_all(const w16_both &a, unsigned char *shared)
{
    const int32_t n_rows = a.p.n_rows;
    const uint32_t total = gridDim.x, stay = min(blocks_for((uint32_t) n_rows, a.waits), total);
    const tail_share s = arrive_of<true>(a.arrived, total, stay, a.waits.stuck, (uint32_t *) shared, [](tail_share) {});
    if (!s.parts) return;
    share_rows(s, n_rows, false, [&](int32_t row, row_share of) {
        const row_scale scale = scale_of_row(__uint_as_float(a.most[row]));
        const float *x = a.p.w[0].y + row * a.p.w[0].ldy;
        if (threadIdx.x == 0 && of.first == 0) a.factor[row] = scale.factor;
        if (a.bf16) round_row<true>(x, scale, row, true, a.p.w[0].n_out / 32, of, a.words);
        else round_row<false>(x, scale, row, true, a.p.w[0].n_out / 32, of, a.words);
    });
    /* Count this block as done, after all its threads have read the maxima. The last block resets them for the next
     * launch. */
    __syncthreads();
    if (threadIdx.x == 0 && leave_ordered(a.arrived, total, stay))
        for (int32_t row = 0; row < n_rows; row++) a.most[row] = 0;
}

/* As w16_glu(), for up to 8 NT rows of x. Grid: one block per R / 2 tiles of each matrix. Even tiles of the stream are
 * from gate, odd tiles from up. If a.arrived is not NULL, the last blocks also pack the rows. */
template <int TYPE, int NT, int R>
__global__ void __launch_bounds__(THREADS, w16_side_by_side<NT>) w16_glu_few(PI_CONSTANT w16_both a)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    const w16_products &p = a.p;
    const int32_t tile = (int32_t) blockIdx.x * (R / 2), last = (int32_t) (p.w[0].n_out / 16 - 1);
    auto tile_of = [&](uint32_t r) {
        return (r % 2 ? p.w[1].data : p.w[0].data) + (size_t) min(tile + (int32_t) r / 2, last) * p.shape.tile_bytes;
    };
    const w16_stream<TYPE, NT, R> in(p.shape, p.x, p.n_rows, tile_of, raw);
    float acc[R][NT][4] = {};
    w16_slice<TYPE, NT>(in, raw, acc);
    const w16_times<TYPE> gate(p.w[0].scale, p.factor), up(p.w[1].scale, p.factor);
#pragma unroll
    for (int r = 0; r < R; r += 2) {
        __syncthreads(); /* all threads have finished with the stages or the previous sums */
        if (tile + r / 2 > last) break;
        put_gated_sums<NT>(acc[r], acc[r + 1], (float *) raw, gate, up, a, p.w[0].y + (tile + r / 2) * 16, p.w[0].ldy);
    }
    if (a.arrived) round_all(a, raw);
}

#endif
