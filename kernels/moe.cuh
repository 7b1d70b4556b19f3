/* Arguments and helpers shared by the kernels that multiply the matrices of experts (moe_kernels.cuh explains columns
 * and tiles). */
#ifndef PI_MOE_CUH
#define PI_MOE_CUH

#include "linear.cuh"

enum { FEW = 8, SOME = 32, MANY = 64 /* max columns of a tile, in each of the three lists */ };

/* Arguments of a product of experts: matrices, one list of tiles, and packed rows. Each kernel reads one of the
 * activation formats below. */
struct grouped {
    pi__k_experts a;
    /* tile: the list of tiles; n_tile: its length, in device memory. */
    const pi__k_tile *tile;
    const int32_t *n_tile;
    const uint4 *codes;     /* packed integers, and their metas (linear.cuh) */
    const block_meta *meta;
    const float *floats; /* rows of floats, for F32, F16, BF16 */
    const uint8_t *chunks;  /* FP4: packed rows of fp4.cuh; F16, BF16: terms of mma16.cuh */
    const float *factors; /* factors of FP4 rows */
};

/* Returns the address of an expert's matrix, or of its second matrix. */
PI_FN const uint8_t *expert_matrix(const pi__k_experts &a, int32_t expert, bool second)
{
    const uint64_t *moved = second ? a.moved2 : a.moved;
    return (second ? a.data2 : a.w.data) + (size_t) expert * a.w.shape.mat_bytes + (moved ? moved[expert] : 0);
}

/* The work of a thread block: tile blockIdx.y, times the expert's first or second matrix (blockIdx.z 0 or 1). */
struct share {
    pi__k_tile t;
    const uint8_t *data; /* the expert's matrix */
    const float *scale;  /* factor of the matrix, or NULL = 1 */
    float *y;            /* results of the tile's first column */
};

PI_FN share share_of(const grouped &p)
{
    const pi__k_tile t = p.tile[blockIdx.y];
    const float *scale = blockIdx.z ? p.a.scale2 : p.a.w.scale;
    return {t, expert_matrix(p.a, t.expert, blockIdx.z), scale ? scale + t.expert : nullptr,
            (blockIdx.z ? p.a.y2 : p.a.y) + t.first * p.a.ldy};
}

/* Returns the packed row of column c (0 ..) of tile t, or of its last column if c is beyond it. a.row NULL = columns
 * and rows are the same. */
PI_FN int32_t row_of(const pi__k_experts &a, const pi__k_tile &t, int c)
{
    int32_t column = t.first + min(c, t.n - 1);
    return a.row ? a.row[column] : column;
}

#endif
