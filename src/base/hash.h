/* Hashes of bytes, the same in every process, of every machine with this byte order (hash.c). Not for keys that an
 * attacker chooses to collide: gguf/gguf_index.c has a keyed hash for those. */
#ifndef PI__HASH_H
#define PI__HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct pi__hash128 {
    uint64_t lo, hi;
} pi__hash128;

/* XXH3, 64 and 128 bits. */
uint64_t pi__hash64(const void *p, size_t n, uint64_t seed);
pi__hash128 pi__hash(const void *p, size_t n);
/* A chained hash: of everything that parent is of, and n bytes more. Where the bytes are cut into links counts. */
pi__hash128 pi__hash_chain(pi__hash128 parent, const void *p, size_t n);

#endif
