/* Operators of templates: slices, arithmetic, comparisons and iteration.
 *
 * Integers have 64 bits and an overflow is an error, unlike in Python. All memory comes from the zone. Work
 * proportional to a value's size is counted (pi__jcost). */
#include <math.h>
#include <string.h>

#include "template/jinja_impl.h"
#include "base/utf8.h"

typedef pi__jnode node;
typedef pi__jrun run;

/* ----------------------------------------------------------------------------------------------------------- slices */

/* Evaluates a slice's bound or step; *given = false if it is missing or none. */
static bool slice_bound(run *r, const node *n, int64_t *out, bool *given)
{
    pi__val v;
    *given = false;
    if (!n) return true;
    if (!pi__jeval(r, n, &v)) return false;
    if (v.type == PI__V_NONE) return true;
    if (!pi__jis_integer(&v)) return pi__jfail(r, "a slice's bounds must be whole numbers");
    *out = pi__jinteger(&v);
    *given = true;
    return true;
}

/* Takes elements start, start + step, ... of l. */
static bool slice_list(run *r, const pi__list *l, int64_t start, int64_t count, int64_t step, pi__val *out)
{
    if (!pi__jcost(r, (size_t) count * 16)) return false;
    if (!pi__val_new_list(r->z, (size_t) count, out)) return pi__jno_room(r);
    out->list->tuple = l->tuple;
    for (int64_t i = 0; i < count; i++) out->list->v[out->list->n++] = l->v[start + i * step];
    return true;
}

static bool slice_str(run *r, pi__str s, int64_t start, int64_t count, int64_t step, pi__val *out)
{
    if (!pi__jcost(r, s.n)) return false;
    if (step == 1) {
        size_t a = 0, b;
        for (int64_t i = 0; i < start; i++) a += pi__utf8_len((unsigned char) s.p[a]);
        b = a;
        for (int64_t i = 0; i < count; i++) b += pi__utf8_len((unsigned char) s.p[b]);
        *out = pi__val_str((pi__str) {s.p + a, b - a});
        return true;
    }
    pi__list chars;
    pi__val v = pi__val_str(s), picked;
    pi__text t = {.limit = s.n, .keeps_trust = r->z->keeps_trust, .zone = r->z};
    if (!pi__jiterate(r, &v, &chars) || !slice_list(r, &chars, start, count, step, &picked)) return false;
    for (size_t i = 0; i < picked.list->n; i++) pi__text_add(&t, picked.list->v[i].s.p, picked.list->v[i].s.n);
    return pi__jtake_text(r, &t, out);
}

static int64_t clamp(int64_t i, int64_t n, int64_t lo, int64_t hi)
{
    if (i < 0) i = i < -n ? -1 : i + n;
    return i < lo ? lo : i > hi ? hi : i;
}

bool pi__jeval_slice(run *r, const node *n, pi__val *out)
{
    pi__val v;
    int64_t start = 0, stop = 0, step = 1;
    bool has_start, has_stop, has_step;
    if (!pi__jeval(r, n->a, &v) || !pi__jdefined(r, &v)) return false;
    if (v.type != PI__V_LIST && v.type != PI__V_STR)
        return pi__jfail(r, "%s cannot be sliced", pi__val_type_name(&v));
    if (!slice_bound(r, n->b, &start, &has_start) || !slice_bound(r, n->c, &stop, &has_stop) ||
        !slice_bound(r, n->d, &step, &has_step))
        return false;
    if (!step) return pi__jfail(r, "a slice's step must not be 0");
    int64_t len = (int64_t) (v.type == PI__V_LIST ? v.list->n : pi__str_length(v.s));
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? len - 1 : len;
    start = has_start ? clamp(start, len, lo, hi) : step < 0 ? hi : lo;
    stop = has_stop ? clamp(stop, len, lo, hi) : step < 0 ? lo : hi;
    if (step > len) step = len + 1; /* selects the same elements without overflow */
    if (step < -len) step = -len - 1;
    int64_t span = step > 0 ? stop - start : start - stop, size = step > 0 ? step : -step;
    int64_t count = span > 0 ? (span + size - 1) / size : 0;
    return v.type == PI__V_LIST ? slice_list(r, v.list, start, count, step, out)
                                : slice_str(r, v.s, start, count, step, out);
}

/* -------------------------------------------------------------------------------------------------------- operators */

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static bool integer_op(run *r, char op, int64_t a, int64_t b, pi__val *out)
{
    int64_t x = 0;
    bool over = false;
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &x); break;
    case '-': over = __builtin_sub_overflow(a, b, &x); break;
    case '*': over = __builtin_mul_overflow(a, b, &x); break;
    case 'p':
        if (b < 0) {
            *out = pi__val_float(pow((double) a, (double) b));
            return true;
        }
        x = 1;
        if ((a > 1 || a < -1) && b > 64) over = true;
        for (int64_t i = 0; !over && i < (b > 64 ? 64 + b % 2 : b); i++) over = __builtin_mul_overflow(x, a, &x);
        break;
    default: /* f % */
        if (b == -1) { /* INT64_MIN has no positive counterpart */
            over = op == 'f' && __builtin_sub_overflow((int64_t) 0, a, &x);
            break;
        }
        x = op == 'f' ? floor_div(a, b) : a - floor_div(a, b) * b;
    }
    *out = pi__val_int(x);
    return !over || pi__jfail(r, "the number is too large");
}

/* a // b and a % b: the remainder is exact and has b's sign; the quotient matches it. */
static double float_divmod(double a, double b, bool remainder)
{
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) {
        rest += b;
        quotient -= 1;
    }
    if (remainder) return rest != 0 ? rest : copysign(0, b);
    double whole = floor(quotient);
    return quotient != 0 ? whole + (quotient - whole > 0.5) : copysign(0, a / b);
}

static bool float_op(run *r, char op, double a, double b, pi__val *out)
{
    double x = op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : op == '/' ? a / b : op == 'p' ? pow(a, b)
             : float_divmod(a, b, op == '%');
    *out = pi__val_float(x);
    return op != 'p' || !isinf(x) || isinf(a) || isinf(b) || pi__jfail(r, "the number is too large");
}

/* s * n */
static bool repeat(run *r, const pi__val *s, int64_t n, pi__val *out)
{
    pi__val v = *s;
    if (s->type == PI__V_LIST) {
        if (!pi__val_new_list(r->z, 0, &v)) return pi__jno_room(r);
        for (int64_t i = 0; i < n && s->list->n; i++)
            for (size_t k = 0; k < s->list->n; k++)
                if (!pi__jcost(r, 64) || !pi__list_add(r->z, v.list, s->list->v[k])) return pi__jno_room(r);
    } else {
        v.s = (pi__str) {"", 0};
        for (int64_t i = 0; i < n && s->s.n; i++)
            if (!pi__jcost(r, s->s.n) || !pi__jconcat(r, v.s, s->s, &v)) return false;
    }
    *out = v;
    return true;
}

static bool add_lists(run *r, const pi__list *a, const pi__list *b, pi__val *out)
{
    if (!pi__jcost(r, (a->n + b->n) * 16)) return false;
    if (!pi__val_new_list(r->z, a->n + b->n, out)) return pi__jno_room(r);
    out->list->tuple = a->tuple;
    for (size_t i = 0; i < a->n; i++) out->list->v[out->list->n++] = a->v[i];
    for (size_t i = 0; i < b->n; i++) out->list->v[out->list->n++] = b->v[i];
    return true;
}

bool pi__jarithmetic(run *r, char op, const pi__val *a, const pi__val *b, pi__val *out)
{
    bool numbers = pi__val_is_number(a) && pi__val_is_number(b);
    if (op == '%' && a->type == PI__V_STR) {
        bool tuple = b->type == PI__V_LIST && b->list->tuple;
        return pi__jformat_percent(r, a->s, tuple ? b->list->v : b, tuple ? b->list->n : 1, !tuple, out);
    }
    if (!pi__jdefined(r, a) || !pi__jdefined(r, b)) return false;
    if (numbers && strchr("/f%", op) && pi__val_f64(b) == 0) return pi__jfail(r, "division by zero");
    if (numbers && op != '/' && a->type != PI__V_FLOAT && b->type != PI__V_FLOAT)
        return integer_op(r, op, pi__jinteger(a), pi__jinteger(b), out);
    if (numbers) return float_op(r, op, pi__val_f64(a), pi__val_f64(b), out);
    if (op == '+' && a->type == PI__V_STR && b->type == PI__V_STR) return pi__jconcat(r, a->s, b->s, out);
    if (op == '+' && a->type == PI__V_LIST && b->type == PI__V_LIST && a->list->tuple == b->list->tuple)
        return add_lists(r, a->list, b->list, out);
    if (op == '*' && (a->type == PI__V_STR || a->type == PI__V_LIST) && pi__jis_integer(b))
        return repeat(r, a, pi__jinteger(b), out);
    if (op == '*' && (b->type == PI__V_STR || b->type == PI__V_LIST) && pi__jis_integer(a))
        return repeat(r, b, pi__jinteger(a), out);
    const char name[3] = {op == 'f' ? '/' : op == 'p' ? '*' : op, op == 'f' ? '/' : op == 'p' ? '*' : 0, 0};
    return pi__jfail(r, "%s is not possible between %s and %s", name, pi__val_type_name(a), pi__val_type_name(b));
}

bool pi__jeval_binary(run *r, const node *n, pi__val *out)
{
    pi__val a, b;
    pi__str s, t;
    if (!pi__jeval(r, n->a, &a) || !pi__jeval(r, n->b, &b)) return false;
    r->line = n->line;
    if (n->op != '~') return pi__jarithmetic(r, (char) n->op, &a, &b, out);
    return pi__jto_str(r, &a, &s) && pi__jto_str(r, &b, &t) && pi__jconcat(r, s, t, out);
}

bool pi__jeval_sign(run *r, const node *n, pi__val *out)
{
    const pi__val zero = pi__val_int(0);
    pi__val v;
    if (!pi__jeval(r, n->a, &v)) return false;
    if (v.type == PI__V_FLOAT) { /* -0.0 must keep its sign, which 0 + v would lose */
        *out = pi__val_float(n->kind == PI__JN_NEG ? -v.f : v.f);
        return true;
    }
    return pi__jarithmetic(r, n->kind == PI__JN_NEG ? '-' : '+', &zero, &v, out);
}

/* ------------------------------------------------------------------------------------------------------ comparisons */

bool pi__jequal(run *r, const pi__val *a, const pi__val *b, bool *out)
{
    uint64_t left = r->max_steps - r->steps, before = left;
    *out = pi__val_equal(a, b, 0, &left);
    r->steps += before - left;
    return pi__jcost(r, 0) && (pi__work_step(r->z->work, before - left) || pi__jno_room(r));
}

bool pi__jcompare(run *r, const pi__val *a, const pi__val *b, int *out)
{
    if (!pi__jdefined(r, a) || !pi__jdefined(r, b)) return false;
    bool lists = a->type == PI__V_LIST && b->type == PI__V_LIST && a->list->tuple == b->list->tuple;
    if (lists) { /* the first differing pair decides */
        for (size_t i = 0; i < a->list->n && i < b->list->n; i++) {
            bool same;
            if (!pi__jequal(r, &a->list->v[i], &b->list->v[i], &same)) return false;
            if (same) continue;
            if (a->list->v[i].type == PI__V_LIST) break; /* lists of lists have no order here */
            return pi__jcompare(r, &a->list->v[i], &b->list->v[i], out);
        }
        *out = (a->list->n > b->list->n) - (a->list->n < b->list->n);
        return true;
    }
    if (!pi__jcost(r, a->type == PI__V_STR ? a->s.n : 0)) return false;
    return pi__val_compare(a, b, out) ||
           pi__jfail(r, "%s and %s have no order", pi__val_type_name(a), pi__val_type_name(b));
}

bool pi__jcontains(run *r, const pi__val *item, const pi__val *in, bool *out)
{
    *out = false;
    switch (in->type) {
    case PI__V_UNDEFINED: return true;
    case PI__V_STR:
        if (item->type != PI__V_STR) return pi__jfail(r, "'in' a string: %s is not a string", pi__val_type_name(item));
        *out = !item->s.n || (in->s.n && memmem(in->s.p, in->s.n, item->s.p, item->s.n));
        return pi__jcost(r, in->s.n);
    case PI__V_MAP:
        if (item->type == PI__V_MAP || (item->type == PI__V_LIST && !item->list->tuple))
            return pi__jfail(r, "'in': %s cannot be a key", pi__val_type_name(item));
        *out = item->type <= PI__V_STR && pi__dict_get(in->map, *item);
        return true;
    case PI__V_LIST:
        for (size_t i = 0; !*out && i < in->list->n; i++)
            if (!pi__jequal(r, item, &in->list->v[i], out)) return false;
        return true;
    default: return pi__jfail(r, "'in' does not work with %s", pi__val_type_name(in));
    }
}

static bool compare(run *r, char op, const pi__val *a, const pi__val *b, bool *out)
{
    int c;
    if (op == 'i' || op == 'o') {
        if (!pi__jcontains(r, a, b, out)) return false;
        *out ^= op == 'o';
        return true;
    }
    if (op == 'e' || op == 'n') {
        if (!pi__jequal(r, a, b, out)) return false;
        *out ^= op == 'n';
        return true;
    }
    if (!pi__jcompare(r, a, b, &c)) return false;
    *out = op == '<' ? c < 0 : op == '>' ? c > 0 : op == 'l' ? c <= 0 : c >= 0;
    return true;
}

/* a < b < c: compares each pair of adjacent operands. */
bool pi__jeval_compare(run *r, const node *n, pi__val *out)
{
    pi__val a, b;
    bool yes = true;
    if (!pi__jeval(r, n->a, &a)) return false;
    for (const node *o = n->b; o && yes; o = o->next) {
        if (!pi__jeval(r, o->a, &b) || !compare(r, (char) o->op, &a, &b, &yes)) return false;
        a = b;
    }
    *out = pi__val_bool(yes);
    return true;
}

/* -------------------------------------------------------------------------------------------------------- iteration */

bool pi__jiterate(run *r, const pi__val *v, pi__list *out)
{
    pi__val l;
    *out = (pi__list) {0};
    if (v->type == PI__V_UNDEFINED) return true;
    if (v->type == PI__V_LIST) {
        *out = *v->list;
        return true;
    }
    if (v->type != PI__V_MAP && v->type != PI__V_STR)
        return pi__jfail(r, "%s cannot be iterated over", pi__val_type_name(v));
    size_t n = v->type == PI__V_MAP ? v->map->n : pi__str_length(v->s);
    if (!pi__jcost(r, n * 16)) return false;
    if (!pi__val_new_list(r->z, n, &l)) return pi__jno_room(r);
    for (size_t i = 0; v->type == PI__V_MAP && i < n; i++) l.list->v[l.list->n++] = v->map->e[i].key;
    for (size_t at = 0, len; v->type == PI__V_STR && at < v->s.n; at += len) {
        len = pi__utf8_len((unsigned char) v->s.p[at]);
        l.list->v[l.list->n++] = pi__val_str((pi__str) {v->s.p + at, len});
    }
    *out = *l.list;
    return true;
}
