/* Masks: which tokens may come next from a state (see grammar.h).
 *
 * The trie is walked in its order. At each node the state that its text leads to is known; where nothing can follow, the
 * subtree is left out; where the state is within a run of characters and the subtree has nothing else, all of it is taken. */
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

/* Tokens whose text can follow. */
static void allow_texts(pi__machine *m, uint32_t s, uint64_t *bits)
{
    const pi__tokens *t = m->t;
    const uint64_t limit = m->work + PI__MASK_WORK;
    m->path[0] = s;
    for (uint32_t i = 1; i < t->n_nodes;) {
        const uint32_t depth = t->depth[i], to = pi__machine_byte(m, m->path[depth - 1], t->byte[i]);
        if (to == PI__STATE_NONE) return;
        if (to == PI__STATE_DEAD) {
            i = t->skip[i];
            continue;
        }
        const pi__gstate *q = pi__state_at(m, to);
        if (!(t->kinds[i] & ~q->run_kinds) && (t->n_chars[i] <= q->run_chars && (t->n_chars[i] < PI__LONG_TOKEN ||
            q->run_chars == PI__RUN_INF))) {
            for (uint32_t k = t->first[i]; k < t->first[t->skip[i]]; k++) allow(bits, t->id[k]);
            i = t->skip[i];
            continue;
        }
        for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++) allow(bits, t->id[k]);
        m->path[depth] = to;
        i++;
        if (m->work > limit) {
            m->wide = true;
            return;
        }
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
