/* Launches of kernels/rows_kernels.cuh (see kernels.h): one block of ROW_THREADS threads per row or token. Exceptions:
 * rope, with one thread per token and frequency; softcap, which treats all rows as one array. */
#include "backend/cuda/launch.cuh"
#include "rows_kernels.cuh"

using namespace rows;

static dim3 rows_grid(int32_t n) { return dim3((unsigned) n); }

int pi__k_add_norm(void *stream, const pi__add_norm *a)
{
    if (a->n_rows < 1) return 0;
    const pi__k_add add = {a->x, a->y, a->w, a->bias, a->eps, a->scale, 0, 0, a->n};
    return pi_launch_dependent(stream, add_norm, rows_grid(a->n_rows), dim3(ROW_THREADS), ROW_THREADS / 8, add);
}

int pi__k_norm(void *stream, const pi__norm *a)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, norm, rows_grid(a->n_rows), dim3(ROW_THREADS), ROW_THREADS / 8, a->out, a->ldo,
                               a->x, a->w, a->eps, a->n);
}

int pi__k_rope(void *stream, const int32_t *pos, const int32_t *rope_pos, int32_t n_tokens, const pi__rope *a)
{
    if (n_tokens < 1) return 0;
    dim3 grid((unsigned) n_tokens, (unsigned) (a->n_freq + 127) / 128);
    return pi_launch_dependent(stream, rope, grid, dim3(128), 0, pos, rope_pos, *a);
}

int pi__k_block_conv(void *stream, const pi__block_conv *a, const int32_t *seq, const int32_t *seq_start,
                     int32_t n_tokens)
{
    if (n_tokens < 1) return 0;
    return pi_launch_dependent(stream, block_conv, rows_grid(n_tokens), dim3(ROW_THREADS), 0, *a, seq, seq_start);
}

int pi__k_gather_rows(void *stream, const float *x, const int32_t *row, int32_t n_rows, int64_t n, float *out)
{
    if (n_rows < 1) return 0;
    return pi_launch_dependent(stream, gather_rows, rows_grid(n_rows), dim3(ROW_THREADS), 0, x, row, n, out);
}

int pi__k_add_rows(void *stream, const pi__add_rows *a, const int32_t *row)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, add_rows, rows_grid(a->n_rows), dim3(ROW_THREADS), 0, a->x, a->table, row, a->n);
}

int pi__k_place_rows(void *stream, const pi__place_rows *a, const int32_t *row)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, place_rows, rows_grid(a->n_rows), dim3(ROW_THREADS), 0, a->x, a->rows, a->ldr,
                               row, a->n, a->add);
}

int pi__k_copy_2d(void *stream, const pi__copy_2d *a)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, copy_2d, rows_grid(a->n_rows), dim3(ROW_THREADS), 0, a->x, a->step, a->ldx,
                               a->n_shards, a->n, a->y, a->ldy);
}

int pi__k_softcap(void *stream, const pi__softcap *a)
{
    const size_t n = (size_t) a->n_rows * (size_t) a->n, blocks = (n + ROW_THREADS - 1) / ROW_THREADS;
    if (!n) return 0;
    return pi_launch_dependent(stream, softcap, dim3((unsigned) (blocks < 4096 ? blocks : 4096)), dim3(ROW_THREADS), 0,
                               a->x, a->cap, n);
}

int pi__k_layer_norm(void *stream, const pi__layer_norm *a)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, layer_norm, rows_grid(a->n_rows), dim3(ROW_THREADS), ROW_THREADS / 8, *a);
}

int pi__k_activate(void *stream, const pi__activate *a)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, activate, rows_grid(a->n_rows), dim3(ROW_THREADS), 0, *a);
}

int pi__k_scale(void *stream, const pi__scale *a)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, scale, rows_grid(a->n_rows), dim3(ROW_THREADS), 0, *a);
}

int pi__k_add_gated(void *stream, const pi__add_gated *a)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, add_gated, rows_grid(a->n_rows), dim3(ROW_THREADS), 0, a->y, a->x, a->gate,
                               a->ldg, a->n);
}

int pi__k_gate_heads(void *stream, const pi__gate_heads *a)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, gate_heads, rows_grid(a->n_rows), dim3(ROW_THREADS), 0, *a);
}
