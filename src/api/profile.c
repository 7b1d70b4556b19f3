/* pi_engine_profile: reports the backend's profile row by row (backend/profile.h). Any thread. */
#include "backend/profile.h"

#include "api/objects.h"
#include "base/error.h"

typedef struct reader {
    pi_op_share_fn fn;
    void *ud;
    bool stop;
} reader;

static void report_row(void *ud, const pi__profile_row *row, uint64_t n_steps)
{
    reader *r = ud;
    char name[80];
    if (r->stop) return;
    pi__profile_name(row, name, sizeof name);
    const pi_op_share share = {
        .size = sizeof share, .decode = row->decode, .op = name, .n_steps = n_steps, .n_calls = row->n_calls,
        .ns = (double) row->ns, .bytes = row->bytes, .integers = row->integers, .floats = row->floats,
    };
    r->stop = r->fn(r->ud, &share);
}

int pi_engine_profile(pi_engine *e, pi_op_share_fn fn, void *ud, pi_error *err)
{
    if (!e || !fn) return pi__fail(err, PI_EINVAL, "pi_engine_profile: an engine and a function are needed");
    pi__profile *p = pi__core_profile(e->core);
    if (!p) return pi__fail(err, PI_EINVAL, "the engine records no profile: open it with option profile-ops");
    reader r = {fn, ud, false};
    pi__profile_take(p, report_row, &r);
    return PI_OK;
}
