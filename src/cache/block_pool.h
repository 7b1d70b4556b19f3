/* A pool of cache blocks of equal size: reference counts, the free list, and the hash table of blocks with a known
 * prefix.
 *
 *   block 0   block 1   block 2   block 3          ref > 0: in a block table ("used")
 *   ref 2     ref 0     ref 1     ref 0            ref 0: on the free list; with a hash it can be found ("cached")
 *
 *   free list, in the order of eviction:   head -> 1 -> 3 <- tail
 *
 * A full block is immutable and gets a key: the chained digest of the salt and all tokens up to the block's end (hash),
 * and the digest up to its start (parent). A hit must match the key and all tokens of the block. get_new takes the head
 * of the free list and drops its hash; touch takes a block from anywhere in the list in O(1). Released blocks without a
 * hash are put at the head, hashed blocks at the tail, so prefixes stay until their memory is needed. A hashed block
 * that is unlikely to be reused (low priority) is put at the head, too.
 *
 * After vLLM V1's block pool. Memory: one allocation at init, none later. One thread. */
#ifndef PI__BLOCK_POOL_H
#define PI__BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "pagedinfer.h"

/* Identity of a full block. The tenant is derived from the salt and used by pi__cache_clear; it is not compared on a
 * hit. */
typedef struct pi__block_key {
    pi__digest hash;      /* digest of the prefix that ends with the block */
    pi__digest parent;    /* digest of the prefix that ends where the block begins */
    uint64_t tenant;      /* pi__tenant_of the salt */
} pi__block_key;

/* The empty prefix of a tenant. */
typedef struct pi__block_root {
    pi__digest hash;      /* digest of the empty prefix; pi__digest_none without a salt */
    uint64_t tenant;      /* 0 = no salt */
} pi__block_root;

typedef struct pi__block {
    pi__block_key key;    /* valid if hashed is true */
    int32_t ref;          /* number of block tables and other holders that reference the block */
    int32_t prev;         /* in the free list, -1 = none */
    int32_t next;         /* in the free list, -1 = none */
    int32_t chain;        /* next block in the hash bucket, -1 = none */
    bool hashed;          /* the hash table contains the block */
    /* get_new has returned the block since its memory was last returned to the system, so the memory may be committed
     * */
    bool written;
    bool low_priority;    /* on the free list among the blocks that are evicted first */
    bool offload_tried;   /* a copy to a tier was tried since the block last left the free list */
    bool pinned_for_copy; /* a copy to a tier is pending: get_new skips the block while it is on the free list */
    bool is_private;      /* the prefix belongs to a sample group (pi__cache_start_private): tiers get no copy */
    /* number of get_new calls that returned the block; a changed value shows that the block was reused */
    uint32_t generation;
} pi__block;

typedef struct pi__block_pool {
    pi__block *block;          /* [n_blocks] */
    int32_t *token;            /* [n_blocks, block_size] token ids of hashed blocks, compared on a hit */
    int32_t *bucket;           /* [n_buckets] first block of each hash chain, -1 = none */
    int32_t n_blocks;          /* total blocks */
    int32_t block_size;        /* tokens per block */
    uint32_t n_buckets;        /* a power of two */
    int32_t head, tail;        /* free list, -1 = empty */
    int32_t n_free;            /* blocks on the free list */
    int32_t n_pinned_for_copy; /* pinned blocks on the free list, which get_new skips */
    int32_t n_cached;          /* hashed blocks on the free list */
    int32_t n_shared;          /* blocks with more than one reference */
    int32_t n_written;         /* blocks with `written` set */
    uint64_t n_evicted;        /* hashes dropped by eviction */
    struct pi__prefix_index *index; /* notified of blocks that gain or lose a hash; NULL = no index */
    int32_t group;             /* group number of this pool in the index */
} pi__block_pool;

int pi__block_pool_init(pi__block_pool *p, int32_t n_blocks, int32_t block_size, pi_error *err);
/* Returns the bytes that init allocates, for the planner. */
size_t pi__block_pool_bytes(int32_t n_blocks, int32_t block_size);
void pi__block_pool_destroy(pi__block_pool *p);
/* Returns the number of blocks that get_new can hand out. */
static inline int32_t pi__block_available(const pi__block_pool *p) { return p->n_free - p->n_pinned_for_copy; }
/* Pins or unpins the block for a copy: get_new skips a pinned block. */
void pi__block_hold(pi__block_pool *p, int32_t id, bool pinned_for_copy);
/* Returns a block with ref 1 and no hash: the first of the free list that is not pinned. If the block had a hash, its
 * prefix is evicted. -1 = none available. */
int32_t pi__block_get_new(pi__block_pool *p);
/* Adds a reference; a free block leaves the free list. */
void pi__block_touch(pi__block_pool *p, int32_t id);
/* Drops a reference. At 0 the block joins the free list: at the tail if it has a hash, else at the head. Release the
 * blocks of a table from the last to the first, so that its first blocks are evicted last. */
void pi__block_release(pi__block_pool *p, int32_t id);
/* Like pi__block_release, but at 0 the block joins the head of the free list even if it has a hash. */
void pi__block_release_low_priority(pi__block_pool *p, int32_t id);
/* Assigns the key and block_size tokens to block id, which must be referenced, and adds it to the hash table. No-op if
 * the block has a key already, or if another block has this key and these tokens. */
void pi__block_set_hash(pi__block_pool *p, int32_t id, const pi__block_key *key, const int32_t *tokens);
/* Returns the block with this hash, parent and block_size tokens, -1 = none. Takes no reference. */
int32_t pi__block_find(const pi__block_pool *p, const pi__block_key *key, const int32_t *tokens);
/* Calls fn for each free block without a hash that may have committed memory, and marks the block as not written. */
void pi__block_pool_trim(pi__block_pool *p, void (*fn)(void *ud, int32_t id), void *ud);
/* Drops the hashes of a tenant's blocks, including blocks in use; tenant NULL = all tenants. */
void pi__block_pool_clear(pi__block_pool *p, const uint64_t *tenant);

/* Like pi__cache_check for one pool (cache_check.c). refs [n_blocks]: expected reference counts. */
const char *pi__block_pool_check(const pi__block_pool *p, const int32_t *refs);

/* Returns the hash of parent's prefix extended by n tokens. sparse: true = the block is computed with sparse attention,
 * so its bytes (and its hash) differ. */
pi__digest pi__block_hash_extend(const pi__digest *parent, const int32_t *tokens, int32_t n, bool sparse);
/* An image in a prompt: tokens start..start + n - 1. Their ids do not tell their content; id does. */
typedef struct pi__block_media {
    int32_t start, n;
    pi__digest id;        /* identity of the image: of its source, sizes, preprocessing and tower */
} pi__block_media;
/* As pi__block_hash_extend, for the tokens first..first + n - 1 of a prompt with these images. media: [n_media],
 * ascending. Equal to pi__block_hash_extend if no image touches these tokens. */
pi__digest pi__block_hash_media(const pi__digest *parent, const int32_t *tokens, int32_t n, bool sparse, int32_t first,
                                const pi__block_media *media, int32_t n_media);
/* Returns the tenant of a salt; 0 for "" and NULL: all requests without a salt are one tenant. */
uint64_t pi__tenant_of(const char *salt);
/* Return the root (empty prefix) of prefixes with this salt, and of prefixes that are private to sample group n. */
pi__block_root pi__block_root_of(const char *salt);
pi__block_root pi__block_root_private(uint64_t n);
/* Returns true if the block belongs to the tenant; tenant NULL = any tenant. */
static inline bool pi__block_of_tenant(const pi__block_key *key, const uint64_t *tenant)
{
    return !tenant || key->tenant == *tenant;
}

#endif
