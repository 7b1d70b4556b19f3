/* Parser of GBNF, llama.cpp's grammar format: rules, alternates, groups, characters and classes, repetition, tokens,
 * and JSON Schemas as elements (%json{...}).
 *
 *     root  ::= "answer: " (word | number){1,3} <|im_end|>   # a comment
 *     word  ::= [a-z]+
 *
 * Errors give line, column and reason. Nesting and memory (expr.h) are bounded. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "grammar/expr.h"

enum { MAX_STACKED = 8 }; /* maximum number of repetition suffixes on one element, as in [a]*? */

typedef struct reader {
    pi__builder *b;
    const char *text;  /* [n] */
    size_t n, at;      /* current byte offset */
    int depth;         /* number of open groups */
    pi__dict *names;   /* rule name -> rule number */
} reader;

static pi__expr *read_alternates(reader *r, bool nested);

static pi__expr *bad_at(reader *r, size_t at, const char *why, const char *what, size_t n)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < r->n; i++) {
        if (r->text[i] == '\n') line++, column = 1;
        else column += ((unsigned char) r->text[i] & 0xC0) != 0x80;
    }
    pi__builder_fail(r->b, PI_EINVAL, "grammar: line %zu, column %zu: %s%.*s", line, column, why, (int) (n < 60 ? n
        : 60), what);
    return pi__x_never(r->b);
}

static pi__expr *bad(reader *r, const char *why) { return bad_at(r, r->at, why, "", 0); }

static char look(const reader *r) { return r->at < r->n ? r->text[r->at] : '\0'; }
static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static bool take(reader *r, const char *what)
{
    const size_t n = strlen(what);
    if (r->n - r->at < n || memcmp(r->text + r->at, what, n)) return false;
    r->at += n;
    return true;
}

/* Skips white space and comments; also line ends if `lines` is set. */
static void space(reader *r, bool lines)
{
    for (; r->at < r->n; r->at++) {
        const char c = r->text[r->at];
        if (c == '#') {
            while (r->at < r->n && r->text[r->at] != '\n' && r->text[r->at] != '\r') r->at++;
            r->at--;
        } else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) {
            return;
        }
    }
}

/* ------------------------------------------------------------------------------------------------------- characters */

static uint32_t read_hex(reader *r, int digits)
{
    uint32_t v = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        const char c = look(r);
        const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F'
            ? c - 'A' + 10 : -1;
        if (d < 0) return bad(r, "a hexadecimal digit is missing in this escape"), 0;
        v = v * 16 + (uint32_t) d;
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) bad(r, "this escape is not a character: give a valid code point");
    return v;
}

static uint32_t read_char(reader *r)
{
    uint32_t cp = 0;
    if (look(r) != '\\') {
        const size_t len = pi__utf8_char(r->text + r->at, r->n - r->at, &cp);
        if (!len) return bad(r, "this is not UTF-8"), 0;
        r->at += len;
        return cp;
    }
    r->at++;
    const char c = look(r);
    r->at++;
    switch (c) {
    case 'x': return read_hex(r, 2);
    case 'u': return read_hex(r, 4);
    case 'U': return read_hex(r, 8);
    case 't': return '\t';
    case 'r': return '\r';
    case 'n': return '\n';
    case '\\': case '"': case '[': case ']': case '-': case '^': return (unsigned char) c;
    default: r->at -= 2;
        return bad(r, "an unknown escape: give \\n, \\r, \\t, \\xNN, \\uNNNN, \\UNNNNNNNN, \\\\, \\\", \\[ or \\]"), 0;
    }
}

static pi__expr *read_literal(reader *r)
{
    const size_t open = r->at++;
    pi__text t = {.limit = 1 << 24};
    char c[4];
    while (!r->b->code && r->at < r->n && look(r) != '"') pi__text_add(&t, c, pi__utf8_put(read_char(r), c));
    if (!r->b->code && r->at == r->n) bad_at(r, open, "this text has no end: a \" is missing", "", 0);
    if (t.code) pi__builder_fail(r->b, t.code, "grammar: a text is too long");
    r->at++;
    pi__expr *x = pi__x_bytes(r->b, t.p ? t.p : "", t.n);
    pi__free(t.p);
    return x;
}

static pi__expr *read_class(reader *r)
{
    const size_t open = r->at++;
    const bool inverted = take(r, "^");
    pi__range *range = NULL;
    size_t n = 0, cap = 0;
    while (!r->b->code && r->at < r->n && look(r) != ']') {
        const size_t at = r->at;
        pi__range x = {.lo = read_char(r)};
        x.hi = x.lo;
        if (look(r) == '-' && r->at + 1 < r->n && r->text[r->at + 1] != ']') {
            r->at++;
            x.hi = read_char(r);
        }
        if (!r->b->code && x.hi < x.lo) bad_at(r, at, "the end of this range is before its start: swap them", "", 0);
        if (!r->b->code && !pi__grow(&range, &cap, n + 1, sizeof *range)) pi__builder_fail(r->b, PI_ENOMEM,
            "out of memory for the grammar");
        if (!r->b->code) range[n++] = x;
    }
    if (!r->b->code && r->at == r->n) bad_at(r, open, "this class has no end: a ] is missing", "", 0);
    r->at++;
    const pi__class c = pi__class_of(r->b, range, n, inverted);
    pi__free(range);
    return pi__x_class(r->b, c);
}

/* --------------------------------------------------------------------------------------------------------- elements */

/* Reads <[123]> or <text>, optionally preceded by !. */
static pi__expr *read_token(reader *r)
{
    const size_t open = r->at;
    const bool inverted = take(r, "!");
    const pi__tokens *t = r->b->tokens;
    if (!take(r, "<")) return bad(r, "a token is missing after !: give !<[ID]> or !<text>");
    if (take(r, "[")) {
        int64_t id = 0;
        const size_t at = r->at;
        while (look(r) >= '0' && look(r) <= '9' && id < INT32_MAX) id = id * 10 + (r->text[r->at++] - '0');
        if (r->at == at || !take(r, "]>")) return bad(r, "write a token id as <[ID]>");
        if (id >= t->n_vocab) return bad_at(r, open, "the vocabulary has no token with this id", "", 0);
        return pi__x_token(r->b, (int32_t) id, inverted);
    }
    const char *end = memchr(r->text + r->at, '>', r->n - r->at);
    if (!end) return bad_at(r, open, "this token has no end: a > is missing", "", 0);
    const size_t from = inverted ? open + 1 : open, len = (size_t) (end - r->text) + 1 - from;
    const int32_t id = pi__vocab_find(t->v, r->text + from, len);
    if (id < 0 || id >= t->n_vocab) return bad_at(r, open, "the vocabulary has no token ", r->text + from, len);
    r->at = from + len;
    return pi__x_token(r->b, id, inverted);
}

/* Reads %json{...}, which matches any text of the schema. */
static pi__expr *read_json(reader *r)
{
    const size_t open = r->at;
    if (!take(r, "%json")) return bad(r, "unknown directive: only %json{...} is supported");
    space(r, true);
    const size_t from = r->at;
    int depth = 0;
    bool in_text = false;
    if (look(r) != '{') return bad(r, "a schema is missing after %json: write it as {...}");
    for (; r->at < r->n; r->at++) {
        const char c = r->text[r->at];
        if (in_text && c == '\\') r->at++;
        else if (c == '"') in_text = !in_text;
        else if (!in_text && (c == '{' || c == '[')) depth++;
        else if (!in_text && (c == '}' || c == ']') && !--depth) break;
    }
    if (r->at >= r->n) return bad_at(r, open, "this schema has no end: a } is missing", "", 0);
    r->at++;
    return pi__read_schema_text(r->b, r->text + from, r->at - from, "%json");
}

/* Returns the number of the rule named at the current position; a new name gets a new rule. */
static uint32_t rule_named(reader *r)
{
    const size_t from = r->at;
    while (r->at < r->n && is_name(look(r))) r->at++;
    const pi__val key = pi__val_str((pi__str) {r->text + from, r->at - from});
    const pi__val *known = pi__dict_get(r->names, key);
    if (known) return (uint32_t) known->i;
    const uint32_t rule = pi__rule_new(r->b);
    if (!r->b->code && !pi__dict_set(&r->b->zone, r->names, key, pi__val_int(rule))) pi__builder_take(r->b,
        SIZE_MAX / 2);
    if (!r->b->code) r->b->name[rule] = key.s;
    return rule;
}

static pi__expr *read_group(reader *r)
{
    const size_t open = r->at++;
    if (++r->depth > PI__EXPR_DEPTH) return bad(r, "groups are nested more than 200 deep: use fewer");
    space(r, true);
    pi__expr *x = read_alternates(r, true);
    r->depth--;
    if (!r->b->code && !take(r, ")")) return bad_at(r, open, "this group has no end: a ) is missing", "", 0);
    return x;
}

/* Reads an element without its repetition. Returns NULL if no element starts here. */
static pi__expr *read_element(reader *r)
{
    static const pi__range any[] = {{0, 0x10FFFF}};
    switch (look(r)) {
    case '"': return read_literal(r);
    case '[': return read_class(r);
    case '(': return read_group(r);
    case '<': case '!': return read_token(r);
    case '%': return read_json(r);
    case '.': r->at++; return pi__x_class(r->b, pi__class_of(r->b, any, 1, false));
    }
    return is_name(look(r)) ? pi__x_rule(r->b, rule_named(r)) : NULL;
}

static bool read_count(reader *r, uint32_t *out)
{
    uint64_t v = 0;
    const size_t from = r->at;
    while (look(r) >= '0' && look(r) <= '9' && v < UINT32_MAX) v = v * 10 + (uint64_t) (r->text[r->at++] - '0');
    if (v >= UINT32_MAX) v = UINT32_MAX - 1;
    *out = (uint32_t) v;
    return r->at > from;
}

/* Reads a repetition suffix of x: * + ? {m} {m,} {m,n} {,n}. Returns NULL if there is no suffix. */
static pi__expr *read_repetition(reader *r, pi__expr *x)
{
    uint32_t min = 0, max = PI__REP_INF;
    if (take(r, "*")) return pi__x_rep(r->b, x, 0, max);
    if (take(r, "+")) return pi__x_rep(r->b, x, 1, max);
    if (take(r, "?")) return pi__x_rep(r->b, x, 0, 1);
    if (!take(r, "{")) return NULL;
    const size_t open = r->at - 1;
    space(r, true);
    const bool low = read_count(r, &min);
    space(r, true);
    bool high = false;
    if (take(r, ",")) {
        space(r, true);
        high = read_count(r, &max);
        if (!high) max = PI__REP_INF;
        space(r, true);
    } else {
        max = min;
    }
    if (!take(r, "}") || (!low && !high)) return bad_at(r, open, "write a repetition as {m}, {m,}, {m,n} or {,n}", "",
                                                        0);
    if (max < min) return bad_at(r, open, "the maximum of this repetition is below its minimum: swap them", "", 0);
    if (min > PI__MAX_MIN)
        return bad_at(r, open, "the minimum of this repetition exceeds any answer: lower it", "", 0);
    return pi__x_rep(r->b, x, min, max);
}

/* Reads elements up to the end. The outermost sequence ends at a line end: the next line begins another rule. */
static pi__expr *read_sequence(reader *r, bool nested)
{
    pi__expr *seq = pi__x_cat(r->b), *x, *more;
    while (!r->b->code && (x = read_element(r))) {
        space(r, nested);
        for (int n = 0; !r->b->code && (more = read_repetition(r, x)); n++) {
            x = n < MAX_STACKED ? more : bad(r, "too many repetitions of one element: put it in a group");
            space(r, nested);
        }
        pi__x_add(r->b, seq, x);
    }
    return seq;
}

static pi__expr *read_alternates(reader *r, bool nested)
{
    pi__expr *alt = pi__x_alt(r->b);
    pi__x_add(r->b, alt, read_sequence(r, nested));
    for (;;) {
        const size_t line_end = r->at;
        if (!nested) space(r, true); /* the next line may continue with | */
        if (r->b->code || !take(r, "|")) {
            r->at = line_end;
            return alt;
        }
        space(r, true);
        pi__x_add(r->b, alt, read_sequence(r, nested));
    }
}

static void read_rule(reader *r)
{
    const size_t from = r->at;
    if (!is_name(look(r))) {
        bad(r, "a rule's name is missing: write a rule as NAME ::= ...");
        return;
    }
    const uint32_t rule = rule_named(r);
    const size_t len = r->at - from;
    space(r, false);
    if (!take(r, "::=")) {
        bad(r, "::= is missing after the rule's name");
        return;
    }
    if (!r->b->code && r->b->rule[rule]) {
        bad_at(r, from, "two rules have the same name: rename ", r->text + from, len);
        return;
    }
    space(r, true);
    pi__rule_set(r->b, rule, read_alternates(r, false));
    if (r->b->code || r->at == r->n) return;
    if (look(r) != '\n' && look(r) != '\r') bad(r, look(r) == ')' ? "this ) has no matching ("
                                                : "this is not an element of a rule");
}

pi__expr *pi__read_gbnf(pi__builder *b, const char *text, size_t n, const char *start)
{
    reader r = {.b = b, .text = text, .n = n};
    const size_t first = b->n_rules;
    pi__val names;
    const pi__val *root = NULL;
    if (!pi__val_new_map(&b->zone, &names)) pi__builder_take(b, SIZE_MAX / 2);
    else r.names = names.map;
    if (!b->code && memchr(text, 0, n)) bad(&r, "the text has a NUL byte: remove it");
    for (space(&r, true); !b->code && r.at < n; space(&r, true)) read_rule(&r);
    if (!b->code) root = pi__dict_get(r.names, pi__val_str(pi__str_of(start)));
    if (!b->code && !root)
        pi__builder_fail(b, PI_EINVAL, "grammar: there is no rule %s, the start rule: add %s ::= ...", start,
                         start);
    for (size_t i = first; i < b->n_rules && !b->code; i++) {
        if (b->rule[i]) continue;
        bad_at(&r, (size_t) (b->name[i].p - text), "there is no rule ", b->name[i].p, b->name[i].n);
    }
    return b->code ? pi__x_never(b) : pi__x_rule(b, (uint32_t) root->i);
}
