/* Clocks, and waiting until a time (clock.c). Callable from any thread. */
#ifndef PI__CLOCK_H
#define PI__CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Monotonic time since an arbitrary start, for durations and deadlines. */
int64_t pi__now_ns(void);
double pi__now_ms(void);
/* CPU time of the calling thread, without the time it waited. */
double pi__thread_ms(void);
/* Time of day since 1970, for time stamps of files. */
int64_t pi__wall_ns(void);

/* Initializes a condition variable for timed waits with pi__deadline. Returns PI_OK or PI_ENOMEM. */
int pi__cond_init(pthread_cond_t *c);
/* Returns the time `ms` milliseconds from now, as an absolute time; ms >= 0. */
struct timespec pi__deadline(double ms);

#endif
