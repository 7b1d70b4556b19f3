/* Measures the speed of a device with typical work of an engine (measure.cpp). */
#ifndef PI__SELFTEST_MEASURE_H
#define PI__SELFTEST_MEASURE_H

#include "selftest/check.h"
#include "selftest/selftest.h"

namespace selftest {

/* Runs all measurements and reports the results; also reports measurements that could not run. An emulator has no
 * clock: every measurement runs once, with small sizes. */
void measure(target &t, const pi__rt_facts &facts, pi__selftest &to);

/* Returns the peak memory bandwidth in GB/s; 0 = unknown. *published: true = a published value; false = computed from
 * clock and bus width. */
double memory_peak(const target &t, const pi__rt_facts &facts, bool *published);

} // namespace selftest

#endif
