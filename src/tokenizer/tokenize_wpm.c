/* WordPiece (tokenizer.ggml.model "bert"): splits text into words, and each word into its longest matching tokens from
 * left to right. A word that cannot be split completely is unknown.
 *
 *     text    Zürich's  ->  characters without non-text, accents and upper case  ->  zurich ' s
 *     tokens  at a word's start are spelled with U+2581 in front (by the converter); other tokens continue a word
 *
 * White space ends words; punctuation and Chinese characters are words of their own. The character classes follow the
 * original tokenizers: control and unassigned characters are dropped, ASCII symbols are punctuation, and words of more
 * than 100 characters are unknown.
 *
 * Memory: the call's pi__tok. Threads: any. Accepts any bytes; invalid UTF-8 is dropped. */
#include <string.h>

#include "base/unicode.h"
#include "tokenizer/vocab_impl.h"

enum { PREFIX = 3 /* bytes of U+2581 */, MOST_CHARS = 100 };

/* The current word in t->word, after the prefix. */
typedef struct word {
    pi__tok *t;
    size_t n, n_chars; /* bytes, including the prefix; characters */
} word;

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

static bool is_punctuation(uint32_t c)
{
    const bool symbol = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    return symbol || pi__uis(c, PI__U_PUNCT);
}

/* Control characters (except white space) and unassigned characters are dropped. */
static bool is_white(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\r' || (c >= ' ' && c != 0x85 && pi__uis_white(c));
}
static bool is_text(uint32_t c) { return c && c != 0xFFFD && pi__uis(c, PI__U_PRINT); }

/* Returns the longest token at the start of w[from..n); *len: its bytes. -1 if there is none. */
static int32_t longest(const pi__tok *t, const char *w, size_t from, size_t n, size_t *len)
{
    size_t k = n - from < t->v->max_piece ? n - from : t->v->max_piece;
    for (; k > 0; k--) {
        if (from + k < n && ((unsigned char) w[from + k] & 0xC0) == 0x80) continue; /* inside a character */
        const int32_t id = pi__piece_find(t->v, w + from, k);
        if (id < 0 || !pi__tok_may(t, id)) continue;
        *len = k;
        return id;
    }
    return -1;
}

/* Emits the word's tokens, or the unknown token, and starts a new word. */
static bool end_word(word *w)
{
    pi__tok *t = w->t;
    const size_t before = t->out->n;
    bool known = w->n_chars <= MOST_CHARS;
    for (size_t at = 0, len = 0; known && w->n_chars && at < w->n; at += len) {
        const int32_t id = longest(t, t->word, at, w->n, &len);
        known = id >= 0;
        if (known && !pi__tok_emit(t, id)) return false;
    }
    if (!known) t->out->n = before;
    if (!known && t->v->unk >= 0 && !pi__tok_emit(t, t->v->unk)) return false;
    w->n = PREFIX;
    w->n_chars = 0;
    return true;
}

static bool add_char(word *w, uint32_t cp)
{
    pi__tok *t = w->t;
    if (!pi__grow(&t->word, &t->word_cap, w->n + 4, 1)) return false;
    if (w->n_chars <= MOST_CHARS) w->n += pi__utf8_put(cp, t->word + w->n); /* otherwise it is too long already */
    w->n_chars++;
    return true;
}

/* Adds one character without accents. */
static bool add_bare(word *w, uint32_t cp)
{
    const bool alone = is_punctuation(cp);
    uint32_t low[PI__UCASE_MAX] = {cp};
    const size_t n = w->t->v->lowercase ? pi__ucase(cp, 'L', low) : 1;
    if (alone && !end_word(w)) return false;
    for (size_t i = 0; i < n; i++)
        if (!add_char(w, low[i])) return false;
    return !alone || end_word(w);
}

static bool add_text(word *w, uint32_t cp)
{
    const bool alone = is_chinese(cp);
    uint32_t bare[PI__UBARE_MAX] = {cp};
    const size_t n = w->t->v->strip_accents ? pi__ubare(cp, bare) : 1;
    if (alone && !end_word(w)) return false;
    for (size_t i = 0; i < n; i++)
        if (!add_bare(w, bare[i])) return false;
    return !alone || end_word(w);
}

int pi__tokenize_wpm(pi__tok *t, const char *text, size_t n)
{
    word w = {.t = t, .n = PREFIX};
    if (!pi__grow(&t->word, &t->word_cap, PREFIX, 1)) return PI_ENOMEM;
    memcpy(t->word, "\xE2\x96\x81", PREFIX);
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp = 0;
        if (!pi__work_step(t->out->work, 2)) return t->out->work->code;
        len = pi__utf8_char(text + i, n - i, &cp);
        if (!len) {
            len = 1;
            continue;
        }
        const bool good = is_white(cp) ? end_word(&w) : !is_text(cp) || add_text(&w, cp);
        if (!good) return PI_ENOMEM;
    }
    return end_word(&w) ? PI_OK : PI_ENOMEM;
}
