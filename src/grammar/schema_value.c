/* Values in schemas: types, enum and const, and whether schemas exclude each other (see schema.c). */
#include <string.h>

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
    bool found = !values;
    if (!(pi__types_of(s, schema) & type)) return false;
    for (size_t i = 0; values && i < n && !found; i++) found = pi__json_equal(v, &values[i]);
    if (found && one && list) { /* both */
        found = false;
        for (size_t i = 0; i < list->list->n && !found; i++) found = pi__json_equal(v, &list->list->v[i]);
    }
    if (!found) return false;
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
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < k; j++)
            if (pi__json_equal(x[i], y[j])) return false;
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
