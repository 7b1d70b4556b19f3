/* The two clocks, and waiting until a time (clock.c). Callable from any thread. */
#ifndef PI__CLOCK_H
#define PI__CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Time since an arbitrary start that is never set back: what durations and deadlines are measured with. */
int64_t pi__now_ns(void);
double pi__now_ms(void);
/* Time that the calling thread ran, not that it waited for others to give it the processor. */
double pi__thread_ms(void);
/* Time of day since 1970: what files are stamped with. */
int64_t pi__wall_ns(void);

/* A condition variable whose timed waits take pi__deadline's times. PI_OK or PI_ENOMEM. */
int pi__cond_init(pthread_cond_t *c);
/* ms (not negative) from now. */
struct timespec pi__deadline(double ms);

#endif
