/* Measures the speed of a device at typical engine work (measure.cpp). */
#ifndef PI__SELFTEST_MEASURE_H
#define PI__SELFTEST_MEASURE_H

#include "selftest/check.h"
#include "selftest/selftest.h"

namespace selftest {

/* Writes the measurements to the report, and names measurements that cannot run. An emulator has no clock: every
 * measurement runs once, with small sizes. */
void measure(target &t, const pi__rt_facts &facts, const pi__selftest &to);

/* Memory bandwidth in GB/s: published, or computed from clock and bus width; 0 = unknown. */
double memory_peak(const target &t, const pi__rt_facts &facts, bool *published);

} // namespace selftest

#endif
