/* Launches of kernels/gemm_kernels.cuh: variant, grid, shared memory (see kernels.h). Grid: x = GROUPS * 8 rows of x,
 * y = WARPS * 16 rows of W. */
#include "backend/cuda/launch.cuh"
#include "gemm_kernels.cuh"

using namespace gemm;

template <int TYPE> static int run_gemm(void *stream, const product &p)
{
    unsigned groups = (unsigned) ((p.n_rows + GROUPS * 8 - 1) / (GROUPS * 8));
    /* blocks that are adjacent in the launch order read the same rows of W; all of x stays in the L2 cache */
    unsigned tiles = (unsigned) ((p.w.n_out + WARPS * 16 - 1) / (WARPS * 16));
    return pi_launch_dependent(stream, gemm::gemm<TYPE>, dim3(groups, tiles), dim3(THREADS),
                               pipe_bytes<STAGES>(map_of(p.w.shape).size), p);
}

int pi__k_gemm(void *stream, const product &p)
{
    switch (p.w.type) {
#define RUN(t, ...) case PI__##t: return run_gemm<PI__##t>(stream, p);
        PACKED_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}
