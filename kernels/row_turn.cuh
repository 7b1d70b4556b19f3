/* Rotation of groups of 32 values to the stored basis of rotated cache types, and back: a Hadamard transform with
 * random signs (formats/cache_rotation.h). These functions are for kernels where a lane holds several values of a
 * group. The sums and their order are as in cache_turn() of cache.cuh, so results are bitwise identical. */
#ifndef PI_ROW_TURN_CUH
#define PI_ROW_TURN_CUH

#include "cache.cuh"

/* Returns the factor of value i (0 .. 31) of a group: its sign times 1 / sqrt(32). */
PI_FN float rotate_by(int i) { return PI__ROTATION_SIGNS >> i & 1 ? -PI__ROTATION_SCALE : PI__ROTATION_SCALE; }

/* One butterfly stage between lanes. f: this lane's value; lane ^ by holds the partner. high: this lane has the higher
 * index of the pair. Returns the sum in the low lane, low - high in the high lane. lanes: mask of the calling lanes. */
PI_FN float rotate_across(float f, bool high, int by, uint32_t lanes)
{
    const float other = __shfl_xor_sync(lanes, f, by);
    return high ? other - f : f + other;
}

/* One butterfly stage of two values in the same lane: (low, high) becomes (low + high, low - high). */
PI_FN void butterfly(float &low, float &high)
{
    const float f = low;
    low = f + high;
    high = f - high;
}

/* Unrotates a stored group of 32 values, in place. Lane l % 4 of four adjacent lanes has values 8 l .. 8 l + 7. lanes:
 * mask of the calling lanes. */
PI_FN void unrotate8(float (&f)[8], int lane, uint32_t lanes)
{
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = rotate_across(f[i], lane & 2, 2, lanes);
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = rotate_across(f[i], lane & 1, 1, lanes);
#pragma unroll
    for (int o = 4; o; o /= 2)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!(i & o)) butterfly(f[i], f[i | o]);
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] *= rotate_by(lane % 4 * 8 + i);
}

/* Returns the rotated pair of a group of 32 values, for storing. Lane l of 16 adjacent lanes has values 2 l and 2 l +
 * 1. All lanes of the warp call it. */
PI_FN float2 rotate2(float2 f, int lane)
{
    f.x *= rotate_by(lane % 16 * 2);
    f.y *= rotate_by(lane % 16 * 2 + 1);
    for (int o = 8; o; o /= 2) {
        f.x = rotate_across(f.x, lane & o, o, PI_FULL);
        f.y = rotate_across(f.y, lane & o, o, PI_FULL);
    }
    butterfly(f.x, f.y);
    return f;
}

/* Rotates 64 columns (two groups of 32) of a row in an mma accumulator, or unrotates them if `back`. f[n][p] is column
 * 8 n + 2 (lane % 4) + p. */
PI_FN void rotate_columns(float (&f)[8][2], bool back)
{
    const int lane = ptx_thread() % 32;
#pragma unroll
    for (int i = 0; i < 16; i++) f[i / 2][i % 2] *= back ? 1.0f : rotate_by(i / 2 % 4 * 8 + lane % 4 * 2 + i % 2);
#pragma unroll
    for (int o = 2; o; o /= 2)
#pragma unroll
        for (int i = 0; i < 16; i++)
            if (!(i / 2 & o)) butterfly(f[i / 2][i % 2], f[i / 2 | o][i % 2]);
#pragma unroll
    for (int o = 2; o; o /= 2)
#pragma unroll
        for (int i = 0; i < 16; i++) f[i / 2][i % 2] = rotate_across(f[i / 2][i % 2], lane & o, o, PI_FULL);
#pragma unroll
    for (int n = 0; n < 8; n++) butterfly(f[n][0], f[n][1]);
#pragma unroll
    for (int i = 0; i < 16; i++) f[i / 2][i % 2] *= back ? rotate_by(i / 2 % 4 * 8 + lane % 4 * 2 + i % 2) : 1.0f;
}

#endif
