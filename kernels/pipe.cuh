/* A multi-stage pipeline in shared memory: while the threads compute with one stage, the next stages are copied from
 * global memory. The block has 8 warps.
 *
 *     pipe<3> q(raw, bytes of a stage);            shared memory: pipe_bytes<3>(bytes of a stage)
 *     q.run(n, step, fill, use);                   for b = 0, step, 2 step .. below n:
 *         fill(i, b)                               starts the copies of step b to stage i
 *         use(stage, b)                            called when they have arrived, STAGES - 1 = two steps later
 *
 * A caller with its own loop uses q.start(n, step, fill), then q.next(b, n, step, fill) for each b. q.next() returns
 * the address of the stage.
 *
 * In fill(), each of the block's 8 warps calls expect() once with the bytes that it will copy(), then copy(). With bulk
 * copies (sm_90+), one mbarrier per stage counts the bytes. With cp.async, each thread waits for its own copy groups
 * and a barrier follows. */
#ifndef PI_PIPE_CUH
#define PI_PIPE_CUH

#include "ptx.cuh"

enum { PIPE_WARPS = 8, PIPE_HEAD = 128 /* bytes before the stages: an 8-byte mbarrier per stage, padding */ };

/* How fill() copies. PIPE_LARGE: only with copy(), which is a bulk copy where the device has them. PIPE_SMALL: only
 * with cp.async, for pieces too small for a bulk copy. PIPE_BOTH: with copy() and with its own cp.async. */
enum { PIPE_LARGE, PIPE_SMALL, PIPE_BOTH };

template <int STAGES, int PIECES = PIPE_LARGE> struct pipe {
    unsigned char *raw;
    uint32_t size;               /* bytes of a stage, a multiple of 16 */
    /* now: current stage. round: number of passes over all stages, which gives the mbarrier parity. */
    int32_t now = 0, round = 0;

    __device__ __forceinline__ pipe(unsigned char *raw_, uint32_t size_) : raw(raw_), size(size_) {}
    __device__ __forceinline__ static bool bulk() { return PIECES != PIPE_SMALL && ptx_has_bulk(); }
    __device__ __forceinline__ static bool small_ones() { return PIECES != PIPE_LARGE || !ptx_has_bulk(); }
    __device__ __forceinline__ uint32_t barrier(int32_t i) const { return ptx_shared(raw) + 8 * (uint32_t) i; }
    __device__ __forceinline__ uint32_t address(int32_t i) const
    {
        return ptx_shared(raw) + PIPE_HEAD + (uint32_t) i * size;
    }

    /* Called by a warp: announces the bytes of its copy() calls to stage i. */
    __device__ __forceinline__ void expect(int32_t i, uint32_t bytes) const
    {
        if (bulk() && threadIdx.x % 32 == 0) ptx_mbarrier_arrive_expect(barrier(i), bytes);
    }
    /* Called by a warp: starts the copy of n bytes to offset `to` of stage i. n and both addresses are multiples of
     * 16. */
    __device__ __forceinline__ void copy(int32_t i, uint32_t to, const void *src, uint32_t n) const
    {
        uint32_t lane = threadIdx.x % 32, dst = address(i) + to;
        if (!bulk()) {
            for (uint32_t k = lane * 16; k < n; k += 512) ptx_cp_async16(dst + k, (const uint8_t *) src + k);
        } else if (lane == 0 && n) {
            ptx_bulk_copy(dst, src, n, barrier(i));
        }
    }
    template <class FILL, class USE>
    __device__ __forceinline__ void run(int32_t n, int32_t step, const FILL &fill, const USE &use)
    {
        start(n, step, fill);
        for (int32_t b = 0; b < n; b += step) use(next(b, n, step, fill), b);
    }
    template <class FILL> __device__ __forceinline__ void start(int32_t n, int32_t step, const FILL &fill)
    {
        begin();
        for (int32_t i = 0; i < STAGES - 1; i++) {
            if (i * step < n) fill(i, i * step);
            filled();
        }
    }
    template <class FILL>
    __device__ __forceinline__ const unsigned char *next(int32_t b, int32_t n, int32_t step, const FILL &fill)
    {
        if (small_ones()) ptx_cp_async_wait<STAGES - 2>();
        __syncthreads(); /* all threads have finished with the previous stage, which fill() overwrites */
        int32_t later = b + (STAGES - 1) * step;
        if (later < n) fill((now + STAGES - 1) % STAGES, later);
        filled();
        return take();
    }

private:
    __device__ __forceinline__ void begin() const
    {
        if (!bulk()) return;
        if (threadIdx.x == 0) {
            for (int32_t i = 0; i < STAGES; i++) ptx_mbarrier_init(barrier(i), PIPE_WARPS);
            ptx_fence_async();
        }
        __syncthreads();
    }
    __device__ __forceinline__ void filled() const
    {
        if (small_ones()) ptx_cp_async_commit();
    }
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
