/* Images in the prompts of a template, for check_image_templates.py:
 *
 *     tool_chat_images VOCAB.GGUF TEMPLATE
 *
 * Prints "typed PLACEHOLDER" if the template writes images itself, else "inserted"; " tool" if also for results of
 * tools. Then for conversations with images in the messages of users and in results: each image must become one id, in
 * order, and text that spells the placeholder none. Exits with 1 and the reason otherwise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "template/chat_impl.h"
#include "tokenizer/vocab_impl.h"

#define IMAGE "{\"type\": \"image\"}"
#define USER(parts) "{\"role\": \"user\", \"content\": [" parts "]}"
#define TEXT(t) "{\"type\": \"text\", \"text\": \"" t "\"}"

static char *read_file(const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    return n ? text : NULL;
}

/* Renders messages, which have `expected` images; true if each of them is one id, in order. */
static bool check(const pi__chat *c, const char *what, const char *messages, int32_t expected)
{
    pi__ids ids = {0};
    pi__text text;
    pi_error err = {0};
    size_t n_images;
    int32_t next = 0;
    const int rc = pi__chat_tokens(c, messages, NULL, NULL, 1770000000, &ids, &text, &n_images, &err);
    bool ok = !rc;
    for (size_t i = 0; ok && i < ids.n; i++)
        if (ids.p[i] < 0) ok = ids.p[i] == -1 - next++;
    ok = ok && next == expected;
    if (!ok) printf("%s: %s (%d of %d images)\n", what, err.msg, (int) next, (int) expected);
    pi__free(ids.p);
    pi__free(text.p);
    return ok;
}

int main(int argc, char **argv)
{
    pi__gguf *g = NULL;
    pi__vocab *v = NULL;
    pi__chat *c = NULL;
    pi_error err = {0};
    char spelled[1024], *template = argc == 3 ? read_file(argv[2]) : NULL;
    if (!template || pi__gguf_open(&g, argv[1], PI__LOAD_MMAP, &err) || pi__vocab_load(&v, g, &err) ||
        pi__chat_new(&c, v, template, NULL, &err)) {
        printf("%s\n", template ? err.msg : "usage: tool_chat_images VOCAB.GGUF TEMPLATE");
        return 1;
    }
    if (c->user_images) printf("typed %.*s", (int) c->placeholder.n, c->placeholder.p);
    else printf("inserted");
    printf("%s\n", c->tool_images ? " tool" : "");
    snprintf(spelled, sizeof spelled, "[{\"role\": \"user\", \"content\": [" TEXT("%.*s <__media__>") ", " IMAGE "]}]",
             (int) c->placeholder.n, c->placeholder.n ? c->placeholder.p : "");
    bool ok = check(c, "one image", "[" USER(TEXT("See") "," IMAGE "," TEXT("Why?")) "]", 1);
    ok &= check(c, "several turns",
                "[{\"role\": \"system\", \"content\": \"Be brief.\"}, " USER(IMAGE "," IMAGE "," TEXT("Two?"))
                ", {\"role\": \"assistant\", \"content\": \"Yes.\"}, " USER(TEXT("And") "," IMAGE) "]", 3);
    ok &= check(c, "a result",
                "[{\"role\": \"user\", \"content\": \"Look.\"}, {\"role\": \"assistant\", \"content\": null,"
                " \"tool_calls\": [{\"id\": \"call12345\", \"type\": \"function\","
                " \"function\": {\"name\": \"see\", \"arguments\":"
                " {\"at\": \"x\"}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"call12345\", \"name\": \"see\","
                " \"content\": ["
                TEXT("Here:") "," IMAGE "]}, " USER(IMAGE "," TEXT("Same?")) "]", 2);
    ok &= check(c, "spelled placeholders", spelled, 1);
    pi__chat_free(c);
    pi__vocab_free(v);
    pi__gguf_close(g);
    return !ok;
}
