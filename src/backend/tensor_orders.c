/* Rank 0 of several processes: sends its operations on memory, weights and calls to the worker ranks as commands.
 *
 * For operations that may fail (memory), rank 0 executes its own part before it sends the command. For operations that
 * all ranks must execute at the same time (weights, runs), it does so after sending the command. After a failure of the
 * transport these functions do nothing, and the next run returns the error (tensor.c).
 *
 * No memory. Threads: the backend's. Each function holds the ranks' lock; a run holds it from its command to its
 * end. */
#include "backend/tensor_orders.h"

#include <stdio.h>
#include <string.h>

#include "backend/tensor.h"
#include "backend/tensor_impl.h"
#include "backend/tensor_wire.h"
#include "base/error.h"
#include "formats/formats.h"

/* Returns true if this is rank 0 of several processes, and the worker ranks have opened their devices. */
static bool orders(const pi__tensor *t) { return t->ranks && !t->ranks->rank && t->opened; }

/* Returns the code of the first error among the replies, with its text in err; PI_OK if there is none. */
static int first_error(const pi__ranks *r, const pi__reply *all, pi_error *err)
{
    for (int32_t i = 1; i < r->n; i++)
        if (all[i].code) return pi__fail(err, all[i].code, "rank %d: %.*s", i, (int) sizeof all[i].text, all[i].text);
    return PI_OK;
}

static int silence(const pi__ranks *r, pi_error *err)
{
    return pi__fail(err, PI_EDEVICE,
                    "a rank exited, or did not respond within %.0f s (rank-timeout): restart all ranks",
                    r->timeout_ms / 1e3);
}

/* Sends a command with its payload `bytes`, and collects the replies of all ranks in all [n]. Returns the first
 * error. */
static int ask(pi__ranks *r, const pi__order *o, const void *bytes, pi__reply *all, pi_error *err)
{
    pthread_mutex_lock(&r->lock);
    const bool ok = pi__ranks_order(r, o, bytes) && pi__ranks_reply(r, &(pi__reply) {.reached = true}, all);
    pthread_mutex_unlock(&r->lock);
    return ok ? first_error(r, all, err) : silence(r, err);
}

/* Sends a command that has no reply. */
static void tell(pi__ranks *r, const pi__order *o, const void *bytes)
{
    pthread_mutex_lock(&r->lock);
    (void) pi__ranks_order(r, o, bytes);
    pthread_mutex_unlock(&r->lock);
}

/* ---------------------------------------------------------------------------------------------------------- devices */

/* Checks the replies to PI__ORDER_OPEN: the other ranks' devices must be of the same kind, because the layout of
 * matrices and the bits of results depend on it. */
static int compare(const pi__tensor *t, const pi__reply *all, pi_error *err)
{
    const pi__backend *own = t->rank[0].be;
    const char *desc = own->dev->describe(own);
    for (int32_t i = 1; i < t->n; i++) {
        if (strncmp(all[i].text, desc, sizeof all[i].text) == 0 && all[i].a == own->page) continue;
        return pi__fail(err, PI_EUNSUPPORTED, "rank 0 is %.60s, rank %d is %.60s: "
                        "give all ranks the same device (--device, --cpu-isa)", desc, i,
                        all[i].text);
    }
    return PI_OK;
}

int pi__order_open(pi__tensor *t, pi_error *err)
{
    pi__reply all[PI__MOST_RANKS];
    if (!t->ranks || t->ranks->rank || t->opened) return PI_OK;
    const pi__order o = {.kind = PI__ORDER_OPEN, .n_bytes = sizeof t->device};
    int rc = ask(t->ranks, &o, &t->device, all, err);
    t->opened = rc != PI_EDEVICE; /* true even if one rank failed: the others then have an open device to close */
    return rc ? rc : compare(t, all, err);
}

void pi__order_close(pi__tensor *t)
{
    if (orders(t)) tell(t->ranks, &(pi__order) {.kind = PI__ORDER_CLOSE}, NULL);
    t->opened = false;
}

int pi__tensor_join_rank(pi__tensor *t, const char id[PI__RANK_ID_BYTES], pi_error *err)
{
    const pi__ranks *r = t->ranks;
    pi__seat seat = {.ranks = t->ranks, .rank = r->rank, .n = r->n, .timeout_ms = r->timeout_ms};
    memcpy(seat.id, id, sizeof seat.id);
    const pi__device *kind = pi__device_kind(t->device.name);
    if (t->link) return PI_OK;
    if (!kind) return pi__fail(err, PI_EUNSUPPORTED, "device '%s' is not in this build", t->device.name);
    return kind->join_rank(&t->link, t->rank[t->first].be, &seat, err);
}

int pi__order_join(pi__tensor *t, pi_error *err)
{
    pi__ranks *r = t->ranks;
    pi__reply all[PI__MOST_RANKS];
    char id[PI__RANK_ID_BYTES];
    const pi__device *kind = pi__device_kind(t->device.name);
    int rc = kind ? kind->rank_id(id, err)
                  : pi__fail(err, PI_EUNSUPPORTED, "device '%s' is not in this build", t->device.name);
    if (rc) return rc;
    pthread_mutex_lock(&r->lock);
    bool ok = pi__ranks_order(r, &(pi__order) {.kind = PI__ORDER_JOIN, .n_bytes = sizeof id}, id);
    if (ok) rc = pi__tensor_join_rank(t, id, err);
    ok = ok && pi__ranks_reply(r, &(pi__reply) {.reached = true, .code = rc}, all);
    pthread_mutex_unlock(&r->lock);
    if (rc) return rc; /* the device's error is more precise than a missing reply */
    return ok ? first_error(r, all, err) : silence(r, err);
}

int pi__order_reserve(pi__tensor *t, const pi__limits *lim, pi_error *err)
{
    pi__reply all[PI__MOST_RANKS];
    if (!orders(t)) return PI_OK;
    return ask(t->ranks, &(pi__order) {.kind = PI__ORDER_RESERVE, .n_bytes = sizeof *lim}, lim, all, err);
}

/* ----------------------------------------------------------------------------------------------------------- memory */

static bool is_replied(int kind)
{
    return kind == PI__ORDER_ALLOC || kind == PI__ORDER_ARENA || kind == PI__ORDER_MAP || kind == PI__ORDER_COMMIT;
}

bool pi__order_memory(pi__tensor *t, int kind, const void *at, size_t size)
{
    pi__reply all[PI__MOST_RANKS];
    pi_error ignored;
    const pi__order o = {.kind = (uint64_t) kind, .at = (uintptr_t) at, .size = size};
    if (!orders(t)) return true;
    if (is_replied(kind)) return ask(t->ranks, &o, NULL, all, &ignored) == PI_OK;
    tell(t->ranks, &o, NULL);
    return true;
}

void pi__order_upload(pi__tensor *t, const void *dst, const void *src, size_t n)
{
    pi__reply all[PI__MOST_RANKS];
    pi_error ignored;
    for (size_t i = 0; i < n && orders(t); i += PI__MAX_UPLOAD) {
        const size_t part = n - i < PI__MAX_UPLOAD ? n - i : PI__MAX_UPLOAD;
        const pi__order o = {.kind = PI__ORDER_UPLOAD, .at = (uintptr_t) dst + i, .size = part, .n_bytes = part};
        if (ask(t->ranks, &o, (const char *) src + i, all, &ignored)) pi__ranks_check(t->ranks, false);
    }
}

/* Sends each worker rank its rows of rows row..row + n of a sharded matrix. src: these rows. */
static bool send_shares(pi__tensor *t, const pi__weight *w, int64_t row, int64_t n, const char *src)
{
    pi__ranks *r = t->ranks;
    piece p[MAX_FUSED];
    const size_t bytes = pi__row_size(pi__type_info_of(w->type), w->n_in);
    const int32_t n_piece = pi__tensor_pieces(&t->rank[0], w, p);
    for (int32_t k = 1; k < r->n; k++)
        for (int32_t i = 0; i < n_piece; i++) {
            int64_t lo, hi;
            if (!pi__tensor_share(&p[i], k, row, n, &lo, &hi)) continue;
            const char *from = src + (size_t) (lo - row) * bytes;
            if (!pi__ranks_check(r, r->fns->send(r, k, from, (size_t) (hi - lo) * bytes, r->timeout_ms))) return false;
        }
    return true;
}

void pi__order_load(pi__tensor *t, const pi__weight *w, bool cut, int64_t mat, int64_t row, int64_t n, const char *src)
{
    pi__ranks *r = t->ranks;
    const pi__rank_rows rows = {.w = *w, .mat = mat, .row = row, .n = n, .cut = cut};
    if (!orders(t)) return;
    pthread_mutex_lock(&r->lock);
    bool ok = pi__ranks_order(r, &(pi__order) {.kind = PI__ORDER_LOAD, .n_bytes = sizeof rows}, &rows);
    if (ok && cut) send_shares(t, w, row, n, src);
    if (ok && !cut) {
        const size_t bytes = (size_t) n * pi__row_size(pi__type_info_of(w->type), w->n_in);
        pi__ranks_check(r, r->fns->bcast(r, (void *) (uintptr_t) src, bytes, r->timeout_ms));
    }
    pthread_mutex_unlock(&r->lock);
}

/* ------------------------------------------------------------------------------------------------------------- runs */

/* Sends constant host memory with PI__ORDER_KEEP (pi__wire_write). The caller holds the lock. */
static bool keep(const pi__tensor *t, const void *at, size_t size)
{
    const pi__order o = {.kind = PI__ORDER_KEEP, .at = (uintptr_t) at, .size = size, .n_bytes = size};
    pi__reply all[PI__MOST_RANKS];
    pi_error ignored;
    return pi__ranks_order(t->ranks, &o, at) && pi__ranks_reply(t->ranks, &(pi__reply) {.reached = true}, all) &&
           first_error(t->ranks, all, &ignored) == PI_OK;
}

bool pi__order_run(pi__tensor *t, bool ends)
{
    pi__ranks *r = t->ranks;
    if (!r || r->rank) return true;
    pthread_mutex_lock(&r->lock);
    /* before the worker ranks have opened their devices, a run has no calls */
    if (!t->opened || !t->wire) return t->n_calls == 0;
    if (!pi__wire_write(t->wire, t, keep)) return pi__ranks_check(r, false);
    return pi__ranks_order(r, &(pi__order) {.kind = PI__ORDER_RUN, .size = ends, .n_bytes = t->wire->n},
                           t->wire->bytes);
}

/* Marks rank 0 as lost and sets the run's error: the other ranks did not respond. */
static void none_reached(pi__tensor *t)
{
    rank *k = &t->rank[0];
    k->lost = k->failed = true;
    k->rc = silence(t->ranks, &k->err);
}

void pi__order_run_end(pi__tensor *t, bool ends)
{
    pi__reply all[PI__MOST_RANKS];
    pi__ranks *r = t->ranks;
    if (!r || r->rank) return;
    const bool there = t->opened && t->wire;
    if (ends && there && !pi__ranks_reply(r, &(pi__reply) {.reached = !t->rank[0].lost}, all)) {
        none_reached(t);
    } else if (ends && there) {
        for (int32_t i = 1; i < t->n; i++) {
            rank *k = &t->rank[i];
            k->rc = all[i].code;
            k->lost = !all[i].reached;
            snprintf(k->err.msg, sizeof k->err.msg, "%.*s", (int) sizeof all[i].text - 1, all[i].text);
            k->n_attended = all[i].a, k->n_possible = all[i].b;
        }
    }
    pthread_mutex_unlock(&r->lock);
}
