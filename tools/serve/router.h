/* The models of a front end: their processes, the requests that wait for them, and the requests that they handle. The
 * policy (model_policy.h) decides what is loaded and stopped. docs/design/server.md has the states of a model and the
 * flow of a request.
 *
 * Memory: per model its settings and the description by its process; per waiting request its body. Runs on the loop's
 * thread. */
#ifndef PAGEDINFER_SERVE_ROUTER_H
#define PAGEDINFER_SERVE_ROUTER_H

#include "serve/model_list.h"
#include "serve/routes.h"

typedef struct router router;

/* Creates the router of s and takes over the list. Returns an exit code. */
int router_open(server *s, model_list *list);
/* Orders the models with load-on-startup. Call it after the listeners are open. */
void router_begin(server *s);
/* Handles a request of the route rt. in: the request with its path inside of --api-prefix. */
void router_request(server *s, exchange *ex, const http_request *in, const route *rt);
/* Checks deadlines, idle times and silent streams. Called on each tick of the loop. */
void router_tick(server *s);
/* Ends all processes and all waiting requests. */
void router_end(server *s);
/* Kills the processes that have not ended. */
void router_kill(server *s);
/* Number of requests that wait or are handled; number of processes. */
size_t router_n_requests(const server *s);
size_t router_n_processes(const server *s);
/* Frees the router after the loop has ended. */
void router_free(server *s);

#endif
