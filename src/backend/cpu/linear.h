/* Matrices on the CPU: memory layouts of weights and activations, and the kernels of each instruction set.
 *
 * WEIGHTS. A tile is 16 rows of a matrix; the rows are the lanes of a vector, so one instruction computes 16 results
 * and no sum crosses lanes. A block is 32 columns of a tile. A line is 4 columns of a block: 64 codes; code j
 * belongs to row j / 4 and column 4 * line + j % 4. A line is one operand of a 4-way dot product instruction. The
 * other operand is 4 activations repeated in all lanes:
 *
 *     line 0: r0c0 r0c1 r0c2 r0c3 | r1c0 r1c1 r1c2 r1c3 | ... | r15c0 .. r15c3
 *     line 1: r0c4 ...                                                            8 lines a block
 *
 * Stored codes are unsigned. Signed formats add an offset to the codes; kernels subtract offset * (sum of the
 * activations) from the dot product. Codes are stored in planes of 8, 4, 2 or 1 bits, so a packed tile is as large as
 * 16 rows of the file. 6-bit codes are a 4-bit plane and a 2-bit plane, 5-bit codes 4 + 1, 3-bit codes 2 + 1:
 *
 *     8 bits  [8 lines][64]      the code
 *     4 bits  [4][64]            low nibble: line i, high nibble: line i + 4
 *     2 bits  [2][64]            bits 2f..2f+1 of byte line i: line i * 4 + f
 *     1 bit   [64]               bit q: line q
 *
 *     tile: records of 32, 64 or 256 columns, padded to 64 bytes in all
 *     record: [scales x 16 rows][planes of its blocks]
 *
 * Tiles are consecutive, so kernels read a matrix sequentially from its first byte to its last. Scales in a separate
 * array would make a second stream, which halves the bandwidth of hardware prefetching.
 *
 * Float formats: tile [n_in][16 rows]. IQ and ternary formats keep the file's rows; pi__lin_tile_unpack decodes a tile
 * to canonical blocks before it is multiplied. Rows past n_out of a packed or float tile are zeros. Matrices of a stack
 * are consecutive.
 *
 * ACTIVATIONS are quantized to 15 or 8 bits (option activation-bits) in blocks of 32 with a float scale, once for all
 * matrices that read them. A 15-bit code is two 8-bit digits, 128 * high + low, so a dot product is two byte dot
 * products; results are as accurate as with float activations. An 8-bit code is one digit and takes half of the
 * products; the logits of a small model then change by tenths. Batch rows, which are the columns of the product, form
 * groups of up to max_cols, stored as [block][column][32 high, 32 low] with two digits, [block][column][32] with one.
 * With AVX2, which multiplies a 16-bit number as fast as two digits, a 15-bit code is one 16-bit number.
 *
 * LINES OF 8. Some instructions multiply 8 columns of 2 rows by 2 columns of the batch (kernels with line_cols 8). They
 * read 8 adjacent columns of a row. So their canonical tiles have lines of 8 columns (128 codes): code j is row j / 8,
 * column 8 * line + j % 8. Two columns of an activation group are interleaved in units of 8 codes; an odd last column
 * has the layout of ACTIVATIONS above. Packed tiles are the same for all kernels.
 *
 * ORDER. acc = fma(float(dot of 32 integers) * weight scale, activation scale, acc), block after block. This order does
 * not depend on the number of columns, threads or tiles, so results are batch-invariant. */
#ifndef PI__LINEAR_H
#define PI__LINEAR_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/inline.h"
#include "formats/formats.h"

#define PI__LIN_CODE_MAX 16256.0f /* max magnitude of a code of two digits: 127 * 128 */
#define PI__LIN_BYTE_MAX 127.0f   /* max magnitude of a code of one digit */
/* PI__LIN_COLS: max columns of a group. PI__LIN_DIRECT: max columns of products that unpack a tile in registers.
 * PI__LIN_MANY: min columns for AMX kernels. An AMX product takes as long as about 6 columns of AVX-512 dot products
 * (16 instructions per column and block), for any number of columns. */
enum { PI__LIN_COLS = 16, PI__LIN_DIRECT = 4, PI__LIN_MANY = 8 };

enum pi__lin_kind { /* factors per row of a block of 16 rows x 32 columns; a half is 16 columns */
    PI__LK_OFF32,   /* value = scale * (code - offset), one scale */
    PI__LK_MIN32,   /* value = scale * code + minimum, one of each */
    PI__LK_OFF16,   /* like OFF32, one scale for each half */
    PI__LK_MIN16,   /* like MIN32, one of each for each half */
    PI__LK_F32, PI__LK_F16, PI__LK_BF16, PI__LK_N
};

/* Packed layout of a weight type. code_bytes 0 = not packed: tiles are 16 rows of the file. */
typedef struct pi__lin_format {
    uint8_t kind;        /* enum pi__lin_kind */
    uint8_t offset;      /* kinds OFF*: log2 of the offset that is added to the codes */
    uint8_t rec_blocks;  /* blocks per record */
    uint16_t code_bytes; /* bytes of a block's planes (float formats: bytes of 32 columns of a tile) */
    uint16_t side_bytes; /* bytes of a record's scales and minima */
} pi__lin_format;

/* Returns the layout of a type; a constant in kernels for one type. Result kind PI__LK_N = the type is not
 * supported. */
static inline pi__lin_format pi__lin_format_of(int32_t type)
{
    const pi__format_facts f = pi__format_facts_of(type);
    const uint8_t blocks = (uint8_t) (f.block / 32);
    const int off = f.halves ? PI__LK_OFF16 : PI__LK_OFF32, min = f.halves ? PI__LK_MIN16 : PI__LK_MIN32;
    switch (f.codes) {
    case PI__CODES_NOTHING: return (pi__lin_format) {PI__LK_N, 0, 1, 0, 0};
    case PI__CODES_FLOATS:
        return (pi__lin_format) {(uint8_t) (type == PI__F32   ? PI__LK_F32
                                            : type == PI__F16 ? PI__LK_F16
                                                              : PI__LK_BF16), 0, 1, f.plane, 0};
    case PI__CODES_GRID8: case PI__CODES_GRID4: case PI__CODES_GRID1: case PI__CODES_TERNARY:
        return (pi__lin_format) {PI__LK_OFF16, 7, blocks, 0, 0};
    default: return (pi__lin_format) {(uint8_t) (f.min ? min : off), f.offset, blocks, f.plane, f.record};
    }
}

/* Returns the bits of a type's codes in a product: 4, 5, 6 or 8. FP4 codes become their doubled values (-12..12) plus
 * 16, which have 5 bits. Types with fewer than 4 bits per code return 4. */
static inline int pi__lin_bits(int32_t type)
{
    const pi__format_facts f = pi__format_facts_of(type);
    if (f.codes == PI__CODES_FP4) return 5;
    return f.codes != PI__CODES_PLAIN || f.plane / 64 > 6 ? 8 : f.plane / 64 < 4 ? 4 : f.plane / 64;
}

/* Sizes of a matrix in blocks and tiles, and byte distances in the weight's data. */
typedef struct pi__lin_shape {
    int64_t n_blk;      /* blocks of 32 columns; in float formats the last one may be partial */
    int64_t n_tile;     /* tiles of one matrix */
    size_t tile;        /* bytes from one tile to the next */
    size_t mat;         /* bytes from one matrix of a stack to the next */
    size_t row;         /* bytes of a row in the file */
} pi__lin_shape;
/* Returns false if the type or shape is not supported, or sizes overflow. */
bool pi__lin_shape_of(const pi__weight *w, pi__lin_shape *s);

/* Returns the bytes of a record. */
static inline size_t pi__lin_record(const pi__lin_format *f)
{
    return (size_t) f->rec_blocks * f->code_bytes + f->side_bytes;
}

/* A tile as the kernels read it: packed (as in the weight), or canonical (unpacked). */
typedef struct pi__lin_w {
    const uint8_t *data; /* the tile's first record (packed) or block (canonical) */
    int64_t n_in;        /* columns of the tile */
    /* canonical tiles only: memory to prefetch during the product, next_step bytes (a multiple of 64) per block; NULL =
     * nothing is prefetched */
    const uint8_t *next;
    size_t next_step;
} pi__lin_w;

/* Returns the bytes of a canonical (unpacked) block: 512 code bytes, then float[16] (one per row) for each scale, then
 * for each minimum. Codes of kinds OFF* are offset by half of their range, or are signed bytes (pi__lin_codes_of). */
static inline size_t pi__lin_block_size(int kind)
{
    return kind == PI__LK_OFF32 ? 576 : kind == PI__LK_MIN16 ? 768 : 640;
}

/* A group of quantized activation rows. Unless noted, each array is [n_blk][cols][...]. n7, ds, n7h, dsh and f are
 * filled only if a matrix kind of the op reads them. */
typedef struct pi__lin_x {
    int32_t cols;  /* rows of the batch in the group, which are the columns of the product */
    /* [n_blk][cols][32 * digits] high digits of 32 codes, then their low digits; or 32 16-bit codes in the kernels' own
     * order */
    int8_t *q;
    float *d;      /* [n_blk][cols] scale of the block's codes */
    int32_t *n7;   /* [n_blk][cols] -128 * sum of the block's codes */
    float *ds;     /* [n_blk][cols] d * sum of the block's codes */
    int32_t *n7h;  /* [n_blk][2][cols] -128 * sum of each half's codes */
    float *dsh;    /* [n_blk][2][cols] d * sum of each half's codes */
    float *f;      /* [n_blk][cols][32] unquantized values, for float weights */
} pi__lin_x;

/* Returns the byte offset from q of the first 8 codes of column c (of `cols`) in block b. Each next 8 codes are *step
 * bytes later; the low digits start 4 * *step bytes after the high digits. line_cols: of the kernels that read q. */
static inline int64_t pi__lin_codes_at(int32_t line_cols, int32_t digits, int32_t cols, int64_t b, int32_t c, int *step)
{
    const bool beside = line_cols == 8 && (c | 1) < cols;
    *step = beside ? 16 : 8;
    return 32 * digits * (b * cols + (beside ? c & ~1 : c)) + (beside ? 8 * (c & 1) : 0);
}

/* Destination of a tile's results: row r of column c is written to y[c * ld + r]. */
typedef struct pi__lin_y {
    float *y;      /* result of the tile's first row in the first column */
    int64_t ld;    /* floats between columns */
    int32_t lanes; /* rows of the tile within n_out, 1..16; only their results are written */
    float scale;   /* factor of the results */
} pi__lin_y;

typedef void (*pi__lin_unpack_fn)(const pi__lin_w *w, uint8_t *dst);
typedef void (*pi__lin_mul_fn)(const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y);
/* Applies the prologue of `in` to its rows row..row + n - 1 (n_in values each). Quantizes blocks b0..b1 - 1 of them
 * into columns col..col + n - 1 of group x. want: bit i set = a matrix of the op has enum pi__lin_kind i; only the sums
 * that these kinds read are written. */
typedef void (*pi__lin_input_fn)(const pi__lin_in *in, int64_t n_in, int32_t row, int32_t n, int64_t b0, int64_t b1,
                                 const pi__lin_x *x, int32_t col, uint32_t want);

typedef pi__lin_mul_fn pi__lin_narrow_fns[PI__LK_N][PI__LIN_COLS + 1];

struct pi__cpu_linear_kernels {
    const char *name;                                         /* name of the instruction set */
    /* max columns of a group (of activations), at most PI__LIN_COLS */
    int32_t max_cols;
    int32_t digits;                                           /* digits of an activation: 2 (15 bits) or 1 (8 bits) */
    /* offset of 8-bit canonical codes of kinds OFF*: 128 or 0 */
    int32_t code_bias;
    int32_t line_cols;                                        /* columns of a canonical line: 4 or 8 */
    pi__lin_input_fn input;                                   /* applies the prologue and quantizes */
    /* unpacks a packed tile to canonical blocks; NULL = the type is not packed */
    pi__lin_unpack_fn unpack[PI__N_TYPES];
    /* [type][cols] packed tile times cols columns, unpacked in registers; NULL = not supported */
    pi__lin_mul_fn direct[PI__N_TYPES][PI__LIN_DIRECT + 1];
    /* [kind][cols] canonical (or float) tile times cols columns */
    pi__lin_mul_fn mul[PI__LK_N][PI__LIN_COLS + 1];
    /* [bits] like mul, for canonical codes of pi__lin_bits bits if these are fewer than 8; NULL = canonical codes
     * always have 8 bits */
    const pi__lin_narrow_fns *narrow;
    /* [kind] used instead of mul for PI__LIN_MANY or more columns; NULL table or entry = mul is used */
    const pi__lin_mul_fn *many;
};

/* Returns the bits of a type's canonical codes in kernels k. */
static inline int32_t pi__lin_canonical_bits(const pi__cpu_linear_kernels *k, int32_t type)
{
    return k->narrow ? pi__lin_bits(type) : 8;
}

/* Encoding of canonical codes: value = code - bias, or with `sign` the code as a signed byte. Kinds MIN*: bias 0. */
typedef struct pi__lin_codes {
    int32_t bias;
    bool sign;
} pi__lin_codes;
static inline pi__lin_codes pi__lin_codes_of(const pi__cpu_linear_kernels *k, int32_t type)
{
    const int32_t bits = pi__lin_canonical_bits(k, type), kind = pi__lin_format_of(type).kind;
    if (kind == PI__LK_MIN32 || kind == PI__LK_MIN16) return (pi__lin_codes) {0, false};
    return bits < 8 ? (pi__lin_codes) {1 << (bits - 1), false} : (pi__lin_codes) {k->code_bias, !k->code_bias};
}
static inline int32_t pi__lin_code(pi__lin_codes c, uint8_t canonical)
{
    return c.sign ? (int8_t) canonical : canonical - c.bias;
}

/* A tile of a matrix, and its state during products with groups of activations. */
typedef struct pi__lin_tile {
    const pi__cpu_linear_kernels *k; /* kernels */
    /* the tile that kernels read: the stored tile, or after unpacking the canonical tile in buf */
    pi__lin_w w;
    int32_t type;                    /* enum pi__type of the weight */
    int32_t kind;                    /* enum pi__lin_kind of the type */
    int32_t lanes;                   /* rows of the tile within n_out, 1..16 */
    size_t row;                      /* bytes of a row in the file */
    float scale;                     /* factor of the results */
    uint8_t *buf;                    /* memory for the unpacked tile: pi__lin_tile_bytes bytes */
    /* memory to prefetch during the next product, as in pi__lin_w; NULL = nothing is prefetched */
    const uint8_t *next;
    size_t next_step;
    bool unpacked;                   /* true = w is canonical (or float), the format that k->mul reads */
} pi__lin_tile;

/* linear_run.c, shared by ops that multiply: */

/* Lays out a group of `cols` activation rows of n_blk blocks, with `digits` digits per code, at base: sets the arrays
 * of x. x NULL = only computes the size. floats: the group includes array f. Returns the bytes of the group. */
size_t pi__lin_group(char *base, int32_t digits, int64_t n_blk, int32_t cols, bool floats, pi__lin_x *x);
/* Returns the bytes to reserve per activation row, enough for any split of rows into groups. The group that begins with
 * row r is at byte r * row_stride. */
size_t pi__lin_row_stride(int32_t digits, int64_t n_blk, bool floats);
size_t pi__lin_tile_bytes(int64_t n_blk);
/* Returns the bytes for the group that each thread packs for itself, in ops with few rows. */
size_t pi__lin_own_bytes(int32_t digits);
pi__lin_tile pi__lin_tile_of(const pi__cpu_linear_kernels *k, const pi__weight *w, const pi__lin_shape *s, int64_t mat,
                             int64_t tile, uint8_t *buf);
/* Unpacks the tile to canonical blocks in its buf; no effect if it is already unpacked or has a float format. */
void pi__lin_tile_unpack(pi__lin_tile *t);
/* Multiplies the tile by the group x: y[c * ldy + r] = result of tile row r and column c. only: x is the tile's only
 * group, so the tile may be unpacked in registers instead of memory. */
void pi__lin_tile_mul(pi__lin_tile *t, const pi__lin_x *x, float *y, int64_t ldy, bool only);

/* Runs op linear with kernels k, which may have fewer activation bits than the backend's. */
void pi__lin_run(pi__cpu *cpu, const pi__cpu_linear_kernels *k, const pi__lin_in *in, int32_t n_rows,
                 const pi__lin *lin, int32_t n_lin);

/* linear_best.c: runs op linear for a->best: only the largest values of y are exact. Returns false if nothing was
 * computed; the caller then computes all of y. */
bool pi__lin_best(pi__cpu *cpu, const pi__linear *a);
/* Returns the scratch bytes per thread of pi__lin_best, for matrices with n_blk blocks per row. */
size_t pi__lin_best_bytes(int64_t n_blk);

/* Kernels for 8-bit or 15-bit activations; NULL = not compiled for this architecture. The caller must check that the
 * CPU supports the instructions. */
const pi__cpu_linear_kernels *pi__lin_kernels_amx(int bits); /* AVX-512 kernels with AMX for many columns */
const pi__cpu_linear_kernels *pi__lin_kernels_avx512(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_avxvnni(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_avx2(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_sve256(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_i8mm(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_neon(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_generic(int bits);

/* linear_amx.c: entries for `many` of the kernel table. Index: digits - 1 (0 = 8-bit activations, 1 = 15-bit). */
extern const pi__lin_mul_fn pi__lin_amx[2][PI__LK_N];
/* linear_tryout.c: true if `many` and k's own kernels give bitwise identical results for a few random tiles. */
bool pi__lin_agrees(const pi__cpu_linear_kernels *k, const pi__lin_mul_fn *many);

/* linear_pack.c: packs `lanes` (1..16) file rows at src, row_size bytes apart, into a tile of tile_size bytes at dst.
 * The tile's remaining rows are zeros. */
void pi__lin_pack_tile(int32_t type, const uint8_t *src, size_t row_size, int32_t lanes, int64_t n_in, size_t tile_size,
                       uint8_t *dst);

/* linear_rows.c: decodes `lanes` file rows at src, of a type that is not packed, into canonical blocks of kernels k at
 * dst. The remaining rows are zeros. */
void pi__lin_decode_rows(const pi__cpu_linear_kernels *k, int32_t type, const uint8_t *src, size_t row_size,
                         int32_t lanes, int64_t n_in, uint8_t *dst);

#endif
