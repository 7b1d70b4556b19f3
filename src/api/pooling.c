/* Vectors of a prompt (see pooling.h): hidden states after the output norm, put together over the tokens.
 *
 *     none   each token's own           mean   their mean
 *     cls    the first token's          last   the last token's
 *
 * Sums are made in double precision in the order of positions, whatever the chunks: a vector is the same to the bit alone
 * and in a batch. Where the last token suffices, the prompt's beginning may come from the cache; else all of it is computed.
 * Memory: all of it is there before the request runs; it goes with the event, or with the request. */
#include "api/pooling.h"
#include "api/events.h"
#include "api/lifetime.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* What does not go with a request that generates nothing. */
static int check(const pi_request *r, pi_error *err)
{
    const pi__opt_set *s = &r->set;
    const char *wrong = pi__opt_int(s, PI__OPT_N) > 1 ? "n" : pi__opt_int(s, PI__OPT_LOGPROBS) >= 0 ? "logprobs"
                        : pi__opt_int(s, PI__OPT_PROMPT_LOGPROBS) >= 0 ? "prompt-logprobs" : r->on_logits ? "logits" : NULL;
    if (!wrong) return PI_OK;
    return pi__fail(err, PI_EINVAL, "pooling gives vectors of the prompt and nothing else: leave out option %s", wrong);
}

int pi__pooling_make(pi_request *r, pi__gen_params *p, pi_error *err)
{
    int64_t kind = pi__opt_int(&r->set, PI__OPT_POOLING), dims = pi__opt_int(&r->set, PI__OPT_DIMENSIONS);
    r->pooling = PI__POOL_OFF;
    if (kind == PI__POOL_OFF) return PI_OK;
    int rc = check(r, err);
    if (rc) return rc;
    pi_info info = {.size = sizeof info};
    rc = pi__core_info(r->e->core, &info);
    if (rc) return rc;
    if (kind == PI__POOL_MODEL) kind = info.pooling && !strcmp(info.pooling, "mean") ? PI__POOL_MEAN
                                       : info.pooling && !strcmp(info.pooling, "cls") ? PI__POOL_CLS : PI__POOL_LAST;
    if (dims > info.n_embd)
        return pi__fail(err, PI_EINVAL, "dimensions is %lld; the model's vectors have %u values", (long long) dims, info.n_embd);
    if (!dims) dims = info.n_embd;
    const size_t n = kind == PI__POOL_NONE ? r->n_prompt : 1;
    size_t bytes;
    pi__node *d = &r->prompt_event;
    pi__free(d->values); /* of an earlier submit that was refused */
    pi__free(r->sums);
    r->sums = NULL;
    d->values = pi__mul_ok(n, (size_t) dims * sizeof *d->values, &bytes) ? pi__malloc(bytes) : NULL;
    if (kind == PI__POOL_MEAN) r->sums = pi__calloc((size_t) dims, sizeof *r->sums);
    if (!d->values || (kind == PI__POOL_MEAN && !r->sums)) return pi__fail_mem(err, "the vectors of the prompt");
    d->embedded = true;
    d->ev = (pi_event) {.size = sizeof d->ev, .kind = PI_EVENT_EMBEDDING, .request = r, .text = "", .embedding = d->values,
                        .n_embd = (size_t) dims, .n_embeddings = n};
    r->pooling = (int32_t) kind;
    p->hidden = true;
    p->max_tokens = 0;
    p->logits = kind == PI__POOL_LAST ? PI__LOGITS_LAST : PI__LOGITS_ALL;
    p->logits_from = 0;
    return PI_OK;
}

/* Option embd-normalize: -1 none, 0 the largest value becomes 32760, else the p-norm becomes 1. */
static void normalize(float *v, size_t n, int64_t how)
{
    double sum = 0;
    if (how < 0) return;
    for (size_t i = 0; i < n; i++) {
        const double a = fabs((double) v[i]);
        if (how == 0) sum = a > sum ? a : sum;
        else sum += how == 1 ? a : how == 2 ? a * a : pow(a, (double) how);
    }
    if (how == 0) sum /= 32760;
    else if (how == 2) sum = sqrt(sum);
    else if (how > 2) sum = pow(sum, 1.0 / (double) how);
    for (size_t i = 0; i < n; i++) v[i] = sum > 0 ? (float) (v[i] / sum) : 0.0f;
}

void pi__pooling_row(pi_request *r, uint32_t pos, const float *row)
{
    pi__node *d = &r->prompt_event;
    const size_t n = d->ev.n_embd, last = r->n_prompt - 1;
    const int64_t how = pi__opt_int(&r->set, PI__OPT_EMBD_NORMALIZE);
    float *v = d->values + (r->pooling == PI__POOL_NONE ? pos * n : 0);
    if (r->pooling == PI__POOL_MEAN) {
        for (size_t i = 0; i < n; i++) r->sums[i] += (double) row[i];
        for (size_t i = 0; i < n && pos == last; i++) v[i] = (float) (r->sums[i] / (double) r->n_prompt);
    } else if (r->pooling == PI__POOL_NONE || (r->pooling == PI__POOL_CLS && !pos) ||
               (r->pooling == PI__POOL_LAST && pos == last)) {
        memcpy(v, row, n * sizeof *v);
    }
    if (r->pooling == PI__POOL_NONE || pos == last) normalize(v, n, how);
    if (pos != last) return;
    pthread_mutex_lock(&r->e->lock);
    pi__event_prompt(r);
    pthread_mutex_unlock(&r->e->lock);
}
