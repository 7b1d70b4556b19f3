/* /v1/embeddings in OpenAI's format, and /embeddings in llama-server's: lists of vectors, or the vectors of all tokens
 * with --pooling none. Each text is an engine request with pooling, batched with all other requests. Reading runs on
 * the pool; so does the writing of large responses (gen.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "serve/reply.h"

/* Returns the pooling type: from the command line, else from the model, else "mean". tokens: "none" (a vector per
 * token) is allowed. */
static const char *pooling(const server *s, bool tokens)
{
    const char *said = cli_given(s->c, "pooling") ? cli_str(s->c, "pooling") : "model";
    if (tokens && !strcmp(said, "none")) return said;
    if (!strcmp(said, "off") || !strcmp(said, "model") || !strcmp(said, "none")) said = s->sv.info.pooling;
    if (!strcmp(said, "rank")) return "last"; /* the input of the classifier */
    return *said && strcmp(said, "none") != 0 ? said : "mean";
}

/* Reads the fields shared by both formats. */
static int read_input(gen *g, const char *input, const char *kind, pi_error *err)
{
    params *p = &g->p;
    int64_t n = 0;
    char text[32];
    p->n = 1;
    p->logprobs = -1;
    p->stream = p->echo = false;
    p->max_tokens = INT64_MIN;
    int rc = params_int(p, p->root, "dimensions", 1, 1 << 20, &n, err);
    if (!rc) rc = params_add(p, "pooling", input, kind, err);
    snprintf(text, sizeof text, "%d", (int) n);
    if (!rc && n) rc = params_add(p, "dimensions", "dimensions", text, err);
    return rc ? rc : params_prompts(p, input, err);
}

int embeddings_read(gen *g, const char *input, pi_error *err)
{
    return read_input(g, input, pooling(reply_server(g), false), err);
}

static int read_embeddings(gen *g, pi_error *err)
{
    params *p = &g->p;
    const char *format = "float";
    int rc = params_string(p, p->root, "encoding_format", &format, err);
    if (!rc && strcmp(format, "float") && strcmp(format, "base64"))
        rc = params_fail(p, "encoding_format", err, "'encoding_format' must be float or base64");
    return rc ? rc : embeddings_read(g, "input", err);
}

/* Token vectors are not normalized; other vectors are normalized as embd_normalize says. */
static int read_native(gen *g, pi_error *err)
{
    params *p = &g->p;
    const char *kind = pooling(reply_server(g), true), *input = json_object_get(p->root, "input") ? "input" : "content";
    int64_t norm = 2;
    char text[32];
    int rc = params_int(p, p->root, "embd_normalize", -1, 64, &norm, err);
    snprintf(text, sizeof text, "%d", strcmp(kind, "none") ? (int) norm : -1);
    const bool said = json_object_get(p->root, "embd_normalize") || !strcmp(kind, "none");
    if (!rc && said) rc = params_add(p, "embd-normalize", "embd_normalize", text, err);
    return rc ? rc : read_input(g, input, kind, err);
}

/* Appends a list of numbers. Returns false if one is not finite. */
bool embeddings_put(buf *b, const float *v, size_t n)
{
    char text[32];
    buf_put(b, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) return false;
        int len = snprintf(text, sizeof text, i ? ",%.*g" : "%.*g", ANSWER_DIGITS, (double) v[i]);
        /* a decimal point, so that readers parse a real number */
        if (!strpbrk(text, ".e")) len += snprintf(text + len, sizeof text - (size_t) len, ".0");
        buf_put(b, text, (size_t) len);
    }
    buf_put(b, "]", 1);
    return true;
}

/* Appends the little-endian floats as base64. */
static void put_base64(buf *b, const float *v, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *) v;
    const size_t len = n * sizeof *v;
    buf_put(b, "\"", 1);
    for (size_t i = 0; i < len; i += 3) {
        const size_t k = len - i;
        const unsigned x = (unsigned) p[i] << 16 | (k > 1 ? (unsigned) p[i + 1] << 8 : 0) | (k > 2 ? p[i + 2] : 0u);
        const char four[4] = {digit[x >> 18], digit[x >> 12 & 63], k > 1 ? digit[x >> 6 & 63] : '=',
                              k > 2 ? digit[x & 63] : '='};
        buf_put(b, four, 4);
    }
    buf_put(b, "\"", 1);
}

static bool write_embeddings(const gen *g, buf *b)
{
    const char *format = json_string_value(json_object_get(g->p.root, "encoding_format")), *model = gen_model(g);
    const bool packed = format && !strcmp(format, "base64");
    const unsigned long long n = gen_usage(g).prompt;
    buf_str(b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < g->n_choices; i++) {
        const choice *ch = &g->choices[i];
        buf_fmt(b, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "", i);
        if (packed) put_base64(b, ch->vector, ch->n_vector);
        else if (!embeddings_put(b, ch->vector, ch->n_vector)) return false;
        buf_put(b, "}", 1);
    }
    buf_str(b, "],\"model\":");
    text_put_json(b, model, strlen(model));
    buf_fmt(b, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", n, n);
    return true;
}

/* Writes all vectors of each text. */
static bool write_native(const gen *g, buf *b)
{
    buf_put(b, "[", 1);
    for (size_t i = 0; i < g->n_choices; i++) {
        const choice *ch = &g->choices[i];
        const size_t width = ch->n_vectors ? ch->n_vector / ch->n_vectors : 0;
        buf_fmt(b, "%s{\"index\":%zu,\"embedding\":[", i ? "," : "", i);
        for (size_t k = 0; k < ch->n_vectors; k++) {
            if (k) buf_put(b, ",", 1);
            if (!embeddings_put(b, ch->vector + k * width, width)) return false;
        }
        buf_str(b, "]}");
    }
    buf_put(b, "]", 1);
    return true;
}

const wire wire_native_embeddings = {
    .id_prefix = "emb-", .what = "embedding", .read = read_native, .write = write_native, .raw_prompt = true};
const wire wire_embeddings = {.id_prefix = "emb-", .what = "embedding", .read = read_embeddings,
                              .write = write_embeddings, .raw_prompt = true};
