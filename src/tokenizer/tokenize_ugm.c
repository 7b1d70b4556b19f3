/* Unigram (tokenizer.ggml.model "t5"; also XLM-RoBERTa's, for BGE-M3 and its rerankers): finds the tokens with the
 * largest sum of scores (log probabilities) over the text. A character that is not a token is unknown, with a penalty.
 * Adjacent unknown characters become one token.
 *
 *     text    " ﬁt  x"  ->  the file's character map, one space for several, U+2581 for spaces  ->  ▁fit▁x
 *     best    [n + 1] best tokenization up to each byte: its score, its last token, and the start of that token
 *
 * The map (tokenizer.ggml.precompiled_charsmap) has SentencePiece's format: a double array over the bytes to replace,
 * and the replacement texts, each ended by 0. A node's base is in bits 10 to 30 (shifted left by 8 more if bit 9 is
 * set). Bits 0 to 7 are the byte that leads to the node. Bit 8 means that the node at its base holds the offset of a
 * text:
 *
 *     next = node ^ byte, if its byte is that; then next ^= base(next)
 *
 * Indices are checked at each step: outside the arrays nothing matches. Memory: the call's pi__tok. Threads: any. */
#include <float.h>
#include <string.h>

#include "tokenizer/vocab_impl.h"

enum { SPACE = 3 /* bytes of U+2581 */ };
static const float unknown_price = 10;

static uint32_t node_at(const pi__vocab *v, uint32_t i) { return i < v->n_charsmap ? v->charsmap[i] : 0; }
static uint32_t base_of(uint32_t node) { return (node >> 10) << ((node & 1u << 9) >> 6); }

/* Finds the longest prefix of text that the map replaces. Returns its bytes (0 = none), and *n bytes of replacement in
 * *by. */
static size_t replaced(const pi__vocab *v, const char *text, size_t len, const char **by, size_t *n)
{
    size_t longest = 0;
    uint32_t node = base_of(node_at(v, 0));
    for (size_t i = 0; i < len && text[i] && v->n_charsmap; i++) {
        const uint32_t byte = (unsigned char) text[i], at = node_at(v, node ^ byte);
        if ((at & (1u << 31 | 0xFF)) != byte) break;
        node = node ^ byte ^ base_of(at);
        const uint32_t place = node_at(v, node) & ~(1u << 31);
        if (!(at >> 8 & 1) || place >= v->n_replacement) continue;
        *by = v->replacement + place;
        *n = strnlen(*by, v->n_replacement - place);
        longest = i + 1;
    }
    return longest;
}

/* Output of normalise. */
typedef struct text {
    pi__tok *t;
    size_t n;
    bool in_word;
} text;

static bool put_bytes(text *o, const char *p, size_t n)
{
    if (!pi__grow(&o->t->buf, &o->t->buf_cap, o->n + n, 1)) return false;
    memcpy(o->t->buf + o->n, p, n);
    o->n += n;
    return true;
}

/* Puts U+2581 before each word that follows a space, and before the first word. */
static bool put_mapped(text *o, const char *p, size_t n)
{
    const pi__vocab *v = o->t->v;
    for (size_t i = 0; i < n; i++) {
        const bool space = p[i] == ' ', starts = !space && !o->in_word;
        const bool add = space ? !v->merge_spaces : starts && (v->merge_spaces || (v->add_space_prefix && !o->n));
        o->in_word = !space;
        if (add && !put_bytes(o, "\xE2\x96\x81", SPACE)) return false;
        if (!space && !put_bytes(o, p + i, 1)) return false;
    }
    return true;
}

/* Writes the mapped text to t->buf. Returns its length; SIZE_MAX if out of memory. */
static size_t normalise(pi__tok *t, const char *p, size_t n)
{
    text o = {.t = t};
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;
        const char *by = p + i;
        size_t k = 0;
        len = replaced(t->v, p + i, n - i, &by, &k);
        if (!len) len = k = pi__utf8_char(p + i, n - i, &cp);
        if (!len) len = 1, by = "\xEF\xBF\xBD", k = 3;
        if (!put_mapped(&o, by, k)) return SIZE_MAX;
    }
    return o.n;
}

static bool is_piece(const pi__tok *t, int32_t id)
{
    const uint8_t attr = id >= 0 ? t->v->attr[id] : PI__TOK_CONTROL;
    return (attr == PI__TOK_NORMAL || attr == PI__TOK_USER || attr == PI__TOK_UNUSED) && pi__tok_may(t, id);
}

static void offer(struct pi__best *best, size_t from, size_t to, int32_t id, double score)
{
    score += best[from].score;
    if (score > best[to].score) best[to] = (struct pi__best) {score, (uint32_t) from, id};
}

/* Tries all tokens that start at byte i of n. len: bytes of the character at i. */
static void offer_tokens(pi__tok *t, size_t i, size_t len, size_t n)
{
    const pi__vocab *v = t->v;
    bool single = false;
    for (size_t to = i + len; to <= n && to - i <= v->max_piece;
         to += to < n ? pi__utf8_len((unsigned char) t->buf[to]) : 1) {
        const int32_t id = pi__piece_find(v, t->buf + i, to - i);
        if (!is_piece(t, id)) continue;
        offer(t->best, i, to, id, v->attr[id] == PI__TOK_USER ? 0.0 : (double) v->score[id]);
        single = single || to == i + len;
    }
    if (!single) offer(t->best, i, i + len, v->unk, (double) v->min_score - (double) unknown_price);
}

/* Emits the best path from its end, then reverses it. */
static bool emit_best(pi__tok *t, size_t n)
{
    const size_t first = t->out->n;
    int32_t behind = -1;
    for (size_t at = n; at > 0; at = t->best[at].at) {
        const int32_t id = t->best[at].id;
        if (id >= 0 && !(id == t->v->unk && behind == id) && !pi__tok_emit(t, id)) return false;
        behind = id;
    }
    for (size_t i = first, k = t->out->n; i + 1 < k; i++) {
        const int32_t id = t->out->p[i];
        t->out->p[i] = t->out->p[--k];
        t->out->p[k] = id;
    }
    return true;
}

int pi__tokenize_ugm(pi__tok *t, const char *p, size_t len)
{
    const size_t n = normalise(t, p, len);
    if (n == SIZE_MAX) return PI_ENOMEM;
    if (n > INT32_MAX) return PI_ETOOBIG;
    if (!pi__grow(&t->best, &t->best_cap, n + 1, sizeof *t->best)) return PI_ENOMEM;
    for (size_t i = 0; i <= n; i++) t->best[i] = (struct pi__best) {i ? -DBL_MAX : 0, 0, -1};
    for (size_t i = 0, k; i < n; i += k) {
        k = pi__utf8_len((unsigned char) t->buf[i]);
        if (k > n - i) k = n - i;
        if (!pi__work_step(t->out->work, 8)) return t->out->work->code;
        offer_tokens(t, i, k, n);
    }
    return emit_best(t, n) ? PI_OK : PI_ENOMEM;
}
