/* Command line options: the library's and the tool's rows as one list, and validation of the tool's values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

static const char *const commands[] = {"bench",   "eval", "tokenize", "quantize", "inspect", "run",
                                       "chat",    "serve", "list",    "selftest"};

static bool row_of(const char *key, pi_option_info *out)
{
    for (size_t i = 0; options_at(i, out); i++)
        if (!strcmp(out->key, key)) return true;
    return false;
}

static void the_library_comes_first(void **state)
{
    (void) state;
    pi_option_info a, b = {.size = sizeof b};
    size_t n = 0;
    for (; !pi_options_describe(n, &b); n++) {
        assert_true(options_at(n, &a));
        assert_true(a.key == b.key && a.help == b.help && a.env == b.env && a.scope == b.scope);
        assert_int_not_equal(b.scope, PI_SCOPE_TOOL); /* rows with tool scope are not in the library's table */
    }
    size_t n_tool = 0;
    for (; options_at(n + n_tool, &a); n_tool++) assert_int_equal(a.scope, PI_SCOPE_TOOL);
    assert_true(n > 50 && n_tool > 50);
    assert_false(options_at(n + n_tool, &a));
    assert_false(options_at(SIZE_MAX, &a));
}

static void each_row_is_consistent(void **state)
{
    (void) state;
    pi_options *o = pi_options_new();
    pi_option_info a, b;
    for (size_t i = 0; options_at(i, &a); i++) {
        pi_error err = {0};
        assert_true(*a.key && *a.help && *a.section);
        if (a.scope == PI_SCOPE_TOOL) assert_true(*a.flags);
        if (!strcmp(a.type, "enum")) assert_non_null(strchr(a.range, '|'));
        if (a.scope == PI_SCOPE_TOOL && !strcmp(a.type, "int")) {
            int64_t v;
            const char *dots = strstr(a.range, "..");
            assert_true(dots && options_int(dots + 2, &v) && dots > a.range);
        }
        if (*a.def && options_check(o, &a, a.def, &err)) fail_msg("%s: %s", a.key, err.msg);
        for (size_t k = 0; k < i && options_at(k, &b); k++) assert_string_not_equal(a.key, b.key);
    }
    pi_options_free(o);
}

/* No two rows accept the same spelling on one command line; a subcommand's own rows override shared ones. */
static void spellings_are_unique(void **state)
{
    (void) state;
    pi_option_info a, b;
    for (size_t i = 0; options_at(i, &a); i++) {
        for (size_t k = 0; k < i && options_at(k, &b); k++) {
            bool separate = false;
            for (size_t s = 0; s < sizeof commands / sizeof *commands; s++)
                separate |= !strcmp(a.section, commands[s]) != !strcmp(b.section, commands[s]);
            for (const char *p = a.flags; *p && !separate;) {
                size_t len = strcspn(p, " ?="), step = strcspn(p, " ");
                for (const char *q = b.flags; *q;) {
                    size_t qlen = strcspn(q, " ?="), qstep = strcspn(q, " ");
                    if (len == qlen && !memcmp(p, q, len)) fail_msg("%.*s: %s and %s", (int) len, p, a.key, b.key);
                    q += qstep + (q[qstep] == ' ');
                }
                p += step + (p[step] == ' ');
            }
        }
    }
}

static void values_are_checked(void **state)
{
    (void) state;
    static const struct { const char *key, *value, *err;
    } cases[] = {
        {"copies", "8", NULL},
        {"copies", "4K", NULL},
        {"copies", "0", "copies: '0' is out of range (1..4096)"},
        {"copies", "5K", "out of range"},
        {"copies", "many", "copies: 'many' is not a whole number (1..4096)"},
        {"copies", "", "not a whole number"},
        {"copies", " 1", "not a whole number"},
        {"copies", "1.5", "whole number"},
        {"copies", "99999999999999999999", "whole number"},
        {"copies", "9999999999T", "whole number"},
        {"chunks", "-1", NULL},
        {"chunks", "-2", "out of range"},
        {"escape", "Yes", NULL},
        {"escape", "DISABLED", NULL},
        {"escape", "maybe", "escape: 'maybe' is neither true nor false"},
        {"output", "JSON", NULL},
        {"output", "xml", "output: 'xml' is not an allowed value (csv|json|jsonl|md|sql)"},
        {"output", "", "allowed value"},
        {"prompt", "anything", NULL},
        {"n-prompt", "1,2", NULL},
        {"flash-attn", "on", NULL},
        {"temp", "x", "temp: 'x' is not a number"},
        {"temp", "1", NULL},
    };
    pi_options *o = pi_options_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi_option_info row;
        pi_error err = {0};
        assert_true(row_of(cases[i].key, &row));
        int rc = options_check(o, &row, cases[i].value, &err);
        if (rc != (cases[i].err ? PI_EINVAL : PI_OK)) fail_msg("%s=%s: %d", cases[i].key, cases[i].value, rc);
        if (cases[i].err && !strstr(err.msg, cases[i].err)) fail_msg("%s, not %s", err.msg, cases[i].err);
    }
    pi_options_free(o);
}

static void numbers(void **state)
{
    (void) state;
    static const struct { const char *text; int64_t value; } good[] = {
        {"0", 0}, {"-7", -7}, {"+7", 7}, {"32k", 32000}, {"32K", 32768}, {"2kB", 2000}, {"2KB", 2000}, {"2KiB", 2048},
        {"1Mi", 1048576}, {"-1k", -1000}, {"9223372036854775807", INT64_MAX}};
    static const char *const bad[] = {"",    "-", "k", "1x", "1 ", "0x10", "1e3", "2kb", "1kib", "9223372036854775808",
                                      "1.5K"};
    int64_t v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(options_int(good[i].text, &v) && v == good[i].value);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (options_int(bad[i], &v)) fail_msg("'%s'", bad[i]);
}

static bool any(const void *ud, const pi_option_info *row) { return !ud && row; }

static bool of_section(const void *ud, const pi_option_info *row) { return !strcmp(row->section, ud); }

static void the_nearest_name(void **state)
{
    (void) state;
    char near[64];
    static const char *const cases[][2] = {
        {"ctx-sise", "--ctx-size"}, {"copeis", "--copies"}, {"n-pred", "--n-predict"}, {"flash-atn", "--flash-attn"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(options_nearest(cases[i][0], any, NULL, near));
        assert_string_equal(near, cases[i][1]);
    }
    assert_false(options_nearest("zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", any, NULL, near));
    assert_true(options_nearest("n-pormpt", of_section, "bench", near));
    assert_string_equal(near, "--n-prompt");
    assert_true(options_nearest("gnl", of_section, "model", near)); /* a short option if no long option is close */
    assert_string_equal(near, "-ngl");
    assert_false(options_nearest("n-pormpt", of_section, "quantize", near));
}

/* Each refused name occurs once and has a reason, and no row of the library accepts it. */
static void refused_names_are_unique(void **state)
{
    (void) state;
    char seen[16384] = " ";
    size_t n = 1;
    for (size_t i = 0; options_refused(i); i++) {
        const refused_option *r = options_refused(i);
        assert_true(*r->why && *r->flags == '-');
        for (const char *p = r->flags; *p;) {
            char word[64];
            size_t len = strcspn(p, " ");
            snprintf(word, sizeof word, " %.*s ", (int) len, p);
            if (p[0] != '-' || strstr(seen, word)) fail_msg("%s", word);
            assert_true(n + len + 1 < sizeof seen);
            n += (size_t) snprintf(seen + n, sizeof seen - n, "%.*s ", (int) len, p);
            p += len + (p[len] == ' ');
        }
    }
    assert_true(n > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_comes_first), cmocka_unit_test(each_row_is_consistent),
        cmocka_unit_test(spellings_are_unique),    cmocka_unit_test(values_are_checked),
        cmocka_unit_test(numbers),                 cmocka_unit_test(the_nearest_name),
        cmocka_unit_test(refused_names_are_unique),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
