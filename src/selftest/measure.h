/* How fast a device is at what engines do with it (measure.cpp). */
#ifndef PI__SELFTEST_MEASURE_H
#define PI__SELFTEST_MEASURE_H

#include "selftest/check.h"
#include "selftest/selftest.h"

namespace selftest {

/* Lines of the report; on an emulator, which has no clock, everything runs small and once. What cannot run is said. */
void measure(target &t, const pi__rt_facts &facts, const pi__selftest &to);

/* GB/s of its memory: published, or by clock and width; 0: not known. */
double memory_peak(const target &t, const pi__rt_facts &facts, bool *published);

} // namespace selftest

#endif
