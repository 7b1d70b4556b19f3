/* The cache of downloaded models, and the selection among the files of a repository (see hub.h). */
#include "hub.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* --------------------------------------------------------------------------------------------------------- folders */

char *hub_join(const char *a, const char *b)
{
    const size_t n = strlen(a);
    const char *between = n && a[n - 1] != '/' ? "/" : "";
    char *s = malloc(n + strlen(b) + 2);
    if (s) sprintf(s, "%s%s%s", a, between, b);
    return s;
}

static char *from_env(const char *name, const char *below)
{
    const char *v = getenv(name);
    return v && *v ? hub_join(v, below) : NULL;
}

/* Returns a directory below $XDG_CACHE_HOME or ~/.cache. */
static char *in_user_cache(const char *below)
{
    char *dir = from_env("XDG_CACHE_HOME", below);
    const struct passwd *pw = dir || (getenv("HOME") && *getenv("HOME")) ? NULL : getpwuid(getuid());
    char *home = dir ? NULL : pw && pw->pw_dir ? hub_join(pw->pw_dir, ".cache") : from_env("HOME", ".cache");
    if (home) dir = hub_join(home, below);
    free(home);
    return dir;
}

char *hub_cache_dir(void)
{
    static const char *const vars[] = {"LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"};
    char *dir = NULL;
    for (int i = 0; i < 3 && !dir; i++) dir = from_env(vars[i], "");
    if (!dir) dir = from_env("HF_HOME", "hub");
    return dir ? dir : in_user_cache("huggingface/hub");
}

char *hub_url_dir(void)
{
    char *dir = from_env("LLAMA_CACHE", "");
    return dir ? dir : in_user_cache("llama.cpp");
}

char *hub_endpoint(void)
{
    char *e = from_env("MODEL_ENDPOINT", "");
    if (!e) e = from_env("HF_ENDPOINT", "");
    return e ? e : strdup("https://huggingface.co/");
}

bool hub_make_parents(const char *path)
{
    char *s = strdup(path);
    bool ok = s != NULL;
    for (char *p = s; ok && (p = strchr(p + 1, '/'));) {
        *p = 0;
        ok = !mkdir(s, 0777) || errno == EEXIST;
        *p = '/';
    }
    const int e = errno;
    free(s);
    errno = e;
    return ok;
}

bool hub_write_file(const char *path, const char *text)
{
    const size_t n = strlen(path) + 32;
    char *tmp = malloc(n);
    if (!tmp || !hub_make_parents(path)) {
        free(tmp);
        return false;
    }
    snprintf(tmp, n, "%s.%ld.tmp", path, (long) getpid());
    FILE *f = fopen(tmp, "w");
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f)) ok = false;
    if (ok) ok = !rename(tmp, path);
    const int e = errno;
    if (!ok) unlink(tmp);
    free(tmp);
    errno = e;
    return ok;
}

/* ------------------------------------------------------------------------------------------------------------ list */

int hub_init(const cli *c, hub_repo *r, const char *id)
{
    *r = (hub_repo) {.id = strdup(id)};
    char *root = hub_cache_dir(), name[300];
    size_t n = (size_t) snprintf(name, sizeof name, "models--");
    for (const char *p = id; *p && n < sizeof name - 3; p++) {
        if (*p == '/') name[n++] = '-', name[n++] = '-';
        else name[n++] = *p;
    }
    name[n] = 0;
    if (root) r->dir = hub_join(root, name);
    free(root);
    if (r->id && r->dir) return CLI_OK;
    hub_clear(r);
    return cli_error(c, CLI_OS, "no cache directory, or out of memory: set LLAMA_CACHE or HOME");
}

void hub_clear(hub_repo *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->file[i].path);
        free(r->file[i].at);
    }
    free(r->file);
    free(r->id);
    free(r->dir);
    *r = (hub_repo) {0};
}

bool hub_add(hub_repo *r, const char *path, uint64_t size, const char *oid)
{
    if (!hub_is_inside(path) || (*oid && !hub_is_hex(oid, 40) && !hub_is_hex(oid, 64))) return true; /* skipped */
    if (r->n == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 64;
        hub_file *f = realloc(r->file, cap * sizeof *f);
        if (!f) return false;
        r->file = f;
        r->cap = cap;
    }
    hub_file *f = &r->file[r->n];
    *f = (hub_file) {.path = strdup(path), .size = size};
    if (!f->path) return false;
    for (size_t i = 0; oid[i]; i++) f->oid[i] = (char) tolower((unsigned char) oid[i]);
    r->n++;
    return true;
}

/* Reads the commit from a file in refs/. Returns false if there is none. */
static bool read_commit(const char *dir, const char *name, char commit[41])
{
    char line[64] = "", *path = hub_join(dir, name);
    FILE *f = path ? fopen(path, "r") : NULL;
    const bool got = f && fgets(line, sizeof line, f);
    if (f) fclose(f);
    free(path);
    line[strcspn(line, "\r\n")] = 0;
    if (!got || !hub_is_hex(line, 40)) return false;
    memcpy(commit, line, 41);
    return true;
}

/* Returns the cached commit of main, or of any branch. */
static bool cached_commit(const hub_repo *r, char commit[41])
{
    char *refs = hub_join(r->dir, "refs");
    bool found = refs && read_commit(refs, "main", commit);
    DIR *d = found || !refs ? NULL : opendir(refs);
    for (struct dirent *e; d && !found && (e = readdir(d));)
        if (*e->d_name != '.') found = read_commit(refs, e->d_name, commit);
    if (d) closedir(d);
    free(refs);
    return found;
}

/* Adds all files below dir; path is dir relative to the snapshot. Returns false if out of memory. */
static bool add_folder(hub_repo *r, const char *dir, const char *path, int depth)
{
    bool ok = true;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && ok && (e = readdir(d));) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *at = hub_join(dir, e->d_name), *sub = hub_join(path, e->d_name);
        ok = at && sub;
        const bool there = ok && !stat(at, &st);
        if (there && S_ISREG(st.st_mode)) ok = hub_add(r, sub, (uint64_t) st.st_size, "");
        else if (there && S_ISDIR(st.st_mode) && depth < 16) ok = add_folder(r, at, sub, depth + 1);
        free(at);
        free(sub);
    }
    if (d) closedir(d);
    return ok;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const hub_file *) a)->path, ((const hub_file *) b)->path);
}

int hub_list_cache(const cli *c, hub_repo *r)
{
    char name[64];
    if (!cached_commit(r, r->commit)) return CLI_OK;
    snprintf(name, sizeof name, "snapshots/%s", r->commit);
    char *dir = hub_join(r->dir, name);
    const bool ok = dir && add_folder(r, dir, "", 0);
    free(dir);
    if (!ok) return cli_error(c, CLI_OS, "out of memory");
    if (r->n) qsort(r->file, r->n, sizeof *r->file, by_path); /* in the order of a hub's list */
    hub_look(r);
    return CLI_OK;
}

bool hub_list_folder(hub_repo *r, const char *dir)
{
    bool ok = true;
    DIR *d = opendir(dir);
    if (!d) return false;
    for (struct dirent *e; ok && (e = readdir(d));) {
        struct stat st;
        if (*e->d_name != '.' && !fstatat(dirfd(d), e->d_name, &st, 0) && S_ISREG(st.st_mode))
            ok = hub_add(r, e->d_name, (uint64_t) st.st_size, "");
    }
    closedir(d);
    if (r->n) qsort(r->file, r->n, sizeof *r->file, by_path);
    if (!ok) errno = ENOMEM;
    return ok;
}

char *hub_snapshot_path(const hub_repo *r, const hub_file *f)
{
    char name[64];
    snprintf(name, sizeof name, "snapshots/%s", r->commit);
    char *dir = hub_join(r->dir, name), *path = dir ? hub_join(dir, f->path) : NULL;
    free(dir);
    return path;
}

char *hub_blob_path(const hub_repo *r, const hub_file *f)
{
    char name[80];
    if (!*f->oid) return hub_snapshot_path(r, f);
    snprintf(name, sizeof name, "blobs/%s", f->oid);
    return hub_join(r->dir, name);
}

/* True if the file exists and has the expected size. */
static bool is_there(const char *path, uint64_t size)
{
    struct stat st;
    return path && !stat(path, &st) && S_ISREG(st.st_mode) && (size == UINT64_MAX || (uint64_t) st.st_size == size);
}

void hub_look(hub_repo *r)
{
    for (size_t i = 0; i < r->n; i++) {
        hub_file *f = &r->file[i];
        char *path = hub_snapshot_path(r, f);
        free(f->at);
        f->at = is_there(path, f->size) ? path : NULL;
        if (!f->at) free(path);
    }
}

/* ---------------------------------------------------------------------------------------------------------- choice */

const hub_file *hub_part(const hub_repo *r, const hub_file *f, int i)
{
    const hub_file *found = NULL;
    char *name = hub_part_name(f->path, i);
    for (size_t k = 0; name && k < r->n && !found; k++)
        if (!strcasecmp(r->file[k].path, name)) found = &r->file[k];
    free(name);
    return found;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool hub_is_model(const hub_file *f)
{
    static const char *const beside[] = {"mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"};
    if (!hub_is_gguf(f->path) || hub_part_number(f->path) != 1) return false;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (strstr(base_of(f->path), beside[i])) return false;
    return true;
}

static bool is_drafter(const hub_file *f) { return hub_is_gguf(f->path) && strstr(base_of(f->path), "mtp-"); }

static const hub_file *first_of(const hub_repo *r, bool (*is)(const hub_file *), const char *quant)
{
    for (size_t i = 0; i < r->n; i++)
        if (is(&r->file[i]) && (!quant || hub_has_quant(r->file[i].path, quant))) return &r->file[i];
    return NULL;
}

const hub_file *hub_choose(const hub_repo *r, const char *file, const char *quant, bool drafter)
{
    const hub_file *f = NULL;
    for (size_t i = 0; *file && i < r->n; i++)
        if (!strcmp(r->file[i].path, file)) return &r->file[i];
    if (*file) return NULL;
    if (drafter && *quant) f = first_of(r, is_drafter, quant);
    if (drafter && !f) f = first_of(r, is_drafter, NULL);
    if (f) return f;
    if (*quant) return first_of(r, hub_is_model, quant);
    f = first_of(r, hub_is_model, "Q4_K_M");
    if (!f) f = first_of(r, hub_is_model, "Q8_0");
    return f ? f : first_of(r, hub_is_model, NULL);
}

/* Returns the bits per weight in a file's name: 4 for Q4_K_M, 16 for BF16; 0 = unknown. */
static int bits_of(const char *path)
{
    char quant[65];
    hub_quant_of(path, quant);
    const char *digit = quant + strcspn(quant, "0123456789");
    return *digit ? atoi(digit) : 0;
}

/* Returns the length of the folder in a path, with its slash. */
static size_t folder_of(const char *path) { return (size_t) (base_of(path) - path); }

const hub_file *hub_vision_part(const hub_repo *r, const hub_file *f)
{
    const hub_file *best = NULL;
    int best_distance = 0;
    for (size_t i = 0; i < r->n; i++) {
        const hub_file *m = &r->file[i];
        const size_t n = folder_of(m->path);
        if (!hub_is_gguf(m->path) || !strstr(base_of(m->path), "mmproj")) continue;
        if (n > folder_of(f->path) || strncmp(m->path, f->path, n) != 0) continue;
        const int distance = abs(bits_of(m->path) - bits_of(f->path));
        const size_t deepest = best ? folder_of(best->path) : 0;
        if (best && (n < deepest || (n == deepest && distance >= best_distance))) continue;
        best = m;
        best_distance = distance;
    }
    return best;
}
