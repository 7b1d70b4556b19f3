/* 8-bit activations (option activation-bits) in an engine. Results differ from 15-bit ones, but are identical in every
 * batch, with prefixes and preemption. A prefix directory written at one width is a miss at the other. */
#include "model_jobs.h"

static const struct model {
    const char *arch;
    int32_t type;
} models[] = {{"gemma3", PI__Q4_1}, {"qwen35moe", PI__Q8_0}};
enum { N_MODELS = (int) (sizeof models / sizeof *models) };

static char path[N_MODELS][256];

static pi__config config(int model, bool act8)
{
    return (pi__config) {.model = path[model], .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 512, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 4096,
                         .params.cpu = {.n_threads = 2, .poll = 1, .act8 = act8}};
}

static void run(pi__config c, bool together, job *out)
{
    jobs_fill(out);
    jobs_run(&c, together, PI__LOGITS_GENERATED, out);
}

static void test_same_bits(void **state)
{
    (void) state;
    static job want[N_JOBS], got[N_JOBS];
    for (int i = 0; i < N_MODELS; i++) {
        const char *arch = models[i].arch;
        run(config(i, false), false, got);
        run(config(i, true), false, want);
        for (int j = 0; j < N_JOBS; j++) assert_true(want[j].rows != got[j].rows);

        pi__config c = config(i, true);
        c.max_batch_tokens = 7;
        c.block_size = 32;
        c.params.cpu.n_threads = 3;
        run(c, true, got);
        jobs_check(got, want, arch, 7);

        c = config(i, true);
        c.prefix_cache = true;
        run(c, true, got);
        jobs_check(got, want, arch, 1);
        assert_true(got[N_JOBS - 1].n_cached > 0);

        c = config(i, true);
        c.kv_tokens = 400; /* enough for all prompts, not for the answers */
        run(c, true, got);
        jobs_check(got, want, arch, 0);

        c = config(i, true);
        c.device = "cpu,cpu";
        c.tensor = true;
        run(c, true, got);
        jobs_check(got, want, arch, 2);
    }
}

/* Returns the number of prompt tokens that a new engine loads from the disk cache. */
static int32_t found(const char *dir, bool act8)
{
    static job jobs[N_JOBS];
    pi__config c = config(0, act8);
    c.prefix_cache = true;
    c.prefix_dir = dir;
    c.prefix_dir_bytes = 64 << 20;
    jobs_fill(jobs);
    pi__core *e = job_core(&c);
    job_submit(e, &jobs[N_JOBS - 1], PI__LOGITS_GENERATED, NULL);
    job_await(&jobs[N_JOBS - 1], PI_OK);
    pi__core_close(e);
    return (int32_t) jobs[N_JOBS - 1].n_cached;
}

static void test_disk(void **state)
{
    (void) state;
    char dir[300], command[320];
    snprintf(dir, sizeof dir, "%s.prefixes", path[0]);
    assert_int_equal(found(dir, false), 0);
    assert_true(found(dir, false) >= 200);
    assert_int_equal(found(dir, true), 0);
    assert_true(found(dir, true) >= 200);
    assert_true(found(dir, false) >= 200);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
    (void) state;
    int rc = 0;
    for (int i = 0; i < N_MODELS && !rc; i++) {
        const tiny_spec s = {.arch = models[i].arch, .type = models[i].type};
        pi_error err;
        rc = tiny_write(tiny_path(path[i], models[i].arch), &s, &err);
    }
    return rc;
}

static int teardown(void **state)
{
    (void) state;
    int rc = 0;
    for (int i = 0; i < N_MODELS; i++) rc |= unlink(path[i]);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_disk)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
