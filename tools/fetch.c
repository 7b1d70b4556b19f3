/* Models by repository or URL (see fetch.h): determines the requested files, finds cached ones, and downloads the rest
 * through net/, if that is built in.
 *
 *     -hf user/name:quant  ->  file list (hub or cache)  ->  file and its parts  ->  blobs/, linked from snapshots/
 *     -mu URL              ->  ETag and size             ->  file and its parts  ->  download directory
 *
 * Without a network, with --offline, and if a download fails, the cached files are used. Not thread-safe. */
#include "fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub.h"
#ifdef PI_HAVE_CURL
#include "net/net.h"
#endif

typedef struct fetching {
    cli *c;
    const char *token;
    bool offline;   /* no network access */
    bool dry;       /* dry run: download nothing, write only to standard output */
    uint64_t bytes; /* dry run: bytes to download */
#ifdef PI_HAVE_CURL
    http *h;        /* NULL until the first request */
#endif
} fetching;

/* A file to download and its origin. */
typedef struct source {
    const char *name, *url, *page; /* see net_file */
    const char *path; /* destination */
    uint64_t size;    /* bytes; UINT64_MAX = unknown */
    const char *oid;  /* hash that names it, or "" */
} source;

static int no_memory(const fetching *x) { return cli_error(x->c, CLI_OS, "out of memory"); }

#ifdef PI_HAVE_CURL
static bool connected(fetching *x)
{
    if (!x->h) x->h = http_new();
    return x->h != NULL;
}
#else
static int not_built_in(const fetching *x, const char *what)
{
    return cli_error(x->c, CLI_UNAVAILABLE,
                     "%s is not in the cache, and this build cannot download: it was built without libcurl "
                     "or OpenSSL (libcurl4-openssl-dev, libssl-dev; cmake -DPAGEDINFER_CURL=ON)",
                     what);
}
#endif

/* ----------------------------------------------------------------------------------------------------- dry, or not */

static void tell(const char *what, const char *name, uint64_t size, const char *path)
{
    if (size == UINT64_MAX) printf("%-6s %16s        %s -> %s\n", what, "?", name, path);
    else printf("%-6s %16llu bytes  %s -> %s\n", what, (unsigned long long) size, name, path);
}

static void tell_cached(const fetching *x, const char *name, const char *path)
{
    struct stat st;
    if (x->dry) tell("have", name, stat(path, &st) ? UINT64_MAX : (uint64_t) st.st_size, path);
}

/* Downloads the file to s->path; in a dry run only prints the bytes to download and adds them to x->bytes. Returns an
 * exit code. */
static int bring(fetching *x, const source *s)
{
#ifdef PI_HAVE_CURL
    net_file f = {.url = s->url, .name = s->name, .path = s->path, .page = s->page, .size = s->size};
    snprintf(f.oid, sizeof f.oid, "%s", s->oid);
    if (!x->dry) return connected(x) ? net_fetch(x->c, x->h, x->token, &f) : no_memory(x);
    const uint64_t have = net_partial(&f);
    const bool part = have && s->size != UINT64_MAX && have <= s->size;
    const uint64_t left = part ? s->size - have : s->size;
    tell(part ? "rest" : "fetch", s->name, left, s->path);
    if (left != UINT64_MAX) x->bytes += left;
    return CLI_OK;
#else
    return not_built_in(x, s->name);
#endif
}

/* Sets the access time, which 'list' prints as the last use: a mapped file may keep its old one. */
static void record_use(const char *path)
{
    utimensat(AT_FDCWD, path, (const struct timespec[2]) {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}}, 0);
}

/* ---------------------------------------------------------------------------------------------------- a repository */

static int not_chosen(const fetching *x, const hub_repo *r, const char *file, const char *quant)
{
    size_t n = 0;
    if (*file) cli_error(x->c, 0, "%s has no file %s", r->id, file);
    else if (*quant) cli_error(x->c, 0, "%s has no GGUF model with %s in its name", r->id, quant);
    else
        cli_error(x->c, 0, "%s has no GGUF model: name a repository that has one, often %s-GGUF, or convert the model "
                  "with llama.cpp's convert_hf_to_gguf.py", r->id, r->id);
    for (size_t i = 0; i < r->n; i++) {
        const char *dot = strrchr(r->file[i].path, '.');
        if (!dot || strcmp(dot, ".gguf")) continue;
        fprintf(stderr, "%s  %s\n", n++ ? "" : "It has:\n", r->file[i].path);
    }
    return CLI_NO_INPUT;
}

/* Moves the downloaded blob into the repository's directory: creates the link in snapshots/ to blobs/, or renames it
 * where links are not supported. */
static int link_blob(const fetching *x, const hub_file *f, const char *blob, const char *path)
{
    char target[64 + 3 * 64] = "../../";
    size_t n = strlen(target);
    for (const char *p = f->path; (p = strchr(p, '/')) && n < sizeof target - 80; p++)
        n += (size_t) snprintf(target + n, sizeof target - n, "../");
    snprintf(target + n, sizeof target - n, "blobs/%s", f->oid);
    if (!hub_make_parents(path)) return cli_error(x->c, CLI_IO, "%s: %s", path, strerror(errno));
    if (!symlink(target, path)) return CLI_OK;
    /* replaces a dangling or wrong link */
    if (errno == EEXIST && !unlink(path) && !symlink(target, path)) return CLI_OK;
    if (!rename(blob, path)) return CLI_OK; /* file system without links */
    return cli_error(x->c, CLI_IO, "%s: %s", path, strerror(errno));
}

static bool has_size(const char *path, uint64_t size)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) && size != UINT64_MAX && (uint64_t) st.st_size == size;
}

/* Returns "https://hub/user/name/resolve/COMMIT/FILE" with other characters as %XX. The caller frees it. */
static char *file_url(const hub_repo *r, const hub_file *f)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    char *endpoint = hub_endpoint(), *s = NULL;
    const size_t cap = endpoint ? strlen(endpoint) + strlen(r->id) + 3 * strlen(f->path) + 64 : 0;
    if (endpoint) s = malloc(cap);
    size_t n = s ? (size_t) snprintf(s, cap, "%s%s/resolve/%s/", endpoint, r->id, r->commit) : 0;
    for (const char *p = f->path; s && *p; p++)
        n += (size_t) snprintf(s + n, cap - n, strchr(plain, *p) ? "%c" : "%%%02X", (unsigned char) *p);
    free(endpoint);
    return s;
}

/* Ensures that one file of the repository is cached under its name. */
static int have_file(fetching *x, const hub_repo *r, const hub_file *f)
{
    char *path = hub_snapshot_path(r, f), *blob = hub_blob_path(r, f), *url = file_url(r, f),
         *endpoint = hub_endpoint();
    char *page = endpoint ? hub_join(endpoint, r->id) : NULL;
    int code = CLI_OK;
    if (!path || !blob || !url || !page) code = no_memory(x);
    else if (f->at) tell_cached(x, f->path, f->at);
    else if (has_size(blob, f->size)) tell_cached(x, f->path, blob);
    else
        code = bring(
            x, &(source) {.name = f->path, .url = url, .page = page, .path = blob, .size = f->size, .oid = f->oid});
    if (!code && !x->dry && !f->at && strcmp(blob, path)) code = link_blob(x, f, blob, path);
    free(page);
    free(endpoint);
    free(url);
    free(blob);
    free(path);
    return code;
}

/* Ensures that all parts of a model are cached. */
static int have_parts(fetching *x, const hub_repo *r, const hub_file *f)
{
    const int n = hub_parts(f->path);
    int code = CLI_OK;
    for (int i = 1; i <= n && !code; i++) {
        const hub_file *part = n > 1 ? hub_part(r, f, i) : f;
        if (part) code = have_file(x, r, part);
        else code = cli_error(x->c, CLI_DATA, "%s: part %d of %d of %s is missing", r->id, i, n, f->path);
    }
    return code;
}

/* True if all parts of the model are cached. */
static bool is_cached(const hub_repo *r, const hub_file *f)
{
    const int n = f ? hub_parts(f->path) : 0;
    for (int i = 1; i <= n; i++) {
        const hub_file *part = n > 1 ? hub_part(r, f, i) : f;
        if (!part || !part->at) return false;
    }
    return n > 0;
}

/* Fills r with the files of repository id: from the hub, or from the cache if the hub does not respond and the
 * selected model is cached. Returns an exit code. */
static int list(fetching *x, hub_repo *r, const char *id, const char *file, const char *quant, bool drafter)
{
    int code = hub_init(x->c, r, id);
    if (code) return code;
#ifdef PI_HAVE_CURL
    if (!x->offline) {
        code = connected(x) ? net_list(x->c, x->h, x->token, x->dry, r) : no_memory(x);
        if (!code) hub_look(r);
        if (!code || cli_signal()) return code;
        hub_clear(r); /* falls back to the cache */
        int again = hub_init(x->c, r, id);
        if (!again) again = hub_list_cache(x->c, r);
        if (again || !is_cached(r, hub_choose(r, file, quant, drafter))) return code;
        fprintf(stderr, "%s: continuing with the cached files of %s\n", x->c->name, id);
        return CLI_OK;
    }
#endif
    code = hub_list_cache(x->c, r);
    if (code || is_cached(r, hub_choose(r, file, quant, drafter))) return code;
#ifdef PI_HAVE_CURL
    return cli_error(x->c, CLI_NO_INPUT,
                     "%s%s%s%s%s is not in the cache (%s), and --offline prevents the download: run once without it",
                     id, *quant ? ":" : "", quant, *file ? ", " : "", file, r->dir);
#else
    return not_built_in(x, id);
#endif
}

/* Sets option mmproj to the model's vision part, if the repository has one and the command can use it. */
static int bring_vision(fetching *x, const hub_repo *r, const hub_file *model)
{
    const hub_file *f = cli_reads_images(x->c) && !cli_given(x->c, "mmproj") ? hub_vision_part(r, model) : NULL;
    if (!f) return CLI_OK;
    int code = have_file(x, r, f);
    char *path = code ? NULL : hub_snapshot_path(r, f);
    if (path && !x->dry) record_use(path);
    if (!code && (!path || !cli_set(x->c, "mmproj", path))) code = no_memory(x);
    x->c->found_mmproj = !code;
    free(path);
    return code;
}

/* Sets option `key` to the file described by name ("user/name:quant") and file. */
static int from_hub(fetching *x, const char *name, const char *file, const char *key)
{
    const bool drafter = !strcmp(key, "model-draft");
    char id[257], quant[65];
    hub_repo r = {0};
    if (!hub_split_name(name, id, quant))
        return cli_usage_error(x->c, "'%.80s' is not a repository name: expected USER/NAME or USER/NAME:QUANT", name);
    int code = list(x, &r, id, file, quant, drafter);
    const hub_file *f = code ? NULL : hub_choose(&r, file, quant, drafter);
    if (!code && !f) code = not_chosen(x, &r, file, quant);
    if (!code) code = have_parts(x, &r, f);
    char *path = code ? NULL : hub_snapshot_path(&r, f);
    if (path && !x->dry) record_use(path);
    if (!code && (!path || !cli_set(x->c, key, path))) code = no_memory(x);
    if (!code && !drafter) code = bring_vision(x, &r, f);
    free(path);
    hub_clear(&r);
    return code;
}

/* ------------------------------------------------------------------------------------------------------ an address */

#ifdef PI_HAVE_CURL
static void read_first_line(const char *path, char *line, int cap)
{
    FILE *f = fopen(path, "r");
    if (!f || !fgets(line, cap, f)) *line = 0;
    line[strcspn(line, "\r\n")] = 0;
    if (f) fclose(f);
}

/* True if the cached file has the server's current ETag. */
static bool is_current(const char *path, const net_file *f)
{
    char etag[200] = "", name[4200];
    if (!*f->etag) return true;
    if ((size_t) snprintf(name, sizeof name, "%s.etag", path) < sizeof name) read_first_line(name, etag, sizeof etag);
    return !strcmp(etag, f->etag);
}
#endif

static int have_url(fetching *x, const char *url, const char *name, const char *path)
{
    struct stat st;
    const bool there = !stat(path, &st) && S_ISREG(st.st_mode);
#ifdef PI_HAVE_CURL
    if (!x->offline) {
        net_file f = {.url = url, .name = name, .path = path, .size = UINT64_MAX};
        int code = connected(x) ? net_head(x->c, x->h, x->token, there, &f) : no_memory(x);
        if (cli_signal()) return code;
        if (code && there)
            fprintf(stderr, "%s: %s cannot be reached; continuing with the existing file\n", x->c->name, url);
        if (there && (code || is_current(path, &f))) {
            tell_cached(x, name, path);
            return CLI_OK;
        }
        if (code) return code;
        if (x->dry) return bring(x, &(source) {.name = name, .url = url, .path = path, .size = f.size, .oid = f.oid});
        return net_fetch(x->c, x->h, x->token, &f);
    }
#endif
    if (there) {
        tell_cached(x, name, path);
        return CLI_OK;
    }
#ifdef PI_HAVE_CURL
    return cli_error(x->c, CLI_NO_INPUT, "%s does not exist, and --offline prevents the download: run once without it",
                     path);
#else
    (void) url;
    return not_built_in(x, name);
#endif
}

/* Returns the file name in a URL; "" if there is none. */
static void name_in(const char *url, char name[256])
{
    const size_t n = strcspn(url, "?#");
    size_t from = n;
    while (from && url[from - 1] != '/') from--;
    snprintf(name, 256, "%.*s", n - from < 255 ? (int) (n - from) : 0, url + from);
    if (!strcmp(name, "..") || !strcmp(name, ".")) *name = 0;
}

/* Sets option `key` to the file of a URL; given: its destination, or "". */
static int from_url(fetching *x, const char *url, const char *key, const char *given)
{
    char name[256];
    const char *slash = strrchr(given, '/');
    const int n = hub_parts(url);
    if (strncasecmp(url, "http://", 7) && strncasecmp(url, "https://", 8))
        return cli_usage_error(x->c, "--%s-url: '%.80s' does not begin with https:// or http://", key, url);
    name_in(url, name);
    if (!*name) return cli_usage_error(x->c, "--%s-url: '%.80s' does not end in a file name", key, url);
    char *dir = !*given ? hub_url_dir() : slash ? strndup(given, (size_t) (slash - given) + 1) : strdup("");
    char *first = !dir ? NULL : *given && n == 1 ? strdup(given) : hub_join(dir, name);
    int code = first ? CLI_OK : no_memory(x);
    for (int i = 1; i <= n && !code; i++) {
        char *part = hub_part_name(url, i), *at = NULL;
        if (part && n > 1) name_in(part, name);
        if (part) at = n > 1 ? hub_join(dir, name) : strdup(first);
        code = at ? have_url(x, n > 1 ? part : url, name, at) : no_memory(x);
        if (!code && i == 1 && !x->dry) record_use(at);
        if (!code && i == 1 && !cli_set(x->c, key, at)) code = no_memory(x);
        free(part);
        free(at);
    }
    free(first);
    free(dir);
    return code;
}

/* ------------------------------------------------------------------------------------------------ the command line */

/* True if the token is valid in a header line. */
static bool is_token(const char *s)
{
    for (; *s; s++)
        if ((unsigned char) *s <= 0x20 || (unsigned char) *s >= 0x7f) return false;
    return true;
}

/* A model on the command line has precedence over a model of the environment or a file. */
static bool wanted(const cli *c, const char *key, const char *instead)
{
    return *cli_str(c, key) && !(cli_is_weak(c, key) && cli_given(c, instead) && !cli_is_weak(c, instead));
}

static int fetch_all(fetching *x)
{
    const cli *c = x->c;
    const bool hub = wanted(c, "hf-repo", "model") && !(cli_is_weak(c, "hf-repo") && cli_given(c, "model-url"));
    const bool url = !hub && wanted(c, "model-url", "model");
    const char *given = cli_is_weak(c, "model") ? "" : cli_str(c, "model");
    int code = CLI_OK;
    if (hub && *given) return cli_usage_error(c, "-m and -hf both name a model: give one of them");
    if (*cli_str(c, "hf-file") && !hub) return cli_usage_error(c, "-hff needs a repository: give -hf USER/NAME too");
    if (hub) code = from_hub(x, cli_str(c, "hf-repo"), cli_str(c, "hf-file"), "model");
    else if (url) code = from_url(x, cli_str(c, "model-url"), "model", given);
    if (!code && wanted(c, "mmproj-url", "mmproj")) code = from_url(x, cli_str(c, "mmproj-url"), "mmproj", "");
    if (!code && wanted(c, "hf-repo-draft", "model-draft"))
        code = from_hub(x, cli_str(c, "hf-repo-draft"), cli_is_weak(c, "model-draft") ? "" : cli_str(c, "model-draft"),
                        "model-draft");
    return code;
}

int fetch_models(cli *c)
{
    fetching x = {
        .c = c, .token = cli_str(c, "hf-token"), .offline = cli_bool(c, "offline"), .dry = cli_bool(c, "dry-run")};
    const bool any = *cli_str(c, "hf-repo") || *cli_str(c, "model-url") || *cli_str(c, "hf-repo-draft") ||
                     *cli_str(c, "mmproj-url");
    char bytes[32];
    if (!any && !x.dry && !*cli_str(c, "hf-file")) return -1;
    if (!is_token(x.token)) return cli_usage_error(c, "the token has invalid characters");
    int code = cli_catch_signals();
    if (!code) code = fetch_all(&x);
#ifdef PI_HAVE_CURL
    http_free(x.h);
#endif
    cli_release_signals();
    if (code || !x.dry) return code ? code : -1;
    printf("%s to fetch\n", x.bytes ? cli_bytes(x.bytes, bytes) : "nothing");
    return cli_flush(c);
}
