/* Progress of a long operation: one line on standard error that is overwritten and finally erased.
 *
 *     gemma-3-270m-q4_k_m.gguf   45.2 %   110.3 MiB of 244.1 MiB   35.1 MiB/s   3 s left
 *
 * Nothing is written if standard error is not a terminal. No allocations; not thread-safe. */
#ifndef PAGEDINFER_METER_H
#define PAGEDINFER_METER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct meter {
    const char *what;     /* start of the line; must outlive the meter */
    bool on;              /* standard error is a terminal */
    bool shown;           /* the line is visible */
    double start, next;   /* seconds: start time; time of the next update */
    uint64_t first;       /* bytes already done at the start */
} meter;

/* Starts the meter. quiet: show nothing. delay: seconds before the line appears, so that short operations show
 * none. */
void meter_begin(meter *m, const char *what, bool quiet, double delay);
/* Updates the meter: done of total bytes; total == 0: unknown. The rate counts from the first call. */
void meter_update(meter *m, uint64_t done, uint64_t total);
/* Erases the line. */
void meter_end(meter *m);
/* Returns monotonic seconds. */
double meter_now(void);

#endif
