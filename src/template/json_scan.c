/* Checks JSON byte by byte (see json_scan.h): a state, and one bit per nesting level. Only the caller's memory. */
#include "template/json_scan.h"

#include <string.h>

enum {
    VALUE,      /* expects a value */
    FIRST_ITEM, /* expects a value, or the end of a list */
    FIRST_KEY,  /* expects a key, or the end of a map */
    KEY,        /* expects a key */
    COLON,
    NEXT,       /* after a value: expects a comma, or the end of the container */
    STRING, ESCAPE, HEX, WORD,
    MINUS, ZERO, DIGITS, POINT, FRACTION, EXP, EXP_SIGN, EXP_DIGITS, /* the part of a number read so far */
    DONE,
};

void pi__json_scan_start(pi__json_scan *s) { *s = (pi__json_scan) {.state = VALUE}; }

static bool is_white(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_hex(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); }
static bool in_map(const pi__json_scan *s) { return s->map[(s->depth - 1) / 8] >> ((s->depth - 1) % 8) & 1; }

static bool push(pi__json_scan *s, bool map)
{
    if (s->depth == PI__SCAN_DEPTH) return false;
    uint8_t bit = (uint8_t) (1u << (s->depth % 8));
    if (map) s->map[s->depth / 8] |= bit;
    else s->map[s->depth / 8] &= (uint8_t) ~bit;
    s->depth++;
    s->state = map ? FIRST_KEY : FIRST_ITEM;
    return true;
}

/* Ends a value. */
static bool close_value(pi__json_scan *s)
{
    s->state = s->depth ? NEXT : DONE;
    return true;
}

static bool pop(pi__json_scan *s, bool map)
{
    if (!s->depth || in_map(s) != map) return false;
    s->depth--;
    return close_value(s);
}

static bool begin_value(pi__json_scan *s, char c)
{
    static const char *const words[] = {"true", "false", "null"};
    if (c == '{' || c == '[') return push(s, c == '{');
    s->key = false;
    s->state = c == '"' ? STRING : c == '-' ? MINUS : c == '0' ? ZERO : is_digit(c) ? DIGITS : WORD;
    if (s->state != WORD) return true;
    for (int i = 0; i < 3; i++) {
        if (c != words[i][0]) continue;
        s->word = words[i] + 1;
        return true;
    }
    return false;
}

static bool in_string(pi__json_scan *s, char c)
{
    if (s->state == HEX) {
        if (!is_hex(c)) return false;
        if (!--s->n_hex) s->state = STRING;
        return true;
    }
    if (s->state == ESCAPE) {
        s->state = c == 'u' ? HEX : STRING;
        s->n_hex = 4;
        return c && strchr("\"\\/bfnrtu", c);
    }
    if (c == '\\') s->state = ESCAPE;
    if (c == '"' && s->key) s->state = COLON;
    else if (c == '"') return close_value(s);
    return (unsigned char) c >= 0x20;
}

static bool is_whole_number(const pi__json_scan *s)
{
    return s->state == ZERO || s->state == DIGITS || s->state == FRACTION || s->state == EXP_DIGITS;
}

/* Returns 1 if c continues the number, 0 if c is after it, -1 if the number is invalid. */
static int in_number(pi__json_scan *s, char c)
{
    bool digit = is_digit(c), point = c == '.', exp = c == 'e' || c == 'E', sign = c == '+' || c == '-';
    int to = -1;
    switch (s->state) {
    case MINUS: to = c == '0' ? ZERO : digit ? DIGITS : -1; break;
    case ZERO: to = point ? POINT : exp ? EXP : -1; break;
    case DIGITS: to = digit ? DIGITS : point ? POINT : exp ? EXP : -1; break;
    case POINT: to = digit ? FRACTION : -1; break;
    case FRACTION: to = digit ? FRACTION : exp ? EXP : -1; break;
    case EXP: to = digit ? EXP_DIGITS : sign ? EXP_SIGN : -1; break;
    default: to = digit ? EXP_DIGITS : -1;
    }
    if (to < 0) return is_whole_number(s) && !digit ? 0 : -1;
    s->state = (uint8_t) to;
    return 1;
}

/* Handles a byte between values, except white space. */
static bool between(pi__json_scan *s, char c)
{
    switch (s->state) {
    case FIRST_ITEM:
        if (c == ']') return pop(s, false);
        return begin_value(s, c);
    case VALUE: return begin_value(s, c);
    case FIRST_KEY:
        if (c == '}') return pop(s, true);
        /* fall through */
    case KEY:
        s->key = true;
        s->state = STRING;
        return c == '"';
    case COLON:
        s->state = VALUE;
        return c == ':';
    default: /* NEXT */
        if (c != ',') return pop(s, c == '}') && (c == '}' || c == ']');
        s->state = in_map(s) ? KEY : VALUE;
        return true;
    }
}

size_t pi__json_scan_feed(pi__json_scan *s, const char *p, size_t n, int *end)
{
    *end = 0;
    for (size_t i = 0; i < n; i++) {
        bool ok = true;
        if (s->state >= MINUS && s->state <= EXP_DIGITS) {
            int k = in_number(s, p[i]);
            if (k > 0) continue;
            ok = !k && close_value(s);
            if (ok && s->state == DONE) {
                *end = 1;
                return i;
            }
        }
        if (ok && s->state >= STRING && s->state <= HEX) ok = in_string(s, p[i]);
        else if (ok && s->state == WORD) {
            ok = *s->word++ == p[i];
            if (ok && !*s->word) close_value(s);
        } else if (ok && !is_white(p[i])) ok = between(s, p[i]);
        if (!ok || s->state == DONE) {
            *end = ok ? 1 : -1;
            return i + ok;
        }
    }
    return n;
}
