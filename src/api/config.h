/* Converts engine options to plain values, the struct pi__config of engine/config.h (config.c). */
#ifndef PI__CONFIG_H
#define PI__CONFIG_H

#include "api/options.h"
#include "engine/core.h"

/* Fills c with the values of all engine options in o, and connects the ranks if there are several (c->ranks). Strings
 * and lists in c belong to o. */
int pi__config_of(const pi_options *o, pi__config *c, pi_error *err);
pi__cpu_params pi__cpu_params_of(const pi_options *o);
pi__device_params pi__device_params_of(const pi_options *o);

#endif
