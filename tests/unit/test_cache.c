/* Block pool, block tables and prefix matching against a simple model of the cache memory.
 *
 * For every slot of every pool, the model keeps the hash of the token prefix whose K,V the slot would hold. Sequences
 * write as a step would. A match must return exactly the prefix's hashes, at every position that a later token
 * reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cache/cache.h"

enum { SEQS = 6, CTX = 512 };

typedef struct model {
    pi__cache c;
    uint64_t *slot[4];            /* [n_blocks * block_size] hash of the prefix that ends in this token; 0 = garbage */
    struct {
        bool on;
        int32_t token[CTX], n, computed;
        int32_t found;            /* tokens reused from the prefix cache */
        uint64_t state[4];        /* for a state group: hash of the computed prefix */
    } seq[SEQS];
    uint64_t rng;
    uint64_t reused;              /* tokens returned by matches; proves that the test does not pass on misses alone */
} model;

static uint32_t rnd(model *m, uint32_t n)
{
    m->rng = m->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) ((m->rng >> 33) % n);
}

static uint64_t mix(uint64_t h, int32_t t) { return (h ^ (uint64_t) (uint32_t) t) * 0x9E3779B97F4A7C15u + 0x1234567; }

static uint64_t *at(model *m, int g, int32_t s, int32_t pos)
{
    const pi__cache_group *gr = &m->c.group[g];
    int32_t bs = gr->spec.block_size, block = gr->table[s * gr->stride + pos / bs];
    return block < 0 ? NULL : &m->slot[g][block * bs + pos % bs];
}

/* Checks that every position that a token at n or later can read holds this sequence's own prefix. */
static void check_seen(model *m, int32_t s, int32_t n)
{
    uint64_t h = 7;
    for (int32_t p = 0; p < n; p++) {
        h = mix(h, m->seq[s].token[p]);
        for (int g = 0; g < m->c.n_groups; g++) {
            const pi__group_spec *sp = &m->c.group[g].spec;
            if (sp->state || (sp->window && p <= n - pi__group_window(sp))) continue;
            if (sp->keep && p <= m->seq[s].found - sp->window) continue; /* not needed for a prefix */
            uint64_t *v = at(m, g, s, p);
            assert_non_null(v);
            assert_int_equal(*v, h);
        }
    }
}

static uint64_t prefix_hash(const model *m, int32_t s, int32_t n)
{
    uint64_t h = 7;
    for (int32_t p = 0; p < n; p++) h = mix(h, m->seq[s].token[p]);
    return h;
}

/* Advances the state from its previous value; a wrong snapshot thus stays visible in all later states. */
static void run_state(model *m, int g, int32_t s, int32_t p)
{
    const pi__group_spec *sp = &m->c.group[g].spec;
    m->seq[s].state[g] = mix(m->seq[s].state[g], m->seq[s].token[p]);
    if ((p + 1) % sp->block_size || rnd(m, 3)) return;
    int32_t id = pi__cache_snapshot(&m->c, s, g, m->seq[s].token, p + 1);
    if (id < 0) return;
    bool filled = rnd(m, 20) != 0;
    m->slot[g][id] = filled ? m->seq[s].state[g] : 0;
    pi__cache_snapshot_done(&m->c, s, g, m->seq[s].token, p + 1, id, filled);
}

static void compute(model *m, int32_t s, int32_t to)
{
    uint64_t h = 7;
    for (int32_t p = 0; p < to; p++) {
        h = mix(h, m->seq[s].token[p]);
        if (p < m->seq[s].computed) continue;
        for (int g = 0; g < m->c.n_groups; g++)
            if (m->c.group[g].spec.state) run_state(m, g, s, p);
            else *at(m, g, s, p) = h;
    }
    for (int g = 0; g < m->c.n_groups; g++)
        if (m->c.group[g].spec.state) assert_int_equal(m->seq[s].state[g], h);
    m->seq[s].computed = to;
    pi__cache_commit(&m->c, s, m->seq[s].token, to, true);
    check_seen(m, s, to);
}

/* Checks that references equal the number of tables with a block, used and free add up, and the list has each free
 * block once. */
static void check_pools(model *m)
{
    for (int g = 0; g < m->c.n_groups; g++) {
        pi__cache_group *gr = &m->c.group[g];
        int32_t *refs = calloc((size_t) gr->spec.n_blocks, sizeof *refs), on_list = 0, used = 0, cached = 0, shared = 0;
        for (int32_t s = 0; s < SEQS; s++)
            for (int32_t i = m->c.seq[s].n_freed[g]; m->seq[s].on && i < m->c.seq[s].n_blocks[g]; i++)
                refs[gr->table[s * gr->stride + i]]++;
        for (int32_t b = gr->pool.head, prev = -1; b >= 0; prev = b, b = gr->pool.block[b].next) {
            assert_int_equal(gr->pool.block[b].prev, prev);
            assert_int_equal(gr->pool.block[b].ref, 0);
            cached += gr->pool.block[b].hashed;
            on_list++;
        }
        for (int32_t b = 0; b < gr->spec.n_blocks; b++) {
            assert_int_equal(refs[b], gr->pool.block[b].ref);
            used += refs[b] > 0;
            shared += refs[b] > 1;
        }
        assert_int_equal(on_list, gr->pool.n_free);
        assert_int_equal(cached, gr->pool.n_cached);
        assert_int_equal(shared, gr->pool.n_shared);
        assert_int_equal(on_list + used, gr->spec.n_blocks);
        free(refs);
    }
    const char *bad = pi__cache_check(&m->c, NULL);
    if (bad) fail_msg("%s", bad);
}

static void one_op(model *m)
{
    int32_t s = (int32_t) rnd(m, SEQS), wanted;
    if (!m->seq[s].on) { /* a prompt that often shares its start with other prompts */
        int32_t n = 1 + (int32_t) rnd(m, 160);
        for (int32_t i = 0; i < n; i++)
            m->seq[s].token[i] = i < 96 ? (int32_t) (i / 48 + (rnd(m, 40) == 0)) : (int32_t) rnd(m, 3);
        pi__cache_start(&m->c, s, NULL);
        int32_t got = pi__cache_match(&m->c, s, m->seq[s].token, n, &wanted);
        assert_true(got < n && wanted >= got);
        m->seq[s].on = true;
        m->seq[s].n = n;
        m->seq[s].computed = m->seq[s].found = got;
        m->reused += (uint64_t) got;
        for (int g = 0; g < m->c.n_groups; g++) {
            int32_t id = m->c.seq[s].snapshot[g];
            if (!m->c.group[g].spec.state) continue;
            assert_true((id >= 0) == (got > 0));
            m->seq[s].state[g] = id < 0 ? 7 : m->slot[g][id];
            assert_int_equal(m->seq[s].state[g], prefix_hash(m, s, got));
        }
        check_seen(m, s, got);
    } else if (rnd(m, 8) == 0) {
        pi__cache_release(&m->c, s);
        m->seq[s].on = false;
    } else if (rnd(m, 2000) == 0) {
        pi__cache_clear(&m->c, NULL);
    } else if (m->seq[s].computed < m->seq[s].n) { /* a prefill chunk */
        int32_t to = m->seq[s].computed + 1 + (int32_t) rnd(m, (uint32_t) (m->seq[s].n - m->seq[s].computed));
        if (pi__cache_reserve(&m->c, s, to)) compute(m, s, to);
    } else if (m->seq[s].n < CTX) { /* decode */
        m->seq[s].token[m->seq[s].n++] = (int32_t) rnd(m, 2);
        if (pi__cache_reserve(&m->c, s, m->seq[s].n)) compute(m, s, m->seq[s].n);
        else m->seq[s].n--;
    }
}

static void run_model(const pi__group_spec *spec, int32_t n_groups, int n_ops)
{
    model *m = calloc(1, sizeof *m);
    m->rng = 42 + (uint64_t) spec[0].block_size;
    assert_int_equal(pi__cache_init(&m->c, spec, n_groups, SEQS, CTX, NULL), PI_OK);
    for (int g = 0; g < n_groups; g++)
        m->slot[g] = calloc((size_t) (spec[g].n_blocks * spec[g].block_size), sizeof(uint64_t));
    for (int i = 0; i < n_ops; i++) {
        one_op(m);
        check_pools(m);
    }
    assert_true(m->reused > 1000);
    for (int32_t s = 0; s < SEQS; s++) {
        if (m->seq[s].on) pi__cache_release(&m->c, s);
        m->seq[s].on = false;
    }
    check_pools(m);
    for (int g = 0; g < n_groups; g++) {
        assert_int_equal(m->c.group[g].pool.n_free, spec[g].n_blocks);
        free(m->slot[g]);
    }
    pi__cache_destroy(&m->c);
    free(m);
}

static void full_group(void **st) { (void) st; run_model((pi__group_spec[]){{"full", 16, 0, 40, false, 0}}, 1, 20000); }
static void window_group(void **st)
{
    (void) st;
    run_model((pi__group_spec[]){{"window", 16, 50, 40, false, 0}}, 1, 20000);
}
static void both_groups(void **st)
{
    (void) st;
    run_model((pi__group_spec[]){{"full", 16, 0, 60, false, 0}, {"window", 16, 20, 30, false, 0}}, 2, 30000);
}
static void mixed_block_sizes(void **st)
{
    (void) st;
    run_model((pi__group_spec[]){{"full", 32, 0, 30, false, 0}, {"window", 16, 64, 40, false, 0}}, 2, 30000);
}

static void state_group(void **st)
{
    (void) st;
    run_model((pi__group_spec[]){{"recurrent", 16, 0, 12, true, 0}}, 1, 20000);
}

static void state_and_full(void **st)
{
    (void) st;
    run_model((pi__group_spec[]){{"recurrent", 16, 0, 10, true, 0}, {"full", 16, 0, 60, false, 0}}, 2, 30000);
}

static void three_kinds(void **st)
{
    (void) st;
    const pi__group_spec spec[] = {
        {"full", 32, 0, 40, false, 0}, {"recurrent", 32, 0, 8, true, 0}, {"window", 16, 40, 50, false, 0}};
    run_model(spec, 3, 30000);
}

/* A model with compressed attention: permanent entries, a window, and recent tokens. A prefix needs few or no recent
 * tokens. */
static void entries_of_recent(void **st)
{
    (void) st;
    const pi__group_spec spec[] = {{"full", 64, 0, 14, false, 0}, {"window", 16, 20, 40, false, 0},
                                   {"recent", 16, 5, 36, false, 8}, {"recent", 16, 1, 50, false, 64}};
    run_model(spec, 4, 30000);
}

/* Blocks that no prefix can need get no block hash: in "recent" groups, all except the last ones before the end of an
 * entry block. */
static void needless_keys(void **st)
{
    (void) st;
    const pi__group_spec spec[] = {{"full", 64, 0, 14, false, 0}, {"recent", 16, 5, 36, false, 8},
                                   {"recent", 16, 1, 50, false, 64}};
    int32_t tokens[130] = {0}, wanted;
    pi__cache c;
    assert_int_equal(pi__cache_init(&c, spec, 3, 2, 512, NULL), PI_OK);
    pi__cache_start(&c, 0, NULL);
    assert_true(pi__cache_reserve(&c, 0, 130));
    pi__cache_commit(&c, 0, tokens, 130, true);
    for (int32_t b = 0, n[3] = {0}; b < 50; b++) {
        for (int g = 0; g < 3; g++) n[g] += b < spec[g].n_blocks && c.group[g].pool.block[b].hashed;
        if (b == 49) assert_true(n[0] == 2 && n[1] == 2 && n[2] == 0);
    }
    pi__cache_start(&c, 1, NULL);
    assert_int_equal(pi__cache_match(&c, 1, tokens, 130, &wanted), 128);
    assert_int_equal(wanted, 128);
    pi__cache_release(&c, 1);
    pi__cache_start(&c, 1, NULL);
    assert_int_equal(pi__cache_match(&c, 1, tokens, 128, &wanted), 64); /* at least one token must be computed */
    pi__cache_release(&c, 1);
    pi__cache_release(&c, 0);
    pi__cache_destroy(&c);
}

/* A sequence that diverges takes nothing beyond the common prefix, and a match finds the deepest usable snapshot. */
static void snapshots_of_a_tree(void **st)
{
    (void) st;
    pi__cache c;
    pi__group_spec spec[] = {{"full", 16, 0, 60, false, 0}, {"recurrent", 16, 0, 4, true, 0}};
    int32_t a[96], b[96], wanted;
    for (int32_t i = 0; i < 96; i++) a[i] = b[i] = i;
    for (int32_t i = 64; i < 96; i++) b[i] = 1000 + i;
    assert_int_equal(pi__cache_init(&c, spec, 2, 2, 256, NULL), PI_OK);
    pi__cache_start(&c, 0, NULL);
    assert_int_equal(pi__cache_match(&c, 0, a, 96, &wanted), 0);
    assert_true(pi__cache_reserve(&c, 0, 96));
    int32_t at[] = {32, 80}, id[2];
    for (int i = 0; i < 2; i++) {
        id[i] = pi__cache_snapshot(&c, 0, 1, a, at[i]);
        pi__cache_snapshot_done(&c, 0, 1, a, at[i], id[i], true);
    }
    assert_int_equal(pi__cache_snapshot(&c, 0, 1, a, 80), -1); /* the snapshot exists already */
    pi__cache_commit(&c, 0, a, 96, true);
    pi__cache_start(&c, 1, NULL);
    assert_int_equal(pi__cache_match(&c, 1, b, 96, &wanted), 32);
    assert_int_equal(wanted, 64); /* the point of divergence, where a snapshot is useful */
    assert_int_equal(c.seq[1].snapshot[1], id[0]);
    assert_true(pi__cache_reserve(&c, 1, 96));
    int32_t branch = pi__cache_snapshot(&c, 1, 1, b, 64);
    pi__cache_snapshot_done(&c, 1, 1, b, 64, branch, true);
    pi__cache_commit(&c, 1, b, 96, true);
    pi__cache_release(&c, 1);
    pi__cache_start(&c, 1, NULL);
    assert_int_equal(pi__cache_match(&c, 1, a, 96, &wanted), 80); /* the ancestor's snapshot is unchanged */
    assert_int_equal(c.seq[1].snapshot[1], id[1]);
    pi__cache_release(&c, 1);
    pi__cache_start(&c, 1, "other");
    assert_int_equal(pi__cache_match(&c, 1, a, 96, &wanted), 0);
    assert_int_equal(c.seq[1].snapshot[1], -1);
    pi__cache_release(&c, 1);
    pi__cache_release(&c, 0);
    pi__cache_destroy(&c);
}

/* Hashes of blocks without an image are those of text. A block with a part of an image depends on the image, on the
 * part, and on its place; all later blocks depend on it through their parent. */
static void hashes_of_images(void **st)
{
    (void) st;
    int32_t tokens[16] = {1, 2, 3};
    const pi__digest parent = {{9}};
    const pi__digest text = pi__block_hash_extend(&parent, tokens, 16, false);
    const pi__block_media base[2] = {{30, 40, {{1}}}, {70, 5, {{2}}}};
    pi__digest seen[9];
    for (int32_t first = 0; first < 96; first += 16) {
        const pi__digest d = pi__block_hash_media(&parent, tokens, 16, false, first, base, 2);
        assert_int_equal(pi__digest_equal(&d, &text), first < 16 || first >= 80);
        const pi__digest none = pi__block_hash_media(&parent, tokens, 16, false, first, base, 0);
        assert_true(pi__digest_equal(&none, &text));
    }
    for (int i = 0; i < 9; i++) {
        pi__block_media m[2] = {base[0], base[1]};
        if (i == 1) m[0].id.byte[31] = 1;
        if (i == 2) m[0].start = 31;
        if (i == 3) m[0].n = 39;
        if (i == 4) m[1].id = m[0].id;
        if (i == 5) m[1].start = 71, m[1].n = 4;
        const int32_t first = i == 6 ? 48 : 64;
        seen[i] = pi__block_hash_media(&parent, tokens, 16, i == 7, first, m, i == 8 ? 1 : 2);
        for (int k = 0; k < i; k++) assert_false(pi__digest_equal(&seen[i], &seen[k]));
    }
}

/* Prefixes with images: equal tokens with another image are another prefix. No prefix ends within a whole image. */
static void prefixes_of_images(void **st)
{
    (void) st;
    pi__cache c;
    int32_t a[128], wanted;
    const pi__block_media one[1] = {{20, 60, {{1}}}}, other[1] = {{20, 60, {{2}}}};
    for (int32_t i = 0; i < 128; i++) a[i] = i >= 20 && i < 80 ? 7 : i;
    assert_int_equal(pi__cache_init(&c, (pi__group_spec[]) {{"full", 16, 0, 40, false, 0}}, 1, 2, 256, NULL), PI_OK);
    pi__cache_start(&c, 0, NULL);
    pi__cache_start_media(&c, 0, one, 1, false);
    assert_true(pi__cache_reserve(&c, 0, 128));
    pi__cache_commit(&c, 0, a, 128, true);
    /* number of tokens to look for, whether images are whole, the image, length of the match */
    static const struct { int32_t n; bool whole, same; int32_t match; } cases[] = {
        {128, false, true, 112}, {128, true, true, 112}, {70, false, true, 64}, {70, true, true, 16},
        {81, true, true, 80},    {80, true, true, 16},   {128, false, false, 16}, {128, true, false, 16}};
    for (int i = 0; i < 8; i++) {
        pi__cache_start(&c, 1, NULL);
        pi__cache_start_media(&c, 1, cases[i].same ? one : other, 1, cases[i].whole);
        assert_int_equal(pi__cache_match(&c, 1, a, cases[i].n, &wanted), cases[i].match);
        assert_int_equal(pi__cache_common(&c, 1, 0), cases[i].same ? cases[i].n / 16 * 16 : 16);
        pi__cache_release(&c, 1);
    }
    pi__cache_start(&c, 1, NULL); /* text with the soft tokens' ids */
    assert_int_equal(pi__cache_match(&c, 1, a, 128, &wanted), 16);
    pi__cache_release(&c, 1);
    pi__cache_start(&c, 1, NULL);
    pi__cache_start_media(&c, 1, one, 1, true);
    for (int32_t n = 0; n < 128; n++) assert_int_equal(pi__cache_cut(&c, 1, n), n > 20 && n < 80 ? 20 : n);
    pi__cache_release(&c, 1);
    pi__cache_release(&c, 0);
    pi__cache_destroy(&c);
}

static bool prompt_end(void *ud, int32_t s, int32_t n)
{
    (void) s;
    return n == *(int32_t *) ud;
}

/* A long prompt runs through a small window pool. The window before its end stays in the cache, and so do prefixes of
 * earlier sequences; blocks that are out of the window are evicted first. */
static void windows_worth_keeping(void **st)
{
    (void) st;
    pi__cache c;
    int32_t a[64], b[512], end, wanted;
    for (int32_t i = 0; i < 512; i++) b[i] = 100 + i;
    for (int32_t i = 0; i < 64; i++) a[i] = i;
    assert_int_equal(pi__cache_init(&c, (pi__group_spec[]){{"window", 16, 32, 12, false, 0}}, 1, 1, 512, NULL), PI_OK);
    c.reuse_point = prompt_end;
    c.reuse_point_ud = &end;
    for (int round = 0; round < 2; round++) {
        const int32_t *tok = round ? b : a;
        int32_t n = round ? 480 : 64, more = round ? 32 : 0;
        end = n - 16;
        pi__cache_start(&c, 0, NULL);
        assert_int_equal(pi__cache_match(&c, 0, tok, n, &wanted), 0);
        /* the prompt, and an answer that moves the window past the prompt's end */
        for (int32_t to = 16; to <= n + more; to += 16) {
            assert_true(pi__cache_reserve(&c, 0, to));
            pi__cache_commit(&c, 0, tok, to, true);
        }
        pi__cache_release(&c, 0);
    }
    for (int round = 0; round < 2; round++) {
        pi__cache_start(&c, 0, NULL);
        assert_int_equal(pi__cache_match(&c, 0, round ? b : a, round ? 480 : 64, &wanted), round ? 464 : 48);
        pi__cache_release(&c, 0);
    }
    pi__cache_destroy(&c);
}

static void eviction_order(void **st)
{
    (void) st;
    pi__block_pool p;
    int32_t tok[3][16] = {{1}, {2}, {3}};
    assert_int_equal(pi__block_pool_init(&p, 3, 16, NULL), PI_OK);
    int32_t b[3];
    pi__block_key k[3] = {{.tenant = 0}};
    for (int i = 0; i < 3; i++) {
        b[i] = pi__block_get_new(&p);
        if (i) k[i].parent = k[i - 1].hash;
        k[i].hash = pi__block_hash_extend(&k[i].parent, tok[i], 16, false);
        pi__block_set_hash(&p, b[i], &k[i], tok[i]);
    }
    assert_int_equal(pi__block_get_new(&p), -1);
    for (int i = 2; i >= 0; i--) pi__block_release(&p, b[i]); /* a table is freed from its end */
    assert_int_equal(p.n_cached, 3);
    assert_int_equal(pi__block_get_new(&p), b[2]); /* the end of the chain is evicted first */
    assert_int_equal(pi__block_find(&p, &k[2], tok[2]), -1);
    assert_int_equal(pi__block_find(&p, &k[0], tok[0]), b[0]);
    assert_int_equal(pi__block_find(&p, &k[0], tok[1]), -1); /* a matching hash with other tokens is not a hit */
    pi__block_touch(&p, b[0]); /* removed from the end of the free list */
    assert_int_equal(p.n_free, 1);
    assert_int_equal(pi__block_get_new(&p), b[1]);
    pi__block_pool_destroy(&p);
}

static void salts_separate(void **st)
{
    (void) st;
    const uint64_t a = pi__tenant_of("a"), b = pi__tenant_of("b"), none = pi__tenant_of("");
    assert_true(a != b && a != none && none == pi__tenant_of(NULL));
    int32_t tok[48] = {1, 2, 3}, wanted;
    const char *salt[] = {"a", "b", NULL};
    pi__cache c;
    assert_int_equal(pi__cache_init(&c, (pi__group_spec[]){{"full", 16, 0, 20, false, 0}}, 1, 1, 64, NULL), PI_OK);
    for (int round = 0; round < 2; round++) { /* each salt computes its own prefix; then b's is cleared */
        for (int i = 0; i < 3; i++) {
            pi__cache_start(&c, 0, salt[i]);
            assert_int_equal(pi__cache_match(&c, 0, tok, 48, &wanted), round && i != 1 ? 32 : 0);
            assert_true(pi__cache_reserve(&c, 0, 48));
            pi__cache_commit(&c, 0, tok, 48, true);
            if (round == 0 && i == 1) pi__cache_clear(&c, &b); /* also clears blocks in use */
            pi__cache_release(&c, 0);
        }
        if (round == 0) assert_int_equal(c.group[0].pool.n_cached, 6);
    }
    pi__cache_clear(&c, &none); /* released last; empty blocks are taken before any cached prefix */
    for (int32_t n = c.group[0].pool.n_free - c.group[0].pool.n_cached; n > 0; n--) pi__block_get_new(&c.group[0].pool);
    assert_int_equal(c.group[0].pool.n_cached, 6);
    assert_int_equal(c.group[0].pool.n_evicted, 0);
    pi__cache_clear(&c, NULL);
    assert_int_equal(c.group[0].pool.n_cached, 0);
    pi__cache_destroy(&c);
}

/* pi__cache_check detects each corruption in its contract; the test breaks and repairs one at a time. */
static void check_sees(void **st)
{
    (void) st;
    pi__cache c;
    int32_t tok[80] = {5, 6, 7}, wanted;
    pi__group_spec spec[] = {{"full", 16, 0, 12, false, 0}, {"window", 16, 20, 9, false, 0}};
    assert_int_equal(pi__cache_init(&c, spec, 2, 3, 128, NULL), PI_OK);
    for (int32_t s = 0; s < 3; s++) { /* 0 and 2 share, 1 has ended */
        pi__cache_start(&c, s, NULL);
        pi__cache_match(&c, s, tok, 80, &wanted);
        assert_true(pi__cache_reserve(&c, s, 80));
        pi__cache_commit(&c, s, tok, 80, true);
        if (s == 1) pi__cache_release(&c, s);
    }
    pi__block_pool *p = &c.group[0].pool;
    const int32_t used = c.group[0].table[0], last = p->tail, first = p->head;
    const struct { int32_t *at, value;
    } broken[] = {
        {&p->block[used].ref, 1},
        {&p->block[used].ref, 3},
        {&p->block[first].ref, 1},
        {&p->n_free, p->n_free - 1},
        {&p->n_cached, p->n_cached + 1},
        {&p->n_pinned_for_copy, 1},
        {&p->n_shared, 0},
        {&p->n_written, 0},
        {&p->tail, first},
        {&p->block[last].prev, -1},
        {&p->block[first].next, -1},
        {&p->block[first].next, used},
        {&p->bucket[pi__digest_word(&p->block[used].key.hash) & (p->n_buckets - 1)], -1},
        {&c.group[0].table[0], -1},
        {&c.group[0].table[1], 12},
        {&c.group[1].table[0], 3},
        {&c.seq[0].n_blocks[0], 9},
        {&c.seq[0].n_blocks[0], 4},
        {&c.seq[0].n_freed[1], 0},
        {&c.seq[2].n_hashed[0], 6},
        {&c.seq[2].n_hashes, 9},
    };
    assert_true(first != last && p->block[used].ref == 2);
    assert_null(pi__cache_check(&c, NULL));
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        const int32_t was = *broken[i].at;
        *broken[i].at = broken[i].value;
        if (!pi__cache_check(&c, NULL)) fail_msg("fault %zu is not seen", i);
        *broken[i].at = was;
        assert_null(pi__cache_check(&c, NULL));
    }
    const int32_t pinned_for_copy[12] = {1}, more[9] = {0};
    /* references that were not taken */
    assert_non_null(pi__cache_check(&c, (const int32_t *const[]) {pinned_for_copy, more}));
    p->block[used].hashed = false;
    assert_non_null(pi__cache_check(&c, NULL));
    pi__cache_destroy(&c);
}

/* In builds with invariant checks, releasing a block once too often aborts at the faulty call. */
static void underflow_traps(void **st)
{
    (void) st;
#ifdef PI_CHECKED
    pid_t pid = fork();
    if (pid == 0) {
        pi__block_pool p;
        signal(SIGTRAP, SIG_DFL);
        signal(SIGILL, SIG_DFL);
        if (pi__block_pool_init(&p, 3, 16, NULL)) _exit(1);
        int32_t id = pi__block_get_new(&p);
        pi__block_release(&p, id);
        pi__block_release(&p, id);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && (WTERMSIG(status) == SIGTRAP || WTERMSIG(status) == SIGILL));
#else
    skip();
#endif
}

static void window_needs(void **st)
{
    (void) st;
    pi__group_spec g = {"window", 16, 512, 100, false, 0};
    assert_int_equal(pi__group_need(&g, 100, 512), 7);
    assert_int_equal(pi__group_need(&g, 100000, 1), 34);
    g.window = 0;
    assert_int_equal(pi__group_need(&g, 100000, 1), 6250);
}

/* ---- each allocation of init fails in turn */
static int left;
static void *f_malloc(void *ud, size_t n) { (void) ud; return left-- > 0 ? malloc(n) : NULL; }
static void *f_realloc(void *ud, void *p, size_t n) { (void) ud; return left-- > 0 ? realloc(p, n) : NULL; }
static void f_free(void *ud, void *p) { (void) ud; free(p); }

static void no_listener(void *ud, const pi_cache_event *ev) { (void) ud, (void) ev; }

static void out_of_memory(void **st)
{
    (void) st;
    pi_allocator a = {.size = sizeof a, .malloc = f_malloc, .realloc = f_realloc, .free = f_free};
    pi__group_spec spec[] = {{"full", 16, 0, 60, false, 0}, {"window", 16, 20, 30, false, 0}};
    int failures = 0;
    assert_int_equal(pi_set_allocator(&a), PI_OK);
    for (int i = 0;; i++) {
        left = i;
        pi__cache c;
        pi_error err = {0};
        int rc = pi__cache_init(&c, spec, 2, SEQS, CTX, &err);
        if (!rc) {
            rc = pi__cache_listen(&c, 0, no_listener, NULL, &err);
            pi__cache_destroy(&c);
        }
        if (!rc) break;
        assert_int_equal(rc, PI_ENOMEM);
        assert_int_equal(err.code, PI_ENOMEM);
        failures++;
    }
    pi_set_allocator(NULL);
    assert_int_equal(failures, 5); /* the tables, each pool, and two of the prefix index */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_group), cmocka_unit_test(window_group), cmocka_unit_test(both_groups),
        cmocka_unit_test(mixed_block_sizes), cmocka_unit_test(state_group), cmocka_unit_test(state_and_full),
        cmocka_unit_test(three_kinds), cmocka_unit_test(entries_of_recent), cmocka_unit_test(needless_keys),
        cmocka_unit_test(snapshots_of_a_tree), cmocka_unit_test(eviction_order),
        cmocka_unit_test(windows_worth_keeping), cmocka_unit_test(hashes_of_images),
        cmocka_unit_test(prefixes_of_images),
        cmocka_unit_test(salts_separate), cmocka_unit_test(check_sees), cmocka_unit_test(underflow_traps),
        cmocka_unit_test(window_needs), cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
