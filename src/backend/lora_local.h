/* Runs of adapters as one of several backends has them: an adapter lies in memory of alloc, which each of them has somewhere
 * else (split.c, stages.c, tensor.c).
 *
 * Memory: at init. Threads: those of the backend that it is for. */
#ifndef PI__LORA_LOCAL_H
#define PI__LORA_LOCAL_H

#include "backend/device.h"

typedef struct pi__lora_local {
    pi__lora_run *run;   /* [most] */
    int32_t most;        /* runs of a step at most */
    pi__lora_rows rows;  /* what was made last */
} pi__lora_local;

/* Of steps within these limits; again where they change. PI_ENOMEM. */
int pi__lora_local_init(pi__lora_local *l, const pi__limits *lim, pi_error *err);
void pi__lora_local_destroy(pi__lora_local *l);
/* The same list with pairs where at says; NULL stays. Valid until the next call. */
const pi__lora_rows *pi__lora_local_of(pi__lora_local *l, const pi__lora_rows *rows, const void *(*at)(const void *ud, const void *p),
                                       const void *ud);

#endif
