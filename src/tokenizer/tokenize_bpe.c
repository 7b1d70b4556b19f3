/* BPE: the pair with the lowest rank in tokenizer.ggml.merges merges first, leftmost on ties.
 *
 * "gpt2": text is repaired to valid UTF-8 and split into words by the pre-tokenizer; a word's symbols are its bytes.
 * "gemma4": spaces become U+2581, lines are the words, and symbols are characters. Symbols that are not tokens in the
 * end become byte tokens. Memory: the call's pi__tok. Threads: any. */
#include <string.h>

#include "tokenizer/vocab_impl.h"

static bool pair_rank(const pi__tok *t, const char *text, const pi__sym *l, const pi__sym *r, uint32_t *order,
                      int32_t *piece)
{
    (void) text;
    const pi__merge_slot *m = l->piece < 0 || r->piece < 0 ? NULL : pi__merge_find(t->v, l->piece, r->piece);
    if (!m || !pi__tok_may(t, m->piece)) return false;
    *order = m->rank;
    *piece = m->piece;
    return true;
}

/* Merges the symbols collected so far and emits them. */
static bool flush(pi__tok *t, const char *text)
{
    if (t->n_sym && !pi__tok_merge(t, text, pair_rank)) return false;
    for (int32_t i = t->n_sym ? 0 : -1; i >= 0; i = t->sym[i].next) {
        const pi__sym *s = &t->sym[i];
        if (s->piece >= 0 && s->piece < t->v->n_tok && pi__tok_may(t, s->piece)) {
            if (!pi__tok_emit(t, s->piece)) return false;
            continue;
        }
        for (uint32_t k = 0; k < s->n; k++) {
            int32_t id = t->v->byte_id[(unsigned char) text[s->pos + k]];
            if (id >= 0 && !pi__tok_emit(t, id)) return false;
        }
    }
    t->n_sym = 0;
    return true;
}

/* Gets the token of a complete word in byte-level BPE; *id -1 if there is none or the vocabulary does not ignore
 * merges. */
static int whole_word(pi__tok *t, const char *word, size_t n, int32_t *id)
{
    *id = -1;
    if (!t->v->ignore_merges || n > t->v->max_piece) return PI_OK;
    if (!pi__grow(&t->word, &t->word_cap, 2 * n, 1)) return PI_ENOMEM;
    size_t o = 0;
    for (size_t i = 0; i < n; i++) o += pi__utf8_put(pi__byte_to_cp((unsigned char) word[i]), t->word + o);
    *id = pi__piece_find(t->v, t->word, o);
    if (*id >= t->v->n_tok || (*id >= 0 && !pi__tok_may(t, *id))) *id = -1;
    return PI_OK;
}

static int bpe_word(void *ud, const char *word, size_t n)
{
    pi__tok *t = ud;
    int32_t id;
    if (!pi__work_step(t->out->work, 4)) return t->out->work->code;
    word = t->raw + (word - t->subject);
    int rc = whole_word(t, word, n, &id);
    if (rc) return rc;
    if (id >= 0) return pi__tok_emit(t, id) ? PI_OK : PI_ENOMEM;
    t->n_sym = 0;
    for (size_t i = 0; i < n; i++)
        if (!pi__tok_symbol(t, (uint32_t) i, 1, t->v->start_piece[(unsigned char) word[i]])) return PI_ENOMEM;
    return flush(t, word) ? PI_OK : PI_ENOMEM;
}

/* Tokenizes one line or one run of newlines. */
static int gemma_word(pi__tok *t, const char *word, size_t n)
{
    if (word[0] == '\n') {
        int32_t id = n > t->v->max_piece ? -1 : pi__piece_find(t->v, word, n);
        if (id >= 0 && id < t->v->n_tok && pi__tok_may(t, id)) return pi__tok_emit(t, id) ? PI_OK : PI_ENOMEM;
    }
    t->n_sym = 0;
    bool was_space = true;
    for (size_t i = 0, len; i < n; i += len) {
        unsigned char b = (unsigned char) word[i];
        len = pi__utf8_len(b);
        int32_t piece = b < 0x80 ? t->v->start_piece[b] : pi__piece_find(t->v, word + i, len);
        bool space = len == 3 && !memcmp(word + i, "\xE2\x96\x81", 3);
        /* As in SentencePiece: a word ends if no merge can join it with the following space. */
        if (space && !was_space && !t->v->glue[(unsigned char) word[i - 1]] && !flush(t, word)) return PI_ENOMEM;
        was_space = space;
        if (!pi__tok_symbol(t, (uint32_t) i, (uint32_t) len, piece)) return PI_ENOMEM;
    }
    return flush(t, word) ? PI_OK : PI_ENOMEM;
}

static int split_lines(pi__tok *t, const char *text, size_t n)
{
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && (text[j] == '\n') == (text[i] == '\n'); j++) {}
        int rc = gemma_word(t, text + i, j - i);
        if (rc) return rc;
    }
    return PI_OK;
}

/* Reads characters from any bytes, as llama.cpp does: overlong forms count as the encoded character, surrogates stay
 * (*surrogates is set), any other bad byte becomes one U+FFFD. out needs 3 * n bytes. Returns the bytes written. */
static size_t repair(const char *text, size_t n, char *out, bool *surrogates)
{
    size_t o = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = (unsigned char) text[i];
        len = pi__utf8_len((unsigned char) cp);
        bool ok = cp < 0x80 || (cp >= 0xC0 && cp < 0xF8 && len <= n - i);
        if (len > 1) cp &= 0x7Fu >> len;
        for (size_t k = 1; ok && k < len; k++) {
            ok = ((unsigned char) text[i + k] & 0xC0) == 0x80;
            cp = cp << 6 | ((unsigned char) text[i + k] & 0x3F);
        }
        if (!ok || cp > 0x10FFFF) {
            len = 1;
            cp = 0xFFFD;
        }
        *surrogates |= cp >= 0xD800 && cp < 0xE000;
        o += pi__utf8_put(cp, out + o);
    }
    return o;
}

/* Replaces surrogates by U+E000, of the same length and in no class, because PCRE2 needs valid UTF-8. */
static char *without_surrogates(const char *text, size_t n)
{
    char *p = pi__malloc(n);
    if (!p) return NULL;
    memcpy(p, text, n);
    for (size_t i = 0; i + 2 < n; i += pi__utf8_len((unsigned char) p[i]))
        if ((unsigned char) p[i] == 0xED && (unsigned char) p[i + 1] >= 0xA0) memcpy(p + i, "\xEE\x80\x80", 3);
    return p;
}

int pi__tokenize_bpe(pi__tok *t, const char *text, size_t n)
{
    char *fixed = NULL, *subject = NULL;
    bool surrogates = false;
    int rc = PI_ENOMEM;
    if (pi__utf8_valid(text, n) < n) {
        fixed = pi__realloc_array(NULL, n, 3);
        if (!fixed) goto out;
        n = repair(text, n, fixed, &surrogates);
        text = fixed;
    }
    if (t->v->kind == PI__VOCAB_GEMMA4) {
        n = pi__tok_escape(t, false, text, n);
        if (n != SIZE_MAX) rc = n > INT32_MAX ? PI_ETOOBIG : split_lines(t, t->buf, n);
        goto out;
    }
    if (surrogates) {
        subject = without_surrogates(text, n);
        if (!subject) goto out;
    }
    t->raw = text;
    t->subject = surrogates ? subject : text;
    rc = n > INT32_MAX ? PI_ETOOBIG : pi__pretok_split(t->v->pretok, t->subject, n, bpe_word, t);
out:
    pi__free(subject);
    pi__free(fixed);
    return rc;
}
