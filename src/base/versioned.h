/* Public structs whose first field is `uint32_t size`: the caller sets it to its sizeof, the library fills as much.
 *
 * A caller compiled against another version of pagedinfer.h has a shorter or a longer struct. Fields are only
 * appended, so the common prefix of both is valid. Any thread. */
#ifndef PI__VERSIONED_H
#define PI__VERSIONED_H

#include <stdint.h>
#include <string.h>

#include "pagedinfer.h"

/* Returns PI_EINVAL if out is NULL or its size does not even cover the size field. */
static inline int pi__versioned_check(const void *out)
{
    uint32_t size = 0;
    if (out) memcpy(&size, out, sizeof size);
    return size < sizeof size ? PI_EINVAL : PI_OK;
}

/* Copies a struct of n bytes to out, at most the bytes that out has. Sets the size of out to the bytes copied. Errors:
 * see pi__versioned_check; out is then unchanged. */
static inline int pi__versioned_copy(void *out, const void *value, size_t n)
{
    uint32_t size;
    const int rc = pi__versioned_check(out);
    if (rc) return rc;
    memcpy(&size, out, sizeof size);
    if (size > n) size = (uint32_t) n;
    memcpy(out, value, size);
    memcpy(out, &size, sizeof size);
    return PI_OK;
}

#endif
