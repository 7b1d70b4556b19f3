/* Packing of matrices for the device (see pack.h). No memory; any thread. Source reads may be unaligned, as src may
 * be a mapped file. */
#include "backend/cuda/pack.h"

#include <string.h>

#include "formats/formats_impl.h"

static bool is_grid(const pi__format_facts *f)
{
    return f->codes == PI__CODES_GRID8 || f->codes == PI__CODES_GRID4 || f->codes == PI__CODES_GRID1;
}

int32_t pi__cuda_packed_type(int32_t type)
{
    return pi__format_facts_of(type).codes == PI__CODES_TERNARY ? PI__Q2_K : type;
}

bool pi__cuda_shape_of(int32_t type, int64_t n_in, int64_t n_out, pi__cuda_shape *s)
{
    const pi__format_facts f = pi__format_facts_of(type);
    *s = (pi__cuda_shape) {0};
    if (f.codes == PI__CODES_NOTHING || f.codes == PI__CODES_NARROW) return false;
    if (n_in < 1 || n_out < 1 || n_in > INT32_MAX || n_out > INT32_MAX) return false;
    const pi__type_info *t = pi__type_info_of(type);
    if (n_in % t->blck_size) return false;
    if (f.codes == PI__CODES_FLOATS) {
        s->tile_bytes = pi__row_size(t, n_in);
        s->mat_bytes = s->tile_bytes * (size_t) n_out;
        return true;
    }
    s->n_block = n_in / 32;
    s->code_bytes = f.plane;
    s->side_at = (size_t) s->n_block * s->code_bytes;
    s->side_bytes = f.side;
    s->super_at = s->side_at + (size_t) s->n_block * f.side;
    s->super_bytes = f.sup;
    s->tile_bytes = s->super_at + (size_t) (s->n_block / 8) * f.sup;
    s->mat_bytes = s->tile_bytes * (size_t) ((n_out + 15) / 16);
    return true;
}

/* ---- codes. put_*: write the codes of two rows of a block: a has the 32 codes of row r (0 to 7), b of row r + 8. Word
 * j of a row holds columns 4j..4j+3. Lane 4r + j has words j and j + 4 of both rows. All bytes of the two rows are
 * written. */

/* Packs table indices (IQ4, FP4 formats): adjacent columns share a byte. */
static void put_indices(const uint8_t *a, const uint8_t *b, int r, uint8_t *block)
{
    uint8_t low[16], high[16], *out = block + 32 * r;
    for (int i = 0; i < 16; i++) {
        low[i] = (uint8_t) (a[2 * i] | a[2 * i + 1] << 4);
        high[i] = (uint8_t) (b[2 * i] | b[2 * i + 1] << 4);
    }
    for (int j = 0; j < 4; j++, out += 8) {
        memcpy(out, low + 2 * j, 2), memcpy(out + 2, low + 8 + 2 * j, 2);
        memcpy(out + 4, high + 2 * j, 2), memcpy(out + 6, high + 8 + 2 * j, 2);
    }
}

static void put_bytes(const uint8_t *a, const uint8_t *b, int r, uint8_t *plane)
{
    uint8_t *out = plane + 64 * r;
    for (int j = 0; j < 4; j++, out += 16) {
        memcpy(out, a + 4 * j, 4), memcpy(out + 4, b + 4 * j, 4);
        memcpy(out + 8, a + 16 + 4 * j, 4), memcpy(out + 12, b + 16 + 4 * j, 4);
    }
}

static void put_nibbles(const uint8_t *a, const uint8_t *b, int r, uint8_t *plane)
{
    uint8_t both[32], *out = plane + 32 * r;
    for (int i = 0; i < 32; i++) both[i] = (uint8_t) ((a[i] & 15) | b[i] << 4);
    for (int j = 0; j < 4; j++, out += 8) memcpy(out, both + 4 * j, 4), memcpy(out + 4, both + 16 + 4 * j, 4);
}

/* Packs bits s and s + 1 of each code into the 2-bit plane. */
static void put_pairs(const uint8_t *a, const uint8_t *b, int s, int r, uint8_t *plane)
{
    uint8_t *out = plane + 16 * r;
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t) ((a[i] >> s & 3) | (b[i] >> s & 3) << 2 | (a[i + 16] >> s & 3) << 4 |
                            (b[i + 16] >> s & 3) << 6);
}

/* Returns bit s of the four codes at p as bits 0 to 3. */
static unsigned four_bits(const uint8_t *p, int s) { return (pi__load32(p) >> s & 0x01010101) * 0x01020408u >> 24; }

/* Packs bit s of each code into the 1-bit plane. */
static void put_bits(const uint8_t *a, const uint8_t *b, int s, int r, uint8_t *plane)
{
    for (int j = 0; j < 8; j++)
        plane[8 * r + j % 4 * 2 + j / 4] = (uint8_t) (four_bits(a + 4 * j, s) | four_bits(b + 4 * j, s) << 4);
}

/* Packs codes of `bits` bits: the low 4 bits into the first plane, the next 2 into the second, the last one into the
 * third, as far as there are so many; codes of 8 bits have one plane. */
static void put_codes(int bits, const uint8_t *a, const uint8_t *b, int r, uint8_t *block)
{
    int s = 0;
    if (bits == 8) {
        put_bytes(a, b, r, block);
        return;
    }
    if (bits >= 4) {
        put_nibbles(a, b, r, block);
        block += 256;
        s = 4;
    }
    if (bits - s >= 2) {
        put_pairs(a, b, s, r, block);
        block += 128;
        s += 2;
    }
    if (bits > s) put_bits(a, b, s, r, block);
}

/* Codebook formats: copies indices, signs and upper bits of block j of super-block p to row r of a tile's block. */
static void put_points(int32_t type, const uint8_t *p, int j, int r, uint8_t *block)
{
    uint8_t *q = block + 4 * r, *s = block + 64 + 4 * r; /* indices; signs */
    uint32_t signs = 0;
    switch (type) {
    case PI__IQ2_XXS: memcpy(q, p + 2 + 8 * j, 4), memcpy(s, p + 6 + 8 * j, 4); break;
    case PI__IQ2_XS: /* halfwords: 9 bits of index, 7 of signs */
        for (int k = 0; k < 4; k++) {
            const uint32_t u = pi__load16(p + 2 + 8 * j + 2 * k);
            q[k] = (uint8_t) u;
            signs |= u >> 9 << 7 * k | (u >> 8 & 1) << (28 + k);
        }
        pi__store32(s, signs);
        break;
    case PI__IQ2_S: memcpy(q, p + 2 + 4 * j, 4), memcpy(s, p + 34 + 4 * j, 4), block[128 + r] = p[66 + j]; break;
    case PI__IQ3_XXS: memcpy(block + 8 * r, p + 2 + 8 * j, 8), memcpy(s + 64, p + 66 + 4 * j, 4); break;
    case PI__IQ3_S:
        memcpy(block + 8 * r, p + 2 + 8 * j, 8), memcpy(s + 64, p + 74 + 4 * j, 4);
        block[192 + r] = p[66 + j];
        break;
    case PI__IQ1_S: memcpy(q, p + 2 + 4 * j, 4), memcpy(block + 64 + 2 * r, p + 34 + 2 * j, 2); break;
    case PI__IQ1_M: memcpy(q, p + 4 * j, 4), memcpy(block + 64 + 2 * r, p + 32 + 2 * j, 2); break;
    default: break;
    }
}

/* ---- scales. put_*: write the scales of row r of a tile, for 32 columns: part j of the file's block at p */

static void put_k4_side(const uint8_t *s, int j, int r, uint8_t *side)
{
    side[r] = (uint8_t) (j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
    side[16 + r] = (uint8_t) (j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
}

static uint8_t q3_k_scale(const uint8_t *s, int g)
{
    int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    return (uint8_t) ((low | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32);
}

/* Codebook formats: returns the scale of block j of super-block p (256 columns), a byte or less. */
static uint8_t grid_scale(int32_t type, const uint8_t *p, int j)
{
    switch (type) {
    case PI__IQ2_XS: return p[66 + j];
    case PI__IQ2_S: return p[74 + j];
    case PI__IQ3_S: return p[106 + j / 2] >> j % 2 * 4 & 15;
    default: { /* IQ1_M: 3 bits each */
        const int u = pi__load16(p + 48 + j / 2 * 2) >> j % 2 * 6;
        return (uint8_t) ((u & 7) | (u >> 3 & 7) << 4);
    }
    }
}

static void put_side(int32_t type, const pi__format_facts *f, const uint8_t *p, int j, int r, uint8_t *side)
{
    const uint8_t *d = p + f->d_at;
    switch (f->scales) {
    case PI__SCALES_D: pi__store16(side + 2 * r, pi__load16(d)); break;
    case PI__SCALES_DM:
        pi__store16(side + 2 * r, pi__load16(d));
        pi__store16(side + 32 + 2 * r, pi__load16(d + 2));
        break;
    case PI__SCALES_K4: put_k4_side(p + 4, j, r, side); break;
    case PI__SCALES_K6:
        for (int h = 0; h < 2; h++) side[16 * h + r] = p[192 + 2 * j + h];
        break;
    case PI__SCALES_K3:
        for (int h = 0; h < 2; h++) side[16 * h + r] = q3_k_scale(p + 96, 2 * j + h);
        break;
    case PI__SCALES_K2: /* ternary formats: scale 1, minimum 1 */
        for (int h = 0; h < 2; h++) side[16 * h + r] = f->codes == PI__CODES_TERNARY ? 0x11 : p[2 * j + h];
        break;
    case PI__SCALES_XS:
        side[r] = (uint8_t) (((p[4 + j / 2] >> j % 2 * 4 & 15) | (pi__load16(p + 2) >> 2 * j & 3) << 4) - 32);
        break;
    case PI__SCALES_E8M0: side[r] = p[0]; break;
    case PI__SCALES_UE4M3:
        for (int h = 0; h < 2; h++) side[2 * r + h] = p[2 * j + h] == 0x7f ? 0 : p[2 * j + h] & 0x7f;
        break;
    case PI__SCALES_G1: case PI__SCALES_G2: side[r] = grid_scale(type, p, j); break;
    default: break;
    }
}

static void put_super(int32_t type, const pi__format_facts *f, const uint8_t *p, int r, uint8_t *sup)
{
    uint16_t d = pi__load16(p + f->d_at);
    if (type == PI__IQ1_M) /* d is the upper nibble of each of four halfwords */
        d = (uint16_t) (p[49] >> 4 | (p[51] & 0xf0) | (p[53] & 0xf0) << 4 | (p[55] & 0xf0) << 8);
    pi__store16(sup + 2 * r, d);
    if (f->codes == PI__CODES_TERNARY) pi__store16(sup + 32 + 2 * r, d);
    else if (f->min) pi__store16(sup + 32 + 2 * r, pi__load16(p + f->d_at + 2));
}

/* Packs the scales of row r of a tile. */
static void pack_scales(int32_t type, const pi__cuda_shape *s, const uint8_t *src, int r, uint8_t *tile)
{
    const pi__type_info *t = pi__type_info_of(type);
    const pi__format_facts f = pi__format_facts_of(type);
    const int per = f.block / 32; /* number of blocks of 32 columns in a block of the file */
    for (int64_t b = 0; b < s->n_block; b++) {
        const uint8_t *p = src + (size_t) (b / per) * t->type_size;
        put_side(type, &f, p, (int) (b % per), r, tile + s->side_at + (size_t) b * s->side_bytes);
        if (s->super_bytes && b % 8 == 0)
            put_super(type, &f, p, r, tile + s->super_at + (size_t) (b / 8) * s->super_bytes);
    }
}

static void pack_points(int32_t type, const pi__cuda_shape *s, const uint8_t *src, int r, uint8_t *tile)
{
    const size_t size = pi__type_info_of(type)->type_size;
    for (int64_t b = 0; b < s->n_block; b++)
        put_points(type, src + (size_t) (b / 8) * size, (int) (b % 8), r, tile + (size_t) b * s->code_bytes);
}

/* Packs the codes of rows r and r + 8 of a tile, from the file's rows row_a and row_b. row_b NULL = row r + 8 has zero
 * codes. */
static void pack_codes(int32_t type, const pi__cuda_shape *s, const uint8_t *row_a, const uint8_t *row_b, int r,
                       uint8_t *tile)
{
    const pi__format_facts f = pi__format_facts_of(type);
    const bool table = f.codes == PI__CODES_IQ4 || f.codes == PI__CODES_FP4;
    const pi__type_info *t = pi__type_info_of(type);
    const int per = (int) t->blck_size / 32;
    uint8_t a[32], b[32] = {0};
    for (int64_t i = 0; i < s->n_block; i++) {
        const size_t at = (size_t) (i / per) * t->type_size;
        uint8_t *block = tile + (size_t) i * s->code_bytes;
        if (type == PI__Q8_0) { /* codes as in the file */
            put_bytes(row_a + at + 2, row_b ? row_b + at + 2 : b, r, block);
            continue;
        }
        pi__block_codes(type, row_a + at, (int) (i % per), a);
        if (row_b) pi__block_codes(type, row_b + at, (int) (i % per), b);
        if (table) put_indices(a, b, r, block);
        else put_codes(f.plane / 64, a, b, r, block);
    }
}

void pi__cuda_pack_tile(int32_t type, const pi__cuda_shape *s, int64_t n_in, const uint8_t *src, int32_t n,
                        uint8_t *tile)
{
    const size_t row = pi__row_size(pi__type_info_of(type), n_in);
    const pi__format_facts f = pi__format_facts_of(type);
    if (n < 16) memset(tile, 0, s->tile_bytes);
    for (int r = 0; r < n; r++) {
        const uint8_t *p = src + (size_t) r * row;
        pack_scales(type, s, p, r, tile);
        if (is_grid(&f)) pack_points(type, s, p, r, tile);
        else if (r < 8) pack_codes(type, s, p, r + 8 < n ? p + 8 * row : NULL, r, tile);
    }
}
