/* Hashes of bytes (hash.c), equal in every process on every machine with this byte order.
 *
 * Digests are SHA-256, all 256 bits. Equal digests mean equal contents, and digests name files: cache blocks,
 * snapshots, tiers, packed weights, adapters, model variants, grammars. Clients choose the hashed tokens, texts and
 * salts, so finding a collision must be infeasible. The hashed message is a sequence of fields:
 *
 *     domain (4 bytes) | length (8 bytes) field | length (8 bytes) field | ...        numbers little-endian
 *
 * The domain gives the kind of content, the lengths give the ends of fields. Different inputs thus give different
 * messages.
 *
 * pi__hash64 is XXH3, for hashes that no client can exploit: checksums of files that only their owner can write,
 * slots of tables that also compare the content, traces. Memory: none. Any thread. */
#ifndef PI__HASH_H
#define PI__HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct pi__digest {
    uint8_t byte[32]; /* in the byte order of FIPS 180-4 */
} pi__digest;

/* The kind of content of a digest. A digest names a file, so a domain number is never reused. Each comment lists the
 * fields of the message, then the hashed object. */
enum pi__hash_domain {
    PI__HASH_BLOCK = 1,        /* parent, tokens: a cache block or snapshot, and every token before it */
    PI__HASH_SPARSE_BLOCK = 2, /* as PI__HASH_BLOCK, computed with sparse attention */
    PI__HASH_SALT = 3,         /* salt: a tenant's empty prefix */
    PI__HASH_VARIANT = 4,      /* parent, variant: empty prefix of a model variant that computes different values */
    PI__HASH_PRIVATE = 5,      /* number: a sample group's empty prefix */
    PI__HASH_FINGERPRINT = 6,  /* settings: layout and meaning of a block's bytes */
    PI__HASH_KEYED_SPACE = 7,  /* fingerprint, key id: files shared by servers with one key */
    PI__HASH_WEIGHTS = 8,      /* digest so far, bytes: weights as loaded */
    PI__HASH_IMAGE = 9,        /* settings: packed weights */
    PI__HASH_IMAGE_PART = 10,  /* image, placement: packed weights of one device */
    PI__HASH_IMAGE_RANK = 11,  /* image part, rank: packed weights of one of several devices */
    PI__HASH_TARGET = 12,      /* words: the target that weights are packed for */
    PI__HASH_ADAPTER = 13,     /* bytes: the effect of an adapter */
    PI__HASH_ADAPTERS = 14,    /* parent, adapter, scale: adapters of a request */
    PI__HASH_GRAMMAR = 15,     /* kind, trigger, text */
    PI__HASH_LORA_RANKS = 16,  /* ranks, one field per 64: shape of a step's adapters */
    PI__HASH_LORA_SHAPE = 17,  /* ranks, groups: that shape as the launches use it */
    /* parent, tokens, then for each image in the block its place and its identity: as PI__HASH_BLOCK */
    PI__HASH_MEDIA_BLOCK = 18,
    PI__HASH_SPARSE_MEDIA_BLOCK = 19, /* as PI__HASH_MEDIA_BLOCK, computed with sparse attention */
    PI__HASH_TOWER = 20,       /* weights, image rules: a vision model */
    PI__HASH_PICTURE = 21,     /* sizes, source or pixels, tower: an image of a prompt */
};

/* State of hashing a message of fields. */
typedef struct pi__hasher {
    uint32_t state[8]; /* after all complete blocks */
    uint64_t n;        /* bytes so far */
    uint8_t block[64]; /* the last n % 64 bytes */
} pi__hasher;

void pi__hash_begin(pi__hasher *h, enum pi__hash_domain domain);
void pi__hash_field(pi__hasher *h, const void *p, size_t n);
pi__digest pi__hash_end(pi__hasher *h);
/* Hash a message of one field, and a message of two fields: a digest and bytes. */
pi__digest pi__hash(enum pi__hash_domain domain, const void *p, size_t n);
pi__digest pi__hash_chain(enum pi__hash_domain domain, const pi__digest *parent, const void *p, size_t n);

static inline bool pi__digest_equal(const pi__digest *a, const pi__digest *b) { return !memcmp(a, b, sizeof *a); }
/* True if all bytes are 0, the value for "no digest". No known input has it. */
bool pi__digest_none(const pi__digest *d);
/* Returns the first 8 bytes as a number, for slots of tables and for formats with 8 bytes only. */
static inline uint64_t pi__digest_word(const pi__digest *d)
{
    uint64_t w;
    memcpy(&w, d->byte, sizeof w);
    return w;
}
/* Write the digest as 64 lower-case hexadecimal digits and a NUL; read one from the first 64 characters of hex. false =
 * another character is among these 64. */
enum { PI__DIGEST_HEX = 65 };
void pi__digest_hex(const pi__digest *d, char out[PI__DIGEST_HEX]);
bool pi__digest_parse(const char *hex, pi__digest *d);

/* ----------------------------------------------------------------------------------------------------------- bytes */
/* SHA-256 of plain bytes. */
void pi__sha256_begin(pi__hasher *h);
void pi__sha256_add(pi__hasher *h, const void *p, size_t n);
pi__digest pi__sha256_end(pi__hasher *h);

/* HMAC-SHA-256 (RFC 2104): only holders of the key can compute or verify a message's digest. */
/* NH: words of 4 bytes in a piece; passes over a piece; words between the keys of two passes. */
enum { PI__NH_WORDS = 256, PI__NH_PASSES = 4, PI__NH_SHIFT = 4 };
typedef struct pi__mac_key {
    uint32_t inner[8], outer[8]; /* hash states after the padded key */
    /* key of the NH sums of pi__mac_bulk, derived from the MAC key */
    uint32_t nh[PI__NH_WORDS + PI__NH_SHIFT * (PI__NH_PASSES - 1)];
} pi__mac_key;
void pi__mac_key_init(pi__mac_key *k, const void *key, size_t n);
void pi__mac_begin(pi__hasher *h, const pi__mac_key *k); /* continue with pi__sha256_add */
pi__digest pi__mac_end(pi__hasher *h, const pi__mac_key *k);
/* Computes a MAC of megabytes. SHA-256 alone would halve the rate of loading files, and reduce it to a tenth on
 * processors without SHA instructions. Therefore NH (UMAC, RFC 4418, with 4 Toeplitz passes), a universal hash, sums
 * pieces of 1,024 bytes. Without the key, two different pieces have the same 32 bytes with a probability of at most
 * 2^-128. HMAC-SHA-256 covers the length and all sums, so that a MAC does not reveal them. */
pi__digest pi__mac_bulk(const pi__mac_key *k, const void *p, size_t n);
/* True if the digests are equal. Compares in constant time, so that timing does not reveal the first difference. */
bool pi__mac_equal(const pi__digest *a, const pi__digest *b);

/* Returns XXH3, 64 bits. */
uint64_t pi__hash64(const void *p, size_t n, uint64_t seed);

#endif
