/* Op scan and its states: converts the structs of ops.h to the kernels' struct, and queues the kernels (see
 * kernels_scan.h). No memory of its own; the step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_scan.h"

static pi__k_scan layout_of(const pi__state_layer *st)
{
    return (pi__k_scan) {.base = st->base, .stride = st->stride, .snap = st->snap, .snap_stride = st->snap_stride,
                         .n_channel = st->n_v, .n_state = st->dim, .n_draft = st->n_draft};
}

size_t pi__cuda_scan_state_bytes(const pi__state_layer *st)
{
    const pi__k_scan k = layout_of(st);
    return pi__k_scan_state_bytes(&k);
}

size_t pi__cuda_scan_snapshot_bytes(const pi__state_layer *st)
{
    const pi__k_scan k = layout_of(st);
    return pi__k_scan_snapshot_bytes(&k);
}

void pi__cuda_scan(pi__backend *be, const pi__batch *b, const pi__scan *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    pi__k_scan k = layout_of(a->st);
    k.x = a->x, k.z = a->z, k.dt = a->dt, k.b = a->b, k.c = a->c;
    k.ldx = a->ldx, k.ldz = a->ldz, k.ld_dt = a->ld_dt, k.ld_bc = a->ld_bc;
    k.norm_b = a->norm_b, k.norm_c = a->norm_c, k.eps = a->eps;
    k.dt_bias = a->dt_bias, k.a = a->a, k.skip = a->skip, k.out = a->out, k.ldo = a->ldo;
    k.pos = d->pos, k.seq_start = d->seq_start, k.n_verified = d->n_verified, k.state_slot = d->state_slot;
    k.save_start = d->save_start, k.save = (const int32_t *) d->save;
    k.n_seqs = b->n_seqs;
    PI__QUEUE(c, pi__k_scan_run(pi__rt_stream(c->rt), &k));
}

void pi__cuda_scan_move(pi__cuda *c, const pi__state_copy *a, bool is_save)
{
    const pi__k_scan k = layout_of(a->st);
    if (is_save) PI__QUEUE(c, pi__k_scan_save(pi__rt_stream(c->rt), &k, a->slot, a->pos, a->snap));
    else PI__QUEUE(c, pi__k_scan_load(pi__rt_stream(c->rt), &k, a->slot, a->pos, a->snap));
}
