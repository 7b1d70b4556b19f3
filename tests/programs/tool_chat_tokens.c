/* Renders prompts whose messages try to inject control tokens, for check_prompts.py:
 *
 *     tool_chat_tokens VOCAB.GGUF TEMPLATE CONVERSATIONS N SEED
 *
 * CONVERSATIONS has three lines of JSON per conversation: messages, tools and options, with "@@" as the mark for
 * inserted text.
 * 1. With nothing inserted, the ids must equal the ids of rendering and then tokenizing.
 * 2. N prompts get the text of random control tokens and markup inserted. Their control tokens must equal the control
 *    tokens that a plain word in these positions gives. If the template inspects the text and writes something else,
 *    they must equal the control tokens of the template's own text, run by run.
 * Prints "same N hijack N looked N refused N" and any errors; exits with 1 on an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "template/chat_impl.h"
#include "tokenizer/vocab_impl.h"

enum { LINE = 1 << 20, BAIT = 4096 };

static uint64_t rng;
static uint32_t draw(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (rng >> 33) % n;
}

static const pi__vocab *v;
static int32_t bait[BAIT]; /* [n_bait] tokens whose text is inserted into messages */
static uint32_t n_bait;
static uint8_t *markup;

static bool guarded(int32_t id)
{
    const pi__trust t = {NULL, markup};
    return pi__trust_guards(v, &t, id);
}

static void find_bait(void)
{
    for (int32_t id = 0; id < v->n_tok; id++) {
        pi__str s = pi__vocab_spelling(v, id);
        bool plain = s.n > 2;
        for (size_t i = 0; i < s.n; i++) plain &= s.p[i] != '"' && s.p[i] != '\\' && (unsigned char) s.p[i] >= 32;
        if (!plain || !guarded(id)) continue;
        if (n_bait < BAIT) bait[n_bait++] = id;
        else bait[draw(BAIT)] = id;
    }
}

enum { NOTHING, WORD, TEXT };

/* Returns json with its marks replaced. */
static char *fill(const char *json, int with)
{
    static char buf[3][LINE * 2];
    static int turn;
    char *to = buf[turn++ % 3], *at = to;
    for (const char *p = json; *p;) {
        if (p[0] != '@' || p[1] != '@') {
            *at++ = *p++;
            continue;
        }
        p += 2;
        for (uint32_t k = with == NOTHING ? 0 : 1 + draw(3); k && at - to < LINE; k--) {
            pi__str s = with == WORD ? pi__str_of("zq") : pi__vocab_spelling(v, bait[draw(n_bait)]);
            memcpy(at, s.p, s.n);
            at += s.n;
        }
    }
    *at = 0;
    return to;
}

typedef struct prompt {
    pi__ids ids;
    pi__text text;
} prompt;

static bool make(const pi__chat *c, char *const line[3], int with, prompt *out)
{
    pi_error err;
    size_t n_images;
    *out = (prompt) {0};
    const char *tools = strcmp(line[1], "null") ? line[1] : NULL;
    char *m = fill(line[0], with), *t = tools ? fill(tools, with) : NULL;
    return !pi__chat_tokens(c, m, t, line[2], 1770000000, &out->ids, &out->text, &n_images, &err);
}

static void drop(prompt *p)
{
    pi__free(p->ids.p);
    pi__free(p->text.p);
}

static void keep_guarded(pi__ids *ids)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++)
        if (guarded(ids->p[i])) ids->p[n++] = ids->p[i];
    ids->n = n;
}

static bool equal(const pi__ids *a, const pi__ids *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n * sizeof *a->p));
}

/* Returns the control tokens of the template's own text, each run tokenized separately. */
static pi__ids of_runs(const prompt *p)
{
    pi__ids out = {0};
    const char *trust = pi__text_trust(&p->text);
    if (v->add_bos && v->bos >= 0) pi__tokenize(v, "", 0, true, true, &out);
    for (size_t i = 0, end; i < p->text.n; i = end) {
        for (end = i + 1; end < p->text.n && trust[end] == trust[i]; end++) {}
        if (trust[i]) pi__tokenize(v, p->text.p + i, end - i, false, true, &out);
    }
    if (v->add_eos && v->eos >= 0) out.n++, out.p = realloc(out.p, out.n * 4), out.p[out.n - 1] = v->eos;
    keep_guarded(&out);
    return out;
}

static bool check_same(const pi__chat *c, char *const line[3])
{
    prompt p;
    pi__ids plain = {0};
    pi__text text = {0};
    pi_error err;
    if (!make(c, line, NOTHING, &p)) return true;
    const char *tools = strcmp(line[1], "null") ? line[1] : NULL;
    char *m = fill(line[0], NOTHING), *t = tools ? fill(tools, NOTHING) : NULL;
    int rc = pi__chat_render(c, m, t, line[2], 1770000000, &text, &err);
    if (!rc) rc = pi__tokenize(v, text.p ? text.p : "", text.n, true, true, &plain);
    bool ok = !rc && text.n == p.text.n && !memcmp(text.p ? text.p : "", p.text.p ? p.text.p : "", text.n) &&
              equal(&p.ids, &plain);
    for (size_t i = 0; !ok && i < plain.n && i < p.ids.n; i++) {
        if (plain.p[i] == p.ids.p[i]) continue;
        pi__str a = pi__vocab_spelling(v, plain.p[i]), b = pi__vocab_spelling(v, p.ids.p[i]);
        printf("  token %zu: '%.*s' in plain text, here '%.*s'\n", i, (int) a.n, a.p, (int) b.n, b.p);
        break;
    }
    drop(&p);
    pi__free(plain.p);
    pi__free(text.p);
    return ok;
}

int main(int argc, char **argv)
{
    static char buf[3][LINE];
    if (argc < 6) return 64;
    pi_error err = {0};
    pi__gguf *g = NULL;
    pi__vocab *vocab = NULL;
    pi__chat *c = NULL;
    size_t n_tmpl = 0, n_same = 0, n_hijack = 0, n_looked = 0, n_refused = 0, n_bad = 0;
    char *tmpl = calloc(1, LINE);
    FILE *f = fopen(argv[2], "rb");
    if (f) n_tmpl = fread(tmpl, 1, LINE - 1, f), fclose(f);
    int rc = n_tmpl ? pi__gguf_open(&g, argv[1], PI__LOAD_MMAP, &err) : PI_EIO;
    if (!rc) rc = pi__vocab_load(&vocab, g, &err);
    v = vocab;
    if (!rc) rc = pi__chat_new(&c, v, tmpl, NULL, &err);
    if (rc || !(f = fopen(argv[3], "rb"))) {
        fprintf(stderr, "%s %s: %s\n", argv[1], argv[2], err.msg);
        return 2;
    }
    markup = pi__trust_markup(v, tmpl, n_tmpl);
    rng = (uint64_t) atoll(argv[5]);
    find_bait();
    long n = atol(argv[4]);
    for (char *line[3] = {buf[0], buf[1], buf[2]};;) {
        bool more = true;
        for (int i = 0; i < 3; i++) more = more && fgets(line[i], LINE, f);
        if (!more) break;
        for (int i = 0; i < 3; i++) line[i][strcspn(line[i], "\n")] = 0;
        n_same++;
        if (!check_same(c, line)) {
            printf("  other ids than in plain text: %.200s\n", line[0]);
            n_bad++;
        }
        for (long k = 0; k < n && n_bait; k++) {
            prompt word, text;
            bool a = make(c, line, WORD, &word), b = make(c, line, TEXT, &text);
            n_refused += !b;
            n_hijack += b;
            keep_guarded(&text.ids);
            keep_guarded(&word.ids);
            if (b && (!a || !equal(&word.ids, &text.ids))) {
                pi__ids own = of_runs(&text);
                n_looked++;
                if (!equal(&own, &text.ids)) {
                    printf("  hijacked (%zu control tokens, the template's %zu): %.*s\n", text.ids.n, own.n,
                           (int) text.text.n, text.text.p);
                    n_bad++;
                }
                free(own.p);
            }
            drop(&word);
            drop(&text);
        }
    }
    printf("same %zu hijack %zu looked %zu refused %zu\n", n_same, n_hijack, n_looked, n_refused);
    fclose(f);
    free(tmpl);
    pi__free(markup);
    pi__chat_free(c);
    pi__vocab_free(vocab);
    pi__gguf_close(g);
    return n_bad != 0;
}
