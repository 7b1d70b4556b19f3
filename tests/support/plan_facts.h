/* Facts for the planner (src/backend/cuda/facts.h) of a device with sm_120 and 188 multiprocessors, as an RTX PRO 6000,
 * with default options. test_plan.c plans with them; test_fuse.cpp checks them against the kernels. */
#ifndef PLAN_FACTS_H
#define PLAN_FACTS_H

#include <string.h>

#include "backend/cuda/facts.h"
#include "formats/formats.h"

static inline pi__facts plan_facts(void)
{
    const int32_t w16[] = {PI__Q8_0, PI__Q4_0, PI__Q4_K, PI__Q6_K, PI__IQ4_XS, PI__MXFP4, PI__NVFP4};
    pi__facts f;
    memset(&f, 0, sizeof f);
    f.matmul_modes = PI__WAY_MMA16 | PI__WAY_W16 | PI__WAY_W4A8;
    f.fuses = true;
    f.places = 188;
    f.gdn_few = 16;
    for (size_t i = 0; i < sizeof w16 / sizeof *w16; i++) f.w16 |= (pi__type_set) 1 << w16[i];
    f.w16_bf16 = (pi__type_set) 1 << PI__MXFP4;
    f.prepared_bytes = (size_t) 1 << 30;
    return f;
}

#endif
