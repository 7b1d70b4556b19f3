/* Launches of kernels/w16_kernels.cuh: variant, grid, shared memory (see kernels.h).
 *
 *     pack x                 one block per row of x, rounded up to a multiple of 8 rows
 *     to PI__K_MMA_ROWS rows w16_few: one block per R tiles of 16 rows of W, for all rows of x
 *     more rows              w16_many: x = 128 rows of x, y = 128 rows of W, z = part of K */
#include "backend/cuda/launch.cuh"
#include "w16_kernels.cuh"

int pi__k_w16_has(int32_t type)
{
    switch (type) {
#define HAS(t) case PI__##t:
        W16_TYPES(HAS) return 1;
#undef HAS
    default: return 0;
    }
}

static bool is_bf16(int32_t type) { return type == PI__MXFP4; }
int pi__k_w16_input(int32_t type) { return is_bf16(type); }
int pi__k_w16_adds(int32_t n_rows) { return n_rows > PI__K_MMA_ROWS; }

size_t pi__k_w16_factor_bytes(int32_t n_rows) { return (size_t) ((n_rows + 7) / 8 * 8) * sizeof(float); }
size_t pi__k_w16_packed_x_bytes(int32_t n_rows, int64_t n_in)
{
    return w16_rows_bytes(n_rows, n_in) + pi__k_w16_factor_bytes(n_rows);
}

int pi__k_w16_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    if (n_rows < 1) return 0;
    return pi_launch_dependent(stream, w16_prepare<pi__k_input>, dim3((unsigned) ((n_rows + 7) / 8 * 8)), dim3(THREADS),
                               THREADS / 4, *in, n_rows, n_in, is_bf16(type), (uint16_t *) prepared,
                               (float *) ((char *) prepared + w16_rows_bytes(n_rows, n_in)));
}

/* Assigns blocks to each matrix, in order; a block has `tiles` tiles of 16 rows of W. Sets w[i].first, the first block
 * of matrix i. Returns the number of blocks. */
static unsigned share(w16_products &p, int64_t tiles)
{
    unsigned blocks = 0;
    for (int i = 0; i < p.n; i++) {
        p.w[i].first = blocks;
        blocks += (unsigned) ((p.w[i].n_out + 16 * tiles - 1) / (16 * tiles));
    }
    return blocks;
}

template <int TYPE, int NT, int R> static int run_few(void *stream, w16_products &p, unsigned blocks)
{
    const size_t own = w16_stream<TYPE, NT, R>::bytes(),
                 bytes = p.tail.arrived ? tail_bytes(p.tail, THREADS / 32, own, w16_room<NT>) : own;
    return pi_launch_dependent(stream, w16_few<TYPE, NT, R>, dim3(blocks), dim3(THREADS), bytes, p);
}

/* Uses tiles of 128 rows of W by 128 rows of x. For the choice of K parts, the tensor cores of an SM are assumed to do
 * 512 multiply-adds per clock; H100 does twice that. */
template <int TYPE> static int run_many(void *stream, const w16_products &p, unsigned blocks, const pi__k_split *split)
{
    constexpr int64_t VALUES = 16 * W16_MANY_TILES * 8 * W16_MANY_GROUPS;
    const unsigned columns = (unsigned) ((p.n_rows + W16_MANY_GROUPS * 8 - 1) / (W16_MANY_GROUPS * 8));
    const unsigned parts = (unsigned) split_parts(
        split, {(int64_t) columns * blocks, VALUES * 32 * p.shape.n_block / 512, VALUES});
    return pi_launch_dependent(stream, w16_many<TYPE>, dim3(columns, blocks, parts), dim3(THREADS),
                               pipe_bytes<W16_STAGES>(w16_stage<TYPE>::SIZE), p);
}

template <int TYPE> static int run_w16(void *stream, w16_products &p, const pi__k_split *split)
{
    unsigned blocks = share(p, p.n_rows <= PI__K_MMA_ROWS ? (int64_t) W16_TILES : (int64_t) W16_MANY_TILES);
    if (p.n_rows <= 8) {
        if (blocks >= W16_MIN_BLOCKS) return run_few<TYPE, 1, W16_TILES>(stream, p, blocks);
        if (2 * blocks >= W16_MIN_BLOCKS) return run_few<TYPE, 1, 2>(stream, p, share(p, 2));
        return run_few<TYPE, 1, 1>(stream, p, share(p, 1));
    }
    if (p.n_rows <= 16) return run_few<TYPE, 2, W16_TILES>(stream, p, blocks);
    if (p.n_rows <= 32) return run_few<TYPE, 4, W16_TILES>(stream, p, blocks);
    if (p.n_rows <= PI__K_MMA_ROWS) return run_few<TYPE, 8, W16_TILES>(stream, p, blocks);
    return run_many<TYPE>(stream, p, blocks, split);
}

static int run(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
               const pi__k_tail *t, const pi__k_split *split)
{
    if (n_rows < 1 || n < 1) return 0;
    if (n > PI__K_MAX_LINEAR || (t && n_rows > PI__K_TAIL_ROWS)) return 1;
    for (int i = 0; i < n; i++)
        if (w[i].add != 0 && !pi__k_w16_adds(n_rows)) return 1;
    const char *factors = (const char *) prepared + w16_rows_bytes(n_rows, w->w.n_in);
    w16_products p = {w->w.shape, (const uint4 *) prepared, (const float *) factors, n_rows, n, {}, {}, {}};
    if (t) p.tail = *t;
    if (split) p.split = {split->sums, split->arrived};
    for (int i = 0; i < n; i++) p.w[i] = {w[i].w.data, w[i].w.scale, w[i].y, w[i].ldy, w[i].w.n_out, 0, w[i].add};
    switch (w->w.type) {
#define RUN(t) case PI__##t: return run_w16<PI__##t>(stream, p, split);
        W16_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}

int pi__k_w16_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                          const pi__k_tail *t)
{
    return run(stream, w, n, prepared, n_rows, t, nullptr);
}

int pi__k_w16_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                           const pi__k_split *split)
{
    return run(stream, w, n, prepared, n_rows, nullptr, split);
}

int pi__k_w16_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows)
{
    return run(stream, w, n, prepared, n_rows, nullptr, nullptr);
}

/* Returns the bytes of partial sums of n_sm / 2 + 1 of the largest tiles, with two parts each: enough for every launch
 * that runs all its parts in parallel. */
size_t pi__k_split_bytes(int32_t n_sm)
{
    constexpr size_t VALUES = 16 * W16_MANY_TILES * 8 * W16_MANY_GROUPS;
    return ((size_t) n_sm / 2 + 1) * (size_t) split_entries(2) * VALUES * sizeof(float);
}
