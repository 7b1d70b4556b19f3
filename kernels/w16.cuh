/* Shared by products with 16-bit weights and activations (w16_kernels.cuh): packed rows of x, and mma fragments
 * from packed codes.
 *
 * Codes are converted in registers: first exactly to integers in F16, then times their scale, which rounds once.
 * MXFP4 is converted to BF16, exactly, since F16 cannot hold its scales. NVFP4 is exact too. x is rounded to the
 * same type, with a power of two per row that scales its largest value to 2^14 or more. A product's error is that
 * of 11 bits in each operand.
 *
 * W has the layout of the integer products (pack.h). A lane holds columns 4 t .. 4 t + 3 and 4 t + 16 .. 4 t + 19
 * of rows g and g + 8. Word j of a row pairs columns 4 t + j and 4 t + 16 + j. These are not the instruction's
 * columns of the lane; x has the same permutation, so the products are equal:
 *
 *     packed x: [groups of 8 rows][blocks of 32 columns][8 rows] 4 pieces of 16 bytes: word j of B of lanes t = 0 .. 3
 *               [rows] factor
 *
 * Piece j of row r of a group is stored at piece j ^ (r / 2). So the 64 bytes of 8 rows form a 64-byte swizzle for
 * wgmma (wgmma_kernels.cuh), and neither wgmma nor ldmatrix has bank conflicts.
 *
 * Weights with scales that would not fit are multiplied as w * 2^-DOWN. Weights above 65504 (MXFP4: 2^33) become
 * infinite.
 *
 * ORDER. The blocks are divided into 8 slices (linear.cuh). One tensor-core accumulator sums a slice in order, and
 * the slices are added in order. This holds for every tiling, so products are batch-invariant. */
#ifndef PI_W16_CUH
#define PI_W16_CUH

#include "linear.cuh"

/* Formats with 16-bit products. */
#define W16_TYPES(X) X(Q8_0) X(Q4_0) X(Q4_K) X(Q6_K) X(IQ4_XS) X(MXFP4) X(NVFP4)

template <int TYPE> struct w16 {
    static constexpr pi__format_facts FACTS = pi__format_facts_of(TYPE);
    /* bytes of codes and scales of a tile's block, and of scales of scales per 8 blocks */
    static constexpr uint32_t CODE = FACTS.plane, SIDE = FACTS.side, SUPER = FACTS.sup;
    static constexpr bool BF16 = FACTS.scales == PI__SCALES_E8M0;
    static constexpr int DOWN = BF16 ? 32 : FACTS.scales == PI__SCALES_UE4M3 ? 7 : 0;
};

__host__ __device__ static inline size_t w16_rows_bytes(int64_t n_rows, int64_t n_in)
{
    return (size_t) ((n_rows + 7) / 8) * (size_t) (n_in / 32) * 512;
}

/* Scale of a row of 16-bit floats, from its largest absolute value `most` (infinite or NaN if any value is). by:
 * factor of the values, which scales the largest to 2^14 or more. factor: factor of the row's products. bad: factor
 * is NaN, and so are all products. */
struct row_scale {
    float by, factor;
    bool bad;
};
PI_FN row_scale scale_of_row(float most)
{
    const bool bad = !(most <= 3.4e38f);
    uint32_t e = __float_as_uint(most) >> 23;
    e = e > 15 ? e - 14 : 1;
    return {__uint_as_float((254 - e) << 23), bad ? __uint_as_float(0x7fc00000) : __uint_as_float(e << 23), bad};
}

/* Offset, in words from the group's block, of the word of columns c and c + 16 in row r of a group. */
PI_FN uint32_t w16_word_at(uint32_t r, uint32_t c) { return r * 16 + (c % 4 ^ r / 2) * 4 + c / 4; }

/* Packs two columns to a word. */
PI_FN uint32_t w16_word(float low, float high, bool bf16)
{
    return bf16 ? ptx_bf16x2(low, high) : ptx_half2(low, high);
}

/* Returns the offset within a group's block of the row piece that the lane passes to ldmatrix. w16_words() loads
 * the lane's words 0 .. 3 of B. All lanes call it. */
PI_FN uint32_t w16_words_of_lane()
{
    const uint32_t row = threadIdx.x % 8, piece = threadIdx.x / 8 % 4;
    return row * 64 + (piece ^ row / 2) * 16;
}
PI_FN uint4 w16_words(const unsigned char *block, uint32_t of_lane)
{
    uint32_t r[4];
    ptx_ldmatrix_x4(r, ptx_shared(block) + of_lane);
    return {r[0], r[1], r[2], r[3]};
}
PI_FN uint4 w16_words(const unsigned char *block) { return w16_words(block, w16_words_of_lane()); }

/* An integer n below 1024 is exact as 1024 + n, which is 0x6400 with n in its last bits, minus 1024.
 * MINUS_ZEROS: two F16 -0.0. Adding them changes no product, not even its sign. */
static constexpr uint32_t MINUS_ZEROS = 0x80008000;

/* Scales s and offsets m of a row of W, for the columns of a word's low and high half: w = code * s + m. */
struct w16_scale {
    uint32_t s, m;
};

PI_FN uint32_t twice(uint32_t half) { return __byte_perm(half, 0, 0x1010); }
PI_FN uint32_t half_of(const uint8_t *p, int i) { return ((const uint16_t *) p)[i]; }
/* Converts two bytes to F16: from_bytes() unsigned, from_signed() signed. */
PI_FN uint32_t from_bytes(uint32_t low, uint32_t high)
{
    return ptx_add_f16x2(__byte_perm(low, high, 0x3430) | 0x64006400, 0xe400e400);
}
PI_FN uint32_t from_signed(uint32_t low, uint32_t high)
{
    return ptx_add_f16x2(__byte_perm(low, high, 0x3430) ^ 0x64806480, 0xe480e480);
}

/* Joins two F16 or BF16 to a word. */
PI_FN uint32_t both(uint32_t low, uint32_t high) { return __byte_perm(low, high, 0x5410); }

/* Scales of rows `row` and row + 8 of a block, in two words, before they are spread over the lane's words. All four
 * lanes of a row have the same. side: the block's scales; sup: scales of scales of 256 columns for the first 8
 * rows; next: of the other 8.
 *
 *     one scale per row, maybe with an offset    [0] scales of both rows, [1] offsets
 *     one scale per half of the columns          [0] those of the first row, [1] of the other */
struct w16_packed {
    uint32_t s[2];
};
template <int TYPE>
constexpr bool w16_halves = w16<TYPE>::FACTS.scales == PI__SCALES_K6 || w16<TYPE>::FACTS.scales == PI__SCALES_UE4M3;
template <int TYPE> constexpr bool w16_takes_off = w16<TYPE>::FACTS.scales == PI__SCALES_K4;

template <int TYPE> PI_FN w16_packed w16_pack(const uint8_t *side, const uint8_t *sup, const uint8_t *next, int row)
{
    constexpr int SCALES = w16<TYPE>::FACTS.scales;
    auto of_both = [&](const uint8_t *p, const uint8_t *q) { return both(half_of(p, row), half_of(q, row)); };
    w16_packed k = {};
    if constexpr (SCALES == PI__SCALES_K4) { /* 6 bits times F16 */
        k.s[0] = ptx_fma_f16x2(from_bytes(side[row], side[row + 8]), of_both(sup, next), MINUS_ZEROS);
        k.s[1] = ptx_fma_f16x2(from_bytes(side[16 + row], side[24 + row]), of_both(sup + 32, next + 32), MINUS_ZEROS) ^
                 0x80008000;
    } else if constexpr (SCALES == PI__SCALES_XS) {
        k.s[0] = ptx_fma_f16x2(from_signed(side[row], side[row + 8]), of_both(sup, next), MINUS_ZEROS);
    } else if constexpr (SCALES == PI__SCALES_K6) {
        for (int i = 0; i < 2; i++) {
            const uint32_t codes = from_signed(side[8 * i + row], side[16 + 8 * i + row]);
            k.s[i] = ptx_fma_f16x2(codes, twice(half_of(i ? next : sup, row)), MINUS_ZEROS);
        }
    /* the bits read as F16 give 2^-8 of the scale; it needs to be 2^7, as e2m1 is read as 2^-14 */
    } else if constexpr (SCALES == PI__SCALES_UE4M3) {
        for (int i = 0; i < 2; i++)
            k.s[i] = ptx_fma_f16x2(__byte_perm(half_of(side, 8 * i + row), 0, 0x4140) << 7, 0x78007800, MINUS_ZEROS);
    } else if constexpr (SCALES == PI__SCALES_E8M0) { /* 2^(e - 33): e2m1 is read as 2^-126 of its value */
        k.s[0] = both(min(side[row] + 94u, 255u), min(side[row + 8] + 94u, 255u)) << 7;
    } else {
        k.s[0] = of_both(side, side + 16);
    }
    return k;
}

/* Scales of scales of four tiles are adjacent in shared memory, 64 bytes each, and lanes read all four at the same
 * time. The third and fourth tile have their 16-byte pieces in another order, to avoid bank conflicts: piece p of
 * tile r is stored at piece p ^ w16_super_swizzle(r). */
template <int TYPE> PI_FN uint32_t w16_super_swizzle(uint32_t tile) { return w16<TYPE>::SUPER == 64 ? tile / 2 : 0; }

/* Byte offset of a tile's scales of scales for 8 rows: the first 8 (half 0) or the other 8 (half 1). */
template <int TYPE> PI_FN uint32_t w16_super_at(uint32_t tile, uint32_t half)
{
    return tile * w16<TYPE>::SUPER + (half ^ w16_super_swizzle<TYPE>(tile)) * 16;
}

/* The 16-byte piece that the lane copies. Lanes below `sides` copy the scales of R tiles, `of_tile` pieces per tile.
 * The lanes after them copy scales of scales. */
struct w16_side_piece {
    bool sup;
    uint32_t tile, piece;
};
template <int TYPE, uint32_t R> PI_FN w16_side_piece w16_side_piece_of(uint32_t lane, uint32_t sides, uint32_t of_tile)
{
    const bool sup = lane >= sides;
    const uint32_t k = sup ? lane - sides : lane, n = sup ? w16<TYPE>::SUPER / 16 : of_tile,
                   tile = n ? min(k / n, R - 1) : 0;
    return {sup, tile, n ? k % n ^ (sup ? w16_super_swizzle<TYPE>(tile) : 0) : 0};
}

/* Expands packed scales to one w16_scale for each of the lane's two rows. */
template <int TYPE> PI_FN void w16_spread(const w16_packed &p, w16_scale (&to)[2])
{
    for (int i = 0; i < 2; i++) {
        const uint32_t both_of = i ? 0x3232 : 0x1010;
        to[i].s = w16_halves<TYPE> ? p.s[i] : __byte_perm(p.s[0], 0, both_of);
        to[i].m = w16_takes_off<TYPE> ? __byte_perm(p.s[1], 0, both_of) : MINUS_ZEROS;
    }
}

/* Returns the scales that lane i of the four lanes of a row has. */
template <int TYPE> PI_FN w16_packed w16_packed_of(const w16_packed &p, int i)
{
    w16_packed k = {{__shfl_sync(PI_FULL, p.s[0], i, 4), 0}};
    if (w16_halves<TYPE> || w16_takes_off<TYPE>) k.s[1] = __shfl_sync(PI_FULL, p.s[1], i, 4);
    return k;
}

/* Converts bytes of columns j, j + 1, j + 16, j + 17 to two words of a row: 1024 + n is byte ^ MAGIC; OFF is added
 * to remove the 1024. */
template <uint32_t MAGIC, uint32_t OFF> PI_FN void from_four(uint32_t p, w16_scale k, uint32_t &even, uint32_t &odd)
{
    even = ptx_fma_f16x2(ptx_add_f16x2(ptx_and_xor(p, 0x00ff00ff, MAGIC), OFF), k.s, k.m);
    odd = ptx_fma_f16x2(ptx_add_f16x2(ptx_and_xor(p >> 8, 0x00ff00ff, MAGIC), OFF), k.s, k.m);
}

/* Looks up 8 indices in the IQ4 codebook: signed bytes, four in a word. */
PI_FN void iq4_points(uint32_t index, uint32_t (&p)[2])
{
    /* index within 8 points; which 8 points */
    uint32_t at = index & 0x77777777, which = ptx_and_or(index >> 1, 0x44444444, 0x32103210);
#pragma unroll
    for (int i = 0; i < 2; i++, at >>= 16, which >>= 16)
        p[i] = ptx_permute(ptx_permute(0xbfad9881, 0xf6eaddcf, at), ptx_permute(0x26190d01, 0x71594535, at), which);
}

/* Converts 8 nibbles of a row from e2m1 to 4 words, columns as above. */
template <bool BF16> PI_FN void e2m1_to_words(uint32_t code, w16_scale k, uint32_t (&w)[4])
{
    constexpr uint32_t BITS = BF16 ? 0x01c001c0 : 0x0e000e00; /* position of exponent and mantissa */
    constexpr int TO = BF16 ? 6 : 9;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t low = TO > 4 * j ? code << (TO - 4 * j) : code >> (4 * j - TO);
        uint32_t v = ptx_and_or(low, BITS, code << (12 - 4 * j) & 0x80008000);
        w[j] = BF16 ? ptx_fma_bf16x2(v, k.s, k.m) : ptx_fma_f16x2(v, k.s, k.m);
    }
}

/* Unpacks the lane's words of A of a tile's block. a[i] is the operand of the block's i-th mma, with 16 of its 32
 * columns. */
template <int TYPE>
PI_FN void w16_weights(const uint8_t *codes, const w16_packed &scales, int lane, uint32_t (&a)[2][4])
{
    using F = format<TYPE>;
    w16_scale k[2];
    uint32_t w[2][4]; /* words of each row */
    w16_spread<TYPE>(scales, k);
    if constexpr (F::FP4) {
        uint2 u = ((const uint2 *) codes)[lane];
        e2m1_to_words<w16<TYPE>::BF16>(u.x, k[0], w[0]);
        e2m1_to_words<w16<TYPE>::BF16>(u.y, k[1], w[1]);
    } else if constexpr (F::TABLE) {
        uint2 u = ((const uint2 *) codes)[lane];
        for (int i = 0; i < 2; i++) {
            uint32_t p[2];
            iq4_points(__byte_perm(i ? u.y : u.x, 0, 0x3120), p);
            from_four<0x64806480, 0xe480e480>(p[0], k[i], w[i][0], w[i][1]);
            from_four<0x64806480, 0xe480e480>(p[1], k[i], w[i][2], w[i][3]);
        }
    } else if constexpr (F::BITS == 8) {
        uint4 u = ((const uint4 *) codes)[lane];
        for (int i = 0; i < 2; i++) {
            uint32_t left = i ? u.y : u.x, right = i ? u.w : u.z;
            from_four<0x64806480, 0xe480e480>(__byte_perm(left, right, 0x5410), k[i], w[i][0], w[i][1]);
            from_four<0x64806480, 0xe480e480>(__byte_perm(left, right, 0x7632), k[i], w[i][2], w[i][3]);
        }
    } else if constexpr (F::BITS == 4) { /* removes 1024 + OFFSET; for codes 4 bits further up, 64 + OFFSET */
        constexpr uint32_t LOW = F::OFFSET ? 0xe408e408 : 0xe400e400, HIGH = F::OFFSET ? 0xd480d480 : 0xd400d400;
        static_assert(F::OFFSET == 0 || F::OFFSET == 8, "the constants assume these offsets");
        uint2 u = ((const uint2 *) codes)[lane];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t p = __byte_perm(u.x, u.y, j < 2 ? 0x5410 : 0x7632);
            if (j % 2) p >>= 8;
            w[0][j] = ptx_add_f16x2(ptx_and_or(p, 0x000f000f, 0x64006400), LOW);
            w[1][j] = ptx_fma_f16x2(ptx_and_or(p, 0x00f000f0, 0x64006400), 0x2c002c00, HIGH);
            for (int i = 0; i < 2; i++) w[i][j] = ptx_fma_f16x2(w[i][j], k[i].s, k[i].m);
        }
    } else {
        static_assert(F::BITS == 6 && F::OFFSET == 32, "codes are 4 low bits and 2 high bits");
        uint2 u = ((const uint2 *) codes)[lane];
        uint32_t v = ((const uint32_t *) (codes + 256))[lane];
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            uint32_t order = j ? 0x7632 : 0x5410, p = __byte_perm(u.x, u.y, order);
            for (int i = 0; i < 2; i++) {
                uint32_t high = __byte_perm(i ? v << 2 : v << 4, i ? v >> 2 : v, order) & 0x30303030;
                from_four<0x64006400, 0xe420e420>(ptx_and_or(p >> 4 * i, 0x0f0f0f0f, high), k[i], w[i][j], w[i][j + 1]);
            }
        }
    }
    /* Reorder to the fragment layout of A. */
    for (int i = 0; i < 2; i++)
        a[i][0] = w[0][2 * i], a[i][1] = w[1][2 * i], a[i][2] = w[0][2 * i + 1], a[i][3] = w[1][2 * i + 1];
}

template <int TYPE>
PI_FN void w16_weights(const uint8_t *codes, const uint8_t *side, const uint8_t *sup, int lane, uint32_t (&a)[2][4])
{
    w16_weights<TYPE>(codes, w16_pack<TYPE>(side, sup, sup + 16, lane / 4), lane, a);
}

/* Adds the products of a block of 32 columns to acc. */
template <int TYPE> PI_FN void w16_add(const uint32_t (&a)[2][4], uint4 b, float (&acc)[4])
{
    if (w16<TYPE>::BF16) {
        ptx_mma_bf16(acc, a[0], {b.x, b.y});
        ptx_mma_bf16(acc, a[1], {b.z, b.w});
    } else {
        ptx_mma_f16(acc, a[0], {b.x, b.y});
        ptx_mma_f16(acc, a[1], {b.z, b.w});
    }
}

#endif
