/* Values of expressions, equal to Python's as far as templates can observe.
 *
 * A missing name is "undefined": false, printed as nothing, iterated as empty; but its members, arithmetic and calls
 * fail with its name. "a.b" prefers methods to keys; "a['b']" prefers keys to methods. */
#include <string.h>
#include <time.h>

#include "template/jinja_impl.h"
#include "base/utf8.h"

typedef pi__jnode node;
typedef pi__jrun run;

/* ------------------------------------------------------------------------------------------------------------ names */

enum { FN_NAMESPACE, FN_RANGE, FN_DICT, FN_RAISE, FN_STRFTIME, N_FN };
static const char *const functions[N_FN] = {"namespace", "range", "dict", "raise_exception", "strftime_now"};

static bool eval_name(run *r, const node *n, pi__val *out)
{
    for (const pi__jscope *s = r->scope; s; s = s->up) {
        if (!pi__jcost(r, s->n * 4)) return false;
        for (size_t i = 0; i < s->n; i++) {
            if (s->name[i] != n->name) continue;
            *out = s->value[i];
            return true;
        }
    }
    pi__val name = r->t->names.v[n->name];
    const pi__val *v = pi__dict_get(r->vars, name);
    *out = v ? *v : pi__val_undefined(name.s);
    for (int i = 0; !v && i < N_FN; i++)
        if (pi__str_is(name.s, functions[i])) *out = (pi__val) {.type = PI__V_FUNC, .i = i};
    return true;
}

bool pi__jdefined(run *r, const pi__val *v)
{
    return v->type != PI__V_UNDEFINED || pi__jfail(r, "'%.*s' is undefined", pi__jshort(v->s, 60), v->s.p);
}

/* ---------------------------------------------------------------------------------------------------------- members */

static bool loop_member(const pi__jloop *l, pi__str name, pi__val *out)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"index0", (int64_t) l->i}, {"index", (int64_t) l->i + 1}, {"length", (int64_t) l->n},
        {"revindex", (int64_t) (l->n - l->i)}, {"revindex0", (int64_t) (l->n - l->i) - 1},
        {"depth", 1}, {"depth0", 0}, /* constant, because recursive loops are not supported */
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (pi__str_is(name, numbers[i].name)) *out = pi__val_int(numbers[i].value);
    if (pi__str_is(name, "first")) *out = pi__val_bool(l->i == 0);
    if (pi__str_is(name, "last")) *out = pi__val_bool(l->i + 1 == l->n);
    if (pi__str_is(name, "previtem") && l->i > 0) *out = l->v[l->i - 1];
    if (pi__str_is(name, "nextitem") && l->i + 1 < l->n) *out = l->v[l->i + 1];
    return true;
}

int64_t pi__jindex(int64_t i, size_t n)
{
    if (i < 0) i += (int64_t) n;
    return i < 0 || (uint64_t) i >= n ? -1 : i;
}

static bool element(run *r, const pi__val *v, int64_t i, pi__val *out)
{
    if (v->type == PI__V_LIST) {
        i = pi__jindex(i, v->list->n);
        if (i >= 0) *out = v->list->v[i];
        return true;
    }
    if (!pi__jcost(r, v->s.n)) return false;
    i = pi__jindex(i, pi__str_length(v->s));
    if (i < 0) return true;
    size_t at = 0;
    for (; i > 0; i--) at += pi__utf8_len((unsigned char) v->s.p[at]);
    *out = pi__val_str((pi__str) {v->s.p + at, pi__utf8_len((unsigned char) v->s.p[at])});
    return true;
}

bool pi__jmember(run *r, const pi__val *v, pi__val name, bool item, pi__val *out)
{
    bool text = name.type == PI__V_STR;
    *out = pi__val_undefined(text ? name.s : pi__str_of("the element"));
    if (!pi__jdefined(r, v)) return false;
    int method = text ? pi__jmethod_find(v, name.s) : -1;
    const pi__val *found = NULL;
    if (v->type == PI__V_NAMESPACE) found = pi__dict_get(v->map, name);
    if (v->type == PI__V_MAP && name.type <= PI__V_STR && (item || method < 0)) found = pi__dict_get(v->map, name);
    if (found) {
        *out = *found;
        return true;
    }
    if (method >= 0) {
        pi__jmethod *m = pi__zone_take(r->z, sizeof *m);
        if (!m) return pi__jno_room(r);
        *m = (pi__jmethod) {*v, method};
        *out = (pi__val) {.type = PI__V_METHOD, .obj = m};
        return true;
    }
    if (v->type == PI__V_LOOP && text) return loop_member(v->obj, name.s, out);
    if ((v->type == PI__V_LIST || v->type == PI__V_STR) && pi__jis_integer(&name))
        return element(r, v, pi__jinteger(&name), out);
    return true;
}

static bool eval_item(run *r, const node *n, pi__val *out)
{
    pi__val object, index;
    if (!pi__jeval(r, n->a, &object)) return false;
    if (n->kind == PI__JN_ATTR) return pi__jmember(r, &object, n->v, false, out);
    return pi__jeval(r, n->b, &index) && pi__jmember(r, &object, index, true, out);
}

/* ------------------------------------------------------------------------------------------------------------ calls */

const pi__val *pi__jarg(const pi__jargs *a, size_t i, const char *name)
{
    if (i < a->n) return &a->v[i];
    for (size_t k = 0; name && k < a->n_kw; k++)
        if (pi__str_is(a->kw[k].name, name)) return &a->kw[k].v;
    return NULL;
}

/* Evaluates an argument: *list gives a list of values, **map a map. */
static bool eval_arg(run *r, const node *a, pi__val *out)
{
    pi__val v;
    bool wrapped = a->kind == PI__JN_KWARG || a->kind == PI__JN_STAR || a->kind == PI__JN_STARS;
    if (!pi__jeval(r, wrapped ? a->a : a, &v)) return false;
    *out = v;
    if (a->kind == PI__JN_STARS && v.type != PI__V_MAP)
        return pi__jdefined(r, &v) && pi__jfail(r, "** takes a mapping, not %s", pi__val_type_name(&v));
    if (a->kind != PI__JN_STAR) return true;
    if (!pi__val_new_list(r->z, 0, out)) return pi__jno_room(r);
    return pi__jiterate(r, &v, out->list);
}

static bool add_named(run *r, pi__jargs *out, const pi__val *name, pi__val v)
{
    if (name->type != PI__V_STR) return pi__jfail(r, "** takes names, not %s", pi__val_type_name(name));
    if (!pi__jcost(r, out->n_kw * 8)) return false;
    for (size_t i = 0; i < out->n_kw; i++)
        if (pi__str_eq(out->kw[i].name, name->s))
            return pi__jfail(r, "the argument '%.*s' is given twice", pi__jshort(name->s, 60), name->s.p);
    out->kw[out->n_kw].name = name->s;
    out->kw[out->n_kw++].v = v;
    return true;
}

static bool add_arg(run *r, const node *a, const pi__val *v, pi__jargs *out)
{
    if (a->kind == PI__JN_KWARG) return add_named(r, out, &a->v, *v);
    if (a->kind == PI__JN_STARS) {
        for (size_t i = 0; i < v->map->n; i++)
            if (!add_named(r, out, &v->map->e[i].key, v->map->e[i].value)) return false;
        return true;
    }
    bool star = a->kind == PI__JN_STAR;
    if (!pi__jcost(r, star ? v->list->n * 16 : 0)) return false;
    for (size_t i = 0; i < (star ? v->list->n : 1); i++) out->v[out->n++] = star ? v->list->v[i] : *v;
    return true;
}

/* caller: the macro of a call block; NULL = none. */
static bool eval_args(run *r, const node *list, const pi__val *caller, pi__jargs *out)
{
    const pi__val name = pi__val_str(pi__str_of("caller"));
    size_t n = 0, n_v = 0, n_kw = caller != NULL, i = 0;
    *out = (pi__jargs) {0};
    for (const node *a = list; a; a = a->next) n++;
    if (!n && !caller) return true;
    pi__val *v = pi__zone_take(r->z, n * sizeof *v);
    if (!v) return pi__jno_room(r);
    for (const node *a = list; a; a = a->next, i++) {
        if (!eval_arg(r, a, &v[i])) return false;
        if (a->kind == PI__JN_KWARG || a->kind == PI__JN_STARS) n_kw += a->kind == PI__JN_STARS ? v[i].map->n : 1;
        else n_v += a->kind == PI__JN_STAR ? v[i].list->n : 1;
    }
    out->v = pi__zone_take(r->z, n_v * sizeof *out->v);
    out->kw = pi__zone_take(r->z, n_kw * sizeof *out->kw);
    if (!out->v || !out->kw) return pi__jno_room(r);
    i = 0;
    for (const node *a = list; a; a = a->next, i++)
        if (!add_arg(r, a, &v[i], out)) return false;
    return !caller || add_named(r, out, &name, *caller);
}

/* namespace(a=1) and dict(a=1), both optionally with an initial map. */
static bool make_map(run *r, const pi__jargs *args, bool is_namespace, pi__val *out)
{
    const pi__val *from = pi__jarg(args, 0, NULL);
    if (!pi__val_new_map(r->z, out)) return pi__jno_room(r);
    for (size_t i = 0; from && from->type == PI__V_MAP && i < from->map->n; i++)
        if (!pi__dict_set(r->z, out->map, from->map->e[i].key, from->map->e[i].value)) return pi__jno_room(r);
    for (size_t i = 0; i < args->n_kw; i++)
        if (!pi__dict_set(r->z, out->map, pi__val_str(args->kw[i].name), args->kw[i].v)) return pi__jno_room(r);
    if (is_namespace) out->type = PI__V_NAMESPACE;
    return true;
}

bool pi__jis_range(run *r, const node *n)
{
    pi__val v;
    return n->kind == PI__JN_CALL && n->a->kind == PI__JN_NAME && eval_name(r, n->a, &v) && v.type == PI__V_FUNC &&
           v.i == FN_RANGE;
}

/* Takes the largest memory of a range that a loop has finished with. */
static void reuse_range(run *r, pi__list *l)
{
    int best = 0;
    for (int i = 1; i < 4; i++)
        if (r->spare[i].cap > r->spare[best].cap) best = i;
    l->v = r->spare[best].v;
    l->cap = r->spare[best].cap;
    r->spare[best].v = NULL;
    r->spare[best].cap = 0;
}

static bool make_range(run *r, const pi__jargs *args, pi__val *out)
{
    int64_t v[3] = {0, 0, 1};
    if (args->n > 3 || args->n_kw) return pi__jfail(r, "range() takes up to three numbers");
    for (size_t i = 0; i < 3 && i < args->n; i++) {
        if (!pi__jis_integer(&args->v[i])) return pi__jfail(r, "range() takes whole numbers");
        v[i] = pi__jinteger(&args->v[i]);
    }
    if (!args->n || !v[2]) return pi__jfail(r, args->n ? "range() with a step of 0" : "range() needs an end");
    if (args->n == 1) v[1] = v[0], v[0] = 0;
    if (!pi__val_new_list(r->z, 0, out)) return pi__jno_room(r);
    reuse_range(r, out->list);
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
        if (out->list->n >= PI__JINJA_RANGE) return pi__jfail(r, "range() of more than %d numbers", PI__JINJA_RANGE);
        if (!pi__jcost(r, 0)) return false;
        if (!pi__list_add(r->z, out->list, pi__val_int(i))) return pi__jno_room(r);
        if (__builtin_add_overflow(i, v[2], &i)) break;
    }
    return true;
}

static bool raise_exception(run *r, const pi__jargs *args)
{
    pi__str s = {"", 0};
    if (args->n && !pi__jto_str(r, &args->v[0], &s)) return false;
    r->code = pi__fail(r->err, PI_EINVAL, "chat template: %.*s", pi__jshort(s, 200), s.p);
    return false;
}

static bool strftime_now(run *r, const pi__jargs *args, pi__val *out)
{
    char format[128], text[512];
    time_t now = (time_t) r->now;
    struct tm tm;
    if (!args->n || args->v[0].type != PI__V_STR || args->v[0].s.n >= sizeof format)
        return pi__jfail(r, "strftime_now() takes a short format");
    memcpy(format, args->v[0].s.p, args->v[0].s.n);
    format[args->v[0].s.n] = 0;
    if (!localtime_r(&now, &tm)) return pi__jfail(r, "the time is not available");
    size_t n = strftime(text, sizeof text, format, &tm);
    return pi__jconcat(r, (pi__str) {"", 0}, (pi__str) {text, n}, out);
}

static bool call_function(run *r, int64_t fn, const pi__jargs *args, pi__val *out)
{
    switch (fn) {
    case FN_NAMESPACE: return make_map(r, args, true, out);
    case FN_RANGE: return make_range(r, args, out);
    case FN_DICT: return make_map(r, args, false, out);
    case FN_RAISE: return raise_exception(r, args);
    default: return strftime_now(r, args, out);
    }
}

bool pi__jcall(run *r, const pi__val *callee, const pi__jargs *args, pi__val *out)
{
    if (!pi__jdefined(r, callee)) return false;
    if (callee->type == PI__V_MACRO) return pi__jcall_macro(r, callee->obj, args, out);
    if (callee->type == PI__V_FUNC) return call_function(r, callee->i, args, out);
    if (callee->type == PI__V_METHOD) return pi__jmethod_call(r, callee->obj, args, out);
    return pi__jfail(r, "%s cannot be called", pi__val_type_name(callee));
}

static bool eval_call(run *r, const node *n, pi__val *out)
{
    pi__val callee;
    pi__jargs args;
    const pi__val *caller = n->v.type == PI__V_MACRO ? n->v.obj : NULL; /* set by a call block */
    if (!pi__jeval(r, n->a, &callee) || !eval_args(r, n->b, caller, &args)) return false;
    r->line = n->line;
    return pi__jcall(r, &callee, &args, out);
}

static bool eval_filter(run *r, const node *n, pi__val *out)
{
    pi__val in;
    pi__jargs args;
    if (n->id < 0) return pi__jfail(r, "no filter named '%.*s'", pi__jshort(n->v.s, 60), n->v.s.p);
    if (!pi__jeval(r, n->a, &in) || !eval_args(r, n->b, NULL, &args)) return false;
    r->line = n->line;
    return pi__jfilter_call(r, n->id, &in, &args, out);
}

static bool eval_test(run *r, const node *n, pi__val *out)
{
    pi__val in;
    pi__jargs args;
    bool yes;
    if (n->id < 0) return pi__jfail(r, "no test named '%.*s'", pi__jshort(n->v.s, 60), n->v.s.p);
    if (!pi__jeval(r, n->a, &in) || !eval_args(r, n->b, NULL, &args)) return false;
    if (!pi__jtest_call(r, n->id, &in, &args, &yes)) return false;
    *out = pi__val_bool(yes);
    return true;
}

/* ------------------------------------------------------------------------------------------------------ expressions */

static bool eval_elements(run *r, const node *n, pi__val *out)
{
    if (!pi__val_new_list(r->z, 0, out)) return pi__jno_room(r);
    out->list->tuple = n->kind == PI__JN_TUPLE;
    for (const node *e = n->a; e; e = e->next) {
        pi__val v;
        if (!pi__jeval(r, e, &v)) return false;
        if (!pi__list_add(r->z, out->list, v)) return pi__jno_room(r);
    }
    return true;
}

static bool eval_dict(run *r, const node *n, pi__val *out)
{
    if (!pi__val_new_map(r->z, out)) return pi__jno_room(r);
    for (const node *e = n->a; e; e = e->next) {
        pi__val k, v;
        if (!pi__jeval(r, e->a, &k) || !pi__jeval(r, e->b, &v) || !pi__jdefined(r, &k)) return false;
        if (k.type > PI__V_STR) return pi__jfail(r, "%s cannot be a key", pi__val_type_name(&k));
        if (!pi__dict_set(r->z, out->map, k, v)) return pi__jno_room(r);
    }
    return true;
}

static bool eval_choice(run *r, const node *n, pi__val *out)
{
    if (!pi__jeval(r, n->a, out)) return false;
    bool yes = pi__val_truth(out);
    switch (n->kind) {
    case PI__JN_NOT: *out = pi__val_bool(!yes); return true;
    case PI__JN_AND: return !yes || pi__jeval(r, n->b, out);
    case PI__JN_OR: return yes || pi__jeval(r, n->b, out);
    default: break;
    }
    if (yes) return pi__jeval(r, n->b, out);
    *out = pi__val_undefined(pi__str_of("the inline if without else"));
    return !n->c || pi__jeval(r, n->c, out);
}

static bool eval_kind(run *r, const node *n, pi__val *out)
{
    switch (n->kind) {
    case PI__JN_CONST: *out = n->v; return true;
    case PI__JN_NAME: return eval_name(r, n, out);
    case PI__JN_LIST:
    case PI__JN_TUPLE: return eval_elements(r, n, out);
    case PI__JN_DICT: return eval_dict(r, n, out);
    case PI__JN_ATTR:
    case PI__JN_ITEM: return eval_item(r, n, out);
    case PI__JN_SLICE: return pi__jeval_slice(r, n, out);
    case PI__JN_CALL: return eval_call(r, n, out);
    case PI__JN_FILTER: return eval_filter(r, n, out);
    case PI__JN_TEST: return eval_test(r, n, out);
    case PI__JN_NEG:
    case PI__JN_POS: return pi__jeval_sign(r, n, out);
    case PI__JN_BINARY: return pi__jeval_binary(r, n, out);
    case PI__JN_COMPARE: return pi__jeval_compare(r, n, out);
    case PI__JN_CAPTURE: return pi__jcapture(r, n->d, out);
    default: return eval_choice(r, n, out);
    }
}

bool pi__jeval(run *r, const node *n, pi__val *out)
{
    if (++r->depth > PI__JINJA_DEPTH) {
        r->line = n->line;
        r->code = r->code ? r->code
                          : pi__fail(r->err, PI_ETOOBIG, "chat template, line %u: nested too deeply", r->line);
        return false;
    }
    bool ok = pi__jcost(r, 0) && eval_kind(r, n, out);
    r->depth--;
    return ok;
}
