/* Producer/consumer ring for wgmma kernels (sm_90): S::STAGES stages of S::SIZE bytes each in shared memory. A team is
 * four warps. The block's first S::TEAMS teams multiply (consumers); its last team fills the stages (producer). The
 * mbarriers are at byte offset S::BARRIERS_AT: full [STAGES], empty [STAGES]. */
#ifndef PI_WGMMA_RING_CUH
#define PI_WGMMA_RING_CUH

#include "ptx.cuh"

enum { WGMMA_ROOM = 227 << 10 /* max bytes of shared memory of a block on sm_90 */ };

/* Returns the calling warp's team number, uniform in the warp. */
PI_FN int32_t wgmma_team() { return __shfl_sync(PI_FULL, (int32_t) threadIdx.x / 128, 0); }

/* A warp's position in the ring. Mbarrier full(i) counts S::FILLERS arrivals of producers and the bytes that they
 * expect. Mbarrier empty(i) counts the consumer warps that have released stage i. */
template <class S> struct wgmma_ring {
    unsigned char *raw;
    int32_t now = 0;    /* current stage */
    uint32_t round = 0; /* number of passes over all stages; gives the mbarrier parity */

    __device__ __forceinline__ explicit wgmma_ring(unsigned char *raw_) : raw(raw_) {}
    __device__ __forceinline__ uint32_t full(int32_t i) const
    {
        return ptx_shared(raw) + S::BARRIERS_AT + 8 * (uint32_t) i;
    }
    __device__ __forceinline__ uint32_t empty(int32_t i) const { return full(i) + 8 * S::STAGES; }
    __device__ __forceinline__ unsigned char *stage() const { return raw + (uint32_t) now * S::SIZE; }
    __device__ __forceinline__ uint32_t at(int32_t i) const { return ptx_shared(raw) + (uint32_t) i * S::SIZE; }
    /* Initializes the mbarriers. All threads of the block call it once. */
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
    /* Returns the index of the previous stage. */
    __device__ __forceinline__ int32_t before() const { return now ? now - 1 : S::STAGES - 1; }
    __device__ __forceinline__ void wait_full() const { ptx_mbarrier_wait(full(now), round & 1); }
    /* Producer: waits until all consumer warps have released the current stage. Returns immediately in the first
     * round. */
    __device__ __forceinline__ void wait_empty() const { ptx_mbarrier_wait(empty(now), ~round & 1); }
    /* Consumer: marks stage i as no longer needed by this warp. */
    __device__ __forceinline__ void release(int32_t i) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(empty(i));
    }
};

#endif
