/* Which instruction sets a test of kernels that are no matrices' goes through. */
#ifndef ISAS_H
#define ISAS_H

#include "backend/cpu/cpu.h"

/* true: it is there, and has kernels of its own; some differ from the one before only in how matrices are multiplied. */
static inline bool own_kernels(int isa)
{
    return pi__isa_there(isa) &&
           (isa == PI__ISA_GENERIC || pi__cpu_attn_kernels_of(isa) != pi__cpu_attn_kernels_of(isa - 1));
}

#endif
