/* Batched sampling when only the largest logits are computed as in a batch of one (op linear, pi__best_rows). Requests
 * get the same tokens as in a batch of one if these logits suffice, and also if a sampler needs the full row.
 *
 *     test_best_rows [MODEL.gguf]
 *
 * MODEL replaces the small random models, whose few tokens nearly all are among the largest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "pagedinfer.h"
#include "random_model.h"

enum { N = 9, N_GEN = 24 };

static const char *const options[N][5] = {
    {"temp=0"},
    {"temp=1", "top-k=40"},
    {"temp=1.3", "top-k=5", "repeat-penalty=1.3"},
    /* needs more values than the op returns, so the full row is computed */
    {"temp=3", "top-k=0", "top-p=1", "min-p=0.00000000000000000001"},
    {"temp=0", "logit-bias=270-100"},
    {"temp=0", "grammar=root ::= [a-e]+"},
    {"temp=0", "repeat-penalty=1.5", "presence-penalty=0.5"},
    {"temp=2", "top-k=200"},
    {"temp=0", "ignore-eos=true"},
};

static char path[2][256];

static pi_engine *open_engine(const char *model, const char *extra)
{
    pi_options *o = pi_options_new();
    pi_error err = {0};
    pi_engine *e = NULL;
    const char *const kv[][2] = {{"model", model}, {"threads", "2"}, {"ctx-size", "256"}, {"kv-cache-tokens", "4096"}};
    for (size_t i = 0; i < sizeof kv / sizeof *kv; i++)
        if (pi_options_set(o, kv[i][0], kv[i][1], &err)) fail_msg("%s", err.msg);
    if (extra && pi_options_set(o, "spec-type", extra, &err)) fail_msg("%s", err.msg);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

static pi_request *submit(pi_engine *e, int i)
{
    pi_request *r = pi_request_new(e);
    pi_error err = {0};
    char prompt[64];
    snprintf(prompt, sizeof prompt, "abc %d hello hello %d", i, i);
    if (pi_request_prompt_text(r, prompt, strlen(prompt), &err)) fail_msg("%s", err.msg);
    const char *const all[] = {"max-tokens=24", "seed=7"};
    for (int k = 0; k < 7; k++) {
        const char *kv = k < 2 ? all[k] : options[i][k - 2];
        char key[32] = {0};
        if (!kv) break;
        memcpy(key, kv, strcspn(kv, "="));
        if (pi_request_set(r, key, strchr(kv, '=') + 1, &err)) fail_msg("%s", err.msg);
    }
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    return r;
}

static size_t take(pi_request *r, int32_t *ids)
{
    pi_result s = {.size = sizeof s};
    assert_int_equal(pi_request_wait(r, 60000), PI_OK);
    assert_int_equal(pi_request_sample(r, 0, &s), PI_OK);
    if (s.code) fail_msg("%s", s.msg);
    const size_t n = pi_request_sample_tokens(r, 0, ids, N_GEN);
    pi_request_free(r);
    return n;
}

static void check(const char *model, const char *spec)
{
    static int32_t want[N][N_GEN], got[N_GEN];
    size_t n_want[N];
    pi_request *r[N];
    pi_engine *e = open_engine(model, spec);
    for (int i = 0; i < N; i++) n_want[i] = take(submit(e, i), want[i]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) r[i] = submit(e, (i + round) % N);
        for (int i = 0; i < N; i++) {
            const int of = (i + round) % N;
            const size_t n = take(r[i], got);
            if (n != n_want[of] || memcmp(got, want[of], n * sizeof *got)) fail_msg("%s", options[of][0]);
        }
    }
    pi_engine_close(e);
}

static void test_same(void **state)
{
    (void) state;
    check(path[0], NULL);
    check(path[0], "ngram");
    check(path[1], NULL); /* with softcapped logits */
}

static int setup(void **state)
{
    (void) state;
    pi_error err;
    const tiny_spec a = {.arch = "gemma3", .type = PI__Q8_0}, b = {.arch = "gemma4", .type = PI__Q4_0};
    const int rc = tiny_write(tiny_path(path[0], "best"), &a, &err);
    return rc ? rc : tiny_write(tiny_path(path[1], "best_capped"), &b, &err);
}

static int teardown(void **state)
{
    (void) state;
    return unlink(path[0]) | unlink(path[1]);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        check(argv[1], NULL);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};
    return cmocka_run_group_tests_name("best_rows", tests, setup, teardown);
}
