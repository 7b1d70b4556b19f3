/* LoRA: y += scale * factor * B (A in), for the rows that have an adapter. pi__k_lora has the arguments. lora_shrink or
 * lora_look_up runs first, then lora_expand.
 *
 * A thread block has a group: up to four rows with one adapter, so that A and B are read once for them. Groups without
 * rows keep the grid constant: a captured step is replayed with another mix of adapters. All kernels are memory-bound.
 * Rows of A are contiguous, and so are columns of B within a tile of PI__LORA_TILE outputs:
 *
 *     lora_shrink   block (group, matrix):            t[row][r] = A[r] . in[row]; a warp has every eighth r
 *     lora_look_up  block (group):                    t[row][r] = A[token of row][r], for an embedding
 *     lora_expand   block (group, columns, matrix):   y[row][o] += scale * factor * sum over r of B[o][r] t[row][r]
 *
 * The order of a row's sums depends on n_in and the rank alone. For A: by lane, column mod 32, then over the warp. For
 * B: in order of r. */
#ifndef PI_LORA_KERNELS_CUH
#define PI_LORA_KERNELS_CUH

#include "lora.cuh"

namespace lora {

enum { LORA_TILE = 1024 /* columns of `in` per pass */, LORA_RANKS = 2 /* rows r of A per warp and pass */ };

/* Loads LORA_TILE columns of the group's n rows, from column `first` on, after norm or gating, to tile
 * [PI__K_LORA_ROWS][LORA_TILE]. Columns past n_in and missing rows are zeros. */
PI_FN void lora_tile(const input_row (&row)[PI__K_LORA_ROWS], int32_t n, int64_t first, int64_t n_in, float *tile)
{
    for (int i = (int) threadIdx.x; i < LORA_TILE; i += LORA_THREADS)
        for (int j = 0; j < PI__K_LORA_ROWS; j++)
            tile[j * LORA_TILE + i] = j < n && first + i < n_in ? row[j].at_noinline(first + i) : 0.0f;
}

/* t = A in. Grid: x = group, y = matrix. */
__global__ void __launch_bounds__(LORA_THREADS) lora_shrink(PI_CONSTANT pi__k_lora a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    float *tile = (float *) raw, *scratch = tile + PI__K_LORA_ROWS * LORA_TILE;
    const pi__k_lora_group g = a.group[blockIdx.x];
    if (!g.n) return;
    const pi__lora_pair p = g.pair[a.lin[blockIdx.y].target];
    const void *a_of = lora_at(g.pair, p.a);
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    if (!p.rank) return;
    input_row row[PI__K_LORA_ROWS];
    for (int j = 0; j < PI__K_LORA_ROWS; j++) { /* missing rows repeat the last row; their results are not written */
        row[j] = open_row(a.in, a.row[g.first + (j < g.n ? j : g.n - 1)], a.n_in, true, scratch);
        __syncthreads();
    }
    /* LORA_RANKS rows of A per warp and pass, over tiles of `in` in shared memory. */
    for (int32_t r0 = 0; r0 < p.rank; r0 += LORA_WARPS * LORA_RANKS) {
        float sum[LORA_RANKS][PI__K_LORA_ROWS] = {};
        for (int64_t first = 0; first < a.n_in; first += LORA_TILE) {
            __syncthreads();
            lora_tile(row, g.n, first, a.n_in, tile);
            __syncthreads();
            for (int k = 0; k < LORA_RANKS; k++) {
                const int32_t r = r0 + warp + k * LORA_WARPS;
                if (r >= p.rank) continue;
                for (int i = lane; i < LORA_TILE && first + i < a.n_in; i += 32) {
                    const float w = lora_value(p.type, a_of, r * p.lda + first + i);
                    for (int j = 0; j < PI__K_LORA_ROWS; j++) sum[k][j] = fmaf(w, tile[j * LORA_TILE + i], sum[k][j]);
                }
            }
        }
        /* Add the lanes' sums; write t. */
        for (int k = 0; k < LORA_RANKS; k++)
            for (int j = 0; j < PI__K_LORA_ROWS; j++) {
                const int32_t r = r0 + warp + k * LORA_WARPS;
                const float all = warp_sum(sum[k][j]);
                float *t = a.t + ((int64_t) blockIdx.x * PI__K_LORA_ROWS + j) * a.ldt + a.lin[blockIdx.y].at;
                if (!lane && r < p.rank && j < g.n) t[r] = all;
            }
    }
}

/* t = rows of A of an embedding, by token. Grid: x = group. */
__global__ void __launch_bounds__(LORA_THREADS) lora_look_up(PI_CONSTANT pi__k_lora a)
{
    ptx_wait_dependency();
    const pi__k_lora_group g = a.group[blockIdx.x];
    if (!g.n) return;
    const pi__lora_pair p = g.pair[a.lin[0].target];
    for (int i = (int) threadIdx.x; i < g.n * p.rank; i += LORA_THREADS) {
        const int j = i / p.rank, r = i % p.rank;
        const int64_t token = a.token[a.row[g.first + j]];
        a.t[((int64_t) blockIdx.x * PI__K_LORA_ROWS + j) * a.ldt + r] = lora_value(p.type, lora_at(g.pair, p.a),
                                                                                   token * p.rank + r);
    }
}

/* y += scale * factor * B t. Grid: x = group, y = LORA_THREADS columns of y, z = matrix. */
__global__ void __launch_bounds__(LORA_THREADS) lora_expand(PI_CONSTANT pi__k_lora a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    float *t = (float *) raw; /* A in of the group, [rank][PI__K_LORA_ROWS] */
    const pi__k_lora_group g = a.group[blockIdx.x];
    if (!g.n) return;
    const int32_t target = a.lin[blockIdx.z].target, at = a.lin[blockIdx.z].at;
    const pi__lora_pair p = g.pair[target];
    const int64_t o = (int64_t) blockIdx.y * LORA_THREADS + threadIdx.x;
    for (int i = (int) threadIdx.x; i < p.rank * PI__K_LORA_ROWS; i += LORA_THREADS) {
        const int j = i % PI__K_LORA_ROWS;
        t[i] = j < g.n ? a.t[((int64_t) blockIdx.x * PI__K_LORA_ROWS + j) * a.ldt + at + i / PI__K_LORA_ROWS] : 0.0f;
    }
    __syncthreads();
    /* One column o of y per thread, for all rows of the group. */
    if (!p.rank || o >= a.lin[blockIdx.z].n_out) return;
    float sum[PI__K_LORA_ROWS] = {};
    for (int32_t r = 0; r < p.rank; r++) {
        const float w = lora_value(p.type, lora_at(g.pair, p.b),
                                   (o / PI__LORA_TILE * p.rank + r) * PI__LORA_TILE + o % PI__LORA_TILE);
        for (int j = 0; j < PI__K_LORA_ROWS; j++) sum[j] = fmaf(w, t[r * PI__K_LORA_ROWS + j], sum[j]);
    }
    for (int j = 0; j < PI__K_LORA_ROWS; j++) {
        if (j >= g.n) continue;
        float *y = a.lin[blockIdx.z].y + a.row[g.first + j] * a.lin[blockIdx.z].ldy + o;
        *y = fmaf(g.scale * p.factor * a.scale, sum[j], *y);
    }
}

} /* namespace lora */

#endif
