/* Host memory that this process can still allocate (see system_memory.h).
 *
 *     /proc/meminfo                 MemAvailable, SwapFree, CommitLimit - Committed_AS
 *     /proc/self/cgroup             0::/a/b           version 2: memory.max, memory.high of /a/b, /a and the root
 *                                   4:memory:/a/b     version 1: memory.limit_in_bytes of the same directories
 *     limit of a cgroup             limit - (usage - page cache that the kernel can drop)
 *
 * In a container the path may name a directory that is mounted at the root of the tree instead, so missing directories
 * are skipped and the root is always read. The files may belong to another user's container: sizes and syntax are
 * checked, and a value that is not a number sets no limit. Memory: buffers on the stack, one counter of the process. */
#include "base/system_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILE_BYTES = 16384, PATH_BYTES = 4096 };

/* Values from here on mean no limit: version 1 writes the largest multiple of a page. */
static const uint64_t UNLIMITED = UINT64_C(1) << 60;

/* ---------------------------------------------------------------------------------------------------------- files */

/* Reads dir/name into text, which gets a final NUL. Returns false if there is no such file, or if it is empty. A file
 * of FILE_BYTES or more is truncated after its last complete line. */
static bool read_file(const char *dir, const char *name, char text[FILE_BYTES])
{
    char path[PATH_BYTES];
    const int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (len < 0 || (size_t) len >= sizeof path) return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n < FILE_BYTES - 1; n += got > 0 ? (size_t) got : 0)
        got = read(fd, text + n, FILE_BYTES - 1 - n);
    (void) close(fd);
    text[n] = 0;
    char *end = n == FILE_BYTES - 1 ? strrchr(text, '\n') : NULL;
    if (end) *end = 0;
    return *text != 0;
}

/* Parses decimal digits at p. Returns UINT64_MAX if there are none, or too many. */
static uint64_t number_at(const char *p)
{
    uint64_t v = 0;
    const char *from = p;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t) (*p - '0'), &v))
            return UINT64_MAX;
    return p == from ? UINT64_MAX : v;
}

/* Returns the number after `name` at the start of a line; UINT64_MAX = no such line, or no number. */
static uint64_t field(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, n)) continue;
        const char *p = line + n;
        while (*p == ' ' || *p == '\t') p++;
        return number_at(p);
    }
    return UINT64_MAX;
}

/* Returns a field in kB as bytes; UINT64_MAX = missing. */
static uint64_t kilobytes(const char *text, const char *name)
{
    const uint64_t v = field(text, name);
    return v < UNLIMITED >> 10 ? v << 10 : UINT64_MAX;
}

/* Returns the number in a file that has only a number; UINT64_MAX = missing, "max" or malformed. */
static uint64_t value_of(const char *dir, const char *name)
{
    char text[FILE_BYTES];
    const uint64_t v = read_file(dir, name, text) ? number_at(text) : UINT64_MAX;
    return v < UNLIMITED ? v : UINT64_MAX;
}

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* --------------------------------------------------------------------------------------------------------- cgroups */

/* Names of the files and fields of a cgroup version. */
typedef struct version {
    const char *limit, *soft_limit, *usage; /* files; soft_limit NULL = none */
    const char *inactive, *active;          /* fields of memory.stat: page cache */
    const char *above;                      /* field of memory.stat: the lowest limit of all ancestors; NULL = none */
} version;
static const version version_1 = {"memory.limit_in_bytes", NULL, "memory.usage_in_bytes", "total_inactive_file",
                                  "total_active_file", "hierarchical_memory_limit"};
static const version version_2 = {"memory.max", "memory.high", "memory.current", "inactive_file", "active_file", NULL};

/* Lowers *out by the swap limits of one cgroup. room: bytes of memory that its memory limit leaves. */
static void limit_swap(const char *dir, uint64_t room, uint64_t cache, pi__system_memory *out)
{
    const uint64_t max = value_of(dir, "memory.swap.max"), used = value_of(dir, "memory.swap.current");
    if (max != UINT64_MAX && used != UINT64_MAX) out->swap = min_u64(out->swap, minus(max, used));
    const uint64_t both = value_of(dir, "memory.memsw.limit_in_bytes"),
                   both_used = value_of(dir, "memory.memsw.usage_in_bytes"); /* memory and swap together */
    if (both == UINT64_MAX || both_used == UINT64_MAX) return;
    const uint64_t left = minus(both, minus(both_used, cache));
    out->available = min_u64(out->available, left);
    out->swap = min_u64(out->swap, minus(left, min_u64(room, left)));
}

/* Lowers *out by the limits of the cgroup in directory dir. Does nothing if it has no limits, or does not exist. */
static void limit_level(const char *dir, const version *v, pi__system_memory *out)
{
    char stat[FILE_BYTES];
    uint64_t limit = value_of(dir, v->limit), room = UINT64_MAX;
    if (v->soft_limit) limit = min_u64(limit, value_of(dir, v->soft_limit));
    const uint64_t usage = value_of(dir, v->usage);
    if (usage == UINT64_MAX) return;
    if (!read_file(dir, "memory.stat", stat)) *stat = 0;
    const uint64_t above = v->above ? field(stat, v->above) : UINT64_MAX;
    if (above < UNLIMITED) limit = min_u64(limit, above);
    const uint64_t inactive = field(stat, v->inactive), active = field(stat, v->active);
    /* the kernel drops inactive page cache first; half of the active part stays with its users */
    const uint64_t cache = (inactive < UNLIMITED ? inactive : 0) + (active < UNLIMITED ? active / 2 : 0);
    if (limit != UINT64_MAX) room = minus(limit, minus(usage, cache));
    out->available = min_u64(out->available, room);
    limit_swap(dir, room, cache, out);
}

/* Lowers *out by the limits of the cgroup `path` below the directory `tree`, and of its ancestors up to the tree. */
static void limit_tree(const char *tree, const char *path, size_t n, const version *v, pi__system_memory *out)
{
    char dir[PATH_BYTES];
    const size_t root = strlen(tree);
    const int len = snprintf(dir, sizeof dir, "%s%.*s", tree, (int) n, path);
    if (len < 0 || (size_t) len >= sizeof dir || strstr(dir + root, "/..")) snprintf(dir, sizeof dir, "%s", tree);
    for (char *end = dir + strlen(dir); strlen(dir) > root; *end = 0) {
        limit_level(dir, v, out);
        end = strrchr(dir + root, '/');
        if (!end) break;
    }
    dir[root] = 0;
    limit_level(dir, v, out);
}

/* True if the comma-separated list of n bytes has the controller "memory". */
static bool has_memory(const char *list, size_t n)
{
    static const char name[] = "memory";
    const size_t len = sizeof name - 1;
    for (size_t i = 0; i + len <= n; i++) {
        const bool starts = !i || list[i - 1] == ',', ends = i + len == n || list[i + len] == ',';
        if (starts && ends && !memcmp(list + i, name, len)) return true;
    }
    return false;
}

/* Lowers *out by the limits of a line ID:CONTROLLERS:/PATH of /proc/self/cgroup. */
static void limit_line(const char *line, size_t n, const char *cgroup, pi__system_memory *out)
{
    char tree[PATH_BYTES];
    const char *list = memchr(line, ':', n);
    const char *path = list ? memchr(list + 1, ':', n - (size_t) (list + 1 - line)) : NULL;
    if (!path || path + 1 >= line + n || path[1] != '/') return;
    const size_t len = n - (size_t) (path + 1 - line);
    list++;
    if (list == path) {
        limit_tree(cgroup, path + 1, len, &version_2, out);
        if (snprintf(tree, sizeof tree, "%s/unified", cgroup) < (int) sizeof tree)
            limit_tree(tree, path + 1, len, &version_2, out);
    } else if (has_memory(list, (size_t) (path - list)) &&
               snprintf(tree, sizeof tree, "%s/memory", cgroup) < (int) sizeof tree) {
        limit_tree(tree, path + 1, len, &version_1, out);
    }
}

static void limit_cgroups(const char *proc, const char *cgroup, pi__system_memory *out)
{
    char text[FILE_BYTES];
    if (!read_file(proc, "self/cgroup", text)) return;
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        limit_line(line, n, cgroup, out);
        line += n + (line[n] == '\n');
    }
}

/* ------------------------------------------------------------------------------------------------------ the system */

void pi__system_memory_read(const char *proc, const char *cgroup, pi__system_memory *out)
{
    char text[FILE_BYTES];
    *out = (pi__system_memory) {.available = UINT64_MAX, .mappable = UINT64_MAX};
    if (read_file(proc, "meminfo", text)) {
        const uint64_t limit = kilobytes(text, "CommitLimit:"), used = kilobytes(text, "Committed_AS:");
        out->available = kilobytes(text, "MemAvailable:");
        out->swap = kilobytes(text, "SwapFree:");
        if (out->swap == UINT64_MAX) out->swap = 0;
        /* mode 2: the kernel also counts pages of mappings that were never written */
        if (limit != UINT64_MAX && used != UINT64_MAX && value_of(proc, "sys/vm/overcommit_memory") == 2)
            out->mappable = minus(limit, used);
    }
    limit_cgroups(proc, cgroup, out);
}

/* Address space for the stacks of threads that start later, and for the allocator's regions. */
static const uint64_t STACKS = UINT64_C(64) << 20;

/* Lowers *out by a resource limit on pages in use: field number i of statm, counted from 0. */
static void limit_resource(int resource, const char *statm, int i, pi__system_memory *out)
{
    struct rlimit r;
    const long page = sysconf(_SC_PAGESIZE);
    if (getrlimit(resource, &r) || r.rlim_cur == RLIM_INFINITY || page <= 0) return;
    for (; i > 0 && statm; i--) statm = strchr(statm, ' ') ? strchr(statm, ' ') + 1 : NULL;
    const uint64_t pages = statm ? number_at(statm) : UINT64_MAX;
    if (pages > UNLIMITED / (uint64_t) page) return;
    out->mappable = min_u64(out->mappable, minus((uint64_t) r.rlim_cur, pages * (uint64_t) page + STACKS));
}

static atomic_uint_fast64_t reserved; /* bytes of all reservations of the process */
static pthread_mutex_t sizing = PTHREAD_MUTEX_INITIALIZER;

void pi__system_memory_now(pi__system_memory *out)
{
    char statm[FILE_BYTES];
    pi__system_memory_read("/proc", "/sys/fs/cgroup", out);
    if (read_file("/proc/self", "statm", statm)) {
        limit_resource(RLIMIT_AS, statm, 0, out);
        limit_resource(RLIMIT_DATA, statm, 5, out);
    }
    if (out->available != UINT64_MAX) out->available = minus(out->available, atomic_load(&reserved));
}

size_t pi__available_memory(void)
{
    pi__system_memory m;
    pi__system_memory_now(&m);
    const uint64_t n = min_u64(m.available, m.mappable);
    return n < SIZE_MAX ? (size_t) n : SIZE_MAX;
}

void pi__reserve_memory(pi__reservation *r, uint64_t bytes)
{
    atomic_fetch_add(&reserved, bytes - r->bytes); /* modulo 2^64: adds or subtracts the difference */
    r->bytes = bytes;
}

uint64_t pi__reserved_memory(void) { return atomic_load(&reserved); }
void pi__reserve_begin(void) { pthread_mutex_lock(&sizing); }
void pi__reserve_end(void) { pthread_mutex_unlock(&sizing); }
