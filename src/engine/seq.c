/* Sequences and lists of them (see seq.h). */
#include "engine/seq.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

void pi__seq_free(pi__seq *s)
{
    pi__sampler_free(s->sampler);
    pi__thoughts_free(s->thoughts);
    pi__matcher_free(s->matcher);
    pi__images_free(&s->images);
    pi__free(s->tokens);
    pi__free(s->probs);
    pi__free((void *) s->params.stop_ids);
    pi__free((void *) s->params.bad);
    pi__free((void *) s->params.salt);
    pi__free(s);
}

void pi__seq_release(pi__seq *s)
{
    if (!s) return;
    const int before = atomic_fetch_sub(&s->ref, 1);
    pi__assert(before > 0);
    if (before == 1) pi__seq_free(s);
}

int pi__seq_create(const pi__job *j, int32_t max_total, int32_t n_vocab, const pi__vocab *v, pi__seq **out,
                   pi_error *err)
{
    pi__seq *s = pi__calloc(1, sizeof *s);
    if (!s) return pi__fail_mem(err, "the request");
    *s = (pi__seq) {.row = -1,
                    .n_tokens = (int32_t) j->n_prompt,
                    .n_prompt = (int32_t) j->n_prompt,
                    .max_total = max_total,
                    .params = j->params,
                    .call = {.ud = j->ud,
                             .on_token = j->on_token,
                             .on_done = j->on_done,
                             .on_prefill = j->on_prefill,
                             .on_logits = j->params.logits == PI__LOGITS_NONE ? NULL : j->on_logits,
                             .logits_ud = j->logits_ud},
                    .n_rows_given = j->params.logits == PI__LOGITS_ALL ? j->params.logits_from : 0};
    atomic_init(&s->ref, 2);
    s->params.stop_ids = NULL;
    s->params.bad = NULL;
    s->params.salt = NULL;
    s->params.thought_message = NULL;
    s->params.grammar = NULL;
    s->params.lora = NULL;
    s->tokens = pi__calloc((size_t) max_total + 1, sizeof *s->tokens);
    int32_t *stop = pi__calloc(j->params.n_stop_ids, sizeof *stop);
    s->params.stop_ids = stop;
    int32_t *bad = pi__calloc(j->params.n_bad, sizeof *bad);
    s->params.bad = bad;
    if (j->params.n_logprobs >= 0) s->probs = pi__calloc((size_t) j->params.n_logprobs + 1, sizeof *s->probs);
    char *salt = j->params.salt ? pi__strdup(j->params.salt) : NULL;
    s->params.salt = salt;
    int rc = PI_OK;
    if ((j->params.salt && !salt) || !s->tokens || !stop || !bad || (j->params.n_logprobs >= 0 && !s->probs))
        rc = pi__fail_mem(err, "the request");
    if (!rc) rc = pi__sampler_create(&s->sampler, &j->params.sampling, n_vocab, max_total + 1, err);
    if (!rc && j->params.limit_thoughts)
        rc = pi__thoughts_new(&s->thoughts, v, j->params.thought_budget, j->params.thought_message, j->prompt,
                              j->n_prompt, err);
    if (!rc && j->params.grammar) rc = pi__matcher_create(&s->matcher, j->params.grammar, err);
    if (!rc) rc = pi__images_copy(&s->images, j, err);
    if (rc) {
        pi__seq_free(s);
        return rc;
    }
    memcpy(s->tokens, j->prompt, j->n_prompt * sizeof *s->tokens);
    if (j->params.n_stop_ids) memcpy(stop, j->params.stop_ids, j->params.n_stop_ids * sizeof *stop);
    if (j->params.n_bad) memcpy(bad, j->params.bad, j->params.n_bad * sizeof *bad);
    for (int32_t i = 0; i < s->n_prompt; i++) /* tokens of images have no id that could be penalised */
        if (!pi__images_cover(&s->images, i)) pi__sampler_accept(s->sampler, j->prompt[i]);
    /* arrays of params.sampling belong to the submitter; the sampler has copies */
    memset(&s->params.sampling, 0, sizeof s->params.sampling);
    *out = s;
    return PI_OK;
}

static bool seq_before(const pi__seq *a, const pi__seq *b, bool by_priority)
{
    if (by_priority && a->aged != b->aged) return a->aged;
    if (by_priority && !a->aged && a->params.priority != b->params.priority)
        return a->params.priority < b->params.priority;
    return a->arrival < b->arrival;
}

void pi__list_insert(pi__seq_list *l, pi__seq *s, bool by_priority)
{
    pi__seq *at = l->tail; /* a new sequence is usually the last */
    pi__assert(!s->prev && !s->next && l->head != s && !l->n == !l->head);
    while (at && seq_before(s, at, by_priority)) at = at->prev;
    s->prev = at;
    s->next = at ? at->next : l->head;
    if (s->next) s->next->prev = s;
    else l->tail = s;
    if (at) at->next = s;
    else l->head = s;
    l->n++;
}

void pi__list_remove(pi__seq_list *l, pi__seq *s)
{
    pi__assert(l->n > 0);
    pi__assert(s->prev ? s->prev->next == s : l->head == s); /* s is on this list */
    pi__assert(s->next ? s->next->prev == s : l->tail == s);
    if (s->prev) s->prev->next = s->next;
    else l->head = s->next;
    if (s->next) s->next->prev = s->prev;
    else l->tail = s->prev;
    s->prev = s->next = NULL;
    l->n--;
}

int32_t pi__seq_max_reuse(const pi__seq *s)
{
    const bool rows = s->params.logits == PI__LOGITS_ALL && s->n_rows_given < s->n_prompt;
    return rows ? s->n_rows_given : s->n_tokens - 1;
}
