/* Where the time of steps goes, op by op (option profile-ops): time, bytes and products of each kind of op, of steps that decode
 * and of others, and of what the step thread does between ops.
 *
 * Times are of the calls as the step thread sees them, so they mean something on backends alone whose ops are done when they
 * return. With one thread they are its own processor time, which others who use the machine do not change.
 *
 * Bytes are those that have to come from memory or go there, each once: matrices, keys and values, states, activations.
 * Products are multiply-adds, one for each weight and token, however many digits an activation has: integers those of
 * quantised matrices, floats all others.
 *
 * Memory: fixed. The step thread writes, any thread reads; a mutex guards it. */
#ifndef PI__PROFILE_H
#define PI__PROFILE_H

#include <pthread.h>

#include "backend/device.h"

enum { PI__PROFILE_ROWS = 160 };

/* What is no op. */
typedef enum pi__profile_part {
    PI__PART_BATCH = PI__N_OPS, /* what is to be computed becomes a batch */
    PI__PART_BETWEEN,           /* from op to op */
    PI__PART_TOKENS,            /* after the last op: sampling, tokens to text, events */
    PI__PART_SCHEDULE,          /* from step to step: requests, admission, the plan */
    PI__PART_OTHER,             /* ops for which there was no row left */
} pi__profile_part;

/* Calls of an op with operands of one shape, in steps of one kind. */
typedef struct pi__profile_row {
    int32_t op;          /* pi__op_id or pi__profile_part */
    int32_t type;        /* of the first matrix, or the keys; -1: there is none */
    int64_t n_in, n_out; /* of the matrices together; attention: head_dim, and the window or 0; else 0 */
    bool decode;         /* of steps that decode alone */
    uint64_t n_calls, bytes, integers, floats;
    int64_t ns;
} pi__profile_row;

typedef struct pi__profile {
    pthread_mutex_t lock;
    bool own_time;       /* times are the thread's own */
    bool decode;         /* the step is one that decodes alone */
    int64_t last;        /* when the last op or part ended; 0: nobody knows */
    uint64_t n_steps[2]; /* others, and those that decode */
    int32_t n;           /* rows in use */
    pi__profile_row row[PI__PROFILE_ROWS];
} pi__profile;

/* One for a backend, whose own it is until free; NULL: no memory. */
pi__profile *pi__profile_new(const pi__backend *be);
void pi__profile_free(pi__profile *p);

/* Of these, p may be NULL. A step begins, now that its batch is known; a part of it ended; the step thread was idle. */
void pi__profile_step(pi__profile *p, bool decode);
void pi__profile_end(pi__profile *p, pi__profile_part part);
void pi__profile_idle(pi__profile *p);

/* Calls fn with each row, and starts again. */
void pi__profile_take(pi__profile *p, void (*fn)(void *ud, const pi__profile_row *row, uint64_t n_steps), void *ud);

/* "linear q4_K 1024 x 6144" */
void pi__profile_name(const pi__profile_row *row, char *to, size_t size);

#endif
