/* API keys: from options and from a file, which is read again on SIGHUP. A key is compared with all of them in a time
 * that depends on neither. The loop's thread. */
#ifndef PAGEDINFER_SERVE_KEYS_H
#define PAGEDINFER_SERVE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum { KEY_MAX = 256 }; /* bytes of a key, with a NUL */

typedef struct keys {
    char (*list)[KEY_MAX]; /* padded with zeros */
    size_t n, cap;
} keys;

/* One key, or several with commas between, as llama-server takes them. 0, or what is wrong. */
const char *keys_add(keys *k, const char *text);
/* One key a line; empty lines and lines that begin with # are left out. Never waits: a pipe or a device is refused.
 * 0, or what is wrong. */
const char *keys_read(keys *k, const char *path);
/* Whether key is one of them; there has to be a key where there are any. */
bool keys_allow(const keys *k, const char *key);
void keys_free(keys *k);

#endif
