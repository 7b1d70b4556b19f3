/* A pipeline of stages in shared memory: while one is computed with, the next are on their way from global memory.
 *
 *     pipe<3> q = {raw, bytes of a stage};         shared memory: pipe_bytes<3>(bytes of a stage)
 *     q.begin();
 *     for (s = 0; s < 2; s++) { fill stage s of q, if there is work for it; q.filled(); }
 *     for (each stage's work) {
 *         q.turn();                                all threads are done with the stage before this one
 *         fill stage q.free() with the work after next, if there is any; q.filled();
 *         now = q.take();                          has arrived
 *     }
 *
 * Filling: each of the block's 8 warps calls expect() once, with the bytes that its lanes are about to copy, and then
 * copies. With cp.async these are counted by every thread for itself; where there are bulk copies an mbarrier a stage
 * counts them. */
#ifndef PI_PIPE_CUH
#define PI_PIPE_CUH

#include "ptx.cuh"

enum { PIPE_WARPS = 8, PIPE_HEAD = 128 /* bytes before the stages: an mbarrier for each */ };

/* BULK false: always cp.async, for pieces too small for bulk copies. */
template <int STAGES, bool BULK = true> struct pipe {
    unsigned char *raw;
    uint32_t size;               /* of a stage, a multiple of 16 */
    int32_t now = 0, round = 0;  /* stage in turn, and how often all have been */

    __device__ __forceinline__ pipe(unsigned char *raw_, uint32_t size_) : raw(raw_), size(size_) {}
    __device__ __forceinline__ static bool bulk() { return BULK && ptx_has_bulk(); }
    __device__ __forceinline__ uint32_t barrier(int32_t i) const { return ptx_shared(raw) + 8 * (uint32_t) i; }
    __device__ __forceinline__ uint32_t address(int32_t i) const { return ptx_shared(raw) + PIPE_HEAD + (uint32_t) i * size; }

    __device__ __forceinline__ void begin() const
    {
        if (!bulk()) return;
        if (threadIdx.x == 0) {
            for (int32_t i = 0; i < STAGES; i++) ptx_mbarrier_init(barrier(i), PIPE_WARPS);
            ptx_fence_async();
        }
        __syncthreads();
    }
    __device__ __forceinline__ void expect(int32_t i, uint32_t bytes) const
    {
        if (bulk() && threadIdx.x % 32 == 0) ptx_mbarrier_arrive_expect(barrier(i), bytes);
    }
    /* n bytes to offset `to` of stage i, by a warp; n and both addresses are multiples of 16. */
    __device__ __forceinline__ void copy(int32_t i, uint32_t to, const void *src, uint32_t n) const
    {
        uint32_t lane = threadIdx.x % 32, dst = address(i) + to;
        if (!bulk()) {
            for (uint32_t k = lane * 16; k < n; k += 512) ptx_cp_async16(dst + k, (const uint8_t *) src + k);
        } else if (lane == 0 && n) {
            ptx_bulk_copy(dst, src, n, barrier(i));
        }
    }
    __device__ __forceinline__ void filled() const
    {
        if (!bulk()) ptx_cp_async_commit();
    }
    __device__ __forceinline__ void turn() const
    {
        if (!bulk()) ptx_cp_async_wait<STAGES - 2>();
        __syncthreads();
    }
    __device__ __forceinline__ int32_t free() const { return (now + STAGES - 1) % STAGES; }
    __device__ __forceinline__ const unsigned char *take()
    {
        const unsigned char *p = raw + PIPE_HEAD + (uint32_t) now * size;
        if (bulk()) ptx_mbarrier_wait(barrier(now), (uint32_t) round % 2);
        if (++now == STAGES) now = 0, round++;
        return p;
    }
};
template <int STAGES> constexpr size_t pipe_bytes(size_t stage) { return PIPE_HEAD + STAGES * stage; }

#endif
