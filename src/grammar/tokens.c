/* Builds the trie of a vocabulary's tokens (see tokens.h). */
#include "grammar/tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

typedef struct text { /* a token's bytes */
    const char *p;
    uint32_t n;
    int32_t id;
} text;

int pi__char_kind(uint32_t c)
{
    if (c >= '0' && c <= '9') return 0;
    if (c >= 'a' && c <= 'f') return 1;
    if (c >= 'g' && c <= 'z') return 2;
    if (c >= 'A' && c <= 'F') return 3;
    if (c >= 'G' && c <= 'Z') return 4;
    if (c == '\n') return 5;
    if (c == '\t') return 6;
    if (c == '\r') return 7;
    if (c < 0x20) return 8;
    if (c == 0x7F) return 9;
    if (c == ' ') return 10;
    if (c < '0') return 11 + (int) (c - '!');  /* 15 characters */
    if (c < 'A') return 26 + (int) (c - ':');  /* 7 characters */
    if (c < 'a') return 33 + (int) (c - '[');  /* 6 characters */
    return 39 + (int) (c - '{');               /* 4 characters */
}

uint64_t pi__wide_kinds(uint32_t cp, uint32_t n)
{
    static const struct { uint32_t lo, hi; int kind; } of[] = {
        {0xA0, 0xA0, PI__KIND_BLANK}, {0x1680, 0x1680, PI__KIND_BLANK}, {0x2000, 0x200A, PI__KIND_BLANK},
        {0x2028, 0x2029, PI__KIND_LINE}, {0x202F, 0x202F, PI__KIND_BLANK}, {0x205F, 0x205F, PI__KIND_BLANK},
        {0x3000, 0x3000, PI__KIND_BLANK}};
    uint64_t kinds = 0;
    uint32_t left = n; /* characters in no range of the table */
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const uint32_t lo = of[i].lo > cp ? of[i].lo : cp, hi = of[i].hi < cp + n - 1 ? of[i].hi : cp + n - 1;
        if (lo > hi) continue;
        kinds |= (uint64_t) 1 << of[i].kind;
        left -= hi - lo + 1;
    }
    return left ? kinds | (uint64_t) 1 << PI__KIND_WIDE : kinds;
}

bool pi__tokens_is_eog(const pi__tokens *t, int32_t id)
{
    for (int32_t i = 0; i < t->n_eog; i++)
        if (t->eog[i] == id) return true;
    return false;
}

static int compare(const void *x, const void *y)
{
    const text *a = x, *b = y;
    const int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* Returns the length of the common prefix. */
static uint32_t common(const text *a, const text *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->p[n] == b->p[n]) n++;
    return n;
}

/* Returns the kinds of the character at p, as bits; *len: its bytes. A character that the token's end cuts off counts
 * as complete. */
static uint64_t kinds_at(const char *p, uint32_t n, uint32_t *len)
{
    const uint64_t broken = (uint64_t) 1 << PI__KIND_BROKEN;
    uint32_t cp, end[2] = {0, 0};
    const unsigned char c = (unsigned char) *p;
    *len = 1;
    if (c < 0x80) return (uint64_t) 1 << pi__char_kind(c);
    const size_t whole = pi__utf8_char(p, n, &cp);
    if (whole) return *len = (uint32_t) whole, pi__wide_kinds(cp, 1);
    const size_t want = pi__utf8_len(c);
    if (c < 0xC2 || c > 0xF4 || n >= want) return broken;
    char rest[4] = {0};
    memcpy(rest, p, n); /* the smallest and the largest possible completion */
    for (int fill = 0x80; fill <= 0xBF; fill += 0x3F) {
        memset(rest + n, fill, want - n);
        if (pi__utf8_char(rest, want, &cp)) end[fill != 0x80] = cp;
    }
    if (!end[0] && !end[1]) return broken;
    *len = n; /* a completion may be invalid: a wider range only adds kinds */
    if (!end[0]) end[0] = end[1] < 0x10000 ? 0x80 : 0x10000;
    if (!end[1]) end[1] = 0x10FFFF;
    return pi__wide_kinds(end[0], end[1] - end[0] + 1);
}

/* Adds a token to its path in the trie, node[0..n] by depth: records in each node the kinds and the number of the
 * characters that follow the node's text. Returns the number of characters of the token; *all: their kinds. */
static uint8_t tell_path(pi__tokens *t, const text *x, const uint32_t *node, uint64_t *all)
{
    uint64_t kinds = 0;
    uint32_t n_chars = 0, start[256], n_starts = 0, len;
    uint64_t kind[256];
    uint32_t at = 0;
    for (; at < x->n && n_starts < 256; at += len) {
        start[n_starts] = at;
        kind[n_starts++] = kinds_at(x->p + at, x->n - at, &len);
    }
    if (at < x->n) { /* too long: BROKEN prevents skipping its nodes */
        for (uint32_t i = 0; i <= x->n; i++) {
            t->kinds[node[i]] |= (uint64_t) 1 << PI__KIND_BROKEN;
            t->n_chars[node[i]] = PI__LONG_TOKEN;
        }
        *all = (uint64_t) 1 << PI__KIND_BROKEN;
        return PI__LONG_TOKEN;
    }
    for (uint32_t i = x->n, s = n_starts; i-- > 0;) { /* from the last byte to the root */
        if (s && start[s - 1] == i) {
            kinds |= kind[--s];
            t->n_before[node[i]] = (uint8_t) s;
            n_chars++;
            t->kinds[node[i]] |= kinds;
            if (n_chars > t->n_chars[node[i]]) t->n_chars[node[i]] = (uint8_t) (n_chars < 255 ? n_chars : 255);
        } else { /* in the middle of a character */
            t->kinds[node[i]] |= (uint64_t) 1 << PI__KIND_BROKEN;
        }
    }
    *all = kinds;
    return (uint8_t) (n_starts < PI__LONG_TOKEN ? n_starts : PI__LONG_TOKEN);
}

/* Counts the trie nodes of sorted texts, root included. */
static size_t count_nodes(const text *x, size_t n)
{
    size_t nodes = 1;
    for (size_t i = 0; i < n; i++) nodes += x[i].n - (i ? common(&x[i - 1], &x[i]) : 0);
    return nodes;
}

/* Closes the open nodes deeper than depth: their subtrees end before node `at`. */
static void close_nodes(pi__tokens *t, const uint32_t *node, uint32_t from, uint32_t depth, uint32_t at)
{
    for (uint32_t d = from; d > depth; d--) t->skip[node[d]] = at;
}

/* Builds the trie of n sorted texts. kinds_of: [n] receives the kinds of each token's characters. */
static void fill(pi__tokens *t, const text *x, size_t n, uint32_t *node, uint64_t *kinds_of)
{
    uint32_t at = 1, deep = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t same = i ? common(&x[i - 1], &x[i]) : 0;
        close_nodes(t, node, deep, same, at);
        for (uint32_t d = same + 1; d <= x[i].n; d++, at++) {
            node[d] = at;
            t->byte[at] = (uint8_t) x[i].p[d - 1];
            t->depth[at] = d;
            t->first[at] = (uint32_t) i;
        }
        deep = x[i].n;
        t->id[i] = x[i].id;
        t->length[i] = tell_path(t, &x[i], node, &kinds_of[i]);
    }
    close_nodes(t, node, deep, 0, at);
    t->skip[0] = at;
    t->first[at] = (uint32_t) n;
}

/* Numbers the distinct kinds of the n tokens: a few thousand. Slices test these instead of every token. */
static bool number_sets(pi__tokens *t, const uint64_t *kinds_of, size_t n)
{
    size_t n_slots = 64, cap = 0, cap_n = 0;
    while (n_slots < 2 * n) n_slots *= 2;
    uint32_t *slot = pi__calloc(n_slots, sizeof *slot); /* 1 + the set's number, by hash */
    bool ok = slot != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        size_t h = (size_t) (kinds_of[i] * 0x9E3779B97F4A7C15u >> 32) & (n_slots - 1);
        while (slot[h] && t->set[slot[h] - 1] != kinds_of[i]) h = (h + 1) & (n_slots - 1);
        if (!slot[h]) {
            ok = pi__grow(&t->set, &cap, t->n_sets + 1, sizeof *t->set) &&
                 pi__grow(&t->n_of_set, &cap_n, t->n_sets + 1, sizeof *t->n_of_set);
            if (!ok) break;
            t->set[t->n_sets] = kinds_of[i];
            t->n_of_set[t->n_sets] = 0;
            slot[h] = (uint32_t) ++t->n_sets;
        }
        t->set_of[i] = slot[h] - 1;
        t->n_of_set[t->set_of[i]] += t->length[i] < PI__LONG_TOKEN;
    }
    pi__free(slot);
    return ok;
}

/* Collects the texts of all tokens that match by text; *pool holds their bytes. Returns their number, or -1 if out of
 * memory. */
static int64_t collect(pi__tokens *t, const uint64_t *never, text *x, char **pool, size_t *cap)
{
    size_t used = 0, n = 0, from = 0;
    const int32_t n_tok = pi__vocab_size(t->v) < t->n_vocab ? pi__vocab_size(t->v) : t->n_vocab;
    for (int32_t id = 0; id < n_tok; id++) {
        const int32_t attr = pi__vocab_attr(t->v, id);
        if (never[id >> 6] >> (id & 63) & 1) continue;
        if (pi__tokens_is_eog(t, id)) continue;
        t->all[id >> 6] |= (uint64_t) 1 << (id & 63);
        size_t len = pi__token_bytes(t->v, id, false, NULL, 0);
        if (attr == PI__TOK_CONTROL || attr == PI__TOK_UNKNOWN || !len) {
            t->bare[id >> 6] |= (uint64_t) 1 << (id & 63);
            continue;
        }
        if (len > t->max_bytes) t->max_bytes = (uint32_t) len;
        if (used + len > *cap && !pi__grow(pool, cap, (used + len) * 2, 1)) return -1;
        pi__token_bytes(t->v, id, false, *pool + used, len);
        x[n++] = (text) {NULL, (uint32_t) len, id};
        used += len;
    }
    for (size_t i = 0; i < n; from += x[i++].n) x[i].p = *pool + from;
    return (int64_t) n;
}

static bool alloc_nodes(pi__tokens *t, size_t n_nodes, size_t n)
{
    t->n_nodes = (uint32_t) n_nodes;
    t->byte = pi__calloc(n_nodes, sizeof *t->byte);
    t->n_chars = pi__calloc(n_nodes, sizeof *t->n_chars);
    t->n_before = pi__calloc(n_nodes, sizeof *t->n_before);
    t->length = pi__calloc(n + 1, sizeof *t->length);
    t->set_of = pi__calloc(n + 1, sizeof *t->set_of);
    t->depth = pi__calloc(n_nodes, sizeof *t->depth);
    t->skip = pi__calloc(n_nodes, sizeof *t->skip);
    t->first = pi__calloc(n_nodes + 1, sizeof *t->first);
    t->kinds = pi__calloc(n_nodes, sizeof *t->kinds);
    t->id = pi__calloc(n + 1, sizeof *t->id);
    return t->byte && t->n_chars && t->n_before && t->length && t->set_of && t->depth && t->skip && t->first &&
           t->kinds && t->id;
}

static int collect_ends(pi__tokens *t, const uint64_t *never)
{
    const int32_t n_tok = pi__vocab_size(t->v) < t->n_vocab ? pi__vocab_size(t->v) : t->n_vocab;
    for (int pass = 0; pass < 2; pass++) {
        int32_t n = 0;
        for (int32_t id = 0; id < n_tok; id++) {
            if (!pi__vocab_is_eog(t->v, id) || never[id >> 6] >> (id & 63) & 1) continue;
            if (pass) t->eog[n] = id;
            n++;
        }
        if (pass) break;
        t->n_eog = n;
        t->eog = pi__calloc((size_t) n + 1, sizeof *t->eog);
        if (!t->eog) return PI_ENOMEM;
    }
    t->eos = t->n_eog ? t->eog[0] : -1;
    if (pi__tokens_is_eog(t, pi__vocab_eos(t->v))) t->eos = pi__vocab_eos(t->v);
    return PI_OK;
}

int pi__tokens_create(pi__tokens **out, const pi__vocab *v, int32_t n_vocab, const int32_t *never, int32_t n_never,
                      pi_error *err)
{
    *out = NULL;
    int rc = PI_ENOMEM;
    char *pool = NULL;
    size_t cap = 0;
    pi__tokens *t = pi__calloc(1, sizeof *t);
    text *x = pi__calloc((size_t) pi__vocab_size(v) + 1, sizeof *x);
    uint64_t *skip = pi__calloc(((size_t) n_vocab + 63) / 64, sizeof *skip);
    uint32_t *node = NULL;
    uint64_t *kinds_of = NULL;
    if (!t || !x || !skip) goto out;
    *t = (pi__tokens) {.v = v, .n_vocab = n_vocab};
    t->bare = pi__calloc(pi__mask_words(t), sizeof *t->bare);
    t->all = pi__calloc(pi__mask_words(t), sizeof *t->all);
    for (int32_t i = 0; i < n_never; i++) skip[never[i] >> 6] |= (uint64_t) 1 << (never[i] & 63);
    if (!t->bare || !t->all || collect_ends(t, skip)) goto out;
    const int64_t n = collect(t, skip, x, &pool, &cap);
    if (n < 0) goto out;
    qsort(x, (size_t) n, sizeof *x, compare);
    const size_t n_nodes = count_nodes(x, (size_t) n);
    node = pi__calloc((size_t) t->max_bytes + 1, sizeof *node);
    kinds_of = pi__calloc((size_t) n + 1, sizeof *kinds_of);
    if (!node || !kinds_of || n_nodes >= UINT32_MAX || !alloc_nodes(t, n_nodes, (size_t) n)) goto out;
    fill(t, x, (size_t) n, node, kinds_of);
    if (!number_sets(t, kinds_of, (size_t) n)) goto out;
    t->slices = pi__slices_new();
    if (!t->slices) goto out;
    *out = t;
    t = NULL;
    rc = PI_OK;
out:
    pi__tokens_free(t);
    pi__free(x);
    pi__free(pool);
    pi__free(skip);
    pi__free(node);
    pi__free(kinds_of);
    return rc ? pi__fail_mem(err, "the vocabulary's tokens by text") : PI_OK;
}

void pi__tokens_free(pi__tokens *t)
{
    if (!t) return;
    pi__slices_free(t->slices);
    pi__free(t->set_of);
    pi__free(t->set);
    pi__free(t->n_of_set);
    pi__free(t->eog);
    pi__free(t->byte);
    pi__free(t->n_chars);
    pi__free(t->n_before);
    pi__free(t->length);
    pi__free(t->depth);
    pi__free(t->skip);
    pi__free(t->first);
    pi__free(t->kinds);
    pi__free(t->id);
    pi__free(t->bare);
    pi__free(t->all);
    pi__free(t);
}
