/* Qwen 3.5, dense and with experts, and Qwen3-Next, on tiny random models. Logits are bitwise identical for every
 * batch, step size, preemption and reuse of snapshots. Invalid files are refused with an error that names the
 * fault. */
#include "model_jobs.h"
#include "random_model.h"
#include "rounds.h"

static char model_path[256];

static pi__config config(void)
{
    return (pi__config) {.model = model_path, .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 64, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 4096,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

static void same_in_any_cut(const job *want)
{
    static job got[N_JOBS];
    jobs_fill(got);
    for (int32_t ub = 1; ub <= 300; ub = ub * 6 + 1) {
        pi__config c = config();
        c.max_batch_tokens = ub;
        c.block_size = ub == 7 ? 32 : ub == 43 ? 64 : 16;
        c.params.cpu.n_threads = ub == 7 ? 3 : 1;
        jobs_run(&c, ub > 1, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, "step budget", ub);
    }
}

/* Another sequence is canceled in the middle of its prefill or decode, and its slot is reused. */
static void same_beside_cancelled(const job *want)
{
    static job got[N_JOBS], other[2];
    pi__config c = config();
    c.max_batch_tokens = 16;
    c.max_seqs = 3;
    jobs_fill(got);
    pi__core *e = job_core(&c);
    for (int i = 0; i < N_JOBS; i++) {
        other[i % 2] = got[4];
        job_submit(e, &other[i % 2], PI__LOGITS_NONE, NULL);
        job_submit(e, &got[i], PI__LOGITS_GENERATED, NULL);
        if (i % 2) usleep(500);
        pi__seq_cancel(e, other[i % 2].seq);
        job_await(&got[i], PI_OK);
        while (!atomic_load(&other[i % 2].done)) usleep(100);
        pi__seq_release(other[i % 2].seq);
    }
    pi__core_close(e);
    jobs_check(got, want, "beside cancelled ones", 1);
}

static void test_same_bits(void **st)
{
    static job want[N_JOBS], got[N_JOBS];
    (void) st;
    pi__config c = config();
    jobs_fill(want);
    jobs_fill(got);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    same_in_any_cut(want);
    same_beside_cancelled(want);
    c.prefix_cache = true;
    for (int together = 0; together < 2; together++) {
        jobs_run(&c, together, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, "from a snapshot", together);
        assert_true(got[N_JOBS - 1].n_cached >= 240);
    }
    c = config();
    c.kv_tokens = 400; /* enough for all prompts, not for the answers */
    for (int cache = 0; cache < 2; cache++) {
        uint32_t preempted = 0;
        c.prefix_cache = cache;
        jobs_run(&c, true, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, "preemption", cache);
        for (int i = 0; i < N_JOBS; i++) preempted += got[i].n_preempted;
        assert_true(preempted > 0 || cache);
    }
}

static void test_all_rows(void **st)
{
    (void) st;
    jobs_all_rows(config());
}

/* Scores another answer to the same prompt: the state before the first scored token comes from the first request's
 * snapshot. */
static void test_scoring(void **st)
{
    (void) st;
    static job one[N_JOBS], other[N_JOBS], cold[N_JOBS];
    pi__config c = config();
    c.prefix_cache = true;
    c.snapshot_interval = 4096;
    pi__core *e = job_core(&c);
    jobs_fill(one), jobs_fill(other), jobs_fill(cold);
    for (int32_t k = 140; k < 250; k++) other[4].prompt[k] = cold[4].prompt[k] = (k * 7) % TINY_VOCAB;
    one[4].logits_from = other[4].logits_from = cold[4].logits_from = 139;
    job_submit(e, &one[4], PI__LOGITS_ALL, NULL);
    job_await(&one[4], PI_OK);
    job_submit(e, &other[4], PI__LOGITS_ALL, NULL);
    job_await(&other[4], PI_OK);
    assert_int_equal(one[4].n_cached, 0);
    assert_int_equal(other[4].n_cached, 128);
    pi__core_close(e);
    c.prefix_cache = false;
    e = job_core(&c);
    job_submit(e, &cold[4], PI__LOGITS_ALL, NULL);
    job_await(&cold[4], PI_OK);
    assert_true(cold[4].rows == other[4].rows && cold[4].n_cached == 0);
    pi__core_close(e);
}

/* ---- files that must be refused */

static void assert_refused(model_file f, const char *why)
{
    pi__config c = config();
    model_refused(&c, f, why);
    free(f.p);
}

static void refuse_numbers(bool moe)
{
    static const bad_value both[] = {
        {"attention.key_length", 4, 48, "key_length 48"}, {"attention.value_length", 4, 64, "value_length 64"},
        {"attention.head_count", 4, 3, "head_count 3 is not a multiple"},
        {"attention.head_count_kv", 4, 0, "head_count_kv is 0"},
        {"rope.dimension_count", 4, 7, "dimension_count is 7"},
        {"rope.dimension_count", 4, 34, "dimension_count is 34"}, {"block_count", 4, 1, "leaves no layer"},
        {"block_count", 4, 7, "needs a bool for each"}, {"nextn_predict_layers", 4, 2, "nextn_predict_layers is 2"},
        {"ssm.state_size", 4, 16, "inner_size is 128"}, {"ssm.group_count", 4, 3, "not a multiple of group_count 3"},
        {"ssm.time_step_rank", 4, 2, "inner_size is 128"}, {"ssm.inner_size", 4, 64, "inner_size is 64"},
        {"ssm.conv_kernel", 4, 3, "ssm_conv1d.weight has shape [4, 256], expected [3, 256]"},
        {"ssm.conv_kernel", 4, 1, "conv_kernel is 1"}, {"embedding_length", 4, 32, "token_embd.weight has shape"}};
    static const bad_value dense[] = {
        {"feed_forward_length", 4, 64, "blk.0.ffn_gate.weight"},
        {"feed_forward_length", 4, 0, "feed_forward_length is 0"}};
    static const bad_value experts[] = {
        {"expert_count", 4, 5, "blk.0.ffn_gate_inp.weight"}, {"expert_count", 4, 0, "expert_count is 0"},
        {"expert_used_count", 4, 7, "expert_used_count 7 is more"},
        {"expert_used_count", 4, 0, "expert_used_count is 0"},
        {"expert_feed_forward_length", 4, 64, "blk.0.ffn_gate_exps.weight"},
        {"expert_shared_feed_forward_length", 4, 32, "blk.0.ffn_gate_shexp.weight"}};
    const char *prefix = moe ? "qwen35moe." : "qwen35.";
    pi__config c = config();
    models_refused(&c, prefix, both, sizeof both / sizeof *both);
    if (moe) models_refused(&c, prefix, experts, sizeof experts / sizeof *experts);
    else models_refused(&c, prefix, dense, sizeof dense / sizeof *dense);
}

static void test_refused(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const char *const needed[] = {
        "blk.0.attn_qkv.weight", "blk.0.attn_gate.weight", "blk.1.ssm_alpha.weight", "blk.1.ssm_beta.weight",
        "blk.3.ssm_conv1d.weight", "blk.3.ssm_dt.bias", "blk.0.ssm_a", "blk.1.ssm_norm.weight", "blk.3.ssm_out.weight",
        "blk.2.attn_q.weight", "blk.2.attn_k_norm.weight", "blk.2.post_attention_norm.weight", "output_norm.weight"};
    static const char *const needed_moe[] = {
        "blk.0.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight", "blk.2.ffn_gate_inp_shexp.weight",
        "blk.3.ffn_down_shexp.weight"};
    model_file f = model_read(model_path);
    bool moe = f.n > 0 && memmem(f.p, f.n, "qwen35moe", 9);
    free(f.p);
    refuse_numbers(moe);
    pi__config c = config();
    model_needs(&c, needed, sizeof needed / sizeof *needed);
    if (moe) model_needs(&c, needed_moe, sizeof needed_moe / sizeof *needed_moe);
    uint32_t type = PI__GGUF_U8;
    f = model_read(model_path);
    memcpy(model_find(f, "attention.recurrent_layers") + strlen("attention.recurrent_layers") + 4, &type, 4);
    assert_refused(f, "needs a bool for each layer");
    f = model_read(model_path);
    model_find(f, "blk.0.attn_norm.weight")[0] = 'X';
    assert_refused(f, "only a draft head");
}

/* Without the array, every fourth layer has attention, which does not match the file's tensors. */
static void test_interval(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    model_file f = model_read(model_path);
    model_find(f, "recurrent_layers")[0] = 'X';
    assert_refused(f, "blk.2.attn_qkv.weight");
}

static int make_dense(void **st)
{
    (void) st;
    pi_error err = {0};
    return tiny_write(tiny_path(model_path, "qwen35"), &(tiny_spec) {.arch = "qwen35"}, &err);
}

static int make_experts(void **st)
{
    (void) st;
    pi_error err = {0};
    return tiny_write(tiny_path(model_path, "qwen35"), &(tiny_spec) {.arch = "qwen35moe"}, &err);
}

static void test_next_refused(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const char *const needed[] = {"blk.0.ssm_in.weight", "blk.1.ssm_ba.weight", "blk.3.ssm_dt.bias",
                                         "blk.3.ssm_out.weight"};
    static const bad_value numbers[] = {{"ssm.time_step_rank", 4, 2, "inner_size is 128"},
                                        {"ssm.conv_kernel", 4, 9, "channels with 9 taps are more"}};
    pi__config c = config();
    /* without ssm_in, the loader looks for separate queries, keys and values */
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        model_file f = model_read(model_path);
        model_find(f, needed[i])[0] = 'X';
        assert_refused(f, i ? needed[i] : "blk.0.attn_qkv.weight");
    }
    models_refused(&c, "qwen3next.", numbers, sizeof numbers / sizeof *numbers);
}

static int make_next(void **st)
{
    (void) st;
    pi_error err = {0};
    return tiny_write(tiny_path(model_path, "qwen35"), &(tiny_spec) {.arch = "qwen3next-whole"}, &err);
}

static int remove_model(void **st)
{
    (void) st;
    return unlink(model_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_all_rows), cmocka_unit_test(test_scoring),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_interval),
    };
    const struct CMUnitTest next[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_next_refused)};
    int dense = cmocka_run_group_tests_name("dense", tests, make_dense, remove_model);
    dense += cmocka_run_group_tests_name("next", next, make_next, remove_model);
    return cmocka_run_group_tests_name("experts", tests, make_experts, remove_model) + dense;
}
