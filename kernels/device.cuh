/* The platform of a kernel file: CUDA, or the SIMT emulator of the tests.
 *
 * The same files build with nvcc and with a C++17 host compiler. For that, kernels keep to a few rules:
 * - shared memory is the one dynamic block, PI_SMEM(name), cut by hand; no __shared__ variables
 * - inline PTX lives in ptx.cuh, nowhere else
 * - a fused multiply-add is one because it says fmaf: nvcc runs with -fmad=false, the host compiler with
 *   -ffp-contract=off, so both round alike. exp2, sine and cosine are the ones with a tolerance.
 *
 * There is no host code here: src/backend/cuda/launch_NAME.cu includes NAME_kernels.cuh and launches what is in it.
 *
 * CUDA loads a kernel when it is first launched, which takes device memory and waits for the device. So the runtime loads
 * all of them before: every file that includes this has an entry in a section of the program, which the linker makes a
 * table of (runtime.h). There is no list to keep. */
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

/* The file's entry: any kernel of it, by which the runtime finds the others. */
extern "C" {
__attribute__((section("pi__kernel_files"), used)) static const void *const pi_kernel_file = (const void *) pi_mark;
}

#define PI_FN static __device__ __forceinline__
/* A function that many kernels of a file share; what is given by reference lies in a kernel's PI_CONSTANT arguments. */
#ifdef __CUDACC__
#define PI_CALL static __device__ __noinline__
#define PI_CONSTANT const __grid_constant__
#else
#define PI_CALL static inline
#define PI_CONSTANT const
#endif
#define PI_FULL 0xffffffffu /* every lane of a warp */

#endif
