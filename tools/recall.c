/* The history of typed lines in a file (see recall.h). Memory: the file's content while it is read. */
#include "recall.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 20, MAX_LINE = 64 << 10, MAX_ENTRIES = 1000 };

char *recall_path(const char *option)
{
    static const char name[] = "pagedinfer/history";
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (!*option || !strcmp(option, "none")) return NULL;
    if (strcmp(option, "auto") != 0) return strdup(option);
    const bool own = state && *state == '/';
    if (!own && (!home || !*home)) return NULL;
    const size_t cap = strlen(own ? state : home) + sizeof "/.local/state/" + sizeof name;
    char *path = malloc(cap);
    if (path) snprintf(path, cap, own ? "%s/%s" : "%s/.local/state/%s", own ? state : home, name);
    return path;
}

/* Creates the folders of the path, private. Folders that exist are left as they are. */
static void make_folders(char *path)
{
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        if (mkdir(path, 0700) && errno != EEXIST) { /* open reports the error */ }
        *p = '/';
    }
}

/* Opens and locks the file. Returns the descriptor, or -1 with the reason; *why NULL: the file does not exist. */
static int open_file(const char *path, int flags, int lock, const char **why)
{
    struct stat st;
    const int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    *why = NULL;
    if (fd < 0 && errno != ENOENT) *why = errno == ELOOP ? "it is a link" : strerror(errno);
    if (fd < 0) return -1;
    if (fstat(fd, &st)) *why = strerror(errno);
    else if (!S_ISREG(st.st_mode)) *why = "it is not a regular file";
    else if (st.st_uid != geteuid()) *why = "it belongs to another user";
    else if ((st.st_mode & 0777) != 0600 && fchmod(fd, 0600)) *why = strerror(errno);
    else if (flock(fd, lock)) *why = strerror(errno);
    if (!*why) return fd;
    (void) close(fd);
    return -1;
}

/* Reads the last bytes of the file, at most `max`, from the start of a line. The caller frees *text. */
static const char *read_end(int fd, size_t max, char **text, size_t *n)
{
    struct stat st;
    *text = NULL;
    *n = 0;
    if (fstat(fd, &st)) return strerror(errno);
    const size_t size = (size_t) st.st_size, from = size > max ? size - max : 0;
    if (!(*text = malloc(size - from + 1))) return "out of memory";
    while (*n < size - from) {
        const ssize_t got = pread(fd, *text + *n, size - from - *n, (off_t) (from + *n));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        *n += (size_t) got;
    }
    (*text)[*n] = 0;
    if (!from) return NULL;
    const char *line = memchr(*text, '\n', *n);
    const size_t skip = line ? (size_t) (line + 1 - *text) : *n;
    memmove(*text, *text + skip, *n - skip + 1);
    *n -= skip;
    return NULL;
}

const char *recall_load(const char *path, void (*add)(void *ud, const char *text), void *ud)
{
    const char *why;
    char *text;
    size_t n, n_lines = 0;
    const int fd = open_file(path, O_RDONLY, LOCK_SH, &why);
    if (fd < 0) return why;
    why = read_end(fd, MAX_FILE, &text, &n);
    (void) close(fd);
    for (size_t i = 0; i < n; i++) n_lines += text[i] == '\n';
    for (char *p = text; !why && p && *p;) {
        char *end = strchr(p, '\n');
        if (end) *end = 0;
        json_t *s = n_lines-- <= MAX_ENTRIES ? json_loads(p, JSON_DECODE_ANY, NULL) : NULL;
        if (json_is_string(s) && *json_string_value(s)) add(ud, json_string_value(s)); /* other lines are skipped */
        json_decref(s);
        if (!end) break;
        p = end + 1;
    }
    free(text);
    return why;
}

static const char *write_text(int fd, const char *s, size_t n)
{
    while (n) {
        const ssize_t put = write(fd, s, n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return strerror(errno);
        s += put;
        n -= (size_t) put;
    }
    return NULL;
}

/* Keeps the newer half of a file that has grown too large. */
static const char *shorten(int fd)
{
    struct stat st;
    char *text;
    size_t n;
    if (fstat(fd, &st) || st.st_size <= MAX_FILE) return NULL;
    const char *why = read_end(fd, MAX_FILE / 2, &text, &n);
    if (!why && ftruncate(fd, 0)) why = strerror(errno);
    if (!why) why = write_text(fd, text, n);
    free(text);
    return why;
}

const char *recall_add(const char *path, const char *text, size_t n)
{
    const char *why = NULL;
    if (!n || *text == ' ' || n > MAX_LINE) return NULL;
    json_t *s = json_stringn(text, n);
    char *line = s ? json_dumps(s, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL, *folder = strdup(path);
    json_decref(s);
    if (line && folder) {
        make_folders(folder);
        const int fd = open_file(path, O_RDWR | O_CREAT | O_APPEND, LOCK_EX, &why);
        const size_t len = strlen(line);
        line[len] = '\n'; /* in place of the NUL */
        if (fd >= 0) why = write_text(fd, line, len + 1);
        if (fd >= 0 && !why) why = shorten(fd);
        if (fd >= 0) (void) close(fd);
        if (fd < 0 && !why) why = "the folder does not exist";
    } else if (s) {
        why = "out of memory";
    }
    free(line);
    free(folder);
    return why;
}
