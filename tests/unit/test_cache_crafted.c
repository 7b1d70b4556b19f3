/* Two crafted prefixes with equal chained XXH3-128 hashes: the cache distinguishes them, in the pool and in matches.
 * The underlying rule: a hit must match the digest, the parent's digest and the tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/cache.h"

enum { BLOCK = 16, N = 8 /* blocks of a prefix */, REST = 48 /* tokens after it */ };

/* Eight ordinary blocks, and eight blocks of an attacker: six of free text, and two found by a collision search. */
static const int32_t known[128] = {
    2, 3048, 659, 506, 16326, 529, 506, 2591, 4856, 236761, 25685, 21485, 532, 124954, 236761, 31246, 577, 4338,
    236764, 532, 768, 611, 776, 711, 1281, 614, 3890, 236764, 1879, 600, 611, 776, 711, 1281, 625, 236761, 15428,
    3442, 24598, 496, 8918, 236761, 5137, 8115, 3885, 659, 699, 10155, 528, 506, 5597, 531, 3493, 528, 506, 12399,
    236764, 580, 784, 2668, 699, 8492, 531, 7672, 236761, 5137, 15092, 659, 528, 13998, 236764, 60233, 532, 38009,
    236761, 669, 19711, 1548, 529, 506, 4856, 563, 236743, 236810, 236810, 236810, 236743, 236771, 236770, 236771,
    236771, 236761, 39689, 1149, 2679, 1003, 10789, 236764, 8651, 236764, 15682, 236764, 29181, 236764, 532, 1003,
    506, 1902, 528, 2870, 236761, 2199, 2712, 531, 14160, 236764, 532, 776, 711, 8988, 529, 15280, 653, 529,
    15831, 607, 5103, 529,
};
static const int32_t crafted[128] = {
    2, 818, 5279, 529, 7001, 563, 5860, 236761, 5860, 563, 506, 5279, 529, 7001, 236761, 59633, 10077, 600, 506,
    5279, 529, 7001, 563, 506, 3207, 529, 5860, 236761, 15311, 3207, 563, 506, 5279, 529, 7001, 236881, 5860,
    236761, 669, 5279, 3207, 529, 7001, 563, 2760, 5860, 236761, 1030, 563, 711, 9079, 236764, 625, 563, 5860,
    236761, 669, 5279, 529, 7001, 563, 506, 3207, 529, 5860, 236761, 669, 5279, 529, 7001, 563, 5860, 236761,
    5860, 563, 506, 5279, 529, 7001, 236761, 19566, 236787, 15311, 3207, 563, 506, 5279, 529, 7001, 236881, 25685,
    236787, 5860, 236761, 669, 5279, 35053, 56448, 250198, 238452, 26930, 353, 128074, 191778, 61560, 223128,
    157527, 200281, 120325, 38121, 145280, 19439, 153759, 140009, 12171, 35819, 207548, 244713, 83678, 195539,
    153427, 80110, 187101, 6861, 87869, 65040, 211879, 202929,
};

/* XXH3-128 of a block, seeded with its parent's. */
static XXH128_hash_t xxh_chain(XXH128_hash_t parent, const int32_t *tokens)
{
    const XXH128_hash_t h = XXH3_128bits_withSeed(tokens, BLOCK * sizeof *tokens, parent.low64);
    const uint64_t hi = h.high64 + parent.high64 * 0x9E3779B97F4A7C15u;
    return (XXH128_hash_t) {h.low64 ^ parent.high64, (hi & ~(uint64_t) UINT32_MAX) | (uint32_t) parent.high64};
}

/* Computes the keys of the N blocks of a prefix without salt. */
static void keys_of(const int32_t *tokens, pi__block_key key[N])
{
    for (int i = 0; i < N; i++) {
        key[i] = (pi__block_key) {.parent = i ? key[i - 1].hash : pi__block_root_of(NULL).hash};
        key[i].hash = pi__block_hash_extend(&key[i].parent, tokens + (ptrdiff_t) i * BLOCK, BLOCK, false);
    }
}

static void crafted_digests_differ(void **state)
{
    (void) state;
    XXH128_hash_t a = {0, 0}, b = {0, 0};
    pi__block_key x[N], y[N];
    for (int i = 0; i < N; i++) {
        a = xxh_chain(a, known + (ptrdiff_t) i * BLOCK);
        b = xxh_chain(b, crafted + (ptrdiff_t) i * BLOCK);
    }
    assert_true(a.low64 == b.low64 && a.high64 == b.high64); /* the crafted input does collide */
    keys_of(known, x);
    keys_of(crafted, y);
    for (int i = 0; i < N; i++) assert_false(pi__digest_equal(&x[i].hash, &y[i].hash));
}

static void pool_tells_crafted_apart(void **state)
{
    (void) state;
    pi__block_pool p;
    pi__block_key x[N], y[N], behind, asked;
    const int32_t tokens[BLOCK] = {1, 2, 3};
    assert_int_equal(pi__block_pool_init(&p, 4, BLOCK, NULL), PI_OK);
    keys_of(known, x);
    keys_of(crafted, y);
    behind = (pi__block_key) {pi__block_hash_extend(&y[N - 1].hash, tokens, BLOCK, false), y[N - 1].hash, 0};
    asked = (pi__block_key) {pi__block_hash_extend(&x[N - 1].hash, tokens, BLOCK, false), x[N - 1].hash, 0};
    const int32_t id = pi__block_get_new(&p);
    pi__block_set_hash(&p, id, &behind, tokens);
    assert_int_equal(pi__block_find(&p, &behind, tokens), id);
    assert_int_equal(pi__block_find(&p, &asked, tokens), -1);
    pi__block_pool_destroy(&p);
}

/* A digest alone is not a hit: a block with another prefix's digest but another parent is a miss. */
static void other_parents_miss(void **state)
{
    (void) state;
    pi__block_pool p;
    pi__block_key key[N], forged;
    assert_int_equal(pi__block_pool_init(&p, 4, BLOCK, NULL), PI_OK);
    keys_of(known, key);
    const int32_t id = pi__block_get_new(&p), other = pi__block_get_new(&p);
    pi__block_set_hash(&p, id, &key[3], known + 3 * BLOCK);
    forged = key[3];
    forged.parent = key[1].hash;
    assert_int_equal(pi__block_find(&p, &forged, known + 3 * BLOCK), -1);
    pi__block_set_hash(&p, other, &forged, known + 3 * BLOCK); /* both blocks stay, each found by its own parent */
    assert_int_equal(pi__block_find(&p, &forged, known + 3 * BLOCK), other);
    assert_int_equal(pi__block_find(&p, &key[3], known + 3 * BLOCK), id);
    forged = key[3];
    forged.hash.byte[31] ^= 1; /* every bit counts, not only the bits that select the bucket */
    assert_int_equal(pi__block_find(&p, &forged, known + 3 * BLOCK), -1);
    assert_int_equal(pi__block_find(&p, &key[3], known + 2 * BLOCK), -1);
    pi__block_pool_destroy(&p);
}

static int32_t ask(pi__cache *c, const int32_t *prefix, const pi__sparse_span *sparse, const pi__digest *variant,
                   const char *salt)
{
    int32_t tokens[N * BLOCK + REST] = {0}, longest;
    memcpy(tokens, prefix, N * BLOCK * sizeof *tokens);
    for (int i = 0; i < REST; i++) tokens[N * BLOCK + i] = 1000 + i;
    pi__cache_start(c, 0, salt);
    if (sparse) pi__cache_start_sparse(c, 0, sparse);
    if (variant) pi__cache_start_variant(c, 0, variant);
    const int32_t got = pi__cache_match(c, 0, tokens, N * BLOCK + REST, &longest);
    assert_true(pi__cache_reserve(c, 0, N * BLOCK + REST));
    pi__cache_commit(c, 0, tokens, N * BLOCK + REST, true);
    pi__cache_release(c, 0);
    return got;
}

static bool any_point(void *ud, int32_t s, int32_t n)
{
    (void) ud, (void) s, (void) n;
    return true;
}

static void cache_tells_crafted_apart(void **state)
{
    (void) state;
    const int32_t all = N * BLOCK + REST - BLOCK; /* at least one token must be computed */
    for (int window = 0; window < 2; window++) {
        pi__cache c;
        const pi__group_spec spec[] = {{"full", BLOCK, 0, 64, false, 0},
                                       {"window", BLOCK, window ? 32 : 64, 64, false, 0}};
        assert_int_equal(pi__cache_init(&c, spec, 1 + window, 1, 512, NULL), PI_OK);
        c.reuse_point = any_point; /* keeps blocks outside the window as long as others */
        assert_int_equal(ask(&c, crafted, NULL, NULL, NULL), 0);
        assert_int_equal(ask(&c, known, NULL, NULL, NULL), 0); /* no match in the text after the crafted blocks */
        assert_int_equal(ask(&c, known, NULL, NULL, NULL), all);
        assert_int_equal(ask(&c, crafted, NULL, NULL, NULL), all);
        assert_null(pi__cache_check(&c, NULL));
        pi__cache_destroy(&c);
    }
}

/* All other inputs that determine a block's content are part of its digest. */
static void variants_are_apart(void **state)
{
    (void) state;
    const int32_t all = N * BLOCK + REST - BLOCK;
    const pi__sparse_span sparse = {32, 64, 32};
    const pi__digest a = pi__hash(PI__HASH_ADAPTERS, "a", 1), b = pi__hash(PI__HASH_ADAPTERS, "b", 1), none = {{0}};
    pi__cache c;
    assert_int_equal(pi__cache_init(&c, (pi__group_spec[]) {{"full", BLOCK, 0, 200, false, 0}}, 1, 1, 512, NULL),
                     PI_OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(ask(&c, known, NULL, NULL, NULL), round ? all : 0);
        assert_int_equal(ask(&c, known, &sparse, NULL, NULL), round ? all : 32);
        assert_int_equal(ask(&c, known, NULL, &a, NULL), round ? all : 0);
        assert_int_equal(ask(&c, known, NULL, &b, NULL), round ? all : 0);
        assert_int_equal(ask(&c, known, NULL, NULL, "a"), round ? all : 0);
        assert_int_equal(ask(&c, known, NULL, &a, "a"), round ? all : 0);
        assert_int_equal(ask(&c, known, NULL, &none, NULL), all);
    }
    pi__cache_destroy(&c);
}

/* A client's salt matches neither prefixes without salt nor prefixes of a sample group. */
static void roots_are_apart(void **state)
{
    (void) state;
    const uint64_t one = 1;
    char salt[sizeof one + 1] = {0};
    memcpy(salt, &one, sizeof one);
    const pi__block_root none = pi__block_root_of(""), by_salt = pi__block_root_of(salt),
                         first = pi__block_root_private(1);
    assert_true(pi__digest_none(&none.hash) && !none.tenant);
    assert_false(pi__digest_equal(&by_salt.hash, &first.hash));
    assert_false(by_salt.tenant == first.tenant);
    const pi__block_root next = pi__block_root_private(2);
    assert_false(pi__digest_equal(&next.hash, &first.hash));
}

/* A request that is not admitted keeps its row's hashes until another sequence starts in the row. Blocks are looked
 * up again. */
static void rows_are_left_and_taken_up(void **state)
{
    (void) state;
    int32_t longest;
    pi__cache c;
    assert_int_equal(pi__cache_init(&c, (pi__group_spec[]) {{"full", BLOCK, 0, 200, false, 0}}, 1, 2, 512, NULL),
                     PI_OK);
    pi__cache_start(&c, 0, "salt");
    assert_int_equal(pi__cache_match(&c, 0, known, N * BLOCK, &longest), 0);
    const pi__digest before = *pi__cache_hash(&c, 0, N - 1);
    pi__cache_leave(&c, 0, 7);
    pi__cache_start(&c, 1, "salt");
    assert_int_equal(pi__cache_match(&c, 1, known, N * BLOCK, &longest), 0);
    assert_true(pi__cache_reserve(&c, 1, N * BLOCK));
    pi__cache_commit(&c, 1, known, N * BLOCK, true);
    assert_false(pi__cache_start_again(&c, 0, 8));
    assert_true(pi__cache_start_again(&c, 0, 7));
    assert_false(pi__cache_start_again(&c, 0, 7)); /* only once */
    assert_true(pi__digest_equal(&before, pi__cache_hash(&c, 0, N - 1)));
    assert_int_equal(pi__cache_match(&c, 0, known, N * BLOCK, &longest), (N - 1) * BLOCK);
    assert_null(pi__cache_check(&c, NULL));
    pi__cache_leave(&c, 0, 7);
    assert_null(pi__cache_check(&c, NULL));
    pi__cache_start(&c, 0, NULL); /* another sequence */
    assert_false(pi__cache_start_again(&c, 0, 7));
    assert_int_equal(pi__cache_match(&c, 0, known, N * BLOCK, &longest), 0);
    assert_false(pi__cache_start_again(&c, 1, 0));
    pi__cache_release(&c, 0);
    pi__cache_release(&c, 1);
    pi__cache_destroy(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crafted_digests_differ),     cmocka_unit_test(pool_tells_crafted_apart),
        cmocka_unit_test(other_parents_miss),         cmocka_unit_test(cache_tells_crafted_apart),
        cmocka_unit_test(variants_are_apart),         cmocka_unit_test(roots_are_apart),
        cmocka_unit_test(rows_are_left_and_taken_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
