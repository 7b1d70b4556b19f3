/* Tiny vocabularies for tests: GGUF images that contain only tokenizer metadata, one per vocabulary kind.
 *
 * Each has every byte, the word "hello" with all its merge steps, and special tokens of each kind. A test can modify a
 * seed before it builds the image. */
#ifndef VOCAB_SEED_H
#define VOCAB_SEED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "tokenizer/vocab_impl.h"

#define SP "\xE2\x96\x81" /* U+2581 */

typedef struct seed {
    const char *model, *pre, *name, *chat_template; /* NULL = the key is left out */
    struct {
        char text[32];
        size_t n; /* length of text in bytes */
        int32_t type;
        float score;
    } tok[400];
    size_t n_tok;
    const char *merge[64];
    size_t n_merge;
    struct {
        const char *key;
        int32_t type; /* PI__GGUF_I32 or PI__GGUF_BOOL */
        int32_t value;
    } extra[16];
    size_t n_extra;
    size_t n_scores, n_types; /* elements written; SIZE_MAX = the key is left out */
    uint8_t charsmap[64];     /* [n_charsmap] character map of a unigram vocabulary */
    size_t n_charsmap;
} seed;

static inline int32_t seed_tok(seed *s, const char *text, int32_t type, float score)
{
    s->tok[s->n_tok].n = strlen(text);
    memcpy(s->tok[s->n_tok].text, text, strlen(text) + 1);
    s->tok[s->n_tok].type = type;
    s->tok[s->n_tok].score = score;
    return (int32_t) s->n_tok++;
}

static inline void seed_extra(seed *s, const char *key, int32_t type, int32_t value)
{
    s->extra[s->n_extra].key = key;
    s->extra[s->n_extra].type = type;
    s->extra[s->n_extra++].value = value;
}

static inline void seed_hex_bytes(seed *s)
{
    for (int b = 0; b < 256; b++) {
        char t[8];
        snprintf(t, sizeof t, "<0x%02X>", b);
        seed_tok(s, t, PI__TOK_BYTE, 0);
    }
}

static inline void seed_spm(seed *s)
{
    memset(s, 0, sizeof *s);
    s->model = "llama";
    seed_tok(s, "<unk>", PI__TOK_UNKNOWN, 0);
    seed_tok(s, "<s>", PI__TOK_CONTROL, 0);
    seed_tok(s, "</s>", PI__TOK_CONTROL, 0);
    seed_hex_bytes(s);
    static const char *const chars[] = {SP, "a", "b", "c", "e", "h", "l", "o"};
    for (size_t i = 0; i < sizeof chars / sizeof *chars; i++) seed_tok(s, chars[i], PI__TOK_NORMAL, -100);
    seed_tok(s, "ab", PI__TOK_NORMAL, -5);
    seed_tok(s, "bc", PI__TOK_NORMAL, -4);
    seed_tok(s, "aa", PI__TOK_NORMAL, -3);
    seed_tok(s, "he", PI__TOK_NORMAL, -6);
    seed_tok(s, "ll", PI__TOK_NORMAL, -7);
    seed_tok(s, "llo", PI__TOK_NORMAL, -8);
    seed_tok(s, "hello", PI__TOK_NORMAL, -9);
    seed_tok(s, SP "hello", PI__TOK_NORMAL, -10);
    seed_tok(s, SP SP, PI__TOK_NORMAL, -11);
    seed_tok(s, "<t>", PI__TOK_USER, 0);
    seed_tok(s, "<t><t>", PI__TOK_USER, 0);
    seed_tok(s, "<|end|>", PI__TOK_CONTROL, 0);
    seed_tok(s, "<unused0>", PI__TOK_UNUSED, 0);
}

static inline void seed_gpt2(seed *s)
{
    memset(s, 0, sizeof *s);
    s->model = "gpt2";
    s->pre = "gpt-2";
    s->n_scores = SIZE_MAX;
    for (uint32_t b = 0; b < 256; b++) {
        char t[8] = {0};
        pi__utf8_put(pi__byte_to_cp((unsigned char) b), t);
        seed_tok(s, t, PI__TOK_NORMAL, 0);
    }
    static const char *const merges[] = {"l l", "h e", "he ll", "hell o", "\xC4\xA0 hello", "a a", "aa aa",
                                         "\xC3\x83 \xC2\xA9", "\xC4\xA0 \xC4\xA0", "1 2"};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        char t[32];
        const char *sp = strchr(merges[i], ' ');
        snprintf(t, sizeof t, "%.*s%s", (int) (sp - merges[i]), merges[i], sp + 1);
        s->merge[s->n_merge++] = merges[i];
        seed_tok(s, t, PI__TOK_NORMAL, 0);
    }
    seed_tok(s, "123", PI__TOK_NORMAL, 0); /* unreachable by merges */
    seed_tok(s, "<|im_start|>", PI__TOK_CONTROL, 0);
    int32_t end = seed_tok(s, "<|im_end|>", PI__TOK_CONTROL, 0);
    seed_tok(s, "<think>", PI__TOK_USER, 0);
    /* becomes a control token because of its spelling */
    int32_t eos = seed_tok(s, "<|endoftext|>", PI__TOK_NORMAL, 0);
    seed_extra(s, "tokenizer.ggml.bos_token_id", PI__GGUF_I32, eos);
    seed_extra(s, "tokenizer.ggml.eos_token_id", PI__GGUF_I32, end);
}

static inline void seed_gemma4(seed *s)
{
    memset(s, 0, sizeof *s);
    s->model = "gemma4";
    seed_tok(s, "<pad>", PI__TOK_CONTROL, -1000);
    seed_tok(s, "<eos>", PI__TOK_CONTROL, -1000);
    seed_tok(s, "<bos>", PI__TOK_CONTROL, -1000);
    seed_tok(s, "<unk>", PI__TOK_CONTROL, -1000);
    seed_hex_bytes(s);
    static const char *const texts[] = {SP, "\n", "e", "h", "l", "o", "x", "\n\n", "\n\n\n", "</s>", "he", "ll", "hell",
                                        "hello", (SP "hello"), (SP SP), (SP SP SP SP), ("o" SP), "\xC3\xA9"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) seed_tok(s, texts[i], PI__TOK_NORMAL, -1000);
    static const char *const merges[] = {"\n \n", (SP " " SP), (SP SP " " SP SP), "l l", "h e", "he ll", "hell o",
                                         (SP " hello"), ("o " SP)};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) s->merge[s->n_merge++] = merges[i];
    seed_tok(s, "<turn|>", PI__TOK_CONTROL, -1000);
    seed_tok(s, "<|tool_response>", PI__TOK_USER, -1000);
    seed_tok(s, "<|\"|>", PI__TOK_USER, -1000);
    seed_extra(s, "tokenizer.ggml.bos_token_id", PI__GGUF_I32, 2);
    seed_extra(s, "tokenizer.ggml.eos_token_id", PI__GGUF_I32, 1);
    seed_extra(s, "tokenizer.ggml.add_bos_token", PI__GGUF_BOOL, 0);
}

/* A vocabulary without byte tokens: text outside it becomes the unknown token. */
static inline void seed_wpm(seed *s)
{
    memset(s, 0, sizeof *s);
    s->model = "bert";
    s->n_scores = SIZE_MAX;
    static const char *const control[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
    for (int32_t i = 0; i < 4; i++) seed_tok(s, control[i], PI__TOK_CONTROL, 0);
    seed_tok(s, "<t>", PI__TOK_USER, 0);
    static const char *const texts[] = {SP "he",
                                        SP "hello",
                                        "llo",
                                        "l",
                                        "o",
                                        SP "l",
                                        SP "x",
                                        "x",
                                        SP ".",
                                        SP "'",
                                        SP "$",
                                        "s",
                                        SP "s",
                                        SP "\xE4\xBD\xA0",
                                        SP "\xE1\x84\x80",
                                        "\xE1\x85\xA1",
                                        SP "\xC3\xA9",
                                        SP "e",
                                        SP "1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) seed_tok(s, texts[i], PI__TOK_NORMAL, 0);
    seed_extra(s, "tokenizer.ggml.unknown_token_id", PI__GGUF_I32, 1);
    seed_extra(s, "tokenizer.ggml.cls_token_id", PI__GGUF_I32, 2);
    seed_extra(s, "tokenizer.ggml.seperator_token_id", PI__GGUF_I32, 3);
}

/* A character map that replaces "Q" by the two letters "ab". */
static inline void seed_ugm(seed *s)
{
    memset(s, 0, sizeof *s);
    s->model = "t5";
    seed_tok(s, "<s>", PI__TOK_CONTROL, 0);
    seed_tok(s, "</s>", PI__TOK_CONTROL, 0);
    seed_tok(s, "<unk>", PI__TOK_UNKNOWN, 0);
    static const struct { const char *text; float score;
    } texts[] = {{SP, -2},  {"a", -3},  {"b", -3}, {"ab", -6},    {"abb", -7}, {SP "a", -4},
                 {"l", -4}, {"ll", -5}, {"o", -4}, {SP "he", -5}, {"llo", -5}, {SP "hell", -6}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        seed_tok(s, texts[i].text, PI__TOK_NORMAL, texts[i].score);
    seed_tok(s, "<t>", PI__TOK_USER, 0);
    seed_extra(s, "tokenizer.ggml.bos_token_id", PI__GGUF_I32, 0);
    seed_extra(s, "tokenizer.ggml.eos_token_id", PI__GGUF_I32, 1);
    seed_extra(s, "tokenizer.ggml.add_bos_token", PI__GGUF_BOOL, 1);
    seed_extra(s, "tokenizer.ggml.remove_extra_whitespaces", PI__GGUF_BOOL, 1);
    /* Node 0 has base 0x50, so 'Q' (0x51) leads to node 1: a leaf with base 3. Node 2 therefore holds the offset of
     * its text. */
    const uint32_t nodes[3] = {0x50 << 10, 0x151 | 3 << 10, 0}, size = sizeof nodes;
    memcpy(s->charsmap, &size, 4);
    memcpy(s->charsmap + 4, nodes, size);
    memcpy(s->charsmap + 4 + size, "ab", 3);
    s->n_charsmap = 4 + size + 3;
}

/* Scores are by length: the text needs a token per letter only where no longer one fits. */
static inline void seed_plamo2(seed *s)
{
    memset(s, 0, sizeof *s);
    s->model = "plamo2";
    seed_tok(s, "<|plamo:unk|>", PI__TOK_UNKNOWN, 0);
    seed_tok(s, "<|plamo:bos|>", PI__TOK_CONTROL, 0);
    seed_tok(s, "<|plamo:eos|>", PI__TOK_CONTROL, 0);
    seed_hex_bytes(s);
    static const struct { const char *text; float score;
    } texts[] = {{" ", -3}, {"a", -3}, {"b", -3}, {"c", -3.5f}, {"h", -4}, {"e", -4}, {"l", -4}, {"o", -4}, {"ab", -5},
                 {"bc", -4}, {"aa", -6}, {"he", -5}, {"llo", -6}, {"hell", -7}, {" hello", -8}, {"  ", -4},
                 {"\xE3\x81\x82", -5}, {"\xE3\x81\x82\xE3\x81\x84", -6}, {SP, -5}, {"q", -1000}, {"qq", -3000},
                 {"abcabc", -7.00001f}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        seed_tok(s, texts[i].text, PI__TOK_NORMAL, texts[i].score);
    seed_tok(s, "<t>", PI__TOK_USER, 0);
    seed_tok(s, "[PAD1]", PI__TOK_UNUSED, -1000);
}

/* ---------------------------------------------------------------------------------------------------------- images */

typedef struct image {
    uint8_t *b;
    size_t n, cap;
} image;

static inline void put_bytes(image *m, const void *p, size_t n)
{
    if (m->n + n > m->cap) {
        m->cap = 2 * (m->n + n);
        m->b = realloc(m->b, m->cap);
        if (!m->b) abort(); /* the test machine is out of memory */
    }
    if (n) memcpy(m->b + m->n, p, n);
    m->n += n;
}

static inline void put_u32(image *m, uint32_t v) { put_bytes(m, &v, 4); }
static inline void put_u64(image *m, uint64_t v) { put_bytes(m, &v, 8); }

static inline void put_str(image *m, const char *p, size_t n)
{
    put_u64(m, n);
    put_bytes(m, p, n);
}

static inline void put_key(image *m, const char *key, uint32_t type)
{
    put_str(m, key, strlen(key));
    put_u32(m, type);
}

static inline void put_kv_str(image *m, const char *key, const char *value)
{
    put_key(m, key, PI__GGUF_STR);
    put_str(m, value, strlen(value));
}

static inline void put_arr(image *m, const char *key, uint32_t type, uint64_t n)
{
    put_key(m, key, PI__GGUF_ARR);
    put_u32(m, type);
    put_u64(m, n);
}

/* Builds the file image of a seed; the caller frees image.b. */
static inline image seed_image(const seed *s)
{
    image m = {0};
    size_t n_scores = s->n_scores ? s->n_scores : s->n_tok, n_types = s->n_types ? s->n_types : s->n_tok;
    put_bytes(&m, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
    put_u64(&m, (s->model != NULL) + (s->pre != NULL) + (s->name != NULL) +
                    (s->chat_template != NULL) + (s->n_tok > 0) + (s->n_merge > 0) +
                    (n_scores != SIZE_MAX) + (n_types != SIZE_MAX) + (s->n_charsmap > 0) + s->n_extra);
    if (s->model) put_kv_str(&m, "tokenizer.ggml.model", s->model);
    if (s->pre) put_kv_str(&m, "tokenizer.ggml.pre", s->pre);
    if (s->name) put_kv_str(&m, "general.name", s->name);
    if (s->chat_template) put_kv_str(&m, "tokenizer.chat_template", s->chat_template);
    if (s->n_tok) put_arr(&m, "tokenizer.ggml.tokens", PI__GGUF_STR, s->n_tok);
    for (size_t i = 0; i < s->n_tok; i++) put_str(&m, s->tok[i].text, s->tok[i].n);
    if (s->n_merge) put_arr(&m, "tokenizer.ggml.merges", PI__GGUF_STR, s->n_merge);
    for (size_t i = 0; i < s->n_merge; i++) put_str(&m, s->merge[i], strlen(s->merge[i]));
    if (n_scores != SIZE_MAX) put_arr(&m, "tokenizer.ggml.scores", PI__GGUF_F32, n_scores);
    for (size_t i = 0; n_scores != SIZE_MAX && i < n_scores; i++) put_bytes(&m, &s->tok[i].score, 4);
    if (n_types != SIZE_MAX) put_arr(&m, "tokenizer.ggml.token_type", PI__GGUF_I32, n_types);
    for (size_t i = 0; n_types != SIZE_MAX && i < n_types; i++) put_bytes(&m, &s->tok[i].type, 4);
    if (s->n_charsmap) put_arr(&m, "tokenizer.ggml.precompiled_charsmap", PI__GGUF_U8, s->n_charsmap);
    if (s->n_charsmap) put_bytes(&m, s->charsmap, s->n_charsmap);
    for (size_t i = 0; i < s->n_extra; i++) {
        put_key(&m, s->extra[i].key, (uint32_t) s->extra[i].type);
        put_bytes(&m, &s->extra[i].value, s->extra[i].type == PI__GGUF_BOOL ? 1 : 4);
    }
    return m;
}

/* Loads a seed; returns the code of the reader or of the vocabulary. */
static inline int seed_load(const seed *s, pi__vocab **out, pi_error *err)
{
    image m = seed_image(s);
    pi__gguf *g = NULL;
    *out = NULL;
    int rc = pi__gguf_open_memory(&g, m.b, m.n, err);
    if (!rc) rc = pi__vocab_load(out, g, err);
    pi__gguf_close(g);
    free(m.b);
    return rc;
}

#endif
