/* Statements of templates: tokens to trees; creating and freeing parsed templates.
 *
 * Memory: all nodes are in the template's zone, whose limit grows with the text. Tokens are on the heap and freed when
 * parsing ends. Expressions are parsed in jinja_expr.c. */
#include <string.h>

#include "template/jinja_impl.h"
#include "base/utf8.h"

typedef pi__jnode node;

enum { TEXT_MAX = 1 << 20 }; /* maximum bytes of a template */

static bool parse_body(pi__jparse *p, node **to, const char *const *ends);

/* Takes the end of the current tag. */
static bool end_tag(pi__jparse *p)
{
    if (pi__jcur(p)->kind == PI__JT_BLOCK_END) {
        p->at++;
        return true;
    }
    const pi__jtok *t = pi__jcur(p);
    return pi__jparse_fail(p, t->line, "expected '%%}', found '%.*s'", pi__jshort(t->s, 60), t->s.p);
}

/* Parses the body of a tag, from before "%}" up to and including {% end %}. */
static bool parse_to(pi__jparse *p, node **to, const char *end)
{
    const char *const ends[] = {end, NULL};
    if (!end_tag(p) || !parse_body(p, to, ends)) return false;
    p->at++; /* the name */
    return end_tag(p);
}

/* ------------------------------------------------------------------------------------------------------- statements */

/* After "if" or "elif". Branches are chained without recursion. */
static bool parse_if(pi__jparse *p, node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        if (!(n->a = pi__jparse_expr(p, true, true)) || !end_tag(p) || !parse_body(p, &n->d, ends)) return false;
        uint32_t line = pi__jcur(p)->line;
        if (pi__jskip_name(p, "else")) return parse_to(p, &n->e, "endif");
        if (pi__jskip_name(p, "endif")) return end_tag(p);
        p->at++;
        if (!(n->e = pi__jnode_new(p, PI__JN_IF, line))) return false;
        n = n->e;
    }
}

static bool parse_for(pi__jparse *p, node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    if (!(n->a = pi__jparse_target(p, false))) return false;
    if (!pi__jskip_name(p, "in")) return pi__jparse_fail(p, pi__jcur(p)->line, "expected 'in' in a for");
    if (!(n->b = pi__jparse_expr(p, true, false))) return false;
    if (pi__jskip_name(p, "if") && !(n->c = pi__jparse_expr(p, false, true))) return false;
    if (pi__jis_name(p, "recursive"))
        return pi__jparse_fail(p, pi__jcur(p)->line, "recursive loops are not supported");
    p->loops++;
    bool ok = end_tag(p) && parse_body(p, &n->d, ends);
    p->loops--;
    if (!ok) return false;
    if (pi__jskip_name(p, "else")) return parse_to(p, &n->e, "endfor");
    p->at++;
    return end_tag(p);
}

static bool parse_set(pi__jparse *p, node *n)
{
    if (!(n->a = pi__jparse_target(p, true))) return false;
    if (pi__jskip_op(p, '=')) return (n->b = pi__jparse_expr(p, true, true)) && end_tag(p);
    node *capture = pi__jnode_new(p, PI__JN_CAPTURE, n->line);
    if (!capture || !(n->b = pi__jparse_filters(p, capture))) return false;
    return parse_to(p, &capture->d, "endset");
}

/* Parses the parameters of a macro: "(a, b=1)". */
static bool parse_params(pi__jparse *p, node **to)
{
    if (!pi__jexpect_op(p, '(')) return false;
    while (!pi__jis_op(p, ')')) {
        node *n = pi__jnode_new(p, PI__JN_PARAM, pi__jcur(p)->line);
        if (!n) return false;
        if (pi__jcur(p)->kind != PI__JT_NAME) return pi__jparse_fail(p, n->line, "expected a parameter's name");
        if ((n->name = pi__jname(p, pi__jcur(p)->s)) < 0) return false;
        p->at++;
        if (pi__jskip_op(p, '=') && !(n->a = pi__jparse_expr(p, false, true))) return false;
        *to = n;
        to = &n->next;
        if (!pi__jskip_op(p, ',')) break;
    }
    return pi__jexpect_op(p, ')');
}

/* Parses a macro's body, which is not part of the surrounding loops. */
static bool parse_macro_body(pi__jparse *p, node *n, const char *end)
{
    int loops = p->loops;
    uint8_t specials = p->specials, hidden = p->hidden;
    p->loops = 0;
    p->specials = p->hidden = 0;
    bool ok = parse_to(p, &n->d, end);
    n->op = p->specials;
    p->loops = loops;
    p->hidden = hidden;
    p->specials |= specials; /* names used by an inner macro count for the outer one too */
    return ok;
}

static bool parse_macro(pi__jparse *p, node *n)
{
    if (pi__jcur(p)->kind != PI__JT_NAME) return pi__jparse_fail(p, n->line, "expected a macro's name");
    if ((n->name = pi__jname(p, pi__jcur(p)->s)) < 0) return false;
    p->at++;
    return parse_params(p, &n->a) && parse_macro_body(p, n, "endmacro");
}

static bool parse_caller(pi__jparse *p, node *n)
{
    node *m = n->b = pi__jnode_new(p, PI__JN_MACRO, n->line);
    if (!m || (m->name = pi__jname(p, pi__str_of("caller"))) < 0) return false;
    if (pi__jis_op(p, '(') && !parse_params(p, &m->a)) return false;
    if (!(n->a = pi__jparse_expr(p, false, true))) return false;
    if (n->a->kind != PI__JN_CALL) return pi__jparse_fail(p, n->line, "expected a call after 'call'");
    return parse_macro_body(p, m, "endcall");
}

static bool parse_filter_block(pi__jparse *p, node *n)
{
    node *capture = pi__jnode_new(p, PI__JN_CAPTURE, n->line);
    if (!capture) return false;
    p->tok[--p->at] = (pi__jtok) {.kind = PI__JT_OP, .op = '|', .line = n->line, .s = {"|", 1}}; /* was "filter" */
    if (!(n->a = pi__jparse_filters(p, capture))) return false;
    return parse_to(p, &capture->d, "endfilter");
}

static bool parse_with(pi__jparse *p, node *n)
{
    for (node **to = &n->a; pi__jcur(p)->kind != PI__JT_BLOCK_END; to = &(*to)->next) {
        if (n->a && !pi__jexpect_op(p, ',')) return false;
        node *set = *to = pi__jnode_new(p, PI__JN_SET, pi__jcur(p)->line);
        if (!set || pi__jcur(p)->kind != PI__JT_NAME)
            return set && pi__jparse_fail(p, set->line, "expected a name to set");
        if (!(set->a = pi__jnode_new(p, PI__JN_NAME, set->line))) return false;
        if ((set->a->name = pi__jname(p, pi__jcur(p)->s)) < 0) return false;
        p->at++;
        if (!pi__jexpect_op(p, '=') || !(set->b = pi__jparse_expr(p, false, true))) return false;
    }
    return parse_to(p, &n->d, "endwith");
}

static bool parse_generation(pi__jparse *p, node *n) { return parse_to(p, &n->d, "endgeneration"); }

static bool parse_jump(pi__jparse *p, node *n)
{
    return p->loops ? end_tag(p) : pi__jparse_fail(p, n->line, "break or continue outside of a loop");
}

/* After "{%": parses a statement by its name. */
static node *parse_statement(pi__jparse *p)
{
    static const struct {
        const char *name;
        int kind;
        bool (*parse)(pi__jparse *p, node *n);
    } tags[] = {
        {"if", PI__JN_IF, parse_if}, {"for", PI__JN_FOR, parse_for}, {"set", PI__JN_SET, parse_set},
        {"macro", PI__JN_MACRO, parse_macro}, {"call", PI__JN_CALLER, parse_caller},
        {"filter", PI__JN_PRINT, parse_filter_block}, {"with", PI__JN_WITH, parse_with},
        {"generation", PI__JN_WITH, parse_generation}, {"break", PI__JN_BREAK, parse_jump},
        {"continue", PI__JN_CONTINUE, parse_jump},
    };
    const pi__jtok *t = pi__jcur(p);
    for (size_t i = 0; t->kind == PI__JT_NAME && i < sizeof tags / sizeof *tags; i++) {
        if (!pi__str_is(t->s, tags[i].name)) continue;
        node *n = pi__jnode_new(p, tags[i].kind, t->line);
        p->at++;
        return n && tags[i].parse(p, n) ? n : NULL;
    }
    pi__jparse_fail(p, t->line, "unknown tag '%.*s'", pi__jshort(t->s, 60), t->s.p);
    return NULL;
}

/* After "{{": parses an expression up to "}}". */
static node *parse_print(pi__jparse *p)
{
    node *n = pi__jnode_new(p, PI__JN_PRINT, pi__jcur(p)->line);
    if (!n || !(n->a = pi__jparse_expr(p, true, true))) return NULL;
    const pi__jtok *t = pi__jcur(p);
    if (t->kind == PI__JT_PRINT_END) {
        p->at++;
        return n;
    }
    pi__jparse_fail(p, t->line, "expected '}}', found '%.*s'", pi__jshort(t->s, 60), t->s.p);
    return NULL;
}

static bool is_end(const pi__jparse *p, const char *const *ends)
{
    if (pi__jcur(p)->kind != PI__JT_BLOCK) return false;
    const pi__jtok *t = pi__jcur(p) + 1;
    for (size_t i = 0; ends && ends[i]; i++)
        if (t->kind == PI__JT_NAME && pi__str_is(t->s, ends[i])) return true;
    return false;
}

/* Parses statements up to a tag named in ends; its name becomes the current token. NULL = up to the end of the text. */
static bool parse_body(pi__jparse *p, node **to, const char *const *ends)
{
    if (++p->depth > PI__JINJA_PARSE_DEPTH)
        return pi__jparse_fail(p, pi__jcur(p)->line, "nested more than %d deep", PI__JINJA_PARSE_DEPTH);
    while (!is_end(p, ends)) {
        const pi__jtok *t = pi__jcur(p);
        if (t->kind == PI__JT_END) {
            p->depth--;
            return !ends || pi__jparse_fail(p, t->line, "the template ends where '%s' is expected", ends[0]);
        }
        p->at++;
        if (t->kind == PI__JT_DATA) {
            *to = pi__jnode_new(p, PI__JN_DATA, t->line);
            if (*to) (*to)->v = pi__val_str(t->s);
        } else {
            *to = t->kind == PI__JT_BLOCK ? parse_statement(p) : parse_print(p);
        }
        if (!*to) return false;
        to = &(*to)->next;
    }
    p->at++;
    p->depth--;
    return true;
}

/* -------------------------------------------------------------------------------------------------------- templates */

/* Copies the text, converts line ends to \n and removes the last one. */
static bool take_text(pi__jparse *p, const char *text, size_t n)
{
    char *to = pi__zone_take(&p->t->zone, n + 1);
    if (!to) return pi__jparse_no_room(p);
    p->t->text.p = to;
    for (size_t i = 0; i < n; i++) {
        *to++ = text[i] == '\r' ? '\n' : text[i];
        i += text[i] == '\r' && i + 1 < n && text[i + 1] == '\n';
    }
    p->t->text.n = (size_t) (to - p->t->text.p);
    if (p->t->text.n && to[-1] == '\n') p->t->text.n--;
    return true;
}

int pi__jinja_parse(pi__jinja **out, const char *text, size_t n, pi_error *err)
{
    *out = NULL;
    if (n > TEXT_MAX) return pi__fail(err, PI_ETOOBIG, "the chat template has %zu bytes, more than %d", n, TEXT_MAX);
    if (pi__utf8_valid(text, n) < n) return pi__fail(err, PI_EINVAL, "the chat template is not UTF-8");
    pi__jinja *t = pi__calloc(1, sizeof *t);
    if (!t) return pi__fail_mem(err, "the chat template");
    pi__zone_init(&t->zone, ((size_t) 1 << 20) + n * 128); /* enough for one node per byte */
    pi__jparse p = {.t = t, .err = err};
    bool ok = take_text(&p, text, n) && pi__jlex(&p) && parse_body(&p, &t->root, NULL);
    pi__free(p.tok);
    if (!ok) {
        pi__jinja_free(t);
        return p.code;
    }
    *out = t;
    return PI_OK;
}

void pi__jinja_free(pi__jinja *t)
{
    if (!t) return;
    pi__zone_free(&t->zone);
    pi__free(t);
}

pi__str pi__jinja_text(const pi__jinja *t) { return t->text; }

bool pi__jinja_mentions(const pi__jinja *t, const char *word)
{
    return t->text.n && memmem(t->text.p, t->text.n, word, strlen(word));
}
