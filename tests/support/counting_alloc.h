/* An allocator for tests: counts live blocks, records the largest request, and can fail the n-th request.
 *
 * Every block has a header with its size, which detects a free by the wrong function or of a foreign pointer.
 * Single-threaded. */
#ifndef COUNTING_ALLOC_H
#define COUNTING_ALLOC_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pagedinfer.h"

typedef struct counting_alloc {
    long fail_at;    /* index of the allocation that fails, from 0; negative = no failure */
    long count;      /* allocations requested */
    long live;       /* blocks not yet freed */
    size_t bytes;    /* bytes in live blocks */
    size_t peak;     /* maximum of `bytes` */
    size_t largest;  /* largest request in bytes */
} counting_alloc;

typedef struct counting_block {
    uint64_t magic; /* COUNTING_HEAP or COUNTING_MAP */
    size_t size;    /* bytes requested */
} counting_block;

/* header before mapped blocks; a whole page keeps the caller's pointer aligned */
#define COUNTING_PAGE ((size_t) 4096)
#define COUNTING_HEAP 0x6170656870616568u
#define COUNTING_MAP 0x70616d70616d7061u

static inline counting_block *counting_header(void *p, uint64_t magic)
{
    counting_block *b = (counting_block *) p - 1;
    if (b->magic != magic) abort(); /* freed twice, or by the wrong function */
    return b;
}

static inline void *counting_new(counting_alloc *a, size_t size, uint64_t magic)
{
    if (size > a->largest) a->largest = size;
    if (a->count++ == a->fail_at || size > SIZE_MAX / 2) return NULL;
    size_t front = magic == COUNTING_MAP ? COUNTING_PAGE : sizeof(counting_block);
    char *p = magic == COUNTING_MAP ? aligned_alloc(COUNTING_PAGE, (front + size + front - 1) / front * front)
                                    : malloc(front + size);
    if (!p) return NULL;
    if (magic == COUNTING_MAP) memset(p, 0, front + size);
    counting_block *b = (counting_block *) (void *) (p + front) - 1;
    *b = (counting_block) {magic, size};
    a->live++;
    a->bytes += size;
    if (a->bytes > a->peak) a->peak = a->bytes;
    return b + 1;
}

static inline void counting_drop(counting_alloc *a, void *p, uint64_t magic)
{
    if (!p) return;
    counting_block *b = counting_header(p, magic);
    a->live--;
    a->bytes -= b->size;
    b->magic = 0;
    if (magic == COUNTING_HEAP) explicit_bzero(p, b->size); /* makes a use after free visible without ASan too */
    free(magic == COUNTING_MAP ? (char *) p - COUNTING_PAGE : (char *) b);
}

static inline void *counting_malloc(void *ud, size_t size) { return counting_new(ud, size, COUNTING_HEAP); }
static inline void counting_free(void *ud, void *p) { counting_drop(ud, p, COUNTING_HEAP); }
static inline void *counting_map(void *ud, size_t size) { return counting_new(ud, size, COUNTING_MAP); }

static inline void counting_unmap(void *ud, void *p, size_t size)
{
    if (p && counting_header(p, COUNTING_MAP)->size != size) abort();
    counting_drop(ud, p, COUNTING_MAP);
}

/* Always moves the block, so that ASan sees uses of the old pointer. */
static inline void *counting_realloc(void *ud, void *p, size_t size)
{
    void *q = counting_malloc(ud, size);
    if (!q || !p) return q;
    size_t old = counting_header(p, COUNTING_HEAP)->size;
    memcpy(q, p, old < size ? old : size);
    counting_free(ud, p);
    return q;
}

/* Resets a, sets fail_at, and installs it as the library's allocator. */
static inline void counting_use(counting_alloc *a, long fail_at)
{
    *a = (counting_alloc) {.fail_at = fail_at};
    const pi_allocator hooks = {sizeof hooks, a, counting_malloc, counting_realloc,
                                counting_free, counting_map, counting_unmap};
    if (pi_set_allocator(&hooks) != PI_OK) abort();
}

#endif
