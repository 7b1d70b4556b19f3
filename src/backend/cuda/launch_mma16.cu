/* Launches of kernels/mma16_kernels.cuh: variant, grid, shared memory (see kernels.h). Packing has one block per row of
 * x, rounded up to a multiple of 8 rows. Up to 8 * FEW_GROUPS rows: one block per 16 rows of W, all matrices in one
 * launch. More rows: x = MMA16_GROUPS * 8 rows of x, y = 128 rows of W, one launch per matrix. */
#include "backend/cuda/launch.cuh"
#include "mma16_kernels.cuh"

int pi__k_mma16_has(int32_t type, int64_t n_in) { return (type == PI__F16 || type == PI__BF16) && n_in % 8 == 0; }

size_t pi__k_mma16_packed_x_bytes(int32_t type, int32_t n_rows, int64_t n_in)
{
    return mma16_bytes(type, n_rows, n_in);
}

int pi__k_mma16_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    if (n_rows < 1) return 0;
    return pi_launch_dependent(stream, mma16_prepare<pi__k_input>, dim3((unsigned) ((n_rows + 7) / 8 * 8)),
                               dim3(THREADS), THREADS / 8, *in, type, n_rows, n_in, (uint8_t *) prepared);
}

enum { FEW_GROUPS = 4 /* max groups of 8 rows in a launch of several matrices */ };

template <int TYPE>
static int run_few(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows)
{
    mma16_products p = {(const uint8_t *) prepared, w->w.n_in, n_rows, n, {}};
    unsigned blocks = 0;
    for (int32_t i = 0; i < n; i++) {
        const pi__k_matrix &m = w[i].w;
        p.w[i] = {m.data, m.shape.tile_bytes, m.scale, w[i].y, w[i].ldy, m.n_out, blocks};
        blocks += (unsigned) ((m.n_out + 15) / 16);
    }
    if (n_rows <= 8)
        return pi_launch_dependent(stream, mma16_few_rows<TYPE, 1>, dim3(blocks), dim3(THREADS), sums_bytes<1>, p);
    return pi_launch_dependent(stream, mma16_few_rows<TYPE, FEW_GROUPS>, dim3(blocks), dim3(THREADS),
                               sums_bytes<FEW_GROUPS>, p);
}

template <int TYPE> static int run_many(void *stream, const pi__k_product &w, const void *prepared, int32_t n_rows)
{
    const product p = {w.w, (const uint4 *) prepared, nullptr, w.y, w.ldy, n_rows};
    const unsigned tiles = (unsigned) ((w.w.n_out + 15) / 16);
    const dim3 grid((unsigned) ((n_rows + MMA16_GROUPS * 8 - 1) / (MMA16_GROUPS * 8)), (tiles + 7) / 8);
    return pi_launch_dependent(stream, mma16_many_rows<TYPE>, grid, dim3(THREADS),
                               pipe_bytes<MMA16_STAGES>(mma16_stage<TYPE>), p);
}

template <int TYPE>
static int run_mma16(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows)
{
    int code = 0;
    if (n_rows <= FEW_GROUPS * 8) return run_few<TYPE>(stream, w, n, prepared, n_rows);
    for (int32_t i = 0; i < n && !code; i++) code = run_many<TYPE>(stream, w[i], prepared, n_rows);
    return code;
}

int pi__k_mma16_products(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows)
{
    if (n_rows < 1 || n < 1) return 0;
    if (n > PI__K_MAX_MMA16) return 1;
    for (int32_t i = 0; i < n; i++)
        if (w[i].w.type != w->w.type || w[i].w.n_in != w->w.n_in || !pi__k_mma16_has(w->w.type, w->w.n_in)) return 1;
    if (w->w.type == PI__BF16) return run_mma16<PI__BF16>(stream, w, n, prepared, n_rows);
    return run_mma16<PI__F16>(stream, w, n, prepared, n_rows);
}

int pi__k_mma16_linear(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    const pi__k_product one = {*w, y, ldy, 0};
    return pi__k_mma16_products(stream, &one, 1, prepared, n_rows);
}
