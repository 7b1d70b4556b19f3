/* /v1/rerank: sorts documents by relevance to a query, in the format of Jina, Cohere and llama-server. With "texts"
 * instead of "documents" it uses the format of text-embeddings-inference. Each document is an engine request with the
 * query, batched with all other requests. Its score is the first output of the model's classifier. Reading runs on the
 * pool, writing on the loop (gen.h). */
#include <stdlib.h>
#include <string.h>

#include "serve/gen.h"

static const char *list_field(const params *p) { return json_object_get(p->root, "texts") ? "texts" : "documents"; }

/* Reads the option to return the texts. */
static int wants_texts(params *p, bool *out, pi_error *err)
{
    *out = false;
    return params_bool(p, p->root, strcmp(list_field(p), "texts") ? "return_documents" : "return_text", out, err);
}

static int read_rerank(gen *g, pi_error *err)
{
    params *p = &g->p;
    int64_t top_n;
    bool texts;
    p->n = 1;
    p->logprobs = -1;
    p->stream = p->echo = false;
    p->max_tokens = INT64_MIN;
    if (!g->sv->info.n_labels)
        return params_fail(p, "model", err, "this model has no classifier for scoring documents: serve a "
                           "reranker, converted by a llama.cpp that supports rerankers");
    int rc = params_int(p, p->root, "top_n", 1, INT32_MAX, &top_n, err);
    if (!rc) rc = wants_texts(p, &texts, err);
    if (!rc) rc = params_add(p, "pooling", "query", "rank", err);
    return rc ? rc : params_pairs(p, "query", list_field(p), err);
}

static int by_score(const void *a, const void *b)
{
    const choice *x = *(const choice *const *) a, *y = *(const choice *const *) b;
    if (x->vector[0] != y->vector[0]) return x->vector[0] < y->vector[0] ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Returns one document's entry. text: include the document's text, as a plain field (text-embeddings-inference) or in
 * an object. */
static json_t *result(const gen *g, const choice *ch, bool bare, bool text)
{
    const prompt *pr = &g->p.prompts[ch->index];
    json_t *o = json_pack("{s:i, s:f}", "index", (int) ch->index, bare ? "score" : "relevance_score",
                          (double) ch->vector[0]);
    json_t *t = text ? json_stringn(pr->text, pr->len) : NULL;
    if (t && !bare) t = json_pack("{s:o}", "text", t);
    if (!text || !json_object_set_new(o, bare ? "text" : "document", t)) return o;
    json_decref(o);
    return NULL;
}

/* Returns the first n documents by score. */
static json_t *results(const gen *g, size_t n, bool bare, bool text)
{
    const choice **order = malloc(g->n_choices * sizeof *order);
    json_t *list = order ? json_array() : NULL;
    for (size_t i = 0; list && i < g->n_choices; i++) order[i] = &g->choices[i];
    if (list) qsort(order, g->n_choices, sizeof *order, by_score);
    for (size_t i = 0; list && i < n; i++) {
        if (!json_array_append_new(list, result(g, order[i], bare, text))) continue;
        json_decref(list);
        list = NULL;
    }
    free(order);
    return list;
}

static json_t *rerank_whole(gen *g)
{
    params *p = &g->p;
    const usage u = gen_usage(g);
    const bool bare = !strcmp(list_field(p), "texts");
    int64_t top_n = (int64_t) g->n_choices;
    bool texts;
    pi_error err; /* read_rerank has checked both fields */
    params_int(p, p->root, "top_n", 1, INT32_MAX, &top_n, &err);
    wants_texts(p, &texts, &err);
    json_t *list = results(g, (size_t) top_n < g->n_choices ? (size_t) top_n : g->n_choices, bare, texts);
    if (bare || !list) return list;
    return json_pack("{s:s, s:s, s:s, s:{s:I, s:I}, s:o}", "id", g->id, "model", gen_model(g), "object", "list",
                     "usage", "prompt_tokens", (json_int_t) u.prompt, "total_tokens", (json_int_t) u.prompt, "results",
                     list);
}

const wire wire_rerank = {.id_prefix = "rerank-", .what = "reranking", .read = read_rerank, .whole = rerank_whole,
                          .raw_prompt = true};
