/* Repository lists of a hub (see net.h): the head of a branch and its files. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "json.h"
#include "net/net.h"

enum { MAX_BODY = 64 << 20, MAX_PAGES = 200 };

typedef struct body {
    char *p;
    size_t n, cap;
} body;

static bool take(void *ud, const char *p, size_t n)
{
    body *b = ud;
    if (n > MAX_BODY - b->n) return false;
    if (b->n + n > b->cap) {
        const size_t cap = 2 * (b->n + n);
        char *more = realloc(b->p, cap);
        if (!more) return false;
        b->p = more;
        b->cap = cap;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
    return true;
}

/* Returns the JSON at a URL, with retries after temporary errors. *next: URL of the next page. */
static int get(const cli *c, http *h, const char *url, const char *token, const net_where *w, json_t **out,
               char next[1000])
{
    http_reply r;
    enum http_result how;
    json_fault why;
    body b;
    for (int i = 0;; i++) {
        b = (body) {0};
        const http_request q = {.url = url, .json = true, .token = token, .body = take, .ud = &b};
        how = http_run(h, &q, &r);
        const bool again = how == HTTP_NETWORK || (how == HTTP_DONE && http_passes(r.status));
        if (!again || i == 2 || !net_sleep(r.retry_after > 0 ? r.retry_after : 0.5 * (1 << i))) break;
        free(b.p);
    }
    int code = CLI_OK;
    *out = NULL;
    if (how != HTTP_DONE || r.status != 200) code = net_explain(c, w, how, &r);
    else if (!(*out = json_read(b.p ? b.p : "", b.n, &why)))
        code = cli_error(c, CLI_DATA, "%s: the response is not JSON (%s): check the hub's address", url, why.what);
    snprintf(next, 1000, "%s", r.next);
    free(b.p);
    return code;
}

static bool is_commit(const char *s) { return s && strlen(s) == 40 && strspn(s, "0123456789abcdef") == 40; }

/* Returns the commit of main, or of the first branch. */
static const char *head_of(const json_t *refs, const char **branch)
{
    const char *commit = NULL;
    size_t i;
    json_t *b;
    json_array_foreach(json_object_get(refs, "branches"), i, b) {
        const char *name = json_string_value(json_object_get(b, "name"));
        const char *at = json_string_value(json_object_get(b, "targetCommit"));
        if (!name || !is_commit(at)) continue;
        if (commit && strcmp(name, "main")) continue;
        commit = at;
        *branch = name;
    }
    return commit;
}

static bool add_files(hub_repo *r, const json_t *tree)
{
    size_t i;
    json_t *f;
    json_array_foreach(tree, i, f) {
        const char *type = json_string_value(json_object_get(f, "type"));
        const char *path = json_string_value(json_object_get(f, "path"));
        const json_t *lfs = json_object_get(f, "lfs"), *of = json_is_object(lfs) ? lfs : f;
        const char *oid = json_string_value(json_object_get(of, "oid"));
        const json_t *size = json_object_get(of, "size");
        if (!type || strcmp(type, "file") || !path) continue;
        if (!hub_add(r, path, json_is_integer(size) ? (uint64_t) json_integer_value(size) : UINT64_MAX, oid ? oid : ""))
            return false;
    }
    return true;
}

/* Stores the commit in refs/, so that a later run without a network finds it. */
static void note_head(const hub_repo *r, const char *branch)
{
    char name[80];
    if (!*branch || strlen(branch) > 60 || strpbrk(branch, "/\\") || *branch == '.') return;
    snprintf(name, sizeof name, "refs/%s", branch);
    char *path = hub_join(r->dir, name);
    if (path) (void) hub_write_file(path, r->commit); /* not fatal: the files stay usable */
    free(path);
}

/* Returns the URL of an item of the repository; the caller frees it. */
static char *api_url(const char *endpoint, const char *id, const char *rest)
{
    const size_t n = strlen(endpoint) + strlen(id) + strlen(rest) + 16;
    char *s = malloc(n);
    if (s) snprintf(s, n, "%sapi/models/%s/%s", endpoint, id, rest);
    return s;
}

/* True if the URL is on the endpoint: the token must not be sent to other hosts. */
static bool is_of(const char *url, const char *endpoint) { return !strncmp(url, endpoint, strlen(endpoint)); }

static int list_tree(const cli *c, http *h, const char *token, const char *endpoint, const net_where *w, hub_repo *r)
{
    char rest[80], next[1000] = "";
    snprintf(rest, sizeof rest, "tree/%s?recursive=true", r->commit);
    char *url = api_url(endpoint, r->id, rest);
    int code = CLI_OK;
    for (int page = 0; url && !code && page < MAX_PAGES; page++) {
        json_t *tree;
        code = get(c, h, url, token, w, &tree, next);
        if (!code && !add_files(r, tree)) code = cli_error(c, CLI_OS, "out of memory");
        json_decref(tree);
        free(url);
        url = *next && is_of(next, endpoint) ? strdup(next) : NULL;
        if (!url) return code;
    }
    if (!url && !code) code = cli_error(c, CLI_OS, "out of memory");
    free(url);
    return code;
}

int net_list(const cli *c, http *h, const char *token, bool dry, hub_repo *r)
{
    char *endpoint = hub_endpoint(), *url = endpoint ? api_url(endpoint, r->id, "refs") : NULL;
    char *page = endpoint ? hub_join(endpoint, r->id) : NULL, next[1000];
    const net_where w = {.name = r->id, .page = page, .has_token = *token};
    const char *branch = NULL, *commit = NULL;
    json_t *refs = NULL;
    int code = url && page ? get(c, h, url, token, &w, &refs, next) : cli_error(c, CLI_OS, "out of memory");
    if (!code && !(commit = head_of(refs, &branch)))
        code = cli_error(c, CLI_DATA, "%s: the hub's response has no branch: check %s", r->id, endpoint);
    if (!code) memcpy(r->commit, commit, sizeof r->commit);
    if (!code) code = list_tree(c, h, token, endpoint, &w, r);
    if (!code && !dry) note_head(r, branch);
    json_decref(refs);
    free(page);
    free(url);
    free(endpoint);
    return code;
}
