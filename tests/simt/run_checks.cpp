/* Runs the kernel checks (src/selftest/check_FAMILY.cpp) on the emulator. Each check is a test, run in several orders
 * of threads and of copies. The programs test_kernels_FAMILY are this file with one family each. In instrumented
 * kernels, races and out-of-bounds accesses are errors, too. */
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include "counters.h"
#include "runtime_emu.h"
#include "selftest/checks.h"
#include "simt.h"

static simt::config before;

/* Selects modes of simt::use_mode in this order. The first two have threads in order and in random order, late and
 * early copies, one block and several at a time, and the search for races between blocks. The others follow with
 * PAGEDINFER_LONG=1. */
static bool set_mode(int i)
{
    static const int modes[simt::N_MODES] = {0, 5, 4, 1, 2, 3};
    static const int n_modes = getenv("PAGEDINFER_LONG") ? simt::N_MODES : 2;
    if (i == 0) before = simt::options;
    if (i < 0 || i >= n_modes) {
        simt::options = before;
        return false;
    }
    simt::use_mode(modes[i]);
    return true;
}

static void set_arch(int arch) { simt::options.arch = before.arch = arch ? arch : 120; }
static unsigned long launched() { return simt::n_launches; }
static long replayed() { return simt::watch.n_replayed; }

/* Sanitizers access memory between the loads of an instruction, so that counts would be wrong. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static double (*const conflicts)(void (*fn)(void *), void *arg, size_t i) = nullptr;
#else
static double conflicts(void (*fn)(void *), void *arg, size_t i)
{
    simt::counter c;
    simt::options.count = &c;
    fn(arg);
    simt::options.count = nullptr;
    return i < c.launches.size() ? c.launches[i].wavefronts / c.launches[i].least : 0;
}
#endif

static void run(void **state)
{
    const selftest::emulation emu = {set_mode, set_arch, launched, replayed, getenv("PI_TEST_EMULATED") != nullptr,
                                     getenv("PAGEDINFER_LONG") != nullptr, conflicts};
    selftest::target t = {};
    char text[400];
    const char *lazy;
    t.name = "emu";
    t.emu = &emu;
    assert_int_equal(pi__rt_open(&t.rt, 0, &t.info), 0);
    assert_int_equal(pi__rt_load_kernels(t.rt, &lazy), 0);
    const long live = simt::watch.live;
    const selftest::outcome o = selftest::run_check(t, *static_cast<const selftest::entry *>(*state), text,
                                                    sizeof text);
    const bool leaks = simt::watch.live != live;
    pi__rt_close(t.rt);
    if (o != selftest::CHECK_OK) fail_msg("%s", text);
    assert_false(leaks);
}

int main()
{
    const selftest::family &f = selftest::FAMILY;
    std::vector<CMUnitTest> tests;
    for (int i = 0; i < f.n; i++)
        tests.push_back({f.checks[i].name, run, nullptr, nullptr, const_cast<selftest::entry *>(&f.checks[i])});
    return _cmocka_run_group_tests(f.name, tests.data(), tests.size(), nullptr, nullptr);
}
