/* The host tier in the engine: blocks and snapshots of discrete devices are copied to host memory before they are
 * evicted.
 *
 *     free list of a pool, the next to be evicted first:
 *
 *         [ - ][ - ][h1 ][h2 ][h3 ][h4 ] ... [h90][h91]          h: block with a hash (a cached prefix)
 *          <--------- lookahead ------->                            -: empty block
 *                    ^    ^    ^    ^
 *                    queued: copied while steps run; found in the host tier once the copy has completed
 *
 * Copying a block when it gets its hash would send every block over the bus. The host would then duplicate the
 * device's blocks instead of keeping the lost ones. A copy made at eviction would stall a step. A free block with a
 * hash is not written, so its copy need not be fast. The lookahead is the number of blocks that a few steps can take
 * from the list.
 *
 * A block is pinned until its copy has completed: allocation skips it, so new requests may wait for it a moment. If a
 * running sequence would be preempted for it, the block is unpinned. The copy is then dropped if the block is reused
 * (its generation differs). No step waits. Slots of the host tier are in the device's eviction order, that is, in
 * order of last use.
 *
 * The disk tier of a discrete device also goes through the host tier: a block that gets its hash is copied
 * immediately and written to disk when the copy has completed. This also applies to blocks with shards in several
 * places of host memory, since a file stores them adjacently. Memory: allocated at open. Step thread only, except
 * `pin`. */
#include "engine/offload.h"

#include <string.h>

#include "backend/stages.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/system_memory.h"

enum {
    AHEAD_STEPS = 4,      /* steps of lookahead: copies start this long before eviction */
    STAGING_SLOTS = 64,   /* slots per group if the host tier only stages blocks for the disk */
    MAX_SLOTS = 1 << 18,  /* max slots per group */
};

/* ----------------------------------------------------------------------------------------------- size, open, close */

/* True if the device copies the shards of this placement asynchronously; false = memcpy on the host. */
static bool is_async_copy(const pi__offload_config *c, int32_t place)
{
    const pi__backend *be = pi__backend_at(c->be, place);
    return be->discrete && be->opt->copy_out;
}

/* Returns the max bytes of the host tier: the configured bytes, at most three quarters of the free memory. */
static double budget_of(const pi__offload_config *c)
{
    size_t most = pi__available_memory() / 4 * 3;
    return c->ram >= 0 && (uint64_t) c->ram < most ? (double) c->ram : (double) most;
}

bool pi__offload_plan(const pi__offload_config *c, pi__host_config *out)
{
    const pi__block_map *map = c->map;
    double budget = 0, pools = 0;
    bool all = true, any = false, async = false, apart = false;
    *out = (pi__host_config) {.n_groups = map->n_groups, .log = c->log};
    for (int32_t g = 0; g < map->n_groups; g++) {
        pools += (double) map->n_blocks[g] * (double) pi__copy_bytes(map, g);
        int32_t n_places = 0;
        for (int32_t i = 0; i < PI__N_PLACEMENTS; i++) {
            n_places += map->bytes[g][i] > 0;
            async = async || (map->bytes[g][i] && is_async_copy(c, i));
        }
        apart = apart || n_places > 1;
    }
    if (!c->prefix_cache || !(async || (apart && c->to_disk))) return false; /* a file stores all shards adjacently */
    if (async) budget = budget_of(c);
    for (int32_t g = 0; g < map->n_groups; g++) { /* slots in proportion to the device's pools */
        double n = pools > 0 ? budget / pools * map->n_blocks[g] : 0;
        out->group[g].n_slots = n < MAX_SLOTS ? (int32_t) n : MAX_SLOTS;
        out->group[g].block_size = map->block_size[g];
        out->group[g].bytes = pi__copy_bytes(map, g);
        all = all && (out->group[g].n_slots || !map->n_blocks[g]);
    }
    for (int32_t g = 0; g < map->n_groups; g++) { /* a prefix needs slots in all groups */
        int32_t *n = &out->group[g].n_slots;
        if (!all) *n = 0;
        if (c->to_disk && map->n_blocks[g] && *n < STAGING_SLOTS) *n = STAGING_SLOTS;
        any = any || *n;
    }
    return any;
}

size_t pi__offload_bytes(const pi__offload_config *c)
{
    pi__host_config host;
    return pi__offload_plan(c, &host) ? pi__host_lists(&host) + PI__MAX_COPIES * sizeof(pi__copy) : 0;
}

/* Pins host memory. Memory pinned by one device is accessible to all; a CPU backend needs no pinning. */
static bool pin_memory(void *ud, void *p, size_t n)
{
    pi__backend *be = ud;
    return !be->opt->pin || be->opt->pin(be, p, n);
}

static void unpin_memory(void *ud, void *p, size_t n)
{
    pi__backend *be = ud;
    if (be->opt->unpin) be->opt->unpin(be, p, n);
}

int pi__offload_open(pi__offload *o, const pi__offload_config *config, pi_error *err)
{
    pi__host_config c;
    *o = (pi__offload) {.config = *config};
    if (!pi__offload_plan(config, &c)) return PI_OK;
    c.pin = pin_memory;
    c.unpin = unpin_memory;
    c.ud = pi__backend_at(config->be, PI__AT_DEVICE);
    o->host_keeps = config->ram != 0;
    o->copy = pi__calloc(PI__MAX_COPIES, sizeof *o->copy);
    if (!o->copy) return pi__fail_mem(err, "the host cache");
    return pi__host_open(&o->host, &c, err);
}

/* Reads the completed copies from the devices; wait: waits for all of them. */
static void read_completed(pi__offload *o, bool wait)
{
    for (int32_t i = 0; i < pi__n_placements(o->config.be); i++) {
        pi__backend *be = pi__backend_at(o->config.be, i);
        if (is_async_copy(&o->config, i) && !be->opt->copies(be, wait, &o->ended.at[i])) o->copies_lost = true;
    }
}

void pi__offload_end(pi__offload *o)
{
    if (!o->host) return;
    read_completed(o, true);
    pi__offload_poll(o);
}

void pi__offload_close(pi__offload *o)
{
    pi__host_close(o->host);
    pi__free(o->copy);
    o->host = NULL;
    o->copy = NULL;
}

/* ---------------------------------------------------------------------------------------------------------- copies */

/* Copies a shard of n bytes between `p` on one backend and `host` in the slot; back: to the backend. Shards in host
 * memory are copied before it returns; else *number is the number of the copy. Returns false if the device failed. */
static bool copy_shard(pi__offload *o, int32_t place, char *p, char *host, size_t n, bool back, uint64_t *number)
{
    pi__backend *be = pi__backend_at(o->config.be, place);
    if (is_async_copy(&o->config, place)) {
        *number = back ? be->opt->copy_in(be, p, host, n) : be->opt->copy_out(be, host, p, n);
        return *number != 0;
    }
    memcpy(back ? p : host, back ? host : p, n);
    return true;
}

/* Copies all shards of a block; a slot stores them adjacently. If a device fails to queue its copy, waits for the
 * others before returning, since their memory is reused. */
static bool copy_shards(pi__offload *o, int32_t group, int32_t block, int32_t slot, bool back, pi__copy_numbers *number)
{
    const pi__block_map *map = o->config.map;
    char *host = pi__host_at(o->host, group, slot);
    pi__backend *be = o->config.be;
    *number = (pi__copy_numbers) {{0}};
    /* Pipeline stages record ops and run them later: queue recorded snapshot saves and loads of this block first. */
    if (be->n_stages && !pi__stages_queue(be)) return false;
    for (int32_t i = 0; i < PI__N_PLACEMENTS; i++) {
        const size_t n = map->bytes[group][i];
        if (n && !copy_shard(o, i, pi__block_at(map, group, block, i), host, n, back, &number->at[i])) {
            if (i > 0) read_completed(o, true);
            return false;
        }
        host += pi__copy_bytes_at(map, group, i);
    }
    return true;
}

bool pi__offload_back(pi__offload *o, int32_t group, int32_t block, int32_t slot, pi__copy_numbers *number)
{
    return copy_shards(o, group, block, slot, true, number);
}

bool pi__offload_ended(const pi__offload *o, const pi__copy_numbers *number)
{
    for (int32_t i = 0; i < PI__N_PLACEMENTS; i++)
        if (number->at[i] > o->ended.at[i]) return false;
    return true;
}

bool pi__offload_out(pi__offload *o, int32_t group, int32_t block)
{
    pi__block_pool *p = &o->config.cache->group[group].pool;
    pi__block *b = &p->block[block];
    int32_t slot = o->n_copies < PI__MAX_COPIES ? pi__host_take(o->host, group) : -1;
    if (slot < 0) return false;
    pi__copy_numbers number;
    pi__assert(b->ref || b->hashed); /* the block is referenced or holds a prefix */
    b->offload_tried = true;
    if (!copy_shards(o, group, block, slot, false, &number)) {
        pi__block_release(pi__host_pool(o->host, group), slot);
        return true;
    }
    bool hold = !b->pinned_for_copy && p->n_pinned_for_copy < p->n_blocks / 2;
    if (hold) pi__block_hold(p, block, true);
    o->copy[(o->first_copy + o->n_copies++) % PI__MAX_COPIES] =
        (pi__copy) {number, b->generation, group, block, slot, hold};
    return true;
}

bool pi__offload_yield(pi__offload *o)
{
    for (int32_t i = o->n_copies; i-- > 0;) { /* the last queued copy completes last */
        pi__copy *c = &o->copy[(o->first_copy + i) % PI__MAX_COPIES];
        if (!c->pinned_for_copy) continue;
        pi__block_hold(&o->config.cache->group[c->group].pool, c->block, false);
        c->pinned_for_copy = false;
        return true;
    }
    return false;
}

/* Completes a copy; its slot gets the hash if the block still holds the same prefix. */
static void end_copy(pi__offload *o, const pi__copy *c, bool ok)
{
    pi__block_pool *from = &o->config.cache->group[c->group].pool, *to = pi__host_pool(o->host, c->group);
    const pi__block *b = &from->block[c->block];
    if (c->pinned_for_copy) pi__block_hold(from, c->block, false);
    if (ok && b->hashed && b->generation == c->generation) {
        const int32_t *tokens = from->token + (size_t) c->block * (size_t) from->block_size;
        if (o->disk) pi__tier_put(o->disk, &b->key, c->group, tokens, from->block_size,
                                  pi__host_at(o->host, c->group, c->slot), pi__copy_bytes(o->config.map, c->group));
        if (o->host_keeps) {
            pi__block_set_hash(to, c->slot, &b->key, tokens);
            o->config.stats->host_writes++;
        }
    }
    pi__block_release(to, c->slot);
}

void pi__offload_poll(pi__offload *o)
{
    if (!o->host) return;
    if (!o->copies_lost) read_completed(o, false);
    while (o->n_copies) {
        const pi__copy *c = &o->copy[o->first_copy];
        const bool ended = pi__offload_ended(o, &c->number);
        if (!ended && !o->copies_lost) break;
        end_copy(o, c, ended);
        o->first_copy = (o->first_copy + 1) % PI__MAX_COPIES;
        o->n_copies--;
    }
}

/* Queues a copy of block id to the host tier, unless the tier has one or the block is not worth it. False = no slot or
 * ring entry is free. */
static bool offer_block(pi__offload *o, int32_t g, int32_t id)
{
    pi__block_pool *p = &o->config.cache->group[g].pool, *h = pi__host_pool(o->host, g);
    pi__block *b = &p->block[id];
    if (!b->hashed || b->low_priority || b->is_private || b->offload_tried) return true;
    int32_t slot = pi__block_find(h, &b->key, p->token + (size_t) id * (size_t) p->block_size);
    if (slot < 0) return pi__offload_out(o, g, id);
    b->offload_tried = true;
    pi__block_touch(h, slot); /* evicted after older slots */
    pi__block_release(h, slot);
    return true;
}

void pi__offload_ahead(pi__offload *o)
{
    if (!o->host || !o->host_keeps || o->copies_lost) return;
    for (int32_t g = 0; g < o->config.cache->n_groups; g++) {
        const pi__block_pool *p = &o->config.cache->group[g].pool;
        int32_t step = o->config.ahead / p->block_size + o->config.ahead_seqs + 1, left = AHEAD_STEPS * step;
        for (int32_t id = p->head; id >= 0 && left > 0; id = p->block[id].next, left--)
            if (!offer_block(o, g, id)) break;
    }
}
