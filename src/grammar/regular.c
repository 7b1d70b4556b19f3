/* Regular languages of characters as deterministic automata (see regular.h).
 *
 * An expression becomes a nondeterministic automaton (Thompson), which becomes a deterministic one by subset
 * construction. The alphabet is divided into intervals. Intervals that all classes of the expression treat alike share
 * a symbol. A product runs several automata in parallel, so each of its states knows which languages contain its
 * texts. An automaton becomes an expression with one right-linear rule per state. The machine needs no stack for
 * these:
 *
 *     state with a loop      ::= loop* ( a next1 | b next2 | "" )
 *
 * All memory comes from the builder's zone. An automaton with more than PI__REG_STATES states is rejected. */
#include "grammar/regular.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_NODES = 1 << 16, MAX_STEPS = 1 << 23, NONE = UINT32_MAX };

static void *take(pi__builder *b, size_t n, size_t size) { return pi__builder_take(b, n * size); }

/* Grows an array of the zone to at least n elements, to twice n if it is too small. wide: *cap is a size_t, else a
 * uint32_t. False: b->code is set. */
static bool room(pi__builder *b, void *array, void *cap, size_t n, size_t size, bool wide)
{
    const size_t have = wide ? *(size_t *) cap : *(uint32_t *) cap;
    if (b->code) return false;
    if (n <= have) return true;
    const size_t more = n < 64 ? 64 : 2 * n;
    void *p = take(b, more, size), *old;
    if (!p) return false;
    memcpy(&old, array, sizeof old);
    if (have) memcpy(p, old, have * size);
    memcpy(array, &p, sizeof p);
    if (wide) *(size_t *) cap = more;
    else *(uint32_t *) cap = (uint32_t) more;
    return true;
}

/* Hash table of states: slots hold 1 + state; at most half of them are used. */
typedef struct table {
    uint32_t *slot; /* [n] n is a power of two */
    uint64_t *hash; /* [cap] hash of each state */
    size_t n;
    uint32_t cap;
} table;

/* Grows the table so that it can hold states + 1 states. False: b->code is set. */
static bool table_room(pi__builder *b, table *t, uint32_t states)
{
    if (!room(b, &t->hash, &t->cap, (size_t) states + 1, sizeof *t->hash, false)) return false;
    if (t->n >= 2 * ((size_t) states + 1)) return true;
    const size_t n = t->n ? 4 * t->n : 64;
    if (!(t->slot = take(b, n, sizeof *t->slot))) return false;
    t->n = n;
    for (uint32_t s = 0; s < states; s++) {
        size_t h = t->hash[s] & (n - 1);
        while (t->slot[h]) h = (h + 1) & (n - 1);
        t->slot[h] = s + 1;
    }
    return true;
}

static void too_large(pi__builder *b, const char *what)
{
    pi__builder_fail(b, PI_EINVAL, "%s: too many states in combination with the other limits of the text: shorten the "
                                   "repetitions, or remove a limit", what);
}

/* ------------------------------------------------------------------------------------- nondeterministic automata */

typedef struct node { /* node of the nondeterministic automaton */
    uint32_t cls;     /* index of the class that it reads; NONE = reads nothing */
    uint32_t a, b;    /* successors; NONE = no successor */
} node;

typedef struct builder {
    pi__builder *b;
    const char *what;
    node *v;          /* [n] node 0 is the accepting one */
    uint32_t n, cap;
    pi__class *cls;   /* [n_cls] */
    uint32_t n_cls, cap_cls;
    pi__reg *r;
    uint8_t *has;     /* [n_cls * n_symbols] 1 if the class contains the symbol */
    uint32_t *set;    /* [n_set] sorted nodes of all states, concatenated */
    size_t n_set, cap_set;
    size_t *first;    /* [n_states + 1] index in `set` of a state's first node */
    uint32_t cap_first, cap_mark;
    table found;
    uint32_t *seen;   /* [n] value of `when` at the last visit of a node */
    uint32_t when;
    uint32_t *stack;  /* [2 n] scratch of enter */
    uint64_t steps;
} builder;

static uint32_t add_node(builder *m, uint32_t cls, uint32_t a, uint32_t b)
{
    if (m->n >= MAX_NODES) too_large(m->b, m->what);
    if (!room(m->b, &m->v, &m->cap, (size_t) m->n + 1, sizeof *m->v, false)) return 0;
    m->v[m->n] = (node) {cls, a, b};
    return m->n++;
}

static uint32_t class_index(builder *m, pi__class c)
{
    for (uint32_t i = m->n_cls; i-- > 0 && m->n_cls - i < 64;)
        if (m->cls[i].n == c.n && !memcmp(m->cls[i].r, c.r, c.n * sizeof *c.r)) return i;
    if (!room(m->b, &m->cls, &m->cap_cls, (size_t) m->n_cls + 1, sizeof *m->cls, false)) return 0;
    m->cls[m->n_cls] = c;
    return m->n_cls++;
}

static uint32_t make_bytes(builder *m, pi__str s, uint32_t next)
{
    uint32_t *start = take(m->b, s.n + 1, sizeof *start), n = 0;
    for (size_t i = 0; start && i < s.n;) {
        uint32_t cp;
        const size_t len = pi__utf8_char(s.p + i, s.n - i, &cp);
        if (!len) return pi__builder_fail(m->b, PI_EINVAL, "%s: this is not UTF-8", m->what), 0;
        start[n++] = cp;
        i += len;
    }
    while (start && n-- > 0 && !m->b->code) {
        const pi__range one = {start[n], start[n]};
        next = add_node(m, class_index(m, pi__class_of(m->b, &one, 1, false)), next, NONE);
    }
    return next;
}

static uint32_t make(builder *m, const pi__expr *x, uint32_t next);

static uint32_t make_rep(builder *m, const pi__expr *x, uint32_t next)
{
    uint32_t at = next;
    if (x->rep.max == PI__REP_INF) {
        at = add_node(m, NONE, NONE, next);
        const uint32_t again = make(m, x->rep.body, at);
        if (!m->b->code) m->v[at].a = again;
    }
    for (uint32_t i = x->rep.min; x->rep.max != PI__REP_INF && i < x->rep.max && !m->b->code; i++)
        at = add_node(m, NONE, make(m, x->rep.body, at), next);
    for (uint32_t i = 0; i < x->rep.min && !m->b->code; i++) at = make(m, x->rep.body, at);
    return at;
}

static uint32_t make(builder *m, const pi__expr *x, uint32_t next)
{
    uint32_t all = NONE;
    if (m->b->code) return 0;
    switch (x->kind) {
    case PI__X_BYTES: return make_bytes(m, x->bytes, next);
    case PI__X_CLASS: return add_node(m, class_index(m, x->cls), next, NONE);
    case PI__X_CAT:
        for (size_t i = x->list.n; i-- > 0;) next = make(m, x->list.v[i], next);
        return next;
    case PI__X_ALT:
        for (size_t i = x->list.n; i-- > 0;) {
            const uint32_t one = make(m, x->list.v[i], next);
            all = all == NONE ? one : add_node(m, NONE, one, all);
        }
        return all == NONE ? add_node(m, NONE, NONE, NONE) : all;
    case PI__X_REP: return make_rep(m, x, next);
    default: return add_node(m, NONE, NONE, NONE);
    }
}

/* ------------------------------------------------------------------------------------------------------ alphabets */

static int by_value(const void *x, const void *y)
{
    const uint32_t a = *(const uint32_t *) x, b = *(const uint32_t *) y;
    return a < b ? -1 : a > b;
}

static size_t unique(uint32_t *v, size_t n)
{
    size_t k = 0;
    qsort(v, n, sizeof *v, by_value);
    for (size_t i = 0; i < n; i++)
        if (!k || v[i] != v[k - 1]) v[k++] = v[i];
    return k;
}

/* Splits symbols so that `property`, a value per interval ([n_cuts], below n_values), is constant on each. */
static void refine(pi__builder *b, pi__reg *r, const uint32_t *property, uint32_t n_values)
{
    const size_t n = (size_t) r->n_symbols * n_values;
    uint32_t *now = n <= 1 << 22 ? take(b, n, sizeof *now) : NULL, count = 0;
    if (!now) {
        if (!b->code) pi__builder_fail(b, PI_EINVAL, "a pattern has too many classes of characters: shorten it");
        return;
    }
    for (size_t i = 0; i < r->n_cuts; i++) {
        uint32_t *k = &now[(size_t) r->symbol[i] * n_values + property[i]];
        if (!*k) *k = ++count;
        r->symbol[i] = *k - 1;
    }
    r->n_symbols = count;
}

static uint32_t interval_of(const pi__reg *r, uint32_t cp)
{
    size_t lo = 0, hi = r->n_cuts;
    while (hi - lo > 1) {
        const size_t mid = (lo + hi) / 2;
        if (r->cut[mid] <= cp) lo = mid;
        else hi = mid;
    }
    return (uint32_t) lo;
}

static void divide(builder *m)
{
    pi__reg *r = m->r;
    size_t n = 1;
    for (uint32_t i = 0; i < m->n_cls; i++) n += 2 * m->cls[i].n;
    r->cut = take(m->b, n, sizeof *r->cut);
    if (!r->cut) return;
    n = 1;
    for (uint32_t i = 0; i < m->n_cls; i++)
        for (size_t k = 0; k < m->cls[i].n; k++) r->cut[n++] = m->cls[i].r[k].lo, r->cut[n++] = m->cls[i].r[k].hi + 1;
    r->n_cuts = unique(r->cut, n);
    r->symbol = take(m->b, r->n_cuts, sizeof *r->symbol);
    r->n_symbols = 1;
    uint32_t *in = take(m->b, r->n_cuts, sizeof *in);
    m->steps += (uint64_t) r->n_cuts * m->n_cls;
    if (m->steps > MAX_STEPS) too_large(m->b, m->what);
    for (uint32_t i = 0; i < m->n_cls && !m->b->code; i++) {
        memset(in, 0, r->n_cuts * sizeof *in);
        for (size_t k = 0; k < m->cls[i].n; k++)
            for (size_t c = interval_of(r, m->cls[i].r[k].lo); c < r->n_cuts && r->cut[c] <= m->cls[i].r[k].hi; c++)
                in[c] = 1;
        refine(m->b, r, in, 2);
    }
    m->has = m->b->code ? NULL : take(m->b, (size_t) m->n_cls * r->n_symbols, 1);
    for (uint32_t i = 0; i < m->n_cls && m->has; i++)
        for (size_t k = 0; k < m->cls[i].n; k++)
            for (size_t c = interval_of(r, m->cls[i].r[k].lo); c < r->n_cuts && r->cut[c] <= m->cls[i].r[k].hi; c++)
                m->has[(size_t) i * r->n_symbols + r->symbol[c]] = 1;
}

/* ---------------------------------------------------------------------------------------------------------- subsets */

/* Adds node k, and the nodes reachable from it without reading, to the set under construction. */
static void enter(builder *m, uint32_t k)
{
    uint32_t n = 0;
    m->stack[n++] = k;
    while (n && !m->b->code) {
        const uint32_t i = m->stack[--n];
        if (i == NONE || m->seen[i] == m->when) continue;
        m->seen[i] = m->when;
        m->steps++;
        if (!i || m->v[i].cls != NONE) {
            if (!room(m->b, &m->set, &m->cap_set, m->n_set + 1, sizeof *m->set, true)) return;
            m->set[m->n_set++] = i;
            continue;
        }
        m->stack[n++] = m->v[i].b;
        m->stack[n++] = m->v[i].a;
    }
}

/* Returns the state of the nodes set[from..n_set), existing or new; DEAD if the set is empty. */
static uint32_t state_of(builder *m, size_t from)
{
    pi__reg *r = m->r;
    const size_t n = m->n_set - from;
    uint64_t h = 1469598103934665603u;
    if (m->b->code || !n) return PI__REG_DEAD;
    qsort(m->set + from, n, sizeof *m->set, by_value);
    for (size_t i = from; i < m->n_set; i++) h = (h ^ m->set[i]) * 1099511628211u;
    h ^= h >> 29;
    if (!table_room(m->b, &m->found, r->n_states)) return PI__REG_DEAD;
    m->found.hash[r->n_states] = h;
    for (h &= m->found.n - 1; m->found.slot[h]; h = (h + 1) & (m->found.n - 1)) {
        const uint32_t s = m->found.slot[h] - 1;
        if (m->first[s + 1] - m->first[s] != n || memcmp(m->set + m->first[s], m->set + from, n * sizeof *m->set))
            continue;
        m->n_set = from;
        return s;
    }
    if (r->n_states == PI__REG_STATES) return too_large(m->b, m->what), PI__REG_DEAD;
    if (!room(m->b, &r->mark, &m->cap_mark, r->n_states + (size_t) 1, sizeof *r->mark, false) ||
        !room(m->b, &m->first, &m->cap_first, r->n_states + (size_t) 2, sizeof *m->first, false)) return PI__REG_DEAD;
    m->found.slot[h] = r->n_states + 1;
    r->mark[r->n_states] = m->set[from] == 0; /* the set is sorted: the accepting node 0 comes first */
    m->first[r->n_states + 1] = m->n_set;
    return r->n_states++;
}

static void subsets(builder *m, uint32_t start)
{
    pi__reg *r = m->r;
    m->when = 1;
    enter(m, start);
    if (state_of(m, 0) == PI__REG_DEAD) return;
    uint32_t cap = 0;
    for (uint32_t s = 0; s < r->n_states && !m->b->code; s++) {
        if (!room(m->b, &r->to, &cap, (size_t) (s + 1) * r->n_symbols, sizeof *r->to, false)) return;
        for (uint32_t c = 0; c < r->n_symbols && !m->b->code; c++) {
            const size_t from = m->n_set;
            m->when++;
            m->steps += m->first[s + 1] - m->first[s] + 1;
            if (!pi__builder_step(m->b, m->first[s + 1] - m->first[s] + 1)) return;
            for (size_t i = m->first[s]; i < m->first[s + 1]; i++) {
                const node *x = &m->v[m->set[i]];
                if (x->cls != NONE && m->has[(size_t) x->cls * r->n_symbols + c]) enter(m, x->a);
            }
            r->to[(size_t) s * r->n_symbols + c] = state_of(m, from);
            if (m->steps > MAX_STEPS) too_large(m->b, m->what);
        }
    }
}

pi__reg *pi__reg_of(pi__builder *b, const pi__expr *x, const char *what)
{
    builder m = {.b = b, .what = what, .r = take(b, 1, sizeof *m.r)};
    if (!m.r) return NULL;
    add_node(&m, NONE, NONE, NONE);
    const uint32_t start = make(&m, x, 0);
    if (b->code) return NULL;
    divide(&m);
    m.seen = take(b, m.n, sizeof *m.seen);
    m.stack = take(b, 2 * (size_t) m.n + 2, sizeof *m.stack);
    room(b, &m.first, &m.cap_first, 2, sizeof *m.first, false);
    if (b->code) return NULL;
    subsets(&m, start);
    return b->code ? NULL : m.r;
}

/* --------------------------------------------------------------------------------------------------------- products */

typedef struct product {
    pi__builder *b;
    pi__reg *const *part;
    size_t n;
    uint64_t must;
    uint32_t min, max, count; /* characters are counted up to this number */
    pi__reg *r;
    uint32_t *state;  /* [n_states][n + 1] the parts' states, then the character count */
    uint32_t cap, cap_mark;
    table found;
    uint32_t *symbol; /* [n_symbols][n] each part's symbol for a symbol of the product */
    const char *what;
} product;

static uint32_t find_state(product *p, const uint32_t *v)
{
    pi__reg *r = p->r;
    const size_t width = p->n + 1;
    uint64_t h = 1469598103934665603u, mark = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (v[i] == PI__REG_DEAD && (p->must >> i & 1)) return PI__REG_DEAD;
        if (v[i] != PI__REG_DEAD && (p->part[i]->mark[v[i]] & 1)) mark |= (uint64_t) 1 << i;
    }
    if (v[p->n] > p->max) return PI__REG_DEAD;
    for (size_t i = 0; i < width; i++) h = (h ^ v[i]) * 1099511628211u;
    h ^= h >> 29;
    if (!table_room(p->b, &p->found, r->n_states)) return PI__REG_DEAD;
    p->found.hash[r->n_states] = h;
    for (h &= p->found.n - 1; p->found.slot[h]; h = (h + 1) & (p->found.n - 1))
        if (!memcmp(p->state + (p->found.slot[h] - 1) * width, v, width * sizeof *v)) return p->found.slot[h] - 1;
    if (r->n_states == PI__REG_STATES) return too_large(p->b, p->what), PI__REG_DEAD;
    if (!room(p->b, &p->state, &p->cap, (r->n_states + (size_t) 1) * width, sizeof *v, false) ||
        !room(p->b, &r->mark, &p->cap_mark, r->n_states + (size_t) 1, sizeof *r->mark, false)) return PI__REG_DEAD;
    memcpy(p->state + r->n_states * width, v, width * sizeof *v);
    if (v[p->n] >= p->min) mark |= (uint64_t) 1 << 63;
    r->mark[r->n_states] = mark;
    p->found.slot[h] = ++r->n_states;
    return r->n_states - 1;
}

/* Builds the common refinement of the parts' alphabets. */
static void join_alphabets(product *p)
{
    pi__reg *r = p->r;
    size_t n = 1;
    for (size_t i = 0; i < p->n; i++) n += p->part[i]->n_cuts;
    r->cut = take(p->b, n, sizeof *r->cut);
    if (!r->cut) return;
    n = 1;
    for (size_t i = 0; i < p->n; i++) {
        memcpy(r->cut + n, p->part[i]->cut, p->part[i]->n_cuts * sizeof *r->cut);
        n += p->part[i]->n_cuts;
    }
    r->n_cuts = unique(r->cut, n);
    r->symbol = take(p->b, r->n_cuts, sizeof *r->symbol);
    uint32_t *of = take(p->b, r->n_cuts, sizeof *of);
    r->n_symbols = 1;
    for (size_t i = 0; i < p->n && !p->b->code; i++) {
        for (size_t c = 0; c < r->n_cuts; c++) of[c] = p->part[i]->symbol[interval_of(p->part[i], r->cut[c])];
        refine(p->b, r, of, p->part[i]->n_symbols);
    }
    p->symbol = p->b->code ? NULL : take(p->b, r->n_symbols * (p->n + 1), sizeof *p->symbol);
    for (size_t c = 0; c < r->n_cuts && p->symbol; c++)
        for (size_t i = 0; i < p->n; i++)
            p->symbol[r->symbol[c] * p->n + i] = p->part[i]->symbol[interval_of(p->part[i], r->cut[c])];
}

pi__reg *pi__reg_product(pi__builder *b, pi__reg *const *part, size_t n, uint64_t must, uint32_t min, uint32_t max,
                         const char *what)
{
    product p = {.b = b, .part = part, .n = n, .must = must, .min = min, .max = max, .what = what};
    uint32_t v[PI__REG_PARTS + 1] = {0}, cap = 0;
    p.count = max == PI__REP_INF ? min : max + 1;
    if (b->code || n >= PI__REG_PARTS) return too_large(b, what), NULL;
    for (size_t i = 0; i < n; i++)
        if (!part[i]->n_states) v[i] = PI__REG_DEAD;
    p.r = take(b, 1, sizeof *p.r);
    if (!p.r) return NULL;
    join_alphabets(&p);
    if (b->code) return NULL;
    find_state(&p, v);
    for (uint32_t s = 0; s < p.r->n_states && !b->code; s++) {
        pi__reg *r = p.r;
        if (!room(b, &r->to, &cap, (size_t) (s + 1) * r->n_symbols, sizeof *r->to, false)) return NULL;
        for (uint32_t c = 0; c < r->n_symbols && pi__builder_step(b, n + 1); c++) {
            const uint32_t *now = p.state + s * (n + 1);
            for (size_t i = 0; i < n; i++)
                v[i] = now[i] == PI__REG_DEAD ? now[i]
                                              : part[i]->to[(size_t) now[i] * part[i]->n_symbols + p.symbol[c * n + i]];
            v[n] = now[n] < p.count ? now[n] + 1 : now[n];
            r->to[(size_t) s * r->n_symbols + c] = find_state(&p, v);
        }
    }
    return b->code ? NULL : p.r;
}

/* ------------------------------------------------------------------------------------------------------ expressions */

/* Returns a flag per state ([n_states]): 1 = a text with (mark & care) == want can be reached from it. NULL: b->code
 * is set. */
static uint8_t *live_states(pi__builder *b, const pi__reg *r, uint64_t care, uint64_t want)
{
    uint32_t *first = take(b, r->n_states + (size_t) 2, sizeof *first), *queue = take(b, r->n_states, sizeof *queue);
    uint32_t *from = take(b, (size_t) r->n_states * r->n_symbols, sizeof *from);
    uint8_t *live = take(b, r->n_states, 1);
    const size_t n = (size_t) r->n_states * r->n_symbols;
    uint32_t n_queue = 0;
    if (b->code) return NULL;
    for (size_t i = 0; i < n; i++)
        if (r->to[i] != PI__REG_DEAD) first[r->to[i] + 2]++;
    for (uint32_t s = 0; s < r->n_states; s++) first[s + 2] += first[s + 1];
    for (size_t i = 0; i < n; i++)
        if (r->to[i] != PI__REG_DEAD) from[first[r->to[i] + 1]++] = (uint32_t) (i / r->n_symbols);
    for (uint32_t s = 0; s < r->n_states; s++)
        if ((r->mark[s] & care) == want) live[s] = 1, queue[n_queue++] = s;
    for (uint32_t k = 0; k < n_queue; k++)
        for (uint32_t e = first[queue[k]]; e < first[queue[k] + 1]; e++)
            if (!live[from[e]]) live[from[e]] = 1, queue[n_queue++] = from[e];
    return live;
}

/* Returns the class of all characters that lead from state s to state `to`. */
static pi__class class_between(pi__builder *b, const pi__reg *r, uint32_t s, uint32_t to)
{
    pi__range *v = take(b, r->n_cuts, sizeof *v);
    size_t n = 0;
    for (size_t c = 0; v && c < r->n_cuts; c++) {
        if (r->to[(size_t) s * r->n_symbols + r->symbol[c]] != to || r->cut[c] > 0x10FFFF) continue;
        v[n++] = (pi__range) {r->cut[c], c + 1 < r->n_cuts ? r->cut[c + 1] - 1 : 0x10FFFF};
    }
    return v ? pi__class_of(b, v, n, false) : (pi__class) {0};
}

typedef struct writer {
    pi__builder *b;
    const pi__reg *r;
    const uint8_t *live;  /* [n_states] from live_states */
    uint32_t *rule;       /* [n_states] rules of live states */
    pi__class_fn map;
    pi__class cls[64];    /* [n_cls] cache: classes written so far */
    pi__expr *written[64]; /* their expressions */
    size_t n_cls;
} writer;

/* Returns map's expression of a class. If it is a choice, all alternatives except the first are put in a shared rule,
 * because escapes take many nodes. */
static pi__expr *write_class(writer *w, pi__class c)
{
    for (size_t i = 0; i < w->n_cls; i++)
        if (w->cls[i].n == c.n && !memcmp(w->cls[i].r, c.r, c.n * sizeof *c.r)) return w->written[i];
    pi__expr *x = w->map(w->b, c);
    if (!w->b->code && x->kind == PI__X_ALT && x->list.n > 2) {
        pi__expr *others = pi__x_alt(w->b), *first = x->list.v[0];
        for (size_t i = 1; i < x->list.n; i++) pi__x_add(w->b, others, x->list.v[i]);
        x = pi__x_alt2(w->b, first, pi__x_shared(w->b, others));
    }
    if (w->n_cls < sizeof w->cls / sizeof *w->cls) {
        w->cls[w->n_cls] = c;
        w->written[w->n_cls++] = x;
    }
    return x;
}

static pi__expr *of_state(writer *w, uint32_t s, bool ends)
{
    pi__builder *b = w->b;
    const pi__reg *r = w->r;
    const uint32_t *to = r->to + (size_t) s * r->n_symbols;
    pi__expr *alt = pi__x_alt(b), *loop = NULL;
    if (ends) pi__x_add(b, alt, pi__x_empty(b));
    for (uint32_t c = 0; c < r->n_symbols && !b->code; c++) {
        bool first = to[c] != PI__REG_DEAD && w->live[to[c]];
        for (uint32_t k = 0; k < c && first; k++) first = to[k] != to[c];
        if (!first) continue;
        const pi__class cls = class_between(b, r, s, to[c]);
        if (!cls.n) continue; /* only surrogates */
        if (to[c] == s) loop = pi__x_rep(b, write_class(w, cls), 0, PI__REP_INF);
        else pi__x_add(b, alt, pi__x_cat2(b, write_class(w, cls), pi__x_rule(b, w->rule[to[c]])));
    }
    return loop ? pi__x_cat2(b, loop, alt) : alt;
}

pi__expr *pi__reg_expr(pi__builder *b, const pi__reg *r, uint64_t care, uint64_t want, pi__class_fn map)
{
    if (b->code || !r->n_states) return pi__x_never(b);
    writer w = {.b = b, .r = r, .map = map};
    w.live = live_states(b, r, care, want);
    w.rule = take(b, r->n_states, sizeof *w.rule);
    if (!w.live || !w.rule || !w.live[0]) return pi__x_never(b);
    for (uint32_t s = 0; s < r->n_states; s++)
        if (w.live[s]) w.rule[s] = pi__rule_new(b);
    for (uint32_t s = 0; s < r->n_states && !b->code; s++)
        if (w.live[s]) pi__rule_set(b, w.rule[s], of_state(&w, s, (r->mark[s] & care) == want));
    return pi__x_rule(b, w.rule[0]);
}

/* True if the live states reachable from state 0 have a cycle. *min: number of characters of the shortest text. */
static bool find_loop(pi__builder *b, const pi__reg *r, const uint8_t *live, uint64_t care, uint64_t want,
                      uint32_t *min)
{
    uint32_t *length = take(b, r->n_states, sizeof *length), *n_into = take(b, r->n_states, sizeof *n_into);
    uint32_t *queue = take(b, r->n_states, sizeof *queue), n = 0, n_done = 0;
    if (b->code || !pi__builder_step(b, r->n_states)) return false;
    length[0] = 1; /* 1 + length in characters of the shortest text to each state; 0 = not reached yet */
    queue[n++] = 0;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t *to = r->to + (size_t) queue[k] * r->n_symbols;
        if (*min == PI__REP_INF && (r->mark[queue[k]] & care) == want) *min = length[queue[k]] - 1;
        for (uint32_t c = 0; c < r->n_symbols; c++) {
            if (to[c] == PI__REG_DEAD || !live[to[c]]) continue;
            if (!length[to[c]]) length[to[c]] = length[queue[k]] + 1, queue[n++] = to[c];
            n_into[to[c]]++;
        }
    }
    if (n_into[0]) return true;
    queue[0] = 0;
    for (uint32_t left = 1; n_done < left; n_done++) { /* topological order: incoming transitions are done */
        const uint32_t *to = r->to + (size_t) queue[n_done] * r->n_symbols;
        for (uint32_t c = 0; c < r->n_symbols; c++)
            if (to[c] != PI__REG_DEAD && live[to[c]] && !--n_into[to[c]]) queue[left++] = to[c];
    }
    return n_done < n;
}

bool pi__reg_lengths(pi__builder *b, const pi__reg *r, uint64_t care, uint64_t want, uint32_t *min, uint32_t *max)
{
    const uint8_t *live = b->code || !r->n_states ? NULL : live_states(b, r, care, want);
    uint8_t *at = live ? take(b, 2 * (size_t) r->n_states, 1) : NULL, *next = at ? at + r->n_states : NULL;
    *min = PI__REP_INF;
    *max = 0;
    if (!at || !live[0]) return false;
    if (find_loop(b, r, live, care, want, min)) return *max = PI__REP_INF, true;
    if (b->code) return false;
    at[0] = 1;
    uint64_t steps = 0;
    for (uint32_t len = 0; len <= r->n_states; len++) { /* without cycles, a text is shorter than n_states */
        bool any = false, ends = false;
        if (!pi__builder_step(b, r->n_states)) return false;
        memset(next, 0, r->n_states);
        for (uint32_t s = 0; s < r->n_states; s++) {
            if (!at[s]) continue;
            any = true;
            ends |= (r->mark[s] & care) == want;
            for (uint32_t c = 0; c < r->n_symbols; c++) {
                const uint32_t to = r->to[(size_t) s * r->n_symbols + c];
                if (to != PI__REG_DEAD && live[to]) next[to] = 1;
            }
            steps += r->n_symbols;
        }
        if (ends) *max = len;
        if (!any) return true;
        if (steps > 1 << 20) break;
        uint8_t *swap = at;
        at = next;
        next = swap;
    }
    *max = PI__REP_INF;
    return true;
}

uint64_t pi__reg_mark(const pi__reg *r, pi__str text)
{
    uint32_t s = r->n_states ? 0 : PI__REG_DEAD;
    for (size_t i = 0; i < text.n && s != PI__REG_DEAD;) {
        uint32_t cp;
        const size_t len = pi__utf8_char(text.p + i, text.n - i, &cp);
        if (!len) return 0;
        s = r->to[(size_t) s * r->n_symbols + r->symbol[interval_of(r, cp)]];
        i += len;
    }
    return s == PI__REG_DEAD ? 0 : r->mark[s];
}

/* -------------------------------------------------------------------------------------------------------- multiples */

/* States: 0 = start, 1 = after the sign, then integer digits by remainder, then decimal places by remainder. */
pi__reg *pi__reg_multiples(pi__builder *b, uint32_t step, uint32_t places)
{
    static const uint32_t cuts[] = {0, '-', '.', '/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ':'};
    enum { N = sizeof cuts / sizeof *cuts, OTHER = 0, MINUS = 1, POINT = 2, ZERO = 3, SYMBOLS = 13 };
    pi__reg *r = take(b, 1, sizeof *r);
    const uint64_t n = 2 + (uint64_t) step * (places + 2);
    if (n > PI__REG_STATES) return pi__builder_fail(b, PI_EUNSUPPORTED,
        "multipleOf: this step is not supported: give one with fewer digits"), NULL;
    if (!r) return NULL;
    r->cut = take(b, N, sizeof *cuts);
    r->symbol = take(b, N, sizeof *r->symbol);
    r->to = take(b, n * SYMBOLS, sizeof *r->to);
    r->mark = take(b, n, sizeof *r->mark);
    if (b->code) return NULL;
    memcpy(r->cut, cuts, sizeof cuts);
    r->n_cuts = N;
    r->n_symbols = SYMBOLS;
    r->n_states = (uint32_t) n;
    for (int i = 0; i < N; i++)
        r->symbol[i] = cuts[i] == '-' ? MINUS : cuts[i] == '.' ? POINT : cuts[i] >= '0' && cuts[i] <= '9'
            ? ZERO + cuts[i] - '0' : OTHER;
    for (size_t i = 0; i < n * SYMBOLS; i++) r->to[i] = PI__REG_DEAD;
    r->to[MINUS] = 1;
    for (uint32_t d = 0; d < 10; d++) r->to[ZERO + d] = r->to[SYMBOLS + ZERO + d] = 2 + d % step;
    /* k = 0: integer digits; 1: after the point; k: k - 1 digits after the point. Digits past `places` must be 0. */
    for (uint32_t k = 0; k <= places + 1; k++) {
        for (uint32_t m = 0; m < step; m++) {
            const uint32_t s = 2 + k * step + m;
            uint64_t all = m;
            for (uint32_t i = k ? k - 1 : 0; i < places; i++) all = all * 10 % step;
            r->mark[s] = all == 0 && k != 1;
            if (!k) r->to[(size_t) s * SYMBOLS + POINT] = 2 + step + m;
            for (uint32_t d = 0; d < 10; d++) {
                if (k == places + 1 && d) continue;
                const uint32_t rest = k == places + 1 ? m : (uint32_t) (((uint64_t) m * 10 + d) % step);
                const uint32_t to = k == 0 ? 0 : k == places + 1 ? k : k + 1;
                r->to[(size_t) s * SYMBOLS + ZERO + d] = 2 + to * step + rest;
            }
        }
    }
    return r;
}
