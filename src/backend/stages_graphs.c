/* Captured decode steps of a pipeline (see stages.c).
 *
 * A decode step is one of kind SEGMENTS to each stage, begun on all before the first op: they pad it alike. A run's segments are
 * graph segments then, with the copies that lie between stages, as these are from and to the host's region, at the same
 * addresses each time. The host waits for a segment before the next one begins, on whichever device that is:
 *
 *     stage 0    [ image ]  [ graph 0: embed .. , x out ]
 *     stage 1    [ image ]                                [ graph 0: x in, .. , topk, found out ]
 *     host                                         waits                                   waits
 *
 * Which segments there are is the same in all steps of a shape, as nothing that ops wrote before the step is read in it but
 * caches and states, so that each begins with all bytes equal everywhere. When a step has run in which nothing was copied beside
 * its segments, their order is kept, with what the plan has left; and from then on, while all stages have the graphs of that
 * shape, a step is these, and no op is called.
 *
 *     step of a shape    first: queued op by op    second: captured, then replayed    third: replayed, no op is called
 *
 * Where more ops were noted than a run takes, bytes may have to be copied beside the segments: these are replayed all the same,
 * but ops are called, and planned, in every step.
 *
 * No memory. Threads: the step thread. Invariant: an entry of s->captured is of a step that ended well, and no step has failed
 * since. */
#include <string.h>

#include "backend/stages_impl.h"
#include "base/assert.h"

static int32_t what_is_asked(const pi__batch *b) { return b->top.request ? 2 * b->top.k + b->top.sum : 0; }

/* The entry of steps with so many sequences that are as b otherwise; NULL: there is none. */
static captured *find(stages *s, const pi__batch *b, int32_t n_seqs)
{
    const int32_t each = b->n_tokens / b->n_seqs, rows = b->n_rows / b->n_seqs, top = what_is_asked(b);
    for (captured *c = s->captured; c < s->captured + MAX_CAPTURED; c++)
        if (c->n_seqs == n_seqs && c->each == each && c->rows == rows && c->top == top) return c;
    return NULL;
}

/* What a step as b does, where all stages have its graphs; NULL: its ops have to be called. */
static captured *find_whole(stages *s, const pi__batch *b)
{
    int32_t n_seqs = 0;
    for (int32_t i = 0; i < s->n; i++)
        if (!s->be.at[i]->dev->graph_lookup(s->be.at[i], b, PI__STEP_SEGMENTS, &n_seqs)) return NULL;
    return find(s, b, n_seqs);
}

static void replay(stages *s, captured *c)
{
    pi_error err = {0};
    for (int32_t i = 0; i < c->n_turns && !atomic_load(&s->failed); i++) {
        pi__backend *be = s->be.at[c->turn[i]];
        be->dev->graph_segment(be);
        if (be->dev->finish(be, &err)) pi__stages_fail(s, &err);
    }
    c->used = ++s->n_replayed;
    s->last = c->last;
    s->n_ranges = c->n_left;
    memcpy(s->range, c->left, (size_t) c->n_left * sizeof *c->left);
}

const pi__batch *pi__stages_begin_decode(stages *s, const pi__batch *b)
{
    captured *c = find_whole(s, b);
    for (int32_t i = 0; i < s->n; i++) s->own[i] = s->be.at[i]->dev->begin(s->be.at[i], b, PI__STEP_SEGMENTS);
    s->given = s->own[0];
    for (int32_t i = 1; i < s->n; i++) pi__assert(s->own[i]->n_seqs == s->given->n_seqs);
    s->n_ranges = 0;
    if (c) {
        replay(s, c);
        return NULL;
    }
    s->captures = s->whole = true;
    s->now = (captured) {.n_seqs = s->given->n_seqs, .each = b->n_tokens / b->n_seqs, .rows = b->n_rows / b->n_seqs,
                         .top = what_is_asked(b)};
    return s->given;
}

void pi__stages_took_turn(stages *s, int32_t stage)
{
    if (s->now.n_turns == MAX_TURNS) s->whole = false;
    else s->now.turn[s->now.n_turns++] = (uint8_t) stage;
}

/* The step's entry: that of its shape, a free one, or the one used longest ago. */
static captured *entry_for(stages *s, const captured *now)
{
    captured *to = s->captured;
    for (captured *c = s->captured; c < s->captured + MAX_CAPTURED; c++) {
        if (c->n_seqs == now->n_seqs && c->each == now->each && c->rows == now->rows && c->top == now->top) return c;
        if (c->used < to->used) to = c;
    }
    return to;
}

void pi__stages_end_segments(stages *s)
{
    const bool failed = atomic_load(&s->failed);
    if (failed) memset(s->captured, 0, sizeof s->captured);
    if (s->captures && s->whole && !failed && s->now.n_turns && s->n_ranges <= MAX_LEFT) {
        s->now.used = ++s->n_replayed;
        s->now.last = s->last;
        s->now.n_left = s->n_ranges;
        memcpy(s->now.left, s->range, (size_t) s->n_ranges * sizeof *s->range);
        *entry_for(s, &s->now) = s->now;
    }
    s->captures = false;
}
