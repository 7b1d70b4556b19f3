/* Gemma 4 with all features, on a tiny random model. Logits are bitwise identical for every batch and step size.
 * Suppressed tokens are never generated. Invalid files are refused with an error that names the fault. */
#include <math.h>

#include "model_jobs.h"

#include "open_oom.h"
#include "random_model.h"
#include "rounds.h"

static char model_path[256];

static pi__config config(void)
{
    return (pi__config) {.model = model_path, .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 512, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 4096,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

static void test_same_bits(void **st)
{
    (void) st;
    static job want[N_JOBS], got[N_JOBS];
    pi__config c = config();
    jobs_fill(want);
    jobs_fill(got);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    for (int32_t ub = 1; ub <= 300; ub = ub * 6 + 1) {
        c = config();
        c.max_batch_tokens = ub;
        c.block_size = ub == 7 ? 32 : ub == 43 ? 64 : 16;
        c.params.cpu.n_threads = ub == 7 ? 3 : 1;
        jobs_run(&c, ub > 1, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, "step budget", ub);
    }
    c = config();
    c.prefix_cache = true;
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "prefix", 1);
    assert_true(got[N_JOBS - 1].n_cached >= 200);
    c = config();
    c.kv_tokens = 400; /* enough for all prompts, not for the answers */
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "preemption", 1);
    uint32_t preempted = 0;
    for (int i = 0; i < N_JOBS; i++) preempted += got[i].n_preempted;
    assert_true(preempted > 0);
}

static void test_all_rows(void **st)
{
    (void) st;
    jobs_all_rows(config());
}

/* A separate cache type for window layers changes only their blocks, and therefore the logits. */
static void test_window_type(void **st)
{
    (void) st;
    static job f16[N_JOBS], same[N_JOBS], mixed[N_JOBS];
    pi__config c[3] = {config(), config(), config()};
    pi_plan plan[3];
    pi_error err = {0};
    pi__cache_rules_add(&c[1].cache_types, PI__LAYERS_WINDOW, true, true, PI__F16);
    pi__cache_rules_add(&c[2].cache_types, PI__LAYERS_WINDOW, true, true, PI__Q8_0);
    for (int i = 0; i < 3; i++) {
        plan[i].size = sizeof plan[i];
        assert_int_equal(pi__core_plan(&c[i], &plan[i], &err), PI_OK);
        assert_int_equal(plan[i].n_groups, 2);
        plan[i].free_bytes = 0; /* other programs change it between two calls */
    }
    assert_memory_equal(&plan[0], &plan[1], sizeof plan[0]);
    for (int g = 0; g < 2; g++) {
        const bool less = plan[2].group[g].block_bytes < plan[0].group[g].block_bytes;
        assert_int_equal(less, plan[0].group[g].window > 0);
    }
    jobs_fill(f16), jobs_fill(same), jobs_fill(mixed);
    jobs_run(&c[0], true, PI__LOGITS_GENERATED, f16);
    jobs_run(&c[1], true, PI__LOGITS_GENERATED, same);
    jobs_run(&c[2], true, PI__LOGITS_GENERATED, mixed);
    jobs_check(same, f16, "f16 window", 1);
    for (int i = 0; i < N_JOBS; i++) assert_true(mixed[i].rows != f16[i].rows);
}

static void test_suppressed(void **st)
{
    (void) st;
    static const pi__logit_bias liked[3] = {{TINY_UNK, 1000}, {TINY_BYTE0, 1000}, {TINY_BYTE0 + 1, 1000}};
    pi__config c = config();
    pi__core *e = job_core(&c);
    for (int b = 0; b < 3; b++) {
        static job jobs[N_JOBS];
        jobs_fill(jobs);
        job_submit(e, &jobs[1], PI__LOGITS_NONE, &liked[b]);
        job_await(&jobs[1], PI_OK);
        for (int i = 0; i < N_GEN; i++) assert_int_equal(jobs[1].tokens[i] == liked[b].id, b == 2);
    }
    pi__core_close(e);
}

/* Opening with each allocation failing in turn returns an error and frees all memory. */
static void test_out_of_memory(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    pi__config c = config();
    c.params.cpu.n_threads = 1;
    assert_true(open_out_of_memory(&c) > 20);
}

/* ---- files that must be refused */

static void assert_refused(model_file f, const char *why)
{
    pi__config c = config();
    model_refused(&c, f, why);
}

static void test_refused_numbers(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const bad_value list[] = {
        {"attention.key_length", 4, 48, "key_length 48"},
        {"attention.value_length", 4, 32, "value_length 32"},
        {"attention.key_length_swa", 4, 16, "key_length_swa is 16"},
        {"rope.dimension_count", 4, 32, "dimension_count 32"},
        {"attention.head_count", 4, 3, "3 heads for 2"}, {"attention.head_count", 4, 0, "head_count is 0"},
        {"attention.shared_kv_layers", 4, 6, "shared_kv_layers is 6"},
        {"attention.shared_kv_layers", 4, 5, "shares the cache"},
        {"attention.sliding_window", 4, 0, "sliding_window is 0"},
        {"expert_used_count", 4, 6, "expert_used_count 6 is more"},
        {"expert_count", 4, 0, "blk.0.ffn_gate_inp.weight"},
        {"expert_count", 4, 4, "blk.0.ffn_gate_inp.weight"},
        {"expert_feed_forward_length", 4, 16, "blk.0.ffn_gate_exps.weight"},
        {"embedding_length_per_layer_input", 4, 64, "per_layer_token_embd.weight"}};
    pi__config c = config();
    models_refused(&c, "gemma4.", list, sizeof list / sizeof *list);
}

static void test_refused_arrays(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const bad_value list[] = {
        {"gemma4.attention.sliding_window_pattern", 4, PI__GGUF_U8, "bool for each layer"},
        {"gemma4.attention.head_count_kv", 16, 4, "blk.0.attn_qkv.weight"},
        {"gemma4.attention.head_count_kv", 20, 0, "of layer 1 is 0"},
        {"gemma4.attention.head_count_kv", 4, PI__GGUF_F32, "whole number"},
        {"gemma4.feed_forward_length", 36, 96, "blk.5.ffn_gate.weight"},
        {"gemma4.feed_forward_length", 36, UINT32_MAX, "of layer 5 is -1"},
        {"tokenizer.ggml.suppress_tokens", 16, TINY_VOCAB, "suppress_tokens has token"},
        {"tokenizer.ggml.suppress_tokens", 4, PI__GGUF_F32, "suppress_tokens is not"}};
    pi__config c = config();
    models_refused(&c, "", list, sizeof list / sizeof *list);
}

static void test_refused_tensors(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const char *const needed[] = {
        "rope_freqs.weight", "output_norm.weight", "per_layer_token_embd.weight", "per_layer_model_proj.weight",
        "blk.1.attn_v.weight", "blk.2.attn_k.weight", "blk.5.attn_q.weight", "blk.0.ffn_gate_inp.scale",
        "blk.1.ffn_down_exps.weight", "blk.2.ffn_up_exps.weight", "blk.3.post_norm.weight", "blk.4.inp_gate.weight"};
    pi__config c = config();
    model_needs(&c, needed, sizeof needed / sizeof *needed);
    /* Values: only the 32 rotation factors have 8 ones followed by 1e30. */
    float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1e30f}, bad = 0;
    for (int k = 0; k < 2; k++) {
        model_file f = model_read(model_path);
        size_t i = 0;
        while (i + sizeof ones < f.n && memcmp(f.p + i, ones, sizeof ones)) i++;
        assert_true(i + sizeof ones < f.n);
        bad = k ? NAN : 0;
        memcpy(f.p + i, &bad, 4);
        assert_refused(f, "rope_freqs.weight: value 0");
        memcpy(f.p + i, ones, 4);
        bad = INFINITY; /* the last value of the file, before its padding */
        i = f.n / 32 * 32;
        memcpy(f.p + (i == f.n ? f.n - 32 : i), &bad, 4);
        assert_refused(f, "blk.5.layer_output_scale.weight is not");
        free(f.p);
    }
}

static int make_model(void **st)
{
    (void) st;
    pi_error err = {0};
    return tiny_write(tiny_path(model_path, "gemma4"), &(tiny_spec) {.arch = "gemma4"}, &err);
}

static int remove_model(void **st)
{
    (void) st;
    return unlink(model_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),      cmocka_unit_test(test_all_rows),
        cmocka_unit_test(test_suppressed),     cmocka_unit_test(test_window_type),
        cmocka_unit_test(test_out_of_memory),  cmocka_unit_test(test_refused_numbers),
        cmocka_unit_test(test_refused_arrays), cmocka_unit_test(test_refused_tensors),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
