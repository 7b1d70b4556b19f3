/* The prefix index (see prefix_index.h).
 *
 * A node is a hash block of a prefix. node.have has a bit for each group that holds the block that ends with the node.
 * Derived from it:
 *
 *     reach   all groups of full attention have all blocks up to the node's end
 *     end     a request can reuse the prefix that ends with the node
 *     n_live  number of live children; a node is live if it is an end or has a live child
 *
 * A block that is put or dropped can change `reach` of descendants, and `end` of nodes within a window after the block.
 * These changes can make ancestors live or not live. The listener knows the live nodes that end at multiples of
 * reuse_block. */
#include "cache/prefix_index.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

enum { ROOT = 0, SLACK = 1024 /* nodes in addition to those of the pools' blocks */ };

typedef struct node {
    pi__digest hash;       /* digest of the prefix that ends with the node */
    int32_t parent;        /* node of the previous hash block; -1 = the root, or a free node */
    int32_t child;         /* first child, -1 = none */
    int32_t prev, next;    /* siblings, -1 = none; in a free node, next = the next free node */
    int32_t chain;         /* next in the hash bucket, -1 = none */
    int32_t depth;         /* hash blocks from the root to this node, including this node */
    int32_t n_live;        /* live children */
    uint8_t have;          /* bit of each group that holds the block that ends with this node */
    bool reach, end;       /* see the comment at the top of this file */
} node;

struct pi__prefix_index {
    const pi__cache *cache;
    pi_cache_event_fn fn;  /* the listener */
    void *ud;              /* first argument of fn */
    uint32_t skip_groups;  /* bit of each group to ignore */
    node *node;            /* [n_nodes] node 0 is the empty prefix */
    int32_t *token;        /* [n_nodes, hash_block] */
    int32_t *bucket;       /* [n_buckets] first node of each hash chain, -1 = none */
    int32_t *path;         /* [deepest] nodes that one change made live or not live, from a descendant up */
    uint64_t *hash;        /* [deepest] hashes that an event reports */
    int32_t *told;         /* [deepest * hash_block] tokens that an event reports */
    int32_t n_nodes, first_free, deepest;
    uint32_t n_buckets;    /* a power of two */
};

static bool counts(const pi__prefix_index *x, int32_t g)
{
    return !(x->skip_groups >> g & 1) && x->cache->group[g].spec.window != 1;
}

static int32_t tokens_of(const pi__prefix_index *x, const node *n) { return n->depth * x->cache->hash_block; }
static bool is_told(const pi__prefix_index *x, const node *n) { return tokens_of(x, n) % x->cache->reuse_block == 0; }
static uint64_t told_hash(const node *n) { return pi__digest_word(&n->hash); }
static bool is_live(const node *n) { return n->end || n->n_live > 0; }
static int32_t *bucket_of(const pi__prefix_index *x, const pi__digest *h)
{
    return &x->bucket[pi__digest_word(h) & (x->n_buckets - 1)];
}

static int32_t find(const pi__prefix_index *x, const pi__digest *h)
{
    int32_t i = *bucket_of(x, h);
    while (i >= 0 && !pi__digest_equal(&x->node[i].hash, h)) i = x->node[i].chain;
    return i;
}

/* ----------------------------------------------------------------------------------------------------------- nodes */

static void reset(pi__prefix_index *x)
{
    memset(x->bucket, 0xff, x->n_buckets * sizeof *x->bucket);
    for (int32_t i = 0; i < x->n_nodes; i++)
        x->node[i] = (node) {
            .parent = -1, .child = -1, .prev = -1, .next = i + 1 < x->n_nodes ? i + 1 : -1, .chain = -1};
    x->node[ROOT].next = -1;
    x->node[ROOT].reach = true;
    x->first_free = ROOT + 1;
}

static void lay_out(pi__prefix_index *x, const pi__cache *c, pi__arena *a)
{
    int64_t n = SLACK;
    for (int32_t g = 0; g < c->n_groups; g++)
        n += (int64_t) c->group[g].spec.n_blocks * (c->group[g].spec.block_size / c->hash_block);
    x->n_nodes = n < INT32_MAX / 4 ? (int32_t) n : INT32_MAX / 4;
    for (x->n_buckets = 16; x->n_buckets < (uint32_t) x->n_nodes;) x->n_buckets *= 2;
    x->deepest = c->hashes_stride + 1;
    const size_t N = (size_t) x->n_nodes, D = (size_t) x->deepest, H = (size_t) c->hash_block;
    x->node = pi__arena_take(a, N * sizeof *x->node); /* must be first: pi__prefix_index_close frees this address */
    x->token = pi__arena_take(a, N * H * sizeof *x->token);
    x->bucket = pi__arena_take(a, x->n_buckets * sizeof *x->bucket);
    x->path = pi__arena_take(a, D * sizeof *x->path);
    x->hash = pi__arena_take(a, D * sizeof *x->hash);
    x->told = pi__arena_take(a, D * H * sizeof *x->told);
}

int pi__prefix_index_open(pi__prefix_index **out, const pi__cache *c, uint32_t skip_groups, pi_cache_event_fn fn,
                          void *ud, pi_error *err)
{
    pi__prefix_index *x = pi__calloc(1, sizeof *x);
    pi__arena a = {0};
    if (!x) return pi__fail_mem(err, "the index of prefixes");
    lay_out(x, c, &a); /* first pass: measures */
    a = (pi__arena) {.base = pi__calloc(1, a.used), .size = a.used};
    if (!a.base) {
        pi__free(x);
        return pi__fail_mem(err, "the index of prefixes");
    }
    lay_out(x, c, &a);
    x->cache = c;
    x->skip_groups = skip_groups;
    x->fn = fn;
    x->ud = ud;
    reset(x);
    *out = x;
    return PI_OK;
}

void pi__prefix_index_close(pi__prefix_index *x)
{
    if (x) pi__free(x->node);
    pi__free(x);
}

static void unlink_node(pi__prefix_index *x, int32_t i)
{
    node *n = &x->node[i];
    int32_t *at = bucket_of(x, &n->hash);
    while (*at != i) at = &x->node[*at].chain;
    *at = n->chain;
    if (n->prev >= 0) x->node[n->prev].next = n->next;
    else x->node[n->parent].child = n->next;
    if (n->next >= 0) x->node[n->next].prev = n->prev;
    *n = (node) {.parent = -1, .child = -1, .prev = -1, .next = x->first_free, .chain = -1};
    x->first_free = i;
}

/* Preorder walk of the subtree of `top`: returns the node after i, -1 = end. below: false = skips the descendants of
 * i. */
static int32_t walk(const pi__prefix_index *x, int32_t top, int32_t i, bool below)
{
    if (below && x->node[i].child >= 0) return x->node[i].child;
    while (i != top && x->node[i].next < 0) i = x->node[i].parent;
    return i == top ? -1 : x->node[i].next;
}

/* Frees all nodes without `reach`: they follow a missing block of full attention, so they are not reported. */
static void forget_unreached(pi__prefix_index *x)
{
    for (int32_t i = x->n_nodes - 1; i > ROOT; i--) {
        if (x->node[i].parent < 0 || x->node[i].reach) continue;
        while (x->node[i].child >= 0) { /* descendants have no `reach` either: frees leaves first */
            int32_t leaf = x->node[i].child;
            while (x->node[leaf].child >= 0) leaf = x->node[leaf].child;
            unlink_node(x, leaf);
        }
        unlink_node(x, i);
    }
}

static bool reaches(const pi__prefix_index *x, const node *n)
{
    const int32_t end = tokens_of(x, n);
    bool all = x->node[n->parent].reach;
    for (int32_t g = 0; all && g < x->cache->n_groups; g++) {
        const pi__group_spec *spec = &x->cache->group[g].spec;
        if (counts(x, g) && pi__group_is_full(spec) && end % spec->block_size == 0) all = n->have >> g & 1;
    }
    return all;
}

static int32_t add(pi__prefix_index *x, int32_t parent, const pi__digest *hash, const int32_t *tokens)
{
    const int32_t i = x->first_free, H = x->cache->hash_block;
    node *n = &x->node[i], *p = &x->node[parent];
    x->first_free = n->next;
    *n = (node) {.hash = *hash,
                 .parent = parent,
                 .child = -1,
                 .prev = -1,
                 .next = p->child,
                 .chain = *bucket_of(x, hash),
                 .depth = p->depth + 1};
    if (p->child >= 0) x->node[p->child].prev = i;
    p->child = *bucket_of(x, hash) = i;
    memcpy(x->token + (size_t) i * (size_t) H, tokens, (size_t) H * sizeof *tokens);
    n->reach = reaches(x, n);
    return i;
}

void pi__prefix_index_path(pi__prefix_index *x, const pi__digest *hashes, const int32_t *tokens, int32_t n)
{
    int32_t from = n, at = -1;
    while (from > 0 && (at = find(x, &hashes[from - 1])) < 0) from--;
    if (!from) at = ROOT;
    for (; from < n; from++) {
        if (x->first_free < 0) {
            forget_unreached(x);
            if (x->first_free < 0 || (from && find(x, &hashes[from - 1]) != at)) return;
        }
        at = add(x, at, &hashes[from], tokens + (size_t) from * (size_t) x->cache->hash_block);
    }
}

/* ---------------------------------------------------------------------------------------------------------- events */

/* Reports that nodes path[0 .. n - 1] became live; path[k] is a child of path[k + 1]. */
static void tell_stored(pi__prefix_index *x, int32_t n)
{
    const int32_t H = x->cache->hash_block, R = x->cache->reuse_block / H;
    int32_t m = 0, first = -1;
    for (int32_t k = n; k-- > 0;) { /* from the root on */
        if (!is_told(x, &x->node[x->path[k]])) continue;
        if (first < 0) first = x->path[k];
        for (int32_t j = R, i = x->path[k]; j-- > 0; i = x->node[i].parent) {
            int32_t *to = x->told + ((size_t) m * (size_t) R + (size_t) j) * (size_t) H;
            memcpy(to, x->token + (size_t) i * (size_t) H, (size_t) H * sizeof *to);
        }
        x->hash[m++] = told_hash(&x->node[x->path[k]]);
    }
    if (!m) return;
    int32_t before = first;
    for (int32_t j = 0; j < R; j++) before = x->node[before].parent;
    const pi_cache_event ev = {.kind = PI_CACHE_STORED,
                               .hashes = x->hash,
                               .n_hashes = (size_t) m,
                               .tokens = x->told,
                               .n_tokens = (size_t) m * (size_t) x->cache->reuse_block,
                               .parent = told_hash(&x->node[before]),
                               .has_parent = before != ROOT};
    x->fn(x->ud, &ev);
}

static void tell_removed(pi__prefix_index *x, int32_t n)
{
    int32_t m = 0;
    for (int32_t k = 0; k < n; k++)
        if (is_told(x, &x->node[x->path[k]])) x->hash[m++] = told_hash(&x->node[x->path[k]]);
    const pi_cache_event ev = {.kind = PI_CACHE_REMOVED, .hashes = x->hash, .n_hashes = (size_t) m,
                               .n_tokens = (size_t) m * (size_t) x->cache->reuse_block};
    if (m) x->fn(x->ud, &ev);
}

static void set_end(pi__prefix_index *x, int32_t i, bool end)
{
    int32_t n = 0;
    if (x->node[i].end == end) return;
    const bool was = is_live(&x->node[i]);
    x->node[i].end = end;
    if (is_live(&x->node[i]) == was) return;
    for (; i != ROOT; i = x->node[i].parent) { /* walks up as long as the change makes a parent live or not live */
        node *p = &x->node[x->node[i].parent];
        const bool before = is_live(p);
        x->path[n++] = i;
        p->n_live += end ? 1 : -1;
        if (is_live(p) == before) break;
    }
    if (end) tell_stored(x, n);
    else tell_removed(x, n);
}

/* -------------------------------------------------------------------------------------------------- derived fields */

/* Returns true if group g has all blocks that a prefix ending with node n needs: from pi__group_first to its end. */
static bool has_window(const pi__prefix_index *x, const node *n, int32_t g)
{
    const pi__group_spec *spec = &x->cache->group[g].spec;
    const int32_t end = tokens_of(x, n), first = pi__group_first(spec, end) * spec->block_size;
    for (const node *m = n; tokens_of(x, m) > first; m = &x->node[m->parent])
        if (tokens_of(x, m) % spec->block_size == 0 && !(m->have >> g & 1)) return false;
    return true;
}

static void look_at_end(pi__prefix_index *x, int32_t i)
{
    const node *n = &x->node[i];
    bool end = n->reach && is_told(x, n) && i != ROOT;
    for (int32_t g = 0; end && g < x->cache->n_groups; g++)
        if (counts(x, g) && !pi__group_is_full(&x->cache->group[g].spec)) end = has_window(x, n, g);
    set_end(x, i, end);
}

/* Updates reach, end and n_live after group g gained or lost the block that ends with node i. */
static void changed(pi__prefix_index *x, int32_t g, int32_t i)
{
    const pi__group_spec *spec = &x->cache->group[g].spec;
    if (!counts(x, g)) return;
    const int64_t last = spec->state ? tokens_of(x, &x->node[i]) : (int64_t) tokens_of(x, &x->node[i]) + spec->window;
    bool below = true;
    for (int32_t k = i; k >= 0; k = walk(x, i, k, below)) {
        node *n = &x->node[k];
        if (pi__group_is_full(spec)) {
            const bool reach = reaches(x, n);
            below = reach != n->reach; /* descendants change only if `reach` of this node changed */
            n->reach = reach;
        } else below = tokens_of(x, n) < last;
        look_at_end(x, k);
    }
}

void pi__prefix_index_put(pi__prefix_index *x, int32_t g, const pi__digest *hash)
{
    const int32_t i = find(x, hash);
    if (i < 0 || x->node[i].have >> g & 1) return;
    x->node[i].have |= (uint8_t) (1u << g);
    changed(x, g, i);
}

void pi__prefix_index_drop(pi__prefix_index *x, int32_t g, const pi__digest *hash)
{
    int32_t i = find(x, hash);
    if (i < 0 || !(x->node[i].have >> g & 1)) return;
    x->node[i].have &= (uint8_t) ~(1u << g);
    changed(x, g, i);
    while (i != ROOT && !x->node[i].have && x->node[i].child < 0) {
        const int32_t parent = x->node[i].parent;
        unlink_node(x, i);
        i = parent;
    }
}

void pi__prefix_index_clear(pi__prefix_index *x)
{
    const pi_cache_event ev = {.kind = PI_CACHE_CLEARED};
    reset(x);
    x->fn(x->ud, &ev);
}
