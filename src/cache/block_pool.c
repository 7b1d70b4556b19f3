/* The block pool (see block_pool.h). */
#include "cache/block_pool.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "cache/prefix_index.h"

static void list_remove(pi__block_pool *p, int32_t id)
{
    pi__block *b = &p->block[id];
    pi__assert(id >= 0 && id < p->n_blocks && p->n_free > 0);
    pi__assert(b->prev >= 0 ? p->block[b->prev].next == id : p->head == id); /* block id is on this list */
    pi__assert(b->next >= 0 ? p->block[b->next].prev == id : p->tail == id);
    if (b->prev >= 0) p->block[b->prev].next = b->next;
    else p->head = b->next;
    if (b->next >= 0) p->block[b->next].prev = b->prev;
    else p->tail = b->prev;
    b->prev = b->next = -1;
    p->n_free--;
    p->n_pinned_for_copy -= b->pinned_for_copy;
    p->n_cached -= b->hashed;
}

static void list_put(pi__block_pool *p, int32_t id, bool last)
{
    pi__block *b = &p->block[id];
    pi__assert(id >= 0 && id < p->n_blocks && p->n_free < p->n_blocks && b->ref == 0);
    if (last) { /* at the tail: evicted last */
        b->prev = p->tail;
        b->next = -1;
        if (p->tail >= 0) p->block[p->tail].next = id;
        else p->head = id;
        p->tail = id;
    } else {
        b->prev = -1;
        b->next = p->head;
        if (p->head >= 0) p->block[p->head].prev = id;
        else p->tail = id;
        p->head = id;
    }
    p->n_free++;
    p->n_pinned_for_copy += b->pinned_for_copy;
    p->n_cached += b->hashed;
}

static int32_t *bucket_of(const pi__block_pool *p, const pi__digest *hash)
{
    return &p->bucket[pi__digest_word(hash) & (p->n_buckets - 1)];
}

/* Removes block id from the hash table, counts an eviction and notifies the prefix index. The block must not be on the
 * free list, because n_cached counts hashed blocks there. */
static void drop_hash(pi__block_pool *p, int32_t id)
{
    int32_t *at = bucket_of(p, &p->block[id].key.hash);
    pi__assert(p->block[id].hashed);
    while (*at != id) {
        pi__assert(*at >= 0); /* block id is in its bucket */
        at = &p->block[*at].chain;
    }
    *at = p->block[id].chain;
    p->block[id].hashed = false;
    p->n_evicted++;
    if (p->index) pi__prefix_index_drop(p->index, p->group, &p->block[id].key.hash);
}

/* Takes the pool's arrays from arena a. If the arena has no memory, only adds up their bytes in a->used. */
static void lay_out(pi__block_pool *p, int32_t n_blocks, int32_t block_size, pi__arena *a)
{
    *p = (pi__block_pool) {.n_blocks = n_blocks, .block_size = block_size, .n_buckets = 16, .head = -1, .tail = -1};
    while (p->n_buckets < (uint32_t) n_blocks) p->n_buckets *= 2;
    /* must be first: pi__block_pool_destroy frees this address */
    p->block = pi__arena_take(a, (size_t) n_blocks * sizeof *p->block);
    p->token = pi__arena_take(a, (size_t) n_blocks * (size_t) block_size * sizeof *p->token);
    p->bucket = pi__arena_take(a, p->n_buckets * sizeof *p->bucket);
}

size_t pi__block_pool_bytes(int32_t n_blocks, int32_t block_size)
{
    pi__block_pool p;
    pi__arena a = {0};
    lay_out(&p, n_blocks, block_size, &a);
    return a.used;
}

int pi__block_pool_init(pi__block_pool *p, int32_t n_blocks, int32_t block_size, pi_error *err)
{
    pi__arena a = {.size = pi__block_pool_bytes(n_blocks, block_size)};
    memset(p, 0, sizeof *p);
    a.base = pi__calloc(1, a.size);
    if (!a.base) return pi__fail_mem(err, "the table of cache blocks");
    lay_out(p, n_blocks, block_size, &a);
    memset(p->bucket, 0xff, p->n_buckets * sizeof *p->bucket);
    for (int32_t i = n_blocks - 1; i >= 0; i--) list_put(p, i, false);
    return PI_OK;
}

void pi__block_pool_destroy(pi__block_pool *p)
{
    pi__free(p->block);
    memset(p, 0, sizeof *p);
}

int32_t pi__block_get_new(pi__block_pool *p)
{
    int32_t id = p->head;
    while (id >= 0 && p->block[id].pinned_for_copy) id = p->block[id].next;
    if (id < 0) return -1;
    list_remove(p, id);
    pi__block *b = &p->block[id];
    if (b->hashed) drop_hash(p, id);
    b->ref = 1;
    b->low_priority = b->offload_tried = b->is_private = false;
    b->generation++;
    p->n_written += !b->written;
    b->written = true;
    return id;
}

void pi__block_hold(pi__block_pool *p, int32_t id, bool pinned_for_copy)
{
    pi__block *b = &p->block[id];
    if (!b->ref) p->n_pinned_for_copy += pinned_for_copy - b->pinned_for_copy;
    b->pinned_for_copy = pinned_for_copy;
}

void pi__block_touch(pi__block_pool *p, int32_t id)
{
    pi__assert(id >= 0 && id < p->n_blocks);
    int32_t before = p->block[id].ref++;
    if (!before) {
        list_remove(p, id);
        p->block[id].low_priority = p->block[id].offload_tried = false;
    }
    p->n_shared += before == 1;
}

static void release(pi__block_pool *p, int32_t id, bool last)
{
    pi__assert(id >= 0 && id < p->n_blocks && p->block[id].ref > 0);
    int32_t left = --p->block[id].ref;
    if (!left) list_put(p, id, last);
    p->n_shared -= left == 1;
}

void pi__block_release(pi__block_pool *p, int32_t id) { release(p, id, p->block[id].hashed); }
void pi__block_release_low_priority(pi__block_pool *p, int32_t id)
{
    p->block[id].low_priority = p->block[id].ref == 1;
    release(p, id, false);
}

void pi__block_set_hash(pi__block_pool *p, int32_t id, const pi__block_key *key, const int32_t *tokens)
{
    pi__block *b = &p->block[id];
    pi__assert(b->ref > 0); /* the writer of its content holds a reference */
    if (b->hashed || pi__block_find(p, key, tokens) >= 0) return;
    memcpy(p->token + (size_t) id * (size_t) p->block_size, tokens, (size_t) p->block_size * sizeof *tokens);
    int32_t *at = bucket_of(p, &key->hash);
    b->key = *key;
    b->hashed = true;
    b->chain = *at;
    *at = id;
    if (p->index) pi__prefix_index_put(p->index, p->group, &key->hash);
}

int32_t pi__block_find(const pi__block_pool *p, const pi__block_key *key, const int32_t *tokens)
{
    size_t bytes = (size_t) p->block_size * sizeof *tokens;
    for (int32_t id = *bucket_of(p, &key->hash); id >= 0; id = p->block[id].chain) {
        const pi__block *b = &p->block[id];
        if (pi__digest_equal(&b->key.hash, &key->hash) && pi__digest_equal(&b->key.parent, &key->parent) &&
            memcmp(p->token + (size_t) id * (size_t) p->block_size, tokens, bytes) == 0) return id;
    }
    return -1;
}

void pi__block_pool_trim(pi__block_pool *p, void (*fn)(void *ud, int32_t id), void *ud)
{
    for (int32_t id = p->head; id >= 0; id = p->block[id].next) {
        if (p->block[id].hashed || !p->block[id].written) continue;
        p->block[id].written = false;
        p->n_written--;
        fn(ud, id);
    }
}

void pi__block_pool_clear(pi__block_pool *p, const uint64_t *tenant)
{
    uint64_t evicted = p->n_evicted; /* clearing does not count as eviction */
    for (int32_t id = 0; id < p->n_blocks; id++) {
        if (!p->block[id].hashed || !pi__block_of_tenant(&p->block[id].key, tenant)) continue;
        bool is_free = p->block[id].ref == 0;
        if (is_free) list_remove(p, id);
        drop_hash(p, id);
        if (is_free) list_put(p, id, false); /* no hash any more: get_new returns it next */
    }
    p->n_evicted = evicted;
}

pi__digest pi__block_hash_extend(const pi__digest *parent, const int32_t *tokens, int32_t n, bool sparse)
{
    return pi__hash_chain(sparse ? PI__HASH_SPARSE_BLOCK : PI__HASH_BLOCK, parent, tokens, (size_t) n * sizeof *tokens);
}

pi__digest pi__block_hash_media(const pi__digest *parent, const int32_t *tokens, int32_t n, bool sparse, int32_t first,
                                const pi__block_media *media, int32_t n_media)
{
    int32_t i = 0, end;
    while (i < n_media && media[i].start + media[i].n <= first) i++;
    for (end = i; end < n_media && media[end].start < first + n;) end++;
    if (i == end) return pi__block_hash_extend(parent, tokens, n, sparse);
    pi__hasher h;
    pi__hash_begin(&h, sparse ? PI__HASH_SPARSE_MEDIA_BLOCK : PI__HASH_MEDIA_BLOCK);
    pi__hash_field(&h, parent, sizeof *parent);
    pi__hash_field(&h, tokens, (size_t) n * sizeof *tokens);
    for (; i < end; i++) {
        const int32_t before = first > media[i].start ? first - media[i].start : 0;
        /* token of the block where the image begins; the image's token there; length of the image */
        const int32_t place[3] = {media[i].start + before - first, before, media[i].n};
        pi__hash_field(&h, place, sizeof place);
        pi__hash_field(&h, &media[i].id, sizeof media[i].id);
    }
    return pi__hash_end(&h);
}

uint64_t pi__tenant_of(const char *salt) { return pi__block_root_of(salt).tenant; }

/* Returns the root with this digest; the tenant is the digest's first word. */
static pi__block_root root_of(pi__digest hash) { return (pi__block_root) {hash, pi__digest_word(&hash)}; }

pi__block_root pi__block_root_of(const char *salt)
{
    return salt && *salt ? root_of(pi__hash(PI__HASH_SALT, salt, strlen(salt))) : (pi__block_root) {.tenant = 0};
}

pi__block_root pi__block_root_private(uint64_t n) { return root_of(pi__hash(PI__HASH_PRIVATE, &n, sizeof n)); }
