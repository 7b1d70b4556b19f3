/* Token ids back to text: the bytes of one token, the text of a sequence, and the byte alphabet of byte-level BPE.
 *
 * The text of a sequence is the bytes of its tokens in order. Only the space that the tokenizer put in front is
 * removed. llama.cpp's "clean up spaces" is left out: it loses characters, and streamed text could never match it.
 * Only pi__detokenize allocates, for its result. Threads: any. */
#include <string.h>

#include "tokenizer/vocab_impl.h"

/* GPT-2's alphabet: a printable byte maps to itself, the 68 others to U+0100 and up in order. */
static bool prints(uint32_t b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD); }

uint32_t pi__byte_to_cp(unsigned char b)
{
    if (prints(b)) return b;
    if (b <= 0x20) return 0x100u + b;
    return b == 0xAD ? 0x143u : 0x100u + 0x21 + (b - 0x7Fu);
}

int pi__cp_to_byte(uint32_t cp)
{
    if (cp < 0x100) return prints(cp) ? (int) cp : -1;
    if (cp <= 0x120) return (int) (cp - 0x100);
    if (cp <= 0x142) return (int) (cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

typedef struct sink { /* counts all bytes, keeps those that fit */
    char *out;
    size_t cap, n;
} sink;

static void put(sink *s, const char *p, size_t n)
{
    if (s->n < s->cap) memcpy(s->out + s->n, p, n < s->cap - s->n ? n : s->cap - s->n);
    s->n += n;
}

/* Appends the text with a space in place of each U+2581. */
static void put_unescaped(sink *s, pi__str text)
{
    for (size_t i = 0, from = 0; i < text.n;) {
        bool space = text.n - i >= 3 && !memcmp(text.p + i, "\xE2\x96\x81", 3);
        i += space ? 3 : 1;
        if (!space && i < text.n) continue;
        put(s, text.p + from, i - from - (space ? 3 : 0));
        if (space) put(s, " ", 1);
        from = i;
    }
}

/* Appends the byte of each character; a character outside the alphabet is copied unchanged. */
static void put_byte_level(sink *s, pi__str text)
{
    uint32_t cp;
    for (size_t i = 0, len; i < text.n && (len = pi__utf8_char(text.p + i, text.n - i, &cp)); i += len) {
        int b = pi__cp_to_byte(cp);
        char c = (char) b;
        if (b >= 0) put(s, &c, 1);
        else put(s, text.p + i, len);
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads "<0x0A>"; returns -1 for any other spelling. */
static int byte_of(pi__str s)
{
    if (s.n != 6 || memcmp(s.p, "<0x", 3) || s.p[5] != '>') return -1;
    int hi = hex_digit(s.p[3]), lo = hex_digit(s.p[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

size_t pi__token_bytes(const pi__vocab *v, int32_t id, bool special, char *out, size_t cap)
{
    sink s = {out, cap, 0};
    if (id < 0 || id >= v->n_tok) return 0;
    pi__str text = pi__vocab_spelling(v, id);
    switch (v->attr[id]) {
    case PI__TOK_CONTROL:
    case PI__TOK_UNKNOWN:
        if (special || (v->flags[id] & PI__TOKF_PRINT)) put(&s, text.p, text.n);
        return s.n;
    case PI__TOK_USER:
        put(&s, text.p, text.n);
        return s.n;
    case PI__TOK_UNUSED:
        return 0;
    case PI__TOK_BYTE: {
        int b = byte_of(text);
        char c = (char) b;
        if (b < 0) break;
        put(&s, &c, 1);
        return s.n;
    }
    }
    if (v->kind == PI__VOCAB_BPE) put_byte_level(&s, text);
    else if (v->kind == PI__VOCAB_PLAMO2) put(&s, text.p, text.n);
    else put_unescaped(&s, text);
    return s.n;
}

int pi__detokenize(const pi__vocab *v, const int32_t *ids, size_t n, bool special, char **out, size_t *out_len)
{
    char *buf = NULL;
    size_t cap = 0, len = 0;
    bool strip = v->add_space_prefix;
    if (!pi__grow(&buf, &cap, n * 4 + 16, 1)) return PI_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        size_t k = pi__token_bytes(v, ids[i], special, buf + len, cap - len);
        if (k > cap - len) {
            if (!pi__grow(&buf, &cap, len + k, 1)) {
                pi__free(buf);
                return PI_ENOMEM;
            }
            pi__token_bytes(v, ids[i], special, buf + len, cap - len);
        }
        if (strip && k) { /* first text; tokens that print nothing do not count */
            if (buf[len] == ' ' && v->attr[ids[i]] != PI__TOK_USER) memmove(buf + len, buf + len + 1, --k);
            strip = false;
        }
        len += k;
    }
    *out = buf;
    *out_len = len;
    return PI_OK;
}
