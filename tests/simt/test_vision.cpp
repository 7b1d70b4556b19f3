/* Vision models on the emulated CUDA backend: rows of images are nearly those of transformers. */
#include "simt_impl.h" /* before cmocka.h, which defines a macro "fail" */

#include "simt_test.h"

extern "C" double simt_vision_difference(int i);

static void test_rows(void **)
{
    const uint64_t before = simt::n_launches;
    double worst;
    for (int i = 0; (worst = simt_vision_difference(i)) >= 0; i++) assert_true(worst < 2e-4);
    assert_true(simt::n_launches > before + 100); /* the kernels really ran on the emulator */
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
