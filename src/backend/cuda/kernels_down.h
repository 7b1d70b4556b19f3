/* Down of routed experts and of the shared expert in one launch (kernels/moe_down_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_DOWN_H
#define PI__CUDA_KERNELS_DOWN_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_DOWN_ROWS = 32 /* max rows */ };

typedef struct pi__k_down {
    pi__k_routes routes;   /* at most PI__K_DOWN_ROWS rows */
    pi__k_experts experts; /* as for pi__k_w16_down; their input is `mid` */
    const void *mid;       /* packed input of down, by column (pi__k_w16_mid) */
} pi__k_down;
/* Queues pi__k_w16_down and pi__k_w16_linear (one matrix, equal number of rows) as one launch. t: epilogue, or
 * NULL. */
int pi__k_w16_down_shared(void *stream, const pi__k_down *a, const pi__k_product *shared, const void *prepared,
                          const pi__k_tail *t);

#ifdef __cplusplus
}
#endif
#endif
