/* y = W x for packed matrices and large row counts with wgmma, sm_90a's tensor-core instructions of four warps. They
 * reach the device's peak where mma.sync reaches two thirds. Layouts and ORDER: w16.cuh. On that device wgmma adds 16
 * products and the accumulator exactly as mma.sync does (Xie et al., MMA-Sim, arXiv 2511.10909; selftest_wgmma.c checks
 * it on the device), and both use the same 16 columns. So a row's result is bitwise independent of the kernel and of
 * the number of rows.
 *
 * W is operand A: codes become F16 or BF16 in registers, 64 rows of W by a team of four warps. x is operand B in shared
 * memory. In packed x the 64 bytes of each row of a block of 32 columns are already a row of a 64-byte swizzle. A
 * thread block computes 64 TEAMS rows of W times 128 rows of x. Four producer warps copy both by bulk copies to a ring
 * of stages (wgmma_ring.cuh) of two blocks of columns:
 *
 *     stage: [16 groups of x][2 blocks] 512 bytes, [4 TEAMS tiles of W]{ codes [2], scales [2], scales of scales [2] }
 *
 * Each slice starts with a new stage. If the last stage of a slice has only one block, the second half of the stage
 * stays unused.
 *
 * While a block of columns is multiplied, its team unpacks the weights of the next one. An accumulator takes 64
 * registers per thread. Totals of completed slices are in shared memory after the ring; each thread reads only its
 * own. */
#ifndef PI_WGMMA_KERNELS_CUH
#define PI_WGMMA_KERNELS_CUH

#include "w16_kernels.cuh"
#include "wgmma_ring.cuh"

enum {
    WGMMA_GROUPS = 16,         /* groups of 8 rows of x in a thread block */
    WGMMA_BLOCKS = 2,          /* blocks of 32 columns in a stage */
    WGMMA_GROUP = WGMMA_BLOCKS * 512, /* bytes of a group of x in a stage */
    WGMMA_TOTALS = 64 * 128 * 4 /* bytes of a team's totals */
};

/* Constants of w16_wgmma: thread counts, byte offsets in a stage and in shared memory, registers. */
template <int TYPE, int TEAMS_> struct wgmma_shape {
    using T = w16<TYPE>;
    static constexpr int TEAMS = TEAMS_, TILES = 4 * TEAMS, THREADS = (TEAMS + 1) * 128, FILLERS = 1;
    static constexpr uint32_t SIDE_AT = WGMMA_BLOCKS * T::CODE, SUPER_AT = SIDE_AT + WGMMA_BLOCKS * T::SIDE,
                              TILE = SUPER_AT + WGMMA_BLOCKS * T::SUPER, W_AT = WGMMA_GROUPS * WGMMA_GROUP,
                              /* every stage starts at a multiple of 512, as the swizzle requires */
                              SIZE = (W_AT + TILES * TILE + 511) / 512 * 512;
    static constexpr int FIT = (int) ((WGMMA_ROOM - 128 - TEAMS * WGMMA_TOTALS) / SIZE), STAGES = FIT < 6 ? FIT : 6;
    static constexpr uint32_t TOTALS_AT = STAGES * SIZE, BARRIERS_AT = TOTALS_AT + TEAMS * WGMMA_TOTALS;
    static constexpr size_t BYTES = BARRIERS_AT + 128;
    /* Registers per thread: GIVEN at launch. With more than two teams, producers then keep LEFT, and consumers raise
     * theirs to TAKEN. */
    static constexpr int GIVEN = 65536 / THREADS / 8 * 8, LEFT = 32, TAKEN = (GIVEN + (GIVEN - LEFT) / TEAMS) / 8 * 8;
};

/* Returns the max number of teams of a thread block for which at least three stages fit. */
template <int TYPE> constexpr int wgmma_most_teams() { return wgmma_shape<TYPE, 4>::STAGES >= 3 ? 4 : 3; }

/* Rows of W and x of a thread block. Each team has the four tiles after the previous team's. With two matrices, teams 2
 * i and 2 i + 1 have the same tiles of the first and second matrix. */
struct wgmma_where {
    int32_t tile, last, group; /* block's first tile of W; last tile of the matrix; block's first group of x */
    const uint8_t *data, *other; /* W. other: second matrix, for odd teams; NULL = a single matrix */
    /* tile_of(t): first tile of team t. has(t): that tile exists. find(r): address of the block's r-th tile, or of the
     * matrix's last tile if r is beyond it. */
    __device__ __forceinline__ int32_t tile_of(int32_t t) const { return tile + 4 * (other ? t / 2 : t); }
    __device__ __forceinline__ bool has(int32_t t) const { return tile_of(t) <= last; }
    __device__ __forceinline__ const uint8_t *find(int32_t r, size_t tile_bytes) const
    {
        return (other && r / 4 % 2 ? other : data) + (size_t) min(tile_of(r / 4) + r % 4, last) * tile_bytes;
    }
    /* Returns the number of tiles that the producer copies per stage for `teams` teams. */
    __device__ __forceinline__ uint32_t tiles(int32_t teams) const
    {
        return 4 * (uint32_t) min(teams, ((last - tile) / 4 + 1) * (other ? 2 : 1));
    }
};

/* Calls f(first block, number of blocks) for each stage of a row of n blocks of 32 columns. A stage does not cross a
 * slice boundary. */
template <class F> PI_FN void wgmma_stages(int32_t n, const F &f)
{
    for (int32_t b = 0; b < n;) {
        const int32_t end = slice_end(n, b);
        for (; b < end; b += WGMMA_BLOCKS) f(b, (uint32_t) min((int32_t) WGMMA_BLOCKS, end - b));
        b = end;
    }
}

/* -------------------------------------------------------------------------------------------------------- producer */

/* The piece of each stage that a producer lane copies. In each of the four producer warps, lanes 0 .. 3 copy a group of
 * x each. The next 3 * TEAMS lanes copy codes, scales, and scales of scales of TEAMS tiles. */
template <int TYPE, class S> struct wgmma_source {
    using T = w16<TYPE>;
    const uint8_t *from;         /* address at block 0; NULL = the lane copies nothing */
    uint32_t to, block, super;   /* offset in a stage; bytes per block; bytes of scales of scales per 8 blocks */

    __device__ __forceinline__ wgmma_source(const w16_products &p, const wgmma_where &at)
    {
        const int32_t warp = (int32_t) threadIdx.x / 32 - 4 * S::TEAMS, lane = (int32_t) threadIdx.x % 32;
        const int32_t i = lane - 4, r = warp * S::TEAMS + (i >= 0 ? i % S::TEAMS : 0),
                      what = i >= 0 ? i / S::TEAMS : -1;
        from = nullptr, to = block = super = 0;
        if (what < 0) { /* past the end of x, the last group takes the place of missing ones */
            const int32_t g = 4 * warp + lane;
            from = (const uint8_t *) p.x +
                   (size_t) min(at.group + g, (p.n_rows + 7) / 8 - 1) * (size_t) p.shape.n_block * 512;
            to = (uint32_t) g * WGMMA_GROUP, block = 512;
        } else if (what < (T::SUPER ? 3 : 2) && at.has(r / 4)) {
            const uint8_t *tile = at.find(r, p.shape.tile_bytes);
            from = tile + (what == 0 ? 0 : what == 1 ? p.shape.side_at : p.shape.super_at);
            to = S::W_AT + (uint32_t) r * S::TILE + (what == 0 ? 0 : what == 1 ? S::SIDE_AT : S::SUPER_AT);
            block = what == 0 ? T::CODE : what == 1 ? T::SIDE : 0;
            super = what == 2 ? T::SUPER : 0;
        }
    }
    /* Returns the number of sets of scales of scales (one per 8 blocks) that n blocks from b on use. */
    __device__ __forceinline__ static uint32_t supers(int32_t b, uint32_t n)
    {
        return (uint32_t) b % 8 + n > 8 ? 2 : 1;
    }
    /* Starts the lane's copy of blocks b .. b + n - 1 to the stage at shared address `stage`, counted by mbarrier
     * `full`. */
    __device__ __forceinline__ void fill(uint32_t stage, uint32_t full, int32_t b, uint32_t n) const
    {
        if (!from) return;
        const uint8_t *p = from + (super ? (size_t) (b / 8) * super : (size_t) b * block);
        ptx_bulk_copy(stage + to, p, super ? supers(b, n) * super : n * block, full);
    }
};

/* Producer warps: fill all stages in order, each when the consumers have released it. */
template <int TYPE, class S> PI_FN void wgmma_produce(wgmma_ring<S> &ring, const w16_products &p, const wgmma_where &at)
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

/* ------------------------------------------------------------------------------------------------------- consumers */

/* Returns the wgmma descriptor of x in the stage at shared address `stage`: the i-th 16 columns (i = 0, 1) of block k.
 * Rows have 64 bytes; groups are 1024 bytes apart. */
PI_FN uint64_t wgmma_b(uint32_t stage, uint32_t k, uint32_t i)
{
    /* 64-byte swizzle */
    constexpr uint64_t HOW = UINT64_C(2) << 62 | (uint64_t) (WGMMA_GROUP / 16) << 32 | UINT64_C(1) << 16;
    return HOW | (uint64_t) ((stage + k * 512 + i * 32) / 16 & 0x3fff);
}

/* Unpacks the weights of block k of a stage to a, and issues the block's two wgmmas. a must stay unchanged until they
 * have completed. On return the wgmmas of the previous block have completed. super: index (0, 1) of the stage's set of
 * scales of scales. */
template <int TYPE, class S>
PI_FN void wgmma_block(const unsigned char *stage, uint32_t k, uint32_t super, uint32_t (&a)[2][4],
                       float (&acc)[WGMMA_GROUPS][4])
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
    ptx_wgmma_wait<1>(); /* the previous block's wgmmas are complete */
}

/* Ends a slice: adds acc to the thread's totals in shared memory. After the last slice acc receives the total instead.
 * totals: the thread's float4 values, one per group, stride 128. first: no totals exist yet. */
PI_FN void wgmma_end_slice(float (&acc)[WGMMA_GROUPS][4], float4 *totals, bool first, bool last)
{
#pragma unroll
    for (int g = 0; g < WGMMA_GROUPS; g++) {
        const float4 t = first ? float4 {0, 0, 0, 0} : totals[g * 128];
        acc[g][0] += t.x, acc[g][1] += t.y, acc[g][2] += t.z, acc[g][3] += t.w;
        if (!last) totals[g * 128] = {acc[g][0], acc[g][1], acc[g][2], acc[g][3]};
    }
}

/* acc = the team's 64 rows of W times the thread block's 128 rows of x, over n blocks of columns. The weights of even
 * and odd blocks of a slice use a[0] and a[1] in turn. Between slices no wgmma is in flight, as the compiler requires
 * where other code writes to accumulators. */
template <int TYPE, class S>
PI_FN void wgmma_multiply(wgmma_ring<S> &ring, int32_t n, float4 *totals, float (&acc)[WGMMA_GROUPS][4])
{
    uint32_t a[2][2][4];
    /* some: this is not the first stage; then the warp releases the previous one */
    auto first_of_stage = [&](bool some) {
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
        /* End of the slice: wait for all wgmmas. If the slice has an odd number of blocks, multiply its last block. */
        ptx_wgmma_wait<0>(acc);
        if (b < end) {
            first_of_stage(b > 0);
            ptx_wgmma_wait<0>(acc);
            b++, ring.next();
        }
        wgmma_end_slice(acc, totals, first, b == n);
    }
}

/* Returns the address of the calling thread's totals; float4 g is at index g * 128. */
template <class S> PI_FN float4 *wgmma_totals(unsigned char *raw, int32_t team)
{
    return (float4 *) (raw + S::TOTALS_AT) + team * (WGMMA_TOTALS / 16) + threadIdx.x % 128;
}

/* Computes the thread block's sums, with the calling thread's in acc. Producer warps and teams without rows of W return
 * false. raw: S::BYTES of shared memory. Called by all threads. */
template <int TYPE, int TEAMS>
PI_FN bool wgmma_sums(const w16_products &p, const wgmma_where &at, unsigned char *raw, float (&acc)[WGMMA_GROUPS][4])
{
    using S = wgmma_shape<TYPE, TEAMS>;
    const int32_t team = wgmma_team(), n = (int32_t) p.shape.n_block;
    wgmma_ring<S> ring(raw);
    ring.open();
    if (team == TEAMS) {
        if (TEAMS > 2) ptx_fewer_registers<S::LEFT>();
        wgmma_produce<TYPE, S>(ring, p, at);
        return false;
    }
    if (TEAMS > 2) ptx_more_registers<S::TAKEN>();
    if (!at.has(team)) { /* no rows of W: this team only releases the stages */
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

/* y = W x. Grid: x = 128 rows of x, y = 64 TEAMS rows of a matrix. (TEAMS + 1) * 128 threads, the last 128
 * producers. */
template <int TYPE, int TEAMS>
__global__ void __launch_bounds__((TEAMS + 1) * 128, 1) w16_wgmma(PI_CONSTANT w16_products p)
{
    ptx_wait_dependency();
    if (!ptx_has_wgmma()) return;
    PI_SMEM(raw);
    const auto &w = p.w[w16_which(p, blockIdx.y)];
    const wgmma_where at = {(int32_t) (blockIdx.y - w.first) * wgmma_shape<TYPE, TEAMS>::TILES,
                            (int32_t) ((w.n_out + 15) / 16 - 1), (int32_t) blockIdx.x * WGMMA_GROUPS, w.data, nullptr};
    float acc[WGMMA_GROUPS][4] = {};
    if (!wgmma_sums<TYPE, TEAMS>(p, at, raw, acc)) return;
    const int64_t row = (int64_t) at.group * 8, o = (int64_t) (at.tile + (int32_t) threadIdx.x / 32) * 16;
    const w16_times<TYPE> result(w.scale, p.factor + row);
    float *y = w.y + row * w.ldy + o;
    if (w.add != 0) add_totals(acc, result, w.add, y, w.ldy, p.n_rows - row, w.n_out - o);
    else put_totals(acc, result, y, w.ldy, p.n_rows - row, w.n_out - o);
}

#endif
