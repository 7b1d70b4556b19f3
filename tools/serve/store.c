/* Stored responses (see store.h): a hash table of entries that are also in a list by their last use. */
#include "serve/store.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { N_BUCKETS = 4096 };

typedef struct entry {
    struct entry *next;            /* in its bucket */
    struct entry *newer, *older;   /* by last use */
    size_t bytes;
    char *text[2];                 /* by store_part */
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

static void entry_free(entry *e)
{
    free(e->text[STORE_RESPONSE]);
    free(e->text[STORE_ITEMS]);
    free(e->owner);
    free(e->id);
    free(e);
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
    s->bytes -= e->bytes;
    entry_free(e);
}

bool store_put(response_store *s, const char *owner, const char *id, char *response, char *items)
{
    entry *e = calloc(1, sizeof *e);
    if (e) *e = (entry) {.text = {response, items}, .owner = strdup(owner), .id = strdup(id)};
    if (!e || !e->owner || !e->id) {
        if (e) entry_free(e);
        else free(response), free(items);
        return false;
    }
    e->bytes = sizeof *e + strlen(response) + strlen(items) + strlen(owner) + strlen(id) + 4;
    pthread_mutex_lock(&s->lock);
    entry **at = find(s, id);
    const bool fits = e->bytes <= s->max_bytes && !*at; /* a known id is not replaced */
    if (fits) {
        while (s->oldest && (s->n >= s->max || s->bytes + e->bytes > s->max_bytes)) drop(s, s->oldest);
        at = find(s, id); /* its bucket may have changed */
        *at = e;
        make_newest(s, e);
        s->n++;
        s->bytes += e->bytes;
    }
    pthread_mutex_unlock(&s->lock);
    if (!fits) entry_free(e);
    return fits;
}

char *store_get(response_store *s, const char *owner, const char *id, enum store_part part, bool *no_memory)
{
    char *copy = NULL;
    pthread_mutex_lock(&s->lock);
    entry *e = owned(*find(s, id), owner);
    if (e) {
        leave_list(s, e);
        make_newest(s, e);
        copy = strdup(e->text[part]);
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
