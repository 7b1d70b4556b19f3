/* Names and files of the disk tier (format: tier.h). Each function writes, reads or changes one file.
 *
 * All data from a file is checked before use. The file name is not trusted: the identity in the header is compared.
 * Allocates nothing. Threads: the tier's thread, and the thread in pi__tier_open. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/trust.h"
#include "cache/tier_impl.h"

enum { VERSION = 2, DIR_MODE = 0700, FILE_MODE = 0600 };
static const char magic[8] = {(char) 0x89, 'P', 'I', 't', 'i', 'e', 'r', '\n'};

_Static_assert(sizeof(pi__tier_head) == 200 && offsetof(pi__tier_head, head_sum) == 168, "the header as in tier.h");

/* ----------------------------------------------------------------------------------------------------------- names */
void pi__tier_space_path(char path[PI__TIER_PATH], const pi__digest *fp)
{
    char hex[PI__DIGEST_HEX];
    pi__digest_hex(fp, hex);
    snprintf(path, PI__TIER_PATH, "v%d-%s", VERSION, hex);
}

void pi__tier_shard_path(char path[PI__TIER_PATH], const pi__digest *fp, uint32_t shard)
{
    pi__tier_space_path(path, fp);
    const size_t n = strlen(path);
    snprintf(path + n, PI__TIER_PATH - n, "/%02x", shard & 0xff);
}

void pi__tier_path(char path[PI__TIER_PATH], const pi__digest *fp, const pi__tier_name *name)
{
    char hex[PI__DIGEST_HEX];
    pi__digest_hex(&name->hash, hex);
    pi__tier_shard_path(path, fp, pi__tier_shard_of(name));
    const size_t n = strlen(path);
    snprintf(path + n, PI__TIER_PATH - n, "/%s-%016" PRIx64 "-%" PRIx32, hex, name->tenant, (uint32_t) name->group);
}

/* Parses n lower-case hexadecimal digits at s. Returns false for other characters. */
static bool parse_hex(const char *s, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c >= '0' && c <= '9') v = v * 16 + (uint64_t) (c - '0');
        else if (c >= 'a' && c <= 'f') v = v * 16 + (uint64_t) (c - 'a' + 10);
        else return false;
    }
    *out = v;
    return true;
}

bool pi__tier_parse_entry(const char *text, pi__tier_name *name)
{
    enum { TENANT = PI__DIGEST_HEX, GROUP = TENANT + 17 }; /* offsets of the digits of tenant and group in the name */
    uint64_t group;
    const size_t n = strlen(text);
    if (n <= GROUP || n > GROUP + 8 || text[TENANT - 1] != '-' || text[GROUP - 1] != '-') return false;
    if (n > GROUP + 1 && text[GROUP] == '0') return false;
    if (!pi__digest_parse(text, &name->hash) || !parse_hex(text + TENANT, 16, &name->tenant)) return false;
    if (!parse_hex(text + GROUP, n - GROUP, &group)) return false;
    name->group = (int32_t) (uint32_t) group;
    return true;
}

bool pi__tier_parse_space(const char *text, pi__digest *fp)
{
    char same[PI__TIER_PATH];
    const size_t n = strlen(text), hex = PI__DIGEST_HEX - 1;
    if (n < hex || !pi__digest_parse(text + n - hex, fp)) return false;
    pi__tier_space_path(same, fp);
    return strcmp(same, text) == 0;
}

/* ---------------------------------------------------------------------------------------------------------- layout */
size_t pi__tier_head_size(int32_t n_tokens)
{
    size_t n = sizeof(pi__tier_head) + (size_t) n_tokens * sizeof(int32_t);
    return (n + PI__TIER_ALIGN - 1) / PI__TIER_ALIGN * PI__TIER_ALIGN;
}

size_t pi__tier_file_size(int32_t n_tokens, size_t n_bytes)
{
    size_t n;
    return pi__add_ok(pi__tier_head_size(n_tokens), n_bytes, &n) && n <= SIZE_MAX / 2 ? n : SIZE_MAX;
}

void pi__tier_image(char *image, const pi__tier_entry_id *w, const void *data)
{
    pi__tier_head h = {.version = VERSION,
                       .group = w->group,
                       .fingerprint = w->fingerprint,
                       .hash = w->key.hash,
                       .parent = w->key.parent,
                       .tenant = w->key.tenant,
                       .n_tokens = w->n_tokens,
                       .n_bytes = w->n_bytes};
    size_t head = pi__tier_head_size(w->n_tokens);
    memcpy(h.magic, magic, sizeof magic);
    memset(image, 0, head);
    memcpy(image, &h, sizeof h);
    if (w->n_tokens) memcpy(image + sizeof h, w->tokens, (size_t) w->n_tokens * sizeof *w->tokens);
    if (w->n_bytes) memcpy(image + head, data, w->n_bytes);
}

/* Returns a checksum without a key: it detects damage only. */
static pi__digest plain_sum(uint64_t sum)
{
    pi__digest d = {{0}};
    memcpy(d.byte, &sum, sizeof sum);
    return d;
}

static pi__digest sum_data(const pi__mac_key *key, const void *data, size_t n)
{
    return key ? pi__mac_bulk(key, data, n) : plain_sum(pi__hash64(data, n, 0));
}

static pi__digest sum_head(const pi__mac_key *key, const char *head, size_t size)
{
    enum { BEFORE = offsetof(pi__tier_head, head_sum), BEHIND = sizeof(pi__tier_head) };
    pi__hasher h;
    if (!key) return plain_sum(pi__hash64(head + BEHIND, size - BEHIND, pi__hash64(head, BEFORE, 0)));
    pi__mac_begin(&h, key);
    pi__sha256_add(&h, head, BEFORE);
    pi__sha256_add(&h, head + BEHIND, size - BEHIND);
    return pi__mac_end(&h, key);
}

/* --------------------------------------------------------------------------------------------------------- writing */
static bool write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t w = write(fd, p, n < (1u << 30) ? n : 1u << 30);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) {
            if (w == 0) errno = EIO;
            return false;
        }
        p += w;
        n -= (size_t) w;
    }
    return true;
}

/* Creates the missing parents of path. Returns false and sets errno on failure. */
static bool make_parents(const char *path)
{
    char part[4096];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t) (slash - path);
        if (n >= sizeof part) {
            errno = ENAMETOOLONG;
            return false;
        }
        memcpy(part, path, n);
        part[n] = 0;
        if (mkdir(part, DIR_MODE) && errno != EEXIST && errno != EISDIR) return false;
    }
    return true;
}

static void close_keeping_errno(int fd)
{
    const int e = errno;
    (void) close(fd);
    errno = e;
}

/* Opens the folder that contains `path` below dir_fd; *name = the last component, inside path. Symbolic links are not
 * followed, because other users with write access could point them anywhere. make: true = creates missing folders.
 * Returns -1 and sets errno on failure. */
static int open_folder(int dir_fd, const char *path, bool make, const char **name)
{
    enum { FLAGS = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
    int fd = openat(dir_fd, ".", FLAGS);
    for (const char *slash; fd >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        char part[PI__TIER_PATH];
        snprintf(part, sizeof part, "%.*s", (int) (slash - path), path);
        const int unmade = make && mkdirat(fd, part, DIR_MODE) ? errno : 0;
        const int next = openat(fd, part, FLAGS);
        if (next < 0 && errno == ENOENT && unmade) errno = unmade;
        close_keeping_errno(fd);
        fd = next;
    }
    *name = path;
    return fd;
}

/* Creates a locked temporary file in the folder and stores its name in temp. Returns its descriptor; -1 and errno on
 * failure. The lock shows other processes that the writer is alive; on file systems without locks, temporary files are
 * removed by age. */
static int make_temp(int folder, char temp[PI__TIER_PATH])
{
    int fd = -1;
    for (int try = 0; try < 8; try++) {
        const uint64_t salt[3] = {(uint64_t) pi__wall_ns(), (uint64_t) getpid(),
                                  (uint64_t) (uintptr_t) temp + (uint64_t) try};
        snprintf(temp, PI__TIER_PATH, "tmp-%016" PRIx64, pi__hash64(salt, sizeof salt, 0));
        fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
        if (fd >= 0 || (errno != EEXIST && errno != EINTR)) break;
    }
    if (fd >= 0) (void) flock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

/* Returns PASSING or FAILED for the write error in errno. Transient errors: no descriptors or memory left; another
 * process emptied the directory during the write, or created something other than a file at this path. */
static pi__tier_result write_failed(void)
{
    switch (errno) {
    case EINTR: case EMFILE: case ENFILE: case ENOMEM:
    case ENOENT: case EEXIST: case EISDIR: case ENOTDIR: case ELOOP: return PI__TIER_PASSING;
    default: return PI__TIER_FAILED;
    }
}

static struct timespec to_timespec(int64_t ns)
{
    return (struct timespec) {.tv_sec = (time_t) (ns / 1000000000), .tv_nsec = (long) (ns % 1000000000)};
}

pi__tier_result pi__tier_set_time(int dir_fd, const char *path, int64_t used)
{
    const struct timespec times[2] = {to_timespec(used), to_timespec(used)};
    const char *name;
    const int folder = open_folder(dir_fd, path, false, &name);
    const bool ok = folder >= 0 && utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) == 0;
    if (folder >= 0) close_keeping_errno(folder);
    if (ok) return PI__TIER_OK;
    return errno == ENOENT ? PI__TIER_GONE : PI__TIER_PASSING;
}

bool pi__tier_unlink(int dir_fd, const char *path, int flags)
{
    const char *name;
    const int folder = open_folder(dir_fd, path, false, &name);
    const bool ok = folder >= 0 && unlinkat(folder, name, flags) == 0;
    if (folder >= 0) close_keeping_errno(folder);
    return ok;
}

pi__tier_result pi__tier_stat(int dir_fd, const char *path, uint32_t *pages, int64_t *used)
{
    struct stat st;
    const char *name;
    const int folder = open_folder(dir_fd, path, false, &name);
    const bool ok = folder >= 0 && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (folder >= 0) close_keeping_errno(folder);
    if (!ok) return errno == ENOENT ? PI__TIER_GONE : PI__TIER_PASSING;
    if (!S_ISREG(st.st_mode)) return PI__TIER_DAMAGED;
    uint64_t n = ((uint64_t) st.st_size + PI__TIER_PAGE - 1) / PI__TIER_PAGE;
    *pages = n > UINT32_MAX ? UINT32_MAX : n ? (uint32_t) n : 1;
    *used = (int64_t) st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return PI__TIER_OK;
}

DIR *pi__tier_read_dir(int dir_fd, const char *path)
{
    const char *name;
    const int folder = open_folder(dir_fd, path, false, &name);
    const int fd = folder >= 0 ? openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (folder >= 0) close_keeping_errno(folder);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) (void) close(fd);
    return d;
}

/* Writes the image, including its sums, to file `name` in the folder: a temporary file, then a rename. */
static pi__tier_result write_into(int folder, const char *name, const char *image, size_t size, int64_t used)
{
    char temp[PI__TIER_PATH];
    const struct timespec times[2] = {to_timespec(used), to_timespec(used)};
    const int fd = make_temp(folder, temp);
    if (fd < 0) return write_failed();
    pi__tier_result rc = PI__TIER_OK;
    if (!write_all(fd, image, size) || futimens(fd, times) || renameat(folder, temp, folder, name)) {
        rc = write_failed();
        const int e = errno;
        (void) unlinkat(folder, temp, 0);
        errno = e;
    }
    close_keeping_errno(fd);
    return rc;
}

pi__tier_result pi__tier_write(int dir_fd, const pi__mac_key *key, char *image, size_t size, int64_t used)
{
    pi__tier_head h;
    memcpy(&h, image, sizeof h);
    const size_t head = pi__tier_head_size(h.n_tokens);
    const char *name;
    char path[PI__TIER_PATH];
    pi__tier_path(path, &h.fingerprint, &(pi__tier_name) {h.hash, h.tenant, h.group});
    const int folder = open_folder(dir_fd, path, true, &name);
    if (folder < 0) return write_failed();
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && (uint64_t) st.st_size == size &&
        pi__tier_set_time(dir_fd, path, used) == PI__TIER_OK) {
        (void) close(folder);
        return PI__TIER_ADOPTED;
    }
    h.data_sum = sum_data(key, image + head, size - head);
    memcpy(image, &h, sizeof h);
    h.head_sum = sum_head(key, image, head);
    memcpy(image, &h, sizeof h);
    const pi__tier_result rc = write_into(folder, name, image, size, used);
    close_keeping_errno(folder);
    return rc;
}

pi__tier_result pi__tier_probe(int dir_fd, const pi__digest *fingerprint)
{
    const char *name;
    char path[PI__TIER_PATH], temp[PI__TIER_PATH];
    char page[PI__TIER_PAGE] = {0};
    pi__tier_path(path, fingerprint, &(pi__tier_name) {.group = 0});
    const int folder = open_folder(dir_fd, path, true, &name);
    if (folder < 0) return PI__TIER_FAILED;
    const int fd = make_temp(folder, temp);
    pi__tier_result rc = fd >= 0 && write_all(fd, page, sizeof page) ? PI__TIER_OK : PI__TIER_FAILED;
    const int e = errno;
    if (fd >= 0) {
        (void) unlinkat(folder, temp, 0);
        (void) close(fd);
    }
    (void) close(folder);
    errno = e;
    return rc;
}

int pi__tier_open_dir(const char *dir)
{
    enum { FLAGS = O_RDONLY | O_DIRECTORY | O_CLOEXEC };
    int fd = open(dir, FLAGS);
    if (fd >= 0 || errno != ENOENT || !make_parents(dir)) return fd;
    return mkdir(dir, DIR_MODE) == 0 || errno == EEXIST ? open(dir, FLAGS) : -1;
}

/* --------------------------------------------------------------------------------------------------------- reading */
static bool read_all(int fd, char *p, size_t n, off_t at)
{
    while (n) {
        ssize_t r = pread(fd, p, n < (1u << 30) ? n : 1u << 30, at);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) return false;
        p += r;
        at += r;
        n -= (size_t) r;
    }
    return true;
}

bool pi__tier_same_entry(const char *image, const pi__tier_entry_id *w)
{
    pi__tier_head h;
    memcpy(&h, image, sizeof h);
    return h.n_tokens == w->n_tokens && h.n_bytes == w->n_bytes && pi__digest_equal(&h.parent, &w->key.parent) &&
           (!w->n_tokens || !memcmp(image + sizeof h, w->tokens, (size_t) w->n_tokens * sizeof *w->tokens));
}

static pi__tier_result read_open(int fd, const pi__mac_key *key, const pi__tier_entry_id *w, char *head,
                                 size_t head_bytes, void *dst)
{
    struct stat st;
    pi__tier_head h;
    pi__digest sum;
    if (fstat(fd, &st)) return PI__TIER_PASSING;
    if (!S_ISREG(st.st_mode) || (!key && !pi__trust_stat(&st, S_IWGRP | S_IWOTH)) || !read_all(fd, head, sizeof h, 0))
        return PI__TIER_DAMAGED;
    memcpy(&h, head, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) || h.version != VERSION || h.n_tokens < 0 || h.n_bytes > SIZE_MAX / 4 ||
        (uint64_t) st.st_size != pi__tier_file_size(h.n_tokens, (size_t) h.n_bytes)) return PI__TIER_DAMAGED;
    size_t size = pi__tier_head_size(h.n_tokens);
    if (size > head_bytes) return PI__TIER_MISS; /* the file has more tokens than any load can request */
    if (!read_all(fd, head + sizeof h, size - sizeof h, sizeof h)) return PI__TIER_DAMAGED;
    sum = sum_head(key, head, size);
    if (!pi__mac_equal(&sum, &h.head_sum) || !pi__digest_equal(&h.fingerprint, &w->fingerprint) ||
        !pi__digest_equal(&h.hash, &w->key.hash) || h.tenant != w->key.tenant || h.group != w->group)
        return PI__TIER_DAMAGED;
    if (!pi__tier_same_entry(head, w)) return PI__TIER_MISS;
    if (!read_all(fd, dst, w->n_bytes, (off_t) size)) return PI__TIER_DAMAGED;
    sum = sum_data(key, dst, w->n_bytes);
    return pi__mac_equal(&sum, &h.data_sum) ? PI__TIER_OK : PI__TIER_DAMAGED;
}

pi__tier_result pi__tier_read(int dir_fd, const pi__mac_key *key, const pi__tier_entry_id *w, char *head,
                              size_t head_bytes, void *dst)
{
    const char *name;
    char path[PI__TIER_PATH];
    pi__tier_path(path, &w->fingerprint, &(pi__tier_name) {w->key.hash, w->key.tenant, w->group});
    const int folder = open_folder(dir_fd, path, false, &name);
    /* O_NONBLOCK: a named pipe without a writer must not block */
    const int fd = folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (folder >= 0) close_keeping_errno(folder);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EINTR) return PI__TIER_PASSING;
        return errno == ENOENT ? PI__TIER_GONE : PI__TIER_DAMAGED;
    }
    pi__tier_result rc = read_open(fd, key, w, head, head_bytes, dst);
    (void) close(fd);
    return rc;
}
