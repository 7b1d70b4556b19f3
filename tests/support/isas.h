/* Selects the instruction sets that a test of non-matmul kernels runs. */
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

/* True if the instruction set is available and has its own kernels; some sets differ from the previous one only in
 * matmul. With PI_TEST_ISA, true only for that set, which must be available. Other builds cover plain C natively. */
static inline bool own_kernels(int isa)
{
    const char *only = getenv("PI_TEST_ISA");
    int named = isa;
    if (only) assert_int_equal(pi__isa_choose(only, &named, NULL), PI_OK);
    else if (crossed() && isa == PI__ISA_GENERIC) return false;
    return named == isa && pi__isa_available(isa) &&
           (isa == PI__ISA_GENERIC || pi__cpu_attn_kernels_of(isa) != pi__cpu_attn_kernels_of(isa - 1));
}

#endif
