/* Parses answers back that a template renders, for check_answers.py: tool_chat_answer VOCAB.GGUF TEMPLATE
 *
 * Standard input has four lines of JSON: messages up to the answer, messages including it, tools, options.
 *
 * The answer's text is the second rendering's part after the first rendering. The tool parses it in one call and byte
 * by byte; both must agree. Prints a JSON object: form, splits (answers that become several messages), text, content,
 * reasoning, calls; {} if the template refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "template/answer.h"
#include "template/chat_form.h"
#include "template/chat_impl.h"

enum { LINE = 1 << 20 };

static char *read_template(const char *path)
{
    char *p = calloc(1, LINE);
    FILE *f = fopen(path, "rb");
    if (!f || !p || !fread(p, 1, LINE - 1, f)) exit(2);
    fclose(f);
    return p;
}

static void add_str(pi__text *t, const char *key, pi__str s)
{
    const pi__json_style style = pi__json_plain();
    const pi__val v = pi__val_str(s);
    const char *what;
    pi__text_str(t, t->n > 1 ? ", \"" : "\"");
    pi__text_str(t, key);
    pi__text_str(t, "\": ");
    pi__text_json(t, &v, &style, &what);
}

/* `closed`: a closing tag to put before the text; NULL = no tag */
static pi__text parse(const pi__chat *c, char *const line[4], const char *closed, pi__str text, size_t step)
{
    pi__answer *a;
    pi_error err = {0};
    pi__text out = {.limit = SIZE_MAX / 4};
    const char *name = c->form->name;
    if (pi__answer_new(&a, c, line[2], line[3], 0, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(2);
    }
    if (closed) pi__answer_feed(a, closed, strlen(closed));
    for (size_t at = 0; at < text.n; at += step)
        pi__answer_feed(a, text.p + at, text.n - at < step ? text.n - at : step);
    pi__answer_end(a, false);
    pi__text_str(&out, "{");
    add_str(&out, "form", pi__str_of(name));
    add_str(&out, "splits", pi__str_of(!c->roles.many_calls ? c->roles.call_text ? "two" : "two, content" :
                                       c->roles.call_text ? "" : "content"));
    add_str(&out, "text", text);
    add_str(&out, "content", pi__answer_content(a));
    add_str(&out, "reasoning", pi__answer_reasoning(a));
    pi__text_str(&out, ", \"calls\": [");
    pi_chat_call call = {.size = sizeof call};
    for (uint32_t i = 0; pi__answer_call(a, i, &call); i++) {
        pi__text_str(&out, i ? ", [\"" : "[\"");
        pi__text_str(&out, call.name);
        pi__text_str(&out, "\", ");
        pi__text_str(&out, call.arguments);
        pi__text_str(&out, "]");
    }
    pi__text_str(&out, "]}");
    pi__answer_free(a);
    return out;
}

int main(int argc, char **argv)
{
    char *line[4];
    if (argc < 3) return 64;
    for (int i = 0; i < 4; i++) {
        line[i] = calloc(1, LINE);
        if (!fgets(line[i], LINE, stdin)) return 2;
        line[i][strcspn(line[i], "\n")] = 0;
    }
    pi_error err = {0};
    pi__gguf *g = NULL;
    pi__vocab *v = NULL;
    pi__chat *c = NULL;
    char *tmpl = read_template(argv[2]);
    int rc = pi__gguf_open(&g, argv[1], PI__LOAD_MMAP, &err);
    if (!rc) rc = pi__vocab_load(&v, g, &err);
    if (!rc) rc = pi__chat_new(&c, v, tmpl, NULL, &err);
    if (rc) {
        fprintf(stderr, "%s\n", err.msg);
        return 2;
    }
    pi__text before = {0}, all = {0};
    rc = pi__chat_render(c, line[0], line[2], line[3], 0, &before, &err);
    line[3][strlen(line[3]) - 1] = 0; /* a JSON object, possibly empty */
    char options[1024];
    snprintf(options, sizeof options, "%s%s\"add_generation_prompt\": false}", line[3],
             strlen(line[3]) > 1 ? ", " : "");
    if (!rc) rc = pi__chat_render(c, line[1], line[2], options, 0, &all, &err);
    strcat(line[3], "}");
    size_t same = 0;
    while (!rc && same < before.n && same < all.n && before.p[same] == all.p[same]) same++;
    /* If the two differ within a tag, the answer starts with that tag. */
    size_t tag = same;
    while (tag && all.p[tag - 1] != '<' && all.p[tag - 1] != '>') tag--;
    if (same < before.n && tag && all.p[tag - 1] == '<') same = tag - 1;
    /* The prompt may open a thought that the template omits from an answer without one. */
    int open = rc || same == before.n ? -1 : pi__thought_open_at_end(before.p, before.n);
    const char *closed = open < 0 || !strncmp(all.p + same, "</", 2) ? NULL : pi__thought_tags_of[open].close;
    const pi__str text = {all.p ? all.p + same : "", all.n - same};
    pi__text whole = rc ? (pi__text) {0} : parse(c, line, closed, text, SIZE_MAX / 2);
    pi__text bytes = rc ? (pi__text) {0} : parse(c, line, closed, text, 1);
    bool agree = whole.n == bytes.n && (!whole.n || !memcmp(whole.p, bytes.p, whole.n));
    if (rc) printf("{}\n"), fprintf(stderr, "%s\n", err.msg);
    else printf("%.*s\n", (int) whole.n, whole.p);
    if (!agree) fprintf(stderr, "byte by byte: %.*s\n", (int) bytes.n, bytes.p);
    pi__free(whole.p);
    pi__free(bytes.p);
    pi__free(before.p);
    pi__free(all.p);
    pi__chat_free(c);
    pi__vocab_free(v);
    pi__gguf_close(g);
    for (int i = 0; i < 4; i++) free(line[i]);
    free(tmpl);
    return !agree;
}
