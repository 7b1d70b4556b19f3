/* The hash that names a file on a hub: SHA-256 of its bytes, or git's blob id, SHA-1 of "blob SIZE", NUL and its
 * bytes. Uses OpenSSL. */
#ifndef PAGEDINFER_DIGEST_H
#define PAGEDINFER_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/evp.h>

typedef struct digest {
    EVP_MD_CTX *ctx;
    bool failed; /* an OpenSSL call failed */
} digest;

/* Starts a new hash: git's blob id for 40 digits (size must be known), else SHA-256. */
void digest_begin(digest *d, size_t digits, uint64_t size);
void digest_add(digest *d, const void *p, size_t n);
/* Writes the hex digits; "" on failure. Ends and frees the hash; may be called again. */
void digest_end(digest *d, char hex[65]);

#endif
