/* Requests: from options and a prompt to a job of the core, what the core reports back, and their end (see api.h).
 *
 * Memory: the request and its parts; everything that its end needs is there from the start. Threads: as in the header;
 * on_token, on_done and give_logits run on the step thread. Invariant: a submitted request is in the engine's list of
 * running ones until on_done, and the core's reference keeps it alive until then. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/alloc.h"
#include "base/error.h"

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
    r->done.embedded = true;
    r->result = (pi_result) {.size = sizeof r->result, .miss_reason = "", .stop = ""};
    return r;
}

bool pi__request_unref(pi_request *r) { return --r->ref == 0; }

void pi__request_destroy(pi_request *r)
{
    pi__breakers_put(r->e, r->breakers);
    pi__output_free(&r->out);
    pi__opt_clear(&r->set);
    pi__free(r->prompt);
    pi__free(r->tokens);
    pthread_cond_destroy(&r->changed);
    pi__free(r);
}

/* lock: asks the core to end it. */
static void cancel_locked(pi_request *r)
{
    if (r->state != PI__REQ_RUNNING) return;
    r->cancel = true; /* where submit has not returned yet, it looks */
    if (r->seq) pi__seq_cancel(r->e->core, r->seq);
}

void pi_request_cancel(pi_request *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->e->lock);
    cancel_locked(r);
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
    cancel_locked(r);
    /* The callbacks' ud may go away after this call: none of them may still run, but the one that called. */
    bool inside = e->dispatching && pthread_equal(e->dispatcher, pthread_self());
    while (r->in_logits || (r->in_event && !inside)) pthread_cond_wait(&r->changed, &e->lock);
    bool last = pi__request_unref(r);
    pthread_mutex_unlock(&e->lock);
    if (last) pi__request_destroy(r);
}

/* ------------------------------------------------------------------------------------------------- before submit */

/* Submitted requests do not change. */
static int check_new(pi_request *r, pi_error *err)
{
    if (!r) return pi__fail(err, PI_EINVAL, "the request must not be NULL");
    pthread_mutex_lock(&r->e->lock);
    bool is_new = r->state == PI__REQ_NEW;
    pthread_mutex_unlock(&r->e->lock);
    return is_new ? PI_OK : pi__fail(err, PI_EINVAL, "the request was submitted before");
}

int pi_request_set(pi_request *r, const char *key, const char *value, pi_error *err)
{
    int rc = check_new(r, err);
    return rc ? rc : pi__opt_set_text(&r->set, 1u << PI_SCOPE_REQUEST, key, value, err);
}

int pi_request_prompt_tokens(pi_request *r, const int32_t *ids, size_t n, pi_error *err)
{
    int rc = check_new(r, err);
    if (rc) return rc;
    if (!ids || !n) return pi__fail(err, PI_EINVAL, "the prompt is empty");
    int32_t n_vocab = pi__vocab_size(pi__core_vocab(r->e->core));
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < n_vocab) continue;
        return pi__fail(err, PI_EINVAL, "prompt token %zu is %d; token ids go from 0 to %d", i, ids[i], n_vocab - 1);
    }
    size_t bytes;
    int32_t *copy = pi__mul_ok(n, sizeof *ids, &bytes) ? pi__malloc(bytes) : NULL;
    if (!copy) return pi__fail_mem(err, "the prompt");
    memcpy(copy, ids, bytes);
    pi__free(r->prompt);
    r->prompt = copy;
    r->n_prompt = n;
    return PI_OK;
}

int pi_request_prompt_text(pi_request *r, const char *text, size_t len, pi_error *err)
{
    int rc = check_new(r, err);
    if (rc) return rc;
    if (!text && len) return pi__fail(err, PI_EINVAL, "the prompt's text must not be NULL");
    pi__ids ids = {0};
    rc = pi__tokenize(pi__core_vocab(r->e->core), text ? text : "", len, true, true, &ids);
    if (rc || !ids.n) {
        pi__free(ids.p);
        return rc ? pi__fail(err, rc, "tokenizing the prompt: %s", pi_strerror(rc))
                  : pi__fail(err, PI_EINVAL, "the prompt is empty");
    }
    pi__free(r->prompt);
    r->prompt = ids.p;
    r->n_prompt = ids.n;
    return PI_OK;
}

void pi_request_on_event(pi_request *r, pi_event_fn fn, void *ud)
{
    if (check_new(r, NULL)) return;
    r->on_event = fn;
    r->event_ud = ud;
}

void pi_request_on_logits(pi_request *r, pi_logits_fn fn, void *ud)
{
    if (check_new(r, NULL)) return;
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

/* ---------------------------------------------------------------------------------------------- on the step thread */

/* Bytes of a token to text that may be shown. false: out of memory. */
static bool feed(pi_request *r, int32_t id, const char **text, size_t *n)
{
    char small[256], *bytes = small;
    const pi__vocab *v = pi__core_vocab(r->e->core);
    size_t len = pi__token_bytes(v, id, r->special, small, sizeof small);
    if (len > sizeof small) {
        bytes = pi__malloc(len);
        if (!bytes) return false;
        pi__token_bytes(v, id, r->special, bytes, len);
    }
    int rc = pi__output_feed(&r->out, bytes, len, text, n);
    if (bytes != small) pi__free(bytes);
    return rc == PI_OK;
}

static bool on_token(void *ud, const pi__token_out *t)
{
    pi_request *r = ud;
    const char *text = "";
    size_t n = 0;
    if (r->failed) return true;
    if (!t->eog && !feed(r, t->id, &text, &n)) r->failed = true;
    pthread_mutex_lock(&r->e->lock);
    if (!r->failed) {
        bool ok = pi__grow(&r->tokens, &r->cap_tokens, r->n_tokens + 1, sizeof *r->tokens) &&
                  pi__event_text(r, t->id, r->n_probs ? t->probs : NULL, text, n);
        if (ok) {
            r->tokens[r->n_tokens++] = t->id;
            r->result.generated_tokens = (uint32_t) r->n_tokens;
        }
        r->failed = !ok;
    }
    pthread_mutex_unlock(&r->e->lock);
    return r->failed || r->out.hit;
}

static void give_logits(void *ud, uint32_t pos, const float *logits, size_t n_vocab)
{
    pi_request *r = ud;
    pthread_mutex_lock(&r->e->lock);
    bool go = r->in_logits = !r->freed;
    pthread_mutex_unlock(&r->e->lock);
    if (!go) return;
    r->on_logits(r->logits_ud, pos, logits, n_vocab);
    pthread_mutex_lock(&r->e->lock);
    r->in_logits = false;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->e->lock);
}

/* One line a finished request. */
static void log_end(const pi_request *r, const pi_result *s)
{
    static const char *const how[] = {"running", "stop", "length", "canceled", "failed"};
    double rest = s->generated_tokens > 1 && s->decode_ms > 0 ? (s->generated_tokens - 1) / s->decode_ms * 1e3 : 0;
    bool missed = *s->miss_reason;
    char drafts[64] = "";
    if (s->n_drafted) snprintf(drafts, sizeof drafts, ", %u of %u drafts accepted", s->n_accepted, s->n_drafted);
    pi__logf(&r->e->log, PI_LOG_INFO, "request %llu: %u prompt tokens, %u cached%s%s%s, first token after %.1f ms, "
             "%u generated at %.1f t/s%s, %s%s%s", (unsigned long long) r->id, s->prompt_tokens, s->cached_tokens,
             missed ? " (" : "", s->miss_reason, missed ? ")" : "", s->queue_ms + s->prefill_ms, s->generated_tokens,
             rest, drafts, how[s->finish_reason], *s->msg ? ": " : "", s->msg);
}

static void fill_result(pi_request *r, const pi__job_end *end)
{
    pi_result *s = &r->result;
    s->code = r->failed ? PI_ENOMEM : end->code;
    s->finish_reason = r->failed ? PI_FINISH_ERROR : end->reason;
    s->prompt_tokens = end->prompt_tokens;
    s->cached_tokens = end->cached_tokens;
    s->generated_tokens = end->generated_tokens;
    s->n_preempted = end->n_preempted;
    s->n_drafted = end->n_drafted;
    s->n_accepted = end->n_accepted;
    s->miss_reason = end->miss_reason ? end->miss_reason : "";
    s->queue_ms = end->queue_ms;
    s->prefill_ms = end->prefill_ms;
    s->decode_ms = end->decode_ms;
    s->stop = r->out.hit && !r->failed ? r->out.hit : "";
    const char *msg = r->failed ? "out of memory for the answer" : end->msg ? end->msg : pi_strerror(s->code);
    snprintf(s->msg, sizeof s->msg, "%s", s->code ? msg : "");
}

/* lock: takes r out of the running state; gives back the core's reference to the sequence. */
static void leave_core(pi_request *r)
{
    if (r->prev) r->prev->next = r->next;
    else r->e->running = r->next;
    if (r->next) r->next->prev = r->prev;
    r->prev = r->next = NULL;
    pi__seq_release(r->seq);
    r->seq = NULL;
}

static void on_done(void *ud, const pi__job_end *end)
{
    pi_request *r = ud;
    pi_engine *e = r->e;
    size_t n;
    char *text = pi__output_finish(&r->out, &n);
    pthread_mutex_lock(&e->lock);
    fill_result(r, end);
    pi_result result = r->result;
    pthread_mutex_unlock(&e->lock);
    log_end(r, &result);
    pthread_mutex_lock(&e->lock);
    r->state = PI__REQ_DONE;
    leave_core(r);
    pi__event_done(r, text, n);
    pthread_cond_broadcast(&r->changed);
    bool last = pi__request_unref(r);
    pthread_mutex_unlock(&e->lock);
    if (last) pi__request_destroy(r);
}

/* ---------------------------------------------------------------------------------------------------------- submit */

/* Everything a run needs that can fail. */
static int prepare(pi_request *r, pi__gen_params *p, pi_error *err)
{
    if (!r->n_prompt) return pi__fail(err, PI_EINVAL, "the request has no prompt");
    int rc = pi__gen_params_of(r, p, err);
    if (rc) return rc;
    const pi__opt_list *stop = pi__opt_list_of(&r->set, PI__OPT_STOP);
    pi__output_free(&r->out); /* of an earlier submit that was refused */
    rc = pi__output_init(&r->out, stop->item, stop->n);
    if (rc) rc = pi__fail_mem(err, "stop strings");
    if (!rc && r->on_event) rc = pi__dispatch_start(r->e, err);
    if (rc) {
        pi__gen_params_free(p);
        return rc;
    }
    r->special = pi__opt_bool(&r->set, PI__OPT_SPECIAL);
    r->n_probs = p->n_logprobs < 0 ? 0 : p->n_logprobs + 1;
    return PI_OK;
}

/* lock: from here on the step thread may call back. */
static void enter_core(pi_request *r)
{
    pi_engine *e = r->e;
    r->state = PI__REQ_RUNNING;
    r->cancel = false;
    r->id = ++e->n_requests;
    r->result.prompt_tokens = (uint32_t) r->n_prompt;
    r->ref += 2; /* the core's, and this call's: a callback may free r before submit returns */
    r->next = e->running;
    if (e->running) e->running->prev = r;
    e->running = r;
    if (!r->on_event) e->n_open++;
}

/* lock: the core refused. */
static void undo_enter(pi_request *r)
{
    leave_core(r);
    r->state = PI__REQ_NEW;
    r->ref--;
    if (r->on_event) return;
    r->e->n_open--;
    pi__events_recheck(r->e);
}

int pi_request_submit(pi_request *r, pi_error *err)
{
    pi__gen_params params;
    int rc = check_new(r, err);
    if (!rc) rc = prepare(r, &params, err);
    if (rc) return rc;
    pi_engine *e = r->e;
    const pi__job job = {r->prompt, r->n_prompt, params, r, on_token, on_done, r->on_logits ? give_logits : NULL, r};
    pthread_mutex_lock(&e->lock);
    enter_core(r);
    pthread_mutex_unlock(&e->lock);
    pi__seq *seq = NULL;
    rc = pi__core_submit(e->core, &job, &seq, err);
    pthread_mutex_lock(&e->lock);
    if (rc) {
        undo_enter(r);
    } else if (r->state == PI__REQ_DONE) {
        pi__seq_release(seq);
    } else {
        r->seq = seq;
        if (r->cancel) pi__seq_cancel(e->core, seq);
    }
    bool last = pi__request_unref(r);
    pthread_mutex_unlock(&e->lock);
    pi__gen_params_free(&params);
    if (last) pi__request_destroy(r);
    return rc;
}

/* ------------------------------------------------------------------------------------------------------- afterwards */

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
    if (!r || !out || out->size < sizeof out->size) return PI_EINVAL;
    uint32_t size = out->size < sizeof *out ? out->size : (uint32_t) sizeof *out;
    pthread_mutex_lock(&r->e->lock);
    pi_result s = r->result;
    int state = r->state;
    pthread_mutex_unlock(&r->e->lock);
    s.size = size;
    memcpy(out, &s, size);
    return state == PI__REQ_DONE ? PI_OK : state == PI__REQ_NEW ? PI_EINVAL : PI_EBUSY;
}

size_t pi_request_tokens(const pi_request *r, int32_t *out, size_t cap)
{
    if (!r) return 0;
    pthread_mutex_lock(&r->e->lock);
    size_t n = r->n_tokens, k = n < cap ? n : cap;
    if (k && out) memcpy(out, r->tokens, k * sizeof *out);
    pthread_mutex_unlock(&r->e->lock);
    return n;
}
