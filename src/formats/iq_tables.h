/* Codebooks of the IQ formats: an index in a block selects a point of 8 (IQ1, IQ2) or 4 (IQ3) values.
 *
 * A point is one uint16_t: the level index of each value, lowest bits first. A point of 8 values has 2 bits per value,
 * a point of 4 values 4 bits. So the tables have a quarter to half of the size of expanded tables, and stay in L1. The
 * functions below expand a point with a few word operations; SIMD code expands many points in parallel. Constants, any
 * thread. */
#ifndef PI__IQ_TABLES_H
#define PI__IQ_TABLES_H

#include <stdint.h>

extern const uint16_t pi__iq2xxs_codes[256]; /* levels 8, 25, 43 */
extern const uint16_t pi__iq2xs_codes[512];  /* levels 8, 25, 43 */
extern const uint16_t pi__iq2s_codes[1024];  /* levels 8, 25, 43 */
extern const uint16_t pi__iq3xxs_codes[256]; /* levels 4, 12, 20, 28, 36, 44, 52, 62 */
extern const uint16_t pi__iq3s_codes[512];   /* levels 1, 3, 5, 7, 9, 11, 13, 15 */
extern const uint16_t pi__iq1_codes[2048];   /* levels -1, 0, 1 (IQ1_S, IQ1_M) */

/* Returns the 8 fields of 2 bits of code as 8 bytes, lowest first. */
static inline uint64_t pi__spread2(uint16_t code)
{
    uint64_t x = code;
    x = (x | x << 24) & 0x000000ff000000ffu;
    x = (x | x << 12) & 0x000f000f000f000fu;
    return (x | x << 6) & 0x0303030303030303u;
}

/* Returns the 4 fields of 4 bits of code as 4 bytes, lowest first. */
static inline uint32_t pi__spread4(uint16_t code)
{
    uint32_t x = code;
    x = (x | x << 8) & 0x00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0fu;
}

/* Returns the 8 values of an IQ2 point, one byte each. */
static inline uint64_t pi__iq2_point(uint16_t code)
{
    uint64_t c = pi__spread2(code);
    return 0x0808080808080808u + c * 17 + (c >> 1 & 0x0101010101010101u);
}

/* Returns the 8 values of an IQ1 point, one signed byte each. */
static inline uint64_t pi__iq1_point(uint16_t code)
{
    return (pi__spread2(code) + 0x7f7f7f7f7f7f7f7fu) ^ 0x8080808080808080u;
}

/* Returns the 4 values of an IQ3_XXS point, one byte each. The last level is 62, not 60 as the sequence suggests. */
static inline uint32_t pi__iq3xxs_point(uint16_t code)
{
    uint32_t c = pi__spread4(code);
    return 0x04040404u + c * 8 + ((c + 0x01010101u) >> 2 & 0x02020202u);
}

/* Returns the 4 values of an IQ3_S point, one byte each. */
static inline uint32_t pi__iq3s_point(uint16_t code) { return 0x01010101u + pi__spread4(code) * 2; }

/* Returns the sign bits of 8 values from the 7 stored bits (low bits of s). The eighth bit makes the number of set bits
 * even. */
static inline uint8_t pi__iq_signs(uint32_t s)
{
    s &= 0x7f;
    uint32_t p = s ^ s >> 4;
    p ^= p >> 2;
    return (uint8_t) (s | ((p ^ p >> 1) & 1) << 7);
}

#endif
