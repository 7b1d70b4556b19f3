/* Shared by the launch functions (launch_NAME.cu; declared in kernels.h). They are host code beside the kernels that
 * they choose from, compiled by nvcc, or by the host compiler for the SIMT emulator. Each returns 0 or the runtime's
 * error code. Every launch goes through pi_launch. */
#ifndef PI_LAUNCH_CUH
#define PI_LAUNCH_CUH

#include "device.cuh"

#ifdef __CUDACC__

/* The calling thread's launches go to the stream's device: an engine may have several, and a thread is not told which it
 * had last. */
static inline int pi_use_device_of(void *stream)
{
    int device;
    cudaError_t e = cudaStreamGetDevice((cudaStream_t) stream, &device);
    return (int) (e ? e : cudaSetDevice(device));
}

template <class... P, class... A>
int pi_launch(void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    int code = pi_use_device_of(stream);
    if (code) return code;
    if (shared > 48 << 10) { /* what a block gets without asking */
        cudaError_t e = cudaFuncSetAttribute((const void *) kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared);
        if (e != cudaSuccess) return (int) e;
    }
    kernel<<<grid, block, shared, (cudaStream_t) stream>>>(static_cast<P>(args)...);
    return (int) cudaGetLastError();
}

#else

template <class... P, class... A>
static int pi_launch(void *stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    const simt::kernel_file from = {__BASE_FILE__, (const void *) pi_mark};
    if (stream) simt::current_device = static_cast<simt::stream *>(stream)->device();
    if (stream) return simt::queue(static_cast<simt::stream *>(stream), from, kernel, grid, block, shared, args...);
    return simt::launch(kernel, grid, block, shared, args...);
}

#endif

/* Bytes of the codes of prepared rows (linear.cuh). */
static inline size_t codes_bytes(int64_t n_rows, int64_t n_in) { return (size_t) ((n_rows + 7) / 8 * (n_in / 32)) * 512; }

/* launch_gemm.cu: packed matrices, any number of rows; made for more than 32. */
struct product;
int pi__k_gemm(void *stream, const product &p);

#endif
