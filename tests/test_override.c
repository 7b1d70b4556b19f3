/* Metadata that the user sets over the file's: it counts as if it were the file's, and what is no rule or does not fit is
 * refused with a reason. */
#include "counting_alloc.h"
#include "model_jobs.h"

static char path[256];

static pi__config config(const char *const *rules, size_t n)
{
    return (pi__config) {.model = path, .max_batch_tokens = 64, .max_seqs = 2, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 64, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 512,
                         .override_kv = rules, .n_override_kv = n, .cpu = {.n_threads = 1}};
}

static void same_or_not(const pi__config *c, bool same)
{
    static job want[N_JOBS], got[N_JOBS];
    jobs_fill(want), jobs_fill(got);
    pi__config plain = config(NULL, 0);
    jobs_run(&plain, false, PI__LOGITS_GENERATED, want);
    jobs_run(c, false, PI__LOGITS_GENERATED, got);
    if (same) jobs_check(got, want, "override", 0);
    else assert_true(got[4].rows != want[4].rows);
}

static void counts_as_the_files(void **st)
{
    (void) st;
    const char *const same[] = {"gemma3.rope.freq_base=float:1000000", "nobody.asks=str:", "nobody.asks=bool:true"};
    const char *const other[] = {"gemma3.rope.freq_base=float:5e3", "gemma3.context_length=int:300", "general.name=str:my=own:"};
    pi__config c = config(same, 3);
    same_or_not(&c, true);
    c = config(other, 3);
    same_or_not(&c, false);
    pi__core *e = job_core(&c);
    pi_info i = {.size = sizeof i};
    pi__core_info(e, &i);
    assert_int_equal(i.n_ctx_train, 300);
    assert_string_equal(i.name, "my=own:");
    pi__core_close(e);
    c = config(NULL, 0);
    c.rope_freq_base = 5000;
    same_or_not(&c, false);
    c.rope_freq_base = 1000000;
    same_or_not(&c, true);
}

static void refused(const char *rule, int code, const char *why)
{
    pi__config c = config(&rule, 1);
    pi__core *e;
    pi_error err = {0};
    assert_int_equal(pi__core_open(&e, &c, &err), code);
    if (!strstr(err.msg, why)) fail_msg("not \"%s\" but: %s", why, err.msg);
}

static void refusals(void **st)
{
    (void) st;
    static const char *const bad[] = {"", "x", "x=", "x=int", "x=int:", "=int:1", "x=int:1.5", "x=int:99999999999999999999",
                                      "x=float:", "x=float:nan", "x=float:1x", "x=bool:1", "x=bool:", "x=u32:1", "x:int=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(bad[i], PI_EINVAL, "expected KEY=int:N");
    refused("general.architecture=str:nothing", PI_EUNSUPPORTED, "nothing");
    refused("gemma3.block_count=float:3", PI_EINVAL, "override-kv: gemma3.block_count is f64 3");
    refused("gemma3.block_count=int:-1", PI_EINVAL, "override-kv: gemma3.block_count is i64 -1");
    refused("gemma3.block_count=str:three", PI_EINVAL, "is a string");
    refused("gemma3.block_count=int:4", PI_EFORMAT, "blk.3");
}

static void out_of_memory(void **st)
{
    (void) st;
    static counting_alloc a;
    const char *const rules[] = {"a=int:1", "general.name=str:x", "b=str:y"};
    pi__config c = config(rules, 3);
    c.rope_freq_base = 10;
    for (long i = 0;; i++) {
        pi_plan p = {.size = sizeof p};
        pi_error err = {0};
        counting_use(&a, i);
        int rc = pi__core_plan(&c, &p, &err);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        if (a.count <= i) {
            assert_int_equal(rc, PI_OK);
            assert_true(i > 10);
            break;
        }
        if (rc) assert_int_equal(rc, PI_ENOMEM);
    }
}

static int setup(void **st)
{
    (void) st;
    pi_error err;
    return tiny_write(tiny_path(path, "override"), NULL, &err);
}

static int teardown(void **st)
{
    (void) st;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_as_the_files), cmocka_unit_test(refusals),
                                       cmocka_unit_test(out_of_memory)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
