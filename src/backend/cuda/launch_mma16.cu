/* Launches of kernels/mma16_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "mma16_kernels.cuh"

int pi__k_mma16_has(int32_t type, int64_t n_in) { return (type == PI__F16 || type == PI__BF16) && n_in % 8 == 0; }

size_t pi__k_mma16_prepared_bytes(int32_t type, int32_t n_rows, int64_t n_in)
{
    return mma16_bytes(type, n_rows, n_in);
}

int pi__k_mma16_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    if (n_rows < 1) return 0;
    auto kernel = type == PI__BF16 ? mma16_prepare<PI__BF16> : mma16_prepare<PI__F16>;
    return pi_launch_dependent(stream, kernel, dim3((unsigned) ((n_rows + 7) / 8 * 8)), dim3(THREADS), THREADS / 8, *in, n_rows, n_in,
                     (uint8_t *) prepared);
}

template <int TYPE> static int run_mma16(void *stream, const product &p)
{
    constexpr int NT = 4;
    unsigned tiles = (unsigned) ((p.w.n_out + 15) / 16);
    if (p.n_rows <= 8) return pi_launch_dependent(stream, mma16_few_rows<TYPE, 1>, dim3(tiles), dim3(THREADS), sums_bytes<1>, p);
    if (p.n_rows <= NT * 8) {
        return pi_launch_dependent(stream, mma16_few_rows<TYPE, NT>, dim3(tiles), dim3(THREADS), sums_bytes<NT>, p);
    }
    dim3 grid((unsigned) ((p.n_rows + MMA16_GROUPS * 8 - 1) / (MMA16_GROUPS * 8)), (tiles + 7) / 8);
    return pi_launch_dependent(stream, mma16_many_rows<TYPE>, grid, dim3(THREADS),
                     pipe_bytes<MMA16_STAGES>(mma16_stage<TYPE>), p);
}

int pi__k_mma16_linear(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    if (n_rows < 1) return 0;
    product p = {*w, (const uint4 *) prepared, nullptr, y, ldy, n_rows};
    if (!pi__k_mma16_has(w->type, w->n_in)) return 1;
    return w->type == PI__BF16 ? run_mma16<PI__BF16>(stream, p) : run_mma16<PI__F16>(stream, p);
}
