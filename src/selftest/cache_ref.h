/* A paged cache for the tests of kernels, read and written by the plain description in backend/cuda/kernels.h. */
#ifndef PI__SELFTEST_CACHE_REF_H
#define PI__SELFTEST_CACHE_REF_H

#include "selftest/check.h"

#include "backend/cuda/kernels.h"
extern "C" {
#include "formats/formats.h"
}

namespace selftest {

/* A cache in device memory: blocks of one layer with another layer's bytes of the block behind it, full of NaN. */
struct paged {
    pi__k_cache c;
    int32_t n_blocks;
    buffer<char> memory;

    static size_t row_bytes(int32_t type, int32_t n) { return pi__row_size(pi__type_info_of(type), n); }
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

    /* Bytes of the side of 32 values. */
    static size_t side_bytes(int32_t type)
    {
        return type == PI__Q5_1 ? 8 : type == PI__Q5_0 ? 6 : type == PI__Q4_1 ? 4
             : type == PI__Q8_0 || type == PI__Q4_0 || type == PI__IQ4_NL ? 2 : 0;
    }
    /* Byte i of a plane: of codes, or of sides, of a token's row. */
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
    /* A row as the bytes of the file format, from the planes, or to them. */
    void move(bool v, int32_t slot, int32_t head, uint8_t *bytes, bool write) const
    {
        int32_t type = v ? c.type_v : c.type_k;
        size_t row = row_bytes(type, c.head_dim), group = row / (size_t) (c.head_dim / 32);
        const size_t side = side_bytes(type);
        for (size_t i = 0; i < row; i++) {
            size_t g = i / group, j = i % group;
            char *p = j < side ? at(v, slot, head, true, side * g + j) : at(v, slot, head, false, g * (group - side) + j - side);
            if (write) *p = (char) bytes[i];
            else bytes[i] = (uint8_t) *p;
        }
    }
    std::vector<float> read(bool v, int32_t slot, int32_t head) const
    {
        std::vector<uint8_t> bytes(row_bytes(v ? c.type_v : c.type_k, c.head_dim));
        std::vector<float> row((size_t) c.head_dim);
        move(v, slot, head, bytes.data(), false);
        pi__dequantize_row(v ? c.type_v : c.type_k, bytes.data(), row.data(), c.head_dim);
        return row;
    }
    void write(bool v, int32_t slot, int32_t head, const float *row)
    {
        std::vector<uint8_t> bytes(row_bytes(v ? c.type_v : c.type_k, c.head_dim));
        pi__quantize_row(v ? c.type_v : c.type_k, row, bytes.data(), c.head_dim, nullptr);
        move(v, slot, head, bytes.data(), true);
    }
};

} // namespace selftest

#endif
