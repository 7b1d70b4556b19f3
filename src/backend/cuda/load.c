/* Weight upload. Threads convert data of the weight file (mapped, or read in pieces) to the device's layout, in one of
 * two buffers of pinned memory, while the other buffer is copied to the device.
 *
 *     file -> threads: pack, or copy -> [ buffer 0 | buffer 1 ] -> the device's copy engine -> weights
 *
 * A buffer is filled piece by piece, and the copy of each piece is queued immediately. When the buffer is full, a
 * fence is queued after its copies. The other buffer is then filled once its own fence has passed. So loading takes
 * only the two buffers of host memory for matrices of any size, and CUDA needs no staging copy. On devices that share
 * the host's memory (pi__rt_info.shares), the threads pack weights in place, without buffers. Each piece is then
 * prefetched to the device. Stacks of experts in host memory (pi__weight.n_slot) are packed in place, too.
 *
 * Memory: the buffers and the thread pool, created by the first tensor of a load and freed by the finish() that ends
 * the load. pi__cuda_load_values() uses the buffers from reserve() on, or after a matrix. Later vectors belong to a
 * step, and are uploaded directly. Threads: the opening thread; the pool's threads, while the opening thread waits for
 * them. */
#include <string.h>

#include "backend/cuda/impl.h"
#include "base/error.h"
#include "formats/formats.h"

/* BUFFER: bytes per buffer. PIECE: bytes per work item of a thread; an item has at least one tile. */
enum { BUFFER = 32 << 20, PIECE = 256 << 10 };

/* A job of the pool: pack rows of a matrix, or copy bytes. */
typedef struct job {
    pi__pool *pool;          /* pool that runs it */
    int32_t type;            /* type of the matrix in the file */
    int64_t n_in;            /* columns */
    const pi__cuda_shape *s; /* packed shape; NULL = copy bytes */
    const uint8_t *src;      /* rows of the file, or the bytes to copy */
    uint8_t *dst;            /* destination: in a buffer, or the weights themselves */
    int64_t n;               /* rows, or bytes */
    int64_t step;            /* rows or bytes per work item */
    int32_t n_parts;         /* number of work items */
} job;

/* Runs the work item that begins at row or byte `from`. */
static void run_part(const job *j, int64_t from)
{
    const int64_t end = from + j->step < j->n ? from + j->step : j->n;
    if (!j->s) {
        memcpy(j->dst + from, j->src + from, (size_t) (end - from));
        return;
    }
    const size_t row = pi__row_size(pi__type_info_of(j->type), j->n_in);
    for (int64_t r = from; r < end; r += PI__TILE_ROWS) {
        const int32_t n = end - r < PI__TILE_ROWS ? (int32_t) (end - r) : PI__TILE_ROWS;
        pi__cuda_pack_tile(j->type, j->s, j->n_in, j->src + (size_t) r * row, n,
                           j->dst + (size_t) (r / PI__TILE_ROWS) * j->s->tile_bytes);
    }
}

static void run_parts(void *arg, int32_t ith, int32_t nth)
{
    const job *j = arg;
    (void) ith;
    (void) nth;
    for (int32_t i; (i = pi__pool_next(j->pool, j->n_parts)) >= 0;) run_part(j, i * j->step);
}

/* Runs the job on the pool's threads, or on this thread if there is only one work item. */
static void run(job *j)
{
    j->n_parts = (int32_t) ((j->n + j->step - 1) / j->step);
    if (j->n_parts > 1) pi__pool_run(j->pool, run_parts, j);
    else run_part(j, 0);
}

/* True if the host writes to device address dst itself, without buffers. w: its matrix, or NULL. */
static bool in_place(pi__cuda *c, const pi__weight *w, const void *dst)
{
    return (w && w->n_slot) || (c->info.shares && pi__rt_is_shared(c->rt, dst));
}

/* Moves n bytes that the host has written at dst to the device. */
static void move(pi__cuda *c, const pi__weight *w, char *dst, size_t n)
{
    if (!w || !w->n_slot) pi__cuda_record_error(c, pi__rt_prefetch(c->rt, dst, n));
}

/* Creates the threads, and with `buffers` the buffers, if they do not exist. Returns false if memory ran out or an
 * error occurred. */
static bool ready(pi__cuda *c, bool buffers)
{
    cuda_stage *s = &c->stage;
    void *p;
    if (!s->pool && !pi__cuda_failed(c)) c->no_room = pi__pool_create(&s->pool, c->n_threads, 0, 0, NULL) != PI_OK;
    for (int i = 0; i < 2 && !s->buffer[i] && buffers && !pi__cuda_failed(c); i++) {
        pi__cuda_record_error(c, pi__rt_host_alloc(c->rt, &p, BUFFER));
        s->buffer[i] = p;
        if (!p) c->no_room = true;
    }
    return !pi__cuda_failed(c);
}

/* Returns an address in the current buffer with space for *got units of `size` bytes; *got is 1 to n. If the buffer is
 * full, or more than half full and too small for n units, switches to the other buffer, after the copies from that
 * buffer have completed. NULL = error. */
static uint8_t *room(pi__cuda *c, size_t n, size_t size, size_t *got)
{
    cuda_stage *s = &c->stage;
    size_t left = (BUFFER - s->used) / size;
    if (size > BUFFER) c->no_room = true;
    if (left < n && (!left || s->used > BUFFER / 2)) {
        if (!pi__cuda_failed(c)) pi__cuda_record_error(c, pi__rt_fence(c->rt, s->now));
        s->now = 1 - s->now;
        s->used = 0;
        if (!pi__cuda_failed(c)) pi__cuda_record_error(c, pi__rt_fence_wait(c->rt, s->now));
        left = BUFFER / size;
    }
    *got = left < n ? left : n;
    return pi__cuda_failed(c) ? NULL : s->buffer[s->now] + s->used;
}

/* Queues a copy of n bytes from `from`, an address in the current buffer, to device address dst. Marks these bytes of
 * the buffer as used. */
static void send(pi__cuda *c, char *dst, const uint8_t *from, size_t n)
{
    pi__cuda_record_error(c, pi__rt_upload(c->rt, dst, from, n));
    c->stage.used += (n + 63) & ~(size_t) 63;
}

/* Copies n bytes from host memory src to device address dst. w: its matrix, or NULL. */
static void load_bytes(pi__cuda *c, const pi__weight *w, char *dst, const uint8_t *src, size_t n)
{
    const bool place = in_place(c, w, dst);
    size_t got;
    if (!n || !ready(c, !place)) return;
    if (place) {
        job j = {.pool = c->stage.pool, .src = src, .dst = (uint8_t *) dst, .n = (int64_t) n, .step = PIECE};
        run(&j);
        move(c, w, dst, n);
        return;
    }
    for (size_t at = 0; at < n; at += got) {
        uint8_t *p = room(c, n - at, 1, &got);
        if (!p) return;
        job j = {.pool = c->stage.pool, .src = src + at, .dst = p, .n = (int64_t) got, .step = PIECE};
        run(&j);
        send(c, dst + at, p, got);
    }
}

/* Packs n rows of the file, at src, to tiles at device address dst. */
static void load_tiles(pi__cuda *c, const pi__weight *w, const pi__cuda_shape *s, char *dst, const uint8_t *src,
                       int64_t n)
{
    const size_t tiles = (size_t) (n + PI__TILE_ROWS - 1) / PI__TILE_ROWS;
    const size_t row = pi__row_size(pi__type_info_of(w->type), w->n_in), a_part = PIECE / s->tile_bytes;
    const int64_t step = PI__TILE_ROWS * (int64_t) (a_part ? a_part : 1);
    const bool place = in_place(c, w, dst);
    size_t got;
    if (!tiles || !ready(c, !place)) return;
    if (place) {
        job j = {.pool = c->stage.pool,
                 .type = w->type,
                 .n_in = w->n_in,
                 .s = s,
                 .src = src,
                 .dst = (uint8_t *) dst,
                 .n = n,
                 .step = step};
        run(&j);
        move(c, w, dst, tiles * s->tile_bytes);
        return;
    }
    for (size_t at = 0; at < tiles; at += got) {
        uint8_t *p = room(c, tiles - at, s->tile_bytes, &got);
        if (!p) return;
        const int64_t first = (int64_t) at * PI__TILE_ROWS, end = (int64_t) (at + got) * PI__TILE_ROWS;
        job j = {.pool = c->stage.pool,
                 .type = w->type,
                 .n_in = w->n_in,
                 .s = s,
                 .src = src + (size_t) first * row,
                 .dst = p,
                 .n = (end < n ? end : n) - first,
                 .step = step};
        run(&j);
        send(c, dst + at * s->tile_bytes, p, got * s->tile_bytes);
    }
}

void pi__cuda_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__cuda_shape s;
    pi__cuda_shape_of(w->type, w->n_in, w->n_out, &s);
    char *data = (char *) w->data + (size_t) mat * s.mat_bytes;
    if (s.n_block) load_tiles(c, w, &s, data + (size_t) (row / PI__TILE_ROWS) * s.tile_bytes, src, n);
    else load_bytes(c, w, data + (size_t) row * s.tile_bytes, src, (size_t) n * s.tile_bytes);
}

void pi__cuda_load_values(pi__backend *be, void *dst, const void *src, size_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__cuda_flush(c);
    if (!c->loads && !c->stage.pool) pi__cuda_upload(c, dst, src, n);
    else load_bytes(c, NULL, dst, src, n);
}

void pi__cuda_load_end(pi__cuda *c)
{
    cuda_stage *s = &c->stage;
    for (int i = 0; i < 2; i++) pi__rt_host_free(c->rt, s->buffer[i]);
    pi__pool_destroy(s->pool);
    *s = (cuda_stage) {0};
}