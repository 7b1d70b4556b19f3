/* Expressions of templates: tokens to trees.
 *
 * Precedence, lowest first: "a if b else c", or, and, not, comparisons and in, + -, ~, * / // %, **, signs. A primary
 * takes its suffixes: .name [index] (call) |filter "is test". Nesting is limited, so no text can overflow the stack of
 * the parser or of the evaluator. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "template/jinja_impl.h"

typedef pi__jnode node;

/* --------------------------------------------------------------------------------------------------- small helpers */

bool pi__jparse_fail(pi__jparse *p, uint32_t line, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!p->code) p->code = pi__fail(p->err, PI_EINVAL, "chat template, line %u: %s", line, text);
    return false;
}

bool pi__jparse_no_room(pi__jparse *p)
{
    if (p->code) return false;
    if (p->t->zone.code == PI_ETOOBIG) p->code = pi__fail(p->err, PI_ETOOBIG, "the chat template is too large");
    else p->code = pi__fail_mem(p->err, "the chat template");
    return false;
}

bool pi__jis_op(const pi__jparse *p, char op)
{
    return pi__jcur(p)->kind == PI__JT_OP && pi__jcur(p)->op == (uint8_t) op;
}

bool pi__jis_name(const pi__jparse *p, const char *name)
{
    return pi__jcur(p)->kind == PI__JT_NAME && pi__str_is(pi__jcur(p)->s, name);
}

bool pi__jskip_op(pi__jparse *p, char op)
{
    bool is = pi__jis_op(p, op);
    p->at += is;
    return is;
}

bool pi__jskip_name(pi__jparse *p, const char *name)
{
    bool is = pi__jis_name(p, name);
    p->at += is;
    return is;
}

/* Fails: `what` was expected at the current token. */
static bool unexpected(pi__jparse *p, const char *what)
{
    const pi__jtok *t = pi__jcur(p);
    if (t->kind == PI__JT_END) return pi__jparse_fail(p, t->line, "expected %s, the template ends", what);
    if (t->kind == PI__JT_DATA) return pi__jparse_fail(p, t->line, "expected %s, found text", what);
    return pi__jparse_fail(p, t->line, "expected %s, found '%.*s'", what, pi__jshort(t->s, 60), t->s.p);
}

bool pi__jexpect_op(pi__jparse *p, char op)
{
    const char what[] = {'\'', op, '\'', 0};
    return pi__jskip_op(p, op) || unexpected(p, what);
}

node *pi__jnode_new(pi__jparse *p, int kind, uint32_t line)
{
    node *n = pi__zone_take(&p->t->zone, sizeof *n);
    if (!n) {
        pi__jparse_no_room(p);
        return NULL;
    }
    n->kind = (uint8_t) kind;
    n->line = line;
    n->name = n->id = -1;
    return n;
}

int32_t pi__jname(pi__jparse *p, pi__str name)
{
    pi__jinja *t = p->t;
    const pi__val *known = pi__dict_get(&t->numbers, pi__val_str(name));
    if (known) return (int32_t) known->i;
    int32_t i = (int32_t) t->names.n;
    if (pi__list_add(&t->zone, &t->names, pi__val_str(name)) &&
        pi__dict_set(&t->zone, &t->numbers, pi__val_str(name), pi__val_int(i)))
        return i;
    pi__jparse_no_room(p);
    return -1;
}

/* Makes a node at the line of a, with children a and b. Returns NULL if one of them is NULL. */
static node *branch(pi__jparse *p, int kind, node *a, node *b)
{
    node *n = a && b ? pi__jnode_new(p, kind, a->line) : NULL;
    if (!n) return NULL;
    n->a = a;
    n->b = b;
    return n;
}

static node *wrap(pi__jparse *p, int kind, node *a)
{
    node *n = a ? pi__jnode_new(p, kind, a->line) : NULL;
    if (n) n->a = a;
    return n;
}

static bool deeper(pi__jparse *p)
{
    if (++p->depth <= PI__JINJA_PARSE_DEPTH) return true;
    return pi__jparse_fail(p, pi__jcur(p)->line, "nested more than %d deep", PI__JINJA_PARSE_DEPTH);
}

static node *parse_or(pi__jparse *p);
static node *parse_unary(pi__jparse *p, bool filters);

/* ---------------------------------------------------------------------------------------------------------- primary */

static node *constant(pi__jparse *p, pi__val v)
{
    node *n = pi__jnode_new(p, PI__JN_CONST, pi__jcur(p)->line);
    if (n) n->v = v;
    return n;
}

/* Returns the PI__JM_* of a name; 0 = an ordinary name. */
static uint8_t special(pi__str s)
{
    if (pi__str_is(s, "varargs")) return PI__JM_VARARGS;
    if (pi__str_is(s, "kwargs")) return PI__JM_KWARGS;
    return pi__str_is(s, "caller") ? PI__JM_CALLER : 0;
}

static node *parse_name(pi__jparse *p)
{
    static const struct {
        const char *text;
        uint8_t type;
        bool b;
    } words[] = {{"true", PI__V_BOOL, true}, {"True", PI__V_BOOL, true}, {"false", PI__V_BOOL, false},
                 {"False", PI__V_BOOL, false}, {"none", PI__V_NONE, false}, {"None", PI__V_NONE, false}};
    const pi__jtok *t = pi__jcur(p);
    node *n = NULL;
    for (size_t i = 0; !n && i < sizeof words / sizeof *words; i++) {
        if (!pi__str_is(t->s, words[i].text)) continue;
        n = constant(p, (pi__val) {.type = words[i].type, .b = words[i].b});
        if (!n) return NULL;
    }
    if (!n) {
        n = pi__jnode_new(p, PI__JN_NAME, t->line);
        if (!n || (n->name = pi__jname(p, t->s)) < 0) return NULL;
        p->specials |= special(t->s) & (uint8_t) ~p->hidden;
    }
    p->at++;
    return n;
}

/* Adjacent strings are concatenated. */
static node *parse_string(pi__jparse *p)
{
    node *n = constant(p, pi__val_str(pi__jcur(p)->s));
    for (p->at++; n && pi__jcur(p)->kind == PI__JT_STRING; p->at++) {
        n->v.s = pi__zone_concat(&p->t->zone, n->v.s, pi__jcur(p)->s);
        if (p->t->zone.code) {
            pi__jparse_no_room(p);
            return NULL;
        }
    }
    return n;
}

/* Parses elements up to and including the closing bracket; a tuple of one has a comma. */
static node *parse_elements(pi__jparse *p, node *list, char close)
{
    node **to = &list->a;
    while (!pi__jis_op(p, close)) {
        if (list->kind == PI__JN_DICT) {
            node *key = pi__jparse_expr(p, false, true);
            if (!key || !pi__jexpect_op(p, ':')) return NULL;
            *to = branch(p, PI__JN_PAIR, key, pi__jparse_expr(p, false, true));
        } else {
            *to = pi__jparse_expr(p, false, true);
        }
        if (!*to) return NULL;
        to = &(*to)->next;
        if (!pi__jskip_op(p, ',')) break;
    }
    return pi__jexpect_op(p, close) ? list : NULL;
}

static node *parse_primary(pi__jparse *p)
{
    const pi__jtok *t = pi__jcur(p);
    node *n = NULL;
    if (t->kind == PI__JT_NAME) return parse_name(p);
    if (t->kind == PI__JT_STRING) return parse_string(p);
    if (t->kind == PI__JT_NUMBER) {
        n = constant(p, t->v);
        p->at++;
        return n;
    }
    if (pi__jskip_op(p, '(')) {
        if (pi__jskip_op(p, ')')) return pi__jnode_new(p, PI__JN_TUPLE, t->line);
        n = pi__jparse_expr(p, true, true);
        return n && pi__jexpect_op(p, ')') ? n : NULL;
    }
    if (pi__jis_op(p, '[') || pi__jis_op(p, '{')) {
        bool list = pi__jis_op(p, '[');
        n = pi__jnode_new(p, list ? PI__JN_LIST : PI__JN_DICT, t->line);
        p->at++;
        return n ? parse_elements(p, n, list ? ']' : '}') : NULL;
    }
    unexpected(p, "an expression");
    return NULL;
}

/* --------------------------------------------------------------------------------------------- suffixes of a value */

/* Parses arguments after "(": values, then named ones, with one *list among them and one **map at the end. */
static bool parse_args(pi__jparse *p, node **to)
{
    bool named = false, star = false, stars = false; /* already seen */
    while (!pi__jis_op(p, ')')) {
        const pi__jtok *t = pi__jcur(p);
        bool is_star = pi__jskip_op(p, '*'), is_stars = !is_star && pi__jskip_op(p, 'p');
        bool is_named = t->kind == PI__JT_NAME && t[1].kind == PI__JT_OP && t[1].op == '=';
        if (stars || (star && !is_stars && !is_named) || (named && !is_named && !is_star && !is_stars))
            return pi__jparse_fail(p, t->line, "this argument must come before the previous one");
        if (is_named) p->at += 2;
        named |= is_named;
        star |= is_star;
        stars |= is_stars;
        *to = pi__jparse_expr(p, false, true);
        if (*to && (is_star || is_stars)) *to = wrap(p, is_star ? PI__JN_STAR : PI__JN_STARS, *to);
        if (*to && is_named) {
            *to = wrap(p, PI__JN_KWARG, *to);
            if (*to) (*to)->v = pi__val_str(t->s);
        }
        if (!*to) return false;
        to = &(*to)->next;
        if (!pi__jskip_op(p, ',')) break;
    }
    return pi__jexpect_op(p, ')');
}

/* After "[": parses an index, or a slice whose bounds and step may all be missing. */
static node *parse_subscript(pi__jparse *p, node *object)
{
    node *bound[3] = {NULL, NULL, NULL};
    int n = 0;
    if (!pi__jis_op(p, ':') && !(bound[0] = pi__jparse_expr(p, true, true))) return NULL;
    while (n < 2 && pi__jskip_op(p, ':')) {
        n++;
        if (pi__jis_op(p, ':') || pi__jis_op(p, ']')) continue;
        if (!(bound[n] = pi__jparse_expr(p, false, true))) return NULL;
    }
    if (!pi__jexpect_op(p, ']')) return NULL;
    if (!n) return branch(p, PI__JN_ITEM, object, bound[0]);
    node *s = wrap(p, PI__JN_SLICE, object);
    if (!s) return NULL;
    s->b = bound[0];
    s->c = bound[1];
    s->d = bound[2];
    return s;
}

static node *parse_attribute(pi__jparse *p, node *object)
{
    const pi__jtok *t = pi__jcur(p);
    node *n = wrap(p, PI__JN_ATTR, object);
    if (!n) return NULL;
    if (t->kind != PI__JT_NAME && !(t->kind == PI__JT_NUMBER && t->v.type == PI__V_INT)) {
        unexpected(p, "a name after '.'");
        return NULL;
    }
    p->at++;
    n->v = t->kind == PI__JT_NAME ? pi__val_str(t->s) : t->v;
    return n;
}

static node *parse_call(pi__jparse *p, node *callee)
{
    node *n = wrap(p, PI__JN_CALL, callee);
    return n && parse_args(p, &n->b) ? n : NULL;
}

static node *parse_postfix(pi__jparse *p, node *n)
{
    while (n) {
        if (pi__jskip_op(p, '.')) n = parse_attribute(p, n);
        else if (pi__jskip_op(p, '[')) n = parse_subscript(p, n);
        else if (pi__jskip_op(p, '(')) n = parse_call(p, n);
        else break;
    }
    return n;
}

/* Parses a filter's or test's name, "a" or "a.b". */
static bool parse_dotted(pi__jparse *p, pi__str *out)
{
    const pi__jtok *t = pi__jcur(p);
    if (t->kind != PI__JT_NAME) return unexpected(p, "a name");
    *out = t->s;
    p->at++;
    while (pi__jskip_op(p, '.')) {
        t = pi__jcur(p);
        if (t->kind != PI__JT_NAME) return unexpected(p, "a name");
        p->at++;
        out->n = (size_t) (t->s.p + t->s.n - out->p);
    }
    return true;
}

static node *parse_filter(pi__jparse *p, node *in)
{
    node *n = wrap(p, PI__JN_FILTER, in);
    pi__str name;
    if (!n || !parse_dotted(p, &name)) return NULL;
    n->line = pi__jcur(p)->line;
    n->v = pi__val_str(name);
    n->id = (int16_t) pi__jfilter_find(name);
    return !pi__jskip_op(p, '(') || parse_args(p, &n->b) ? n : NULL;
}

/* After "is": parses "not defined", "divisibleby 3", "in [1, 2]". */
static node *parse_test(pi__jparse *p, node *in)
{
    bool negate = pi__jskip_name(p, "not");
    node *n = wrap(p, PI__JN_TEST, in);
    pi__str name;
    if (!n || !parse_dotted(p, &name)) return NULL;
    n->v = pi__val_str(name);
    n->id = (int16_t) pi__jtest_find(name);
    const pi__jtok *t = pi__jcur(p);
    bool word = t->kind == PI__JT_NAME && !pi__jis_name(p, "else") && !pi__jis_name(p, "or") &&
                !pi__jis_name(p, "and") && !pi__jis_name(p, "if") && !pi__jis_name(p, "is") &&
                !pi__jis_name(p, "not") && !pi__jis_name(p, "in");
    if (pi__jskip_op(p, '(')) {
        if (!parse_args(p, &n->b)) return NULL;
    } else if (word || t->kind == PI__JT_STRING || t->kind == PI__JT_NUMBER || pi__jis_op(p, '[') ||
               pi__jis_op(p, '{')) {
        if (!(n->b = parse_postfix(p, parse_primary(p)))) return NULL;
    }
    return negate ? wrap(p, PI__JN_NOT, n) : n;
}

node *pi__jparse_filters(pi__jparse *p, node *n)
{
    while (n) {
        if (pi__jskip_op(p, '|')) n = parse_filter(p, n);
        else if (pi__jskip_name(p, "is")) n = parse_test(p, n);
        else if (pi__jskip_op(p, '(')) n = parse_call(p, n);
        else break;
    }
    return n;
}

/* ----------------------------------------------------------------------------------------------------------- levels */

static node *parse_unary(pi__jparse *p, bool filters)
{
    node *n = NULL;
    if (!deeper(p)) return NULL;
    if (pi__jskip_op(p, '-')) n = wrap(p, PI__JN_NEG, parse_unary(p, false));
    else if (pi__jskip_op(p, '+')) n = wrap(p, PI__JN_POS, parse_unary(p, false));
    else n = parse_primary(p);
    n = parse_postfix(p, n);
    if (filters) n = pi__jparse_filters(p, n);
    p->depth--;
    return n;
}

/* Parses binary operators by level; operands are expressions of the next higher level. */
static node *parse_binary(pi__jparse *p, int level)
{
    static const char *const ops[] = {"+-", "~", "*/f%", "p"};
    node *n = level < 3 ? parse_binary(p, level + 1) : parse_unary(p, true);
    while (n && pi__jcur(p)->kind == PI__JT_OP && strchr(ops[level], pi__jcur(p)->op)) {
        uint8_t op = pi__jcur(p)->op;
        p->at++;
        n = branch(p, PI__JN_BINARY, n, level < 3 ? parse_binary(p, level + 1) : parse_unary(p, true));
        if (n) n->op = op;
    }
    return n;
}

/* Takes the comparison at the current token; returns 0 if there is none. */
static char comparison(pi__jparse *p)
{
    const pi__jtok *t = pi__jcur(p);
    if (t->kind == PI__JT_OP && strchr("en<>gl", t->op)) {
        p->at++;
        return (char) t->op;
    }
    if (pi__jskip_name(p, "in")) return 'i';
    if (!pi__jis_name(p, "not") || t[1].kind != PI__JT_NAME || !pi__str_is(t[1].s, "in")) return 0;
    p->at += 2;
    return 'o';
}

static node *parse_compare(pi__jparse *p)
{
    node *n = parse_binary(p, 0), **to = NULL;
    for (char op; n && (op = comparison(p));) {
        node *operand = wrap(p, PI__JN_OPERAND, parse_binary(p, 0));
        if (!to && operand) {
            n = wrap(p, PI__JN_COMPARE, n);
            if (n) to = &n->b;
        }
        if (!n || !operand) return NULL;
        operand->op = (uint8_t) op;
        *to = operand;
        to = &operand->next;
    }
    return n;
}

static node *parse_not(pi__jparse *p)
{
    if (!pi__jis_name(p, "not")) return parse_compare(p);
    if (!deeper(p)) return NULL;
    p->at++;
    node *n = wrap(p, PI__JN_NOT, parse_not(p));
    p->depth--;
    return n;
}

static node *parse_and(pi__jparse *p)
{
    node *n = parse_not(p);
    while (n && pi__jskip_name(p, "and")) n = branch(p, PI__JN_AND, n, parse_not(p));
    return n;
}

static node *parse_or(pi__jparse *p)
{
    node *n = parse_and(p);
    while (n && pi__jskip_name(p, "or")) n = branch(p, PI__JN_OR, n, parse_and(p));
    return n;
}

static node *parse_cond(pi__jparse *p)
{
    node *n = parse_or(p);
    while (n && pi__jskip_name(p, "if")) {
        n = branch(p, PI__JN_COND, parse_or(p), n);
        if (!n || !pi__jskip_name(p, "else")) continue;
        if (!deeper(p) || !(n->c = parse_cond(p))) return NULL;
        p->depth--;
    }
    return n;
}

node *pi__jparse_expr(pi__jparse *p, bool tuple, bool cond)
{
    if (!deeper(p)) return NULL;
    node *n = cond ? parse_cond(p) : parse_or(p);
    if (n && tuple && pi__jis_op(p, ',')) {
        node *first = n, **to = &first->next;
        if (!(n = wrap(p, PI__JN_TUPLE, first))) return NULL;
        while (pi__jskip_op(p, ',')) {
            const pi__jtok *t = pi__jcur(p);
            if (t->kind == PI__JT_PRINT_END || t->kind == PI__JT_BLOCK_END || pi__jis_op(p, ')')) break;
            if (!(*to = cond ? parse_cond(p) : parse_or(p))) return NULL;
            to = &(*to)->next;
        }
    }
    p->depth--;
    return n;
}

node *pi__jparse_target(pi__jparse *p, bool attr)
{
    if (!deeper(p)) return NULL;
    node *list = NULL, **to = &list;
    bool tuple = false;
    do {
        if (list && pi__jis_op(p, '=')) break;
        if (pi__jskip_op(p, '(')) {
            *to = pi__jparse_target(p, false);
            if (*to && !pi__jexpect_op(p, ')')) return NULL;
        } else if (pi__jcur(p)->kind == PI__JT_NAME) {
            p->hidden |= special(pi__jcur(p)->s) & (uint8_t) ~p->specials;
            *to = parse_name(p);
        } else {
            unexpected(p, "a name to set");
        }
        if (*to && (*to)->kind == PI__JN_CONST) unexpected(p, "a name that can be set");
        if (!*to || p->code) return NULL;
        if (attr && !tuple && pi__jskip_op(p, '.')) *to = parse_attribute(p, *to);
        if (!*to) return NULL;
        to = &(*to)->next;
        tuple |= pi__jis_op(p, ',');
    } while (pi__jskip_op(p, ','));
    p->depth--;
    return tuple ? wrap(p, PI__JN_TUPLE, list) : list;
}
