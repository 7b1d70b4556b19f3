/* Matrices for kernel checks: random blocks of every format, packed on the device and dequantized on the host. */
#ifndef PI__SELFTEST_MATRIX_REF_H
#define PI__SELFTEST_MATRIX_REF_H

#include "selftest/check.h"

#include <algorithm>
#include <memory>

#include "backend/cuda/kernels.h"
extern "C" {
#include "formats/formats.h"
}

namespace selftest {

enum { PLAIN, RMSNORM, GEGLU, SWIGLU }; /* PI__IN_* of ops.h */

static const int32_t types[] = {PI__F32,    PI__F16,   PI__BF16,  PI__Q8_0,    PI__Q4_0,   PI__Q4_1,  PI__Q5_0,
                                PI__Q5_1,   PI__Q2_K,  PI__Q3_K,  PI__Q4_K,    PI__Q5_K,   PI__Q6_K,  PI__IQ4_NL,
                                PI__IQ4_XS, PI__MXFP4, PI__NVFP4, PI__IQ2_XXS, PI__IQ2_XS, PI__IQ2_S, PI__IQ3_XXS,
                                PI__IQ3_S,  PI__IQ1_S, PI__IQ1_M, PI__TQ1_0,   PI__TQ2_0};

/* A matrix: packed on the device (m, memory), and dequantized from the file's bytes (values). */
struct matrix {
    pi__k_matrix m;
    std::vector<float> values;
    std::unique_ptr<buffer<uint8_t>> memory;
};

/* Writes a small F16 number: a usable scale for a block of random bytes. */
inline void put_half(uint8_t *p, random &r)
{
    uint16_t h = pi__f32_to_f16(0.01f * r.normal());
    std::memcpy(p, &h, 2);
}

/* Returns the file's bytes of a matrix of random blocks, also for formats without an encoder: codes are random bytes,
 * scales are small. */
inline std::vector<uint8_t> random_rows(int32_t type, int64_t n_in, int64_t n_out, random &r)
{
    const pi__type_info *t = pi__type_info_of(type);
    std::vector<uint8_t> bytes(pi__row_size(t, n_in) * (size_t) n_out);
    for (size_t b = 0; b < bytes.size(); b += t->type_size) {
        uint8_t *p = &bytes[b];
        for (size_t i = 0; i < t->type_size; i++) p[i] = (uint8_t) r.bits();
        switch (type) {
        case PI__F32: {
            float f = r.normal();
            std::memcpy(p, &f, 4);
            break;
        }
        case PI__F16: put_half(p, r); break;
        case PI__BF16: {
            uint16_t h = pi__f32_to_bf16(r.normal());
            std::memcpy(p, &h, 2);
            break;
        }
        case PI__Q2_K: put_half(p + 80, r), put_half(p + 82, r); break;
        case PI__Q3_K: put_half(p + 108, r); break;
        case PI__Q6_K: put_half(p + 208, r); break;
        case PI__TQ1_0: put_half(p + 52, r); break;
        case PI__TQ2_0: put_half(p + 64, r); break;
        case PI__Q4_1: case PI__Q5_1: case PI__Q4_K: case PI__Q5_K: put_half(p, r), put_half(p + 2, r); break;
        case PI__MXFP4: p[0] = (uint8_t) (118 + r.below(8)); break;
        case PI__NVFP4: break; /* any byte is a valid scale */
        case PI__IQ1_M: { /* the scale has a nibble in the top bits of each of four 16-bit words */
            uint16_t h = pi__f32_to_f16(0.01f * r.normal());
            for (int k = 0; k < 4; k++) p[49 + 2 * k] = (uint8_t) ((p[49 + 2 * k] & 15) | (h >> 4 * k & 15) << 4);
            break;
        }
        default: put_half(p, r); break;
        }
    }
    return bytes;
}

/* Makes a matrix from the file's bytes: packs it on the device, and dequantizes it. */
inline matrix pack_matrix(int32_t type, int64_t n_in, int64_t n_out, std::vector<uint8_t> bytes)
{
    matrix w;
    size_t row = pi__row_size(pi__type_info_of(type), n_in);
    w.values.resize((size_t) (n_in * n_out));
    for (int64_t i = 0; i < n_out; i++) {
        expect_true(pi__dequantize_row(type, &bytes[(size_t) i * row], &w.values[(size_t) (i * n_in)], n_in));
    }
    w.m = {};
    w.m.type = pi__cuda_packed_type(type);
    w.m.n_in = n_in;
    w.m.n_out = n_out;
    expect_true(pi__cuda_shape_of(type, n_in, n_out, &w.m.shape));
    if (!pi__type_is_float(type)) {
        std::vector<uint8_t> packed(w.m.shape.mat_bytes);
        for (int64_t i = 0; i < n_out; i += 16) {
            pi__cuda_pack_tile(type, &w.m.shape, n_in, &bytes[(size_t) i * row],
                               (int32_t) std::min<int64_t>(16, n_out - i),
                               &packed[(size_t) (i / 16) * w.m.shape.tile_bytes]);
        }
        bytes = packed;
    }
    expect_equal(bytes.size(), w.m.shape.mat_bytes);
    w.memory.reset(new buffer<uint8_t>(bytes));
    w.m.data = w.memory->get();
    return w;
}

inline matrix make_matrix(int32_t type, int64_t n_in, int64_t n_out)
{
    random r((uint64_t) (type * 1000 + n_in + n_out));
    return pack_matrix(type, n_in, n_out, random_rows(type, n_in, n_out, r));
}

inline std::vector<float> multiply(const matrix &w, const pi__k_input &in, int32_t n_rows)
{
    int floats = pi__type_is_float(w.m.type);
    buffer<char> prepared(pi__k_packed_x_bytes(n_rows, w.m.n_in, floats));
    buffer<float> y((size_t) (n_rows * (w.m.n_out + 3)));
    must_run(pi__k_pack_x(stream(), &in, n_rows, w.m.n_in, floats, prepared.get()));
    const pi__k_product one = {w.m, y.get(), w.m.n_out + 3, 0};
    must_run(pi__k_linear(stream(), &one, 1, prepared.get(), n_rows));
    std::vector<float> out;
    for (int64_t r = 0; r < n_rows; r++) {
        const float *row = &y[(size_t) (r * (w.m.n_out + 3))];
        out.insert(out.end(), row, row + w.m.n_out);
        for (int i = 0; i < 3; i++) expect_true(row[w.m.n_out + i] != row[w.m.n_out + i]); /* not written */
    }
    return out;
}

} // namespace selftest

#endif
