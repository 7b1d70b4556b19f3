/* Packed matrices times many rows of x (prompts): the same bits as linear.cu, which reads W again for every 32 rows.
 *
 * A block of 8 warps makes 128 rows of W times 64 rows of x; a warp 16 of them times all 64, so that each weight is
 * unpacked once a block. Two blocks of 32 columns of both operands are a stage; while a stage is multiplied the next ones
 * are on their way to shared memory:
 *
 *     shared: STAGES x { 8 tiles of W:        codes [2], scales [2], scales of scales
 *                        8 groups of 8 rows:  words of B [2][32 lanes], metas [2][8 rows] }
 *
 * Warp w copies tile w and group w (pipe.cuh). ORDER: as linear.cuh says. There a warp has one slice; here it has all, one
 * after the other: what a slice gives is added to the total when it is done. */
#include "linear.cuh"
#include "pipe.cuh"

enum { WARPS = 8, GROUPS = 8, STAGE = 2 /* blocks */, STAGES = 3 };
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

/* The blocks from b on to stage i: warp w's tile and group, where they exist. */
PI_FN void fill(const product &p, const stage_map &m, const pipe<STAGES> &q, int32_t i, int32_t b)
{
    const pi__cuda_shape &s = p.w.shape;
    uint32_t warp = threadIdx.x / 32, n = (uint32_t) min((int32_t) STAGE, (int32_t) s.n_block - b), to = warp * m.tile;
    int64_t tile = blockIdx.y * WARPS + warp, group = blockIdx.x * GROUPS + warp;
    bool w = tile * 16 < p.w.n_out, x = group * 8 < p.n_rows;
    q.expect(i, (w ? n * (uint32_t) (s.code_bytes + s.side_bytes) + m.sup : 0) + (x ? n * 640 : 0));
    if (w) {
        const uint8_t *src = p.w.data + (size_t) tile * s.tile_bytes;
        q.copy(i, to, src + (size_t) b * s.code_bytes, n * (uint32_t) s.code_bytes);
        q.copy(i, to + m.code, src + s.side_at + (size_t) b * s.side_bytes, n * (uint32_t) s.side_bytes);
        q.copy(i, to + m.code + m.side, src + s.super_at + (size_t) (b / 8) * s.super_bytes, m.sup);
    }
    if (x) {
        size_t at = (size_t) group * (size_t) s.n_block + (size_t) b;
        q.copy(i, m.b + warp * STAGE * 512, (const uint8_t *) p.codes + at * 512, n * 512);
        q.copy(i, m.meta + warp * STAGE * 128, (const uint8_t *) p.meta + at * 128, n * 128);
    }
}

template <int TYPE> __global__ void __launch_bounds__(THREADS, 1) gemm(product p)
{
    PI_SMEM(raw);
    stage_map m = map_of(p.w.shape);
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    int32_t tile = (int32_t) blockIdx.y * WARPS + warp, first = (int32_t) blockIdx.x * GROUPS * 8;
    int32_t n = (int32_t) p.w.shape.n_block, end = slice_end(n, 0), n_group = (min(GROUPS * 8, p.n_rows - first) + 7) / 8;
    bool works = (int64_t) tile * 16 < p.w.n_out;
    pi__cuda_shape in_stage = p.w.shape; /* of the warp's tile there */
    in_stage.side_at = m.code;
    in_stage.super_at = m.code + m.side;
    float acc[GROUPS][4] = {}, total[GROUPS][4] = {};
    pipe<STAGES> q(raw, m.size);
    q.begin();
    for (int s = 0; s < STAGES - 1; s++) {
        if (s * STAGE < n) fill(p, m, q, s, s * STAGE);
        q.filled();
    }
    for (int32_t b = 0; b < n; b += STAGE) {
        q.turn();
        if (b + (STAGES - 1) * STAGE < n) fill(p, m, q, q.free(), b + (STAGES - 1) * STAGE);
        q.filled();
        const unsigned char *stage = q.take(), *w = stage + warp * m.tile;
        for (int k = 0; k < STAGE && b + k < n && works; k++) {
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
#pragma unroll
            for (int i = 0; i < GROUPS * 4; i++) {
                total[i / 4][i % 4] += acc[i / 4][i % 4];
                acc[i / 4][i % 4] = 0;
            }
            end = slice_end(n, end);
        }
    }
    float factor = p.w.scale ? *p.w.scale : 1.0f;
#pragma unroll
    for (int i = 0; i < GROUPS * 4; i++) {
        int64_t row = first + 8 * (i / 4) + 2 * (lane % 4) + i % 2, o = (int64_t) tile * 16 + lane / 4 + 8 * (i % 4 / 2);
        if (row < p.n_rows && o < p.w.n_out) p.y[row * p.ldy + o] = total[i / 4][i % 4] * factor;
    }
}

template <int TYPE> static int run_gemm(void *stream, const product &p)
{
    unsigned groups = (unsigned) ((p.n_rows + GROUPS * 8 - 1) / (GROUPS * 8));
    unsigned tiles = (unsigned) ((p.w.n_out + WARPS * 16 - 1) / (WARPS * 16)); /* neighbours share W, x stays in the cache */
    return pi_launch(stream, gemm<TYPE>, dim3(groups, tiles), dim3(THREADS), pipe_bytes<STAGES>(map_of(p.w.shape).size), p);
}

int pi__k_gemm(void *stream, const product &p)
{
    switch (p.w.type) {
#define RUN(t) case t: return run_gemm<t>(stream, p);
        PACKED_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}
