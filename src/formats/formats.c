/* The table of tensor formats, conversions of scalars, and dispatch to the readers and writers (see formats.h).
 *
 * No memory, no state. Invariant: an entry is marked readable or writable exactly when it has the function. */
#include "formats/formats.h"

#include <strings.h>

#include "formats/formats_impl.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct format {
    pi__type_info info;
    pi__reader read;
    pi__writer write;
} format;

#define RW(name, blck, size, fn) {{name, blck, size, true, true}, pi__read_##fn, pi__write_##fn}
#define RO(name, blck, size, fn) {{name, blck, size, true, false}, pi__read_##fn, NULL}
#define NO(name, blck, size) {{name, blck, size, false, false}, NULL, NULL}

static const format formats[PI__N_TYPES] = {
    [PI__F32] = RW("F32", 1, 4, f32),
    [PI__F16] = RW("F16", 1, 2, f16),
    [PI__BF16] = RW("BF16", 1, 2, bf16),
    [PI__F64] = NO("F64", 1, 8),
    [PI__I8] = NO("I8", 1, 1),
    [PI__I16] = NO("I16", 1, 2),
    [PI__I32] = NO("I32", 1, 4),
    [PI__I64] = NO("I64", 1, 8),
    [PI__Q4_0] = RW("Q4_0", 32, 18, q4_0),
    [PI__Q4_1] = RW("Q4_1", 32, 20, q4_1),
    [PI__Q5_0] = RW("Q5_0", 32, 22, q5_0),
    [PI__Q5_1] = RW("Q5_1", 32, 24, q5_1),
    [PI__Q8_0] = RW("Q8_0", 32, 34, q8_0),
    [PI__Q8_1] = NO("Q8_1", 32, 40),
    [PI__Q2_K] = RW("Q2_K", 256, 84, q2_k),
    [PI__Q3_K] = RW("Q3_K", 256, 110, q3_k),
    [PI__Q4_K] = RW("Q4_K", 256, 144, q4_k),
    [PI__Q5_K] = RW("Q5_K", 256, 176, q5_k),
    [PI__Q6_K] = RW("Q6_K", 256, 210, q6_k),
    [PI__Q8_K] = NO("Q8_K", 256, 292),
    [PI__IQ2_XXS] = RO("IQ2_XXS", 256, 66, iq2_xxs),
    [PI__IQ2_XS] = RO("IQ2_XS", 256, 74, iq2_xs),
    [PI__IQ2_S] = RO("IQ2_S", 256, 82, iq2_s),
    [PI__IQ3_XXS] = RO("IQ3_XXS", 256, 98, iq3_xxs),
    [PI__IQ3_S] = RO("IQ3_S", 256, 110, iq3_s),
    [PI__IQ1_S] = RO("IQ1_S", 256, 50, iq1_s),
    [PI__IQ1_M] = RO("IQ1_M", 256, 56, iq1_m),
    [PI__IQ4_NL] = RW("IQ4_NL", 32, 18, iq4_nl),
    [PI__IQ4_XS] = RO("IQ4_XS", 256, 136, iq4_xs),
    [PI__TQ1_0] = RO("TQ1_0", 256, 54, tq1_0),
    [PI__TQ2_0] = RO("TQ2_0", 256, 66, tq2_0),
    [PI__MXFP4] = RW("MXFP4", 32, 17, mxfp4),
    [PI__NVFP4] = RW("NVFP4", 64, 36, nvfp4),
};

const int8_t pi__iq4nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t pi__e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static const format *format_of(int32_t type)
{
    if (type < 0 || (size_t) type >= COUNT(formats) || !formats[type].info.name) return NULL;
    return &formats[type];
}

const pi__type_info *pi__type_info_of(int32_t type)
{
    const format *f = format_of(type);
    return f ? &f->info : NULL;
}

int32_t pi__type_from_name(const char *name)
{
    for (int32_t i = 0; i < PI__N_TYPES; i++)
        if (formats[i].info.name && strcasecmp(name, formats[i].info.name) == 0) return i;
    return -1;
}

bool pi__dequantize_row(int32_t type, const void *src, float *dst, int64_t n)
{
    const format *f = format_of(type);
    if (!f || !f->read) return false;
    f->read(src, dst, n / f->info.blck_size);
    return true;
}

bool pi__quantize_row(int32_t type, const float *src, void *dst, int64_t n, const float *importance)
{
    const format *f = format_of(type);
    if (!f || !f->write) return false;
    f->write(src, dst, n / f->info.blck_size, importance);
    return true;
}

float pi__f16_to_f32(uint16_t h) { return pi__half(h); }

uint16_t pi__f32_to_f16(float f)
{
    union { float f; uint32_t u; } v = {f};
    uint16_t sign = (uint16_t) (v.u >> 16 & 0x8000u);
    v.u &= 0x7fffffffu;
    if (v.u > 0x7f800000u) return (uint16_t) (sign | 0x7e00u | (v.u >> 13 & 0x3ffu)); /* NaN: quiet, with payload */
    if (v.u >= 0x477ff000u) return (uint16_t) (sign | 0x7c00u); /* 65520 and above */
    if (v.u < 0x38800000u) { /* below 2^-14: adding 0.5 rounds at 2^-24, to nearest even */
        v.f += 0.5f;
        return (uint16_t) (sign | (v.u - 0x3f000000u));
    }
    v.u += 0xfffu + (v.u >> 13 & 1);
    return (uint16_t) (sign | (v.u - (112u << 23)) >> 13);
}

uint16_t pi__f32_to_bf16(float f)
{
    union { float f; uint32_t u; } v = {f};
    if ((v.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t) (v.u >> 16 | 0x40u);
    return (uint16_t) ((v.u + 0x7fffu + (v.u >> 16 & 1)) >> 16);
}

float pi__ue4m3_half(uint8_t e)
{
    uint32_t m = e & 0x7fu;
    if (e == 0x7f) return 0.0f;
    if (m < 8) return (float) m * 0x1p-10f;
    union { uint32_t u; float f; } v = {(m << 20) + (119u << 23)}; /* bias 127 - 7, one less for the half */
    return v.f;
}

float pi__clean(const float *src, float *dst, int n)
{
    const float limit = 65504.0f, tiny = 0x1p-100f;
    float amax = 0;
    for (int i = 0; i < n; i++) {
        float x = src[i] == src[i] ? src[i] : 0.0f;
        x = x > limit ? limit : x < -limit ? -limit : x;
        float a = x < 0 ? -x : x;
        amax = a > amax ? a : amax;
        dst[i] = x;
    }
    if (amax < tiny) {
        memset(dst, 0, (size_t) n * sizeof *dst);
        return 0;
    }
    return amax;
}
