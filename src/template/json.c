/* JSON parser (RFC 8259). A byte order mark at the start is ignored, and lone surrogates become U+FFFD.
 *
 * All of the text is checked for UTF-8 first; after that, a string without escapes is a slice of it. Depth
 * (PI__VAL_DEPTH) and memory (the zone) are bounded. For a duplicate key the last value counts, as in Python. The only
 * state is the zone: any thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "template/value.h"

typedef struct reader {
    pi__zone *z;
    const char *text; /* [n] */
    size_t n, at;     /* current byte offset */
    const char *what; /* name of the text in messages */
    pi_error *err;
    int code;         /* PI_OK, or the first error */
} reader;

/* Sets the error, with the current line and column. */
static bool bad(reader *r, const char *why)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < r->at; i++) {
        if (r->text[i] == '\n') line++, column = 1;
        else column += ((unsigned char) r->text[i] & 0xC0) != 0x80;
    }
    r->code = pi__fail(r->err, PI_EINVAL, "%s: line %zu, column %zu: %s", r->what, line, column, why);
    return false;
}

static bool no_room(reader *r)
{
    r->code = pi__zone_fail(r->z, r->err, r->what);
    return false;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* --------------------------------------------------------------------------------------------------------- numbers */

/* Returns m * 10^e. Up to 19 digits and small exponents are exact in the wider type, then rounded once. */
static double scaled(uint64_t m, int e)
{
    long double x = (long double) m, ten = 10, p = 1;
    int k = e < 0 ? -e : e;
    if (!m) return 0;
    if (k > 400) return e < 0 ? 0 : (double) INFINITY;
    for (; k; k >>= 1, ten *= ten)
        if (k & 1) p *= ten;
    return (double) (e < 0 ? x / p : x * p);
}

size_t pi__number_read(const char *p, size_t n, pi__val *out)
{
    size_t i = 0, digits = 0;
    bool minus = n && p[0] == '-', whole = true, wide = false;
    uint64_t m = 0;
    int e = 0;
    for (i = minus; i < n; i++) {
        if (p[i] == '.' && whole && digits && i + 1 < n && is_digit(p[i + 1])) {
            whole = false;
            continue;
        }
        if (!is_digit(p[i])) break;
        digits++;
        if (m <= (UINT64_MAX - 9) / 10) {
            m = m * 10 + (uint64_t) (p[i] - '0');
            e -= !whole;
        } else {
            wide = true;
            e += whole && e < 100000;
        }
    }
    if (!digits) return 0;
    size_t k = i + 1;
    bool down = k < n && p[k] == '-';
    if (k < n && (p[k] == '-' || p[k] == '+')) k++;
    if (i < n && (p[i] == 'e' || p[i] == 'E') && k < n && is_digit(p[k])) {
        int x = 0;
        for (; k < n && is_digit(p[k]); k++) x = x > 99999 ? x : x * 10 + (p[k] - '0');
        e += down ? -x : x;
        whole = false;
        i = k;
    }
    if (whole && !wide && m <= (uint64_t) INT64_MAX) *out = pi__val_int(minus ? -(int64_t) m : (int64_t) m);
    else *out = pi__val_float(minus ? -scaled(m, e) : scaled(m, e));
    return i;
}

static bool read_number(reader *r, pi__val *out)
{
    const char *p = r->text + r->at;
    size_t left = r->n - r->at, len = pi__number_read(p, left, out), first = *p == '-';
    if (!len) return bad(r, "not a value");
    if (p[first] == '0' && first + 1 < len && is_digit(p[first + 1])) return bad(r, "a number must not start with 0");
    r->at += len;
    if (out->type == PI__V_FLOAT && len <= UINT32_MAX) {
        out->text = p;
        out->n_text = (uint32_t) len;
    }
    if (len < left && (p[len] == '.' || p[len] == 'e' || p[len] == 'E')) return bad(r, "the number is incomplete");
    return true;
}

/* --------------------------------------------------------------------------------------------------------- strings */

static bool read_hex(reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = r->at < r->n ? r->text[r->at] : 0;
        int d = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0) return bad(r, "\\u needs four hexadecimal digits");
        *out = *out << 4 | (uint32_t) d;
        r->at++;
    }
    return true;
}

/* Reads a character after "\u"; a surrogate pair is two escapes. */
static bool read_unicode(reader *r, uint32_t *cp)
{
    uint32_t low;
    if (!read_hex(r, cp)) return false;
    if (*cp < 0xD800 || *cp > 0xDFFF) return true;
    const uint32_t high = *cp;
    *cp = 0xFFFD;
    if (high > 0xDBFF || r->n - r->at < 2 || r->text[r->at] != '\\' || r->text[r->at + 1] != 'u') return true;
    const size_t next = r->at;
    r->at += 2;
    if (!read_hex(r, &low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) r->at = next; /* an independent character */
    else *cp = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

static bool read_escape(reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", is[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->n ? r->text[r->at] : 0;
    const char *e = c ? strchr(from, c) : NULL;
    uint32_t cp;
    if (!e && c != 'u') return bad(r, "this escape does not exist");
    r->at++;
    if (e) {
        *(*to)++ = is[e - from];
        return true;
    }
    if (!read_unicode(r, &cp)) return false;
    *to += pi__utf8_put(cp, *to);
    return true;
}

/* Decodes a string with escapes up to `end`. The result is never longer than the source. */
static bool unescape(reader *r, size_t end, pi__str *out)
{
    char *p = pi__zone_take(r->z, end - r->at), *to = p;
    if (!p) return no_room(r);
    while (r->at < end) {
        char c = r->text[r->at++];
        if (c != '\\') *to++ = c;
        else if (!read_escape(r, &to)) return false;
    }
    *out = (pi__str) {p, (size_t) (to - p)};
    return true;
}

static bool read_string(reader *r, pi__str *out)
{
    size_t start = ++r->at, end = start;
    bool escapes = false;
    while (end < r->n && r->text[end] != '"' && (unsigned char) r->text[end] >= 0x20) {
        escapes |= r->text[end] == '\\';
        end += 1 + (r->text[end] == '\\' && end + 1 < r->n);
    }
    if (end >= r->n || r->text[end] != '"') {
        r->at = end < r->n ? end : r->n;
        return bad(r, end < r->n ? "a control character in a string; write it as \\u00XX" : "the string has no end");
    }
    if (!escapes) *out = (pi__str) {r->text + start, end - start};
    else if (!unescape(r, end, out)) return false;
    r->at = end + 1;
    return pi__work_step(r->z->work, (end - start) / 16) || no_room(r);
}

/* ---------------------------------------------------------------------------------------------------------- values */

static bool read_value(reader *r, pi__val *out, int depth);

static void skip_white(reader *r)
{
    while (r->at < r->n && r->text[r->at] && strchr(" \t\r\n", r->text[r->at])) r->at++;
}

/* True if the next character is c, which is consumed. */
static bool next_is(reader *r, char c)
{
    skip_white(r);
    if (r->at >= r->n || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

static bool read_list(reader *r, pi__val *out, int depth)
{
    r->at++;
    if (!pi__val_new_list(r->z, 0, out)) return no_room(r);
    if (next_is(r, ']')) return true;
    do {
        pi__val v;
        if (!read_value(r, &v, depth + 1)) return false;
        if (!pi__list_add(r->z, out->list, v)) return no_room(r);
    } while (next_is(r, ','));
    return next_is(r, ']') || bad(r, "expected , or ]");
}

static bool read_map(reader *r, pi__val *out, int depth)
{
    r->at++;
    if (!pi__val_new_map(r->z, out)) return no_room(r);
    if (next_is(r, '}')) return true;
    do {
        pi__str key;
        pi__val v;
        skip_white(r);
        if (r->at >= r->n || r->text[r->at] != '"') return bad(r, "expected a key in quotes");
        if (!read_string(r, &key)) return false;
        if (!next_is(r, ':')) return bad(r, "expected :");
        if (!read_value(r, &v, depth + 1)) return false;
        if (!pi__dict_set(r->z, out->map, pi__val_str(key), v)) return no_room(r);
    } while (next_is(r, ','));
    return next_is(r, '}') || bad(r, "expected , or }");
}

static bool read_word(reader *r, pi__val *out)
{
    static const struct {
        const char *text;
        uint8_t type;
        bool b;
    } words[] = {{"null", PI__V_NONE, false}, {"true", PI__V_BOOL, true}, {"false", PI__V_BOOL, false}};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i].text);
        if (r->n - r->at < n || memcmp(r->text + r->at, words[i].text, n)) continue;
        *out = (pi__val) {.type = words[i].type, .b = words[i].b};
        r->at += n;
        return true;
    }
    return read_number(r, out);
}

static bool read_value(reader *r, pi__val *out, int depth)
{
    if (depth > PI__VAL_DEPTH) return bad(r, "lists and objects are nested too deeply");
    if (!pi__work_step(r->z->work, 2)) return no_room(r);
    skip_white(r);
    if (r->at >= r->n) return bad(r, "the text ends where a value is expected");
    switch (r->text[r->at]) {
    case '[': return read_list(r, out, depth);
    case '{': return read_map(r, out, depth);
    case '"':
        out->type = PI__V_STR;
        return read_string(r, &out->s);
    default: return read_word(r, out);
    }
}

int pi__json_read(pi__zone *z, const char *text, size_t n, const char *what, pi__val *out, pi_error *err)
{
    reader r = {z, text, n, 0, what, err, PI_OK};
    r.at = pi__utf8_valid(text, n);
    if (r.at < n) {
        bad(&r, "not UTF-8");
        return r.code;
    }
    r.at = n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
    if (!read_value(&r, out, 0)) return r.code;
    skip_white(&r);
    if (r.at < n) bad(&r, "something follows the value");
    return r.code;
}
