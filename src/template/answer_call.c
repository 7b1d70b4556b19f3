/* Calls as they become known (see answer_impl.h): names, ids, arguments, and values converted by the tool's schema.
 *
 * The arguments of an open call only grow and are always a prefix of a JSON object. Memory belongs to the answer; a
 * failed allocation sets a->code. */
#include "template/answer_impl.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/versioned.h"

/* ----------------------------------------------------------------------------------------------------------- calls */

/* Makes a random id: 9 letters, as Mistral's templates require, or 24 as in OpenAI's ids. */
static void make_id(const pi__answer *a, char out[PI__ANSWER_ID])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    bool nine = a->form->kind == PI__FORM_MISTRAL;
    unsigned char r[24];
    size_t n = nine ? 9 : 24, at = 0;
    if (getrandom(r, sizeof r, GRND_NONBLOCK) != (ssize_t) sizeof r) {
        const uint64_t seed[2] = {(uint64_t) pi__now_ns(), (uintptr_t) a + a->n_call};
        for (size_t i = 0; i < 3; i++) {
            uint64_t h = pi__hash64(seed, sizeof seed, i);
            memcpy(r + 8 * i, &h, 8);
        }
    }
    if (!nine) at = strlen(strcpy(out, "call_"));
    for (size_t i = 0; i < n; i++) out[at++] = letters[r[i] % (sizeof letters - 1)];
    out[at] = 0;
}

/* Uses the model's own id if it is a short word. */
static bool take_id(char out[PI__ANSWER_ID], pi__str id)
{
    if (!id.n || id.n >= PI__ANSWER_ID) return false;
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] <= ' ' || id.p[i] == '"' || id.p[i] == '\\' || id.p[i] == 0x7F) return false;
    memcpy(out, id.p, id.n);
    out[id.n] = 0;
    return true;
}

bool pi__answer_begin_call(pi__answer *a, pi__str name, pi__str id)
{
    const pi__dict *function = name.n <= PI__ANSWER_NAME ? pi__chat_find_function(&a->tools, name) : NULL;
    if (!function || a->code) return false;
    char *copy = pi__zone_take(&a->zone, name.n + 1);
    if (!copy || !pi__grow(&a->call, &a->cap_call, a->n_call + 1, sizeof *a->call)) {
        a->code = PI_ENOMEM;
        return false;
    }
    memcpy(copy, name.p, name.n);
    pi__call *c = &a->call[a->n_call];
    *c = (pi__call) {.name = copy, .function = function, .args = {.limit = SIZE_MAX / 4}, .sure = a->bound};
    if (!take_id(c->id, id)) make_id(a, c->id);
    a->open = a->first = true;
    pi__answer_record(a, PI_CHAT_CALL, (uint32_t) a->n_call++, 0, 0);
    return !a->code;
}

bool pi__answer_add_args(pi__answer *a, const char *p, size_t n)
{
    pi__call *c = &a->call[a->n_call - 1];
    if (!n || a->code) return !a->code;
    pi__text_add(&c->args, p, n);
    if (c->args.code) a->code = PI_ENOMEM;
    else pi__answer_record(a, PI_CHAT_ARGUMENTS, (uint32_t) a->n_call - 1, c->args.n - n, n);
    return !a->code;
}

bool pi__answer_add_str(pi__answer *a, const char *s) { return pi__answer_add_args(a, s, strlen(s)); }

bool pi__answer_add_escaped(pi__answer *a, const char *p, size_t n)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    static const char hex[] = "0123456789abcdef";
    size_t plain = 0;
    for (size_t i = 0; i < n; i++) {
        const char *e = p[i] ? strchr(from, p[i]) : NULL;
        if (!e && (unsigned char) p[i] >= 0x20) continue;
        char b[6] = {'\\', 'u', '0', '0', hex[(unsigned char) p[i] >> 4 & 15], hex[p[i] & 15]};
        if (e) b[1] = to[e - from];
        if (!pi__answer_add_args(a, p + plain, i - plain) || !pi__answer_add_args(a, b, e ? 2 : 6)) return false;
        plain = i + 1;
    }
    return pi__answer_add_args(a, p + plain, n - plain);
}

/* Parses arguments to a value in a zone that the caller frees. */
static int read_json(pi__zone *z, pi__str text, pi__val *out)
{
    pi__zone_init(z, ((size_t) 1 << 20) + text.n * 64);
    return pi__json_read(z, text.p ? text.p : "", text.n, "the value", out, NULL);
}

bool pi__answer_end_call(pi__answer *a)
{
    pi__call *c = &a->call[a->n_call - 1];
    pi__zone z;
    pi__val v;
    int rc = read_json(&z, (pi__str) {c->args.p, c->args.n}, &v);
    pi__zone_free(&z);
    if (rc == PI_ENOMEM) a->code = rc;
    if (rc || v.type != PI__V_MAP) return false;
    pi__text_add(&c->args, "", 1); /* NUL-terminated; the NUL is not counted */
    c->args.n -= !c->args.code;
    if (c->args.code) a->code = PI_ENOMEM;
    c->done = true;
    a->open = false;
    a->n_done++;
    a->raw = a->at;
    a->bare = true;
    pi__answer_record(a, PI_CHAT_CALL_END, (uint32_t) a->n_call - 1, 0, 0);
    return !a->code;
}

void pi__answer_drop_call(pi__answer *a)
{
    if (!a->open) return;
    uint32_t i = (uint32_t) a->n_call - 1;
    bool told = true;
    size_t n = a->n_delta;
    /* Deltas of a `sure` call stay: they are shown as they grow, also if the caller reads them only after the end. */
    while (!a->call[i].sure && n > a->next_delta && a->delta[n - 1].kind >= PI_CHAT_CALL && a->delta[n - 1].call == i)
        told = a->delta[--n].kind != PI_CHAT_CALL;
    a->n_delta = n; /* the caller has not read the deltas from n on */
    a->open = false;
    a->call[i].dropped = true;
    if (!a->call[i].sure) a->call[i].args.n = 0;
    if (told) {
        pi__answer_record(a, PI_CHAT_CALL_DROPPED, i, 0, 0);
        return;
    }
    pi__free(a->call[i].args.p);
    a->n_call--;
}

uint32_t pi__answer_calls(const pi__answer *a) { return a->n_done; }

bool pi__answer_call(const pi__answer *a, uint32_t i, pi_chat_call *out)
{
    for (size_t k = 0; k < a->n_call; k++) {
        const pi__call *c = &a->call[k];
        if (!c->done || i--) continue;
        pi_chat_call full = {.index = (uint32_t) k, .id = c->id, .name = c->name, .arguments = c->args.p,
                             .arguments_len = c->args.n};
        return pi__versioned_copy(out, &full, sizeof full) == PI_OK;
    }
    return false;
}

/* ---------------------------------------------------------------------------------------------------------- schemas */

static unsigned type_named(const pi__val *v)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {
        {"string", PI__T_STR}, {"number", PI__T_NUM}, {"integer", PI__T_INT}, {"boolean", PI__T_BOOL},
        {"null", PI__T_NULL}, {"object", PI__T_MAP}, {"array", PI__T_LIST},
    };
    for (size_t i = 0; v->type == PI__V_STR && i < sizeof names / sizeof *names; i++)
        if (pi__str_is(v->s, names[i].name)) return names[i].type;
    return 0;
}

static unsigned type_of(const pi__val *v)
{
    switch (v->type) {
    case PI__V_STR: return PI__T_STR;
    case PI__V_INT: return PI__T_INT | PI__T_NUM;
    case PI__V_FLOAT: return v->f == floor(v->f) ? PI__T_INT | PI__T_NUM : PI__T_NUM; /* of any size */
    case PI__V_BOOL: return PI__T_BOOL;
    case PI__V_NONE: return PI__T_NULL;
    case PI__V_MAP: return PI__T_MAP;
    default: return PI__T_LIST;
    }
}

/* Resolves "#/$defs/x" in the function's parameters; NULL if missing. */
static const pi__val *follow_ref(const pi__val *root, pi__str ref)
{
    const pi__val *v = root;
    if (!ref.n || ref.p[0] != '#') return NULL;
    for (size_t at = 1, end; v && at < ref.n; at = end) {
        if (ref.p[at++] != '/') return NULL;
        for (end = at; end < ref.n && ref.p[end] != '/'; end++) {}
        v = v->type == PI__V_MAP ? pi__dict_get(v->map, pi__val_str((pi__str) {ref.p + at, end - at})) : NULL;
    }
    return v;
}

/* Returns the PI__T_* that a schema allows; 0 = any. */
static unsigned schema_types(const pi__val *root, const pi__val *schema, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    if (!schema || schema->type != PI__V_MAP || depth > 8) return 0;
    const pi__dict *m = schema->map;
    const pi__val *v = pi__dict_get_str(m, "$ref");
    unsigned types = 0;
    if (v && v->type == PI__V_STR) return schema_types(root, follow_ref(root, v->s), depth + 1);
    if ((v = pi__dict_get_str(m, "type"))) {
        types = type_named(v);
        for (size_t i = 0; v->type == PI__V_LIST && i < v->list->n; i++) types |= type_named(&v->list->v[i]);
    } else if ((v = pi__dict_get_str(m, "enum")) && v->type == PI__V_LIST) {
        for (size_t i = 0; i < v->list->n; i++) types |= type_of(&v->list->v[i]);
    } else if ((v = pi__dict_get_str(m, "const"))) {
        types = type_of(v);
    }
    for (int k = 0; k < 3 && !types; k++) {
        v = pi__dict_get_str(m, unions[k]);
        for (size_t i = 0; v && v->type == PI__V_LIST && i < v->list->n && i < 64; i++)
            types |= schema_types(root, &v->list->v[i], depth + 1);
    }
    if (!types && pi__dict_get_str(m, "properties")) types = PI__T_MAP;
    if (!types && pi__dict_get_str(m, "items")) types = PI__T_LIST;
    v = pi__dict_get_str(m, "nullable");
    return types && v && v->type == PI__V_BOOL && v->b ? types | PI__T_NULL : types;
}

unsigned pi__schema_types(const pi__val *root, const pi__val *schema) { return schema_types(root, schema, 0); }

bool pi__answer_add_key(pi__answer *a, pi__str key)
{
    const pi__dict *f = a->call[a->n_call - 1].function;
    const pi__val *root = pi__dict_get_str(f, "parameters");
    const pi__val *p = root && root->type == PI__V_MAP ? pi__dict_get_str(root->map, "properties") : NULL;
    const pi__val *schema = p && p->type == PI__V_MAP ? pi__dict_get(p->map, pi__val_str(key)) : NULL;
    a->types = schema_types(root, schema, 0);
    bool ok = pi__answer_add_str(a, a->first ? "\"" : ", \"");
    a->first = false;
    return ok && pi__answer_add_escaped(a, key.p, key.n) && pi__answer_add_str(a, "\": ");
}

/* ----------------------------------------------------------------------------------------------------------- values */

pi__str pi__answer_trim(pi__str s)
{
    while (s.n && pi__answer_white(s.p[0])) s.p++, s.n--;
    while (s.n && pi__answer_white(s.p[s.n - 1])) s.n--;
    return s;
}

/* Replaces Python's words by JSON's: templates print values with str(). */
static pi__str as_json(pi__str s)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (int i = 0; i < 3; i++)
        if (pi__str_is(s, words[i][0])) return pi__str_of(words[i][1]);
    return s;
}

bool pi__answer_add_value(pi__answer *a, pi__str text)
{
    pi__str json = as_json(pi__answer_trim(text));
    pi__zone z;
    pi__val v = pi__val_none();
    int rc = read_json(&z, json, &v);
    unsigned type = rc ? 0 : type_of(&v);
    pi__zone_free(&z);
    if (rc == PI_ENOMEM) a->code = rc;
    if (a->code) return false;
    bool fits = a->strict ? !rc : !rc && (type & a->types & ~(unsigned) PI__T_STR);
    if (fits) return pi__answer_add_args(a, json.p, json.n);
    if (a->strict) return false;
    return pi__answer_add_str(a, "\"") && pi__answer_add_escaped(a, text.p, text.n) && pi__answer_add_str(a, "\"");
}
