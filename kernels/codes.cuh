/* Packed matrices on the device: reads codes and scales of each block format from the layout of pack.h. A tile is 16
 * rows; a block is 32 columns of a tile. Entry points, called by a warp or its lanes: load_codes(), load_scales(). */
#ifndef PI_CODES_CUH
#define PI_CODES_CUH

#include "backend/cuda/kernels.h"
#include "codebooks.cuh"
#include "formats/formats.h"

/* A block format: value = scale * (code - OFFSET) - minimum. A row has one scale per 32 columns, or (HALVES) one per
 * 16. TABLE: a code is an index into a table of 16 signed values. MINS: the format has minimums. */
template <int TYPE> struct format {
    static constexpr pi__format_facts FACTS = pi__format_facts_of(TYPE);
    static constexpr int SCALES = FACTS.scales;
    static constexpr bool FP4 = FACTS.codes == PI__CODES_FP4;
    static constexpr bool TABLE = FP4 || FACTS.codes == PI__CODES_IQ4;
    static constexpr int BITS = FACTS.plane / 64; /* bits per code, for formats without codebook points */
    static constexpr bool HALVES = FACTS.halves, MINS = FACTS.min;
    /* Table entries and Q8_0 codes are signed bytes: no offset. */
    static constexpr int OFFSET = FACTS.codes == PI__CODES_PLAIN && FACTS.offset && BITS < 8 ? 1 << FACTS.offset : 0;
};

/* Returns four entries of a table of 16 signed bytes, as the bytes of a word. table[i]: entries 4 i .. 4 i + 3. w: the
 * four indices, of 4 bits each, in its low 16 bits. */
PI_FN uint32_t look_up(uint32_t w, const uint32_t (&table)[4])
{
    uint32_t low = __byte_perm(table[0], table[1], w & 0x7777), high = __byte_perm(table[2], table[3], w & 0x7777);
    return __byte_perm(low, high, 0x3210 + (w >> 1 & 0x4444));
}

/* a = the lane's four words of operand A of a block, as mma.m16n8k32 reads them: bytes that hold the codes, from which
 * OFFSET is not yet subtracted. block: the codes of the block. */
template <int TYPE> PI_FN void load_codes(const uint8_t *block, int lane, uint32_t (&a)[4])
{
    using F = format<TYPE>;
    if constexpr (codebook<TYPE>::POINTS) {
        load_points<TYPE>(block, lane, a);
        return;
    }
    if (F::BITS == 8) {
        uint4 u = ((const uint4 *) block)[lane];
        a[0] = u.x, a[1] = u.y, a[2] = u.z, a[3] = u.w;
        return;
    }
    /* Tables. FP4: the e2m1 values, doubled: 0 1 2 3 4 6 8 12 and their negatives. IQ4: -127 -104 -83 -65 -49 -35 -22
     * -10 1 13 25 38 .. */
    if (F::TABLE) {
        const uint32_t fp4[4] = {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc};
        const uint32_t iq4[4] = {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535};
        uint2 u = ((const uint2 *) block)[lane];
        uint32_t w[4] = {u.x, u.y, u.x >> 16, u.y >> 16};
        for (int i = 0; i < 4; i++) a[i] = look_up(w[i], F::FP4 ? fp4 : iq4);
        return;
    }
    a[0] = a[1] = a[2] = a[3] = 0;
    /* Plain codes: the planes of 4, 2 and 1 bits that the format has, one after the other. */
    if (F::BITS >= 4) {
        uint2 u = ((const uint2 *) block)[lane];
        a[0] = u.x & 0x0f0f0f0f, a[1] = u.x >> 4 & 0x0f0f0f0f, a[2] = u.y & 0x0f0f0f0f, a[3] = u.y >> 4 & 0x0f0f0f0f;
        block += 256;
    }
    constexpr int REST = F::BITS % 4, SHIFT = F::BITS >= 4 ? 4 : 0;
    if (REST >= 2) {
        uint32_t u = ((const uint32_t *) block)[lane];
        for (int i = 0; i < 4; i++) a[i] |= (u >> 2 * i & 0x03030303) << SHIFT;
        block += 128;
    }
    if (REST % 2) {
        uint32_t u = ((const uint16_t *) block)[lane];
        for (int i = 0; i < 4; i++) a[i] |= ((u >> 4 * i & 15) * 0x00204081u & 0x01010101) << (SHIFT + (REST & 2));
    }
}

/* s, m = scales and minimums of the two halves of row `row` (0 .. 15) in block b of a tile. m is 0 for formats without
 * minimums. If the format has one scale per block, both halves get it. */
template <int TYPE>
PI_FN void load_scales(const pi__cuda_shape &shape, const uint8_t *tile, int64_t b, int row, float (&s)[2],
                       float (&m)[2])
{
    const uint8_t *side = tile + shape.side_at + (size_t) b * shape.side_bytes;
    const uint8_t *sup = tile + shape.super_at + (size_t) (b / 8) * shape.super_bytes;
    m[0] = m[1] = 0;
    if constexpr (codebook<TYPE>::POINTS) {
        point_scales<TYPE>(tile + (size_t) b * shape.code_bytes, side, half_at(sup, row), row, s);
        return;
    }
    constexpr int SCALES = format<TYPE>::SCALES;
    if (SCALES == PI__SCALES_K4) {
        s[0] = half_at(sup, row) * (float) side[row];
        m[0] = half_at(sup + 32, row) * (float) side[16 + row];
    } else if (SCALES == PI__SCALES_K6 || SCALES == PI__SCALES_K3) {
        for (int h = 0; h < 2; h++) s[h] = half_at(sup, row) * (float) (int8_t) side[16 * h + row];
    } else if (SCALES == PI__SCALES_K2) {
        for (int h = 0; h < 2; h++) {
            s[h] = half_at(sup, row) * (float) (side[16 * h + row] & 15);
            m[h] = half_at(sup + 32, row) * (float) (side[16 * h + row] >> 4);
        }
    } else if (SCALES == PI__SCALES_XS) {
        s[0] = half_at(sup, row) * (float) (int8_t) side[row];
    } else if (SCALES == PI__SCALES_E8M0) { /* 2^(e - 127) / 2, since table values are doubled */
        uint32_t e = side[row];
        s[0] = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    } else if (SCALES == PI__SCALES_UE4M3) { /* half of the ue4m3 value, since table values are doubled */
        for (int h = 0; h < 2; h++) {
            uint32_t u = side[2 * row + h], e = u >> 3, f = u & 7;
            s[h] = (float) (e ? f + 8 : f) * __uint_as_float(((e ? e : 1) + 116) << 23);
        }
    } else {
        s[0] = half_at(side, row);
        if (format<TYPE>::MINS) m[0] = -half_at(side + 32, row);
    }
    if (!format<TYPE>::HALVES) s[1] = s[0], m[1] = m[0];
}

#endif
