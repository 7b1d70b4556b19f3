/* Parsing of answers with every possible cut of the text: thoughts, content, calls in each format, and text that only
 * resembles a call. check_answers.py covers formats of real templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "chat_forms.h"
#include "counting_alloc.h"
#include "template/answer_impl.h"
#include "template/chat_form.h"
#include "template/json_scan.h"
#include "vocab_seed.h"

static pi__vocab *bpe;

static int setup(void **state)
{
    (void) state;
    seed s;
    pi_error err = {0};
    seed_gpt2(&s);
    seed_tok(&s, "<tool_call>", PI__TOK_CONTROL, 0);
    return seed_load(&s, &bpe, &err);
}

static int teardown(void **state)
{
    (void) state;
    pi__vocab_free(bpe);
    return 0;
}

/* --------------------------------------------------------------------------------------------------------- harness */

typedef struct got { /* accumulated deltas */
    char content[4096], thoughts[1024];
    char args[8][1024];
    bool open[8], done[8];
    pi__json_scan scan[8];
} got;

static void add(char *to, size_t cap, const pi_chat_delta *d)
{
    assert_true(d->text_len > 0 && strlen(to) + d->text_len < cap);
    strncat(to, d->text, d->text_len);
}

static void take(pi__answer *a, got *g)
{
    pi_chat_delta d = {.size = sizeof d};
    int end;
    while (pi__answer_next(a, &d)) {
        assert_true(d.index < 8);
        switch (d.kind) {
        case PI_CHAT_CONTENT: add(g->content, sizeof g->content, &d); break;
        case PI_CHAT_REASONING: add(g->thoughts, sizeof g->thoughts, &d); break;
        case PI_CHAT_CALL:
            assert_true(!g->open[d.index] && *d.id && *d.name);
            g->open[d.index] = true;
            pi__json_scan_start(&g->scan[d.index]);
            break;
        case PI_CHAT_ARGUMENTS: /* always a prefix of a JSON value */
            assert_true(g->open[d.index] && !g->done[d.index]);
            add(g->args[d.index], sizeof g->args[0], &d);
            assert_int_equal(pi__json_scan_feed(&g->scan[d.index], d.text, d.text_len, &end), d.text_len);
            assert_true(end >= 0);
            break;
        case PI_CHAT_CALL_END: g->done[d.index] = true; break;
        default:
            assert_int_equal(d.kind, PI_CHAT_CALL_DROPPED);
            assert_true(g->open[d.index] && !g->done[d.index]);
            g->open[d.index] = false;
        }
    }
}

/* Formats "R:thoughts|C:content|name(arguments)|..." */
static void show(const pi__answer *a, const got *g, char *out, size_t cap)
{
    pi__str r = pi__answer_reasoning(a), c = pi__answer_content(a);
    pi_chat_call call = {.size = sizeof call};
    uint32_t n = 0;
    assert_int_equal(r.n, strlen(g->thoughts));
    assert_memory_equal(r.p, g->thoughts, r.n);
    assert_int_equal(c.n, strlen(g->content));
    assert_memory_equal(c.p, g->content, c.n);
    *out = 0;
    if (r.n) snprintf(out, cap, "R:%s|", g->thoughts);
    if (c.n) snprintf(out + strlen(out), cap - strlen(out), "C:%s|", g->content);
    for (; pi__answer_call(a, n, &call); n++) {
        assert_true(g->done[call.index]);
        assert_string_equal(g->args[call.index], call.arguments);
        assert_int_equal(strlen(call.arguments), call.arguments_len);
        snprintf(out + strlen(out), cap - strlen(out), "%s(%s)|", call.name, call.arguments);
    }
    assert_int_equal(pi__answer_calls(a), n);
    for (uint32_t i = 0; i < 8; i++) assert_true(!g->open[i] || g->done[i]);
    for (uint32_t i = 0, k = 0; i < 8; i++) assert_true(!g->done[i] || ++k <= n);
}

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}, \"hot\": {\"type\": \"boolean\"},"
    "\"maybe\": {\"type\": [\"string\", \"null\"]}, \"any\": {\"anyOf\": [{\"type\": \"number\"}, {\"type\": \"string\"}]},"
    "\"where\": {\"$ref\": \"#/$defs/place\"}, \"list\": {\"type\": \"array\"}, \"pick\": {\"enum\": [\"a\", \"b\"]},"
    "\"one\": {\"enum\": [1, 2]}, \"n\": {\"type\": \"string\", \"nullable\": true}},"
    "\"$defs\": {\"place\": {\"type\": \"object\"}}}}}, {\"name\": \"now\"}]";

typedef struct form {
    const char *template, *tools, *options;
} form;

static pi__chat *chat_of(const char *template)
{
    pi__chat *c;
    pi_error err = {0};
    if (pi__chat_new(&c, bpe, template, NULL, &err)) fail_msg("%s: %s", template, err.msg);
    return c;
}

/* Parses in pieces of up to 8 bytes, and cut in two at each position; takes deltas immediately or at the end. */
static void expect_form(form f, const char *text, const char *want)
{
    size_t len = strlen(text);
    pi__chat *c = chat_of(f.template);
    for (size_t cut = 0; cut <= len + 8; cut++) {
        got *g = calloc(1, sizeof *g);
        char all[8192];
        pi__answer *a;
        pi_error err = {0};
        if (pi__answer_new(&a, c, f.tools, f.options, 0, &err)) fail_msg("%s", err.msg);
        for (size_t at = 0, n; at < len; at += n) {
            n = cut > len ? cut - len : at < cut ? cut - at : len - at;
            if (n > len - at) n = len - at;
            assert_int_equal(pi__answer_feed(a, text + at, n), PI_OK);
            if (cut % 2) take(a, g);
        }
        assert_int_equal(pi__answer_end(a, false), PI_OK);
        take(a, g);
        show(a, g, all, sizeof all);
        if (strcmp(all, want) != 0) fail_msg("%s\n  cut %zu: %s\n  want: %s", text, cut, all, want);
        pi__answer_free(a);
        free(g);
    }
    pi__chat_free(c);
}

static void plain(const char *text, const char *want) { expect_form((form) {"{{ 1 }}", NULL, NULL}, text, want); }


static void expect(const char *template, const char *text, const char *want)
{
    expect_form((form) {template, tools, NULL}, text, want);
}

/* -------------------------------------------------------------------------------------------------------- thoughts */

static void test_thoughts(void **state)
{
    (void) state;
    plain("Hello.", "C:Hello.|");
    plain("", "");
    plain("\n Hello.\n", "C:\n Hello.\n|");
    plain("\n <think>\nHm.\n</think>\n\nHello.\n", "R:Hm.|C:Hello.\n|");
    plain("<think></think>Hello", "C:Hello|");
    plain("<|channel>thought\nHm<channel|>Hello", "R:Hm|C:Hello|");
    plain("A <|channel>thought\nHm<channel|>B", "R:Hm|C:AB|");
    plain("[THINK]a[/THINK]b", "R:a|C:b|");
    plain("<seed:think>a</seed:think>b", "R:a|C:b|");
    plain("<thinking>a</think>b</thinking>c", "R:a</think>b|C:c|");
    plain("<think>a < b </thin </think >x</think>c", "R:a < b </thin </think >x|C:c|");
    plain("<think>never ends </thi", "R:never ends </thi|");
    plain("<think>a<</think>b", "R:a<|C:b|");
    plain("A <think>tag</think> in an answer", "C:A <think>tag</think> in an answer|");
    plain("<thin", "C:<thin|");
    plain("\xEF\xBD\x9C \xF0\x9F\x98\x80 \xC3", "C:\xEF\xBD\x9C \xF0\x9F\x98\x80 \xEF\xBF\xBD|");
    /* The prompt ends inside or outside of thoughts. */
    static const char open[] = "{{ '<think>\n' if enable_thinking else '<think>\n\n</think>' }}";
    expect_form((form) {open, NULL, "{\"enable_thinking\": true}"}, "Hm.\n</think>\n\nYes", "R:Hm.|C:Yes|");
    /* after the thoughts */
    expect_form((form) {open, NULL, "{\"enable_thinking\": true, \"continue_final_message\": true}"}, "Hm.", "C:Hm.|");
    expect_form((form) {open, NULL, "{\"enable_thinking\": false}"}, "Yes </think>", "C:Yes </think>|");
    expect_form((form) {open, NULL, "{\"enable_thinking\": true, \"parse_reasoning\": false}"}, " Hm</think> Y",
                "C: Hm</think> Y|");
    expect_form((form) {"{{ 1 }}", NULL, "{\"parse_reasoning\": false}"}, "<think>a</think> b", "C:<think>a</think> b|");
}

/* ------------------------------------------------------------------------------------------------------------ JSON */

static void test_hermes(void **state)
{
    (void) state;
    expect(HERMES, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Z\xC3\xBCrich\", \"days\": 3}}\n</tool_call>",
           "get({\"city\": \"Z\xC3\xBCrich\", \"days\": 3})|");
    expect(HERMES, "I look.\n\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n"
                   "<tool_call>{\"name\":\"now\"}</tool_call>\n", "C:I look.|now({})|now({})|");
    expect(HERMES, "<think>x</think>\n\n<tool_call>{\"arguments\": {\"a\": [1, {}]}, \"name\": \"get\"}</tool_call> Done.",
           "R:x|C:Done.|get({\"a\": [1, {}]})|");
    expect(HERMES, "<tool_call>{\"name\":\"now\",\"arguments\":\"{\\\"a\\\": 1}\",\"id\":\"x\"}</tool_call>",
           "now({\"a\": 1})|");
    expect(HERMES, "<tool_call>{\"arguments\":null,\"name\":\"now\"}</tool_call>", "now({})|");
    /* the end of the text replaces the closing tag */
    expect(HERMES, "<tool_call>{\"name\":\"now\",\"arguments\":{}}", "now({})|");
    expect(HERMES, "<tool_call>\n<function=get>{\"city\": \"\\u00e9\"}</function></tool_call>", "get({\"city\": \"\\u00e9\"})|");
}

static void test_no_calls(void **state)
{
    (void) state;
    static const char *const texts[] = {
        "<tool_call>", "<tool_call>x</tool_call>", "<tool_call>{\"name\":\"none\",\"arguments\":{}}</tool_call>",
        "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":tru}}</tool_call>", "a <tool_call> b <tool_call>",
        "<tool_call>{\"name\":\"get\",\"arguments\":[1]}</tool_call>", "<tool_call>{\"name\":\"get\",\"name\":\"get\"}",
        "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":1", "\n <tool_call>\n{\"arguments\":{}}</tool_call>",
        "<tool_call>{\"name\":\"get\",\"arguments\":\"x\"}</tool_call>", "<tool_call>{}</tool_call>",
        "<tool_call>{\"name\":\"get\",\"arguments\":{}} and </tool_call>", "<tool_call>{\"name\":5}</tool_call>",
        " \n", "<tool_call",
        "<tool_call>{\"name\":\"get\",\"surprise\":1}</tool_call>", "<tool_call>{\"name\":\"get\",}</tool_call>",
        "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":01}}</tool_call>",
        "<function=get>{\"a\":1}</funktion>", "<function=get><parameter=a>1</function>", "<function=none></function>",
        "<tool_call>{\"name\":\"get\",\"arguments\":{\"a\":\"b\nc\"}}</tool_call>",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char want[512];
        snprintf(want, sizeof want, "C:%s|", texts[i]);
        expect(HERMES, texts[i], want);
        expect(QWEN, texts[i], want);
        expect_form((form) {HERMES, NULL, NULL}, texts[i], want);
        expect_form((form) {HERMES, tools, "{\"tool_choice\": \"none\"}"}, texts[i], want);
    }
    static const char good[] = "<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call>";
    expect_form((form) {HERMES, NULL, NULL}, good, "C:<tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call>|");
    expect("{{ 1 }}", good, "get({})|"); /* the generic format */
    /* A valid call after an invalid one, and before an invalid one. */
    expect(HERMES, "<tool_call>oh <tool_call>{\"name\":\"get\",\"arguments\":{}}</tool_call> <tool_call>{",
           "C:<tool_call>oh <tool_call>{|get({})|");
    /* A name that is too long fails at the same byte for every cut. */
    char text[2048], want[2048];
    snprintf(text, sizeof text, "<tool_call>{\"%0300d<tool_call>{\"name\":\"now\"}</tool_call>", 0);
    snprintf(want, sizeof want, "C:<tool_call>{\"%0300d|now({})|", 0);
    expect(HERMES, text, want);
    snprintf(text, sizeof text, "<function=%0300d<function=now></function>", 0);
    snprintf(want, sizeof want, "C:<function=%0300d|now({})|", 0);
    expect(QWEN, text, want);
}

/* ------------------------------------------------------------------------------------------------------------ tags */

static void test_qwen(void **state)
{
    (void) state;
    expect(QWEN, "Sure.\n\n<tool_call>\n<function=get>\n<parameter=city>\nZ\xC3\xBCrich \"x\"\n\n y<\n</parameter>\n"
                 "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
           "C:Sure.|get({\"city\": \"Z\xC3\xBCrich \\\"x\\\"\\n\\n y<\", \"days\": 3})|");
    expect(QWEN, "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
                 "</tool_call>\n", "now({})|now({})|");
    expect(QWEN, "<function=get><parameter=hot>True</parameter><parameter=list>[1, \"a\"]</parameter>"
                 "<parameter=where>{\"lat\": 1.5}</parameter></function>",
           "get({\"hot\": true, \"list\": [1, \"a\"], \"where\": {\"lat\": 1.5}})|");
    expect(QWEN, "<function=get><parameter=days>3.0</parameter><parameter=hot>maybe</parameter>"
                 "<parameter=maybe>null</parameter><parameter=n>None</parameter><parameter=any>5</parameter>"
                 "<parameter=pick>a</parameter><parameter=one>2</parameter><parameter=other>7</parameter></function>",
           "get({\"days\": 3.0, \"hot\": \"maybe\", \"maybe\": null, \"n\": null, \"any\": 5, \"pick\": \"a\", \"one\": 2, "
           "\"other\": \"7\"})|");
    expect(QWEN, "<function=get><parameter=maybe>\nx\n</parameter><parameter=any>five</parameter>"
                 "<parameter=city>\n</parameter></function> Then text.",
           "C: Then text.|get({\"maybe\": \"x\", \"any\": \"five\", \"city\": \"\"})|");
    expect(QWEN, "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>", "now({})|");
    expect(QWEN, "<tool_call><function=now></function><function=now></function></tool_call>", "now({})|now({})|");
    expect(QWEN, "<function=now></function>\n</tool", "C:\n</tool|now({})|");
    expect(FUNCTIONS, "<function=get>{\"city\": \"x\"}</function>", "get({\"city\": \"x\"})|");
    expect(GLM, "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>a\nb</arg_value>\n<arg_key>days</arg_key>\n"
                "<arg_value>2</arg_value>\n</tool_call><tool_call>now\n</tool_call>",
           "get({\"city\": \"a\\nb\", \"days\": 2})|now({})|");
}

static void test_deepseek(void **state)
{
    (void) state;
    expect(V4, "Hi\n\n<" D "tool_calls>\n<" D "invoke name=\"get\">\n<" D "parameter name=\"city\" string=\"true\">1 <2\n</"
               D "parameter>\n<" D "parameter name=\"days\" string=\"false\">4</" D "parameter>\n</" D "invoke>\n<" D
               "invoke name=\"now\">\n\n</" D "invoke>\n</" D "tool_calls>",
           "C:Hi|get({\"city\": \"1 <2\\n\", \"days\": 4})|now({})|");
    expect(V4, "<" D "tool_calls>\n<" D "invoke name=\"get\">\n<" D "parameter name=\"city\" string=\"false\">no</" D
               "parameter>\n</" D "invoke>\n</" D "tool_calls>",
           "C:<" D "tool_calls>\n<" D "invoke name=\"get\">\n<" D "parameter name=\"city\" string=\"false\">no</" D
           "parameter>\n</" D "invoke>\n</" D "tool_calls>|");
    expect(V4, "<\xEF\xBD\x9D <" D "tool", "C:<\xEF\xBD\x9D <" D "tool|");
}

static void test_deepseek_arguments(void **state)
{
    (void) state;
    expect(R1, "<think>\nHm\n</think>\n\nHi\n" CALLS CALL "function" SEP "get\n```json\n{\"city\": \"`\", \"days\": 3}\n```" CALL_END
               "\n" CALL "function" SEP "now\n```json\n{}\n```" CALL_END CALLS_END,
           "R:Hm|C:Hi|get({\"city\": \"`\", \"days\": 3})|now({})|");
    /* variant that Qwen and Llama learned from it */
    expect(R1, CALL "function" SEP "now\n```json\n{}\n```" CALL_END, "now({})|");
    expect(R1, CALLS CALL "function" SEP "now\n```json\n```" CALL_END CALLS_END " end", "C: end|now({})|");
    expect(V31, "Hi" CALLS CALL "get" SEP "{\"list\": [1]}" CALL_END CALL "now" SEP "{}" CALL_END CALLS_END,
           "C:Hi|get({\"list\": [1]})|now({})|");
    static const char *const texts[] = {
        CALLS, CALLS CALL "function" SEP "none\n```json\n{}\n```" CALL_END CALLS_END, CALLS CALL "tool" SEP "now\n",
        CALL "function" SEP "now\n```json\n[]\n```" CALL_END, CALL "function" SEP "get\n```json\n{\"city\": \"x\"}\n``" CALL_END,
        CALL "function" SEP "now\n```py\n{}\n```" CALL_END, "<\xEF\xBD\x9Ctool\xE2\x96\x81" "cal",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char want[256];
        snprintf(want, sizeof want, "C:%s|", texts[i]);
        expect(R1, texts[i], want);
    }
}

/* Kimi K2's ids contain the function names. */
static void test_kimi(void **state)
{
    (void) state;
    static const char two[] = "I look." KIMI_CALLS KIMI_CALL("functions.get:0") "{\"city\": \"a:1\", \"days\": 3}" KIMI_END
                              KIMI_CALL("functions.now:1") "{}" KIMI_END KIMI_CALLS_END;
    expect(KIMI, two, "C:I look.|get({\"city\": \"a:1\", \"days\": 3})|now({})|");
    expect(KIMI, KIMI_CALLS "\n" KIMI_CALL(" functions.now:12 ") "\n{}\n" KIMI_END "\n" KIMI_CALLS_END " end", "C: end|now({})|");
    expect(KIMI, KIMI_CALLS KIMI_CALL("now") "{}" KIMI_END KIMI_CALL("now:3") "{}" KIMI_END KIMI_CALLS_END, "now({})|now({})|");
    expect(KIMI, KIMI_CALL("functions.now:0") "{}" KIMI_END, "now({})|"); /* without the section */
    static const char *const texts[] = {
        KIMI_CALLS, KIMI_CALLS KIMI_CALL("functions.none:0") "{}" KIMI_END KIMI_CALLS_END, KIMI_CALLS KIMI_CALL("functions.:0") "{}",
        KIMI_CALLS KIMI_CALL("functions.now:") "{}" KIMI_END, KIMI_CALLS KIMI_CALL("functions.now:0") "[]" KIMI_END, "<|tool_call",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char want[256];
        snprintf(want, sizeof want, "C:%s|", texts[i]);
        expect(KIMI, texts[i], want);
    }
    pi__chat *c = chat_of(KIMI);
    pi__answer *a;
    pi_error err = {0};
    pi_chat_call call = {.size = sizeof call};
    assert_int_equal(pi__answer_new(&a, c, tools, NULL, 0, &err), PI_OK);
    assert_int_equal(pi__answer_feed(a, two, sizeof two - 1), PI_OK);
    assert_int_equal(pi__answer_end(a, false), PI_OK);
    assert_true(pi__answer_call(a, 0, &call));
    assert_string_equal(call.id, "functions.get:0");
    assert_true(pi__answer_call(a, 1, &call));
    assert_string_equal(call.id, "functions.now:1");
    pi__answer_free(a);
    pi__chat_free(c);
}

/* ----------------------------------------------------------------------------------------------------- other forms */

/* Messages with headers. */
static void test_harmony(void **state)
{
    (void) state;
#define HARMONY "{{ messages[0].content }}{{ tools or '' }} {# <|channel|> <|message|> #}<|start|>assistant"
#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL "<|channel|>final<|message|>"
#define START "<|start|>assistant"
#define TO "<|channel|>commentary to=functions."
#define JSON " <|constrain|>json<|message|>"
    expect(HARMONY, ANALYSIS "Hm, <b>.\n<|end|>" START FINAL "Hello < you.\n\nBye.<|return|>", "R:Hm, <b>.|C:Hello < you.\n\nBye.|");
    expect(HARMONY, ANALYSIS "A<|end|>" START TO "get" JSON "{\"city\": \"x\"}<|call|>", "R:A|get({\"city\": \"x\"})|");
    expect(HARMONY, ANALYSIS "A<|end|>" START TO "get" JSON "{\"city\": \"x\"}", "R:A|get({\"city\": \"x\"})|");
    expect(HARMONY, " to=functions.now<|channel|>commentary json<|message|>{}<|call|>\n", "now({})|");
    expect(HARMONY, "<|channel|>commentary<|message|>I look.<|end|>" START TO "now<|message|>{}<|end|>" START TO "now" JSON "{}",
           "C:I look.|now({})|now({})|");
    expect(HARMONY, "Plain.", "C:Plain.|");
    /* a built-in tool */
    expect(HARMONY, "<|channel|>commentary to=python<|message|>1 + 1 <|call|>" START FINAL "A", "C:A|");
    expect(HARMONY, ANALYSIS "no <|call|> or <|channel|>final here<|end|>" START FINAL "a <|end|> b",
           "R:no <|call|> or <|channel|>final here|C:a <|end|> b|");
    expect(HARMONY, "\n to=x y", "C:\n to=x y|");
    expect(HARMONY, ANALYSIS "never ends <|en", "R:never ends <|en|");
    expect(HARMONY, "A" START FINAL "B", "C:AB|");
    expect_form((form) {HARMONY, NULL, "{\"continue_final_message\": true}"}, "A\nB<|return|>", "C:A\nB|");
    expect_form((form) {HARMONY, NULL, NULL}, ANALYSIS "A<|end|>" START FINAL "B", "R:A|C:B|");
    expect_form((form) {HARMONY, NULL, "{\"parse_reasoning\": false}"}, ANALYSIS "A<|end|>" START FINAL "B",
                "C:" ANALYSIS "A<|end|>B|");
    static const char *const texts[] = { /* not calls: passed through unchanged */
        TO "none" JSON "{}<|call|>", TO "now" JSON "[]<|call|>", TO "get" JSON "{\"city\": 1", "<|channel|>fin", "<|start|>x",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char want[256];
        snprintf(want, sizeof want, "C:%s|", texts[i]);
        expect(HARMONY, texts[i], want);
    }
    expect_form((form) {HARMONY, NULL, NULL}, TO "now" JSON "{}<|call|>", "C:" TO "now" JSON "{}<|call|>|");
    char text[2048], want[2048];
    snprintf(text, sizeof text, "<|channel|>%0600d<|message|>" ANALYSIS "A", 0); /* too long for a header */
    snprintf(want, sizeof want, "R:A|C:<|channel|>%0600d<|message|>|", 0);
    expect(HARMONY, text, want);
}

#define Q "<|\"|>"

static void test_gemma(void **state)
{
    (void) state;
    expect(GEMMA, "<|channel>thought\nHm\n<channel|><|tool_call>call:get{city:" Q "a \"b\"\n" Q ",days:-1.5e3,hot:true,"
                  "list:[1," Q "x" Q ",[]],where:{lat:None," Q "l n" Q ":{}}}<tool_call|>",
           "R:Hm|get({\"city\": \"a \\\"b\\\"\\n\", \"days\": -1.5e3, \"hot\": true, \"list\": [1, \"x\", []], "
           "\"where\": {\"lat\": null, \"l n\": {}}})|");
    expect(GEMMA, "<|tool_call>call:now{}<tool_call|><|tool_call>call:now{}", "now({})|now({})|");
    expect(GEMMA, "ok <|tool_call>call:get{city:\"x\"}<tool_call|> end", "C:ok  end|get({\"city\": \"x\"})|");
    static const char *const texts[] = {
        "<|tool_call>call:get{city:Paris}<tool_call|>", "<|tool_call>call:none{}<tool_call|>", "<|tool_call>get{}",
        "<|tool_call>call:get{city:" Q "x}<tool_call|>", "<|tool_call>call:get{a:1,}<tool_call|>", "<|tool_call>call:get{",
        "<|tool_call>call:get{a:[1}]<tool_call|>", "<|tool_call>call:get{:1}<tool_call|>", "<|tool_call>call:get{a:1}x",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char want[256];
        snprintf(want, sizeof want, "C:%s|", texts[i]);
        expect(GEMMA, texts[i], want);
    }
}

static void test_mistral(void **state)
{
    (void) state;
    expect(LISTS, "[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"city\": \"x\"}}, {\"name\": \"now\", \"arguments\": {}}]",
           "get({\"city\": \"x\"})|now({})|");
    expect(LISTS, "Wait. [TOOL_CALLS]get[ARGS]{\"a\": \"[TOOL_CALLS]\"}[TOOL_CALLS]now[CALL_ID]abcDEF123[ARGS]{}",
           "C:Wait.|get({\"a\": \"[TOOL_CALLS]\"})|now({})|");
    expect(LISTS, "[TOOL_CALLS]now{} x", "C: x|now({})|");
    expect(LISTS, "[TOOL_CALLS] what [TOOL_CALLS]", "C:[TOOL_CALLS] what [TOOL_CALLS]|");
    expect(LISTS, "[TOOL_CALLS][{\"name\": \"now\"}, x", "C: x|now({})|");
    pi__chat *c = chat_of(LISTS);
    pi__answer *a;
    pi_error err;
    pi_chat_call call = {.size = sizeof call};
    assert_int_equal(pi__answer_new(&a, c, tools, NULL, 0, &err), PI_OK);
    pi__answer_feed(a, "[TOOL_CALLS]now[CALL_ID]abcDEF123[ARGS]{}[TOOL_CALLS]now[ARGS]{}", 64);
    assert_true(pi__answer_call(a, 0, &call));
    assert_string_equal(call.id, "abcDEF123");
    assert_true(pi__answer_call(a, 1, &call));
    assert_int_equal(strlen(call.id), 9);
    assert_false(pi__answer_call(a, 2, &call));
    pi__answer_free(a);
    pi__chat_free(c);
}

static void test_llama(void **state)
{
    (void) state;
    expect(LLAMA, "{\"name\": \"get\", \"parameters\": {\"city\": \"x\"}}", "get({\"city\": \"x\"})|");
    expect(LLAMA, "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}", "now({})|");
    expect(LLAMA, "<|python_tag|>get.call(city=\"x\", days=2)", "get({\"city\": \"x\", \"days\": 2})|");
    expect(LLAMA, "<|python_tag|>now.call()", "now({})|");
    expect(LLAMA, "<|python_tag|>print(1)", "C:<|python_tag|>print(1)|");
    expect(LLAMA, "{\"city\": \"x\"}", "C:{\"city\": \"x\"}|");
    expect(LLAMA, " {\"name\": \"none\"}", "C: {\"name\": \"none\"}|");
    expect(LLAMA, "See {\"name\": \"now\"}", "C:See {\"name\": \"now\"}|");
    expect(LLAMA, "{\"name\": \"now\"}\n{\"name\": \"now\"} x", "C: x|now({})|now({})|");
}

/* Lists of calls in Python syntax. */
static void test_python(void **state)
{
    (void) state;
    expect(LLAMA4, "[get(city='a \\'b\\' \"c\"', days=3, hot=True, where={'lat': None}, list=['x, y)', 2]), now()]",
           "get({\"city\": \"a 'b' \\\"c\\\"\", \"days\": 3, \"hot\": true, \"where\": {\"lat\": null}, "
           "\"list\": [\"x, y)\", 2]})|now({})|");
    expect(LLAMA4, "<|python_start|>[now()]<|python_end|>", "now({})|");
    expect(LLAMA4, "[1, 2]", "C:[1, 2]|");
    expect(LLAMA4, "[none()]", "C:[none()]|");
    expect(LLAMA4, "[get(city=oops)]", "C:[get(city=oops)]|");
    expect(LFM2, "Wait.\n<|tool_call_start|>[now(), get(city=\"x\")]<|tool_call_end|> ok", "C:Wait. ok|now({})|get({\"city\": \"x\"})|");
    expect(LFM2, "[now()]", "C:[now()]|");
}

/* Lists of calls between tags. */
static void test_tagged_lists(void **state)
{
    (void) state;
    expect(NEMOTRON, "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\"}]</TOOLCALL>", "now({})|now({})|");
    /* Apertus: the name is the key; calls may be inside of thoughts */
    expect(APERTUS, "Hi<|tools_prefix|>[{\"get\": {\"city\": \"x\"}}, {\"now\": {}}]<|tools_suffix|>",
           "C:Hi|get({\"city\": \"x\"})|now({})|");
    expect(APERTUS, "<|inner_prefix|>Hm.<|tools_prefix|>[{\"now\": {}}]<|tools_suffix|>", "R:Hm.|now({})|");
    expect(APERTUS, "<|inner_prefix|>Hm.<|inner_suffix|>It is 7.", "R:Hm.|C:It is 7.|");
    expect(APERTUS, "<|tools_prefix|>[{\"now\": {}, \"get\": {}}]<|tools_suffix|>",
           "C:<|tools_prefix|>[{\"now\": {}, \"get\": {}}]<|tools_suffix|>|");
    expect(HY3,
           "<think:opensource>Hm.</think:opensource>Hi<tool_calls:opensource>\n"
           "<tool_call:opensource>get<tool_sep:opensource>\n" HY3_KEY("city") "\n" HY3_VALUE("x") "\n"
           "</tool_call:opensource>\n<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n"
           "</tool_calls:opensource>",
           "R:Hm.|C:Hi|get({\"city\": \"x\"})|now({})|");
    expect(R7B, "<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get\", "
                "\"parameters\": {\"city\": \"x\"}}\n]<|END_ACTION|>", "R:Hm|get({\"city\": \"x\"})|");
    expect(R7B, "<|START_RESPONSE|>Hello <b>.<|END_RESPONSE|>", "C:Hello <b>.|");
}

#define OPEN(tag) "<|open|>" tag "<|sep|>"
#define CLOSE(tag) "<|close|>" tag "<|sep|>"

static void test_kimi_k3(void **state)
{
    (void) state;
    expect(K3, OPEN("think") "Hm" CLOSE("think") OPEN("response") "I look." CLOSE("response") OPEN("tools")
           OPEN("call tool=\"get\" index=\"1\"") OPEN("argument key=\"city\" type=\"string\"") "a" CLOSE("argument") " b"
           CLOSE("argument") OPEN("argument key=\"days\" type=\"number\"") "3" CLOSE("argument") CLOSE("call")
           OPEN("call tool=\"now\" index=\"2\"") CLOSE("call") CLOSE("tools") CLOSE("message"),
           "R:Hm|C:I look.|get({\"city\": \"a<|close|>argument<|sep|> b\", \"days\": 3})|now({})|");
    expect(K3, OPEN("response") "Hello" CLOSE("response") CLOSE("message"), "C:Hello|");
}

/* Closing tags that are text, and closing tags that the model omits. */
static void test_loose_tags(void **state)
{
    (void) state;
    expect(QWEN, "<tool_call>\n<function=get>\n<parameter=city>\n</parameter> and </function> x\n</parameter>\n</function>\n</tool_call>",
           "get({\"city\": \"</parameter> and </function> x\"})|");
    expect(QWEN, "<tool_call>\n<function=get>\n<parameter=city>\na\n<parameter=days>\n3\n</function>\n</tool_call>",
           "get({\"city\": \"a\", \"days\": 3})|");
    expect(GLM, "<tool_call>get<arg_key>city</arg_key><arg_value>a</tool_call> b</arg_value>"
                "<arg_key>days</arg_key><arg_value>3</tool_call>",
           "get({\"city\": \"a</tool_call> b\", \"days\": 3})|");
    expect(V41, "<" D " calls>\n<" D " invoke name=\"now\"/>\n<" D " invoke name=\"get\">\n"
                "<" D " parameter name=\"city\" string=\"true\">x</" D " parameter>\n</" D " invoke>\n</" D " calls>",
           "now({})|get({\"city\": \"x\"})|");
    expect(KIMI, KIMI_CALLS " noise " KIMI_CALL("functions.now:0") "{}" KIMI_END KIMI_CALLS_END, "now({})|");
    expect(KIMI, "A " KIMI_CALLS KIMI_CALLS_END, "C:A |");
}

/* A call inside thoughts counts only if the thoughts never end. */
static void test_unclosed_thoughts(void **state)
{
    (void) state;
    expect(HERMES, "<think>Hm\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>", "R:Hm|now({})|");
    expect(HERMES, "<think>Hm\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n</think>Hi",
           "R:Hm\n<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>|C:Hi|");
    expect(HERMES, "<think>Hm\n<tool_call>{\"name\":\"no", "R:Hm\n<tool_call>{\"name\":\"no|");
}

/* An answer truncated at any byte: complete calls are kept, and no markup becomes content. */
static void test_cut(void **state)
{
    (void) state;
    static const struct { const char *template, *text, *content; size_t first; } cases[] = {
        {HERMES, "Hi\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"x\"}}\n</tool_call>", "Hi", 2},
        {GENERIC, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "", 0},
        {QWEN, "Hi<tool_call>\n<function=get>\n<parameter=city>\nx y\n</parameter>\n</function>\n</tool_call>", "Hi", 2},
        {GEMMA, "Hi<|tool_call>call:get{city:<|\"|>x<|\"|>}<tool_call|>", "Hi", 2},
        {LFM2, "Hi<|tool_call_start|>[get(city='x y')]<|tool_call_end|>", "Hi", 2},
        {NEMOTRON, "Hi<TOOLCALL>[{\"name\": \"get\", \"arguments\": {\"city\": \"x\"}}]</TOOLCALL>", "Hi", 2},
        {K3, "Hi" CLOSE("response") OPEN("tools") OPEN("call tool=\"get\" index=\"1\"") OPEN("argument key=\"city\" type=\"string\"")
             "x" CLOSE("argument") CLOSE("call") CLOSE("tools"), "Hi", 2},
        {HARMONY, FINAL "Hi<|end|>" START TO "now" JSON "{}", "Hi", sizeof FINAL + 1},
        {V31, "Hi" CALLS CALL "get" SEP "{\"city\": \"x\"}" CALL_END CALLS_END, "Hi", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi__chat *c = chat_of(cases[i].template);
        uint32_t calls = 0;
        for (size_t n = cases[i].first; n <= strlen(cases[i].text); n++) {
            pi__answer *a;
            pi_error err = {0};
            assert_int_equal(pi__answer_new(&a, c, tools, NULL, 0, &err), PI_OK);
            assert_int_equal(pi__answer_feed(a, cases[i].text, n), PI_OK);
            assert_int_equal(pi__answer_end(a, true), PI_OK);
            const pi__str content = pi__answer_trim(pi__answer_content(a));
            if (content.n != strlen(cases[i].content) || memcmp(content.p, cases[i].content, content.n) != 0)
                fail_msg("%.*s: content %.*s", (int) n, cases[i].text, (int) content.n, content.p);
            assert_true(pi__answer_calls(a) >= calls);
            calls = pi__answer_calls(a);
            pi__answer_free(a);
        }
        if (calls != 1) fail_msg("%s: %u calls", cases[i].text, calls);
        pi__chat_free(c);
    }
}

/* ----------------------------------------------------------------------------------------------------------- other */

static void test_tokens(void **state)
{
    (void) state;
    static const char text[] = "\xC3\xA9<tool_call>{\"name\":\"now\"}</tool_call><|im_end|>";
    pi__chat *c = chat_of(HERMES);
    pi__answer *a;
    pi_error err;
    pi__ids ids = {0};
    got g = {0};
    char all[256];
    assert_int_equal(pi__tokenize(bpe, text, sizeof text - 1, false, true, &ids), PI_OK);
    assert_int_equal(pi__answer_new(&a, c, tools, NULL, 0, &err), PI_OK);
    for (size_t i = 0; i < ids.n; i++) assert_int_equal(pi__answer_tokens(a, ids.p + i, 1), PI_OK);
    assert_int_equal(pi__answer_end(a, false), PI_OK);
    take(a, &g);
    show(a, &g, all, sizeof all);
    assert_string_equal(all, "C:\xC3\xA9|now({})|");
    pi__free(ids.p);
    pi__answer_free(a);
    pi__chat_free(c);
}

/* A bound call that a token limit cuts shows the same arguments if its deltas are read while it grows, or after the
 * end. */
static void a_cut_bound_call_is_independent_of_reading(void **state)
{
    (void) state;
    static const char text[] = "<tool_call>{\"name\": \"now\", \"arguments\": {\"city\": \"Pari";
    pi__chat *c = chat_of(HERMES);
    for (int after = 0; after < 2; after++) {
        pi__answer *a;
        pi_error err;
        pi_chat_delta d = {.size = sizeof d};
        char args[64] = "";
        int n_calls = 0, n_dropped = 0;
        assert_int_equal(pi__answer_new(&a, c, tools, NULL, 0, &err), PI_OK);
        assert_int_equal(pi__answer_feed(a, text, sizeof text - 1), PI_OK);
        pi__answer_bind(a);
        for (int pass = after; pass < 2; pass++) { /* pass 0 reads before the end */
            if (pass) assert_int_equal(pi__answer_end(a, true), PI_OK);
            while (pi__answer_next(a, &d)) {
                if (d.kind == PI_CHAT_ARGUMENTS) strncat(args, d.text, d.text_len);
                n_calls += d.kind == PI_CHAT_CALL && d.sure;
                n_dropped += d.kind == PI_CHAT_CALL_DROPPED;
            }
        }
        assert_string_equal(args, "{\"city\": \"Pari");
        assert_int_equal(n_calls, 1);
        assert_int_equal(n_dropped, 1);
        pi__answer_free(a);
    }
    pi__chat_free(c);
}

static void test_refused(void **state)
{
    (void) state;
    static const char *const bad[][2] = {
        {"{", NULL}, {"[{}", NULL}, {NULL, "["}, {NULL, "[]"}, {NULL, "{\"parse_reasoning\": 1}"},
        {tools, "{\"tool_choice\": \"maybe\"}"}, {NULL, "{\"tool_choice\": \"required\"}"}, {"5", NULL},
    };
    pi__chat *c = chat_of(HERMES);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pi__answer *a;
        pi_error err = {0};
        assert_int_equal(pi__answer_new(&a, c, bad[i][0], bad[i][1], 0, &err), PI_EINVAL);
        assert_true(err.msg[0] && !a);
    }
    pi__chat_free(c);
}

/* Worst cases for a parser that rescans its input, fed byte by byte. */
static void test_long(void **state)
{
    (void) state;
    static const char *const pieces[] = {"\n", "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":\"", "<", "<|channel>thought"};
    pi__chat *c = chat_of(HERMES);
    for (size_t k = 0; k < 4; k++) {
        pi__answer *a;
        pi_error err;
        size_t len = strlen(pieces[k]), n = 0;
        assert_int_equal(pi__answer_new(&a, c, tools, NULL, 0, &err), PI_OK);
        for (; n < 1 << 15; n += len)
            for (size_t i = 0; i < len; i++) assert_int_equal(pi__answer_feed(a, pieces[k] + i, 1), PI_OK);
        assert_int_equal(pi__answer_end(a, false), PI_OK);
        if (k < 3) assert_int_equal(pi__answer_content(a).n, n);
        pi__answer_free(a);
    }
    pi__chat_free(c);
}

static void test_out_of_memory(void **state)
{
    (void) state;
    static const char text[] = "<think>a</think>b<tool_call><function=get><parameter=days>1</parameter></function></tool_call>"
                               "<function=get><parameter=days>2</parameter> x";
    pi__chat *c = chat_of(QWEN);
    counting_alloc heap;
    long n = 0;
    for (int rc = PI_ENOMEM; rc; n++) {
        counting_use(&heap, n);
        pi__answer *a = NULL;
        pi_error err = {0};
        rc = pi__answer_new(&a, c, tools, "{\"tool_choice\": \"auto\"}", 0, &err);
        assert_int_equal(err.code, rc);
        if (!rc) rc = pi__answer_feed(a, text, sizeof text - 1);
        if (!rc) rc = pi__answer_end(a, false);
        if (rc && rc != PI_ENOMEM) fail_msg("allocation %ld: %d", n, rc);
        if (!rc) assert_int_equal(pi__answer_calls(a), 1);
        pi__answer_free(a);
        assert_int_equal(heap.live, 0);
    }
    assert_true(n > 15);
    pi_set_allocator(NULL);
    pi__chat_free(c);
}

static void test_scan(void **state)
{
    (void) state;
    static const struct {
        const char *json;
        int end;
        size_t n;
    } cases[] = {
        {"{}", 1, 2}, {"[1, -2.5e+3, {\"a\": null}] x", 1, 25}, {"\"\\u00e9\\n\"", 1, 10}, {"12 ", 1, 2}, {"-", 0, 1},
        {"01", -1, 1}, {"1.}", -1, 2}, {"tru ", -1, 3}, {"{\"a\"}", -1, 4}, {"[1,]", -1, 3}, {"{\"a\":1,}", -1, 7},
        {"[}", -1, 1}, {"\"\n", -1, 1}, {"\"\\x", -1, 2}, {"nul", 0, 3}, {"x", -1, 0}, {"[1 2]", -1, 3}, {"1e5,", 1, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi__json_scan s;
        int end;
        pi__json_scan_start(&s);
        size_t n = pi__json_scan_feed(&s, cases[i].json, strlen(cases[i].json), &end);
        if (n != cases[i].n || end != cases[i].end) fail_msg("%s: %zu, %d", cases[i].json, n, end);
    }
}

int main(void)
{
    const struct CMUnitTest tests_[] = {
        cmocka_unit_test(test_scan), cmocka_unit_test(test_thoughts), cmocka_unit_test(test_hermes),
        cmocka_unit_test(test_no_calls), cmocka_unit_test(test_qwen), cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_deepseek_arguments), cmocka_unit_test(test_gemma), cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_llama), cmocka_unit_test(test_python), cmocka_unit_test(test_tagged_lists),
        cmocka_unit_test(test_kimi_k3), cmocka_unit_test(test_loose_tags), cmocka_unit_test(test_unclosed_thoughts),
        cmocka_unit_test(test_cut), cmocka_unit_test(test_kimi), cmocka_unit_test(test_harmony), cmocka_unit_test(test_tokens),
        cmocka_unit_test(a_cut_bound_call_is_independent_of_reading), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_long), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests_, setup, teardown);
}
