/* Values as text: Python's str() and repr(), and json.dumps, because templates are written for these.
 *
 * Memory: a growing buffer with a limit (pi__text). It keeps the first error and ignores later additions, so writers
 * need not check each step. Threads: any, each with its own buffer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "base/unicode.h"
#include "template/value.h"

/* For a text that keeps trust: grows the capacity to at least n bytes, each for the text and for the flags after it. */
static bool grow_both(pi__text *t, size_t n)
{
    if (n <= t->cap) return true;
    size_t cap = t->cap + t->cap / 2 < n ? n : t->cap + t->cap / 2, size;
    if (cap < 64) cap = 64;
    char *p = pi__mul_ok(cap, 2, &size) ? pi__malloc(size) : NULL;
    if (!p) return false;
    if (t->n) memcpy(p, t->p, t->n);
    if (t->n) memcpy(p + cap, t->p + t->cap, t->n);
    pi__free(t->p);
    t->p = p;
    t->cap = cap;
    return true;
}

void pi__text_add(pi__text *t, const char *p, size_t n)
{
    if (t->code || !n) return;
    if (n > t->limit - t->n) {
        t->code = PI_ETOOBIG;
        return;
    }
    if (t->keeps_trust ? !grow_both(t, t->n + n) : !pi__grow(&t->p, &t->cap, t->n + n, 1)) {
        t->code = PI_ENOMEM;
        return;
    }
    memcpy(t->p + t->n, p, n);
    if (t->keeps_trust && t->zone) pi__zone_trust(t->zone, p, n, t->p + t->cap + t->n);
    else if (t->keeps_trust) memset(t->p + t->cap + t->n, 0, n);
    t->n += n;
}

pi__str pi__text_copy(const pi__text *t, size_t from, pi__zone *z)
{
    const char *flags = pi__text_trust(t);
    size_t n = t->n - from;
    if (!n) return (pi__str) {"", 0};
    pi__str s = pi__zone_concat(z, (pi__str) {"", 0}, (pi__str) {t->p + from, n});
    if (s.p && flags) pi__zone_set_trust(z, s.p, n, flags + from);
    return s;
}

void pi__text_str(pi__text *t, const char *text) { pi__text_add(t, text, strlen(text)); }

/* --------------------------------------------------------------------------------------------------------- numbers */

static void add_int(pi__text *t, int64_t i)
{
    char b[32];
    pi__text_add(t, b, (size_t) snprintf(b, sizeof b, "%lld", (long long) i));
}

/* Stores the shortest decimal digits that read back as f, and the decimal exponent of the first digit. Returns the
 * number of digits. Independent of the locale. */
static int shortest(double f, char digits[24], int *exponent)
{
    char b[64];
    for (int p = 0; p <= 16; p++) {
        snprintf(b, sizeof b, "%.*e", p, f);
        if (strtod(b, NULL) == f) break;
    }
    int n = 0;
    const char *q = b;
    for (; *q && *q != 'e'; q++)
        if (*q >= '0' && *q <= '9' && n < 20) digits[n++] = *q;
    *exponent = atoi(q + 1);
    while (n > 1 && digits[n - 1] == '0') n--;
    digits[n] = 0;
    return n;
}

/* Appends a float as float.__repr__ does. */
static void add_float(pi__text *t, double f, const char *nan, const char *inf)
{
    char digits[24], b[64];
    int e, n;
    if (isnan(f)) {
        pi__text_str(t, nan);
        return;
    }
    if (signbit(f)) pi__text_str(t, "-");
    f = fabs(f);
    if (isinf(f)) {
        pi__text_str(t, inf);
        return;
    }
    n = shortest(f, digits, &e);
    if (e < -4 || e >= 16) {
        snprintf(b, sizeof b, "%c%s%se%s%02d", digits[0], n > 1 ? "." : "", digits + 1, e < 0 ? "-" : "+", abs(e));
        pi__text_str(t, b);
        return;
    }
    if (e < 0) {
        pi__text_add(t, "0.0000", (size_t) (1 - e));
        pi__text_add(t, digits, (size_t) n);
        return;
    }
    for (int i = 0; i <= e; i++) pi__text_add(t, i < n ? digits + i : "0", 1);
    pi__text_str(t, ".");
    pi__text_str(t, n > e + 1 ? digits + e + 1 : "0");
}

/* ---------------------------------------------------------------------------------------------------- str and repr */

static void repr_str(pi__text *t, pi__str s)
{
    bool single = s.n && memchr(s.p, '\'', s.n), twice = s.n && memchr(s.p, '"', s.n);
    char quote = single && !twice ? '"' : '\'';
    pi__text_add(t, &quote, 1);
    for (size_t i = 0, len; i < s.n && !t->code; i += len) {
        uint32_t cp = 0;
        char b[16];
        len = pi__utf8_char(s.p + i, s.n - i, &cp);
        if (!len) len = 1;
        if (cp == '\\' || cp == (uint32_t) quote) snprintf(b, sizeof b, "\\%c", (char) cp);
        else if (cp == '\n') snprintf(b, sizeof b, "\\n");
        else if (cp == '\r') snprintf(b, sizeof b, "\\r");
        else if (cp == '\t') snprintf(b, sizeof b, "\\t");
        else if (cp < 0x100 && !pi__uis(cp, PI__U_PRINT)) snprintf(b, sizeof b, "\\x%02x", (unsigned) cp);
        else if (!pi__uis(cp, PI__U_PRINT)) snprintf(b, sizeof b, cp < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned) cp);
        else {
            pi__text_add(t, s.p + i, len);
            continue;
        }
        pi__text_str(t, b);
    }
    pi__text_add(t, &quote, 1);
}

static void repr_list(pi__text *t, const pi__list *l, int depth)
{
    pi__text_str(t, l->tuple ? "(" : "[");
    for (size_t i = 0; i < l->n && !t->code; i++) {
        if (i) pi__text_str(t, ", ");
        pi__text_repr(t, &l->v[i], depth + 1);
    }
    pi__text_str(t, !l->tuple ? "]" : l->n == 1 ? ",)" : ")");
}

static void repr_map(pi__text *t, const pi__dict *m, int depth)
{
    pi__text_str(t, "{");
    for (size_t i = 0; i < m->n && !t->code; i++) {
        if (i) pi__text_str(t, ", ");
        pi__text_repr(t, &m->e[i].key, depth + 1);
        pi__text_str(t, ": ");
        pi__text_repr(t, &m->e[i].value, depth + 1);
    }
    pi__text_str(t, "}");
}

void pi__text_repr(pi__text *t, const pi__val *v, int depth)
{
    if (depth > PI__VAL_DEPTH && !t->code) t->code = PI_ETOOBIG;
    if (t->code) return;
    switch (v->type) {
    case PI__V_UNDEFINED: pi__text_str(t, "Undefined"); break;
    case PI__V_NONE: pi__text_str(t, "None"); break;
    case PI__V_BOOL: pi__text_str(t, v->b ? "True" : "False"); break;
    case PI__V_INT: add_int(t, v->i); break;
    case PI__V_FLOAT: add_float(t, v->f, "nan", "inf"); break;
    case PI__V_STR: repr_str(t, v->s); break;
    case PI__V_LIST: repr_list(t, v->list, depth); break;
    case PI__V_MAP: repr_map(t, v->map, depth); break;
    case PI__V_NAMESPACE:
        pi__text_str(t, "<Namespace ");
        repr_map(t, v->map, depth);
        pi__text_str(t, ">");
        break;
    default:
        pi__text_str(t, "<");
        pi__text_str(t, pi__val_type_name(v));
        pi__text_str(t, ">");
    }
}

void pi__text_value(pi__text *t, const pi__val *v)
{
    if (v->type == PI__V_STR) pi__text_add(t, v->s.p, v->s.n);
    else if (v->type != PI__V_UNDEFINED) pi__text_repr(t, v, 0);
}

/* ------------------------------------------------------------------------------------------------------------ JSON */

pi__json_style pi__json_plain(void)
{
    return (pi__json_style) {.item_sep = pi__str_of(", "), .key_sep = pi__str_of(": ")};
}

static void json_escape(pi__text *t, uint32_t cp)
{
    char b[16];
    if (cp >= 0x10000) snprintf(b, sizeof b, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + (cp & 0x3FF));
    else snprintf(b, sizeof b, "\\u%04x", cp);
    pi__text_str(t, b);
}

static void json_str(pi__text *t, pi__str s, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    pi__text_str(t, "\"");
    size_t plain = 0; /* start of the bytes that need no escape */
    for (size_t i = 0, len; i < s.n && !t->code; i += len) {
        uint32_t cp = 0;
        len = pi__utf8_char(s.p + i, s.n - i, &cp);
        if (!len) len = 1;
        const char *e = cp && cp < 0x80 ? strchr(from, (int) cp) : NULL;
        if (!e && cp >= 0x20 && (!ascii || cp < 0x7F)) continue;
        pi__text_add(t, s.p + plain, i - plain);
        plain = i + len;
        if (e) {
            char b[2] = {'\\', to[e - from]};
            pi__text_add(t, b, 2);
        } else if (cp == 0x7F) {
            pi__text_add(t, s.p + i, 1);
        } else {
            json_escape(t, cp);
        }
    }
    pi__text_add(t, s.p + plain, s.n - plain);
    pi__text_str(t, "\"");
}

typedef struct dump {
    pi__text *t;
    const pi__json_style *style;
    const char *what; /* type that JSON cannot represent; NULL = none so far */
} dump;

static bool dump_value(dump *d, const pi__val *v, int depth);

static void new_line(dump *d, int depth)
{
    if (!d->style->pretty) return;
    pi__text_str(d->t, "\n");
    for (int i = 0; i < depth; i++) pi__text_add(d->t, d->style->indent.p, d->style->indent.n);
}

static bool dump_list(dump *d, const pi__list *l, int depth)
{
    if (!l->n) pi__text_str(d->t, "[]");
    if (!l->n) return true;
    pi__text_str(d->t, "[");
    for (size_t i = 0; i < l->n && !d->t->code; i++) {
        if (i) pi__text_add(d->t, d->style->item_sep.p, d->style->item_sep.n);
        new_line(d, depth + 1);
        if (!dump_value(d, &l->v[i], depth + 1)) return false;
    }
    new_line(d, depth);
    pi__text_str(d->t, "]");
    return true;
}

static bool dump_key(dump *d, const pi__val *k)
{
    if (k->type == PI__V_STR) {
        json_str(d->t, k->s, d->style->ascii);
        return true;
    }
    pi__text_str(d->t, "\"");
    bool ok = dump_value(d, k, 0);
    pi__text_str(d->t, "\"");
    return ok;
}

static int by_key(const void *a, const void *b)
{
    const pi__entry *const *x = a, *const *y = b;
    int c = 0;
    if (!pi__val_compare(&(*x)->key, &(*y)->key, &c)) c = (*x)->key.type - (*y)->key.type;
    return c ? c : (*x > *y) - (*x < *y);
}

static bool dump_map(dump *d, const pi__dict *m, int depth)
{
    if (!m->n) pi__text_str(d->t, "{}");
    if (!m->n) return true;
    const pi__entry **e = pi__calloc(m->n, sizeof *e);
    if (!e && !d->t->code) d->t->code = PI_ENOMEM;
    if (!e) return true;
    for (size_t i = 0; i < m->n; i++) e[i] = &m->e[i];
    if (d->style->sort_keys) qsort(e, m->n, sizeof *e, by_key);
    bool ok = true;
    pi__text_str(d->t, "{");
    for (size_t i = 0; ok && i < m->n && !d->t->code; i++) {
        if (i) pi__text_add(d->t, d->style->item_sep.p, d->style->item_sep.n);
        new_line(d, depth + 1);
        ok = dump_key(d, &e[i]->key);
        pi__text_add(d->t, d->style->key_sep.p, d->style->key_sep.n);
        ok = ok && dump_value(d, &e[i]->value, depth + 1);
    }
    new_line(d, depth);
    pi__text_str(d->t, "}");
    pi__free(e);
    return ok;
}

static bool dump_value(dump *d, const pi__val *v, int depth)
{
    if (depth > PI__VAL_DEPTH && !d->t->code) d->t->code = PI_ETOOBIG;
    if (d->t->code) return true;
    switch (v->type) {
    case PI__V_NONE: pi__text_str(d->t, "null"); return true;
    case PI__V_BOOL: pi__text_str(d->t, v->b ? "true" : "false"); return true;
    case PI__V_INT: add_int(d->t, v->i); return true;
    case PI__V_FLOAT: add_float(d->t, v->f, "NaN", "Infinity"); return true;
    case PI__V_STR: json_str(d->t, v->s, d->style->ascii); return true;
    case PI__V_LIST: return dump_list(d, v->list, depth);
    case PI__V_MAP: return dump_map(d, v->map, depth);
    default: d->what = pi__val_type_name(v); return false;
    }
}

bool pi__text_json(pi__text *t, const pi__val *v, const pi__json_style *style, const char **what)
{
    dump d = {t, style, NULL};
    bool ok = dump_value(&d, v, 0);
    if (!ok) *what = d.what;
    return ok;
}
