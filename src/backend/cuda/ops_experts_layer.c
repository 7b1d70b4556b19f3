/* Op experts_layer: a layer of routed experts with its router, shared expert and residual add, in fewer launches than
 * the ops that it replaces (pi__experts_layer), and with bitwise identical results. With few rows, and matrices of
 * types that one launch can mix (ops.c):
 *
 *     launch                          epilogue
 *     router, shared gate and up      routes; packs the input of the shared down, and of experts that read FP4 or FP8
 *     gate and up of the experts      their activation
 *     down of the experts, and        sums, residual add; packs the next op's input (fuse.c)
 *     shared down
 *
 * The last launch is two launches if the products of the experts are not in 16-bit floats.
 *
 * Otherwise the router has its own launch, its routes may have another one, and the shared expert has more.
 *
 * Memory: the backend's scratch and the op's scratch arrays. The step thread. */
#include "backend/cuda/impl.h"

#include "formats/formats.h"

pi__linear pi__cuda_layer_reads(const pi__experts_layer *a)
{
    return (pi__linear) {.in = a->moe.in, .n_rows = a->moe.n_rows, .n_lin = 3,
                         .lin = {{a->router, NULL, 0}, {a->gate, NULL, 0}, {a->up, NULL, 0}}};
}

/* Returns the linear that computes the logits of the router, followed by the value of the shared expert's gate. */
static pi__linear logits_of(const pi__experts_layer *a)
{
    const int64_t ld = a->moe.ldl;
    return (pi__linear) {.in = a->moe.in, .n_rows = a->moe.n_rows, .n_lin = a->beside ? 2 : 1,
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

/* Runs the ops that experts_layer replaces, one by one. */
static void one_by_one(pi__backend *be, const pi__batch *b, const pi__experts_layer *a)
{
    const int64_t n = a->down->n_out;
    const pi__linear logits = logits_of(a), first = shared_gate_up(a), last = shared_down(a);
    pi__moe moe = a->moe;
    moe.logits = a->logits;
    be->ops->linear(be, NULL, &logits);
    be->ops->moe(be, b, &moe);
    be->ops->linear(be, NULL, &first);
    be->ops->linear(be, NULL, &last);
    if (a->beside)
        be->ops->add_gated(be, NULL,
                           &(pi__add_gated) {.y = moe.y,
                                             .x = a->shared,
                                             .gate = a->logits + moe.n_expert,
                                             .ldg = moe.ldl,
                                             .n_rows = moe.n_rows,
                                             .n = n});
    float *x = a->x ? a->x : a->shared;
    be->ops->add_norm(be, NULL, &(pi__add_norm) {.x = x, .y = moe.y, .scale = 1.0f, .n_rows = moe.n_rows, .n = n});
    if (!a->beside && a->x)
        be->ops->add_norm(be, NULL,
                          &(pi__add_norm) {.x = a->x, .y = a->shared, .scale = 1.0f, .n_rows = moe.n_rows, .n = n});
}

/* Makes the linear the pending launch. */
static void hold(pi__cuda *c, const pi__linear *a)
{
    c->held.id = PI__OP_linear;
    c->held.streams.posts = false;
    c->held.of.linear = *a;
}

/* Queues the router with the routes. If possible, the same launch computes the shared expert's gate and up, and packs
 * the input of its down, described by *ready. Returns false if the shared gate and up are not queued yet. The router's
 * results are bitwise identical for few and for many rows. */
static bool first_half(pi__cuda *c, const pi__experts_layer *a, cuda_moe *at, cuda_packed_x *ready)
{
    const pi__linear logits = logits_of(a), first = shared_gate_up(a), last = shared_down(a);
    pi__linear all = logits;
    all.lin[all.n_lin++] = first.lin[0];
    all.lin[all.n_lin++] = first.lin[1];
    const bool half = all.n_rows <= PI__K_MIXED_ROWS && pi__cuda_has_routes(c, &all, a->moe.n_expert);
    hold(c, half ? &all : &logits);
    return pi__cuda_route(c, &a->moe, at, half ? &last : NULL, half ? ready : NULL) && half;
}

void pi__cuda_experts_layer(pi__backend *be, const pi__batch *b, const pi__experts_layer *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const pi__linear last = shared_down(a);
    pi__moe moe = a->moe;
    cuda_moe at;
    cuda_packed_x ready;
    moe.logits = a->logits;
    if (moe.n_rows < 1) return;
    if (!c->fuses || c->joined || c->disabled.many_rows) {
        one_by_one(be, b, a);
        return;
    }
    if (!pi__cuda_moe_at(c, b, &moe, &at)) return;
    const bool half = first_half(c, a, &at, &ready);
    pi__k_sum sum = pi__cuda_sum_of(&moe, &at);
    if (a->beside) sum.shared = a->shared, sum.gate = a->logits + moe.n_expert, sum.ldg = moe.ldl;
    const bool downs = half && pi__cuda_fits_down_launch(c, &last) && pi__cuda_gate_up_for(c, &moe, &at, &c->held.down);
    if (!downs) pi__cuda_gate_up_down(c, &moe, &at);
    if (half) {
        c->ready = ready;
        hold(c, &last);
        c->held.downs = downs;
    } else { /* through fuse.c: with few rows, the launch of `first` packs the input of `last` */
        const pi__linear first = shared_gate_up(a);
        hold(c, &first);
        be->ops->linear(be, NULL, &last);
    }
    (void) pi__cuda_hold_sum(c, &sum);
    float *x = a->x ? a->x : a->shared;
    pi__cuda_hold_add(c, &(pi__k_add) {.x = x, .y = moe.y, .scale = 1.0f, .n = a->down->n_out}, moe.n_rows);
    if (!a->beside && a->x)
        pi__cuda_hold_add(c, &(pi__k_add) {.x = a->x, .y = a->shared, .scale = 1.0f, .n = a->down->n_out}, moe.n_rows);
}
