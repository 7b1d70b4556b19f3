/* Launches of kernels/rows_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "rows_kernels.cuh"

static dim3 rows_grid(int32_t n) { return dim3((unsigned) n); }

int pi__k_add_norm(void *stream, float *x, const float *y, const float *w, float eps, float scale, int32_t n_rows, int64_t n)
{
    if (n_rows < 1) return 0;
    return pi_launch(stream, add_norm, rows_grid(n_rows), dim3(ROW_THREADS), ROW_THREADS / 8, x, y, w, eps, scale, n);
}

int pi__k_norm(void *stream, float *out, int64_t ldo, const float *x, const float *w, float eps, int32_t n_rows, int64_t n)
{
    if (n_rows < 1) return 0;
    return pi_launch(stream, norm, rows_grid(n_rows), dim3(ROW_THREADS), ROW_THREADS / 8, out, ldo, x, w, eps, n);
}

int pi__k_rope(void *stream, const int32_t *pos, int32_t n_tokens, const float *freq, int32_t n_freq, float mscale,
               float *table)
{
    if (n_tokens < 1) return 0;
    dim3 grid((unsigned) n_tokens, (unsigned) (n_freq + 127) / 128);
    return pi_launch(stream, rope, grid, dim3(128), 0, pos, freq, n_freq, mscale, table);
}

int pi__k_gather_rows(void *stream, const float *x, const int32_t *row, int32_t n_rows, int64_t n, float *out)
{
    if (n_rows < 1) return 0;
    return pi_launch(stream, gather_rows, rows_grid(n_rows), dim3(ROW_THREADS), 0, x, row, n, out);
}

int pi__k_spread(void *stream, const float *x, int64_t step, int64_t ldx, int32_t n_parts, int32_t n_rows, int64_t n, float *y,
                 int64_t ldy)
{
    if (n_rows < 1) return 0;
    return pi_launch(stream, spread, rows_grid(n_rows), dim3(ROW_THREADS), 0, x, step, ldx, n_parts, n, y, ldy);
}

int pi__k_softcap(void *stream, float *x, float cap, size_t n)
{
    if (!n) return 0;
    size_t blocks = (n + ROW_THREADS - 1) / ROW_THREADS;
    return pi_launch(stream, softcap, dim3((unsigned) (blocks < 4096 ? blocks : 4096)), dim3(ROW_THREADS), 0, x, cap, n);
}

int pi__k_add_gated(void *stream, float *y, const float *x, const float *gate, int64_t ldg, int32_t n_rows, int64_t n)
{
    if (n_rows < 1) return 0;
    return pi_launch(stream, add_gated, rows_grid(n_rows), dim3(ROW_THREADS), 0, y, x, gate, ldg, n);
}
