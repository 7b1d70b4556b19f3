/* Implementation of weights images (see weights_image.h): keys, files and mappings. */
#include "model/weights_image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/extent.h"
#include "base/trust.h"
#include "model/model.h"
#include "model/weights_socket.h"

enum { PAGE = 4096, SAMPLE = 64 /* bytes sampled from a tensor at each of three places */ };

typedef struct header {
    char magic[8];
    uint32_t version, layout;
    pi__digest key;
    pi__digest digest;   /* hash of the loaded tensors (pi__model.digest) */
    uint64_t size;       /* bytes of the image */
    uint64_t data_sum;   /* XXH3-64 of the bytes after the first page; 0 = not computed */
    uint64_t head_sum;   /* hash of the fields before this one */
} header;

static const char magic[8] = {'P', 'I', 'w', 'e', 'i', 'g', 'h', 't'};
enum { VERSION = 2 };

static size_t in_pages(size_t n) { return (n + PAGE - 1) & ~(size_t) (PAGE - 1); }

/* Returns the part of an image that would hold the region of a placement; PI__PART_NONE = its backend supports no
 * images. */
static int part_of(const pi__model *m, int32_t placement)
{
    const pi__backend *be = pi__backend_at(m->be, placement);
    if (placement == PI__AT_BOTH || !m->weights_size[placement]) return PI__PART_NONE;
    if (!be->discrete && !be->page && be->n_ranks < 2) return PI__PART_HOST;
    return be->page && be->exports ? PI__PART_DEVICE : PI__PART_NONE;
}

int pi__weights_image_part(const pi__model *m, int32_t placement)
{
    return m->image.map ? part_of(m, placement) : PI__PART_NONE;
}

/* Returns the bytes of the host part of the image up to the region of placement `end`. */
static size_t host_bytes(const pi__model *m, int32_t end)
{
    size_t n = PAGE;
    for (int32_t i = 0; i < end; i++)
        if (part_of(m, i) == PI__PART_HOST) n += in_pages(m->weights_size[i]);
    return n;
}

char *pi__weights_image_at(const pi__model *m, int32_t placement) { return m->image.map + host_bytes(m, placement); }

size_t pi__weights_image_bytes(const pi__model *m, int32_t placement)
{
    const size_t page = pi__backend_at(m->be, placement)->page, n = m->weights_size[placement] + sizeof(pi__digest);
    return (n + page - 1) & ~(page - 1);
}

/* --------------------------------------------------------------------------------------------------------------
 * key */

/* Adds sample bytes of the tensor to the hash h: at its start, middle and end. */
static int sample(const pi__model *m, const pi__tensor *t, pi__hasher *h, pi_error *err)
{
    char bytes[SAMPLE];
    const size_t n = t->size < SAMPLE ? (size_t) t->size : SAMPLE;
    const uint64_t at[] = {0, (t->size - n) / 2, t->size - n};
    int rc = PI_OK;
    for (int i = 0; i < 3 && !rc; i++) {
        rc = pi__gguf_read(m->g, t, at[i], bytes, n, err);
        if (!rc) pi__hash_field(h, bytes, n);
    }
    return rc;
}

static int add_want(const pi__model *m, const pi__declared *w, pi__hasher *h, pi_error *err)
{
    const pi__tensor *t = w->tensor;
    const pi__weight *x = w->weight;
    char text[512];
    if (w->values) {
        pi__hash_field(h, w->values, w->size);
        return PI_OK;
    }
    const int n = snprintf(text, sizeof text, "%d|%lld,%lld,%lld,%lld|%zu|%d|%d|%zu|%a|%d%d%d%d|%d|%d|%lld", t->type,
                           (long long) t->ne[0], (long long) t->ne[1], (long long) t->ne[2], (long long) t->ne[3],
                           w->size, w->placement, w->own, w->at, (double) w->factor, !!w->scale, !!w->vec, !!w->host,
                           !!w->numbers, x ? x->layout : -1, x ? x->type : -1, x ? (long long) x->n_in : -1);
    pi__hash_field(h, t->name.p, t->name.n);
    pi__hash_field(h, text, (size_t) n);
    const int64_t n_row = x ? (w->turned ? x->n_in : x->n_out) * x->n_mat : t->ne[0] * t->ne[1];
    pi__hash_field(h, w->row, w->row ? (size_t) n_row * sizeof *w->row : 0);
    return sample(m, t, h, err);
}

/* Sets m->image.target: a description of the backends, and of the devices that have part of the image. */
static void name_target(pi__model *m)
{
    char *to = m->image.target;
    const size_t cap = sizeof m->image.target;
    snprintf(to, cap, "%.200s", m->be->dev->describe(m->be));
    for (int32_t i = 0; i < PI__N_PLACEMENTS; i++) {
        const pi__backend *be = pi__backend_at(m->be, i);
        const size_t n = strlen(to);
        if (part_of(m, i) != PI__PART_DEVICE || !be->opt->identify || n + 2 > cap) continue;
        to[n] = ' ';
        be->opt->identify(be, to + n + 1, cap - n - 1);
    }
}

static int make_key(pi__model *m, pi_error *err)
{
    const int64_t layout[] = {VERSION, PI__PACKED_LAYOUT, (int64_t) m->image.size};
    pi__hasher h;
    pi__hash_begin(&h, PI__HASH_IMAGE);
    pi__hash_field(&h, pi_version(), strlen(pi_version()));
    pi__hash_field(&h, m->image.target, strlen(m->image.target));
    pi__hash_field(&h, layout, sizeof layout);
    for (int32_t i = 0; i < pi__gguf_n_files(m->g); i++) {
        const int64_t file[] = {(int64_t) pi__gguf_file_size(m->g, i), pi__gguf_file_time(m->g, i)};
        pi__hash_field(&h, file, sizeof file);
    }
    int rc = PI_OK;
    for (size_t i = 0; i < m->n_want && !rc; i++) rc = add_want(m, &m->want[i], &h, err);
    if (!rc) m->image.key = pi__hash_end(&h);
    return rc;
}

/* -------------------------------------------------------------------------------------------------------- mapping */

static uint64_t sum_head(const header *h) { return pi__hash64(h, offsetof(header, head_sum), 0); }

/* Maps all of fd at m->image.map, writable if `write`. Registers each region as a known extent, for checked builds. */
static bool map_fd(pi__model *m, int fd, bool write)
{
    void *p = mmap(NULL, m->image.size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return false;
#ifdef MADV_HUGEPAGE
    /* has effect only if the system allows huge pages for shared memory */
    (void) madvise(p, m->image.size, MADV_HUGEPAGE);
#endif
    m->image.map = p;
    for (int32_t i = 0; i < PI__N_REGIONS; i++)
        if (part_of(m, i) == PI__PART_HOST) pi__extent_register(pi__weights_image_at(m, i), m->weights_size[i]);
    return true;
}

static void unmap(pi__model *m)
{
    for (int32_t i = 0; m->image.map && i < PI__N_REGIONS; i++)
        if (part_of(m, i) == PI__PART_HOST) pi__extent_drop(pi__weights_image_at(m, i), m->weights_size[i]);
    if (m->image.map) munmap(m->image.map, m->image.size);
    m->image.map = NULL;
    m->image.complete = false;
}

/* Returns the reason why the mapped image cannot be used: a damaged header, another key or another size. NULL = it
 * can. sum: also verify the data checksum. */
static const char *fault(const pi__model *m, bool sum)
{
    header h;
    memcpy(&h, m->image.map, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) || h.version != VERSION || h.head_sum != sum_head(&h))
        return "not a weights image";
    if (h.layout != PI__PACKED_LAYOUT || !pi__digest_equal(&h.key, &m->image.key) || h.size != m->image.size)
        return "packed from another model, by another version or for another processor";
    if (sum && h.data_sum != pi__hash64(m->image.map + PAGE, m->image.size - PAGE, 0)) return "damaged";
    return NULL;
}

/* Maps fd as the model's complete image, read-only, and sets m->digest. sum: fd is a file of the cache directory,
 * with a checksum. Returns NULL, or the reason why the image cannot be used. */
static const char *adopt(pi__model *m, int fd, bool sum)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t) st.st_size != m->image.size) return "of another size";
    if (sum && !pi__trust_stat(&st, S_IWGRP | S_IWOTH)) return "writable by other users";
    if (!map_fd(m, fd, false)) return strerror(errno);
    const char *what = fault(m, sum);
    if (what) {
        unmap(m);
        return what;
    }
    header h;
    memcpy(&h, m->image.map, sizeof h);
    m->digest = h.digest;
    m->image.complete = true;
    return NULL;
}

/* Returns the mark of a device's memory, derived from the key and the placement. */
static pi__digest mark_of(const pi__model *m, int32_t placement)
{
    return pi__hash_chain(PI__HASH_IMAGE_PART, &m->image.key, &placement, sizeof placement);
}

static void close_parts(pi__model *m)
{
    for (int32_t i = 0; i < m->image.n_parts; i++) {
        if (m->image.part[i] >= 0) (void) close(m->image.part[i]);
        m->image.part[i] = -1;
    }
}

int pi__weights_image_map(pi__model *m, int32_t placement, char *base, pi_error *err)
{
    pi__weights_image *im = &m->image;
    pi__backend *be = pi__backend_at(m->be, placement);
    const size_t size = pi__weights_image_bytes(m, placement);
    pi_error why = {0};
    const pi__digest mark = mark_of(m, placement);
    if (!im->complete) return be->opt->arena_share(be, base, size, &mark, im->part, err);
    const int rc = be->opt->arena_adopt(be, base, size, &mark, im->part, &why);
    close_parts(m);
    return rc ? pi__fail(err, rc, "weights-from %.60s: the owner's weights cannot be used: %.110s",
                         im->source.from, why.msg)
              : PI_OK;
}

/* -------------------------------------------------------------------------------------------------------- sources */

static int from_owner(pi__model *m, pi_error *err)
{
    const char *socket = m->image.source.from;
    const pi__weights_question q = {m->image.key, m->image.target, 1 + m->image.n_parts};
    int all[PI__WEIGHTS_FDS], rc = pi__weights_ask(socket, &q, all, err);
    if (rc) return rc;
    memcpy(m->image.part, all + 1, (size_t) m->image.n_parts * sizeof *all);
    const char *what = NULL;
    const int fd = all[0], need = F_SEAL_SHRINK | F_SEAL_WRITE, seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & need) != need) what = "its memory is not sealed against changes by the owner";
    if (!what) what = adopt(m, fd, false);
    (void) close(fd);
    return what ? pi__fail(err, PI_EIO, "weights-from %.120s: the owner's weights cannot be used: %s",
                           socket, what) : PI_OK;
}

/* Allocates the memory of all of the file now, so that a full disk or machine is an error here and not a SIGBUS
 * later. */
static bool take_room(const pi__model *m, int fd)
{
    int e;
    do e = posix_fallocate(fd, 0, (off_t) m->image.size);
    while (e == EINTR);
    if (e == EINVAL || e == EOPNOTSUPP) e = ftruncate(fd, (off_t) m->image.size) ? errno : 0;
    errno = e;
    return !e;
}

static int in_memory(pi__model *m, pi_error *err)
{
    m->image.fd = memfd_create("pagedinfer weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (m->image.fd < 0)
        return pi__fail(err, PI_EUNSUPPORTED, "this system cannot share memory between processes: %s", strerror(errno));
    if (take_room(m, m->image.fd) && map_fd(m, m->image.fd, true)) return PI_OK;
    return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of shared weights: %s",
                    m->image.size >> 20, strerror(errno));
}

static void path_of(const pi__model *m, char *out, size_t cap)
{
    char hex[PI__DIGEST_HEX];
    pi__digest_hex(&m->image.key, hex);
    snprintf(out, cap, "%.200s/%s.weights", m->image.source.cache, hex);
}

static void cannot_keep(const pi__model *m, int e)
{
    pi__logf(&m->image.source.log, PI_LOG_WARN, "weights-cache: cannot store %zu MiB of packed weights in %s: %s: "
             "the next start packs again", m->image.size >> 20, m->image.source.cache, strerror(e));
}

/* Removes temporary files of killed writers from the directory: files that no process has locked. A writer locks
 * its file before it writes the first byte. */
static void sweep(const char *dir)
{
    enum { EMPTY_SECONDS = 60 };
    DIR *d = opendir(dir);
    for (const struct dirent *de; d && (de = readdir(d));) {
        struct stat st;
        int fd = strncmp(de->d_name, "tmp-", 4)
                     ? -1
                     : openat(dirfd(d), de->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        const bool file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
        if (file && (st.st_size || pi__wall_ns() / 1000000000 - st.st_mtim.tv_sec > EMPTY_SECONDS) &&
            !flock(fd, LOCK_EX | LOCK_NB))
            (void) unlinkat(dirfd(d), de->d_name, 0);
        (void) close(fd);
    }
    if (d) closedir(d);
}

/* Maps the directory's image if it exists; else creates a temporary file that load fills. Without write access the
 * model has no image. */
static int in_directory(pi__model *m, pi_error *err)
{
    char path[300];
    if (strlen(m->image.source.cache) > 200)
        return pi__fail(err, PI_EINVAL,
                        "weights-cache: the directory's name has more than 200 bytes: give a shorter one");
    if (mkdir(m->image.source.cache, 0700) && errno != EEXIST)
        return pi__fail(err, PI_EIO, "weights-cache: cannot create the directory %.200s: %s",
                        m->image.source.cache, strerror(errno));
    /* if this fails, all calls below fail as well */
    int fd = open(m->image.source.cache, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int rc = fd >= 0 ? pi__trust_dir(fd, m->image.source.cache, "weights-cache", "unset weights-cache", err)
                           : PI_OK;
    if (fd >= 0) (void) close(fd);
    if (rc) return rc;
    path_of(m, path, sizeof path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
        const char *what = adopt(m, fd, true);
        (void) close(fd);
        if (!what) return PI_OK;
        pi__logf(&m->image.source.log, PI_LOG_WARN, "weights-cache: removed %s: %s", path, what);
        (void) unlink(path);
    }
    sweep(m->image.source.cache);
    snprintf(m->image.temp, sizeof m->image.temp, "%.200s/tmp-%ld-%" PRIx64, m->image.source.cache, (long) getpid(),
             (uint64_t) pi__wall_ns());
    fd = open(m->image.temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) (void) flock(fd, LOCK_EX | LOCK_NB);
    const bool ok = fd >= 0 && take_room(m, fd) && map_fd(m, fd, true);
    if (!ok) cannot_keep(m, errno);
    if (fd >= 0 && !ok) (void) unlink(m->image.temp);
    if (ok) m->image.fd = fd;
    else {
        m->image.temp[0] = 0;
        if (fd >= 0) (void) close(fd);
    }
    return PI_OK;
}

/* Returns a backend that cannot share its part of the weights; NULL = all can. */
static const pi__backend *who_cannot(const pi__model *m)
{
    for (int32_t i = 0; i < PI__N_PLACEMENTS; i++)
        if (m->weights_size[i] && part_of(m, i) == PI__PART_NONE) return pi__backend_at(m->be, i);
    return NULL;
}

static int refuse(const pi__backend *be, pi_error *err)
{
    return pi__fail(err, PI_EUNSUPPORTED, "%.60s cannot share weights with other processes (ranks, several CPU "
                    "devices, or a driver that does not export mapped memory): leave weights-from out, "
                    "or give device cpu",
                    be->dev->describe(be));
}

int pi__weights_image_open(pi__model *m, pi_error *err)
{
    const pi__weights_source *s = &m->image.source;
    const bool from = s->from && *s->from, cache = s->cache && *s->cache;
    m->image.fd = -1;
    if (!from && !cache && !s->keep) return PI_OK;
    const pi__backend *cannot = who_cannot(m), *first = pi__backend_at(m->be, PI__AT_DEVICE);
    const bool device = part_of(m, PI__AT_DEVICE) == PI__PART_DEVICE;
    /* weights-cache is ignored for backends that cannot be cached */
    if ((cannot || device) && !from && !s->keep) return PI_OK;
    if (cannot) return refuse(cannot, err);
    m->image.n_parts = !device ? 0 : first->n_ranks > 1 ? first->n_ranks : 1;
    for (int32_t i = 0; i < PI__WEIGHTS_PARTS; i++) m->image.part[i] = -1;
    m->image.size = host_bytes(m, PI__N_REGIONS);
    name_target(m);
    int rc = make_key(m, err);
    if (rc) return rc;
    return from ? from_owner(m, err) : s->keep ? in_memory(m, err) : in_directory(m, err);
}

/* Maps the same pages again, read-only, at the same addresses. */
static bool protect(const pi__model *m, int fd)
{
    return mmap(m->image.map, m->image.size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
}

/* Seals the memory: from now on, no process can write or truncate it. Sealing requires that no writable mapping
 * exists. The kept descriptor is opened read-only, as older systems do not map a sealed file from a writable one. */
static int seal(pi__model *m, pi_error *err)
{
    pi__weights_image *im = &m->image;
    char self[40];
    snprintf(self, sizeof self, "/proc/self/fd/%d", im->fd);
    bool ok = mmap(im->map, im->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) !=
              MAP_FAILED;
    if (ok) ok = !fcntl(im->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    int fd = ok ? open(self, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return pi__fail(err, PI_EUNSUPPORTED, "sealing the packed weights failed: %s", strerror(errno));
    (void) close(im->fd);
    im->fd = fd;
    return protect(m, fd) ? PI_OK : pi__fail(err, PI_ENOMEM, "mapping the packed weights failed: %s", strerror(errno));
}

/* Renames the temporary file to its final name. The model keeps the mapped file, even if that fails or the name is
 * given to another file later. */
static int give_name(pi__model *m, pi_error *err)
{
    pi__weights_image *im = &m->image;
    char path[300];
    path_of(m, path, sizeof path);
    if (!protect(m, im->fd)) return pi__fail(err, PI_ENOMEM, "mapping the packed weights failed: %s", strerror(errno));
    if (rename(im->temp, path)) {
        cannot_keep(m, errno);
        (void) unlink(im->temp);
    }
    im->temp[0] = 0;
    (void) close(im->fd);
    im->fd = -1;
    return PI_OK;
}

int pi__weights_image_finish(pi__model *m, pi_error *err)
{
    pi__weights_image *im = &m->image;
    if (!im->map || im->complete) return PI_OK;
    header h = {.version = VERSION, .layout = PI__PACKED_LAYOUT, .key = im->key, .digest = m->digest, .size = im->size};
    memcpy(h.magic, magic, sizeof magic);
    if (*im->temp) h.data_sum = pi__hash64(im->map + PAGE, im->size - PAGE, 0);
    h.head_sum = sum_head(&h);
    memcpy(im->map, &h, sizeof h);
    int rc = *im->temp ? give_name(m, err) : seal(m, err);
    im->complete = !rc;
    return rc;
}

void pi__weights_image_close(pi__model *m)
{
    if (!m->image.size) return; /* never opened */
    unmap(m);
    close_parts(m);
    if (*m->image.temp) (void) unlink(m->image.temp);
    if (m->image.fd >= 0) (void) close(m->image.fd);
    m->image.fd = -1;
    m->image.temp[0] = 0;
}
