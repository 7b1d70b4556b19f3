/* Memory for the whole library.
 *
 * Every byte comes from the allocator of pi_set_allocator (malloc by default), so that a test can fail each
 * allocation in turn. Large page-aligned regions (weights, cache pools, scratch) come from its map hook (mmap by
 * default). Thread safe. No function here reports more than NULL: the caller names what could not be had. */
#ifndef PI__ALLOC_H
#define PI__ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *pi__malloc(size_t size);
/* n * size bytes of zeros; NULL also when the product overflows. */
void *pi__calloc(size_t n, size_t size);
/* On failure the old block stays valid. n * size is checked for overflow. */
void *pi__realloc_array(void *p, size_t n, size_t size);
void pi__free(void *p);
char *pi__strdup(const char *s);
char *pi__strndup(const char *s, size_t n);

/* Zeroed pages, committed on first touch; free with the same size. align is at most the page size. */
void *pi__map(size_t size);
void pi__unmap(void *p, size_t size);

/* Bytes that programs can still have without others being pushed out; SIZE_MAX: the system does not say. */
size_t pi__available_memory(void);

/* Overflow-safe arithmetic: false when the result does not fit, *out untouched then. */
static inline bool pi__add_ok(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool pi__mul_ok(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* Grows *p (elements of `size` bytes, capacity *cap) to hold at least n elements. false: out of memory, unchanged. */
bool pi__grow(void *p, size_t *cap, size_t n, size_t size);

/* A bump allocator over one region. With base NULL it only measures: take() returns NULL and used grows. */
typedef struct pi__arena {
    char *base;  /* start of the region, or NULL to measure */
    size_t size; /* bytes in the region (ignored when measuring) */
    size_t used; /* bytes handed out, alignment included */
    bool buffers; /* what is taken are buffers of their own, whose ends checked builds know (extent.h) */
} pi__arena;

/* size bytes aligned to 64; NULL when measuring or when the region is too small. */
void *pi__arena_take(pi__arena *a, size_t size);

#endif
