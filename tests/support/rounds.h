/* What a test leaves out where the processor is emulated: a cross build's tests, which run.sh runs whole natively. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <stdbool.h>
#include <stdlib.h>

/* Also said of tests under a sanitizer whose further rounds touch no other memory: PI_FEWER_ROUNDS in tests/CMakeLists.txt. */
static inline bool emulated(void) { return getenv("PI_TEST_EMULATED") != NULL; }

/* A cross build's tests alone. */
static inline bool crossed(void) { return getenv("PI_TEST_CROSS") != NULL; }

/* A cross build's tests of one instruction set, whose vectors qemu computes element by element: SVE's. */
static inline bool slow_vectors(void) { return crossed() && getenv("PI_TEST_ISA") != NULL; }

/* How often to repeat what is the same on every processor, parsing, files, damage to them: n, or a tenth of it. */
static inline int rounds(int n) { return emulated() ? (n + 9) / 10 : n; }

#endif
