/* Texts in JSON: characters, lengths, patterns, formats, keys (see schema.c).
 *
 * A character is written as itself, if JSON allows that, or as an escape; \u of a lone surrogate never. Lengths count
 * characters; an escape counts as one. A single pattern, format or length limit is an expression. Several of them, and
 * patterns that must not match, are automata whose product is taken (regular.h). A product counts lengths up to COUNTED
 * states in total: texts with both a pattern and a larger maxLength stay shorter than allowed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "grammar/schema.h"

enum { COUNTED = 3000 };

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

/* Adds escapes for the characters of c that JSON must escape; \u escapes only for control characters. */
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

/* Returns a character of the class as JSON writes it. */
static pi__expr *json_class(pi__builder *b, pi__class c)
{
    pi__expr *plain = pi__x_class(b, pi__class_and(b, c, pi__class_of(b, never_plain, 3, true)));
    if (c.n == 1 && c.r[0].lo == c.r[0].hi && plain->kind == PI__X_CLASS) { /* single character */
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

/* Matches any character, with all of JSON's escapes. */
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
    if (v->type == PI__V_FLOAT && v->n_text) return pi__x_bytes(s->b, v->text, v->n_text);
    pi__text t = {.limit = 1 << 24};
    const pi__json_style style = pi__json_plain();
    const char *what;
    if (!pi__text_json(&t, v, &style, &what) || t.code)
        pi__schema_fail(s, NULL, NULL, t.code ? t.code : PI_EINVAL,
            "a value of enum or const cannot be written as JSON");
    pi__expr *x = pi__x_bytes(s->b, t.p ? t.p : "", t.n);
    pi__free(t.p);
    return x;
}

static pi__expr *in_quotes(pi__builder *b, pi__expr *x) { return pi__x_cat3(b, pi__x_text(b, "\""), x, pi__x_text(b,
    "\"")); }

/* ------------------------------------------------------------------------------------------------------------- keys */

/* Matches texts of plain key characters that are not in v. v is sorted; all entries share their first `at` bytes. */
static pi__expr *none_of(pi__schema *s, const pi__str *v, size_t n, size_t at)
{
    pi__builder *b = s->b;
    pi__expr *alt = pi__x_alt(b);
    pi__range *first = pi__builder_take(b, (n + 1) * sizeof *first); /* characters that follow the shared prefix */
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
    const size_t n = a->n < b->n ? a->n : b->n;
    const int c = n ? memcmp(a->p, b->p, n) : 0;
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
        if (v[i].n > 256)
            pi__schema_fail(s, NULL, NULL, PI_EUNSUPPORTED, "a property's name has more than 256 bytes: shorten it, "
                "or set "
                            "additionalProperties to false");
    }
    qsort(v, n, sizeof *v, by_bytes);
    return in_quotes(b, n ? none_of(s, v, n, 0) : pi__x_rep(b, s->key_chr, 0, PI__REP_INF));
}

/* A character of an unnamed key: these keys have no escapes. */
static pi__expr *key_class(pi__builder *b, pi__class c)
{
    return pi__x_class(b, pi__class_and(b, c, pi__class_of(b, never_plain, 3, true)));
}

pi__expr *pi__schema_key(pi__schema *s, const pi__reg *r, uint64_t care, uint64_t want)
{
    return in_quotes(s->b, pi__reg_expr(s->b, r, care, want, key_class));
}

/* -------------------------------------------------------------------------------------------------------- languages */

/* Returns the automaton of a regular expression; cached. */
static pi__reg *reg_of_regex(pi__schema *s, pi__str regex, bool search, const char *what)
{
    pi__builder *b = s->b;
    char *name = pi__builder_take(b, regex.n + 1);
    if (!name) return NULL;
    *name = search ? 'p' : 'f';
    if (regex.n) memcpy(name + 1, regex.p, regex.n);
    const pi__val key = pi__val_str((pi__str) {name, regex.n + 1}), *known = pi__dict_get(s->regs, key);
    if (known) return (pi__reg *) (intptr_t) known->i;
    pi__reg *r = pi__reg_of(b, pi__read_regex(b, regex.p, regex.n, what, search, NULL), what);
    if (r && !pi__dict_set(&b->zone, s->regs, key, pi__val_int((intptr_t) r))) pi__builder_take(b, SIZE_MAX / 2);
    return b->code ? NULL : r;
}

/* Returns the end of the part of a regular expression that starts at `at`: the index of the enclosing group's ), or n.
 * *alt: the part has alternatives of its own. */
static size_t part_end(pi__str p, size_t at, bool *alt)
{
    size_t depth = 0;
    bool in_class = false;
    *alt = false;
    for (; at < p.n; at++) {
        const char c = p.p[at];
        if (c == '\\') at++;
        else if (in_class) in_class = c != ']';
        else if (c == '[') in_class = true;
        else if (c == '(') depth++;
        else if (c == ')' && !depth--) return at;
        else if (c == '|' && !depth) *alt = true;
    }
    return p.n;
}

/* True if a pattern that starts with ^ has (?= or (?! at `at`. */
static bool looks_ahead(pi__str p, size_t at)
{
    return p.n >= at + 3 && p.p[0] == '^' && p.p[at] == '(' && p.p[at + 1] == '?' &&
           (p.p[at + 2] == '=' || p.p[at + 2] == '!');
}

/* Returns the automaton of ^ followed by a part of a pattern. */
static pi__reg *reg_from_start(pi__schema *s, pi__str part, bool group)
{
    char *text = pi__builder_take(s->b, part.n + 6);
    if (!text) return NULL;
    const size_t n = (size_t) snprintf(text, 6, "%s", group ? "^(?:" : "^");
    if (part.n) memcpy(text + n, part.p, part.n);
    text[n + part.n] = ')';
    return reg_of_regex(s, (pi__str) {text, n + part.n + group}, true, "pattern");
}

/* Lookaheads after ^ become separate languages: ^(?!X)(?=Y)Z is not ^X, and ^Y, and ^Z. All other lookaheads go to the
 * regex parser, which rejects them. This includes a Z with alternatives: the lookahead belongs to its first one
 * only. */
pi__reg *pi__schema_pattern(pi__schema *s, const pi__val *at, pi__str pattern)
{
    pi__reg *part[PI__REG_PARTS];
    uint64_t must = 0;
    size_t n = 0, i = 1;
    bool alt = false;
    (void) at;
    while (looks_ahead(pattern, i) && n < PI__REG_PARTS - 2 && !s->b->code) {
        const size_t end = part_end(pattern, i + 3, &alt);
        const bool group = alt;
        if (end == pattern.n || (end + 1 < pattern.n && strchr("*+?{", pattern.p[end + 1]))) break;
        part_end(pattern, end + 1, &alt);
        if (alt) break;
        if (pattern.p[i + 2] == '=') must |= (uint64_t) 1 << n;
        part[n++] = reg_from_start(s, (pi__str) {pattern.p + i + 3, end - i - 3}, group);
        i = end + 1;
    }
    if (!n) return reg_of_regex(s, pattern, true, "pattern");
    must |= (uint64_t) 1 << n;
    part[n++] = s->b->code ? NULL : reg_from_start(s, (pi__str) {pattern.p + i, pattern.n - i}, false);
    pi__reg *r = s->b->code ? NULL : pi__reg_product(s->b, part, n, must, 0, PI__REP_INF, "pattern");
    for (uint32_t k = 0; r && k < r->n_states; k++) r->mark[k] = (r->mark[k] & ~((uint64_t) 1 << 63)) == must;
    return r;
}

pi__reg *pi__schema_format(pi__schema *s, pi__str format)
{
    const pi__val v = pi__val_str(format);
    const char *regex = pi__format_regex(&v);
    return regex ? reg_of_regex(s, pi__str_of(regex), false, "format") : NULL;
}

pi__reg *pi__reg_of_values(pi__schema *s, const pi__val *v, size_t n)
{
    pi__expr *alt = pi__x_alt(s->b);
    for (size_t i = 0; i < n; i++)
        if (v[i].type == PI__V_STR) pi__x_add(s->b, alt, pi__x_bytes(s->b, v[i].s.p, v[i].s.n));
    return pi__reg_of(s->b, alt, "enum");
}

typedef struct texts { /* requirements of all parts on one text */
    pi__schema *s;
    uint32_t min, max;
    pi__reg *part[PI__REG_PARTS]; /* [n] languages; bit i of must = texts are in language i, else they are not */
    size_t n;
    uint64_t must;
    const pi__val *pattern;       /* at most one of pattern and format is set: the first one, not yet in `part` */
    const char *format;
    const pi__val *at;            /* a schema that constrains the text, for messages */
} texts;

static void add_language(texts *t, pi__reg *r, bool must)
{
    if (!r) return;
    for (size_t i = 0; i < t->n; i++)
        if (t->part[i] == r && (t->must >> i & 1) == must) return;
    if (t->n == PI__REG_PARTS - 2) {
        pi__schema_fail(t->s, t->at, "pattern", PI_EUNSUPPORTED,
            "more than %d patterns and formats apply to one text: merge them", PI__REG_PARTS - 2);
        return;
    }
    if (must) t->must |= (uint64_t) 1 << t->n;
    t->part[t->n++] = r;
}

static bool is_text(pi__schema *s, const pi__val *at, const char *key, const pi__val *v)
{
    if (v->type == PI__V_STR) return true;
    pi__schema_fail(s, at, key, PI_EINVAL, "it is %s: give a text", pi__val_type_name(v));
    return false;
}

/* Adds the requirements of schema v to t. A single pattern or format is only stored, because it may not need its
 * automaton: product_of builds that on demand. */
static void read_part(texts *t, const pi__val *v)
{
    pi__schema *s = t->s;
    const pi__val *k;
    uint32_t n;
    if (pi__member(v, "minLength") && pi__schema_count(s, v, "minLength", &n) && n > t->min) t->min = n, t->at = v;
    if (pi__member(v, "maxLength") && pi__schema_count(s, v, "maxLength", &n) && n < t->max) t->max = n, t->at = v;
    if ((k = pi__member(v, "pattern")) && is_text(s, v, "pattern", k)) {
        if (!looks_ahead(k->s, 1) && !t->pattern && !t->format && !t->n) t->pattern = k;
        else if (!t->pattern || !pi__str_eq(t->pattern->s, k->s))
            add_language(t, pi__schema_pattern(s, v, k->s), true);
        t->at = v;
    }
    const char *regex = (k = pi__member(v, "format")) ? pi__format_regex(k) : NULL;
    if (regex && regex != t->format) {
        if (!t->pattern && !t->format && !t->n) t->format = regex;
        else add_language(t, pi__schema_format(s, k->s), true);
    }
    k = pi__member(v, PI__K_NO_PATTERN);
    for (size_t i = 0; k && i < k->list->n; i++) add_language(t, pi__schema_pattern(s, v, k->list->v[i].s), false);
    if ((k = pi__member(v, PI__K_NO_FORMAT))) add_language(t, pi__schema_format(s, k->s), false);
    if ((k = pi__member(v, PI__K_NOT))) {
        bool any = false;
        for (size_t i = 0; i < k->list->n; i++) any |= k->list->v[i].type == PI__V_STR;
        if (any) add_language(t, pi__reg_of_values(s, k->list->v, k->list->n), false);
    }
}

/* Returns the product of all requirements; min and max are included unless they change nothing. care: bits of the marks
 * that must equal bit 63 and `must`. */
static pi__reg *product_of(texts *t, uint64_t *care)
{
    pi__builder *b = t->s->b;
    if (t->pattern) add_language(t, pi__schema_pattern(t->s, t->at, t->pattern->s), true);
    if (t->format) add_language(t, reg_of_regex(t->s, pi__str_of(t->format), false, "format"), true);
    *care = (uint64_t) 1 << 63 | (((uint64_t) 1 << t->n) - 1);
    const uint64_t want = (uint64_t) 1 << 63 | t->must;
    pi__reg *r = pi__reg_product(b, t->part, t->n, t->must, 0, PI__REP_INF, "pattern");
    uint32_t min, max;
    if (!r || !pi__reg_lengths(b, r, *care, want, &min, &max)) return r;
    if (t->min <= min && t->max >= max) return r;
    const uint32_t most = COUNTED / r->n_states + 1;
    if (max == PI__REP_INF || max > t->max) max = t->max;
    if (max != PI__REP_INF && max > most) max = most;
    if (t->min > most || max < t->min) {
        if (t->min <= t->max && t->min > most)
            pi__schema_fail(t->s, t->at, "minLength", PI_EUNSUPPORTED,
                "%u is too large together with a pattern or format: give at most %u, or put the length in the pattern",
                t->min, most);
        return b->code ? NULL : r;
    }
    return pi__reg_product(b, t->part, t->n, t->must, t->min, max, "pattern");
}

/* Returns the union of the texts of a list of schemas. */
static pi__reg *union_of(pi__schema *s, const pi__parts *l, size_t at, const pi__val *list)
{
    pi__reg *part[PI__REG_PARTS];
    size_t n = 0;
    for (size_t i = 0; i < list->list->n && !s->b->code; i++) {
        pi__parts more = {0};
        for (size_t k = 0; k < l->n; k++)
            pi__parts_add(s, &more, l->p[k].v, l->p[k].skip | (k == at ? PI__SKIP_ANY_OF : 0));
        pi__parts_add(s, &more, &list->list->v[i], 0);
        if (n == PI__REG_PARTS - 2) pi__schema_fail(s, l->p[at].v, "anyOf", PI_EUNSUPPORTED,
            "too many schemas for a property name: use fewer");
        else if ((part[n] = pi__schema_text_reg(s, &more))) n++;
    }
    pi__reg *r = s->b->code ? NULL : pi__reg_product(s->b, part, n, 0, 0, PI__REP_INF, "anyOf");
    for (uint32_t i = 0; r && i < r->n_states; i++) r->mark[i] = (r->mark[i] & ~((uint64_t) 1 << 63)) != 0;
    return r;
}

pi__reg *pi__schema_text_reg(pi__schema *s, const pi__parts *l)
{
    texts t = {.s = s, .max = PI__REP_INF};
    pi__parts all = {0};
    uint64_t care;
    bool none = false;
    for (size_t i = 0; i < l->n; i++) pi__parts_add(s, &all, l->p[i].v, l->p[i].skip);
    pi__parts_expand(s, &all);
    for (size_t i = 0; i < all.n && !s->b->code; i++) {
        const pi__val *v = all.p[i].v, *any = all.p[i].skip & PI__SKIP_ANY_OF ? NULL : pi__member(v, "anyOf");
        none |= v->type == PI__V_BOOL || !(pi__types_of(s, v) & PI__T_TEXT);
        if (any && any->type == PI__V_LIST) return union_of(s, &all, i, any);
        if (pi__member(v, "oneOf"))
            pi__schema_fail(s, v, "oneOf", PI_EUNSUPPORTED, "oneOf is not supported in propertyNames: use anyOf");
        const pi__val *list = pi__member(v, "enum"), *one = pi__member(v, "const");
        if (list && list->type == PI__V_LIST) add_language(&t, pi__reg_of_values(s, list->list->v, list->list->n),
            true);
        if (one) add_language(&t, pi__reg_of_values(s, one, 1), true);
        read_part(&t, v);
    }
    pi__reg *r = s->b->code ? NULL : product_of(&t, &care);
    for (uint32_t i = 0; r && i < r->n_states; i++)
        r->mark[i] = !none && (r->mark[i] & care) == ((uint64_t) 1 << 63 | t.must);
    return r;
}

pi__reg *pi__schema_language(pi__schema *s, const pi__val *schema)
{
    char name[2 * sizeof schema->map] = "s";
    if (schema->type == PI__V_BOOL && !schema->b) return pi__reg_of(s->b, pi__x_never(s->b), "propertyNames");
    if (schema->type != PI__V_MAP) return NULL;
    memcpy(name + 1, &schema->map, sizeof schema->map);
    const pi__str id = {name, 1 + sizeof schema->map};
    const pi__val *known = pi__dict_get(s->regs, pi__val_str(id));
    if (known) return (pi__reg *) (intptr_t) known->i;
    pi__parts p = {0};
    pi__parts_add(s, &p, schema, 0);
    pi__reg *r = p.n ? pi__schema_text_reg(s, &p) : NULL;
    char *copy = pi__builder_take(s->b, id.n);
    if (!copy) return NULL;
    memcpy(copy, name, id.n);
    if (!pi__dict_set(&s->b->zone, s->regs, pi__val_str((pi__str) {copy, id.n}), pi__val_int((intptr_t) r)))
        pi__builder_take(s->b, SIZE_MAX / 2);
    return s->b->code ? NULL : r;
}

/* ------------------------------------------------------------------------------------------------------------ texts */

/* Applies the lengths to x if it is a repetition of single characters, as in ^[a-z]+$. Returns false otherwise. */
static bool narrow(pi__expr *x, uint32_t min, uint32_t max)
{
    while (x->kind == PI__X_CAT && x->list.n == 1) x = x->list.v[0];
    if (x->kind != PI__X_REP) return false;
    const pi__expr *body = x->rep.body;
    if (body->kind == PI__X_ALT && body->list.n) body = body->list.v[0]; /* json_class: the class comes first */
    if (body->kind != PI__X_CLASS) return false;
    if (x->rep.min < min) x->rep.min = min;
    if (x->rep.max > max) x->rep.max = max;
    if (x->rep.max < x->rep.min) x->kind = PI__X_NEVER;
    return true;
}

/* Returns the rule of a single pattern or format; cached. */
static pi__expr *form_of(pi__schema *s, pi__str regex, bool search)
{
    pi__builder *b = s->b;
    char *name = pi__builder_take(b, regex.n + 1);
    if (!name) return pi__x_never(b);
    *name = search ? 'P' : 'F';
    if (regex.n) memcpy(name + 1, regex.p, regex.n);
    const pi__val key = pi__val_str((pi__str) {name, regex.n + 1}), *known = pi__dict_get(s->regs, key);
    if (known) return pi__x_rule(b, (uint32_t) known->i);
    const uint32_t rule = pi__rule_new(b);
    pi__rule_set(b, rule, in_quotes(b, pi__read_regex(b, regex.p, regex.n, search ? "pattern" : "format", search,
        json_class)));
    if (!b->code && !pi__dict_set(&b->zone, s->regs, key, pi__val_int(rule))) pi__builder_take(b, SIZE_MAX / 2);
    return pi__x_rule(b, rule);
}

pi__expr *pi__schema_text(pi__schema *s, const pi__parts *l)
{
    pi__builder *b = s->b;
    texts t = {.s = s, .max = PI__REP_INF};
    uint64_t care;
    for (size_t i = 0; i < l->n && !b->code; i++) read_part(&t, l->p[i].v);
    if (t.max < t.min || b->code) return pi__x_never(b);
    if (!t.n && !t.pattern && !t.format) return in_quotes(b, pi__x_rep(b, any_char(s), t.min, t.max));
    if (!t.n && !t.min && t.max == PI__REP_INF)
        return form_of(s, t.pattern ? t.pattern->s : pi__str_of(t.format), t.pattern != NULL);
    if (!t.n && t.pattern) {
        pi__expr *form = pi__read_regex(b, t.pattern->s.p, t.pattern->s.n, "pattern", true, json_class);
        if (b->code || narrow(form, t.min, t.max)) return in_quotes(b, form);
    }
    const pi__reg *r = product_of(&t, &care);
    return r ? in_quotes(b, pi__reg_expr(b, r, care, (uint64_t) 1 << 63 | t.must, json_class)) : pi__x_never(b);
}
