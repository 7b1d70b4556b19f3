/* The block formats that tensors are stored in: sizes, exact reading, and writing.
 *
 * A format cuts a row into blocks of blck_size values held in type_size bytes. Reading is bit for bit what the
 * reference (`gguf` of PyPI) computes. Pure functions, no memory, any thread. */
#ifndef PI__FORMATS_H
#define PI__FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/cache_types.h"
#include "formats/weight_formats.h"

typedef struct pi__type_info {
    const char *name;   /* "Q4_K"; NULL: no such type */
    uint32_t blck_size; /* values a block */
    uint32_t type_size; /* bytes a block */
    bool readable;      /* pi__dequantize_row knows it */
    bool writable;      /* pi__quantize_row knows it */
    int32_t fit;        /* what is written instead where rows do not divide into blocks */
} pi__type_info;

/* NULL for a number that is not in the enum. */
const pi__type_info *pi__type_info_of(int32_t type);
/* F32, F16 or BF16: a value is a number by itself. */
static inline bool pi__type_is_float(int32_t type) { return type == PI__F32 || type == PI__F16 || type == PI__BF16; }
/* -1: unknown name (case does not matter). */
int32_t pi__type_from_name(const char *name);
/* The same of caches' types: the word of the options, n bytes. */
int32_t pi__kv_from_name(const char *name, size_t n);
/* Bytes of a row of n values; n must be a multiple of blck_size. */
static inline size_t pi__row_size(const pi__type_info *t, int64_t n) { return (size_t) n / t->blck_size * t->type_size; }

/* n values (a multiple of blck_size) from src (no alignment needed) to dst. false: not a readable type. */
bool pi__dequantize_row(int32_t type, const void *src, float *dst, int64_t n);
/* n values (a multiple of blck_size) to dst. importance: n weights of the columns, or NULL. false: not writable.
 * Any input is defined: block formats store NaN as 0 and larger magnitudes than 65504 (infinities too) as that. */
bool pi__quantize_row(int32_t type, const float *src, void *dst, int64_t n, const float *importance);

/* The 32 codes of block j of the (super-)block at p, unsigned: Q8_0's with their highest bit turned over, those of table
 * formats (IQ4, FP4) the index into the table. Types: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, the K formats, IQ4, FP4, TQ. */
void pi__block_codes(int32_t type, const uint8_t *p, int j, uint8_t *c);

/* Scalars, exact; NaN and infinities kept, subnormals too. */
float pi__f16_to_f32(uint16_t h);
uint16_t pi__f32_to_f16(float f); /* round to nearest even */
static inline float pi__bf16_to_f32(uint16_t h) { union { uint32_t u; float f; } v = {(uint32_t) h << 16}; return v.f; }
uint16_t pi__f32_to_bf16(float f); /* round to nearest even, NaN quiet */

/* Lookup tables that kernels share: values of a 4-bit code. */
extern const int8_t pi__iq4nl_values[16]; /* IQ4_NL, IQ4_XS */
extern const int8_t pi__e2m1_values[16];  /* MXFP4, NVFP4: the value doubled, an integer */

#endif
