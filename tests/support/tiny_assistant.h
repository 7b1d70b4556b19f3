/* A random gemma4-assistant drafter for tiny_gemma4.h's model: a window and a global layer, and on demand a head whose rows
 * are sorted into clusters (of one token each: the vocabulary's size is a prime number). */
#ifndef TINY_ASSISTANT_H
#define TINY_ASSISTANT_H

#include "tiny_gemma4.h"

enum { TA_LAYERS = 2, TA_EMBD = 32, TA_FF = 64 };

typedef struct ta_spec {
    int32_t n_pick;     /* clusters that are looked at; 0: the head is like any other */
    bool ordering_i64;  /* type of the ordering; else I32, and its name ends in ".weight" */
    int32_t first;      /* number that the ordering begins with instead of its own; -1: that one */
    int32_t n_centroid; /* rows of the centroids; 0: the vocabulary's size */
} ta_spec;

static inline void ta_params(pi__gguf_writer *w, const ta_spec *s)
{
    static const struct { const char *key; int32_t v; } list[] = {
        {"block_count", TA_LAYERS}, {"context_length", 512}, {"embedding_length", TA_EMBD}, {"embedding_length_out", TG_EMBD},
        {"feed_forward_length", TA_FF}, {"attention.head_count", TG_HEADS}, {"attention.head_count_kv", 2},
        {"attention.key_length", TG_DIM}, {"attention.value_length", TG_DIM}, {"attention.key_length_swa", TG_DIM_SWA},
        {"attention.value_length_swa", TG_DIM_SWA}, {"rope.dimension_count", TG_DIM}, {"rope.dimension_count_swa", TG_DIM_SWA},
        {"attention.sliding_window", 40}, {"attention.shared_kv_layers", TA_LAYERS}, {"nextn_predict_layers", TA_LAYERS},
        {"embedding_length_per_layer_input", 0}};
    static const uint8_t local[TA_LAYERS] = {1, 0};
    pi__str arch = tiny_str("gemma4-assistant");
    float eps = 1e-6f, base = 1e6f, base_swa = 1e4f;
    pi__gguf_put(w, "general.architecture", PI__GGUF_STR, &arch);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char key[80];
        snprintf(key, sizeof key, "gemma4-assistant.%s", list[i].key);
        tiny_put_u32(w, key, list[i].v);
    }
    if (s->n_pick) tiny_put_u32(w, "gemma4-assistant.centroid_top_k", s->n_pick);
    pi__gguf_put_arr(w, "gemma4-assistant.attention.sliding_window_pattern", PI__GGUF_BOOL, TA_LAYERS, local);
    pi__gguf_put(w, "gemma4-assistant.attention.layer_norm_rms_epsilon", PI__GGUF_F32, &eps);
    pi__gguf_put(w, "gemma4-assistant.rope.freq_base", PI__GGUF_F32, &base);
    pi__gguf_put(w, "gemma4-assistant.rope.freq_base_swa", PI__GGUF_F32, &base_swa);
}

static inline int ta_ordering(pi__gguf_writer *w, bool data, const ta_spec *s, pi_error *err)
{
    const int64_t n = TINY_VOCAB;
    int64_t v64[TINY_VOCAB];
    int32_t v32[TINY_VOCAB];
    for (int32_t i = 0; i < n; i++) v64[i] = v32[i] = i || s->first < 0 ? (i * 10 + 3) % TINY_VOCAB : s->first;
    if (data && s->ordering_i64) return pi__gguf_writer_data(w, v64, sizeof v64, err);
    if (data) return pi__gguf_writer_data(w, v32, sizeof v32, err);
    pi__gguf_put_tensor(w, s->ordering_i64 ? "masked_embd_ordering" : "masked_embd_ordering.weight",
                        s->ordering_i64 ? PI__I64 : PI__I32, 1, &n);
    return PI_OK;
}

static inline int ta_tensors(pi__gguf_writer *w, bool data, const ta_spec *s, pi_error *err)
{
    const int64_t E = TA_EMBD;
    uint64_t rng = 21;
    int rc = tg_tensor(w, data, &rng, "token_embd.weight", E, TINY_VOCAB, 0, err);
    if (!rc) rc = tg_tensor(w, data, &rng, "output_norm.weight", E, 0, 0, err);
    if (!rc) rc = tg_tensor(w, data, &rng, "nextn.pre_projection.weight", 2 * TG_EMBD, E, 0, err);
    if (!rc) rc = tg_tensor(w, data, &rng, "nextn.post_projection.weight", E, TG_EMBD, 0, err);
    if (!rc) rc = tg_rope_freqs(w, data, err);
    for (int32_t i = 0; i < TA_LAYERS && !rc; i++) {
        const int64_t D = i ? TG_DIM : TG_DIM_SWA, Q = TG_HEADS * D;
        const struct { const char *name; int64_t n0, n1; } list[] = {
            {"attn_norm", E, 0}, {"attn_q", E, Q}, {"attn_q_norm", D, 0}, {"attn_output", Q, E}, {"post_attention_norm", E, 0},
            {"ffn_norm", E, 0}, {"ffn_gate", E, TA_FF}, {"ffn_up", E, TA_FF}, {"ffn_down", TA_FF, E}, {"post_ffw_norm", E, 0},
            {"layer_output_scale", 1, 0}};
        for (size_t k = 0; k < sizeof list / sizeof *list && !rc; k++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, list[k].name);
            rc = tg_tensor(w, data, &rng, name, list[k].n0, list[k].n1, 0, err);
        }
    }
    if (rc || !s->n_pick) return rc;
    rc = tg_tensor(w, data, &rng, "masked_embd_centroids.weight", E, s->n_centroid ? s->n_centroid : TINY_VOCAB, 0, err);
    return rc ? rc : ta_ordering(w, data, s, err);
}

static inline int tiny_assistant_write(const char *path, const ta_spec *s, pi_error *err)
{
    pi__gguf_writer *w;
    int rc = pi__gguf_writer_open(&w, path, 0, err);
    if (rc) return rc;
    ta_params(w, s);
    tiny_put_vocab(w);
    rc = ta_tensors(w, false, s, err);
    if (!rc) rc = pi__gguf_writer_begin(w, err);
    if (!rc) rc = ta_tensors(w, true, s, err);
    int end = pi__gguf_writer_close(w, rc == PI_OK, err);
    return rc ? rc : end;
}

#endif
