/* Copies of adapter runs for one of several backends. Adapters lie in memory of alloc, which has another address on
 * each backend, so the copies have translated pointers (split.c, stages.c, tensor.c).
 *
 * Memory: allocated by init. Threads: as for its backend. */
#ifndef PI__LORA_LOCAL_H
#define PI__LORA_LOCAL_H

#include "backend/device.h"

typedef struct pi__lora_local {
    pi__lora_run *run;   /* [most] runs of the last translated list */
    int32_t most;        /* max runs of a step */
    pi__lora_rows rows;  /* the last translated list; rows.run = run */
} pi__lora_local;

/* Allocates the runs for steps within these limits; may be called again with other limits. Returns PI_OK or
 * PI_ENOMEM. */
int pi__lora_local_init(pi__lora_local *l, const pi__limits *lim, pi_error *err);
void pi__lora_local_destroy(pi__lora_local *l);
/* Returns a copy of rows in which each run's `pair` is at(ud, pair); NULL for NULL rows. Valid until the next call. */
const pi__lora_rows *pi__lora_local_of(pi__lora_local *l, const pi__lora_rows *rows,
                                       const void *(*at)(const void *ud, const void *p), const void *ud);

#endif
