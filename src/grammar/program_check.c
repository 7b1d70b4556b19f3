/* Analysis of a program's nodes: from which nodes a text can be completed, which rules call themselves before anything
 * is read, and how long runs of one class are (see program.h). Linear in the number of nodes; no recursion. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "grammar/program.h"

/* Reverse edges: the nodes to re-check when a property of a node becomes known. */
typedef struct users {
    uint32_t *first; /* [n_nodes] first edge, or 0 */
    uint32_t *next;  /* [2 n_nodes + 1] next edge of the same node, or 0; edge e comes from node (e - 1) / 2 */
} users;

static void add_user(users *u, uint32_t of, uint32_t edge)
{
    u->next[edge] = u->first[of];
    u->first[of] = edge;
}

static bool find_users(const pi__program *p, users *u)
{
    u->first = pi__calloc(p->n_nodes, sizeof *u->first);
    u->next = pi__calloc(2 * p->n_nodes + 3, sizeof *u->next);
    if (!u->first || !u->next) return false;
    for (uint32_t i = 1; i < p->n_nodes; i++) {
        const pi__gnode *n = &p->node[i];
        add_user(u, n->b, 2 * i + 1);
        if (n->kind == PI__G_SPLIT) add_user(u, n->a, 2 * i + 2);
        if (n->kind == PI__G_CALL) add_user(u, p->rule[n->a], 2 * i + 2);
        if (n->kind == PI__G_LOOP) add_user(u, p->loop[n->a].body, 2 * i + 2);
    }
    return true;
}

/* True if node i is known to have the property:
 *   END    always;
 *   SPLIT  if one side has it;
 *   CALL   if rule and rest have it;
 *   LOOP   if the rest has it, and the body has it or may be skipped;
 *   FREE   if `reads`;
 *   others (nodes that read) if `reads` and the rest has it.
 * reads = true computes "live", reads = false computes "may be empty". */
static bool holds(const pi__program *p, const uint8_t *has, uint32_t i, bool reads)
{
    const pi__gnode *n = &p->node[i];
    switch (n->kind) {
    case PI__G_END: return true;
    case PI__G_SPLIT: return has[n->a] || has[n->b];
    case PI__G_CALL: return has[p->rule[n->a]] && has[n->b];
    case PI__G_LOOP: return has[n->b] && (!p->loop[n->a].min || has[p->loop[n->a].body]);
    case PI__G_FREE: return reads;
    default: return reads && has[n->b];
    }
}

/* Marks all nodes that have the property. queue: [n_nodes] scratch. */
static void spread(const pi__program *p, const users *u, uint8_t *has, uint32_t *queue, bool reads)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        if (p->node[i].kind != PI__G_END && !(p->node[i].kind == PI__G_FREE && reads)) continue;
        has[i] = true;
        queue[n++] = i;
    }
    for (size_t k = 0; k < n; k++) {
        for (uint32_t e = u->first[queue[k]]; e; e = u->next[e]) {
            const uint32_t i = (e - 1) / 2;
            if (has[i] || !holds(p, has, i, reads)) continue;
            has[i] = true;
            queue[n++] = i;
        }
    }
}

/* --------------------------------------------------------------------------------------------------- left recursion */

/* Gets successor k (0 or 1) of node i that is reached without reading anything. False if it does not exist. */
static bool way(const pi__program *p, const uint8_t *empty, uint32_t i, int k, uint32_t *to)
{
    const pi__gnode *n = &p->node[i];
    if (!n->live) return false;
    if (n->kind == PI__G_SPLIT) return *to = k ? n->b : n->a, true;
    if (n->kind == PI__G_LOOP) return *to = k ? n->b : p->loop[n->a].body, !k || !p->loop[n->a].min;
    if (n->kind != PI__G_CALL) return false;
    *to = k ? n->b : p->rule[n->a];
    return !k || empty[p->rule[n->a]];
}

typedef struct search { /* Tarjan's strongly connected components, without recursion */
    uint32_t *index, *low, *stack, *path; /* [n_nodes]; index 0 = not visited */
    uint8_t *k, *on;                      /* [n_nodes] next successor to visit; node is on the stack */
    uint32_t n_seen, n_stack, n_path;
} search;

static bool search_init(search *s, size_t n)
{
    s->index = pi__calloc(n, sizeof *s->index);
    s->low = pi__calloc(n, sizeof *s->low);
    s->stack = pi__calloc(n, sizeof *s->stack);
    s->path = pi__calloc(n, sizeof *s->path);
    s->k = pi__calloc(n, sizeof *s->k);
    s->on = pi__calloc(n, sizeof *s->on);
    return s->index && s->low && s->stack && s->path && s->k && s->on;
}

static void search_free(search *s)
{
    pi__free(s->index);
    pi__free(s->low);
    pi__free(s->stack);
    pi__free(s->path);
    pi__free(s->k);
    pi__free(s->on);
}

static void enter(search *s, uint32_t i)
{
    s->index[i] = s->low[i] = ++s->n_seen;
    s->stack[s->n_stack++] = i;
    s->path[s->n_path++] = i;
    s->on[i] = true;
}

/* Call when all successors of i are done. Passes i's `low` to the node before it on the path. If i is the root of a
 * component, pops the component's nodes and sets their `low` to i's index. */
static void leave(search *s, uint32_t i)
{
    s->n_path--;
    if (s->n_path) {
        uint32_t *low = &s->low[s->path[s->n_path - 1]];
        if (s->low[i] < *low) *low = s->low[i];
    }
    if (s->low[i] != s->index[i]) return;
    for (uint32_t k;;) {
        k = s->stack[--s->n_stack];
        s->on[k] = false;
        s->low[k] = s->index[i];
        if (k == i) return;
    }
}

static void find_components(const pi__program *p, const uint8_t *empty, search *s)
{
    for (uint32_t root = 0; root < p->n_nodes; root++) {
        if (s->index[root]) continue;
        enter(s, root);
        while (s->n_path) {
            const uint32_t i = s->path[s->n_path - 1];
            uint32_t to;
            if (s->k[i] == 2) leave(s, i);
            else if (!way(p, empty, i, s->k[i]++, &to)) continue;
            else if (!s->index[to]) enter(s, to);
            else if (s->on[to] && s->index[to] < s->low[i]) s->low[i] = s->index[to];
        }
    }
}

/* Rejects calls that push and lead back to themselves before anything is read: they would push forever. */
static int refuse_left_recursion(const pi__program *p, pi__builder *b, const uint8_t *empty)
{
    search s = {0};
    if (!search_init(&s, p->n_nodes)) b->code = pi__fail_mem(b->err, "the grammar");
    if (!b->code) find_components(p, empty, &s);
    for (uint32_t i = 0; i < p->n_nodes && !b->code; i++) {
        const pi__gnode *n = &p->node[i];
        const bool loop = n->kind == PI__G_LOOP, call = n->kind == PI__G_CALL && n->b;
        if (!n->live || !(loop || call) || s.low[i] != s.low[loop ? p->loop[n->a].body : p->rule[n->a]]) continue;
        const pi__str name = call && n->a < b->n_rules ? b->name[n->a] : (pi__str) {0};
        pi__builder_fail(b, PI_EINVAL,
                         "grammar: %s%.*s begins with itself (left recursion): write it as a repetition, as in "
                         "list ::= item (\",\" item)*", name.n ? "rule " : "a rule", (int) (name.n < 60 ? name.n : 60),
                             name.n ? name.p : "");
    }
    search_free(&s);
    return b->code;
}

/* ------------------------------------------------------------------------------------------------------------- runs */

/* Returns how many characters of node i's class may follow in a row from i on. Later nodes must be done already. */
static uint32_t run_of(const pi__program *p, uint32_t i)
{
    uint32_t todo[32], n = 0, best = 0;
    todo[n++] = p->node[i].b;
    for (int left = 64; n && left; left--) {
        const uint32_t k = todo[--n];
        const pi__gnode *x = &p->node[k];
        if (x->kind == PI__G_SPLIT && x->live && n + 2 <= 32) todo[n++] = x->a, todo[n++] = x->b;
        if (x->kind != PI__G_DFA || !x->live || x->a != p->node[i].a) continue;
        if (k == i) return PI__RUN_INF;
        if (k < i && p->run[k] > best) best = p->run[k];
    }
    return best == PI__RUN_INF ? best : best + 1;
}

/* Sets nullable, min and run of all loops. A body that may be empty gets min 0. run: of the body's alternatives that
 * are a single DFA node, the one with the most kinds. */
static void look_at_loops(pi__program *p, const uint8_t *empty)
{
    for (size_t i = 0; i < p->n_loops; i++) {
        pi__loop *l = &p->loop[i];
        uint32_t todo[16], n = 0, best = 0;
        l->nullable = empty[l->body];
        if (l->nullable) l->min = 0;
        todo[n++] = l->body;
        for (int left = 32; n && left; left--) {
            const uint32_t k = todo[--n];
            const pi__gnode *x = &p->node[k];
            if (!x->live) continue;
            if (x->kind == PI__G_SPLIT && n + 2 <= 16) todo[n++] = x->a, todo[n++] = x->b;
            if (x->kind == PI__G_CALL && !x->b) todo[n++] = p->rule[x->a];
            if (x->kind != PI__G_DFA || x->b) continue;
            const int kinds = __builtin_popcountll(p->dfa[x->a].kinds);
            if (!best || kinds > __builtin_popcountll(p->dfa[p->node[best].a].kinds)) best = k;
        }
        l->run = best;
    }
}

int pi__program_check(pi__program *p, pi__builder *b)
{
    users u = {0};
    uint32_t *queue = pi__calloc(p->n_nodes, sizeof *queue);
    uint8_t *live = pi__calloc(p->n_nodes, 1), *empty = pi__calloc(p->n_nodes, 1);
    p->run = pi__calloc(p->n_nodes, sizeof *p->run);
    if (!queue || !live || !empty || !p->run || !find_users(p, &u)) {
        b->code = pi__fail_mem(b->err, "the grammar");
        goto out;
    }
    spread(p, &u, live, queue, true);
    for (size_t i = 0; i < p->n_nodes; i++) p->node[i].live = live[i];
    if (!live[p->root]) pi__builder_fail(b, PI_EINVAL,
                                         "the grammar allows no text: every alternative is endless or forbidden: add "
                                         "one that ends");
    spread(p, &u, empty, queue, false);
    look_at_loops(p, empty);
    if (!b->code && pi__builder_step(b, 4 * p->n_nodes)) refuse_left_recursion(p, b, empty);
    for (uint32_t i = 0; i < p->n_nodes && !b->code; i++)
        if (p->node[i].kind == PI__G_DFA && p->node[i].live) p->run[i] = run_of(p, i);
out:
    pi__free(queue);
    pi__free(live);
    pi__free(empty);
    pi__free(u.first);
    pi__free(u.next);
    return b->code;
}
