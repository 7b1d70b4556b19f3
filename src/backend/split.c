/* A device and the CPU as one backend, for models with layers or experts on both.
 *
 * Each matrix, cache and state belongs to one of the two backends, and an op runs on the backend of its largest matrix,
 * cache or state. Ops without these run where the last op ran, not counting side ops (experts). Activations and small
 * vectors of the model are allocated on both backends, at the same offset of two regions, and are copied when needed.
 * Models know one address, the host's:
 *
 *     model       x [T, E]
 *     host        [ x | qkv | att | ... ]   newer here if the CPU wrote last
 *     device      [ x | qkv | att | ... ]   newer here if the device wrote last; all else is equal or unused
 *
 * A list of ranges says which bytes are newer on one backend. Before a backend reads bytes that are newer on the other
 * backend, they are copied. The host region is memory of the device's host_alloc, so that the device copies it
 * asynchronously, in the order of its queue. So before an op on the CPU, the step thread waits for all queued copies.
 * The two backends wait for each other nowhere else. finish() returns the first error.
 *
 * In decode steps the device's work between two CPU ops, including the copies, is one graph segment, which is
 * captured and replayed (graph_segment of device.h):
 *
 *     op         embed | rope linear qkv attention ... | linear (CPU's) | add_norm linear ... | the host reads the rows
 *     device           [ segment 0       and a download ]                [ an upload and segment 1 ]
 *
 * All these steps have the same segments: each step begins with no newer range, and uses the batch that the device
 * has padded. The CPU computes only the batch's own rows. Padding rows, which follow them, are copied too, and are
 * undefined.
 *
 * Memory: one small object; the regions belong to the two backends. Threads: as device.h says. Invariant: no byte
 * is in two ranges. An op that writes rows with gaps first fetches newer bytes of the gaps, so that a range never
 * has holes. The list has a fixed length: if it is full, a range is copied that may not be needed. */
#include "backend/split.h"

#include <stdio.h>
#include <string.h>

#include "backend/lora_local.h"
#include "backend/operands.h"
#include "base/alloc.h"
#include "base/error.h"

/* MAX_REGIONS: max allocations, adapters included. MAX_NEWER: max ranges in split.newer. N_SIDES: number of
 * backends. */
enum { MAX_REGIONS = 64, MAX_NEWER = 64, N_SIDES = PI__AT_CPU + 1 };

/* One allocation, with memory on both backends. */
typedef struct region {
    char *host;   /* address on the CPU; NULL = this entry is free */
    char *device; /* address on the device */
    size_t size;  /* bytes of each */
} region;

/* Bytes lo..hi (host addresses) that are newer on one backend. */
typedef struct newer {
    const char *lo, *hi;
    int32_t placement; /* PI__AT_* of the backend with the newer bytes */
} newer;

typedef struct split {
    pi__backend be;           /* first: the public interface, with both backends */
    pi__op_fns fns;           /* be.ops */
    char desc[256];           /* "cuda (...) + cpu (...)" */
    region region[MAX_REGIONS];
    newer newer[MAX_NEWER];
    int32_t n_newer;          /* entries of newer in use */
    int32_t last;             /* backend of the last op */
    bool copying;             /* queued copies may still read or write the host regions */
    bool segmented;           /* the device's work in this step is captured in graph segments */
    bool in_segment;          /* a graph segment has begun and not ended */
    const pi__batch *batch;   /* the step's batch that models use: with the device's padding and the host's addresses */
    /* Used if the batch has adapters, which lie at another address on each backend. given: the batch with the device's
     * addresses, passed to the device's begin. step: the batch that begin returned, with the host's addresses. */
    pi__batch given, step;
    const pi__batch *own[N_SIDES]; /* by placement: the batch that each backend's begin returned */
    pi__lora_local lora;      /* adapter runs with the device's addresses */
    pi_error error;           /* the first error since the last finish() */
} split;

/* Rows of floats in host addresses. */
typedef struct rows {
    const float *p; /* NULL = no rows */
    int64_t n, ld, width; /* rows; floats between rows; floats per row that are used */
} rows;

static rows rows_of(const void *args, const pi__operand *o)
{
    return (rows) {pi__operand_get(args, o), o->n, o->ld, o->width};
}

static split *of(pi__backend *be) { return (split *) be; }
static pi__backend *backend_at(const split *s, int32_t placement) { return s->be.at[placement]; }

/* ---------------------------------------------------------------------------------------------------- both memories */

static region *region_of(split *s, const void *p)
{
    const char *c = p;
    for (int32_t i = 0; i < MAX_REGIONS; i++) {
        region *r = &s->region[i];
        if (r->host && c >= r->host && c < r->host + r->size) return r;
    }
    return NULL;
}

/* Returns the device's address of p; p itself if it is not in both memories. */
static void *device_at(split *s, const void *p)
{
    const region *r = p ? region_of(s, p) : NULL;
    return r ? r->device + ((const char *) p - r->host) : (void *) p;
}

static const void *on_device(const void *ud, const void *p) { return device_at((split *) (uintptr_t) ud, p); }

/* Returns p as an address of this backend. */
static void *at(split *s, int32_t placement, const void *p)
{
    return placement == PI__AT_DEVICE ? device_at(s, p) : (void *) p;
}

static void *split_alloc(pi__backend *be, size_t size)
{
    split *s = of(be);
    pi__backend *dev = backend_at(s, PI__AT_DEVICE);
    int32_t i = 0;
    while (i < MAX_REGIONS && s->region[i].host) i++;
    if (i == MAX_REGIONS) return NULL;
    region r = {dev->dev->host_alloc(dev, size), dev->dev->alloc(dev, size), size};
    if (!r.host || !r.device) {
        if (r.host) dev->dev->host_free(dev, r.host, size);
        if (r.device) dev->dev->free(dev, r.device, size);
        return NULL;
    }
    memset(r.host, 0, size);
    s->region[i] = r;
    return r.host;
}

/* Called before work is queued on the device: begins a graph segment if the step has segments and none has begun. */
static void begin_segment(split *s)
{
    pi__backend *dev = backend_at(s, PI__AT_DEVICE);
    if (s->segmented && !s->in_segment) dev->opt->graph_segment(dev);
    s->in_segment = s->segmented;
}

/* Ends the graph segment, which queues it. finish() returns any error. */
static void end_segment(split *s)
{
    pi__backend *dev = backend_at(s, PI__AT_DEVICE);
    if (s->in_segment) (void) dev->opt->end_capture(dev);
    s->in_segment = false;
}

/* Ends the graph segments of the step: the following ops and copies are not captured. */
static void end_segments(split *s)
{
    end_segment(s);
    s->segmented = false;
}

/* Queues a copy of lo..hi (host addresses) from the backend `from` to the other one. */
static void copy_over(split *s, const char *lo, const char *hi, int32_t from)
{
    pi__backend *dev = backend_at(s, PI__AT_DEVICE);
    begin_segment(s);
    const size_t n = (size_t) (hi - lo);
    if (from == PI__AT_CPU) dev->dev->upload(dev, device_at(s, lo), lo, n);
    else dev->dev->download(dev, (char *) lo, device_at(s, lo), n);
    s->copying = true;
}

/* Waits for queued copies, so that the CPU may read and write the host regions. */
static void wait_copies(split *s)
{
    pi__backend *dev = backend_at(s, PI__AT_DEVICE);
    pi_error err = {0};
    if (s->copying && dev->dev->finish(dev, &err) && !s->error.code) s->error = err;
    s->copying = false;
}

/* Removes lo..hi from the list of newer ranges. sync: first copies the newer bytes of lo..hi to the other backend; else
 * they are about to be overwritten. If the list is full, further bytes of a range may be copied too. */
static void mark_equal(split *s, const char *lo, const char *hi, bool sync)
{
    for (int32_t i = 0; i < s->n_newer;) {
        newer *w = &s->newer[i], had = *w;
        const char *a = lo > w->lo ? lo : w->lo, *b = hi < w->hi ? hi : w->hi;
        if (a >= b) {
            i++;
            continue;
        }
        const bool two = a > w->lo && b < w->hi, room = s->n_newer < MAX_NEWER;
        if (sync) copy_over(s, a, two && !room ? w->hi : b, w->placement);
        else if (two && !room) copy_over(s, b, w->hi, w->placement);
        if (a > w->lo) w->hi = a;
        else if (b < w->hi) w->lo = b;
        else *w = s->newer[--s->n_newer]; /* w is now the next entry to check */
        if (two && room) s->newer[s->n_newer++] = (newer) {b, had.hi, had.placement};
        if (a > had.lo || b < had.hi) i++;
    }
}

/* Called before the backend `placement` reads lo..hi: queues copies of the bytes that are newer on the other
 * backend. */
static void fetch(split *s, int32_t placement, const char *lo, const char *hi)
{
    for (int32_t i = 0; i < s->n_newer;) {
        const newer w = s->newer[i];
        if (w.placement == placement || w.hi <= lo || w.lo >= hi) {
            i++;
            continue;
        }
        mark_equal(s, lo > w.lo ? lo : w.lo, hi < w.hi ? hi : w.hi, true);
        i = 0;
    }
}

static const char *end_of(rows r) { return (const char *) (r.p + (r.n - 1) * r.ld + r.width); }

/* Called before the backend `placement` reads r: queues copies of the bytes that are newer on the other backend. */
static void reads(split *s, int32_t placement, rows r)
{
    if (r.p && r.n > 0) fetch(s, placement, (const char *) r.p, end_of(r));
}

/* Called before the backend `placement` writes r: makes r newer there. If rows have gaps, copies newer bytes of the
 * gaps first. */
static void writes(split *s, int32_t placement, rows r)
{
    if (!r.p || r.n < 1) return;
    const char *lo = (const char *) r.p, *hi = end_of(r);
    if (r.n > 1 && r.ld != r.width) fetch(s, placement, lo, hi);
    mark_equal(s, lo, hi, false);
    for (int32_t i = 0; i < s->n_newer; i++) { /* merge with adjacent ranges */
        const newer w = s->newer[i];
        if (w.placement != placement || (w.hi != lo && w.lo != hi)) continue;
        if (w.hi == lo) lo = w.lo;
        else hi = w.hi;
        s->newer[i] = s->newer[--s->n_newer];
        i = -1;
    }
    if (s->n_newer == MAX_NEWER) mark_equal(s, s->newer[0].lo, s->newer[0].hi, true);
    s->newer[s->n_newer++] = (newer) {lo, hi, placement};
}

static void split_free(pi__backend *be, void *p, size_t size)
{
    split *s = of(be);
    region *r = p ? region_of(s, p) : NULL;
    if (!r) return;
    mark_equal(s, r->host, r->host + r->size, false);
    pi__backend *dev = backend_at(s, PI__AT_DEVICE);
    wait_copies(s);
    dev->dev->free(dev, r->device, size);
    dev->dev->host_free(dev, r->host, size);
    memset(r, 0, sizeof *r);
}

/* Writes n bytes to both memories. */
static void split_upload(pi__backend *be, void *dst, const void *src, size_t n)
{
    split *s = of(be);
    pi__backend *dev = backend_at(s, PI__AT_DEVICE);
    end_segments(s);
    mark_equal(s, dst, (char *) dst + n, false);
    wait_copies(s);
    memcpy(dst, src, n);
    dev->dev->upload(dev, device_at(s, dst), src, n);
}

/* Copies directly from the device to dst if all n bytes are newer there; else through the host region. */
static void split_download(pi__backend *be, void *dst, const void *src, size_t n)
{
    split *s = of(be);
    const char *lo = src, *hi = lo + n;
    end_segments(s);
    for (int32_t i = 0; i < s->n_newer; i++) {
        const newer *w = &s->newer[i];
        if (w->placement != PI__AT_DEVICE || w->lo > lo || w->hi < hi) continue;
        pi__backend *dev = backend_at(s, PI__AT_DEVICE);
        dev->dev->download(dev, dst, device_at(s, lo), n);
        return;
    }
    fetch(s, PI__AT_CPU, lo, hi);
    wait_copies(s);
    memcpy(dst, src, n);
}

static void *split_host_alloc(pi__backend *be, size_t size)
{
    return be->at[PI__AT_DEVICE]->dev->host_alloc(be->at[PI__AT_DEVICE], size);
}

static void split_host_free(pi__backend *be, void *p, size_t size)
{
    be->at[PI__AT_DEVICE]->dev->host_free(be->at[PI__AT_DEVICE], p, size);
}

/* ------------------------------------------------------------------------------------------------------------ steps */

static size_t split_scratch_bytes(const pi__backend *be, const pi__limits *lim)
{
    const pi__backend *dev = be->at[PI__AT_DEVICE], *cpu = be->at[PI__AT_CPU];
    return dev->dev->scratch_bytes(dev, lim) + cpu->dev->scratch_bytes(cpu, lim);
}

static int split_reserve(pi__backend *be, const pi__limits *lim, pi_error *err)
{
    int rc = pi__lora_local_init(&of(be)->lora, lim, err);
    for (int32_t i = 0; i < N_SIDES && !rc; i++) rc = be->at[i]->dev->reserve(be->at[i], lim, err);
    return rc;
}

static const pi__batch *split_begin(pi__backend *be, const pi__batch *b, int kind)
{
    split *s = of(be);
    pi__backend *dev = backend_at(s, PI__AT_DEVICE), *cpu = backend_at(s, PI__AT_CPU);
    s->segmented = kind == PI__STEP_DECODE && dev->opt->graph_segment;
    if (kind == PI__STEP_DECODE) s->n_newer = 0; /* a decode step reads no earlier activations */
    const bool adapters = b->lora.n_runs > 0;
    if (adapters) {
        s->given = *b;
        s->given.lora = *pi__lora_local_of(&s->lora, &b->lora, on_device, s);
    }
    s->own[PI__AT_DEVICE] = dev->dev->begin(dev, adapters ? &s->given : b,
                                            s->segmented ? PI__STEP_SEGMENTS : PI__STEP_ANY);
    s->own[PI__AT_CPU] = cpu->dev->begin(cpu, b, PI__STEP_ANY);
    s->batch = s->own[PI__AT_DEVICE];
    if (!adapters) return s->batch;
    s->step = *s->batch;
    s->step.lora = b->lora;
    return s->batch = &s->step;
}

static int split_finish(pi__backend *be, pi_error *err)
{
    split *s = of(be);
    pi_error first = s->error, why = {0};
    memset(&s->error, 0, sizeof s->error);
    end_segments(s);
    s->copying = false;
    for (int32_t i = 0; i < N_SIDES; i++)
        if (be->at[i]->dev->finish(be->at[i], &why) && !first.code) first = why;
    return first.code ? pi__fail(err, first.code, "%s", first.msg) : PI_OK;
}

/* -------------------------------------------------------------------------------------------------------------- ops */

/* Called after declare_operands. Returns the backend s->last, ready to run the op: with a graph segment, or with
 * completed copies. */
static pi__backend *ready(split *s)
{
    if (s->last == PI__AT_DEVICE) {
        begin_segment(s);
    } else {
        end_segment(s);
        wait_copies(s);
    }
    return backend_at(s, s->last);
}

/* Returns the number of rows that the backend s->last computes, of an op with n rows. The rows are a step's tokens,
 * or its logits rows, with padding last; the CPU skips the padding. Logits rows may be a prefix of all logits rows. */
static int32_t own_rows(const split *s, int32_t n)
{
    const pi__batch *all = s->batch, *own = s->own[s->last];
    if (!all || all == own) return n;
    if (n < all->n_tokens) return n < own->n_tokens ? n : own->n_tokens;
    return n % all->n_tokens ? n : n / all->n_tokens * own->n_tokens;
}

/* b is s->batch or its logits batch: returns the corresponding batch of the backend s->last. */
static const pi__batch *own(const split *s, const pi__batch *b)
{
    return b == s->batch ? s->own[s->last] : s->own[s->last]->logits_batch;
}

/* Changes the pointers in args, a copy of the op's arguments, to the addresses of the backend `placement`. */
static void move_operands(split *s, int32_t placement, const pi__operands *o, void *args)
{
    for (int32_t i = 0; i < o->n; i++) {
        const pi__operand *p = &o->op[i];
        const void *at_host = pi__operand_get(args, p);
        if (p->kind <= PI__VECTOR) pi__operand_set(args, p, at(s, placement, at_host));
        else if (p->kind == PI__ADAPTERS && placement == PI__AT_DEVICE)
            pi__operand_set(args, p, pi__lora_local_of(&s->lora, at_host, on_device, s));
        else if (p->kind == PI__TOKENS && at_host == s->batch->logits_indices)
            pi__operand_set(args, p, s->own[placement]->logits_indices);
        else if (p->kind == PI__TOKENS && at_host == s->batch->hidden_row)
            pi__operand_set(args, p, s->own[placement]->hidden_row);
    }
}

/* Copies newer bytes of the op's inputs to the backend `placement`, and marks the outputs as newer there. */
static void declare_operands(split *s, int32_t placement, const pi__operands *o, const void *args)
{
    for (int32_t i = 0; i < o->n; i++) {
        const pi__operand *p = &o->op[i];
        if (p->kind == PI__READ || p->kind == PI__UPDATE) reads(s, placement, rows_of(args, p));
    }
    for (int32_t i = 0; i < o->n; i++) {
        const pi__operand *p = &o->op[i];
        if (p->kind == PI__WRITE || p->kind == PI__UPDATE) writes(s, placement, rows_of(args, p));
    }
}

/* Runs any op on the backend of its largest matrix, cache or state, or else where the last op ran. Ops that the device
 * lacks run on the CPU. Results that are needed everywhere are copied to the CPU. */
static void split_run(split *s, pi__op_id id, const pi__batch *b, const void *given)
{
    pi__operands o;
    pi__op_record r = {.id = id};
    const int32_t before = s->last;
    memcpy(&r.args, given, pi__op_size(id));
    pi__operands_of(id, b, given, &o);
    if (o.placement != PI__AT_LAST) s->last = o.placement;
    if (!pi__op_has(backend_at(s, s->last), id)) s->last = PI__AT_CPU;
    if (o.uncaptured) end_segments(s);
    declare_operands(s, s->last, &o, given);
    move_operands(s, s->last, &o, &r.args);
    pi__backend *to = ready(s);
    int32_t *n_rows = o.rows_at < 0 ? NULL : (int32_t *) (void *) ((char *) &r.args + o.rows_at);
    if (n_rows) *n_rows = own_rows(s, *n_rows);
    pi__op_run(to, id, b ? own(s, b) : NULL, &r.args);
    for (int32_t i = 0; i < o.n && o.everywhere && s->last == PI__AT_DEVICE; i++)
        if (o.op[i].kind == PI__WRITE) reads(s, PI__AT_CPU, rows_of(given, &o.op[i]));
    if (o.guest) s->last = before;
}

/* Runs op linear once per backend, with the matrices that lie there. */
static void split_linear(pi__backend *be, const pi__batch *b, const pi__linear *a)
{
    for (int32_t placement = 0; placement < N_SIDES; placement++) {
        pi__linear some = {.in = a->in, .n_rows = a->n_rows};
        for (int32_t i = 0; i < a->n_lin; i++)
            if (a->lin[i].w->placement == placement) some.lin[some.n_lin++] = a->lin[i];
        if (some.n_lin) split_run(of(be), PI__OP_linear, b, &some);
    }
}

#define RUN(name, type)                                                                                                \
    static void run_##name(pi__backend *be, const pi__batch *b, const type *a)                                         \
    {                                                                                                                  \
        split_run(of(be), PI__OP_##name, b, a);                                                                        \
    }
PI__OPS(RUN)
#undef RUN

/* True if the last op ran on the device and the device can run topk. Rows that the CPU wrote are in host memory
 * already, where the host samples from them. */
static bool split_topk_here(const pi__backend *be)
{
    const split *s = (const split *) be;
    const pi__backend *dev = be->at[PI__AT_DEVICE];
    return s->last == PI__AT_DEVICE && dev->opt->topk_here && dev->opt->topk_here(dev);
}

/* -------------------------------------------------------------------------------------------------- create, destroy */

static const char *split_describe(const pi__backend *be) { return ((const split *) be)->desc; }
static int32_t split_n_threads(const pi__backend *be) { return be->at[PI__AT_CPU]->dev->n_threads(be->at[PI__AT_CPU]); }

static void split_destroy(pi__backend *be)
{
    if (!be) return;
    for (int32_t i = 0; i < N_SIDES; i++) be->at[i]->dev->destroy(be->at[i]);
    pi__lora_local_destroy(&of(be)->lora);
    pi__free(of(be));
}

/* Sizing, loading and trimming of weights, caches and states are called on the backend of their placement
 * (pi__backend_at), so these functions are NULL here. */
static const pi__device_fns split_device = {
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
};
static const pi__device_opt split_opt = {
    .topk_here = split_topk_here,
};

#define FN(name, type) .name = run_##name,
static const pi__op_fns split_fns = {PI__OPS(FN)};
#undef FN

int pi__split_create(pi__backend **out, pi__backend *device, pi__backend *cpu, pi_error *err)
{
    *out = NULL;
    split *s = pi__calloc(1, sizeof *s);
    if (!s) return pi__fail_mem(err, "the devices");
    s->be.dev = &split_device;
    s->be.opt = &split_opt;
    s->fns = split_fns;
    s->fns.linear = split_linear;
    s->be.ops = &s->fns;
    s->be.discrete = true;
    s->be.integrated = device->integrated;
    s->be.at[PI__AT_DEVICE] = device;
    s->be.at[PI__AT_CPU] = cpu;
    snprintf(s->desc, sizeof s->desc, "%.120s + %.120s", device->dev->describe(device), cpu->dev->describe(cpu));
    *out = &s->be;
    return PI_OK;
}
