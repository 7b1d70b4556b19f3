/* API keys from options and from a file; SIGHUP rereads the file. A key is compared with all of them in time
 * independent of the key and the matches. Runs on the loop's thread. */
#ifndef PAGEDINFER_SERVE_KEYS_H
#define PAGEDINFER_SERVE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum { KEY_MAX = 256 }; /* maximum bytes of a key, including NUL */

typedef struct keys {
    char (*list)[KEY_MAX]; /* padded with zeros */
    size_t n, cap;
} keys;

/* Adds one key or several separated by commas, as in llama-server. Returns NULL or an error text. */
const char *keys_add(keys *k, const char *text);
/* Reads keys from a file, one per line; empty lines and lines that begin with # are skipped. Never blocks: a pipe or a
 * device is refused. Returns NULL or an error text. */
const char *keys_read(keys *k, const char *path);
/* True if key is in the list, or if the list is empty. */
bool keys_allow(const keys *k, const char *key);
void keys_free(keys *k);

#endif
