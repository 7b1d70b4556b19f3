/* Tiles and operands shared by the products of experts (moe_kernels.cuh). */
#ifndef PI_MOE_CUH
#define PI_MOE_CUH

#include "linear.cuh"

enum { FEW = 8, SOME = 32, MANY = 64 /* max columns of a tile, for each of the three lists */ };

/* Matrices of experts, one list of tiles, and packed rows. The product's kind selects one of the activation
 * formats. */
struct grouped {
    pi__k_experts a;
    const pi__k_tile *tile;
    const int32_t *n_tile;
    const uint4 *codes;     /* packed integers (linear.cuh) */
    const block_meta *meta;
    const float *floats;
    const uint8_t *chunks;  /* FP4: packed rows of fp4.cuh; 16-bit floats: blocks of mma16.cuh */
    const float *factors;
};

/* The work of a thread block: tile blockIdx.y, and one of the expert's two matrices (blockIdx.z). */
struct share {
    pi__k_tile t;
    const uint8_t *data; /* the expert's matrix */
    const float *scale;  /* factor of the matrix, or NULL = 1 */
    float *y;            /* result of the tile's first column */
};

PI_FN share share_of(const grouped &p)
{
    const pi__k_tile t = p.tile[blockIdx.y];
    const float *scale = blockIdx.z ? p.a.scale2 : p.a.w.scale;
    return {t, (blockIdx.z ? p.a.data2 : p.a.w.data) + (size_t) t.expert * p.a.w.shape.mat_bytes,
            scale ? scale + t.expert : nullptr, (blockIdx.z ? p.a.y2 : p.a.y) + t.first * p.a.ldy};
}

/* Returns the packed row of column c of a tile, or of its last column if c is beyond it. */
PI_FN int32_t row_of(const pi__k_experts &a, const pi__k_tile &t, int c)
{
    int32_t column = t.first + min(c, t.n - 1);
    return a.row ? a.row[column] : column;
}

#endif
