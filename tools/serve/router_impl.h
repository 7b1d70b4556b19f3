/* Shared by router.c (models and requests) and router_info.c (what clients see of them). */
#ifndef PAGEDINFER_SERVE_ROUTER_IMPL_H
#define PAGEDINFER_SERVE_ROUTER_IMPL_H

#include "serve/model_name.h"
#include "serve/model_policy.h"
#include "serve/model_process.h"
#include "serve/private_dir.h"
#include "serve/router.h"

enum { LOG_TAIL = 1024 };

typedef struct forward forward;

typedef struct model {      /* a model and its process */
    router *r;
    const listed_model *l;
    model_process *p;       /* NULL = no process */
    forward *first, *last;  /* requests that wait for it, oldest first */
    size_t n_waiting;
    uint64_t order;         /* demand number of POST /models/load or load-on-startup; 0 = none */
    bool sleeps;            /* STOPPING: the next state is SLEEPING */
    unsigned n_failed;      /* failed loads in a row */
    int exit_code;          /* of the last unexpected end: status, or 128 + signal */
    int percent;            /* progress of loading */
    char tail[LOG_TAIL];    /* last log lines, without those of requests */
    size_t n_tail;
    json_t *info;           /* server_description of the last load; NULL = never loaded */
    uint64_t began_at;      /* uv_now at the start of the process */
    uint64_t kill_at;       /* STOPPING: uv_now at which the process is killed */
    uint64_t n_loads, n_failures, n_requests; /* completed loads, unexpected ends, requests so far */
    double load_s;          /* seconds of the last load, from the start of the process */
} model;

typedef struct subscriber { /* a client of /models/sse */
    exchange *ex;
    struct subscriber *next;
    uint64_t sent_at;       /* uv_now of the last event or comment */
} subscriber;

struct router {
    server *s;
    model_list list;
    model *m;               /* [list.n] */
    model_status *st;       /* [list.n] */
    model_limits limits;
    bool auto_bytes;        /* limits.max_bytes follows from the free memory */
    uint64_t n_demands;     /* numbers given to demands so far */
    size_t n_forwards;      /* requests that wait or are handled */
    size_t waiting_bytes;   /* bodies of requests that wait */
    bool running, again;    /* the policy is being applied; it must be asked again */
    bool ending;            /* no process starts any more */
    uint64_t wait_ms;       /* --models-wait */
    subscriber *subscribers;
    private_dir dir;
};

/* Orders a model to load, or to unload after its running requests. */
void router_load(router *r, size_t i);
void router_unload(router *r, size_t i);

/* ---- router_info.c */
/* Returns the handler of the front end for a route of a single model's server; NULL = the request is forwarded.
 * has_model: the query names a model. */
void (*router_handler(const route *rt, bool has_model))(server *s, exchange *ex);
/* Sends the state of model i to the clients of /models/sse. */
void router_publish(router *r, size_t i);
/* Sends comments to silent clients of /models/sse. */
void router_ping(router *r);

#endif
