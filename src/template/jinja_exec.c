/* Runs a template: statements, scopes, loops, macros.
 *
 * A scope is a small list of names. Loops, macros and {% with %} open one, if does not. Its names end with it. So a
 * loop clears and reuses the scope of its body in each iteration, unless a macro defined in it still refers to it. All
 * output goes into one text. The output of a macro or block is cut off its end and becomes a string.
 *
 *     out   system\n ... <|im_start|>user\nHello
 *                        ^ mark                  the macro returns the output from here on
 *
 * Visited nodes and depth are counted; the limits are in jinja_impl.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "template/jinja_impl.h"

typedef pi__jnode node;
typedef pi__jrun run;

/* ---------------------------------------------------------------------------------------------------------- failing */

bool pi__jfail(run *r, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!r->code) r->code = pi__fail(r->err, PI_EINVAL, "chat template, line %u: %s", r->line, text);
    return false;
}

static bool too_much(run *r, const char *what)
{
    if (!r->code) r->code = pi__fail(r->err, PI_ETOOBIG, "chat template, line %u: %s", r->line, what);
    return false;
}

bool pi__jno_room(run *r)
{
    if (r->code) return false;
    if (pi__work_code(r->z->work)) {
        r->code = pi__work_fail(r->z->work, r->err, "the chat template");
        return false;
    }
    if (r->z->code == PI_ETOOBIG) return too_much(r, "rendering takes too much memory");
    if (r->out->code == PI_ETOOBIG) return too_much(r, "the output is too long");
    r->code = pi__fail_mem(r->err, "rendering the chat template");
    return false;
}

bool pi__jcost(run *r, size_t bytes)
{
    r->steps += 1 + bytes / 64;
    if (r->steps > r->max_steps) return too_much(r, "rendering takes too many steps");
    return pi__work_step(r->z->work, 1 + bytes / 64) || pi__jno_room(r);
}

/* ----------------------------------------------------------------------------------------------------------- scopes */

static pi__jscope *open_scope(run *r, pi__jscope *up)
{
    pi__jscope *s = pi__zone_take(r->z, sizeof *s);
    if (!s) pi__jno_room(r);
    else s->up = up;
    return s;
}

static bool set_in(run *r, pi__jscope *s, int32_t name, pi__val v)
{
    if (!pi__jcost(r, s->n * 4)) return false;
    for (size_t i = 0; i < s->n; i++) {
        if (s->name[i] != name) continue;
        s->value[i] = v;
        return true;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        int32_t *names = pi__zone_take(r->z, cap * sizeof *names);
        pi__val *values = pi__zone_take(r->z, cap * sizeof *values);
        if (!names || !values) return pi__jno_room(r);
        if (s->n) memcpy(names, s->name, s->n * sizeof *names);
        if (s->n) memcpy(values, s->value, s->n * sizeof *values);
        s->name = names;
        s->value = values;
        s->cap = cap;
    }
    s->name[s->n] = name;
    s->value[s->n++] = v;
    return true;
}

bool pi__jset_name(run *r, int32_t name, pi__val v) { return set_in(r, r->scope, name, v); }

/* Empties the innermost scope for a loop's next iteration; opens a new one in its place if a macro refers to it. */
static bool renew_scope(run *r)
{
    if (!r->scope->kept) {
        r->scope->n = 0;
        return true;
    }
    pi__jscope *s = open_scope(r, r->scope->up);
    if (s) r->scope = s;
    return s != NULL;
}

static bool assign(run *r, const node *target, const pi__val *v)
{
    r->line = target->line;
    if (target->kind == PI__JN_NAME) return pi__jset_name(r, target->name, *v);
    if (target->kind == PI__JN_ATTR) {
        pi__val object;
        if (!pi__jeval(r, target->a, &object)) return false;
        if (object.type != PI__V_NAMESPACE) return pi__jfail(r, "only members of a namespace() can be set");
        return pi__dict_set(r->z, object.map, target->v, *v) || pi__jno_room(r);
    }
    pi__list l;
    size_t i = 0;
    if (!pi__jiterate(r, v, &l)) return false;
    for (const node *t = target->a; t; t = t->next, i++) {
        if (i >= l.n) return pi__jfail(r, "not enough values to unpack: %zu", l.n);
        if (!assign(r, t, &l.v[i])) return false;
    }
    return i == l.n || pi__jfail(r, "too many values to unpack: %zu, not %zu", l.n, i);
}

/* ----------------------------------------------------------------------------------------------------------- output */

static bool print(run *r, const pi__val *v)
{
    size_t before = r->out->n;
    pi__text_value(r->out, v);
    return r->out->code ? pi__jno_room(r) : pi__jcost(r, r->out->n - before);
}

bool pi__jcapture(run *r, const node *list, pi__val *out)
{
    size_t mark = r->out->n;
    pi__jscope *outer = r->scope;
    if (!(r->scope = open_scope(r, outer))) return false;
    bool ok = pi__jexec(r, list);
    r->scope = outer;
    if (!ok) return false;
    *out = pi__val_str(pi__text_copy(r->out, mark, r->z));
    r->out->n = mark;
    return r->z->code ? pi__jno_room(r) : true;
}

/* ------------------------------------------------------------------------------------------------------------ loops */

/* Keeps the elements for which the loop's filter is true. */
static bool filter_elements(run *r, const node *n, pi__list *l)
{
    pi__val kept, yes;
    if (!pi__val_new_list(r->z, l->n, &kept)) return pi__jno_room(r);
    for (size_t i = 0; i < l->n; i++) {
        if (!renew_scope(r) || !assign(r, n->a, &l->v[i]) || !pi__jeval(r, n->c, &yes)) return false;
        if (pi__val_truth(&yes) && !pi__list_add(r->z, kept.list, l->v[i])) return pi__jno_room(r);
    }
    *l = *kept.list;
    return true;
}

static bool run_iterations(run *r, const node *n, pi__list *l, int32_t loop_name)
{
    pi__jloop *loop = pi__zone_take(r->z, sizeof *loop);
    if (!loop) return pi__jno_room(r);
    *loop = (pi__jloop) {l->v, l->n, 0, NULL};
    for (; loop->i < l->n && r->flow != PI__JF_BREAK; loop->i++) {
        r->flow = PI__JF_NEXT;
        if (!renew_scope(r) || !pi__jcost(r, 0)) return false;
        if (loop_name >= 0 && !pi__jset_name(r, loop_name, (pi__val) {.type = PI__V_LOOP, .obj = loop})) return false;
        if (!assign(r, n->a, &l->v[loop->i]) || !pi__jexec(r, n->d)) return false;
    }
    r->flow = PI__JF_NEXT;
    return true;
}

/* Saves a range's memory for the next one: templates often scan the conversation with a range() per message. */
static void leave_range(run *r, const pi__list *l)
{
    int least = 0;
    for (int i = 1; i < 4; i++)
        if (r->spare[i].cap < r->spare[least].cap) least = i;
    if (l->cap <= r->spare[least].cap) return;
    r->spare[least].v = l->v;
    r->spare[least].cap = l->cap;
}

static bool exec_for(run *r, const node *n)
{
    pi__val v;
    pi__list l;
    bool range = pi__jis_range(r, n->b);
    pi__jscope *outer = r->scope;
    if (!pi__jeval(r, n->b, &v) || !pi__jiterate(r, &v, &l)) return false;
    if (!(r->scope = open_scope(r, outer))) return false;
    const pi__val *loop = pi__dict_get_str(&r->t->numbers, "loop");
    bool ok = (!n->c || filter_elements(r, n, &l)) && run_iterations(r, n, &l, loop ? (int32_t) loop->i : -1);
    r->scope = outer;
    if (ok && range && v.type == PI__V_LIST) leave_range(r, v.list);
    return ok && (l.n || pi__jexec(r, n->e));
}

/* ----------------------------------------------------------------------------------------------------------- macros */

static bool define_macro(run *r, const node *n, pi__val *out)
{
    pi__jmacro *m = pi__zone_take(r->z, sizeof *m);
    if (!m) return pi__jno_room(r);
    *m = (pi__jmacro) {n, r->scope};
    for (pi__jscope *s = r->scope; s; s = s->up) s->kept = true;
    *out = (pi__val) {.type = PI__V_MACRO, .obj = m};
    return true;
}

/* Returns the argument of this name and marks it as used; NULL if not given. */
static const pi__val *take_named(const pi__jargs *args, pi__str name)
{
    for (size_t k = 0; k < args->n_kw; k++) {
        if (!pi__str_eq(args->kw[k].name, name)) continue;
        args->kw[k].used = true;
        return &args->kw[k].v;
    }
    return NULL;
}

/* Sets a parameter to argument i, to the named argument, or to its default. */
static bool bind(run *r, const node *param, size_t i, const pi__jargs *args)
{
    pi__str name = r->t->names.v[param->name].s;
    const pi__val *given = i < args->n ? &args->v[i] : take_named(args, name);
    pi__val v = given ? *given : pi__val_undefined(name);
    if (!given && param->a && !pi__jeval(r, param->a, &v)) return false;
    return pi__jset_name(r, param->name, v);
}

/* True if the macro's body uses the name and no parameter has it. *number: number of the name. */
static bool uses(const run *r, const pi__jmacro *m, int special, const char *name, int32_t *number)
{
    const pi__val *known = m->def->op & special ? pi__dict_get_str(&r->t->numbers, name) : NULL;
    *number = known ? (int32_t) known->i : -1;
    for (const node *p = m->def->a; p; p = p->next)
        if (p->name == *number) return false;
    return known != NULL;
}

/* Collects the arguments after the n parameters: named ones in kwargs, positional ones in varargs. */
static bool bind_rest(run *r, const pi__jmacro *m, const pi__jargs *args, size_t n)
{
    int32_t name;
    pi__val rest;
    bool kwargs = uses(r, m, PI__JM_KWARGS, "kwargs", &name);
    if (kwargs && !pi__val_new_map(r->z, &rest)) return pi__jno_room(r);
    for (size_t k = 0; k < args->n_kw; k++) {
        pi__str s = args->kw[k].name;
        if (args->kw[k].used) continue;
        if (!kwargs) return pi__jfail(r, "the macro does not take the argument '%.*s'", pi__jshort(s, 60), s.p);
        if (!pi__dict_set(r->z, rest.map, pi__val_str(s), args->kw[k].v)) return pi__jno_room(r);
    }
    if (kwargs && !pi__jset_name(r, name, rest)) return false;
    if (!uses(r, m, PI__JM_VARARGS, "varargs", &name))
        return args->n <= n || pi__jfail(r, "the macro takes %zu arguments, not %zu", n, args->n);
    if (!pi__val_new_list(r->z, 0, &rest)) return pi__jno_room(r);
    rest.list->tuple = true;
    for (size_t i = n; i < args->n; i++)
        if (!pi__list_add(r->z, rest.list, args->v[i])) return pi__jno_room(r);
    return pi__jset_name(r, name, rest);
}

static bool bind_all(run *r, const pi__jmacro *m, const pi__jargs *args)
{
    const pi__str caller = pi__str_of("caller");
    size_t i = 0;
    int32_t name;
    for (const node *p = m->def->a; p; p = p->next, i++)
        if (!bind(r, p, i, args)) return false;
    if (uses(r, m, PI__JM_CALLER, "caller", &name)) {
        const pi__val *v = take_named(args, caller);
        if (!pi__jset_name(r, name, v ? *v : pi__val_undefined(caller))) return false;
    }
    return bind_rest(r, m, args, i);
}

bool pi__jcall_macro(run *r, const pi__jmacro *m, const pi__jargs *args, pi__val *out)
{
    pi__jscope *outer = r->scope;
    uint32_t line = r->line;
    if (!(r->scope = open_scope(r, m->scope))) return false;
    bool ok = bind_all(r, m, args) && pi__jcapture(r, m->def->d, out);
    r->scope = outer;
    r->line = ok ? line : r->line;
    return ok;
}

/* Runs {% call f(x) %}...{% endcall %}: f's body may call caller(). */
static bool exec_caller(run *r, const node *n)
{
    pi__val *caller = pi__zone_take(r->z, sizeof *caller), out;
    node *call = pi__zone_take(r->z, sizeof *call);
    if (!caller || !call) return pi__jno_room(r);
    if (!define_macro(r, n->b, caller)) return false;
    *call = *n->a;
    call->v = (pi__val) {.type = PI__V_MACRO, .obj = caller};
    return pi__jeval(r, call, &out) && print(r, &out);
}

/* ------------------------------------------------------------------------------------------------------- statements */

static bool exec_if(run *r, const node *n)
{
    for (;;) {
        pi__val v;
        if (!pi__jeval(r, n->a, &v)) return false;
        if (pi__val_truth(&v)) return pi__jexec(r, n->d);
        if (!n->e || n->e->kind != PI__JN_IF || n->e->next) return pi__jexec(r, n->e);
        n = n->e;
        r->line = n->line;
    }
}

static bool exec_with(run *r, const node *n)
{
    pi__jscope *outer = r->scope, *inner = open_scope(r, outer);
    bool ok = inner != NULL;
    for (const node *s = n->a; ok && s; s = s->next) { /* values are evaluated in the outer scope */
        pi__val v;
        ok = pi__jeval(r, s->b, &v) && set_in(r, inner, s->a->name, v);
    }
    if (ok) {
        r->scope = inner;
        ok = pi__jexec(r, n->d);
        r->scope = outer;
    }
    return ok;
}

static bool exec_set(run *r, const node *n)
{
    pi__val v;
    return pi__jeval(r, n->b, &v) && assign(r, n->a, &v);
}

static bool exec_one(run *r, const node *n)
{
    pi__val v;
    switch (n->kind) {
    case PI__JN_DATA: return print(r, &n->v);
    case PI__JN_PRINT: return pi__jeval(r, n->a, &v) && print(r, &v);
    case PI__JN_IF: return exec_if(r, n);
    case PI__JN_FOR: return exec_for(r, n);
    case PI__JN_SET: return exec_set(r, n);
    case PI__JN_WITH: return exec_with(r, n);
    case PI__JN_MACRO: return define_macro(r, n, &v) && pi__jset_name(r, n->name, v);
    case PI__JN_CALLER: return exec_caller(r, n);
    default: r->flow = n->kind == PI__JN_BREAK ? PI__JF_BREAK : PI__JF_CONTINUE; return true;
    }
}

bool pi__jexec(run *r, const node *list)
{
    if (++r->depth > PI__JINJA_DEPTH) return too_much(r, "nested too deeply");
    for (const node *n = list; n && r->flow == PI__JF_NEXT; n = n->next) {
        r->line = n->line;
        if (!pi__jcost(r, 0) || !exec_one(r, n)) return false;
    }
    r->depth--;
    return true;
}

int pi__jinja_render(const pi__jinja *t, pi__zone *z, const pi__dict *vars, const pi__jinja_env *env, pi__text *out,
                     pi_error *err)
{
    run r = {.t = t, .z = z, .vars = vars, .now = env->now, .out = out, .err = err, .line = 1};
    r.max_steps = env->max_steps ? env->max_steps : PI__JINJA_STEPS;
    z->trusted = &t->zone;
    out->zone = z;
    r.scope = open_scope(&r, NULL);
    if (r.scope) pi__jexec(&r, t->root);
    out->zone = NULL;
    z->trusted = NULL;
    if (env->used) *env->used += r.steps;
    return r.code;
}
