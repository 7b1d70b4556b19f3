/* Implementation of fetch_bytes.h on http.h. */
#include "net/fetch_bytes.h"

#include <stdio.h>

#include "net/http.h"

bool fetch_bytes(const char *url, long seconds, bool (*body)(void *ud, const char *p, size_t n), void *ud, char *why,
                 size_t cap)
{
    const http_request q = {.url = url, .direct = true, .seconds = seconds, .body = body, .ud = ud};
    http_reply r = {.status = 0};
    http *h = http_new();
    const enum http_result how = h ? http_run(h, &q, &r) : HTTP_REFUSED;
    if (!h) snprintf(why, cap, "out of memory");
    else if (how == HTTP_STOPPED) snprintf(why, cap, "it is too large, or the time is over");
    else if (how == HTTP_DONE) snprintf(why, cap, "status %ld; redirects are not followed", r.status);
    else snprintf(why, cap, "%s", r.error);
    if (h) http_free(h);
    return how == HTTP_DONE && r.status / 100 == 2;
}
