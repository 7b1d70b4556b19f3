/* The epilogue of a launch ("tail"): work on complete rows that needs the results of all blocks of the launch. It has
 * two kinds. Kind 1 (pi__k_tail.sum, add, in): expert outputs are summed, residuals are added with their norms, and the
 * input of the next matrices is packed. Kind 2 (pi__k_tail.qkv): queries, keys and values are normalized, rotated and
 * stored (qkv.cuh). An epilogue saves a separate launch.
 *
 * Blocks increment a counter when their results are written. The last `parts` blocks stay, wait until all blocks have
 * arrived, and divide the rows among them. If rows are fewer than parts and no computation needs a complete row, each
 * block does a part of a row's columns:
 *
 *     blocks   0 1 2 3 ... 949 | 950 951       2 rows: two blocks stay
 *     counter  1 2 3 4 ... 950 | 951 952       all have arrived: block 950 does row 0, block 951 row 1
 *     then                       953 954 -> 0  the last one that leaves resets the counter
 *
 * Arriving releases the block's results, and acquires the results of the blocks that arrived before. A waiting block
 * acquires the others by its last read of the counter. Barriers order the block's other threads (ptx_arrive).
 *
 * So the counter is 0 again for the next launch, which a replayed CUDA graph requires. All blocks must become resident
 * while others wait. Therefore the engines of a device divide its multiprocessors, and no more blocks of a launch stay
 * than its engine has places: see places.h and blocks_for().
 *
 * LIMIT. An epilogue takes as long as the rows of one block. Residual, norm and rounding of 5,120 values read 174 kB
 * per row from L2. At 64 bytes per clock, this takes 1.1 us on a GB10 or an RTX PRO 6000. A separate launch has a block
 * per row and costs 1.5 us more. So an epilogue is faster with one row per block (1.1 us against 2.6) or two (2.2), and
 * slower with three (3.4). 32 rows are two per block on a GB10, one on an RTX PRO 6000 (pi__cuda_tail_rows). Heads of
 * 32 tokens are up to 8.3 MB (Gemma 4 31B): 2.2 us for 24 blocks of a GB10 against 2.6, 0.5 us for 94 blocks of an RTX
 * PRO 6000 against 1.8.
 *
 * A block that waits for about a second reports an error (pi__k_waits.stuck): more blocks wait than the device has
 * places for, for example because several processes share it by MPS.
 *
 * These estimates count bytes. On an H200 (docs/CUDA.md), most of the measured time is latency. A launch of 128 blocks
 * with an epilogue of one row of 2,048 values took 22 us; the same products without epilogue took about 7 us. A block
 * reads its row about five times, and waited for memory each time. Therefore the operands of a row are copied to shared
 * memory, where it has capacity. The residual and the norm weights are copied while the block waits for the other
 * blocks. The results of the products follow when all blocks have arrived, which is then the only wait for memory.
 *
 *     block 950    arrives  [copies x, w .. |  waits      ][copies y][ sums, norms, rounding, in shared memory ]
 *     block 951       ..  multiplies  .. arrives
 *
 * 256 threads compute a row's sums in the order of rows_kernels.cuh and prepare.cuh, so results are bitwise identical
 * to separate launches. finish_rows() (tail_kernels.cuh) does the same work in its own launch, with a block per row,
 * for larger row counts. */
#ifndef PI_TAIL_CUH
#define PI_TAIL_CUH

#include "fp4_rows.cuh"
#include "mma16_rows.cuh"
#include "qkv.cuh"
#include "sum.cuh"

enum { TAIL_SCRATCH = 4 * 32 /* floats of scratch before the copies; 32 for each use of it */ };

/* Returns true if a row must be computed by a single block: the epilogue sums over the row, or the row has one scale
 * that the scales of its groups depend on (NVFP4). */
static __host__ __device__ __forceinline__ bool rows_are_whole(const pi__k_tail &t)
{
    return t.sum.n_used || t.add[0].x || t.in.kind == PI__IN_RMSNORM || (t.fp4 && !t.fp8 && t.fp4_type == PI__NVFP4);
}

/* Operands of a row that may have a copy in shared memory, in descending order of benefit. NEAR_Y, NEAR_X: y and x of
 * the first add. NEAR_IN_W: norm weights of the packed input. NEAR_W: norm weights or bias of the first add. NEAR_X2,
 * NEAR_W2: as NEAR_X and NEAR_W for the second add. NEAR_IN_X: the packed input, if it is not the result of an add. */
enum { NEAR_Y, NEAR_X, NEAR_IN_W, NEAR_W, NEAR_X2, NEAR_W2, NEAR_IN_X };
static_assert(NEAR_IN_X + 1 == PI__K_TAIL_NEAR, "one slot per value");

/* Returns true if the packed input is the RMSNorm of the result of add `a`. */
static __host__ __device__ __forceinline__ bool norm_is_of(const pi__k_tail &t, const pi__k_add &a)
{
    return a.x && t.in.kind == PI__IN_RMSNORM && t.in.x == a.x && t.in.ldx == t.n_in && t.n_in == a.n;
}

/* near_rows() returns n, the floats of a row at p. It returns 0 if `has` is false (the epilogue does not read p), or if
 * rows cannot be copied 16 bytes at a time. near_values() returns the number of floats of operand `which` (NEAR_*), 0 =
 * no copy. */
static inline int64_t near_rows(bool has, const float *p, int64_t n)
{
    return has && n % 4 == 0 && (uintptr_t) p % 16 == 0 ? n : 0;
}
static inline int64_t near_values(const pi__k_tail &t, int which)
{
    const pi__k_add &a = t.add[0], &b = t.add[1];
    const bool norm = (t.floats || t.integers || t.halves || t.fp4 || t.terms) && t.in.kind == PI__IN_RMSNORM;
    switch (which) {
    case NEAR_Y: return near_rows(a.x, a.y, a.n);
    case NEAR_X: return near_rows(a.x, a.x, a.n);
    case NEAR_W: return near_rows(a.x && (a.w || a.bias), a.w ? a.w : a.bias, a.n);
    case NEAR_X2: return near_rows(b.x && b.x != a.x, b.x, b.n);
    case NEAR_W2: return near_rows(b.x && (b.w || b.bias), b.w ? b.w : b.bias, b.n);
    case NEAR_IN_W: return near_rows(norm, t.in.w, t.n_in);
    default: return t.in.ldx % 4 ? 0 : near_rows(norm && (!a.x || (t.in.x != a.x && t.in.x != b.x)), t.in.x, t.n_in);
    }
}

/* Returns the bytes of shared memory of a block of `warps` warps: at least `own`, which the kernel needs before its
 * epilogue, and up to `most` if copies need more. Sets t.near, the offsets of the copies, and t.all_near. */
static inline size_t tail_bytes(pi__k_tail &t, size_t warps, size_t own, size_t most = 0)
{
    const size_t heads = t.qkv.n_tokens ? warps * (size_t) t.qkv.cache.head_dim : 0, scratch = TAIL_SCRATCH;
    const size_t room = max(own, most) / sizeof(float);
    size_t end = scratch;
    for (int i = 0; i < PI__K_TAIL_NEAR && !t.qkv.n_tokens && rows_are_whole(t); i++) {
        const size_t n = (size_t) (near_values(t, i) + 3) / 4 * 4;
        if (!n || end + n > room) continue;
        t.near[i] = (int32_t) end;
        end += n;
    }
    const pi__k_add &a = t.add[0];
    if (t.add[1].x == a.x) t.near[NEAR_X2] = t.near[NEAR_X];
    t.all_near = !t.add[1].x && norm_is_of(t, a) && !t.in.x2 && !t.integers && !t.fp4 && t.near[NEAR_Y] &&
                 t.near[NEAR_X] && t.near[NEAR_IN_W] && (t.near[NEAR_W] || !(a.w || a.bias));
    return max(own, max(heads, end) * sizeof(float));
}

/* A block's share of an epilogue: part `part` (0 ..) of `parts`. parts 0 = the block does nothing. */
struct tail_share {
    int32_t part, parts;
};

/* Count a staying block as done; called by one thread of the block. Return true in the last of the `most` staying
 * blocks, which resets the counter. total: blocks of the launch. leave_ordered: accesses of all staying blocks before
 * it come before those of the last block after it, if a barrier orders the block's threads before the call. */
PI_FN bool leave(uint32_t *counter, uint32_t total, uint32_t most) { return ptx_leave(counter, total + most); }
PI_FN bool leave_ordered(uint32_t *counter, uint32_t total, uint32_t most)
{
    return ptx_leave_ordered(counter, total + most);
}

/* Counts the calling block, one of `total`, as arrived: its results are written. Returns its share. The last `most`
 * blocks to arrive stay and wait until all have arrived; the other blocks get parts = 0. A staying block first calls
 * meanwhile(share), which may use shared memory except the word `at`. stuck: as in pi__k_waits. STAYS false: leave() is
 * called here. STAYS true: the caller calls one of both later. Called by all threads. */
template <bool STAYS, class F>
PI_FN tail_share arrive_of(uint32_t *counter, uint32_t total, uint32_t most, uint32_t *stuck, uint32_t *at,
                           const F &meanwhile)
{
    ptx_arriving();
    __syncthreads();
    if (threadIdx.x == 0) *at = ptx_arrive(counter, total);
    __syncthreads();
    const uint32_t before = *at;
    if (before + most < total) return {0, 0};
    meanwhile(tail_share{(int32_t) (before + most - total), (int32_t) most});
    if (threadIdx.x == 0) {
        if (before + 1 < total) ptx_wait_arrived(counter, total, stuck);
        if (!STAYS) leave(counter, total, most);
    }
    __syncthreads();
    return {(int32_t) (before + most - total), (int32_t) most};
}
PI_FN tail_share arrive_of(uint32_t *counter, uint32_t total, uint32_t most, uint32_t *stuck, uint32_t *at)
{
    return arrive_of<false>(counter, total, most, stuck, at, [](tail_share) {});
}

/* Returns the number of thread blocks of the launch. */
PI_FN uint32_t blocks_of_launch() { return gridDim.x * gridDim.y * gridDim.z; }

/* Returns the number of blocks that stay for `work` independent items: one per item, or PI__K_TAIL_STAY for fewer
 * items, and at most w.places. With 1, no block waits. */
PI_FN uint32_t blocks_for(uint32_t work, const pi__k_waits &w)
{
    const uint32_t least = PI__K_TAIL_STAY, places = max((uint32_t) w.places, 1u);
    return ptx_max_spinning(min(max(work, least), places));
}

/* Returns the number of blocks that stay for epilogue t: one per row, plus one for routes. For op qkv, each block does
 * one head per warp. */
PI_FN uint32_t blocks_that_stay(const pi__k_tail &t)
{
    const uint32_t warps = blockDim.x / 32, heads = (uint32_t) (t.qkv.n_tokens * qkv_heads(t.qkv));
    const uint32_t work = t.qkv.n_tokens ? (heads + warps - 1) / warps : (uint32_t) t.n_rows + (t.routes.n_rows > 0);
    return blocks_for(work, t.waits);
}

/* Counts the calling block as arrived and returns its share of epilogue t; see arrive_of(). */
template <class F> PI_FN tail_share arrive(const pi__k_tail &t, uint32_t *at, const F &meanwhile)
{
    const uint32_t total = blocks_of_launch();
    return arrive_of<false>(t.arrived, total, min(blocks_that_stay(t), total), t.waits.stuck, at, meanwhile);
}
PI_FN tail_share arrive(const pi__k_tail &t, uint32_t *at)
{
    return arrive(t, at, [](tail_share) {});
}

/* Calls work(row, part of the row) for each row in the block's share s. whole: a row is not divided among blocks. */
template <class F> PI_FN void share_rows(tail_share s, int32_t n_rows, bool whole, const F &work)
{
    const int32_t each = whole || n_rows >= s.parts ? 1 : s.parts / n_rows;
    for (int32_t i = s.part; i < n_rows * each; i += s.parts) {
        work(i / each, row_share{i % each, each});
        __syncthreads(); /* scratch is free again */
    }
}

/* The functions below have one copy for all kernels: see tail_products.cuh and tail_input.cuh. */

/* Does the block's share s of a product's epilogue. scratch: shared memory of tail_bytes() that the products no longer
 * use. begun: begin_share() has started the copies for the block's first row. */
PI_SHARED void do_share(const pi__k_tail &t, tail_share s, float *scratch, bool begun);
/* The epilogue of a product: arrives, and does the block's share. Blocks have 256 threads, and all of them call it.
 * shared: as scratch of do_share(). */
PI_SHARED void run_tail(const pi__k_tail &t, unsigned char *shared);
/* The epilogue of kernels with blocks of any number of threads: only packs a PLAIN input. run_input_tail() arrives
 * first. */
PI_SHARED void do_input_share(const pi__k_tail &t, tail_share s, float *scratch);
PI_SHARED void run_input_tail(const pi__k_tail &t, unsigned char *shared);

#endif
