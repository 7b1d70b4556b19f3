/* The disk tier in the engine: blocks that get a key are offered to it, and a waiting request whose prefix it holds gets
 * the missing blocks read into the pools before it is admitted.
 *
 * A load fills a block that nobody else has; when it is done the block gets its key and joins the free list as if a
 * request had left it there, and the ordinary match finds it. A load that fails leaves an empty free block. So nothing
 * else in the engine knows where a prefix came from. Only the step thread is here, but for wake. */
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "engine/core_impl.h"

/* Everything that gives a block's bytes their meaning. */
static pi__key fingerprint(const pi__core *e)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%s|%s|%s|%d|%d|%d|%d|%d|%016llx%016llx", pi_version(), e->m->arch->name,
                     e->be->ops->describe(e->be), e->cfg.block_size, e->cfg.type_k, e->cfg.type_v,
                     e->cfg.window_differs ? e->cfg.type_window : -1, e->m->n_kv,
                     (unsigned long long) e->m->digest.hi, (unsigned long long) e->m->digest.lo);
    XXH128_hash_t h = XXH3_128bits(text, (size_t) n);
    return (pi__key){h.low64, h.high64};
}

static void wake(void *ud)
{
    pi__core *e = ud;
    pthread_mutex_lock(&e->lock);
    e->poke = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* A block of group g got its key. */
static void keyed(void *ud, int32_t g, int32_t block, pi__key key, const int32_t *tokens)
{
    pi__core *e = ud;
    size_t bytes = e->gp[g].block_bytes[PI__AT_DEVICE]; /* which is the host's memory, or there were no tier */
    char *p = (char *) e->pool[g][PI__AT_DEVICE] + (size_t) block * bytes;
    pi__tier_put(e->tier, key, g, tokens, e->cfg.block_size, p, bytes);
}

static pi__tier_config config_of(const pi__core *e)
{
    return (pi__tier_config){.dir = e->cfg.prefix_dir, .limit_bytes = e->cfg.prefix_dir_bytes, .max_loads = PI__MAX_LOADS,
                             .wake = wake, .wake_ud = (void *) e, .log = e->cfg.log};
}

size_t pi__tiers_bytes(const pi__core *e)
{
    pi__tier_config c = config_of(e);
    return e->cfg.prefix_dir ? pi__tier_memory(&c) : 0;
}

int pi__tiers_open(pi__core *e, pi_error *err)
{
    if (!e->cfg.prefix_dir || !e->cfg.prefix_cache) return PI_OK;
    pi__tier_config c = config_of(e);
    c.fingerprint = fingerprint(e);
    e->load = pi__calloc(PI__MAX_LOADS, sizeof *e->load);
    if (!e->load) return pi__fail_mem(err, "the disk tier");
    int rc = pi__tier_open(&e->tier, &c, err);
    if (rc) return rc;
    e->cache.keyed = keyed;
    e->cache.keyed_ud = e;
    return PI_OK;
}

void pi__tiers_close(pi__core *e)
{
    pi__tier_close(e->tier);
    pi__free(e->load);
    e->tier = NULL;
    e->load = NULL;
}

void pi__tiers_touch(pi__core *e, const pi__seq *s)
{
    if (!e->tier || !pi__seq_keeps(e, s)) return;
    const pi__cache_seq *q = &e->cache.seq[s->row];
    for (int32_t i = q->n_keys; i-- > 0;)
        for (int32_t g = 0; g < e->cache.n_groups; g++)
            if (i >= q->n_freed[g]) pi__tier_touch(e->tier, pi__cache_key(&e->cache, s->row, i), g);
}

void pi__tiers_clear(pi__core *e, const pi__key *tenant)
{
    if (!e->tier) return;
    pi__tier_clear(e->tier, tenant);
    for (int32_t i = 0; i < PI__MAX_LOADS; i++)
        if (pi__key_of_tenant(e->load[i].key, tenant)) e->load[i].forgotten = true;
}

void pi__tiers_stats(pi__core *e)
{
    pi__tier_stats t;
    if (!e->tier) return;
    pi__tier_get_stats(e->tier, &t);
    e->st.disk_entries = (uint64_t) t.entries;
    e->st.disk_bytes = (uint64_t) t.bytes;
    e->st.disk_reads = (uint64_t) t.hits;
    e->st.disk_writes = (uint64_t) t.writes;
}

void pi__tiers_poll(pi__core *e)
{
    pi__tier_done done[16];
    for (int32_t n; e->tier && (n = pi__tier_poll(e->tier, done, 16)) > 0;)
        for (int32_t i = 0; i < n; i++) {
            pi__load *l = &e->load[done[i].tag];
            pi__block_pool *p = &e->cache.group[l->group].pool;
            if (done[i].ok && !l->forgotten) pi__block_set_key(p, l->block, l->key, l->tokens);
            pi__block_release(p, l->block);
            l->number = 0;
        }
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

static bool in_pool(const pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    int32_t bs = e->cfg.block_size;
    return pi__block_find(&e->cache.group[g].pool, pi__cache_key(&e->cache, s->row, i), s->tokens + (size_t) i * (size_t) bs) >= 0;
}

static bool somewhere(const pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    return in_pool(e, s, g, i) || pi__tier_has(e->tier, pi__cache_key(&e->cache, s->row, i), g);
}

/* Longest prefix in blocks that pools and tier hold together. */
static int32_t longest(const pi__core *e, const pi__seq *s)
{
    int32_t end = (s->n_tokens - 1) / e->cfg.block_size, before;
    do {
        before = end;
        for (int32_t g = 0; g < e->cache.n_groups && end > 0; g++) {
            const pi__group_spec *sp = &e->cache.group[g].spec;
            int32_t i = end - 1, first = pi__group_first(sp, end);
            if (pi__group_is_full(sp)) {
                for (i = 0; i < end && somewhere(e, s, g, i);) i++;
                end = i;
                continue;
            }
            while (i >= first && somewhere(e, s, g, i)) i--;
            if (i >= first) end = i; /* nothing that needs i will do */
        }
    } while (end > 0 && end != before);
    return end;
}

/* Starts reading block i of group g. false: no room for it. */
static bool start_load(pi__core *e, const pi__seq *s, int32_t g, int32_t i)
{
    int32_t bs = e->cfg.block_size, k = 0;
    pi__key key = pi__cache_key(&e->cache, s->row, i);
    while (k < PI__MAX_LOADS && e->load[k].number) k++;
    int32_t block = k < PI__MAX_LOADS ? pi__block_get_new(&e->cache.group[g].pool) : -1;
    if (block < 0) return false;
    pi__load *l = &e->load[k];
    *l = (pi__load){.number = ++e->n_loads, .key = key, .group = g, .block = block};
    memcpy(l->tokens, s->tokens + (size_t) i * (size_t) bs, (size_t) bs * sizeof *l->tokens);
    size_t bytes = e->gp[g].block_bytes[PI__AT_DEVICE];
    char *p = (char *) e->pool[g][PI__AT_DEVICE] + (size_t) block * bytes;
    if (pi__tier_load(e->tier, key, g, l->tokens, bs, p, bytes, (uint64_t) k)) return true;
    l->number = 0;
    pi__block_release(&e->cache.group[g].pool, block);
    return false;
}

bool pi__tiers_wait(pi__core *e, pi__seq *s, int32_t got)
{
    if (!e->tier) return false;
    if (s->fetched) return pending(e, s->fetch_upto);
    s->fetched = true;
    int32_t end = longest(e, s);
    if (end * e->cfg.block_size <= got) return false;
    for (int32_t g = 0; g < e->cache.n_groups; g++)
        for (int32_t i = pi__group_first(&e->cache.group[g].spec, end); i < end; i++) {
            if (in_pool(e, s, g, i) || loading(e, g, pi__cache_key(&e->cache, s->row, i))) continue;
            if (!start_load(e, s, g, i)) goto out;
        }
out:
    s->fetch_upto = e->n_loads;
    return pending(e, s->fetch_upto);
}
