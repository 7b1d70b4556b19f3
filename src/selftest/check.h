/* Kernel checks: common definitions. Checks run on every implementation of backend/cuda/runtime.h: on a device, and on
 * the tests' emulator. On the emulator, the programs tests/simt/test_kernels_*.cpp run each check in every order of
 * threads and copies.
 *
 * A check is a function that computes on the target and compares with a reference on the host. The first difference
 * ends the check with an exception that contains the message. Checks print nothing. `must_run` waits for a launch, so
 * that the host may read and write buffers between launches.
 *
 * Memory: std::vector on the host; `buffer` for memory that both host and device access. Threads: each target belongs
 * to one thread, which sets `now`. */
#ifndef PI__SELFTEST_CHECK_H
#define PI__SELFTEST_CHECK_H

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "backend/cuda/kernels.h"
#include "backend/cuda/runtime.h"
#include "selftest/random.h"

namespace selftest {

/* Functions of an emulator; NULL = this emulator does not have the function. */
struct emulation {
    /* selects order i of threads, blocks and copies; returns false, and restores the default order, if there is no
     * order i */
    bool (*mode)(int i);
    void (*arch)(int arch);      /* sets the emulated architecture (80 = sm_80); 0 = restore the default */
    unsigned long (*launched)(); /* number of kernels launched so far */
    long (*replayed)();          /* number of graphs replayed so far */
    bool slow;                   /* the emulator itself runs emulated: checks do fewer rounds */
    bool thorough;               /* checks do as many rounds as on a device */
    /* runs fn(arg); returns the shared memory wavefronts of its launch i, relative to an execution without bank
     * conflicts */
    double (*conflicts)(void (*fn)(void *), void *arg, size_t i);
};

/* The stress test's control of a running check (stress.cpp). The check then runs one random shape of each list of
 * shapes. */
struct load {
    virtual ~load() = default;
    /* Returns a random number below n, which is part of the check's shape: equal in every run with the same seed. */
    virtual uint32_t below(uint32_t n) = 0;
    /* Returns a random number of places, 1 to max; different in every run. */
    virtual int32_t places(int32_t max) = 0;
    /* Runs and waits for a launch, and compares the buffers with those of the same launch on an idle device. queue:
     * queues the launch, any number of times. */
    virtual void launch(const std::function<int()> &queue, const char *what, int line) = 0;
    /* A buffer begins and ends. compared: false if its contents may depend on the order of blocks. */
    virtual void add(void *p, size_t bytes, bool compared) = 0;
    virtual void remove(const void *p) = 0;
};

/* Where a check runs. */
struct target {
    pi__rt *rt;           /* the device's queue */
    pi__rt_info info;     /* properties of the device */
    const char *name;     /* as accepted by pi__device_create */
    const emulation *emu; /* abilities of the emulator; NULL = a device */
    double worst;         /* largest error of the check so far, relative to its bound */
    char about[160];      /* description of the shape that is being checked; "" = none */
    load *stress;         /* NULL = no stress test is running */
};
inline thread_local target *now; /* target of the running check */
/* Limits of waiting blocks on the target; without `some`, no block waits. */
inline pi__k_waits waits(bool some = true)
{
    if (now->stress) return {now->stress->places(now->info.places), now->info.stuck};
    return some ? pi__k_waits{now->info.places, now->info.stuck} : pi__k_waits{};
}

struct entry {
    const char *name;
    void (*run)();
};
/* The checks of one file. */
struct family {
    const char *name;
    const char *what; /* description of the checked kernels */
    const entry *checks;
    int n;
};

/* -------------------------------------------------------------------------------------------------- end of a check */

struct failed {
    char text[400];
};
struct skipped {
    char text[160];
};

__attribute__((format(printf, 1, 2), noreturn)) inline void fail_check(const char *fmt, ...)
{
    failed f;
    const int n = now->about[0] ? std::snprintf(f.text, sizeof f.text, "%s: ", now->about) : 0;
    va_list args;
    va_start(args, fmt);
    std::vsnprintf(f.text + n, sizeof f.text - (size_t) n, fmt, args);
    va_end(args);
    throw f;
}

/* Ends the check as skipped: the target lacks a required feature. */
[[noreturn]] inline void skip_check(const char *why)
{
    skipped s;
    std::snprintf(s.text, sizeof s.text, "%s", why);
    throw s;
}

/* Sets the description of the current shape. Failure messages include it. */
__attribute__((format(printf, 1, 2))) inline void about(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    std::vsnprintf(now->about, sizeof now->about, fmt, args);
    va_end(args);
}

/* Returns true if the error `off` is at most `bound`. Records the largest error relative to its bound in now->worst. */
inline bool within(double off, double bound)
{
    const double part = bound > 0 ? off / bound : off > 0 ? 2 : 0;
    if (part > now->worst) now->worst = part;
    return off <= bound;
}

inline void expect_bytes_at(const void *a, const void *b, size_t n, const char *what, int line)
{
    const unsigned char *p = static_cast<const unsigned char *>(a), *q = static_cast<const unsigned char *>(b);
    if (!n || !std::memcmp(p, q, n)) return;
    size_t i = 0;
    while (p[i] == q[i]) i++;
    uint32_t u = 0, v = 0;
    const size_t word = i / 4 * 4, size = n - word < 4 ? n - word : 4;
    std::memcpy(&u, p + word, size);
    std::memcpy(&v, q + word, size);
    fail_check("line %d: %.100s: %zu bytes, the first difference is at %zu: %08x, %08x", line, what, n, i, u, v);
}

inline void expect_at(bool is, const char *what, int line)
{
    if (!is) fail_check("line %d: false: %.200s", line, what);
}

inline void expect_equal_at(long long a, long long b, const char *what, int line)
{
    if (a != b) fail_check("line %d: %.200s: %lld is not %lld", line, what, a, b);
}

#define expect_true(is) selftest::expect_at(is, #is, __LINE__)
#define expect_equal(a, b) selftest::expect_equal_at((long long) (a), (long long) (b), #a, __LINE__)
#define expect_bytes(a, b, n) selftest::expect_bytes_at(a, b, n, #a, __LINE__)

/* Runs and waits for a launch; the check fails if the launch or the wait fails. */
template <class F> void must_run_at(const F &queue, const char *what, int line)
{
    if (now->stress) return now->stress->launch(queue, what, line);
    int code = queue();
    if (!code) code = pi__rt_wait(now->rt);
    if (code) fail_check("line %d: %.60s: %.250s", line, what, pi__rt_text(code));
}
#define must_run(call) selftest::must_run_at([&] { return call; }, #call, __LINE__)

/* ------------------------------------------------------------------------------------------------------- shapes
 *
 * Lists of shapes go through these functions. The stress test replaces a list by one random shape. */

/* Returns the entries; in the stress test one of them. */
template <class T> std::vector<T> one_of(std::initializer_list<T> list)
{
    if (!now->stress) return list;
    return {list.begin()[now->stress->below((uint32_t) list.size())]};
}
template <class T, size_t N> std::vector<std::remove_const_t<T>> one_of(T (&list)[N])
{
    if (!now->stress) return {list, list + N};
    return {list[now->stress->below((uint32_t) N)]};
}
/* Returns the sizes; in the stress test one random multiple of unit, at most the largest of the list. */
template <class T> std::vector<T> sizes(std::initializer_list<T> list, T unit = 1)
{
    if (!now->stress) return list;
    T largest = unit;
    for (T n : list)
        if (n > largest) largest = n;
    return {(T) (1 + now->stress->below((uint32_t) (largest / unit))) * unit};
}
/* Returns n; in the stress test a random size from 1 to n. */
template <class T> T size_to(T n)
{
    return now->stress && n > 0 ? (T) (1 + now->stress->below((uint32_t) n)) : n;
}

/* ------------------------------------------------------------------------------------------------------ the target */

inline void *stream() { return pi__rt_stream(now->rt); }
inline bool slow() { return now->emu && now->emu->slow; }
inline bool counts_launches() { return now->emu && now->emu->launched; }
inline bool has_fp4() { return now->info.arch / 10 == 12; }
inline void need_fp4()
{
    if (!has_fp4()) skip_check("no tensor cores for FP4");
}

/* n values that both host and device access, initially filled with 0xFF, so that floats are NaN. An emulator detects
 * accesses past the end. On a device, the destructor detects writes to a guard area after the values. */
template <class T> class buffer {
public:
    explicit buffer(size_t n) : n_(n), guard_(now->emu ? 0 : 1024), p_(nullptr)
    {
        void *p = nullptr;
        const size_t bytes = (n ? n : 1) * sizeof(T) + guard_;
        const int code = pi__rt_alloc_shared(now->rt, &p, bytes);
        if (code) fail_check("memory that host and device share: %.200s", pi__rt_text(code));
        if (!p) fail_check("no memory for %zu values that host and device share", n);
        p_ = static_cast<T *>(p);
        std::memset(p, 0xff, bytes);
        if (now->stress) now->stress->add(p, n * sizeof(T), std::is_arithmetic<T>::value);
    }
    buffer(const std::vector<T> &v) : buffer(v.size())
    {
        if (n_) std::memcpy(p_, v.data(), n_ * sizeof(T));
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer()
    {
        if (now->stress) now->stress->remove(p_);
        const unsigned char *behind = reinterpret_cast<const unsigned char *>(p_ + (n_ ? n_ : 1));
        for (size_t i = 0; i < guard_; i++)
            if (behind[i] != 0xff) now->worst = INFINITY; /* run_check then reports a failure */
        pi__rt_free(now->rt, p_);
    }
    T *get() { return p_; }
    const T *get() const { return p_; }
    T &operator[](size_t i) { return p_[i]; }
    const T &operator[](size_t i) const { return p_[i]; }
    size_t size() const { return n_; }
    void fill(int byte) { std::memset(p_, byte, n_ * sizeof(T)); }

private:
    size_t n_, guard_;
    T *p_;
};

/* Runs f() in every order of threads and blocks, with late and with early copies. On a device, runs f() three times,
 * since the order may differ between runs. */
template <class F> void in_all_modes(F f)
{
    const emulation *e = now->emu;
    if (!e || !e->mode) {
        for (int i = 0; i < (e ? 1 : 3); i++) f();
        return;
    }
    struct back {
        const emulation *e;
        ~back() { e->mode(-1); }
    } b{e};
    for (int i = 0; e->mode(i); i++) f();
}

/* Runs f() on an emulated device of that architecture. On a real device, runs f() if it has that architecture;
 * otherwise skips the check. */
template <class F> void on_arch(int arch, F f)
{
    const emulation *e = now->emu;
    if (!e || !e->arch) {
        if (now->info.arch != arch) skip_check("it applies to another kind of device");
        return f();
    }
    struct back {
        const emulation *e;
        ~back() { e->arch(0); }
    } b{e};
    e->arch(arch);
    f();
}

/* Runs f() with each kind of copy to shared memory: copies of 16 bytes (sm_80) and bulk copies (sm_90). On a real
 * device, runs f() once, with the device's own kind. */
template <class F> void on_all_archs(F f)
{
    const emulation *e = now->emu;
    if (!e || !e->arch) return f();
    struct back {
        const emulation *e;
        ~back() { e->arch(0); }
    } b{e};
    for (int arch : {80, 90}) {
        e->arch(arch);
        f();
    }
}

/* Returns the address of a temporary argument struct, for a launch that reads it during the call. */
template <class T> const T *arguments(const T &a) { return &a; }

} // namespace selftest

#endif
