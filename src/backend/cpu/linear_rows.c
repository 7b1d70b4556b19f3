/* Formats that keep the file's rows (IQ and ternary): decodes a tile's rows to canonical blocks on the fly.
 *
 * Every value of these formats is a small integer times a scale of 16 columns, so dot products stay integers. Plain C
 * on words of 8 codes, for all instruction sets. No memory. Threads: any. */
#include <string.h>

#include "backend/cpu/linear.h"
#include "formats/iq_tables.h"

/* A super-block (256 values) of one row: codes[k] = 8 signed byte codes, lowest byte first; unit[i] = factor of values
 * 16 i to 16 i + 15. value = code * unit. */
typedef struct row_block {
    uint64_t codes[32];
    float unit[16];
} row_block;

static const uint64_t ones = 0x0101010101010101u;

static uint32_t get16(const uint8_t *p) { return (uint32_t) p[0] | (uint32_t) p[1] << 8; }
static uint32_t get32(const uint8_t *p) { return get16(p) | get16(p + 2) << 16; }
static float half_at(const uint8_t *p) { return pi__f16_to_f32((uint16_t) get16(p)); }

/* Negates byte i of v (8 bytes, values 1..127) if bit i of signs is set. */
static inline uint64_t with_signs(uint64_t v, uint32_t signs)
{
    /* byte i: 1 << i if bit i of signs is set, else 0 */
    uint64_t bit = (signs & 0xff) * ones & 0x8040201008040201u;
    uint64_t one = (bit + 0x7f7f7f7f7f7f7f7fu) >> 7 & ones;           /* byte i: 0 or 1 */
    return (v ^ one * 0xff) + one;
}

/* Subtracts 1 from each of 8 bytes (values 0..3). */
static inline uint64_t less_one(uint64_t v) { return (v + 0x7f7f7f7f7f7f7f7fu) ^ 0x8080808080808080u; }

static inline uint64_t pair(uint32_t a, uint32_t b) { return (uint64_t) b << 32 | a; }

static void read_iq2_xxs(const uint8_t *p, row_block *r)
{
    const float d = half_at(p);
    for (int k = 0; k < 32; k++) {
        const uint8_t *q = p + 2 + 8 * (k / 4);
        const uint32_t word = get32(q + 4);
        r->codes[k] = with_signs(pi__iq2_point(pi__iq2xxs_codes[q[k % 4]]), pi__iq_signs(word >> 7 * (k % 4)));
        r->unit[k / 2] = d * (0.5f + (float) (word >> 28)) * 0.25f;
    }
}

static void read_iq2_xs(const uint8_t *p, row_block *r)
{
    const float d = half_at(p);
    for (int k = 0; k < 32; k++) {
        const uint32_t q = get16(p + 2 + 2 * k);
        r->codes[k] = with_signs(pi__iq2_point(pi__iq2xs_codes[q & 511]), pi__iq_signs(q >> 9));
    }
    for (int i = 0; i < 16; i++) r->unit[i] = d * (0.5f + (float) (p[66 + i / 2] >> 4 * (i & 1) & 15)) * 0.25f;
}

static void read_iq2_s(const uint8_t *p, row_block *r)
{
    const float d = half_at(p);
    for (int k = 0; k < 32; k++) {
        const int index = p[2 + k] | (p[66 + k / 4] >> 2 * (k % 4) & 3) << 8;
        r->codes[k] = with_signs(pi__iq2_point(pi__iq2s_codes[index]), p[34 + k]);
    }
    for (int i = 0; i < 16; i++) r->unit[i] = d * (0.5f + (float) (p[74 + i / 2] >> 4 * (i & 1) & 15)) * 0.25f;
}

static void read_iq3_xxs(const uint8_t *p, row_block *r)
{
    const float d = half_at(p);
    for (int k = 0; k < 32; k++) {
        const uint8_t *q = p + 2 + 2 * k;
        const uint32_t word = get32(p + 66 + 4 * (k / 4));
        const uint64_t v = pair(pi__iq3xxs_point(pi__iq3xxs_codes[q[0]]), pi__iq3xxs_point(pi__iq3xxs_codes[q[1]]));
        r->codes[k] = with_signs(v, pi__iq_signs(word >> 7 * (k % 4)));
        r->unit[k / 2] = d * (0.5f + (float) (word >> 28)) * 0.5f;
    }
}

static void read_iq3_s(const uint8_t *p, row_block *r)
{
    const float d = half_at(p);
    for (int k = 0; k < 32; k++) {
        const uint8_t *q = p + 2 + 2 * k;
        const int high = p[66 + k / 4] >> 2 * (k % 4);
        const uint64_t v = pair(pi__iq3s_point(pi__iq3s_codes[q[0] | (high & 1) << 8]),
                                pi__iq3s_point(pi__iq3s_codes[q[1] | (high >> 1 & 1) << 8]));
        r->codes[k] = with_signs(v, p[74 + k]);
    }
    for (int i = 0; i < 16; i++) r->unit[i] = d * (float) (1 + 2 * (p[106 + i / 4] >> 4 * (i / 2 & 1) & 15));
}

/* Returns the 8 codes of an IQ1 point: 8 * (-1, 0 or 1), plus 1 or (negative) minus 1. The formats shift values by 1/8,
 * so codes count eighths. */
static inline uint64_t eighths(uint16_t point, bool negative)
{
    return (pi__spread2(point) * 8 + ones * (negative ? 119 : 121)) ^ 0x8080808080808080u;
}

static void read_iq1_s(const uint8_t *p, row_block *r)
{
    const float d = half_at(p);
    for (int k = 0; k < 32; k++) {
        const uint32_t high = get16(p + 34 + 2 * (k / 4));
        r->codes[k] = eighths(pi__iq1_codes[p[2 + k] | (high >> 3 * (k % 4) & 7) << 8], high >> 15);
        r->unit[k / 2] = d * (float) (2 * (high >> 12 & 7) + 1) * 0.125f;
    }
}

static void read_iq1_m(const uint8_t *p, row_block *r)
{
    const uint8_t *s = p + 48;
    const float d = pi__f16_to_f32((uint16_t) (s[1] >> 4 | (s[3] & 0xf0) | (s[5] & 0xf0) << 4 | (s[7] & 0xf0) << 8));
    for (int k = 0; k < 32; k++) {
        const int high = p[32 + k / 2] >> 4 * (k & 1);
        r->codes[k] = eighths(pi__iq1_codes[p[k] | (high & 7) << 8], high >> 3 & 1);
    }
    for (int i = 0; i < 16; i++)
        r->unit[i] = d * (float) (2 * (get16(s + 2 * (i / 4)) >> 3 * (i % 4) & 7) + 1) * 0.125f;
}

/* Decodes n_digits base-3 digits (0..2) of each of n bytes at q to c, ordered [digit][byte]. A byte is a fraction of
 * 256; each digit is the integer part of 3 times the remaining fraction. Returns the end of c. */
static uint8_t *digits(const uint8_t *q, int n, int n_digits, uint8_t *c)
{
    unsigned pow3 = 1;
    for (int k = 0; k < n_digits; k++, pow3 *= 3)
        for (int i = 0; i < n; i++) *c++ = (uint8_t) ((q[i] * pow3 & 0xff) * 3 >> 8);
    return c;
}

static void read_tq1_0(const uint8_t *p, row_block *r)
{
    const float d = half_at(p + 52);
    uint8_t c[256];
    digits(p + 48, 4, 4, digits(p + 32, 16, 5, digits(p, 32, 5, c)));
    for (int k = 0; k < 32; k++) r->codes[k] = less_one(pair(get32(c + 8 * k), get32(c + 8 * k + 4)));
    for (int i = 0; i < 16; i++) r->unit[i] = d;
}

static void read_tq2_0(const uint8_t *p, row_block *r)
{
    const float d = half_at(p + 64);
    for (int k = 0; k < 32; k++) { /* 32 bytes hold 128 values: bits 2 f of byte i are value 32 f + i */
        const uint8_t *q = p + k / 16 * 32 + k % 4 * 8;
        r->codes[k] = less_one(pair(get32(q), get32(q + 4)) >> k / 4 % 4 * 2 & 3 * ones);
    }
    for (int i = 0; i < 16; i++) r->unit[i] = d;
}

static void read_block(int32_t type, const uint8_t *p, row_block *r)
{
    switch (type) {
#define READ(type, id, block, size, how, fn, ...) \
    case PI__##type: read_##fn(p, r); break;
        PI__GRID_FORMATS(READ)
        PI__TERNARY_FORMATS(READ)
#undef READ
    default: break;
    }
}

/* Stores 8 codes v of row `lane`, columns 8 * q to 8 * q + 7, in a canonical block with lines of line_cols (4 or 8)
 * columns. */
static inline void put_word(uint8_t *block, int32_t line_cols, int q, int32_t lane, uint64_t v)
{
    if (line_cols == 8) {
        memcpy(block + 128 * q + 8 * lane, &v, 8);
        return;
    }
    const uint32_t low = (uint32_t) v, high = (uint32_t) (v >> 32);
    memcpy(block + 128 * q + 4 * lane, &low, 4);
    memcpy(block + 128 * q + 64 + 4 * lane, &high, 4);
}

void pi__lin_decode_rows(const pi__cpu_linear_kernels *k, int32_t type, const uint8_t *src, size_t row_size,
                         int32_t lanes, int64_t n_in, uint8_t *dst)
{
    const pi__type_info *t = pi__type_info_of(type);
    const size_t size = pi__lin_block_size(PI__LK_OFF16);
    const uint64_t flip = k->code_bias ? 0x80 * ones : 0;
    row_block r;
    for (int64_t s = 0; s < n_in / 256; s++, dst += 8 * size) {
        if (lanes < 16) memset(dst, 0, 8 * size);
        for (int32_t lane = 0; lane < lanes; lane++) {
            read_block(type, src + (size_t) lane * row_size + (size_t) s * t->type_size, &r);
            for (int q = 0; q < 32; q++)
                put_word(dst + (size_t) (q / 4) * size, k->line_cols, q % 4, lane, r.codes[q] ^ flip);
            for (int i = 0; i < 16; i++)
                memcpy(dst + (size_t) (i / 2) * size + 512 + 64 * (i & 1) + 4 * lane, r.unit + i, sizeof *r.unit);
        }
    }
}
