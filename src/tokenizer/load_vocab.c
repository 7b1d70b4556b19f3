/* Loads a vocabulary from GGUF metadata.
 *
 * Everything is copied out of the file, which may be closed afterwards. Metadata is checked before use: array lengths,
 * ids, UTF-8, the form of merges; an error names the key. Tables are open-addressed hashes with linear probing. A
 * string is found by one hash and nearly always one comparison; a pair of pieces by one probe. */
#include "tokenizer/vocab_impl.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define KEY "tokenizer.ggml."

/* ----------------------------------------------------------------------------------------------------------- pieces */

static bool slots_reserve(pi__vocab *v, size_t n)
{
    if (v->n_slot && n <= v->n_slot / 4 * 3) return true;
    size_t cap = 64;
    while (n > cap / 4 * 3) cap *= 2;
    pi__piece_slot *old = v->slot, *slot = pi__realloc_array(NULL, cap, sizeof *slot);
    if (!slot) return false;
    for (size_t i = 0; i < cap; i++) slot[i] = (pi__piece_slot) {0, -1};
    for (size_t i = 0; i < v->n_slot; i++) {
        if (old[i].id < 0) continue;
        size_t k = old[i].hash;
        while (slot[k & (cap - 1)].id >= 0) k++;
        slot[k & (cap - 1)] = old[i];
    }
    pi__free(old);
    v->slot = slot;
    v->n_slot = cap;
    return true;
}

/* Adds a piece with the next id. Two pieces may have the same bytes; look-ups find the first one. An empty piece is
 * never found. p must not point into the pool. */
static int add_piece(pi__vocab *v, const char *p, size_t n, pi_error *err)
{
    if (n > INT_MAX || v->pool_n > UINT32_MAX - n || v->n_piece >= INT32_MAX)
        return pi__fail(err, PI_EFORMAT, KEY "tokens: the texts are longer than 4 GiB");
    if (!pi__grow(&v->pool, &v->pool_cap, v->pool_n + n, 1) ||
        !pi__grow(&v->piece, &v->piece_cap, v->n_piece + 1, sizeof *v->piece) || !slots_reserve(v, v->n_piece + 1))
        return pi__fail_mem(err, "the vocabulary");
    if (n) memcpy(v->pool + v->pool_n, p, n);
    v->piece[v->n_piece] = (pi__piece) {(uint32_t) v->pool_n, (uint32_t) n};
    v->pool_n += n;
    if (n) {
        uint32_t hash = pi__piece_hash(p, n);
        pi__piece_slot *s = pi__piece_slot_of(v, p, n, hash);
        if (s->id < 0) *s = (pi__piece_slot) {hash, (int32_t) v->n_piece};
        if (n > v->max_piece) v->max_piece = (uint32_t) n;
    }
    v->n_piece++;
    return PI_OK;
}

/* Records the last bytes of characters that a space (U+2581) follows inside the text. */
static void note_glue(pi__vocab *v, const char *p, size_t n)
{
    bool was_space = true;
    for (size_t i = 0, len; i < n; i += len) {
        len = pi__utf8_len((unsigned char) p[i]);
        bool space = len == 3 && n - i >= 3 && !memcmp(p + i, "\xE2\x96\x81", 3);
        if (space && !was_space) v->glue[(unsigned char) p[i - 1]] = true;
        was_space = space;
    }
}

/* ----------------------------------------------------------------------------------------------------------- arrays */

/* Gets a metadata array of n elements (0 = any number). NULL with *rc PI_OK: the key is missing. */
static const pi__gguf_kv *get_array(const pi__gguf *g, const char *key, bool strings, uint64_t n, int *rc,
                                    pi_error *err)
{
    const pi__gguf_kv *kv = pi__gguf_find(g, key);
    *rc = PI_OK;
    if (!kv) return NULL;
    if (kv->type != PI__GGUF_ARR || (kv->arr_type == PI__GGUF_STR) != strings) {
        *rc = pi__fail(err, PI_EFORMAT, "%s: expected an array of %s", key, strings ? "strings" : "numbers");
        return NULL;
    }
    if (n && kv->n != n) {
        *rc = pi__fail(err, PI_EFORMAT, "%s: %llu elements, but " KEY "tokens has %llu", key,
                       (unsigned long long) kv->n, (unsigned long long) n);
        return NULL;
    }
    return kv;
}

static int load_tokens(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    int rc;
    const pi__gguf_kv *kv = get_array(g, KEY "tokens", true, 0, &rc, err);
    if (rc) return rc;
    if (!kv || !kv->n) return pi__fail(err, PI_EFORMAT, KEY "tokens: missing or empty");
    if (kv->n > INT32_MAX / 2) return pi__fail(err, PI_EFORMAT, KEY "tokens: %llu tokens", (unsigned long long) kv->n);
    size_t bytes = 0;
    for (uint64_t i = 0; i < kv->n; i++) bytes += pi__gguf_elem_str(kv, i).n;
    if (!pi__grow(&v->pool, &v->pool_cap, bytes, 1) || !pi__grow(&v->piece, &v->piece_cap, kv->n, sizeof *v->piece) ||
        !slots_reserve(v, kv->n))
        return pi__fail_mem(err, "the vocabulary");
    for (uint64_t i = 0; i < kv->n; i++) {
        pi__str s = pi__gguf_elem_str(kv, i);
        if (pi__utf8_valid(s.p, s.n) != s.n)
            return pi__fail(err, PI_EFORMAT, KEY "tokens[%llu]: not valid UTF-8", (unsigned long long) i);
        if ((rc = add_piece(v, s.p, s.n, err))) return rc;
        if (v->kind == PI__VOCAB_SPM) note_glue(v, s.p, s.n);
    }
    v->n_tok = (int32_t) kv->n;
    v->attr = pi__malloc(kv->n);
    v->flags = pi__calloc(kv->n, 1);
    if (!v->attr || !v->flags) return pi__fail_mem(err, "the vocabulary");
    memset(v->attr, PI__TOK_NORMAL, kv->n);
    const pi__gguf_kv *types = get_array(g, KEY "token_type", false, kv->n, &rc, err);
    for (uint64_t i = 0; types && i < kv->n; i++) {
        double t = pi__gguf_elem_f64(types, i);
        v->attr[i] = t >= PI__TOK_NORMAL && t <= PI__TOK_BYTE ? (uint8_t) t : PI__TOK_UNUSED;
    }
    return rc;
}

static int load_scores(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    int rc;
    const pi__gguf_kv *kv = get_array(g, KEY "scores", false, (uint64_t) v->n_tok, &rc, err);
    if (rc) return rc;
    if (!kv) return pi__fail(err, PI_EFORMAT, KEY "scores: missing; the tokenizers 'llama' and 't5' need them");
    v->score = pi__realloc_array(NULL, (size_t) v->n_tok, sizeof *v->score);
    if (!v->score) return pi__fail_mem(err, "the vocabulary");
    for (int32_t i = 0; i < v->n_tok; i++) {
        v->score[i] = (float) pi__gguf_elem_f64(kv, (uint64_t) i);
        if (isnan(v->score[i])) return pi__fail(err, PI_EFORMAT, KEY "scores[%d]: not a number", i);
        if (v->attr[i] == PI__TOK_NORMAL && v->score[i] < v->min_score) v->min_score = v->score[i];
    }
    return PI_OK;
}

/* Loads SentencePiece's character map, an array of integers below 256: byte size of the double array, the double array,
 * and the replacement texts. */
static int load_charsmap(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    static const char key[] = KEY "precompiled_charsmap";
    int rc;
    const pi__gguf_kv *kv = get_array(g, key, false, 0, &rc, err);
    if (rc || !kv || !kv->n) return rc;
    unsigned char *b = kv->n < INT32_MAX ? pi__malloc((size_t) kv->n) : NULL;
    if (!b) return pi__fail_mem(err, "the map of characters");
    for (uint64_t i = 0; i < kv->n; i++) b[i] = (unsigned char) (pi__gguf_elem_i64(kv, i) & 0xFF);
    uint32_t size = 0;
    for (uint32_t i = 0; i < 4 && kv->n >= 4; i++) size |= (uint32_t) b[i] << 8 * i;
    if (kv->n < 4 || size > kv->n - 4 || size % 4) {
        rc = pi__fail(err, PI_EFORMAT, "%s: %llu bytes cannot hold an array of %u", key, (unsigned long long) kv->n,
                      size);
    } else {
        v->n_charsmap = size / 4;
        v->n_replacement = (size_t) kv->n - 4 - size;
        v->charsmap = pi__calloc(v->n_charsmap + 1, sizeof *v->charsmap);
        v->replacement = pi__malloc(v->n_replacement + 1);
        if (!v->charsmap || !v->replacement) rc = pi__fail_mem(err, "the map of characters");
    }
    for (size_t i = 0; !rc && i < size; i++) v->charsmap[i / 4] |= (uint32_t) b[4 + i] << 8 * (i % 4);
    if (!rc) memcpy(v->replacement, b + 4 + size, v->n_replacement);
    pi__free(b);
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------- merges */

/* Gets the piece with these bytes; adds it if missing. */
static int intern(pi__vocab *v, const char *p, size_t n, int32_t *id, pi_error *err)
{
    *id = pi__piece_find(v, p, n);
    if (*id >= 0) return PI_OK;
    *id = (int32_t) v->n_piece;
    return add_piece(v, p, n, err);
}

/* Adds a merge rule. line: "left right", split at the first space after its first byte. buf: scratch for the joined
 * text. */
static int add_merge(pi__vocab *v, pi__str line, uint32_t rank, char *buf, pi_error *err)
{
    const char *sp = line.n > 1 ? memchr(line.p + 1, ' ', line.n - 1) : NULL;
    size_t nl = sp ? (size_t) (sp - line.p) : 0, nr = sp ? line.n - nl - 1 : 0;
    if (!nr || pi__utf8_valid(line.p, line.n) != line.n)
        return pi__fail(err, PI_EFORMAT, KEY "merges[%u]: expected two parts in UTF-8 and a space between them", rank);
    memcpy(buf, line.p, nl);
    memcpy(buf + nl, sp + 1, nr);
    int32_t left, right, whole;
    int rc = intern(v, line.p, nl, &left, err);
    if (!rc) rc = intern(v, sp + 1, nr, &right, err);
    if (!rc) rc = intern(v, buf, nl + nr, &whole, err);
    if (rc) return rc;
    if (v->kind == PI__VOCAB_GEMMA4) note_glue(v, buf, nl + nr);
    for (size_t i = pi__merge_hash(left, right);; i++) {
        pi__merge_slot *m = &v->merge[i & (v->n_merge_slot - 1)];
        if (m->left == left && m->right == right) return PI_OK; /* duplicate: the first one counts */
        if (m->left >= 0) continue;
        *m = (pi__merge_slot) {left, right, rank, whole};
        return PI_OK;
    }
}

static int load_merges(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    int rc;
    const pi__gguf_kv *kv = get_array(g, KEY "merges", true, 0, &rc, err);
    if (rc) return rc;
    if (!kv) return pi__fail(err, PI_EFORMAT, KEY "merges: missing; byte-pair encoding needs them");
    if (kv->n > INT32_MAX / 2) return pi__fail(err, PI_EFORMAT, KEY "merges: %llu merges", (unsigned long long) kv->n);
    size_t longest = 0;
    for (uint64_t i = 0; i < kv->n; i++)
        if (pi__gguf_elem_str(kv, i).n > longest) longest = pi__gguf_elem_str(kv, i).n;
    for (v->n_merge_slot = 64; kv->n > v->n_merge_slot / 4 * 3; v->n_merge_slot *= 2) {}
    char *buf = pi__malloc(longest);
    v->merge = pi__realloc_array(NULL, v->n_merge_slot, sizeof *v->merge);
    if (!buf || !v->merge) rc = pi__fail_mem(err, "the merges");
    for (size_t i = 0; !rc && i < v->n_merge_slot; i++) v->merge[i].left = -1;
    for (uint64_t i = 0; !rc && i < kv->n; i++) rc = add_merge(v, pi__gguf_elem_str(kv, i), (uint32_t) i, buf, err);
    pi__free(buf);
    return rc;
}

/* ------------------------------------------------------------------------------------------------------------- load */

/* Fills start_piece and byte_id. */
static void load_bytes(pi__vocab *v)
{
    for (uint32_t b = 0; b < 256; b++) {
        char c[8];
        size_t n = v->kind == PI__VOCAB_BPE ? pi__utf8_put(pi__byte_to_cp((unsigned char) b), c) : 1;
        if (n == 1 && v->kind != PI__VOCAB_BPE) c[0] = (char) b;
        int32_t id = pi__piece_find(v, c, n);
        v->start_piece[b] = id;
        if (v->kind != PI__VOCAB_BPE) {
            char hex[8];
            snprintf(hex, sizeof hex, "<0x%02X>", b);
            int32_t h = pi__piece_find(v, hex, 6);
            if (h >= 0) id = h;
            else if (v->kind == PI__VOCAB_GEMMA4) id = -1;
        }
        v->byte_id[b] = id < v->n_tok ? id : -1;
    }
}

static int load_kind(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    static const struct {
        const char *name;
        int32_t kind;
    } kinds[] = {{"llama", PI__VOCAB_SPM},
                 {"gpt2", PI__VOCAB_BPE},
                 {"gemma4", PI__VOCAB_GEMMA4},
                 {"bert", PI__VOCAB_WPM},
                 {"t5", PI__VOCAB_UGM},
                 {"plamo2", PI__VOCAB_PLAMO2}};
    pi__str model;
    int rc = pi__gguf_get_str(g, KEY "model", &model, err);
    if (rc) return rc;
    if (!model.p) return pi__fail(err, PI_EFORMAT, KEY "model: missing; the file has no tokenizer");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strlen(kinds[i].name) != model.n || memcmp(kinds[i].name, model.p, model.n)) continue;
        v->kind = kinds[i].kind;
        return PI_OK;
    }
    return pi__fail(err, PI_EUNSUPPORTED, KEY "model: the tokenizer '%.*s' is not supported",
                    (int) (model.n < 64 ? model.n : 64), model.p);
}

static int load_rules(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    v->add_bos = v->kind != PI__VOCAB_BPE && v->kind != PI__VOCAB_UGM && v->kind != PI__VOCAB_PLAMO2;
    v->add_space_prefix = v->kind == PI__VOCAB_SPM || v->kind == PI__VOCAB_WPM || v->kind == PI__VOCAB_UGM;
    v->add_eos = v->kind == PI__VOCAB_WPM || v->kind == PI__VOCAB_UGM;
    int rc = PI_OK;
    if (v->kind == PI__VOCAB_BPE) {
        pi__str pre;
        pi__pre_rules rules;
        rc = pi__gguf_get_str(g, KEY "pre", &pre, err);
        if (!rc) rc = pi__pretok_new(&v->pretok, pre, &rules, err);
        if (rc) return rc;
        v->ignore_merges = rules.ignore_merges;
        v->add_bos = rules.add_bos;
        v->add_sep = rules.add_sep;
    }
    rc = pi__gguf_get_bool(g, KEY "add_bos_token", &v->add_bos, v->add_bos, err);
    if (!rc) rc = pi__gguf_get_bool(g, KEY "add_eos_token", &v->add_eos, v->add_eos, err);
    if (!rc) rc = pi__gguf_get_bool(g, KEY "add_sep_token", &v->add_sep, v->add_sep, err);
    if (!rc && v->kind == PI__VOCAB_UGM)
        rc = pi__gguf_get_bool(g, KEY "remove_extra_whitespaces", &v->merge_spaces, false, err);
    if (!rc && (v->kind == PI__VOCAB_SPM || v->kind == PI__VOCAB_UGM))
        rc = pi__gguf_get_bool(g, KEY "add_space_prefix", &v->add_space_prefix, v->add_space_prefix, err);
    if (v->kind == PI__VOCAB_GEMMA4) v->add_bos = true; /* early files say false, but the model needs it */
    if (rc || v->kind != PI__VOCAB_WPM) return rc;
    rc = pi__gguf_get_bool(g, KEY "normalizer.lowercase", &v->lowercase, true, err);
    if (!rc) rc = pi__gguf_get_bool(g, KEY "normalizer.strip_accents", &v->strip_accents, v->lowercase, err);
    return rc;
}

int pi__vocab_load(pi__vocab **out, const pi__gguf *g, pi_error *err)
{
    *out = NULL;
    pi__vocab *v = pi__calloc(1, sizeof *v);
    if (!v) return pi__fail_mem(err, "the vocabulary");
    int rc = load_kind(v, g, err);
    if (!rc) rc = load_rules(v, g, err);
    if (!rc) rc = load_tokens(v, g, err);
    if (!rc && (v->kind == PI__VOCAB_SPM || v->kind == PI__VOCAB_UGM || v->kind == PI__VOCAB_PLAMO2))
        rc = load_scores(v, g, err);
    if (!rc && v->kind == PI__VOCAB_UGM) rc = load_charsmap(v, g, err);
    if (!rc && (v->kind == PI__VOCAB_BPE || v->kind == PI__VOCAB_GEMMA4)) rc = load_merges(v, g, err);
    if (!rc) {
        load_bytes(v);
        rc = pi__vocab_load_special(v, g, err);
        if (!rc && v->kind == PI__VOCAB_PLAMO2) rc = pi__vocab_sort(v, err);
        if (!rc) rc = pi__vocab_load_turns(v, g, err);
    }
    if (rc) {
        pi__vocab_free(v);
        return rc;
    }
    *out = v;
    return PI_OK;
}

void pi__vocab_free(pi__vocab *v)
{
    if (!v) return;
    pi__pretok_free(v->pretok);
    pi__free(v->trie);
    pi__free(v->merge);
    pi__free(v->sorted);
    pi__free(v->charsmap);
    pi__free(v->replacement);
    pi__free(v->score);
    pi__free(v->flags);
    pi__free(v->attr);
    pi__free(v->slot);
    pi__free(v->piece);
    pi__free(v->pool);
    pi__free(v);
}
