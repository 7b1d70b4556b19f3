/* Tiles and operands that the products of experts share: see moe_kernels.cuh. */
#ifndef PI_MOE_CUH
#define PI_MOE_CUH

#include "linear.cuh"

enum { FEW = 8, SOME = 32, MANY = 64 /* columns of the tiles of each list */ };

/* Matrices of experts, one of the lists of tiles, and prepared rows: one of the kinds, by the product. */
struct grouped {
    pi__k_experts a;
    const pi__k_tile *tile;
    const int32_t *n_tile;
    const uint4 *codes;     /* integers: of linear.cuh */
    const block_meta *meta;
    const float *floats;
    const uint8_t *chunks;  /* FP4: of fp4.cuh; 16-bit floats: blocks of mma16.cuh */
    const float *factors;
};

/* The work of a block of threads: its tile (blockIdx.y), and one of the expert's matrices (blockIdx.z). */
struct share {
    pi__k_tile t;
    const uint8_t *data; /* the matrix */
    const float *scale;  /* its factor, or NULL */
    float *y;            /* of the tile's first column */
};

PI_FN share share_of(const grouped &p)
{
    const pi__k_tile t = p.tile[blockIdx.y];
    const float *scale = blockIdx.z ? p.a.scale2 : p.a.w.scale;
    return {t, (blockIdx.z ? p.a.data2 : p.a.w.data) + (size_t) t.expert * p.a.w.shape.mat_bytes,
            scale ? scale + t.expert : nullptr, (blockIdx.z ? p.a.y2 : p.a.y) + t.first * p.a.ldy};
}

/* The prepared row of column c of a tile; of its last one where there is no such column. */
PI_FN int32_t row_of(const pi__k_experts &a, const pi__k_tile &t, int c)
{
    int32_t column = t.first + min(c, t.n - 1);
    return a.row ? a.row[column] : column;
}

#endif
