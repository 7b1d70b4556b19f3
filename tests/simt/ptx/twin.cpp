#include "twin.h"

#include <algorithm>
#include <ctime>

#include "simt_impl.h"

namespace simt {
namespace ptx {

twin *twin::now;

twin::twin(program *p, bool check_races) : kernels(p), races(check_races)
{
    now = this;
    options.replace = both;
}
twin::~twin()
{
    options.replace = nullptr;
    now = nullptr;
}
int twin::both(const kernel_call &c) { return now->run_both(c); }

/* Time of this process, whatever else the machine does. */
static double seconds() { return (double) std::clock() / CLOCKS_PER_SEC; }

/* Contents of all device memory. */
struct picture {
    struct part {
        char *p;
        std::vector<char> bytes;
    };
    std::vector<part> parts;
};
static picture take_picture()
{
    picture all;
    device_each([&](char *p, size_t n) { all.parts.push_back({p, std::vector<char>(p, p + n)}); });
    return all;
}
static void restore(const picture &from)
{
    for (const picture::part &a : from.parts) std::memcpy(a.p, a.bytes.data(), a.bytes.size());
}

static bool both_nan(uint32_t a, uint32_t b) { return (a & 0x7fffffff) > 0x7f800000 && (b & 0x7fffffff) > 0x7f800000; }

/* Offset of the first word that differs from memory; -1 = none. NaNs are equal: PTX does not define their bits. */
static long first_difference(const picture::part &a)
{
    const size_t n = a.bytes.size();
    if (!std::memcmp(a.p, a.bytes.data(), n)) return -1;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t u = 0, v = 0;
        std::memcpy(&u, a.bytes.data() + i, std::min<size_t>(4, n - i));
        std::memcpy(&v, a.p + i, std::min<size_t>(4, n - i));
        if (u != v && !both_nan(u, v)) return (long) i;
    }
    return -1;
}

static int compare(const picture &expected, const std::string &name)
{
    int i = 0;
    for (const picture::part &a : expected.parts) {
        const long at = first_difference(a);
        i++;
        if (at < 0) continue;
        uint32_t u = 0, v = 0;
        const size_t n = std::min<size_t>(4, a.bytes.size() - (size_t) at);
        std::memcpy(&u, a.bytes.data() + at, n);
        std::memcpy(&v, a.p + at, n);
        fail(nullptr, 0,
             "%s: kernels from C++ and from PTX differ in buffer %d of %zu bytes, at %ld: %08x, %08x (%g, %g)",
             name.c_str(), i, a.bytes.size(), at, u, v, (double) __uint_as_float(u), (double) __uint_as_float(v));
        return 1;
    }
    return 0;
}

int twin::run_both(const kernel_call &c)
{
    const std::string name = host_name(c.kernel);
    const decoded *d = kernels->find(name);
    const launch_kind kind = next_launch;
    const launch_chain chain = kind.chain ? *kind.chain : launch_chain();
    const config before = options;
    picture first, expected;
    ++(d ? counts.launches : counts.missing)[name];
    counts.recent.insert(name);
    if (d) first = take_picture();
    double begin = seconds();
    options.check = false; /* kernels from C++ show no accesses in this program */
    const int code = run(c.kernel, c.grid, c.block, c.shared, c.thread, c.arg);
    options.check = races;
    counts.host += seconds() - begin;
    if (code || !d) {
        options = before;
        return code;
    }
    expected = take_picture();
    restore(first);
    next_launch = kind;
    if (kernels->arch() < 90) next_launch.dependent = false; /* no griddepcontrol: the device runs them in order */
    if (kind.chain) *kind.chain = chain;
    /* kernels from PTX have as many waiting blocks as on a device */
    if (d->waits) options.resident = MOST_RESIDENT;
    n_launches--; /* checks count the two runs as one */
    begin = seconds();
    const int failed = kernels->launch(*d, c);
    counts.ptx += seconds() - begin;
    options = before;
    return failed ? failed : compare(expected, name);
}

} // namespace ptx
} // namespace simt
