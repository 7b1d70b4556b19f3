/* Makes allocations fail on request in a program that runs with this library in LD_PRELOAD.
 *
 * The library maps the file that FAILING_MALLOC names. The test driver writes to this file:
 *
 *     armed  nonzero: count allocations, and fail them as requested
 *     seen   number of allocations so far
 *     from   first allocation that fails, from 1
 *     count  number of consecutive failures
 *
 * All threads of the program share the counters. glibc only: the library calls glibc's internal allocators. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct control {
    atomic_int_fast64_t armed, seen, from, count;
} control;

#define SEEN __attribute__((visibility("default")))

static control *ctl; /* NULL = nothing fails */

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

__attribute__((constructor)) static void open_control(void)
{
    const char *path = getenv("FAILING_MALLOC");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *ctl, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (p != MAP_FAILED) ctl = p;
}

static int fails(void)
{
    if (!ctl || !atomic_load(&ctl->armed)) return 0;
    const int64_t n = atomic_fetch_add(&ctl->seen, 1) + 1, from = atomic_load(&ctl->from);
    if (n < from || n - from >= atomic_load(&ctl->count)) return 0;
    errno = ENOMEM;
    return 1;
}

SEEN void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
SEEN void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
SEEN void *realloc(void *p, size_t n) { return fails() ? NULL : __libc_realloc(p, n); }
