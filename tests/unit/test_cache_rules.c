/* Rules for cache types: parsing, precedence, errors. In an engine: each layer's blocks have the layer's own types,
 * results are the same in every batch, and a directory with other types is a miss. */
#include "model_jobs.h"

#include "formats/cache_types.h"
#include "model/cache_rules.h"
#include "random_model.h"
#include "rounds.h"

static pi__cache_rules parsed(const char *text)
{
    pi__cache_rules r = {.n = 0};
    pi_error err = {0};
    if (pi__cache_rules_parse(&r, text, &err)) fail_msg("%s: %s", text, err.msg);
    return r;
}

static void expect_types(const pi__cache_rules *r, int32_t layer, bool window, int32_t k, int32_t v)
{
    assert_int_equal(pi__cache_rules_type(r, layer, 18, window, false), k);
    assert_int_equal(pi__cache_rules_type(r, layer, 18, window, true), v);
}

static void test_first_decides(void **state)
{
    (void) state;
    pi__cache_rules r = parsed("L0-1:f16,full.k:q8_0,full.v:TQ3_0,window:q4_0,*:f32");
    expect_types(&r, 0, true, PI__F16, PI__F16);
    expect_types(&r, 1, false, PI__F16, PI__F16);
    expect_types(&r, 2, false, PI__Q8_0, PI__TQ3_0);
    expect_types(&r, 2, true, PI__Q4_0, PI__Q4_0);
    r = parsed("first2.v:bf16,last3:tq4_0,l7.K:q5_1");
    expect_types(&r, 0, true, -1, PI__BF16);
    expect_types(&r, 1, true, -1, PI__BF16);
    expect_types(&r, 2, true, -1, -1);
    expect_types(&r, 7, true, PI__Q5_1, -1);
    expect_types(&r, 14, true, -1, -1);
    expect_types(&r, 15, true, PI__TQ4_0, PI__TQ4_0);
    expect_types(&r, 17, false, PI__TQ4_0, PI__TQ4_0);
    r = parsed("");
    expect_types(&r, 0, false, -1, -1);
    pi__cache_rules_add(&r, PI__LAYERS_WINDOW, true, false, PI__Q8_0);
    expect_types(&r, 0, true, PI__Q8_0, -1);
    expect_types(&r, 0, false, -1, -1);
}

static void refused(const char *text, const char *part)
{
    pi__cache_rules r = {.n = 0};
    pi_error err = {0};
    assert_int_equal(pi__cache_rules_parse(&r, text, &err), PI_EINVAL);
    if (!strstr(err.msg, part)) fail_msg("'%s': '%s', without '%s'", text, err.msg, part);
}

static void test_refused(void **state)
{
    (void) state;
    refused("f16", "character 1: 'f16' is not a rule: give WHICH:TYPE");
    refused("*:f16,L:q8_0", "character 7: 'L:q8_0' is not a rule");
    refused("*:f16,L3-1:q8_0", "character 7");
    refused("first0:f16", "character 1");
    refused("last:f16", "character 1");
    refused("L99999999999:f16", "character 1");
    refused(".k:f16", "character 1");
    refused("full.x:f16", "character 1");
    refused(",*:f16", "character 1: '' is not a rule");
    refused("*:f16,", "ends with a comma");
    refused("*:f16,full.v:q9", "character 14: 'q9' is not a cache type: give one of f32|f16");
    refused("*:q4_k", "'q4_k' is not a cache type");
    refused("*:", "character 3: '' is not a cache type");
    char many[65 * 6 + 1] = "";
    for (int i = 0; i < 65; i++) strcat(many, i ? ",*:f16" : "*:f16");
    refused(many, "more than 64 rules");
}

static void test_layers_there(void **state)
{
    (void) state;
    pi_error err = {0};
    pi__cache_rules r = parsed("L0-17:f16,last18:f16,window:f16");
    assert_int_equal(pi__cache_rules_check(&r, 18, &err), PI_OK);
    assert_int_equal(pi__cache_rules_check(&r, 17, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "character 1: the layer is out of range: give one of the model's 17, L0 to L16"));
    r = parsed("*:f16,last3:q8_0");
    assert_int_equal(pi__cache_rules_check(&r, 2, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "character 7"));
}

/* ---- engines */

static char path[256];

static pi__config config(const char *rules)
{
    return (pi__config) {.model = path, .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 512, .cache_types = parsed(rules), .type_k = PI__F16, .type_v = PI__F16,
                         .kv_tokens = 4096, .params.cpu = {.n_threads = 2, .poll = 1}};
}

/* Returns the bytes per token over all layers, from the plan. */
static uint64_t token_bytes(const char *rules)
{
    pi__config c = config(rules);
    pi_plan p = {.size = sizeof p};
    pi_error err = {0};
    uint64_t n = 0;
    if (pi__core_plan(&c, &p, &err)) fail_msg("%s: %s", rules, err.msg);
    for (uint32_t g = 0; g < p.n_groups; g++) n += p.group[g].block_bytes / p.group[g].block_size;
    return n;
}

static void test_plan(void **state)
{
    (void) state;
    const uint64_t f16 = token_bytes("");
    assert_int_equal(token_bytes("*:tq4_0"), f16 * 9 / 32); /* 4.5 and 3.5 of 16 bits */
    assert_int_equal(token_bytes("*:tq3_0"), f16 * 7 / 32);
    assert_int_equal(token_bytes("*.k:q8_0,*.v:tq3_0"), f16 * (17 + 7) / 64);
    const uint64_t first = token_bytes("L0:tq4_0"), others = token_bytes("L0:f16,*:tq4_0");
    assert_true(first < f16 && others < f16);
    assert_int_equal(first + others, f16 + token_bytes("*:tq4_0"));
    pi__config c = config("L90:f16");
    pi_plan p = {.size = sizeof p};
    pi_error err = {0};
    assert_int_equal(pi__core_plan(&c, &p, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "the layer is out of range"));
}

/* Rotated and mixed types give the same bits for any schedule of requests, with prefixes and preemption. */
static void test_same_bits(void **state)
{
    (void) state;
    static const char *const rules[] = {"*:tq4_0", "*:tq3_0", "L0:f32,full.k:q8_0,*.k:tq4_0,*.v:tq3_0"};
    static job want[N_JOBS], got[N_JOBS];
    uint64_t last = 0;
    for (int i = emulated() ? 2 : 0; i < 3; i++) {
        pi__config c = config(rules[i]);
        jobs_fill(want);
        jobs_fill(got);
        jobs_run(&c, false, PI__LOGITS_GENERATED, want);
        assert_true(want[0].rows != last);
        last = want[0].rows;
        c.max_batch_tokens = 7;
        c.block_size = 32;
        c.params.cpu.n_threads = 3;
        jobs_run(&c, true, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, rules[i], 7);
        c = config(rules[i]);
        c.prefix_cache = true;
        jobs_run(&c, true, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, rules[i], 1);
        assert_true(got[N_JOBS - 1].n_cached >= 200);
        c = config(rules[i]);
        c.kv_tokens = 400; /* enough for all prompts, not for the answers */
        jobs_run(&c, true, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, rules[i], 0);
        c = config(rules[i]);
        c.device = "cpu,cpu";
        c.tensor = true;
        jobs_run(&c, true, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, rules[i], 2);
    }
}

/* Returns the number of prompt tokens that a new engine loads from the disk cache. */
static int32_t found(const char *dir, const char *rules)
{
    static job jobs[N_JOBS];
    pi__config c = config(rules);
    c.prefix_cache = true;
    c.prefix_dir = dir;
    c.prefix_dir_bytes = 64 << 20;
    jobs_fill(jobs);
    pi__core *e = job_core(&c);
    job_submit(e, &jobs[N_JOBS - 1], PI__LOGITS_GENERATED, NULL);
    job_await(&jobs[N_JOBS - 1], PI_OK);
    pi__core_close(e);
    return (int32_t) jobs[N_JOBS - 1].n_cached;
}

/* Blocks of equal size are a miss if their types differ, or if layers have each other's types. */
static void test_disk(void **state)
{
    (void) state;
    char dir[300], command[320];
    snprintf(dir, sizeof dir, "%s.prefixes", path);
    assert_int_equal(found(dir, "L0:tq4_0,*:tq3_0"), 0);
    assert_true(found(dir, "L0:tq4_0,*:tq3_0") >= 200);
    assert_true(found(dir, "first1:tq4_0,L0:f16,window:tq3_0,*:tq3_0") >= 200); /* equivalent rules */
    assert_int_equal(found(dir, "L0:q4_0,*:tq3_0"), 0);
    assert_int_equal(found(dir, "L1:tq4_0,*:tq3_0"), 0);
    assert_int_equal(found(dir, "L0.k:tq3_0,L1.k:tq4_0,L0:tq4_0,*:tq3_0"), 0);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
    (void) state;
    pi_error err;
    return tiny_write(tiny_path(path, "gemma2"), &(tiny_spec) {.arch = "gemma2"}, &err);
}

static int teardown(void **state)
{
    (void) state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_decides), cmocka_unit_test(test_refused), cmocka_unit_test(test_layers_there),
        cmocka_unit_test(test_plan),          cmocka_unit_test(test_same_bits), cmocka_unit_test(test_disk),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
