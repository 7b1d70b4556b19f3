/* Compiles expressions to nodes (see program.h).
 *
 * Nodes are created from the end of a text to its start. Each expression gets the node to continue at, so a node's
 * successor has a lower number, except in loops. Texts among the alternatives of a choice become a trie. */
#include "grammar/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum {
    FEW_COPIES = 4, /* a small body is copied up to this often instead of using a counted loop */
    ATOM_RULE = 1 << 30, ATOM_EXPR = 1 << 29, /* atoms: a byte, a rule with this bit, or an index in expr with this */
};

typedef struct maker {
    pi__program *p;
    pi__builder *b;
    const pi__expr **expr; /* [n_expr] expressions of atoms */
    size_t n_expr, cap_expr;
} maker;

static uint32_t make(maker *m, const pi__expr *x, uint32_t next);

static uint32_t add_node(maker *m, int kind, uint32_t a, uint32_t next)
{
    pi__program *p = m->p;
    if (!pi__builder_step(m->b, 1)) return 0;
    if (p->n_nodes >= PI__MAX_NODES)
        pi__builder_fail(m->b, PI_EINVAL, "the grammar is too large: it has more than %d parts: make it smaller",
                         PI__MAX_NODES);
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

/* Adds nodes that read p[0..n), then continue at next. */
static uint32_t make_bytes(maker *m, const char *p, size_t n, uint32_t next)
{
    pi__program *g = m->p;
    if (!m->b->code && !pi__grow(&g->text, &g->cap_text, g->n_text + n, 1)) m->b->code = pi__fail_mem(m->b->err,
        "the grammar");
    while (n && pi__builder_step(m->b, n / 64)) { /* from the last part to the first */
        const size_t most = PI__MAX_SUB - 1, part = n % most ? n % most : most;
        const uint32_t at = (uint32_t) g->n_text;
        memcpy(g->text + at, p + n - part, part);
        g->n_text += part;
        next = add_node(m, PI__G_TEXT, at, next);
        if (!m->b->code) g->node[next].n = (uint16_t) part;
        n -= part;
    }
    return next;
}

/* ---------------------------------------------------------------------------------------------------------- choices
 *
 * Alternatives that are texts, rules or sequences of both become a tree that shares common prefixes. An alternative is
 * a sequence of atoms: bytes, rules, and other expressions, which never compare equal. The sorted sequences are
 * handled from the last to the first. PLACES are positions where branches join the previous sequence:
 *
 *     b l u e      place 0 -> "b" -> place 1 -> "lue"
 *     b o x                                  -> "ox"
 */
typedef struct seq { /* an alternative */
    const uint32_t *v; /* [n] atoms */
    size_t n;
} seq;

typedef struct place { /* the node after the first `at` atoms of the open sequence */
    size_t at;
    uint32_t node;
} place;

static int by_atoms(const void *x, const void *y)
{
    const seq *a = x, *b = y;
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (a->v[i] != b->v[i]) return a->v[i] < b->v[i] ? -1 : 1;
    return a->n < b->n ? -1 : a->n > b->n;
}

typedef struct atoms { uint32_t *v; size_t n, cap; } atoms;

static void add_atom(maker *m, atoms *a, uint32_t x)
{
    if (m->b->code) return;
    if (pi__grow(&a->v, &a->cap, a->n + 1, sizeof *a->v)) a->v[a->n++] = x;
    else m->b->code = pi__fail_mem(m->b->err, "the grammar");
}

/* Appends the atoms of x. Recurses as deep as the expression is nested. */
static void flatten(maker *m, atoms *a, const pi__expr *x)
{
    if (!pi__builder_step(m->b, 1)) return;
    if (x->kind == PI__X_BYTES) {
        for (size_t i = 0; i < x->bytes.n; i++) add_atom(m, a, (unsigned char) x->bytes.p[i]);
    } else if (x->kind == PI__X_CAT) {
        for (size_t i = 0; i < x->list.n; i++) flatten(m, a, x->list.v[i]);
    } else if (x->kind == PI__X_RULE) {
        add_atom(m, a, ATOM_RULE | x->rule);
    } else if (pi__grow(&m->expr, &m->cap_expr, m->n_expr + 1, sizeof *m->expr)) {
        add_atom(m, a, ATOM_EXPR | (uint32_t) m->n_expr);
        m->expr[m->n_expr++] = x;
    } else if (!m->b->code) {
        m->b->code = pi__fail_mem(m->b->err, "the grammar");
    }
}

/* Adds nodes that read atoms v[from..to), then continue at next. */
static uint32_t make_atoms(maker *m, const uint32_t *v, size_t from, size_t to, uint32_t next)
{
    while (to > from && !m->b->code) {
        const uint32_t x = v[to - 1];
        char text[256];
        size_t n = 0;
        if (x & ATOM_EXPR) next = make(m, m->expr[x & (ATOM_EXPR - 1)], next);
        else if (x & ATOM_RULE) next = add_node(m, PI__G_CALL, x & (ATOM_RULE - 1), next);
        else {
            while (n < sizeof text && to > from + n && v[to - n - 1] < 256) n++;
            for (size_t i = 0; i < n; i++) text[i] = (char) v[to - n + i];
            next = make_bytes(m, text, n, next);
        }
        to -= n ? n : 1;
    }
    return next;
}

/* Closes the places after atom `keep` of s and leaves one at `keep`. Returns the number of places left. */
static size_t fold(maker *m, const seq *s, place *p, size_t n, size_t keep)
{
    while (n && p[n - 1].at > keep && !m->b->code) {
        const size_t to = n > 1 && p[n - 2].at > keep ? p[n - 2].at : keep;
        const uint32_t one = make_atoms(m, s->v, to, p[n - 1].at, p[n - 1].node);
        n--;
        if (n && p[n - 1].at == to) p[n - 1].node = add_node(m, PI__G_SPLIT, one, p[n - 1].node);
        else p[n++] = (place) {to, one};
    }
    return n;
}

/* Builds the tree of n sorted sequences (n > 0). places: [longest + 2]. Returns its first node. */
static uint32_t make_tree(maker *m, const seq *s, size_t n, place *places, uint32_t next)
{
    size_t open = 0;
    for (size_t i = n; i-- > 0 && !m->b->code;) {
        const seq *now = &s[i], *last = i + 1 < n ? now + 1 : NULL;
        size_t same = 0;
        while (last && same < now->n && same < last->n && now->v[same] == last->v[same]) same++;
        if (last && same == now->n && same == last->n) continue; /* duplicate */
        if (last) open = fold(m, last, places, open, same);
        if (open && places[open - 1].at == now->n) places[open - 1].node = add_node(m, PI__G_SPLIT, next,
            places[open - 1].node);
        else places[open++] = (place) {now->n, next};
    }
    fold(m, &s[0], places, open, 0);
    return places[0].node;
}

/* Texts and sequences become a tree; other alternatives become a chain of SPLIT nodes. */
static bool is_sequence(const pi__expr *x) { return x->kind == PI__X_BYTES || x->kind == PI__X_CAT; }

static uint32_t make_sequences(maker *m, const pi__expr *x, size_t n, uint32_t next)
{
    atoms a = {0};
    size_t k = 0, longest = 0;
    uint32_t all = 0;
    size_t *start = pi__calloc(n + 1, sizeof *start);
    seq *s = pi__calloc(n, sizeof *s);
    place *places = NULL;
    if (!start || !s) goto out;
    for (size_t i = 0; i < x->list.n && !m->b->code; i++) {
        if (!is_sequence(x->list.v[i])) continue;
        flatten(m, &a, x->list.v[i]);
        start[++k] = a.n;
        if (a.n - start[k - 1] > longest) longest = a.n - start[k - 1];
    }
    places = pi__calloc(longest + 2, sizeof *places);
    if (!places || m->b->code) goto out;
    for (size_t i = 0; i < n; i++) /* a.v is NULL if all sequences are empty */
        s[i] = (seq) {start[i + 1] > start[i] ? a.v + start[i] : NULL, start[i + 1] - start[i]};
    qsort(s, n, sizeof *s, by_atoms);
    all = make_tree(m, s, n, places, next);
out:
    if (!m->b->code && (!start || !s || !places)) m->b->code = pi__fail_mem(m->b->err, "the grammar");
    pi__free(a.v);
    pi__free(start);
    pi__free(s);
    pi__free(places);
    return all;
}

static uint32_t make_alt(maker *m, const pi__expr *x, uint32_t next)
{
    size_t n = 0;
    uint32_t all = UINT32_MAX;
    for (size_t i = 0; i < x->list.n; i++) n += is_sequence(x->list.v[i]);
    if (n) all = make_sequences(m, x, n, next);
    for (size_t i = x->list.n; i-- > 0 && !m->b->code;) {
        if (is_sequence(x->list.v[i]) || x->list.v[i]->kind == PI__X_NEVER) continue;
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

/* Adds a repetition that is counted on the stack. */
static uint32_t make_loop(maker *m, const pi__expr *x, uint32_t next)
{
    pi__program *p = m->p;
    const uint32_t body = make(m, x->rep.body, 0), id = (uint32_t) p->n_loops;
    if (m->b->code) return 0;
    if (!pi__grow(&p->loop, &p->cap_loops, p->n_loops + 1, sizeof *p->loop)) {
        m->b->code = pi__fail_mem(m->b->err, "the grammar");
        return 0;
    }
    p->loop[p->n_loops++] = (pi__loop) {.body = body, .min = x->rep.min, .max = x->rep.max};
    return add_node(m, PI__G_LOOP, id, next);
}

static uint32_t make_rep(maker *m, const pi__expr *x, uint32_t next)
{
    const uint32_t min = x->rep.min, max = x->rep.max;
    const pi__expr *body = x->rep.body;
    if (!max) return next;
    if ((max == PI__REP_INF ? min : max - 1) > (is_small(body) ? FEW_COPIES : 0)) return make_loop(m, x, next);
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

/* Adds nodes that read x, then continue at next. Returns the first one. */
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
    const uint32_t none = add_node(m, PI__G_SPLIT, 0, 0); /* NEVER: no transition leaves the node, so it is not live */
    if (!m->b->code) m->p->node[none].a = m->p->node[none].b = none;
    return none;
}

/* ------------------------------------------------------------------------------------------------- classes of bytes */

enum { PAIRS = 1024 };

/* Splits the byte classes so that f is constant on each. */
static void refine(pi__program *p, const uint16_t *f)
{
    uint8_t now[256];
    uint32_t n = 0, key_of[256];
    uint16_t slot[PAIRS] = {0}; /* 1 + new class of a (class, value) pair, by hash */
    for (int c = 0; c < 256; c++) {
        const uint32_t key = (uint32_t) p->cls[c] << 16 | f[c];
        uint32_t h = (key * 0x9E3779B1u) >> 22;
        while (slot[h] && key_of[slot[h] - 1] != key) h = (h + 1) % PAIRS;
        if (!slot[h]) {
            key_of[n++] = key;
            slot[h] = (uint16_t) n;
        }
        now[c] = (uint8_t) (slot[h] - 1);
    }
    memcpy(p->cls, now, sizeof now);
    p->n_cls = n;
}

static void class_bytes(pi__program *p, pi__builder *b)
{
    uint16_t single[256] = {0};
    for (size_t i = 0; i < p->n_text; i++) single[p->text[i]] = (uint16_t) (1 + p->text[i]);
    refine(p, single);
    for (size_t d = 0; d < p->n_dfas; d++)
        for (size_t r = 0; r < p->dfa[d].n_rows && p->n_cls < 256 && pi__builder_step(b, 16); r++) refine(p,
            p->dfa[d].row[r]);
}

int pi__program_make(pi__program *p, pi__builder *b, pi__expr *root)
{
    maker m = {.p = p, .b = b};
    memset(p, 0, sizeof *p);
    add_node(&m, PI__G_END, 0, 0);
    while (!b->code && p->n_rules < b->n_rules) add_rule(&m);
    for (size_t i = 0; i < b->n_rules && !b->code; i++) {
        const uint32_t start = make(&m, b->rule[i] ? b->rule[i] : pi__x_never(b), 0);
        if (!b->code) p->rule[i] = start;
    }
    p->root = make(&m, root, 0);
    if (!b->code) pi__program_check(p, b);
    if (!b->code) class_bytes(p, b);
    pi__free(m.expr);
    for (size_t i = 0; i < p->n_dfas; i++) p->dfa[i].cls = (pi__class) {0};
    return b->code;
}

size_t pi__program_bytes(const pi__program *p)
{
    size_t n = p->cap_nodes * sizeof *p->node + p->n_nodes * sizeof *p->run + p->cap_rules * sizeof *p->rule +
               p->cap_loops * sizeof *p->loop + p->cap_text;
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
    pi__free(p->loop);
    pi__free(p->text);
    pi__free(p->trigger);
    memset(p, 0, sizeof *p);
}
