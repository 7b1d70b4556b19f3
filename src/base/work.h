/* A budget for work that a client's input causes before its request runs: reading JSON, compiling a schema or a
 * grammar, rendering a chat template, tokenizing.
 *
 * The budget is attached to the memory that the work fills: pi__zone, pi__text and pi__ids have a field `work`. A
 * grammar's builder keeps it in its zone (b->zone.work, see pi__builder_step). NULL = no limit. A loop with a length
 * that depends on the input calls pi__work_step as it runs and stops at false:
 *
 *     for (size_t i = 0; i < n; i++) {
 *         if (!pi__work_step(z->work, 1)) return pi__work_fail(z->work, err, "json-schema");
 *         ...
 *     }
 *
 * A step is a small piece of work of 10 to 100 ns: a byte read, a node created, two values compared. Count the actual
 * work of a call (n for a copy of n bytes / 64). A loop of cheap iterations may count all of them in one call. A call
 * costs an addition and a branch. The clock and the cancel flag are checked only every PI__WORK_LOOK steps, so work
 * ends within a millisecond of either. After the first refusal every further step is refused too, so that callers
 * need not remember it while they return.
 *
 * Memory: none. Threads: one at a time does the work; pi__work_cancel may come from any thread. */
#ifndef PI__WORK_H
#define PI__WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagedinfer.h"

enum { PI__WORK_LOOK = 4096 }; /* steps between two checks of the clock and the flag */

typedef struct pi__work {
    atomic_bool canceled; /* set by any thread */
    int code;             /* PI_OK, or the reason: PI_ECANCELED, PI_ETIMEDOUT, PI_ETOOBIG (steps or memory) */
    uint32_t due;         /* steps until the next check of the limits; 0 once code is set */
    uint64_t steps;       /* steps taken, plus the steps in `due`, which are counted in advance */
    uint64_t max_steps;   /* maximum of `steps`, UINT64_MAX = no limit; it also limits CPU time, to 100 ns per step */
    int64_t cpu_start;    /* CPU time of the thread at the first check, ns; -1 = not checked yet */
    size_t bytes;         /* bytes charged and not returned */
    size_t max_bytes;     /* SIZE_MAX = no limit */
    int64_t until_ns;     /* pi__now_ns of the deadline; INT64_MAX = no deadline */
} pi__work;

/* max_steps 0, max_bytes 0, timeout_ms negative = no limit. */
void pi__work_init(pi__work *w, uint64_t max_steps, size_t max_bytes, int64_t timeout_ms);
/* Requests the end: from the next check of w on, steps are refused with PI_ECANCELED. Any thread. */
void pi__work_cancel(pi__work *w);
/* The slow path of pi__work_step: counts n steps, then checks the cancel flag, CPU time, max_steps and the clock.
 * false = stop; w->code is set. */
bool pi__work_check_due(pi__work *w, uint64_t n);
/* Charges n bytes to max_bytes. false = over the limit (w->code is set), or the work has ended; nothing was charged. w
 * may be NULL. */
bool pi__work_take(pi__work *w, size_t n);
/* Returns n charged bytes to the budget. w may be NULL. */
void pi__work_give(pi__work *w, size_t n);
/* Fills err with the reason why w ended, for the text or option `what`, and returns the code. w->code is set. */
int pi__work_fail(const pi__work *w, pi_error *err, const char *what);

/* Counts n steps. false = stop: w->code has the reason. w may be NULL. */
static inline bool pi__work_step(pi__work *w, uint64_t n)
{
    if (!w) return true;
    if (n >= w->due) return pi__work_check_due(w, n);
    w->due -= (uint32_t) n;
    return true;
}

/* Returns PI_OK, or the reason why the work ended. */
static inline int pi__work_code(const pi__work *w) { return w ? w->code : PI_OK; }

#endif
