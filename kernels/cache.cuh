/* Where a token's keys and values lie in the paged cache: the layout that kernels.h describes. */
#ifndef PI_CACHE_CUH
#define PI_CACHE_CUH

#include "backend/cuda/kernels.h"
#include "device.cuh"
#include "formats/formats.h"
#include "warp.cuh"

/* Bytes of a row of n values: without scales, and the scales. */
PI_FN size_t code_bytes(int32_t type, int32_t n)
{
    int32_t bytes = 0;
#define ROW(t, ...) if (type == PI__##t) bytes = PI__KV_CODES_##t;
    PI__CACHE_TYPES(ROW)
#undef ROW
    return (size_t) (n / 32) * (size_t) bytes;
}
PI_FN size_t scale_bytes(int32_t type, int32_t n)
{
    int32_t bytes = 0;
#define ROW(t, ...) if (type == PI__##t) bytes = PI__KV_SCALE_##t;
    PI__CACHE_TYPES(ROW)
#undef ROW
    return (size_t) (n / 32) * (size_t) bytes;
}

/* A row of a head: its values or codes, and its scales. */
struct cache_row {
    char *codes;
    char *scales;
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
    return {p, p + codes};
}

/* The row of token `offset` of the block. */
PI_FN cache_row cache_token(const pi__k_cache &c, bool v, int32_t block, int32_t head, int32_t offset)
{
    cache_row r = cache_head(c, v, block, head);
    int32_t type = v ? c.type_v : c.type_k;
    r.codes += (size_t) offset * code_bytes(type, c.head_dim);
    r.scales += (size_t) offset * scale_bytes(type, c.head_dim);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------- a type
 *
 *     cache_put_<fn>    32 values, f of each lane, to group g of a row
 *     cache_get8_<fn>   values 8 i .. 8 i + 7 of a row */

PI_FN void cache_put_f32(cache_row to, int32_t g, float f, int lane) { ((float *) to.codes)[g * 32 + lane] = f; }
PI_FN void cache_get8_f32(cache_row row, int i, float (&f)[8])
{
    float4 x = ((const float4 *) row.codes)[2 * i], y = ((const float4 *) row.codes)[2 * i + 1];
    f[0] = x.x, f[1] = x.y, f[2] = x.z, f[3] = x.w, f[4] = y.x, f[5] = y.y, f[6] = y.z, f[7] = y.w;
}

PI_FN void cache_words(cache_row row, int i, uint16_t (&h)[8])
{
    uint4 u = ((const uint4 *) row.codes)[i];
    const uint32_t w[4] = {u.x, u.y, u.z, u.w};
    for (int j = 0; j < 8; j++) h[j] = (uint16_t) (w[j / 2] >> 16 * (j % 2));
}

PI_FN void cache_put_f16(cache_row to, int32_t g, float f, int lane)
{
    ((uint16_t *) to.codes)[g * 32 + lane] = float_to_half(f);
}
PI_FN void cache_get8_f16(cache_row row, int i, float (&f)[8])
{
    uint16_t h[8];
    cache_words(row, i, h);
    for (int j = 0; j < 8; j++) f[j] = half_to_float(h[j]);
}

PI_FN void cache_put_bf16(cache_row to, int32_t g, float f, int lane)
{
    ((uint16_t *) to.codes)[g * 32 + lane] = float_to_bf16(f);
}
PI_FN void cache_get8_bf16(cache_row row, int i, float (&f)[8])
{
    uint16_t h[8];
    cache_words(row, i, h);
    for (int j = 0; j < 8; j++) f[j] = bf16_to_float(h[j]);
}

/* Of 32 values the one of the largest magnitude. */
PI_FN float cache_most(float f)
{
    float top = warp_max(f), low = -warp_max(-f);
    return top >= -low ? top : low;
}

/* The lane's code, lo to hi; the scale, to which it is rounded first, goes to the row. */
PI_FN int cache_code(cache_row to, int32_t g, float scale, float f, float lo, float hi, int lane)
{
    uint16_t h = float_to_half(scale);
    float d = half_to_float(h), inv = d != 0 ? 1.0f / d : 0.0f;
    if (lane == 0) ((uint16_t *) to.scales)[g] = h;
    return __float2int_rn(fminf(fmaxf(f * inv, lo), hi));
}
PI_FN float cache_scale(cache_row row, int i) { return half_to_float(((const uint16_t *) row.scales)[i / 4]); }

PI_FN void cache_put_q8_0(cache_row to, int32_t g, float f, int lane)
{
    f = clean(f);
    ((int8_t *) to.codes)[g * 32 + lane] = (int8_t) cache_code(to, g, fabsf(cache_most(f)) / 127.0f, f, -127.0f, 127.0f, lane);
}
PI_FN void cache_get8_q8_0(cache_row row, int i, float (&f)[8])
{
    uint2 u = ((const uint2 *) row.codes)[i];
    float d = cache_scale(row, i);
    for (int j = 0; j < 8; j++) f[j] = d * (float) (int8_t) ((j < 4 ? u.x : u.y) >> 8 * (j % 4));
}

/* The scale takes the sign that makes the largest value -8. */
PI_FN void cache_put_q4_0(cache_row to, int32_t g, float f, int lane)
{
    f = clean(f);
    int code = cache_code(to, g, cache_most(f) / -8.0f, f, -8.0f, 7.0f, lane), high = __shfl_down_sync(PI_FULL, code, 16);
    if (lane < 16) ((uint8_t *) to.codes)[g * 16 + lane] = (uint8_t) ((code + 8) | (high + 8) << 4);
}
PI_FN void cache_get8_q4_0(cache_row row, int i, float (&f)[8])
{
    uint2 u = ((const uint2 *) row.codes)[i / 4 * 2 + i % 2]; /* bytes 8 (i % 2) .. of a group; low nibbles for i % 4 < 2 */
    float d = cache_scale(row, i);
    int shift = i % 4 / 2 * 4;
    for (int j = 0; j < 8; j++) f[j] = d * (float) ((int) ((j < 4 ? u.x : u.y) >> (8 * (j % 4) + shift) & 15) - 8);
}

/* The same by type. */
PI_FN void cache_put(int32_t type, cache_row to, int32_t g, float f, int lane)
{
    switch (type) {
#define ROW(t, fn, ...) case PI__##t: cache_put_##fn(to, g, f, lane); break;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: break;
    }
}
PI_FN void cache_get8(int32_t type, cache_row row, int i, float (&f)[8])
{
    switch (type) {
#define ROW(t, fn, ...) case PI__##t: cache_get8_##fn(row, i, f); break;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: break;
    }
}

#endif
