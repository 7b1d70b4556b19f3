/* How often a test repeats what is the same on every processor: parsing, files, damage to them. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <stdlib.h>

/* n, or a tenth of it where the processor is emulated: a cross build's tests, of which run.sh runs n natively. */
static inline int rounds(int n) { return getenv("PI_TEST_EMULATED") ? (n + 9) / 10 : n; }

#endif
