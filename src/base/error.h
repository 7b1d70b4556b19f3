/* Fills a pi_error and returns its code, in one line. */
#ifndef PI__ERROR_H
#define PI__ERROR_H

#include "pagedinfer.h"

/* Writes the code and the formatted text, truncated to fit, into err (may be NULL). Returns code. */
int pi__fail(pi_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* pi__fail with PI_ENOMEM: "out of memory for" and the argument. */
int pi__fail_mem(pi_error *err, const char *what);

#endif
