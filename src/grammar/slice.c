/* Slices of a vocabulary (see tokens.h). */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "grammar/tokens.h"

enum { MAX_KEPT = 8, LEAST_SHARE = 8 }; /* a slice has more than 1 / LEAST_SHARE of all tokens */

struct pi__slices {
    pthread_mutex_t lock;
    pi__slice *kept[MAX_KEPT]; /* [n] least recently used first */
    size_t n;
};

pi__slices *pi__slices_new(void)
{
    pi__slices *s = pi__calloc(1, sizeof *s);
    if (s) pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void slice_free(pi__slice *s)
{
    if (!s) return;
    pi__free(s->id);
    pi__free(s->bits);
    pi__free(s->node);
    pi__free(s->skip);
    pi__free(s);
}

void pi__slices_free(pi__slices *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) slice_free(s->kept[i]);
    pthread_mutex_destroy(&s->lock);
    pi__free(s);
}

/* ---------------------------------------------------------------------------------------------------------- making */

/* True if the slice of these kinds contains the tokens of this set. */
static bool has_set(const pi__tokens *t, uint64_t kinds, size_t set) { return !(t->set[set] & ~kinds); }

/* Fills in the slice's tokens: s->id by length, upto, longest and bits. rest[k]: receives the number of tokens before
 * index k of t->id that are outside the slice. in: [n_sets] scratch. */
static void sort_tokens(const pi__tokens *t, pi__slice *s, uint32_t *rest, uint8_t *in)
{
    const uint32_t n = t->first[t->n_nodes];
    uint32_t at[PI__LONG_TOKEN + 1];
    for (size_t i = 0; i < t->n_sets; i++) in[i] = has_set(t, s->kinds, i);
    for (uint32_t k = 0; k < n; k++) {
        const bool is_in = in[t->set_of[k]] && t->length[k] < PI__LONG_TOKEN;
        rest[k + 1] = rest[k] + !is_in;
        s->upto[t->length[k]] += is_in;
    }
    for (uint32_t l = 0; l < PI__LONG_TOKEN; l++)
        if (s->upto[l]) s->longest = l;
    for (uint32_t l = 1; l <= PI__LONG_TOKEN; l++) s->upto[l] += s->upto[l - 1];
    at[0] = 0;
    memcpy(at + 1, s->upto, PI__LONG_TOKEN * sizeof *at);
    for (uint32_t k = 0; k < n; k++) {
        if (rest[k + 1] > rest[k]) continue;
        s->id[at[t->length[k]]++] = t->id[k];
        s->bits[t->id[k] >> 6] |= (uint64_t) 1 << (t->id[k] & 63);
    }
}

/* Lists all nodes of the subtree of node i from index n on; none of its tokens is in the slice. */
static void list_subtree(const pi__tokens *t, pi__slice *s, uint32_t i, uint32_t n)
{
    const uint32_t end = t->skip[i], back = i - n; /* modulo 2^32 */
    for (uint32_t k = i; k < end; k++) s->node[k - back] = k;
    for (uint32_t k = i; k < end; k++) s->skip[k - back] = t->skip[k] - back;
}

/* Lists the nodes on the paths to tokens outside the slice. open: [max_bytes + 1] scratch. Without s->node only counts
 * them. */
static void list_nodes(const pi__tokens *t, pi__slice *s, const uint32_t *rest, uint32_t *open)
{
    uint32_t n = 0, deep = 0; /* open[1..deep]: nodes with an unfinished subtree */
    for (uint32_t i = 1; i < t->n_nodes;) {
        const uint32_t end = t->skip[i], all = t->first[end] - t->first[i];
        const uint32_t others = rest[t->first[end]] - rest[t->first[i]];
        if (!others) {
            i = end;
            continue;
        }
        for (; s->node && deep >= t->depth[i]; deep--) s->skip[open[deep]] = n;
        if (others == all) {
            if (s->node) list_subtree(t, s, i, n);
            deep = t->depth[i] - 1;
            n += end - i;
            i = end;
            continue;
        }
        deep = t->depth[i];
        open[deep] = n;
        if (s->node) s->node[n] = i;
        n++;
        i++;
    }
    for (; s->node && deep; deep--) s->skip[open[deep]] = n;
    s->n_rest = n;
}

static pi__slice *make(const pi__tokens *t, uint64_t kinds, uint32_t n)
{
    pi__slice *s = pi__calloc(1, sizeof *s);
    uint32_t *rest = pi__calloc((size_t) t->first[t->n_nodes] + 1, sizeof *rest);
    uint32_t *open = pi__calloc((size_t) t->max_bytes + 2, sizeof *open);
    uint8_t *in = pi__calloc(t->n_sets + 1, sizeof *in);
    bool ok = s && rest && open && in;
    if (ok) {
        *s = (pi__slice) {.kinds = kinds, .n = n};
        s->id = pi__calloc((size_t) n + 1, sizeof *s->id);
        s->bits = pi__calloc(pi__mask_words(t), sizeof *s->bits);
        ok = s->id && s->bits;
    }
    if (ok) {
        sort_tokens(t, s, rest, in);
        list_nodes(t, s, rest, open);
        const size_t most = (size_t) s->n_rest + 1;
        s->skip = pi__calloc(most, sizeof *s->skip);
        s->node = pi__calloc(most, sizeof *s->node);
        ok = s->skip && s->node;
    }
    if (ok) list_nodes(t, s, rest, open);
    pi__free(rest);
    pi__free(open);
    pi__free(in);
    if (ok) return s;
    slice_free(s);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- keeping */

/* Returns the cached slice of these kinds, moved to the end; NULL if not cached. Lock held. */
static pi__slice *find(pi__slices *all, uint64_t kinds)
{
    for (size_t i = 0; i < all->n; i++) {
        pi__slice *s = all->kept[i];
        if (s->kinds != kinds) continue;
        memmove(all->kept + i, all->kept + i + 1, (all->n - i - 1) * sizeof(pi__slice *));
        return all->kept[all->n - 1] = s;
    }
    return NULL;
}

/* If the cache is full, evicts the least recently used slice that is not in use. False if all are in use. Lock held. */
static bool make_room(pi__slices *all)
{
    for (size_t i = 0; i < all->n && all->n == MAX_KEPT; i++) {
        if (all->kept[i]->users) continue;
        slice_free(all->kept[i]);
        all->n--;
        memmove(all->kept + i, all->kept + i + 1, (all->n - i) * sizeof(pi__slice *));
    }
    return all->n < MAX_KEPT;
}

int pi__slice_get(const pi__tokens *t, uint64_t kinds, pi__slice **out, pi_error *err)
{
    pi__slices *all = t->slices;
    uint32_t n = 0;
    for (size_t i = 0; i < t->n_sets; i++) n += has_set(t, kinds, i) ? t->n_of_set[i] : 0;
    bool worth = n > t->first[t->n_nodes] / LEAST_SHARE;
    *out = NULL;
    if (!worth) return PI_OK;
    pthread_mutex_lock(&all->lock);
    pi__slice *s = find(all, kinds);
    if (!s && (worth = make_room(all))) {
        s = make(t, kinds, n);
        if (s) all->kept[all->n++] = s;
    }
    if (s) s->users++;
    pthread_mutex_unlock(&all->lock);
    *out = s;
    return s || !worth ? PI_OK : pi__fail_mem(err, "a slice of the vocabulary");
}

void pi__slice_release(const pi__tokens *t, pi__slice *s)
{
    pthread_mutex_lock(&t->slices->lock);
    s->users--;
    pthread_mutex_unlock(&t->slices->lock);
}

void pi__slice_fill(const pi__tokens *t, const pi__slice *s, uint32_t n, uint64_t *bits)
{
    const uint32_t in = s->upto[n < PI__LONG_TOKEN ? n : PI__LONG_TOKEN];
    if (in < s->n / 2) { /* starts from an empty mask or from all bits, whichever changes less */
        memset(bits, 0, pi__mask_words(t) * sizeof *bits);
        for (uint32_t k = 0; k < in; k++) bits[s->id[k] >> 6] |= (uint64_t) 1 << (s->id[k] & 63);
        return;
    }
    memcpy(bits, s->bits, pi__mask_words(t) * sizeof *bits);
    for (uint32_t k = in; k < s->n; k++) bits[s->id[k] >> 6] &= ~((uint64_t) 1 << (s->id[k] & 63));
}
