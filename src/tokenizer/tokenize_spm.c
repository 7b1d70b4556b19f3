/* SentencePiece (tokenizer.ggml.model "llama"): merges first the pair that joins to the token with the highest score.
 * A symbol that is not a token in the end becomes one byte token per byte.
 *
 * Memory: the call's pi__tok. Threads: any. Accepts any bytes: a character's length is taken from its first byte. */
#include <string.h>

#include "tokenizer/vocab_impl.h"

/* Maps floats to integers in reverse order: the highest score becomes the smallest. */
static uint32_t score_order(float score)
{
    uint32_t u;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &score, sizeof u);
    return ~(u & 0x80000000u ? ~u : u | 0x80000000u);
}

static bool pair_rank(const pi__tok *t, const char *text, const pi__sym *l, const pi__sym *r, uint32_t *order,
                      int32_t *piece)
{
    if (l->n + r->n > t->v->max_piece) return false;
    *piece = pi__piece_find(t->v, text + l->pos, l->n + r->n);
    if (*piece < 0 || !pi__tok_may(t, *piece)) return false;
    *order = score_order(t->v->score[*piece]);
    return true;
}

static bool emit_bytes(pi__tok *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = t->v->byte_id[(unsigned char) p[i]];
        if (id < 0) id = t->v->unk;
        if (id >= 0 && !pi__tok_emit(t, id)) return false;
    }
    return true;
}

/* Merges the symbols collected so far and emits them. */
static bool flush(pi__tok *t, const char *text)
{
    if (t->n_sym && !pi__tok_merge(t, text, pair_rank)) return false;
    for (int32_t i = t->n_sym ? 0 : -1; i >= 0; i = t->sym[i].next) {
        const pi__sym *s = &t->sym[i];
        int32_t id = s->piece >= 0 ? s->piece : pi__piece_find(t->v, text + s->pos, s->n);
        if (!(id >= 0 && pi__tok_may(t, id) ? pi__tok_emit(t, id) : emit_bytes(t, text + s->pos, s->n))) return false;
    }
    t->n_sym = 0;
    return true;
}

int pi__tokenize_spm(pi__tok *t, const char *text, size_t n, bool prefix)
{
    n = pi__tok_escape(t, prefix, text, n);
    if (n == SIZE_MAX) return PI_ENOMEM;
    if (n > INT32_MAX) return PI_ETOOBIG;
    text = t->buf;
    t->n_sym = 0;
    bool was_space = true;
    for (size_t i = 0, len; i < n; i += len) {
        len = pi__utf8_len((unsigned char) text[i]);
        if (len > n - i) len = n - i;
        bool space = len == 3 && !memcmp(text + i, "\xE2\x96\x81", 3);
        /* No token has a space after this character, so nothing can merge across: the word before it is complete. */
        if (space && !was_space && !t->v->glue[(unsigned char) text[i - 1]] && !flush(t, text)) return PI_ENOMEM;
        was_space = space;
        if (!pi__tok_symbol(t, (uint32_t) i, (uint32_t) len, -1)) return PI_ENOMEM;
    }
    return flush(t, text) ? PI_OK : PI_ENOMEM;
}
