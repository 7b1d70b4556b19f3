/* The check of a device backend's functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/device.h"

static pi__backend *be;
static pi__device_fns dev;
static pi__device_opt opt;

static void open_cpu(void)
{
    pi_error err = {0};
    assert_int_equal(pi__cpu_create(&be, &(pi__cpu_params) {.n_threads = 1}, &(pi__log) {0}, &err), PI_OK);
    dev = *be->dev, opt = *be->opt;
    be->dev = &dev, be->opt = &opt;
}

/* The check fails and names this word. */
static void refused(const char *word)
{
    pi_error err = {0};
    assert_int_equal(pi__device_check(be, &err), PI_EINTERNAL);
    if (!strstr(err.msg, word)) fail_msg("%s: %s", word, err.msg);
}

static void a_complete_backend_passes(void **state)
{
    (void) state;
    pi_error err = {0};
    open_cpu();
    assert_int_equal(pi__device_check(be, &err), PI_OK);
    opt = (pi__device_opt) {0}; /* every function of opt is optional */
    assert_int_equal(pi__device_check(be, &err), PI_OK);
    dev.destroy(be);
}

static void each_obligatory_function_is_required(void **state)
{
    (void) state;
    open_cpu();
    const pi__device_fns all = dev;
    enum { N = sizeof dev / sizeof(void (*)(void)) };
    for (int i = 0; i < N; i++) {
        dev = all;
        memset((char *) &dev + (size_t) i * sizeof(void (*)(void)), 0, sizeof(void (*)(void)));
        refused("provide");
    }
    dev = all, dev.commit = NULL;
    refused("commit");
    all.destroy(be);
}

static bool map_nothing(pi__backend *b, void *p, size_t size) { return (void) b, (void) p, (void) size, false; }
static void draw_nothing(pi__backend *b, const pi__draws *d) { (void) b, (void) d; }

static void a_group_is_complete_or_absent(void **state)
{
    (void) state;
    open_cpu();
    opt.arena_map = map_nothing;
    refused("arena_map");
    opt.arena_map = NULL;
    opt.pin = map_nothing;
    refused("pin");
    opt.pin = NULL;
    opt.draw = draw_nothing;
    refused("mark");
    opt.draw = NULL;
    be->page = 4096;
    refused("arena_alloc");
    dev.destroy(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complete_backend_passes),
        cmocka_unit_test(each_obligatory_function_is_required),
        cmocka_unit_test(a_group_is_complete_or_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
