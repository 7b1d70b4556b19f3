/* Numbers in JSON, within bounds (see schema.c).
 *
 * Bounds become choices by decimal digits: 17 <= x becomes 1[7-9] | [2-9][0-9] | [1-9][0-9]{2,15}. Their digits are
 * taken from the schema's text, so 2^64 - 1 is exact; nothing is rounded. A number with bounds is written without an
 * exponent and with at most 16 consecutive digits, unless a bound has more. multipleOf and excluded values are
 * automata over the digits (regular.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema.h"

enum { MAX_DIGITS = 16, LONGEST = 60 };

typedef struct decimal {
    bool minus;             /* below 0 */
    bool huge;              /* more than LONGEST digits before the point */
    bool tiny;              /* more than LONGEST digits after the point; the rest is dropped */
    char whole[LONGEST + 4]; /* without leading zeros, except "0" */
    char frac[LONGEST + 4]; /* without trailing zeros */
    size_t n;               /* number of digits of frac */
} decimal;

typedef struct bound {
    bool set;    /* the bound exists */
    bool open;   /* the bound itself is excluded */
    decimal v;
} bound;

/* ----------------------------------------------------------------------------------------------------------- digits */

static decimal decimal_of_text(const char *p, size_t n)
{
    decimal d = {.whole = "0"};
    size_t i = n && *p == '-', whole = 0, k = 0, n_all = 0;
    bool point = false;
    char all[2 * LONGEST + 8];
    d.minus = i > 0;
    for (; i < n && p[i] != 'e' && p[i] != 'E'; i++) {
        if (p[i] == '.') point = true;
        else {
            if (n_all < sizeof all) all[n_all] = p[i];
            n_all++;
            whole += !point;
        }
    }
    const long exp = i < n ? strtol(p + i + 1, NULL, 10) : 0;
    /* index of the point in `all` */
    const long at = (long) whole + (exp > 100000 ? 100000 : exp < -100000 ? -100000 : exp);
    if (n_all > sizeof all) d.tiny = true, n_all = sizeof all;
    size_t from = 0;
    while (from < n_all && all[from] == '0') from++;
    if (from == n_all) return (decimal) {.whole = "0"};
    while (n_all > from && all[n_all - 1] == '0') n_all--;
    if (at - (long) from > LONGEST) return d.huge = true, d;
    for (long c = (long) from; c < at; c++) d.whole[k++] = c < (long) n_all ? all[c] : '0';
    if (k) d.whole[k] = 0;
    for (long c = at; c < (long) n_all; c++) {
        if (d.n == LONGEST) {
            d.tiny = true;
            break;
        }
        d.frac[d.n++] = c < 0 ? '0' : all[c];
    }
    while (d.n && d.frac[d.n - 1] == '0') d.n--;
    d.frac[d.n] = 0;
    return d;
}

static decimal decimal_of(const pi__val *v)
{
    char text[64];
    if (v->type == PI__V_FLOAT && v->n_text) return decimal_of_text(v->text, v->n_text);
    if (v->type == PI__V_INT) {
        snprintf(text, sizeof text, "%lld", (long long) v->i);
    } else {
        for (int digits = 1; digits <= 17; digits++) { /* shortest decimal that reads back as this number */
            snprintf(text, sizeof text, "%.*e", digits - 1, pi__val_f64(v));
            if (strtod(text, NULL) == pi__val_f64(v)) break;
        }
    }
    return decimal_of_text(text, strlen(text));
}

static bool is_zero(const decimal *d) { return !d->huge && !d->tiny && !d->n && !strcmp(d->whole, "0"); }

/* Compares absolute values. */
static int compare_sizes(const decimal *a, const decimal *b)
{
    const size_t n = strlen(a->whole), k = strlen(b->whole);
    if (a->huge || b->huge) return a->huge - b->huge;
    if (n != k) return n < k ? -1 : 1;
    const int c = strcmp(a->whole, b->whole);
    const int d = c ? c : strcmp(a->frac, b->frac);
    return d < 0 ? -1 : d > 0;
}

static int compare(const decimal *a, const decimal *b)
{
    if (a->minus != b->minus) return a->minus ? -1 : 1;
    return a->minus ? compare_sizes(b, a) : compare_sizes(a, b);
}

int pi__number_compare(const pi__val *a, const pi__val *b)
{
    const decimal x = decimal_of(a), y = decimal_of(b);
    return compare(&x, &y);
}

bool pi__number_is_integer(const pi__val *v)
{
    const decimal d = decimal_of(v);
    return d.huge || (!d.n && !d.tiny);
}

/* Adds or subtracts 1 from a non-negative integer; 0 must not be decreased. */
static void step(char *whole, bool up)
{
    size_t n = strlen(whole), i = n;
    const char from = up ? '9' : '0', to = up ? '0' : '9';
    while (i && whole[i - 1] == from) whole[--i] = to;
    if (i) {
        whole[i - 1] = (char) (whole[i - 1] + (up ? 1 : -1));
    } else if (up) {
        memmove(whole + 1, whole, n + 1);
        whole[0] = '1';
    }
    if (!up && n > 1 && whole[0] == '0') memmove(whole, whole + 1, n);
}

static int compare_whole(const char *a, const char *b)
{
    const size_t n = strlen(a), k = strlen(b);
    return n != k ? (n < k ? -1 : 1) : strcmp(a, b);
}

/* -------------------------------------------------------------------------------------------------------- counts */

bool pi__schema_count(pi__schema *s, const pi__val *at, const char *key, uint32_t *out)
{
    const pi__val *v = pi__member(at, key);
    const double x = v && pi__val_is_number(v) && v->type != PI__V_BOOL ? pi__val_f64(v) : -1;
    if (!(x >= 0) || x != floor(x)) {
        pi__schema_fail(s, at, key, PI_EINVAL, "give a non-negative integer");
        return false;
    }
    *out = x > 1e9 ? PI__REP_INF : (uint32_t) x; /* no limit; rejected if it is a lower bound */
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

/* Matches n digits from lo to hi; NULL = no bound. */
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

/* Matches non-negative integers from lo to hi; hi NULL = no bound. */
static pi__expr *whole_between(pi__builder *b, const char *lo, const char *hi)
{
    pi__expr *alt = pi__x_alt(b);
    if (hi && compare_whole(hi, lo) < 0) return pi__x_never(b);
    const uint32_t n = (uint32_t) strlen(lo), k = hi ? (uint32_t) strlen(hi) : MAX_DIGITS + 1;
    if (hi && n == k) return between(b, lo, hi, n);
    pi__x_add(b, alt, between(b, lo, NULL, n));
    if (n + 1 <= k - 1) pi__x_add(b, alt, pi__x_cat2(b, pi__x_chars(b, "19"), digits(b, n, k - 2)));
    if (hi) { /* as many digits as hi, without a leading zero */
        char one[LONGEST + 4];
        memset(one, '0', sizeof one);
        one[0] = '1';
        one[k] = 0;
        pi__x_add(b, alt, between(b, one, hi, k));
    }
    return alt;
}

static pi__expr *minus(pi__builder *b, pi__expr *x) { return pi__x_cat2(b, pi__x_text(b, "-"), x); }

/* Returns the integer next to a bound, on its inner side. */
static decimal round_in(const bound *x, bool low)
{
    decimal d = x->v;
    const bool away = d.minus != low; /* inward means away from 0 */
    const bool exact = !d.n && !d.tiny;
    d.n = d.frac[0] = 0;
    d.tiny = false;
    if (exact && !x->open) return d;
    if (away) step(d.whole, true);
    else if (exact && !strcmp(d.whole, "0")) d.minus = !d.minus, d.whole[0] = '1';
    else if (exact) step(d.whole, false);
    if (!strcmp(d.whole, "0")) d.minus = false;
    return d;
}

static pi__expr *whole_number(pi__builder *b, const bound *lo, const bound *hi)
{
    decimal from = {.whole = "0"}, to = {.whole = "0"};
    pi__expr *alt = pi__x_alt(b);
    if (lo->set) from = round_in(lo, true);
    if (hi->set) to = round_in(hi, false);
    if (!hi->set || !to.minus)
        pi__x_add(b, alt, whole_between(b, lo->set && !from.minus ? from.whole : "0", hi->set ? to.whole : NULL));
    if (!lo->set || from.minus)
        pi__x_add(b, alt, minus(b, whole_between(b, hi->set && to.minus ? to.whole : "1", lo->set ? from.whole
            : NULL)));
    return alt;
}

/* -------------------------------------------------------------------------------------------------------- fractions */

/* Matches the digits after the point of a fraction above lo (or equal unless lo_open) and below hi; NULL = no bound.
 * first: no digit was written yet, so at least one must follow. The digits so far are a prefix of the remaining
 * bounds. */
static pi__expr *fraction(pi__builder *b, const char *lo, bool lo_open, const char *hi, bool hi_open, bool first,
                          uint32_t left)
{
    pi__expr *alt = pi__x_alt(b);
    const bool lo_over = lo && !*lo, hi_over = hi && !*hi; /* all digits of the bound were written */
    if (!left) return lo_over && !lo_open && !hi ? pi__x_empty(b) : pi__x_never(b);
    if (hi_over) { /* only zeros may follow; none if the bound is open */
        if (hi_open || (lo && (!lo_over || lo_open))) return pi__x_never(b);
        return pi__x_rep(b, pi__x_text(b, "0"), first, left);
    }
    if (lo_over && !lo_open && !hi) return digits(b, first, left);
    if (!lo && !hi) return digits(b, first, left);
    if (!first && (!lo || (lo_over && !lo_open))) pi__x_add(b, alt, pi__x_empty(b));
        /* stopping here is below hi: hi has more digits, the last one not 0 */
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

static uint32_t places_of(const decimal *lo, const decimal *hi)
{
    size_t n = MAX_DIGITS;
    if (lo && lo->n + 4 > n) n = lo->n + 4;
    if (hi && hi->n + 4 > n) n = hi->n + 4;
    return (uint32_t) n;
}

/* Matches an optional point and digits within the bounds. */
static pi__expr *tail(pi__builder *b, const decimal *lo, bool lo_open, const decimal *hi, bool hi_open)
{
    const bool none = (!lo || (!lo->n && !lo_open)) && (!hi || hi->n || !hi_open);
    pi__expr *x = pi__x_cat2(b, pi__x_text(b, "."), fraction(b, lo ? lo->frac : NULL, lo_open, hi ? hi->frac : NULL,
                                                             hi_open, true, places_of(lo, hi)));
    return none ? pi__x_alt2(b, pi__x_empty(b), x) : x;
}

static pi__expr *fixed(pi__builder *b, const char *whole, pi__expr *rest)
{
    return pi__x_cat2(b, pi__x_text(b, whole), rest);
}

/* Matches non-negative numbers from lo to hi. */
static pi__expr *real_between(pi__builder *b, const bound *lo, const bound *hi)
{
    const decimal *from = &lo->v, *to = &hi->v;
    pi__expr *alt = pi__x_alt(b), *any = tail(b, NULL, false, NULL, false);
    const int order = hi->set ? compare_sizes(to, from) : 1;
    if (order < 0 || (!order && (hi->open || lo->open))) return pi__x_never(b);
    if (hi->set && !strcmp(from->whole, to->whole)) return fixed(b, from->whole, tail(b, from, lo->open, to, hi->open));
    pi__x_add(b, alt, fixed(b, from->whole, tail(b, from, lo->open, NULL, false)));
    char next[LONGEST + 4], last[LONGEST + 4];
    memcpy(next, from->whole, sizeof next);
    step(next, true);
    if (hi->set) {
        memcpy(last, to->whole, sizeof last);
        step(last, false);
    }
    pi__x_add(b, alt, pi__x_cat2(b, whole_between(b, next, hi->set ? last : NULL), any));
    if (hi->set) pi__x_add(b, alt, fixed(b, to->whole, tail(b, NULL, false, to, hi->open)));
    return alt;
}

static bound size_of(const bound *x)
{
    bound size = *x;
    size.v.minus = false;
    return size;
}

static pi__expr *real_number(pi__builder *b, const bound *lo, const bound *hi)
{
    const bound zero = {.set = true, .v = {.whole = "0"}}, none = {0};
    pi__expr *alt = pi__x_alt(b);
    if (!hi->set || !hi->v.minus) pi__x_add(b, alt, real_between(b, lo->set && !lo->v.minus ? lo : &zero, hi));
    if (!lo->set || lo->v.minus) {
        bound from = zero, to = lo->set ? size_of(lo) : none;
        from.open = true;
        if (hi->set && (hi->v.minus || is_zero(&hi->v))) from = size_of(hi);
        pi__x_add(b, alt, minus(b, real_between(b, &from, &to)));
    }
    return alt;
}

static pi__expr *any_number(pi__builder *b)
{
    pi__expr *sign = pi__x_rep(b, pi__x_text(b, "-"), 0, 1), *e = pi__x_cat(b);
    pi__x_add(b, e, pi__x_chars(b, "eeEE"));
    pi__x_add(b, e, pi__x_rep(b, pi__x_chars(b, "++--"), 0, 1));
    pi__x_add(b, e, digits(b, 1, 2));
    pi__expr *x = pi__x_cat3(b, sign, whole_between(b, "0", NULL), tail(b, NULL, false, NULL, false));
    pi__x_add(b, x, pi__x_rep(b, e, 0, 1));
    return x;
}

/* ----------------------------------------------------------------------------------------------------------- schema */

const pi__val *pi__schema_bound(const pi__val *v, bool low, int k, bool *open)
{
    const pi__val *plain = pi__member(v, low ? "minimum" : "maximum");
    const pi__val *out = pi__member(v, low ? "exclusiveMinimum" : "exclusiveMaximum");
    if (out && out->type == PI__V_BOOL) { /* draft 4 */
        *open = out->b;
        return k ? NULL : plain;
    }
    *open = k;
    return k ? out : plain;
}

static void read_bounds(pi__schema *s, const pi__val *v, bool low, bound *out)
{
    for (int i = 0; i < 2 && !s->b->code; i++) {
        bool open;
        const pi__val *k = pi__schema_bound(v, low, i, &open);
        const char *key = low ? (i ? "exclusiveMinimum" : "minimum") : (i ? "exclusiveMaximum" : "maximum");
        if (!k) continue;
        if (!pi__val_is_number(k) || k->type == PI__V_BOOL) {
            pi__schema_fail(s, v, key, PI_EINVAL, "it is %s: give a number", pi__val_type_name(k));
            return;
        }
        const decimal d = decimal_of(k);
        if (d.huge && d.minus == low) continue; /* no generated number reaches this bound */
        if (d.huge || d.tiny)
            pi__schema_fail(s, v, key, PI_EUNSUPPORTED, "a bound of more than %d digits before or after the point is "
                                                        "not supported: give fewer digits", LONGEST);
        const int order = out->set ? compare(&d, &out->v) : 0;
        if (!out->set || (low ? order > 0 : order < 0) || (!order && open)) *out = (bound) {true, open, d};
    }
}

/* Reads multipleOf as an integer and a number of decimal places. */
static bool read_step(const pi__val *v, uint64_t *out, uint32_t *places)
{
    const decimal d = decimal_of(v);
    if (d.minus || d.huge || d.tiny || is_zero(&d) || strlen(d.whole) + d.n > 18) return false;
    *out = 0;
    for (const char *p = d.whole; *p; p++) *out = *out * 10 + (uint64_t) (*p - '0');
    for (const char *p = d.frac; *p; p++) *out = *out * 10 + (uint64_t) (*p - '0');
    *places = (uint32_t) d.n;
    return true;
}

bool pi__number_is_multiple(const pi__val *v, const pi__val *of)
{
    const decimal d = decimal_of(v);
    uint64_t unit, rest = 0;
    uint32_t places;
    if (!pi__val_is_number(of) || !read_step(of, &unit, &places)) return true;
    if (d.huge || d.tiny || d.n > places) return false;
    for (const char *p = d.whole; *p; p++) rest = (uint64_t) (((__uint128_t) rest * 10 + (uint64_t) (*p - '0')) % unit);
    for (uint32_t i = 0; i < places; i++)
        rest = (uint64_t) (((__uint128_t) rest * 10 + (uint64_t) (i < d.n ? d.frac[i] - '0' : 0)) % unit);
    return !rest;
}

typedef struct limits { /* constraints of numbers other than bounds */
    pi__schema *s;
    pi__reg *part[PI__REG_PARTS];
    size_t n;
    uint64_t must;
    bool plain;   /* numbers must be written without an exponent */
} limits;

static void add_limit(limits *t, pi__reg *r, bool must)
{
    if (!r) return;
    if (t->n == PI__REG_PARTS - 3) {
        pi__schema_fail(t->s, NULL, NULL, PI_EUNSUPPORTED, "too many multipleOf and excluded values for one number: "
                                                           "use fewer");
        return;
    }
    if (must) t->must |= (uint64_t) 1 << t->n;
    t->part[t->n++] = r;
    t->plain = true;
}

static void add_multiple(limits *t, const pi__val *at, const char *key, const pi__val *v, bool must, bool whole)
{
    uint64_t unit;
    uint32_t places;
    if (!pi__val_is_number(v) || v->type == PI__V_BOOL || !read_step(v, &unit, &places)) {
        pi__schema_fail(t->s, at, "multipleOf", PI_EINVAL, "give a number above 0 with at most 18 digits");
        return;
    }
    if (whole && unit == 1 && must) return;
    if (!whole && !places) places = 1, unit *= unit > UINT32_MAX ? 1 : 10;
    if (unit * (places + 2) + 2 > PI__REG_STATES)
        pi__schema_fail(t->s, at, key, PI_EUNSUPPORTED, "a step with this many digits is not supported: give at most "
                                                        "three");
    else add_limit(t, pi__reg_multiples(t->s->b, (uint32_t) unit, places), must);
}

/* Returns all spellings, without exponents, of the numbers of a list. */
static pi__reg *reg_of_numbers(pi__schema *s, const pi__val *v, size_t n)
{
    pi__builder *b = s->b;
    pi__expr *alt = pi__x_alt(b);
    for (size_t i = 0; i < n; i++) {
        if (!(pi__type_of_value(&v[i]) & (PI__T_WHOLE | PI__T_REAL))) continue;
        const decimal d = decimal_of(&v[i]);
        pi__expr *x = pi__x_cat(b), *zeros = pi__x_rep(b, pi__x_text(b, "0"), 0, PI__REP_INF);
        pi__x_add(b, x, pi__x_rep(b, pi__x_text(b, "-"), d.minus, is_zero(&d) || d.minus));
        pi__x_add(b, x, pi__x_text(b, d.whole));
        if (d.n) pi__x_add(b, x, pi__x_cat3(b, pi__x_text(b, "."), pi__x_text(b, d.frac), zeros));
        else pi__x_add(b, x, pi__x_rep(b, pi__x_cat2(b, pi__x_text(b, "."), zeros), 0, 1));
        pi__x_add(b, alt, x);
    }
    return alt->list.n ? pi__reg_of(b, alt, "not") : NULL;
}

static pi__expr *as_it_is(pi__builder *b, pi__class c) { return pi__x_class(b, c); }

static pi__reg *regex(pi__builder *b, const char *text)
{
    return pi__reg_of(b, pi__read_regex(b, text, strlen(text), "number", false, NULL), "number");
}

pi__expr *pi__schema_number(pi__schema *s, const pi__parts *l, unsigned types)
{
    pi__builder *b = s->b;
    limits t = {.s = s};
    bound lo = {0}, hi = {0};
    bool whole = !(types & PI__T_REAL);
    const pi__val *k;
    for (size_t i = 0; i < l->n && !b->code; i++) {
        read_bounds(s, l->p[i].v, true, &lo);
        read_bounds(s, l->p[i].v, false, &hi);
        k = pi__member(l->p[i].v, "multipleOf");
        whole |= k && pi__val_is_number(k) && k->type != PI__V_BOOL && pi__number_is_integer(k);
    }
    if (whole && !(types & PI__T_WHOLE)) return pi__x_never(b);
    for (size_t i = 0; i < l->n && !b->code; i++) {
        const pi__val *v = l->p[i].v;
        if ((k = pi__member(v, "multipleOf"))) add_multiple(&t, v, "multipleOf", k, true, whole);
        if ((k = pi__member(v, PI__K_NO_MULTIPLE))) add_multiple(&t, v, "not", k, false, whole);
        if ((k = pi__member(v, PI__K_NOT))) add_limit(&t, reg_of_numbers(s, k->list->v, k->list->n), false);
    }
    if (!(types & PI__T_WHOLE)) add_limit(&t, regex(b, "-?[0-9]+\\.[0-9]*[1-9]0*"), true);
    if (b->code) return pi__x_never(b);
    pi__expr *x = whole ? whole_number(b, &lo, &hi) : lo.set || hi.set ? real_number(b, &lo, &hi) : any_number(b);
    if (!t.plain) return x;
    add_limit(&t, pi__reg_of(b, x, "number"), true);
    add_limit(&t, regex(b, "-?[0-9]+(\\.[0-9]+)?"), true);
    const pi__reg *r = b->code ? NULL : pi__reg_product(b, t.part, t.n, t.must, 0, PI__REP_INF, "multipleOf");
    return r ? pi__reg_expr(b, r, ((uint64_t) 1 << t.n) - 1, t.must, as_it_is) : pi__x_never(b);
}
