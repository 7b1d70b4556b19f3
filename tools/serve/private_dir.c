/* The private directory of a front end (see private_dir.h). */
#include "serve/private_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 8, MAX_BASE = 50 }; /* folders below the directory; bytes of its parent's path */

/* Removes the entry `name` of the open directory `parent`, with everything below it. */
static void remove_tree(int parent, const char *name, int depth)
{
    if (!unlinkat(parent, name, 0) || depth > MAX_DEPTH) return;
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) remove_tree(dirfd(d), e->d_name, depth + 1);
    if (d) closedir(d);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* Returns the locked descriptor of the directory's lock; -1 = another process has it, or there is none. */
static int take_lock(int dir)
{
    const int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* Removes the directory if it belongs to this user and no process has its lock. */
static void remove_abandoned(int parent, const char *name)
{
    struct stat st;
    const int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const bool own = dir >= 0 && !fstat(dir, &st) && st.st_uid == geteuid() && (st.st_mode & 0777) == 0700;
    const int lock = own ? take_lock(dir) : -1;
    if (lock >= 0) {
        remove_tree(parent, name, 0);
        close(lock);
    }
    if (dir >= 0) close(dir);
}

static void sweep(const char *base, const char *prefix)
{
    DIR *d = opendir(base);
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, prefix, strlen(prefix))) remove_abandoned(dirfd(d), e->d_name);
    if (d) closedir(d);
}

/* Returns the parent directory. /var/tmp is on a disk, while /tmp may use memory. */
static const char *base_dir(void)
{
    const char *given = getenv("TMPDIR");
    if (given && *given == '/' && strlen(given) <= MAX_BASE && !access(given, W_OK | X_OK)) return given;
    return !access("/var/tmp", W_OK | X_OK) ? "/var/tmp" : "/tmp";
}

bool private_dir_open(private_dir *d)
{
    const char *base = base_dir();
    char prefix[32];
    *d = (private_dir) {.lock = -1};
    snprintf(prefix, sizeof prefix, "pagedinfer-%u-", (unsigned) geteuid());
    sweep(base, prefix);
    const int n = snprintf(d->path, sizeof d->path, "%s/%sXXXXXX", base, prefix);
    if (n < 0 || (size_t) n >= sizeof d->path || !mkdtemp(d->path)) {
        d->path[0] = 0;
        return false;
    }
    const int dir = open(d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir >= 0) d->lock = take_lock(dir);
    if (dir >= 0) close(dir);
    if (d->lock >= 0) return true;
    private_dir_close(d);
    errno = EAGAIN;
    return false;
}

void private_dir_path(const private_dir *d, const char *before, size_t n, const char *after, char out[108])
{
    snprintf(out, 108, "%s/%s%zu%s", d->path, before, n, after);
}

void private_dir_remove(const private_dir *d, const char *before, size_t n)
{
    char path[108];
    private_dir_path(d, before, n, "", path);
    if (*d->path) remove_tree(AT_FDCWD, path, 0);
}

void private_dir_close(private_dir *d)
{
    if (*d->path) remove_tree(AT_FDCWD, d->path, 0);
    if (d->lock >= 0) close(d->lock);
    *d = (private_dir) {.lock = -1};
}
