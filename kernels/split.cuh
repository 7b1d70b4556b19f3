/* Slices of a tile shared out (split-K). A product of few tiles leaves multiprocessors without any; then a tile's eight slices go
 * to 2, 4 or 8 blocks of threads, its parts, which are the z of the grid:
 *
 *     gridDim.z = 4    part 0          1          2          3
 *     slices           0 1             2 3        4 5        6 7
 *     left behind      [ 0 + 1 ]       [2] [3]    [4] [5]    [6] [7]      entries 0 .. 6 of the tile
 *
 * Each leaves its sums, and the last of a tile's to arrive adds them up in the order of slices, as one block would: how many parts
 * there are changes no bit. Nobody waits, so they may run in any order, and one after the other. The last one sets the tile's
 * counter back.
 *
 * An entry is a value of each thread behind the other: [values][threads]; only the thread that left it reads it. */
#ifndef PI_SPLIT_CUH
#define PI_SPLIT_CUH

#include "backend/cuda/kernels_split.h"
#include "tail.cuh"

/* Entries of a tile of so many parts. */
static __host__ __device__ __forceinline__ constexpr int split_entries(int parts)
{
    return parts > 1 ? (int) SLICES - (int) SLICES / parts + 1 : 0;
}

/* ---------------------------------------------------------------------------------------------------------------- choice */

/* What a launch's tiles take, in clocks of a multiprocessor: the products of one, and bringing a slice's sums to the second-level
 * cache or back, at 32 bytes a clock, half of what one alone is given: many do it at once. */
struct split_work {
    int64_t tiles;
    int64_t products;
    int64_t values; /* floats of a slice's sums */
};
enum { SPLIT_LATENCY = 2000 /* clocks: sums that are waited for on their way there and back, and arriving */ };

/* Parts of each tile, by shape and device alone: those that take the least time, if an eighth is won; 1: the tile is one block's. */
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
        const int64_t clocks = waves(w.tiles * parts) * (w.products + SLICES * entry) / parts + waves(w.tiles) * entries * entry +
                               SPLIT_LATENCY;
        if (clocks < least) best = parts, least = clocks;
    }
    return best;
}

/* ---------------------------------------------------------------------------------------------------------------- device */

struct split_sums {
    float *sums;
    uint32_t *arrived; /* a counter a tile, 0 before and after the launch */
};

/* The block's slices: [first, end). */
PI_FN int split_first() { return (int) (SLICES * blockIdx.z / gridDim.z); }
PI_FN int split_end() { return (int) (SLICES * (blockIdx.z + 1) / gridDim.z); }
PI_FN uint32_t split_tile() { return blockIdx.y * gridDim.x + blockIdx.x; }

/* The thread's first value of an entry of the tile, of N values of each thread. */
template <int N> PI_FN float *split_entry(const split_sums &s, int entry)
{
    const size_t at = (size_t) split_tile() * (size_t) split_entries((int) gridDim.z) + (size_t) entry;
    return s.sums + at * (N * THREADS) + threadIdx.x;
}

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

/* A slice of the block's has ended: it is added to the total of the tile's first part, or left behind. */
template <int A, int B> PI_FN void split_end_slice(const split_sums &s, int slice, const float (&acc)[A][B][4], float (&total)[A][B][4])
{
    if (blockIdx.z == 0) split_add(total, acc);
    else split_put(s, slice - (int) (SLICES / gridDim.z) + 1, acc);
}

/* The block's slices have all ended. true: it is the last of the tile's, and total has all of them. By all threads; has: the
 * thread has results; shared: a word that nobody uses any more. */
template <int A, int B> PI_FN bool split_last(const split_sums &s, float (&total)[A][B][4], bool has, unsigned char *shared)
{
    if (gridDim.z == 1) return true;
    if (blockIdx.z == 0 && has) split_put(s, 0, total);
    if (!arrive_of(s.arrived + split_tile(), gridDim.z, 1, (uint32_t *) shared).parts) return false;
    const int n = split_entries((int) gridDim.z);
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
