/* Two backends as one (split.c). */
#ifndef PI__SPLIT_H
#define PI__SPLIT_H

#include "backend/device.h"

/* Takes both over; on failure they stay the caller's. Its alloc gives memory that lies on both backends; matrices, caches
 * and states are allocated and loaded by one of them, pi__backend_at. */
int pi__split_create(pi__backend **out, pi__backend *device, pi__backend *cpu, pi_error *err);

#endif
