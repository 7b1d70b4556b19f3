/* Tests of templates: "x is defined", "x is divisibleby 3". */
#include "template/jinja_impl.h"

typedef pi__jrun run;

enum {
    T_DEFINED, T_UNDEFINED, T_NONE, T_STRING, T_MAPPING, T_ITERABLE, T_SEQUENCE, T_NUMBER, T_INTEGER, T_FLOAT,
    T_BOOLEAN, T_TRUE, T_FALSE, T_CALLABLE, T_IN, T_EQ, T_NE, T_LT, T_LE, T_GT, T_GE, T_ODD, T_EVEN, T_DIVISIBLE,
    T_LOWER, T_UPPER, T_SAMEAS, T_FILTER, T_TEST,
};
static const struct {
    const char *name;
    int id;
} tests[] = {
    {"defined", T_DEFINED}, {"undefined", T_UNDEFINED}, {"none", T_NONE}, {"string", T_STRING},
    {"mapping", T_MAPPING}, {"iterable", T_ITERABLE}, {"sequence", T_SEQUENCE}, {"number", T_NUMBER},
    {"integer", T_INTEGER}, {"float", T_FLOAT}, {"boolean", T_BOOLEAN}, {"true", T_TRUE}, {"false", T_FALSE},
    {"callable", T_CALLABLE}, {"in", T_IN}, {"equalto", T_EQ}, {"eq", T_EQ}, {"ne", T_NE}, {"lt", T_LT},
    {"lessthan", T_LT}, {"le", T_LE}, {"gt", T_GT}, {"greaterthan", T_GT}, {"ge", T_GE}, {"odd", T_ODD},
    {"even", T_EVEN}, {"divisibleby", T_DIVISIBLE}, {"lower", T_LOWER}, {"upper", T_UPPER}, {"sameas", T_SAMEAS},
    {"filter", T_FILTER}, {"test", T_TEST},
};

int pi__jtest_find(pi__str name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (pi__str_is(name, tests[i].name)) return tests[i].id;
    return -1;
}

/* Tests that depend only on the value's type. */
static bool is_type(const pi__val *v, int id)
{
    switch (id) {
    case T_DEFINED: return v->type != PI__V_UNDEFINED;
    case T_UNDEFINED: return v->type == PI__V_UNDEFINED;
    case T_NONE: return v->type == PI__V_NONE;
    case T_STRING: return v->type == PI__V_STR;
    case T_MAPPING: return v->type == PI__V_MAP;
    case T_ITERABLE:
    case T_SEQUENCE: return v->type == PI__V_STR || v->type == PI__V_LIST || v->type == PI__V_MAP ||
                            v->type == PI__V_UNDEFINED;
    case T_NUMBER: return pi__val_is_number(v);
    case T_INTEGER: return v->type == PI__V_INT;
    case T_FLOAT: return v->type == PI__V_FLOAT;
    case T_BOOLEAN: return v->type == PI__V_BOOL;
    case T_TRUE: return v->type == PI__V_BOOL && v->b;
    case T_FALSE: return v->type == PI__V_BOOL && !v->b;
    /* T_CALLABLE; undefined counts, because calling it reports its name */
    default: return v->type >= PI__V_MACRO || v->type == PI__V_UNDEFINED;
    }
}

/* Tests that compare with the argument. */
static bool compare(run *r, const pi__val *v, int id, const pi__val *other, bool *out)
{
    int c;
    if (id == T_IN) return pi__jcontains(r, v, other, out);
    if (id == T_EQ || id == T_NE) {
        if (!pi__jequal(r, v, other, out)) return false;
        *out ^= id == T_NE;
        return true;
    }
    if (id == T_SAMEAS) {
        *out = v->type == other->type && (v->type < PI__V_LIST || v->obj == other->obj);
        bool same = false;
        if (!pi__jequal(r, v, other, &same)) return false;
        *out &= same;
        return true;
    }
    if (!pi__jcompare(r, v, other, &c)) return false;
    *out = id == T_LT ? c < 0 : id == T_LE ? c <= 0 : id == T_GT ? c > 0 : c >= 0;
    return true;
}

/* Tests v % by == remainder. */
static bool divides(run *r, const pi__val *v, const pi__val *by, int64_t remainder, bool *out)
{
    const pi__val want = pi__val_int(remainder);
    pi__val rest;
    return pi__jarithmetic(r, '%', v, by, &rest) && pi__jequal(r, &rest, &want, out);
}

static bool is_case(run *r, const pi__val *v, bool upper, bool *out)
{
    pi__str s;
    if (!pi__jto_str(r, v, &s) || !pi__jcost(r, s.n * PI__J_LOOKUP)) return false;
    *out = pi__jis_case(s, upper);
    return true;
}

bool pi__jtest_call(run *r, int id, const pi__val *in, const pi__jargs *args, bool *out)
{
    const pi__val *arg = pi__jarg(args, 0, NULL), two = pi__val_int(2);
    switch (id) {
    case T_ODD: return divides(r, in, &two, 1, out);
    case T_EVEN: return divides(r, in, &two, 0, out);
    case T_LOWER:
    case T_UPPER: return is_case(r, in, id == T_UPPER, out);
    case T_FILTER:
    case T_TEST:
        if (in->type != PI__V_STR) return pi__jfail(r, "expected a name");
        *out = (id == T_TEST ? pi__jtest_find(in->s) : pi__jfilter_find(in->s)) >= 0;
        return true;
    default: break;
    }
    if (id <= T_CALLABLE) {
        *out = is_type(in, id);
        return true;
    }
    if (!arg) return pi__jfail(r, "the test needs an argument");
    return id == T_DIVISIBLE ? divides(r, in, arg, 0, out) : compare(r, in, id, arg, out);
}
