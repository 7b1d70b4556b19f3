/* Several devices as the stages of a pipeline (split-mode layer): each stage has some of the layers, with their
 * weights and caches.
 *
 * Placement i of matrices, caches and states is stage i. As in tensor.c, the graph runs once and only records ops;
 * finish() executes the recorded calls. Each call runs on the stage of its largest matrix, cache or state, or where the
 * last op ran. Copies between stages are planned (stages_plan.c) from the table of operands, so that models know
 * nothing about stages.
 *
 *     model       x [T, E]
 *     host        [ x | qkv | att | ... ]   addresses that models know; buffer for copies between stages
 *     stage i     [ x | qkv | att | ... ]   the same layout, where the stage computes
 *
 * A step with enough tokens is split into microbatches: complete sequences, or parts of a prompt. Each microbatch is a
 * step of its own for the devices: while one is on stage 1, the next is on stage 0 (stages_run.c). Microbatches use
 * different rows of the same memory. Results equal those of the unsplit step, because no row depends on other rows of
 * the batch. After the first op with rows other than the step's tokens, for example the logits rows, calls are not
 * split any more: the output matrix is read once for all rows. A step with few tokens passes through the stages one
 * after the other, on the step thread.
 *
 * In decode steps each stage captures its segments as graphs, copies to and from host memory included. From the
 * third step of a shape on, only these graphs are replayed, in order (stages_graphs.c). Then stages wait for each
 * other in their queues, without the host. The next step may be queued after them, with token ids from the last
 * stage.
 *
 * Memory: this object and the allocations of reserve; regions belong to the devices. Threads: as device.h says;
 * the stages' own threads are in stages_run.c. */
#include "backend/stages.h"

#include <stdio.h>
#include <string.h>

#include "backend/stages_impl.h"
#include "base/alloc.h"
#include "base/error.h"

/* Default of stages.least: min tokens per microbatch, on a CPU and on other devices. Each microbatch reads all weights
 * once more. In the time of that read, other devices compute more tokens than a CPU. */
enum { LEAST_CPU = 32, LEAST_DEVICE = 256 };

static stages *of(pi__backend *be) { return (stages *) be; }

/* ----------------------------------------------------------------------------------------------------------- memory */

/* Waits for the queued work of all devices. Errors are recorded with pi__stages_fail. */
static void settle(stages *s)
{
    pi_error err = {0};
    for (int32_t i = 0; i < s->n; i++)
        if (s->be.at[i]->dev->finish(s->be.at[i], &err)) pi__stages_fail(s, &err);
    s->queued = false;
}

/* Plans and executes all recorded calls. Calls that are not captured are planned from the state of host memory, so all
 * queued work must complete first. */
static void make_calls(stages *s)
{
    if (s->n_calls && s->queued && !s->captures) settle(s);
    for (int32_t i = 0; i < s->n_calls && !atomic_load(&s->failed);) {
        i = pi__stages_plan(s, i);
        pi__stages_run(s);
    }
    s->n_calls = 0;
}

/* Executes all recorded calls, and ends the graph segments. Returns be as stages. */
static stages *called(pi__backend *be)
{
    stages *s = of(be);
    make_calls(s);
    pi__stages_end_segments(s);
    return s;
}

/* Like called(), and waits until no work of a decode step is running on the devices. */
static stages *settled(pi__backend *be)
{
    stages *s = called(be);
    if (s->queued) settle(s);
    return s;
}

bool pi__stages_queue(pi__backend *be)
{
    return !atomic_load(&called(be)->failed);
}

static void region_free(stages *s, region *r)
{
    pi__backend *last = s->be.at[s->n - 1];
    for (int32_t i = 0; i < s->n; i++)
        if (r->at[i]) s->be.at[i]->dev->free(s->be.at[i], r->at[i], r->size);
    if (r->host) last->dev->host_free(last, r->host, r->size);
    memset(r, 0, sizeof *r);
}

static void *stages_alloc(pi__backend *be, size_t size)
{
    stages *s = settled(be);
    pi__backend *last = s->be.at[s->n - 1];
    region *r = s->region;
    while (r < s->region + MAX_REGIONS && r->host) r++;
    if (r == s->region + MAX_REGIONS) return NULL;
    *r = (region) {.host = last->dev->host_alloc(last, size), .size = size};
    bool all = r->host != NULL;
    for (int32_t i = 0; i < s->n && all; i++) all = (r->at[i] = s->be.at[i]->dev->alloc(s->be.at[i], size)) != NULL;
    if (!all) region_free(s, r);
    else memset(r->host, 0, size);
    return all ? r->host : NULL;
}

static void stages_free(pi__backend *be, void *p, size_t size)
{
    stages *s = settled(be);
    region *r = pi__stages_region_of(s, p);
    (void) size;
    if (!r) return;
    pi__stages_forget(s, r->host, r->host + r->size);
    settle(s);
    region_free(s, r);
}

/* Writes n bytes to host memory and to all stages. */
static void stages_upload(pi__backend *be, void *dst, const void *src, size_t n)
{
    stages *s = settled(be);
    pi__stages_forget(s, dst, (char *) dst + n);
    memcpy(dst, src, n);
    for (int32_t i = 0; i < s->n; i++) pi__stages_copy(s, i, dst, (char *) dst + n, false);
}

static void stages_download(pi__backend *be, void *dst, const void *src, size_t n)
{
    stages *s = settled(be);
    pi__stages_fetch(s, (char *) (uintptr_t) src, (char *) (uintptr_t) src + n);
    settle(s);
    memcpy(dst, src, n);
}

static void *stages_host_alloc(pi__backend *be, size_t size)
{
    pi__backend *last = be->at[of(be)->n - 1];
    return last->dev->host_alloc(last, size);
}
static void stages_host_free(pi__backend *be, void *p, size_t size)
{
    pi__backend *last = be->at[of(be)->n - 1];
    last->dev->host_free(last, p, size);
}

/* ------------------------------------------------------------------------------------------------------------ steps */

static size_t stages_scratch_bytes(const pi__backend *be, const pi__limits *lim)
{
    size_t n = 0;
    for (int32_t i = 0; i < be->n_stages; i++) n += be->at[i]->dev->scratch_bytes(be->at[i], lim);
    return n;
}

static int stages_reserve(pi__backend *be, const pi__limits *lim, pi_error *err)
{
    stages *s = settled(be);
    int rc = PI_OK;
    for (int32_t i = 0; i < s->n && !rc; i++) rc = be->at[i]->dev->reserve(be->at[i], lim, err);
    for (int32_t i = 0; i < s->n && !rc; i++) rc = pi__lora_local_init(&s->stage[i].lora, lim, err);
    if (rc) return rc;
    pi__free(s->arrays);
    s->max_tokens = lim->max_tokens, s->max_seqs = lim->max_seqs;
    s->n_arrays = pi__stages_cut_numbers(lim->max_tokens, lim->max_seqs);
    s->arrays = pi__calloc(s->n_arrays, sizeof *s->arrays);
    return s->arrays ? pi__stages_start(s, err) : pi__fail_mem(err, "microbatches");
}

static const pi__batch *stages_begin(pi__backend *be, const pi__batch *b, int kind)
{
    const bool decodes = kind == PI__STEP_DECODE || kind == PI__STEP_FED;
    stages *s = decodes ? called(be) : settled(be);
    s->given = b;
    s->apart = false;
    memset(s->own, 0, sizeof s->own);
    pi__stages_cut(s, b, kind);
    if (decodes && s->n_micro == 1 && be->at[0]->opt->graph_segment)
        b = pi__stages_begin_decode(s, b, kind == PI__STEP_FED);
    s->draw = (pi__draws) {0};
    return b;
}

static int stages_finish(pi__backend *be, pi_error *err)
{
    stages *s = settled(be);
    settle(s);
    const pi_error first = s->error;
    memset(&s->error, 0, sizeof s->error);
    atomic_store(&s->failed, false);
    return first.code ? pi__fail(err, first.code, "%s", first.msg) : PI_OK;
}

/* The results are on the stage that ran topk, the last op. Every stage queues the mark: when stages_wait returns, every
 * stage has read the uploads of its batches up to the mark. */
static void stages_mark(pi__backend *be, int i, uint64_t *found, int32_t n_rows)
{
    stages *s = called(be);
    s->finder = s->last, s->found = found, s->n_found = n_rows;
    for (int32_t k = 0; k < s->n; k++) s->be.at[k]->opt->mark(s->be.at[k], i, found, k == s->finder ? n_rows : 0);
}

static int stages_wait(pi__backend *be, int i, pi_error *err)
{
    stages *s = of(be);
    pi_error why = {0};
    for (int32_t k = 0; k < s->n; k++)
        if (s->be.at[k]->opt->wait(s->be.at[k], i, &why)) pi__stages_fail(s, &why);
    /* the error stays until finish clears it */
    return s->error.code ? pi__fail(err, s->error.code, "%s", s->error.msg) : PI_OK;
}

static void stages_draw(pi__backend *be, const pi__draws *draws) { of(be)->draw = *draws; }

static bool stages_topk_here(const pi__backend *be)
{
    const pi__backend *last = be->at[((const stages *) be)->last];
    return last->opt->topk_here && last->opt->topk_here(last);
}

/* -------------------------------------------------------------------------------------------------------------- ops */

/* Returns true if the op works on the step's tokens row by row, so that it can run once per microbatch. */
static bool goes_by_tokens(const stages *s, pi__op_id id, const pi__batch *b, const void *args, const pi__operands *o)
{
    switch (id) {
    case PI__OP_gather_rows: case PI__OP_topk: case PI__OP_state_save: case PI__OP_state_load: case PI__OP_block_conv:
    case PI__OP_centroid_head: case PI__OP_place_rows: return false;
    case PI__OP_attention: /* with `block`, tokens see later keys, which later microbatches would write */
        if (((const pi__attention *) args)->block) return false;
        if (((const pi__attention *) args)->spans && b && b->see_to) return false;
        break;
    default: break;
    }
    if (!s->given || (b && b != s->given)) return false;
    if (o->rows_at < 0) return b != NULL;
    return *(const int32_t *) (const void *) ((const char *) args + o->rows_at) % s->given->n_tokens == 0;
}

/* Records an op, and determines its stage. If the list of calls is full, executes the recorded calls first. */
static void note(stages *s, pi__op_id id, const pi__batch *b, const void *args)
{
    pi__operands o;
    if (s->n_calls == MAX_CALLS) make_calls(s);
    pi__operands_of(id, b, args, &o);
    if (o.uncaptured && s->captures) settled(&s->be);
    const int32_t before = s->last;
    if (o.placement >= 0 && o.placement < s->n) s->last = o.placement;
    s->apart = s->apart || !goes_by_tokens(s, id, b, args, &o);
    call *c = &s->calls[s->n_calls++];
    c->stage = s->last;
    c->cut = s->n_micro > 1 && !s->apart;
    c->op.id = id;
    c->op.b = b;
    memcpy(&c->op.args, args, pi__op_size(id));
    if (o.guest) s->last = before;
}

/* Records op linear once per stage, with the matrices that lie there. */
static void note_linear(pi__backend *be, const pi__batch *b, const pi__linear *a)
{
    for (int32_t placement = 0; placement < be->n_stages; placement++) {
        pi__linear some = {.in = a->in, .n_rows = a->n_rows};
        for (int32_t i = 0; i < a->n_lin; i++)
            if (a->lin[i].w->placement == placement) some.lin[some.n_lin++] = a->lin[i];
        if (some.n_lin) note(of(be), PI__OP_linear, b, &some);
    }
}

#define NOTE(name, type)                                                                                               \
    static void note_any_##name(pi__backend *be, const pi__batch *b, const type *a)                                    \
    {                                                                                                                  \
        note(of(be), PI__OP_##name, b, a);                                                                             \
    }
PI__OPS(NOTE)
#undef NOTE

/* -------------------------------------------------------------------------------------------------- create, destroy */

static const char *stages_describe(const pi__backend *be) { return ((const stages *) be)->desc; }
static int32_t stages_n_threads(const pi__backend *be)
{
    int32_t n = 0;
    for (int32_t i = 0; i < be->n_stages; i++) n += be->at[i]->dev->n_threads(be->at[i]);
    return n;
}

static void stages_destroy(pi__backend *be)
{
    stages *s = of(be);
    if (!s) return;
    pi__stages_stop(s);
    for (int32_t i = 0; i < s->n; i++) {
        s->be.at[i]->dev->destroy(s->be.at[i]);
        pi__lora_local_destroy(&s->stage[i].lora);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->moved);
    pi__free(s->arrays);
    pi__free(s->calls);
    pi__free(s);
}

/* Sizing, loading and trimming of weights, caches and states are called on their stage (pi__backend_at), so these
 * functions are NULL here. */
static const pi__device_fns stages_device = {
    .destroy = stages_destroy,
    .describe = stages_describe,
    .n_threads = stages_n_threads,
    .alloc = stages_alloc,
    .free = stages_free,
    .upload = stages_upload,
    .download = stages_download,
    .host_alloc = stages_host_alloc,
    .host_free = stages_host_free,
    .scratch_bytes = stages_scratch_bytes,
    .reserve = stages_reserve,
    .begin = stages_begin,
    .finish = stages_finish,
};

static void set_ops(stages *s, const pi__backend *can)
{
#define SET(name, type) s->ops.name = can->ops->name ? note_any_##name : NULL;
    PI__OPS(SET)
#undef SET
    s->ops.linear = note_linear;
}

static int check(pi__backend *const *dev, int32_t n, pi_error *err)
{
    if (n > PI__MAX_STAGES)
        return pi__fail(err, PI_EUNSUPPORTED, "split-mode layer with %d devices: give at most %d, "
                        "or use split-mode tensor", n, PI__MAX_STAGES);
    for (int32_t i = 1; i < n; i++)
        if (dev[i]->dev != dev[0]->dev)
            return pi__fail(err, PI_EUNSUPPORTED,
                            "split-mode layer: %s and %s are of different kinds: name devices of one kind",
                            dev[0]->dev->describe(dev[0]), dev[i]->dev->describe(dev[i]));
    return PI_OK;
}

int pi__stages_create(pi__backend **out, pi__backend *const *dev, int32_t n, int32_t least, pi_error *err)
{
    *out = NULL;
    int rc = check(dev, n, err);
    stages *s = rc ? NULL : pi__calloc(1, sizeof *s);
    call *calls = s ? pi__calloc(MAX_CALLS, sizeof *calls) : NULL;
    if (!rc && !calls) rc = pi__fail_mem(err, "the devices");
    if (rc) {
        for (int32_t i = 0; i < n; i++) dev[i]->dev->destroy(dev[i]);
        pi__free(s);
        return rc;
    }
    s->calls = calls;
    s->n = n;
    s->least = least ? least : dev[0]->discrete ? LEAST_DEVICE : LEAST_CPU;
    s->n_micro = 1;
    s->dev = stages_device;
    s->be = (pi__backend) {.dev = &s->dev, .opt = &s->opt, .ops = &s->ops, .discrete = true,
                           .integrated = dev[0]->integrated, .n_stages = n};
    for (int32_t i = 0; i < n; i++) s->be.at[i] = dev[i];
    set_ops(s, dev[0]);
    if (dev[0]->opt->topk_here) s->opt.topk_here = stages_topk_here;
    if (dev[0]->opt->follow) s->opt.mark = stages_mark, s->opt.wait = stages_wait, s->opt.draw = stages_draw;
    snprintf(s->desc, sizeof s->desc, "%d stages of %.96s", n, dev[0]->dev->describe(dev[0]));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->moved, NULL);
    *out = &s->be;
    return PI_OK;
}
