/* The self-test of a CUDA device, or of the emulator. Reports its description, the backend's choices for it, the
 * results of the kernel checks, and its speed. The report fits on one page, so that users can paste it.
 *
 * Memory: the runtime's queue, a backend while its choices are read, and the buffers of checks. Threads: the caller's,
 * plus one for checks of two devices. run_check catches the exceptions of each check; none leaves this file. */
#include "selftest/checks.h"
#include "selftest/measure.h"
#include "selftest/stress.h"

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

/* Device and driver for the JSON object. Unknown facts are left out. */
void describe_json(pi__selftest &to, const target &t, const pi__rt_facts &f, double peak, bool published)
{
    char capability[16];
    const auto known = [&](const char *key, double value) {
        if (value > 0) pi__selftest_number(&to, key, value);
    };
    std::snprintf(capability, sizeof capability, "%d.%d", t.info.arch / 10, t.info.arch % 10);
    pi__selftest_open(&to, "device", '{');
    pi__selftest_text(&to, "name", t.name);
    pi__selftest_text(&to, "model", t.info.name);
    pi__selftest_text(&to, "compute_capability", capability);
    known("multiprocessors", t.info.n_sm);
    known("memory_bytes", (double) t.info.memory);
    pi__selftest_bool(&to, "integrated", t.info.integrated);
    pi__selftest_bool(&to, "ecc", f.ecc);
    known("l2_kib", f.l2);
    known("block_shared_bytes", f.block_shared);
    known("clock_mhz", f.clock);
    known("memory_clock_mhz", f.memory_clock);
    known("memory_bus_bits", f.bus);
    known("memory_gbs", peak);
    if (peak > 0) pi__selftest_bool(&to, "memory_gbs_published", published);
    pi__selftest_close(&to, '}');
    if (!f.driver) return;
    pi__selftest_open(&to, "driver", '{');
    pi__selftest_number(&to, "cuda", f.driver / 1000 + f.driver % 1000 / 10 * 0.1);
    pi__selftest_number(&to, "built_with", f.runtime / 1000 + f.runtime % 1000 / 10 * 0.1);
    pi__selftest_close(&to, '}');
}

void describe(pi__selftest &to, const target &t, const pi__rt_facts &f)
{
    const double gib = (double) t.info.memory / (1 << 30);
    bool published;
    const double peak = memory_peak(t, f, &published);
    describe_json(to, t, f, peak, published);
    std::snprintf(to.summary, sizeof to.summary, "%.120s, %.40s, CUDA %d.%d", t.info.name, pi_version(),
                  (int) (f.driver / 1000), (int) (f.driver % 1000 / 10));
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

void log_line(void *ud, int level, const char *text)
{
    pi__selftest *to = static_cast<pi__selftest *>(ud);
    pi__selftest_line(to, "  %s", text);
    pi__selftest_open(to, nullptr, '{');
    pi__selftest_bool(to, "enabled", level > PI_LOG_WARN);
    pi__selftest_text(to, "text", text);
    pi__selftest_close(to, '}');
}

/* Opens a backend and reports its log lines: chosen kernels, and disabled features with the reasons. */
int tell_choices(pi__selftest &to, const char *name, pi_error *err)
{
    pi__log log = {};
    pi__backend *be;
    log.fn = log_line, log.ud = &to, log.level = PI_LOG_INFO;
    pi__selftest_line(&to, "chosen:");
    pi__selftest_open(&to, "features", '[');
    const int rc = pi__device_create(&be, name, false, &to.params, &log, err);
    if (!rc) be->dev->destroy(be);
    pi__selftest_close(&to, ']');
    return rc;
}

struct tally {
    int ok, failed, skipped;
    double worst;
};

/* Runs one check. A failure is reported immediately. `why` receives the reason of the first skip. */
void run_one(pi__selftest &to, target &t, const family &f, const entry &c, tally &all, char *why, size_t size)
{
    static const char *const names[] = {"ok", "failed", "skipped"}; /* by outcome */
    char text[400];
    const double begin = seconds();
    const outcome o = run_check(t, c, text, sizeof text);
    pi__selftest_check(&to, f.name, c.name, names[o], seconds() - begin, t.worst, text);
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
    pi__selftest_open(&to, "checks", '[');
    bool alive = true;
    for (const family *f : families)
        if (alive && pi__selftest_wants(&to, f->name, nullptr)) alive = run_family(to, t, *f);
    pi__selftest_close(&to, ']');
    pi__rt_facts facts;
    if (!alive || !pi__selftest_wants(&to, "rates", nullptr) || pi__rt_tell_facts(t.rt, &facts)) return;
    pi__selftest_line(&to, "rates:");
    pi__selftest_open(&to, "rates", '[');
    measure(t, facts, to);
    pi__selftest_close(&to, ']');
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
    if (!rc && to->stress) selftest::run_stress(*to, t, selftest::families, selftest::N_FAMILIES);
    else if (!rc) selftest::run_all(*to, t);
    pi__rt_close(t.rt);
    return rc;
}
