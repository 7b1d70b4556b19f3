/* Vectors of a prompt (see pooling.h): hidden states after the output norm, pooled over the tokens.
 *
 *     none   one vector per token       mean   the mean of all tokens
 *     cls    the first token's          last   the last token's
 *     rank   scores of the model's classifier (model/classifier.h) for the last token, the first or the mean
 *
 * If the model has dense heads (also in model/classifier.h), they transform the vector of mean, cls and last.
 *
 * Sums are accumulated in double precision in the order of positions, regardless of chunks: a vector is bitwise
 * identical in a batch of one and in a larger batch. If the last token suffices, the cache may supply the prompt's
 * beginning; otherwise all of it is computed. Memory: allocated before the request runs; freed with the event or the
 * request. */
#include "api/pooling.h"
#include "api/events.h"
#include "api/lifetime.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* Refuses options that need generated tokens or logits. */
static int check_pooling(const pi_request *r, pi_error *err)
{
    const pi__opt_set *s = &r->set;
    const char *wrong = pi__opt_int(s, PI__OPT_N) > 1                  ? "n"
                        : pi__opt_int(s, PI__OPT_LOGPROBS) >= 0        ? "logprobs"
                        : pi__opt_int(s, PI__OPT_PROMPT_LOGPROBS) >= 0 ? "prompt-logprobs"
                        : r->on_logits                                 ? "logits"
                                                                       : NULL;
    if (!wrong) return PI_OK;
    return pi__fail(err, PI_EINVAL, "pooling returns vectors of the prompt only: leave out option %s", wrong);
}

/* Returns the requested enum pi__pooling, or a negative PI_E*. */
static int64_t kind_of(const pi_request *r, const pi_info *info, pi_error *err)
{
    static const char *const words[] = {[PI__POOL_MEAN] = "mean", [PI__POOL_CLS] = "cls", [PI__POOL_LAST] = "last",
                                        [PI__POOL_RANK] = "rank"};
    int64_t kind = pi__opt_int(&r->set, PI__OPT_POOLING);
    if (kind == PI__POOL_RANK && !info->n_labels)
        return pi__fail(err, PI_EUNSUPPORTED, "pooling rank: the model has no classifier (tensor cls.output.weight): "
                        "give a reranker that a recent llama.cpp converted, or pooling last for a vector");
    if (kind != PI__POOL_MODEL) return kind;
    for (kind = PI__POOL_MEAN; kind <= PI__POOL_RANK; kind++)
        if (info->pooling && !strcmp(info->pooling, words[kind]) && (kind != PI__POOL_RANK || info->n_labels))
            return kind;
    return PI__POOL_LAST;
}

/* True if the pooled vector passes through the model's dense heads. */
static bool has_heads(const pi_request *r, int64_t kind)
{
    return kind != PI__POOL_NONE && kind != PI__POOL_RANK && pi__core_dense(r->e->core)->n_out;
}

/* Returns the number of values per vector, or of scores. 0 = the option is too large; err is filled. */
static size_t width_of(const pi_request *r, const pi_info *info, int64_t kind, pi_error *err)
{
    const int64_t dims = pi__opt_int(&r->set, PI__OPT_DIMENSIONS);
    if (kind == PI__POOL_RANK) return info->n_labels;
    if (dims <= info->n_embd) return dims ? (size_t) dims : info->n_embd;
    pi__fail(err, PI_EINVAL, "dimensions is %lld, but the model's vectors have %u values: give at most that",
             (long long) dims, info->n_embd);
    return 0;
}

int pi__pooling_make(pi_request *r, pi__gen_params *p, pi_error *err)
{
    r->pooling = PI__POOL_OFF;
    if (pi__opt_int(&r->set, PI__OPT_POOLING) == PI__POOL_OFF) return PI_OK;
    int rc = check_pooling(r, err);
    if (rc) return rc;
    pi_info info = {.size = sizeof info};
    rc = pi__core_info(r->e->core, &info);
    if (rc) return rc;
    const int64_t kind = kind_of(r, &info, err);
    if (kind < 0) return (int) kind;
    const size_t dims = width_of(r, &info, kind, err);
    if (!dims) return PI_EINVAL;
    const bool mean = kind == PI__POOL_MEAN || (kind == PI__POOL_RANK && pi__core_classifier(r->e->core)->mean);
    const bool whole = kind == PI__POOL_RANK || has_heads(r, kind); /* heads read full vectors and write in place */
    const size_t room = whole && info.n_embd > dims ? info.n_embd : dims;
    const size_t n = kind == PI__POOL_NONE ? r->n_prompt : 1;
    size_t bytes;
    pi__node *d = &r->prompt_event;
    pi__free(d->values); /* from an earlier submit that was refused */
    pi__free(r->sums);
    r->sums = NULL;
    d->values = pi__mul_ok(n, room * sizeof *d->values, &bytes) ? pi__malloc(bytes) : NULL;
    if (mean) r->sums = pi__calloc(room, sizeof *r->sums);
    if (!d->values || (mean && !r->sums)) return pi__fail_mem(err, "the vectors of the prompt");
    d->embedded = true;
    d->ev = (pi_event) {.size = sizeof d->ev,
                        .kind = PI_EVENT_EMBEDDING,
                        .request = r,
                        .text = "",
                        .embedding = d->values,
                        .n_embd = dims,
                        .n_embeddings = n};
    r->pooling = (int32_t) kind;
    p->hidden = true;
    p->max_tokens = 0;
    const bool first = kind == PI__POOL_CLS || (kind == PI__POOL_RANK && pi__core_classifier(r->e->core)->first);
    p->logits = kind == PI__POOL_NONE || mean || first ? PI__LOGITS_ALL : PI__LOGITS_LAST;
    p->logits_from = 0;
    return PI_OK;
}

/* Applies option embd-normalize: -1 = none, 0 = the largest value becomes 32760, p = the p-norm becomes 1. */
static void normalize_vector(float *v, size_t n, int64_t how)
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

/* Adds n values of a row to the sums, and writes the mean to v after the last row. */
static void add_to_mean(const pi_request *r, const float *row, size_t n, bool is_last, float *v)
{
    for (size_t i = 0; i < n; i++) r->sums[i] += (double) row[i];
    for (size_t i = 0; i < n && is_last; i++) v[i] = (float) (r->sums[i] / (double) r->n_prompt);
}

void pi__pooling_row(pi_request *r, uint32_t pos, const float *row)
{
    pi__node *d = &r->prompt_event;
    const pi__classifier *head = pi__core_classifier(r->e->core);
    const pi__dense_heads *dense = has_heads(r, r->pooling) ? pi__core_dense(r->e->core) : NULL;
    const bool rank = r->pooling == PI__POOL_RANK, first = r->pooling == PI__POOL_CLS || (rank && head->first);
    const size_t n = rank ? (size_t) head->n_in : dense ? (size_t) dense->n[0] : d->ev.n_embd;
    const bool is_last = pos == r->n_prompt - 1;
    float *v = d->values + (r->pooling == PI__POOL_NONE ? pos * n : 0);
    const bool own = r->pooling == PI__POOL_NONE || (first ? !pos : is_last);
    if (r->sums) add_to_mean(r, row, n, is_last, v);
    else if (own) memcpy(v, row, n * sizeof *v);
    if (dense && is_last) pi__dense_heads_apply(dense, v, v);
    if (rank && is_last) pi__classifier_scores(head, v, v);
    else if (r->pooling == PI__POOL_NONE || is_last)
        normalize_vector(v, d->ev.n_embd, pi__opt_int(&r->set, PI__OPT_EMBD_NORMALIZE));
    if (!is_last) return;
    pthread_mutex_lock(&r->e->lock);
    pi__event_prompt(r);
    pthread_mutex_unlock(&r->e->lock);
}
