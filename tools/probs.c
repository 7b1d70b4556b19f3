/* Log-probabilities of a prompt as JSON (see probs.h). Not thread-safe. */
#include "probs.h"

#include <math.h>
#include <stdlib.h>

/* Returns the token's bytes as text; null if they are not UTF-8 (a byte of a longer character). */
static json_t *text_of(const pi_engine *e, int32_t id)
{
    char small[256], *text = small;
    int64_t n = pi_detokenize(e, &id, 1, PI_TOK_SPECIAL, small, sizeof small);
    if (n > (int64_t) sizeof small) {
        text = malloc((size_t) n);
        if (!text) return NULL;
        n = pi_detokenize(e, &id, 1, PI_TOK_SPECIAL, text, (size_t) n);
    }
    json_t *s = n < 0 ? NULL : json_stringn(text, (size_t) n);
    if (text != small) free(text);
    return s ? s : json_null();
}

/* A probability of 0 has no finite logarithm and becomes null. */
static json_t *entry(const pi_engine *e, const pi_token_prob *p)
{
    json_t *logprob = isfinite(p->logprob) ? json_real((double) p->logprob) : json_null();
    return json_pack("{s:i, s:o, s:o}", "id", (int) p->id, "text", text_of(e, p->id), "logprob", logprob);
}

/* Writes one token and its most likely alternatives; fewer than n if no others are possible. */
static json_t *token(const pi_engine *e, const pi_token_prob *p, size_t n)
{
    json_t *own = entry(e, p), *top = json_array();
    bool ok = own && !json_object_set(own, "top", top);
    for (size_t i = 1; i < n && ok && p[i].id >= 0; i++) ok = !json_array_append_new(top, entry(e, &p[i]));
    json_decref(top);
    if (ok) return own;
    json_decref(own);
    return NULL;
}

json_t *probs_json(const pi_engine *e, const pi_event *ev)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < ev->n_tokens; i++) {
        if (!json_array_append_new(list, token(e, ev->logprobs + i * ev->n_logprobs, ev->n_logprobs))) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}
