/* Calls in tags (see answer_impl.h), by a row of the table in chat_form.c:
 *
 *     <tool_call> <function=NAME> <parameter=KEY> VALUE </parameter> ... </function> </tool_call>
 *
 * or with a JSON object after NAME, or a complete JSON call after the first tag. The tool's schema decides how a value
 * is parsed: as raw text, which streams, or as JSON, which is parsed when it is complete. */
#include "template/answer_impl.h"

#include <string.h>

enum { /* steps */
    HEAD = PI__STEP_FORM, ARGS_TEXT, ARGS_CLOSE, BODY, KEY, ATTRIBUTE, VALUE_OPEN, VALUE, STRING, COLLECT, AFTER,
};

static int picked(int i) { return i == -1 ? PI__WAIT : i < 0 ? PI__FAIL : PI__GO; }

/* Removes the form's prefix and call number from a name, if present. */
static pi__str bare_name(const pi__chat_form *f, pi__str s)
{
    const size_t before = strlen(f->prefix);
    size_t n;
    if (s.n > before && !memcmp(s.p, f->prefix, before)) s = (pi__str) {s.p + before, s.n - before};
    for (n = s.n; n && s.p[n - 1] >= '0' && s.p[n - 1] <= '9';) n--;
    if (n && n < s.n && s.p[n - 1] == ':') s.n = n - 1;
    return s;
}

/* Decodes the text of an attribute up to its closing quote, with entities. s extends past the quote. */
static pi__str attribute_text(pi__str s, char *room)
{
    static const char *const from[] = {"&quot;", "&amp;"}, to[] = "\"&";
    size_t n = 0;
    for (size_t i = 0; i < s.n && s.p[i] != '"'; i++) {
        room[n] = s.p[i];
        for (int k = 0; k < 2; k++) {
            const size_t len = strlen(from[k]);
            if (s.n - i < len || memcmp(s.p + i, from[k], len) != 0) continue;
            room[n] = to[k];
            i += len - 1;
            break;
        }
        n++;
    }
    return (pi__str) {room, n};
}

static int begin(pi__answer *a, size_t n_name, size_t n_taken)
{
    char room[PI__ANSWER_NAME];
    pi__str all = pi__answer_trim((pi__str) {a->buf + a->at, n_name}), none = {NULL, 0};
    const bool more = a->form->prefix != NULL;
    if (a->form->xtml) all = attribute_text(all, room);
    if (!pi__answer_begin_call(a, more ? bare_name(a->form, all) : all, more ? all : none)) return PI__FAIL;
    a->at += n_taken;
    a->step = HEAD;
    return PI__GO;
}

/* Takes a name that ends with white space or a tag. */
static int loose_name(pi__answer *a)
{
    size_t n = 0, room;
    pi__answer_skip_white(a);
    room = a->n - a->at;
    while (n < room && n <= PI__ANSWER_NAME && !pi__answer_white(a->buf[a->at + n]) && a->buf[a->at + n] != '<') n++;
    if (n == room) return n > PI__ANSWER_NAME ? PI__FAIL : PI__WAIT;
    return begin(a, n, n);
}

/* In a section: drops text up to a call or the section's end. */
static int section(pi__answer *a)
{
    const char *const tags[] = {a->form->call, a->form->close};
    size_t first = SIZE_MAX, from = a->seek > a->at ? a->seek : a->at, longest = 0;
    int which = 0;
    for (int i = 0; i < 2; i++) {
        const size_t len = strlen(tags[i]);
        const char *p = a->n > from ? memmem(a->buf + from, a->n - from, tags[i], len) : NULL;
        if (len > longest) longest = len;
        if (!p || (size_t) (p - a->buf) >= first) continue;
        first = (size_t) (p - a->buf);
        which = i;
    }
    if (first == SIZE_MAX) {
        if (a->n - from >= longest) a->seek = a->n - longest + 1;
        return PI__WAIT;
    }
    a->at = first + strlen(tags[which]);
    a->step = PI__STEP_CALL;
    if (!which) return PI__GO;
    a->raw = a->at;
    return PI__LEAVE;
}

static int open_tag(pi__answer *a)
{
    const pi__chat_form *f = a->form;
    if (!f->call) return loose_name(a);
    if (f->section) return section(a);
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == '{' && !f->attribute && !f->xtml) {
        pi__answer_start_json(a, f->close, false);
        return PI__GO;
    }
    int go = picked(pi__answer_pick(a, &f->call, 1));
    if (go == PI__GO) a->step = PI__STEP_CALL;
    return go;
}

/* Takes <invoke name="f"/>, a call without parameters. *n: bytes of the name. PI__FAIL: not this tag. */
static int empty_tag(pi__answer *a, size_t *n)
{
    static const char *const ends[] = {"\"/>", "\" />"};
    int go = pi__answer_until(a, "\"", PI__ANSWER_NAME, n);
    if (go != PI__GO) return go;
    for (int i = 0; i < 2; i++) {
        const int m = pi__answer_matches(a, a->at + *n, ends[i]);
        if (m > 0 && begin(a, *n, *n + strlen(ends[i])) != PI__GO) return PI__LEAVE;
        if (m >= 0) return m ? PI__GO : PI__WAIT;
    }
    return PI__FAIL;
}

static int end_call(pi__answer *a)
{
    a->step = AFTER;
    return pi__answer_end_call(a) ? PI__GO : PI__FAIL;
}

static int name(pi__answer *a)
{
    size_t n;
    int go = strcmp(a->form->call_end, "\">") != 0 ? PI__FAIL : empty_tag(a, &n);
    if (go == PI__GO) return pi__answer_add_str(a, "{}") ? end_call(a) : PI__FAIL;
    if (go == PI__WAIT) return go;
    if (go == PI__LEAVE) return PI__FAIL;
    go = pi__answer_until(a, a->form->call_end, PI__ANSWER_NAME, &n);
    return go == PI__GO ? begin(a, n, n + strlen(a->form->call_end)) : go;
}

/* After the name: a JSON object, or parameters. */
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

/* After a key of form "xtml" in s: type="string" means text, any other type JSON. */
static void take_type(pi__answer *a, pi__str s)
{
    static const char text[] = "\" type=\"string\"";
    const char *p = memchr(s.p, '"', s.n);
    const size_t n = p ? s.n - (size_t) (p - s.p) : 0;
    if (n >= sizeof text - 1 && !memcmp(p, text, sizeof text - 1)) a->types = PI__T_STR;
    else a->strict = n > 1;
}

static int key(pi__answer *a)
{
    const pi__chat_form *f = a->form;
    char room[PI__ANSWER_NAME];
    size_t n;
    int go = pi__answer_until(a, f->key_end, PI__ANSWER_NAME, &n);
    if (go != PI__GO) return go;
    pi__str s = {a->buf + a->at, n};
    if (f->xtml) s = attribute_text(s, room);
    if (!pi__answer_add_key(a, s)) return PI__FAIL;
    a->strict = false;
    if (f->xtml) take_type(a, (pi__str) {a->buf + a->at, n});
    a->at += n + strlen(f->key_end);
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

enum { WHITE_MAX = 256 }; /* maximum bytes of white space between two tags */

/* Returns 1 if one of the n tags follows at byte i of buf, after optional white space; 0 if that is unknown yet; -1 if
 * not. at_end: the result if the answer ends after the white space. */
static int tag_follows(const pi__answer *a, size_t i, const char *const *tag, int n, int at_end)
{
    int found = -1;
    const size_t from = i;
    while (i < a->n && pi__answer_white(a->buf[i]) && i - from < WHITE_MAX) i++;
    if (i == a->n) return a->last ? at_end : 0;
    for (int k = 0; k < n; k++) {
        const int m = tag[k] ? pi__answer_matches(a, i, tag[k]) : -1;
        if (m > found) found = m;
    }
    return found;
}

/* Checks if the next parameter starts at byte i: a key that the tool has, on a separate line. */
static int known_key(const pi__answer *a, size_t i)
{
    const pi__chat_form *f = a->form;
    const int m = pi__answer_matches(a, i, f->param);
    if (m <= 0) return m;
    const size_t from = i + strlen(f->param);
    size_t n = 0;
    while (from + n < a->n && n < PI__ANSWER_NAME && a->buf[from + n] != *f->key_end) n++;
    if (from + n == a->n) return 0;
    const pi__val *root = pi__dict_get_str(a->call[a->n_call - 1].function, "parameters");
    const pi__val *p = root && root->type == PI__V_MAP ? pi__dict_get_str(root->map, "properties") : NULL;
    const bool known = p && p->type == PI__V_MAP && pi__dict_get(p->map, pi__val_str((pi__str) {a->buf + from, n}));
    return known ? pi__answer_matches(a, from + n, f->key_end) : -1;
}

/* Checks if the call ends at byte i although the value has no closing tag: text that may follow a call must be next. */
static int call_ends(const pi__answer *a, size_t i)
{
    const pi__chat_form *f = a->form;
    const char *const next[] = {f->close, f->open, f->call};
    const int m = pi__answer_matches(a, i, f->call_close);
    return m <= 0 ? m : tag_follows(a, i + strlen(f->call_close), next, 3, f->close || a->cut ? -1 : 1);
}

/* Checks if the value ends at byte i: 1 = yes, with *n bytes to drop; 0 = unknown yet; -1 = no. A closing tag counts
 * only if a parameter or the call's end follows, so values may contain the tag. A model may leave it out: before these
 * at the start of a line, or before the end of GLM's calls. */
static int ends_at(const pi__answer *a, size_t i, size_t *n)
{
    const pi__chat_form *f = a->form;
    const char *const next[] = {f->param, f->call_close};
    const bool line = f->newline && a->buf[i] == '\n';
    const size_t at = i + line;
    int end = pi__answer_matches(a, at, f->param_close);
    *n = line + strlen(f->param_close);
    if (end > 0) end = tag_follows(a, i + *n, next, 2, -1);
    if (end >= 0) return end;
    *n = line;
    if (line) end = known_key(a, at);
    if (end < 0 && (line || f->value)) end = call_ends(a, at);
    return end;
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
    size_t n = 0, i = a->seek > a->at ? a->seek : a->at;
    int end = -1;
    for (; i < a->n; i++) {
        if (a->buf[i] != '\n' && a->buf[i] != '<') continue;
        if ((end = ends_at(a, i, &n)) >= 0) break;
    }
    a->seek = i;
    if (end <= 0) return PI__WAIT;
    if (!pi__answer_add_value(a, (pi__str) {a->buf + a->at, i - a->at})) return PI__FAIL;
    a->at = i + n;
    a->step = BODY;
    return PI__GO;
}

/* After a call: takes the next call, the closing tag, or nothing. */
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
