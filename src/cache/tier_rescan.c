/* Rescan of the disk tier's directory: finds files that other processes wrote or removed since the last scan (tier.h).
 *
 * The time of a shard's folder changes with every file that is added or removed. A folder is not read again if its time
 * is unchanged since the last rescan. Exception: the time was first seen less than SETTLED_MS before the last rescan,
 * so a later change could have the same time. Clocks of other machines are not compared.
 *
 * In all other folders the names are read: files without an entry are added to the index, entries without a file are
 * erased. Memory: a list of names, freed before returning. If the list cannot be allocated, or a folder cannot be read,
 * the entries of that shard stay unchanged. Tier's thread; the lock is released while files are read. */
#include <errno.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cache/tier_impl.h"

enum { SETTLED_MS = 2000 }; /* longer than the time resolution of any file system */

typedef struct names {
    pi__tier_name *list;
    size_t n, cap;
} names;

/* Reads all names of a shard's folder into out. Returns false if the folder is unchanged or cannot be read. A missing
 * folder is an empty list. */
static bool read_shard(pi__tier *t, uint32_t shard, names *out)
{
    char path[PI__TIER_PATH];
    struct stat st;
    pi__tier_shard_path(path, &t->space[0], shard);
    DIR *d = pi__tier_read_dir(t->dir_fd, path);
    out->n = 0;
    if (!d) return errno == ENOENT;
    if (fstat(dirfd(d), &st)) {
        closedir(d);
        return false;
    }
    const int64_t time = (int64_t) st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec, now = pi__now_ns();
    const bool same = time == t->shard[shard].time;
    if (same && t->rescanned_at - t->shard[shard].since > (int64_t) SETTLED_MS * 1000000) {
        closedir(d);
        return false;
    }
    if (!same) t->shard[shard].since = now;
    t->shard[shard].time = time;
    bool ok = true;
    for (const struct dirent *de; ok && (de = readdir(d));) {
        pi__tier_name f;
        if (!pi__tier_parse_entry(de->d_name, &f) || pi__tier_shard_of(&f) != shard) continue;
        ok = pi__grow(&out->list, &out->cap, out->n + 1, sizeof *out->list);
        if (ok) out->list[out->n++] = f;
    }
    closedir(d);
    if (!ok) t->shard[shard].time = 0; /* forces a read in the next rescan */
    return ok;
}

/* Adds a file that is not in the index. Skips the file if a clear came during the check, because the file may be
 * removed soon. Call with the lock held; releases it while the file's size is read. */
static void add(pi__tier *t, const pi__tier_name *f)
{
    const uint64_t n_clears = t->n_clears;
    char path[PI__TIER_PATH];
    uint32_t pages;
    int64_t used;
    pi__tier_path(path, &t->space[0], f);
    pthread_mutex_unlock(&t->lock);
    pi__tier_result rc = pi__tier_stat(t->dir_fd, path, &pages, &used);
    pthread_mutex_lock(&t->lock);
    /* the last condition: a put added the entry while the lock was released */
    if (rc || t->n_clears != n_clears || pi__tier_find(&t->index, &f->hash, f->group)) return;
    int32_t slot = pi__tier_add(&t->index, 0, f, pages, used);
    if (slot) t->index.entry[slot].seen = true;
}

/* Marks the entries of the listed files as seen, and adds files without an entry. Call with the lock held. */
static void compare(pi__tier *t, const names *files)
{
    for (size_t i = 0; i < files->n; i++) {
        int32_t slot = pi__tier_find(&t->index, &files->list[i].hash, files->list[i].group);
        if (slot) t->index.entry[slot].seen = true;
        else add(t, &files->list[i]);
    }
}

/* Erases entries of the shards in read[] that were not seen: their files no longer exist. */
static void erase_unseen(pi__tier *t, const bool read[PI__TIER_SHARDS])
{
    pi__tier_index *x = &t->index;
    for (int32_t i = x->list[PI__TIER_LRU].head, next; i; i = next) {
        const pi__tier_entry *e = &x->entry[i];
        next = e->link[PI__TIER_LRU].next;
        if (e->space == 0 && read[pi__tier_shard_of(&e->name)] && !e->seen && !e->staged && !e->cleared)
            pi__tier_erase(x, i);
    }
}

void pi__tier_rescan_folders(pi__tier *t)
{
    names files = {0};
    bool read[PI__TIER_SHARDS], any = false;
    for (int32_t i = t->index.list[PI__TIER_LRU].head; i; i = t->index.entry[i].link[PI__TIER_LRU].next)
        t->index.entry[i].seen = false;
    for (uint32_t shard = 0; shard < PI__TIER_SHARDS; shard++) {
        pthread_mutex_unlock(&t->lock);
        read[shard] = read_shard(t, shard, &files);
        pthread_mutex_lock(&t->lock);
        any |= read[shard];
        if (read[shard]) compare(t, &files);
    }
    if (any) erase_unseen(t, read);
    pi__free(files.list);
}
