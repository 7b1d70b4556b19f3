/* The ops of delta-net layers: each converts its struct of ops.h to the kernels' struct, and queues the kernels (see
 * kernels.h). No memory of its own; the step thread. */
#include "backend/cuda/impl.h"

/* Converts a layer's states into the kernels' struct: addresses, and the fields that determine sizes. `exact` stays
 * 0. */
static pi__k_state layout_of(const pi__state_layer *st)
{
    return (pi__k_state) {.base = st->base, .stride = st->stride, .snap = st->snap, .snap_stride = st->snap_stride,
                          .n_k = st->n_k, .n_v = st->n_v, .dim = st->dim, .n_draft = st->n_draft, .n_conv = st->n_conv,
                          .dim_v = pi__state_dim_v(st), .ssd = st->ssd, .kda = st->kda};
}

static pi__k_state state_of(const pi__cuda *c, const pi__state_layer *st)
{
    pi__k_state k = layout_of(st);
    k.exact = st->exact || !c->one_f16;
    return k;
}

size_t pi__cuda_state_bytes(const pi__backend *be, const pi__state_layer *st)
{
    if (pi__state_is_conv(st)) return pi__cuda_conv_state_bytes(st);
    if (pi__state_is_scan(st)) return pi__cuda_scan_state_bytes(st);
    pi__k_state k = layout_of(st);
    return ((const pi__cuda *) be)->f.disabled.delta ? 0 : pi__k_state_bytes(&k);
}

size_t pi__cuda_snapshot_bytes(const pi__backend *be, const pi__state_layer *st)
{
    (void) be;
    if (pi__state_is_conv(st)) return pi__cuda_conv_snapshot_bytes(st);
    if (pi__state_is_scan(st)) return pi__cuda_scan_snapshot_bytes(st);
    pi__k_state k = layout_of(st);
    return pi__k_snapshot_bytes(&k);
}

size_t pi__cuda_gdn_scratch(const pi__limits *lim)
{
    if (!lim->state.n_k) return 0;
    pi__k_state k = layout_of(&lim->state);
    return pi__k_gdn_scratch(&k, lim->max_tokens);
}

/* Converts an op gdn into the kernels' struct. */
static pi__k_gdn gdn_of(const pi__cuda *c, const pi__batch *b, const pi__gdn *a)
{
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    pi__k_gdn k = {
        .qkv = a->qkv,
        .ld_qkv = a->ld_qkv,
        .z = a->z,
        .ld_z = a->ld_z,
        .alpha = a->alpha,
        .beta = a->beta,
        .ld_ab = a->ld_ab,
        .conv = a->conv,
        .dt_bias = a->dt_bias,
        .a = a->a,
        .norm = a->norm,
        .conv_bias = a->conv_bias,
        .skip = a->skip,
        .min_decay = a->min_decay,
        .eps = a->eps,
        .out = a->out,
        .ldo = a->ldo,
        .grouped = a->grouped,
        .n_tokens = b->n_tokens,
        .n_seqs = b->n_seqs,
        .least = b->n_tokens,
        .pos = d->pos,
        .seq_start = d->seq_start,
        .n_verified = d->n_verified,
        .state_slot = d->state_slot,
        .save_start = d->save_start,
        .save = (const int32_t *) d->save,
        .state = state_of(c, a->st),
        .scratch = (float *) (c->scratch + c->at.gdn),
        .n_sm = c->info.n_sm,
    };
    for (int32_t i = 0; i < b->n_seqs; i++) {
        int32_t n = b->seq_start[i + 1] - b->seq_start[i];
        if (n < k.least) k.least = n;
        if (n > k.most) k.most = n;
    }
    return k;
}

void pi__cuda_queue_gdn(pi__cuda *c, const pi__batch *b, const pi__gdn *a, const pi__k_tail *then)
{
    pi__k_gdn k = gdn_of(c, b, a);
    k.tail = then;
    PI__QUEUE(c, pi__k_gdn_run(pi__rt_stream(c->rt), &k));
}

void pi__cuda_gdn(pi__backend *be, const pi__batch *b, const pi__gdn *a)
{
    pi__cuda_queue_gdn((pi__cuda *) be, b, a, NULL);
}

void pi__cuda_state_save(pi__backend *be, const pi__batch *b, const pi__state_copy *a)
{
    (void) b;
    pi__cuda *c = (pi__cuda *) be;
    if (pi__state_is_conv(a->st)) {
        pi__cuda_conv_move(c, a, true);
        return;
    }
    if (pi__state_is_scan(a->st)) {
        pi__cuda_scan_move(c, a, true);
        return;
    }
    pi__k_state k = state_of(c, a->st);
    PI__QUEUE(c, pi__k_state_save(pi__rt_stream(c->rt), &k, a->slot, a->pos, a->snap));
}

void pi__cuda_state_load(pi__backend *be, const pi__batch *b, const pi__state_copy *a)
{
    (void) b;
    pi__cuda *c = (pi__cuda *) be;
    if (pi__state_is_conv(a->st)) {
        pi__cuda_conv_move(c, a, false);
        return;
    }
    if (pi__state_is_scan(a->st)) {
        pi__cuda_scan_move(c, a, false);
        return;
    }
    pi__k_state k = state_of(c, a->st);
    PI__QUEUE(c, pi__k_state_load(pi__rt_stream(c->rt), &k, a->slot, a->pos, a->snap));
}
