/* Readers of the IQ formats (codes are points of a codebook, iq_tables.h; IQ4_XS: indices into 16 values) and of the
 * ternary formats. Above each reader: the layout of a block in the file.
 *
 * Products and sums are in the reference's order, one rounding each. No memory, no state. */
#include "formats/formats_impl.h"
#include "formats/iq_tables.h"

/* dst[i] = d * point[i] for 8 values; point: 8 unsigned bytes, lowest first. Bit i of signs set = value i is
 * negated. */
static void put8(float *dst, float d, uint64_t point, uint8_t signs)
{
    for (int i = 0; i < 8; i++) {
        float x = d * (float) (point >> 8 * i & 0xff);
        dst[i] = signs >> i & 1 ? -x : x;
    }
}

/* Like put8, for two points of 4 bytes each: point0 = values 0..3, point1 = values 4..7. */
static void put4x2(float *dst, float d, uint32_t point0, uint32_t point1, uint8_t signs)
{
    put8(dst, d, (uint64_t) point1 << 32 | point0, signs);
}

/* IQ2_XXS: half d, then for each 32 values: 4 indices (a byte each) and a word: 4 x 7 sign bits, a scale in the top 4
 * bits */
void pi__read_iq2_xxs(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 66) {
        float d = pi__half_at(src);
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = src + 2 + 8 * g;
            uint32_t word = pi__load32(q + 4);
            float scale = d * (0.5f + (float) (word >> 28)) * 0.25f;
            for (int k = 0; k < 4; k++, dst += 8) {
                put8(dst, scale, pi__iq2_point(pi__iq2xxs_codes[q[k]]), pi__iq_signs(word >> 7 * k));
            }
        }
    }
}

/* IQ2_XS: half d, 32 halfwords (9 bits of index, then 7 sign bits), 16 scales of 4 bits */
void pi__read_iq2_xs(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 74) {
        float d = pi__half_at(src);
        for (int k = 0; k < 32; k++, dst += 8) {
            uint16_t q = pi__load16(src + 2 + 2 * k);
            float scale = d * (0.5f + (float) (src[66 + k / 4] >> k / 2 % 2 * 4 & 15)) * 0.25f;
            put8(dst, scale, pi__iq2_point(pi__iq2xs_codes[q & 511]), pi__iq_signs(q >> 9));
        }
    }
}

/* IQ2_S: half d, low index bytes[32], signs[32], high index bits[8] (2 each), 16 scales of 4 bits */
void pi__read_iq2_s(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 82) {
        float d = pi__half_at(src);
        for (int k = 0; k < 32; k++, dst += 8) {
            int index = src[2 + k] | (src[66 + k / 4] >> k % 4 * 2 & 3) << 8;
            float scale = d * (0.5f + (float) (src[74 + k / 4] >> k / 2 % 2 * 4 & 15)) * 0.25f;
            put8(dst, scale, pi__iq2_point(pi__iq2s_codes[index]), src[34 + k]);
        }
    }
}

/* IQ3_XXS: half d, index bytes[64], then for each 32 values a word: 4 x 7 sign bits, a scale in the top 4 bits */
void pi__read_iq3_xxs(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 98) {
        float d = pi__half_at(src);
        for (int k = 0; k < 32; k++, dst += 8) {
            const uint8_t *q = src + 2 + 2 * k;
            uint32_t word = pi__load32(src + 66 + k / 4 * 4);
            float scale = d * (0.5f + (float) (word >> 28)) * 0.5f;
            put4x2(dst, scale, pi__iq3xxs_point(pi__iq3xxs_codes[q[0]]), pi__iq3xxs_point(pi__iq3xxs_codes[q[1]]),
                   pi__iq_signs(word >> k % 4 * 7));
        }
    }
}

/* IQ3_S: half d, low index bytes[64], ninth index bits[8], signs[32], 8 scales of 4 bits */
void pi__read_iq3_s(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 110) {
        float d = pi__half_at(src);
        for (int k = 0; k < 32; k++, dst += 8) {
            const uint8_t *q = src + 2 + 2 * k;
            int high = src[66 + k / 4] >> k % 4 * 2;
            float scale = d * (float) (1 + 2 * (src[106 + k / 8] >> k / 4 % 2 * 4 & 15));
            put4x2(dst, scale, pi__iq3s_point(pi__iq3s_codes[q[0] | (high & 1) << 8]),
                   pi__iq3s_point(pi__iq3s_codes[q[1] | (high >> 1 & 1) << 8]), src[74 + k]);
        }
    }
}

/* dst[i] = scale * (point[i] + delta) for the 8 values (-1, 0 or 1) of IQ1 point `code`; delta: 1/8 or -1/8. */
static void put_ternary(float *dst, float scale, uint16_t code, float delta)
{
    uint64_t point = pi__iq1_point(code);
    for (int i = 0; i < 8; i++) dst[i] = scale * ((float) (int8_t) (point >> 8 * i) + delta);
}

/* IQ1_S: half d, low index bytes[32], for each 32 values a halfword: 4 x 3 high index bits, scale (3), sign of
 * delta */
void pi__read_iq1_s(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 50) {
        float d = pi__half_at(src);
        for (int k = 0; k < 32; k++, dst += 8) {
            int high = pi__load16(src + 34 + k / 4 * 2);
            float scale = d * (float) (2 * (high >> 12 & 7) + 1);
            int index = src[2 + k] | (high >> k % 4 * 3 & 7) << 8;
            put_ternary(dst, scale, pi__iq1_codes[index], high & 0x8000 ? -0.125f : 0.125f);
        }
    }
}

/* IQ1_M: low index bytes[32], for each 8 values a nibble (3 high index bits, sign of delta), 4 halfwords of 4
 * scales (3 bits, 16 values each); the halfwords' top nibbles are the half d, lowest first */
void pi__read_iq1_m(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 56) {
        const uint8_t *s = src + 48;
        float d = pi__f16_to_f32((uint16_t) (s[1] >> 4 | (s[3] & 0xf0) | (s[5] & 0xf0) << 4 | (s[7] & 0xf0) << 8));
        for (int k = 0; k < 32; k++, dst += 8) {
            int high = src[32 + k / 2] >> k % 2 * 4;
            float scale = d * (float) (2 * (pi__load16(s + k / 8 * 2) >> k / 2 % 4 * 3 & 7) + 1);
            int index = src[k] | (high & 7) << 8;
            put_ternary(dst, scale, pi__iq1_codes[index], high & 8 ? -0.125f : 0.125f);
        }
    }
}

/* IQ4_XS: half d, 8 x 2 high scale bits, 8 x 4 low scale bits, q[128]: for each 32 values 16 bytes as in IQ4_NL */
void pi__read_iq4_xs(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 136) {
        float d = pi__half_at(src);
        uint16_t high = pi__load16(src + 2);
        for (int g = 0; g < 8; g++, dst += 32) {
            const uint8_t *q = src + 8 + 16 * g;
            int s = (src[4 + g / 2] >> g % 2 * 4 & 15) | (high >> 2 * g & 3) << 4;
            float scale = d * (float) (s - 32);
            for (int j = 0; j < 16; j++) {
                dst[j] = scale * (float) pi__iq4nl_values[q[j] & 15];
                dst[j + 16] = scale * (float) pi__iq4nl_values[q[j] >> 4];
            }
        }
    }
}

/* Writes d * (digit - 1) for base-3 digits 0..n_digits - 1 of the n bytes at q to dst, ordered [digit][byte]. A byte
 * holds up to 5 digits as a fraction of 256. Multiplying by 3^k modulo 256 drops the first k digits; the next digit is
 * the integer part of 3 times the remaining fraction. */
static void put_digits(float *dst, float d, const uint8_t *q, int n, int n_digits)
{
    unsigned pow3 = 1;
    for (int k = 0; k < n_digits; k++, pow3 *= 3) {
        for (int i = 0; i < n; i++) *dst++ = d * (float) ((int) ((q[i] * pow3 & 0xff) * 3 >> 8) - 1);
    }
}

/* TQ1_0: 32 bytes of 5 digits each (160 values), 16 bytes of 5 (80 values), 4 bytes of 4 (16 values), half d */
void pi__read_tq1_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 54, dst += PI__QK) {
        float d = pi__half_at(src + 52);
        put_digits(dst, d, src, 32, 5);
        put_digits(dst + 160, d, src + 32, 16, 5);
        put_digits(dst + 240, d, src + 48, 4, 4);
    }
}

/* TQ2_0: q[64] (byte l of each 32 holds values l, l + 32, l + 64, l + 96 of 128), half d; x = d * (q - 1) */
void pi__read_tq2_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 66) {
        float d = pi__half_at(src + 64);
        for (int g = 0; g < 8; g++, dst += 32) {
            const uint8_t *q = src + g / 4 * 32;
            for (int i = 0; i < 32; i++) dst[i] = d * (float) ((q[i] >> g % 4 * 2 & 3) - 1);
        }
    }
}
