/* User-defined metadata overrides the file's and has the same effect. Invalid rules and unsuitable values are refused
 * with a reason. */
#include <math.h>

#include "counting_alloc.h"
#include "model/declare.h"
#include "model_jobs.h"

static char path[256];

static pi__config config(const char *const *rules, size_t n)
{
    return (pi__config) {.model = path, .max_batch_tokens = 64, .max_seqs = 2, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 64, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 512,
                         .override_kv = rules, .n_override_kv = n, .params.cpu = {.n_threads = 1}};
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
    const char *const other[] = {"gemma3.rope.freq_base=float:5e3", "gemma3.context_length=int:300",
                                 "general.name=str:my=own:"};
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
    c.rope.base = 5000;
    same_or_not(&c, false);
    c.rope.base = 1000000;
    same_or_not(&c, true);
}

/* Rope scaling by options equals rope scaling by metadata; with YaRN the model reports a longer training context. */
static void stretched(void **st)
{
    (void) st;
    const char *const linear[] = {"gemma3.rope.scaling.type=str:linear", "gemma3.rope.scaling.factor=float:4"};
    static job want[N_JOBS], got[N_JOBS];
    pi__config c = config(linear, 2);
    same_or_not(&c, false);
    jobs_fill(want), jobs_fill(got);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    c = config(NULL, 0);
    c.rope.scaling = PI__ROPE_LINEAR;
    c.rope.scale = 4;
    jobs_run(&c, false, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "linear", 0);
    c = config(linear, 2);
    c.rope.scaling = PI__ROPE_NONE;
    same_or_not(&c, true);

    c = config(NULL, 0);
    c.rope = (pi__rope_config) {.scaling = PI__ROPE_YARN, .scale = 4, .orig_ctx = 100};
    same_or_not(&c, false);
    pi__core *e = job_core(&c);
    pi_info i = {.size = sizeof i};
    pi__core_info(e, &i);
    assert_int_equal(i.n_ctx_train, 400);
    pi__core_close(e);
}

/* YaRN matches the paper's formula with Qwen 2.5's parameters: 128 values, base 1e6, 32,768 tokens, factor 4. */
static void yarn(void **st)
{
    (void) st;
    const char *const rules[] = {"gemma3.rope.scaling.type=str:yarn", "gemma3.rope.scaling.factor=float:4",
                                 "gemma3.rope.scaling.original_context_length=int:32768",
                                 "gemma3.rope.freq_base=float:1e6"};
    static const pi__arch gemma3 = {.name = "gemma3"};
    pi__gguf *g;
    float freq[64], mscale;
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_MMAP, NULL), PI_OK);
    pi__model m = {.arch = &gemma3, .g = g, .n_ctx_train = 1000};
    for (int k = 0; k < 4; k++) assert_int_equal(pi__gguf_override_kv(g, rules[k], NULL), PI_OK);
    mscale = pi__rope_freqs(&m, "rope.freq_base", 0, true, 128, freq);
    assert_true(pi__model_ok(&m));
    assert_true(fabs(mscale - (1 + 0.1 * log(4))) < 1e-6);
    for (int k = 0; k < 64; k++) {
        /* pairs 0 to 23 rotate 32 times and more, pairs from 40 on less than once */
        const double f = pow(1e6, -k / 64.0);
        const double r = k <= 23 ? 1 : k >= 40 ? 0 : 1 - (k - 23) / 17.0, want = r * f + (1 - r) * f / 4;
        if (!(fabs(freq[k] - want) <= 1e-6 * want)) fail_msg("pair %d: %g, expected %g", k, (double) freq[k], want);
    }
    pi__gguf_close(g);
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
    static const char *const bad[] = {"",         "x",           "x=",         "x=int",
                                      "x=int:",   "=int:1",      "x=int:1.5",  "x=int:99999999999999999999",
                                      "x=float:", "x=float:nan", "x=float:1x", "x=bool:1",
                                      "x=bool:",  "x=u32:1",     "x:int=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(bad[i], PI_EINVAL, "expected KEY=int:N");
    refused("general.architecture=str:nothing", PI_EUNSUPPORTED, "nothing");
    refused("gemma3.block_count=float:3", PI_EINVAL, "override-kv: gemma3.block_count is f64 3");
    refused("gemma3.block_count=int:-1", PI_EINVAL, "override-kv: gemma3.block_count is i64 -1");
    refused("gemma3.block_count=str:three", PI_EINVAL, "is a string");
    refused("gemma3.block_count=int:4", PI_EFORMAT, "blk.3");
    refused("gemma3.rope.scaling.type=str:longrope", PI_EUNSUPPORTED, "is not \"none\"");
    refused("gemma3.rope.scaling.factor=float:0", PI_EFORMAT, "positive");
    refused("gemma3.rope.freq_base=float:1", PI_EFORMAT, "above 1");
}

static void out_of_memory(void **st)
{
    (void) st;
    static counting_alloc a;
    const char *const rules[] = {"a=int:1", "general.name=str:x", "b=str:y"};
    pi__config c = config(rules, 3);
    c.rope.base = 10;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_as_the_files), cmocka_unit_test(stretched),
                                       cmocka_unit_test(yarn), cmocka_unit_test(refusals),
                                       cmocka_unit_test(out_of_memory)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
