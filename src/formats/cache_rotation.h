/* Rotated cache types (TQ4_0, TQ3_0): the rotation, and the tables of their codes. C and C++.
 *
 * Each group x of 32 values of a head is cached as y = R x. R flips the signs of some values and applies an
 * orthonormal Walsh-Hadamard transform:
 *
 *     y = H S x / sqrt(32)        S: diagonal, +1 or -1        H: +1 and -1, H H = 32 I
 *
 * For any x the values of y are nearly normally distributed with the same variance. So all groups share one table of
 * values, the optimal (Lloyd-Max) table for a normal distribution. R keeps inner products: (R q) (R k) = q k. So
 * queries are rotated once, and keys are never rotated back. Cached V rows are accumulated in rotated form, and each
 * head's weighted sum is rotated back once: x = S H y / sqrt(32). A rotation over more than the 32 values of one scale
 * is worse: it spreads the energy of a few large values, and their quantization error, over all groups
 * (docs/perf/cache_types.md has the numbers).
 *
 * The stages of the transform combine values whose indices differ in one bit, from the highest bit to the lowest, in
 * floats. All implementations use this order, so that the CPU and devices give bitwise identical results. */
#ifndef PI__CACHE_ROTATION_H
#define PI__CACHE_ROTATION_H

#include "formats/cache_types.h"

/* Bit i set = value i of a group changes its sign. The first 32 bits of pi's fraction. */
#define PI__ROTATION_SIGNS 0x243f6a88u
#define PI__ROTATION_SCALE 0.17677669f /* 1 / sqrt(32) */

/* Values of codes 0, 1, 2, ..., and the root mean square of a group's values at the optimal scale. The values are the
 * Lloyd-Max tables of a normal distribution (magnitudes 0.1284 .. 2.7326 and 0.2451 .. 2.1520), scaled to integers. */
#define PI__TQ4_0_VALUES -127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127
#define PI__TQ4_0_RMS 46.476f
#define PI__TQ3_0_VALUES -123, -77, -43, -14, 14, 43, 77, 123
#define PI__TQ3_0_RMS 57.156f
/* Quantization scales a group's values to PI__TQ*_RMS times each of these factors in turn, and keeps the factor with
 * the smallest error. */
#define PI__ROTATION_TRIES 1.0f, 0.89f, 1.12f

#endif
