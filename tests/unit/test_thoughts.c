/* Thought budgets: the position of the forced closing tag, for token tags and text tags, and for any end of the
 * prompt. Through the interface, forced tokens are part of the answer in any batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "engine/thoughts.h"
#include "random_model.h"
#include "vocab_seed.h"

static pi__vocab *with_tokens, *bytes_only;
static char model[256];

static int setup(void **state)
{
    (void) state;
    seed s;
    pi_error err = {0};
    seed_gpt2(&s);
    if (seed_load(&s, &bytes_only, &err)) return -1; /* <think> is a token, all other tags are text */
    seed_tok(&s, "</think>", PI__TOK_CONTROL, 0);
    if (seed_load(&s, &with_tokens, &err)) return -1;
    return tiny_write(tiny_path(model, "thoughts"), NULL, &err);
}

static int teardown(void **state)
{
    (void) state;
    pi__vocab_free(with_tokens);
    pi__vocab_free(bytes_only);
    return unlink(model);
}

static pi__thoughts *make(const pi__vocab *v, int32_t budget, const char *message, const char *prompt)
{
    pi__ids ids = {0};
    pi__thoughts *t;
    pi_error err = {0};
    assert_int_equal(pi__tokenize(v, prompt, strlen(prompt), false, true, &ids), PI_OK);
    if (pi__thoughts_new(&t, v, budget, message, ids.p, ids.n, &err)) fail_msg("%s", err.msg);
    pi__free(ids.p);
    return t;
}

/* Checks the output for a model that would generate `says`; forced tokens are inserted into it. */
static void expect(const pi__vocab *v, int32_t budget, const char *message, const char *prompt, const char *says,
                   const char *want)
{
    pi__thoughts *t = make(v, budget, message, prompt);
    pi__ids ids = {0};
    char out[512] = "";
    assert_int_equal(pi__tokenize(v, says, strlen(says), false, true, &ids), PI_OK);
    for (size_t i = 0, n = 0; i < ids.n;) {
        const int32_t forced = pi__thoughts_forced(t), id = forced >= 0 ? forced : ids.p[i++];
        const size_t len = pi__token_bytes(v, id, true, out + n, sizeof out - n - 1);
        n += len;
        out[n] = 0;
        assert_true(n < sizeof out - 1);
        pi__thoughts_accept(t, id);
    }
    assert_string_equal(out, want);
    pi__free(ids.p);
    pi__thoughts_free(t);
}

static void when_it_is_forced(void **state)
{
    (void) state;
    const pi__vocab *vs[] = {with_tokens, bytes_only};
    for (int i = 0; i < 2; i++) {
        const pi__vocab *v = vs[i];
        expect(v, 3, NULL, "hi", "<think>xyzzy", "<think>xyz</think>zy");
        expect(v, 3, "!", "hi", "<think>xyzzy", "<think>xyz!</think>zy");
        expect(v, 3, "", "hi<think>", "xyzzy", "xyz</think>zy"); /* the prompt opened it */
        expect(v, 0, "", "hi<think>\n", "xyzzy", "</think>xyzzy");
        expect(v, 0, "", "hi", "<think>xyzzy", "<think></think>xyzzy");
        expect(v, 0, "", "<think></think>hi", "xyzzy", "xyzzy"); /* the prompt closed it again */
        expect(v, 2, "", "<think></think>hi<think>", "xyzzy", "xy</think>zzy");
        expect(v, 99, "", "hi", "<think>xy</think>zzy", "<think>xy</think>zzy"); /* the model closes it */
        expect(v, 12, "", "hi", "<think>x</think>abcdefghijklmnop", "<think>x</think>abcdefghijklmnop");
        expect(v, 2, "", "hi", "xyz", "xyz"); /* no thought */
        /* each thought has its own budget */
        expect(v, 1, "", "hi", "<think>ab<think>cd", "<think>a</think>b<think>c</think>d");
        expect(v, 1, "", "hi", "<think>\xC3\xA9z", "<think>\xC3\xA9</think>z"); /* complete characters */
        expect(v, 1, "", "hi", "<think>\xE2\x82\xACz", "<think>\xE2\x82\xAC</think>z");
        /* text tags count only at the start of the answer */
        expect(v, 4, "", "hi", "[THINK]xyzzy", "[THINK]xyzz[/THINK]y");
        expect(v, 4, "", "hi", " \n<thinking>xyzzy", " \n<thinking>xyzz</thinking>y");
        expect(v, 4, "", "hi", "say [THINK]xyzzy", "say [THINK]xyzzy");
        expect(v, 4, "", "hi", "<|channel>thoughtxyzzy", "<|channel>thoughtxyzz<channel|>y");
        expect(v, 2, "", "hi [THINK]\n", "xyzzy", "xy[/THINK]zzy");
        expect(v, 2, "", "what is [THINK] for?", "xyzzy", "xyzzy");
        expect(v, 2, "", "", "xyzzy", "xyzzy");
    }
}

static void out_of_memory(void **state)
{
    (void) state;
    for (long i = 0;; i++) {
        pi__thoughts *t;
        pi_error err = {0};
        counting_alloc a;
        counting_use(&a, i);
        const int32_t prompt[] = {1, 2, 3};
        int rc = pi__thoughts_new(&t, with_tokens, 1, "enough", prompt, 3, &err);
        pi__thoughts_free(t);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        if (!rc) {
            assert_in_range(i, 10, 1000);
            break;
        }
        assert_int_equal(rc, PI_ENOMEM);
    }
}

/* --------------------------------------------------------------------------------------------------- the interface */

enum { N_GEN = 40 };
typedef struct answer {
    int32_t id[N_GEN];
    size_t n;
} answer;

static pi_request *start(pi_engine *e, const char *budget, const char *prompt, const char *logprobs, const char *n)
{
    pi_error err = {0};
    pi_request *r = pi_request_new(e);
    const char *set[][2] = {{"temp", "1"},
                            {"seed", "7"},
                            {"no-stop", "true"},
                            {"max-tokens", "40"},
                            {"reasoning-budget", budget},
                            {"reasoning-budget-message", "."},
                            {"logprobs", logprobs},
                            {"n", n}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        assert_int_equal(pi_request_set(r, set[i][0], set[i][1], &err), PI_OK);
    assert_int_equal(pi_request_prompt_text(r, prompt, strlen(prompt), &err), PI_OK);
    assert_int_equal(pi_request_submit(r, &err), PI_OK);
    return r;
}

static answer end(pi_request *r, uint32_t sample)
{
    answer a;
    assert_int_equal(pi_request_wait(r, 60000), PI_OK);
    a.n = pi_request_sample_tokens(r, sample, a.id, N_GEN);
    assert_int_equal(a.n, N_GEN);
    return a;
}

static answer run(pi_engine *e, const char *budget, const char *prompt, const char *logprobs)
{
    pi_request *r = start(e, budget, prompt, logprobs, "1");
    answer a = end(r, 0);
    pi_request_free(r);
    return a;
}

static void part_of_the_answer(void **state)
{
    (void) state;
    pi_error err = {0};
    pi_options *o = pi_options_new();
    pi_engine *e;
    const char *set[][2] = {{"model", model}, {"threads", "2"}, {"kv-cache-tokens", "256"}, {"ctx-size", "256"}};
    for (int i = 0; i < 4; i++) assert_int_equal(pi_options_set(o, set[i][0], set[i][1], &err), PI_OK);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);

    static const char prompt[] = "the <think>\n", forced[] = ".</think>";
    const answer any = run(e, "-1", prompt, "-1"), five = run(e, "5", prompt, "-1"), probs = run(e, "5", prompt, "3");
    assert_memory_equal(any.id, five.id, 5 * sizeof any.id[0]);
    assert_memory_equal(probs.id, five.id, sizeof five.id);
    int32_t ids[16];
    const int64_t n = pi_tokenize(e, forced, sizeof forced - 1, PI_TOK_SPECIAL, ids, 16);
    assert_in_range(n, 1, 16);
    assert_memory_equal(five.id + 5, ids, (size_t) n * sizeof *ids);
    const answer none = run(e, "5", "the\n", "-1"), free_of_it = run(e, "-1", "the\n", "-1");
    assert_memory_equal(none.id, free_of_it.id, sizeof none.id);

    /* in a batch and preempted: the pool has capacity for four of twelve */
    pi_request *r[12];
    for (int i = 0; i < 12; i++) r[i] = start(e, i % 2 ? "5" : "-1", i % 3 ? prompt : "the\n", i % 4 ? "-1" : "2", "1");
    for (int i = 0; i < 12; i++) {
        const answer a = end(r[i], 0), *want = i % 3 == 0 ? &none : i % 2 ? &five : &any;
        assert_memory_equal(a.id, want->id, sizeof a.id);
        pi_request_free(r[i]);
    }
    pi_stats s = {.size = sizeof s};
    assert_int_equal(pi_engine_stats(e, &s), PI_OK);
    assert_true(s.n_preempted > 0);
    pi_request *two = start(e, "5", prompt, "-1", "2"); /* each sample has its own thoughts */
    const answer first = end(two, 0), second = end(two, 1);
    assert_memory_equal(first.id, five.id, sizeof five.id);
    assert_memory_equal(second.id + 5, ids, (size_t) n * sizeof *ids);
    pi_request_free(two);
    pi_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(when_it_is_forced), cmocka_unit_test(out_of_memory),
                                       cmocka_unit_test(part_of_the_answer)};
    return cmocka_run_group_tests_name("thoughts", tests, setup, teardown);
}
