/* Gemma 4's calls (see answer_impl.h), converted to JSON as they stream:
 *
 *     <|tool_call>call:NAME{key:<|"|>text<|"|>,n:1,list:[1,true],map:{key:null}}<tool_call|>
 *
 * Keys are bare or quoted like strings. In a string, everything up to the next quote is text. */
#include "template/answer_impl.h"

#include <string.h>

#define QUOTE "<|\"|>"

enum { /* steps */
    NAME = PI__STEP_FORM, KEY, QUOTED_KEY, VALUE, STRING, JSON_STRING, NEXT, CLOSE = PI__GEMMA_CLOSE,
};

enum { NUMBER_MAX = 64 }; /* bytes of a number or word */

static bool in_map(const pi__answer *a) { return a->levels >> (a->depth - 1) & 1; }

static bool push(pi__answer *a, bool map)
{
    if (a->depth == PI__ANSWER_DEPTH) return false;
    a->levels = (a->levels & ~((uint64_t) 1 << a->depth)) | (uint64_t) map << a->depth;
    a->depth++;
    a->first = true;
    a->step = map ? KEY : VALUE;
    return pi__answer_add_str(a, map ? "{" : "[");
}

/* Ends a list or map at the character c. */
static int pop(pi__answer *a, char c)
{
    if (c != (in_map(a) ? '}' : ']') || !pi__answer_add_args(a, &c, 1)) return PI__FAIL;
    a->at++;
    a->depth--;
    a->first = false;
    a->step = a->depth ? NEXT : CLOSE;
    return PI__GO;
}

static int open_tag(pi__answer *a)
{
    static const char *const word[] = {"call:"};
    pi__answer_skip_white(a);
    int i = pi__answer_pick(a, word, 1);
    if (i >= 0) a->step = NAME;
    return i == -1 ? PI__WAIT : i < 0 ? PI__FAIL : PI__GO;
}

static int name(pi__answer *a)
{
    size_t n;
    int go = pi__answer_until(a, "{", PI__ANSWER_NAME, &n);
    if (go != PI__GO) return go;
    pi__str s = pi__answer_trim((pi__str) {a->buf + a->at, n});
    a->depth = 0;
    if (!pi__answer_begin_call(a, s, (pi__str) {NULL, 0}) || !push(a, true)) return PI__FAIL;
    a->at += n + 1;
    return PI__GO;
}

static bool add_key(pi__answer *a, pi__str key)
{
    bool ok = pi__answer_add_str(a, a->first ? "\"" : ", \"") && pi__answer_add_escaped(a, key.p, key.n) &&
              pi__answer_add_str(a, "\": ");
    a->first = false;
    a->step = VALUE;
    return ok;
}

static int key(pi__answer *a)
{
    static const char *const quote[] = {QUOTE};
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    if (a->buf[a->at] == '}' && a->first) return pop(a, '}');
    int q = pi__answer_pick(a, quote, 1);
    if (q == -1) return PI__WAIT;
    if (q == 0) a->step = QUOTED_KEY;
    if (q == 0) return PI__GO;
    size_t n = 0, room = a->n - a->at;
    while (n < room && n < PI__ANSWER_NAME && !strchr(":{}[],<", a->buf[a->at + n])) n++;
    if (n == room && n < PI__ANSWER_NAME) return PI__WAIT;
    pi__str s = pi__answer_trim((pi__str) {a->buf + a->at, n});
    if (n == room || a->buf[a->at + n] != ':' || !s.n || !add_key(a, s)) return PI__FAIL;
    a->at += n + 1;
    return PI__GO;
}

static int quoted_key(pi__answer *a)
{
    size_t n;
    int go = pi__answer_until(a, QUOTE ":", PI__ANSWER_NAME, &n);
    if (go != PI__GO) return go;
    if (!add_key(a, (pi__str) {a->buf + a->at, n})) return PI__FAIL;
    a->at += n + sizeof QUOTE;
    return PI__GO;
}

/* Appends the separator before a list element. */
static bool separate(pi__answer *a)
{
    bool ok = in_map(a) || a->first || pi__answer_add_str(a, ", ");
    a->first = false;
    return ok;
}

/* Takes a number or word. */
static int scalar(pi__answer *a)
{
    size_t n = 0, room = a->n - a->at;
    while (n < room && n < NUMBER_MAX && !strchr(",}]<", a->buf[a->at + n])) n++;
    if (n == NUMBER_MAX) return PI__FAIL;
    if (n == room) return PI__WAIT;
    a->strict = true;
    if (!separate(a) || !pi__answer_add_value(a, (pi__str) {a->buf + a->at, n})) return PI__FAIL;
    a->at += n;
    a->step = NEXT;
    return PI__GO;
}

static int value(pi__answer *a)
{
    static const char *const quote[] = {QUOTE};
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    char c = a->buf[a->at];
    if (c == ']' && a->first && !in_map(a)) return pop(a, c);
    int q = pi__answer_pick(a, quote, 1);
    if (q == -1) return PI__WAIT;
    if (q == 0) {
        a->step = STRING;
        return separate(a) && pi__answer_add_str(a, "\"") ? PI__GO : PI__FAIL;
    }
    if (c == '"') { /* not the template's syntax, but unambiguous */
        if (!separate(a)) return PI__FAIL;
        pi__answer_scan_start(a, JSON_STRING);
        return PI__GO;
    }
    if (c != '{' && c != '[') return scalar(a);
    if (!separate(a) || !push(a, c == '{')) return PI__FAIL;
    a->at++;
    return PI__GO;
}

static int string(pi__answer *a)
{
    a->seek = a->at;
    size_t end = pi__answer_find(a, QUOTE), to = end == SIZE_MAX ? a->seek : end;
    while (end == SIZE_MAX && to < a->n && memcmp(a->buf + to, QUOTE, a->n - to) != 0) to++;
    if (!pi__answer_add_escaped(a, a->buf + a->at, to - a->at)) return PI__FAIL;
    a->at = to;
    if (end == SIZE_MAX) return PI__WAIT;
    a->at += sizeof QUOTE - 1;
    a->step = NEXT;
    return pi__answer_add_str(a, "\"") ? PI__GO : PI__FAIL;
}

static int next(pi__answer *a)
{
    pi__answer_skip_white(a);
    if (a->at == a->n) return PI__WAIT;
    char c = a->buf[a->at];
    if (c != ',') return pop(a, c);
    a->at++;
    a->step = in_map(a) ? KEY : VALUE;
    return PI__GO;
}

static int close_call(pi__answer *a)
{
    pi__answer_skip_white(a);
    int i = pi__answer_pick(a, &a->form->close, 1);
    if (i < 0) return i == -1 ? PI__WAIT : PI__FAIL;
    return pi__answer_end_call(a) ? PI__LEAVE : PI__FAIL;
}

int pi__answer_gemma(pi__answer *a)
{
    switch (a->step) {
    case PI__STEP_OPEN: return open_tag(a);
    case NAME: return name(a);
    case KEY: return key(a);
    case QUOTED_KEY: return quoted_key(a);
    case VALUE: return value(a);
    case STRING: return string(a);
    case JSON_STRING: return pi__answer_scan(a, true, NEXT);
    case NEXT: return next(a);
    default: return close_call(a);
    }
}
