/* An index of n-grams (see ngrams.h). */
#include "engine/ngrams.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { MOST_PLACES = 8 /* max places compared per search */, LEAST_BITS = 8 };

static int32_t bits_for(int32_t most)
{
    int32_t bits = LEAST_BITS;
    while (bits < 30 && (1 << bits) < most) bits++;
    return bits;
}

size_t pi__ngrams_bytes(int32_t most) { return ((size_t) 2 << bits_for(most)) * sizeof(int32_t); }

int pi__ngrams_init(pi__ngrams *g, int32_t most, int32_t n, pi_error *err)
{
    *g = (pi__ngrams) {.bits = bits_for(most), .window = 1 << bits_for(most), .n = n};
    g->head = pi__malloc(pi__ngrams_bytes(most));
    if (!g->head) return pi__fail_mem(err, "the index of n-grams");
    g->prev = g->head + g->window;
    pi__ngrams_clear(g);
    return PI_OK;
}

void pi__ngrams_destroy(pi__ngrams *g)
{
    pi__free(g->head);
    memset(g, 0, sizeof *g);
}

void pi__ngrams_clear(pi__ngrams *g) { memset(g->head, 0xFF, (size_t) g->window * sizeof *g->head); }

static uint64_t mix_token(uint64_t h, int32_t token) { return (h ^ (uint32_t) token) * UINT64_C(0x9E3779B97F4A7C15); }

static uint32_t slot_of(const pi__ngrams *g, uint64_t h)
{
    return (uint32_t) ((h ^ h >> 29) * UINT64_C(0xBF58476D1CE4E5B9) >> (64 - g->bits));
}

void pi__ngrams_add(pi__ngrams *g, const pi__text *t, int32_t at)
{
    uint64_t h = t->owner ? t->owner[at & t->mask] : 0;
    for (int32_t i = at - g->n + 1; i <= at; i++) h = mix_token(h, t->token[i & t->mask]);
    int32_t *head = &g->head[slot_of(g, h)];
    g->prev[at & (g->window - 1)] = *head;
    *head = at;
}

/* Returns the number of tokens up to token `at` of t that equal the last tokens of `last`. */
static int32_t same_tokens(const pi__text *t, int32_t at, const int32_t *last, int32_t n_last, uint64_t owner)
{
    int32_t n = 0;
    for (; n < n_last && n < PI__MOST_MATCH && at - n >= t->first; n++) {
        const int32_t i = (at - n) & t->mask;
        if (t->token[i] != last[n_last - 1 - n] || (t->owner && t->owner[i] != owner)) break;
    }
    return n;
}

int32_t pi__ngrams_find(const pi__ngrams *g, const pi__text *t, const int32_t *last, int32_t n_last, uint64_t owner,
                        int32_t *length)
{
    int32_t best = -1;
    *length = 0;
    if (n_last < g->n) return -1;
    uint64_t h = t->owner ? owner : 0;
    for (int32_t i = n_last - g->n; i < n_last; i++) h = mix_token(h, last[i]);
    int32_t at = g->head[slot_of(g, h)];
    for (int i = 0; i < MOST_PLACES && at >= t->first && at > t->end - g->window; i++) {
        const int32_t n = at < t->end ? same_tokens(t, at, last, n_last, owner) : 0;
        if (n >= g->n && n > *length) {
            *length = n;
            best = at;
        }
        const int32_t before = g->prev[at & (g->window - 1)];
        if (n == PI__MOST_MATCH || before >= at) break; /* the entry was overwritten by a later token */
        at = before;
    }
    return best;
}
