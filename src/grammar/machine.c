/* States of the machine: creating, finding and collecting them (see machine.h). */
#include "grammar/machine.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"

/* ----------------------------------------------------------------------------------------------------------- memory */

static void lay_out(pi__machine *m, pi__arena *a)
{
    const size_t C = PI__MAX_CONFIGS;
    for (int i = 0; i < 2; i++) {
        pi__space *s = &m->space[i];
        s->word = pi__arena_take(a, (size_t) PI__STATE_WORDS * sizeof *s->word);
        s->state_slot = pi__arena_take(a, 2 * (size_t) PI__MAX_STATES * sizeof *s->state_slot);
        s->stack = pi__arena_take(a, (size_t) PI__MAX_STACKS * sizeof *s->stack);
        s->stack_slot = pi__arena_take(a, 2 * (size_t) PI__MAX_STACKS * sizeof *s->stack_slot);
    }
    m->mask = pi__arena_take(a, PI__MASK_SLOTS * pi__mask_words(m->t) * sizeof *m->mask);
    m->config = pi__arena_take(a, C * sizeof *m->config);
    m->todo = pi__arena_take(a, 4 * C * sizeof *m->todo);
    m->seen = pi__arena_take(a, 8 * C * sizeof *m->seen);
    m->seen_when = pi__arena_take(a, 8 * C * sizeof *m->seen_when);
    m->text = pi__arena_take(a, (size_t) m->t->max_bytes + 1);
    for (int i = 0; i < PI__N_WALKS; i++) {
        pi__walk *w = &m->walk[i];
        w->bits = pi__arena_take(a, pi__mask_words(m->t) * sizeof *w->bits);
        w->path = pi__arena_take(a, ((size_t) m->t->max_bytes + 1) * sizeof *w->path);
        w->text = pi__arena_take(a, (size_t) m->t->max_bytes + 1);
    }
}

size_t pi__machine_bytes(const pi__tokens *t)
{
    pi__machine m = {.t = t};
    pi__arena a = {0};
    lay_out(&m, &a);
    return a.used;
}

static void space_clear(pi__space *s)
{
    if (s->n_states) memset(s->state_slot, 0, 2 * (size_t) PI__MAX_STATES * sizeof *s->state_slot);
    if (s->n_stacks > 1) memset(s->stack_slot, 0, 2 * (size_t) PI__MAX_STACKS * sizeof *s->stack_slot);
    s->n_words = 2;
    s->n_states = 0;
    s->n_stacks = 1;
}

/* Stores in m->slice the slices of the classes that repeat in the program: of DFA nodes with unlimited runs, and of
 * loops. */
static int take_slices(pi__machine *m, pi_error *err)
{
    const pi__program *p = m->p;
    uint64_t seen[4 * PI__MAX_SLICES];
    size_t n_seen = 0;
    int rc = PI_OK;
    for (size_t i = 0; i < p->n_nodes + p->n_loops && !rc; i++) {
        const uint32_t k = i < p->n_nodes ? (uint32_t) i : p->loop[i - p->n_nodes].run;
        if (p->node[k].kind != PI__G_DFA || (i < p->n_nodes && p->run[k] != PI__RUN_INF)) continue;
        const uint64_t kinds = p->dfa[p->node[k].a].kinds;
        bool known = n_seen == sizeof seen / sizeof *seen || m->n_slices == PI__MAX_SLICES;
        for (size_t j = 0; j < n_seen && !known; j++) known = seen[j] == kinds;
        if (known) continue;
        seen[n_seen++] = kinds;
        rc = pi__slice_get(m->t, kinds, &m->slice[m->n_slices], err);
        m->n_slices += !rc && m->slice[m->n_slices];
    }
    return rc;
}

int pi__machine_init(pi__machine *m, const pi__program *p, const pi__tokens *t, pi_error *err)
{
    *m = (pi__machine) {.p = p, .t = t, .map_bytes = pi__machine_bytes(t)};
    m->map = pi__map(m->map_bytes);
    if (!m->map) return pi__fail_mem(err, "the grammar's states");
    pi__arena a = {.base = m->map, .size = m->map_bytes};
    lay_out(m, &a);
    m->far = t->max_bytes + 2;
    m->now = &m->space[0];
    space_clear(&m->space[0]);
    space_clear(&m->space[1]);
    return take_slices(m, err);
}

size_t pi__machine_used(const pi__machine *m)
{
    size_t n_masks = 0;
    for (size_t i = 0; i < PI__MASK_SLOTS; i++) n_masks += m->slot[i].state != 0;
    return m->now->n_words * sizeof *m->now->word + m->now->n_stacks * sizeof *m->now->stack +
           n_masks * pi__mask_words(m->t) * sizeof *m->mask;
}

void pi__machine_free(pi__machine *m)
{
    for (size_t i = 0; i < m->n_slices; i++) pi__slice_release(m->t, m->slice[i]);
    if (m->map) pi__unmap(m->map, m->map_bytes);
    memset(m, 0, sizeof *m);
}

/* ----------------------------------------------------------------------------------------------------------- stacks */

static uint32_t mix(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return (uint32_t) (x >> 32) ^ (uint32_t) (x >> 15);
}

/* Returns the canonical count: the one that represents all counts of loop l with the same masks as `count`. */
static uint32_t canonical_count(const pi__machine *m, const pi__loop *l, uint32_t count)
{
    const uint32_t far = m->far, first = l->min ? l->min : 1;
    if (count < l->min) return l->min - count > far ? 1 : count;
    return l->max == PI__REP_INF || l->max - count > far ? first : count;
}

/* Returns the entry with these members, adding it if missing. Returns 0 and sets m->full if the space is full. */
static uint32_t push_entry(pi__machine *m, pi__space *s, uint32_t go_on, uint32_t count, uint32_t below)
{
    const uint32_t mask = 2 * PI__MAX_STACKS - 1;
    uint32_t h = mix(((uint64_t) go_on << 32 | below) + count * 0x9E3779B97F4A7C15u) & mask;
    for (uint32_t k; (k = s->stack_slot[h]); h = (h + 1) & mask)
        if (s->stack[k].go_on == go_on && s->stack[k].below == below && s->stack[k].count == count) return k;
    if (s->n_stacks == PI__MAX_STACKS) return m->full = true, 0;
    s->stack[s->n_stacks] = (pi__gstack) {go_on, count, below, 0, 0};
    m->work++;
    return s->stack_slot[h] = s->n_stacks++;
}

static uint32_t push(pi__machine *m, pi__space *s, uint32_t go_on, uint32_t count, uint32_t below)
{
    const uint32_t k = push_entry(m, s, go_on, count, below);
    pi__gstack *e = &s->stack[k];
    if (!k || e->canon) return k;
    const uint32_t low = below ? s->stack[below].canon : 0;
    const uint32_t n = count ? canonical_count(m, &m->p->loop[m->p->node[go_on].a], count) : 0;
    e->canon = n == count && low == below ? k : push_entry(m, s, go_on, n, low);
    if (e->canon) s->stack[e->canon].canon = e->canon;
    return m->full ? 0 : k;
}

/* ----------------------------------------------------------------------------------------------------------- states */

static void begin(pi__machine *m)
{
    m->n_config = m->n_seen = 0;
    m->ends = false;
    if (!++m->when) { /* once in 2^32 states */
        memset(m->seen_when, 0, 8 * (size_t) PI__MAX_CONFIGS * sizeof *m->seen_when);
        m->when = 1;
    }
}

static void add_config(pi__machine *m, uint32_t node, uint32_t row, uint32_t stack)
{
    if (m->n_config == PI__MAX_CONFIGS) m->wide = true;
    else m->config[m->n_config++] = (uint64_t) (node << 12 | row) << 32 | stack;
}

/* Returns true if (node, stack) is entered for the first time for this state. */
static bool is_new(pi__machine *m, uint64_t key)
{
    const uint32_t mask = 8 * PI__MAX_CONFIGS - 1;
    uint32_t h = mix(key) & mask;
    for (; m->seen_when[h] == m->when; h = (h + 1) & mask)
        if (m->seen[h] == key) return false;
    if (++m->n_seen > 4 * PI__MAX_CONFIGS) return m->wide = true, false;
    m->seen[h] = key;
    m->seen_when[h] = m->when;
    return true;
}

/* Loop k has completed `done` iterations: ends it if these are enough, and reads one more if allowed. Pushes to todo;
 * returns its new length. */
static uint32_t iterate(pi__machine *m, uint32_t k, uint32_t done, uint32_t below, uint32_t n)
{
    const pi__loop *l = &m->p->loop[m->p->node[k].a];
    if (done >= l->min) m->todo[n++] = (uint64_t) m->p->node[k].b << 32 | below;
    if (done >= l->max) return n;
    const uint32_t most = l->min ? l->min : 1; /* without an upper limit, all counts from here on are equivalent */
    const uint32_t count = l->max == PI__REP_INF && done >= most ? most : done + 1;
    const uint32_t e = push(m, m->now, k, count, below);
    m->now->stack[e].when = m->n_enters;
    m->todo[n++] = (uint64_t) l->body << 32 | e;
    return n;
}

/* Adds the configurations that can read next from node: follows choices, calls, loops and rule ends. */
static void enter(pi__machine *m, uint32_t node, uint32_t stack)
{
    const pi__program *p = m->p;
    uint32_t n = 0;
    m->n_enters++;
    m->todo[n++] = (uint64_t) node << 32 | stack;
    while (n && !m->full && !m->wide) {
        const uint64_t key = m->todo[--n];
        const uint32_t k = (uint32_t) (key >> 32), st = (uint32_t) key;
        const pi__gnode *x = &p->node[k];
        if (!x->live) continue;
        m->work++;
        const bool reads = x->kind == PI__G_TEXT || x->kind == PI__G_DFA || x->kind >= PI__G_TOKEN;
        const pi__gstack *top = x->kind == PI__G_END ? &m->now->stack[st] : NULL;
        if (top && top->count && top->when == m->n_enters && p->loop[p->node[top->go_on].a].nullable)
            continue; /* an iteration that read nothing */
        if (reads) {
            if (is_new(m, key)) add_config(m, k, x->kind == PI__G_FREE ? p->dfa[x->a].start : 0, st);
            m->ends |= x->kind == PI__G_FREE; /* free text may end anywhere */
            continue;
        }
        if (!is_new(m, key)) continue;
        if (n + 2 > 4 * PI__MAX_CONFIGS) {
            m->wide = true;
        } else if (x->kind == PI__G_SPLIT) {
            m->todo[n++] = (uint64_t) x->b << 32 | st;
            m->todo[n++] = (uint64_t) x->a << 32 | st;
        } else if (x->kind == PI__G_CALL) { /* a call at a rule's end pushes nothing: tail recursion needs no stack */
            const uint32_t on = x->b ? push(m, m->now, x->b, 0, st) : st;
            m->todo[n++] = (uint64_t) p->rule[x->a] << 32 | on;
        } else if (x->kind == PI__G_LOOP) {
            n = iterate(m, k, 0, st, n);
        } else if (st && top->count) {
            n = iterate(m, top->go_on, top->count, top->below, n);
        } else if (st) {
            m->todo[n++] = (uint64_t) top->go_on << 32 | top->below;
        } else {
            m->ends = true;
        }
    }
}

static void sort(uint64_t *v, uint32_t n)
{
    for (uint32_t gap = n / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11) { /* Shell sort: few elements, mostly in order */
        for (uint32_t i = gap; i < n; i++) {
            const uint64_t x = v[i];
            uint32_t k = i;
            for (; k >= gap && v[k - gap] > x; k -= gap) v[k] = v[k - gap];
            v[k] = x;
        }
    }
}

static uint32_t *next_of(pi__gstate *s) { return (uint32_t *) (void *) (s->config + s->n); }

static bool is_home(const pi__dfa *d, uint32_t row)
{
    for (uint32_t i = 0; i < d->n_homes; i++)
        if (d->home[i] == row) return true;
    return false;
}

/* Returns how many characters of the class of node k may follow in a row on stack st. */
static uint32_t run_of(const pi__machine *m, uint32_t k, uint32_t st)
{
    const pi__program *p = m->p;
    const pi__gstack *top = &m->now->stack[st];
    const uint32_t run = p->run[k];
    if (!st || !top->count || p->node[k].b) return run;
    const pi__loop *l = &p->loop[p->node[top->go_on].a];
    if (l->run != k) return run;
    return l->max == PI__REP_INF ? PI__RUN_INF : l->max - top->count + 1;
}

/* Sets s->by_token, and the state's run: the run of the configuration with the most kinds of characters; at equal kinds
 * the longest one. */
static void look_at(const pi__machine *m, pi__gstate *s)
{
    const pi__program *p = m->p;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t k = (uint32_t) (s->config[i] >> 44), row = (uint32_t) (s->config[i] >> 32) & (PI__MAX_SUB - 1);
        const pi__gnode *x = &p->node[k];
        s->by_token |= x->kind >= PI__G_TOKEN;
        if (x->kind == PI__G_FREE ? !is_home(&p->dfa[x->a], row) : row || x->kind != PI__G_DFA) continue;
        const uint32_t run = x->kind == PI__G_FREE ? PI__RUN_INF : run_of(m, k, (uint32_t) s->config[i]);
        const uint64_t kinds = p->dfa[x->a].kinds;
        if (!run || __builtin_popcountll(kinds) < __builtin_popcountll(s->run_kinds)) continue;
        if (kinds == s->run_kinds && run < s->run_chars) continue;
        s->run_kinds = kinds;
        s->run_chars = run;
    }
}

/* Returns the state with the collected configurations, existing or new; sorts them. DEAD if there is none and the text
 * may not end. NONE if m->full or m->wide is set. */
static uint32_t find(pi__machine *m)
{
    pi__space *sp = m->now;
    if (m->full || m->wide) return PI__STATE_NONE;
    if (!m->n_config && !m->ends) return PI__STATE_DEAD;
    m->work += 4 + m->n_config;
    sort(m->config, m->n_config);
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_config; i++)
        if (!n || m->config[i] != m->config[n - 1]) m->config[n++] = m->config[i];
    const uint32_t mask = 2 * PI__MAX_STATES - 1, hash = (uint32_t) pi__hash64(m->config, n * sizeof *m->config,
                                                                               m->ends);
    uint32_t h = hash & mask;
    for (uint32_t k; (k = sp->state_slot[h]); h = (h + 1) & mask) {
        const pi__gstate *s = pi__state_at(m, k);
        if (s->hash == hash && s->n == n && s->ends == m->ends && !memcmp(s->config, m->config, n * sizeof *m->config))
            return k;
    }
    const uint32_t words = (uint32_t) (sizeof(pi__gstate) / 8) + n + (m->p->n_cls + 1) / 2;
    if (sp->n_states == PI__MAX_STATES || words > PI__STATE_WORDS - sp->n_words) return m->full = true, PI__STATE_NONE;
    const uint32_t at = sp->n_words;
    pi__gstate *s = pi__state_at(m, at);
    memset(s, 0, words * sizeof(uint64_t));
    s->hash = hash;
    s->n = n;
    s->ends = m->ends;
    if (n) memcpy(s->config, m->config, n * sizeof *m->config);
    look_at(m, s);
    sp->n_words += words;
    sp->n_states++;
    m->n_states++;
    return sp->state_slot[h] = at;
}

uint32_t pi__machine_start(pi__machine *m)
{
    if (m->start) return m->start;
    begin(m);
    enter(m, m->p->root, 0);
    return m->start = find(m);
}

/* ------------------------------------------------------------------------------------------------------------ bytes */

/* Collects the configurations that `byte` leads to from s. */
static void read_byte(pi__machine *m, const pi__gstate *s, uint8_t byte)
{
    const pi__program *p = m->p;
    for (uint32_t i = 0; i < s->n && !m->full && !m->wide; i++) {
        const uint64_t c = s->config[i];
        const uint32_t node = (uint32_t) (c >> 44), row = (uint32_t) (c >> 32) & (PI__MAX_SUB - 1), stack = (uint32_t)
            c;
        const pi__gnode *x = &p->node[node];
        m->work++;
        if (x->kind == PI__G_TEXT) {
            if (p->text[x->a + row] != byte) continue;
            if (row + 1 == x->n) enter(m, x->b, stack);
            else add_config(m, node, row + 1, stack);
        } else if (x->kind == PI__G_DFA || x->kind == PI__G_FREE) {
            const uint32_t to = p->dfa[x->a].row[row][byte];
            if (to == PI__DFA_END) {
                enter(m, x->b, stack);
            } else if (to || x->kind == PI__G_FREE) {
                add_config(m, node, to, stack);
                m->ends |= x->kind == PI__G_FREE;
            }
        }
    }
}

uint32_t pi__machine_byte(pi__machine *m, uint32_t s, uint8_t byte)
{
    const uint32_t c = m->p->cls[byte];
    pi__gstate *from = pi__state_at(m, s);
    uint32_t to = next_of(from)[c];
    if (to) return to;
    begin(m);
    read_byte(m, from, byte);
    to = find(m);
    next_of(from)[c] = to;
    return to;
}

uint32_t pi__machine_canon(pi__machine *m, uint32_t s)
{
    pi__gstate *from = pi__state_at(m, s);
    bool same = true;
    if (s <= PI__STATE_DEAD) return s;
    if (from->canon) return from->canon;
    begin(m);
    m->ends = from->ends;
    for (uint32_t i = 0; i < from->n; i++) {
        const uint32_t st = (uint32_t) from->config[i], to = st ? m->now->stack[st].canon : 0;
        same &= st == to;
        m->config[m->n_config++] = from->config[i] >> 32 << 32 | to;
    }
    const uint32_t to = same ? s : find(m);
    if (to) pi__state_at(m, to)->canon = to;
    return from->canon = to;
}

/* ----------------------------------------------------------------------------------------------------------- tokens */

/* Returns the state after the token's bytes; DEAD if the token has no text. */
static uint32_t follow_text(pi__machine *m, uint32_t s, int32_t id)
{
    const pi__tokens *t = m->t;
    if (id >= pi__vocab_size(t->v) || (t->bare[id >> 6] >> (id & 63) & 1) || pi__tokens_is_eog(t, id))
        return PI__STATE_DEAD;
    const size_t n = pi__token_bytes(t->v, id, false, m->text, t->max_bytes);
    if (!n || n > t->max_bytes) return PI__STATE_DEAD;
    for (size_t i = 0; i < n && s > PI__STATE_DEAD; i++) s = pi__machine_byte(m, s, (uint8_t) m->text[i]);
    return s;
}

static bool is_trigger(const pi__program *p, int32_t id)
{
    for (size_t i = 0; i < p->n_triggers; i++)
        if (p->trigger[i] == id) return true;
    return false;
}

/* Returns the trigger automaton's row after a control token. Answer parsers see the token's text, so triggers match
 * it. */
static uint32_t follow_bare(pi__machine *m, const pi__dfa *d, uint32_t row, int32_t id)
{
    const pi__vocab *v = m->t->v;
    if (row < d->n_outside && is_trigger(m->p, id)) return PI__DFA_END;
    size_t n = id < pi__vocab_size(v) ? pi__token_bytes(v, id, true, m->text, m->t->max_bytes) : 0;
    for (size_t i = 0; i < n && n <= m->t->max_bytes && row != PI__DFA_END; i++)
        row = d->row[row][(unsigned char) m->text[i]];
    return row;
}

uint32_t pi__machine_token(pi__machine *m, uint32_t s, int32_t id)
{
    const pi__program *p = m->p;
    const uint32_t by_text = follow_text(m, s, id);
    const pi__gstate *from = pi__state_at(m, s);
    if (!from->by_token || by_text == PI__STATE_NONE) return by_text;
    const bool bare = m->t->bare[id >> 6] >> (id & 63) & 1, end = pi__tokens_is_eog(m->t, id);
    begin(m);
    for (uint32_t i = 0; i < from->n && !m->full && !m->wide; i++) {
        const uint32_t node = (uint32_t) (from->config[i] >> 44), stack = (uint32_t) from->config[i];
        const pi__gnode *x = &p->node[node];
        if (x->kind == PI__G_TOKEN && x->a == (uint32_t) id) enter(m, x->b, stack);
        if (x->kind == PI__G_NOT_TOKEN && x->a != (uint32_t) id && !end) enter(m, x->b, stack);
        if (x->kind != PI__G_FREE || !bare) continue;
        const uint32_t to = follow_bare(m, &p->dfa[x->a], (uint32_t) (from->config[i] >> 32) & (PI__MAX_SUB - 1), id);
        if (to == PI__DFA_END) {
            enter(m, x->b, stack);
        } else {
            add_config(m, node, to, stack);
            m->ends = true;
        }
    }
    if (by_text != PI__STATE_DEAD) { /* the token may be read by id or by its text */
        const pi__gstate *b = pi__state_at(m, by_text);
        m->ends |= b->ends;
        for (uint32_t i = 0; i < b->n; i++) {
            if (m->n_config == PI__MAX_CONFIGS) m->wide = true;
            else m->config[m->n_config++] = b->config[i];
        }
    }
    return find(m);
}

uint32_t pi__machine_after_text(pi__machine *m, uint32_t s)
{
    const uint64_t c = pi__state_at(m, s)->config[0];
    begin(m);
    enter(m, m->p->node[c >> 44].b, (uint32_t) c);
    return find(m);
}

/* ------------------------------------------------------------------------------------------------------- collecting */

/* Copies the stack entries marked in keep (by entry, 1 = keep) from one space to the other, and stores the new numbers
 * in keep. Lower entries of a stack have lower numbers, so they are copied first. */
static void copy_stacks(pi__machine *m, const pi__space *from, pi__space *to, uint32_t *keep)
{
    for (uint32_t k = 1; k < from->n_stacks; k++) {
        if (!keep[k]) continue;
        const uint32_t below = from->stack[k].below;
        keep[k] = push(m, to, from->stack[k].go_on, from->stack[k].count, below ? keep[below] : 0);
    }
}

/* Marks the stack entries of state s. */
static void mark(const pi__machine *m, uint32_t s, uint32_t *keep)
{
    const pi__gstate *q = pi__state_at(m, s);
    for (uint32_t c = 0; s > PI__STATE_DEAD && c < q->n; c++)
        for (uint32_t k = (uint32_t) q->config[c]; k && !keep[k]; k = m->now->stack[k].below) keep[k] = 1;
}

/* Copies a state to space `to` and returns its new number. */
static uint32_t copy_state(pi__machine *m, const pi__space *from, pi__space *to, uint32_t at, const uint32_t *keep)
{
    const pi__gstate *s = (const pi__gstate *) (const void *) (from->word + at);
    if (at <= PI__STATE_DEAD) return at;
    m->now = to;
    begin(m);
    m->ends = s->ends;
    for (uint32_t c = 0; c < s->n; c++) {
        const uint32_t stack = (uint32_t) s->config[c];
        m->config[m->n_config++] = (s->config[c] >> 32 << 32) | (stack ? keep[stack] : 0);
    }
    return find(m);
}

void pi__machine_collect(pi__machine *m, uint32_t *const *root, size_t n)
{
    pi__space *from = m->now, *to = from == &m->space[0] ? &m->space[1] : &m->space[0];
    uint32_t *keep = from->stack_slot; /* reuses the hash table of the old space, which is no longer needed */
    space_clear(to);
    memset(keep, 0, 2 * (size_t) PI__MAX_STACKS * sizeof *keep);
    m->full = m->wide = false;
    for (size_t i = 0; i < n; i++) mark(m, *root[i], keep);
    for (int i = 0; i < PI__N_WALKS; i++) mark(m, m->walk[i].state, keep);
    copy_stacks(m, from, to, keep);
    for (size_t i = 0; i < n; i++) *root[i] = copy_state(m, from, to, *root[i], keep);
    for (int i = 0; i < PI__N_WALKS; i++) {
        m->walk[i].state = copy_state(m, from, to, m->walk[i].state, keep);
        m->walk[i].stale = true;
    }
    m->now = to;
    m->start = 0;
    from->n_stacks = 2; /* mark the old tables as not empty, for space_clear */
    from->n_states = 1;
    for (size_t i = 0; i < PI__MASK_SLOTS; i++) m->slot[i].state = 0;
}
