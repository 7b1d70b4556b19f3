/* Launches of fp4_few (kernels/fp4_kernels.cuh), which has an epilogue. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/launch_fp4.cuh"

namespace fp4 {

template <int WAY, int NT> static int run_few(void *stream, fp4_products &p)
{
    const size_t own = sums_bytes<NT>,
                 bytes = p.tail.arrived ? tail_bytes(p.tail, THREADS / 32, own, ROOM_OF_TWO) : own;
    return pi_launch_dependent(stream, fp4_few<WAY, NT>, dim3(share(p, 1)), dim3(THREADS), bytes, p);
}

template <int WAY> static int run_rows(void *stream, fp4_products &p)
{
    if (p.n_rows <= 8) return run_few<WAY, 1>(stream, p);
    return p.n_rows <= 16 ? run_few<WAY, 2>(stream, p) : run_few<WAY, 4>(stream, p);
}

int launch_few(void *stream, int way, fp4_products &p)
{
    if (way == FP4_MX8) return run_rows<FP4_MX8>(stream, p);
    return way == FP4_NV ? run_rows<FP4_NV>(stream, p) : run_rows<FP4_MX>(stream, p);
}

} /* namespace fp4 */
