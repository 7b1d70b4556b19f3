/* Launches that do the work of several ops (src/backend/cuda/fuse.c): the bits of separate launches in whole models, with any
 * number of rows, captured and not; and how many launches a layer takes. */
#include "engine_jobs.h"

extern "C" int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);

static pi_engine *open_fused(const char *fuse, const char *matmul)
{
    pi_error err;
    pi_engine *e;
    pi_options *o = options_on("emu", "64");
    set(o, "cuda-fuse", fuse);
    set(o, "matmul", matmul);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

/* Prompts of so many rows, and steps of one to five sequences: as without. */
static void check_bits(const char *arch, int32_t type, const char *matmul)
{
    const std::vector<job> jobs = {{prompt(64, 1), "5"}, {prompt(16, 2), "4"}, {prompt(1, 3), "5"}, {prompt(17, 4), "3"},
                                   {prompt(7, 5), "4"}};
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, nullptr), 0);
    pi_engine *apart = open_fused("off", matmul), *fused = open_fused("auto", matmul);
    const std::vector<rows> want = run_jobs(apart, jobs);
    simt::watch.n_launched = 0;
    same_rows(want, run_jobs(fused, jobs));
    same_rows({want[2]}, run_jobs(fused, {jobs[2]}));
    same_rows({want[4]}, run_jobs(fused, {jobs[4]}));
    pi_engine_close(apart);
    pi_engine_close(fused);
    unlink(model_path.c_str());
}

static void test_bits(void **)
{
    check_bits("gemma3", PI__Q8_0, "auto"); /* norms of what is added */
    if (getenv("PI_TEST_EMULATED")) return;
    check_bits("llama2", PI__Q4_0, "exact");
    check_bits("qwen35", PI__Q8_0, "auto");
    check_bits("qwen35moe", PI__Q8_0, "auto"); /* one input in several forms */
    check_bits("llama2", PI__F16, "auto");     /* matrices that have no tail */
}

/* Launches of a decode step of one sequence. */
static long launches(const char *arch, const char *sizes, const char *fuse)
{
    long n[2];
    cuda_graphs = "off";
    simt::watch.idle = true;
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, PI__Q8_0, sizes), 0);
    for (int i = 0; i < 2; i++) {
        pi_engine *e = open_fused(fuse, "auto");
        simt::watch.n_launched = 0;
        run_jobs(e, {{prompt(20, 1), i ? "12" : "4"}});
        n[i] = simt::watch.n_launched;
        pi_engine_close(e);
    }
    simt::watch.idle = false;
    cuda_graphs = "auto";
    unlink(model_path.c_str());
    assert_int_equal((n[1] - n[0]) % 8, 0);
    return (n[1] - n[0]) / 8;
}

/* Where these grow, steps of few rows become slower. */
static void expect_launches(const char *what, long fused, long apart, long most, long least_apart)
{
    if (fused > most || apart < least_apart) fail_msg("%s: %ld launches, %ld apart", what, fused, apart);
}

static void test_launches(void **)
{
    const char *fuse[] = {"auto", "off"};
    long layer[2], delta[2];
    for (int i = 0; i < 2; i++) {
        layer[i] = (launches("llama2", "L=5", fuse[i]) - launches("llama2", "L=3", fuse[i])) / 2;
        delta[i] = launches("qwen35", nullptr, fuse[i]); /* three delta nets and attention */
    }
    expect_launches("a layer", layer[0], layer[1], 5, 11);
    expect_launches("delta nets", delta[0], delta[1], 27, 48);
}

int main()
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_launches)};
    name_model("fuse");
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
