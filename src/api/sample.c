/* Samples: the core reports each answer of a request here; results are combined over samples (see objects.h).
 *
 * Memory: the first sample is part of the request. The others are one separate array, allocated before submit. Ending
 * a sample allocates nothing. Threads: on_token, on_done and give_logits run on the step thread. Invariant: the
 * core's reference keeps the request alive until the last of its samples is over. */
#include <stdio.h>
#include <string.h>

#include "api/sample.h"
#include "api/events.h"
#include "api/lifetime.h"
#include "api/pooling.h"
#include "api/prompt_probs.h"
#include "base/alloc.h"
#include "base/error.h"

/* ------------------------------------------------------------------------------------------------------------ life */

void pi__sample_init(pi__sample *s, pi_request *r, uint32_t index)
{
    *s = (pi__sample) {.r = r, .index = index, .done = {.embedded = true},
                       .result = {.size = sizeof s->result, .miss_reason = "", .stop = ""}};
}

int pi__samples_make(pi_request *r, pi_error *err)
{
    const pi__opt_list *stop = pi__opt_list_of(&r->set, PI__OPT_STOP);
    uint32_t n = (uint32_t) pi__opt_int(&r->set, PI__OPT_N);
    pi__samples_free(r); /* from an earlier submit that was refused */
    if (pi__stops_make(&r->stops, stop->item, stop->n)) return pi__fail_mem(err, "stop strings");
    if (n > 1 && !(r->more = pi__calloc(n - 1, sizeof *r->more))) return pi__fail_mem(err, "the request's answers");
    for (uint32_t i = 0; i < n; i++) {
        pi__sample *s = pi__sample_at(r, i);
        r->n_samples = i + 1;
        pi__sample_init(s, r, i);
        if (pi__output_init(&s->out, &r->stops)) return pi__fail_mem(err, "the answer's text");
    }
    return PI_OK;
}

/* ---------------------------------------------------------------------------------------------- on the step thread */

/* Feeds the bytes of a token to s->out. *text, *n: text that may be shown now. false = out of memory. */
static bool feed_output(pi__sample *s, int32_t id, const char **text, size_t *n)
{
    char small[256], *bytes = small;
    const pi__vocab *v = pi__core_vocab(s->r->e->core);
    size_t len = pi__token_bytes(v, id, s->r->special, small, sizeof small);
    if (len > sizeof small) {
        bytes = pi__malloc(len);
        if (!bytes) return false;
        pi__token_bytes(v, id, s->r->special, bytes, len);
    }
    int rc = pi__output_feed(&s->out, bytes, len, text, n);
    if (bytes != small) pi__free(bytes);
    return rc == PI_OK;
}

static bool on_token(void *ud, const pi__token_out *t)
{
    pi__sample *s = ud;
    pi_request *r = s->r;
    const char *text = "";
    size_t n = 0;
    if (s->failed) return true;
    if (!t->eog && !feed_output(s, t->id, &text, &n)) s->failed = true;
    pthread_mutex_lock(&r->e->lock);
    if (!s->failed) {
        bool ok = pi__grow(&s->tokens, &s->cap_tokens, s->n_tokens + 1, sizeof *s->tokens) &&
                  pi__event_text(s, t, text, n);
        if (ok) {
            s->tokens[s->n_tokens++] = t->id;
            s->result.generated_tokens = (uint32_t) s->n_tokens;
            s->result.cached_tokens = t->n_cached;
        }
        s->failed = !ok;
    }
    pthread_mutex_unlock(&r->e->lock);
    return s->failed || s->out.hit;
}

static void on_prefill(void *ud, uint32_t n_computed, uint32_t n_cached, double ms)
{
    pi_request *r = ((pi__sample *) ud)->r;
    pthread_mutex_lock(&r->e->lock);
    pi__event_progress(r, n_computed, n_cached, ms);
    pthread_mutex_unlock(&r->e->lock);
}

/* True if on_logits gets the logits row at pos. The core reports more rows if prompt-logprobs needs them. */
static bool is_asked_for(const pi_request *r, uint32_t pos)
{
    return r->logits != PI__LOGITS_NONE && (r->logits != PI__LOGITS_LAST || pos + (size_t) 1 == r->n_prompt);
}

static void give_logits(void *ud, uint32_t pos, const float *logits, size_t n_vocab)
{
    pi_request *r = ud;
    if (r->pooling) {
        pi__pooling_row(r, pos, logits);
        return;
    }
    if (r->n_prompt_probs) pi__prompt_probs_row(r, pos, logits, n_vocab);
    if (!is_asked_for(r, pos)) return;
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

/* Logs one line per finished sample. */
static void log_end(const pi__sample *sample, const pi_result *s)
{
    static const char *const how[] = {"running", "stop", "length", "canceled", "failed"};
    const pi_request *r = sample->r;
    double rest = s->generated_tokens > 1 && s->decode_ms > 0 ? (s->generated_tokens - 1) / s->decode_ms * 1e3 : 0;
    bool missed = *s->miss_reason;
    char which[32] = "", drafts[64] = "";
    if (r->n_samples > 1) snprintf(which, sizeof which, ", sample %u", sample->index);
    if (s->n_drafted) snprintf(drafts, sizeof drafts, ", %u of %u drafts accepted", s->n_accepted, s->n_drafted);
    pi__logf(&r->e->log, PI_LOG_INFO,
             "request %llu%s: %u prompt tokens, %u cached%s%s%s, first token after %.1f ms, "
             "%u generated at %.1f t/s%s, %s%s%s",
             (unsigned long long) r->id, which, s->prompt_tokens, s->cached_tokens, missed ? " (" : "", s->miss_reason,
             missed ? ")" : "", s->queue_ms + s->prefill_ms, s->generated_tokens, rest, drafts, how[s->finish_reason],
             *s->msg ? ": " : "", s->msg);
}

static void fill_result(pi__sample *sample, const pi__job_end *end)
{
    pi_result *s = &sample->result;
    /* The replacement for an incomplete last character may complete a stop string after the core has decided. */
    bool stopped = sample->out.hit && !sample->failed &&
                   (end->reason == PI_FINISH_STOP || end->reason == PI_FINISH_LENGTH);
    s->code = sample->failed ? PI_ENOMEM : end->code;
    s->finish_reason = sample->failed ? PI_FINISH_ERROR : stopped ? PI_FINISH_STOP : end->reason;
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
    s->stop = stopped ? sample->out.hit : "";
    const char *msg = sample->failed ? "out of memory for the answer" : end->msg ? end->msg : pi_strerror(s->code);
    snprintf(s->msg, sizeof s->msg, "%s", s->code ? msg : "");
}

static void on_done(void *ud, const pi__job_end *end)
{
    pi__sample *s = ud;
    pi_request *r = s->r;
    pi_engine *e = r->e;
    size_t n;
    char *text = pi__output_finish(&s->out, &n);
    pthread_mutex_lock(&e->lock);
    fill_result(s, end);
    pi_result result = s->result;
    pthread_mutex_unlock(&e->lock);
    log_end(s, &result);
    pthread_mutex_lock(&e->lock);
    s->over = true;
    pi__seq_release(s->seq);
    s->seq = NULL;
    bool all = --r->n_live == 0;
    if (all) {
        pi__request_leave(r);
        r->state = PI__REQ_DONE;
    }
    pi__event_done(s, text, n);
    pthread_cond_broadcast(&r->changed);
    bool last = all && pi__request_unref(r);
    pthread_mutex_unlock(&e->lock);
    if (last) pi__request_destroy(r);
}

void pi__sample_job(pi__sample *s, const pi__gen_params *p, pi__job *j)
{
    pi_request *r = s->r;
    *j = (pi__job) {.prompt = r->prompt, .n_prompt = r->n_prompt, .media = r->spans,
                    .n_media = (int32_t) r->n_images, .params = *p, .ud = s, .on_token = on_token,
                    .on_done = on_done};
    if (r->progress && !s->index) j->on_prefill = on_prefill;
    j->params.sampling.seed += s->index;
    if (r->pooling) j->params.logits = p->logits;
    else if (s->index) j->params.logits = PI__LOGITS_NONE;
    else if (r->n_prompt_probs) j->params.logits = PI__LOGITS_ALL;
    if (j->params.logits == PI__LOGITS_NONE) return;
    j->on_logits = give_logits;
    j->logits_ud = r;
}

/* --------------------------------------------------------------------------------------------------------- results */

/* Returns the result of the first failed sample, or of sample 0. */
static const pi_result *first_failure(const pi_request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const pi_result *s = &pi__sample_at(r, i)->result;
        if (s->code) return s;
    }
    return &r->first.result;
}

/* Sets the times of *sum. queue_ms ends at the first start of a sample, prefill_ms at the first token of any sample,
 * and decode_ms at the last token of all. */
static void sum_times(const pi_request *r, pi_result *sum)
{
    double start = r->first.result.queue_ms, first = start + r->first.result.prefill_ms, last = first;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const pi_result *s = &pi__sample_at(r, i)->result;
        double t = s->queue_ms + s->prefill_ms;
        if (s->queue_ms < start) start = s->queue_ms;
        if (t < first) first = t;
        if (t + s->decode_ms > last) last = t + s->decode_ms;
    }
    sum->queue_ms = start;
    sum->prefill_ms = first - start;
    sum->decode_ms = last - first;
}

void pi__samples_sum(const pi_request *r, pi_result *sum)
{
    *sum = r->first.result;
    if (r->n_samples == 1) return;
    if (r->state == PI__REQ_DONE) {
        const pi_result *t = first_failure(r);
        sum->code = t->code;
        sum->finish_reason = t->finish_reason;
        sum->stop = t->stop;
        memcpy(sum->msg, t->msg, sizeof sum->msg);
        sum_times(r, sum);
    } else { /* samples are still running, even if sample 0 has ended */
        sum->code = PI_OK;
        sum->finish_reason = PI_FINISH_NONE;
        sum->stop = "";
        *sum->msg = 0;
    }
    for (uint32_t i = 1; i < r->n_samples; i++) {
        const pi_result *s = &pi__sample_at(r, i)->result;
        sum->generated_tokens += s->generated_tokens;
        sum->n_preempted += s->n_preempted;
        sum->n_drafted += s->n_drafted;
        sum->n_accepted += s->n_accepted;
    }
}
