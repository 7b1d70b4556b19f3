/* How kernels with wgmma bring what is multiplied: a ring of STAGES stages of SIZE bytes each in shared memory, which a team of four
 * warps fills, the last of the block, for TEAMS others that multiply; its barriers lie at BARRIERS_AT. */
#ifndef PI_WGMMA_RING_CUH
#define PI_WGMMA_RING_CUH

#include "ptx.cuh"

enum { WGMMA_ROOM = 227 << 10 /* bytes of shared memory that a block may have there */ };

PI_FN int32_t wgmma_team() { return __shfl_sync(PI_FULL, (int32_t) threadIdx.x / 128, 0); }

/* Stages, and who has them: full, which counts who fills them, FILLERS arrivals and the bytes that they expect, and empty, which
 * counts the warps that multiply. */
template <class S> struct wgmma_ring {
    unsigned char *raw;
    int32_t now = 0;    /* stage in turn */
    uint32_t round = 0; /* how often all have been */

    __device__ __forceinline__ explicit wgmma_ring(unsigned char *raw_) : raw(raw_) {}
    __device__ __forceinline__ uint32_t full(int32_t i) const { return ptx_shared(raw) + S::BARRIERS_AT + 8 * (uint32_t) i; }
    __device__ __forceinline__ uint32_t empty(int32_t i) const { return full(i) + 8 * S::STAGES; }
    __device__ __forceinline__ unsigned char *stage() const { return raw + (uint32_t) now * S::SIZE; }
    __device__ __forceinline__ uint32_t at(int32_t i) const { return ptx_shared(raw) + (uint32_t) i * S::SIZE; }
    /* By all threads of the block, once. */
    __device__ __forceinline__ void open() const
    {
        if (threadIdx.x == 0) {
            for (int32_t i = 0; i < S::STAGES; i++) {
                ptx_mbarrier_init(full(i), S::FILLERS);
                ptx_mbarrier_init(empty(i), 4 * S::TEAMS);
            }
            ptx_fence_async();
        }
        __syncthreads();
    }
    __device__ __forceinline__ void next()
    {
        if (++now == S::STAGES) now = 0, round++;
    }
    __device__ __forceinline__ int32_t before() const { return now ? now - 1 : S::STAGES - 1; }
    __device__ __forceinline__ void wait_full() const { ptx_mbarrier_wait(full(now), round & 1); }
    __device__ __forceinline__ void wait_empty() const { ptx_mbarrier_wait(empty(now), ~round & 1); } /* at first it is */
    /* The warp is done with stage i. */
    __device__ __forceinline__ void release(int32_t i) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(empty(i));
    }
};

#endif
