/* Stored responses: limits by number and bytes, order of use, owners, and several threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/store.h"

static bool put(response_store *s, const char *owner, const char *id, const char *text)
{
    return store_put(s, owner, id, NULL, strdup(text), strdup("[]"));
}

static bool has(response_store *s, const char *owner, const char *id, const char *text)
{
    bool no_memory = true;
    char *got = store_get(s, owner, id, STORE_RESPONSE, &no_memory);
    const bool same = text ? got && !strcmp(got, text) : !got;
    assert_false(no_memory);
    free(got);
    return same;
}

static void parts_and_owners(void **state)
{
    (void) state;
    bool no_memory;
    response_store *s = store_new(4, 1 << 20);
    assert_true(store_put(s, "alice", "r1", NULL, strdup("{}"), strdup("[1]")));
    char *items = store_get(s, "alice", "r1", STORE_ITEMS, &no_memory);
    assert_string_equal(items, "[1]");
    free(items);
    assert_true(has(s, "alice", "r1", "{}"));
    assert_true(has(s, "bob", "r1", NULL));
    assert_true(has(s, "", "r1", NULL));
    assert_true(has(s, "alice", "r2", NULL));
    assert_false(store_delete(s, "bob", "r1"));
    assert_false(put(s, "bob", "r1", "mine")); /* a known id is not replaced */
    assert_true(has(s, "alice", "r1", "{}"));
    assert_true(store_delete(s, "alice", "r1"));
    assert_false(store_delete(s, "alice", "r1"));
    assert_true(has(s, "alice", "r1", NULL));
    size_t n, bytes;
    store_size(s, &n, &bytes);
    assert_int_equal(n, 0);
    assert_int_equal(bytes, 0);
    store_free(s);
    store_free(NULL);
}

static void limits(void **state)
{
    (void) state;
    size_t n, bytes;
    response_store *s = store_new(3, 10000);
    assert_true(put(s, "", "a", "A") && put(s, "", "b", "B") && put(s, "", "c", "C"));
    assert_true(has(s, "", "a", "A")); /* a is used: b is the oldest now */
    assert_true(put(s, "", "d", "D"));
    assert_true(has(s, "", "b", NULL) && has(s, "", "a", "A") && has(s, "", "c", "C") && has(s, "", "d", "D"));
    char *big = calloc(1, 20000);
    memset(big, 'x', 9800);
    assert_true(put(s, "", "big", big)); /* replaces all others */
    store_size(s, &n, &bytes);
    assert_int_equal(n, 1);
    assert_true(bytes >= 9800 && bytes <= 10000);
    memset(big, 'x', 19999);
    assert_false(put(s, "", "huge", big));
    assert_true(has(s, "", "huge", NULL));
    store_size(s, &n, &bytes);
    assert_int_equal(n, 1);
    free(big);
    store_free(s);
}

static bool items_are(response_store *s, const char *id, const char *expected)
{
    bool no_memory;
    char *got = store_get(s, "", id, STORE_ITEMS, &no_memory);
    const bool same = expected ? got && !strcmp(got, expected) : !got;
    free(got);
    return same;
}

static bool go_on(response_store *s, const char *id, const char *previous, const char *items)
{
    return store_put(s, "", id, previous, strdup("{}"), strdup(items));
}

/* Items stay while a later response needs them. */
static void conversations(void **state)
{
    (void) state;
    size_t n, bytes, all;
    response_store *s = store_new(4, 1 << 20);
    assert_true(go_on(s, "a", NULL, "[1,2]") && go_on(s, "b", "a", "[3]") && go_on(s, "c", "a", "[]"));
    assert_true(items_are(s, "a", "[1,2]") && items_are(s, "b", "[1,2,3]") && items_are(s, "c", "[1,2]"));
    assert_true(go_on(s, "d", "c", "[{\"x\":[4]}]") && items_are(s, "d", "[1,2,{\"x\":[4]}]"));
    assert_false(go_on(s, "e", "none", "[5]"));
    assert_false(store_put(s, "bob", "e", "a", strdup("{}"), strdup("[5]")));
    store_size(s, &n, &all);
    assert_true(store_delete(s, "", "a") && store_delete(s, "", "c") && items_are(s, "d", "[1,2,{\"x\":[4]}]"));
    assert_true(store_delete(s, "", "d") && items_are(s, "b", "[1,2,3]") && go_on(s, "f", "b", "[6]"));
    assert_true(items_are(s, "f", "[1,2,3,6]") && items_are(s, "a", NULL));
    assert_true(store_delete(s, "", "b") && store_delete(s, "", "f"));
    store_size(s, &n, &bytes);
    assert_true(n == 0 && bytes == 0 && all > 0);
    assert_true(go_on(s, "g", NULL, "[]") && go_on(s, "h", "g", "[]") && items_are(s, "h", "[]"));
    assert_true(go_on(s, "i", "h", "[7]") && items_are(s, "i", "[7]"));
    store_free(s);
}

/* A conversation of n turns takes memory in proportion to n. */
static void linear_memory(void **state)
{
    (void) state;
    enum { TURNS = 400, BYTES = 1000 };
    char id[2][16], item[BYTES + 5];
    size_t n, bytes;
    response_store *s = store_new(1000, (size_t) 2 * TURNS * BYTES);
    memset(item, 'x', sizeof item);
    memcpy(item, "[\"", 2);
    memcpy(item + BYTES + 2, "\"]", 3);
    for (int i = 0; i < TURNS; i++) {
        snprintf(id[i % 2], 16, "r%d", i);
        assert_true(go_on(s, id[i % 2], i ? id[!(i % 2)] : NULL, item));
    }
    store_size(s, &n, &bytes);
    assert_true(n == TURNS && bytes > (size_t) TURNS * BYTES && bytes < (size_t) TURNS * (BYTES + 400));
    store_free(s);
    /* The bound holds: older responses are dropped, their items stay, and finally the conversation is refused. */
    s = store_new(1000, 20000);
    int last = 0;
    while (last < 100) {
        snprintf(id[last % 2], 16, "r%d", last);
        if (!go_on(s, id[last % 2], last ? id[!(last % 2)] : NULL, item)) break;
        store_size(s, &n, &bytes);
        assert_true(bytes <= 20000);
        last++;
    }
    assert_in_range(last, 15, 19);
    store_size(s, &n, &bytes);
    assert_true(n >= 1 && n < 19);
    store_free(s);
}

/* Random operations, compared with a list in order of use. */
static void random_use(void **state)
{
    (void) state;
    enum { MAX = 40, IDS = 100 };
    int order[MAX], n = 0;
    uint32_t seed = 5;
    response_store *s = store_new(MAX, 1 << 20);
    for (int round = 0; round < 20000; round++) {
        seed = seed * 1664525u + 1013904223u;
        const int id = (int) (seed >> 16) % IDS, what = (int) (seed >> 8) % 3;
        char name[16];
        int at = 0;
        snprintf(name, sizeof name, "r%d", id);
        while (at < n && order[at] != id) at++;
        const bool known = at < n;
        if (what == 0) {
            assert_int_equal(put(s, "", name, name), !known);
            if (known) continue;
            if (n == MAX) memmove(order, order + 1, (size_t) --n * sizeof *order);
            order[n++] = id;
        } else if (what == 1) {
            assert_true(has(s, "", name, known ? name : NULL));
            if (!known) continue;
            memmove(order + at, order + at + 1, (size_t) (n - at - 1) * sizeof *order);
            order[n - 1] = id;
        } else {
            assert_int_equal(store_delete(s, "", name), known);
            if (known) memmove(order + at, order + at + 1, (size_t) (--n - at) * sizeof *order);
        }
        size_t size, bytes;
        store_size(s, &size, &bytes);
        assert_int_equal(size, n);
    }
    store_free(s);
}

static void *use(void *s)
{
    for (int i = 0; i < 2000; i++) {
        char id[16];
        bool no_memory;
        snprintf(id, sizeof id, "%d", i % 50);
        put(s, "", id, id);
        free(store_get(s, "", id, STORE_ITEMS, &no_memory));
        if (i % 7 == 0) store_delete(s, "", id);
    }
    return NULL;
}

static void threads(void **state)
{
    (void) state;
    pthread_t t[4];
    size_t n, bytes;
    response_store *s = store_new(20, 1 << 20);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, use, s), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    store_size(s, &n, &bytes);
    assert_true(n <= 20);
    store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_and_owners), cmocka_unit_test(limits),
                                       cmocka_unit_test(conversations), cmocka_unit_test(linear_memory),
                                       cmocka_unit_test(random_use), cmocka_unit_test(threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
