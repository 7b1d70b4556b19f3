/* Vision models on the emulated CUDA backend: rows of images are nearly those of transformers. Decode steps after a
 * prompt with images are recorded and replayed, also as lookahead steps; their logits are bitwise those of plain
 * launches. */
#include "simt_impl.h" /* before cmocka.h, which defines a macro "fail" */

#include "runtime_emu.h"
#include "simt_test.h"

enum { N_GEN = 12 }; /* as in model_jobs.h */
struct image_answers {
    int32_t tokens[2][N_GEN];
    uint64_t rows[2];
};
extern "C" double simt_vision_difference(int i);
extern "C" void simt_image_answers(bool graphs, bool ahead, image_answers *out);

static void test_rows(void **)
{
    const uint64_t before = simt::n_launches;
    double worst;
    for (int i = 0; (worst = simt_vision_difference(i)) >= 0; i++) assert_true(worst < 2e-4);
    assert_true(simt::n_launches > before + 100); /* the kernels really ran on the emulator */
}

static void test_replayed(void **)
{
    image_answers want, got;
    simt::watch.n_recorded = simt::watch.n_replayed = 0;
    simt_image_answers(false, false, &want);
    assert_int_equal(simt::watch.n_recorded + simt::watch.n_replayed, 0);
    assert_true(want.rows[0] && want.rows[1]);
    simt_image_answers(true, false, &got);
    assert_memory_equal(got.tokens, want.tokens, sizeof want.tokens);
    assert_memory_equal(got.rows, want.rows, sizeof want.rows);
    const long recorded = simt::watch.n_recorded, replayed = simt::watch.n_replayed;
    print_message("%ld graphs recorded, %ld replayed\n", recorded, replayed);
    assert_true(recorded > 0 && replayed >= N_GEN / 2);
    simt::watch.n_ahead = simt::watch.n_replayed = 0;
    simt_image_answers(true, true, &got);
    assert_memory_equal(got.tokens, want.tokens, sizeof want.tokens);
    print_message("%ld lookahead steps, %ld replayed\n", simt::watch.n_ahead.load(), simt::watch.n_replayed.load());
    assert_true(simt::watch.n_ahead >= N_GEN / 3 && simt::watch.n_replayed >= N_GEN / 3);
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_replayed)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
