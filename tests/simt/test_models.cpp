/* Steps of whole models in kernels that look for races, within blocks and between them: launches with what is done behind them
 * (src/backend/cuda/fuse.c) as graphs have them, which checks of single kernels choose for themselves. */
#include "simt_impl.h" /* before cmocka.h, which has a macro "fail" */

#include "engine_jobs.h"

extern "C" int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);

/* Prompts, and steps of one to three sequences; a sequence alone has the same bits. */
static void check(const char *arch, int32_t type, const char *fp4 = "off", const char *sizes = nullptr, const char *matmul = "auto")
{
    const std::vector<job> jobs = {{prompt(21, 1), "3"}, {prompt(1, 2), "4"}, {prompt(5, 3), "2"}};
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, sizes), 0);
    pi_error err;
    pi_engine *e;
    pi_options *o = options_on("emu", "32");
    set(o, "fp4-mode", fp4);
    set(o, "matmul", matmul);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s: %s", arch, err.msg);
    pi_options_free(o);
    const std::vector<rows> got = run_jobs(e, jobs);
    same_rows({got[1]}, run_jobs(e, {jobs[1]}));
    pi_engine_close(e);
    unlink(model_path.c_str());
}

static void test_dense(void **)
{
    check("gemma3", PI__Q8_0);
    check("llama2", PI__Q4_0, "off", nullptr, "exact");
    check("llama2", PI__F16);
    check("gemma4", PI__Q8_0);
}
static void test_fp4(void **)
{
    check("llama2", PI__NVFP4, "w4a4", "F=192");
    check("gemma3", PI__MXFP4, "auto");
}
static void test_delta(void **)
{
    check("qwen35", PI__Q8_0);
    check("qwen35moe", PI__Q8_0);
    check("qwen35moe", PI__MXFP4, "auto");
}
static void test_experts(void **) { check("glm4moe", PI__Q8_0); }
static void test_latent(void **)
{
    check("deepseek3", PI__Q8_0);
    check("deepseek4", 0);
}

int main()
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_fp4), cmocka_unit_test(test_delta),
                                       cmocka_unit_test(test_experts), cmocka_unit_test(test_latent)};
    name_model("models");
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
