/* Methods of strings, maps, lists and the loop, and the string functions that filters share with them.
 *
 * Strings are built in the zone in one pass; a heap buffer is used if the length is unknown. */
#include <string.h>

#include "template/jinja_impl.h"
#include "base/utf8.h"
#include "base/unicode.h"

typedef pi__jrun run;

enum {
    M_STARTSWITH, M_ENDSWITH, M_STRIP, M_LSTRIP, M_RSTRIP, M_SPLIT, M_RSPLIT, M_SPLITLINES, M_UPPER, M_LOWER, M_TITLE,
    M_CAPITALIZE, M_REPLACE, M_FIND, M_RFIND, M_COUNT, M_JOIN, M_FORMAT, M_ISDIGIT, M_ISDECIMAL,
    M_ISALPHA, M_ISSPACE, M_ISALNUM, M_ISLOWER, M_ISUPPER, M_REMOVEPREFIX, M_REMOVESUFFIX,
    M_ITEMS, M_KEYS, M_VALUES, M_GET, M_UPDATE, M_COPY, M_POP, M_APPEND, M_EXTEND, M_INSERT, M_INDEX,
    M_CYCLE, M_CHANGED, N_METHOD
};
enum { OF_STR = 1, OF_MAP = 2, OF_LIST = 4, OF_LOOP = 8 };
static const struct method {
    const char *name;
    int types; /* OF_*: types that have the method */
} methods[N_METHOD] = {
    {"startswith", OF_STR}, {"endswith", OF_STR}, {"strip", OF_STR}, {"lstrip", OF_STR}, {"rstrip", OF_STR},
    {"split", OF_STR}, {"rsplit", OF_STR}, {"splitlines", OF_STR}, {"upper", OF_STR}, {"lower", OF_STR},
    {"title", OF_STR}, {"capitalize", OF_STR}, {"replace", OF_STR}, {"find", OF_STR}, {"rfind", OF_STR},
    {"count", OF_STR | OF_LIST}, {"join", OF_STR}, {"format", OF_STR}, {"isdigit", OF_STR}, {"isdecimal", OF_STR},
    {"isalpha", OF_STR}, {"isspace", OF_STR}, {"isalnum", OF_STR}, {"islower", OF_STR}, {"isupper", OF_STR},
    {"removeprefix", OF_STR}, {"removesuffix", OF_STR}, {"items", OF_MAP}, {"keys", OF_MAP}, {"values", OF_MAP},
    {"get", OF_MAP}, {"update", OF_MAP}, {"copy", OF_MAP | OF_LIST}, {"pop", OF_MAP | OF_LIST}, {"append", OF_LIST},
    {"extend", OF_LIST}, {"insert", OF_LIST}, {"index", OF_LIST}, {"cycle", OF_LOOP}, {"changed", OF_LOOP},
};

int pi__jmethod_find(const pi__val *self, pi__str name)
{
    int type = self->type == PI__V_STR ? OF_STR : self->type == PI__V_MAP ? OF_MAP
             : self->type == PI__V_LIST ? OF_LIST : self->type == PI__V_LOOP ? OF_LOOP : 0;
    for (int i = 0; type && i < N_METHOD; i++)
        if ((methods[i].types & type) && pi__str_is(name, methods[i].name)) return i;
    return -1;
}

/* --------------------------------------------------------------------------------------------------- string helpers */

bool pi__jconcat(run *r, pi__str a, pi__str b, pi__val *out)
{
    if (!pi__jcost(r, b.n)) return false;
    *out = pi__val_str(pi__zone_concat(r->z, a, b));
    return r->z->code ? pi__jno_room(r) : true;
}

bool pi__jtake_text(run *r, pi__text *t, pi__val *out)
{
    bool ok = !t->code;
    if (t->code == PI_ETOOBIG && !r->z->code) r->z->code = PI_ETOOBIG;
    if (!ok) pi__jno_room(r);
    ok = ok && pi__jcost(r, t->n);
    if (ok) *out = pi__val_str(pi__text_copy(t, 0, r->z));
    pi__free(t->p);
    return ok && (!r->z->code || pi__jno_room(r));
}

bool pi__jto_str(run *r, const pi__val *v, pi__str *out)
{
    *out = v->s;
    if (v->type == PI__V_STR) return true;
    pi__text t = pi__jtext(r);
    pi__val s;
    pi__text_value(&t, v);
    if (!pi__jtake_text(r, &t, &s)) return false;
    *out = s.s;
    return true;
}

/* True if the n bytes at p are a character to strip. */
static bool to_strip(const char *p, size_t n, const pi__str *chars)
{
    uint32_t cp = 0;
    if (chars) return chars->n && memmem(chars->p, chars->n, p, n);
    pi__utf8_char(p, n, &cp);
    return pi__uis_white(cp);
}

pi__str pi__jstrip(pi__str s, int sides, const pi__str *chars)
{
    while (sides & PI__J_LEFT && s.n) {
        size_t len = pi__utf8_len((unsigned char) *s.p);
        if (!to_strip(s.p, len, chars)) break;
        s.p += len;
        s.n -= len;
    }
    while (sides & PI__J_RIGHT && s.n) {
        size_t at = s.n - 1;
        while (at && ((unsigned char) s.p[at] & 0xC0) == 0x80) at--;
        if (!to_strip(s.p + at, s.n - at, chars)) break;
        s.n = at;
    }
    return s;
}

/* Returns the offset of word in s at or after byte `from`; s.n + 1 if not found. */
static size_t find(pi__str s, size_t from, pi__str word)
{
    if (from > s.n) return s.n + 1;
    if (!word.n) return from;
    const char *p = s.n > from ? memmem(s.p + from, s.n - from, word.p, word.n) : NULL;
    return p ? (size_t) (p - s.p) : s.n + 1;
}

bool pi__jreplace(run *r, pi__str s, pi__str from, pi__str to, int64_t count, pi__val *out)
{
    pi__text t = pi__jtext(r);
    size_t at = 0;
    for (size_t i = 0; count && i <= s.n && !t.code; count--) {
        size_t k = find(s, i, from);
        if (k > s.n) break;
        pi__text_add(&t, s.p + at, k - at);
        pi__text_add(&t, to.p, to.n);
        if (!pi__jcost(r, k - at)) t.code = PI_ETOOBIG;
        at = k + from.n;
        i = from.n ? at : k < s.n ? k + pi__utf8_len((unsigned char) s.p[k]) : k + 1;
    }
    if (at < s.n) pi__text_add(&t, s.p + at, s.n - at);
    return pi__jtake_text(r, &t, out);
}

static void add_whole(pi__text *t, const pi__val *v)
{
    const pi__val i = pi__val_int(pi__jinteger(v));
    pi__text_value(t, &i);
}

/* "%s %d" % values. */
bool pi__jformat_percent(run *r, pi__str f, const pi__val *v, size_t n, bool alone, pi__val *out)
{
    pi__text t = pi__jtext(r);
    size_t used = 0;
    for (size_t i = 0; i < f.n; i++) {
        char c = f.p[i] == '%' && i + 1 < f.n ? f.p[++i] : 0;
        if (!c) pi__text_add(&t, f.p + i, 1);
        else if (c == '%') pi__text_str(&t, "%");
        else if (used < n && c == 's') pi__text_value(&t, &v[used++]);
        else if (used < n && c == 'r') pi__text_repr(&t, &v[used++], 0);
        else if (used < n && c == 'd' && pi__jis_integer(&v[used])) add_whole(&t, &v[used++]);
        else {
            pi__free(t.p);
            return pi__jfail(r, "this use of %% is not supported: %%%c", c >= ' ' && c < 127 ? c : '?');
        }
    }
    bool members = alone && (v->type == PI__V_LIST || v->type == PI__V_MAP || v->type == PI__V_UNDEFINED);
    if (used < n && !members) {
        pi__free(t.p);
        return pi__jfail(r, "more values than %% in the format");
    }
    return pi__jtake_text(r, &t, out);
}

/* ------------------------------------------------------------------------------------------------- string methods */

/* Gets string argument i; NULL if not given or none. False: it has another type. */
static bool str_arg(run *r, const pi__jargs *a, size_t i, const char *name, const pi__str **out)
{
    const pi__val *v = pi__jarg(a, i, name);
    *out = v && v->type == PI__V_STR ? &v->s : NULL;
    if (*out || !v || v->type == PI__V_NONE) return true;
    return pi__jdefined(r, v) && pi__jfail(r, "expected a string, got %s", pi__val_type_name(v));
}

static bool int_arg(run *r, const pi__jargs *a, size_t i, const char *name, int64_t def, int64_t *out)
{
    const pi__val *v = pi__jarg(a, i, name);
    *out = def;
    if (!v) return true;
    if (!pi__jis_integer(v)) return pi__jfail(r, "expected a whole number, got %s", pi__val_type_name(v));
    *out = pi__jinteger(v);
    return true;
}

static bool has_affix(pi__str s, pi__str word, bool end)
{
    return word.n <= s.n && (!word.n || !memcmp(end ? s.p + s.n - word.n : s.p, word.p, word.n));
}

/* startswith and endswith; the argument may be a tuple of strings. */
static bool call_affix(run *r, pi__str s, const pi__jargs *a, bool end, pi__val *out)
{
    const pi__val *v = pi__jarg(a, 0, NULL);
    bool list = v && v->type == PI__V_LIST, yes = false;
    for (size_t i = 0; v && i < (list ? v->list->n : 1); i++) {
        const pi__val *w = list ? &v->list->v[i] : v;
        if (w->type != PI__V_STR) return pi__jdefined(r, w) && pi__jfail(r, "expected a string");
        yes |= has_affix(s, w->s, end);
    }
    *out = pi__val_bool(yes);
    return v || pi__jfail(r, "an argument is missing");
}

static bool add_part(run *r, pi__list *l, pi__str s)
{
    return (pi__jcost(r, s.n + 64) && pi__list_add(r->z, l, pi__val_str(s))) || pi__jno_room(r);
}

/* split() at white space. */
static bool split_white(run *r, pi__str s, int64_t max, pi__list *l)
{
    for (s = pi__jstrip(s, PI__J_LEFT, NULL); s.n; s = pi__jstrip(s, PI__J_LEFT, NULL)) {
        size_t n = 0;
        if (!max--) return add_part(r, l, s);
        for (size_t len; n < s.n; n += len) {
            len = pi__utf8_len((unsigned char) s.p[n]);
            if (to_strip(s.p + n, len, NULL)) break;
        }
        if (!add_part(r, l, (pi__str) {s.p, n})) return false;
        s = (pi__str) {s.p + n, s.n - n};
    }
    return true;
}

/* rsplit() at white space: the last words, then the text before them. */
static bool rsplit_white(run *r, pi__str s, int64_t max, pi__list *l)
{
    for (s = pi__jstrip(s, PI__J_RIGHT, NULL); s.n; s = pi__jstrip(s, PI__J_RIGHT, NULL)) {
        size_t start = s.n;
        for (size_t at = s.n; max && at; start = at) {
            for (at--; at && ((unsigned char) s.p[at] & 0xC0) == 0x80;) at--;
            if (to_strip(s.p + at, start - at, NULL)) break;
        }
        if (!max) start = 0;
        if (!add_part(r, l, (pi__str) {s.p + start, s.n - start})) return false;
        s.n = start;
        max--;
    }
    for (size_t i = 0; i < l->n / 2; i++) {
        pi__val v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
    return true;
}

static bool call_split(run *r, pi__str s, const pi__jargs *a, bool right, pi__val *out)
{
    const pi__str *sep;
    int64_t max;
    if (!str_arg(r, a, 0, "sep", &sep) || !int_arg(r, a, 1, "maxsplit", -1, &max)) return false;
    if (!pi__val_new_list(r->z, 0, out)) return pi__jno_room(r);
    if (!sep) return right && max >= 0 ? rsplit_white(r, s, max, out->list) : split_white(r, s, max, out->list);
    if (!sep->n) return pi__jfail(r, "the separator is empty");
    size_t at = 0, k, cuts = 0;
    for (k = find(s, 0, *sep); right && max >= 0 && k <= s.n; k = find(s, k + sep->n, *sep)) cuts++;
    /* skip these separators */
    for (; right && max >= 0 && cuts > (size_t) max; cuts--) at = find(s, at, *sep) + sep->n;
    size_t start = 0;
    for (k = find(s, at, *sep); k <= s.n && max; k = find(s, at, *sep), max -= max > 0) {
        if (!add_part(r, out->list, (pi__str) {s.p + start, k - start})) return false;
        at = start = k + sep->n;
    }
    return add_part(r, out->list, (pi__str) {s.p + start, s.n - start});
}

static bool call_splitlines(run *r, pi__str s, const pi__jargs *a, pi__val *out)
{
    const pi__val *keep = pi__jarg(a, 0, "keepends");
    bool ends = keep && pi__val_truth(keep);
    if (!pi__val_new_list(r->z, 0, out)) return pi__jno_room(r);
    for (size_t at = 0, next; at < s.n; at = next) {
        size_t end = pi__jline(s, at, &next);
        if (!add_part(r, out->list, (pi__str) {s.p + at, (ends ? next : end) - at})) return false;
    }
    return true;
}

/* find, rfind and count. */
static bool call_find(run *r, pi__str s, const pi__jargs *a, int method, pi__val *out)
{
    const pi__str *word;
    if (!str_arg(r, a, 0, NULL, &word)) return false;
    if (!word) return pi__jfail(r, "an argument is missing");
    int64_t n = 0;
    size_t found = s.n + 1;
    for (size_t k = find(s, 0, *word); k <= s.n; n++) {
        found = k;
        if (method == M_FIND) break;
        if (!pi__jcost(r, 64)) return false;
        size_t step = word->n && method == M_COUNT ? word->n : k < s.n ? pi__utf8_len((unsigned char) s.p[k]) : 1;
        k = find(s, k + step, *word);
    }
    if (method == M_COUNT) *out = pi__val_int(n);
    else *out = pi__val_int(found > s.n ? -1 : (int64_t) pi__str_length((pi__str) {s.p, found}));
    return pi__jcost(r, s.n);
}

static bool call_join(run *r, pi__str s, const pi__jargs *a, pi__val *out)
{
    const pi__val *v = pi__jarg(a, 0, NULL);
    pi__list l;
    if (!v || !pi__jiterate(r, v, &l)) return v ? false : pi__jfail(r, "an argument is missing");
    pi__text t = pi__jtext(r);
    bool ok = true;
    for (size_t i = 0; ok && i < l.n && !t.code; i++) {
        if (i) pi__text_add(&t, s.p, s.n);
        ok = l.v[i].type == PI__V_STR || pi__jfail(r, "join: %s is not a string", pi__val_type_name(&l.v[i]));
        if (ok) pi__text_add(&t, l.v[i].s.p, l.v[i].s.n);
    }
    if (ok) return pi__jtake_text(r, &t, out);
    pi__free(t.p);
    return false;
}

/* Returns the value for "{}", "{2}" or "{name}"; NULL if missing. */
static const pi__val *format_value(const pi__jargs *a, pi__str field, size_t *next)
{
    pi__val number;
    if (!field.n) return pi__jarg(a, (*next)++, NULL);
    if (pi__number_read(field.p, field.n, &number) == field.n)
        return number.type == PI__V_INT && number.i >= 0 ? pi__jarg(a, (size_t) number.i, NULL) : NULL;
    for (size_t k = 0; k < a->n_kw; k++)
        if (pi__str_eq(a->kw[k].name, field)) return &a->kw[k].v;
    return NULL;
}

static bool call_format(run *r, pi__str f, const pi__jargs *a, pi__val *out)
{
    pi__text t = pi__jtext(r);
    size_t next = 0;
    for (size_t i = 0; i < f.n; i++) {
        char c = f.p[i];
        if ((c != '{' && c != '}') || (i + 1 < f.n && f.p[i + 1] == c)) {
            pi__text_add(&t, f.p + i, 1);
            i += c == '{' || c == '}';
            continue;
        }
        const char *end = c == '{' ? memchr(f.p + i, '}', f.n - i) : NULL;
        pi__str field = {f.p + i + 1, end ? (size_t) (end - f.p) - i - 1 : 0};
        const pi__val *v = end ? format_value(a, field, &next) : NULL;
        if (!v) {
            pi__free(t.p);
            return pi__jfail(r, "format: no value for '{%.*s}'", pi__jshort(field, 40), field.p);
        }
        pi__text_value(&t, v);
        i += field.n + 1;
    }
    return pi__jtake_text(r, &t, out);
}

static bool call_replace(run *r, pi__str s, const pi__jargs *a, pi__val *out)
{
    const pi__str *from, *to;
    int64_t count;
    if (!str_arg(r, a, 0, "old", &from) || !str_arg(r, a, 1, "new", &to) || !int_arg(r, a, 2, "count", -1, &count))
        return false;
    if (!from || !to) return pi__jfail(r, "replace takes two strings");
    return pi__jreplace(r, s, *from, *to, count, out);
}

static bool call_remove(run *r, pi__str s, const pi__jargs *a, bool end, pi__val *out)
{
    const pi__str *word;
    if (!str_arg(r, a, 0, NULL, &word)) return false;
    size_t n = word && has_affix(s, *word, end) ? word->n : 0;
    *out = pi__val_str((pi__str) {end ? s.p : s.p + n, s.n - n});
    return true;
}

static bool call_str(run *r, pi__str s, int method, const pi__jargs *a, pi__val *out)
{
    const pi__str *chars;
    switch (method) {
    case M_STARTSWITH:
    case M_ENDSWITH: return call_affix(r, s, a, method == M_ENDSWITH, out);
    case M_STRIP:
    case M_LSTRIP:
    case M_RSTRIP:
        if (!str_arg(r, a, 0, NULL, &chars)) return false;
        *out = pi__val_str(pi__jstrip(s, method == M_STRIP ? PI__J_LEFT | PI__J_RIGHT
                                         : method == M_LSTRIP ? PI__J_LEFT : PI__J_RIGHT, chars));
        return pi__jcost(r, s.n - out->s.n);
    case M_SPLIT:
    case M_RSPLIT: return call_split(r, s, a, method == M_RSPLIT, out);
    case M_SPLITLINES: return call_splitlines(r, s, a, out);
    case M_UPPER: return pi__jcase(r, s, 'U', out);
    case M_LOWER: return pi__jcase(r, s, 'L', out);
    case M_TITLE: return pi__jcase(r, s, 'T', out);
    case M_CAPITALIZE: return pi__jcase(r, s, 'C', out);
    case M_REPLACE: return call_replace(r, s, a, out);
    case M_FIND:
    case M_RFIND:
    case M_COUNT: return call_find(r, s, a, method, out);
    case M_JOIN: return call_join(r, s, a, out);
    case M_FORMAT: return call_format(r, s, a, out);
    case M_REMOVEPREFIX:
    case M_REMOVESUFFIX: return call_remove(r, s, a, method == M_REMOVESUFFIX, out);
    case M_ISLOWER:
    case M_ISUPPER: *out = pi__val_bool(pi__jis_case(s, method == M_ISUPPER)); return pi__jcost(r, s.n * PI__J_LOOKUP);
    default: *out = pi__val_bool(pi__jis_all(s, "dDasw"[method - M_ISDIGIT])); return pi__jcost(r, s.n * PI__J_LOOKUP);
    }
}

/* ------------------------------------------------------------------------------------------- methods of maps, lists */

bool pi__jdict_items(run *r, const pi__dict *m, int what, pi__val *out)
{
    if (!pi__jcost(r, m->n * 64)) return false;
    if (!pi__val_new_list(r->z, m->n, out)) return pi__jno_room(r);
    for (size_t i = 0; i < m->n; i++) {
        pi__val v = what == PI__J_KEYS ? m->e[i].key : m->e[i].value;
        if (what == PI__J_ITEMS) {
            if (!pi__val_new_list(r->z, 2, &v)) return pi__jno_room(r);
            v.list->tuple = true;
            v.list->v[0] = m->e[i].key;
            v.list->v[1] = m->e[i].value;
            v.list->n = 2;
        }
        out->list->v[out->list->n++] = v;
    }
    return true;
}

static bool call_get(run *r, pi__dict *m, const pi__jargs *a, bool pop, pi__val *out)
{
    const pi__val *key = pi__jarg(a, 0, NULL), *def = pi__jarg(a, 1, "default");
    if (!key) return pi__jfail(r, "a key is missing");
    const pi__val *v = key->type <= PI__V_STR ? pi__dict_get(m, *key) : NULL;
    if (!v && !def && pop) return pi__jfail(r, "pop: the key does not exist");
    *out = v ? *v : def ? *def : pi__val_none();
    if (!v || !pop) return true;
    return (pi__jcost(r, m->n * 16) && pi__dict_remove(r->z, m, *key)) || pi__jno_room(r);
}

static bool call_update(run *r, pi__dict *m, const pi__jargs *a, pi__val *out)
{
    const pi__val *from = pi__jarg(a, 0, NULL);
    *out = pi__val_none();
    for (size_t i = 0; from && from->type == PI__V_MAP && from->map != m && i < from->map->n; i++)
        if (!pi__jcost(r, 64) || !pi__dict_set(r->z, m, from->map->e[i].key, from->map->e[i].value))
            return pi__jno_room(r);
    for (size_t i = 0; i < a->n_kw; i++)
        if (!pi__dict_set(r->z, m, pi__val_str(a->kw[i].name), a->kw[i].v)) return pi__jno_room(r);
    return true;
}

static bool copy_map(run *r, const pi__dict *m, pi__val *out)
{
    if (!pi__val_new_map(r->z, out)) return pi__jno_room(r);
    for (size_t i = 0; i < m->n; i++)
        if (!pi__jcost(r, 64) || !pi__dict_set(r->z, out->map, m->e[i].key, m->e[i].value)) return pi__jno_room(r);
    return true;
}

static bool call_map(run *r, const pi__val *self, int method, const pi__jargs *a, pi__val *out)
{
    pi__dict *m = self->map;
    switch (method) {
    case M_ITEMS: return pi__jdict_items(r, m, PI__J_ITEMS, out);
    case M_KEYS: return pi__jdict_items(r, m, PI__J_KEYS, out);
    case M_VALUES: return pi__jdict_items(r, m, PI__J_VALUES, out);
    case M_UPDATE: return call_update(r, m, a, out);
    case M_COPY: return copy_map(r, m, out);
    default: return call_get(r, m, a, method == M_POP, out);
    }
}

/* Inserts v at index i; later elements move up. */
static bool insert(run *r, pi__list *l, int64_t i, pi__val v)
{
    if (!pi__jcost(r, l->n * 16)) return false;
    if (!pi__list_add(r->z, l, v)) return pi__jno_room(r);
    int64_t n = (int64_t) l->n - 1, at = i < 0 ? (i < -n ? 0 : i + n) : i > n ? n : i;
    memmove(&l->v[at + 1], &l->v[at], (size_t) (n - at) * sizeof *l->v);
    l->v[at] = v;
    return true;
}

static bool pop(run *r, pi__list *l, const pi__jargs *a, pi__val *out)
{
    int64_t i;
    if (!int_arg(r, a, 0, NULL, -1, &i)) return false;
    i = pi__jindex(i, l->n);
    if (i < 0) return pi__jfail(r, "pop: the list has %zu elements", l->n);
    *out = l->v[i];
    memmove(&l->v[i], &l->v[i + 1], (l->n - (size_t) i - 1) * sizeof *l->v);
    l->n--;
    return pi__jcost(r, l->n * 16);
}

/* index and count. */
static bool search(run *r, const pi__list *l, const pi__val *v, bool count, pi__val *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        bool same;
        if (!pi__jequal(r, &l->v[i], v, &same)) return false;
        if (same && !count) {
            *out = pi__val_int((int64_t) i);
            return true;
        }
        n += same;
    }
    *out = pi__val_int(n);
    return count || pi__jfail(r, "index: the value is not in the list");
}

static bool call_list(run *r, const pi__val *self, int method, const pi__jargs *a, pi__val *out)
{
    pi__list *l = self->list, more;
    int64_t i;
    *out = pi__val_none();
    if (method == M_POP) return pop(r, l, a, out);
    if (method != M_COPY && a->n < (method == M_INSERT ? 2 : 1)) return pi__jfail(r, "an argument is missing");
    switch (method) {
    case M_APPEND: return (pi__jcost(r, 64) && pi__list_add(r->z, l, a->v[0])) || pi__jno_room(r);
    case M_INSERT: return int_arg(r, a, 0, NULL, 0, &i) && insert(r, l, i, a->v[1]);
    case M_INDEX:
    case M_COUNT: return search(r, l, &a->v[0], method == M_COUNT, out);
    default: break;
    }
    if (method == M_COPY) {
        if (!pi__val_new_list(r->z, l->n, out)) return pi__jno_room(r);
        more = *l;
        l = out->list;
    } else if (!pi__jiterate(r, &a->v[0], &more)) {
        return false;
    }
    for (size_t k = 0; k < more.n; k++)
        if (!pi__jcost(r, 64) || !pi__list_add(r->z, l, more.v[k])) return pi__jno_room(r);
    return true;
}

/* loop.cycle(...): returns one of its arguments per iteration. loop.changed(...): true if the arguments differ from the
 * arguments of the last call in any iteration. */
static bool call_loop(run *r, pi__jloop *loop, int method, const pi__jargs *a, pi__val *out)
{
    if (method == M_CYCLE) {
        if (!a->n || a->n_kw) return pi__jfail(r, "loop.cycle() takes values");
        *out = a->v[loop->i % a->n];
        return true;
    }
    pi__val now, last = {.type = PI__V_LIST, .list = loop->last};
    bool same = false;
    if (a->n_kw) return pi__jfail(r, "loop.changed() takes values");
    if (!pi__val_new_list(r->z, a->n, &now)) return pi__jno_room(r);
    for (size_t i = 0; i < a->n; i++) now.list->v[now.list->n++] = a->v[i];
    if (loop->last && !pi__jequal(r, &now, &last, &same)) return false;
    loop->last = now.list;
    *out = pi__val_bool(!same);
    return true;
}

bool pi__jmethod_call(run *r, const pi__jmethod *m, const pi__jargs *args, pi__val *out)
{
    switch (m->self.type) {
    case PI__V_STR: return call_str(r, m->self.s, m->id, args, out);
    case PI__V_MAP: return call_map(r, &m->self, m->id, args, out);
    case PI__V_LOOP: return call_loop(r, m->self.obj, m->id, args, out);
    default: return call_list(r, &m->self, m->id, args, out);
    }
}
