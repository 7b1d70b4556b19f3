/* The unsigned integer codes of block formats, for backends that multiply codes. value = scale * (code - offset), or
 * scale * code + minimum. Entry point: pi__block_codes. Pure functions, no memory, any thread. */
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
    for (int i = 0; i < 32; i += 4) /* moves bits i..i + 3 of qh to bit 4 of bytes i..i + 3 */
        pi__store32(c + i, pi__load32(c + i) | ((qh >> i & 15) * 0x00204081u & 0x01010101u) << 4);
}

/* c[k] = base-3 digit i (0 = first) of byte p[k], for n bytes. A byte holds up to five digits, as a fraction of 256. */
static void digits(const uint8_t *p, int n, int i, uint8_t *c)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int k = 0; k < n; k++) c[k] = (uint8_t) ((p[k] * power[i] & 0xff) * 3 >> 8);
}

/* codes_NAME for format NAME: c[0 .. 31] = codes of values 32 j to 32 j + 31 of the (super-)block at p. */
#define CODES(name) static void codes_##name(const uint8_t *p, int j, uint8_t *c)

CODES(q8_0)
{
    (void) j;
    for (int i = 0; i < 32; i++) c[i] = p[2 + i] ^ 0x80;
}
CODES(q4_0) { (void) j; nibbles(p + 2, c); }
CODES(iq4_nl) { (void) j; nibbles(p + 2, c); }
CODES(q4_1) { (void) j; nibbles(p + 4, c); }
CODES(q5_0) { (void) j; nibbles_fifth(p + 6, pi__load32(p + 2), c); }
CODES(q5_1) { (void) j; nibbles_fifth(p + 8, pi__load32(p + 4), c); }
CODES(mxfp4) { (void) j; nibbles(p + 1, c); }
CODES(nvfp4) /* each half (16 values) is 8 bytes: values 0..7 in the low nibbles, 8..15 in the high nibbles */
{
    for (int h = 0; h < 2; h++) {
        const uint64_t q = load64(p + 4 + 16 * j + 8 * h), low = 0x0f0f0f0f0f0f0f0fu;
        store64(c + 16 * h, q & low);
        store64(c + 16 * h + 8, q >> 4 & low);
    }
}
CODES(q2_k)
{
    for (int i = 0; i < 32; i++) c[i] = p[16 + 32 * (j / 4) + i] >> 2 * (j & 3) & 3;
}
CODES(q3_k)
{
    for (int i = 0; i < 32; i++)
        c[i] = (uint8_t) ((p[32 + 32 * (j / 4) + i] >> 2 * (j & 3) & 3) | (p[i] >> j & 1) << 2);
}
CODES(q4_k)
{
    for (int i = 0; i < 32; i++) c[i] = p[16 + 32 * (j / 2) + i] >> (j & 1 ? 4 : 0) & 15;
}
CODES(q5_k)
{
    for (int i = 0; i < 32; i++)
        c[i] = (uint8_t) ((p[48 + 32 * (j / 2) + i] >> (j & 1 ? 4 : 0) & 15) | (p[16 + i] >> j & 1) << 4);
}
CODES(q6_k)
{
    const uint8_t *ql = p + 64 * (j / 4) + 32 * (j & 1), *qh = p + 128 + 32 * (j / 4);
    for (int i = 0; i < 32; i++)
        c[i] = (uint8_t) ((ql[i] >> (j & 2 ? 4 : 0) & 15) | (qh[i] >> 2 * (j & 3) & 3) << 4);
}
CODES(iq4_xs) { nibbles(p + 8 + 16 * j, c); }
CODES(tq1_0) /* bytes 0..31 hold values 0..159, bytes 32..47 values 160..239, bytes 48..51 values 240..255 */
{
    if (j < 5) {
        digits(p, 32, j, c);
        return;
    }
    digits(p + 32, 16, 2 * (j - 5), c);
    if (j < 7) digits(p + 32, 16, 2 * (j - 5) + 1, c + 16);
    else for (int i = 0; i < 4; i++) digits(p + 48, 4, i, c + 16 + 4 * i);
}
CODES(tq2_0)
{
    for (int i = 0; i < 32; i++) c[i] = p[32 * (j / 4) + i] >> 2 * (j & 3) & 3;
}

void pi__block_codes(int32_t type, const uint8_t *p, int j, uint8_t *c)
{
    switch (type) {
#define ROW(type, id, block, size, how, fn, ...) \
    case PI__##type: codes_##fn(p, j, c); break;
        PI__CODE_FORMATS(ROW)
        PI__TERNARY_FORMATS(ROW)
    default: break;
    }
}
