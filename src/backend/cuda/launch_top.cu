/* Launches of kernels/top_kernels.cuh: grid, threads, shared memory (see kernels.h). Grids: group_max x = BLOCK_VALUES
 * values, y = row; exp_sums x = a range of partial sums, y = row; best x = row; best_tokens one thread per token. */
#include "backend/cuda/launch.cuh"
#include "top_kernels.cuh"

using namespace top;

size_t pi__k_top_scratch(int32_t n_rows, int64_t n)
{
    return n_rows > 0 && n > 0 ? (size_t) n_rows * room_of(n).bytes : 0;
}

int pi__k_top_run(void *stream, const pi__k_top *a)
{
    if (a->n_rows < 1 || a->k < 1 || a->n < 1) return 0;
    const room r = room_of(a->n);
    const unsigned rows = (unsigned) a->n_rows;
    const dim3 parts((unsigned) ((a->n + BLOCK_VALUES - 1) / BLOCK_VALUES), rows);
    int code = pi_launch_dependent(stream, group_max, parts, dim3(THREADS), 0, *a);
    if (!code && a->sum)
        code = pi_launch_dependent(stream, exp_sums,
                                   dim3((unsigned) (r.n_sum + THREADS / 16 - 1) / (THREADS / 16), rows), dim3(THREADS),
                                   THREADS / 8, *a);
    const int32_t some = (a->k < r.n_group ? a->k : r.n_group) * GROUP, most = some > r.n_group ? some : r.n_group;
    const unsigned threads = a->k > 1 && most > THREADS * THREAD_VALUES ? MOST : THREADS;
    return code ? code : pi_launch_dependent(stream, best, dim3(rows), dim3(threads), sizeof(board), *a);
}

int pi__k_top_tokens(void *stream, const uint64_t *found, const int32_t *row, int32_t n, int32_t *token)
{
    return n < 1 ? 0
                 : pi_launch_dependent(stream, best_tokens, dim3((unsigned) (n + 31) / 32), dim3(32), 0, found, row, n,
                                       token);
}
