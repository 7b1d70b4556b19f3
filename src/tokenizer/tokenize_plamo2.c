/* PLaMo 2 and 3 (tokenizer.ggml.model "plamo2"): finds the tokens with the largest sum of scores over the text. A
 * character without a token becomes its bytes, at a fixed price. Equal sums: the longer first token wins.
 *
 *     text    "hello"
 *     best    [n + 1] best tokenization from each byte to the end: its score, its first token, and that token's end
 *     sorted  ... "he" "hell" "hello" "help" ...: all tokens of text, in the order of their bytes
 *
 * `best` is filled from the end of the text to its start. To find the tokens at a byte, the text is read from there,
 * and the range of `sorted` that begins with the bytes read is kept. The shortest token of a range comes first: it is
 * the bytes read, or no token is. Each byte costs two binary searches, and the first byte that no token continues with
 * ends the search. So the cost is at most O(longest token * log tokens) per character.
 *
 * Control tokens and unused ones are never parts of text; in llama.cpp they may be. Memory: the call's pi__tok.
 * Threads: any. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/vocab_impl.h"

static const double unknown_score = -1e7, min_score = -2e7; /* min_score and less: the token is never used */

typedef struct entry {
    const char *text;
    uint32_t n;
    int32_t id;
} entry;

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

int pi__vocab_sort(pi__vocab *v, pi_error *err)
{
    for (int b = 0; b < 256; b++)
        if (v->byte_id[b] < 0 || v->attr[v->byte_id[b]] != PI__TOK_BYTE)
            return pi__fail(err, PI_EFORMAT, "tokenizer.ggml.tokens: the byte token <0x%02X> is missing", (unsigned) b);
    entry *e = pi__realloc_array(NULL, (size_t) v->n_tok, sizeof *e);
    v->sorted = pi__realloc_array(NULL, (size_t) v->n_tok, sizeof *v->sorted);
    for (int32_t i = 0; i < v->n_tok && e && v->sorted; i++) {
        const pi__str s = pi__vocab_spelling(v, i);
        if (!s.n || (v->attr[i] != PI__TOK_NORMAL && v->attr[i] != PI__TOK_USER)) continue;
        e[v->n_sorted++] = (entry) {s.p, (uint32_t) s.n, i};
    }
    if (v->n_sorted) qsort(e, v->n_sorted, sizeof *e, by_bytes);
    for (size_t i = 0; i < v->n_sorted; i++) v->sorted[i] = e[i].id;
    const bool ok = e && v->sorted;
    pi__free(e);
    return ok ? PI_OK : pi__fail_mem(err, "the vocabulary");
}

/* Returns byte k of a token, -1 at its end. */
static int byte_at(const pi__vocab *v, size_t i, size_t k)
{
    const pi__piece *p = &v->piece[v->sorted[i]];
    return k < p->n ? (unsigned char) v->pool[p->off + k] : -1;
}

/* Returns the first index in [lo, hi) whose token has a byte k of at least `byte`; hi if there is none. */
static size_t first_of(const pi__vocab *v, size_t lo, size_t hi, size_t k, int byte)
{
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (byte_at(v, mid, k) < byte) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* Fills in best[i] for the n bytes of text. len: bytes of the character at i. Returns false if the work has ended. */
static bool fill(pi__tok *t, const char *text, size_t n, size_t i, size_t len)
{
    const pi__vocab *v = t->v;
    struct pi__best *best = t->best;
    size_t lo = 0, hi = v->n_sorted;
    best[i] = (struct pi__best) {best[i + len].score + unknown_score, (uint32_t) (i + len), -1};
    for (size_t k = 0; i + k < n; k++) {
        const int byte = (unsigned char) text[i + k];
        if (!pi__work_step(t->out->work, 4)) return false;
        lo = first_of(v, lo, hi, k, byte);
        hi = first_of(v, lo, hi, k, byte + 1);
        if (lo == hi) break;
        const int32_t id = v->sorted[lo];
        if (v->piece[id].n != k + 1 || !pi__tok_may(t, id)) continue;
        const double score = round((double) v->score[id] * 1e4), sum = best[i + k + 1].score + score;
        if (score > min_score && isfinite(score) && sum >= best[i].score)
            best[i] = (struct pi__best) {sum, (uint32_t) (i + k + 1), id};
    }
    return true;
}

static bool emit_bytes(pi__tok *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!pi__tok_emit(t, t->v->byte_id[(unsigned char) p[i]])) return false;
    return true;
}

/* Returns text, or a copy in t->buf with U+FFFD for each byte that is not part of a character. *n: its bytes. NULL: out
 * of memory. */
static const char *valid_text(pi__tok *t, const char *text, size_t *n)
{
    const size_t len = *n;
    if (pi__utf8_valid(text, len) == len) return text;
    if (!pi__grow(&t->buf, &t->buf_cap, len, 3)) return NULL;
    *n = 0;
    for (size_t i = 0, k; i < len; i += k) {
        uint32_t cp;
        const size_t whole = pi__utf8_char(text + i, len - i, &cp);
        k = whole ? whole : 1;
        memcpy(t->buf + *n, whole ? text + i : "\xEF\xBF\xBD", whole ? whole : 3);
        *n += whole ? whole : 3;
    }
    return t->buf;
}

int pi__tokenize_plamo2(pi__tok *t, const char *text, size_t n)
{
    text = valid_text(t, text, &n);
    if (!text) return PI_ENOMEM;
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) text += 3, n -= 3; /* a byte order mark is dropped */
    if (n > INT32_MAX) return PI_ETOOBIG;
    if (!pi__grow(&t->best, &t->best_cap, n + 1, sizeof *t->best)) return PI_ENOMEM;
    t->best[n] = (struct pi__best) {0, (uint32_t) n, -1};
    for (size_t end = n, i; end > 0; end = i) {
        for (i = end - 1; ((unsigned char) text[i] & 0xC0) == 0x80; i--) {}
        if (!fill(t, text, n, i, end - i)) return t->out->work->code;
    }
    for (size_t i = 0; i < n; i = t->best[i].at) {
        const struct pi__best *b = &t->best[i];
        if (!(b->id >= 0 ? pi__tok_emit(t, b->id) : emit_bytes(t, text + i, b->at - i))) return PI_ENOMEM;
    }
    return PI_OK;
}
