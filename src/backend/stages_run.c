/* Execution of a run of the pipeline (see stages.c): the planned segments, for each microbatch in order.
 *
 * If the run has one microbatch, the step thread executes all segments. With several, each stage's thread executes its
 * own segments, in an order that avoids deadlock: task (microbatch g, segment k) is in wave g + k, and a stage executes
 * its tasks wave by wave.
 *
 *     stage 0    (0, 0)  (1, 0)  (2, 0)
 *     stage 1            (0, 1)  (1, 1)  (2, 1)
 *
 * A task waits until its microbatch has completed the segment before, and ends when its device is done. In a captured
 * step a task is one graph segment of its device, copies included, and is only queued (stages_graphs.c). After a
 * failure tasks do nothing, but are still counted as completed, so that no thread waits forever.
 *
 * No memory. Threads: one per stage, which uses the stage's device only during a run of several microbatches; no other
 * thread uses the device then. The fields of `stages` that tasks share do not change during a run, except for those
 * that `lock` guards. Each task reads and writes its own bytes of the host region. */
#include <string.h>

#include "backend/stages_impl.h"
#include "base/error.h"
#include "base/thread.h"

/* Sets *from..*to to the step's tokens in microbatch g. Called only if the run has several microbatches. */
static void tokens_of(const stages *s, int32_t g, size_t *from, size_t *to)
{
    *from = (size_t) s->micro[g].first;
    *to = *from + (size_t) s->micro[g].b.n_tokens;
}

/* Queues the copy of move m's bytes that belong to the tokens of microbatch g. */
static void make_move(stages *s, int32_t stage, const move *m, int32_t g)
{
    char *lo = m->lo, *hi = m->hi;
    if (s->n_runs_of > 1) {
        size_t from, to;
        tokens_of(s, g, &from, &to);
        if (g > 0) lo = m->t.base + from * m->t.row;
        if (g < s->n_runs_of - 1) hi = m->t.base + to * m->t.row;
        if (lo < m->lo) lo = m->lo;
        if (hi > m->hi) hi = m->hi;
    }
    if (lo < hi) pi__stages_copy(s, stage, lo, hi, m->out);
}

/* Returns the stage's address of the first row that the call computes in microbatch g. p: the operand's host
 * address. */
static const void *operand_at(const stages *s, const call *c, const pi__operand *o, const void *p, int32_t g)
{
    const char *at = pi__stages_at(s, c->stage, p);
    if (!c->cut || o->kind >= PI__VECTOR) return at;
    const int64_t first = s->micro[g].first, each = o->n / s->given->n_tokens;
    /* In the table of operands, x of copy_2d is a single row. */
    const pi__copy_2d *copy = c->op.id == PI__OP_copy_2d && o->kind == PI__READ ? &c->op.args.copy_2d : NULL;
    if (copy) return at + first * (copy->n_rows / s->given->n_tokens) * copy->ldx * 4;
    return at + first * each * o->ld * 4;
}

/* Executes a call for microbatch g on its stage. own: the stage's batch; NULL = the call needs none. */
static void make_call(stages *s, const call *c, int32_t g, const pi__batch *own)
{
    pi__op_record r = c->op;
    pi__operands o;
    pi__operands_of(r.id, r.b, &c->op.args, &o);
    for (int32_t i = 0; i < o.n; i++) {
        const pi__operand *p = &o.op[i];
        const void *at = pi__operand_get(&c->op.args, p);
        stage *k = &s->stage[c->stage];
        if (p->kind <= PI__VECTOR) pi__operand_set(&r.args, p, operand_at(s, c, p, at, g));
        else if (p->kind == PI__ADAPTERS)
            pi__operand_set(&r.args, p, pi__lora_local_of(&k->lora, at, pi__stages_pairs_at, k));
        else if (p->kind == PI__TOKENS && own && at == s->given->logits_indices)
            pi__operand_set(&r.args, p, own->logits_indices);
        else if (p->kind == PI__TOKENS && own && at == s->given->hidden_row)
            pi__operand_set(&r.args, p, own->hidden_row);
        else if (p->kind == PI__TOKENS && c->cut)
            pi__operand_set(&r.args, p, (const int32_t *) at + s->micro[g].first * (p->width / s->given->n_tokens));
    }
    if (c->cut && o.rows_at >= 0) {
        int32_t *n_rows = (int32_t *) (void *) ((char *) &r.args + o.rows_at);
        *n_rows = *n_rows / s->given->n_tokens * s->micro[g].b.n_tokens;
    }
    const pi__batch *b = !r.b ? NULL : r.b == s->given ? own : own->logits_batch;
    pi__op_run(s->be.at[c->stage], r.id, b, &r.args);
}

/* Executes segment k of microbatch g and waits for the device; in a captured step, only queues it. */
static void make_task(stages *s, int32_t g, int32_t k)
{
    const segment *seg = &s->segment[k];
    pi__backend *be = s->be.at[seg->stage];
    const pi__batch *own = NULL;
    pi_error err = {0};
    if (atomic_load(&s->failed)) return;
    if (s->own[seg->stage]) own = s->own[seg->stage];
    if (s->captures) pi__stages_begin_turn(s, seg->stage);
    else if (seg->in_step && !own) own = be->dev->begin(be, s->n_runs_of > 1 ? &s->micro[g].b : s->given, PI__STEP_ANY);
    /* Without begin, finish makes the device current in this thread, as begin would. */
    else if (be->dev->finish(be, &err)) pi__stages_fail(s, &err);
    for (int32_t i = 0; i < s->n_moves; i++)
        if (!s->move[i].out && s->move[i].segment == k) make_move(s, seg->stage, &s->move[i], g);
    for (int32_t i = seg->first; i < seg->first + seg->n; i++) make_call(s, &s->calls[i], g, own);
    for (int32_t i = 0; i < s->n_moves; i++)
        if (s->move[i].out && s->move[i].segment == k) make_move(s, seg->stage, &s->move[i], g);
    if (s->captures) pi__stages_end_turn(s, seg->stage);
    else if (be->dev->finish(be, &err)) pi__stages_fail(s, &err);
}

/* ------------------------------------------------------------------------------------------------------ the threads */

static void task_of_stage(stages *s, int32_t g, int32_t k)
{
    pthread_mutex_lock(&s->lock);
    while (s->reached[g] != k) pthread_cond_wait(&s->moved, &s->lock);
    pthread_mutex_unlock(&s->lock);
    make_task(s, g, k);
    pthread_mutex_lock(&s->lock);
    s->reached[g]++;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

static void *stage_main(void *arg)
{
    const stage *own = arg;
    stages *s = own->s;
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (s->run_no == seen && !s->quit) pthread_cond_wait(&s->wake, &s->lock);
        seen = s->run_no;
        const bool quit = s->quit;
        pthread_mutex_unlock(&s->lock);
        if (quit) return NULL;
        for (int32_t wave = 0; wave < s->n_runs_of + s->n_segments - 1; wave++)
            for (int32_t k = 0; k < s->n_segments; k++)
                if (s->segment[k].stage == own->i && wave >= k && wave - k < s->n_runs_of)
                    task_of_stage(s, wave - k, k);
        pthread_mutex_lock(&s->lock);
        s->n_done++;
        pthread_cond_broadcast(&s->moved);
        pthread_mutex_unlock(&s->lock);
    }
}

void pi__stages_run(stages *s)
{
    if (s->n_runs_of < 2) {
        for (int32_t k = 0; k < s->n_segments; k++) make_task(s, 0, k);
        return;
    }
    pthread_mutex_lock(&s->lock);
    memset(s->reached, 0, sizeof s->reached);
    s->n_done = 0;
    s->run_no++;
    pthread_cond_broadcast(&s->wake);
    while (s->n_done < s->n) pthread_cond_wait(&s->moved, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

int pi__stages_start(stages *s, pi_error *err)
{
    for (int32_t i = 0; i < s->n; i++) {
        stage *k = &s->stage[i];
        if (k->started) continue;
        k->s = s, k->i = i;
        if (!pi__thread_start(&k->thread, stage_main, k))
            return pi__fail(err, PI_ENOMEM, "cannot start a device's thread");
        k->started = true;
    }
    return PI_OK;
}

void pi__stages_stop(stages *s)
{
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    for (int32_t i = 0; i < s->n; i++)
        if (s->stage[i].started) pthread_join(s->stage[i].thread, NULL);
}
