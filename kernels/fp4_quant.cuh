/* How x is rounded for products in FP4, group by group; see fp4.cuh for where it goes.
 *
 * NVFP4: e2m1 codes; a scale of 4 significant bits for 16 of them, of any size; and once all of a row's are known, a power
 * of two for the row, by which they become ue4m3. A group's largest value becomes 6 or 4, whichever gives the smaller
 * squared error: between 4 and 6 e2m1 has nothing, and a group with much just below its largest value does better with that
 * at 4. So the codes of a group depend on the group alone, and who has a part of a row need not know the rest of it.
 * MXFP4 and MXFP8: e2m1 or e4m3 codes, a power of two for 32 of them, the smallest without clipping. */
#ifndef PI_FP4_QUANT_CUH
#define PI_FP4_QUANT_CUH

#include "fp4.cuh"

/* Nearest e2m1 (0 0.5 1 1.5 2 3 4 6), ties to the even code. */
PI_FN uint32_t e2m1_of(float v)
{
    float a = fabsf(v);
    uint32_t c = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return c | (__float_as_uint(v) >> 28 & 8);
}
PI_FN float e2m1_value(uint32_t c)
{
    uint32_t e = c >> 1 & 3, m = c & 1; /* the smallest is half of 1, as if e were 0 and m were not there */
    return e ? __uint_as_float((e + 126) << 23 | m << 22) : 0.5f * (float) m;
}

/* Nearest ue4m3 of a value that is not negative, at most 448. */
PI_FN uint32_t ue4m3_of(float v)
{
    uint32_t u = __float_as_uint(v);
    if (v < 0.015625f) return (uint32_t) __float2int_rn(v * 512.0f); /* 8 is the smallest with an exponent */
    u = (u + 0x7ffff + (u >> 20 & 1)) >> 20;
    return min(u - (120u << 3), 0x7eu);
}
PI_FN uint32_t e4m3_of(float v) { return ue4m3_of(fabsf(v)) | (__float_as_uint(v) >> 24 & 0x80); }

/* What a group's largest value is taken to be of a value; infinite if it is no number. */
PI_FN float size_of(float v)
{
    v = fabsf(v);
    return v <= 3.4e38f ? v : INFINITY;
}

/* Scale of NVFP4 with which `most` becomes `top`, of 4 significant bits; 0 for what is next to nothing. */
PI_FN float nv_scale(float most, float top)
{
    float s = most / top;
    uint32_t u = __float_as_uint(s);
    if (!(s > 0x1p-100f)) return 0.0f;
    return s <= 3.4e38f ? __uint_as_float((u + 0x7ffff + (u >> 20 & 1)) & 0xfff00000u) : INFINITY;
}
PI_FN float nv_inverse(float scale) { return scale > 0 ? 1.0f / scale : 0.0f; }
/* A value's squared error, in units of its scale; and whether the scale for 4 has a smaller one than that for 6, by the sums
 * of a group's. */
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
/* A row's factor, of its largest scale: a power of two with which that becomes 128 or more; NaN if it is infinite. And a
 * scale's byte, of what is 1 / factor. */
PI_FN float nv_factor(float most)
{
    if (!(most <= 3.4e38f)) return __uint_as_float(0x7fc00000);
    return most > 0 ? __uint_as_float(((__float_as_uint(most) >> 23) - 7) << 23) : 0.0f;
}
PI_FN float nv_by(float factor) { return factor > 0 ? __uint_as_float((254u << 23) - __float_as_uint(factor)) : 0.0f; }
PI_FN uint32_t nv_byte(float scale, float by) { return ue4m3_of(scale <= 3.4e38f ? scale * by : 0.0f); }

/* Scale of MXFP4 or MXFP8 (a8) as its byte, of a group's largest value, and what values are multiplied with. 255, NaN, is
 * that of a group with one that is no number: so is every result of the row then. */
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

/* Word and bits in it of a step's column in a row's piece: column % 64 of chunk c. */
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
/* The scale of that column's group, to a row's piece. */
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
    if (WAY == FP4_MX) to[2] = to[10] = 0; /* not used */
}

#endif
