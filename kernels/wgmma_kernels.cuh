/* Packed matrices times many rows of x by wgmma, sm_90a's tensor-core instructions of four warps, which reach its peak where
 * mma.sync reaches two thirds: w16.cuh's layouts and ORDER. The instruction adds 16 products and the accumulator as mma.sync
 * does on that device, to the bit (Xie et al., MMA-Sim, arXiv 2511.10909; selftest_ops.c tries it on the device itself), and
 * each has the same 16 columns: so a row's bits do not tell which kernel made them, nor how many rows there were.
 *
 * W is A: codes become F16 in registers, 64 rows of W by four warps. x is B, from shared memory: as it is prepared, the 64
 * bytes of each row of a block of 32 columns are a row of a 64-byte swizzle. A block of threads makes 64 TEAMS rows of W
 * times 128 of x; four more warps bring what is multiplied, by bulk copies, to a ring of stages of two blocks of columns:
 *
 *     stage: [16 groups of x][2 blocks] 512 bytes, [4 TEAMS tiles of W]{ codes [2], scales [2], scales of scales [2] }
 *
 * A slice begins with a stage of its own; where the blocks of its last one are 1, the other's place stays empty.
 *
 * While a block of columns is multiplied its team's warps make the weights of the next one. An accumulator takes 64 registers
 * of a thread; totals of the slices before lie in shared memory behind the ring, each read by the thread that wrote it. */
#ifndef PI_WGMMA_KERNELS_CUH
#define PI_WGMMA_KERNELS_CUH

#include "w16_kernels.cuh"
#include "wgmma_ring.cuh"

enum {
    WGMMA_GROUPS = 16,         /* of 8 rows of x */
    WGMMA_BLOCKS = 2,          /* of a stage */
    WGMMA_GROUP = WGMMA_BLOCKS * 512, /* bytes of a group's */
    WGMMA_TOTALS = 64 * 128 * 4 /* bytes of a team's */
};

template <int TYPE, int TEAMS_> struct wgmma_shape {
    using T = w16<TYPE>;
    static constexpr int TEAMS = TEAMS_, TILES = 4 * TEAMS, THREADS = (TEAMS + 1) * 128, FILLERS = 1;
    static constexpr uint32_t SIDE_AT = WGMMA_BLOCKS * T::CODE, SUPER_AT = SIDE_AT + WGMMA_BLOCKS * T::SIDE,
                              TILE = SUPER_AT + WGMMA_BLOCKS * T::SUPER, W_AT = WGMMA_GROUPS * WGMMA_GROUP,
                              SIZE = (W_AT + TILES * TILE + 511) / 512 * 512; /* rows of a swizzle begin at 512 bytes */
    static constexpr int FIT = (int) ((WGMMA_ROOM - 128 - TEAMS * WGMMA_TOTALS) / SIZE), STAGES = FIT < 6 ? FIT : 6;
    static constexpr uint32_t TOTALS_AT = STAGES * SIZE, BARRIERS_AT = TOTALS_AT + TEAMS * WGMMA_TOTALS;
    static constexpr size_t BYTES = BARRIERS_AT + 128;
    /* Registers of a thread: those that bring leave some to those that multiply, where these have few. */
    static constexpr int GIVEN = 65536 / THREADS / 8 * 8, LEFT = 32, TAKEN = (GIVEN + (GIVEN - LEFT) / TEAMS) / 8 * 8;
};

/* Teams of a block of threads that makes as much as there is room for. */
template <int TYPE> constexpr int wgmma_most_teams() { return wgmma_shape<TYPE, 4>::STAGES >= 3 ? 4 : 3; }

/* Where a block of threads is in the results: a team has four tiles behind those of the one before; of two matrices the same tiles
 * of either are two teams'. */
struct wgmma_where {
    int32_t tile, last, group; /* its first tile of W, the matrix's last one, its first group of x */
    const uint8_t *data, *other; /* W; or its teams of even number have rows of the first, the next ones of the second; or NULL */
    /* The first tile of team t; it is there; the t-th of all the block's tiles, for which the last one stands if it is not. */
    __device__ __forceinline__ int32_t tile_of(int32_t t) const { return tile + 4 * (other ? t / 2 : t); }
    __device__ __forceinline__ bool has(int32_t t) const { return tile_of(t) <= last; }
    __device__ __forceinline__ const uint8_t *find(int32_t r, size_t tile_bytes) const
    {
        return (other && r / 4 % 2 ? other : data) + (size_t) min(tile_of(r / 4) + r % 4, last) * tile_bytes;
    }
    /* Tiles that come for so many teams. */
    __device__ __forceinline__ uint32_t tiles(int32_t teams) const
    {
        return 4 * (uint32_t) min(teams, ((last - tile) / 4 + 1) * (other ? 2 : 1));
    }
};

/* Calls f(first block, how many) for each stage of n blocks. */
template <class F> PI_FN void wgmma_stages(int32_t n, const F &f)
{
    for (int32_t b = 0; b < n;) {
        const int32_t end = slice_end(n, b);
        for (; b < end; b += WGMMA_BLOCKS) f(b, (uint32_t) min((int32_t) WGMMA_BLOCKS, end - b));
        b = end;
    }
}

/* ---------------------------------------------------------------------------------------------------------- who brings */

/* What a lane copies: four groups of x are a warp's, TEAMS tiles' codes, scales, and scales of scales. */
template <int TYPE, class S> struct wgmma_source {
    using T = w16<TYPE>;
    const uint8_t *from;         /* of block 0; NULL: it copies nothing */
    uint32_t to, block, super;   /* in a stage; bytes of a block, or of scales of scales */

    __device__ __forceinline__ wgmma_source(const w16_products &p, const wgmma_where &at)
    {
        const int32_t warp = (int32_t) threadIdx.x / 32 - 4 * S::TEAMS, lane = (int32_t) threadIdx.x % 32;
        const int32_t i = lane - 4, r = warp * S::TEAMS + (i >= 0 ? i % S::TEAMS : 0), what = i >= 0 ? i / S::TEAMS : -1;
        from = nullptr, to = block = super = 0;
        if (what < 0) { /* the last group stands for those behind it */
            const int32_t g = 4 * warp + lane;
            from = (const uint8_t *) p.x + (size_t) min(at.group + g, (p.n_rows + 7) / 8 - 1) * (size_t) p.shape.n_block * 512;
            to = (uint32_t) g * WGMMA_GROUP, block = 512;
        } else if (what < (T::SUPER ? 3 : 2) && at.has(r / 4)) {
            const uint8_t *tile = at.find(r, p.shape.tile_bytes);
            from = tile + (what == 0 ? 0 : what == 1 ? p.shape.side_at : p.shape.super_at);
            to = S::W_AT + (uint32_t) r * S::TILE + (what == 0 ? 0 : what == 1 ? S::SIDE_AT : S::SUPER_AT);
            block = what == 0 ? T::CODE : what == 1 ? T::SIDE : 0;
            super = what == 2 ? T::SUPER : 0;
        }
    }
    /* Scales of scales that n blocks from b on have. */
    __device__ __forceinline__ static uint32_t supers(int32_t b, uint32_t n) { return (uint32_t) b % 8 + n > 8 ? 2 : 1; }
    /* n blocks from b on. */
    __device__ __forceinline__ void fill(uint32_t stage, uint32_t full, int32_t b, uint32_t n) const
    {
        if (!from) return;
        const uint8_t *p = from + (super ? (size_t) (b / 8) * super : (size_t) b * block);
        ptx_bulk_copy(stage + to, p, super ? supers(b, n) * super : n * block, full);
    }
};

template <int TYPE, class S> PI_FN void wgmma_bring(wgmma_ring<S> &ring, const w16_products &p, const wgmma_where &at)
{
    using T = w16<TYPE>;
    const wgmma_source<TYPE, S> in(p, at);
    const int32_t n = (int32_t) p.shape.n_block;
    const uint32_t tiles = at.tiles(S::TEAMS);
    wgmma_stages(n, [&](int32_t b, uint32_t some) {
        ring.wait_empty();
        if (threadIdx.x == S::TEAMS * 128)
            ptx_mbarrier_arrive_expect(ring.full(ring.now), some * (WGMMA_GROUPS * 512 + tiles * (T::CODE + T::SIDE)) +
                                                            in.supers(b, some) * tiles * T::SUPER);
        in.fill(ptx_shared(ring.stage()), ring.full(ring.now), b, some);
        ring.next();
    });
}

/* -------------------------------------------------------------------------------------------------------- who multiplies */

/* Where a stage's x is for block k of it and its i-th 16 columns: rows of 64 bytes, groups 1024 bytes apart. */
PI_FN uint64_t wgmma_b(uint32_t stage, uint32_t k, uint32_t i)
{
    constexpr uint64_t HOW = UINT64_C(2) << 62 | (uint64_t) (WGMMA_GROUP / 16) << 32 | UINT64_C(1) << 16; /* of 64 bytes */
    return HOW | (uint64_t) ((stage + k * 512 + i * 32) / 16 & 0x3fff);
}

/* Block k of a stage: the weights, which a holds until the instructions that read them are done, and these begun. super: which
 * of the stage's scales of scales. */
template <int TYPE, class S>
PI_FN void wgmma_block(const unsigned char *stage, uint32_t k, uint32_t super, uint32_t (&a)[2][4], float (&acc)[WGMMA_GROUPS][4])
{
    using T = w16<TYPE>;
    const unsigned char *tile = stage + S::W_AT + threadIdx.x / 32 * S::TILE;
    const uint32_t at = ptx_shared(stage);
    w16_weights<TYPE>(tile + k * T::CODE, tile + S::SIDE_AT + k * T::SIDE, tile + S::SUPER_AT + super * T::SUPER,
                      (int) threadIdx.x % 32, a);
    ptx_wgmma_fence(a);
    for (uint32_t i = 0; i < 2; i++) {
        if (T::BF16) ptx_wgmma_bf16(acc, a[i], wgmma_b(at, k, i));
        else ptx_wgmma_f16(acc, a[i], wgmma_b(at, k, i));
    }
    ptx_wgmma_commit();
    ptx_wgmma_wait<1>(); /* the block before is done */
}

/* A slice is done: it is added to the total, which acc is after the last one. totals: the thread's, every 128. */
PI_FN void wgmma_end_slice(float (&acc)[WGMMA_GROUPS][4], float4 *totals, bool first, bool last)
{
#pragma unroll
    for (int g = 0; g < WGMMA_GROUPS; g++) {
        const float4 t = first ? float4 {0, 0, 0, 0} : totals[g * 128];
        acc[g][0] += t.x, acc[g][1] += t.y, acc[g][2] += t.z, acc[g][3] += t.w;
        if (!last) totals[g * 128] = {acc[g][0], acc[g][1], acc[g][2], acc[g][3]};
    }
}

/* The team's rows of W times all of x's of the block of threads: acc. Weights of one block of columns are in a[0], of the next
 * in a[1]. Between slices nothing is under way, as the compiler wants it where others write to accumulators. */
template <int TYPE, class S>
PI_FN void wgmma_multiply(wgmma_ring<S> &ring, int32_t n, float4 *totals, float (&acc)[WGMMA_GROUPS][4])
{
    uint32_t a[2][2][4];
    auto first_of_stage = [&](bool some) { /* some: there was a stage before, which nobody of the warp needs after this */
        ring.wait_full();
        wgmma_block<TYPE, S>(ring.stage(), 0, 0, a[0], acc);
        if (some) ring.release(ring.before());
    };
    int32_t b = 0;
#pragma unroll 1
    for (bool first = true; b < n; first = false) {
        const int32_t end = slice_end(n, b);
#pragma unroll
        for (int i = 0; i < WGMMA_GROUPS * 4; i++) acc[i / 4][i % 4] = 0;
#pragma unroll 1
        for (; b + 1 < end; b += WGMMA_BLOCKS, ring.next()) {
            first_of_stage(b > 0);
            wgmma_block<TYPE, S>(ring.stage(), 1, (uint32_t) b % 8 / 7, a[1], acc);
        }
        ptx_wgmma_wait<0>(acc);
        if (b < end) {
            first_of_stage(b > 0);
            ptx_wgmma_wait<0>(acc);
            b++, ring.next();
        }
        wgmma_end_slice(acc, totals, first, b == n);
    }
}

template <class S> PI_FN float4 *wgmma_totals(unsigned char *raw, int32_t team)
{
    return (float4 *) (raw + S::TOTALS_AT) + team * (WGMMA_TOTALS / 16) + threadIdx.x % 128;
}

/* A block of threads. false: the thread has no results. */
template <int TYPE, int TEAMS>
PI_FN bool wgmma_sums(const w16_products &p, const wgmma_where &at, unsigned char *raw, float (&acc)[WGMMA_GROUPS][4])
{
    using S = wgmma_shape<TYPE, TEAMS>;
    const int32_t team = wgmma_team(), n = (int32_t) p.shape.n_block;
    wgmma_ring<S> ring(raw);
    ring.open();
    if (team == TEAMS) {
        if (TEAMS > 2) ptx_fewer_registers<S::LEFT>();
        wgmma_bring<TYPE, S>(ring, p, at);
        return false;
    }
    if (TEAMS > 2) ptx_more_registers<S::TAKEN>();
    if (!at.has(team)) { /* it has only to say so */
        wgmma_stages(n, [&](int32_t, uint32_t) {
            ring.wait_full();
            ring.release(ring.now);
            ring.next();
        });
        return false;
    }
    wgmma_multiply<TYPE>(ring, n, wgmma_totals<S>(raw, team), acc);
    return true;
}

template <int TYPE, int TEAMS>
__global__ void __launch_bounds__((TEAMS + 1) * 128, 1) w16_wgmma(PI_CONSTANT w16_products p)
{
    ptx_take_turn();
    if (!ptx_has_wgmma()) return;
    PI_SMEM(raw);
    const auto &w = p.w[w16_which(p, blockIdx.y)];
    const wgmma_where at = {(int32_t) (blockIdx.y - w.first) * wgmma_shape<TYPE, TEAMS>::TILES, (int32_t) ((w.n_out + 15) / 16 - 1),
                            (int32_t) blockIdx.x * WGMMA_GROUPS, w.data, nullptr};
    float acc[WGMMA_GROUPS][4] = {};
    if (!wgmma_sums<TYPE, TEAMS>(p, at, raw, acc)) return;
    const int64_t row = (int64_t) at.group * 8, o = (int64_t) (at.tile + (int32_t) threadIdx.x / 32) * 16;
    const w16_times<TYPE> result(w.scale, p.factor + row);
    float *y = w.y + row * w.ldy + o;
    if (w.add != 0) add_totals(acc, result, w.add, y, w.ldy, p.n_rows - row, w.n_out - o);
    else put_totals(acc, result, y, w.ldy, p.n_rows - row, w.n_out - o);
}

#endif
