/* Payloads of rank 0's commands (sent by tensor_orders.c, received by tensor_follow.c), and the loop of a worker
 * rank. */
#ifndef PI__TENSOR_ORDERS_H
#define PI__TENSOR_ORDERS_H

#include "backend/devices.h"
#include "backend/ranks.h"

/* Payload of PI__ORDER_OPEN: the device that worker ranks open. */
typedef struct pi__rank_device {
    char build[64];       /* identifier from pi__ranks_build; must be equal on all ranks */
    char name[16];        /* name in pi__devices */
    char isa[16];         /* pi__cpu_params.isa */
    pi__device_params params;
} pi__rank_device;
/* Writes an identifier of this build: its version, the sizes of structs that ranks exchange, and the number of ops. */
void pi__ranks_build(char build[64]);

/* Payload of PI__ORDER_LOAD. */
typedef struct pi__rank_rows {
    pi__weight w;         /* the weight, with rank 0's addresses */
    int64_t mat, row, n;  /* the rows row..row + n of matrix mat follow the payload */
    /* cut: nonzero = the matrix is sharded, and each rank receives only its own rows; 0 = all rows are broadcast */
    int32_t cut, unused;
} pi__rank_rows;

/* Max bytes of the payload of UPLOAD and KEEP. */
enum { PI__MAX_UPLOAD = 64 << 20 };

/* The loop of a worker rank: executes the commands of rank 0. Returns PI_OK at PI__ORDER_END, or PI_EDEVICE when the
 * ranks are dead. */
int pi__tensor_follow(pi__ranks *r, const pi__log *log, pi_error *err);

#endif
