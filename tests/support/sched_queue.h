/* A scheduler over the real cache, without a model, for tests of single rules.
 *
 * A test adds sequences, plans a step and looks at n_new, row and the plan. queue_complete plays the runner: every
 * draft is rejected, and each sequence whose tokens are all computed gets one more. Prompts of queue_new share no
 * prefix with each other. One thread. */
#ifndef SCHED_QUEUE_H
#define SCHED_QUEUE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/sched.h"

enum { QUEUE_CTX = 600, QUEUE_BLOCK = 16, QUEUE_BLOCKS = 256 };

typedef struct queue {
    pi__cache cache;           /* block tables and prefixes */
    pi__stats stats;           /* counters */
    pi__sched sched;           /* under test */
    uint64_t n;                /* sequences added */
    bool masks_late;           /* no grammar mask is ready */
    bool tiers_load;           /* the tiers load blocks of every prefix */
    int32_t pinned[8];         /* blocks of group 0 that the yield hook unpins */
    int32_t n_pinned;          /* in pinned */
    int n_yields;              /* calls of the yield hook that unpinned a block */
    /* rows of images that begin before this position are there; an open queue has all rows */
    int32_t rows_until;
} queue;

/* Zero fields: one row, one full group of QUEUE_BLOCKS blocks, first come first served, no hooks needed. */
typedef struct queue_config {
    int32_t rows;              /* max running sequences */
    int32_t n_blocks;          /* blocks of the full group */
    pi__group_spec other;      /* second group; block_size 0 = none */
    bool by_priority;          /* see pi__sched_config */
    double max_wait_ms;        /* see pi__sched_config */
    int32_t min_prefill;     /* see pi__sched_config */
} queue_config;

static inline bool queue_yield(void *ud)
{
    queue *q = ud;
    if (!q->n_pinned) return false;
    pi__block_hold(&q->cache.group[0].pool, q->pinned[--q->n_pinned], false);
    q->n_yields++;
    return true;
}

static inline bool queue_wait(void *ud, pi__seq *s, int32_t got)
{
    (void) s, (void) got;
    return ((queue *) ud)->tiers_load;
}

static inline bool queue_ready(void *ud, pi__seq *s)
{
    (void) s;
    return !((queue *) ud)->masks_late;
}

static inline int32_t queue_images(void *ud, pi__seq *s, int32_t n)
{
    const int32_t left = ((queue *) ud)->rows_until - s->n_computed;
    return left < n ? left : n;
}

static inline void queue_open_with(queue *q, queue_config c)
{
    const int32_t rows = c.rows ? c.rows : 1;
    const pi__group_spec spec[] = {{"full", QUEUE_BLOCK, 0, c.n_blocks ? c.n_blocks : QUEUE_BLOCKS, false, 0}, c.other};
    const pi__sched_config sched = {.max_seqs = rows, .by_priority = c.by_priority, .max_wait_ms = c.max_wait_ms,
                                    .min_prefill = c.min_prefill,
                                    .hooks = {q, queue_yield, queue_wait, queue_ready, NULL, NULL, queue_images}};
    *q = (queue) {.rows_until = QUEUE_CTX};
    assert_int_equal(pi__cache_init(&q->cache, spec, 1 + (c.other.block_size > 0), rows, QUEUE_CTX, NULL), PI_OK);
    assert_int_equal(pi__sched_init(&q->sched, &sched, &q->cache, &q->stats, NULL), PI_OK);
}

/* Makes a sequence with a prompt of n tokens. The caller may change its fields before queue_put. */
static inline pi__seq *queue_new(queue *q, int32_t n)
{
    pi__seq *s = calloc(1, sizeof *s);
    s->tokens = calloc(QUEUE_CTX + 1, sizeof *s->tokens);
    s->row = -1;
    s->n_tokens = s->n_prompt = n;
    s->max_total = QUEUE_CTX;
    s->arrival = ++q->n;
    for (int32_t i = 0; i < n; i++) s->tokens[i] = (int32_t) s->arrival * 1000 + i;
    s->t.submit = pi__now_ms();
    return s;
}

static inline pi__seq *queue_put(queue *q, pi__seq *s)
{
    pi__sched_add(&q->sched, s);
    return s;
}

static inline pi__seq *queue_add(queue *q, int32_t n) { return queue_put(q, queue_new(q, n)); }

/* Adds a sequence whose blocks are reusable. `like` is NULL, or a sequence with the same prompt. */
static inline pi__seq *queue_add_cached(queue *q, int32_t n, const pi__seq *like)
{
    pi__seq *s = queue_new(q, n);
    s->cacheable = s->params.cache = true;
    if (like) memcpy(s->tokens, like->tokens, (size_t) n * sizeof *s->tokens);
    return queue_put(q, s);
}

static inline void queue_end(queue *q, pi__seq *s)
{
    pi__sched_remove(&q->sched, s, true);
    free(s->tokens);
    free(s);
}

/* Completes the step: its tokens are computed, and sequences without an uncomputed token get the next one. */
static inline void queue_complete(queue *q, const pi__step_plan *p)
{
    for (int32_t i = 0; i < p->n_seqs; i++) {
        pi__seq *s = p->seq[i];
        const int32_t missing = s->n_tokens - s->n_computed;
        s->n_computed += s->n_new < missing ? s->n_new : missing;
        pi__cache_commit(&q->cache, s->row, s->tokens, s->n_computed, s->cacheable);
        if (s->n_computed == s->n_tokens) s->tokens[s->n_tokens++] = 7;
    }
}

/* Plans and completes one step. */
static inline void queue_step(queue *q, int32_t budget) { queue_complete(q, pi__schedule(&q->sched, budget)); }

/* Adds a sequence and runs a step that computes its prompt of n tokens, at most 64: it decodes from then on. */
static inline pi__seq *queue_add_decoding(queue *q, int32_t n)
{
    pi__seq *s = queue_add(q, n);
    queue_step(q, 64 + q->sched.running.n);
    assert_int_equal(s->n_tokens - s->n_computed, 1);
    return s;
}

/* Takes free blocks of group 0 out of the pool until n are left. */
static inline void queue_leave_blocks(queue *q, int32_t n)
{
    pi__block_pool *p = &q->cache.group[0].pool;
    while (pi__block_available(p) > n) assert_true(pi__block_get_new(p) >= 0);
    assert_int_equal(pi__block_available(p), n);
}

/* Pins n free blocks of group 0, as copies to a tier do. */
static inline void queue_pin_blocks(queue *q, int32_t n)
{
    pi__block_pool *p = &q->cache.group[0].pool;
    for (int32_t id = p->head; n > 0; n--, id = p->block[id].next) {
        assert_true(id >= 0);
        pi__block_hold(p, id, true);
        q->pinned[q->n_pinned++] = id;
    }
}

static inline void queue_close(queue *q)
{
    while (q->n_pinned) pi__block_hold(&q->cache.group[0].pool, q->pinned[--q->n_pinned], false);
    while (q->sched.running.n) queue_end(q, q->sched.running.head);
    while (q->sched.waiting.n) queue_end(q, q->sched.waiting.head);
    pi__sched_destroy(&q->sched);
    pi__cache_destroy(&q->cache);
}

#endif
