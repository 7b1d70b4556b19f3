/* Request fields that need the model's vocabulary: prompts of texts and ids, truncated prompts, biases of texts. Runs
 * on the pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/gen.h"

enum { MAX_BIASED = 4096 }; /* maximum bytes of a biased text */

/* --------------------------------------------------------------------------------------------------------- prompts */

/* Appends the tokens of a text to the *n tokens in *ids. */
static int add_text(const service *sv, pi_work *limit, const char *text, size_t len, int flags, int32_t **ids,
                    size_t *n, size_t *cap)
{
    if (!grow(ids, cap, *n + len + 16, sizeof **ids)) return PI_ENOMEM;
    int64_t got = pi_work_tokenize(limit, sv->e, text, len, flags, *ids + *n, *cap - *n);
    if (got > (int64_t) (*cap - *n)) {
        if (!grow(ids, cap, *n + (size_t) got, sizeof **ids)) return PI_ENOMEM;
        got = pi_work_tokenize(limit, sv->e, text, len, flags, *ids + *n, *cap - *n);
    }
    if (got < 0) return (int) got;
    *n += (size_t) got;
    return PI_OK;
}

int service_tokens(const service *sv, pi_work *limit, const json_t *v, int flags, int32_t **ids, size_t *n)
{
    const json_t *one;
    size_t cap = 0, i;
    int rc = PI_OK;
    *ids = NULL;
    *n = 0;
    if (json_is_string(v)) return add_text(sv, limit, json_string_value(v), json_string_length(v), flags, ids, n, &cap);
    json_array_foreach(v, i, one) {
        if (json_is_string(one)) {
            const int of = i ? flags & ~PI_TOK_BOS : flags; /* only a text at the start gets BOS */
            rc = add_text(sv, limit, json_string_value(one), json_string_length(one), of, ids, n, &cap);
        } else if (!grow(ids, &cap, *n + 1, sizeof **ids)) {
            rc = PI_ENOMEM;
        } else {
            (*ids)[(*n)++] = (int32_t) json_integer_value(one);
        }
        if (rc) return rc;
    }
    return PI_OK;
}

/* Truncates the prompt to its last tokens. A leading BOS of a text prompt is kept. */
static void cut(const gen *g, prompt *pr, bool text)
{
    const int64_t ctx = (int64_t) g->sv->info.ctx_size, said = g->p.max_prompt_tokens;
    const int64_t answer = g->p.max_tokens > 0 && g->p.max_tokens < ctx ? g->p.max_tokens : 1;
    const size_t most = (size_t) (said > 0 ? said : ctx - answer),
                 keep = text && most > 1 && pr->ids[0] == g->sv->info.bos;
    if (pr->n_ids <= most) return;
    memmove(pr->ids + keep, pr->ids + pr->n_ids - (most - keep), (most - keep) * sizeof *pr->ids);
    pr->n_ids = most;
}

/* Tokenizes a text with the service's marker for each of the prompt's images: image i becomes the id -1 - i. */
static int read_marked(gen *g, prompt *pr, int flags, pi_error *err)
{
    const char *marker = g->sv->media_marker, *at = pr->text, *end = pr->text + pr->len;
    const size_t n_marker = strlen(marker);
    size_t cap = 0, n_images = 0;
    for (const char *next; at <= end; at = next + n_marker) {
        next = memmem(at, (size_t) (end - at), marker, n_marker);
        const char *stop = next ? next : end;
        int rc = PI_OK;
        if (stop > at || !pr->n_ids)
            rc = add_text(g->sv, g->work, at, (size_t) (stop - at), flags, &pr->ids, &pr->n_ids, &cap);
        flags &= ~PI_TOK_BOS;
        if (!rc && next && !grow(&pr->ids, &cap, pr->n_ids + 1, sizeof *pr->ids)) rc = PI_ENOMEM;
        if (rc == PI_ENOMEM) return params_no_memory(err);
        if (rc) return *err = (pi_error) {.code = rc}, rc;
        if (!next) break;
        pr->ids[pr->n_ids++] = -1 - (int32_t) n_images++;
    }
    pr->text = NULL;
    if (n_images == pr->n_images) return PI_OK;
    return params_fail(&g->p, "prompt", err, "'prompt_string' has %zu times the media_marker of /props, and "
                       "multimodal_data has %zu images: give one marker for each image", n_images, pr->n_images);
}

/* Tokenizes a prompt only if needed. Other texts stay texts, so that they can be echoed unchanged. */
static int read_prompt(gen *g, prompt *pr, pi_error *err)
{
    const params *p = &g->p;
    const bool cuts = p->max_prompt_tokens != INT64_MIN, bos = !p->no_bos;
    const bool text = pr->text && !pr->query, first = text || json_is_string(json_array_get(pr->mixed, 0));
    if (!pr->n_images && !pr->mixed && !(text && (cuts || p->no_bos)) && !(pr->ids && cuts)) return PI_OK;
    const int flags = PI_TOK_SPECIAL | (bos ? PI_TOK_BOS : 0);
    if (pr->n_images && !pr->text)
        return params_fail(&g->p, "prompt", err, "'multimodal_data' needs a 'prompt_string' that is a text");
    if (pr->n_images && cuts)
        return params_fail(&g->p, "truncate_prompt_tokens", err, "'truncate_prompt_tokens' does not work with images");
    if (pr->n_images) return read_marked(g, pr, flags, err);
    if (!pr->ids) {
        size_t cap = 0;
        int rc = pr->mixed ? service_tokens(g->sv, g->work, pr->mixed, flags, &pr->ids, &pr->n_ids)
                           : add_text(g->sv, g->work, pr->text, pr->len, flags, &pr->ids, &pr->n_ids, &cap);
        pr->mixed = NULL;
        pr->text = NULL;
        if (rc == PI_ENOMEM) return params_no_memory(err);
        if (rc) return *err = (pi_error) {.code = rc}, rc;
    }
    if (cuts) cut(g, pr, first && bos);
    return PI_OK;
}

/* ---------------------------------------------------------------------------------------------------------- biases */

static const char bias_field[] = "logit_bias";

/* Adds a bias. false and "-inf" forbid the token. More biases than tokens would only repeat them. */
static int add_bias(gen *g, json_int_t id, const json_t *v, pi_error *err)
{
    params *p = &g->p;
    char text[96];
    if (p->n_bias++ >= g->sv->info.n_vocab)
        return params_fail(p, bias_field, err,
                           "'logit_bias' has more entries than the vocabulary has tokens (%u): name each token once",
                           g->sv->info.n_vocab);
    if (json_is_false(v)) snprintf(text, sizeof text, "%lld-inf", (long long) id);
    else if (json_is_number(v)) snprintf(text, sizeof text, "%lld%+.9g", (long long) id, json_number_value(v));
    else
        return params_fail(p, bias_field, err, "'logit_bias' of %lld must be a number, or false to forbid the token",
                           (long long) id);
    return params_add(p, "logit-bias", bias_field, text, err);
}

/* Biases all tokens of a text, tokenized as in the middle of another text. */
static int bias_text(gen *g, const char *text, size_t len, const json_t *v, pi_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0, cap = 0;
    if (!len || len > MAX_BIASED)
        return params_fail(&g->p, bias_field, err, "'logit_bias': a text has 1 to %d bytes, not %zu", MAX_BIASED, len);
    int rc = add_text(g->sv, g->work, text, len, 0, &ids, &n, &cap);
    if (rc) params_no_memory(err);
    for (size_t i = 0; i < n && !rc; i++) {
        size_t seen = 0;
        while (seen < i && ids[seen] != ids[i]) seen++;
        if (seen == i) rc = add_bias(g, ids[i], v, err);
    }
    free(ids);
    return rc;
}

/* Reads a key of an object: an id in digits, or a text. */
static int bias_key(gen *g, const char *key, size_t len, const json_t *v, pi_error *err)
{
    char *end;
    const long long id = strtoll(key, &end, 10);
    if (!len || end != key + len) return bias_text(g, key, len, v, err);
    return add_bias(g, id, v, err);
}

/* Reads OpenAI's object of ids, or llama.cpp's list of pairs; both may also contain texts. */
static int read_bias(gen *g, pi_error *err)
{
    json_t *v = json_object_get(g->p.root, bias_field), *b;
    const char *key;
    size_t i, len;
    int rc = PI_OK;
    if (!v || json_is_null(v)) return PI_OK;
    if (json_is_object(v)) {
        json_object_keylen_foreach(v, key, len, b) if (!rc) rc = bias_key(g, key, len, b, err);
        return rc;
    }
    if (!json_is_array(v))
        return params_fail(&g->p, bias_field, err, "'logit_bias' must be an object: token id or text to bias");
    json_array_foreach(v, i, b) {
        const json_t *of = json_array_get(b, 0), *by = json_array_get(b, 1);
        if (json_is_integer(of)) rc = add_bias(g, json_integer_value(of), by, err);
        else if (json_is_string(of)) rc = bias_text(g, json_string_value(of), json_string_length(of), by, err);
        else
            return params_fail(&g->p, bias_field, err,
                               "'logit_bias' as a list must contain pairs of token id, or text, and bias");
        if (rc) return rc;
    }
    return PI_OK;
}

int gen_vocab_fields(gen *g, pi_error *err)
{
    int rc = read_bias(g, err);
    for (size_t i = 0; i < g->p.n_prompts && !rc; i++) rc = read_prompt(g, &g->p.prompts[i], err);
    return rc;
}
