/* Sequence breakers of DRY as token sequences, because tokens can spell a text in many ways.
 *
 * A breaker matches any token that contains it. A breaker also matches a token that ends with its beginning, followed
 * by the tokens of the rest: for "\n:" the token ".\n", then ":". Finding them takes a scan of the vocabulary, so the
 * engine caches the result for the most recent list of texts. Threads: any; the engine's lock guards `ref` and
 * e->breakers. */
#include <string.h>

#include "api/breakers.h"
#include "base/alloc.h"
#include "base/error.h"

enum { MAX_TEXT = 40, MAX_TAIL = 20 }; /* bytes of a breaker; tokens after its head; as in llama.cpp */

typedef struct builder {
    int32_t *ids;  /* sequences stored in succession, each terminated by -1 */
    size_t n_ids, cap_ids;
    size_t *start; /* [n] offset of each sequence in ids */
    size_t n, cap;
} builder;

static bool add_sequence(builder *b, int32_t head, const int32_t *tail, size_t n_tail)
{
    if (n_tail > MAX_TAIL) n_tail = MAX_TAIL;
    if (!pi__grow(&b->start, &b->cap, b->n + 1, sizeof *b->start) ||
        !pi__grow(&b->ids, &b->cap_ids, b->n_ids + n_tail + 2, sizeof *b->ids)) return false;
    b->start[b->n++] = b->n_ids;
    b->ids[b->n_ids++] = head;
    if (n_tail) memcpy(b->ids + b->n_ids, tail, n_tail * sizeof *tail);
    b->n_ids += n_tail;
    b->ids[b->n_ids++] = -1;
    return true;
}

/* Adds the sequences that begin with token id; w is the token's text of n bytes. false = out of memory. */
static bool add_token(builder *b, const pi__vocab *v, int32_t id, const char *w, size_t n, const char *text, size_t len)
{
    if (memmem(w, n, text, len)) return add_sequence(b, id, NULL, 0);
    for (size_t k = len - 1 < n ? len - 1 : n; k > 0; k--) { /* the token ends with the first k bytes of text */
        if (memcmp(w + n - k, text, k)) continue;
        pi__ids tail = {0};
        bool ok = !pi__tokenize(v, text + k, len - k, false, false, &tail) && add_sequence(b, id, tail.p, tail.n);
        pi__free(tail.p);
        if (!ok) return false;
    }
    return true;
}

static bool add_text(builder *b, const pi__vocab *v, const char *text, pi__work *work)
{
    size_t len = strnlen(text, MAX_TEXT);
    int32_t n_vocab = pi__vocab_size(v);
    char w[1024];
    for (int32_t id = 0; len && id < n_vocab; id++) {
        if (!pi__work_step(work, 1)) return false;
        size_t n = pi__token_bytes(v, id, true, w, sizeof w);
        if (n && n <= sizeof w && !add_token(b, v, id, w, n, text, len)) return false;
    }
    return true;
}

static void breakers_free(pi__breakers *k)
{
    pi__free(k->texts);
    pi__free(k->seq);
    pi__free(k->ids);
    pi__free(k);
}

/* Joins all texts with their NULs; the result identifies a list. NULL = out of memory. */
static char *join_texts(const pi__opt_list *l, size_t *len)
{
    static char *const defaults[] = {"\n", ":", "\"", "*"};
    char *const *item = l->n ? l->item : defaults;
    size_t n = l->n ? l->n : sizeof defaults / sizeof *defaults, at = 0;
    *len = 0;
    for (size_t i = 0; i < n; i++) *len += strlen(item[i]) + 1;
    char *p = pi__malloc(*len);
    for (size_t i = 0; p && i < n; i++) at += (size_t) (stpcpy(p + at, item[i]) - (p + at)) + 1;
    return p;
}

static pi__breakers *make_breakers(const pi__vocab *v, char *texts, size_t len, pi__work *work)
{
    builder b = {0};
    pi__breakers *k = pi__calloc(1, sizeof *k);
    bool ok = k != NULL, none = len == 5 && !memcmp(texts, "none", 5);
    for (size_t i = 0; ok && !none && i < len; i += strlen(texts + i) + 1) ok = add_text(&b, v, texts + i, work);
    if (ok) {
        *k = (pi__breakers) {.ref = 1, .texts = texts, .texts_len = len, .ids = b.ids, .n = b.n};
        k->seq = pi__calloc(b.n, sizeof *k->seq);
        ok = k->seq != NULL;
        for (size_t i = 0; ok && i < b.n; i++) k->seq[i] = b.ids + b.start[i];
    }
    if (!ok) {
        pi__free(b.ids);
        pi__free(k);
        k = NULL;
    }
    pi__free(b.start);
    return k;
}

int pi__breakers_get(pi_engine *e, const pi__opt_list *l, pi__work *work, pi__breakers **out, pi_error *err)
{
    size_t len;
    char *texts = join_texts(l, &len);
    *out = NULL;
    if (!texts) return pi__fail_mem(err, "sequence breakers");
    pthread_mutex_lock(&e->lock);
    pi__breakers *k = e->breakers;
    if (k && k->texts_len == len && !memcmp(k->texts, texts, len)) {
        k->ref++;
        *out = k;
    }
    pthread_mutex_unlock(&e->lock);
    if (*out) {
        pi__free(texts);
        return PI_OK;
    }
    k = make_breakers(pi__core_vocab(e->core), texts, len, work);
    if (!k) {
        pi__free(texts);
        if (pi__work_code(work)) return pi__work_fail(work, err, "sequence breakers");
        return pi__fail_mem(err, "sequence breakers");
    }
    k->ref = 2; /* one for the request, one for the engine */
    pthread_mutex_lock(&e->lock);
    pi__breakers *old = e->breakers;
    e->breakers = k;
    pthread_mutex_unlock(&e->lock);
    pi__breakers_put(e, old);
    *out = k;
    return PI_OK;
}

void pi__breakers_put(pi_engine *e, pi__breakers *k)
{
    if (!k) return;
    pthread_mutex_lock(&e->lock);
    bool last = --k->ref == 0;
    pthread_mutex_unlock(&e->lock);
    if (last) breakers_free(k);
}
