/* Fetches a small file into memory: one request, no redirects, a time limit. Thread-safe. */
#ifndef PAGEDINFER_FETCH_BYTES_H
#define PAGEDINFER_FETCH_BYTES_H

#include <stdbool.h>
#include <stddef.h>

/* Passes the body of a response with status 2xx to body, which returns false to stop. On failure returns false, with
 * the reason in why, at most cap bytes. */
bool fetch_bytes(const char *url, long seconds, bool (*body)(void *ud, const char *p, size_t n), void *ud, char *why,
                 size_t cap);

#endif
