/* Parts of `pagedinfer eval` without an engine: the parser of cases.json, and arithmetic on logits rows compared with
 * double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "rows.h"

/* ------------------------------------------------------------------------------------------------------ cases.json */

static void test_cases_good(void **state)
{
    (void) state;
    static const char text[] =
        "[{\"name\": \"one\", \"ids\": [2, 9259, 2147483647], \"n\": 48, \"rows\": \"last\"},\n"
        " {\"rows\": \"all\", \"n\": 0, \"ids\": [0], \"name\": \"caf\\u00e9 2\"},\n"
        " {\"name\": \"x\", \"ids\": [1], \"n\": 8, \"n\": 7}]"; /* the last one of duplicate values counts */
    cases c;
    char msg[256];
    assert_int_equal(cases_parse(&c, text, strlen(text), msg), CASES_OK);
    assert_int_equal(c.n, 3);
    assert_string_equal(c.item[0].name, "one");
    assert_int_equal(c.item[0].n_ids, 3);
    assert_int_equal(c.item[0].ids[1], 9259);
    assert_int_equal(c.item[0].ids[2], INT32_MAX);
    assert_int_equal(c.item[0].n, 48);
    assert_false(c.item[0].all_rows);
    assert_string_equal(c.item[1].name, "caf\xc3\xa9 2");
    assert_int_equal(c.item[1].n, 0);
    assert_true(c.item[1].all_rows);
    assert_false(c.item[2].all_rows);
    assert_int_equal(c.item[2].n, 7);
    cases_free(&c);
    assert_int_equal(cases_parse(&c, "[]", 2, msg), CASES_OK);
    assert_int_equal(c.n, 0);
    cases_free(&c);
}

static void test_cases_bad(void **state)
{
    (void) state;
    static const struct { const char *text, *says; } bad[] = {
        {"", "line"},
        {"[", "line 1"},
        {"[]x", "line 1"},
        {"{}", "must be an array"},
        {"[7]", "case 0 must be an object, it is an integer"},
        {"[{\"ids\": [1], \"n\": 1}]", "\"name\" must be a string, it is missing"},
        {"[{\"name\": 3, \"ids\": [1], \"n\": 1}]", "it is an integer"},
        {"[{\"name\": \"\", \"ids\": [1], \"n\": 1}]", "1 to 200 bytes"},
        {"[{\"name\": \"a/b\", \"ids\": [1], \"n\": 1}]", "slash"},
        {"[{\"name\": \"a\\nb\", \"ids\": [1], \"n\": 1}]", "control"},
        {"[{\"name\": \"..\", \"ids\": [1], \"n\": 1}]", "dot"},
        {"[{\"name\": \"a\\u0000b\", \"ids\": [1], \"n\": 1}]", "control"},
        {"[{\"name\": \"a\", \"n\": 1}]", "\"ids\" must be an array, it is missing"},
        {"[{\"name\": \"a\", \"ids\": [], \"n\": 1}]", "empty"},
        {"[{\"name\": \"a\", \"ids\": [1, 2.5], \"n\": 1}]", "\"ids\"[1] must be a token id, it is a fraction"},
        {"[{\"name\": \"a\", \"ids\": [1, -1], \"n\": 1}]", "\"ids\"[1] is -1"},
        {"[{\"name\": \"a\", \"ids\": [2147483648], \"n\": 1}]", "\"ids\"[0] is 2147483648"},
        {"[{\"name\": \"a\", \"ids\": [99999999999999999999], \"n\": 1}]", "it is a number of too many digits"},
        {"[{\"name\": \"a\", \"ids\": [1]}]", "\"n\" must be a number"},
        {"[{\"name\": \"a\", \"ids\": [1], \"n\": -1}]", "\"n\" is -1"},
        {"[{\"name\": \"a\", \"ids\": [1], \"n\": 1, \"rows\": \"some\"}]", "\"rows\" must be"},
        {"[{\"name\": \"a\", \"ids\": [1], \"n\": 1, \"rows\": 1}]", "\"rows\" must be"},
        {"[{\"name\": \"a\", \"ids\": [1], \"n\": 1, \"row\": \"all\"}]", "unknown member \"row\""},
        {"[{\"name\": \"a\", \"ids\": [1], \"n\": 1}, {\"name\": \"b\", \"ids\": [1], \"n\": 1},"
         " {\"name\": \"a\", \"ids\": [1], \"n\": 1}]", "two cases have the name \"a\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cases c = {.n = 7};
        char msg[256];
        assert_int_equal(cases_parse(&c, bad[i].text, strlen(bad[i].text), msg), CASES_BAD);
        if (!strstr(msg, bad[i].says)) fail_msg("\"%s\" for %s", msg, bad[i].text);
        assert_null(c.item);
        assert_int_equal(c.n, 0);
    }
    char name[300], text[512], msg[256];
    cases c;
    memset(name, 'a', sizeof name);
    for (int len = 200; len <= 201; len++) {
        name[len] = 0;
        snprintf(text, sizeof text, "[{\"name\": \"%s\", \"ids\": [1], \"n\": 1}]", name);
        assert_int_equal(cases_parse(&c, text, strlen(text), msg), len == 200 ? CASES_OK : CASES_BAD);
        cases_free(&c);
        name[len] = 'a';
    }
}

/* Every truncation of a valid file is refused, and no read passes its end. */
static void test_cases_truncated(void **state)
{
    (void) state;
    static const char text[] = "[{\"name\": \"one\", \"ids\": [2, 9259], \"n\": 48, \"rows\": \"last\"}]";
    for (size_t len = 0; len < strlen(text); len++) {
        char *copy = malloc(len ? len : 1), msg[256];
        cases c;
        memcpy(copy, text, len);
        assert_int_equal(cases_parse(&c, copy, len, msg), CASES_BAD);
        free(copy);
    }
}

/* ------------------------------------------------------------------------------------------------------------ rows */

static uint64_t rng_state = 88172645463325252u;

static double rnd01(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (double) (rng_state >> 11) * 0x1p-53;
}

static void fill(float *x, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++) {
        double g = (rnd01() + rnd01() + rnd01() - 1.5) * (kind == 0 ? 8 : kind == 1 ? 40 : 0.01);
        x[i] = kind == 3 ? 2.5f : kind == 4 && rnd01() < 0.3 ? -INFINITY : (float) g;
    }
}

enum { MOST = 3000 };

static void test_row_sum(void **state)
{
    (void) state;
    float x[MOST];
    for (int trial = 0; trial < 200; trial++) {
        size_t n = 1 + (size_t) (rnd01() * MOST);
        fill(x, n, trial % 4);
        double max = -INFINITY, sum = 0;
        size_t best = 0;
        for (size_t i = 0; i < n; i++) {
            if ((double) x[i] > max) max = (double) x[best = i];
        }
        for (size_t i = 0; i < n; i++) sum += exp((double) x[i] - max);
        row_sum s = rows_sum(x, n);
        assert_true((double) s.max == max);
        assert_true(fabs(s.log_sum - log(sum)) < 1e-6);
        assert_int_equal(rows_argmax(x, n), best);
    }
}

/* Quantizes to 16 bits over the top range of at most 16; the error is at most half a step. */
static void test_row_quantise(void **state)
{
    (void) state;
    float x[MOST];
    uint16_t q[MOST];
    for (int trial = 0; trial < 200; trial++) {
        size_t n = 1 + (size_t) (rnd01() * MOST);
        fill(x, n, trial % 5);
        x[n / 2] = 3;
        row_sum s = rows_sum(x, n);
        row_q16 r = rows_quantise(x, n, s, q);
        double low = INFINITY;
        for (size_t i = 0; i < n; i++) low = (double) x[i] < low ? (double) x[i] : low;
        if (low < (double) s.max - 16) low = (double) s.max - 16;
        assert_true(fabs((double) r.scale - ((double) s.max - low) / 65535) < 1e-9);
        for (size_t i = 0; i < n; i++) {
            double want = ((double) x[i] > low ? (double) x[i] : low) - (double) s.max - s.log_sum;
            double got = (double) r.scale * q[i] + (double) r.min;
            assert_true(fabs(got - want) <= 0.5 * (double) r.scale + 4e-6);
        }
        if (r.scale > 0) assert_int_equal(rows_argmax_q16(q, n), rows_argmax(x, n));
    }
}

static void test_row_kl(void **state)
{
    (void) state;
    float x[MOST], y[MOST];
    uint16_t q[MOST];
    for (int trial = 0; trial < 100; trial++) {
        size_t n = 1 + (size_t) (rnd01() * MOST);
        fill(x, n, trial % 4);
        for (size_t i = 0; i < n; i++) y[i] = x[i] + (float) (rnd01() - 0.5) * (float) (trial % 3);
        row_sum s = rows_sum(x, n), t = rows_sum(y, n);
        row_q16 base = rows_quantise(x, n, s, q);
        double want = 0;
        for (size_t i = 0; i < n; i++) {
            double lb = (double) base.scale * q[i] + (double) base.min;
            if (lb > -16) want += exp(lb) * (lb - ((double) y[i] - (double) t.max - t.log_sum));
        }
        assert_true(fabs(rows_kl(y, n, t, base) - want) < 3e-6 * (1 + fabs(want)));
        if (trial % 3 == 0) assert_true(fabs(rows_kl(y, n, t, base)) < 2e-4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_good), cmocka_unit_test(test_cases_bad), cmocka_unit_test(test_cases_truncated),
        cmocka_unit_test(test_row_sum), cmocka_unit_test(test_row_quantise), cmocka_unit_test(test_row_kl),
    };
    return cmocka_run_group_tests_name("eval", tests, NULL, NULL);
}
