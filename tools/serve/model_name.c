/* The model of a request (see model_name.h). */
#include "serve/model_name.h"

#include <string.h>

#include "json.h"

typedef struct scan {
    const char *p, *end;
} scan;

static void skip_space(scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')) s->p++;
}

/* Skips one character after white space. Returns false if it is another one. */
static bool skip_char(scan *s, char c)
{
    skip_space(s);
    if (s->p >= s->end || *s->p != c) return false;
    s->p++;
    return true;
}

/* Skips a string; s->p is at its quote. Returns false if the closing quote is missing. */
static bool skip_string(scan *s)
{
    for (s->p++; s->p < s->end; s->p++) {
        if (*s->p == '\\') s->p++;
        else if (*s->p == '"') return s->p++, true;
    }
    s->p = s->end;
    return false;
}

/* Skips a value, without checking more than strings and the number of open brackets. */
static bool skip_value(scan *s)
{
    size_t depth = 0;
    skip_space(s);
    while (s->p < s->end) {
        const char c = *s->p;
        if (!depth && (c == ',' || c == '}' || c == ']')) return true;
        if (c == '"') {
            if (!skip_string(s)) return false;
            continue;
        }
        if (c == '{' || c == '[') depth++;
        else if (c == '}' || c == ']') depth--;
        s->p++;
    }
    return false;
}

/* True if the quoted text of n bytes is this word; escapes are decoded. */
static bool is_word(const char *p, size_t n, const char *word)
{
    json_fault fault;
    const size_t len = strlen(word);
    if (!memchr(p, '\\', n)) return n == len + 2 && !memcmp(p + 1, word, len);
    if (n > len * 6 + 2) return false;
    json_t *v = json_read(p, n, &fault);
    const bool same = json_text_is(v, word);
    json_decref(v);
    return same;
}

/* Sets the model from the value's text, without the white space before it. */
static void take_model(const char *p, size_t n, body_fields *out)
{
    json_fault fault = {0};
    *out->model = 0;
    out->fault = BODY_NOT_TEXT;
    if (n >= 4 && !memcmp(p, "null", 4)) out->fault = BODY_NO_MODEL;
    if (!n || *p != '"') return;
    while (n && p[n - 1] != '"') n--; /* white space after the value */
    if (n > MODEL_NAME_MAX * 6) {
        memset(out->model, '?', sizeof out->model - 1); /* longer than any name */
        out->model[sizeof out->model - 1] = 0;
        out->fault = BODY_OK;
        return;
    }
    json_t *v = json_read(p, n, &fault);
    if (json_is_c_string(v)) {
        out->fault = BODY_OK;
        strncpy(out->model, json_string_value(v), sizeof out->model - 1);
        out->model[sizeof out->model - 1] = 0;
    } else if (!v && fault.no_memory) {
        out->fault = BODY_NO_MEMORY;
    }
    json_decref(v);
}

static bool scan_member(scan *s, const char *name, body_fields *out)
{
    skip_space(s);
    const char *key = s->p;
    if (s->p >= s->end || *s->p != '"' || !skip_string(s)) return false;
    const size_t n_key = (size_t) (s->p - key);
    if (!skip_char(s, ':')) return false;
    skip_space(s);
    const char *value = s->p;
    if (!skip_value(s)) return false;
    const size_t n = (size_t) (s->p - value);
    if (is_word(key, n_key, name)) take_model(value, n, out);
    else if (is_word(key, n_key, "stream")) out->stream = n >= 4 && !memcmp(value, "true", 4);
    return true;
}

void body_scan(const char *p, size_t n, const char *key, body_fields *out)
{
    scan s = {p, p + n};
    *out = (body_fields) {.fault = BODY_NOT_OBJECT};
    if (n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3)) s.p += 3;
    if (!n || !skip_char(&s, '{')) return;
    out->fault = BODY_NO_MODEL;
    if (skip_char(&s, '}')) return;
    bool whole;
    do whole = scan_member(&s, key, out);
    while (whole && skip_char(&s, ','));
    if (out->fault == BODY_NO_MODEL && !(whole && skip_char(&s, '}'))) out->fault = BODY_NOT_OBJECT;
}

/* ---------------------------------------------------------------------------------------------------- query strings */

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool decode(const char *p, size_t n, char *out, size_t cap)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++, k++) {
        char c = p[i] == '+' ? ' ' : p[i];
        if (c == '%') {
            if (n - i < 3 || hex(p[i + 1]) < 0 || hex(p[i + 2]) < 0) return false;
            c = (char) (hex(p[i + 1]) * 16 + hex(p[i + 2]));
            i += 2;
        }
        if (!c || k + 1 >= cap) return false;
        out[k] = c;
    }
    out[k] = 0;
    return true;
}

bool query_value(const char *query, size_t n, const char *name, char *out, size_t cap)
{
    const size_t len = strlen(name);
    for (size_t i = 0; i < n;) {
        const char *p = query + i + 1, *amp = memchr(p, '&', n - i - 1);
        const size_t part = amp ? (size_t) (amp - p) : n - i - 1;
        if (part > len && !memcmp(p, name, len) && p[len] == '=')
            return decode(p + len + 1, part - len - 1, out, cap);
        i += part + 1;
    }
    return false;
}
