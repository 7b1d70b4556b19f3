/* Work budgets: each exceeded limit ends the budget permanently. All work before a request runs obeys the budget:
 * JSON parsing, template rendering, tokenization, grammar compilation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/work.h"
#include "grammar/grammar.h"
#include "template/jinja.h"
#include "vocab_seed.h"

static pi__vocab *load(void (*fill)(seed *))
{
    static seed s;
    pi__vocab *v;
    pi_error err;
    fill(&s);
    if (seed_load(&s, &v, &err)) fail_msg("refused: %s", err.msg);
    return v;
}

static pi__work canceled(void)
{
    pi__work w;
    pi__work_init(&w, 0, 0, -1);
    pi__work_cancel(&w);
    return w;
}

static void no_budget_is_no_limit(void **state)
{
    (void) state;
    pi__work w;
    assert_true(pi__work_step(NULL, UINT64_MAX) && pi__work_take(NULL, SIZE_MAX));
    pi__work_give(NULL, 1);
    assert_int_equal(pi__work_code(NULL), PI_OK);
    pi__work_init(&w, 0, 0, -1);
    for (int i = 0; i < 100000; i++) assert_true(pi__work_step(&w, 1000));
    assert_true(pi__work_take(&w, SIZE_MAX / 2));
}

static void steps_end_where_they_should(void **state)
{
    (void) state;
    pi__work w;
    uint64_t n = 0;
    pi__work_init(&w, 100000, 0, -1);
    while (pi__work_step(&w, 1)) n++;
    assert_in_range(n, 100000 - PI__WORK_LOOK, 100000 + PI__WORK_LOOK);
    assert_int_equal(w.code, PI_ETOOBIG);
    assert_false(pi__work_step(&w, 0)); /* permanently */
    assert_false(pi__work_take(&w, 1));
    pi__work_init(&w, 100000, 0, -1);
    assert_false(pi__work_step(&w, 100001)); /* also in a single call */
}

static void time_and_cancel_end_it(void **state)
{
    (void) state;
    pi_error err;
    pi__work w;
    pi__work_init(&w, 0, 0, 0);
    assert_false(pi__work_step(&w, 1));
    assert_int_equal(pi__work_fail(&w, &err, "json-schema"), PI_ETIMEDOUT);
    assert_non_null(strstr(err.msg, "json-schema: "));
    pi__work_init(&w, 0, 0, 3600000);
    assert_true(pi__work_step(&w, 1));
    pi__work_cancel(&w);
    uint64_t n = 0;
    while (pi__work_step(&w, 1)) n++;
    assert_true(n < PI__WORK_LOOK);
    assert_int_equal(pi__work_fail(&w, &err, "regex"), PI_ECANCELED);
}

static void memory_ends_it(void **state)
{
    (void) state;
    pi_error err;
    pi__work w;
    pi__work_init(&w, 0, 1 << 20, -1);
    assert_true(pi__work_take(&w, 1 << 19));
    assert_true(pi__work_take(&w, 1 << 19));
    pi__work_give(&w, 1 << 19);
    assert_true(pi__work_take(&w, 1 << 19));
    assert_false(pi__work_take(&w, 1));
    assert_false(pi__work_step(&w, 1));
    assert_int_equal(pi__work_fail(&w, &err, "grammar"), PI_ETOOBIG);
    assert_non_null(strstr(err.msg, "1024 KiB"));
}

static void json_obeys(void **state)
{
    (void) state;
    enum { N = 100000 };
    static char text[2 * N + 2];
    pi__zone z;
    pi__val v;
    pi_error err;
    text[0] = '[';
    for (size_t i = 0; i < N; i++) memcpy(text + 1 + 2 * i, "1,", 2);
    text[2 * N] = ']';
    pi__work w = canceled();
    pi__zone_init(&z, (size_t) 64 << 20);
    z.work = &w;
    assert_int_equal(pi__json_read(&z, text, 2 * N + 1, "tools", &v, &err), PI_ECANCELED);
    pi__zone_free(&z);
    pi__work_init(&w, 0, 1 << 20, -1); /* a list of this length takes 2.4 MB */
    pi__zone_init(&z, (size_t) 64 << 20);
    z.work = &w;
    assert_int_equal(pi__json_read(&z, text, 2 * N + 1, "tools", &v, &err), PI_ETOOBIG);
    pi__zone_free(&z);
    assert_int_equal(w.bytes, 0); /* all returned */
}

static void templates_obey(void **state)
{
    (void) state;
    static const char loop[] =
        "{% for i in range(1000) %}{% for j in range(1000) %}{% set x = i + j %}{% endfor %}{% endfor %}";
    const pi__jinja_env env = {0};
    pi__work w;
    pi__zone z;
    pi__val vars;
    pi__jinja *t;
    pi_error err;
    pi__text out = {.limit = 1 << 20};
    pi__work_init(&w, 50000, 0, -1);
    assert_int_equal(pi__jinja_parse(&t, loop, sizeof loop - 1, &err), PI_OK);
    pi__zone_init(&z, (size_t) 64 << 20);
    z.work = &w;
    assert_true(pi__val_new_map(&z, &vars));
    assert_int_equal(pi__jinja_render(t, &z, vars.map, &env, &out, &err), PI_ETOOBIG);
    assert_non_null(strstr(err.msg, "too many steps"));
    pi__zone_free(&z);
    pi__jinja_free(t);
    pi__free(out.p);
}

/* Each kind of vocabulary, with a text of distinct characters and one of a single word. */
static void tokenizing_obeys(void **state)
{
    (void) state;
    enum { N = 200000 };
    static char text[N];
    static void (*const fill[])(seed *) = {seed_spm, seed_gpt2, seed_gemma4, seed_wpm, seed_ugm, seed_plamo2};
    for (size_t k = 0; k < sizeof fill / sizeof *fill; k++) {
        for (int spaces = 0; spaces < 2; spaces++) {
            pi__vocab *v = load(fill[k]);
            for (size_t i = 0; i < N; i++) text[i] = spaces && i % 4 == 3 ? ' ' : (char) ('a' + i % 7);
            pi__work w = canceled();
            pi__ids ids = {.work = &w};
            assert_int_equal(pi__tokenize(v, text, N, false, true, &ids), PI_ECANCELED);
            pi__work_init(&w, 0, N, -1);
            assert_int_equal(pi__tokenize(v, text, N, false, true, &ids), PI_ETOOBIG);
            pi__work_init(&w, 40000, 0, -1); /* reached on the way */
            assert_int_equal(pi__tokenize(v, text, N, false, true, &ids), PI_ETOOBIG);
            assert_int_equal(ids.n, 0);
            pi__work_init(&w, 0, 0, -1);
            assert_int_equal(pi__tokenize(v, text, N, false, true, &ids), PI_OK);
            assert_int_equal(w.bytes, 0);
            pi__free(ids.p);
            pi__vocab_free(v);
        }
    }
}

static void grammars_obey(void **state)
{
    (void) state;
    enum { N = 20000 };
    static char schema[16 * N];
    pi__vocab *v = load(seed_gpt2);
    pi__grammars *gs;
    pi__grammar *g;
    pi_error err;
    assert_int_equal(pi__grammars_create(&gs, v, pi__vocab_size(v), NULL, 0, &err), PI_OK);
    size_t n = (size_t) sprintf(schema, "{\"enum\": [0");
    for (int i = 0; i < N; i++) n += (size_t) sprintf(schema + n, ", \"v%d\"", i);
    strcpy(schema + n, "]}");
    pi__work w = canceled();
    const pi__grammar_parts parts = {.form = {PI__GRAMMAR_SCHEMA, schema, NULL, 0}};
    assert_int_equal(pi__grammar_get_within(gs, &parts, &w, &g, &err), PI_ECANCELED);
    pi__work_init(&w, 0, 100000, -1);
    int rc = pi__grammar_get_within(gs, &parts, &w, &g, &err);
    if (rc != PI_ETOOBIG) fail_msg("%d: %s", rc, rc ? err.msg : "compiled");
    assert_int_equal(w.bytes, 0);
    pi__grammars_free(gs);
    pi__vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_budget_is_no_limit), cmocka_unit_test(steps_end_where_they_should),
        cmocka_unit_test(time_and_cancel_end_it), cmocka_unit_test(memory_ends_it),
        cmocka_unit_test(json_obeys), cmocka_unit_test(templates_obey),
        cmocka_unit_test(tokenizing_obeys), cmocka_unit_test(grammars_obey),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
