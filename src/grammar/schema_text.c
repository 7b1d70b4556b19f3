/* Texts in JSON: characters, lengths, patterns, formats, keys (see schema.c).
 *
 * A character is written as itself, where JSON allows that, or as an escape; \u of half a character never. Lengths
 * count characters, an escape as one. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "grammar/schema.h"

pi__expr *pi__schema_space(pi__schema *s)
{
    pi__builder *b = s->b;
    if (s->space) return s->space;
    pi__expr *indent = pi__x_rep(b, pi__x_chars(b, "  \t\t"), 0, 20), *lines = pi__x_rep(b, pi__x_text(b, "\n"), 1, 2);
    pi__expr *x = pi__x_alt2(b, pi__x_empty(b), pi__x_text(b, " "));
    pi__x_add(b, x, pi__x_cat2(b, lines, indent));
    return s->space = pi__x_shared(b, x);
}

/* ------------------------------------------------------------------------------------------------------- characters */

static const pi__range never_plain[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};

/* The characters of c that JSON has to escape, and that may stand for it: of \u escapes only those of control
 * characters. */
static void add_escapes(pi__builder *b, pi__expr *alt, pi__class c)
{
    static const char letter[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char text[8] = "\\";
    for (size_t i = 0; letter[i]; i += 2) {
        if (!pi__class_has(c, (unsigned char) letter[i])) continue;
        text[1] = letter[i + 1];
        pi__x_add(b, alt, pi__x_bytes(b, text, 2));
    }
    for (uint32_t cp = 0; cp < 0x20; cp++) {
        static const char hex[] = "0123456789abcdef";
        const char u[6] = {'\\', 'u', '0', '0', hex[cp >> 4], hex[cp & 15]};
        if (pi__class_has(c, cp)) pi__x_add(b, alt, pi__x_bytes(b, u, 6));
    }
}

/* A character of the class as JSON writes it. */
static pi__expr *json_class(pi__builder *b, pi__class c)
{
    pi__expr *plain = pi__x_class(b, pi__class_and(b, c, pi__class_of(b, never_plain, 3, true)));
    if (c.n == 1 && c.r[0].lo == c.r[0].hi && plain->kind == PI__X_CLASS) { /* one character */
        char one[4];
        return pi__x_bytes(b, one, pi__utf8_put(c.r[0].lo, one));
    }
    bool escapes = pi__class_has(c, '"') || pi__class_has(c, '\\');
    for (uint32_t cp = 0; cp < 0x20 && !escapes; cp++) escapes = pi__class_has(c, cp);
    if (!escapes) return plain;
    pi__expr *alt = pi__x_alt(b);
    pi__x_add(b, alt, plain);
    add_escapes(b, alt, c);
    return alt;
}

/* Any character, with all of JSON's escapes. */
static pi__expr *any_char(pi__schema *s)
{
    pi__builder *b = s->b;
    if (s->chr) return s->chr;
    pi__expr *h = pi__x_chars(b, "09afAF"), *alt = pi__x_alt(b), *u = pi__x_alt(b), *escape = pi__x_alt(b);
    pi__x_add(b, u, pi__x_cat2(b, pi__x_chars(b, "09acefACEF"), pi__x_rep(b, h, 3, 3)));
    pi__x_add(b, u, pi__x_cat3(b, pi__x_chars(b, "ddDD"), pi__x_chars(b, "07"), pi__x_rep(b, h, 2, 2)));
    pi__x_add(b, escape, pi__x_chars(b, "\"\"\\\\//bbffnnrrtt"));
    pi__x_add(b, escape, pi__x_cat2(b, pi__x_text(b, "u"), u));
    pi__x_add(b, alt, pi__x_class(b, pi__class_of(b, never_plain, 3, true)));
    pi__x_add(b, alt, pi__x_cat2(b, pi__x_text(b, "\\"), pi__x_shared(b, escape)));
    return s->chr = alt;
}

pi__expr *pi__schema_scalar(pi__schema *s, const pi__val *v)
{
    pi__text t = {.limit = 1 << 24};
    const pi__json_style style = pi__json_plain();
    const char *what;
    if (!pi__text_json(&t, v, &style, &what) || t.code)
        pi__schema_fail(s, t.code ? t.code : PI_EINVAL, "a value of enum or const cannot be written as JSON");
    pi__expr *x = pi__x_bytes(s->b, t.p ? t.p : "", t.n);
    pi__free(t.p);
    return x;
}

static pi__expr *in_quotes(pi__builder *b, pi__expr *x) { return pi__x_cat3(b, pi__x_text(b, "\""), x, pi__x_text(b,
    "\"")); }

/* ------------------------------------------------------------------------------------------------------------- keys */

/* Texts of a key's plain characters that are not among v, which are sorted and start with the same `at` bytes. */
static pi__expr *none_of(pi__schema *s, const pi__str *v, size_t n, size_t at)
{
    pi__builder *b = s->b;
    pi__expr *alt = pi__x_alt(b);
    pi__range *first = pi__builder_take(b, (n + 1) * sizeof *first); /* characters with which they go on */
    const pi__class plain = pi__class_of(b, never_plain, 3, true);
    size_t i = 0, n_first = 0;
    if (!first) return alt;
    while (i < n && v[i].n == at) i++;
    if (!i) pi__x_add(b, alt, pi__x_empty(b));
    while (i < n && !b->code) {
        uint32_t cp = 0;
        const size_t len = pi__utf8_char(v[i].p + at, v[i].n - at, &cp);
        size_t k = i;
        while (k < n && v[k].n >= at + len && !memcmp(v[k].p + at, v[i].p + at, len)) k++;
        first[n_first++] = (pi__range) {cp, cp};
        if (pi__class_has(plain, cp))
            pi__x_add(b, alt, pi__x_cat2(b, pi__x_bytes(b, v[i].p + at, len), none_of(s, v + i, k - i, at + len)));
        i = k;
    }
    pi__expr *other = pi__x_class(b, pi__class_and(b, plain, pi__class_of(b, first, n_first, true)));
    pi__x_add(b, alt, pi__x_cat2(b, other, pi__x_rep(b, s->key_chr, 0, PI__REP_INF)));
    return alt;
}

static int by_bytes(const void *x, const void *y)
{
    const pi__str *a = x, *b = y;
    const int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

pi__expr *pi__schema_other_key(pi__schema *s, const pi__str *not, size_t n)
{
    pi__builder *b = s->b;
    pi__str *v = pi__builder_take(b, (n + 1) * sizeof *v);
    if (!s->key_chr) s->key_chr = pi__x_class(b, pi__class_of(b, never_plain, 3, true));
    if (!v || b->code) return pi__x_never(b);
    for (size_t i = 0; i < n; i++) {
        v[i] = not[i];
        if (v[i].n > 256) pi__schema_fail(s, PI_EUNSUPPORTED,
                                          "a property's name of more than 256 bytes beside additionalProperties");
    }
    qsort(v, n, sizeof *v, by_bytes);
    return in_quotes(b, n ? none_of(s, v, n, 0) : pi__x_rep(b, s->key_chr, 0, PI__REP_INF));
}

/* ---------------------------------------------------------------------------------------------------------- formats */

static pi__expr *of_regex(pi__schema *s, const char *regex) { return pi__read_regex(s->b, regex, strlen(regex), s->what,
    false, json_class); }

#define YEAR_DAY "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|" \
                 "(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

/* A format that is kept to; NULL: an annotation. */
static pi__expr *of_format(pi__schema *s, const pi__val *f)
{
    static const struct { const char *name, *regex; } of[] = {
        {"date", YEAR_DAY}, {"time", TIME}, {"date-time", YEAR_DAY "T" TIME},
        {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
        {"ipv4", BYTE "\\." BYTE "\\." BYTE "\\." BYTE}};
    for (size_t i = 0; f->type == PI__V_STR && i < sizeof of / sizeof *of; i++)
        if (pi__str_is(f->s, of[i].name)) return of_regex(s, of[i].regex);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ texts */

/* A repetition of single characters can take lengths as well: of a pattern as ^[a-z]+$. */
static bool narrow(pi__expr *x, uint32_t min, uint32_t max)
{
    while (x->kind == PI__X_CAT && x->list.n == 1) x = x->list.v[0];
    if (x->kind != PI__X_REP) return false;
    const pi__expr *body = x->rep.body;
    if (body->kind == PI__X_ALT && body->list.n) body = body->list.v[0]; /* json_class: the first is the class */
    if (body->kind != PI__X_CLASS) return false;
    if (x->rep.min < min) x->rep.min = min;
    if (x->rep.max > max) x->rep.max = max;
    if (x->rep.max < x->rep.min) x->kind = PI__X_NEVER;
    return true;
}

pi__expr *pi__schema_text(pi__schema *s, const pi__parts *l)
{
    pi__builder *b = s->b;
    uint32_t min = 0, max = PI__REP_INF, k;
    const pi__val *v, *pattern = NULL;
    pi__expr *form = NULL;
    for (size_t i = 0; i < l->n && !b->code; i++) {
        if ((v = pi__member(l->p[i].v, "minLength")) && pi__schema_count(s, v, "minLength", &k) && k > min) min = k;
        if ((v = pi__member(l->p[i].v, "maxLength")) && pi__schema_count(s, v, "maxLength", &k) && k < max) max = k;
        if ((v = pi__member(l->p[i].v, "pattern"))) {
            if (v->type != PI__V_STR) return pi__schema_fail(s, PI_EINVAL, "pattern is %s: give a text",
                                                             pi__val_type_name(v)), pi__x_never(b);
            if (pattern && !pi__str_eq(pattern->s, v->s)) return pi__schema_fail(s, PI_EUNSUPPORTED,
                "two patterns for one text are not supported"), pi__x_never(b);
            pattern = v;
        }
        if (!form && (v = pi__member(l->p[i].v, "format"))) form = of_format(s, v);
    }
    if (max < min) return pi__x_never(b);
    if (form && pattern) return pi__schema_fail(s, PI_EUNSUPPORTED,
                                                "format and pattern together are not supported: leave one out"),
                                                    pi__x_never(b);
    if (pattern) form = pi__read_regex(b, pattern->s.p, pattern->s.n, "pattern", true, json_class);
    if (!form) return in_quotes(b, pi__x_rep(b, any_char(s), min, max));
    if ((min || max != PI__REP_INF) && !narrow(form, min, max))
        pi__schema_fail(s, PI_EUNSUPPORTED,
                        "pattern or format together with minLength or maxLength: say the length in the pattern, as ^[a-z]{2,8}$");
    return in_quotes(b, form);
}
