/* An allocator for tests: counts what is live, records the largest request, and can fail the n-th one.
 *
 * Every block has a header with its size, so that a free of the wrong kind or of a foreign pointer is seen.
 * One thread. */
#ifndef COUNTING_ALLOC_H
#define COUNTING_ALLOC_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pagedinfer.h"

typedef struct counting_alloc {
    long fail_at;    /* the allocation that fails, from 0; negative: none */
    long count;      /* allocations asked for */
    long live;       /* blocks not freed */
    size_t bytes;    /* bytes in them */
    size_t peak;     /* most bytes at a time */
    size_t largest;  /* largest request */
} counting_alloc;

typedef struct counting_block {
    uint64_t magic; /* COUNTING_HEAP or COUNTING_MAP */
    size_t size;    /* bytes asked for */
} counting_block;

#define COUNTING_PAGE ((size_t) 4096) /* in front of mapped blocks, so that what the caller gets is aligned */
#define COUNTING_HEAP 0x6170656870616568u
#define COUNTING_MAP 0x70616d70616d7061u

static inline counting_block *counting_header(void *p, uint64_t magic)
{
    counting_block *b = (counting_block *) p - 1;
    if (b->magic != magic) abort(); /* freed twice, or with the wrong function */
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
    if (magic == COUNTING_HEAP) explicit_bzero(p, b->size); /* who reads it later sees that, without ASan too */
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

/* Always moves, so that a pointer kept across a growth is seen by ASan. */
static inline void *counting_realloc(void *ud, void *p, size_t size)
{
    void *q = counting_malloc(ud, size);
    if (!q || !p) return q;
    size_t old = counting_header(p, COUNTING_HEAP)->size;
    memcpy(q, p, old < size ? old : size);
    counting_free(ud, p);
    return q;
}

/* Puts a in force, all zero, with fail_at. */
static inline void counting_use(counting_alloc *a, long fail_at)
{
    *a = (counting_alloc) {.fail_at = fail_at};
    const pi_allocator hooks = {sizeof hooks, a, counting_malloc, counting_realloc,
                                counting_free, counting_map, counting_unmap};
    if (pi_set_allocator(&hooks) != PI_OK) abort();
}

#endif
