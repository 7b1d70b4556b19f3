/* Readers of the formats without super-blocks: floats, blocks of 32 with one scale, FP4 (see formats_impl.h).
 *
 * Products and sums are in the reference's order, with one rounding each (the build forbids contraction). So
 * results are bitwise identical to the reference. No memory, no state.
 *
 * In all blocks of 32 values with 4-bit codes, byte j holds value j (low half) and value j + 16 (high half). */
#include "formats/formats_impl.h"

void pi__read_f32(const uint8_t *src, float *dst, int64_t n) { memcpy(dst, src, (size_t) n * sizeof *dst); }

void pi__read_f16(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] = pi__half_at(src + 2 * i);
}

void pi__read_bf16(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] = pi__bf16_to_f32(pi__load16(src + 2 * i));
}

/* Q4_0: half d, q[16]; x = d * (q - 8) */
void pi__read_q4_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 18, dst += 32) {
        float d = pi__half_at(src);
        const uint8_t *q = src + 2;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float) ((q[j] & 15) - 8);
            dst[j + 16] = d * (float) ((q[j] >> 4) - 8);
        }
    }
}

/* Q4_1: half d, half m, q[16]; x = d * q + m */
void pi__read_q4_1(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 20, dst += 32) {
        float d = pi__half_at(src), m = pi__half_at(src + 2);
        const uint8_t *q = src + 4;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float) (q[j] & 15) + m;
            dst[j + 16] = d * (float) (q[j] >> 4) + m;
        }
    }
}

/* Q5_0: half d, fifth bits in a 4-byte word (bit i: value i), q[16]; x = d * (q - 16) */
void pi__read_q5_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 22, dst += 32) {
        float d = pi__half_at(src);
        uint32_t high = pi__load32(src + 2);
        const uint8_t *q = src + 6;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float) ((int) ((q[j] & 15u) | (high >> j & 1) << 4) - 16);
            dst[j + 16] = d * (float) ((int) (q[j] >> 4 | (high >> (j + 16) & 1) << 4) - 16);
        }
    }
}

/* Q5_1: half d, half m, fifth bits in a 4-byte word (bit i: value i), q[16]; x = d * q + m */
void pi__read_q5_1(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 24, dst += 32) {
        float d = pi__half_at(src), m = pi__half_at(src + 2);
        uint32_t high = pi__load32(src + 4);
        const uint8_t *q = src + 8;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float) ((q[j] & 15u) | (high >> j & 1) << 4) + m;
            dst[j + 16] = d * (float) (q[j] >> 4 | (high >> (j + 16) & 1) << 4) + m;
        }
    }
}

/* Q8_0: half d, int8 q[32] */
void pi__read_q8_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 34, dst += 32) {
        float d = pi__half_at(src);
        const int8_t *q = (const int8_t *) src + 2;
        for (int i = 0; i < 32; i++) dst[i] = (float) q[i] * d;
    }
}

/* IQ4_NL: half d, q[16]; x = d * value[q] */
void pi__read_iq4_nl(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 18, dst += 32) {
        float d = pi__half_at(src);
        const uint8_t *q = src + 2;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float) pi__iq4nl_values[q[j] & 15];
            dst[j + 16] = d * (float) pi__iq4nl_values[q[j] >> 4];
        }
    }
}

/* MXFP4: byte e (scale 2^(e - 127)), q[16]; the table has doubled values, so d is half of the scale */
void pi__read_mxfp4(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 17, dst += 32) {
        float d = pi__e8m0_half(src[0]);
        const uint8_t *q = src + 1;
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float) pi__e2m1_values[q[j] & 15];
            dst[j + 16] = d * (float) pi__e2m1_values[q[j] >> 4];
        }
    }
}

/* NVFP4: 4 scale bytes (unsigned e4m3, one per group of 16 values), q[4][8]: byte j of a group holds its values j and j
 * + 8 */
void pi__read_nvfp4(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += 36) {
        for (int g = 0; g < 4; g++, dst += 16) {
            float d = pi__ue4m3_half(src[g]);
            const uint8_t *q = src + 4 + 8 * g;
            for (int j = 0; j < 8; j++) {
                dst[j] = d * (float) pi__e2m1_values[q[j] & 15];
                dst[j + 8] = d * (float) pi__e2m1_values[q[j] >> 4];
            }
        }
    }
}
