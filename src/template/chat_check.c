/* Checks that a template places every message of a conversation, so that no text is dropped silently.
 *
 * Probed roles do not prove this, because a template may test anything. So each conversation is rendered again with
 * marks (chat_impl.h) in place of its texts and arguments, and each mark must be in the output. Marks keep the shape
 * of the text: no mark if it is blank, an object or a list if it looks like one in JSON. A template may still drop
 * text because of its words (reasoning of earlier turns): that is its decision. Memory: a zone and a text, freed
 * here. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_impl.h"

enum { MEMORY_PER_MESSAGE = 16 << 10, OUTPUT_MIN = 1 << 20, OUTPUT_PER_MESSAGE = 4 << 10 };

/* ------------------------------------------------------------------------------------------------------------ marks */

/* Finds the next mark from *at on and moves *at past it. False if there is none. */
static bool next_mark(const pi__text *t, size_t *at, size_t *number)
{
    const char *end = t->p + t->n, *p = t->n ? memmem(t->p + *at, t->n - *at, "mQ", 2) : NULL;
    for (; p; p = memmem(p, (size_t) (end - p), "mQ", 2)) {
        size_t n = 0, digits = 0;
        for (p += 2; p < end && *p >= '0' && *p <= '9' && digits < 9; p++, digits++) n = n * 10 + (size_t) (*p - '0');
        if (!digits || end - p < 2 || memcmp(p, "Qm", 2)) continue;
        *at = (size_t) (p + 2 - t->p);
        *number = n;
        return true;
    }
    return false;
}

bool pi__chat_marks_placed(const pi__text *t, size_t n, const bool *loose, bool *seen, size_t *lost)
{
    size_t i, at = 0, last = 0;
    bool ordered = true;
    while (next_mark(t, &at, &i)) {
        if (i >= n || seen[i]) continue;
        seen[i] = true;
        if (!loose || loose[i]) continue;
        ordered = ordered && i >= last;
        last = i;
    }
    for (*lost = 0; *lost < n && seen[*lost];) ++*lost;
    return *lost == n && ordered;
}

/* ----------------------------------------------------------------------------------------------------- conversation */

enum { CALL = 1 }; /* lowest bit of where[]: the mark replaces a call's arguments */

typedef struct check {
    const pi__chat *c;
    pi__zone z;
    size_t *where; /* [n] 2 * message index + CALL */
    size_t n, cap; /* number of marks */
} check;

/* Creates a text with the next mark in it. */
static bool mark(check *k, size_t where, const char *before, const char *behind, pi__val *out)
{
    char text[64];
    if (k->n == k->cap) {
        size_t *more = pi__zone_take(&k->z, 2 * k->cap * sizeof *more);
        if (!more) return false;
        memcpy(more, k->where, k->n * sizeof *more);
        k->where = more;
        k->cap *= 2;
    }
    k->where[k->n] = where;
    snprintf(text, sizeof text, "%s" PI__MARK "%s", before, k->n++, behind);
    pi__str s = pi__zone_concat(&k->z, (pi__str) {"", 0}, pi__str_of(text));
    *out = pi__val_str(s);
    return s.p;
}

/* Creates a mark in place of a text: blank, JSON or other. */
static bool mark_text(check *k, size_t where, pi__str s, pi__val *out)
{
    while (s.n && strchr(" \n\r\t", s.p[s.n - 1])) s.n--;
    while (s.n && strchr(" \n\r\t", *s.p)) s.p++, s.n--;
    if (!s.n) return true;
    if (*s.p == '{' && s.p[s.n - 1] == '}') return mark(k, where, "{\"k\": \"", "\"}", out);
    if (*s.p == '[' && s.p[s.n - 1] == ']') return mark(k, where, "[\"", "\"]", out);
    return mark(k, where, "", "", out);
}

static bool mark_object(check *k, size_t where, pi__val *out)
{
    pi__val v;
    return mark(k, where, "", "", &v) && pi__val_new_map(&k->z, out) && pi__dict_set_str(&k->z, out->map, "k", v);
}

/* Replaces the texts in v, a message's content or a call's arguments. Values without text are kept. */
static bool mark_value(check *k, size_t where, const pi__val *v, pi__val *out)
{
    pi__val part, text;
    *out = *v;
    if (v->type == PI__V_STR) return mark_text(k, where, v->s, out);
    if (v->type == PI__V_MAP) return mark_object(k, where, out);
    if (v->type != PI__V_LIST || !v->list->n) return true;
    const pi__val *own = pi__dict_get_str(v->list->v[0].map, "text"); /* created by to_parts */
    text = *own;
    return mark_text(k, where, own->s, &text) && pi__val_new_map(&k->z, &part) &&
           pi__dict_set_str(&k->z, part.map, "type", pi__val_str(pi__str_of("text"))) &&
           pi__dict_set_str(&k->z, part.map, "text", text) && pi__val_new_list(&k->z, 1, out) &&
           pi__list_add(&k->z, out->list, part);
}

static bool copy_with(check *k, const pi__val *m, const char *key, pi__val v, pi__val *out)
{
    bool ok = pi__val_new_map(&k->z, out);
    for (size_t i = 0; ok && i < m->map->n; i++)
        ok = pi__dict_set(&k->z, out->map, m->map->e[i].key, m->map->e[i].value);
    return ok && pi__dict_set_str(&k->z, out->map, key, v);
}

static bool mark_calls(check *k, size_t i, const pi__val *calls, pi__val *out)
{
    bool ok = pi__val_new_list(&k->z, calls->list->n, out);
    for (size_t j = 0; ok && j < calls->list->n; j++) {
        const pi__val *call = &calls->list->v[j], *f = pi__dict_get_str(call->map, "function");
        pi__val args, function, one;
        ok = mark_value(k, 2 * i + CALL, pi__dict_get_str(f->map, "arguments"), &args) &&
             copy_with(k, f, "arguments", args, &function) && copy_with(k, call, "function", function, &one) &&
             pi__list_add(&k->z, out->list, one);
    }
    return ok;
}

static bool mark_message(check *k, size_t i, const pi__val *m, pi__val *out)
{
    pi__val content, calls, *own = pi__dict_get_str(m->map, "tool_calls");
    return mark_value(k, 2 * i, pi__dict_get_str(m->map, "content"), &content) &&
           copy_with(k, m, "content", content, out) &&
           (!own || (mark_calls(k, i, own, &calls) && pi__dict_set_str(&k->z, out->map, "tool_calls", calls)));
}

static const char tool[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"f\", "
                           "\"parameters\": {\"type\": \"object\", \"properties\": {\"k\": {\"type\": \"string\", "
                           "\"description\": \"k\"}}, \"required\": [\"k\"]}}}]";

static int render(check *k, const char *options, bool goes_on, bool tools, pi__val messages, const pi__jinja_env *env,
                  pi__text *out, pi_error *err)
{
    pi__val vars, t = pi__val_none();
    int rc = pi__chat_vars(k->c, &k->z, options, &vars, err);
    if (!rc && goes_on && !pi__dict_set_str(&k->z, vars.map, "add_generation_prompt", pi__val_bool(false)))
        rc = pi__zone_fail(&k->z, err, "the conversation");
    if (!rc && tools) rc = pi__json_read(&k->z, tool, sizeof tool - 1, "tools", &t, err);
    return rc ? rc : pi__chat_render_values(k->c, &k->z, vars.map, messages, t, env, out, err);
}

int pi__chat_check(const pi__chat *c, const pi__list *messages, const pi__list *origin, const char *options,
                   bool goes_on, bool tools, const pi__jinja_env *env, size_t limit, pi__work *work, pi_error *err)
{
    check k = {.c = c, .cap = 2 * messages->n + 16};
    pi__text out = {.limit = OUTPUT_MIN + messages->n * OUTPUT_PER_MESSAGE};
    pi__val list;
    pi__zone_init(&k.z, limit + messages->n * MEMORY_PER_MESSAGE);
    k.z.work = out.work = work;
    k.where = pi__zone_take(&k.z, k.cap * sizeof *k.where);
    bool ok = k.where && pi__val_new_list(&k.z, messages->n, &list), *seen;
    for (size_t i = 0; ok && i < messages->n; i++) {
        pi__val m;
        ok = mark_message(&k, i, &messages->v[i], &m) && pi__list_add(&k.z, list.list, m);
    }
    ok = ok && (seen = pi__zone_take(&k.z, k.n + 1));
    int rc = ok ? render(&k, options, goes_on, tools, list, env, &out, err)
                : pi__zone_fail(&k.z, err, "the conversation");
    size_t lost;
    if (!rc && !pi__chat_marks_placed(&out, k.n, NULL, seen, &lost)) {
        const size_t at = k.where[lost] / 2;
        const pi__str role = pi__dict_get_str(messages->v[at].map, "role")->s;
        rc = pi__fail(err, PI_EUNSUPPORTED,
                      "messages[%d]: the model's chat template does not show the %s of a message with the role '%.*s'; "
                      "send it in another role", (int) origin->v[at].i, k.where[lost] % 2 ? "tool calls" : "text",
                      (int) (role.n < 20 ? role.n : 20), role.p);
    }
    pi__zone_free(&k.z);
    pi__free(out.p);
    return rc;
}
