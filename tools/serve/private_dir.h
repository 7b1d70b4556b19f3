/* The private directory of a front end: sockets and option files of its models, and their prefixes on disk.
 *
 *     $TMPDIR, /var/tmp or /tmp
 *         pagedinfer-UID-XXXXXX/   mode 0700; removed at the end
 *             lock                 locked while the front end runs
 *             N.sock, N.ini        of model number N
 *             prefix-N/            prefixes of model number N
 *             download-N.ini       options of download number N
 *
 * A front end that was killed leaves its directory. The next one removes directories of the same user whose lock is
 * free, because prefixes reveal prompts. No symbolic link is followed. Not thread-safe. */
#ifndef PAGEDINFER_SERVE_PRIVATE_DIR_H
#define PAGEDINFER_SERVE_PRIVATE_DIR_H

#include <stddef.h>
#include <stdbool.h>

typedef struct private_dir {
    char path[80]; /* "" = not created */
    int lock;      /* descriptor of the lock; -1 = none */
} private_dir;

/* Removes abandoned directories and creates a new one. Returns false on failure; errno is set. */
bool private_dir_open(private_dir *d);
/* Writes the path of an entry to out, for example of "prefix-7" for ("prefix-", 7, ""). */
void private_dir_path(const private_dir *d, const char *before, size_t n, const char *after, char out[108]);
/* Removes the entry ("prefix-", 7), with everything below it. */
void private_dir_remove(const private_dir *d, const char *before, size_t n);
/* Removes the directory and its content. */
void private_dir_close(private_dir *d);

#endif
