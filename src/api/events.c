/* Events from the step thread to callers: queues, pi_poll, the descriptor, the dispatch thread for callbacks (see
 * objects.h).
 *
 * Memory: TEXT nodes are allocated as needed. A sample's DONE node and a request's PROMPT node are embedded, so their
 * events are never lost when memory runs out. A sample has at most one TEXT node in a queue. New text is appended to
 * that node, which bounds the queue by the length of the answers. A request has at most one PROGRESS node likewise.
 * Threads: any; each function says whether the engine's lock is held. Invariant: a node in a list holds a reference
 * to its request. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/events.h"
#include "api/lifetime.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"

/* ----------------------------------------------------------------------------------------------------------- lists */

static void list_append(pi__node_list *l, pi__node *n)
{
    n->prev = l->tail;
    n->next = NULL;
    if (l->tail) l->tail->next = n;
    else l->head = n;
    l->tail = n;
}

static void list_remove(pi__node_list *l, pi__node *n)
{
    if (n->prev) n->prev->next = n->next;
    else l->head = n->next;
    if (n->next) n->next->prev = n->prev;
    else l->tail = n->prev;
    n->prev = n->next = NULL;
}

static void node_free_buffers(pi__node *n)
{
    pi__free(n->text);
    pi__free(n->ids);
    pi__free(n->probs);
    pi__free(n->values);
    n->text = NULL;
    n->ids = NULL;
    n->probs = NULL;
    n->values = NULL;
}

/* lock held: frees the node's buffers, frees the node unless it is embedded, and drops its reference to the request.
 * Returns the request if that was the last reference, else NULL: the caller destroys it without the lock. */
static pi_request *node_release(pi__node *n)
{
    pi_request *r = n->ev.request;
    n->state = PI__NODE_IDLE;
    node_free_buffers(n);
    if (!n->embedded) pi__free(n);
    return pi__request_unref(r) ? r : NULL;
}

/* ------------------------------------------------------------------------------------------------------ descriptor */

/* lock held: makes the descriptor readable if and only if pi_poll has events. */
static void update_fd(pi_engine *e)
{
    bool want = e->queue.head != NULL;
    if (!e->has_fd || want == e->fd_set) return;
    uint64_t v = 1;
    ssize_t k = want ? write(e->fd, &v, sizeof v) : read(e->fd, &v, sizeof v);
    if (k == sizeof v) e->fd_set = want;
}

int pi_poll_fd(const pi_engine *ce)
{
    pi_engine *e = (pi_engine *) ce;
    if (!e) return PI_EINVAL;
    pthread_mutex_lock(&e->lock);
    e->has_fd = true;
    update_fd(e);
    pthread_mutex_unlock(&e->lock);
    return e->fd;
}

/* --------------------------------------------------------------------------------------------------------- pushing */

/* lock held: appends n to the list for callbacks or the list for pi_poll. */
static void enqueue_event(pi_request *r, pi__node *n)
{
    pi_engine *e = r->e;
    n->state = PI__NODE_QUEUED;
    r->ref++;
    if (r->on_event) {
        list_append(&e->push, n);
        pthread_cond_signal(&e->pushed);
    } else {
        list_append(&e->queue, n);
        if (e->n_pollers) pthread_cond_signal(&e->polled);
        update_fd(e);
    }
}

void pi__events_recheck(pi_engine *e)
{
    if (!e->n_open && e->n_pollers) pthread_cond_broadcast(&e->polled);
}

/* Reserves memory for one more token with n_text bytes of text. false = out of memory: the contents of n are
 * unchanged, but its arrays may have moved. The event, which may be queued already, always points to the current
 * arrays. */
static bool node_room(pi__node *n, size_t n_text, size_t n_probs)
{
    bool ok = pi__grow(&n->text, &n->cap_text, n->ev.text_len + n_text + 1, 1) &&
              pi__grow(&n->ids, &n->cap_ids, n->ev.n_tokens + 1, sizeof *n->ids) &&
              (!n_probs || pi__grow(&n->probs, &n->cap_probs, (n->ev.n_tokens + 1) * n_probs, sizeof *n->probs));
    n->ev.text = n->text ? n->text : "";
    n->ev.tokens = n->ids;
    n->ev.logprobs = n->probs;
    return ok;
}

static void node_fill(pi__node *n, int32_t id, const pi_token_prob *probs, size_t n_probs, const char *text,
                      size_t n_text)
{
    if (n_text) memcpy(n->text + n->ev.text_len, text, n_text);
    n->ev.text_len += n_text;
    n->text[n->ev.text_len] = 0;
    if (n_probs) memcpy(n->probs + n->ev.n_tokens * n_probs, probs, n_probs * sizeof *probs);
    n->ids[n->ev.n_tokens++] = id;
    n->ev.n_logprobs = n_probs;
}

bool pi__event_text(pi__sample *s, const pi__token_out *t, const char *text, size_t n)
{
    pi_request *r = s->r;
    if (r->freed) return true;
    pi__node *node = s->open_text;
    size_t n_probs = t->probs ? (size_t) r->n_probs : 0;
    if (!node) {
        node = pi__calloc(1, sizeof *node);
        if (!node) return false;
        node->ev = (pi_event) {.size = sizeof node->ev, .kind = PI_EVENT_TEXT, .request = r, .text = "",
                               .index = s->index};
    }
    if (!node_room(node, n, n_probs)) {
        if (node != s->open_text) {
            node_free_buffers(node);
            pi__free(node);
        }
        return false;
    }
    node_fill(node, t->id, t->probs, n_probs, text, n);
    node->ev.calls_bound |= t->calls_bound;
    node->ev.user = r->user;
    if (node != s->open_text) enqueue_event(r, node);
    s->open_text = node;
    return true;
}

void pi__event_progress(pi_request *r, uint32_t n_computed, uint32_t n_cached, double ms)
{
    pi__node *n = r->open_progress;
    if (r->freed) return;
    if (!n) {
        n = pi__calloc(1, sizeof *n);
        if (!n) return;
        n->ev = (pi_event) {.size = sizeof n->ev, .kind = PI_EVENT_PROGRESS, .request = r, .text = "", .user = r->user,
                            .n_prompt = (uint32_t) r->n_prompt};
        r->open_progress = n;
        enqueue_event(r, n);
    }
    n->ev.n_computed = n_computed;
    n->ev.n_cached = n_cached;
    n->ev.prompt_ms = ms;
}

void pi__event_prompt(pi_request *r)
{
    if (r->freed) return;
    r->prompt_event.ev.user = r->user;
    enqueue_event(r, &r->prompt_event);
}

void pi__event_done(pi__sample *s, char *text, size_t n)
{
    pi_request *r = s->r;
    pi__node *d = &s->done;
    s->open_text = NULL; /* close it: no more text is appended */
    if (!r->on_event && !r->freed && !r->n_live) r->e->n_open--;
    if (r->freed) {
        pi__free(text);
        pi__events_recheck(r->e);
        return;
    }
    d->text = text;
    d->ev = (pi_event) {.size = sizeof d->ev, .kind = PI_EVENT_DONE, .request = r, .user = r->user,
                        .text = text ? text : "", .text_len = text ? n : 0,
                        .finish_reason = s->result.finish_reason, .code = s->result.code, .index = s->index,
                        .n_left = r->n_live};
    enqueue_event(r, d);
}

void pi__events_drop(pi_request *r)
{
    pi_engine *e = r->e;
    pi__node_list *l = r->on_event ? &e->push : &e->queue;
    for (pi__node *n = l->head, *next; n; n = next) {
        next = n->next;
        if (n->ev.request != r) continue;
        list_remove(l, n);
        node_release(n); /* never the last reference: the caller holds one */
    }
    for (uint32_t i = 0; i < r->n_samples; i++) pi__sample_at(r, i)->open_text = NULL;
    r->open_progress = NULL;
    update_fd(e);
}

/* lock held: no more text or progress is merged into n. */
static void close_node(pi__node *n)
{
    pi__sample *s = pi__sample_at(n->ev.request, n->ev.index);
    if (s->open_text == n) s->open_text = NULL;
    if (n->ev.request->open_progress == n) n->ev.request->open_progress = NULL;
}

/* --------------------------------------------------------------------------------------------------------- polling */

/* lock held: waits until the queue has an event, no event can come any more, or the timeout has passed. */
static void wait_for_event(pi_engine *e, int timeout_ms)
{
    struct timespec until = timeout_ms > 0 ? pi__deadline(timeout_ms) : (struct timespec) {0};
    int rc = timeout_ms ? 0 : ETIMEDOUT;
    e->n_pollers++;
    while (!e->queue.head && e->n_open && !rc) {
        rc = timeout_ms < 0 ? pthread_cond_wait(&e->polled, &e->lock)
                            : pthread_cond_timedwait(&e->polled, &e->lock, &until);
    }
    e->n_pollers--;
}

int pi_poll(pi_engine *e, pi_event **buf, size_t cap, int timeout_ms)
{
    if (!e || !buf || !cap) return PI_EINVAL;
    pthread_mutex_lock(&e->lock);
    wait_for_event(e, timeout_ms);
    int n = 0;
    for (pi__node *node; (node = e->queue.head) && (size_t) n < cap && n < INT32_MAX; n++) {
        list_remove(&e->queue, node);
        list_append(&e->taken, node);
        node->state = PI__NODE_TAKEN;
        close_node(node);
        buf[n] = &node->ev;
    }
    /* Each event signals one thread. A thread that took several events may have left another one waiting: wake it. */
    if (e->n_pollers && (e->queue.head || !e->n_open)) pthread_cond_broadcast(&e->polled);
    update_fd(e);
    pthread_mutex_unlock(&e->lock);
    return n;
}

void pi_event_release(pi_event *ev)
{
    if (!ev) return;
    pi__node *n = (pi__node *) ev;
    pi_engine *e = ev->request->e;
    pthread_mutex_lock(&e->lock);
    pi_request *last = NULL;
    if (n->state == PI__NODE_TAKEN) { /* false within a callback: dispatch() releases the event afterwards */
        list_remove(&e->taken, n);
        last = node_release(n);
    }
    pthread_mutex_unlock(&e->lock);
    if (last) pi__request_destroy(last);
}

/* ------------------------------------------------------------------------------------------------------- callbacks */

/* Takes n from the list, calls its request's callback, and releases n; destroys the request if that was the last
 * reference. The lock is held before and after, not during the callback. */
static void dispatch_event(pi_engine *e, pi__node *n)
{
    pi_request *r = n->ev.request;
    list_remove(&e->push, n);
    n->state = PI__NODE_IDLE;
    close_node(n);
    r->in_event = true;
    pthread_mutex_unlock(&e->lock);
    r->on_event(r->event_ud, &n->ev);
    pthread_mutex_lock(&e->lock);
    r->in_event = false;
    pthread_cond_broadcast(&r->changed);
    pi_request *last = node_release(n);
    if (!last) return;
    pthread_mutex_unlock(&e->lock);
    pi__request_destroy(last);
    pthread_mutex_lock(&e->lock);
}

static void *dispatch_thread(void *arg)
{
    pi_engine *e = arg;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->push.head && !e->stop_dispatch) pthread_cond_wait(&e->pushed, &e->lock);
        if (!e->push.head) break;
        dispatch_event(e, e->push.head);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

int pi__dispatch_start(pi_engine *e, pi_error *err)
{
    int rc = PI_OK;
    pthread_mutex_lock(&e->lock);
    if (!e->dispatching) {
        e->dispatching = pi__thread_start(&e->dispatcher, dispatch_thread, e);
        if (!e->dispatching) rc = pi__fail(err, PI_ENOMEM, "cannot start the thread that calls callbacks");
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* ------------------------------------------------------------------------------------------------------------ ends */

int pi__events_init(pi_engine *e, pi_error *err)
{
    e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (e->fd < 0) return pi__fail(err, PI_ENOMEM, "eventfd: %s", strerror(errno));
    int rc = pthread_mutex_init(&e->lock, NULL) ? PI_ENOMEM : PI_OK;
    if (!rc) {
        rc = pi__cond_init(&e->polled);
        if (!rc && (rc = pi__cond_init(&e->pushed))) pthread_cond_destroy(&e->polled);
        if (rc) pthread_mutex_destroy(&e->lock);
    }
    if (!rc) return PI_OK;
    close(e->fd);
    return pi__fail_mem(err, "locks");
}

static void free_list(pi_engine *e, pi__node_list *l)
{
    for (pi__node *n; (n = l->head);) {
        list_remove(l, n);
        pthread_mutex_lock(&e->lock);
        pi_request *last = node_release(n);
        pthread_mutex_unlock(&e->lock);
        if (last) pi__request_destroy(last);
    }
}

void pi__dispatch_stop(pi_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stop_dispatch = true;
    pthread_cond_broadcast(&e->pushed);
    bool join = e->dispatching;
    pthread_mutex_unlock(&e->lock);
    if (join) pthread_join(e->dispatcher, NULL);
}

void pi__events_destroy(pi_engine *e)
{
    free_list(e, &e->push);
    free_list(e, &e->queue);
    free_list(e, &e->taken);
    close(e->fd);
    pthread_cond_destroy(&e->polled);
    pthread_cond_destroy(&e->pushed);
    pthread_mutex_destroy(&e->lock);
}
