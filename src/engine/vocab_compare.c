/* Compares vocabularies (see vocab_compare.h). Allocates nothing. Opening thread only. */
#include "engine/vocab_compare.h"

#include <string.h>

#include "base/error.h"

enum { ONE_IN = 100 /* one in this many tokens may differ */ };

static const char key[] = "tokenizer.ggml.tokens";

static const pi__gguf_kv *tokens_of(const pi__gguf *g)
{
    const pi__gguf_kv *kv = pi__gguf_find(g, key);
    return kv && kv->type == PI__GGUF_ARR && kv->arr_type == PI__GGUF_STR ? kv : NULL;
}

int pi__vocab_compare(const pi__gguf *model, const pi__gguf *draft, pi_error *err)
{
    const pi__gguf_kv *a = tokens_of(model), *b = tokens_of(draft);
    if (!a || !b)
        return pi__fail(err, PI_EFORMAT,
                        "model-draft: metadata %s is missing in %s, so vocabularies cannot be compared", key,
                        a ? "it" : "the model");
    const uint64_t n = a->n < b->n ? a->n : b->n;
    uint64_t other = 0, first = 0;
    for (uint64_t i = 0; i < n; i++) {
        const pi__str x = a->strs[i], y = b->strs[i];
        if (x.n == y.n && !memcmp(x.p, y.p, x.n)) continue;
        if (!other++) first = i;
    }
    if (other <= n / ONE_IN) return PI_OK;
    const pi__str x = a->strs[first], y = b->strs[first];
    return pi__fail(err, PI_EINVAL,
                    "model-draft has another vocabulary: %llu of %llu tokens differ, the first is %llu, \"%.*s\" "
                    "instead of \"%.*s\"; give a smaller model of the same family",
                    (unsigned long long) other, (unsigned long long) n, (unsigned long long) first,
                    (int) (y.n < 32 ? y.n : 32), y.p, (int) (x.n < 32 ? x.n : 32), x.p);
}
