/* pi_vocab_*: a vocabulary without an engine, from any GGUF with tokenizer metadata.
 *
 * The file is closed after loading. Threads: any number may use one vocabulary. */
#include <string.h>

#include "api/ids.h"
#include "base/alloc.h"
#include "base/error.h"
#include "tokenizer/vocab.h"

struct pi_vocab {
    pi__vocab *v;
};

int pi_vocab_open(pi_vocab **out, const char *path, pi_error *err)
{
    if (err) *err = (pi_error) {0};
    if (!out) return pi__fail(err, PI_EINVAL, "pi_vocab_open: out is NULL");
    *out = NULL;
    if (!path) return pi__fail(err, PI_EINVAL, "pi_vocab_open: path is NULL");
    pi_vocab *vocab = pi__calloc(1, sizeof *vocab);
    if (!vocab) return pi__fail_mem(err, "the vocabulary");
    pi__gguf *g = NULL;
    int rc = pi__gguf_open(&g, path, PI__LOAD_MMAP, err);
    if (!rc) rc = pi__vocab_load(&vocab->v, g, err);
    pi__gguf_close(g);
    if (rc) {
        pi__free(vocab);
        return rc;
    }
    *out = vocab;
    return PI_OK;
}

int64_t pi_vocab_tokenize(const pi_vocab *v, const char *text, size_t len, int flags, int32_t *out, size_t cap)
{
    if (!v || (!text && len) || (!out && cap)) return PI_EINVAL;
    pi__ids ids = {0};
    int rc = pi__tokenize(v->v, text, len, flags & PI_TOK_BOS, flags & PI_TOK_SPECIAL, &ids);
    if (!rc && ids.n && cap) memcpy(out, ids.p, (ids.n < cap ? ids.n : cap) * sizeof *out);
    pi__free(ids.p);
    return rc ? rc : (int64_t) ids.n;
}

int64_t pi_vocab_detokenize(const pi_vocab *v, const int32_t *ids, size_t n, int flags, char *out, size_t cap)
{
    if (!v || (!ids && n) || (!out && cap) || !pi__ids_below(ids, n, pi__vocab_size(v->v))) return PI_EINVAL;
    char *text = NULL;
    size_t len = 0;
    int rc = pi__detokenize(v->v, ids, n, flags & PI_TOK_SPECIAL, &text, &len);
    if (rc) return rc;
    if (cap) memcpy(out, text, len < cap ? len : cap);
    pi__free(text);
    return (int64_t) len;
}

void pi_vocab_free(pi_vocab *v)
{
    if (!v) return;
    pi__vocab_free(v->v);
    pi__free(v);
}
