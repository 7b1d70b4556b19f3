/* Measures the speed of structured output: tool_structured MODEL.gguf [REQUESTS [TOKENS [ROUNDS]]]
 *
 * Alternately runs REQUESTS concurrent requests without and with a JSON Schema. Prints tokens per second of both and
 * their ratio. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "pagedinfer.h"

static const char schema[] =
    "{\"type\": \"array\", \"minItems\": 1000, \"items\": {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"},"
    "\"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 130}, \"mail\": {\"type\": \"string\", \"maxLength\": 60},"
    "\"tags\": {\"type\": \"array\", \"items\": {\"enum\": [\"new\", \"old\", \"other\"]}}}, \"required\": [\"name\", \"age\", \"tags\"]}}";

static void check(int rc, const pi_error *err)
{
    if (!rc) return;
    fprintf(stderr, "%s\n", err->msg);
    exit(1);
}

/* Returns tokens per second of n requests with the given number of tokens. */
static double run(pi_engine *e, int n, const char *tokens, const char *form, bool show)
{
    pi_request *r[256];
    pi_error err = {0};
    double total = 0;
    const double start = pi__now_ms();
    for (int i = 0; i < n; i++) {
        char prompt[64], seed[32];
        snprintf(prompt, sizeof prompt, "People number %d as JSON:\n", i);
        snprintf(seed, sizeof seed, "%d", i);
        r[i] = pi_request_new(e);
        check(pi_request_prompt_text(r[i], prompt, strlen(prompt), &err), &err);
        check(pi_request_set(r[i], "max-tokens", tokens, &err), &err);
        check(pi_request_set(r[i], "seed", seed, &err), &err);
        check(pi_request_set(r[i], "ignore-eos", "true", &err), &err);
        if (form) check(pi_request_set(r[i], "json-schema", form, &err), &err);
        check(pi_request_submit(r[i], &err), &err);
    }
    for (int i = 0; i < n; i++) {
        pi_result s = {.size = sizeof s};
        pi_request_wait(r[i], -1);
        pi_request_result(r[i], &s);
        if (s.code) fprintf(stderr, "%s\n", s.msg);
        total += s.generated_tokens;
    }
    const double rate = total / (pi__now_ms() - start) * 1e3;
    if (show) {
        int32_t ids[512];
        char text[4096];
        const size_t k = pi_request_tokens(r[0], ids, 512);
        const int64_t len = pi_detokenize(e, ids, k < 512 ? k : 512, 0, text, sizeof text);
        printf("%.*s\n", (int) (len < (int64_t) sizeof text ? len : (int64_t) sizeof text), text);
    }
    for (int i = 0; i < n; i++) pi_request_free(r[i]);
    return rate;
}

int main(int argc, char **argv)
{
    pi_error err = {0};
    pi_engine *e;
    pi_options *o = pi_options_new();
    const int n = argc > 2 ? atoi(argv[2]) : 16, rounds = argc > 4 ? atoi(argv[4]) : 3;
    const char *tokens = argc > 3 ? argv[3] : "48";
    if (argc < 2 || n < 1 || n > 256) return 2;
    check(pi_options_set(o, "model", argv[1], &err), &err);
    check(pi_options_set(o, "ctx-size", "1024", &err), &err);
    check(pi_options_set(o, "kv-cache-tokens", "32768", &err), &err);
    check(pi_engine_open(&e, o, &err), &err);
    pi_options_free(o);
    run(e, n, "4", NULL, false);
    /* this run builds the vocabulary's trie */
    printf("first with schema %.1f tokens/s\n", run(e, n, "4", schema, false));
    double ratio = 0;
    for (int i = 0; i < rounds; i++) {
        const double plain = run(e, n, tokens, NULL, false), form = run(e, n, tokens, schema, i == 0);
        printf("free %.1f tokens/s, schema %.1f tokens/s: %.3f\n", plain, form, form / plain);
        ratio += form / plain / rounds;
    }
    printf("mean ratio %.3f\n", ratio);
    pi_engine_close(e);
    return 0;
}
