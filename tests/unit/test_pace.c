/* The prefill part of a step, and the part of an image after it (pace.c): they converge to the target from far away,
 * follow changes in cost, and a prompt and an image always make progress. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/pace.h"

/* Step time of the simulated machine. */
static double cost(double token_ms, int32_t n_prefill, int32_t n_decode)
{
    return 2.0 + 0.5 * n_decode + token_ms * n_prefill;
}

static void steps_come_to_the_target(void **state)
{
    (void) state;
    static const double token_ms[] = {0.1, 1.0, 8.0, 0.4};
    pi__pace p = {.target_ms = 100};
    assert_int_equal(pi__pace_limit(&p, false), 0); /* no measurement yet */
    pi__pace_measure(&p, 512, 0, cost(token_ms[0], 512, 0));
    for (int k = 0; k < 4; k++) {
        double ms = 0;
        for (int i = 0; i < 40; i++) {
            const int32_t n = pi__pace_limit(&p, false);
            assert_true(n > 0);
            ms = cost(token_ms[k], n, 8);
            pi__pace_measure(&p, n, 8, ms);
            pi__pace_measure(&p, 0, 8, cost(token_ms[k], 0, 8));
        }
        assert_true(ms > 70 && ms < 130);
    }
}

static void a_prompt_always_goes_on(void **state)
{
    (void) state;
    pi__pace p = {.target_ms = 1};
    for (int i = 0; i < 20; i++) {
        pi__pace_measure(&p, 8, 4, 5000);
        pi__pace_measure(&p, 0, 4, 300);
        assert_int_equal(pi__pace_limit(&p, false), 8);
    }
}

static void without_a_target_there_is_no_limit(void **state)
{
    (void) state;
    pi__pace p = {0};
    pi__pace_measure(&p, 100, 4, 1000);
    assert_int_equal(pi__pace_limit(&p, false), 0);
    assert_true(pi__pace_image_limit(&p, 10) == 0);
}

/* Steps with prefill and a part of an image after them: the time from one decode to the next comes to the target. */
static void images_come_to_the_target(void **state)
{
    (void) state;
    static const double work_ms[] = {1e-7, 1e-8, 4e-7};
    pi__pace p = {.target_ms = 100};
    assert_true(pi__pace_image_limit(&p, 20) <= 1); /* no measurement yet: the smallest part */
    pi__pace_measure(&p, 512, 0, cost(0.5, 512, 0));
    for (int k = 0; k < 3; k++) {
        double ms = 0;
        for (int i = 0; i < 40; i++) {
            const int32_t n = pi__pace_limit(&p, true);
            const double step = cost(0.5, n, 8), work = pi__pace_image_limit(&p, step);
            assert_true(work >= 1);
            ms = step + work * work_ms[k];
            pi__pace_measure(&p, n, 8, step);
            pi__pace_measure(&p, 0, 8, cost(0.5, 0, 8));
            pi__pace_measure_image(&p, work, work * work_ms[k]);
        }
        assert_true(ms > 90 && ms < 110);
        assert_true(cost(0.5, pi__pace_limit(&p, true), 8) < 60); /* a fair share for prefill */
    }
    assert_true(pi__pace_image_limit(&p, 500) <= 1); /* the step is late: the smallest part */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_to_the_target),
        cmocka_unit_test(a_prompt_always_goes_on),
        cmocka_unit_test(without_a_target_there_is_no_limit),
        cmocka_unit_test(images_come_to_the_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
