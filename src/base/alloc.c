/* The allocator of the library (see alloc.h). The hooks are set once, before use. */
#include "base/alloc.h"
#include "base/extent.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pagedinfer.h"

static void *std_malloc(void *ud, size_t size) { (void) ud; return malloc(size); }
static void *std_realloc(void *ud, void *p, size_t size) { (void) ud; return realloc(p, size); }
static void std_free(void *ud, void *p) { (void) ud; free(p); }

static void *std_map(void *ud, size_t size)
{
    (void) ud;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void std_unmap(void *ud, void *p, size_t size) { (void) ud; munmap(p, size); }

static const pi_allocator std_allocator = {
    sizeof(pi_allocator), NULL, std_malloc, std_realloc, std_free, std_map, std_unmap};
static pi_allocator hooks = {sizeof(pi_allocator), NULL, std_malloc, std_realloc, std_free, std_map, std_unmap};

int pi_set_allocator(const pi_allocator *a)
{
    if (!a) {
        hooks = std_allocator;
        return PI_OK;
    }
    if (a->size < sizeof *a || !a->malloc || !a->realloc || !a->free || !a->map != !a->unmap) return PI_EINVAL;
    hooks = *a;
    if (!hooks.map) {
        hooks.map = std_map;
        hooks.unmap = std_unmap;
    }
    return PI_OK;
}

void *pi__malloc(size_t size) { return hooks.malloc(hooks.ud, size ? size : 1); }
void pi__free(void *p) { if (p) hooks.free(hooks.ud, p); }

void *pi__map(size_t size)
{
    void *p = hooks.map(hooks.ud, size ? size : 1);
    pi__extent_register(p, size);
    return p;
}

void pi__unmap(void *p, size_t size)
{
    if (!p) return;
    pi__extent_drop(p, size);
    hooks.unmap(hooks.ud, p, size ? size : 1);
}

void *pi__calloc(size_t n, size_t size)
{
    size_t total;
    if (!pi__mul_ok(n, size, &total)) return NULL;
    void *p = pi__malloc(total);
    if (p) memset(p, 0, total);
    return p;
}

void *pi__realloc_array(void *p, size_t n, size_t size)
{
    size_t total;
    if (!pi__mul_ok(n, size, &total)) return NULL;
    return hooks.realloc(hooks.ud, p, total ? total : 1);
}

char *pi__strndup(const char *s, size_t n)
{
    char *p = n == SIZE_MAX ? NULL : pi__malloc(n + 1);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *pi__strdup(const char *s) { return pi__strndup(s, strlen(s)); }

bool pi__grow(void *p, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap) return true;
    size_t want = *cap < 8 ? 8 : *cap + *cap / 2;
    if (want < n) want = n;
    void *old;
    memcpy(&old, p, sizeof old);
    void *q = pi__realloc_array(old, want, size);
    if (!q) return false;
    memcpy(p, &q, sizeof q);
    *cap = want;
    return true;
}

void *pi__arena_take(pi__arena *a, size_t size)
{
    size_t start = (a->used + 63) & ~(size_t) 63;
    size_t end;
    if (start < a->used || !pi__add_ok(start, size, &end)) {
        a->used = SIZE_MAX; /* counts as "does not fit" when measuring */
        return NULL;
    }
    if (a->base && end > a->size) return NULL;
    a->used = end;
    if (!a->base) return NULL;
    if (a->buffers) pi__extent_register(a->base + start, size);
    return a->base + start;
}
