/* The models in the cache (see hub_cache.h). */
#include "hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 16 }; /* folders below a snapshot */

/* A file of a snapshot. */
typedef struct found {
    char *path;      /* within the snapshot */
    char commit[41]; /* of the snapshot; "" = a file of the folder of URLs */
    char oid[65];    /* of its blob; "" = a regular file */
    uint64_t size;
    time_t used;
} found;

/* A walk over the files of a repository. visit returns false to stop it, with errno set. */
typedef struct walk {
    bool (*visit)(struct walk *w, int dir, const char *name, const found *f);
    int blobs;          /* descriptor of blobs/; -1 = none */
    const char *commit; /* of the current snapshot */
    bool removes;       /* remove empty folders */
    /* listing */
    found *f;           /* [n] files */
    size_t n, cap;
    /* removing */
    const char *file;   /* first part of the model to remove */
    char (*oid)[65];    /* [n_oid] blobs that have lost a link */
    size_t n_oid;
    uint64_t freed;     /* bytes of removed files */
} walk;

static int no_memory(const cli *c) { return cli_error(c, CLI_OS, "out of memory"); }

static int open_dir(int at, const char *name)
{
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static DIR *read_dir(int fd)
{
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    return d;
}

/* ------------------------------------------------------------------------------------------------------------ walk */

/* Describes a regular file, or a link to a blob of the repository. Returns false for anything else. */
static bool describe(const walk *w, int dir, const char *name, struct stat st, found *f)
{
    char target[64 + 3 * MAX_DEPTH + 64];
    int depth = 2;
    for (const char *p = f->path; (p = strchr(p, '/')); p++) depth++;
    if (S_ISLNK(st.st_mode)) {
        const ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
        if (n < 0 || w->blobs < 0) return false;
        target[n] = 0;
        if (!hub_blob_of_link(target, depth, f->oid)) return false;
        if (fstatat(w->blobs, f->oid, &st, AT_SYMLINK_NOFOLLOW)) return false;
    }
    if (!S_ISREG(st.st_mode)) return false;
    f->size = (uint64_t) st.st_size;
    f->used = st.st_atime > st.st_mtime ? st.st_atime : st.st_mtime;
    return true;
}

/* Visits the files below a folder and closes fd. path: the folder within the snapshot. */
static bool walk_folder(walk *w, int fd, const char *path, int depth)
{
    DIR *d = read_dir(fd);
    bool ok = true;
    for (struct dirent *e; d && ok && (e = readdir(d));) {
        struct stat st;
        found f = {0};
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
        if (!(f.path = hub_join(path, e->d_name))) ok = false;
        snprintf(f.commit, sizeof f.commit, "%s", w->commit);
        if (ok && S_ISDIR(st.st_mode) && depth < MAX_DEPTH) {
            ok = walk_folder(w, open_dir(dirfd(d), e->d_name), f.path, depth + 1);
            if (w->removes) unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR); /* fails unless empty */
        } else if (ok && hub_is_inside(f.path) && describe(w, dirfd(d), e->d_name, st, &f)) {
            ok = w->visit(w, dirfd(d), e->d_name, &f);
        }
        free(f.path);
    }
    if (d) closedir(d);
    return ok;
}

/* Visits the files of all snapshots of the repository. */
static bool walk_snapshots(walk *w, int repo)
{
    DIR *d = read_dir(open_dir(repo, "snapshots"));
    bool ok = true;
    w->blobs = open_dir(repo, "blobs");
    for (struct dirent *e; d && ok && (e = readdir(d));) {
        if (!hub_is_hex(e->d_name, 40)) continue;
        w->commit = e->d_name;
        ok = walk_folder(w, open_dir(dirfd(d), e->d_name), "", 0);
        if (w->removes) unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    }
    if (d) closedir(d);
    if (w->blobs >= 0) close(w->blobs);
    return ok;
}

/* ------------------------------------------------------------------------------------------------------------ list */

static bool add_found(walk *w, int dir, const char *name, const found *f)
{
    (void) dir;
    (void) name;
    if (!hub_is_gguf(f->path)) return true;
    if (w->n == w->cap) {
        const size_t cap = w->cap ? 2 * w->cap : 16;
        found *more = realloc(w->f, cap * sizeof *more);
        if (!more) return false;
        w->f = more;
        w->cap = cap;
    }
    w->f[w->n] = *f;
    if (!(w->f[w->n].path = strdup(f->path))) return false;
    w->n++;
    return true;
}

static void clear_found(walk *w)
{
    for (size_t i = 0; i < w->n; i++) free(w->f[i].path);
    free(w->f);
    w->f = NULL;
    w->n = w->cap = 0;
}

static int by_path(const void *a, const void *b)
{
    const found *x = a, *y = b;
    const int path = strcmp(x->path, y->path);
    return path ? path : strcmp(x->oid, y->oid);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const cached_model *) a)->name, ((const cached_model *) b)->name);
}

/* True if path is a part of the model with this first part. *ok becomes false if out of memory. */
static bool is_part_of(const char *path, const char *first, bool *ok)
{
    char *name = hub_part_name(path, 1);
    const bool same = name && !strcmp(name, first);
    if (!name) *ok = false;
    free(name);
    return same;
}

/* Sums size and last use of the model's parts over the snapshots; entries with the same blob are adjacent, because the
 * list is sorted, and count once. Returns false if out of memory. */
static bool add_parts(const walk *w, cached_model *m)
{
    bool ok = true;
    for (size_t i = 0; i < w->n && ok; i++) {
        const found *f = &w->f[i], *before = i ? f - 1 : NULL;
        if (!is_part_of(f->path, m->file, &ok)) continue;
        const bool counted = before && *f->oid && !strcmp(before->path, f->path) && !strcmp(before->oid, f->oid);
        if (!counted) m->size += f->size;
        if (f->used > m->used) m->used = f->used;
    }
    return ok;
}

/* Returns the name for the command line: as short as -hf accepts it, if it selects this file. */
static char *name_for(const hub_repo *r, const hub_file *f, const char *quant)
{
    char name[257 + 65 + 2];
    if (!*r->id) return strdup(f->path);
    if (*quant && hub_choose(r, "", quant, false) == f) snprintf(name, sizeof name, "%s:%s", r->id, quant);
    else if (!*quant && hub_choose(r, "", "", false) == f) snprintf(name, sizeof name, "%s", r->id);
    else return hub_join(r->id, f->path);
    return strdup(name);
}

/* Adds the model whose first part is f, a file of r; at: its entry in w, which has the same files. */
static bool add_model(cached_models *out, const walk *w, const hub_repo *r, const hub_file *f, const found *at)
{
    cached_model m = {.id = strdup(r->id), .file = strdup(f->path)};
    hub_repo here = *r;
    const hub_file *vision = hub_is_model(f) ? hub_vision_part(r, f) : NULL;
    hub_quant_of(f->path, m.quant);
    if (vision) m.mmproj = strdup(vision->path);
    m.name = name_for(r, f, m.quant);
    snprintf(here.commit, sizeof here.commit, "%s", at->commit);
    m.path = *r->id ? hub_snapshot_path(&here, f) : hub_join(r->dir, f->path);
    bool ok = m.name && m.id && m.file && m.path && (m.mmproj || !vision) && add_parts(w, &m);
    if (out->n == out->cap) {
        const size_t cap = out->cap ? 2 * out->cap : 16;
        cached_model *more = realloc(out->m, cap * sizeof *more);
        if (more) out->m = more, out->cap = cap;
        else ok = false;
    }
    if (ok) {
        out->m[out->n++] = m;
        return true;
    }
    free(m.name), free(m.id), free(m.file), free(m.path), free(m.mmproj);
    return false;
}

/* Adds the models of the files in w; r has the id and the directory. A file in several snapshots has the path of the
 * one with the last use. */
static bool add_models(cached_models *out, walk *w, hub_repo *r)
{
    bool ok = true;
    if (w->n) qsort(w->f, w->n, sizeof *w->f, by_path);
    for (size_t i = 0; i < w->n && ok; i++)
        if (!i || strcmp(w->f[i].path, w->f[i - 1].path)) ok = hub_add(r, w->f[i].path, w->f[i].size, "");
    for (size_t i = 0; i < r->n && ok; i++) {
        const found *at = NULL;
        if (hub_part_number(r->file[i].path) != 1) continue;
        for (size_t k = 0; k < w->n; k++)
            if (!strcmp(w->f[k].path, r->file[i].path) && (!at || w->f[k].used > at->used)) at = &w->f[k];
        if (at) ok = add_model(out, w, r, &r->file[i], at);
    }
    return ok;
}

/* Adds the models of one folder in the cache. */
static int list_repo(const cli *c, int root, const char *folder, const char *id, cached_models *out)
{
    walk w = {.visit = add_found, .blobs = -1};
    hub_repo r = {0};
    int repo = open_dir(root, folder), code = repo < 0 ? CLI_OK : hub_init(c, &r, id);
    if (repo >= 0 && !code && (!walk_snapshots(&w, repo) || !add_models(out, &w, &r))) code = no_memory(c);
    if (repo >= 0) close(repo);
    clear_found(&w);
    hub_clear(&r);
    return code;
}

/* Adds the models that were downloaded by URL: files of one folder. */
static int list_urls(const cli *c, cached_models *out)
{
    walk w = {.visit = add_found, .blobs = -1};
    hub_repo r = {.id = strdup(""), .dir = hub_url_dir()};
    DIR *d = r.dir ? opendir(r.dir) : NULL;
    bool ok = r.id && r.dir;
    for (struct dirent *e; d && ok && (e = readdir(d));) {
        struct stat st;
        found f = {.path = e->d_name};
        if (!hub_is_inside(f.path) || fstatat(dirfd(d), f.path, &st, AT_SYMLINK_NOFOLLOW)) continue;
        if (describe(&w, dirfd(d), f.path, st, &f)) ok = add_found(&w, 0, NULL, &f);
    }
    if (d) closedir(d);
    if (ok) ok = add_models(out, &w, &r);
    clear_found(&w);
    hub_clear(&r);
    return ok ? CLI_OK : no_memory(c);
}

int cached_list(const cli *c, cached_models *out)
{
    char *root = hub_cache_dir(), id[257];
    DIR *d = root ? opendir(root) : NULL;
    int code = CLI_OK;
    *out = (cached_models) {0};
    if (!root) return cli_error(c, CLI_OS, "no cache directory, or out of memory: set LLAMA_CACHE or HOME");
    if (!d && errno != ENOENT) code = cli_error(c, CLI_IO, "%s: %s", root, strerror(errno));
    for (struct dirent *e; d && !code && (e = readdir(d));)
        if (hub_id_of_folder(e->d_name, id)) code = list_repo(c, dirfd(d), e->d_name, id, out);
    if (d) closedir(d);
    free(root);
    if (!code) code = list_urls(c, out);
    if (out->n) qsort(out->m, out->n, sizeof *out->m, by_name);
    return code;
}

void cached_free(cached_models *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->m[i].name);
        free(list->m[i].id);
        free(list->m[i].file);
        free(list->m[i].path);
        free(list->m[i].mmproj);
    }
    free(list->m);
    *list = (cached_models) {0};
}

/* ---------------------------------------------------------------------------------------------------------- remove */

static bool record_blob(walk *w, const char *oid)
{
    for (size_t i = 0; i < w->n_oid; i++)
        if (!strcmp(w->oid[i], oid)) return true;
    char(*more)[65] = realloc(w->oid, (w->n_oid + 1) * sizeof *more);
    if (!more) return false;
    w->oid = more;
    memcpy(w->oid[w->n_oid++], oid, sizeof *more);
    return true;
}

static bool remove_part(walk *w, int dir, const char *name, const found *f)
{
    bool ok = true;
    if (!is_part_of(f->path, w->file, &ok)) return ok;
    if (*f->oid && !record_blob(w, f->oid)) return false;
    if (unlinkat(dir, name, 0)) return false;
    if (!*f->oid) w->freed += f->size;
    return true;
}

/* Drops the blob of a remaining link from the list. */
static bool keep_blob(walk *w, int dir, const char *name, const found *f)
{
    (void) dir;
    (void) name;
    for (size_t i = 0; i < w->n_oid; i++)
        if (!strcmp(w->oid[i], f->oid)) memcpy(w->oid[i], w->oid[--w->n_oid], sizeof *w->oid);
    return true;
}

static bool remove_blobs(walk *w, int repo)
{
    const int blobs = open_dir(repo, "blobs");
    bool ok = blobs >= 0 || !w->n_oid;
    for (size_t i = 0; i < w->n_oid && ok; i++) {
        struct stat st;
        ok = !fstatat(blobs, w->oid[i], &st, AT_SYMLINK_NOFOLLOW) && !unlinkat(blobs, w->oid[i], 0);
        if (ok) w->freed += (uint64_t) st.st_size;
    }
    if (blobs >= 0) close(blobs);
    return ok;
}

/* Removes the folder of a repository without snapshots: its refs, then each folder that is empty. */
static void remove_repo(int root, const char *folder, int repo)
{
    if (unlinkat(repo, "snapshots", AT_REMOVEDIR)) return;
    DIR *d = read_dir(open_dir(repo, "refs"));
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    unlinkat(repo, "refs", AT_REMOVEDIR);
    unlinkat(repo, "blobs", AT_REMOVEDIR);
    unlinkat(root, folder, AT_REMOVEDIR);
}

static bool remove_from_repo(walk *w, const hub_repo *r)
{
    const char *folder = strrchr(r->dir, '/') + 1;
    char *parent = strndup(r->dir, (size_t) (folder - r->dir));
    const int root = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const int repo = root < 0 ? -1 : open_dir(root, folder);
    w->visit = remove_part;
    w->removes = true;
    bool ok = repo >= 0 && walk_snapshots(w, repo);
    w->visit = keep_blob;
    if (ok) ok = walk_snapshots(w, repo) && remove_blobs(w, repo);
    const int e = errno;
    if (ok) remove_repo(root, folder, repo);
    if (repo >= 0) close(repo);
    if (root >= 0) close(root);
    free(parent);
    errno = e;
    return ok;
}

/* Removes the files of a download by URL, and their ETags. */
static bool remove_from_urls(walk *w)
{
    char *path = hub_url_dir(), etag[300];
    DIR *d = path ? opendir(path) : NULL;
    bool ok = d != NULL;
    for (struct dirent *e; ok && (e = readdir(d));) {
        struct stat st;
        if (!hub_is_gguf(e->d_name) || !is_part_of(e->d_name, w->file, &ok)) continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) continue;
        ok = !unlinkat(dirfd(d), e->d_name, 0);
        if (ok) w->freed += (uint64_t) st.st_size;
        if ((size_t) snprintf(etag, sizeof etag, "%s.etag", e->d_name) < sizeof etag) unlinkat(dirfd(d), etag, 0);
    }
    const int e = errno;
    if (d) closedir(d);
    free(path);
    errno = e;
    return ok;
}

int cached_remove(const cli *c, const cached_model *m, uint64_t *freed)
{
    walk w = {.blobs = -1, .file = m->file};
    hub_repo r = {0};
    int code = *m->id ? hub_init(c, &r, m->id) : CLI_OK;
    if (!code && !(*m->id ? remove_from_repo(&w, &r) : remove_from_urls(&w)))
        code = cli_error(c, CLI_IO, "%s: %s", m->path, strerror(errno));
    *freed = w.freed;
    free(w.oid);
    hub_clear(&r);
    return code;
}
