/* The types that keys and values are cached in. A type is a row of this table: the options (words, and what they mean), the
 * CPU's attention and the device's are made from it. C and C++.
 *
 * A new type is a row, of a format that weight_formats.h has or one of caches alone (below), and its conversions: put_<fn>,
 * get_<fn>, load_k_<fn> and load_v_<fn> in backend/cpu/attention_kernels.h, cache_put_<fn> and cache_get8_<fn> in
 * kernels/cache.cuh. Neither compiles without them.
 *
 * type     PI__<type>
 * fn       of the functions, and the word of the options
 * side     bytes that 32 values have beside their codes, which are the rest: words of 2 bytes, as in the file. The scale
 *          (f16); the minimum (f16), if they have one; the fifth bits of the codes, 16 in a word, if they have these
 * minimum  1: values are code * scale + minimum
 * split    on devices a value is the sum of two f16 (hi + lo), not one
 * rotated  1: values are cached rotated, see cache_rotation.h */
#ifndef PI__CACHE_TYPES_H
#define PI__CACHE_TYPES_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/weight_formats.h"

#define PI__CACHE_TYPES(X)        \
    /* type, fn, side, minimum, split, rotated */ \
    X(F32,    f32,    0, 0, 1, 0) \
    X(F16,    f16,    0, 0, 0, 0) \
    X(BF16,   bf16,   0, 0, 0, 0) \
    X(Q8_0,   q8_0,   2, 0, 0, 0) \
    X(Q5_1,   q5_1,   8, 1, 0, 0) \
    X(Q5_0,   q5_0,   6, 0, 0, 0) \
    X(Q4_1,   q4_1,   4, 1, 0, 0) \
    X(Q4_0,   q4_0,   2, 0, 0, 0) \
    X(IQ4_NL, iq4_nl, 2, 0, 0, 0) \
    X(TQ4_0,  tq4_0,  2, 0, 0, 1) \
    X(TQ3_0,  tq3_0,  2, 0, 0, 1)

/* Formats of caches alone: no tensor of a file has them. Of 32 values, a scale (f16) and codes, indices into a table of
 * cache_rotation.h. TQ4_0: code i in the low nibble of byte i, code i + 16 in the high one. TQ3_0: 32 codes of 3 bits, code i
 * from bit 3 i on (bit b is bit b % 8 of byte b / 8); in tiles of the CPU's K, words of 4 bytes. */
enum pi__cache_format { PI__TQ4_0 = PI__N_TYPES, PI__TQ3_0 };
enum { PI__BLOCK_TQ4_0 = 32, PI__SIZE_TQ4_0 = 18, PI__BLOCK_TQ3_0 = 32, PI__SIZE_TQ3_0 = 14 };

/* "|f32|f16...": the words of an option, behind another word or from the second byte on. */
#define PI__CACHE_TYPE_WORD(type, fn, ...) "|" #fn
#define PI__CACHE_TYPE_WORDS PI__CACHE_TYPES(PI__CACHE_TYPE_WORD)

/* PI__KV_F32 and so on, counted from 0; of 32 values PI__KV_SIDE_F32 bytes of side, PI__KV_CODES_F32 bytes of codes. */
enum pi__kv_index {
#define PI__ROW(type, ...) PI__KV_##type,
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    PI__N_KV_TYPES
};
enum pi__kv_bytes {
#define PI__ROW(type, fn, side, ...) \
    PI__KV_SIDE_##type = side, PI__KV_CODES_##type = 32 / PI__BLOCK_##type * PI__SIZE_##type - side,
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    PI__KV_SIDE_MAX = 8,
    PI__KV_CODES_MAX = 128
};

/* enum pi__kv_index of an enum pi__type, -1: not a type of caches. */
PI__CONSTANT int pi__kv_index(int32_t type)
{
    switch (type) {
#define PI__ROW(type, ...) case PI__##type: return PI__KV_##type;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return -1;
    }
}

/* true: values are cached rotated. */
PI__CONSTANT bool pi__kv_rotated(int32_t type)
{
    switch (type) {
#define PI__ROW(type, fn, side, minimum, split, rotated) case PI__##type: return rotated;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return false;
    }
}

/* The word of the options. */
static inline const char *pi__kv_name(int32_t type)
{
    switch (type) {
#define PI__ROW(type, fn, ...) case PI__##type: return #fn;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return "unknown";
    }
}

/* Values that lie in a group, with one scale; n of a row are a multiple of it. 0: not a type of caches. */
PI__CONSTANT int32_t pi__kv_group(int32_t type)
{
    switch (type) {
#define PI__ROW(type, ...) case PI__##type: return PI__BLOCK_##type;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return 0;
    }
}

/* Bytes of a row of n values. */
PI__CONSTANT size_t pi__kv_row_size(int32_t type, int64_t n)
{
    switch (type) {
#define PI__ROW(type, ...) case PI__##type: return (size_t) n / PI__BLOCK_##type * PI__SIZE_##type;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return 0;
    }
}

#endif
