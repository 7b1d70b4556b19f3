/* Captured decode steps of a pipeline (see stages.c).
 *
 * Each stage sees a decode step as a step of kind SEGMENTS. The step begins on all stages before the first op, and all
 * stages add the same padding. The segments of a run (calls on one stage) are then graph segments. They include the
 * copies between stages, which go through the host region at the same addresses each time. Before a segment, its
 * stage's queue waits for the previous segment on the other stage; the host does not wait:
 *
 *     stage 0    [ image ]  [ graph 0: embed .. , x out ]
 *     stage 1    [ image ]            waits               [ graph 0: x in, .. , topk, found out ]
 *
 * All steps of a shape have the same segments. A step reads nothing that ops wrote before it, except caches and
 * states, so it begins with an empty list of ranges. After a step without copies outside its segments, the order of its
 * segments is stored, together with the plan's final ranges. From then on, while all stages have the graphs of that
 * shape, a step replays these graphs and no op is called.
 *
 *     step of a shape    first: queued op by op    second: captured, then replayed    third: replayed, no op is called
 *
 * If a step has more ops than fit in a run, bytes may have to be copied outside the segments. Then the devices still
 * replay their graphs, but ops are called, and planned, in every step.
 *
 * A step of kind FED is queued before the previous one has ended. Each stage then waits for the stage that finds the
 * previous step's tokens, and reads them from host memory, where that stage's mark writes them. So no stage begins the
 * step before all stages have ended the last one, and the host region is unused when it is written again:
 *
 *     stage 0    [ graph 0 ]                        waits   [ tokens ][ graph 0 ]
 *     stage 1          waits  [ graph 0 ][ found, mark ][ tokens ]        waits  [ graph 0 ] ..
 *     host       queues n, n + 1 ..      waits for the mark of n, reads, queues n + 2
 *
 * Each stage gets a copy of the batch with the adapters' addresses on that stage.
 *
 * No memory. Threads: the step thread. Invariant: every entry of s->captured is a step that was captured and queued
 * completely. All entries are dropped after a failure. */
#include <string.h>

#include "backend/stages_impl.h"
#include "backend/top_shape.h"
#include "base/assert.h"

/* Returns the shape of the step b as a `captured` without segments. n_seqs: sequences including padding. */
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

/* Returns the entry for b's shape, if there is one and all stages have its graphs; NULL = the step's ops have to be
 * called. */
static captured *find_whole(stages *s, const pi__batch *b)
{
    int32_t n_seqs = 0;
    for (int32_t i = 0; i < s->n; i++)
        if (!s->be.at[i]->opt->graph_lookup(s->be.at[i], b, PI__STEP_SEGMENTS, &n_seqs)) return NULL;
    const captured is = shape_of(s, b, n_seqs);
    for (captured *c = s->captured; c < s->captured + MAX_CAPTURED; c++)
        if (same_shape(c, &is)) return c;
    return NULL;
}

void pi__stages_begin_turn(stages *s, int32_t stage)
{
    pi__backend *be = s->be.at[stage];
    if (s->turn >= 0 && s->turn != stage) be->opt->follow(be, s->be.at[s->turn]);
    s->turn = stage;
    be->opt->graph_segment(be);
}

/* Ends the graph segment on this stage and queues it. Records an error. */
static void end_turn(stages *s, int32_t stage)
{
    pi__backend *be = s->be.at[stage];
    pi_error err = {0};
    if (!be->opt->end_capture(be) && be->dev->finish(be, &err)) pi__stages_fail(s, &err);
}

void pi__stages_end_turn(stages *s, int32_t stage)
{
    end_turn(s, stage);
    if (s->now.n_turns == MAX_TURNS) s->whole = false;
    else s->now.turn[s->now.n_turns++] = (uint8_t) stage;
}

/* Queues the graphs of the captured step c, in order, and restores the state after the step: ranges and last stage. */
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

/* Begins the step b on stage i, with the adapters' addresses on that stage. fed: the stage takes its token ids from
 * s->found, after s->finder, the stage of the last topk, has written them. */
static void begin_on(stages *s, int32_t i, const pi__batch *b, bool fed)
{
    pi__backend *be = s->be.at[i];
    pi__batch *here = &s->stage[i].given;
    *here = *b;
    if (fed && i != s->finder) be->opt->follow(be, s->be.at[s->finder]);
    if (fed) be->opt->feed(be, s->found, s->n_found);
    if (b->lora.n_runs) here->lora = *pi__lora_local_of(&s->stage[i].lora, &b->lora, pi__stages_pairs_at, &s->stage[i]);
    s->own[i] = be->dev->begin(be, here, PI__STEP_SEGMENTS);
}

const pi__batch *pi__stages_begin_decode(stages *s, const pi__batch *b, bool fed)
{
    for (int32_t i = 0; i < s->n && s->draw.row; i++) s->be.at[i]->opt->draw(s->be.at[i], &s->draw);
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

/* Returns the entry to store a step in: the entry of its shape, or a free one, or the least recently used. */
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
