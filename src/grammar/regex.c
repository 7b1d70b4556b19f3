/* Parser of regular expressions: the subset of ECMA-262 (used by JSON Schema) that describes regular languages.
 *
 *     a|b  (a)  (?:a)  (?<name>a)  * + ? {m} {m,} {m,n}, and these followed by ?  .  [a-z]  [^a-z]
 *     \d \D \w \W \s \S  \n \r \t \f \v \0 \cX \xNN \uNNNN \u{N};  \ before any other ASCII character except letters;
 *     ^ at the start and $ at the end of the expression, or of a top-level alternative
 *
 * \d and \w are ASCII. \s is the white space common to ECMA-262 and Python. "." is any character except line ends.
 * Lookaround, back references, \b, \p and flags are rejected, so no accepted syntax is ignored. Nesting is bounded. */
#include <string.h>

#include "base/alloc.h"
#include "grammar/expr.h"

typedef struct reader {
    pi__builder *b;
    const char *text; /* [n] */
    size_t n, at;     /* current byte offset */
    const char *what; /* name of the text in messages */
    int depth;        /* number of open groups */
    pi__class_fn map; /* builds the expression of a class; NULL = the class itself */
} reader;

static const pi__range digits[] = {{'0', '9'}};
static const pi__range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const pi__range blank[] = {{9, 13}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A},
                                  {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
static const pi__range line_end[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static pi__expr *read_alternatives(reader *r);

static pi__expr *bad_at(reader *r, size_t at, int code, const char *why)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < r->n; i++) {
        if (r->text[i] == '\n') line++, column = 1;
        else column += ((unsigned char) r->text[i] & 0xC0) != 0x80;
    }
    pi__builder_fail(r->b, code, "%s: line %zu, column %zu: %s", r->what, line, column, why);
    return pi__x_never(r->b);
}

static pi__expr *bad(reader *r, const char *why) { return bad_at(r, r->at, PI_EINVAL, why); }
static char look(const reader *r) { return r->at < r->n ? r->text[r->at] : '\0'; }

static bool take(reader *r, const char *what)
{
    const size_t n = strlen(what);
    if (r->n - r->at < n || memcmp(r->text + r->at, what, n)) return false;
    r->at += n;
    return true;
}

/* ------------------------------------------------------------------------------------------------------- characters */

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' &&
                        c <= 'F' ? c - 'A' + 10 : -1; }

/* Reads n hexadecimal digits, or 1 to 6 digits in braces if n is 4. */
static uint32_t read_hex_digits(reader *r, int n)
{
    uint32_t v = 0;
    const bool braces = n == 4 && take(r, "{");
    for (int i = 0; (braces ? i < 6 && look(r) != '}' : i < n) && !r->b->code; i++, r->at++) {
        if (hex(look(r)) < 0) return bad(r, "a hexadecimal digit is missing in this escape"), 0;
        v = v * 16 + (uint32_t) hex(look(r));
    }
    if (braces && !take(r, "}")) bad(r, "this escape has no end: a } is missing");
    return v;
}

static uint32_t read_hex(reader *r, int n)
{
    const uint32_t v = read_hex_digits(r, n);
    if (v >= 0xD800 && v <= 0xDBFF && take(r, "\\u")) { /* surrogate pair */
        const uint32_t low = read_hex_digits(r, 4);
        if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + (v - 0xD800) * 0x400 + (low - 0xDC00);
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) bad(r, "this escape is not a character: give a valid code point");
    return v;
}

/* Reads the rest of an escape: sets *cls for a class escape, else returns a character. */
static uint32_t read_escape(reader *r, pi__class *cls)
{
    const size_t at = r->at - 1;
    const char c = look(r);
    if (r->at == r->n) return bad(r, "nothing follows this \\: write \\\\ for a backslash"), 0;
    r->at++;
    switch (c) {
    case 'd': case 'D': *cls = pi__class_of(r->b, digits, 1, c == 'D'); return 0;
    case 'w': case 'W': *cls = pi__class_of(r->b, word, 4, c == 'W'); return 0;
    case 's': case 'S': *cls = pi__class_of(r->b, blank, sizeof blank / sizeof *blank, c == 'S'); return 0;
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'x': return read_hex(r, 2);
    case 'u': return read_hex(r, 4);
    case 'c': {
        const char x = look(r);
        if (!((x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z'))) return bad(r, "a letter is missing after \\c"), 0;
        r->at++;
        return (uint32_t) x & 31;
    }
    case '0':
        if (look(r) >= '0' && look(r) <= '9') return bad_at(r, at, PI_EUNSUPPORTED,
                                                            "octal escapes are not supported: give \\xNN"), 0;
        return 0;
    }
    if (c >= '1' && c <= '9') return bad_at(r, at, PI_EUNSUPPORTED, "back references are not supported"), 0;
    if (c == 'b' || c == 'B') return bad_at(r, at, PI_EUNSUPPORTED, "word boundaries (\\b, \\B) are not supported"), 0;
    if (c == 'p' || c == 'P') return bad_at(r, at, PI_EUNSUPPORTED,
                                            "Unicode properties (\\p) are not supported: write the ranges"), 0;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char) c >= 0x80) return bad_at(r, at, PI_EINVAL,
        "unknown escape: remove the \\"), 0;
    return (unsigned char) c;
}

/* Reads one character, or a class escape into *cls. */
static uint32_t read_char(reader *r, pi__class *cls)
{
    uint32_t cp;
    if (take(r, "\\")) return read_escape(r, cls);
    const size_t len = pi__utf8_char(r->text + r->at, r->n - r->at, &cp);
    if (!len) return bad(r, "this is not UTF-8"), 0;
    r->at += len;
    return cp;
}

static pi__expr *of_class(reader *r, pi__class c) { return r->map ? r->map(r->b, c) : pi__x_class(r->b, c); }

static pi__expr *of_char(reader *r, uint32_t cp)
{
    char c[4];
    const pi__range one = {cp, cp};
    if (r->map) return r->map(r->b, pi__class_of(r->b, &one, 1, false));
    return pi__x_bytes(r->b, c, pi__utf8_put(cp, c));
}

typedef struct ranges {
    pi__range *r;
    size_t n, cap;
} ranges;

static void add_ranges(reader *r, ranges *set, const pi__range *v, size_t n)
{
    if (r->b->code) return;
    if (!pi__grow(&set->r, &set->cap, set->n + n, sizeof *set->r)) {
        pi__builder_fail(r->b, PI_ENOMEM, "out of memory for the grammar");
        return;
    }
    memcpy(set->r + set->n, v, n * sizeof *v);
    set->n += n;
}

static pi__expr *read_class(reader *r)
{
    const size_t open = r->at - 1;
    const bool inverted = take(r, "^");
    ranges set = {0};
    while (!r->b->code && r->at < r->n && look(r) != ']') {
        const size_t at = r->at;
        pi__class cls = {0}, end = {0};
        const uint32_t lo = take(r, "\\b") ? '\b' : read_char(r, &cls);
        uint32_t hi = lo;
        const bool range = look(r) == '-' && r->at + 1 < r->n && r->text[r->at + 1] != ']';
        if (range && !cls.n) {
            r->at++;
            hi = take(r, "\\b") ? '\b' : read_char(r, &end);
        }
        if (end.n) bad_at(r, at, PI_EINVAL, "a range cannot end with a class: give a character");
        if (hi < lo) bad_at(r, at, PI_EINVAL, "the end of this range is before its start: swap them");
        if (cls.n) add_ranges(r, &set, cls.r, cls.n);
        else add_ranges(r, &set, &(pi__range) {lo, hi}, 1);
    }
    if (!r->b->code && !take(r, "]")) bad_at(r, open, PI_EINVAL, "this class has no end: a ] is missing");
    const pi__class c = pi__class_of(r->b, set.r, set.n, inverted);
    pi__free(set.r);
    return of_class(r, c);
}

/* -------------------------------------------------------------------------------------------------------- structure */

static pi__expr *read_group(reader *r)
{
    const size_t open = r->at - 1;
    if (++r->depth > PI__EXPR_DEPTH) return bad(r, "groups are nested more than 200 deep: use fewer");
    if (take(r, "?<=") || take(r, "?<!") || take(r, "?=") || take(r, "?!"))
        return bad_at(r, open, PI_EUNSUPPORTED, "lookahead and lookbehind are not supported: remove them");
    if (take(r, "?<")) {
        while (r->at < r->n && look(r) != '>') r->at++;
        if (!take(r, ">")) return bad_at(r, open, PI_EINVAL, "this group's name has no end: a > is missing");
    } else if (take(r, "?") && !take(r, ":")) {
        return bad_at(r, open, PI_EUNSUPPORTED,
                      "groups that start with (? are not supported, except (?:...) and (?<name>...)");
    }
    pi__expr *x = read_alternatives(r);
    r->depth--;
    return r->b->code || take(r, ")") ? x : bad_at(r, open, PI_EINVAL, "this group has no end: a ) is missing");
}

static pi__expr *read_atom(reader *r)
{
    pi__class cls = {0};
    if (take(r, "(")) return read_group(r);
    if (take(r, "[")) return read_class(r);
    if (take(r, ".")) return of_class(r, pi__class_of(r->b, line_end, 3, true));
    const char c = look(r);
    if (c == '*' || c == '+' || c == '?') return bad(r, "there is nothing to repeat before this: escape it, or add an "
                                                        "element");
    if (c == '^' || c == '$')
        return bad_at(r, r->at, PI_EUNSUPPORTED,
                      "^ and $ are supported only at the start and end of the expression or of its top-level "
                      "alternatives");
    const uint32_t cp = read_char(r, &cls);
    return cls.n ? of_class(r, cls) : of_char(r, cp);
}

/* Reads {m}, {m,} or {m,n}. Returns false if the text is something else: then { is a plain character. */
static bool read_counts(reader *r, uint32_t *min, uint32_t *max)
{
    size_t i = r->at + 1;
    uint64_t v[2] = {0, 0};
    int k = 0;
    bool any = false;
    for (; i < r->n && r->text[i] != '}'; i++) {
        const char c = r->text[i];
        if (c == ',' && !k && any) k = 1, any = false;
        else if (c >= '0' && c <= '9')
            v[k] = v[k] < PI__REP_INF / 10 ? v[k] * 10 + (uint64_t) (c - '0') : PI__REP_INF,
            any = true; /* too large to count: no limit */
        else return false;
    }
    if (i >= r->n || (!k && !any)) return false;
    *min = (uint32_t) v[0];
    *max = !k ? *min : any ? (uint32_t) v[1] : PI__REP_INF;
    r->at = i + 1;
    return true;
}

static pi__expr *read_piece(reader *r)
{
    pi__expr *x = read_atom(r);
    uint32_t min = 0, max = PI__REP_INF;
    const size_t at = r->at;
    if (r->b->code) return x;
    if (take(r, "*")) min = 0;
    else if (take(r, "+")) min = 1;
    else if (take(r, "?")) max = 1;
    else if (look(r) != '{' || !read_counts(r, &min, &max)) return x;
    if (max < min) return bad_at(r, at, PI_EINVAL, "the maximum of this repetition is below its minimum: swap them");
    if (min > PI__MAX_MIN)
        return bad_at(r, at, PI_EINVAL, "the minimum of this repetition exceeds any answer: lower it");
    take(r, "?"); /* lazy repetition matches the same texts */
    if (look(r) == '+' || look(r) == '*') return bad_at(r, r->at, PI_EUNSUPPORTED,
                                                        "a repetition cannot be repeated directly: put it in a group");
    return pi__x_rep(r->b, x, min, max);
}

static pi__expr *read_sequence(reader *r)
{
    pi__expr *seq = pi__x_cat(r->b), *only = NULL;
    size_t n = 0;
    for (; !r->b->code && r->at < r->n && look(r) != '|' && look(r) != ')'; n++) {
        if (!r->depth && look(r) == '$' && (r->at + 1 == r->n || r->text[r->at + 1] == '|')) break;
        only = read_piece(r);
        pi__x_add(r->b, seq, only);
    }
    return n == 1 ? only : seq;
}

static pi__expr *read_alternatives(reader *r)
{
    pi__expr *first = read_sequence(r);
    if (look(r) != '|') return first;
    pi__expr *alt = pi__x_alt(r->b);
    pi__x_add(r->b, alt, first);
    while (!r->b->code && take(r, "|")) pi__x_add(r->b, alt, read_sequence(r));
    return alt;
}

/* Matches any text, before or after a searched match. */
static pi__expr *anything(reader *r) { return pi__x_rep(r->b, of_class(r, pi__class_of(r->b, NULL, 0, true)), 0,
                                                        PI__REP_INF); }

/* Reads a top-level alternative, which may have its own ^ and $. */
static pi__expr *read_whole(reader *r, bool search)
{
    const bool from_start = take(r, "^");
    pi__expr *x = read_sequence(r);
    const bool to_end = take(r, "$");
    if (!search || (from_start && to_end)) return x;
    if (from_start) return pi__x_cat2(r->b, x, anything(r));
    if (to_end) return pi__x_cat2(r->b, anything(r), x);
    return pi__x_cat3(r->b, anything(r), x, anything(r));
}

pi__expr *pi__read_regex(pi__builder *b, const char *text, size_t n, const char *what, bool search, pi__class_fn map)
{
    reader r = {.b = b, .text = text, .n = n, .what = what, .map = map};
    pi__expr *first = read_whole(&r, search), *alt = NULL;
    while (!b->code && take(&r, "|")) {
        if (!alt) {
            alt = pi__x_alt(b);
            pi__x_add(b, alt, first);
        }
        pi__x_add(b, alt, read_whole(&r, search));
    }
    if (!b->code && r.at < n) bad(&r, "this ) has no matching (");
    return alt ? alt : first;
}
