/* Runs the kernel checks (src/selftest) with kernels from nvcc's PTX, each launch next to the one from the host
 * compiler: ptx_checks DIR [FAMILY | FAMILY.CHECK].. DIR has the PTX files. With `faults` instead of names of checks,
 * runs the mistakes of faults.cu; with `read`, nothing. After `races`, accesses of kernels from PTX are checked, too.
 * `ptx_checks list` lists the checks. The line `kernels NAME..` follows a check that passed, with the kernels that it
 * launched; a check with a kernel that the PTX files lack has no such line. The caller is tools/kernel_ptx.py. */
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <dirent.h>
#include <fstream>
#include <sstream>

#include "device_math.h"
#include "faults.h"
#include "runtime_emu.h"
#include "selftest/checks.h"
#include "twin.h"

/* Its existence enables the checks of shadow.cpp, for accesses that kernels from PTX report. */
extern "C" void __tsan_init() {}

namespace {

using namespace simt;

const selftest::family *const families[] = {
#define FAMILY(name) &selftest::checks_of_##name,
    PI__SELFTEST_FAMILIES(FAMILY)
#undef FAMILY
};

double seconds() { return (double) std::clock() / CLOCKS_PER_SEC; }

void read_modules(ptx::program *p, const std::string &folder)
{
    std::vector<std::string> files;
    DIR *d = opendir(folder.c_str());
    for (const dirent *e; d && (e = readdir(d));) {
        const std::string name = e->d_name;
        if (name.size() > 4 && name.substr(name.size() - 4) == ".ptx") files.push_back(name);
    }
    if (d) closedir(d);
    if (files.empty()) throw std::runtime_error("no PTX files in " + folder);
    std::sort(files.begin(), files.end());
    for (const std::string &f : files) {
        std::ifstream in(folder + "/" + f);
        std::stringstream text;
        text << in.rdbuf();
        p->add(f, text.str());
    }
}

/* Words: a family or a check; with a minus sign, one to leave out. No word without a minus sign = all. */
bool wanted(const std::string &family, const char *check, int n, char **words)
{
    bool all = true, named = false;
    for (int i = 0; i < n; i++) {
        const std::string word = words[i] + (words[i][0] == '-');
        const bool is = family == word || family + "." + check == word;
        if (words[i][0] == '-' && is) return false;
        if (words[i][0] != '-') all = false, named |= is;
    }
    return all || named;
}

/* Orders of threads: the first and the last of run_checks.cpp. */
bool set_mode(int i)
{
    static config before;
    if (i == 0) before = options;
    if (i != 0) options = before;
    if (i < 0 || i > 0) return false;
    options.threads = order::random;
    return true;
}
unsigned long launched() { return n_launches; }
long replayed() { return watch.n_replayed; }

/* For sm_90a, DIR may have only the kernels with wgmma. */
bool is_complete(const ptx::twin_counts &counts) { return counts.missing.empty() || options.arch == 90; }

/* Returns 1 if the check fails. */
int run_one(const selftest::family &f, const selftest::entry &c, ptx::twin_counts *counts)
{
    const selftest::emulation emu = {set_mode, nullptr, launched, replayed, true, false, nullptr};
    selftest::target t = {};
    char text[400] = "";
    const char *lazy;
    const double begin = seconds();
    counts->recent.clear();
    t.name = "emu";
    t.emu = &emu;
    if (pi__rt_open(&t.rt, 0, &t.info) || pi__rt_load_kernels(t.rt, &lazy)) return 1;
    const selftest::outcome o = selftest::run_check(t, c, text, sizeof text);
    pi__rt_close(t.rt);
    std::printf("%-8s %s.%s, %.1f s%s%s\n",
                o == selftest::CHECK_OK        ? "ok"
                : o == selftest::CHECK_SKIPPED ? "skipped"
                                               : "FAILED",
                f.name, c.name, seconds() - begin, *text ? ": " : "", text);
    if (o == selftest::CHECK_OK && is_complete(*counts)) {
        std::printf("kernels");
        for (const std::string &k : counts->recent) std::printf(" %s", k.c_str());
        std::printf("\n");
    }
    std::fflush(stdout);
    return o == selftest::CHECK_FAILED;
}

int run_all(const char *folder, int n, char **words)
{
    ptx::program p;
    int failed = 0, done = 0;
    const bool races = n && !std::strcmp(words[0], "races");
    const double begin = seconds();
    read_modules(&p, folder);
    const std::vector<std::string> unknown = p.unknown();
    std::printf("%.1f s to read and decode\n", seconds() - begin);
    for (const std::string &u : unknown)
        std::printf("FAILED   an instruction that the emulator does not have: %s\n", u.c_str());
    if (!unknown.empty()) return 1;
    if (n == 1 && !std::strcmp(words[0], "faults")) return ptx::run_faults(&p);
    if (n == 1 && !std::strcmp(words[0], "read")) return 0;
    ptx::use_math(&p);
    options.arch = p.arch();
    ptx::twin both(&p, races);
    if (races) n--, words++;
    for (const selftest::family *f : families) {
        for (int i = 0; i < f->n; i++) {
            if (!wanted(f->name, f->checks[i].name, n, words)) continue;
            failed += run_one(*f, f->checks[i], &both.counts);
            done++;
        }
    }
    const bool complete = is_complete(both.counts);
    long launches = 0;
    for (const auto &k : both.counts.launches) launches += k.second;
    for (const auto &k : both.counts.missing)
        std::printf("%s not in the PTX: %s, %ld launches\n", complete ? "        " : "FAILED  ", k.first.c_str(),
                    k.second);
    std::printf("%d of %d checks passed; %zu kernels from PTX, %ld launches with the same bytes; processor time %.0f s "
                "(C++ %.0f s, PTX %.0f s)\n",
                done - failed, done, both.counts.launches.size(), launches, seconds() - begin, both.counts.host,
                both.counts.ptx);
    ptx::use_math(nullptr);
    return failed || !done || !complete;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "usage: ptx_checks list | DIR [FAMILY | FAMILY.CHECK | faults | races | read]..\n");
        return 2;
    }
    if (!std::strcmp(argv[1], "list")) {
        for (const selftest::family *f : families)
            for (int i = 0; i < f->n; i++) std::printf("%s.%s\n", f->name, f->checks[i].name);
        return 0;
    }
    try {
        return run_all(argv[1], argc - 2, argv + 2);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
