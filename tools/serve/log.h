/* One line on standard error for each request that was answered. The loop's thread. */
#ifndef PAGEDINFER_SERVE_LOG_H
#define PAGEDINFER_SERVE_LOG_H

#include "serve/gen.h"

/* Of a generation, before its exchange ends. */
void log_generation(const gen *g);
/* Of any other exchange: failures, and with -v all of them. */
void log_exchange(const server *s, const exchange *ex);
/* A line that is about the server. */
void log_line(const server *s, int level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
