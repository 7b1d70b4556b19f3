/* Launches that do the work of several ops. Graphs call one op after the other; the device need not have a launch for each:
 *
 *     linear                 products
 *     add_norm               its tail: residual, norm           one launch (kernels/tail.cuh)
 *     linear, its input      its tail: norm or gate, rounding
 *
 * A linear is held until the next op is known, and so is an add_norm. What follows becomes the tail of the launch, as far as
 * that can have it: up to PI__K_TAIL_ROWS rows, of matrices in packed formats. Else what is held is queued as it is, but for the
 * residual and the next input, which are one launch for any number of rows. Bits are the same in every case.
 *
 * Held is at most one linear and an add_norm behind it, in the order in which they were called; whatever else comes to the
 * device has them queued first. Memory: none. Threads: the step thread. */
#include "backend/cuda/impl.h"

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

/* What is to be done behind the held linear; false: nothing. next: the linear that comes, or NULL. */
static bool tail_of(const pi__cuda *c, const cuda_held *h, const pi__linear *next, pi__k_tail *t)
{
    *t = (pi__k_tail) {.arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived)};
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

static void queue_held(pi__cuda *c, const pi__linear *next)
{
    const cuda_held h = c->held;
    pi__k_tail t;
    c->held.multiplies = c->held.adds = false;
    if (!h.multiplies && !h.adds) return;
    const bool one = h.multiplies && has_tail(c, &h.linear);
    bool more = tail_of(c, &h, one || h.adds ? next : NULL, &t) && (!one || t.n_rows <= PI__K_TAIL_ROWS);
    if (h.multiplies) pi__cuda_queue_linear(c, &h.linear, one && more ? &t : NULL);
    if (h.adds) pi__cuda_forget(c);
    if (more && !one) PI__QUEUE(c, pi__k_finish_rows(pi__rt_stream(c->rt), &t));
    if (more && (t.integers || t.floats || t.halves)) pi__cuda_has_prepared(c, &t);
    else if (next) pi__cuda_forget(c);
}

void pi__cuda_flush(pi__cuda *c) { queue_held(c, NULL); }

bool pi__cuda_hold(pi__cuda *c, pi__op_id id, const void *args)
{
    const bool fuses = c->fuses && !c->joined; /* others would queue all-gathers behind the backend's back */
    if (fuses && id == PI__OP_linear) {
        const pi__linear *a = args;
        if (c->without.many_rows && a->n_rows > PI__CUDA_FEW_ROWS) return false;
        if (c->held.multiplies || c->held.adds) queue_held(c, a);
        else pi__cuda_forget(c);
        c->held.multiplies = true;
        c->held.linear = *a;
        return true;
    }
    if (fuses && id == PI__OP_add_norm) {
        const pi__add_norm *a = args;
        if (c->held.adds || (c->held.multiplies && c->held.linear.n_rows != a->n_rows)) pi__cuda_flush(c);
        c->held.adds = true;
        c->held.add = *a;
        return true;
    }
    if (id == PI__OP_experts_layer && fuses && (c->held.multiplies || c->held.adds)) {
        const pi__linear reads = pi__cuda_layer_reads(args);
        queue_held(c, &reads);
        return false;
    }
    if (id == PI__OP_experts_layer) pi__cuda_forget(c);
    pi__cuda_flush(c);
    return false;
}
