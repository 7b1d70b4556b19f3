/* Converts past tool calls and their results to the template's conventions (see chat_messages.c).
 *
 * Arguments become an object or a text, whichever the template writes as JSON. Ids pair calls with results: clients
 * omit them, and some templates reject long ids or take the function's name from them. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_impl.h"

bool pi__chat_json(pi__zone *z, const pi__val *v, const pi__json_style *style, pi__str *out)
{
    const char *what;
    pi__text t = {.limit = z->limit - z->used, .work = z->work};
    pi__text_json(&t, v, style, &what); /* v came from JSON, so it has no other types */
    if (t.code && !z->code) z->code = t.code;
    *out = z->code ? (pi__str) {NULL, 0} : pi__zone_concat(z, (pi__str) {"", 0}, (pi__str) {t.p, t.n});
    pi__free(t.p);
    return !z->code;
}

/* -------------------------------------------------------------------------------------------------------- arguments */

static bool is_blank(pi__str s)
{
    while (s.n && strchr(" \t\r\n", s.p[s.n - 1]) && s.p[s.n - 1]) s.n--;
    return !s.n;
}

/* Converts arguments to an object. *args stays a text if it is not a JSON object and the template copies it. */
static int to_object(const pi__chat *c, pi__zone *z, pi__val *args, pi__str name, size_t i, pi_error *err)
{
    pi__val v;
    pi_error why = {0};
    int rc = pi__json_read(z, args->s.p, args->s.n, "arguments", &v, &why);
    if (z->code) return pi__zone_fail(z, err, "the messages");
    if (!rc && v.type == PI__V_MAP) *args = v;
    else if (!c->args_any)
        return pi__fail(err, PI_EINVAL, "messages[%zu]: the arguments of the call of '%.*s' must be a JSON object", i,
                        (int) (name.n < 60 ? name.n : 60), name.p);
    return PI_OK;
}

static int fit_call(const pi__chat *c, pi__zone *z, const pi__val *call, size_t i, pi_error *err)
{
    pi__val *function = call->type == PI__V_MAP ? pi__dict_get_str(call->map, "function") : NULL;
    pi__val *name = function && function->type == PI__V_MAP ? pi__dict_get_str(function->map, "name") : NULL;
    if (!name || name->type != PI__V_STR)
        return pi__fail(err, PI_EINVAL, "messages[%zu]: a tool call needs a \"function\" with a \"name\"", i);
    const pi__str called = name->s;
    pi__val *given = pi__dict_get_str(function->map, "arguments"), args = given ? *given : pi__val_none();
    const pi__json_style plain = pi__json_plain();
    const bool text = args.type == PI__V_STR, object = args.type == PI__V_MAP;
    int rc = PI_OK;
    if (args.type == PI__V_NONE || (text && is_blank(args.s))) {
        if (c->args == PI__ARGS_TEXT) args = pi__val_str(pi__str_of("{}"));
        else if (!pi__val_new_map(z, &args)) rc = pi__zone_fail(z, err, "the messages");
    } else if (!text && !object) {
        return pi__fail(err, PI_EINVAL, "messages[%zu]: the arguments of the call of '%.*s' must be a JSON object, "
                        "or its text", i, (int) (called.n < 60 ? called.n : 60), called.p);
    } else if (text && c->args == PI__ARGS_OBJECT) {
        rc = to_object(c, z, &args, called, i, err);
    } else if (object && c->args == PI__ARGS_TEXT) {
        if (!pi__chat_json(z, &args, &plain, &args.s)) rc = pi__zone_fail(z, err, "the messages");
        args.type = PI__V_STR;
    }
    if (!rc && !pi__dict_set_str(z, function->map, "arguments", args)) rc = pi__zone_fail(z, err, "the messages");
    return rc;
}

int pi__chat_fit_calls(const pi__chat *c, pi__zone *z, pi__dict *m, size_t i, pi_error *err)
{
    const pi__val *calls = pi__dict_get_str(m, "tool_calls");
    if (!calls) return PI_OK;
    if (calls->type == PI__V_NONE || (calls->type == PI__V_LIST && !calls->list->n))
        return pi__dict_remove(z, m, pi__val_str(pi__str_of("tool_calls"))) ? PI_OK
                                                                            : pi__zone_fail(z, err, "the messages");
    if (calls->type != PI__V_LIST) return pi__fail(err, PI_EINVAL, "messages[%zu]: tool_calls must be a list", i);
    int rc = PI_OK;
    for (size_t k = 0; !rc && k < calls->list->n; k++) rc = fit_call(c, z, &calls->list->v[k], i, err);
    return rc;
}

/* -------------------------------------------------------------------------------------------------------------- ids */

typedef struct ids {
    const pi__chat *c;
    pi__zone *z;
    pi__dict *calls;   /* id given by the client -> the latest call with that id */
    pi__list *open;    /* calls of the last message with calls; NULL = no message had calls yet */
    size_t n_answered; /* entries of `open` that were paired with a result without an id */
    size_t n_calls;    /* number of calls so far */
} ids;

static const pi__val *text_of(const pi__val *m, const char *key)
{
    const pi__val *v = pi__dict_get_str(m->map, key);
    return v && v->type == PI__V_STR && v->s.n ? v : NULL;
}

static bool is_short(pi__str id)
{
    size_t i = 0;
    while (i < id.n && ((id.p[i] >= '0' && id.p[i] <= '9') || ((id.p[i] | 32) >= 'a' && (id.p[i] | 32) <= 'z'))) i++;
    return i == id.n && id.n == 9;
}

/* Chooses an id that the template accepts, given the client's (or NULL). False: z->code is set. */
static bool choose_id(ids *s, const pi__val *given, pi__str name, pi__str *out)
{
    char text[32];
    const bool has_name = given && memmem(given->s.p, given->s.n, name.p, name.n);
    if (given && (!s->c->short_ids || is_short(given->s)) && (!s->c->named_ids || has_name)) {
        *out = given->s;
        return true;
    }
    if (!s->c->named_ids) {
        snprintf(text, sizeof text, "call%05zu", s->n_calls % 100000);
        *out = pi__zone_concat(s->z, (pi__str) {"", 0}, pi__str_of(text));
        return !s->z->code;
    }
    snprintf(text, sizeof text, ":%zu", s->n_calls - 1);
    *out = pi__zone_concat(s->z, pi__str_of("functions."), name);
    if (!s->z->code) *out = pi__zone_concat(s->z, *out, pi__str_of(text));
    return !s->z->code;
}

static bool fit_call_id(ids *s, const pi__val *call)
{
    const pi__val *given = text_of(call, "id"), *f = pi__dict_get_str(call->map, "function");
    const pi__val function = pi__val_str(pi__str_of("function"));
    pi__str id;
    s->n_calls++;
    return (!given || pi__dict_set(s->z, s->calls, *given, *call)) &&
           choose_id(s, given, pi__dict_get_str(f->map, "name")->s, &id) &&
           pi__dict_set_str(s->z, call->map, "id", pi__val_str(id)) &&
           (pi__dict_get_str(call->map, "type") || pi__dict_set_str(s->z, call->map, "type", function));
}

/* Pairs a result with the call of its id; without an id, with the next call of the last message with calls. */
static bool fit_result_id(ids *s, const pi__val *m)
{
    const pi__val *given = text_of(m, "tool_call_id"), *call = given ? pi__dict_get(s->calls, *given) : NULL;
    if (!given && s->open && s->n_answered < s->open->n) call = &s->open->v[s->n_answered++];
    if (!call) {
        pi__str id;
        return !given || !s->c->short_ids || (choose_id(s, given, (pi__str) {"", 0}, &id) &&
                                              pi__dict_set_str(s->z, m->map, "tool_call_id", pi__val_str(id)));
    }
    const pi__val *f = pi__dict_get_str(call->map, "function");
    return pi__dict_set_str(s->z, m->map, "tool_call_id", *pi__dict_get_str(call->map, "id")) &&
           (text_of(m, "name") || pi__dict_set_str(s->z, m->map, "name", *pi__dict_get_str(f->map, "name")));
}

int pi__chat_fit_ids(const pi__chat *c, pi__zone *z, pi__list *messages, pi_error *err)
{
    pi__val calls;
    if (!pi__val_new_map(z, &calls)) return pi__zone_fail(z, err, "the messages");
    ids s = {.c = c, .z = z, .calls = calls.map};
    bool ok = true;
    for (size_t i = 0; ok && i < messages->n; i++) {
        const pi__val *m = &messages->v[i], *list = pi__dict_get_str(m->map, "tool_calls");
        if (list) {
            s.open = list->list;
            s.n_answered = 0;
        }
        for (size_t k = 0; list && ok && k < list->list->n; k++) ok = fit_call_id(&s, &list->list->v[k]);
        if (ok && pi__chat_has_role(m, "tool")) ok = fit_result_id(&s, m);
    }
    return ok ? PI_OK : pi__zone_fail(z, err, "the messages");
}
