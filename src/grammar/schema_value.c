/* Values in schemas: types, enum and const, and whether schemas exclude each other (see schema.c). */
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "grammar/schema.h"

unsigned pi__type_of_value(const pi__val *v)
{
    switch (v->type) {
    case PI__V_NONE: return PI__T_NULL;
    case PI__V_BOOL: return PI__T_FALSE_TRUE;
    case PI__V_INT: return PI__T_WHOLE;
    case PI__V_FLOAT: return v->f > -1e18 && v->f < 1e18 && v->f == (double) (int64_t) v->f ? PI__T_WHOLE : PI__T_REAL;
    case PI__V_STR: return PI__T_TEXT;
    case PI__V_LIST: return PI__T_LIST_OF;
    default: return PI__T_OBJECT;
    }
}

/* As JSON Schema has it: 1 is 1.0, but no boolean. */
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
    default: return pi__val_f64(a) == pi__val_f64(b);
    }
}

bool pi__json_equal(const pi__val *a, const pi__val *b) { return equal(a, b, 0); }

/* Equal values have equal hashes: 1 and 1.0, and objects whose members come in another order. */
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

/* The values of a list by hash. A list of a few has no table, and is searched. */
typedef struct value_set {
    const pi__val *v;     /* [n] */
    size_t n, n_slots;
    uint32_t *slot;       /* [n_slots], a power of two: 1 + index, 0: free */
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

/* The set of the n values of the list v; NULL: the builder's code. */
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

/* x is one of the n values of the list v. */
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
    const pi__val *t = pi__member(v, "type");
    unsigned types = 0;
    if (!t) return PI__T_ANY;
    const pi__val *names = t->type == PI__V_LIST ? t->list->v : t;
    for (size_t i = 0, n = t->type == PI__V_LIST ? t->list->n : 1; i < n; i++) {
        unsigned one = 0;
        for (size_t k = 0; k < sizeof of / sizeof *of && names[i].type == PI__V_STR; k++)
            if (pi__str_is(names[i].s, of[k].name)) one = of[k].types;
        if (!one) pi__schema_fail(s, PI_EINVAL,
                                  "type: give null, boolean, object, array, string, integer or number, or a list of these");
        types |= one;
    }
    return types;
}

/* ------------------------------------------------------------------------------------------------------ enum, const */

static const pi__val *list_of(pi__schema *s, const pi__val *schema, size_t *n)
{
    const pi__val *one = pi__member(schema, "const"), *list = pi__member(schema, "enum");
    if (one) return *n = 1, one;
    if (!list) return NULL;
    if (list->type != PI__V_LIST) return pi__schema_fail(s, PI_EINVAL, "enum is %s: give a list of values",
                                                         pi__val_type_name(list)), NULL;
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

static bool number_meets(const pi__val *v, const pi__val *schema)
{
    const double x = pi__val_f64(v);
    const pi__val *k;
    if ((k = pi__member(schema, "minimum")) && pi__val_is_number(k) && x < pi__val_f64(k)) return false;
    if ((k = pi__member(schema, "maximum")) && pi__val_is_number(k) && x > pi__val_f64(k)) return false;
    if ((k = pi__member(schema, "exclusiveMinimum")) && pi__val_is_number(k) && x <= pi__val_f64(k)) return false;
    return !((k = pi__member(schema, "exclusiveMaximum")) && pi__val_is_number(k) && x >= pi__val_f64(k));
}

static bool text_meets(const pi__val *v, const pi__val *schema, bool *unknown)
{
    const pi__val *k;
    const double n = (double) pi__str_length(v->s);
    if ((k = pi__member(schema, "minLength")) && pi__val_is_number(k) && n < pi__val_f64(k)) return false;
    if ((k = pi__member(schema, "maxLength")) && pi__val_is_number(k) && n > pi__val_f64(k)) return false;
    *unknown |= pi__member(schema, "pattern") != NULL;
    return true;
}

bool pi__value_meets(pi__schema *s, const pi__val *v, const pi__val *schema, bool *unknown)
{
    static const char *const of_many[] = {"properties", "required", "additionalProperties", "minProperties",
                                          "maxProperties", "items",
                                          "prefixItems", "minItems", "maxItems", "unevaluatedProperties", NULL};
    size_t n = 0;
    const unsigned type = pi__type_of_value(v);
    const pi__val *values = list_of(s, schema, &n), *one = pi__member(schema, "const"), *list = pi__member(schema,
        "enum");
    if (!(pi__types_of(s, schema) & type)) return false;
    if (values && !is_among(s, v, values, n)) return false;
    if (one && list && list->type == PI__V_LIST && !is_among(s, v, list->list->v, list->list->n)) return false;
    if (type & (PI__T_WHOLE | PI__T_REAL)) return number_meets(v, schema);
    if (type == PI__T_TEXT) return text_meets(v, schema, unknown);
    for (size_t i = 0; of_many[i] && (type & (PI__T_OBJECT | PI__T_LIST_OF)); i++) {
        const bool of_lists = i >= 5 && i <= 8;
        if (of_lists == (type == PI__T_LIST_OF) && pi__member(schema, of_many[i])) *unknown = true;
    }
    return true;
}

/* --------------------------------------------------------------------------------------------------------- disjoint */

static unsigned types_of_all(pi__schema *s, const pi__parts *l)
{
    unsigned t = PI__T_ANY;
    for (size_t i = 0; i < l->n; i++) t &= l->p[i].v->type == PI__V_BOOL ? 0 : pi__types_of(s, l->p[i].v);
    return t;
}

/* Both name their values, and have none in common. */
static bool other_values(pi__schema *s, const pi__parts *a, const pi__parts *b)
{
    const pi__val **x, **y;
    size_t n, k;
    if (!pi__schema_values(s, a, &x, &n) || !pi__schema_values(s, b, &y, &k)) return false;
    for (size_t i = 0; i < n && k; i++)
        if (is_among(s, x[i], y[0], k)) return false;
    return true;
}

/* One side's values do not meet the other's bounds of length or size. */
static bool values_outside(pi__schema *s, const pi__parts *a, const pi__parts *b)
{
    const pi__val **x;
    size_t n;
    if (!pi__schema_values(s, a, &x, &n)) return false;
    for (size_t i = 0; i < n; i++) {
        bool meets = true, unknown = false;
        for (size_t k = 0; k < b->n && meets; k++) meets = pi__value_meets(s, x[i], b->p[k].v, &unknown);
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

static bool property(pi__schema *s, const pi__parts *l, pi__str name, pi__parts *out)
{
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *p = pi__member(l->p[i].v, "properties");
        const pi__val *v = p && p->type == PI__V_MAP ? pi__dict_get(p->map, pi__val_str(name)) : NULL;
        if (v) pi__parts_add(s, out, v, 0);
    }
    pi__parts_expand(s, out);
    return out->n > 0;
}

/* A property that both require, and that tells them apart by its values or type. */
static bool told_apart(pi__schema *s, const pi__parts *a, const pi__parts *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const pi__val *p = pi__member(a->p[i].v, "properties");
        for (size_t k = 0; p && p->type == PI__V_MAP && k < p->map->n; k++) {
            const pi__str name = p->map->e[k].key.s;
            pi__parts x = {0}, y = {0};
            if (!requires(a, name) || !requires(b, name) || !property(s, a, name, &x) || !property(s, b, name, &y))
                continue;
            if (other_values(s, &x, &y) || !(types_of_all(s, &x) & types_of_all(s, &y))) return true;
        }
    }
    return false;
}

bool pi__schema_disjoint(pi__schema *s, const pi__parts *a, const pi__parts *b)
{
    const unsigned common = types_of_all(s, a) & types_of_all(s, b);
    if (!common || other_values(s, a, b) || values_outside(s, a, b) || values_outside(s, b, a)) return true;
    return common == PI__T_OBJECT && told_apart(s, a, b);
}
