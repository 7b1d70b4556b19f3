/* Filters of lists, maps, and strings taken as lists: join, map, select, sort and similar ones.
 *
 * These return lists where Jinja returns generators; templates see a difference only when printing one. Sorting is a
 * stable merge sort with Python's comparison, and ignores case by default. */
#include <string.h>

#include "template/jinja_impl.h"

typedef pi__jrun run;

static bool new_list(run *r, size_t cap, pi__val *out) { return pi__val_new_list(r->z, cap, out) || pi__jno_room(r); }

static bool add(run *r, const pi__val *list, pi__val v)
{
    return (pi__jcost(r, 16) && pi__list_add(r->z, list->list, v)) || pi__jno_room(r);
}

/* Gets the value at the path "a.b.0" within v. */
static bool attribute(run *r, const pi__val *v, const pi__val *path, pi__val *out)
{
    *out = *v;
    if (path->type == PI__V_INT) return pi__jmember(r, v, *path, true, out);
    if (path->type != PI__V_STR) return pi__jfail(r, "an attribute's name must be a string");
    pi__str s = path->s;
    for (;;) {
        const char *dot = s.n ? memchr(s.p, '.', s.n) : NULL;
        pi__str part = {s.p, dot ? (size_t) (dot - s.p) : s.n};
        pi__val name, object = *out;
        if (pi__number_read(part.p, part.n, &name) != part.n || name.type != PI__V_INT) name = pi__val_str(part);
        if (!pi__jmember(r, &object, name, true, out)) return false;
        if (!dot) return true;
        s = (pi__str) {dot + 1, s.n - part.n - 1};
    }
}

/* ------------------------------------------------------------------------------------------------------ one and all */

static bool f_length(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    (void) a;
    switch (in->type) {
    case PI__V_UNDEFINED: *out = pi__val_int(0); return true;
    case PI__V_STR: *out = pi__val_int((int64_t) pi__str_length(in->s)); return pi__jcost(r, in->s.n);
    case PI__V_LIST: *out = pi__val_int((int64_t) in->list->n); return true;
    case PI__V_MAP: *out = pi__val_int((int64_t) in->map->n); return true;
    default: return pi__jfail(r, "%s has no length", pi__val_type_name(in));
    }
}

static bool f_list(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__list l;
    (void) a;
    if (!pi__jiterate(r, in, &l) || !new_list(r, l.n, out)) return false;
    for (size_t i = 0; i < l.n; i++)
        if (!add(r, out, l.v[i])) return false;
    return true;
}

static bool f_first(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__list l;
    (void) a;
    if (!pi__jiterate(r, in, &l)) return false;
    *out = l.n ? l.v[0] : pi__val_undefined(pi__str_of("the first element"));
    return true;
}

static bool f_last(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__list l;
    (void) a;
    if (!pi__jiterate(r, in, &l)) return false;
    *out = l.n ? l.v[l.n - 1] : pi__val_undefined(pi__str_of("the last element"));
    return true;
}

static bool f_reverse(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__list l;
    (void) a;
    if (!pi__jiterate(r, in, &l) || !new_list(r, l.n, out)) return false;
    for (size_t i = l.n; i > 0; i--)
        if (!add(r, out, l.v[i - 1])) return false;
    if (in->type != PI__V_STR) return true;
    pi__str s = {"", 0};
    for (size_t i = 0; i < out->list->n; i++) {
        pi__val v;
        if (!pi__jconcat(r, s, out->list->v[i].s, &v)) return false;
        s = v.s;
    }
    *out = pi__val_str(s);
    return true;
}

static bool f_join(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *d = pi__jarg(a, 0, "d"), *path = pi__jarg(a, 1, "attribute");
    pi__list l;
    pi__str sep = {"", 0}, s;
    if (!pi__jiterate(r, in, &l) || (d && !pi__jto_str(r, d, &sep))) return false;
    *out = pi__val_str((pi__str) {"", 0});
    for (size_t i = 0; i < l.n; i++) {
        pi__val v = l.v[i];
        if (path && !attribute(r, &l.v[i], path, &v)) return false;
        if (i && sep.n && !pi__jconcat(r, out->s, sep, out)) return false;
        if (!pi__jto_str(r, &v, &s) || !pi__jconcat(r, out->s, s, out)) return false;
    }
    return true;
}

static bool f_items(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    (void) a;
    if (in->type == PI__V_UNDEFINED) return new_list(r, 0, out);
    if (in->type != PI__V_MAP) return pi__jfail(r, "items: %s is not a mapping", pi__val_type_name(in));
    return pi__jdict_items(r, in->map, PI__J_ITEMS, out);
}

/* ------------------------------------------------------------------------------------------------- map and select */

/* Returns the arguments after the first n. */
static pi__jargs rest(const pi__jargs *a, size_t n)
{
    pi__jargs b = *a;
    b.v += n;
    b.n -= n;
    return b;
}

/* Lists the elements for map and select; none if the input is false. */
static bool elements(run *r, const pi__val *in, pi__list *out)
{
    *out = (pi__list) {0};
    return !pi__val_truth(in) || pi__jiterate(r, in, out);
}

static bool f_map(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *path = a->n ? NULL : pi__jarg(a, 0, "attribute"), *def = pi__jarg(a, SIZE_MAX, "default");
    int id = a->n && a->v[0].type == PI__V_STR ? pi__jfilter_find(a->v[0].s) : -1;
    pi__list l;
    if (!path && id < 0) return pi__jfail(r, "map takes the name of a filter, or attribute=");
    if (!elements(r, in, &l) || !new_list(r, l.n, out)) return false;
    pi__jargs more = path ? *a : rest(a, 1);
    if (++r->depth > PI__JINJA_DEPTH) return pi__jfail(r, "map: nested too deeply");
    for (size_t i = 0; i < l.n; i++) {
        pi__val v;
        if (!(path ? attribute(r, &l.v[i], path, &v) : pi__jfilter_call(r, id, &l.v[i], &more, &v))) return false;
        if (path && def && v.type == PI__V_UNDEFINED) v = *def;
        if (!add(r, out, v)) return false;
    }
    r->depth--;
    return true;
}

/* Selects the elements for which a test is true (keep) or false; attr: tests one of their attributes. */
static bool choose(run *r, const pi__val *in, const pi__jargs *a, bool attr, bool keep, pi__val *out)
{
    size_t skip = attr;
    pi__list l;
    if (a->n < skip) return pi__jfail(r, "the name of an attribute is missing");
    int id = -1;
    bool tested = a->n > skip;
    if (tested && a->v[skip].type == PI__V_STR) id = pi__jtest_find(a->v[skip].s);
    if (tested && id < 0) return pi__jfail(r, "select: unknown test");
    if (!elements(r, in, &l) || !new_list(r, 0, out)) return false;
    pi__jargs more = tested ? rest(a, skip + 1) : *a;
    for (size_t i = 0; i < l.n; i++) {
        pi__val v = l.v[i];
        bool yes;
        if (attr && !attribute(r, &l.v[i], &a->v[0], &v)) return false;
        if (!tested) yes = pi__val_truth(&v);
        else if (!pi__jtest_call(r, id, &v, &more, &yes)) return false;
        if (yes == keep && !add(r, out, l.v[i])) return false;
    }
    return true;
}

static bool f_select(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    return choose(r, in, a, false, true, out);
}

static bool f_reject(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    return choose(r, in, a, false, false, out);
}

static bool f_selectattr(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    return choose(r, in, a, true, true, out);
}

static bool f_rejectattr(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    return choose(r, in, a, true, false, out);
}

/* ---------------------------------------------------------------------------------------------------------- sorting */

typedef struct sorted { /* an element and its sort key */
    pi__val key, v;
} sorted;

static bool merge_sort(run *r, sorted *s, sorted *tmp, size_t n, bool reverse)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = mid + width < n ? mid + width : n, i = lo, j = mid;
            for (size_t k = lo; k < hi; k++) {
                int c = 0;
                if (i < mid && j < hi && !pi__jcompare(r, &s[i].key, &s[j].key, &c)) return false;
                tmp[k] = i < mid && (j >= hi || (reverse ? c >= 0 : c <= 0)) ? s[i++] : s[j++];
            }
        }
        memcpy(s, tmp, n * sizeof *s);
    }
    return true;
}

/* Pairs the elements of l with their keys: the value or its attribute, in lower case unless with_case. */
static bool sort_keys(run *r, const pi__list *l, const pi__val *path, bool with_case, sorted **out)
{
    *out = pi__zone_take(r->z, (l->n + 1) * sizeof **out);
    if (!*out) return pi__jno_room(r);
    for (size_t i = 0; i < l->n; i++) {
        pi__val key = l->v[i];
        if (path && !attribute(r, &l->v[i], path, &key)) return false;
        if (!with_case && key.type == PI__V_STR && !pi__jcase(r, key.s, 'L', &key)) return false;
        (*out)[i] = (sorted) {key, l->v[i]};
    }
    return true;
}

static bool sort_list(run *r, pi__list *l, const pi__val *path, bool with_case, bool reverse, pi__val *out)
{
    sorted *s, *tmp;
    if (!pi__jcost(r, l->n * 64) || !sort_keys(r, l, path, with_case, &s)) return false;
    if (!(tmp = pi__zone_take(r->z, (l->n + 1) * sizeof *tmp))) return pi__jno_room(r);
    if (!merge_sort(r, s, tmp, l->n, reverse) || !new_list(r, l->n, out)) return false;
    for (size_t i = 0; i < l->n; i++)
        if (!add(r, out, s[i].v)) return false;
    return true;
}

static bool truth_of(const pi__val *v) { return v && pi__val_truth(v); }

static bool f_sort(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__list l;
    return pi__jiterate(r, in, &l) &&
           sort_list(r, &l, pi__jarg(a, 2, "attribute"), truth_of(pi__jarg(a, 1, "case_sensitive")),
                     truth_of(pi__jarg(a, 0, "reverse")), out);
}

static bool f_dictsort(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *by = pi__jarg(a, 1, "by");
    pi__val items, column = pi__val_int(by && by->type == PI__V_STR && pi__str_is(by->s, "value"));
    if (!pi__jdefined(r, in)) return false;
    if (in->type != PI__V_MAP) return pi__jfail(r, "dictsort: %s is not a mapping", pi__val_type_name(in));
    return pi__jdict_items(r, in->map, PI__J_ITEMS, &items) &&
           sort_list(r, items.list, &column, truth_of(pi__jarg(a, 0, "case_sensitive")),
                     truth_of(pi__jarg(a, 2, "reverse")), out);
}

static bool f_unique(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__list l;
    sorted *s;
    if (!pi__jiterate(r, in, &l) || !new_list(r, 0, out)) return false;
    if (!sort_keys(r, &l, pi__jarg(a, 1, "attribute"), truth_of(pi__jarg(a, 0, "case_sensitive")), &s)) return false;
    for (size_t i = 0; i < l.n; i++) {
        const pi__val *key = &s[i].key;
        bool seen = false, list = key->type == PI__V_LIST && !key->list->tuple;
        if (list || key->type == PI__V_MAP) return pi__jfail(r, "unique: %s cannot be a key", pi__val_type_name(key));
        for (size_t k = 0; !seen && k < i; k++)
            if (!pi__jequal(r, &s[i].key, &s[k].key, &seen)) return false;
        if (!seen && !add(r, out, l.v[i])) return false;
    }
    return true;
}

/* Gets the smallest (sign -1) or the largest element. */
static bool extreme(run *r, const pi__val *in, const pi__jargs *a, int sign, pi__val *out)
{
    pi__list l;
    sorted *s;
    size_t best = 0;
    if (!pi__jiterate(r, in, &l)) return false;
    if (!sort_keys(r, &l, pi__jarg(a, 1, "attribute"), truth_of(pi__jarg(a, 0, "case_sensitive")), &s)) return false;
    for (size_t i = 1; i < l.n; i++) {
        int c;
        if (!pi__jcompare(r, &s[i].key, &s[best].key, &c)) return false;
        if (c == sign) best = i;
    }
    *out = l.n ? l.v[best] : pi__val_undefined(pi__str_of("the extreme of nothing"));
    return true;
}

static bool f_min(run *r, const pi__val *in, const pi__jargs *a, pi__val *out) { return extreme(r, in, a, -1, out); }
static bool f_max(run *r, const pi__val *in, const pi__jargs *a, pi__val *out) { return extreme(r, in, a, 1, out); }

static bool f_sum(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *path = pi__jarg(a, 0, "attribute"), *start = pi__jarg(a, 1, "start");
    pi__list l;
    *out = start ? *start : pi__val_int(0);
    if (!pi__jiterate(r, in, &l)) return false;
    for (size_t i = 0; i < l.n; i++) {
        pi__val v = l.v[i], sum = *out;
        if (path && !attribute(r, &l.v[i], path, &v)) return false;
        if (!pi__jarithmetic(r, '+', &sum, &v, out)) return false;
    }
    return true;
}

const pi__jfilter pi__jseq_filters[] = {
    {"length", f_length}, {"count", f_length}, {"list", f_list}, {"first", f_first}, {"last", f_last},
    {"reverse", f_reverse}, {"join", f_join}, {"items", f_items}, {"map", f_map}, {"select", f_select},
    {"reject", f_reject}, {"selectattr", f_selectattr}, {"rejectattr", f_rejectattr}, {"sort", f_sort},
    {"dictsort", f_dictsort}, {"unique", f_unique}, {"min", f_min}, {"max", f_max}, {"sum", f_sum}, {NULL, NULL},
};
