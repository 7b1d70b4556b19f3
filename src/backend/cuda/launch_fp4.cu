/* Launches of kernels/fp4_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "fp4_kernels.cuh"

size_t pi__k_fp4_prepared_bytes(int32_t n_rows, int64_t n_in)
{
    return chunks_bytes(n_rows, n_in) + (size_t) ((n_rows + 7) / 8) * 8 * sizeof(float);
}

int pi__k_fp4_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    if (n_rows < 1) return 0;
    auto kernel = type == PI__NVFP4 ? fp4_prepare<PI__NVFP4> : fp4_prepare<PI__MXFP4>;
    uint8_t *chunks = (uint8_t *) prepared;
    return pi_launch(stream, kernel, dim3((unsigned) ((n_rows + 7) / 8 * 8)), dim3(THREADS), THREADS / 4, *in, n_rows, n_in,
                     chunks, (float *) (chunks + chunks_bytes(n_rows, n_in)));
}

template <int TYPE> static int run_fp4(void *stream, const fp4_product &p)
{
    constexpr int NT = 4;
    unsigned tiles = (unsigned) ((p.w.n_out + 15) / 16);
    if (p.n_rows <= 8) return pi_launch(stream, fp4_few_rows<TYPE, 1>, dim3(tiles), dim3(THREADS), sums_bytes<1>, p);
    if (p.n_rows <= NT * 8) return pi_launch(stream, fp4_few_rows<TYPE, NT>, dim3(tiles), dim3(THREADS), sums_bytes<NT>, p);
    dim3 grid((unsigned) ((p.n_rows + FP4_GROUPS * 8 - 1) / (FP4_GROUPS * 8)), (tiles + FP4_WARPS - 1) / FP4_WARPS);
    return pi_launch(stream, fp4_many_rows<TYPE>, grid, dim3(THREADS), pipe_bytes<FP4_STAGES>(fp4_stage_bytes(p.w.shape)), p);
}

int pi__k_fp4_linear(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    if (n_rows < 1) return 0;
    const uint8_t *chunks = (const uint8_t *) prepared;
    fp4_product p = {*w, chunks, (const float *) (chunks + chunks_bytes(n_rows, w->n_in)), y, ldy, n_rows};
    switch (w->type) {
    case PI__NVFP4: return run_fp4<PI__NVFP4>(stream, p);
    case PI__MXFP4: return run_fp4<PI__MXFP4>(stream, p);
    default: return 1;
    }
}
