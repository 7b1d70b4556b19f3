/* Short convolutions on the CPU, and their states (op short_conv in ops.h). With pi__short_conv.plain, x takes the
 * place of the products b * u.
 *
 *     slot      [R][dim] products b * u of a sequence's last tokens; row p % R = token at position p
 *     snapshot  [H][dim] products of the H tokens before the snapshot's position
 *
 * H is the number of taps minus 1. A convolution reads H products before its token, and a snapshot may be taken at a
 * chunk boundary before the last tokens and drafts. So R = H + PI__STATE_CHUNK + n_draft rows are enough.
 *
 * Channels are independent: an item of work is PART channels of one sequence, and computes its tokens in order. It
 * reads the slot before it writes it. Bits: each output sums its taps in order of position, whatever the batch.
 *
 * Memory: slots and snapshots are owned by the engine; no scratch. Threads: called by the step thread, which forks and
 * joins the pool inside. */
#include "backend/cpu/short_conv.h"

#include <string.h>

#include "backend/cpu/gdn.h"

enum {
    PART = 128,           /* channels of an item */
    SMALL_WORK = 1 << 14, /* steps with fewer outputs run on the calling thread */
};

/* A sequence's part of a step, and the channels of an item. */
typedef struct conv_item {
    const pi__short_conv *a;
    const pi__batch *b;
    const pi__cpu_gdn_kernels *kn;
    float *slot;         /* the sequence's slot */
    int32_t seq;         /* index in the batch */
    int32_t first, n;    /* index in the batch of its first token; number of its tokens */
    int32_t pos;         /* position of its first token */
    int32_t channel, n_channel;
} conv_item;

typedef struct conv_job {
    const pi__short_conv *a;
    const pi__batch *b;
    pi__pool *pool;
    const pi__cpu_gdn_kernels *kn;
} conv_job;

/* --------------------------------------------------------------------------------------------------------- states */

static int32_t history(const pi__state_layer *st) { return st->n_conv - 1; }
static int32_t n_rows(const pi__state_layer *st) { return history(st) + PI__STATE_CHUNK + st->n_draft; }
static size_t align64(size_t n) { return (n + 63) & ~(size_t) 63; }

static bool supported(const pi__state_layer *st)
{
    return st->dim > 0 && st->n_conv >= PI__MIN_CONV && st->n_conv <= PI__MAX_CONV && st->n_draft >= 0;
}

size_t pi__cpu_conv_state_bytes(const pi__state_layer *st)
{
    return supported(st) ? align64((size_t) n_rows(st) * (size_t) st->dim * sizeof(float)) : 0;
}

size_t pi__cpu_conv_snapshot_bytes(const pi__state_layer *st)
{
    return supported(st) ? align64((size_t) history(st) * (size_t) st->dim * sizeof(float)) : 0;
}

static float *slot_of(const pi__state_layer *st, int32_t i)
{
    return (float *) (void *) (st->base + (size_t) i * st->stride);
}

static float *snap_of(const pi__state_layer *st, int32_t i)
{
    return (float *) (void *) (st->snap + (size_t) i * st->snap_stride);
}

static float *row_of(const pi__state_layer *st, float *slot, int32_t pos)
{
    return slot + (size_t) (pos % n_rows(st)) * (size_t) st->dim;
}

void pi__cpu_conv_state_save(const pi__state_copy *a)
{
    const pi__state_layer *st = a->st;
    const size_t dim = (size_t) st->dim;
    float *snap = snap_of(st, a->snap);
    for (int32_t i = 0; i < history(st); i++, snap += dim) {
        const int32_t pos = a->pos - history(st) + i;
        if (pos < 0) memset(snap, 0, dim * sizeof *snap);
        else memcpy(snap, row_of(st, slot_of(st, a->slot), pos), dim * sizeof *snap);
    }
}

void pi__cpu_conv_state_load(const pi__state_copy *a)
{
    const pi__state_layer *st = a->st;
    const size_t dim = (size_t) st->dim;
    const float *snap = snap_of(st, a->snap);
    for (int32_t i = 0; i < history(st); i++, snap += dim) {
        const int32_t pos = a->pos - history(st) + i;
        if (pos >= 0) memcpy(row_of(st, slot_of(st, a->slot), pos), snap, dim * sizeof *snap);
    }
}

/* ------------------------------------------------------------------------------------------------------------- op */

/* Writes the item's products b * u of the token at `pos` to out: from the step, the slot, or zeros before position
 * 0. */
static void product_at(const conv_item *it, int32_t pos, float *restrict out)
{
    const int32_t n = it->n_channel;
    if (pos < 0) {
        memset(out, 0, (size_t) n * sizeof *out);
    } else if (pos < it->pos) {
        memcpy(out, row_of(it->a->st, it->slot, pos) + it->channel, (size_t) n * sizeof *out);
    } else {
        const float *b = it->a->x + (it->first + pos - it->pos) * it->a->ldx + it->channel, *u = b + 2 * it->a->st->dim;
        if (it->a->plain) memcpy(out, b, (size_t) n * sizeof *out);
        else for (int32_t i = 0; i < n; i++) out[i] = b[i] * u[i];
    }
}

/* Writes the snapshots of the sequence. Called before the slot is written. */
static void save(const conv_item *it)
{
    const pi__state_layer *st = it->a->st;
    for (int32_t k = it->b->save_start[it->seq]; k < it->b->save_start[it->seq + 1]; k++) {
        const pi__save *s = &it->b->save[k];
        for (int32_t i = 0; i < history(st); i++)
            product_at(it, s->pos - history(st) + i,
                       snap_of(st, s->snap) + (size_t) i * (size_t) st->dim + it->channel);
    }
}

/* Writes the products of the step's last tokens to the slot. */
static void keep(const conv_item *it)
{
    const int32_t end = it->pos + it->n, rows = n_rows(it->a->st);
    for (int32_t pos = it->n > rows ? end - rows : it->pos; pos < end; pos++)
        product_at(it, pos, row_of(it->a->st, it->slot, pos) + it->channel);
}

/* sum += w * x for n channels. */
static void add_tap(const float *restrict w, const float *restrict x, int32_t n, float *restrict sum)
{
    for (int32_t i = 0; i < n; i++) sum[i] += w[i] * x[i];
}

/* out = c * sum over the taps of w * x, for n channels. */
static void convolve(float (*w)[PART], float *const *x, int32_t n_conv, const float *restrict c, int32_t n,
                     float *restrict out)
{
    float sum[PART] = {0};
    for (int32_t k = 0; k < n_conv; k++) add_tap(w[k], x[k], n, sum);
    for (int32_t i = 0; i < n; i++) out[i] = c[i] * sum[i];
}

/* Computes the outputs of token t of the step. w, conv: the taps, by tap and by channel. */
static void put_output(const conv_item *it, int32_t t, float (*w)[PART], const float *conv, float *const *x)
{
    const pi__short_conv *a = it->a;
    const int64_t row = it->first + t;
    float *out = a->out + row * a->ldo + it->channel;
    if (a->plain)
        it->kn->conv((const float *const *) x, conv, a->bias ? a->bias + it->channel : NULL, a->st->n_conv,
                     it->n_channel, out);
    else
        convolve(w, x, a->st->n_conv, a->x + row * a->ldx + a->st->dim + it->channel, it->n_channel, out);
}

static void run_item(const conv_item *it)
{
    const pi__state_layer *st = it->a->st;
    const int32_t n_conv = st->n_conv;
    const float *conv = it->a->conv + (int64_t) it->channel * n_conv;
    float rows[PI__MAX_CONV][PART], w[PI__MAX_CONV][PART], *x[PI__MAX_CONV];
    for (int32_t i = 0; i < it->n_channel * n_conv; i++) w[i % n_conv][i / n_conv] = conv[i];
    for (int32_t i = 0; i < history(st); i++) product_at(it, it->pos - history(st) + i, rows[i]);
    save(it);
    for (int32_t t = 0; t < it->n; t++) {
        for (int32_t i = 0; i < n_conv; i++) x[i] = rows[(t + i) % n_conv];
        product_at(it, it->pos + t, x[n_conv - 1]);
        put_output(it, t, w, conv, x);
    }
    keep(it);
}

static int32_t n_parts(const pi__short_conv *a) { return (a->st->dim + PART - 1) / PART; }

/* Runs item i: a sequence and a part of its channels. */
static void run_at(const conv_job *j, int32_t i)
{
    const pi__short_conv *a = j->a;
    const pi__batch *b = j->b;
    const int32_t seq = i / n_parts(a), channel = i % n_parts(a) * PART, left = a->st->dim - channel;
    const int32_t first = b->seq_start[seq], n = b->seq_start[seq + 1] - first;
    if (!n) return;
    run_item(&(conv_item) {.a = a, .b = b, .kn = j->kn, .slot = slot_of(a->st, b->state_slot[seq]), .seq = seq,
                           .first = first, .n = n, .pos = b->pos[first], .channel = channel,
                           .n_channel = left < PART ? left : PART});
}

static void conv_run(void *arg, int32_t ith, int32_t nth)
{
    const conv_job *j = arg;
    const int32_t n = j->b->n_seqs * n_parts(j->a);
    (void) ith;
    (void) nth;
    for (int32_t i; (i = pi__pool_next(j->pool, n)) >= 0;) run_at(j, i);
}

void pi__cpu_short_conv(pi__backend *be, const pi__batch *b, const pi__short_conv *a)
{
    conv_job j = {a, b, ((pi__cpu *) be)->pool, ((pi__cpu *) be)->gdn};
    if ((int64_t) b->n_tokens * a->st->dim >= SMALL_WORK) {
        pi__pool_run(j.pool, conv_run, &j);
        return;
    }
    for (int32_t i = 0; i < b->n_seqs * n_parts(a); i++) run_at(&j, i);
}
