/* Launches of kernels/hilo_kernels.cuh (see kernels.h), one block per row. Packed x: [hi, lo][n_rows, n_in] 16-bit
 * floats, then [n_rows] float factors. BF16 rows have factor 1, so without w->scale nothing is left to finish. */
#include "backend/cuda/launch.cuh"
#include "hilo_kernels.cuh"

using namespace hilo;

size_t pi__k_hilo_bytes(int32_t n_rows, int64_t n_in) { return (size_t) n_rows * (size_t) (n_in + 1) * 4; }

int pi__k_hilo_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    if (n_rows < 1) return 0;
    return pi_launch_dependent(stream, hilo_prepare, dim3((unsigned) n_rows), dim3(THREADS), THREADS / 8, *in,
                               type == PI__BF16, n_rows, n_in, (uint16_t *) prepared);
}

int pi__k_hilo_finish(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    if (n_rows < 1 || (w->type == PI__BF16 && !w->scale)) return 0;
    const float *factor = (const float *) ((const uint16_t *) prepared + 2 * n_rows * w->n_in);
    return pi_launch_dependent(stream, hilo_finish, dim3((unsigned) n_rows), dim3(THREADS), 0, factor, w->scale, y, ldy,
                               w->n_out);
}
