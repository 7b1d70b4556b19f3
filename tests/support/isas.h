/* Which instruction sets a test of kernels that are no matrices' goes through. */
#ifndef ISAS_H
#define ISAS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "rounds.h"

/* true: it is there, and has kernels of its own; some differ from the one before only in how matrices are multiplied. With
 * PI_TEST_ISA that one alone, which must be there. Plain C runs natively in other builds. */
static inline bool own_kernels(int isa)
{
    const char *only = getenv("PI_TEST_ISA");
    int named = isa;
    if (only) assert_int_equal(pi__isa_choose(only, &named, NULL), PI_OK);
    else if (crossed() && isa == PI__ISA_GENERIC) return false;
    return named == isa && pi__isa_there(isa) &&
           (isa == PI__ISA_GENERIC || pi__cpu_attn_kernels_of(isa) != pi__cpu_attn_kernels_of(isa - 1));
}

#endif
