/* Launches of kernels/moe_many_kernels.cuh: variant, grid, shared memory (see launch_moe.cuh). Grid: x = WARPS * 16
 * rows of W, y = tile of list 2 (up to 64 columns), z = first or second matrix. */
#include "backend/cuda/launch_moe.cuh"
#include "moe_many_kernels.cuh"

using namespace moe;

template <int TYPE> static int run_many(void *stream, const grouped &p, unsigned n_tile)
{
    dim3 grid((unsigned) ((p.a.w.n_out + WARPS * 16 - 1) / (WARPS * 16)), n_tile, p.a.data2 ? 2 : 1);
    return pi_launch_dependent(stream, experts_many<TYPE>, grid, dim3(THREADS),
                               pipe_bytes<STAGES>(map_of(p.a.w.shape).size), p);
}

int pi__k_experts_many(void *stream, const grouped &p, unsigned n_tile)
{
    switch (p.a.w.type) {
#define RUN(t, ...) case PI__##t: return run_many<PI__##t>(stream, p, n_tile);
        PACKED_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}
