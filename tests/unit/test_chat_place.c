/* Positions of messages in templates of many styles: instructions, turns, calls and results; ids; and a message that a
 * template omits. check_conversations.py covers templates of real models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "counting_alloc.h"
#include "template/chat_impl.h"
#include "vocab_seed.h"

static pi__vocab *vocab;

static int setup(void **state)
{
    (void) state;
    seed s;
    pi_error err = {0};
    seed_gpt2(&s);
    return seed_load(&s, &vocab, &err);
}

static int teardown(void **state)
{
    (void) state;
    pi__vocab_free(vocab);
    return 0;
}

static const struct { char letter; const char *json;
} messages_of[] = {
    {'s', "{\"role\": \"system\", \"content\": \"S%d\"}"},
    {'d', "{\"role\": \"developer\", \"content\": \"D%d\"}"},
    {'u', "{\"role\": \"user\", \"content\": \"U%d\"}"},
    {'a', "{\"role\": \"assistant\", \"content\": \"A%d\"}"},
    {'e', "{\"role\": \"assistant\", \"content\": null}"},
    {'c', "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", "
          "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}]}"},
    {'C', "{\"role\": \"assistant\", \"content\": \"A%d\", \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", "
          "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}]}"},
    {'D',
     "{\"role\": \"assistant\", \"content\": \"A%d\", \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", "
     "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}, {\"id\": \"c2\", \"type\": \"function\", "
     "\"function\": {\"name\": \"g\", \"arguments\": \"{}\"}}]}"},
    {'t', "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": \"R%d\"}"},
    {'T', "{\"role\": \"tool\", \"tool_call_id\": \"c2\", \"content\": \"R%d\"}"},
    {'n', "{\"role\": \"tool\", \"content\": \"R%d\"}"},
};

/* `spec`: one letter per message, numbered from 0. */
static int render(const char *text, const char *spec, pi__text *out, pi_error *err)
{
    char json[4096] = "[", *at = json + 1;
    pi__chat *c;
    for (int i = 0; spec[i]; i++) {
        if (i) *at++ = ',';
        for (size_t k = 0; k < sizeof messages_of / sizeof *messages_of; k++)
            if (messages_of[k].letter == spec[i]) at += sprintf(at, messages_of[k].json, i);
    }
    strcpy(at, "]");
    int rc = pi__chat_new(&c, vocab, text, NULL, err);
    if (!rc) rc = pi__chat_render(c, json, NULL, "{\"add_generation_prompt\": false}", 0, out, err);
    pi__chat_free(c);
    return rc;
}

static void expect(const char *text, const char *spec, const char *want)
{
    pi__text out = {0};
    pi_error err = {0};
    if (render(text, spec, &out, &err)) fail_msg("%s: %s", spec, err.msg);
    pi__text_add(&out, "", 1);
    if (strcmp(out.p, want) != 0) fail_msg("%s: %s, not %s", spec, out.p, want);
    pi__free(out.p);
}

static void refuse(const char *text, const char *spec, const char *msg)
{
    pi__text out = {0};
    pi_error err = {0};
    assert_int_not_equal(render(text, spec, &out, &err), PI_OK);
    assert_string_equal(err.msg, msg);
    assert_int_equal(out.n, 0);
    pi__free(out.p);
}

#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define SHOW "[{{ m.role[0] }}:{{ m.content }}]"
#define CALLS "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments | tojson }}){% endfor %}"

/* ---------------------------------------------------------------------------------------------------- instructions */

static void test_first_only(void **state)
{
    (void) state;
    static const char drops[] = EACH("{% if loop.first or m.role != 'system' %}" SHOW "{% endif %}");
    static const char raises[] = EACH(
        "{% if m.role == 'system' and not loop.first %}{{ raise_exception('begin') }}{% endif %}"
        "{% if m.role == 'developer' %}{{ raise_exception('who') }}{% endif %}" SHOW);
    const char *const both[] = {drops, raises};
    for (int i = 0; i < 2; i++) {
        expect(both[i], "su", "[s:S0][u:U1]");
        expect(both[i], "du", "[s:D0][u:U1]");
        expect(both[i], "ssu", "[s:S0\n\nS1][u:U2]");
        expect(both[i], "dsdu", "[s:D0\n\nS1\n\nD2][u:U3]");
        expect(both[i], "susu", "[s:S0][u:U1][u:S2\n\nU3]");
        expect(both[i], "usa", "[u:U0\n\nS1][a:A2]");
        expect(both[i], "uasdu", "[u:U0][a:A1][u:S2\n\nD3\n\nU4]");
        expect(both[i], "uad", "[u:U0][a:A1][u:D2]");
    }
}

static void test_developer(void **state)
{
    (void) state;
    static const char own[] = EACH("{% if m.role == 'developer' %}<{{ m.content }}>{% else %}" SHOW "{% endif %}");
    static const char first[] = EACH("{% if loop.first and m.role == 'developer' %}<{{ m.content }}>{% else %}" SHOW
                                     "{% endif %}");
    static const char hoists[] = EACH("{% if m.role == 'system' %}{{ m.content }};{% endif %}")
        EACH("{% if m.role != 'system' %}" SHOW "{% endif %}");
    expect(own, "sdud", "[s:S0]<D1>[u:U2]<D3>");
    expect(first, "dud", "<D0>[u:U1][s:D2]");
    expect(first, "sdu", "[s:S0][s:D1][u:U2]");
    expect(hoists, "usudu", "S1;D3;[u:U0][u:U2][u:U4]");
}

/* ----------------------------------------------------------------------------------------------------------- turns */

#define STRICT                                                                                                         \
    "{% set ns = namespace(i=0) %}"                                                                                    \
    EACH("{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"                                    \
         "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"                                   \
         "{% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"                 \
         "{% set ns.i = ns.i + 1 %}{% endif %}" SHOW CALLS)

static void test_turns(void **state)
{
    (void) state;
    expect(STRICT, "uau", "[u:U0][a:A1][u:U2]");
    expect(STRICT, "uuaau", "[u:U0\n\nU1][a:A2\n\nA3][u:U4]");
    expect(STRICT, "au", "[u:][a:A0][u:U1]");
    expect(STRICT, "sau", "[u:S0][a:A1][u:U2]");
    expect(STRICT, "ssu", "[u:S0\n\nS1\n\nU2]");
    expect(STRICT, "s", "[u:S0]");
    expect(STRICT, "ucta", "[u:U0][a:](f {\"a\": 1})[t:R2][a:A3]");
    expect(STRICT, "uctu", "[u:U0][a:](f {\"a\": 1})[t:R2][a:][u:U3]");
    expect(STRICT, "uctsu", "[u:U0][a:](f {\"a\": 1})[t:R2][a:][u:S3\n\nU4]");
    expect(STRICT, "cta", "[u:][a:](f {\"a\": 1})[t:R1][a:A2]");
}

/* Adds a user message if the template needs one; an answer that must not be empty gets text. */
static void test_filled(void **state)
{
    (void) state;
    static const char user[] =
        "{% if 'user' not in messages | map(attribute='role') | list %}{{ raise_exception('no user') }}"
        "{% endif %}" EACH(SHOW);
    expect(user, "s", "[s:S0][u:]");
    expect(user, "sa", "[s:S0][u:][a:A1]");
    expect(user, "au", "[a:A0][u:U1]");
    expect(EACH("{% if not m.content %}{{ raise_exception('empty') }}{% endif %}" SHOW), "ueu", "[u:U0][a: ][u:U2]");
}

/* ----------------------------------------------------------------------------------------------------------- calls */

static void test_calls(void **state)
{
    (void) state;
    static const char lone[] = EACH(
        "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}" CALLS
        "{% else %}" SHOW "{% endif %}");
    expect(lone, "uCta", "[u:U0][a:A1](f {\"a\": 1})[t:R2][a:A3]");
    expect(lone, "uDtTa", "[u:U0][a:A1](f {\"a\": 1})[t:R2](g {})[t:R3][a:A4]");
    expect(lone, "uDTta", "[u:U0][a:A1](f {\"a\": 1})[t:R3](g {})[t:R2][a:A4]");
    expect(lone, "uDnna", "[u:U0][a:A1](f {\"a\": 1})[t:R2](g {})[t:R3][a:A4]");
    static const char named[] = EACH(
        SHOW "{% for c in m.tool_calls or [] %}({{ c.id }} {{ c.function.arguments | tojson }}){% endfor %}"
             "{% if m.role == 'tool' %}{{ m.tool_call_id }}{% endif %}");
    expect(named, "uDTt",
           "[u:U0][a:A1](functions.f:0 {\"a\": 1})(functions.g:1 {})[t:R2]functions.g:1[t:R3]functions.f:0");
    static const char nine[] = EACH(
        "{% if m.role == 'tool' and m.tool_call_id | length != 9 %}{{ raise_exception('nine') }}{% endif %}" SHOW CALLS
        "{% if m.role == 'tool' %}{{ m.name }}={{ m.tool_call_id }}{% endif %}");
    expect(nine, "uctn", "[u:U0][a:](f {\"a\": 1})[t:R2]f=call00001[t:R3]f=call00001");
    static const char called[] = EACH("{% if m.role == 'tool' and not messages[loop.index0 - 1].tool_calls %}"
                                      "{{ raise_exception('no call') }}{% endif %}" SHOW CALLS);
    expect(called, "utu", "[u:U0][u:R1][u:U2]");
    expect(called, "uctu", "[u:U0][a:](f {\"a\": 1})[t:R2][u:U3]");
}

/* ----------------------------------------------------------------------------------------------------------- check */

/* The second rendering detects the omission; the first one uses probes that are shorter than the conversation. */
static void test_left_out(void **state)
{
    (void) state;
    static const char window[] = EACH("{% if loop.revindex <= 8 %}" SHOW CALLS "{% endif %}");
    expect(window, "uauauauu", "[u:U0][a:A1][u:U2][a:A3][u:U4][a:A5][u:U6][u:U7]");
    refuse(window, "uauauauaua",
           "messages[0]: the model's chat template does not show the text of a message with the role "
           "'user'; send it in another role");
    refuse(
        EACH("{% if loop.index < 9 %}" SHOW CALLS "{% endif %}"), "uauauauacta",
        "messages[8]: the model's chat template does not show the tool calls of a message with the role 'assistant'; "
        "send it in another role");
    refuse(
        EACH("{% if m.role != 'narrator' %}{% if loop.index0 == 9 %}{{ raise_exception('Too long.') }}{% endif %}" SHOW
             "{% endif %}"),
        "uauauauauau", "chat template: Too long.");
    expect(EACH("{{ m.content | upper }}"), "uu", "U0U1"); /* the probes learn nothing about this template */
}

/* A template with endless loops counts as one without positions; loading it takes a bounded number of steps. */
static void test_hostile(void **state)
{
    (void) state;
    static const char endless[] = "{% for i in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}"
                                  EACH(SHOW);
    pi__chat *c;
    pi_error err = {0};
    assert_int_equal(pi__chat_new(&c, vocab, endless, NULL, &err), PI_OK);
    assert_false(c->roles.user);
    assert_false(c->typed_content);
    pi__chat_free(c);
}

static void test_out_of_memory(void **state)
{
    (void) state;
    static const char want[] = "[u:S0\n\nD1][a:A2][u:U3][a:A4](f {\"a\": 1})(g {})[t:R5]";
    counting_alloc heap;
    long n = 0;
    for (int rc = PI_ENOMEM; rc; n++) {
        counting_use(&heap, n);
        pi__text out = {0};
        pi_error err = {0};
        rc = render(STRICT, "sdauDntss", &out, &err);
        if (rc && rc != PI_ENOMEM) fail_msg("allocation %ld: %s", n, err.msg);
        assert_int_equal(err.code, rc);
        if (!rc) assert_memory_equal(out.p, want, sizeof want - 1);
        pi__free(out.p);
        assert_int_equal(heap.live, 0);
    }
    assert_true(n > 20);
    pi_set_allocator(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_only), cmocka_unit_test(test_developer), cmocka_unit_test(test_turns),
        cmocka_unit_test(test_filled), cmocka_unit_test(test_calls), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
