/* API keys from options and from a file; SIGHUP rereads the file. A key is compared with all of them in time
 * independent of the key and the matches. Runs on the loop's thread. */
#ifndef PAGEDINFER_SERVE_KEYS_H
#define PAGEDINFER_SERVE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum { KEY_MAX = 256, KEY_NAME_MAX = 64 }; /* maximum bytes of a key and of its name, including NUL */

typedef struct api_key {
    char text[KEY_MAX];      /* padded with zeros */
    char name[KEY_NAME_MAX]; /* for the log: the one in the file, or "key-1", "key-2", ... */
} api_key;

typedef struct keys {
    api_key *list; /* [n] */
    size_t n, cap;
} keys;

/* Adds one key or several separated by commas, as in llama-server. Returns NULL or an error text. */
const char *keys_add(keys *k, const char *text);
/* Reads keys from a file, one per line, with an optional name after a space; empty lines and lines that begin with #
 * are skipped. Never blocks: a pipe or a device is refused. Returns NULL or an error text. */
const char *keys_read(keys *k, const char *path);
/* True if key is in the list, or if the list is empty. */
bool keys_allow(const keys *k, const char *key);
/* Returns the name of a key in the list; "" = not in the list. */
const char *keys_name(const keys *k, const char *key);
void keys_free(keys *k);

#endif
