/* The prefill part of a step (pace.c): it converges to the target from far away, follows changes in cost, and a
 * prompt always makes progress. */
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
    assert_int_equal(pi__pace_limit(&p), 0); /* no measurement yet */
    pi__pace_measure(&p, 512, 0, cost(token_ms[0], 512, 0));
    for (int k = 0; k < 4; k++) {
        double ms = 0;
        for (int i = 0; i < 40; i++) {
            const int32_t n = pi__pace_limit(&p);
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
        assert_int_equal(pi__pace_limit(&p), 8);
    }
}

static void without_a_target_there_is_no_limit(void **state)
{
    (void) state;
    pi__pace p = {0};
    pi__pace_measure(&p, 100, 4, 1000);
    assert_int_equal(pi__pace_limit(&p), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_to_the_target),
        cmocka_unit_test(a_prompt_always_goes_on),
        cmocka_unit_test(without_a_target_there_is_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
