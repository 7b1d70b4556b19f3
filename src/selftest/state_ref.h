/* For checks of recurrent states: memory that a kernel must not write. */
#ifndef PI__SELFTEST_STATE_REF_H
#define PI__SELFTEST_STATE_REF_H

#include <cstdint>
#include <cstring>

#include "selftest/check.h"

namespace selftest {

/* Checks that the floats from..to - 1 of p still have the pattern of new buffers. */
inline void check_untouched(const float *p, size_t from, size_t to)
{
    for (size_t k = from; k < to; k++) {
        uint32_t u;
        std::memcpy(&u, p + k, 4);
        expect_equal(u, 0xffffffffu);
    }
}

} // namespace selftest

#endif
