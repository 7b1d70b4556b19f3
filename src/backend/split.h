/* A device and the CPU as one backend (split.c). */
#ifndef PI__SPLIT_H
#define PI__SPLIT_H

#include "backend/device.h"

/* Takes ownership of both backends; on failure the caller keeps them. The result's alloc returns memory that
 * exists on both. Matrices, caches and states are allocated and loaded on one of them: see pi__backend_at. */
int pi__split_create(pi__backend **out, pi__backend *device, pi__backend *cpu, pi_error *err);

#endif
