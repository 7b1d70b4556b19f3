/* Schemas derived from others: negations, conditions and dependencies (see schema.c).
 *
 * A negation is pushed down to keywords, each of which has an opposite:
 *
 *     not {type: object, required: [a], properties: {b: S}}
 *       =  anyOf [ any other type, an object without a, an object with b that does not meet S ]
 *
 * A keyword without an opposite is left out of the choice. The derived schema then allows less than the exact
 * negation, never more. If no alternative is left, `lost` names the keyword. Derived schemas have the member
 * PI__K_MADE: they do not forbid unnamed properties and imply no types. Each is created once per schema, so schemas
 * that refer to themselves terminate. */
#include <stdio.h>
#include <string.h>

#include "grammar/schema.h"

enum { MAX_NESTED = 24, MAX_ONE_OF = 8 };

static const pi__val never = {.type = PI__V_BOOL, .b = false}, always = {.type = PI__V_BOOL, .b = true};

/* ---------------------------------------------------------------------------------------------------------- making */

static void no_room(pi__schema *s) { pi__builder_take(s->b, SIZE_MAX / 2); }

static pi__val new_map(pi__schema *s)
{
    pi__val v = never;
    if (s->b->code) return v;
    if (!pi__val_new_map(&s->b->zone, &v) || !pi__dict_set_str(&s->b->zone, v.map, PI__K_MADE, pi__val_bool(true)))
        no_room(s);
    return v;
}

static pi__val new_list(pi__schema *s)
{
    pi__val v = never;
    if (!s->b->code && !pi__val_new_list(&s->b->zone, 4, &v)) no_room(s);
    return v;
}

static void set(pi__schema *s, pi__val *map, const char *key, pi__val v)
{
    if (!s->b->code && !pi__dict_set_str(&s->b->zone, map->map, key, v)) no_room(s);
}

static void set_str(pi__schema *s, pi__val *map, pi__str key, pi__val v)
{
    if (!s->b->code && !pi__dict_set(&s->b->zone, map->map, pi__val_str(key), v)) no_room(s);
}

static void add(pi__schema *s, pi__val *list, pi__val v)
{
    if (!s->b->code && !pi__list_add(&s->b->zone, list->list, v)) no_room(s);
}

static pi__val list_of(pi__schema *s, pi__val x)
{
    pi__val l = new_list(s);
    add(s, &l, x);
    return l;
}

/* Returns a schema of one keyword for values of some types. */
static pi__val of_types(pi__schema *s, unsigned types, const char *key, pi__val x)
{
    pi__val m = new_map(s);
    set(s, &m, PI__K_TYPES, pi__val_int(types));
    if (key) set(s, &m, key, x);
    return m;
}

static pi__val all_of(pi__schema *s, pi__val x, pi__val y)
{
    pi__val m = new_map(s), l = list_of(s, x);
    add(s, &l, y);
    set(s, &m, "allOf", l);
    return m;
}

/* Returns a schema of objects with a property `name` that meets x. x never: objects without the property. */
static pi__val with_property(pi__schema *s, pi__str name, pi__val x)
{
    pi__val props = never, m;
    if (!s->b->code && !pi__val_new_map(&s->b->zone, &props)) no_room(s);
    set_str(s, &props, name, x);
    m = of_types(s, PI__T_OBJECT, "properties", props);
    if (x.type != PI__V_BOOL || x.b) set(s, &m, "required", list_of(s, pi__val_str(name)));
    return m;
}

/* Returns a choice of the alternatives; never if the list is empty. */
static pi__val any_of(pi__schema *s, pi__val alternatives)
{
    if (s->b->code || !alternatives.list->n) return never;
    if (alternatives.list->n == 1) return alternatives.list->v[0];
    pi__val m = new_map(s);
    set(s, &m, "anyOf", alternatives);
    return m;
}

static bool is_never(pi__val v) { return v.type == PI__V_BOOL && !v.b; }

/* Returns the schema derived from v before, or a new one to fill in (*known false). key, name: method and argument. */
static pi__val *made_of(pi__schema *s, const pi__val *v, const char *key, pi__str name, bool *known)
{
    const size_t n = sizeof(void *) + strlen(key);
    char *id = pi__builder_take(s->b, n + name.n);
    *known = false;
    if (!id) return NULL;
    memcpy(id, &v->map, sizeof(void *));
    memcpy(id + sizeof(void *), key, n - sizeof(void *));
    if (name.n) memcpy(id + n, name.p, name.n);
    const pi__val as_key = pi__val_str((pi__str) {id, n + name.n}), *old = pi__dict_get(s->made, as_key);
    *known = old != NULL;
    if (old) return (pi__val *) (intptr_t) old->i;
    pi__val *new = pi__builder_take(s->b, sizeof *new);
    if (!new) return NULL;
    *new = never; /* valid while it is being made */
    if (!pi__dict_set(&s->b->zone, s->made, as_key, pi__val_int((intptr_t) new))) no_room(s);
    return new;
}

static const pi__str no_name = {"", 0};

/* --------------------------------------------------------------------------------------------------------- negation */

static pi__val not(pi__schema *s, const pi__val *v)
{
    const pi__val *n = pi__schema_not(s, v);
    return n ? *n : never;
}

static void add_not(pi__schema *s, pi__val *alternatives, const pi__val *v)
{
    const pi__val n = not(s, v);
    if (!is_never(n)) add(s, alternatives, n);
}

static pi__val number(double x) { return x < 1e15 ? pi__val_int((int64_t) x) : pi__val_float(x); }

static void not_counts(pi__schema *s, const pi__val *v, pi__val *out)
{
    static const struct { const char *key, *opposite; unsigned types; bool min; } of[] = {
        {"minLength", "maxLength", PI__T_TEXT, true}, {"maxLength", "minLength", PI__T_TEXT, false},
        {"minItems", "maxItems", PI__T_LIST_OF, true}, {"maxItems", "minItems", PI__T_LIST_OF, false},
        {"minProperties", "maxProperties", PI__T_OBJECT, true}, {"maxProperties", "minProperties", PI__T_OBJECT,
            false}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const pi__val *k = pi__member(v, of[i].key);
        if (!k || !pi__val_is_number(k) || (of[i].min && pi__val_f64(k) < 1)) continue;
        add(s, out, of_types(s, of[i].types, of[i].opposite, number(pi__val_f64(k) + (of[i].min ? -1 : 1))));
    }
}

static void not_numbers(pi__schema *s, const pi__val *v, pi__val *out)
{
    const unsigned types = PI__T_WHOLE | PI__T_REAL;
    const pi__val *k;
    bool open;
    for (int i = 0; i < 4; i++) {
        const bool low = i < 2;
        if (!(k = pi__schema_bound(v, low, i % 2, &open)) || !pi__val_is_number(k)) continue;
        add(s, out, of_types(s, types, low ? (open ? "maximum" : "exclusiveMaximum")
                                           : (open ? "minimum" : "exclusiveMinimum"), *k));
    }
    if ((k = pi__member(v, "multipleOf"))) add(s, out, of_types(s, types, PI__K_NO_MULTIPLE, *k));
    if ((k = pi__member(v, PI__K_NO_MULTIPLE))) add(s, out, of_types(s, types, "multipleOf", *k));
}

static void not_texts(pi__schema *s, const pi__val *v, pi__val *out)
{
    const pi__val *k;
    if ((k = pi__member(v, "pattern")) && k->type == PI__V_STR)
        add(s, out, of_types(s, PI__T_TEXT, PI__K_NO_PATTERN, list_of(s, *k)));
    if ((k = pi__member(v, "format")) && pi__format_regex(k)) add(s, out, of_types(s, PI__T_TEXT, PI__K_NO_FORMAT, *k));
    k = pi__member(v, PI__K_NO_PATTERN);
    for (size_t i = 0; k && i < k->list->n; i++) add(s, out, of_types(s, PI__T_TEXT, "pattern", k->list->v[i]));
    if ((k = pi__member(v, PI__K_NO_FORMAT))) add(s, out, of_types(s, PI__T_TEXT, "format", *k));
}

static void not_lists(pi__schema *s, const pi__val *v, pi__val *out)
{
    const pi__list *prefix;
    const pi__val *rest, *k = pi__member(v, "contains");
    pi__schema_items(v, &prefix, &rest);
    for (size_t i = 0; prefix && i < prefix->n; i++) {
        const pi__val x = not(s, &prefix->v[i]);
        if (is_never(x)) continue;
        pi__val m = of_types(s, PI__T_LIST_OF, "minItems", pi__val_int((int64_t) i + 1)), l = new_list(s);
        for (size_t j = 0; j < i; j++) add(s, &l, always);
        add(s, &l, x);
        set(s, &m, "prefixItems", l);
        set(s, &m, "items", always);
        add(s, out, m);
    }
    if (rest && !prefix) {
        const pi__val x = not(s, rest);
        if (!is_never(x)) add(s, out, of_types(s, PI__T_LIST_OF, "contains", x));
    } else if (rest && rest->type == PI__V_BOOL && !rest->b) {
        add(s, out, of_types(s, PI__T_LIST_OF, "minItems", pi__val_int((int64_t) prefix->n + 1)));
    } else if (rest && (rest->type != PI__V_BOOL || !rest->b)) {
        s->lost = "items";
    }
    if (k && !pi__member(v, "minContains") && !pi__member(v, "maxContains"))
        add(s, out, of_types(s, PI__T_LIST_OF, "items", not(s, k)));
    else if (k) s->lost = "contains";
    if (pi__member(v, "unevaluatedItems")) s->lost = "unevaluatedItems";
    if ((k = pi__member(v, "uniqueItems")) && k->type == PI__V_BOOL && k->b) s->lost = "uniqueItems";
}

/* Returns a schema of objects that have an unnamed property with this schema of its name and of its value. */
static pi__val with_other(pi__schema *s, pi__val name, pi__val value)
{
    pi__val l = list_of(s, name);
    add(s, &l, value);
    return of_types(s, PI__T_OBJECT, PI__K_HAS, l);
}

static void not_other_properties(pi__schema *s, const pi__val *v, pi__val *out)
{
    const pi__val *props = pi__member(v, "properties"), *patterns = pi__member(v, "patternProperties");
    const pi__val *other = pi__member(v, "additionalProperties"), *names = pi__member(v, "propertyNames");
    pi__val declared = new_list(s), matched = new_list(s), name = of_types(s, PI__T_TEXT, NULL, never);
    for (size_t i = 0; props && props->type == PI__V_MAP && i < props->map->n; i++) add(s, &declared,
        props->map->e[i].key);
    for (size_t i = 0; patterns && patterns->type == PI__V_MAP && i < patterns->map->n; i++) {
        const pi__entry *e = &patterns->map->e[i];
        const pi__val x = not(s, &e->value);
        add(s, &matched, e->key);
        if (is_never(x)) continue;
        add(s, out, with_other(s, of_types(s, PI__T_TEXT, "pattern", e->key), x));
        for (size_t k = 0; !s->b->code && k < declared.list->n; k++) {
            const pi__reg *r = pi__schema_pattern(s, v, e->key.s);
            if (r && (pi__reg_mark(r, declared.list->v[k].s) & 1)) add(s, out, with_property(s, declared.list->v[k].s,
                x));
        }
    }
    if (other && (other->type != PI__V_BOOL || !other->b)) {
        set(s, &name, PI__K_NOT, declared);
        if (!s->b->code && matched.list->n) set(s, &name, PI__K_NO_PATTERN, matched);
        const pi__val x = not(s, other);
        if (!is_never(x)) add(s, out, with_other(s, name, x));
    }
    if (names) {
        const pi__val x = not(s, names);
        if (!is_never(x)) add(s, out, with_other(s, x, always));
        for (size_t k = 0; !s->b->code && k < declared.list->n; k++)
            if (!pi__value_meets(s, &declared.list->v[k], names, 1))
                add(s, out, with_property(s, declared.list->v[k].s, always));
    }
}

static void not_objects(pi__schema *s, const pi__val *v, pi__val *out)
{
    static const char *const depend[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    const pi__val *props = pi__member(v, "properties"), *k = pi__member(v, "required");
    for (size_t i = 0; k && k->type == PI__V_LIST && i < k->list->n; i++)
        if (k->list->v[i].type == PI__V_STR) add(s, out, with_property(s, k->list->v[i].s, never));
    for (size_t i = 0; props && props->type == PI__V_MAP && i < props->map->n; i++) {
        const pi__val x = not(s, &props->map->e[i].value);
        if (!is_never(x)) add(s, out, with_property(s, props->map->e[i].key.s, x));
    }
    not_other_properties(s, v, out);
    for (int i = 0; i < 3; i++)
        if (pi__member(v, depend[i]) && (k = pi__schema_dependencies(s, v, depend[i]))) add_not(s, out, k);
    if (pi__member(v, "unevaluatedProperties")) s->lost = "unevaluatedProperties";
    if (pi__member(v, PI__K_HAS)) s->lost = "not";
}

/* Negates allOf, anyOf, oneOf, not, if and $ref. */
static void not_parts(pi__schema *s, const pi__val *v, pi__val *out)
{
    const pi__val *all = pi__member(v, "allOf"), *any = pi__member(v, "anyOf"), *one = pi__member(v, "oneOf"), *k;
    for (size_t i = 0; all && all->type == PI__V_LIST && i < all->list->n; i++) add_not(s, out, &all->list->v[i]);
    for (int pass = 0; pass < 2; pass++) {
        k = pass ? one : any;
        pi__val none = new_list(s);
        bool possible = true;
        for (size_t i = 0; k && k->type == PI__V_LIST && i < k->list->n; i++) {
            const pi__val x = not(s, &k->list->v[i]);
            possible &= !is_never(x);
            add(s, &none, x);
        }
        if (!k || !possible || s->b->code) continue;
        pi__val m = new_map(s);
        set(s, &m, "allOf", none);
        add(s, out, m);
    }
    if (one && one->type == PI__V_LIST && one->list->n > MAX_ONE_OF) s->lost = "oneOf";
    for (size_t i = 0; one && one->type == PI__V_LIST && one->list->n <= MAX_ONE_OF && i < one->list->n; i++)
        for (size_t j = 0; j < i; j++) add(s, out, all_of(s, one->list->v[i], one->list->v[j]));
    if ((k = pi__member(v, "not"))) add(s, out, *k);
    if (pi__member(v, "if") && (k = pi__schema_if(s, v))) add_not(s, out, k);
    if ((k = pi__member(v, "$ref")) && (k = pi__schema_refer(s, v, k))) add_not(s, out, k);
}

static pi__val negate(pi__schema *s, const pi__val *v)
{
    pi__val out = new_list(s);
    const pi__val *one = pi__member(v, "const"), *list = pi__member(v, "enum"), *k = pi__member(v, PI__K_NOT);
    const unsigned types = pi__types_of(s, v);
    if (types != PI__T_ANY) add(s, &out, of_types(s, PI__T_ANY & ~types, NULL, never));
    if (one) add(s, &out, of_types(s, PI__T_ANY, PI__K_NOT, list_of(s, *one)));
    if (list && list->type == PI__V_LIST) add(s, &out, of_types(s, PI__T_ANY, PI__K_NOT, *list));
    if (k) add(s, &out, of_types(s, PI__T_ANY, "enum", *k));
    not_counts(s, v, &out);
    not_numbers(s, v, &out);
    not_texts(s, v, &out);
    not_lists(s, v, &out);
    not_objects(s, v, &out);
    not_parts(s, v, &out);
    return any_of(s, out);
}

const pi__val *pi__schema_not(pi__schema *s, const pi__val *v)
{
    bool known;
    if (s->b->code || !pi__schema_work(s)) return NULL;
    if (v->type == PI__V_BOOL) return v->b ? &never : &always;
    if (v->type != PI__V_MAP) {
        pi__schema_fail(s, NULL, "not", PI_EINVAL, "a schema cannot be %s: give an object, true or false",
                        pi__val_type_name(v));
        return NULL;
    }
    pi__val *out = made_of(s, v, "not", no_name, &known);
    if (known || !out) return out;
    if (s->depth >= MAX_NESTED) return s->lost = "$ref", out;
    s->depth++;
    *out = negate(s, v);
    s->depth--;
    return s->b->code ? NULL : out;
}

/* ---------------------------------------------------------------------------------- conditions, dependencies */

const pi__val *pi__schema_if(pi__schema *s, const pi__val *v)
{
    bool known;
    const pi__val *test = pi__member(v, "if"), *then = pi__member(v, "then"), *other = pi__member(v, "else");
    pi__val *out = made_of(s, v, "if", no_name, &known);
    if (known || !out) return out;
    pi__val l = new_list(s);
    const pi__val failed = not(s, test);
    add(s, &l, all_of(s, *test, then ? *then : always));
    if (!is_never(failed)) add(s, &l, all_of(s, failed, other ? *other : always));
    *out = any_of(s, l);
    return s->b->code ? NULL : out;
}

const pi__val *pi__schema_dependencies(pi__schema *s, const pi__val *v, const char *key)
{
    bool known;
    const pi__val *k = pi__member(v, key);
    pi__val *out = made_of(s, v, key, no_name, &known);
    if (known || !out) return out;
    pi__val all = new_list(s);
    if (k->type != PI__V_MAP) {
        pi__schema_fail(s, v, key, PI_EINVAL, "it is %s: give an object", pi__val_type_name(k));
        return NULL;
    }
    for (size_t i = 0; i < k->map->n && !s->b->code; i++) {
        const pi__entry *e = &k->map->e[i];
        pi__val l, needs = e->value, absent = never;
        if (needs.type == PI__V_STR) needs = list_of(s, needs); /* draft 3 */
        if (needs.type == PI__V_LIST) {
            pi__val m = new_map(s);
            set(s, &m, "required", needs);
            needs = m;
        }
        if (!s->b->code && !pi__val_new_map(&s->b->zone, &absent)) no_room(s);
        set_str(s, &absent, e->key.s, never);
        pi__val m = new_map(s);
        set(s, &m, "properties", absent);
        l = list_of(s, m);
        add(s, &l, needs);
        m = new_map(s);
        set(s, &m, "anyOf", l);
        add(s, &all, m);
    }
    pi__val m = new_map(s);
    set(s, &m, "allOf", all);
    *out = m;
    return s->b->code ? NULL : out;
}

const pi__val *pi__schema_has(pi__schema *s, const pi__val *v, pi__str name)
{
    bool known;
    pi__val *out = made_of(s, v, "has", name, &known);
    if (!known && out) *out = with_property(s, name, pi__member(v, PI__K_HAS)->list->v[1]);
    return s->b->code ? NULL : out;
}
