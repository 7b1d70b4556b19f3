/* A budget for work that a client's input causes before its request runs: reading JSON, compiling a schema or a grammar,
 * rendering a chat template, tokenizing.
 *
 * The budget travels with the memory that the work fills: pi__zone, pi__text and pi__ids have a field `work`;
 * a grammar's builder keeps it in its zone (b->zone.work, see pi__builder_step). NULL = no limit. A loop whose length the
 * input decides asks as it goes, and leaves where the answer is false:
 *
 *     for (size_t i = 0; i < n; i++) {
 *         if (!pi__work_step(z->work, 1)) return pi__work_fail(z->work, err, "json-schema");
 *         ...
 *     }
 *
 * A step is a small piece of work, 10 to 100 ns: a byte read, a node made, two values compared. Count what a call really
 * does (n for a copy of n bytes / 64); a loop of cheap iterations may ask once for all of them. A call costs an addition
 * and a branch; only every PI__WORK_LOOK steps it looks at the clock and at the cancel flag, so work ends within a
 * millisecond of either. After the first refusal every further one is refused, too, so that callers on the way out need
 * not remember it.
 *
 * Memory: none. Threads: one at a time does the work; pi__work_cancel may come from any. */
#ifndef PI__WORK_H
#define PI__WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagedinfer.h"

enum { PI__WORK_LOOK = 4096 }; /* steps between two looks at the clock and the flag */

typedef struct pi__work {
    atomic_bool canceled; /* set by any thread */
    int code;             /* PI_OK; why the work has to end: PI_ECANCELED, PI_ETIMEDOUT, PI_ETOOBIG (steps or memory) */
    uint32_t due;         /* steps until the next look; 0 once code is set */
    uint64_t steps;       /* taken, and those that are due */
    uint64_t max_steps;   /* UINT64_MAX: no limit; else also one of 100 ns of processor time for each */
    int64_t cpu_start;    /* processor time of the thread at the first look, ns; -1: none came */
    size_t bytes;         /* of memory, charged and not given back */
    size_t max_bytes;     /* SIZE_MAX: no limit */
    int64_t until_ns;     /* pi__now_ns at which the time is up; INT64_MAX: never */
} pi__work;

/* 0 steps, 0 bytes, a negative time = no limit. */
void pi__work_init(pi__work *w, uint64_t max_steps, size_t max_bytes, int64_t timeout_ms);
/* The work ends at its next look. Any thread. */
void pi__work_cancel(pi__work *w);
/* pi__work_step where a look is due. */
bool pi__work_look(pi__work *w, uint64_t n);
/* Charges n bytes. false: that is too much, or the work has ended; nothing was charged. w may be NULL. */
bool pi__work_take(pi__work *w, size_t n);
/* Bytes that were charged are free again. w may be NULL. */
void pi__work_give(pi__work *w, size_t n);
/* Fills err with why w ended, for the text or option `what`, and returns the code. w->code is set. */
int pi__work_fail(const pi__work *w, pi_error *err, const char *what);

/* n more steps were taken. false: leave, w->code says why. w may be NULL. */
static inline bool pi__work_step(pi__work *w, uint64_t n)
{
    if (!w) return true;
    if (n >= w->due) return pi__work_look(w, n);
    w->due -= (uint32_t) n;
    return true;
}

/* PI_OK, or why the work ended. */
static inline int pi__work_code(const pi__work *w) { return w ? w->code : PI_OK; }

#endif
