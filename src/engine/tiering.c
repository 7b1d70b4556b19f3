/* The tiers below the pools: host memory (filled by offload.c) and a directory on disk. For a waiting request,
 * missing blocks of its prefix are loaded from the tiers into the pools before it is admitted.
 *
 *     pool, discrete device   <-- copy --  slot of the host tier  <-- read --  file
 *     pool in host memory     <------------------------------------ read --  file
 *
 * A load fills a block that only the load references. When it completes, the block gets its hash and joins the free
 * list like a block left by a request; the normal prefix match finds it. A failed load leaves an empty free block. So
 * the rest of the engine does not know the source of a prefix. Step thread only, except `wake`. */
#include "engine/tiering.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/trust.h"

enum { RESCAN_MS = 1000 }; /* max time that a request waits for a rescan of the directory */

/* Returns the address of a block with all shards at one place of host memory; used without a host tier. */
static char *host_block(const pi__tiering *t, int32_t g, int32_t block)
{
    int32_t place = 0;
    while (place < PI__N_PLACEMENTS - 1 && !t->map->bytes[g][place]) place++;
    return pi__block_at(t->map, g, block, place);
}

/* Sends block `block` of group g, which got its hash, to disk; from a discrete device through a copy to the host
 * tier. */
static void on_hashed(void *ud, int32_t g, int32_t block, const pi__block_key *key, const int32_t *tokens)
{
    pi__tiering *t = ud;
    if (!t->offload.host)
        pi__tier_put(t->disk, key, g, tokens, t->map->block_size[g], host_block(t, g, block),
                     pi__copy_bytes(t->map, g));
    else if (pi__tier_has(t->disk, &key->hash, g)) pi__tier_touch(t->disk, &key->hash, g);
    else pi__offload_out(&t->offload, g, block);
}

static pi__tier_config disk_of(const pi__tiering_config *c)
{
    return (pi__tier_config){.dir = c->dir, .limit_bytes = c->dir_bytes, .read_only = c->dir_read_only,
                             .max_loads = PI__MAX_LOADS, .wake = c->wake, .wake_ud = c->wake_ud,
                             .fingerprint = c->fingerprint, .log = c->offload.log};
}

static bool has_disk(const pi__tiering_config *c) { return c->dir && c->offload.prefix_cache; }

size_t pi__tiering_bytes(const pi__tiering_config *c)
{
    const pi__tier_config disk = disk_of(c);
    size_t n = pi__offload_bytes(&c->offload);
    if (has_disk(c)) n += pi__tier_memory(&disk);
    return n ? n + PI__MAX_LOADS * sizeof(pi__load) : 0;
}

static int open_disk(pi__tiering *t, const pi__tiering_config *c, pi_error *err)
{
    pi__tier_config disk = disk_of(c);
    pi__secret secret;
    pi__mac_key key;
    if (!c->dir_key) return pi__tier_open(&t->disk, &disk, err);
    int rc = pi__secret_load(&secret, c->dir_key, "prefix-cache-key", err);
    if (rc) return rc;
    pi__mac_key_init(&key, secret.byte, secret.n);
    pi__secret_clear(&secret);
    disk.key = &key;
    return pi__tier_open(&t->disk, &disk, err);
}

int pi__tiering_open(pi__tiering *t, const pi__tiering_config *c, pi_error *err)
{
    *t = (pi__tiering) {.cache = c->offload.cache, .stats = c->offload.stats, .map = c->offload.map};
    int rc = pi__offload_open(&t->offload, &c->offload, err);
    if (!rc && has_disk(c)) rc = open_disk(t, c, err);
    if (rc || (!t->offload.host && !t->disk)) return rc;
    t->load = pi__calloc(PI__MAX_LOADS, sizeof *t->load);
    if (!t->load) return pi__fail_mem(err, "the cache's tiers");
    t->offload.disk = t->disk;
    if (!t->disk) return PI_OK;
    t->cache->hashed = on_hashed;
    t->cache->hashed_ud = t;
    return PI_OK;
}

void pi__tiering_close(pi__tiering *t)
{
    pi__offload_end(&t->offload);
    pi__tier_close(t->disk);
    pi__offload_close(&t->offload);
    pi__free(t->load);
    *t = (pi__tiering) {.cache = NULL};
}

void pi__tiering_touch(pi__tiering *t, const pi__seq *s)
{
    if (!t->disk || !s->cacheable) return;
    const pi__cache_seq *q = &t->cache->seq[s->row];
    for (int32_t i = q->n_hashes; i-- > 0;)
        for (int32_t g = 0; g < t->cache->n_groups; g++) {
            const int32_t end = (i + 1) * t->cache->hash_block, bs = t->map->block_size[g];
            if (end % bs == 0 && end / bs > q->n_freed[g])
                pi__tier_touch(t->disk, pi__cache_hash(t->cache, s->row, i), g);
        }
}

void pi__tiering_clear(pi__tiering *t, const uint64_t *tenant)
{
    if (t->disk) pi__tier_clear(t->disk, tenant);
    if (t->offload.host) pi__host_clear(t->offload.host, tenant);
    for (int32_t i = 0; t->load && i < PI__MAX_LOADS; i++)
        if (pi__block_of_tenant(&t->load[i].key, tenant)) t->load[i].forgotten = true;
}

void pi__tiering_stats(pi__tiering *t)
{
    uint64_t entries, bytes;
    if (t->offload.host) {
        pi__host_count(t->offload.host, &entries, &bytes);
        t->stats->host_entries = entries;
        t->stats->host_bytes = bytes;
    }
    pi__tier_stats d;
    if (!t->disk) return;
    pi__tier_get_stats(t->disk, &d);
    t->stats->disk_entries = (uint64_t) d.entries;
    t->stats->disk_bytes = (uint64_t) d.bytes;
    t->stats->disk_reads = (uint64_t) d.hits;
    t->stats->disk_writes = (uint64_t) d.writes;
}

/* ----------------------------------------------------------------------------------------------------------- loads */

static void end_load(pi__tiering *t, pi__load *l, bool ok)
{
    pi__block_pool *p = &t->cache->group[l->group].pool;
    if (ok && !l->forgotten) pi__block_set_hash(p, l->block, &l->key, l->tokens);
    pi__block_release(p, l->block);
    if (l->slot >= 0) pi__block_release(pi__host_pool(t->offload.host, l->group), l->slot);
    t->n_bad_loads += !ok;
    l->number = 0;
}

/* Starts the copy from the slot to the block. */
static void copy_to_block(pi__tiering *t, pi__load *l)
{
    l->copying = pi__offload_back(&t->offload, l->group, l->block, l->slot, &l->copy);
    if (!l->copying) end_load(t, l, false);
}

static void take_read(pi__tiering *t, pi__load *l, bool ok)
{
    if (l->slot < 0 || !ok) {
        end_load(t, l, ok);
        return;
    }
    if (t->offload.host_keeps && !l->forgotten)
        pi__block_set_hash(pi__host_pool(t->offload.host, l->group), l->slot, &l->key, l->tokens);
    copy_to_block(t, l);
}

void pi__tiering_poll(pi__tiering *t)
{
    pi__tier_done done[16];
    pi__offload_poll(&t->offload);
    for (int32_t n; t->disk && (n = pi__tier_poll(t->disk, done, 16)) > 0;)
        for (int32_t i = 0; i < n; i++) take_read(t, &t->load[done[i].tag], done[i].ok);
    for (int32_t i = 0; t->offload.host && i < PI__MAX_LOADS; i++) {
        pi__load *l = &t->load[i];
        if (!l->number || !l->copying) continue;
        const bool ended = pi__offload_ended(&t->offload, &l->copy);
        if (!ended && !t->offload.copies_lost) continue;
        t->stats->host_reads += ended;
        end_load(t, l, ended);
    }
    pi__offload_ahead(&t->offload);
}

/* True if a load with number 1..upto is pending. */
static bool is_pending(const pi__tiering *t, uint64_t upto)
{
    for (int32_t i = 0; i < PI__MAX_LOADS; i++)
        if (t->load[i].number && t->load[i].number <= upto) return true;
    return false;
}

static bool is_loading(const pi__tiering *t, int32_t g, const pi__block_key *key)
{
    for (int32_t i = 0; i < PI__MAX_LOADS; i++) {
        const pi__load *l = &t->load[i];
        if (l->number && l->group == g && pi__digest_equal(&l->key.hash, &key->hash)) return true;
    }
    return false;
}

/* Return the key of block i of group g, and its tokens. */
static pi__block_key block_key(const pi__tiering *t, const pi__seq *s, int32_t g, int32_t i)
{
    return pi__cache_key(t->cache, s->row, t->map->block_size[g], i);
}

static const int32_t *block_tokens(const pi__tiering *t, const pi__seq *s, int32_t g, int32_t i)
{
    return s->tokens + (size_t) i * (size_t) t->map->block_size[g];
}

/* Returns the slot of the host tier that holds block i, -1 = none. */
static int32_t find_slot(const pi__tiering *t, const pi__seq *s, int32_t g, int32_t i)
{
    const pi__block_key key = block_key(t, s, g, i);
    return t->offload.host ? pi__block_find(pi__host_pool(t->offload.host, g), &key, block_tokens(t, s, g, i)) : -1;
}

static bool in_pool(const pi__tiering *t, const pi__seq *s, int32_t g, int32_t i)
{
    const pi__block_key key = block_key(t, s, g, i);
    return pi__block_find(&t->cache->group[g].pool, &key, block_tokens(t, s, g, i)) >= 0;
}

static bool is_anywhere(const pi__tiering *t, const pi__seq *s, int32_t g, int32_t i)
{
    if (in_pool(t, s, g, i) || find_slot(t, s, g, i) >= 0) return true;
    const pi__block_key key = block_key(t, s, g, i);
    return t->disk && pi__tier_has(t->disk, &key.hash, g);
}

/* Returns the length of the longest prefix that pools and tiers hold together. */
static int32_t longest_prefix(const pi__tiering *t, const pi__seq *s)
{
    const int32_t reuse = t->cache->reuse_block;
    int32_t n = pi__seq_max_reuse(s) / reuse * reuse, before;
    do {
        before = n;
        for (int32_t g = 0; g < t->cache->n_groups && n > 0; g++) {
            const pi__group_spec *sp = &t->cache->group[g].spec;
            if (!pi__cache_has(t->cache, s->row, g)) continue;
            int32_t i = n / sp->block_size - 1, first = pi__group_first(sp, n);
            if (pi__group_is_full(sp)) {
                for (i = 0; i < n / sp->block_size && is_anywhere(t, s, g, i);) i++;
                n = i * sp->block_size / reuse * reuse;
                continue;
            }
            while (i >= first && is_anywhere(t, s, g, i)) i--;
            if (i >= first) n = i * sp->block_size / reuse * reuse; /* no prefix that needs block i is complete */
        }
    } while (n > 0 && n != before);
    return n;
}

/* Starts loading block i of group g. False = no tier has the block, no load, block or slot is free, or the load
 * failed. */
static bool start_load(pi__tiering *t, const pi__seq *s, int32_t g, int32_t i)
{
    int32_t bs = t->map->block_size[g], k = 0, slot = find_slot(t, s, g, i);
    pi__block_pool *pool = &t->cache->group[g].pool;
    const pi__block_key key = block_key(t, s, g, i);
    const bool there = slot >= 0;
    if (!there && (!t->disk || !pi__tier_has(t->disk, &key.hash, g))) return false;
    while (k < PI__MAX_LOADS && t->load[k].number) k++;
    if (k == PI__MAX_LOADS || !pi__block_available(pool)) return false;
    if (there) pi__block_touch(pi__host_pool(t->offload.host, g), slot);
    else if (t->offload.host && (slot = pi__host_take(t->offload.host, g)) < 0) return false;
    pi__load *l = &t->load[k];
    *l = (pi__load){.number = ++t->n_loads, .key = key, .group = g, .block = pi__block_get_new(pool), .slot = slot};
    pi__cache_expect(t->cache, s->row, s->tokens, (i + 1) * (bs / t->cache->hash_block));
    memcpy(l->tokens, block_tokens(t, s, g, i), (size_t) bs * sizeof *l->tokens);
    void *to = slot >= 0 ? pi__host_at(t->offload.host, g, slot) : host_block(t, g, l->block);
    if (there) copy_to_block(t, l);
    else if (!pi__tier_load(t->disk, &key, g, l->tokens, bs, to, pi__copy_bytes(t->map, g), (uint64_t) k))
        end_load(t, l, false);
    return l->number != 0;
}

bool pi__tiering_busy(const pi__tiering *t, int32_t n_waiting)
{
    return t->offload.host && (t->offload.n_copies || n_waiting || pi__host_grows(t->offload.host));
}

/* True while s waits for a rescan of the directory: other processes may have written blocks that s needs. Rescans
 * once per request, unless pools and tiers hold everything. Sequences of a sample group do not wait. */
static bool awaits_rescan(pi__tiering *t, pi__seq *s)
{
    if (!t->disk || s->sample_group || (s->fetch.rescan && !s->fetch.rescan_end)) return false;
    if (!s->fetch.rescan) {
        const int32_t reuse = t->cache->reuse_block, most = pi__seq_max_reuse(s) / reuse * reuse;
        s->fetch.rescan = 1;
        if (longest_prefix(t, s) >= most) return false;
        s->fetch.rescan = pi__tier_rescan(t->disk);
        s->fetch.rescan_end = pi__now_ms() + RESCAN_MS;
    }
    if (!pi__tier_rescanned(t->disk, s->fetch.rescan) && pi__now_ms() < s->fetch.rescan_end) return true;
    s->fetch.rescan_end = 0;
    return false;
}

bool pi__tiering_wait(pi__tiering *t, pi__seq *s, int32_t got)
{
    if (!t->disk && !t->offload.host) return false;
    if (awaits_rescan(t, s)) return true;
    if (is_pending(t, s->fetch.upto)) return true;
    if (!s->fetch.rounds) { /* each round starts as many loads as fit; a failed load ends the rounds */
        s->fetch.rounds = 2 * (s->n_tokens / t->cache->hash_block * t->cache->n_groups / PI__MAX_LOADS + 2);
        s->fetch.bad = t->n_bad_loads;
    }
    int32_t n = s->fetch.rounds > 1 && s->fetch.bad == t->n_bad_loads ? longest_prefix(t, s) : 0;
    if (n <= got) {
        s->fetch.rounds = 1;
        return false;
    }
    s->fetch.rounds--;
    bool room = true;
    for (int32_t g = 0; g < t->cache->n_groups; g++) {
        if (!pi__cache_has(t->cache, s->row, g)) continue;
        for (int32_t i = pi__group_first(&t->cache->group[g].spec, n); i < n / t->map->block_size[g] && room; i++) {
            const pi__block_key key = block_key(t, s, g, i);
            if (!in_pool(t, s, g, i) && !is_loading(t, g, &key)) room = start_load(t, s, g, i);
        }
    }
    s->fetch.upto = t->n_loads;
    if (is_pending(t, s->fetch.upto) || (t->offload.host && pi__host_grows(t->offload.host))) return true;
    s->fetch.rounds = 1;
    return false;
}
