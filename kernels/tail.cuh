/* The tail of a launch: work on whole rows that needs the results of all of its blocks. What experts give is summed up, the
 * residual is added, with its norm, or rows are normed, and what the next matrices read is prepared; or queries, keys and values
 * are made ready and stored (qkv.cuh), without a launch of their own.
 *
 * Blocks arrive at a counter when their results are written. The last `parts` of them stay, wait until all have arrived, and
 * share the rows; where rows are fewer than parts and no norm needs all of one, each takes a part of a row's columns:
 *
 *     blocks   0 1 2 3 ... 949 | 950 951       2 rows: two blocks stay
 *     counter  1 2 3 4 ... 950 | 951 952       all are there: block 950 does row 0, block 951 row 1
 *     then                       953 954 -> 0  the last one to have seen that sets the counter back
 *
 * So a captured launch finds the counter as the one before it did. Those that wait are few enough that the blocks they wait
 * for have room: 8 on any device, and where there are more multiprocessors than twice that, one to two of these.
 *
 * LIMIT. A tail takes as long as the rows that one block has. For residual, norm and rounding of 5,120 values that is 174 kB a
 * row from the second-level cache, at 64 bytes a clock 1.1 us on a GB10 or an RTX PRO 6000. A launch of its own has a block for
 * each row, and costs 1.5 us. So one row a block is right (1.1 us against 2.6), and so are two (2.2), but three are not (3.4);
 * 32 rows are two a block on a GB10, one on an RTX PRO 6000 (pi__cuda_tail_rows). Heads of 32 tokens are up to 8.3 MB
 * (Gemma 4 31B), 2.2 us for the 24 blocks of a GB10 against 2.6, 0.5 us for 94 of an RTX PRO 6000 against 1.8.
 *
 * That counts bytes. What was measured, on an H200 (docs/CUDA.md), is mostly waiting: a launch of 128 blocks with a tail of one row of
 * 2,048 values takes 22 us, the same products without one about 7. A block goes over its row some five times, each value of a
 * thread a round to memory unless several are asked for together (row_values() in input.cuh), and runs code that its
 * multiprocessor has not at hand.
 *
 * A row's sums are made by 256 threads, as rows_kernels.cuh and prepare.cuh have them: bits are those of separate launches.
 * Where rows are too many for that, finish_rows() does the same with a block for each. */
#ifndef PI_TAIL_CUH
#define PI_TAIL_CUH

#include "fp4_rows.cuh"
#include "qkv.cuh"
#include "sum.cuh"

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

/* A block of `total` has written its results: it arrives, and waits if it is one of the last `most`. at: shared memory. By all
 * threads. */
PI_FN tail_share arrive_of(uint32_t *counter, uint32_t total, uint32_t most, uint32_t *at)
{
    ptx_arriving();
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

PI_FN uint32_t blocks_of_launch() { return gridDim.x * gridDim.y * gridDim.z; }

/* How many of the launch's blocks stay: one for each row, and for routes, or for as many heads as it has warps. But no more than
 * there are multiprocessors to two, so that the blocks they wait for have room. */
PI_FN uint32_t blocks_that_stay(const pi__k_tail &t)
{
    const uint32_t warps = blockDim.x / 32, heads = (uint32_t) (t.qkv.n_tokens * qkv_heads(t.qkv));
    const uint32_t work = t.qkv.n_tokens ? (heads + warps - 1) / warps : (uint32_t) t.n_rows + (t.routes.n_rows > 0);
    const uint32_t least = PI__K_TAIL_STAY, room = max((uint32_t) t.n_sm / 2, least);
    return ptx_blocks_that_wait(min(max(work, least), room));
}

/* A block of the launch. */
PI_FN tail_share arrive(const pi__k_tail &t, uint32_t *at)
{
    const uint32_t total = blocks_of_launch();
    return arrive_of(t.arrived, total, min(blocks_that_stay(t), total), at);
}

/* A row of the next input in FP4 or FP8, where the device multiplies such; scratch as of fp4_put_row. */
template <int WAY> PI_FN void put_fp4_way(const pi__k_tail &t, const input_row &in, int64_t row, row_share of, float *scratch)
{
    uint8_t *to = (uint8_t *) t.fp4;
    fp4_put_row<WAY>(in, row, t.n_in, true, of, to, (float *) (to + fp4_factors_at(WAY, t.n_rows, t.n_in)), scratch);
}
PI_FN void put_fp4(const pi__k_tail &t, const input_row &in, int64_t row, row_share of, float *scratch)
{
    if (!ptx_has_fp4()) return;
    if (t.fp8) put_fp4_way<FP4_MX8>(t, in, row, of, scratch);
    else if (t.fp4_type == PI__NVFP4) put_fp4_way<FP4_NV>(t, in, row, of, scratch);
    else put_fp4_way<FP4_MX>(t, in, row, of, scratch);
}

/* A row of the next input, in every form that is wanted but that. scratch: as of row_max. */
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

/* Row `row`, by the threads of a block: what they read of y after the sum, and of x after an addition, are the values that each
 * wrote itself. */
PI_FN void tail_row(const pi__k_tail &t, int64_t row, row_share of, float *scratch)
{
    if (t.sum.n_used) sum_row(t.sum, row, {0, 1});
    if (t.add[0].x) add_row(t.add[0], row, scratch);
    if (t.add[1].x) {
        __syncthreads(); /* scratch is free */
        add_row(t.add[1], row, scratch);
    }
    if (!t.floats && !t.integers && !t.halves && !t.fp4) return;
    const input_row in = open_row(t.in, row, t.n_in, true, scratch + 32);
    put_input(t, in, row, of, scratch + 64);
    if (!t.fp4) return;
    __syncthreads(); /* scratch is free, and what was added is there: units are not the columns that a thread has added */
    put_fp4(t, in, row, of, scratch + 64);
}

/* A row is one block's: sums over it are made, or it has a scale of which those of its groups are parts. */
PI_FN bool rows_are_whole(const pi__k_tail &t)
{
    return t.sum.n_used || t.add[0].x || t.in.kind == PI__IN_RMSNORM || (t.fp4 && !t.fp8 && t.fp4_type == PI__NVFP4);
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

/* A block's share of a product's tail. scratch: tail_bytes() that nobody uses any more. */
PI_FN void do_share(const pi__k_tail &t, tail_share s, float *scratch)
{
    if (t.qkv.n_tokens) share_heads(s, t.qkv, scratch);
    else if (t.n_rows > 0) share_rows(s, t.n_rows, rows_are_whole(t), [&](int32_t row, row_share of) { tail_row(t, row, of, scratch); });
}

/* What a block does of the next input in FP4, which is PLAIN. */
PI_CALL void share_fp4(const pi__k_tail &t, int32_t part, int32_t parts, float *scratch)
{
    share_rows({part, parts}, t.n_rows, rows_are_whole(t), [&](int32_t row, row_share of) {
        put_fp4(t, {t.in.x + row * t.in.ldx, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, row, of, scratch);
    });
}

/* The tail of a product, in blocks of 256 threads. shared: as scratch of do_share(). By all threads. */
PI_CALL void run_tail(const pi__k_tail &t, unsigned char *shared)
{
    float *scratch = (float *) shared;
    const tail_share s = arrive(t, (uint32_t *) (scratch + 96));
    if (s.parts) do_share(t, s, scratch);
}

/* The same in blocks of any number of threads, of the next input alone, which is PLAIN. FP4: in that, too, for
 * which kernels of few registers have no room. */
template <bool FP4 = true> PI_FN void do_input_share(const pi__k_tail &t, tail_share s, float *scratch)
{
    if (FP4 && t.fp4) share_fp4(t, s.part, s.parts, scratch);
    if (!t.floats && !t.integers && !t.halves) return;
    share_rows(s, t.n_rows, false, [&](int32_t row, row_share of) {
        put_input(t, {t.in.x + row * t.in.ldx, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, row, of, scratch);
    });
}
template <bool FP4 = true> PI_FN void run_input_tail(const pi__k_tail &t, unsigned char *shared)
{
    float *scratch = (float *) shared;
    const tail_share s = arrive(t, (uint32_t *) (scratch + 96));
    if (s.parts) do_input_share<FP4>(t, s, scratch);
}

#endif
