/* Launches of kernels/wgmma_kernels.cuh: variant, grid, shared memory (see kernels.h). Grid: x = WGMMA_GROUPS * 8 rows
 * of x, y = 64 * TEAMS rows of W. A team is a warpgroup (128 threads) that multiplies 64 rows of W. */
#include "backend/cuda/launch.cuh"
#include "wgmma_kernels.cuh"

template <int TYPE, int TEAMS> static int run(void *stream, w16_products &p, unsigned blocks)
{
    using S = wgmma_shape<TYPE, TEAMS>;
    const unsigned columns = (unsigned) ((p.n_rows + WGMMA_GROUPS * 8 - 1) / (WGMMA_GROUPS * 8));
    return pi_launch_dependent(stream, w16_wgmma<TYPE, TEAMS>, dim3(columns, blocks), dim3(S::THREADS), S::BYTES, p);
}

/* Assigns blocks to each matrix, in order; a block has 64 * teams rows of W. Sets w[i].first, the first block of matrix
 * i. Returns the number of blocks. */
static unsigned share(w16_products &p, int64_t teams)
{
    unsigned blocks = 0;
    for (int i = 0; i < p.n; i++) {
        p.w[i].first = blocks;
        blocks += (unsigned) ((p.w[i].n_out + 64 * teams - 1) / (64 * teams));
    }
    return blocks;
}

/* Uses two teams per block if blocks with the max number of teams would leave SMs idle. */
template <int TYPE> static int run_type(void *stream, w16_products &p, int32_t n_sm)
{
    constexpr int MOST = wgmma_most_teams<TYPE>();
    const int64_t columns = (p.n_rows + WGMMA_GROUPS * 8 - 1) / (WGMMA_GROUPS * 8);
    const unsigned blocks = share(p, MOST);
    return blocks * columns >= n_sm ? run<TYPE, MOST>(stream, p, blocks) : run<TYPE, 2>(stream, p, share(p, 2));
}

int pi__k_wgmma_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                       int32_t n_sm)
{
    if (n_rows < 1 || n < 1) return 0;
    if (n > PI__K_MAX_LINEAR) return 1;
    const char *factors = (const char *) prepared + w16_rows_bytes(n_rows, w->w.n_in);
    w16_products p = {w->w.shape, (const uint4 *) prepared, (const float *) factors, n_rows, n, {}, {}, {}};
    for (int i = 0; i < n; i++) p.w[i] = {w[i].w.data, w[i].w.scale, w[i].y, w[i].ldy, w[i].w.n_out, 0, w[i].add};
    switch (w->w.type) {
#define RUN(t) case PI__##t: return run_type<PI__##t>(stream, p, n_sm);
        W16_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}
