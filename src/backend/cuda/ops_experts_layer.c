/* A layer of experts with its router, shared expert and residual (pi__experts_layer), to the bit what the ops give that it
 * stands for, in fewer launches:
 *
 *     logits, routes       one, where rows are few and the router's matrix is F32 (kernels/moe_kernels.cuh)
 *     experts              two: gate and up, down
 *     shared expert        two, or more (fuse.c)
 *     sums, residual       one
 *
 * Memory: the backend's scratch and the op's room to work. The step thread. */
#include "backend/cuda/impl.h"

#include "formats/formats.h"

pi__linear pi__cuda_layer_reads(const pi__experts_layer *a)
{
    return (pi__linear) {.in = a->moe.in, .n_rows = a->moe.n_rows, .n_lin = 4,
                         .lin = {{a->router, NULL, 0}, {a->moe.gate, NULL, 0}, {a->gate, NULL, 0}, {a->up, NULL, 0}}};
}

/* The logits of the router, and of the shared expert's gate. */
static pi__linear logits_of(const pi__experts_layer *a)
{
    const int64_t ld = a->moe.ldl;
    return (pi__linear) {.in = a->moe.in, .n_rows = a->moe.n_rows, .n_lin = 2,
                         .lin = {{a->router, a->logits, ld}, {a->beside, a->logits + a->moe.n_expert, ld}}};
}

static pi__linear shared_gate_up(const pi__experts_layer *a)
{
    const int64_t n_ff = a->down->n_in;
    return (pi__linear) {.in = a->moe.in, .n_rows = a->moe.n_rows, .n_lin = 2,
                         .lin = {{a->gate, a->ff, 2 * n_ff}, {a->up, a->ff + n_ff, 2 * n_ff}}};
}

static pi__linear shared_down(const pi__experts_layer *a)
{
    const int64_t n_ff = a->down->n_in;
    const pi__lin_in glu = {.kind = a->moe.act, .x = a->ff, .ldx = 2 * n_ff, .x2 = a->ff + n_ff, .ldx2 = 2 * n_ff,
                            .limit = a->moe.limit};
    return (pi__linear) {.in = glu, .n_rows = a->moe.n_rows, .n_lin = 1, .lin = {{a->down, a->shared, a->down->n_out}}};
}

/* The ops that it stands for. */
static void one_by_one(pi__backend *be, const pi__experts_layer *a)
{
    const int64_t n = a->down->n_out;
    const pi__linear logits = logits_of(a), first = shared_gate_up(a), last = shared_down(a);
    pi__moe moe = a->moe;
    moe.logits = a->logits;
    be->ops->linear(be, NULL, &logits);
    be->ops->moe(be, NULL, &moe);
    be->ops->linear(be, NULL, &first);
    be->ops->linear(be, NULL, &last);
    be->ops->add_gated(be, NULL, &(pi__add_gated) {.y = moe.y, .x = a->shared, .gate = a->logits + moe.n_expert, .ldg = moe.ldl,
                                                   .n_rows = moe.n_rows, .n = n});
    be->ops->add_norm(be, NULL, &(pi__add_norm) {.x = a->x, .y = moe.y, .scale = 1.0f, .n_rows = moe.n_rows, .n = n});
}

/* Where the experts' rows go. The router's bits are the same with few rows and with many. */
static void route(pi__cuda *c, const pi__experts_layer *a, const pi__k_routes *r)
{
    const pi__linear logits = logits_of(a);
    void *stream = pi__rt_stream(c->rt);
    if (r->n_rows > PI__K_ROUTER_ROWS || a->router->type != PI__F32 || a->beside->type != PI__F32) {
        pi__cuda_queue_linear(c, &logits, NULL);
        PI__QUEUE(c, pi__k_route(stream, r));
        return;
    }
    const pi__k_input in = pi__cuda_input(&a->moe.in);
    const pi__k_router from = {
        .w = pi__cuda_matrix(a->router), .beside = pi__cuda_matrix(a->beside), .logits = a->logits,
        .x = pi__cuda_prepared(c, PI__FORM_FLOATS, &in, PI__F32, r->n_rows, a->router->n_in),
        .arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived),
    };
    PI__QUEUE(c, pi__k_route_of(stream, r, &from));
}

/* Through fuse.c: where rows are few, the first launch prepares what the last one reads. */
static void shared_expert(pi__backend *be, const pi__experts_layer *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const pi__linear last = shared_down(a);
    c->held.id = PI__OP_linear;
    c->held.of.linear = shared_gate_up(a);
    be->ops->linear(be, NULL, &last);
    pi__cuda_flush(c);
}

void pi__cuda_experts_layer(pi__backend *be, const pi__batch *b, const pi__experts_layer *a)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__moe moe = a->moe;
    cuda_moe at;
    moe.logits = a->logits;
    if (moe.n_rows < 1) return;
    if (!c->fuses || c->without.many_rows) {
        one_by_one(be, a);
        return;
    }
    if (!pi__cuda_moe_at(c, b, &moe, &at)) return;
    const pi__k_sum sum = {.x = at.h, .n = a->down->n_out, .shared = a->shared, .gate = a->logits + moe.n_expert, .ldg = moe.ldl,
                           .residual = a->x};
    route(c, a, &at.r);
    pi__cuda_gate_up_down(c, &moe, &at);
    shared_expert(be, a);
    PI__QUEUE(c, pi__k_add_experts(pi__rt_stream(c->rt), &at.r, &sum));
    pi__cuda_forget(c);
}
