/* Owners and permissions of files, and key files (see trust.h). */
#include "base/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"

bool pi__trust_stat(const struct stat *st, mode_t bits)
{
    return (st->st_uid == 0 || st->st_uid == geteuid()) && !(st->st_mode & bits);
}

static unsigned mode_of(const struct stat *st) { return (unsigned) st->st_mode & 07777; }

/* Checks that no other user can rename an entry in any parent directory of the resolved path. Shortens path. */
static int check_parents(char *path, const char *option, const char *remedy, pi_error *err)
{
    struct stat st;
    for (char *slash; (slash = strrchr(path, '/')) && path[1];) {
        slash[slash == path] = 0; /* the root keeps its slash */
        if (stat(path, &st)) return pi__fail(err, PI_EIO, "%s: cannot stat %.150s: %s", option, path, strerror(errno));
        if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
            return pi__fail(err, PI_EINVAL,
                            "%s: other users can replace the directory, as they can write to %.70s (mode %04o): run "
                            "chmod go-w on it, or %s",
                            option, path, mode_of(&st), remedy);
    }
    return PI_OK;
}

int pi__trust_dir(int fd, const char *path, const char *option, const char *remedy, pi_error *err)
{
    struct stat st;
    char resolved[PATH_MAX];
    if (fstat(fd, &st)) return pi__fail(err, PI_EIO, "%s: cannot stat %.150s: %s", option, path, strerror(errno));
    if (!pi__trust_stat(&st, 0))
        return pi__fail(err, PI_EINVAL, "%s: the directory %.80s belongs to another user (%ld): "
                        "use one of your own, or %s", option, path,
                        (long) st.st_uid, remedy);
    if (!pi__trust_stat(&st, S_IWGRP | S_IWOTH))
        return pi__fail(err, PI_EINVAL,
                        "%s: other users can write to the directory %.80s (mode %04o): run chmod go-w on it, or %s",
                        option, path, mode_of(&st), remedy);
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && !pi__trust_stat(&st, 0))
        return pi__fail(err, PI_EINVAL, "%s: the link %.80s belongs to another user (%ld): "
                        "name the directory itself, or %s", option, path,
                        (long) st.st_uid, remedy);
    if (!realpath(path, resolved)) return pi__fail(err, PI_EIO, "%s: cannot stat %.150s: %s",
                                                   option, path, strerror(errno));
    return check_parents(resolved, option, remedy, err);
}

/* ------------------------------------------------------------------------------------------------------- key files */

static bool random_bytes(uint8_t *p, size_t n)
{
    while (n) {
        const ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        p += got;
        n -= (size_t) got;
    }
    return true;
}

/* Creates the key file: writes a temporary file and links it to `path`, so that readers always find a complete file.
 * Returns 0 if the file exists now (another process may have created it), else errno. */
static int make_secret(const char *path)
{
    char temp[PATH_MAX], text[PI__DIGEST_HEX];
    pi__digest key, name;
    if (!random_bytes(key.byte, sizeof key) || !random_bytes(name.byte, sizeof name)) return errno;
    pi__digest_hex(&name, text);
    if (snprintf(temp, sizeof temp, "%s.%.16s", path, text) >= (int) sizeof temp) return ENAMETOOLONG;
    const int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    pi__digest_hex(&key, text);
    text[sizeof text - 1] = '\n';
    errno = EIO; /* errno for a short write */
    bool ok = !fchmod(fd, 0600) && write(fd, text, sizeof text) == (ssize_t) sizeof text && !fsync(fd);
    if (ok) ok = !link(temp, path) || errno == EEXIST;
    const int e = ok ? 0 : errno;
    (void) close(fd);
    (void) unlink(temp);
    return e;
}

static int read_secret(pi__secret *s, int fd, const char *path, const char *option, pi_error *err)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) return pi__fail(err, PI_EINVAL, "%s: %.150s is not a regular file",
                                                                option, path);
    if (!pi__trust_stat(&st, 0))
        return pi__fail(err, PI_EINVAL, "%s: the key file %.120s belongs to another user (%ld): use one of your own",
                        option, path,
                        (long) st.st_uid);
    if (!pi__trust_stat(&st, S_IRWXG | S_IRWXO))
        return pi__fail(err, PI_EINVAL,
                        "%s: other users can read or write the key file %.100s (mode %04o): run chmod 600 on it",
                        option, path, mode_of(&st));
    for (s->n = 0; s->n < sizeof s->byte;) {
        const ssize_t got = read(fd, s->byte + s->n, sizeof s->byte - s->n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return pi__fail(err, PI_EIO, "%s: cannot read %.150s: %s", option, path, strerror(errno));
        if (!got) break;
        s->n += (size_t) got;
    }
    if (s->n >= PI__SECRET_MIN && s->n <= PI__SECRET_MAX) return PI_OK;
    return pi__fail(err, PI_EINVAL, "%s: the key file %.80s has %s%zu bytes, expected %d to %d: remove it, "
                    "the next start creates one",
                    option, path, s->n > PI__SECRET_MAX ? "at least " : "", s->n, PI__SECRET_MIN, PI__SECRET_MAX);
}

int pi__secret_load(pi__secret *s, const char *path, const char *option, pi_error *err)
{
    enum { FLAGS = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC }; /* O_NONBLOCK: do not wait for a writer of a FIFO */
    int fd = open(path, FLAGS);
    if (fd < 0 && errno == ENOENT) {
        const int e = make_secret(path);
        if (e) return pi__fail(err, PI_EIO, "%s: cannot create the key file %.120s: %s", option, path, strerror(e));
        fd = open(path, FLAGS);
    }
    if (fd < 0) return pi__fail(err, PI_EIO, "%s: cannot open the key file %.120s: %s", option, path, strerror(errno));
    const int rc = read_secret(s, fd, path, option, err);
    (void) close(fd);
    if (rc) pi__secret_clear(s);
    return rc;
}

void pi__secret_clear(pi__secret *s)
{
    volatile uint8_t *p = s->byte;
    for (size_t i = 0; i < sizeof s->byte; i++) p[i] = 0;
    s->n = 0;
}
