/* Templates: output of small templates of every kind compared with jinja2 (jinja_expected.h); error positions; limits
 * that stop hostile templates; JSON; each allocation failed in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "counting_alloc.h"
#include "jinja_expected.h"
#include "template/jinja.h"
#include "base/unicode.h"

typedef struct result {
    int rc;
    pi_error err;
    pi__text out; /* NUL-terminated if rc is PI_OK */
} result;

static const pi__jinja_env env = {.now = JINJA_NOW, .max_steps = 10000000}; /* a low limit */

/* Renders text with the members of json as variables. */
static result render_n(const char *text, size_t n, const char *json, size_t memory, size_t output)
{
    result r = {.out = {.limit = output}};
    pi__zone zone;
    pi__val vars;
    pi__jinja *t = NULL;
    pi__zone_init(&zone, memory);
    r.rc = pi__json_read(&zone, json, strlen(json), "vars", &vars, &r.err);
    if (!r.rc) r.rc = pi__jinja_parse(&t, text, n, &r.err);
    if (!r.rc) r.rc = pi__jinja_render(t, &zone, vars.map, &env, &r.out, &r.err);
    r.out.limit++;
    if (!r.rc) pi__text_add(&r.out, "", 1);
    if (!r.rc && r.out.code) r.rc = r.out.code;
    pi__jinja_free(t);
    pi__zone_free(&zone);
    return r;
}

static result render(const char *text, const char *json)
{
    return render_n(text, strlen(text), json, (size_t) 64 << 20, (size_t) 8 << 20);
}

static void expect(const char *text, const char *json, const char *want)
{
    result r = render(text, json);
    if (r.rc) fail_msg("%s: %s", text, r.err.msg);
    assert_string_equal(r.out.p, want);
    pi__free(r.out.p);
}

static void expect_error(const char *text, int rc, const char *msg)
{
    result r = render(text, "{}");
    assert_int_equal(r.rc, rc);
    assert_int_equal(r.err.code, rc);
    assert_string_equal(r.err.msg, msg);
    pi__free(r.out.p);
}

/* ---------------------------------------------------------------------------------------------------- the language */

static void test_as_jinja2(void **state)
{
    (void) state;
    setenv("TZ", "UTC", 1);
    for (size_t i = 0; i < sizeof jinja_expected / sizeof *jinja_expected; i++) {
        const char *want = jinja_expected[i].want;
        result r = render(jinja_expected[i].text, jinja_vars);
        if (!want != (r.rc != 0)) fail_msg("%s: %s", jinja_expected[i].text, want ? r.err.msg : "not refused");
        if (want) assert_string_equal(r.out.p, want);
        else assert_true(r.rc == PI_EINVAL && r.err.msg[0]);
        pi__free(r.out.p);
    }
}

static void test_errors(void **state)
{
    (void) state;
    expect_error("a\n{{ x.y }}", PI_EINVAL, "chat template, line 2: 'x' is undefined");
    expect_error("{% if 1 %}\n\n{{ 1 +\n 'a' }}{% endif %}", PI_EINVAL,
                 "chat template, line 3: + is not possible between a number and a string");
    expect_error("\n\n{{ raise_exception('No ' ~ 'way.') }}", PI_EINVAL, "chat template: No way.");
    expect_error("{% macro m() %}\n{{ x() }}\n{% endmacro %}\n\n{{ m() }}", PI_EINVAL,
                 "chat template, line 2: 'x' is undefined");
    expect_error("a\nb\n{% if x %}", PI_EINVAL, "chat template, line 3: the template ends where 'elif' is expected");
    expect_error("\n{% wrong %}", PI_EINVAL, "chat template, line 2: unknown tag 'wrong'");
    expect_error("{% for x in y recursive %}{% endfor %}", PI_EINVAL,
                 "chat template, line 1: recursive loops are not supported");
    expect_error("{{ 'a\n", PI_EINVAL, "chat template, line 1: the string has no end");
    expect_error("{{ x", PI_EINVAL, "chat template, line 1: the tag has no end");
    expect_error("{{ f(a=1, 2) }}", PI_EINVAL,
                 "chat template, line 1: this argument must come before the previous one");
    expect_error("{{ dict(**[]) }}", PI_EINVAL, "chat template, line 1: ** takes a mapping, not a list");
    expect_error("{% macro m(a) %}{% endmacro %}\n{{ m(1, a=2) }}", PI_EINVAL,
                 "chat template, line 2: the macro does not take the argument 'a'");
    expect_error("{{ '9223372036854775808' | int }}", PI_EINVAL, "chat template, line 1: int: the number is too large");
    expect_error("{{ 1 | indent }}", PI_EINVAL, "chat template, line 1: indent: a number is not a string");
    expect_error("{{ 9223372036854775807 + 1 }}", PI_EINVAL, "chat template, line 1: the number is too large");
    expect_error("{{ 3 ** 99 }}", PI_EINVAL, "chat template, line 1: the number is too large");
    expect_error("\xFF", PI_EINVAL, "the chat template is not UTF-8");
}

static void test_beyond_jinja2(void **state)
{
    (void) state;
    expect("{{ -9223372036854775807 - 1 }} {{ (-9223372036854775807 - 1) // 1 }} {{ (-9223372036854775807 - 1) % -1 }}",
           "{}", "-9223372036854775808 -9223372036854775808 0");
    /* a list, while jinja2 has a generator */
    expect("{{ x | map('upper') | tojson }}", "{\"x\": [\"a\"]}", "[\"A\"]");
    expect("{% set l = [] %}{% set _ = l.append(l) %}{{ l == l }}{{ l | length }}", "{}", "True1");
    expect("{{ a.b }}{{ a['b'] }}", "{\"a\": {\"b\": 1, \"b\": 2}}", "22"); /* the last of duplicate keys counts */
}

/* Character classes at their limits: neighbors of a bound, planes without members, and code points beyond all
 * planes. */
static void test_characters(void **state)
{
    (void) state;
    static const struct {
        uint32_t cp;
        enum pi__uset set;
        bool is;
    } cases[] = {
        {' ', PI__U_PRINT, true}, {0x1F, PI__U_PRINT, false}, {0x7E, PI__U_PRINT, true}, {0x7F, PI__U_PRINT, false},
        {0x3000, PI__U_PRINT, false}, {0xFFFF, PI__U_PRINT, false}, {0x10000, PI__U_PRINT, true},
        {0x20000, PI__U_ALPHA, true}, {0x2FA1D, PI__U_ALPHA, true}, {0x2FA1E, PI__U_ALPHA, false},
        {0x30000, PI__U_ALPHA, true}, {0x40000, PI__U_PRINT, false}, {0x40041, PI__U_ALPHA, false},
        {0xD0041, PI__U_ALPHA, false}, {0xE0001, PI__U_IGNORABLE, true}, {0xE01EF, PI__U_IGNORABLE, true},
        {0xE01F0, PI__U_IGNORABLE, false}, {0xF0041, PI__U_ALPHA, false}, {0x10FFFF, PI__U_PRINT, false},
        {0x1C5, PI__U_TITLE, true}, {0x1C4, PI__U_TITLE, false}, {0, PI__U_ALPHA, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (pi__uis(cases[i].cp, cases[i].set) != cases[i].is) fail_msg("U+%04X", (unsigned) cases[i].cp);
    assert_int_equal(pi__udigit('7'), 7);
    assert_int_equal(pi__udigit(0x663), 3);
    assert_int_equal(pi__udigit(0x1D7FF), 9); /* the last of five contiguous rows of digits */
    assert_int_equal(pi__udigit(0x1D7D8), 0);
    assert_int_equal(pi__udigit(0xB2), -1); /* superscripts are not decimal digits */
    assert_true(pi__uis_upper(0x1D400) && !pi__uis_lower(0x1D400)); /* has no lowercase form */
    uint32_t out[PI__UCASE_MAX];
    assert_int_equal(pi__ucase(0x390, 'U', out), 3);
    assert_int_equal(out[2], 0x301);
    /* Georgian: the titlecase is the letter itself, the uppercase is not */
    assert_int_equal(pi__ucase(0x10D0, 'T', out), 1);
    assert_int_equal(out[0], 0x10D0);
    assert_int_equal(pi__ucase(0x10FFFF, 'L', out), 1);
}

/* --------------------------------------------------------------------------------------------------------- bounds */

static char *repeat(const char *head, const char *part, size_t n, const char *tail)
{
    size_t len = strlen(part);
    char *p = malloc(strlen(head) + n * len + strlen(tail) + 1), *to = p + strlen(head);
    assert_non_null(p);
    memcpy(p, head, strlen(head));
    for (size_t i = 0; i < n; i++, to += len) memcpy(to, part, len);
    memcpy(to, tail, strlen(tail) + 1);
    return p;
}

static void expect_bound(char *text, int rc, const char *part)
{
    result r = render(text, "{}");
    if (r.rc != rc || !strstr(r.err.msg, part)) fail_msg("%.60s...: %d %s", text, r.rc, r.err.msg);
    pi__free(r.out.p);
    free(text);
}

static void test_bounds(void **state)
{
    (void) state;
    char *tail = repeat("1", ")", 10000, " }}"), *tail2 = repeat("1", "]", 10000, " }}");
    expect_bound(repeat("{{ ", "(", 10000, tail), PI_EINVAL, "nested more than");
    expect_bound(repeat("{{ ", "[", 10000, tail2), PI_EINVAL, "nested more than");
    free(tail);
    free(tail2);
    expect_bound(repeat("{{ ", "-", 10000, "1 }}"), PI_EINVAL, "nested more than");
    expect_bound(repeat("{{ ", "not ", 10000, "1 }}"), PI_EINVAL, "nested more than");
    expect_bound(repeat("{{ 1", " if 1 else 1", 10000, " }}"), PI_EINVAL, "nested more than");
    expect_bound(repeat("", "{% if 1 %}", 10000, ""), PI_EINVAL, "nested more than");
    tail = repeat("x", ")", 10000, " in y %}");
    expect_bound(repeat("{% for ", "(", 10000, tail), PI_EINVAL, "nested more than");
    free(tail);
    expect_bound(repeat("{{ 1", " + 1", 10000, " }}"), PI_ETOOBIG, "nested too deeply");
    expect_bound(repeat("{{ x", "|list", 10000, " }}"), PI_ETOOBIG, "nested too deeply");
    expect_bound(repeat("{{ 1", " and 1", 10000, " }}"), PI_ETOOBIG, "nested too deeply");
    expect_bound(repeat("{{ x", "[0]", 10000, " }}"), PI_ETOOBIG, "nested too deeply");
    expect_bound(strdup("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), PI_ETOOBIG, "line 1: nested too deeply");
    expect_bound(strdup("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}"), PI_ETOOBIG, "line 1: ");
    expect_bound(strdup("{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}"), PI_ETOOBIG, "line 1: ");
    expect_bound(strdup("{{ 'a' * 1000000000 }}"), PI_ETOOBIG, "");
    expect_bound(strdup("{{ [1] * 1000000000 }}"), PI_ETOOBIG, "");
    expect_bound(strdup("{% set l = range(99999) %}{% for i in l %}{% for j in l %}{% endfor %}{% endfor %}"),
                 PI_ETOOBIG,
                 "too many steps");
    expect_bound(strdup("{% set x = 'abcdefgh' * 99999 %}{% for i in range(99999) %}{{ x }}{% endfor %}"), PI_ETOOBIG,
                 "the output is too long");
    expect_bound(strdup("{% set x = 'ab' * 999999 %}{% for i in range(99999) %}{% set y = x.split('b') %}{% endfor %}"),
                 PI_ETOOBIG, "too much memory");
    expect_bound(strdup("{% set x = 'ab' * 999999 %}{% for i in range(99999) %}{{ 'c' in x }}{% endfor %}"),
                 PI_ETOOBIG, "too many steps");
    expect_bound(strdup("{% set x = 'ab' * 999999 %}{% for i in range(99999) %}{% if x.isalpha() and x is lower %}{% endif %}"
                        "{% endfor %}"), PI_ETOOBIG, "too many steps");
    expect_bound(strdup("{% set l = range(99999) | list %}{% for i in l %}{% set m = namespace(*l) %}{% endfor %}"), PI_ETOOBIG,
                 "too");
    expect_bound(strdup("{% set n = namespace(d={}) %}{% for i in range(20000) %}{% set _ = n.d.update({i | string: i}) %}"
                        "{% endfor %}{% for i in range(999) %}{% set m = dict(**n.d) %}{% endfor %}"), PI_ETOOBIG, "too");
    /* Lists with shared elements are small in memory, but huge when compared. */
    expect_bound(strdup("{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
                        "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}"), PI_ETOOBIG, "too many steps");
    expect_bound(strdup("{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}"
                        "{{ n.a | string | length }}"), PI_ETOOBIG, "too much memory");
}

/* Values that grow piece by piece use memory in proportion to their size. */
static void test_linear_memory(void **state)
{
    (void) state;
    static const char text[] = "{% set n = namespace(s='', q='') %}{% for i in range(50000) %}"
                               "{% set n.s = n.s + '0123456789' %}{% set n.q = n.q ~ i ~ ',' %}{% endfor %}"
                               "{{ n.s | length }} {{ n.q | length }}";
    result r = render_n(text, strlen(text), "{}", (size_t) 48 << 20, 1000);
    if (r.rc) fail_msg("%s", r.err.msg);
    assert_string_equal(r.out.p, "500000 288890");
    pi__free(r.out.p);
}

/* range() does not store its numbers. */
static void test_range_memory(void **state)
{
    (void) state;
    static const char text[] = "{% set n = namespace(k=0) %}{% for i in range(700) %}{% for j in range(i, -1, -1) %}"
                               "{% if i == j %}{% set n.k = n.k + 1 %}{% endif %}{% endfor %}{% endfor %}{{ n.k }}";
    result r = render_n(text, strlen(text), "{}", (size_t) 1 << 20, 1000);
    if (r.rc) fail_msg("%s", r.err.msg);
    assert_string_equal(r.out.p, "700");
    pi__free(r.out.p);
}

/* A long conversation stays far below every limit: a thousand messages, each compared with all earlier ones. */
static void test_long_conversation(void **state)
{
    (void) state;
    char *json = repeat("{\"m\": [{\"role\": \"a\"}", ", {\"role\": \"user\"}", 1000, "]}");
    expect("{% set n = namespace(k=0) %}{% for x in m %}{% for j in range(loop.index0 - 1, -1, -1) %}"
           "{% if m[j].role != 'user' %}{% set n.k = n.k + 1 %}{% endif %}{% endfor %}{% endfor %}{{ n.k }}",
           json, "1000");
    free(json);
}

/* ------------------------------------------------------------------------------------------------------------ JSON */

static void expect_json(const char *json, const char *want)
{
    char text[512];
    snprintf(text, sizeof text, "{\"v\": %s}", json);
    expect("{{ v | tojson }}", text, want);
}

static void expect_bad_json(const char *json, const char *msg)
{
    pi__zone zone;
    pi__val v;
    pi_error err = {0};
    pi__zone_init(&zone, 1 << 20);
    assert_int_equal(pi__json_read(&zone, json, strlen(json), "messages", &v, &err), PI_EINVAL);
    assert_string_equal(err.msg, msg);
    pi__zone_free(&zone);
}

static void test_json(void **state)
{
    (void) state;
    expect_json("[]", "[]");
    expect_json(" [ 1 , -2 , 3.50, 1e2, -0, -0.0, 1E-2, 9223372036854775807, 9223372036854775808 ] ",
                "[1, -2, 3.5, 100.0, 0, -0.0, 0.01, 9223372036854775807, 9.223372036854776e+18]");
    expect_json("0.1", "0.1");
    expect_json("123456789.123456789", "123456789.12345679");
    expect_json("2.2250738585072014e-308", "2.2250738585072014e-308");
    expect_json("1e999", "Infinity");
    expect_json("1e-999", "0.0");
    expect_json("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\ud83d\\ude00\"",
                "\"\\\"\\\\/\\b\\f\\n\\r\\tA\xC3\xA9\xF0\x9F\x98\x80\"");
    expect_json("\"\\ud800\"", "\"\xEF\xBF\xBD\""); /* half a surrogate pair */
    expect_json("\"\\udc00\\ud800\\u0041\\ud83d\\ud83d\\ude00\"",
                "\"\xEF\xBF\xBD\xEF\xBF\xBD" "A\xEF\xBF\xBD\xF0\x9F\x98\x80\"");
    expect("{{ v }}", "\xEF\xBB\xBF{\"v\": 1}", "1"); /* after a byte order mark */
    expect_json("{\"a\": null, \"\": {\"b\": [true, false]}, \"a\": 1}", "{\"a\": 1, \"\": {\"b\": [true, false]}}");
    expect_bad_json("", "messages: line 1, column 1: the text ends where a value is expected");
    expect_bad_json("[1,\n 2,]", "messages: line 2, column 4: not a value");
    expect_bad_json("[1 2]", "messages: line 1, column 4: expected , or ]");
    expect_bad_json("{\"a\" 1}", "messages: line 1, column 6: expected :");
    expect_bad_json("{a: 1}", "messages: line 1, column 2: expected a key in quotes");
    expect_bad_json("{\"a\": 1", "messages: line 1, column 8: expected , or }");
    expect_bad_json("\"\xC3\xA9\" x", "messages: line 1, column 5: something follows the value");
    expect_bad_json("\"a\nb\"", "messages: line 1, column 3: a control character in a string; write it as \\u00XX");
    expect_bad_json("\"abc", "messages: line 1, column 5: the string has no end");
    expect_bad_json("\"abc\\", "messages: line 1, column 6: the string has no end");
    expect_bad_json("\"\\x\"", "messages: line 1, column 3: this escape does not exist");
    expect_bad_json("\"\\u12g4\"", "messages: line 1, column 6: \\u needs four hexadecimal digits");
    expect_bad_json("\"\\ud800\\u004\"", "messages: line 1, column 13: \\u needs four hexadecimal digits");
    expect_bad_json("\"\xFF\"", "messages: line 1, column 2: not UTF-8");
    expect_bad_json("01", "messages: line 1, column 1: a number must not start with 0");
    expect_bad_json("1.", "messages: line 1, column 2: the number is incomplete");
    expect_bad_json("1e", "messages: line 1, column 2: the number is incomplete");
    expect_bad_json("-", "messages: line 1, column 1: not a value");
    expect_bad_json("NaN", "messages: line 1, column 1: not a value");
    expect_bad_json("tru", "messages: line 1, column 1: not a value");
    char *deep = repeat("", "[", 100000, "");
    expect_bad_json(deep, "messages: line 1, column 130: lists and objects are nested too deeply");
    free(deep);
}

/* An object with many keys is parsed in linear time, and its members are found. */
static void test_large_object(void **state)
{
    (void) state;
    enum { N = 100000 };
    char *json = malloc(N * 24 + 64), *to = json;
    assert_non_null(json);
    to += sprintf(to, "{\"v\": {");
    for (int i = 0; i < N; i++) to += sprintf(to, "%s\"key%d\": %d", i ? ", " : "", i, i);
    strcpy(to, "}}");
    expect("{{ v.key0 }} {{ v.key99999 }} {{ v.key100000 is defined }} {{ v | length }} {{ v.pop('key7') }} {{ v.key8 }}",
           json, "0 99999 False 100000 7 8");
    free(json);
}

/* ---------------------------------------------------------------------------------------------------------- memory */

static void test_out_of_memory(void **state)
{
    (void) state;
    static const char text[] =
        "{% macro m(a, b=1) %}{{ a ~ b }}{% endmacro %}{% set ns = namespace(x='') %}"
        "{% for k, v in d | dictsort if k != 'q' %}{% set ns.x = ns.x + m(k, b=v) %}{{ loop.index }}{% endfor %}"
        "{{ ns.x }}{{ d | tojson(indent=2) }}{{ 'a,b'.split(',') | map('upper') | join('-') }}{{ s[::-1] }}"
        "{{ '{} {}'.format(1, 'x') }}{{ s | indent(2, true) }}{{ [3, 1] | sort }}{{ '%s' % s }}"
        "{% filter upper %}y{% endfilter %}"
        "{{ '[1, {\"z\": \"\\\\n\"}]' | from_json }}{{ s.replace('l', 'xx') }}"
        "{{ d | items | list | length }}{{ [1, 1] | unique | list }}"
        "{% macro v(a) %}{{ a }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}{{ v(*[1, 2], **{'k': 3}) }}"
        "{% call v(1) %}c{% endcall %}{% for i in [1, 2] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i) }}{% endfor %}"
        "{{ '\xC3\x9F \xCE\x91\xCE\xA3' | upper | lower | title }}{{ ['\xE2\x80\xA8'] }}{{ ' 1_2' | int }}{{ 'x1.5' | int(0, 16) }}"
        "{{ '.5' | float }}{{ 2.675 | round(2) }}{{ ' a b c'.rsplit(none, 1) }}{{ 'a b'.splitlines(true) }}{{ 'q' is upper }}";
    static const char json[] = "{\"d\": {\"b\": 1.5, \"a\": \"\\u00e9\", \"q\": 0}, \"s\": \"hello\\n\"}";
    result whole = render(text, json);
    assert_int_equal(whole.rc, PI_OK);
    counting_alloc heap;
    long n = 0;
    for (int rc = PI_ENOMEM; rc; n++) {
        counting_use(&heap, n);
        result r = render(text, json);
        rc = r.rc;
        if (rc) {
            if (rc != PI_ENOMEM) fail_msg("allocation %ld: %s", n, r.err.msg);
            assert_int_equal(r.err.code, PI_ENOMEM);
            assert_non_null(strstr(r.err.msg, "memory"));
        } else {
            assert_string_equal(r.out.p, whole.out.p);
        }
        pi__free(r.out.p);
        assert_int_equal(heap.live, 0);
    }
    assert_true(n > 20);
    pi_set_allocator(NULL);
    pi__free(whole.out.p);
}

/* Any limit on memory or output gives an error that names the limit, or the full output. */
static void test_limits(void **state)
{
    (void) state;
    static const char text[] = "{% for i in range(40) %}{{ [i, i | string, {'a': i}] | tojson }}{% endfor %}";
    result whole = render(text, "{}");
    assert_int_equal(whole.rc, PI_OK);
    for (size_t limit = 0; limit < 60000; limit += 997) {
        result r = render_n(text, strlen(text), "{}", limit, limit);
        if (r.rc) assert_int_equal(r.rc, PI_ETOOBIG);
        else assert_string_equal(r.out.p, whole.out.p);
        pi__free(r.out.p);
    }
    pi__free(whole.out.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_jinja2),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_beyond_jinja2),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_linear_memory),
        cmocka_unit_test(test_range_memory),
        cmocka_unit_test(test_long_conversation),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_large_object),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
