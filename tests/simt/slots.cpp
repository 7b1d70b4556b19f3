/* Slots of a device (slots.h).
 *
 * The limits are those of the smallest device of each architecture, from the compute capabilities table of the CUDA
 * programming guide.
 *
 * Memory: none. Threads: `slots` is written while no launch runs; other names belong to the calling thread. */
#include "slots.h"

#include <algorithm>

#include "simt.h"

namespace simt {

enum { ALL_REGISTERS = 65536, MAX_REGISTERS = 255, REGISTER_UNIT = 256 /* per warp */, WARPS_UNIT = 4 };

/* Limits of a multiprocessor. The first 1,024 bytes of each block's shared memory belong to the system. */
struct limits {
    unsigned threads, blocks;
    size_t shared;
};

static limits limits_of(int arch)
{
    if (arch == 90) return {2048, 32, 228 << 10};
    return {1536, arch == 80 ? 16u : 24u, 100 << 10};
}

slot_model slots;
thread_local unsigned busy_multiprocessors;

unsigned slots_per_multiprocessor(unsigned threads, size_t shared, unsigned registers)
{
    const limits l = limits_of(options.arch);
    const unsigned warps = (threads + 31) / 32;
    if (!registers) registers = std::min((unsigned) MAX_REGISTERS, ALL_REGISTERS / (warps * 32));
    const unsigned per_warp = (registers * 32 + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
    const unsigned by_registers = ALL_REGISTERS / per_warp / WARPS_UNIT * WARPS_UNIT / warps;
    const size_t by_shared = l.shared / ((shared + 127) / 128 * 128 + 1024);
    const unsigned n = std::min({l.blocks, l.threads / (warps * 32), by_registers, (unsigned) by_shared});
    return std::max(n, 1u); /* run() refuses blocks that no multiprocessor can run */
}

unsigned slots_of_launch(unsigned threads, size_t shared)
{
    if (slots.multiprocessors <= busy_multiprocessors) return 0;
    return (slots.multiprocessors - busy_multiprocessors) * slots_per_multiprocessor(threads, shared, slots.registers);
}

} // namespace simt
