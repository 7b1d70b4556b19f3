/* Names of repositories, cache folders and model files (see hub_names.h). */
#include "hub_names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_word(char c) { return isalnum((unsigned char) c) || c == '_'; }

/* True for a valid repository name: letters, digits and _, single . - / in between, exactly one /. */
static bool is_repo(const char *s)
{
    int slashes = 0;
    for (size_t i = 0; s[i]; i++) {
        if (is_word(s[i])) continue;
        if (!strchr("./-", s[i]) || !i || !is_word(s[i - 1]) || !is_word(s[i + 1])) return false;
        slashes += s[i] == '/';
    }
    return slashes == 1;
}

bool hub_is_hex(const char *s, size_t n) { return strlen(s) == n && strspn(s, "0123456789abcdefABCDEF") == n; }

bool hub_split_name(const char *text, char id[257], char quant[65])
{
    const size_t n = strcspn(text, ":");
    const char *q = text[n] ? text + n + 1 : "";
    if (n > 256 || strlen(q) > 64 || (text[n] && !*q) || strpbrk(q, "/:")) return false;
    snprintf(id, 257, "%.*s", (int) n, text);
    snprintf(quant, 65, "%s", q);
    return is_repo(id);
}

bool hub_is_inside(const char *path)
{
    if (!*path || *path == '/') return false;
    for (const char *p = path; *p;) {
        const size_t n = strcspn(p, "/");
        if (!n || (n == 1 && *p == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char) p[i] < 0x20 || p[i] == 0x7f || p[i] == '\\') return false;
        p += n + (p[n] == '/');
        if (!*p && p[-1] == '/') return false;
    }
    return true;
}

bool hub_id_of_folder(const char *folder, char id[257])
{
    static const char prefix[] = "models--";
    if (strncmp(folder, prefix, sizeof prefix - 1)) return false;
    const char *user = folder + sizeof prefix - 1, *dash = strstr(user, "--");
    if (!dash || strlen(user) > 256 || strchr(user, '/')) return false;
    snprintf(id, 257, "%.*s/%s", (int) (dash - user), user, dash + 2);
    return is_repo(id);
}

bool hub_blob_of_link(const char *target, int depth, char oid[65])
{
    static const char blobs[] = "blobs/";
    for (int i = 0; i < depth; i++, target += 3)
        if (strncmp(target, "../", 3)) return false;
    if (strncmp(target, blobs, sizeof blobs - 1)) return false;
    target += sizeof blobs - 1;
    if (!hub_is_hex(target, 40) && !hub_is_hex(target, 64)) return false;
    snprintf(oid, 65, "%s", target);
    return true;
}

bool hub_is_gguf(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".gguf");
}

bool hub_has_quant(const char *path, const char *quant)
{
    const size_t n = strlen(quant);
    for (const char *p = path; (p = strcasestr(p, quant)); p++)
        if (p[n] == '.' || p[n] == '-') return true;
    return false;
}

/* Returns the length of a quantization's name at the start of s; 0 if there is none. */
static size_t quant_length(const char *s)
{
    static const char *const words[] = {"BF16", "F16", "F32", "FP16", "FP32", "MXFP4", "NVFP4"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words && !n; i++)
        if (!strncasecmp(s, words[i], strlen(words[i]))) n = strlen(words[i]);
    if (!n) {
        if (strchr("IT", toupper((unsigned char) s[0])) && s[0]) n = 1;
        if (toupper((unsigned char) s[n]) != 'Q' || !isdigit((unsigned char) s[n + 1])) return 0;
        n += 2;
    }
    while (s[n] == '_') { /* _K, _M, _0, _XXS */
        size_t len = 0;
        while (isalnum((unsigned char) s[n + 1 + len])) len++;
        if (!len || len > 4) return 0;
        n += 1 + len;
    }
    return (s[n] && strchr(".-/", s[n])) && n < 64 ? n : 0;
}

void hub_quant_of(const char *path, char quant[65])
{
    *quant = 0;
    for (const char *p = path; *p; p++) {
        const size_t n = p == path || strchr("-._/", p[-1]) ? quant_length(p) : 0;
        if (!n) continue;
        for (size_t i = 0; i < n; i++) quant[i] = (char) toupper((unsigned char) p[i]);
        quant[n] = 0;
        p += n - 1;
    }
}

/* ----------------------------------------------------------------------------------------------------------- parts */

/* Parses "-00002-of-00003.gguf" at the end of path: the two numbers, and the length of the text before. Returns false
 * for any other path. */
static bool split_name(const char *path, int *no, int *of, size_t *stem)
{
    static const char form[] = "-#####-of-#####.gguf";
    const size_t n = strlen(path), len = sizeof form - 1;
    if (n <= len) return false;
    const char *p = path + n - len;
    for (size_t i = 0; i < len; i++)
        if (form[i] == '#' ? !isdigit((unsigned char) p[i]) : tolower((unsigned char) p[i]) != form[i]) return false;
    *no = atoi(p + 1);
    *of = atoi(p + 10);
    *stem = n - len;
    return *no >= 1 && *of >= *no;
}

int hub_parts(const char *path)
{
    int no, of;
    size_t stem;
    return split_name(path, &no, &of, &stem) ? of : 1;
}

char *hub_part_name(const char *path, int i)
{
    int no, of;
    size_t stem, n = strlen(path) + 1;
    char *s = malloc(n + 1);
    if (!s) return NULL;
    if (split_name(path, &no, &of, &stem)) snprintf(s, n, "%.*s-%05d-of-%05d.gguf", (int) stem, path, i % 100000, of);
    else memcpy(s, path, n);
    return s;
}

int hub_part_number(const char *path)
{
    int no, of;
    size_t stem;
    return split_name(path, &no, &of, &stem) ? no : 1;
}
