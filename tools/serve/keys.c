/* API keys (see keys.h). */
#include "serve/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/buf.h"
#include "serve/file.h"

/* Adds a key of n bytes with a name; n_name == 0: a name with the key's number. */
static const char *add_named(keys *k, const char *p, size_t n, const char *name, size_t n_name)
{
    if (n >= KEY_MAX) return "a key has more than 255 bytes";
    if (n_name >= KEY_NAME_MAX) return "the name of a key has more than 63 bytes";
    for (size_t i = 0; i < n_name; i++)
        if ((unsigned char) name[i] <= ' ' || name[i] == '"' || name[i] == 0x7f)
            return "the name of a key has a space, a quote or a control character";
    if (!grow(&k->list, &k->cap, k->n + 1, sizeof *k->list)) return "out of memory";
    api_key *one = &k->list[k->n++];
    memset(one, 0, sizeof *one);
    memcpy(one->text, p, n);
    if (n_name) memcpy(one->name, name, n_name);
    else snprintf(one->name, sizeof one->name, "key-%zu", k->n);
    return NULL;
}

static const char *add_one(keys *k, const char *p, size_t n, bool named)
{
    while (n && (p[0] == ' ' || p[0] == '\t')) p++, n--;
    while (n && strchr(" \t\r\n", p[n - 1])) n--;
    if (!n) return NULL;
    size_t len = 0;
    while (named && len < n && p[len] != ' ' && p[len] != '\t') len++;
    if (!named || len == n) return add_named(k, p, n, NULL, 0);
    const char *name = p + len;
    while (*name == ' ' || *name == '\t') name++;
    return add_named(k, p, len, name, (size_t) (p + n - name));
}

const char *keys_add(keys *k, const char *text)
{
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        const char *wrong = add_one(k, p, n, false);
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
        if (*line != '#') wrong = add_one(k, line, strlen(line), true);
    }
    if (!wrong && ferror(f)) wrong = "the file cannot be read";
    fclose(f);
    return wrong;
}

/* Returns the index of a key + 1; 0 = not in the list. Constant time: compares all bytes of all keys. */
static size_t find(const keys *k, const char *key)
{
    char padded[KEY_MAX] = {0};
    size_t found = 0;
    size_t len = key ? strnlen(key, KEY_MAX) : 0;
    if (!len || len >= KEY_MAX) return 0;
    memcpy(padded, key, len);
    for (size_t i = 0; i < k->n; i++) {
        volatile unsigned char differs = 0;
        for (size_t b = 0; b < KEY_MAX; b++) differs |= (unsigned char) (padded[b] ^ k->list[i].text[b]);
        const size_t equal = (size_t) ((differs != 0) - 1); /* all bits, or none */
        found = (found & ~equal) | ((i + 1) & equal);
    }
    return found;
}

bool keys_allow(const keys *k, const char *key) { return !k->n || find(k, key); }

const char *keys_name(const keys *k, const char *key)
{
    const size_t i = find(k, key);
    return i && i <= k->n ? k->list[i - 1].name : "";
}

void keys_free(keys *k)
{
    free(k->list);
    *k = (keys) {0};
}
