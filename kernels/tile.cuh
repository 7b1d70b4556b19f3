/* Products of packed matrices with large row counts, within a thread block; shared by gemm_kernels.cuh and
 * moe_many_kernels.cuh. The results are bitwise identical to add_slice() of linear.cuh, which reads W again for every
 * 32 rows.
 *
 * A block of 8 warps computes 128 rows of W times 64 rows of x. Each warp multiplies 16 of these rows (a tile) by all
 * 64 rows of x (8 groups of 8), so each weight is unpacked once per block. A stage of the pipeline (pipe.cuh) has two
 * blocks of 32 columns of both operands. While one stage is multiplied, the next ones are copied to shared memory:
 *
 *     stage: 8 tiles of W:        codes [2], scales [2], scales of scales
 *            8 groups of 8 rows:  words of B [2][32 lanes], metas [2][8 rows]
 *
 * Warp w copies tile w and group w. ORDER: as in linear.cuh. There each warp computes one slice. Here each warp
 * computes all slices in order, and adds each slice to the total at its end. */
#ifndef PI_TILE_CUH
#define PI_TILE_CUH

#include "linear.cuh"
#include "pipe.cuh"

enum { WARPS = THREADS / 32, GROUPS = 8, STAGE = 2 /* blocks of 32 columns in a stage */, STAGES = 3 };
static_assert((int) WARPS == (int) GROUPS && (int) WARPS == (int) PIPE_WARPS, "warp w copies group w");

/* Sizes and byte offsets in a stage: 8 tiles of W, then words of B, then metas. */
struct stage_map {
    uint32_t code, side, sup;  /* bytes per tile: codes, scales of two blocks; scales of scales */
    uint32_t tile;             /* bytes of a tile in a stage */
    uint32_t b;                /* offset of the words of B; 1024 bytes per group */
    uint32_t meta;             /* offset of the metas; 256 bytes per group */
    uint32_t size;             /* bytes of the stage */
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

/* Starts the copies to stage i of pipe q, of up to STAGE blocks of 32 columns from block b on: the calling warp's tile
 * of W (NULL = none), and its group of x. */
template <class PIPE, class X>
PI_FN void fill_stage(const pi__cuda_shape &s, const stage_map &m, const uint8_t *tile, const X &x, const PIPE &q,
                      int32_t i, int32_t b)
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

/* Computes total = the warp's tile of W (NULL = none) times n_group groups of x. x.fill(q, map, i, b, n) starts the
 * copies of n blocks of the warp's group, from block b on, to stage i. x.bulk_bytes(n) returns the bytes of these that
 * go through q.copy(). raw: shared memory of the pipe. Called by all threads of the block. */
template <int TYPE, class PIPE, class X>
PI_FN void multiply_tile(const pi__cuda_shape &shape, const uint8_t *tile, const X &x, unsigned char *raw, int n_group,
                         float (&total)[GROUPS][4])
{
    const stage_map m = map_of(shape);
    int lane = (int) threadIdx.x % 32;
    uint32_t own = threadIdx.x / 32 * m.tile;
    int32_t n = (int32_t) shape.n_block, end = slice_end(n, 0);
    pi__cuda_shape in_stage = shape; /* shape with side_at and super_at as offsets in a stage's tile */
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
            /* End of a slice: add it to the total. */
            end_slice(acc, total);
            end = slice_end(n, end);
        }
    });
}

#endif
