/* Filling a pi_error: one line, then return its code. */
#ifndef PI__ERROR_H
#define PI__ERROR_H

#include "pagedinfer.h"

/* Writes the code and the formatted text (cut to fit) into err (may be NULL); returns code. */
int pi__fail(pi_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* pi__fail with PI_ENOMEM: "out of memory for WHAT". */
int pi__fail_mem(pi_error *err, const char *what);

#endif
