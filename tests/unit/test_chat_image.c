/* Images in conversations: where the template writes them, where they are inserted, and that only parts of type image
 * become images, never text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "counting_alloc.h"
#include "template/chat_impl.h"
#include "vocab_seed.h"

#define USER "<|user|>"
#define END "<|im_end|>"
/* Writes images itself, for every role, as Qwen's templates do. */
#define QWEN                                                                                                           \
    "{%- macro show(content) %}{% if content is string %}{{ content }}{% else %}{% for item in content %}"             \
    "{% if 'image' in item or item.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"                      \
    "{% elif 'text' in item %}{{ item.text }}{% endif %}{% endfor %}{% endif %}{% endmacro -%}"                        \
    "{% for m in messages %}<|{{ m.role }}|>"                                                                          \
    "{% for c in m.tool_calls or [] %}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments}"      \
    " | tojson }}</tool_call>{% endfor %}{{ show(m.content) }}<|im_end|>{% endfor %}"
/* Writes images of users only, trims texts. */
#define GEMMA                                                                                                          \
    "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content | trim }}"                        \
    "{% else %}{% for item in m.content %}{% if item.type == 'image' %}<start_of_image>"                               \
    "{% else %}{{ item.text | trim }}{% endif %}{% endfor %}{% endif %}<|im_end|>{% endfor %}"
/* Knows no images; `tool` prints its content as JSON. */
#define PLAIN "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|im_end|>{% endfor %}"

static pi__vocab *vocab;

static int setup(void **state)
{
    (void) state;
    static const char *const control[] = {USER, "<|tool|>", "<|system|>", "<|vision_start|>", "<|image_pad|>",
                                          "<|vision_end|>", "<start_of_image>", "<image_soft_token>", "[IMG]"};
    seed s;
    pi_error err = {0};
    seed_gpt2(&s);
    for (size_t i = 0; i < sizeof control / sizeof *control; i++) seed_tok(&s, control[i], PI__TOK_CONTROL, 0);
    seed_tok(&s, "<__media__>", PI__TOK_USER, 0); /* the spelling of a tag is a token: it must not take one over */
    return seed_load(&s, &vocab, &err);
}

static int teardown(void **state)
{
    (void) state;
    pi__vocab_free(vocab);
    return 0;
}

/* Prints ids: images as #0, #1, control tokens in brackets, text as it is. */
static void print(const pi__ids *ids, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n && n < cap - 64; i++) {
        const int32_t id = ids->p[i];
        const bool control = id >= 0 && pi__vocab_attr(vocab, id) == PI__TOK_CONTROL;
        const pi__str name = control ? pi__vocab_spelling(vocab, id) : (pi__str) {"", 0};
        if (id < 0) n += (size_t) snprintf(out + n, cap - n, "#%d", -1 - id);
        else if (control) n += (size_t) snprintf(out + n, cap - n, "{%.*s}", (int) name.n, name.p);
        else n += pi__token_bytes(vocab, id, true, out + n, cap - n);
    }
    out[n] = 0;
}

static int tokens(const char *template, const char *around, const char *messages, char *out, size_t cap, pi_error *err)
{
    pi__chat *c;
    pi__ids ids = {0};
    pi__text text;
    size_t n_images;
    if (pi__chat_new(&c, vocab, template, NULL, err)) fail_msg("%s", err->msg);
    assert_int_equal(pi__chat_set_image(c, around, around), PI_OK);
    int rc = pi__chat_tokens(c, messages, NULL, NULL, 0, &ids, &text, &n_images, err);
    if (!rc) print(&ids, out, cap);
    pi__free(text.p);
    pi__free(ids.p);
    pi__chat_free(c);
    return rc;
}

static void expect(const char *template, const char *around, const char *messages, const char *expected)
{
    char got[1024];
    pi_error err = {0};
    if (tokens(template, around, messages, got, sizeof got, &err)) fail_msg("%s: %s", messages, err.msg);
    if (strcmp(got, expected) != 0) fail_msg("%s:\n    %s\nnot %s", messages, got, expected);
}

#define TEXT(t) "{\"type\": \"text\", \"text\": \"" t "\"}"
#define IMAGE "{\"type\": \"image\"}"
#define SAYS(role, parts) "{\"role\": \"" role "\", \"content\": [" parts "]}"

static void test_typed(void **state)
{
    (void) state;
    expect(QWEN, "", "[" SAYS("user", TEXT("a ") "," IMAGE "," TEXT(" b")) "]", "{<|user|>}a #0 b{<|im_end|>}");
    expect(QWEN, "", "[" SAYS("user", IMAGE "," IMAGE) "," SAYS("assistant", TEXT("x")) "," SAYS("user", IMAGE) "]",
           "{<|user|>}#0#1{<|im_end|>}<|assistant|>x{<|im_end|>}{<|user|>}#2{<|im_end|>}");
    expect(GEMMA, "", "[" SAYS("user", TEXT("a ") "," IMAGE "," TEXT(" b")) "]", "{<|user|>}a#0b{<|im_end|>}");
    expect(GEMMA, "\n\n", "[" SAYS("user", TEXT("a") "," IMAGE) "]", "{<|user|>}a\n\n#0\n\n{<|im_end|>}");
}

static void test_inserted(void **state)
{
    (void) state;
    expect(PLAIN, "", "[" SAYS("user", TEXT("a") "," TEXT("b") "," IMAGE "," TEXT("c")) "]",
           "{<|user|>}a\nb#0c{<|im_end|>}");
    expect(PLAIN, "\n", "[" SAYS("user", IMAGE "," IMAGE) "]", "{<|user|>}\n#0\n\n#1\n{<|im_end|>}");
    expect(GEMMA, "", "[" SAYS("system", TEXT("s") "," IMAGE) "," SAYS("user", TEXT("a") "," IMAGE) "]",
           "{<|system|>}s#0{<|im_end|>}{<|user|>}a#1{<|im_end|>}");
    /* a template that writes its placeholder without an image, too: it marks no images then */
    expect(QWEN "<|vision_start|><|image_pad|><|vision_end|>", "", "[" SAYS("user", TEXT("a") "," IMAGE) "]",
           "{<|user|>}a#0{<|im_end|>}{<|vision_start|>}{<|image_pad|>}{<|vision_end|>}");
}

/* Results of tools: with a place in the template, and as text of the user. */
static void test_tool(void **state)
{
    (void) state;
    static const char m[] = "[" SAYS("user", TEXT("a")) ",{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "
        "[{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]},"
        "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": [" TEXT("r") "," IMAGE "]}," SAYS("user", IMAGE)
        "]";
    char got[1024];
    pi_error err = {0};
    if (tokens(QWEN, "", m, got, sizeof got, &err)) fail_msg("%s", err.msg);
    assert_non_null(strstr(got, "{<|tool|>}r#0{<|im_end|>}{<|user|>}#1{<|im_end|>}"));
    if (tokens(GEMMA, "", m, got, sizeof got, &err)) fail_msg("%s", err.msg);
    assert_non_null(strstr(got, "r#0"));
    assert_non_null(strstr(got, "#1{<|im_end|>}"));
}

/* Results out of order are moved to their calls: images keep their numbers. */
static void test_moved(void **state)
{
    (void) state;
    static const char one_call[] = "{% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}"
        "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}"
        "{{ m.tool_calls[0].function.arguments | tojson }}{% endif %}{% if m.content is string %}{{ m.content }}"
        "{% else %}{% for item in m.content %}{% if item.type == 'image' %}<|image_pad|>{% else %}{{ item.text }}"
        "{% endif %}{% endfor %}{% endif %}<|im_end|>{% endfor %}";
    static const char m[] = "[" SAYS("user", TEXT("a")) ",{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "
        "[{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}},"
        "{\"id\": \"c2\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]},"
        "{\"role\": \"tool\", \"tool_call_id\": \"c2\", \"content\": [" TEXT("two") "," IMAGE "]},"
        "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": [" TEXT("one") "," IMAGE "]}]";
    char got[1024];
    pi_error err = {0};
    if (tokens(one_call, "", m, got, sizeof got, &err)) fail_msg("%s", err.msg);
    const char *one = strstr(got, "one#1"), *two = strstr(got, "two#0");
    if (!one || !two || one > two) fail_msg("%s", got);
}

/* Text never becomes an image, whatever it spells. */
static void test_hijack(void **state)
{
    (void) state;
    static const char *const texts[] = {"<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>",
                                        "<start_of_image>", "<image_soft_token>", "[IMG]", "<__media__>",
                                        "<|vision_start|>"};
    static const char *const templates[] = {QWEN, GEMMA, PLAIN};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (size_t k = 0; k < 3; k++) {
            char m[512], expected[256];
            snprintf(m, sizeof m, "[{\"role\": \"user\", \"content\": \"%s\"}]", texts[i]);
            snprintf(expected, sizeof expected, "{<|user|>}%s{<|im_end|>}", texts[i]);
            expect(templates[k], "", m, expected);
            snprintf(m, sizeof m, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"%s\"}, " IMAGE
                     ", {\"type\": \"text\", \"text\": \"%s\"}]}]", texts[i], texts[i]);
            snprintf(expected, sizeof expected, "{<|user|>}%s#0%s{<|im_end|>}", texts[i], texts[i]);
            expect(templates[k], "", m, expected);
        }
    }
}

static void refuse(const char *template, const char *messages, const char *word)
{
    char got[1024];
    pi_error err = {0};
    assert_int_equal(tokens(template, "", messages, got, sizeof got, &err), PI_EUNSUPPORTED);
    if (!strstr(err.msg, word)) fail_msg("%s", err.msg);
}

/* Templates that drop, repeat or reorder images. */
static void test_refused(void **state)
{
    (void) state;
    static const char one[] = "[" SAYS("user", TEXT("a") "," IMAGE) "]";
    static const char two[] = "[" SAYS("user", TEXT("a") "," IMAGE) "," SAYS("assistant", TEXT("b") "," IMAGE) "]";
    refuse("{% for m in messages %}{{ m.content | upper }}{% endfor %}", one, "0 of the 1 images");
    refuse("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", one, "2 of the 1 images");
    refuse("{% for m in messages | reverse %}{{ m.content }}{% endfor %}", two, "order");
}

static void test_no_images(void **state)
{
    (void) state;
    expect(QWEN "<|vision_start|><|image_pad|><|vision_end|>", "", "[" SAYS("user", TEXT("a")) "]",
           "{<|user|>}a{<|im_end|>}{<|vision_start|>}{<|image_pad|>}{<|vision_end|>}");
}

static void test_out_of_memory(void **state)
{
    (void) state;
    counting_alloc heap;
    size_t n_images;
    long n = 0;
    for (int rc = PI_ENOMEM; rc; n++) {
        counting_use(&heap, n);
        pi__chat *c = NULL;
        pi__ids ids = {0};
        pi__text out = {0};
        pi_error err = {0};
        rc = pi__chat_new(&c, vocab, QWEN, NULL, &err);
        if (!rc) rc = pi__chat_set_image(c, "\n", "\n");
        if (!rc) rc = pi__chat_tokens(c, "[" SAYS("user", TEXT("a") "," IMAGE) "]", NULL, NULL, 0, &ids, &out,
                                      &n_images, &err);
        if (rc && rc != PI_ENOMEM) fail_msg("allocation %ld: %s", n, err.msg);
        pi__free(ids.p);
        pi__free(out.p);
        pi__chat_free(c);
        assert_int_equal(heap.live, 0);
    }
    assert_true(n > 20);
    pi_set_allocator(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typed), cmocka_unit_test(test_inserted), cmocka_unit_test(test_tool),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_hijack), cmocka_unit_test(test_refused), cmocka_unit_test(test_no_images),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
