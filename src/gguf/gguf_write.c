/* Writing a GGUF v3.
 *
 * Metadata and tensor headers are serialized into two growing buffers. begin writes the 24 bytes of the header,
 * which needs their final counts, and then the two buffers. Data passes through a buffer of 256 KiB; long pieces
 * are written directly. Invariant: `cur` is the first incomplete tensor, `done` the number of its bytes already
 * written.
 *
 * Memory: the header's size, and the buffer. One thread at a time. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "gguf/gguf_priv.h"

enum { OUT_BUF = 256 << 10, WRITE_MAX = 1 << 30 };

typedef struct bytes { /* a growing buffer */
    uint8_t *p;
    size_t n, cap;
} bytes;

typedef struct entry { /* a key or a tensor, for the check that names are unique */
    size_t name_at;    /* offset of the name in its buffer */
    size_t name_len;   /* bytes */
    uint64_t size;     /* bytes of a tensor's data */
} entry;

struct pi__gguf_writer {
    char *path;          /* final name of the file */
    char *part;          /* name until it is complete; equals path for a device */
    bool direct;         /* path is not a regular file */
    int fd;              /* descriptor of part; -1 = not open */
    uint32_t alignment;  /* bytes that tensor data is aligned to */
    bool begun;          /* the header is written */
    pi_error failed;     /* the first failure; code PI_OK = none */
    bytes kv, ti;        /* metadata, tensor headers */
    entry *key, *tensor; /* [n_kv], [n_tensors] */
    size_t n_kv, cap_kv, n_tensors, cap_tensors;
    uint64_t offset;     /* offset of the next tensor to be put, from the start of the data */
    uint64_t written;    /* bytes written to the file, buffered bytes included */
    uint8_t *buf;        /* OUT_BUF bytes */
    size_t buf_n;        /* bytes in use */
    size_t cur;          /* tensor that receives the next data */
    uint64_t done;       /* bytes of it already written */
};

#define REMEMBER(w, rc, ...) do { if ((w)->failed.code == PI_OK) pi__fail(&(w)->failed, rc, __VA_ARGS__); } while (0)

static void fail_name(pi__gguf_writer *w, const char *what, pi__str name, const char *text)
{
    char buf[64];
    pi__str_escape(buf, sizeof buf, name);
    REMEMBER(w, PI_EINVAL, "%s '%s' %s", what, buf, text);
}

static void put_bytes(pi__gguf_writer *w, bytes *b, const void *p, size_t n)
{
    size_t total;
    if (w->failed.code != PI_OK || n == 0) return;
    if (!pi__add_ok(b->n, n, &total) || !pi__grow(&b->p, &b->cap, total, 1)) {
        pi__fail_mem(&w->failed, "the header of a GGUF");
        return;
    }
    memcpy(b->p + b->n, p, n);
    b->n = total;
}

static void put_u32(pi__gguf_writer *w, bytes *b, uint32_t v) { put_bytes(w, b, &v, sizeof v); }
static void put_u64(pi__gguf_writer *w, bytes *b, uint64_t v) { put_bytes(w, b, &v, sizeof v); }

static void put_str(pi__gguf_writer *w, bytes *b, pi__str s)
{
    put_u64(w, b, s.n);
    put_bytes(w, b, s.p, s.n);
}

/* Appends a key or tensor name, and records it for the check in begin. `what`: for example "metadata key". */
static void put_name(pi__gguf_writer *w, bytes *b, entry **list, size_t *n, size_t *cap, pi__str name, uint64_t size,
                     const char *what)
{
    if (w->failed.code != PI_OK) return;
    if (w->begun) REMEMBER(w, PI_EINVAL, "a %s after the header was written", what);
    else if (name.n == 0 || name.n > PI__GGUF_MAX_NAME) {
        REMEMBER(w, PI_EINVAL, "a %s of %zu bytes: give 1 to %d", what, name.n, PI__GGUF_MAX_NAME);
    } else if (!pi__grow(list, cap, *n + 1, sizeof **list)) pi__fail_mem(&w->failed, "the header of a GGUF");
    if (w->failed.code != PI_OK) return;
    (*list)[(*n)++] = (entry) {b->n + sizeof(uint64_t), name.n, size};
    put_str(w, b, name);
}

int pi__gguf_writer_open(pi__gguf_writer **out, const char *path, uint32_t alignment, pi_error *err)
{
    *out = NULL;
    if (alignment == 0) alignment = PI__GGUF_DEFAULT_ALIGNMENT;
    if (alignment < 8 || (alignment & (alignment - 1)) != 0) {
        return pi__fail(err, PI_EINVAL, "alignment is %u, expected a power of two, at least 8", alignment);
    }
    pi__gguf_writer *w = pi__calloc(1, sizeof *w);
    if (!w) return pi__fail_mem(err, "a GGUF writer");
    w->fd = -1;
    w->alignment = alignment;
    size_t n = strlen(path);
    w->path = pi__strdup(path);
    w->part = pi__malloc(n + 64);
    w->buf = pi__malloc(OUT_BUF);
    if (!w->path || !w->part || !w->buf) {
        pi__gguf_writer_close(w, false, NULL);
        return pi__fail_mem(err, "a GGUF writer");
    }
    struct stat st;
    w->direct = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (w->direct) {
        memcpy(w->part, path, n + 1);
        w->fd = open(path, O_WRONLY | O_CLOEXEC);
    }
    for (unsigned i = 0; !w->direct && w->fd < 0 && i < 1000; i++) {
        snprintf(w->part, n + 64, "%s.%ld.%u.part", path, (long) getpid(), i);
        w->fd = open(w->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd < 0 && errno != EEXIST) break;
    }
    if (w->fd < 0) {
        int e = errno;
        pi__gguf_writer_close(w, false, NULL);
        return pi__fail(err, e == ENOENT ? PI_ENOENT : PI_EIO, "cannot write %s: %s", path, strerror(e));
    }
    *out = w;
    return PI_OK;
}

/* -------------------------------------------------------------------------------------------------------- metadata */

static size_t value_size(int type)
{
    switch (type) {
    case PI__GGUF_U8: case PI__GGUF_I8: case PI__GGUF_BOOL: return 1;
    case PI__GGUF_U16: case PI__GGUF_I16: return 2;
    case PI__GGUF_U32: case PI__GGUF_I32: case PI__GGUF_F32: return 4;
    case PI__GGUF_U64: case PI__GGUF_I64: case PI__GGUF_F64: return 8;
    }
    return 0;
}

static void put_values(pi__gguf_writer *w, int type, uint64_t n, const void *data)
{
    size_t size = value_size(type), total;
    if (type == PI__GGUF_STR) {
        for (uint64_t i = 0; i < n && w->failed.code == PI_OK; i++) put_str(w, &w->kv, ((const pi__str *) data)[i]);
    } else if (n > SIZE_MAX || !pi__mul_ok((size_t) n, size, &total)) {
        pi__fail_mem(&w->failed, "the header of a GGUF");
    } else {
        put_bytes(w, &w->kv, data, total);
    }
}

static void put_any(pi__gguf_writer *w, pi__str key, bool array, int type, uint64_t n, const void *data)
{
    static const char own[] = "general.alignment";
    if (key.n == sizeof own - 1 && memcmp(key.p, own, key.n) == 0) return;
    if (type != PI__GGUF_STR && value_size(type) == 0) fail_name(w, "metadata key", key, "has an unknown type");
    put_name(w, &w->kv, &w->key, &w->n_kv, &w->cap_kv, key, 0, "metadata key");
    if (array) put_u32(w, &w->kv, PI__GGUF_ARR);
    put_u32(w, &w->kv, (uint32_t) type);
    if (array) put_u64(w, &w->kv, n);
    put_values(w, type, n, data);
}

void pi__gguf_put(pi__gguf_writer *w, const char *key, int type, const void *scalar)
{
    put_any(w, (pi__str) {key, strlen(key)}, false, type, 1, scalar);
}

void pi__gguf_put_arr(pi__gguf_writer *w, const char *key, int arr_type, uint64_t n, const void *data)
{
    put_any(w, (pi__str) {key, strlen(key)}, true, arr_type, n, data);
}

void pi__gguf_put_kv(pi__gguf_writer *w, const pi__gguf_kv *kv)
{
    put_any(w, kv->key, kv->type == PI__GGUF_ARR, kv->arr_type, kv->n, kv->strs ? kv->strs : kv->data);
}

void pi__gguf_put_tensor(pi__gguf_writer *w, const char *name, int type, int n_dims, const int64_t *ne)
{
    const pi__type_info *info = pi__type_info_of(type);
    uint64_t count = 1, size = 0, next = 0;
    bool ok = info && n_dims >= 1 && n_dims <= 4;
    for (int d = 0; ok && d < n_dims; d++) {
        ok = ne[d] > 0 && !__builtin_mul_overflow(count, (uint64_t) ne[d], &count) && count <= INT64_MAX;
    }
    ok = ok && ne[0] % info->blck_size == 0 &&
         !__builtin_mul_overflow(count / info->blck_size, (uint64_t) info->type_size, &size) &&
         !__builtin_add_overflow(w->offset, size, &next) && !__builtin_add_overflow(next, w->alignment - 1, &next);
    pi__str str = {name, strlen(name)};
    if (!ok) fail_name(w, "tensor", str, info ? "has a shape that its type cannot hold" : "has an unknown type");
    put_name(w, &w->ti, &w->tensor, &w->n_tensors, &w->cap_tensors, str, size, "tensor name");
    if (w->failed.code != PI_OK) return;
    put_u32(w, &w->ti, (uint32_t) n_dims);
    for (int d = 0; d < n_dims; d++) put_u64(w, &w->ti, (uint64_t) ne[d]);
    put_u32(w, &w->ti, (uint32_t) type);
    put_u64(w, &w->ti, w->offset);
    w->offset = next & ~(uint64_t) (w->alignment - 1);
}

/* ------------------------------------------------------------------------------------------------------------ data */

static void write_all(pi__gguf_writer *w, const uint8_t *p, size_t n)
{
    while (n > 0 && w->failed.code == PI_OK) {
        ssize_t got = write(w->fd, p, n < WRITE_MAX ? n : WRITE_MAX);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            pi__fail(&w->failed, PI_EIO, "cannot write %.120s: %s", w->path,
                     got < 0 ? strerror(errno) : "no bytes were written");
            return;
        }
        p += got;
        n -= (size_t) got;
    }
}

static void flush(pi__gguf_writer *w)
{
    write_all(w, w->buf, w->buf_n);
    w->buf_n = 0;
}

static void out(pi__gguf_writer *w, const void *p, size_t n)
{
    if (n == 0) return;
    if (n > OUT_BUF - w->buf_n) flush(w);
    if (n >= OUT_BUF) {
        write_all(w, p, n);
    } else {
        memcpy(w->buf + w->buf_n, p, n);
        w->buf_n += n;
    }
    w->written += n;
}

static void pad(pi__gguf_writer *w)
{
    static const uint8_t zeros[256];
    while (w->written % w->alignment != 0) {
        size_t n = w->alignment - (size_t) (w->written % w->alignment);
        out(w, zeros, n < sizeof zeros ? n : sizeof zeros);
    }
}

/* Fails if a name occurs twice in b. */
static void check_unique(pi__gguf_writer *w, const bytes *b, const entry *list, size_t n, const char *what)
{
    if (w->failed.code != PI_OK || n == 0) return;
    pi__strmap map = {0};
    pi__str *name = pi__calloc(n, sizeof *name);
    size_t dup = 0;
    int rc = name ? PI_OK : PI_ENOMEM;
    for (size_t i = 0; i < n && rc == PI_OK; i++)
        name[i] = (pi__str) {(const char *) b->p + list[i].name_at, list[i].name_len};
    if (rc == PI_OK) rc = pi__strmap_build(&map, name, sizeof *name, n, &dup);
    if (rc == PI_ENOMEM) pi__fail_mem(&w->failed, "the index of a GGUF");
    else if (rc != PI_OK) {
        fail_name(w, what, name[dup], "was added twice");
    }
    pi__strmap_free(&map);
    pi__free(name);
}

static int report(const pi__gguf_writer *w, pi_error *err)
{
    if (err && w->failed.code != PI_OK) *err = w->failed;
    return w->failed.code;
}

int pi__gguf_writer_begin(pi__gguf_writer *w, pi_error *err)
{
    static const char alignment_key[] = "general.alignment";
    if (w->begun) REMEMBER(w, PI_EINVAL, "the header of %.120s was already written", w->path);
    check_unique(w, &w->kv, w->key, w->n_kv, "metadata key");
    check_unique(w, &w->ti, w->tensor, w->n_tensors, "tensor");
    if (w->failed.code != PI_OK) return report(w, err);
    w->begun = true;
    bool own = w->alignment != PI__GGUF_DEFAULT_ALIGNMENT;
    uint32_t version = 3, type = PI__GGUF_U32;
    uint64_t n_tensors = w->n_tensors, n_kv = w->n_kv + own, len = sizeof alignment_key - 1;
    out(w, "GGUF", 4);
    out(w, &version, sizeof version);
    out(w, &n_tensors, sizeof n_tensors);
    out(w, &n_kv, sizeof n_kv);
    if (own) {
        out(w, &len, sizeof len);
        out(w, alignment_key, sizeof alignment_key - 1);
        out(w, &type, sizeof type);
        out(w, &w->alignment, sizeof w->alignment);
    }
    out(w, w->kv.p, w->kv.n);
    out(w, w->ti.p, w->ti.n);
    if (w->n_tensors > 0) pad(w);
    return report(w, err);
}

int pi__gguf_writer_data(pi__gguf_writer *w, const void *data, size_t n, pi_error *err)
{
    if (!w->begun) REMEMBER(w, PI_EINVAL, "tensor data before the header of %.120s", w->path);
    const uint8_t *p = data;
    while (n > 0 && w->failed.code == PI_OK) {
        if (w->cur == w->n_tensors) {
            REMEMBER(w, PI_EINVAL, "%zu bytes more than the tensors of %.120s have", n, w->path);
            break;
        }
        uint64_t rest = w->tensor[w->cur].size - w->done;
        size_t take = n < rest ? n : (size_t) rest;
        out(w, p, take);
        p += take;
        n -= take;
        w->done += take;
        if (w->done == w->tensor[w->cur].size) {
            pad(w);
            w->cur++;
            w->done = 0;
        }
    }
    return report(w, err);
}

int pi__gguf_writer_close(pi__gguf_writer *w, bool commit, pi_error *err)
{
    if (!w) return PI_OK;
    if (commit && !w->begun) REMEMBER(w, PI_EINVAL, "%.120s was closed before its header was written", w->path);
    if (commit && w->cur < w->n_tensors) {
        REMEMBER(w, PI_EINVAL, "%.120s: only %zu of %zu tensors were written", w->path, w->cur, w->n_tensors);
    }
    if (commit) flush(w);
    if (w->fd >= 0 && close(w->fd) != 0 && commit)
        REMEMBER(w, PI_EIO, "cannot write %.120s: %s", w->path, strerror(errno));
    bool keep = commit && w->failed.code == PI_OK;
    if (keep && !w->direct && rename(w->part, w->path) != 0) {
        REMEMBER(w, PI_EIO, "cannot rename %.120s: %s", w->part, strerror(errno));
        keep = false;
    }
    if (!keep && !w->direct && w->fd >= 0) unlink(w->part);
    int rc = commit ? report(w, err) : PI_OK;
    pi__free(w->path);
    pi__free(w->part);
    pi__free(w->buf);
    pi__free(w->kv.p);
    pi__free(w->ti.p);
    pi__free(w->key);
    pi__free(w->tensor);
    pi__free(w);
    return rc;
}
