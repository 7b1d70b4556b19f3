/* Where a token's keys and values lie in the paged cache: the layout that kernels.h describes. */
#ifndef PI_CACHE_CUH
#define PI_CACHE_CUH

#include "backend/cuda/kernels.h"
#include "device.cuh"
#include "formats/formats.h"

/* Bytes of a row of n values: without scales, and the scales. */
PI_FN size_t code_bytes(int32_t type, int32_t n)
{
    return type == PI__F32 ? 4 * (size_t) n : type == PI__Q8_0 ? (size_t) n : type == PI__Q4_0 ? (size_t) n / 2 : 2 * (size_t) n;
}
PI_FN size_t scale_bytes(int32_t type, int32_t n)
{
    return type == PI__Q8_0 || type == PI__Q4_0 ? (size_t) n / 16 : 0;
}

/* A row of a head: its values or codes, and its scales. */
struct cache_row {
    char *codes;
    uint16_t *scales;
};

/* The planes of a head of K (or V) in a block, as the row of its first token. */
PI_FN cache_row cache_head(const pi__k_cache &c, bool v, int32_t block, int32_t head)
{
    size_t n = (size_t) c.block_size;
    size_t k_head = n * (code_bytes(c.type_k, c.head_dim) + scale_bytes(c.type_k, c.head_dim));
    char *p = c.base + (size_t) block * c.stride;
    int32_t type = v ? c.type_v : c.type_k;
    size_t codes = n * code_bytes(type, c.head_dim), all = codes + n * scale_bytes(type, c.head_dim);
    p += v ? (size_t) c.n_head_kv * k_head + (size_t) head * all : (size_t) head * all;
    return {p, (uint16_t *) (p + codes)};
}

/* The row of token `offset` of the block. */
PI_FN cache_row cache_token(const pi__k_cache &c, bool v, int32_t block, int32_t head, int32_t offset)
{
    cache_row r = cache_head(c, v, block, head);
    int32_t type = v ? c.type_v : c.type_k;
    r.codes += (size_t) offset * code_bytes(type, c.head_dim);
    r.scales += (size_t) offset * (size_t) (c.head_dim / 32);
    return r;
}

#endif
