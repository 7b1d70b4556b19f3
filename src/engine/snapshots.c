/* Reuse points of prefixes: their choice, snapshots of recurrent states at them, and restoring a snapshot.
 *
 * Keys and values of a prefix can be reused at any block boundary, a recurrent state only at a snapshot. A snapshot
 * is worth its bytes where another request is likely to continue:
 *
 *   the end of the prompt        the next turn, or the same prompt again.
 *   the beginning of a turn      a conversation that is edited or answered again there.
 *   the end of the answer        the next turn, if the template keeps the answer unchanged.
 *   the first scored token       another answer to the same prompt is scored.
 *   the ends of sparse prefill   a longer prompt is sparse where this one, close to its end, is dense.
 *   the end of an image          another question about the same image.
 *   a branch                     this prompt differs from a cached one after it, or a waiting prompt from this one.
 *   a coarse grid                everything else: limits recomputation to one interval.
 *
 * All are rounded down to block boundaries (of sparse prefill in its span), since only complete blocks can be reused.
 * Snapshots are taken within the step that passes the position, so prefill chunks are not cut for them. Their pool
 * evicts the least recently used ones.
 *
 * Sliding windows use the same points: of the blocks before the window, only the windows of reuse points are worth
 * keeping. One thread. */
#include "engine/snapshots.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

int pi__snapshots_init(pi__snapshots *sn, const pi__snapshots_config *config, pi_error *err)
{
    *sn = (pi__snapshots) {.config = *config};
    sn->save = pi__calloc((size_t) config->max_saves, sizeof *sn->save);
    sn->saving = pi__calloc((size_t) config->max_saves, sizeof *sn->saving);
    if (sn->save && sn->saving) return PI_OK;
    pi__snapshots_destroy(sn);
    return pi__fail_mem(err, "snapshots of a step");
}

size_t pi__snapshots_bytes(int32_t max_saves) { return (size_t) max_saves * (sizeof(pi__save) + sizeof(pi__saving)); }

void pi__snapshots_destroy(pi__snapshots *sn)
{
    pi__free(sn->save);
    pi__free(sn->saving);
    memset(sn, 0, sizeof *sn);
}

int32_t pi__max_saves(int32_t block_size, int32_t max_tokens, int32_t max_seqs)
{
    return max_tokens / block_size + max_seqs;
}

static const pi__cache_group *group_of(const pi__snapshots *sn) { return &sn->config.cache->group[sn->config.group]; }

static bool takes_snapshots(const pi__snapshots *sn, const pi__seq *s)
{
    return sn->config.group >= 0 && group_of(sn)->spec.n_blocks > 0 && s->cacheable;
}

/* True at the block boundaries around the end of an image: another question about the image continues there. */
static bool ends_image(const pi__seq *s, int32_t n, int32_t bs)
{
    const int32_t k = s->images.n ? pi__images_from(&s->images, n - bs) : 0;
    if (k == s->images.n) return false;
    const int32_t end = s->images.at[k].start + s->images.at[k].n;
    return n == end / bs * bs || n == (end + bs - 1) / bs * bs;
}

/* True at reuse points that are known without looking at the tokens, except for the grid. */
static bool is_reuse_point(const pi__seq *s, int32_t n, int32_t bs)
{
    const bool scored = s->params.logits == PI__LOGITS_ALL &&
                        n == pi__span_cut(&s->sparse, s->params.logits_from / bs * bs);
    const bool ends = n && (n == s->sparse.from || n == s->sparse.end);
    return scored || ends || ends_image(s, n, bs) || n == (s->n_prompt - 1) / bs * bs || n == s->save.branch ||
           n == s->save.requested;
}

bool pi__reuse_point(void *ud, int32_t row, int32_t n)
{
    const pi__snapshots *sn = ud;
    const pi__seq *s = sn->config.row_seq[row];
    /* where this sequence continued, others may */
    return is_reuse_point(s, n, sn->config.cache->reuse_block) || n == s->n_found;
}

/* Returns the tokens between snapshots of the grid; one long request takes at most a quarter of the pool. */
static int32_t grid_of(const pi__snapshots *sn, const pi__seq *s)
{
    int32_t share = group_of(sn)->spec.n_blocks / 4, grid = sn->config.interval;
    if (share < 1) share = 1;
    while (s->n_tokens / grid > share) grid *= 2;
    return grid;
}

static bool turn_starts(const pi__snapshots *sn, const pi__seq *s, int32_t from, int32_t to)
{
    for (int32_t p = from; p < to && p < s->n_prompt; p++)
        for (int32_t k = 0; k < sn->config.n_turn_ids; k++)
            if (s->tokens[p] == sn->config.turn_id[k]) return true;
    return false;
}

/* True if position pos, a multiple of the block size bs, is worth a snapshot. */
static bool worth_it(const pi__snapshots *sn, const pi__seq *s, int32_t pos, int32_t bs, int32_t grid)
{
    if (is_reuse_point(s, pos, bs) || pos % grid == 0) return true;
    return pos - s->save.last >= grid / 4 &&
           turn_starts(sn, s, pos, pos + (pi__in_span(&s->sparse, pos) ? s->sparse.step : bs));
}

void pi__snapshots_plan(pi__snapshots *sn, pi__seq *s, int32_t to)
{
    if (!takes_snapshots(sn, s)) return;
    int32_t bs = group_of(sn)->spec.block_size, grid = grid_of(sn, s);
    for (int32_t pos = s->n_computed / bs * bs + bs; pos <= to; pos += bs) {
        if (pi__span_cut(&s->sparse, pos) != pos || !worth_it(sn, s, pos, bs, grid)) continue;
        s->save.last = pos;
        int32_t id = pi__cache_snapshot(sn->config.cache, s->row, sn->config.group, s->tokens, pos);
        if (id < 0) continue;
        pi__assert(sn->n_saving < sn->config.max_saves);
        sn->save[sn->n_saving] = (pi__save){pos, id};
        sn->saving[sn->n_saving++] = (pi__saving){s, pos, id};
    }
}

void pi__snapshots_done(pi__snapshots *sn, bool good)
{
    for (int32_t i = 0; i < sn->n_saving; i++) {
        const pi__saving *v = &sn->saving[i];
        const pi__seq *s = v->seq;
        pi__cache_snapshot_done(sn->config.cache, s->row, sn->config.group, s->tokens, v->pos, v->id, good);
        sn->config.stats->n_snapshots_saved += good;
    }
    sn->n_saving = 0;
}

void pi__snapshot_last(pi__snapshots *sn, pi__seq *s)
{
    if (!takes_snapshots(sn, s)) return;
    pi__backend *be = sn->config.be;
    int32_t pos = s->n_computed / PI__STATE_CHUNK * PI__STATE_CHUNK;
    if (!pos || pos % group_of(sn)->spec.block_size) return; /* the state slot can only be read at a chunk boundary */
    int32_t id = pi__cache_snapshot(sn->config.cache, s->row, sn->config.group, s->tokens, pos);
    if (id < 0) return;
    for (int32_t i = 0; i < sn->config.n_layers; i++)
        pi__op_state_save(be, NULL,
                          &(pi__state_copy) {.st = &sn->config.layer[i], .slot = s->row, .pos = pos, .snap = id});
    pi__cache_snapshot_done(sn->config.cache, s->row, sn->config.group, s->tokens, pos, id, true);
    sn->config.stats->n_snapshots_saved++;
}

void pi__snapshot_restore(pi__snapshots *sn, pi__seq *s)
{
    pi__backend *be = sn->config.be;
    if (sn->config.group < 0) return;
    int32_t id = sn->config.cache->seq[s->row].snapshot[sn->config.group];
    s->save.last = s->n_computed;
    if (id < 0) return; /* no snapshot: the sequence starts with a zero state */
    const int32_t pos = s->n_computed;
    for (int32_t i = 0; i < sn->config.n_layers; i++)
        pi__op_state_load(be, NULL,
                          &(pi__state_copy) {.st = &sn->config.layer[i], .slot = s->row, .pos = pos, .snap = id});
    sn->config.stats->n_snapshots_restored++;
}
