/* The families of checks (one file check_NAME.cpp each), and the function that runs a check. */
#ifndef PI__SELFTEST_CHECKS_H
#define PI__SELFTEST_CHECKS_H

#include "selftest/check.h"

namespace selftest {

#define PI__SELFTEST_FAMILIES(X)                                                                                       \
    X(runtime)                                                                                                         \
    X(linear) X(gemm) X(mma16) X(w16) X(wgmma) X(tails) X(fp4) X(attention) X(key_blocks) X(rows) X(gdn) X(mla) X(moe) \
        X(moe_w16) X(expert_cache) X(experts_layer) X(lora) X(top) X(draw) X(centroid_head) X(short_conv) X(scan)
#define PI__SELFTEST_FAMILY(name) extern const family checks_of_##name;
PI__SELFTEST_FAMILIES(PI__SELFTEST_FAMILY)
#undef PI__SELFTEST_FAMILY

enum outcome { CHECK_OK, CHECK_FAILED, CHECK_SKIPPED };

/* Runs a check on the target. text: receives the reason of a failure or a skip; `size` bytes. */
outcome run_check(target &t, const entry &c, char *text, size_t size);

} // namespace selftest

#endif
