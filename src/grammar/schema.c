/* Parser of JSON Schema, drafts 4 to 2020-12: compiles a schema to the JSON texts that meet it.
 *
 * A value must meet a set of schemas, its PARTS: a schema plus the schemas that it refers to ($ref) and consists of
 * (allOf). Each set is one rule, found again by its parts, so schemas may refer to themselves. Rules wait in a list
 * until their bodies are made, which avoids recursion. anyOf is a choice of sets with one more part each. not, if,
 * dependencies and oneOf with overlapping schemas are rewritten to schemas without them (schema_not.c).
 *
 * Every generated text meets the schema. Some values that meet it are never generated:
 *   - properties come in the schema's order, unnamed ones last; with properties or patternProperties and no
 *     additionalProperties, there are no unnamed ones;
 *   - without type, the types are those that other keywords imply; with prefixItems and no items, there are no further
 *     items;
 *   - white space is empty, one space, or one or two line ends and up to 20 spaces or tabs; numbers have at most 16
 *     consecutive digits unless a bound has more, and no exponent together with a bound;
 *   - a list with contains has at most 1000 items; one with uniqueItems has items of an enum, in its order.
 *
 * Formats listed in schema_format.c are enforced. Other formats and unknown keywords are annotations. A keyword that
 * cannot be enforced is rejected with its place: uniqueItems of items without an enum, $dynamicRef, unevaluatedItems
 * and unevaluatedProperties inside other schemas or together with not and if, references to other documents. MAX_WORK
 * bounds the work; the builder's zone bounds the memory. */
#include "grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum {
    MAX_WORK = 2000000,
    FEW_PARTS = 16, /* sets of up to this many parts are searched linearly */
};

/* ----------------------------------------------------------------------------------------------------------- errors */

typedef struct place { char text[160]; size_t n; } place;

static void add_name(place *p, pi__str name)
{
    if (p->n + 1 < sizeof p->text) p->text[p->n++] = '/';
    for (size_t i = 0; i < name.n && p->n + 2 < sizeof p->text; i++) {
        const char c = name.p[i];
        if (c == '~' || c == '/') p->text[p->n++] = '~';
        p->text[p->n++] = c == '~' ? '0' : c == '/' ? '1' : c;
    }
}

/* Finds the map in v and appends its JSON pointer to p. The JSON parser bounds the nesting. */
static bool find_place(const pi__val *v, const pi__dict *map, place *p)
{
    const size_t n = p->n;
    if (v->type == PI__V_MAP && v->map == map) return true;
    for (size_t i = 0; v->type == PI__V_MAP && i < v->map->n; i++) {
        add_name(p, v->map->e[i].key.s);
        if (find_place(&v->map->e[i].value, map, p)) return true;
        p->n = n;
    }
    for (size_t i = 0; v->type == PI__V_LIST && i < v->list->n; i++) {
        char index[24];
        add_name(p, (pi__str) {index, (size_t) snprintf(index, sizeof index, "%zu", i)});
        if (find_place(&v->list->v[i], map, p)) return true;
        p->n = n;
    }
    return false;
}

int pi__schema_fail(pi__schema *s, const pi__val *at, const char *key, int code, const char *fmt, ...)
{
    char text[240];
    place p = {.n = 0};
    va_list ap;
    if (s->b->code) return s->b->code;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!at || at->type != PI__V_MAP || !find_place(s->doc, at->map, &p)) p.n = 0;
    else if (!key) key = "";
    if (!key) return pi__builder_fail(s->b, code, "%s: %s", s->what, text);
    return pi__builder_fail(s->b, code, "%s: %s%.*s%s%s: %s", s->what, at ? "#" : "", (int) p.n, p.text,
                            *key && at ? "/" : "",
                            key, text);
}

bool pi__schema_work(pi__schema *s)
{
    if (!pi__builder_step(s->b, 1)) return false;
    if (++s->work <= MAX_WORK) return true;
    pi__schema_fail(s, NULL, NULL, PI_EINVAL, "its parts have too many combinations: use fewer anyOf, oneOf, not and "
                                              "if together");
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ parts */

/* Schemas are identical if they are the same object of the document, or equal booleans. */
static pi__val identity(const pi__val *v)
{
    return v->type == PI__V_BOOL ? *v : pi__val_int((int64_t) (intptr_t) v->map);
}

/* Returns the index of schema v; l->n if it is missing. */
static size_t place_of(const pi__parts *l, const pi__val *v)
{
    size_t i = 0;
    if (l->places) {
        const pi__val *at = pi__dict_get(l->places, identity(v));
        return at ? (size_t) at->i : l->n;
    }
    while (i < l->n && (l->p[i].v->type != v->type || (v->type != PI__V_BOOL && l->p[i].v->map != v->map))) i++;
    return i;
}

/* Records the index of the last part; records all parts once there are more than FEW_PARTS. */
static void note_places(pi__schema *s, pi__parts *l)
{
    pi__val map;
    size_t i = l->places ? l->n - 1 : 0;
    if (l->n <= FEW_PARTS) return;
    bool ok = l->places || pi__val_new_map(&s->b->zone, &map);
    if (ok && !l->places) l->places = map.map;
    for (; ok && i < l->n; i++)
        ok = pi__dict_set(&s->b->zone, l->places, identity(l->p[i].v), pi__val_int((int64_t) i));
    if (!ok) pi__builder_take(s->b, SIZE_MAX / 2); /* sets b->code */
}

void pi__parts_add(pi__schema *s, pi__parts *l, const pi__val *v, uint32_t skip)
{
    if (s->b->code) return;
    if (v->type != PI__V_MAP && v->type != PI__V_BOOL) {
        pi__schema_fail(s, NULL, NULL, PI_EINVAL, "a schema cannot be %s: give an object, true or false",
                        pi__val_type_name(v));
        return;
    }
    if (v->type == PI__V_BOOL ? v->b : !v->map->n) return; /* true and {} require nothing */
    const size_t place = place_of(l, v);
    if (place < l->n) {
        l->p[place].skip |= skip & PI__SKIP_ALL; /* a choice that was made stays made */
        return;
    }
    if (!pi__builder_step(s->b, 1 + FEW_PARTS) || !pi__schema_work(s)) return;
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 4;
        pi__part *p = pi__builder_take(s->b, cap * sizeof *p);
        if (!p) return;
        if (l->n) memcpy(p, l->p, l->n * sizeof *p);
        l->p = p;
        l->cap = cap;
    }
    l->p[l->n++] = (pi__part) {.v = v, .skip = skip};
    note_places(s, l);
}

/* ------------------------------------------------------------------------------------------------------- references */

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' &&
                        c <= 'F' ? c - 'A' + 10 : -1; }

/* Reads the next name of a JSON pointer, after its slash, and decodes %XX, ~0 and ~1. Returns the rest. */
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

static const pi__val *by_pointer(pi__schema *s, const pi__val *v, const char *p, const char *end)
{
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

/* True if v is a resource of its own: it has an $id that is not an anchor. */
static bool is_resource(const pi__val *v)
{
    const pi__val *id = pi__member(v, "$id");
    return id && id->type == PI__V_STR && id->s.n && id->s.p[0] != '#';
}

/* Returns the schema of resource v with this $anchor, or with an $id that is an anchor (draft 7). The JSON parser
 * bounds the nesting. */
static const pi__val *by_anchor(const pi__val *v, pi__str name, bool top)
{
    const pi__val *found = NULL, *a = pi__member(v, "$anchor"), *id = pi__member(v, "$id");
    if (!top && is_resource(v)) return NULL;
    if (a && a->type == PI__V_STR && pi__str_eq(a->s, name)) return v;
    if (id && id->type == PI__V_STR && id->s.n == name.n + 1 && id->s.p[0] == '#' && !memcmp(id->s.p + 1, name.p,
        name.n))
        return v;
    for (size_t i = 0; v->type == PI__V_MAP && i < v->map->n && !found; i++)
        found = by_anchor(&v->map->e[i].value, name, false);
    for (size_t i = 0; v->type == PI__V_LIST && i < v->list->n && !found; i++)
        found = by_anchor(&v->list->v[i], name, false);
    return found;
}

/* Finds the innermost schema around `map` that has an $id; the document if there is none. */
static bool find_base(pi__schema *s, const pi__val *v, const pi__dict *map, const pi__val **base)
{
    const pi__val *was = *base;
    bool found = v->type == PI__V_MAP && v->map == map;
    if (!pi__schema_work(s)) return false;
    if (is_resource(v)) *base = v;
    for (size_t i = 0; v->type == PI__V_MAP && i < v->map->n && !found; i++)
        found = find_base(s, &v->map->e[i].value, map, base);
    for (size_t i = 0; v->type == PI__V_LIST && i < v->list->n && !found; i++)
        found = find_base(s, &v->list->v[i], map, base);
    if (!found) *base = was;
    return found;
}

/* Returns a schema with an $id equal to name, or ending with a slash and name. *n: number of matches. */
static const pi__val *by_id(const pi__val *v, pi__str name, size_t *n)
{
    const pi__val *id = pi__member(v, "$id"), *found = NULL, *k;
    if (id && id->type == PI__V_STR && id->s.n >= name.n && name.n) {
        const char *end = id->s.p + (id->s.n - name.n);
        if (!memcmp(end, name.p, name.n) && (end == id->s.p || end[-1] == '/')) found = v, ++*n;
    }
    for (size_t i = 0; v->type == PI__V_MAP && i < v->map->n; i++)
        if ((k = by_id(&v->map->e[i].value, name, n))) found = k;
    for (size_t i = 0; v->type == PI__V_LIST && i < v->list->n; i++)
        if ((k = by_id(&v->list->v[i], name, n))) found = k;
    return found;
}

static bool has_id(const pi__val *v, bool top)
{
    const pi__val *id = pi__member(v, "$id");
    bool found = !top && id && id->type == PI__V_STR;
    for (size_t i = 0; v->type == PI__V_MAP && i < v->map->n && !found; i++) found = has_id(&v->map->e[i].value, false);
    for (size_t i = 0; v->type == PI__V_LIST && i < v->list->n && !found; i++) found = has_id(&v->list->v[i], false);
    return found;
}

/* Returns the document or schema named by ref before its #. *rest: ref from the # on. */
static const pi__val *document_of(pi__schema *s, const pi__val *v, pi__str ref, pi__str *rest)
{
    const char *hash = memchr(ref.p, '#', ref.n);
    const pi__str name = {ref.p, hash ? (size_t) (hash - ref.p) : ref.n};
    const pi__val *base = s->doc, *id = pi__member(s->doc, "$id");
    *rest = (pi__str) {ref.p + name.n, ref.n - name.n};
    if (!id || id->type != PI__V_STR) id = pi__member(s->doc, "id"); /* draft 4 */
    if (!name.n) {
        if (s->has_ids) find_base(s, s->doc, v->map, &base);
        return base;
    }
    if (id && id->type == PI__V_STR && pi__str_eq(id->s, name)) return s->doc;
    size_t n = 0;
    base = s->has_ids ? by_id(s->doc, name, &n) : NULL;
    return n == 1 ? base : NULL;
}

const pi__val *pi__schema_refer(pi__schema *s, const pi__val *v, const pi__val *ref)
{
    const int n = ref->type == PI__V_STR ? (int) (ref->s.n < 60 ? ref->s.n : 60) : 0;
    pi__str t;
    if (!pi__schema_work(s)) return NULL;
    if (ref->type != PI__V_STR) {
        pi__schema_fail(s, v, "$ref", PI_EINVAL, "it is %s: give a text like \"#/$defs/name\"", pi__val_type_name(ref));
        return NULL;
    }
    const pi__val *base = document_of(s, v, ref->s, &t), *to;
    if (!base) {
        pi__schema_fail(s, v, "$ref", PI_EUNSUPPORTED, "\"%.*s\" is in another document, which is not supported: put "
            "it into "
                        "$defs and write \"#/$defs/...\"", n, ref->s.p);
        return NULL;
    }
    if (t.n <= 1) return base;
    to = t.p[1] == '/' ? by_pointer(s, base, t.p + 1, t.p + t.n) : by_anchor(base, (pi__str) {t.p + 1, t.n - 1}, true);
    if (!to) pi__schema_fail(s, v, "$ref", PI_EINVAL, "there is no \"%.*s\": add it to the document", n, ref->s.p);
    return to;
}

/* Adds a schema that part i requires. A schema that requires itself is rejected: it says nothing, and validators never
 * terminate on it. */
static void add_from(pi__schema *s, pi__parts *l, size_t i, const pi__val *v)
{
    const bool known = v->type == PI__V_MAP && place_of(l, v) < l->n;
    for (size_t k = i + 1; known && k && pi__schema_work(s); k = l->p[k - 1].from)
        if (l->p[k - 1].v->type == PI__V_MAP && l->p[k - 1].v->map == v->map)
            pi__schema_fail(s, v, NULL, PI_EUNSUPPORTED, "a $ref leads back to its own schema: remove it");
    const size_t n = l->n;
    pi__parts_add(s, l, v, PI__FROM_PART);
    if (l->n > n) l->p[n].from = (uint32_t) i + 1;
}

/* Adds a schema derived from keyword `key` of part i. */
static void add_made(pi__schema *s, pi__parts *l, size_t i, const char *key, const pi__val *made)
{
    if (!made) return;
    if (made->type == PI__V_BOOL && !made->b && s->lost && strcmp(key, "not") == 0)
        pi__schema_fail(s, l->p[i].v, key, PI_EUNSUPPORTED, "a schema with %s cannot be negated: describe the allowed "
                                                            "values instead", s->lost);
    const size_t n = l->n;
    pi__parts_add(s, l, made, PI__FROM_PART);
    if (l->n > n) l->p[n].from = (uint32_t) i + 1;
}

void pi__parts_expand(pi__schema *s, pi__parts *l)
{
    static const char *const depend[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (size_t i = 0; i < l->n && !s->b->code; i++) { /* l grows in the loop */
        const pi__val *v = l->p[i].v, *ref = pi__member(v, "$ref"), *all = pi__member(v, "allOf"), *k;
        const pi__val *to = ref ? pi__schema_refer(s, v, ref) : NULL;
        if (to) add_from(s, l, i, to);
        if (all && all->type != PI__V_LIST)
            pi__schema_fail(s, v, "allOf", PI_EINVAL, "it is %s: give a list of schemas", pi__val_type_name(all));
        for (size_t c = 0; all && all->type == PI__V_LIST && c < all->list->n && !s->b->code; c++)
            add_from(s, l, i, &all->list->v[c]);
        if ((k = pi__member(v, "not"))) {
            s->lost = NULL;
            add_made(s, l, i, "not", pi__schema_not(s, k));
        }
        if (pi__member(v, "if") && (pi__member(v, "then") || pi__member(v, "else")))
            add_made(s, l, i, "if", pi__schema_if(s, v));
        for (int d = 0; d < 3; d++)
            if (pi__member(v, depend[d])) add_made(s, l, i, depend[d], pi__schema_dependencies(s, v, depend[d]));
    }
}

/* --------------------------------------------------------------------------------------------------------- keywords */

/* Keywords that cannot be enforced, unless they require nothing. draft3: checked only in schemas of draft 3. */
static const struct { const char *key; bool draft3; } refused[] = {
    {"$dynamicRef", false}, {"$recursiveRef", false}, {"extends", true}, {"disallow", true},
    {"divisibleBy", true}};

static bool is_draft3(const pi__schema *s)
{
    const pi__val *v = pi__member(s->doc, "$schema");
    return v && v->type == PI__V_STR && v->s.n < 200 && memmem(v->s.p, v->s.n, "draft-03", 8);
}

/* Rejects unsupported keywords. alone: v is the only schema requested here. */
static void check_keywords(pi__schema *s, const pi__val *v, bool alone)
{
    const pi__val *x;
    for (size_t i = 0; i < sizeof refused / sizeof *refused && v->type == PI__V_MAP; i++) {
        if (!(x = pi__member(v, refused[i].key)) || (refused[i].draft3 && !is_draft3(s))) continue;
        if ((x->type == PI__V_BOOL && x->b) || (x->type == PI__V_MAP && !x->map->n)) continue;
        pi__schema_fail(s, v, refused[i].key, PI_EUNSUPPORTED,
            "this keyword is not supported: remove it, or use other keywords");
    }
    static const char *const rests[] = {"unevaluatedProperties", "unevaluatedItems"};
    for (int i = 0; i < 2; i++) {
        if (!(x = pi__member(v, rests[i]))) continue;
        if (!alone)
            pi__schema_fail(s, v, rests[i], PI_EUNSUPPORTED,
                "it is not supported inside allOf, anyOf or $ref: move it next to them");
        if (x->type != PI__V_BOOL && x->type != PI__V_MAP)
            pi__schema_fail(s, v, rests[i], PI_EINVAL, "it is %s: give a schema", pi__val_type_name(x));
    }
}

/* Rejects unevaluatedProperties and unevaluatedItems together with not, if and other keywords that do not count as
 * evaluating a property. */
static void check_unevaluated(pi__schema *s, const pi__parts *l)
{
    static const char *const keys[] = {"not", "if", "dependentSchemas", "dependencies", "contains"};
    const pi__val *rest = NULL, *v;
    for (size_t i = 0; i < l->n && !rest; i++)
        if (pi__member(v = l->p[i].v, "unevaluatedProperties") || pi__member(v, "unevaluatedItems")) rest = v;
    for (size_t i = 0; i < l->n && rest; i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (pi__member(l->p[i].v, keys[k]))
                pi__schema_fail(s, rest, pi__member(rest, "unevaluatedItems") ? "unevaluatedItems"
                    : "unevaluatedProperties",
                                PI_EUNSUPPORTED, "it is not supported together with %s: remove one of them", keys[k]);
}

/* Returns the types that the keywords of v imply. */
static unsigned implied_by(const pi__val *v)
{
    static const struct { const char *key; unsigned types; } of[] = {
        {"properties", PI__T_OBJECT}, {"required", PI__T_OBJECT}, {"additionalProperties", PI__T_OBJECT},
            {"minProperties", PI__T_OBJECT},
        {"maxProperties", PI__T_OBJECT}, {"unevaluatedProperties", PI__T_OBJECT}, {"unevaluatedItems", PI__T_LIST_OF},
            {"items", PI__T_LIST_OF},
            {"prefixItems", PI__T_LIST_OF}, {"contains", PI__T_LIST_OF}, {"uniqueItems", PI__T_LIST_OF},
            {"patternProperties", PI__T_OBJECT}, {"propertyNames", PI__T_OBJECT}, {"dependentRequired", PI__T_OBJECT},
            {"dependentSchemas", PI__T_OBJECT}, {"dependencies", PI__T_OBJECT}, {"multipleOf",
                PI__T_WHOLE | PI__T_REAL},
        {"minItems", PI__T_LIST_OF}, {"maxItems", PI__T_LIST_OF}, {"minLength", PI__T_TEXT}, {"maxLength", PI__T_TEXT},
            {"pattern", PI__T_TEXT},
        {"minimum", PI__T_WHOLE | PI__T_REAL}, {"maximum", PI__T_WHOLE | PI__T_REAL},
        {"exclusiveMinimum", PI__T_WHOLE | PI__T_REAL}, {"exclusiveMaximum", PI__T_WHOLE | PI__T_REAL}};
    const pi__val *format = pi__member(v, "format");
    unsigned t = format && pi__format_regex(format) ? PI__T_TEXT : 0;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (pi__member(v, of[i].key)) t |= of[i].types;
    return pi__member(v, PI__K_MADE) ? 0 : t;
}

/* ----------------------------------------------------------------------------------------------------------- bodies */

/* Adds the parts plus `choice`, with the choice keyword of part `at` skipped. without[k]: schemas of `all` that must
 * not be met. */
static void add_choice(pi__schema *s, pi__expr *alt, const pi__parts *l, size_t at, uint32_t skip,
    const pi__val *choice,
                       const pi__list *all, const bool *without)
{
    pi__parts more = {0};
    for (size_t i = 0; i < l->n; i++) pi__parts_add(s, &more, l->p[i].v, l->p[i].skip | (i == at ? skip : 0));
    pi__parts_add(s, &more, choice, PI__FROM_PART);
    for (size_t k = 0; without && k < all->n && !s->b->code; k++) {
        if (!without[k]) continue;
        s->lost = NULL;
        const pi__val *not = pi__schema_not(s, &all->v[k]);
        if (not && not->type == PI__V_BOOL && !not->b && s->lost)
            pi__schema_fail(s, l->p[at].v, "oneOf", PI_EUNSUPPORTED,
                "schema %zu overlaps with others and has %s, which cannot be negated: use anyOf, or make the schemas "
                "differ in type or in a required property with const", k, s->lost);
        if (not) pi__parts_add(s, &more, not, PI__FROM_PART);
    }
    pi__parts_expand(s, &more);
    if (!s->b->code && !pi__schema_is_empty(s, &more)) pi__x_add(s->b, alt, pi__schema_of(s, &more));
}

/* Adds the schemas of oneOf. Any two that one value may meet exclude each other. */
static void add_one_of(pi__schema *s, pi__expr *alt, const pi__parts *l, size_t at, const pi__list *list)
{
    pi__parts *with = pi__builder_take(s->b, list->n * sizeof *with);
    bool *without = pi__builder_take(s->b, list->n * list->n);
    if (!with || !without) return;
    for (size_t i = 0; i < list->n && !s->b->code; i++) {
        for (size_t j = 0; j < l->n; j++)
            pi__parts_add(s, &with[i], l->p[j].v, l->p[j].skip | (j == at ? PI__SKIP_ONE_OF : 0));
        pi__parts_add(s, &with[i], &list->v[i], 0);
        pi__parts_expand(s, &with[i]);
        for (size_t k = 0; k < i && pi__schema_work(s); k++)
            without[i * list->n + k] = without[k * list->n + i] = !pi__schema_disjoint(s, &with[i], &with[k]);
    }
    for (size_t i = 0; i < list->n && !s->b->code; i++)
        add_choice(s, alt, l, at, PI__SKIP_ONE_OF, &list->v[i], list, without + i * list->n);
}

/* Part `at` requires some property (PI__K_HAS): returns a choice over the named properties and an unnamed one. */
static pi__expr *choice_of_has(pi__schema *s, const pi__parts *l, size_t at)
{
    const pi__val *v = l->p[at].v;
    const pi__reg *r = pi__schema_language(s, &pi__member(v, PI__K_HAS)->list->v[0]);
    pi__expr *alt = pi__x_alt(s->b);
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *props = pi__member(l->p[i].v, "properties");
        for (size_t k = 0; props && props->type == PI__V_MAP && k < props->map->n && !s->b->code; k++) {
            const pi__str name = props->map->e[k].key.s;
            const pi__val *has = !r || (pi__reg_mark(r, name) & 1) ? pi__schema_has(s, v, name) : NULL;
            if (has) add_choice(s, alt, l, at, PI__SKIP_HAS | PI__HAS_MET, has, NULL, NULL);
        }
    }
    pi__parts more = {0};
    for (size_t i = 0; i < l->n; i++) pi__parts_add(s, &more, l->p[i].v, l->p[i].skip | (i == at ? PI__SKIP_HAS : 0));
    pi__x_add(s->b, alt, pi__schema_of(s, &more));
    return alt;
}

/* Returns the first anyOf or oneOf of the parts as a choice; NULL if there is none. */
static pi__expr *choices(pi__schema *s, const pi__parts *l)
{
    for (size_t i = 0; i < l->n; i++) {
        for (int one = 0; one < 2; one++) {
            const char *key = one ? "oneOf" : "anyOf";
            const pi__val *list = l->p[i].skip & (one ? PI__SKIP_ONE_OF : PI__SKIP_ANY_OF) ? NULL
                : pi__member(l->p[i].v, key);
            if (!list) continue;
            pi__expr *alt = pi__x_alt(s->b);
            if (list->type != PI__V_LIST || !list->list->n)
                pi__schema_fail(s, l->p[i].v, key, PI_EINVAL, "give a list of schemas");
            else if (one) add_one_of(s, alt, l, i, list->list);
            for (size_t c = 0; !one && !s->b->code && c < list->list->n; c++)
                add_choice(s, alt, l, i, PI__SKIP_ANY_OF, &list->list->v[c], NULL, NULL);
            return alt;
        }
    }
    for (size_t i = 0; i < l->n; i++)
        if (pi__member(l->p[i].v, PI__K_HAS) && !(l->p[i].skip & PI__SKIP_HAS)) return choice_of_has(s, l, i);
    return NULL;
}

/* Returns a value as JSON, with optional white space. The JSON parser bounds the nesting. */
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

static pi__expr *of_values(pi__schema *s, const pi__parts *l, const pi__val *const *v, size_t n)
{
    pi__expr *alt = pi__x_alt(s->b);
    for (size_t i = 0; i < n && !s->b->code; i++) {
        int meets = 1;
        for (size_t k = 0; k < l->n && meets; k++) {
            meets = pi__value_meets(s, v[i], l->p[k].v, 1);
            if (meets < 0) pi__schema_fail(s, l->p[k].v, NULL, PI_EUNSUPPORTED,
                "values of enum or const cannot be checked against this schema: list only values that meet it");
        }
        if (meets > 0) pi__x_add(s->b, alt, of_value(s, v[i]));
    }
    return alt;
}

/* True if the part excludes this value. */
static bool excludes(const pi__val *v, const pi__val *x)
{
    const pi__val *not = pi__member(v, PI__K_NOT);
    for (size_t i = 0; not && i < not->list->n; i++)
        if (pi__json_equal(&not->list->v[i], x)) return true;
    return false;
}

/* Returns all types except the ones in `types` that have a value excluded by the part. */
static unsigned excludes_type(const pi__val *v, unsigned types)
{
    const pi__val *not = pi__member(v, PI__K_NOT);
    unsigned out = 0;
    for (size_t i = 0; not && i < not->list->n; i++) out |= pi__type_of_value(&not->list->v[i]) & types;
    return ~out;
}

static pi__expr *of_types(pi__schema *s, const pi__parts *l, unsigned types)
{
    pi__builder *b = s->b;
    pi__expr *alt = pi__x_alt(b);
    static const struct { unsigned type; pi__val v; } words[] = {
        {PI__T_NULL, {.type = PI__V_NONE}}, {PI__T_FALSE_TRUE, {.type = PI__V_BOOL, .b = true}},
        {PI__T_FALSE_TRUE, {.type = PI__V_BOOL}}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        bool out = !(types & words[i].type);
        for (size_t k = 0; k < l->n && !out; k++) out = excludes(l->p[k].v, &words[i].v);
        if (!out) pi__x_add(b, alt, pi__schema_scalar(s, &words[i].v));
    }
    for (size_t k = 0; k < l->n; k++) /* lists and objects except given ones cannot be expressed: generate none */
        types &= excludes_type(l->p[k].v, PI__T_LIST_OF | PI__T_OBJECT);
    if (types & PI__T_TEXT) pi__x_add(b, alt, pi__schema_text(s, l));
    if (types & (PI__T_WHOLE | PI__T_REAL)) pi__x_add(b, alt, pi__schema_number(s, l, types));
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
        given |= pi__member(v, "type") && !pi__member(v, PI__K_MADE);
        implied |= implied_by(v);
    }
    check_unevaluated(s, l);
    if (s->b->code) return pi__x_never(s->b);
    pi__expr *c = choices(s, l);
    if (c || s->b->code) return c ? c : pi__x_never(s->b);
    if (pi__schema_values(s, l, &value, &n)) return of_values(s, l, value, n);
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
    pi__val known, made, regs;
    pi__parts l = {0};
    pi__expr *x = pi__x_never(b);
    if (!pi__val_new_map(&b->zone, &known) || !pi__val_new_map(&b->zone, &made) || !pi__val_new_map(&b->zone, &regs)) {
        pi__builder_take(b, SIZE_MAX / 2);
        return x;
    }
    s.known = known.map;
    s.made = made.map;
    s.regs = regs.map;
    s.has_ids = has_id(v, true);
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
