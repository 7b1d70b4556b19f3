/* Packed matrices times many rows of x, inside of a block of threads: what gemm_kernels.cuh and moe_many_kernels.cuh
 * share. The same bits as add_slice of linear.cuh, for which W is read again for every 32 rows.
 *
 * A block of 8 warps makes 128 rows of W times 64 rows of x; a warp 16 of them times all 64, so that each weight is
 * unpacked once a block. Two blocks of 32 columns of both operands are a stage; while a stage is multiplied the next ones
 * are on their way to shared memory (pipe.cuh):
 *
 *     stage: 8 tiles of W:        codes [2], scales [2], scales of scales
 *            8 groups of 8 rows:  words of B [2][32 lanes], metas [2][8 rows]
 *
 * Warp w copies tile w and group w. ORDER: as linear.cuh says. There a warp has one slice; here it has all, one after the
 * other: what a slice gives is added to the total when it is done. */
#ifndef PI_TILE_CUH
#define PI_TILE_CUH

#include "linear.cuh"
#include "pipe.cuh"

enum { WARPS = THREADS / 32, GROUPS = 8, STAGE = 2 /* blocks */, STAGES = 3 };
static_assert((int) WARPS == (int) GROUPS && (int) WARPS == (int) PIPE_WARPS, "warp w copies group w");

/* Where things are in a stage; bytes. */
struct stage_map {
    uint32_t code, side, sup;  /* of a tile: two blocks of codes, of scales; scales of scales */
    uint32_t tile;             /* from tile to tile */
    uint32_t b;                /* first byte of the words of B; a group has 1024 */
    uint32_t meta;             /* of the metas; a group has 256 */
    uint32_t size;             /* of the stage */
};

static __host__ __device__ __forceinline__ stage_map map_of(const pi__cuda_shape &s)
{
    stage_map m;
    m.code = STAGE * (uint32_t) s.code_bytes;
    m.side = STAGE * (uint32_t) s.side_bytes;
    m.sup = (uint32_t) s.super_bytes;
    m.tile = m.code + m.side + m.sup;
    m.b = WARPS * m.tile;
    m.meta = m.b + GROUPS * STAGE * 512;
    m.size = m.meta + GROUPS * STAGE * 8 * (uint32_t) sizeof(block_meta);
    return m;
}

/* The blocks from b on to stage i: the warp's tile of W, where it has one, and its group of x. */
template <class PIPE, class X>
PI_FN void fill_stage(const pi__cuda_shape &s, const stage_map &m, const uint8_t *tile, const X &x, const PIPE &q, int32_t i,
                      int32_t b)
{
    uint32_t n = (uint32_t) min((int32_t) STAGE, (int32_t) s.n_block - b), to = threadIdx.x / 32 * m.tile;
    q.expect(i, (tile ? n * (uint32_t) (s.code_bytes + s.side_bytes) + m.sup : 0) + x.bulk_bytes(n));
    if (tile) {
        q.copy(i, to, tile + (size_t) b * s.code_bytes, n * (uint32_t) s.code_bytes);
        q.copy(i, to + m.code, tile + s.side_at + (size_t) b * s.side_bytes, n * (uint32_t) s.side_bytes);
        q.copy(i, to + m.code + m.side, tile + s.super_at + (size_t) (b / 8) * s.super_bytes, m.sup);
    }
    x.fill(q, m, i, b, n);
}

/* total = the warp's tile of W (NULL: it has none) times n_group groups of x. X knows how the warp's group gets to a stage:
 * fill(q, map, i, b, n) copies n blocks from b on to stage i, bulk_bytes(n) of them by copy() of the pipe. */
template <int TYPE, class PIPE, class X>
PI_FN void multiply_tile(const pi__cuda_shape &shape, const uint8_t *tile, const X &x, unsigned char *raw, int n_group,
                         float (&total)[GROUPS][4])
{
    const stage_map m = map_of(shape);
    int lane = (int) threadIdx.x % 32;
    uint32_t own = threadIdx.x / 32 * m.tile;
    int32_t n = (int32_t) shape.n_block, end = slice_end(n, 0);
    pi__cuda_shape in_stage = shape; /* of the warp's tile there */
    in_stage.side_at = m.code;
    in_stage.super_at = m.code + m.side;
    float acc[GROUPS][4] = {};
    PIPE q(raw, m.size);
    auto fill = [&](int32_t i, int32_t b) { fill_stage(shape, m, tile, x, q, i, b); };
    q.run(n, STAGE, fill, [&](const unsigned char *stage, int32_t b) {
        for (int k = 0; k < STAGE && b + k < n && tile; k++) {
            const unsigned char *w = stage + own;
            uint32_t a[4];
            float s[2][2], mins[2][2];
            load_codes<TYPE>(w + k * in_stage.code_bytes, lane, a);
            load_scales<TYPE>(in_stage, w, k, lane / 4, s[0], mins[0]);
            load_scales<TYPE>(in_stage, w, k, lane / 4 + 8, s[1], mins[1]);
            const uint4 *words = (const uint4 *) (stage + m.b) + k * 32 + lane;
            const block_meta *metas = (const block_meta *) (stage + m.meta) + k * 8 + 2 * (lane % 4);
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                if (g >= n_group) break;
                const block_meta *meta = metas + g * STAGE * 8;
                add_block<TYPE>(a, s, mins, words[g * STAGE * 32], meta, meta + 1, acc[g]);
            }
            if (b + k + 1 < end) continue;
            end_slice(acc, total);
            end = slice_end(n, end);
        }
    });
}

#endif
