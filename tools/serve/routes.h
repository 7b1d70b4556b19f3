/* The route table: path, handler and description for /openapi.json. Constant: thread-safe. */
#ifndef PAGEDINFER_SERVE_ROUTES_H
#define PAGEDINFER_SERVE_ROUTES_H

#include "serve/reply.h"

enum { ROUTE_PUBLIC = 1, ROUTE_ANY_STATE = 2 }; /* no API key required; served also while loading or shutting down */

typedef struct route {
    const char *path;
    enum http_method method;
    int flags;               /* ROUTE_* */
    void (*handle)(server *s, exchange *ex);
    const wire *w;           /* wire of a generation; NULL = `handle` responds */
    unsigned api;            /* API_* of its body's fields; 0 = no body, or a body with its own format */
    const char *answer;      /* name of the response schema in openapi.c */
    const char *summary;
} route;

extern const route routes[];
extern const size_t n_routes;

#endif
