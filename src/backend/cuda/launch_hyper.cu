/* Launches of kernels/hyper_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/launch.cuh"
#include "hyper_kernels.cuh"

int pi__k_hyper_pre_then(void *stream, const pi__hyper *a, const pi__k_tail *then)
{
    if (a->n_rows < 1) return 0;
    const pi__k_tail t = then ? *then : pi__k_tail{};
    const pi__k_input &in = t.in;
    if (then && (t.n_rows != a->n_rows || t.n_in != a->n || in.kind != PI__IN_RMSNORM || in.x != a->y || in.ldx != a->n || in.x2)) return 1;
    if (t.sum.n_used || t.add[0].x || t.qkv.n_tokens || t.routes.n_rows || t.fp4) return 1;
    const size_t shared = (3 * HYPER_THREADS / 32 + S) * sizeof(float); /* two sums over a row, and its largest value */
    return pi_launch_dependent(stream, hyper_pre, dim3((unsigned) a->n_rows), dim3(HYPER_THREADS), shared, *a, t);
}

int pi__k_hyper_pre(void *stream, const pi__hyper *a) { return pi__k_hyper_pre_then(stream, a, nullptr); }

int pi__k_hyper_post(void *stream, const pi__hyper *a)
{
    if (a->n_rows < 1) return 0;
    dim3 grid((unsigned) ((a->n + POST_THREADS - 1) / POST_THREADS), (unsigned) a->n_rows);
    return pi_launch_dependent(stream, hyper_post, grid, dim3(POST_THREADS), 0, *a);
}
