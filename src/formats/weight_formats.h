/* The weight formats, one per row of this table, with all their numbers and names. Generated from the table: sizes and
 * names (formats.c), the CPU's tiles (backend/cpu/linear.h), the device's tiles (backend/cuda/pack.c), its kernels
 * (kernels/codes.cuh), and the types that `quantize` can write. C and C++.
 *
 * To add a format, add a row, its reader and writer (formats_impl.h), and its codes (codes.c). If its scales are
 * of a new kind, also add a row of PI__SCALE_KINDS, and a case to each switch over these kinds.
 *
 *     value = scale * (code - 2^offset) - minimum          (Q4_1, Q5_1: + minimum)
 *
 *     type, id    PI__<type>, the name in lower or upper case, and the number in a file.
 *     block       values per block in the file.
 *     size        bytes per block in the file.
 *     how         RW = read and written, RO = read, NO = neither.
 *     fn          pi__read_<fn>, pi__write_<fn>.
 *     codes       enum pi__codes: the meaning of a code.
 *     plane       bytes of the codes of 16 rows x 32 columns, packed: 64 per bit of a code.
 *     offset      log2 of the number subtracted from codes; 0 = nothing is subtracted,
 *                 7 = codes are signed bytes plus 128.
 *     scales      enum pi__scales.
 *     d_at        byte offset of the (first) f16 scale in the file's block.
 *     fit         type that `quantize` writes instead if rows are no multiple of the block */
#ifndef PI__WEIGHT_FORMATS_H
#define PI__WEIGHT_FORMATS_H

#include <stdint.h>

/* Float formats: values, no codes. On the device, rows have the file's layout. */
#define PI__FLOAT_FORMATS(X) \
    /* type, id, block, size, how, fn, codes, plane, offset, scales, d_at, fit */ \
    X(F32,  0,  1, 4, RW, f32,  FLOATS, 2048, 0, NONE, 0, F32)                    \
    X(F16,  1,  1, 2, RW, f16,  FLOATS, 1024, 0, NONE, 0, F16)                    \
    X(BF16, 30, 1, 2, RW, bf16, FLOATS, 1024, 0, NONE, 0, BF16)

/* Integer codes, packed on the CPU and on the device. */
#define PI__CODE_FORMATS(X) \
    X(Q8_0,   8,  32,  34,  RW, q8_0,   PLAIN, 512, 7, D,     0,   F16)  \
    X(Q4_0,   2,  32,  18,  RW, q4_0,   PLAIN, 256, 3, D,     0,   F16)  \
    X(Q5_0,   6,  32,  22,  RW, q5_0,   PLAIN, 320, 4, D,     0,   F16)  \
    X(Q4_1,   3,  32,  20,  RW, q4_1,   PLAIN, 256, 0, DM,    0,   F16)  \
    X(Q5_1,   7,  32,  24,  RW, q5_1,   PLAIN, 320, 0, DM,    0,   F16)  \
    X(IQ4_NL, 20, 32,  18,  RW, iq4_nl, IQ4,   256, 7, D,     0,   F16)  \
    X(MXFP4,  39, 32,  17,  RW, mxfp4,  FP4,   256, 4, E8M0,  0,   F16)  \
    X(NVFP4,  40, 64,  36,  RW, nvfp4,  FP4,   256, 4, UE4M3, 0,   Q8_0) \
    X(Q2_K,   10, 256, 84,  RW, q2_k,   PLAIN, 128, 0, K2,    80,  Q4_0) \
    X(Q3_K,   11, 256, 110, RW, q3_k,   PLAIN, 192, 2, K3,    108, Q4_0) \
    X(Q4_K,   12, 256, 144, RW, q4_k,   PLAIN, 256, 0, K4,    0,   Q5_0) \
    X(Q5_K,   13, 256, 176, RW, q5_k,   PLAIN, 320, 0, K4,    0,   Q5_1) \
    X(Q6_K,   14, 256, 210, RW, q6_k,   PLAIN, 384, 5, K6,    208, Q8_0) \
    X(IQ4_XS, 23, 256, 136, RW, iq4_xs, IQ4,   256, 7, XS,    0,   IQ4_NL)

/* Codes are points of a codebook. The CPU keeps the file's layout of rows (linear_rows.c); the device packs them. */
#define PI__GRID_FORMATS(X) \
    X(IQ2_XXS, 16, 256, 66,  RW, iq2_xxs, GRID8, 128, 0, G0, 0, IQ4_NL) \
    X(IQ2_XS,  17, 256, 74,  RW, iq2_xs,  GRID8, 128, 0, G2, 0, IQ4_NL) \
    X(IQ2_S,   22, 256, 82,  RW, iq2_s,   GRID8, 144, 0, G2, 0, IQ4_NL) \
    X(IQ3_XXS, 18, 256, 98,  RW, iq3_xxs, GRID4, 192, 0, G0, 0, IQ4_NL) \
    X(IQ3_S,   21, 256, 110, RW, iq3_s,   GRID4, 208, 0, G1, 0, IQ4_NL) \
    X(IQ1_S,   19, 256, 50,  RW, iq1_s,   GRID1, 96,  0, G0, 0, IQ4_NL) \
    X(IQ1_M,   29, 256, 56,  RW, iq1_m,   GRID1, 96,  0, G2, 0, IQ4_NL)

/* Ternary values. The CPU keeps the file's layout; the device stores them as Q2_K: d * (q - 1) = d * 1 * q - d * 1. */
#define PI__TERNARY_FORMATS(X) \
    X(TQ1_0, 34, 256, 54, RO, tq1_0, TERNARY, 128, 0, K2, 52, F16) \
    X(TQ2_0, 35, 256, 66, RO, tq2_0, TERNARY, 128, 0, K2, 64, F16)

/* Formats of 1 and 2 bits. Matrices are stored as Q4_0 when they are loaded, without loss (pi__loaded_type). */
#define PI__NARROW_FORMATS(X) \
    X(Q1_0, 41, 128, 18, RW, q1_0, NARROW, 0, 0, NONE, 0, F16) \
    X(Q2_0, 42, 64,  18, RW, q2_0, NARROW, 0, 0, NONE, 0, F16)

/* Types of tensors that are never matrices of a model. */
#define PI__OTHER_FORMATS(X) \
    X(F64,  28, 1,   8,   NO, f64,  NOTHING, 0, 0, NONE, 0, F16) \
    X(I8,   24, 1,   1,   NO, i8,   NOTHING, 0, 0, NONE, 0, F16) \
    X(I16,  25, 1,   2,   NO, i16,  NOTHING, 0, 0, NONE, 0, F16) \
    X(I32,  26, 1,   4,   NO, i32,  NOTHING, 0, 0, NONE, 0, F16) \
    X(I64,  27, 1,   8,   NO, i64,  NOTHING, 0, 0, NONE, 0, F16) \
    X(Q8_1, 9,  32,  40,  NO, q8_1, NOTHING, 0, 0, NONE, 0, F16) \
    X(Q8_K, 15, 256, 292, NO, q8_k, NOTHING, 0, 0, NONE, 0, F16)

#define PI__WEIGHT_FORMATS(X) PI__FLOAT_FORMATS(X) PI__CODE_FORMATS(X) PI__GRID_FORMATS(X) PI__TERNARY_FORMATS(X)
#define PI__FORMATS(X) PI__WEIGHT_FORMATS(X) PI__NARROW_FORMATS(X) PI__OTHER_FORMATS(X)

/* The kinds of scales, for 16 rows.
 *
 *     per         scales (and minimums) per 32 columns: 1, or 2 = one per half of 16 columns
 *     min         1 = there are minimums
 *     record      bytes of the scales of 16 rows on the CPU, per block of the file
 *     side, sup   bytes of the scales of 16 rows on the device, per 32 columns and per 256 columns */
#define PI__SCALE_KINDS(X) \
    /* kind, per, min, record, side, sup */                                            \
    X(NONE,  1, 0, 0,   0,  0)                                                         \
    X(D,     1, 0, 32,  32, 0)  /* f16 d */                                            \
    X(DM,    1, 1, 64,  64, 0)  /* f16 d, m */                                         \
    X(E8M0,  1, 0, 16,  16, 0)  /* a power of two */                                   \
    X(UE4M3, 2, 0, 64,  32, 0)  /* a byte of 4 + 3 bits for each half */               \
    X(K2,    2, 1, 320, 32, 64) /* f16 d, dmin; 4 + 4 bits for each half */            \
    X(K3,    2, 0, 224, 32, 32) /* f16 d; 6 bits for each half; bytes on the device */ \
    X(K4,    1, 1, 256, 32, 64) /* f16 d, dmin; 6 + 6 bits; bytes on the device */     \
    X(K6,    2, 0, 288, 32, 32) /* f16 d; int8 for each half */                        \
    X(XS,    1, 0, 128, 16, 32) /* f16 d; 6 bits; int8 on the device */                \
    X(G0,    1, 0, 0,   0,  32) /* f16 d; the rest among the codes */                  \
    X(G1,    1, 0, 0,   16, 32) /* f16 d; 4 bits */                                    \
    X(G2,    2, 0, 0,   16, 32) /* f16 d; 4 bits for each half (IQ1_M: 3) */

enum pi__type { /* numbers as in the GGUF format */
#define PI__ROW(type, id, ...) PI__##type = id,
    PI__FORMATS(PI__ROW)
#undef PI__ROW
    PI__N_TYPES = 43 /* above every id */
};

enum pi__format_bytes { /* values and bytes per block in the file */
#define PI__ROW(type, id, block, size, ...) PI__BLOCK_##type = block, PI__SIZE_##type = size,
    PI__FORMATS(PI__ROW)
#undef PI__ROW
};

enum pi__codes {
    PI__CODES_NOTHING, /* not supported in products */
    PI__CODES_FLOATS,  /* float values, no codes */
    PI__CODES_PLAIN,   /* integers */
    PI__CODES_IQ4,     /* indices into pi__iq4nl_values */
    PI__CODES_FP4,     /* indices into pi__e2m1_values */
    PI__CODES_GRID8,   /* indices of codebook points of 8 values, and signs */
    PI__CODES_GRID4,   /* indices of codebook points of 4 values, and signs */
    PI__CODES_GRID1,   /* indices of points of 8 values (-1, 0 or 1), shifted by plus or minus 1/8 */
    PI__CODES_TERNARY, /* digits 0, 1, 2, for values -1, 0, 1 */
    PI__CODES_NARROW   /* not supported in products: loaded as another type */
};

enum pi__scales {
#define PI__ROW(kind, ...) PI__SCALES_##kind,
    PI__SCALE_KINDS(PI__ROW)
#undef PI__ROW
};

/* The properties of a type that kernels and packing use; all 0 for a type that is not in the table. */
typedef struct pi__format_facts {
    uint16_t block;  /* values per block in the file */
    uint16_t plane;  /* bytes of the codes of 16 rows x 32 columns */
    uint16_t record; /* CPU: bytes of the scales of 16 rows, per block of the file */
    uint8_t side;    /* device: bytes of the scales of 32 columns, 16 rows */
    uint8_t sup;     /* device: bytes of the scales of 256 columns, 16 rows */
    uint8_t codes;   /* enum pi__codes */
    uint8_t offset;  /* log2 of the number subtracted from codes */
    uint8_t scales;  /* enum pi__scales */
    uint8_t halves;  /* 1 = each half of 32 columns has a scale */
    uint8_t min;     /* 1 = there are minimums */
    uint8_t d_at;    /* byte offset of the f16 scale in the file's block */
} pi__format_facts;

#ifdef __cplusplus
#define PI__CONSTANT static constexpr
#else
#define PI__CONSTANT static inline
#endif

/* Returns the properties of a type. A switch, so that compilers fold it to constants in kernels for one type. */
PI__CONSTANT pi__format_facts pi__format_facts_of(int32_t type)
{
#define PI__ROW(kind, per, min, record, side, sup) \
    enum { kind##_PER = per, kind##_MIN = min, kind##_RECORD = record, kind##_SIDE = side, kind##_SUP = sup };
    PI__SCALE_KINDS(PI__ROW)
#undef PI__ROW
    pi__format_facts f = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    switch (type) {
#define PI__ROW(type, id, block_, size, how, fn, codes_, plane_, offset_, scales_, d_at_, fit)               \
    case PI__##type:                                                                                         \
        f.block = block_, f.plane = plane_, f.codes = PI__CODES_##codes_, f.offset = offset_, f.d_at = d_at_; \
        f.scales = PI__SCALES_##scales_, f.halves = scales_##_PER == 2, f.min = scales_##_MIN;               \
        f.record = scales_##_RECORD, f.side = scales_##_SIDE, f.sup = scales_##_SUP;                         \
        break;
    PI__FORMATS(PI__ROW)
#undef PI__ROW
    default: break;
    }
    return f;
}

#endif
