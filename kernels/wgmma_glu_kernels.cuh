/* Gate and up projections of large row counts with wgmma, in one launch that writes act(gate x) * up x and each row's
 * maximum: w16_glu() of w16_glu_kernels.cuh for sm_90a, with the sums of wgmma_kernels.cuh. The second launch,
 * w16_round, which packs the rows, is that of w16_glu_kernels.cuh.
 *
 * A thread block has TEAMS teams of four warps that multiply. Even teams have rows of gate, odd teams the corresponding
 * rows of up:
 *
 *     teams  0: gate 0 .. 63   1: up 0 .. 63   2: gate 64 .. 127   3: up 64 .. 127     of 128 rows of x each
 *
 * After its last slice, the team of up stores its sums in place of its totals. The team of gate waits for them. Thread
 * t of gate's team reads the sums that thread t + 128 stored, so it has both sums of a value. */
#ifndef PI_WGMMA_GLU_KERNELS_CUH
#define PI_WGMMA_GLU_KERNELS_CUH

#include "w16_glu_kernels.cuh"
#include "wgmma_kernels.cuh"

/* Grid: x = 128 rows of x, y = 32 TEAMS rows of both matrices. (TEAMS + 1) * 128 threads, the last 128 producers. */
template <int TYPE, int TEAMS>
__global__ void __launch_bounds__((TEAMS + 1) * 128, 1) wgmma_glu(PI_CONSTANT w16_both a)
{
    using S = wgmma_shape<TYPE, TEAMS>;
    static_assert(TEAMS % 2 == 0 && S::BARRIERS_AT + 16 * S::STAGES + 4 * TEAMS <= S::BYTES,
                  "two teams and a barrier for each pair");
    ptx_wait_dependency();
    if (!ptx_has_wgmma()) return;
    PI_SMEM(raw);
    const w16_products &p = a.p;
    const int32_t team = wgmma_team();
    const wgmma_where at = {(int32_t) blockIdx.y * (S::TILES / 2), (int32_t) (p.w[0].n_out / 16 - 1),
                            (int32_t) blockIdx.x * WGMMA_GROUPS, p.w[0].data, p.w[1].data};
    /* One mbarrier for each pair of teams, after the ring's mbarriers. The four warps of the team of up arrive at
     * it. */
    const uint32_t pairs = ptx_shared(raw) + S::BARRIERS_AT + 16 * S::STAGES,
                   done = pairs + 4 * ((uint32_t) team & ~1u);
    for (uint32_t i = 0; i < TEAMS / 2 && threadIdx.x == 0; i++) ptx_mbarrier_init(pairs + 8 * i, 4);
    float acc[WGMMA_GROUPS][4] = {};
    if (!wgmma_sums<TYPE, TEAMS>(p, at, raw, acc)) return;
    float4 *ups = wgmma_totals<S>(raw, team | 1);
    /* Team of up: store the sums and return. */
    if (team % 2) {
#pragma unroll
        for (int g = 0; g < WGMMA_GROUPS; g++) ups[g * 128] = {acc[g][0], acc[g][1], acc[g][2], acc[g][3]};
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(done);
        return;
    }
    /* Team of gate: wait for the sums of up, then combine both. */
    ptx_mbarrier_wait(done, 0);
    const int32_t tile = at.tile_of(team) + (int32_t) threadIdx.x / 32 % 4;
    if (tile > at.last) return;
    const int64_t row = (int64_t) at.group * 8;
    const w16_times<TYPE> gate(p.w[0].scale, p.factor + row), up(p.w[1].scale, p.factor + row);
    put_gated(
        acc, [&](int g) { return ups[g * 128]; }, gate, up, a, p.w[0].y + row * p.w[0].ldy + (int64_t) tile * 16,
        p.w[0].ldy, p.n_rows - row, a.most + row);
}

#endif
