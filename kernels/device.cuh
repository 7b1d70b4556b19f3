/* The platform of a kernel file: CUDA, or the SIMT emulator of the tests (tests/simt).
 *
 * Kernel files build with nvcc and with a C++17 host compiler. For that, kernels keep to a few rules:
 *
 *     - shared memory is one dynamic block, PI_SMEM(name), partitioned by hand; no __shared__ variables
 *     - inline PTX is in ptx.cuh only
 *     - a fused multiply-add is written as fmaf: nvcc runs with -fmad=false, the host compiler with
 *       -ffp-contract=off, so both round alike. Only library functions (expf, sinf, ..) and the approximate exp2, rcp
 *       and rsqrt of ptx.cuh may differ, within a tolerance
 *
 * This file has no host code: src/backend/cuda/launch_NAME.cu includes NAME_kernels.cuh and launches its kernels. Each
 * kernel family has its own namespace (gdn, attention, sparse, ...), so that a file can include several. Shared
 * headers, and families whose names have a prefix (w16_, mma16_, wgmma_), are global.
 *
 * CUDA loads a kernel at its first launch, which allocates device memory and waits for the device. The runtime
 * therefore loads all kernels at start. Every file that includes this header puts an entry into a section of the
 * program; the linker joins the entries to a table (runtime.h). No list has to be maintained. */
#ifndef PI_DEVICE_CUH
#define PI_DEVICE_CUH

#ifdef __CUDACC__

#include <cstdint>

#define PI_SMEM(name) extern __shared__ __align__(1024) unsigned char name[]

static __global__ void pi_mark() {}

#else

#include "simt.h"

#define PI_SMEM(name) unsigned char *name = simt::here.shared

static void pi_mark() {}

#endif

/* The file's table entry: the address of any kernel of the file, from which the runtime finds the other kernels. */
extern "C" {
__attribute__((section("pi__kernel_files"), used)) static const void *const pi_kernel_file = (const void *) pi_mark;
}

#define PI_FN static __device__ __forceinline__
/* PI_FN: an inlined device function. PI_CALL: a device function that is called, to save code size. PI_CONSTANT: a
 * kernel parameter that device functions may read by reference, without a copy in local memory; PI_CALL requires it. */
#ifdef __CUDACC__
#define PI_CALL static __device__ __noinline__
#define PI_CONSTANT const __grid_constant__
#else
#define PI_CALL static inline
#define PI_CONSTANT const
#endif
/* PI_SHARED: a device function with one copy for all kernels: a header declares it, one launch file defines it. Files
 * with kernels that call it are compiled as relocatable device code (nvcc -rdc=true), and linked. */
#ifdef __CUDACC__
#define PI_SHARED __device__ __noinline__
#else
#define PI_SHARED
#endif
#define PI_FULL 0xffffffffu /* every lane of a warp */

#endif
