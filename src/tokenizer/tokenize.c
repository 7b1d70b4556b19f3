/* pi__tokenize: first cuts special tokens out of the text, then tokenizes the parts between them by the vocabulary's
 * kind.
 *
 * Special tokens are taken longest first over the entire text, leftmost first on ties, and never overlap:
 *
 *     text        a<|x|>b<|      tokens <|x|> and <|
 *     candidates  .5......2      longest token at each position
 *     taken       .#####..##     an overlapping candidate is tried again within the remaining room
 *     taken       .#####..##     if candidates overlap: a shorter one
 * A heap orders the candidates, so the cost is O(n log n) for any text. Memory belongs to the call. Threads: any. */
#include <string.h>

#include "tokenizer/vocab_impl.h"

enum { BYTES_PER_BYTE = 64 }; /* memory charged to the work budget per byte of text, mostly for symbols and pairs */

typedef struct cut { /* special tokens found in one text */
    const pi__vocab *v;
    const char *text;
    size_t n;
    bool control;         /* control tokens match too, not only user-defined ones */
    const pi__trust *trust; /* if not NULL: control tokens and markup match only in trusted bytes */
    pi__work *work;
    unsigned char *taken; /* [n] one bit per byte of the text: 1 = part of a found token; NULL = nothing found yet */
    pi__pair *heap;
    size_t n_heap, heap_cap;
    struct found {
        uint32_t pos, end; /* range in the text; `end` includes white space that the token drops */
        int32_t id;
    } *found;
    size_t n_found, found_cap;
} cut;

/* Returns the longest special token at pos that has at most `room` bytes; -1 if there is none. *len: its bytes. */
static int32_t longest_at(const cut *c, size_t pos, size_t room, size_t *len)
{
    const pi__trie_node *trie = c->v->trie;
    int32_t best = -1, node = 0;
    bool trusted = true;
    for (size_t i = 0; i < room; i++) {
        unsigned char b = (unsigned char) c->text[pos + i];
        node = trie[node].child;
        while (node >= 0 && trie[node].byte != b) node = trie[node].sibling;
        if (node < 0) break;
        int32_t id = trie[node].id;
        bool user = id >= 0 && c->v->attr[id] == PI__TOK_USER;
        if (c->trust && c->trust->flag[pos + i] >= PI__TRUST_IMAGE) break;
        trusted = trusted && (!c->trust || c->trust->flag[pos + i]);
        if (id >= 0 && (c->control || user) && (trusted || (user && !pi__trust_guards(c->v, c->trust, id)))) {
            best = id;
            *len = i + 1;
        }
    }
    return best;
}

static bool is_taken(const cut *c, size_t i) { return c->taken[i / 8] >> (i % 8) & 1; }

static bool add_candidate(cut *c, size_t pos, size_t room)
{
    size_t len = 0;
    if (!pi__work_step(c->work, 2)) return false;
    int32_t id = longest_at(c, pos, room, &len);
    if (id < 0) return true;
    pi__pair p = {(uint64_t) (UINT32_MAX - (uint32_t) len) << 32 | pos, (uint32_t) len, id};
    return pi__heap_push(&c->heap, &c->n_heap, &c->heap_cap, p);
}

static bool is_white(char b) { return b == ' ' || (b >= '\t' && b <= '\r'); }

static bool add_found(cut *c, size_t pos, size_t end, int32_t id)
{
    if (!pi__grow(&c->found, &c->found_cap, c->n_found + 1, sizeof *c->found)) return false;
    c->found[c->n_found++] = (struct found) {(uint32_t) pos, (uint32_t) end, id};
    return true;
}

static bool take(cut *c, size_t pos, const pi__pair *p)
{
    size_t end = pos + p->size;
    if (c->v->flags[p->piece] & PI__TOKF_RSTRIP)
        while (end < c->n && !is_taken(c, end) && is_white(c->text[end])) end++;
    for (size_t i = pos; i < end; i++) c->taken[i / 8] |= (unsigned char) (1u << (i % 8));
    return add_found(c, pos, end, p->piece);
}

/* Images: no token overlaps one, because longest_at ends before it. */
static bool find_images(cut *c)
{
    int32_t id = -1;
    for (size_t i = 0; c->trust && i < c->n; i++) {
        if (c->trust->flag[i] != PI__TRUST_IMAGE) continue;
        size_t end = i + 1;
        while (end < c->n && c->trust->flag[end] >= PI__TRUST_IMAGE_MORE) end++;
        if (!add_found(c, i, end, id--)) return false;
    }
    return true;
}

static bool find_special(cut *c)
{
    const bool *first = c->control ? c->v->first_any : c->v->first_user;
    for (size_t i = 0; i < c->n; i++)
        if (first[(unsigned char) c->text[i]] && !add_candidate(c, i, c->n - i)) return false;
    if (!c->n_heap) return true;
    c->taken = pi__calloc(c->n / 8 + 1, 1);
    if (!c->taken) return false;
    while (c->n_heap) {
        if (!pi__work_step(c->work, 2)) return false;
        pi__pair p = pi__heap_pop(c->heap, &c->n_heap);
        size_t pos = (uint32_t) p.key;
        if (is_taken(c, pos)) continue;
        /* Taken tokens are at least as long as this one: they overlap it only if they cover its last byte. */
        if (!is_taken(c, pos + p.size - 1)) {
            if (!take(c, pos, &p)) return false;
            continue;
        }
        size_t room = 1;
        while (!is_taken(c, pos + room)) room++;
        if (!add_candidate(c, pos, room)) return false;
    }
    return true;
}

/* Sorts the found tokens by position, with a heap in the candidates' memory. */
static bool sort_found(cut *c)
{
    for (size_t i = 0; i < c->n_found; i++) {
        pi__pair p = {c->found[i].pos, c->found[i].end, c->found[i].id};
        if (!pi__heap_push(&c->heap, &c->n_heap, &c->heap_cap, p)) return false;
    }
    for (size_t i = 0; i < c->n_found; i++) {
        pi__pair p = pi__heap_pop(c->heap, &c->n_heap);
        c->found[i] = (struct found) {(uint32_t) p.key, p.size, p.piece};
    }
    return true;
}

static int tokenize_between(pi__tok *t, const cut *c)
{
    const pi__vocab *v = t->v;
    size_t at = 0;
    bool prefix = v->add_space_prefix; /* at the start and after each special token */
    for (size_t i = 0; i <= c->n_found; i++) {
        size_t end = i < c->n_found ? c->found[i].pos : c->n;
        if (end > at) {
            int rc = v->kind == PI__VOCAB_SPM   ? pi__tokenize_spm(t, c->text + at, end - at, prefix)
                     : v->kind == PI__VOCAB_WPM ? pi__tokenize_wpm(t, c->text + at, end - at)
                     : v->kind == PI__VOCAB_UGM ? pi__tokenize_ugm(t, c->text + at, end - at)
                     : v->kind == PI__VOCAB_PLAMO2 ? pi__tokenize_plamo2(t, c->text + at, end - at)
                                                   : pi__tokenize_bpe(t, c->text + at, end - at);
            if (rc) return rc;
        }
        if (i == c->n_found) break;
        if (!pi__tok_emit(t, c->found[i].id)) return PI_ENOMEM;
        at = c->found[i].end;
    }
    return PI_OK;
}

static int tokenize(const pi__vocab *v, const char *text, size_t len, bool add_special, bool parse_special,
                    const pi__trust *trust, pi__ids *out)
{
    if (len > INT32_MAX) return PI_ETOOBIG;
    const size_t n_before = out->n, memory = len * BYTES_PER_BYTE;
    if (!pi__work_step(out->work, len / 16) || !pi__work_take(out->work, memory)) return out->work->code;
    pi__tok t = {.v = v, .out = out, .trust = trust};
    cut c = {.v = v, .text = text, .n = len, .control = parse_special, .trust = trust,
             .work = out->work};
    int rc = PI_ENOMEM;
    if (add_special && v->add_bos && v->bos >= 0 && !pi__tok_emit(&t, v->bos)) goto out;
    if (!find_images(&c) || !find_special(&c) || !sort_found(&c)) goto out;
    rc = tokenize_between(&t, &c);
    if (!rc && add_special && v->add_eos && v->eos >= 0 && !pi__tok_emit(&t, v->eos)) rc = PI_ENOMEM;
out:
    if (rc == PI_ENOMEM && pi__work_code(out->work)) rc = out->work->code;
    if (rc) out->n = n_before;
    pi__work_give(out->work, memory);
    pi__free(c.taken);
    pi__free(c.heap);
    pi__free(c.found);
    pi__free(t.sym);
    pi__free(t.heap);
    pi__free(t.buf);
    pi__free(t.word);
    pi__free(t.best);
    return rc;
}

int pi__tokenize(const pi__vocab *v, const char *text, size_t len, bool add_special, bool parse_special, pi__ids *out)
{
    return tokenize(v, text, len, add_special, parse_special, NULL, out);
}

int pi__tokenize_trusted(const pi__vocab *v, const char *text, size_t len, bool add_special, const pi__trust *trust,
                         pi__ids *out)
{
    return tokenize(v, text, len, add_special, true, trust, out);
}

static bool is_markup(pi__str s, const char *template, size_t n)
{
    bool angle = s.n > 2 && s.p[0] == '<' && s.p[s.n - 1] == '>',
         square = s.n > 2 && s.p[0] == '[' && s.p[s.n - 1] == ']';
    return (angle && memchr(s.p, '|', s.n)) || ((angle || square) && n && memmem(template, n, s.p, s.n));
}

uint8_t *pi__trust_markup(const pi__vocab *v, const char *template, size_t n)
{
    uint8_t *bits = pi__calloc((size_t) v->n_tok / 8 + 1, 1);
    for (int32_t i = 0; bits && i < v->n_tok; i++)
        if (v->attr[i] == PI__TOK_USER && is_markup(pi__vocab_spelling(v, i), template, n))
            bits[i / 8] |= (uint8_t) (1u << (i % 8));
    return bits;
}
