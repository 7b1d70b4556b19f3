/* Dense transformers of every architecture, as tiny random models. Logits are bitwise identical for every batch, step
 * size, preemption and cache state. Invalid files are refused with an error that names the fault.
 * tests/scripts/check_reference.py compares results with transformers. */
#include "model_jobs.h"

#include "model/model.h"
#include "open_oom.h"
#include "random_model.h"
#include "rounds.h"

static const char *const archs[] = {
    "gemma2",       "llama2",     "llama3",     "llama-bias", "mistral",        "mixtral",      "qwen2",      "qwen3",
    "qwen3moe",     "phi3",       "phi3-short", "mistral3",   "gpt-oss",        "glm4moe",      "minimax-m2", "granite",
    "granite-nope", "granitemoe", "deepseek3",  "deepseek2",  "deepseek2-lite", "deepseek2-old", "smollm3", "seed_oss",
    "olmo2", "olmo3", "exaone4", "exaone4-large", "glm4", "ernie4_5", "ernie4_5-moe", "hunyuan-dense", "hunyuan-moe",
    "dots1", "bailingmoe2", "qwen2moe", "arcee", "apertus", "starcoder2", "command-r", "cohere2", "minicpm", "mellum",
    "qwen2vl", "qwen3vl", "qwen3vlmoe", "granitehybrid", "granitehybrid-dense", "nemotron_h", "nemotron_h_moe",
    "nemotron_h_moe-latent", "falcon-h1", "falcon-h1-norm", "mamba2", "falcon-mamba", "jamba", "lfm2", "lfm2moe",
    "mistral4", "deepseek32", "glm-dsa", "phimoe", "granite_swa-moe", "afmoe", "laguna",
    "step35", "mimo2", "mimo2-stacked", "kimi-linear", "bailingmoe3", "nanbeige", "muse-glimmer",
    "plamo3", "gemma", "olmoe", "nemotron", "exaone-moe", "stablelm",
    "pangu-embedded"};
enum { N_ARCHS = sizeof archs / sizeof *archs };
static char path[N_ARCHS][256];

static pi__config config(int arch)
{
    return (pi__config) {.model = path[arch], .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 16, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 4096,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

/* Returns the number of preemptions with a cache that is too small for all requests. */
static uint32_t same_bits(int arch)
{
    static job want[N_JOBS], got[N_JOBS];
    pi__config c = config(arch);
    jobs_fill(want);
    jobs_fill(got);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    for (int32_t ub = 7; ub <= 300; ub = ub * 6 + 1) {
        c = config(arch);
        c.max_batch_tokens = ub;
        c.block_size = ub == 7 ? 32 : 64;
        c.params.cpu.n_threads = ub == 7 ? 3 : 1;
        jobs_run(&c, true, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, archs[arch], ub);
    }
    c = config(arch);
    c.prefix_cache = true;
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, archs[arch], 1);
    assert_true(got[N_JOBS - 1].n_cached >= 200);
    c = config(arch);
    c.kv_tokens = 400; /* enough for all prompts, not for the answers */
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, archs[arch], 0);
    uint32_t preempted = 0;
    for (int i = 0; i < N_JOBS; i++) preempted += got[i].n_preempted;
    return preempted;
}

static void test_same_bits(void **st)
{
    (void) st;
    for (int i = 0; i < N_ARCHS; i++) {
        if (emulated() && i % 12) continue;
        const uint32_t preempted = same_bits(i);
        /* if all layers have a window, or none has a cache, the cache is large enough and no request is preempted */
        const bool fits = !strcmp(archs[i], "mistral") || !strcmp(archs[i], "phi3") || !strcmp(archs[i], "mamba2") ||
                          !strcmp(archs[i], "falcon-mamba");
        assert_true(preempted > 0 || fits);
        jobs_all_rows(config(i));
    }
}

static int arch_of(const char *name)
{
    int i = 0;
    while (strcmp(archs[i], name)) i++;
    return i;
}

/* A scale factor of the matrix that computes keys and values of all heads applies to both. */
static void test_latent_factor(void **st)
{
    (void) st;
    static job plain[N_JOBS], scaled[N_JOBS];
    char file[256];
    pi_error err = {0};
    pi__config c = config(arch_of("deepseek2-old"));
    jobs_fill(plain);
    jobs_fill(scaled);
    jobs_run(&c, false, PI__LOGITS_GENERATED, plain);
    c.model = tiny_path(file, "latent-factor");
    assert_int_equal(tiny_write(file, &(tiny_spec) {.arch = "deepseek2-old", .sizes = "e=1"}, &err), PI_OK);
    jobs_run(&c, false, PI__LOGITS_GENERATED, scaled);
    for (int i = 0; i < N_JOBS; i++) assert_true(scaled[i].rows != plain[i].rows);
    unlink(file);
}

/* Opening with each allocation failing in turn returns an error and frees all memory. */
static void test_out_of_memory(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    for (int i = 0; i < N_ARCHS; i++) {
        pi__config c = config(i);
        c.params.cpu.n_threads = 1;
        assert_true(open_out_of_memory(&c) > 20);
    }
}

static void test_refused_numbers(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const bad_value llama[] = {{"attention.head_count", 4, 0, "head_count is 0"},
                                      {"attention.head_count", 4, 3, "multiple of 16"},
                                      {"attention.head_count", 4, 8, "key_length 16"},
                                      {"attention.head_count", 4, 4096, "key_length is 0"},
                                      {"attention.head_count_kv", 4, 3, "not a multiple of head_count_kv 3"},
                                      {"rope.dimension_count", 4, 7, "dimension_count is 7"},
                                      {"rope.dimension_count", 4, 34, "dimension_count is 34"},
                                      {"feed_forward_length", 4, 64, "blk.0.ffn_gate.weight"},
                                      {"block_count", 4, 4, "blk.3.attn_norm.weight is missing"},
                                      {"rope.freq_base", 4, 0, "must be above 1"},
                                      {"attention.layer_norm_rms_epsilon", 4, 0x7fc00000, "finite"}};
    static const bad_value experts[] = {{"expert_count", 4, 5, "blk.0.ffn_gate_inp.weight"},
                                        {"expert_used_count", 4, 5, "expert_used_count 5 is more"},
                                        {"expert_used_count", 4, 0, "expert_used_count is 0"},
                                        {"expert_count", 4, 0, "blk.0.ffn_gate.weight is missing"}};
    static const bad_value gemma2[] = {{"attention.sliding_window", 4, 0, "sliding_window is 0"},
                                       {"attn_logit_softcapping", 4, 0x7f800000, "finite"}};
    static const bad_value oss[] = {{"expert_count", 4, 0, "expert_count is 0"},
                                    {"expert_feed_forward_length", 4, 32, "blk.0.ffn_gate_exps.weight"},
                                    {"expert_used_count", 4, 7, "expert_used_count 7 is more"}};
    static const bad_value glm[] = {{"expert_gating_func", 4, 1, "expert_gating_func is not 2"},
                                    {"leading_dense_block_count", 4, 0, "blk.0.ffn_gate_inp.weight"},
                                    {"leading_dense_block_count", 4, 2, "blk.1.ffn_gate.weight"},
                                    {"expert_shared_count", 4, 2, "blk.1.ffn_gate_shexp.weight"},
                                    {"expert_shared_count", 4, 0, "with this tensor"},
                                    {"nextn_predict_layers", 4, 4, "nextn_predict_layers is 4"}};
    pi__config c = config(arch_of("llama3")), moe = config(arch_of("mixtral")), g = config(arch_of("gemma2"));
    pi__config gpt = config(arch_of("gpt-oss")), chat = config(arch_of("glm4moe"));
    models_refused(&gpt, "gpt-oss.", oss, sizeof oss / sizeof *oss);
    models_refused(&chat, "glm4moe.", glm, sizeof glm / sizeof *glm);
    static const bad_value minimax[] = {
        {"expert_gating_func", 4, 1, "expert_gating_func is not 2"}, {"expert_count", 4, 0, "expert_count is 0"},
        {"expert_feed_forward_length", 4, 32, "blk.0.ffn_gate_exps.weight"},
        {"attention.head_count", 4, 4, "blk.0.attn_q.weight"}};
    static const bad_value granite[] = {
        {"residual_scale", 4, 0, "residual_scale is 0"}, {"logit_scale", 4, 0xbf800000, "logit_scale is -1"},
        {"embedding_scale", 4, 0x7f800000, "finite"}, {"embedding_scale", 4, 0x7e967699, "embedding_scale is 1e+38"},
        {"expert_shared_feed_forward_length", 4, 64, "blk.0.ffn_gate_shexp.weight"}};
    pi__config mm = config(arch_of("minimax-m2")), gr = config(arch_of("granitemoe"));
    models_refused(&mm, "minimax-m2.", minimax, sizeof minimax / sizeof *minimax);
    models_refused(&gr, "granitemoe.", granite, sizeof granite / sizeof *granite);
    static const bad_value latent[] = {{"attention.kv_lora_rank", 4, 72, "only multiples of 16"},
                                       {"attention.kv_lora_rank", 4, 1024, "expected 16 to"},
                                       {"attention.kv_lora_rank", 4, 576, "rows of more than 576"},
                                       {"attention.q_lora_rank", 4, 32, "blk.0.attn_q_a.weight"},
                                       {"attention.key_length_mla", 4, 16, "only multiples of 16"},
                                       {"attention.key_length_mla", 4, 8, "only multiples of 16"},
                                       {"attention.value_length_mla", 4, 0, "only multiples of 16"},
                                       {"rope.dimension_count", 4, 15, "only multiples of 16"},
                                       {"attention.head_count", 4, 2, "blk.0.attn_q_b.weight"},
                                       {"expert_gating_func", 4, 3, "expert_gating_func is 3"},
                                       {"expert_group_count", 4, 3, "8 experts in 3 groups"},
                                       {"expert_group_used_count", 4, 1, "fewer than 3 experts"},
                                       {"expert_group_used_count", 4, 5, "fewer than 3 experts"},
                                       {"expert_group_count", 4, 65, "expected 0 to 64"},
                                       {"expert_shared_count", 4, 2, "blk.1.ffn_gate_shexp.weight"},
                                       {"leading_dense_block_count", 4, 0, "blk.0.ffn_gate_inp.weight"}};
    pi__config d3 = config(arch_of("deepseek3"));
    models_refused(&d3, "deepseek2.", latent, sizeof latent / sizeof *latent);
    static const bad_value ernie[] = {{"interleave_moe_layer_step", 4, 0, "interleave_moe_layer_step is 0"},
                                      {"interleave_moe_layer_step", 4, 1, "blk.2.ffn_gate_inp.weight"},
                                      {"expert_shared_feed_forward_length", 4, 64, "blk.1.ffn_gate_shexp.weight"},
                                      {"leading_dense_block_count", 4, 5, "leading_dense_block_count is 5"}};
    static const bad_value olmo[] = {{"rope.scaling.yarn_attn_factor", 4, 0, "yarn_attn_factor must be positive"},
                                     {"rope.scaling.factor", 4, 0, "must be positive"}};
    static const bad_value dots[] = {{"expert_gating_func", 4, 3, "expert_gating_func is 3, expected 1 (softmax)"},
                                     {"expert_gating_func", 4, 0, "expert_gating_func is 0"},
                                     {"expert_group_count", 4, 3, "8 experts in 3 groups"},
                                     {"expert_shared_count", 4, 2, "blk.1.ffn_gate_shexp.weight"}};
    static const bad_value cohere[] = {{"attention.sliding_window", 4, 0, "sliding_window is 0"},
                                       {"attention.layer_norm_epsilon", 4, 0x7fc00000, "finite"}};
    static const bad_value shared[] = {{"expert_shared_feed_forward_length", 4, 64, "blk.0.ffn_gate_shexp.weight"},
                                       {"expert_feed_forward_length", 4, 32, "blk.0.ffn_gate_exps.weight"}};
    static const bad_value lfm2[] = {{"shortconv.l_cache", 4, 1, "l_cache is 1"},
                                     {"shortconv.l_cache", 4, 9, "expected 2 to 8"},
                                     {"shortconv.l_cache", 4, 4, "blk.0.shortconv.conv.weight"},
                                     {"leading_dense_block_count", 4, 1, "blk.1.ffn_gate_inp.weight"}};
    static const bad_value glm5[] = {{"attention.indexer.key_length", 4, 8, "key_length is 8"},
                                     {"attention.indexer.key_length", 4, 40, "expected a multiple of 16"},
                                     {"attention.indexer.top_k", 4, 0, "top_k is 0"},
                                     {"attention.indexer.head_count", 4, 3, "blk.0.indexer.attn_q_b.weight"}};
    static const bad_value small4[] = {{"expert_group_count", 4, 2, "groups are not supported"}};
    static const bad_value mini[] = {{"residual_scale", 4, 0, "minicpm.residual_scale is 0"}};
    static const bad_value laguna[] = {
        {"rope.scaling.yarn_attn_factor", 4, 0, "yarn_attn_factor must be positive"},
        {"rope.dimension_count_swa", 4, 34, "dimension_count_swa is 34"},
        {"expert_shared_feed_forward_length", 4, 64, "blk.1.ffn_gate_shexp.weight"},
        {"attention.head_count_kv", 4, 4, "head_count 6 is not a multiple of head_count_kv 4"}};
    static const bad_value mimo[] = {{"attention.value_scale", 4, 0xbf800000, "value_scale is -1"},
                                     {"attention.value_length", 4, 80, "must be equal"},
                                     {"attention.value_length", 4, 16, "blk.0.attn_v.weight"},
                                     {"attention.sliding_window", 4, 0, "sliding_window is 0"}};
    static const bad_value phimoe[] = {{"expert_used_count", 4, 9, "expert_used_count 9 is more"},
                                       {"attention.layer_norm_rms_epsilon", 4, 0x7fc00000, "finite"}};
    pi__config la = config(arch_of("laguna")), mi = config(arch_of("mimo2")), ph = config(arch_of("phimoe"));
    models_refused(&la, "laguna.", laguna, sizeof laguna / sizeof *laguna);
    models_refused(&mi, "mimo2.", mimo, sizeof mimo / sizeof *mimo);
    models_refused(&ph, "phimoe.", phimoe, sizeof phimoe / sizeof *phimoe);
    pi__config er = config(arch_of("ernie4_5-moe")), ol = config(arch_of("olmo3")), li = config(arch_of("bailingmoe2"));
    pi__config co = config(arch_of("cohere2")), qm = config(arch_of("qwen2moe")), mc = config(arch_of("minicpm"));
    pi__config lf = config(arch_of("lfm2moe")), g5 = config(arch_of("glm-dsa")), m4 = config(arch_of("mistral4"));
    models_refused(&lf, "lfm2moe.", lfm2, sizeof lfm2 / sizeof *lfm2);
    models_refused(&g5, "glm-dsa.", glm5, sizeof glm5 / sizeof *glm5);
    models_refused(&m4, "mistral4.", small4, sizeof small4 / sizeof *small4);
    models_refused(&er, "ernie4_5-moe.", ernie, sizeof ernie / sizeof *ernie);
    models_refused(&ol, "olmo2.", olmo, sizeof olmo / sizeof *olmo);
    models_refused(&li, "bailingmoe2.", dots, sizeof dots / sizeof *dots);
    models_refused(&co, "cohere2.", cohere, sizeof cohere / sizeof *cohere);
    models_refused(&qm, "qwen2moe.", shared, sizeof shared / sizeof *shared);
    models_refused(&mc, "minicpm.", mini, sizeof mini / sizeof *mini);
    models_refused(&c, "llama.", llama, sizeof llama / sizeof *llama);
    models_refused(&moe, "llama.", experts, sizeof experts / sizeof *experts);
    models_refused(&g, "gemma2.", gemma2, sizeof gemma2 / sizeof *gemma2);
}

/* Models with Mamba-2 mixers or Kimi delta attention: shapes that no kernel has, layers of different sizes, missing
 * tensors. */
static void test_refused_hybrids(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const bad_value granite[] = {{"ssm.state_size", 4, 100, "state_size 100 must be a multiple of 32"},
                                        {"ssm.state_size", 4, 512, "up to 256"},
                                        {"ssm.group_count", 4, 4, "time_step_rank 6 is not a multiple of group_count"},
                                        {"ssm.time_step_rank", 4, 7, "inner_size 192 is not a multiple"},
                                        {"ssm.inner_size", 4, 96, "blk.0.ssm_in.weight"},
                                        {"ssm.conv_kernel", 4, 9, "9 taps are more than"},
                                        {"ssm.conv_kernel", 4, 1, "conv_kernel is 1"},
                                        {"attention.head_count_kv", 16, 1, "blk.0.attn_q.weight is missing"},
                                        {"attention.head_count_kv", 16, 3, "is 1 in layer 1 and 3 in an earlier"}};
    static const bad_value nemotron[] = {{"feed_forward_length", 24, 96, "layer 2 has attention"},
                                         {"feed_forward_length", 16, 96, "blk.0.ffn_up.weight is missing"}};
    static const bad_value mamba[] = {{"feed_forward_length", 4, 64, "feed_forward_length 64, expected 0"},
                                      {"attention.head_count", 4, 4, "attention.head_count_kv is missing"}};
    static const bad_value first[] = {{"ssm.inner_size", 4, 200, "inner_size 200 must be a multiple of 16"},
                                      {"ssm.state_size", 4, 24, "state_size 24 must be 16, 32, 48 or 64"},
                                      {"ssm.state_size", 4, 32, "blk.0.ssm_x.weight has shape"},
                                      {"ssm.conv_kernel", 4, 9, "conv_kernel is 9"},
                                      {"ssm.time_step_rank", 4, 0, "time_step_rank is 0"},
                                      {"attention.head_count_kv", 24, 0, "is 0 in all layers"}};
    static const char *const selective[] = {"blk.0.ssm_x.weight", "blk.1.ssm_dt.bias", "blk.3.ssm_b_norm.weight",
                                            "blk.0.ssm_a", "blk.3.ffn_up_exps.weight"};
    pi__config ja = config(arch_of("jamba"));
    models_refused(&ja, "jamba.", first, sizeof first / sizeof *first);
    model_needs(&ja, selective, sizeof selective / sizeof *selective);
    static const bad_value loops[] = {{"num_loops", 4, 0, "num_loops is 0"},
                                      {"num_loops", 4, 513, "513 runs of 2 layers"}};
    pi__config na = config(arch_of("nanbeige"));
    models_refused(&na, "nanbeige.", loops, sizeof loops / sizeof *loops);
    static const char *const mixer[] = {"blk.0.ssm_in.weight", "blk.0.ssm_norm.weight", "blk.0.ssm_dt.bias",
                                        "blk.2.ssm_out.weight", "blk.2.ssm_conv1d.weight"};
    static const char *const latent[] = {"blk.1.ffn_latent_up.weight", "blk.4.exp_probs_b.bias",
                                         "blk.1.ffn_up_exps.weight"};
    static const bad_value kimi[] = {{"kda.head_dim", 4, 48, "kda.head_dim is 48, expected a multiple of 32"},
                                     {"kda.head_dim", 4, 64, "blk.0.attn_q.weight"},
                                     {"ssm.conv_kernel", 4, 9, "conv_kernel is 9"},
                                     {"ssm.conv_kernel", 4, 3, "blk.0.ssm_conv1d_q.weight has shape"},
                                     {"attention.head_count_kv", 24, 0, "is 0 in all layers"}};
    static const bad_value ling[] = {{"kda.gate_lower_bound", 4, 0, "gate_lower_bound is 0, expected -100 to 0"},
                                     {"kda.safe_gate", 1, 0, "safe_gate is false, expected true"},
                                     {"swiglu_clamp_exp", 16, 0xbf800000, "swiglu_clamp_exp of layer 0 is -1"}};
    static const char *const delta[] = {"blk.0.ssm_conv1d_k.weight", "blk.0.ssm_dt.bias", "blk.1.ssm_a",
                                        "blk.0.ssm_g_a.weight", "blk.1.ssm_beta.weight", "blk.3.ssm_norm.weight"};
    static const char *const gates[] = {"blk.3.attn_gate.weight", "blk.0.ssm_f_a.weight"};
    pi__config ki = config(arch_of("kimi-linear")), li = config(arch_of("bailingmoe3"));
    models_refused(&ki, "kimi-linear.", kimi, sizeof kimi / sizeof *kimi);
    models_refused(&li, "bailingmoe3.", ling, sizeof ling / sizeof *ling);
    model_needs(&ki, delta, sizeof delta / sizeof *delta);
    model_needs(&li, gates, sizeof gates / sizeof *gates);
    pi__config gr = config(arch_of("granitehybrid")), ne = config(arch_of("nemotron_h"));
    pi__config la = config(arch_of("nemotron_h_moe-latent")), ma = config(arch_of("mamba2"));
    models_refused(&gr, "granitehybrid.", granite, sizeof granite / sizeof *granite);
    models_refused(&ne, "nemotron_h.", nemotron, sizeof nemotron / sizeof *nemotron);
    models_refused(&ma, "mamba2.", mamba, sizeof mamba / sizeof *mamba);
    model_needs(&gr, mixer, sizeof mixer / sizeof *mixer);
    model_needs(&la, latent, sizeof latent / sizeof *latent);
}

/* The list of architectures has the names that their metadata keys start with. */
static void test_names(void **st)
{
    (void) st;
    const char *name = NULL;
    size_t n = 0;
    for (const pi__arch *a; (a = pi__arch_at(n, &name)) != NULL; n++) assert_string_equal(a->name, name);
    assert_true(n > 40);
}

static void test_refused_tensors(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static const char *const llama[] = {"blk.0.attn_norm.weight", "blk.2.attn_q.weight", "blk.1.attn_k.weight",
                                        "blk.1.attn_v.weight", "blk.0.attn_output.weight", "blk.2.ffn_norm.weight",
                                        "blk.0.ffn_up.weight", "blk.2.ffn_down.weight", "output_norm.weight"};
    static const char *const qwen2[] = {"blk.0.attn_q.bias", "blk.1.attn_k.bias", "blk.2.attn_v.bias"};
    static const char *const qwen3[] = {"blk.0.attn_q_norm.weight", "blk.2.attn_k_norm.weight"};
    static const char *const gemma2[] = {"blk.0.post_attention_norm.weight", "blk.3.post_ffw_norm.weight"};
    static const char *const oss[] = {
        "blk.0.attn_sinks.weight", "blk.1.attn_output.bias", "blk.2.attn_k.bias", "blk.3.post_attention_norm.weight",
        "blk.0.ffn_gate_inp.bias", "blk.1.ffn_gate_exps.bias", "blk.2.ffn_up_exps.bias", "blk.3.ffn_down_exps.bias"};
    static const char *const glm[] = {"blk.1.exp_probs_b.bias", "blk.2.ffn_up_shexp.weight", "blk.0.ffn_down.weight",
                                      "blk.2.attn_q_norm.weight"};
    static const char *const minimax[] = {"blk.0.attn_q_norm.weight", "blk.1.attn_k_norm.weight",
                                          "blk.2.exp_probs_b.bias"};
    static const char *const granite[] = {"output_norm.weight", "blk.1.ffn_down_shexp.weight",
                                          "blk.0.ffn_gate_inp.weight"};
    static const char *const latent[] = {
        "blk.0.attn_q_a.weight",      "blk.0.attn_q_a_norm.weight",  "blk.1.attn_q_b.weight",
        "blk.2.attn_kv_a_mqa.weight", "blk.0.attn_kv_a_norm.weight", "blk.1.attn_v_b.weight",
        "blk.2.attn_k_b.weight",      "blk.1.exp_probs_b.bias",      "blk.2.ffn_down_shexp.weight"};
    static const char *const lfm2[] = {"blk.0.shortconv.in_proj.weight", "blk.1.shortconv.conv.weight",
                                       "blk.3.shortconv.out_proj.weight", "blk.2.attn_q_norm.weight",
                                       "token_embd_norm.weight", "blk.4.exp_probs_b.bias"};
    static const char *const glm5[] = {"blk.0.indexer.attn_k.weight", "blk.2.indexer.attn_q_b.weight",
                                       "blk.2.indexer.proj.weight", "blk.0.indexer.k_norm.bias"};
    pi__config lf = config(arch_of("lfm2moe")), g5 = config(arch_of("glm-dsa"));
    model_needs(&lf, lfm2, sizeof lfm2 / sizeof *lfm2);
    model_needs(&g5, glm5, sizeof glm5 / sizeof *glm5);
    pi__config d3 = config(arch_of("deepseek3"));
    model_needs(&d3, latent, sizeof latent / sizeof *latent);
    pi__config mm = config(arch_of("minimax-m2")), gr = config(arch_of("granitemoe"));
    model_needs(&mm, minimax, sizeof minimax / sizeof *minimax);
    model_needs(&gr, granite, sizeof granite / sizeof *granite);
    pi__config c[4] = {config(arch_of("llama3")), config(arch_of("qwen2")), config(arch_of("qwen3")),
                       config(arch_of("gemma2"))};
    static const char *const star[] = {"blk.0.attn_output.bias", "blk.1.attn_q.bias", "blk.2.ffn_up.weight"};
    static const char *const apertus[] = {"blk.0.attn_q_norm.weight", "blk.1.ffn_up.weight", "xielu.alpha_n"};
    static const char *const olmo[] = {"blk.0.attn_q_norm.weight", "blk.1.post_attention_norm.weight",
                                       "blk.2.post_ffw_norm.weight"};
    static const char *const shared[] = {"blk.0.ffn_gate_inp_shexp.weight", "blk.1.ffn_up_shexp.weight"};
    static const char *const cohere[] = {"blk.3.attn_norm.weight", "cohere2.attention.sliding_window"};
    static const char *const plamo[] = {"blk.0.attn_output.weight", "blk.1.post_attention_norm", "blk.3.post_ffw_norm"};
    static const char *const exaone[] = {"blk.1.exp_probs_b.bias", "blk.2.ffn_up_shexp.weight",
                                         "blk.3.attn_k_norm.weight"};
    static const char *const stable[] = {"blk.1.ffn_norm.weight", "blk.2.ffn_gate.weight"};
    pi__config pl = config(arch_of("plamo3")), ex = config(arch_of("exaone-moe")), sl = config(arch_of("stablelm"));
    model_needs(&pl, plamo, sizeof plamo / sizeof *plamo);
    model_needs(&ex, exaone, sizeof exaone / sizeof *exaone);
    model_needs(&sl, stable, sizeof stable / sizeof *stable);
    pi__config sc = config(arch_of("starcoder2")), ap = config(arch_of("apertus")), ol = config(arch_of("olmo2"));
    pi__config qm = config(arch_of("qwen2moe")), co = config(arch_of("cohere2"));
    model_needs(&sc, star, sizeof star / sizeof *star);
    model_needs(&ap, apertus, sizeof apertus / sizeof *apertus);
    model_needs(&ol, olmo, sizeof olmo / sizeof *olmo);
    model_needs(&qm, shared, sizeof shared / sizeof *shared);
    model_needs(&co, cohere, sizeof cohere / sizeof *cohere);
    static const char *const phimoe[] = {"output.bias", "blk.1.attn_output.bias", "blk.2.attn_q.bias"};
    static const char *const afmoe[] = {"blk.1.attn_gate.weight", "blk.2.exp_probs_b.bias",
                                        "blk.3.post_ffw_norm.weight"};
    static const char *const step[] = {"blk.1.attn_gate.weight", "blk.2.ffn_up_shexp.weight"};
    static const char *const mimo[] = {"blk.1.attn_sinks.weight", "mimo2.attention.sliding_window_pattern"};
    static const char *const swa[] = {"blk.0.attn_sinks.weight", "blk.1.ffn_up_shexp.weight",
                                      "blk.2.ffn_down_exps.weight"};
    pi__config ph = config(arch_of("phimoe")), af = config(arch_of("afmoe")), st35 = config(arch_of("step35"));
    pi__config mi = config(arch_of("mimo2")), sw = config(arch_of("granite_swa-moe"));
    model_needs(&ph, phimoe, sizeof phimoe / sizeof *phimoe);
    model_needs(&af, afmoe, sizeof afmoe / sizeof *afmoe);
    model_needs(&st35, step, sizeof step / sizeof *step);
    model_needs(&mi, mimo, sizeof mimo / sizeof *mimo);
    model_needs(&sw, swa, sizeof swa / sizeof *swa);
    pi__config gpt = config(arch_of("gpt-oss")), chat = config(arch_of("glm4moe"));
    model_needs(&gpt, oss, sizeof oss / sizeof *oss);
    model_needs(&chat, glm, sizeof glm / sizeof *glm);
    model_needs(&c[0], llama, sizeof llama / sizeof *llama);
    model_needs(&c[1], qwen2, sizeof qwen2 / sizeof *qwen2);
    model_needs(&c[2], qwen3, sizeof qwen3 / sizeof *qwen3);
    model_needs(&c[3], gemma2, sizeof gemma2 / sizeof *gemma2);
    /* A bias that no layer adds is an error: the file may lack the output matrix, but not have an unused output
     * bias. */
    model_file f = model_read(c[0].model);
    memcpy(model_find(f, "output.weight"), "xoutput1.bias", strlen("output.weight"));
    model_refused(&c[0], f, "tensor xoutput1.bias");
    free(f.p);
}

/* Rotation factors that are not positive numbers are detected when they are loaded. */
static void test_refused_factors(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    pi__config c = config(arch_of("llama3"));
    pi__gguf *g;
    pi_error err = {0};
    assert_int_equal(pi__gguf_open(&g, c.model, PI__LOAD_MMAP, &err), PI_OK);
    const pi__tensor *t = pi__gguf_find_tensor(g, "rope_freqs.weight");
    assert_non_null(t);
    float first[4];
    memcpy(first, pi__gguf_tensor_data(g, t), sizeof first);
    pi__gguf_close(g);
    model_file f = model_read(c.model);
    char *at = memmem(f.p, f.n, first, sizeof first);
    assert_non_null(at);
    memset(at, 0, sizeof(float));
    model_refused(&c, f, "rope_freqs.weight: value 0 is 0");
    free(f.p);
}

static int setup(void **st)
{
    (void) st;
    pi_error err;
    int rc = 0;
    for (int i = 0; i < N_ARCHS && !rc; i++)
        rc = tiny_write(tiny_path(path[i], archs[i]), &(tiny_spec) {.arch = archs[i]}, &err);
    return rc;
}

static int teardown(void **st)
{
    (void) st;
    for (int i = 0; i < N_ARCHS; i++) unlink(path[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),       cmocka_unit_test(test_out_of_memory),
                                       cmocka_unit_test(test_refused_numbers), cmocka_unit_test(test_refused_hybrids),
                                       cmocka_unit_test(test_refused_tensors), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_refused_factors), cmocka_unit_test(test_latent_factor)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
