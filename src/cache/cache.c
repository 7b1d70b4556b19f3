/* Groups, block tables and prefix matching (see cache.h). */
#include "cache/cache.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "cache/prefix_index.h"

static int32_t ceil_div(int32_t a, int32_t b) { return (int32_t) (((int64_t) a + b - 1) / b); }
static int32_t min_i32(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t *row_of(const pi__cache_group *g, int32_t s) { return g->table + (size_t) s * (size_t) g->stride; }
static pi__digest *hashes_of(const pi__cache *c, int32_t s)
{
    return c->hashes + (size_t) s * (size_t) c->hashes_stride;
}

int32_t pi__cache_stride(const pi__group_spec *g, int32_t max_ctx)
{
    return g->state ? 0 : ceil_div(max_ctx, g->block_size);
}

/* Takes all arrays except the pools' arrays from arena a. If the arena has no memory, only adds up their bytes in
 * a->used. */
static void lay_out(pi__cache *c, const pi__group_spec *spec, int32_t n_groups, int32_t max_seqs, int32_t max_ctx,
                    pi__arena *a)
{
    const size_t S = (size_t) max_seqs;
    c->max_seqs = max_seqs;
    c->hash_block = n_groups ? spec[0].block_size : 16;
    c->reuse_block = c->hash_block;
    for (int32_t i = 1; i < n_groups; i++) {
        c->hash_block = min_i32(c->hash_block, spec[i].block_size);
        if (spec[i].block_size > c->reuse_block) c->reuse_block = spec[i].block_size;
    }
    c->hashes_stride = ceil_div(max_ctx, c->hash_block);
    c->seq = pi__arena_take(a, S * sizeof *c->seq); /* must be first: pi__cache_destroy frees this address */
    c->hashes = pi__arena_take(a, S * (size_t) c->hashes_stride * sizeof *c->hashes);
    for (int32_t i = 0; i < n_groups; i++) {
        pi__cache_group *g = &c->group[i];
        g->spec = spec[i];
        g->stride = pi__cache_stride(&spec[i], max_ctx);
        g->table = pi__arena_take(a, S * (size_t) g->stride * sizeof *g->table);
    }
}

size_t pi__cache_bytes(const pi__group_spec *spec, int32_t n_groups, int32_t max_seqs, int32_t max_ctx)
{
    pi__cache c;
    pi__arena a = {0};
    lay_out(&c, spec, n_groups, max_seqs, max_ctx, &a);
    size_t all = a.used;
    for (int32_t i = 0; i < n_groups; i++)
        if (!pi__add_ok(all, pi__block_pool_bytes(spec[i].n_blocks, spec[i].block_size), &all)) return SIZE_MAX;
    return all;
}

int pi__cache_init(pi__cache *c, const pi__group_spec *spec, int32_t n_groups, int32_t max_seqs, int32_t max_ctx,
                   pi_error *err)
{
    pi__arena a = {0};
    memset(c, 0, sizeof *c);
    lay_out(c, spec, n_groups, max_seqs, max_ctx, &a); /* first pass: measures */
    a = (pi__arena) {.base = pi__calloc(1, a.used), .size = a.used};
    if (!a.base) return pi__fail_mem(err, "block tables");
    lay_out(c, spec, n_groups, max_seqs, max_ctx, &a);
    for (; c->n_groups < n_groups; c->n_groups++) {
        const pi__group_spec *g = &spec[c->n_groups];
        int rc = pi__block_pool_init(&c->group[c->n_groups].pool, g->n_blocks, g->block_size, err);
        if (!rc) continue;
        pi__cache_destroy(c);
        return rc;
    }
    return PI_OK;
}

void pi__cache_destroy(pi__cache *c)
{
    for (int32_t i = 0; i < c->n_groups; i++) pi__block_pool_destroy(&c->group[i].pool);
    pi__prefix_index_close(c->index);
    pi__free(c->seq);
    memset(c, 0, sizeof *c);
}

void pi__cache_start(pi__cache *c, int32_t s, const char *salt)
{
    memset(&c->seq[s], 0, sizeof c->seq[s]);
    for (int32_t i = 0; i < c->n_groups; i++) c->seq[s].snapshot[i] = -1;
    c->seq[s].root = pi__block_root_of(salt);
}

void pi__cache_leave(pi__cache *c, int32_t s, uint64_t owner)
{
    pi__cache_release(c, s);
    c->seq[s].left_for = owner;
}

bool pi__cache_start_again(pi__cache *c, int32_t s, uint64_t owner)
{
    pi__cache_seq *q = &c->seq[s];
    if (!owner || q->left_for != owner) return false;
    q->left_for = 0;
    for (int32_t i = 0; i < c->n_groups; i++) q->snapshot[i] = -1;
    return true;
}

void pi__cache_skip_groups(pi__cache *c, int32_t s, uint32_t groups) { c->seq[s].skip_groups = groups; }

void pi__cache_start_sparse(pi__cache *c, int32_t s, const pi__sparse_span *span) { c->seq[s].sparse = *span; }

void pi__cache_start_media(pi__cache *c, int32_t s, const pi__block_media *media, int32_t n, bool whole)
{
    c->seq[s].media = media;
    c->seq[s].n_media = n;
    c->seq[s].media_whole = whole;
}

int32_t pi__cache_cut(const pi__cache *c, int32_t s, int32_t n)
{
    const pi__cache_seq *q = &c->seq[s];
    n = pi__span_cut(&q->sparse, n);
    for (int32_t i = q->media_whole ? q->n_media : 0; i-- > 0;) { /* descending: a cut may move into an earlier image */
        const int32_t start = q->media[i].start;
        if (n > start && n < start + q->media[i].n) n = pi__span_cut(&q->sparse, start);
    }
    return n;
}

void pi__cache_start_private(pi__cache *c, int32_t s, const pi__block_root *root)
{
    c->seq[s].root = *root;
    c->seq[s].is_private = true;
}

void pi__cache_start_variant(pi__cache *c, int32_t s, const pi__digest *variant)
{
    pi__digest *root = &c->seq[s].root.hash;
    if (!pi__digest_none(variant)) *root = pi__hash_chain(PI__HASH_VARIANT, root, variant, sizeof *variant);
}

/* Computes the missing chained hashes of row s for all full hash blocks of tokens[0..n). Blocks with sparse attention
 * get other hashes than blocks with dense attention, since the computed bytes differ. Hashes of blocks with images
 * depend on the images. */
static void extend_hashes(pi__cache *c, int32_t s, const int32_t *tokens, int32_t n)
{
    pi__cache_seq *q = &c->seq[s];
    pi__digest *k = hashes_of(c, s);
    pi__assert(n / c->hash_block <= c->hashes_stride);
    for (; q->n_hashes < n / c->hash_block; q->n_hashes++) {
        const pi__digest *parent = q->n_hashes ? &k[q->n_hashes - 1] : &q->root.hash;
        const bool sparse = pi__in_span(&q->sparse, q->n_hashes * c->hash_block);
        const int32_t *block = tokens + (size_t) q->n_hashes * (size_t) c->hash_block;
        k[q->n_hashes] = pi__block_hash_media(parent, block, c->hash_block, sparse, q->n_hashes * c->hash_block,
                                              q->media, q->n_media);
    }
}

static int32_t find_block(const pi__cache *c, int32_t s, const pi__cache_group *g, const int32_t *tokens, int32_t i)
{
    int32_t bs = g->spec.block_size;
    const pi__block_key key = pi__cache_key(c, s, bs, i);
    return pi__block_find(&g->pool, &key, tokens + (size_t) i * (size_t) bs);
}

/* Returns the largest length up to n at which a prefix of row s can end: a multiple of reuse_block that cuts no sparse
 * block and no whole image. */
static int32_t reusable(const pi__cache *c, int32_t s, int32_t n)
{
    for (int32_t cut;; n = cut) {
        n = n / c->reuse_block * c->reuse_block;
        cut = pi__cache_cut(c, s, n);
        if (cut == n) return n;
    }
}

/* Returns the longest reusable prefix length <= n (tokens) for which group g still has the needed blocks; 0 = none. */
static int32_t longest_in_group(const pi__cache *c, int32_t s, const pi__cache_group *g, const int32_t *tokens,
                                int32_t n)
{
    const int32_t bs = g->spec.block_size;
    n = reusable(c, s, n);
    if (pi__group_is_full(&g->spec)) { /* full attention needs all blocks: stop at the first miss */
        int32_t i = 0;
        while (i < n / bs && find_block(c, s, g, tokens, i) >= 0) i++;
        return reusable(c, s, i * bs);
    }
    /* Search downwards for a length such that the cache has the next token's complete window (or a snapshot). A miss at
     * block i excludes all lengths with block i in their window: continue with the largest length that ends at or
     * before the start of block i. */
    while (n > 0) {
        int32_t i = n / bs - 1, first = pi__group_first(&g->spec, n);
        while (i >= first && find_block(c, s, g, tokens, i) >= 0) i--;
        if (i < first) return n;
        n = reusable(c, s, i * bs);
    }
    return 0;
}

int32_t pi__cache_match(pi__cache *c, int32_t s, const int32_t *tokens, int32_t n, int32_t *matched)
{
    /* Blocks of 16, a window of 20, a prompt of 81 tokens, so at most 80. Found (x), or not (.):
     *
     *                  0  16  32  48  64  80                        first turn   second
     *     full         | x | x | x | x | . |   all from the start           64       48
     *     window       | . | x | x | x | . |   64: needs 32..64             64       48: needs 16..48
     *     recurrent    | . | . | x | . | . |   a snapshot after 48          48       48
     *
     * 48 tokens are reused, *matched is 64. The row was empty; now:
     *
     *     full         [ 7 ][ 2 ][ 9 ]         n_freed 0      one reference more for each block
     *     window       [-1 ][ 5 ][ 3 ]         n_freed 1      likewise: blocks before the window are not searched
     *     recurrent    snapshot 4              no reference: the state is loaded before anything can evict it */
    extend_hashes(c, s, tokens, n);
    int32_t len = n - 1, before;
    *matched = 0;
    do { /* each group may shorten the length; repeat until all agree */
        before = len;
        for (int32_t i = 0; i < c->n_groups && len > 0; i++) {
            /* Groups that need no block of a prefix (window 1) do not limit its length. */
            if (c->group[i].spec.window == 1 || !pi__cache_has(c, s, i)) continue;
            len = longest_in_group(c, s, &c->group[i], tokens, len);
            if (len > *matched) *matched = len;
        }
    } while (len != before && len > 0);
    if (!c->n_groups) len = 0;
    for (int32_t i = 0; i < c->n_groups; i++) {
        pi__cache_group *g = &c->group[i];
        pi__cache_seq *q = &c->seq[s];
        int32_t *row = row_of(g, s);
        if (!pi__cache_has(c, s, i)) continue;
        if (g->spec.state) {
            int32_t id = len ? find_block(c, s, g, tokens, len / g->spec.block_size - 1) : -1;
            q->snapshot[i] = id;
            if (id < 0) continue;
            pi__block_touch(&g->pool, id); /* moves the snapshot to the tail of the free list: most recently used */
            pi__block_release(&g->pool, id);
            continue;
        }
        q->n_blocks[i] = q->n_hashed[i] = len / g->spec.block_size;
        q->n_freed[i] = pi__group_first(&g->spec, len);
        for (int32_t k = 0; k < q->n_blocks[i]; k++) {
            row[k] = k < q->n_freed[i] ? -1 : find_block(c, s, g, tokens, k);
            if (row[k] >= 0) pi__block_touch(&g->pool, row[k]);
        }
    }
    return len;
}

const pi__digest *pi__cache_hash(const pi__cache *c, int32_t s, int32_t i)
{
    pi__assert(i >= 0 && i < c->seq[s].n_hashes);
    return &hashes_of(c, s)[i];
}

pi__block_key pi__cache_key(const pi__cache *c, int32_t s, int32_t block_size, int32_t i)
{
    const int32_t each = block_size / c->hash_block, first = i * each;
    const pi__cache_seq *q = &c->seq[s];
    return (pi__block_key) {*pi__cache_hash(c, s, first + each - 1),
                            first ? *pi__cache_hash(c, s, first - 1) : q->root.hash, q->root.tenant};
}

int32_t pi__cache_common(const pi__cache *c, int32_t s, int32_t t)
{
    const pi__digest *a = hashes_of(c, s), *b = hashes_of(c, t);
    int32_t lo = 0, hi = min_i32(c->seq[s].n_hashes, c->seq[t].n_hashes);
    while (lo < hi) { /* hashes are chained: after the first difference, all later hashes differ too */
        int32_t mid = lo + (hi - lo) / 2;
        if (pi__digest_equal(&a[mid], &b[mid])) lo = mid + 1;
        else hi = mid;
    }
    return lo * c->hash_block;
}

bool pi__cache_reserve(pi__cache *c, int32_t s, int32_t n_tokens)
{
    pi__cache_seq *q = &c->seq[s];
    for (int32_t i = 0; i < c->n_groups; i++) {
        const pi__cache_group *g = &c->group[i];
        if (!g->spec.state && pi__cache_has(c, s, i) &&
            ceil_div(n_tokens, g->spec.block_size) - q->n_blocks[i] > pi__block_available(&g->pool))
            return false;
    }
    for (int32_t i = 0; i < c->n_groups; i++) {
        pi__cache_group *g = &c->group[i];
        int32_t want = g->spec.state || !pi__cache_has(c, s, i) ? 0 : ceil_div(n_tokens, g->spec.block_size);
        pi__assert(want <= g->stride); /* max_ctx of init covers the sequence */
        while (q->n_blocks[i] < want) row_of(g, s)[q->n_blocks[i]++] = pi__block_get_new(&g->pool);
    }
    return true;
}

/* Returns the length in tokens of the shortest reusable prefix that includes all of block i. */
static int32_t first_reuse(const pi__cache *c, const pi__group_spec *g, int32_t i)
{
    return ceil_div((i + 1) * g->block_size, c->reuse_block) * c->reuse_block;
}

/* Returns true if a reuse point at or after the end of block i has block i of group g in its window. */
static bool is_seen(const pi__cache *c, int32_t s, const pi__group_spec *g, int32_t i)
{
    for (int32_t n = first_reuse(c, g, i); c->reuse_point && pi__group_behind(g, g->window, n) <= i;
         n += c->reuse_block)
        if (c->reuse_point(c->reuse_point_ud, s, n)) return true;
    return false;
}

/* Returns true if a reusable prefix (a multiple of reuse_block tokens) needs block i of group g. */
static bool is_needed(const pi__cache *c, const pi__group_spec *g, int32_t i)
{
    return pi__group_behind(g, g->window, first_reuse(c, g, i)) <= i;
}

int pi__cache_listen(pi__cache *c, uint32_t skip_groups, pi_cache_event_fn fn, void *ud, pi_error *err)
{
    int rc = pi__prefix_index_open(&c->index, c, skip_groups, fn, ud, err);
    for (int32_t i = 0; i < c->n_groups && !rc; i++) {
        c->group[i].pool.index = c->index;
        c->group[i].pool.group = i;
    }
    return rc;
}

void pi__cache_expect(const pi__cache *c, int32_t s, const int32_t *tokens, int32_t n_hashes)
{
    const pi__cache_seq *q = &c->seq[s];
    pi__assert(n_hashes <= q->n_hashes);
    if (c->index && !q->is_private && pi__digest_none(&q->root.hash))
        pi__prefix_index_path(c->index, hashes_of(c, s), tokens, n_hashes);
}

void pi__cache_commit(pi__cache *c, int32_t s, const int32_t *tokens, int32_t n_computed, bool keep)
{
    /* A window of 20 in blocks of 16, from 40 tokens to 66 (#: the block has its hash and can be found):
     *
     *                0     16    32    48    64          n_blocks  n_hashed  n_freed
     *     before   [ -1  ][ 3# ][ 8  ][ 6  ][ 1  ]              5        2        1
     *     after    [ -1  ][ -1 ][ 8# ][ 6# ][ 1  ]              5        4        2
     *                        |     `-----|    `- not full yet
     *                        |           newly full: hashed, and the callback `hashed` runs
     *                        position 66 attends to 47..66: this block is released. It goes to the tail of the free
     *                        list if a likely reused prefix has it in its window, else to the head (evicted next)
     *
     * A block that no reusable prefix needs (between two reuse boundaries, before the window of both) gets no hash. */
    pi__cache_seq *q = &c->seq[s];
    if (keep) {
        extend_hashes(c, s, tokens, n_computed);
        pi__cache_expect(c, s, tokens, n_computed / c->hash_block);
    }
    for (int32_t i = 0; i < c->n_groups; i++) {
        pi__cache_group *g = &c->group[i];
        if (g->spec.state || !pi__cache_has(c, s, i)) continue;
        int32_t *row = row_of(g, s), bs = g->spec.block_size;
        for (; keep && q->n_hashed[i] < n_computed / bs; q->n_hashed[i]++) {
            int32_t k = q->n_hashed[i];
            pi__assert(k < q->n_blocks[i]);
            if (row[k] < 0 || !is_needed(c, &g->spec, k)) continue;
            const pi__block_key key = pi__cache_key(c, s, bs, k);
            pi__block_set_hash(&g->pool, row[k], &key, tokens + (size_t) k * (size_t) bs);
            g->pool.block[row[k]].is_private = q->is_private;
            if (c->hashed && !q->is_private && g->pool.block[row[k]].hashed)
                c->hashed(c->hashed_ud, i, row[k], &key, tokens + (size_t) k * (size_t) bs);
        }
        int32_t gone = min_i32(pi__group_behind(&g->spec, pi__group_window(&g->spec), n_computed), q->n_blocks[i]);
        for (; q->n_freed[i] < gone; q->n_freed[i]++) {
            int32_t k = q->n_freed[i];
            if (keep && is_seen(c, s, &g->spec, k)) pi__block_release(&g->pool, row[k]);
            else pi__block_release_low_priority(&g->pool, row[k]);
            row[k] = -1;
        }
    }
}

int32_t pi__cache_snapshot(pi__cache *c, int32_t s, int32_t g, const int32_t *tokens, int32_t n)
{
    pi__cache_group *gr = &c->group[g];
    extend_hashes(c, s, tokens, n);
    int32_t id = find_block(c, s, gr, tokens, n / gr->spec.block_size - 1);
    if (id < 0) return pi__block_get_new(&gr->pool);
    pi__block_touch(&gr->pool, id);
    pi__block_release(&gr->pool, id);
    return -1;
}

void pi__cache_snapshot_done(pi__cache *c, int32_t s, int32_t g, const int32_t *tokens, int32_t n, int32_t id,
                             bool filled)
{
    pi__cache_group *gr = &c->group[g];
    const int32_t *last = tokens + n - gr->spec.block_size;
    const pi__block_key key = pi__cache_key(c, s, gr->spec.block_size, n / gr->spec.block_size - 1);
    if (filled) {
        pi__cache_expect(c, s, tokens, n / c->hash_block);
        pi__block_set_hash(&gr->pool, id, &key, last);
        gr->pool.block[id].is_private = c->seq[s].is_private;
        if (c->hashed && !c->seq[s].is_private && gr->pool.block[id].hashed) c->hashed(c->hashed_ud, g, id, &key, last);
    }
    pi__block_release(&gr->pool, id);
}

void pi__cache_release(pi__cache *c, int32_t s)
{
    pi__cache_seq *q = &c->seq[s];
    for (int32_t i = 0; i < c->n_groups; i++) {
        pi__cache_group *g = &c->group[i];
        int32_t *row = row_of(g, s);
        while (q->n_blocks[i] > q->n_freed[i]) pi__block_release(&g->pool, row[--q->n_blocks[i]]);
        q->n_blocks[i] = q->n_freed[i] = q->n_hashed[i] = 0;
    }
}

void pi__cache_clear(pi__cache *c, const uint64_t *tenant)
{
    /* clears the index first, so that the listener gets one event instead of one per removed block */
    if (!tenant && c->index) pi__prefix_index_clear(c->index);
    for (int32_t i = 0; i < c->n_groups; i++) pi__block_pool_clear(&c->group[i].pool, tenant);
}
