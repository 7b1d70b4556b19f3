/* Launches of kernels/wgmma_glu_kernels.cuh: variant, grid, shared memory (see kernels_w16_glu.h). Grid: x =
 * WGMMA_GROUPS * 8 rows of x, y = 32 * TEAMS rows of gate and the same rows of up. */
#include "backend/cuda/launch.cuh"
#include "wgmma_glu_kernels.cuh"

/* True for types with enough shared memory for four teams (warpgroups of 128 threads), two per matrix. With only two
 * teams, x would be read twice as often as by separate products of gate and up. */
template <int TYPE> constexpr bool has_pairs() { return wgmma_most_teams<TYPE>() == 4; }

int pi__k_wgmma_has_glu(int32_t type)
{
    switch (type) {
#define HAS(t) case PI__##t: return has_pairs<PI__##t>();
        W16_TYPES(HAS)
#undef HAS
    default: return 0;
    }
}

template <int TYPE, int TEAMS> static int run(void *stream, const w16_both &a, dim3 grid)
{
    using S = wgmma_shape<TYPE, TEAMS>;
    return pi_launch_dependent(stream, wgmma_glu<TYPE, TEAMS>, grid, dim3(S::THREADS), S::BYTES, a);
}

/* Uses two teams per block if blocks with four teams would leave SMs idle. */
template <int TYPE> static int run_type(void *stream, const w16_both &a, int32_t n_sm)
{
    if constexpr (has_pairs<TYPE>()) {
        const unsigned columns = (unsigned) ((a.p.n_rows + WGMMA_GROUPS * 8 - 1) / (WGMMA_GROUPS * 8));
        const unsigned blocks = (unsigned) ((a.p.w[0].n_out + 127) / 128);
        if ((int64_t) blocks * columns >= n_sm) return run<TYPE, 4>(stream, a, dim3(columns, blocks));
        return run<TYPE, 2>(stream, a, dim3(columns, (unsigned) ((a.p.w[0].n_out + 63) / 64)));
    } else {
        return 1;
    }
}

int pi__k_wgmma_glu_run(void *stream, const pi__k_w16_glu *a, const void *prepared, int32_t n_rows, int32_t n_sm)
{
    w16_both both;
    if (n_rows < 1) return 0;
    if (!w16_both_of(*a, prepared, n_rows, &both)) return 1;
    int code = 1;
    switch (a->gate.type) {
#define RUN(t) case PI__##t: code = run_type<PI__##t>(stream, both, n_sm); break;
        W16_TYPES(RUN)
#undef RUN
    default: break;
    }
    return code ? code : pi__k_w16_round(stream, a, n_rows);
}
