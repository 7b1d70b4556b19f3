/* Shared by products in FP4, fp4_kernels.cuh's and moe_fp4_kernels.cuh's: prepared rows, the sum of a chunk, tiles.
 *
 *     prepared: [groups of 8 rows][chunks of 64 columns]{ [32 lanes] two words of B, [8 rows] word of 4 scales }
 *               [rows] factor
 *
 * The lanes 4 r .. 4 r + 3 hold row r of a group alone, so that a warp may as well take its 8 rows from 8 groups. W is
 * packed as pack.h says; a chunk is two of its blocks, the last one of MXFP4 may have only one. ORDER: the chunks are cut
 * into 8 slices, a slice is summed by one accumulator of the tensor core, in order, and the slices are added in order. */
#ifndef PI_FP4_CUH
#define PI_FP4_CUH

#include "linear.cuh"
#include "pipe.cuh"

enum { FP4_CHUNK = 288 /* bytes of a chunk of 8 prepared rows */, FP4_WARPS = 8, FP4_GROUPS = 8, FP4_STAGE = 2, FP4_STAGES = 3 };

static inline size_t chunks_bytes(int64_t n_rows, int64_t n_in)
{
    return (size_t) ((n_rows + 7) / 8) * (size_t) ((n_in + 63) / 64) * FP4_CHUNK;
}

/* The lane's words of A of a chunk and its word of scales; codes and scales are those of the chunk's first block, and
 * there may be no second. */
template <int TYPE>
PI_FN void load_chunk(const uint8_t *codes, const uint8_t *side, bool second, int lane, uint32_t (&a)[4], uint32_t &scales)
{
    int at = (lane & ~3) + 2 * (lane & 1), row = lane / 4 + 8 * (lane & 1);
    uint32_t half = lane & 2 ? 0x7632 : 0x5410;
    uint4 u = *(const uint4 *) (codes + at * 8), v = {0, 0, 0, 0};
    if (second) v = *(const uint4 *) (codes + 256 + at * 8);
    a[0] = __byte_perm(u.x, u.z, half), a[1] = __byte_perm(u.y, u.w, half);
    a[2] = __byte_perm(v.x, v.z, half), a[3] = __byte_perm(v.y, v.w, half);
    if (TYPE == PI__NVFP4) {
        uint32_t s = ((const uint16_t *) side)[row] | (uint32_t) ((const uint16_t *) (side + 32))[row] << 16;
        scales = s - ((s + 0x01010101) >> 7 & 0x01010101); /* 0x7f is 480 in files, which the instruction has not: 448 */
    } else {
        scales = min((uint32_t) side[row], 254u) | (second ? min((uint32_t) side[16 + row], 254u) << 8 : 0);
    }
}

template <int TYPE>
PI_FN void add_chunk(float (&acc)[4], const uint32_t (&a)[4], uint32_t scales, const uint32_t (&b)[2], uint32_t b_scales)
{
    if (TYPE == PI__NVFP4) ptx_mma_mxf4nvf4<0, 0, 0, 0>(acc, a, b, scales, b_scales);
    else ptx_mma_mxf4<0, 0, 0, 0>(acc, a, b, scales, b_scales);
}

/* The warp's slice of a tile's rows times n_group groups of x (at most NT). X gives, of group g and chunk c, the lane's
 * words of B and its word of scales: load(g, c, words, scales). */
template <int TYPE, int NT, class X>
PI_FN void fp4_add_slice(const pi__cuda_shape &shape, const uint8_t *tile, const X &x, int n_group, float (&acc)[NT][4])
{
    int lane = (int) threadIdx.x % 32, slice = (int) threadIdx.x / 32, n_block = (int) shape.n_block, n = (n_block + 1) / 2;
    for (int c = n * slice / SLICES; c < n * (slice + 1) / SLICES; c++) {
        uint32_t a[4], scales;
        load_chunk<TYPE>(tile + (size_t) c * 512, tile + shape.side_at + (size_t) c * 2 * shape.side_bytes,
                         2 * c + 1 < n_block, lane, a, scales);
#pragma unroll
        for (int g = 0; g < NT; g++) {
            if (g >= n_group) break;
            uint32_t b[2], b_scales;
            x.load(g, c, b, b_scales);
            add_chunk<TYPE>(acc[g], a, scales, b, b_scales);
        }
    }
}

/* A stage of tiles of 128 rows of W times 64 of x, two chunks:
 *
 *     [8 tiles]{ [4 blocks] codes, [4 blocks] scales } [8 groups][2 chunks] */
static __host__ __device__ __forceinline__ uint32_t fp4_tile_bytes(const pi__cuda_shape &s)
{
    return 2 * FP4_STAGE * (256 + (uint32_t) s.side_bytes);
}
static __host__ __device__ __forceinline__ uint32_t fp4_stage_bytes(const pi__cuda_shape &s)
{
    return FP4_WARPS * fp4_tile_bytes(s) + FP4_GROUPS * FP4_STAGE * FP4_CHUNK;
}

/* Chunk c and the next to stage i: the warp's tile of W, where it has one, and its group of x. */
template <class PIPE, class X>
PI_FN void fp4_fill(const pi__cuda_shape &s, const uint8_t *tile, const X &x, const PIPE &q, int32_t i, int32_t c)
{
    uint32_t warp = threadIdx.x / 32, n = (uint32_t) min(2 * FP4_STAGE, (int32_t) s.n_block - 2 * c), chunks = (n + 1) / 2;
    uint32_t side = (uint32_t) s.side_bytes, size = fp4_tile_bytes(s);
    q.expect(i, (tile ? n * (256 + side) : 0) + x.bulk_bytes(chunks));
    if (tile) {
        q.copy(i, warp * size, tile + (size_t) c * 512, n * 256);
        q.copy(i, warp * size + 2 * FP4_STAGE * 256, tile + s.side_at + (size_t) c * 2 * side, n * side);
    }
    x.fill(q, i, FP4_WARPS * size + warp * FP4_STAGE * FP4_CHUNK, c, chunks);
}

/* total = the warp's tile of W (NULL: it has none) times n_group groups of x; a warp has all slices, one after the other. X
 * knows how the warp's group gets to a stage: fill(q, i, to, c, n) copies n chunks from c on to offset `to` of stage i,
 * bulk_bytes(n) of them by copy() of the pipe. */
template <int TYPE, class PIPE, class X>
PI_FN void fp4_multiply_tile(const pi__cuda_shape &shape, const uint8_t *tile, const X &x, unsigned char *raw, int n_group,
                             float (&total)[FP4_GROUPS][4])
{
    int lane = (int) threadIdx.x % 32;
    int32_t n_block = (int32_t) shape.n_block, n = (n_block + 1) / 2, end = slice_end(n, 0);
    uint32_t side = (uint32_t) shape.side_bytes, size = fp4_tile_bytes(shape), own = threadIdx.x / 32 * size;
    float acc[FP4_GROUPS][4] = {};
    PIPE q(raw, fp4_stage_bytes(shape));
    auto fill = [&](int32_t i, int32_t c) { fp4_fill(shape, tile, x, q, i, c); };
    q.run(n, FP4_STAGE, fill, [&](const unsigned char *stage, int32_t c) {
        for (int k = 0; k < FP4_STAGE && c + k < n && tile; k++) {
            const unsigned char *w = stage + own, *chunk = stage + FP4_WARPS * size + k * FP4_CHUNK;
            uint32_t a[4], scales;
            load_chunk<TYPE>(w + k * 512, w + 2 * FP4_STAGE * 256 + k * 2 * side, 2 * (c + k) + 1 < n_block, lane, a, scales);
#pragma unroll
            for (int g = 0; g < FP4_GROUPS; g++, chunk += FP4_STAGE * FP4_CHUNK) {
                if (g >= n_group) break;
                uint2 b = ((const uint2 *) chunk)[lane];
                add_chunk<TYPE>(acc[g], a, scales, {b.x, b.y}, ((const uint32_t *) (chunk + 256))[lane / 4]);
            }
            if (c + k + 1 < end) continue;
            end_slice(acc, total);
            end = slice_end(n, end);
        }
    });
}

#endif
