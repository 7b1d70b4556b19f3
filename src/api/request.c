/* Requests: options and a prompt become jobs of the core, one per sample (sample.c); see objects.h.
 *
 * Memory: the request and its parts. Threads: as in the header. Invariant: a submitted request is in the engine's
 * list of running ones until its last sample is over, and the core's reference keeps it alive until then. */
#include <errno.h>
#include <string.h>

#include "api/request.h"
#include "api/events.h"
#include "api/gen_params.h"
#include "api/image_prompt.h"
#include "api/lifetime.h"
#include "api/pooling.h"
#include "api/prompt_probs.h"
#include "api/sample.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/versioned.h"

/* ------------------------------------------------------------------------------------------------------------ life */

pi_request *pi_request_new(pi_engine *e)
{
    if (!e) return NULL;
    pi_request *r = pi__calloc(1, sizeof *r);
    if (!r) return NULL;
    if (pi__cond_init(&r->changed)) {
        pi__free(r);
        return NULL;
    }
    if (pi__opt_copy(&r->set, &e->defaults, true)) {
        pthread_cond_destroy(&r->changed);
        pi__free(r);
        return NULL;
    }
    r->e = e;
    r->ref = 1;
    r->n_samples = 1;
    pi__sample_init(&r->first, r, 0);
    return r;
}

void pi__request_cancel(pi_request *r)
{
    if (r->state != PI__REQ_RUNNING) return;
    r->cancel = true; /* submit checks this flag if it has not returned yet */
    for (uint32_t i = 0; i < r->n_samples; i++) {
        pi__seq *seq = pi__sample_at(r, i)->seq;
        if (seq) pi__seq_cancel(r->e->core, seq);
    }
}

void pi_request_cancel(pi_request *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->e->lock);
    pi__request_cancel(r);
    pthread_mutex_unlock(&r->e->lock);
}

void pi_request_free(pi_request *r)
{
    if (!r) return;
    pi_engine *e = r->e;
    pthread_mutex_lock(&e->lock);
    r->freed = true;
    pi__events_drop(r);
    if (r->state == PI__REQ_RUNNING && !r->on_event) {
        e->n_open--;
        pi__events_recheck(e);
    }
    pi__request_cancel(r);
    /* The callbacks' ud may become invalid after this call: wait for running callbacks, except the calling one. */
    bool inside = e->dispatching && pthread_equal(e->dispatcher, pthread_self());
    while (r->in_logits || (r->in_event && !inside)) pthread_cond_wait(&r->changed, &e->lock);
    bool last = pi__request_unref(r);
    pthread_mutex_unlock(&e->lock);
    if (last) pi__request_destroy(r);
}

/* ------------------------------------------------------------------------------------------------- before submit */

int pi__request_check_new(pi_request *r, pi_error *err)
{
    if (!r) return pi__fail(err, PI_EINVAL, "the request must not be NULL");
    pthread_mutex_lock(&r->e->lock);
    bool is_new = r->state == PI__REQ_NEW;
    pthread_mutex_unlock(&r->e->lock);
    return is_new ? PI_OK : pi__fail(err, PI_EINVAL, "the request was already submitted");
}

void pi__request_take_prompt(pi_request *r, int32_t *ids, size_t n)
{
    pi__free(r->prompt);
    pi__call_form_free(&r->calls);
    r->prompt = ids;
    r->n_prompt = n;
}

int pi_request_set(pi_request *r, const char *key, const char *value, pi_error *err)
{
    int rc = pi__request_check_new(r, err);
    return rc ? rc : pi__opt_set_text(&r->set, 1u << PI_SCOPE_REQUEST, key, value, err);
}

/* Makes ids the prompt, with the images in them; frees them after an error. */
static int take_ids(pi_request *r, pi__ids *ids, pi_error *err)
{
    int rc = pi__image_expand(r, ids, true, err);
    if (rc) pi__free(ids->p);
    else pi__request_take_prompt(r, ids->p, ids->n);
    return rc;
}

int pi_request_prompt_tokens(pi_request *r, const int32_t *ids, size_t n, pi_error *err)
{
    int rc = pi__request_check_new(r, err);
    if (rc) return rc;
    if (!ids || !n) return pi__fail(err, PI_EINVAL, "the prompt is empty");
    int32_t n_vocab = pi__vocab_size(pi__core_vocab(r->e->core));
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < n_vocab && (ids[i] >= 0 || r->n_images)) continue; /* a negative id is an image */
        return pi__fail(err, PI_EINVAL, "prompt token %zu is %d: token ids are 0 to %d", i, ids[i], n_vocab - 1);
    }
    size_t bytes;
    pi__ids copy = {.p = pi__mul_ok(n, sizeof *ids, &bytes) ? pi__malloc(bytes) : NULL, .n = n, .cap = n};
    if (!copy.p) return pi__fail_mem(err, "the prompt");
    memcpy(copy.p, ids, bytes);
    return take_ids(r, &copy, err);
}

int pi_request_prompt_text(pi_request *r, const char *text, size_t len, pi_error *err)
{
    int rc = pi__request_check_new(r, err);
    if (rc) return rc;
    if (!text && len) return pi__fail(err, PI_EINVAL, "the prompt's text must not be NULL");
    pi__ids ids = {.work = r->work};
    rc = pi__tokenize(pi__core_vocab(r->e->core), text ? text : "", len, true, true, &ids);
    if (rc || !ids.n) {
        pi__free(ids.p);
        return rc ? pi__fail(err, rc, "tokenizing the prompt: %s", pi_strerror(rc))
                  : pi__fail(err, PI_EINVAL, "the prompt is empty");
    }
    return take_ids(r, &ids, err);
}

void pi_request_set_work(pi_request *r, pi_work *w)
{
    if (pi__request_check_new(r, NULL)) return;
    r->work = w ? &w->w : NULL;
}

void pi_request_on_event(pi_request *r, pi_event_fn fn, void *ud)
{
    if (pi__request_check_new(r, NULL)) return;
    r->on_event = fn;
    r->event_ud = ud;
}

void pi_request_on_logits(pi_request *r, pi_logits_fn fn, void *ud)
{
    if (pi__request_check_new(r, NULL)) return;
    r->on_logits = fn;
    r->logits_ud = ud;
}

void pi_request_set_user(pi_request *r, void *user)
{
    if (!r) return;
    pthread_mutex_lock(&r->e->lock);
    r->user = user;
    pthread_mutex_unlock(&r->e->lock);
}

/* ---------------------------------------------------------------------------------------------------------- submit */

/* Allocates and checks everything that a run needs, so that nothing fails later: fills p, creates the samples, and
 * starts the dispatch thread if r has a callback. On failure p needs no free. */
static int prepare_run(pi_request *r, pi__gen_params *p, pi_error *err)
{
    if (!r->n_prompt) return pi__fail(err, PI_EINVAL, "the request has no prompt: set one before it is submitted");
    if (r->work && !pi__work_check_due(r->work, 0)) return pi__work_fail(r->work, err, "the request");
    int rc = pi__gen_params_of(r, p, err);
    if (rc) return rc;
    rc = pi__samples_make(r, err);
    if (!rc) rc = pi__prompt_probs_make(r, p, err);
    if (!rc) rc = pi__pooling_make(r, p, err);
    if (!rc && r->on_event) rc = pi__dispatch_start(r->e, err);
    if (rc) {
        pi__gen_params_free(p);
        return rc;
    }
    r->special = pi__opt_bool(&r->set, PI__OPT_SPECIAL);
    r->progress = pi__opt_bool(&r->set, PI__OPT_PROMPT_PROGRESS);
    r->logits = p->logits;
    r->n_probs = p->n_logprobs < 0 ? 0 : p->n_logprobs + 1;
    return PI_OK;
}

/* lock: sets r to running, adds it to the engine's list, and takes two references. The step thread may call back from
 * here on. */
static void enter_core(pi_request *r)
{
    pi_engine *e = r->e;
    r->state = PI__REQ_RUNNING;
    r->cancel = false;
    r->id = ++e->n_requests;
    r->n_live = r->n_samples;
    for (uint32_t i = 0; i < r->n_samples; i++) pi__sample_at(r, i)->result.prompt_tokens = (uint32_t) r->n_prompt;
    r->ref += 2; /* one for the core, one for this call: a callback may free r before submit returns */
    r->next = e->running;
    if (e->running) e->running->prev = r;
    e->running = r;
    if (!r->on_event) e->n_open++;
}

/* lock: undoes enter_core after the core refused the jobs, except for the reference of submit itself. */
static void undo_enter(pi_request *r)
{
    pi__request_leave(r);
    r->state = PI__REQ_NEW;
    r->ref--;
    if (r->on_event) return;
    r->e->n_open--;
    pi__events_recheck(r->e);
}

/* lock: stores the core's sequences in the samples, and releases the sequence of a sample that is over already. Cancels
 * all of them if pi_request_cancel was called during the submit. */
static void keep_seqs(pi_request *r, pi__seq **seq)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        pi__sample *s = pi__sample_at(r, i);
        if (s->over) pi__seq_release(seq[i]);
        else s->seq = seq[i];
    }
    if (r->cancel) pi__request_cancel(r);
}

/* Registers r as running and submits one job per sample to the core. On failure r is unsubmitted again. */
static int submit_jobs(pi_request *r, const pi__job *job, pi_error *err)
{
    pi_engine *e = r->e;
    pi__seq *seq[PI__MAX_SAMPLES] = {NULL};
    pthread_mutex_lock(&e->lock);
    enter_core(r);
    pthread_mutex_unlock(&e->lock);
    int rc = pi__core_submit(e->core, job, r->n_samples, seq, err);
    pthread_mutex_lock(&e->lock);
    if (rc) undo_enter(r);
    else keep_seqs(r, seq);
    bool last = pi__request_unref(r);
    pthread_mutex_unlock(&e->lock);
    if (last) pi__request_destroy(r);
    return rc;
}

int pi_request_submit(pi_request *r, pi_error *err)
{
    pi__gen_params params;
    int rc = pi__request_check_new(r, err);
    if (!rc) rc = prepare_run(r, &params, err);
    if (rc) return rc;
    pi__job one, *job = r->n_samples > 1 ? pi__calloc(r->n_samples, sizeof *job) : &one;
    for (uint32_t i = 0; job && i < r->n_samples; i++) pi__sample_job(pi__sample_at(r, i), &params, &job[i]);
    rc = job ? submit_jobs(r, job, err) : pi__fail_mem(err, "the request's answers");
    if (job != &one) pi__free(job);
    pi__gen_params_free(&params);
    return rc;
}

/* ------------------------------------------------------------------------------------------------------ afterwards */

int pi_request_wait(pi_request *r, int timeout_ms)
{
    if (!r) return PI_EINVAL;
    struct timespec until = timeout_ms > 0 ? pi__deadline(timeout_ms) : (struct timespec) {0};
    pthread_mutex_lock(&r->e->lock);
    int rc = timeout_ms ? 0 : ETIMEDOUT;
    while (r->state == PI__REQ_RUNNING && !rc) {
        rc = timeout_ms < 0 ? pthread_cond_wait(&r->changed, &r->e->lock)
                            : pthread_cond_timedwait(&r->changed, &r->e->lock, &until);
    }
    int state = r->state;
    pthread_mutex_unlock(&r->e->lock);
    return state == PI__REQ_DONE ? PI_OK : state == PI__REQ_NEW ? PI_EINVAL : PI_ETIMEDOUT;
}

int pi_request_result(const pi_request *r, pi_result *out)
{
    if (!r || pi__versioned_check(out)) return PI_EINVAL;
    pi_result s;
    pthread_mutex_lock(&r->e->lock);
    pi__samples_sum(r, &s);
    int state = r->state;
    pthread_mutex_unlock(&r->e->lock);
    (void) pi__versioned_copy(out, &s, sizeof s); /* checked above */
    return state == PI__REQ_DONE ? PI_OK : state == PI__REQ_NEW ? PI_EINVAL : PI_EBUSY;
}

int pi_request_sample(const pi_request *r, uint32_t index, pi_result *out)
{
    if (!r || pi__versioned_check(out)) return PI_EINVAL;
    pthread_mutex_lock(&r->e->lock);
    bool known = r->state != PI__REQ_NEW && index < r->n_samples;
    pi_result s = known ? pi__sample_at(r, index)->result : (pi_result) {0};
    bool over = known && pi__sample_at(r, index)->over;
    pthread_mutex_unlock(&r->e->lock);
    if (!known) return PI_EINVAL;
    (void) pi__versioned_copy(out, &s, sizeof s); /* checked above */
    return over ? PI_OK : PI_EBUSY;
}

size_t pi_request_sample_tokens(const pi_request *r, uint32_t index, int32_t *out, size_t cap)
{
    if (!r) return 0;
    size_t n = 0;
    pthread_mutex_lock(&r->e->lock);
    if (r->state != PI__REQ_NEW && index < r->n_samples) {
        const pi__sample *s = pi__sample_at(r, index);
        n = s->n_tokens;
        size_t k = n < cap ? n : cap;
        if (k && out) memcpy(out, s->tokens, k * sizeof *out);
    }
    pthread_mutex_unlock(&r->e->lock);
    return n;
}

size_t pi_request_tokens(const pi_request *r, int32_t *out, size_t cap)
{
    return pi_request_sample_tokens(r, 0, out, cap);
}
