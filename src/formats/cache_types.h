/* The types of cached keys and values, one per row of table PI__CACHE_TYPES. The options, the CPU's attention and the
 * device's attention are generated from the table. C and C++.
 *
 * To add a type, add a row, with a format of weight_formats.h or of enum pi__cache_format below. Then add its
 * conversions: put_<fn>, get_<fn>, load_k_<fn> and load_v_<fn> in backend/cpu/attention_kernels.h, cache_put_<fn> and
 * cache_get8_<fn> in kernels/cache.cuh. Neither file compiles without them.
 *
 * type     PI__<type>
 * fn       suffix of the functions, and name in the options
 * side     bytes per 32 values besides the codes, as 2-byte words in this order: the scale (f16); the
 *          minimum (f16), if any; the fifth bits of the codes, 16 per word, if any
 * minimum  1 = values are code * scale + minimum
 * split    1 = device kernels split a value into the sum of two f16 (hi + lo)
 * rotated  1 = values are cached rotated, see cache_rotation.h */
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

/* Formats that only caches use; no tensor in a file has them. 32 values have a scale (f16) and codes: indices into a
 * table of cache_rotation.h. TQ4_0: code i is in the low nibble of byte i, code i + 16 in the high nibble. TQ3_0: 32
 * codes of 3 bits, code i starts at bit 3 i (bit b is bit b % 8 of byte b / 8); in K tiles of the CPU, the codes of a
 * key are three 4-byte words. */
enum pi__cache_format { PI__TQ4_0 = PI__N_TYPES, PI__TQ3_0 };
enum { PI__BLOCK_TQ4_0 = 32, PI__SIZE_TQ4_0 = 18, PI__BLOCK_TQ3_0 = 32, PI__SIZE_TQ3_0 = 14 };

/* "|f32|f16...": the names of all cache types, for the text of an option. Skip the first byte, or append to another
 * name. */
#define PI__CACHE_TYPE_WORD(type, fn, ...) "|" #fn
#define PI__CACHE_TYPE_WORDS PI__CACHE_TYPES(PI__CACHE_TYPE_WORD)

/* PI__KV_F32, PI__KV_F16, ...: index of each cache type, from 0. For each type, 32 values have PI__KV_SIDE_<type> bytes
 * of side data and PI__KV_CODES_<type> bytes of codes. */
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

/* Returns the enum pi__kv_index of an enum pi__type; -1 = not a cache type. */
PI__CONSTANT int pi__kv_index(int32_t type)
{
    switch (type) {
#define PI__ROW(type, ...) case PI__##type: return PI__KV_##type;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return -1;
    }
}

/* Returns true if values of this enum pi__type are cached rotated. */
PI__CONSTANT bool pi__kv_rotated(int32_t type)
{
    switch (type) {
#define PI__ROW(type, fn, side, minimum, split, rotated) case PI__##type: return rotated;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return false;
    }
}

/* Returns the type's name in the options. */
static inline const char *pi__kv_name(int32_t type)
{
    switch (type) {
#define PI__ROW(type, fn, ...) case PI__##type: return #fn;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return "unknown";
    }
}

/* Returns the number of values that share a scale (a group); the length of a row must be a multiple of it. Returns 0 if
 * type is not a cache type. */
PI__CONSTANT int32_t pi__kv_group(int32_t type)
{
    switch (type) {
#define PI__ROW(type, ...) case PI__##type: return PI__BLOCK_##type;
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    default: return 0;
    }
}

/* Returns the bytes of a cached row of n values; 0 if type is not a cache type. */
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
