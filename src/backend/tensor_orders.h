/* What orders of rank 0 carry (tensor_orders.c gives them, tensor_follow.c takes them), and following them. */
#ifndef PI__TENSOR_ORDERS_H
#define PI__TENSOR_ORDERS_H

#include "backend/device.h"
#include "backend/ranks.h"

/* Of PI__ORDER_OPEN. */
typedef struct pi__rank_device {
    char build[64];       /* all ranks are of one */
    char name[16];        /* of pi__devices */
    char isa[16];         /* pi__cpu_params.isa */
    pi__cpu_params params;
} pi__rank_device;
/* Names this build: its version, and the sizes of what ranks tell each other. */
void pi__ranks_build(char build[64]);

/* Of PI__ORDER_LOAD. */
typedef struct pi__rank_rows {
    pi__weight w;         /* as rank 0 has it */
    int64_t mat, row, n;  /* rows row..row + n of matrix mat */
    int32_t cut, unused;  /* each rank is sent its own rows, piece by piece; else all come to all */
} pi__rank_rows;

/* Bytes of an order UPLOAD or KEEP at most. */
enum { PI__MAX_UPLOAD = 64 << 20 };

/* Does what rank 0 asks for, up to its end: PI_OK; or until the ranks are dead. */
int pi__tensor_follow(pi__ranks *r, const pi__log *log, pi_error *err);

#endif
