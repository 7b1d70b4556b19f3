/* Merges, converts and splits messages so that the template places each of them (chat_roles.h lists its abilities).
 *
 *     INSTRUCTIONS:  [system S][developer D][user U]   ->  [system S\n\nD][user U];    leading ones are merged
 *                    [user U][system S][user V]        ->  [user U][user S\n\nV];      later ones become user text
 *     CALLS:         [assistant A + calls c, d][results]  ->  [assistant A][call c][result][call d][result]
 *     TURNS:         [user U][user V][assistant A][assistant B]  ->  [user U\n\nV][assistant A\n\nB]
 *     USER:          [system S]  ->  [system S][user ""]
 *
 * Each pass reads one list, writes another, and keeps for each message the index of its origin. Texts are joined with
 * an empty line. The trees belong to the call, as in chat_messages.c. */
#include <string.h>

#include "base/error.h"
#include "template/chat_impl.h"

typedef struct place {
    const pi__chat *c;
    const pi__chat_roles *r;
    pi__zone *z;
    pi__list *in, *out;           /* messages */
    pi__list *in_from, *out_from; /* indices of their origins */
    pi__val pending;              /* instructions to prepend to the next user message; UNDEFINED = none */
    pi__val pending_from;
} place;

static bool put(place *p, pi__val m, pi__val from)
{
    return pi__list_add(p->z, p->out, m) && pi__list_add(p->z, p->out_from, from);
}

static pi__val *last(const place *p) { return p->out->n ? &p->out->v[p->out->n - 1] : NULL; }

static bool is_instruction(const pi__val *m)
{
    return pi__chat_has_role(m, "system") || pi__chat_has_role(m, "developer");
}

static const pi__val *calls_of(const pi__val *m) { return m ? pi__dict_get_str(m->map, "tool_calls") : NULL; }
static bool is_plain_answer(const pi__val *m) { return m && pi__chat_has_role(m, "assistant") && !calls_of(m); }

static bool set_role(place *p, const pi__val *m, const char *role)
{
    pi__str s = pi__zone_trusted_copy(p->z, pi__str_of(role));
    return !p->z->code && pi__dict_set_str(p->z, m->map, "role", pi__val_str(s));
}

/* Appends the text of b to that of a. False: one of them is not text, or z->code is set. */
static bool join(place *p, const pi__val *a, const pi__val *b)
{
    pi__val *to = pi__chat_content_text(a), *from = pi__chat_content_text(b);
    if (!to || !from) return false;
    if (!to->s.n) {
        *to = *from;
        return true;
    }
    if (!from->s.n) return true;
    pi__str s = pi__zone_concat(p->z, to->s, pi__str_of("\n\n"));
    if (!p->z->code) s = pi__zone_concat(p->z, s, from->s);
    if (!p->z->code) to->s = s;
    return !p->z->code;
}

/* Creates content with this text in the template's form. */
static bool text_content(place *p, pi__str text, pi__val *out)
{
    pi__val part;
    *out = pi__val_str(text);
    if (!p->c->typed_content) return true;
    return pi__val_new_map(p->z, &part) && pi__dict_set_str(p->z, part.map, "type", pi__val_str(pi__str_of("text"))) &&
           pi__dict_set_str(p->z, part.map, "text", *out) && pi__val_new_list(p->z, 1, out) &&
           pi__list_add(p->z, out->list, part);
}

static bool empty_content(place *p, pi__val *out) { return text_content(p, pi__str_of(""), out); }

static bool put_empty(place *p, const char *role, pi__val from)
{
    pi__val m, content;
    return pi__val_new_map(p->z, &m) && set_role(p, &m, role) && empty_content(p, &content) &&
           pi__dict_set_str(p->z, m.map, "content", content) && put(p, m, from);
}

/* ----------------------------------------------------------------------------------------------------- instructions */

/* Appends pending instructions to the previous user message, or makes them a user message. */
static bool flush(place *p)
{
    if (p->pending.type == PI__V_UNDEFINED) return true;
    pi__val m = p->pending;
    p->pending = pi__val_undefined((pi__str) {NULL, 0});
    pi__val *before = last(p);
    if (before && pi__chat_has_role(before, "user") && join(p, before, &m)) return true;
    return !p->z->code && set_role(p, &m, "user") && put(p, m, p->pending_from);
}

/* Keeps instructions that the template does not place for the next user message. */
static bool defer(place *p, pi__val m, pi__val from)
{
    if (p->pending.type != PI__V_UNDEFINED && join(p, &p->pending, &m)) return true;
    if (p->z->code || !flush(p)) return false;
    p->pending = m;
    p->pending_from = from;
    return true;
}

static bool instruction(place *p, pi__val m, pi__val from, bool leading)
{
    const pi__chat_roles *r = p->r;
    const bool developer = pi__chat_has_role(&m, "developer"), first = !p->out->n;
    if (developer && !(first ? r->developer : r->later_developer) && !set_role(p, &m, "system")) return false;
    const bool kept = pi__chat_has_role(&m, "developer") || (leading ? r->system : r->later_system);
    if (!kept) return defer(p, m, from);
    if (leading && !r->leading && last(p) && join(p, last(p), &m)) return true;
    return !p->z->code && put(p, m, from);
}

/* Makes a result without its call the user's text. */
static bool lone_result(place *p, const pi__val *m)
{
    const pi__val *text = pi__chat_content_text(m);
    pi__val content;
    return !text || (set_role(p, m, "user") && text_content(p, text->s, &content) &&
                     pi__dict_set_str(p->z, m->map, "content", content));
}

static bool pass_instructions(place *p)
{
    bool leading = true, called = false, ok = true;
    p->pending = pi__val_undefined((pi__str) {NULL, 0});
    for (size_t i = 0; ok && i < p->in->n; i++) {
        pi__val m = p->in->v[i], from = p->in_from->v[i];
        if (is_instruction(&m)) {
            ok = instruction(p, m, from, leading);
            continue;
        }
        leading = false;
        called = calls_of(&m) || (called && pi__chat_has_role(&m, "tool"));
        if (!called && !p->r->lone_results && pi__chat_has_role(&m, "tool") && !lone_result(p, &m)) return false;
        if (p->pending.type != PI__V_UNDEFINED && pi__chat_has_role(&m, "user") && join(p, &p->pending, &m)) {
            *pi__dict_get_str(m.map, "content") = *pi__dict_get_str(p->pending.map, "content");
            p->pending = pi__val_undefined((pi__str) {NULL, 0});
        }
        ok = !p->z->code && flush(p) && put(p, m, from);
    }
    return ok && flush(p);
}

/* ------------------------------------------------------------------------------------------------------------ calls */

static bool copy_map(place *p, const pi__val *m, pi__val *out)
{
    bool ok = pi__val_new_map(p->z, out);
    for (size_t i = 0; ok && i < m->map->n; i++)
        ok = pi__dict_set(p->z, out->map, m->map->e[i].key, m->map->e[i].value);
    return ok;
}

/* Moves the text of m to a separate message before its calls. */
static bool split_text(place *p, pi__val m, pi__val from)
{
    pi__val first, empty;
    const pi__val *text = pi__chat_content_text(&m);
    if (!text || !text->s.n) return true;
    return copy_map(p, &m, &first) && pi__dict_remove(p->z, first.map, pi__val_str(pi__str_of("tool_calls"))) &&
           empty_content(p, &empty) && pi__dict_set_str(p->z, m.map, "content", empty) && put(p, first, from);
}

/* Writes call k of m as a message; the first one keeps the text. */
static bool put_one_call(place *p, const pi__val *m, size_t k, pi__val from)
{
    pi__val one, list, empty;
    return copy_map(p, m, &one) && pi__val_new_list(p->z, 1, &list) &&
           pi__list_add(p->z, list.list, calls_of(m)->list->v[k]) &&
           pi__dict_set_str(p->z, one.map, "tool_calls", list) &&
           (!k || (empty_content(p, &empty) && pi__dict_set_str(p->z, one.map, "content", empty))) && put(p, one, from);
}

static pi__val id_of(const pi__val *m, const char *key)
{
    const pi__val *v = pi__dict_get_str(m->map, key);
    return v && v->type == PI__V_STR ? *v : pi__val_none();
}

/* Writes the calls of message *i one by one, each followed by its result. *i becomes the last message consumed. */
static bool split_calls(place *p, size_t *i)
{
    const size_t at = *i;
    const pi__val m = p->in->v[at], *calls = calls_of(&m);
    pi__val results, *found;
    size_t end = at + 1;
    while (end < p->in->n && pi__chat_has_role(&p->in->v[end], "tool")) end++;
    bool *used = pi__zone_take(p->z, end - at), ok = used && pi__val_new_map(p->z, &results);
    for (size_t k = end; ok && --k > at;)
        ok = pi__dict_set(p->z, results.map, id_of(&p->in->v[k], "tool_call_id"), pi__val_int((int64_t) k));
    for (size_t k = 0; ok && k < calls->list->n; k++) {
        ok = put_one_call(p, &m, k, p->in_from->v[at]);
        found = ok ? pi__dict_get(results.map, id_of(&calls->list->v[k], "id")) : NULL;
        if (!found || used[(size_t) found->i - at]) continue;
        used[(size_t) found->i - at] = true;
        ok = put(p, p->in->v[found->i], p->in_from->v[found->i]);
    }
    for (size_t k = at + 1; ok && k < end; k++)
        if (!used[k - at]) ok = put(p, p->in->v[k], p->in_from->v[k]);
    *i = end - 1;
    return ok;
}

static bool pass_calls(place *p)
{
    bool ok = true;
    for (size_t i = 0; ok && i < p->in->n; i++) {
        const pi__val m = p->in->v[i], *calls = calls_of(&m);
        if (calls && !p->r->call_text) ok = split_text(p, m, p->in_from->v[i]);
        if (!ok) break;
        if (calls && calls->list->n > 1 && !p->r->many_calls) ok = split_calls(p, &i);
        else ok = put(p, m, p->in_from->v[i]);
    }
    return ok;
}

/* ------------------------------------------------------------------------------------------------------------ turns */

/* Makes users and assistants alternate, a user first. Calls and results in between do not count. */
static bool pass_turns(place *p)
{
    const char *turn = NULL; /* last role that counts */
    bool ok = true;
    for (size_t i = 0; ok && i < p->in->n; i++) {
        pi__val m = p->in->v[i], from = p->in_from->v[i], *before = last(p);
        const bool user = pi__chat_has_role(&m, "user"), answer = is_plain_answer(&m);
        if (before && ((user && pi__chat_has_role(before, "user")) || (answer && is_plain_answer(before)))) {
            if (join(p, before, &m)) continue;
            ok = !p->z->code;
        }
        if (ok && user && turn && !strcmp(turn, "user")) ok = put_empty(p, "assistant", from);
        if (ok && ((answer && (!turn || strcmp(turn, "user") != 0)) || (calls_of(&m) && !turn)))
            ok = put_empty(p, turn = "user", from);
        if (user || answer) turn = user ? "user" : "assistant";
        ok = ok && put(p, m, from);
    }
    return ok;
}

/* Adds an empty user message after the leading instructions if there is no user message. */
static bool pass_user(place *p)
{
    bool found = false, ok = true;
    for (size_t i = 0; i < p->in->n; i++) found = found || pi__chat_has_role(&p->in->v[i], "user");
    for (size_t i = 0; ok && i < p->in->n; i++) {
        if (!found && !is_instruction(&p->in->v[i])) {
            ok = put_empty(p, "user", p->in_from->v[i]);
            found = true;
        }
        ok = ok && put(p, p->in->v[i], p->in_from->v[i]);
    }
    return ok && (found || put_empty(p, "user", p->in_from->v[p->in->n - 1]));
}

/* --------------------------------------------------------------------------------------------------------- together */

/* Starts a pass: the previous output becomes the input. */
static bool begin(place *p)
{
    pi__val list, from;
    if (p->out) {
        p->in = p->out;
        p->in_from = p->out_from;
    }
    if (!pi__work_step(p->z->work, p->in->n) || !pi__val_new_list(p->z, p->in->n, &list) ||
        !pi__val_new_list(p->z, p->in->n, &from))
        return false;
    p->out = list.list;
    p->out_from = from.list;
    return true;
}

/* Adapts answers with empty text to the template. */
static void fit_empty(const pi__chat *c, const pi__list *messages)
{
    for (size_t i = 0; i < messages->n; i++) {
        const pi__val *m = &messages->v[i];
        pi__val *text = pi__chat_has_role(m, "assistant") ? pi__chat_content_text(m) : NULL;
        if (!text || text->s.n) continue;
        if (calls_of(m) && c->null_calls) *pi__dict_get_str(m->map, "content") = pi__val_none();
        if (!calls_of(m) && c->blank_answers) text->s = pi__str_of(" ");
    }
}

int pi__chat_place(const pi__chat_roles *r, const pi__chat *c, pi__zone *z, pi__list *messages, pi__list *origin,
                   pi_error *err)
{
    place p = {.c = c, .r = r, .z = z, .in = messages, .in_from = origin};
    bool ok = true;
    for (size_t i = 0; ok && i < messages->n; i++) ok = pi__list_add(z, origin, pi__val_int((int64_t) i));
    ok = ok && begin(&p) && pass_instructions(&p);
    if (ok && (!r->call_text || !r->many_calls)) ok = begin(&p) && pass_calls(&p);
    if (ok && !r->turns) ok = begin(&p) && pass_turns(&p);
    if (ok && !r->userless) ok = begin(&p) && pass_user(&p);
    if (!ok) return pi__zone_fail(z, err, "the messages");
    *messages = *p.out;
    *origin = *p.out_from;
    fit_empty(c, messages);
    return PI_OK;
}
