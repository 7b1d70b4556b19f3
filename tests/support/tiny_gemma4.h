/* A random gemma4 model that is small enough for tests and has everything the architecture can have: window and global
 * layers with head sizes of their own, keys as values, experts (in both ways of storing gate and up) and a layer without,
 * per-layer embeddings, layers that share another's cache, fused attn_qkv, an output matrix, suppressed tokens.
 * Vocabulary: tiny_model.h's. */
#ifndef TINY_GEMMA4_H
#define TINY_GEMMA4_H

#include "tiny_model.h"

enum { TG_LAYERS = 6, TG_OWN = 4, TG_EMBD = 64, TG_HEADS = 4, TG_DIM = 64, TG_DIM_SWA = 32, TG_PLE = 32 };
enum { TG_EXPERTS = 5, TG_FF_EXP = 32 };
static const uint8_t tg_local[TG_LAYERS] = {1, 1, 0, 1, 1, 0};
static const int32_t tg_kv_heads[TG_LAYERS] = {2, 2, 1, 2, 2, 1}, tg_ff[TG_LAYERS] = {96, 96, 64, 96, 160, 128};

static inline void tg_params(pi__gguf_writer *w, int32_t ctx)
{
    static const struct { const char *key; int32_t v; } list[] = {
        {"block_count", TG_LAYERS}, {"embedding_length", TG_EMBD}, {"attention.head_count", TG_HEADS},
        {"attention.key_length", TG_DIM}, {"attention.value_length", TG_DIM}, {"attention.key_length_swa", TG_DIM_SWA},
        {"attention.value_length_swa", TG_DIM_SWA}, {"rope.dimension_count", TG_DIM}, {"rope.dimension_count_swa", TG_DIM_SWA},
        {"attention.sliding_window", 40}, {"attention.shared_kv_layers", TG_LAYERS - TG_OWN},
        {"embedding_length_per_layer_input", TG_PLE}, {"expert_count", TG_EXPERTS}, {"expert_used_count", 2},
        {"expert_feed_forward_length", TG_FF_EXP}};
    pi__str arch = tiny_str("gemma4"), name = tiny_str("tiny");
    float eps = 1e-6f, base = 1e6f, base_swa = 1e4f, cap = 30;
    int32_t suppressed[2] = {TINY_UNK, TINY_BYTE0};
    pi__gguf_put(w, "general.architecture", PI__GGUF_STR, &arch);
    pi__gguf_put(w, "general.name", PI__GGUF_STR, &name);
    tiny_put_u32(w, "gemma4.context_length", ctx);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char key[64];
        snprintf(key, sizeof key, "gemma4.%s", list[i].key);
        tiny_put_u32(w, key, list[i].v);
    }
    pi__gguf_put_arr(w, "gemma4.attention.sliding_window_pattern", PI__GGUF_BOOL, TG_LAYERS, tg_local);
    pi__gguf_put_arr(w, "gemma4.attention.head_count_kv", PI__GGUF_I32, TG_LAYERS, tg_kv_heads);
    pi__gguf_put_arr(w, "gemma4.feed_forward_length", PI__GGUF_I32, TG_LAYERS, tg_ff);
    pi__gguf_put(w, "gemma4.attention.layer_norm_rms_epsilon", PI__GGUF_F32, &eps);
    pi__gguf_put(w, "gemma4.rope.freq_base", PI__GGUF_F32, &base);
    pi__gguf_put(w, "gemma4.rope.freq_base_swa", PI__GGUF_F32, &base_swa);
    pi__gguf_put(w, "gemma4.final_logit_softcapping", PI__GGUF_F32, &cap);
    pi__gguf_put_arr(w, "tokenizer.ggml.suppress_tokens", PI__GGUF_I32, 2, suppressed);
}

/* n1 0: a vector; n2: stacked matrices. */
static inline int tg_tensor(pi__gguf_writer *w, bool data, uint64_t *rng, const char *name, int64_t n0, int64_t n1, int64_t n2,
                            pi_error *err)
{
    const int64_t ne[3] = {n0, n1, n2};
    if (data || !n2) return tiny_tensor(w, data, rng, name, n2 ? PI__F32 : PI__Q8_0, n0, n2 ? n1 * n2 : n1, err);
    pi__gguf_put_tensor(w, name, PI__F32, 3, ne);
    return PI_OK;
}

/* The first 8 pairs of global heads are rotated. */
static inline int tg_rope_freqs(pi__gguf_writer *w, bool data, pi_error *err)
{
    const int64_t n = TG_DIM / 2;
    float factor[TG_DIM / 2];
    for (int i = 0; i < n; i++) factor[i] = i < 8 ? 1.0f : 1e30f;
    if (data) return pi__gguf_writer_data(w, factor, sizeof factor, err);
    pi__gguf_put_tensor(w, "rope_freqs.weight", PI__F32, 1, &n);
    return PI_OK;
}

static inline int tg_layer(pi__gguf_writer *w, bool data, uint64_t *rng, int32_t i, pi_error *err)
{
    const int64_t E = TG_EMBD, X = TG_EXPERTS, G = TG_FF_EXP, P = TG_PLE, D = tg_local[i] ? TG_DIM_SWA : TG_DIM, F = tg_ff[i];
    const int64_t Q = TG_HEADS * D, KV = tg_kv_heads[i] * D;
    const bool own = i < TG_OWN, fused = i == 0, moe = i != 3;
    const struct { const char *name; bool there; int64_t n0, n1, n2; } list[] = {
        {"attn_norm.weight", true, E, 0, 0}, {"attn_qkv.weight", fused, E, Q + 2 * KV, 0}, {"attn_q.weight", !fused, E, Q, 0},
        {"attn_k.weight", own && !fused, E, KV, 0}, {"attn_v.weight", own && !fused && tg_local[i], E, KV, 0},
        {"attn_q_norm.weight", true, D, 0, 0}, {"attn_k_norm.weight", own, D, 0, 0}, {"attn_output.weight", true, Q, E, 0},
        {"post_attention_norm.weight", true, E, 0, 0}, {"ffn_norm.weight", true, E, 0, 0}, {"ffn_gate.weight", true, E, F, 0},
        {"ffn_up.weight", true, E, F, 0}, {"ffn_down.weight", true, F, E, 0}, {"post_ffw_norm.weight", true, E, 0, 0},
        {"ffn_gate_inp.weight", moe, E, X, 0}, {"ffn_gate_inp.scale", moe, E, 0, 0}, {"pre_ffw_norm_2.weight", moe, E, 0, 0},
        {"post_ffw_norm_1.weight", moe, E, 0, 0}, {"post_ffw_norm_2.weight", moe, E, 0, 0},
        {"ffn_gate_up_exps.weight", moe && i % 2, E, 2 * G, X}, {"ffn_gate_exps.weight", moe && i % 2 == 0, E, G, X},
        {"ffn_up_exps.weight", moe && i % 2 == 0, E, G, X}, {"ffn_up_exps.scale", moe && i == 2, 1, 0, 0},
        {"ffn_down_exps.weight", moe, G, E, X}, {"ffn_down_exps.scale", moe, X, 0, 0}, {"inp_gate.weight", true, E, P, 0},
        {"proj.weight", true, P, E, 0}, {"post_norm.weight", true, E, 0, 0}, {"layer_output_scale.weight", true, 1, 0, 0}};
    int rc = PI_OK;
    for (size_t k = 0; k < sizeof list / sizeof *list && !rc; k++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", i, list[k].name);
        if (list[k].there) rc = tg_tensor(w, data, rng, name, list[k].n0, list[k].n1, list[k].n2, err);
    }
    return rc;
}

static inline int tg_tensors(pi__gguf_writer *w, bool data, pi_error *err)
{
    const int64_t E = TG_EMBD, LP = TG_LAYERS * TG_PLE;
    uint64_t rng = 7;
    int rc = tg_tensor(w, data, &rng, "token_embd.weight", E, TINY_VOCAB, 0, err);
    if (!rc) rc = tg_tensor(w, data, &rng, "output.weight", E, TINY_VOCAB, 0, err);
    if (!rc) rc = tg_tensor(w, data, &rng, "output_norm.weight", E, 0, 0, err);
    if (!rc) rc = tg_rope_freqs(w, data, err);
    if (!rc) rc = tg_tensor(w, data, &rng, "per_layer_token_embd.weight", LP, TINY_VOCAB, 0, err);
    if (!rc) rc = tg_tensor(w, data, &rng, "per_layer_model_proj.weight", E, LP, 0, err);
    if (!rc) rc = tg_tensor(w, data, &rng, "per_layer_proj_norm.weight", TG_PLE, 0, 0, err);
    for (int32_t i = 0; i < TG_LAYERS && !rc; i++) rc = tg_layer(w, data, &rng, i, err);
    return rc;
}

static inline int tiny_gemma4_write(const char *path, int32_t ctx, pi_error *err)
{
    pi__gguf_writer *w;
    int rc = pi__gguf_writer_open(&w, path, 0, err);
    if (rc) return rc;
    tg_params(w, ctx);
    tiny_put_vocab(w);
    rc = tg_tensors(w, false, err);
    if (!rc) rc = pi__gguf_writer_begin(w, err);
    if (!rc) rc = tg_tensors(w, true, err);
    int end = pi__gguf_writer_close(w, rc == PI_OK, err);
    return rc ? rc : end;
}

#endif
