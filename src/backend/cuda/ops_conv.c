/* Op short_conv and its states: converts the structs of ops.h to the kernels' struct, and queues the kernels (see
 * kernels_conv.h). No memory of its own; the step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_conv.h"

static pi__k_conv layout_of(const pi__state_layer *st)
{
    return (pi__k_conv) {.base = st->base, .stride = st->stride, .snap = st->snap, .snap_stride = st->snap_stride,
                         .dim = st->dim, .n_conv = st->n_conv, .n_draft = st->n_draft};
}

size_t pi__cuda_conv_state_bytes(const pi__state_layer *st)
{
    const pi__k_conv k = layout_of(st);
    return pi__k_conv_state_bytes(&k);
}

size_t pi__cuda_conv_snapshot_bytes(const pi__state_layer *st)
{
    const pi__k_conv k = layout_of(st);
    return pi__k_conv_snapshot_bytes(&k);
}

void pi__cuda_short_conv(pi__backend *be, const pi__batch *b, const pi__short_conv *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    pi__k_conv k = layout_of(a->st);
    k.x = a->x, k.ldx = a->ldx, k.conv = a->conv, k.out = a->out, k.ldo = a->ldo;
    k.bias = a->bias, k.plain = a->plain;
    k.pos = d->pos, k.seq_start = d->seq_start, k.state_slot = d->state_slot;
    k.save_start = d->save_start, k.save = (const int32_t *) d->save;
    k.n_seqs = b->n_seqs;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const int32_t n = b->seq_start[i + 1] - b->seq_start[i];
        if (n > k.most) k.most = n;
    }
    PI__QUEUE(c, pi__k_conv_run(pi__rt_stream(c->rt), &k));
}

void pi__cuda_conv_move(pi__cuda *c, const pi__state_copy *a, bool is_save)
{
    const pi__k_conv k = layout_of(a->st);
    if (is_save) PI__QUEUE(c, pi__k_conv_save(pi__rt_stream(c->rt), &k, a->slot, a->pos, a->snap));
    else PI__QUEUE(c, pi__k_conv_load(pi__rt_stream(c->rt), &k, a->slot, a->pos, a->snap));
}
