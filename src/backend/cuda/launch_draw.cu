/* Launches of kernels/draw_kernels.cuh and draw_row_kernels.cuh (see kernels_draw.h), one block per row. draw_tokens
 * draws from the values that topk found; then draw_rows, if a->x is set, from all logits of the rows that need them. */
#include "backend/cuda/launch.cuh"
#include "draw_kernels.cuh"
#include "draw_row_kernels.cuh"

using namespace draw;

int pi__k_draw_run(void *stream, const pi__k_draw *a)
{
    static_assert((int) MAX_KEYS == (int) PI__K_TOP, "same count as topk finds");
    if (a->n_rows < 1) return 0;
    if (a->x && (a->n < 1 || a->n > MAX_SUMS * ROW_SUM)) return 1;
    const dim3 rows((unsigned) a->n_rows);
    const int code = pi_launch_dependent(stream, draw_tokens, rows, dim3(LANES), sizeof(candidates), *a);
    return code || !a->x ? code
                         : pi_launch_dependent(stream, draw_rows, rows, dim3(ROW_THREADS), sizeof(row_board), *a);
}
