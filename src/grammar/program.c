/* From expressions to nodes (see program.h).
 *
 * Nodes are made from the end of a text to its start: each expression is told where to go on, so what a node leads to
 * has been made before it and has a lower number, but in loops. Texts among the alternatives of a choice become a trie. */
#include "grammar/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { MAX_TRIE = 200 }; /* branches on the way to a text */

typedef struct maker {
    pi__program *p;
    pi__builder *b;
} maker;

static uint32_t make(maker *m, const pi__expr *x, uint32_t next);

static uint32_t add_node(maker *m, int kind, uint32_t a, uint32_t next)
{
    pi__program *p = m->p;
    if (m->b->code) return 0;
    if (p->n_nodes >= PI__MAX_NODES)
        pi__builder_fail(m->b, PI_ETOOBIG,
                         "the grammar is too large: it has more than %d parts; repetitions with limits count as often as "
                         "they repeat", PI__MAX_NODES);
    else if (!pi__grow(&p->node, &p->cap_nodes, p->n_nodes + 1, sizeof *p->node)) m->b->code = pi__fail_mem(m->b->err,
        "the grammar");
    if (m->b->code) return 0;
    p->node[p->n_nodes] = (pi__gnode) {.kind = (uint8_t) kind, .a = a, .b = next};
    return (uint32_t) p->n_nodes++;
}

static uint32_t add_rule(maker *m)
{
    pi__program *p = m->p;
    if (!m->b->code && !pi__grow(&p->rule, &p->cap_rules, p->n_rules + 1, sizeof *p->rule)) m->b->code =
        pi__fail_mem(m->b->err, "the grammar");
    if (m->b->code) return 0;
    p->rule[p->n_rules] = 0;
    return (uint32_t) p->n_rules++;
}

static uint32_t make_bytes(maker *m, const char *p, size_t n, uint32_t next)
{
    while (n-- > 0) next = add_node(m, PI__G_BYTE, (unsigned char) p[n], next);
    return next;
}

static int by_bytes(const void *x, const void *y)
{
    const pi__str *a = x, *b = y;
    const size_t n = a->n < b->n ? a->n : b->n;
    const int c = n ? memcmp(a->p, b->p, n) : 0;
    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

/* Sorted texts from byte `at` on, which all have. Beyond some depth they are just a choice. */
static uint32_t make_trie(maker *m, const pi__str *v, size_t n, size_t at, uint32_t next, int depth)
{
    size_t same = at, i = 0;
    uint32_t all = UINT32_MAX;
    if (depth > MAX_TRIE) {
        for (; i < n; i++) {
            const uint32_t one = make_bytes(m, v[i].p + at, v[i].n - at, next);
            all = all == UINT32_MAX ? one : add_node(m, PI__G_SPLIT, one, all);
        }
        return all;
    }
    while (same < v[0].n && v[n - 1].n > same && v[0].p[same] == v[n - 1].p[same]) same++;
        /* of all of them: they are sorted */
    for (; i < n && v[i].n == same; i++) all = next;
    while (i < n) {
        size_t k = i + 1;
        while (k < n && v[k].p[same] == v[i].p[same]) k++;
        const uint32_t one = k == i + 1 ? make_bytes(m, v[i].p + same, v[i].n - same, next)
                                        : make_trie(m, v + i, k - i, same, next, depth + 1);
        all = all == UINT32_MAX ? one : add_node(m, PI__G_SPLIT, one, all);
        i = k;
    }
    return make_bytes(m, v[0].p + at, same - at, all);
}

static uint32_t make_alt(maker *m, const pi__expr *x, uint32_t next)
{
    size_t n = 0;
    uint32_t all = UINT32_MAX;
    pi__str *text = pi__builder_take(m->b, (x->list.n + 1) * sizeof *text);
    if (!text) return 0;
    for (size_t i = 0; i < x->list.n; i++)
        if (x->list.v[i]->kind == PI__X_BYTES) text[n++] = x->list.v[i]->bytes;
    if (n) {
        qsort(text, n, sizeof *text, by_bytes);
        all = make_trie(m, text, n, 0, next, 0);
    }
    for (size_t i = x->list.n; i-- > 0;) {
        if (x->list.v[i]->kind == PI__X_BYTES || x->list.v[i]->kind == PI__X_NEVER) continue;
        const uint32_t one = make(m, x->list.v[i], next);
        all = all == UINT32_MAX ? one : add_node(m, PI__G_SPLIT, one, all);
    }
    return all == UINT32_MAX ? make(m, pi__x_never(m->b), next) : all;
}

static bool is_small(const pi__expr *x)
{
    return x->kind == PI__X_CLASS || x->kind == PI__X_RULE || x->kind == PI__X_TOKEN || x->kind == PI__X_NOT_TOKEN ||
           (x->kind == PI__X_BYTES && x->bytes.n <= 1);
}

static uint32_t make_rep(maker *m, const pi__expr *x, uint32_t next)
{
    const uint32_t min = x->rep.min, max = x->rep.max;
    const pi__expr *body = x->rep.body;
    pi__expr call = {.kind = PI__X_RULE};
    if (!max) return next;
    if (!is_small(body) && (max == PI__REP_INF ? min : max - 1) > 0) { /* more than one copy: a rule of its own */
        const uint32_t start = make(m, body, 0);
        call.rule = add_rule(m);
        if (m->b->code) return 0;
        m->p->rule[call.rule] = start;
        body = &call;
    }
    uint32_t at = next;
    if (max == PI__REP_INF) {
        at = add_node(m, PI__G_SPLIT, 0, next);
        const uint32_t again = make(m, body, at);
        if (m->b->code) return 0;
        m->p->node[at].a = again;
    }
    for (uint32_t i = min; max != PI__REP_INF && i < max && !m->b->code; i++) {
        const uint32_t once = make(m, body, at);
        at = add_node(m, PI__G_SPLIT, once, next);
    }
    for (uint32_t i = 0; i < min && !m->b->code; i++) at = make(m, body, at);
    return at;
}

/* The first node of x, after which the text goes on at next. */
static uint32_t make(maker *m, const pi__expr *x, uint32_t next)
{
    if (m->b->code) return 0;
    switch (x->kind) {
    case PI__X_BYTES: return make_bytes(m, x->bytes.p, x->bytes.n, next);
    case PI__X_CLASS: return add_node(m, PI__G_DFA, pi__dfa_of_class(m->p, m->b, x->cls), next);
    case PI__X_CAT:
        for (size_t i = x->list.n; i-- > 0;) next = make(m, x->list.v[i], next);
        return next;
    case PI__X_ALT: return make_alt(m, x, next);
    case PI__X_REP: return make_rep(m, x, next);
    case PI__X_RULE: return add_node(m, PI__G_CALL, x->rule, next);
    case PI__X_TOKEN: return add_node(m, PI__G_TOKEN, (uint32_t) x->token, next);
    case PI__X_NOT_TOKEN: return add_node(m, PI__G_NOT_TOKEN, (uint32_t) x->token, next);
    case PI__X_FREE: {
        const uint32_t bound = add_node(m, PI__G_CALL, x->rule, next);
        return add_node(m, PI__G_FREE, pi__dfa_of_triggers(m->p, m->b), bound);
    }
    }
    const uint32_t none = add_node(m, PI__G_SPLIT, 0, 0); /* NEVER: no way out, so not live */
    if (!m->b->code) m->p->node[none].a = m->p->node[none].b = none;
    return none;
}

/* ------------------------------------------------------------------------------------------------- classes of bytes */

/* Divides the classes by what f tells of each byte. */
static void refine(pi__program *p, const uint16_t *f)
{
    uint8_t now[256];
    uint32_t n = 0, class_of[256];
    uint16_t value_of[256];
    for (int c = 0; c < 256; c++) {
        uint32_t k = 0;
        while (k < n && (class_of[k] != p->cls[c] || value_of[k] != f[c])) k++;
        if (k == n) {
            class_of[n] = p->cls[c];
            value_of[n++] = f[c];
        }
        now[c] = (uint8_t) k;
    }
    memcpy(p->cls, now, sizeof now);
    p->n_cls = n;
}

static void class_bytes(pi__program *p)
{
    uint16_t single[256] = {0};
    for (size_t i = 0; i < p->n_nodes; i++)
        if (p->node[i].kind == PI__G_BYTE) single[p->node[i].a] = (uint16_t) (1 + p->node[i].a);
    refine(p, single);
    for (size_t d = 0; d < p->n_dfas; d++)
        for (size_t r = 0; r < p->dfa[d].n_rows && p->n_cls < 256; r++) refine(p, p->dfa[d].row[r]);
}

int pi__program_make(pi__program *p, pi__builder *b, pi__expr *root)
{
    maker m = {p, b};
    memset(p, 0, sizeof *p);
    add_node(&m, PI__G_END, 0, 0);
    while (!b->code && p->n_rules < b->n_rules) add_rule(&m);
    for (size_t i = 0; i < b->n_rules && !b->code; i++) {
        const uint32_t start = make(&m, b->rule[i] ? b->rule[i] : pi__x_never(b), 0);
        if (!b->code) p->rule[i] = start;
    }
    p->root = make(&m, root, 0);
    if (!b->code) pi__program_check(p, b);
    if (!b->code) class_bytes(p);
    for (size_t i = 0; i < p->n_dfas; i++) p->dfa[i].cls = (pi__class) {0};
    return b->code;
}

size_t pi__program_bytes(const pi__program *p)
{
    size_t n = p->cap_nodes * sizeof *p->node + p->n_nodes * sizeof *p->run + p->cap_rules * sizeof *p->rule;
    for (size_t i = 0; i < p->n_dfas; i++) n += p->dfa[i].cap * sizeof *p->dfa[i].row;
    return n + p->cap_dfas * sizeof *p->dfa;
}

void pi__program_free(pi__program *p)
{
    for (size_t i = 0; i < p->n_dfas; i++) pi__free(p->dfa[i].row);
    pi__free(p->dfa);
    pi__free(p->node);
    pi__free(p->run);
    pi__free(p->rule);
    pi__free(p->trigger);
    memset(p, 0, sizeof *p);
}
