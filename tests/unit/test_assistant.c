/* A gemma4-assistant drafter on tiny random models, with an ordinary head and with a clustered one. Tokens and logits
 * of the target never depend on it, and the rows of searched clusters get the logits of the ordinary head. */
#include <math.h>

#include "model_jobs.h"

#include "draft_logits.h"
#include "open_oom.h"
#include "random_model.h"

static char model_path[256], draft_path[256];

static pi__config config(void)
{
    return (pi__config) {.model = model_path,
                         .draft_model = draft_path,
                         .n_draft = 3,
                         .max_batch_tokens = 64,
                         .max_seqs = 8,
                         .max_queue = 20,
                         .block_size = 16,
                         .snapshot_interval = 512,
                         .type_k = PI__F16,
                         .type_v = PI__F16,
                         .kv_tokens = 4096,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

/* `sizes`: K clusters to search; see random_rows.c */
static void write_drafter(const char *sizes)
{
    pi_error err = {0};
    if (tiny_write(draft_path, &(tiny_spec) {.arch = "gemma4-assistant", .sizes = sizes}, &err))
        fail_msg("%s", err.msg);
}

/* Runs all jobs with this drafter, or without one. */
static void run(const pi__config *c, job *jobs)
{
    pi_stats st = {.size = sizeof st};
    pi__core *e = job_core(c);
    jobs_fill(jobs);
    for (int i = 0; i < N_JOBS; i++) job_submit(e, &jobs[i], PI__LOGITS_GENERATED, NULL);
    for (int i = 0; i < N_JOBS; i++) job_await(&jobs[i], PI_OK);
    assert_int_equal(pi__core_stats(e, &st), PI_OK);
    pi__core_close(e);
    assert_true(c->draft_model ? st.n_drafted > 0 : st.n_drafted == 0);
}

/* A drafter head that searches all, some or one of the clusters changes no token or logit of the target. */
static void test_same_tokens(void **st)
{
    (void) st;
    static job want[N_JOBS], got[N_JOBS];
    static const char *const sizes[] = {"", "K=V", "K=40 i=1", "K=1"};
    pi__config c = config();
    c.draft_model = NULL;
    run(&c, want);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_drafter(sizes[i]);
        c = config();
        c.load_mode = i % 2 ? PI__LOAD_MMAP : PI__LOAD_DIO;
        run(&c, got);
        jobs_check(got, want, "drafter", (int) i);
    }
}

/* Computes the logits of a drafter with these sizes. */
static void draft_logits(const char *sizes, int load_mode, const char *devices, float *logits)
{
    pi_error err = {0};
    pi__backend *be;
    write_drafter(sizes);
    if (pi__device_create(&be, devices, true, &(pi__device_params) {.cpu = {.n_threads = 2, .poll = 1}}, &(pi__log) {0},
                          &err) ||
        da_logits(be, model_path, draft_path, load_mode, logits, &err))
        fail_msg("%s", err.msg);
    be->dev->destroy(be);
}

/* Searched rows have the ordinary head's logits bit for bit, for any cluster order, load mode and number of
 * devices. */
static void test_heads(void **st)
{
    (void) st;
    static float plain[DA_ROWS * TINY_VOCAB], got[DA_ROWS * TINY_VOCAB], two[DA_ROWS * TINY_VOCAB];
    draft_logits("", PI__LOAD_MMAP, "cpu", plain);
    for (int32_t r = 1; r < DA_ROWS; r++)
        assert_true(memcmp(plain, plain + r * TINY_VOCAB, TINY_VOCAB * sizeof *plain));
    draft_logits("K=V", PI__LOAD_MMAP, "cpu", got);
    assert_memory_equal(got, plain, sizeof plain);
    draft_logits("K=100000 i=1", PI__LOAD_DIO, "cpu", got);
    assert_memory_equal(got, plain, sizeof plain);
    draft_logits("K=40 i=1", PI__LOAD_DIO, "cpu", got);
    for (int32_t r = 0; r < DA_ROWS; r++) {
        int32_t same = 0;
        float least = INFINITY;
        for (int32_t i = r * TINY_VOCAB; i < (r + 1) * TINY_VOCAB; i++) {
            same += got[i] == plain[i];
            if (got[i] == plain[i] && got[i] < least) least = got[i];
        }
        assert_int_equal(same, 40);
        for (int32_t i = r * TINY_VOCAB; i < (r + 1) * TINY_VOCAB; i++)
            assert_true(got[i] == plain[i] || got[i] == least - 1.0f);
    }
    draft_logits("K=40 i=1", PI__LOAD_MMAP, "cpu,cpu", two);
    assert_memory_equal(two, got, sizeof two);
}

static void assert_refused(const char *sizes, const char *why)
{
    pi__core *e = NULL;
    pi_error err = {0};
    pi__config c = config();
    write_drafter(sizes);
    assert_int_equal(pi__core_open(&e, &c, &err), PI_EFORMAT);
    if (!strstr(err.msg, why)) fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
}

static void test_refused(void **st)
{
    (void) st;
    assert_refused("K=40 i=1 O=13", "masked_embd_ordering: number 1 is 13"); /* an index that appears twice */
    assert_refused("K=40 O=V", "masked_embd_ordering.weight: number 0");
    assert_refused("K=40 i=1 N=7", "masked_embd_centroids.weight has 7 rows");
    assert_refused("K=40 i=1 N=2V", "masked_embd_centroids.weight has");
    assert_refused("K=2097152 i=1", "centroid_top_k");
}

/* Opening with each allocation failing in turn returns an error and frees all memory. */
static void test_out_of_memory(void **st)
{
    (void) st;
    pi__config c = config();
    write_drafter("K=40 i=1");
    c.params.cpu.n_threads = 1;
    open_out_of_memory(&c);
}

static int make_model(void **st)
{
    (void) st;
    pi_error err = {0};
    tiny_path(draft_path, "assistant");
    return tiny_write(tiny_path(model_path, "target"), &(tiny_spec) {.arch = "gemma4"}, &err);
}

static int remove_model(void **st)
{
    (void) st;
    return unlink(model_path) | unlink(draft_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
