/* What the products of experts share: see moe.cu. */
#ifndef PI_MOE_CUH
#define PI_MOE_CUH

#include "linear.cuh"

enum { FEW = 8, SOME = 32, MANY = 64 /* columns of the tiles of each list */ };

/* Matrices of experts, prepared rows, and one of the lists of tiles. */
struct grouped {
    pi__k_experts a;
    const pi__k_tile *tile;
    const int32_t *n_tile;
    const uint4 *codes;     /* of the prepared rows, packed types */
    const block_meta *meta;
    const float *floats;    /* of the prepared rows, float types */
};

/* The prepared row of column c of a tile; of its last one where there is no such column. */
PI_FN int32_t row_of(const pi__k_experts &a, const pi__k_tile &t, int c)
{
    int32_t column = t.first + min(c, t.n - 1);
    return a.row ? a.row[column] : column;
}

/* moe_many.cu: tiles of many columns, at most n_tile of them, packed types. */
int pi__k_experts_many(void *stream, const grouped &p, unsigned n_tile);

#endif
