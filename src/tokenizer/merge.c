/* Merging of adjacent symbols, shared by SentencePiece and BPE.
 *
 *     symbols   H e l l o      pairs in a heap, best first: (l,l) (H,e) ...
 *               H e ll . o     the right symbol is emptied, the left one grows, its two new pairs are pushed
 *
 * A symbol only grows or becomes empty, so a pair in the heap is stale exactly if the sizes no longer add up. Each
 * merge removes a symbol and adds at most two pairs: n symbols cost O(n log n). Memory belongs to the call's
 * pi__tok. */
#include <string.h>

#include "tokenizer/vocab_impl.h"

bool pi__tok_emit(pi__tok *t, int32_t id)
{
    if (!pi__grow(&t->out->p, &t->out->cap, t->out->n + 1, sizeof *t->out->p)) return false;
    t->out->p[t->out->n++] = id;
    return true;
}

bool pi__tok_symbol(pi__tok *t, uint32_t pos, uint32_t n, int32_t piece)
{
    if (!pi__work_step(t->out->work, 1) || !pi__grow(&t->sym, &t->sym_cap, t->n_sym + 1, sizeof *t->sym)) return false;
    int32_t i = (int32_t) t->n_sym++;
    t->sym[i] = (pi__sym) {pos, n, i - 1, -1, piece};
    if (i > 0) t->sym[i - 1].next = i;
    return true;
}

bool pi__heap_push(pi__pair **heap, size_t *n, size_t *cap, pi__pair p)
{
    if (!pi__grow(heap, cap, *n + 1, sizeof **heap)) return false;
    pi__pair *h = *heap;
    size_t i = (*n)++;
    for (size_t up; i > 0 && p.key < h[up = (i - 1) / 2].key; i = up) h[i] = h[up];
    h[i] = p;
    return true;
}

pi__pair pi__heap_pop(pi__pair *h, size_t *n)
{
    pi__pair top = h[0], last = h[--*n];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < *n; i = c) {
        if (c + 1 < *n && h[c + 1].key < h[c].key) c++;
        if (last.key <= h[c].key) break;
        h[i] = h[c];
    }
    h[i] = last;
    return top;
}

static bool push_pair(pi__tok *t, const char *text, int32_t left, int32_t right, pi__pair_fn rank)
{
    if (left < 0 || right < 0) return true;
    const pi__sym *l = &t->sym[left], *r = &t->sym[right];
    uint32_t order;
    int32_t piece;
    if (!rank(t, text, l, r, &order, &piece)) return true;
    pi__pair p = {(uint64_t) order << 32 | (uint32_t) left, l->n + r->n, piece};
    return pi__heap_push(&t->heap, &t->n_heap, &t->heap_cap, p);
}

bool pi__tok_merge(pi__tok *t, const char *text, pi__pair_fn rank)
{
    t->n_heap = 0;
    for (size_t i = 1; i < t->n_sym; i++)
        if (!push_pair(t, text, (int32_t) i - 1, (int32_t) i, rank)) return false;
    while (t->n_heap) {
        if (!pi__work_step(t->out->work, 2)) return false;
        pi__pair p = pi__heap_pop(t->heap, &t->n_heap);
        int32_t left = (int32_t) (uint32_t) p.key, right = t->sym[left].next;
        pi__sym *l = &t->sym[left];
        if (!l->n || right < 0 || l->n + t->sym[right].n != p.size) continue;
        l->n = p.size;
        l->piece = p.piece;
        t->sym[right].n = 0;
        l->next = t->sym[right].next;
        if (l->next >= 0) t->sym[l->next].prev = left;
        if (!push_pair(t, text, l->prev, left, rank) || !push_pair(t, text, left, l->next, rank)) return false;
    }
    return true;
}

size_t pi__tok_escape(pi__tok *t, bool prefix, const char *text, size_t n)
{
    size_t spaces = prefix, total;
    for (size_t i = 0; i < n; i++) spaces += text[i] == ' ';
    if (!pi__mul_ok(spaces, 2, &total) || !pi__add_ok(total, n + prefix, &total)) return SIZE_MAX;
    if (!pi__grow(&t->buf, &t->buf_cap, total, 1)) return SIZE_MAX;
    char *o = t->buf;
    if (prefix) o = (char *) memcpy(o, "\xE2\x96\x81", 3) + 3;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ') o = (char *) memcpy(o, "\xE2\x96\x81", 3) + 3;
        else *o++ = text[i];
    }
    return total;
}
