/* Hashes of bytes (hash.c), the same in every process of every machine with this byte order.
 *
 * Digests are SHA-256, all 256 bits. They decide that two contents are equal, and name files: cache blocks, snapshots,
 * tiers, packed weights, adapters, model variants, grammars. Clients choose the tokens, texts and salts in them, so finding
 * two contents with one digest must be infeasible. What is hashed is a message of fields:
 *
 *     domain (4 bytes) | length (8 bytes) field | length (8 bytes) field | ...        numbers little-endian
 *
 * The domain says which kind of content it is, the lengths where fields end: two different inputs are never one message.
 *
 * pi__hash64 is XXH3, for what no client can gain from: checksums against damage of files that only their owner can write,
 * slots of tables that compare the content as well, traces. Memory: none. Any thread. */
#ifndef PI__HASH_H
#define PI__HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct pi__digest {
    uint8_t byte[32]; /* as FIPS 180-4 has them */
} pi__digest;

/* What a digest is of. Numbers of domains name files: they are never used again for anything else. */
enum pi__hash_domain {
    PI__HASH_BLOCK = 1,        /* parent, tokens: a cache block or snapshot, and every token before it */
    PI__HASH_SPARSE_BLOCK = 2, /* the same, computed with sparse attention */
    PI__HASH_SALT = 3,         /* salt: the empty prefix of a tenant */
    PI__HASH_VARIANT = 4,      /* parent, variant: the empty prefix of what another model, in effect, computes */
    PI__HASH_PRIVATE = 5,      /* number: the empty prefix of a sample group */
    PI__HASH_FINGERPRINT = 6,  /* settings: what gives a block's bytes their meaning */
    PI__HASH_KEYED_SPACE = 7,  /* fingerprint, key id: files of servers with one key */
    PI__HASH_WEIGHTS = 8,      /* digest so far, bytes: weights as loaded */
    PI__HASH_IMAGE = 9,        /* settings: packed weights */
    PI__HASH_IMAGE_PART = 10,  /* image, placement: those of a device */
    PI__HASH_IMAGE_RANK = 11,  /* image part, rank: those of one of several devices */
    PI__HASH_TARGET = 12,      /* words: what weights are packed for */
    PI__HASH_ADAPTER = 13,     /* bytes: what an adapter does */
    PI__HASH_ADAPTERS = 14,    /* parent, adapter, scale: adapters of a request */
    PI__HASH_GRAMMAR = 15,     /* kind, trigger, text */
    PI__HASH_LORA_RANKS = 16,  /* ranks, a field for each 64: shape of a step's adapters */
    PI__HASH_LORA_SHAPE = 17,  /* ranks, groups: the same, as launches know it */
};

/* A message of fields, as it is hashed. */
typedef struct pi__hasher {
    uint32_t state[8]; /* after all whole blocks */
    uint64_t n;        /* bytes so far */
    uint8_t block[64]; /* the last n % 64 of them */
} pi__hasher;

void pi__hash_begin(pi__hasher *h, enum pi__hash_domain domain);
void pi__hash_field(pi__hasher *h, const void *p, size_t n);
pi__digest pi__hash_end(pi__hasher *h);
/* A message of one field; of two, the first of which is a digest. */
pi__digest pi__hash(enum pi__hash_domain domain, const void *p, size_t n);
pi__digest pi__hash_chain(enum pi__hash_domain domain, const pi__digest *parent, const void *p, size_t n);

static inline bool pi__digest_equal(const pi__digest *a, const pi__digest *b) { return !memcmp(a, b, sizeof *a); }
/* All bytes are 0: of nothing. No input has that digest. */
bool pi__digest_none(const pi__digest *d);
/* The first 8 bytes as a number: for slots of tables, and where a format has no more room. */
static inline uint64_t pi__digest_word(const pi__digest *d)
{
    uint64_t w;
    memcpy(&w, d->byte, sizeof w);
    return w;
}
/* 64 lower-case hexadecimal digits and the end; and back: false where the first 64 characters are anything else. */
enum { PI__DIGEST_HEX = 65 };
void pi__digest_hex(const pi__digest *d, char out[PI__DIGEST_HEX]);
bool pi__digest_parse(const char *hex, pi__digest *d);

/* ------------------------------------------------------------------------------------------------------------- bytes */
/* SHA-256 of bytes as they are. */
void pi__sha256_begin(pi__hasher *h);
void pi__sha256_add(pi__hasher *h, const void *p, size_t n);
pi__digest pi__sha256_end(pi__hasher *h);

/* HMAC-SHA-256 (RFC 2104): only holders of the key can make the digest of a message, or tell that it is right. */
enum { PI__NH_WORDS = 256 /* of a piece */, PI__NH_PASSES = 4, PI__NH_SHIFT = 4 /* words from one pass's key to the next's */ };
typedef struct pi__mac_key {
    uint32_t inner[8], outer[8]; /* states after the padded key */
    uint32_t nh[PI__NH_WORDS + PI__NH_SHIFT * (PI__NH_PASSES - 1)]; /* key of pi__mac_bulk's sums, made from the key */
} pi__mac_key;
void pi__mac_key_init(pi__mac_key *k, const void *key, size_t n);
void pi__mac_begin(pi__hasher *h, const pi__mac_key *k); /* then pi__sha256_add */
pi__digest pi__mac_end(pi__hasher *h, const pi__mac_key *k);
/* A MAC for megabytes: SHA-256 alone would halve the rate at which files are loaded, on processors without instructions for it
 * to a tenth. Pieces of 1,024 bytes are summed by NH (UMAC, RFC 4418, with 4 Toeplitz passes), a universal hash: without the
 * key, two different pieces have the same 32 bytes with a chance of 2^-128 at most. HMAC-SHA-256 is over the length and all
 * sums, so that a MAC tells nothing of them. */
pi__digest pi__mac_bulk(const pi__mac_key *k, const void *p, size_t n);
/* In a time that does not tell where they differ. */
bool pi__mac_equal(const pi__digest *a, const pi__digest *b);

/* XXH3, 64 bits. */
uint64_t pi__hash64(const void *p, size_t n, uint64_t seed);

#endif
