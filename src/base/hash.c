/* Digests (see hash.h): SHA-256 over messages of fields, HMAC, and xxHash's XXH3, which is compiled into this file
 * only.
 *
 * The only global is the chosen compression function. The processor is queried once, because CPUID takes microseconds
 * on virtual machines. A race is harmless: all threads find the same function. */
#include "base/hash.h"

#include <stdatomic.h>

#include "base/sha256.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__x86_64__) && !defined(PI_NO_SIMD)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__) && !defined(PI_NO_SIMD)
#include <sys/auxv.h>
#endif

uint64_t pi__hash64(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }

/* ----------------------------------------------------------------------------------------------------------- bytes */

int pi__sha256_available(pi__sha256_fn *out[PI__SHA256_MAX])
{
    int n = 0;
#if defined(__x86_64__) && !defined(PI_NO_SIMD)
    unsigned a, b, c, d;
    const bool sse = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSSE3) && (c & bit_SSE4_1);
    if (sse && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29 /* SHA */)) out[n++] = pi__sha256_shani;
#elif defined(__aarch64__) && defined(__linux__) && !defined(PI_NO_SIMD)
    if (getauxval(AT_HWCAP) & 1ul << 6 /* HWCAP_SHA2 */) out[n++] = pi__sha256_armsha;
#endif
    out[n++] = pi__sha256_generic;
    return n;
}

static void compress(uint32_t state[8], const uint8_t *p, size_t n)
{
    static _Atomic(pi__sha256_fn *) chosen; /* NULL = not chosen yet */
    pi__sha256_fn *fn = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!fn) {
        pi__sha256_fn *there[PI__SHA256_MAX];
        (void) pi__sha256_available(there);
        fn = there[0];
        atomic_store_explicit(&chosen, fn, memory_order_relaxed);
    }
    fn(state, p, n);
}

void pi__sha256_begin(pi__hasher *h)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(h->state, first, sizeof first);
    h->n = 0;
}

void pi__sha256_add(pi__hasher *h, const void *data, size_t n)
{
    const uint8_t *p = data;
    const size_t at = h->n % 64, room = 64 - at;
    if (!n) return;
    h->n += n;
    if (at) {
        memcpy(h->block + at, p, n < room ? n : room);
        if (n < room) return;
        compress(h->state, h->block, 1);
        p += room;
        n -= room;
    }
    if (n / 64) compress(h->state, p, n / 64);
    memcpy(h->block, p + n / 64 * 64, n % 64);
}

static void put_big(uint8_t *to, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) to[i] = (uint8_t) (v >> 8 * (n - 1 - i));
}

static void put_little(uint8_t *to, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) to[i] = (uint8_t) (v >> 8 * i);
}

pi__digest pi__sha256_end(pi__hasher *h)
{
    uint8_t end[128] = {0};
    const size_t at = h->n % 64, size = at < 56 ? 64 : 128;
    pi__digest d;
    memcpy(end, h->block, at);
    end[at] = 0x80;
    put_big(end + size - 8, h->n * 8, 8);
    compress(h->state, end, size / 64);
    for (int i = 0; i < 8; i++) put_big(d.byte + 4 * i, h->state[i], 4);
    return d;
}

/* ------------------------------------------------------------------------------------------------------------ MACs */

/* prefixes that no other HMAC message begins with */
static const char nh_key_label[8] = "NH key", nh_sum_label[8] = "NH sums";

static void derive_nh_key(pi__mac_key *k)
{
    uint8_t *to = (uint8_t *) k->nh;
    for (size_t at = 0; at < sizeof k->nh; at += sizeof(pi__digest)) {
        const uint64_t part = at;
        pi__hasher h;
        pi__mac_begin(&h, k);
        pi__sha256_add(&h, nh_key_label, sizeof nh_key_label);
        pi__sha256_add(&h, &part, sizeof part);
        const pi__digest d = pi__mac_end(&h, k);
        memcpy(to + at, d.byte, sizeof k->nh - at < sizeof d ? sizeof k->nh - at : sizeof d);
    }
}

void pi__mac_key_init(pi__mac_key *k, const void *key, size_t n)
{
    uint8_t block[64] = {0};
    pi__hasher h;
    if (n > sizeof block) {
        pi__sha256_begin(&h);
        pi__sha256_add(&h, key, n);
        const pi__digest d = pi__sha256_end(&h);
        memcpy(block, d.byte, sizeof d);
    } else if (n) {
        memcpy(block, key, n);
    }
    for (size_t i = 0; i < sizeof block; i++) block[i] ^= 0x36;
    pi__sha256_begin(&h);
    pi__sha256_add(&h, block, sizeof block);
    memcpy(k->inner, h.state, sizeof h.state);
    for (size_t i = 0; i < sizeof block; i++) block[i] ^= 0x36 ^ 0x5c;
    pi__sha256_begin(&h);
    pi__sha256_add(&h, block, sizeof block);
    memcpy(k->outer, h.state, sizeof h.state);
    derive_nh_key(k);
}

void pi__mac_begin(pi__hasher *h, const pi__mac_key *k)
{
    memcpy(h->state, k->inner, sizeof h->state);
    h->n = sizeof h->block;
}

pi__digest pi__mac_end(pi__hasher *h, const pi__mac_key *k)
{
    const pi__digest inner = pi__sha256_end(h);
    memcpy(h->state, k->outer, sizeof h->state);
    h->n = sizeof h->block;
    pi__sha256_add(h, inner.byte, sizeof inner.byte);
    return pi__sha256_end(h);
}

/* Sums one piece: (m0 + k0)(m2 + k2) + (m1 + k1)(m3 + k3) over each 16 bytes. */
static void nh(const uint32_t *key, const uint8_t *p, uint64_t out[PI__NH_PASSES])
{
    uint64_t sum[PI__NH_PASSES] = {0};
    for (int i = 0; i < PI__NH_WORDS; i += 4, p += 16) {
        uint32_t m[4];
        memcpy(m, p, sizeof m);
#pragma GCC unroll 4
        for (int s = 0; s < PI__NH_PASSES; s++) {
            const uint32_t *k = key + i + PI__NH_SHIFT * s;
            sum[s] += (uint64_t) (m[0] + k[0]) * (m[2] + k[2]) + (uint64_t) (m[1] + k[1]) * (m[3] + k[3]);
        }
    }
    memcpy(out, sum, sizeof sum);
}

pi__digest pi__mac_bulk(const pi__mac_key *k, const void *data, size_t n)
{
    enum { PIECE = 4 * PI__NH_WORDS, SUMS = 16 /* pieces hashed per call */ };
    const uint8_t *p = data;
    const uint64_t length = n;
    uint64_t sum[SUMS][PI__NH_PASSES];
    pi__hasher h;
    pi__mac_begin(&h, k);
    pi__sha256_add(&h, nh_sum_label, sizeof nh_sum_label);
    pi__sha256_add(&h, &length, sizeof length);
    for (; n >= SUMS * PIECE; n -= SUMS * PIECE) {
        for (int i = 0; i < SUMS; i++, p += PIECE) nh(k->nh, p, sum[i]);
        pi__sha256_add(&h, sum, sizeof sum);
    }
    for (; n; n -= n < PIECE ? n : PIECE, p += PIECE) {
        uint8_t last[PIECE] = {0}; /* zero padding is unambiguous because the length is hashed */
        if (n < PIECE) memcpy(last, p, n);
        nh(k->nh, n < PIECE ? last : p, sum[0]);
        pi__sha256_add(&h, sum[0], sizeof sum[0]);
    }
    return pi__mac_end(&h, k);
}

bool pi__mac_equal(const pi__digest *a, const pi__digest *b)
{
    volatile uint8_t differ = 0;
    for (size_t i = 0; i < sizeof a->byte; i++) differ = (uint8_t) (differ | (a->byte[i] ^ b->byte[i]));
    return !differ;
}

/* ---------------------------------------------------------------------------------------------------------- fields */

void pi__hash_begin(pi__hasher *h, enum pi__hash_domain domain)
{
    uint8_t word[4];
    put_little(word, (uint64_t) domain, 4);
    pi__sha256_begin(h);
    pi__sha256_add(h, word, sizeof word);
}

void pi__hash_field(pi__hasher *h, const void *p, size_t n)
{
    uint8_t length[8];
    put_little(length, n, 8);
    pi__sha256_add(h, length, sizeof length);
    pi__sha256_add(h, p, n);
}

pi__digest pi__hash_end(pi__hasher *h) { return pi__sha256_end(h); }

pi__digest pi__hash(enum pi__hash_domain domain, const void *p, size_t n)
{
    pi__hasher h;
    pi__hash_begin(&h, domain);
    pi__hash_field(&h, p, n);
    return pi__hash_end(&h);
}

pi__digest pi__hash_chain(enum pi__hash_domain domain, const pi__digest *parent, const void *p, size_t n)
{
    pi__hasher h;
    pi__hash_begin(&h, domain);
    pi__hash_field(&h, parent->byte, sizeof parent->byte);
    pi__hash_field(&h, p, n);
    return pi__hash_end(&h);
}

bool pi__digest_none(const pi__digest *d)
{
    static const pi__digest none;
    return pi__digest_equal(d, &none);
}

void pi__digest_hex(const pi__digest *d, char out[PI__DIGEST_HEX])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof d->byte; i++) {
        out[2 * i] = digits[d->byte[i] >> 4];
        out[2 * i + 1] = digits[d->byte[i] & 15];
    }
    out[PI__DIGEST_HEX - 1] = 0;
}

bool pi__digest_parse(const char *hex, pi__digest *d)
{
    for (size_t i = 0; i < 2 * sizeof d->byte; i++) {
        const char c = hex[i];
        const int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (v < 0) return false;
        d->byte[i / 2] = (uint8_t) (i % 2 ? d->byte[i / 2] << 4 | v : v);
    }
    return true;
}
