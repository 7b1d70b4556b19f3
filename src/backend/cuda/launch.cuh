/* Shared by the launch functions (launch_NAME.cu; declared in kernels.h). A launch function is host code that selects a
 * kernel and launches it. nvcc compiles it, or the host compiler for the SIMT emulator. Each function returns 0 or the
 * runtime's error code. Every launch goes through pi_launch or pi_launch_dependent. In the openings of launch_NAME.cu,
 * "variant" means the template arguments of the kernel.
 *
 * DEPENDENT LAUNCHES (programmatic dependent launch). A kernel that waits for its predecessors by itself
 * (ptx_wait_grids) may be launched while they run. When the last predecessor ends, its blocks are already resident,
 * and its weights prefetched:
 *
 *     normal launches      [ A ........ ]      [ B ........ ]      [ C ........ ]
 *     dependent launches   [ A ........ ][ B ........ ][ C ........ ]
 *                                  [ B waits ]   [ C waits ]
 *
 * All threads of a dependent kernel wait, also idle ones. So C ends after B, and B after A: a kernel that waits for C
 * may rely on A having ended.
 * Before the wait, threads write nothing, and read only data that no kernel of the step writes: the weights, and the
 * batch, which a copy writes. A kernel first allows the next kernel to be launched (ptx_launch_dependents); that
 * kernel's blocks get SMs once this kernel's last blocks have started. Devices before sm_90 launch one kernel after
 * the other. */
#ifndef PI_LAUNCH_CUH
#define PI_LAUNCH_CUH

#include "device.cuh"

#ifdef __CUDACC__

#include "backend/cuda/queue.h"

template <class... P, class... A>
int pi_launch_as(bool dependent, void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    const pi__queue *q = static_cast<const pi__queue *>(stream);
    /* the thread may have used another device since its last launch here */
    if (cudaError_t e = cudaSetDevice(q->device)) return (int) e;
    if (q->late_shared && shared > 48 << 10) { /* 48 KiB: the default limit per block */
        cudaError_t e = cudaFuncSetAttribute((const void *) kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             q->late_shared);
        if (e != cudaSuccess) return (int) e;
    }
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization,
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {grid, block, shared, q->stream, &overlap, dependent && q->overlaps};
    return (int) cudaLaunchKernelEx(&how, kernel, static_cast<P>(args)...);
}

#else

template <class... P, class... A>
static int pi_launch_as(bool dependent, void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                        A... args)
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

/* Returns the bytes of the codes of n_rows packed rows, rounded up to 8 rows (15-bit integers, linear.cuh). */
static inline size_t codes_bytes(int64_t n_rows, int64_t n_in)
{
    return (size_t) ((n_rows + 7) / 8 * (n_in / 32)) * 512;
}

/* launch_gemm.cu: queues the product of one packed matrix with any number of rows; optimized for more than 32. */
struct product;
int pi__k_gemm(void *stream, const product &p);

#endif