/* Records the calls of a step and runs them on all ranks (see tensor.c). No memory: the list of calls belongs to the
 * object. Threads: the step thread. */
#include <string.h>

#include "backend/tensor_impl.h"
#include "base/error.h"

/* ------------------------------------------------------------------------------------------------------------- runs */

/* Sets t->rc and t->err from the first rank with an error: first from ranks that failed themselves, then from ranks
 * that left because of others, then from lost ranks without an error code. Clears the ranks' lost and failed. */
static void keep_error(pi__tensor *t)
{
    const bool dead = t->ranks && atomic_load(&t->ranks->dead);
    if (dead && !t->rc) t->rc = pi__fail(&t->err, t->rank[0].rc, "%s", t->rank[0].err.msg);
    for (int32_t pass = 0; pass < 3; pass++)
        for (int32_t i = 0; i < t->n && !t->rc; i++) {
            const rank *k = &t->rank[i];
            const bool own = k->failed || !k->lost;
            if (k->rc && (own || pass))
                t->rc = pi__fail(&t->err, k->rc, "device %d of %d: %s", i + 1, t->n, k->err.msg);
            else if (k->lost && pass == 2)
                t->rc = pi__fail(&t->err, PI_EDEVICE, "device %d of %d: the other devices did not respond", i + 1,
                                 t->n);
        }
    for (int32_t i = 0; i < t->n; i++) t->rank[i].lost = t->rank[i].failed = false;
    t->any_lost = false;
}

/* Executes the recorded calls on every rank, in this process and in others. ends: also waits until the devices have
 * done them, and collects errors. */
static void run(pi__tensor *t, bool ends)
{
    const bool told = pi__order_run(t, ends);
    pthread_mutex_lock(&t->lock);
    t->ends = ends;
    t->n_done = 0;
    t->run_no++;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    if (!told) t->rank[0].lost = true;
    pi__tensor_run_rank(&t->rank[0]);
    pthread_mutex_lock(&t->lock);
    while (t->n_done < t->end - t->first - 1) pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
    pi__order_run_end(t, ends);
    if (ends) keep_error(t);
    t->n_calls = 0;
}

pi__tensor *pi__tensor_settled(pi__backend *be)
{
    pi__tensor *t = (pi__tensor *) be;
    if (t->n_calls) run(t, true);
    return t;
}

call *pi__tensor_record_op(pi__tensor *t, void (*run_one)(rank *k, const call *c))
{
    if (t->n_calls == MAX_CALLS) run(t, false);
    call *c = &t->calls[t->n_calls++];
    c->run = run_one;
    return c;
}

static int tensor_finish(pi__backend *be, pi_error *err)
{
    pi__tensor *t = (pi__tensor *) be;
    run(t, true);
    int rc = t->rc;
    if (rc) pi__fail(err, rc, "%s", t->err.msg);
    t->rc = PI_OK;
    be->n_attended = be->n_possible = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const rank *k = &t->rank[i];
        be->n_attended += k->be ? k->be->n_attended : k->n_attended;
        be->n_possible += k->be ? k->be->n_possible : k->n_possible;
    }
    return rc;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* Determines if the devices will replay the step, and its padding, before they begin it; records the beginning of the
 * step. */
static const pi__batch *note_begin(pi__backend *be, const pi__batch *b, int kind)
{
    pi__tensor *t = (pi__tensor *) be;
    const rank *first = &t->rank[t->first];
    int32_t n = b->n_seqs;
    /* the hash of the adapters' ranks selects the graph; worker ranks do not have these ranks */
    if (b->lora.n_runs && t->ranks) kind = PI__STEP_ANY;
    t->given = b;
    t->kind = kind;
    t->n_met = 0;
    t->replays = kind != PI__STEP_ANY && first->be->opt->graph_lookup &&
                 first->be->opt->graph_lookup(first->be, b, kind, &n);
    t->b = *b;
    const int32_t more = n > b->n_seqs ? (n - b->n_seqs) * (b->n_tokens / b->n_seqs) : 0; /* padding tokens */
    const int32_t rows = more ? (n - b->n_seqs) * (b->n_rows / b->n_seqs) : 0;
    t->b.n_tokens += more, t->b.n_rows += rows, t->b.n_seqs = n;
    if (b->logits_batch) {
        t->logits_batch = *b->logits_batch;
        t->logits_batch.n_tokens += rows, t->logits_batch.n_seqs = n;
        t->b.logits_batch = &t->logits_batch;
    }
    if (!t->replays) t->embd_rows[kind] = 0;
    pi__tensor_record_op(t, pi__tensor_run_begin);
    return t->replays ? NULL : &t->b;
}

static void note(pi__tensor *t, pi__op_id id, const pi__batch *b, const void *args)
{
    call *c = pi__tensor_record_op(t, pi__tensor_run_of(id));
    c->op.id = id;
    c->op.b = b;
    memcpy(&c->op.args, args, pi__op_size(id));
}

/* Records op embed, and the rows per rank of a sharded embedding, from which number_tokens assigns tokens to ranks. */
static void note_embed(pi__backend *be, const pi__batch *b, const pi__embed *a)
{
    pi__tensor *t = (pi__tensor *) be;
    note(t, PI__OP_embed, b, a);
    if (pi__tensor_is_cut(t, a->w)) t->embd_rows[t->kind] = a->w->n_out / t->n;
}

static void tensor_download(pi__backend *be, void *dst, const void *src, size_t n)
{
    call *c = pi__tensor_record_op((pi__tensor *) be, pi__tensor_run_download);
    c->download.dst = dst, c->download.src = src, c->download.n = n;
}

#define NOTE(name, type)                                                                                               \
    static void note_any_##name(pi__backend *be, const pi__batch *b, const type *a)                                    \
    {                                                                                                                  \
        note((pi__tensor *) be, PI__OP_##name, b, a);                                                                  \
    }
PI__OPS(NOTE)
#undef NOTE

void pi__tensor_set_calls(pi__tensor *t)
{
    const pi__backend *can = t->rank[t->first].be;
    t->dev.begin = note_begin;
    t->dev.finish = tensor_finish;
    t->dev.download = tensor_download;
#define SET(name, type) t->ops.name = can->ops->name ? note_any_##name : NULL;
    PI__OPS(SET)
#undef SET
    t->ops.embed = note_embed;
}
