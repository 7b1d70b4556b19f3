/* Values in schemas: types, enum and const, validation of a value, and proofs that schemas exclude each other (see
 * schema.c). */
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "grammar/schema.h"

enum { MAX_DEPTH = 64 };

unsigned pi__type_of_value(const pi__val *v)
{
    switch (v->type) {
    case PI__V_NONE: return PI__T_NULL;
    case PI__V_BOOL: return PI__T_FALSE_TRUE;
    case PI__V_INT: return PI__T_WHOLE;
    case PI__V_FLOAT: return pi__number_is_integer(v) ? PI__T_WHOLE : PI__T_REAL;
    case PI__V_STR: return PI__T_TEXT;
    case PI__V_LIST: return PI__T_LIST_OF;
    default: return PI__T_OBJECT;
    }
}

/* Equality of JSON Schema: 1 equals 1.0; booleans equal no number. */
static bool equal(const pi__val *a, const pi__val *b, int depth)
{
    if (depth > PI__VAL_DEPTH ||
        (pi__type_of_value(a) | (PI__T_WHOLE * 3)) != (pi__type_of_value(b) | (PI__T_WHOLE * 3))) return false;
    switch (a->type) {
    case PI__V_NONE: return true;
    case PI__V_BOOL: return a->b == b->b;
    case PI__V_STR: return pi__str_eq(a->s, b->s);
    case PI__V_LIST:
        if (a->list->n != b->list->n) return false;
        for (size_t i = 0; i < a->list->n; i++)
            if (!equal(&a->list->v[i], &b->list->v[i], depth + 1)) return false;
        return true;
    case PI__V_MAP:
        if (a->map->n != b->map->n) return false;
        for (size_t i = 0; i < a->map->n; i++) {
            const pi__val *x = pi__dict_get(b->map, a->map->e[i].key);
            if (!x || !equal(&a->map->e[i].value, x, depth + 1)) return false;
        }
        return true;
    default: return !pi__number_compare(a, b);
    }
}

bool pi__json_equal(const pi__val *a, const pi__val *b) { return equal(a, b, 0); }

/* Hashes a value. Equal values have equal hashes: 1 and 1.0, and objects with members in another order. */
static uint64_t hash_of(const pi__val *v, int depth)
{
    uint64_t h = 0;
    double x;
    if (depth > PI__VAL_DEPTH) return 0;
    switch (v->type) {
    case PI__V_NONE: return 1;
    case PI__V_BOOL: return v->b ? 2 : 3;
    case PI__V_STR: return pi__hash64(v->s.p, v->s.n, PI__V_STR);
    case PI__V_LIST:
        for (size_t i = 0; i < v->list->n; i++) {
            const uint64_t pair[2] = {h, hash_of(&v->list->v[i], depth + 1)};
            h = pi__hash64(pair, sizeof pair, PI__V_LIST);
        }
        return h;
    case PI__V_MAP:
        for (size_t i = 0; i < v->map->n; i++) {
            const uint64_t pair[2] = {hash_of(&v->map->e[i].key, depth + 1), hash_of(&v->map->e[i].value, depth + 1)};
            h += pi__hash64(pair, sizeof pair, PI__V_MAP);
        }
        return h;
    default:
        x = pi__val_f64(v) + 0.0; /* -0.0 is 0.0 */
        return pi__hash64(&x, sizeof x, PI__V_FLOAT);
    }
}

/* The values of a list by hash. Lists of up to FEW_VALUES have no table and are searched linearly. */
typedef struct value_set {
    const pi__val *v;     /* [n] */
    size_t n, n_slots;
    uint32_t *slot;       /* [n_slots], a power of two: 1 + index; 0 = free */
} value_set;

enum { FEW_VALUES = 8 };

static void fill_set(pi__schema *s, value_set *set)
{
    set->n_slots = 16;
    while (set->n_slots < 2 * set->n) set->n_slots *= 2;
    set->slot = pi__builder_take(s->b, set->n_slots * sizeof *set->slot);
    for (size_t i = 0; i < set->n && set->slot && pi__builder_step(s->b, 4); i++) {
        size_t h = hash_of(&set->v[i], 0) & (set->n_slots - 1);
        while (set->slot[h] && !pi__json_equal(&set->v[i], &set->v[set->slot[h] - 1]) && pi__builder_step(s->b, 1))
            h = (h + 1) & (set->n_slots - 1);
        if (!set->slot[h]) set->slot[h] = (uint32_t) i + 1;
    }
}

/* Returns the hash set of the n values of list v; cached. NULL: the builder's code is set. */
static const value_set *set_of(pi__schema *s, const pi__val *v, size_t n)
{
    const pi__val key = pi__val_int((int64_t) (intptr_t) v);
    pi__val none;
    if (!s->sets && pi__val_new_map(&s->b->zone, &none)) s->sets = none.map;
    const pi__val *known = s->sets ? pi__dict_get(s->sets, key) : NULL;
    if (known) return known->obj;
    value_set *set = pi__builder_take(s->b, sizeof *set);
    if (!set) return NULL;
    *set = (value_set) {.v = v, .n = n};
    fill_set(s, set);
    if (!s->sets || !pi__dict_set(&s->b->zone, s->sets, key, (pi__val) {.type = PI__V_MAP, .obj = set}))
        pi__builder_take(s->b, SIZE_MAX / 2);
    return s->b->code ? NULL : set;
}

/* True if x is one of the n values of list v. */
static bool is_among(pi__schema *s, const pi__val *x, const pi__val *v, size_t n)
{
    if (n <= FEW_VALUES) {
        for (size_t i = 0; i < n; i++)
            if (pi__json_equal(x, &v[i])) return true;
        return false;
    }
    const value_set *set = set_of(s, v, n);
    if (!set) return false;
    for (size_t h = hash_of(x, 0) & (set->n_slots - 1); set->slot[h]; h = (h + 1) & (set->n_slots - 1)) {
        if (!pi__builder_step(s->b, 1)) return false;
        if (pi__json_equal(x, &v[set->slot[h] - 1])) return true;
    }
    return false;
}

unsigned pi__types_of(pi__schema *s, const pi__val *v)
{
    static const struct { const char *name; unsigned types; } of[] = {
        {"null", PI__T_NULL}, {"boolean", PI__T_FALSE_TRUE}, {"object", PI__T_OBJECT}, {"array", PI__T_LIST_OF},
        {"string", PI__T_TEXT}, {"integer", PI__T_WHOLE}, {"number", PI__T_WHOLE | PI__T_REAL}};
    const pi__val *t = pi__member(v, "type"), *made = pi__member(v, PI__K_TYPES), *null = pi__member(v, "nullable");
    unsigned types = 0;
    if (made) return (unsigned) made->i;
    if (!t) return PI__T_ANY;
    const pi__val *names = t->type == PI__V_LIST ? t->list->v : t;
    for (size_t i = 0, n = t->type == PI__V_LIST ? t->list->n : 1; i < n; i++) {
        unsigned one = 0;
        for (size_t k = 0; k < sizeof of / sizeof *of && names[i].type == PI__V_STR; k++)
            if (pi__str_is(names[i].s, of[k].name)) one = of[k].types;
        if (!one && names[i].type == PI__V_STR && pi__str_is(names[i].s, "any")) one = PI__T_ANY; /* draft 3 */
        if (!one) pi__schema_fail(s, v, "type", PI_EINVAL,
                                  "give null, boolean, object, array, string, integer or number, or a list of these");
        types |= one;
    }
    return null && null->type == PI__V_BOOL && null->b ? types | PI__T_NULL : types; /* OpenAPI 3.0 */
}

/* ------------------------------------------------------------------------------------------------------ enum, const */

static const pi__val *list_of(pi__schema *s, const pi__val *schema, size_t *n)
{
    const pi__val *one = pi__member(schema, "const"), *list = pi__member(schema, "enum");
    if (one) return *n = 1, one;
    if (!list) return NULL;
    if (list->type != PI__V_LIST) {
        pi__schema_fail(s, schema, "enum", PI_EINVAL, "it is %s: give a list of values", pi__val_type_name(list));
        return NULL;
    }
    return *n = list->list->n, list->list->v ? list->list->v : list;
}

bool pi__schema_values(pi__schema *s, const pi__parts *l, const pi__val ***out, size_t *n)
{
    const pi__val *v = NULL;
    size_t count = 0;
    *n = 0;
    for (size_t i = 0; i < l->n && !v; i++) v = list_of(s, l->p[i].v, &count);
    if (!v || s->b->code) return false;
    *out = pi__builder_take(s->b, (count + 1) * sizeof **out);
    for (size_t i = 0; i < count && *out; i++) (*out)[(*n)++] = &v[i];
    return *out != NULL;
}

/* ------------------------------------------------------------------------------------------------------- validation */

/* Three-valued logic: 1 true, 0 false, -1 unknown. */
static int and(int a, int b) { return !a || !b ? 0 : a < 0 || b < 0 ? -1 : 1; }
static int or(int a, int b) { return a > 0 || b > 0 ? 1 : a < 0 || b < 0 ? -1 : 0; }
static int negated(int a) { return a < 0 ? a : !a; }

static bool in_list(pi__schema *s, const pi__val *v, const pi__val *list)
{
    return list->type == PI__V_LIST && is_among(s, v, list->list->v, list->list->n);
}

/* True if n is within the limits of the two keywords. */
static bool counts(const pi__val *schema, const char *low, const char *high, size_t n)
{
    const pi__val *k;
    if ((k = pi__member(schema, low)) && pi__val_is_number(k) && (double) n < pi__val_f64(k)) return false;
    return !((k = pi__member(schema, high)) && pi__val_is_number(k) && (double) n > pi__val_f64(k));
}

static int number_meets(const pi__val *v, const pi__val *schema)
{
    const pi__val *k;
    bool open;
    for (int i = 0; i < 4; i++) {
        if (!(k = pi__schema_bound(schema, i < 2, i % 2, &open)) || !pi__val_is_number(k)) continue;
        const int c = pi__number_compare(v, k) * (i < 2 ? 1 : -1);
        if (c < 0 || (!c && open)) return 0;
    }
    if ((k = pi__member(schema, "multipleOf")) && !pi__number_is_multiple(v, k)) return 0;
    return !((k = pi__member(schema, PI__K_NO_MULTIPLE)) && pi__number_is_multiple(v, k));
}

static bool in_language(const pi__reg *r, pi__str text) { return r && (pi__reg_mark(r, text) & 1); }

static int text_meets(pi__schema *s, const pi__val *v, const pi__val *schema)
{
    const pi__val *k;
    if (!counts(schema, "minLength", "maxLength", pi__str_length(v->s))) return 0;
    if ((k = pi__member(schema, "pattern")) && k->type == PI__V_STR &&
        !in_language(pi__schema_pattern(s, schema, k->s), v->s)) return 0;
    if ((k = pi__member(schema, "format")) && pi__format_regex(k) && !in_language(pi__schema_format(s, k->s), v->s))
        return 0;
    k = pi__member(schema, PI__K_NO_PATTERN);
    for (size_t i = 0; k && i < k->list->n; i++)
        if (in_language(pi__schema_pattern(s, schema, k->list->v[i].s), v->s)) return 0;
    return !((k = pi__member(schema, PI__K_NO_FORMAT)) && in_language(pi__schema_format(s, k->s), v->s));
}

static int list_meets(pi__schema *s, const pi__val *v, const pi__val *schema, int depth)
{
    const pi__list *prefix;
    const pi__val *rest, *k;
    int ok = counts(schema, "minItems", "maxItems", v->list->n);
    if (pi__member(schema, "unevaluatedItems")) ok = and(ok, -1);
    pi__schema_items(schema, &prefix, &rest);
    for (size_t i = 0; i < v->list->n && ok; i++) {
        const pi__val *of = prefix && i < prefix->n ? &prefix->v[i] : rest;
        if (of) ok = and(ok, pi__value_meets(s, &v->list->v[i], of, depth));
    }
    if ((k = pi__member(schema, "contains"))) {
        size_t n = 0;
        const pi__val *min = pi__member(schema, "minContains"), *max = pi__member(schema, "maxContains");
        for (size_t i = 0; i < v->list->n && ok; i++) {
            const int has = pi__value_meets(s, &v->list->v[i], k, depth);
            if (has < 0) return -1;
            n += (size_t) has;
        }
        if ((double) n < (min && pi__val_is_number(min) ? pi__val_f64(min) : 1)) return 0;
        if (max && pi__val_is_number(max) && (double) n > pi__val_f64(max)) return 0;
    }
    if ((k = pi__member(schema, "uniqueItems")) && k->type == PI__V_BOOL && k->b)
        for (size_t i = 0; i < v->list->n; i++)
            for (size_t j = 0; j < i; j++)
                if (pi__json_equal(&v->list->v[i], &v->list->v[j])) return 0;
    return ok;
}

static int property_meets(pi__schema *s, const pi__entry *e, const pi__val *schema, int depth)
{
    const pi__val *props = pi__member(schema, "properties"), *patterns = pi__member(schema, "patternProperties");
    const pi__val *other = pi__member(schema, "additionalProperties"), *names = pi__member(schema, "propertyNames");
    const pi__val *of = props && props->type == PI__V_MAP ? pi__dict_get(props->map, e->key) : NULL;
    bool named = of != NULL;
    int ok = of ? pi__value_meets(s, &e->value, of, depth) : 1;
    for (size_t i = 0; patterns && patterns->type == PI__V_MAP && i < patterns->map->n && ok; i++) {
        const pi__entry *p = &patterns->map->e[i];
        if (!in_language(pi__schema_pattern(s, schema, p->key.s), e->key.s)) continue;
        named = true;
        ok = and(ok, pi__value_meets(s, &e->value, &p->value, depth));
    }
    if (!named && other) ok = and(ok, pi__value_meets(s, &e->value, other, depth));
    return names ? and(ok, pi__value_meets(s, &e->key, names, depth)) : ok;
}

static int object_meets(pi__schema *s, const pi__val *v, const pi__val *schema, int depth)
{
    const pi__val *k;
    int ok = counts(schema, "minProperties", "maxProperties", v->map->n);
    if (pi__member(schema, "unevaluatedProperties")) ok = and(ok, -1);
    if ((k = pi__member(schema, PI__K_HAS))) {
        const pi__reg *names = pi__schema_language(s, &k->list->v[0]);
        int has = 0;
        for (size_t i = 0; i < v->map->n && has <= 0; i++)
            if (!names || in_language(names, v->map->e[i].key.s))
                has = or(has, pi__value_meets(s, &v->map->e[i].value, &k->list->v[1], depth));
        ok = and(ok, has);
    }
    k = pi__member(schema, "required");
    for (size_t i = 0; k && k->type == PI__V_LIST && i < k->list->n; i++)
        if (k->list->v[i].type == PI__V_STR && !pi__dict_get(v->map, k->list->v[i])) return 0;
    for (size_t i = 0; i < v->map->n && ok; i++) ok = and(ok, property_meets(s, &v->map->e[i], schema, depth));
    static const char *const depend[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (int i = 0; i < 3 && ok; i++)
        if (pi__member(schema, depend[i]) && (k = pi__schema_dependencies(s, schema, depend[i])))
            ok = and(ok, pi__value_meets(s, v, k, depth));
    return ok;
}

/* Checks allOf, anyOf, oneOf, not, if and $ref. */
static int parts_meet(pi__schema *s, const pi__val *v, const pi__val *schema, int depth)
{
    static const char *const keys[] = {"allOf", "anyOf", "oneOf"};
    const pi__val *k;
    int ok = 1;
    for (int i = 0; i < 3 && ok; i++) {
        if (!(k = pi__member(schema, keys[i])) || k->type != PI__V_LIST) continue;
        int any = 0, all = 1, n = 0;
        for (size_t c = 0; c < k->list->n; c++) {
            const int one = pi__value_meets(s, v, &k->list->v[c], depth);
            any = or(any, one);
            all = and(all, one);
            n += one > 0;
        }
        if (i == 2) ok = and(ok, n > 1 ? 0 : any < 0 || all < 0 ? -1 : n);
        else ok = and(ok, i ? any : all);
    }
    if ((k = pi__member(schema, "not"))) ok = and(ok, negated(pi__value_meets(s, v, k, depth)));
    if (ok && pi__member(schema, "if") && (k = pi__schema_if(s, schema))) ok = and(ok, pi__value_meets(s, v, k, depth));
    if (ok && (k = pi__member(schema, "$ref")) && (k = pi__schema_refer(s, schema, k)))
        ok = and(ok, pi__value_meets(s, v, k, depth));
    return ok;
}

int pi__value_meets(pi__schema *s, const pi__val *v, const pi__val *schema, int depth)
{
    const unsigned type = pi__type_of_value(v);
    const pi__val *k;
    if (depth > MAX_DEPTH || !pi__schema_work(s)) return -1;
    if (schema->type == PI__V_BOOL) return schema->b;
    if (schema->type != PI__V_MAP) return -1;
    if (!(pi__types_of(s, schema) & type)) return 0;
    if ((k = pi__member(schema, "const")) && !pi__json_equal(v, k)) return 0;
    if ((k = pi__member(schema, "enum")) && !in_list(s, v, k)) return 0;
    if ((k = pi__member(schema, PI__K_NOT)) && in_list(s, v, k)) return 0;
    int ok = 1;
    if (type & (PI__T_WHOLE | PI__T_REAL)) ok = number_meets(v, schema);
    else if (type == PI__T_TEXT) ok = text_meets(s, v, schema);
    else if (type == PI__T_LIST_OF) ok = list_meets(s, v, schema, depth + 1);
    else if (type == PI__T_OBJECT) ok = object_meets(s, v, schema, depth + 1);
    return ok ? and(ok, parts_meet(s, v, schema, depth + 1)) : 0;
}

/* --------------------------------------------------------------------------------------------------------- disjoint */

static unsigned types_of_all(pi__schema *s, const pi__parts *l)
{
    unsigned t = PI__T_ANY;
    for (size_t i = 0; i < l->n; i++) t &= l->p[i].v->type == PI__V_BOOL ? 0 : pi__types_of(s, l->p[i].v);
    return t;
}

/* True if no value that a lists meets b's parts. */
static bool values_outside(pi__schema *s, const pi__parts *a, const pi__parts *b)
{
    const pi__val **x;
    size_t n;
    if (!pi__schema_values(s, a, &x, &n)) return false;
    for (size_t i = 0; i < n && !s->b->code; i++) {
        int meets = 1;
        for (size_t k = 0; k < a->n && meets; k++) meets = and(meets, pi__value_meets(s, x[i], a->p[k].v, 1));
        for (size_t k = 0; k < b->n && meets; k++) meets = and(meets, pi__value_meets(s, x[i], b->p[k].v, 1));
        if (meets) return false;
    }
    return true;
}

static bool requires(const pi__parts *l, pi__str name)
{
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *r = pi__member(l->p[i].v, "required");
        for (size_t k = 0; r && r->type == PI__V_LIST && k < r->list->n; k++)
            if (r->list->v[k].type == PI__V_STR && pi__str_eq(r->list->v[k].s, name)) return true;
    }
    return false;
}

/* Gets the schemas of a property; false if no part mentions it. */
static bool property(pi__schema *s, const pi__parts *l, pi__str name, pi__parts *out)
{
    bool said = false;
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *p = pi__member(l->p[i].v, "properties"), *other = pi__member(l->p[i].v, "additionalProperties");
        const pi__val *v = p && p->type == PI__V_MAP ? pi__dict_get(p->map, pi__val_str(name)) : NULL;
        if (!v && other && !pi__member(l->p[i].v, "patternProperties")) v = other;
        if (v) pi__parts_add(s, out, v, 0), said = true;
    }
    pi__parts_expand(s, out);
    return said;
}

/* True if a property that a requires distinguishes them: b forbids it, or allows only other values or types. */
static bool told_apart(pi__schema *s, const pi__parts *a, const pi__parts *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const pi__val *r = pi__member(a->p[i].v, "required");
        for (size_t k = 0; r && r->type == PI__V_LIST && k < r->list->n && !s->b->code; k++) {
            pi__parts x = {0}, y = {0};
            if (r->list->v[k].type != PI__V_STR) continue;
            const pi__str name = r->list->v[k].s;
            if (!property(s, b, name, &y)) continue;
            if (!types_of_all(s, &y)) return true;
            if (!property(s, a, name, &x)) continue;
            if (values_outside(s, &x, &y) || values_outside(s, &y, &x) || !(types_of_all(s, &x) & types_of_all(s, &y)))
                return true;
        }
    }
    return false;
}

bool pi__schema_disjoint(pi__schema *s, const pi__parts *a, const pi__parts *b)
{
    const unsigned common = types_of_all(s, a) & types_of_all(s, b);
    if (!common || values_outside(s, a, b) || values_outside(s, b, a)) return true;
    return common == PI__T_OBJECT && (told_apart(s, a, b) || told_apart(s, b, a));
}

bool pi__schema_is_empty(pi__schema *s, const pi__parts *l)
{
    const unsigned types = types_of_all(s, l);
    if (types != PI__T_OBJECT) return !types;
    for (size_t i = 0; i < l->n; i++) { /* a property that is both forbidden and required */
        const pi__val *p = pi__member(l->p[i].v, "properties");
        for (size_t k = 0; p && pi__member(l->p[i].v, PI__K_MADE) && p->type == PI__V_MAP && k < p->map->n; k++)
            if (p->map->e[k].value.type == PI__V_BOOL && !p->map->e[k].value.b && requires(l, p->map->e[k].key.s))
                return true;
    }
    return false;
}
