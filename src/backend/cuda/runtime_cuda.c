/* The runtime of the CUDA backend: one device, one stream (see runtime.h).
 *
 * Memory: a small object; device memory is the caller's. Threads: as backend.h says, one at a time; the opening thread may
 * be another than the step thread, so every call names its device. */
#include "backend/cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

#include "base/alloc.h"

struct pi__rt {
    int device;          /* index */
    cudaStream_t stream; /* all work */
};

const char *pi__rt_text(int code) { return cudaGetErrorString((cudaError_t) code); }

int pi__rt_open(pi__rt **out, int32_t index, pi__rt_info *info)
{
    struct cudaDeviceProp prop;
    *out = NULL;
    cudaError_t e = cudaGetDeviceProperties(&prop, index);
    if (e) return (int) e;
    if (prop.major < 8) return (int) cudaErrorNoKernelImageForDevice;
    pi__rt *rt = pi__calloc(1, sizeof *rt);
    if (!rt) return (int) cudaErrorMemoryAllocation;
    rt->device = index;
    e = cudaSetDevice(index);
    if (!e) e = cudaStreamCreateWithFlags(&rt->stream, cudaStreamNonBlocking);
    if (e) {
        pi__free(rt);
        return (int) e;
    }
    snprintf(info->name, sizeof info->name, "cuda (%.60s, sm_%d%d)", prop.name, prop.major, prop.minor);
    info->n_sm = prop.multiProcessorCount;
    *out = rt;
    return 0;
}

void pi__rt_close(pi__rt *rt)
{
    if (!rt) return;
    cudaSetDevice(rt->device);
    cudaStreamDestroy(rt->stream);
    pi__free(rt);
}

int pi__rt_alloc(pi__rt *rt, void **out, size_t size)
{
    *out = NULL;
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaMalloc(out, size);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* that there is no memory is not an error of the next kernel */
        *out = NULL;
        return 0;
    }
    if (!e) e = cudaMemsetAsync(*out, 0, size, rt->stream);
    if (e) {
        cudaFree(*out);
        *out = NULL;
    }
    return (int) e;
}

void pi__rt_free(pi__rt *rt, void *p)
{
    if (!p) return;
    cudaSetDevice(rt->device);
    cudaFree(p);
}

int pi__rt_host_alloc(pi__rt *rt, void **out, size_t size)
{
    *out = NULL;
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaHostAlloc(out, size, cudaHostAllocDefault);
    if (e) *out = NULL;
    if (e != cudaErrorMemoryAllocation) return (int) e;
    cudaGetLastError();
    return 0;
}

void pi__rt_host_free(pi__rt *rt, void *p)
{
    if (!p) return;
    cudaSetDevice(rt->device);
    cudaFreeHost(p);
}

int pi__rt_upload(pi__rt *rt, void *dst, const void *src, size_t n)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaMemcpyAsync(dst, src, n, cudaMemcpyHostToDevice, rt->stream));
}

int pi__rt_download(pi__rt *rt, void *dst, const void *src, size_t n)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToHost, rt->stream));
}

int pi__rt_wait(pi__rt *rt)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaStreamSynchronize(rt->stream));
}

void *pi__rt_stream(pi__rt *rt) { return rt->stream; }
