/* pi_selftest, pi_selftest_run: pass the options to the self-test (src/selftest). No memory of their own; the caller's
 * thread. */
#include "selftest/selftest.h"

#include <string.h>

#include "api/config.h"
#include "base/error.h"

/* Address of the project's issues (CMake option PAGEDINFER_ISSUES_URL). */
#ifndef PI_ISSUES_URL
#define PI_ISSUES_URL ""
#endif

int pi_selftest_run(const pi_options *o, const pi_selftest_params *p, pi_line_fn fn, void *ud, pi_error *err)
{
    pi_selftest_params all = {0};
    if (!o || !p || !fn) return pi__fail(err, PI_EINVAL, "pi_selftest: options and a function are needed");
    if (!p->size) return pi__fail(err, PI_EINVAL, "pi_selftest_run: size of the parameters is 0: set it");
    memcpy(&all, p, p->size < sizeof all ? p->size : sizeof all);
    pi__selftest t = {.device = pi__opt_str(&o->set, PI__OPT_DEVICE), .checks = all.checks,
                      .params = pi__device_params_of(o), .fn = fn, .ud = ud, .stress = all.stress, .seed = all.seed,
                      .issues = PI_ISSUES_URL, .json = {.on = all.json}};
    return pi__selftest_run(&t, err);
}

int pi_selftest(const pi_options *o, const char *checks, pi_line_fn fn, void *ud, pi_error *err)
{
    const pi_selftest_params p = {.size = sizeof p, .checks = checks};
    return pi_selftest_run(o, &p, fn, ud, err);
}
