/* Counts the work of a model's launches per step, for tools/roofline.py, which writes the roofline report.
 *
 *     roofline MODEL SAMPLE SMS SEQUENCESxTOKENSxCONTEXT...
 *
 * Launches with many blocks run SAMPLE blocks per dimension (counters.h); the device has SMS multiprocessors. Prints
 * JSON for each step: the sums of its launches by kernel, separately for each layer. */
#include "roofline.h"

#include <cstdio>
#include <map>
#include <string>

#include "counters.h"
#include "runtime_emu.h"
#include "simt_impl.h"

static const char *const names[simt::N_COUNTED] = {
    "mma_bf16", "mma_f16",  "mma_tf32", "mma_s8_k16", "mma_s8_k32", "mma_nvfp4", "mma_mxfp4",
    "mma_mx8",  "wgmma",    "ldmatrix", "shuffle",    "vote",       "sync_warp", "barrier",
    "bulk",     "cp_async", "lds",      "sts",        "ldg",        "stg",       "atomic"};

static simt::counter c;

void roofline_layer(int32_t layer) { c.part = layer; }

/* Kernels with results that determine the work of other kernels. */
static bool decides(const char *name)
{
    for (const char *part : {"route", "sort", "choice", "pick", "tile", "scan", "count"})
        if (std::string(name).find(part) != std::string::npos) return true;
    return false;
}
/* Attention of a decode step: its blocks have more keys, fewer or none, in a pattern that a sample could hit
 * unevenly. */
static bool decoding;
static bool runs_whole(const void *kernel)
{
    const std::string name = simt::source_of(kernel);
    return decides(name.c_str()) || (decoding && name.find("attention<") != std::string::npos);
}

static std::string kernel_name(const void *kernel)
{
    std::string name = simt::source_of(kernel);
    if (!name.compare(0, 5, "void ")) name.erase(0, 5);
    return name.substr(0, name.find(" at "));
}

static void print_kernels(const simt::counter &all, int part)
{
    std::map<std::string, std::pair<unsigned, simt::launch_counts>> sums;
    for (const simt::launch_counts &l : all.launches) {
        if (l.part != part) continue;
        auto &sum = sums.emplace(kernel_name(l.kernel), std::make_pair(0u, simt::launch_counts())).first->second;
        sum.first++;
        simt::add_counts(&sum.second, l);
    }
    const char *between = "";
    for (const auto &k : sums) {
        const simt::launch_counts &l = k.second.second;
        std::printf("%s\n  \"%s\": {\"launches\": %u, \"blocks\": %.0f, \"empty\": %.0f", between, k.first.c_str(),
                    k.second.first, l.blocks, l.empty);
        for (int i = 0; i < simt::N_COUNTED; i++)
            if (l.op[i] > 0) std::printf(", \"%s\": %.0f", names[i], l.op[i]);
        std::printf(
            ", \"wavefronts\": %.0f, \"least\": %.0f, \"read\": %.0f, \"written\": %.0f, \"touched_read\": %.0f, "
            "\"touched_written\": %.0f}",
            l.wavefronts, l.least, l.read, l.written, l.touched_read, l.touched_written);
        between = ",";
    }
}

/* Parts are layer numbers; -1 is the work before the first layer, and the last part is the work after the last
 * layer. */
static void print(const char *step, const simt::counter &all)
{
    std::map<int, int> parts;
    for (const simt::launch_counts &l : all.launches) parts[l.part]++;
    std::printf("{\"step\": \"%s\", \"parts\": {", step);
    const char *between = "";
    for (const auto &p : parts) {
        std::printf("%s\n \"%d\": {", between, p.first);
        print_kernels(all, p.first);
        std::printf("}");
        between = ",";
    }
    std::printf("}}\n");
    std::fflush(stdout);
}

int main(int n, char **arg)
{
    int32_t tokens = 1, seqs = 1, s, each, ctx;
    size_t cache = 0;
    for (int i = 4; i < n; i++) {
        if (std::sscanf(arg[i], "%dx%dx%d", &s, &each, &ctx) != 3 || s < 1 || each < 1 || ctx < each) n = 0;
        tokens = max(tokens, s * each);
        seqs = max(seqs, s);
        cache = max(cache, (size_t) s * (size_t) (ctx + 16));
    }
    if (n < 5) {
        std::fprintf(stderr, "usage: %s MODEL SAMPLE SMS SEQUENCESxTOKENSxCONTEXT...\n", arg[0]);
        return 1;
    }
    simt::options.eager = true; /* a launch runs when it is queued, while c.part is its layer */
    simt::options.untouched = true;
    simt::options.check = false;
    simt::watch.n_sm = std::atoi(arg[3]);
    simt::watch.memory = (size_t) 1 << 36; /* caches of every token in every group; little of it is touched */
    c.sample = (unsigned) std::atoi(arg[2]);
    c.whole = runs_whole;
    int rc = roofline_open(arg[1], tokens, seqs, cache);
    for (int i = 4; i < n && !rc; i++) {
        std::sscanf(arg[i], "%dx%dx%d", &s, &each, &ctx);
        decoding = each == 1 && (int64_t) s * ctx <= 1 << 18;
        simt::options.count = &c;
        simt::options.no_mma = true;
        c.launches.clear();
        rc = roofline_step(s, each, ctx);
        simt::options.count = nullptr;
        simt::options.no_mma = false;
        if (!rc) print(arg[i], c);
    }
    roofline_close();
    return rc;
}
