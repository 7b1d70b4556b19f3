/* The tiers below the pools: the host's memory (offload.c says how things get there) and a directory on disk. A waiting
 * request whose prefix they hold gets the missing blocks read into the pools before it is admitted.
 *
 *     pool on a far device    <-- copy --  slot of the host tier  <-- read --  file
 *     pool in host memory     <------------------------------------ read --  file
 *
 * A load fills a block that nobody else has; when it is done the block gets its key and joins the free list as if a
 * request had left it there, and the ordinary match finds it. A load that fails leaves an empty free block. So nothing
 * else in the engine knows where a prefix came from. Only the step thread is here, but for wake. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "engine/core_impl.h"

/* Everything that gives a block's bytes their meaning. */
static pi__key fingerprint(const pi__core *e)
{
    char text[768];
    const pi__rope_config *r = &e->cfg.rope;
    int n = snprintf(text, sizeof text, "%s|%s|%s|%a|%d|%a|%lld|%a|%a|%a|%a|%d|%d|%d|%d|%d|%016llx%016llx", pi_version(),
                     e->m->arch->name, e->be->dev->describe(e->be), r->base, r->scaling, r->scale, (long long) r->orig_ctx,
                     r->ext_factor.set ? r->ext_factor.value : -1, r->attn_factor.set ? r->attn_factor.value : -1,
                     r->beta_slow.set ? r->beta_slow.value : -1, r->beta_fast.set ? r->beta_fast.value : -1,
                     e->cfg.block_size, e->cfg.type_k, e->cfg.type_v, e->cfg.window_differs ? e->cfg.type_window : -1, e->m->n_kv,
                     (unsigned long long) e->m->digest.hi, (unsigned long long) e->m->digest.lo);
    pi__key key = pi__hash(text, (size_t) n);
    for (size_t i = 0; i < e->cfg.n_override_kv; i++)
        key = pi__hash_chain(key, e->cfg.override_kv[i], strlen(e->cfg.override_kv[i]));
    for (int32_t i = 0; i < e->m->n_kv; i++) key = pi__key_extend(key, &e->m->kv[i].place, 1); /* a block's parts */
    for (int32_t i = 0; i < e->m->n_state; i++) key = pi__key_extend(key, &e->m->state[i].place, 1);
    return key;
}

static void wake(void *ud)
{
    pi__core *e = ud;
    pthread_mutex_lock(&e->lock);
    e->poke = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* A block that is in the host's memory as a whole: where there is no host tier. */
static char *near_block(const pi__core *e, int32_t g, int32_t block)
{
    return pi__block_at(e, g, block, e->gp[g].block_bytes[PI__AT_DEVICE] ? PI__AT_DEVICE : PI__AT_CPU);
}

/* A block of group g got its key: the disk gets it, from a far device when a copy of it has come. */
static void keyed(void *ud, int32_t g, int32_t block, pi__key key, const int32_t *tokens)
{
    pi__core *e = ud;
    if (!e->host)
        pi__tier_put(e->tier, key, g, tokens, e->gp[g].spec.block_size, near_block(e, g, block), pi__copy_bytes(e, g));
    else if (pi__tier_has(e->tier, key, g)) pi__tier_touch(e->tier, key, g);
    else pi__offload(e, g, block);
}

static pi__tier_config config_of(const pi__core *e)
{
    return (pi__tier_config){.dir = e->cfg.prefix_dir, .limit_bytes = e->cfg.prefix_dir_bytes, .max_loads = PI__MAX_LOADS,
                             .wake = wake, .wake_ud = (void *) e, .log = e->cfg.log};
}

size_t pi__tiers_bytes(const pi__core *e)
{
    pi__tier_config c = config_of(e);
    pi__host_config host;
    size_t n = 0;
    if (pi__offload_plan(e, &host)) n += pi__host_lists(&host) + PI__MAX_COPIES * sizeof *e->copy;
    if (e->cfg.prefix_dir && e->cfg.prefix_cache) n += pi__tier_memory(&c);
    return n ? n + PI__MAX_LOADS * sizeof *e->load : 0;
}

static int open_disk(pi__core *e, pi_error *err)
{
    pi__tier_config c = config_of(e);
    c.fingerprint = fingerprint(e);
    int rc = pi__tier_open(&e->tier, &c, err);
    if (rc) return rc;
    e->cache.keyed = keyed;
    e->cache.keyed_ud = e;
    return PI_OK;
}

int pi__tiers_open(pi__core *e, pi_error *err)
{
    int rc = pi__offload_open(e, err);
    if (!rc && e->cfg.prefix_dir && e->cfg.prefix_cache) rc = open_disk(e, err);
    if (rc || (!e->host && !e->tier)) return rc;
    e->load = pi__calloc(PI__MAX_LOADS, sizeof *e->load);
    return e->load ? PI_OK : pi__fail_mem(err, "the cache's tiers");
}

void pi__tiers_close(pi__core *e)
{
    pi__offload_end(e);
    pi__tier_close(e->tier);
    pi__offload_close(e);
    pi__free(e->load);
    e->tier = NULL;
    e->load = NULL;
}

void pi__tiers_touch(pi__core *e, const pi__seq *s)
{
    if (!e->tier || !pi__seq_keeps(e, s)) return;
    const pi__cache_seq *q = &e->cache.seq[s->row];
    for (int32_t i = q->n_keys; i-- > 0;)
        for (int32_t g = 0; g < e->cache.n_groups; g++) {
            const int32_t end = (i + 1) * e->cache.hash_block, bs = e->gp[g].spec.block_size;
            if (end % bs == 0 && end / bs > q->n_freed[g]) pi__tier_touch(e->tier, pi__cache_key(&e->cache, s->row, i), g);
        }
}

void pi__tiers_clear(pi__core *e, const pi__key *tenant)
{
    if (e->tier) pi__tier_clear(e->tier, tenant);
    if (e->host) pi__host_clear(e->host, tenant);
    for (int32_t i = 0; e->load && i < PI__MAX_LOADS; i++)
        if (pi__key_of_tenant(e->load[i].key, tenant)) e->load[i].forgotten = true;
}

void pi__tiers_stats(pi__core *e)
{
    uint64_t entries, bytes;
    if (e->host) {
        pi__host_count(e->host, &entries, &bytes);
        e->st.host_entries = entries;
        e->st.host_bytes = bytes;
    }
    pi__tier_stats t;
    if (!e->tier) return;
    pi__tier_get_stats(e->tier, &t);
    e->st.disk_entries = (uint64_t) t.entries;
    e->st.disk_bytes = (uint64_t) t.bytes;
    e->st.disk_reads = (uint64_t) t.hits;
    e->st.disk_writes = (uint64_t) t.writes;
}

/* ------------------------------------------------------------------------------------------------------------- loads */

static void end_load(pi__core *e, pi__load *l, bool ok)
{
    pi__block_pool *p = &e->cache.group[l->group].pool;
    if (ok && !l->forgotten) pi__block_set_key(p, l->block, l->key, l->tokens);
    pi__block_release(p, l->block);
    if (l->slot >= 0) pi__block_release(pi__host_pool(e->host, l->group), l->slot);
    e->n_bad_loads += !ok;
    l->number = 0;
}

/* From the slot to the block. */
static void bring(pi__core *e, pi__load *l)
{
    l->copying = pi__offload_back(e, l->group, l->block, l->slot, &l->copy);
    if (!l->copying) end_load(e, l, false);
}

static void take_read(pi__core *e, pi__load *l, bool ok)
{
    if (l->slot < 0 || !ok) {
        end_load(e, l, ok);
        return;
    }
    if (e->host_keeps && !l->forgotten)
        pi__block_set_key(pi__host_pool(e->host, l->group), l->slot, l->key, l->tokens);
    bring(e, l);
}

void pi__tiers_poll(pi__core *e)
{
    pi__tier_done done[16];
    pi__offload_poll(e);
    for (int32_t n; e->tier && (n = pi__tier_poll(e->tier, done, 16)) > 0;)
        for (int32_t i = 0; i < n; i++) take_read(e, &e->load[done[i].tag], done[i].ok);
    for (int32_t i = 0; e->host && i < PI__MAX_LOADS; i++) {
        pi__load *l = &e->load[i];
        if (!l->number || !l->copying) continue;
        bool ended = l->copy <= e->copies_ended;
        if (!ended && !e->copies_lost) continue;
        e->st.host_reads += ended;
        end_load(e, l, ended);
    }
    pi__offload_ahead(e);
}

/* A load with number 1..upto is still under way. */
static bool pending(const pi__core *e, uint64_t upto)
{
    for (int32_t i = 0; i < PI__MAX_LOADS; i++)
        if (e->load[i].number && e->load[i].number <= upto) return true;
    return false;
}

static bool loading(const pi__core *e, int32_t g, pi__key key)
{
    for (int32_t i = 0; i < PI__MAX_LOADS; i++) {
        const pi__load *l = &e->load[i];
        if (l->number && l->group == g && l->key.lo == key.lo && l->key.hi == key.hi) return true;
    }
    return false;
}

/* The key of block i of group g, and its tokens. */
static pi__key block_key(const pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    return pi__cache_key(&e->cache, s->row, (i + 1) * (e->gp[g].spec.block_size / e->cache.hash_block) - 1);
}

static const int32_t *block_tokens(const pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    return s->tokens + (size_t) i * (size_t) e->gp[g].spec.block_size;
}

/* The slot of the host tier that holds block i, -1: none. */
static int32_t find_slot(const pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    return e->host ? pi__block_find(pi__host_pool(e->host, g), block_key(e, s, g, i), block_tokens(e, s, g, i)) : -1;
}

static bool in_pool(const pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    return pi__block_find(&e->cache.group[g].pool, block_key(e, s, g, i), block_tokens(e, s, g, i)) >= 0;
}

static bool somewhere(const pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    return in_pool(e, s, g, i) || find_slot(e, s, g, i) >= 0 ||
           (e->tier && pi__tier_has(e->tier, block_key(e, s, g, i), g));
}

/* Longest prefix that pools and tiers hold together. */
static int32_t longest(const pi__core *e, const pi__seq *s)
{
    const int32_t reuse = e->cache.reuse_block;
    int32_t n = pi__seq_most(s) / reuse * reuse, before;
    do {
        before = n;
        for (int32_t g = 0; g < e->cache.n_groups && n > 0; g++) {
            const pi__group_spec *sp = &e->cache.group[g].spec;
            int32_t i = n / sp->block_size - 1, first = pi__group_first(sp, n);
            if (pi__group_is_full(sp)) {
                for (i = 0; i < n / sp->block_size && somewhere(e, s, g, i);) i++;
                n = i * sp->block_size / reuse * reuse;
                continue;
            }
            while (i >= first && somewhere(e, s, g, i)) i--;
            if (i >= first) n = i * sp->block_size / reuse * reuse; /* nothing that needs i will do */
        }
    } while (n > 0 && n != before);
    return n;
}

/* Starts bringing block i of group g. false: no room for it, or what there was has just gone to make room. */
static bool start_load(pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    int32_t bs = e->gp[g].spec.block_size, k = 0, slot = find_slot(e, s, g, i);
    pi__block_pool *pool = &e->cache.group[g].pool;
    pi__key key = block_key(e, s, g, i);
    const bool there = slot >= 0;
    if (!there && (!e->tier || !pi__tier_has(e->tier, key, g))) return false;
    while (k < PI__MAX_LOADS && e->load[k].number) k++;
    if (k == PI__MAX_LOADS || !pi__block_available(pool)) return false;
    if (there) pi__block_touch(pi__host_pool(e->host, g), slot);
    else if (e->host && (slot = pi__host_take(e->host, g)) < 0) return false;
    pi__load *l = &e->load[k];
    *l = (pi__load){.number = ++e->n_loads, .key = key, .group = g, .block = pi__block_get_new(pool), .slot = slot};
    memcpy(l->tokens, block_tokens(e, s, g, i), (size_t) bs * sizeof *l->tokens);
    void *to = slot >= 0 ? pi__host_at(e->host, g, slot) : near_block(e, g, l->block);
    if (there) bring(e, l);
    else if (!pi__tier_load(e->tier, key, g, l->tokens, bs, to, pi__copy_bytes(e, g), (uint64_t) k)) end_load(e, l, false);
    return l->number != 0;
}

bool pi__tiers_busy(const pi__core *e)
{
    return e->host && (e->n_copies || e->waiting.n || pi__host_grows(e->host));
}

bool pi__tiers_wait(pi__core *e, pi__seq *s, int32_t got)
{
    if (!e->tier && !e->host) return false;
    if (pending(e, s->fetch_upto)) return true;
    if (!s->fetches) { /* in rounds of what can be under way at a time; one that fails is the last */
        s->fetches = 2 * (s->n_tokens / e->cache.hash_block * e->cache.n_groups / PI__MAX_LOADS + 2);
        s->fetch_bad = e->n_bad_loads;
    }
    int32_t n = s->fetches > 1 && s->fetch_bad == e->n_bad_loads ? longest(e, s) : 0;
    if (n <= got) {
        s->fetches = 1;
        return false;
    }
    s->fetches--;
    bool room = true;
    for (int32_t g = 0; g < e->cache.n_groups; g++)
        for (int32_t i = pi__group_first(&e->gp[g].spec, n); i < n / e->gp[g].spec.block_size && room; i++)
            if (!in_pool(e, s, g, i) && !loading(e, g, block_key(e, s, g, i))) room = start_load(e, s, g, i);
    s->fetch_upto = e->n_loads;
    if (pending(e, s->fetch_upto) || (e->host && pi__host_grows(e->host))) return true;
    s->fetches = 1;
    return false;
}
