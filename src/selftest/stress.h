/* The stress test: random checks on two queues of one device at the same time (stress.cpp). */
#ifndef PI__SELFTEST_STRESS_H
#define PI__SELFTEST_STRESS_H

#include "selftest/checks.h"
#include "selftest/selftest.h"

namespace selftest {

/* Runs random checks of the families that to.checks selects for to.stress seconds, on t and on a second queue of the
 * same device. Reports failures, each with the seed that repeats it, and counts them in to. */
void run_stress(pi__selftest &to, target &t, const family *const *families, int n_families);

} // namespace selftest

#endif
