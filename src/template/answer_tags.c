/* Calls in tags (see answer_impl.h), by a row of the table in chat_form.c:
 *
 *     <tool_call> <function=NAME> <parameter=KEY> VALUE </parameter> ... </function> </tool_call>
 *
 * or with a JSON object behind NAME, or a whole JSON call behind the first tag. A value is what the tool's schema says:
 * text as it stands, which streams, or JSON, which is looked at when it is complete. */
#include "template/answer_impl.h"

#include <string.h>

enum { /* steps */
    HEAD = PI__STEP_FORM, ARGS_TEXT, ARGS_CLOSE, BODY, KEY, ATTRIBUTE, VALUE_OPEN, VALUE, STRING, COLLECT, AFTER,
};

static int picked(int i) { return i == -1 ? PI__WAIT : i < 0 ? PI__FAIL : PI__GO; }

/* Without what the form has around it, as far as that is there. */
static pi__str bare_name(const pi__chat_form *f, pi__str s)
{
    const size_t before = strlen(f->prefix);
    size_t n;
    if (s.n > before && !memcmp(s.p, f->prefix, before)) s = (pi__str) {s.p + before, s.n - before};
    for (n = s.n; n && s.p[n - 1] >= '0' && s.p[n - 1] <= '9';) n--;
    if (n && n < s.n && s.p[n - 1] == ':') s.n = n - 1;
    return s;
}

static int begin(pi__answer *a, size_t n_name, size_t n_taken)
{
    const pi__str all = pi__answer_trim((pi__str) {a->buf + a->at, n_name}), none = {NULL, 0};
    const bool more = a->form->prefix != NULL;
    if (!pi__answer_begin_call(a, more ? bare_name(a->form, all) : all, more ? all : none)) return PI__FAIL;
    a->at += n_taken;
    a->step = HEAD;
    return PI__GO;
}

/* A name that ends with white space or a tag. */
static int loose_name(pi__answer *a)
{
    size_t n = 0, room;
    pi__answer_skip_white(a);
    room = a->n - a->at;
    while (n < room && n <= PI__ANSWER_NAME && !pi__answer_white(a->buf[a->at + n]) && a->buf[a->at + n] != '<') n++;
    if (n == room) return n > PI__ANSWER_NAME ? PI__FAIL : PI__WAIT;
    return begin(a, n, n);
}

static int open_tag(pi__answer *a)
{
    const pi__chat_form *f = a->form;
    if (!f->call) return loose_name(a);
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == '{' && !f->attribute) {
        pi__answer_start_json(a, f->close, false);
        return PI__GO;
    }
    int go = picked(pi__answer_pick(a, &f->call, 1));
    if (go == PI__GO) a->step = PI__STEP_CALL;
    return go;
}

static int name(pi__answer *a)
{
    size_t n;
    int go = pi__answer_until(a, a->form->call_end, PI__ANSWER_NAME, &n);
    return go == PI__GO ? begin(a, n, n + strlen(a->form->call_end)) : go;
}

/* Behind the name: a JSON object, or parameters. */
static int head(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == '{') {
        pi__answer_scan_start(a, ARGS_TEXT);
        return PI__GO;
    }
    a->step = BODY;
    return pi__answer_add_str(a, "{") ? PI__GO : PI__FAIL;
}

static int end_call(pi__answer *a)
{
    a->step = AFTER;
    return pi__answer_end_call(a) ? PI__GO : PI__FAIL;
}

static int args_close(pi__answer *a)
{
    pi__answer_skip_white(a);
    int go = picked(pi__answer_pick(a, &a->form->call_close, 1));
    return go == PI__GO ? end_call(a) : go;
}

static int body(pi__answer *a)
{
    const char *const tags[] = {a->form->param, a->form->call_close};
    pi__answer_skip_white(a);
    int i = pi__answer_pick(a, tags, 2);
    if (i < 0) return picked(i);
    a->step = KEY;
    if (!i) return PI__GO;
    return pi__answer_add_str(a, "}") ? end_call(a) : PI__FAIL;
}

static int key(pi__answer *a)
{
    const pi__chat_form *f = a->form;
    size_t n;
    int go = pi__answer_until(a, f->key_end, PI__ANSWER_NAME, &n);
    if (go != PI__GO) return go;
    if (!pi__answer_add_key(a, (pi__str) {a->buf + a->at, n})) return PI__FAIL;
    a->at += n + strlen(f->key_end);
    a->strict = false;
    a->step = f->attribute ? ATTRIBUTE : f->value ? VALUE_OPEN : VALUE;
    return PI__GO;
}

static int attribute(pi__answer *a)
{
    static const char *const says[] = {" string=\"true\">", " string=\"false\">", ">"};
    int i = pi__answer_pick(a, says, 3);
    if (i == 0) a->types = PI__T_STR;
    a->strict = i == 1;
    if (i >= 0) a->step = VALUE;
    return picked(i);
}

static int value_open(pi__answer *a)
{
    pi__answer_skip_white(a);
    int go = picked(pi__answer_pick(a, &a->form->value, 1));
    if (go == PI__GO) a->step = VALUE;
    return go;
}

static int value(pi__answer *a)
{
    if (a->at == a->n) return PI__WAIT;
    if (a->form->newline && a->buf[a->at] == '\n') a->at++;
    bool text = !a->strict && (a->types == PI__T_STR || !a->types);
    a->step = text ? STRING : COLLECT;
    a->seek = a->at;
    return !text || pi__answer_add_str(a, "\"") ? PI__GO : PI__FAIL;
}

/* How the value ends at byte i: 1 with *n bytes of tag, 0 perhaps, -1 not. */
static int ends_at(const pi__answer *a, size_t i, size_t *n)
{
    const char *close = a->form->param_close;
    bool line = a->form->newline && a->buf[i] == '\n';
    size_t at = i + line, len = strlen(close), have = a->n - at < len ? a->n - at : len;
    *n = line + len;
    if (memcmp(a->buf + at, close, have) != 0) return -1;
    return have == len;
}

static int string(pi__answer *a)
{
    for (size_t i = a->at; i < a->n; i++) {
        size_t n;
        if (a->buf[i] != '\n' && a->buf[i] != '<') continue;
        int end = ends_at(a, i, &n);
        if (end < 0) continue;
        if (!pi__answer_add_escaped(a, a->buf + a->at, i - a->at)) return PI__FAIL;
        a->at = i;
        if (!end) return PI__WAIT;
        a->at += n;
        a->step = BODY;
        return pi__answer_add_str(a, "\"") ? PI__GO : PI__FAIL;
    }
    if (!pi__answer_add_escaped(a, a->buf + a->at, a->n - a->at)) return PI__FAIL;
    a->at = a->n;
    return PI__WAIT;
}

static int collect(pi__answer *a)
{
    size_t end = pi__answer_find(a, a->form->param_close);
    if (end == SIZE_MAX) return PI__WAIT;
    pi__str s = {a->buf + a->at, end - a->at};
    if (a->form->newline && s.n && s.p[s.n - 1] == '\n') s.n--;
    if (!pi__answer_add_value(a, s)) return PI__FAIL;
    a->at = end + strlen(a->form->param_close);
    a->step = BODY;
    return PI__GO;
}

/* Behind a call: another one, the closing tag, or neither. */
static int after(pi__answer *a)
{
    const char *const tags[] = {a->form->close, a->form->call};
    pi__answer_skip_white(a);
    int i = pi__answer_pick(a, tags, 2);
    if (i == -1) {
        a->at = a->raw;
        return PI__WAIT;
    }
    a->step = PI__STEP_CALL;
    if (i == 1) return PI__GO;
    if (i < 0) a->at = a->raw;
    a->raw = a->at;
    return PI__LEAVE;
}

int pi__answer_tags(pi__answer *a)
{
    if (a->step >= PI__STEP_JSON && a->step < PI__STEP_FORM) return pi__answer_json(a);
    switch (a->step) {
    case PI__STEP_OPEN: return open_tag(a);
    case PI__STEP_CALL: return name(a);
    case HEAD: return head(a);
    case ARGS_TEXT: return pi__answer_scan(a, true, ARGS_CLOSE);
    case ARGS_CLOSE: return args_close(a);
    case BODY: return body(a);
    case KEY: return key(a);
    case ATTRIBUTE: return attribute(a);
    case VALUE_OPEN: return value_open(a);
    case VALUE: return value(a);
    case STRING: return string(a);
    case COLLECT: return collect(a);
    default: return after(a);
    }
}
