/* Captured steps (step.c): the table of shapes, and capture and replay of segments. The runtime owns the graphs. The
 * step thread. */
#include "backend/cuda/impl.h"

#include <string.h>

cuda_captured *pi__cuda_find_shape(pi__cuda *c, const cuda_shape *s)
{
    for (int i = 0; i < PI__CUDA_MAX_SHAPES; i++) {
        const cuda_shape *has = &c->recorded[i].shape;
        const bool same =
            has->kind == s->kind && has->n_seqs == s->n_seqs && has->each == s->each && has->rows == s->rows;
        if (same && has->keys == s->keys && has->top == s->top && has->lora == s->lora) return &c->recorded[i];
    }
    return NULL;
}

/* Frees a shape's graphs and clears its entry. */
static void drop(pi__cuda *c, cuda_captured *r)
{
    /* Example: a table of captured steps with four entries and at most six graphs. A shape is sequences x tokens per
     * sequence, keys (and kind, here decode, and logits rows). u: `used`, the last step of the shape. g: n_graphs,
     * its captured segments (1 where a step is captured in one piece).
     *
     *     entry             0                1                2                3          in all
     *     before    [ 4x1 255 u7 g2 ][ 8x1 255 u3 g2 ][ 1x1 255 u9 g2 ][ 2x1 255 u5 g0 ]     6
     *
     * Case 1: step 10 is 16x1, which has no entry, and no entry is free. entry_for() reuses the least recently used
     * one:
     *     after     [ 4x1 255 u7 g2 ][16x1 255 u10 g0][ 1x1 255 u9 g2 ][ 2x1 255 u5 g0 ]     4
     *
     * Case 2: step 10 is 2x1, seen before. It is captured, and as six graphs exist, make_room() drops the least
     * recently used other entry with graphs. Two segments fit; a third one drops 4x1:
     *     after     [ 4x1 255 u7 g2 ][     free      ][ 1x1 255 u9 g2 ][2x1 255 u10 g0 ]     4
     *
     * Case 3: pi__cuda_graph_reset(), before the link of several devices is destroyed:
     *     after     [     free      ][     free      ][     free      ][     free      ]     0
     *
     * A dropped shape counts as new when it returns: its ops are queued once, and captured the second time. */
    for (int32_t i = 0; i < PI__CUDA_MAX_SEGMENTS && r->n_graphs; i++) pi__rt_graph_free(c->rt, r->segment[i]);
    c->n_graphs -= r->n_graphs;
    c->graph_bytes -= r->bytes;
    memset(r, 0, sizeof *r);
}

/* Returns the shape's entry, and marks it as the most recently used. A shape without an entry gets a free one; else
 * it replaces the least recently used one, and frees its graphs. */
static cuda_captured *entry_for(pi__cuda *c, const cuda_shape *s)
{
    cuda_captured *r = pi__cuda_find_shape(c, s), *old = &c->recorded[0];
    for (int i = 1; i < PI__CUDA_MAX_SHAPES; i++)
        if (c->recorded[i].used < old->used) old = &c->recorded[i];
    if (!r) {
        r = old;
        drop(c, r);
        r->shape = *s;
    }
    r->used = ++c->n_steps;
    return r;
}

/* Frees the graphs of the least recently used other shapes until one more graph of this step fits. A new graph is
 * estimated to take as much device memory as the largest so far. Returns false if it cannot fit. */
static bool make_room(pi__cuda *c)
{
    /* no byte limit if joined: devices may measure different sizes, and must drop the same shapes */
    const size_t most = c->joined ? 0 : c->info.graph_bytes;
    while (c->n_graphs >= PI__CUDA_MAX_GRAPHS || (most && c->graph_bytes + c->largest_graph > most)) {
        cuda_captured *old = NULL;
        for (cuda_captured *r = c->recorded; r < c->recorded + PI__CUDA_MAX_SHAPES; r++)
            if (r != c->now && r->n_graphs && (!old || r->used < old->used)) old = r;
        if (!old) return false;
        pi__cuda_record_error(c, pi__rt_wait(c->rt)); /* an unfinished step may be using the graph */
        drop(c, old);
    }
    return true;
}

void pi__cuda_free_graphs(pi__cuda *c)
{
    for (int i = 0; i < PI__CUDA_MAX_SHAPES; i++) drop(c, &c->recorded[i]);
    c->now = NULL;
}

void pi__cuda_begin_segment(pi__cuda *c)
{
    cuda_captured *r = c->now;
    const int32_t i = c->n_segments++;
    if (r && r->n_segments < c->n_segments) r->n_segments = c->n_segments;
    if (!r || i >= PI__CUDA_MAX_SEGMENTS || pi__cuda_failed(c)) return;
    if (r->segment[i]) {
        pi__cuda_record_error(c, pi__rt_replay(c->rt, r->segment[i]));
        c->replayed = true;
    } else if (make_room(c)) {
        pi__cuda_record_error(c, pi__rt_capture(c->rt));
        c->becomes = pi__cuda_failed(c) ? NULL : &r->segment[i];
    }
}

void pi__cuda_keep_graph(pi__cuda *c, bool wanted)
{
    pi__rt_graph **to = c->becomes, *made;
    c->becomes = NULL;
    if (!to) return;
    pi__cuda_record_error(c, pi__rt_capture_end(c->rt, &made));
    if (pi__cuda_failed(c) || !wanted) {
        pi__rt_graph_free(c->rt, made);
        return;
    }
    *to = c->made = made;
    const size_t bytes = pi__rt_graph_size(made);
    c->now->bytes += bytes;
    c->graph_bytes += bytes;
    if (bytes > c->largest_graph) c->largest_graph = bytes;
    c->now->n_graphs++;
    c->n_graphs++;
}

void pi__cuda_end_segment(pi__cuda *c, bool wanted)
{
    pi__cuda_keep_graph(c, wanted);
    c->replayed = false;
    if (c->made && wanted && !pi__cuda_failed(c)) pi__cuda_record_error(c, pi__rt_replay(c->rt, c->made));
    c->made = NULL;
}

void pi__cuda_look_up(pi__cuda *c, const cuda_shape *s)
{
    cuda_captured *r = entry_for(c, s);
    if (r->seen) c->now = r;
    if (!pi__cuda_failed(c)) r->seen = true;
}
