/* File hashes (see digest.h). */
#include "net/digest.h"

#include <stdio.h>

void digest_begin(digest *d, size_t digits, uint64_t size)
{
    if (!d->ctx) d->ctx = EVP_MD_CTX_new();
    d->failed = !d->ctx || EVP_DigestInit_ex(d->ctx, digits == 40 ? EVP_sha1() : EVP_sha256(), NULL) != 1;
    char head[40];
    if (digits == 40)
        digest_add(d, head, (size_t) snprintf(head, sizeof head, "blob %llu", (unsigned long long) size) + 1);
}

void digest_add(digest *d, const void *p, size_t n)
{
    if (!d->failed && EVP_DigestUpdate(d->ctx, p, n) != 1) d->failed = true;
}

void digest_end(digest *d, char hex[65])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    *hex = 0;
    if (d->ctx && !d->failed && EVP_DigestFinal_ex(d->ctx, sum, &n) == 1 && n <= 32)
        for (unsigned int i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    EVP_MD_CTX_free(d->ctx);
    d->ctx = NULL;
}
