/* Steps of whole models with instrumented kernels, which detect races within blocks and between them. Launches and
 * their epilogues (src/backend/cuda/plan.c) are captured as in real steps; the checks of single kernels select their
 * own. The argument "all" runs every architecture in every matmul mode, for each kind of device, with few rows and
 * many; that takes half an hour. */
#include "simt_impl.h" /* before cmocka.h, which defines a macro "fail" */

#include "engine_jobs.h"

extern "C" {
int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);
const char *tiny_row_name(size_t i);
}

/* Checks prompts, and steps of one to three sequences; a sequence in a batch of one has the same bits. */
static void check(const char *arch, int32_t type, const char *fp4 = "off", const char *sizes = nullptr,
                  const char *matmul = "auto")
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
    check("lfm2", PI__Q8_0);
}
static void test_experts(void **) { check("glm4moe", PI__Q8_0); }
static void test_latent(void **)
{
    check("deepseek3", PI__Q8_0);
    check("deepseek4", 0);
    check("glm-dsa", 0);
}

/* Runs prompts of at most 70 rows, and steps of up to 12 sequences. */
static void check_many(const char *arch, int32_t type, const char *fp4, const char *matmul, unsigned device,
                       const char *fuse)
{
    std::vector<job> jobs = {{prompt(70, 1), "3"}, {prompt(33, 2), "2"}};
    for (int32_t i = 0; i < 10; i++) jobs.push_back({prompt(1 + (size_t) i % 3, 3 + i), i < 9 ? "3" : "2"});
    pi_error err;
    pi_engine *e;
    simt::options.arch = device;
    /* the rows are not multiples of the type's block size */
    if (simt_typed_write(model_path.c_str(), arch, type, type == PI__NVFP4 ? "F=192" : nullptr)) {
        print_message("no such file\n");
        return;
    }
    pi_options *o = options_on("emu", "96");
    set(o, "fp4-mode", fp4);
    set(o, "matmul", matmul);
    set(o, "cuda-fuse", fuse);
    set(o, "parallel", "12");
    set(o, "kv-cache-tokens", "2048");
    if (!pi_engine_open(&e, o, &err)) {
        const std::vector<rows> got = run_jobs(e, jobs);
        same_rows({got[1], got[5]}, run_jobs(e, {jobs[1], jobs[5]}));
        pi_engine_close(e);
    } else {
        print_message("%s: %s\n", arch, err.msg);
    }
    pi_options_free(o);
    unlink(model_path.c_str());
    simt::options.arch = 120;
}
static void test_all(void **)
{
    const struct { int32_t type; const char *fp4, *matmul; } ways[] = {
        {PI__Q8_0, "off", "auto"}, {PI__Q8_0, "off", "exact"}, {PI__BF16, "off", "auto"}, {PI__Q4_0, "off", "auto"},
        {PI__MXFP4, "auto", "auto"}, {PI__NVFP4, "w4a4", "auto"}, {PI__F32, "off", "auto"}};
    for (size_t i = 0; tiny_row_name(i); i++) {
        bool generates = true;
        for (const char *no : {"bert", "t5encoder", "embedding", "dflash", "assistant", "draft", "mtp"})
            if (strstr(tiny_row_name(i), no)) generates = false;
        for (const auto &w : ways) {
            if (!generates) break;
            for (unsigned device : {80u, 90u, 120u}) {
                if (device != 120 && (w.type != PI__Q8_0 || strcmp(w.matmul, "auto"))) continue;
                for (const char *fuse : {"auto", "off"}) {
                    if (!strcmp(fuse, "off") && w.type != PI__Q8_0) continue;
                    print_message("%s, type %d, %s, %s, sm_%u, fuse %s\n", tiny_row_name(i), w.type, w.fp4, w.matmul,
                                  device, fuse);
                    check_many(tiny_row_name(i), w.type, w.fp4, w.matmul, device, fuse);
                }
            }
        }
    }
}

int main(int n, char **arg)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_fp4),
                                       cmocka_unit_test(test_delta), cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_latent)};
    const struct CMUnitTest all[] = {cmocka_unit_test(test_all)};
    name_model("models");
    if (n > 1 && !strcmp(arg[1], "all")) return cmocka_run_group_tests(all, nullptr, nullptr);
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
