/* Measuring a single op: reported values, the end of the measurement, errors, and no leaked allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "counting_alloc.h"
#include "pagedinfer.h"

typedef struct seen {
    int n, most; /* number of calls; the measurement stops after `most` calls */
    uint64_t bytes_one; /* bytes of a one-sequence decode step */
} seen;

static bool on_time(void *ud, const pi_op_time *t)
{
    seen *s = ud;
    assert_int_equal(t->size, sizeof *t);
    assert_true(t->ns > 0 && t->bytes > 0 && t->bandwidth > 0);
    assert_true(t->n_seqs >= 1 && t->n_seqs <= 16);
    if (!strcmp(t->what, "decode")) {
        assert_int_equal(t->n_tokens, 1);
        if (t->n_seqs == 1) s->bytes_one = t->bytes;
        else assert_true(t->bytes == s->bytes_one * t->n_seqs);
    }
    return ++s->n == s->most;
}

static int measure(const char *op, const char *shape, seen *s)
{
    pi_error err = {0};
    pi_options *o = pi_options_new();
    if (!o) return PI_ENOMEM;
    int rc = pi_options_set(o, "threads", "2", &err);
    if (!rc) rc = pi_bench_op(o, op, shape, on_time, s, &err);
    if (rc && rc != PI_ENOMEM) assert_true(strlen(err.msg) > 10);
    pi_options_free(o);
    return rc;
}

static void test_all(void **state)
{
    (void) state;
    seen s = {0}, one = {.most = 1};
    assert_int_equal(measure("gdn", "2,4,32,2", &s), PI_OK);
    assert_int_equal(s.n, 9); /* decode of 1, 2, 4, 8, 16; prefill of one and of 16; save, load */
    /* S0 is read, and written once in 16 steps; half a chunk's keys and u; 4 raw inputs. Two layers. */
    assert_int_equal(s.bytes_one, 2 * (4 * 32 * 32 * 4 * 17 / 16 + 6 * 32 * 4 * 17 / 2 + 8 * 32 * 4 * 4));
    assert_int_equal(measure("gdn", "2,4,32,2", &one), PI_OK);
    assert_int_equal(one.n, 1);
}

static bool on_rate(void *ud, const pi_op_time *t)
{
    static const char *const order[] = {"read", "integers", "floats"};
    seen *s = ud;
    assert_true(s->n < 3);
    assert_string_equal(t->what, order[s->n]);
    if (s->n) assert_true(t->products > 0);
    else assert_true(t->bandwidth > 0);
    return ++s->n == s->most;
}

static void test_rates(void **state)
{
    (void) state;
    seen all = {0}, one = {.most = 1};
    pi_error err;
    pi_options *o = pi_options_new();
    assert_int_equal(pi_options_set(o, "threads", "2", &err), PI_OK);
    assert_int_equal(pi_bench_op(o, "rates", NULL, on_rate, &all, &err), PI_OK);
    assert_int_equal(all.n, 3);
    assert_int_equal(pi_bench_op(o, "rates", NULL, on_rate, &one, &err), PI_OK);
    assert_int_equal(one.n, 1);
    pi_options_free(o);
}

static void test_refused(void **state)
{
    (void) state;
    seen s = {0};
    assert_int_equal(measure("add", "", &s), PI_EINVAL);
    static const char *const bad[] = {"1",        "1,2,3",     "2,4,32,2,",   "2,4,32,2x",
                                      "0,4,32,2", "2,-4,32,2", "2,4,32,1000", "a,b,c,d"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(measure("gdn", bad[i], &s), PI_EINVAL);
    assert_int_equal(measure("gdn", "2,4,33,2", &s), PI_EUNSUPPORTED);
    assert_int_equal(measure("gdn", "2,4,2147483647,2", &s), PI_EUNSUPPORTED);
    assert_int_equal(s.n, 0);
}

static int measure_rates(seen *s)
{
    pi_error err = {0};
    pi_options *o = pi_options_new();
    int rc = o ? pi_bench_op(o, "rates", NULL, on_rate, s, &err) : PI_ENOMEM;
    pi_options_free(o);
    return rc;
}

/* Each allocation fails in turn: the call returns PI_ENOMEM and frees all memory. */
static void no_memory(bool rates)
{
    counting_alloc a;
    int rc = PI_ENOMEM;
    for (long i = 0; rc; i++) {
        seen s = {0};
        counting_use(&a, i);
        rc = rates ? measure_rates(&s) : measure("gdn", "1,1,32,1", &s);
        assert_int_equal(a.live, 0);
        assert_true(rc == PI_OK || rc == PI_ENOMEM);
        assert_true(i < 100);
    }
    assert_int_equal(pi_set_allocator(NULL), PI_OK);
}

static void test_no_memory(void **state)
{
    (void) state;
    no_memory(false);
    no_memory(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
