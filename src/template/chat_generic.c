/* Tools for templates that do not place them: describes the functions in the system message, and converts past calls
 * and results to text. If a template places tools but not past calls (LFM2), only the past calls and results become
 * text.
 *
 *     system     # Tools ... {"name": ...} ...
 *     assistant  <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>
 *     user       <tool_response>\n21\n</tool_response>
 *
 * The trees belong to the call, as in chat_messages.c; new values are in the zone. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_form.h"
#include "template/chat_impl.h"

static const char head[] =
    "# Tools\n\nYou may call one or more functions to help with the user's request. These are the functions, one a line:\n";
static const char how[] = "\nTo call a function, write its name and its arguments as a JSON object in this form:\n";
static const char result[] = "\nThe result comes in ", foot[] = " tags. If no function is needed, answer without a call.";

typedef struct generic {
    const pi__chat *c;
    pi__zone *z;
    pi__text out; /* text under construction, with the trust of the zone */
} generic;

/* Appends a tag. It becomes a token if the vocabulary has it, as in the model's own prompts. */
static void put_tag(generic *g, const char *tag)
{
    const pi__str s = pi__zone_trusted_copy(g->z, pi__str_of(tag));
    if (s.p) pi__text_add(&g->out, s.p, s.n);
}

static bool is_role(const pi__dict *m, const char *role)
{
    const pi__val *v = pi__dict_get_str(m, "role");
    return v && v->type == PI__V_STR && pi__str_is(v->s, role);
}

/* Takes the text under construction as a string of the zone. */
static pi__val take(generic *g)
{
    pi__str s = {"", 0};
    if (g->out.code && !g->z->code) g->z->code = g->out.code;
    if (!g->z->code && g->out.n) s = pi__text_copy(&g->out, 0, g->z);
    g->out.n = 0;
    return pi__val_str(s);
}

static void put_json(generic *g, const pi__val *v)
{
    const pi__json_style style = pi__json_plain();
    const char *what;
    pi__text_json(&g->out, v, &style, &what);
}

/* Appends content as text, one part per line. False: it has non-text parts. */
static bool put_content(generic *g, const pi__val *content)
{
    if (!content || content->type == PI__V_NONE) return true;
    if (content->type == PI__V_STR) {
        pi__text_add(&g->out, content->s.p, content->s.n);
        return true;
    }
    if (content->type != PI__V_LIST) {
        put_json(g, content); /* a tool's result may be an object */
        return true;
    }
    for (size_t i = 0; i < content->list->n; i++) {
        const pi__val *part = &content->list->v[i];
        const pi__val *text = part->type == PI__V_MAP ? pi__dict_get_str(part->map, "text") : part;
        if (!text || text->type != PI__V_STR) return false;
        if (i) pi__text_str(&g->out, "\n");
        pi__text_add(&g->out, text->s.p, text->s.n);
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* Returns arguments as an object: a JSON text is parsed, an empty text means no arguments. */
static pi__val arguments_of(generic *g, const pi__val *v)
{
    pi__val read;
    pi_error err;
    if (!v || v->type == PI__V_NONE || (v->type == PI__V_STR && !v->s.n)) {
        pi__val_new_map(g->z, &read);
        return read;
    }
    if (v->type != PI__V_STR || pi__json_read(g->z, v->s.p, v->s.n, "arguments", &read, &err) || read.type != PI__V_MAP)
        return *v;
    return read;
}

static void put_python(generic *g, pi__str name, const pi__val *args)
{
    pi__text_add(&g->out, name.p, name.n);
    pi__text_str(&g->out, "(");
    for (size_t i = 0; args->type == PI__V_MAP && i < args->map->n; i++) {
        if (i) pi__text_str(&g->out, ", ");
        pi__text_value(&g->out, &args->map->e[i].key);
        pi__text_str(&g->out, "=");
        pi__text_repr(&g->out, &args->map->e[i].value, 0);
    }
    pi__text_str(&g->out, ")");
}

static void put_json_call(generic *g, pi__str name, const pi__val *args)
{
    const pi__val v = pi__val_str(name);
    pi__text_str(&g->out, "{\"name\": ");
    put_json(g, &v);
    pi__text_str(&g->out, ", \"arguments\": ");
    put_json(g, args);
    pi__text_str(&g->out, "}");
}

/* Appends {"function": {"name", "arguments"}}. False: it has no name, which chat_messages.c reports. */
static bool put_one(generic *g, const pi__val *call)
{
    const pi__val *f = call->type == PI__V_MAP ? pi__dict_get_str(call->map, "function") : NULL;
    const pi__val *name = f && f->type == PI__V_MAP ? pi__dict_get_str(f->map, "name") : NULL;
    if (!name || name->type != PI__V_STR) return false;
    const pi__val args = arguments_of(g, pi__dict_get_str(f->map, "arguments"));
    if (g->z->code) return true;
    const int kind = g->c->form->kind;
    if (kind == PI__FORM_PYTHON) put_python(g, name->s, &args);
    const bool tags = kind != PI__FORM_PYTHON && kind != PI__FORM_MISTRAL;
    if (tags) put_tag(g, "<tool_call>"), pi__text_str(&g->out, "\n");
    if (kind != PI__FORM_PYTHON) put_json_call(g, name->s, &args);
    if (tags) pi__text_str(&g->out, "\n"), put_tag(g, "</tool_call>");
    return true;
}

/* Appends the message's calls to its content, as a list in the model's own form if that form has lists. The model's
 * tags become tokens. */
static bool convert_calls(generic *g, pi__dict *m)
{
    const pi__val *calls = pi__dict_get_str(m, "tool_calls"), *content = pi__dict_get_str(m, "content");
    const pi__chat_form *f = g->c->form;
    const bool list = f->kind == PI__FORM_PYTHON || f->kind == PI__FORM_MISTRAL;
    if (!calls || calls->type != PI__V_LIST || !calls->list->n || !put_content(g, content)) return true;
    if (g->out.n) pi__text_str(&g->out, "\n");
    pi__str text = take(g).s, open = {"", 0}, close = {"", 0};
    for (size_t i = 0; i < calls->list->n; i++) {
        if (i) pi__text_str(&g->out, list ? ", " : "\n");
        if (!put_one(g, &calls->list->v[i])) {
            g->out.n = 0;
            return true;
        }
    }
    if (list) {
        open = pi__zone_concat(g->z, pi__zone_trusted_copy(g->z, pi__str_of(f->open)), pi__str_of("["));
        close = pi__zone_concat(g->z, pi__str_of("]"), pi__zone_trusted_copy(g->z, pi__str_of(f->close ? f->close : "")));
    }
    text = pi__zone_concat(g->z, text, open);
    text = pi__zone_concat(g->z, text, take(g).s);
    text = pi__zone_concat(g->z, text, close);
    return !g->z->code && pi__dict_set_str(g->z, m, "content", pi__val_str(text)) &&
           pi__dict_remove(g->z, m, pi__val_str(pi__str_of("tool_calls")));
}

/* ---------------------------------------------------------------------------------------------------------- results */

/* Merges consecutive results, and the text of a following user message, into one user message. */
static bool convert_results(generic *g, pi__list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        pi__val m = l->v[i];
        size_t last = i;
        if (m.type != PI__V_MAP || !is_role(m.map, "tool")) {
            l->v[n++] = m;
            continue;
        }
        for (; last < l->n && l->v[last].type == PI__V_MAP && is_role(l->v[last].map, "tool"); last++) {
            if (last > i) pi__text_str(&g->out, "\n");
            put_tag(g, "<tool_response>"), pi__text_str(&g->out, "\n");
            if (!put_content(g, pi__dict_get_str(l->v[last].map, "content"))) break;
            pi__text_str(&g->out, "\n"), put_tag(g, "</tool_response>");
        }
        if (last < l->n && l->v[last].type == PI__V_MAP && is_role(l->v[last].map, "user")) {
            const size_t before = g->out.n;
            pi__text_str(&g->out, "\n\n");
            if (put_content(g, pi__dict_get_str(l->v[last].map, "content"))) last++;
            else g->out.n = before;
        }
        pi__val v;
        if (!pi__val_new_map(g->z, &v) || !pi__dict_set_str(g->z, v.map, "role", pi__val_str(pi__str_of("user"))) ||
            !pi__dict_set_str(g->z, v.map, "content", take(g)))
            return false;
        l->v[n++] = v;
        i = last > i ? last - 1 : i;
    }
    l->n = n;
    return true;
}

/* ------------------------------------------------------------------------------------------------------ description */

/* Returns an example of a call. Tags of the model's own form become tokens. */
static pi__str call_example(generic *g)
{
    static const char name[] = "function-name", args[] = "{\"parameter\": \"value\"}";
    const pi__chat_form *f = g->c->form;
    if (f == &pi__chat_form_generic) {
        put_tag(g, "<tool_call>");
        pi__text_str(&g->out, "\n{\"name\": \"function-name\", \"arguments\": {\"parameter\": \"value\"}}\n");
        put_tag(g, "</tool_call>");
        return take(g).s;
    }
    const char *const part[] = {f->open, f->call, f->prefix, name, f->call_end, args, f->call_close, f->close};
    pi__str s = {"", 0};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (!part[i]) continue;
        const bool ours = part[i] == name || part[i] == args;
        s = pi__zone_concat(g->z, s, ours ? pi__str_of(part[i]) : pi__zone_trusted_copy(g->z, pi__str_of(part[i])));
    }
    return s;
}

/* Appends the description to the system message, which is added if missing. */
static bool describe(generic *g, const pi__val *tools, pi__val *messages)
{
    pi__list *l = messages->list;
    pi__val *first = l->n ? &l->v[0] : NULL, v;
    const bool system = first && first->type == PI__V_MAP && (is_role(first->map, "system") || is_role(first->map, "developer"));
    if (system && !put_content(g, pi__dict_get_str(first->map, "content"))) return true;
    if (g->out.n) pi__text_str(&g->out, "\n\n");
    pi__text_str(&g->out, head);
    for (size_t i = 0; i < tools->list->n; i++) {
        const pi__val *f = tools->list->v[i].type == PI__V_MAP ? pi__dict_get_str(tools->list->v[i].map, "function") : NULL;
        put_json(g, f ? f : &tools->list->v[i]);
        pi__text_str(&g->out, "\n");
    }
    pi__text_str(&g->out, how);
    const pi__str before = take(g).s, example = call_example(g);
    pi__text_str(&g->out, result), put_tag(g, "<tool_response>"), pi__text_str(&g->out, foot);
    const pi__val text = pi__val_str(pi__zone_concat(g->z, pi__zone_concat(g->z, before, example), take(g).s));
    if (g->z->code) return false;
    if (system) return pi__dict_set_str(g->z, first->map, "content", text);
    if (!pi__val_new_map(g->z, &v) || !pi__dict_set_str(g->z, v.map, "role", pi__val_str(pi__str_of("system"))) ||
        !pi__dict_set_str(g->z, v.map, "content", text) || !pi__list_add(g->z, l, pi__val_none()))
        return false;
    memmove(l->v + 1, l->v, (l->n - 1) * sizeof *l->v);
    l->v[0] = v;
    return true;
}

int pi__chat_generic(const pi__chat *c, pi__zone *z, pi__val *tools, pi__val *messages, pi_error *err)
{
    generic g = {.c = c, .z = z, .out = {.limit = z->limit, .work = z->work, .keeps_trust = z->keeps_trust, .zone = z}};
    const bool described = c->describes && tools->type == PI__V_LIST;
    const bool generic_form = described && c->form == &pi__chat_form_generic;
    if (messages->type != PI__V_LIST) return PI_OK; /* chat_messages.c reports this */
    bool ok = true;
    for (size_t i = 0; ok && (generic_form || !c->roles.calls) && i < messages->list->n; i++) {
        const pi__val *m = &messages->list->v[i];
        if (m->type == PI__V_MAP && is_role(m->map, "assistant")) ok = convert_calls(&g, m->map);
    }
    if (ok && (generic_form || !c->roles.results)) ok = convert_results(&g, messages->list);
    if (ok && described) ok = describe(&g, tools, messages);
    if (described) *tools = pi__val_none();
    pi__free(g.out.p);
    if (ok && !z->code) return PI_OK;
    if (z->code == PI_ETOOBIG) return pi__fail(err, PI_ETOOBIG, "the conversation and its tools are too large");
    return z->code && z->code != PI_ENOMEM ? z->code : pi__fail_mem(err, "the conversation");
}
