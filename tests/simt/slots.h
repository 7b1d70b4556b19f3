/* Slots: the blocks of a launch that a device runs at the same time.
 *
 * A multiprocessor runs blocks as long as its threads, block count, shared memory and registers suffice. A launch has
 * this many slots:
 *
 *     (multiprocessors - busy_multiprocessors) * slots_per_multiprocessor
 *
 * A launch with more waiting blocks than slots stops with an error: on a device it would never end.
 *
 * The other queues of a device are in the worst case: each of their waiting blocks occupies a multiprocessor, except
 * one per queue. (If all waiting blocks of a launch run, all its blocks have begun, and it ends.) */
#ifndef SLOTS_H
#define SLOTS_H

#include <cstddef>

namespace simt {

/* The modelled device, for the following launches. Replaces config::resident and config::exact_places. */
struct slot_model {
    unsigned multiprocessors = 0; /* 0 = no model */
    /* registers per thread of each kernel; 0 = as many as a block of its size can have, so the fewest slots */
    unsigned registers = 0;
};
extern slot_model slots;

/* Multiprocessors where blocks of other queues wait during the calling thread's launches. The runtime sets it. */
extern thread_local unsigned busy_multiprocessors;

/* Max blocks of a kind that one multiprocessor of the emulated architecture runs at the same time, at least 1.
 * registers: as in slot_model. */
unsigned slots_per_multiprocessor(unsigned threads, size_t shared, unsigned registers);
/* Slots of a launch; 0 = none of its blocks can begin. */
unsigned slots_of_launch(unsigned threads, size_t shared);

} // namespace simt

#endif
