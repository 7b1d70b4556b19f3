/* Reduces tests on emulated processors (cross builds); run.sh runs the full tests natively. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <stdbool.h>
#include <stdlib.h>

/* True in cross builds. Also true in sanitizer builds of tests if further rounds touch no other memory: see
 * PI_FEWER_ROUNDS in tests/CMakeLists.txt. */
static inline bool emulated(void) { return getenv("PI_TEST_EMULATED") != NULL; }

/* True only in cross builds. */
static inline bool crossed(void) { return getenv("PI_TEST_CROSS") != NULL; }

/* True in cross builds that test a single instruction set (SVE); qemu computes its vectors element by element. */
static inline bool slow_vectors(void) { return crossed() && getenv("PI_TEST_ISA") != NULL; }

/* Number of rounds of processor-independent tests (parsing, files, corruption): n, or a tenth of it if emulated. */
static inline int rounds(int n) { return emulated() ? (n + 9) / 10 : n; }

#endif
