/* Hashing with xxHash's XXH3, compiled into this file alone. Pure functions; any thread. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t pi__hash64(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }

pi__hash128 pi__hash(const void *p, size_t n)
{
    const XXH128_hash_t h = XXH3_128bits(p, n);
    return (pi__hash128) {h.low64, h.high64};
}

/* The seed is 64 bits: the parent's other 64 bits are mixed into the result, so that all 128 bits carry on. */
pi__hash128 pi__hash_chain(pi__hash128 parent, const void *p, size_t n)
{
    const XXH128_hash_t h = XXH3_128bits_withSeed(p, n, parent.lo);
    return (pi__hash128) {h.low64 ^ parent.hi, h.high64 + parent.hi * 0x9E3779B97F4A7C15u};
}
