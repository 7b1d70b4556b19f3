/* Products of canonical tiles and many columns with AMX (Sapphire Rapids and later), for prompts. All other kernels
 * for these processors are in linear_avx512.c. A tile register is 16 rows of 64 bytes. One instruction on three of
 * them computes
 *
 *     sum[column][row] += digits[column][32] * codes[8 lines][row: 4 codes]
 *
 * The 8 lines of a canonical block and the digits of a group's columns already have the layouts of the two operands.
 * Sums are stored after each block (or half), because each has its own scale.
 *
 * Integer sums are exact, and floats are added in the order of linear.h, so results are bitwise identical to
 * linear_avx512.c. Each call configures the tile registers and releases them, because live tile registers slow down
 * context switches. The caller checks with pi__isa_available that the process may use AMX. */
#include "backend/cpu/linear.h"

#include <immintrin.h>

#ifndef PI__AMX_TABLE
#define PI__AMX_TABLE pi__lin_amx
#endif

/* Numbers of the tile registers. */
#define SUM_0 0
#define SUM_1 1
#define DIGITS_0 2
#define DIGITS_1 3
#define CODES 4

typedef struct tile_config { /* memory operand of _tile_loadconfig */
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Integer dot products of one block or half: digit[d][column][row]. Two digits: digit[0] from the high digits, digit[1]
 * from the low digits. One digit: only digit[0]. */
typedef struct sums {
    _Alignas(64) int32_t digit[2][PI__LIN_COLS][16];
} sums;

PI__INLINE int n_scales(int kind) { return kind == PI__LK_OFF16 || kind == PI__LK_MIN16 ? 2 : 1; }
PI__INLINE int has_min(int kind) { return kind == PI__LK_MIN32 || kind == PI__LK_MIN16; }

/* Configures the tile registers for products of `cols` batch rows and n matrix columns. n: 32 (a block), or 16 if each
 * half of a block has a scale. */
PI__INLINE void configure(int cols, int n)
{
    /* volatile: the compilers' headers declare only the first 8 bytes as read */
    volatile tile_config c = {.palette = 1};
    for (int i = SUM_0; i <= CODES; i++) {
        c.rows[i] = (uint8_t) (i == CODES ? n / 4 : cols);
        c.row_bytes[i] = (uint16_t) (i == DIGITS_0 || i == DIGITS_1 ? n : 64);
    }
    _tile_loadconfig((const void *) &c);
}

/* s->digit[0] = products of the code lines at p and the digits at q; with two digits, digit[1] = products with the low
 * digits at q + 32. */
PI__INLINE void multiply(int digits, const uint8_t *p, const int8_t *q, sums *s)
{
    _tile_loadd(CODES, p, 64);
    _tile_loadd(DIGITS_0, q, 32 * digits);
    _tile_zero(SUM_0);
    _tile_dpbsud(SUM_0, DIGITS_0, CODES);
    _tile_stored(SUM_0, s->digit[0], 64);
    if (digits == 1) return;
    _tile_loadd(DIGITS_1, q + 32, 64);
    _tile_zero(SUM_1);
    _tile_dpbsud(SUM_1, DIGITS_1, CODES);
    _tile_stored(SUM_1, s->digit[1], 64);
}

/* Returns the dot products of column c with 16 rows as floats. n7[c]: -128 * the sum of the column's activation codes,
 * which removes the offset 128 of the weight codes. */
PI__INLINE __m512 sum_of(int digits, int kind, const sums *s, int c, const int32_t *n7)
{
    __m512i t = _mm512_load_si512(s->digit[0][c]);
    if (digits == 2) t = _mm512_add_epi32(_mm512_slli_epi32(t, 7), _mm512_load_si512(s->digit[1][c]));
    if (!has_min(kind)) t = _mm512_add_epi32(t, _mm512_set1_epi32(n7[c]));
    return _mm512_cvtepi32_ps(t);
}

PI__INLINE void mul_tile(int digits, int kind, const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y)
{
    const int cols = x->cols, n = n_scales(kind);
    const uint8_t *p = w->data, *next = w->next;
    __m512 acc[PI__LIN_COLS];
    sums s[2];
    for (int c = 0; c < cols; c++) acc[c] = _mm512_setzero_ps();
    configure(cols, 32 / n);
    for (int64_t b = 0; b < w->n_in / 32; b++, p += pi__lin_block_size(kind)) {
        const int64_t at = b * cols;
        const int8_t *q = x->q + 32 * digits * at;
        __m512 scale[2], min[2];
        for (int h = 0; h < n; h++) {
            multiply(digits, p + 256 * h, q + 16 * h, &s[h]);
            scale[h] = _mm512_loadu_ps(p + 512 + 64 * h);
            if (has_min(kind)) min[h] = _mm512_loadu_ps(p + 512 + 64 * (n + h));
        }
        for (size_t i = 0; next && i < w->next_step; i += 64) _mm_prefetch((const char *) next + i, _MM_HINT_T1);
        if (next) next += w->next_step;
        for (int c = 0; c < cols; c++) {
            const int32_t *n7 = n == 1 ? x->n7 + at : x->n7h + 2 * at;
            __m512 v = _mm512_mul_ps(sum_of(digits, kind, &s[0], c, n7), scale[0]);
            if (n == 2) v = _mm512_fmadd_ps(sum_of(digits, kind, &s[1], c, n7 + cols), scale[1], v);
            acc[c] = _mm512_fmadd_ps(v, _mm512_set1_ps(x->d[at + c]), acc[c]);
            if (kind == PI__LK_MIN32) acc[c] = _mm512_fmadd_ps(min[0], _mm512_set1_ps(x->ds[at + c]), acc[c]);
            if (kind == PI__LK_MIN16) {
                acc[c] = _mm512_fmadd_ps(min[0], _mm512_set1_ps(x->dsh[2 * at + c]), acc[c]);
                acc[c] = _mm512_fmadd_ps(min[1], _mm512_set1_ps(x->dsh[2 * at + cols + c]), acc[c]);
            }
        }
    }
    _tile_release();
    const __mmask16 lanes = (__mmask16) ((1u << y->lanes) - 1);
    for (int c = 0; c < cols; c++)
        _mm512_mask_storeu_ps(y->y + c * y->ld, lanes, _mm512_mul_ps(acc[c], _mm512_set1_ps(y->scale)));
}

#define KINDS(X) X(OFF32) X(MIN32) X(OFF16) X(MIN16)
#define ARGS const pi__lin_w *w, const pi__lin_x *x, const pi__lin_y *y
#define DEF(K)                                                           \
    static void mul_##K##_a8(ARGS) { mul_tile(1, PI__LK_##K, w, x, y); } \
    static void mul_##K##_a15(ARGS) { mul_tile(2, PI__LK_##K, w, x, y); }
KINDS(DEF)

#define ROW_a8(K) [PI__LK_##K] = mul_##K##_a8,
#define ROW_a15(K) [PI__LK_##K] = mul_##K##_a15,
const pi__lin_mul_fn PI__AMX_TABLE[2][PI__LK_N] = {{KINDS(ROW_a8)}, {KINDS(ROW_a15)}};
