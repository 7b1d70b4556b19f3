/* A random qwen35 or qwen35moe model that is small enough for tests: delta nets (also as the last layer) and attention, a
 * draft head behind them, tied output or not, experts in both ways of storing gate and up. Vocabulary: tiny_model.h's. */
#ifndef TINY_QWEN35_H
#define TINY_QWEN35_H

#include "tiny_model.h"

enum { TQ_LAYERS = 4, TQ_EMBD = 64, TQ_HEADS = 4, TQ_KV = 2, TQ_DIM = 32, TQ_ROT = 8, TQ_K = 2, TQ_V = 4, TQ_FF = 96,
       TQ_EXPERTS = 6, TQ_FF_EXP = 32, TQ_FF_SHARED = 64 };
static const uint8_t tq_recurrent[TQ_LAYERS + 1] = {1, 1, 0, 1, 0}; /* the last one is the draft head */

static inline void tq_put_u32(pi__gguf_writer *w, const char *arch, const char *name, int32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    tiny_put_u32(w, key, v);
}

static inline void tq_params(pi__gguf_writer *w, bool moe, int32_t ctx)
{
    static const struct { const char *name; int32_t v; int in; } list[] = { /* in: 0 both, 1 dense, 2 experts */
        {"block_count", TQ_LAYERS + 1, 0}, {"nextn_predict_layers", 1, 0}, {"embedding_length", TQ_EMBD, 0},
        {"attention.head_count", TQ_HEADS, 0}, {"attention.head_count_kv", TQ_KV, 0}, {"attention.key_length", TQ_DIM, 0},
        {"attention.value_length", TQ_DIM, 0}, {"rope.dimension_count", TQ_ROT, 0}, {"ssm.conv_kernel", 4, 0},
        {"ssm.state_size", TQ_DIM, 0}, {"ssm.group_count", TQ_K, 0}, {"ssm.time_step_rank", TQ_V, 0},
        {"ssm.inner_size", TQ_V * TQ_DIM, 0}, {"feed_forward_length", TQ_FF, 1}, {"expert_count", TQ_EXPERTS, 2},
        {"expert_used_count", 2, 2}, {"expert_feed_forward_length", TQ_FF_EXP, 2},
        {"expert_shared_feed_forward_length", TQ_FF_SHARED, 2}};
    const char *arch = moe ? "qwen35moe" : "qwen35";
    pi__str a = tiny_str(arch), name = tiny_str("tiny");
    float eps = 1e-6f, base = 1e7f;
    char key[96];
    pi__gguf_put(w, "general.architecture", PI__GGUF_STR, &a);
    pi__gguf_put(w, "general.name", PI__GGUF_STR, &name);
    tq_put_u32(w, arch, "context_length", ctx);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].in != (moe ? 1 : 2)) tq_put_u32(w, arch, list[i].name, list[i].v);
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", arch);
    pi__gguf_put_arr(w, key, PI__GGUF_BOOL, TQ_LAYERS + 1, tq_recurrent);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    pi__gguf_put(w, key, PI__GGUF_F32, &eps);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    pi__gguf_put(w, key, PI__GGUF_F32, &base);
}

/* n1 0: a vector; n2: stacked matrices. */
static inline int tq_tensor(pi__gguf_writer *w, bool data, uint64_t *rng, const char *name, int32_t type, int64_t n0,
                            int64_t n1, int64_t n2, pi_error *err)
{
    const int64_t ne[3] = {n0, n1, n2};
    if (data && strstr(name, "ssm_a") && !n1) { /* negative, or states grow without end */
        float a[TQ_V];
        for (int i = 0; i < TQ_V; i++) a[i] = -0.1f * (float) (i + 1);
        return pi__gguf_writer_data(w, a, sizeof a, err);
    }
    if (data || !n2) return tiny_tensor(w, data, rng, name, type, n0, n2 ? n1 * n2 : n1, err);
    pi__gguf_put_tensor(w, name, type, 3, ne);
    return PI_OK;
}

static inline int tq_layer(pi__gguf_writer *w, bool data, uint64_t *rng, bool moe, int32_t i, pi_error *err)
{
    const int64_t E = TQ_EMBD, D = TQ_DIM, Q = TQ_HEADS * D, KV = TQ_KV * D, V = TQ_V, C = (2 * TQ_K + TQ_V) * D;
    const int64_t F = TQ_FF, G = TQ_FF_EXP, S = TQ_FF_SHARED, X = TQ_EXPERTS;
    const int32_t q8 = PI__Q8_0, f32 = PI__F32;
    const bool delta = tq_recurrent[i], attn = !delta, draft = i == TQ_LAYERS, fused = i == 1;
    const struct { const char *name; bool there; int32_t type; int64_t n0, n1, n2; } list[] = {
        {"attn_norm.weight", true, f32, E, 0, 0}, {"post_attention_norm.weight", true, f32, E, 0, 0},
        {"attn_q.weight", attn, q8, E, 2 * Q, 0}, {"attn_k.weight", attn, q8, E, KV, 0}, {"attn_v.weight", attn, q8, E, KV, 0},
        {"attn_q_norm.weight", attn, f32, D, 0, 0}, {"attn_k_norm.weight", attn, f32, D, 0, 0},
        {"attn_output.weight", attn, q8, Q, E, 0}, {"attn_qkv.weight", delta, q8, E, C, 0},
        {"attn_gate.weight", delta, q8, E, V * D, 0}, {"ssm_alpha.weight", delta, q8, E, V, 0},
        {"ssm_beta.weight", delta, q8, E, V, 0}, {"ssm_conv1d.weight", delta, f32, 4, C, 0},
        {"ssm_dt.bias", delta, f32, V, 0, 0}, {"ssm_a", delta, f32, V, 0, 0}, {"ssm_norm.weight", delta, f32, D, 0, 0},
        {"ssm_out.weight", delta, q8, V * D, E, 0}, {"ffn_gate.weight", !moe, q8, E, F, 0},
        {"ffn_up.weight", !moe, q8, E, F, 0}, {"ffn_down.weight", !moe, q8, F, E, 0},
        {"ffn_gate_inp.weight", moe, f32, E, X, 0}, {"ffn_gate_up_exps.weight", moe && fused, f32, E, 2 * G, X},
        {"ffn_gate_exps.weight", moe && !fused, f32, E, G, X}, {"ffn_up_exps.weight", moe && !fused, f32, E, G, X},
        {"ffn_down_exps.weight", moe, f32, G, E, X}, {"ffn_gate_inp_shexp.weight", moe, f32, E, 0, 0},
        {"ffn_gate_shexp.weight", moe, q8, E, S, 0}, {"ffn_up_shexp.weight", moe, q8, E, S, 0},
        {"ffn_down_shexp.weight", moe, q8, S, E, 0}, {"nextn.eh_proj.weight", draft, q8, 2 * E, E, 0},
        {"nextn.enorm.weight", draft, f32, E, 0, 0}, {"nextn.hnorm.weight", draft, f32, E, 0, 0},
        {"nextn.shared_head_norm.weight", draft, f32, E, 0, 0}};
    int rc = PI_OK;
    for (size_t k = 0; k < sizeof list / sizeof *list && !rc; k++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", i, list[k].name);
        if (list[k].there) rc = tq_tensor(w, data, rng, name, list[k].type, list[k].n0, list[k].n1, list[k].n2, err);
    }
    return rc;
}

static inline int tq_tensors(pi__gguf_writer *w, bool data, bool moe, pi_error *err)
{
    uint64_t rng = 11;
    int rc = tq_tensor(w, data, &rng, "token_embd.weight", PI__Q8_0, TQ_EMBD, TINY_VOCAB, 0, err);
    if (!rc && moe) rc = tq_tensor(w, data, &rng, "output.weight", PI__Q8_0, TQ_EMBD, TINY_VOCAB, 0, err);
    if (!rc) rc = tq_tensor(w, data, &rng, "output_norm.weight", PI__F32, TQ_EMBD, 0, 0, err);
    for (int32_t i = 0; i <= TQ_LAYERS && !rc; i++) rc = tq_layer(w, data, &rng, moe, i, err);
    return rc;
}

static inline int tiny_qwen35_write(const char *path, bool moe, int32_t ctx, pi_error *err)
{
    pi__gguf_writer *w;
    int rc = pi__gguf_writer_open(&w, path, 0, err);
    if (rc) return rc;
    tq_params(w, moe, ctx);
    tiny_put_vocab(w);
    rc = tq_tensors(w, false, moe, err);
    if (!rc) rc = pi__gguf_writer_begin(w, err);
    if (!rc) rc = tq_tensors(w, true, moe, err);
    int end = pi__gguf_writer_close(w, rc == PI_OK, err);
    return rc ? rc : end;
}

#endif
