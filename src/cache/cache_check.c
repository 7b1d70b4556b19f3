/* Invariants of a cache: pi__cache_check verifies the invariants that block_pool.h and cache.h state; tests call it
 * after each operation. Memory: one count per block, freed before returning. Threads: the cache's thread only. */
#include <string.h>

#include "base/alloc.h"
#include "cache/cache.h"

#define CHECK(x, what) do { if (!(x)) return what; } while (0)

static int32_t bucket_at(const pi__block_pool *p, const pi__digest *hash)
{
    return p->bucket[pi__digest_word(hash) & (p->n_buckets - 1)];
}

/* Checks both directions of the free list, its counts, and its order: first blocks without a hash or with low priority,
 * then cached prefixes. */
static const char *check_free_list(const pi__block_pool *p)
{
    int32_t n = 0, pinned_for_copy = 0, cached = 0, last = -1;
    bool prefixes = false;
    for (int32_t id = p->head; id >= 0; last = id, id = p->block[id].next) {
        CHECK(id < p->n_blocks && n < p->n_blocks, "the free list does not end");
        const pi__block *b = &p->block[id];
        CHECK(b->ref == 0, "a block in use is on the free list");
        CHECK(b->prev == last, "the free list's backward links differ");
        const bool prefix = b->hashed && !b->low_priority;
        CHECK(prefix || !prefixes, "an unhashed block comes after a cached prefix on the free list");
        prefixes = prefix;
        pinned_for_copy += b->pinned_for_copy;
        cached += b->hashed;
        n++;
    }
    CHECK(p->tail == last, "the free list's tail is wrong");
    CHECK(n == p->n_free && pinned_for_copy == p->n_pinned_for_copy && cached == p->n_cached,
          "the counts of the free list are wrong");
    return NULL;
}

/* Checks that every hash chain holds only hashed blocks of its bucket, and that pi__block_find finds every hashed block
 * itself. */
static const char *check_index(const pi__block_pool *p)
{
    int32_t chained = 0, hashed = 0;
    for (uint32_t i = 0; i < p->n_buckets; i++)
        for (int32_t id = p->bucket[i]; id >= 0; id = p->block[id].chain) {
            CHECK(id < p->n_blocks && chained < p->n_blocks, "a hash chain does not end");
            CHECK(p->block[id].hashed, "a block without a hash is in the index");
            CHECK(bucket_at(p, &p->block[id].key.hash) == p->bucket[i], "a block is in the wrong hash bucket");
            chained++;
        }
    for (int32_t id = 0; id < p->n_blocks; id++) {
        const pi__block *b = &p->block[id];
        if (!b->hashed) continue;
        hashed++;
        CHECK(pi__block_find(p, &b->key, p->token + (size_t) id * (size_t) p->block_size) == id,
              "a prefix is in the index twice, or missing");
    }
    CHECK(hashed == chained, "the index has more entries than hashed blocks");
    return NULL;
}

/* Checks reference counts and the counts derived from them. refs [n_blocks]: expected reference counts. */
static const char *check_refs(const pi__block_pool *p, const int32_t *refs)
{
    int32_t free = 0, shared = 0, written = 0;
    for (int32_t id = 0; id < p->n_blocks; id++) {
        const pi__block *b = &p->block[id];
        CHECK(b->ref == refs[id], "a block's reference count differs from its users");
        CHECK(b->written || !b->ref, "a block in use was never written");
        free += b->ref == 0;
        shared += b->ref > 1;
        written += b->written;
    }
    CHECK(free == p->n_free, "a free block is not on the free list");
    CHECK(shared == p->n_shared && written == p->n_written, "the counts of blocks are wrong");
    return NULL;
}

const char *pi__block_pool_check(const pi__block_pool *p, const int32_t *refs)
{
    const char *bad = check_free_list(p);
    if (!bad) bad = check_index(p);
    return bad ? bad : check_refs(p, refs);
}

/* Checks row s of group i; adds the references that the row holds to refs [n_blocks]. */
static const char *check_row(const pi__cache *c, int32_t i, int32_t s, int32_t *refs)
{
    const pi__cache_group *g = &c->group[i];
    const pi__cache_seq *q = &c->seq[s];
    const int32_t *row = g->table + (size_t) s * (size_t) g->stride;
    CHECK(q->n_hashes >= 0 && q->n_hashes <= c->hashes_stride, "a row has more block hashes than its capacity");
    CHECK(pi__cache_has(c, s, i) || !q->n_blocks[i], "a row has blocks of a group that it does not use");
    CHECK(q->n_blocks[i] >= 0 && q->n_blocks[i] <= g->stride, "a block table is longer than its row");
    CHECK(q->n_freed[i] >= 0 && q->n_freed[i] <= q->n_blocks[i], "a row freed more blocks than it had");
    CHECK(q->n_hashed[i] >= 0 && q->n_hashed[i] <= q->n_blocks[i], "a row has more hashed blocks than blocks");
    for (int32_t k = 0; k < q->n_blocks[i]; k++) {
        CHECK(k >= q->n_freed[i] || row[k] == -1, "a freed block is still in its table");
        if (k < q->n_freed[i]) continue;
        CHECK(row[k] >= 0 && row[k] < g->spec.n_blocks, "a block table points outside the pool");
        refs[row[k]]++;
    }
    return NULL;
}

static const char *check_group(const pi__cache *c, int32_t i, const int32_t *more, int32_t *refs)
{
    const pi__cache_group *g = &c->group[i];
    const char *bad = NULL;
    CHECK(g->pool.n_blocks == g->spec.n_blocks && g->pool.block_size == g->spec.block_size,
          "a pool belongs to another group");
    if (more) memcpy(refs, more, (size_t) g->spec.n_blocks * sizeof *refs);
    for (int32_t s = 0; s < c->max_seqs && !bad; s++) bad = check_row(c, i, s, refs);
    return bad ? bad : pi__block_pool_check(&g->pool, refs);
}

const char *pi__cache_check(const pi__cache *c, const int32_t *const *more)
{
    const char *bad = NULL;
    for (int32_t i = 0; i < c->n_groups && !bad; i++) {
        int32_t *refs = pi__calloc((size_t) c->group[i].spec.n_blocks + 1, sizeof *refs);
        if (!refs) return "no memory for the check";
        bad = check_group(c, i, more ? more[i] : NULL, refs);
        pi__free(refs);
    }
    return bad;
}
