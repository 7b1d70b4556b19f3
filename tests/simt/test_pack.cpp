/* Packing of matrices: every type and every number of rows, against codes stored one by one at the positions of
 * pack.h. */
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}

#include "selftest/matrix_ref.h"

extern "C" {
#include "base/hash.h"
#include "model/weights_image.h"
}

using namespace selftest;

enum { N_IN = 512 };

/* Bits of a type's codes; *table is true if they are indices into a table. 0 = codebooks. */
static int bits_of(int32_t type, bool *table)
{
    *table = type == PI__IQ4_NL || type == PI__IQ4_XS || type == PI__MXFP4 || type == PI__NVFP4;
    switch (type) {
    case PI__Q8_0: return 8;
    case PI__Q6_K: return 6;
    case PI__Q5_0: case PI__Q5_1: case PI__Q5_K: return 5;
    case PI__Q4_0: case PI__Q4_1: case PI__Q4_K: return 4;
    case PI__Q3_K: return 3;
    case PI__Q2_K: case PI__TQ1_0: case PI__TQ2_0: return 2;
    default: return *table ? 4 : 0;
    }
}

static void put_index(int r, int k, unsigned c, uint8_t *block)
{
    block[(r % 8 * 4 + k % 16 / 4) * 8 + r / 8 * 4 + k / 16 * 2 + k % 4 / 2] |= (uint8_t) (c << k % 2 * 4);
}

/* Stores code c of row r, column k, in the planes of a block. */
static void put_code(int bits, int r, int k, unsigned c, uint8_t *block)
{
    int lane = r % 8 * 4 + k % 16 / 4, word = r / 8 + k / 16 * 2, byte = k % 4;
    if (bits == 8) {
        block[lane * 16 + word * 4 + byte] = (uint8_t) c;
        return;
    }
    if (bits >= 4) {
        block[lane * 8 + word / 2 * 4 + byte] |= (uint8_t) ((c & 15) << word % 2 * 4);
        block += 256;
        c >>= 4;
        bits -= 4;
    }
    if (bits >= 2) {
        block[lane * 4 + byte] |= (uint8_t) ((c & 3) << 2 * word);
        block += 128;
        c >>= 2;
        bits -= 2;
    }
    if (bits) block[lane * 2 + word / 2] |= (uint8_t) ((c & 1) << (word % 2 * 4 + byte));
}

/* Returns the code planes of n rows. */
static std::vector<uint8_t> planes(int32_t type, const pi__cuda_shape &s, const std::vector<uint8_t> &rows, int n)
{
    const pi__type_info *t = pi__type_info_of(type);
    const int per = (int) t->blck_size / 32;
    bool table;
    const int bits = bits_of(type, &table);
    std::vector<uint8_t> out((size_t) s.n_block * s.code_bytes);
    for (int r = 0; r < n; r++) {
        for (int64_t b = 0; b < s.n_block; b++) {
            uint8_t c[32], *block = &out[(size_t) b * s.code_bytes];
            const uint8_t *p = &rows[(size_t) r * pi__row_size(t, N_IN) + (size_t) (b / per) * t->type_size];
            pi__block_codes(type, p, (int) (b % per), c);
            for (int k = 0; k < 32; k++) {
                if (table) put_index(r, k, c[k], block);
                else put_code(bits, r, k, type == PI__Q8_0 ? c[k] ^ 0x80u : c[k], block);
            }
        }
    }
    return out;
}

/* Codes are at their positions, and every byte of a tile is written, over any old contents; missing rows are zeros. */
static void test_tiles(void **)
{
    selftest::random r(11);
    for (int32_t type : types) {
        pi__cuda_shape s;
        bool table;
        assert_true(pi__cuda_shape_of(type, N_IN, 16, &s));
        if (!s.n_block) continue;
        const std::vector<uint8_t> rows = random_rows(type, N_IN, 16, r), zeros(s.tile_bytes, 0);
        std::vector<uint8_t> full(s.tile_bytes, 0x55);
        pi__cuda_pack_tile(type, &s, N_IN, rows.data(), 16, full.data());
        for (int n = 0; n <= 16; n++) {
            std::vector<uint8_t> got(s.tile_bytes, 0xaa);
            pi__cuda_pack_tile(type, &s, N_IN, rows.data(), n, got.data());
            if (n == 16 && got != full)
                fail_msg("%s: some bytes of a tile are not written", pi__type_info_of(type)->name);
            if (!n && got != zeros) fail_msg("%s: rows that are not there are not zeros", pi__type_info_of(type)->name);
            if (!bits_of(type, &table)) continue;
            const std::vector<uint8_t> want = planes(type, s, rows, n);
            if (std::memcmp(want.data(), got.data(), want.size()))
                fail_msg("%s: codes of %d rows are not where they belong", pi__type_info_of(type)->name, n);
        }
    }
}

/* Processes share packed matrices: a change of the layout must also change its version. */
static void test_layout(void **)
{
    selftest::random r(12);
    const uint64_t known = 0xe0728ac6f67a4b51;
    uint64_t all = 0;
    for (int32_t type : types) {
        pi__cuda_shape s;
        assert_true(pi__cuda_shape_of(type, N_IN, 16, &s));
        if (!s.n_block) continue;
        const std::vector<uint8_t> rows = random_rows(type, N_IN, 16, r);
        std::vector<uint8_t> tile(s.tile_bytes);
        pi__cuda_pack_tile(type, &s, N_IN, rows.data(), 16, tile.data());
        all = pi__hash64(tile.data(), tile.size(), all);
    }
    assert_int_equal(PI__PACKED_LAYOUT, 1); /* the version that belongs to `known` */
    if (all != known) fail_msg("the bytes are of sum %016llx", (unsigned long long) all);
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_tiles), cmocka_unit_test(test_layout)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
