/* Producer/consumer ring for wgmma kernels: STAGES stages of SIZE bytes each in shared memory. The block's last
 * team of four warps fills them for the TEAMS teams that multiply. The mbarriers are at offset BARRIERS_AT. */
#ifndef PI_WGMMA_RING_CUH
#define PI_WGMMA_RING_CUH

#include "ptx.cuh"

enum { WGMMA_ROOM = 227 << 10 /* bytes of shared memory of a block on sm_90 */ };

PI_FN int32_t wgmma_team() { return __shfl_sync(PI_FULL, (int32_t) threadIdx.x / 128, 0); }

/* State of the ring. Mbarrier full(i) counts FILLERS arrivals of producers and the bytes that they expect. Mbarrier
 * empty(i) counts the warps that multiply. */
template <class S> struct wgmma_ring {
    unsigned char *raw;
    int32_t now = 0;    /* current stage */
    uint32_t round = 0; /* number of passes over all stages, for the parity */

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
    __device__ __forceinline__ int32_t before() const { return now ? now - 1 : S::STAGES - 1; }
    __device__ __forceinline__ void wait_full() const { ptx_mbarrier_wait(full(now), round & 1); }
    /* Returns immediately in the first round. */
    __device__ __forceinline__ void wait_empty() const { ptx_mbarrier_wait(empty(now), ~round & 1); }
    /* Marks stage i as no longer needed by this warp. */
    __device__ __forceinline__ void release(int32_t i) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(empty(i));
    }
};

#endif
