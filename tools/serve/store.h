/* Responses that clients may continue and read later (--response-store), in bounded memory: the number of responses and
 * the bytes of their texts are limited; the least recently used ones are dropped. Each belongs to the API key that made
 * it; for other keys it does not exist. Nothing is written to disk.
 *
 * A response stores only the items that it adds to a conversation, and refers to the items before them:
 *
 *     responses    r1        r2        r3       r4 (also continues r1)
 *                   |         |         |        |
 *     items        i1 <----- i2 <----- i3       i4 -----> i1
 *
 * Items stay until neither a response nor later items refer to them. So the memory of a conversation grows with its
 * length, and each response can be continued after older ones are dropped or deleted.
 *
 * Thread-safe: one lock for all functions except store_new and store_free. */
#ifndef PAGEDINFER_SERVE_STORE_H
#define PAGEDINFER_SERVE_STORE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct response_store response_store;

enum store_part { STORE_RESPONSE, STORE_ITEMS }; /* the response; the conversation including its output, a JSON list */

/* Returns a store for at most n > 0 responses of max_bytes in total; NULL = out of memory. */
response_store *store_new(size_t n, size_t max_bytes);
void store_free(response_store *s);
/* Adds a response; owner is the API key, "" = none. previous: id of the response whose conversation goes on; NULL =
 * none. items: the further items, a JSON list without space around it. Takes ownership of both texts, which are freed
 * with free. Returns false if the conversation is larger than the store, if previous is not stored, or if out of
 * memory; nothing is added then. */
bool store_put(response_store *s, const char *owner, const char *id, const char *previous, char *response,
               char *items);
/* Returns a copy of a part; the caller frees it. NULL = unknown id, another owner, or out of memory (*no_memory). The
 * response counts as used. */
char *store_get(response_store *s, const char *owner, const char *id, enum store_part part, bool *no_memory);
/* Returns false if there is no such response of this owner. */
bool store_delete(response_store *s, const char *owner, const char *id);
/* Returns the number of responses and the bytes that they take. */
void store_size(response_store *s, size_t *n, size_t *bytes);

#endif
