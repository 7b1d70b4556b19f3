/* pi_selftest: passes the options to the self-test (src/selftest). No memory of its own; the caller's thread. */
#include "selftest/selftest.h"

#include "api/config.h"
#include "base/error.h"

int pi_selftest(const pi_options *o, const char *checks, pi_line_fn fn, void *ud, pi_error *err)
{
    if (!o || !fn) return pi__fail(err, PI_EINVAL, "pi_selftest: options and a function are needed");
    pi__selftest t = {.device = pi__opt_str(&o->set, PI__OPT_DEVICE), .checks = checks,
                      .params = pi__device_params_of(o), .fn = fn, .ud = ud};
    return pi__selftest_run(&t, err);
}
