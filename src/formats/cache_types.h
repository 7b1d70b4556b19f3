/* The types that keys and values are cached in. A type is a row of this table: the options (words, and what they mean), the
 * CPU's attention and the device's are made from it. C and C++.
 *
 * A new type is a row, of a format that weight_formats.h has, and its conversions: put_<fn>, get_<fn>, load_k_<fn> and
 * load_v_<fn> in backend/cpu/attention_kernels.h, cache_put_<fn> and cache_get8_<fn> in kernels/cache.cuh. Neither compiles
 * without them.
 *
 * type     PI__<type>
 * fn       of the functions, and the word of the options
 * scale    bytes of the scale of 32 values: 2, an f16, or 0, they have none. The rest of their bytes are codes
 * split    on devices a value is the sum of two f16 (hi + lo), not one */
#ifndef PI__CACHE_TYPES_H
#define PI__CACHE_TYPES_H

#include "formats/weight_formats.h"

#define PI__CACHE_TYPES(X)  \
    /* type, fn, scale, split */ \
    X(F32,  f32,  0, 1)     \
    X(F16,  f16,  0, 0)     \
    X(BF16, bf16, 0, 0)     \
    X(Q8_0, q8_0, 2, 0)     \
    X(Q4_0, q4_0, 2, 0)

/* "|f32|f16...": the words of an option, behind another word or from the second byte on. */
#define PI__CACHE_TYPE_WORD(type, fn, ...) "|" #fn
#define PI__CACHE_TYPE_WORDS PI__CACHE_TYPES(PI__CACHE_TYPE_WORD)

/* PI__KV_F32 and so on, counted from 0; of 32 values PI__KV_SCALE_F32 bytes of scale, PI__KV_CODES_F32 bytes of codes. */
enum pi__kv_index {
#define PI__ROW(type, ...) PI__KV_##type,
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
    PI__N_KV_TYPES
};
enum pi__kv_bytes {
#define PI__ROW(type, fn, scale, split) \
    PI__KV_SCALE_##type = scale, PI__KV_CODES_##type = 32 / PI__BLOCK_##type * PI__SIZE_##type - scale,
    PI__CACHE_TYPES(PI__ROW)
#undef PI__ROW
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
