/* The hash by which a hub names a file: SHA-256 of its bytes, or what git names a blob by, SHA-1 of "blob SIZE", NUL and its
 * bytes. By OpenSSL. */
#ifndef PAGEDINFER_DIGEST_H
#define PAGEDINFER_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/evp.h>

typedef struct digest {
    EVP_MD_CTX *ctx;
    bool failed; /* OpenSSL did */
} digest;

/* Begins anew, for an oid of 40 digits with git's, whose size must be known, else with SHA-256. */
void digest_begin(digest *d, size_t digits, uint64_t size);
void digest_add(digest *d, const void *p, size_t n);
/* The digits in hex, "": it failed. Ends and frees it; may be called again. */
void digest_end(digest *d, char hex[65]);

#endif
