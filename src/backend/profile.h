/* Time, bytes and products per op (option profile-ops), separately for decode steps and other steps. Also the time that
 * the step thread spends between ops.
 *
 * Times are measured around the calls on the step thread, so they are meaningful only on backends where an op is done
 * when it returns. If the backend has one thread, they are the thread's CPU time, which does not include other load on
 * the machine.
 *
 * Bytes count data that must be moved from or to memory, each byte once: matrices, keys and values, states,
 * activations. Products are multiply-adds, one per weight and token, regardless of the activations' precision.
 * `integers` counts products with quantised matrices, `floats` all others.
 *
 * Memory: fixed. The step thread writes, any thread reads; a mutex guards the data. */
#ifndef PI__PROFILE_H
#define PI__PROFILE_H

#include <pthread.h>

#include "backend/device.h"

enum { PI__PROFILE_ROWS = 160 };

/* Parts of a step that are not ops. */
typedef enum pi__profile_part {
    PI__PART_BATCH = PI__N_OPS, /* building the batch */
    PI__PART_BETWEEN,           /* between ops */
    PI__PART_TOKENS,            /* after the last op: sampling, detokenization, events */
    PI__PART_SCHEDULE,          /* between steps: requests, admission, scheduling */
    PI__PART_OTHER,             /* calls that found no free row in pi__profile.row */
} pi__profile_part;

/* All calls of an op with operands of one shape, in steps of one kind. */
typedef struct pi__profile_row {
    int32_t op;          /* pi__op_id or pi__profile_part */
    int32_t type;        /* enum pi__type of the first matrix, or of the keys; -1 = none */
    /* linear: columns, and rows of all matrices; moe: columns of gate and of down; attention: head_dim and window
     * (0 = none); gdn: values per head, value heads; other ops: 0. */
    int64_t n_in, n_out;
    bool decode;         /* from steps that only decode */
    uint64_t n_calls, bytes, integers, floats; /* calls; sums over them: bytes moved, products (see above) */
    int64_t ns;          /* time of all calls in nanoseconds */
} pi__profile_row;

typedef struct pi__profile {
    pthread_mutex_t lock;
    bool own_time;       /* times are the thread's CPU time */
    bool decode;         /* the current step only decodes */
    int64_t last;        /* end of the last op or part, in ns; 0 = unknown */
    uint64_t n_steps[2]; /* number of other steps; number of decode steps */
    int32_t n;           /* rows in use */
    pi__profile_row row[PI__PROFILE_ROWS];
} pi__profile;

/* Creates the profile of one backend; the caller frees it. Returns NULL if out of memory. */
pi__profile *pi__profile_new(const pi__backend *be);
void pi__profile_free(pi__profile *p);

/* p may be NULL in these three functions. pi__profile_step: a step begins, and its batch has been built.
 * pi__profile_end: adds the time since the last op or part to `part`. pi__profile_idle: the step thread was idle until
 * now; that time is not counted. */
void pi__profile_step(pi__profile *p, bool decode);
void pi__profile_end(pi__profile *p, pi__profile_part part);
void pi__profile_idle(pi__profile *p);

/* Calls fn with each row and the number of steps of the row's kind, then clears the profile. */
void pi__profile_take(pi__profile *p, void (*fn)(void *ud, const pi__profile_row *row, uint64_t n_steps), void *ud);

/* Writes the name of a row's op, type and shape, for example "linear q4_K 1024 x 6144". */
void pi__profile_name(const pi__profile_row *row, char *to, size_t size);

#endif
