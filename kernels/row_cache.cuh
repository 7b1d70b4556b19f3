/* Addresses of a sequence's rows in a row cache (pi__k_rows of kernels.h), and RoPE of one pair of values. */
#ifndef PI_ROW_CACHE_CUH
#define PI_ROW_CACHE_CUH

#include "cache.cuh"

/* Returns the address of row `row` of sequence `seq`, through the block table. The row must exist. */
PI_FN cache_row row_of(const pi__k_rows &k, int32_t seq, int32_t row)
{
    const int32_t n = k.cache.block_size, block = k.table[(size_t) seq * (size_t) k.table_stride + (size_t) (row / n)];
    return cache_token(plane_of(k.cache, false, 0), block, row % n);
}

/* Returns the address of the row for the token in cache slot `slot` (not negative): a row is for k.ratio tokens. */
PI_FN cache_row row_at(const pi__k_rows &k, int32_t slot)
{
    const int32_t n = k.cache.block_size, row = slot / k.ratio;
    return cache_token(plane_of(k.cache, false, 0), row / n, row % n);
}

/* Applies RoPE to the pair (a, b). c, s: cosine and sine of the angle. */
PI_FN void rotate_pair(float &a, float &b, float c, float s)
{
    const float x = a;
    a = x * c - b * s;
    b = x * s + b * c;
}

#endif
