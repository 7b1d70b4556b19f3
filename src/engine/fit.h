/* Placement of a model that may be too large for the device (fit.c). */
#ifndef PI__FIT_H
#define PI__FIT_H

#include "engine/setup.h"

/* If the model does not fit the free memory of the device: moves weights and caches to the CPU until the rest fits, and
 * declares the models again. s->be may become a split backend with a CPU, or only the CPU. */
int pi__fit(pi__setup *s, pi_error *err);
/* Returns PI_ENOMEM and suggests a placement that fits, if the device lacks memory for the declared models. After
 * PI_ENOMEM s may be declared with another placement: only free it. */
int pi__fit_check(pi__setup *s, pi_error *err);

#endif
