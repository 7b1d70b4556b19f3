/* The table of routes: what a path is, who answers it, and how /openapi.json describes it. Constant: any thread. */
#ifndef PAGEDINFER_SERVE_ROUTES_H
#define PAGEDINFER_SERVE_ROUTES_H

#include "serve/gen.h"

enum { ROUTE_PUBLIC = 1, ROUTE_ANY_STATE = 2 }; /* no key needed; also while loading or shutting down */

typedef struct route {
    const char *path;
    enum http_method method;
    int flags;               /* ROUTE_* */
    void (*handle)(server *s, exchange *ex);
    const wire *w;           /* a generation; NULL = handle answers */
    unsigned api;            /* API_* of its body's fields; 0 = none, or a body of its own */
    const char *answer;      /* name of its answer's schema in openapi.c */
    const char *summary;     /* one line */
} route;

extern const route routes[];
extern const size_t n_routes;

#endif
