/* The types that keys and values are cached in. A type is a row of this table: the options (words, and what they mean), the
 * CPU's attention and the device's are made from it. C and C++.
 *
 * A new type is a row, of a format that weight_formats.h has, and its conversions: put_<fn>, get_<fn>, load_k_<fn> and
 * load_v_<fn> in backend/cpu/attention_kernels.h, cache_put_<fn> and cache_get8_<fn> in kernels/cache.cuh. Neither compiles
 * without them.
 *
 * type     PI__<type>
 * fn       of the functions, and the word of the options
 * side     bytes that 32 values have beside their codes, which are the rest: words of 2 bytes, as in the file. The scale
 *          (f16); the minimum (f16), if they have one; the fifth bits of the codes, 16 in a word, if they have these
 * minimum  1: values are code * scale + minimum
 * split    on devices a value is the sum of two f16 (hi + lo), not one */
#ifndef PI__CACHE_TYPES_H
#define PI__CACHE_TYPES_H

#include "formats/weight_formats.h"

#define PI__CACHE_TYPES(X)        \
    /* type, fn, side, minimum, split */ \
    X(F32,    f32,    0, 0, 1)    \
    X(F16,    f16,    0, 0, 0)    \
    X(BF16,   bf16,   0, 0, 0)    \
    X(Q8_0,   q8_0,   2, 0, 0)    \
    X(Q5_1,   q5_1,   8, 1, 0)    \
    X(Q5_0,   q5_0,   6, 0, 0)    \
    X(Q4_1,   q4_1,   4, 1, 0)    \
    X(Q4_0,   q4_0,   2, 0, 0)    \
    X(IQ4_NL, iq4_nl, 2, 0, 0)

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

#endif
