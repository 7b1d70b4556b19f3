/* Execution of a run of a tensor-parallel backend on one rank (see tensor.c): the recorded calls, the rank's graph, and
 * the wait for its queue. tensor_record.c begins the runs. No memory. Threads: the ranks' own, which this file
 * starts and ends; rank 0 runs on the step thread. */
#include <string.h>

#include "backend/tensor_impl.h"
#include "base/error.h"
#include "base/thread.h"

void pi__tensor_graph_reset(rank *k)
{
    if (k->be->opt->graph_reset) k->be->opt->graph_reset(k->be);
}

/* Marks the rank as lost, wakes the ranks that wait in pi__tensor_meet, and leaves the link. */
static void leave(rank *k)
{
    pi__link *l = k->t->link;
    k->lost = true;
    pthread_mutex_lock(&k->t->lock);
    k->t->any_lost = true;
    pthread_cond_broadcast(&k->t->made);
    pthread_mutex_unlock(&k->t->lock);
    pi__tensor_graph_reset(k);
    if (l) l->ops->leave(l, k->i);
}

/* In a step that may be captured: makes this rank's graph, and waits until all ranks of this process have made theirs.
 * Only then may a graph be replayed, because on its device it waits for the other ranks. All ranks call this at the
 * same position in their calls. If a rank has left, the others do not wait. */
void pi__tensor_meet(rank *k)
{
    pi__tensor *t = k->t;
    if (k->met || t->kind == PI__STEP_ANY || t->replays || !k->be->opt->make_graph) return;
    k->met = true;
    if (!k->be->opt->make_graph(k->be)) k->lost = k->failed = true;
    pthread_mutex_lock(&t->lock);
    t->n_met++;
    t->any_lost |= k->lost;
    pthread_cond_broadcast(&t->made);
    while (t->n_met < t->end - t->first && !t->any_lost) pthread_cond_wait(&t->made, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

/* Replays the rank's graph if there is one, and waits for its queued work, all-gathers included. Leaves the link on
 * failure. */
static void end_rank(rank *k)
{
    const pi__device_opt *opt = k->be->opt;
    pi__link *l = k->t->link;
    int how = PI__LINK_DONE;
    if (opt->end_capture && !opt->end_capture(k->be)) how = PI__LINK_FAILED;
    else if (l) how = l->ops->wait(l, k->i);
    k->failed = how == PI__LINK_FAILED;
    if (how != PI__LINK_DONE) leave(k);
}

void pi__tensor_run_rank(rank *k)
{
    pi__tensor *t = k->t;
    const bool was_lost = k->lost;
    for (int32_t i = 0; i < t->n_calls && !k->lost; i++) t->calls[i].run(k, &t->calls[i]);
    if (t->ends && !k->lost) pi__tensor_meet(k);
    if (k->lost && !was_lost) leave(k);
    if (!t->ends) return;
    if (!k->lost) end_rank(k);
    memset(&k->err, 0, sizeof k->err);
    k->rc = k->be->dev->finish(k->be, &k->err);
}

static void *rank_main(void *arg)
{
    rank *k = arg;
    pi__tensor *t = k->t;
    uint64_t seen = 0;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->run_no == seen && !t->quit) pthread_cond_wait(&t->wake, &t->lock);
        if (t->quit) break;
        seen = t->run_no;
        pthread_mutex_unlock(&t->lock);
        pi__tensor_run_rank(k);
        pthread_mutex_lock(&t->lock);
        t->n_done++;
        pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

void pi__tensor_run_download(rank *k, const call *c)
{
    pi__tensor_meet(k); /* a download ends the capture, so all ranks make their graphs first */
    if (!k->i && !k->lost) k->be->dev->download(k->be, c->download.dst, c->download.src, c->download.n);
}

int pi__tensor_start_ranks(pi__tensor *t, pi_error *err)
{
    for (int32_t i = t->first + 1; i < t->end; i++) {
        rank *k = &t->rank[i];
        if (!pi__thread_start(&k->thread, rank_main, k))
            return pi__fail(err, PI_ENOMEM, "cannot start a device's thread");
        k->started = true;
    }
    return PI_OK;
}

void pi__tensor_stop_ranks(pi__tensor *t)
{
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    for (int32_t i = t->first; i < t->end; i++)
        if (t->rank[i].started) pthread_join(t->rank[i].thread, NULL);
}
