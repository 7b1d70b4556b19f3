/* The cache of all layers, as groups: the blocks of each sequence in each group, and the reuse of prefixes.
 *
 * Layers with the same retention form a group with its own block pool:
 *   full    every token stays
 *   window  the last W tokens stay: blocks completely before the window are released while the sequence runs
 *           (if spec.keep is set, a running sequence keeps more tokens than a reused prefix needs)
 *   state   no per-token data: the state of a running sequence is outside this cache. A block of the pool is a
 *           snapshot: the state after some number of tokens, from which another sequence can continue
 *
 * A sequence has one block table per group; entry i is the block of tokens [i*block_size, (i+1)*block_size):
 *
 *   full     [ 7 ][ 2 ][ 9 ][ 4 ]         4 blocks of 16: 64 tokens, positions 0..63
 *   window   [-1 ][-1 ][ 5 ][ 3 ]         W = 20: the first two blocks are before the window
 *
 * Groups may have different block sizes. Prefixes are reused in multiples of the largest block size, so that blocks of
 * every group end there. Tables only append. This layer knows blocks, tokens and hashes, never the content of blocks.
 * Memory: allocated by init; sequences use table rows that belong to the cache. One thread (the step thread). */
#ifndef PI__CACHE_H
#define PI__CACHE_H

#include "cache/block_pool.h"

typedef struct pi__group_spec {
    const char *name;    /* "full", "window", "recurrent" */
    int32_t block_size;  /* tokens per block; state group: snapshots are taken at multiples of block_size tokens */
    /* Tokens that a token attends to, itself included; 0 = all. If keep is set: tokens that the first token after a
     * reused prefix attends to, itself included; 1 = it needs no block of the prefix, so this group does not limit
     * reuse. */
    int32_t window;
    int32_t n_blocks;    /* blocks in the pool; state group: snapshots */
    bool state;          /* a state group */
    int32_t keep;        /* max tokens that any token attends to, itself included; 0 = same as window */
} pi__group_spec;

enum { PI__CACHE_MAX_GROUPS = 8, PI__MAX_BLOCK = 128 /* tokens per block */ };

/* Tokens from..end - 1 of a sequence use sparse prefill, in query blocks of `step` tokens: all queries of a query block
 * attend to the same key blocks. So within the span, chunks and reused prefixes end at multiples of step; from and end
 * are multiples of step. from = end: dense attention. */
typedef struct pi__sparse_span {
    int32_t from, end, step;
} pi__sparse_span;
static inline bool pi__in_span(const pi__sparse_span *s, int32_t pos) { return pos >= s->from && pos < s->end; }
/* Returns the largest position <= n at which a chunk may end. */
static inline int32_t pi__span_cut(const pi__sparse_span *s, int32_t n)
{
    return pi__in_span(s, n) ? n - n % s->step : n;
}

typedef struct pi__cache_group {
    pi__group_spec spec;  /* the spec given to init */
    pi__block_pool pool;  /* blocks of the group (state group: snapshots) */
    int32_t *table;       /* [max_seqs, stride] block ids */
    int32_t stride;       /* entries per row; 0 for a state group */
} pi__cache_group;

typedef struct pi__cache {
    pi__cache_group group[PI__CACHE_MAX_GROUPS];
    int32_t n_groups;      /* groups in use */
    int32_t hash_block;    /* tokens per hash block (one chained hash each): the smallest block size */
    int32_t reuse_block;   /* granularity of prefix reuse, tokens: the largest block size */
    int32_t max_seqs;      /* table rows */
    struct pi__cache_seq *seq; /* [max_seqs] */
    pi__digest *hashes;    /* [max_seqs, hashes_stride] chained block hashes of each row */
    int32_t hashes_stride; /* hashes per row */
    /* Returns true if another sequence is likely to continue from the first n tokens of row s (a reuse point). Blocks
     * before a window are released with low priority unless a reuse point has them in its window. NULL = no reuse
     * points. */
    bool (*reuse_point)(void *ud, int32_t s, int32_t n);
    void *reuse_point_ud;  /* first argument of reuse_point */
    /* Called when commit or snapshot_done gives a block its hash, except for private rows; may be NULL. */
    void (*hashed)(void *ud, int32_t group, int32_t block, const pi__block_key *key, const int32_t *tokens);
    void *hashed_ud;       /* first argument of hashed */
    struct pi__prefix_index *index; /* reports to a listener which prefixes can be reused; NULL = no listener */
} pi__cache;

/* The sequence of a table row. Rows are numbered 0..max_seqs-1 and assigned by the scheduler. */
typedef struct pi__cache_seq {
    int32_t n_hashes;                           /* chained hashes computed so far, one per hash_block tokens */
    int32_t n_blocks[PI__CACHE_MAX_GROUPS];     /* entries in the table row, including released ones */
    int32_t n_freed[PI__CACHE_MAX_GROUPS];      /* leading entries that were released (-1) */
    /* leading entries that commit or match has processed: their blocks have a hash, or need none */
    int32_t n_hashed[PI__CACHE_MAX_GROUPS];
    /* state group: id of the snapshot that match found; -1 = none, the sequence starts from a zero state */
    int32_t snapshot[PI__CACHE_MAX_GROUPS];
    pi__block_root root;                        /* hash and tenant of its empty prefix */
    /* owner given to pi__cache_leave, which may reuse the row's hashes; 0 = none */
    uint64_t left_for;
    bool is_private;                            /* the callback pi__cache.hashed is not called for the row's blocks */
    uint32_t skip_groups;                       /* bit of each group that the sequence does not use */
    /* hash blocks that begin in this span get other hashes than with dense attention */
    pi__sparse_span sparse;
    /* [n_media] images of the prompt, ascending; owned by the caller of pi__cache_start_media */
    const pi__block_media *media;
    int32_t n_media;
    bool media_whole;                           /* tokens of an image see each other: no prefix ends within one */
} pi__cache_seq;

/* Returns the block table entries of the group for sequences of max_ctx tokens. */
int32_t pi__cache_stride(const pi__group_spec *g, int32_t max_ctx);
/* Returns the bytes that init allocates, including the pools' block lists; for the planner. SIZE_MAX = overflow. */
size_t pi__cache_bytes(const pi__group_spec *spec, int32_t n_groups, int32_t max_seqs, int32_t max_ctx);
/* Block sizes must be multiples of the smallest one and divide the largest. max_ctx: tokens of the longest sequence;
 * limit it to the capacity of the pools to avoid oversized tables. */
int pi__cache_init(pi__cache *c, const pi__group_spec *spec, int32_t n_groups, int32_t max_seqs, int32_t max_ctx,
                   pi_error *err);
void pi__cache_destroy(pi__cache *c);

/* Starts row s as an empty sequence. */
void pi__cache_start(pi__cache *c, int32_t s, const char *salt);
/* Releases row s of a sequence that was not admitted. Keeps its hashes for the next try of the same owner (not 0). */
void pi__cache_leave(pi__cache *c, int32_t s, uint64_t owner);
/* Restarts row s with the hashes that the owner left; salt, variant and span are unchanged. Returns false, and changes
 * nothing, if the row was not left by this owner. */
bool pi__cache_start_again(pi__cache *c, int32_t s, uint64_t owner);
/* Row s, just started, does not use the groups in the bit mask `groups`: they do not limit its match, and the row holds
 * none of their blocks. */
void pi__cache_skip_groups(pi__cache *c, int32_t s, uint32_t groups);
/* Sets the sparse prefill span of row s, just started. */
void pi__cache_start_sparse(pi__cache *c, int32_t s, const pi__sparse_span *span);
/* Sets the images in the prompt of row s, just started. The array stays valid while the row is in use. whole: tokens of
 * an image see each other, so that an image is computed in one step and no reused prefix ends within one. */
void pi__cache_start_media(pi__cache *c, int32_t s, const pi__block_media *media, int32_t n, bool whole);
/* Returns the largest position <= n at which a chunk of row s may end: not within a sparse block or a whole image. */
int32_t pi__cache_cut(const pi__cache *c, int32_t s, int32_t n);
/* Row s, just started and given its root, shares prefixes only with rows of the same variant, because adapters change
 * the cached bytes. An all-zero digest (pi__digest_none) = the base model. */
void pi__cache_start_variant(pi__cache *c, int32_t s, const pi__digest *variant);
/* Returns true if row s uses group g. */
static inline bool pi__cache_has(const pi__cache *c, int32_t s, int32_t g) { return !(c->seq[s].skip_groups >> g & 1); }
/* Row s, just started, shares prefixes only with rows of the same root; `hashed` is not called for its blocks. */
void pi__cache_start_private(pi__cache *c, int32_t s, const pi__block_root *root);
/* Reuses the longest prefix of tokens[0..n) that every group of the row still has: puts its blocks into the tables of
 * row s, with a reference each. At most n - 1 tokens, since one token must be left to compute. Returns the length of
 * the prefix in tokens. *matched = length of the longest prefix that a group has. */
int32_t pi__cache_match(pi__cache *c, int32_t s, const int32_t *tokens, int32_t n, int32_t *matched);
/* Returns the number of leading tokens that rows s and t have in common, in multiples of hash_block: s could reuse them
 * once t has computed them. Compares only tokens hashed by match or commit. */
int32_t pi__cache_common(const pi__cache *c, int32_t s, int32_t t);
/* Returns the chained hash of the first i + 1 hash blocks of row s, which match or commit must have computed. */
const pi__digest *pi__cache_hash(const pi__cache *c, int32_t s, int32_t i);
/* Returns the key of block i of row s for blocks of block_size tokens, a multiple of hash_block. match or commit must
 * have computed the hashes up to the block's end. */
pi__block_key pi__cache_key(const pi__cache *c, int32_t s, int32_t block_size, int32_t i);
/* Registers fn to be called when the set of reusable prefixes changes (see prefix_index.h). Call once, before the first
 * sequence. Groups in the bit mask skip_groups are ignored. */
int pi__cache_listen(pi__cache *c, uint32_t skip_groups, pi_cache_event_fn fn, void *ud, pi_error *err);
/* Adds the first n_hashes hash blocks of row s to the prefix index, so that it can report blocks that a tier adds for
 * them. No-op without an index, or for a row that is private, has a salt or uses adapters. */
void pi__cache_expect(const pi__cache *c, int32_t s, const int32_t *tokens, int32_t n_hashes);
/* Allocates blocks so that row s can hold n_tokens tokens. Returns false, and changes nothing, if a pool has too few
 * blocks. */
bool pi__cache_reserve(pi__cache *c, int32_t s, int32_t n_tokens);
/* Marks tokens[0..n_computed) of row s as computed, and releases blocks before windows. keep: true = full blocks get
 * their hashes, so that other sequences can reuse them. */
void pi__cache_commit(pi__cache *c, int32_t s, const int32_t *tokens, int32_t n_computed, bool keep);
/* Allocates a snapshot of state group g for the first n tokens (a multiple of its block size) of row s. The caller
 * fills it and then calls pi__cache_snapshot_done. Returns its id; -1 = that prefix has a snapshot already, or none is
 * free. */
int32_t pi__cache_snapshot(pi__cache *c, int32_t s, int32_t g, const int32_t *tokens, int32_t n);
/* Ends a snapshot. filled: true = it gets its hash and can be found from now on; false = it is released without a
 * hash. */
void pi__cache_snapshot_done(pi__cache *c, int32_t s, int32_t g, const int32_t *tokens, int32_t n, int32_t id,
                             bool filled);
/* Releases all blocks of row s; hashed ones stay in the prefix cache. */
void pi__cache_release(pi__cache *c, int32_t s);
/* Drops the prefixes of a tenant; tenant NULL = all tenants. Running sequences keep their blocks. */
void pi__cache_clear(pi__cache *c, const uint64_t *tenant);
/* Returns a description of the first broken invariant of the cache, NULL = all hold. For tests. Checks: reference
 * counts equal the number of table entries, plus more[group][block] if more is not NULL; the free list has all blocks
 * without references, in order of eviction; the hash table has each hashed block once; tables stay within their rows
 * and pools. */
const char *pi__cache_check(const pi__cache *c, const int32_t *const *more);
/* Returns the index of the first block of group g that a reused prefix of n tokens (a multiple of reuse_block) needs.
 * The prefix needs all blocks from there to its end. */
int32_t pi__group_first(const pi__group_spec *g, int32_t n);
/* Returns the number of leading blocks of group g that no token at position >= n attends to, if each token attends to
 * the last `window` tokens, itself included. Returns 0 if window is 0. */
int32_t pi__group_behind(const pi__group_spec *g, int32_t window, int32_t n);
/* Returns the tokens that a running sequence keeps in a window group. */
static inline int32_t pi__group_window(const pi__group_spec *g) { return g->keep ? g->keep : g->window; }
/* Returns true for a group of full attention: every token stays, so the longest prefix ends at the first missing
 * block. */
static inline bool pi__group_is_full(const pi__group_spec *g) { return !g->window && !g->state; }
/* Returns the max number of blocks of group g that a sequence of n_tokens tokens holds at any time, if it is computed
 * in chunks of `chunk` tokens. */
int32_t pi__group_need(const pi__group_spec *g, int32_t n_tokens, int32_t chunk);

#endif
