/* Launches of kernels/mixed_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/kernels_mixed.h"
#include "backend/cuda/launch.cuh"
#include "mixed_kernels.cuh"

using namespace mixed;

/* Assigns blocks to each matrix, in order, after the p.n_latent blocks for latent attention. Sets w[i].first, the first
 * block of matrix i. A block has `tiles` tiles of 16 rows of W for packed types, one tile for F16 and BF16. Returns the
 * number of blocks. */
static unsigned share(mixed_products &p, int64_t tiles)
{
    unsigned blocks = p.n_latent;
    for (int i = 0; i < p.n; i++) {
        const unsigned groups = (unsigned) ((p.n_rows + FLOAT_ROWS - 1) / FLOAT_ROWS);
        p.w[i].first = blocks;
        if (p.w[i].type == PI__F32) blocks += groups * mixed_float_blocks(p.w[i].n_out);
        else if (pi__k_mma16_has(p.w[i].type, p.w[i].n_in)) blocks += (unsigned) ((p.w[i].n_out + 15) / 16);
        else blocks += (unsigned) ((p.w[i].n_out + 16 * tiles - 1) / (16 * tiles));
    }
    return blocks;
}

/* Returns the bytes of shared memory that a block needs for a matrix of this type. */
template <int R, int NT> static size_t bytes_for(int32_t type)
{
    switch (type) {
#define RUN(t) case PI__##t: return w16_stream<PI__##t, NT, R>::bytes();
        W16_TYPES(RUN)
#undef RUN
    case PI__F32: return 0;
    default: return sums_bytes<NT>;
    }
}

/* Launches `blocks` blocks. bytes: shared memory for residual streams and latent attention. */
template <int R, int NT> static int run(void *stream, mixed_products &p, unsigned blocks, size_t bytes)
{
    if (p.tail.routes.n_rows && bytes < route_bytes(p.tail.routes)) bytes = route_bytes(p.tail.routes);
    for (int i = 0; i < p.n; i++)
        if (bytes < bytes_for<R, NT>(p.w[i].type)) bytes = bytes_for<R, NT>(p.w[i].type);
    if (p.streams.n_rows) bytes = max(bytes, (size_t) (R * p.n_rows) * PI__K_HYPER_PART * PI__STREAMS * sizeof(float));
    else if (p.tail.arrived) bytes = tail_bytes(p.tail, MIXED_WARPS, bytes);
    return pi_launch_dependent(stream, mixed::mixed<R, NT>, dim3(blocks), dim3(THREADS), bytes, p);
}

/* True if the epilogue's rows and routes are within the limits of these kernels. */
static bool is_tail(const pi__k_tail &t)
{
    const pi__k_routes &r = t.routes;
    if (t.n_rows > PI__K_TAIL_ROWS) return false;
    return !r.n_rows ||
           (r.n_rows <= PI__K_ROUTER_ROWS && r.n_used > 0 && r.n_used <= r.n_expert && r.n_expert <= PI__MAX_EXPERTS);
}

/* Adds residual streams k to the launch p, which must have w as its only matrix; sets `bytes` to the shared memory that
 * the streams need. Returns false if the combination is not supported. */
static bool take_streams(mixed_products &p, const pi__k_streams &k, const pi__k_product &w, size_t &bytes)
{
    const pi__k_tail &t = p.tail;
    const pi__k_add &a = t.add[0];
    const bool sums = t.sum.n_used;
    if (!t.arrived || p.n != 1 || p.n_latent || p.beside.halves || p.choice.r.n_rows || t.routes.n_rows ||
        t.qkv.n_tokens)
        return false;
    if (p.n_rows > PI__K_MIXED_ROWS || w.w.type == PI__F32 || w.ldy != k.n || w.w.n_out != k.n ||
        k.n % PI__K_HYPER_PART)
        return false;
    if (k.n_rows != p.n_rows || k.result != w.y || !k.w || !k.y || !streams_read(k, t)) return false;
    if (sums != (a.x != nullptr) || t.add[1].x || (sums && (a.x != w.y || a.y != t.sum.y || a.w || a.bias || a.fresh)))
        return false;
    if (sums && (t.sum.shared || t.sum.bias || t.sum.n != k.n || t.sum.n_rows != p.n_rows)) return false;
    const size_t row = (size_t) k.n * sizeof(float), smem_copy = row <= HYPER_SMEM_COPY ? row : 0;
    p.streams = k;
    p.smem_copy = smem_copy > 0;
    bytes = HYPER_ROW * sizeof(float) + smem_copy;
    return true;
}

int pi__k_mixed_linear_more(void *stream, const pi__k_product *w, int32_t n, const void *halves, const float *floats,
                            int32_t n_rows, const pi__k_tail *t, const pi__k_mixed_more *more)
{
    const pi__k_expert_choice *choice = more->choice;
    const pi__k_side_input *beside = more->beside;
    size_t bytes = 0;
    if (n_rows < 1 || n < 1) return 0;
    if ((choice && (!t || !choice_is_right(*choice))) || (beside && (!t || t->n_rows != n_rows))) return 1;
    mixed_products p = {
        (const uint4 *) halves, nullptr, floats, (const uint8_t *) floats, n_rows, n, {}, {}, {}, {}, {}, 0, {}, 0};
    if (t) p.tail = *t;
    if (beside) p.beside = *beside;
    if (more->latent && !latent_blocks_of(*more->latent, p.latent, bytes)) return 1;
    p.n_latent = (uint32_t) (p.latent.n_tokens * p.latent.all);
    if (choice) p.choice = *choice, p.tail.routes = routes_by_table(*choice);
    if (n > PI__K_MAX_MIXED || n_rows > PI__K_ROUTER_ROWS || !is_tail(p.tail)) return 1;
    if (more->streams && !take_streams(p, *more->streams, w[0], bytes)) return 1;
    /* like: packed format of `halves` (0 = F16, 1 = BF16). other: type of the matrices that read `floats`: F32, F16 or
     * BF16. All matrices that read the same input must agree; -1 = no matrix so far */
    int32_t like = -1, other = -1;
    for (int i = 0; i < n; i++) {
        const pi__k_matrix &m = w[i].w;
        if (m.type == PI__F32 || pi__k_mma16_has(m.type, m.n_in)) {
            if ((other >= 0 && other != m.type) || (m.type != PI__F32 && n_rows > PI__K_MIXED_ROWS)) return 1;
            other = m.type;
        } else {
            if (!pi__k_w16_has(m.type) || n_rows > PI__K_MIXED_ROWS || (like >= 0 && like != pi__k_w16_input(m.type)))
                return 1;
            like = pi__k_w16_input(m.type);
            p.factor = (const float *) ((const char *) halves + w16_rows_bytes(n_rows, m.n_in));
        }
        p.w[i] = {m.shape, m.data, m.scale, w[i].y, w[i].ldy, m.n_in, m.n_out, m.type, 0};
    }
    const unsigned blocks = share(p, W16_TILES);
    const bool groups = like >= 0 || other != PI__F32; /* some matrix has blocks that process all rows */
    if (n_rows > 16 && groups) return run<W16_TILES, 4>(stream, p, blocks, bytes);
    if (n_rows > 8 && groups) return run<W16_TILES, 2>(stream, p, blocks, bytes);
    if (blocks - p.n_latent >= W16_MIN_BLOCKS) return run<W16_TILES, 1>(stream, p, blocks, bytes);
    const unsigned twice = share(p, 2);
    if (twice - p.n_latent >= W16_MIN_BLOCKS) return run<2, 1>(stream, p, twice, bytes);
    return run<1, 1>(stream, p, share(p, 1), bytes);
}

int pi__k_mixed_linear(void *stream, const pi__k_product *w, int32_t n, const void *halves, const float *floats,
                       int32_t n_rows, const pi__k_tail *t)
{
    const pi__k_mixed_more none = {};
    return pi__k_mixed_linear_more(stream, w, n, halves, floats, n_rows, t, &none);
}
