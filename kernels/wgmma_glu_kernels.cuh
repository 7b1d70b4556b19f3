/* Gate and up times large row counts of x with wgmma, in one launch that writes act(gate x) * up x:
 * w16_glu_kernels.cuh for sm_90a, with the sums of wgmma_kernels.cuh. The second launch, which packs, is shared
 * with w16_glu_kernels.cuh.
 *
 * Even teams of a block have rows of gate, odd teams the corresponding rows of up:
 *
 *     teams  0: gate 0 .. 63   1: up 0 .. 63   2: gate 64 .. 127   3: up 64 .. 127     of 128 rows of x each
 *
 * After up's last slice its team stores the sums in place of its totals. Gate's team waits for them and so has both
 * sums of a value: thread t of gate's team reads the sums that thread t + 128 stored. */
#ifndef PI_WGMMA_GLU_KERNELS_CUH
#define PI_WGMMA_GLU_KERNELS_CUH

#include "w16_glu_kernels.cuh"
#include "wgmma_kernels.cuh"

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
    /* One mbarrier for each pair of teams, after the ring's. The four warps of the up team arrive. */
    const uint32_t pairs = ptx_shared(raw) + S::BARRIERS_AT + 16 * S::STAGES,
                   done = pairs + 4 * ((uint32_t) team & ~1u);
    for (uint32_t i = 0; i < TEAMS / 2 && threadIdx.x == 0; i++) ptx_mbarrier_init(pairs + 8 * i, 4);
    float acc[WGMMA_GROUPS][4] = {};
    if (!wgmma_sums<TYPE, TEAMS>(p, at, raw, acc)) return;
    float4 *ups = wgmma_totals<S>(raw, team | 1);
    /* Up: store the sums and leave. */
    if (team % 2) {
#pragma unroll
        for (int g = 0; g < WGMMA_GROUPS; g++) ups[g * 128] = {acc[g][0], acc[g][1], acc[g][2], acc[g][3]};
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(done);
        return;
    }
    /* Gate: wait for the sums of up, then combine both. */
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
