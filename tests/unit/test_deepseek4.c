/* DeepSeek V4 with all features, on a tiny random model. Logits are bitwise identical for every batch, step size and
 * cache state. Invalid files are refused with an error that names the fault. */
#include "model_jobs.h"

#include "open_oom.h"
#include "random_model.h"
#include "rounds.h"

enum { N_LAYERS = 4, N_EXPERTS = 5, N_USED = 2 }; /* sizes of the random model */
static char model_path[256], head_path[256], ds4_path[256];

static pi__config config(void)
{
    return (pi__config) {.model = model_path, .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 512, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 4096,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

static void test_same_bits(void **st)
{
    (void) st;
    static const int32_t types[] = {PI__F16, PI__F32, PI__Q4_0, PI__TQ4_0, PI__TQ3_0};
    static job want[N_JOBS], got[N_JOBS];
    for (int k = 0; k < (emulated() ? 1 : 5); k++) {
        pi__config c = config();
        c.type_k = types[k];
        jobs_fill(want);
        jobs_fill(got);
        jobs_run(&c, false, PI__LOGITS_GENERATED, want);
        for (int32_t ub = 1; ub <= 300; ub = ub * 6 + 1) {
            c.max_batch_tokens = ub;
            c.block_size = ub == 7 ? 32 : ub == 43 ? 64 : 16;
            c.params.cpu.n_threads = ub == 7 ? 3 : 1;
            jobs_run(&c, ub > 1, PI__LOGITS_GENERATED, got);
            jobs_check(got, want, "step budget", ub);
        }
    }
}

/* Scale factors of the output groups, one for all or one per group, are applied. Results are bitwise identical
 * whether few rows are one op or many rows are one product per group. */
static void test_group_factors(void **st)
{
    (void) st;
    static job plain[N_JOBS], want[N_JOBS], got[N_JOBS];
    char path[256];
    pi__config c = config();
    jobs_fill(plain);
    jobs_run(&c, false, PI__LOGITS_GENERATED, plain);
    c.model = tiny_path(path, "deepseek4-factors");
    for (const char *const *sizes = (const char *const[]) {"e=1", "e=2", NULL}; *sizes; sizes++) {
        pi_error err = {0};
        assert_int_equal(tiny_write(path, &(tiny_spec) {.arch = "deepseek4", .sizes = *sizes}, &err), PI_OK);
        jobs_fill(want);
        jobs_fill(got);
        c.max_batch_tokens = 64;
        jobs_run(&c, false, PI__LOGITS_GENERATED, want);
        c.max_batch_tokens = 7;
        jobs_run(&c, true, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, "factors, step budget", 7);
        for (int i = 0; i < N_JOBS; i++) assert_true(want[i].rows != plain[i].rows);
        memcpy(plain, want, sizeof plain);
    }
    unlink(path);
}

/* Cached prefixes end at multiples of 128. */
static void test_prefix(void **st)
{
    (void) st;
    static job want[N_JOBS], got[N_JOBS];
    pi__config c = config();
    jobs_fill(want);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    c.prefix_cache = true;
    for (int32_t bs = 16; bs <= 64; bs *= 2) {
        jobs_fill(got);
        c.block_size = bs;
        jobs_run(&c, true, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, "prefix, blocks of", bs);
        for (int i = 0; i < N_JOBS; i++) assert_int_equal(got[i].n_cached, want[i].n_prompt > 128 ? 128 : 0);
    }
}

/* A new engine finds prefixes of a previous engine on disk. */
static void test_disk(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static job want[N_JOBS], got[N_JOBS];
    char dir[300], command[320];
    snprintf(dir, sizeof dir, "%s.prefixes", model_path);
    pi__config c = config();
    jobs_fill(want);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    c.prefix_cache = true;
    c.prefix_dir = dir;
    c.prefix_dir_bytes = 64 << 20;
    for (int round = 0; round < 2; round++) {
        pi__core *e = job_core(&c);
        jobs_fill(got);
        job_submit(e, &got[N_JOBS - 1], PI__LOGITS_GENERATED, NULL);
        job_await(&got[N_JOBS - 1], PI_OK);
        pi__core_close(e);
        assert_int_equal(got[N_JOBS - 1].n_cached, round ? 128 : 0);
        assert_true(got[N_JOBS - 1].rows == want[N_JOBS - 1].rows);
    }
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void test_preemption(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static job want[N_JOBS], got[N_JOBS];
    pi__config c = config();
    jobs_fill(want);
    jobs_fill(got);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    c.max_batch_tokens = 512;
    c.kv_tokens = 6 * 128; /* enough for all prompts, not for the answers */
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

/* A draft head in its own file changes no result, for any acceptance of its drafts. */
static void test_drafts(void **st)
{
    (void) st;
    static job want[N_JOBS], got[N_JOBS];
    pi__config c = config();
    jobs_fill(want);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    for (int32_t n = 1; n <= 8; n *= crossed() ? 8 : 2) {
        c = config();
        c.draft_model = n == 2 ? ds4_path : head_path;
        c.n_draft = n;
        c.prefix_cache = n == 4;
        c.max_batch_tokens = n == 2 ? 16 : 64;
        jobs_fill(got);
        jobs_run(&c, n > 1, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, "drafts", n);
    }
    pi_plan plan = {.size = sizeof plan};
    pi_error err = {0};
    assert_int_equal(pi__core_plan(&c, &plan, &err), PI_OK);
    uint32_t of_head = 0; /* number of draft layers; the head's rows have their own group */
    for (uint32_t i = 0; i < plan.n_groups; i++)
        if (!strcmp(plan.group[i].name, "draft window")) of_head += plan.group[i].n_layers;
    assert_int_equal(of_head, 1);
    assert_int_equal(plan.group[0].n_layers, N_LAYERS);
}

/* Files without a draft head, and draft heads of another model, are refused. */
static void test_refused_heads(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const struct { const char *find; const char *why; } list[] = {
        {"blk.4.nextn.eh_proj.weight", "no draft head"}, {"blk.4.nextn.hnorm.weight", "nextn.hnorm.weight is missing"},
        {"blk.4.attn_sinks.weight", "blk.4.attn_sinks.weight is missing"},
        {"mtp.0.e_proj.weight", "no draft head"}, {"mtp.0.h_proj.weight", "mtp.0.h_proj.weight is missing"},
        {"mtp.0.hc_head_fn.weight", "mtp.0.hc_head_fn.weight is missing"},
        {"mtp.0.attn_output_a.weight", "mtp.0.attn_output_a.weight is missing"}};
    enum { N_BAD = sizeof list / sizeof *list };
    char bad[300];
    snprintf(bad, sizeof bad, "%s.bad", head_path);
    for (size_t i = 0; i <= N_BAD; i++) { /* the last iteration has no file */
        pi__config c = config();
        pi__core *e = NULL;
        pi_error err = {0};
        model_file f = model_read(i < 3 ? head_path : ds4_path);
        if (i < N_BAD) model_find(f, list[i].find)[0] = 'X';
        FILE *out = fopen(bad, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(f.p, 1, f.n, out), f.n);
        assert_int_equal(fclose(out), 0);
        free(f.p);
        c.n_draft = 2;
        if (i < N_BAD) c.draft_model = bad;
        else c.spec = PI__SPEC_MTP;
        assert_int_not_equal(pi__core_open(&e, &c, &err), PI_OK);
        if (!strstr(err.msg, i < N_BAD ? list[i].why : "a file of its own")) fail_msg("%s", err.msg);
        unlink(bad);
    }
}

/* The plan has one group per kind of cache; even a short context needs one block of entries. */
static void test_plan(void **st)
{
    (void) st;
    static const struct { const char *name; uint32_t window, block_size, n_layers; } want[] = {
        {"window", 24, 16, 4}, {"recent-4", 8, 16, 4}, {"compressed", 0, 128, 5}, {"recent-128", 128, 16, 1}};
    pi__config c = config();
    pi_plan plan = {.size = sizeof plan};
    pi_error err = {0};
    c.ctx_size = 64;
    c.kv_tokens = 0;
    assert_int_equal(pi__core_plan(&c, &plan, &err), PI_OK);
    assert_int_equal(plan.n_groups, 4);
    assert_int_equal(plan.kv_tokens, 128);
    for (int g = 0; g < 4; g++) {
        assert_string_equal(plan.group[g].name, want[g].name);
        assert_int_equal(plan.group[g].window, want[g].window);
        assert_int_equal(plan.group[g].block_size, want[g].block_size);
        assert_int_equal(plan.group[g].n_layers, want[g].n_layers);
    }
    /* 32 entries of both kinds in 2 layers, an entry in one, each of halves padded to 32 values. */
    assert_int_equal(plan.group[2].block_bytes, 2 * 32 * 2 * (64 + 32) + 2 * 64);
    c.kv_tokens = 64;
    assert_int_equal(pi__core_plan(&c, &plan, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "one block of 128"));
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
        {"attention.head_count_kv", 4, 2, "head_count_kv is 2"},
        {"attention.key_length", 4, 40, "key_length 40"},
        {"attention.value_length", 4, 32, "value_length 32"},
        {"attention.key_length", 4, 1024, "key_length is 1024"},
        {"rope.dimension_count", 4, 15, "dimension_count is 15"},
        {"rope.dimension_count", 4, 64, "dimension_count is 64"},
        {"attention.head_count", 4, 3, "head_count 3 is not a multiple of output_group_count 2"},
        {"attention.q_lora_rank", 4, 0, "q_lora_rank is 0"},
        {"attention.q_lora_rank", 4, 64, "blk.0.attn_q_a.weight"},
        {"attention.sliding_window", 4, 0, "sliding_window is 0"},
        {"attention.output_group_count", 4, 4, "blk.0.attn_output_a.weight"},
        {"attention.output_group_count", 4, 128, "output_group_count is 128"},
        {"attention.output_lora_rank", 4, 32, "blk.0.attn_output_a.weight"},
        {"attention.indexer.head_count", 4, 0, "indexer.head_count is 0"},
        {"attention.indexer.key_length", 4, 24, "indexer.key_length is 24"},
        {"attention.indexer.top_k", 4, 0, "top_k is 0"},
        {"expert_used_count", 4, 6, "expert_used_count 6"},
        {"expert_count", 4, 4, "blk.0.ffn_gate_inp.weight"},
        {"expert_gating_func", 4, 2, "expert_gating_func 2"},
        {"expert_shared_count", 4, 2, "expert_shared_count 2"},
        {"hash_layer_count", 4, 3, "blk.2.ffn_gate_tid2eid.weight"},
        {"hash_layer_count", 4, 1, "blk.1.exp_probs_b.bias"},
        {"hyper_connection.count", 4, 2, "hyper_connection.count is 2"},
        {"hyper_connection.sinkhorn_iterations", 4, 0, "sinkhorn_iterations is 0"},
        {"expert_feed_forward_length", 4, 64, "blk.0.ffn_gate_exps.weight"},
        {"block_count", 4, 5, "swiglu_clamp_exp"},
        {"block_count", 4, 6, "compress_ratios"},
        {"rope.freq_base", 4, 0, "rope.freq_base must be"}};
    pi__config c = config();
    models_refused(&c, "deepseek4.", list, sizeof list / sizeof *list);
}

static void test_refused_arrays(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const bad_value list[] = {
        {"attention.compress_ratios", 4, PI__GGUF_F32, "whole number for each of 4 layers"},
        {"attention.compress_ratios", 16, 8, "of layer 0 is 8"},
        {"attention.compress_ratios", 20, UINT32_MAX, "of layer 1 is -1"},
        {"attention.compress_ratios", 16, 4, "blk.0.attn_compressor_kv.weight"},
        {"attention.compress_ratios", 24, 4, "blk.2.attn_compressor_kv.weight"},
        {"swiglu_clamp_exp", 4, PI__GGUF_U32, "swiglu_clamp_exp needs a number for each of 4 layers"},
        {"swiglu_clamp_exp", 16, 0x7f800000, "swiglu_clamp_exp of layer 0 is not a finite"}};
    pi__config c = config();
    models_refused(&c, "deepseek4.", list, sizeof list / sizeof *list);
}

static void test_refused_tensors(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const char *const needed[] = {"output_norm.weight",
                                         "output_hc_fn.weight",
                                         "output_hc_scale.weight",
                                         "blk.0.hc_attn_base.weight",
                                         "blk.1.hc_ffn_fn.weight",
                                         "blk.0.attn_sinks.weight",
                                         "blk.3.attn_kv_a_norm.weight",
                                         "blk.1.attn_compressor_ape.weight",
                                         "blk.2.attn_compressor_norm.weight",
                                         "blk.3.indexer_compressor_gate.weight",
                                         "blk.1.indexer.proj.weight",
                                         "blk.1.ffn_gate_tid2eid.weight",
                                         "blk.2.exp_probs_b.bias",
                                         "blk.3.ffn_down_exps.weight",
                                         "blk.0.ffn_up_shexp.weight"};
    pi__config c = config();
    model_needs(&c, needed, sizeof needed / sizeof *needed);
}

/* An expert index out of range in the first table of experts is refused. */
static void test_refused_experts(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    uint64_t rng = 0;
    for (int32_t bad = -1; bad <= N_EXPERTS; bad += N_EXPERTS + 1) {
        model_file f = model_read(model_path);
        size_t run = 0, i = (size_t) (model_find(f, "output_norm.weight") - f.p) / 4 * 4; /* the last name */
        /* no other part of the file has a run of small numbers of this length */
        for (; i + 4 <= f.n && run < 4 * N_USED * 64; i += 4) {
            int32_t v;
            memcpy(&v, f.p + i, 4);
            run = v >= 0 && v < N_EXPERTS ? run + 4 : 0;
        }
        assert_true(run == 4 * N_USED * 64);
        memcpy(f.p + i - 4 * (1 + tiny_random(&rng) % 8), &bad, 4);
        assert_refused(f, "ffn_gate_tid2eid.weight: number");
        free(f.p);
    }
}

static int make_model(void **st)
{
    (void) st;
    pi_error err = {0};
    int rc = tiny_write(tiny_path(model_path, "deepseek4"), &(tiny_spec) {.arch = "deepseek4"}, &err);
    if (!rc) rc = tiny_write(tiny_path(head_path, "deepseek4-head"), &(tiny_spec) {.arch = "deepseek4-draft"}, &err);
    return rc ? rc : tiny_write(tiny_path(ds4_path, "deepseek4-ds4"), &(tiny_spec) {.arch = "deepseek4-mtp"}, &err);
}

static int remove_model(void **st)
{
    (void) st;
    return unlink(model_path) || unlink(head_path) || unlink(ds4_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_group_factors),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_all_rows),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_refused_numbers),
        cmocka_unit_test(test_refused_arrays),
        cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_refused_experts),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_refused_heads),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
