/* test_kv_queue.c: the queue of cache changes from the step thread to the publisher: order, merging, overflow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>

#include "serve/kv_queue.h"

enum { BLOCK = 4 };

static pi_cache_event stored(const uint64_t *hash, size_t n, const int32_t *token, int64_t parent)
{
    return (pi_cache_event) {.kind = PI_CACHE_STORED,
                             .hashes = hash,
                             .n_hashes = n,
                             .tokens = token,
                             .n_tokens = n * BLOCK,
                             .parent = parent < 0 ? 0 : (uint64_t) parent,
                             .has_parent = parent >= 0};
}

static pi_cache_event removed(const uint64_t *hash, size_t n)
{
    return (pi_cache_event) {.kind = PI_CACHE_REMOVED, .hashes = hash, .n_hashes = n, .n_tokens = n * BLOCK};
}

static void what_goes_in_comes_out(void **state)
{
    (void) state;
    const uint64_t hash[3] = {10, 11, 12};
    const int32_t token[3 * BLOCK] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const pi_cache_event put[] = {stored(hash, 3, token, -1), removed(hash + 1, 2), {.kind = PI_CACHE_CLEARED},
                                  stored(hash, 1, token, 77)};
    kv_queue q;
    pi_cache_event got;
    size_t at = 0;
    assert_true(kv_queue_open(&q, 4096));
    /* only the first one wakes the reader */
    for (size_t i = 0; i < 4; i++) assert_int_equal(kv_queue_put(&q, &put[i]), i == 0);
    const kv_changes c = kv_queue_take(&q);
    assert_int_equal(c.lost, 0);
    for (size_t i = 0; i < 4; i++) {
        assert_true(kv_changes_next(&c, &at, &got));
        assert_int_equal(got.kind, put[i].kind);
        assert_int_equal(got.n_hashes, put[i].n_hashes);
        assert_int_equal(got.has_parent, put[i].has_parent);
        assert_int_equal(got.parent, put[i].parent);
        if (got.n_hashes) assert_memory_equal(got.hashes, put[i].hashes, got.n_hashes * sizeof *got.hashes);
        if (got.kind == PI_CACHE_STORED)
            assert_memory_equal(got.tokens, put[i].tokens, got.n_tokens * sizeof *got.tokens);
        else assert_null(got.tokens);
    }
    assert_false(kv_changes_next(&c, &at, &got));
    assert_int_equal(kv_queue_take(&q).n, 0);
    kv_queue_close(&q);
}

static void expect_run(const kv_changes *c, size_t *at, int kind, size_t n, uint64_t first)
{
    pi_cache_event r;
    assert_true(kv_changes_run(c, at, &r));
    assert_int_equal(r.kind, kind);
    assert_int_equal(r.n_hashes, n);
    assert_int_equal(r.n_tokens, kind == PI_CACHE_STORED ? n * BLOCK : 0);
    if (n) assert_int_equal(r.hashes[0], first);
}

/* Consecutive blocks become one run if each is the child of the previous one. */
static void neighbours_are_joined(void **state)
{
    (void) state;
    const uint64_t h[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const int32_t t[2 * BLOCK] = {0};
    const pi_cache_event put[] = {stored(h + 1, 2, t, -1), stored(h + 3, 1, t, 2), /* follows */
                                  stored(h + 4, 1, t, 2), /* a sibling */
                                  stored(h + 5, 1, t, -1), stored(h + 6, 1, t, -1),    removed(h + 1, 2),
                                  removed(h + 4, 1),       {.kind = PI_CACHE_CLEARED}, {.kind = PI_CACHE_CLEARED},
                                  removed(h + 7, 1)};
    kv_queue q;
    size_t at = 0;
    pi_cache_event r;
    assert_true(kv_queue_open(&q, 4096));
    for (size_t i = 0; i < sizeof put / sizeof *put; i++) kv_queue_put(&q, &put[i]);
    const kv_changes c = kv_queue_take(&q);
    expect_run(&c, &at, PI_CACHE_STORED, 3, 1);
    expect_run(&c, &at, PI_CACHE_STORED, 1, 4);
    expect_run(&c, &at, PI_CACHE_STORED, 1, 5);
    expect_run(&c, &at, PI_CACHE_STORED, 1, 6);
    expect_run(&c, &at, PI_CACHE_REMOVED, 3, 1);
    expect_run(&c, &at, PI_CACHE_CLEARED, 0, 0);
    expect_run(&c, &at, PI_CACHE_CLEARED, 0, 0);
    expect_run(&c, &at, PI_CACHE_REMOVED, 1, 7);
    assert_false(kv_changes_run(&c, &at, &r));
    kv_queue_close(&q);
}

/* A change that does not fit is lost, and so are all later ones, even if they would fit; the reader knows the gap's
 * position. */
static void a_full_queue_loses_the_rest(void **state)
{
    (void) state;
    uint64_t many[64] = {0};
    const uint64_t one = 1;
    kv_queue q;
    size_t n = 0;
    pi_cache_event ev;
    assert_true(kv_queue_open(&q, 4096));
    const pi_cache_event large = removed(many, 64), small = removed(&one, 1);
    for (int i = 0; i < 10; i++) kv_queue_put(&q, &large);
    assert_false(kv_queue_put(&q, &small));
    kv_changes c = kv_queue_take(&q);
    for (size_t at = 0; kv_changes_next(&c, &at, &ev); n++) assert_int_equal(ev.n_hashes, 64);
    assert_in_range(n, 7, 7); /* 7 times 552 bytes */
    assert_int_equal(n + c.lost, 11);
    assert_true(kv_queue_put(&q, &small)); /* after a read, it accepts changes again */
    c = kv_queue_take(&q);
    assert_int_equal(c.lost, 0);
    assert_true(c.n > 0);
    kv_queue_close(&q);
}

enum { N = 20000 };

static void *put_many(void *ud)
{
    for (uint64_t i = 0; i < N; i++) {
        const int32_t token[BLOCK] = {(int32_t) i, 0, 0, (int32_t) -i};
        const pi_cache_event ev = stored(&i, 1, token, i ? (int64_t) i - 1 : -1);
        kv_queue_put(ud, &ev);
    }
    return NULL;
}

/* One thread writes, another one reads: each change arrives once, in order, or is counted as lost. */
static void two_threads(void **state)
{
    (void) state;
    kv_queue q;
    pthread_t t;
    pi_cache_event ev;
    uint64_t seen = 0, next = 0;
    assert_true(kv_queue_open(&q, 8192));
    assert_int_equal(pthread_create(&t, NULL, put_many, &q), 0);
    while (next < N) {
        const kv_changes c = kv_queue_take(&q);
        for (size_t at = 0; kv_changes_next(&c, &at, &ev); seen++, next++) {
            assert_int_equal(ev.hashes[0], next);
            assert_int_equal(ev.tokens[0], (int32_t) next);
            assert_int_equal(ev.tokens[3], -(int32_t) next);
        }
        next += c.lost;
    }
    pthread_join(t, NULL);
    assert_int_equal(next, N);
    assert_true(seen > 0);
    kv_queue_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_goes_in_comes_out),
                                       cmocka_unit_test(neighbours_are_joined),
                                       cmocka_unit_test(a_full_queue_loses_the_rest), cmocka_unit_test(two_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
