/* Queue of prefix cache changes (see kv_queue.h). */
#include "serve/kv_queue.h"

#include <string.h>
#include <sys/mman.h>

/* A change in a half: this header, n_hashes hashes, n_tokens tokens, and padding to a multiple of 8 bytes. */
typedef struct record {
    uint64_t parent;
    uint64_t n_hashes, n_tokens;
    int32_t kind, has_parent;
} record;

static size_t bytes_of(uint64_t n_hashes, uint64_t n_tokens)
{
    return sizeof(record) + n_hashes * sizeof(uint64_t) + (n_tokens * sizeof(int32_t) + 7) / 8 * 8;
}

static void *map(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

bool kv_queue_open(kv_queue *q, size_t cap)
{
    *q = (kv_queue) {.cap = cap};
    q->half[0] = map(cap);
    q->half[1] = q->half[0] ? map(cap) : NULL;
    if (q->half[1] && !pthread_mutex_init(&q->lock, NULL)) return true;
    for (int i = 0; i < 2; i++)
        if (q->half[i]) munmap(q->half[i], cap);
    return false;
}

void kv_queue_close(kv_queue *q)
{
    for (int i = 0; i < 2; i++) munmap(q->half[i], q->cap);
    pthread_mutex_destroy(&q->lock);
}

static void copy(unsigned char *to, const pi_cache_event *ev, uint64_t n_tokens)
{
    const record r = {.parent = ev->parent, .n_hashes = ev->n_hashes, .n_tokens = n_tokens, .kind = ev->kind,
                      .has_parent = ev->has_parent};
    memcpy(to, &r, sizeof r);
    to += sizeof r;
    if (ev->n_hashes) memcpy(to, ev->hashes, ev->n_hashes * sizeof *ev->hashes);
    to += ev->n_hashes * sizeof *ev->hashes;
    if (n_tokens) memcpy(to, ev->tokens, n_tokens * sizeof *ev->tokens);
}

bool kv_queue_put(kv_queue *q, const pi_cache_event *ev)
{
    const uint64_t n_tokens = ev->tokens ? ev->n_tokens : 0; /* removed blocks need only the hashes */
    const size_t n = bytes_of(ev->n_hashes, n_tokens);
    pthread_mutex_lock(&q->lock);
    const bool was_empty = !q->used && !q->lost;
    if (q->lost || n > q->cap - q->used) q->lost++;
    else {
        copy(q->half[q->filling] + q->used, ev, n_tokens);
        q->used += n;
    }
    pthread_mutex_unlock(&q->lock);
    return was_empty;
}

kv_changes kv_queue_take(kv_queue *q)
{
    pthread_mutex_lock(&q->lock);
    const kv_changes c = {.p = q->half[q->filling], .n = q->used, .lost = q->lost};
    q->filling = !q->filling;
    q->used = 0;
    q->lost = 0;
    pthread_mutex_unlock(&q->lock);
    return c;
}

bool kv_changes_next(const kv_changes *c, size_t *at, pi_cache_event *ev)
{
    record r;
    if (*at >= c->n) return false;
    const unsigned char *p = c->p + *at;
    memcpy(&r, p, sizeof r);
    p += sizeof r;
    *at += bytes_of(r.n_hashes, r.n_tokens);
    *ev = (pi_cache_event) {.kind = r.kind, .hashes = (const uint64_t *) (const void *) p, .n_hashes = r.n_hashes,
                            .n_tokens = r.n_tokens, .parent = r.parent, .has_parent = r.has_parent};
    p += r.n_hashes * sizeof *ev->hashes;
    if (r.n_tokens) ev->tokens = (const int32_t *) (const void *) p;
    return true;
}

static bool goes_on(const pi_cache_event *a, const pi_cache_event *b)
{
    if (a->kind != b->kind || a->kind == PI_CACHE_CLEARED) return false;
    return a->kind == PI_CACHE_REMOVED || (b->has_parent && b->parent == a->hashes[a->n_hashes - 1]);
}

bool kv_changes_run(const kv_changes *c, size_t *at, pi_cache_event *run)
{
    pi_cache_event last, ev;
    if (!kv_changes_next(c, at, run)) return false;
    last = *run;
    for (size_t next = *at; kv_changes_next(c, &next, &ev) && goes_on(&last, &ev); *at = next) {
        run->n_hashes += ev.n_hashes;
        run->n_tokens += ev.n_tokens;
        last = ev;
    }
    return true;
}
