/* Queries about processors and priorities of the system, for the pool's threads. No memory, no state. Threads: any. */
#ifndef PI__PLACES_H
#define PI__PLACES_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define PI__NUMA_ROOT "/sys/devices/system/node"
enum { PI__MAX_NODES = 64 };

/* Sets node[i] to the CPUs of the i-th NUMA node that this process may use; skips nodes without usable CPUs. root:
 * directory with node0, node1, ... (PI__NUMA_ROOT; tests use another). Returns the number of nodes, at most max; 0 =
 * unknown. */
int32_t pi__numa_nodes(const char *root, cpu_set_t *node, int32_t max);
/* Sets the calling thread's priority: -1 low (nice 10), 0 normal (nice 0), 1 medium (nice -5), 2 high (nice -10), 3
 * realtime (lowest round-robin priority). Returns false if the system refuses. */
bool pi__prio_set(int prio);
/* Returns true if the system allows this priority to threads of this process. Tests it on the calling thread and
 * restores that thread's priority. */
bool pi__prio_allowed(int prio);

#endif
