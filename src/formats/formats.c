/* The table of tensor formats (its rows are in weight_formats.h), scalar conversions, and dispatch to readers and
 * writers. See formats.h.
 *
 * No memory, no state. Invariant: an entry is marked readable (writable) if and only if it has a reader (writer)
 * function. */
#include "formats/formats.h"

#include <strings.h>

#include "formats/formats_impl.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct format {
    pi__type_info info;
    pi__reader read;
    pi__writer write;
} format;

#define MAY_RW true, true
#define MAY_RO true, false
#define MAY_NO false, false
#define READER_RW(fn) pi__read_##fn
#define READER_RO(fn) pi__read_##fn
#define READER_NO(fn) NULL
#define WRITER_RW(fn) pi__write_##fn
#define WRITER_RO(fn) NULL
#define WRITER_NO(fn) NULL
#define ROW(type, id, block, size, how, fn, codes, plane, offset, scales, d_at, fit) \
    [PI__##type] = {{#type, block, size, MAY_##how, PI__##fit}, READER_##how(fn), WRITER_##how(fn)},

static const format formats[PI__N_TYPES] = {PI__FORMATS(ROW)};

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

int32_t pi__kv_from_name(const char *name, size_t n)
{
#define TYPE(type, ...) PI__##type,
    static const int32_t types[] = {PI__CACHE_TYPES(TYPE)};
#undef TYPE
    for (size_t i = 0; i < COUNT(types); i++) {
        const char *word = pi__kv_name(types[i]);
        if (strlen(word) == n && !strncasecmp(name, word, n)) return types[i];
    }
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
    /* below 2^-14 (half subnormals): adding 0.5 rounds to a multiple of 2^-24, to nearest even */
    if (v.u < 0x38800000u) {
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
    /* exponent bias 127 - 7, minus 1 because the result is half of the value */
    union { uint32_t u; float f; } v = {(m << 20) + (119u << 23)};
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
