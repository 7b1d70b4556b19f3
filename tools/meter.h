/* How far something long is, as one line of the terminal on standard error that is written over and, at the end, wiped:
 *
 *     gemma-3-270m-q4_k_m.gguf   45.2 %   110.3 MiB of 244.1 MiB   35.1 MiB/s   3 s left
 *
 * Where standard error is no terminal nothing is written. No memory of its own; one thread. */
#ifndef PAGEDINFER_METER_H
#define PAGEDINFER_METER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct meter {
    const char *what;     /* the line begins with; lives as long as the meter */
    bool on;              /* there is a terminal */
    bool shown;           /* there is a line on it */
    double start, next;   /* seconds: when it began, when the line is due */
    uint64_t first;       /* bytes that were done when it began */
} meter;

/* quiet: nothing is shown. delay: seconds before the line appears, so that what is quick shows none. */
void meter_begin(meter *m, const char *what, bool quiet, double delay);
/* done of total bytes, 0: not known. The first call after begin is where the rate counts from. */
void meter_update(meter *m, uint64_t done, uint64_t total);
/* Wipes the line. */
void meter_end(meter *m);
/* Seconds since some moment. */
double meter_now(void);

#endif
