/* Requests that the model need not answer: a body is read and worked on by a thread of libuv's pool (prep.h), since it may be
 * megabytes, or name a file that is read. The pool also writes the answer as text; the loop only sends it. */
#ifndef PAGEDINFER_SERVE_JOB_H
#define PAGEDINFER_SERVE_JOB_H

#include "serve/params.h"
#include "serve/prep.h"
#include "serve/server.h"

typedef struct job {
    prep prep;
    server *s;
    exchange *ex;
    params p;             /* of the body; a list is field "list" of it */
    buf text;             /* the answer's JSON, or err */
    char *field;          /* where the error is, or NULL; owned */
    int status;           /* of the error; 0: what its code means to clients */
    pi_error err;
    int (*run)(struct job *j, json_t **answer);
} job;

/* run is called on the pool, perhaps twice (prep.h). It gives *answer, or puts large answers into j->text itself. */
void job_start(server *s, exchange *ex, int (*run)(job *, json_t **));
/* The same for work that cannot be stopped and done again. */
void job_start_heavy(server *s, exchange *ex, int (*run)(job *, json_t **));

#endif
