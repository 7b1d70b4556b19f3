/* Rounding of x for products in FP4, group by group; fp4.cuh describes the layout. Scalar functions, without memory
 * access except fp4_put_scale().
 *
 * NVFP4: e2m1 codes; per 16 codes a scale of 4 significant bits with any exponent. When all scales of a row are known,
 * a power of two for the row makes them ue4m3. A group's largest value becomes 6 or 4, whichever gives the smaller
 * squared error: e2m1 has no value between 4 and 6, so 4 suits groups with many values just below the largest. A
 * group's codes depend on the group alone, so that a part of a row can be rounded without the rest.
 *
 * MXFP4 and MXFP8: e2m1 or e4m3 codes; per 32 codes the smallest power of two without clipping. */
#ifndef PI_FP4_QUANT_CUH
#define PI_FP4_QUANT_CUH

#include "fp4.cuh"

/* e2m1_of: returns the nearest e2m1 code (values 0 0.5 1 1.5 2 3 4 6, sign in bit 3), ties to the even code. NaN has
 * code 0: its sign depends on the order of operands. The scale shows NaN. e2m1_value: the value of a code without
 * sign. */
PI_FN uint32_t e2m1_of(float v)
{
    float a = fabsf(v);
    uint32_t c = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return c | (v < 0 ? 8u : 0u);
}
PI_FN float e2m1_value(uint32_t c)
{
    uint32_t e = c >> 1 & 3, m = c & 1; /* codes 0 and 1 are subnormal: 0, 0.5 */
    return e ? __uint_as_float((e + 126) << 23 | m << 22) : 0.5f * (float) m;
}

/* ue4m3_of: returns the nearest ue4m3 code of v >= 0, at most 0x7e (448), also for NaN. e4m3_of: the same with a sign,
 * in bit 7; NaN has none. */
PI_FN uint32_t ue4m3_of(float v)
{
    uint32_t u = __float_as_uint(v);
    if (v < 0.015625f) return (uint32_t) __float2int_rn(v * 512.0f); /* subnormal: codes 0..7 are multiples of 2^-9 */
    u = (u + 0x7ffff + (u >> 20 & 1)) >> 20;
    return min(u - (120u << 3), 0x7eu);
}
PI_FN uint32_t e4m3_of(float v) { return ue4m3_of(fabsf(v)) | (v < 0 ? 0x80u : 0u); }

/* Returns |v|, or infinity if v is NaN or infinite, so that the maximum of a group shows these values. */
PI_FN float size_of(float v)
{
    v = fabsf(v);
    return v <= 3.4e38f ? v : INFINITY;
}

/* nv_scale: returns the NVFP4 scale, most / top rounded to 4 significant bits, with which the group's largest magnitude
 * `most` becomes `top` (6 or 4). 0 if the scale is below 2^-100. nv_inverse: 1 / scale, or 0 for scale 0. */
PI_FN float nv_scale(float most, float top)
{
    float s = most / top;
    uint32_t u = __float_as_uint(s);
    if (!(s > 0x1p-100f)) return 0.0f;
    return s <= 3.4e38f ? __uint_as_float((u + 0x7ffff + (u >> 20 & 1)) & 0xfff00000u) : INFINITY;
}
PI_FN float nv_inverse(float scale) { return scale > 0 ? 1.0f / scale : 0.0f; }
/* nv_error: squared rounding error of v, in units of the scale's square. inverse: 1 / scale. nv_is_four: true if the
 * scale for 4 gives the group the smaller squared error. error4, error6: sums of nv_error() over the group. */
PI_FN float nv_error(float v, float inverse)
{
    float a = fabsf(v) * inverse, d = a - e2m1_value(e2m1_of(a));
    return d * d;
}
PI_FN bool nv_is_four(float error4, float scale4, float error6, float inverse6)
{
    float r = scale4 * inverse6;
    return error4 * (r * r) < error6;
}
/* nv_factor: returns a row's factor, the power of two that brings its largest scale `most` to 128 .. 255; NaN if most
 * is infinite or NaN. nv_by: 1 / factor. nv_byte: a scale's ue4m3 byte; by: result of nv_by(). */
PI_FN float nv_factor(float most)
{
    if (!(most <= 3.4e38f)) return __uint_as_float(0x7fc00000);
    return most > 0 ? __uint_as_float(((__float_as_uint(most) >> 23) - 7) << 23) : 0.0f;
}
PI_FN float nv_by(float factor) { return factor > 0 ? __uint_as_float((254u << 23) - __float_as_uint(factor)) : 0.0f; }
PI_FN uint32_t nv_byte(float scale, float by) { return ue4m3_of(scale <= 3.4e38f ? scale * by : 0.0f); }

/* Returns the scale byte of a group in MXFP4, or MXFP8 (A8). most: the group's largest magnitude. inverse: receives the
 * factor for values before rounding. A group with NaN or infinity gets byte 255 (NaN), which makes every result of the
 * row NaN. */
template <bool A8> PI_FN uint32_t mx_scale(float most, float &inverse)
{
    constexpr uint32_t TOP = A8 ? 8 : 2, MOST = A8 ? 0x600000 : 0x400000; /* 1.75 * 2^8, 1.5 * 2^2 */
    uint32_t bits = __float_as_uint(most), e = bits >> 23;
    inverse = 0.0f;
    if (!(most <= 3.4e38f)) return 255;
    e += (bits & 0x7fffff) > MOST ? 1 : 0;
    e = e > TOP ? e - TOP : 0;
    if (e) inverse = __uint_as_float((254 - e) << 23);
    return e;
}

/* Position of a code in a piece: index of a 32-bit word, and the code's first bit in that word. fp4_spot_of: position
 * of column `column` (0..63) of chunk c (0, 1) of the step. */
struct fp4_spot {
    uint32_t word, shift;
};
template <int WAY> PI_FN fp4_spot fp4_spot_of(uint32_t c, uint32_t column)
{
    const uint32_t block = column / 32, half = column % 32 / 16, t = column % 16 / 4;
    if (fp4_way<WAY>::A8) return {c * 16 + t * 4 + block * 2 + half, column % 4 * 8};
    if (!fp4_way<WAY>::NV) return {t * 4 + c * 2 + block, column % 4 * 4 + half * 16};
    return {(2 * block + column % 16 / 8) * 4 + c * 2 + half, column % 8 * 4};
}
/* Writes the scale byte of the group that contains column `column` of chunk c to a row's piece. */
template <int WAY> PI_FN void fp4_put_scale(uint8_t *piece, uint32_t c, uint32_t column, uint32_t byte)
{
    const uint32_t block = column / 32, half = column % 32 / 16;
    uint8_t *to = piece + fp4_way<WAY>::WORDS;
    if (fp4_way<WAY>::A8) {
        for (uint32_t i = 0; i < 4; i++) to[4 * i + 2 * c + block] = (uint8_t) byte;
        return;
    }
    to += 4 * c + block + (fp4_way<WAY>::NV ? 2 * half : 0);
    to[0] = to[8] = (uint8_t) byte;
    if (WAY == FP4_MX) to[2] = to[10] = 0; /* unused bytes of the chunk's scale word */
}

#endif
