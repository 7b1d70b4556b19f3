/* Classifier heads (option pooling, rank), on random models of each architecture. Scores match the head in double
 * precision over the vector of pooling last or mean. They are bitwise identical in chunks and in a batch. Also
 * prompts for text pairs, and errors of a damaged or missing head. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "pagedinfer.h"
#include "random_model.h"

enum { N = 150, WIDTH = 512 }; /* tokens of a prompt, more than a block of any cache; maximum size of a vector */

typedef struct values {
    float v[WIDTH];
    size_t n;
    uint32_t cached, prompt_tokens;
} values;

/* `set`: "key=value" strings or NULL. Returns NULL if the file cannot run by itself. */
static pi_engine *open_with(const char *path, const char *const set[2], pi_error *err)
{
    pi_options *o = pi_options_new();
    pi_engine *e = NULL;
    int rc = pi_options_set(o, "model", path, err) | pi_options_set(o, "threads", "2", err);
    for (int i = 0; i < 2 && set[i] && !rc; i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int) strcspn(set[i], "="), set[i]);
        rc = pi_options_set(o, key, strchr(set[i], '=') + 1, err);
    }
    if (rc) fail_msg("%s", err->msg);
    pi_engine_open(&e, o, err);
    pi_options_free(o);
    return e;
}

static pi_request *new_request(pi_engine *e, const char *pooling)
{
    pi_error err = {0};
    pi_request *r = pi_request_new(e);
    assert_non_null(r);
    if (pi_request_set(r, "pooling", pooling, &err) || pi_request_set(r, "embd-normalize", "-1", &err))
        fail_msg("%s", err.msg);
    return r;
}

static void run(pi_engine *e, pi_request *r, values *out)
{
    pi_error err = {0};
    pi_result res = {.size = sizeof res};
    memset(out, 0, sizeof *out);
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    for (bool done = false; !done;) {
        pi_event *ev;
        assert_int_equal(pi_poll(e, &ev, 1, 60000), 1);
        if (ev->request == r && ev->kind == PI_EVENT_EMBEDDING) {
            assert_true(ev->n_embeddings == 1 && ev->n_embd <= WIDTH);
            memcpy(out->v, ev->embedding, ev->n_embd * sizeof(float));
            out->n = ev->n_embd;
        }
        done = ev->request == r && ev->kind == PI_EVENT_DONE;
        if (done) assert_int_equal(ev->code, PI_OK);
        pi_event_release(ev);
    }
    pi_request_result(r, &res);
    out->cached = res.cached_tokens;
    out->prompt_tokens = res.prompt_tokens;
    pi_request_free(r);
}

static void of_tokens(pi_engine *e, const char *pooling, uint64_t seed, values *out)
{
    int32_t ids[N];
    pi_error err = {0};
    pi_request *r = new_request(e, pooling);
    for (int i = 0; i < N; i++) ids[i] = 5 + (int32_t) (tiny_random(&seed) % 250);
    if (pi_request_prompt_tokens(r, ids, N, &err)) fail_msg("%s", err.msg);
    run(e, r, out);
}

/* ------------------------------------------------------------------------------------------------------- reference */

/* Computes y = W x + b in double precision, with W and b from the file. Returns the rows of W; 0 = the file lacks
 * it. */
static int multiply(const pi__gguf *g, const char *name, const double *x, int64_t n, double *y)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const pi__tensor *w = pi__gguf_find_tensor(g, full);
    if (!w) return 0;
    snprintf(full, sizeof full, "%s.bias", name);
    const pi__tensor *b = pi__gguf_find_tensor(g, full);
    assert_int_equal(w->ne[0], n);
    const size_t row = pi__row_size(pi__type_info_of(w->type), n);
    float values[WIDTH], bias[WIDTH] = {0};
    if (b) pi__dequantize_row(b->type, pi__gguf_tensor_data(g, b), bias, b->ne[0]);
    for (int64_t r = 0; r < w->ne[1]; r++) {
        pi__dequantize_row(w->type, (const char *) pi__gguf_tensor_data(g, w) + (size_t) r * row, values, n);
        y[r] = (double) bias[r];
        for (int64_t i = 0; i < n; i++) y[r] += (double) values[i] * x[i];
    }
    return (int) w->ne[1];
}

static int reference(const char *path, const float *vector, size_t n, bool softmax, double *scores)
{
    double x[WIDTH], sum = 0;
    pi__gguf *g;
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_MMAP, NULL), PI_OK);
    for (size_t i = 0; i < n; i++) x[i] = (double) vector[i];
    const int n_dense = multiply(g, "cls", x, (int64_t) n, scores);
    for (int i = 0; i < n_dense; i++) x[i] = scores[i] = tanh(scores[i]);
    int n_labels = multiply(g, "cls.output", x, n_dense ? n_dense : (int64_t) n, scores);
    if (!n_labels) n_labels = n_dense;
    for (int i = 0; i < n_labels && softmax; i++) sum += exp(scores[i]);
    for (int i = 0; i < n_labels && softmax; i++) scores[i] = exp(scores[i]) / sum;
    pi__gguf_close(g);
    return n_labels;
}

/* Checks got's scores against the head applied to the pooled vector. */
static void check_scores(pi_engine *e, const char *path, const char *pooling, const values *got)
{
    static values vector;
    double want[WIDTH], apart = 0;
    pi_info info = {.size = sizeof info};
    pi_engine_info(e, &info);
    of_tokens(e, pooling, 3, &vector);
    const int n = reference(path, vector.v, vector.n, !strcmp(info.arch, "qwen3"), want);
    assert_int_equal(got->n, n);
    for (int i = 0; i < n; i++) {
        if (!(fabs((double) got->v[i] - want[i]) < 1e-5))
            fail_msg("%s: score %d is %g, not %g", path, i, (double) got->v[i], want[i]);
        apart += fabs(want[i] - want[0]);
    }
    /* labels differ by ten times the tolerance, so that exchanged ones are found */
    if (n > 1 && !(apart > 1e-4)) fail_msg("%s: scores are within %g", info.arch, apart);
}

/* ----------------------------------------------------------------------------------------------------------- tests */

/* An emulator takes seconds per model; the head's arithmetic is the same for all, so only one model runs. */
static bool left_out(size_t i) { return getenv("PI_TEST_EMULATED") && strcmp(tiny_row_name(i), "qwen3") != 0; }

/* True if attention is bidirectional: the first token's vector is scored, a prompt is one step, and no prefix is
 * cached. */
static bool bidirectional(const char *arch)
{
    return strstr(arch, "bert") || strstr(arch, "t5") || !strcmp(arch, "gemma-embedding");
}

static void check_beside(const char *path, const values *want)
{
    pi_error err = {0};
    values got;
    pi_engine *e = open_with(path, (const char *const[2]) {"ubatch-size=160", "parallel=4"}, &err);
    pi_request *beside[3];
    for (uint64_t k = 0; k < 3; k++) {
        const int32_t ids[9] = {7, 8, 9, 10, 11, 12, 13, 14, 15};
        beside[k] = new_request(e, "rank");
        if (pi_request_prompt_tokens(beside[k], ids, 5 + k, &err) || pi_request_submit(beside[k], &err))
            fail_msg("%s", err.msg);
    }
    for (int i = 0; i < 2; i++) {
        of_tokens(e, "rank", 3, &got);
        assert_true(got.n == want->n && !got.cached && !memcmp(got.v, want->v, want->n * sizeof(float)));
    }
    for (int k = 0; k < 3; k++) pi_request_free(beside[k]);
    pi_engine_close(e);
}

/* Scores are bitwise identical in small chunks and in a batch. */
static void check_ways(const char *path, const values *want)
{
    pi_error err = {0};
    values got;
    pi_engine *e = open_with(path, (const char *const[2]) {"ubatch-size=7", "parallel=4"}, &err);
    pi_request *beside[3];
    for (uint64_t k = 0; k < 3; k++) {
        int32_t ids[9] = {7, 8, 9, 10, 11, 12, 13, 14, 15};
        beside[k] = pi_request_new(e);
        int rc = pi_request_prompt_tokens(beside[k], ids, 5 + k, &err) |
                 pi_request_set(beside[k], "max-tokens", "30", &err) |
                 pi_request_set(beside[k], "ignore-eos", "true", &err) | pi_request_submit(beside[k], &err);
        if (rc) fail_msg("%s", err.msg);
    }
    of_tokens(e, "rank", 3, &got);
    assert_int_equal(got.n, want->n);
    assert_memory_equal(got.v, want->v, want->n * sizeof(float));
    of_tokens(e, "rank", 3, &got); /* the prefix is cached now */
    assert_true(got.cached > 0);
    assert_memory_equal(got.v, want->v, want->n * sizeof(float));
    for (int k = 0; k < 3; k++) pi_request_free(beside[k]);
    pi_engine_close(e);
}

static void every_architecture_scores(void **state)
{
    (void) state;
    static const char *const heads[] = {"j=2 q=32 y=1", "j=3", "j=1", "j=3 y=1"};
    int n_models = 0;
    for (size_t i = 0; tiny_row_name(i); i++) {
        if (left_out(i)) continue;
        char path[256];
        static values got;
        pi_error err = {0};
        const tiny_spec s = {.arch = tiny_row_name(i), .sizes = heads[i % 4]};
        assert_int_equal(tiny_write(tiny_path(path, "rank"), &s, NULL), 0);
        pi_engine *e = open_with(path, (const char *const[2]) {NULL}, &err);
        if (e) {
            n_models++;
            of_tokens(e, "rank", 3, &got);
            const char *of = bidirectional(s.arch) ? "cls" : "last";
            check_scores(e, path, of, &got);
            of_tokens(e, "model", 3, &got);
            check_scores(e, path, of, &got);
            pi_engine_close(e);
            (bidirectional(s.arch) ? check_beside : check_ways)(path, &got);
        }
        unlink(path);
    }
    assert_true(n_models >= (left_out(0) ? 1 : 8));
}

static void of_the_mean(void **state)
{
    (void) state;
    char path[256];
    static values got;
    pi_error err = {0};
    const tiny_spec s = {.arch = "qwen3", .sizes = "j=2 q=48 y=1"};
    assert_int_equal(tiny_write(tiny_path(path, "rank"), &s, NULL), 0);
    pi_engine *e = open_with(path, (const char *const[2]) {"override-kv=qwen3.classifier.pooling_type=int:1"}, &err);
    if (!e) fail_msg("%s", err.msg);
    of_tokens(e, "rank", 3, &got);
    assert_true(fabs((double) got.v[0] + (double) got.v[1] - 1) < 1e-6);
    check_scores(e, path, "mean", &got);
    pi_engine_close(e);
    unlink(path);
}

static size_t tokens_of(pi_engine *e, const char *text, int flags, int32_t *ids)
{
    const int64_t n = pi_tokenize(e, text, strlen(text), flags, ids, 200);
    assert_true(n >= 0 && n <= 200);
    return (size_t) n;
}

static void score_pair(pi_engine *e, const char *query, const char *document, values *out)
{
    pi_error err = {0};
    pi_request *r = new_request(e, "rank");
    if (pi_request_prompt_rank(r, query, strlen(query), document, strlen(document), &err)) fail_msg("%s", err.msg);
    run(e, r, out);
}

static void score_ids(pi_engine *e, const int32_t *ids, size_t n, values *out)
{
    pi_request *r = new_request(e, "rank");
    assert_int_equal(pi_request_prompt_tokens(r, ids, n, NULL), PI_OK);
    run(e, r, out);
}

static void same_score(const values *a, const values *b)
{
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_true(a->n == b->n && !memcmp(a->v, b->v, a->n * sizeof(float)));
}

/* Pair prompt of an encoder: [CLS] query [SEP] document [SEP]. tests/golden/vectors_bert.json covers the effect of
 * token types. */
static void pairs_of_an_encoder(void **state)
{
    (void) state;
    char path[256];
    int32_t ids[200];
    static values got, want, alone;
    pi_error err = {0};
    const tiny_spec s = {.arch = "bert", .sizes = "j=1 q=32 y=1"};
    assert_int_equal(tiny_write(tiny_path(path, "rank"), &s, NULL), 0);
    pi_engine *e = open_with(path, (const char *const[2]) {NULL}, &err);
    if (!e) fail_msg("%s", err.msg);
    score_pair(e, "the quick fox", "Brown, ed", &got);
    const size_t n = tokens_of(e, "[CLS]the quick fox[SEP]brown,ed[SEP]", PI_TOK_SPECIAL, ids);
    score_ids(e, ids, n, &want);
    same_score(&got, &want);
    score_ids(e, ids, n - 1, &alone);
    assert_true(memcmp(alone.v, got.v, sizeof(float)) != 0);
    pi_engine_close(e);
    unlink(path);
}

/* Pair prompt by the model's template; only the template's own text gives control tokens. */
static void pairs_by_template(void **state)
{
    (void) state;
    char path[256];
    int32_t ids[200];
    static values got, want;
    pi_error err = {0};
    const tiny_spec s = {.arch = "qwen3", .sizes = "j=2"};
    assert_int_equal(tiny_write(tiny_path(path, "rank"), &s, NULL), 0);
    pi_engine *e = open_with(path, (const char *const[2]) {NULL}, &err);
    if (!e) fail_msg("%s", err.msg);
    score_pair(e, "the {document}", "of you {query}", &got); /* a placeholder inside the query is not replaced */
    size_t n = tokens_of(e, "<|im_start|>q the {document}\nd of you {query}<|im_end|>", PI_TOK_SPECIAL, ids);
    score_ids(e, ids, n, &want);
    same_score(&got, &want);
    score_pair(e, "a<|im_end|>", "b", &got);
    n = tokens_of(e, "<|im_start|>", PI_TOK_SPECIAL, ids);
    assert_int_equal(n, 1);
    n += tokens_of(e, "q a<|im_end|>\nd b", 0, ids + n);
    n += tokens_of(e, "<|im_end|>", PI_TOK_SPECIAL, ids + n);
    score_ids(e, ids, n, &want);
    same_score(&got, &want);
    pi_engine_close(e);
    unlink(path);
}

/* Without a template: [BOS] query [EOS] document [EOS]. */
static void pairs_by_tokens(void **state)
{
    (void) state;
    char path[256];
    int32_t ids[200] = {TINY_BOS};
    static values got, want;
    pi_error err = {0};
    const tiny_spec s = {.arch = "llama2", .sizes = "j=1"};
    assert_int_equal(tiny_write(tiny_path(path, "rank"), &s, NULL), 0);
    pi_engine *e = open_with(path, (const char *const[2]) {NULL}, &err);
    if (!e) fail_msg("%s", err.msg);
    score_pair(e, "the <eos>", "you and", &got);
    size_t n = 1 + tokens_of(e, "the <eos>", 0, ids + 1);
    ids[n++] = TINY_EOS;
    n += tokens_of(e, "you and", 0, ids + n);
    ids[n++] = TINY_EOS;
    score_ids(e, ids, n, &want);
    same_score(&got, &want);
    score_pair(e, "", "", &got); /* only the control tokens */
    assert_int_equal(got.prompt_tokens, 3);
    pi_engine_close(e);
    unlink(path);
}

/* Opens a reranker and makes one pair prompt. */
static int open_and_pair(const char *path, pi_error *err)
{
    pi_options *o = pi_options_new();
    pi_engine *e = NULL;
    int rc = o ? pi_options_set(o, "model", path, err) : PI_ENOMEM;
    if (!rc) rc = pi_options_set(o, "threads", "1", err);
    if (!rc) rc = pi_engine_open(&e, o, err);
    pi_request *r = rc ? NULL : pi_request_new(e);
    if (!rc && !r) rc = PI_ENOMEM;
    if (!rc) rc = pi_request_prompt_rank(r, "the quick", 9, "you and", 7, err);
    pi_request_free(r);
    pi_engine_close(e);
    pi_options_free(o);
    return rc;
}

static void memory_may_end_anywhere(void **state)
{
    (void) state;
    static counting_alloc a;
    static const char *const heads[][2] = {{"qwen3", "L=1 j=2 q=32 y=1"}, {"llama2", "L=1 j=1"}};
    for (int k = 0; k < 2 && !left_out(0); k++) {
        char path[256];
        const tiny_spec s = {.arch = heads[k][0], .sizes = heads[k][1]};
        assert_int_equal(tiny_write(tiny_path(path, "rank"), &s, NULL), 0);
        for (long i = 0;; i++) {
            pi_error err = {0};
            counting_use(&a, i);
            const int rc = open_and_pair(path, &err);
            pi_set_allocator(NULL);
            assert_int_equal(a.live, 0);
            if (a.count <= i) break;
            if (rc) assert_int_equal(rc, PI_ENOMEM);
        }
        unlink(path);
    }
}

static void models_say_what_they_have(void **state)
{
    (void) state;
    char path[256], text[64];
    pi_error err = {0};
    pi_info info = {.size = sizeof info};
    const tiny_spec s = {.arch = "qwen3", .sizes = "j=2"};
    assert_int_equal(tiny_write(tiny_path(path, "rank"), &s, NULL), 0);
    pi_engine *e = open_with(path, (const char *const[2]) {NULL}, &err);
    if (!e) fail_msg("%s", err.msg);
    assert_int_equal(pi_engine_info(e, &info), PI_OK);
    assert_string_equal(info.pooling, "rank");
    assert_int_equal(info.n_labels, 2);
    assert_string_equal(info.labels[0], "yes");
    assert_string_equal(info.labels[1], "no");
    assert_true(pi_engine_meta(e, "qwen3.classifier.output_labels", text, sizeof text) > 0);
    assert_string_equal(text, "[\"yes\", \"no\"]");
    pi_engine_close(e);
    unlink(path);
}

static void what_is_missing_or_damaged_is_said(void **state)
{
    (void) state;
    char path[256];
    pi_error err = {0};
    static values got;
    assert_int_equal(tiny_write(tiny_path(path, "rank"), &(tiny_spec) {.arch = "qwen3"}, NULL), 0);
    pi_engine *e = open_with(path, (const char *const[2]) {"override-kv=qwen3.pooling_type=int:4"}, &err);
    if (!e) fail_msg("%s", err.msg);
    pi_request *r = new_request(e, "rank");
    assert_int_equal(pi_request_prompt_rank(r, "a", 1, NULL, 1, &err), PI_EINVAL);
    assert_int_equal(pi_request_prompt_rank(r, "a", 1, "b", 1, &err), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "classifier"));
    assert_int_equal(pi_request_set(r, "pooling", "model", &err), PI_OK);
    run(e, r, &got); /* a vector of the last token if the file declares rank but has no head */
    assert_true(got.n > 1);
    pi_engine_close(e);
    assert_int_equal(tiny_write(path, &(tiny_spec) {.arch = "qwen3", .sizes = "j=2"}, NULL), 0);
    assert_null(open_with(path, (const char *const[2]) {"override-kv=qwen3.classifier.output_labels=str:x"}, &err));
    if (!strstr(err.msg, "output_labels")) fail_msg("%s", err.msg);
    assert_null(open_with(path, (const char *const[2]) {"override-kv=qwen3.classifier.pooling_type=int:9"}, &err));
    if (!strstr(err.msg, "pooling_type")) fail_msg("%s", err.msg);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_scores),
        cmocka_unit_test(of_the_mean),
        cmocka_unit_test(pairs_by_template),
        cmocka_unit_test(pairs_of_an_encoder),
        cmocka_unit_test(pairs_by_tokens),
        cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(models_say_what_they_have),
        cmocka_unit_test(what_is_missing_or_damaged_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
