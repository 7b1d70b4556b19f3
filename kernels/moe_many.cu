/* Products of experts that many rows come to (prompts): the same bits as moe.cu, which reads x again for every 16 rows of
 * W.
 *
 * A block of 8 warps makes 128 rows of an expert's W times the columns of a tile, up to 64; a warp 16 of them times all,
 * so that each weight is unpacked once. Two blocks of 32 columns of both operands are a stage; while a stage is multiplied
 * the next ones are on their way to shared memory:
 *
 *     STAGES x { 8 tiles of W: codes [2], scales [2], scales of scales;  8 groups of columns: words of B [2][32 lanes],
 *                metas [2][8] }
 *
 * Warp w copies tile w, and group w, whose rows it gathers: a lane has 16 bytes of its row in each block. ORDER: as
 * linear.cuh says. There a warp has one slice; here it has all, one after the other: what a slice gives is added to the
 * total when it is done. */
#include "moe.cuh"

enum { WARPS = THREADS / 32, GROUPS = MANY / 8, STAGE = 2 /* blocks */, STAGES = 3 };
static_assert((int) WARPS == (int) GROUPS, "warp w copies group w");

/* Bytes of a tile of W in a stage, and where the rest of the stage is. */
struct many_map {
    uint32_t code, side, tile; /* of two blocks' codes, of their scales; of all */
    uint32_t b, meta, size;    /* first byte of the words of B, of the metas; of a stage */
};

static __host__ __device__ __forceinline__ many_map many_map_of(const pi__cuda_shape &s)
{
    many_map m;
    m.code = STAGE * (uint32_t) s.code_bytes;
    m.side = STAGE * (uint32_t) s.side_bytes;
    m.tile = m.code + m.side + (uint32_t) s.super_bytes;
    m.b = WARPS * m.tile;
    m.meta = m.b + GROUPS * STAGE * 512;
    m.size = m.meta + GROUPS * STAGE * 8 * (uint32_t) sizeof(block_meta);
    return m;
}

/* What a warp copies. */
struct sources {
    const uint8_t *tile;     /* of W; NULL: there is none */
    const uint4 *words;      /* the lane's, of block 0 of its row; NULL: there are no columns */
    const block_meta *metas; /* lanes 0..7: of the lane's row */
};

PI_FN void copy(uint32_t dst, const uint8_t *src, uint32_t n)
{
    for (uint32_t i = threadIdx.x % 32 * 16; i < n; i += 512) ptx_cp_async16(dst + i, src + i);
}

/* The blocks from b on, at most n of them, to the stage at `to`. */
PI_FN void fill(const sources &from, const pi__cuda_shape &s, const many_map &m, uint32_t to, int64_t b, uint32_t n)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    n = min(n, (uint32_t) STAGE);
    if (from.tile) {
        uint32_t dst = to + warp * m.tile;
        copy(dst, from.tile + (size_t) b * s.code_bytes, n * (uint32_t) s.code_bytes);
        copy(dst + m.code, from.tile + s.side_at + (size_t) b * s.side_bytes, n * (uint32_t) s.side_bytes);
        copy(dst + m.code + m.side, from.tile + s.super_at + (size_t) (b / 8) * s.super_bytes, (uint32_t) s.super_bytes);
    }
    for (uint32_t k = 0; k < n && from.words; k++) {
        ptx_cp_async16(to + m.b + (warp * STAGE + k) * 512 + lane * 16, from.words + (b + k) * 32);
        if (lane < 8) ptx_cp_async16(to + m.meta + (warp * STAGE + k) * 128 + lane * 16, from.metas + (b + k) * 8);
    }
}

/* First block of the slice behind the one that b is in. */
PI_FN int64_t next_slice(int64_t n, int64_t b)
{
    int k = 1;
    while (k < SLICES && n * k / SLICES <= b) k++;
    return n * k / SLICES;
}

PI_FN sources sources_of(const grouped &p, const pi__k_tile &t, const uint8_t *data)
{
    const pi__cuda_shape &s = p.a.w.shape;
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    int64_t tile = (int64_t) blockIdx.x * WARPS + warp;
    sources from = {};
    if (tile * 16 < p.a.w.n_out) from.tile = data + (size_t) t.expert * s.mat_bytes + (size_t) tile * s.tile_bytes;
    if (8 * warp >= t.n) return from;
    int64_t r = row_of(p.a, t, 8 * warp + lane / 4);
    from.words = p.codes + r / 8 * s.n_block * 32 + r % 8 * 4 + lane % 4;
    r = row_of(p.a, t, 8 * warp + lane % 8);
    from.metas = p.meta + r / 8 * s.n_block * 8 + r % 8;
    return from;
}

template <int TYPE> __global__ void __launch_bounds__(THREADS, 1) experts_many(grouped p)
{
    PI_SMEM(raw);
    if ((int32_t) blockIdx.y >= *p.n_tile) return;
    const pi__k_tile t = p.tile[blockIdx.y];
    const many_map m = many_map_of(p.a.w.shape);
    const sources from = sources_of(p, t, blockIdx.z ? p.a.data2 : p.a.w.data);
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_group = (t.n + 7) / 8;
    int64_t n = p.a.w.shape.n_block, end = next_slice(n, 0), w_row = ((int64_t) blockIdx.x * WARPS + warp) * 16;
    pi__cuda_shape in_stage = p.a.w.shape; /* of the warp's tile there */
    in_stage.side_at = m.code;
    in_stage.super_at = m.code + m.side;
    float acc[GROUPS][4] = {}, total[GROUPS][4] = {};
    for (int s = 0; s < STAGES - 1; s++) {
        if (s * STAGE < n) fill(from, p.a.w.shape, m, ptx_shared(raw) + (uint32_t) s * m.size, s * STAGE, (uint32_t) (n - s * STAGE));
        ptx_cp_async_commit();
    }
    int now = 0;
    for (int64_t b = 0; b < n; b += STAGE) {
        int64_t ahead = b + (STAGES - 1) * STAGE;
        ptx_cp_async_wait<STAGES - 2>();
        __syncthreads(); /* all have what they waited for, and are done with the stage before */
        uint32_t to = ptx_shared(raw) + (uint32_t) ((now + STAGES - 1) % STAGES) * m.size;
        if (ahead < n) fill(from, p.a.w.shape, m, to, ahead, (uint32_t) (n - ahead));
        ptx_cp_async_commit();
        const unsigned char *stage = raw + (uint32_t) now * m.size, *w = stage + warp * m.tile;
        now = (now + 1) % STAGES;
        for (int k = 0; k < STAGE && b + k < n && from.tile; k++) {
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
            end = next_slice(n, end);
        }
    }
    const float *scale = blockIdx.z ? p.a.scale2 : p.a.w.scale;
    float factor = scale ? scale[t.expert] : 1.0f, *y = (blockIdx.z ? p.a.y2 : p.a.y) + t.first * p.a.ldy;
#pragma unroll
    for (int i = 0; i < GROUPS * 4; i++) {
        int64_t c = 8 * (i / 4) + 2 * (lane % 4) + i % 2, o = w_row + lane / 4 + 8 * (i % 4 / 2);
        if (c < t.n && o < p.a.w.n_out) y[c * p.a.ldy + o] = total[i / 4][i % 4] * factor;
    }
}

template <int TYPE> static int run_many(void *stream, const grouped &p, unsigned n_tile)
{
    dim3 grid((unsigned) ((p.a.w.n_out + WARPS * 16 - 1) / (WARPS * 16)), n_tile, p.a.data2 ? 2 : 1);
    return pi_launch(stream, experts_many<TYPE>, grid, dim3(THREADS), STAGES * many_map_of(p.a.w.shape).size, p);
}

int pi__k_experts_many(void *stream, const grouped &p, unsigned n_tile)
{
    switch (p.a.w.type) {
#define RUN(t) case t: return run_many<t>(stream, p, n_tile);
        PACKED_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}
