/* Shared by the launch functions (launch_NAME.cu; declared in kernels.h). They are host code beside the kernels that
 * they choose from, compiled by nvcc, or by the host compiler for the SIMT emulator. Each returns 0 or the runtime's
 * error code. Every launch goes through pi_launch, or pi_launch_dependent.
 *
 * DEPENDENT LAUNCHES. A kernel that waits by itself (ptx_wait_grids) for those before it may be launched while they run, so
 * that its blocks are in place, and what it needs of the weights is on its way, when the last of them has ended:
 *
 *     launched as ever     [ A ........ ]      [ B ........ ]      [ C ........ ]
 *     dependent            [ A ........ ][ B ........ ][ C ........ ]
 *                                  [ B waits ]   [ C waits ]
 *
 * All threads of such a kernel wait, also those that have nothing to do: who waits for C to end must know that A has. Before
 * that they may read what no kernel of the step writes (weights, and the batch, which a copy brings), and write nothing. The
 * first thing they do is to let the next kernel be launched (ptx_launch_dependents): its blocks find room when this
 * kernel's last ones have begun. Devices before sm_90 launch one after the other. */
#ifndef PI_LAUNCH_CUH
#define PI_LAUNCH_CUH

#include "device.cuh"

#ifdef __CUDACC__

#include "backend/cuda/queue.h"

template <class... P, class... A>
int pi_launch_as(bool dependent, void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    const pi__queue *q = static_cast<const pi__queue *>(stream);
    if (cudaError_t e = cudaSetDevice(q->device)) return (int) e; /* a thread may have launched on another one since */
    if (shared > 48 << 10) { /* what a block gets without asking */
        cudaError_t e = cudaFuncSetAttribute((const void *) kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared);
        if (e != cudaSuccess) return (int) e;
    }
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization, overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {grid, block, shared, q->stream, &overlap, dependent && q->overlaps};
    return (int) cudaLaunchKernelEx(&how, kernel, static_cast<P>(args)...);
}

#else

template <class... P, class... A>
static int pi_launch_as(bool dependent, void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    const simt::kernel_file from = {__BASE_FILE__, (const void *) pi_mark};
    if (stream) simt::current_device = static_cast<simt::stream *>(stream)->device();
    if (stream)
        return simt::queue(static_cast<simt::stream *>(stream), from, dependent, kernel, grid, block, shared, args...);
    simt::next_launch = {dependent, nullptr};
    const int code = simt::launch(kernel, grid, block, shared, args...);
    simt::next_launch = {};
    return code;
}

#endif

template <class... P, class... A>
static int pi_launch(void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    return pi_launch_as(false, stream, kernel, grid, block, shared, args...);
}
template <class... P, class... A>
static int pi_launch_dependent(void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    return pi_launch_as(true, stream, kernel, grid, block, shared, args...);
}

/* Bytes of the codes of prepared rows (linear.cuh). */
static inline size_t codes_bytes(int64_t n_rows, int64_t n_in) { return (size_t) ((n_rows + 7) / 8 * (n_in / 32)) * 512; }

/* launch_gemm.cu: packed matrices, any number of rows; made for more than 32. */
struct product;
int pi__k_gemm(void *stream, const product &p);

#endif
