/* Addresses and codecs of keys and values in the paged cache; kernels.h (pi__k_cache) describes the layout of a block.
 *
 * A row is one token's head_dim values of one head. It has codes, and for quantized types sides: per group of 32 values
 * the f16 scale, then what the type needs in addition (minimum, fifth bits). Entry points: plane_of() and cache_token()
 * find a row; cache_put() stores a group of 32 values by a warp; cache_get8() reads 8 values by a thread. The formats
 * are those of ggml, except for the rotated types (cache_rotation.h). */
#ifndef PI_CACHE_CUH
#define PI_CACHE_CUH

#include "backend/cuda/kernels.h"
#include "device.cuh"
#include "formats/cache_rotation.h"
#include "formats/formats.h"
#include "ptx.cuh"
#include "warp.cuh"

/* code_bytes: bytes of the codes of a row of n values. side_bytes: bytes of its sides; 0 for float types. */
PI_FN size_t code_bytes(int32_t type, int32_t n)
{
    int32_t bytes = 0;
#define ROW(t, ...) if (type == PI__##t) bytes = PI__KV_CODES_##t;
    PI__CACHE_TYPES(ROW)
#undef ROW
    return (size_t) n * (size_t) bytes / 32; /* n is a multiple of 16; of 32 for types with sides */
}
PI_FN size_t side_bytes(int32_t type, int32_t n)
{
    int32_t bytes = 0;
#define ROW(t, ...) if (type == PI__##t) bytes = PI__KV_SIDE_##t;
    PI__CACHE_TYPES(ROW)
#undef ROW
    return (size_t) (n / 32) * (size_t) bytes;
}

/* True if the type stores rotated values. pi__kv_rotated() is the same for host code. */
PI_FN bool is_rotated(int32_t type)
{
    bool is = false;
#define ROW(t, fn, side, minimum, split, rotated) if (type == PI__##t) is = rotated;
    PI__CACHE_TYPES(ROW)
#undef ROW
    return is;
}

/* Addresses of a token's row of one head, K or V: its codes (floats: values), and its sides (scales). */
struct cache_row {
    char *codes;
    char *sides;
};

/* Address parameters of a head's rows of K or V. Computed once per block of threads. Sizes in bytes. */
struct cache_plane {
    char *base;           /* address of the head's rows in cache block 0 */
    size_t stride, sides; /* bytes between cache blocks; from the codes to the sides of a cache block */
    uint32_t row, side;   /* bytes of a row's codes; of a row's sides */
};

/* Returns the plane of a kv head. v: false = K, true = V. */
PI_FN cache_plane plane_of(const pi__k_cache &c, bool v, int32_t head)
{
    size_t n = (size_t) c.block_size;
    size_t k_head = n * (code_bytes(c.type_k, c.head_dim) + side_bytes(c.type_k, c.head_dim));
    int32_t type = v ? c.type_v : c.type_k;
    size_t row = code_bytes(type, c.head_dim), side = side_bytes(type, c.head_dim),
           before = (size_t) head * n * (row + side);
    return {c.base + (v ? (size_t) c.n_head_kv * k_head + before : before), c.stride, n * row, (uint32_t) row,
            (uint32_t) side};
}

/* Returns the row of token `offset` (0 .. block_size - 1) of cache block `block`. */
PI_FN cache_row cache_token(const cache_plane &p, int32_t block, int32_t offset)
{
    char *first = p.base + (size_t) block * p.stride;
    return {first + (uint32_t) offset * p.row, first + p.sides + (uint32_t) offset * p.side};
}

/* log2 of the block size (16, 32 or 64). Position p is token p & (size - 1) of the sequence's block p >> shift. Shifts,
 * because a division would take as long as the 16-byte copy that needs the address. */
PI_FN int32_t block_shift(int32_t size) { return 31 - __clz(size); }

/* Codecs of the types
 *
 *     cache_put_<fn>    a warp stores 32 values as group g of row `to`; each lane gives one value, f
 *     cache_get8_<fn>   a thread reads values 8 i .. 8 i + 7 of `row` to f */

PI_FN void cache_put_f32(cache_row to, int32_t g, float f, int lane) { ((float *) to.codes)[g * 32 + lane] = f; }
PI_FN void cache_get8_f32(cache_row row, int i, float (&f)[8])
{
    float4 x = ((const float4 *) row.codes)[2 * i], y = ((const float4 *) row.codes)[2 * i + 1];
    f[0] = x.x, f[1] = x.y, f[2] = x.z, f[3] = x.w, f[4] = y.x, f[5] = y.y, f[6] = y.z, f[7] = y.w;
}

/* h = the 16-bit values 8 i .. 8 i + 7 of the row. */
PI_FN void cache_words(cache_row row, int i, uint16_t (&h)[8])
{
    uint4 u = ((const uint4 *) row.codes)[i];
    const uint32_t w[4] = {u.x, u.y, u.z, u.w};
    for (int j = 0; j < 8; j++) h[j] = (uint16_t) (w[j / 2] >> 16 * (j % 2));
}

PI_FN void cache_put_f16(cache_row to, int32_t g, float f, int lane)
{
    ((uint16_t *) to.codes)[g * 32 + lane] = ptx_half(f);
}
PI_FN void cache_get8_f16(cache_row row, int i, float (&f)[8])
{
    uint16_t h[8];
    cache_words(row, i, h);
    for (int j = 0; j < 8; j++) f[j] = ptx_of_half(h[j]);
}

PI_FN void cache_put_bf16(cache_row to, int32_t g, float f, int lane)
{
    ((uint16_t *) to.codes)[g * 32 + lane] = ptx_bf16(f);
}
PI_FN void cache_get8_bf16(cache_row row, int i, float (&f)[8])
{
    uint16_t h[8];
    cache_words(row, i, h);
    for (int j = 0; j < 8; j++) f[j] = ptx_of_bf16(h[j]);
}

/* Returns the one of the warp's 32 values that has the largest magnitude, with its sign; the positive one of a tie. */
PI_FN float cache_most(float f)
{
    float top = warp_max(f), low = -warp_max(-f);
    return top >= -low ? top : low;
}

/* A side has n 16-bit words. cache_put_half: stores f as f16 in word `word` of group g's side, and returns the rounded
 * value. cache_half: reads that word for the group that contains values 8 i .. 8 i + 7. */
PI_FN float cache_put_half(cache_row to, int n, int32_t g, int word, float f, int lane)
{
    uint16_t h = ptx_half(f);
    if (lane == 0) ((uint16_t *) to.sides)[g * n + word] = h;
    return ptx_of_half(h);
}
PI_FN float cache_half(cache_row row, int n, int i, int word)
{
    return ptx_floats(((const uint16_t *) row.sides)[i / 4 * n + word]).x;
}

/* Returns the lane's code: f / d, rounded to an integer in lo .. hi. d: the stored (rounded) scale; 0 gives code 0. */
PI_FN int cache_code(float d, float f, float lo, float hi)
{
    float inv = d != 0 ? 1.0f / d : 0.0f;
    return __float2int_rn(fminf(fmaxf(f * inv, lo), hi));
}

/* The low four bits of a group's 32 codes, in 16 bytes: byte j holds code j (low) and code j + 16 (high).
 * cache_put_nibbles writes group g, one code per lane; cache_nibbles reads codes 8 i .. 8 i + 7 of the row. */
PI_FN void cache_put_nibbles(cache_row to, int32_t g, int code, int lane)
{
    int high = __shfl_down_sync(PI_FULL, code, 16);
    if (lane < 16) ((uint8_t *) to.codes)[g * 16 + lane] = (uint8_t) ((code & 15) | (high & 15) << 4);
}
PI_FN void cache_nibbles(cache_row row, int i, int (&code)[8])
{
    /* Bytes 8 (i % 2) .. 8 (i % 2) + 7 of the group; low nibbles if i % 4 < 2, else high nibbles. */
    uint2 u = ((const uint2 *) row.codes)[i / 4 * 2 + i % 2];
    int shift = i % 4 / 2 * 4;
    for (int j = 0; j < 8; j++) code[j] = (int) ((j < 4 ? u.x : u.y) >> (8 * (j % 4) + shift) & 15);
}

/* The fifth bits of a group's codes (bit 4), as 32 bits in words `word` and word + 1 of the side. cache_put_bits writes
 * group g; cache_add_bits adds them to codes 8 i .. 8 i + 7. */
PI_FN void cache_put_bits(cache_row to, int n, int32_t g, int word, int code, int lane)
{
    uint32_t bits = __ballot_sync(PI_FULL, code >> 4 & 1);
    uint16_t *side = (uint16_t *) to.sides + g * n + word;
    if (lane < 2) side[lane] = (uint16_t) (bits >> 16 * lane);
}
PI_FN void cache_add_bits(cache_row row, int n, int i, int word, int (&code)[8])
{
    uint32_t bits = ((const uint16_t *) row.sides)[i / 4 * n + word + i % 4 / 2] >> i % 2 * 8;
    for (int j = 0; j < 8; j++) code[j] |= (int) (bits >> j & 1) << 4;
}

PI_FN void cache_put_q8_0(cache_row to, int32_t g, float f, int lane)
{
    f = clean(f);
    float d = cache_put_half(to, 1, g, 0, fabsf(cache_most(f)) / 127.0f, lane);
    ((int8_t *) to.codes)[g * 32 + lane] = (int8_t) cache_code(d, f, -127.0f, 127.0f);
}
PI_FN void cache_get8_q8_0(cache_row row, int i, float (&f)[8])
{
    uint2 u = ((const uint2 *) row.codes)[i];
    float d = cache_half(row, 1, i, 0);
    for (int j = 0; j < 8; j++) f[j] = d * (float) (int8_t) ((j < 4 ? u.x : u.y) >> 8 * (j % 4));
}

/* Returns the lane's code, 0 .. hi, for types with value = scale * code + minimum. Writes the group's scale and minimum
 * to the first two words of its side. */
PI_FN int cache_put_over_min(cache_row to, int n, int32_t g, float f, float hi, int lane)
{
    float low = -warp_max(-f), d = cache_put_half(to, n, g, 0, (warp_max(f) - low) / hi, lane);
    return cache_code(d, f - cache_put_half(to, n, g, 1, low, lane), 0.0f, hi);
}

PI_FN void cache_put_q5_1(cache_row to, int32_t g, float f, int lane)
{
    int code = cache_put_over_min(to, 4, g, clean(f), 31.0f, lane);
    cache_put_bits(to, 4, g, 2, code, lane);
    cache_put_nibbles(to, g, code, lane);
}
PI_FN void cache_get8_q5_1(cache_row row, int i, float (&f)[8])
{
    int code[8];
    cache_nibbles(row, i, code);
    cache_add_bits(row, 4, i, 2, code);
    float d = cache_half(row, 4, i, 0), min = cache_half(row, 4, i, 1);
    for (int j = 0; j < 8; j++) f[j] = fmaf(d, (float) code[j], min);
}

/* Q5_0, Q4_0: the value with the largest magnitude gets the code -16 or -8; the scale has the sign that this needs. */
PI_FN void cache_put_q5_0(cache_row to, int32_t g, float f, int lane)
{
    f = clean(f);
    int code = cache_code(cache_put_half(to, 3, g, 0, cache_most(f) / -16.0f, lane), f, -16.0f, 15.0f) + 16;
    cache_put_bits(to, 3, g, 1, code, lane);
    cache_put_nibbles(to, g, code, lane);
}
PI_FN void cache_get8_q5_0(cache_row row, int i, float (&f)[8])
{
    int code[8];
    cache_nibbles(row, i, code);
    cache_add_bits(row, 3, i, 1, code);
    float d = cache_half(row, 3, i, 0);
    for (int j = 0; j < 8; j++) f[j] = d * (float) (code[j] - 16);
}

PI_FN void cache_put_q4_1(cache_row to, int32_t g, float f, int lane)
{
    cache_put_nibbles(to, g, cache_put_over_min(to, 2, g, clean(f), 15.0f, lane), lane);
}
PI_FN void cache_get8_q4_1(cache_row row, int i, float (&f)[8])
{
    int code[8];
    cache_nibbles(row, i, code);
    float d = cache_half(row, 2, i, 0), min = cache_half(row, 2, i, 1);
    for (int j = 0; j < 8; j++) f[j] = fmaf(d, (float) code[j], min);
}

PI_FN void cache_put_q4_0(cache_row to, int32_t g, float f, int lane)
{
    f = clean(f);
    cache_put_nibbles(to, g, cache_code(cache_put_half(to, 1, g, 0, cache_most(f) / -8.0f, lane), f, -8.0f, 7.0f) + 8,
                      lane);
}
PI_FN void cache_get8_q4_0(cache_row row, int i, float (&f)[8])
{
    int code[8];
    cache_nibbles(row, i, code);
    float d = cache_half(row, 1, i, 0);
    for (int j = 0; j < 8; j++) f[j] = d * (float) (code[j] - 8);
}

/* Returns entry `code` (0 .. 15) of IQ4_NL's table, -127 .. 113, ascending. */
PI_FN int cache_iq4(int code)
{
    const uint32_t table[4] = {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535};
    uint32_t w = code < 4 ? table[0] : code < 8 ? table[1] : code < 12 ? table[2] : table[3];
    return (int8_t) (w >> 8 * (code % 4));
}

PI_FN void cache_put_iq4_nl(cache_row to, int32_t g, float f, int lane)
{
    f = clean(f);
    float d = cache_put_half(to, 1, g, 0, cache_most(f) / -127.0f, lane), x = f * (d != 0 ? 1.0f / d : 0.0f);
    int code = 0; /* number of midpoints of adjacent table entries that are below x */
    for (int i = 0; i < 15; i++) code += 0.5f * (float) (cache_iq4(i) + cache_iq4(i + 1)) < x;
    cache_put_nibbles(to, g, code, lane);
}
PI_FN void cache_get8_iq4_nl(cache_row row, int i, float (&f)[8])
{
    int code[8];
    cache_nibbles(row, i, code);
    float d = cache_half(row, 1, i, 0);
    for (int j = 0; j < 8; j++) f[j] = d * (float) cache_iq4(code[j]);
}

/* ---- rotated types (cache_rotation.h): cache_put_<fn> rotates; cache_get8_<fn> returns the stored, rotated values */

/* Rotates a group of 32 values, one per lane: multiplies by fixed signs, then applies a Hadamard transform. back: true
 * = the inverse. */
PI_FN float cache_turn(float f, bool back, int lane)
{
    const float by = PI__ROTATION_SIGNS >> lane & 1 ? -PI__ROTATION_SCALE : PI__ROTATION_SCALE;
    if (!back) f *= by;
    for (int o = 16; o; o >>= 1) {
        float other = __shfl_xor_sync(PI_FULL, f, o);
        f = lane & o ? other - f : f + other;
    }
    return back ? f * by : f;
}

/* Entry `code` of the tables of TQ4_0 (16 entries) and TQ3_0 (8), ascending. */
PI_FN int cache_tq4(int code)
{
    const uint32_t table[4] = {0xc6b5a081, 0xfaeee1d4, 0x2c1f1206, 0x7f604b3a};
    uint32_t w = code < 4 ? table[0] : code < 8 ? table[1] : code < 12 ? table[2] : table[3];
    return (int8_t) (w >> 8 * (code % 4));
}
PI_FN int cache_tq3(int code) { return (int8_t) ((code < 4 ? 0xf2d5b385 : 0x7b4d2b0e) >> 8 * (code % 4)); }

/* Returns the lane's code in the type's table of 2 HALF values (HALF 8: TQ4_0, 4: TQ3_0), and writes the group's scale
 * to its side. Tries several scales (PI__ROTATION_TRIES) and keeps the one with the smallest squared error. f: value
 * before rotation. rms: root mean square of the table's values. Bitwise identical to the CPU's put_rotated. */
template <int HALF> PI_FN int cache_put_rotated(cache_row to, int32_t g, float f, float rms, int lane)
{
    const float tries[] = {PI__ROTATION_TRIES};
    const float x = cache_turn(clean(f), false, lane), sum = warp_sum(x * x);
    float best = -1, scale = 0;
    int code = HALF;
#pragma unroll
    for (int t = 0; t < (int) (sizeof tries / sizeof *tries); t++) {
        const float inv = sum > 0 ? rms * tries[t] / sqrtf(sum / 32) : 0.0f, size = fabsf(x * inv);
        int n = 0;
        float value = (float) (HALF == 8 ? cache_tq4(HALF) : cache_tq3(HALF));
#pragma unroll
        for (int i = HALF; i < 2 * HALF - 1; i++) {
            const int low = HALF == 8 ? cache_tq4(i) : cache_tq3(i),
                      high = HALF == 8 ? cache_tq4(i + 1) : cache_tq3(i + 1);
            const bool above = 0.5f * (float) (low + high) < size;
            n += above;
            value = above ? (float) high : value;
        }
        /* For given codes the optimal scale is xc / cc; it reduces the group's squared error by xc^2 / cc (`off`). */
        const float cc = warp_sum(value * value), xc = warp_sum(fabsf(x) * value), off = xc * (xc / cc);
        if (!(off > best)) continue;
        best = off;
        scale = xc / cc;
        code = x < 0 ? HALF - 1 - n : HALF + n;
    }
    cache_put_half(to, 1, g, 0, scale, lane);
    return code;
}

PI_FN void cache_put_tq4_0(cache_row to, int32_t g, float f, int lane)
{
    cache_put_nibbles(to, g, cache_put_rotated<8>(to, g, f, PI__TQ4_0_RMS, lane), lane);
}
PI_FN void cache_get8_tq4_0(cache_row row, int i, float (&f)[8])
{
    int code[8];
    cache_nibbles(row, i, code);
    float d = cache_half(row, 1, i, 0);
    for (int j = 0; j < 8; j++) f[j] = d * (float) cache_tq4(code[j]);
}

PI_FN void cache_put_tq3_0(cache_row to, int32_t g, float f, int lane)
{
    const int code = cache_put_rotated<4>(to, g, f, PI__TQ3_0_RMS, lane);
    uint32_t bits = (uint32_t) code << lane % 8 * 3; /* 8 codes of 3 bits are 3 bytes */
    for (int o = 1; o < 8; o *= 2) bits |= (uint32_t) __shfl_xor_sync(PI_FULL, (int) bits, o);
    if (lane % 8 < 3) ((uint8_t *) to.codes)[g * 12 + lane / 8 * 3 + lane % 8] = (uint8_t) (bits >> lane % 8 * 8);
}
PI_FN void cache_get8_tq3_0(cache_row row, int i, float (&f)[8])
{
    const uint32_t *w = (const uint32_t *) row.codes + i / 4 * 3;
    /* 8 codes are 24 bits, in one or two of the group's three words, beginning in word `first`. */
    const int first = i % 4 * 3 / 4;
    const uint64_t both = w[first] | (uint64_t) w[first < 2 ? first + 1 : 2] << 32;
    const uint32_t bits = (uint32_t) (both >> i % 4 * 24 % 32);
    float d = cache_half(row, 1, i, 0);
    for (int j = 0; j < 8; j++) f[j] = d * (float) cache_tq3((int) (bits >> 3 * j & 7));
}

/* cache_put_<fn> and cache_get8_<fn> for a type that is known only at run time (pi__k_cache.type_k, type_v). */
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
