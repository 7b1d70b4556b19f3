/* A device and the CPU as one backend (split.c). */
#ifndef PI__SPLIT_H
#define PI__SPLIT_H

#include "backend/device.h"

/* Creates a backend from a device and the CPU, and takes ownership of both; on failure the caller keeps them. alloc
 * returns memory that exists on both. Each matrix, cache and state is on only one of them, which allocates and loads it
 * (pi__backend_at). */
int pi__split_create(pi__backend **out, pi__backend *device, pi__backend *cpu, pi_error *err);

#endif
