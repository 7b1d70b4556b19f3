/* Shared code of src/base: clocks, hashes, regular expressions. Also checks each row of the format tables against the
 * layout of its block. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/regex.h"
#include "base/versioned.h"
#include "formats/formats.h"
#include "pagedinfer.h"

static void clocks_go_on(void **state)
{
    (void) state;
    const int64_t a = pi__now_ns();
    const struct timespec t = pi__deadline(1999.5);
    const int64_t until = (int64_t) t.tv_sec * 1000000000 + t.tv_nsec, b = pi__now_ns();
    assert_true(b >= a && pi__now_ms() * 1e6 >= (double) a);
    assert_in_range(t.tv_nsec, 0, 999999999);
    assert_true(until - a >= 1999500000 && until - b <= 1999500000);
    assert_true(pi__wall_ns() > (int64_t) 1600000000 * 1000000000); /* 2020 */
    pthread_cond_t c;
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    assert_int_equal(pi__cond_init(&c), PI_OK);
    pthread_mutex_lock(&m);
    const struct timespec soon = pi__deadline(20);
    const int64_t start = pi__now_ns();
    /* uses the same clock; with another clock, this returns immediately or never */
    while (!pthread_cond_timedwait(&c, &m, &soon)) {}
    assert_true(pi__now_ns() - start >= 15000000);
    pthread_mutex_unlock(&m);
    pthread_cond_destroy(&c);
}

/* Names of files on disk contain these hashes, so the hashes must never change. */
static void hashes_stay(void **state)
{
    (void) state;
    char hex[PI__DIGEST_HEX];
    assert_true(pi__hash64("", 0, 0) == 0x2d06800538d394c2u); /* XXH3 of the empty string */
    const pi__digest h = pi__hash(PI__HASH_SALT, "a", 1);
    pi__digest_hex(&h, hex); /* printf '\3\0\0\0\1\0\0\0\0\0\0\0a' | sha256sum */
    assert_string_equal(hex, "e0c52207a0893627547d954e70d7ce917902bf0b42143279902faebe48ecaebd");
    const pi__digest g = pi__hash_chain(PI__HASH_BLOCK, &h, "ab", 2);
    pi__digest_hex(&g, hex);
    assert_string_equal(hex, "378e865736319bef4c6357842a25495bf77f0c8a1c696811b2cd9eac71912fca");
}

static void expressions_find(void **state)
{
    (void) state;
    char why[PI__REGEX_ERROR];
    pi__regex *re = NULL, *bad = NULL;
    assert_int_equal(pi__regex_compile(&bad, "a(b", 3, false, why), PI_EINVAL);
    assert_non_null(strstr(why, "at byte 3"));
    assert_null(bad);
    pi__regex_scratch *s = pi__regex_scratch_new();
    assert_non_null(s);
    assert_int_equal(pi__regex_compile(&re, "b+X", 2, false, why), PI_OK); /* compiles n bytes of the pattern */
    size_t from = 2, to = 0;
    assert_int_equal(pi__regex_find(re, s, "b abbc", 6, &from, &to), 1);
    assert_true(from == 3 && to == 5);
    from = 5;
    assert_int_equal(pi__regex_find(re, s, "b abbc", 6, &from, &to), 0);
    assert_int_equal(pi__regex_test(re, s, "ac", 2), 0);
    pi__regex_free(re);
    assert_int_equal(pi__regex_compile(&re, "\\p{Lu}", 6, true, why), PI_OK);
    from = 0;
    assert_int_equal(pi__regex_find(re, s, "a\xc3\x84", 3, &from, &to), 1); /* capital A with diaeresis: two bytes */
    assert_true(from == 1 && to == 3);
    pi__regex_free(re);
    /* Catastrophic backtracking ends with an error, neither a hang nor "not found". */
    assert_int_equal(pi__regex_compile(&re, "^(a|aa|aaa)+$", 13, false, why), PI_OK);
    char text[80];
    memset(text, 'a', sizeof text);
    text[79] = 'b';
    assert_int_equal(pi__regex_test(re, s, text, sizeof text), PI_EINTERNAL);
    pi__regex_free(re);
    pi__regex_scratch_free(s);
    pi__regex_free(NULL);
    pi__regex_scratch_free(NULL);
}

static void formats_add_up(void **state)
{
    (void) state;
    for (int32_t type = 0; type < PI__N_TYPES; type++) {
        const pi__type_info *t = pi__type_info_of(type);
        const pi__format_facts f = pi__format_facts_of(type);
        if (!t) {
            assert_true(f.block == 0 && f.codes == PI__CODES_NOTHING);
            continue;
        }
        assert_int_equal(f.block, t->blck_size);
        assert_int_equal(f.codes != PI__CODES_NOTHING, t->readable);
        const pi__type_info *fit = pi__type_info_of(t->fit);
        assert_true(fit && fit->writable && fit->blck_size <= 32);
        if (f.codes == PI__CODES_NOTHING || f.codes == PI__CODES_FLOATS || f.codes == PI__CODES_NARROW) continue;
        assert_int_equal(f.block % 32, 0);
        assert_int_equal(f.plane % 16, 0);
        assert_true(f.d_at + 2u <= t->type_size || f.scales == PI__SCALES_E8M0);
        /* A packed CPU tile is as large as 16 rows of the file, except for ternary types, which keep their rows
         * there. */
        if (f.record && f.codes != PI__CODES_TERNARY)
            assert_int_equal(f.block / 32 * f.plane + f.record, 16 * t->type_size);
    }
}

static void cache_types_add_up(void **state)
{
    (void) state;
    int n = 0;
    char words[128] = "";
#define ROW(type, fn, ...)                                                                             \
    assert_int_equal(pi__kv_index(PI__##type), n++);                                                   \
    assert_int_equal(PI__KV_SIDE_##type + PI__KV_CODES_##type, pi__kv_row_size(PI__##type, 32));        \
    assert_true(PI__KV_CODES_##type <= PI__KV_CODES_MAX && PI__KV_CODES_##type % 4 == 0);              \
    assert_string_equal(pi__kv_name(PI__##type), #fn);                                                 \
    assert_int_equal(pi__type_from_name(#fn), pi__type_info_of(PI__##type) ? PI__##type : -1);         \
    assert_int_equal(pi__kv_rotated(PI__##type), !pi__type_info_of(PI__##type));                       \
    strcat(strcat(words, "|"), #fn);
    PI__CACHE_TYPES(ROW)
#undef ROW
    assert_int_equal(n, PI__N_KV_TYPES);
    assert_string_equal(words, PI__CACHE_TYPE_WORDS);
    assert_int_equal(pi__kv_index(PI__Q4_K), -1);
    assert_int_equal(pi__kv_index(-1), -1);
    assert_int_equal(pi__kv_row_size(PI__TQ4_0, 64), 36);
    assert_int_equal(pi__kv_row_size(PI__TQ3_0, 64), 28);
}

static void versioned_structs_get_their_prefix(void **state)
{
    (void) state;
    typedef struct thing { uint32_t size, a, b; } thing;
    const thing full = {99, 1, 2};
    const struct { uint32_t size, expected, a, b; } row[] = {
        {sizeof(thing), sizeof(thing), 1, 2},     /* the same version */
        {sizeof(thing) + 8, sizeof(thing), 1, 2}, /* the caller's struct is longer */
        {8, 8, 1, 7},                             /* the caller's struct is shorter */
        {4, 4, 7, 7},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        thing out = {row[i].size, 7, 7};
        assert_int_equal(pi__versioned_copy(&out, &full, sizeof full), PI_OK);
        assert_true(out.size == row[i].expected && out.a == row[i].a && out.b == row[i].b);
    }
    thing small = {3, 7, 7};
    assert_int_equal(pi__versioned_copy(&small, &full, sizeof full), PI_EINVAL);
    assert_true(small.size == 3 && small.a == 7 && small.b == 7);
    assert_int_equal(pi__versioned_check(&small), PI_EINVAL);
    assert_int_equal(pi__versioned_check(NULL), PI_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_go_on),   cmocka_unit_test(hashes_stay),        cmocka_unit_test(expressions_find),
        cmocka_unit_test(formats_add_up), cmocka_unit_test(cache_types_add_up),
        cmocka_unit_test(versioned_structs_get_their_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
