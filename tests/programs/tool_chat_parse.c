/* Parses model answers for suite_canitoolcall.py: tool_chat_parse VOCAB.GGUF, with one JSON object per line on
 * standard input:
 *
 *     {"template": text, "tools": [...], "options": {...}, "cut": false, "text": "...", "splits": [[3, 1, ...], ...]}
 *
 * Each entry of splits cuts the text into pieces of these byte counts; the rest is the last piece. Prints one JSON
 * list per line: the parse of the uncut text, then one parse per split: {"content", "reasoning", "calls": [[name,
 * arguments]]}. Arguments are text. Streams are read from deltas, as a client reads them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "template/answer.h"
#include "template/chat_impl.h"

enum { LINE = 4 << 20, MAX_CALLS = 64 };

typedef struct parsed {
    pi__text content, reasoning, args[MAX_CALLS];
    char name[MAX_CALLS][256];
    bool done[MAX_CALLS];
    uint32_t n;
} parsed;

static void put_str(pi__text *t, pi__str s)
{
    const pi__json_style style = pi__json_plain();
    const pi__val v = pi__val_str(s);
    const char *what;
    pi__text_json(t, &v, &style, &what);
}

/* Collects deltas as a client does, and keeps only completed calls. */
static void take(pi__answer *a, parsed *p)
{
    pi_chat_delta d = {.size = sizeof d};
    while (pi__answer_next(a, &d)) {
        const uint32_t i = d.index;
        if (d.kind == PI_CHAT_CONTENT) pi__text_add(&p->content, d.text, d.text_len);
        else if (d.kind == PI_CHAT_REASONING) pi__text_add(&p->reasoning, d.text, d.text_len);
        else if (i >= MAX_CALLS) exit(3);
        else if (d.kind == PI_CHAT_CALL) snprintf(p->name[i], sizeof p->name[i], "%s", d.name), p->args[i].n = 0;
        else if (d.kind == PI_CHAT_ARGUMENTS) pi__text_add(&p->args[i], d.text, d.text_len);
        else if (d.kind == PI_CHAT_CALL_END) p->done[i] = true;
        if (d.kind >= PI_CHAT_CALL && i >= p->n) p->n = i + 1;
    }
}

static void print(pi__text *out, parsed *p)
{
    pi__text_str(out, "{\"content\": ");
    put_str(out, (pi__str) {p->content.p ? p->content.p : "", p->content.n});
    pi__text_str(out, ", \"reasoning\": ");
    put_str(out, (pi__str) {p->reasoning.p ? p->reasoning.p : "", p->reasoning.n});
    pi__text_str(out, ", \"calls\": [");
    bool first = true;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->done[i]) {
            pi__text_str(out, first ? "[" : ", [");
            put_str(out, pi__str_of(p->name[i]));
            pi__text_str(out, ", ");
            put_str(out, (pi__str) {p->args[i].p ? p->args[i].p : "", p->args[i].n});
            pi__text_str(out, "]");
            first = false;
        }
        pi__free(p->args[i].p);
    }
    pi__text_str(out, "]}");
    pi__free(p->content.p);
    pi__free(p->reasoning.p);
}

/* `split`: a list of byte counts; NULL = the text in one piece */
static void parse(const pi__chat *c, const char *tools, const char *options, bool cut, pi__str text,
                  const pi__list *split, pi__text *out)
{
    static parsed p;
    pi__answer *a = NULL;
    pi_error err = {0};
    p = (parsed) {.content = {.limit = LINE}, .reasoning = {.limit = LINE}};
    for (int i = 0; i < MAX_CALLS; i++) p.args[i].limit = LINE;
    if (pi__answer_new(&a, c, tools, options, 0, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(2);
    }
    size_t at = 0;
    for (size_t i = 0; split && i < split->n; i++) {
        const size_t n = (size_t) split->v[i].i < text.n - at ? (size_t) split->v[i].i : text.n - at;
        pi__answer_feed(a, text.p + at, n);
        take(a, &p);
        at += n;
    }
    pi__answer_feed(a, text.p + at, text.n - at);
    pi__answer_end(a, cut);
    take(a, &p);
    pi__answer_free(a);
    print(out, &p);
}

static const pi__val *member(const pi__val *v, const char *key)
{
    const pi__val *m = pi__dict_get_str(v->map, key);
    if (!m) fprintf(stderr, "%s is missing\n", key), exit(2);
    return m;
}

static char *json_of(const pi__val *v)
{
    const pi__json_style style = pi__json_plain();
    const char *what;
    pi__text t = {.limit = LINE};
    pi__text_json(&t, v, &style, &what);
    pi__text_add(&t, "", 1);
    return t.p;
}

static void run(const pi__vocab *v, const char *line)
{
    pi__zone z;
    pi__val in;
    pi_error err = {0};
    pi__chat *c = NULL;
    pi__zone_init(&z, 64 << 20);
    if (pi__json_read(&z, line, strlen(line), "the line", &in, &err) || in.type != PI__V_MAP) exit(2);
    const pi__str source = member(&in, "template")->s;
    char *text = strndup(source.p, source.n), *tools = json_of(member(&in, "tools")),
         *options = json_of(member(&in, "options"));
    if (pi__chat_new(&c, v, text, NULL, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(2);
    }
    const pi__list *splits = member(&in, "splits")->list;
    pi__text out = {.limit = 64 << 20};
    pi__text_str(&out, "[");
    for (size_t i = 0; i <= splits->n; i++) {
        if (i) pi__text_str(&out, ", ");
        parse(c, tools, options, member(&in, "cut")->b, member(&in, "text")->s, i ? splits->v[i - 1].list : NULL, &out);
    }
    printf("%.*s]\n", (int) out.n, out.p);
    pi__free(out.p);
    pi__free(tools);
    pi__free(options);
    free(text);
    pi__chat_free(c);
    pi__zone_free(&z);
}

int main(int argc, char **argv)
{
    pi_error err = {0};
    pi__gguf *g = NULL;
    pi__vocab *v = NULL;
    char *line = malloc(LINE);
    if (argc < 2 || !line) return 64;
    int rc = pi__gguf_open(&g, argv[1], PI__LOAD_MMAP, &err);
    if (!rc) rc = pi__vocab_load(&v, g, &err);
    if (rc) fprintf(stderr, "%s\n", err.msg);
    while (!rc && fgets(line, LINE, stdin)) run(v, line);
    pi__vocab_free(v);
    pi__gguf_close(g);
    free(line);
    return rc ? 2 : 0;
}
