/* Two backends as one: a device, and the CPU beside it, for models of which a part lies with each.
 *
 * Matrices, caches and states belong to one side, and an op that reads much of one runs there; other ops run where the
 * last one did that was not of experts. What such ops hand each other (activations, small vectors of the model) is
 * allocated here and lies in both memories, at the same offset of two regions, so that models know one address, the
 * host's:
 *
 *     model       x [T, E]
 *     host        [ x | qkv | att | ... ]   what the CPU wrote last is newer here
 *     device      [ x | qkv | att | ... ]   what the device wrote last, here; all else is equal or not needed any more
 *
 * A list of ranges tells which bytes are newer on one side. Before a side reads a range, what the other has newer of it
 * is copied. The host's region is memory that the device copies by itself, when its queue comes to it: so before the CPU
 * touches the region while copies are queued, it waits for all of them, once for each op. That and nothing else is where
 * the two wait for each other. An error on the way is kept for finish().
 *
 * In decoding steps what the device does from one of the CPU's ops to the next, with the copies between, is a part, which it
 * records and plays again (op part):
 *
 *     op         embed | rope linear qkv attention ... | linear (CPU's) | add_norm linear ... | the rows are looked at
 *     device           [ part 0          and a download ]                [ an upload and part 1 ]
 *
 * Parts are the same in all such steps: each begins with nothing newer anywhere, and goes on by the batch as the device
 * has rounded it up. The CPU computes the batch's own rows only; what lies behind them is copied like the others, and
 * means nothing.
 *
 * Memory: one small object; the regions are the two sides' own. Threads: as backend.h says. Invariant: no byte is in two
 * ranges. An op that writes rows with gaps between them first makes the gaps as new as the other side's, so that a range
 * never has holes. The list has a fixed length: where it is full, something is copied that might not have been needed. */
#include "backend/split.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { MAX_REGIONS = 8, MAX_NEWER = 64, MAX_LIN = 8 };

/* Memory that lies on both sides. */
typedef struct region {
    char *host;   /* CPU's; NULL: this entry is free */
    char *device; /* the device's */
    size_t size;  /* bytes of each */
} region;

/* Bytes at lo..hi (host addresses) that are newer on one side. */
typedef struct newer {
    const char *lo, *hi;
    int32_t side; /* PI__AT_* that has them */
} newer;

typedef struct split {
    pi__backend be;           /* first: the public face, with both sides */
    char desc[256];           /* "cuda (...) + cpu (...)" */
    region region[MAX_REGIONS];
    newer newer[MAX_NEWER];
    int32_t n_newer;          /* entries of newer in use */
    int32_t last;             /* side of the last op */
    bool copying;             /* copies are queued that read or write the host's regions */
    bool parted;              /* what is called is of a step whose parts the device wants to know */
    bool in_part;             /* one has begun */
    const pi__batch *batch;   /* the step's, as models have it: with as many rows as the device's */
    const pi__batch *own[PI__N_SIDES]; /* the same as each side has it */
    pi_error error;           /* the first one since the last finish() */
} split;

/* Rows of floats. */
typedef struct rows {
    const float *p; /* NULL: none */
    int64_t n, ld, width; /* rows, floats from row to row, floats of a row that count */
} rows;

static split *of(pi__backend *be) { return (split *) be; }
static pi__backend *side_of(const split *s, int32_t side) { return s->be.side[side]; }

/* ------------------------------------------------------------------------------------------------------- both memories */

static region *region_of(split *s, const void *p)
{
    const char *c = p;
    for (int32_t i = 0; i < MAX_REGIONS; i++) {
        region *r = &s->region[i];
        if (r->host && c >= r->host && c < r->host + r->size) return r;
    }
    return NULL;
}

/* The device's address of p; p itself where only one side has it. */
static void *device_at(split *s, const void *p)
{
    const region *r = p ? region_of(s, p) : NULL;
    return r ? r->device + ((const char *) p - r->host) : (void *) p;
}

/* p as that side sees it. */
static void *at(split *s, int32_t side, const void *p) { return side == PI__AT_DEVICE ? device_at(s, p) : (void *) p; }

static void *split_alloc(pi__backend *be, size_t size)
{
    split *s = of(be);
    pi__backend *dev = side_of(s, PI__AT_DEVICE);
    int32_t i = 0;
    while (i < MAX_REGIONS && s->region[i].host) i++;
    if (i == MAX_REGIONS) return NULL;
    region r = {dev->ops->host_alloc(dev, size), dev->ops->alloc(dev, size), size};
    if (!r.host || !r.device) {
        if (r.host) dev->ops->host_free(dev, r.host, size);
        if (r.device) dev->ops->free(dev, r.device, size);
        return NULL;
    }
    memset(r.host, 0, size);
    s->region[i] = r;
    return r.host;
}

/* The device is about to be given something. */
static void begin_part(split *s)
{
    pi__backend *dev = side_of(s, PI__AT_DEVICE);
    if (s->parted && !s->in_part) dev->ops->part(dev);
    s->in_part = s->parted;
}

/* It has something to do until it is given more; what went wrong finish() tells. */
static void end_part(split *s)
{
    pi__backend *dev = side_of(s, PI__AT_DEVICE);
    if (s->in_part) (void) dev->ops->queued(dev);
    s->in_part = false;
}

/* What is called from now on is not part of what comes again. */
static void end_parts(split *s)
{
    end_part(s);
    s->parted = false;
}

/* Copies lo..hi to the other side, when the queue comes to it. */
static void copy_over(split *s, const char *lo, const char *hi, int32_t from)
{
    pi__backend *dev = side_of(s, PI__AT_DEVICE);
    begin_part(s);
    const size_t n = (size_t) (hi - lo);
    if (from == PI__AT_CPU) dev->ops->upload(dev, device_at(s, lo), lo, n);
    else dev->ops->download(dev, (char *) lo, device_at(s, lo), n);
    s->copying = true;
}

/* The CPU may touch the host's regions. */
static void wait_copies(split *s)
{
    pi__backend *dev = side_of(s, PI__AT_DEVICE);
    pi_error err = {0};
    if (s->copying && dev->ops->finish(dev, &err) && !s->error.code) s->error = err;
    s->copying = false;
}

/* lo..hi is newer nowhere any more. sync: because it is copied to the side that has it not. */
static void forget(split *s, const char *lo, const char *hi, bool sync)
{
    for (int32_t i = 0; i < s->n_newer;) {
        newer *w = &s->newer[i], had = *w;
        const char *a = lo > w->lo ? lo : w->lo, *b = hi < w->hi ? hi : w->hi;
        if (a >= b) {
            i++;
            continue;
        }
        const bool two = a > w->lo && b < w->hi, room = s->n_newer < MAX_NEWER;
        if (sync) copy_over(s, a, two && !room ? w->hi : b, w->side);
        else if (two && !room) copy_over(s, b, w->hi, w->side);
        if (a > w->lo) w->hi = a;
        else if (b < w->hi) w->lo = b;
        else *w = s->newer[--s->n_newer]; /* looked at next */
        if (two && room) s->newer[s->n_newer++] = (newer) {b, had.hi, had.side};
        if (a > had.lo || b < had.hi) i++;
    }
}

/* The other side's newer bytes of lo..hi come here. */
static void fetch(split *s, int32_t side, const char *lo, const char *hi)
{
    for (int32_t i = 0; i < s->n_newer;) {
        const newer w = s->newer[i];
        if (w.side == side || w.hi <= lo || w.lo >= hi) {
            i++;
            continue;
        }
        forget(s, lo > w.lo ? lo : w.lo, hi < w.hi ? hi : w.hi, true);
        i = 0;
    }
}

static const char *end_of(rows r) { return (const char *) (r.p + (r.n - 1) * r.ld + r.width); }

/* The side is about to read. */
static void reads(split *s, int32_t side, rows r)
{
    if (r.p && r.n > 0) fetch(s, side, (const char *) r.p, end_of(r));
}

/* The side is about to write. */
static void writes(split *s, int32_t side, rows r)
{
    if (!r.p || r.n < 1) return;
    const char *lo = (const char *) r.p, *hi = end_of(r);
    if (r.n > 1 && r.ld != r.width) fetch(s, side, lo, hi);
    forget(s, lo, hi, false);
    for (int32_t i = 0; i < s->n_newer; i++) { /* neighbours become one */
        const newer w = s->newer[i];
        if (w.side != side || (w.hi != lo && w.lo != hi)) continue;
        if (w.hi == lo) lo = w.lo;
        else hi = w.hi;
        s->newer[i] = s->newer[--s->n_newer];
        i = -1;
    }
    if (s->n_newer == MAX_NEWER) forget(s, s->newer[0].lo, s->newer[0].hi, true);
    s->newer[s->n_newer++] = (newer) {lo, hi, side};
}

static void updates(split *s, int32_t side, rows r)
{
    reads(s, side, r);
    writes(s, side, r);
}

static void split_free(pi__backend *be, void *p, size_t size)
{
    split *s = of(be);
    region *r = p ? region_of(s, p) : NULL;
    if (!r) return;
    forget(s, r->host, r->host + r->size, false);
    pi__backend *dev = side_of(s, PI__AT_DEVICE);
    wait_copies(s);
    dev->ops->free(dev, r->device, size);
    dev->ops->host_free(dev, r->host, size);
    memset(r, 0, sizeof *r);
}

/* To both sides. */
static void split_upload(pi__backend *be, void *dst, const void *src, size_t n)
{
    split *s = of(be);
    pi__backend *dev = side_of(s, PI__AT_DEVICE);
    end_parts(s);
    forget(s, dst, (char *) dst + n, false);
    wait_copies(s);
    memcpy(dst, src, n);
    dev->ops->upload(dev, device_at(s, dst), src, n);
}

/* Straight from the device where all of it is newer there. */
static void split_download(pi__backend *be, void *dst, const void *src, size_t n)
{
    split *s = of(be);
    const char *lo = src, *hi = lo + n;
    end_parts(s);
    for (int32_t i = 0; i < s->n_newer; i++) {
        const newer *w = &s->newer[i];
        if (w->side != PI__AT_DEVICE || w->lo > lo || w->hi < hi) continue;
        pi__backend *dev = side_of(s, PI__AT_DEVICE);
        dev->ops->download(dev, dst, device_at(s, lo), n);
        return;
    }
    fetch(s, PI__AT_CPU, lo, hi);
    wait_copies(s);
    memcpy(dst, src, n);
}

static void *split_host_alloc(pi__backend *be, size_t size)
{
    return be->side[PI__AT_DEVICE]->ops->host_alloc(be->side[PI__AT_DEVICE], size);
}

static void split_host_free(pi__backend *be, void *p, size_t size)
{
    be->side[PI__AT_DEVICE]->ops->host_free(be->side[PI__AT_DEVICE], p, size);
}

/* --------------------------------------------------------------------------------------------------------------- steps */

static size_t split_scratch_bytes(const pi__backend *be, const pi__limits *lim)
{
    const pi__backend *dev = be->side[PI__AT_DEVICE], *cpu = be->side[PI__AT_CPU];
    return dev->ops->scratch_bytes(dev, lim) + cpu->ops->scratch_bytes(cpu, lim);
}

static int split_reserve(pi__backend *be, const pi__limits *lim, pi_error *err)
{
    int rc = PI_OK;
    for (int32_t i = 0; i < PI__N_SIDES && !rc; i++) rc = be->side[i]->ops->reserve(be->side[i], lim, err);
    return rc;
}

static const pi__batch *split_begin(pi__backend *be, const pi__batch *b, int kind)
{
    split *s = of(be);
    pi__backend *dev = side_of(s, PI__AT_DEVICE), *cpu = side_of(s, PI__AT_CPU);
    s->parted = kind == PI__STEP_DECODE && dev->ops->part;
    if (kind == PI__STEP_DECODE) s->n_newer = 0; /* nobody reads any of it */
    s->own[PI__AT_DEVICE] = dev->ops->begin(dev, b, s->parted ? PI__STEP_PARTS : PI__STEP_ANY);
    s->own[PI__AT_CPU] = cpu->ops->begin(cpu, b, PI__STEP_ANY);
    return s->batch = s->own[PI__AT_DEVICE];
}

static int split_finish(pi__backend *be, pi_error *err)
{
    split *s = of(be);
    pi_error first = s->error, why = {0};
    memset(&s->error, 0, sizeof s->error);
    end_parts(s);
    s->copying = false;
    for (int32_t i = 0; i < PI__N_SIDES; i++)
        if (be->side[i]->ops->finish(be->side[i], &why) && !first.code) first = why;
    return first.code ? pi__fail(err, first.code, "%s", first.msg) : PI_OK;
}

/* ----------------------------------------------------------------------------------------------------------------- ops */

/* What the op reads and writes has been said: the side of the last op, which is this one's, may begin. */
static pi__backend *ready(split *s)
{
    if (s->last == PI__AT_DEVICE) {
        begin_part(s);
    } else {
        end_part(s);
        wait_copies(s);
    }
    return side_of(s, s->last);
}

/* Of n rows of a step's tokens, or of those wanted, those that the side of the last op computes: the CPU none of the
 * tokens that belong to nobody, which are the last. Rows of logits may be some of the first ones. */
static int32_t own_rows(const split *s, int32_t n)
{
    const pi__batch *all = s->batch, *own = s->own[s->last];
    if (!all || all == own) return n;
    if (n < all->n_tokens) return n < own->n_tokens ? n : own->n_tokens;
    return n % all->n_tokens ? n : n / all->n_tokens * own->n_tokens;
}

/* The batch, or that of its wanted rows, as the side of the last op has it. */
static const pi__batch *own(const split *s, const pi__batch *b)
{
    return b == s->batch ? s->own[s->last] : s->own[s->last]->wanted;
}

/* What a matrix reads, on that side. */
static pi__lin_in input_at(split *s, int32_t side, const pi__lin_in *in, int32_t n_rows, int64_t n_in)
{
    pi__lin_in to = *in;
    const bool pair = in->kind == PI__IN_GEGLU || in->kind == PI__IN_SWIGLU;
    reads(s, side, (rows) {in->x, n_rows, in->ldx, n_in});
    if (pair) reads(s, side, (rows) {in->x2, n_rows, in->ldx2, n_in});
    to.x = at(s, side, in->x);
    to.x2 = pair ? at(s, side, in->x2) : NULL;
    to.w = at(s, side, in->w);
    return to;
}

static void split_embed(pi__backend *be, const pi__batch *b, const pi__weight *w, float scale, float *out)
{
    split *s = of(be);
    s->last = w->place;
    writes(s, s->last, (rows) {out, b->n_tokens, w->n_in, w->n_in});
    pi__backend *to = ready(s);
    to->ops->embed(to, own(s, b), w, scale, at(s, s->last, out));
}

/* The matrices of one side, at most MAX_LIN; returns how many of lin[0..n_lin) were looked at. */
static int32_t linear_on(split *s, int32_t side, const pi__lin_in *in, int32_t n_rows, const pi__lin *lin, int32_t n_lin)
{
    pi__lin some[MAX_LIN];
    int32_t n = 0, i = 0;
    for (; i < n_lin && n < MAX_LIN; i++)
        if (lin[i].w->place == side) some[n++] = lin[i];
    if (!n) return i;
    s->last = side;
    pi__lin_in from = input_at(s, side, in, n_rows, some[0].w->n_in);
    for (int32_t k = 0; k < n; k++) {
        writes(s, side, (rows) {some[k].y, n_rows, some[k].ldy, some[k].w->n_out});
        some[k].y = at(s, side, some[k].y);
    }
    pi__backend *to = ready(s);
    to->ops->linear(to, &from, own_rows(s, n_rows), some, n);
    return i;
}

static void split_linear(pi__backend *be, const pi__lin_in *in, int32_t n_rows, const pi__lin *lin, int32_t n_lin)
{
    for (int32_t side = 0; side < PI__N_SIDES; side++)
        for (int32_t i = 0; i < n_lin;) i += linear_on(of(be), side, in, n_rows, lin + i, n_lin - i);
}

static void split_add_norm(pi__backend *be, float *x, const float *y, const float *w, float eps, float scale,
                           int32_t n_rows, int64_t n)
{
    split *s = of(be);
    reads(s, s->last, (rows) {y, n_rows, n, n});
    updates(s, s->last, (rows) {x, n_rows, n, n});
    pi__backend *to = ready(s);
    to->ops->add_norm(to, at(s, s->last, x), at(s, s->last, y), at(s, s->last, w), eps, scale, own_rows(s, n_rows), n);
}

/* Layers of both sides may read it. The CPU gets it at once, so as not to wait for it alone. */
static void split_rope(pi__backend *be, const pi__batch *b, const float *freq, int32_t n_freq, float mscale, float *table)
{
    split *s = of(be);
    const rows all = {table, b->n_tokens, 2 * n_freq, 2 * n_freq};
    writes(s, s->last, all);
    pi__backend *to = ready(s);
    to->ops->rope(to, own(s, b), freq, n_freq, mscale, at(s, s->last, table));
    if (s->last == PI__AT_DEVICE) reads(s, PI__AT_CPU, all);
}

/* Queries of all heads in a row, which may have something between them. */
static rows heads(const float *p, const pi__batch *b, int64_t ld, int32_t n_head, int64_t stride, int64_t dim)
{
    return (rows) {p, b->n_tokens, ld, (n_head - 1) * (stride ? stride : dim) + dim};
}

static void split_qkv(pi__backend *be, const pi__batch *b, const pi__qkv *a, const pi__kv_layer *kv)
{
    split *s = of(be);
    s->last = kv->place;
    const int32_t side = s->last;
    const int64_t width = (int64_t) kv->n_head_kv * kv->head_dim;
    pi__qkv t = *a;
    updates(s, side, heads(a->q, b, a->ldq, a->n_head, a->q_stride, kv->head_dim));
    reads(s, side, (rows) {a->k, b->n_tokens, a->ldk, width});
    if (a->k) reads(s, side, (rows) {a->v, b->n_tokens, a->ldv, width});
    reads(s, side, (rows) {a->rope, b->n_tokens, a->n_rot, a->n_rot});
    t.q = at(s, side, a->q);
    t.k = at(s, side, a->k);
    t.v = at(s, side, a->v);
    t.q_norm = at(s, side, a->q_norm);
    t.k_norm = at(s, side, a->k_norm);
    t.rope = at(s, side, a->rope);
    pi__backend *to = ready(s);
    to->ops->qkv(to, own(s, b), &t, kv);
}

static void split_attention(pi__backend *be, const pi__batch *b, const pi__attn *a, const pi__kv_layer *kv)
{
    split *s = of(be);
    s->last = kv->place;
    const int32_t side = s->last;
    const int64_t width = (int64_t) a->n_head * kv->head_dim;
    pi__attn t = *a;
    reads(s, side, heads(a->q, b, a->ldq, a->n_head, a->q_stride, kv->head_dim));
    reads(s, side, heads(a->gate, b, a->ldq, a->n_head, a->q_stride, kv->head_dim));
    writes(s, side, (rows) {a->out, b->n_tokens, a->ldo, width});
    t.q = at(s, side, a->q);
    t.gate = at(s, side, a->gate);
    t.out = at(s, side, a->out);
    t.sinks = at(s, side, a->sinks);
    pi__backend *to = ready(s);
    to->ops->attention(to, own(s, b), &t, kv);
}

static void split_gather_rows(pi__backend *be, const int32_t *row, int32_t n_rows, const float *x, int64_t n, float *out)
{
    split *s = of(be);
    int32_t most = -1;
    for (int32_t i = 0; row && i < n_rows; i++) /* NULL: the device had no room for the batch */
        most = row[i] > most ? row[i] : most;
    if (row == s->batch->row) row = s->own[s->last]->row;
    reads(s, s->last, (rows) {x, most + 1, n, n});
    writes(s, s->last, (rows) {out, n_rows, n, n});
    pi__backend *to = ready(s);
    to->ops->gather_rows(to, row, own_rows(s, n_rows), at(s, s->last, x), n, at(s, s->last, out));
}

static void split_softcap(pi__backend *be, float *x, float cap, size_t n)
{
    split *s = of(be);
    updates(s, s->last, (rows) {x, 1, (int64_t) n, (int64_t) n});
    pi__backend *to = ready(s);
    to->ops->softcap(to, at(s, s->last, x), cap, n);
}

/* Where the device has the rows, it looks at them; those of the CPU are the host's anyway. */
static bool split_topk(pi__backend *be, float *x, int32_t n_rows, int64_t n, const int32_t *skip, int32_t n_all,
                       const pi__ask *ask, uint64_t *out)
{
    split *s = of(be);
    pi__backend *dev = side_of(s, PI__AT_DEVICE);
    if (s->last != PI__AT_DEVICE || !dev->ops->topk) return false;
    end_parts(s);
    updates(s, PI__AT_DEVICE, (rows) {x, n_rows, n, n});
    return dev->ops->topk(dev, device_at(s, x), n_rows, n, skip, n_all, ask, out);
}

/* A layer's experts lie in one place (model/place.c). They are a guest there: what follows is where the rest of the layer is,
 * so that what that has ready need not be waited for again. */
static void split_moe(pi__backend *be, const pi__moe *a, int32_t n_rows)
{
    split *s = of(be);
    const int32_t rest = s->last;
    s->last = a->down->place;
    pi__moe t = *a;
    t.in = input_at(s, s->last, &a->in, n_rows, a->gate->n_in);
    reads(s, s->last, (rows) {a->logits, n_rows, a->ldl, a->n_expert});
    writes(s, s->last, (rows) {a->y, n_rows, a->ldy, a->down->n_out});
    t.logits = at(s, s->last, a->logits);
    t.y = at(s, s->last, a->y);
    pi__backend *to = ready(s);
    to->ops->moe(to, &t, own_rows(s, n_rows));
    s->last = rest;
}

static void split_norm(pi__backend *be, float *out, int64_t ldo, const float *x, const float *w, float eps, int32_t n_rows,
                       int64_t n)
{
    split *s = of(be);
    reads(s, s->last, (rows) {x, n_rows, n, n});
    writes(s, s->last, (rows) {out, n_rows, ldo, n});
    pi__backend *to = ready(s);
    to->ops->norm(to, at(s, s->last, out), ldo, at(s, s->last, x), at(s, s->last, w), eps, own_rows(s, n_rows), n);
}

/* Its scratch is read by nobody else. */
static void split_clustered(pi__backend *be, const pi__clustered *a, int32_t n_rows)
{
    split *s = of(be);
    s->last = a->head->place;
    const int64_t n_vocab = a->head->n_mat * a->head->n_out;
    pi__clustered t = *a;
    t.in = input_at(s, s->last, &a->in, n_rows, a->head->n_in);
    writes(s, s->last, (rows) {a->logits, n_rows, n_vocab, n_vocab});
    t.scores = at(s, s->last, a->scores);
    t.pick = at(s, s->last, a->pick);
    t.some = at(s, s->last, a->some);
    t.logits = at(s, s->last, a->logits);
    pi__backend *to = ready(s);
    to->ops->clustered(to, &t, own_rows(s, n_rows));
}

static void split_add_gated(pi__backend *be, float *y, const float *x, const float *gate, int64_t ldg, int32_t n_rows,
                            int64_t n)
{
    split *s = of(be);
    reads(s, s->last, (rows) {x, n_rows, n, n});
    reads(s, s->last, (rows) {gate, n_rows, ldg, 1});
    updates(s, s->last, (rows) {y, n_rows, n, n});
    pi__backend *to = ready(s);
    to->ops->add_gated(to, at(s, s->last, y), at(s, s->last, x), at(s, s->last, gate), ldg, own_rows(s, n_rows), n);
}

static void split_gdn(pi__backend *be, const pi__batch *b, const pi__gdn *a, const pi__state_layer *st)
{
    split *s = of(be);
    s->last = st->place;
    const int32_t side = s->last, n = b->n_tokens;
    const int64_t values = (int64_t) st->n_v * st->dim;
    pi__gdn t = *a;
    reads(s, side, (rows) {a->qkv, n, a->ld_qkv, (2 * (int64_t) st->n_k + st->n_v) * st->dim});
    reads(s, side, (rows) {a->z, n, a->ld_z, values});
    reads(s, side, (rows) {a->alpha, n, a->ld_ab, st->n_v});
    reads(s, side, (rows) {a->beta, n, a->ld_ab, st->n_v});
    writes(s, side, (rows) {a->out, n, a->ldo, values});
    t.qkv = at(s, side, a->qkv);
    t.z = at(s, side, a->z);
    t.alpha = at(s, side, a->alpha);
    t.beta = at(s, side, a->beta);
    t.conv = at(s, side, a->conv);
    t.dt_bias = at(s, side, a->dt_bias);
    t.a = at(s, side, a->a);
    t.norm = at(s, side, a->norm);
    t.out = at(s, side, a->out);
    pi__backend *to = ready(s);
    to->ops->gdn(to, own(s, b), &t, st);
}

static void split_state_save(pi__backend *be, const pi__state_layer *st, int32_t slot, int32_t pos, int32_t snap)
{
    pi__backend *to = be->side[st->place];
    to->ops->state_save(to, st, slot, pos, snap);
}

static void split_state_load(pi__backend *be, const pi__state_layer *st, int32_t slot, int32_t pos, int32_t snap)
{
    pi__backend *to = be->side[st->place];
    to->ops->state_load(to, st, slot, pos, snap);
}

/* ---------------------------------------------------------------------------------------------------- create, destroy */

static const char *split_describe(const pi__backend *be) { return ((const split *) be)->desc; }
static int32_t split_n_threads(const pi__backend *be) { return be->side[PI__AT_CPU]->ops->n_threads(be->side[PI__AT_CPU]); }

static void split_destroy(pi__backend *be)
{
    if (!be) return;
    for (int32_t i = 0; i < PI__N_SIDES; i++) be->side[i]->ops->destroy(be->side[i]);
    pi__free(of(be));
}

/* What is measured, loaded or trimmed is asked of the side it is on (pi__backend_at): none of that is here. */
static const pi__backend_ops split_ops = {
    .destroy = split_destroy,
    .describe = split_describe,
    .n_threads = split_n_threads,
    .alloc = split_alloc,
    .free = split_free,
    .upload = split_upload,
    .download = split_download,
    .host_alloc = split_host_alloc,
    .host_free = split_host_free,
    .scratch_bytes = split_scratch_bytes,
    .reserve = split_reserve,
    .begin = split_begin,
    .finish = split_finish,
    .embed = split_embed,
    .linear = split_linear,
    .add_norm = split_add_norm,
    .rope = split_rope,
    .qkv = split_qkv,
    .attention = split_attention,
    .gather_rows = split_gather_rows,
    .softcap = split_softcap,
    .topk = split_topk,
    .moe = split_moe,
    .norm = split_norm,
    .clustered = split_clustered,
    .add_gated = split_add_gated,
    .gdn = split_gdn,
    .state_save = split_state_save,
    .state_load = split_state_load,
};

int pi__split_create(pi__backend **out, pi__backend *device, pi__backend *cpu, pi_error *err)
{
    *out = NULL;
    split *s = pi__calloc(1, sizeof *s);
    if (!s) return pi__fail_mem(err, "the devices");
    s->be.ops = &split_ops;
    s->be.far = true;
    s->be.side[PI__AT_DEVICE] = device;
    s->be.side[PI__AT_CPU] = cpu;
    snprintf(s->desc, sizeof s->desc, "%.120s + %.120s", device->ops->describe(device), cpu->ops->describe(cpu));
    *out = &s->be;
    return PI_OK;
}
