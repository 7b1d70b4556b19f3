/* Launches that do the work of several ops. Graphs call one op after the other; the device need not have a launch for each. What
 * needs whole rows of a launch's results is its tail (kernels/tail.cuh):
 *
 *     launch                 its tail
 *     linear                 add_norm: residual, norm; and the input of the next linear: norm or gate, rounding
 *     linear                 qkv: heads, and their write to the cache
 *     attention, gdn         the input of the next linear: rounding
 *
 * So a dense layer with few rows is five launches: q, k, v; attention; output; gate and up; down. One more where matrices
 * with the same input have two types, and one where keys are split over blocks.
 *
 * A linear is held until the next op is known, and so are attention, gdn and an add_norm. What follows becomes the tail, as
 * far as the launch can have it: up to PI__K_TAIL_ROWS rows, of matrices in packed formats. Else what is held is queued as it
 * is, but for the residual and the next input, which are one launch for any number of rows. Bits are the same in every case.
 *
 * Held is at most one launch and an add_norm behind it, in the order in which they were called; whatever else comes to the
 * device has them queued first. Memory: none. Threads: the step thread. */
#include "backend/cuda/impl.h"

#include "formats/formats.h"

static uint32_t *counter(const pi__cuda *c) { return (uint32_t *) (void *) (c->scratch + c->at.arrived); }

/* Where the input of these matrices goes in each form, if the kernels of a tail have it. */
static void add_targets(const pi__cuda *c, const pi__linear *next, pi__k_tail *t)
{
    void *const prepared = c->scratch + c->at.prepared, *const floats = c->scratch + c->at.floats;
    for (int32_t i = 0; i < next->n_lin; i++) {
        const int32_t type = pi__cuda_packed_type(next->lin[i].w->type);
        const int form = pi__cuda_linear_form(c, type, next);
        if (form == PI__FORM_FLOATS) t->floats = floats;
        if (t->integers || t->halves) continue; /* these have the same place */
        if (form == PI__FORM_INTEGERS) t->integers = prepared;
        if (form == PI__FORM_W16) t->halves = prepared, t->bf16 = pi__k_w16_input(type);
    }
}

/* What is to be done behind the held launch; false: nothing. next: the linear that comes, or NULL. */
static bool tail_of(const pi__cuda *c, const cuda_held *h, const pi__linear *next, pi__k_tail *t)
{
    *t = (pi__k_tail) {.arrived = counter(c)};
    if (h->adds) {
        t->n_rows = h->add.n_rows;
        t->x = h->add.x, t->y = h->add.y, t->w = h->add.w;
        t->eps = h->add.eps, t->scale = h->add.scale, t->n = h->add.n;
    }
    if (next && (!h->adds || next->n_rows == h->add.n_rows)) {
        t->n_rows = next->n_rows;
        t->in = pi__cuda_input(&next->in);
        t->n_in = next->lin[0].w->n_in;
        add_targets(c, next, t);
    }
    return t->x || t->integers || t->floats || t->halves;
}

/* The launch of the linear's last matrices can have a tail. */
static bool has_tail(const pi__cuda *c, const pi__linear *a)
{
    const int form = pi__cuda_linear_form(c, pi__cuda_packed_type(a->lin[a->n_lin - 1].w->type), a);
    return a->n_rows <= PI__K_TAIL_ROWS && (form == PI__FORM_W16 || form == PI__FORM_INTEGERS);
}

/* What is held can have one. Attention and gdn have blocks of other sizes, in which a norm would have other bits; and results of
 * rotated types are not what is read. */
static bool takes_tail(const pi__cuda *c, const cuda_held *h, const pi__linear *next)
{
    if (h->id == PI__OP_linear) return has_tail(c, &h->of.linear);
    if (h->id == PI__N_OPS || !next || next->in.kind != PI__IN_PLAIN || h->adds) return false;
    if (h->id == PI__OP_attention) return !pi__kv_rotated(h->of.attention.kv->type_v);
    return pi__cuda_gdn_is_one(c, h->b, &h->of.gdn);
}

static void queue_launch(pi__cuda *c, const cuda_held *h, const pi__k_tail *then)
{
    if (h->id == PI__OP_linear) pi__cuda_queue_linear(c, &h->of.linear, then);
    if (h->id == PI__OP_attention) pi__cuda_queue_attention(c, h->b, &h->of.attention, then);
    if (h->id == PI__OP_gdn) pi__cuda_queue_gdn(c, h->b, &h->of.gdn, then);
}

static void queue_held(pi__cuda *c, const pi__linear *next)
{
    const cuda_held h = c->held;
    pi__k_tail t;
    c->held.id = PI__N_OPS;
    c->held.adds = false;
    const bool one = takes_tail(c, &h, next) && (!next || next->n_rows <= PI__K_TAIL_ROWS);
    const bool more = tail_of(c, &h, one || h.adds ? next : NULL, &t);
    queue_launch(c, &h, one && more ? &t : NULL);
    if (h.adds || next) pi__cuda_forget(c);
    if (more && !one) PI__QUEUE(c, pi__k_finish_rows(pi__rt_stream(c->rt), &t));
    if (more && (t.integers || t.floats || t.halves)) pi__cuda_has_prepared(c, &t);
}

void pi__cuda_flush(pi__cuda *c)
{
    if (c->held.id != PI__N_OPS || c->held.adds) queue_held(c, NULL);
}

/* Heads of the held linear's results are made behind it. false: it cannot. */
static bool add_heads(pi__cuda *c, const pi__batch *b, const pi__qkv *a)
{
    const cuda_held h = c->held;
    const pi__linear *l = &h.of.linear;
    if (h.id != PI__OP_linear || h.adds || b->n_tokens > PI__K_TAIL_ROWS || !has_tail(c, l)) return false;
    const pi__k_tail t = {.arrived = counter(c), .n_rows = b->n_tokens, .qkv = pi__cuda_heads(c, b, a)};
    c->held.id = PI__N_OPS;
    pi__cuda_queue_linear(c, l, &t);
    pi__cuda_forget(c);
    return true;
}

static void add_residual(pi__cuda *c, const pi__add_norm *a)
{
    const bool behind = c->held.id == PI__OP_linear && !c->held.adds && c->held.of.linear.n_rows == a->n_rows;
    if (!behind) pi__cuda_flush(c);
    c->held.adds = true;
    c->held.add = *a;
}

static bool hold_linear(pi__cuda *c, const pi__linear *a)
{
    if (c->without.many_rows && a->n_rows > PI__CUDA_FEW_ROWS) {
        pi__cuda_flush(c);
        return false;
    }
    queue_held(c, a);
    c->held.id = PI__OP_linear;
    c->held.of.linear = *a;
    return true;
}

bool pi__cuda_hold(pi__cuda *c, pi__op_id id, const pi__batch *b, const void *args)
{
    const bool fuses = c->fuses && !c->joined; /* others would queue all-gathers behind the backend's back */
    if (fuses && id == PI__OP_linear) return hold_linear(c, args);
    if (fuses && id == PI__OP_qkv && add_heads(c, b, args)) return true;
    if (fuses && id == PI__OP_add_norm) {
        add_residual(c, args);
        return true;
    }
    if (fuses && id == PI__OP_experts_layer) { /* not held, but its input is prepared with what was */
        const pi__linear reads = pi__cuda_layer_reads(args);
        queue_held(c, &reads);
        return false;
    }
    if (id == PI__OP_experts_layer) pi__cuda_forget(c);
    pi__cuda_flush(c);
    const bool stays = b == &c->batch[0].host || b == &c->batch[1].host; /* the batch */
    if (!fuses || !stays || (id != PI__OP_attention && id != PI__OP_gdn) || b->n_tokens > PI__K_TAIL_ROWS) return false;
    pi__cuda_forget(c);
    c->held.id = id;
    c->held.b = b;
    if (id == PI__OP_attention) c->held.of.attention = *(const pi__attention *) args;
    else c->held.of.gdn = *(const pi__gdn *) args;
    return true;
}
