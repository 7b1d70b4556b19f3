/* Requests that need no generation. A thread of libuv's pool reads and processes the body (prep.h), because it can be
 * megabytes or name a file. The pool also writes the response as text; the loop only sends it. */
#ifndef PAGEDINFER_SERVE_JOB_H
#define PAGEDINFER_SERVE_JOB_H

#include "serve/params.h"
#include "serve/prep.h"
#include "serve/server.h"

typedef struct job {
    prep prep;
    server *s;
    exchange *ex;
    params p;             /* fields of the body; a list at the top level becomes field "list" */
    buf text;             /* the response as JSON text; valid if err.code is 0 */
    char *field;          /* field that caused the error, or NULL; owned */
    int status;           /* HTTP status of the error; 0 = derived from its code */
    pi_error err;
    bool wants_heavy;     /* run found work for the heavy lane, failed, and is repeated there */
    int (*run)(struct job *j, json_t **answer);
} job;

/* Starts a job for ex. run is called on the pool, possibly twice (prep.h). It sets *answer to the response, or writes a
 * large response to j->text itself; on failure it fills j->err and returns its code. The loop sends the response. */
void job_start(server *s, exchange *ex, int (*run)(job *, json_t **));
/* Like job_start, in the heavy lane: for work that cannot be interrupted and repeated. */
void job_start_heavy(server *s, exchange *ex, int (*run)(job *, json_t **));

#endif
