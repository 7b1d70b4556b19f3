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
    double start, next;   /* monotonic seconds: time of meter_begin; time from which the next update is drawn */
    uint64_t first;       /* bytes done at the first update; the rate counts only later bytes */
} meter;

/* Starts the meter. quiet: show nothing. delay: seconds before the line appears, so that short operations show
 * none. */
void meter_begin(meter *m, const char *what, bool quiet, double delay);
/* Draws the line if an update is due: done of total bytes; total 0 = unknown. Bytes done at the first call do not
 * count in the rate. */
void meter_update(meter *m, uint64_t done, uint64_t total);
/* Erases the line. */
void meter_end(meter *m);
/* Returns monotonic seconds. */
double meter_now(void);

#endif
