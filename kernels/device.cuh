/* What a kernel file is compiled against: CUDA, or the SIMT emulator of the tests.
 *
 * The same files build with nvcc and with a C++17 host compiler. For that, kernels keep to a few rules:
 * - shared memory is the one dynamic block, PI_SMEM(name), cut by hand; no __shared__ variables
 * - launches go through pi_launch
 * - inline PTX lives in ptx.cuh, nowhere else
 * - a fused multiply-add is one because it says fmaf: nvcc runs with -fmad=false, the host compiler with
 *   -ffp-contract=off, so both round alike. exp2, sine and cosine are the ones with a tolerance.
 *
 * Launch functions are the only host code in kernels/ (kernels.h). They return 0 or the runtime's error code. */
#ifndef PI_DEVICE_CUH
#define PI_DEVICE_CUH

#ifdef __CUDACC__

#include <cstdint>

#define PI_SMEM(name) extern __shared__ __align__(1024) unsigned char name[]

template <class... P, class... A>
int pi_launch(void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    if (shared > 48 << 10) { /* what a block gets without asking */
        cudaError_t e = cudaFuncSetAttribute((const void *) kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared);
        if (e != cudaSuccess) return (int) e;
    }
    kernel<<<grid, block, shared, (cudaStream_t) stream>>>(static_cast<P>(args)...);
    return (int) cudaGetLastError();
}

#else

#include "simt.h"

#define PI_SMEM(name) unsigned char *name = simt::here.shared

template <class... P, class... A>
int pi_launch(void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    if (stream) return simt::queue(static_cast<simt::stream *>(stream), kernel, grid, block, shared, args...);
    return simt::launch(kernel, grid, block, shared, args...);
}

#endif

#define PI_FN static __device__ __forceinline__
#define PI_FULL 0xffffffffu /* every lane of a warp */

#endif
