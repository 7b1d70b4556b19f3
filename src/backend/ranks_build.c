/* The identifier of a build, which all ranks compare when they join. No memory, any thread. */
#include <stdio.h>

#include "backend/tensor_orders.h"

void pi__ranks_build(char build[64])
{
    snprintf(build, 64, "%.20s|%zu|%zu|%zu|%zu|%d", pi_version(), sizeof(pi__op_record), sizeof(pi__batch),
             sizeof(pi__limits), sizeof(pi__device_params), (int) PI__N_OPS);
}
