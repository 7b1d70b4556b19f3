/* Wider groups for ops whose matrices all have float formats: kernels for more columns than those of linear.h, which
 * share the registers with integer formats. linear_run.c uses them if the instruction set has them. */
#ifndef PI__LINEAR_FLOAT_H
#define PI__LINEAR_FLOAT_H

#include "backend/cpu/linear.h"

enum { PI__LIN_WIDE = 6 }; /* max columns of a wide group */

/* [kind][cols] float tile times cols columns; NULL = the kernels of linear.h compute this number of columns */
typedef pi__lin_mul_fn pi__lin_wide_fns[PI__LK_N][PI__LIN_WIDE + 1];

extern const pi__lin_wide_fns pi__lin_wide_avx2; /* linear_float_avx2.c: 5 and 6 columns */

#endif
