/* A gemma4-assistant drafter on tiny random models, with a head like any other and with one that is sorted into clusters:
 * tokens and logits never depend on it, and looking at all clusters guesses what the plain head guesses. */
#include "model_jobs.h"

#include "counting_alloc.h"
#include "tiny_assistant.h"

static char model_path[256], draft_path[256];

static pi__config config(void)
{
    return (pi__config) {.model = model_path, .draft_model = draft_path, .n_draft = 3, .max_batch_tokens = 64, .max_seqs = 8,
                         .max_queue = 20, .block_size = 16, .snapshot_interval = 512, .type_k = PI__F16, .type_v = PI__F16,
                         .kv_tokens = 4096, .cpu = {.n_threads = 2, .poll = 1}};
}

static void write_drafter(const ta_spec *s)
{
    pi_error err = {0};
    if (tiny_assistant_write(draft_path, s, &err)) fail_msg("%s", err.msg);
}

/* All jobs with this drafter. Returns how many drafts were right. */
static uint64_t run(const pi__config *c, job *jobs)
{
    pi_stats st = {.size = sizeof st};
    pi__core *e = job_core(c);
    jobs_fill(jobs);
    for (int i = 0; i < N_JOBS; i++) job_submit(e, &jobs[i], PI__LOGITS_GENERATED, NULL);
    for (int i = 0; i < N_JOBS; i++) job_await(&jobs[i], PI_OK);
    assert_int_equal(pi__core_stats(e, &st), PI_OK);
    pi__core_close(e);
    assert_true(c->draft_model ? st.n_drafted > 0 : st.n_drafted == 0);
    return st.n_accepted;
}

static void test_heads(void **st)
{
    (void) st;
    static job want[N_JOBS], got[N_JOBS];
    static const ta_spec specs[] = {{0, false, -1, 0}, {TINY_VOCAB, false, -1, 0}, {TINY_VOCAB, true, -1, 0},
                                    {100000, true, -1, 0}, {40, true, -1, 0}, {1, false, -1, 0}};
    uint64_t right[6];
    pi__config c = config();
    c.draft_model = NULL;
    run(&c, want);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        write_drafter(&specs[i]);
        c = config();
        c.load_mode = i % 2 ? PI__LOAD_MMAP : PI__LOAD_DIO;
        right[i] = run(&c, got);
        jobs_check(got, want, "drafter", (int) i);
    }
    assert_true(right[0] > 0);
    for (int i = 1; i < 4; i++) assert_int_equal(right[i], right[0]);
}

static void assert_refused(const ta_spec *s, const char *why)
{
    pi__core *e = NULL;
    pi_error err = {0};
    pi__config c = config();
    write_drafter(s);
    assert_int_equal(pi__core_open(&e, &c, &err), PI_EFORMAT);
    if (!strstr(err.msg, why)) fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
}

static void test_refused(void **st)
{
    (void) st;
    assert_refused(&(ta_spec) {40, true, 13, 0}, "masked_embd_ordering: number 1 is 13"); /* twice */
    assert_refused(&(ta_spec) {40, false, TINY_VOCAB, 0}, "masked_embd_ordering.weight: number 0");
    assert_refused(&(ta_spec) {40, true, -1, 7}, "masked_embd_centroids.weight has 7 rows");
    assert_refused(&(ta_spec) {40, true, -1, 2 * TINY_VOCAB}, "masked_embd_centroids.weight has");
    assert_refused(&(ta_spec) {1 << 21, true, -1, 0}, "centroid_top_k");
}

/* Opening with each allocation failing in turn: refused, and everything given back. */
static void test_out_of_memory(void **st)
{
    (void) st;
    static counting_alloc a;
    pi__config c = config();
    write_drafter(&(ta_spec) {40, true, -1, 0});
    c.cpu.n_threads = 1;
    c.load_mode = PI__LOAD_DIO;
    for (long i = 0;; i++) {
        pi__core *e = NULL;
        pi_error err = {0};
        counting_use(&a, i);
        int rc = pi__core_open(&e, &c, &err);
        pi__core_close(e);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        if (a.count <= i) {
            assert_int_equal(rc, PI_OK);
            break;
        }
        if (rc) assert_int_equal(rc, PI_ENOMEM);
    }
}

static int make_model(void **st)
{
    (void) st;
    pi_error err = {0};
    tiny_path(draft_path, "assistant");
    return tiny_gemma4_write(tiny_path(model_path, "target"), 512, &err);
}

static int remove_model(void **st)
{
    (void) st;
    return unlink(model_path) | unlink(draft_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
