/* Places for blocks that wait for the other blocks of their launch (kernels/tail.cuh).
 *
 * A waiting block occupies its multiprocessor until all blocks of its launch have arrived. If waiting blocks occupied
 * all multiprocessors of a device, no other block could start, and all would wait forever. The engines of a process run
 * on a device at the same time, so they divide its multiprocessors:
 *
 *     132 multiprocessors    engine 1: 66 places    engine 2: 66 places    later engines: 1 place each
 *
 * An engine with p places has at most p - 1 waiting blocks that wait for a block without a place: if all p of its
 * last blocks run, all blocks of the launch have started. So waiting blocks leave a multiprocessor for every block that
 * has not started, also if a multiprocessor runs only one of these blocks. An engine with one place never waits: the
 * last block to arrive does the work of all.
 *
 * Memory: one counter per device. Threads: any. */
#ifndef PI__CUDA_PLACES_H
#define PI__CUDA_PLACES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes places of device number `device` (below PI__RT_MAX), which has n_sm multiprocessors. Returns their number, at
 * least 1. The number stays constant until they are returned: graphs that were captured with it stay valid. */
int32_t pi__places_take(int32_t device, int32_t n_sm);
/* Returns places of pi__places_take(). 0 = none. */
void pi__places_return(int32_t device, int32_t places);

#ifdef __cplusplus
}
#endif

#endif
