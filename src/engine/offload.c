/* The host tier in the engine: blocks and snapshots of a discrete device, or of several, are copied to the host before they
 * are evicted.
 *
 *     free list of a pool, the next to be evicted first:
 *
 *         [ - ][ - ][h1 ][h2 ][h3 ][h4 ] ... [h90][h91]          h: block hash, -: holds nothing
 *          <------------ ahead ------->                            k: holds a prefix
 *                    ^    ^    ^    ^
 *                    queued: copied while steps run, and known to the host tier when the copy has ended
 *
 * Why there, and not where a block gets its hash: then every block would cross the bus, and the host would hold what
 * the device holds as well instead of what it has lost. Why not where it is evicted: a step would wait for it. A free
 * block with a hash is not written by anybody, so its copy takes what time it needs; "ahead" is what some steps can
 * take from the list. Until the copy has ended the block is passed by when blocks are handed out, so that new requests
 * may have to wait for it a moment; but where one that runs would be preempted for that, it is given up, and so is the
 * copy if somebody takes the block indeed (its generation tells). No step waits. The slots of the host tier are in the
 * order in which the device evicts, that is, of last use.
 *
 * A disk tier of a discrete device is reached through here, too: a block that gets its hash is copied at once, and put
 * there when the copy has ended; and so is one of blocks in several places of the host's memory, which a file has side by
 * side. Memory: all of it at open. Only the step thread is here, but for pin. */
#include "engine/offload.h"

#include <string.h>

#include "backend/stages.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

enum {
    AHEAD_STEPS = 4,      /* copies are begun so many steps before blocks can be evicted */
    STAGING_SLOTS = 64,   /* slots a group where the host is only the way to the disk */
    MAX_SLOTS = 1 << 18,  /* slots a group */
};

/* ---------------------------------------------------------------------------------------------------- size, open, close */

/* Copies of the shards there are the device's own; of others the host's. */
static bool is_far(const pi__offload_config *c, int32_t place)
{
    const pi__backend *be = pi__backend_at(c->be, place);
    return be->discrete && be->dev->copy_out;
}

/* Bytes that the tier may keep. */
static double budget_of(const pi__offload_config *c)
{
    size_t most = pi__available_memory() / 4 * 3;
    return c->ram >= 0 && (uint64_t) c->ram < most ? (double) c->ram : (double) most;
}

bool pi__offload_plan(const pi__offload_config *c, pi__host_config *out)
{
    const pi__block_map *map = c->map;
    double budget = 0, pools = 0;
    bool all = true, any = false, far = false, apart = false;
    *out = (pi__host_config) {.n_groups = map->n_groups, .log = c->log};
    for (int32_t g = 0; g < map->n_groups; g++) {
        pools += (double) map->n_blocks[g] * (double) pi__copy_bytes(map, g);
        int32_t n_places = 0;
        for (int32_t i = 0; i < PI__N_PLACEMENTS; i++) {
            n_places += map->bytes[g][i] > 0;
            far = far || (map->bytes[g][i] && is_far(c, i));
        }
        apart = apart || n_places > 1;
    }
    if (!c->keeps || !(far || (apart && c->to_disk))) return false; /* a file is of all shards, side by side */
    if (far) budget = budget_of(c);
    for (int32_t g = 0; g < map->n_groups; g++) { /* in proportion to the device's pools */
        double n = pools > 0 ? budget / pools * map->n_blocks[g] : 0;
        out->group[g].n_slots = n < MAX_SLOTS ? (int32_t) n : MAX_SLOTS;
        out->group[g].block_size = map->block_size[g];
        out->group[g].bytes = pi__copy_bytes(map, g);
        all = all && (out->group[g].n_slots || !map->n_blocks[g]);
    }
    for (int32_t g = 0; g < map->n_groups; g++) { /* a prefix needs all groups */
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

/* What one device pins all reach; the host's own memory is not pinned. */
static bool pin(void *ud, void *p, size_t n)
{
    pi__backend *be = ud;
    return !be->dev->pin || be->dev->pin(be, p, n);
}

static void unpin(void *ud, void *p, size_t n)
{
    pi__backend *be = ud;
    if (be->dev->unpin) be->dev->unpin(be, p, n);
}

int pi__offload_open(pi__offload *o, const pi__offload_config *config, pi_error *err)
{
    pi__host_config c;
    *o = (pi__offload) {.config = *config};
    if (!pi__offload_plan(config, &c)) return PI_OK;
    c.pin = pin;
    c.unpin = unpin;
    c.ud = pi__backend_at(config->be, PI__AT_DEVICE);
    o->host_keeps = config->ram != 0;
    o->copy = pi__calloc(PI__MAX_COPIES, sizeof *o->copy);
    if (!o->copy) return pi__fail_mem(err, "the host cache");
    return pi__host_open(&o->host, &c, err);
}

/* Asks the devices how far copies are. */
static void look(pi__offload *o, bool wait)
{
    for (int32_t i = 0; i < pi__n_places(o->config.be); i++) {
        pi__backend *be = pi__backend_at(o->config.be, i);
        if (is_far(&o->config, i) && !be->dev->copies(be, wait, &o->ended.at[i])) o->copies_lost = true;
    }
}

void pi__offload_end(pi__offload *o)
{
    if (!o->host) return;
    look(o, true);
    pi__offload_poll(o);
}

void pi__offload_close(pi__offload *o)
{
    pi__host_close(o->host);
    pi__free(o->copy);
    o->host = NULL;
    o->copy = NULL;
}

/* ------------------------------------------------------------------------------------------------------------- copies */

/* The shard on one backend, that lies at `host` in the slot. In the host's memory it is copied here and now. */
static bool copy_shard(pi__offload *o, int32_t place, char *p, char *host, size_t n, bool back, uint64_t *number)
{
    pi__backend *be = pi__backend_at(o->config.be, place);
    if (is_far(&o->config, place)) {
        *number = back ? be->dev->copy_in(be, p, host, n) : be->dev->copy_out(be, host, p, n);
        return *number != 0;
    }
    memcpy(back ? p : host, back ? host : p, n);
    return true;
}

/* A slot is the block's shards, one behind the other. A copy that is not queued by all devices must not go on when this returns:
 * its memory is used again. */
static bool copy_shards(pi__offload *o, int32_t group, int32_t block, int32_t slot, bool back, pi__copy_numbers *number)
{
    const pi__block_map *map = o->config.map;
    char *host = pi__host_at(o->host, group, slot);
    pi__backend *be = o->config.be;
    *number = (pi__copy_numbers) {{0}};
    /* Stages note ops: a snapshot that is to be saved to the block, or loaded from it, is not there, or not gone, before. */
    if (be->n_stages && !pi__stages_queue(be)) return false;
    for (int32_t i = 0; i < PI__N_PLACEMENTS; i++) {
        const size_t n = map->bytes[group][i];
        if (n && !copy_shard(o, i, pi__block_at(map, group, block, i), host, n, back, &number->at[i])) {
            if (i > 0) look(o, true);
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
    pi__assert(b->ref || b->hashed); /* it is referenced, or it holds a prefix */
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
    for (int32_t i = o->n_copies; i-- > 0;) { /* the last one queued ends last */
        pi__copy *c = &o->copy[(o->first_copy + i) % PI__MAX_COPIES];
        if (!c->pinned_for_copy) continue;
        pi__block_hold(&o->config.cache->group[c->group].pool, c->block, false);
        c->pinned_for_copy = false;
        return true;
    }
    return false;
}

/* The copy has ended; its slot is known from now on if the block is still what it was. */
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
    if (!o->copies_lost) look(o, false);
    while (o->n_copies) {
        const pi__copy *c = &o->copy[o->first_copy];
        const bool ended = pi__offload_ended(o, &c->number);
        if (!ended && !o->copies_lost) break;
        end_copy(o, c, ended);
        o->first_copy = (o->first_copy + 1) % PI__MAX_COPIES;
        o->n_copies--;
    }
}

/* false: no more copies for now. */
static bool offer(pi__offload *o, int32_t g, int32_t id)
{
    pi__block_pool *p = &o->config.cache->group[g].pool, *h = pi__host_pool(o->host, g);
    pi__block *b = &p->block[id];
    if (!b->hashed || b->low_priority || b->is_private || b->offload_tried) return true;
    int32_t slot = pi__block_find(h, &b->key, p->token + (size_t) id * (size_t) p->block_size);
    if (slot < 0) return pi__offload_out(o, g, id);
    b->offload_tried = true;
    pi__block_touch(h, slot); /* used last, evicted last */
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
            if (!offer(o, g, id)) break;
    }
}
