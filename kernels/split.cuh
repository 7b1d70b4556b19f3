/* Split-K: divides the 8 slices of a tile (linear.cuh) among thread blocks. A product of few tiles would leave
 * multiprocessors idle. gridDim.z = 2, 4 or 8 blocks then compute a tile; blockIdx.z is the part:
 *
 *     gridDim.z = 4    part 0          1          2          3
 *     slices           0 1             2 3        4 5        6 7
 *     stored           [ 0 + 1 ]       [2] [3]    [4] [5]    [6] [7]      entries 0 .. 6 of the tile
 *
 * Each block stores its sums in global memory. The last block of a tile to arrive adds them in slice order, as a single
 * block would. So results are bitwise identical for every number of parts. No block waits, so blocks may run in any
 * order or one after the other. The last block resets the tile's counter.
 *
 * An entry has the values of all threads of a block, [values of a thread][threads]. A value is read by the thread with
 * the index of the thread that stored it. */
#ifndef PI_SPLIT_CUH
#define PI_SPLIT_CUH

#include "backend/cuda/kernels_split.h"
#include "tail.cuh"

/* Returns the number of entries that a tile stores if `parts` blocks compute it; 0 for one block. */
static __host__ __device__ __forceinline__ constexpr int split_entries(int parts)
{
    return parts > 1 ? (int) SLICES - (int) SLICES / parts + 1 : 0;
}

/* ---------------------------------------------------------------------------------------------------------- choice */

/* Input of the cost model of a launch. products: clocks of a multiprocessor for all products of one tile. The transfer
 * of sums to or from L2 is counted at 32 bytes per clock. A single multiprocessor gets twice that, but many transfer at
 * the same time. */
struct split_work {
    int64_t tiles;
    int64_t products;
    int64_t values; /* floats of one slice's sums of one tile, = one entry */
};
enum { SPLIT_LATENCY = 2000 /* clocks: writing the sums, arriving, reading them */ };

/* Returns the number of blocks per tile, 1, 2, 4 or 8, with the lowest modelled cost. Returns 1 unless splitting saves
 * more than an eighth. s NULL = no splitting. Depends on shape and device only. */
static inline int split_parts(const pi__k_split *s, const split_work &w)
{
    if (!s || w.tiles < 1 || w.tiles > PI__K_SPLIT_TILES) return 1;
    const int64_t n_sm = s->n_sm > 1 ? s->n_sm : 1, entry = w.values * 4 / 32;
    auto waves = [n_sm](int64_t blocks) { return (blocks + n_sm - 1) / n_sm; };
    int best = 1;
    int64_t least = waves(w.tiles) * w.products / 8 * 7;
    for (int parts = 2; parts <= SLICES; parts *= 2) {
        const int64_t entries = split_entries(parts);
        if ((size_t) (w.tiles * entries * w.values) > s->n_sums) break;
        const int64_t clocks = waves(w.tiles * parts) * (w.products + SLICES * entry) / parts +
                               waves(w.tiles) * entries * entry + SPLIT_LATENCY;
        if (clocks < least) best = parts, least = clocks;
    }
    return best;
}

/* ---------------------------------------------------------------------------------------------------------- device */

/* Global memory of a split launch. */
struct split_sums {
    float *sums; /* entries, [tiles][split_entries()] */
    uint32_t *arrived; /* [tiles] counters, 0 before and after the launch */
};

/* The block's slices: split_first() .. split_end() - 1. split_tile(): index of the block's tile. */
PI_FN int split_first() { return (int) (SLICES * blockIdx.z / gridDim.z); }
PI_FN int split_end() { return (int) (SLICES * (blockIdx.z + 1) / gridDim.z); }
PI_FN uint32_t split_tile() { return blockIdx.y * gridDim.x + blockIdx.x; }

/* Returns the address of the calling thread's first value in entry `entry` of the block's tile; value i is at i *
 * THREADS. N: values per thread. */
template <int N> PI_FN float *split_entry(const split_sums &s, int entry)
{
    const size_t at = (size_t) split_tile() * (size_t) split_entries((int) gridDim.z) + (size_t) entry;
    return s.sums + at * (N * THREADS) + threadIdx.x;
}

/* Stores the calling thread's values v as an entry of the block's tile. */
template <int A, int B> PI_FN void split_put(const split_sums &s, int entry, const float (&v)[A][B][4])
{
    float *to = split_entry<A * B * 4>(s, entry);
#pragma unroll
    for (int i = 0; i < A * B * 4; i++) to[i * THREADS] = v[i / 4 / B][i / 4 % B][i % 4];
}

template <int A, int B> PI_FN void split_add(float (&total)[A][B][4], const float (&acc)[A][B][4])
{
#pragma unroll
    for (int i = 0; i < A * B * 4; i++) total[i / 4 / B][i / 4 % B][i % 4] += acc[i / 4 / B][i / 4 % B][i % 4];
}

/* Ends slice `slice`: part 0 adds acc to its total, the other parts store acc as an entry. */
template <int A, int B>
PI_FN void split_end_slice(const split_sums &s, int slice, const float (&acc)[A][B][4], float (&total)[A][B][4])
{
    if (blockIdx.z == 0) split_add(total, acc);
    else split_put(s, slice - (int) (SLICES / gridDim.z) + 1, acc);
}

/* Ends the last slice of the block. Returns true in the last block of the tile to arrive; `total` is then the sum of
 * all slices. All threads call it. has: false = this thread has no values. shared: one free word of shared memory. */
template <int A, int B>
PI_FN bool split_last(const split_sums &s, float (&total)[A][B][4], bool has, unsigned char *shared)
{
    if (gridDim.z == 1) return true;
    if (blockIdx.z == 0 && has) split_put(s, 0, total);
    if (!arrive_of(s.arrived + split_tile(), gridDim.z, 1, nullptr, (uint32_t *) shared).parts) return false;
    const int n = split_entries((int) gridDim.z);
/* Add the entries in slice order. */
#pragma unroll 1
    for (int entry = 0; entry < n && has; entry++) {
        const float *from = split_entry<A * B * 4>(s, entry);
#pragma unroll
        for (int i = 0; i < A * B * 4; i++) {
            float &to = total[i / 4 / B][i / 4 % B][i % 4];
            to = entry ? to + from[i * THREADS] : from[i * THREADS];
        }
    }
    return true;
}

#endif
