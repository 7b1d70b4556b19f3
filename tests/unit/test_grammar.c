/* Grammars. Masks equal a direct evaluation of the grammar, for every token and any tokenization of the text. Invalid
 * grammars are refused with line and reason. Cleaning full tables changes no mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "counting_alloc.h"
#include "grammar/grammar.h"
#include "grammar/machine.h"
#include "vocab_seed.h"

#include <pthread.h>
#include <sched.h>

static uint64_t rng = 1;
static uint32_t random31(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (rng >> 33);
}

/* ---------------------------------------------------------------------------------------------------- vocabularies */

static pi__vocab *load(const seed *s)
{
    pi__vocab *v;
    pi_error err = {0};
    if (seed_load(s, &v, &err)) fail_msg("refused: %s", err.msg);
    return v;
}

/* A vocabulary with bytes, words over a, b and é, and cut characters; tokens that start or end inside a character are
 * bytes. */
static pi__vocab *letters(void)
{
    static const char *const texts[] = {"a", "b", "ab", "ba", "aa", "bb", "aba", "\xC3\xA9", "a\xC3\xA9",
                                        "\xC3\xA9\xC3\xA9", "\xC3\xA9" "b", "bab", "{\"", "\":", "\",", "\"}", "12",
                                            "true", "\xE2\x80\xA8", "a\xC2\xA0" "b", "\xE3\x80\x80",
                                            "\xE2\x80\xAE", "a\xF0\x9F\x98\x80"};
    seed s;
    memset(&s, 0, sizeof s);
    s.model = "llama";
    seed_tok(&s, "<unk>", PI__TOK_UNKNOWN, 0);
    seed_tok(&s, "<s>", PI__TOK_CONTROL, 0);
    seed_tok(&s, "</s>", PI__TOK_CONTROL, 0);
    seed_hex_bytes(&s);
    seed_tok(&s, "<call>", PI__TOK_CONTROL, 0);
    seed_tok(&s, "<stop>", PI__TOK_USER, 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) seed_tok(&s, texts[i], PI__TOK_NORMAL, -1);
    return load(&s);
}

static pi__vocab *vocab;
static pi__grammars *all;

static pi__matcher *matcher(int kind, const char *text, const char *trigger)
{
    pi_error err = {0};
    pi__grammar *g;
    pi__matcher *m;
    const pi__grammar_spec spec = {kind, text, trigger, 0};
    if (pi__grammar_get(all, &spec, &g, &err)) fail_msg("%s: %s", text, err.msg);
    assert_int_equal(pi__matcher_create(&m, g, &err), PI_OK);
    pi__grammar_release(g);
    return m;
}

static size_t token_text(int32_t id, char *out) { return pi__token_bytes(vocab, id, false, out, 64); }
static int32_t token(const char *spelling)
{
    const int32_t id = pi__vocab_find(vocab, spelling, strlen(spelling));
    assert_true(id >= 0);
    return id;
}

static bool allowed(pi__matcher *m, int32_t id)
{
    pi__mask mask;
    pi_error err;
    assert_int_equal(pi__matcher_mask(m, true, &mask, &err), PI_OK);
    return pi__mask_has(&mask, id);
}

/* Feeds bytes as byte tokens. */
static void feed(pi__matcher *m, const char *text)
{
    char name[8];
    pi_error err = {0};
    for (; *text; text++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned char) *text);
        if (pi__matcher_accept(m, token(name), &err)) fail_msg("at \"%s\": %s", text, err.msg);
    }
}

/* True if the text is in the grammar's language: its bytes are allowed one by one, then the end. */
static bool matches(int kind, const char *grammar, const char *text)
{
    pi__matcher *m = matcher(kind, grammar, NULL);
    char name[8];
    bool ok = true;
    for (; *text && ok; text++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned char) *text);
        ok = allowed(m, token(name));
        if (ok) assert_int_equal(pi__matcher_accept(m, token(name), NULL), PI_OK);
        else assert_int_equal(pi__matcher_accept(m, token(name), NULL), PI_EINVAL);
    }
    ok = ok && allowed(m, 2);
    pi__matcher_free(m);
    return ok;
}

/* ----------------------------------------------------------------------------------------------- direct evaluation */

/* Texts of at most MOST letters of an alphabet of N bytes have an index. A language is one bit for each of its texts,
 * and one bit for each prefix of MOST letters of its longer texts. The languages of parts give the language of a
 * concatenation, choice or repetition, without any automaton. */
enum { N = 4, MOST = 5, TEXTS = 1 + 4 + 16 + 64 + 256 + 1024, MAX_RULES = 4 };
static const char letter[N] = {'a', 'b', '\xC3', '\xA9'};

typedef struct lang {
    uint8_t whole[TEXTS], start[TEXTS]; /* start: only prefixes of MOST letters */
} lang;

static int length_of(int t, int *first)
{
    int n = 0, base = 0, count = 1;
    for (; t >= base + count; n++) base += count, count *= N;
    *first = base;
    return n;
}

/* Returns the index of text x followed by y, truncated to MOST letters; *cut = true if it was truncated. */
static int join(int x, int y, bool *cut)
{
    int bx, by, n = length_of(x, &bx), k = length_of(y, &by), digits = x - bx, rest = y - by;
    *cut = n + k > MOST;
    for (int over = n + k - MOST; over > 0; over--) rest /= N;
    const int keep = *cut ? MOST - n : k;
    for (int i = 0; i < keep; i++) digits *= N;
    int base = 0, count = 1;
    for (int i = 0; i < n + keep; i++) base += count, count *= N;
    return base + digits + rest;
}

static void cat(lang *out, const lang *x, const lang *y)
{
    static int wholes[TEXTS], starts[TEXTS];
    int n = 0, k = 0;
    lang r = {0};
    bool cut, any = false;
    for (int t = 0; t < TEXTS; t++) {
        if (y->whole[t]) wholes[n++] = t;
        if (y->start[t]) starts[k++] = t;
    }
    any = n || k;
    for (int t = 0; t < TEXTS; t++) {
        if (x->start[t] && any) r.start[t] = 1;
        if (!x->whole[t]) continue;
        for (int i = 0; i < n; i++) {
            const int both = join(t, wholes[i], &cut);
            if (cut) r.start[both] = 1;
            else r.whole[both] = 1;
        }
        for (int i = 0; i < k; i++) r.start[join(t, starts[i], &cut)] = 1;
    }
    *out = r;
}

static void add(lang *out, const lang *x)
{
    for (int t = 0; t < TEXTS; t++) out->whole[t] |= x->whole[t], out->start[t] |= x->start[t];
}

static lang rule_lang[MAX_RULES];

/* Creates a random expression of the given size: appends its text to *p and writes its language to *out. Rules refer
 * to later rules only. */
static void random_expr(char **p, lang *out, int size, int rule, int n_rules)
{
    lang x, y;
    memset(out, 0, sizeof *out);
    const uint32_t pick = random31() % (size > 1 ? 9 : 3);
    if (pick == 0) {
        const int c = (int) (random31() % 2);
        *p += sprintf(*p, "\"%c\" ", letter[c]);
        out->whole[1 + c] = 1;
    } else if (pick == 1) {
        *p += sprintf(*p, "%s ", random31() % 2 ? "\"\xC3\xA9\"" : "[\\u00e9]");
        out->whole[1 + N + 2 * N + 3] = 1;
    } else if (pick == 2) {
        const bool both = random31() % 2;
        *p += sprintf(*p, both ? "[ab\xC3\xA9] " : "[a-b] ");
        out->whole[1] = out->whole[2] = 1;
        if (both) out->whole[1 + N + 2 * N + 3] = 1;
    } else if (pick <= 4 && rule + 1 < n_rules) {
        const int to = rule + 1 + (int) (random31() % (uint32_t) (n_rules - rule - 1));
        *p += sprintf(*p, "r%d ", to);
        *out = rule_lang[to];
    } else if (pick <= 5) {
        random_expr(p, &x, size / 2, rule, n_rules);
        random_expr(p, &y, size - size / 2, rule, n_rules);
        cat(out, &x, &y);
    } else if (pick == 6) {
        *p += sprintf(*p, "(");
        random_expr(p, &x, size / 2, rule, n_rules);
        *p += sprintf(*p, "| ");
        random_expr(p, &y, size - size / 2, rule, n_rules);
        *p += sprintf(*p, ") ");
        *out = x;
        add(out, &y);
    } else {
        const int min = (int) (random31() % 3), max = random31() % 3 ? min + (int) (random31() % 3) : -1;
        *p += sprintf(*p, "(");
        random_expr(p, &x, size - 1, rule, n_rules);
        *p += max < 0 ? sprintf(*p, "){%d,} ", min) : sprintf(*p, "){%d,%d} ", min, max);
        lang power = {.whole = {1}};
        for (int i = 0; i <= (max < 0 ? min + MOST + 1 : max); i++) { /* more letters than MOST change nothing */
            if (i >= min) add(out, &power);
            y = power;
            cat(&power, &y, &x);
        }
    }
}

/* Writes a random grammar without recursive rules; nesting() tests recursion. */
static void random_grammar(char *text)
{
    char body[MAX_RULES][4096];
    const int n_rules = 1 + (int) (random31() % MAX_RULES);
    for (int i = n_rules - 1; i >= 0; i--) {
        char *p = body[i];
        random_expr(&p, &rule_lang[i], 2 + (int) (random31() % 6), i, n_rules);
    }
    for (int i = 0; i < n_rules; i++) text += i ? sprintf(text, "r%d ::= %s\n", i, body[i]) : sprintf(text,
        "root ::= %s\n", body[i]);
}

/* Returns the index of a text over the alphabet, or -1. */
static int number_of(const char *s, size_t n)
{
    int t = 0, count = 1;
    if (n > MOST) return -1;
    for (size_t i = 0; i < n; i++) {
        const char *at = memchr(letter, s[i], N);
        if (!at) return -1;
        t = t * N + (int) (at - letter);
    }
    for (size_t i = 0; i < n; i++) t += count, count *= N;
    return t;
}

/* True if a text of the language starts with text t. */
static bool viable(const lang *l, int t)
{
    int first, n = length_of(t, &first), lo = t - first, width = 1, base = first, count = 1;
    for (int i = 0; i < n; i++) count *= N;
    for (; n <= MOST; n++, lo *= N, width *= N, base += count, count *= N)
        for (int k = 0; k < width; k++)
            if (l->whole[base + lo + k] || l->start[base + lo + k]) return true;
    return false;
}

static void masks_are_exact(void **state)
{
    (void) state;
    const int n_rounds = getenv("PI_TEST_EMULATED") ? 60 : 400;
    char text[32768];
    int checked = 0, n_texts = 0;
    for (int round = 0; round < n_rounds; round++) {
        pi_error err = {0};
        pi__grammar *g;
        pi__matcher *m;
        rng = (uint64_t) round * 977 + 5;
        random_grammar(text);
        const lang *l = &rule_lang[0];
        const int rc = pi__grammar_get(all, &(pi__grammar_spec) {PI__GRAMMAR_GBNF, text, NULL, 0}, &g, &err);
        if (rc) fail_msg("%s: %s", text, err.msg);
        for (int walk = 0; walk < 3; walk++) {
            char so_far[64];
            size_t n = 0;
            assert_int_equal(pi__matcher_create(&m, g, NULL), PI_OK);
            for (;;) {
                pi__mask mask;
                int32_t choice[512];
                size_t n_choices = 0;
                int counted = 0;
                if (pi__matcher_mask(m, true, &mask, &err)) fail_msg("%s", err.msg);
                for (int32_t id = 0; id < pi__vocab_size(vocab); id++) {
                    char next[128];
                    memcpy(next, so_far, n);
                    const bool bare = pi__vocab_attr(vocab, id) == PI__TOK_CONTROL || pi__vocab_attr(vocab, id) ==
                        PI__TOK_UNKNOWN;
                    const size_t len = bare ? 0 : token_text(id, next + n);
                    const int here = number_of(so_far, n), t = len ? number_of(next, n + len) : -1;
                    bool want = id == 2 ? l->whole[here] : t >= 0 && viable(l, t);
                    counted += pi__mask_has(&mask, id);
                    if (len && n + len > MOST) continue; /* the language is unknown for longer texts */
                    if (pi__mask_has(&mask, id) != want)
                        fail_msg("%s after \"%.*s\": token %d is %s", text, (int) n, so_far, id, want ? "missing"
                                 : "allowed");
                    checked++;
                    if (want && len) choice[n_choices++] = id;
                }
                assert_int_equal(mask.n, counted);
                if (!n_choices) break;
                const int32_t id = choice[random31() % n_choices];
                n += token_text(id, so_far + n);
                assert_int_equal(pi__matcher_accept(m, id, NULL), PI_OK);
                n_texts++;
            }
            pi__matcher_free(m);
        }
        pi__grammar_release(g);
    }
    assert_true(checked > 50 * n_rounds && n_texts > 5 * n_rounds / 4);
}

/* Masks decide complete subtrees of the vocabulary where possible; the result equals a test of each single token. */
static void masks_are_what_tokens_give(void **state)
{
    (void) state;
    static const pi__grammar_spec forms[] = {
        {PI__GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":5}", NULL, 0},
        {PI__GRAMMAR_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}}}", NULL,
         0},
        {PI__GRAMMAR_SCHEMA, "{}", NULL, 0},
        {PI__GRAMMAR_REGEX, ".{0,9}", NULL, 0},
        {PI__GRAMMAR_REGEX, ".*", NULL, 0},
        {PI__GRAMMAR_REGEX, "\\S{2,30}|\\s{1,2}", NULL, 0},
        {PI__GRAMMAR_REGEX, "[^a\\u00a0]{3}\\S*", NULL, 0},
        {PI__GRAMMAR_REGEX, "(a[^b]{0,3}){3,60}", NULL, 0},
        {PI__GRAMMAR_REGEX, "(.a?){5,}", NULL, 0},
        {PI__GRAMMAR_REGEX, "[ab]{0,3}[ab\u00e9]{2}|[^b]{1,4}b*", NULL, 0},
        {PI__GRAMMAR_REGEX, "(a|[b\u00e9]){2,4}", NULL, 0},
        {PI__GRAMMAR_GBNF, "root ::= [ab]{1,2} root | . . | !<call>", NULL, 0},
        {PI__GRAMMAR_GBNF, "root ::= .+", "[\"ab\", \"<call>\"]", 0},
        {PI__GRAMMAR_GBNF, "root ::= .+", "[\"ab\", \"<call>\"]", PI__THOUGHTS_MAY},
        {PI__GRAMMAR_GBNF, "root ::= .+", "[\"ab\", \"<call>\"]", PI__THOUGHTS_OPEN + 1},
    };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        for (int walk = 0; walk < 6; walk++) {
            pi__matcher *m = matcher(forms[f].kind, forms[f].text, forms[f].trigger);
            for (int k = 0; k < 12 && !pi__matcher_is_over(m); k++) {
                pi__mask mask;
                int32_t id = -1, n = 0;
                assert_int_equal(pi__matcher_mask(m, true, &mask, NULL), PI_OK);
                for (int32_t t = 0; t < pi__vocab_size(vocab); t++) {
                    const bool has = pi__mask_has(&mask, t);
                    if (has != (pi__matcher_count(m, &t, 1) == 1)) fail_msg("form %zu, token %d: %d", f, t, has);
                    const bool word = pi__vocab_attr(vocab, t) == PI__TOK_NORMAL; /* prefers words to bytes */
                    if (has && (word || random31() % 16 == 0) && random31() % (uint32_t) ++n == 0) id = t;
                }
                if (id < 0) id = mask.only;
                assert_int_equal(pi__matcher_accept(m, id, NULL), PI_OK);
            }
            pi__matcher_free(m);
        }
    }
}

/* Nested calls need a stack. */
static void nesting(void **state)
{
    (void) state;
    static const char balanced[] = "root ::= \"(\" root \")\" root | \"\"";
    for (int round = 0; round < 200; round++) {
        char text[64];
        int n = (int) (random31() % 24), depth = 0;
        bool ok = true;
        for (int i = 0; i < n; i++) {
            text[i] = random31() % 5 < 3 && i < n / 2 ? '(' : ')';
            depth += text[i] == '(' ? 1 : -1;
            ok &= depth >= 0;
        }
        text[n] = 0;
        assert_int_equal(matches(PI__GRAMMAR_GBNF, balanced, text), ok && !depth);
    }
    /* tail recursion needs no stack: tables do not grow with the length of the list */
    pi__matcher *m = matcher(PI__GRAMMAR_GBNF, "root ::= \"a\" root | \"b\"", NULL);
    for (int i = 0; i < 1000; i++) feed(m, "a");
    feed(m, "b");
    pi__mask mask;
    assert_int_equal(pi__matcher_mask(m, true, &mask, NULL), PI_OK);
    assert_int_equal(mask.n, 1);
    assert_int_equal(mask.only, 2);
    assert_int_equal(pi__matcher_accept(m, 2, NULL), PI_OK);
    assert_true(pi__matcher_is_over(m));
    pi__matcher_free(m);
}

/* ----------------------------------------------------------------------------------------------------------- forms */

static void gbnf(void **state)
{
    (void) state;
    static const struct { const char *grammar, *yes, *no; } cases[] = {
        {"root ::= \"a\" # a comment\n | \"b\" |\n \"c\"", "b", "d"},
        {"root::=x y\nx ::= [^a-c\\]]\n\ny-1 ::= \"\"\ny ::= \".\" y-1 ", "z.", "a."},
        {"root ::= .{2,3}", "\xC3\xA9\xE2\x82\xAC", "\xC3\xA9"},
        {"root ::= [\\x41\\u20ac\\U0001F600\\n-]+", "A-\n\xE2\x82\xAC\xF0\x9F\x98\x80", "B"},
        {"root ::= (\"a\"\n  \"b\"\n)* \"\\\"\\\\\\t\"", "abab\"\\\t", "aba\"\\\t"},
        {"root ::= \"x\"{2} \"y\"{,2} \"z\"{1,}", "xxyz", "xyz"},
        {"root ::= (\"a\"?){3} \"b\"", "aab", "aaaab"},
        {"root ::= (\"a\"* \"b\"*)* \"c\"", "abbac", "abd"},
        {"root ::= ((\"a\" | \"b\" \"c\"){2,3}){2}", "abcaabc", "abc"},
        {"root ::= \"a\" %json{\"type\": \"array\", \"items\": {\"enum\": [\"}\", 1]}} \"b\"", "a[\"}\", 1]b", "a[2]b"},
        {"root ::= \"if\" | \"in\" | \"int\" | \"\"", "int", "i"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!matches(PI__GRAMMAR_GBNF, cases[i].grammar, cases[i].yes)) fail_msg("%s: not \"%s\"", cases[i].grammar,
            cases[i].yes);
        if (matches(PI__GRAMMAR_GBNF, cases[i].grammar, cases[i].no)) fail_msg("%s: \"%s\"", cases[i].grammar,
                                                                               cases[i].no);
    }
}

static void regex(void **state)
{
    (void) state;
    static const struct { const char *regex, *yes, *no; } cases[] = {
        {"a|bc", "bc", "b"}, {"^(a|b){2,}?$", "abab", "a"}, {"[^\\d]+x?", "abx", "a1"}, {"\\w+@\\w+\\.(com|org)",
            "a_1@b.org", "a@b.net"},
        {".*", "\xC3\xA9 a", "a\nb"}, {"[\\s\\S]", "\n", ""}, {"a{,2}", "a{,2}", "aa"}, {"\\u0041\\x42\\u{1F600}\\cJ",
            "AB\xF0\x9F\x98\x80\n", "AB"},
        {"(?<year>[12]\\d{3})-(?:0[1-9]|1[0-2])", "2024-12", "2024-13"}, {"[a\\-z]+", "a-z", "b"}, {"[\\w-]+", "a-b",
            "a b"},
        {"\\ud83d\\ude00", "\xF0\x9F\x98\x80", "x"}, {"", "", "a"}, {"a||b", "", "c"}, {"[.+]\\/", "+/", "a/"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!matches(PI__GRAMMAR_REGEX, cases[i].regex, cases[i].yes)) fail_msg("%s: not \"%s\"", cases[i].regex,
                                                                                cases[i].yes);
        if (matches(PI__GRAMMAR_REGEX, cases[i].regex, cases[i].no)) fail_msg("%s: \"%s\"", cases[i].regex,
                                                                              cases[i].no);
    }
    assert_true(matches(PI__GRAMMAR_CHOICE, "[\"yes\", \"no\", \"n\\u00e9\"]", "n\xC3\xA9"));
    assert_false(matches(PI__GRAMMAR_CHOICE, "[\"yes\", \"no\"]", "n"));
}

static void refused(void **state)
{
    (void) state;
    static const struct { int kind; const char *text; int code; const char *why; } cases[] = {
        {PI__GRAMMAR_GBNF, "root ::= \"a\n", PI_EINVAL, "line 1, column 10: this text has no end"},
        {PI__GRAMMAR_GBNF, "root ::= a\nb ::= \"c\"", PI_EINVAL, "line 1, column 10: there is no rule a"},
        {PI__GRAMMAR_GBNF, "x ::= \"a\"", PI_EINVAL, "no rule root"},
        {PI__GRAMMAR_GBNF, "root ::= x\nx ::= y \"a\"\ny ::= \"\" | x \"b\"", PI_EINVAL, "begins with itself"},
        {PI__GRAMMAR_GBNF, "root ::= \"a\" root", PI_EINVAL, "allows no text"},
        {PI__GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", PI_EINVAL,
         "line 2, column 1: two rules have the same name: rename root"},
        {PI__GRAMMAR_GBNF, "root ::= [z-a]", PI_EINVAL, "column 11"},
        {PI__GRAMMAR_GBNF, "root ::= \"\\q\"", PI_EINVAL, "unknown escape"},
        {PI__GRAMMAR_GBNF, "root ::= <nothing>", PI_EINVAL, "no token <nothing>"},
        {PI__GRAMMAR_GBNF, "root ::= <[99999]>", PI_EINVAL, "no token with this id"},
        {PI__GRAMMAR_GBNF, "root ::= \"a\"{3,2}", PI_EINVAL, "below its minimum"},
        {PI__GRAMMAR_GBNF, "root ::= \"a\"{1000000000}", PI_EINVAL, "exceeds any answer"},
        {PI__GRAMMAR_REGEX, "a{99999999999}", PI_EINVAL, "exceeds any answer"},
        {PI__GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":1e12}", PI_EINVAL, "exceeds any answer"},
        {PI__GRAMMAR_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1e12}", PI_EINVAL,
         "exceeds any answer"},
        {PI__GRAMMAR_GBNF, "root ::= \"a\" )", PI_EINVAL, "no matching ("},
        {PI__GRAMMAR_GBNF, "root ::= %json{\"type\": 3}", PI_EINVAL, "type"},
        {PI__GRAMMAR_REGEX, "a(b", PI_EINVAL, "column 2: this group has no end"},
        {PI__GRAMMAR_REGEX, "(?=a)", PI_EUNSUPPORTED, "lookahead"},
        {PI__GRAMMAR_REGEX, "(a)\\1", PI_EUNSUPPORTED, "back references"},
        {PI__GRAMMAR_REGEX, "*a", PI_EINVAL, "nothing to repeat"},
        {PI__GRAMMAR_REGEX, "a)", PI_EINVAL, "no matching ("},
        {PI__GRAMMAR_REGEX, "a^b", PI_EUNSUPPORTED, "^ and $"},
        {PI__GRAMMAR_REGEX, "[]", PI_EINVAL, "allows no text"},
        {PI__GRAMMAR_CHOICE, "[]", PI_EINVAL, "JSON array"},
        {PI__GRAMMAR_CHOICE, "[1]", PI_EINVAL, "entry 0"},
        {PI__GRAMMAR_CHOICE, "[\"a\"", PI_EINVAL, "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi__grammar *g = NULL;
        pi_error err = {0};
        const int rc = pi__grammar_get(all, &(pi__grammar_spec) {cases[i].kind, cases[i].text, NULL, 0}, &g, &err);
        if (rc != cases[i].code || !strstr(err.msg, cases[i].why)) fail_msg("%.60s: %d, %s", cases[i].text, rc,
                                                                            err.msg);
        assert_null(g);
    }
}

/* ---------------------------------------------------------------------------------------------------------- tokens */

static void tokens(void **state)
{
    (void) state;
    pi_error err;
    pi__mask mask;
    pi__matcher *m = matcher(PI__GRAMMAR_GBNF, "root ::= <call> (!<call>){2} <[2]> | \"<call>\"", NULL);
    const int32_t call = token("<call>");
    assert_true(allowed(m, call));       /* by its name */
    assert_true(allowed(m, token("<0x3C>"))); /* as text, only byte by byte */
    assert_int_equal(pi__matcher_accept(m, call, &err), PI_OK);
    assert_false(allowed(m, call));
    assert_true(allowed(m, 1) && allowed(m, token("aba")) && !allowed(m, 2));
    assert_int_equal(pi__matcher_accept(m, token("ab"), &err), PI_OK);
    assert_int_equal(pi__matcher_accept(m, 1, &err), PI_OK);
    assert_int_equal(pi__matcher_mask(m, true, &mask, &err), PI_OK);
    assert_int_equal(mask.n, 1);
    assert_int_equal(mask.only, 2);
    assert_int_equal(pi__matcher_accept(m, call, &err), PI_EINVAL); /* the matcher keeps its state */
    assert_int_equal(pi__matcher_accept(m, 2, &err), PI_OK);
    pi__matcher_free(m);

    /* an optional end is allowed together with other tokens */
    m = matcher(PI__GRAMMAR_GBNF, "root ::= \"a\"{1,3}", NULL);
    feed(m, "a");
    assert_int_equal(pi__matcher_mask(m, true, &mask, &err), PI_OK);
    assert_true(pi__mask_has(&mask, 2) && pi__mask_has(&mask, token("aa")));
    assert_int_equal(pi__matcher_mask(m, false, &mask, &err), PI_OK);
    assert_false(pi__mask_has(&mask, 2));
    feed(m, "aa");
    assert_int_equal(pi__matcher_mask(m, false, &mask, &err), PI_OK); /* only the end is allowed */
    assert_true(pi__mask_has(&mask, 2) && mask.n == 1);
    assert_int_equal(pi__matcher_count(m, &(int32_t) {2}, 1), 1);
    assert_int_equal(pi__matcher_count(m, (int32_t[]) {2, 2}, 2), 1);
    pi__matcher_free(m);
}

static void triggers(void **state)
{
    (void) state;
    pi__matcher *m = matcher(PI__GRAMMAR_GBNF, "root ::= \"1\"+", "[\"aab\", \"<call>\"]");
    const int32_t call = token("<call>");
    assert_true(allowed(m, 2) && allowed(m, 1) && allowed(m, call) && allowed(m, token("true")));
    feed(m, "xaaa"); /* "aaab" ends with the trigger */
    assert_true(allowed(m, token("b")) && allowed(m, token("ba")) == false && allowed(m, token("bb")) == false);
    assert_true(allowed(m, token("aa")) && allowed(m, 2) && allowed(m, 1));
    feed(m, "b");
    assert_true(allowed(m, token("<0x31>")) && !allowed(m, 2) && !allowed(m, token("a")) && !allowed(m, call));
    feed(m, "1");
    assert_true(allowed(m, 2) && !allowed(m, token("12")));
    pi__matcher_free(m);
    m = matcher(PI__GRAMMAR_GBNF, "root ::= \"1\"+", "[\"aab\", \"<call>\"]");
    feed(m, "aa<call>"); /* as text, "<call>" is not a trigger */
    assert_true(allowed(m, 2));
    assert_int_equal(pi__matcher_accept(m, call, NULL), PI_OK);
    assert_true(!allowed(m, 2) && allowed(m, token("<0x31>")));
    pi__matcher_free(m);
}

/* Grammars of equal text share one object. Grammars that were unused for long are evicted, even if a matcher still
 * holds them. */
static void sharing(void **state)
{
    (void) state;
    char text[64];
    pi__grammar *g[100], *again;
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "root ::= \"a\"{%d}", i + 1);
        assert_int_equal(pi__grammar_get(all, &(pi__grammar_spec) {PI__GRAMMAR_GBNF, text, NULL, 0}, &g[i], NULL),
                         PI_OK);
    }
    assert_int_equal(pi__grammar_get(all, &(pi__grammar_spec) {PI__GRAMMAR_GBNF, text, "", 0}, &again, NULL), PI_OK);
    assert_ptr_equal(again, g[99]);
    pi__grammar_release(again);
    assert_int_equal(pi__grammar_get(all, &(pi__grammar_spec) {PI__GRAMMAR_GBNF, "root ::= \"a\"{1}", NULL, 0}, &again,
                                     NULL), PI_OK);
    assert_ptr_not_equal(again, g[0]);
    pi__grammar_release(again);
    for (int i = 0; i < 100; i++) pi__grammar_release(g[i]);
}

/* With more states than the tables hold, the tables are cleaned; masks of matchers in the middle of a text do not
 * change. */
static void cleaning(void **state)
{
    (void) state;
    static const char grammar[] = "root ::= \"(\" root \")\" | \"[\" root \"]\" | \"x\"";
    pi__matcher *m = matcher(PI__GRAMMAR_GBNF, grammar, NULL), *fixed = matcher(PI__GRAMMAR_GBNF, grammar, NULL);
    pi__grammar *g;
    pi__grammar_counts counts;
    static char open[70000];
    const int depth = 15000, rounds = 8;
    feed(fixed, "([[");
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < depth; i++) open[i] = random31() % 2 ? '(' : '[';
        open[depth] = 0;
        feed(m, open);
        feed(m, "x");
        for (int i = depth; i-- > 0;) {
            const char *good = open[i] == '(' ? ")" : "]", *bad = open[i] == '(' ? "<0x5D>" : "<0x29>";
            if (i % 1000 == 0) assert_false(allowed(m, token(bad)));
            feed(m, good);
        }
        assert_true(allowed(m, 2));
        pi__matcher_free(m);
        m = matcher(PI__GRAMMAR_GBNF, grammar, NULL);
    }
    pi__matcher_free(m);
    assert_int_equal(pi__grammar_get(all, &(pi__grammar_spec) {PI__GRAMMAR_GBNF, grammar, NULL, 0}, &g, NULL), PI_OK);
    pi__grammar_count(g, &counts);
    assert_true(counts.n_collections > 0);
    pi__grammar_release(g);
    feed(fixed, "x]]");
    assert_false(allowed(fixed, token("<0x5D>")));
    feed(fixed, ")");
    assert_true(allowed(fixed, 2));
    pi__matcher_free(fixed);
}

/* A grammar that exceeds a limit ends with an error after bounded work. */
static void hostile(void **state)
{
    (void) state;
    static const char *const grammars[] = {
        "root ::= (\"a\"?){10000} \"b\"",
        "root ::= (x x x x x){100}\nx ::= (\"a\" | \"a\" x | \"a\" x x)",
        "root ::= \"a\" root \"a\" | \"a\" root \"b\" | \"a\"",
        "root ::= ([a] | [ab] | . root .){0,9999}",
    };
    const double start = pi__now_ms();
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        pi__grammar *g;
        pi_error err = {0};
        int rc = pi__grammar_get(all, &(pi__grammar_spec) {PI__GRAMMAR_GBNF, grammars[i], NULL, 0}, &g, &err);
        pi__matcher *m = NULL;
        for (int k = 0; k < 3000 && !rc; k++) {
            pi__mask mask;
            if (!m) assert_int_equal(pi__matcher_create(&m, g, NULL), PI_OK);
            if (k % 64 == 0) rc = pi__matcher_mask(m, true, &mask, &err);
            if (!rc) rc = pi__matcher_accept(m, token("a"), &err);
            assert_true(rc == PI_OK || rc == PI_EUNSUPPORTED);
        }
        pi__matcher_free(m);
        if (m) pi__grammar_release(g);
    }
    if (!getenv("PI_TEST_EMULATED")) assert_true(pi__now_ms() - start < 60000);
}

/* Each allocation fails in turn: an error, no leak, no crash. */
static void out_of_memory(void **state)
{
    (void) state;
    static const pi__grammar_spec specs[] = {
        {PI__GRAMMAR_GBNF,
         "root ::= \"a\" x{2,3} [a-c]* %json{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}\n"
         "x ::= \"b\"",
         "[\"go\", \"<call>\"]", PI__THOUGHTS_MAY},
        {PI__GRAMMAR_REGEX, "(a|[^b]{2,3})+", NULL, 0},
        {PI__GRAMMAR_CHOICE, "[\"a\", \"b\"]", NULL, 0}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        bool done = false;
        for (long n = 0; !done && n < 2000; n++) {
            counting_alloc a;
            pi__grammars *gs = NULL;
            pi__grammar *g = NULL;
            pi__matcher *m = NULL;
            pi_error err = {0};
            pi__mask mask;
            counting_use(&a, n);
            int rc = pi__grammars_create(&gs, vocab, pi__vocab_size(vocab), NULL, 0, &err);
            if (!rc) rc = pi__grammar_get(gs, &specs[i], &g, &err);
            if (!rc) rc = pi__matcher_create(&m, g, &err);
            if (!rc) rc = pi__matcher_mask(m, true, &mask, &err);
            done = !rc;
            if (rc) assert_int_equal(rc, PI_ENOMEM);
            pi__matcher_free(m);
            pi__grammar_release(g);
            pi__grammars_free(gs);
            pi_set_allocator(NULL);
            assert_int_equal(a.live, 0);
        }
        assert_true(done);
    }
}

/* --------------------------------------------------------------------------------------------------- cost in steps */

enum { BIG = 1 << 20 };

/* Writes a grammar with n parts. */
typedef size_t (*form_fn)(char *out, int n);

static size_t enum_of(char *out, int n, const char *format)
{
    size_t k = (size_t) sprintf(out, "{\"enum\":[");
    for (int i = 0; i < n; i++) {
        k += (size_t) sprintf(out + k, "%s", i ? "," : "");
        k += (size_t) sprintf(out + k, format, i, i * 7919 % 100003);
    }
    return k + (size_t) sprintf(out + k, "]}");
}

static size_t texts(char *out, int n) { return enum_of(out, n, "\"text %d of %d\""); }
static size_t numbers(char *out, int n) { return enum_of(out, n, "1%d%05d"); }
static size_t objects(char *out, int n) { return enum_of(out, n, "{\"a\":%d,\"b\":[%d]}"); }
static size_t prefixes(char *out, int n)
{
    return enum_of(out, n, "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%d %d\"");
}

static size_t twice(char *out, int n)
{
    size_t k = (size_t) sprintf(out, "{\"enum\":[1");
    for (int i = 0; i < n; i++) k += (size_t) sprintf(out + k, ",\"always the same\"");
    return k + (size_t) sprintf(out + k, "]}");
}

static size_t steps_of_texts(char *out, int n) /* each text is a prefix of the next one */
{
    size_t k = (size_t) sprintf(out, "[");
    for (int i = 0; i < n / 8; i++) k += (size_t) sprintf(out + k, "%s\"%.*s\"", i ? "," : "", 1 + i % 500,
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    return k + (size_t) sprintf(out + k, "]");
}

/* An object of many parts, each with its own property. */
static size_t parts(char *out, int n)
{
    size_t k = (size_t) sprintf(out, "{\"allOf\":[");
    for (int i = 0; i < n; i++)
        k += (size_t) sprintf(out + k, "%s{\"type\":\"object\",\"properties\":{\"a%d\":{\"type\":\"null\"}}}",
                              i ? "," : "", i);
    return k + (size_t) sprintf(out + k, "]}");
}

/* A chain of schemas, each with a reference to the next. */
static size_t references(char *out, int n)
{
    size_t k = (size_t) sprintf(out, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d%d\":{\"type\":\"null\"}", n);
    for (int i = 0; i < n; i++) k += (size_t) sprintf(out + k, ",\"d%d\":{\"$ref\":\"#/$defs/d%d\"}", i, i + 1);
    return k + (size_t) sprintf(out + k, "}}");
}

static size_t choice(char *out, int n)
{
    size_t k = (size_t) sprintf(out, "[");
    for (int i = 0; i < n; i++) k += (size_t) sprintf(out + k, "%s\"%d-%d\"", i ? "," : "", i * 7919 % 100003, i);
    return k + (size_t) sprintf(out + k, "]");
}

static size_t words(char *out, int n)
{
    size_t k = 0;
    for (int i = 0; i < n; i++) k += (size_t) sprintf(out + k, "%sw%d[a-f]{2,90}", i ? "|" : "", i);
    return k;
}

static size_t classes(char *out, int n)
{
    size_t k = 0;
    for (int i = 0; i < n / 8; i++) k += (size_t) sprintf(out + k, "[a-z\\u{%x}]", 0x100 + 3 * i);
    return k;
}

static size_t rules(char *out, int n)
{
    size_t k = (size_t) sprintf(out, "root ::= r0\n");
    for (int i = 0; i < n; i++)
        k += (size_t) sprintf(out + k, "r%d ::= \"a%d\" r%d | \"b\" [a-z]{3,} r%d | \"c\"\n", i, i, (i + 1) % n,
                              i * 7 % n);
    return k;
}

static uint64_t steps_of(int kind, form_fn form, int n)
{
    char *text = malloc(BIG);
    pi__work w;
    pi__grammar *g;
    pi_error err = {0};
    assert_true(form(text, n) < BIG);
    pi__work_init(&w, 0, 0, -1);
    if (pi__grammar_get_within(all, &(pi__grammar_parts) {.form = {kind, text, NULL, 0}}, &w, &g, &err))
        fail_msg("%s", err.msg);
    pi__grammar_release(g);
    free(text);
    return w.steps - w.due;
}

/* Twice the number of parts takes twice the work. */
static void compile_is_linear(void **state)
{
    (void) state;
    static const struct { const char *name; int kind; form_fn form; } forms[] = {
        {"texts", PI__GRAMMAR_SCHEMA, texts}, {"numbers", PI__GRAMMAR_SCHEMA, numbers},
        {"objects", PI__GRAMMAR_SCHEMA, objects}, {"prefixes", PI__GRAMMAR_SCHEMA, prefixes},
        {"twice", PI__GRAMMAR_SCHEMA, twice}, {"parts", PI__GRAMMAR_SCHEMA, parts},
        {"references", PI__GRAMMAR_SCHEMA, references}, {"steps", PI__GRAMMAR_CHOICE, steps_of_texts},
        {"choice", PI__GRAMMAR_CHOICE, choice}, {"words", PI__GRAMMAR_REGEX, words},
        {"classes", PI__GRAMMAR_REGEX, classes}, {"rules", PI__GRAMMAR_GBNF, rules}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const int n = 2000;
        const uint64_t once = steps_of(forms[i].kind, forms[i].form, n);
        const uint64_t more = steps_of(forms[i].kind, forms[i].form, 2 * n);
        if (once < (uint64_t) n / 8 || more > once * 5 / 2 || more < once * 3 / 2)
            fail_msg("%s: %llu steps, then %llu", forms[i].name, (unsigned long long) once, (unsigned long long) more);
    }
}

/* Compilation ends with an error code when its budget is used up, and leaks nothing. */
static void compile_ends_with_its_budget(void **state)
{
    (void) state;
    char *text = malloc(BIG);
    pi__grammar *g;
    assert_true(texts(text, 6000) < BIG);
    for (int how = 0; how < 3; how++) {
        pi__work w;
        pi_error err = {0};
        pi__work_init(&w, how == 0 ? 10000 : 0, how == 1 ? 100000 : 0, -1);
        if (how == 2) pi__work_cancel(&w);
        const int rc = pi__grammar_get_within(all, &(pi__grammar_parts) {.form = {PI__GRAMMAR_SCHEMA, text, NULL, 0}},
                                              &w, &g, &err);
        assert_int_equal(rc, how == 2 ? PI_ECANCELED : PI_ETOOBIG);
        assert_int_equal(err.code, rc);
        assert_null(g);
    }
    free(text);
}

static pi__grammar_counts counts_of(int kind, const char *text)
{
    pi__grammar *g;
    pi__grammar_counts c;
    assert_int_equal(pi__grammar_get(all, &(pi__grammar_spec) {kind, text, NULL, 0}, &g, NULL), PI_OK);
    pi__grammar_count(g, &c);
    pi__grammar_release(g);
    return c;
}

/* A text of limited length uses a single mask inside the text, as unlimited text does, and needs a few steps per
 * token. */
static void counted_texts_share_masks(void **state)
{
    (void) state;
    static const struct { int kind; const char *text, *start; } forms[] = {
        {PI__GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":500}", "\""},
        {PI__GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":65536}", "\""},
        {PI__GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":1000000000}", "\""},
        {PI__GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":3000}", "\""},
        {PI__GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z]{1,700}$\"}", "\""},
        {PI__GRAMMAR_REGEX, ".{0,500}", ""}, {PI__GRAMMAR_REGEX, "(a|[b-z]){300,}", ""}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        pi__matcher *m = matcher(forms[i].kind, forms[i].text, NULL);
        feed(m, forms[i].start);
        feed(m, "a");
        assert_true(allowed(m, token("ab")));
        const pi__grammar_counts before = counts_of(forms[i].kind, forms[i].text);
        for (int k = 0; k < 100; k++) {
            feed(m, "b");
            assert_true(allowed(m, token("ab")));
        }
        const pi__grammar_counts after = counts_of(forms[i].kind, forms[i].text);
        assert_int_equal(after.n_masks_made, before.n_masks_made);
        assert_true(before.work < 60 * (uint64_t) pi__vocab_size(vocab) && after.work - before.work < 100 * 60);
        pi__matcher_free(m);
    }
}

/* --------------------------------------------------------------------------------------------------- pending masks */

static pthread_mutex_t ready_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready_cond = PTHREAD_COND_INITIALIZER;
static int n_ready;

static void note_ready(void *ud)
{
    (void) ud;
    pthread_mutex_lock(&ready_lock);
    n_ready++;
    pthread_cond_broadcast(&ready_cond);
    pthread_mutex_unlock(&ready_lock);
}

static pi__grammars *with_worker(void)
{
    pi__grammars *gs;
    assert_int_equal(pi__grammars_create(&gs, vocab, pi__vocab_size(vocab), NULL, 0, NULL), PI_OK);
    pi__grammars_on_ready(gs, note_ready, NULL);
    n_ready = 0;
    return gs;
}

static pi__matcher *matcher_in(pi__grammars *gs, const char *regex)
{
    pi_error err = {0};
    pi__grammar *g;
    pi__matcher *m;
    if (pi__grammar_get(gs, &(pi__grammar_spec) {PI__GRAMMAR_REGEX, regex, NULL, 0}, &g, &err)) fail_msg("%s", err.msg);
    assert_int_equal(pi__matcher_create(&m, g, &err), PI_OK);
    pi__grammar_release(g);
    return m;
}

/* A regex with very many active states: a mask takes about 100,000 steps. */
static const char *slow_regex(void)
{
    static char text[40000];
    size_t k = 0;
    for (int i = 0; !text[0] || i < 400; i++)
        k += (size_t) sprintf(text + k, "%s[ab]{5,%d}%d", i ? "|" : "", 3000 + i, i);
    return text;
}

static void wait_until_ready(pi__matcher *m)
{
    pthread_mutex_lock(&ready_lock);
    for (uint64_t none = 0; !pi__matcher_ready(m, &none);) pthread_cond_wait(&ready_cond, &ready_lock);
    pthread_mutex_unlock(&ready_lock);
}

/* Without steps left, the worker makes the mask. It equals the mask that a caller makes, and so do all later ones. */
static void worker_makes_the_same_masks(void **state)
{
    (void) state;
    pi__grammars *gs = with_worker();
    const char *forms[] = {slow_regex(), "[ab]{0,20}", "(a|b|ab|ba){3,}1", "\\w+"};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        pi__matcher *late = matcher_in(gs, forms[f]), *now = matcher_in(all, forms[f]);
        for (int k = 0; k < 6; k++) {
            uint64_t steps = k % 2 ? 100 : 0;
            pi__mask a, b;
            if (!pi__matcher_ready(late, &steps)) wait_until_ready(late);
            assert_int_equal(pi__matcher_mask(late, true, &a, NULL), PI_OK);
            assert_int_equal(pi__matcher_mask(now, true, &b, NULL), PI_OK);
            assert_int_equal(a.n, b.n);
            assert_memory_equal(a.bits, b.bits, ((size_t) pi__vocab_size(vocab) + 63) / 64 * sizeof *a.bits);
            const int32_t id = token(k % 2 ? "b" : "a");
            assert_int_equal(pi__matcher_accept(late, id, NULL), PI_OK);
            assert_int_equal(pi__matcher_accept(now, id, NULL), PI_OK);
        }
        pi__matcher_free(late);
        pi__matcher_free(now);
    }
    assert_true(n_ready > 0);
    pi__grammars_free(gs);
}

/* While a mask is pending, other matchers of the same grammar and of other grammars continue. A matcher may also
 * advance, or be freed, before its mask is made. */
static void pending_masks_block_no_matcher(void **state)
{
    (void) state;
    pi__grammars *gs = with_worker();
    pi__matcher *slow[8], *quick = matcher_in(gs, "[ab]{1,300}");
    pi__mask mask;
    uint64_t none = 0, steps;
    int handed_over = 0;
    for (int i = 0; i < 8; i++) {
        slow[i] = matcher_in(gs, slow_regex());
        for (int k = 0; k < i; k++) assert_int_equal(pi__matcher_accept(slow[i], token("a"), NULL), PI_OK);
    }
    for (int i = 0; i < 8; i++) handed_over += !pi__matcher_ready(slow[i], &none);
    assert_true(handed_over > 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pi__matcher_mask(quick, true, &mask, NULL), PI_OK);
        assert_int_equal(pi__matcher_accept(quick, token("ab"), NULL), PI_OK);
    }
    assert_int_equal(pi__matcher_accept(slow[0], token("a"), NULL), PI_OK); /* as drafts do */
    assert_int_equal(pi__matcher_count(slow[1], (int32_t[]) {token("ab"), token("{\"")}, 2), 1);
    /* a caller that cannot wait makes the mask itself */
    assert_int_equal(pi__matcher_mask(slow[2], true, &mask, NULL), PI_OK);
    pi__matcher_free(slow[3]);
    pi__matcher_free(slow[7]);
    steps = 1000000000;
    assert_true(pi__matcher_ready(slow[0], &steps)); /* the mask of its new state */
    wait_until_ready(slow[1]);
    for (int i = 0; i < 8; i++)
        if (i != 3 && i != 7) pi__matcher_free(slow[i]);
    pi__matcher_free(quick);
    pi__grammars_free(gs);
}

/* Closes the grammars while the worker makes a mask of a freed matcher. */
static void closing_while_masks_are_pending(void **state)
{
    (void) state;
    for (int round = 0; round < 20; round++) {
        pi__grammars *gs = with_worker();
        pi__matcher *m[4];
        uint64_t none = 0;
        for (int i = 0; i < 4; i++) {
            m[i] = matcher_in(gs, slow_regex());
            for (int k = 0; k < i; k++) assert_int_equal(pi__matcher_accept(m[i], token("a"), NULL), PI_OK);
            (void) pi__matcher_ready(m[i], &none);
        }
        for (int i = 0; i < round; i++) sched_yield();
        for (int i = 0; i < 4; i++) pi__matcher_free(m[i]);
        pi__grammars_free(gs);
    }
}

/* Tables that fill up while a mask is made are cleaned, and the mask continues; it needs more states than they
 * hold. */
static void cleaning_within_a_mask(void **state)
{
    (void) state;
    pi__matcher *m = matcher(PI__GRAMMAR_REGEX, slow_regex(), NULL);
    pi__mask mask;
    for (int k = 0; k < 1000; k++) {
        assert_int_equal(pi__matcher_mask(m, true, &mask, NULL), PI_OK);
        for (int32_t t = 0; k % 100 == 99 && t < pi__vocab_size(vocab); t++)
            if (t != 2) assert_int_equal(pi__mask_has(&mask, t), pi__matcher_count(m, &t, 1) == 1);
        assert_int_equal(pi__matcher_accept(m, token(k % 3 ? "a" : "ba"), NULL), PI_OK);
    }
    pi__matcher_free(m);
    assert_true(counts_of(PI__GRAMMAR_REGEX, slow_regex()).n_collections > 0);
}

static int setup(void **state)
{
    (void) state;
    vocab = letters();
    return pi__grammars_create(&all, vocab, pi__vocab_size(vocab), NULL, 0, NULL);
}

static int teardown(void **state)
{
    (void) state;
    pi__grammars_free(all);
    pi__vocab_free(vocab);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_exact), cmocka_unit_test(masks_are_what_tokens_give), cmocka_unit_test(nesting),
            cmocka_unit_test(gbnf), cmocka_unit_test(regex),
        cmocka_unit_test(refused), cmocka_unit_test(tokens), cmocka_unit_test(triggers), cmocka_unit_test(sharing),
        cmocka_unit_test(cleaning), cmocka_unit_test(hostile), cmocka_unit_test(out_of_memory),
        cmocka_unit_test(compile_is_linear), cmocka_unit_test(compile_ends_with_its_budget),
        cmocka_unit_test(counted_texts_share_masks), cmocka_unit_test(worker_makes_the_same_masks),
        cmocka_unit_test(pending_masks_block_no_matcher), cmocka_unit_test(closing_while_masks_are_pending),
        cmocka_unit_test(cleaning_within_a_mask),
    };
    return cmocka_run_group_tests_name("grammar", tests, setup, teardown);
}
