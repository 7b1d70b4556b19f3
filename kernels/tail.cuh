/* The tail of a launch: work on whole rows that needs the results of all of its blocks. The residual is added, with its norm,
 * and what the next matrices read is prepared; or queries, keys and values are made ready and stored (qkv.cuh), without a
 * launch of their own.
 *
 * Blocks arrive at a counter when their results are written. The last `parts` of them stay, wait until all have arrived, and
 * share the rows; where rows are fewer than parts and no norm needs all of one, each takes a part of a row's columns:
 *
 *     blocks   0 1 2 3 ... 949 | 950 951       2 rows: two blocks stay
 *     counter  1 2 3 4 ... 950 | 951 952       all are there: block 950 does row 0, block 951 row 1
 *     then                       953 954 -> 0  the last one to have seen that sets the counter back
 *
 * So a captured launch finds the counter as the one before it did. Those that wait are few enough that the blocks they wait
 * for have room on the smallest device.
 *
 * A row's sums are made by 256 threads, as rows_kernels.cuh and prepare.cuh have them: bits are those of separate launches.
 * Where rows are too many for that, finish_rows() does the same with a block for each. */
#ifndef PI_TAIL_CUH
#define PI_TAIL_CUH

#include "prepare.cuh"
#include "qkv.cuh"

enum { TAIL_SCRATCH = 4 * 32 /* floats */ };

/* Shared memory of a tail's block of threads, of so many warps. */
static inline size_t tail_bytes(const pi__k_tail &t, size_t warps)
{
    const size_t heads = t.qkv.n_tokens ? warps * (size_t) t.qkv.cache.head_dim : 0;
    return sizeof(float) * (heads > TAIL_SCRATCH ? heads : (size_t) TAIL_SCRATCH);
}

/* What a block does of the tail: part `part` of `parts`; 0: nothing. */
struct tail_share {
    int32_t part, parts;
};

/* A block has written its results: it arrives, and waits if it is one of the last. at: shared memory. By all threads. */
PI_FN tail_share arrive(uint32_t *counter, uint32_t *at)
{
    const uint32_t total = gridDim.x * gridDim.y * gridDim.z, most = min(ptx_blocks_that_wait(), total);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *at = ptx_arrive(counter, total);
    }
    __syncthreads();
    const uint32_t before = *at;
    if (before + most < total) return {0, 0};
    if (threadIdx.x == 0) {
        while (before + 1 < total && atomicAdd(counter, 0u) < total) {}
        __threadfence();
        ptx_leave(counter, total + most);
    }
    __syncthreads();
    return {(int32_t) (before + most - total), (int32_t) most};
}

/* A row of the next input, in every form that is wanted. scratch: as of row_max. */
PI_FN void put_input(const pi__k_tail &t, const input_row &in, int64_t row, row_share of, float *scratch)
{
    if (t.floats) put_floats(in, row, t.n_in, of, (float *) t.floats);
    if (t.integers) {
        uint8_t *codes = (uint8_t *) t.integers;
        block_meta *meta = (block_meta *) (codes + (size_t) ((t.n_rows + 7) / 8 * (t.n_in / 32)) * 512);
        put_integers(in, row, t.n_in, true, of, codes, meta);
    }
    if (t.halves) {
        uint16_t *words = (uint16_t *) t.halves;
        float *factor = (float *) ((char *) t.halves + w16_rows_bytes(t.n_rows, t.n_in));
        put_halves(in, row, t.n_in, true, t.bf16, of, words, factor, scratch);
    }
}

/* Row `row`, by the threads of a block: what they read of x after the addition are the values that each wrote itself. */
PI_FN void tail_row(const pi__k_tail &t, int64_t row, row_share of, float *scratch)
{
    if (t.x) add_row(t.x + row * t.n, t.y + row * t.n, t.w, t.eps, t.scale, t.n, scratch);
    if (t.floats || t.integers || t.halves) put_input(t, open_row(t.in, row, t.n_in, true, scratch + 32), row, of, scratch + 64);
}

/* Calls work(row, share of it) for what a block does of the rows; whole: they are not divided. */
template <class F> PI_FN void share_rows(tail_share s, int32_t n_rows, bool whole, const F &work)
{
    const int32_t each = whole || n_rows >= s.parts ? 1 : s.parts / n_rows;
    for (int32_t i = s.part; i < n_rows * each; i += s.parts) {
        work(i / each, row_share{i % each, each});
        __syncthreads(); /* scratch is free */
    }
}

/* The heads of all tokens, each by a warp; rows: head_dim floats for each warp of the block. */
PI_FN void share_heads(tail_share s, const pi__k_qkv &a, float *rows)
{
    const int32_t warps = (int32_t) blockDim.x / 32, warp = (int32_t) threadIdx.x / 32, heads = qkv_heads(a);
    for (int32_t i = s.part * warps + warp; i < a.n_tokens * heads; i += s.parts * warps) {
        qkv_head(a, i / heads, i % heads, rows + warp * a.cache.head_dim, (int) threadIdx.x % 32);
        __syncwarp();
    }
}

/* The tail of a product, in blocks of 256 threads. shared: tail_bytes() that nobody uses any more. By all threads. */
PI_CALL void run_tail(const pi__k_tail &t, unsigned char *shared)
{
    float *scratch = (float *) shared;
    const tail_share s = arrive(t.arrived, (uint32_t *) (scratch + 96));
    if (!s.parts) return;
    const bool whole = t.x || t.in.kind == PI__IN_RMSNORM;
    if (t.qkv.n_tokens) share_heads(s, t.qkv, scratch);
    else share_rows(s, t.n_rows, whole, [&](int32_t row, row_share of) { tail_row(t, row, of, scratch); });
}

/* The same in blocks of any number of threads, of the next input alone, which is PLAIN. */
PI_FN void run_input_tail(const pi__k_tail &t, unsigned char *shared)
{
    float *scratch = (float *) shared;
    const tail_share s = arrive(t.arrived, (uint32_t *) (scratch + 96));
    if (!s.parts) return;
    share_rows(s, t.n_rows, false, [&](int32_t row, row_share of) {
        put_input(t, {t.in.x + row * t.in.ldx, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, row, of, scratch);
    });
}

#endif
