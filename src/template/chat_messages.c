/* Converts messages in the API's format to the template's conventions.
 *
 * The trees were just parsed from JSON and belong to the call, so they are changed in place; new values are in the
 * zone. Errors name the message: "messages[3]: ...". */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_impl.h"

typedef struct fit {
    const pi__chat *c;
    pi__zone *z;
    pi_error *err;
    size_t i; /* index of the message */
    size_t *n_images; /* images so far, in all messages */
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

/* Gets the text of a part: a string, or an object with type text. */
static int part_text(const fit *f, const pi__val *part, pi__str *out)
{
    const pi__val *type = part->type == PI__V_MAP ? pi__dict_get_str(part->map, "type") : NULL;
    bool named = type && type->type == PI__V_STR, refusal = named && pi__str_is(type->s, "refusal");
    const pi__val *text = part->type == PI__V_MAP ? pi__dict_get_str(part->map, refusal ? "refusal" : "text") : part;
    bool known = !type || (named && (refusal || pi__str_is(type->s, "text") || pi__str_is(type->s, "input_text") ||
                                     pi__str_is(type->s, "output_text")));
    if (!known && named)
        return pi__fail(f->err, PI_EUNSUPPORTED,
                        "messages[%zu]: content of type '%.*s' is not supported, only text and image",
                        f->i, (int) (type->s.n < 40 ? type->s.n : 40), type->s.p);
    if (!known || !text || text->type != PI__V_STR)
        return pi__fail(f->err, PI_EINVAL,
                        "messages[%zu]: a part of content needs \"type\": \"text\" and a \"text\"", f->i);
    *out = text->s;
    return PI_OK;
}

static bool is_image(const pi__val *part)
{
    const pi__val *type = part->type == PI__V_MAP ? pi__dict_get_str(part->map, "type") : NULL;
    return type && type->type == PI__V_STR && pi__str_is(type->s, "image");
}

/* Joins all parts: texts with line breaks between them, and images as tags. */
static int join_parts(const fit *f, const pi__list *parts, pi__str *out)
{
    int rc = PI_OK;
    bool after_text = false;
    *out = (pi__str) {"", 0};
    for (size_t i = 0; !rc && i < parts->n; i++) {
        const bool image = is_image(&parts->v[i]);
        pi__str s;
        if (!image) rc = part_text(f, &parts->v[i], &s);
        else if (!pi__chat_image_tag(f->z, (*f->n_images)++, &s)) rc = no_room(f);
        if (!rc && after_text && !image) rc = concat(f, *out, (pi__str) {"\n", 1}, out);
        if (!rc) rc = concat(f, *out, s, out);
        after_text = !image;
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

/* Converts a tool's non-text result: to JSON text, or keeps an object if the template writes objects as JSON. */
static int tool_content(const fit *f, const pi__val *v, pi__val *out)
{
    const pi__json_style plain = pi__json_plain();
    pi__str s;
    *out = *v;
    if (v->type == PI__V_MAP && f->c->result_objects) return PI_OK;
    if (!pi__chat_json(f->z, v, &plain, &s)) return no_room(f);
    *out = pi__val_str(s);
    return PI_OK;
}

static bool is_parts(const pi__list *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].type != PI__V_MAP || !pi__dict_get_str(l->v[i].map, "type")) return false;
    return true;
}

static int fit_content(const fit *f, pi__dict *m, bool tool)
{
    const pi__val *content = pi__dict_get_str(m, "content"), *refusal = pi__dict_get_str(m, "refusal");
    const bool missing = !content || content->type == PI__V_NONE;
    pi__str text = {"", 0};
    pi__val v;
    int rc = PI_OK;
    if (missing && refusal && refusal->type == PI__V_STR) text = refusal->s;
    else if (missing) text = pi__str_of("");
    else if (content->type == PI__V_STR) text = content->s;
    else if (content->type == PI__V_LIST && (!tool || is_parts(content->list)))
        rc = join_parts(f, content->list, &text);
    else if (tool) return (rc = tool_content(f, content, &v)) ? rc : set(f, m, "content", v);
    else return pi__fail(f->err, PI_EINVAL, "messages[%zu]: content must be a string or a list of parts", f->i);
    v = pi__val_str(text);
    if (!rc && f->c->typed_content && !tool) rc = to_parts(f, text, &v);
    return rc ? rc : set(f, m, "content", v);
}

/* -------------------------------------------------------------------------------------------------------- messages */

/* Marks API roles as trusted: templates build control tokens from them ("<|" + role + "|>"). Other roles stay
 * untrusted. */
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

/* Converts older names of OpenAI's API: the role function, and an assistant's single function_call. */
static int fit_legacy(const fit *f, pi__dict *m, pi__val *role)
{
    pi__val *one = pi__dict_get_str(m, "function_call"), list, call;
    if (pi__str_is(role->s, "function")) role->s = pi__str_of("tool");
    if (!one || one->type != PI__V_MAP || pi__dict_get_str(m, "tool_calls")) return PI_OK;
    if (!pi__val_new_list(f->z, 1, &list) || !pi__val_new_map(f->z, &call)) return no_room(f);
    int rc = set(f, call.map, "type", pi__val_str(pi__str_of("function")));
    if (!rc) rc = set(f, call.map, "function", *one);
    if (!rc && !pi__list_add(f->z, list.list, call)) rc = no_room(f);
    if (!rc) rc = set(f, m, "tool_calls", list);
    return rc || pi__dict_remove(f->z, m, pi__val_str(pi__str_of("function_call"))) ? rc : no_room(f);
}

static int fit_message(const fit *f, const pi__val *v)
{
    pi__val *role = v->type == PI__V_MAP ? pi__dict_get_str(v->map, "role") : NULL;
    if (!role || role->type != PI__V_STR)
        return pi__fail(f->err, PI_EINVAL, "messages[%zu]: must be an object with a \"role\"", f->i);
    int rc = fit_legacy(f, v->map, role);
    role = pi__dict_get_str(v->map, "role");
    if (!rc) rc = trust_role(f, role);
    if (!rc) rc = fit_content(f, v->map, pi__str_is(role->s, "tool"));
    return rc ? rc : pi__chat_fit_calls(f->c, f->z, v->map, f->i, f->err);
}

pi__val *pi__chat_content_text(const pi__val *m)
{
    pi__val *v = pi__dict_get_str(m->map, "content");
    if (v->type == PI__V_LIST) v = v->list->n ? pi__dict_get_str(v->list->v[0].map, "text") : NULL;
    return v && v->type == PI__V_STR ? v : NULL;
}

int pi__chat_fit_messages(const pi__chat *c, pi__zone *z, pi__val *messages, size_t *n_images, pi_error *err)
{
    fit f = {c, z, err, 0, n_images};
    if (messages->type != PI__V_LIST) return pi__fail(err, PI_EINVAL, "messages must be a list");
    if (!messages->list->n) return pi__fail(err, PI_EINVAL, "messages is empty");
    int rc = PI_OK;
    for (; !rc && f.i < messages->list->n; f.i++) rc = fit_message(&f, &messages->list->v[f.i]);
    return rc ? rc : pi__chat_fit_ids(c, z, messages->list, err);
}

int pi__chat_mark_end(pi__zone *z, pi__val *messages, const char *mark, pi_error *err)
{
    fit f = {NULL, z, err, messages->list->n - 1, NULL};
    pi__val *m = &messages->list->v[f.i], *content = pi__dict_get_str(m->map, "content");
    pi__val *text = content ? pi__chat_content_text(m) : NULL;
    if (content && content->type == PI__V_NONE) {
        *content = pi__val_str(pi__str_of(""));
        text = content;
    }
    if (!pi__chat_has_role(m, "assistant") || pi__dict_get_str(m->map, "tool_calls") || !text)
        return pi__fail(err, PI_EINVAL,
                        "continue_final_message: the last message must be the assistant's, with text and no calls");
    return concat(&f, text->s, pi__str_of(mark), &text->s);
}
