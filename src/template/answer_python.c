/* Calls in Python syntax (see answer_impl.h), for Llama 4 and LFM2:
 *
 *     <|tool_call_start|>[NAME(KEY="text", KEY=1, KEY=[True, None]), NAME()]<|tool_call_end|>
 *
 * In a form with `bare`, the list may start an answer without tags. A value is collected, then emitted as JSON when it
 * is complete. An object instead of a list is a JSON call. */
#include "template/answer_impl.h"

#include <string.h>

enum { /* steps */
    NAME = PI__STEP_FORM, KEY, VALUE, NEXT_CALL, CLOSE,
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
}

/* Finds a word and the character `end` after it, with optional spaces. *n: bytes of the word; *all: bytes in total. */
static int word(const pi__answer *a, char end, size_t *n, size_t *all)
{
    size_t i = a->at;
    while (i < a->n && i - a->at <= PI__ANSWER_NAME && is_word(a->buf[i])) i++;
    *n = i - a->at;
    while (i < a->n && i - a->at <= PI__ANSWER_NAME && a->buf[i] == ' ') i++;
    if (i == a->n && i - a->at <= PI__ANSWER_NAME) return PI__WAIT;
    *all = i - a->at + 1;
    return *n && i < a->n && a->buf[i] == end ? PI__GO : PI__FAIL;
}

static int open_list(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == '{') {
        pi__answer_start_json(a, NULL, false);
        return PI__GO;
    }
    if (a->buf[a->at] == '[') a->at++;
    a->step = NAME;
    return PI__GO;
}

static int name(pi__answer *a)
{
    size_t n, all;
    pi__answer_skip_white(a);
    int go = word(a, '(', &n, &all);
    if (go != PI__GO) return go;
    if (!pi__answer_begin_call(a, (pi__str) {a->buf + a->at, n}, (pi__str) {NULL, 0}) || !pi__answer_add_str(a, "{"))
        return PI__FAIL;
    a->at += all;
    a->step = KEY;
    return PI__GO;
}

static int end_call(pi__answer *a)
{
    a->at++;
    a->step = NEXT_CALL;
    return pi__answer_add_str(a, "}") && pi__answer_end_call(a) ? PI__GO : PI__FAIL;
}

static int key(pi__answer *a)
{
    size_t n, all;
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == ')') return end_call(a);
    int go = word(a, '=', &n, &all);
    if (go != PI__GO) return go;
    if (!pi__answer_add_key(a, (pi__str) {a->buf + a->at, n})) return PI__FAIL;
    a->at += all;
    a->seek = a->at;
    a->depth = 0;
    a->levels = 0;
    a->step = VALUE;
    return PI__GO;
}

/* ----------------------------------------------------------------------------------------------------------- values */

/* Converts one escape of a Python string at s to JSON's. Returns its bytes; 0 if s is too short. */
static size_t add_escape(pi__answer *a, pi__str s)
{
    char hex[7] = "\\u00";
    if (s.n < 2) return 0;
    switch (s.p[1]) {
    case '\'': return pi__answer_add_str(a, "'") ? 2 : 0;
    case 'x':
        if (s.n < 4) return 0;
        memcpy(hex + 4, s.p + 2, 2);
        return pi__answer_add_str(a, hex) ? 4 : 0;
    case '"': case '\\': case 'n': case 'r': case 't': case 'b': case 'f': case 'u':
        return pi__answer_add_args(a, s.p, 2) ? 2 : 0;
    default: return pi__answer_add_str(a, "\\\\") && pi__answer_add_escaped(a, s.p + 1, 1) ? 2 : 0;
    }
}

/* Converts a string that starts with its quote. Returns its bytes; 0 if it is invalid. */
static size_t add_string(pi__answer *a, pi__str s)
{
    size_t i = 1;
    if (!pi__answer_add_str(a, "\"")) return 0;
    while (i < s.n && s.p[i] != s.p[0]) {
        size_t n = i;
        while (n < s.n && s.p[n] != s.p[0] && s.p[n] != '\\') n++;
        if (!pi__answer_add_escaped(a, s.p + i, n - i)) return 0;
        i = n;
        if (i == s.n || s.p[i] != '\\') continue;
        n = add_escape(a, (pi__str) {s.p + i, s.n - i});
        if (!n) return 0;
        i += n;
    }
    return i < s.n && pi__answer_add_str(a, "\"") ? i + 1 : 0;
}

/* Emits a value as JSON. An invalid value gives invalid JSON, which the call's end detects. */
static bool add_value(pi__answer *a, pi__str s)
{
    static const char *const from[] = {"True", "False", "None"}, *const to[] = {"true", "false", "null"};
    for (size_t i = 0, n; i < s.n; i += n) {
        n = 0;
        if (s.p[i] == '\'' || s.p[i] == '"') {
            n = add_string(a, (pi__str) {s.p + i, s.n - i});
            if (!n) return false;
            continue;
        }
        while (i + n < s.n && is_word(s.p[i + n])) n++;
        for (int k = 0; k < 3 && n; k++) {
            if (n != strlen(from[k]) || memcmp(s.p + i, from[k], n) != 0) continue;
            if (!pi__answer_add_str(a, to[k])) return false;
            i += n;
            n = 0;
            break;
        }
        if (i < s.n && !n && s.p[i] != '\'' && s.p[i] != '"') n = 1;
        if (!pi__answer_add_args(a, s.p + i, n)) return false;
    }
    return true;
}

/* Collects a value up to the comma or parenthesis after it. levels: open quote or 0; depth: open brackets. */
static int value(pi__answer *a)
{
    size_t i = a->seek > a->at ? a->seek : a->at;
    for (; i < a->n; i++) {
        const char c = a->buf[i], quote = (char) a->levels;
        if (quote && c == '\\') {
            if (i + 1 == a->n) break; /* waits for the escaped character */
            i++;
        } else if (quote) {
            if (c == quote) a->levels = 0;
        } else if (c == '\'' || c == '"') {
            a->levels = (unsigned char) c;
        } else if (c == '[' || c == '{' || c == '(') {
            if (++a->depth > PI__ANSWER_DEPTH) return PI__FAIL;
        } else if (a->depth && (c == ']' || c == '}' || c == ')')) {
            a->depth--;
        } else if (c == ']' || c == '}') {
            return PI__FAIL;
        } else if (!a->depth && (c == ',' || c == ')')) {
            pi__str s = pi__answer_trim((pi__str) {a->buf + a->at, i - a->at});
            if (!s.n || !add_value(a, s)) return PI__FAIL;
            a->at = i + (c == ',');
            a->step = KEY;
            return PI__GO;
        }
    }
    a->seek = i;
    return PI__WAIT;
}

/* After a call: takes the next call, or the end of the list and its tag. */
static int next_call(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    const char c = a->buf[a->at];
    a->step = c == ',' ? NAME : CLOSE;
    if (c == ',' || c == ']') a->at++;
    a->raw = a->at;
    return PI__GO;
}

int pi__answer_python(pi__answer *a)
{
    if (a->step >= PI__STEP_JSON && a->step < PI__STEP_FORM) return pi__answer_json(a);
    switch (a->step) {
    case KEY: return key(a);
    case VALUE: return value(a);
    case NEXT_CALL: return next_call(a);
    case CLOSE: return pi__answer_close_list(a);
    case NAME: return name(a);
    default: return open_list(a);
    }
}
