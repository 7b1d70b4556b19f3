/* Readers of the K formats: super-blocks of 256 values in 8 or 16 groups, with quantized group scales (see
 * formats_impl.h). Above each reader: the layout of a super-block in the file.
 *
 * Products and sums are in the reference's order, one rounding each. No memory, no state. */
#include "formats/formats_impl.h"

/* Q2_K: scales[16] (scale in the low half, minimum in the high one), q[64], half d, half dmin.
 * Byte l of each half of q holds values l, l + 32, l + 64, l + 96 of 128. x = d * scale * q - dmin * minimum */
void pi__read_q2_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 84) {
        float d = pi__half_at(src + 80), dmin = pi__half_at(src + 82);
        for (int g = 0; g < 16; g++, dst += 16) { /* group g: 16 values */
            const uint8_t *q = src + 16 + g / 8 * 32 + g % 2 * 16;
            int shift = g % 8 / 2 * 2;
            float scale = d * (float) (src[g] & 15), min = dmin * (float) (src[g] >> 4);
            for (int i = 0; i < 16; i++) dst[i] = scale * (float) (q[i] >> shift & 3) - min;
        }
    }
}

/* Q3_K: third bits[32] (if set, 4 is not subtracted), q[64] as in Q2_K, 16 scales of 6 bits in 12 bytes, half d.
 * x = d * (scale - 32) * q */
void pi__read_q3_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 110) {
        const uint8_t *s = src + 96;
        float d = pi__half_at(src + 108);
        for (int g = 0; g < 16; g++, dst += 16) {
            const uint8_t *q = src + 32 + g / 8 * 32 + g % 2 * 16, *high = src + g % 2 * 16;
            int shift = g % 8 / 2 * 2, bit = g / 2;
            int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
            float scale = d * (float) ((low | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32);
            for (int i = 0; i < 16; i++) dst[i] = scale * (float) ((q[i] >> shift & 3) - (high[i] >> bit & 1 ? 0 : 4));
        }
    }
}

/* Sets *scale and *min (6 bits each) of group j of 8 from the 12 packed bytes s of Q4_K or Q5_K. */
static void scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

/* Q4_K: half d, half dmin, scales[12], q[128]: byte l of each 32 holds values l and l + 32 of 64.
 * x = d * scale * q - dmin * minimum */
void pi__read_q4_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 144) {
        float d = pi__half_at(src), dmin = pi__half_at(src + 2);
        for (int g = 0; g < 8; g++, dst += 32) {
            const uint8_t *q = src + 16 + g / 2 * 32;
            int shift = g % 2 * 4, s, m;
            scale_min(src + 4, g, &s, &m);
            float scale = d * (float) s, min = dmin * (float) m;
            for (int i = 0; i < 32; i++) dst[i] = scale * (float) (q[i] >> shift & 15) - min;
        }
    }
}

/* Q5_K: half d, half dmin, scales[12], fifth bits[32] (bit g: group g), q[128] as in Q4_K */
void pi__read_q5_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 176) {
        float d = pi__half_at(src), dmin = pi__half_at(src + 2);
        for (int g = 0; g < 8; g++, dst += 32) {
            const uint8_t *high = src + 16, *q = src + 48 + g / 2 * 32;
            int shift = g % 2 * 4, s, m;
            scale_min(src + 4, g, &s, &m);
            float scale = d * (float) s, min = dmin * (float) m;
            for (int i = 0; i < 32; i++) {
                dst[i] = scale * (float) ((q[i] >> shift & 15) | (high[i] >> g & 1) << 4) - min;
            }
        }
    }
}

/* Q6_K: low bits[128] (byte l of each 64 holds values l and l + 64 of 128), high bits[64] (byte l of each 32 holds the
 * high bits of values l, l + 32, l + 64, l + 96), int8 scales[16], half d. x = d * scale * (q - 32) */
void pi__read_q6_k(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 210) {
        const int8_t *scales = (const int8_t *) src + 192;
        float d = pi__half_at(src + 208);
        for (int g = 0; g < 16; g++, dst += 16) {
            const uint8_t *low = src + g / 8 * 64 + g % 4 * 16, *high = src + 128 + g / 8 * 32 + g % 2 * 16;
            int low_shift = g % 8 / 4 * 4, high_shift = g % 8 / 2 * 2;
            float scale = d * (float) scales[g];
            for (int i = 0; i < 16; i++) {
                int q = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
                dst[i] = scale * (float) (q - 32);
            }
        }
    }
}
