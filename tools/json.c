/* Converts JSON text to values and back (see json.h). */
#include "json.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encoding.h"
#include "serve/buf.h"

static const char NUMBER_KEY[] = "\xFF"; /* key of the object that keeps a number's text */

typedef struct reader {
    const char *text; /* [n] */
    size_t n, at;     /* current position */
    buf s;            /* the current string, unescaped */
    json_fault *fault;
} reader;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool json_is_c_string(const json_t *v)
{
    return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v);
}

bool json_text_is(const json_t *v, const char *text)
{
    return json_is_c_string(v) && !strcmp(json_string_value(v), text);
}

const char *json_number_text(const json_t *v) { return json_string_value(json_object_get(v, NUMBER_KEY)); }

bool json_add_members(json_t *to, const json_t *from)
{
    const char *key;
    size_t len;
    json_t *one;
    bool ok = true;
    json_object_keylen_foreach((json_t *) (uintptr_t) from, key, len, one)
        ok &= !json_object_setn_new_nocheck(to, key, len, json_incref(one));
    return ok;
}

/* --------------------------------------------------------------------------------------------------------- reading */

/* Records the fault at the reader's position; returns NULL. */
static json_t *bad(reader *r, const char *what)
{
    json_fault *f = r->fault;
    if (f->what) return NULL;
    *f = (json_fault) {.line = 1, .column = 1, .what = what};
    for (size_t i = 0; i < r->at && i < r->n; i++) {
        if (r->text[i] == '\n') f->line++, f->column = 1;
        else f->column += ((unsigned char) r->text[i] & 0xC0) != 0x80;
    }
    return NULL;
}

static json_t *no_memory(reader *r)
{
    if (!r->fault->what) *r->fault = (json_fault) {.no_memory = true, .what = "out of memory"};
    return NULL;
}

static void skip_white(reader *r)
{
    while (r->at < r->n && (r->text[r->at] == ' ' || r->text[r->at] == '\t' || r->text[r->at] == '\n' ||
                            r->text[r->at] == '\r')) r->at++;
}

/* Skips white space, then consumes c if it is the next character. */
static bool next_is(reader *r, char c)
{
    skip_white(r);
    if (r->at >= r->n || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

/* Parses four hexadecimal digits at `at`; returns -1 if they are missing. */
static long hex4(const reader *r, size_t at)
{
    long v = 0;
    for (size_t i = at; i < at + 4; i++) {
        const char c = i < r->n ? r->text[i] : 0, low = (char) (c | 32);
        if (!is_digit(c) && (low < 'a' || low > 'f')) return -1;
        v = v << 4 | (is_digit(c) ? c - '0' : low - 'a' + 10);
    }
    return v;
}

static void put_utf8(buf *b, unsigned long cp)
{
    char out[4];
    size_t n = 0;
    if (cp < 0x80) {
        out[n++] = (char) cp;
    } else if (cp < 0x800) {
        out[n++] = (char) (0xC0 | cp >> 6);
    } else if (cp < 0x10000) {
        out[n++] = (char) (0xE0 | cp >> 12);
        out[n++] = (char) (0x80 | (cp >> 6 & 0x3F));
    } else {
        out[n++] = (char) (0xF0 | cp >> 18);
        out[n++] = (char) (0x80 | (cp >> 12 & 0x3F));
        out[n++] = (char) (0x80 | (cp >> 6 & 0x3F));
    }
    if (cp >= 0x80) out[n++] = (char) (0x80 | (cp & 0x3F));
    buf_put(b, out, n);
}

/* Parses the rest of a \u escape. A high surrogate and a following low one make one character; a lone surrogate
 * becomes U+FFFD. */
static bool read_unicode(reader *r)
{
    long cp = hex4(r, r->at);
    if (cp < 0) return bad(r, "expected four hexadecimal digits after \\u"), false;
    r->at += 4;
    if (cp >= 0xD800 && cp <= 0xDFFF) {
        const bool pair = cp <= 0xDBFF && r->n - r->at >= 6 && r->text[r->at] == '\\' && r->text[r->at + 1] == 'u';
        const long low = pair ? hex4(r, r->at + 2) : -1;
        const bool whole = low >= 0xDC00 && low <= 0xDFFF;
        cp = whole ? 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00) : 0xFFFD;
        if (whole) r->at += 6;
    }
    put_utf8(&r->s, (unsigned long) cp);
    return true;
}

static bool read_escape(reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = r->at < r->n ? r->text[r->at] : 0, *e = c ? strchr(from, c) : NULL;
    if (!e && c != 'u') return bad(r, "unknown escape"), false;
    r->at++;
    if (!e) return read_unicode(r);
    buf_put(&r->s, to + (e - from), 1);
    return true;
}

/* Parses a string into r->s. */
static bool read_string(reader *r)
{
    r->s.n = 0;
    r->at++;
    for (;;) {
        const size_t from = r->at;
        for (size_t len; r->at < r->n && r->text[r->at] != '"' && r->text[r->at] != '\\'; r->at += len) {
            if ((unsigned char) r->text[r->at] < 0x20)
                return bad(r, "a control character in a string must be written as \\u00XX"), false;
            if (!(len = utf8_char(r->text + r->at, r->n - r->at))) return bad(r, "the text is not UTF-8"), false;
        }
        buf_put(&r->s, r->text + from, r->at - from);
        if (r->at == r->n) return bad(r, "the text ends within a string"), false;
        if (r->text[r->at++] == '"') break;
        if (!read_escape(r)) return false;
    }
    return !r->s.failed || (no_memory(r), false);
}

/* Returns the length of the number at p by the grammar of RFC 8259; 0 if there is none. */
static size_t number_length(const char *p, size_t n, bool *whole)
{
    size_t i = n && p[0] == '-', from = i;
    *whole = true;
    while (i < n && is_digit(p[i])) i++;
    if (i == from || (p[from] == '0' && i > from + 1)) return 0;
    if (i < n && p[i] == '.') {
        for (from = ++i; i < n && is_digit(p[i]);) i++;
        if (i == from) return 0;
        *whole = false;
    }
    if (i < n && (p[i] == 'e' || p[i] == 'E')) {
        i += 1 + (i + 1 < n && (p[i + 1] == '+' || p[i + 1] == '-'));
        for (from = i; i < n && is_digit(p[i]);) i++;
        if (i == from) return 0;
        *whole = false;
    }
    return i;
}

static bool to_integer(const char *p, size_t n, json_int_t *out)
{
    const bool minus = *p == '-';
    *out = 0;
    for (size_t i = minus; i < n; i++) {
        const int d = p[i] - '0';
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, minus ? -d : d, out)) return false;
    }
    return true;
}

static json_t *as_text(const char *p, size_t n)
{
    json_t *o = json_object();
    if (o && !json_object_setn_new_nocheck(o, NUMBER_KEY, 1, json_stringn_nocheck(p, n))) return o;
    json_decref(o);
    return NULL;
}

static json_t *read_number(reader *r)
{
    bool whole;
    const char *p = r->text + r->at;
    const size_t n = number_length(p, r->n - r->at, &whole);
    json_int_t i;
    json_t *v;
    if (!n) return bad(r, "expected a value");
    if (whole && to_integer(p, n, &i)) {
        v = json_integer(i);
    } else {
        r->s.n = 0;
        buf_put(&r->s, p, n);
        if (r->s.failed) return no_memory(r);
        const double d = whole ? HUGE_VAL : strtod(r->s.p, NULL);
        v = isfinite(d) ? json_real(d) : as_text(p, n);
    }
    r->at += n;
    return v ? v : no_memory(r);
}

static json_t *read_word(reader *r)
{
    static const char *const words[] = {"null", "true", "false"};
    for (size_t i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (r->n - r->at < n || memcmp(r->text + r->at, words[i], n) != 0) continue;
        r->at += n;
        return i ? json_boolean(i == 1) : json_null();
    }
    return read_number(r);
}

static json_t *read_value(reader *r, int depth);

static bool read_list(reader *r, json_t *list, int depth)
{
    r->at++;
    if (next_is(r, ']')) return true;
    do {
        json_t *v = read_value(r, depth + 1);
        if (!v) return false;
        if (json_array_append_new(list, v)) return no_memory(r), false;
    } while (next_is(r, ','));
    return next_is(r, ']') || (bad(r, "expected , or ]"), false);
}

static bool read_member(reader *r, json_t *map, int depth)
{
    skip_white(r);
    if (r->at >= r->n || r->text[r->at] != '"') return bad(r, "expected a key in double quotes"), false;
    if (!read_string(r)) return false;
    buf key = r->s;
    r->s = (buf) {0};
    json_t *v = next_is(r, ':') ? read_value(r, depth + 1) : bad(r, "expected :");
    /* takes ownership of v, also on failure */
    const bool ok = v && !json_object_setn_new_nocheck(map, key.p, key.n, v);
    if (v && !ok) no_memory(r);
    buf_free(&key);
    return ok;
}

static bool read_map(reader *r, json_t *map, int depth)
{
    r->at++;
    if (next_is(r, '}')) return true;
    do {
        if (!read_member(r, map, depth)) return false;
    } while (next_is(r, ','));
    return next_is(r, '}') || (bad(r, "expected , or }"), false);
}

static json_t *read_value(reader *r, int depth)
{
    skip_white(r);
    if (r->at >= r->n) return bad(r, "the text ends where a value is expected");
    const char c = r->text[r->at];
    if (c == '"') {
        json_t *s = read_string(r) ? json_stringn_nocheck(r->s.p, r->s.n) : NULL;
        return s ? s : no_memory(r);
    }
    if (c != '[' && c != '{') return read_word(r);
    if (depth >= JSON_MAX_DEPTH) return bad(r, "lists and objects are nested too deeply; the limit is 256 levels");
    json_t *v = c == '[' ? json_array() : json_object();
    if (!v) return no_memory(r);
    if (c == '[' ? read_list(r, v, depth) : read_map(r, v, depth)) return v;
    json_decref(v);
    return NULL;
}

json_t *json_read(const char *p, size_t n, json_fault *fault)
{
    json_fault ignored;
    reader r = {.text = p, .n = n, .fault = fault ? fault : &ignored};
    *r.fault = (json_fault) {0};
    if (n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3)) r.text += 3, r.n -= 3;
    json_t *v = read_value(&r, 0);
    skip_white(&r);
    if (v && r.at < r.n) {
        json_decref(v);
        v = bad(&r, "unexpected text after the value");
    }
    buf_free(&r.s);
    return v;
}

/* --------------------------------------------------------------------------------------------------------- writing */

static void write_string(buf *b, const char *p, size_t n)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    buf_put(b, "\"", 1);
    for (size_t i = 0, start = 0; i <= n; i++) {
        const bool plain = i < n && (unsigned char) p[i] >= 0x20 && p[i] != '"' && p[i] != '\\';
        if (plain) continue;
        buf_put(b, p + start, i - start);
        start = i + 1;
        if (i == n) break;
        const char *e = p[i] ? strchr(from, p[i]) : NULL;
        if (e) buf_put(b, (char[]) {'\\', to[e - from]}, 2);
        else buf_fmt(b, "\\u%04x", (unsigned char) p[i]);
    }
    buf_put(b, "\"", 1);
}

/* Writes a real number with a point or an exponent, so that it is parsed as real again. */
static void write_real(buf *b, double d, int precision)
{
    char text[40];
    snprintf(text, sizeof text, "%.*g", precision ? precision : 15, d);
    for (int p = 16; !precision && p <= 17 && strtod(text, NULL) != d; p++) snprintf(text, sizeof text, "%.*g", p, d);
    buf_str(b, text);
    if (!strpbrk(text, ".e")) buf_str(b, ".0");
}

static void write_value(buf *b, const json_t *v, int precision)
{
    const char *key, *number;
    size_t len, i;
    json_t *one;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        if ((number = json_number_text(v))) {
            buf_str(b, number);
            break;
        }
        buf_put(b, "{", 1);
        i = 0;
        json_object_keylen_foreach((json_t *) (uintptr_t) v, key, len, one) {
            if (i++) buf_put(b, ",", 1);
            write_string(b, key, len);
            buf_put(b, ":", 1);
            write_value(b, one, precision);
        }
        buf_put(b, "}", 1);
        break;
    case JSON_ARRAY:
        buf_put(b, "[", 1);
        json_array_foreach(v, i, one) {
            if (i) buf_put(b, ",", 1);
            write_value(b, one, precision);
        }
        buf_put(b, "]", 1);
        break;
    case JSON_STRING: write_string(b, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: buf_fmt(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v)); break;
    case JSON_REAL: write_real(b, json_real_value(v), precision); break;
    case JSON_TRUE: buf_str(b, "true"); break;
    case JSON_FALSE: buf_str(b, "false"); break;
    case JSON_NULL: buf_str(b, "null"); break;
    }
}

char *json_write(const json_t *v, int precision)
{
    buf b = {0};
    if (!v) return NULL;
    write_value(&b, v, precision);
    if (!b.failed) return b.p;
    buf_free(&b);
    return NULL;
}
