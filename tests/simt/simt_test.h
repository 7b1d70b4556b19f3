/* Shared by the tests of the emulator and of kernels: cmocka for C++, device buffers, the modes in which kernels
 * run. */
#ifndef SIMT_TEST_H
#define SIMT_TEST_H

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include "selftest/random.h"
#include "simt.h"

namespace simt_test {

/* n values of device memory; an access past the end faults. */
template <class T> class buffer {
public:
    explicit buffer(size_t n) : n_(n), p_(static_cast<T *>(simt::device_alloc((n ? n : 1) * sizeof(T))))
    {
        if (!p_) fail_msg("no device memory for %zu values", n);
    }
    buffer(const std::vector<T> &v) : buffer(v.size()) { if (n_) std::memcpy(p_, v.data(), n_ * sizeof(T)); }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer() { simt::device_free(p_); }
    T *get() { return p_; }
    const T *get() const { return p_; }
    T &operator[](size_t i) { return p_[i]; }
    const T &operator[](size_t i) const { return p_[i]; }
    size_t size() const { return n_; }
    void fill(int byte) { std::memset(p_, byte, n_ * sizeof(T)); }

private:
    size_t n_;
    T *p_;
};

/* Runs f() in every mode. */
template <class F> void in_all_modes(F f)
{
    simt::config before = simt::options;
    for (int i = 0; i < simt::N_MODES; i++) {
        simt::use_mode(i);
        f();
    }
    simt::options = before;
}

/* Launches a kernel; fails the test on an error. */
#define must_run(call)                                                                                                 \
    do {                                                                                                               \
        if (call) fail_msg("%s", simt::last_error());                                                                  \
    } while (0)

using selftest::random;

/* Pointer to an argument struct that a launch reads during the call. */
template <class T> const T *arguments(const T &a) { return &a; }

} // namespace simt_test

#endif
