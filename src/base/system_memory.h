/* Host memory that this process can still allocate, as the system and the process's cgroups report it.
 *
 * Pages of cache pools are committed at their first write, so the system's numbers do not contain pools that nothing
 * has written yet. A reservation subtracts such memory from the numbers that later engines of the process see. All
 * functions are thread safe, except that a reservation belongs to one thread at a time. No memory is allocated. */
#ifndef PI__SYSTEM_MEMORY_H
#define PI__SYSTEM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pi__system_memory {
    uint64_t available; /* bytes that can be written without swapping or the OOM killer; UINT64_MAX = unknown */
    uint64_t swap;      /* bytes of swap that can be used in addition */
    uint64_t mappable;  /* bytes that can be mapped, written or not; UINT64_MAX = no limit */
} pi__system_memory;

/* Reads the memory state below `proc` (normally /proc) and `cgroup` (/sys/fs/cgroup): meminfo, and the memory limits
 * of the cgroup of the process and of all its ancestors, versions 1 and 2. Files that are missing or malformed set no
 * limit. */
void pi__system_memory_read(const char *proc, const char *cgroup, pi__system_memory *out);

/* Reads the state of this process, including its resource limits, without the reserved bytes. */
void pi__system_memory_now(pi__system_memory *out);

/* Returns the smaller of available and mappable bytes of pi__system_memory_now; SIZE_MAX = unknown. */
size_t pi__available_memory(void);

/* Memory of this process that is mapped and will be written later. Zeroed = none. */
typedef struct pi__reservation {
    uint64_t bytes; /* this reservation's part of the process's reserved bytes */
} pi__reservation;

/* Changes the reservation to this number of bytes. */
void pi__reserve_memory(pi__reservation *r, uint64_t bytes);

/* Returns the bytes of all reservations of the process. */
uint64_t pi__reserved_memory(void);

/* Serialize reading the free memory and reserving a part of it, among the threads of this process. */
void pi__reserve_begin(void);
void pi__reserve_end(void);

#endif
