/* Structured output for check_schemas.py: tool_grammar MODEL.gguf
 *
 * Reads one command per line, a JSON list, and responds to each with one line of JSON:
 *     ["match", KIND, GRAMMAR, [TEXT, ...]]      [true, false, ...]: the grammar accepts the text or not
 *     ["generate", KIND, GRAMMAR, SEED, N]       {"text": ..., "n": TOKENS, "done": BOOL}: random tokens under masks
 *     ["time", KIND, GRAMMAR, SEED, N]           like "generate" without text, with times in milliseconds
 *     ["bench", KIND, GRAMMAR, [TEXT, ...]]      {"texts": [BOOL, ...], "compile_ms": MS, "bytes": N, "steps": N,
 *                                                 "n_masks": N, "median_us": US, "p99_us": US, "max_us": US}:
 *                                                 each text cut into the model's tokens; mask and compile times
 *                                                 are CPU time
 *     ["verify", KIND, GRAMMAR, SEED, N]         {"n": TOKENS, "wrong": N}: random tokens; wrong = number of mask
 *                                                 bits that differ from advancing a matcher by the token
 *     ["totals"]                                 the fields of "bench" over all "bench" commands so far, and
 *                                                 "compile_p99_ms"
 *
 * If the grammar is refused, the response is {"error": ..., "code": PI_E...}. KIND: 0 GBNF, 1 JSON Schema, 2 regular
 * expression, 3 choice. A file of commands on standard input that ends with ["totals"] is a benchmark. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "grammar/grammar.h"
#include "template/value.h"

static pi__vocab *vocab;
static pi__grammars *grammars;

static void say(const pi__val *v)
{
    pi__text t = {.limit = 64 << 20};
    const pi__json_style style = pi__json_plain();
    const char *what;
    if (!pi__text_json(&t, v, &style, &what)) exit(2);
    printf("%.*s\n", (int) t.n, t.p);
    fflush(stdout);
    pi__free(t.p);
}

static void set(pi__zone *z, pi__val *map, const char *key, pi__val v)
{
    if (!pi__dict_set_str(z, map->map, key, v)) exit(2);
}

/* True if the text, cut into the vocabulary's tokens, leads from the start of the grammar to an accepting state. */
static bool matches(pi__grammar *g, pi__str text)
{
    pi__matcher *m;
    pi__mask mask;
    bool ok = true;
    if (pi__matcher_create(&m, g, NULL)) exit(2);
    for (size_t i = 0; i < text.n && ok; i++) { /* byte by byte, because the tokenizer may prepend a space */
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned char) text.p[i]);
        const int32_t id = pi__vocab_find(vocab, name, strlen(name));
        ok = pi__matcher_mask(m, true, &mask, NULL) == PI_OK && mask.n && pi__mask_has(&mask, id) &&
             !pi__matcher_accept(m, id, NULL);
    }
    ok = ok && pi__matcher_mask(m, true, &mask, NULL) == PI_OK &&
         (!mask.n || pi__mask_has(&mask, pi__vocab_eos(vocab)));
    pi__matcher_free(m);
    return ok;
}

static uint64_t rng;
static uint32_t random31(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (rng >> 33);
}

/* Returns an allowed token; sometimes prefers closing tokens, so that texts end. */
static int32_t pick(const pi__mask *mask, size_t so_far)
{
    const bool close = random31() % 8 < 2 + so_far / 40;
    int32_t best = -1;
    uint32_t seen = 0;
    for (int32_t id = 0; id < pi__vocab_size(vocab); id++) {
        if (!pi__mask_has(mask, id)) continue;
        char b[64];
        const size_t n = pi__token_bytes(vocab, id, false, b, sizeof b);
        const bool closes = pi__vocab_is_eog(vocab, id) || (n == 1 && strchr("\"}]", b[0]));
        const uint32_t weight = close && closes ? 1000 : 1;
        seen += weight;
        if (random31() % seen < weight) best = id;
    }
    return best;
}

static void generate(pi__zone *z, pi__grammar *g, const pi__list *l, bool timed)
{
    pi__matcher *m;
    pi__mask mask;
    pi__text t = {.limit = 1 << 20};
    pi__val out;
    pi_error err = {0};
    int64_t n = 0;
    int rc = pi__matcher_create(&m, g, &err);
    rng = (uint64_t) l->v[3].i * 7919 + 1;
    while (!rc && n < l->v[4].i) {
        char b[256];
        rc = pi__matcher_mask(m, true, &mask, &err);
        if (rc || !mask.n) break;
        const int32_t id = pick(&mask, (size_t) n);
        if (pi__vocab_is_eog(vocab, id)) {
            if (!pi__matcher_accept(m, id, &err)) break;
        }
        rc = pi__matcher_accept(m, id, &err);
        const size_t len = pi__token_bytes(vocab, id, false, b, sizeof b);
        pi__text_add(&t, b, len < sizeof b ? len : sizeof b);
        n++;
    }
    if (!pi__val_new_map(z, &out)) exit(2);
    if (rc) set(z, &out, "error", pi__val_str(pi__str_of(err.msg)));
    if (!timed) set(z, &out, "text", pi__val_str((pi__str) {t.p ? t.p : "", t.n}));
    set(z, &out, "n", pi__val_int(n));
    set(z, &out, "done", pi__val_bool(pi__matcher_is_over(m)));
    if (timed) {
        pi__grammar_counts c;
        pi__grammar_count(g, &c);
        set(z, &out, "compile_ms", pi__val_float(c.compile_ms));
        set(z, &out, "masks", pi__val_int((int64_t) c.n_masks_made));
        set(z, &out, "mask_ms", pi__val_float(c.n_masks_made ? c.mask_ms / (double) c.n_masks_made : 0));
        set(z, &out, "mask_max_ms", pi__val_float(c.mask_max_ms));
        set(z, &out, "states", pi__val_int((int64_t) c.n_states));
    }
    say(&out);
    pi__free(t.p);
    pi__matcher_free(m);
}

/* ------------------------------------------------------------------------------------------------------- benchmark */

typedef struct times { double *v; size_t n, cap; } times;

static times mask_us, compile_ms; /* over all commands */
static size_t all_bytes;          /* maximum of one grammar */

static void add_time(times *t, double v)
{
    if (!pi__grow(&t->v, &t->cap, t->n + 1, sizeof *t->v)) exit(2);
    t->v[t->n++] = v;
}

static int by_value(const void *x, const void *y)
{
    const double a = *(const double *) x, b = *(const double *) y;
    return a < b ? -1 : a > b;
}

/* Returns the sorted times' value at index share * n. */
static double rank(times *t, double share)
{
    if (!t->n) return 0;
    qsort(t->v, t->n, sizeof *t->v, by_value);
    const size_t k = (size_t) (share * (double) t->n);
    return t->v[k < t->n ? k : t->n - 1];
}

static void set_times(pi__zone *z, pi__val *out, times *t)
{
    set(z, out, "n_masks", pi__val_int((int64_t) t->n));
    set(z, out, "median_us", pi__val_float(rank(t, 0.5)));
    set(z, out, "p99_us", pi__val_float(rank(t, 0.99)));
    set(z, out, "max_us", pi__val_float(rank(t, 1)));
}

/* Checks that the text's tokens are allowed in sequence, and then the end. Adds the time of each mask. */
static bool walk(pi__grammar *g, pi__str text, times *t)
{
    pi__matcher *m;
    pi__mask mask = {0};
    pi__ids ids = {0};
    if (pi__matcher_create(&m, g, NULL) || pi__tokenize(vocab, text.p, text.n, false, false, &ids)) exit(2);
    bool ok = true;
    for (size_t i = 0; i <= ids.n && ok; i++) {
        const double start = pi__thread_ms();
        ok = pi__matcher_mask(m, true, &mask, NULL) == PI_OK;
        add_time(t, (pi__thread_ms() - start) * 1e3);
        if (i == ids.n) ok = ok && (!mask.n || pi__mask_has(&mask, pi__vocab_eos(vocab)));
        else ok = ok && mask.n && pi__mask_has(&mask, ids.p[i]) && !pi__matcher_accept(m, ids.p[i], NULL);
    }
    pi__free(ids.p);
    pi__matcher_free(m);
    return ok;
}

static void bench(pi__zone *z, pi__grammar *g, const pi__list *l, double ms)
{
    pi__val out, texts;
    times t = {0};
    pi__grammar_counts c;
    if (!pi__val_new_map(z, &out) || !pi__val_new_list(z, 4, &texts)) exit(2);
    for (size_t i = 0; i < l->v[3].list->n; i++)
        if (!pi__list_add(z, texts.list, pi__val_bool(walk(g, l->v[3].list->v[i].s, &t)))) exit(2);
    pi__grammar_count(g, &c);
    set(z, &out, "texts", texts);
    set(z, &out, "compile_ms", pi__val_float(ms));
    set(z, &out, "bytes", pi__val_int((int64_t) c.bytes));
    set(z, &out, "steps", pi__val_int((int64_t) c.work));
    set_times(z, &out, &t);
    say(&out);
    add_time(&compile_ms, ms);
    for (size_t i = 0; i < t.n; i++) add_time(&mask_us, t.v[i]);
    if (c.bytes > all_bytes) all_bytes = c.bytes;
    pi__free(t.v);
}

static void totals(pi__zone *z)
{
    pi__val out;
    if (!pi__val_new_map(z, &out)) exit(2);
    set(z, &out, "n_grammars", pi__val_int((int64_t) compile_ms.n));
    set(z, &out, "compile_ms", pi__val_float(rank(&compile_ms, 0.5)));
    set(z, &out, "compile_p99_ms", pi__val_float(rank(&compile_ms, 0.99)));
    set(z, &out, "compile_max_ms", pi__val_float(rank(&compile_ms, 1)));
    set(z, &out, "bytes", pi__val_int((int64_t) all_bytes));
    set_times(z, &out, &mask_us);
    say(&out);
}

static void verify(pi__zone *z, pi__grammar *g, const pi__list *l)
{
    pi__matcher *m;
    pi__mask mask;
    pi__val out;
    int64_t n = 0, wrong = 0;
    if (pi__matcher_create(&m, g, NULL)) exit(2);
    rng = (uint64_t) l->v[3].i * 7919 + 1;
    for (; n < l->v[4].i && pi__matcher_mask(m, true, &mask, NULL) == PI_OK && mask.n; n++) {
        for (int32_t id = 0; id < pi__vocab_size(vocab); id++)
            wrong += !pi__vocab_is_eog(vocab, id) &&
                     pi__mask_has(&mask, id) != (pi__matcher_count(m, &id, 1) == 1);
        if (pi__matcher_accept(m, pick(&mask, (size_t) n), NULL)) break;
    }
    pi__matcher_free(m);
    if (!pi__val_new_map(z, &out)) exit(2);
    set(z, &out, "n", pi__val_int(n));
    set(z, &out, "wrong", pi__val_int(wrong));
    say(&out);
}

static void command(const char *line, size_t n)
{
    pi__zone z;
    pi__val v, out;
    pi_error err = {0};
    pi__grammar *g = NULL;
    pi__zone_init(&z, (size_t) 256 << 20);
    if (pi__json_read(&z, line, n, "the command", &v, &err) || v.type != PI__V_LIST ||
        (v.list->n < 4 && v.list->n != 1)) {
        fprintf(stderr, "%s\n", err.msg);
        exit(2);
    }
    const pi__list *l = v.list;
    if (l->n == 1) {
        totals(&z);
        pi__zone_free(&z);
        return;
    }
    char *text = strndup(l->v[2].s.p, l->v[2].s.n);
    const pi__grammar_spec spec = {(int) l->v[1].i, text, NULL, 0};
    const double start = pi__thread_ms();
    const int rc = pi__grammar_get(grammars, &spec, &g, &err);
    const double ms = pi__thread_ms() - start;
    if (rc) {
        if (!pi__val_new_map(&z, &out)) exit(2);
        set(&z, &out, "code", pi__val_int(err.code));
        set(&z, &out, "error", pi__val_str(pi__str_of(err.msg)));
        say(&out);
    } else if (pi__str_is(l->v[0].s, "match")) {
        if (!pi__val_new_list(&z, 4, &out)) exit(2);
        for (size_t i = 0; i < l->v[3].list->n; i++)
            if (!pi__list_add(&z, out.list, pi__val_bool(matches(g, l->v[3].list->v[i].s)))) exit(2);
        say(&out);
    } else if (pi__str_is(l->v[0].s, "verify")) {
        verify(&z, g, l);
    } else if (pi__str_is(l->v[0].s, "bench")) {
        bench(&z, g, l, ms);
    } else {
        generate(&z, g, l, pi__str_is(l->v[0].s, "time"));
    }
    pi__grammar_release(g);
    free(text);
    pi__zone_free(&z);
}

int main(int argc, char **argv)
{
    pi_error err = {0};
    pi__gguf *file;
    if (argc < 2) return 2;
    int rc = pi__gguf_open(&file, argv[1], PI__LOAD_MMAP, &err);
    if (!rc) rc = pi__vocab_load(&vocab, file, &err);
    if (!rc) rc = pi__grammars_create(&grammars, vocab, pi__vocab_size(vocab), NULL, 0, &err);
    if (rc) {
        fprintf(stderr, "%s\n", err.msg);
        return 2;
    }
    pi__gguf_close(file);
    /* the first grammar also builds the vocabulary's trie; no benchmark includes this time */
    pi__grammar *first = NULL;
    if (!pi__grammar_get(grammars, &(pi__grammar_spec) {PI__GRAMMAR_GBNF, "root ::= \"a\"", NULL, 0}, &first, &err))
        pi__grammar_release(first);
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) command(line, (size_t) n);
    free(line);
    pi__free(mask_us.v);
    pi__free(compile_ms.v);
    pi__grammars_free(grammars);
    pi__vocab_free(vocab);
    return 0;
}
