/* Calls as JSON objects (see answer_impl.h), and the formats around them in Mistral's and Llama's answers.
 *
 * {"name": "f", "arguments": {...}}: once the name is known, arguments stream as they are written. If they come first,
 * they are held until then. "parameters" is a synonym; a string that contains JSON is accepted too. Apertus writes
 * {"f": {...}} (keyed). */
#include "template/answer_impl.h"

#include <string.h>

enum { /* steps */
    J_OPEN = PI__STEP_JSON, J_KEY, J_KEY_TEXT, J_COLON, J_VALUE, J_VALUE_TEXT, J_NEXT, J_CLOSE = PI__JSON_CLOSE,
    M_NAME = PI__STEP_FORM, M_ID, M_ARGS, M_ARGS_TEXT, M_ITEM, M_NEXT, M_CLOSE,
    L_NAME, L_KEY, L_VALUE, L_VALUE_TEXT, L_NEXT,
};

enum { NAME, ARGUMENTS, OTHER, UNKNOWN }; /* members */

void pi__answer_start_json(pi__answer *a, const char *close, bool list)
{
    a->step = J_OPEN;
    a->close = close;
    a->list = list;
    a->has_args = false;
    a->n_held = 0;
    a->first = true; /* no member of the object yet */
}

static bool name_known(const pi__answer *a) { return a->open; }

/* Takes the character c. */
static int expect(pi__answer *a, char c, int step)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] != c) return PI__FAIL;
    a->at++;
    a->step = step;
    return PI__GO;
}

int pi__answer_scan(pi__answer *a, bool give, int step)
{
    int end;
    size_t n = pi__json_scan_feed(&a->scan, a->buf + a->at, a->n - a->at, &end);
    if (give && !pi__answer_add_args(a, a->buf + a->at, n)) return PI__FAIL;
    a->at += n;
    if (end < 0) return PI__FAIL;
    if (!end) return PI__WAIT;
    a->step = step;
    return PI__GO;
}

void pi__answer_scan_start(pi__answer *a, int step)
{
    a->token = a->at;
    pi__json_scan_start(&a->scan);
    a->step = step;
}

/* Fails a name that is too long at a fixed byte, independent of how the input was split. */
static int limited(pi__answer *a, int go)
{
    if (a->at - a->token <= PI__ANSWER_NAME) return go;
    a->at = a->token + PI__ANSWER_NAME;
    return PI__FAIL;
}

static int member_of(pi__str key)
{
    static const char *const names[] = {"\"name\"", "\"tool_name\"",    "\"arguments\"", "\"parameters\"",
                                        "\"id\"",   "\"tool_call_id\"", "\"type\""};
    static const int members[] = {NAME, NAME, ARGUMENTS, ARGUMENTS, OTHER, OTHER, OTHER};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (pi__str_is(key, names[i])) return members[i];
    return UNKNOWN;
}

static int key(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] != '"') return PI__FAIL;
    pi__answer_scan_start(a, J_KEY_TEXT);
    return PI__GO;
}

/* Appends arguments that were not streamed: an object, a string that contains one, or null. */
static bool add_held(pi__answer *a)
{
    pi__str s = {a->buf + a->held, a->n_held};
    if (s.p[0] == '{') return pi__answer_add_args(a, s.p, s.n);
    if (s.p[0] == 'n') return pi__answer_add_str(a, "{}");
    pi__zone z;
    pi__val v, inner = pi__val_none();
    pi__zone_init(&z, ((size_t) 1 << 20) + s.n * 64);
    int rc = pi__json_read(&z, s.p, s.n, "arguments", &v, NULL);
    if (!rc) rc = pi__json_read(&z, v.s.p, v.s.n, "arguments", &inner, NULL);
    if (rc == PI_ENOMEM) a->code = rc;
    bool ok = !rc && inner.type == PI__V_MAP && pi__answer_add_args(a, v.s.p, v.s.n);
    pi__zone_free(&z);
    return ok;
}

static bool take_name(pi__answer *a)
{
    pi__zone z;
    pi__val v;
    pi__zone_init(&z, 1 << 16);
    int rc = pi__json_read(&z, a->buf + a->token, a->at - a->token, "name", &v, NULL);
    if (rc == PI_ENOMEM) a->code = rc;
    bool ok = !rc && pi__answer_begin_call(a, v.s, (pi__str) {NULL, 0});
    pi__zone_free(&z);
    return ok && (!a->n_held || add_held(a));
}

static int key_text(pi__answer *a)
{
    int go = limited(a, pi__answer_scan(a, false, J_COLON));
    if (go != PI__GO) return go;
    if (a->form->keyed) {
        a->member = ARGUMENTS;
        return !name_known(a) && take_name(a) ? PI__GO : PI__FAIL;
    }
    a->member = member_of((pi__str) {a->buf + a->token, a->at - a->token});
    bool twice = (a->member == NAME && name_known(a)) || (a->member == ARGUMENTS && a->has_args);
    return a->member == UNKNOWN || twice ? PI__FAIL : PI__GO;
}

static int value(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    char c = a->buf[a->at];
    bool ok = a->member == OTHER || (a->member == NAME ? c == '"' : c == '{' || c == '"' || c == 'n');
    if (!ok) return PI__FAIL;
    pi__answer_scan_start(a, J_VALUE_TEXT);
    return PI__GO;
}

static int value_text(pi__answer *a)
{
    bool stream = a->member == ARGUMENTS && name_known(a) && a->buf[a->token] == '{';
    int go = pi__answer_scan(a, stream, J_NEXT);
    if (a->member == NAME) go = limited(a, go);
    if (go != PI__GO) return go;
    if (a->member == NAME) return take_name(a) ? PI__GO : PI__FAIL;
    if (a->member != ARGUMENTS) return PI__GO;
    a->has_args = true;
    if (stream) return PI__GO;
    a->held = a->token;
    a->n_held = a->at - a->token;
    return !name_known(a) || add_held(a) ? PI__GO : PI__FAIL;
}

static int next(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    char c = a->buf[a->at];
    if (c != ',' && (c != '}' || !name_known(a))) return PI__FAIL;
    a->at++;
    a->step = c == ',' ? J_KEY : J_CLOSE;
    if (c == '}' && !a->has_args && !pi__answer_add_str(a, "{}")) return PI__FAIL;
    return PI__GO;
}

static int close_call(pi__answer *a)
{
    if (a->close) {
        pi__answer_skip_white(a);
        int i = pi__answer_pick(a, &a->close, 1);
        if (i < 0) return i == -1 ? PI__WAIT : PI__FAIL;
    }
    if (!pi__answer_end_call(a)) return PI__FAIL;
    a->step = M_NEXT;
    return a->list ? PI__GO : PI__LEAVE;
}

int pi__answer_json(pi__answer *a)
{
    switch (a->step) {
    case J_OPEN: return expect(a, '{', J_KEY);
    case J_KEY: return key(a);
    case J_KEY_TEXT: return key_text(a);
    case J_COLON: return expect(a, ':', J_VALUE);
    case J_VALUE: return value(a);
    case J_VALUE_TEXT: return value_text(a);
    case J_NEXT: return next(a);
    default: return close_call(a);
    }
}

bool pi__answer_only_close(const pi__answer *a)
{
    return a->open && (a->step == PI__JSON_CLOSE || (a->form->kind == PI__FORM_GEMMA && a->step == PI__GEMMA_CLOSE));
}

/* ---------------------------------------------------------------------------------------------------------- Mistral */

/* Finds the end of a name or id: the first bracket or brace. */
static int mistral_name(pi__answer *a, const char **name_end)
{
    size_t i = a->at;
    while (i < a->n && i - a->at <= PI__ANSWER_NAME && a->buf[i] != '[' && a->buf[i] != '{') i++;
    if (i - a->at > PI__ANSWER_NAME) return PI__FAIL;
    *name_end = a->buf + i;
    return i == a->n ? PI__WAIT : PI__GO;
}

/* Takes NAME [CALL_ID] ID [ARGS] in one step, because the id is part of the call's start. */
static int mistral_head(pi__answer *a)
{
    static const char *const marks[] = {"[ARGS]", "[CALL_ID]"};
    size_t start = a->at;
    const char *end;
    int go = mistral_name(a, &end), m = 0;
    if (go != PI__GO) return go;
    pi__str name = {a->buf + start, (size_t) (end - a->buf) - start}, id = {NULL, 0};
    a->at = start + name.n;
    if (*end == '[') m = pi__answer_pick(a, marks, 2);
    if (m == 1) {
        size_t from = a->at;
        go = mistral_name(a, &end);
        if (go == PI__GO) {
            id = (pi__str) {a->buf + from, (size_t) (end - a->buf) - from};
            a->at = from + id.n;
            m = pi__answer_pick(a, marks, 1);
        }
    }
    if (go != PI__GO || m < 0) {
        a->at = start;
        return go == PI__WAIT || m == -1 ? PI__WAIT : PI__FAIL;
    }
    if (!pi__answer_begin_call(a, pi__answer_trim(name), pi__answer_trim(id))) return PI__FAIL;
    a->step = M_ARGS;
    return PI__GO;
}

static int mistral_open(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    char c = a->buf[a->at];
    a->step = M_NAME;
    if (c == '{') pi__answer_start_json(a, a->form->close, false);
    if (c == '[') a->at++, a->step = M_ITEM;
    return PI__GO;
}

static int mistral_args(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] != '{') return PI__FAIL;
    pi__answer_scan_start(a, M_ARGS_TEXT);
    return PI__GO;
}

static int mistral_args_text(pi__answer *a)
{
    int go = pi__answer_scan(a, true, M_ARGS_TEXT);
    if (go != PI__GO) return go;
    return pi__answer_end_call(a) ? PI__LEAVE : PI__FAIL;
}

static int mistral_next(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    char c = a->buf[a->at];
    if (c != ',' && c != ']') return PI__FAIL;
    a->at++;
    a->raw = a->at;
    a->step = c == ',' ? M_ITEM : M_CLOSE;
    return c == ',' || a->form->close ? PI__GO : PI__LEAVE;
}

int pi__answer_close_list(pi__answer *a)
{
    pi__answer_skip_white(a);
    const int i = pi__answer_pick(a, &a->form->close, 1);
    if (i < 0) a->at = a->raw;
    if (i == -1) return PI__WAIT;
    a->raw = a->at;
    return PI__LEAVE;
}

int pi__answer_mistral(pi__answer *a)
{
    if (a->step >= PI__STEP_JSON && a->step < PI__STEP_FORM) return pi__answer_json(a);
    switch (a->step) {
    case PI__STEP_OPEN: return mistral_open(a);
    case M_NAME: return mistral_head(a);
    case M_ARGS: return mistral_args(a);
    case M_ARGS_TEXT: return mistral_args_text(a);
    case M_NEXT: return mistral_next(a);
    case M_CLOSE: return pi__answer_close_list(a);
    default:
        pi__answer_start_json(a, NULL, true);
        return PI__GO;
    }
}

/* ------------------------------------------------------------------------------------------------------------ Llama */

/* After <|python_tag|>: takes a JSON call, or name.call(key=value, ...). */
static int llama_open(pi__answer *a)
{
    static const char dot[] = ".call(";
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == '{') {
        pi__answer_start_json(a, NULL, false);
        return PI__GO;
    }
    size_t room = a->n - a->at, max = PI__ANSWER_NAME + sizeof dot;
    const char *p = memmem(a->buf + a->at, room < max ? room : max, dot, sizeof dot - 1);
    if (!p) return room < max ? PI__WAIT : PI__FAIL;
    pi__str name = {a->buf + a->at, (size_t) (p - a->buf) - a->at};
    if (!pi__answer_begin_call(a, name, (pi__str) {NULL, 0}) || !pi__answer_add_str(a, "{")) return PI__FAIL;
    a->at += name.n + sizeof dot - 1;
    a->step = L_KEY;
    return PI__GO;
}

static int llama_end(pi__answer *a)
{
    a->at++;
    return pi__answer_add_str(a, "}") && pi__answer_end_call(a) ? PI__LEAVE : PI__FAIL;
}

static int llama_key(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == ')' && a->first) return llama_end(a);
    size_t i = a->at;
    while (i < a->n && i - a->at < PI__ANSWER_NAME && a->buf[i] != '=' && !strchr(",(){}\"\n", a->buf[i])) i++;
    if (i == a->n) return PI__WAIT;
    if (a->buf[i] != '=' || i == a->at) return PI__FAIL;
    if (!pi__answer_add_key(a, pi__answer_trim((pi__str) {a->buf + a->at, i - a->at}))) return PI__FAIL;
    a->at = i + 1;
    a->step = L_VALUE;
    return PI__GO;
}

static int llama_value(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    pi__answer_scan_start(a, L_VALUE_TEXT);
    return PI__GO;
}

static int llama_next(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == ')') return llama_end(a);
    if (a->buf[a->at] != ',') return PI__FAIL;
    a->at++;
    a->step = L_KEY;
    return PI__GO;
}

int pi__answer_llama(pi__answer *a)
{
    if (a->step >= PI__STEP_JSON && a->step < PI__STEP_FORM) return pi__answer_json(a);
    switch (a->step) {
    case PI__STEP_BARE:
        pi__answer_start_json(a, NULL, false);
        return PI__GO;
    case L_KEY: return llama_key(a);
    case L_VALUE: return llama_value(a);
    case L_VALUE_TEXT: return pi__answer_scan(a, true, L_NEXT);
    case L_NEXT: return llama_next(a);
    default: return llama_open(a);
    }
}
