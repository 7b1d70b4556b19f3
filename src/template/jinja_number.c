/* The filters int, float and round: strings are parsed as by Python's int() and float(), failures handled as in
 * jinja2, and round() rounds halves to even.
 *
 * A string is first converted to plain ASCII: digits of any script become 0 to 9, and surrounding white space and
 * underscores between digits are removed. Integers have 64 bits; unlike in Python, larger ones are an error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template/jinja_impl.h"
#include "base/unicode.h"

typedef pi__jrun run;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int digit_value(char c)
{
    char low = (char) (c | 32);
    return is_digit(c) ? c - '0' : low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
}

/* Copies s to the zone as ASCII without surrounding white space; characters that no number has become '?'. */
static bool plain(run *r, pi__str s, pi__str *out)
{
    /* all white space that Python drops if the string is ASCII */
    const pi__str ascii_space = pi__str_of(" \t\n\v\f\r");
    bool ascii = true;
    for (size_t i = 0; i < s.n; i++) ascii &= (unsigned char) s.p[i] < 0x80;
    s = pi__jstrip(s, PI__J_LEFT | PI__J_RIGHT, ascii ? &ascii_space : NULL);
    char *p = pi__zone_take(r->z, s.n + 1);
    if (!p) return pi__jno_room(r);
    size_t n = 0;
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t cp = 0;
        len = pi__utf8_char(s.p + i, s.n - i, &cp);
        if (!len) len = 1;
        int d = pi__udigit(cp);
        p[n++] = d >= 0 ? (char) ('0' + d) : cp > 0 && cp < 0x80 ? (char) cp : '?';
    }
    *out = (pi__str) {p, n};
    return pi__jcost(r, s.n * PI__J_LOOKUP);
}

enum parsed { NO_NUMBER, NUMBER, TOO_LARGE };

/* Parses as int(s, base): a sign, a base prefix, digits with single underscores between them. */
static enum parsed read_int(pi__str s, int64_t base, int64_t *out)
{
    size_t i = 0;
    bool minus = s.n && s.p[0] == '-', over = false, zero_only = false;
    i += minus || (s.n && s.p[0] == '+');
    if (i + 1 < s.n && s.p[i] == '0' && base != 10) {
        char c = (char) (s.p[i + 1] | 32);
        int64_t says = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (says && (!base || base == says)) {
            base = says;
            i += 2;
            i += i < s.n && s.p[i] == '_';
        }
    }
    if (!base) {
        zero_only = i < s.n && s.p[i] == '0'; /* 007 is invalid without a base */
        base = 10;
    }
    if (i == s.n) return NO_NUMBER;
    *out = 0;
    for (bool digit = false; i < s.n; i++) {
        if (s.p[i] == '_' && digit && i + 1 < s.n) {
            digit = false;
            continue;
        }
        int d = digit_value(s.p[i]);
        if (d >= base || (zero_only && d)) return NO_NUMBER;
        over |= __builtin_mul_overflow(*out, base, out) || __builtin_add_overflow(*out, minus ? -d : d, out);
        digit = true;
    }
    return over ? TOO_LARGE : NUMBER;
}

/* True if the n bytes at p equal the word, ignoring case. */
static bool is_word(const char *p, size_t n, const char *word)
{
    size_t i = 0;
    while (i < n && word[i] && (p[i] | 32) == word[i]) i++;
    return i == n && !word[i];
}

/* Parses as float(s); s must be plain. NO_NUMBER leaves *out unchanged. */
static enum parsed read_float(run *r, pi__str s, double *out)
{
    size_t sign = s.n && (s.p[0] == '-' || s.p[0] == '+'), n = 0;
    const char *p = s.p + sign;
    size_t left = s.n - sign;
    bool minus = sign && s.p[0] == '-', inf = is_word(p, left, "inf") || is_word(p, left, "infinity");
    if (inf || is_word(p, left, "nan")) {
        *out = inf ? (minus ? -INFINITY : INFINITY) : NAN;
        return NUMBER;
    }
    char *b = pi__zone_take(r->z, left + 3); /* capacity for one digit added on each side of the point */
    if (!b) return NO_NUMBER;
    for (size_t i = 0; i < left; i++) {
        bool before = i && is_digit(p[i - 1]), after = i + 1 < left && is_digit(p[i + 1]);
        if (p[i] == '_' && before && after) continue;
        if (p[i] == '.' && !before && !after) return NO_NUMBER;
        if (p[i] == '.' && !before) b[n++] = '0';
        b[n++] = p[i];
        if (p[i] == '.' && !after) b[n++] = '0';
    }
    pi__val v;
    if (!n || !is_digit(b[0]) || pi__number_read(b, n, &v) != n) return NO_NUMBER;
    *out = minus ? -pi__val_f64(&v) : pi__val_f64(&v);
    return NUMBER;
}

/* Truncates toward zero. */
static enum parsed truncate(double f, int64_t *out)
{
    if (isnan(f) || isinf(f)) return NO_NUMBER;
    if (f >= 0x1p63 || f < -0x1p63) return TOO_LARGE;
    *out = (int64_t) f;
    return NUMBER;
}

/* Converts a string to an integer: in the base, or else as a float without its fraction. */
static bool int_of_str(run *r, pi__str text, const pi__val *base, enum parsed *how, int64_t *i)
{
    double f;
    pi__str s;
    int64_t b = pi__jis_integer(base) ? pi__jinteger(base) : -1;
    if (!plain(r, text, &s)) return false;
    *how = b == 0 || (b >= 2 && b <= 36) ? read_int(s, b, i) : NO_NUMBER;
    if (*how == NO_NUMBER && read_float(r, s, &f) == NUMBER) *how = truncate(f, i);
    return !r->z->code || pi__jno_room(r);
}

bool pi__jfilter_int(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *def = pi__jarg(a, 0, "default"), *base = pi__jarg(a, 1, "base"), ten = pi__val_int(10);
    enum parsed how = NO_NUMBER;
    int64_t i = 0;
    if (!pi__jdefined(r, in)) return false;
    if (in->type == PI__V_STR && !int_of_str(r, in->s, base ? base : &ten, &how, &i)) return false;
    if (pi__jis_integer(in)) {
        i = pi__jinteger(in);
        how = NUMBER;
    } else if (in->type == PI__V_FLOAT) {
        if (isinf(in->f)) return pi__jfail(r, "int: infinity is not an integer");
        how = truncate(in->f, &i);
    }
    if (how == TOO_LARGE) return pi__jfail(r, "int: the number is too large");
    *out = how == NUMBER ? pi__val_int(i) : def ? *def : pi__val_int(0);
    return true;
}

bool pi__jfilter_float(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *def = pi__jarg(a, 0, "default");
    bool ok = pi__val_is_number(in);
    double f = ok ? pi__val_f64(in) : 0;
    pi__str s;
    if (!pi__jdefined(r, in)) return false;
    if (in->type == PI__V_STR) {
        if (!plain(r, in->s, &s)) return false;
        ok = read_float(r, s, &f) == NUMBER;
        if (r->z->code) return pi__jno_room(r);
    }
    *out = ok ? pi__val_float(f) : def ? *def : pi__val_float(0);
    return true;
}

/* ----------------------------------------------------------------------------------------------------------- round */

/* Rounds i to a multiple of 10^digits, halves to even. */
static bool round_whole(run *r, int64_t i, int64_t digits, pi__val *out)
{
    int64_t unit = 1;
    *out = pi__val_int(0);
    if (digits > 19) return true;
    for (int64_t k = 0; k < digits; k++)
        if (__builtin_mul_overflow(unit, (int64_t) 10, &unit)) return true; /* the unit is more than twice any i */
    int64_t down = i / unit - (i % unit < 0), rest = i - down * unit;       /* i = down * unit + rest */
    int64_t up = rest > unit - rest || (rest == unit - rest && down % 2);
    bool over = __builtin_mul_overflow(down + up, unit, &i);
    *out = pi__val_int(i);
    return !over || pi__jfail(r, "round: the number is too large");
}

/* Rounds f to n digits after the point (n < 0: before it), from its exact value. */
static double round_float(double f, int64_t n)
{
    char b[768];
    if (isnan(f) || isinf(f) || n > 323) return f;
    if (n < -308) return f * 0.0;
    if (n < 0) return rint(f / pow(10, (double) -n)) * pow(10, (double) -n);
    snprintf(b, sizeof b, "%.*f", (int) n, f);
    return strtod(b, NULL);
}

/* precision NULL = 0, the filter's default; none = to an integer. */
static bool round_common(run *r, const pi__val *in, const pi__val *precision, pi__val *out)
{
    int64_t n = precision && precision->type != PI__V_NONE ? pi__jinteger(precision) : 0, i;
    if (pi__jis_integer(in)) return round_whole(r, pi__jinteger(in), n < 0 ? n < -100 ? 100 : -n : 0, out);
    *out = pi__val_float(round_float(in->f, n));
    if (!precision || precision->type != PI__V_NONE) return true;
    if (truncate(rint(in->f), &i) != NUMBER) return pi__jfail(r, "round: the number is too large");
    *out = pi__val_int(i);
    return true;
}

bool pi__jfilter_round(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *precision = pi__jarg(a, 0, "precision"), *method = pi__jarg(a, 1, "method");
    bool none = precision && precision->type == PI__V_NONE;
    pi__str how = !method ? pi__str_of("common") : method->type == PI__V_STR ? method->s : pi__str_of("");
    bool common = pi__str_is(how, "common"), up = pi__str_is(how, "ceil");
    if (!pi__jdefined(r, in)) return false;
    if (!pi__val_is_number(in)) return pi__jfail(r, "round: %s is not a number", pi__val_type_name(in));
    if (!common && !up && !pi__str_is(how, "floor")) return pi__jfail(r, "round: the method must be common, ceil or "
                                                                         "floor");
    if (precision && !pi__jis_integer(precision) && !(none && common))
        return pi__jfail(r, "round: the precision must be an integer");
    if (common) return round_common(r, in, precision, out);
    double scale = pow(10, precision ? (double) pi__jinteger(precision) : 0), x = pi__val_f64(in) * scale;
    if (isnan(x) || isinf(x)) return pi__jfail(r, "round: the number is too large");
    *out = pi__val_float((up ? ceil(x) : floor(x)) / scale + 0.0); /* avoids -0, which an integer never is */
    return true;
}
