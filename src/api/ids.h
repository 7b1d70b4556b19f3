/* Checks of token ids that a caller passes. */
#ifndef PI__IDS_H
#define PI__IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True if all n ids are below n_vocab and not negative. */
static inline bool pi__ids_below(const int32_t *ids, size_t n, int64_t n_vocab)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab) return false;
    return true;
}

#endif
