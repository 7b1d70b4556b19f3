/* The host tier in the engine: blocks and snapshots of a far device are copied to the host before they are evicted.
 *
 *     free list of a pool, the next to be evicted first:
 *
 *         [ - ][ - ][k1 ][k2 ][k3 ][k4 ] ... [k90][k91]          -: holds nothing
 *          <------------ ahead ------->                            k: holds a prefix
 *                    ^    ^    ^    ^
 *                    queued: copied while steps run, and known to the host tier when the copy has ended
 *
 * Why there, and not where a block gets its key: then every block would cross the bus, and the host would hold what the
 * device holds as well instead of what it has lost. Why not where it is evicted: a step would wait for it. A free block
 * with a key is not written by anybody, so its copy takes what time it needs; "ahead" is what some steps can take from the
 * list. Until the copy has ended the block is passed by when blocks are handed out, so that new requests may have to wait
 * for it a moment; but where one that runs would be preempted for that, it is given up, and so is the copy if somebody
 * takes the block indeed (its round tells). No step waits. The slots of the host tier are in the order in which the device
 * evicts, that is, of last use.
 *
 * A disk tier of a far device is reached through here, too: what gets a key is copied at once, and put there when the copy
 * has ended. Memory: all of it at open. Only the step thread is here, but for pin. */
#include <string.h>

#include "base/error.h"
#include "engine/core_impl.h"

enum {
    AHEAD_STEPS = 4,      /* copies are begun so many steps before blocks can be evicted */
    STAGING_SLOTS = 64,   /* slots a group where the host is only the way to the disk */
    MAX_SLOTS = 1 << 18,  /* slots a group */
};

/* ---------------------------------------------------------------------------------------------------- size, open, close */

/* Whose memory copies are of. */
static pi__backend *device_of(const pi__core *e) { return pi__backend_at(e->be, PI__AT_DEVICE); }

/* Bytes that the tier may keep. */
static double budget_of(const pi__core *e)
{
    size_t most = pi__available_memory() / 4 * 3;
    return e->cfg.cache_ram >= 0 && (uint64_t) e->cfg.cache_ram < most ? (double) e->cfg.cache_ram : (double) most;
}

bool pi__offload_plan(const pi__core *e, pi__host_config *out)
{
    double budget = budget_of(e), pools = 0;
    bool all = true, any = false, far = false;
    *out = (pi__host_config) {.n_groups = e->m->n_groups, .log = e->cfg.log};
    for (int32_t g = 0; g < e->m->n_groups; g++) {
        pools += (double) e->gp[g].spec.n_blocks * (double) pi__copy_bytes(e, g);
        far = far || (device_of(e)->far && device_of(e)->dev->copy_out && e->gp[g].block_bytes[PI__AT_DEVICE]);
    }
    if (!far || !e->cfg.prefix_cache) return false;
    for (int32_t g = 0; g < e->m->n_groups; g++) { /* in proportion to the device's pools */
        const pi__group_plan *p = &e->gp[g];
        double n = pools > 0 ? budget / pools * p->spec.n_blocks : 0;
        out->group[g].n_slots = n < MAX_SLOTS ? (int32_t) n : MAX_SLOTS;
        out->group[g].block_size = p->spec.block_size;
        out->group[g].bytes = pi__copy_bytes(e, g);
        all = all && (out->group[g].n_slots || !p->spec.n_blocks);
    }
    for (int32_t g = 0; g < e->m->n_groups; g++) { /* a prefix needs all groups */
        int32_t *n = &out->group[g].n_slots;
        if (!all) *n = 0;
        if (e->cfg.prefix_dir && e->gp[g].spec.n_blocks && *n < STAGING_SLOTS) *n = STAGING_SLOTS;
        any = any || *n;
    }
    return any;
}

static bool pin(void *ud, void *p, size_t n)
{
    const pi__core *e = ud;
    return device_of(e)->dev->pin(device_of(e), p, n);
}

static void unpin(void *ud, void *p, size_t n)
{
    const pi__core *e = ud;
    device_of(e)->dev->unpin(device_of(e), p, n);
}

int pi__offload_open(pi__core *e, pi_error *err)
{
    pi__host_config c;
    if (!pi__offload_plan(e, &c)) return PI_OK;
    c.pin = pin;
    c.unpin = unpin;
    c.ud = e;
    e->host_keeps = e->cfg.cache_ram != 0;
    e->copy = pi__calloc(PI__MAX_COPIES, sizeof *e->copy);
    if (!e->copy) return pi__fail_mem(err, "the host cache");
    return pi__host_open(&e->host, &c, err);
}

void pi__offload_end(pi__core *e)
{
    if (!e->host) return;
    e->copies_lost = !device_of(e)->dev->copies(device_of(e), true, &e->copies_ended);
    pi__offload_poll(e);
}

void pi__offload_close(pi__core *e)
{
    pi__host_close(e->host);
    pi__free(e->copy);
    e->host = NULL;
    e->copy = NULL;
}

/* ------------------------------------------------------------------------------------------------------------- copies */

/* A slot is the part of the block on the device (on each of several), then the one in the host's memory, which is copied
 * here and now. */
static bool copy_parts(pi__core *e, int32_t group, int32_t block, int32_t slot, bool back, uint64_t *number)
{
    pi__backend *be = device_of(e);
    const size_t far = e->gp[group].block_bytes[PI__AT_DEVICE], near = e->gp[group].block_bytes[PI__AT_CPU];
    const size_t at = pi__copy_bytes(e, group) - near;
    char *host = pi__host_at(e->host, group, slot), *p = pi__block_at(e, group, block, PI__AT_DEVICE);
    if (far) {
        uint64_t n = back ? be->dev->copy_in(be, p, host, far) : be->dev->copy_out(be, host, p, far);
        if (!n) return false;
        e->last_copy = n;
    }
    *number = e->last_copy;
    p = pi__block_at(e, group, block, PI__AT_CPU);
    if (near) memcpy(back ? p : host + at, back ? host + at : p, near);
    return true;
}

bool pi__offload_back(pi__core *e, int32_t group, int32_t block, int32_t slot, uint64_t *number)
{
    return copy_parts(e, group, block, slot, true, number);
}

bool pi__offload(pi__core *e, int32_t group, int32_t block)
{
    pi__block_pool *p = &e->cache.group[group].pool;
    pi__block *b = &p->block[block];
    int32_t slot = e->n_copies < PI__MAX_COPIES ? pi__host_take(e->host, group) : -1;
    if (slot < 0) return false;
    uint64_t number;
    b->offered = true;
    if (!copy_parts(e, group, block, slot, false, &number)) {
        pi__block_release(pi__host_pool(e->host, group), slot);
        return true;
    }
    bool hold = !b->held && p->n_held < p->n_blocks / 2;
    if (hold) pi__block_hold(p, block, true);
    e->copy[(e->first_copy + e->n_copies++) % PI__MAX_COPIES] =
        (pi__copy) {number, b->round, group, block, slot, hold};
    return true;
}

bool pi__offload_yield(pi__core *e)
{
    for (int32_t i = e->n_copies; i-- > 0;) { /* the last one queued ends last */
        pi__copy *c = &e->copy[(e->first_copy + i) % PI__MAX_COPIES];
        if (!c->held) continue;
        pi__block_hold(&e->cache.group[c->group].pool, c->block, false);
        c->held = false;
        return true;
    }
    return false;
}

/* The copy has ended; its slot is known from now on if the block is still what it was. */
static void end_copy(pi__core *e, const pi__copy *c, bool ok)
{
    pi__block_pool *from = &e->cache.group[c->group].pool, *to = pi__host_pool(e->host, c->group);
    const pi__block *b = &from->block[c->block];
    if (c->held) pi__block_hold(from, c->block, false);
    if (ok && b->keyed && b->round == c->round) {
        const int32_t *tokens = from->token + (size_t) c->block * (size_t) from->block_size;
        if (e->tier) pi__tier_put(e->tier, b->key, c->group, tokens, from->block_size,
                                  pi__host_at(e->host, c->group, c->slot), pi__copy_bytes(e, c->group));
        if (e->host_keeps) {
            pi__block_set_key(to, c->slot, b->key, tokens);
            e->st.host_writes++;
        }
    }
    pi__block_release(to, c->slot);
}

void pi__offload_poll(pi__core *e)
{
    if (!e->host) return;
    if (!e->copies_lost) e->copies_lost = !device_of(e)->dev->copies(device_of(e), false, &e->copies_ended);
    while (e->n_copies && (e->copies_lost || e->copy[e->first_copy].number <= e->copies_ended)) {
        const pi__copy *c = &e->copy[e->first_copy];
        end_copy(e, c, c->number <= e->copies_ended);
        e->first_copy = (e->first_copy + 1) % PI__MAX_COPIES;
        e->n_copies--;
    }
}

/* false: no more copies for now. */
static bool offer(pi__core *e, int32_t g, int32_t id)
{
    pi__block_pool *p = &e->cache.group[g].pool, *h = pi__host_pool(e->host, g);
    pi__block *b = &p->block[id];
    if (!b->keyed || b->cold || b->quiet || b->offered) return true;
    int32_t slot = pi__block_find(h, b->key, p->token + (size_t) id * (size_t) p->block_size);
    if (slot < 0) return pi__offload(e, g, id);
    b->offered = true;
    pi__block_touch(h, slot); /* used last, evicted last */
    pi__block_release(h, slot);
    return true;
}

void pi__offload_ahead(pi__core *e)
{
    if (!e->host || !e->host_keeps || e->copies_lost) return;
    for (int32_t g = 0; g < e->cache.n_groups; g++) {
        const pi__block_pool *p = &e->cache.group[g].pool;
        int32_t step = e->lim.max_tokens / p->block_size + e->lim.max_seqs + 1, left = AHEAD_STEPS * step;
        for (int32_t id = p->head; id >= 0 && left > 0; id = p->block[id].next, left--)
            if (!offer(e, g, id)) break;
    }
}
