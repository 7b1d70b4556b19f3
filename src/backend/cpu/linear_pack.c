/* Packing of weights at load: 16 rows of the file become a packed tile (layout: linear.h). Entry point:
 * pi__lin_pack_tile.
 *
 * Plain C for every instruction set, because it runs once per weight. No memory; the caller distributes tiles over
 * threads. Lossless: a tile holds the file's bits in another order. Reads are unaligned: src may be a mapped file. */
#include <string.h>

#include "backend/cpu/linear.h"

static uint16_t get16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void put16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static void put32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }

/* ---- planes: stores a block's 8 lines of codes at dst as planes; bits: bits of a code */

static void put_planes(int bits, uint8_t line[8][64], uint8_t *dst)
{
    if (bits == 8) {
        memcpy(dst, line, 512);
        return;
    }
    if (bits >= 4) {
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 64; k++) dst[64 * i + k] = (uint8_t) ((line[i][k] & 15) | line[i + 4][k] << 4);
        dst += 256;
    }
    /* 2-bit plane: the upper two bits of 6-bit codes, the lower two of 2-bit and 3-bit codes */
    if (bits == 6 || bits < 4) {
        int shift = bits == 6 ? 4 : 0;
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 64; k++) {
                int v = 0;
                for (int f = 0; f < 4; f++) v |= (line[4 * i + f][k] >> shift & 3) << 2 * f;
                dst[64 * i + k] = (uint8_t) v;
            }
        dst += 128;
    }
    if (bits == 5 || bits == 3) {
        int shift = bits - 1;
        for (int k = 0; k < 64; k++) {
            int v = 0;
            for (int q = 0; q < 8; q++) v |= (line[q][k] >> shift & 1) << q;
            dst[k] = (uint8_t) v;
        }
    }
}

/* ---- scales: copies the scales of row r from super-block p to a record at dst */

/* Packs 16 values of 6 bits of row r into three 32-bit words, 64 bytes apart. Value n < 15 is bits 6 * (n % 5) to 6 *
 * (n % 5) + 5 of word n / 5. Value 15 is the top 2 bits of the 3 words, lowest bits first. */
static void put_six_bits(const uint8_t v[16], int r, uint8_t *dst)
{
    for (int i = 0; i < 3; i++) {
        uint32_t word = (uint32_t) (v[15] >> 2 * i & 3) << 30;
        for (int n = 0; n < 5; n++) word |= (uint32_t) v[5 * i + n] << 6 * n;
        put32(dst + 64 * i + 4 * r, word);
    }
}

/* Q4_K, Q5_K: scale and minimum of sub-block j are values 2j and 2j + 1 of the packed words. s: the 12 bytes of scales
 * in the file. d: the two halves d and dmin. */
static void side_k4(const uint8_t *p, const uint8_t *d, int r, uint8_t *dst)
{
    const uint8_t *s = p + 4;
    uint8_t v[16];
    for (int j = 0; j < 8; j++) {
        v[2 * j] = (uint8_t) (j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
        v[2 * j + 1] = (uint8_t) (j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
    }
    put16(dst + 2 * r, get16(d));
    put16(dst + 32 + 2 * r, get16(d + 2));
    put_six_bits(v, r, dst + 64);
}

static void side_k3(const uint8_t *p, const uint8_t *d, int r, uint8_t *dst)
{
    const uint8_t *s = p + 96;
    uint8_t v[16];
    for (int n = 0; n < 16; n++) {
        int low = n < 8 ? s[n] & 15 : s[n - 8] >> 4;
        v[n] = (uint8_t) (low | (s[8 + (n & 3)] >> 2 * (n / 4) & 3) << 4);
    }
    put16(dst + 2 * r, get16(d));
    put_six_bits(v, r, dst + 32);
}

static void put_side(const pi__format_facts *f, const uint8_t *p, int r, uint8_t *dst)
{
    const uint8_t *d = p + f->d_at;
    switch (f->scales) {
    case PI__SCALES_D: put16(dst + 2 * r, get16(d)); break;
    case PI__SCALES_DM:
        put16(dst + 2 * r, get16(d));
        put16(dst + 32 + 2 * r, get16(d + 2));
        break;
    case PI__SCALES_E8M0: dst[r] = p[0]; break;
    case PI__SCALES_UE4M3:
        for (int i = 0; i < 4; i++) dst[16 * i + r] = p[i];
        break;
    case PI__SCALES_K2:
        put16(dst + 2 * r, get16(d));
        put16(dst + 32 + 2 * r, get16(d + 2));
        for (int i = 0; i < 16; i++) dst[64 + 16 * i + r] = p[i];
        break;
    case PI__SCALES_K3: side_k3(p, d, r, dst); break;
    case PI__SCALES_K4: side_k4(p, d, r, dst); break;
    case PI__SCALES_K6:
        put16(dst + 2 * r, get16(d));
        for (int i = 0; i < 16; i++) dst[32 + 16 * i + r] = p[192 + i];
        break;
    case PI__SCALES_XS:
        put16(dst + 2 * r, get16(d));
        put16(dst + 32 + 2 * r, get16(p + 2));
        put32(dst + 64 + 4 * r, get32(p + 4));
        break;
    default: break;
    }
}

/* ---- tiles */

/* Packs `lanes` rows of a float format into tile dst [n_in][16 rows]. elem: bytes of a value, a constant after
 * inlining. */
static inline void pack_values(const uint8_t *src, size_t row_size, size_t elem, int32_t lanes, int64_t n_in,
                               uint8_t *dst)
{
    for (int64_t k0 = 0; k0 < n_in; k0 += 32) { /* 32 columns at a time: one or two cache lines of each row */
        const int64_t k1 = k0 + 32 < n_in ? k0 + 32 : n_in;
        for (int32_t r = 0; r < lanes; r++) {
            const uint8_t *row = src + (size_t) r * row_size;
            for (int64_t k = k0; k < k1; k++)
                memcpy(dst + ((size_t) k * 16 + (size_t) r) * elem, row + (size_t) k * elem, elem);
        }
    }
}

static void pack_floats(const uint8_t *src, size_t row_size, size_t elem, int32_t lanes, int64_t n_in, uint8_t *dst)
{
    if (elem == 2) pack_values(src, row_size, 2, lanes, n_in, dst);
    else pack_values(src, row_size, 4, lanes, n_in, dst);
}

void pi__lin_pack_tile(int32_t type, const uint8_t *src, size_t row_size, int32_t lanes, int64_t n_in, size_t tile_size,
                       uint8_t *dst)
{
    const pi__lin_format f = pi__lin_format_of(type);
    const pi__format_facts facts = pi__format_facts_of(type);
    const pi__type_info *t = pi__type_info_of(type);
    if (f.kind >= PI__LK_F32) {
        if (lanes < 16) memset(dst, 0, tile_size);
        pack_floats(src, row_size, t->type_size, lanes, n_in, dst);
        return;
    }
    memset(dst, 0, tile_size);
    uint8_t line[8][64] = {{0}}, codes[32];
    for (int64_t s = 0; s < n_in / t->blck_size; s++, dst += pi__lin_record(&f)) {
        for (int32_t r = 0; r < lanes; r++)
            put_side(&facts, src + (size_t) r * row_size + (size_t) s * t->type_size, r, dst);
        for (int j = 0; j < f.rec_blocks; j++) {
            for (int32_t r = 0; r < lanes; r++) {
                pi__block_codes(type, src + (size_t) r * row_size + (size_t) s * t->type_size, j, codes);
                for (int q = 0; q < 8; q++) memcpy(line[q] + 4 * r, codes + 4 * q, 4);
            }
            put_planes(f.code_bytes / 64, line, dst + f.side_bytes + (size_t) j * f.code_bytes);
        }
    }
}
