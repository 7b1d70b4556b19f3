/* Launches of kernels/linear_kernels.cuh: variant, grid, shared memory (see kernels.h).
 *
 *     pack x           one block per row, packed rows rounded up to a multiple of 8
 *     packed types     up to 8 * MAX_GROUPS rows: one block per 16 rows of W, for all rows of x; more: launch_gemm.cu
 *     F32, F16, BF16   x = FLOAT_WARPS rows of W (one per warp), y = FLOAT_ROWS rows of x
 *     embed            one block per token */
#include "backend/cuda/launch.cuh"
#include "linear_kernels.cuh"

using namespace linear;

size_t pi__k_packed_x_bytes(int32_t n_rows, int64_t n_in, int floats)
{
    if (floats) return (size_t) n_rows * (size_t) n_in * sizeof(float);
    return codes_bytes(n_rows, n_in) + (size_t) ((n_rows + 7) / 8 * (n_in / 32)) * 8 * sizeof(block_meta);
}

int pi__k_pack_x(void *stream, const pi__k_input *in, int32_t n_rows, int64_t n_in, int floats, void *prepared)
{
    if (n_rows < 1) return 0;
    uint8_t *codes = floats ? nullptr : (uint8_t *) prepared;
    block_meta *meta = floats ? nullptr : (block_meta *) (codes + codes_bytes(n_rows, n_in));
    int32_t rows = floats ? n_rows : (n_rows + 7) / 8 * 8;
    return pi_launch_dependent(stream, prepare, dim3((unsigned) rows), dim3(THREADS), THREADS / 8, *in, n_rows, n_in,
                     floats ? (float *) prepared : nullptr, codes, meta);
}

/* Max groups of 8 rows of x per launch. The variants have one group, for decode, or MAX_GROUPS, for a few drafts or
 * sequences. More rows use gemm_kernels.cuh. */
enum { MAX_GROUPS = 4 };

template <int TYPE, int NT> static int run_few(void *stream, products &p, unsigned tiles)
{
    const size_t own = slice_bytes<TYPE, NT>(p.shape),
                 bytes = p.tail.arrived ? tail_bytes(p.tail, THREADS / 32, own, ROOM_OF_TWO) : own;
    return pi_launch_dependent(stream, linear::linear<TYPE, NT>, dim3(tiles), dim3(THREADS), bytes, p);
}

template <int TYPE> static int run_packed(void *stream, products &p, unsigned tiles)
{
    return p.n_rows <= 8 ? run_few<TYPE, 1>(stream, p, tiles) : run_few<TYPE, MAX_GROUPS>(stream, p, tiles);
}

template <int TYPE> static int run_floats(void *stream, const product &p)
{
    dim3 grid((unsigned) ((p.w.n_out + FLOAT_WARPS - 1) / FLOAT_WARPS),
              (unsigned) ((p.n_rows + FLOAT_ROWS - 1) / FLOAT_ROWS));
    return pi_launch_dependent(stream, linear_floats<TYPE>, grid, dim3(FLOAT_WARPS * 32), 0, p);
}

/* Queues the product of one matrix with any number of rows. */
static int run_one(void *stream, const product &p)
{
    switch (p.w.type) {
#define RUN(t, ...) case PI__##t: return run_floats<PI__##t>(stream, p);
        FLOAT_TYPES(RUN)
#undef RUN
    default: return pi__k_gemm(stream, p);
    }
}

static bool is_packed(int32_t type)
{
    switch (type) {
#define HAS(t, ...) case PI__##t:
        PACKED_TYPES(HAS) return true;
#undef HAS
    default: return false;
    }
}

static bool is_float(int32_t type) { return type == PI__F32 || type == PI__F16 || type == PI__BF16; }

int pi__k_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows)
{
    return pi__k_linear_then(stream, w, n, prepared, n_rows, nullptr);
}

int pi__k_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                      const pi__k_tail *t)
{
    const uint8_t *codes = (const uint8_t *) prepared;
    if (n_rows < 1 || n < 1) return 0;
    if (n > PI__K_MAX_LINEAR || (t && (n_rows > PI__K_TAIL_ROWS || is_float(w->w.type)))) return 1;
    const block_meta *meta = (const block_meta *) (codes + codes_bytes(n_rows, w->w.n_in));
    if (n_rows > 8 * MAX_GROUPS || is_float(w->w.type)) {
        int code = 0;
        for (int i = 0; i < n && !code; i++) {
            code = run_one(stream, product{w[i].w, (const uint4 *) codes, meta, w[i].y, w[i].ldy, n_rows});
        }
        return code;
    }
    products p = {w->w.shape, (const uint4 *) codes, meta, n_rows, n, {}, {}};
    if (t) p.tail = *t;
    unsigned tiles = 0;
    for (int i = 0; i < n; i++) {
        p.w[i] = {w[i].w.data, w[i].w.scale, w[i].y, w[i].ldy, w[i].w.n_out, tiles};
        tiles += (unsigned) ((w[i].w.n_out + 15) / 16);
    }
    switch (w->w.type) {
#define RUN(t, ...) case PI__##t: return run_packed<PI__##t>(stream, p, tiles);
        PACKED_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}

int pi__k_embed(void *stream, const pi__k_matrix *w, const int32_t *token, int32_t n_tokens, float scale, float *out)
{
    const dim3 grid((unsigned) n_tokens), block(256);
    if (n_tokens < 1) return 0;
    if (!is_packed(w->type) && !is_float(w->type)) return 1;
    return pi_launch_dependent(stream, embed, grid, block, 0, *w, token, scale, out);
}
