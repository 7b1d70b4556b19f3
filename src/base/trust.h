/* Which files and directories other users of the machine can change (trust.c), and key files.
 *
 * Others are all users but the process's own and root. Where they can write, what is read back may be theirs. Memory: the
 * caller's. Any thread. */
#ifndef PI__TRUST_H
#define PI__TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "pagedinfer.h"

/* true: of those bits of permission, or as their owner, other users have none. */
bool pi__trust_stat(const struct stat *st, mode_t bits);
/* The open directory fd, whose path is given, can be written by no other user, nor replaced: no parent that others can write
 * to lacks the sticky bit. Else PI_EINVAL, which names option and remedy, the words after "or". */
int pi__trust_dir(int fd, const char *path, const char *option, const char *remedy, pi_error *err);

enum { PI__SECRET_MIN = 32, PI__SECRET_MAX = 4096 /* bytes */ };
typedef struct pi__secret {
    size_t n;
    uint8_t byte[PI__SECRET_MAX + 1];
} pi__secret;
/* The bytes of a key file, all of which count. One that is missing is made, with 64 random hexadecimal digits and mode 0600; of
 * several processes that do so at once, all get the same. PI_EINVAL: no regular file, another user's, readable by others, too
 * short or too long. option: names it in errors. */
int pi__secret_load(pi__secret *s, const char *path, const char *option, pi_error *err);
/* Overwrites it. */
void pi__secret_clear(pi__secret *s);

#endif
