/* Codes of the IQ formats on the device: codebook points with signs, read from a block's planes (pack.h: 16 rows times
 * 32 columns of a matrix). Entry points: load_points() returns the codes as operand A of integer mma, point_scales()
 * the scales.
 *
 * A point is 8 values (IQ3: 4 values), stored as one 16-bit word of a table in global memory, which the caches hold. A
 * few word operations turn the word into signed bytes, so the codes enter integer products like the codes of other
 * formats. IQ1 adds 1/8 to all values of a point or subtracts it: its codes are in units of 1/8. */
#ifndef PI_CODEBOOKS_CUH
#define PI_CODEBOOKS_CUH

#include "backend/cuda/kernels.h"
#include "formats/formats.h"
#include "formats/iq_codes.h"
#include "warp.cuh"

static __device__ const uint16_t iq2xxs_codes[256] = {PI__IQ2XXS_CODES}, iq2xs_codes[512] = {PI__IQ2XS_CODES},
                                 iq2s_codes[1024] = {PI__IQ2S_CODES}, iq3xxs_codes[256] = {PI__IQ3XXS_CODES},
                                 iq3s_codes[512] = {PI__IQ3S_CODES}, iq1_codes[2048] = {PI__IQ1_CODES};

/* Properties of an IQ format. POINTS: points in 32 columns of a row; 0 = not an IQ format. TERNARY: IQ1, values -1, 0,
 * 1. HALVES: each half of 32 columns has its own scale. */
template <int TYPE> struct codebook {
    static constexpr pi__format_facts FACTS = pi__format_facts_of(TYPE);
    static constexpr bool TERNARY = FACTS.codes == PI__CODES_GRID1;
    static constexpr int POINTS = FACTS.codes == PI__CODES_GRID4              ? 8
                                  : FACTS.codes == PI__CODES_GRID8 || TERNARY ? 4
                                                                              : 0;
    static constexpr bool HALVES = FACTS.halves;
    /* Of 8 signs only 7 are stored; the eighth is the parity of these 7. */
    static constexpr bool PARITY = TYPE == PI__IQ2_XXS || TYPE == PI__IQ2_XS || TYPE == PI__IQ3_XXS;
};

/* Returns the i-th f16 at p. */
PI_FN float half_at(const uint8_t *p, int i) { return ptx_of_half(((const uint16_t *) p)[i]); }

/* spread2, spread4: four adjacent fields of c, of 2 or 4 bits each, become the four bytes of a word. */
PI_FN uint32_t spread2(uint32_t c)
{
    c = (c | c << 12) & 0x000f000f;
    return (c | c << 6) & 0x03030303;
}
PI_FN uint32_t spread4(uint32_t c)
{
    c = (c | c << 8) & 0x00ff00ff;
    return (c | c << 4) & 0x0f0f0f0f;
}

/* Returns four values of codebook point `index` as the bytes of a word, without signs (IQ1: signed). half: 0 = values 0
 * .. 3 of the point, 1 = values 4 .. 7; ignored by IQ3. down: IQ1 only: true = 1/8 is subtracted, false = added. */
template <int TYPE> PI_FN uint32_t point(uint32_t index, int half, bool down)
{
    if (TYPE == PI__IQ3_XXS) { /* codes 0 .. 7 mean 4 12 20 28 36 44 52 62 */
        uint32_t c = spread4(iq3xxs_codes[index]);
        return 0x04040404 + c * 8 + ((c + 0x01010101) >> 2 & 0x02020202);
    }
    if (TYPE == PI__IQ3_S) return 0x01010101 + spread4(iq3s_codes[index]) * 2; /* codes 0 .. 7: 1 3 5 .. 15 */
    uint32_t word = TYPE == PI__IQ2_XXS ? iq2xxs_codes[index] : TYPE == PI__IQ2_XS ? iq2xs_codes[index]
                  : TYPE == PI__IQ2_S   ? iq2s_codes[index] : iq1_codes[index];
    uint32_t c = spread2(word >> 8 * half & 0xff);
    if (codebook<TYPE>::TERNARY) return (c * 8 + (down ? 0x77777777 : 0x79797979)) ^ 0x80808080; /* 8 (c - 1) +- 1 */
    /* codes 0 1 2: 8 25 43 */
    return 0x08080808 + c * 17 + (c >> 1 & 0x01010101);
}

/* Returns v with byte i negated if bit i of s is set, i < 4. All bytes of v are positive. */
PI_FN uint32_t with_signs(uint32_t v, uint32_t s)
{
    uint32_t m = (s & 15) * 0x00204081 & 0x01010101;
    return (v ^ m * 255) + m;
}

/* Returns the lane's word of operand A for row `row` (0 .. 15) of a block: signed codes of columns 16 k + 4 t .. + 3. t
 * = lane % 4; k: half of the 32 columns. block: the block's planes. */
template <int TYPE> PI_FN uint32_t points_word(const uint8_t *block, int row, int k, int t)
{
    using C = codebook<TYPE>;
    int eight = 2 * k + t / 2, half = t % 2; /* group of 8 columns; first or second four of it */
    if (C::TERNARY) {
        uint32_t high = ((const uint16_t *) (block + 64))[row],
                 rest = TYPE == PI__IQ1_S ? high >> 3 * eight : high >> 4 * eight;
        bool down = TYPE == PI__IQ1_S ? high >> 15 : rest >> 3 & 1;
        return point<TYPE>(block[4 * row + eight] | (rest & 7) << 8, half, down);
    }
    constexpr int SIGNS = 16 * C::POINTS; /* byte offset of the words of signs in a block */
    uint32_t signs = ((const uint32_t *) (block + SIGNS))[row],
             index = block[C::POINTS * row + (C::POINTS == 8 ? 4 * k + t : eight)];
    if (TYPE == PI__IQ2_XS) index |= (signs >> (28 + eight) & 1) << 8;
    if (TYPE == PI__IQ2_S) index |= (uint32_t) (block[SIGNS + 64 + row] >> 2 * eight & 3) << 8;
    if (TYPE == PI__IQ3_S) index |= (uint32_t) (block[SIGNS + 64 + row] >> (4 * k + t) & 1) << 8;
    uint32_t s = C::PARITY ? signs >> 7 * eight & 127 : signs >> 8 * eight & 255;
    if (C::PARITY) s |= (uint32_t) (__popc(s) & 1) << 7;
    return with_signs(point<TYPE>(index, half, false), s >> 4 * half);
}

/* a = the lane's four words of operand A for a block (16 rows, 32 columns), as mma.m16n8k32 reads them. */
template <int TYPE> PI_FN void load_points(const uint8_t *block, int lane, uint32_t (&a)[4])
{
    for (int i = 0; i < 4; i++) a[i] = points_word<TYPE>(block, lane / 4 + i % 2 * 8, i / 2, lane % 4);
}

/* s = the scales of a row's two halves of 32 columns. block, side: planes and scales of the block. d: the row's scale
 * for 256 columns. UNIT: constant factor in the format's definition of a scale. */
template <int TYPE> PI_FN void point_scales(const uint8_t *block, const uint8_t *side, float d, int row, float (&s)[2])
{
    using C = codebook<TYPE>;
    constexpr float UNIT = TYPE == PI__IQ3_S ? 1.0f : TYPE == PI__IQ3_XXS ? 0.25f : 0.125f;
    for (int h = 0; h < 2; h++) {
        uint32_t scale;
        if (TYPE == PI__IQ2_XXS || TYPE == PI__IQ3_XXS)
            scale = ((const uint32_t *) (block + 16 * C::POINTS))[row] >> 28;
        else if (TYPE == PI__IQ1_S) scale = ((const uint16_t *) (block + 64))[row] >> 12 & 7;
        else scale = C::HALVES ? side[row] >> 4 * h & 15 : side[row];
        s[h] = d * (float) (2 * scale + 1) * UNIT;
    }
}

#endif
