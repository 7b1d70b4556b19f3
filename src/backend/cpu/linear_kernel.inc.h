/* The matrix kernels, written once on small vectors and compiled by each linear_ISA.c (memory layouts: see linear.h).
 *
 * Entry point: PI__ISA_FUNC(bits), which returns the kernel table. The including file defines vb (64 bytes), vi (16
 * int32), vf (16 float), and operations on them named vb_*, vi_*, vf_*. The including file also defines:
 *
 *     PI__ISA_PLAIN            defined if the vector operations are C loops;
 *     PI__ISA_NAME             name of the instruction set;
 *     PI__ISA_COLS             max columns of a group;
 *     PI__ISA_DIRECT           max columns that are multiplied while unpacking;
 *     PI__ISA_BIAS             8-bit canonical codes: 128 = unsigned with offset 128, 0 = signed;
 *     PI__ISA_SIGNED(digits)   1 = dots read canonical codes as signed; 0 = unsigned, and sums start from n7;
 *     PI__ISA_FUNC             name of the function that returns the table
 *
 * Optional definitions:
 *
 *     PI__ISA_PART_ROWS        float lanes of a register, if a vf is several registers: tiles are multiplied
 *                              in parts of this number of rows, see linear_parts.inc.h;
 *     PI__ISA_FLOAT_COLS       columns that mul_float() multiplies in one pass;
 *     PI__ISA_LINE_COLS        columns of a canonical line (linear.h): 4, or 8 if instructions take two columns;
 *
 *     PI__ISA_LINES            for few registers: multiplies a block line by line, each for all columns (vi_dot_line);
 *     PI__ISA_WIDE(digits)     codes of this many digits are stored as 16-bit numbers, in the column order 0, 2, 1, 3
 *                              of each line: the even and the odd bytes of a line are easily widened to 16 bits;
 *     PI__ISA_AHEAD            prefetch distance in bytes of packed tiles that are unpacked in registers;
 *     PI__ISA_NARROW           products with one digit are 16-bit numbers (vs_dot) and are added in 16 bits (vs_add,
 *                              vi_from_vs) for codes of few bits; canonical codes keep these bits (narrow in linear.h)
 *
 * "Column" in product code is a batch row: the products have up to PI__ISA_COLS columns. Loops over lines or columns
 * are unrolled by macros with constants, so that blocks and sums stay in registers. No memory. Threads: any. */
#include <math.h>
#include <string.h>

/* Plain C vectors are loops: not inlined by force, because compiling the unrolled loops would take minutes. */
#ifdef PI__ISA_PLAIN
#define INLINE static inline
#else
#define INLINE PI__INLINE
#endif
/* Under a sanitizer each load is a call. Fewer columns per group let the file compile in seconds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef PI__ISA_COLS
#undef PI__ISA_DIRECT
#define PI__ISA_COLS 4
#define PI__ISA_DIRECT 1
#endif

#ifndef PI__ISA_FLOAT_COLS
#define PI__ISA_FLOAT_COLS PI__ISA_COLS
#endif
#ifndef PI__ISA_LINE_COLS
#define PI__ISA_LINE_COLS 4
#endif
#ifdef PI__ISA_WIDE
#define WIDE(digits) PI__ISA_WIDE(digits)
#else
#define WIDE(digits) 0
#endif
#ifdef PI__ISA_NARROW
#define NARROW(digits, bits) ((digits) == 1 && (bits) < 8)
#else
#define NARROW(digits, bits) ((void) (digits), (void) (bits), 0)
#endif

#define REP8(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
/* Applies macro M to each column number 0..PI__ISA_COLS - 1. No more numbers, because the compiler would expand code
 * for unused columns before removing it. */
#if PI__ISA_COLS == 16
#define EACH_COLUMN(M) REP8(M) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#elif PI__ISA_COLS == 8
#define EACH_COLUMN(M) REP8(M)
#else
#define EACH_COLUMN(M) M(0) M(1) M(2) M(3)
#endif

/* A block in registers: w = 8 lines of 64 codes; s, m = 16 rows' scales and minima for each half (kinds *32: only
 * [0]). */
typedef struct blk {
    vb w[8];
    vf s[2], m[2];
} blk;

/* Scales and minima of a record's blocks, 16 rows each, at index n_scales(kind) * block + half. */
typedef struct sides {
    vf s[16], m[16];
} sides;

/* ---- planes to lines: returns line q of a block */

INLINE vb line4(const uint8_t *p, int q)
{
    vb v = vb_load(p + 64 * (q % 4));
    return vb_and(q < 4 ? v : vb_shr(v, 4), vb_set(15));
}

/* Returns line q of the bit plane at p, with its bit as bit `to` of each code. */
INLINE vb line1(const uint8_t *p, int q, int to)
{
    vb v = vb_load(p);
    return vb_and(q < to ? vb_shl(v, to - q) : vb_shr(v, q - to), vb_set((uint8_t) (1 << to)));
}

/* Returns line q of the two-bit plane at p, with its bits as bits `to` and `to` + 1 of each code. */
INLINE vb line2(const uint8_t *p, int q, int to)
{
    vb v = vb_load(p + 64 * (q / 4));
    int from = 2 * (q % 4);
    return vb_and(from < to ? vb_shl(v, to - from) : vb_shr(v, from - to), vb_set((uint8_t) (3 << to)));
}

/* Code values of IQ4 (pi__iq4nl_values + 128) and FP4 (pi__e2m1_values + 16, the doubled values) */
static const uint8_t iq4_codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t e2m1_codes[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

/* ---- a record's scales */

/* Returns value n (a constant, 0..15) of the 16 six-bit values per row that are packed at p (put_six_bits of
 * linear_pack.c). */
INLINE vi six_bits(const uint8_t *p, int n)
{
    if (n < 15) return vi_and(vi_shr(vi_load(p + 64 * (n / 5)), 6 * (n % 5)), 63);
    return vi_or(vi_shr(vi_load(p), 30),
                 vi_or(vi_and(vi_shr(vi_load(p + 64), 28), 12), vi_and(vi_shr(vi_load(p + 128), 26), 48)));
}

/* Returns 2^(e - 128) for each row's byte e: half of the e8m0 scale, because FP4 codes are doubled values. Computed as
 * a product of two powers of two, so that subnormal results are exact. */
INLINE vf scale_e8m0(const uint8_t *p)
{
    vi e = vi_from_u8(p), half = vi_shr(e, 1);
    return vf_mul(vf_bits(vi_shl(vi_add(half, vi_set(64)), 23)), vf_bits(vi_shl(vi_add(vi_sub(e, half), vi_set(62)), 23)));
}

/* Returns half of each row's unsigned e4m3 value, because FP4 codes are doubled values; 0 for code 0x7f (NaN). Moves
 * exponent and mantissa to their place in a float, then corrects the exponent's bias by a product, which also converts
 * subnormals. */
INLINE vf scale_ue4m3(const uint8_t *p)
{
    vi e = vi_from_u8(p);
    vi bits = vi_shl(vi_and(e, 127), 20);
    return vf_mul(vf_bits(vi_and_ne(bits, e, 0x7f)), vf_set(0x1p119f));
}

INLINE void side_k2(const uint8_t *p, sides *r)
{
    vf d = vf_half(p), dmin = vf_sub(vf_zero(), vf_half(p + 32));
#define HALVES(j) SIDE(2 * j) SIDE(2 * j + 1)
#define SIDE(i)                                               \
    {                                                         \
        vi v = vi_from_u8(p + 64 + 16 * (i));                 \
        r->s[i] = vf_mul(d, vf_from_vi(vi_and(v, 15)));       \
        r->m[i] = vf_mul(dmin, vf_from_vi(vi_shr(v, 4)));     \
    }
    REP8(HALVES)
#undef SIDE
}

INLINE void side_k3(const uint8_t *p, sides *r)
{
    vf d = vf_half(p);
#define SIDE(i) r->s[i] = vf_mul(d, vf_from_vi(vi_sub(six_bits(p + 32, i), vi_set(32))));
    REP8(HALVES)
#undef SIDE
}

INLINE void side_k4(const uint8_t *p, sides *r)
{
    vf d = vf_half(p), dmin = vf_sub(vf_zero(), vf_half(p + 32));
#define SIDE(j)                                                           \
    r->s[j] = vf_mul(d, vf_from_vi(six_bits(p + 64, 2 * j)));             \
    r->m[j] = vf_mul(dmin, vf_from_vi(six_bits(p + 64, 2 * j + 1)));
    REP8(SIDE)
#undef SIDE
}

INLINE void side_k6(const uint8_t *p, sides *r)
{
    vf d = vf_half(p);
#define SIDE(i) r->s[i] = vf_mul(d, vf_from_vi(vi_from_s8(p + 32 + 16 * (i))));
    REP8(HALVES)
#undef SIDE
#undef HALVES
}

INLINE void side_xs(const uint8_t *p, sides *r)
{
    vf d = vf_half(p);
    vi high = vi_from_u16(p + 32), low = vi_load(p + 64);
#define SIDE(j)                                                                                               \
    {                                                                                                         \
        vi v = vi_or(vi_and(vi_shr(low, 4 * j), 15), vi_shl(vi_and(vi_shr(high, 2 * j), 3), 4));              \
        r->s[j] = vf_mul(d, vf_from_vi(vi_sub(v, vi_set(32))));                                               \
    }
    REP8(SIDE)
#undef SIDE
}

INLINE void unpack_side(int type, const uint8_t *p, sides *r)
{
    switch (pi__format_facts_of(type).scales) {
    case PI__SCALES_DM:
        r->s[0] = vf_half(p);
        r->m[0] = vf_half(p + 32);
        break;
    case PI__SCALES_E8M0: r->s[0] = scale_e8m0(p); break;
    case PI__SCALES_UE4M3:
        r->s[0] = scale_ue4m3(p);
        r->s[1] = scale_ue4m3(p + 16);
        r->s[2] = scale_ue4m3(p + 32);
        r->s[3] = scale_ue4m3(p + 48);
        break;
    case PI__SCALES_K2: side_k2(p, r); break;
    case PI__SCALES_K3: side_k3(p, r); break;
    case PI__SCALES_K4: side_k4(p, r); break;
    case PI__SCALES_K6: side_k6(p, r); break;
    case PI__SCALES_XS: side_xs(p, r); break;
    default: r->s[0] = vf_half(p); break;
    }
}

/* Returns line q (64 codes) of a block's planes at p, with the format's offset. FP4 and IQ4 codes are first replaced by
 * their table values plus the offset. */
INLINE vb line(int type, const uint8_t *p, int q)
{
    const pi__format_facts f = pi__format_facts_of(type);
    vb v;
    switch (f.plane / 64) { /* bits */
    case 8: v = vb_load(p + 64 * q); break;
    case 6: v = vb_or(line4(p, q), line2(p + 256, q, 4)); break;
    case 5: v = vb_or(line4(p, q), line1(p + 256, q, 4)); break;
    case 3: v = vb_or(line2(p, q, 0), line1(p + 128, q, 2)); break;
    case 2: v = line2(p, q, 0); break;
    default: v = line4(p, q); break;
    }
    if (f.codes == PI__CODES_IQ4) return vb_lut(vb_table(iq4_codes), v);
    if (f.codes == PI__CODES_FP4) return vb_lut(vb_table(e2m1_codes), v);
    return v;
}

INLINE int n_scales(int kind) { return kind == PI__LK_OFF16 || kind == PI__LK_MIN16 ? 2 : 1; }
INLINE int has_min(int kind) { return kind == PI__LK_MIN32 || kind == PI__LK_MIN16; }

INLINE void unpack_codes(int type, const uint8_t *p, blk *u)
{
#define LINE(q) u->w[q] = line(type, p, q);
    REP8(LINE)
#undef LINE
}

/* Copies scales and minima of block j of a record from r to u. */
INLINE void block_side(int kind, const sides *r, int j, blk *u)
{
    const int n = n_scales(kind);
    u->s[0] = r->s[n * j];
    if (n == 2) u->s[1] = r->s[n * j + 1];
    if (has_min(kind)) u->m[0] = r->m[n * j];
    if (kind == PI__LK_MIN16) u->m[1] = r->m[n * j + 1];
}

/* Unpacks block j of a record to u. p: the block's planes; r: the record's scales. */
INLINE void unpack(int type, const uint8_t *p, const sides *r, int j, blk *u)
{
    unpack_codes(type, p, u);
    block_side(pi__lin_format_of(type).kind, r, j, u);
}

/* Converts the codes of u, which have offset 2^offset, to canonical codes: offset 2^(bits - 1), or signed bytes if
 * PI__ISA_BIAS is 0. */
INLINE void to_canonical(int offset, int bits, blk *u)
{
#define LINE(q)                                                                                                  \
    {                                                                                                            \
        if (offset < bits - 1) u->w[q] = vb_add(u->w[q], vb_set((uint8_t) ((1 << (bits - 1)) - (1 << offset)))); \
        if (PI__ISA_BIAS == 0) u->w[q] = vb_xor(u->w[q], vb_set(128));                                           \
    }
    REP8(LINE)
#undef LINE
}

INLINE void put_canonical(int kind, const blk *u, uint8_t *dst)
{
    int n = n_scales(kind);
#if PI__ISA_LINE_COLS == 8
#define LINE(q) if (q % 2 == 0) vb_store_line8(dst + 64 * q, u->w[q], u->w[q + (q % 2 == 0)]);
#else
#define LINE(q) vb_store(dst + 64 * q, u->w[q]);
#endif
    REP8(LINE)
#undef LINE
    vf_store(dst + 512, u->s[0]);
    if (n == 2) vf_store(dst + 576, u->s[1]);
    if (has_min(kind)) vf_store(dst + 512 + 64 * n, u->m[0]);
    if (kind == PI__LK_MIN16) vf_store(dst + 704, u->m[1]);
}

/* Unpacks a packed tile to canonical blocks at dst. digits: activation digits of the kernels that will read the
 * tile. */
INLINE void unpack_tile(int digits, int type, const pi__lin_w *w, uint8_t *dst)
{
    const pi__lin_format f = pi__lin_format_of(type);
    const uint8_t *p = w->data;
    const size_t size = pi__lin_block_size(f.kind);
    const int off = f.kind == PI__LK_OFF32 || f.kind == PI__LK_OFF16;
    const int bits = NARROW(digits, pi__lin_bits(type)) ? pi__lin_bits(type) : 8;
    sides r;
    blk u;
    for (int64_t b = 0; b < w->n_in / 32; b += f.rec_blocks) {
        unpack_side(type, p, &r);
        p += f.side_bytes;
        for (int j = 0; j < f.rec_blocks; j++, p += f.code_bytes, dst += size) {
            unpack(type, p, &r, j, &u);
            if (off) to_canonical(f.offset, bits, &u);
            put_canonical(f.kind, &u, dst);
        }
    }
}

/* ---- multiplying */

/* Returns the start value of an integer dot product with codes that have offset 2^offset: -2^offset * the sum of the
 * activation codes, which removes the offset. 0 for codes without offset. n7: -128 * that sum. */
INLINE vi dot_start(int digits, int kind, int offset, const int32_t *n7)
{
    (void) digits;
    if (has_min(kind) || (offset == 7 && PI__ISA_SIGNED(digits))) return vi_set(0);
    return offset == 7 ? vi_dup(n7) : vi_sar(vi_dup(n7), 7 - offset);
}

/* Returns acc plus block b's terms of column c (of `cols`). v: the block's dot products times weight scales; m: the
 * block's minima. */
INLINE vf add_block(int kind, int cols, const vf m[2], const pi__lin_x *x, int64_t b, int c, vf v, vf acc)
{
    const int64_t i = b * cols + c, h = 2 * b * cols + c;
    acc = vf_fma(v, vf_dup(x->d + i), acc);
    if (kind == PI__LK_MIN32) acc = vf_fma(m[0], vf_dup(x->ds + i), acc);
    if (kind == PI__LK_MIN16) {
        acc = vf_fma(m[0], vf_dup(x->dsh + h), acc);
        acc = vf_fma(m[1], vf_dup(x->dsh + h + cols), acc);
    }
    return acc;
}

INLINE void put_column(const pi__lin_y *y, int c, vf acc)
{
    float *p = y->y + c * y->ld;
    acc = vf_mul(acc, vf_set(y->scale));
    if (y->lanes == 16) vf_store(p, acc);
    else vf_store_n(p, acc, y->lanes);
}

#define ZERO(c) if (c < cols) acc[c] = vf_zero();
#define PUT(c) if (c < cols) put_column(y, c, acc[c]);

/* Prefetches the b-th next_step bytes of w->next, the next packed tile. The canonical tile being multiplied is in the
 * caches, so memory would otherwise be idle. */
INLINE void fetch_next(const pi__lin_w *w, int64_t b)
{
    const uint8_t *p = w->next + (size_t) b * w->next_step;
    for (size_t i = 0; i < w->next_step; i += 64) __builtin_prefetch(p + i, 0, 2);
}

#if defined(PI__ISA_PART_ROWS)

#include "backend/cpu/linear_parts.inc.h"

#elif defined(PI__ISA_LINES)

/* t[column] += lines q0..q0 + 3 times the column's digits at x; columns are 32 * digits bytes apart. p: packed planes
 * of a block of `type`, or with type < 0 a canonical block. */
INLINE void dot_lines(int digits, int offset, int type, int cols, const uint8_t *p, int q0, const int8_t *x, vi *t)
{
#define DOT(c) if (c < cols) t[c] = vi_dot_line(digits, offset, t[c], w, x + step * q + 32 * digits * c);
#define LINE(i)                                                               \
    {                                                                         \
        const int q = q0 + i;                                                 \
        const vb w = type < 0 ? vb_load(p + 64 * q) : line(type, p, q);       \
        EACH_COLUMN(DOT)                                                            \
    }
    const int step = WIDE(digits) ? 8 : 4;
    LINE(0) LINE(1) LINE(2) LINE(3)
#undef LINE
#undef DOT
}

INLINE void dot_any(int digits, int offset, int type, int cols, const uint8_t *p, int q0, int q1, const int8_t *x, vi *t)
{
    dot_lines(digits, offset, type, cols, p, q0, x, t);
    if (q1 - q0 == 8) dot_lines(digits, offset, type, cols, p, q0 + 4, x, t);
}

#ifdef PI__ISA_NARROW

/* Returns the max number of lines that can be added in 16 bits, for codes of `bits` bits. A line adds two code products
 * to a 16-bit lane: 2 * 127 * 15 * 8, 2 * 127 * 31 * 4 and 2 * 127 * 63 * 2 are below 2^15. */
INLINE int narrow_lines(int bits) { return bits == 4 ? 8 : bits == 5 ? 4 : 2; }

/* t[column] += dots of lines q0..q1 - 1 with columns c0..c0 + n - 1 (n <= 4). q1 - q0 must not exceed
 * narrow_lines(). */
INLINE void narrow_dots(int type, int c0, int n, const uint8_t *p, int q0, int q1, const int8_t *x, vi *t)
{
    vi s[4];
#define DOT(c) if (c < n) s[c] = q == q0 ? vs_dot(w, x + 4 * q + 32 * (c0 + c)) : vs_add(s[c], vs_dot(w, x + 4 * q + 32 * (c0 + c)));
#define LINE(i)                                                               \
    if (q0 + i < q1) {                                                        \
        const int q = q0 + i;                                                 \
        const vb w = type < 0 ? vb_load(p + 64 * q) : line(type, p, q);       \
        DOT(0) DOT(1) DOT(2) DOT(3)                                           \
    }
#define SUM(c) if (c < n) t[c0 + c] = vi_add(t[c0 + c], vi_from_vs(s[c]));
    REP8(LINE)
    SUM(0) SUM(1) SUM(2) SUM(3)
#undef SUM
#undef LINE
#undef DOT
}

/* Like narrow_dots, for up to 8 lines: splits them into runs that fit 16-bit sums. */
INLINE void narrow_columns(int bits, int type, int c0, int n, const uint8_t *p, int q0, int q1, const int8_t *x, vi *t)
{
    const int step = narrow_lines(bits) < q1 - q0 ? narrow_lines(bits) : q1 - q0;
#define STEP(i) if (q0 + (i) * step < q1) narrow_dots(type, c0, n, p, q0 + (i) * step, q0 + (i + 1) * step, x, t);
    STEP(0) STEP(1) STEP(2) STEP(3)
#undef STEP
}

/* t[column] += dots of lines q0..q1 - 1 with all columns, in 16-bit sums. Columns are processed in groups of n, so that
 * their sums fit in the registers. */
INLINE void dots_narrow(int bits, int type, int cols, const uint8_t *p, int q0, int q1, const int8_t *x, vi *t)
{
    const int n = q1 - q0 > narrow_lines(bits) ? 2 : 4;
#define SOME(i) if ((i) * n < cols) narrow_columns(bits, type, (i) * n, cols - (i) * n < n ? cols - (i) * n : n, p, q0, q1, x, t);
    EACH_COLUMN(SOME)
#undef SOME
}

#endif

/* t[column] = dots of lines q0..q1 - 1 with all columns. With two digits: dots of the high digits, times 128, plus dots
 * of the low digits, so that one integer sum per column is enough. */
INLINE void dots(int digits, int kind, int offset, int bits, int type, int cols, const uint8_t *p, int q0, int q1,
                 const int8_t *x, const int32_t *n7, vi *t)
{
    (void) bits;
#define START(c) if (c < cols) t[c] = dot_start(digits, kind, offset, n7 + c);
#define NOTHING(c) if (c < cols) t[c] = vi_set(0);
#define NEXT(c) if (c < cols) t[c] = vi_add(vi_shl(t[c], 7), dot_start(digits, kind, offset, n7 + c));
#ifdef PI__ISA_NARROW
    if (NARROW(digits, bits)) {
        EACH_COLUMN(START)
        dots_narrow(bits, type, cols, p, q0, q1, x, t);
        return;
    }
#endif
    if (digits == 1 || WIDE(digits)) {
        EACH_COLUMN(START)
        dot_any(digits, offset, type, cols, p, q0, q1, x, t);
    } else {
        EACH_COLUMN(NOTHING)
        dot_any(digits, offset, type, cols, p, q0, q1, x, t);
        EACH_COLUMN(NEXT)
        dot_any(digits, offset, type, cols, p, q0, q1, x + 32, t);
    }
#undef START
#undef NOTHING
#undef NEXT
}

/* acc[column] += block b's terms, for all columns. type >= 0: p = packed planes of block j of a record with scales
 * `side`. type < 0: p = a canonical block, side NULL. offset: log2 of the codes' offset; bits: bits of a code. */
INLINE void columns(int digits, int kind, int offset, int bits, int type, int cols, const uint8_t *p, const sides *side, int j,
                    const pi__lin_x *x, int64_t b, vf *acc)
{
    const int n = n_scales(kind);
    const int8_t *q = x->q + 32 * digits * b * cols;
    vf v[PI__ISA_COLS], s[2], m[2] = {vf_zero(), vf_zero()};
    vi t[PI__ISA_COLS];
#define SCALE(i, h) s[h] = side ? side->s[i] : vf_load(p + 512 + 64 * h);
#define FIRST(c) if (c < cols) v[c] = vf_mul(vf_from_vi(t[c]), s[0]);
#define SECOND(c) if (c < cols) v[c] = vf_fma(vf_from_vi(t[c]), s[1], v[c]);
#define ADD(c) if (c < cols) acc[c] = add_block(kind, cols, m, x, b, c, v[c], acc[c]);
    dots(digits, kind, offset, bits, type, cols, p, 0, n == 1 ? 8 : 4, q, n == 1 ? x->n7 + b * cols : x->n7h + 2 * b * cols,
         t);
    SCALE(n * j, 0)
    EACH_COLUMN(FIRST)
    if (n == 2) {
        dots(digits, kind, offset, bits, type, cols, p, 4, 8, q, x->n7h + (2 * b + 1) * cols, t);
        SCALE(n * j + 1, 1)
        EACH_COLUMN(SECOND)
    }
    if (has_min(kind)) m[0] = side ? side->m[n * j] : vf_load(p + 512 + 64 * n);
    if (kind == PI__LK_MIN16) m[1] = side ? side->m[n * j + 1] : vf_load(p + 704);
    EACH_COLUMN(ADD)
#undef SCALE
#undef FIRST
#undef SECOND
#undef ADD
}

#else

/* Returns t plus lines q0..q0 + 3 of u times 16 digits at x. offset 7 = 8-bit canonical codes; less = small unsigned
 * codes. */
INLINE vi dot4(vi t, int offset, const blk *u, int q0, const int8_t *x)
{
    if (offset == 7) {
        t = vi_dot_canonical(t, u->w[q0], x);
        t = vi_dot_canonical(t, u->w[q0 + 1], x + 4);
        t = vi_dot_canonical(t, u->w[q0 + 2], x + 8);
        return vi_dot_canonical(t, u->w[q0 + 3], x + 12);
    }
    t = vi_dot_small(t, u->w[q0], x);
    t = vi_dot_small(t, u->w[q0 + 1], x + 4);
    t = vi_dot_small(t, u->w[q0 + 2], x + 8);
    return vi_dot_small(t, u->w[q0 + 3], x + 12);
}

/* t[half] = start value (start0, start1) + dot product of the block's half with the codes at q. High and low digits are
 * summed separately, because longer dependency chains leave too few independent sums (20 % slower). */
INLINE void dot_halves(int digits, int offset, const blk *u, const int8_t *q, vi start0, vi start1, vi t[2])
{
    const int8_t *low = q + 32 * (digits - 1);
    t[0] = dot4(start0, offset, u, 0, low);
    t[1] = dot4(start1, offset, u, 4, low + 16);
    if (digits == 1) return;
    t[0] = vi_add(vi_shl(dot4(vi_set(0), offset, u, 0, q), 7), t[0]);
    t[1] = vi_add(vi_shl(dot4(vi_set(0), offset, u, 4, q + 16), 7), t[1]);
}

/* Returns acc plus block b's terms of column c (of `cols`). */
INLINE vf column(int digits, int kind, int offset, int cols, const blk *u, const pi__lin_x *x, int64_t b, int c, vf acc)
{
    const int64_t i = b * cols + c, h = 2 * b * cols + c;
    const int8_t *q = x->q + 32 * digits * i;
    vf v;
    vi t[2];
    if (n_scales(kind) == 1) {
        dot_halves(digits, offset, u, q, dot_start(digits, kind, offset, x->n7 + i), vi_set(0), t);
        v = vf_mul(vf_from_vi(vi_add(t[0], t[1])), u->s[0]);
    } else {
        dot_halves(digits, offset, u, q, dot_start(digits, kind, offset, x->n7h + h),
                   dot_start(digits, kind, offset, x->n7h + h + cols), t);
        v = vf_fma(vf_from_vi(t[1]), u->s[1], vf_mul(vf_from_vi(t[0]), u->s[0]));
    }
    return add_block(kind, cols, u->m, x, b, c, v, acc);
}

INLINE void get_canonical(int kind, const uint8_t *p, blk *u)
{
    int n = n_scales(kind);
#define LINE(q) u->w[q] = vb_load(p + 64 * q);
    REP8(LINE)
#undef LINE
    u->s[0] = vf_load(p + 512);
    if (n == 2) u->s[1] = vf_load(p + 576);
    if (has_min(kind)) u->m[0] = vf_load(p + 512 + 64 * n);
    if (kind == PI__LK_MIN16) u->m[1] = vf_load(p + 704);
}

/* acc[column] += block b's terms, for all columns. Arguments: as in the version for PI__ISA_LINES above. */
INLINE void columns(int digits, int kind, int offset, int bits, int type, int cols, const uint8_t *p, const sides *side, int j,
                    const pi__lin_x *x, int64_t b, vf *acc)
{
    (void) bits;
    blk u;
    if (type < 0) {
        get_canonical(kind, p, &u);
    } else {
        unpack(type, p, side, j, &u);
        if (offset == 7) to_canonical(7, 8, &u);
    }
#define COLUMN(c) if (c < cols) acc[c] = column(digits, kind, offset, cols, &u, x, b, c, acc[c]);
    EACH_COLUMN(COLUMN)
#undef COLUMN
}

#endif

#ifndef PI__ISA_PART_ROWS

/* Multiplies canonical tile w with codes of `bits` bits by the cols columns of x, and writes 16 results per column to
 * y. */
INLINE void mul_tile(int digits, int kind, int bits, int cols, const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y)
{
    const size_t size = pi__lin_block_size(kind);
    const int offset = has_min(kind) ? 0 : bits - 1;
    const uint8_t *p = w->data;
    vf acc[PI__ISA_COLS];
    EACH_COLUMN(ZERO)
    for (int64_t b = 0; b < w->n_in / 32; b++, p += size) {
        if (w->next) fetch_next(w, b);
        columns(digits, kind, offset, bits, -1, cols, p, NULL, 0, x, b, acc);
    }
    EACH_COLUMN(PUT)
}

#endif

/* Multiplies packed tile w by the cols columns of x, unpacking blocks in registers. With PI__ISA_AHEAD, prefetches
 * packed data: unpacking a block takes more instructions than the reorder window holds, so loads and arithmetic would
 * not overlap. AVX-512 does not define it: there the hardware prefetcher already reads at memory speed, and software
 * prefetching disturbs it (measured on Zen 4). */
INLINE void mul_direct(int digits, int type, int cols, const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y)
{
    const pi__lin_format f = pi__lin_format_of(type);
    const uint8_t *p = w->data;
    vf acc[PI__ISA_COLS];
    sides r;
    EACH_COLUMN(ZERO)
    for (int64_t b = 0; b < w->n_in / 32; b += f.rec_blocks) {
        unpack_side(type, p, &r);
        p += f.side_bytes;
        for (int j = 0; j < f.rec_blocks; j++, p += f.code_bytes) {
#ifdef PI__ISA_AHEAD
            for (int i = 0; i < f.code_bytes; i += 64) __builtin_prefetch(p + PI__ISA_AHEAD + i, 0, 3);
#endif
            columns(digits, f.kind, f.offset, pi__lin_bits(type), type, cols, p, &r, j, x, b + j, acc);
        }
    }
    EACH_COLUMN(PUT)
}

/* Returns the 16 rows' values of column k of a float tile as floats. kind: format of the tile. */
INLINE vf float_line(int kind, const uint8_t *p, int64_t k)
{
    return kind == PI__LK_F32 ? vf_load(p + 64 * k) : kind == PI__LK_F16 ? vf_half(p + 32 * k) : vf_bf16(p + 32 * k);
}

/* Multiplies a tile of float weights by the first cols columns of x, a group of `group` columns. */
INLINE void mul_float(int kind, int group, int cols, const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y)
{
    const int64_t n_blk = (w->n_in + 31) / 32;
    const uint8_t *p = w->data;
    vf acc[PI__ISA_COLS];
    EACH_COLUMN(ZERO)
    const size_t size = kind == PI__LK_F32 ? 2048 : 1024;
    for (int64_t b = 0; b < n_blk; b++, p += size) {
        const int64_t n = b + 1 < n_blk ? 32 : w->n_in - 32 * b;
        const float *f = x->f + 32 * b * group;
        for (int64_t k = 0; k < n; k++) {
            vf v = float_line(kind, p, k);
#define FCOLUMN(c) if (c < cols) acc[c] = vf_fma(v, vf_dup(f + 32 * c + k), acc[c]);
            EACH_COLUMN(FCOLUMN)
        }
    }
    EACH_COLUMN(PUT)
}

/* Multiplies a tile of float weights by all cols columns, PI__ISA_FLOAT_COLS (at least half of them) in one pass. */
INLINE void mul_floats(int kind, int cols, const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y)
{
    enum { MOST = PI__ISA_FLOAT_COLS };
    mul_float(kind, cols, cols < MOST ? cols : MOST, w, x, y);
    if (cols > MOST) {
        const pi__lin_x more = {.f = x->f + 32 * MOST};
        const pi__lin_y to = {.y = y->y + MOST * y->ld, .ld = y->ld, .lanes = y->lanes, .scale = y->scale};
        mul_float(kind, cols, cols - MOST, w, &more, &to);
    }
}

/* ---- input of matrices: prologue, then quantization */

/* e^x with a relative error below 2e-7; x is clamped to [-87, 88]. */
INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set(0x1.8p23f);
    x = vf_min(vf_set(88.0f), vf_max(vf_set(-87.0f), x)); /* propagates NaN */
    vf t = vf_fma(x, vf_set(0x1.715476p+0f), magic);
    vf n = vf_sub(t, magic);
    vf r = vf_fma(n, vf_set(-0.693359375f), x);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(vf_mul(r, r), p, vf_add(r, vf_set(1.0f)));
    return vf_mul(p, vf_bits(vi_shl(vi_add(vi_sub(vi_bits(t), vi_bits(magic)), vi_set(127)), 23)));
}

/* gelu(x) = x * (1 + tanh(u)) / 2 = x / (1 + e^-2u), u = sqrt(2/pi) * (x + 0.044715 x^3) */
INLINE vf gelu(vf x)
{
    vf u = vf_mul(x, vf_fma(vf_mul(x, x), vf_set(-2.0f * 0.7978845608f * 0.044715f), vf_set(-2.0f * 0.7978845608f)));
    return vf_div(x, vf_add(vf_set(1.0f), vf_exp(u)));
}

/* x/2 (1 + erf(x / sqrt(2))) = max(x, 0) - a/2 (1 - erf(a / sqrt(2))), a = |x|. 1 - erf within 2e-7: Abramowitz and
 * Stegun, 7.1.26. */
INLINE vf gelu_erf(vf x)
{
    const vf a = vf_max(vf_sub(vf_zero(), x), x), z = vf_mul(a, vf_set(0.70710678118654752f));
    const vf t = vf_div(vf_set(1.0f), vf_fma(z, vf_set(0.3275911f), vf_set(1.0f)));
    vf p = vf_set(1.061405429f);
    p = vf_fma(p, t, vf_set(-1.453152027f));
    p = vf_fma(p, t, vf_set(1.421413741f));
    p = vf_fma(p, t, vf_set(-0.284496736f));
    p = vf_fma(p, t, vf_set(0.254829592f));
    const vf rest = vf_mul(vf_mul(p, t), vf_exp(vf_sub(vf_zero(), vf_mul(z, z))));
    return vf_sub(vf_max(vf_zero(), x), vf_mul(vf_mul(a, vf_set(0.5f)), rest)); /* propagates NaN */
}

INLINE vf silu(vf x) { return vf_div(x, vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_zero(), x)))); }
/* x sigmoid(1.702 x) */
INLINE vf silu_oai(vf x) { return vf_div(x, vf_add(vf_set(1.0f), vf_exp(vf_mul(vf_set(-1.702f), x)))); }

/* v = the 32 values of block b of the n values at p, with zeros past the end. */
INLINE void get_block(const float *p, int64_t n, int64_t b, vf v[2])
{
    float tmp[32] = {0};
    if (n - 32 * b < 32) {
        memcpy(tmp, p + 32 * b, (size_t) (n - 32 * b) * sizeof *tmp);
        v[0] = vf_load(tmp);
        v[1] = vf_load(tmp + 16);
    } else {
        v[0] = vf_load(p + 32 * b);
        v[1] = vf_load(p + 32 * b + 16);
    }
}

/* Returns 1 / sqrt(mean of squares of the n values at p + eps). The order of the sum depends on n only. */
static float rms_factor(const float *p, int64_t n, float eps)
{
    vf a = vf_zero(), b = vf_zero(), c = vf_zero(), d = vf_zero(), v[2];
    const int64_t n_blk = (n + 31) / 32;
    for (int64_t i = 0; i < n_blk; i += 2) {
        get_block(p, n, i, v);
        a = vf_fma(v[0], v[0], a);
        b = vf_fma(v[1], v[1], b);
        if (i + 1 == n_blk) break;
        get_block(p, n, i + 1, v);
        c = vf_fma(v[0], v[0], c);
        d = vf_fma(v[1], v[1], d);
    }
    float s[16];
    vf_store(s, vf_add(vf_add(a, b), vf_add(c, d)));
    for (int w = 8; w > 0; w /= 2)
        for (int i = 0; i < w; i++) s[i] += s[i + w];
    return 1.0f / sqrtf(s[0] / (float) n + eps);
}

enum { WANT_FLOATS = 1 << PI__LK_F32 | 1 << PI__LK_F16 | 1 << PI__LK_BF16 };

/* Returns the high digits of 16 codes. A code is 128 * high + low, high in -127..127, low in -64..63. */
INLINE vi high_digit(vi code) { return vi_sar(vi_add(code, vi_set(64)), 7); }

/* Stores 32 byte codes: codes 8 k .. 8 k + 7 at p + k * step (step 8 or 16); sum[half] = sum of the half's codes. */
INLINE void store_codes(int8_t *p, int step, vi a, vi b, int32_t sum[2])
{
#if PI__ISA_LINE_COLS == 8
    if (step == 16) {
        vi_store_codes_apart(p, a, b, sum);
        return;
    }
#endif
    (void) step;
    vi_store_codes(p, a, b, sum);
}

/* Stores 32 codes at p as one digit, as high digits then low digits, or as 16-bit numbers (WIDE). step: as in
 * store_codes. sum[half] = sum of the half's codes. */
INLINE void put_codes(int digits, int8_t *p, int step, vi c0, vi c1, int32_t sum[2])
{
    int32_t low[2];
#ifdef PI__ISA_WIDE
    if (WIDE(digits)) {
        vi_store_wide(p, c0, c1, sum);
        return;
    }
#endif
    if (digits == 1) {
        store_codes(p, step, c0, c1, sum);
        return;
    }
    const vi h0 = high_digit(c0), h1 = high_digit(c1);
    store_codes(p, step, h0, h1, sum);
    store_codes(p + 4 * step, step, vi_sub(c0, vi_shl(h0, 7)), vi_sub(c1, vi_shl(h1, 7)), low);
    sum[0] = 128 * sum[0] + low[0];
    sum[1] = 128 * sum[1] + low[1];
}

/* Quantizes 32 values v to column col of block b of group x, and writes the sums that the kinds in `want` read.
 * Magnitudes are compared as integers, so a NaN is the max and becomes the scale. A block with a non-finite value has
 * zero codes and a non-finite scale: their product is NaN, so every result of the row is NaN. */
INLINE void round_block(int digits, const vf v[2], const pi__lin_x *x, int64_t b, int32_t col, uint32_t want)
{
    const int64_t i = b * x->cols + col, h = 2 * b * x->cols + col;
    const float most = digits == 2 ? PI__LIN_CODE_MAX : PI__LIN_BYTE_MAX;
    union { int32_t i; float f; } amax;
    amax.i = vi_hmax(vi_max(vi_and(vi_bits(v[0]), 0x7fffffff), vi_and(vi_bits(v[1]), 0x7fffffff)));
    const float d = amax.f / most;
    vi c0 = vi_set(0), c1 = vi_set(0);
    if (amax.f > 1e-30f && amax.f < INFINITY) {
        const vf id = vf_set(most / amax.f);
        c0 = vi_round(vf_mul(v[0], id));
        c1 = vi_round(vf_mul(v[1], id));
    }
    int32_t sum[2];
    int step;
    const int64_t at = pi__lin_codes_at(PI__ISA_LINE_COLS, digits, x->cols, b, col, &step);
    put_codes(digits, x->q + at, step, c0, c1, sum);
    x->d[i] = d;
    if (want & 1 << PI__LK_OFF32) x->n7[i] = -128 * (sum[0] + sum[1]);
    if (want & 1 << PI__LK_MIN32) x->ds[i] = d * (float) (sum[0] + sum[1]);
    if (want & 1 << PI__LK_OFF16) {
        x->n7h[h] = -128 * sum[0];
        x->n7h[h + x->cols] = -128 * sum[1];
    }
    if (want & 1 << PI__LK_MIN16) {
        x->dsh[h] = d * (float) sum[0];
        x->dsh[h + x->cols] = d * (float) sum[1];
    }
}

INLINE void input_block(int digits, int kind, const pi__lin_in *in, int64_t n_in, int32_t row, float inv, int64_t b,
                        const pi__lin_x *x, int32_t col, uint32_t want)
{
    vf v[2], g[2];
    get_block(in->x + row * in->ldx, n_in, b, v);
    if (kind == PI__IN_RMSNORM) {
        get_block(in->w, n_in, b, g);
        v[0] = vf_mul(vf_mul(v[0], vf_set(inv)), g[0]);
        v[1] = vf_mul(vf_mul(v[1], vf_set(inv)), g[1]);
    } else if (kind != PI__IN_PLAIN) {
        get_block(in->x2 + row * in->ldx2, n_in, b, g);
        const vf most = vf_set(fabsf(in->limit)), least = vf_set(-fabsf(in->limit)); /* propagates NaN */
        for (int i = 0; i < 2 && kind != PI__IN_GEGLU && in->limit != 0; i++) {
            if (in->limit > 0) v[i] = vf_min(most, v[i]);
            g[i] = vf_min(most, vf_max(least, g[i]));
        }
        for (int i = 0; i < 2; i++) {
            if (kind == PI__IN_SWIGLU_OAI) v[i] = vf_mul(silu_oai(v[i]), vf_add(g[i], vf_set(1.0f)));
            else if (kind == PI__IN_GEGLU_ERF) v[i] = vf_mul(gelu_erf(v[i]), g[i]);
            else if (kind == PI__IN_GELU) v[i] = gelu_erf(v[i]);
            else if (kind == PI__IN_RELU2) v[i] = vf_mul(vf_max(vf_set(0.0f), v[i]), g[i]);
            else if (kind == PI__IN_GEGLU) v[i] = vf_mul(gelu(v[i]), g[i]);
            else v[i] = vf_mul(in->limit < 0 ? vf_min(most, silu(v[i])) : silu(v[i]), g[i]);
        }
    }
    if (want & WANT_FLOATS) {
        vf_store(x->f + 32 * (b * x->cols + col), v[0]);
        vf_store(x->f + 32 * (b * x->cols + col) + 16, v[1]);
    }
    if (want & ~(uint32_t) WANT_FLOATS) round_block(digits, v, x, b, col, want);
}

/* Packs the input of a group (pi__lin_input_fn) for one prologue `kind`. Processes 4 blocks of all rows, then the next
 * 4 blocks, because the arrays [block][column] of different rows share cache lines. */
INLINE void input(int digits, int kind, const pi__lin_in *in, int64_t n_in, int32_t row, int32_t n, int64_t b0, int64_t b1,
                  const pi__lin_x *x, int32_t col, uint32_t want)
{
    float inv[PI__LIN_COLS];
    for (int32_t i = 0; i < n; i++)
        inv[i] = kind == PI__IN_RMSNORM ? rms_factor(in->x + (row + i) * in->ldx, n_in, in->eps) : 1.0f;
    for (; b0 < b1; b0 += 4)
        for (int32_t i = 0; i < n; i++)
            for (int64_t b = b0; b < b1 && b < b0 + 4; b++)
                input_block(digits, kind, in, n_in, row + i, inv[i], b, x, col + i, want);
}

INLINE void input_any(int digits, const pi__lin_in *in, int64_t n_in, int32_t row, int32_t n, int64_t b0, int64_t b1,
                      const pi__lin_x *x, int32_t col, uint32_t want)
{
    switch (in->kind) {
    case PI__IN_RMSNORM: input(digits, PI__IN_RMSNORM, in, n_in, row, n, b0, b1, x, col, want); break;
    case PI__IN_GEGLU: input(digits, PI__IN_GEGLU, in, n_in, row, n, b0, b1, x, col, want); break;
    case PI__IN_SWIGLU: input(digits, PI__IN_SWIGLU, in, n_in, row, n, b0, b1, x, col, want); break;
    case PI__IN_SWIGLU_OAI: input(digits, PI__IN_SWIGLU_OAI, in, n_in, row, n, b0, b1, x, col, want); break;
    case PI__IN_GEGLU_ERF: input(digits, PI__IN_GEGLU_ERF, in, n_in, row, n, b0, b1, x, col, want); break;
    case PI__IN_GELU: input(digits, PI__IN_GELU, in, n_in, row, n, b0, b1, x, col, want); break;
    case PI__IN_RELU2: input(digits, PI__IN_RELU2, in, n_in, row, n, b0, b1, x, col, want); break;
    default: input(digits, PI__IN_PLAIN, in, n_in, row, n, b0, b1, x, col, want); break;
    }
}

#define INPUT_ARGS const pi__lin_in *in, int64_t n_in, int32_t row, int32_t n, int64_t b0, int64_t b1, const pi__lin_x *x, \
                   int32_t col, uint32_t want
static void input_a8(INPUT_ARGS) { input_any(1, in, n_in, row, n, b0, b1, x, col, want); }
static void input_a15(INPUT_ARGS) { input_any(2, in, n_in, row, n, b0, b1, x, col, want); }

/* ---- instances, and one table for each activation width */

enum { DIGITS_a8 = 1, DIGITS_a15 = 2 };
#define OFF_KINDS(X, ...) X(OFF32, __VA_ARGS__) X(OFF16, __VA_ARGS__)
#define CODE_KINDS_a15(X, ...) OFF_KINDS(X, __VA_ARGS__) X(MIN32, __VA_ARGS__) X(MIN16, __VA_ARGS__)
/* 8-bit activations and kinds MIN*: only the NARROW_KINDS instances are needed, because their codes have fewer than 8
 * bits */
#ifdef PI__ISA_NARROW
#define CODE_KINDS_a8 OFF_KINDS
#else
#define CODE_KINDS_a8 CODE_KINDS_a15
#endif
#define FLOAT_KINDS(X, ...) X(F32, __VA_ARGS__) X(F16, __VA_ARGS__) X(BF16, __VA_ARGS__)

#define ARGS const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y
#define DEF_UNPACK(T, ...) static void unpack_##T##_a15(const pi__lin_w *w, uint8_t *dst) { unpack_tile(2, PI__##T, w, dst); }
PI__CODE_FORMATS(DEF_UNPACK)
#ifdef PI__ISA_NARROW
#define DEF_NARROW(T, ...) static void unpack_##T##_a8(const pi__lin_w *w, uint8_t *dst) { unpack_tile(1, PI__##T, w, dst); }
PI__CODE_FORMATS(DEF_NARROW)
#endif

#if PI__ISA_DIRECT > 0
#define DEF_DIRECT(T, A, n) static void direct_##T##_##A##_##n(ARGS) { mul_direct(DIGITS_##A, PI__##T, n, w, x, y); }
#define DIRECT_1(T, ...) DEF_DIRECT(T, a8, 1) DEF_DIRECT(T, a15, 1)
#define DIRECT_2(T, ...) DEF_DIRECT(T, a8, 2) DEF_DIRECT(T, a15, 2)
#define DIRECT_3(T, ...) DEF_DIRECT(T, a8, 3) DEF_DIRECT(T, a15, 3)
#define DIRECT_4(T, ...) DEF_DIRECT(T, a8, 4) DEF_DIRECT(T, a15, 4)
PI__CODE_FORMATS(DIRECT_1)
#if PI__ISA_DIRECT == 4
PI__CODE_FORMATS(DIRECT_2)
PI__CODE_FORMATS(DIRECT_3)
PI__CODE_FORMATS(DIRECT_4)
#endif
#endif

#define DEF_FLOAT(K, n) static void mul_##K##_##n(ARGS) { mul_floats(PI__LK_##K, n, w, x, y); }
#define DEF_FLOATS(A, n) FLOAT_KINDS(DEF_FLOAT, n)
#define DEF_TILE(K, A, n) static void mul_##K##_##A##_##n(ARGS) { mul_tile(DIGITS_##A, PI__LK_##K, 8, n, w, x, y); }
#define DEF_TILES(A, n) CODE_KINDS_##A(DEF_TILE, A, n)
#if PI__ISA_COLS == 16
#define COLS(X, A) X(A, 1) X(A, 2) X(A, 3) X(A, 4) X(A, 5) X(A, 6) X(A, 7) X(A, 8) X(A, 9) X(A, 10) X(A, 11) X(A, 12) \
                   X(A, 13) X(A, 14) X(A, 15) X(A, 16)
#elif PI__ISA_COLS == 8
#define COLS(X, A) X(A, 1) X(A, 2) X(A, 3) X(A, 4) X(A, 5) X(A, 6) X(A, 7) X(A, 8)
#else
#define COLS(X, A) X(A, 1) X(A, 2) X(A, 3) X(A, 4)
#endif
COLS(DEF_FLOATS, any)
COLS(DEF_TILES, a8)
COLS(DEF_TILES, a15)

#define UNPACK_a15(T, ...) [PI__##T] = unpack_##T##_a15,
#ifdef PI__ISA_NARROW
#define UNPACK_a8(T, ...) [PI__##T] = unpack_##T##_a8,
#else
#define UNPACK_a8(T, ...) UNPACK_a15(T)
#endif
#if PI__ISA_DIRECT == 4
#define ROW_DIRECT(T, A) [PI__##T] = {NULL, direct_##T##_##A##_1, direct_##T##_##A##_2, direct_##T##_##A##_3, direct_##T##_##A##_4},
#elif PI__ISA_DIRECT == 1
#define ROW_DIRECT(T, A) [PI__##T] = {NULL, direct_##T##_##A##_1},
#else
#define ROW_DIRECT(T, A) [PI__##T] = {NULL},
#endif
#define DIRECT_a8(T, ...) ROW_DIRECT(T, a8)
#define DIRECT_a15(T, ...) ROW_DIRECT(T, a15)
#define ROW_FLOAT(K, n) [PI__LK_##K][n] = mul_##K##_##n,
#define ROW_TILE(K, A, n) [PI__LK_##K][n] = mul_##K##_##A##_##n,
#define ROW_COLS(A, n) FLOAT_KINDS(ROW_FLOAT, n) CODE_KINDS_##A(ROW_TILE, A, n)

#ifdef PI__ISA_NARROW
/* Combinations of kind and bits that formats use. */
#define NARROW_KINDS(X, n) X(OFF32, 4, n) X(OFF32, 5, n) X(OFF16, 4, n) X(OFF16, 5, n) X(OFF16, 6, n) X(MIN32, 4, n) X(MIN32, 5, n) \
                           X(MIN16, 4, n)
#define DEF_NARROW_TILE(K, bits, n) static void mul_##K##_##bits##_##n(ARGS) { mul_tile(1, PI__LK_##K, bits, n, w, x, y); }
#define DEF_NARROW_TILES(A, n) NARROW_KINDS(DEF_NARROW_TILE, n)
#define ROW_NARROW(K, bits, n) [bits][PI__LK_##K][n] = mul_##K##_##bits##_##n,
#define ROW_NARROWS(A, n) NARROW_KINDS(ROW_NARROW, n)
COLS(DEF_NARROW_TILES, a8)
static const pi__lin_narrow_fns narrow[8] = {COLS(ROW_NARROWS, a8)};
#define NARROW_a8 narrow
#else
#define NARROW_a8 NULL
#endif
#define NARROW_a15 NULL

#define TABLE(A, isa, more)                     \
    {                                           \
        .name = isa,                            \
        .max_cols = PI__ISA_COLS,               \
        .digits = DIGITS_##A,                   \
        .code_bias = PI__ISA_BIAS,              \
        .line_cols = PI__ISA_LINE_COLS,         \
        .input = input_##A,                     \
        .unpack = {PI__CODE_FORMATS(UNPACK_##A)}, \
        .direct = {PI__CODE_FORMATS(DIRECT_##A)}, \
        .mul = {COLS(ROW_COLS, A)},             \
        .narrow = NARROW_##A,                   \
        .many = more,                           \
    }
static const pi__cpu_linear_kernels kernels[2] = {TABLE(a8, PI__ISA_NAME, NULL), TABLE(a15, PI__ISA_NAME, NULL)};

const pi__cpu_linear_kernels *PI__ISA_FUNC(int bits) { return &kernels[bits == 15]; }
