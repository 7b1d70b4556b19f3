/* Top-k of rows of logits: op topk. Input and output: pi__k_top.
 *
 * A row has a quarter of a million values, and each row has its own small k. Three kernels run in this order:
 *
 *     group_max   divides the row into groups of 64 and computes their maxima.           Many blocks per row.
 *     exp_sums    sums of exp(x - max) over 256 values, for rows that request the sum.   Many blocks per row.
 *     best        the k best groups contain the k best values: any other group has k
 *                 values above all of its own. Selects and sorts the k best of 64 k.  One block per row.
 *
 * `best` finds the k-th largest value bit by bit, from the highest bit: it counts the values that are at least the
 * candidate. Values stay in registers, and each count is a sum over the block. So the result is independent of the
 * order of threads, and the values of the row only affect the number of counts.
 *
 * A value is compared as an unsigned number in the same order, with NaN and -inf as 0; +0 and -0 are equal. Among equal
 * values the lowest index wins. The sum is bitwise identical to the sampler's (pi__row_exp_sum): 16 running sums within
 * a block of 256 values; the blocks' sums are added to 16 running sums round-robin. */
#ifndef PI_TOP_KERNELS_CUH
#define PI_TOP_KERNELS_CUH

#include "backend/cuda/kernels.h"
#include "exp_neg.cuh"
#include "ptx.cuh"
#include "warp.cuh"

namespace top {

enum {
    GROUP = 64,      /* values of a group */
    AT_ONCE = 4,     /* groups that a warp loads before it reduces them */
    THREADS = 256,   /* threads of group_max and exp_sums */
    BLOCK_VALUES = THREADS / 32 * AT_ONCE * GROUP, /* values that a block of group_max reads */
    SUM = 256,       /* values of a partial sum */
    THREAD_VALUES = 16,       /* values that a thread of `best` has in registers */
    MOST = 1024,     /* max threads of `best` */
    MINUS_INF = 0x007fffff, PLUS_INF = (int) 0xff800000, /* rank_of() of -inf and +inf */
};

/* Scratch memory of a row: partial sums (double) [n_sum], group maxima (uint32) [n_group], flags (uint32) [n_flag]. A
 * flag is not 0 if AT_ONCE adjacent groups have a NaN. */
typedef struct room {
    int32_t n_sum, n_group, n_flag; /* lengths of the three arrays */
    size_t bytes;                   /* bytes of a row's scratch */
} room;

static __host__ __device__ __forceinline__ room room_of(int64_t n)
{
    room r;
    r.n_sum = (int32_t) ((n + SUM - 1) / SUM);
    r.n_group = (int32_t) ((n + GROUP - 1) / GROUP);
    r.n_flag = (r.n_group + AT_ONCE - 1) / AT_ONCE;
    r.bytes = ((size_t) r.n_sum * 8 + (size_t) (r.n_group + r.n_flag) * 4 + 15) & ~(size_t) 15;
    return r;
}

PI_FN double *sums_of(const pi__k_top &a, const room &r, int row)
{
    return (double *) ((char *) a.scratch + row * r.bytes);
}
PI_FN uint32_t *groups_of(const pi__k_top &a, const room &r, int row)
{
    return (uint32_t *) (sums_of(a, r, row) + r.n_sum);
}

/* ordered() maps f to an unsigned number in the same order, NaN and -inf to 0. unordered() returns f for numbers above
 * 0. */
PI_FN uint32_t ordered(float f)
{
    const uint32_t u = rank_of(f);
    return u <= MINUS_INF ? 0 : u;
}
PI_FN float unordered(uint32_t u) { return __uint_as_float(u >> 31 ? u ^ 0x80000000u : ~u); }

/* Sets the row's skipped indices to -inf, then writes the group maxima and NaN flags. Grid: x = BLOCK_VALUES columns, y
 * = row. */
__global__ void __launch_bounds__(THREADS) group_max(pi__k_top a)
{
    ptx_wait_dependency();
    const int row = (int) blockIdx.y, lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int32_t *request = a.request + row * 3;
    const room r = room_of(a.n);
    const int64_t first = (int64_t) blockIdx.x * BLOCK_VALUES;
    float *x = a.x + row * a.n;
    if (!request[0]) return;
    for (int32_t i = (int32_t) threadIdx.x; i < request[1]; i += THREADS)
        if (a.skip[i] >= first && a.skip[i] < first + BLOCK_VALUES) x[a.skip[i]] = __uint_as_float(0xff800000u);
    __syncthreads();
    const int32_t group = (int32_t) (first / GROUP) + warp * AT_ONCE;
    if (group >= r.n_group) return;
    /* Load all groups of the warp, then reduce. */
    float v[AT_ONCE][2];
    bool nan = false;
#pragma unroll
    for (int g = 0; g < AT_ONCE; g++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t i = (int64_t) (group + g) * GROUP + h * 32 + lane;
            v[g][h] = i < a.n ? x[i] : __uint_as_float(0xff800000u);
            nan |= v[g][h] != v[g][h];
        }
    }
    uint32_t *most = groups_of(a, r, row);
#pragma unroll
    for (int g = 0; g < AT_ONCE; g++) {
        const uint32_t m = warp_max(max(ordered(v[g][0]), ordered(v[g][1])));
        if (lane == 0 && group + g < r.n_group) most[group + g] = m;
    }
    nan = __any_sync(PI_FULL, nan);
    if (lane == 0) most[r.n_group + group / AT_ONCE] = nan;
}

/* Computes the partial sums of exp(x - max), each over 256 values by half a warp. Grid: x = 16 partial sums, y =
 * row. */
__global__ void __launch_bounds__(THREADS) exp_sums(pi__k_top a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    uint32_t *warp_value = (uint32_t *) raw, most = 0;
    const int row = (int) blockIdx.y, lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, j = lane % 16;
    const room r = room_of(a.n);
    const uint32_t *group = groups_of(a, r, row);
    if (!a.request[row * 3] || !a.request[row * 3 + 2]) return;
    /* The row's maximum is the largest group maximum. */
    for (int32_t i = (int32_t) threadIdx.x; i < r.n_group; i += THREADS) most = max(most, group[i]);
    most = warp_max(most);
    if (lane == 0) warp_value[warp] = most;
    __syncthreads();
    most = warp_max(warp_value[lane % (THREADS / 32)]);
    const float top = unordered(most), *x = a.x + row * a.n;
    const int32_t b = (int32_t) blockIdx.x * (THREADS / 16) + warp * 2 + lane / 16;
    /* Lane j adds the 16 values j, j + 16 ... of the block of 256; then the 16 lanes' sums are added in order. */
    float s = 0;
#pragma unroll
    for (int k = 0; k < SUM / 16; k++) {
        const int64_t i = (int64_t) b * SUM + k * 16 + j;
        s += i < a.n ? exp_neg(x[i] - top) : 0.0f;
    }
    double sum = 0;
    for (int k = 0; k < 16; k++) sum += (double) __shfl_sync(PI_FULL, s, k, 16);
    if (j == 0 && b < r.n_sum) sums_of(a, r, row)[b] = sum;
}

/* Shared memory of `best`. */
typedef struct board {
    uint64_t key[PI__K_TOP];   /* keys of the best values; in best_one() the best key of each warp */
    int32_t group[PI__K_TOP];  /* the best groups, unordered */
    uint32_t warp_value[2][32];      /* one count per warp, double-buffered */
    double sum[16];            /* running sums of whole_sum() */
    uint32_t n_group, n_key;   /* number of entries in group and key */
} board;

/* Returns the sum of n over the block's threads, to all threads. *turn: index of the buffer of the last call;
 * alternating buffers save a barrier. */
PI_FN uint32_t block_count(board *s, int *turn, uint32_t n)
{
    const int lane = (int) threadIdx.x % 32, warps = (int) blockDim.x / 32;
    uint32_t *warp_value = s->warp_value[*turn ^= 1];
    n = __reduce_add_sync(PI_FULL, n);
    if (lane == 0) warp_value[threadIdx.x / 32] = n;
    __syncthreads();
    return __reduce_add_sync(PI_FULL, lane < warps ? warp_value[lane] : 0);
}

/* Threshold of a selection: it selects values above `value`, and values equal to `value` with an index up to `last`. A
 * value of 0 (NaN, -inf) is never selected. */
typedef struct border {
    uint32_t value, last;
} border;

PI_FN bool is_in(border b, uint32_t v, uint32_t index) { return v > b.value || (v && v == b.value && index <= b.last); }

/* Returns the threshold that selects the k best of v over all threads of the block; index: their indices, below
 * 2^20. */
PI_FN border border_of(const uint32_t v[THREAD_VALUES], const uint32_t index[THREAD_VALUES], uint32_t k, board *s,
                       int *turn)
{
    border b = {0, 0xffffffffu};
    uint32_t n = 0; /* number of values >= b.value */
    for (uint32_t bit = 1u << 31; bit && n != k; bit >>= 1) {
        uint32_t c = 0, up = b.value | bit;
#pragma unroll
        for (int i = 0; i < THREAD_VALUES; i++) c += v[i] >= up;
        c = block_count(s, turn, c);
        if (c < k) continue;
        b.value = up;
        n = c;
    }
    if (n <= k) return b; /* exactly k values are selected, or fewer than k exist */
    /* Several values equal the k-th: find the largest index limit that selects k. */
    uint32_t above = 0;
#pragma unroll
    for (int i = 0; i < THREAD_VALUES; i++) above += v[i] > b.value;
    above = block_count(s, turn, above);
    b.last = 0;
    for (uint32_t bit = 1u << 19; bit; bit >>= 1) {
        uint32_t c = 0, up = b.last | bit;
#pragma unroll
        for (int i = 0; i < THREAD_VALUES; i++) c += v[i] == b.value && index[i] < up;
        if (above + block_count(s, turn, c) < k) b.last = up;
    }
    return b;
}

/* Bitonic sort of n keys in shared memory, n a power of two. */
PI_FN void sort_keys(uint64_t *key, uint32_t n)
{
    for (uint32_t size = 2; size <= n; size *= 2) {
        for (uint32_t step = size / 2; step; step /= 2) {
            __syncthreads();
            for (uint32_t t = threadIdx.x; t < n / 2; t += blockDim.x) {
                const uint32_t i = 2 * t - (t & (step - 1)), j = i + step;
                const uint64_t x = key[i], y = key[j];
                if ((x > y) == !(i & size)) key[i] = y, key[j] = x;
            }
        }
    }
    __syncthreads();
}

/* Returns a sort key: ascending keys have descending v, then ascending index. */
PI_FN uint64_t key_of(uint32_t v, uint32_t index) { return (uint64_t) ~v << 32 | index; }

/* Finds the best value of row x (k = 1), and writes its key to s->key[0]: the first group with the largest maximum, and
 * the group's first maximal value. Returns 1 if there is a value, else 0; threads after the first warp always return
 * 0. */
PI_FN uint32_t best_one(const pi__k_top &a, const float *x, const uint32_t *group, int32_t n_group, board *s)
{
    const int lane = (int) threadIdx.x % 32;
    uint64_t best = ~(uint64_t) 0;
    for (uint32_t i = threadIdx.x; i < (uint32_t) n_group; i += blockDim.x) best = min(best, key_of(group[i], i));
    best = warp_min(best);
    if (lane == 0) s->key[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x >= 32) return 0;
    best = warp_min((uint32_t) lane < blockDim.x / 32 ? s->key[lane] : ~(uint64_t) 0);
    const uint32_t v = ~(uint32_t) (best >> 32);
    uint64_t key = ~(uint64_t) 0;
    for (int h = 0; h < 2; h++) {
        const uint32_t i = (uint32_t) best * GROUP + (uint32_t) (h * 32 + lane);
        if (i < (uint64_t) a.n) key = min(key, key_of(ordered(x[i]), i));
    }
    key = warp_min(key);
    if (lane == 0) s->key[0] = key;
    return v ? 1 : 0;
}

/* Finds the k best values of row x and writes their sorted keys to s->key. Returns their number, at most k. group:
 * n_group group maxima. */
PI_FN uint32_t best_of(const pi__k_top &a, const float *x, const uint32_t *group, int32_t n_group, uint32_t k, board *s)
{
    uint32_t v[THREAD_VALUES], index[THREAD_VALUES], sorted = 1;
    int turn = 0;
/* Select the k best groups. */
#pragma unroll
    for (int i = 0; i < THREAD_VALUES; i++) {
        index[i] = (uint32_t) i * blockDim.x + threadIdx.x;
        v[i] = index[i] < (uint32_t) n_group ? group[index[i]] : 0;
    }
    border b = border_of(v, index, k, s, &turn);
#pragma unroll
    for (int i = 0; i < THREAD_VALUES; i++)
        if (is_in(b, v[i], index[i])) s->group[atomicAdd(&s->n_group, 1u)] = (int32_t) index[i];
    __syncthreads();
    /* Select the k best values of these groups. */
    const uint32_t n = s->n_group * GROUP;
#pragma unroll
    for (int i = 0; i < THREAD_VALUES; i++) {
        const uint32_t at = (uint32_t) i * blockDim.x + threadIdx.x;
        index[i] = at < n ? (uint32_t) s->group[at / GROUP] * GROUP + at % GROUP : (uint32_t) a.n;
        v[i] = index[i] < (uint64_t) a.n ? ordered(x[index[i]]) : 0;
    }
    b = border_of(v, index, k, s, &turn);
    /* Collect and sort their keys; unused entries are all ones and sort last. */
    while (sorted < k) sorted *= 2;
    for (uint32_t i = threadIdx.x; i < sorted; i += blockDim.x) s->key[i] = ~(uint64_t) 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREAD_VALUES; i++)
        if (is_in(b, v[i], index[i])) s->key[atomicAdd(&s->n_key, 1u)] = key_of(v[i], index[i]);
    sort_keys(s->key, sorted);
    return s->n_key;
}

/* Returns the sum of a row's n partial sums, in the order of the sampler, to all threads. */
PI_FN double whole_sum(const double *sum, int32_t n, board *s)
{
    double own = 0, all = 0;
    if (threadIdx.x < 16) {
        for (int32_t i = (int32_t) threadIdx.x; i < n; i += 16) own += sum[i];
        s->sum[threadIdx.x] = own;
    }
    __syncthreads();
    for (int i = 0; i < 16; i++) all += s->sum[i];
    return all;
}

/* Selects and sorts the k = request[0] best values of a row, and writes its entry of `out`. Grid: one block per row. */
__global__ void __launch_bounds__(MOST) best(pi__k_top a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    board *s = (board *) raw;
    const int row = (int) blockIdx.x;
    const int32_t *request = a.request + row * 3;
    const room r = room_of(a.n);
    const float *x = a.x + row * a.n;
    const uint32_t *group = groups_of(a, r, row), k = (uint32_t) request[0];
    uint64_t *out = a.out + (size_t) row * (size_t) (2 + a.k);
    if (!k) return;
    if (threadIdx.x == 0) s->n_group = s->n_key = 0;
    uint32_t odd = 0;
    for (int32_t i = (int32_t) threadIdx.x; i < r.n_flag; i += (int32_t) blockDim.x) odd |= group[r.n_group + i];
    int turn = 1;
    odd = block_count(s, &turn, odd);
    const double sum = request[2] ? whole_sum(sums_of(a, r, row), r.n_sum, s) : 0;
    const uint32_t n = k == 1 ? best_one(a, x, group, r.n_group, s) : best_of(a, x, group, r.n_group, k, s);
    /* Write the keys. out[0]: low half = number of missing values, high half = the row has NaN or +inf. out[1]: the
     * sum. */
    for (uint32_t i = threadIdx.x; i < k && k > 1; i += blockDim.x) out[2 + i] = s->key[i];
    if (threadIdx.x) return;
    if (k == 1) out[2] = s->key[0];
    const bool inf = n && ~(uint32_t) (s->key[0] >> 32) == (uint32_t) PLUS_INF;
    out[0] = (k - n) | (uint64_t) (odd || inf) << 32;
    ((double *) out)[1] = sum;
}

/* token[t] = index of the best value of row row[t], or 0 if that row has none; t < n. found: results of a launch with k
 * = 1, [rows][3]. One thread per t. */
__global__ void best_tokens(const uint64_t *found, const int32_t *row, int32_t n, int32_t *token)
{
    ptx_wait_dependency();
    const int32_t t = (int32_t) (blockIdx.x * blockDim.x + threadIdx.x);
    if (t >= n) return;
    const uint64_t *best = found + (size_t) row[t] * 3;
    token[t] = (uint32_t) best[0] ? 0 : (int32_t) (uint32_t) best[2];
}

} /* namespace top */

#endif
