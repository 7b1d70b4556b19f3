/* Builds the index of the disk tier from its directory, at open (see tier_impl.h).
 *
 * First, the files of this model and of other models are collected. Then the most recently used files up to the limit
 * become entries of the index; the other files are removed. Memory: one list, freed before returning, and the table of
 * fingerprints, which belongs to the tier. Runs before the tier's thread starts. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "cache/tier_impl.h"

typedef struct found { /* a file of an entry */
    pi__tier_name name;
    int64_t used;
    int32_t space;
    uint32_t pages;
    bool future;
} found;

typedef struct scan {
    pi__tier *t;
    found *list;
    size_t n, cap;
    /* ns since 1970; files with a later time count as used now, and their modification time is corrected later */
    int64_t now;
} scan;

enum { EMPTY_SECONDS = 60, STRAY_SECONDS = 3600 }; /* see sweep */

/* Removes temporary file `name` if its writer is dead: its lock is free, or the file is older than STRAY_SECONDS (locks
 * may not work on this file system). A writer locks its file before the first byte. So an empty file may be about to be
 * locked, and is kept for EMPTY_SECONDS. */
static void sweep(int dir_fd, const char *name, int64_t now)
{
    struct stat st;
    int fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        int64_t age = now / 1000000000 - st.st_mtim.tv_sec;
        bool dead = (st.st_size > 0 || age > EMPTY_SECONDS) && flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (dead || age > STRAY_SECONDS) (void) unlinkat(dir_fd, name, 0);
    }
    (void) close(fd);
}

/* Appends the files of a shard to s->list and removes stale temporary files. Returns false if out of memory. */
static bool scan_shard(scan *s, int32_t space, uint32_t shard)
{
    char path[PI__TIER_PATH];
    pi__tier_shard_path(path, &s->t->space[space], shard);
    DIR *d = pi__tier_read_dir(s->t->dir_fd, path);
    if (!d) return true;
    bool ok = true;
    for (const struct dirent *de; ok && (de = readdir(d));) {
        found f = {.space = space};
        if (strncmp(de->d_name, "tmp-", 4) == 0) sweep(dirfd(d), de->d_name, s->now);
        if (!pi__tier_parse_entry(de->d_name, &f.name) || pi__tier_shard_of(&f.name) != shard ||
            pi__tier_stat(dirfd(d), de->d_name, &f.pages, &f.used)) continue;
        f.future = f.used > s->now;
        if (f.future) f.used = s->now;
        ok = pi__grow(&s->list, &s->cap, s->n + 1, sizeof *s->list);
        if (ok) s->list[s->n++] = f;
    }
    closedir(d);
    return ok;
}

static bool scan_space(scan *s, int32_t space)
{
    char path[PI__TIER_PATH];
    for (uint32_t shard = 0; shard < PI__TIER_SHARDS; shard++)
        if (!scan_shard(s, space, shard)) return false;
    if (space == 0) return true;
    /* another model's folders: AT_REMOVEDIR removes them only if they are empty */
    for (uint32_t shard = 0; shard < PI__TIER_SHARDS; shard++) {
        pi__tier_shard_path(path, &s->t->space[space], shard);
        (void) pi__tier_unlink(s->t->dir_fd, path, AT_REMOVEDIR);
    }
    pi__tier_space_path(path, &s->t->space[space]);
    (void) pi__tier_unlink(s->t->dir_fd, path, AT_REMOVEDIR);
    return true;
}

/* Appends the fingerprints of other models to t->space. */
static int find_spaces(pi__tier *t, pi_error *err)
{
    DIR *d = pi__tier_read_dir(t->dir_fd, ".");
    if (!d) return pi__fail(err, PI_EIO, "prefix cache: cannot read the directory %.140s: %s", t->dir, strerror(errno));
    int rc = PI_OK;
    for (const struct dirent *de; !rc && (de = readdir(d));) {
        pi__digest fp;
        if (!pi__tier_parse_space(de->d_name, &fp)) continue;
        if (pi__digest_equal(&fp, &t->space[0])) continue;
        if (t->n_spaces == INT32_MAX || !pi__grow(&t->space, &t->cap_spaces, t->n_spaces + 1, sizeof *t->space))
            rc = pi__fail_mem(err, "the prefix cache's directory");
        else t->space[t->n_spaces++] = fp;
    }
    closedir(d);
    return rc;
}

/* Order for qsort: the most recently used file first; equal times by hash and group. */
static int compare(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->used != y->used) return x->used < y->used ? 1 : -1;
    const int order = memcmp(&x->name.hash, &y->name.hash, sizeof x->name.hash);
    return order ? order : (x->name.group > y->name.group) - (x->name.group < y->name.group);
}

int pi__tier_scan(pi__tier *t, pi_error *err)
{
    scan s = {.t = t, .now = pi__tier_tick(&t->index)};
    int rc = find_spaces(t, err);
    for (size_t i = 0; !rc && i < t->n_spaces; i++)
        if (!scan_space(&s, (int32_t) i)) rc = pi__fail_mem(err, "the prefix cache's directory");
    if (rc) goto out;
    if (s.n) qsort(s.list, s.n, sizeof *s.list, compare);
    size_t keep = 0;
    for (uint64_t pages = 0; keep < s.n && keep < (size_t) (t->index.capacity - t->n_stage); keep++) {
        pages += s.list[keep].pages;
        if (pages > t->limit_pages) break;
    }
    for (size_t i = keep; i < s.n; i++) {
        char path[PI__TIER_PATH];
        pi__tier_path(path, &t->space[s.list[i].space], &s.list[i].name);
        if (pi__tier_unlink(t->dir_fd, path, 0)) t->stats.evicted++;
    }
    /* adds the oldest file first, because the entry added last is the most recently used */
    for (size_t i = keep; i-- > 0;) {
        const found *f = &s.list[i];
        int32_t slot = pi__tier_add(&t->index, f->space, &f->name, f->pages, f->used);
        if (f->future) pi__tier_set_dirty(&t->index, slot, true);
    }
out:
    pi__free(s.list);
    return rc;
}
