/* Messages as the API has them, brought into the form that a template takes.
 *
 * The trees were just read from JSON and belong to the call, so they are changed in place; what is new is made in the
 * zone. Errors name the message: "messages[3]: ...". */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_impl.h"

typedef struct fit {
    const pi__chat *c;
    pi__zone *z;
    pi_error *err;
    size_t i; /* the message */
} fit;

static int no_room(const fit *f)
{
    if (pi__work_code(f->z->work)) return pi__work_fail(f->z->work, f->err, "the messages");
    if (f->z->code == PI_ETOOBIG) return pi__fail(f->err, PI_ETOOBIG, "the messages are too large");
    return pi__fail_mem(f->err, "the messages");
}

static int concat(const fit *f, pi__str a, pi__str b, pi__str *out)
{
    *out = pi__zone_concat(f->z, a, b);
    return f->z->code ? no_room(f) : PI_OK;
}

static int set(const fit *f, pi__dict *m, const char *key, pi__val v)
{
    return pi__dict_set_str(f->z, m, key, v) ? PI_OK : no_room(f);
}

/* --------------------------------------------------------------------------------------------------------- content */

/* The text of a part: a string, or an object with type text. */
static int part_text(const fit *f, const pi__val *part, pi__str *out)
{
    const pi__val *type = part->type == PI__V_MAP ? pi__dict_get_str(part->map, "type") : NULL;
    const pi__val *text = part->type == PI__V_MAP ? pi__dict_get_str(part->map, "text") : part;
    bool named = type && type->type == PI__V_STR;
    bool known = !type || (named && (pi__str_is(type->s, "text") || pi__str_is(type->s, "input_text") ||
                                     pi__str_is(type->s, "output_text")));
    if (!known && named)
        return pi__fail(f->err, PI_EUNSUPPORTED, "messages[%zu]: content of type '%.*s' is not supported, only text",
                        f->i, (int) (type->s.n < 40 ? type->s.n : 40), type->s.p);
    if (!known || !text || text->type != PI__V_STR)
        return pi__fail(f->err, PI_EINVAL,
                        "messages[%zu]: a part of content needs \"type\": \"text\" and a \"text\"", f->i);
    *out = text->s;
    return PI_OK;
}

/* The texts of all parts, a line break between them. */
static int join_parts(const fit *f, const pi__list *parts, pi__str *out)
{
    int rc = PI_OK;
    *out = (pi__str) {"", 0};
    for (size_t i = 0; !rc && i < parts->n; i++) {
        pi__str s;
        rc = part_text(f, &parts->v[i], &s);
        if (!rc && i) rc = concat(f, *out, (pi__str) {"\n", 1}, out);
        if (!rc) rc = concat(f, *out, s, out);
    }
    return rc;
}

static int to_parts(const fit *f, pi__str text, pi__val *out)
{
    pi__val part;
    if (!pi__val_new_list(f->z, 1, out) || !pi__val_new_map(f->z, &part)) return no_room(f);
    int rc = set(f, part.map, "type", pi__val_str(pi__str_of("text")));
    if (!rc) rc = set(f, part.map, "text", pi__val_str(text));
    if (!rc && !pi__list_add(f->z, out->list, part)) rc = no_room(f);
    return rc;
}

static int fit_content(const fit *f, pi__dict *m, bool tool)
{
    const pi__val *content = pi__dict_get_str(m, "content");
    pi__str text = {"", 0};
    pi__val v;
    int rc = PI_OK;
    if (content && content->type == PI__V_STR) text = content->s;
    else if (!content || content->type == PI__V_NONE) text = pi__str_of("");
    else if (content->type == PI__V_LIST) rc = join_parts(f, content->list, &text);
    else if (tool) return PI_OK; /* what a tool said may be an object */
    else return pi__fail(f->err, PI_EINVAL, "messages[%zu]: content must be a string or a list of parts", f->i);
    v = pi__val_str(text);
    if (!rc && f->c->typed_content && !tool) rc = to_parts(f, text, &v);
    return rc ? rc : set(f, m, "content", v);
}

/* ----------------------------------------------------------------------------------------------------------- calls */

static int args_to_object(const fit *f, pi__dict *function, pi__str text)
{
    pi__val v;
    pi_error err = {0};
    int rc = pi__json_read(f->z, text.p, text.n, "arguments", &v, &err);
    if (f->z->code) return no_room(f);
    if (rc || v.type != PI__V_MAP) return PI_OK; /* the model wrote no JSON object: shown as it is */
    return set(f, function, "arguments", v);
}

static int args_to_text(const fit *f, pi__dict *function, const pi__val *args)
{
    const pi__json_style style = pi__json_plain();
    const char *what;
    pi__text t = {.limit = f->z->limit - f->z->used};
    pi__str s = {NULL, 0};
    pi__text_json(&t, args, &style, &what); /* it came from JSON */
    if (t.code && !f->z->code) f->z->code = t.code;
    int rc = t.code ? no_room(f) : concat(f, (pi__str) {"", 0}, (pi__str) {t.p, t.n}, &s);
    pi__free(t.p);
    return rc ? rc : set(f, function, "arguments", pi__val_str(s));
}

static int fit_call(const fit *f, const pi__val *call)
{
    pi__val *function = call->type == PI__V_MAP ? pi__dict_get_str(call->map, "function") : NULL;
    pi__val *name = function && function->type == PI__V_MAP ? pi__dict_get_str(function->map, "name") : NULL;
    if (!name || name->type != PI__V_STR)
        return pi__fail(f->err, PI_EINVAL, "messages[%zu]: a tool call needs a \"function\" with a \"name\"", f->i);
    pi__val *args = pi__dict_get_str(function->map, "arguments");
    if (args && args->type == PI__V_STR && f->c->args == PI__ARGS_OBJECT)
        return args_to_object(f, function->map, args->s);
    if (args && args->type == PI__V_MAP && f->c->args == PI__ARGS_TEXT) return args_to_text(f, function->map, args);
    return PI_OK;
}

static int fit_calls(const fit *f, pi__dict *m)
{
    const pi__val *calls = pi__dict_get_str(m, "tool_calls");
    if (!calls) return PI_OK;
    if (calls->type == PI__V_NONE || (calls->type == PI__V_LIST && !calls->list->n))
        return pi__dict_remove(f->z, m, pi__val_str(pi__str_of("tool_calls"))) ? PI_OK : no_room(f);
    if (calls->type != PI__V_LIST)
        return pi__fail(f->err, PI_EINVAL, "messages[%zu]: tool_calls must be a list", f->i);
    int rc = PI_OK;
    for (size_t i = 0; !rc && i < calls->list->n; i++) rc = fit_call(f, &calls->list->v[i]);
    pi__val *content = pi__dict_get_str(m, "content");
    if (f->c->null_calls && content && !pi__val_truth(content)) *content = pi__val_none();
    return rc;
}

/* -------------------------------------------------------------------------------------------------------- messages */

/* Roles are words of the API, not text of a message: templates make control tokens of them ("<|" + role + "|>"). */
static int trust_role(const fit *f, pi__val *role)
{
    static const char *const known[] = {"system", "user", "assistant", "tool", "developer", "function", "model"};
    for (size_t i = 0; f->z->keeps_trust && i < sizeof known / sizeof *known; i++) {
        if (!pi__str_is(role->s, known[i])) continue;
        role->s = pi__zone_trusted_copy(f->z, role->s);
        return f->z->code ? no_room(f) : PI_OK;
    }
    return PI_OK;
}

static int fit_message(const fit *f, const pi__val *v)
{
    pi__val *role = v->type == PI__V_MAP ? pi__dict_get_str(v->map, "role") : NULL;
    if (!role || role->type != PI__V_STR)
        return pi__fail(f->err, PI_EINVAL, "messages[%zu]: must be an object with a \"role\"", f->i);
    if (pi__str_is(role->s, "developer") && !f->c->roles.developer) role->s = pi__str_of("system");
    bool tool = pi__str_is(role->s, "tool");
    int rc = trust_role(f, role);
    if (!rc) rc = fit_content(f, v->map, tool);
    return rc ? rc : fit_calls(f, v->map);
}

static bool has_role(const pi__val *m, const char *role)
{
    return pi__str_is(pi__dict_get_str(m->map, "role")->s, role);
}

/* The text of content that is a string, or parts with one text. */
static pi__val *content_text(const pi__val *m)
{
    pi__val *v = pi__dict_get_str(m->map, "content");
    if (v->type == PI__V_LIST) v = v->list->n ? pi__dict_get_str(v->list->v[0].map, "text") : NULL;
    return v && v->type == PI__V_STR ? v : NULL;
}

/* System messages become the first lines of the user message behind them; a last one without becomes one itself. */
static int merge_system(const fit *f, pi__list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        pi__val m = l->v[i], *text = content_text(&m), *next = i + 1 < l->n ? content_text(&l->v[i + 1]) : NULL;
        if (!has_role(&m, "system") || !text) {
            l->v[n++] = m;
            continue;
        }
        bool joins = next && (has_role(&l->v[i + 1], "user") || has_role(&l->v[i + 1], "system"));
        if (!joins) {
            int rc = set(f, m.map, "role", pi__val_str(pi__str_of("user")));
            if (rc) return rc;
            l->v[n++] = m;
            continue;
        }
        pi__str s;
        int rc = concat(f, text->s, pi__str_of("\n\n"), &s);
        if (!rc) rc = concat(f, s, next->s, &next->s);
        if (rc) return rc;
    }
    l->n = n;
    return PI_OK;
}

int pi__chat_fit_messages(const pi__chat *c, pi__zone *z, pi__val *messages, pi_error *err)
{
    fit f = {c, z, err, 0};
    if (messages->type != PI__V_LIST) return pi__fail(err, PI_EINVAL, "messages must be a list");
    if (!messages->list->n) return pi__fail(err, PI_EINVAL, "messages is empty");
    int rc = PI_OK;
    for (; !rc && f.i < messages->list->n; f.i++) rc = fit_message(&f, &messages->list->v[f.i]);
    return rc || c->roles.system ? rc : merge_system(&f, messages->list);
}

int pi__chat_mark_end(pi__zone *z, pi__val *messages, const char *mark, pi_error *err)
{
    fit f = {NULL, z, err, messages->list->n - 1};
    pi__val *m = &messages->list->v[f.i], *content = pi__dict_get_str(m->map, "content");
    pi__val *text = content ? content_text(m) : NULL;
    if (content && content->type == PI__V_NONE) {
        *content = pi__val_str(pi__str_of(""));
        text = content;
    }
    if (!has_role(m, "assistant") || pi__dict_get_str(m->map, "tool_calls") || !text)
        return pi__fail(err, PI_EINVAL, "continue_final_message: the last message must be the assistant's, with text and no calls");
    return concat(&f, text->s, pi__str_of(mark), &text->s);
}
