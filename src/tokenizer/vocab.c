/* Look-ups in a loaded vocabulary: pieces and merges by their hash tables, and the facts of the ids.
 *
 * No memory, any thread. A string is found by one hash and nearly always one comparison; a pair of pieces by one
 * probe. */
#include <string.h>

#include "tokenizer/vocab_impl.h"

uint32_t pi__piece_hash(const char *p, size_t n)
{
    const uint64_t k = 0x9E3779B97F4A7C15u;
    uint64_t h = n * k, w;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * k;
        h ^= h >> 29;
    }
    w = 0;
    memcpy(&w, p, n);
    h = (h ^ w) * k;
    h ^= h >> 32;
    h *= k;
    return (uint32_t) (h >> 32);
}

uint32_t pi__merge_hash(int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t) (uint32_t) left << 32 | (uint32_t) right) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
    return (uint32_t) ((h * 0xD6E8FEB86659FD93u) >> 32);
}

pi__piece_slot *pi__piece_slot_of(const pi__vocab *v, const char *p, size_t n, uint32_t hash)
{
    for (size_t i = hash;; i++) {
        pi__piece_slot *s = &v->slot[i & (v->n_slot - 1)];
        if (s->id < 0) return s;
        if (s->hash == hash && v->piece[s->id].n == n && !memcmp(pi__piece_text(v, s->id), p, n)) return s;
    }
}

int32_t pi__piece_find(const pi__vocab *v, const char *p, size_t n)
{
    return n > v->max_piece ? -1 : pi__piece_slot_of(v, p, n, pi__piece_hash(p, n))->id;
}

const pi__merge_slot *pi__merge_find(const pi__vocab *v, int32_t left, int32_t right)
{
    for (size_t i = pi__merge_hash(left, right);; i++) {
        const pi__merge_slot *m = &v->merge[i & (v->n_merge_slot - 1)];
        if (m->left < 0) return NULL;
        if (m->left == left && m->right == right) return m;
    }
}

static bool in_range(const pi__vocab *v, int32_t id) { return id >= 0 && id < v->n_tok; }

int32_t pi__vocab_size(const pi__vocab *v) { return v->n_tok; }
int32_t pi__vocab_bos(const pi__vocab *v) { return v->bos; }
int32_t pi__vocab_eos(const pi__vocab *v) { return v->eos; }
int32_t pi__vocab_eot(const pi__vocab *v) { return v->eot; }
bool pi__vocab_add_bos(const pi__vocab *v) { return v->add_bos && v->bos >= 0; }
int32_t pi__vocab_sep(const pi__vocab *v) { return v->sep; }
bool pi__vocab_add_eos(const pi__vocab *v) { return v->add_eos; }
bool pi__vocab_add_sep(const pi__vocab *v) { return v->add_sep; }
bool pi__vocab_is_eog(const pi__vocab *v, int32_t id) { return in_range(v, id) && (v->flags[id] & PI__TOKF_EOG); }
int32_t pi__vocab_attr(const pi__vocab *v, int32_t id) { return in_range(v, id) ? v->attr[id] : PI__TOK_UNUSED; }

pi__str pi__vocab_spelling(const pi__vocab *v, int32_t id)
{
    if (!in_range(v, id)) return (pi__str) {"", 0};
    return (pi__str) {pi__piece_text(v, id), v->piece[id].n};
}

int32_t pi__vocab_find(const pi__vocab *v, const char *text, size_t len)
{
    int32_t id = len ? pi__piece_find(v, text, len) : -1;
    return id < v->n_tok ? id : -1;
}
