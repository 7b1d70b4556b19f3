/* Tools in the API's format, and the options that allow or require calls.
 *
 * The trees were just parsed from JSON and belong to the call, as in chat_messages.c. Threads: any, each with its
 * own. */
#include <string.h>

#include "base/error.h"
#include "template/chat_impl.h"

static int no_room(const pi__zone *z, pi_error *err)
{
    if (pi__work_code(z->work)) return pi__work_fail(z->work, err, "the tools");
    if (z->code == PI_ETOOBIG) return pi__fail(err, PI_ETOOBIG, "the tools are too large");
    return pi__fail_mem(err, "the tools");
}

/* Makes {"type": "function", "function": bare}. */
static int wrap(pi__zone *z, pi__val *v, pi_error *err)
{
    pi__val bare = *v;
    bool ok = pi__val_new_map(z, v) &&
              pi__dict_set_str(z, v->map, "type", pi__val_str(pi__str_of("function"))) &&
              pi__dict_set_str(z, v->map, "function", bare);
    return ok ? PI_OK : no_room(z, err);
}

int pi__chat_fit_tools(pi__zone *z, pi__val *tools, pi_error *err)
{
    if (tools->type == PI__V_NONE || (tools->type == PI__V_LIST && !tools->list->n)) {
        *tools = pi__val_none();
        return PI_OK;
    }
    if (tools->type != PI__V_LIST) return pi__fail(err, PI_EINVAL, "tools must be a list");
    int rc = PI_OK;
    for (size_t i = 0; !rc && i < tools->list->n; i++) {
        pi__val *v = &tools->list->v[i];
        if (v->type != PI__V_MAP) return pi__fail(err, PI_EINVAL, "tools[%zu]: must be an object", i);
        if (!pi__dict_get_str(v->map, "function") && pi__dict_get_str(v->map, "name")) rc = wrap(z, v, err);
    }
    return rc;
}

/* Sets a member that is missing or null. */
static bool set_missing(pi__zone *z, pi__dict *f, const char *key, pi__val v)
{
    const pi__val *there = pi__dict_get_str(f, key);
    return (there && there->type != PI__V_NONE) || pi__dict_set_str(z, f, key, v);
}

/* Makes {"type": "object", "properties": {}}. */
static bool no_parameters(pi__zone *z, pi__val *out)
{
    pi__val none;
    return pi__val_new_map(z, &none) && pi__val_new_map(z, out) &&
           pi__dict_set_str(z, out->map, "type", pi__val_str(pi__str_of("object"))) &&
           pi__dict_set_str(z, out->map, "properties", none);
}

int pi__chat_fill_tools(const pi__chat *c, pi__zone *z, pi__val *tools, pi_error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && tools->type == PI__V_LIST && i < tools->list->n; i++) {
        pi__val *v = &tools->list->v[i], *f = pi__dict_get_str(v->map, "function"), none;
        if (!f || f->type != PI__V_MAP) continue;
        if (c->described) ok = set_missing(z, f->map, "description", pi__val_str(pi__str_of("")));
        if (ok && c->with_parameters) ok = no_parameters(z, &none) && set_missing(z, f->map, "parameters", none);
    }
    return ok ? PI_OK : no_room(z, err);
}

const pi__dict *pi__chat_function(const pi__val *tools, size_t i, pi__str *name)
{
    if (tools->type != PI__V_LIST || i >= tools->list->n || tools->list->v[i].type != PI__V_MAP) return NULL;
    const pi__val *f = pi__dict_get_str(tools->list->v[i].map, "function");
    const pi__val *n = f && f->type == PI__V_MAP ? pi__dict_get_str(f->map, "name") : NULL;
    if (!n || n->type != PI__V_STR) return NULL;
    *name = n->s;
    return f->map;
}

const pi__dict *pi__chat_find_function(const pi__val *tools, pi__str name)
{
    pi__str n;
    for (size_t i = 0; tools->type == PI__V_LIST && i < tools->list->n; i++) {
        const pi__dict *f = pi__chat_function(tools, i, &n);
        if (f && pi__str_eq(n, name)) return f;
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- choice */

static const pi__val *member(const pi__val *v, const char *key)
{
    return v && v->type == PI__V_MAP ? pi__dict_get_str(v->map, key) : NULL;
}

/* Reads {"type": "function", "function": {"name": "f"}}, or a name directly next to the type. */
static int read_named(const pi__val *v, const pi__val *tools, pi__chat_choice *out, pi_error *err)
{
    const pi__val *type = member(v, "type"), *f = member(v, "function"), *name = member(f ? f : v, "name");
    if (!type || type->type != PI__V_STR || !pi__str_is(type->s, "function") || !name || name->type != PI__V_STR)
        return pi__fail(err, PI_EINVAL, "tool_choice: give \"auto\", \"none\", \"required\" or "
                        "{\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (!pi__chat_find_function(tools, name->s))
        return pi__fail(err, PI_EINVAL, "tool_choice: there is no function '%.*s' among the tools",
                        (int) (name->s.n < 60 ? name->s.n : 60), name->s.p);
    out->kind = PI__CHOICE_REQUIRED;
    out->name = name->s;
    return PI_OK;
}

int pi__chat_choice_read(const pi__dict *options, const pi__val *tools, pi__chat_choice *out, pi_error *err)
{
    const pi__val *v = pi__dict_get_str(options, "tool_choice"), *p = pi__dict_get_str(options, "parallel_tool_calls");
    *out = (pi__chat_choice) {.kind = PI__CHOICE_AUTO, .parallel = true};
    if (p && p->type != PI__V_BOOL && p->type != PI__V_NONE)
        return pi__fail(err, PI_EINVAL, "parallel_tool_calls: must be true or false");
    if (p && p->type == PI__V_BOOL) out->parallel = p->b;
    if (!v || v->type == PI__V_NONE) return PI_OK;
    if (v->type != PI__V_STR) return read_named(v, tools, out, err);
    if (pi__str_is(v->s, "none")) out->kind = PI__CHOICE_NONE;
    else if (pi__str_is(v->s, "required") || pi__str_is(v->s, "any")) out->kind = PI__CHOICE_REQUIRED;
    else if (!pi__str_is(v->s, "auto")) return read_named(v, tools, out, err);
    if (out->kind == PI__CHOICE_REQUIRED && tools->type != PI__V_LIST)
        return pi__fail(err, PI_EINVAL, "tool_choice: a call is required, but there are no tools");
    return PI_OK;
}

int pi__chat_read_tools(pi__zone *z, const char *tools, const char *options, pi__val *t, pi__val *o,
                        pi__chat_choice *choice, pi_error *err)
{
    size_t size = (tools ? strlen(tools) : 0) + (options ? strlen(options) : 0);
    *t = pi__val_none();
    *choice = (pi__chat_choice) {.parallel = true};
    pi__zone_init(z, ((size_t) 1 << 20) + size * 64);
    int rc = pi__val_new_map(z, o) ? PI_OK : no_room(z, err);
    if (!rc && options && *options) rc = pi__json_read(z, options, strlen(options), "chat options", o, err);
    if (!rc && o->type != PI__V_MAP) rc = pi__fail(err, PI_EINVAL, "chat options: must be a JSON object");
    if (!rc && tools && *tools) rc = pi__json_read(z, tools, strlen(tools), "tools", t, err);
    if (!rc) rc = pi__chat_fit_tools(z, t, err);
    return rc ? rc : pi__chat_choice_read(o->map, t, choice, err);
}
