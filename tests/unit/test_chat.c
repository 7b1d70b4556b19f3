/* Conversations through templates of many styles: handling of content, calls, system messages and tools; errors; and
 * pi_chat_render with an engine. check_templates.py compares templates of real models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "counting_alloc.h"
#include "chat_names_expected.h"
#include "template/chat.h"
#include "template/chat_names.h"
#include "random_model.h"
#include "vocab_seed.h"

static pi__vocab *bpe, *spm; /* bpe has <|im_start|>; spm adds BOS */

static int setup(void **state)
{
    (void) state;
    seed s;
    pi_error err = {0};
    seed_gpt2(&s);
    if (seed_load(&s, &bpe, &err)) return -1;
    seed_spm(&s);
    return seed_load(&s, &spm, &err);
}

static int teardown(void **state)
{
    (void) state;
    pi__vocab_free(bpe);
    pi__vocab_free(spm);
    return 0;
}

/* Replaces "'" by '"' in the JSON of a test. */
static const char *quotes(const char *s, char *buf, size_t cap)
{
    if (!s) return NULL;
    assert_true(strlen(s) < cap);
    for (char *p = strcpy(buf, s); *p; p++) *p = *p == '\'' ? '"' : *p;
    return buf;
}

static int render(const pi__vocab *v, const char *text, const char *messages, const char *tools, const char *options,
                  pi__text *out, pi_error *err)
{
    char m[4096], t[1024], o[1024];
    pi__chat *c;
    int rc = pi__chat_new(&c, v, text, NULL, err);
    if (!rc)
        rc = pi__chat_render(c, quotes(messages, m, sizeof m), quotes(tools, t, sizeof t),
                             quotes(options, o, sizeof o), 0, out, err);
    pi__chat_free(c);
    return rc;
}

static void expect_full(const pi__vocab *v, const char *text, const char *messages, const char *tools,
                        const char *options, const char *want)
{
    pi__text out = {0};
    pi_error err = {0};
    if (render(v, text, messages, tools, options, &out, &err)) fail_msg("%s: %s", messages, err.msg);
    pi__text_add(&out, "", 1);
    assert_string_equal(out.p, want);
    pi__free(out.p);
}

static void expect(const char *text, const char *messages, const char *want)
{
    expect_full(bpe, text, messages, NULL, NULL, want);
}

static void refuse(const char *text, const char *messages, const char *tools, const char *options, int rc,
                   const char *msg)
{
    pi__text out = {0};
    pi_error err = {0};
    assert_int_equal(render(bpe, text, messages, tools, options, &out, &err), rc);
    assert_int_equal(err.code, rc);
    assert_string_equal(err.msg, msg);
    assert_int_equal(out.n, 0);
    pi__free(out.p);
}

#define TALK "[{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': 'U'}, {'role': 'assistant', 'content': 'A'}]"
#define PLAIN "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"

/* ---------------------------------------------------------------------------------------------------------- choice */

/* Each name renders as in llama.cpp. Exception: yandex, where llama.cpp drops the system message; here the user's
 * message has it. */
static void test_names(void **state)
{
    (void) state;
    static const struct { const char *messages, *options; } talk[] = {
        {"[{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi.'}, {'role': 'assistant', 'content': "
         "'Hello!'}, {'role': 'user', 'content': 'Who are you?'}]", NULL},
        {"[{'role': 'user', 'content': 'Hi.'}]", NULL},
        {"[{'role': 'system', 'content': ' S \\n'}, {'role': 'user', 'content': '  hi\\n'}, {'role': 'assistant', 'content': "
         "' yo '}, {'role': 'user', 'content': 'x '}, {'role': 'assistant', 'content': 'end '}]", "{'add_generation_prompt': false}"},
    };
    const size_t n = sizeof chat_names_expected / sizeof *chat_names_expected;
    size_t n_ours = 0;
#define NAME(...) n_ours++;
    PI__CHAT_NAMES(NAME)
#undef NAME
    assert_int_equal(n, n_ours);
    expect("yandex", "[{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': 'U'}]",
           " Пользователь: S\n\nU\n\n Ассистент:[SEP]");
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            if (k == 1 || strcmp(chat_names_expected[i].name, "yandex"))
                expect_full(bpe, chat_names_expected[i].name, talk[k].messages, NULL, talk[k].options,
                            chat_names_expected[i].text[k]);
}

static void test_choice(void **state)
{
    (void) state;
    static const char want[] = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
                               "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>assistant\n";
    expect(NULL, TALK, want);
    expect("chatml", TALK, want);
    expect_full(spm, "chatml", TALK, NULL, NULL, want);
    expect_full(bpe, NULL, "[{'role': 'user', 'content': ''}]", NULL, "{'add_generation_prompt': false}",
                "<|im_start|>user\n<|im_end|>\n");
    pi__chat *c;
    pi_error err = {0};
    assert_int_equal(pi__chat_new(&c, spm, NULL, NULL, &err), PI_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "chat-template-file"));
    assert_int_equal(pi__chat_new(&c, bpe, "llama9", NULL, &err), PI_EINVAL);
    assert_string_equal(err.msg, "chat-template: 'llama9' is neither a template nor a known name (chatml, llama3, "
                        "gemma, ...); see the option's help");
    assert_int_equal(pi__chat_new(&c, bpe, "{% if %}", NULL, &err), PI_EINVAL);
    assert_int_equal(pi__chat_new(&c, bpe, NULL, "[1]", &err), PI_EINVAL);
    assert_string_equal(err.msg, "chat-template-kwargs: must be a JSON object");
    assert_null(c);
}

static void test_variables(void **state)
{
    (void) state;
    static const char text[] = "{{ messages | length }}{{ tools }}{{ documents }}{{ add_generation_prompt }}"
                               "{{ enable_thinking }}{{ x }}{{ bos_token }}{{ eos_token }}";
    expect_full(bpe, text, "[{'role': 'user', 'content': 'U'}]", NULL, "{'x': 5, 'enable_thinking': false}",
                "1NoneNoneTrueFalse5<|endoftext|><|im_end|>");
    expect_full(bpe, text, "[{'role': 'user', 'content': 'U'}]", "[]",
                "{'add_generation_prompt': false, 'messages': 7, 'tools': 8, 'documents': 9, 'bos_token': 1}",
                "1None9False<|endoftext|><|im_end|>");
    pi__chat *c;
    pi_error err = {0};
    pi__text out = {0};
    assert_int_equal(pi__chat_new(&c, bpe, "{{ a }}{{ b }}", "{\"a\": 1, \"b\": 2}", &err), PI_OK);
    assert_int_equal(pi__chat_render(c, "[{\"role\": \"user\"}]", NULL, "{\"b\": 3}", 0, &out, &err), PI_OK);
    assert_int_equal(out.n, 2);
    assert_memory_equal(out.p, "13", 2); /* the call's options take precedence */
    assert_int_equal(pi__chat_render(c, "[{\"role\": \"user\"}]", "", "", 0, &out, &err), PI_OK);
    assert_memory_equal(out.p, "1312", 4); /* appended */
    pi__free(out.p);
    pi__chat_free(c);
}

static void test_bos(void **state)
{
    (void) state;
    static const char text[] = "{{ bos_token }}{{ messages[0].content }}{{ bos_token }}";
    expect_full(spm, text, "[{'role': 'user', 'content': 'U'}]", NULL, NULL, "U<s>"); /* tokenization adds BOS */
    expect_full(bpe, text, "[{'role': 'user', 'content': 'U'}]", NULL, NULL, "<|endoftext|>U<|endoftext|>");
}

/* --------------------------------------------------------------------------------------------------------- content */

static void test_content(void **state)
{
    (void) state;
    static const char parts[] = "[{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'input_text', "
                                "'text': 'b'}, 'c']}, {'role': 'tool', 'content': {'t': 1}}, {'role': 'assistant'}]";
    static const char typed[] = "{% for m in messages %}[{% for p in m.content %}{% if p.type == 'text' %}<{{ p.text }}>"
                                "{% endif %}{% endfor %}]{% endfor %}";
    expect(PLAIN, parts, "[user:a\nb\nc][tool:{\"t\": 1}][assistant:]");
    expect(typed, "[{'role': 'user', 'content': 'U'}, {'role': 'user', 'content': [{'type': 'text', 'text': 'P'}]}]",
           "[<U>][<P>]");
    refuse(PLAIN, "[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {}}]}]", NULL, NULL,
           PI_EUNSUPPORTED, "messages[0]: content of type 'image_url' is not supported, only text and image");
    refuse(PLAIN, "[{'role': 'user'}, {'role': 'user', 'content': [{'type': 'text'}]}]", NULL, NULL, PI_EINVAL,
           "messages[1]: a part of content needs \"type\": \"text\" and a \"text\"");
    refuse(PLAIN, "[{'role': 'user', 'content': 5}]", NULL, NULL, PI_EINVAL,
           "messages[0]: content must be a string or a list of parts");
    refuse(PLAIN, "[{'role': 'user', 'content': {}}]", NULL, NULL, PI_EINVAL,
           "messages[0]: content must be a string or a list of parts");
}

static void test_system(void **state)
{
    (void) state;
    static const char none[] = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
                               "{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    static const char drops[] = "{% for m in messages if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    expect(PLAIN, TALK, "[system:S][user:U][assistant:A]");
    expect(none, TALK, "[user:S\n\nU][assistant:A]");
    expect(drops, TALK, "[user:S\n\nU][assistant:A]");
    expect(none, "[{'role': 'system', 'content': 'S'}, {'role': 'system', 'content': 'T'}, {'role': 'user', 'content': 'U'}]",
           "[user:S\n\nT\n\nU]");
    expect(none, "[{'role': 'user', 'content': 'U'}, {'role': 'system', 'content': 'S'}]", "[user:U\n\nS]");
    expect(PLAIN, "[{'role': 'developer', 'content': 'D'}]", "[system:D]");
    expect("{# developer #}" PLAIN, "[{'role': 'developer', 'content': 'D'}]", "[system:D]");
    expect("{% for m in messages %}[{{ 'dev' if m.role == 'developer' else m.role }}:{{ m.content }}]{% endfor %}",
           "[{'role': 'developer', 'content': 'D'}]", "[dev:D]");
}

/* ----------------------------------------------------------------------------------------------------------- calls */

#define CALL(content, args)                                                                                            \
    "[{'role': 'user', 'content': 'U'}, {'role': 'assistant', " content "'tool_calls': [{'id': '1', 'type': 'function', " \
    "'function': {'name': 'f', 'arguments': " args "}}]}]"

static void test_calls(void **state)
{
    (void) state;
    static const char object[] = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
                                 "{{ c.function.name }}{% for k, v in c.function.arguments.items() %}({{ k }}={{ v }})"
                                 "{% endfor %}{% endfor %}{% endfor %}";
    static const char text[] = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
                               "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}";
    static const char strict[] = "{% for m in messages %}{{ '' + m.content }}{% for c in m.tool_calls %}"
                                 "{{ c.function.name + (c.function.arguments | tojson) }}{% endfor %}{% endfor %}";
    expect(object, CALL("'content': 'A', ", "'{\\'a\\': 1, \\'b\\': \\'x\\'}'"), "UAf(a=1)(b=x)");
    expect(object, CALL("'content': 'A', ", "{'a': 1}"), "UAf(a=1)");
    expect(text, CALL("'content': 'A', ", "{'a': 1, 'b': [true]}"), "UAf{\"a\": 1, \"b\": [true]}");
    expect(text, CALL("'content': 'A', ", "'{\\'a\\':1}'"), "UAf{\"a\":1}");
    expect(text, CALL("", "'no json'"), "Ufno json");
    expect(strict, CALL("'content': null, ", "'{\\'a\\': 1}'"), "Uf{\"a\": 1}");
    refuse(strict, CALL("'content': null, ", "'not json'"), NULL, NULL, PI_EINVAL,
           "messages[1]: the arguments of the call of 'f' must be a JSON object");
    expect(PLAIN, CALL("'content': 'A', ", "'{}'"),
           "[user:U][assistant:A\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>]");
    expect("{% for m in messages %}{{ m.tool_calls is defined }}{% endfor %}",
           "[{'role': 'user', 'tool_calls': null}, {'role': 'user', 'tool_calls': []}]", "FalseFalse");
    static const char with_none[] = "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
                                    "{{ c.function.name + c.function.arguments }}{% endfor %}{% else %}{{ m.content }}"
                                    "{% endif %}{% endfor %}";
    expect(with_none, CALL("'content': '', ", "{'a': 1}"), "Uf{\"a\": 1}");
    expect(with_none, CALL("'content': 'A', ", "{'a': 1}"), "UAf{\"a\": 1}"); /* in a separate message */
    refuse(PLAIN, "[{'role': 'assistant', 'tool_calls': 5}]", NULL, NULL, PI_EINVAL,
           "messages[0]: tool_calls must be a list");
    refuse(PLAIN, "[{'role': 'assistant', 'tool_calls': [{'function': {}}]}]", NULL, NULL, PI_EINVAL,
           "messages[0]: a tool call needs a \"function\" with a \"name\"");
    refuse(PLAIN, "[{'role': 'assistant', 'tool_calls': [7]}]", NULL, NULL, PI_EINVAL,
           "messages[0]: a tool call needs a \"function\" with a \"name\"");
}

static void test_tools(void **state)
{
    (void) state;
    static const char text[] = "{{ messages[0].content }}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{# <tool_call> #}";
    static const char user[] = "[{'role': 'user', 'content': 'U'}]";
    expect_full(bpe, text, user, "[{'type': 'function', 'function': {'name': 'f'}}, {'name': 'g'}]", NULL,
                "U{\"type\": \"function\", \"function\": {\"name\": \"f\"}}{\"type\": \"function\", \"function\": {\"name\": \"g\"}}");
    expect_full(bpe, text, user, "null", NULL, "U");
    expect_full(bpe, "{{ messages[0].content }}{% for t in tools %}{{ t.function.name }}{% endfor %}", user, NULL,
                NULL, "U");
    /* Fields that a template requires exist and are empty, as in gpt-oss's; optional fields that others print are
     * left out. */
    static const char adds[] = "{{ messages[0].content }}{% for t in tools or [] %}{{ '// ' + t.function.description + '.' }}"
                               "{% for p in t.function.parameters.properties.items() %}{{ p[0] }}{% endfor %}"
                               "{{ t.function.name }}{% endfor %}{# <tool_call> #}";
    expect_full(bpe, adds, user, "[{'type': 'function', 'function': {'name': 'f'}}, {'name': 'g', 'description': null}, "
                "{'name': 'h', 'description': 'H', 'parameters': {'type': 'object', 'properties': {'k': {}}}}]", NULL,
                "U// .f// .g// H.kh");
    refuse(text, user, "{}", NULL, PI_EINVAL, "tools must be a list");
    refuse(text, user, "[1]", NULL, PI_EINVAL, "tools[0]: must be an object");
    refuse(text, user, "[", NULL, PI_EINVAL, "tools: line 1, column 2: the text ends where a value is expected");
}

/* A continued answer: the text ends at the end of the last message, even if the template writes more after it. */
static void test_goes_on(void **state)
{
    (void) state;
    static const char on[] = "{'continue_final_message': true}";
    static const char text[] = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>\n{% endfor %}"
                               "{% if add_generation_prompt %}<assistant>{% endif %}";
    expect_full(bpe, text, TALK, NULL, NULL, "<system>S</system>\n<user>U</user>\n<assistant>A</assistant>\n<assistant>");
    expect_full(bpe, text, TALK, NULL, on, "<system>S</system>\n<user>U</user>\n<assistant>A");
    expect_full(bpe, text, "[{'role': 'user', 'content': 'U'}, {'role': 'assistant', 'content': [{'type': 'text', 'text': ' A '}]}]",
                NULL, on, "<user>U</user>\n<assistant>A ");
    expect_full(bpe, text, "[{'role': 'user', 'content': 'U'}, {'role': 'assistant', 'content': null}]", NULL, on,
                "<user>U</user>\n<assistant>");
    refuse(text, "[{'role': 'user', 'content': 'U'}]", NULL, on, PI_EINVAL,
           "continue_final_message: the last message must be the assistant's, with text and no calls");
    refuse(text, TALK, NULL, "{'continue_final_message': true, 'add_generation_prompt': true}", PI_EINVAL,
           "continue_final_message and add_generation_prompt: an answer cannot both continue and begin; give one");
    refuse(text, TALK, NULL, "{'continue_final_message': 'yes'}", PI_EINVAL, "continue_final_message: must be true or false");
    refuse("{{ messages[0].content }}", TALK, NULL, on, PI_EUNSUPPORTED,
           "continue_final_message: the chat template does not show the last message");
}

static void test_refused(void **state)
{
    (void) state;
    refuse(PLAIN, "{}", NULL, NULL, PI_EINVAL, "messages must be a list");
    refuse(PLAIN, "[]", NULL, NULL, PI_EINVAL, "messages is empty");
    refuse(PLAIN, "[{'role': 'user', 'content': 'U'}, 1]", NULL, NULL, PI_EINVAL,
           "messages[1]: must be an object with a \"role\"");
    refuse(PLAIN, "[{'role': 5}]", NULL, NULL, PI_EINVAL, "messages[0]: must be an object with a \"role\"");
    refuse(PLAIN, "[{'role': 'user'}", NULL, NULL, PI_EINVAL, "messages: line 1, column 18: expected , or ]");
    refuse(PLAIN, "[{'role': 'user'}]", NULL, "[]", PI_EINVAL, "chat options: must be a JSON object");
    refuse("{{ messages[0].content }}{% if messages[0].content == 'V' %}{{ raise_exception('No V.') }}{% endif %}",
           "[{'role': 'user', 'content': 'V'}]", NULL, NULL, PI_EINVAL, "chat template: No V.");
}

/* ---------------------------------------------------------------------------------------------------------- memory */

static void test_out_of_memory(void **state)
{
    (void) state;
    static const char text[] = "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('x') }}"
                               "{% endif %}{{ m.role }}{{ '' + m.content }}{% for c in m.tool_calls %}"
                               "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{{ tools | tojson }}{{ k }}{# <tool_call> #}";
    static const char messages[] =
        "[{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"a\\u00e9\"}, \"b\"]}, "
        "{\"role\": \"user\", \"content\": \"c\"},"
        " {\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}]}]";
    static const char want[] = "useraé\nb\n\ncassistant{\"a\": 1}[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]7";
    counting_alloc heap;
    long n = 0;
    for (int rc = PI_ENOMEM; rc; n++) {
        counting_use(&heap, n);
        pi__chat *c = NULL;
        pi__text out = {0};
        pi_error err = {0};
        rc = pi__chat_new(&c, spm, text, "{\"k\": 7}", &err);
        if (!rc) rc = pi__chat_render(c, messages, "[{\"name\": \"f\"}]", NULL, 0, &out, &err);
        if (rc && rc != PI_ENOMEM) fail_msg("allocation %ld: %s", n, err.msg);
        assert_int_equal(err.code, rc);
        if (!rc) assert_int_equal(out.n, strlen(want));
        if (!rc) assert_memory_equal(out.p, want, out.n);
        pi__free(out.p);
        pi__chat_free(c);
        assert_int_equal(heap.live, 0);
    }
    assert_true(n > 20);
    pi_set_allocator(NULL);
}

/* ------------------------------------------------------------------------------------------------ public interface */

static int open_tiny(pi_engine **e, const char *key, const char *value, pi_error *err)
{
    char path[256];
    pi_options *o = pi_options_new();
    int rc = tiny_write(tiny_path(path, "chat"), NULL, err);
    if (!rc) rc = pi_options_set(o, "model", path, err);
    if (!rc) rc = pi_options_set(o, "threads", "1", err);
    if (!rc && key) rc = pi_options_set(o, key, value, err);
    if (!rc) rc = pi_engine_open(e, o, err);
    unlink(path);
    pi_options_free(o);
    return rc;
}

static void test_public(void **state)
{
    (void) state;
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"the\"}]";
    pi_engine *e;
    pi_error err = {0};
    char out[64] = "..........................";
    assert_int_equal(open_tiny(&e, NULL, NULL, &err), PI_OK);
    assert_int_equal(pi_chat_render(e, messages, NULL, NULL, NULL, 0, &err), PI_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "no chat template"));
    pi_engine_close(e);

    assert_int_equal(open_tiny(&e, "chat-template", "{{ bos_token }}<{{ messages[0].content }}>", &err), PI_OK);
    assert_int_equal(pi_chat_render(e, messages, NULL, NULL, NULL, 0, &err), 5);
    assert_int_equal(pi_chat_render(e, messages, NULL, NULL, out, 3, &err), 5);
    assert_memory_equal(out, "<th..", 5);
    assert_int_equal(pi_chat_render(e, messages, NULL, NULL, out, sizeof out, &err), 5);
    assert_memory_equal(out, "<the>.", 6);
    assert_int_equal(pi_chat_render(e, "[", NULL, NULL, out, sizeof out, NULL), PI_EINVAL);
    assert_int_equal(pi_chat_render(e, NULL, NULL, NULL, out, sizeof out, &err), PI_EINVAL);
    assert_int_equal(pi_chat_render(e, messages, NULL, NULL, NULL, 1, &err), PI_EINVAL);
    assert_int_equal(pi_chat_render(NULL, messages, NULL, NULL, out, 1, &err), PI_EINVAL);
    int32_t ids[16] = {-1, -1, -1};
    const int64_t n_ids = pi_tokenize(e, "<the>", 5, PI_TOK_BOS, NULL, 0);
    assert_int_equal(pi_chat_tokenize(e, messages, NULL, NULL, NULL, 0, &err), n_ids);
    assert_int_equal(pi_chat_tokenize(e, messages, NULL, NULL, ids, 2, &err), n_ids);
    assert_true(ids[1] >= 0 && ids[2] == -1);
    assert_int_equal(pi_chat_tokenize(e, "[]", NULL, NULL, ids, 16, &err), PI_EINVAL);
    assert_int_equal(pi_chat_tokenize(e, messages, NULL, NULL, NULL, 1, &err), PI_EINVAL);
    assert_int_equal(pi_chat_tokenize(NULL, messages, NULL, NULL, ids, 1, &err), PI_EINVAL);
    pi_request *r = pi_request_new(e);
    assert_int_equal(pi_request_prompt_text(r, out, 5, &err), PI_OK); /* only one BOS */
    assert_int_equal(pi_request_set(r, "max-tokens", "1", &err), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_OK);
    assert_int_equal(pi_request_wait(r, 60000), PI_OK);
    pi_result res = {.size = sizeof res};
    assert_int_equal(pi_request_result(r, &res), PI_OK);
    assert_int_equal(res.prompt_tokens, pi_tokenize(e, "<the>", 5, PI_TOK_BOS, NULL, 0));
    /* the request has already run */
    assert_int_equal(pi_request_prompt_chat(r, messages, NULL, NULL, &err), PI_EINVAL);
    pi_request_free(r);
    r = pi_request_new(e);
    assert_int_equal(pi_request_prompt_chat(NULL, messages, NULL, NULL, &err), PI_EINVAL);
    assert_int_equal(pi_request_prompt_chat(r, NULL, NULL, NULL, &err), PI_EINVAL);
    assert_int_equal(pi_request_prompt_chat(r, "[]", NULL, NULL, &err), PI_EINVAL);
    assert_int_equal(pi_request_prompt_chat(r, messages, NULL, NULL, &err), PI_OK);
    assert_int_equal(pi_request_set(r, "max-tokens", "1", &err), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_OK);
    assert_int_equal(pi_request_wait(r, 60000), PI_OK);
    pi_result chat = {.size = sizeof chat};
    assert_int_equal(pi_request_result(r, &chat), PI_OK);
    assert_int_equal(chat.prompt_tokens, res.prompt_tokens);
    pi_request_free(r);
    pi_engine_close(e);

    e = NULL;
    assert_int_equal(open_tiny(&e, "chat-template", "{% if %}", &err), PI_EINVAL);
    assert_null(e);
    assert_int_equal(err.code, PI_EINVAL);
    assert_int_equal(open_tiny(&e, "chat-template-kwargs", "{", &err), PI_EUNSUPPORTED);
    assert_int_equal(open_tiny(&e, "chat-template-file", "/nonexistent/x", &err), PI_ENOENT);
    assert_int_equal(open_tiny(&e, "chat-template-file", "/tmp", &err), PI_EIO);
}

/* A required call is generated for any weights; an optional one leaves the answer unconstrained. */
static void test_tool_choice(void **state)
{
    (void) state;
    static const char template[] = "{% for m in messages %}{{ m.content }}{% endfor %}{# <tool_call> #}";
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"the\"}]", f[] = "[{\"name\": \"f\"}]";
    static const char required[] = "{\"tool_choice\": \"required\", \"parallel_tool_calls\": false}";
    pi_engine *e;
    pi_error err = {0};
    assert_int_equal(open_tiny(&e, "chat-template", template, &err), PI_OK);
    for (int k = 0; k < 2; k++) {
        pi_request *r = pi_request_new(e);
        pi_chat_parser *p;
        pi_event *ev;
        pi_chat_call call = {.size = sizeof call};
        int finish = PI_FINISH_NONE;
        if (pi_request_prompt_chat(r, messages, f, k ? NULL : required, &err)) fail_msg("%s", err.msg);
        assert_int_equal(pi_chat_parser_new(&p, e, f, k ? NULL : required, &err), PI_OK);
        assert_int_equal(pi_request_set(r, "special", "true", &err), PI_OK);
        assert_int_equal(pi_request_set(r, "max-tokens", "96", &err), PI_OK);
        if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
        while (finish == PI_FINISH_NONE && pi_poll(e, &ev, 1, 60000) == 1) {
            assert_int_equal(pi_chat_parser_feed(p, ev->text, ev->text_len), PI_OK);
            finish = ev->finish_reason;
            pi_event_release(ev);
        }
        int end = pi_chat_parser_end(p, finish);
        if (!k) {
            assert_int_equal(end, PI_FINISH_TOOL_CALLS);
            assert_int_equal(pi_chat_parser_call(p, 0, &call), PI_OK);
            assert_string_equal(call.name, "f");
            assert_string_equal(call.arguments, "{}");
            assert_int_equal(pi_chat_parser_call(p, 1, &call), PI_ENOENT);
            assert_int_equal(pi_chat_parser_content(p, NULL), 0);
        } else {
            assert_int_equal(end, finish);
            assert_true(pi_chat_parser_content(p, NULL) > 0);
        }
        assert_int_equal(pi_chat_parser_reasoning(p, NULL), 0);
        pi_chat_parser_free(p);
        pi_request_free(r);
    }
    /* A new prompt that requires no call. */
    pi_request *r = pi_request_new(e);
    assert_int_equal(pi_request_prompt_chat(r, messages, f, required, &err), PI_OK);
    assert_int_equal(pi_request_set(r, "regex", "a", &err), PI_OK);
    assert_int_equal(pi_request_prompt_text(r, "the", 3, &err), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_OK);
    assert_int_equal(pi_request_wait(r, 60000), PI_OK);
    pi_request_free(r);
    /* A schema without a possible grammar is an error if a call is required, and is ignored otherwise. */
    static const char odd[] = "[{\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"required\": [\"a\"], \"properties\": {\"a\": "
                              "{\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"uniqueItems\": true}}}}]";
    r = pi_request_new(e);
    assert_int_not_equal(pi_request_prompt_chat(r, messages, odd, "{\"tool_choice\": \"required\"}", &err), PI_OK);
    assert_int_equal(pi_request_prompt_chat(r, messages, odd, NULL, &err), PI_OK);
    pi_request_free(r);
    assert_int_equal(pi_chat_parser_new(NULL, e, NULL, NULL, &err), PI_EINVAL);
    pi_chat_parser *p;
    assert_int_equal(pi_chat_parser_new(&p, NULL, NULL, NULL, &err), PI_EINVAL);
    assert_int_equal(pi_chat_parser_new(&p, e, "[", NULL, &err), PI_EINVAL);
    assert_null(p);
    assert_int_equal(pi_chat_parser_feed(NULL, "", 0), PI_EINVAL);
    assert_false(pi_chat_parser_next(NULL, NULL));
    pi_engine_close(e);
}

static void test_template_file(void **state)
{
    (void) state;
    char path[] = "/tmp/pi-test-chat-XXXXXX", out[16];
    pi_engine *e;
    pi_error err = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a{{ messages | length }}\n", 25), 25);
    assert_int_equal(open_tiny(&e, "chat-template-file", path, &err), PI_OK);
    assert_int_equal(pi_chat_render(e, "[{\"role\": \"user\"}]", NULL, NULL, out, sizeof out, &err), 2);
    assert_memory_equal(out, "a1", 2);
    pi_engine_close(e);
    assert_int_equal(write(fd, "\0b", 2), 2);
    assert_int_equal(open_tiny(&e, "chat-template-file", path, &err), PI_EINVAL);
    assert_int_equal(ftruncate(fd, (1 << 20) + 1), 0);
    assert_int_equal(open_tiny(&e, "chat-template-file", path, &err), PI_ETOOBIG);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_system),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_goes_on), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_public),
        cmocka_unit_test(test_tool_choice),
        cmocka_unit_test(test_template_file),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
