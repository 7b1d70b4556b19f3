/* Reading JSON Schema, draft 2020-12: from a schema to the JSON texts that meet it.
 *
 * A value has to meet a set of schemas, its PARTS: a schema, with what it refers to ($ref) and consists of (allOf). A
 * set is one rule, found again by its parts, so that schemas may refer to themselves; rules wait in a list until their
 * bodies are made, so that nothing recurs. anyOf is a choice of sets with one more part each.
 *
 * What comes out always meets the schema, but not everything that meets it comes out: where type is missing, types are
 * those that the keywords speak of; properties come in the schema's order; where properties (prefixItems) are given and
 * nothing is said of others, there are no others. Between things there is nothing, a space, or one or two line ends and
 * up to 20 spaces or tabs. Numbers have at most 16 digits in a row, texts escapes as JSON has them. `format` date,
 * time, date-time, uuid, ipv4 is kept to, others are annotations. What cannot be promised is refused by name: not, if,
 * contains, uniqueItems, patternProperties, propertyNames, dependent..., multipleOf, oneOf whose schemas may overlap,
 * $dynamicRef, references to other documents. Keywords that the draft does not know are annotations. */
#include "grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_WORK = 2000000 };

const pi__val *pi__member(const pi__val *v, const char *key) { return v->type == PI__V_MAP ? pi__dict_get_str(v->map,
    key) : NULL; }

int pi__schema_fail(pi__schema *s, int code, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pi__builder_fail(s->b, code, "%s: %s", s->what, text);
}

void pi__parts_add(pi__schema *s, pi__parts *l, const pi__val *v, uint32_t skip)
{
    if (s->b->code) return;
    if (v->type != PI__V_MAP && v->type != PI__V_BOOL) {
        pi__schema_fail(s, PI_EINVAL, "%s where a schema belongs: give an object, true or false", pi__val_type_name(v));
        return;
    }
    if (v->type == PI__V_BOOL ? v->b : !v->map->n) return; /* asks nothing */
    for (size_t i = 0; i < l->n; i++)
        if (l->p[i].v->type == v->type && (v->type == PI__V_BOOL || l->p[i].v->map == v->map) &&
            (l->p[i].skip & 3) == (skip & 3)) return;
    if (!pi__builder_step(s->b, 1 + l->n)) return;
    if (++s->work > MAX_WORK) {
        pi__schema_fail(s, PI_EINVAL, "its parts combine in too many ways");
        return;
    }
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 4;
        pi__part *p = pi__builder_take(s->b, cap * sizeof *p);
        if (!p) return;
        if (l->n) memcpy(p, l->p, l->n * sizeof *p);
        l->p = p;
        l->cap = cap;
    }
    l->p[l->n++] = (pi__part) {.v = v, .skip = skip};
}

/* ------------------------------------------------------------------------------------------------------- references */

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' &&
                        c <= 'F' ? c - 'A' + 10 : -1; }

/* The next name of a JSON pointer behind its slash, with %XX, ~0 and ~1 read. Returns what is left. */
static const char *next_name(const char *p, const char *end, char *out, size_t *n)
{
    *n = 0;
    for (; p < end && *p != '/'; p++) {
        char c = *p;
        if (c == '%' && end - p > 2 && hex(p[1]) >= 0 && hex(p[2]) >= 0) c = (char) (hex(p[1]) * 16 + hex(p[2])),
            p += 2;
        if (c == '~' && p + 1 < end && (p[1] == '0' || p[1] == '1')) c = *++p == '0' ? '~' : '/';
        out[(*n)++] = c;
    }
    return p;
}

static const pi__val *by_pointer(pi__schema *s, const char *p, const char *end)
{
    const pi__val *v = s->doc;
    char *name = pi__builder_take(s->b, (size_t) (end - p) + 1);
    while (name && v && p < end) {
        size_t n;
        p = next_name(p + 1, end, name, &n);
        if (v->type == PI__V_MAP) {
            v = pi__dict_get(v->map, pi__val_str((pi__str) {name, n}));
        } else if (v->type == PI__V_LIST && n && n < 9) {
            size_t i = 0;
            for (size_t k = 0; k < n; k++) i = name[k] >= '0' && name[k] <= '9' ? i * 10 + (size_t) (name[k] - '0')
                : SIZE_MAX / 16;
            v = i < v->list->n ? &v->list->v[i] : NULL;
        } else {
            v = NULL;
        }
    }
    return name ? v : NULL;
}

/* The schema with this $anchor. Nesting is bounded by the reader of JSON. */
static const pi__val *by_anchor(const pi__val *v, pi__str name)
{
    const pi__val *found = NULL, *a = pi__member(v, "$anchor");
    if (a && a->type == PI__V_STR && pi__str_eq(a->s, name)) return v;
    for (size_t i = 0; v->type == PI__V_MAP && i < v->map->n && !found; i++) found = by_anchor(&v->map->e[i].value,
        name);
    for (size_t i = 0; v->type == PI__V_LIST && i < v->list->n && !found; i++) found = by_anchor(&v->list->v[i], name);
    return found;
}

static const pi__val *refer(pi__schema *s, const pi__val *ref)
{
    if (ref->type != PI__V_STR) return pi__schema_fail(s, PI_EINVAL, "$ref is %s: give a text as \"#/$defs/name\"",
                                                       pi__val_type_name(ref)), NULL;
    const pi__val *id = pi__member(s->doc, "$id");
    pi__str t = ref->s;
    if (id && id->type == PI__V_STR && id->s.n && t.n >= id->s.n && !memcmp(t.p, id->s.p, id->s.n) && (t.n == id->s.n ||
        t.p[id->s.n] == '#'))
        t = (pi__str) {t.p + id->s.n, t.n - id->s.n};
    else if (!t.n || t.p[0] != '#')
        return pi__schema_fail(s, PI_EUNSUPPORTED,
                               "$ref to \"%.*s\" in another document is not supported: put it into $defs and write "
                               "\"#/$defs/...\"", (int) (t.n < 60 ? t.n : 60), t.p), NULL;
    if (t.n <= 1) return s->doc;
    const pi__val *v = t.p[1] == '/' ? by_pointer(s, t.p + 1, t.p + t.n) : by_anchor(s->doc, (pi__str) {t.p + 1,
        t.n - 1});
    if (!v) pi__schema_fail(s, PI_EINVAL, "$ref to \"%.*s\", which is not there", (int) (ref->s.n < 60 ? ref->s.n : 60),
                            ref->s.p);
    return v;
}

/* Adds what part i asks for. A schema that asks for itself says nothing, and other readers never come to an end with
 * it. */
static void add_from(pi__schema *s, pi__parts *l, size_t i, const pi__val *v)
{
    for (size_t k = i + 1; k && v->type == PI__V_MAP; k = l->p[k - 1].from)
        if (l->p[k - 1].v->type == PI__V_MAP && l->p[k - 1].v->map == v->map)
            pi__schema_fail(s, PI_EUNSUPPORTED,
                            "a $ref that leads back to its own schema, with nothing read in between");
    const size_t n = l->n;
    pi__parts_add(s, l, v, PI__FROM_PART);
    if (l->n > n) l->p[n].from = (uint32_t) i + 1;
}

void pi__parts_expand(pi__schema *s, pi__parts *l)
{
    for (size_t i = 0; i < l->n && !s->b->code; i++) { /* l grows meanwhile */
        const pi__val *v = l->p[i].v, *ref = pi__member(v, "$ref"), *all = pi__member(v, "allOf");
        const pi__val *to = ref ? refer(s, ref) : NULL;
        if (to) add_from(s, l, i, to);
        if (all && all->type != PI__V_LIST)
            pi__schema_fail(s, PI_EINVAL, "allOf is %s: give a list of schemas", pi__val_type_name(all));
        for (size_t k = 0; all && all->type == PI__V_LIST && k < all->list->n && !s->b->code; k++)
            add_from(s, l, i, &all->list->v[k]);
    }
}

/* --------------------------------------------------------------------------------------------------------- keywords */

static const char *const refused[] = {
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "patternProperties", "propertyNames",
        "dependentSchemas",
    "dependentRequired", "dependencies", "additionalItems", "multipleOf", "unevaluatedItems", "$dynamicRef",
        "$recursiveRef", "extends",
    "disallow", "divisibleBy", NULL};

/* A schema with a keyword that is refused, but where it asks nothing. */
static bool asks_nothing(const pi__val *v, const char *key, const pi__val *x)
{
    if (!strcmp(key, "then") || !strcmp(key, "else")) return !pi__member(v, "if");
    if (!strcmp(key, "if")) return !pi__member(v, "then") && !pi__member(v, "else");
    if (!strcmp(key, "minContains") || !strcmp(key, "maxContains")) return !pi__member(v, "contains");
    if (!strcmp(key, "not")) return x->type == PI__V_BOOL && !x->b;
    if (!strcmp(key, "propertyNames") || !strcmp(key, "unevaluatedItems")) return (x->type == PI__V_BOOL && x->b) ||
        (x->type == PI__V_MAP && !x->map->n);
    return x->type == PI__V_MAP && !x->map->n && strcmp(key, "contains");
}

/* Looks for what cannot be kept to. alone: v is the only schema that was asked for here. */
static void check_keywords(pi__schema *s, const pi__val *v, bool alone)
{
    const pi__val *x;
    for (size_t i = 0; refused[i] && v->type == PI__V_MAP; i++)
        if ((x = pi__member(v, refused[i])) && !asks_nothing(v, refused[i], x))
            pi__schema_fail(s, PI_EUNSUPPORTED,
                            "the keyword %s is not supported: leave it out, or say the same by others", refused[i]);
    x = pi__member(v, "uniqueItems");
    const pi__val *most = pi__member(v, "maxItems");
    if (x && x->type == PI__V_BOOL && x->b && !(most && pi__val_is_number(most) && pi__val_f64(most) <= 1))
        pi__schema_fail(s, PI_EUNSUPPORTED, "the keyword uniqueItems is not supported: leave it out");
    if (pi__member(v, "$id") && v->type == PI__V_MAP && v->map != s->doc->map && pi__member(v,
        "$id")->type == PI__V_STR)
        pi__schema_fail(s, PI_EUNSUPPORTED, "$id inside of a schema is not supported: refer to places in $defs");
    x = pi__member(v, "unevaluatedProperties");
    if (x && !alone) pi__schema_fail(s, PI_EUNSUPPORTED,
                                     "unevaluatedProperties inside of allOf, anyOf or $ref is not supported: put it beside them");
    if (x && !(x->type == PI__V_BOOL && !x->b) && !(x->type == PI__V_BOOL && x->b) && x->type != PI__V_MAP)
        pi__schema_fail(s, PI_EINVAL, "unevaluatedProperties is %s: give a schema", pi__val_type_name(x));
}

static unsigned implied_by(const pi__val *v)
{
    static const struct { const char *key; unsigned types; } of[] = {
        {"properties", PI__T_OBJECT}, {"required", PI__T_OBJECT}, {"additionalProperties", PI__T_OBJECT},
            {"minProperties", PI__T_OBJECT},
        {"maxProperties", PI__T_OBJECT}, {"unevaluatedProperties", PI__T_OBJECT}, {"items", PI__T_LIST_OF},
            {"prefixItems", PI__T_LIST_OF},
        {"minItems", PI__T_LIST_OF}, {"maxItems", PI__T_LIST_OF}, {"minLength", PI__T_TEXT}, {"maxLength", PI__T_TEXT},
            {"pattern", PI__T_TEXT},
        {"format", PI__T_TEXT}, {"minimum", PI__T_WHOLE | PI__T_REAL}, {"maximum", PI__T_WHOLE | PI__T_REAL},
        {"exclusiveMinimum", PI__T_WHOLE | PI__T_REAL}, {"exclusiveMaximum", PI__T_WHOLE | PI__T_REAL}};
    unsigned t = 0;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (pi__member(v, of[i].key)) t |= of[i].types;
    return t;
}

/* ----------------------------------------------------------------------------------------------------------- bodies */

/* The parts with one of a choice added, and the choice itself left out. */
static pi__expr *with_choice(pi__schema *s, const pi__parts *l, size_t at, uint32_t skip, const pi__val *choice)
{
    pi__parts more = {0};
    for (size_t i = 0; i < l->n; i++) pi__parts_add(s, &more, l->p[i].v, l->p[i].skip | (i == at ? skip : 0));
    pi__parts_add(s, &more, choice, PI__FROM_PART);
    return pi__schema_of(s, &more);
}

/* oneOf is as good as anyOf where no value meets two of them. */
static void check_one_of(pi__schema *s, const pi__parts *l, size_t at, const pi__val *list)
{
    for (size_t i = 0; i < list->list->n && !s->b->code; i++) {
        for (size_t k = 0; k < i && !s->b->code; k++) {
            pi__parts a = {0}, c = {0};
            for (size_t j = 0; j < l->n; j++) {
                if (j == at) continue;
                pi__parts_add(s, &a, l->p[j].v, l->p[j].skip);
                pi__parts_add(s, &c, l->p[j].v, l->p[j].skip);
            }
            pi__parts_add(s, &a, &list->list->v[i], 0);
            pi__parts_add(s, &c, &list->list->v[k], 0);
            pi__parts_expand(s, &a);
            pi__parts_expand(s, &c);
            if (s->b->code || pi__schema_disjoint(s, &a, &c)) continue;
            pi__schema_fail(s, PI_EUNSUPPORTED,
                            "oneOf: schemas %zu and %zu may both be met by one value: use anyOf, or tell them apart by type "
                            "or by a required property with const", k, i);
        }
    }
}

/* The first anyOf or oneOf among the parts as a choice; NULL: there is none. */
static pi__expr *choices(pi__schema *s, const pi__parts *l)
{
    static const struct { const char *key; uint32_t skip; } of[] = {{"anyOf", PI__SKIP_ANY_OF}, {"oneOf",
        PI__SKIP_ONE_OF}};
    for (size_t i = 0; i < l->n; i++) {
        for (int k = 0; k < 2; k++) {
            const pi__val *list = l->p[i].skip & of[k].skip ? NULL : pi__member(l->p[i].v, of[k].key);
            if (!list) continue;
            pi__expr *alt = pi__x_alt(s->b);
            if (list->type != PI__V_LIST || !list->list->n) pi__schema_fail(s, PI_EINVAL, "%s: give a list of schemas",
                                                                            of[k].key);
            else if (k) check_one_of(s, l, i, list);
            for (size_t c = 0; !s->b->code && c < list->list->n; c++)
                pi__x_add(s->b, alt, with_choice(s, l, i, of[k].skip, &list->list->v[c]));
            return alt;
        }
    }
    return NULL;
}

/* A value as JSON, with white space where there may be some. Nesting is bounded by the reader of JSON. */
static pi__expr *of_value(pi__schema *s, const pi__val *v)
{
    pi__builder *b = s->b;
    const bool map = v->type == PI__V_MAP;
    if (!map && v->type != PI__V_LIST) return pi__schema_scalar(s, v);
    pi__expr *ws = pi__schema_space(s), *x = pi__x_cat2(b, pi__x_text(b, map ? "{" : "["), ws);
    const size_t n = map ? v->map->n : v->list->n;
    for (size_t i = 0; i < n && !b->code; i++) {
        if (i) pi__x_add(b, x, pi__x_cat2(b, pi__x_text(b, ","), ws));
        if (map) pi__x_add(b, x, pi__x_cat3(b, pi__schema_scalar(s, &v->map->e[i].key), pi__x_text(b, ":"), ws));
        pi__x_add(b, x, of_value(s, map ? &v->map->e[i].value : &v->list->v[i]));
    }
    if (n) pi__x_add(b, x, ws);
    pi__x_add(b, x, pi__x_text(b, map ? "}" : "]"));
    return x;
}

static pi__expr *of_values(pi__schema *s, const pi__parts *l, unsigned types, const pi__val *const *v, size_t n)
{
    pi__expr *alt = pi__x_alt(s->b);
    for (size_t i = 0; i < n && !s->b->code; i++) {
        bool ok = (pi__type_of_value(v[i]) & types) != 0, unknown = false;
        for (size_t k = 0; k < l->n && ok; k++) ok = pi__value_meets(s, v[i], l->p[k].v, &unknown);
        if (unknown) pi__schema_fail(s, PI_EUNSUPPORTED,
                                     "enum or const beside pattern, or beside keywords of objects or lists, is not supported");
        if (ok) pi__x_add(s->b, alt, of_value(s, v[i]));
    }
    return alt;
}

static pi__expr *of_types(pi__schema *s, const pi__parts *l, unsigned types)
{
    pi__builder *b = s->b;
    pi__expr *alt = pi__x_alt(b);
    if (types & PI__T_NULL) pi__x_add(b, alt, pi__x_text(b, "null"));
    if (types & PI__T_FALSE_TRUE) pi__x_add(b, alt, pi__x_text(b, "true")), pi__x_add(b, alt, pi__x_text(b, "false"));
    if (types & PI__T_TEXT) pi__x_add(b, alt, pi__schema_text(s, l));
    if (types & (PI__T_WHOLE | PI__T_REAL)) pi__x_add(b, alt, pi__schema_number(s, l, !(types & PI__T_REAL)));
    if (types & PI__T_LIST_OF) pi__x_add(b, alt, pi__schema_list(s, l));
    if (types & PI__T_OBJECT) pi__x_add(b, alt, pi__schema_object(s, l));
    return alt;
}

static pi__expr *body_of(pi__schema *s, const pi__parts *l)
{
    unsigned types = PI__T_ANY, implied = 0;
    size_t asked = 0, n = 0;
    bool given = false;
    const pi__val **value;
    for (size_t i = 0; i < l->n; i++) asked += !(l->p[i].skip & PI__FROM_PART);
    for (size_t i = 0; i < l->n && !s->b->code; i++) {
        const pi__val *v = l->p[i].v;
        if (v->type == PI__V_BOOL) return pi__x_never(s->b);
        check_keywords(s, v, asked == 1 && !(l->p[i].skip & PI__FROM_PART));
        types &= pi__types_of(s, v);
        given |= pi__member(v, "type") != NULL;
        implied |= implied_by(v);
    }
    if (s->b->code) return pi__x_never(s->b);
    pi__expr *c = choices(s, l);
    if (c || s->b->code) return c ? c : pi__x_never(s->b);
    if (pi__schema_values(s, l, &value, &n)) return of_values(s, l, types, value, n);
    return of_types(s, l, given || !implied ? types : types & implied);
}

pi__expr *pi__schema_of(pi__schema *s, const pi__parts *l)
{
    pi__parts all = {0};
    for (size_t i = 0; i < l->n; i++) pi__parts_add(s, &all, l->p[i].v, l->p[i].skip);
    pi__parts_expand(s, &all);
    uint64_t *key = pi__builder_take(s->b, (all.n + 1) * 2 * sizeof *key);
    if (!key) return pi__x_never(s->b);
    for (size_t i = 0; i < all.n; i++) {
        key[2 * i] = all.p[i].v->type == PI__V_BOOL ? 1 : (uint64_t) (uintptr_t) all.p[i].v->map;
        key[2 * i + 1] = all.p[i].skip;
    }
    const pi__val name = pi__val_str((pi__str) {(const char *) key, all.n * 2 * sizeof *key});
    const pi__val *known = pi__dict_get(s->known, name);
    if (known) return pi__x_rule(s->b, (uint32_t) known->i);
    const uint32_t rule = pi__rule_new(s->b);
    if (!s->b->code && !pi__dict_set(&s->b->zone, s->known, name, pi__val_int(rule))) pi__builder_take(s->b,
        SIZE_MAX / 2);
    if (!s->b->code && !pi__grow(&s->pending, &s->cap_pending, s->n_pending + 1, sizeof *s->pending))
        pi__builder_fail(s->b, PI_ENOMEM, "out of memory for the grammar");
    if (!s->b->code) s->pending[s->n_pending++] = (struct pi__pending) {rule, all};
    return pi__x_rule(s->b, rule);
}

pi__expr *pi__read_schema(pi__builder *b, const pi__val *v)
{
    pi__schema s = {.b = b, .doc = v, .what = "json-schema"};
    pi__val known;
    pi__parts l = {0};
    pi__expr *x = pi__x_never(b);
    if (!pi__val_new_map(&b->zone, &known)) {
        pi__builder_take(b, SIZE_MAX / 2);
        return x;
    }
    s.known = known.map;
    pi__parts_add(&s, &l, v, 0);
    if (!b->code) x = pi__schema_of(&s, &l);
    while (s.n_pending && !b->code) {
        const struct pi__pending p = s.pending[--s.n_pending];
        pi__rule_set(b, p.rule, body_of(&s, &p.parts));
    }
    pi__free(s.pending);
    return x;
}

pi__expr *pi__read_schema_text(pi__builder *b, const char *text, size_t n, const char *what)
{
    pi__val *v = pi__builder_take(b, sizeof *v); /* parts point to it */
    if (!v) return pi__x_never(b);
    const int rc = pi__json_read(&b->zone, text, n, what, v, b->err);
    if (rc) b->code = rc;
    return rc ? pi__x_never(b) : pi__read_schema(b, v);
}
