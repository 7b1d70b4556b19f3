/* Grammars of tool calls accept each format's calls, reject malformed and schema-violating calls, and agree with the
 * answer parser. Random texts that a grammar generates are calls to the parser. */
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
#include "grammar/grammar.h"
#include "rounds.h"
#include "template/answer.h"
#include "template/chat_impl.h"
#include "vocab_seed.h"

#define MISTRAL "{{ messages[0].content }}{{ tools or '' }} {# [TOOL_CALLS] [ARGS] #}"
#define HARMONY "{{ messages[0].content }}{{ tools or '' }} {# <|channel|> <|message|> #}"
#define TO "<|channel|>commentary to=functions."
#define THINKS "{{ messages[0].content }}{{ tools or '' }} {# <tool_call> #}<think>"

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}, \"pick\": {\"enum\": [\"a\", \"b\"]},"
    "\"where\": {\"$ref\": \"#/$defs/place\"}}, \"required\": [\"city\"],"
    "\"$defs\": {\"place\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"boolean\"}}}}}}}, {\"name\": \"now\"}]";

static pi__vocab *vocab;
static pi__grammars *grammars;

static int setup(void **state)
{
    (void) state;
    static const char *const control[] = {"<tool_call>", "</tool_call>", "<|tool_call>", "<tool_call|>", "[TOOL_CALLS]",
                                          "[ARGS]", "<|python_tag|>", D};
    seed s;
    pi_error err = {0};
    seed_gpt2(&s);
    for (size_t i = 0; i < sizeof control / sizeof *control; i++) seed_tok(&s, control[i], PI__TOK_CONTROL, 0);
    seed_tok(&s, "<|\"|>", PI__TOK_USER, 0);
    int rc = seed_load(&s, &vocab, &err);
    return rc ? rc : pi__grammars_create(&grammars, vocab, pi__vocab_size(vocab), NULL, 0, &err);
}

static int teardown(void **state)
{
    (void) state;
    pi__grammars_free(grammars);
    pi__vocab_free(vocab);
    return 0;
}

static pi__chat *chat_of(const char *template)
{
    pi__chat *c;
    pi_error err = {0};
    if (pi__chat_new(&c, vocab, template, NULL, &err)) fail_msg("%s: %s", template, err.msg);
    return c;
}

/* Returns a matcher for the grammar of template and options. With `trigger`, matches the text after the trigger, and
 * *trigger receives the JSON list of triggers ("" = no trigger). trigger NULL = match the complete answer. */
static pi__matcher *matcher_of(const char *template, const char *options, char *trigger, size_t cap)
{
    pi__chat *c = chat_of(template);
    pi__call_form f;
    pi__grammar *compiled = NULL;
    pi__matcher *m = NULL;
    pi_error err = {0};
    pi__str prompt = pi__str_of(strstr(template, "<think>") ? "x<think>\n" : "x");
    if (pi__chat_grammar(c, tools, options, prompt, &f, &err)) fail_msg("%s", err.msg);
    assert_true(f.grammar.n > 0);
    if (trigger) snprintf(trigger, cap, "%s", f.trigger.p ? f.trigger.p : "");
    const pi__grammar_parts parts = {
        .form = {PI__GRAMMAR_GBNF, f.grammar.p, trigger ? NULL : f.trigger.p, trigger ? 0 : f.thoughts},
        .lead = f.trigger.p ? NULL : f.lead.p, .start = f.trigger.p ? "behind" : NULL};
    if (pi__grammar_get_within(grammars, &parts, NULL, &compiled, &err)) fail_msg("%s\n%s", err.msg, f.grammar.p);
    assert_int_equal(pi__matcher_create(&m, compiled, &err), PI_OK);
    pi__grammar_release(compiled);
    pi__call_form_free(&f);
    pi__chat_free(c);
    return m;
}

/* Returns the number of the text's tokens that the grammar accepts; *n = all tokens, *over = the answer may end
 * there. */
static size_t taken(pi__matcher *m, const char *text, size_t *n, bool *over)
{
    pi__ids ids = {0};
    pi__mask mask;
    pi_error err;
    size_t i = 0;
    assert_int_equal(pi__tokenize(vocab, text, strlen(text), false, true, &ids), PI_OK);
    for (; i < ids.n && !pi__matcher_accept(m, ids.p[i], &err); i++) {}
    *n = ids.n;
    *over = i == ids.n && (pi__matcher_is_over(m) || (!pi__matcher_mask(m, true, &mask, &err) &&
            (!mask.n || pi__mask_has(&mask, pi__vocab_eos(vocab)))));
    pi__free(ids.p);
    return i;
}

static uint32_t parsed(const char *template, const char *before, const char *text)
{
    pi__chat *c = chat_of(template);
    pi__answer *a;
    pi_error err;
    assert_int_equal(pi__answer_new(&a, c, tools, NULL, 0, &err), PI_OK);
    pi__answer_feed(a, before, strlen(before));
    pi__answer_feed(a, text, strlen(text));
    pi__answer_end(a, false);
    uint32_t n = pi__answer_content(a).n ? 0 : pi__answer_calls(a);
    pi__answer_free(a);
    pi__chat_free(c);
    return n;
}

#define REQUIRED "{\"tool_choice\": \"required\"}"

static void good(const char *template, const char *options, const char *text)
{
    char trigger[128];
    size_t n;
    bool over;
    pi__matcher *m = matcher_of(template, options, trigger, sizeof trigger);
    size_t k = taken(m, text, &n, &over);
    if (k < n || !over) fail_msg("%s: %zu of %zu tokens, %s", text, k, n, over ? "over" : "not over");
    pi__matcher_free(m);
    if (!parsed(template, "", text)) fail_msg("%s: no call to the parser", text);
}

static void bad(const char *template, const char *options, const char *text)
{
    char trigger[128];
    size_t n;
    bool over;
    pi__matcher *m = matcher_of(template, options, trigger, sizeof trigger);
    if (taken(m, text, &n, &over) == n && over) fail_msg("%s: taken", text);
    pi__matcher_free(m);
}

static void test_required(void **state)
{
    (void) state;
    good(HERMES, REQUIRED, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\":\"x</tool>\"}}\n</tool_call>");
    good(HERMES, REQUIRED, "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n<tool_call>\n{\"name\": \"now\", "
                           "\"arguments\": {}}\n</tool_call>");
    good(QWEN, REQUIRED, "<tool_call>\n<function=get>\n<parameter=city>\nZ </p < <</parame\n</parameter>\n<parameter=days>\n3\n"
                         "</parameter>\n</function>\n</tool_call>");
    good(QWEN, REQUIRED, "<tool_call>\n<function=get>\n<parameter=city>\nx\n</parameter>\n<parameter=pick>\na\n</parameter>\n"
                         "<parameter=where>\n{\"x\":true}\n</parameter>\n</function>\n</tool_call>");
    good(QWEN, REQUIRED, "<tool_call>\n<function=now>\n</function>\n</tool_call>");
    good(FUNCTIONS, REQUIRED, "<function=get>{\"city\":\"x\"}</function>");
    good(GLM, REQUIRED, "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>a\nb</arg_value>\n</tool_call>");
    good(V4, REQUIRED, "\n\n<" D "tool_calls>\n<" D "invoke name=\"get\">\n<" D "parameter name=\"city\" string=\"true\">1 <2</"
                       D "parameter>\n<" D "parameter name=\"days\" string=\"false\">4</" D "parameter>\n</" D "invoke>\n<" D
                       "invoke name=\"now\">\n\n</" D "invoke>\n</" D "tool_calls>");
    good(R1, REQUIRED, CALLS CALL "function" SEP "get\n```json\n{\"city\":\"`x\"}\n```" CALL_END "\n" CALL "function" SEP
                       "now\n```json\n{}\n```" CALL_END CALLS_END);
    good(V31, REQUIRED, CALLS CALL "get" SEP "{\"city\":\"x\"}" CALL_END CALL "now" SEP "{}" CALL_END CALLS_END);
    good(KIMI, REQUIRED, KIMI_CALLS KIMI_CALL("functions.get:0") "{\"city\":\"x\"}" KIMI_END KIMI_CALL("functions.now:1") "{}" KIMI_END
                         KIMI_CALLS_END);
    good(GEMMA, REQUIRED, "<|tool_call>call:get{city:<|\"|>a \"b\" <<|\"|>,pick:<|\"|>b<|\"|>,where:{x:true}}<tool_call|>");
    good(GEMMA, REQUIRED, "<|tool_call>call:get{city:<|\"|>a<|\"|>,days:-2}<tool_call|><|tool_call>call:now{}<tool_call|>");
    good(MISTRAL, REQUIRED, "[TOOL_CALLS]get[ARGS]{\"city\":\"x\"}[TOOL_CALLS]now[ARGS]{}");
    good(LISTS, REQUIRED, "[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"city\":\"x\"}}, {\"name\": \"now\", "
                          "\"arguments\": {}}]");
    good(LLAMA, REQUIRED, "{\"name\": \"get\", \"parameters\": {\"city\":\"x\"}}");
    good(HARMONY, REQUIRED, TO "get <|constrain|>json<|message|>{\"city\":\"x\"}");
    good(HARMONY, REQUIRED, "<|channel|>analysis<|message|>Hm, <|end.\n<|end|><|start|>assistant" TO "now<|message|>{}");
}

static void test_refused(void **state)
{
    (void) state;
    static const char one[] = "{\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"now\"}}}";
    static const char single[] = "{\"tool_choice\": \"required\", \"parallel_tool_calls\": false}";
    bad(HERMES, REQUIRED, "Hello");
    bad(HERMES, REQUIRED, "<tool_call>\n{\"name\": \"none\", \"arguments\": {}}\n</tool_call>");
    bad(HERMES, REQUIRED, "<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>"); /* city is required */
    bad(HERMES, one, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\":\"x\"}}\n</tool_call>");
    good(HERMES, one, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
    bad(HERMES, single, "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"now\", "
                        "\"arguments\": {}}</tool_call>");
    bad(QWEN, REQUIRED, "<tool_call>\n<function=get>\n</function>\n</tool_call>");
    bad(QWEN, REQUIRED, "<tool_call>\n<function=get>\n<parameter=city>\na</parameter>b\n</parameter>\n</function>\n</tool_call>");
    bad(QWEN, REQUIRED, "<tool_call>\n<function=get>\n<parameter=city>\na\n</parameter>\n<parameter=days>\nx\n</parameter>\n"
                        "</function>\n</tool_call>");
    bad(QWEN, REQUIRED, "<tool_call>\n<function=get>\n<parameter=city>\na\n</parameter>\n<parameter=pick>\nc\n</parameter>\n"
                        "</function>\n</tool_call>");
    bad(R1, REQUIRED, CALLS CALL "function" SEP "get\n```json\n{}\n```" CALL_END CALLS_END);
    bad(R1, REQUIRED, CALL "function" SEP "now\n```json\n{}\n```" CALL_END);
    bad(KIMI, REQUIRED, KIMI_CALLS KIMI_CALL("functions.get") "{\"city\":\"x\"}" KIMI_END KIMI_CALLS_END);
    bad(HARMONY, REQUIRED, "<|channel|>final<|message|>Hello");
    bad(HARMONY, REQUIRED, TO "get<|message|>{}");
    bad(HARMONY, one, TO "get<|message|>{\"city\":\"x\"}");
    bad(KIMI, one, KIMI_CALLS KIMI_CALL("functions.get:0") "{\"city\":\"x\"}" KIMI_END KIMI_CALLS_END);
    bad(V31, single, CALLS CALL "now" SEP "{}" CALL_END CALL "now" SEP "{}" CALL_END CALLS_END);
    bad(GEMMA, REQUIRED, "<|tool_call>call:get{days:1}<tool_call|>");
    bad(GEMMA, REQUIRED, "<|tool_call>call:get{city:<|\"|>a<|\"|>,}<tool_call|>");
    bad(LISTS, single, "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]");
}

/* After a trigger, the grammar covers the text after the opening tag of a call. */
static void test_triggers(void **state)
{
    (void) state;
    static const struct {
        const char *template, *options, *trigger, *before, *text;
    } cases[] = {
        {HERMES, NULL, "[\"<tool_call>\"]", "<tool_call>", "\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
        {FUNCTIONS, "{}", "[\"<function=\"]", "<function=", "now>{}</function>"},
        {GEMMA, "{\"tool_choice\": \"auto\"}", "[\"<|tool_call>\"]", "<|tool_call>", "call:now{}<tool_call|>"},
        {V31, NULL, "[\"" CALLS "\"]", CALLS, CALL "now" SEP "{}" CALL_END CALLS_END},
        {KIMI, NULL, "[\"" KIMI_CALLS "\"]", KIMI_CALLS, KIMI_CALL("functions.now:0") "{}" KIMI_END KIMI_CALLS_END},
        {HARMONY, NULL, "[\"" TO "\"]", TO, "now <|constrain|>json<|message|>{}"},
        {MISTRAL, NULL, "[\"[TOOL_CALLS]\"]", "[TOOL_CALLS]", "now[ARGS]{}"},
        {LLAMA, NULL, "[\"<|python_tag|>\"]", "<|python_tag|>", "{\"name\": \"now\", \"parameters\": {}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char trigger[128];
        size_t n;
        bool over;
        pi__matcher *m = matcher_of(cases[i].template, cases[i].options, trigger, sizeof trigger);
        assert_string_equal(trigger, cases[i].trigger);
        size_t k = taken(m, cases[i].text, &n, &over);
        if (k < n || !over) fail_msg("%s: %zu of %zu tokens", cases[i].text, k, n);
        pi__matcher_free(m);
        if (!parsed(cases[i].template, cases[i].before, cases[i].text)) fail_msg("%s: no call", cases[i].text);
    }
}

/* A required call comes after thoughts that the prompt opened; the thoughts alone are not a complete answer. */
static void test_open_thoughts(void **state)
{
    (void) state;
    static const char whole[] = "Hm.\n</thin </think>\n\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    for (size_t cut = 0; cut < sizeof whole; cut += 4) {
        char text[sizeof whole], trigger[128];
        size_t n;
        bool over;
        pi__matcher *m = matcher_of(THINKS, REQUIRED, trigger, sizeof trigger);
        assert_string_equal(trigger, "");
        snprintf(text, sizeof text, "%.*s", (int) (sizeof whole - 1 - cut), whole);
        const size_t k = taken(m, text, &n, &over);
        if ((!cut && k < n) || over != !cut) fail_msg("%s: %zu of %zu tokens, over: %d", text, k, n, over);
        pi__matcher_free(m);
    }
    if (!parsed(THINKS, "", whole)) fail_msg("%s: no call", whole);
}

static void test_none(void **state)
{
    (void) state;
    static const struct {
        const char *template, *tools, *options;
        int rc;
    } cases[] = {
        {HERMES, NULL, NULL, PI_OK}, {HERMES, tools, "{\"tool_choice\": \"none\"}", PI_OK},
        {HERMES, NULL, REQUIRED, PI_EINVAL}, {HERMES, "[", NULL, PI_EINVAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi__chat *c = chat_of(cases[i].template);
        pi__call_form f;
        pi_error err = {0};
        assert_int_equal(pi__chat_grammar(c, cases[i].tools, cases[i].options, pi__str_of("x"), &f, &err), cases[i].rc);
        assert_int_equal(f.grammar.n + f.trigger.n, 0);
        assert_true(!cases[i].rc || err.msg[0]);
        pi__chat_free(c);
    }
}

/* Random texts generated under the mask, up to an allowed end, contain at least one call for the parser. */
static void test_random(void **state)
{
    (void) state;
    static const char *const templates[] = {HERMES, QWEN, GLM, V4, GEMMA, MISTRAL, LISTS, LLAMA, R1, V31, KIMI, HARMONY,
                                            V41, K3, LFM2, LLAMA4, R7B, NEMOTRON, GENERIC};
    enum { N = sizeof templates / sizeof *templates };
    uint64_t rng = 7;
    for (size_t k = 0; k < N * 6; k++) {
        char trigger[128], text[4096] = "";
        size_t n = 0;
        pi__matcher *m = matcher_of(templates[k % N], REQUIRED, trigger, sizeof trigger);
        for (int step = 0; step < 3000 && n + 32 < sizeof text && !pi__matcher_is_over(m); step++) {
            pi__mask mask;
            pi_error err;
            assert_int_equal(pi__matcher_mask(m, true, &mask, &err), PI_OK);
            if (!mask.n) break;
            int32_t id, tries = 0, size = pi__vocab_size(vocab);
            do {
                rng = rng * 6364136223846793005u + 1442695040888963407u;
                id = (int32_t) ((rng >> 33) % (uint64_t) size);
                if (step > 200 && tries == 0) id = pi__vocab_eos(vocab); /* an end, if allowed */
                if (step > 200 && tries == 1) id = '<'; /* the start of most tags; byte tokens come first, in order */
                if (step > 200 && tries > 1 && tries < 90) id = "\"}]/,>\n"[tries % 7];
            } while (!pi__mask_has(&mask, id) && tries++ < 100000);
            if (pi__vocab_is_eog(vocab, id)) break;
            assert_int_equal(pi__matcher_accept(m, id, &err), PI_OK);
            n += pi__token_bytes(vocab, id, true, text + n, sizeof text - n);
        }
        bool over = pi__matcher_is_over(m);
        pi__mask mask;
        pi_error err;
        if (!over && !pi__matcher_mask(m, true, &mask, &err)) over = !mask.n || pi__mask_has(&mask, pi__vocab_eos(vocab));
        text[n < sizeof text ? n : sizeof text - 1] = 0;
        if (over && strlen(text) == n && !parsed(templates[k % N], "", text)) fail_msg("%s: %s", templates[k % N], text);
        pi__matcher_free(m);
    }
}

/* ---- optional calls */

/* A generated answer: the matcher that constrains it and the parser that reads it. */
typedef struct answer {
    pi__matcher *m;
    pi__chat *c;
    pi__answer *a;
    /* calls that began; committed calls among them; committed calls that were dropped */
    uint32_t n_begun, n_sure, n_dropped;
    size_t n_args;                       /* argument pieces of committed calls */
    bool bound;
} answer;

static void answer_begin(answer *x, const char *template, const char *options)
{
    pi_error err;
    *x = (answer) {.m = matcher_of(template, options, NULL, 0), .c = chat_of(template)};
    assert_int_equal(pi__answer_new(&x->a, x->c, tools, options, 0, &err), PI_OK);
}

static void answer_free(answer *x)
{
    pi__answer_free(x->a);
    pi__chat_free(x->c);
    pi__matcher_free(x->m);
}

static void take_deltas(answer *x)
{
    pi_chat_delta d = {.size = sizeof d};
    while (pi__answer_next(x->a, &d)) {
        x->n_begun += d.kind == PI_CHAT_CALL;
        x->n_sure += d.kind == PI_CHAT_CALL && d.sure;
        x->n_args += d.kind == PI_CHAT_ARGUMENTS && d.sure;
        x->n_dropped += d.kind == PI_CHAT_CALL_DROPPED && d.sure;
    }
}

/* Accepts a token in the engine's order: the parser is bound only if the matcher was bound before the token. */
static bool answer_token(answer *x, int32_t id)
{
    char text[64];
    const bool bound = pi__matcher_is_bound(x->m);
    pi_error err;
    if (pi__matcher_accept(x->m, id, &err)) return false;
    assert_int_equal(pi__answer_feed(x->a, text, pi__token_bytes(vocab, id, true, text, sizeof text)), PI_OK);
    if (bound) pi__answer_bind(x->a);
    x->bound = pi__matcher_is_bound(x->m);
    take_deltas(x);
    return true;
}

/* Returns false if the grammar does not allow the text. */
static bool answer_text(answer *x, const char *text)
{
    pi__ids ids = {0};
    bool ok = true;
    assert_int_equal(pi__tokenize(vocab, text, strlen(text), false, true, &ids), PI_OK);
    for (size_t i = 0; i < ids.n && ok; i++) ok = answer_token(x, ids.p[i]);
    pi__free(ids.p);
    return ok;
}

/* Triggers take effect only outside of thoughts, at the positions where the answer parser finds a call. */
static void test_thoughts(void **state)
{
    (void) state;
    static const char call[] = "\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", bad[] = "\nno call";
    static const struct {
        const char *template, *options, *free, *trigger, *rest;
    } cases[] = {
        {HERMES, NULL, "<think>I might <tool_call> no</think>So ", "<tool_call>", call},
        {HERMES, NULL, " \n<think>\n<tool_call></think", "></think><tool_call>", call},
        {HERMES, NULL, " \n<thinking>\n<tool_call></think></thinking>", "<tool_call>", call},
        {HERMES, NULL, "<think <think>", "<tool_call>", call}, /* a text in progress does not start a thought */
        {HERMES, NULL, "<<<", "<tool_call>", call},
        {HERMES, NULL, "a<think>", "<tool_call>", call},
        {HERMES, NULL, "", "<tool_call>", call},
        {HERMES, NULL, " \n", "<tool_call>", call},
        {HERMES, "{\"parse_reasoning\": false}", "<think>", "<tool_call>", call},
        {THINKS, NULL, "hm <tool_call> </thin </think> ", "<tool_call>", call},
        {GEMMA, NULL, "a <|channel>thought\n<|tool_call><channel|> b<|channel>thought<channel|>", "<|tool_call>",
         "call:now{}<tool_call|>"},
        {FUNCTIONS, NULL, "<think><function=now></think><tool_call>", "<function=", "now>{}</function>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        answer x;
        answer_begin(&x, cases[i].template, cases[i].options);
        if (!answer_text(&x, cases[i].free) || x.bound) fail_msg("%s: not free", cases[i].free);
        if (!answer_text(&x, cases[i].trigger) || !x.bound) fail_msg("%s: not bound", cases[i].free);
        if (!answer_text(&x, cases[i].rest)) fail_msg("%s%s: refused", cases[i].free, cases[i].rest);
        assert_int_equal(pi__answer_end(x.a, false), PI_OK);
        take_deltas(&x);
        if (pi__answer_calls(x.a) != 1 || x.n_sure != 1 || x.n_dropped) fail_msg("%s: no sure call", cases[i].free);
        answer_free(&x);
        answer_begin(&x, cases[i].template, cases[i].options);
        assert_true(answer_text(&x, cases[i].free) && answer_text(&x, cases[i].trigger) && !answer_text(&x, bad));
        answer_free(&x);
    }
}

/* Returns a token of the mask, preferably a closing one if `closing`; -1 = the answer is over. */
static int32_t over_or(const pi__mask *mask, bool closing, uint64_t random)
{
    static const char closers[] = "\"}]<>/\n,0";
    const int32_t n = pi__vocab_size(vocab), from = (int32_t) ((random >> 33) % (uint64_t) n);
    if (!mask->n || (closing && pi__mask_has(mask, pi__vocab_eos(vocab)))) return -1;
    for (size_t i = 0; closing && i < sizeof closers - 1; i++) {
        const char c = closers[(i + (size_t) from) % (sizeof closers - 1)];
        const int32_t id = pi__vocab_find(vocab, &c, 1);
        if (id >= 0 && pi__mask_has(mask, id)) return id;
    }
    for (int32_t i = 0; i < n; i++)
        if (pi__mask_has(mask, (from + i) % n) && !pi__vocab_is_eog(vocab, (from + i) % n)) return (from + i) % n;
    return -1;
}

/* Random answers of words that open and close thoughts and calls. A committed call is complete wherever the answer may
 * end, and arguments only grow. */
static void test_sure(void **state)
{
    (void) state;
    static const char *const templates[] = {HERMES, QWEN, GLM, V4, GEMMA, MISTRAL, LISTS, LLAMA, FUNCTIONS, THINKS};
    static const char *const words[] = {
        "<tool_call>", "</tool_call>", "<think>", "</think>", "<|tool_call>", "<|channel>thought", "<channel|>",
        "[TOOL_CALLS]", "<|python_tag|>", "<function=", "<" D "tool_calls>", " ", "\n", "a", "<", "<t", "{", "now",
    };
    uint64_t rng = 11;
    uint32_t n_sure = 0;
    size_t n_args = 0;
    const size_t n = 10 * (size_t) rounds(20);
    for (size_t k = 0; k < n; k++) {
        answer x;
        bool over = false;
        answer_begin(&x, templates[k % 10], NULL);
        for (int step = 0; step < 600 && !over; step++) {
            pi__mask mask;
            pi_error err;
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            if (!x.bound && step < 40) {
                (void) answer_text(&x, words[(rng >> 33) % (sizeof words / sizeof *words)]);
                continue;
            }
            assert_int_equal(pi__matcher_mask(x.m, true, &mask, &err), PI_OK);
            const int32_t id = over_or(&mask, step > 100, rng);
            over = id < 0;
            if (!over) assert_true(answer_token(&x, id));
        }
        assert_int_equal(pi__answer_end(x.a, false), PI_OK);
        take_deltas(&x);
        if (over && x.n_dropped) fail_msg("%s, round %zu: a sure call was none", templates[k % 10], k);
        n_sure += x.n_sure;
        n_args += x.n_args;
        answer_free(&x);
    }
    assert_true(n_sure > n / 4 && n_args > n_sure);
}

static void test_out_of_memory(void **state)
{
    (void) state;
    static const char *const templates[] = {QWEN, GEMMA};
    for (int k = 0; k < 2; k++) {
        pi__chat *c = chat_of(templates[k]);
        counting_alloc heap;
        long n = 0;
        for (int rc = PI_ENOMEM; rc; n++) {
            counting_use(&heap, n);
            pi__call_form f;
            pi_error err = {0};
            rc = pi__chat_grammar(c, tools, REQUIRED, pi__str_of("x"), &f, &err);
            if (rc && rc != PI_ENOMEM) fail_msg("allocation %ld: %s", n, err.msg);
            pi__call_form_free(&f);
            assert_int_equal(heap.live, 0);
        }
        assert_true(n > 5);
        pi_set_allocator(NULL);
        pi__chat_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests_[] = {
        cmocka_unit_test(test_required), cmocka_unit_test(test_refused), cmocka_unit_test(test_triggers),
        cmocka_unit_test(test_open_thoughts), cmocka_unit_test(test_none), cmocka_unit_test(test_random), cmocka_unit_test(test_thoughts),
        cmocka_unit_test(test_sure), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests_, setup, teardown);
}
