/* A worker rank: a process that executes rank 0's commands with its device (ranks.h lists the commands).
 *
 * A worker rank knows no model and reads no model file. It receives its own rows of each matrix from rank 0, and the op
 * calls that rank 0's graph makes. So machines need only the same library.
 *
 * Memory: the backend's, and one buffer for payloads. Threads: the caller's, which waits here for commands, and
 * the device's own. */
#include <stdio.h>
#include <string.h>

#include "backend/tensor.h"
#include "backend/tensor_check.h"
#include "backend/tensor_impl.h"
#include "backend/tensor_orders.h"
#include "backend/tensor_wire.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"

typedef struct follower {
    pi__ranks *r;
    const pi__log *log;
    pi__backend *be;   /* backend of the device that PI__ORDER_OPEN named; NULL = not open */
    char *buf;         /* [cap] payload of a command */
    size_t cap;        /* bytes allocated at buf */
} follower;

static pi__tensor *tensor_of(follower *f) { return (pi__tensor *) f->be; }

static bool room(follower *f, size_t n) { return pi__grow(&f->buf, &f->cap, n, 1); }

/* Receives n bytes of payload to f->buf, which grows. Returns false if the ranks are dead or memory is short. */
static bool receive(follower *f, size_t n)
{
    pi__ranks *r = f->r;
    return room(f, n) && pi__ranks_check(r, !n || r->fns->bcast(r, f->buf, n, r->timeout_ms));
}

/* Replies to a command; a: pi__reply.a. Returns false if the ranks are dead, as all take_* functions do. */
static bool reply(follower *f, int code, const char *text, uint64_t a)
{
    pi__reply all[PI__MOST_RANKS], own = {.code = code, .reached = true, .a = a};
    snprintf(own.text, sizeof own.text, "%.*s", (int) sizeof own.text - 1, text);
    return pi__ranks_reply(f->r, &own, all);
}

static void close_device(follower *f)
{
    if (f->be) f->be->dev->destroy(f->be);
    f->be = NULL;
}

/* Creates the backend of the device d. The device's index is this process's number on its machine. */
static int create(follower *f, pi__rank_device *d, pi_error *err)
{
    char build[64];
    pi__ranks_build(build);
    if (strncmp(build, d->build, sizeof build))
        return pi__fail(err, PI_EUNSUPPORTED, "its build differs from rank 0's: run the same build on all ranks");
    d->isa[sizeof d->isa - 1] = d->name[sizeof d->name - 1] = 0;
    d->params.cpu.isa = d->isa;
    for (int i = 0; i < pi__n_devices; i++)
        if (!pi__devices[i].check_params(&d->params))
            return pi__fail(err, PI_EINTERNAL, "rank 0 sent a thread count or priority out of range");
    return pi__device_create_rank(&f->be, d->name, f->r, &d->params, f->log, err);
}

static bool take_open(follower *f)
{
    pi__rank_device d;
    pi_error err = {0};
    memcpy(&d, f->buf, sizeof d);
    close_device(f);
    if (create(f, &d, &err)) return reply(f, err.code, err.msg, 0);
    const pi__backend *own = tensor_of(f)->rank[f->r->rank].be;
    return reply(f, PI_OK, own->dev->describe(own), own->page);
}

static bool take_reserve(follower *f)
{
    pi__limits lim;
    pi_error err = {0};
    memcpy(&lim, f->buf, sizeof lim);
    if (!pi__valid_limits(&lim)) return reply(f, PI_EINTERNAL, "rank 0 sent limits out of range", 0);
    const int rc = f->be->dev->reserve(f->be, &lim, &err);
    return reply(f, rc, rc ? err.msg : "", 0);
}

static bool take_join(follower *f)
{
    pi_error err = {0};
    const int rc = pi__tensor_join_rank(tensor_of(f), f->buf, &err);
    return reply(f, rc, rc ? err.msg : "", 0);
}

/* Allocates memory, or reserves an arena, that rank 0 has at o->at. Replies. */
static bool take_alloc(follower *f, const pi__order *o)
{
    const int rc = pi__tensor_keep_region(tensor_of(f), (char *) (uintptr_t) o->at, o->size,
                                          o->kind == PI__ORDER_ARENA);
    return reply(f, rc, rc ? "out of memory" : "", 0);
}

/* Returns true if the range of the command o (at, size) is memory of this rank. */
static bool is_here(follower *f, const pi__order *o)
{
    return pi__valid_memory(&tensor_of(f)->rank[f->r->rank], (const void *) (uintptr_t) o->at, o->size);
}

static bool take_upload(follower *f, const pi__order *o)
{
    if (o->size != o->n_bytes || !is_here(f, o)) return reply(f, PI_EINTERNAL,
                                                              "the memory range is not allocated on this rank", 0);
    if (o->size) f->be->dev->upload(f->be, (void *) (uintptr_t) o->at, f->buf, o->size);
    return reply(f, PI_OK, "", 0);
}

/* Receives and loads the rows of PI__ORDER_LOAD: this rank's rows, or all rows. */
static bool take_rows(follower *f)
{
    pi__ranks *r = f->r;
    pi__tensor *t = tensor_of(f);
    rank *k = &t->rank[r->rank];
    pi__rank_rows rows;
    piece p[MAX_FUSED] = {{.n = 0}};
    int32_t n_piece = 1;
    memcpy(&rows, f->buf, sizeof rows);
    if (!pi__valid_rows(k, &rows)) return pi__ranks_check(r, false);
    const size_t bytes = pi__row_size(pi__type_info_of(rows.w.type), rows.w.n_in);
    if (rows.cut) n_piece = pi__tensor_pieces(k, &rows.w, p);
    else p[0].w = rows.w, p[0].w.data = pi__tensor_at(k, rows.w.data);
    for (int32_t i = 0; i < n_piece; i++) {
        int64_t lo = rows.row, hi = rows.row + rows.n;
        if (rows.cut && !pi__tensor_share(&p[i], r->rank, rows.row, rows.n, &lo, &hi)) continue;
        const size_t size = (size_t) (hi - lo) * bytes;
        if (!room(f, size)) return pi__ranks_check(r, false);
        if (!pi__ranks_check(r, rows.cut ? r->fns->receive(r, f->buf, size, r->timeout_ms)
                                         : r->fns->bcast(r, f->buf, size, r->timeout_ms)))
            return false;
        const int64_t first = rows.cut ? p[i].first + r->rank * p[i].n : 0;
        k->be->dev->weight_load(k->be, &p[i].w, rows.mat, lo - first, hi - lo, f->buf);
    }
    return true;
}

static bool take_kept(follower *f, const pi__order *o)
{
    const pi__tensor *t = tensor_of(f);
    const bool ok = t->wire && o->size == o->n_bytes &&
                    pi__wire_keep(t->wire, (void *) (uintptr_t) o->at, f->buf, o->size);
    return reply(f, ok ? PI_OK : PI_ENOMEM, "out of memory for the model's tables", 0);
}

/* Executes the calls in the wire buffer. ends: also waits for them and replies. */
static bool take_run(follower *f, bool ends)
{
    pi__tensor *t = tensor_of(f);
    rank *k = &t->rank[f->r->rank];
    if (!pi__wire_read(t->wire, t)) return pi__ranks_check(f->r, false);
    t->ends = ends;
    pi__tensor_run_rank(k);
    t->n_calls = 0;
    if (!ends) return !k->lost;
    pi__reply all[PI__MOST_RANKS],
        own = {.code = k->rc, .reached = !k->lost, .a = k->be->n_attended, .b = k->be->n_possible};
    if (k->rc) snprintf(own.text, sizeof own.text, "%.*s", (int) sizeof own.text - 1, k->err.msg);
    k->lost = k->failed = t->any_lost = false;
    return pi__ranks_reply(f->r, &own, all);
}

static bool take_memory(follower *f, const pi__order *o)
{
    const pi__device_fns *dev = f->be->dev;
    const pi__device_opt *opt = f->be->opt;
    void *at = (void *) (uintptr_t) o->at;
    if (o->kind == PI__ORDER_FREE) {
        pi__tensor_drop_region(tensor_of(f), at);
        return true;
    }
    if (!is_here(f, o) || (!opt->arena_map && (o->kind == PI__ORDER_MAP || o->kind == PI__ORDER_UNMAP)))
        return pi__ranks_check(f->r, false);
    switch (o->kind) {
    case PI__ORDER_MAP: return reply(f, opt->arena_map(f->be, at, o->size) ? PI_OK : PI_ENOMEM, "out of memory", 0);
    case PI__ORDER_UNMAP: opt->arena_unmap(f->be, at, o->size); return true;
    case PI__ORDER_COMMIT: dev->commit(f->be, at, o->size); return reply(f, PI_OK, "", 0);
    default: dev->trim(f->be, at, o->size); return true;
    }
}

/* Returns true if the payload has the size that this kind of command requires. */
static bool valid_size(const pi__order *o)
{
    switch (o->kind) {
    case PI__ORDER_OPEN: return o->n_bytes == sizeof(pi__rank_device);
    case PI__ORDER_JOIN: return o->n_bytes == PI__RANK_ID_BYTES;
    case PI__ORDER_RESERVE: return o->n_bytes == sizeof(pi__limits);
    case PI__ORDER_LOAD: return o->n_bytes == sizeof(pi__rank_rows);
    case PI__ORDER_UPLOAD:
    case PI__ORDER_KEEP: return o->n_bytes <= PI__MAX_UPLOAD;
    default: return o->n_bytes == 0;
    }
}

/* Executes a command. Returns false if the ranks are dead. */
static bool take_order(follower *f, const pi__order *o)
{
    pi__tensor *t = tensor_of(f);
    if (o->kind == PI__ORDER_RUN) { /* received directly into the wire buffer */
        if (!t || !t->wire || o->n_bytes > t->wire->cap) return pi__ranks_check(f->r, false);
        t->wire->n = o->n_bytes;
        if (o->n_bytes && !pi__ranks_check(f->r, f->r->fns->bcast(f->r, t->wire->bytes, o->n_bytes, f->r->timeout_ms)))
            return false;
        return take_run(f, o->size != 0);
    }
    if (!valid_size(o) || !receive(f, o->n_bytes)) return pi__ranks_check(f->r, false);
    if (o->kind == PI__ORDER_PING) return reply(f, PI_OK, "", 0);
    if (o->kind == PI__ORDER_OPEN) return take_open(f);
    if (o->kind == PI__ORDER_CLOSE) {
        close_device(f);
        return true;
    }
    if (!f->be) return pi__ranks_check(f->r, false);
    switch (o->kind) {
    case PI__ORDER_JOIN: return take_join(f);
    case PI__ORDER_RESERVE: return take_reserve(f);
    case PI__ORDER_ALLOC:
    case PI__ORDER_ARENA: return take_alloc(f, o);
    case PI__ORDER_UPLOAD: return take_upload(f, o);
    case PI__ORDER_LOAD: return take_rows(f);
    case PI__ORDER_KEEP: return take_kept(f, o);
    case PI__ORDER_FREE:
    case PI__ORDER_MAP:
    case PI__ORDER_UNMAP:
    case PI__ORDER_COMMIT:
    case PI__ORDER_TRIM: return take_memory(f, o);
    default: return pi__ranks_check(f->r, false);
    }
}

int pi__tensor_follow(pi__ranks *r, const pi__log *log, pi_error *err)
{
    follower f = {.r = r, .log = log};
    pi__order o = {.kind = PI__ORDER_PING};
    bool ok = true;
    while (ok) {
        ok = pi__ranks_check(r, r->fns->bcast(r, &o, sizeof o, r->timeout_ms));
        if (ok && o.kind == PI__ORDER_END) break;
        ok = ok && take_order(&f, &o);
    }
    close_device(&f);
    pi__free(f.buf);
    if (ok) return PI_OK;
    return pi__fail(err, PI_EDEVICE, "rank %d of %d: rank 0 or another rank exited, or did not respond within %.0f s "
                    "(rank-timeout): restart all ranks",
                    r->rank, r->n, r->timeout_ms / 1e3);
}
