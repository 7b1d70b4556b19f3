/* Places to go on from: which they are, snapshots of recurrent states there, and going on from one.
 *
 * Keys and values of a prefix can be taken over at any block; a recurrent state only where somebody kept a copy. A copy is
 * worth its bytes where another request is likely to go on from:
 *
 *   the end of the prompt        the next turn, or the same prompt again
 *   the beginning of a turn      a conversation that is edited or answered anew there
 *   the end of the answer        the next turn, if the template keeps the answer as it was
 *   the first scored token       another answer to the same prompt is scored
 *   a branch                     where this prompt left one that the cache knows, or a waiting one will leave this one
 *   a sparse grid                everything else: so much is computed again at most
 *
 * all rounded down to whole blocks, since nothing else can be taken over. Snapshots are taken inside of the step that
 * passes the position, so that prompts need no cuts. Their pool evicts those that were used longest ago.
 *
 * Windows are alike: of what lies behind them, only the windows of such places are worth keeping. One thread. */
#include "engine/core_impl.h"

static const pi__cache_group *group_of(const pi__core *e) { return &e->cache.group[e->state_group]; }

static bool takes_snapshots(const pi__core *e, const pi__seq *s)
{
    return e->state_group >= 0 && group_of(e)->spec.n_blocks > 0 && pi__seq_keeps(e, s);
}

/* The places that are known without looking at the tokens, but for the grid. */
static bool is_place(const pi__seq *s, int32_t n, int32_t bs)
{
    const bool scored = s->params.logits == PI__LOGITS_ALL && n == s->params.logits_from / bs * bs;
    return scored || n == (s->n_prompt - 1) / bs * bs || n == s->save_branch || n == s->save_asked;
}

bool pi__place(void *ud, int32_t row, int32_t n)
{
    const pi__core *e = ud;
    const pi__seq *s = e->row_seq[row];
    return is_place(s, n, e->cache.reuse_block) || n == s->n_found; /* where one went on, others may */
}

/* Tokens between the snapshots of the grid: one long request takes a quarter of the pool at most. */
static int32_t grid_of(const pi__core *e, const pi__seq *s)
{
    int32_t share = group_of(e)->spec.n_blocks / 4, grid = e->cfg.snapshot_interval;
    if (share < 1) share = 1;
    while (s->n_tokens / grid > share) grid *= 2;
    return grid;
}

static bool turn_starts(const pi__core *e, const pi__seq *s, int32_t from, int32_t to)
{
    for (int32_t p = from; p < to && p < s->n_prompt; p++)
        for (int32_t k = 0; k < e->n_turn_ids; k++)
            if (s->tokens[p] == e->turn_id[k]) return true;
    return false;
}

/* pos is a multiple of the block size bs. */
static bool worth_it(const pi__core *e, const pi__seq *s, int32_t pos, int32_t bs, int32_t grid)
{
    if (is_place(s, pos, bs) || pos % grid == 0) return true;
    return pos - s->saved >= grid / 4 && turn_starts(e, s, pos, pos + bs);
}

void pi__snapshots_plan(pi__core *e, int32_t q, int32_t to)
{
    pi__seq *s = e->step_seq[q];
    if (!takes_snapshots(e, s)) return;
    int32_t bs = group_of(e)->spec.block_size, grid = grid_of(e, s);
    for (int32_t pos = s->n_computed / bs * bs + bs; pos <= to; pos += bs) {
        if (!worth_it(e, s, pos, bs, grid)) continue;
        s->saved = pos;
        int32_t id = pi__cache_snapshot(&e->cache, s->row, e->state_group, s->tokens, pos);
        if (id < 0) continue;
        e->save[e->n_saving] = (pi__save){pos, id};
        e->saving[e->n_saving++] = (pi__saving){q, pos, id};
    }
}

void pi__snapshots_done(pi__core *e, bool good)
{
    for (int32_t i = 0; i < e->n_saving; i++) {
        const pi__saving *v = &e->saving[i];
        const pi__seq *s = e->step_seq[v->seq];
        pi__cache_snapshot_done(&e->cache, s->row, e->state_group, s->tokens, v->pos, v->id, good);
        e->st.n_saved += good;
    }
    e->n_saving = 0;
}

void pi__snapshot_last(pi__core *e, pi__seq *s)
{
    if (!takes_snapshots(e, s)) return;
    int32_t pos = s->n_computed / PI__STATE_CHUNK * PI__STATE_CHUNK;
    if (!pos || pos % group_of(e)->spec.block_size) return; /* the slot has no other boundary */
    int32_t id = pi__cache_snapshot(&e->cache, s->row, e->state_group, s->tokens, pos);
    if (id < 0) return;
    for (int32_t i = 0; i < e->m->n_state; i++) pi__op_state_save(e->be, NULL, &(pi__state_copy) {.st = &e->m->state[i], .slot = s->row, .pos = pos, .snap = id});
    pi__cache_snapshot_done(&e->cache, s->row, e->state_group, s->tokens, pos, id, true);
    e->st.n_saved++;
}

void pi__snapshot_restore(pi__core *e, pi__seq *s)
{
    if (e->state_group < 0) return;
    int32_t id = e->cache.seq[s->row].snapshot[e->state_group];
    s->saved = s->n_computed;
    if (id < 0) return; /* the first token starts from zeros */
    for (int32_t i = 0; i < e->m->n_state; i++) pi__op_state_load(e->be, NULL, &(pi__state_copy) {.st = &e->m->state[i], .slot = s->row, .pos = s->n_computed, .snap = id});
    e->st.n_restored++;
}
