/* API keys (see keys.h). */
#include "serve/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/buf.h"
#include "serve/file.h"

static const char *add_one(keys *k, const char *p, size_t n)
{
    while (n && (p[0] == ' ' || p[0] == '\t')) p++, n--;
    while (n && strchr(" \t\r\n", p[n - 1])) n--;
    if (!n) return NULL;
    if (n >= KEY_MAX) return "a key has more than 255 bytes";
    if (!grow(&k->list, &k->cap, k->n + 1, sizeof *k->list)) return "out of memory";
    memset(k->list[k->n], 0, KEY_MAX);
    memcpy(k->list[k->n++], p, n);
    return NULL;
}

const char *keys_add(keys *k, const char *text)
{
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *wrong = add_one(k, p, n);
        if (wrong) return wrong;
        p += n + (p[n] == ',');
    }
    return NULL;
}

const char *keys_read(keys *k, const char *path)
{
    char line[1024];
    const char *wrong;
    FILE *f = file_open(path, &wrong);
    if (!f) return wrong;
    while (!wrong && fgets(line, sizeof line, f)) {
        if (*line != '#') wrong = add_one(k, line, strlen(line));
    }
    if (!wrong && ferror(f)) wrong = "the file cannot be read";
    fclose(f);
    return wrong;
}

bool keys_allow(const keys *k, const char *key)
{
    char padded[KEY_MAX] = {0};
    unsigned found = 0;
    if (!k->n) return true;
    size_t len = key ? strnlen(key, KEY_MAX) : 0;
    if (!len || len >= KEY_MAX) return false;
    memcpy(padded, key, len);
    for (size_t i = 0; i < k->n; i++) { /* constant time: compares all bytes of all keys */
        volatile unsigned char differs = 0;
        for (size_t b = 0; b < KEY_MAX; b++) differs |= (unsigned char) (padded[b] ^ k->list[i][b]);
        found |= !differs;
    }
    return found;
}

void keys_free(keys *k)
{
    free(k->list);
    *k = (keys) {0};
}
