/* The attention kernels, written once for all instruction sets. Each kernels_ISA.c includes this file and first
 * defines:
 *
 *     vf                      vectors, by one of vec_ISA.h;
 *     PI__ROWS_MAX            max query rows per kernel call: their sums in pv() fit in the registers;
 *     PI__QK_TILES(R)         key tiles that one call of qk() multiplies by R rows;
 *     PI__PV_VECS             vf of a row's values that pv_dims() computes in one call, 1 or 2;
 *     PI__KERNELS             name of the table defined here
 *
 * No memory and no state. Threads: any. attention.h defines the order of a row's operations. On one instruction set, a
 * row's result is bitwise identical for every number of rows or tiles in a kernel call. */
#include <string.h>

#include "backend/cpu/attention.h"
#include "formats/cache_rotation.h"

/* ------------------------------------------------------------------------------------------------- types of the cache
 *
 * Functions of each cache type <fn> (cache_types.h). No other part of this file depends on a type:
 *
 *     put_<fn>      converts 32 values x to the row format: side data (scale, min, fifth bits), then codes
 *     get_<fn>      the inverse
 *     load_k_<fn>   returns dim i (0..31) of 16 keys, from a block of K (32 dims x 16 keys). scale, min: one lane
 *                   per key
 *     load_v_<fn>   returns dims 16 half .. 16 half + 15 of key j, from a block of V (16 keys x 32 dims). scale: 16
 *                   floats, one per key, then 16 minima
 *
 * A block of K or V starts with the side data: word 0 of all 16 keys, then word 1, and so on. Codes follow. In K: byte
 * (F32: float, F16 and BF16: half, TQ3_0: 4-byte word) 0 of all 16 keys, then byte 1 of all keys, and so on. In V: all
 * codes of a key, then of the next key. */

PI__INLINE void put_f32(const float *x, uint8_t *to) { memcpy(to, x, 128); }
PI__INLINE void get_f32(const char *src, float *x) { memcpy(x, src, 128); }
PI__INLINE vf load_k_f32(const char *block, int i, vf scale, vf min)
{
    (void) scale, (void) min;
    return vf_load((const float *) block + i * 16);
}
PI__INLINE vf load_v_f32(const char *block, int j, int half, const float *scale)
{
    (void) scale;
    return vf_load((const float *) block + j * 32 + half * 16);
}

PI__INLINE void put_f16(const float *x, uint8_t *to)
{
    vf_store_f16((uint16_t *) to, vf_load(x));
    vf_store_f16((uint16_t *) to + 16, vf_load(x + 16));
}
PI__INLINE void get_f16(const char *src, float *x)
{
    for (int i = 0; i < 32; i += 16) vf_store(x + i, vf_load_f16((const uint16_t *) src + i));
}
PI__INLINE vf load_k_f16(const char *block, int i, vf scale, vf min)
{
    (void) scale, (void) min;
    return vf_load_f16((const uint16_t *) block + i * 16);
}
PI__INLINE vf load_v_f16(const char *block, int j, int half, const float *scale)
{
    (void) scale;
    return vf_load_f16((const uint16_t *) block + j * 32 + half * 16);
}

PI__INLINE void put_bf16(const float *x, uint8_t *to)
{
    for (int i = 0; i < 32; i++) { /* rounds to nearest even */
        uint32_t u;
        memcpy(&u, x + i, 4);
        uint32_t nan = (u & 0x7fffffff) > 0x7f800000 ? 0x40 : 0, round = nan ? 0 : 0x7fff + (u >> 16 & 1);
        ((uint16_t *) to)[i] = (uint16_t) ((u + round) >> 16 | nan);
    }
}
PI__INLINE void get_bf16(const char *src, float *x)
{
    for (int i = 0; i < 32; i += 16) vf_store(x + i, vf_load_bf16((const uint16_t *) src + i));
}
PI__INLINE vf load_k_bf16(const char *block, int i, vf scale, vf min)
{
    (void) scale, (void) min;
    return vf_load_bf16((const uint16_t *) block + i * 16);
}
PI__INLINE vf load_v_bf16(const char *block, int j, int half, const float *scale)
{
    (void) scale;
    return vf_load_bf16((const uint16_t *) block + j * 32 + half * 16);
}

/* 32 values for conversion to codes. */
typedef struct values32 {
    vf a, b;          /* values 0..15 and 16..31: NaN became 0, others were clamped to +-65504 */
    float low, top;   /* min and max of the 32 values */
} values32;

static values32 clean_block(const float *src)
{
    float clean[32];
    values32 x = {.a = vf_load(src), .b = vf_load(src + 16)};
    vf limit = vf_set1(65504.0f);
    float over = vf_hmax(vf_add(vf_select_lt(vf_abs(x.a), limit, vf_zero(), vf_set1(1)),
                                vf_select_lt(vf_abs(x.b), limit, vf_zero(), vf_set1(1))));
    if (over != 0) { /* some value has a magnitude >= limit or is NaN */
        for (int i = 0; i < 32; i++) {
            float f = src[i];
            clean[i] = f != f ? 0.0f : f > 65504.0f ? 65504.0f : f < -65504.0f ? -65504.0f : f;
        }
        x.a = vf_load(clean);
        x.b = vf_load(clean + 16);
    }
    x.top = vf_hmax(vf_max(x.a, x.b));
    x.low = -vf_hmax(vf_max(vf_sub(vf_zero(), x.a), vf_sub(vf_zero(), x.b)));
    return x;
}

/* Returns the value with the largest magnitude, sign included; the scale is computed from it. A search for a better
 * scale, as in src/formats/quant_*.c, would cost more than attention itself. */
PI__INLINE float largest(const values32 *x) { return x->top >= -x->low ? x->top : x->low; }

/* Stores d as a half at `to`; returns the stored value. */
PI__INLINE float put_half(float d, uint8_t *to)
{
    uint16_t half = pi__f32_to_f16(d);
    memcpy(to, &half, 2);
    return pi__f16_to_f32(half);
}

/* Stores scale d at `to` as a half. code[0 .. 31] = values of x divided by the stored scale, clamped to lo..hi and
 * rounded. */
PI__INLINE void to_codes(float d, const values32 *x, float lo, float hi, uint8_t *to, int8_t *code)
{
    d = put_half(d, to);
    vf inv = vf_set1(fabsf(d) > 0 ? 1 / d : 0.0f);
    vf_store_i8(code, vf_min(vf_max(vf_mul(x->a, inv), vf_set1(lo)), vf_set1(hi)));
    vf_store_i8(code + 16, vf_min(vf_max(vf_mul(x->b, inv), vf_set1(lo)), vf_set1(hi)));
}

/* Like to_codes, for codes 0..hi of the values minus their minimum. Stores the scale at `to` and the minimum at `to` +
 * 2. Subtracts the minimum from x. */
PI__INLINE void to_codes_over_min(values32 *x, float hi, uint8_t *to, int8_t *code)
{
    vf min = vf_set1(put_half(x->low, to + 2));
    x->a = vf_sub(x->a, min);
    x->b = vf_sub(x->b, min);
    to_codes((x->top - x->low) / hi, x, 0, hi, to, code);
}

/* Stores the low 4 bits of 32 codes plus `add` at `to`: code i in the low nibble of byte i, code i + 16 in the high
 * nibble. code + add is in 0..15, or 0..31 if the format has fifth bits. */
PI__INLINE void put_nibbles(const int8_t *code, int add, uint8_t *to)
{
    for (int i = 0; i < 16; i++) to[i] = (uint8_t) (((code[i] + add) & 15) | ((code[i + 16] + add) & 15) << 4);
}

/* Stores the fifth bits of 32 codes plus `add` at `to`: bit i of word w = fifth bit of code 16 w + i. */
PI__INLINE void put_fifth_bits(const int8_t *code, int add, uint8_t *to)
{
    for (int w = 0; w < 2; w++) {
        uint16_t bits = 0;
        for (int i = 0; i < 16; i++) bits = (uint16_t) (bits | (code[16 * w + i] + add) >> 4 << i);
        memcpy(to + 2 * w, &bits, 2);
    }
}

PI__INLINE vf get_half(const char *src)
{
    uint16_t half;
    memcpy(&half, src, 2);
    return vf_set1(pi__f16_to_f32(half));
}

PI__INLINE vf get_fifth_bits(const char *src, int word)
{
    uint16_t bits;
    memcpy(&bits, src + 2 * word, 2);
    return vf_bits(bits);
}

/* Return 16 nibbles minus 8, from a block with n side words per key. nibbles_k: dim i of 16 keys of a K block.
 * nibbles_v: half `half` of the 32 dims of key j of a V block. */
PI__INLINE vf nibbles_k(const char *block, int n, int i) { return vf_load_u4((const uint8_t *) block + 32 * n + i % 16 * 16, i >= 16); }
PI__INLINE vf nibbles_v(const char *block, int n, int j, int half) { return vf_load_u4((const uint8_t *) block + 32 * n + j * 16, half); }
/* Return the fifth bits of the same 16 codes as 8 (set) or -8; w: first side word with fifth bits. The sum of both
 * results is the 5-bit code minus 16. */
PI__INLINE vf bits_k(const char *block, int w, int i) { return vf_load_bit((const uint16_t *) block + (w + i / 16) * 16, i % 16); }
PI__INLINE vf bits_v(const char *block, int w, int j, int half) { return vf_bits(((const uint16_t *) block)[(w + half) * 16 + j]); }

PI__INLINE void put_q8_0(const float *x, uint8_t *to)
{
    values32 v = clean_block(x);
    to_codes(fabsf(largest(&v)) / 127, &v, -127, 127, to, (int8_t *) to + 2);
}
PI__INLINE void get_q8_0(const char *src, float *x)
{
    const vf scale = get_half(src);
    for (int i = 0; i < 2; i++) vf_store(x + 16 * i, vf_mul(vf_load_i8((const int8_t *) src + 2 + 16 * i), scale));
}
PI__INLINE vf load_k_q8_0(const char *block, int i, vf scale, vf min)
{
    (void) min;
    return vf_mul(vf_load_i8((const int8_t *) block + 32 + i * 16), scale);
}
PI__INLINE vf load_v_q8_0(const char *block, int j, int half, const float *scale)
{
    return vf_mul(vf_load_i8((const int8_t *) block + 32 + j * 32 + half * 16), vf_set1(scale[j]));
}

PI__INLINE void put_q5_1(const float *x, uint8_t *to)
{
    int8_t code[32];
    values32 v = clean_block(x);
    to_codes_over_min(&v, 31, to, code);
    put_fifth_bits(code, 0, to + 4);
    put_nibbles(code, 0, to + 8);
}
PI__INLINE vf value_q5_1(vf nibble, vf bit, vf scale, vf min)
{
    return vf_fma(vf_add(vf_add(nibble, bit), vf_set1(16)), scale, min);
}
PI__INLINE void get_q5_1(const char *src, float *x)
{
    for (int i = 0; i < 2; i++)
        vf_store(x + 16 * i, value_q5_1(vf_load_u4((const uint8_t *) src + 8, i), get_fifth_bits(src + 4, i), get_half(src),
                                        get_half(src + 2)));
}
PI__INLINE vf load_k_q5_1(const char *block, int i, vf scale, vf min)
{
    return value_q5_1(nibbles_k(block, 4, i), bits_k(block, 2, i), scale, min);
}
PI__INLINE vf load_v_q5_1(const char *block, int j, int half, const float *scale)
{
    return value_q5_1(nibbles_v(block, 4, j, half), bits_v(block, 2, j, half), vf_set1(scale[j]), vf_set1(scale[16 + j]));
}

PI__INLINE void put_q5_0(const float *x, uint8_t *to)
{
    int8_t code[32];
    values32 v = clean_block(x);
    to_codes(largest(&v) / -16, &v, -16, 15, to, code);
    put_fifth_bits(code, 16, to + 2);
    put_nibbles(code, 16, to + 6);
}
PI__INLINE void get_q5_0(const char *src, float *x)
{
    for (int i = 0; i < 2; i++)
        vf_store(x + 16 * i, vf_mul(vf_add(vf_load_u4((const uint8_t *) src + 6, i), get_fifth_bits(src + 2, i)), get_half(src)));
}
PI__INLINE vf load_k_q5_0(const char *block, int i, vf scale, vf min)
{
    (void) min;
    return vf_mul(vf_add(nibbles_k(block, 3, i), bits_k(block, 1, i)), scale);
}
PI__INLINE vf load_v_q5_0(const char *block, int j, int half, const float *scale)
{
    return vf_mul(vf_add(nibbles_v(block, 3, j, half), bits_v(block, 1, j, half)), vf_set1(scale[j]));
}

PI__INLINE void put_q4_1(const float *x, uint8_t *to)
{
    int8_t code[32];
    values32 v = clean_block(x);
    to_codes_over_min(&v, 15, to, code);
    put_nibbles(code, 0, to + 4);
}
PI__INLINE vf value_q4_1(vf nibble, vf scale, vf min) { return vf_fma(vf_add(nibble, vf_set1(8)), scale, min); }
PI__INLINE void get_q4_1(const char *src, float *x)
{
    for (int i = 0; i < 2; i++)
        vf_store(x + 16 * i, value_q4_1(vf_load_u4((const uint8_t *) src + 4, i), get_half(src), get_half(src + 2)));
}
PI__INLINE vf load_k_q4_1(const char *block, int i, vf scale, vf min) { return value_q4_1(nibbles_k(block, 2, i), scale, min); }
PI__INLINE vf load_v_q4_1(const char *block, int j, int half, const float *scale)
{
    return value_q4_1(nibbles_v(block, 2, j, half), vf_set1(scale[j]), vf_set1(scale[16 + j]));
}

PI__INLINE void put_q4_0(const float *x, uint8_t *to)
{
    int8_t code[32];
    values32 v = clean_block(x);
    to_codes(largest(&v) / -8, &v, -8, 7, to, code);
    put_nibbles(code, 8, to + 2);
}
PI__INLINE void get_q4_0(const char *src, float *x)
{
    for (int i = 0; i < 2; i++) vf_store(x + 16 * i, vf_mul(vf_load_u4((const uint8_t *) src + 2, i), get_half(src)));
}
PI__INLINE vf load_k_q4_0(const char *block, int i, vf scale, vf min)
{
    (void) min;
    return vf_mul(nibbles_k(block, 1, i), scale);
}
PI__INLINE vf load_v_q4_0(const char *block, int j, int half, const float *scale)
{
    return vf_mul(nibbles_v(block, 1, j, half), vf_set1(scale[j]));
}

/* Returns for each lane the index of the IQ4 table value nearest to x: the number of midpoints between adjacent values
 * that are below x. */
PI__INLINE vf nearest_iq4(vf x)
{
    vf n = vf_zero(), one = vf_set1(1);
    for (int i = 0; i < 15; i++) {
        vf border = vf_set1(0.5f * (float) (pi__iq4nl_values[i] + pi__iq4nl_values[i + 1]));
        n = vf_add(n, vf_select_lt(border, x, one, vf_zero()));
    }
    return n;
}
PI__INLINE void put_iq4_nl(const float *x, uint8_t *to)
{
    int8_t code[32];
    values32 v = clean_block(x);
    const float d = put_half(largest(&v) / (float) pi__iq4nl_values[0], to);
    vf inv = vf_set1(fabsf(d) > 0 ? 1 / d : 0.0f);
    vf_store_i8(code, nearest_iq4(vf_mul(v.a, inv)));
    vf_store_i8(code + 16, nearest_iq4(vf_mul(v.b, inv)));
    put_nibbles(code, 0, to + 2);
}
PI__INLINE void get_iq4_nl(const char *src, float *x)
{
    for (int i = 0; i < 2; i++)
        vf_store(x + 16 * i, vf_mul(vf_load_table(pi__iq4nl_values, (const uint8_t *) src + 2, i), get_half(src)));
}
PI__INLINE vf load_k_iq4_nl(const char *block, int i, vf scale, vf min)
{
    (void) min;
    return vf_mul(vf_load_table(pi__iq4nl_values, (const uint8_t *) block + 32 + i % 16 * 16, i >= 16), scale);
}
PI__INLINE vf load_v_iq4_nl(const char *block, int j, int half, const float *scale)
{
    return vf_mul(vf_load_table(pi__iq4nl_values, (const uint8_t *) block + 32 + j * 16, half), vf_set1(scale[j]));
}

/* ------------------------------------------------------------------------------------------------------ rotated types
 *
 * See cache_rotation.h. put rotates before quantizing and get rotates back; load_k and load_v return the stored,
 * rotated values. */

static const int8_t tq4_0_values[16] = {PI__TQ4_0_VALUES};
static const int8_t tq3_0_values[16] = {PI__TQ3_0_VALUES, PI__TQ3_0_VALUES};

/* Returns the signs (PI__ROTATION_SIGNS) of values 16 half to 16 half + 15, times 1 / sqrt(32). vf_bits returns 8 or
 * -8, hence the factor 1/8. */
PI__INLINE vf turn_by(int half)
{
    return vf_mul(vf_bits((uint16_t) (~PI__ROTATION_SIGNS >> 16 * half)), vf_set1(PI__ROTATION_SCALE / 8));
}

/* Rotates 32 values (0..15 in a, 16..31 in b); back = true applies the inverse rotation. Signs and Walsh-Hadamard
 * transform (cache_rotation.h). Each of the 5 stages computes sum and difference of values i and i + 16, and stores
 * them at 2 i and 2 i + 1. So all stages are equal, and after the last one every value is at its index. */
PI__INLINE void turn32(vf *a, vf *b, bool back)
{
    const vf by_a = turn_by(0), by_b = turn_by(1);
    if (!back) *a = vf_mul(*a, by_a), *b = vf_mul(*b, by_b);
    PI__UNROLL for (int stage = 0; stage < 5; stage++) {
        const vf sum = vf_add(*a, *b);
        *b = vf_sub(*a, *b);
        *a = sum;
        vf_zip(a, b);
    }
    if (back) *a = vf_mul(*a, by_a), *b = vf_mul(*b, by_b);
}

/* The nearest codes of 16 values. */
typedef struct nearest {
    vf code, value; /* code: index into the table, as float; value: magnitude of the table's entry */
} nearest;

/* Returns the codes nearest to x. table: `half` negative values, largest magnitude first, then the same magnitudes
 * positive, smallest first. */
PI__INLINE nearest nearest_of(const int8_t *table, int half, vf x)
{
    nearest r = {vf_set1((float) half), vf_set1((float) table[half])};
    const vf size = vf_abs(x), one = vf_set1(1);
    for (int i = half; i < 2 * half - 1; i++) {
        vf border = vf_set1(0.5f * (float) (table[i] + table[i + 1]));
        r.code = vf_add(r.code, vf_select_lt(border, size, one, vf_zero()));
        r.value = vf_add(r.value, vf_select_lt(border, size, vf_set1((float) (table[i + 1] - table[i])), vf_zero()));
    }
    r.code = vf_select_lt(x, vf_zero(), vf_sub(vf_set1((float) (2 * half - 1)), r.code), r.code);
    return r;
}

/* Rotates the 32 values at src; stores their scale at `to` and their codes in code[32]. For each i, scales the values
 * to root mean square rms * tries[i] and computes the least-squares scale for the resulting codes. Keeps the scale and
 * codes with the smallest error. If all values are 0, the scale is 0. */
PI__INLINE void put_rotated(const float *src, const int8_t *table, int half, float rms, uint8_t *to, int8_t *code)
{
    static const float tries[] = {PI__ROTATION_TRIES};
    float best = -1, scale = 0;
    values32 x = clean_block(src);
    turn32(&x.a, &x.b, false);
    const float sum = vf_hsum(vf_add(vf_mul(x.a, x.a), vf_mul(x.b, x.b)));
    nearest a = {vf_zero(), vf_zero()}, b = a;
    for (int i = 0; i < (int) (sizeof tries / sizeof *tries); i++) {
        const vf inv = vf_set1(sum > 0 ? rms * tries[i] / sqrtf(sum / 32) : 0.0f);
        const nearest c = nearest_of(table, half, vf_mul(x.a, inv)), d = nearest_of(table, half, vf_mul(x.b, inv));
        const float cc = vf_hsum(vf_add(vf_mul(c.value, c.value), vf_mul(d.value, d.value)));
        const float xc = vf_hsum(vf_add(vf_mul(vf_abs(x.a), c.value), vf_mul(vf_abs(x.b), d.value)));
        const float off = xc * (xc / cc); /* squared error = sum - off */
        if (!(off > best)) continue;
        best = off;
        scale = xc / cc;
        a = c;
        b = d;
    }
    put_half(scale, to);
    vf_store_i8(code, a.code);
    vf_store_i8(code + 16, b.code);
}

/* x holds 32 table values. Multiplies them by the scale (a half at src) and rotates them back in place. */
PI__INLINE void get_rotated(const char *src, float *x)
{
    vf a = vf_mul(vf_load(x), get_half(src)), b = vf_mul(vf_load(x + 16), get_half(src));
    turn32(&a, &b, true);
    vf_store(x, a);
    vf_store(x + 16, b);
}

PI__INLINE void put_tq4_0(const float *x, uint8_t *to)
{
    int8_t code[32];
    put_rotated(x, tq4_0_values, 8, PI__TQ4_0_RMS, to, code);
    put_nibbles(code, 0, to + 2);
}
PI__INLINE void get_tq4_0(const char *src, float *x)
{
    for (int i = 0; i < 2; i++) vf_store(x + 16 * i, vf_load_table(tq4_0_values, (const uint8_t *) src + 2, i));
    get_rotated(src, x);
}
PI__INLINE vf load_k_tq4_0(const char *block, int i, vf scale, vf min)
{
    (void) min;
    return vf_mul(vf_load_table(tq4_0_values, (const uint8_t *) block + 32 + i % 16 * 16, i >= 16), scale);
}
PI__INLINE vf load_v_tq4_0(const char *block, int j, int half, const float *scale)
{
    return vf_mul(vf_load_table(tq4_0_values, (const uint8_t *) block + 32 + j * 16, half), vf_set1(scale[j]));
}

PI__INLINE void put_tq3_0(const float *x, uint8_t *to)
{
    int8_t code[32];
    put_rotated(x, tq3_0_values, 4, PI__TQ3_0_RMS, to, code);
    for (int g = 0; g < 4; g++) { /* group g: 8 codes of 3 bits in 3 bytes */
        uint32_t bits = 0;
        for (int i = 0; i < 8; i++) bits |= (uint32_t) code[8 * g + i] << 3 * i;
        for (int i = 0; i < 3; i++) to[2 + 3 * g + i] = (uint8_t) (bits >> 8 * i);
    }
}
PI__INLINE void get_tq3_0(const char *src, float *x)
{
    const uint8_t *p = (const uint8_t *) src + 2;
    for (int i = 0; i < 32; i++) {
        const int at = 3 * i / 8, bits = p[at] | (at < 11 ? p[at + 1] << 8 : 0);
        x[i] = tq3_0_values[bits >> 3 * i % 8 & 7];
    }
    get_rotated(src, x);
}
PI__INLINE vf load_k_tq3_0(const char *block, int i, vf scale, vf min)
{
    (void) min;
    return vf_mul(vf_load_3bits_of(tq3_0_values, (const uint32_t *) (const void *) (block + 32) + 3 * i / 32 * 16, 3 * i % 32), scale);
}
PI__INLINE vf load_v_tq3_0(const char *block, int j, int half, const float *scale)
{
    return vf_mul(vf_load_3bits(tq3_0_values, (const uint8_t *) block + 32 + j * 12 + half * 6), vf_set1(scale[j]));
}

static void turn(int32_t n, float *x, bool back)
{
    for (int32_t i = 0; i < n; i += 32) {
        vf a = vf_load(x + i), b = vf_load(x + i + 16);
        turn32(&a, &b, back);
        vf_store(x + i, a);
        vf_store(x + i + 16, b);
    }
}

/* -------------------------------------------------------------------------- dispatch by a type that is a constant */

PI__INLINE bool has_scale(int t)
{
    switch (t) {
#define ROW(type, fn, side, ...) case PI__KV_##type: return side != 0;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: return false;
    }
}

PI__INLINE bool has_min(int t)
{
    switch (t) {
#define ROW(type, fn, side, minimum, ...) case PI__KV_##type: return minimum;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: return false;
    }
}

/* Returns the bytes of a block of 32 dims x 16 keys of cache type t (enum pi__kv_index). */
PI__INLINE size_t block_bytes(int t)
{
    switch (t) {
#define ROW(type, ...) case PI__KV_##type: return 16 * (PI__KV_SIDE_##type + PI__KV_CODES_##type);
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: return 0;
    }
}

PI__INLINE vf load_k(int t, const char *block, int i, vf scale, vf min)
{
    switch (t) {
#define ROW(type, fn, ...) case PI__KV_##type: return load_k_##fn(block, i, scale, min);
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: return vf_zero();
    }
}

PI__INLINE vf load_v(int t, const char *block, int j, int half, const float *scale)
{
    switch (t) {
#define ROW(type, fn, ...) case PI__KV_##type: return load_v_##fn(block, j, half, scale);
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: return vf_zero();
    }
}

/* --------------------------------------------------------------------------------------------------------- scores */

/* With up to this number of rows, attention is limited by memory. */
enum { FEW_ROWS = 4 };

/* acc[row * N + n] lane = key += products of `count` (at most 32) dims of R query rows with the 16 keys of block b[n],
 * n < N. qt: [count][R] these dims of the queries. next: the blocks of the next call, which are prefetched. Returns qt
 * + count * R. */
PI__INLINE const float *qk_dims(int t, int R, int N, int count, const float *qt, const char *const *b,
                                const char *const *next, vf *acc)
{
    vf scale[4], min[4];
    PI__UNROLL for (int n = 0; n < N; n++) {
        scale[n] = has_scale(t) ? vf_load_f16((const uint16_t *) b[n]) : vf_zero();
        min[n] = has_min(t) ? vf_load_f16((const uint16_t *) b[n] + 16) : vf_zero();
    }
    for (int i = 0; i < count; i++) {
        vf k[4];
        PI__UNROLL for (int n = 0; n < N; n++) {
            k[n] = load_k(t, b[n], i, scale[n], min[n]);
            if (R > FEW_ROWS) __builtin_prefetch(next[n] + (size_t) i * (block_bytes(t) / 32), 0, 3);
        }
        PI__UNROLL for (int r = 0; r < R; r++) {
            vf q = vf_set1(qt[r]);
            PI__UNROLL for (int n = 0; n < N; n++) acc[r * N + n] = vf_fma(q, k[n], acc[r * N + n]);
        }
        qt += R;
    }
    return qt;
}

/* s[r * PI__ATTN_S_STRIDE + 16 * n + lane] = dot product of query row r and key `lane` of tile[n], for R rows and N
 * tiles of cache type t. qt: packed queries [n_dot][R]. next: tiles of the next call. */
PI__INLINE void qk(int t, int R, int N, const float *qt, int32_t n_dot, const char *const *tile,
                   const char *const *next, float *s)
{
    vf acc[PI__ATTN_MAX_ROWS * 4];
    const char *b[4], *to[4];
    PI__UNROLL for (int i = 0; i < R * N; i++) acc[i] = vf_zero();
    PI__UNROLL for (int n = 0; n < N; n++) b[n] = tile[n], to[n] = next[n];
    for (int32_t d = 32; d <= n_dot; d += 32) {
        qt = qk_dims(t, R, N, 32, qt, b, to, acc);
        PI__UNROLL for (int n = 0; n < N; n++) b[n] += block_bytes(t), to[n] += block_bytes(t);
    }
    if (n_dot % 32 && !has_scale(t)) qk_dims(t, R, N, n_dot % 32, qt, b, to, acc);
    PI__UNROLL for (int r = 0; r < R; r++) {
        PI__UNROLL for (int n = 0; n < N; n++) vf_store(s + r * PI__ATTN_S_STRIDE + n * 16, acc[r * N + n]);
    }
}

/* --------------------------------------------------------------------------------------------------------- values */

/* The keys of a KV split that each row attends to, relative to the split's start. lo > hi = no key. */
typedef struct span {
    int32_t lo[PI__ATTN_MAX_ROWS], hi[PI__ATTN_MAX_ROWS]; /* first and last key of each row */
    int32_t any_lo, any_hi;                               /* first and last key that at least one row attends to */
    int32_t all_lo, all_hi;                               /* first and last key that all rows attend to */
} span;

/* out[r][d0 .. d0 + 16 V - 1] = sum of p[r][key] * value[key] over the keys that row r attends to. Other keys of the
 * split are skipped: their values are undefined and may be NaN. half: true = the last 16 dims of a head_dim that is not
 * a multiple of 32, with 16 instead of 32 values per key in a block. */
PI__INLINE void pv_dims(int t, int R, int V, bool half, const span *sp, const float *p, const char *const *tile, int32_t head_dim,
                        int32_t d0, float *out)
{
    /* bytes from one key to the next, and to the first of the 16 V dims */
    const size_t key_bytes = block_bytes(t) / (half ? 32 : 16), at = (size_t) (d0 & 16) * block_bytes(t) / 512;
    vf acc[PI__ATTN_MAX_ROWS * 2];
    PI__UNROLL for (int i = 0; i < R * V; i++) acc[i] = vf_zero();
    for (int32_t n = sp->any_lo / 16; n <= sp->any_hi / 16; n++) {
        const char *block = tile[n] + (size_t) (d0 / 32) * block_bytes(t);
        float scale[32] = {0}; /* scales of the 16 keys, then their minima */
        if (has_scale(t)) vf_store(scale, vf_load_f16((const uint16_t *) block));
        if (has_min(t)) vf_store(scale + 16, vf_load_f16((const uint16_t *) block + 16));
        int32_t first = n * 16 > sp->any_lo ? n * 16 : sp->any_lo;
        int32_t last = n * 16 + 15 < sp->any_hi ? n * 16 + 15 : sp->any_hi;
        if (R > FEW_ROWS && n * 16 >= sp->all_lo && n * 16 + 15 <= sp->all_hi) { /* all rows attend to all keys */
            const char *next = tile[n + (last < sp->any_hi)] + (size_t) (d0 / 32) * block_bytes(t) + at;
            const float *pk = p + n * 16;
            for (int j = 0; j < 16; j++, pk++, next += key_bytes) {
                vf v[2];
                __builtin_prefetch(next, 0, 3);
                if (half) v[0] = load_v(t, block + (size_t) j * key_bytes, 0, 0, scale);
                else PI__UNROLL for (int i = 0; i < V; i++) v[i] = load_v(t, block, j, (d0 / 16 + i) & 1, scale);
                PI__UNROLL for (int r = 0; r < R; r++) {
                    vf w = vf_set1(pk[r * PI__ATTN_S_STRIDE]);
                    PI__UNROLL for (int i = 0; i < V; i++) acc[r * V + i] = vf_fma(w, v[i], acc[r * V + i]);
                }
            }
            continue;
        }
        for (int32_t key = first; key <= last; key++) {
            const float *pk = p + key;
            vf v[2];
            if (half) v[0] = load_v(t, block + (size_t) (key & 15) * key_bytes, 0, 0, scale);
            else PI__UNROLL for (int i = 0; i < V; i++) v[i] = load_v(t, block, key & 15, (d0 / 16 + i) & 1, scale);
            if (key >= sp->all_lo && key <= sp->all_hi) {
                PI__UNROLL for (int r = 0; r < R; r++) {
                    vf w = vf_set1(pk[r * PI__ATTN_S_STRIDE]);
                    PI__UNROLL for (int i = 0; i < V; i++) acc[r * V + i] = vf_fma(w, v[i], acc[r * V + i]);
                }
            } else {
                PI__UNROLL for (int r = 0; r < R; r++) {
                    if (key < sp->lo[r] || key > sp->hi[r]) continue;
                    vf w = vf_set1(pk[r * PI__ATTN_S_STRIDE]);
                    PI__UNROLL for (int i = 0; i < V; i++) acc[r * V + i] = vf_fma(w, v[i], acc[r * V + i]);
                }
            }
        }
    }
    PI__UNROLL for (int r = 0; r < R; r++) {
        PI__UNROLL for (int i = 0; i < V; i++) vf_store(out + (size_t) r * head_dim + d0 + i * 16, acc[r * V + i]);
    }
}

PI__INLINE void pv(int t, int R, const span *sp, const float *p, const char *const *tile, int32_t head_dim, float *out)
{
    int32_t whole = head_dim & ~31;
    for (int32_t d = 0; d < whole; d += 16 * PI__PV_VECS) pv_dims(t, R, PI__PV_VECS, false, sp, p, tile, head_dim, d, out);
    if (whole < head_dim && !has_scale(t)) pv_dims(t, R, 1, true, sp, p, tile, head_dim, whole, out);
}

/* -------------------------------------------------------- instances of qk and pv for each type and number of rows */

typedef void (*qk_fn)(const float *qt, int32_t n_dot, const char *const *tile, const char *const *next, float *s);
typedef void (*pv_fn)(const span *sp, const float *p, const char *const *tile, int32_t head_dim, float *out);

#define PI__FN(T, R)                                                                                                   \
    static void qk1_##T##_##R(const float *qt, int32_t n_dot, const char *const *tile, const char *const *next,        \
                              float *s)                                                                                \
    {                                                                                                                  \
        qk(PI__KV_##T, R, 1, qt, n_dot, tile, next, s);                                                                \
    }                                                                                                                  \
    static void qkn_##T##_##R(const float *qt, int32_t n_dot, const char *const *tile, const char *const *next,        \
                              float *s)                                                                                \
    {                                                                                                                  \
        qk(PI__KV_##T, R, PI__QK_TILES(R), qt, n_dot, tile, next, s);                                                  \
    }                                                                                                                  \
    static void pv_##T##_##R(const span *sp, const float *p, const char *const *tile, int32_t head_dim, float *out)    \
    {                                                                                                                  \
        pv(PI__KV_##T, R, sp, p, tile, head_dim, out);                                                                 \
    }

#if PI__ROWS_MAX == 12
#define PI__EACH_R(X, T) X(T, 1) X(T, 2) X(T, 4) X(T, 6) X(T, 8) X(T, 12)
#elif PI__ROWS_MAX == 6
#define PI__EACH_R(X, T) X(T, 1) X(T, 2) X(T, 4) X(T, 6)
#else
#define PI__EACH_R(X, T) X(T, 1) X(T, 2) X(T, 4)
#endif
#define PI__FNS(T, ...) PI__EACH_R(PI__FN, T)
PI__CACHE_TYPES(PI__FNS)

/* Tables of the instances: [enum pi__kv_index][number of rows]; NULL = no instance for this number of rows. */
#define PI__QK1(T, R) [PI__KV_##T][R] = qk1_##T##_##R,
#define PI__QKN(T, R) [PI__KV_##T][R] = qkn_##T##_##R,
#define PI__PV(T, R) [PI__KV_##T][R] = pv_##T##_##R,
#define PI__QK1S(T, ...) PI__EACH_R(PI__QK1, T)
#define PI__QKNS(T, ...) PI__EACH_R(PI__QKN, T)
#define PI__PVS(T, ...) PI__EACH_R(PI__PV, T)
static const qk_fn qk1_table[PI__N_KV_TYPES][PI__ROWS_MAX + 1] = {PI__CACHE_TYPES(PI__QK1S)};
static const qk_fn qkn_table[PI__N_KV_TYPES][PI__ROWS_MAX + 1] = {PI__CACHE_TYPES(PI__QKNS)};
static const pv_fn pv_table[PI__N_KV_TYPES][PI__ROWS_MAX + 1] = {PI__CACHE_TYPES(PI__PVS)};

static int32_t round_rows(int32_t n)
{
    while (!pv_table[0][n]) n++;
    return n;
}

/* --------------------------------------------------------------------------------------------------- one KV split */

static void pack(const pi__attn_rows *w, float *qt)
{
    for (int32_t r = 0; r < w->n_padded; r++) {
        const float *q = w->q[r < w->n ? r : w->n - 1];
        for (int32_t d = 0; d < w->head_dim; d++) qt[d * w->n_padded + r] = q[d];
    }
}

static void set_span(const pi__attn_rows *w, int32_t base, span *sp)
{
    sp->any_lo = sp->all_lo = 0;
    sp->any_hi = sp->all_hi = PI__KV_SPLIT - 1;
    for (int32_t r = 0; r < w->n_padded; r++) {
        int32_t i = r < w->n ? r : w->n - 1;
        int32_t lo = w->lo[i] > base ? w->lo[i] - base : 0;
        int32_t hi = w->hi[i] - base < PI__KV_SPLIT - 1 ? w->hi[i] - base : PI__KV_SPLIT - 1;
        sp->lo[r] = lo;
        sp->hi[r] = hi;
        if (lo > sp->all_lo) sp->all_lo = lo;
        if (hi < sp->all_hi) sp->all_hi = hi;
        if (r == 0 || lo < sp->any_lo) sp->any_lo = lo;
        if (r == 0 || hi > sp->any_hi) sp->any_hi = hi;
    }
}

/* Adds row r's biases (pi__attention.rel) to its scores s of keys lo..hi of the KV split that begins at position
 * base. */
static void add_rel(const pi__attn_rows *w, int32_t r, int32_t base, float *s, int32_t lo, int32_t hi)
{
    const float *restrict rel = w->rel[r];
    const int32_t reach = w->n_rel / 2, to_key = base - w->pos[r];
    for (int32_t i = lo; i <= hi && w->n_rel == 1; i++) s[i] -= rel[0] * fabsf((float) (to_key + i));
    for (int32_t i = lo; i <= hi && w->n_rel > 1; i++) {
        const int32_t d = to_key + i;
        s[i] += rel[reach + (d < -reach ? -reach : d > reach ? reach : d)];
    }
}

/* Returns the max of the scores s of keys lo..hi of one row, after the softcap `cap` (0 = none), which it applies. Other
 * scores of the same tiles become -INFINITY. */
static float top_score(float *s, int32_t lo, int32_t hi, float cap)
{
    const int32_t first = lo / 16, last = hi / 16;
    const vf lowest = vf_set1(-INFINITY);
    vf top = lowest;
    for (int32_t n = first; n <= last && cap != 0; n++)
        vf_store(s + n * 16, vf_mul(vf_tanh(vf_div(vf_load(s + n * 16), vf_set1(cap))), vf_set1(cap)));
    if (lo % 16) vf_store(s + first * 16, vf_keep(vf_load(s + first * 16), lo % 16, 15, lowest));
    if (hi % 16 < 15) vf_store(s + last * 16, vf_keep(vf_load(s + last * 16), 0, hi % 16, lowest));
    for (int32_t n = first; n <= last; n++) top = vf_max(top, vf_load(s + n * 16)); /* alone: top stays in registers */
    return vf_hmax(top);
}

/* Replaces the scores s of keys lo..hi of one row by e^(s - m), m from top_score(). Returns their sum. */
static float exponentials(float *s, int32_t lo, int32_t hi, float m)
{
    vf top = vf_set1(m), sum = vf_zero();
    for (int32_t n = lo / 16; n <= hi / 16; n++) {
        vf e = vf_exp_down(vf_sub(vf_load(s + n * 16), top));
        vf_store(s + n * 16, e);
        sum = vf_add(sum, e);
    }
    return vf_hsum(sum);
}

/* Prefetches tiles n..end - 1 of cache type t into the second-level cache. Used for up to FEW_ROWS rows, because the
 * hardware prefetcher does not cross from one tile to the next. */
PI__INLINE void fetch_tiles(int t, const char *const *tile, int32_t n, int32_t end, int32_t head_dim)
{
    const size_t bytes = block_bytes(t) * (size_t) head_dim / 32;
    for (; n < end; n++)
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(tile[n] + i, 0, 2);
}

/* s = scores of the rows with the keys in tiles n..end - 1 of a KV split (layout: qk()). tk: cache type of the keys. */
static void qk_tiles(const pi__attn_rows *w, const float *qt, int tk, const char *const *k, int32_t n, int32_t end, float *s)
{
    int32_t step = PI__QK_TILES(w->n_padded);
    for (; n + step <= end; n += step)
        qkn_table[tk][w->n_padded](qt, w->n_dot, k + n, k + (n + 2 * step <= end ? n + step : n), s + n * 16);
    for (; n < end; n++) qk1_table[tk][w->n_padded](qt, w->n_dot, k + n, k + (n + 1 < end ? n + 1 : n), s + n * 16);
}

static void split(const pi__attn_rows *w, const float *qt, int32_t ipart, const char *const *k, const char *const *v,
                 float *s, pi__attn_sum *out)
{
    span sp;
    set_span(w, ipart * PI__KV_SPLIT, &sp);
    const int tk = pi__kv_index(w->type_k), tv = pi__kv_index(w->type_v);
    const int32_t end = sp.any_hi / 16 + 1, step = w->n_padded > FEW_ROWS ? PI__KV_SPLIT / PI__ATTN_TILE : PI__QK_TILES(w->n_padded);
    for (int32_t n = sp.any_lo / 16; n < end; n += step) {
        const int32_t next = n + step < end ? n + step : end;
        if (w->n_padded <= FEW_ROWS) {
            fetch_tiles(tk, k, next, next + step < end ? next + step : end, w->head_dim);
            fetch_tiles(tv, v, n, next, w->head_dim);
        }
        qk_tiles(w, qt, tk, k, n, next, s);
    }
    for (int32_t r = 0; r < w->n; r++) {
        if (sp.lo[r] > sp.hi[r]) continue;
        if (w->n_rel) add_rel(w, r, ipart * PI__KV_SPLIT, s + r * PI__ATTN_S_STRIDE, sp.lo[r], sp.hi[r]);
        out->m[r] = top_score(s + r * PI__ATTN_S_STRIDE, sp.lo[r], sp.hi[r], w->softcap);
    }
    for (int32_t r = 0; r < w->n; r++) /* a loop of its own: no row waits for its maximum */
        if (sp.lo[r] <= sp.hi[r])
            out->l[r] = exponentials(s + r * PI__ATTN_S_STRIDE, sp.lo[r], sp.hi[r], out->m[r]);
    pv_table[tv][w->n_padded](&sp, s, v, w->head_dim, out->acc);
}

static void fold(const pi__attn_rows *w, int32_t ipart, pi__attn_sum *run, const pi__attn_sum *sum)
{
    for (int32_t r = 0; r < w->n; r++) {
        int32_t first = w->lo[r] / PI__KV_SPLIT, last = w->hi[r] / PI__KV_SPLIT;
        if (ipart < first || ipart > last) continue;
        float *restrict acc = run->acc + (size_t) r * w->head_dim;
        const float *restrict add = sum->acc + (size_t) r * w->head_dim;
        if (ipart == first) {
            run->m[r] = sum->m[r];
            run->l[r] = sum->l[r];
            memcpy(acc, add, (size_t) w->head_dim * sizeof(float));
            continue;
        }
        float m = sum->m[r] > run->m[r] ? sum->m[r] : run->m[r];
        float a = exp1(run->m[r] - m), b = exp1(sum->m[r] - m);
        run->m[r] = m;
        run->l[r] = run->l[r] * a + sum->l[r] * b;
        for (int32_t d = 0; d < w->head_dim; d++) acc[d] = acc[d] * a + add[d] * b;
    }
}

static void finish(const pi__attn_rows *w, const pi__attn_sum *run)
{
    for (int32_t r = 0; r < w->n; r++) {
        float l = run->l[r], scale = 1;
        if (w->has_sinks) {
            float m = w->sink[r] > run->m[r] ? w->sink[r] : run->m[r];
            scale = exp1(run->m[r] - m);
            l = l * scale + exp1(w->sink[r] - m);
        }
        scale /= l;
        const float *restrict acc = run->acc + (size_t) r * w->head_dim;
        float *restrict out = w->out[r];
        for (int32_t d = 0; d < w->head_dim; d++) out[d] = acc[d] * scale;
        if (pi__kv_rotated(w->type_v)) turn(w->head_dim, out, true);
        if (!w->gate[r]) continue;
        for (int32_t d = 0; d < w->head_dim; d += 16) {
            vf_store(out + d, vf_mul(vf_load(out + d), vf_sigmoid(vf_load(w->gate[r] + d))));
        }
    }
}

/* ---------------------------------------------------------------------------------------- selection of key blocks */

/* mean[i] = mean of dim i over the 16 * n_tiles keys in blocks b, for i < count. Sums over tiles for each lane, then
 * over lanes. */
PI__INLINE void mean_dims(int t, int count, const char *const *b, int32_t n_tiles, float *mean)
{
    vf acc[32];
    for (int i = 0; i < count; i++) acc[i] = vf_zero();
    for (int32_t n = 0; n < n_tiles; n++) {
        const vf scale = has_scale(t) ? vf_load_f16((const uint16_t *) b[n]) : vf_zero();
        const vf min = has_min(t) ? vf_load_f16((const uint16_t *) b[n] + 16) : vf_zero();
        for (int i = 0; i < count; i++) acc[i] = vf_add(acc[i], load_k(t, b[n], i, scale, min));
    }
    for (int i = 0; i < count; i++) mean[i] = vf_hsum(acc[i]) / (float) (16 * n_tiles);
}

PI__INLINE void mean_keys(int t, int32_t head_dim, const char *const *k, int32_t n_tiles, float *mean)
{
    enum { MOST = 16 };
    const char *b[MOST];
    if (n_tiles > MOST) n_tiles = MOST;
    for (int32_t n = 0; n < n_tiles; n++) b[n] = k[n];
    for (; head_dim >= 32; head_dim -= 32, mean += 32) {
        mean_dims(t, 32, b, n_tiles, mean);
        for (int32_t n = 0; n < n_tiles; n++) b[n] += block_bytes(t);
    }
    if (head_dim && !has_scale(t)) mean_dims(t, 16, b, n_tiles, mean);
}

static void mean(int32_t type, int32_t head_dim, const char *const *k, int32_t n_tiles, float *to)
{
    switch (type) {
#define ROW(type, ...) case PI__##type: mean_keys(PI__KV_##type, head_dim, k, n_tiles, to); break;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: break;
    }
}

/* Returns the address in s of the 16 scores of row r with the keys of tile t. */
static float *scores_at(float *s, int32_t r, int32_t t)
{
    enum { TILES = PI__KV_SPLIT / PI__ATTN_TILE, ROOM = PI__ATTN_MAX_ROWS * PI__ATTN_S_STRIDE };
    return s + (size_t) (t / TILES) * ROOM + r * PI__ATTN_S_STRIDE + t % TILES * PI__ATTN_TILE;
}

static void rank(const pi__attn_rows *w, const float *qt, const float *k, int32_t n, float *s, float *sum)
{
    enum { TILES = PI__KV_SPLIT / PI__ATTN_TILE };
    const int32_t tiles = (n + PI__ATTN_TILE - 1) / PI__ATTN_TILE;
    const char *tile[TILES];
    for (int32_t t = 0; t < tiles; t += TILES) {
        const int32_t end = tiles - t < TILES ? tiles - t : TILES;
        for (int32_t i = 0; i < end; i++) tile[i] = (const char *) (k + (size_t) (t + i) * PI__ATTN_TILE * (size_t) w->head_dim);
        qk_tiles(w, qt, PI__KV_F32, tile, 0, end, scores_at(s, 0, t));
    }
    for (int32_t r = 0; r < w->n; r++) {
        const vf lowest = vf_set1(-INFINITY), cap = vf_set1(w->softcap);
        vf top = lowest;
        for (int32_t t = 0; t < tiles; t++) {
            vf x = vf_load(scores_at(s, r, t));
            if (w->softcap != 0) x = vf_mul(vf_tanh(vf_div(x, cap)), cap);
            x = vf_keep(x, 0, n - 1 - t * PI__ATTN_TILE, lowest);
            vf_store(scores_at(s, r, t), x);
            top = vf_max(top, x);
        }
        top = vf_set1(vf_hmax(top));
        for (int32_t t = 0; t < tiles; t++)
            vf_store(sum + t * 16, vf_add(vf_load(sum + t * 16), vf_exp(vf_sub(vf_load(scores_at(s, r, t)), top))));
    }
}

/* ------------------------------------------------------------------------------------------------- into the cache */

static void rotate(const pi__head_prep *p, float *x)
{
    int32_t half = p->n_rot / 2;
    const float *restrict c = p->rope, *restrict s = p->rope + half;
    float *restrict lo = x, *restrict hi = x + p->pair_stride;
    for (int32_t i = 0; i < half; i++) {
        float a = lo[i], b = hi[i];
        lo[i] = a * c[i] - b * s[i];
        hi[i] = a * s[i] + b * c[i];
    }
}

static void prep(const pi__head_prep *p, const float *src, float *dst)
{
    int32_t n = p->head_dim;
    if (p->norm_last) { /* rotates first, then calls itself for the norm */
        pi__head_prep turn_only = *p, norm_only = *p;
        turn_only.norm = norm_only.norm_last = turn_only.norm_last = false;
        turn_only.scale = 1.0f;
        norm_only.rope = NULL;
        prep(&turn_only, src, dst);
        prep(&norm_only, dst, dst);
        return;
    }
    float f = p->norm ? rms_factor(src, n, p->eps) : 1.0f;
    const float *w = p->norm ? p->w : NULL;
    for (int32_t i = 0; i < n; i += 16) {
        vf x = vf_load(src + i);
        if (p->norm) x = vf_mul(x, vf_set1(f));
        if (w) x = vf_mul(x, vf_load(w + i));
        vf_store(dst + i, x);
    }
    if (p->rope) rotate(p, dst);
    if (p->scale != 1.0f) {
        for (int32_t i = 0; i < n; i++) dst[i] *= p->scale;
    }
}

#define ROW(type, fn, side, ...)                                                                                     \
    _Static_assert(side % 2 == 0 && side <= PI__KV_SIDE_MAX && PI__KV_CODES_##type <= PI__KV_CODES_MAX, "as load_k, qk " \
                   "and store_k have it: " #fn);
PI__CACHE_TYPES(ROW)
#undef ROW

typedef void (*put_fn)(const float *x, uint8_t *to);

PI__INLINE void store_side(int side, char *tile, int32_t lane, const uint8_t *b)
{
    for (int w = 0; w < side / 2; w++) memcpy(tile + (w * 16 + lane) * 2, b + 2 * w, 2);
}

/* Converts min(32, left) values of x to the type's row format at `to`; a last group of 16 values is padded with zeros.
 * Returns the number of values of x converted. */
PI__INLINE int put_dims(put_fn put, const float *x, int32_t left, uint8_t *to)
{
    float last[32] = {0};
    if (left >= 32) {
        put(x, to);
        return 32;
    }
    memcpy(last, x, (size_t) left * sizeof *x);
    put(last, to);
    return left;
}

/* Stores one head of one token (head_dim values of x) as key number `lane` of a K tile. side, codes: bytes of side data
 * and of codes per 32 values. */
PI__INLINE void store_k_by(put_fn put, int side, int codes, char *tile, int32_t lane, int32_t head_dim, const float *x)
{
    /* bytes stored adjacently per key: an F32 or 16-bit value, a 4-byte word of 3-bit codes (TQ3_0), or 1 byte */
    const int unit = codes > 32 ? codes / 32 : codes % 16 ? 4 : 1;
    uint8_t b[PI__KV_SIDE_MAX + PI__KV_CODES_MAX];
    for (int32_t d = 0; d < head_dim; d += 32, tile += 16 * (side + codes)) {
        const int n = codes * put_dims(put, x + d, head_dim - d, b) / 32;
        store_side(side, tile, lane, b);
        for (int i = 0; i < n / unit; i++)
            memcpy(tile + 16 * side + (i * 16 + lane) * unit, b + side + i * unit, (size_t) unit);
    }
}

PI__INLINE void store_v_by(put_fn put, int side, int codes, char *tile, int32_t lane, int32_t head_dim, const float *x)
{
    uint8_t b[PI__KV_SIDE_MAX + PI__KV_CODES_MAX];
    for (int32_t d = 0; d < head_dim; d += 32, tile += 16 * (side + codes)) {
        const int n = codes * put_dims(put, x + d, head_dim - d, b) / 32;
        store_side(side, tile, lane, b);
        memcpy(tile + 16 * side + lane * n, b + side, (size_t) n);
    }
}

static void store_k(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x)
{
    switch (type) {
#define ROW(type, fn, ...) \
    case PI__##type: store_k_by(put_##fn, PI__KV_SIDE_##type, PI__KV_CODES_##type, tile, lane, head_dim, x); break;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: break;
    }
}

static void store_v(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x)
{
    switch (type) {
#define ROW(type, fn, ...) \
    case PI__##type: store_v_by(put_##fn, PI__KV_SIDE_##type, PI__KV_CODES_##type, tile, lane, head_dim, x); break;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: break;
    }
}

static void store_row(int32_t type, char *dst, int32_t n, const float *x)
{
    switch (type) {
#define ROW(type, fn, ...)                                                                              \
    case PI__##type:                                                                                    \
        for (int32_t d = 0; d < n; d += 32, dst += PI__KV_SIDE_##type + PI__KV_CODES_##type)           \
            put_##fn(x + d, (uint8_t *) dst);                                                           \
        break;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: break;
    }
}

static void load_row(int32_t type, const char *src, int32_t n, float *x)
{
    switch (type) {
#define ROW(type, fn, ...)                                                                              \
    case PI__##type:                                                                                    \
        for (int32_t d = 0; d < n; d += 32, src += PI__KV_SIDE_##type + PI__KV_CODES_##type) get_##fn(src, x + d); \
        break;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: break;
    }
}

/* ------------------------------------------------------------------------------------------------- rows of floats */

static void add_norm(float *x, const float *y, const float *w, const float *bias, float eps, float scale, int64_t n)
{
    float f = w ? rms_factor(y, n, eps) : 1.0f;
    if (w) bias = NULL;
    for (int64_t i = 0; i < n; i++) x[i] = (x[i] + (w ? y[i] * f * w[i] : bias ? y[i] + bias[i] : y[i])) * scale;
}

/* Returns the sum over i < n of (x[i] - of)^2 if squares is true, else of x[i] - of. Sums by lane = i mod 16, then adds
 * lanes 8, 4, 2, 1 apart. */
static float sum_from(const float *x, float of, bool squares, int64_t n)
{
    vf sum = vf_zero(), m = vf_set1(of);
    for (int64_t i = 0; i < n; i += 16) {
        vf d = vf_sub(n - i < 16 ? vf_load_tail(x + i, (int) (n - i), of) : vf_load(x + i), m);
        sum = vf_add(sum, squares ? vf_mul(d, d) : d);
    }
    return vf_hsum(sum);
}

static void layer_norm(float *x, const float *y, const float *b, const float *w, const float *shift, float eps, int64_t n)
{
    for (int64_t i = 0; i < n && y; i++) x[i] += y[i];
    for (int64_t i = 0; i < n && b; i++) x[i] += b[i];
    const float mean = sum_from(x, 0, false, n) / (float) n;
    const float f = 1.0f / sqrtf(sum_from(x, mean, true, n) / (float) n + eps);
    for (int64_t i = 0; i < n; i++) x[i] = (x[i] - mean) * f * w[i] + (shift ? shift[i] : 0);
}

static vf xielu(vf x, const float p[4])
{
    const vf line = vf_mul(vf_set1(p[2]), x), square = vf_mul(vf_set1(p[0]), vf_mul(x, x));
    const vf low = vf_select_lt(x, vf_set1(p[3]), x, vf_set1(p[3]));
    const vf curve = vf_mul(vf_set1(p[1]), vf_sub(vf_sub(vf_exp(low), vf_set1(1)), x));
    return vf_add(line, vf_select_lt(vf_zero(), x, square, curve));
}

static vf activation(const pi__activate *a, vf x)
{
    const vf over = vf_max(vf_zero(), x); /* propagates NaN */
    switch (a->kind) {
    case PI__ACT_GELU: return vf_gelu_erf(x);
    case PI__ACT_GELU_TANH: return vf_gelu_tanh(x);
    case PI__ACT_GELU_QUICK: return vf_mul(x, vf_sigmoid(vf_mul(x, vf_set1(1.702f))));
    case PI__ACT_RELU2: return vf_mul(over, over);
    case PI__ACT_NONE: return x;
    case PI__ACT_RELU: return over;
    default: return xielu(x, a->p);
    }
}

static void activate(const pi__activate *a, float *x)
{
    const int64_t n = a->n;
    for (int64_t i = 0; i < n && a->b; i++) x[i] += a->b[i];
    for (int64_t i = 0; i < n; i += 16) {
        float t[16];
        const int64_t k = n - i < 16 ? n - i : 16;
        vf_store(t, activation(a, k < 16 ? vf_load_tail(x + i, (int) k, 0) : vf_load(x + i)));
        memcpy(x + i, t, (size_t) k * sizeof(float));
    }
}

static void softcap(float *x, float cap, size_t n)
{
    vf c = vf_set1(cap);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) vf_store(x + i, vf_mul(vf_tanh(vf_div(vf_load(x + i), c)), c));
    if (i == n) return;
    float t[16];
    vf_store(t, vf_mul(vf_tanh(vf_div(vf_load_tail(x + i, (int) (n - i), 0), c)), c));
    memcpy(x + i, t, (n - i) * sizeof(float));
}

const pi__cpu_attn_kernels PI__KERNELS = {
    PI__ROWS_MAX, round_rows, pack, split, fold, finish, mean, rank, prep, turn, store_k, store_v, store_row, load_row, add_norm,
    layer_norm, activate, softcap,
};

#undef PI__ROWS_MAX
#undef PI__QK_TILES
#undef PI__PV_VECS
#undef PI__KERNELS
