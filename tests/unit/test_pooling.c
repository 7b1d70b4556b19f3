/* Vectors of prompts (option pooling), on random models of each architecture: their definition, and errors. Vectors
 * are bitwise identical for a single request, in chunks, in a batch with generating requests, after preemption, and
 * with several running requests. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter_file.h"
#include "pagedinfer.h"

enum { MOST = 160, WIDTH = 512 }; /* tokens of a prompt, values of a vector */

#define LIST(...) ((const char *const[]) {__VA_ARGS__, NULL})

typedef struct vectors {
    float v[MOST][WIDTH];
    size_t n, width;
    uint32_t cached;
    int code;
} vectors;

static int set_all(void *of, int (*set)(void *of, const char *key, const char *value, pi_error *err),
                   const char *const *kv, pi_error *err)
{
    int rc = 0;
    for (; kv && *kv && !rc; kv++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int) strcspn(*kv, "="), *kv);
        rc = set(of, key, strchr(*kv, '=') + 1, err);
    }
    return rc;
}

static int set_option(void *o, const char *key, const char *value, pi_error *err)
{
    return pi_options_set(o, key, value, err);
}
static int set_request(void *r, const char *key, const char *value, pi_error *err)
{
    return pi_request_set(r, key, value, err);
}

/* Returns NULL if the file cannot run by itself. */
static pi_engine *open_model(const char *path, const char *const *kv)
{
    pi_options *o = pi_options_new();
    pi_engine *e = NULL;
    pi_error err = {0};
    int rc = pi_options_set(o, "model", path, &err) | pi_options_set(o, "threads", "2", &err);
    if (!rc) rc = set_all(o, set_option, kv, &err);
    if (rc) fail_msg("%s", err.msg);
    pi_engine_open(&e, o, &err);
    pi_options_free(o);
    return e;
}

static void fill_prompt(int32_t *ids, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) ids[i] = 5 + (int32_t) (tiny_random(&seed) % 250);
}

static pi_request *request_of(pi_engine *e, size_t n, uint64_t seed, const char *const *kv)
{
    int32_t ids[MOST];
    pi_error err = {0};
    pi_request *r = pi_request_new(e);
    assert_non_null(r);
    fill_prompt(ids, n, seed);
    if (pi_request_prompt_tokens(r, ids, n, &err) || set_all(r, set_request, kv, &err)) fail_msg("%s", err.msg);
    return r;
}

static void take(const pi_event *ev, vectors *out)
{
    if (ev->kind == PI_EVENT_DONE) out->code = ev->code;
    if (ev->kind != PI_EVENT_EMBEDDING) return;
    assert_true(!out->n && ev->n_embd <= WIDTH && ev->n_embeddings <= MOST);
    out->n = ev->n_embeddings;
    out->width = ev->n_embd;
    for (size_t i = 0; i < out->n; i++) memcpy(out->v[i], ev->embedding + i * ev->n_embd, ev->n_embd * sizeof(float));
}

/* Runs r to its end; releases all other events. */
static void run(pi_engine *e, pi_request *r, vectors *out)
{
    pi_error err = {0};
    pi_result res = {.size = sizeof res};
    memset(out, 0, sizeof *out);
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    for (bool done = false; !done;) {
        pi_event *ev;
        assert_int_equal(pi_poll(e, &ev, 1, 60000), 1);
        if (ev->request == r) take(ev, out);
        done = ev->request == r && ev->kind == PI_EVENT_DONE;
        if (done) assert_int_equal(ev->finish_reason, PI_FINISH_STOP);
        pi_event_release(ev);
    }
    assert_int_equal(pi_request_result(r, &res), PI_OK);
    assert_int_equal(res.generated_tokens, 0);
    out->cached = res.cached_tokens;
    pi_request_free(r);
}

static void vectors_of(pi_engine *e, size_t n, uint64_t seed, const char *const *kv, vectors *out)
{
    run(e, request_of(e, n, seed, kv), out);
}

/* True if the architecture's attention is bidirectional. */
static bool bidirectional(const char *arch)
{
    return strstr(arch, "bert") || strstr(arch, "t5") || !strcmp(arch, "gemma-embedding");
}

/* Each kind of pooling matches its definition over the token vectors. */
static void check_kinds(pi_engine *e, const char *name, vectors *all)
{
    static vectors one;
    const size_t n = 150; /* more than a block of every cache */
    vectors_of(e, n, 7, LIST("pooling=none", "embd-normalize=-1"), all);
    assert_int_equal(all->n, n);
    vectors_of(e, n, 7, LIST("pooling=cls", "embd-normalize=-1"), &one);
    assert_int_equal(one.n, 1);
    assert_memory_equal(one.v[0], all->v[0], all->width * sizeof(float));
    vectors_of(e, n, 7, LIST("pooling=last", "embd-normalize=-1"), &one);
    assert_memory_equal(one.v[0], all->v[n - 1], all->width * sizeof(float));
    if (bidirectional(name) ? one.cached : one.cached < 32)
        fail_msg("%s: %u tokens came from the cache", name, one.cached);
    vectors_of(e, n, 7, LIST("pooling=mean", "embd-normalize=-1"), &one);
    assert_int_equal(one.cached, 0);
    double apart = 0;
    for (size_t i = 0; i < all->width; i++) {
        double sum = 0;
        for (size_t t = 0; t < n; t++) sum += (double) all->v[t][i];
        assert_true(fabs(one.v[0][i] - sum / (double) n) < 1e-6);
        apart += fabs((double) all->v[0][i] - (double) all->v[n - 1][i]);
    }
    assert_true(apart > 1e-3); /* tokens differ */
}

static void check_norms(pi_engine *e, const vectors *all)
{
    static vectors one;
    static const char *const how[] = {"embd-normalize=0", "embd-normalize=1", "embd-normalize=2", "embd-normalize=3"};
    for (int p = 0; p < 4; p++) {
        double sum = 0, most = 0;
        vectors_of(e, 150, 7, LIST("pooling=last", how[p], "dimensions=16"), &one);
        assert_int_equal(one.width, 16);
        for (size_t i = 0; i < 16; i++) {
            const double a = fabs((double) one.v[0][i]);
            sum += pow(a, p);
            most = a > most ? a : most;
            assert_true(
                fabs((double) one.v[0][i] * (double) all->v[149][0] - (double) one.v[0][0] * (double) all->v[149][i]) <
                1e-4 * (p ? 1 : 32760)); /* parallel to the unnormalized vector */
        }
        assert_true(p ? fabs(sum - 1) < 1e-5 : fabs(most - 32760) < 0.1);
    }
}

/* Bidirectional models: vectors are bitwise identical for any batch and number of steps. A prompt longer than a step
 * is refused, and so is generation. */
static void check_ways_whole(const char *path, const vectors *all)
{
    static vectors got;
    /* the last one has steps long enough for microbatches */
    static const char *const how[][3] = {{"ubatch-size=150", "split-mode=none", "device=cpu"},
                                         {"ubatch-size=512", "split-mode=none", "device=cpu"},
                                         {"kv-cache-tokens=400", "split-mode=none", "device=cpu"},
                                         {"ubatch-size=512", "split-mode=layer", "device=cpu,cpu"}};
    pi_error err = {0};
    for (int i = 0; i < 4; i++) {
        pi_engine *e = open_model(path, LIST(how[i][0], how[i][1], how[i][2], "parallel=4"));
        pi_request *beside[6];
        for (uint64_t k = 0; k < 6; k++) {
            beside[k] = request_of(e, 30 + 20 * k, k < 5 ? 50 + k : 7, LIST("pooling=mean"));
            assert_int_equal(pi_request_submit(beside[k], NULL), PI_OK);
        }
        vectors_of(e, 150, 7, LIST("pooling=none", "embd-normalize=-1"), &got);
        assert_int_equal(got.n, all->n);
        for (size_t t = 0; t < got.n; t++) assert_memory_equal(got.v[t], all->v[t], all->width * sizeof(float));
        for (int k = 0; k < 6; k++) {
            pi_result res = {.size = sizeof res};
            assert_int_equal(pi_request_wait(beside[k], 60000), PI_OK);
            assert_int_equal(pi_request_result(beside[k], &res), PI_OK);
            pi_request_free(beside[k]);
        }
        pi_request *r = request_of(e, i ? 5 : 151, 1, i ? NULL : LIST("pooling=mean"));
        assert_int_equal(pi_request_submit(r, &err), i ? PI_EUNSUPPORTED : PI_ETOOBIG);
        if (!strstr(err.msg, i ? "option pooling" : "raise ubatch-size to 151")) fail_msg("%s", err.msg);
        pi_request_free(r);
        pi_engine_close(e);
    }
}

/* Causal models: vectors are bitwise identical in small chunks, with little memory, and in a batch. */
static void check_ways(const char *path, const vectors *all)
{
    static vectors got;
    static const char *const how[][2] = {{"ubatch-size=7", "prefix-cache=false"},
                                         {"ubatch-size=64", "kv-cache-tokens=400"}};
    for (int i = 0; i < 2; i++) {
        pi_engine *e = open_model(path, LIST(how[i][0], how[i][1], "parallel=4"));
        pi_request *beside[3];
        for (uint64_t k = 0; k < 3; k++) {
            beside[k] = request_of(e, 40 + k, 50 + k, LIST("max-tokens=40", "temp=0", "ignore-eos=true"));
            assert_int_equal(pi_request_submit(beside[k], NULL), PI_OK);
        }
        vectors_of(e, 150, 7, LIST("pooling=none", "embd-normalize=-1"), &got);
        assert_int_equal(got.n, all->n);
        for (size_t t = 0; t < got.n; t++) assert_memory_equal(got.v[t], all->v[t], all->width * sizeof(float));
        for (int k = 0; k < 3; k++) {
            pi_result res = {.size = sizeof res};
            assert_int_equal(pi_request_wait(beside[k], 60000), PI_OK);
            assert_int_equal(pi_request_result(beside[k], &res), PI_OK);
            assert_int_equal(res.generated_tokens, 40);
            pi_request_free(beside[k]);
        }
        pi_engine_close(e);
    }
}

static void every_architecture_gives_vectors(void **state)
{
    (void) state;
    static vectors all;
    int n_models = 0;
    for (size_t i = 0; tiny_row_name(i); i++) {
        char path[256];
        const tiny_spec s = {.arch = tiny_row_name(i)};
        assert_int_equal(tiny_write(tiny_path(path, "pooling"), &s, NULL), 0);
        pi_engine *e = open_model(path, NULL);
        if (e) {
            n_models++;
            check_kinds(e, s.arch, &all);
            check_norms(e, &all);
            pi_engine_close(e);
            (bidirectional(s.arch) ? check_ways_whole : check_ways)(path, &all);
        }
        unlink(path);
    }
    assert_true(n_models >= 8);
}

/* Computes y = W x with a matrix of the file. */
static void times_matrix(const pi__gguf *g, const char *name, const double *x, double *y)
{
    const pi__tensor *t = pi__gguf_find_tensor(g, name);
    float row[2 * WIDTH];
    assert_true(t && t->ne[0] <= 2 * WIDTH && t->ne[1] <= 2 * WIDTH);
    for (int64_t r = 0; r < t->ne[1]; r++) {
        pi__dequantize_row(t->type,
                           (const char *) pi__gguf_tensor_data(g, t) + (size_t) r * t->size / (size_t) t->ne[1], row,
                           t->ne[0]);
        y[r] = 0;
        for (int64_t i = 0; i < t->ne[0]; i++) y[r] += (double) row[i] * x[i];
    }
}

/* Dense heads read the pooled vector before truncation and normalization; they do not change token vectors. */
static void dense_heads(void **state)
{
    (void) state;
    char path[256];
    static vectors mean, got;
    double x[WIDTH], mid[2 * WIDTH], want[WIDTH], sum = 0;
    const tiny_spec with = {.arch = "gemma-embedding", .sizes = "a=1"};
    assert_int_equal(tiny_write(tiny_path(path, "pooling"), &with, NULL), 0);
    pi_engine *e = open_model(path, NULL);
    vectors_of(e, 40, 3, LIST("pooling=none", "embd-normalize=-1"), &mean);
    for (size_t i = 0; i < mean.width; i++) {
        x[i] = 0;
        for (size_t t = 0; t < 40; t++) x[i] += (double) mean.v[t][i] / 40;
    }
    pi__gguf *g = NULL;
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_MMAP, NULL), PI_OK);
    times_matrix(g, "dense_2.weight", x, mid);
    times_matrix(g, "dense_3.weight", mid, want);
    pi__gguf_close(g);
    vectors_of(e, 40, 3, LIST("pooling=model", "embd-normalize=-1"), &got);
    assert_int_equal(got.width, mean.width);
    for (size_t i = 0; i < got.width; i++) assert_true(fabs((double) got.v[0][i] - want[i]) < 1e-5);
    vectors_of(e, 40, 3, LIST("pooling=mean", "dimensions=8"), &got);
    assert_int_equal(got.width, 8);
    for (size_t i = 0; i < 8; i++) sum += want[i] * want[i];
    for (size_t i = 0; i < 8; i++) assert_true(fabs((double) got.v[0][i] - want[i] / sqrt(sum)) < 1e-5);
    pi_engine_close(e);
    unlink(path);
}

static void refusals_say_why(void **state)
{
    (void) state;
    char path[256];
    static const struct { const char *what, *word, *mended;
    } bad[] = {{"n=2", "option n", "n=1"},
               {"logprobs=1", "option logprobs", "logprobs=-1"},
               {"prompt-logprobs=0", "option prompt-logprobs", "prompt-logprobs=-1"},
               {"dimensions=4096", "values", "dimensions=0"}};
    assert_int_equal(tiny_write(tiny_path(path, "pooling"), NULL, NULL), 0);
    pi_engine *e = open_model(path, NULL);
    static vectors got;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pi_error err = {0};
        pi_request *r = request_of(e, 10, 1, LIST("pooling=mean", bad[i].what));
        assert_int_equal(pi_request_submit(r, &err), PI_EINVAL);
        if (!strstr(err.msg, bad[i].word)) fail_msg("%s: %s", bad[i].what, err.msg);
        assert_int_equal(set_all(r, set_request, LIST(bad[i].mended), &err), PI_OK);
        run(e, r, &got); /* runs with the fault corrected */
        assert_int_equal(got.n, 1);
    }
    pi_engine_close(e);
    unlink(path);
}

/* Vectors with an adapter equal those of a model with the adapter merged into its weights. Encoders without adapter
 * support refuse it. */
static void adapters_of_encoders(void **state)
{
    (void) state;
    static vectors plain, with, want;
    char path[3][256];
    const adapter_spec s = {.seed = 7, .rank = 8, .alpha = 32, .size = 4};
    for (int i = 0; i < 3; i++) {
        pi_error err = {0};
        double off = 0, does = 0;
        const char *arch = i == 2 ? "bert" : i ? "modern-bert" : "eurobert";
        const tiny_spec spec = {.arch = arch};
        tiny_path(path[0], "encoder"), tiny_path(path[1], "encoder-lora"), tiny_path(path[2], "encoder-merged");
        assert_int_equal(tiny_write(path[0], &spec, &err), PI_OK);
        assert_int_equal(adapter_write(path[1], path[0], &s, &err), PI_OK);
        assert_int_equal(adapter_merge(path[2], path[0], &s, 0.5f, &err), PI_OK);
        pi_engine *e = open_model(path[0], NULL), *merged = open_model(path[2], NULL);
        const int rc = pi_lora_load(e, "it", path[1], 0.5f, &err);
        vectors_of(e, 100, 3, LIST("pooling=mean", "lora=none"), &plain);
        if (i == 2 && (rc != PI_EUNSUPPORTED || !strstr(err.msg, "adapters of bert"))) fail_msg("%d: %s", rc, err.msg);
        if (i < 2) vectors_of(e, 100, 3, LIST("pooling=mean"), &with);
        if (i < 2) vectors_of(merged, 100, 3, LIST("pooling=mean"), &want);
        for (size_t k = 0; k < want.width && i < 2; k++) {
            off = fmax(off, fabs((double) with.v[0][k] - (double) want.v[0][k]));
            does = fmax(does, fabs((double) plain.v[0][k] - (double) want.v[0][k]));
        }
        if (i < 2 && (rc || off > 1e-4 || does < 0.01)) fail_msg("%s: %s: off by %g of %g", arch, err.msg, off, does);
        pi_engine_close(e);
        pi_engine_close(merged);
        for (int k = 0; k < 3; k++) unlink(path[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_gives_vectors),
        cmocka_unit_test(dense_heads),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(adapters_of_encoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
