/* Streamed text: stop strings for any token boundaries, and characters that are never cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/output.h"
#include "base/alloc.h"

typedef struct shown { /* all emitted text */
    char text[4096];
    size_t n;
    bool hit;
} shown;

static void add(shown *s, const char *text, size_t n)
{
    assert_true(s->n + n < sizeof s->text);
    if (n) memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n] = 0;
}

/* Feeds `in` cut at the bits of `cuts` (bit i = a boundary after byte i). */
static shown stream(const char *in, size_t n, uint64_t cuts, char **stop, size_t n_stop)
{
    shown s = {0};
    pi__stops a;
    pi__output o;
    const char *text;
    size_t k, from = 0;
    assert_int_equal(pi__stops_make(&a, stop, n_stop), PI_OK);
    assert_int_equal(pi__output_init(&o, &a), PI_OK);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && !(cuts >> (i & 63) & 1)) continue;
        assert_int_equal(pi__output_feed(&o, in + from, i + 1 - from, &text, &k), PI_OK);
        add(&s, text, k);
        from = i + 1;
    }
    s.hit = o.hit != NULL;
    char *rest = pi__output_finish(&o, &k);
    assert_int_equal(strlen(rest), k);
    add(&s, rest, k);
    pi__free(rest);
    s.hit |= o.hit != NULL;
    pi__output_free(&o);
    pi__stops_free(&a);
    return s;
}

/* The result is the same for every way to cut the text. */
static void expect(const char *in, const char *want, bool hit, char **stop, size_t n_stop)
{
    size_t n = strlen(in);
    assert_true(n <= 14);
    for (uint64_t cuts = 0; cuts < (uint64_t) 1 << n; cuts++) {
        shown s = stream(in, n, cuts, stop, n_stop);
        if (!strcmp(s.text, want) && s.hit == hit) continue;
        fail_msg("'%s' cut at %llx: '%s'", in, (unsigned long long) cuts, s.text);
    }
}

static void without_stop_strings_all_is_shown(void **state)
{
    (void) state;
    expect("hello world", "hello world", false, NULL, 0);
    expect("", "", false, NULL, 0);
    expect("\xE6\x97\xA5\xE6\x9C\xAC", "\xE6\x97\xA5\xE6\x9C\xAC", false, NULL, 0);
}

static void a_stop_string_ends_the_text(void **state)
{
    (void) state;
    char *end[] = {"END"};
    expect("abcENDdef", "abc", true, end, 1);
    expect("END", "", true, end, 1);
    expect("EENEND", "EEN", true, end, 1);
    expect("abEN", "abEN", false, end, 1); /* only a prefix of the stop string: emitted at the end */
    expect("ENENEND.", "ENEN", true, end, 1);
    char *aab[] = {"aab"};
    expect("aaaaab", "aaa", true, aab, 1);
    char *abab[] = {"ababc"};
    expect("abababcab", "ab", true, abab, 1);
    char *cjk[] = {"\xE6\x9C\xAC"};
    expect("\xE6\x97\xA5\xE6\x9C\xAC!", "\xE6\x97\xA5", true, cjk, 1);
}

static void of_several_the_first_to_be_complete_wins(void **state)
{
    (void) state;
    char *two[] = {"abcd", "bc"};
    expect("xabcdx", "xa", true, two, 2);
    char *same_end[] = {"cd", "abcd"};
    expect("xabcd", "x", true, same_end, 2);
    char *empty[] = {"", "z", ""};
    expect("xyz", "xy", true, empty, 3);
    char *only_empty[] = {""};
    expect("xyz", "xyz", false, only_empty, 1);
}

static void the_hit_is_named(void **state)
{
    (void) state;
    char *stop[] = {"one", "two"};
    pi__stops a;
    pi__output o;
    const char *text;
    size_t n;
    assert_int_equal(pi__stops_make(&a, stop, 2), PI_OK);
    assert_int_equal(pi__output_init(&o, &a), PI_OK);
    assert_int_equal(pi__output_feed(&o, "a tw", 4, &text, &n), PI_OK);
    assert_true(n == 2 && !memcmp(text, "a ", 2));
    assert_null(o.hit);
    assert_int_equal(pi__output_feed(&o, "o b", 3, &text, &n), PI_OK);
    assert_int_equal(n, 0);
    assert_ptr_equal(o.hit, stop[1]);
    assert_int_equal(pi__output_feed(&o, "more", 4, &text, &n), PI_OK);
    assert_int_equal(n, 0);
    char *rest = pi__output_finish(&o, &n);
    assert_true(n == 0 && rest && !*rest);
    pi__free(rest);
    pi__output_free(&o);
    pi__stops_free(&a);
}

static void characters_come_whole(void **state)
{
    (void) state;
    static const char in[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
    pi__output o;
    const char *text;
    size_t n;
    assert_int_equal(pi__output_init(&o, NULL), PI_OK);
    for (const char *p = in; *p; p++) {
        assert_int_equal(pi__output_feed(&o, p, 1, &text, &n), PI_OK);
        unsigned char first = n ? (unsigned char) text[0] : 0;
        assert_true((first & 0xC0) != 0x80); /* never starts inside a character */
        if (n) assert_int_equal(n, first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1);
    }
    pi__free(pi__output_finish(&o, &n));
    assert_int_equal(n, 0);
    pi__output_free(&o);
}

static void broken_bytes_become_replacement_characters(void **state)
{
    (void) state;
    expect("a\xE6\x97", "a\xEF\xBF\xBD", false, NULL, 0);
    expect("a\xFF" "b", "a\xEF\xBF\xBD" "b", false, NULL, 0);
    char *stop[] = {"b"};
    expect("a\xE6" "bc", "a\xEF\xBF\xBD", true, stop, 1);
    char *repl[] = {"\xEF\xBF\xBD"};
    expect("a\xE6", "a", true, repl, 1); /* found by the flush at the end */
}

static uint32_t rnd(uint32_t n)
{
    static uint32_t x = 12345;
    x = x * 1664525u + 1013904223u;
    return (x >> 16) % n;
}

/* Matches a plain search in the complete text, for random texts of two letters with many partial matches. */
static void like_a_search_in_the_whole(void **state)
{
    (void) state;
    for (int round = 0; round < 20000; round++) {
        char in[61], stop_a[8], stop_b[8], *stop[] = {stop_a, stop_b};
        size_t n = rnd(60), la = 1 + rnd(7), lb = 1 + rnd(7);
        for (size_t i = 0; i < n; i++) in[i] = (char) ('a' + rnd(2));
        for (size_t i = 0; i < la; i++) stop_a[i] = (char) ('a' + rnd(2));
        for (size_t i = 0; i < lb; i++) stop_b[i] = (char) ('a' + rnd(2));
        uint64_t cuts = 0;
        for (int i = 0; i < 4; i++) cuts = cuts << 16 | rnd(65536);
        in[n] = stop_a[la] = stop_b[lb] = 0;
        size_t best_end = SIZE_MAX, best_start = n;
        for (int k = 0; k < 2; k++) {
            const char *p = strstr(in, stop[k]);
            size_t start = p ? (size_t) (p - in) : n, end = p ? start + strlen(stop[k]) : SIZE_MAX;
            if (end < best_end || (end == best_end && start < best_start)) {
                best_end = end;
                best_start = start;
            }
        }
        shown s = stream(in, n, cuts, stop, 2);
        if (s.n == best_start && !memcmp(s.text, in, s.n)) continue;
        fail_msg("'%s', stops '%s' and '%s': '%s'", in, stop_a, stop_b, s.text);
    }
}

/* Stop strings inside of others, and thousands of them: the automaton has at most as many nodes as the strings have
 * bytes. */
static void many_stop_strings(void **state)
{
    (void) state;
    enum { N = 4096 };
    static char text[N][8], *stop[N];
    char *inner[] = {"abcd", "bc", "c", ""};
    pi__stops a;
    expect("xabcd", "xa", true, inner, 2);
    expect("xabd", "xabd", false, inner, 1);
    expect("xabcd", "xa", true, inner, 4);
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "<%04x>", i);
        stop[i] = text[i];
    }
    assert_int_equal(pi__stops_make(&a, stop, N), PI_OK);
    assert_true(a.n_node <= 2 * N + 300);
    pi__stops_free(&a);
    expect("a<0fff<0fff>b", "a<0fff", true, stop, N);
    expect("a<1fff>b", "a<1fff>b", false, stop, N);
}

static int countdown;
static void *failing_malloc(void *ud, size_t n) { (void) ud; return countdown-- > 0 ? malloc(n) : NULL; }
static void *failing_realloc(void *ud, void *p, size_t n) { (void) ud; return countdown-- > 0 ? realloc(p, n) : NULL; }
static void plain_free(void *ud, void *p) { (void) ud; free(p); }

static void out_of_memory(void **state)
{
    (void) state;
    const pi_allocator a = {sizeof a, NULL, failing_malloc, failing_realloc, plain_free, NULL, NULL};
    char big[2000], *stop[] = {"one", "two"};
    memset(big, 'x', sizeof big);
    assert_int_equal(pi_set_allocator(&a), PI_OK);
    bool done = false;
    for (int i = 0; !done && i < 100; i++) {
        countdown = i;
        pi__stops a;
        pi__output o;
        const char *text;
        size_t n;
        if (pi__stops_make(&a, stop, 2)) continue;
        if (pi__output_init(&o, &a)) {
            pi__stops_free(&a);
            continue;
        }
        int rc = pi__output_feed(&o, big, sizeof big, &text, &n);
        done = rc == PI_OK;
        if (rc) assert_true(rc == PI_ENOMEM && n == 0);
        char *rest = pi__output_finish(&o, &n); /* needs no memory */
        assert_non_null(rest);
        pi__free(rest);
        pi__output_free(&o);
        pi__stops_free(&a);
    }
    pi_set_allocator(NULL);
    assert_true(done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_stop_strings_all_is_shown),
        cmocka_unit_test(a_stop_string_ends_the_text),
        cmocka_unit_test(of_several_the_first_to_be_complete_wins),
        cmocka_unit_test(the_hit_is_named),
        cmocka_unit_test(characters_come_whole),
        cmocka_unit_test(broken_bytes_become_replacement_characters),
        cmocka_unit_test(like_a_search_in_the_whole),
        cmocka_unit_test(many_stop_strings),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
