/* Splits a template's text into tokens, with Jinja's white space control.
 *
 *     text\n   {% if x %}\n  y {{- z }}        trim_blocks: removes the newline after a block
 *           ^^^           ^^  ^                lstrip_blocks: removes white space between a line's start and a block
 *                                              "-": removes all white space on that side; "+": disables both rules
 *
 * Memory: tokens on the heap, strings in the template's zone or its text. Lines are counted incrementally. */
#include <string.h>

#include "template/jinja_impl.h"
#include "base/utf8.h"

typedef struct lexer {
    pi__jparse *p;
    const char *s;    /* [n] */
    size_t n, at;     /* current byte offset */
    size_t counted;   /* newlines up to here are included in `line` */
    uint32_t line;    /* line number at `counted` */
    bool line_start;  /* the previous token ended with a newline */
} lexer;

static uint32_t line_at(lexer *x, size_t at)
{
    for (; x->counted < at; x->counted++) x->line += x->s[x->counted] == '\n';
    return x->line;
}

static bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) || (unsigned char) c >= 0x80;
}

/* True if the text at `at` starts with word. */
static bool sees(const lexer *x, size_t at, const char *word)
{
    size_t n = strlen(word);
    return at <= x->n && x->n - at >= n && !memcmp(x->s + at, word, n);
}

static bool add(lexer *x, int kind, char op, size_t at, pi__str s)
{
    pi__jparse *p = x->p;
    if (!pi__grow(&p->tok, &p->cap_tok, p->n_tok + 1, sizeof *p->tok)) {
        p->code = pi__fail_mem(p->err, "the chat template");
        return false;
    }
    p->tok[p->n_tok++] = (pi__jtok) {.kind = (uint8_t) kind, .op = (uint8_t) op, .line = line_at(x, at), .s = s};
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ text */

/* Adds the text from start to end; sign: that of the tag after it. */
static bool add_data(lexer *x, size_t start, size_t end, char sign, bool block)
{
    if (sign == '-') {
        while (end > start && is_white(x->s[end - 1])) end--;
    } else if (sign != '+' && block) {
        size_t k = end;
        while (k > start && is_white(x->s[k - 1]) && x->s[k - 1] != '\n') k--;
        if (k > start ? x->s[k - 1] == '\n' : x->line_start) end = k;
    }
    return end == start || add(x, PI__JT_DATA, 0, start, (pi__str) {x->s + start, end - start});
}

/* Skips the end of a tag, for example "-%}", and its white space. x->at: the closing characters. */
static void skip_end(lexer *x, char sign, bool block)
{
    x->at += 2;
    size_t from = x->at;
    if (sign == '-') {
        while (x->at < x->n && is_white(x->s[x->at])) x->at++;
    } else if (block && sign != '+' && x->at < x->n && x->s[x->at] == '\n') {
        x->at++;
    }
    x->line_start = x->at > from && x->s[x->at - 1] == '\n';
}

/* Returns the sign before closing characters, as in "-%}". */
static char sign_before(const lexer *x, size_t at)
{
    char c = at ? x->s[at - 1] : 0;
    return c == '-' || c == '+' ? c : 0;
}

static bool skip_comment(lexer *x)
{
    size_t start = x->at;
    for (x->at += 2; x->at < x->n && !sees(x, x->at, "#}"); x->at++) {}
    if (x->at >= x->n) return pi__jparse_fail(x->p, line_at(x, start), "the comment has no end");
    skip_end(x, x->at - start > 2 ? sign_before(x, x->at) : 0, true);
    return true;
}

/* Returns the length of "{%- raw -%}" or endraw at `at`, without the closing characters; 0 if it is something else. */
static size_t raw_tag(const lexer *x, size_t at, const char *word, char *close)
{
    size_t i = at + 2;
    if (!sees(x, at, "{%")) return 0;
    if (i < x->n && (x->s[i] == '-' || x->s[i] == '+')) i++;
    while (i < x->n && is_white(x->s[i])) i++;
    if (!sees(x, i, word)) return 0;
    i += strlen(word);
    while (i < x->n && is_white(x->s[i])) i++;
    *close = 0;
    if (i < x->n && (x->s[i] == '-' || x->s[i] == '+')) *close = x->s[i++];
    return sees(x, i, "%}") ? i - at : 0;
}

static bool lex_raw(lexer *x, size_t len, char close)
{
    size_t open = x->at, end = 0;
    x->at += len;
    skip_end(x, close ? close : '+', true); /* keeps the newline after raw */
    size_t start = x->at;
    for (; x->at < x->n; x->at++) {
        end = raw_tag(x, x->at, "endraw", &close);
        if (end) break;
    }
    if (!end) return pi__jparse_fail(x->p, line_at(x, open), "raw has no endraw");
    char sign = x->s[x->at + 2];
    if (!add_data(x, start, x->at, sign, true)) return false;
    x->at += end;
    skip_end(x, close, true);
    return true;
}

/* --------------------------------------------------------------------------------------------------------- strings */

static int hex_digit(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Reads "xHH", "uXXXX" or octal digits at p; returns the bytes used, or 0. */
static size_t numeric_escape(const char *p, size_t n, uint32_t *cp)
{
    size_t want = p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : p[0] == 'U' ? 8 : 0, i;
    *cp = 0;
    if (!want) {
        for (i = 0; i < n && i < 3 && p[i] >= '0' && p[i] <= '7'; i++) *cp = *cp * 8 + (uint32_t) (p[i] - '0');
        return i;
    }
    for (i = 1; i <= want && i < n && hex_digit(p[i]) >= 0; i++) *cp = *cp << 4 | (uint32_t) hex_digit(p[i]);
    return i == want + 1 && *cp <= 0x10FFFF && (*cp < 0xD800 || *cp > 0xDFFF) ? i : 0;
}

/* Decodes the n bytes between quotes by Python's rules: unknown escapes stay unchanged. */
static bool unescape(lexer *x, const char *p, size_t n, pi__str *out)
{
    static const char from[] = "\\'\"abfnrtv", is[] = "\\'\"\a\b\f\n\r\t\v";
    *out = (pi__str) {p, n};
    if (!n || !memchr(p, '\\', n)) return true;
    char *to = pi__zone_take(&x->p->t->zone, n * 2); /* "\377" becomes a character of two bytes */
    if (!to) return pi__jparse_no_room(x->p);
    out->p = to;
    for (size_t i = 0, len; i < n; i += len) {
        len = 1;
        if (p[i] != '\\' || i + 1 >= n) {
            *to++ = p[i];
            continue;
        }
        const char *e = p[i + 1] ? strchr(from, p[i + 1]) : NULL;
        uint32_t cp;
        if (e) {
            *to++ = is[e - from];
            len = 2;
        } else if (p[i + 1] == '\n') {
            len = 2;
        } else if ((len = numeric_escape(p + i + 1, n - i - 1, &cp)) > 0) {
            to += pi__utf8_put(cp, to);
            len++;
        } else {
            *to++ = '\\';
            len = 1;
        }
    }
    out->n = (size_t) (to - out->p);
    return true;
}

static bool lex_string(lexer *x)
{
    size_t start = x->at, i = start + 1;
    while (i < x->n && x->s[i] != x->s[start]) i += 1 + (x->s[i] == '\\');
    if (i >= x->n) return pi__jparse_fail(x->p, line_at(x, start), "the string has no end");
    pi__str s;
    if (!unescape(x, x->s + start + 1, i - start - 1, &s)) return false;
    x->at = i + 1;
    return add(x, PI__JT_STRING, 0, start, s);
}

/* ------------------------------------------------------------------------------------------------------------ tags */

static bool lex_operator(lexer *x)
{
    static const char pairs[][4] = {"==e", "!=n", ">=g", "<=l", "//f", "**p"};
    size_t start = x->at;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (x->n - x->at < 2 || memcmp(x->s + x->at, pairs[i], 2)) continue;
        x->at += 2;
        return add(x, PI__JT_OP, pairs[i][2], start, (pi__str) {x->s + start, 2});
    }
    char c = x->s[x->at++];
    if (!c || !strchr("+-/*%~[](){}><=.:|,", c))
        return pi__jparse_fail(x->p, line_at(x, start), "unexpected character '%c'", c >= ' ' && c < 127 ? c : '?');
    return add(x, PI__JT_OP, c, start, (pi__str) {x->s + start, 1});
}

static bool lex_token(lexer *x)
{
    size_t start = x->at;
    char c = x->s[start];
    if (c == '"' || c == '\'') return lex_string(x);
    if (is_digit(c)) {
        pi__val v;
        x->at += pi__number_read(x->s + start, x->n - start, &v);
        if (!add(x, PI__JT_NUMBER, 0, start, (pi__str) {x->s + start, x->at - start})) return false;
        x->p->tok[x->p->n_tok - 1].v = v;
        return true;
    }
    if (!is_name(c)) return lex_operator(x);
    while (x->at < x->n && is_name(x->s[x->at])) x->at++;
    return add(x, PI__JT_NAME, 0, start, (pi__str) {x->s + start, x->at - start});
}

/* Adds the tokens of {{ }} or {% %}, including its end. Inside brackets, "}}" closes brackets. */
static bool lex_tag(lexer *x, bool block)
{
    size_t open = x->at, brackets = 0;
    const char *close = block ? "%}" : "}}";
    if (!add(x, block ? PI__JT_BLOCK : PI__JT_PRINT, 0, open, (pi__str) {x->s + open, 2})) return false;
    x->at += 2;
    if (x->at < x->n && (x->s[x->at] == '-' || x->s[x->at] == '+')) x->at++;
    for (;;) {
        while (x->at < x->n && is_white(x->s[x->at])) x->at++;
        if (x->at >= x->n) return pi__jparse_fail(x->p, line_at(x, open), "the tag has no end");
        char c = x->s[x->at];
        size_t sign = (c == '-' || (c == '+' && block)) && sees(x, x->at + 1, close);
        if (!brackets && (sign || sees(x, x->at, close))) {
            x->at += sign;
            int kind = block ? PI__JT_BLOCK_END : PI__JT_PRINT_END;
            if (!add(x, kind, 0, x->at, (pi__str) {x->s + x->at, 2})) return false;
            skip_end(x, sign ? c : 0, block);
            return true;
        }
        if (strchr("([{", c) && c) brackets++;
        if (brackets && strchr(")]}", c) && c) brackets--;
        if (!lex_token(x)) return false;
    }
}

bool pi__jlex(pi__jparse *p)
{
    lexer x = {.p = p, .s = p->t->text.p, .n = p->t->text.n, .line = 1, .line_start = true};
    while (x.at < x.n) {
        size_t start = x.at;
        while (x.at < x.n && !sees(&x, x.at, "{{") && !sees(&x, x.at, "{%") && !sees(&x, x.at, "{#")) x.at++;
        if (x.at >= x.n) {
            if (!add_data(&x, start, x.n, '+', false)) return false;
            break;
        }
        char kind = x.s[x.at + 1], sign = x.at + 2 < x.n ? x.s[x.at + 2] : 0, close;
        if (!add_data(&x, start, x.at, sign, kind != '{')) return false;
        size_t raw = raw_tag(&x, x.at, "raw", &close);
        bool ok = raw ? lex_raw(&x, raw, close) : kind == '#' ? skip_comment(&x) : lex_tag(&x, kind == '%');
        if (!ok) return false;
    }
    return add(&x, PI__JT_END, 0, x.n, (pi__str) {"", 0});
}
