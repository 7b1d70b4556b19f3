/* Placement of a model that may be too large for the device (fit.c). */
#ifndef PI__FIT_H
#define PI__FIT_H

#include "engine/setup.h"

/* Moves weights and caches to the CPU until the rest fits the device. */
int pi__fit(pi__setup *s, pi_error *err);
/* Returns PI_ENOMEM and suggests a smaller placement if the device lacks memory for s, which must be sized. */
int pi__fit_check(pi__setup *s, pi_error *err);

#endif
