/* Launches that do the work of several ops (src/backend/cuda/fuse.c): the bits of separate launches in whole models, with any
 * number of rows, captured and not; and how many launches a layer takes. Prompts by wgmma: the bits of mma.sync; with slices that
 * blocks share: the bits of blocks that have them all. */
#include "engine_jobs.h"

#include "counters.h"

extern "C" int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);

static pi_engine *open_fused(const char *fuse, const char *matmul, const char *fp4 = "off", const char *batch = "64")
{
    pi_error err;
    pi_engine *e;
    pi_options *o = options_on("emu", batch);
    set(o, "cuda-fuse", fuse);
    set(o, "matmul", matmul);
    set(o, "fp4-mode", fp4);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

/* Prompts of so many rows, and steps of one to five sequences: as without. */
static void check_bits(const char *arch, int32_t type, const char *matmul, const char *fp4 = "off", size_t n = 64)
{
    const std::vector<job> jobs = {{prompt(n, 1), "5"}, {prompt(16, 2), "4"}, {prompt(1, 3), "5"}, {prompt(17, 4), "3"},
                                   {prompt(7, 5), "4"}};
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, type == PI__NVFP4 ? "F=192" : nullptr), 0);
    const char *batch = n > 64 ? "96" : "64";
    pi_engine *apart = open_fused("off", matmul, fp4, batch), *fused = open_fused("auto", matmul, fp4, batch);
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
    check_bits("llama2", PI__Q4_0, "auto", "off", 90); /* results that are added where they are made */
    check_bits("gemma4", PI__Q8_0, "auto"); /* experts with norms of their own */
    check_bits("qwen35", PI__Q8_0, "auto");
    check_bits("qwen35moe", PI__Q8_0, "auto"); /* one input in several forms */
    check_bits("glm4moe", PI__Q8_0, "auto");   /* a shared expert without a gate */
    check_bits("llama2", PI__F16, "auto");     /* matrices that have no tail */
    check_bits("deepseek3", PI__Q8_0, "auto"); /* heads' own matrices, with a tail, and with what makes queries of their results */
    check_bits("deepseek4", 0, "auto");        /* the same of groups */
}

/* Products in FP4, whose gate and up are one launch for any number of rows, of experts too. */
static void test_fp4(void **)
{
    check_bits("llama2", PI__NVFP4, "auto", "w4a4");
    if (getenv("PI_TEST_EMULATED")) return;
    check_bits("gemma3", PI__MXFP4, "auto", "auto"); /* w4a8 */
    check_bits("qwen35moe", PI__MXFP4, "auto", "w4a4");
}

/* More rows than mma.sync is given on sm_90, and then steps of one. */
static void test_wgmma(void **)
{
    std::vector<rows> got[2];
    simt::counter c;
    double n = 0;
    assert_int_equal(simt_typed_write(model_path.c_str(), "llama2", PI__Q4_0, nullptr), 0);
    for (int i = 0; i < 2; i++) {
        pi_engine *e;
        pi_error err;
        simt::options.arch = i ? 90 : 120;
        simt::options.count = i ? &c : nullptr;
        if (open_engine(&e, "128", &err)) fail_msg("%s", err.msg);
        got[i] = run_jobs(e, {{prompt(66, 1), "2"}});
        pi_engine_close(e);
    }
    simt::options.count = nullptr;
    simt::options.arch = 120;
    same_rows(got[0], got[1]);
    for (const simt::launch_counts &l : c.launches) n += l.op[simt::DO_WGMMA];
    assert_true(n > 0);
    unlink(model_path.c_str());
}

/* Where multiprocessors are many, slices of down's tiles are shared out among blocks: the same bits. */
static void test_slices(void **)
{
    const struct { int32_t type; const char *fp4, *sizes; } cases[] = {{PI__Q4_0, "off", "F=1536"}, {PI__MXFP4, "auto", "F=3072"}};
    const int n_sm = simt::watch.n_sm;
    for (const auto &model : cases) {
        std::vector<rows> got[2];
        assert_int_equal(simt_typed_write(model_path.c_str(), "llama2", model.type, model.sizes), 0);
        for (int i = 0; i < 2; i++) {
            simt::counter c;
            long shared = 0;
            simt::watch.n_sm = i ? 64 : 1;
            pi_engine *e = open_fused("auto", "auto", model.fp4, "96");
            simt::options.count = &c;
            got[i] = run_jobs(e, {{prompt(90, 1), "2"}, {prompt(67, 2), "2"}});
            simt::options.count = nullptr;
            pi_engine_close(e);
            for (const simt::launch_counts &l : c.launches) shared += l.grid.z > 1;
            if (!shared != !i) fail_msg("%d multiprocessors: %ld launches whose blocks share slices", i ? 64 : 1, shared);
        }
        same_rows(got[0], got[1]);
        unlink(model_path.c_str());
        if (getenv("PI_TEST_EMULATED")) break;
    }
    simt::watch.n_sm = n_sm;
}

/* Launches of a decode step of one sequence. */
static long launches(const char *arch, const char *sizes, const char *fuse, int32_t type = PI__Q8_0, const char *fp4 = "off")
{
    long n[2];
    cuda_graphs = "off";
    simt::watch.idle = true;
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, sizes), 0);
    for (int i = 0; i < 2; i++) {
        pi_engine *e = open_fused(fuse, "auto", fp4);
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
    long layer[2], delta[2], experts[2], moe[2], latent[2];
    for (int i = 0; i < 2; i++) {
        experts[i] = launches("qwen35moe", nullptr, fuse[i]); /* the same, each with a shared expert beside others */
        moe[i] = (launches("qwen3moe", "L=4", fuse[i]) - launches("qwen3moe", "L=2", fuse[i])) / 2;
        layer[i] = (launches("llama2", "L=5", fuse[i]) - launches("llama2", "L=3", fuse[i])) / 2;
        delta[i] = launches("qwen35", nullptr, fuse[i]); /* three delta nets and attention */
    }
    expect_launches("a layer", layer[0], layer[1], 5, 11);
    const long three = launches("llama2", "L=3 F=128", "auto", PI__NVFP4, "w4a4");
    const long w4a4 = (launches("llama2", "L=5 F=128", "auto", PI__NVFP4, "w4a4") - three) / 2;
    if (w4a4 > 5) fail_msg("a layer in w4a4: %ld launches", w4a4);
    expect_launches("delta nets", delta[0], delta[1], 27, 48);
    expect_launches("delta nets and experts", experts[0], experts[1], 35, 48);
    expect_launches("a layer of experts", moe[0], moe[1], 7, 11);
    for (int i = 0; i < 2; i++) latent[i] = launches("deepseek3", "L=4", fuse[i]) - launches("deepseek3", "L=3", fuse[i]);
    expect_launches("a layer of experts with latent attention", latent[0], latent[1], 13, 25);
    const long v4 = launches("deepseek4", nullptr, "auto", 0), v4_apart = launches("deepseek4", nullptr, "off", 0);
    expect_launches("deepseek4", v4, v4_apart, 134, 155); /* four layers, one without entries, one with those of 128 tokens */
    const long gemma4 = launches("gemma4", nullptr, "auto"), gemma4_apart = launches("gemma4", nullptr, "off");
    expect_launches("gemma4", gemma4, gemma4_apart, 82, 160); /* six layers, five of experts, all with embeddings of their own */
}

int main()
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_fp4), cmocka_unit_test(test_wgmma),
                                       cmocka_unit_test(test_slices), cmocka_unit_test(test_launches)};
    name_model("fuse");
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
