/* The random models. An architecture is one row of the table at the end, plus its special keys and tensors.
 *
 * To add a dense architecture, add a row based on dense_keys and dense_layer, and the few keys that only it has. */
#include "random_rows.h"

#include <math.h>

enum {
    M = TINY_OPEN,
    B = TINY_BIAS,
    F32 = PI__F32,
    F16 = PI__F16,
    Q8 = PI__Q8_0,
    U8 = PI__GGUF_BOOL,
    I32 = PI__GGUF_I32
};

#define NUM(when, name, size) {when, name, PI__GGUF_U32, size, 0, NULL}
#define REAL(name, value) {"", name, PI__GGUF_F32, NULL, value, NULL}
#define TEXT(name, text) {"", name, PI__GGUF_STR, NULL, 0, text}
#define LIST(name, type, size, array) {"", name, type, size, 0, array}
#define T(when, name, type, shape) {when, name, type, shape, NULL}

/* ---- dense: attention and a gated feed-forward in every layer */

static const tiny_key dense_keys[] = {TEXT("general.name", "tiny"),
                                      NUM("", "block_count", "L"),
                                      NUM("", "context_length", "C"),
                                      NUM("", "embedding_length", "E"),
                                      NUM("", "feed_forward_length", "F"),
                                      NUM("", "attention.head_count", "H"),
                                      NUM("", "attention.head_count_kv", "G"),
                                      NUM("k", "attention.key_length", "D"),
                                      NUM("k", "attention.value_length", "D"),
                                      NUM("W", "attention.sliding_window", "W"),
                                      NUM("P", "attention.sliding_window_pattern", "P"),
                                      NUM("X", "expert_count", "X"),
                                      NUM("X", "expert_used_count", "2"),
                                      {0}};

/* Frequency divisors of Llama 3's rope scaling: factor 8 over a context of 256, theta 500000. */
static double llama3_factor(const int64_t *v, uint64_t *rng, int64_t i)
{
    (void) rng;
    const double wave = 2 * 3.14159265358979323846 * pow(5e5, 2.0 * (double) i / (double) v['D']);
    const double smooth = (256 / wave - 1) / (4 - 1);
    return wave < 64 ? 1 : wave > 256 ? 8 : 1 / ((1 - smooth) / 8 + smooth);
}

/* Per-row factors of matrix outputs; the factors do not consume random numbers. */
static double tiny_factor(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) v, (void) rng, 0.75 + 0.5 * (double) i;
}

/* Factors of LongRoPE. */
static double long_factor(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) v, (void) rng, 1 + 0.25 * (double) i;
}
static double short_factor(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) v, (void) rng, 1 + 0.03125 * (double) i;
}

/* Biases of the experts' gate and up; some exceed the activation limit. */
static double oss_bias(const int64_t *v, uint64_t *rng, int64_t i)
{
    (void) v;
    return ((double) tiny_random(rng) / 2147483648.0 - 0.5) * (i % 5 ? 1 : 20);
}

static const tiny_tensor dense_head[] = {
    T("", "token_embd.weight", M, "E V"), T("", "output_norm.weight", F32, "E"), T("u", "output.weight", M, "E V"),
    T("e", "output_norm.bias", B, "E"),
    T("Xe", "output.bias", B, "V"),
    {"r", "rope_freqs.weight", F32, "R", llama3_factor}, {"l", "rope_factors_long.weight", F32, "R", long_factor},
    {"l", "rope_factors_short.weight", F32, "R", short_factor}, T("a", "dense_2.weight", M, "E 2E"),
    T("a", "dense_3.weight", M, "2E E"), {0}};
static const tiny_tensor dense_layer[] = {T("!m", "attn_norm.weight", F32, "E"),
                                          T("e", "attn_norm.bias", B, "E"),
                                          T("f", "attn_qkv.weight", M, "E HD+2GD"),
                                          T("fb", "attn_qkv.bias", B, "HD+2GD"),
                                          T("!f", "attn_q.weight", M, "E HD"),
                                          T("b!f", "attn_q.bias", B, "HD"),
                                          T("!f", "attn_k.weight", M, "E GD"),
                                          T("b!f", "attn_k.bias", B, "GD"),
                                          T("!f", "attn_v.weight", M, "E GD"),
                                          T("b!f", "attn_v.bias", B, "GD"),
                                          T("n", "attn_q_norm.weight", F32, "D"),
                                          T("n", "attn_k_norm.weight", F32, "D"),
                                          T("w", "attn_q_norm.weight", F32, "HD"),
                                          T("w", "attn_k_norm.weight", F32, "GD"),
                                          T("wX!K", "exp_probs_b.bias", B, "X"),
                                          T("", "attn_output.weight", M, "HD E"),
                                          T("p!K", "post_attention_norm.weight", F32, "E"),
                                          T("pK", "post_attention_norm", F32, "E"),
                                          T("!h!m!i", "ffn_norm.weight", F32, "E"),
                                          T("e", "ffn_norm.bias", B, "E"),
                                          T("X", "ffn_gate_inp.weight", F32, "E X"),
                                          T("X!c", "ffn_gate_exps.weight", M, "E F X"),
                                          T("X!c", "ffn_up_exps.weight", M, "E F X"),
                                          T("Xc", "ffn_gate_up_exps.weight", M, "E 2F X"),
                                          T("X", "ffn_down_exps.weight", M, "F E X"),
                                          T("!X!c!d", "ffn_gate.weight", M, "E F"),
                                          T("!X!c", "ffn_up.weight", M, "E F"),
                                          T("c!X", "ffn_up.weight", M, "E 2F"),
                                          T("!X", "ffn_down.weight", M, "F E"),
                                          T("p!K", "post_ffw_norm.weight", F32, "E"),
                                          T("pK", "post_ffw_norm", F32, "E"),
                                          T("h", "post_attention_norm.weight", F32, "E"),
                                          T("e!K", "attn_output.bias", B, "E"),
                                          T("bK!e", "attn_output.bias", B, "E"),
                                          T("e!X!K", "ffn_up.bias", B, "F"),
                                          T("e!X!K", "ffn_down.bias", B, "E"),
                                          T("tX", "exp_probs_b.bias", B, "X"),
                                          T("gX", "ffn_gate_inp_shexp.weight", F32, "E"),
                                          T("TX", "ffn_gate_shexp.weight", M, "E Z"),
                                          T("TX", "ffn_up_shexp.weight", M, "E Z"),
                                          T("TX", "ffn_down_shexp.weight", M, "Z E"),
                                          T("o", "attn_output.bias", B, "E"),
                                          T("o", "attn_sinks.weight", B, "H"),
                                          T("SQ", "attn_sinks.weight", B, "H"),
                                          T("o", "ffn_gate_inp.bias", B, "X"),
                                          {"o", "ffn_gate_exps.bias", F32, "F X", oss_bias},
                                          {"o", "ffn_up_exps.bias", F32, "F X", oss_bias},
                                          {"o", "ffn_down_exps.bias", F32, "E X", oss_bias},
                                          T("s", "exp_probs_b.bias", B, "X"),
                                          T("Z!Y!c", "ffn_gate_shexp.weight", M, "E Z"),
                                          T("Z!Y!c", "ffn_up_shexp.weight", M, "E Z"),
                                          T("Z!Yc", "ffn_up_shexp.weight", M, "E 2Z"),
                                          T("Z!Y", "ffn_down_shexp.weight", M, "Z E"),
                                          T("s", "ffn_gate_shexp.weight", M, "E F"),
                                          T("s", "ffn_up_shexp.weight", M, "E F"),
                                          T("s", "ffn_down_shexp.weight", M, "F E"),
                                          T("z", "nextn.eh_proj.weight", M, "2E E"),
                                          T("z", "nextn.enorm.weight", F32, "E"),
                                          T("z", "nextn.hnorm.weight", F32, "E"),
                                          T("z", "nextn.shared_head_norm.weight", F32, "E"),
                                          {0}};

static const tiny_key gemma3_keys[] = {
    REAL("attention.layer_norm_rms_epsilon", 1e-6f), REAL("rope.freq_base", 1e6f), {0}};
static const tiny_key embedding_keys[] = {
    REAL("attention.layer_norm_rms_epsilon", 1e-6f), REAL("rope.freq_base", 1e6f), NUM("!j", "pooling_type", "1"), {0}};
static const tiny_key qwen3moe_keys[] = {REAL("attention.layer_norm_rms_epsilon", 1e-6f),
                                         REAL("rope.freq_base", 1e6f),
                                         NUM("", "expert_feed_forward_length", "F"),
                                         {0}};
/* VL models: sections of M-RoPE for 16 pairs, DeepStack rows in y layers */
static const int32_t vl_sections[4] = {6, 5, 5, 0};
static const tiny_key vl_keys[] = {
    REAL("attention.layer_norm_rms_epsilon", 1e-6f), REAL("rope.freq_base", 1e4f),
    LIST("rope.dimension_sections", I32, "4", vl_sections), NUM("y", "n_deepstack_layers", "y"),
    NUM("X", "expert_feed_forward_length", "F"), {0}};
static const tiny_key oss_keys[] = {REAL("attention.layer_norm_rms_epsilon", 1e-5f),
                                    REAL("rope.freq_base", 1.5e5f),
                                    NUM("", "expert_feed_forward_length", "F"),
                                    TEXT("rope.scaling.type", "yarn"),
                                    REAL("rope.scaling.factor", 32),
                                    NUM("", "rope.scaling.original_context_length", "64"),
                                    {0}};
static void glm_per_layer(int64_t *v, int32_t i)
{
    v['X'] = i ? v['Y'] : 0, v['F'] = i ? v['Z'] : 96, v['s'] = i > 0, v['z'] = v['N'] && i == v['L'] - 1;
}
static const tiny_key glm4moe_keys[] = {
    REAL("attention.layer_norm_rms_epsilon", 1e-5f), REAL("rope.freq_base", 1e6f), NUM("", "rope.dimension_count", "R"),
    NUM("", "expert_count", "Y"), NUM("", "expert_used_count", "3"), NUM("", "expert_feed_forward_length", "Z"),
    NUM("", "expert_shared_count", "1"), NUM("", "leading_dense_block_count", "1"), NUM("", "expert_gating_func", "2"),
    {"", "expert_weights_norm", PI__GGUF_BOOL, "1", 0, NULL}, REAL("expert_weights_scale", 1.5f),
    NUM("N", "nextn_predict_layers", "N"), {0}};
static const tiny_key minimax_keys[] = {
    REAL("attention.layer_norm_rms_epsilon", 1e-6f), REAL("rope.freq_base", 5e6f), NUM("", "rope.dimension_count", "R"),
    NUM("", "expert_feed_forward_length", "F"), NUM("", "expert_gating_func", "2"), {0}};
static const uint8_t last_three[4] = {0, 1, 1, 1}, but_third[4] = {1, 1, 0, 1};
/* Granite's multipliers, chosen so that layer outputs are not small relative to the embeddings. v: no rotation. Z: F
 * of the shared expert. Q: windows in all layers but the first. S: sinks, and the third layer has no RoPE. */
static const tiny_key granite_keys[] = {
    REAL("attention.layer_norm_rms_epsilon", 1e-3f), REAL("rope.freq_base", 1e4f), NUM("", "rope.dimension_count", "D"),
    REAL("attention.scale", 0.3f), REAL("embedding_scale", 3), REAL("residual_scale", 0.6f), REAL("logit_scale", 1.5f),
    {"v", "rope.scaling.finetuned", U8, "0", 0, NULL}, NUM("Z", "expert_shared_feed_forward_length", "Z"),
    {"Q", "attention.sliding_window_pattern", U8, "L", 0, last_three},
    {"S", "attention.rope_pattern", U8, "L", 0, but_third},
    {0}};
/* Keys of many dense architectures. I LayerNorms; A F of an expert, M F of the other layers, Y experts; B leading
 * layers without experts, S every S-th later layer has experts; Z F of a shared expert, U number of shared experts in
 * the metadata; K groups of experts, J selected ones; Q windows in all layers but the fourth; O YaRN with this original
 * context; N a RoPE base for windows; x sigmoid gates; T a shared expert. */
static const uint8_t three_of_four[4] = {1, 1, 1, 0};
static const tiny_key shelf_keys[] = {
    {"!I", "attention.layer_norm_rms_epsilon", PI__GGUF_F32, NULL, 1e-5f, NULL},
    {"I", "attention.layer_norm_epsilon", PI__GGUF_F32, NULL, 1e-5f, NULL},
    REAL("rope.freq_base", 1e4f),
    NUM("R", "rope.dimension_count", "R"),
    NUM("Y", "expert_count", "Y"),
    NUM("Y", "expert_used_count", "3"),
    NUM("A", "expert_feed_forward_length", "A"),
    NUM("T", "expert_shared_feed_forward_length", "Z"),
    NUM("U", "expert_shared_count", "U"),
    NUM("B", "leading_dense_block_count", "B"),
    NUM("S", "interleave_moe_layer_step", "S"),
    NUM("K", "expert_group_count", "K"),
    NUM("K", "expert_group_used_count", "J"),
    NUM("x", "expert_gating_func", "2"),
    {"x", "expert_weights_norm", PI__GGUF_BOOL, "1", 0, NULL},
    {"x", "expert_weights_scale", PI__GGUF_F32, NULL, 1.5f, NULL},
    {"Q", "attention.sliding_window_pattern", U8, "L", 0, three_of_four},
    {"N", "rope.freq_base_swa", PI__GGUF_F32, NULL, 1e3f, NULL},
    {"O", "rope.scaling.type", PI__GGUF_STR, NULL, 0, "yarn"},
    {"O", "rope.scaling.factor", PI__GGUF_F32, NULL, 8, NULL},
    NUM("O", "rope.scaling.original_context_length", "O"),
    {"O", "rope.scaling.yarn_attn_factor", PI__GGUF_F32, NULL, 1.2079441541679836f, NULL},
    {"O", "rope.scaling.yarn_beta_fast", PI__GGUF_F32, NULL, 32, NULL},
    {"O", "rope.scaling.yarn_beta_slow", PI__GGUF_F32, NULL, 1, NULL},
    {0}};
static void shelf_per_layer(int64_t *v, int32_t i)
{
    const bool routed = v['Y'] && i >= v['B'] && (!v['S'] || (i + 1) % v['S'] == 0);
    v['X'] = routed ? v['Y'] : 0, v['F'] = routed ? v['A'] : v['M'];
}
static const tiny_key cohere_keys[] = {REAL("attention.layer_norm_epsilon", 1e-5f), REAL("rope.freq_base", 1e4f),
                                       NUM("W", "rope.dimension_count", "D"), REAL("logit_scale", 0.25f),
                                       TEXT("rope.scaling.type", "none"), {0}};
static const float xielu[4][2] = {{0.3f, 0.9f}, {-0.4f, 0.2f}, {0.5f, 0.5f}, {-1e-6f, -1e-6f}};
static const tiny_key apertus_keys[] = {
    REAL("attention.layer_norm_rms_epsilon", 1e-5f), REAL("rope.freq_base", 1e4f), NUM("", "rope.dimension_count", "D"),
    LIST("xielu.alpha_p", PI__GGUF_F32, "L", xielu[0]), LIST("xielu.alpha_n", PI__GGUF_F32, "L", xielu[1]),
    LIST("xielu.beta", PI__GGUF_F32, "L", xielu[2]), LIST("xielu.eps", PI__GGUF_F32, "L", xielu[3]), {0}};
static const tiny_key phi3_keys[] = {REAL("attention.layer_norm_rms_epsilon", 1e-5f),
                                     REAL("rope.freq_base", 1e4f),
                                     NUM("", "rope.dimension_count", "2R"),
                                     NUM("l", "rope.scaling.original_context_length", "O"),
                                     {"l", "rope.scaling.attn_factor", PI__GGUF_F32, NULL, 1.1875f, NULL},
                                     {0}};
static const tiny_key phimoe_keys[] = {REAL("attention.layer_norm_rms_epsilon", 1e-5f), REAL("rope.freq_base", 1e4f),
                                       NUM("", "rope.dimension_count", "D"),
                                       NUM("", "rope.scaling.original_context_length", "O"),
                                       REAL("rope.scaling.attn_factor", 1), {0}};
static const tiny_key mistral3_keys[] = { /* original context of O positions; the tests use longer texts */
                                         REAL("attention.layer_norm_rms_epsilon", 1e-5f),
                                         REAL("rope.freq_base", 1e6f),
                                         NUM("", "rope.dimension_count", "D"),
                                         TEXT("rope.scaling.type", "yarn"),
                                         REAL("rope.scaling.factor", 16),
                                         NUM("", "rope.scaling.original_context_length", "O"),
                                         REAL("rope.scaling.yarn_beta_fast", 32),
                                         REAL("rope.scaling.yarn_beta_slow", 1),
                                         REAL("rope.scaling.yarn_log_multiplier", 1),
                                         REAL("attention.temperature_scale", 0.25f),
                                         {0}};
static const tiny_key gemma2_keys[] = { /* no rotation base; caps low enough that small logits reach them */
    REAL("attention.layer_norm_rms_epsilon", 1e-6f), REAL("attn_logit_softcapping", 1),
    REAL("final_logit_softcapping", 2), {0}};
static const tiny_key llama_keys[] = {
    NUM("", "vocab_size", "V"), NUM("", "rope.dimension_count", "D"), REAL("attention.layer_norm_rms_epsilon", 1e-5f),
    REAL("rope.freq_base", 1e4f), {0}};
static const tiny_key llama3_keys[] = {
    NUM("", "vocab_size", "V"), NUM("", "rope.dimension_count", "D"), REAL("attention.layer_norm_rms_epsilon", 1e-5f),
    REAL("rope.freq_base", 5e5f), {0}};

/* ---- bert: biases for all matrices (b) and a position table. nomic-bert: rotation and gates (f). jina-bert-v3: b, f,
 * and r for the rotation. A is the number of token types. nomic-bert-moe: also X experts in each second layer (x).
 * jina-bert-v2: b, and l for ALiBi and gates; for code also c; s: gate and up are one matrix. */

static const tiny_key bert_keys[] = {TEXT("general.name", "tiny"),
                                     NUM("", "block_count", "L"),
                                     NUM("", "context_length", "C"),
                                     NUM("", "embedding_length", "E"),
                                     NUM("", "feed_forward_length", "F"),
                                     NUM("", "attention.head_count", "H"),
                                     NUM("!j", "pooling_type", "1"),
                                     REAL("attention.layer_norm_epsilon", 1e-12f),
                                     {"f", "rope.freq_base", PI__GGUF_F32, NULL, 1000, NULL},
                                     NUM("", "tokenizer.ggml.token_type_count", "A"),
                                     NUM("X", "moe_every_n_layers", "2"),
                                     NUM("X", "expert_count", "X"),
                                     NUM("X", "expert_used_count", "2"),
                                     {0}};
static void bert_per_layer(int64_t *v, int32_t i) { v['x'] = v['X'] && i % 2; }

static const tiny_tensor bert_head[] = {
    T("", "token_embd.weight", M, "E V"),  T("b!r!l", "position_embd.weight", M, "E C"),
    T("", "token_types.weight", M, "E A"), T("", "token_embd_norm.weight", F32, "E"),
    T("", "token_embd_norm.bias", B, "E"), {0}};
static const tiny_tensor bert_layer[] = {T("f", "attn_qkv.weight", M, "E 3E"),
                                         T("fb", "attn_qkv.bias", B, "3E"),
                                         T("b!f", "attn_q.weight", M, "E E"),
                                         T("b!f", "attn_q.bias", B, "E"),
                                         T("b!f", "attn_k.weight", M, "E E"),
                                         T("b!f", "attn_k.bias", B, "E"),
                                         T("b!f", "attn_v.weight", M, "E E"),
                                         T("b!f", "attn_v.bias", B, "E"),
                                         T("", "attn_output.weight", M, "E E"),
                                         T("b", "attn_output.bias", B, "E"),
                                         T("", "attn_output_norm.weight", F32, "E"),
                                         T("", "attn_output_norm.bias", B, "E"),
                                         T("f!b", "ffn_gate.weight", M, "E F"),
                                         T("l!s", "ffn_gate.weight", M, "E F"),
                                         T("!x!s", "ffn_up.weight", M, "E F"),
                                         T("s", "ffn_up.weight", M, "E 2F"),
                                         T("b!l!x", "ffn_up.bias", B, "F"),
                                         T("!x", "ffn_down.weight", M, "F E"),
                                         T("b!x", "ffn_down.bias", B, "E"),
                                         T("x", "ffn_gate_inp.weight", F32, "E X"),
                                         T("x", "ffn_up_exps.weight", M, "E F X"),
                                         T("x", "ffn_down_exps.weight", M, "F E X"),
                                         T("c", "attn_q_norm.weight", F32, "E"),
                                         T("c", "attn_q_norm.bias", B, "E"),
                                         T("c", "attn_k_norm.weight", F32, "E"),
                                         T("c", "attn_k_norm.bias", B, "E"),
                                         T("c", "attn_norm_2.weight", F32, "E"),
                                         T("c", "attn_norm_2.bias", B, "E"),
                                         T("", "layer_output_norm.weight", F32, "E"),
                                         T("", "layer_output_norm.bias", B, "E"),
                                         {0}};

/* ---- modern-bert: i no norm before the first attention. */

static void modern_per_layer(int64_t *v, int32_t i) { v['i'] = i > 0; }
static const tiny_key modern_keys[] = {
    REAL("attention.layer_norm_epsilon", 1e-5f), REAL("rope.freq_base", 160000), REAL("rope.freq_base_swa", 1e4f),
    TEXT("hidden_activation", "gelu"), TEXT("rope.scaling.type", "none"), NUM("!j", "pooling_type", "1"), {0}};
static const tiny_tensor modern_head[] = {T("", "token_embd.weight", M, "E V"),
                                          T("", "token_embd_norm.weight", F32, "E"),
                                          T("", "output_norm.weight", F32, "E"), {0}};
static const tiny_tensor modern_layer[] = {
    T("i", "attn_norm.weight", F32, "E"), T("", "attn_qkv.weight", M, "E 3E"), T("", "attn_output.weight", M, "E E"),
    T("", "ffn_norm.weight", F32, "E"),   T("", "ffn_up.weight", M, "E 2F"),   T("", "ffn_down.weight", M, "F E"), {0}};

/* ---- neo-bert: the layers of modern-bert. */

static const tiny_key neo_keys[] = {REAL("attention.layer_norm_rms_epsilon", 1e-6f), REAL("rope.freq_base", 1e4f),
                                    TEXT("rope.scaling.type", "none"), NUM("!j", "pooling_type", "2"), {0}};
static const tiny_tensor neo_head[] = {
    T("", "token_embd.weight", M, "E V"), T("", "enc.output_norm.weight", F32, "E"), {0}};

/* ---- t5encoder: S buckets of distances; d no gate; u biases of distances in every layer (o: in this layer). */

static void t5_per_layer(int64_t *v, int32_t i) { v['o'] = !i || v['u']; }
static const tiny_key t5_keys[] = {
    REAL("attention.layer_norm_rms_epsilon", 1e-6f), NUM("", "attention.relative_buckets_count", "S"), {0}};
static const tiny_tensor t5_layer[] = {
    T("", "attn_norm.weight", F32, "E"), T("o", "attn_rel_b.weight", F32, "H S"), T("", "attn_q.weight", M, "E HD"),
    T("", "attn_k.weight", M, "E HD"), T("", "attn_v.weight", M, "E HD"), T("", "attn_output.weight", M, "HD E"),
    T("", "ffn_norm.weight", F32, "E"), T("!d", "ffn_gate.weight", M, "E F"), T("", "ffn_up.weight", M, "E F"),
    T("", "ffn_down.weight", M, "F E"), {0}};

/* ---- gemma4: window and global layers with different head sizes, keys used as values, experts in all layers except
 * one. Also both storage layouts of gate and up, per-layer embeddings, layers that share another layer's cache, fused
 * attn_qkv, an output matrix, and suppressed tokens.
 * Per-layer letters: A head size, l window, o own cache, f fused, x experts, i odd layer number, s scales.
 * e: layers of one kind, without experts, that transformers can compute: gemma4-e with per-layer embeddings, and
 * gemma4-vision without, whose images see themselves. */

static const uint8_t g4_local[6] = {1, 1, 0, 1, 1, 0}, assistant_local[2] = {1, 0};
static const int32_t g4_kv_heads[6] = {2, 2, 1, 2, 2, 1}, g4_ff[6] = {96, 96, 64, 96, 160, 128};
static const int32_t g4_suppressed[2] = {TINY_UNK, TINY_BYTE0};

static void g4_per_layer(int64_t *v, int32_t i)
{
    v['G'] = g4_kv_heads[i], v['F'] = g4_ff[i], v['A'] = g4_local[i] ? v['S'] : v['D'];
    v['l'] = g4_local[i], v['o'] = i < 4, v['f'] = i == 0, v['x'] = i != 3, v['i'] = i % 2, v['s'] = i == 2;
}

static void g4e_per_layer(int64_t *v, int32_t i)
{
    v['A'] = g4_local[i] ? v['S'] : v['D'];
    v['l'] = g4_local[i], v['o'] = !v['P'] || i < 4;
}

/* Global heads rotate only their first 8 pairs. */
static double g4_factor(const int64_t *v, uint64_t *rng, int64_t i) { return (void) v, (void) rng, i < 8 ? 1 : 1e30; }

static const tiny_key g4_keys[] = {
    TEXT("general.name", "tiny"), NUM("", "context_length", "C"), NUM("", "block_count", "L"),
    NUM("", "embedding_length", "E"), NUM("", "attention.head_count", "H"), NUM("", "attention.key_length", "D"),
    NUM("", "attention.value_length", "D"), NUM("", "attention.key_length_swa", "S"),
    NUM("", "attention.value_length_swa", "S"), NUM("", "rope.dimension_count", "D"),
    NUM("", "rope.dimension_count_swa", "S"), NUM("", "attention.sliding_window", "W"),
    NUM("", "attention.shared_kv_layers", "2"), NUM("", "embedding_length_per_layer_input", "P"),
    NUM("", "expert_count", "X"), NUM("", "expert_used_count", "2"), NUM("", "expert_feed_forward_length", "Y"),
    LIST("attention.sliding_window_pattern", U8, "L", g4_local), LIST("attention.head_count_kv", I32, "L", g4_kv_heads),
    LIST("feed_forward_length", I32, "L", g4_ff), REAL("attention.layer_norm_rms_epsilon", 1e-6f),
    REAL("rope.freq_base", 1e6f), REAL("rope.freq_base_swa", 1e4f), REAL("final_logit_softcapping", 30),
    LIST("tokenizer.ggml.suppress_tokens", I32, "2", g4_suppressed), {0}};

static const tiny_key g4e_keys[] = {
    TEXT("general.name", "tiny"), NUM("", "context_length", "C"), NUM("", "block_count", "L"),
    NUM("", "embedding_length", "E"), NUM("", "attention.head_count", "H"), NUM("", "attention.head_count_kv", "G"),
    NUM("", "attention.key_length", "D"), NUM("", "attention.value_length", "D"),
    NUM("", "attention.key_length_swa", "S"), NUM("", "attention.value_length_swa", "S"),
    NUM("", "rope.dimension_count", "D"), NUM("", "rope.dimension_count_swa", "S"),
    NUM("", "attention.sliding_window", "W"), NUM("P", "attention.shared_kv_layers", "2"),
    NUM("", "embedding_length_per_layer_input", "P"), NUM("", "feed_forward_length", "F"),
    LIST("attention.sliding_window_pattern", U8, "L", g4_local), REAL("attention.layer_norm_rms_epsilon", 1e-6f),
    REAL("rope.freq_base", 1e6f), REAL("rope.freq_base_swa", 1e4f), REAL("final_logit_softcapping", 30), {0}};

static const tiny_tensor g4_head[] = {
    T("", "token_embd.weight", M, "E V"), T("", "output.weight", M, "E V"), T("", "output_norm.weight", F32, "E"),
    {"", "rope_freqs.weight", F32, "32", g4_factor}, T("P", "per_layer_token_embd.weight", M, "LP V"),
    T("P", "per_layer_model_proj.weight", M, "E LP"), T("P", "per_layer_proj_norm.weight", F32, "P"), {0}};
static const tiny_tensor g4_layer[] = {
    T("", "attn_norm.weight", F32, "E"), T("f", "attn_qkv.weight", M, "E HA+2GA"), T("!f", "attn_q.weight", M, "E HA"),
    T("o!f", "attn_k.weight", M, "E GA"), T("o!fl", "attn_v.weight", M, "E GA"), T("oe!l", "attn_v.weight", M, "E GA"),
    T("", "attn_q_norm.weight", F32, "A"),
    T("o", "attn_k_norm.weight", F32, "A"), T("", "attn_output.weight", M, "HA E"),
    T("", "post_attention_norm.weight", F32, "E"), T("", "ffn_norm.weight", F32, "E"),
    T("", "ffn_gate.weight", M, "E F"), T("", "ffn_up.weight", M, "E F"), T("", "ffn_down.weight", M, "F E"),
    T("", "post_ffw_norm.weight", F32, "E"), T("x", "ffn_gate_inp.weight", M, "E X"),
    T("x", "ffn_gate_inp.scale", F32, "E"), T("x", "pre_ffw_norm_2.weight", F32, "E"),
    T("x", "post_ffw_norm_1.weight", F32, "E"), T("x", "post_ffw_norm_2.weight", F32, "E"),
    T("xi", "ffn_gate_up_exps.weight", F32, "E 2Y X"), T("x!i", "ffn_gate_exps.weight", F32, "E Y X"),
    T("x!i", "ffn_up_exps.weight", F32, "E Y X"), T("xs", "ffn_up_exps.scale", F32, "1"),
    T("x", "ffn_down_exps.weight", F32, "Y E X"), T("x", "ffn_down_exps.scale", F32, "X"),
    T("P", "inp_gate.weight", M, "E P"), T("P", "proj.weight", M, "P E"), T("P", "post_norm.weight", F32, "E"),
    T("", "layer_output_scale.weight", F32, "1"), {0}};

/* ---- gemma4-assistant: a drafter for gemma4 with a window and a global layer. Optionally, its head's rows are sorted
 * into clusters of one token each.
 * K clusters to search (0 = an ordinary head), N rows of the centroids, i the ordering is I64. O is the first number
 * of the ordering (-1 = its normal value), B the target's embedding size. */

static void assistant_per_layer(int64_t *v, int32_t i) { v['A'] = i ? v['D'] : v['S']; }

static double assistant_token(const int64_t *v, uint64_t *rng, int64_t i)
{
    (void) rng;
    return (double) (i || v['O'] < 0 ? (i * 10 + 3) % v['V'] : v['O']);
}

static const tiny_key assistant_keys[] = {
    NUM("", "block_count", "L"), NUM("", "context_length", "C"), NUM("", "embedding_length", "E"),
    NUM("", "embedding_length_out", "B"), NUM("", "feed_forward_length", "F"), NUM("", "attention.head_count", "H"),
    NUM("", "attention.head_count_kv", "2"), NUM("", "attention.key_length", "D"),
    NUM("", "attention.value_length", "D"), NUM("", "attention.key_length_swa", "S"),
    NUM("", "attention.value_length_swa", "S"), NUM("", "rope.dimension_count", "D"),
    NUM("", "rope.dimension_count_swa", "S"), NUM("", "attention.sliding_window", "W"),
    NUM("", "attention.shared_kv_layers", "L"), NUM("", "nextn_predict_layers", "L"),
    NUM("", "embedding_length_per_layer_input", "0"), NUM("K", "centroid_top_k", "K"),
    LIST("attention.sliding_window_pattern", U8, "L", assistant_local), REAL("attention.layer_norm_rms_epsilon", 1e-6f),
    REAL("rope.freq_base", 1e6f), REAL("rope.freq_base_swa", 1e4f), {0}};

static const tiny_tensor assistant_head[] = {
    T("", "token_embd.weight", M, "E V"), T("", "output_norm.weight", F32, "E"),
    T("", "nextn.pre_projection.weight", M, "2B E"), T("", "nextn.post_projection.weight", M, "E B"),
    {"", "rope_freqs.weight", F32, "32", g4_factor}, {0}};
static const tiny_tensor assistant_layer[] = {
    T("", "attn_norm.weight", F32, "E"), T("", "attn_q.weight", M, "E HA"), T("", "attn_q_norm.weight", F32, "A"),
    T("", "attn_output.weight", M, "HA E"), T("", "post_attention_norm.weight", F32, "E"),
    T("", "ffn_norm.weight", F32, "E"), T("", "ffn_gate.weight", M, "E F"), T("", "ffn_up.weight", M, "E F"),
    T("", "ffn_down.weight", M, "F E"), T("", "post_ffw_norm.weight", F32, "E"),
    T("", "layer_output_scale.weight", F32, "1"), {0}};
static const tiny_tensor assistant_tail[] = {
    T("K", "masked_embd_centroids.weight", M, "E N"),
    {"K!i", "masked_embd_ordering.weight", PI__I32, "V", assistant_token},
    {"Ki", "masked_embd_ordering", PI__I64, "V", assistant_token}, {0}};

/* ---- dflash: a block drafter for gemma4 or for the four layers of qwen35, with or without Gemma's features; also
 * with lucebox's names.
 * B target's embedding size, N target layers that it reads, x lucebox names, g for qwen35, v value matrices, p norms
 * after each block. w the second layer has a window of W tokens, s sinks, t own embedding, o own head.
 * K rows of a head with fewer rows than tokens: even rows map to token O, odd rows to O + 1; O -1 = distinct tokens.
 * M rank of a Markov head, which makes every token follow itself; z the first position of a block gives no draft. c a
 * confidence head that is certain of every token (1) or of none (2).
 * k taps of convolutions, i candidates of a selector with vectors of R values, with value J at the token's own index.
 * l logits are scaled and capped. */

static const int32_t dflash_g4[3] = {1, 3, 6}, dflash_q35[3] = {0, 2, 4}, dflash_outputs[3] = {0, 2, 5};
static const uint8_t dflash_local[2] = {0, 1};

static double dflash_token(const int64_t *v, uint64_t *rng, int64_t i)
{
    (void) rng;
    return (double) (v['O'] < 0 ? (i * 7 + 5) % v['V'] : v['O'] + i % 2);
}

/* Row of M values per token, large at the index of the token. */
static double dflash_markov(const int64_t *v, uint64_t *rng, int64_t i)
{
    (void) rng;
    return i / v['M'] == i % v['M'] ? 30 : 0;
}

static double dflash_sure(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) rng, (void) i, v['c'] == 1 ? 1000 : -1000;
}

/* Selector vectors: J at the index of the token, small elsewhere. */
static double dflash_vector(const int64_t *v, uint64_t *rng, int64_t i)
{
    return i / v['R'] == i % v['R'] ? (double) v['J'] : (double) tiny_random(rng) / 2147483648.0 - 0.5;
}

static const tiny_key dflash_keys[] = {NUM("", "block_count", "L"),
                                       NUM("", "context_length", "C"),
                                       NUM("", "embedding_length", "E"),
                                       NUM("", "feed_forward_length", "F"),
                                       NUM("", "attention.head_count", "H"),
                                       NUM("", "attention.head_count_kv", "G"),
                                       NUM("", "attention.key_length", "D"),
                                       NUM("", "attention.value_length", "D"),
                                       NUM("", "rope.dimension_count", "D"),
                                       REAL("attention.layer_norm_rms_epsilon", 1e-6f),
                                       REAL("rope.freq_base", 1e6f),
                                       NUM("!x", "block_size", "8"),
                                       NUM("x", "dflash.block_size", "8"),
                                       NUM("!x", "tokenizer.ggml.mask_token_id", "4"),
                                       NUM("x", "dflash.mask_token_id", "4"),
                                       {"!x!g", "target_layers", I32, "N", 0, dflash_g4},
                                       {"!xg", "target_layers", I32, "N", 0, dflash_q35},
                                       {"x!g", "dflash.target_layer_ids", I32, "N", 0, dflash_outputs},
                                       NUM("xg", "dflash.n_target_layers", "N"),
                                       NUM("w", "attention.sliding_window", "W"),
                                       {"w", "attention.sliding_window_pattern", U8, "L", 0, dflash_local},
                                       NUM("k", "conv_kernel_size", "k"),
                                       NUM("k", "conv_group_size", "16"),
                                       NUM("k", "selector_rank", "R"),
                                       NUM("k", "selector_top_k", "i"),
                                       {"l", "logit_scale", PI__GGUF_F32, NULL, 1.5f, NULL},
                                       {"l", "final_logit_softcapping", PI__GGUF_F32, NULL, 4, NULL},
                                       {"z", "sample_from_anchor", U8, "0", 0, NULL},
                                       {"p", "hidden_activation", PI__GGUF_STR, NULL, 0, "gelu"},
                                       {"p!x", "embedding_scale", PI__GGUF_F32, NULL, 8, NULL},
                                       {0}};

static const tiny_tensor dflash_head[] = {T("!x", "fc.weight", M, "NB E"),
                                          T("x", "dflash.fc.weight", M, "NB E"),
                                          T("!x", "enc.output_norm.weight", F32, "E"),
                                          T("x", "dflash.hidden_norm.weight", F32, "E"),
                                          T("t", "token_embd.weight", M, "E V"),
                                          T("o!K", "output.weight", M, "E V"),
                                          T("K", "output.weight", M, "E K"),
                                          {"K", "d2t", PI__I64, "K", dflash_token},
                                          {"M", "markov_w1.weight", F32, "M V", dflash_markov},
                                          {"M", "markov_w2.weight", F32, "M V", dflash_markov},
                                          T("k", "selector_hidden.weight", M, "E R"),
                                          {"k", "selector_predecessor.weight", F32, "R V", dflash_vector},
                                          {"k", "selector_successor.weight", F32, "R V", dflash_vector},
                                          T("c", "conf_proj.weight", F32, "E+M"),
                                          {"c", "conf_proj.bias", F32, "1", dflash_sure},
                                          T("", "output_norm.weight", F32, "E"),
                                          {0}};
static const tiny_tensor dflash_layer[] = {T("", "attn_norm.weight", F32, "E"),
                                           T("", "attn_q.weight", M, "E HD"),
                                           T("", "attn_k.weight", M, "E GD"),
                                           T("v", "attn_v.weight", M, "E GD"),
                                           T("", "attn_q_norm.weight", F32, "D"),
                                           T("", "attn_k_norm.weight", F32, "D"),
                                           T("", "attn_output.weight", M, "HD E"),
                                           T("s", "attn_sinks.weight", F32, "H"),
                                           T("p", "post_attention_norm.weight", F32, "E"),
                                           T("", "ffn_norm.weight", F32, "E"),
                                           T("", "ffn_gate.weight", M, "E F"),
                                           T("", "ffn_up.weight", M, "E F"),
                                           T("", "ffn_down.weight", M, "F E"),
                                           T("p", "post_ffw_norm.weight", F32, "E"),
                                           T("p", "layer_output_scale.weight", F32, "1"),
                                           T("k", "attn_conv_base", F32, "E k 2"),
                                           T("k", "ffn_conv_base", F32, "E k 2"),
                                           T("k", "attn_conv_proj.weight", M, "E 8k"),
                                           T("k", "ffn_conv_proj.weight", M, "E 8k"),
                                           {0}};

/* ---- qwen35, qwen35moe: delta nets (also as the last layer) and attention, followed by a draft head. Output tied or
 * not; experts in both storage layouts of gate and up.
 * T key heads, U value heads, x experts, e delta nets in the layout of qwen3next, w in the layout of its older files.
 * Per layer: d delta net, z draft head, f gate and up fused. */

static const uint8_t q35_recurrent[5] = {1, 1, 0, 1, 0}; /* the last layer is the draft head */

static void q35_per_layer(int64_t *v, int32_t i) { v['d'] = q35_recurrent[i], v['z'] = i == 4, v['f'] = i == 1; }

/* Negative, because states diverge otherwise. */
static double q35_decay(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) v, (void) rng, -0.1f * (float) (i + 1);
}

static const int32_t q35_sections[4] = {2, 1, 1, 0};
static const tiny_key q35_keys[] = {
    TEXT("general.name", "tiny"), NUM("", "context_length", "C"), NUM("", "block_count", "L"),
    NUM("", "nextn_predict_layers", "1"), NUM("", "embedding_length", "E"), NUM("", "attention.head_count", "H"),
    NUM("", "attention.head_count_kv", "G"), NUM("", "attention.key_length", "D"),
    NUM("", "attention.value_length", "D"), NUM("", "rope.dimension_count", "8"), NUM("", "ssm.conv_kernel", "4"),
    NUM("", "ssm.state_size", "D"), NUM("", "ssm.group_count", "T"), NUM("", "ssm.time_step_rank", "U"),
    NUM("", "ssm.inner_size", "UD"), NUM("!x", "feed_forward_length", "F"), NUM("x", "expert_count", "X"),
    NUM("x", "expert_used_count", "2"), NUM("x", "expert_feed_forward_length", "Y"),
    NUM("x", "expert_shared_feed_forward_length", "Z"), LIST("attention.recurrent_layers", U8, "L", q35_recurrent),
    LIST("rope.dimension_sections", I32, "4", q35_sections),
    REAL("attention.layer_norm_rms_epsilon", 1e-6f), REAL("rope.freq_base", 1e7f), {0}};

static const tiny_tensor q35_head[] = {
    T("", "token_embd.weight", M, "E V"), T("x", "output.weight", M, "E V"), T("", "output_norm.weight", F32, "E"),
    {0}};
static const tiny_tensor q35_layer[] = {T("", "attn_norm.weight", F32, "E"),
                                        T("", "post_attention_norm.weight", F32, "E"),
                                        T("!d", "attn_q.weight", M, "E 2HD"),
                                        T("!d", "attn_k.weight", M, "E GD"),
                                        T("!d", "attn_v.weight", M, "E GD"),
                                        T("!d", "attn_q_norm.weight", F32, "D"),
                                        T("!d", "attn_k_norm.weight", F32, "D"),
                                        T("!d", "attn_output.weight", M, "HD E"),
                                        T("d!w", "attn_qkv.weight", M, "E 2TD+UD"),
                                        T("d!w", "attn_gate.weight", M, "E UD"),
                                        T("d!e", "ssm_alpha.weight", M, "E U"),
                                        T("d!e", "ssm_beta.weight", M, "E U"),
                                        T("dw", "ssm_in.weight", M, "E 2TD+2UD"),
                                        T("de", "ssm_ba.weight", M, "E 2U"),
                                        T("d", "ssm_conv1d.weight", F32, "4 2TD+UD"),
                                        T("d", "ssm_dt.bias", F32, "U"),
                                        {"d", "ssm_a", F32, "U", q35_decay},
                                        T("d", "ssm_norm.weight", F32, "D"),
                                        T("d", "ssm_out.weight", M, "UD E"),
                                        T("!x", "ffn_gate.weight", M, "E F"),
                                        T("!x", "ffn_up.weight", M, "E F"),
                                        T("!x", "ffn_down.weight", M, "F E"),
                                        T("x", "ffn_gate_inp.weight", F32, "E X"),
                                        T("xf", "ffn_gate_up_exps.weight", M, "E 2Y X"),
                                        T("x!f", "ffn_gate_exps.weight", M, "E Y X"),
                                        T("x!f", "ffn_up_exps.weight", M, "E Y X"),
                                        T("x", "ffn_down_exps.weight", M, "Y E X"),
                                        T("x", "ffn_gate_inp_shexp.weight", F32, "E"),
                                        T("x", "ffn_gate_shexp.weight", M, "E Z"),
                                        T("x", "ffn_up_shexp.weight", M, "E Z"),
                                        T("x", "ffn_down_shexp.weight", M, "Z E"),
                                        T("z", "nextn.eh_proj.weight", M, "2E E"),
                                        T("z", "nextn.enorm.weight", F32, "E"),
                                        T("z", "nextn.hnorm.weight", F32, "E"),
                                        T("z", "nextn.shared_head_norm.weight", F32, "E"),
                                        {0}};

/* ---- Mamba-2 and hybrid models. B key heads of S values, Q value heads of P values, N = QP / B; K values of a latent
 * expert's input; n norm of the mixer's output; Z F of a shared expert; h Falcon's name of a norm. Per layer: m Mamba-2
 * mixer, t attention, f feed-forward. */

static void granite_hybrid_per_layer(int64_t *v, int32_t i) { v['m'] = i != 1, v['t'] = i == 1, v['f'] = 1; }
static void nemotron_per_layer(int64_t *v, int32_t i)
{
    v['m'] = i % 3 == 0, v['t'] = i == 2, v['f'] = i == 1 || i == 4;
}
static void all_per_layer(int64_t *v, int32_t i) { (void) i, v['m'] = 1, v['t'] = v['H'] > 0, v['f'] = v['F'] > 0; }

static double ssm_skip(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) v, (void) rng, 0.5 + 0.25 * (double) i;
}

static const int32_t granite_hybrid_kv[3] = {0, 1, 0}, nemotron_kv[5] = {0, 0, 2, 0, 0};
static const int32_t nemotron_ff[5] = {0, 96, 0, 0, 96}, nemotron_moe_ff[5] = {0, 64, 0, 0, 64};
#define HYBRID_KEYS                                                                                                    \
    TEXT("general.name", "tiny"), NUM("", "block_count", "L"), NUM("", "context_length", "C"),                         \
        NUM("", "embedding_length", "E"), NUM("", "attention.head_count", "H"), NUM("", "ssm.conv_kernel", "4"),       \
        NUM("", "ssm.state_size", "S"), NUM("", "ssm.group_count", "B"), NUM("", "ssm.time_step_rank", "Q"),           \
        NUM("", "ssm.inner_size", "QP")
static const tiny_key granite_hybrid_keys[] = {
    HYBRID_KEYS, NUM("", "feed_forward_length", "F"), LIST("attention.head_count_kv", I32, "L", granite_hybrid_kv),
    NUM("X", "expert_count", "X"), NUM("X", "expert_used_count", "2"), {0}};
static const tiny_key nemotron_keys[] = {
    HYBRID_KEYS, LIST("attention.head_count_kv", I32, "L", nemotron_kv), NUM("", "attention.key_length", "D"),
    NUM("", "attention.value_length", "D"), {"!X", "feed_forward_length", I32, "L", 0, nemotron_ff},
    {"X", "feed_forward_length", I32, "L", 0, nemotron_moe_ff},
    {"", "attention.layer_norm_epsilon", PI__GGUF_F32, NULL, 1e-5f, NULL},
    {"!X", "attention.layer_norm_rms_epsilon", PI__GGUF_F32, NULL, 1e-5f, NULL}, NUM("X", "expert_count", "X"),
    NUM("X", "expert_used_count", "3"), NUM("X", "expert_feed_forward_length", "F"),
    NUM("X", "expert_shared_feed_forward_length", "Z"), NUM("X", "expert_shared_count", "1"),
    {"X", "expert_weights_norm", PI__GGUF_BOOL, "1", 0, NULL},
    {"X", "expert_weights_scale", PI__GGUF_F32, NULL, 1.5f, NULL}, NUM("X", "expert_group_count", "1"),
    NUM("K", "moe_latent_size", "K"), {0}};
static const tiny_key falcon_h1_keys[] = {
    HYBRID_KEYS, NUM("", "feed_forward_length", "F"), NUM("", "attention.head_count_kv", "G"),
    NUM("", "attention.key_length", "D"), NUM("", "attention.value_length", "D"), NUM("", "vocab_size", "V"),
    REAL("attention.layer_norm_rms_epsilon", 1e-5f), REAL("rope.freq_base", 1e5f), {0}};
static const tiny_key mamba2_keys[] = {
    HYBRID_KEYS, NUM("", "feed_forward_length", "F"), REAL("attention.layer_norm_rms_epsilon", 1e-5f), {0}};

static const tiny_tensor hybrid_layer[] = {
    T("", "attn_norm.weight", F32, "E"), T("t", "attn_q.weight", M, "E HD"), T("t", "attn_k.weight", M, "E GD"),
    T("t", "attn_v.weight", M, "E GD"), T("t", "attn_output.weight", M, "HD E"),
    T("m", "ssm_in.weight", M, "E 2QP+2BS+Q"), T("m", "ssm_conv1d.weight", F32, "4 QP+2BS"),
    T("m", "ssm_conv1d.bias", B, "QP+2BS"), T("m", "ssm_dt.bias", F32, "Q"), {"m", "ssm_a", F32, "1 Q", q35_decay},
    {"m", "ssm_d", F32, "1 Q", ssm_skip}, T("mn", "ssm_norm.weight", F32, "N B"), T("m", "ssm_out.weight", M, "QP E"),
    T("f!d!h", "ffn_norm.weight", F32, "E"), T("fh", "ffn_norm", F32, "E"), T("f!X!d", "ffn_gate.weight", M, "E F"),
    T("f!X", "ffn_up.weight", M, "E F"), T("f!X", "ffn_down.weight", M, "F E"),
    T("fX", "ffn_gate_inp.weight", F32, "E X"), T("fXd", "exp_probs_b.bias", B, "X"),
    T("fX!d", "ffn_gate_exps.weight", M, "E F X"), T("fX!K", "ffn_up_exps.weight", M, "E F X"),
    T("fX!K", "ffn_down_exps.weight", M, "F E X"), T("fXK", "ffn_up_exps.weight", M, "K F X"),
    T("fXK", "ffn_down_exps.weight", M, "F K X"), T("fXK", "ffn_latent_down.weight", M, "E K"),
    T("fXK", "ffn_latent_up.weight", M, "K E"), T("fXZ!d", "ffn_gate_shexp.weight", M, "E Z"),
    T("fXZ", "ffn_up_shexp.weight", M, "E Z"), T("fXZ", "ffn_down_shexp.weight", M, "Z E"), {0}};

/* ---- Mamba and Jamba. Q channels of S values, time steps of rank R; n norms of time steps, B and C; i the same norms
 * without weights. Per layer: t attention instead of a mixer, x experts. */

static void mamba_per_layer(int64_t *v, int32_t i) { v['t'] = v['H'] && i == 2, v['x'] = v['X'] > 1 && i % 2; }

static double mamba_decay(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) rng, -0.1 * (double) (1 + i % v['S']) * (double) (1 + i / v['S'] % 5);
}

static const int32_t jamba_kv[4] = {0, 0, 1, 0};
#define MAMBA_KEYS                                                                                                     \
    TEXT("general.name", "tiny"), NUM("", "block_count", "L"), NUM("", "context_length", "C"),                         \
        NUM("", "embedding_length", "E"), NUM("", "attention.head_count", "H"), NUM("", "feed_forward_length", "F"),   \
        NUM("", "ssm.conv_kernel", "4"), NUM("", "ssm.state_size", "S"), NUM("", "ssm.time_step_rank", "R"),           \
        NUM("", "ssm.inner_size", "Q")
static const tiny_key mamba_keys[] = {MAMBA_KEYS, REAL("attention.layer_norm_rms_epsilon", 1e-5f),
                                      {"i", "ssm.dt_b_c_rms", PI__GGUF_BOOL, "1", 0, NULL}, {0}};
static const tiny_key jamba_keys[] = {MAMBA_KEYS, REAL("attention.layer_norm_rms_epsilon", 1e-6f),
                                      LIST("attention.head_count_kv", I32, "L", jamba_kv),
                                      NUM("", "expert_count", "X"), NUM("", "expert_used_count", "Y"), {0}};
static const tiny_tensor mamba_layer[] = {
    T("", "attn_norm.weight", F32, "E"), T("t", "attn_q.weight", M, "E HD"), T("t", "attn_k.weight", M, "E GD"),
    T("t", "attn_v.weight", M, "E GD"), T("t", "attn_output.weight", M, "HD E"), T("!t", "ssm_in.weight", M, "E 2Q"),
    T("!t", "ssm_conv1d.weight", F32, "4 Q"), T("!t", "ssm_conv1d.bias", B, "Q"),
    T("!t", "ssm_x.weight", M, "Q R+2S"), T("!tn", "ssm_dt_norm.weight", F32, "R"),
    T("!tn", "ssm_b_norm.weight", F32, "S"), T("!tn", "ssm_c_norm.weight", F32, "S"),
    T("!t", "ssm_dt.weight", M, "R Q"), T("!t", "ssm_dt.bias", B, "Q"), {"!t", "ssm_a", F32, "S Q", mamba_decay},
    T("!t", "ssm_d", F32, "Q"), T("!t", "ssm_out.weight", M, "Q E"), T("F", "ffn_norm.weight", F32, "E"),
    T("F!x", "ffn_gate.weight", M, "E F"), T("F!x", "ffn_up.weight", M, "E F"), T("F!x", "ffn_down.weight", M, "F E"),
    T("x", "ffn_gate_inp.weight", F32, "E X"), T("x", "ffn_gate_exps.weight", M, "E F X"),
    T("x", "ffn_up_exps.weight", M, "E F X"), T("x", "ffn_down_exps.weight", M, "F E X"), {0}};

/* ---- deepseek4: layers without entries, with entries of 4 tokens and of 128 tokens. Experts selected by token id
 * and by a router, tables of a quantized type, an activation limit, more ratios than layers. The draft head is in its
 * own file, with the copy of the embedding that converters add, or in ds4's layout.
 * K rank of q, O rank of the output, Q its groups, I indexer heads, J their size, T experts used.
 * Per layer: S ratio, N width of an entry, P inputs of an output group, a has entries, c entries of 4 tokens, t
 * experts by token. e: factors of the output's first matrix, one or Q. */

static const int32_t ds4_ratio[5] = {0, 4, 128, 4, 0};
static const float ds4_limit[5] = {2.5f, 2.5f, 0, 1.5f, 2};

static void ds4_per_layer(int64_t *v, int32_t i)
{
    v['S'] = ds4_ratio[i], v['a'] = ds4_ratio[i] != 0, v['c'] = ds4_ratio[i] == 4, v['t'] = i < 2;
    v['N'] = v['c'] ? 2 * v['D'] : v['D'], v['P'] = v['H'] * v['D'] / v['Q'];
}

static double ds4_expert(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) i, (double) (tiny_random(rng) % v['X']);
}

static const tiny_key ds4_keys[] = {
    TEXT("general.name", "tiny"), TEXT("rope.scaling.type", "yarn"), NUM("", "context_length", "C"),
    NUM("", "block_count", "L"), NUM("", "embedding_length", "E"), NUM("", "attention.head_count", "H"),
    NUM("", "attention.head_count_kv", "1"), NUM("", "attention.key_length", "D"),
    NUM("", "attention.value_length", "D"), NUM("", "rope.dimension_count", "16"),
    NUM("", "attention.q_lora_rank", "K"), NUM("", "attention.sliding_window", "W"),
    NUM("", "attention.output_group_count", "Q"), NUM("", "attention.output_lora_rank", "O"),
    NUM("", "attention.indexer.head_count", "I"), NUM("", "attention.indexer.key_length", "J"),
    NUM("", "attention.indexer.top_k", "6"), NUM("", "expert_count", "X"), NUM("", "expert_used_count", "T"),
    NUM("", "expert_feed_forward_length", "F"), NUM("", "expert_shared_count", "1"), NUM("", "expert_gating_func", "4"),
    NUM("", "hash_layer_count", "2"), NUM("", "hyper_connection.count", "4"),
    NUM("", "hyper_connection.sinkhorn_iterations", "5"), NUM("", "nextn_predict_layers", "1"),
    NUM("", "rope.scaling.original_context_length", "64"), REAL("attention.layer_norm_rms_epsilon", 1e-6f),
    REAL("hyper_connection.epsilon", 1e-6f), REAL("rope.freq_base", 1e4f),
    REAL("attention.compress_rope_freq_base", 1.6e5f), REAL("rope.scaling.factor", 16),
    REAL("expert_weights_scale", 1.5f), LIST("attention.compress_ratios", I32, "5", ds4_ratio),
    LIST("swiglu_clamp_exp", PI__GGUF_F32, "L", ds4_limit), {0}};

static const tiny_tensor ds4_head[] = {
    T("", "token_embd.weight", F16, "E V"), T("", "output.weight", Q8, "E V"), {0}};
static const tiny_tensor ds4_layer[] = {
    T("", "hc_attn_fn.weight", F16, "4E 24"), T("", "hc_attn_base.weight", F32, "24"),
    T("", "hc_attn_scale.weight", F32, "3"), T("", "hc_ffn_fn.weight", F16, "4E 24"),
    T("", "hc_ffn_base.weight", F32, "24"), T("", "hc_ffn_scale.weight", F32, "3"), T("", "attn_norm.weight", F32, "E"),
    T("", "attn_q_a.weight", Q8, "E K"), T("", "attn_q_a_norm.weight", F32, "K"), T("", "attn_q_b.weight", Q8, "K HD"),
    T("", "attn_kv.weight", Q8, "E D"), T("", "attn_kv_a_norm.weight", F32, "D"), T("", "attn_sinks.weight", F32, "H"),
    T("", "attn_output_a.weight", Q8, "P QO"), {"e", "attn_output_a.scale", F32, "e", tiny_factor},
    T("", "attn_output_b.weight", F16, "QO E"),
    T("a", "attn_compressor_kv.weight", F16, "E N"), T("a", "attn_compressor_gate.weight", F16, "E N"),
    T("c", "attn_compressor_ape.weight", Q8, "N S"), T("a!c", "attn_compressor_ape.weight", F16, "N S"),
    T("a", "attn_compressor_norm.weight", F32, "D"), T("c", "indexer_compressor_kv.weight", F16, "E 2J"),
    T("c", "indexer_compressor_gate.weight", F16, "E 2J"), T("c", "indexer_compressor_ape.weight", Q8, "2J S"),
    T("c", "indexer_compressor_norm.weight", F32, "J"), T("c", "indexer.attn_q_b.weight", F16, "K IJ"),
    T("c", "indexer.proj.weight", F16, "E I"), T("", "ffn_norm.weight", F32, "E"),
    T("", "ffn_gate_inp.weight", F16, "E X"), T("!t", "exp_probs_b.bias", F32, "X"),
    T("", "ffn_gate_exps.weight", F32, "E F X"), T("", "ffn_up_exps.weight", F32, "E F X"),
    T("", "ffn_down_exps.weight", F32, "F E X"), T("", "ffn_gate_shexp.weight", Q8, "E F"),
    T("", "ffn_up_shexp.weight", Q8, "E F"), T("", "ffn_down_shexp.weight", Q8, "F E"),
    {"t", "ffn_gate_tid2eid.weight", PI__I32, "T V", ds4_expert}, {0}};
static const tiny_tensor ds4_tail[] = {
    T("", "output_hc_fn.weight", F16, "4E 4"), T("", "output_hc_base.weight", F32, "4"),
    T("", "output_hc_scale.weight", F32, "1"), T("", "output_norm.weight", F32, "E"), {0}};
static const tiny_tensor ds4_draft_tail[] = {
    T("", "token_embd.weight", F32, "E V"), T("", "blk.4.nextn.eh_proj.weight", F32, "2E E"),
    T("", "blk.4.nextn.enorm.weight", F32, "E"), T("", "blk.4.nextn.hnorm.weight", F32, "E"),
    T("", "blk.4.nextn.shared_head_norm.weight", F32, "E"), T("", "output_hc_fn.weight", F32, "4E 4"),
    T("", "output_hc_base.weight", F32, "4"), T("", "output_hc_scale.weight", F32, "1"), {0}};
static const tiny_tensor ds4_mtp_tail[] = {
    T("", "mtp.0.e_proj.weight", F32, "E E"), T("", "mtp.0.h_proj.weight", F32, "E E"),
    T("", "mtp.0.enorm.weight", F32, "E"), T("", "mtp.0.hnorm.weight", F32, "E"), T("", "mtp.0.norm.weight", F32, "E"),
    T("", "mtp.0.hc_head_fn.weight", F32, "4E 4"), T("", "mtp.0.hc_head_base.weight", F32, "4"),
    T("", "mtp.0.hc_head_scale.weight", F32, "1"), {0}};

/* ---- deepseek2: latent attention; a layer without experts before the layers with experts. In the layouts of V2 and
 * V3. q rank of queries (0 = a direct query matrix), K a head's unrotated key size, O its value size. R rotated
 * values, A rank of keys and values.
 * Y experts of size Z in I groups, J of the groups used; S shared experts. v: sigmoid gates as in V3. x: the layer has
 * experts. o: layout of older files, with one matrix from latents to keys and values, a factor (e), and no row
 * lengths. N: the last layer is a draft head. */

static const uint8_t ds2_types[4] = {1, 0, 1, 0};
static void ds2_per_layer(int64_t *v, int32_t i)
{
    v['x'] = i > 0, v['y'] = i > 0 && v['v'], v['z'] = v['N'] && i == v['L'] - 1;
    v['k'] = v['i'] && (!v['g'] || ds2_types[i % 4]);
}
static const tiny_key ds2_keys[] = {TEXT("general.name", "tiny"),
                                    NUM("", "block_count", "L"),
                                    NUM("", "context_length", "C"),
                                    NUM("", "embedding_length", "E"),
                                    NUM("", "feed_forward_length", "F"),
                                    NUM("", "attention.head_count", "H"),
                                    NUM("", "attention.head_count_kv", "1"),
                                    NUM("!o", "attention.key_length", "A+R"),
                                    NUM("!o", "attention.value_length", "A"),
                                    NUM("!o", "attention.key_length_mla", "K+R"),
                                    NUM("!o", "attention.value_length_mla", "O"),
                                    NUM("o", "attention.key_length", "K+R"),
                                    NUM("o", "attention.value_length", "O"),
                                    NUM("", "attention.kv_lora_rank", "A"),
                                    NUM("q", "attention.q_lora_rank", "q"),
                                    NUM("", "rope.dimension_count", "R"),
                                    REAL("attention.layer_norm_rms_epsilon", 1e-6f),
                                    REAL("rope.freq_base", 1e4f),
                                    NUM("", "expert_count", "Y"),
                                    NUM("", "expert_used_count", "3"),
                                    NUM("", "expert_group_count", "I"),
                                    NUM("", "expert_group_used_count", "J"),
                                    NUM("", "expert_feed_forward_length", "Z"),
                                    NUM("", "expert_shared_count", "S"),
                                    NUM("", "leading_dense_block_count", "1"),
                                    NUM("v", "expert_gating_func", "2"),
                                    {"v", "expert_weights_norm", PI__GGUF_BOOL, "1", 0, NULL},
                                    {"m", "expert_weights_norm", PI__GGUF_BOOL, "1", 0, NULL},
                                    {"m", "attention.temperature_scale", PI__GGUF_F32, NULL, 0.25f, NULL},
                                    {"m", "rope.scaling.yarn_log_multiplier", PI__GGUF_F32, NULL, 0.1f, NULL},
                                    NUM("i", "attention.indexer.head_count", "i"),
                                    NUM("i", "attention.indexer.key_length", "d"),
                                    NUM("i", "attention.indexer.top_k", "t"),
                                    {"g", "attention.indexer.types", U8, "L", 0, ds2_types},
                                    REAL("expert_weights_scale", 2.5f),
                                    TEXT("rope.scaling.type", "yarn"),
                                    REAL("rope.scaling.factor", 8),
                                    NUM("", "rope.scaling.original_context_length", "64"),
                                    {"v", "rope.scaling.yarn_log_multiplier", PI__GGUF_F32, NULL, 0.1f, NULL},
                                    {"!v!m", "rope.scaling.yarn_log_multiplier", PI__GGUF_F32, NULL, 0.0707f, NULL},
                                    NUM("N", "nextn_predict_layers", "N"),
                                    {0}};

static const tiny_tensor ds2_head[] = {
    T("", "token_embd.weight", M, "E V"), T("", "output_norm.weight", F32, "E"), T("", "output.weight", M, "E V"), {0}};
static const tiny_tensor ds2_layer[] = {T("", "attn_norm.weight", F32, "E"),
                                        T("!q", "attn_q.weight", M, "E HK+HR"),
                                        T("q", "attn_q_a.weight", M, "E q"),
                                        T("q", "attn_q_a_norm.weight", F32, "q"),
                                        T("q", "attn_q_b.weight", M, "q HK+HR"),
                                        T("", "attn_kv_a_mqa.weight", M, "E A+R"),
                                        T("", "attn_kv_a_norm.weight", F32, "A"),
                                        T("!o", "attn_k_b.weight", M, "K A H"),
                                        T("!o", "attn_v_b.weight", M, "A O H"),
                                        T("o", "attn_kv_b.weight", M, "A HK+HO"),
                                        {"oe", "attn_kv_b.scale", F32, "1", tiny_factor},
                                        T("", "attn_output.weight", M, "HO E"),
                                        T("k", "indexer.attn_q_b.weight", M, "q id"),
                                        T("k", "indexer.attn_k.weight", M, "E d"),
                                        T("k", "indexer.proj.weight", M, "E i"),
                                        T("k", "indexer.k_norm.weight", F32, "d"),
                                        T("k", "indexer.k_norm.bias", B, "d"),
                                        T("", "ffn_norm.weight", F32, "E"),
                                        T("!x", "ffn_gate.weight", M, "E F"),
                                        T("!x", "ffn_up.weight", M, "E F"),
                                        T("!x", "ffn_down.weight", M, "F E"),
                                        T("x", "ffn_gate_inp.weight", F32, "E Y"),
                                        T("y", "exp_probs_b.bias", B, "Y"),
                                        T("x!m", "ffn_gate_exps.weight", M, "E Z Y"),
                                        T("x!m", "ffn_up_exps.weight", M, "E Z Y"),
                                        T("xm", "ffn_gate_up_exps.weight", M, "E 2Z Y"),
                                        T("x", "ffn_down_exps.weight", M, "Z E Y"),
                                        T("x", "ffn_gate_shexp.weight", M, "E SZ"),
                                        T("x", "ffn_up_shexp.weight", M, "E SZ"),
                                        T("x", "ffn_down_shexp.weight", M, "SZ E"),
                                        T("z", "nextn.eh_proj.weight", M, "2E E"),
                                        T("z", "nextn.enorm.weight", F32, "E"),
                                        T("z", "nextn.hnorm.weight", F32, "E"),
                                        T("z", "nextn.shared_head_norm.weight", F32, "E"),
                                        {0}};

/* ---- Kimi delta attention in all layers but one, which has latent attention: layer 2, with g the last. Letters as for
 * deepseek2; D values of a head of Kimi delta attention, s its projections are low-rank, g gates of heads, U F of the
 * shared expert. Per layer: k Kimi delta attention, x experts. */

static const int32_t kimi_kv[4] = {0, 0, 1, 0}, ling3_kv[4] = {0, 0, 0, 1};
static const float ling3_limits[2][4] = {{0, 0.05f, 0, 0.04f}, {0, 0.06f, 0.05f, 0.03f}};
static void kimi_per_layer(int64_t *v, int32_t i) { v['k'] = i != (v['g'] ? 3 : 2), v['x'] = i > 0; }
static double kimi_rate(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) rng, v['s'] ? -0.1 * (double) (i + 1) : 0.5 + 0.5 * (double) i;
}
#define KIMI_KEYS                                                                                                      \
    TEXT("general.name", "tiny"), NUM("", "block_count", "L"), NUM("", "context_length", "C"),                         \
        NUM("", "embedding_length", "E"), NUM("", "feed_forward_length", "F"), NUM("", "vocab_size", "V"),             \
        NUM("", "attention.head_count", "H"),                                                                          \
        NUM("", "attention.key_length", "A+R"), NUM("", "attention.value_length", "A"),                                \
        NUM("", "attention.key_length_mla", "K+R"), NUM("", "attention.value_length_mla", "O"),                        \
        NUM("", "attention.kv_lora_rank", "A"), NUM("q", "attention.q_lora_rank", "q"),                                \
        NUM("", "rope.dimension_count", "R"), REAL("attention.layer_norm_rms_epsilon", 1e-5f),                         \
        NUM("", "ssm.conv_kernel", "4"), NUM("", "kda.head_dim", "D"), NUM("", "expert_count", "Y"),                   \
        NUM("", "expert_used_count", "3"), NUM("", "expert_group_count", "I"),                                         \
        NUM("", "expert_group_used_count", "J"), NUM("", "expert_feed_forward_length", "Z"),                           \
        NUM("", "expert_shared_count", "S"), NUM("", "leading_dense_block_count", "1"),                                \
        NUM("", "expert_gating_func", "2"), {"", "expert_weights_norm", PI__GGUF_BOOL, "1", 0, NULL},                  \
        REAL("expert_weights_scale", 2.5f)
static const tiny_key kimi_keys[] = {KIMI_KEYS, LIST("attention.head_count_kv", I32, "L", kimi_kv), {0}};
static const tiny_key ling3_keys[] = {KIMI_KEYS,
                                      LIST("attention.head_count_kv", I32, "L", ling3_kv),
                                      NUM("", "expert_shared_feed_forward_length", "U"),
                                      REAL("rope.freq_base", 1e4f),
                                      {"", "kda.safe_gate", PI__GGUF_BOOL, "1", 0, NULL},
                                      REAL("kda.gate_lower_bound", -5),
                                      LIST("swiglu_clamp_exp", PI__GGUF_F32, "L", ling3_limits[0]),
                                      LIST("swiglu_clamp_shexp", PI__GGUF_F32, "L", ling3_limits[1]),
                                      {0}};
static const tiny_tensor kimi_layer[] = {
    T("", "attn_norm.weight", F32, "E"),
    T("k", "attn_q.weight", M, "E HD"), T("k", "attn_k.weight", M, "E HD"), T("k", "attn_v.weight", M, "E HD"),
    T("k", "ssm_conv1d_q.weight", F32, "4 1 HD"), T("k", "ssm_conv1d_k.weight", F32, "4 1 HD"),
    T("k", "ssm_conv1d_v.weight", F32, "4 1 HD"),
    T("ks", "ssm_f_a.weight", M, "E D"), T("ks", "ssm_f_b.weight", M, "D HD"), T("k!s", "ssm_f_a.weight", M, "E HD"),
    T("ks", "ssm_g_a.weight", M, "E D"), T("ks", "ssm_g_b.weight", M, "D HD"), T("k!s", "ssm_g_a.weight", M, "E HD"),
    T("k", "ssm_beta.weight", M, "E H"), {"k", "ssm_a", F32, "1 H", kimi_rate}, T("k", "ssm_dt.bias", B, "HD"),
    T("k", "ssm_norm.weight", F32, "D"), T("k", "attn_output.weight", M, "HD E"),
    T("!k!q", "attn_q.weight", M, "E HK+HR"), T("!kq", "attn_q_a.weight", M, "E q"),
    T("!kq", "attn_q_a_norm.weight", F32, "q"), T("!kq", "attn_q_b.weight", M, "q HK+HR"),
    T("!k", "attn_kv_a_mqa.weight", M, "E A+R"), T("!k", "attn_kv_a_norm.weight", F32, "A"),
    T("!k", "attn_k_b.weight", M, "K A H"), T("!k", "attn_v_b.weight", M, "A O H"),
    T("!kg", "attn_gate.weight", M, "E H"), T("!k", "attn_output.weight", M, "HO E"),
    T("", "ffn_norm.weight", F32, "E"), T("!x", "ffn_gate.weight", M, "E F"), T("!x", "ffn_up.weight", M, "E F"),
    T("!x", "ffn_down.weight", M, "F E"), T("x", "ffn_gate_inp.weight", F32, "E Y"), T("x", "exp_probs_b.bias", B, "Y"),
    T("x", "ffn_gate_exps.weight", M, "E Z Y"), T("x", "ffn_up_exps.weight", M, "E Z Y"),
    T("x", "ffn_down_exps.weight", M, "Z E Y"), T("x", "ffn_gate_shexp.weight", M, "E U"),
    T("x", "ffn_up_shexp.weight", M, "E U"), T("x", "ffn_down_shexp.weight", M, "U E"), {0}};
#define KIMI .head = ds2_head, .layer = kimi_layer, .per_layer = kimi_per_layer

/* ---- LFM2: every third layer has attention, the others a short convolution */

static const int32_t lfm2_kv[5] = {0, 0, 2, 0, 2};
static const tiny_key lfm2_keys[] = {TEXT("general.name", "tiny"),
                                     NUM("", "block_count", "L"),
                                     NUM("", "context_length", "C"),
                                     NUM("", "embedding_length", "E"),
                                     NUM("", "feed_forward_length", "M"),
                                     NUM("", "attention.head_count", "H"),
                                     LIST("attention.head_count_kv", I32, "L", lfm2_kv),
                                     REAL("attention.layer_norm_rms_epsilon", 1e-5f),
                                     REAL("rope.freq_base", 1e6f),
                                     NUM("", "shortconv.l_cache", "3"),
                                     NUM("Y", "expert_count", "Y"),
                                     NUM("Y", "expert_used_count", "3"),
                                     NUM("Y", "expert_feed_forward_length", "A"),
                                     NUM("Y", "leading_dense_block_count", "2"),
                                     NUM("Y", "expert_gating_func", "2"),
                                     {0}};
static void lfm2_per_layer(int64_t *v, int32_t i)
{
    v['x'] = v['Y'] && i >= 2, v['a'] = i < v['L'] && lfm2_kv[i] > 0;
}
static const tiny_tensor lfm2_head[] = {
    T("", "token_embd.weight", M, "E V"), T("", "token_embd_norm.weight", F32, "E"), {0}};
static const tiny_tensor lfm2_layer[] = {T("", "attn_norm.weight", F32, "E"),
                                         T("a", "attn_q.weight", M, "E HD"),
                                         T("a", "attn_k.weight", M, "E GD"),
                                         T("a", "attn_v.weight", M, "E GD"),
                                         T("a", "attn_q_norm.weight", F32, "D"),
                                         T("a", "attn_k_norm.weight", F32, "D"),
                                         T("a", "attn_output.weight", M, "HD E"),
                                         T("!a", "shortconv.in_proj.weight", M, "E 3E"),
                                         T("!a", "shortconv.conv.weight", F32, "3 E"),
                                         T("!a", "shortconv.out_proj.weight", M, "E E"),
                                         T("", "ffn_norm.weight", F32, "E"),
                                         T("!x", "ffn_gate.weight", M, "E M"),
                                         T("!x", "ffn_up.weight", M, "E M"),
                                         T("!x", "ffn_down.weight", M, "M E"),
                                         T("x", "ffn_gate_inp.weight", F32, "E Y"),
                                         T("x", "exp_probs_b.bias", B, "Y"),
                                         T("x", "ffn_gate_exps.weight", M, "E A Y"),
                                         T("x", "ffn_up_exps.weight", M, "E A Y"),
                                         T("x", "ffn_down_exps.weight", M, "A E Y"),
                                         {0}};

/* ---- gated: windows in some layers, gates of attention's output, experts after a lead layer. Layers with a window
 * have M heads and N KV heads of their own (0 = the same), and S rotated values. I, K: numbers of the other layers. Q:
 * the first layer of four has full attention, else the last; P: the file says so. O: size of a head of values (0 = D),
 * s: sinks in layers with a window, q: queries, keys and values are one matrix. g: one gate per value, h: per head; J:
 * rows of the gates' matrix. Y experts of size A, U shared ones in the metadata, Z F of the shared expert, o F of the
 * feed-forward; p norms after blocks, n norms on heads. Per layer: w window, t sinks, X experts, H, G, J. */

static const uint8_t gated_first[4] = {0, 1, 1, 1}, gated_last[4] = {1, 1, 1, 0};
static const int32_t gated_heads[4] = {4, 6, 6, 6}, gated_kv_heads[4] = {1, 2, 2, 2};
static void gated_per_layer(int64_t *v, int32_t i)
{
    v['w'] = v['Q'] ? i % 4 != 0 : i % 4 != 3, v['t'] = v['s'] && v['w'];
    v['H'] = v['w'] && v['M'] ? v['M'] : v['I'];
    v['G'] = v['w'] && v['N'] ? v['N'] : v['K'];
    v['J'] = v['g'] ? v['H'] * v['D'] : v['h'] ? v['H'] : 0;
    v['X'] = i >= v['B'] ? v['Y'] : 0, v['F'] = v['X'] ? v['A'] : v['o'], v['z'] = i >= v['L'] - v['T'];
}
/* Small outputs of blocks, so that the epsilon of the norm after them matters. */
static double muse_output(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) v, (void) i, 1e-3 * ((double) (tiny_random(rng) >> 7) / (1 << 23) - 1);
}
static double muse_query_norm(const int64_t *v, uint64_t *rng, int64_t i)
{
    return (void) v, (void) rng, (void) i, 1.5;
}
static double muse_key_norm(const int64_t *v, uint64_t *rng, int64_t i) { return (void) v, (void) rng, (void) i, 1; }
static const tiny_key nanbeige_keys[] = {REAL("attention.layer_norm_rms_epsilon", 1e-5f), NUM("", "num_loops", "3"),
                                         {0}};
static const tiny_key plain_keys[] = {REAL("attention.layer_norm_rms_epsilon", 1e-5f), REAL("rope.freq_base", 1e4f),
                                      {0}};
static const tiny_key stablelm_keys[] = {REAL("attention.layer_norm_epsilon", 1e-5f), REAL("rope.freq_base", 1e4f),
                                         NUM("", "rope.dimension_count", "8"), {0}};
static const tiny_key plamo3_keys[] = {REAL("attention.layer_norm_rms_epsilon", 1e-6f), REAL("rope.freq_base", 1.5e5f),
                                       REAL("rope.freq_base_swa", 1e3f), TEXT("rope.scaling.type", "yarn"),
                                       REAL("rope.scaling.factor", 8),
                                       NUM("", "rope.scaling.original_context_length", "64"), {0}};
static const tiny_key muse_keys[] = {REAL("logit_scale", 0.375f), REAL("final_logit_softcapping", 4), {0}};
static const tiny_key gated_keys[] = {TEXT("general.name", "tiny"),
                                      NUM("", "block_count", "L"),
                                      NUM("", "context_length", "C"),
                                      NUM("", "embedding_length", "E"),
                                      NUM("", "feed_forward_length", "o"),
                                      NUM("!M", "attention.head_count", "I"),
                                      {"M", "attention.head_count", I32, "L", 0, gated_heads},
                                      NUM("!N", "attention.head_count_kv", "K"),
                                      {"N", "attention.head_count_kv", I32, "L", 0, gated_kv_heads},
                                      NUM("", "attention.key_length", "D"),
                                      NUM("!O", "attention.value_length", "D"),
                                      NUM("O", "attention.value_length", "O"),
                                      {"O", "attention.value_scale", PI__GGUF_F32, NULL, 0.7f, NULL},
                                      NUM("W", "attention.sliding_window", "W"),
                                      {"PQ", "attention.sliding_window_pattern", U8, "L", 0, gated_first},
                                      {"P!Q", "attention.sliding_window_pattern", U8, "L", 0, gated_last},
                                      REAL("attention.layer_norm_rms_epsilon", 1e-5f),
                                      REAL("rope.freq_base", 1e4f),
                                      NUM("R", "rope.dimension_count", "R"),
                                      NUM("S", "rope.dimension_count_swa", "S"),
                                      {"S", "rope.freq_base_swa", PI__GGUF_F32, NULL, 1e3f, NULL},
                                      NUM("T", "nextn_predict_layers", "T"),
                                      NUM("Y", "expert_count", "Y"),
                                      NUM("Y", "expert_used_count", "3"),
                                      NUM("Y", "expert_feed_forward_length", "A"),
                                      NUM("U", "expert_shared_count", "U"),
                                      NUM("Z!U", "expert_shared_feed_forward_length", "Z"),
                                      NUM("Y", "leading_dense_block_count", "B"),
                                      NUM("Y", "expert_gating_func", "2"),
                                      {"Y", "expert_weights_norm", PI__GGUF_BOOL, "1", 0, NULL},
                                      {"Y", "expert_weights_scale", PI__GGUF_F32, NULL, 1.5f, NULL},
                                      {0}};
static const tiny_tensor gated_layer[] = {T("", "attn_norm.weight", F32, "E"),
                                          T("!q", "attn_q.weight", M, "E HD"),
                                          T("!q", "attn_k.weight", M, "E GD"),
                                          T("!q!O", "attn_v.weight", M, "E GD"),
                                          T("!qO", "attn_v.weight", M, "E GO"),
                                          T("q", "attn_qkv.weight", M, "E HD+GD+GO"),
                                          T("t", "attn_sinks.weight", B, "H"),
                                          T("n!v", "attn_q_norm.weight", F32, "D"),
                                          T("n!v", "attn_k_norm.weight", F32, "D"),
                                          {"nv", "attn_q_norm.weight", F32, "D", muse_query_norm},
                                          {"nv", "attn_k_norm.weight", F32, "D", muse_key_norm},
                                          T("J", "attn_gate.weight", M, "E J"),
                                          T("!O!v", "attn_output.weight", M, "HD E"),
                                          {"v", "attn_output.weight", M, "HD E", muse_output},
                                          T("O", "attn_output.weight", M, "HO E"),
                                          T("p", "post_attention_norm.weight", F32, "E"),
                                          T("", "ffn_norm.weight", F32, "E"),
                                          T("!X", "ffn_gate.weight", M, "E F"),
                                          T("!X", "ffn_up.weight", M, "E F"),
                                          T("!X!v", "ffn_down.weight", M, "F E"),
                                          {"v", "ffn_down.weight", M, "F E", muse_output},
                                          T("X", "ffn_gate_inp.weight", F32, "E X"),
                                          T("X!x", "exp_probs_b.bias", B, "X"),
                                          T("Xx", "exp_probs_b", B, "X"),
                                          T("X", "ffn_gate_exps.weight", M, "E F X"),
                                          T("X", "ffn_up_exps.weight", M, "E F X"),
                                          T("X", "ffn_down_exps.weight", M, "F E X"),
                                          T("XZ", "ffn_gate_shexp.weight", M, "E Z"),
                                          T("XZ", "ffn_up_shexp.weight", M, "E Z"),
                                          T("XZ", "ffn_down_shexp.weight", M, "Z E"),
                                          T("p", "post_ffw_norm.weight", F32, "E"),
                                          T("z", "nextn.eh_proj.weight", M, "2E E"),
                                          T("z", "nextn.enorm.weight", F32, "E"),
                                          T("z", "nextn.hnorm.weight", F32, "E"),
                                          T("z", "nextn.shared_head_norm.weight", F32, "E"),
                                          {0}};
static const tiny_key laguna_keys[] = {TEXT("rope.scaling.type", "yarn"), REAL("rope.scaling.factor", 8),
                                       NUM("", "rope.scaling.original_context_length", "64"),
                                       REAL("rope.scaling.yarn_attn_factor", 1.25f),
                                       REAL("rope.scaling.yarn_beta_fast", 32),
                                       REAL("rope.scaling.yarn_beta_slow", 1), {0}};
/* limits low enough that small values reach them; 0 = no limit */
static const float step35_limits[2][4] = {{0, 0.05f, 0, 0.04f}, {0.06f, 0, 0.05f, 0.03f}};
static const tiny_key step35_keys[] = {LIST("swiglu_clamp_exp", PI__GGUF_F32, "L", step35_limits[0]),
                                       LIST("swiglu_clamp_shexp", PI__GGUF_F32, "L", step35_limits[1]), {0}};
#define GATED .keys = gated_keys, .head = dense_head, .layer = gated_layer, .per_layer = gated_per_layer, .rng = 61

/* ---- rows */

#define LFM2 .keys = lfm2_keys, .head = lfm2_head, .layer = lfm2_layer, .per_layer = lfm2_per_layer, .vocab = "lfm2"

#define MLA .keys = ds2_keys, .head = ds2_head, .layer = ds2_layer, .per_layer = ds2_per_layer
#define DS2 MLA, .arch = "deepseek2"

#define DENSE .keys = dense_keys, .head = dense_head, .layer = dense_layer, .rng = UINT64_C(0x9E3779B97F4A7C15) + 1
#define LLAMA DENSE, .arch = "llama"
#define SHELF DENSE, .more_keys = shelf_keys
#define SHELF_MOE SHELF, .per_layer = shelf_per_layer
#define HYBRID .head = dense_head, .layer = hybrid_layer, .rng = 61
#define MAMBA .head = dense_head, .layer = mamba_layer, .per_layer = mamba_per_layer, .rng = 67
#define NEMOTRON HYBRID, .keys = nemotron_keys, .per_layer = nemotron_per_layer, .vocab = "tekken"
#define NEMOTRON_SIZES "L=5 E=96 H=4 G=2 D=32 Q=4 P=48 B=2 S=32 N=96 n=1 d=1 u=1"
#define BERT .keys = bert_keys, .head = bert_head, .layer = bert_layer, .per_layer = bert_per_layer, .rng = 17
#define T5 .keys = dense_keys, .more_keys = t5_keys, .head = neo_head, .layer = t5_layer, .per_layer = t5_per_layer, \
           .vocab = "t5", .rng = 73, .prefix = "enc.blk."
#define Q35 .keys = q35_keys, .head = q35_head, .layer = q35_layer, .per_layer = q35_per_layer, .vocab = "spm", \
            .type = Q8, .rng = 11
#define Q35_SIZES "L=5 E=64 H=4 G=2 D=32 T=2 U=4 F=96 X=6 Y=32 Z=64"
#define DFLASH .keys = dflash_keys, .head = dflash_head, .layer = dflash_layer, .vocab = "spm", .type = Q8, .rng = 31, \
               .sizes = "L=2 E=64 B=64 H=4 G=2 D=32 F=96 W=24 N=3 O=-1"
#define DS4 .arch = "deepseek4", .keys = ds4_keys, .layer = ds4_layer, .per_layer = ds4_per_layer, .vocab = "spm"
#define DS4_SIZES "E=64 H=4 D=48 K=32 Q=2 O=24 I=17 J=32 X=5 T=2 F=32 W=24"

/* Classifier heads for any architecture. */
const tiny_tensor tiny_classifier[] = {
    T("jq", "cls.weight", M, "E q"), T("jqy", "cls.bias", B, "q"), T("jq", "cls.output.weight", M, "q j"),
    T("j!q", "cls.output.weight", M, "E j"), T("jy", "cls.output.bias", B, "j"), {0}};

const tiny_row tiny_rows[] = {
    {"gemma3", DENSE, .more_keys = gemma3_keys, .vocab = "spm",
     .sizes = "L=3 E=64 H=2 G=1 D=32 F=96 W=32 P=3 k=1 n=1 p=1"},
    /* EmbeddingGemma; a=1: with dense heads */
    {"gemma-embedding", DENSE, .more_keys = embedding_keys, .vocab = "spm",
     .sizes = "L=3 E=64 H=2 G=1 D=32 F=96 W=40 P=3 k=1 n=1 p=1"},
    {"bert", BERT, .vocab = "wpm", .sizes = "L=3 E=96 H=3 D=32 F=160 b=1 A=2"},
    {"nomic-bert", BERT, .vocab = "wpm", .sizes = "L=2 E=128 H=4 D=32 F=96 f=1 A=2"},
    {"jina-bert-v3", BERT, .vocab = "wpm", .sizes = "L=2 E=128 H=4 D=32 F=96 b=1 f=1 r=1 A=1"},
    {"modern-bert", .keys = dense_keys, .more_keys = modern_keys, .head = modern_head, .layer = modern_layer,
     .per_layer = modern_per_layer, .vocab = "modern-bert", .rng = 41, .sizes = "L=4 E=128 H=4 G=4 D=32 F=96 W=32 P=3"},
    {"eurobert", SHELF, .vocab = "llama-bpe", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 k=1"},
    {"nomic-bert-moe", BERT, .vocab = "t5", .sizes = "L=3 E=128 H=4 D=32 F=96 X=5 b=1 f=1 r=1 A=1"},
    {"jina-bert-v2", BERT, .vocab = "wpm", .sizes = "L=2 E=96 H=3 D=32 F=96 b=1 l=1 A=2"},
    {"jina-bert-v2-code", BERT, .arch = "jina-bert-v2", .vocab = "jina-v2-code",
     .sizes = "L=2 E=128 H=4 D=32 F=96 b=1 l=1 c=1 s=1 A=2"},
    {"neo-bert", .keys = dense_keys, .more_keys = neo_keys, .head = neo_head, .layer = modern_layer, .vocab = "wpm",
     .rng = 79, .sizes = "L=3 E=128 H=4 G=4 D=32 F=96 i=1"},
    /* T5 and UMT5 */
    {"t5encoder", T5, .sizes = "L=3 E=96 H=4 G=4 D=32 F=128 S=32 k=1 d=1"},
    {"t5encoder-gated", T5, .arch = "t5encoder", .sizes = "L=2 E=128 H=3 G=3 D=32 F=96 S=32 k=1 u=1"},
    {"gemma4", .keys = g4_keys, .head = g4_head, .layer = g4_layer, .per_layer = g4_per_layer, .vocab = "spm",
     .type = Q8, .rng = 7, .sizes = "L=6 E=64 H=4 D=64 S=32 W=40 P=32 X=5 Y=32"},
    {"gemma4-e", .arch = "gemma4", .keys = g4e_keys, .head = g4_head, .layer = g4_layer, .per_layer = g4e_per_layer,
     .vocab = "spm", .rng = 53, .sizes = "L=6 E=64 H=4 G=2 D=64 S=32 W=40 F=96 P=32 e=1"},
    {"gemma4-vision", .arch = "gemma4", .keys = g4e_keys, .head = g4_head, .layer = g4_layer,
     .per_layer = g4e_per_layer, .vocab = "spm", .rng = 59, .sizes = "L=6 E=64 H=4 G=2 D=64 S=32 W=40 F=96 e=1"},
    {"gemma4-assistant", .keys = assistant_keys, .head = assistant_head, .layer = assistant_layer,
     .tail = assistant_tail, .per_layer = assistant_per_layer, .vocab = "spm", .type = Q8, .rng = 21,
     .sizes = "L=2 E=32 B=64 F=64 H=4 D=64 S=32 W=40 N=V O=-1"},
    {"dflash", DFLASH},
    {"gemma4-dflash-draft", DFLASH},
    {"qwen35-dflash-draft", DFLASH},
    {"qwen35", Q35, .sizes = Q35_SIZES},
    {"qwen35moe", Q35, .sizes = Q35_SIZES " x=1"},
    {"qwen3next", .keys = q35_keys, .head = q35_head, .layer = q35_layer, .per_layer = q35_per_layer, .vocab = "qwen2",
     .rng = 17, .sizes = Q35_SIZES " x=1 e=1"},
    {"qwen3next-whole", .arch = "qwen3next", .keys = q35_keys, .head = q35_head, .layer = q35_layer,
     .per_layer = q35_per_layer, .vocab = "qwen2", .rng = 19, .sizes = Q35_SIZES " x=1 e=1 w=1"},
    {"lfm2", LFM2, .rng = 43, .sizes = "L=5 E=128 H=4 G=2 D=32 M=160"},
    {"lfm2moe", LFM2, .rng = 47, .sizes = "L=5 E=128 H=4 G=2 D=32 M=160 Y=8 A=64"},
    {"deepseek4", DS4, .head = ds4_head, .tail = ds4_tail, .rng = 11, .sizes = "L=4 " DS4_SIZES},
    {"deepseek4-draft", DS4, .tail = ds4_draft_tail, .rng = 13, .first = 4, .sizes = "L=5 " DS4_SIZES},
    {"deepseek4-mtp", DS4, .tail = ds4_mtp_tail, .rng = 13, .first = 4, .prefix = "mtp.0.", .sizes = "L=5 " DS4_SIZES},
    /* V3; V2 without a query rank, as in V2-Lite; lite: also without groups */
    {"deepseek3", DS2, .vocab = "deepseek-v3", .rng = 23,
     .sizes = "L=4 E=96 H=4 q=64 K=32 O=32 R=16 A=64 F=96 Y=8 Z=32 I=4 J=2 S=1 v=1 N=1"},
    {"deepseek2", DS2, .vocab = "deepseek-llm", .rng = 29,
     .sizes = "L=3 E=96 H=3 K=32 O=64 R=16 A=96 F=96 Y=9 Z=32 I=3 J=1 S=2"},
    {"deepseek2-old", DS2, .vocab = "deepseek-llm", .rng = 31,
     .sizes = "L=3 E=96 H=3 K=32 O=64 R=16 A=96 F=96 Y=9 Z=32 I=3 J=1 S=2 o=1"},
    {"deepseek2-lite", DS2, .vocab = "deepseek-llm", .rng = 37,
     .sizes = "L=2 E=64 H=2 K=48 O=32 R=16 A=64 F=96 Y=6 Z=32 I=1 J=1 S=2"},
    /* m: Mistral Small 4. i: with an indexer of i heads of d values, which selects t rows; g: in some layers only. With
     * few heads, many rows have a score of 0, and references select others of these. */
    {"mistral4", MLA, .vocab = "tekken", .rng = 61,
     .sizes = "L=3 E=96 H=4 q=64 K=32 O=32 R=16 A=64 F=96 Y=8 Z=32 I=1 J=1 S=1 m=1"},
    {"deepseek32", MLA, .vocab = "deepseek-v3", .rng = 67,
     .sizes = "L=3 E=96 H=4 q=64 K=32 O=32 R=16 A=64 F=96 Y=8 Z=32 I=4 J=2 S=1 v=1 i=24 d=48 t=24"},
    {"glm-dsa", MLA, .vocab = "glm4", .rng = 71,
     .sizes = "L=4 E=96 H=4 q=64 K=48 O=64 R=16 A=64 F=96 Y=8 Z=32 I=1 J=1 S=1 v=1 i=20 d=32 t=20 g=1"},
    {"kimi-linear", KIMI, .keys = kimi_keys, .vocab = "kimi-k2", .rng = 73,
     .sizes = "L=4 E=96 H=3 D=32 K=32 O=32 R=16 A=64 F=96 Y=8 Z=32 I=1 J=1 S=1 U=32 s=1"},
    {"bailingmoe3", KIMI, .keys = ling3_keys, .vocab = "bailingmoe2", .rng = 79,
     .sizes = "L=4 E=96 H=2 D=64 q=64 K=48 O=64 R=16 A=64 F=96 Y=8 Z=32 I=4 J=2 S=1 U=64 g=1"},
    /* Llama 2, Llama 3.1 (scaled rotation, an output matrix) and 3.2 (head size differs from E/H). Mistral 7B v0.1 (a
     * window in all layers), Ministral 3, Mixtral (experts), SmolLM2; also one with biases and q, k, v stacked in one
     * matrix. */
    {"llama2", LLAMA, .more_keys = llama_keys, .vocab = "spm", .sizes = "L=3 E=64 H=2 G=2 D=32 F=96 u=1"},
    {"llama3", LLAMA, .more_keys = llama3_keys, .vocab = "llama-bpe",
     .sizes = "L=3 E=128 H=4 G=2 D=32 F=128 u=1 r=1 R=16"},
    {"llama32", LLAMA, .more_keys = llama3_keys, .vocab = "llama-bpe",
     .sizes = "L=2 E=96 H=2 G=1 D=64 F=128 k=1 r=1 R=32"},
    {"mistral", LLAMA, .more_keys = llama_keys, .vocab = "spm", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 W=40 u=1"},
    {"mistral3", DENSE, .more_keys = mistral3_keys, .vocab = "spm", .sizes = "L=3 E=96 H=4 G=2 D=32 F=96 O=48 k=1 u=1"},
    {"mixtral", LLAMA, .more_keys = llama_keys, .vocab = "spm", .sizes = "L=2 E=64 H=2 G=1 D=32 F=96 X=4 u=1"},
    {"llama-bias", LLAMA, .more_keys = llama_keys, .vocab = "spm", .sizes = "L=2 E=128 H=4 G=2 D=32 F=96 b=1 f=1"},
    {"smollm", LLAMA, .more_keys = llama_keys, .vocab = "smollm", .sizes = "L=3 E=192 H=3 G=1 D=64 F=128"},
    /* small models have no output matrix, large ones have one */
    {"qwen2", DENSE, .more_keys = gemma3_keys, .vocab = "qwen2", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 b=1"},
    {"qwen2-large", DENSE, .arch = "qwen2", .more_keys = gemma3_keys, .vocab = "qwen2",
     .sizes = "L=2 E=64 H=2 G=1 D=32 F=96 b=1 u=1"},
    {"qwen3", DENSE, .more_keys = gemma3_keys, .vocab = "qwen2", .sizes = "L=3 E=96 H=4 G=2 D=32 F=96 k=1 n=1"},
    {"qwen3-large", DENSE, .arch = "qwen3", .more_keys = gemma3_keys, .vocab = "qwen2",
     .sizes = "L=2 E=64 H=2 G=1 D=64 F=96 k=1 n=1 u=1"},
    {"qwen3moe", DENSE, .more_keys = qwen3moe_keys, .vocab = "qwen2",
     .sizes = "L=3 E=96 H=4 G=2 D=32 F=64 X=8 k=1 n=1 u=1"},
    {"qwen2vl", DENSE, .more_keys = vl_keys, .vocab = "qwen2", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 b=1"},
    {"qwen3vl", DENSE, .more_keys = vl_keys, .vocab = "qwen2", .sizes = "L=4 E=96 H=4 G=2 D=32 F=96 k=1 n=1 y=2"},
    {"qwen3vlmoe", DENSE, .more_keys = vl_keys, .vocab = "qwen2",
     .sizes = "L=3 E=96 H=4 G=2 D=32 F=64 X=8 k=1 n=1 u=1 y=1"},
    /* Phi 3 mini for 4k; 4-mini first with a context up to its training length, then with a longer one */
    {"phi3", DENSE, .more_keys = phi3_keys, .vocab = "spm",
     .sizes = "L=3 E=96 H=3 G=3 D=32 F=96 R=16 W=40 f=1 c=1 u=1"},
    {"phi3-short", DENSE, .arch = "phi3", .more_keys = phi3_keys, .vocab = "llama-bpe",
     .sizes = "L=2 E=128 H=4 G=2 D=32 F=96 R=12 O=512 f=1 c=1 l=1"},
    {"phi3-long", DENSE, .arch = "phi3", .more_keys = phi3_keys, .vocab = "llama-bpe",
     .sizes = "L=2 E=128 H=4 G=2 D=32 F=96 R=12 O=128 f=1 c=1 l=1"},
    {"gpt-oss", DENSE, .more_keys = oss_keys, .vocab = "gpt-4o",
     .sizes = "L=4 E=96 H=4 G=2 D=32 F=64 X=6 W=40 k=1 b=1 h=1 o=1 u=1"},
    /* GLM 4.6: one layer without experts, and a draft head after the last layer */
    {"glm4moe", DENSE, .more_keys = glm4moe_keys, .per_layer = glm_per_layer, .vocab = "glm4",
     .sizes = "L=4 E=96 H=4 G=2 D=32 F=96 Y=8 Z=64 R=16 N=1 k=1 b=1 n=1 h=1 u=1"},
    {"minimax-m2", DENSE, .more_keys = minimax_keys, .vocab = "minimax-m2",
     .sizes = "L=3 E=96 H=6 G=2 D=32 F=64 X=8 R=16 k=1 w=1 u=1"},
    /* Granite 3 and 4; variants without rotation, with biases, and with experts plus a shared expert */
    {"granite", DENSE, .more_keys = granite_keys, .vocab = "refact", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96"},
    {"granite-nope", DENSE, .arch = "granite", .more_keys = granite_keys, .vocab = "refact",
     .sizes = "L=2 E=96 H=3 G=1 D=32 F=96 v=1 u=1 b=1"},
    {"granitemoe", DENSE, .more_keys = granite_keys, .vocab = "refact",
     .sizes = "L=2 E=128 H=4 G=2 D=32 F=64 X=5 Z=96"},
    /* smaller architectures: olmo2 as OLMo 2 and OLMo 3, exaone4 as the small and the large kind */
    {"smollm3", SHELF, .vocab = "llama-bpe", .sizes = "L=4 E=128 H=4 G=2 D=32 F=96 R=D"},
    {"seed_oss", SHELF, .vocab = "seed-coder", .sizes = "L=3 E=96 H=4 G=2 D=32 F=96 k=1 b=1 h=1 u=1"},
    {"olmo2", SHELF, .vocab = "dbrx", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 m=1 p=1 w=1 u=1"},
    {"olmo3", SHELF, .arch = "olmo2", .vocab = "dbrx",
     .sizes = "L=4 E=128 H=4 G=2 D=32 F=96 W=40 Q=1 O=48 m=1 p=1 w=1 u=1"},
    {"exaone4", SHELF, .vocab = "exaone4", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 k=1 m=1 p=1 n=1"},
    {"exaone4-large", SHELF, .arch = "exaone4", .vocab = "exaone4",
     .sizes = "L=4 E=128 H=4 G=2 D=32 F=96 k=1 m=1 p=1 n=1 W=40 Q=1 u=1"},
    {"glm4", SHELF, .vocab = "glm4", .sizes = "L=3 E=96 H=4 G=2 D=32 F=96 R=16 k=1 b=1 p=1 c=1 u=1"},
    {"ernie4_5", SHELF, .vocab = "spm", .sizes = "L=3 E=96 H=4 G=2 D=32 F=96 k=1"},
    {"ernie4_5-moe", SHELF_MOE, .vocab = "spm",
     .sizes = "L=4 E=128 H=4 G=2 D=32 F=256 M=256 Y=8 A=64 B=1 S=2 Z=128 U=2 T=1 t=1"},
    {"hunyuan-dense", SHELF, .vocab = "hunyuan-dense", .sizes = "L=3 E=96 H=4 G=2 D=32 F=96 k=1 n=1"},
    {"hunyuan-moe", SHELF_MOE, .vocab = "hunyuan",
     .sizes = "L=2 E=128 H=4 G=2 D=32 F=96 M=96 Y=6 A=96 Z=96 U=1 T=1 n=1"},
    {"dots1", SHELF_MOE, .vocab = "qwen2",
     .sizes = "L=3 E=96 H=4 G=4 D=32 F=96 M=96 Y=8 A=64 B=1 Z=64 U=1 T=1 x=1 t=1 k=1 n=1 u=1"},
    {"bailingmoe2", SHELF_MOE, .vocab = "bailingmoe2",
     .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 M=96 Y=8 A=64 B=1 Z=64 U=1 T=1 K=4 J=2 R=16 x=1 t=1 k=1 n=1 f=1 u=1"},
    {"qwen2moe", SHELF_MOE, .vocab = "qwen2",
     .sizes = "L=2 E=128 H=4 G=4 D=32 F=96 M=96 Y=8 A=64 Z=96 T=1 g=1 b=1 u=1"},
    {"arcee", SHELF, .vocab = "llama-bpe", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 R=D d=1 u=1"},
    {"apertus", DENSE, .more_keys = apertus_keys, .vocab = "tekken",
     .sizes = "L=2 E=128 H=4 G=2 D=32 F=96 d=1 n=1 u=1"},
    {"starcoder2", SHELF, .vocab = "starcoder", .sizes = "L=3 E=128 H=4 G=2 D=32 F=128 I=1 d=1 e=1 b=1"},
    {"command-r", DENSE, .more_keys = cohere_keys, .vocab = "command-r", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 i=1"},
    {"cohere2", DENSE, .more_keys = cohere_keys, .vocab = "command-r",
     .sizes = "L=4 E=128 H=4 G=2 D=32 F=96 i=1 W=40"},
    {"mellum", SHELF_MOE, .vocab = "mellum2",
     .sizes = "L=4 E=96 H=4 G=2 D=32 F=96 M=96 Y=8 A=64 W=40 Q=1 N=1 k=1 n=1 u=1"},
    /* Granite 4 H with experts and without rotation, and its dense kind with rotation; Nemotron-H, Nemotron 3 Nano and
     * Super; Falcon-H1 without and with a norm of the mixer's output; Mamba-2 */
    {"granitehybrid", HYBRID, .keys = granite_hybrid_keys, .more_keys = granite_keys,
     .per_layer = granite_hybrid_per_layer, .vocab = "refact",
     .sizes = "L=3 E=96 H=3 G=1 D=32 F=64 X=5 Z=96 Q=6 P=32 B=1 S=64 N=192 n=1 v=1"},
    {"granitehybrid-dense", HYBRID, .arch = "granitehybrid", .keys = granite_hybrid_keys, .more_keys = granite_keys,
     .per_layer = granite_hybrid_per_layer, .vocab = "refact",
     .sizes = "L=3 E=128 H=4 G=1 D=32 F=96 Q=4 P=64 B=1 S=128 N=256 n=1"},
    {"nemotron_h", NEMOTRON, .sizes = NEMOTRON_SIZES " F=96"},
    {"nemotron_h_moe", NEMOTRON, .sizes = NEMOTRON_SIZES " F=64 X=6 Z=96"},
    {"nemotron_h_moe-latent", NEMOTRON, .arch = "nemotron_h_moe", .sizes = NEMOTRON_SIZES " F=64 X=6 Z=96 K=64"},
    {"falcon-h1", HYBRID, .keys = falcon_h1_keys, .per_layer = all_per_layer, .vocab = "falcon-h1",
     .sizes = "L=2 E=96 H=4 G=2 D=32 F=96 Q=4 P=32 B=2 S=32 N=64 h=1 u=1"},
    {"falcon-h1-norm", HYBRID, .arch = "falcon-h1", .keys = falcon_h1_keys, .per_layer = all_per_layer,
     .vocab = "falcon-h1", .sizes = "L=2 E=96 H=4 G=2 D=32 F=96 Q=2 P=64 B=1 S=256 N=128 h=1 u=1 n=1"},
    {"mamba2", HYBRID, .keys = mamba2_keys, .per_layer = all_per_layer, .vocab = "olmo",
     .sizes = "L=3 E=64 Q=4 P=32 B=1 S=32 N=128 H=0 F=0 n=1"},
    {"mamba", MAMBA, .keys = mamba_keys, .vocab = "olmo", .sizes = "L=3 E=64 Q=128 S=16 R=16 H=0 F=0"},
    {"falcon-mamba", MAMBA, .arch = "mamba", .keys = mamba_keys, .vocab = "falcon",
     .sizes = "L=3 E=96 Q=192 S=16 R=32 H=0 F=0 i=1 u=1"},
    {"jamba", MAMBA, .keys = jamba_keys, .vocab = "spm",
     .sizes = "L=4 E=96 Q=192 S=16 R=32 H=3 G=1 D=32 F=64 X=5 Y=2 n=1 u=1"},
    {"jamba-dense", MAMBA, .arch = "jamba", .keys = jamba_keys, .vocab = "spm",
     .sizes = "L=4 E=64 Q=128 S=16 R=16 H=2 G=1 D=32 F=96 X=1 Y=1 n=1"},
    {"minicpm", DENSE, .more_keys = granite_keys, .vocab = "spm", .sizes = "L=3 E=128 H=4 G=4 D=32 F=96"},
    {"nanbeige", DENSE, .more_keys = nanbeige_keys, .vocab = "spm", .sizes = "L=2 E=96 H=3 G=1 D=32 F=96 u=1"},
    {"gemma", DENSE, .more_keys = plain_keys, .vocab = "spm", .sizes = "L=2 E=96 H=3 G=1 D=64 F=96 k=1"},
    /* K: no correction of the router; norms named without a suffix; with e, only the norms have biases; with b, the
     * output has one, too */
    {"olmoe", DENSE, .more_keys = plain_keys, .vocab = "olmo",
     .sizes = "L=3 E=128 H=4 G=2 D=32 F=64 X=8 w=1 K=1 u=1"},
    {"jais2", SHELF, .vocab = "jais-2", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 I=1 d=1 e=1 b=1 u=1"},
    {"stablelm", DENSE, .more_keys = stablelm_keys, .vocab = "stablelm2",
     .sizes = "L=3 E=128 H=4 G=4 D=32 F=96 e=1 b=1 K=1 u=1"},
    {"pangu-embedded", DENSE, .more_keys = plain_keys, .vocab = "spm", .sizes = "L=2 E=96 H=3 G=1 D=32 F=96 b=1 K=1"},
    {"internlm2", DENSE, .more_keys = plain_keys, .vocab = "spm", .sizes = "L=2 E=96 H=3 G=1 D=32 F=96 u=1"},
    {"nemotron", SHELF, .vocab = "llama-bpe", .sizes = "L=3 E=128 H=4 G=2 D=32 F=96 R=16 I=1 d=1 e=1 b=1 u=1"},
    {"exaone-moe", GATED, .vocab = "exaone-moe",
     .sizes = "L=4 E=96 I=4 K=2 D=32 o=96 Y=8 A=64 B=1 Z=128 W=40 P=1 n=1 u=1"},
    {"plamo3", DENSE, .more_keys = plamo3_keys, .vocab = "plamo2",
     .sizes = "L=4 E=96 H=4 G=2 D=32 F=96 W=40 P=3 k=1 n=1 p=1 f=1 c=1 K=1"},
    {"gemma2", DENSE, .more_keys = gemma2_keys, .vocab = "spm", .sizes = "L=4 E=96 H=4 G=2 D=32 F=96 W=24 k=1 p=1"},
    {"phimoe", DENSE, .more_keys = phimoe_keys, .vocab = "spm",
     .sizes = "L=3 E=128 H=4 G=2 D=32 F=64 X=8 R=16 O=512 l=1 e=1 b=1 u=1"},
    {"granite_swa", DENSE, .more_keys = granite_keys, .vocab = "refact",
     .sizes = "L=4 E=128 H=4 G=2 D=32 F=96 W=40 Q=1 S=1"},
    {"granite_swa-moe", DENSE, .arch = "granite_swa", .more_keys = granite_keys, .vocab = "refact",
     .sizes = "L=4 E=128 H=4 G=2 D=32 F=64 X=5 Z=96 W=40 Q=1 S=1 c=1"},
    {"afmoe", GATED, .vocab = "afmoe",
     .sizes = "L=4 E=96 I=4 K=2 D=32 R=D o=96 Y=8 A=64 B=1 U=2 Z=128 W=40 g=1 n=1 p=1 u=1"},
    {"muse-glimmer", GATED, .vocab = "llama4", .more_keys = muse_keys,
     .sizes = "L=4 E=96 I=4 K=2 D=32 R=D o=96 W=40 P=1 g=1 n=1 v=1 p=1 u=1"},
    {"laguna", GATED, .vocab = "laguna", .more_keys = laguna_keys,
     .sizes = "L=4 E=96 I=4 M=6 K=2 D=32 R=16 S=32 o=96 Y=8 A=64 B=1 Z=96 W=40 Q=1 h=1 n=1 u=1"},
    {"laguna-full", GATED, .arch = "laguna", .vocab = "laguna",
     .sizes = "L=3 E=96 I=4 K=2 D=32 R=D o=96 Y=8 A=64 B=1 Z=96 g=1 n=1 u=1"},
    {"step35", GATED, .vocab = "deepseek-v3", .more_keys = step35_keys,
     .sizes = "L=4 E=96 I=4 M=6 K=2 D=32 R=D S=D o=128 Y=8 A=96 B=1 Z=64 W=40 P=1 Q=1 h=1 n=1 u=1"},
    {"mimo2", GATED, .vocab = "qwen2",
     .sizes = "L=4 E=96 I=4 K=1 N=2 D=64 O=32 R=16 S=16 o=96 Y=8 A=64 B=1 W=40 P=1 Q=1 s=1 u=1"},
    {"mimo2-stacked", GATED, .arch = "mimo2", .vocab = "qwen2",
     .sizes = "L=4 E=96 I=4 K=1 N=2 D=64 O=32 R=16 S=16 o=96 Y=8 A=64 B=1 W=40 P=1 Q=1 s=1 q=1 u=1"},
    {"hy_v3", GATED, .vocab = "hunyuan",
     .sizes = "L=4 T=1 E=96 I=4 K=2 D=32 R=D o=96 Y=8 A=64 B=1 Z=128 n=1 x=1 u=1"},
};
const size_t tiny_n_rows = sizeof tiny_rows / sizeof *tiny_rows;
