/* Checks of kernels, which run wherever there is a runtime (backend/cuda/runtime.h): on a device, and on the emulator of the
 * tests, whose programs tests/simt/test_kernels_*.cpp run each of them in every order of threads and copies.
 *
 * A check is a function that computes on the target and compares with a reference on the host. What differs ends it with
 * an exception, whose text is the first difference; nothing in here prints. Launches that must_run are waited for, so that
 * the host may read and write buffers between them.
 *
 * Memory: std::vector on the host; buffers of the target, which host and device both reach. Threads: a target is one
 * thread's, which sets `now`. */
#ifndef PI__SELFTEST_CHECK_H
#define PI__SELFTEST_CHECK_H

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "backend/cuda/runtime.h"
#include "selftest/random.h"

namespace selftest {

/* What only an emulator can do; NULL: this one does not. */
struct emulation {
    bool (*mode)(int i);         /* sets order i of threads, blocks and copies; false, and as before: there is none */
    void (*arch)(int arch);      /* the device that it is; 0: as before */
    unsigned long (*launched)(); /* kernels so far */
    long (*replayed)();          /* graphs so far */
    bool slow;                   /* it is itself emulated: fewer rounds */
    bool thorough;               /* as many rounds as on a device */
    /* what fn's launch number i moves in shared memory, as a multiple of what it would without conflicts of banks */
    double (*conflicts)(void (*fn)(void *), void *arg, size_t i);
};

/* Where checks run. */
struct target {
    pi__rt *rt;           /* the device's queue */
    pi__rt_info info;     /* of the device */
    const char *name;     /* as pi__device_create takes it */
    const emulation *emu; /* NULL: what a device can do */
    double worst;         /* largest error of the check so far, as a part of what is allowed */
    char about[160];      /* shapes that the check is at; "": it does not say */
};
inline thread_local target *now; /* of the check that runs */

struct entry {
    const char *name;
    void (*run)();
};
/* The checks of one file. */
struct family {
    const char *name;
    const char *what; /* that it covers */
    const entry *checks;
    int n;
};

/* ------------------------------------------------------------------------------------------------- ends of a check */

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

/* The target cannot do what the check is about. */
[[noreturn]] inline void skip_check(const char *why)
{
    skipped s;
    std::snprintf(s.text, sizeof s.text, "%s", why);
    throw s;
}

/* Says what is being checked: it is part of what a failure says. */
__attribute__((format(printf, 1, 2))) inline void about(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    std::vsnprintf(now->about, sizeof now->about, fmt, args);
    va_end(args);
}

/* An error of at most the bound; takes note of the worst. */
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
    fail_check("line %d: %.100s: of %zu bytes the first that differs is %zu: %08x, %08x", line, what, n, i, u, v);
}

inline void expect_at(bool is, const char *what, int line)
{
    if (!is) fail_check("line %d: not so: %.200s", line, what);
}

inline void expect_equal_at(long long a, long long b, const char *what, int line)
{
    if (a != b) fail_check("line %d: %.200s: %lld is not %lld", line, what, a, b);
}

#define expect_true(is) selftest::expect_at(is, #is, __LINE__)
#define expect_equal(a, b) selftest::expect_equal_at((long long) (a), (long long) (b), #a, __LINE__)
#define expect_bytes(a, b, n) selftest::expect_bytes_at(a, b, n, #a, __LINE__)

/* A launch that has to succeed, to its end. */
inline void must_run_at(int code, const char *what, int line)
{
    if (!code) code = pi__rt_wait(now->rt);
    if (code) fail_check("line %d: %.60s: %.250s", line, what, pi__rt_text(code));
}
#define must_run(call) selftest::must_run_at(call, #call, __LINE__)

/* ------------------------------------------------------------------------------------------------------- the target */

inline void *stream() { return pi__rt_stream(now->rt); }
inline bool slow() { return now->emu && now->emu->slow; }
inline bool counts_launches() { return now->emu && now->emu->launched; }
inline bool has_fp4() { return now->info.arch / 10 == 12; }
inline void need_fp4()
{
    if (!has_fp4()) skip_check("no tensor cores for FP4");
}

/* n values that host and device reach, filled with 0xFF: no number is untouched memory. On an emulator nothing lies behind
 * them; on a device what is written there is found when they are given back. */
template <class T> class buffer {
public:
    explicit buffer(size_t n) : n_(n), guard_(now->emu ? 0 : 1024), p_(nullptr)
    {
        void *p = nullptr;
        const size_t bytes = (n ? n : 1) * sizeof(T) + guard_;
        const int code = pi__rt_alloc_shared(now->rt, &p, bytes);
        if (code) fail_check("memory that host and device reach: %.200s", pi__rt_text(code));
        if (!p) fail_check("no memory for %zu values that host and device reach", n);
        p_ = static_cast<T *>(p);
        std::memset(p, 0xff, bytes);
    }
    buffer(const std::vector<T> &v) : buffer(v.size())
    {
        if (n_) std::memcpy(p_, v.data(), n_ * sizeof(T));
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer()
    {
        const unsigned char *behind = reinterpret_cast<const unsigned char *>(p_ + (n_ ? n_ : 1));
        for (size_t i = 0; i < guard_; i++)
            if (behind[i] != 0xff) now->worst = INFINITY; /* run_check fails for that */
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

/* f() in every order of threads and blocks, with late and with early copies; on a device as often as may show that one
 * of them matters. */
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

/* f() on that kind of device; skipped on another, which is none. */
template <class F> void on_arch(int arch, F f)
{
    const emulation *e = now->emu;
    if (!e || !e->arch) {
        if (now->info.arch != arch) skip_check("it is about another kind of device");
        return f();
    }
    struct back {
        const emulation *e;
        ~back() { e->arch(0); }
    } b{e};
    e->arch(arch);
    f();
}

/* f() as each kind of copies to shared memory has it: by 16 bytes (sm_80), in bulk (sm_90). A device has one of them. */
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

/* The struct of arguments that a launch takes by pointer, for as long as the call. */
template <class T> const T *arguments(const T &a) { return &a; }

} // namespace selftest

#endif
