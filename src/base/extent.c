/* A list of buffers in checked builds (see extent.h). Fixed size: buffers beyond its capacity are not checked.
 * Invariant: two buffers are either nested or disjoint. */
#include "base/extent.h"

#ifdef PI_CHECKED
#include <pthread.h>
#include <stdint.h>

enum { MOST = 8192 };
static struct { uintptr_t lo, hi; } list[MOST]; /* global, but in test builds only, like assert.c's variable */
static size_t n_list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* lock held: removes all buffers within lo..hi. */
static void drop(uintptr_t lo, uintptr_t hi)
{
    for (size_t i = 0; i < n_list;) {
        if (list[i].lo >= lo && list[i].hi <= hi) list[i] = list[--n_list];
        else i++;
    }
}

void pi__extent_register(const void *p, size_t size)
{
    const uintptr_t lo = (uintptr_t) p;
    if (!p || !size) return;
    pthread_mutex_lock(&lock);
    drop(lo, lo + size); /* removes old buffers of a region that is divided again */
    if (n_list < MOST) list[n_list].lo = lo, list[n_list++].hi = lo + size;
    pthread_mutex_unlock(&lock);
}

void pi__extent_drop(const void *p, size_t size)
{
    pthread_mutex_lock(&lock);
    drop((uintptr_t) p, (uintptr_t) p + size);
    pthread_mutex_unlock(&lock);
}

bool pi__extent_holds(const void *p, size_t n)
{
    const uintptr_t at = (uintptr_t) p;
    uintptr_t size = UINTPTR_MAX, end = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_list; i++) {
        if (at < list[i].lo || at >= list[i].hi || list[i].hi - list[i].lo > size) continue;
        size = list[i].hi - list[i].lo;
        end = list[i].hi;
    }
    pthread_mutex_unlock(&lock);
    return !end || n <= end - at;
}
#else
typedef int pi__extent_nothing; /* ISO C requires a declaration in each file */
#endif
