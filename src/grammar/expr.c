/* Building expressions (see expr.h). */
#include "grammar/expr.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { ZONE_LIMIT = 64 << 20 };

void pi__builder_init(pi__builder *b, const pi__tokens *t, pi_error *err)
{
    *b = (pi__builder) {.tokens = t, .err = err};
    pi__zone_init(&b->zone, ZONE_LIMIT);
}

void pi__builder_free(pi__builder *b)
{
    pi__zone_free(&b->zone);
    pi__free(b->rule);
    pi__free(b->name);
    memset(b, 0, sizeof *b);
}

int pi__builder_fail(pi__builder *b, int code, const char *fmt, ...)
{
    char text[sizeof ((pi_error *) 0)->msg];
    va_list ap;
    if (b->code) return b->code;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return b->code = pi__fail(b->err, code, "%s", text);
}

void *pi__builder_take(pi__builder *b, size_t n)
{
    void *p = b->code ? NULL : pi__zone_take(&b->zone, n ? n : 1);
    if (p || b->code) return p;
    if (pi__work_code(b->zone.work)) return b->code = pi__work_fail(b->zone.work, b->err, "the grammar"), NULL;
    if (b->zone.code == PI_ETOOBIG) pi__builder_fail(b, PI_EINVAL, "the grammar is too large: it needs more than %d "
                                                                   "MiB: make it smaller",
                                                     ZONE_LIMIT >> 20);
    else b->code = pi__fail_mem(b->err, "the grammar");
    return NULL;
}

bool pi__builder_step(pi__builder *b, uint64_t n)
{
    if (b->code) return false;
    if (!pi__work_step(b->zone.work, n)) b->code = pi__work_fail(b->zone.work, b->err, "the grammar");
    return !b->code;
}

static pi__expr *new_expr(pi__builder *b, int kind)
{
    pi__expr *x = pi__builder_take(b, sizeof *x);
    if (!x) {
        b->never = (pi__expr) {.kind = PI__X_NEVER};
        return &b->never;
    }
    x->kind = (uint8_t) kind;
    return x;
}

pi__expr *pi__x_never(pi__builder *b) { return new_expr(b, PI__X_NEVER); }
pi__expr *pi__x_empty(pi__builder *b) { return pi__x_bytes(b, "", 0); }

pi__expr *pi__x_bytes(pi__builder *b, const char *p, size_t n)
{
    pi__expr *x = new_expr(b, PI__X_BYTES);
    char *copy = pi__builder_take(b, n);
    if (b->code) return x;
    if (n) memcpy(copy, p, n);
    x->bytes = (pi__str) {copy, n};
    return x;
}

pi__expr *pi__x_text(pi__builder *b, const char *text) { return pi__x_bytes(b, text, strlen(text)); }

/* ---------------------------------------------------------------------------------------------------------- classes */

static int by_start(const void *x, const void *y)
{
    const pi__range *a = x, *b = y;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/* Sorts n ranges, and merges the ones that overlap or are adjacent; returns the number that remain. */
static size_t normalise(pi__range *r, size_t n)
{
    size_t k = 0;
    qsort(r, n, sizeof *r, by_start);
    for (size_t i = 0; i < n; i++) {
        if (k && r[i].lo <= r[k - 1].hi + 1) {
            if (r[i].hi > r[k - 1].hi) r[k - 1].hi = r[i].hi;
        } else {
            r[k++] = r[i];
        }
    }
    return k;
}

static pi__class invert(pi__builder *b, pi__class c)
{
    pi__range *r = pi__builder_take(b, (c.n + 1) * sizeof *r);
    size_t n = 0;
    uint32_t from = 0;
    if (!r) return (pi__class) {0};
    for (size_t i = 0; i < c.n; i++) {
        if (c.r[i].lo > from) r[n++] = (pi__range) {from, c.r[i].lo - 1};
        from = c.r[i].hi + 1;
    }
    if (from <= 0x10FFFF) r[n++] = (pi__range) {from, 0x10FFFF};
    return (pi__class) {r, n};
}

pi__class pi__class_and(pi__builder *b, pi__class x, pi__class y)
{
    pi__range *r = pi__builder_take(b, (x.n + y.n + 1) * sizeof *r);
    size_t n = 0;
    if (!r) return (pi__class) {0};
    for (size_t i = 0, k = 0; i < x.n && k < y.n;) {
        const uint32_t lo = x.r[i].lo > y.r[k].lo ? x.r[i].lo : y.r[k].lo, hi = x.r[i].hi < y.r[k].hi ? x.r[i].hi
            : y.r[k].hi;
        if (lo <= hi) r[n++] = (pi__range) {lo, hi};
        if (x.r[i].hi < y.r[k].hi) i++;
        else k++;
    }
    return (pi__class) {r, n};
}

pi__class pi__class_of(pi__builder *b, const pi__range *r, size_t n, bool inverted)
{
    static const pi__range whole[] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}}; /* all characters that UTF-8 can encode */
    pi__range *copy = pi__builder_take(b, (n + 1) * sizeof *copy);
    if (!copy) return (pi__class) {0};
    if (n) memcpy(copy, r, n * sizeof *copy);
    pi__class c = {copy, normalise(copy, n)};
    return pi__class_and(b, inverted ? invert(b, c) : c, (pi__class) {whole, 2});
}

bool pi__class_has(pi__class c, uint32_t cp)
{
    size_t lo = 0, hi = c.n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (cp < c.r[mid].lo) hi = mid;
        else if (cp > c.r[mid].hi) lo = mid + 1;
        else return true;
    }
    return false;
}

pi__expr *pi__x_class(pi__builder *b, pi__class c)
{
    pi__expr *x = new_expr(b, c.n ? PI__X_CLASS : PI__X_NEVER);
    if (x->kind == PI__X_CLASS) x->cls = c;
    return x;
}

pi__expr *pi__x_chars(pi__builder *b, const char *pairs)
{
    pi__range r[16];
    size_t n = 0;
    for (; pairs[0] && pairs[1] && n < 16; pairs += 2) r[n++] = (pi__range) {(unsigned char) pairs[0],
                                                                             (unsigned char) pairs[1]};
    return pi__x_class(b, pi__class_of(b, r, n, false));
}

/* ------------------------------------------------------------------------------------------------------------ lists */

pi__expr *pi__x_cat(pi__builder *b) { return new_expr(b, PI__X_CAT); }
pi__expr *pi__x_alt(pi__builder *b) { return new_expr(b, PI__X_ALT); }

void pi__x_add(pi__builder *b, pi__expr *list, pi__expr *x)
{
    if (b->code) return;
    if (list->list.n == list->list.cap) {
        const size_t cap = list->list.cap ? list->list.cap * 2 : 4;
        pi__expr **v = pi__builder_take(b, cap * sizeof *v);
        if (!v) return;
        if (list->list.n) memcpy(v, list->list.v, list->list.n * sizeof *v);
        list->list.v = v;
        list->list.cap = cap;
    }
    list->list.v[list->list.n++] = x;
}

pi__expr *pi__x_cat2(pi__builder *b, pi__expr *x, pi__expr *y)
{
    pi__expr *l = pi__x_cat(b);
    pi__x_add(b, l, x);
    pi__x_add(b, l, y);
    return l;
}

pi__expr *pi__x_cat3(pi__builder *b, pi__expr *x, pi__expr *y, pi__expr *z)
{
    pi__expr *l = pi__x_cat2(b, x, y);
    pi__x_add(b, l, z);
    return l;
}

pi__expr *pi__x_alt2(pi__builder *b, pi__expr *x, pi__expr *y)
{
    pi__expr *l = pi__x_alt(b);
    pi__x_add(b, l, x);
    pi__x_add(b, l, y);
    return l;
}

pi__expr *pi__x_rep(pi__builder *b, pi__expr *body, uint32_t min, uint32_t max)
{
    pi__expr *x = new_expr(b, PI__X_REP);
    if (min > PI__MAX_MIN && !b->code)
        pi__builder_fail(b, PI_EINVAL, "a minimum of more than %d repetitions (minLength, minItems) exceeds any "
                                       "answer: lower it", PI__MAX_MIN);
    if (b->code) return x;
    x->rep.body = body;
    x->rep.min = min;
    x->rep.max = max;
    return x;
}

pi__expr *pi__x_token(pi__builder *b, int32_t id, bool inverted)
{
    pi__expr *x = new_expr(b, inverted ? PI__X_NOT_TOKEN : PI__X_TOKEN);
    if (!b->code) x->token = id;
    return x;
}

/* ------------------------------------------------------------------------------------------------------------ rules */

uint32_t pi__rule_new(pi__builder *b)
{
    if (b->code) return 0;
    if (b->n_rules >= PI__MAX_RULES) pi__builder_fail(b, PI_EINVAL, "the grammar has more than %d rules: use fewer",
                                                      PI__MAX_RULES);
    else if (!pi__grow(&b->rule, &b->cap_rules, b->n_rules + 1, sizeof(pi__expr *)) ||
             !pi__grow(&b->name, &b->cap_names, b->n_rules + 1, sizeof *b->name))
        b->code = pi__fail_mem(b->err, "the grammar");
    if (b->code) return 0;
    b->name[b->n_rules] = (pi__str) {0};
    b->rule[b->n_rules] = NULL;
    return (uint32_t) b->n_rules++;
}

void pi__rule_set(pi__builder *b, uint32_t rule, pi__expr *body)
{
    if (!b->code) b->rule[rule] = body;
}

pi__expr *pi__x_rule(pi__builder *b, uint32_t rule)
{
    pi__expr *x = new_expr(b, PI__X_RULE);
    if (!b->code) x->rule = rule;
    return x;
}

pi__expr *pi__x_shared(pi__builder *b, pi__expr *body)
{
    const uint32_t r = pi__rule_new(b);
    pi__rule_set(b, r, body);
    return pi__x_rule(b, r);
}
