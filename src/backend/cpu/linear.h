/* Matrices on the CPU: how weights and activations lie in memory, and the kernels that each instruction set provides.
 *
 * WEIGHTS. A tile is 16 rows of a matrix; the rows are the lanes of a vector, so one instruction serves 16 results and
 * no sum ever crosses lanes. A block is 32 columns of a tile, a line is 4 columns of it: 64 codes, code j is row j / 4,
 * column 4 * line + j % 4. That is the operand of one 4-way dot instruction, whose other operand is 4 activations
 * repeated in all lanes:
 *
 *     line 0: r0c0 r0c1 r0c2 r0c3 | r1c0 r1c1 r1c2 r1c3 | ... | r15c0 .. r15c3
 *     line 1: r0c4 ...                                                            8 lines a block
 *
 * Codes are unsigned; formats with signed ones add an offset, which the sum of the activations takes back out. They are
 * kept in planes of the bits the file has, so that a packed tile is as large as the file's 16 rows:
 *
 *     8 bits  [8 lines][64]      the code
 *     4 bits  [4][64]            low nibble: line i, high nibble: line i + 4
 *     2 bits  [2][64]            bits 2f..2f+1 of byte line i: line i * 4 + f
 *     1 bit   [64]               bit q: line q
 *
 *     tile: records of 32, 64 or 256 columns, padded to 64 bytes in all; a record: [scales x 16 rows][planes of its blocks]
 *
 * A tile is read from its first byte to its last, and so is a matrix: with scales in a place of their own, the two
 * streams halve what the processor's prefetching gets from memory.
 *
 * Float formats: tile [n_in][16 rows]. IQ and ternary formats keep the file's rows; they are decoded to
 * integer codes on the way into the kernels. Rows past n_out are zeros. Matrices of a stack follow each other.
 *
 * ACTIVATIONS are rounded to 15 or 8 bits (option activation-bits) in blocks of 32 with a float scale, once for all
 * matrices that read them. A code of 15 bits is two digits of 8, 128 * high + low, and a dot is two dots of bytes: the
 * result is as good as with float activations. One of 8 bits is a digit, and a dot one of bytes: half of the products, and
 * logits of a small model that move by tenths. Rows of a batch form groups of up to max_cols columns:
 * [block][column][32 high, 32 low], or [32]. Where an instruction set multiplies 16-bit numbers as fast as two digits (AVX2),
 * the two bytes of a code are that number.
 *
 * LINES OF 8. Instructions that multiply 8 columns of 2 rows with 2 columns of the batch (kernels with line_cols 8) want the
 * 8 beside each other. For them canonical tiles have lines of 8 columns, code j is row j / 8, column 8 * line + j % 8; two
 * columns of a group lie by turns, 8 codes of one and 8 of the other; a last column alone lies as above. Packed tiles are
 * the same for all.
 *
 * ORDER. acc = fma(float(dot of 32 integers) * weight scale, activation scale, acc), block after block: the same for
 * every number of columns, threads and tiles. That is the whole reason for one code path. */
#ifndef PI__LINEAR_H
#define PI__LINEAR_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/inline.h"
#include "formats/formats.h"

#define PI__LIN_CODE_MAX 16256.0f /* largest magnitude of a code of two digits: 127 * 128 */
#define PI__LIN_BYTE_MAX 127.0f   /* of one digit */
/* Widest group; widest one that is multiplied while unpacking; narrowest that is worth its way through AMX's tiles (an
 * estimate: 16 dots a column and block there are, where tiles take as long as 6 columns, whatever their number). */
enum { PI__LIN_COLS = 16, PI__LIN_DIRECT = 4, PI__LIN_MANY = 8 };

enum pi__lin_kind { /* what a block of 16 rows x 32 columns is multiplied with */
    PI__LK_OFF32,   /* one scale */
    PI__LK_MIN32,   /* one scale, one minimum */
    PI__LK_OFF16,   /* a scale for each half */
    PI__LK_MIN16,   /* a scale and a minimum for each half */
    PI__LK_F32, PI__LK_F16, PI__LK_BF16, PI__LK_N
};

/* How a type is packed. code_bytes 0: the file's rows are kept. */
typedef struct pi__lin_format {
    uint8_t kind;        /* enum pi__lin_kind */
    uint8_t offset;      /* of the codes: log2, kinds OFF* */
    uint8_t rec_blocks;  /* blocks of a record */
    uint16_t code_bytes; /* bytes of a block's planes (float formats: of 32 columns) */
    uint16_t side_bytes; /* bytes of a record's scales */
} pi__lin_format;

/* Folds to constants in kernels made for one type. kind PI__LK_N: no such weights. */
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

/* Bits of a code as it is multiplied, 4, 5, 6 or 8: of FP4 the values' (-12..12, and 16), of fewer bits than 4 as of 4. */
static inline int pi__lin_bits(int32_t type)
{
    const pi__format_facts f = pi__format_facts_of(type);
    if (f.codes == PI__CODES_FP4) return 5;
    return f.codes != PI__CODES_PLAIN || f.plane / 64 > 6 ? 8 : f.plane / 64 < 4 ? 4 : f.plane / 64;
}

/* Tiles of a matrix: offsets within weight data. */
typedef struct pi__lin_shape {
    int64_t n_blk;      /* blocks of 32 columns, the last one maybe partial (float formats) */
    int64_t n_tile;     /* tiles of one matrix */
    size_t tile;        /* bytes from tile to tile */
    size_t mat;         /* bytes from matrix to matrix of a stack */
    size_t row;         /* bytes of a row in the file */
} pi__lin_shape;
/* false: the type or shape is not supported, or sizes overflow. */
bool pi__lin_shape_of(const pi__weight *w, pi__lin_shape *s);

/* Bytes of a record. */
static inline size_t pi__lin_record(const pi__lin_format *f)
{
    return (size_t) f->rec_blocks * f->code_bytes + f->side_bytes;
}

/* A tile, packed or unpacked, as the kernels read it. */
typedef struct pi__lin_w {
    const uint8_t *data; /* first record or block */
    int64_t n_in;        /* columns */
    const uint8_t *next; /* canonical tiles: memory that is read next, so many bytes a block, and is fetched meanwhile; NULL: */
    size_t next_step;    /* nothing. A multiple of 64 */
} pi__lin_w;

/* Unpacked ("canonical") blocks: 512 code bytes, then float[16] for each scale, then for each minimum. Kinds OFF*: codes
 * with half of their range added, or signed bytes (pi__lin_codes_of). */
static inline size_t pi__lin_block_size(int kind)
{
    return kind == PI__LK_OFF32 ? 576 : kind == PI__LK_MIN16 ? 768 : 640;
}

/* A group of activation rows. Each array is [n_blk][cols][...]; of the sums those are there that a kind in use reads. */
typedef struct pi__lin_x {
    int32_t cols;  /* columns (rows of the batch) in the group */
    int8_t *q;     /* [32 * digits] high digits of 32 codes, then low ones; or the codes, in the kernels' own order */
    float *d;      /* scale */
    int32_t *n7;   /* -128 * sum of codes */
    float *ds;     /* d * sum of codes */
    int32_t *n7h;  /* -128 * sum of each half's codes: [n_blk][2][cols] */
    float *dsh;    /* d * sum of each half's codes: [n_blk][2][cols] */
    float *f;      /* [32] the values themselves */
} pi__lin_x;

/* The codes of column c of a group of `cols` in block b: the first 8 are that far from q, the next ones `step` bytes on, and
 * those of the next digit 4 steps. line_cols: of the kernels. */
static inline int64_t pi__lin_codes_at(int32_t line_cols, int32_t digits, int32_t cols, int64_t b, int32_t c, int *step)
{
    const bool beside = line_cols == 8 && (c | 1) < cols;
    *step = beside ? 16 : 8;
    return 32 * digits * (b * cols + (beside ? c & ~1 : c)) + (beside ? 8 * (c & 1) : 0);
}

/* Where a tile's result goes. */
typedef struct pi__lin_y {
    float *y;      /* column 0, row 0 of the tile */
    int64_t ld;    /* floats from column to column */
    int32_t lanes; /* rows that exist, 1..16 */
    float scale;   /* factor of the result */
} pi__lin_y;

typedef void (*pi__lin_unpack_fn)(const pi__lin_w *w, uint8_t *dst);
typedef void (*pi__lin_mul_fn)(const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y);
/* Blocks b0..b1 of rows row..row + n of `in`, n_in columns each, into columns col..col + n of a group; want: bit per enum
 * pi__lin_kind. */
typedef void (*pi__lin_input_fn)(const pi__lin_in *in, int64_t n_in, int32_t row, int32_t n, int64_t b0, int64_t b1,
                                 const pi__lin_x *x, int32_t col, uint32_t want);

typedef pi__lin_mul_fn pi__lin_narrow_fns[PI__LK_N][PI__LIN_COLS + 1];

struct pi__cpu_linear_kernels {
    const char *name;                                         /* of the instruction set */
    int32_t max_cols;                                         /* widest group, at most PI__LIN_COLS */
    int32_t digits;                                           /* bytes of an activation: 2 (15 bits) or 1 (8 bits) */
    int32_t code_bias;                                        /* of canonical codes of kinds OFF* that have 8 bits: 128 or 0 */
    int32_t line_cols;                                        /* columns of a canonical line: 4, or 8 */
    pi__lin_input_fn input;                                   /* prologue and rounding */
    pi__lin_unpack_fn unpack[PI__N_TYPES];                    /* packed tile to canonical blocks, or NULL */
    pi__lin_mul_fn direct[PI__N_TYPES][PI__LIN_DIRECT + 1];   /* packed tile times cols columns, or NULL */
    pi__lin_mul_fn mul[PI__LK_N][PI__LIN_COLS + 1];           /* canonical (or float) tile times cols columns */
    const pi__lin_narrow_fns *narrow;                         /* [bits] mul where codes have fewer than 8 (pi__lin_bits), and */
                                                              /* canonical ones keep them; NULL: they have 8 there */
    const pi__lin_mul_fn *many;                               /* [PI__LK_N] the same for PI__LIN_MANY or more, or NULL; or NULL */
};

/* Bits of canonical codes. */
static inline int32_t pi__lin_canonical_bits(const pi__cpu_linear_kernels *k, int32_t type)
{
    return k->narrow ? pi__lin_bits(type) : 8;
}

/* The codes of canonical ones: those of kinds OFF* have half of their range added, or are signed bytes. */
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
static inline int32_t pi__lin_code(pi__lin_codes c, uint8_t canonical) { return c.sign ? (int8_t) canonical : canonical - c.bias; }

/* One tile of a matrix on its way through some groups of activations. */
typedef struct pi__lin_tile {
    const pi__cpu_linear_kernels *k; /* kernels */
    pi__lin_w w;                     /* as stored; in buf once it is unpacked */
    int32_t type;                    /* of the weight */
    int32_t kind;                    /* enum pi__lin_kind of it */
    int32_t lanes;                   /* rows that exist, 1..16 */
    size_t row;                      /* bytes of a row in the file */
    float scale;                     /* factor of the result */
    uint8_t *buf;                    /* pi__lin_tile_bytes, for the unpacked tile */
    const uint8_t *next;             /* as of pi__lin_w, for the next product; NULL */
    size_t next_step;
    bool unpacked;                   /* w is what k->mul reads */
} pi__lin_tile;

/* linear.c, for the ops that multiply: */

/* Bytes of a group of `cols` rows of n_blk blocks of codes of so many digits; x (or NULL) gets its arrays from base. */
size_t pi__lin_group(char *base, int32_t digits, int64_t n_blk, int32_t cols, bool floats, pi__lin_x *x);
/* Bytes to keep for each row, however rows are cut into groups: group from row r on is at r times this. */
size_t pi__lin_row_stride(int32_t digits, int64_t n_blk, bool floats);
size_t pi__lin_tile_bytes(int64_t n_blk);
pi__lin_tile pi__lin_tile_of(const pi__cpu_linear_kernels *k, const pi__weight *w, const pi__lin_shape *s, int64_t mat,
                             int64_t tile, uint8_t *buf);
/* The tile as canonical blocks in its buf, where it is not of floats. */
void pi__lin_tile_unpack(pi__lin_tile *t);
/* y = tile times the group's rows. only: the tile is not used again, and need not be unpacked in memory. */
void pi__lin_tile_mul(pi__lin_tile *t, const pi__lin_x *x, float *y, int64_t ldy, bool only);

/* The op with these kernels, of as many bits of activations as the backend's or fewer. */
void pi__lin_run(pi__cpu *cpu, const pi__cpu_linear_kernels *k, const pi__lin_in *in, int32_t n_rows, const pi__lin *lin,
                 int32_t n_lin);

/* linear_best.c: op linear where a->best says what is wanted of y; false: nothing was done, all of it has to be computed. */
bool pi__lin_best(pi__cpu *cpu, const pi__linear *a);
/* Scratch of a thread for matrices of so many blocks a row. */
size_t pi__lin_best_bytes(int64_t n_blk);

/* For activations of so many bits, 8 or 15. Not there for this machine's architecture: NULL. That the CPU has the
 * instructions is for the caller to know. */
const pi__cpu_linear_kernels *pi__lin_kernels_amx(int bits); /* those of AVX-512, and pi__lin_amx */
const pi__cpu_linear_kernels *pi__lin_kernels_avx512(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_avxvnni(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_avx2(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_sve256(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_i8mm(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_neon(int bits);
const pi__cpu_linear_kernels *pi__lin_kernels_generic(int bits);

/* linear_amx.c: `many` of both widths of activations, 8 and 15 bits. */
extern const pi__lin_mul_fn pi__lin_amx[2][PI__LK_N];
/* linear_tryout.c: these as `many` of k give the bits that k's own give, on a few random tiles. */
bool pi__lin_agrees(const pi__cpu_linear_kernels *k, const pi__lin_mul_fn *many);

/* linear_pack.c: file rows row0..row0 + lanes of one matrix into a tile (zeros elsewhere). */
void pi__lin_pack_tile(int32_t type, const uint8_t *src, size_t row_size, int32_t lanes, int64_t n_in, size_t tile_size,
                       uint8_t *dst);

/* linear_rows.c: `lanes` file rows of a type that is kept as in the file into canonical blocks of these kernels. */
void pi__lin_decode_rows(const pi__cpu_linear_kernels *k, int32_t type, const uint8_t *src, size_t row_size, int32_t lanes,
                         int64_t n_in, uint8_t *dst);

#endif
