/* The cache of all layers, as groups: what a sequence holds in each, and how much of a prompt is already there.
 *
 * Layers that remember alike are one group with a block pool of its own:
 *   full    every token stays
 *   window  the last W tokens stay: a sequence's blocks wholly behind the window are given back while it runs
 *           (with `keep`, more of them than a prefix needs that another sequence takes over)
 *   state   nothing a token: a running sequence has a state of its own elsewhere, and the pool holds snapshots of such
 *           states after so many tokens, from which another sequence can go on
 *
 * A sequence has one block table a group; entry i is the block of tokens [i*block_size, (i+1)*block_size):
 *
 *   full     [ 7 ][ 2 ][ 9 ][ 4 ]         4 blocks of 16: 64 tokens, positions 0..63
 *   window   [-1 ][-1 ][ 5 ][ 3 ]         W = 20: the first two are behind the window
 *
 * Groups may have blocks of different sizes; prefixes are taken over in multiples of the largest, so that each group's
 * blocks end there. Tables only append. This layer knows blocks, tokens and hashes, never what the blocks contain.
 * Memory: allocated by create; sequences use table rows that belong to the cache. One thread (the step thread). */
#ifndef PI__CACHE_H
#define PI__CACHE_H

#include "cache/block_pool.h"

typedef struct pi__group_spec {
    const char *name;    /* "full", "window", "recurrent" */
    int32_t block_size;  /* tokens a block; snapshots are taken at multiples of it */
    int32_t window;      /* tokens that are attended to; 0: all. With keep: that the first one after a prefix attends to,
                          * itself included (1: nothing of the prefix is needed, and no prefix is kept) */
    int32_t n_blocks;    /* blocks in the pool, or snapshots */
    bool state;          /* a state group */
    int32_t keep;        /* most tokens that any one attends to, itself included; 0: window */
} pi__group_spec;

enum { PI__CACHE_MAX_GROUPS = 8, PI__MAX_BLOCK = 128 /* tokens a block */ };

/* Tokens from..end of a sequence whose attention is sparse (sparse prefill): in blocks of `step`, whose choice of keys takes
 * all of a block's queries. So chunks, and prefixes that are taken over, end at multiples of step there; from and end are
 * such. Empty: nothing is sparse. */
typedef struct pi__sparse_span {
    int32_t from, end, step;
} pi__sparse_span;
static inline bool pi__in_span(const pi__sparse_span *s, int32_t pos) { return pos >= s->from && pos < s->end; }
/* n, or the last position before it at which a chunk may end. */
static inline int32_t pi__span_cut(const pi__sparse_span *s, int32_t n) { return pi__in_span(s, n) ? n - n % s->step : n; }

typedef struct pi__cache_group {
    pi__group_spec spec;  /* as given */
    pi__block_pool pool;  /* its blocks */
    int32_t *table;       /* [max_seqs, stride] block ids */
    int32_t stride;       /* entries a row; 0 of a state group */
} pi__cache_group;

typedef struct pi__cache {
    pi__cache_group group[PI__CACHE_MAX_GROUPS];
    int32_t n_groups;      /* groups in use */
    int32_t hash_block;    /* tokens a block hash: the smallest block size */
    int32_t reuse_block;   /* prefixes are taken over in multiples of it: the largest block size */
    int32_t max_seqs;      /* table rows */
    struct pi__cache_seq *seq; /* [max_seqs] */
    pi__digest *hashes;    /* [max_seqs, hashes_stride] chained block hashes of each sequence */
    int32_t hashes_stride; /* hashes a row */
    /* The first n tokens of row s are a reuse point: another sequence is likely to go on from there. Blocks behind a
     * window get low priority unless they cover the window of a reuse point. NULL: there are none. */
    bool (*reuse_point)(void *ud, int32_t s, int32_t n);
    void *reuse_point_ud;  /* its first argument */
    /* Told of each block that gets its hash; may be NULL. */
    void (*hashed)(void *ud, int32_t group, int32_t block, const pi__block_key *key, const int32_t *tokens);
    void *hashed_ud;       /* its first argument */
    struct pi__prefix_index *index; /* knows which prefixes could be taken over; NULL: nobody asked */
} pi__cache;

/* The sequence of a table row. Rows are numbered 0..max_seqs-1 and chosen by the scheduler. */
typedef struct pi__cache_seq {
    int32_t n_hashes;                           /* chained block hashes known, for hash_block tokens each */
    int32_t n_blocks[PI__CACHE_MAX_GROUPS];     /* entries in the table row, freed ones included */
    int32_t n_freed[PI__CACHE_MAX_GROUPS];      /* leading entries that were given back (-1) */
    int32_t n_hashed[PI__CACHE_MAX_GROUPS];     /* leading entries whose blocks have their hash */
    int32_t snapshot[PI__CACHE_MAX_GROUPS];     /* of a state group: the one that match found, -1: start from nothing */
    pi__block_root root;                        /* its empty prefix */
    uint64_t left_for;                          /* released: whose hashes it still has (pi__cache_leave); 0: nobody's */
    bool is_private;                            /* `hashed` is not called for its blocks */
    uint32_t without;                           /* bit of each group that it has nothing in */
    pi__sparse_span sparse;                     /* blocks in it are keyed apart from those that are not sparse */
} pi__cache_seq;

/* Entries of a block table of the group, for sequences of so many tokens. */
int32_t pi__cache_stride(const pi__group_spec *g, int32_t max_ctx);
/* Bytes that init allocates, pools' block lists included; for the planner. SIZE_MAX: too many. */
size_t pi__cache_bytes(const pi__group_spec *spec, int32_t n_groups, int32_t max_seqs, int32_t max_ctx);
/* Block sizes must be multiples of the smallest one, and divide the largest. max_ctx: tokens of the longest sequence; no
 * more than the pools hold, or the tables are larger than they need be. */
int pi__cache_init(pi__cache *c, const pi__group_spec *spec, int32_t n_groups, int32_t max_seqs, int32_t max_ctx,
                   pi_error *err);
void pi__cache_destroy(pi__cache *c);

/* Starts row s, empty. */
void pi__cache_start(pi__cache *c, int32_t s, const char *salt);
/* Releases row s, whose sequence was not admitted: the next try of the same owner (not 0) goes on with its hashes. */
void pi__cache_leave(pi__cache *c, int32_t s, uint64_t owner);
/* Starts row s as its owner left it, with the same salt, variant and span. false: it was not left for this owner. */
bool pi__cache_start_again(pi__cache *c, int32_t s, uint64_t owner);
/* Row s, just started, has nothing in these groups (bits): they have no say in what it finds, and get nothing of it. */
void pi__cache_start_without(pi__cache *c, int32_t s, uint32_t groups);
/* Row s, just started, has sparse prefill. */
void pi__cache_start_sparse(pi__cache *c, int32_t s, const pi__sparse_span *span);
/* Row s, just started and given its root, shares only with rows of the same variant: another model, in effect, has computed
 * what it holds. pi__digest_none: the model itself. */
void pi__cache_start_variant(pi__cache *c, int32_t s, const pi__digest *variant);
/* true: row s has something in group g. */
static inline bool pi__cache_has(const pi__cache *c, int32_t s, int32_t g) { return !(c->seq[s].without >> g & 1); }
/* Row s, just started, shares only with rows of the same root, and `hashed` hears nothing of it. */
void pi__cache_start_private(pi__cache *c, int32_t s, const pi__block_root *root);
/* Takes over the longest prefix of tokens[0..n) that every group still has, at most n - 1 tokens, so that there is
 * something left to compute. Returns its length; *matched becomes the longest that any group has. */
int32_t pi__cache_match(pi__cache *c, int32_t s, const int32_t *tokens, int32_t n, int32_t *matched);
/* Tokens at the start of row s that row t holds or will hold, too: s could reuse them once t computed them. Only what
 * match or commit hashed is compared. */
int32_t pi__cache_common(const pi__cache *c, int32_t s, int32_t t);
/* Hash of the first i + 1 hash blocks of row s; match or commit made it. */
const pi__digest *pi__cache_hash(const pi__cache *c, int32_t s, int32_t i);
/* Key of block i of row s, where blocks have block_size tokens; match or commit made its hash. */
pi__block_key pi__cache_key(const pi__cache *c, int32_t s, int32_t block_size, int32_t i);
/* fn is told what a request could take over, as it changes (prefix_index.h says more); once, before the first sequence.
 * Groups of `without` (bits) have no say. */
int pi__cache_listen(pi__cache *c, uint32_t without, pi_cache_event_fn fn, void *ud, pi_error *err);
/* Blocks of the first n_hashes hash blocks of row s may come from elsewhere than commit: a tier. */
void pi__cache_expect(const pi__cache *c, int32_t s, const int32_t *tokens, int32_t n_hashes);
/* Row s can hold n_tokens tokens from here on. false: out of blocks, nothing changed. */
bool pi__cache_reserve(pi__cache *c, int32_t s, int32_t n_tokens);
/* tokens[0..n_computed) are in the cache: full blocks get their hashes (if keep), blocks behind windows are given
 * back. */
void pi__cache_commit(pi__cache *c, int32_t s, const int32_t *tokens, int32_t n_computed, bool keep);
/* A snapshot of state group g for the first n tokens (a multiple of its block size) of row s, to be filled by the caller
 * and then given to snapshot_done; -1: that prefix has one, or none is to be had. */
int32_t pi__cache_snapshot(pi__cache *c, int32_t s, int32_t g, const int32_t *tokens, int32_t n);
/* It is filled and can be found from now on; or, filled false, it is given back empty. */
void pi__cache_snapshot_done(pi__cache *c, int32_t s, int32_t g, const int32_t *tokens, int32_t n, int32_t id,
                             bool filled);
/* Gives back all blocks of row s; hashed ones stay findable. */
void pi__cache_release(pi__cache *c, int32_t s);
/* Forgets the prefixes of a tenant, or with NULL of all. Sequences keep what they hold. */
void pi__cache_clear(pi__cache *c, const uint64_t *tenant);
/* The first broken invariant of the cache, in words; NULL: none. References must be those of the tables and of
 * more[group][block], where more is not NULL; the free list those without any, in order of eviction; the index all
 * hashed blocks, each once; tables within their rows and pools. For tests: it looks at everything. */
const char *pi__cache_check(const pi__cache *c, const int32_t *const *more);
/* The first block that a reused prefix of n tokens, a multiple of reuse_block, needs of group g; it needs all from there
 * to its end. */
int32_t pi__group_first(const pi__group_spec *g, int32_t n);
/* Tokens that a running sequence keeps of a window group. */
static inline int32_t pi__group_window(const pi__group_spec *g) { return g->keep ? g->keep : g->window; }
/* Every token stays: the longest prefix ends at the first block that is missing. */
static inline bool pi__group_is_full(const pi__group_spec *g) { return !g->window && !g->state; }
/* Blocks of group g that n_tokens tokens take at most at one time, computed chunk tokens a step. */
int32_t pi__group_need(const pi__group_spec *g, int32_t n_tokens, int32_t chunk);

#endif
