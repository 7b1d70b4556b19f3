/* A step's way to the device: the batch, its copy in device memory, and what finish() tells.
 *
 * A batch's arrays lie one behind the other in an image, twice: in host memory, where begin() gathers them, and at the
 * same offsets in device memory, where one copy takes them. Ops get the batch of the host image, whose tables of blocks
 * are as wide as the longest sequence needs.
 *
 * Memory: c->image on the host and c->scratch on the device, both of reserve(). Threads: as backend.h says. Invariant: the
 * image is written only when nothing is queued that reads it: between a finish() and the next begin(). */
#include <string.h>

#include "backend/cuda/impl.h"
#include "base/error.h"

enum { MIN_BLOCK = 16, SAVE_INTS = sizeof(pi__save) / sizeof(int32_t) };

size_t pi__cuda_image_ints(const pi__limits *lim)
{
    size_t tokens = (size_t) lim->max_tokens, seqs = (size_t) lim->max_seqs;
    size_t table = seqs * ((size_t) lim->max_ctx / MIN_BLOCK + 2), saves = tokens / MIN_BLOCK + seqs;
    return 7 * tokens + 6 * seqs + 3 + saves * SAVE_INTS + PI__MAX_GROUPS * (tokens + table);
}

/* Room for n integers of the image; NULL: there is none. */
static int32_t *take(pi__cuda *c, size_t n)
{
    if (n > c->max_ints - c->n_ints) {
        c->no_room = true;
        return NULL;
    }
    c->n_ints += n;
    return c->image + c->n_ints - n;
}

/* Where what is at p in the image will be on the device. */
static const int32_t *on_device(const pi__cuda *c, const int32_t *p)
{
    return p ? (const int32_t *) (void *) (c->scratch + c->at.batch) + (p - c->image) : NULL;
}

/* Takes an array along, if there is one: *array points into the image then. Returns where it will be on the device. */
static const int32_t *put(pi__cuda *c, const int32_t **array, size_t n)
{
    int32_t *p = *array ? take(c, n) : NULL;
    if (p) memcpy(p, *array, n * sizeof *p);
    *array = p;
    return on_device(c, p);
}

/* Tables of blocks: the first entries of each row, as many as the longest sequence has. */
static const int32_t *put_table(pi__cuda *c, pi__kv_batch *kv, const pi__batch *b)
{
    int32_t most = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) most = b->seq_len[s] > most ? b->seq_len[s] : most;
    int32_t width = (most + kv->block_size - 1) / kv->block_size;
    if (width > kv->table_stride) width = kv->table_stride;
    int32_t *p = take(c, (size_t) b->n_seqs * (size_t) width);
    for (int32_t s = 0; p && s < b->n_seqs; s++)
        memcpy(p + (size_t) s * (size_t) width, kv->block_table + (size_t) s * (size_t) kv->table_stride,
               (size_t) width * sizeof *p);
    kv->block_table = p;
    kv->table_stride = width;
    return on_device(c, p);
}

/* What comes with the tokens alone. */
static void put_tokens(pi__cuda *c, cuda_batch *d, const pi__batch *b)
{
    size_t n = (size_t) b->n_tokens;
    d->host = *b;
    d->token = put(c, &d->host.token, n);
    d->pos = put(c, &d->host.pos, n);
    d->seq = put(c, &d->host.seq, n);
    d->seq_start = put(c, &d->host.seq_start, (size_t) b->n_seqs + 1);
}

static void put_batch(pi__cuda *c, cuda_batch *d, const pi__batch *b)
{
    size_t seqs = (size_t) b->n_seqs;
    pi__batch *h = &d->host;
    put_tokens(c, d, b);
    d->row = put(c, &h->row, (size_t) b->n_rows);
    d->seq_len = put(c, &h->seq_len, seqs);
    d->seq_sure = put(c, &h->seq_sure, seqs);
    d->state_slot = put(c, &h->state_slot, seqs);
    const int32_t *save = (const int32_t *) b->save;
    size_t saves = save && b->save_start ? (size_t) b->save_start[seqs] : 0;
    d->save_start = put(c, &h->save_start, seqs + 1);
    d->save = (const pi__save *) put(c, &save, saves * SAVE_INTS);
    h->save = (const pi__save *) save;
    for (int32_t g = 0; g < b->n_groups; g++) {
        d->slot[g] = put(c, &h->kv[g].slot, (size_t) b->n_tokens);
        d->table[g] = put_table(c, &h->kv[g], b);
    }
}

/* The rows wanted: other tokens of the same sequences, which write nothing. */
static void put_wanted(pi__cuda *c, const pi__batch *w)
{
    const cuda_batch *all = &c->batch[0];
    cuda_batch *d = &c->batch[1];
    cuda_batch tokens = {0};
    put_tokens(c, &tokens, w);
    *d = *all;
    d->host.n_tokens = w->n_tokens;
    d->host.n_rows = 0;
    d->host.wanted = NULL;
    d->host.row = d->row = NULL;
    d->host.token = tokens.host.token, d->token = tokens.token;
    d->host.pos = tokens.host.pos, d->pos = tokens.pos;
    d->host.seq = tokens.host.seq, d->seq = tokens.seq;
    d->host.seq_start = tokens.host.seq_start, d->seq_start = tokens.seq_start;
    for (int32_t g = 0; g < w->n_groups; g++) d->host.kv[g].slot = d->slot[g] = NULL;
    c->batch[0].host.wanted = &d->host;
}

const pi__batch *pi__cuda_begin(pi__backend *be, const pi__batch *b, int kind)
{
    pi__cuda *c = (pi__cuda *) be;
    (void) kind;
    memset(c->batch, 0, sizeof c->batch);
    c->n_ints = 0;
    put_batch(c, &c->batch[0], b);
    if (b->wanted) put_wanted(c, b->wanted);
    pi__cuda_upload(be, c->scratch + c->at.batch, c->image, c->n_ints * sizeof *c->image);
    return &c->batch[0].host;
}

int pi__cuda_finish(pi__backend *be, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    int code = pi__rt_wait(c->rt); /* also after an error: what was queued before it may still run */
    bool no_room = c->no_room;
    if (c->error) code = c->error;
    c->error = 0;
    c->no_room = false;
    if (code) return pi__fail(err, PI_EDEVICE, "%s failed: %.400s", c->info.name, pi__rt_text(code));
    if (no_room) return pi__fail(err, PI_ENOMEM, "%s: no room for what the device was given", c->info.name);
    return PI_OK;
}
