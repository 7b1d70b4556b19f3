/* Who runs in a step.
 *
 * There is no prefill phase and no decode phase: each request has n_computed catching up with n_tokens. A step has a
 * budget of tokens. First come the sequences that miss one token (decoders), then running prompts in chunks, then new
 * requests in order. Nobody who streams is ever left out for a prompt, and a prompt takes all that is left.
 *
 * A prompt of very many steps shares with those behind it; a prompt whose beginning somebody is computing right now waits
 * for it instead of computing it again.
 *
 * Out of blocks: the last in order is preempted. It loses its table (its full blocks stay findable until they are
 * needed), goes back to the waiting list and later computes again what was evicted.
 *
 * Only the step thread is here. */
#include "engine/core_impl.h"

enum {
    LONG_PROMPT = 4, /* a prompt of more steps than this leaves half of the budget to those behind it */
    MAX_TRIES = 64,  /* waiting requests looked at in a step */
};

bool pi__seq_keeps(const pi__core *e, const pi__seq *s)
{
    return (s->params.cache || s->family) && e->cfg.prefix_cache;
}

int32_t pi__seq_most(const pi__seq *s)
{
    const bool rows = s->params.logits == PI__LOGITS_ALL && s->n_rows_given < s->n_prompt;
    return rows ? s->n_rows_given : s->n_tokens - 1;
}

static bool before(const pi__core *e, const pi__seq *a, const pi__seq *b)
{
    if (e->cfg.policy == PI__POLICY_PRIORITY && a->params.priority != b->params.priority)
        return a->params.priority < b->params.priority;
    return a->arrival < b->arrival;
}

void pi__list_insert(pi__core *e, pi__seq_list *l, pi__seq *s)
{
    pi__seq *at = l->tail; /* new ones are mostly the last */
    while (at && before(e, s, at)) at = at->prev;
    s->prev = at;
    s->next = at ? at->next : l->head;
    if (s->next) s->next->prev = s;
    else l->tail = s;
    if (at) at->next = s;
    else l->head = s;
    l->n++;
}

void pi__list_remove(pi__seq_list *l, pi__seq *s)
{
    if (s->prev) s->prev->next = s->next;
    else l->head = s->next;
    if (s->next) s->next->prev = s->prev;
    else l->tail = s->prev;
    s->prev = s->next = NULL;
    l->n--;
}

void pi__seq_drop_row(pi__core *e, pi__seq *s, bool intact)
{
    if (s->row < 0) return;
    if (intact) pi__snapshot_last(e, s);
    pi__tiers_touch(e, s);
    pi__cache_release(&e->cache, s->row);
    e->row_seq[s->row] = NULL;
    s->row = -1;
    s->n_computed = 0;
}

/* Returns what of the budget it gives back. */
static int32_t preempt(pi__core *e, pi__seq *s)
{
    int32_t back = s->n_new;
    s->n_new = s->n_draft = 0;
    s->fetches = 0; /* what it loses the tiers may have when it comes back */
    s->n_preempted++;
    e->st.n_preempted++;
    pi__seq_drop_row(e, s, true);
    pi__list_remove(&e->running, s);
    pi__list_insert(e, &e->waiting, s);
    pi__logf(&e->cfg.log, PI_LOG_DEBUG, "request %llu is preempted: out of cache blocks", (unsigned long long) s->arrival);
    return back;
}

/* Takes up to n tokens of s into the step, at the cost of those behind it. false: s itself had to go. */
static bool take(pi__core *e, pi__seq *s, int32_t n, int32_t *budget, bool *preempted)
{
    while (!pi__cache_reserve(&e->cache, s->row, s->n_computed + n)) {
        if (pi__offload_yield(e)) continue;
        pi__seq *victim = e->running.tail;
        *preempted = true;
        *budget += preempt(e, victim);
        if (victim == s) return false;
    }
    s->n_new = n;
    *budget -= n;
    return true;
}

/* Blocks for all of its tokens are there, computed in chunks of the step budget. */
static bool has_room(const pi__core *e, const pi__seq *s)
{
    for (int32_t i = 0; i < e->cache.n_groups; i++) {
        const pi__cache_group *g = &e->cache.group[i];
        int32_t held = e->cache.seq[s->row].n_blocks[i] - e->cache.seq[s->row].n_freed[i];
        if (pi__group_need(&g->spec, s->n_tokens, e->lim.max_tokens) - held > pi__block_available(&g->pool)) return false;
    }
    return true;
}

/* Somebody is computing a longer part of s's prompt than the cache holds: waiting for that is cheaper than doing it
 * again. He makes progress in every step, so s does not wait for long; and he keeps a snapshot where s will leave him. */
static bool better_to_wait(const pi__core *e, const pi__seq *s, int32_t got)
{
    const int32_t most = pi__seq_most(s);
    for (pi__seq *r = e->running.head; r; r = r->next) {
        if (r->n_computed >= r->n_prompt || !pi__seq_keeps(e, r)) continue;
        int32_t common = pi__cache_common(&e->cache, s->row, r->row);
        if (common > most) common = most;
        common -= common % e->cache.reuse_block;
        if (common <= got || r->n_computed >= common) continue;
        if (r->save_asked <= r->n_computed || common < r->save_asked) r->save_asked = common;
        return true;
    }
    return false;
}

enum admission { ADMITTED, NO_ROOM, LATER };

/* A waiting sequence gets a row and whatever prefix is there. */
static enum admission admit(pi__core *e, pi__seq *s)
{
    int32_t row = 0;
    while (row < e->lim.max_seqs && e->row_seq[row]) row++;
    if (row == e->lim.max_seqs) return NO_ROOM;
    s->row = row;
    pi__cache_start(&e->cache, row, s->params.salt);
    if (s->family) pi__cache_start_private(&e->cache, row, s->family->root);
    int32_t wanted = 0, got = 0;
    bool reuse = pi__seq_keeps(e, s);
    if (reuse) got = pi__cache_match(&e->cache, row, s->tokens, pi__seq_most(s) + 1, &wanted);
    enum admission a = !has_room(e, s) ? NO_ROOM
                       : reuse && (better_to_wait(e, s, got) || pi__tiers_wait(e, s, got)) ? LATER : ADMITTED;
    if (a != ADMITTED) {
        pi__cache_release(&e->cache, row);
        s->row = -1;
        return a;
    }
    e->row_seq[row] = s;
    s->n_computed = s->n_found = got;
    s->save_branch = wanted > got ? wanted : 0;
    s->no_hidden = true;
    pi__snapshot_restore(e, s);
    if (!s->t_start) {
        s->t_start = pi__now_ms();
        s->n_cached = got;
        s->n_wanted = wanted;
        e->st.prompt_tokens += (unsigned) s->n_prompt;
        e->st.cached_tokens += (unsigned) got;
        e->st.n_prefix_hits += got > 0;
    }
    pi__list_remove(&e->waiting, s);
    pi__list_insert(e, &e->running, s);
    return ADMITTED;
}

/* What a prompt may take of the budget: all of it, unless it is one of many steps and others wait behind it. */
static int32_t chunk_of(const pi__core *e, const pi__seq *s, int32_t budget)
{
    int32_t missing = s->n_tokens - s->n_computed;
    bool others = e->waiting.n > 0;
    for (const pi__seq *r = s->next; r && !others; r = r->next) others = r->n_tokens - r->n_computed > 1;
    if (others && missing > LONG_PROMPT * e->lim.max_tokens) budget = (budget + 1) / 2;
    return missing < budget ? missing : budget;
}

static void admit_waiting(pi__core *e, int32_t *budget, bool *preempted)
{
    int tries = MAX_TRIES;
    for (pi__seq *s = e->waiting.head, *next; s && *budget > 0 && !*preempted && tries-- > 0; s = next) {
        next = s->next;
        enum admission a = admit(e, s);
        if (a == LATER) continue;
        if (a == NO_ROOM || !take(e, s, chunk_of(e, s, *budget), budget, preempted)) return;
    }
}

/* What is left of the budget goes to prompts that held back for others. */
static void use_the_rest(pi__core *e, int32_t budget)
{
    for (pi__seq *s = e->running.head; s && budget > 0; s = s->next) {
        int32_t missing = s->n_tokens - s->n_computed - s->n_new, more = missing < budget ? missing : budget;
        if (!s->n_new || more <= 0) continue;
        if (!pi__cache_reserve(&e->cache, s->row, s->n_computed + s->n_new + more)) return;
        s->n_new += more;
        budget -= more;
    }
}

/* Drafts are verified where there is room for them. */
static void take_drafts(pi__core *e, int32_t *budget)
{
    for (pi__seq *s = e->running.head; s; s = s->next) {
        int32_t n = s->n_draft < *budget ? s->n_draft : *budget;
        if (n <= 0 || s->n_new != 1 || s->n_tokens - s->n_computed != 1) continue;
        if (!pi__cache_reserve(&e->cache, s->row, s->n_tokens + n)) continue;
        s->n_new += n;
        *budget -= n;
    }
}

int32_t pi__schedule(pi__core *e)
{
    int32_t budget = e->lim.max_tokens, used = 0;
    bool preempted = false;
    for (pi__seq *s = e->running.head; s; s = s->next) s->n_new = 0;
    for (int pass = 0; pass < 2; pass++) { /* decoders, then prompts */
        for (pi__seq *s = e->running.head, *next; s && budget > 0; s = next) {
            next = s->next;
            int32_t missing = s->n_tokens - s->n_computed;
            if ((missing == 1) != (pass == 0) || s->n_new) continue;
            if (!take(e, s, pass ? chunk_of(e, s, budget) : 1, &budget, &preempted)) break;
            next = s->next; /* those behind it may be gone */
        }
        if (pass == 0) take_drafts(e, &budget);
    }
    admit_waiting(e, &budget, &preempted);
    use_the_rest(e, budget);
    for (pi__seq *s = e->running.head; s; s = s->next) used += s->n_new;
    return used;
}
