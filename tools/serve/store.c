/* Stored responses (see store.h): a hash table of entries that are also in a list by their last use, and chains of
 * items with reference counts. */
#include "serve/store.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { N_BUCKETS = 4096 };

typedef struct chain {             /* the items that a response adds */
    struct chain *before;          /* the items before them; NULL = none */
    size_t n_refs;                 /* responses and chains that refer to it */
    size_t bytes, all_bytes;       /* its memory; with that of all chains before it */
    size_t n, all_n;               /* bytes of text; of the complete list, without brackets */
    char *text;                    /* "[ITEM,...]" */
} chain;

typedef struct entry {
    struct entry *next;            /* in its bucket */
    struct entry *newer, *older;   /* by last use */
    size_t bytes;                  /* its memory, without the items */
    char *response;
    chain *items;
    char *owner, *id;
} entry;

struct response_store {
    pthread_mutex_t lock;
    size_t max, max_bytes;
    size_t n, bytes;
    entry *newest, *oldest;
    entry *bucket[N_BUCKETS];
};

response_store *store_new(size_t n, size_t max_bytes)
{
    response_store *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->max = n;
    s->max_bytes = max_bytes;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static chain *chain_new(char *text, chain *before)
{
    chain *c = malloc(sizeof *c);
    const size_t n = strlen(text), inner = n - 2, bytes = sizeof *c + n + 1;
    if (!c) return NULL;
    *c = (chain) {.before = before, .n_refs = 1, .bytes = bytes, .all_bytes = bytes, .n = n, .all_n = inner,
                  .text = text};
    if (!before) return c;
    before->n_refs++;
    c->all_bytes += before->all_bytes;
    c->all_n += before->all_n + (inner && before->all_n); /* a comma */
    return c;
}

/* Releases a reference. Returns the bytes that were freed. */
static size_t chain_release(chain *c)
{
    size_t freed = 0;
    for (chain *before; c && !--c->n_refs; c = before) {
        before = c->before;
        freed += c->bytes;
        free(c->text);
        free(c);
    }
    return freed;
}

/* Returns the complete list of items. NULL = out of memory. */
static char *chain_text(const chain *c)
{
    char *out = malloc(c->all_n + 3);
    size_t end = c->all_n + 1;
    if (!out) return NULL;
    out[end] = ']';
    out[end + 1] = 0;
    for (; c; c = c->before) { /* from the last items to the first */
        const size_t inner = c->n - 2;
        end -= inner;
        memcpy(out + end, c->text + 1, inner);
        if (inner && c->before && c->before->all_n) out[--end] = ',';
    }
    out[0] = '[';
    return out;
}

/* Returns the freed bytes. */
static size_t entry_free(entry *e)
{
    const size_t freed = e->bytes + chain_release(e->items);
    free(e->response);
    free(e->owner);
    free(e->id);
    free(e);
    return freed;
}

void store_free(response_store *s)
{
    if (!s) return;
    for (entry *e = s->newest, *older; e; e = older) {
        older = e->older;
        entry_free(e);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Returns the link to the entry with this id, or to the end of its bucket. Ids of this server are random. */
static entry **find(response_store *s, const char *id)
{
    uint32_t h = 2166136261u;
    for (const char *p = id; *p; p++) h = (h ^ (unsigned char) *p) * 16777619u;
    entry **at = &s->bucket[h % N_BUCKETS];
    while (*at && strcmp((*at)->id, id) != 0) at = &(*at)->next;
    return at;
}

/* Returns the entry if it belongs to the owner. */
static entry *owned(entry *e, const char *owner) { return e && !strcmp(e->owner, owner) ? e : NULL; }

static void leave_list(response_store *s, entry *e)
{
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
}

static void make_newest(response_store *s, entry *e)
{
    e->newer = NULL;
    e->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
}

static void drop(response_store *s, entry *e)
{
    entry **at = find(s, e->id);
    *at = e->next;
    leave_list(s, e);
    s->n--;
    s->bytes -= entry_free(e);
}

/* Adds e, which has no items yet. Takes ownership of both; returns false if they are not added. */
static bool add(response_store *s, entry *e, const char *previous, char *items)
{
    const entry *p = previous ? owned(*find(s, previous), e->owner) : NULL;
    bool fits = (!previous || p) && !*find(s, e->id); /* a known id is not replaced */
    if (fits) e->items = chain_new(items, p ? p->items : NULL);
    fits = fits && e->items && e->bytes + e->items->all_bytes <= s->max_bytes;
    if (!fits) {
        if (!e->items) free(items);
        entry_free(e);
        return false;
    }
    s->bytes += e->bytes + e->items->bytes;
    while (s->oldest && (s->n >= s->max || s->bytes > s->max_bytes)) drop(s, s->oldest);
    *find(s, e->id) = e;
    make_newest(s, e);
    s->n++;
    return true;
}

bool store_put(response_store *s, const char *owner, const char *id, const char *previous, char *response, char *items)
{
    entry *e = calloc(1, sizeof *e);
    if (e) *e = (entry) {.response = response, .owner = strdup(owner), .id = strdup(id)};
    if (!e || !e->owner || !e->id) {
        if (e) entry_free(e);
        else free(response);
        free(items);
        return false;
    }
    e->bytes = sizeof *e + strlen(response) + strlen(owner) + strlen(id) + 3;
    pthread_mutex_lock(&s->lock);
    const bool added = add(s, e, previous, items);
    pthread_mutex_unlock(&s->lock);
    return added;
}

char *store_get(response_store *s, const char *owner, const char *id, enum store_part part, bool *no_memory)
{
    char *copy = NULL;
    pthread_mutex_lock(&s->lock);
    entry *e = owned(*find(s, id), owner);
    if (e) {
        leave_list(s, e);
        make_newest(s, e);
        copy = part == STORE_ITEMS ? chain_text(e->items) : strdup(e->response);
    }
    *no_memory = e && !copy;
    pthread_mutex_unlock(&s->lock);
    return copy;
}

bool store_delete(response_store *s, const char *owner, const char *id)
{
    pthread_mutex_lock(&s->lock);
    entry *e = owned(*find(s, id), owner);
    if (e) drop(s, e);
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

void store_size(response_store *s, size_t *n, size_t *bytes)
{
    pthread_mutex_lock(&s->lock);
    *n = s->n;
    *bytes = s->bytes;
    pthread_mutex_unlock(&s->lock);
}
