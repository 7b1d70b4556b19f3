/* Clocks. No state, no allocation; any thread. */
#include "base/clock.h"

#include "pagedinfer.h"

static int64_t read_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t pi__now_ns(void) { return read_ns(CLOCK_MONOTONIC); }
double pi__now_ms(void) { return (double) pi__now_ns() * 1e-6; }
double pi__thread_ms(void) { return (double) read_ns(CLOCK_THREAD_CPUTIME_ID) * 1e-6; }
int64_t pi__wall_ns(void) { return read_ns(CLOCK_REALTIME); }

int pi__cond_init(pthread_cond_t *c)
{
    pthread_condattr_t a;
    if (pthread_condattr_init(&a)) return PI_ENOMEM;
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
    return rc ? PI_ENOMEM : PI_OK;
}

struct timespec pi__deadline(double ms)
{
    const int64_t ns = pi__now_ns() + (int64_t) (ms * 1e6);
    return (struct timespec) {.tv_sec = (time_t) (ns / 1000000000), .tv_nsec = (long) (ns % 1000000000)};
}
