/* What the system knows of processors and priorities, for the threads of the pool. No memory, no state; any thread. */
#ifndef PI__PLACES_H
#define PI__PLACES_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define PI__NUMA_ROOT "/sys/devices/system/node"
enum { PI__MAX_NODES = 64 };

/* The processors of each NUMA node, of those that this process may use; nodes without any are left out. root: the folder
 * that describes nodes. Returns how many nodes, at most max; 0: the system does not say. */
int32_t pi__numa_nodes(const char *root, cpu_set_t *node, int32_t max);
/* The calling thread's priority: -1 low (nice 10), 1 medium (nice -5), 2 high (nice -10), 3 realtime (round robin, the
 * lowest priority of these). false: the system refused. */
bool pi__prio_set(int prio);
/* Whether the system lets threads of this process have it; leaves the calling thread as it was. */
bool pi__prio_allowed(int prio);

#endif
