/* Memory for the whole library.
 *
 * Every byte comes from the allocator of pi_set_allocator (malloc by default), so that a test can fail each
 * allocation in turn. Large page-aligned regions (weights, cache pools, scratch) come from its map hook (mmap by
 * default). Thread safe. A failure is only a NULL: the caller names the object in its error. */
#ifndef PI__ALLOC_H
#define PI__ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *pi__malloc(size_t size);
/* Returns n * size zeroed bytes; NULL also if the product overflows. */
void *pi__calloc(size_t n, size_t size);
/* Resizes p (NULL = new) to n elements of `size` bytes. NULL = out of memory, or n * size overflows; p stays valid. */
void *pi__realloc_array(void *p, size_t n, size_t size);
void pi__free(void *p);
char *pi__strdup(const char *s);
char *pi__strndup(const char *s, size_t n);

/* Returns zeroed pages of at least size bytes, committed on first touch; NULL = out of memory. */
void *pi__map(size_t size);
/* Frees pages of pi__map; size must be the same as in pi__map. p may be NULL. */
void pi__unmap(void *p, size_t size);

/* Overflow-safe arithmetic. false = the result does not fit. */
static inline bool pi__add_ok(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool pi__mul_ok(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

/* p points to an array pointer. Grows that array (elements of `size` bytes, capacity *cap) to at least n elements.
 * false = out of memory: the array and *cap are unchanged. */
bool pi__grow(void *p, size_t *cap, size_t n, size_t size);

/* A bump allocator over one region. base NULL = only measures: pi__arena_take returns NULL and adds to `used`. */
typedef struct pi__arena {
    char *base;  /* start of the region; NULL = measure only */
    size_t size; /* bytes in the region; ignored when measuring */
    size_t used; /* bytes allocated so far, including alignment; when measuring, the region size that is needed */
    bool buffers; /* checked builds register each allocation as a separate buffer (extent.h) */
} pi__arena;

/* Returns size bytes aligned to 64. NULL when measuring, or if the region is too small. */
void *pi__arena_take(pi__arena *a, size_t size);

#endif
