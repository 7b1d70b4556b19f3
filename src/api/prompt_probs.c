/* Log-probabilities of the tokens of a request's prompt (see prompt_probs.h).
 *
 *     position     0       1       2       3        the row at a position predicts the next token
 *     token        t0      t1      t2      t3       t0 has no row; with logits-from=1 neither has t1
 *     row            -> t1   -> t2   -> t3   -> the answer
 *
 * Sample 0 requests all rows of the prompt from the core, from logits-from on, and evaluates each one as it arrives.
 * Memory: allocated before the request runs; freed with the event or with the request. The scratch for the rows
 * belongs to the engine. It is created on first use, and only the step thread uses it. */
#include "api/prompt_probs.h"
#include "api/events.h"
#include "api/lifetime.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"

/* Creates e->row_scratch if it is missing. If several threads create it at the same time, the first one stores it and
 * the others free theirs. */
static int make_scratch(pi_engine *e, int32_t n_vocab, pi_error *err)
{
    pi__sampler_scratch *w;
    pthread_mutex_lock(&e->lock);
    bool there = e->row_scratch != NULL;
    pthread_mutex_unlock(&e->lock);
    if (there) return PI_OK;
    int rc = pi__sampler_scratch_create(&w, n_vocab, err);
    if (rc) return rc;
    pthread_mutex_lock(&e->lock);
    if (!e->row_scratch) {
        e->row_scratch = w;
        w = NULL;
    }
    pthread_mutex_unlock(&e->lock);
    pi__sampler_scratch_free(w);
    return PI_OK;
}

int pi__prompt_probs_make(pi_request *r, const pi__gen_params *p, pi_error *err)
{
    pi__prompt_probs_free(r); /* from an earlier submit that was refused */
    int64_t n_more = pi__opt_int(&r->set, PI__OPT_PROMPT_LOGPROBS);
    size_t from = (size_t) p->logits_from, n, bytes;
    if (n_more < 0 || from + 1 >= r->n_prompt) return PI_OK;
    if (p->logits == PI__LOGITS_GENERATED)
        return pi__fail(err, PI_EINVAL, "prompt-logprobs does not work with logits=generated: give logits=all or "
                        "last, or use a second request");
    pi_info info = {.size = sizeof info};
    int rc = pi__core_info(r->e->core, &info);
    if (!rc) rc = make_scratch(r->e, (int32_t) info.n_vocab, err);
    if (rc) return rc;
    if (n_more >= info.n_vocab) n_more = info.n_vocab - 1;
    n = r->n_prompt - 1 - from;
    pi__node *d = &r->prompt_event;
    bool fits = pi__mul_ok(n, (size_t) (n_more + 1) * sizeof *d->probs, &bytes);
    if (!fits || !(d->probs = pi__malloc(bytes)))
        return pi__fail_mem(err, "the log-probabilities of the prompt");
    d->embedded = true;
    d->ev = (pi_event) {.size = sizeof d->ev, .kind = PI_EVENT_PROMPT, .request = r, .text = "",
                        .tokens = r->prompt + from + 1, .n_tokens = n, .logprobs = d->probs,
                        .n_logprobs = (size_t) (n_more + 1)};
    r->n_prompt_probs = (int32_t) n_more + 1;
    return PI_OK;
}

/* True if prompt token `at` belongs to an image: the id is a placeholder, so a probability means nothing. */
static bool is_image(const pi_request *r, size_t at)
{
    for (size_t i = 0; i < r->n_images && r->spans; i++) {
        const size_t start = (size_t) r->spans[i].start;
        if (at >= start && at < start + (size_t) r->spans[i].n) return true;
    }
    return false;
}

void pi__prompt_probs_row(pi_request *r, uint32_t pos, const float *logits, size_t n_vocab)
{
    const int32_t n = r->n_prompt_probs;
    const size_t first = r->n_prompt - r->prompt_event.ev.n_tokens; /* first prompt position with log-probabilities */
    pi__node *d = &r->prompt_event;
    if (pos + (size_t) 1 < first || pos + (size_t) 1 >= r->n_prompt) return;
    pi_token_prob *to = d->probs + (pos + 1 - first) * (size_t) n;
    const bool image = is_image(r, pos + (size_t) 1);
    for (int32_t i = 0; i < n && image; i++) to[i] = (pi_token_prob) {i ? -1 : r->prompt[pos + 1], -INFINITY};
    if (!image) pi__logprobs(logits, (int32_t) n_vocab, r->prompt[pos + 1], n - 1, to, r->e->row_scratch);
    if (pos + (size_t) 2 < r->n_prompt) return;
    pthread_mutex_lock(&r->e->lock);
    pi__event_prompt(r);
    pthread_mutex_unlock(&r->e->lock);
}
