/* Objects in JSON (see schema.c).
 *
 * Properties come in the schema's order. A rule of two numbers determines the next one: i is the next property, c the
 * number of properties written (capped at the limits of minProperties and maxProperties):
 *
 *     more(i, c)   at a property:      key i ":" value, rest(i + 1, c + 1)
 *                                      or, if i is not required, more(i + 1, c)
 *     rest(i, c)   after a property:   "," more(i, c)   or, if nothing more is required, the end
 *
 * more(n, c) is an unnamed property, if these are allowed. With patternProperties or propertyNames, a product of
 * automata (regular.h) classifies their keys. Each set of patterns that a key may match is a kind of property, whose
 * values meet the schemas of these patterns. */
#include <string.h>

#include "grammar/schema.h"

enum { MAX_KINDS = 512 };

static const pi__val no_value = {.type = PI__V_BOOL};

typedef struct prop {
    pi__str name;
    bool required;
    pi__expr *x;      /* key, colon and value */
    uint32_t *parts;  /* [n_parts] indices of parts that name it in properties */
    uint32_t n_parts;
} prop;

typedef struct object {
    pi__schema *s;
    const pi__parts *l;
    prop *p;          /* [n] in the order of the schema */
    size_t n;
    uint32_t *rules;  /* [n_rules] indices of parts that constrain properties other than by name */
    size_t n_rules;
    pi__expr *other;  /* an unnamed property; NULL = not allowed */
    uint32_t min, max; /* number of properties; max PI__REP_INF = unlimited */
    uint32_t cap;     /* property counts above this are equivalent */
    uint32_t *more, *rest; /* [n + 1][cap + 1] 1 + rule; 0 = not made yet */
    const pi__val *min_at; /* schema that has `min` */
    size_t last;      /* 1 + index of the last required property */
    pi__reg *lang[PI__REG_PARTS]; /* [n_langs] languages of keys: patterns, propertyNames (must), names of has, names */
    pi__str pattern[PI__REG_PARTS]; /* [n_langs] pattern of the language; empty if it has none */
    size_t n_langs;
    uint64_t must, all; /* languages that contain every key; bits of all languages */
    const pi__val *has[PI__REG_PARTS]; /* [n_langs] if a key of the language must exist: schema of its value */
} object;

/* Adds the schemas of the part's patterns that a key matches, by its name or its mark. True if any pattern matches. */
static bool add_matched(object *o, const pi__val *v, const pi__str *name, uint64_t mark, pi__parts *out)
{
    const pi__val *patterns = pi__member(v, "patternProperties");
    bool any = false;
    for (size_t i = 0; patterns && patterns->type == PI__V_MAP && i < patterns->map->n && !o->s->b->code; i++) {
        const pi__entry *e = &patterns->map->e[i];
        bool matches = false;
        if (name) {
            const pi__reg *r = pi__schema_pattern(o->s, v, e->key.s);
            matches = r && (pi__reg_mark(r, *name) & 1);
        }
        for (size_t k = 0; k < o->n_langs && !name; k++)
            matches |= o->pattern[k].p && pi__str_eq(o->pattern[k], e->key.s) && (mark >> k & 1);
        if (matches) pi__parts_add(o->s, out, &e->value, 0);
        any |= matches;
    }
    return any;
}

/* Adds the requirements of part i on a property to v (see parts_of_value). */
static void add_of_part(object *o, size_t i, const pi__str *name, uint64_t mark, pi__parts *v, bool *said)
{
    pi__schema *s = o->s;
    const pi__val *part = o->l->p[i].v, *props = pi__member(part, "properties");
    const pi__val *x = name && props && props->type == PI__V_MAP ? pi__dict_get(props->map, pi__val_str(*name)) : NULL;
    const pi__val *names = pi__member(part, "propertyNames");
    const bool matched = add_matched(o, part, name, mark, v), named = x != NULL;
    if (!x && !matched) x = pi__member(part, "additionalProperties");
    *said |= x || matched;
    if (x && x->type != PI__V_MAP && x->type != PI__V_BOOL)
        pi__schema_fail(s, part, named ? "properties" : "additionalProperties", PI_EINVAL,
                        "a property's schema is %s: give an object, true or false", pi__val_type_name(x));
    else if (x) pi__parts_add(s, v, x, 0);
    if (!name || !names) return;
    const pi__val key = pi__val_str(*name);
    const int meets = pi__value_meets(s, &key, names, 1);
    if (meets < 0)
        pi__schema_fail(s, part, "propertyNames", PI_EUNSUPPORTED, "names cannot be checked against this schema: "
                                                                   "simplify it");
    else if (!meets) pi__parts_add(s, v, &no_value, 0);
}

/* Returns the schemas of property p, or of an unnamed one by the languages that contain its key (mark). *said: some
 * part has a schema for it. Visits only parts that can have one, in order: there may be many parts. */
static pi__parts parts_of_value(object *o, const prop *p, uint64_t mark, bool *said)
{
    pi__parts v = {0};
    size_t a = 0, b = 0;
    const size_t n = p ? p->n_parts : 0;
    *said = false;
    while ((a < n || b < o->n_rules) && pi__builder_step(o->s->b, 4)) {
        const uint32_t named = a < n ? p->parts[a] : UINT32_MAX, rule = b < o->n_rules ? o->rules[b] : UINT32_MAX;
        a += named <= rule;
        b += rule <= named;
        add_of_part(o, named < rule ? named : rule, p ? &p->name : NULL, mark, &v, said);
    }
    return v;
}

static pi__expr *value_of(object *o, const prop *p)
{
    bool said;
    const pi__parts v = parts_of_value(o, p, 0, &said);
    return pi__schema_of(o->s, &v);
}

static pi__expr *member(pi__schema *s, pi__expr *key, pi__expr *value)
{
    pi__expr *x = pi__x_cat3(s->b, key, pi__x_text(s->b, ":"), pi__schema_space(s));
    pi__x_add(s->b, x, value);
    return x;
}

/* Appends i to a list of n indices, which doubles as it grows. */
static void add_index(pi__builder *b, uint32_t **list, size_t n, size_t i)
{
    if (!(n & (n - 1))) {
        uint32_t *more = pi__builder_take(b, (n ? 2 * n : 1) * sizeof *more);
        if (!more) return;
        if (n) memcpy(more, *list, n * sizeof *more);
        *list = more;
    }
    (*list)[n] = (uint32_t) i;
}

/* Adds a property of part i, or updates it. */
static void add_name(object *o, pi__dict *seen, pi__str name, size_t i, bool required)
{
    pi__builder *b = o->s->b;
    const pi__val *known = pi__dict_get(seen, pi__val_str(name));
    prop *p = &o->p[known ? (size_t) known->i : o->n];
    if (!known) {
        if (!pi__dict_set(&b->zone, seen, pi__val_str(name), pi__val_int((int64_t) o->n)))
            pi__builder_take(b, SIZE_MAX / 2);
        *p = (prop) {.name = name};
        o->n++;
    }
    p->required |= required;
    if (required || b->code) return;
    add_index(b, &p->parts, p->n_parts, i);
    if (!b->code) p->n_parts++;
}

/* Fills o->rules. */
static void find_rules(object *o)
{
    static const char *const keys[] = {"patternProperties", "additionalProperties", "propertyNames"};
    pi__builder *b = o->s->b;
    for (size_t i = 0; i < o->l->n && !b->code; i++) {
        bool any = false;
        for (int k = 0; k < 3; k++) any |= pi__member(o->l->p[i].v, keys[k]) != NULL;
        if (any) add_index(b, &o->rules, o->n_rules, i);
        if (any && !b->code) o->n_rules++;
    }
}

/* Collects the names of all parts in output order; names that are only required come last. */
static void collect_names(object *o)
{
    pi__schema *s = o->s;
    pi__val seen, asked;
    size_t most = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) {
            o->p = pi__builder_take(s->b, (most + 1 + PI__REG_PARTS) * sizeof *o->p);
            if (!o->p || !pi__val_new_map(&s->b->zone, &seen) || !pi__val_new_map(&s->b->zone, &asked)) {
                pi__builder_take(s->b, SIZE_MAX / 2);
                return;
            }
        }
        for (int required = 0; required < 2; required++) {
            for (size_t i = 0; i < o->l->n && !s->b->code; i++) {
                const pi__val *v = pi__member(o->l->p[i].v, required ? "required" : "properties");
                if (!v || (required && v->type == PI__V_BOOL)) continue; /* draft 3 */
                if (v->type != (required ? PI__V_LIST : PI__V_MAP)) {
                    pi__schema_fail(s, o->l->p[i].v, required ? "required" : "properties", PI_EINVAL,
                        "it is %s: give %s",
                                    pi__val_type_name(v), required ? "a list of names" : "an object of schemas");
                    return;
                }
                const size_t n = required ? v->list->n : v->map->n;
                most += n;
                for (size_t k = 0; pass && k < n; k++) {
                    const pi__val *name = required ? &v->list->v[k] : &v->map->e[k].key;
                    if (name->type == PI__V_STR) add_name(o, seen.map, name->s, i, required);
                    else pi__schema_fail(s, o->l->p[i].v, "required", PI_EINVAL, "give a list of names");
                }
            }
        }
    }
}

static pi__expr *rule_more(object *o, size_t i, uint32_t c);

/* Returns the rule for entry (i, c) of a table; c is capped first. *made: the rule is new and its body must be set. */
static uint32_t rule_at(object *o, uint32_t *table, size_t i, uint32_t *c, bool *made)
{
    pi__builder *b = o->s->b;
    if (*c > o->cap) *c = o->cap;
    uint32_t *k = &table[i * (o->cap + 1) + *c];
    *made = !*k && !b->code;
    if (*made) *k = pi__rule_new(b) + 1;
    return *k ? *k - 1 : 0;
}

/* After property number c; i is the next property. */
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

/* Property i or a later one; c were written. Built from the last one on, so that recursion stays shallow. */
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

/* ----------------------------------------------------------------------------- unnamed properties */

/* True if the parts say nothing of unnamed properties but name others: then unnamed ones are not generated. */
static bool is_closed(const pi__parts *l)
{
    bool said = false, closed = false;
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *v = l->p[i].v;
        said |= pi__member(v, "additionalProperties") != NULL;
        if (pi__member(v, PI__K_MADE)) continue;
        closed |= pi__member(v, "properties") || pi__member(v, "unevaluatedProperties") || pi__member(v,
            "patternProperties");
    }
    return closed && !said;
}

/* True if some part forbids properties that match none of its patterns. */
static bool forbids_others(const pi__parts *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *other = pi__member(l->p[i].v, "additionalProperties");
        if (other && other->type == PI__V_BOOL && !other->b) return true;
    }
    return false;
}

static void add_language(object *o, const pi__val *at, const char *key, pi__reg *r, const pi__str *pattern, bool must)
{
    if (!r) return;
    for (size_t i = 0; i < o->n_langs && pattern; i++)
        if (o->pattern[i].p && pi__str_eq(o->pattern[i], *pattern)) return;
    if (o->n_langs == PI__REG_PARTS - 2) {
        pi__schema_fail(o->s, at, key, PI_EUNSUPPORTED, "more than %d patterns of property names apply to one object: "
                                                        "merge them",
                        PI__REG_PARTS - 2);
        return;
    }
    if (must) o->must |= (uint64_t) 1 << o->n_langs;
    if (pattern) o->pattern[o->n_langs] = *pattern;
    o->lang[o->n_langs++] = r;
}

static void read_languages(object *o)
{
    pi__schema *s = o->s;
    for (size_t i = 0; i < o->l->n && !s->b->code; i++) {
        const pi__val *v = o->l->p[i].v, *patterns = pi__member(v, "patternProperties"), *k;
        if (patterns && patterns->type != PI__V_MAP)
            pi__schema_fail(s, v, "patternProperties", PI_EINVAL, "it is %s: give an object of schemas",
                            pi__val_type_name(patterns));
        for (size_t c = 0; patterns && patterns->type == PI__V_MAP && c < patterns->map->n && !s->b->code; c++) {
            const pi__str p = patterns->map->e[c].key.s;
            add_language(o, v, "patternProperties", pi__schema_pattern(s, v, p), &p, false);
        }
        if ((k = pi__member(v, "propertyNames"))) {
            const bool plain = k->type == PI__V_MAP && k->map->n == 1 && pi__member(k, "type") && (pi__types_of(s,
                k) & PI__T_TEXT);
            if (!plain) add_language(o, v, "propertyNames", pi__schema_language(s, k), NULL, true);
        }
        if (!(k = pi__member(v, PI__K_HAS)) || (o->l->p[i].skip & PI__HAS_MET)) continue;
        add_language(o, v, "not", pi__schema_language(s, &k->list->v[0]), NULL, false);
        if (!s->b->code) o->has[o->n_langs - 1] = &k->list->v[1];
    }
}

/* Returns unnamed properties of all kinds that the marks of r's states distinguish. has < PI__REG_PARTS: only keys of
 * this language, with values that meet its schema. */
static pi__expr *of_kinds(object *o, const pi__reg *r, size_t has)
{
    pi__schema *s = o->s;
    pi__builder *b = s->b;
    const bool closed = is_closed(o->l);
    uint64_t *seen = pi__builder_take(b, MAX_KINDS * sizeof *seen), declared = (uint64_t) 1 << (o->n_langs - 1);
    size_t n = 0;
    pi__expr *alt = pi__x_alt(b);
    for (uint32_t i = 0; seen && i < r->n_states && !b->code; i++) {
        const uint64_t mark = r->mark[i] & o->all;
        size_t k = 0;
        bool said;
        if ((mark & declared) || (mark & o->must) != o->must || (has < PI__REG_PARTS && !(mark >> has & 1))) continue;
        while (k < n && seen[k] != mark) k++;
        if (k < n) continue;
        if (n == MAX_KINDS) {
            pi__schema_fail(s, NULL, NULL, PI_EINVAL, "patternProperties overlap in more than %d ways: make them "
                "exclude each "
                            "other", MAX_KINDS);
            break;
        }
        seen[n++] = mark;
        pi__parts v = parts_of_value(o, NULL, mark, &said);
        if (has < PI__REG_PARTS) pi__parts_add(s, &v, o->has[has], 0);
        else if (closed && !said) continue;
        bool forbidden = false;
        for (size_t c = 0; c < v.n; c++) forbidden |= v.p[c].v->type == PI__V_BOOL;
        if (!forbidden) pi__x_add(b, alt, member(s, pi__schema_key(s, r, o->all, mark), pi__schema_of(s, &v)));
    }
    return alt->list.n ? pi__x_shared(b, alt) : NULL;
}

/* Sets o->other, and adds the properties of PI__K_HAS. */
static void read_others(object *o)
{
    pi__schema *s = o->s;
    pi__builder *b = s->b;
    const size_t n = o->n;
    read_languages(o);
    if (b->code) return;
    if (!o->n_langs) {
        if (is_closed(o->l) || forbids_others(o->l)) return;
        pi__str *names = pi__builder_take(b, (n + 1) * sizeof *names);
        for (size_t i = 0; names && i < n; i++) names[i] = o->p[i].name;
        if (names) o->other = pi__x_shared(b, member(s, pi__schema_other_key(s, names, n), value_of(o, NULL)));
        return;
    }
    pi__val *names = pi__builder_take(b, (n + 1) * sizeof *names);
    for (size_t i = 0; names && i < n; i++) names[i] = pi__val_str(o->p[i].name);
    add_language(o, NULL, NULL, names ? pi__reg_of_values(s, names, n) : NULL, NULL, false);
    if (b->code) return;
    o->all = ((uint64_t) 1 << o->n_langs) - 1;
    const pi__reg *r = pi__reg_product(b, o->lang, o->n_langs, o->must, 0, PI__REP_INF, "patternProperties");
    for (size_t i = 0; r && i < o->n_langs; i++) {
        if (!o->has[i]) continue;
        pi__expr *x = of_kinds(o, r, i);
        o->p[o->n++] = (prop) {.required = true, .x = x ? x : pi__x_never(b)};
    }
    if (r) o->other = of_kinds(o, r, PI__REG_PARTS);
}

static void read_limits(object *o)
{
    pi__schema *s = o->s;
    uint32_t k;
    o->max = PI__REP_INF;
    for (size_t i = 0; i < o->l->n && !s->b->code; i++) {
        const pi__val *v = o->l->p[i].v;
        if (pi__member(v, "minProperties") && pi__schema_count(s, v, "minProperties", &k) && k > o->min)
            o->min = k, o->min_at = v;
        if (pi__member(v, "maxProperties") && pi__schema_count(s, v, "maxProperties", &k) && k < o->max) o->max = k;
    }
    if (!o->other && o->max >= o->n) o->max = PI__REP_INF;
    size_t required = 0;
    for (size_t i = 0; i < o->n; i++) required += o->p[i].required;
    if (o->min <= required) o->min = 0;
    if (o->min > o->max) return;
    if (o->min > required + 1 && o->other)
        pi__schema_fail(s, o->min_at, "minProperties", PI_EUNSUPPORTED,
            "%u is not supported with unnamed properties, because a name could occur twice: name them in properties",
            o->min);
    o->cap = o->max != PI__REP_INF ? o->max + 1 : 0;
    if (o->min > o->cap) o->cap = o->min;
    if (o->cap > 1000)
        pi__schema_fail(s, o->l->p[0].v, NULL, PI_EUNSUPPORTED,
            "minProperties and maxProperties can be at most 1000 here");
}

pi__expr *pi__schema_object(pi__schema *s, const pi__parts *l)
{
    pi__builder *b = s->b;
    object o = {.s = s, .l = l};
    collect_names(&o);
    find_rules(&o);
    if (b->code) return pi__x_never(b);
    const size_t n_named = o.n;
    read_others(&o);
    if (b->code) return pi__x_never(b);
    read_limits(&o);
    if (o.min > o.max) return pi__x_never(b);
    for (size_t i = 0; i < o.n && !b->code; i++) {
        const pi__val name = pi__val_str(o.p[i].name);
        if (i < n_named) o.p[i].x = pi__x_shared(b, member(s, pi__schema_scalar(s, &name), value_of(&o, &o.p[i])));
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
