/* Lists and objects in JSON (see schema.c).
 *
 * An object's properties come in their order. Which may come next is a rule of two numbers, i the next property and c
 * how many were written (counted only up to what minProperties or maxProperties ask for):
 *
 *     more(i, c)   at a property:       key i ":" value, rest(i + 1, c + 1)  or, where i is not required, more(i + 1, c)
 *     rest(i, c)   behind a property:   "," more(i, c)                        or, where nothing more is required, the end
 *
 * more(n, c) is a property that is not named, where those are allowed. */
#include <string.h>

#include "grammar/schema.h"

/* ------------------------------------------------------------------------------------------------------------ lists */

/* The expression of element i; by prefixItems, or as any further one. */
static pi__expr *element(pi__schema *s, const pi__parts *l, size_t i)
{
    pi__parts e = {0};
    for (size_t k = 0; k < l->n; k++) {
        const pi__val *prefix = pi__member(l->p[k].v, "prefixItems"), *items = pi__member(l->p[k].v, "items");
        const size_t n = prefix && prefix->type == PI__V_LIST ? prefix->list->n : 0;
        if (i < n) pi__parts_add(s, &e, &prefix->list->v[i], 0);
        else if (items) pi__parts_add(s, &e, items, 0);
    }
    return pi__schema_of(s, &e);
}

pi__expr *pi__schema_list(pi__schema *s, const pi__parts *l)
{
    pi__builder *b = s->b;
    uint32_t min = 0, max = PI__REP_INF, n = 0, k;
    bool others = false;
    const pi__val *v;
    for (size_t i = 0; i < l->n && !b->code; i++) {
        if ((v = pi__member(l->p[i].v, "minItems")) && pi__schema_count(s, v, "minItems", &k) && k > min) min = k;
        if ((v = pi__member(l->p[i].v, "maxItems")) && pi__schema_count(s, v, "maxItems", &k) && k < max) max = k;
        if ((v = pi__member(l->p[i].v, "prefixItems"))) {
            if (v->type != PI__V_LIST) pi__schema_fail(s, PI_EINVAL, "prefixItems is %s: give a list of schemas",
                                                       pi__val_type_name(v));
            else if (v->list->n > n) n = (uint32_t) v->list->n;
        }
        others |= pi__member(l->p[i].v, "items") != NULL;
    }
    others |= !n || min > n; /* more are asked for */
    if (!others && max > n) max = n;
    if (max < min || b->code) return pi__x_never(b);
    pi__expr *ws = pi__schema_space(s), *comma = pi__x_cat2(b, pi__x_text(b, ","), ws), *rest = pi__x_empty(b);
    if (max > n) { /* behind the prefix */
        const uint32_t least = min > n ? min - n : 0, most = max == PI__REP_INF ? max : max - n;
        pi__expr *e = element(s, l, n);
        if (n) rest = pi__x_rep(b, pi__x_cat2(b, comma, e), least, most);
        else rest = pi__x_cat2(b, e, pi__x_rep(b, pi__x_cat2(b, comma, e), least ? least - 1 : 0, most == PI__REP_INF
                                               ? most : most - 1));
    }
    for (uint32_t i = n < max ? n : max; i-- > 0 && !b->code;) {
        pi__expr *e = element(s, l, i);
        if (i) e = pi__x_cat2(b, comma, e);
        rest = pi__x_cat2(b, e, rest);
        if (i && i >= min) rest = pi__x_rep(b, pi__x_shared(b, rest), 0, 1);
        else if (i % 16 == 15) rest = pi__x_shared(b, rest); /* so that expressions stay flat */
    }
    pi__expr *full = pi__x_cat2(b, rest, ws);
    if (!max) full = pi__x_empty(b);
    else if (!min) full = pi__x_rep(b, full, 0, 1);
    pi__expr *x = pi__x_cat3(b, pi__x_text(b, "["), ws, full);
    pi__x_add(b, x, pi__x_text(b, "]"));
    return x;
}

/* ---------------------------------------------------------------------------------------------------------- objects */

typedef struct prop {
    pi__str name;
    bool required;
    pi__expr *x;      /* key, colon, value */
} prop;

typedef struct object {
    pi__schema *s;
    const pi__parts *l;
    prop *p;          /* [n] in the order of the schema */
    size_t n;
    pi__expr *other;  /* a property that is not named; NULL: none */
    uint32_t min, max; /* how many there may be; max PI__REP_INF: no limit */
    uint32_t cap;     /* numbers of properties above this are all the same */
    uint32_t *more, *rest; /* [n + 1][cap + 1] 1 + rule, 0: not made */
    size_t last;      /* 1 + the last required property */
} object;

static pi__expr *value_of(pi__schema *s, const pi__parts *l, const pi__str *name)
{
    pi__parts v = {0};
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *props = pi__member(l->p[i].v, "properties"), *other = pi__member(l->p[i].v,
            "additionalProperties");
        const pi__val *x = name && props && props->type == PI__V_MAP ? pi__dict_get(props->map, pi__val_str(*name))
            : NULL;
        if (!x) x = other;
        if (!x) continue;
        if (x->type != PI__V_MAP && x->type != PI__V_BOOL) pi__schema_fail(s, PI_EINVAL, "a property's schema is %s",
                                                                           pi__val_type_name(x));
        else pi__parts_add(s, &v, x, 0);
    }
    return pi__schema_of(s, &v);
}

static pi__expr *member(pi__schema *s, pi__expr *key, pi__expr *value)
{
    pi__expr *x = pi__x_cat3(s->b, key, pi__x_text(s->b, ":"), pi__schema_space(s));
    pi__x_add(s->b, x, value);
    return x;
}

static void add_name(object *o, pi__dict *seen, pi__str name, bool required)
{
    const pi__val *known = pi__dict_get(seen, pi__val_str(name));
    if (known) {
        o->p[known->i].required |= required;
        return;
    }
    if (!pi__dict_set(&o->s->b->zone, seen, pi__val_str(name), pi__val_int((int64_t) o->n))) pi__builder_take(o->s->b,
        SIZE_MAX / 2);
    o->p[o->n++] = (prop) {.name = name, .required = required};
}

/* Names of all parts, in the order in which they come; those that are only required last. */
static void collect_names(object *o)
{
    pi__schema *s = o->s;
    pi__val seen, asked;
    size_t most = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) {
            o->p = pi__builder_take(s->b, (most + 1) * sizeof *o->p);
            if (!o->p || !pi__val_new_map(&s->b->zone, &seen) || !pi__val_new_map(&s->b->zone, &asked)) {
                pi__builder_take(s->b, SIZE_MAX / 2);
                return;
            }
        }
        for (int required = 0; required < 2; required++) {
            for (size_t i = 0; i < o->l->n && !s->b->code; i++) {
                const pi__val *v = pi__member(o->l->p[i].v, required ? "required" : "properties");
                if (!v) continue;
                if (v->type != (required ? PI__V_LIST : PI__V_MAP)) {
                    pi__schema_fail(s, PI_EINVAL, "%s is %s: give %s", required ? "required" : "properties",
                                    pi__val_type_name(v),
                                    required ? "a list of names" : "an object of schemas");
                    return;
                }
                const size_t n = required ? v->list->n : v->map->n;
                most += n;
                for (size_t k = 0; pass && k < n; k++) {
                    const pi__val *name = required ? &v->list->v[k] : &v->map->e[k].key;
                    if (name->type == PI__V_STR) add_name(o, seen.map, name->s, required);
                    else pi__schema_fail(s, PI_EINVAL, "required: give a list of names");
                }
            }
        }
    }
}

static pi__expr *rule_more(object *o, size_t i, uint32_t c);

/* The rule for place (i, c) of a table, c cut to what tells rules apart; *made: it is new, and its text is to be set. */
static uint32_t rule_at(object *o, uint32_t *table, size_t i, uint32_t *c, bool *made)
{
    pi__builder *b = o->s->b;
    if (*c > o->cap) *c = o->cap;
    uint32_t *k = &table[i * (o->cap + 1) + *c];
    *made = !*k && !b->code;
    if (*made) *k = pi__rule_new(b) + 1;
    return *k ? *k - 1 : 0;
}

/* Behind property number c, where i is the next. */
static pi__expr *rule_rest(object *o, size_t i, uint32_t c)
{
    pi__builder *b = o->s->b;
    bool made;
    const uint32_t rule = rule_at(o, o->rest, i, &c, &made);
    if (!made) return pi__x_rule(b, rule);
    pi__expr *alt = pi__x_alt(b);
    if (i >= o->last && c >= o->min) pi__x_add(b, alt, pi__x_empty(b));
    if (c < o->max && (i < o->n || o->other))
        pi__x_add(b, alt, pi__x_cat3(b, pi__x_text(b, ","), pi__schema_space(o->s), rule_more(o, i, c)));
    pi__rule_set(b, rule, alt);
    return pi__x_rule(b, rule);
}

/* A property, i or one behind it; c are written. Made from the last one on, so that nothing recurs deeply. */
static pi__expr *rule_more(object *o, size_t i, uint32_t c)
{
    pi__builder *b = o->s->b;
    bool made;
    const uint32_t rule = rule_at(o, o->more, i, &c, &made);
    if (!made) return pi__x_rule(b, rule);
    pi__expr *alt = pi__x_alt(b);
    if (i < o->n) {
        pi__x_add(b, alt, pi__x_cat2(b, o->p[i].x, rule_rest(o, i + 1, c + 1)));
        if (!o->p[i].required && (i + 1 < o->n || o->other)) pi__x_add(b, alt, rule_more(o, i + 1, c));
    } else if (o->other) {
        pi__x_add(b, alt, pi__x_cat2(b, o->other, rule_rest(o, i, c + 1)));
    }
    pi__rule_set(b, rule, alt);
    return pi__x_rule(b, rule);
}

/* There may be properties that are not named. */
static bool allows_others(const pi__parts *l)
{
    bool said = false, closed = false;
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *other = pi__member(l->p[i].v, "additionalProperties");
        if (other && other->type == PI__V_BOOL && !other->b) return false;
        said |= other != NULL;
        closed |= pi__member(l->p[i].v, "properties") || pi__member(l->p[i].v, "unevaluatedProperties");
    }
    return said || !closed;
}

static void read_limits(object *o)
{
    pi__schema *s = o->s;
    const pi__val *v;
    uint32_t k;
    o->max = PI__REP_INF;
    for (size_t i = 0; i < o->l->n && !s->b->code; i++) {
        if ((v = pi__member(o->l->p[i].v, "minProperties")) && pi__schema_count(s, v, "minProperties", &k) &&
            k > o->min) o->min = k;
        if ((v = pi__member(o->l->p[i].v, "maxProperties")) && pi__schema_count(s, v, "maxProperties", &k) &&
            k < o->max) o->max = k;
    }
    if (o->max != PI__REP_INF && !o->other && o->max >= o->n) o->max = PI__REP_INF;
    size_t required = 0;
    for (size_t i = 0; i < o->n; i++) required += o->p[i].required;
    if (o->min <= required) o->min = 0;
    if (o->min > o->max) return;
    if (o->min > required + 1 && o->other)
        pi__schema_fail(s, PI_EUNSUPPORTED, "minProperties %u is not supported with properties that are not named, where a name could "
                        "come twice: name them in properties", o->min);
    o->cap = o->max != PI__REP_INF ? o->max + 1 : 0;
    if (o->min > o->cap) o->cap = o->min;
    if (o->cap > 1000) pi__schema_fail(s, PI_EUNSUPPORTED, "minProperties and maxProperties can be at most 1000");
}

pi__expr *pi__schema_object(pi__schema *s, const pi__parts *l)
{
    pi__builder *b = s->b;
    object o = {.s = s, .l = l};
    collect_names(&o);
    if (b->code) return pi__x_never(b);
    if (allows_others(l)) {
        pi__str *names = pi__builder_take(b, (o.n + 1) * sizeof *names);
        for (size_t i = 0; names && i < o.n; i++) names[i] = o.p[i].name;
        if (names) o.other = pi__x_shared(b, member(s, pi__schema_other_key(s, names, o.n), value_of(s, l, NULL)));
    }
    read_limits(&o);
    if (o.min > o.max) return pi__x_never(b);
    for (size_t i = 0; i < o.n && !b->code; i++) {
        const pi__val name = pi__val_str(o.p[i].name);
        o.p[i].x = pi__x_shared(b, member(s, pi__schema_scalar(s, &name), value_of(s, l, &o.p[i].name)));
        if (o.p[i].required) o.last = i + 1;
    }
    const size_t table = (o.n + 1) * (o.cap + 1);
    o.more = b->code ? NULL : pi__builder_take(b, table * sizeof *o.more);
    o.rest = b->code ? NULL : pi__builder_take(b, table * sizeof *o.rest);
    if (!o.more || !o.rest) return pi__x_never(b);
    for (size_t i = o.n + 1; i-- > 0 && !b->code;)
        for (uint32_t c = o.cap + 1; c-- > 0 && !b->code;) rule_rest(&o, i, c), rule_more(&o, i, c);
    pi__expr *ws = pi__schema_space(s), *alt = pi__x_alt(b);
    if (!o.last && !o.min) pi__x_add(b, alt, pi__x_empty(b));
    if (o.max && (o.n || o.other)) pi__x_add(b, alt, pi__x_cat2(b, rule_more(&o, 0, 0), ws));
    pi__expr *x = pi__x_cat3(b, pi__x_text(b, "{"), ws, alt);
    pi__x_add(b, x, pi__x_text(b, "}"));
    return x;
}
