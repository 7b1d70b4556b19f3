/* Masks: computes which tokens may come next from a state (see grammar.h).
 *
 * The walk visits the trie in its order and knows the state at each node's text. If nothing can follow, it skips the
 * subtree. If the state is within a run of characters and the subtree has only these characters, it allows the entire
 * subtree. If the mask starts within a run, a slice of the vocabulary (tokens.h) holds the tokens that lie completely
 * within the run, and only the nodes of other tokens are walked. If only one text can follow, its bytes are looked up
 * in the trie without creating a state for each. */
#include <string.h>

#include "grammar/machine.h"

static inline void allow(uint64_t *bits, int32_t id) { bits[id >> 6] |= (uint64_t) 1 << (id & 63); }

/* Sets the bits of the tokens that nodes of s read by their id. */
static void allow_numbers(const pi__machine *m, const pi__gstate *s, uint64_t *bits)
{
    const pi__tokens *t = m->t;
    const size_t words = pi__mask_words(t);
    int32_t other = -1; /* a token that two nodes exclude is not allowed; two different excluded ids allow all tokens */
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

/* Returns true if all bytes lo..hi of s, each followed by `more` continuation bytes, lead to the same state *to. The
 * first one sets *to. */
static bool one_way(pi__machine *m, uint32_t s, int lo, int hi, int more, uint32_t *to)
{
    uint32_t last = PI__STATE_NONE;
    for (int c = lo; c <= hi; c++) {
        const uint32_t next = pi__machine_byte(m, s, (uint8_t) c);
        if (next == last) continue;
        last = next;
        if (next == PI__STATE_NONE) return false;
        if (next == PI__STATE_DEAD || !more) { /* a dead prefix counts as a character that leads to DEAD */
            if (*to == PI__STATE_NONE) *to = next;
            if (*to != next) return false;
        } else if (!one_way(m, next, 0x80, 0xBF, more - 1, to)) {
            return false;
        }
    }
    return true;
}

/* one_way for the characters of `kinds` among the 64^more characters from cp on. They share a first part that leads to
 * state `next` and are completed by `more` continuation bytes of 6 bits each. */
static bool wide_way(pi__machine *m, uint32_t next, uint32_t cp, int more, uint64_t kinds, uint32_t *to)
{
    const uint32_t span = (uint32_t) 1 << 6 * more;
    const uint64_t has = pi__wide_kinds(cp, span);
    if (!(has & kinds)) return true;
    if (next == PI__STATE_NONE) return false;
    if (next == PI__STATE_DEAD || !more) {
        if (*to == PI__STATE_NONE) *to = next;
        return *to == next;
    }
    if (!(has & ~kinds) && span == 64) return one_way(m, next, 0x80, 0xBF, 0, to);
    uint32_t last = PI__STATE_NONE;
    for (uint32_t c = 0; c < 64; c++) {
        const uint32_t each = span / 64, at = cp + c * each, to_next = pi__machine_byte(m, next, (uint8_t) (0x80 + c));
        const bool valid = at < 0x110000 && (at < 0xD800 || at > 0xDFFF) &&
                           at >= (more == 2   ? 0x800u
                                  : more == 3 ? 0x10000u
                                              : 0);
        if (!valid || (to_next == last && !(pi__wide_kinds(at, each) & ~kinds))) continue; /* already checked */
        last = pi__wide_kinds(at, each) & ~kinds ? PI__STATE_NONE : to_next;
        if (!wide_way(m, to_next, at, more - 1, kinds, to)) return false;
    }
    return true;
}

/* Returns the state that every character of these kinds leads to; PI__STATE_MIXED if they lead to several. */
static uint32_t any_next(pi__machine *m, uint32_t s, uint64_t kinds)
{
    const uint64_t beyond = (uint64_t) 1 << PI__KIND_WIDE | (uint64_t) 1 << PI__KIND_BLANK |
                            (uint64_t) 1 << PI__KIND_LINE;
    pi__gstate *q = pi__state_at(m, s);
    uint32_t to = PI__STATE_NONE;
    bool same = true;
    if (q->any_next && q->any_kinds == kinds) return q->any_next;
    m->work += 16;
    for (int c = 0; c < 0x80 && same; c++)
        if (kinds >> pi__char_kind((uint32_t) c) & 1) same = one_way(m, s, c, c, 0, &to);
    for (uint32_t c = 0xC2; c <= 0xF4 && same && (kinds & beyond); c++) {
        const int more = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        const uint32_t cp = (c & (0x3Fu >> more)) << 6 * more;
        same = wide_way(m, pi__machine_byte(m, s, (uint8_t) c), cp, more, kinds, &to);
    }
    if (m->full || m->wide) return PI__STATE_NONE;
    q->any_kinds = kinds;
    return q->any_next = same && to ? to : PI__STATE_MIXED;
}

/* Returns the number of characters of the state's run that can follow in a row, as in a text of limited length.
 * PI__RUN_INF: the number depends on the characters, is unlimited, or exceeds the length of every token. */
static uint32_t reach(pi__machine *m, uint32_t s)
{
    pi__gstate *q = pi__state_at(m, s);
    uint32_t at = s, n = 0;
    if (q->reach) return q->reach == PI__RUN_INF ? PI__RUN_INF : q->reach - 1;
    for (uint32_t last = 0; n < PI__LONG_TOKEN && at > PI__STATE_DEAD && at != PI__STATE_MIXED && at != last; n++) {
        last = at;
        at = any_next(m, at, q->run_kinds);
    }
    if (at == PI__STATE_NONE) return PI__RUN_INF;
    q->reach = at == PI__STATE_DEAD ? n : PI__RUN_INF; /* the last step led to DEAD */
    return q->reach == PI__RUN_INF ? PI__RUN_INF : n - 1;
}

/* Sets the bits of the tokens below node i that have at most n_chars characters after the node's text. All tokens below
 * i must lie in the run. */
static void allow_short(const pi__tokens *t, uint32_t i, uint32_t n_chars, uint64_t *bits)
{
    const uint32_t most = n_chars + t->n_before[i];
    for (uint32_t k = t->first[i]; k < t->first[t->skip[i]]; k++)
        if (t->length[k] <= most) allow(bits, t->id[k]);
}

/* Handles node i with state `to` if its entire subtree lies in the state's run: allows the tokens that the run permits.
 * Returns false if the tokens need to be walked one by one. */
static bool allow_run(pi__machine *m, uint32_t i, uint32_t to, uint64_t *bits)
{
    const pi__tokens *t = m->t;
    const pi__gstate *q = pi__state_at(m, to);
    if (t->kinds[i] & ~q->run_kinds) return false;
    m->work += (t->first[t->skip[i]] - t->first[i]) / 4;
    if (q->run_chars == PI__RUN_INF || (t->n_chars[i] <= q->run_chars && t->n_chars[i] < PI__LONG_TOKEN)) {
        for (uint32_t k = t->first[i]; k < t->first[t->skip[i]]; k++) allow(bits, t->id[k]);
        return true;
    }
    if (t->skip[i] == i + 1) return false; /* node i has no children */
    const uint32_t n = reach(m, to);
    if (n == PI__RUN_INF || n + t->n_before[i] >= PI__LONG_TOKEN) return false;
    allow_short(t, i, n, bits);
    return true;
}

/* If there is a slice for the kinds of the state's run, sets the bits of its tokens and stores it in w->slice. */
static void allow_slice(pi__machine *m, pi__walk *w)
{
    const pi__gstate *q = pi__state_at(m, w->state);
    const pi__slice *s = NULL;
    for (size_t i = 0; i < m->n_slices && q->run_chars; i++)
        if (m->slice[i]->kinds == q->run_kinds) s = m->slice[i];
    if (!s) return;
    uint32_t n = q->run_chars;
    if (n < s->longest) n = reach(m, w->state);
    if (n == PI__RUN_INF && q->run_chars != n) return; /* the limit depends on the characters */
    pi__slice_fill(m->t, s, n, w->bits);
    m->work += s->n / 64;
    w->slice = s;
    w->at = 0;
}

/* ------------------------------------------------------------------------------------------------------------- walk */

static void start_walk(pi__machine *m, pi__walk *w, uint32_t s)
{
    w->state = w->path[0] = s;
    w->at = 1;
    w->depth = 0;
    w->full_at = UINT32_MAX;
    w->stale = false;
    w->slice = NULL;
    w->work = 0;
    memset(w->bits, 0, pi__mask_words(m->t) * sizeof *w->bits);
    m->work += pi__mask_words(m->t) / 16;
    allow_slice(m, w);
    if (pi__state_at(m, s)->by_token) allow_numbers(m, pi__state_at(m, s), w->bits);
    if (m->full || m->wide) w->state = 0;
}

/* Recomputes the states of the path after a collection. */
static bool refresh(pi__machine *m, pi__walk *w)
{
    w->path[0] = w->state;
    for (uint32_t d = 0; d < w->depth; d++) {
        w->path[d + 1] = pi__machine_byte(m, w->path[d], w->text[d]);
        if (w->path[d + 1] == PI__STATE_NONE) return false;
    }
    w->stale = false;
    return true;
}

typedef struct nodes { /* the nodes to walk: all of the trie, or a slice's */
    const uint32_t *node; /* NULL = all nodes of the trie */
    const uint32_t *skip;
    uint32_t end;
} nodes;

static inline uint32_t node_at(const nodes *v, uint32_t k) { return v->node ? v->node[k] : k; }

/* Handles node k, whose state `to` allows one text only: allows the tokens that are prefixes of the text. Returns the
 * next node; if the trie contains the complete text, the walk continues below the text's end. */
static uint32_t follow_text(pi__machine *m, pi__walk *w, const nodes *v, uint32_t k, uint32_t to)
{
    const pi__tokens *t = m->t;
    const uint64_t c = pi__state_at(m, to)->config[0];
    const pi__gnode *x = &m->p->node[c >> 44];
    const uint32_t end = v->skip[k];
    for (uint32_t row = (uint32_t) (c >> 32) & (PI__MAX_SUB - 1); row < x->n; row++) {
        const uint8_t byte = m->p->text[x->a + row];
        const uint32_t stop = v->skip[k], depth = t->depth[node_at(v, k)];
        for (k++; k < stop && t->byte[node_at(v, k)] != byte; k = v->skip[k]) m->work++;
        if (k >= stop) return end;
        m->work++;
        w->path[depth] = PI__STATE_DEAD; /* state for the siblings below this depth */
        w->text[depth] = byte;
        const uint32_t i = node_at(v, k);
        for (uint32_t j = t->first[i]; j < t->first[i + 1]; j++) allow(w->bits, t->id[j]);
    }
    const uint32_t i = node_at(v, k), after = pi__machine_after_text(m, to);
    w->path[t->depth[i]] = after;
    return after != PI__STATE_NONE && allow_run(m, i, after, w->bits) ? v->skip[k] : k + 1;
}

static bool is_text(const pi__machine *m, uint32_t s)
{
    const pi__gstate *q = pi__state_at(m, s);
    return q->n == 1 && !q->ends && m->p->node[q->config[0] >> 44].kind == PI__G_TEXT;
}

/* Visits node k: sets the bits of its tokens if its bytes are allowed. Returns the next node to visit. If m->full or
 * m->wide is set, k must be visited again. */
static uint32_t look_at(pi__machine *m, pi__walk *w, const nodes *v, uint32_t k)
{
    const pi__tokens *t = m->t;
    const uint32_t i = node_at(v, k), depth = t->depth[i], from = w->path[depth - 1];
    if (from == PI__STATE_DEAD) return v->skip[k];
    const uint32_t to = pi__machine_byte(m, from, t->byte[i]);
    if (to <= PI__STATE_DEAD || allow_run(m, i, to, w->bits)) return v->skip[k];
    for (uint32_t j = t->first[i]; j < t->first[i + 1]; j++) allow(w->bits, t->id[j]);
    w->path[depth] = to;
    w->text[depth - 1] = t->byte[i];
    return is_text(m, to) ? follow_text(m, w, v, k, to) : k + 1;
}

static int stopped(pi__machine *m, pi__walk *w)
{
    const bool again = w->full_at == w->at; /* no progress since the tables were last full */
    w->full_at = w->at;
    if (m->wide || again) return w->state = 0, PI__WALK_WIDE;
    return PI__WALK_FULL;
}

/* Counts the mask of w and copies it to the next slot that is not pinned, if one is free. w is idle then. */
static void keep(pi__machine *m, pi__walk *w)
{
    const size_t words = pi__mask_words(m->t);
    w->n = 0;
    w->only = -1;
    for (size_t i = 0; i < words; i++) {
        if (!w->bits[i]) continue;
        w->n += __builtin_popcountll(w->bits[i]);
        w->only = (int32_t) (i * 64) + __builtin_ctzll(w->bits[i]);
    }
    m->n_masks++;
    for (uint32_t tries = 0; tries < PI__MASK_SLOTS; tries++) {
        const uint32_t slot = m->next_slot;
        pi__mask_slot *k = &m->slot[slot];
        m->next_slot = (slot + 1) % PI__MASK_SLOTS;
        if (k->pins) continue;
        if (k->state) pi__state_at(m, k->state)->mask = 0;
        *k = (pi__mask_slot) {.state = w->state, .n = w->n, .only = w->only};
        memcpy(pi__mask_bits(m, (int32_t) slot), w->bits, words * sizeof *w->bits);
        pi__state_at(m, w->state)->mask = slot + 1;
        break;
    }
    w->state = 0;
}

int32_t pi__machine_mask(pi__machine *m, uint32_t s)
{
    const uint32_t c = pi__machine_canon(m, s);
    return c ? (int32_t) pi__state_at(m, c)->mask - 1 : -1;
}

int pi__machine_walk(pi__machine *m, pi__walk *w, uint32_t s, uint64_t steps)
{
    const uint64_t start = m->work;
    const uint32_t c = pi__machine_canon(m, s);
    if (c && w->state != c) start_walk(m, w, c);
    const uint64_t left = PI__MASK_WORK - w->work, limit = start + (steps < left ? steps : left);
    if (m->full || m->wide || (w->stale && !refresh(m, w))) return stopped(m, w);
    const pi__slice *slice = w->slice;
    const nodes v = slice ? (nodes) {slice->node, slice->skip, slice->n_rest}
                          : (nodes) {NULL, m->t->skip, m->t->n_nodes};
    while (w->at < v.end) {
        m->work++;
        const uint32_t next = look_at(m, w, &v, w->at);
        if (m->full || m->wide) return stopped(m, w);
        w->at = next;
        w->depth = next < v.end ? m->t->depth[node_at(&v, next)] - 1 : 0;
        if (m->work < limit) continue;
        w->work += m->work - start;
        if (w->work >= PI__MASK_WORK) return m->wide = true, stopped(m, w);
        return PI__WALK_MORE;
    }
    keep(m, w);
    return PI__WALK_DONE;
}
