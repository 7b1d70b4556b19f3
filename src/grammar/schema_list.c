/* Lists in JSON (see schema.c).
 *
 * A list without contains and uniqueItems is its first items one by one, then a repetition. Otherwise a rule of two
 * numbers determines the next item: i is the next item, c the number of items that met contains (capped):
 *
 *     item(i, c)   item i that meets contains, rest(i + 1, c + 1)   or one that need not, rest(i + 1, c)
 *     rest(i, c)   "," item(i, c)                                   or, if enough items were written, the end
 *
 * Items of uniqueItems are values of an enum. For up to MAX_SUBSETS values a rule knows the remaining ones. More values
 * come in the enum's order. */
#include <string.h>

#include "grammar/schema.h"

enum { MAX_ITEMS = 1000, MAX_SUBSETS = 6, MAX_UNIQUE = 4000 };

typedef struct list {
    pi__schema *s;
    const pi__parts *l;
    uint32_t n;            /* number of items with schemas of their own */
    uint32_t min, max;     /* number of items; max PI__REP_INF = unlimited */
    bool others;           /* more than n items are allowed */
    const pi__val *contains; /* schema of contains; NULL = none */
    const pi__val *at;     /* schema that has contains */
    uint32_t min_contains, max_contains;
    const pi__val *unique; /* schema with uniqueItems; NULL = none */
    const pi__val *not;    /* values that do not meet contains, if max_contains is limited */
    uint32_t cap_i, cap_c; /* numbers above these are equivalent */
    uint32_t *item, *rest; /* [cap_i + 1][cap_c + 1] 1 + rule; 0 = not made yet */
} list;

void pi__schema_items(const pi__val *v, const pi__list **prefix, const pi__val **rest)
{
    const pi__val *first = pi__member(v, "prefixItems"), *items = pi__member(v, "items");
    const bool old = items && items->type == PI__V_LIST; /* draft 7 */
    if (old) first = items, items = pi__member(v, "additionalItems");
    *prefix = first && first->type == PI__V_LIST ? first->list : NULL;
    *rest = items;
}

/* Returns the parts of item i, from prefixItems or the schema of further items. */
static pi__parts parts_of_item(pi__schema *s, const pi__parts *l, size_t i)
{
    pi__parts e = {0};
    for (size_t k = 0; k < l->n; k++) {
        const pi__list *prefix;
        const pi__val *rest;
        pi__schema_items(l->p[k].v, &prefix, &rest);
        if (prefix && i < prefix->n) pi__parts_add(s, &e, &prefix->v[i], 0);
        else if (rest) pi__parts_add(s, &e, rest, 0);
    }
    return e;
}

static pi__expr *element(pi__schema *s, const pi__parts *l, size_t i)
{
    const pi__parts e = parts_of_item(s, l, i);
    return pi__schema_of(s, &e);
}

static void read_contains(list *t, const pi__val *v)
{
    pi__schema *s = t->s;
    const pi__val *k = pi__member(v, "contains");
    uint32_t min = 1, max = PI__REP_INF;
    if (!k || s->b->code) return;
    if (pi__member(v, "minContains") && !pi__schema_count(s, v, "minContains", &min)) return;
    if (pi__member(v, "maxContains") && !pi__schema_count(s, v, "maxContains", &max)) return;
    if (!min && max == PI__REP_INF) return;
    if (t->contains && t->contains->map != k->map)
        pi__schema_fail(s, v, "contains", PI_EUNSUPPORTED, "two contains for one list are not supported: merge them");
    if (min > MAX_ITEMS || (max != PI__REP_INF && max > MAX_ITEMS))
        pi__schema_fail(s, v, "contains", PI_EUNSUPPORTED, "minContains and maxContains can be at most %d", MAX_ITEMS);
    t->contains = k;
    t->at = v;
    t->min_contains = min;
    t->max_contains = max;
}

static void read_list(list *t)
{
    pi__schema *s = t->s;
    bool closed = false, first = false;
    for (size_t i = 0; i < t->l->n && !s->b->code; i++) {
        const pi__val *v = t->l->p[i].v, *k = pi__member(v, "prefixItems"), *rest;
        const pi__list *prefix;
        uint32_t n;
        if (pi__member(v, "minItems") && pi__schema_count(s, v, "minItems", &n) && n > t->min) t->min = n;
        if (pi__member(v, "maxItems") && pi__schema_count(s, v, "maxItems", &n) && n < t->max) t->max = n;
        if (k && k->type != PI__V_LIST) pi__schema_fail(s, v, "prefixItems", PI_EINVAL,
            "it is %s: give a list of schemas",
                                                        pi__val_type_name(k));
        pi__schema_items(v, &prefix, &rest);
        if (prefix && prefix->n > t->n) t->n = (uint32_t) prefix->n;
        if (!pi__member(v, PI__K_MADE)) {
            t->others |= rest != NULL;
            first |= prefix && prefix->n;
        }
        closed |= pi__member(v, "unevaluatedItems") != NULL;
        if ((k = pi__member(v, "uniqueItems")) && k->type == PI__V_BOOL && k->b) t->unique = v;
        read_contains(t, v);
    }
    if (!closed) t->others |= !first || t->min > t->n; /* more items are required */
    if (!t->others && t->max > t->n) t->max = t->n;
}

static pi__expr *comma(pi__schema *s) { return pi__x_cat2(s->b, pi__x_text(s->b, ","), pi__schema_space(s)); }

/* Puts items in brackets. none: the list may be empty. */
static pi__expr *in_brackets(pi__schema *s, pi__expr *items, bool none)
{
    pi__builder *b = s->b;
    pi__expr *ws = pi__schema_space(s), *full = items ? pi__x_cat2(b, items, ws) : pi__x_empty(b);
    if (items && none) full = pi__x_rep(b, full, 0, 1);
    pi__expr *x = pi__x_cat3(b, pi__x_text(b, "["), ws, full);
    pi__x_add(b, x, pi__x_text(b, "]"));
    return x;
}

/* --------------------------------------------------------------------------------------------------------- contains */

static pi__expr *item_at(list *t, uint32_t i, uint32_t c);

static uint32_t rule_of(list *t, uint32_t *table, uint32_t *i, uint32_t *c, bool *made)
{
    if (*i > t->cap_i) *i = t->cap_i;
    if (*c > t->cap_c) *c = t->cap_c;
    uint32_t *k = &table[(size_t) *i * (t->cap_c + 1) + *c];
    *made = !*k && !t->s->b->code;
    if (*made) *k = pi__rule_new(t->s->b) + 1;
    return *k ? *k - 1 : 0;
}

static pi__expr *rest_at(list *t, uint32_t i, uint32_t c)
{
    pi__builder *b = t->s->b;
    bool made;
    const uint32_t rule = rule_of(t, t->rest, &i, &c, &made);
    if (!made) return pi__x_rule(b, rule);
    pi__expr *alt = pi__x_alt(b);
    if (i >= t->min && c >= t->min_contains) pi__x_add(b, alt, pi__x_empty(b));
    if (i < t->max) pi__x_add(b, alt, pi__x_cat2(b, comma(t->s), item_at(t, i, c)));
    pi__rule_set(b, rule, alt);
    return pi__x_rule(b, rule);
}

static pi__expr *item_at(list *t, uint32_t i, uint32_t c)
{
    pi__schema *s = t->s;
    pi__builder *b = s->b;
    bool made;
    const uint32_t rule = rule_of(t, t->item, &i, &c, &made);
    if (!made) return pi__x_rule(b, rule);
    pi__parts plain = parts_of_item(s, t->l, i), has = parts_of_item(s, t->l, i);
    pi__parts_add(s, &has, t->contains, 0);
    if (t->not) pi__parts_add(s, &plain, t->not, 0);
    pi__expr *alt = pi__x_alt(b);
    if (c < t->max_contains) pi__x_add(b, alt, pi__x_cat2(b, pi__schema_of(s, &has), rest_at(t, i + 1, c + 1)));
    pi__x_add(b, alt, pi__x_cat2(b, pi__schema_of(s, &plain), rest_at(t, i + 1, c)));
    pi__rule_set(b, rule, alt);
    return pi__x_rule(b, rule);
}

static pi__expr *with_contains(list *t)
{
    pi__schema *s = t->s;
    if (t->max_contains != PI__REP_INF) {
        s->lost = NULL;
        t->not = pi__schema_not(s, t->contains);
        if (t->not && t->not->type == PI__V_BOOL && !t->not->b && s->lost)
            pi__schema_fail(s, t->at, "maxContains", PI_EUNSUPPORTED,
                "a schema with %s cannot be negated: remove the limit", s->lost);
    }
    t->cap_i = t->n;
    if (t->min > t->cap_i) t->cap_i = t->min;
    if (t->max != PI__REP_INF && t->max > t->cap_i) t->cap_i = t->max;
    if (t->max == PI__REP_INF) t->cap_i++; /* capped numbers must stay below max */
    t->cap_c = t->max_contains != PI__REP_INF ? t->max_contains : t->min_contains;
    if (t->cap_i > MAX_ITEMS)
        pi__schema_fail(s, t->at, "contains", PI_EUNSUPPORTED, "minItems and maxItems together with it can be at most "
                                                               "%d",
            MAX_ITEMS);
    const size_t n = (size_t) (t->cap_i + 1) * (t->cap_c + 1);
    if (s->b->code || n > 100000) return pi__schema_fail(s, t->at, "contains", PI_EINVAL, "its limits are too large: "
                                                                                          "lower them"),
        pi__x_never(s->b);
    t->item = pi__builder_take(s->b, n * sizeof *t->item);
    t->rest = pi__builder_take(s->b, n * sizeof *t->rest);
    if (s->b->code) return pi__x_never(s->b);
    for (uint32_t i = t->cap_i + 1; i-- > 0 && !s->b->code;) /* from the end, so that recursion stays shallow */
        for (uint32_t c = t->cap_c + 1; c-- > 0 && !s->b->code;) rest_at(t, i, c), item_at(t, i, c);
    return in_brackets(s, t->max ? item_at(t, 0, 0) : NULL, !t->min && !t->min_contains);
}

/* ----------------------------------------------------------------------------------------------------- unique items */

/* Gets the distinct values that items may have. False if they are not known. */
static bool item_values(list *t, const pi__val ***out, size_t *n)
{
    static const pi__val words[] = {{.type = PI__V_NONE}, {.type = PI__V_BOOL, .b = false}, {.type = PI__V_BOOL,
        .b = true}};
    pi__schema *s = t->s;
    pi__parts e = parts_of_item(s, t->l, t->n);
    unsigned types = PI__T_ANY;
    const pi__val **v;
    size_t count = 0;
    pi__parts_expand(s, &e);
    for (size_t i = 0; i < e.n && !s->b->code; i++) types &= e.p[i].v->type == PI__V_BOOL ? 0 : pi__types_of(s,
        e.p[i].v);
    if (!pi__schema_values(s, &e, &v, &count)) {
        if (types & ~(unsigned) (PI__T_NULL | PI__T_FALSE_TRUE) || !(v = pi__builder_take(s->b, 3 * sizeof *v)))
            return false;
        for (size_t i = 0; i < 3; i++) v[count++] = &words[i];
    }
    *out = pi__builder_take(s->b, (count + 1) * sizeof **out);
    *n = 0;
    for (size_t i = 0; i < count && *out; i++) {
        int meets = 1;
        for (size_t k = 0; k < e.n && meets > 0; k++) meets = pi__value_meets(s, v[i], e.p[k].v, 1);
        for (size_t k = 0; k < *n && meets > 0; k++) meets = !pi__json_equal(v[i], (*out)[k]) && pi__schema_work(s);
        if (meets < 0) return false;
        if (meets) (*out)[(*n)++] = v[i];
    }
    return *out != NULL && !s->b->code;
}

static pi__expr *one_value(pi__schema *s, const pi__val *v)
{
    pi__val only, list;
    pi__parts p = {0};
    if (s->b->code || !pi__val_new_map(&s->b->zone, &only) || !pi__val_new_list(&s->b->zone, 1, &list) ||
        !pi__list_add(&s->b->zone, list.list, *v) || !pi__dict_set_str(&s->b->zone, only.map, "enum", list)) {
        pi__builder_take(s->b, SIZE_MAX / 2);
        return pi__x_never(s->b);
    }
    pi__val *at = pi__builder_take(s->b, sizeof *at);
    if (!at) return pi__x_never(s->b);
    *at = only;
    pi__parts_add(s, &p, at, 0);
    return pi__schema_of(s, &p);
}

/* Builds one rule per set of values written so far (a bit mask). */
static pi__expr *in_any_order(list *t, pi__expr **x, size_t n)
{
    pi__builder *b = t->s->b;
    uint32_t rule[1 << MAX_SUBSETS];
    const uint32_t all = (uint32_t) 1 << n;
    for (uint32_t set = 0; set < all; set++) rule[set] = pi__rule_new(b);
    for (uint32_t set = 0; set < all && !b->code; set++) {
        const uint32_t count = (uint32_t) __builtin_popcount(set);
        pi__expr *alt = pi__x_alt(b);
        if (set && count >= t->min) pi__x_add(b, alt, pi__x_empty(b));
        for (uint32_t i = 0; i < n && count < t->max; i++) {
            if (set >> i & 1) continue;
            pi__expr *one = pi__x_cat2(b, x[i], pi__x_rule(b, rule[set | (uint32_t) 1 << i]));
            pi__x_add(b, alt, set ? pi__x_cat2(b, comma(t->s), one) : one);
        }
        pi__rule_set(b, rule[set], alt);
    }
    return pi__x_rule(b, rule[0]);
}

/* Builds rules by next value and number written: `more` and `rest`, as for properties of objects. */
static pi__expr *in_order(list *t, pi__expr **x, uint32_t n)
{
    pi__schema *s = t->s;
    pi__builder *b = s->b;
    const uint32_t cap = t->max != PI__REP_INF && t->max < n ? t->max : t->min, width = cap + 1;
    if ((size_t) (n + 1) * width > 100000) {
        pi__schema_fail(s, t->unique, "uniqueItems", PI_EINVAL,
            "minItems and maxItems are too large for this number of values: remove them");
        return pi__x_never(b);
    }
    uint32_t *more = pi__builder_take(b, (size_t) (n + 1) * width * 2 * sizeof *more),
        *rest = more + (size_t) (n + 1) * width;
    if (!more) return pi__x_never(b);
    for (uint32_t k = 0; k < (n + 1) * width; k++) more[k] = pi__rule_new(b), rest[k] = pi__rule_new(b);
    for (uint32_t i = 0; i <= n && !b->code; i++) {
        for (uint32_t c = 0; c < width; c++) {
            pi__expr *a = pi__x_alt(b), *r = pi__x_alt(b);
            const uint32_t next = c < cap ? c + 1 : cap;
            if (i < n) {
                pi__x_add(b, a, pi__x_cat2(b, x[i], pi__x_rule(b, rest[(i + 1) * width + next])));
                pi__x_add(b, a, pi__x_rule(b, more[(i + 1) * width + c]));
                if (t->max == PI__REP_INF || t->max >= n || c < t->max)
                    pi__x_add(b, r, pi__x_cat2(b, comma(s), pi__x_rule(b, more[i * width + c])));
            }
            if (c >= t->min) pi__x_add(b, r, pi__x_empty(b));
            pi__rule_set(b, more[i * width + c], a);
            pi__rule_set(b, rest[i * width + c], r);
        }
    }
    return pi__x_rule(b, more[0]);
}

static pi__expr *with_unique(list *t)
{
    pi__schema *s = t->s;
    const pi__val **v;
    size_t n;
    if (t->n || t->contains || !item_values(t, &v, &n) || n > MAX_UNIQUE) {
        pi__schema_fail(s, t->unique, "uniqueItems", PI_EUNSUPPORTED,
            "it is supported only for items of an enum of up to %d values: remove it", MAX_UNIQUE);
        return pi__x_never(s->b);
    }
    if (t->min > n) return pi__x_never(s->b);
    pi__expr **x = pi__builder_take(s->b, (n + 1) * sizeof(pi__expr *));
    for (size_t i = 0; i < n && x; i++) x[i] = one_value(s, v[i]);
    if (!x) return pi__x_never(s->b);
    pi__expr *items = !n || !t->max ? NULL : n <= MAX_SUBSETS ? in_any_order(t, x, n) : in_order(t, x, (uint32_t) n);
    return in_brackets(s, items, !t->min);
}

/* ------------------------------------------------------------------------------------------------------------ lists */

static pi__expr *plain(list *t)
{
    pi__schema *s = t->s;
    pi__builder *b = s->b;
    const uint32_t n = t->n, min = t->min, max = t->max;
    pi__expr *rest = pi__x_empty(b);
    if (max > n) { /* items after the prefix */
        const uint32_t least = min > n ? min - n : 0, most = max == PI__REP_INF ? max : max - n;
        pi__expr *e = element(s, t->l, n), *next = pi__x_cat2(b, comma(s), e);
        if (n) rest = pi__x_rep(b, next, least, most);
        else rest = pi__x_cat2(b, e, pi__x_rep(b, next, least ? least - 1 : 0, most == PI__REP_INF ? most : most - 1));
    }
    for (uint32_t i = n < max ? n : max; i-- > 0 && !b->code;) {
        pi__expr *e = element(s, t->l, i);
        if (i) e = pi__x_cat2(b, comma(s), e);
        rest = pi__x_cat2(b, e, rest);
        if (i && i >= min) rest = pi__x_rep(b, pi__x_shared(b, rest), 0, 1);
        else if (i % 16 == 15) rest = pi__x_shared(b, rest); /* keeps the nesting of expressions low */
    }
    return in_brackets(s, max ? rest : NULL, !min);
}

pi__expr *pi__schema_list(pi__schema *s, const pi__parts *l)
{
    list t = {.s = s, .l = l, .max = PI__REP_INF, .max_contains = PI__REP_INF};
    read_list(&t);
    if (t.max < t.min || s->b->code) return pi__x_never(s->b);
    if (t.unique && t.max > 1) return with_unique(&t);
    return t.contains ? with_contains(&t) : plain(&t);
}
