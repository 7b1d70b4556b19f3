/* A paged cache for kernel checks. The host reads and writes it according to the layout described in
 * backend/cuda/kernels.h. */
#ifndef PI__SELFTEST_CACHE_REF_H
#define PI__SELFTEST_CACHE_REF_H

#include "selftest/check.h"

#include <cmath>

#include "backend/cuda/kernels.h"
#include "formats/cache_rotation.h"
extern "C" {
#include "formats/formats.h"
}

namespace selftest {

/* ---- rotated types: the rotation matrix of formats/cache_rotation.h, applied in double precision */

/* Rotates each group of 32 of the n values. back: applies the inverse rotation. */
inline void turn_ref(float *x, int32_t n, bool back)
{
    auto sign = [](int i) { return PI__ROTATION_SIGNS >> i & 1 ? -1.0 : 1.0; };
    for (int32_t at = 0; at < n; at += 32) {
        double y[32];
        for (int i = 0; i < 32; i++) {
            y[i] = 0;
            for (int j = 0; j < 32; j++)
                y[i] += (__builtin_popcount((unsigned) (i & j)) % 2 ? -1 : 1) * (back ? 1 : sign(j)) *
                        (double) x[at + j];
            y[i] *= (back ? sign(i) : 1) / std::sqrt(32.0);
        }
        for (int i = 0; i < 32; i++) x[at + i] = (float) y[i];
    }
}

inline int code_bits(int32_t type) { return type == PI__TQ4_0 ? 4 : 3; }
inline int code_value(int32_t type, int code)
{
    static const int tq4[] = {PI__TQ4_0_VALUES}, tq3[] = {PI__TQ3_0_VALUES};
    return type == PI__TQ4_0 ? tq4[code] : tq3[code];
}
/* Returns the position of bit b of code i among all code bits of its group. */
inline int code_bit(int32_t type, int i, int b) { return type == PI__TQ4_0 ? i % 16 * 8 + i / 16 * 4 + b : 3 * i + b; }

/* Dequantizes n stored values; they stay rotated. */
inline void from_rotated(int32_t type, const uint8_t *p, float *x, int32_t n)
{
    for (int32_t at = 0; at < n; at += 32, p += pi__kv_row_size(type, 32)) {
        uint16_t d;
        memcpy(&d, p, 2);
        for (int i = 0; i < 32; i++) {
            int code = 0;
            for (int b = 0; b < code_bits(type); b++) {
                const int bit = code_bit(type, i, b);
                code |= (p[2 + bit / 8] >> bit % 8 & 1) << b;
            }
            x[at + i] = pi__f16_to_f32(d) * (float) code_value(type, code);
        }
    }
}

/* Rotates and quantizes a row. The scale maps a group's largest magnitude to the largest code value; each value gets
 * the nearest code. Kernels may choose other scales and codes. */
inline void to_rotated(int32_t type, const float *row, uint8_t *p, int32_t n)
{
    std::vector<float> x(row, row + n);
    const int n_codes = 1 << code_bits(type);
    turn_ref(x.data(), n, false);
    for (int32_t at = 0; at < n; at += 32, p += pi__kv_row_size(type, 32)) {
        float most = 0;
        for (int i = 0; i < 32; i++) most = std::fmax(most, std::fabs(x[(size_t) (at + i)]));
        const uint16_t d = pi__f32_to_f16(most / (float) code_value(type, n_codes - 1));
        memset(p, 0, pi__kv_row_size(type, 32));
        memcpy(p, &d, 2);
        for (int i = 0; i < 32; i++) {
            int best = 0;
            for (int c = 1; c < n_codes; c++) {
                const float scale = pi__f16_to_f32(d), f = x[(size_t) (at + i)];
                if (std::fabs(scale * (float) code_value(type, c) - f) <
                    std::fabs(scale * (float) code_value(type, best) - f))
                    best = c;
            }
            for (int b = 0; b < code_bits(type); b++) {
                const int bit = code_bit(type, i, b);
                p[2 + bit / 8] = (uint8_t) (p[2 + bit / 8] | (best >> b & 1) << bit % 8);
            }
        }
    }
}

/* Returns the allowed error of each of 32 values: a fraction of the group's norm, since each value is computed from all
 * 32 rotated values. */
inline double rotated_step(int32_t type, const double *x)
{
    double squares = 0;
    for (int i = 0; i < 32; i++) squares += x[i] * x[i];
    return std::sqrt(squares * (type == PI__TQ4_0 ? 0.02 : 0.06));
}

/* A cache in device memory: the blocks of one layer. A gap follows each block, as if for another layer. All bytes are
 * initially 0xFF, so that floats are NaN. */
struct paged {
    pi__k_cache c;
    int32_t n_blocks;
    buffer<char> memory;

    static size_t row_bytes(int32_t type, int32_t n) { return pi__kv_row_size(type, n); }
    static size_t stride_of(int32_t tk, int32_t tv, int32_t heads, int32_t dim, int32_t block_size)
    {
        size_t bytes = (size_t) (heads * block_size) * (row_bytes(tk, dim) + row_bytes(tv, dim));
        return (bytes + 63) / 64 * 64 + 128;
    }
    paged(int32_t tk, int32_t tv, int32_t heads, int32_t dim, int32_t block_size, int32_t blocks)
        : c(), n_blocks(blocks), memory((size_t) blocks * stride_of(tk, tv, heads, dim, block_size))
    {
        c = {memory.get(), stride_of(tk, tv, heads, dim, block_size), tk, tv, heads, dim, block_size};
    }

    /* Returns the size of the side data (scale, minimum, fifth bits) of 32 values in bytes. */
    static size_t side_bytes(int32_t type)
    {
        return type == PI__Q5_1 ? 8 : type == PI__Q5_0 ? 6 : type == PI__Q4_1 ? 4
             : type == PI__Q8_0 || type == PI__Q4_0 || type == PI__IQ4_NL || pi__kv_rotated(type) ? 2 : 0;
    }
    /* Returns the address of byte i of a row (one head of the token in `slot`) in a plane. v: V, else K. sides: the
     * plane of side data, else that of codes. */
    char *at(bool v, int32_t slot, int32_t head, bool sides, size_t i) const
    {
        int32_t type = v ? c.type_v : c.type_k, groups = c.head_dim / 32;
        size_t row = row_bytes(type, c.head_dim), sc = (size_t) groups * side_bytes(type), codes = row - sc;
        size_t n = (size_t) c.block_size, token = (size_t) (slot % c.block_size);
        char *p = c.base + (size_t) (slot / c.block_size) * c.stride;
        if (v) p += (size_t) c.n_head_kv * n * row_bytes(c.type_k, c.head_dim);
        p += (size_t) head * n * row;
        return sides ? p + n * codes + token * sc + i : p + token * codes + i;
    }
    /* Copies a row between the planes and `bytes`, which has the byte order of the file format. write: copies into the
     * planes, else out of them. */
    void move(bool v, int32_t slot, int32_t head, uint8_t *bytes, bool write) const
    {
        int32_t type = v ? c.type_v : c.type_k;
        size_t row = row_bytes(type, c.head_dim), group = row / (size_t) (c.head_dim / 32);
        const size_t side = side_bytes(type);
        for (size_t i = 0; i < row; i++) {
            size_t g = i / group, j = i % group;
            char *p = j < side ? at(v, slot, head, true, side * g + j)
                               : at(v, slot, head, false, g * (group - side) + j - side);
            if (write) *p = (char) bytes[i];
            else bytes[i] = (uint8_t) *p;
        }
    }
    /* Reads and dequantizes a row. stored: rows of rotated types stay rotated. */
    std::vector<float> read(bool v, int32_t slot, int32_t head, bool stored = false) const
    {
        const int32_t type = v ? c.type_v : c.type_k;
        std::vector<uint8_t> bytes(row_bytes(type, c.head_dim));
        std::vector<float> row((size_t) c.head_dim);
        move(v, slot, head, bytes.data(), false);
        if (!pi__kv_rotated(type)) pi__dequantize_row(type, bytes.data(), row.data(), c.head_dim);
        else from_rotated(type, bytes.data(), row.data(), c.head_dim);
        if (pi__kv_rotated(type) && !stored) turn_ref(row.data(), c.head_dim, true);
        return row;
    }
    void write(bool v, int32_t slot, int32_t head, const float *row)
    {
        std::vector<uint8_t> bytes(row_bytes(v ? c.type_v : c.type_k, c.head_dim));
        if (pi__kv_rotated(v ? c.type_v : c.type_k)) to_rotated(v ? c.type_v : c.type_k, row, bytes.data(), c.head_dim);
        else pi__quantize_row(v ? c.type_v : c.type_k, row, bytes.data(), c.head_dim, nullptr);
        move(v, slot, head, bytes.data(), true);
    }
};

} // namespace selftest

#endif
