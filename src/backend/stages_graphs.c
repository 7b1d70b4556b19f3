/* Captured decode steps of a pipeline (see stages.c).
 *
 * A decode step is one of kind SEGMENTS to each stage, begun on all before the first op: they pad it alike. A run's segments are
 * graph segments then, with the copies that lie between stages, as these are from and to the host's region, at the same
 * addresses each time. The queue of a stage waits for the segment before, on whichever device that is, and the host for none:
 *
 *     stage 0    [ image ]  [ graph 0: embed .. , x out ]
 *     stage 1    [ image ]            waits               [ graph 0: x in, .. , topk, found out ]
 *
 * Which segments there are is the same in all steps of a shape, as nothing that ops wrote before the step is read in it but
 * caches and states, so that each begins with all bytes equal everywhere. When a step has been called in which nothing was copied
 * beside its segments, their order is kept, with what the plan has left; and from then on, while all stages have the graphs of that
 * shape, a step is these, and no op is called.
 *
 *     step of a shape    first: queued op by op    second: captured, then replayed    third: replayed, no op is called
 *
 * Where more ops were noted than a run takes, bytes may have to be copied beside the segments: these are replayed all the same,
 * but ops are called, and planned, in every step.
 *
 * A step that is fed ahead is queued before the one before it has ended. Each stage then waits for the stage that finds the tokens,
 * and takes them from where its mark brings them, in the host's memory. So no stage begins the step before all have ended the
 * last one, and the region between the stages is nobody's when it is written again:
 *
 *     stage 0    [ graph 0 ]                        waits   [ tokens ][ graph 0 ]
 *     stage 1          waits  [ graph 0 ][ found, mark ][ tokens ]        waits  [ graph 0 ] ..
 *     host       queues n, n + 1 ..      waits for the mark of n, reads, queues n + 2
 *
 * Adapters come with a step as each stage has them.
 *
 * No memory. Threads: the step thread. Invariant: an entry of s->captured is of a step of which all was queued, and of no step that
 * was waited for since it is known that it failed. */
#include <string.h>

#include "backend/stages_impl.h"
#include "backend/top_shape.h"
#include "base/assert.h"

/* A step's shape, as one of so many sequences. */
static captured shape_of(const stages *s, const pi__batch *b, int32_t n_seqs)
{
    captured c = {.n_seqs = n_seqs, .each = b->n_tokens / b->n_seqs, .rows = b->n_rows / b->n_seqs};
    c.top = pi__top_shape(&b->top, &s->draw);
    if (b->lora.n_runs) c.lora = pi__lora_ranks(&b->lora) | 1;
    return c;
}

static bool same_shape(const captured *a, const captured *b)
{
    return a->n_seqs == b->n_seqs && a->each == b->each && a->rows == b->rows && a->top == b->top && a->lora == b->lora;
}

/* What a step as b does, where all stages have its graphs; NULL: its ops have to be called. */
static captured *find_whole(stages *s, const pi__batch *b)
{
    int32_t n_seqs = 0;
    for (int32_t i = 0; i < s->n; i++)
        if (!s->be.at[i]->dev->graph_lookup(s->be.at[i], b, PI__STEP_SEGMENTS, &n_seqs)) return NULL;
    const captured is = shape_of(s, b, n_seqs);
    for (captured *c = s->captured; c < s->captured + MAX_CAPTURED; c++)
        if (same_shape(c, &is)) return c;
    return NULL;
}

void pi__stages_begin_turn(stages *s, int32_t stage)
{
    pi__backend *be = s->be.at[stage];
    if (s->turn >= 0 && s->turn != stage) be->dev->follow(be, s->be.at[s->turn]);
    s->turn = stage;
    be->dev->graph_segment(be);
}

/* What went wrong is told by finish. */
static void end_turn(stages *s, int32_t stage)
{
    pi__backend *be = s->be.at[stage];
    pi_error err = {0};
    if (!be->dev->end_capture(be) && be->dev->finish(be, &err)) pi__stages_fail(s, &err);
}

void pi__stages_end_turn(stages *s, int32_t stage)
{
    end_turn(s, stage);
    if (s->now.n_turns == MAX_TURNS) s->whole = false;
    else s->now.turn[s->now.n_turns++] = (uint8_t) stage;
}

static void replay(stages *s, captured *c)
{
    for (int32_t i = 0; i < c->n_turns && !atomic_load(&s->failed); i++) {
        pi__stages_begin_turn(s, c->turn[i]);
        end_turn(s, c->turn[i]);
    }
    c->used = ++s->n_replayed;
    s->last = c->last;
    s->n_ranges = c->n_left;
    memcpy(s->range, c->left, (size_t) c->n_left * sizeof *c->left);
}

/* The step on one stage: its tokens, if they were found by another, and its adapters where it has them. */
static void begin_on(stages *s, int32_t i, const pi__batch *b, bool fed)
{
    pi__backend *be = s->be.at[i];
    pi__batch *here = &s->stage[i].given;
    *here = *b;
    if (fed && i != s->finder) be->dev->follow(be, s->be.at[s->finder]);
    if (fed) be->dev->feed(be, s->found, s->n_found);
    if (b->lora.n_runs) here->lora = *pi__lora_local_of(&s->stage[i].lora, &b->lora, pi__stages_pairs_at, &s->stage[i]);
    s->own[i] = be->dev->begin(be, here, PI__STEP_SEGMENTS);
}

const pi__batch *pi__stages_begin_decode(stages *s, const pi__batch *b, bool fed)
{
    for (int32_t i = 0; i < s->n && s->draw.row; i++) s->be.at[i]->dev->draw(s->be.at[i], &s->draw);
    captured *c = find_whole(s, b);
    for (int32_t i = 0; i < s->n; i++) begin_on(s, i, b, fed);
    s->step = *s->own[0];
    s->step.lora = b->lora;
    s->given = &s->step;
    for (int32_t i = 1; i < s->n; i++) pi__assert(s->own[i]->n_seqs == s->given->n_seqs);
    s->n_ranges = 0;
    s->turn = -1;
    s->queued = true;
    if (c) {
        replay(s, c);
        return NULL;
    }
    s->captures = s->whole = true;
    s->now = shape_of(s, b, s->given->n_seqs);
    return s->given;
}

/* The step's entry: that of its shape, a free one, or the one used longest ago. */
static captured *entry_for(stages *s, const captured *now)
{
    captured *to = s->captured;
    for (captured *c = s->captured; c < s->captured + MAX_CAPTURED; c++) {
        if (same_shape(c, now)) return c;
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
