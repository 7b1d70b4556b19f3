/* The integer codes of block formats, for backends that compute with them: what a value is times its scale before the
 * format's offset is taken off. Pure functions, no memory, any thread. */
#include "formats/formats_impl.h"

static uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static void store64(uint8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }

static void nibbles(const uint8_t *qs, uint8_t *c)
{
    for (int i = 0; i < 16; i++) {
        c[i] = qs[i] & 15;
        c[i + 16] = qs[i] >> 4;
    }
}

static void nibbles_fifth(const uint8_t *qs, uint32_t qh, uint8_t *c)
{
    nibbles(qs, c);
    for (int i = 0; i < 32; i += 4) /* four bits of qh, each to a byte of its own */
        pi__store32(c + i, pi__load32(c + i) | ((qh >> i & 15) * 0x00204081u & 0x01010101u) << 4);
}

static void codes_q6_k(const uint8_t *p, int j, uint8_t *c)
{
    const uint8_t *ql = p + 64 * (j / 4) + 32 * (j & 1), *qh = p + 128 + 32 * (j / 4);
    for (int i = 0; i < 32; i++)
        c[i] = (uint8_t) ((ql[i] >> (j & 2 ? 4 : 0) & 15) | (qh[i] >> 2 * (j & 3) & 3) << 4);
}

/* Digit i of n bytes: each has up to five to base 3, as a fraction of 256. */
static void digits(const uint8_t *p, int n, int i, uint8_t *c)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int k = 0; k < n; k++) c[k] = (uint8_t) ((p[k] * power[i] & 0xff) * 3 >> 8);
}

/* 32 bytes have 160 digits, 16 bytes 80, 4 bytes 16. */
static void codes_tq1_0(const uint8_t *p, int j, uint8_t *c)
{
    if (j < 5) {
        digits(p, 32, j, c);
        return;
    }
    digits(p + 32, 16, 2 * (j - 5), c);
    if (j < 7) digits(p + 32, 16, 2 * (j - 5) + 1, c + 16);
    else for (int i = 0; i < 4; i++) digits(p + 48, 4, i, c + 16 + 4 * i);
}

void pi__block_codes(int32_t type, const uint8_t *p, int j, uint8_t *c)
{
    switch (type) {
    case PI__Q8_0:
        for (int i = 0; i < 32; i++) c[i] = p[2 + i] ^ 0x80;
        break;
    case PI__Q4_0: case PI__IQ4_NL: nibbles(p + 2, c); break;
    case PI__Q4_1: nibbles(p + 4, c); break;
    case PI__Q5_0: nibbles_fifth(p + 6, pi__load32(p + 2), c); break;
    case PI__Q5_1: nibbles_fifth(p + 8, pi__load32(p + 4), c); break;
    case PI__MXFP4: nibbles(p + 1, c); break;
    case PI__NVFP4: /* halves of 16 columns in 8 bytes each */
        for (int h = 0; h < 2; h++) {
            const uint64_t q = load64(p + 4 + 16 * j + 8 * h), low = 0x0f0f0f0f0f0f0f0fu;
            store64(c + 16 * h, q & low);
            store64(c + 16 * h + 8, q >> 4 & low);
        }
        break;
    case PI__Q2_K:
        for (int i = 0; i < 32; i++) c[i] = p[16 + 32 * (j / 4) + i] >> 2 * (j & 3) & 3;
        break;
    case PI__Q3_K:
        for (int i = 0; i < 32; i++)
            c[i] = (uint8_t) ((p[32 + 32 * (j / 4) + i] >> 2 * (j & 3) & 3) | (p[i] >> j & 1) << 2);
        break;
    case PI__Q4_K:
        for (int i = 0; i < 32; i++) c[i] = p[16 + 32 * (j / 2) + i] >> (j & 1 ? 4 : 0) & 15;
        break;
    case PI__Q5_K:
        for (int i = 0; i < 32; i++)
            c[i] = (uint8_t) ((p[48 + 32 * (j / 2) + i] >> (j & 1 ? 4 : 0) & 15) | (p[16 + i] >> j & 1) << 4);
        break;
    case PI__Q6_K: codes_q6_k(p, j, c); break;
    case PI__IQ4_XS: nibbles(p + 8 + 16 * j, c); break;
    case PI__TQ1_0: codes_tq1_0(p, j, c); break;
    case PI__TQ2_0:
        for (int i = 0; i < 32; i++) c[i] = p[32 * (j / 4) + i] >> 2 * (j & 3) & 3;
        break;
    default: break;
    }
}
