/* Residual streams of DeepSeek V4: ops hyper_pre and hyper_post, and the product with the mixing matrix between them.
 * No memory of its own; the step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_hyper.h"

pi__k_streams pi__cuda_streams(const pi__cuda *c, const pi__hyper *post, const pi__linear *mix, const pi__hyper *pre)
{
    pi__k_streams k = {.sums = (float *) (void *) (c->scratch + c->at.streams),
                       .arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived) + PI__CUDA_SPLIT_COUNTERS,
                       .waits = pi__cuda_waits(c)};
    if (post) k.n_rows = post->n_rows, k.n = post->n, k.x = post->x, k.result = post->y, k.coef = post->coef;
    if (mix) {
        const pi__weight *w = mix->lin[0].w;
        k.n_rows = mix->n_rows, k.n = w->n_in / PI__STREAMS, k.x = (float *) (uintptr_t) mix->in.x;
        k.w = w->data, k.type = w->type, k.n_iter = w->n_out == PI__HYPER_MIX, k.mix = mix->lin[0].y;
    }
    if (pre) {
        k.n_rows = pre->n_rows, k.n_iter = pre->n_iter, k.n = pre->n, k.x = pre->x;
        k.mix = (float *) (uintptr_t) pre->mix, k.scale = pre->scale, k.base = pre->base;
        k.norm_eps = pre->norm_eps, k.eps = pre->eps, k.y = pre->y;
        if (pre->n_iter) k.coef = pre->coef; /* else coef belongs to `result`, or is unused */
    }
    return k;
}

void pi__cuda_queue_streams(pi__cuda *c, const pi__hyper *post, const pi__linear *mix, const pi__hyper *pre,
                            const pi__k_tail *then)
{
    const pi__k_streams k = pi__cuda_streams(c, post, mix, pre);
    PI__QUEUE(c, pi__k_streams_run(pi__rt_stream(c->rt), &k, then));
}

void pi__cuda_hyper_pre(pi__backend *be, const pi__batch *b, const pi__hyper *a)
{
    (void) b;
    pi__cuda_queue_streams((pi__cuda *) be, NULL, NULL, a, NULL);
}

void pi__cuda_hyper_post(pi__backend *be, const pi__batch *b, const pi__hyper *a)
{
    (void) b;
    pi__cuda_queue_streams((pi__cuda *) be, a, NULL, NULL, NULL);
}
