/* Shared by router.c (models and requests), router_models.c (changes of the list), router_download.c (downloads) and
 * router_info.c (what clients see of them). */
#ifndef PAGEDINFER_SERVE_ROUTER_IMPL_H
#define PAGEDINFER_SERVE_ROUTER_IMPL_H

#include "serve/model_name.h"
#include "serve/model_policy.h"
#include "serve/model_process.h"
#include "serve/private_dir.h"
#include "serve/router.h"

enum { LOG_TAIL = 1024 };

typedef struct forward forward;
typedef struct download download;
typedef struct removal removal;

typedef struct model {      /* a model and its process; its address is constant */
    router *r;
    size_t i;               /* its index in r->m, r->st and r->list.m; changes with the list */
    size_t id;              /* number of its files in r->dir; constant */
    const listed_model *l;  /* &r->list.m[i] */
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
    json_t *adapters;       /* names of the adapters of its process; NULL = none reported */
    removal *removal;       /* DELETE /models; NULL = none */
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
    model_list list;        /* of clients; after it the removed models, until their processes have ended */
    model **m;              /* [router_n_all] */
    model_status *st;       /* [router_n_all] */
    size_t n_ids;           /* numbers given to models and downloads so far */
    struct reload {
        prep scan;          /* builds `found` on the pool */
        model_list found;
        int code;           /* of model_list_build */
        uint64_t n_asked, n_begun; /* number of the last order; number of the last order before the scan began */
        bool runs;
        struct reloader *waiting;  /* clients that wait for the list */
    } reload;
    download *downloads;    /* running ones */
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

/* Number of models, with the removed ones. */
static inline size_t router_n_all(const router *r) { return r->list.n + r->list.n_removed; }
static inline uint64_t router_now(const router *r) { return uv_now(&r->s->loop); }

/* Applies the policy until there is nothing to do. */
void router_run(router *r);
/* Ends the process of model i after its running requests. Waiting requests wait for the next process. */
void router_stop(router *r, size_t i);
/* Writes the values of c as options of a process; skip: further keys to omit. Returns false on failure. */
bool router_write_options(const cli *c, const char *path, const char *skip);
/* Orders a model to load, or to unload after its running requests. */
void router_load(router *r, size_t i);
void router_unload(router *r, size_t i);

/* ---- router_models.c */
/* Makes the list the router's models. Models that are new are not loaded; processes of changed or removed models are
 * told to end. Takes over the list; if out of memory, returns false and leaves the list to the caller. */
bool router_take_list(router *r, model_list *list);
/* Builds the list again and takes it. ex: its client gets the list of models; NULL = none. */
void router_reload(router *r, exchange *ex);
/* Forgets removed models whose process has ended, and continues removals. Called on each tick. */
void router_sweep(router *r);
void router_free_models(router *r);
/* Returns the index of the model that has an adapter of this name; list.n = none. */
size_t router_find_adapter(const router *r, const char *name);

/* ---- router_download.c */
/* Returns the entries of running downloads for the list of models. */
void router_list_downloads(const router *r, json_t *list);
/* Cancels the download of this name. Returns false if there is none. */
bool router_cancel_download(router *r, const char *name);
void router_cancel_downloads(router *r);
void router_kill_downloads(router *r);
size_t router_n_downloads(const router *r);
/* True if clients may download and remove models; else responds with an error. */
bool router_may_update(server *s, exchange *ex);

/* ---- router_info.c */
/* Sends an event to the clients of /models/sse. Takes ownership of data; NULL = no data. */
void router_event(router *r, const char *name, const char *event, json_t *data);
/* Responds with the list of models. */
void router_answer_models(router *r, exchange *ex);
/* Returns the handler of the front end for a route of a single model's server; NULL = the request is forwarded.
 * has_model: the query names a model. */
void (*router_handler(const route *rt, bool has_model))(server *s, exchange *ex);
/* Sends the state of model i to the clients of /models/sse. */
void router_publish(router *r, size_t i);
/* Sends comments to silent clients of /models/sse. */
void router_ping(router *r);

#endif
