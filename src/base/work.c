/* Work budgets (see work.h). */
#include "base/work.h"

#include "base/clock.h"
#include "base/error.h"

void pi__work_init(pi__work *w, uint64_t max_steps, size_t max_bytes, int64_t timeout_ms)
{
    *w = (pi__work) {.max_steps = max_steps ? max_steps : UINT64_MAX,
                     .max_bytes = max_bytes ? max_bytes : SIZE_MAX, .until_ns = INT64_MAX, .cpu_start = -1};
    const int64_t now = timeout_ms < 0 ? 0 : pi__now_ns();
    if (timeout_ms >= 0 && timeout_ms < (INT64_MAX - now) / 1000000) w->until_ns = now + timeout_ms * 1000000;
    atomic_init(&w->canceled, false);
}

void pi__work_cancel(pi__work *w) { atomic_store_explicit(&w->canceled, true, memory_order_relaxed); }

enum { STEP_NS = 100, MAX_TIMED_STEPS = 1 << 30 };

static bool end(pi__work *w, int code)
{
    w->code = code;
    w->due = 0;
    return false;
}

/* True if the thread's CPU time exceeds the time of max_steps steps: slow steps count as more. */
static bool ran_too_long(pi__work *w)
{
    if (w->max_steps > MAX_TIMED_STEPS) return false;
    const int64_t now = (int64_t) (pi__thread_ms() * 1e6);
    if (w->cpu_start < 0) w->cpu_start = now;
    return now - w->cpu_start > (int64_t) w->max_steps * STEP_NS;
}

bool pi__work_check_due(pi__work *w, uint64_t n)
{
    if (w->code) return false;
    w->steps += n - w->due; /* the `due` steps were counted at the previous check */
    if (atomic_load_explicit(&w->canceled, memory_order_relaxed)) return end(w, PI_ECANCELED);
    if (ran_too_long(w)) w->steps = UINT64_MAX;
    if (w->steps > w->max_steps) return end(w, PI_ETOOBIG);
    if (w->until_ns != INT64_MAX && pi__now_ns() >= w->until_ns) return end(w, PI_ETIMEDOUT);
    w->steps += w->due = PI__WORK_LOOK;
    return true;
}

bool pi__work_take(pi__work *w, size_t n)
{
    if (!w) return true;
    if (w->code) return false;
    if (n > w->max_bytes - w->bytes) return end(w, PI_ETOOBIG);
    w->bytes += n;
    return true;
}

void pi__work_give(pi__work *w, size_t n)
{
    if (w) w->bytes -= n < w->bytes ? n : w->bytes;
}

int pi__work_fail(const pi__work *w, pi_error *err, const char *what)
{
    switch (w->code) {
    case PI_ECANCELED: return pi__fail(err, PI_ECANCELED, "%s: canceled during preparation", what);
    case PI_ETIMEDOUT:
        return pi__fail(err, PI_ETIMEDOUT, "%s: preparation exceeded the time limit: make it smaller or simpler",
                        what);
    default:
        if (w->steps > w->max_steps)
            return pi__fail(err, PI_ETOOBIG, "%s: preparation takes too many steps: make it smaller or simpler", what);
        return pi__fail(err, PI_ETOOBIG, "%s: preparation takes more than %zu KiB of memory: make it smaller", what,
                        w->max_bytes >> 10);
    }
}
