/* Products of several matrices of different types with one x, in one launch for small row counts. A layer's matrices
 * are small, and most files mix two or three types, F32 among them (routers, gates of delta nets). Each thread block
 * computes rows of one matrix; the results are bitwise identical to separate launches:
 *
 *     F32          8 rows of W, one per warp, times up to 8 rows of floats: as linear.cuh's float_rows()
 *     F16, BF16    16 rows, a slice per warp, times rows of terms: as mma16_kernels.cuh's mma16_few_rows()
 *     of w16.cuh   R tiles of 16 rows, a slice per warp, times packed rows: as w16_kernels.cuh's w16_few()
 *
 * The first blocks of the grid may compute other inputs of latent attention, from rows that exist before the launch
 * (latent_inputs.cuh).
 *
 * The launch may have an epilogue (tail.cuh), which the last-arriving blocks execute. The epilogue may also compute
 * routes from router logits (route.cuh, expert_choice.cuh): one block routes while the others do the rest. It may also
 * pack a side input, on blocks without a row of the epilogue's own input if there are any:
 *
 *     8 blocks, 2 rows    own input: row 0 | row 1 | side input: row 0 in 2 parts | row 1, .. | idle | routes
 *
 * With a single matrix, each block may add its results, and expert outputs, to its columns of the residual streams
 * (hyper.cuh). The epilogue then reads a row from the streams and packs the row's next input. */
#ifndef PI_MIXED_KERNELS_CUH
#define PI_MIXED_KERNELS_CUH

#include "backend/cuda/kernels_mixed.h"
#include "expert_choice.cuh"
#include "hyper.cuh"
#include "latent_inputs.cuh"
#include "mma16_kernels.cuh"
#include "w16_kernels.cuh"

namespace mixed {

using namespace hyper;
using namespace mla;

enum { MIXED_WARPS = THREADS / 32 };
static_assert((int) THREADS == (int) LATENT_THREADS && (int) THREADS == (int) HYPER_THREADS,
              "side jobs and epilogues use the same block size");

/* Arguments of mixed(): n matrices, their input in up to three formats, and the epilogue. */
struct mixed_products {
    const uint4 *x;       /* packed rows of x, for types of w16.cuh */
    const float *factor;  /* [n_rows] factor of each packed row */
    const float *floats;  /* [n_rows, n_in] rows of x for F32 matrices */
    const uint8_t *terms; /* packed rows of x (mma16.cuh) for F16 and BF16 matrices */
    int32_t n_rows;       /* rows of x */
    int32_t n;            /* number of matrices */
    struct {
        pi__cuda_shape shape;
        const uint8_t *data;
        const float *scale;
        float *y;
        int64_t ldy, n_in, n_out;
        int32_t type;
        uint32_t first;   /* index of the matrix's first thread block in the grid */
    } w[PI__K_MAX_MIXED];
    pi__k_tail tail;
    /* expert choice with groups or undivided weights, for the epilogue's routes; r.n_rows 0 = tail.routes chooses
     * experts */
    pi__k_expert_choice choice;
    pi__k_side_input beside;    /* side input, with the epilogue's number of rows */
    latent_blocks latent;       /* other inputs of latent attention, in the first n_latent blocks */
    uint32_t n_latent;          /* blocks of `latent` for all tokens */
    pi__k_streams streams;      /* residual streams to add the results to; n_rows 0 = none */
    int32_t smem_copy;          /* bool: a row read from the streams also gets a copy in shared memory */
};

/* Returns the number of thread blocks that cover all n_out rows of an F32 matrix, for up to FLOAT_ROWS rows of x. */
__host__ __device__ static inline uint32_t mixed_float_blocks(int64_t n_out)
{
    return (uint32_t) ((n_out + MIXED_WARPS - 1) / MIXED_WARPS);
}

enum { MIXED_AHEAD = 16 /* values of W that a lane loads before it uses them */ };

/* Loads the lane's next MIXED_AHEAD values of a row of W of n values, from column i on; past the end zeros. */
PI_FN void load_ahead(const float *w, int32_t i, int32_t n, float (&v)[MIXED_AHEAD])
{
#pragma unroll
    for (int k = 0; k < MIXED_AHEAD; k++) v[k] = i + 32 * k < n ? w[i + 32 * k] : 0.0f;
}

/* Multiplies the warp's row of an F32 matrix by up to FLOAT_ROWS rows of x. `block` is the block's index within the
 * matrix; after each mixed_float_blocks() blocks come the next FLOAT_ROWS rows of x. Each lane adds the columns of
 * float_rows() in its order, but keeps more loads of W in flight. The first loads overlap the kernel that computes x. A
 * warp reads 4 bytes of x for each product, so more than 8 rows of x go to additional blocks. Example: 128 rows of W
 * times 32 rows of 2,816 columns read 47 MB from L2, which takes 18 us on 16 blocks and 4 us on 64. */
template <class W> PI_FN void mixed_floats(const mixed_products &p, const W &w, uint32_t block)
{
    const uint32_t blocks = mixed_float_blocks(w.n_out);
    const int32_t lane = (int32_t) threadIdx.x % 32, n_in = (int32_t) w.n_in,
                  first = (int32_t) (block / blocks) * FLOAT_ROWS;
    const int64_t o = (int64_t) (block % blocks) * MIXED_WARPS + threadIdx.x / 32;
    const bool there = o < w.n_out;
    const float *row = (const float *) (w.data + (there ? (size_t) o * w.shape.tile_bytes : 0)),
                factor = w.scale ? *w.scale : 1.0f;
    float v[MIXED_AHEAD];
    load_ahead(row, lane, n_in, v);
    ptx_wait_grids();
    if (!there) return;
    const float *x = p.floats + (int64_t) first * n_in;
    const int n = min((int) FLOAT_ROWS, p.n_rows - first);
    float acc[FLOAT_ROWS] = {};
#pragma unroll 1
    for (int32_t i = lane; i < n_in; i += 32 * MIXED_AHEAD) {
        float next[MIXED_AHEAD];
        load_ahead(row, i + 32 * MIXED_AHEAD, n_in, next);
#pragma unroll
        for (int r = 0; r < FLOAT_ROWS; r++) {
            if (r >= n) break;
#pragma unroll
            for (int k = 0; k < MIXED_AHEAD; k++)
                if (i + 32 * k < n_in) acc[r] = fmaf(v[k], x[r * n_in + i + 32 * k], acc[r]);
        }
#pragma unroll
        for (int k = 0; k < MIXED_AHEAD; k++) v[k] = next[k];
    }
#pragma unroll
    for (int r = 0; r < FLOAT_ROWS; r++) {
        if (r >= n) break;
        const float sum = warp_sum(acc[r]);
        if (lane == 0) w.y[(first + r) * w.ldy + o] = sum * factor;
    }
}

/* Packs a block's share s of the side input b. scratch: MIXED_WARPS floats for open_row(), then as many for
 * put_halves(). */
PI_FN void pack_side_input(const pi__k_side_input &b, tail_share s, int32_t n_rows, float *scratch)
{
    uint16_t *words = (uint16_t *) b.halves;
    float *factor = (float *) ((char *) b.halves + w16_rows_bytes(n_rows, b.n_in));
    share_rows(s, n_rows, false, [&](int32_t row, row_share of) {
        const input_row in = open_row(b.in, row, b.n_in, true, scratch);
        put_halves(in, row, b.n_in, true, b.bf16, of, words, factor, scratch + MIXED_WARPS);
    });
}

/* Runs the epilogue: its own rows, routes, and the side input. shared: shared memory for the largest of these. Called
 * by all threads of all blocks. */
PI_CALL void run_mixed_tail(const mixed_products &p, unsigned char *shared)
{
    const pi__k_tail &t = p.tail;
    const pi__k_expert_choice &choice = p.choice;
    float *scratch = (float *) shared;
    const uint32_t total = blocks_of_launch(), inputs = p.beside.halves ? 2 : 1;
    const uint32_t work = inputs * (uint32_t) t.n_rows + (t.routes.n_rows > 0);
    const uint32_t most = t.qkv.n_tokens ? blocks_that_stay(t) : blocks_for(work, t.waits);
    tail_share s = arrive_of(t.arrived, total, min(most, total), t.waits.stuck, (uint32_t *) (scratch + 96));
    if (!s.parts) return;
    /* The last staying block computes the routes. If it is the only one, it continues with the rows. */
    if (t.routes.n_rows && s.part == s.parts - 1) {
        if (choice.r.n_rows) choose_all(choice, t.routes, shared);
        else route_all(t.routes, shared);
        __syncthreads();
    }
    if (t.routes.n_rows && s.parts > 1 && s.part == --s.parts) return;
    const bool apart = p.beside.halves && s.parts > t.n_rows; /* some blocks have no row of their own */
    if (t.n_rows && (!apart || s.part < t.n_rows)) do_share(t, {s.part, apart ? t.n_rows : s.parts}, scratch, false);
    if (apart && s.part >= t.n_rows)
        pack_side_input(p.beside, {s.part - t.n_rows, s.parts - t.n_rows}, t.n_rows, scratch);
    if (p.beside.halves && !apart) pack_side_input(p.beside, s, t.n_rows, scratch);
}

/* Multiplies all matrices of the launch by x, then runs the epilogue. Grid: x = blocks of `latent`, then the blocks of
 * each matrix. NT: groups of 8 rows of x, as in w16_few(); 1 if all matrices are F32, for any number of rows. */
template <int R, int NT> __global__ void __launch_bounds__(THREADS, 1) mixed(PI_CONSTANT mixed_products p)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    /* Find the matrix of this block. */
    int i = 0;
    while (i + 1 < p.n && blockIdx.x >= p.w[i + 1].first) i++;
    const auto &w = p.w[i];
    const uint32_t block = blockIdx.x - w.first;
    const bool latent = blockIdx.x < p.n_latent;
    /* tiles of 16 rows of W per block; first row of W of this block */
    const int32_t tiles = w.type == PI__F16 || w.type == PI__BF16 ? 1 : R, first = (int32_t) block * tiles * 16;
    const int32_t columns = min(tiles * 16, (int32_t) w.n_out - first);
    if (p.streams.n_rows) prefetch_weights(p.streams, first, columns);
    if (latent) {
        ptx_wait_grids();
        latent_block(p.latent, (int32_t) (blockIdx.x / (uint32_t) p.latent.all),
                     (int32_t) (blockIdx.x % (uint32_t) p.latent.all), raw);
    }
    /* Multiply: one kernel body per type. */
    if (!latent) switch (w.type) {
#define RUN(t)                                                                                                         \
    case PI__##t: w16_tiles<PI__##t, NT, R>(w.shape, w, (int32_t) block * R, p.x, p.factor, p.n_rows, raw); break;
            W16_TYPES(RUN)
#undef RUN
    case PI__F16: mma16_few<PI__F16, NT>(w, w.shape.tile_bytes, w.n_in, block, p.terms, p.n_rows, raw); break;
    case PI__BF16: mma16_few<PI__BF16, NT>(w, w.shape.tile_bytes, w.n_in, block, p.terms, p.n_rows, raw); break;
    default: mixed_floats(p, w, block);
    }
    /* Epilogue: the residual streams, or rows, routes and side input. */
    if (p.streams.n_rows) {
        add_results(p.streams, p.tail.sum, p.tail.add[0], first, columns, (float4 *) raw);
        read_streams(p.streams, p.tail, p.smem_copy, raw);
    } else if (p.tail.arrived) {
        run_mixed_tail(p, raw);
    }
}

} /* namespace mixed */

#endif
