/* The compression function of SHA-256 (FIPS 180-4) for several instruction sets; callers use hash.h.
 *
 *   sha256_generic.c  plain C
 *   sha256_shani.c    SHA extensions of x86-64
 *   sha256_armsha.c   cryptographic extensions of ARMv8
 *
 * Pure functions; any thread. */
#ifndef PI__SHA256_H
#define PI__SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Updates state with n more blocks of 64 bytes. */
typedef void pi__sha256_fn(uint32_t state[8], const uint8_t *p, size_t n);

pi__sha256_fn pi__sha256_generic, pi__sha256_shani, pi__sha256_armsha;
extern const uint32_t pi__sha256_k[64]; /* constants of the rounds */

/* Stores the functions that this processor supports, the fastest first; the last is the generic one. Returns their
 * number. */
enum { PI__SHA256_MAX = 2 };
int pi__sha256_available(pi__sha256_fn *out[PI__SHA256_MAX]);

#endif
