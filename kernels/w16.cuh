/* Shared by products with 16-bit weights and activations (w16_kernels.cuh and other kernels): the format of packed x,
 * and the conversion of packed codes of W to mma fragments. Entry points: w16_weights() converts a block of 32 columns
 * of a tile (16 rows of W), w16_words() loads x, w16_add() multiplies.
 *
 * Codes are converted in registers: first exactly to integers in F16, then times their scale, which rounds once. MXFP4
 * is converted to BF16, exactly, since F16 cannot hold its scales. NVFP4 is exact too. x is rounded to the same type,
 * with a power of two per row that scales its largest value to 2^14 or more. F16 operands have 11 significant bits,
 * BF16 operands 8.
 *
 * W has the layout of the integer products (pack.h). A lane l, with g = l / 4 and t = l % 4, holds columns 4 t .. 4 t +
 * 3 and 4 t + 16 .. 4 t + 19 of rows g and g + 8. Word j of a row pairs columns 4 t + j and 4 t + 16 + j. These are not
 * the columns that the mma instruction assigns to the lane. x has the same permutation, so the products are equal:
 *
 *     packed x: [groups of 8 rows][blocks of 32 columns][8 rows] 4 pieces of 16 bytes: word j of B of lanes t = 0 .. 3
 *               [rows] factor
 *
 * Piece j of row r of a group is stored at piece j ^ (r / 2). So the 64 bytes of 8 rows form a 64-byte swizzle for
 * wgmma (wgmma_kernels.cuh), and neither wgmma nor ldmatrix has bank conflicts.
 *
 * Formats whose scaled weights would overflow are multiplied as w * 2^-DOWN, and the result is multiplied by 2^DOWN.
 * Weights above 65504 (MXFP4: 2^33) become infinite.
 *
 * ORDER. The blocks of a row are divided into 8 slices (linear.cuh). One tensor-core accumulator sums a slice in order,
 * and the slices are added in order. This holds for every tiling, so products are batch-invariant. */
#ifndef PI_W16_CUH
#define PI_W16_CUH

#include "linear.cuh"

/* W16_TYPES(X) calls X for each matrix type with 16-bit products. */
#define W16_TYPES(X) X(Q8_0) X(Q4_0) X(Q4_K) X(Q6_K) X(IQ4_XS) X(MXFP4) X(NVFP4)

template <int TYPE> struct w16 {
    static constexpr pi__format_facts FACTS = pi__format_facts_of(TYPE);
    /* bytes per tile: of codes and of scales per block of 32 columns, of scales of scales per 8 blocks */
    static constexpr uint32_t CODE = FACTS.plane, SIDE = FACTS.side, SUPER = FACTS.sup;
    static constexpr bool BF16 = FACTS.scales == PI__SCALES_E8M0;
    static constexpr int DOWN = BF16 ? 32 : FACTS.scales == PI__SCALES_UE4M3 ? 7 : 0;
};

/* Returns the bytes of n_rows packed rows of n_in columns, without the factors that follow them. */
__host__ __device__ static inline size_t w16_rows_bytes(int64_t n_rows, int64_t n_in)
{
    return (size_t) ((n_rows + 7) / 8) * (size_t) (n_in / 32) * 512;
}

/* Scale of a packed row, from its largest absolute value `most` (infinity if any value is infinite or NaN). by: factor
 * of the values, a power of two that scales the largest to 2^14 or more. factor: 1 / by, factor of the row's products.
 * bad: `most` is infinite, so factor is NaN and all products are NaN. */
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

/* Returns the offset, in words from a group's block of 32 columns, of the word with columns c and c + 16 (c < 16) of
 * row r of the group. */
PI_FN uint32_t w16_word_at(uint32_t r, uint32_t c) { return r * 16 + (c % 4 ^ r / 2) * 4 + c / 4; }

/* Packs two values, columns c and c + 16, to a word. */
PI_FN uint32_t w16_word(float low, float high, bool bf16)
{
    return bf16 ? ptx_bf16x2(low, high) : ptx_half2(low, high);
}

/* w16_words_of_lane() returns the byte offset, in a group's block of 32 columns, of the piece that the lane passes to
 * ldmatrix. w16_words() loads the lane's words 0 .. 3 of operand B from that block in shared memory. All lanes call
 * it. */
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

/* Integers below 1024 become F16 as follows: 0x6400 with n in its last bits is the F16 1024 + n; then 1024 is
 * subtracted. MINUS_ZEROS: two F16 -0.0. As addend of a multiply-add it changes no product, not even its sign. */
static constexpr uint32_t MINUS_ZEROS = 0x80008000;

/* Scale s and offset m of a row of W in one block: w = code * s + m. Each word has two F16 or BF16: for the 16 columns
 * in the low halves of words, and for the 16 columns in the high halves. */
struct w16_scale {
    uint32_t s, m;
};

/* twice() returns a word with the 16-bit value in both halves. half_of() returns the bits of the i-th F16 at p. */
PI_FN uint32_t twice(uint32_t half) { return __byte_perm(half, 0, 0x1010); }
PI_FN uint32_t half_of(const uint8_t *p, int i) { return ((const uint16_t *) p)[i]; }
/* Converts two bytes to two F16 in a word: from_bytes() unsigned, from_signed() signed bytes. */
PI_FN uint32_t from_bytes(uint32_t low, uint32_t high)
{
    return ptx_add_f16x2(__byte_perm(low, high, 0x3430) | 0x64006400, 0xe400e400);
}
PI_FN uint32_t from_signed(uint32_t low, uint32_t high)
{
    return ptx_add_f16x2(__byte_perm(low, high, 0x3430) ^ 0x64806480, 0xe480e480);
}

/* Returns a word with the 16-bit values low and high. */
PI_FN uint32_t both(uint32_t low, uint32_t high) { return __byte_perm(low, high, 0x5410); }

/* Scales of rows `row` and row + 8 of a tile's block, in two words, before w16_spread() expands them. The four lanes of
 * a row need equal scales. side: the block's scales. sup: scales of scales of 256 columns, for rows 0 .. 7; next: for
 * rows 8 .. 15.
 *
 *     one scale per row, maybe with an offset    s[0] scales of row and row + 8, s[1] their offsets
 *     one scale per half of the columns          s[0] both scales of `row`, s[1] both scales of row + 8 */
struct w16_packed {
    uint32_t s[2];
};
/* w16_halves: the format has a scale per 16 columns. w16_takes_off: it has an offset per row. */
template <int TYPE>
constexpr bool w16_halves = w16<TYPE>::FACTS.scales == PI__SCALES_K6 || w16<TYPE>::FACTS.scales == PI__SCALES_UE4M3;
template <int TYPE> constexpr bool w16_takes_off = w16<TYPE>::FACTS.scales == PI__SCALES_K4;

template <int TYPE> PI_FN w16_packed w16_pack(const uint8_t *side, const uint8_t *sup, const uint8_t *next, int row)
{
    constexpr int SCALES = w16<TYPE>::FACTS.scales;
    auto of_both = [&](const uint8_t *p, const uint8_t *q) { return both(half_of(p, row), half_of(q, row)); };
    w16_packed k = {};
    if constexpr (SCALES == PI__SCALES_K4) { /* 6-bit scale times F16 scale of scales */
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
    /* UE4M3 bits at F16's position are 2^-8 of the scale. Times 2^15 they are 2^7 of it. e2m1 codes are read as 2^-14
     * of their value, so weights come out as w * 2^-DOWN, DOWN = 7. */
    } else if constexpr (SCALES == PI__SCALES_UE4M3) {
        for (int i = 0; i < 2; i++)
            k.s[i] = ptx_fma_f16x2(__byte_perm(half_of(side, 8 * i + row), 0, 0x4140) << 7, 0x78007800, MINUS_ZEROS);
    } else if constexpr (SCALES == PI__SCALES_E8M0) { /* scale 2^(e - 33): e2m1 codes are read as 2^-126 */
        k.s[0] = both(min(side[row] + 94u, 255u), min(side[row + 8] + 94u, 255u)) << 7;
    } else {
        k.s[0] = of_both(side, side + 16);
    }
    return k;
}

/* w16_super_swizzle(r) avoids bank conflicts. Scales of scales of four tiles are adjacent in shared memory, 64 bytes
 * each, and lanes read all four at the same time. Therefore 16-byte piece p of tile r is stored at piece p ^
 * w16_super_swizzle(r): the third and fourth tile have another order of pieces. */
template <int TYPE> PI_FN uint32_t w16_super_swizzle(uint32_t tile) { return w16<TYPE>::SUPER == 64 ? tile / 2 : 0; }

/* Returns the byte offset of a tile's scales of scales for rows 0 .. 7 (half 0) or 8 .. 15 (half 1). */
template <int TYPE> PI_FN uint32_t w16_super_at(uint32_t tile, uint32_t half)
{
    return tile * w16<TYPE>::SUPER + (half ^ w16_super_swizzle<TYPE>(tile)) * 16;
}

/* The 16-byte piece that a lane copies. Lanes below `sides` copy the scales of R tiles, `of_tile` pieces per tile. The
 * lanes after them copy scales of scales (sup = true). piece: index of the piece in the tile's scales. */
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

/* Expands packed scales to one w16_scale for each of the lane's two rows: to[0] for lane / 4, to[1] for lane / 4 +
 * 8. */
template <int TYPE> PI_FN void w16_spread(const w16_packed &p, w16_scale (&to)[2])
{
    for (int i = 0; i < 2; i++) {
        const uint32_t both_of = i ? 0x3232 : 0x1010;
        to[i].s = w16_halves<TYPE> ? p.s[i] : __byte_perm(p.s[0], 0, both_of);
        to[i].m = w16_takes_off<TYPE> ? __byte_perm(p.s[1], 0, both_of) : MINUS_ZEROS;
    }
}

/* Returns the packed scales p of lane i (0 .. 3) among the four lanes of a row. All lanes of the warp call it. */
template <int TYPE> PI_FN w16_packed w16_packed_of(const w16_packed &p, int i)
{
    w16_packed k = {{__shfl_sync(PI_FULL, p.s[0], i, 4), 0}};
    if (w16_halves<TYPE> || w16_takes_off<TYPE>) k.s[1] = __shfl_sync(PI_FULL, p.s[1], i, 4);
    return k;
}

/* Converts the four bytes of p, codes of columns j, j + 1, j + 16 and j + 17, to words `even` (j, j + 16) and `odd` (j
 * + 1, j + 17) of a row. byte ^ MAGIC is the F16 1024 + n for the integer n; OFF is added to remove the 1024. */
template <uint32_t MAGIC, uint32_t OFF> PI_FN void from_four(uint32_t p, w16_scale k, uint32_t &even, uint32_t &odd)
{
    even = ptx_fma_f16x2(ptx_add_f16x2(ptx_and_xor(p, 0x00ff00ff, MAGIC), OFF), k.s, k.m);
    odd = ptx_fma_f16x2(ptx_add_f16x2(ptx_and_xor(p >> 8, 0x00ff00ff, MAGIC), OFF), k.s, k.m);
}

/* Looks up 8 nibbles, indices in the IQ4 codebook. The results are signed bytes, four in each word of p. */
PI_FN void iq4_points(uint32_t index, uint32_t (&p)[2])
{
    /* at: index within 8 of the 16 points; which: byte selector, first or second 8 points */
    uint32_t at = index & 0x77777777, which = ptx_and_or(index >> 1, 0x44444444, 0x32103210);
#pragma unroll
    for (int i = 0; i < 2; i++, at >>= 16, which >>= 16)
        p[i] = ptx_permute(ptx_permute(0xbfad9881, 0xf6eaddcf, at), ptx_permute(0x26190d01, 0x71594535, at), which);
}

/* Converts 8 nibbles of a row, e2m1 codes, to 4 words of F16 or BF16, scaled by k; word j as in the header of this
 * file. */
template <bool BF16> PI_FN void e2m1_to_words(uint32_t code, w16_scale k, uint32_t (&w)[4])
{
    /* bits of the exponent and mantissa, at F16's or BF16's place */
    constexpr uint32_t BITS = BF16 ? 0x01c001c0 : 0x0e000e00;
    constexpr int TO = BF16 ? 6 : 9;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t low = TO > 4 * j ? code << (TO - 4 * j) : code >> (4 * j - TO);
        uint32_t v = ptx_and_or(low, BITS, code << (12 - 4 * j) & 0x80008000);
        w[j] = BF16 ? ptx_fma_bf16x2(v, k.s, k.m) : ptx_fma_f16x2(v, k.s, k.m);
    }
}

/* Unpacks the lane's words of operand A for a tile's block of 32 columns. a[i] is the operand of the block's i-th mma,
 * with 16 of its 32 columns. codes: the block's codes. scales: of the lane's two rows. */
template <int TYPE>
PI_FN void w16_weights(const uint8_t *codes, const w16_packed &scales, int lane, uint32_t (&a)[2][4])
{
    using F = format<TYPE>;
    w16_scale k[2];
    uint32_t w[2][4]; /* [row lane / 4, row lane / 4 + 8][word] */
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
    } else if constexpr (F::BITS == 4) { /* LOW removes 1024 + OFFSET; HIGH: 64 + OFFSET, for codes in bits 4 .. 7 */
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
    /* Order of words in the fragment of A: both rows, then the next columns of both rows. */
    for (int i = 0; i < 2; i++)
        a[i][0] = w[0][2 * i], a[i][1] = w[1][2 * i], a[i][2] = w[0][2 * i + 1], a[i][3] = w[1][2 * i + 1];
}

template <int TYPE>
PI_FN void w16_weights(const uint8_t *codes, const uint8_t *side, const uint8_t *sup, int lane, uint32_t (&a)[2][4])
{
    w16_weights<TYPE>(codes, w16_pack<TYPE>(side, sup, sup + 16, lane / 4), lane, a);
}

/* Adds the products of a block of 32 columns to acc: 16 rows of W (a) times 8 rows of x (b, the lane's words). */
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
