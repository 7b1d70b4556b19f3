/* A model that may be too large for the device (fit.c). */
#ifndef PI__FIT_H
#define PI__FIT_H

#include "engine/setup.h"

/* Leaves to the CPU what the device has no room for. */
int pi__fit(pi__setup *s, pi_error *err);
/* PI_ENOMEM with what would fit, where the device has no room for what it is to have; s is sized. */
int pi__fit_check(pi__setup *s, pi_error *err);

#endif
