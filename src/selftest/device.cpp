/* The self-test of a CUDA device, or of the emulator. Reports its description, the backend's choices for it, the
 * results of the kernel checks, and its speed. The report fits on one page, so that users can paste it.
 *
 * Memory: the runtime's queue, a backend while its choices are read, and the buffers of checks. Threads: the caller's,
 * plus one for checks of two devices. run_check catches the exceptions of each check; none leaves this file. */
#include "selftest/checks.h"
#include "selftest/measure.h"

#include <chrono>

extern "C" {
#include "base/error.h"
}

namespace selftest {
namespace {

const family *const families[] = {
#define PI__SELFTEST_FAMILY(name) &checks_of_##name,
    PI__SELFTEST_FAMILIES(PI__SELFTEST_FAMILY)
#undef PI__SELFTEST_FAMILY
};
const int N_FAMILIES = sizeof families / sizeof *families;

double seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void describe(const pi__selftest &to, const target &t, const pi__rt_facts &f)
{
    const double gib = (double) t.info.memory / (1 << 30);
    bool published;
    const double peak = memory_peak(t, f, &published);
    pi__selftest_line(&to, "pagedinfer %s self-test of %s: %s", pi_version(), t.name, t.info.name);
    pi__selftest_line(&to,
                      "  compute capability %d.%d, %d multiprocessors, %.1f GiB%s%s, L2 %.1f MiB, "
                      "%d bytes of shared memory per block",
                      t.info.arch / 10, t.info.arch % 10, (int) t.info.n_sm, gib,
                      t.info.integrated ? " shared with the host" : "", f.ecc ? " with ECC" : "", f.l2 / 1024.0,
                      (int) f.block_shared);
    if (!f.driver) return;
    pi__selftest_line(
        &to, "  driver for CUDA %d.%d, built with %d.%d; clocks up to %d MHz, memory %d MHz x %d bits, %.0f GB/s (%s)",
        (int) (f.driver / 1000), (int) (f.driver % 1000 / 10), (int) (f.runtime / 1000), (int) (f.runtime % 1000 / 10),
        (int) f.clock, (int) f.memory_clock, (int) f.bus, peak, published ? "published" : "by clock and width");
}

void log_line(void *ud, int, const char *text)
{
    pi__selftest_line(static_cast<const pi__selftest *>(ud), "  %s", text);
}

/* Opens a backend and reports its log lines: chosen kernels, and disabled features with the reasons. */
int tell_choices(pi__selftest &to, const char *name, pi_error *err)
{
    pi__log log = {};
    pi__backend *be;
    log.fn = log_line, log.ud = &to, log.level = PI_LOG_INFO;
    pi__selftest_line(&to, "chosen:");
    const int rc = pi__device_create(&be, name, false, &to.params, &log, err);
    if (!rc) be->dev->destroy(be);
    return rc;
}

struct tally {
    int ok, failed, skipped;
    double worst;
};

/* Runs one check. A failure is reported immediately. `why` receives the reason of the first skip. */
void run_one(pi__selftest &to, target &t, const family &f, const entry &c, tally &all, char *why, size_t size)
{
    char text[400];
    const outcome o = run_check(t, c, text, sizeof text);
    to.n_done += o != CHECK_SKIPPED;
    to.n_failed += o == CHECK_FAILED;
    all.ok += o == CHECK_OK, all.failed += o == CHECK_FAILED, all.skipped += o == CHECK_SKIPPED;
    if (o == CHECK_OK && t.worst > all.worst) all.worst = t.worst;
    if (o == CHECK_FAILED) pi__selftest_line(&to, "  FAILED %s.%s: %s", f.name, c.name, text);
    if (o == CHECK_SKIPPED && !*why) std::snprintf(why, size, "; %s not: %.120s", c.name, text);
}

/* Runs the selected checks of a family and reports the result. Returns false if the device has failed: then every later
 * call on it returns an error. */
bool run_family(pi__selftest &to, target &t, const family &f)
{
    tally all = {};
    char why[200] = "";
    const double begin = seconds();
    bool alive = true;
    for (int i = 0; i < f.n && alive; i++) {
        if (!pi__selftest_wants(&to, f.name, f.checks[i].name)) continue;
        run_one(to, t, f, f.checks[i], all, why, sizeof why);
        alive = !pi__rt_wait(t.rt);
    }
    char worst[60] = "";
    if (all.worst > 0) std::snprintf(worst, sizeof worst, ", max error %.0f %% of the limit", 100 * all.worst);
    pi__selftest_line(&to, "  %-14s %-6s %d of %d%s, %.1f s (%s%s)", f.name, all.failed ? "FAILED" : "ok", all.ok,
                      all.ok + all.failed, worst, seconds() - begin, f.what, why);
    if (!alive) pi__selftest_line(&to, "  the device failed, later checks are skipped: %s",
                                  pi__rt_text(pi__rt_wait(t.rt)));
    return alive;
}

void run_all(pi__selftest &to, target &t)
{
    pi__selftest_line(&to, "checks:");
    for (const family *f : families)
        if (pi__selftest_wants(&to, f->name, nullptr) && !run_family(to, t, *f)) return;
    pi__rt_facts facts;
    if (!pi__selftest_wants(&to, "rates", nullptr) || pi__rt_tell_facts(t.rt, &facts)) return;
    pi__selftest_line(&to, "rates:");
    measure(t, facts, to);
}

} // namespace
} // namespace selftest

const char *pi__selftest_device_family(int i)
{
    using namespace selftest;
    return i < N_FAMILIES ? families[i]->name : i == N_FAMILIES ? "rates" : nullptr;
}

int pi__selftest_device(pi__selftest *to, const char *name, int32_t index, pi_error *err)
{
    static const selftest::emulation emulated = {nullptr, nullptr, nullptr, nullptr, false, false, nullptr};
    selftest::target t = {};
    pi__rt_facts facts;
    const char *lazy;
    t.name = name;
    t.emu = std::strcmp(pi__rt_kind, "cuda") ? &emulated : nullptr;
    int code = pi__rt_open(&t.rt, index, &t.info);
    if (!code) code = pi__rt_tell_facts(t.rt, &facts);
    if (!code) code = pi__rt_load_kernels(t.rt, &lazy);
    int rc = code ? pi__fail(err, PI_EDEVICE, "%s cannot be used: %.300s", name, pi__rt_text(code)) : (int) PI_OK;
    if (!rc) selftest::describe(*to, t, facts);
    if (!rc) rc = selftest::tell_choices(*to, name, err);
    if (!rc) selftest::run_all(*to, t);
    pi__rt_close(t.rt);
    return rc;
}
