/* The prefix index reports exactly the blocks that a request could reuse. Runs random sequences on small pools, and
 * looks up every earlier prompt after every few operations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cache/cache.h"
#include "cache/prefix_index.h"

enum { SEQS = 4, CTX = 4096, PROMPTS = 1200, KNOWN = 8192 };

/* A block that was reported. */
typedef struct known {
    pi__digest hash, parent;
    bool there, has_parent;
} known;

typedef struct run {
    pi__cache c;
    struct { int32_t token[CTX], n, computed, longest; bool on, salted; } seq[SEQS];
    struct { int32_t *token, n; } prompt[PROMPTS];
    known set[KNOWN];
    int32_t n_prompts, n_known, n_there, n_stored, n_removed, n_cleared;
    uint64_t rng;
} run;

static uint32_t rnd(run *r, uint32_t n)
{
    r->rng = r->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) ((r->rng >> 33) % n);
}

static known *find(run *r, uint64_t told)
{
    for (int32_t i = 0; i < r->n_known; i++)
        if (pi__digest_word(&r->set[i].hash) == told) return &r->set[i];
    return NULL;
}

/* Extends the hash chain as the cache does, by hash blocks. */
static pi__digest extend(const pi__cache *c, pi__digest h, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i += c->hash_block) h = pi__block_hash_extend(&h, tokens + i, c->hash_block, false);
    return h;
}

static void take_stored(run *r, const pi_cache_event *ev)
{
    pi__digest h = {{0}}, before;
    const size_t R = (size_t) r->c.reuse_block;
    assert_int_equal(ev->n_tokens, ev->n_hashes * R);
    if (ev->has_parent) {
        known *parent = find(r, ev->parent);
        assert_true(parent && parent->there);
        h = parent->hash;
    }
    for (size_t i = 0; i < ev->n_hashes; i++, r->n_stored++, r->n_there++) {
        before = h;
        h = extend(&r->c, h, ev->tokens + i * R, (int32_t) R);
        assert_true(ev->hashes[i] == pi__digest_word(&h));
        known *k = find(r, pi__digest_word(&h));
        assert_true(!k || !k->there);
        if (!k) {
            assert_true(r->n_known < KNOWN);
            k = &r->set[r->n_known++];
        }
        *k = (known) {h, before, true, i || ev->has_parent};
    }
}

static void listen(void *ud, const pi_cache_event *ev)
{
    run *r = ud;
    switch (ev->kind) {
    case PI_CACHE_STORED: take_stored(r, ev); break;
    case PI_CACHE_REMOVED:
        for (size_t i = 0; i < ev->n_hashes; i++, r->n_removed++, r->n_there--) {
            known *k = find(r, ev->hashes[i]);
            assert_true(k && k->there);
            k->there = false;
            for (int32_t j = 0; j < r->n_known; j++) /* its descendants were removed before */
                assert_false(r->set[j].there && r->set[j].has_parent && pi__digest_equal(&r->set[j].parent, &k->hash));
        }
        break;
    default:
        assert_int_equal(ev->kind, PI_CACHE_CLEARED);
        for (int32_t i = 0; i < r->n_known; i++) r->set[i].there = false;
        r->n_there = 0;
        r->n_cleared++;
    }
}

/* The index reports exactly the blocks that some prompt finds; with `all` false, a subset of them. */
static void compare(run *r, uint32_t skip_groups, bool all)
{
    static bool found[KNOWN];
    int32_t n = 0, wanted;
    memset(found, 0, sizeof found);
    for (int32_t i = 0; i < r->n_prompts; i++) {
        pi__cache_start(&r->c, SEQS, NULL);
        pi__cache_skip_groups(&r->c, SEQS, skip_groups);
        const int32_t got = pi__cache_match(&r->c, SEQS, r->prompt[i].token, r->prompt[i].n, &wanted);
        pi__cache_release(&r->c, SEQS);
        pi__digest h = {{0}};
        for (int32_t t = 0; t < got; t += r->c.reuse_block) {
            h = extend(&r->c, h, r->prompt[i].token + t, r->c.reuse_block);
            known *k = find(r, pi__digest_word(&h));
            if (all) assert_true(k && k->there);
            if (!k || found[k - r->set]) continue;
            found[k - r->set] = true;
            n += k->there;
        }
    }
    assert_int_equal(n, r->n_there);
}

static void start(run *r, int32_t s, int32_t longest, uint32_t skip_groups)
{
    int32_t n = 1 + (int32_t) rnd(r, (uint32_t) longest), wanted;
    for (int32_t i = 0; i < n; i++)
        r->seq[s].token[i] = i < 96 ? (int32_t) (i / 48 + (rnd(r, 40) == 0)) : (int32_t) rnd(r, 3);
    r->seq[s].salted = rnd(r, 8) == 0;
    pi__cache_start(&r->c, s, r->seq[s].salted ? "tenant" : NULL);
    pi__cache_skip_groups(&r->c, s, skip_groups);
    r->seq[s].computed = pi__cache_match(&r->c, s, r->seq[s].token, n, &wanted);
    r->seq[s].n = n;
    r->seq[s].on = true;
}

/* Records the computed prefix of row s, which other prompts can reuse. */
static void remember(run *r, int32_t s)
{
    if (r->seq[s].salted) return;
    assert_true(r->n_prompts < PROMPTS);
    const int32_t n = r->seq[s].computed;
    int32_t *t = malloc(((size_t) n + 1) * sizeof *t);
    assert_non_null(t);
    memcpy(t, r->seq[s].token, (size_t) n * sizeof *t);
    t[n] = 0;
    r->prompt[r->n_prompts].token = t;
    r->prompt[r->n_prompts++].n = n + 1;
}

static void go_on(run *r, int32_t s)
{
    int32_t to = r->seq[s].computed + 1 + (int32_t) rnd(r, (uint32_t) (r->seq[s].n - r->seq[s].computed));
    if (!pi__cache_reserve(&r->c, s, to)) return;
    for (int32_t g = 0; g < r->c.n_groups; g++) {
        const pi__group_spec *spec = &r->c.group[g].spec;
        for (int32_t p = r->seq[s].computed + 1; spec->state && pi__cache_has(&r->c, s, g) && p <= to; p++) {
            if (p % spec->block_size || rnd(r, 3)) continue;
            int32_t id = pi__cache_snapshot(&r->c, s, g, r->seq[s].token, p);
            if (id >= 0) pi__cache_snapshot_done(&r->c, s, g, r->seq[s].token, p, id, rnd(r, 10) != 0);
        }
    }
    r->seq[s].computed = to;
    pi__cache_commit(&r->c, s, r->seq[s].token, to, true);
}

static void one_op(run *r, int32_t longest, uint32_t skip_groups)
{
    const int32_t s = (int32_t) rnd(r, SEQS);
    if (!r->seq[s].on) start(r, s, longest, rnd(r, 2) ? skip_groups : 0);
    else if (rnd(r, 200) == 0) pi__cache_clear(&r->c, NULL);
    else if (rnd(r, 100) == 0) pi__cache_clear(&r->c, rnd(r, 2) ? &(uint64_t){0} : &(uint64_t){1});
    else if (r->seq[s].computed < r->seq[s].n && rnd(r, 8)) go_on(r, s);
    else {
        remember(r, s);
        pi__cache_release(&r->c, s);
        r->seq[s].on = false;
    }
}

static void random_ops(const pi__group_spec *spec, int32_t n_groups, uint32_t skip_groups, int32_t longest, int n_ops,
                       bool all)
{
    run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->rng = 7 + (uint64_t) n_groups;
    assert_int_equal(pi__cache_init(&r->c, spec, n_groups, SEQS + 1, CTX, NULL), PI_OK);
    assert_int_equal(pi__cache_listen(&r->c, skip_groups, listen, r, NULL), PI_OK);
    for (int i = 0; i < n_ops && r->n_prompts < PROMPTS; i++) {
        one_op(r, longest, skip_groups);
        if (i % 16) continue;
        const int32_t n = r->n_prompts; /* includes running sequences */
        for (int32_t s = 0; s < SEQS && r->n_prompts < PROMPTS; s++)
            if (r->seq[s].on) remember(r, s);
        compare(r, skip_groups, all);
        while (r->n_prompts > n) free(r->prompt[--r->n_prompts].token);
    }
    assert_true(r->n_stored > 200 && r->n_removed > 100 && r->n_cleared > 0);
    for (int32_t s = 0; s < SEQS; s++)
        if (r->seq[s].on) pi__cache_release(&r->c, s);
    while (r->n_prompts) free(r->prompt[--r->n_prompts].token);
    pi__cache_destroy(&r->c);
    free(r);
}

static void full(void **st)
{
    (void) st;
    random_ops((pi__group_spec[]){{"full", 16, 0, 40, false, 0}}, 1, 0, 160, 4000, true);
}

static void windows(void **st)
{
    (void) st;
    random_ops((pi__group_spec[]) {{"full", 16, 0, 60, false, 0}, {"window", 16, 20, 30, false, 0}}, 2, 0, 160, 4000,
               true);
    random_ops((pi__group_spec[]) {{"full", 32, 0, 30, false, 0}, {"window", 16, 64, 40, false, 0}}, 2, 0, 160, 4000,
               true);
    random_ops((pi__group_spec[]){{"window", 16, 50, 40, false, 0}}, 1, 0, 160, 4000, true);
}

static void states(void **st)
{
    (void) st;
    random_ops((pi__group_spec[]) {{"recurrent", 16, 0, 10, true, 0}, {"full", 16, 0, 60, false, 0}}, 2, 0, 160, 4000,
               true);
    random_ops((pi__group_spec[]){{"recurrent", 16, 0, 12, true, 0}}, 1, 0, 160, 4000, true);
    const pi__group_spec three[] = {
        {"full", 32, 0, 40, false, 0}, {"recurrent", 32, 0, 8, true, 0}, {"window", 16, 40, 50, false, 0}};
    random_ops(three, 3, 0, 160, 4000, true);
}

static void compressed(void **st)
{
    (void) st;
    const pi__group_spec spec[] = {{"full", 64, 0, 14, false, 0}, {"window", 16, 20, 40, false, 0},
                                   {"recent", 16, 5, 36, false, 8}, {"recent", 16, 1, 50, false, 64}};
    random_ops(spec, 4, 0, 400, 4000, true);
}

/* A drafter's cache group does not affect the index. */
static void drafters(void **st)
{
    (void) st;
    random_ops((pi__group_spec[]) {{"full", 16, 0, 60, false, 0}, {"draft", 16, 0, 60, false, 0}}, 2, 2, 160, 4000,
               true);
}

/* With more prefixes than nodes, some are not reported, but no removed one is. */
static void no_room(void **st)
{
    (void) st;
    random_ops((pi__group_spec[]){{"recurrent", 16, 0, 24, true, 0}}, 1, 0, CTX - 1, 1500, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full),       cmocka_unit_test(windows),  cmocka_unit_test(states),
        cmocka_unit_test(compressed), cmocka_unit_test(drafters), cmocka_unit_test(no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
