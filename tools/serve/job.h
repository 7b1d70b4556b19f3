/* Requests that the model need not answer: a body is read and worked on by a thread of libuv's pool, since it may be a
 * megabyte, or name a file that is read; the loop answers. */
#ifndef PAGEDINFER_SERVE_JOB_H
#define PAGEDINFER_SERVE_JOB_H

#include "serve/params.h"
#include "serve/server.h"

typedef struct job {
    uv_work_t work;
    server *s;
    exchange *ex;
    params p;             /* of the body; a list is field "list" of it */
    json_t *answer;       /* or err */
    int status;           /* of the error; 0: what its code means to clients */
    pi_error err;
    int (*run)(struct job *j, json_t **answer);
} job;

/* run is called on the pool. */
void job_start(server *s, exchange *ex, int (*run)(job *, json_t **));

#endif
