/* Special tokens (see special.h). */
#include "engine/special.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* Reads tokenizer.ggml.suppress_tokens: placeholders of images and similar tokens. */
static int collect_suppressed(pi__special *sp, const pi__gguf *g, int32_t n_vocab, pi_error *err)
{
    const char *key = "tokenizer.ggml.suppress_tokens";
    const pi__gguf_kv *kv = pi__gguf_find(g, key);
    if (!kv) return PI_OK;
    if (kv->type != PI__GGUF_ARR || kv->arr_type > PI__GGUF_I32 || kv->n > (uint64_t) n_vocab)
        return pi__fail(err, PI_EFORMAT, "metadata %s is not an array of token ids", key);
    if (!kv->n) return PI_OK;
    sp->suppress = pi__calloc((size_t) kv->n, sizeof *sp->suppress);
    if (!sp->suppress) return pi__fail_mem(err, "the vocabulary");
    for (uint64_t i = 0; i < kv->n; i++) {
        int64_t id = pi__gguf_elem_i64(kv, i);
        if (id < 0 || id >= n_vocab)
            return pi__fail(err, PI_EFORMAT, "metadata %s has token %lld, but the vocabulary has %d", key,
                            (long long) id, n_vocab);
        sp->suppress[sp->n_suppress++] = (int32_t) id;
    }
    return PI_OK;
}

int pi__special_collect(pi__special *sp, const pi__vocab *v, const pi__gguf *g, int32_t n_vocab, pi_error *err)
{
    const int32_t n = pi__vocab_size(v);
    memset(sp, 0, sizeof *sp);
    if (n > n_vocab)
        return pi__fail(err, PI_EFORMAT, "tokenizer.ggml.tokens has %d entries, token_embd.weight only %d rows", n,
                        n_vocab);
    for (int pass = 0; pass < 2; pass++) {
        int32_t k = 0;
        for (int32_t id = 0; id < n; id++)
            if (pi__vocab_is_eog(v, id)) {
                if (pass) sp->eog[k] = id;
                k++;
            }
        if (pass) break;
        sp->n_eog = k;
        sp->eog = pi__calloc((size_t) k, sizeof *sp->eog);
        if (!sp->eog) return pi__fail_mem(err, "the vocabulary");
    }
    sp->n_turn_ids = pi__vocab_turn_starts(v, sp->turn_id, PI__MAX_TURNS);
    return collect_suppressed(sp, g, n_vocab, err);
}

void pi__special_free(pi__special *sp)
{
    pi__free(sp->eog);
    pi__free(sp->suppress);
    memset(sp, 0, sizeof *sp);
}
