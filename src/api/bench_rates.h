/* Op "rates" of pi_bench_op: measures the limits of the CPU (bench_rates.c). */
#ifndef PI__BENCH_RATES_H
#define PI__BENCH_RATES_H

#include "pagedinfer.h"

int pi__bench_rates(const pi_options *o, pi_op_time_fn fn, void *ud, pi_error *err);

#endif
