/* Numbers in JSON, within bounds (see schema.c).
 *
 * Bounds become choices by decimal digits: 17 <= x becomes 1[7-9] | [2-9][0-9] | [1-9][0-9]{2,15}. A number with bounds
 * is written without an exponent. At most 16 digits in a row; bounds beyond 10^15 are refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema.h"

enum { MAX_DIGITS = 16 };

typedef struct bound {
    bool set;    /* there is one */
    bool open;   /* the bound itself is out */
    double v;
} bound;

typedef struct decimal { /* of a number that is not negative */
    int64_t whole;
    char frac[32];       /* digits behind the point, without zeros at the end */
    size_t n;
} decimal;

bool pi__schema_count(pi__schema *s, const pi__val *v, const char *key, uint32_t *out)
{
    const double x = pi__val_is_number(v) && v->type != PI__V_BOOL ? pi__val_f64(v) : -1;
    if (x < 0 || x != floor(x)) {
        pi__schema_fail(s, PI_EINVAL, "%s: give a whole number that is not negative", key);
        return false;
    }
    if (x > 1e9) *out = PI__REP_INF; /* no limit; refused where at least so many are asked for */
    else *out = (uint32_t) x;
    return true;
}

/* ---------------------------------------------------------------------------------------------------- whole numbers */

static pi__expr *digits(pi__builder *b, uint32_t min, uint32_t max) { return pi__x_rep(b, pi__x_chars(b, "09"), min,
    max); }

static pi__expr *digit(pi__builder *b, char lo, char hi)
{
    const char pair[] = {lo, hi, 0};
    return lo > hi ? pi__x_never(b) : lo == hi ? pi__x_bytes(b, &lo, 1) : pi__x_chars(b, pair);
}

/* n digits from lo on and up to hi; NULL: no bound. */
static pi__expr *between(pi__builder *b, const char *lo, const char *hi, uint32_t n)
{
    if (!n) return pi__x_empty(b);
    if (!lo && !hi) return digits(b, n, n);
    if (lo && hi && *lo == *hi) return pi__x_cat2(b, digit(b, *lo, *lo), between(b, lo + 1, hi + 1, n - 1));
    const char first = lo ? (char) (*lo + 1) : '0', last = hi ? (char) (*hi - 1) : '9';
    pi__expr *alt = pi__x_alt2(b, pi__x_cat2(b, digit(b, first, last), digits(b, n - 1, n - 1)), pi__x_never(b));
    if (lo) pi__x_add(b, alt, pi__x_cat2(b, digit(b, *lo, *lo), between(b, lo + 1, NULL, n - 1)));
    if (hi) pi__x_add(b, alt, pi__x_cat2(b, digit(b, *hi, *hi), between(b, NULL, hi + 1, n - 1)));
    return alt;
}

/* Whole numbers from lo to hi, not negative; hi -1: no bound. */
static pi__expr *whole_between(pi__builder *b, int64_t lo, int64_t hi)
{
    char low[24], high[24];
    pi__expr *alt = pi__x_alt(b);
    if (hi >= 0 && hi < lo) return pi__x_never(b);
    const uint32_t n = (uint32_t) snprintf(low, sizeof low, "%lld", (long long) lo);
    const uint32_t k = hi < 0 ? MAX_DIGITS + 1 : (uint32_t) snprintf(high, sizeof high, "%lld", (long long) hi);
    if (n == k) return between(b, low, high, n);
    pi__x_add(b, alt, between(b, low, NULL, n));
    const uint32_t most = k - 1 < MAX_DIGITS ? k - 1 : MAX_DIGITS;
    if (n + 1 <= most) pi__x_add(b, alt, pi__x_cat2(b, pi__x_chars(b, "19"), digits(b, n, most - 1)));
    if (hi >= 0) { /* as long as hi: no zero at the start */
        char one[24] = "1000000000000000000000";
        one[k] = 0;
        pi__x_add(b, alt, between(b, one, high, k));
    }
    return alt;
}

static pi__expr *minus(pi__builder *b, pi__expr *x) { return pi__x_cat2(b, pi__x_text(b, "-"), x); }

static pi__expr *whole_number(pi__builder *b, bound lo, bound hi)
{
    int64_t from = 0, to = -1;
    pi__expr *alt = pi__x_alt(b);
    if (lo.set) from = (int64_t) ceil(lo.v) + (lo.open && ceil(lo.v) == lo.v);
    if (hi.set) to = (int64_t) floor(hi.v) - (hi.open && floor(hi.v) == hi.v);
    if (!hi.set || to >= 0) pi__x_add(b, alt, whole_between(b, lo.set && from > 0 ? from : 0, hi.set ? to : -1));
    if (!lo.set || from < 0) pi__x_add(b, alt, minus(b, whole_between(b, hi.set && to < 0 ? -to : 1, lo.set ? -from
                                                                      : -1)));
    return alt;
}

/* -------------------------------------------------------------------------------------------------------- fractions */

/* Digits behind the point of a fraction above lo (or lo itself, unless open) and below hi; NULL: no bound. first: none
 * was written yet, so that there has to be one. What is written so far is a start of the bounds that are left. */
static pi__expr *fraction(pi__builder *b, const char *lo, bool lo_open, const char *hi, bool hi_open, bool first,
                          uint32_t left)
{
    pi__expr *alt = pi__x_alt(b);
    const bool lo_over = lo && !*lo, hi_over = hi && !*hi; /* equal to it so far */
    if (!left) return lo_over && !lo_open && !hi ? pi__x_empty(b) : pi__x_never(b);
    if (hi_over) { /* only zeros, and not even equality if open */
        if (hi_open || (lo && (!lo_over || lo_open))) return pi__x_never(b);
        return pi__x_rep(b, pi__x_text(b, "0"), first, left);
    }
    if (lo_over && !lo_open && !hi) return digits(b, first, left);
    if (!lo && !hi) return digits(b, first, left);
    if (!first && (!lo || (lo_over && !lo_open))) pi__x_add(b, alt, pi__x_empty(b));
        /* to stop here is below hi: it has more digits, the last not 0 */
    const char at = lo ? (lo_over ? '0' : *lo) : 0, top = hi ? *hi : 0;
    const char from = lo ? (char) (at + 1) : '0', to = hi ? (char) (top - 1) : '9';
    if (from <= to) pi__x_add(b, alt, pi__x_cat2(b, digit(b, from, to), digits(b, 0, left - 1)));
    const char *lo_next = lo ? (lo_over ? lo : lo + 1) : NULL, *hi_next = hi ? hi + 1 : NULL;
    if (lo && hi && at == top) {
        pi__x_add(b, alt, pi__x_cat2(b, digit(b, at, at), fraction(b, lo_next, lo_open, hi_next, hi_open, false,
                                                                   left - 1)));
        return alt;
    }
    if (lo && (!hi || at < top)) pi__x_add(b, alt, pi__x_cat2(b, digit(b, at, at), fraction(b, lo_next, lo_open, NULL,
        false, false, left - 1)));
    if (hi && (!lo || at < top)) pi__x_add(b, alt, pi__x_cat2(b, digit(b, top, top), fraction(b, NULL, false, hi_next,
        hi_open, false, left - 1)));
    return alt;
}

/* Nothing or a point and digits, within the bounds. */
static pi__expr *tail(pi__builder *b, const decimal *lo, bool lo_open, const decimal *hi, bool hi_open)
{
    const bool none = (!lo || (!lo->n && !lo_open)) && (!hi || hi->n || !hi_open);
    pi__expr *x = pi__x_cat2(b, pi__x_text(b, "."), fraction(b, lo ? lo->frac : NULL, lo_open, hi ? hi->frac : NULL,
                                                             hi_open, true, MAX_DIGITS));
    return none ? pi__x_alt2(b, pi__x_empty(b), x) : x;
}

static pi__expr *fixed(pi__builder *b, int64_t whole, pi__expr *rest)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long) whole);
    return pi__x_cat2(b, pi__x_text(b, text), rest);
}

static decimal decimal_of(double x)
{
    decimal d = {0};
    char text[64];
    for (int digits = 1; digits <= 17; digits++) { /* the shortest that is this number */
        snprintf(text, sizeof text, "%.*e", digits - 1, x);
        if (strtod(text, NULL) == x) break;
    }
    const char *e = strchr(text, 'e');
    const int exp = e ? atoi(e + 1) : 0;
    char all[40] = "";
    size_t n = 0;
    for (const char *p = text; p < e; p++)
        if (*p >= '0' && *p <= '9') all[n++] = *p;
    for (int i = exp < 0 ? exp : 0; i <= exp; i++) d.whole = d.whole * 10 + (i >= 0 && (size_t) i < n ? all[i] - '0'
                                                                             : 0);
    for (int i = exp + 1; i < (int) n && d.n < sizeof d.frac - 1; i++) d.frac[d.n++] = i < 0 ? '0' : all[i];
    while (d.n && d.frac[d.n - 1] == '0') d.n--;
    d.frac[d.n] = 0;
    return d;
}

/* Numbers from lo to hi, not negative. */
static pi__expr *real_between(pi__builder *b, bound lo, bound hi)
{
    const decimal from = decimal_of(lo.v), to = hi.set ? decimal_of(hi.v) : (decimal) {.whole = -1};
    pi__expr *alt = pi__x_alt(b), *any = tail(b, NULL, false, NULL, false);
    if (hi.set && (hi.v < lo.v || (hi.v == lo.v && (hi.open || lo.open)))) return pi__x_never(b);
    if (hi.set && from.whole == to.whole) return fixed(b, from.whole, tail(b, &from, lo.open, &to, hi.open));
    pi__x_add(b, alt, fixed(b, from.whole, tail(b, &from, lo.open, NULL, false)));
    if (!hi.set || to.whole > from.whole + 1)
        pi__x_add(b, alt, pi__x_cat2(b, whole_between(b, from.whole + 1, hi.set ? to.whole - 1 : -1), any));
    if (hi.set) pi__x_add(b, alt, fixed(b, to.whole, tail(b, NULL, false, &to, hi.open)));
    return alt;
}

static pi__expr *real_number(pi__builder *b, bound lo, bound hi)
{
    const bound zero = {.set = true};
    pi__expr *alt = pi__x_alt(b);
    if (!hi.set || hi.v >= 0) pi__x_add(b, alt, real_between(b, lo.set && lo.v >= 0 ? lo : zero, hi));
    if (!lo.set || lo.v < 0) {
        const bound from = hi.set && hi.v <= 0 ? (bound) {true, hi.open, -hi.v} : (bound) {.set = true, .open = true};
        pi__x_add(b, alt, minus(b, real_between(b, from, lo.set ? (bound) {true, lo.open, -lo.v} : (bound) {0})));
    }
    return alt;
}

/* ----------------------------------------------------------------------------------------------------------- schema */

static bool read_bound(pi__schema *s, const pi__val *v, const char *key, bool open, bool low, bound *out)
{
    const pi__val *k = pi__member(v, key);
    if (!k) return true;
    if (!pi__val_is_number(k) || k->type == PI__V_BOOL) return pi__schema_fail(s, PI_EINVAL, "%s is %s: give a number",
                                                                               key, pi__val_type_name(k)), false;
    const double x = pi__val_f64(k);
    if (!(fabs(x) <= 1e15)) return pi__schema_fail(s, PI_EUNSUPPORTED, "%s: bounds beyond 1e15 are not supported", key),
        false;
    if (x != 0 && fabs(x) < 1e-12) return pi__schema_fail(s, PI_EUNSUPPORTED,
                                                          "%s: a bound nearer to 0 than 1e-12 is not supported", key),
                                                              false;
    const bool tighter = !out->set || (low ? x > out->v : x < out->v) || (x == out->v && open);
    if (tighter) *out = (bound) {true, open, x == 0 ? 0 : x};
    return true;
}

pi__expr *pi__schema_number(pi__schema *s, const pi__parts *l, bool whole)
{
    pi__builder *b = s->b;
    bound lo = {0}, hi = {0};
    for (size_t i = 0; i < l->n; i++) {
        const pi__val *v = l->p[i].v;
        if (!read_bound(s, v, "minimum", false, true, &lo) || !read_bound(s, v, "exclusiveMinimum", true, true, &lo) ||
            !read_bound(s, v, "maximum", false, false, &hi) || !read_bound(s, v, "exclusiveMaximum", true, false, &hi))
            return pi__x_never(b);
    }
    if (whole) return whole_number(b, lo, hi);
    if (lo.set || hi.set) return real_number(b, lo, hi);
    pi__expr *sign = pi__x_rep(b, pi__x_text(b, "-"), 0, 1), *e = pi__x_cat(b);
    pi__x_add(b, e, pi__x_chars(b, "eeEE"));
    pi__x_add(b, e, pi__x_rep(b, pi__x_chars(b, "++--"), 0, 1));
    pi__x_add(b, e, digits(b, 1, 2));
    pi__expr *x = pi__x_cat3(b, sign, whole_between(b, 0, -1), tail(b, NULL, false, NULL, false));
    pi__x_add(b, x, pi__x_rep(b, e, 0, 1));
    return x;
}
