/* Writes one line on standard error for each completed request. Runs on the loop's thread. */
#ifndef PAGEDINFER_SERVE_LOG_H
#define PAGEDINFER_SERVE_LOG_H

#include "serve/reply.h"

/* Logs a reply; called before its exchange ends. */
void log_reply(const reply *r);
/* Logs any other exchange: failures, and with -v all of them. */
void log_exchange(const server *s, const exchange *ex);
/* Logs a line about the server. */
void log_line(const server *s, int level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
