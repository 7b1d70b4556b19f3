/* A random model that is small enough for tests: gemma3 with a SentencePiece vocabulary, written as a GGUF.
 *
 * The same spec and seed give the same file. The vocabulary: 4 control tokens, 256 bytes, then short pieces. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/formats.h"
#include "gguf/gguf.h"

typedef struct tiny_spec {
    uint32_t seed;
    int32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff;
    int32_t ctx;     /* context it was "trained" for */
    int32_t window;  /* of the window layers */
    int32_t every;   /* each so-manyth layer is global */
    int32_t type;    /* enum pi__type of the matrices */
    bool vocab_only; /* no tensors */
    int32_t more;    /* rows of the embeddings behind those of the vocabulary */
} tiny_spec;

static const tiny_spec tiny_default = {1, 3, 64, 2, 1, 32, 96, 512, 32, 3, PI__F32, false, 0};

enum { TINY_PAD = 0, TINY_EOS = 1, TINY_BOS = 2, TINY_UNK = 3, TINY_BYTE0 = 4, TINY_PIECE0 = 260 };

static const char *const tiny_pieces[] = {
    "\xE2\x96\x81", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t",
    "u", "v", "w", "x", "y", "z", ".", ",", "th", "he", "the", "\xE2\x96\x81t", "\xE2\x96\x81the",
    "\xE2\x96\x81" "a", "an",
    "nd", "and", "\xE2\x96\x81" "and", "in", "ing", "on", "\xE2\x96\x81o", "\xE2\x96\x81on", "er", "ed", "ou", "you",
    "\xE2\x96\x81y", "\xE2\x96\x81you", "\xC3\xA9", "\xE6\x97\xA5", "\xF0\x9F\x98\x80"};
enum { TINY_N_PIECES = sizeof tiny_pieces / sizeof *tiny_pieces, TINY_VOCAB = TINY_PIECE0 + TINY_N_PIECES };

static inline uint32_t tiny_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (*s >> 33);
}

static inline void tiny_put_u32(pi__gguf_writer *w, const char *key, int32_t v)
{
    uint32_t u = (uint32_t) v;
    pi__gguf_put(w, key, PI__GGUF_U32, &u);
}

static inline pi__str tiny_str(const char *s) { return (pi__str) {s, strlen(s)}; }

static inline void tiny_put_vocab(pi__gguf_writer *w)
{
    enum { N = TINY_VOCAB };
    static char bytes[256][8];
    pi__str tokens[N];
    float scores[N];
    int32_t types[N];
    static const char *const control[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    for (int i = 0; i < N; i++) {
        if (i < TINY_BYTE0) tokens[i] = tiny_str(control[i]);
        else if (i < TINY_PIECE0) snprintf(bytes[i - TINY_BYTE0], 8, "<0x%02X>", i - TINY_BYTE0);
        if (i >= TINY_BYTE0 && i < TINY_PIECE0) tokens[i] = tiny_str(bytes[i - TINY_BYTE0]);
        types[i] = i == TINY_UNK ? 2 : i < TINY_BYTE0 ? 3 : i < TINY_PIECE0 ? 6 : 1;
        scores[i] = i < TINY_PIECE0 ? 0 : (float) -(i - TINY_PIECE0);
        if (i >= TINY_PIECE0) tokens[i] = tiny_str(tiny_pieces[i - TINY_PIECE0]);
    }
    pi__str model = tiny_str("llama");
    uint32_t bos = TINY_BOS, eos = TINY_EOS, unk = TINY_UNK;
    uint8_t yes = 1, no = 0;
    pi__gguf_put(w, "tokenizer.ggml.model", PI__GGUF_STR, &model);
    pi__gguf_put_arr(w, "tokenizer.ggml.tokens", PI__GGUF_STR, N, tokens);
    pi__gguf_put_arr(w, "tokenizer.ggml.scores", PI__GGUF_F32, N, scores);
    pi__gguf_put_arr(w, "tokenizer.ggml.token_type", PI__GGUF_I32, N, types);
    pi__gguf_put(w, "tokenizer.ggml.bos_token_id", PI__GGUF_U32, &bos);
    pi__gguf_put(w, "tokenizer.ggml.eos_token_id", PI__GGUF_U32, &eos);
    pi__gguf_put(w, "tokenizer.ggml.unknown_token_id", PI__GGUF_U32, &unk);
    pi__gguf_put(w, "tokenizer.ggml.add_bos_token", PI__GGUF_BOOL, &yes);
    pi__gguf_put(w, "tokenizer.ggml.add_space_prefix", PI__GGUF_BOOL, &no);
}

static inline void tiny_put_params(pi__gguf_writer *w, const tiny_spec *s)
{
    pi__str arch = tiny_str("gemma3"), name = tiny_str("tiny");
    float eps = 1e-6f, base = 1e6f;
    pi__gguf_put(w, "general.architecture", PI__GGUF_STR, &arch);
    pi__gguf_put(w, "general.name", PI__GGUF_STR, &name);
    tiny_put_u32(w, "gemma3.block_count", s->n_layer);
    tiny_put_u32(w, "gemma3.context_length", s->ctx);
    tiny_put_u32(w, "gemma3.embedding_length", s->n_embd);
    tiny_put_u32(w, "gemma3.feed_forward_length", s->n_ff);
    tiny_put_u32(w, "gemma3.attention.head_count", s->n_head);
    tiny_put_u32(w, "gemma3.attention.head_count_kv", s->n_head_kv);
    tiny_put_u32(w, "gemma3.attention.key_length", s->head_dim);
    tiny_put_u32(w, "gemma3.attention.value_length", s->head_dim);
    tiny_put_u32(w, "gemma3.attention.sliding_window", s->window);
    tiny_put_u32(w, "gemma3.attention.sliding_window_pattern", s->every);
    pi__gguf_put(w, "gemma3.attention.layer_norm_rms_epsilon", PI__GGUF_F32, &eps);
    pi__gguf_put(w, "gemma3.rope.freq_base", PI__GGUF_F32, &base);
}

/* A tensor's header (data false), or its random values: norms around 1, matrices small. */
static inline int tiny_tensor(pi__gguf_writer *w, bool data, uint64_t *rng, const char *name, int32_t type, int64_t n0,
                              int64_t n1, pi_error *err)
{
    const int64_t ne[2] = {n0, n1 ? n1 : 1};
    if (!data) {
        pi__gguf_put_tensor(w, name, n1 ? type : PI__F32, n1 ? 2 : 1, ne);
        return PI_OK;
    }
    const pi__type_info *t = pi__type_info_of(n1 ? type : PI__F32);
    float *row = malloc((size_t) n0 * sizeof *row);
    char *out = malloc(pi__row_size(t, n0));
    int rc = row && out ? PI_OK : PI_ENOMEM;
    double scale = n1 ? 2.0 / sqrt((double) n0) : 0.2;
    for (int64_t i = 0; i < ne[1] && !rc; i++) {
        for (int64_t j = 0; j < n0; j++)
            row[j] = (float) (scale * (tiny_random(rng) / 2147483648.0 - 0.5) + (n1 ? 0.0 : 1.0));
        pi__quantize_row(n1 ? type : PI__F32, row, out, n0, NULL);
        rc = pi__gguf_writer_data(w, out, pi__row_size(t, n0), err);
    }
    free(row);
    free(out);
    return rc;
}

static inline int tiny_tensors(pi__gguf_writer *w, bool data, const tiny_spec *s, pi_error *err)
{
    const int64_t E = s->n_embd, D = s->head_dim, Q = s->n_head * D, KV = s->n_head_kv * D, F = s->n_ff;
    const struct { const char *name; int64_t n0, n1; } list[] = {
        {"attn_norm", E, 0}, {"attn_q", E, Q}, {"attn_k", E, KV}, {"attn_v", E, KV}, {"attn_q_norm", s->head_dim, 0},
        {"attn_k_norm", s->head_dim, 0}, {"attn_output", Q, E}, {"post_attention_norm", E, 0}, {"ffn_norm", E, 0},
        {"ffn_gate", E, F}, {"ffn_up", E, F}, {"ffn_down", F, E}, {"post_ffw_norm", E, 0}};
    uint64_t rng = s->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    int rc = tiny_tensor(w, data, &rng, "token_embd.weight", s->type, E, TINY_VOCAB + s->more, err);
    if (!rc) rc = tiny_tensor(w, data, &rng, "output_norm.weight", 0, E, 0, err);
    for (int32_t i = 0; i < s->n_layer; i++) {
        for (size_t k = 0; k < sizeof list / sizeof *list && !rc; k++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, list[k].name);
            rc = tiny_tensor(w, data, &rng, name, s->type, list[k].n0, list[k].n1, err);
        }
    }
    return rc;
}

/* Writes the model to path (spec NULL: tiny_default). */
static inline int tiny_write(const char *path, const tiny_spec *s, pi_error *err)
{
    pi__gguf_writer *w;
    if (!s) s = &tiny_default;
    int rc = pi__gguf_writer_open(&w, path, 0, err);
    if (rc) return rc;
    tiny_put_params(w, s);
    tiny_put_vocab(w);
    if (!s->vocab_only) rc = tiny_tensors(w, false, s, err);
    if (!rc) rc = pi__gguf_writer_begin(w, err);
    if (!rc && !s->vocab_only) rc = tiny_tensors(w, true, s, err);
    int end = pi__gguf_writer_close(w, rc == PI_OK, err);
    return rc ? rc : end;
}

/* A name for a temporary file, not yet there. */
static inline const char *tiny_path(char buf[256], const char *what)
{
    const char *dir = getenv("TMPDIR");
    snprintf(buf, 256, "%s/pagedinfer-%s-%ld.gguf", dir && *dir ? dir : "/tmp", what, (long) getpid());
    return buf;
}

#endif
