/* /v1/embeddings: vectors of texts, as OpenAI has them; and /embedding, as llama-server has them. Each text is a request
 * with pooling, in the engine's batches with everybody's answers. Reading runs on the pool, writing on the loop (gen.h). */
#include <stdlib.h>
#include <string.h>

#include "serve/gen.h"

/* What vectors are made of: what the command line says, or the model; the mean where neither does. */
static const char *pooling(const server *s)
{
    const char *said = cli_str(s->c, "pooling");
    if (cli_given(s->c, "pooling") && strcmp(said, "none") && strcmp(said, "off")) return said;
    return *s->info.pooling && strcmp(s->info.pooling, "none") != 0 ? "model" : "mean";
}

static int read_embeddings(gen *g, pi_error *err)
{
    params *p = &g->p;
    const char *format = "float";
    int64_t n = 0;
    char text[32];
    p->n = 1;
    p->logprobs = -1;
    p->stream = p->echo = false;
    p->max_tokens = INT64_MIN;
    int rc = params_string(p, p->root, "encoding_format", &format, err);
    if (!rc && strcmp(format, "float") && strcmp(format, "base64"))
        rc = params_fail(p, "encoding_format", err, "'encoding_format' must be float or base64");
    if (!rc) rc = params_int(p, p->root, "dimensions", 1, 1 << 20, &n, err);
    if (!rc) rc = params_add(p, "pooling", "input", pooling(g->s), err);
    snprintf(text, sizeof text, "%d", (int) n);
    if (!rc && n) rc = params_add(p, "dimensions", "dimensions", text, err);
    const bool content = g->w == &wire_embedding && json_object_get(p->root, "content");
    return rc ? rc : params_prompts(p, content ? "content" : "input", err);
}

static json_t *numbers(const float *v, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_real((double) v[i]));
    return list;
}

/* The bytes of little-endian floats. */
static json_t *base64(const float *v, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *) v;
    const size_t len = n * sizeof *v;
    buf b = {0};
    for (size_t i = 0; i < len; i += 3) {
        const size_t k = len - i;
        const unsigned x = (unsigned) p[i] << 16 | (k > 1 ? (unsigned) p[i + 1] << 8 : 0) | (k > 2 ? p[i + 2] : 0u);
        const char four[4] = {digit[x >> 18], digit[x >> 12 & 63], k > 1 ? digit[x >> 6 & 63] : '=',
                              k > 2 ? digit[x & 63] : '='};
        buf_put(&b, four, 4);
    }
    if (b.failed) text_no_memory();
    json_t *s = b.failed ? NULL : json_stringn(b.p ? b.p : "", b.n);
    buf_free(&b);
    return s;
}

static json_t *embeddings_whole(gen *g)
{
    const char *format = json_string_value(json_object_get(g->p.root, "encoding_format"));
    const bool packed = format && !strcmp(format, "base64");
    json_t *list = json_array();
    usage u = gen_usage(g);
    for (size_t i = 0; i < g->n_choices; i++) {
        const choice *ch = &g->choices[i];
        json_t *one = json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", (int) i, "embedding",
                                (packed ? base64 : numbers)(ch->vector, ch->n_vector));
        if (!one || json_array_append_new(list, one)) {
            json_decref(list);
            return NULL;
        }
    }
    return json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", list, "model", gen_model(g), "usage",
                     "prompt_tokens", (json_int_t) u.prompt, "total_tokens", (json_int_t) u.prompt);
}

/* [{"index": 0, "embedding": [[...]]}]: a vector of all tokens is a list of one. */
static json_t *embedding_whole(gen *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < g->n_choices; i++) {
        const choice *ch = &g->choices[i];
        json_array_append_new(list, json_pack("{s:i, s:[o]}", "index", (int) i, "embedding",
                                              numbers(ch->vector, ch->n_vector)));
    }
    return list;
}

const wire wire_embedding = {.id_prefix = "emb-", .what = "embedding", .read = read_embeddings, .whole = embedding_whole,
                             .raw_prompt = true};
const wire wire_embeddings = {.id_prefix = "emb-", .what = "embedding", .read = read_embeddings,
                              .whole = embeddings_whole, .raw_prompt = true};
