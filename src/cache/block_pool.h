/* A pool of equal cache blocks: who uses which, which are free, and which still hold a known prefix.
 *
 *   block 0   block 1   block 2   block 3          ref > 0: in some block table ("used")
 *   ref 2     ref 0     ref 1     ref 0            ref 0: on the free list; with a hash it can still be found ("cached")
 *
 *   free list, in the order of eviction:   head -> 1 -> 3 <- tail
 *
 * A full block is immutable and gets a key: the chained digest of every token up to its end, with the salt, and the digest
 * up to its start (its parent). A hit has the key and the tokens that were asked for, all of them compared. get_new takes
 * the head of the free list and forgets its hash; touch takes a block back from anywhere in the list in O(1). Blocks
 * that hold nothing are put at the head, blocks with a hash at the tail, so prefixes live as long as there is room. A
 * hashed block that is unlikely to be reused (low priority) goes to the head, too.
 * After vLLM V1's block pool. Memory: one allocation at init, none later. One thread. */
#ifndef PI__BLOCK_POOL_H
#define PI__BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "pagedinfer.h"

/* Identity of a full block. The tenant follows from the salt and finds what cache_clear names; it is no part of a match. */
typedef struct pi__block_key {
    pi__digest hash;      /* of the prefix that ends with the block */
    pi__digest parent;    /* of the prefix that ends where the block begins */
    uint64_t tenant;      /* pi__tenant_of the salt */
} pi__block_key;

/* Where a tenant's prefixes begin. */
typedef struct pi__block_root {
    pi__digest hash;      /* of the empty prefix; without salt: none (pi__digest_none) */
    uint64_t tenant;      /* 0: without salt */
} pi__block_root;

typedef struct pi__block {
    pi__block_key key;    /* meaningful with hashed */
    int32_t ref;          /* block tables that hold it */
    int32_t prev;         /* free list, -1: none */
    int32_t next;         /* free list, -1: none */
    int32_t chain;        /* next block in the hash bucket, -1: none */
    bool hashed;          /* it is in the hash table */
    bool written;         /* its memory was handed out since it was last given back to the system */
    bool low_priority;    /* on the free list as one that is evicted first */
    bool offload_tried;   /* a copy was offered to a tier since it was last touched */
    bool pinned_for_copy; /* it is being copied: get_new skips it while it is on the free list */
    bool is_private;      /* its prefix is not shared: no tier gets a copy */
    uint32_t generation;  /* times get_new gave it: shows whoever remembers it that it is another one now */
} pi__block;

typedef struct pi__block_pool {
    pi__block *block;          /* [n_blocks] */
    int32_t *token;            /* [n_blocks, block_size] ids of hashed blocks, compared on a hit */
    int32_t *bucket;           /* [n_buckets] first block of each hash chain, -1: none */
    int32_t n_blocks;          /* blocks in all */
    int32_t block_size;        /* tokens a block */
    uint32_t n_buckets;        /* a power of two */
    int32_t head, tail;        /* of the free list, -1: empty */
    int32_t n_free;            /* blocks on the free list */
    int32_t n_pinned_for_copy; /* of them, skipped by get_new */
    int32_t n_cached;          /* of them, hashed */
    int32_t n_shared;          /* blocks in more than one table */
    int32_t n_written;         /* blocks whose memory the system may have committed */
    uint64_t n_evicted;        /* hashes forgotten to make room */
    struct pi__prefix_index *index; /* is told of blocks that get or lose a hash; NULL: nobody is */
    int32_t group;             /* as which it knows the pool */
} pi__block_pool;

int pi__block_pool_init(pi__block_pool *p, int32_t n_blocks, int32_t block_size, pi_error *err);
/* Bytes that init allocates, for the planner. */
size_t pi__block_pool_bytes(int32_t n_blocks, int32_t block_size);
void pi__block_pool_destroy(pi__block_pool *p);
/* Blocks that get_new can give. */
static inline int32_t pi__block_available(const pi__block_pool *p) { return p->n_free - p->n_pinned_for_copy; }
/* From now on get_new skips the block (it is pinned for a copy), or does not. */
void pi__block_hold(pi__block_pool *p, int32_t id, bool pinned_for_copy);
/* A block with ref 1 and no hash; -1: none available. */
int32_t pi__block_get_new(pi__block_pool *p);
/* One more reference. */
void pi__block_touch(pi__block_pool *p, int32_t id);
/* One reference less; at 0 it joins the free list. Free a table from its end, so that tails are evicted before heads. */
void pi__block_release(pi__block_pool *p, int32_t id);
/* The same for a block of low priority: at 0 it is the first to be evicted. */
void pi__block_release_low_priority(pi__block_pool *p, int32_t id);
/* Block id now has this key and holds these block_size tokens. Does nothing if a block with both is known. */
void pi__block_set_hash(pi__block_pool *p, int32_t id, const pi__block_key *key, const int32_t *tokens);
/* The block with this hash, parent and tokens, -1: none. No reference is taken. */
int32_t pi__block_find(const pi__block_pool *p, const pi__block_key *key, const int32_t *tokens);
/* Calls fn for each free block without a hash whose memory was written, and forgets that it was. */
void pi__block_pool_trim(pi__block_pool *p, void (*fn)(void *ud, int32_t id), void *ud);
/* Forgets the hashes of a tenant's blocks, also of those in use; tenant NULL: of all. */
void pi__block_pool_clear(pi__block_pool *p, const uint64_t *tenant);

/* The same as pi__cache_check for a pool, whose blocks should have refs[n_blocks] references (cache_check.c). */
const char *pi__block_pool_check(const pi__block_pool *p, const int32_t *refs);

/* The hash of parent's prefix extended by n tokens. sparse: with sparse attention, which gives other bytes. */
pi__digest pi__block_hash_extend(const pi__digest *parent, const int32_t *tokens, int32_t n, bool sparse);
/* Tenant of a salt; "" and NULL: 0, shared by all. */
uint64_t pi__tenant_of(const char *salt);
/* Where prefixes with this salt begin; of sample group number n, whose prefixes nobody else finds. */
pi__block_root pi__block_root_of(const char *salt);
pi__block_root pi__block_root_private(uint64_t n);
/* tenant NULL: all. */
static inline bool pi__block_of_tenant(const pi__block_key *key, const uint64_t *tenant)
{
    return !tenant || key->tenant == *tenant;
}

#endif
