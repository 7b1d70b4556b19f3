/* Fuzzes text against the tiny vocabularies of vocab_seed.h: one of each kind, and one per split expression.
 *
 * The first byte selects the vocabulary and the flags, the rest is text. Checks that ids are in range. Byte-level BPE
 * returns valid UTF-8 unchanged; the other kinds do so if they are lossless. Token bytes that pass the UTF-8 hold
 * buffer come out as valid UTF-8. Vocabularies are built once; memory of each call is freed. Single-threaded. */
#include <stdint.h>

#include "vocab_seed.h"

static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen2", "qwen35", "deepseek-llm", "deepseek-coder",
                                   "deepseek-v3", "default", "gpt-4o", "falcon"};
enum { N_PRES = sizeof pres / sizeof *pres, N_VOCABS = N_PRES + 3 };
static pi__vocab *vocabs[N_VOCABS];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) abort();
}

static void build(void)
{
    static seed s;
    for (size_t i = 0; i < N_VOCABS; i++) {
        if (i == N_PRES) seed_spm(&s);
        else if (i == N_PRES + 1) seed_gemma4(&s);
        else if (i == N_PRES + 2) seed_plamo2(&s);
        else seed_gpt2(&s);
        if (i < N_PRES) s.pre = pres[i];
        must(seed_load(&s, &vocabs[i], NULL) == PI_OK);
    }
}

/* True if tokenizing is reversible. Escaped spaces are ambiguous with U+2581, and are not found inside an invalid
 * character. SentencePiece adds a space after each special token. PLaMo's drops a byte order mark. */
static bool lossless(const pi__vocab *v, const char *text, size_t len)
{
    if (v->kind == PI__VOCAB_PLAMO2) return pi__utf8_valid(text, len) == len && !memmem(text, len, "\xEF\xBB\xBF", 3);
    if (pi__utf8_valid(text, len) != len || (v->kind != PI__VOCAB_BPE && memmem(text, len, SP, 3))) return false;
    return v->kind != PI__VOCAB_SPM || !memmem(text, len, "<t>", 3);
}

static void check_stream(const pi__vocab *v, const pi__ids *ids)
{
    pi__utf8_hold hold = {0};
    for (size_t i = 0; i < ids->n; i++) {
        char bytes[64], out[3 * (sizeof bytes + 4)];
        size_t n = pi__token_bytes(v, ids->p[i], true, bytes, sizeof bytes);
        must(n <= sizeof bytes);
        n = pi__utf8_feed(&hold, bytes, n, out);
        must(pi__utf8_valid(out, n) == n);
    }
    char out[12];
    size_t n = pi__utf8_flush(&hold, out);
    must(pi__utf8_valid(out, n) == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!vocabs[0]) build();
    if (!size) return 0;
    const pi__vocab *v = vocabs[data[0] % N_VOCABS];
    bool special = data[0] >= 128;
    const char *text = (const char *) data + 1;
    size_t len = size - 1, n_out = 0;
    pi__ids ids = {0};
    char *out = NULL;
    must(pi__tokenize(v, text, len, special, special, &ids) == PI_OK);
    for (size_t i = 0; i < ids.n; i++) must(ids.p[i] >= 0 && ids.p[i] < pi__vocab_size(v));
    must(pi__detokenize(v, ids.p, ids.n, special, &out, &n_out) == PI_OK);
    if (lossless(v, text, len) && !special) {
        must(n_out == len);
        must(!len || !memcmp(out, text, len));
    }
    check_stream(v, &ids);
    pi__free(out);
    pi__free(ids.p);
    return 0;
}
