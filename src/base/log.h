/* Log lines to the caller's function. The library itself never prints. */
#ifndef PI__LOG_H
#define PI__LOG_H

#include "pagedinfer.h"

typedef struct pi__log {
    pi_log_fn fn; /* NULL = no logging */
    void *ud;     /* first argument of fn */
    int level;    /* highest level that is logged */
} pi__log;

/* Logs one line without a newline, truncated to 999 bytes. Callable from any thread. */
void pi__logf(const pi__log *log, int level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
