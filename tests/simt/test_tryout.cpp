/* Cost of the start-up self-test of a device: less than 200 ms on any card, without the loading of its kernels. The
 * emulator counts the work, multiplied by upper bounds of its time; docs/CUDA.md has the numbers. */
#include "simt_test.h"

#include "counters.h"
#include "runtime_emu.h"

extern "C" {
#include "backend/cuda/cuda.h"
#include "backend/device.h"
}

/* Upper bounds for every supported card: a runtime call, including a launch or copy and the wait for it; the slowest
 * counted warp instruction (memory, tensor cores, barriers, collectives), without any overlap; a byte between device
 * and pageable host memory. */
static const double CALL_US = 100, INSTRUCTION_US = 1, BYTE_US = 1e-3;
/* The host needs 17 ms of a core, for packing and for reference results. */
static const double HOST_US = 50000;

/* Sum over the launches of the instructions per warp: launches are small, and their blocks run in parallel. */
static double instructions(const simt::counter &c)
{
    double sum = 0;
    for (const simt::launch_counts &l : c.launches) {
        const double warps = l.blocks * ((l.block.x * l.block.y * l.block.z + 31) / 32);
        for (double n : l.op) sum += n / warps;
    }
    return sum;
}

static void test_bound(void **)
{
    pi__cuda_params p = {};
    pi__backend *be;
    pi_error err;
    simt::counter c;
    p.fp4 = PI__FP4_W4A4;
    simt::watch.thorough = true;
    simt::options.count = &c;
    simt::watch.n_calls = simt::watch.n_launched = simt::watch.n_up = simt::watch.n_down = 0;
    if (pi__cuda_create(&be, 0, &p, nullptr, &err)) fail_msg("%s", err.msg);
    simt::options.count = nullptr;
    be->dev->destroy(be);
    const long calls = simt::watch.n_calls, bytes = simt::watch.n_up + simt::watch.n_down;
    const double us = (double) calls * CALL_US + (double) bytes * BYTE_US + instructions(c) * INSTRUCTION_US + HOST_US;
    if (calls < 100 || c.launches.size() < 40 || us > 150000)
        fail_msg("%ld calls, %zu launches, %ld bytes, %.0f instructions of a warp: %.0f us", calls, c.launches.size(),
                 bytes, instructions(c), us);
    simt::watch.thorough = false;
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_bound)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
