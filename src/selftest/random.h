/* Pseudo-random numbers for checks and tests in C++: the same on every machine. */
#ifndef PI__SELFTEST_RANDOM_H
#define PI__SELFTEST_RANDOM_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace selftest {

/* Added to the seeds of new generators of this thread: the stress test repeats checks with other values. */
inline thread_local uint64_t random_salt = 0;

struct random {
    uint64_t state;
    explicit random(uint64_t seed) : state((seed + random_salt) * 2862933555777941757u + 3037000493u) {}
    uint32_t bits()
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (uint32_t) (state >> 33) ^ (uint32_t) (state >> 61);
    }
    unsigned below(unsigned n) { return bits() % n; }
    double uniform() { return (bits() & 0x7fffffff) / 2147483648.0; }
    /* approximately normally distributed: mean 0, variance 1, within [-3, 3] */
    float normal() { return (float) (2 * (uniform() + uniform() + uniform()) - 3); }
    std::vector<float> normals(size_t n)
    {
        std::vector<float> v(n);
        for (float &x : v) x = normal();
        return v;
    }
};

} // namespace selftest

#endif
