/* Samples tokens from complete rows of logits, for draws without top-k whose candidates do not suffice
 * (draw_kernels.cuh). Bitwise identical to the sampler (sampler/sampler_filters.c, pi__row_draw). Kernel: draw_rows().
 *
 * A block of 1024 threads handles a row. Values with penalties are lowered in the row first and restored at the end.
 * The block reads the row for each of these:
 *
 *     the largest value
 *     top-p          first the sum of weights exp(x - max). Then three digits of a distance from max, highest first:
 *                    the values up to that distance weigh p of the sum. Masses per digit are integers, added in shared
 *                    memory in any order. Then the last id that is kept at that distance
 *     weights        of the values that top-p and min-p keep, with temperature; sums of 256 stay in shared memory
 *
 * Then one thread finds the block of 256 values in which the running sum exceeds u of the total, and the value in it. A
 * distance is far_below(): 32 bits, cut into digits of 11, 11 and 10 bits. A mass is a sum of weight_units(). */
#ifndef PI_DRAW_ROW_KERNELS_CUH
#define PI_DRAW_ROW_KERNELS_CUH

#include "draw.cuh"

namespace draw {

enum { ROW_THREADS = 1024, ROW_WARPS = ROW_THREADS / 32, ROW_SUM = 256, MAX_SUMS = (1 << 20) / ROW_SUM, DIGIT = 11 };

/* Shared memory of a block of threads. */
struct row_board {
    union {
        double sum[MAX_SUMS];     /* sum[b]: weights of values 256 b .. 256 b + 255 */
        uint64_t mass[MAX_SUMS];  /* integer masses: per digit, or per 256 values */
    };
    double run[16];                /* run[k] = sum[k] + sum[k + 16] + .. */
    float weight[ROW_SUM];         /* weights of the chosen 256 values */
    float old[PI__MAX_SEEN + 1];   /* values before penalties, by index in seen */
    uint32_t most[ROW_WARPS];      /* each warp's maximum, as rank_of() or index */
    uint64_t target, below;        /* mass to reach; mass of the values at a smaller distance from max than far */
    /* digits of the distance found so far; all bits set = the row's mass is below target, all values are kept */
    uint32_t far;
    int32_t block, id;             /* index of the found block of 256 values; found id */
    seen_list seen;
};

/* Returns the maximum of v over the block's threads, to all of them. */
PI_FN uint32_t block_most(row_board *s, uint32_t v)
{
    for (int o = 16; o; o >>= 1) v = max(v, __shfl_xor_sync(PI_FULL, v, o));
    if (threadIdx.x % 32 == 0) s->most[threadIdx.x / 32] = v;
    __syncthreads();
    v = s->most[threadIdx.x % 32];
    for (int o = 16; o; o >>= 1) v = max(v, __shfl_xor_sync(PI_FULL, v, o));
    __syncthreads();
    return v;
}

/* True if entry i of s has the same token as an earlier entry: only the first entry of a token lowers its value. */
PI_FN bool seen_before(const seen_list *s, int i)
{
    for (int k = 0; k < i; k++)
        if (seen_id(s->token[k]) == seen_id(s->token[i])) return true;
    return false;
}

/* lower: replaces the values x [n] of tokens with penalties by their lowered values, in global memory. put_back:
 * restores them. */
PI_FN void lower(row_board *s, const pi__draw &d, float *x)
{
    for (int i = (int) threadIdx.x; i < s->seen.n; i += ROW_THREADS) {
        if (seen_before(&s->seen, i)) continue;
        const uint32_t id = seen_id(s->seen.token[i]);
        s->old[i] = x[id];
        x[id] = penalised(d, s->old[i], times_seen(&s->seen, id));
    }
    __syncthreads();
}
PI_FN void put_back(const row_board *s, float *x)
{
    __syncthreads();
    for (int i = (int) threadIdx.x; i < s->seen.n; i += ROW_THREADS)
        if (!seen_before(&s->seen, i)) x[seen_id(s->seen.token[i])] = s->old[i];
}

/* Returns the sum of f(i) for i < n, to all threads, in the order of pi__row_exp_sum. Half a warp adds 256 values. Also
 * writes these sums of 256 to s->sum. */
template <class F> PI_FN double weigh_row(row_board *s, int32_t n, const F &f)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_sum = (n + ROW_SUM - 1) / ROW_SUM;
    for (int first = 2 * warp; first < n_sum; first += 2 * ROW_WARPS) {
        const int b = first + lane / 16;
        float part = 0;
        double sum = 0;
#pragma unroll 4
        for (int k = 0; k < ROW_SUM / 16; k++) {
            const int i = b * ROW_SUM + 16 * k + lane % 16;
            part += i < n ? f(i) : 0.0f;
        }
        for (int k = 0; k < 16; k++) sum += (double) __shfl_sync(PI_FULL, part, k, 16);
        if (lane % 16 == 0 && b < n_sum) s->sum[b] = sum;
    }
    __syncthreads();
    double own = 0, all = 0;
    for (int i = (int) threadIdx.x; i < n_sum && threadIdx.x < 16; i += 16) own += s->sum[i];
    if (threadIdx.x < 16) s->run[threadIdx.x] = own;
    __syncthreads();
    for (int i = 0; i < 16; i++) all += s->run[i];
    return all;
}

/* Called by one warp, when s->mass[d] is the mass of the values with digit d. Finds the smallest digit at which the
 * running mass, from s->below on, reaches s->target. Adds it to s->far at bit `shift`, and the mass of smaller digits
 * to s->below. If all masses together stay below the target, sets all bits of s->far. bits: size of the digit. */
PI_FN void find_digit(row_board *s, int bits, int shift)
{
    const int lane = (int) threadIdx.x, each = (1 << bits) / 32;
    uint64_t sum = 0;
    /* Each lane reads its digits from a different start, to avoid bank conflicts. */
    for (int i = 0; i < each; i++) sum += s->mass[lane * each + (i + lane) % each];
    const uint64_t run = warp_run(sum);
    const uint64_t target = s->target, below = s->below;
    __syncwarp();
    if (lane == 31 && below + run < target) s->far = 0xffffffffu;
    uint64_t before = below + run - sum;
    if (before + sum < target || (lane && before >= target)) return;
    int digit = lane * each;
    while (before + s->mass[digit] < target) before += s->mass[digit++];
    s->below = before;
    s->far |= (uint32_t) digit << shift;
}

/* The values that top-p keeps: all at a distance from max below `far`, and at distance `far` the ids up to `last`. */
struct reach {
    uint32_t far; /* all bits set = all values are kept */
    int32_t last;
    __device__ __forceinline__ bool has(float max, float x, int id) const
    {
        const uint32_t distance = far_below(max, x);
        return distance < far || (distance == far && id <= last);
    }
};

/* Returns the last id that top-p keeps at distance `far` from max: the first id, in ascending order, at which the mass
 * reaches s->target. s->below: mass of the smaller distances. */
PI_FN int32_t last_of_mass(row_board *s, const float *x, int32_t n, float max, uint32_t far)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_sum = (n + ROW_SUM - 1) / ROW_SUM;
    auto units = [=](int i) {
        const float v = i < n ? finite(x[i]) : -INFINITY;
        return far_below(max, v) == far ? weight_units(exp_neg(v - max)) : 0;
    };
    for (int b = warp; b < n_sum; b += ROW_WARPS) {
        uint64_t sum = 0;
        for (int k = lane; k < ROW_SUM; k += 32) sum += units(b * ROW_SUM + k);
        sum = warp_units(sum);
        if (lane == 0) s->mass[b] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint64_t mass = s->below;
        int b = 0;
        while (b + 1 < n_sum && mass + s->mass[b] < s->target) mass += s->mass[b++];
        s->block = b, s->below = mass;
    }
    __syncthreads();
    const int first = s->block * ROW_SUM;
    if (warp == 0) { /* one warp finds the id, 32 values per step */
        uint64_t mass = s->below;
        int last = -1;
        for (int k = 0; k < ROW_SUM && last < 0; k += 32) {
            const uint64_t own = units(first + k + lane), run = warp_run(own);
            const bool reached = own && mass + run >= s->target;
            int at = reached ? k + lane : ROW_SUM;
            for (int o = 16; o; o >>= 1) at = min(at, __shfl_xor_sync(PI_FULL, at, o));
            if (at < ROW_SUM) last = at;
            mass += __shfl_sync(PI_FULL, run, 31);
        }
        if (lane == 0) s->id = first + last;
    }
    __syncthreads();
    return s->id;
}

/* Returns the values of row x [n] that top-p keeps: the values nearest to max that together weigh p of the row. */
PI_FN reach reach_of(row_board *s, const float *x, int32_t n, float max, double p)
{
    const double sum = weigh_row(s, n, [=](int i) { return exp_neg(finite(x[i]) - max); });
    if (threadIdx.x == 0) s->target = mass_units(p * sum), s->below = 0, s->far = 0;
    for (int known = 0; known < 32; known += DIGIT) {
        const int bits = known + DIGIT < 32 ? DIGIT : 32 - known, shift = 32 - known - bits;
        __syncthreads();
        for (int i = (int) threadIdx.x; i < 1 << bits; i += ROW_THREADS) s->mass[i] = 0;
        __syncthreads();
        const uint32_t found = s->far;
        if (found == 0xffffffffu) return {found, n};
        /* Add the masses per digit, of the values that have the digits found so far. known: bits of these digits. */
        for (int i = (int) threadIdx.x; i < n; i += ROW_THREADS) {
            const uint32_t far = far_below(max, finite(x[i]));
            if (known && (far ^ found) >> (32 - known)) continue;
            const uint64_t mass = weight_units(exp_neg(finite(x[i]) - max));
            if (mass)
                atomicAdd((unsigned long long *) &s->mass[far >> shift & ((1u << bits) - 1)],
                          (unsigned long long) mass);
        }
        __syncthreads();
        if (threadIdx.x < 32) find_digit(s, bits, shift);
    }
    __syncthreads();
    const uint32_t far = s->far;
    return {far, far == 0xffffffffu ? n : last_of_mass(s, x, n, max, far)};
}

/* Returns the index i at which the running sum of f(i), i < n, exceeds u of the total, 0 <= u < 1; -1 = the sum is
 * 0. */
template <class F> PI_FN int32_t pick_of_row(row_board *s, int32_t n, double u, const F &f)
{
    const double target = u * weigh_row(s, n, f);
    const int n_sum = (n + ROW_SUM - 1) / ROW_SUM;
    double sum = 0;
    if (threadIdx.x == 0) {
        int b = 0;
        for (; b < n_sum && sum + s->sum[b] <= target; b++) sum += s->sum[b];
        s->block = b;
    }
    __syncthreads();
    const int first = s->block * ROW_SUM;
    /* Rounding kept the running sum at or below the target: return the last value with a weight. */
    if (s->block == n_sum) {
        uint32_t last = 0;
        for (int i = (int) threadIdx.x; i < n; i += ROW_THREADS)
            if (f(i) > 0) last = (uint32_t) i + 1;
        return (int32_t) block_most(s, last) - 1;
    }
    if (threadIdx.x < ROW_SUM)
        s->weight[threadIdx.x] = first + (int) threadIdx.x < n ? f(first + (int) threadIdx.x) : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        int last = 0;
        for (int i = 0; i < ROW_SUM && sum <= target; i++) {
            if (s->weight[i] > 0) last = i;
            sum += (double) s->weight[i];
        }
        s->id = first + last;
    }
    __syncthreads();
    return s->id;
}

/* Draws a token from the complete row a.x [row][n], for rows with out[1] = 1: the rows that draw_tokens() left. Writes
 * out as draw_tokens() does. Grid: a block of ROW_THREADS threads per row. Shared: row_board. */
__global__ void __launch_bounds__(ROW_THREADS, 1) draw_rows(pi__k_draw a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    row_board *s = (row_board *) raw;
    const int row = (int) blockIdx.x;
    const int32_t n = (int32_t) a.n;
    uint64_t *out = a.out + (size_t) row * 3;
    const pi__draw d = a.draw[row];
    float *x = a.x + (size_t) row * (size_t) n;
    if (!a.request[row * 3] || !out[1]) return;
    look_back(&s->seen, a, row, d);
    lower(s, d, x);
    /* The largest value. */
    uint32_t most = 0;
    for (int i = (int) threadIdx.x; i < n; i += ROW_THREADS) most = max(most, rank_of(finite(x[i])));
    most = block_most(s, most);
    const float max = of_rank(most);
    int32_t id = -1;
    /* top-p, min-p and temperature, then the draw. */
    if (max > -INFINITY) {
        const reach r = d.top_p < 1 ? reach_of(s, x, n, max, (double) d.top_p) : reach {0xffffffffu, n};
        const float limit = min_p_limit(d, max), shift = shift_of(d, max), top = tempered(d, max, shift);
        __syncthreads();
        id = pick_of_row(s, n, random_of(d), [=](int i) {
            const float v = finite(x[i]);
            return v >= limit && r.has(max, v, i) ? exp_neg(tempered(d, v, shift) - top) : 0.0f;
        });
    }
    put_back(s, x);
    if (threadIdx.x) return;
    out[0] = id < 0;
    out[1] = 0;
    out[2] = (uint32_t) id;
}

} /* namespace draw */

#endif
