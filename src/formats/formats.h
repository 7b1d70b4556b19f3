/* The block formats of tensors: sizes, exact reading, and writing.
 *
 * A format divides a row into blocks of blck_size values, stored in type_size bytes. Reading is bitwise identical
 * to the reference (PyPI package `gguf`). Pure functions, no memory, any thread. */
#ifndef PI__FORMATS_H
#define PI__FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/cache_types.h"
#include "formats/weight_formats.h"

typedef struct pi__type_info {
    const char *name;   /* "Q4_K"; NULL = no such type */
    uint32_t blck_size; /* values per block */
    uint32_t type_size; /* bytes per block */
    bool readable;      /* pi__dequantize_row supports it */
    bool writable;      /* pi__quantize_row supports it */
    /* enum pi__type that `quantize` writes instead if the row length is no multiple of blck_size */
    int32_t fit;
} pi__type_info;

/* Returns the properties of an enum pi__type; NULL = not in the enum. */
const pi__type_info *pi__type_info_of(int32_t type);
/* Returns true for F32, F16 and BF16, which have no blocks. */
static inline bool pi__type_is_float(int32_t type) { return type == PI__F32 || type == PI__F16 || type == PI__BF16; }
/* Returns the enum pi__type with this name (case-insensitive); -1 = unknown name. */
int32_t pi__type_from_name(const char *name);
/* Returns the enum pi__type of the cache type with this name (n bytes, case-insensitive); -1 = unknown name. */
int32_t pi__kv_from_name(const char *name, size_t n);
/* Returns the bytes of a row of n values; n is a multiple of blck_size. */
static inline size_t pi__row_size(const pi__type_info *t, int64_t n)
{
    return (size_t) n / t->blck_size * t->type_size;
}

/* Converts n values (a multiple of blck_size) from the type's blocks at src, which may be unaligned, to floats.
 * Returns false if the type is not readable. */
bool pi__dequantize_row(int32_t type, const void *src, float *dst, int64_t n);
/* Converts n floats (a multiple of blck_size) to the type's blocks at dst. importance: [n] weights of the values'
 * squared errors; NULL = all values count equally. Returns false if the type is not writable. Any input is valid: block
 * formats store NaN as 0 and clamp magnitudes (including infinity) to 65504. */
bool pi__quantize_row(int32_t type, const float *src, void *dst, int64_t n, const float *importance);

/* Returns the type that matrices of this type have after loading: Q4_0 for Q1_0 and Q2_0, else `type` itself. */
int32_t pi__loaded_type(int32_t type);
/* Converts n values (a multiple of blck_size) of Q1_0 or Q2_0 to Q4_0 blocks at dst; the values do not change. */
void pi__widen_row(int32_t type, const void *src, void *dst, int64_t n);

/* Writes the 32 unsigned codes of values 32 j to 32 j + 31 of the (super-)block at p to c. Q8_0: the signed code with
 * its highest bit inverted (code + 128). Table formats (IQ4, FP4): indices into the table. Supported types:
 * PI__CODE_FORMATS and PI__TERNARY_FORMATS; others leave c unchanged. */
void pi__block_codes(int32_t type, const uint8_t *p, int j, uint8_t *c);

/* Exact scalar conversions; NaN, infinities and subnormals are kept. */
float pi__f16_to_f32(uint16_t h);
uint16_t pi__f32_to_f16(float f); /* rounds to nearest even */
static inline float pi__bf16_to_f32(uint16_t h) { union { uint32_t u; float f; } v = {(uint32_t) h << 16}; return v.f; }
uint16_t pi__f32_to_bf16(float f); /* rounds to nearest even; NaN becomes quiet */

/* Values of the 4-bit codes 0..15. */
extern const int8_t pi__iq4nl_values[16]; /* IQ4_NL, IQ4_XS */
extern const int8_t pi__e2m1_values[16];  /* MXFP4, NVFP4: doubled values, which are integers */

#endif
