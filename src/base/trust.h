/* Checks that other users of the machine cannot change a file or directory (trust.c), and reads key files.
 *
 * Other users are all except root and the process's own user. Data from a place where they can write may be forged.
 * Memory: the caller's. Any thread. */
#ifndef PI__TRUST_H
#define PI__TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "pagedinfer.h"

/* True if root or this user owns the file, and none of the permission `bits` is set. */
bool pi__trust_stat(const struct stat *st, mode_t bits);
/* Checks that no other user can write to the directory at `path`, open as fd, or replace it: each parent directory that
 * others can write to must have the sticky bit. Otherwise PI_EINVAL; the text names the option and ends with "or" and
 * the remedy. */
int pi__trust_dir(int fd, const char *path, const char *option, const char *remedy, pi_error *err);

enum { PI__SECRET_MIN = 32, PI__SECRET_MAX = 4096 /* bytes */ };
typedef struct pi__secret {
    size_t n;
    uint8_t byte[PI__SECRET_MAX + 1];
} pi__secret;
/* Reads all bytes of a key file. A missing file is created, with 64 random hexadecimal digits and mode 0600; if
 * several processes create it at the same time, all read the same key. PI_EINVAL: not a regular file, owned or
 * readable by others, too short or too long; PI_EIO. option: its name in errors. */
int pi__secret_load(pi__secret *s, const char *path, const char *option, pi_error *err);
/* Overwrites the key and its length with zeros. */
void pi__secret_clear(pi__secret *s);

#endif
