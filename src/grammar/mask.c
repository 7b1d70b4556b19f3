/* Masks: which tokens may come next from a state (see grammar.h).
 *
 * The trie is walked in its order. At each node the state that its text leads to is known; where nothing can follow,
 * the subtree is left out; where the state is within a run of characters and the subtree has nothing else, all of it is
 * taken. */
#include <string.h>

#include "grammar/machine.h"

static inline void allow(uint64_t *bits, int32_t id) { bits[id >> 6] |= (uint64_t) 1 << (id & 63); }

/* Tokens that nodes read by number. */
static void allow_numbers(const pi__machine *m, const pi__gstate *s, uint64_t *bits)
{
    const pi__tokens *t = m->t;
    const size_t words = pi__mask_words(t);
    int32_t other = -1; /* a token that two nodes exclude is not allowed by either; two different ones allow all */
    for (uint32_t i = 0; i < s->n; i++) {
        const pi__gnode *x = &m->p->node[s->config[i] >> 44];
        if (x->kind == PI__G_FREE)
            for (size_t w = 0; w < words; w++) bits[w] |= t->bare[w];
        if (x->kind != PI__G_NOT_TOKEN) continue;
        const int32_t id = (int32_t) x->a;
        const bool had = (bits[id >> 6] >> (id & 63) & 1) || (other >= 0 && other != id);
        for (size_t w = 0; w < words; w++) bits[w] |= t->all[w];
        if (!had) bits[id >> 6] &= ~((uint64_t) 1 << (id & 63));
        other = id;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const pi__gnode *x = &m->p->node[s->config[i] >> 44];
        const int32_t id = (int32_t) x->a;
        if (x->kind == PI__G_TOKEN && ((t->all[id >> 6] >> (id & 63) & 1) || pi__tokens_is_eog(t, id))) allow(bits, id);
    }
}

/* ------------------------------------------------------------------------------------------------------------- runs */

/* All bytes lo..hi of s, and `more` continuation bytes behind each, lead to *to, which is found by the first. */
static bool one_way(pi__machine *m, uint32_t s, int lo, int hi, int more, uint32_t *to)
{
    uint32_t last = PI__STATE_NONE;
    for (int c = lo; c <= hi; c++) {
        const uint32_t next = pi__machine_byte(m, s, (uint8_t) c);
        if (next == last) continue;
        last = next;
        if (next == PI__STATE_NONE) return false;
        if (next == PI__STATE_DEAD || !more) { /* a character that cannot be completed leads where one that is not there does */
            if (*to == PI__STATE_NONE) *to = next;
            if (*to != next) return false;
        } else if (!one_way(m, next, 0x80, 0xBF, more - 1, to)) {
            return false;
        }
    }
    return true;
}

/* Where every character of these kinds leads. */
static uint32_t any_next(pi__machine *m, uint32_t s, uint64_t kinds)
{
    static const struct { int lo, hi, first_lo, first_hi, more; } wide[] = {
        {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
        {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2}, {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
    pi__gstate *q = pi__state_at(m, s);
    uint32_t to = PI__STATE_NONE;
    bool same = true;
    if (q->any_next && q->any_kinds == kinds) return q->any_next;
    for (int c = 0; c < 0x80 && same; c++)
        if (kinds >> pi__char_kind((uint32_t) c) & 1) same = one_way(m, s, c, c, 0, &to);
    for (size_t i = 0; i < sizeof wide / sizeof *wide && same && (kinds >> PI__KIND_WIDE & 1); i++) {
        for (int c = wide[i].lo; c <= wide[i].hi && same; c++) {
            const uint32_t next = pi__machine_byte(m, s, (uint8_t) c);
            if (next == PI__STATE_DEAD) same = to == next || !to, to = next;
            else same = next && one_way(m, next, wide[i].first_lo, wide[i].first_hi, wide[i].more, &to);
        }
    }
    if (m->full || m->wide) return PI__STATE_NONE;
    q->any_kinds = kinds;
    return q->any_next = same && to ? to : PI__STATE_MIXED;
}

/* How many characters of the state's run can follow each other, where that does not depend on which they are: in a text
 * of limited length, say. PI__RUN_INF: it does, or there is no limit, or one beyond all tokens. */
static uint32_t reach(pi__machine *m, uint32_t s)
{
    pi__gstate *q = pi__state_at(m, s);
    uint32_t at = s, n = 0;
    if (q->reach) return q->reach - 1;
    while (n < PI__LONG_TOKEN && at > PI__STATE_DEAD && at != PI__STATE_MIXED) {
        at = any_next(m, at, q->run_kinds);
        n += at > PI__STATE_DEAD;
    }
    if (at == PI__STATE_NONE) return PI__RUN_INF;
    q->reach = at == PI__STATE_DEAD ? n + 1 : 0;
    return q->reach ? n : PI__RUN_INF;
}

/* Tokens below node i that are in the run and not longer than it. */
static void allow_short(const pi__tokens *t, uint32_t i, uint32_t n_chars, uint64_t *bits)
{
    const uint32_t most = n_chars + t->n_before[i];
    for (uint32_t k = t->first[i]; k < t->first[t->skip[i]]; k++)
        if (t->length[k] <= most) allow(bits, t->id[k]);
}

/* The whole subtree of node i, at which the state is `to`, is in the state's run: takes what the run lets through.
 * false: that has to be looked at token by token. */
static bool allow_run(pi__machine *m, uint32_t i, uint32_t to, uint64_t *bits)
{
    const pi__tokens *t = m->t;
    const pi__gstate *q = pi__state_at(m, to);
    if (t->kinds[i] & ~q->run_kinds) return false;
    if (q->run_chars == PI__RUN_INF || (t->n_chars[i] <= q->run_chars && t->n_chars[i] < PI__LONG_TOKEN)) {
        for (uint32_t k = t->first[i]; k < t->first[t->skip[i]]; k++) allow(bits, t->id[k]);
        return true;
    }
    if (t->skip[i] == i + 1) return false; /* nothing is below it */
    const uint32_t n = reach(m, to);
    if (n == PI__RUN_INF || n + t->n_before[i] >= PI__LONG_TOKEN) return false;
    allow_short(t, i, n, bits);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------- the
 * walk */

/* Tokens whose text can follow. */
static void allow_texts(pi__machine *m, uint32_t s, uint64_t *bits)
{
    const pi__tokens *t = m->t;
    const uint64_t limit = m->work + PI__MASK_WORK;
    m->path[0] = s;
    for (uint32_t i = 1; i < t->n_nodes;) {
        const uint32_t depth = t->depth[i], to = pi__machine_byte(m, m->path[depth - 1], t->byte[i]);
        if (to == PI__STATE_NONE || m->work > limit) {
            m->wide |= !m->full;
            return;
        }
        if (to == PI__STATE_DEAD || allow_run(m, i, to, bits)) {
            i = t->skip[i];
            continue;
        }
        for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++) allow(bits, t->id[k]);
        m->path[depth] = to;
        i++;
    }
}

int32_t pi__machine_mask(pi__machine *m, uint32_t s)
{
    pi__gstate *st = pi__state_at(m, s);
    if (st->mask) return (int32_t) st->mask - 1;
    const size_t words = pi__mask_words(m->t);
    const uint32_t slot = m->next_slot;
    pi__mask_slot *k = &m->slot[slot];
    uint64_t *bits = pi__mask_bits(m, (int32_t) slot);
    m->next_slot = (slot + 1) % PI__MASK_SLOTS;
    if (k->state) pi__state_at(m, k->state)->mask = 0;
    *k = (pi__mask_slot) {.only = -1};
    memset(bits, 0, words * sizeof *bits);
    if (st->by_token) allow_numbers(m, st, bits);
    allow_texts(m, s, bits);
    if (m->full || m->wide) return -1;
    for (size_t w = 0; w < words; w++) {
        if (!bits[w]) continue;
        k->n += __builtin_popcountll(bits[w]);
        k->only = (int32_t) (w * 64) + __builtin_ctzll(bits[w]);
    }
    k->state = s;
    m->n_masks++;
    st->mask = slot + 1;
    return (int32_t) slot;
}
