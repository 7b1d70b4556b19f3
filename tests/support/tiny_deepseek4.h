/* A random deepseek4 model that is small enough for tests and has everything the architecture can have: layers without
 * entries, with entries of 4 tokens and of 128, experts chosen by token and by a router, tables of a quantised type, a limit
 * of the activation, more ratios than layers; and a draft head in a file of its own. Vocabulary: tiny_model.h's. */
#ifndef TINY_DEEPSEEK4_H
#define TINY_DEEPSEEK4_H

#include "tiny_model.h"

enum { TD_LAYERS = 4, TD_EMBD = 64, TD_HEADS = 4, TD_DIM = 48, TD_ROT = 16, TD_RANK = 32, TD_GROUPS = 2, TD_OUT = 24 };
enum { TD_INDEX_HEADS = 17, TD_INDEX_DIM = 32, TD_TOP = 6, TD_EXPERTS = 5, TD_USED = 2, TD_FF = 32, TD_HASH = 2 };
static const int32_t td_ratio[TD_LAYERS + 1] = {0, 4, 128, 4, 0};
static const float td_limit[TD_LAYERS + 1] = {2.5f, 2.5f, 0, 1.5f, 2};

static inline void td_params(pi__gguf_writer *w, int32_t ctx, int32_t n_layer)
{
    static const struct { const char *key; int32_t v; } list[] = {
        {"embedding_length", TD_EMBD}, {"attention.head_count", TD_HEADS},
        {"attention.head_count_kv", 1}, {"attention.key_length", TD_DIM}, {"attention.value_length", TD_DIM},
        {"rope.dimension_count", TD_ROT}, {"attention.q_lora_rank", TD_RANK}, {"attention.sliding_window", 24},
        {"attention.output_group_count", TD_GROUPS}, {"attention.output_lora_rank", TD_OUT},
        {"attention.indexer.head_count", TD_INDEX_HEADS}, {"attention.indexer.key_length", TD_INDEX_DIM},
        {"attention.indexer.top_k", TD_TOP}, {"expert_count", TD_EXPERTS}, {"expert_used_count", TD_USED},
        {"expert_feed_forward_length", TD_FF}, {"expert_shared_count", 1}, {"expert_gating_func", 4},
        {"hash_layer_count", TD_HASH}, {"hyper_connection.count", 4}, {"hyper_connection.sinkhorn_iterations", 5},
        {"nextn_predict_layers", 1}, {"rope.scaling.original_context_length", 64}};
    static const struct { const char *key; float v; } reals[] = {
        {"attention.layer_norm_rms_epsilon", 1e-6f}, {"hyper_connection.epsilon", 1e-6f}, {"rope.freq_base", 1e4f},
        {"attention.compress_rope_freq_base", 1.6e5f}, {"rope.scaling.factor", 16}, {"expert_weights_scale", 1.5f}};
    const pi__str arch = tiny_str("deepseek4"), name = tiny_str("tiny"), yarn = tiny_str("yarn");
    char key[80];
    pi__gguf_put(w, "general.architecture", PI__GGUF_STR, &arch);
    pi__gguf_put(w, "general.name", PI__GGUF_STR, &name);
    pi__gguf_put(w, "deepseek4.rope.scaling.type", PI__GGUF_STR, &yarn);
    tiny_put_u32(w, "deepseek4.context_length", ctx);
    tiny_put_u32(w, "deepseek4.block_count", n_layer);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(key, sizeof key, "deepseek4.%s", list[i].key);
        tiny_put_u32(w, key, list[i].v);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        snprintf(key, sizeof key, "deepseek4.%s", reals[i].key);
        pi__gguf_put(w, key, PI__GGUF_F32, &reals[i].v);
    }
    pi__gguf_put_arr(w, "deepseek4.attention.compress_ratios", PI__GGUF_I32, TD_LAYERS + 1, td_ratio);
    pi__gguf_put_arr(w, "deepseek4.swiglu_clamp_exp", PI__GGUF_F32, (uint64_t) n_layer, td_limit);
}

/* n1 0: a vector; n2: stacked matrices. */
static inline int td_tensor(pi__gguf_writer *w, bool data, uint64_t *rng, const char *name, int32_t type, int64_t n0,
                            int64_t n1, int64_t n2, pi_error *err)
{
    const int64_t ne[3] = {n0, n1, n2};
    if (data || !n2) return tiny_tensor(w, data, rng, name, type, n0, n2 ? n1 * n2 : n1, err);
    pi__gguf_put_tensor(w, name, type, 3, ne);
    return PI_OK;
}

/* The experts of each token. */
static inline int td_table(pi__gguf_writer *w, bool data, uint64_t *rng, const char *name, pi_error *err)
{
    const int64_t ne[2] = {TD_USED, TINY_VOCAB};
    int32_t table[TD_USED * TINY_VOCAB];
    if (!data) {
        pi__gguf_put_tensor(w, name, PI__I32, 2, ne);
        return PI_OK;
    }
    for (int i = 0; i < TD_USED * TINY_VOCAB; i++) table[i] = (int32_t) (tiny_random(rng) % TD_EXPERTS);
    return pi__gguf_writer_data(w, table, sizeof table, err);
}

/* prefix: of names, "blk.3" */
static inline int td_layer(pi__gguf_writer *w, bool data, uint64_t *rng, int32_t i, const char *prefix, pi_error *err)
{
    enum { Q = PI__Q8_0, F = PI__F32, H = PI__F16 };
    const int64_t E = TD_EMBD, D = TD_DIM, HD = TD_HEADS * D, J = TD_INDEX_DIM, X = TD_EXPERTS, r = td_ratio[i];
    const int64_t c = r == 4 ? 2 * D : D;
    const bool any = r != 0, csa = r == 4, hash = i < TD_HASH;
    const struct { const char *name; bool there; int32_t type; int64_t n0, n1, n2; } list[] = {
        {"hc_attn_fn.weight", true, H, 4 * E, 24, 0}, {"hc_attn_base.weight", true, F, 24, 0, 0},
        {"hc_attn_scale.weight", true, F, 3, 0, 0}, {"hc_ffn_fn.weight", true, H, 4 * E, 24, 0},
        {"hc_ffn_base.weight", true, F, 24, 0, 0}, {"hc_ffn_scale.weight", true, F, 3, 0, 0},
        {"attn_norm.weight", true, F, E, 0, 0}, {"attn_q_a.weight", true, Q, E, TD_RANK, 0},
        {"attn_q_a_norm.weight", true, F, TD_RANK, 0, 0}, {"attn_q_b.weight", true, Q, TD_RANK, HD, 0},
        {"attn_kv.weight", true, Q, E, D, 0}, {"attn_kv_a_norm.weight", true, F, D, 0, 0},
        {"attn_sinks.weight", true, F, TD_HEADS, 0, 0},
        {"attn_output_a.weight", true, Q, HD / TD_GROUPS, TD_GROUPS * TD_OUT, 0},
        {"attn_output_b.weight", true, F, TD_GROUPS * TD_OUT, E, 0},
        {"attn_compressor_kv.weight", any, H, E, c, 0}, {"attn_compressor_gate.weight", any, H, E, c, 0},
        {"attn_compressor_ape.weight", any, csa ? Q : H, c, r, 0}, {"attn_compressor_norm.weight", any, F, D, 0, 0},
        {"indexer_compressor_kv.weight", csa, H, E, 2 * J, 0}, {"indexer_compressor_gate.weight", csa, H, E, 2 * J, 0},
        {"indexer_compressor_ape.weight", csa, Q, 2 * J, r, 0}, {"indexer_compressor_norm.weight", csa, F, J, 0, 0},
        {"indexer.attn_q_b.weight", csa, H, TD_RANK, TD_INDEX_HEADS * J, 0},
        {"indexer.proj.weight", csa, H, E, TD_INDEX_HEADS, 0}, {"ffn_norm.weight", true, F, E, 0, 0},
        {"ffn_gate_inp.weight", true, H, E, X, 0}, {"exp_probs_b.bias", !hash, F, X, 0, 0},
        {"ffn_gate_exps.weight", true, F, E, TD_FF, X}, {"ffn_up_exps.weight", true, F, E, TD_FF, X},
        {"ffn_down_exps.weight", true, F, TD_FF, E, X}, {"ffn_gate_shexp.weight", true, Q, E, TD_FF, 0},
        {"ffn_up_shexp.weight", true, Q, E, TD_FF, 0}, {"ffn_down_shexp.weight", true, Q, TD_FF, E, 0}};
    char name[64];
    int rc = PI_OK;
    for (size_t k = 0; k < sizeof list / sizeof *list && !rc; k++) {
        snprintf(name, sizeof name, "%s.%s", prefix, list[k].name);
        if (list[k].there) rc = td_tensor(w, data, rng, name, list[k].type, list[k].n0, list[k].n1, list[k].n2, err);
    }
    snprintf(name, sizeof name, "%s.ffn_gate_tid2eid.weight", prefix);
    return rc || !hash ? rc : td_table(w, data, rng, name, err);
}

static inline int td_tensors(pi__gguf_writer *w, bool data, pi_error *err)
{
    const int64_t E = TD_EMBD;
    uint64_t rng = 11;
    int rc = td_tensor(w, data, &rng, "token_embd.weight", PI__F16, E, TINY_VOCAB, 0, err);
    if (!rc) rc = td_tensor(w, data, &rng, "output.weight", PI__Q8_0, E, TINY_VOCAB, 0, err);
    for (int32_t i = 0; i < TD_LAYERS && !rc; i++) {
        const char prefix[] = {'b', 'l', 'k', '.', (char) ('0' + i), 0};
        rc = td_layer(w, data, &rng, i, prefix, err);
    }
    if (!rc) rc = td_tensor(w, data, &rng, "output_hc_fn.weight", PI__F16, 4 * E, 4, 0, err);
    if (!rc) rc = td_tensor(w, data, &rng, "output_hc_base.weight", PI__F32, 4, 0, 0, err);
    if (!rc) rc = td_tensor(w, data, &rng, "output_hc_scale.weight", PI__F32, 1, 0, 0, err);
    return rc ? rc : td_tensor(w, data, &rng, "output_norm.weight", PI__F32, E, 0, 0, err);
}

/* The draft head, with a copy of the embedding as converters add it. */
static inline int td_head_tensors(pi__gguf_writer *w, bool data, pi_error *err)
{
    const struct { const char *name; int64_t n0, n1; } list[] = {
        {"token_embd.weight", TD_EMBD, TINY_VOCAB}, {"blk.4.nextn.eh_proj.weight", 2 * TD_EMBD, TD_EMBD},
        {"blk.4.nextn.enorm.weight", TD_EMBD, 0}, {"blk.4.nextn.hnorm.weight", TD_EMBD, 0},
        {"blk.4.nextn.shared_head_norm.weight", TD_EMBD, 0}, {"output_hc_fn.weight", 4 * TD_EMBD, 4},
        {"output_hc_base.weight", 4, 0}, {"output_hc_scale.weight", 1, 0}};
    uint64_t rng = 13;
    int rc = td_layer(w, data, &rng, TD_LAYERS, "blk.4", err);
    for (size_t i = 0; i < sizeof list / sizeof *list && !rc; i++)
        rc = td_tensor(w, data, &rng, list[i].name, PI__F32, list[i].n0, list[i].n1, 0, err);
    return rc;
}

/* The same as ds4 writes it. */
static inline int td_ds4_head_tensors(pi__gguf_writer *w, bool data, pi_error *err)
{
    const struct { const char *name; int64_t n0, n1; } list[] = {
        {"mtp.0.e_proj.weight", TD_EMBD, TD_EMBD}, {"mtp.0.h_proj.weight", TD_EMBD, TD_EMBD},
        {"mtp.0.enorm.weight", TD_EMBD, 0}, {"mtp.0.hnorm.weight", TD_EMBD, 0}, {"mtp.0.norm.weight", TD_EMBD, 0},
        {"mtp.0.hc_head_fn.weight", 4 * TD_EMBD, 4}, {"mtp.0.hc_head_base.weight", 4, 0}, {"mtp.0.hc_head_scale.weight", 1, 0}};
    uint64_t rng = 13;
    int rc = td_layer(w, data, &rng, TD_LAYERS, "mtp.0", err);
    for (size_t i = 0; i < sizeof list / sizeof *list && !rc; i++)
        rc = td_tensor(w, data, &rng, list[i].name, PI__F32, list[i].n0, list[i].n1, 0, err);
    return rc;
}

static inline int td_write(const char *path, int32_t ctx, int32_t n_layer,
                           int (*tensors)(pi__gguf_writer *w, bool data, pi_error *err), pi_error *err)
{
    pi__gguf_writer *w;
    int rc = pi__gguf_writer_open(&w, path, 0, err);
    if (rc) return rc;
    td_params(w, ctx, n_layer);
    tiny_put_vocab(w);
    rc = tensors(w, false, err);
    if (!rc) rc = pi__gguf_writer_begin(w, err);
    if (!rc) rc = tensors(w, true, err);
    int end = pi__gguf_writer_close(w, rc == PI_OK, err);
    return rc ? rc : end;
}

static inline int tiny_deepseek4_write(const char *path, int32_t ctx, pi_error *err)
{
    return td_write(path, ctx, TD_LAYERS, td_tensors, err);
}

static inline int tiny_deepseek4_head_write(const char *path, int32_t ctx, pi_error *err)
{
    return td_write(path, ctx, TD_LAYERS + 1, td_head_tensors, err);
}

static inline int tiny_deepseek4_ds4_head_write(const char *path, int32_t ctx, pi_error *err)
{
    return td_write(path, ctx, TD_LAYERS + 1, td_ds4_head_tensors, err);
}

#endif
