/* Launches the kernels of faults.cu twice. Only the kernel without a mistake may leave the same bytes. */
#include "faults.h"

#include <cstdio>

#include "twin.h"

#include "faults.cu"

namespace simt {
namespace ptx {

int run_faults(program *p)
{
    static const struct {
        const char *name;
        void (*kernel)(const uint32_t *, float *);
        bool right;
    } all[] = {{"no mistake", fault_none, true},
               {"a wrong constraint", fault_constraint, false},
               {"swapped operands", fault_swapped, false},
               {"a missing clobber", fault_clobber, false}};
    uint32_t *x = static_cast<uint32_t *>(device_alloc(192 * sizeof *x));
    float *y = static_cast<float *>(device_alloc(128 * sizeof *y));
    int failed = 0;
    twin both(p);
    for (uint32_t i = 0; i < 192; i++) x[i] = 0x3c003800 + i * 0x10003; /* halves near 1 */
    for (const auto &f : all) {
        const bool same = !launch(f.kernel, dim3(1), dim3(32), 128, x, y);
        const bool ran = both.counts.missing.empty();
        failed += same != f.right || !ran;
        std::printf("%-8s %s: %s\n", same == f.right && ran ? "ok" : "FAILED", f.name,
                    !ran   ? "it is not in the PTX"
                    : same ? "the same bytes"
                           : last_error());
    }
    device_free(x);
    device_free(y);
    return failed;
}

} // namespace ptx
} // namespace simt
