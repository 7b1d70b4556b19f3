/* Renders prompts of conversations, for check_templates.py: tool_chat_prompt TEMPLATE [COUNT] < CONVERSATIONS
 *
 * TEMPLATE is a file or the name of a built-in template. CONVERSATIONS has one line per conversation: an object with
 * "messages" and optionally "tools" and "options". Prints one line per conversation: an object with "prompt" or
 * "error". With COUNT, loads the template COUNT times and prints the CPU seconds of one load instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "template/chat.h"
#include "template/chat_names.h"
#include "vocab_seed.h"

enum { LINE = 8 << 20 };

static char line[LINE];

/* Returns a member of the object as JSON text, or NULL. */
static char *member(const pi__val *v, const char *key)
{
    const pi__json_style style = pi__json_plain();
    const char *what;
    const pi__val *m = pi__dict_get_str(v->map, key);
    pi__text t = {.limit = LINE};
    if (!m || m->type == PI__V_NONE) return NULL;
    pi__text_json(&t, m, &style, &what);
    pi__text_add(&t, "", 1);
    return t.p;
}

static void answer(const pi__chat *c)
{
    const pi__json_style style = {.ascii = true, .item_sep = pi__str_of(", "), .key_sep = pi__str_of(": ")};
    const char *what;
    pi_error err = {0};
    pi__zone z;
    pi__val v;
    pi__text out = {0}, json = {.limit = LINE};
    pi__zone_init(&z, (size_t) 64 << 20);
    if (pi__json_read(&z, line, strlen(line), "a line", &v, &err)) exit(2);
    char *messages = member(&v, "messages"), *tools = member(&v, "tools"), *options = member(&v, "options");
    int rc = pi__chat_render(c, messages, tools, options, 1770000000, &out, &err);
    pi__val text = pi__val_str(rc ? pi__str_of(err.msg) : (pi__str) {out.p, out.n});
    pi__text_json(&json, &text, &style, &what);
    printf("{\"%s\": %.*s}\n", rc ? "error" : "prompt", (int) json.n, json.p);
    pi__free(messages);
    pi__free(tools);
    pi__free(options);
    pi__free(out.p);
    pi__free(json.p);
    pi__zone_free(&z);
}

int main(int argc, char **argv)
{
    seed s;
    pi_error err = {0};
    pi__vocab *v;
    pi__chat *c = NULL;
    FILE *f = argc < 2 || pi__chat_named(argv[1]) ? NULL : fopen(argv[1], "rb");
    if (argc < 2) return 64;
    strcpy(line, argv[1]);
    if (f) line[fread(line, 1, LINE - 1, f)] = 0, fclose(f);
    seed_gpt2(&s);
    int rc = seed_load(&s, &v, &err);
    const clock_t from = clock();
    const int n = argc > 2 ? atoi(argv[2]) : 1;
    for (int i = 0; i < n && !rc; i++) {
        pi__chat_free(c);
        rc = pi__chat_new(&c, v, line, NULL, &err);
    }
    if (rc) fprintf(stderr, "%s\n", err.msg);
    else if (argc > 2) printf("%.6f\n", (double) (clock() - from) / CLOCKS_PER_SEC / n);
    else while (fgets(line, LINE, stdin)) answer(c);
    pi__chat_free(c);
    pi__vocab_free(v);
    return rc != 0;
}
