/* See buggy.cuh. */
#include "buggy.cuh"

#include "backend/cuda/launch.cuh"
#include "tail.cuh"

__global__ void sum(int bug, const float *x, float *y, int n)
{
    PI_SMEM(raw);
    float *part = (float *) raw;
    int t = (int) threadIdx.x;
    float s = 0;
    if (bug == BUG_LANE_LEAVES && t == 5) return;
    if (bug == BUG_SPLIT_BARRIER && t < 16) __syncthreads();
    int end = bug == BUG_GLOBAL_END && blockIdx.x + 1 == gridDim.x ? n + 1 : n;
    for (int i = t; i < end; i += (int) blockDim.x) s += x[blockIdx.x * (unsigned) n + (unsigned) i];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(PI_FULL, s, o);
    if (t % 32 == 0) part[t / 32] = s;
    if (bug == BUG_PAST_END && t == 0) part[4] = s;
    if (bug != BUG_NO_BARRIER) __syncthreads();
    if (t == 0) y[blockIdx.x] = part[0] + part[bug == BUG_UNINITIALISED ? 2 : 1];
}

__global__ void staged(int bug, const float *x, float *y, int n_tiles)
{
    PI_SMEM(raw);
    float *tile = (float *) raw; /* [2][32] */
    int t = (int) threadIdx.x;
    float s = 0;
    if (t < 8) ptx_cp_async16(ptx_shared(tile + 4 * t), x + 4 * t);
    ptx_cp_async_commit();
    for (int i = 0; i < n_tiles; i++) {
        float *now = tile + 32 * (i % 2), *next = tile + 32 * ((i + 1) % 2);
        if (i + 1 < n_tiles && t < 8) ptx_cp_async16(ptx_shared(next + 4 * t), x + 32 * (i + 1) + 4 * t);
        ptx_cp_async_commit();
        if (bug == BUG_WAIT_TOO_FEW) ptx_cp_async_wait<2>();
        else ptx_cp_async_wait<1>();
        if (bug != BUG_NO_TILE_BARRIER) __syncthreads();
        s += now[31 - t % 32];
        if (bug != BUG_NO_LOOP_BARRIER) __syncthreads();
    }
    if (t < 32) y[31 - t] = s;
}

/* One thread copies tile i. */
PI_FN void bring_tile(int bug, unsigned char *raw, const float *x, int i)
{
    uint32_t full = ptx_shared(raw) + 8 * (unsigned) (i % 2);
    ptx_mbarrier_arrive_expect(full, bug == BUG_BULK_TOO_FEW ? 112 : 128);
    if (bug == BUG_BULK_TWICE) ptx_mbarrier_arrive_expect(full, 0);
    ptx_bulk_copy(ptx_shared(raw) + 128 + 128 * (unsigned) (i % 2), x + 32 * i, 128, full);
}

__global__ void bulk(int bug, const float *x, float *y, int n_tiles)
{
    PI_SMEM(raw);
    int t = (int) threadIdx.x;
    float s = 0;
    if (t == 0) {
        for (unsigned i = 0; i < 2; i++) ptx_mbarrier_init(ptx_shared(raw) + 8 * i, 1);
        if (bug != BUG_BULK_NO_FENCE) ptx_fence_async();
    }
    __syncthreads();
    if (t == 0) bring_tile(bug, raw, x, 0);
    for (int i = 0; i < n_tiles; i++) {
        const float *now = (const float *) (raw + 128 + 128 * (i % 2));
        bool waits = bug == BUG_BULK_NO_WAIT ? false : bug == BUG_BULK_ONE_WAITS ? t == 0 : bug != BUG_BULK_SKIPS || i;
        if (t == 0 && (i + 1 < n_tiles || bug == BUG_BULK_LEFT)) bring_tile(bug, raw, x, i + 1 < n_tiles ? i + 1 : 1);
        if (waits) ptx_mbarrier_wait(ptx_shared(raw) + 8 * (unsigned) (i % 2), (unsigned) i / 2 % 2);
        if (i || bug != BUG_BULK_SKIPS) s += now[31 - t % 32];
        if (bug != BUG_BULK_REUSE) __syncthreads();
    }
    if (t < 32) y[31 - t] = s;
}

__global__ void ring(int bug, const float *x, float *y, int n_tiles)
{
    PI_SMEM(raw); /* full [2], empty [2], tiles [2] */
    int t = (int) threadIdx.x;
    uint32_t full = ptx_shared(raw), empty = full + 16;
    float s = 0;
    for (unsigned i = 0; i < 2 && t == 0; i++) ptx_mbarrier_init(full + 8 * i, 1), ptx_mbarrier_init(empty + 8 * i, 2);
    if (t == 0) ptx_fence_async();
    __syncthreads();
    for (int i = 0; i < n_tiles; i++) {
        uint32_t k = (uint32_t) i % 2, phase = (uint32_t) i / 2 % 2;
        if (t == 64) {
            if (i > 1 && bug != BUG_RING_NO_WAIT) ptx_mbarrier_wait(empty + 8 * k, 1 - phase);
            ptx_mbarrier_arrive_expect(full + 8 * k, 128);
            ptx_bulk_copy(full + 128 + 128 * k, x + 32 * i, 128, full + 8 * k);
        }
        if (t >= 64) continue;
        ptx_mbarrier_wait(full + 8 * k, phase);
        if (bug == BUG_RING_EARLY && t == 32) ptx_mbarrier_arrive(empty + 8 * k);
        s += ((const float *) (raw + 128 + 128 * k))[31 - t % 32];
        __syncwarp();
        if (t == 0 || (t == 32 && bug != BUG_RING_EARLY)) ptx_mbarrier_arrive(empty + 8 * k);
    }
    if (t < 32) y[31 - t] = s;
}

__global__ void swap(int bug, const float *x, float *y)
{
    PI_SMEM(raw);
    float *v = (float *) raw;
    int l = (int) threadIdx.x;
    v[l] = x[l];
    if (bug != BUG_NO_WARP_SYNC) __syncwarp();
    float r = v[31 - l];
    if (bug == BUG_BAD_LANE) {
        if (l < 16) r = __shfl_sync(0xffffu, r, 16 + l);
    }
    if (bug == BUG_WRONG_MASK) r = __shfl_sync(0xffffu, r, 0);
    if (bug == BUG_MISALIGNED && l == 0) *(float2 *) y = *(const float2 *) (v + 1);
    y[l] = r;
}

__global__ void pass(int bug, const float *x, float *y)
{
    PI_SMEM(raw);
    float *v = (float *) (raw + 128);
    const uint32_t there = ptx_shared(raw);
    const int l = (int) threadIdx.x % 32;
    if (threadIdx.x == 0) ptx_mbarrier_init(there, 1);
    __syncthreads();
    if (threadIdx.x < 32) {
        if (bug == BUG_PASS_EARLY && l == 0) ptx_mbarrier_arrive(there);
        v[l] = x[l];
        if (bug != BUG_PASS_ONE_LANE) __syncwarp();
        if (bug != BUG_PASS_EARLY && l == 0) ptx_mbarrier_arrive(there);
        return;
    }
    if (bug != BUG_PASS_NO_WAIT) ptx_mbarrier_wait(there, 0);
    y[l] = v[31 - l];
}

__global__ void count(int bug, const int *x, int *y)
{
    PI_SMEM(raw);
    int *n = (int *) raw;
    int t = (int) threadIdx.x;
    if (t == 0) *n = 0;
    __syncthreads();
    if (x[t] % 2) {
        if (bug == BUG_SAME_WORD) *n += 1;
        else atomicAdd(n, 1);
    }
    if (bug != BUG_READ_ATOMIC) __syncthreads();
    if (t == 0) *y = *n;
}

__global__ void chain(float *y)
{
    unsigned b = blockIdx.x;
    y[b] = (b ? y[b - 1] : 0.0f) + 1.0f;
}

/* Returns the sum of a block's values in every thread of warp 0. */
PI_FN float block_sum(const float *x, int n, float *part)
{
    float s = 0;
    for (int i = (int) threadIdx.x; i < n; i += (int) blockDim.x) s += x[i];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(PI_FULL, s, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    return part[0] + part[1];
}

__global__ void folded(int bug, const float *x, float *part, unsigned *count, float *y, int n)
{
    PI_SMEM(raw);
    float *warp = (float *) raw;
    unsigned *last = (unsigned *) (raw + 8);
    const unsigned b = blockIdx.x, t = threadIdx.x;
    float s = block_sum(x + (size_t) b * (size_t) n, n, warp);
    if (bug == BUG_READS_OTHERS && t == 0 && b) y[b] = part[b - 1];
    if (t == 0) {
        part[bug == BUG_BOTH_WRITE ? b / 2 : b] = s;
        if (bug == BUG_OTHER_WORD) ptx_arrive(count + 1 + b, 1);
        else if (bug != BUG_NO_FENCE && bug != BUG_ARRIVES) __threadfence();
        *last = (bug == BUG_ARRIVES ? ptx_arrive(count, gridDim.x) : atomicAdd(count, 1u)) + 1 == gridDim.x;
        if (bug == BUG_ANY_ORDER) {
            atomicAdd(y, s);
            *last = 0;
        }
        if (bug != BUG_NO_FENCE_LAST && bug != BUG_ARRIVES) __threadfence();
    }
    if (bug == BUG_NO_BLOCK_BARRIER) __syncwarp();
    else __syncthreads();
    if (t < 32 || bug == BUG_NO_BLOCK_BARRIER) {
        if (bug != BUG_NO_BLOCK_BARRIER && !*last) return;
        if (bug == BUG_NO_BLOCK_BARRIER && (t < 32 || b + 1 < gridDim.x)) return;
        float all = 0;
        for (unsigned i = 0; i < gridDim.x; i++) all += part[i];
        if (t % 32 == 0) *y = all;
    }
}

__global__ void reused(int bug, float *word, unsigned *count, float *y)
{
    if (threadIdx.x) return;
    y[blockIdx.x] = word[0];
    atomicAdd(&word[1], 1.0f);
    const unsigned before = ptx_arrive(count, gridDim.x);
    if (bug == BUG_READS_LATE && before == 1) y[blockIdx.x] = word[0];
    if (bug == BUG_ADDS_LATE && before == 1) atomicAdd(&word[1], 1.0f);
    if (before + 1 == gridDim.x) word[0] = word[1];
}

__global__ void passed_on(int bug, float *y, unsigned *flag, unsigned *ticket)
{
    const unsigned b = bug == BUG_NEVER ? blockIdx.x : atomicAdd(ticket, 1u);
    const unsigned before = bug == BUG_NEVER ? (b + 1) % gridDim.x : b - 1;
    if (bug == BUG_ARRIVES) {
        if (b) ptx_wait_arrived(&flag[before], 1, nullptr);
        y[b] = (b ? y[b - 1] : 0.0f) + 1.0f;
        ptx_arrive(&flag[b], 1);
        return;
    }
    if (b || bug == BUG_NEVER)
        while (!atomicAdd(&flag[before], 0u)) {}
    __threadfence();
    y[b] = (b ? y[b - 1] : 0.0f) + 1.0f;
    __threadfence();
    atomicExch(&flag[b], 1u);
}

__global__ void gathered(pi__k_waits waits, uint32_t *arrived, float *part, float *y, int n)
{
    PI_SMEM(raw);
    const uint32_t total = gridDim.x, most = blocks_for((uint32_t) n, waits);
    if (threadIdx.x == 0) part[blockIdx.x] = (float) blockIdx.x;
    const tail_share s = arrive_of(arrived, total, min(most, total), waits.stuck, (uint32_t *) raw);
    for (int i = s.part; s.parts && i < n; i += s.parts) {
        float all = 0;
        for (uint32_t b = 0; b < total; b++) all += part[b];
        if (threadIdx.x == 0) y[i] = all * (float) (i + 1);
    }
}

__global__ void strided(int bytes, int stride, float *y)
{
    PI_SMEM(raw);
    const int l = (int) threadIdx.x;
    for (int i = l; i < 2048; i += 32) ((uint32_t *) raw)[i] = 0;
    __syncwarp();
    const unsigned char *p = raw + l * stride;
    float v = 0;
    if (bytes == 4) v = *(const float *) p;
    if (bytes == 8) v = ((const float2 *) p)->x + ((const float2 *) p)->y;
    if (bytes == 16)
        v = ((const float4 *) p)->x + ((const float4 *) p)->y + ((const float4 *) p)->z + ((const float4 *) p)->w;
    __syncwarp();
    y[l] = v;
}

__global__ void rows(int stride, float *y)
{
    PI_SMEM(raw);
    uint32_t r[4];
    const int l = (int) threadIdx.x;
    for (int i = l; i < 2048; i += 32) ((uint32_t *) raw)[i] = 0;
    __syncwarp();
    ptx_ldmatrix_x4(r, ptx_shared(raw + l * stride));
    y[l] = (float) r[0];
}

__global__ void numbered(float *x)
{
    ptx_wait_dependency();
    x[threadIdx.x] = (float) threadIdx.x;
}

/* Reads the weights before the wait, x and y after it. */
__global__ void dependent(int bug, const float *w, const float *x, float *y)
{
    PI_SMEM(raw);
    const unsigned t = threadIdx.x;
    float *copied = (float *) raw;
    ptx_launch_dependents();
    if (bug == BUG_ENDS_EARLY && blockIdx.x) return;
    const float own = w[t];
    float before = 0;
    if (bug == BUG_READS_EARLY) before = x[31 - t];
    if (bug == BUG_WRITES_EARLY && !blockIdx.x) y[t] = own;
    if (bug == BUG_COPIES_EARLY) ptx_cp_async4(ptx_shared(copied + t), x + 31 - t);
    if (bug != BUG_ONE_WAITS || !t) ptx_wait_grids();
    if (bug == BUG_NONE || bug >= BUG_ENDS_EARLY) before = x[31 - t];
    if (bug == BUG_COPIES_EARLY) {
        ptx_cp_async_commit();
        ptx_cp_async_wait<0>();
        before = copied[t];
    }
    if (!blockIdx.x) y[t] = before + own;
}

int launch_sum(int bug, const float *x, float *y, int n, int blocks)
{
    return pi_launch(nullptr, sum, dim3((unsigned) blocks), dim3(64), 16, bug, x, y, n);
}
int launch_staged(int bug, const float *x, float *y, int n_tiles, int threads)
{
    return pi_launch(nullptr, staged, dim3(1), dim3((unsigned) threads), 256, bug, x, y, n_tiles);
}
int launch_ring(int bug, const float *x, float *y, int n_tiles)
{
    return pi_launch(nullptr, ring, dim3(1), dim3(96), 384, bug, x, y, n_tiles);
}

int launch_pass(int bug, const float *x, float *y)
{
    return pi_launch(nullptr, pass, dim3(1), dim3(64), 256, bug, x, y);
}

/* B[n][k] is 1 if k == n % 16. A row has 32 bytes; its halves are swapped in every other group of 4 rows (32-byte
 * swizzle). */
PI_FN void write_b(unsigned char *b)
{
    for (unsigned i = threadIdx.x; i < 128 * 16; i += 128) {
        const unsigned n = i / 16, k = i % 16;
        ((uint16_t *) b)[n * 16 + (k / 8 ^ n / 4 % 2) * 8 + k % 8] = k == n % 16 ? 0x3c00 : 0;
    }
}

__global__ void four_warps(int bug, const float *x, float *y)
{
    PI_SMEM(b);
    const unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    const uint64_t at = UINT64_C(3) << 62 | UINT64_C(256 / 16) << 32 | (ptx_shared(b) / 16 & 0x3fff);
    uint32_t a[2][4] = {};
    float d[16][4] = {};
    write_b(b);
    if (bug != BUG_GROUP_NO_B_FENCE) ptx_fence_async();
    if (bug != BUG_GROUP_NO_B || threadIdx.x / 32 == 3) __syncthreads();
    if (bug == BUG_GROUP_NO_FENCE) ptx_wgmma_fence(a);
    for (unsigned i = 0; i < 4; i++) {
        const float *from = x + (row + i % 2 * 8) * 16 + 2 * (lane % 4) + i / 2 * 8;
        a[0][i] = a[1][i] = ptx_half2(from[0], from[1]);
    }
    if (bug != BUG_GROUP_NO_FENCE) ptx_wgmma_fence(a);
    ptx_wgmma_f16(d, a[0], at);
    if (bug != BUG_GROUP_OF_THREE || threadIdx.x >= 32) ptx_wgmma_f16(d, a[1], at);
    ptx_wgmma_commit();
    if (bug == BUG_GROUP_WRITES_A) a[1][3] ^= 1;
    if (bug == BUG_GROUP_WRITES_D) d[3][1] = 1;
    if (bug == BUG_GROUP_WRITES_B && threadIdx.x == 5) ((uint16_t *) b)[0] = 0x4000;
    if (bug == BUG_GROUP_LEFT) return;
    if (bug != BUG_GROUP_NO_WAIT) ptx_wgmma_wait<0>(d);
    for (unsigned i = 0; i < 64; i++)
        y[(row + i % 4 / 2 * 8) * 128 + i / 4 * 8 + 2 * (lane % 4) + i % 2] = d[i / 4][i % 4];
    if (bug == BUG_GROUP_NO_WAIT) ptx_wgmma_wait<0>(d);
}
int launch_four_warps(int bug, const float *x, float *y)
{
    return pi_launch(nullptr, four_warps, dim3(1), dim3(128), 4096, bug, x, y);
}

int launch_bulk(int bug, const float *x, float *y, int n_tiles)
{
    return pi_launch(nullptr, bulk, dim3(1), dim3(64), 384, bug, x, y, n_tiles);
}
int launch_swap(int bug, const float *x, float *y)
{
    return pi_launch(nullptr, swap, dim3(1), dim3(32), 128, bug, x, y);
}
int launch_count(int bug, const int *x, int *y) { return pi_launch(nullptr, count, dim3(1), dim3(64), 4, bug, x, y); }
int launch_chain(float *y, int blocks) { return pi_launch(nullptr, chain, dim3((unsigned) blocks), dim3(1), 0, y); }
int launch_folded(int bug, const float *x, float *part, unsigned *count, float *y, int n, int blocks)
{
    return pi_launch(nullptr, folded, dim3((unsigned) blocks), dim3(64), 16, bug, x, part, count, y, n);
}
int launch_reused(int bug, float *word, unsigned *count, float *y, int blocks)
{
    return pi_launch(nullptr, reused, dim3((unsigned) blocks), dim3(32), 0, bug, word, count, y);
}
int launch_passed_on(int bug, float *y, unsigned *flag, unsigned *ticket, int blocks)
{
    return pi_launch(nullptr, passed_on, dim3((unsigned) blocks), dim3(1), 0, bug, y, flag, ticket);
}
int launch_gathered(void *stream, pi__k_waits waits, uint32_t *arrived, float *part, float *y, int n, int blocks)
{
    return pi_launch(stream, gathered, dim3((unsigned) blocks), dim3(32), 16, waits, arrived, part, y, n);
}
int launch_strided(int bytes, int stride, float *y)
{
    return pi_launch(nullptr, strided, dim3(1), dim3(32), 8192, bytes, stride, y);
}
int launch_rows(int stride, float *y) { return pi_launch(nullptr, rows, dim3(1), dim3(32), 8192, stride, y); }
int launch_dependent(int bug, void *stream, const float *w, float *x, float *y)
{
    const int code = pi_launch_dependent(stream, numbered, dim3(1), dim3(32), 0, x);
    return code ? code : pi_launch_dependent(stream, dependent, dim3(2), dim3(32), 128, bug, w, x, y);
}
int launch_elsewhere(void *stream, float *y)
{
    const simt::kernel_file from = {__BASE_FILE__, (const void *) pi_mark};
    return simt::queue(static_cast<simt::stream *>(stream), from, false, chain, dim3(1), dim3(1), 0, y);
}
