/* Copies of experts in device memory. The matrices of all experts are in pinned host memory, which the device reads
 * over its bus. A layer has slots for the experts that were used last:
 *
 *     host memory      e0   e1   e2   e3   e4   e5   ...
 *     slots (LRU)      [ e4 ] [ e1 ] [ e7 ]        moved[4], moved[1], moved[7] != 0
 *
 * choose_slots finds the step's experts without a copy, in ascending order, and gives them slots. fill_slots copies
 * their matrices. The products then read a copy if there is one, or else the matrix in host memory. Both have the same
 * bytes, so the history of the slots does not change a bit of any result. The host takes no part, so a step with these
 * launches can be captured. */
#ifndef PI_EXPERT_CACHE_KERNELS_CUH
#define PI_EXPERT_CACHE_KERNELS_CUH

#include "moe.cuh"
#include "warp.cuh"

namespace expert_cache {

enum { CHOOSE_THREADS = 256, FILL_THREADS = 256, FILL_AHEAD = 4 /* loads in flight per thread */ };

/* Returns the slot that was not used for the longest time, except those of this step; -1 = the step uses all slots.
 * Called by a warp. */
PI_FN int32_t oldest_slot(const pi__k_expert_cache &c, uint32_t step)
{
    uint64_t oldest = ~0ull;
    for (int32_t s = (int32_t) threadIdx.x % 32; s < c.n_slot; s += 32) {
        const uint32_t used = c.used[s];
        const uint64_t key = (uint64_t) used << 32 | (uint32_t) s;
        if (used != step && key < oldest) oldest = key;
    }
    for (int k = 16; k; k >>= 1) {
        const uint64_t other = __shfl_xor_sync(PI_FULL, oldest, k);
        if (other < oldest) oldest = other;
    }
    return oldest == ~0ull ? -1 : (int32_t) (uint32_t) oldest;
}

/* Gives slot s to the expert, and takes it from its owner. Called by one thread. */
PI_FN void give_slot(const pi__k_expert_cache &c, int32_t s, int32_t expert, uint32_t step)
{
    const int32_t owner = c.owner[s];
    for (int32_t k = 0; k < c.n_stack; k++) {
        const pi__k_expert_stack &w = c.stack[k];
        if (owner) w.moved[owner - 1] = 0;
        w.moved[expert] = (uint64_t) (w.slots + (size_t) s * w.bytes) - (uint64_t) (w.data + (size_t) expert * w.bytes);
    }
    c.owner[s] = expert + 1;
    c.used[s] = step;
}

/* Finds the experts of the step without a copy, gives them slots and lists them. One block. */
__global__ void __launch_bounds__(CHOOSE_THREADS, 1) choose_slots(pi__k_expert_cache c)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    /* one bit per expert: the step uses it; it has a copy. Then the number of experts with a copy */
    const int32_t n_word = (c.n_expert + 31) / 32, thread = (int32_t) threadIdx.x;
    uint32_t *need = (uint32_t *) raw, *found = need + n_word, *n_found = found + n_word;
    const uint32_t step = *c.step + 1;
    for (int32_t i = thread; i <= 2 * n_word; i += CHOOSE_THREADS) need[i] = 0;
    __syncthreads();
    for (int k = 0; k < 3; k++)
        for (int32_t i = thread; i < c.n_tile[k]; i += CHOOSE_THREADS) {
            const int32_t e = c.tile[k][i].expert;
            atomicOr(&need[e / 32], 1u << e % 32);
        }
    __syncthreads();
    for (int32_t s = thread; s < c.n_slot; s += CHOOSE_THREADS) {
        const int32_t e = c.owner[s] - 1;
        if (e < 0 || !(need[e / 32] >> e % 32 & 1)) continue;
        c.used[s] = step;
        atomicOr(&found[e / 32], 1u << e % 32);
        atomicAdd(n_found, 1u);
    }
    __syncthreads();
    if (thread >= 32) return;
    int32_t n_missing = 0, n_slots = 0;
    for (int32_t i = 0; i < n_word; i++) {
        for (uint32_t bits = need[i] & ~found[i]; bits; bits &= bits - 1, n_missing++) {
            const int32_t e = i * 32 + __popc((bits & (0u - bits)) - 1);
            const int32_t s = n_slots == n_missing ? oldest_slot(c, step) : -1;
            if (s < 0) continue;
            if (thread == 0) {
                give_slot(c, s, e, step);
                c.missing[1 + 2 * n_slots] = e;
                c.missing[2 + 2 * n_slots] = s;
            }
            __syncwarp();
            n_slots++;
        }
    }
    if (thread) return;
    c.missing[0] = n_slots;
    *c.step = step;
    c.counts[0] += *n_found;
    c.counts[1] += (uint32_t) n_missing;
}

/* Copies the matrices of the listed experts to their slots. Grid: x = parts of a matrix, y = kind. */
__global__ void __launch_bounds__(FILL_THREADS) fill_slots(pi__k_expert_cache c)
{
    ptx_wait_dependency();
    const pi__k_expert_stack &w = c.stack[blockIdx.y];
    const int64_t n = (int64_t) (w.bytes / sizeof(uint4)), step = (int64_t) gridDim.x * FILL_THREADS;
    for (int32_t m = 0; m < c.missing[0]; m++) {
        const uint4 *from = (const uint4 *) (w.data + (size_t) c.missing[1 + 2 * m] * w.bytes);
        uint4 *to = (uint4 *) (w.slots + (size_t) c.missing[2 + 2 * m] * w.bytes);
        for (int64_t i = (int64_t) blockIdx.x * FILL_THREADS + threadIdx.x; i < n; i += FILL_AHEAD * step) {
            uint4 v[FILL_AHEAD];
#pragma unroll
            for (int k = 0; k < FILL_AHEAD; k++)
                if (i + k * step < n) v[k] = from[i + k * step];
#pragma unroll
            for (int k = 0; k < FILL_AHEAD; k++)
                if (i + k * step < n) to[i + k * step] = v[k];
        }
    }
}

} /* namespace expert_cache */

#endif
