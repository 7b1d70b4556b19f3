/* Files of a GGUF: opening, the three load modes, reading tensor data.
 *
 * mmap: the file is mapped; its pages belong to the page cache. read: the file is copied into memory of the
 * library. dio: the header is mapped (a few MiB of pages at most are touched); tensor data bypasses the page cache
 * if the file system supports that. If a mapped file is truncated while in use, the process receives SIGBUS, as
 * with any mapping: use mode read for files that may change.
 *
 * Memory: mode read allocates the file's size by pi__map; dio allocates a bounce buffer during a call. Any thread
 * may read from an open file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/gguf_priv.h"

enum {
    DIO_ALIGN = 4096,       /* for offsets, lengths and addresses; accepted by every device */
    DIO_CHUNK = 4 << 20,    /* bytes of the bounce buffer */
    READ_CHUNK = 16 << 20   /* bytes of one read(2): bounds the time until a cancel takes effect on a slow disk */
};

void pi__gguf_label(char *dst, size_t cap, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash && slash[1] ? slash + 1 : path;
    size_t n = strlen(base);
    bool cut = n >= cap;
    if (cut) {
        base += n - (cap - 4);
        n = cap - 4;
        memcpy(dst, "...", 3);
    }
    memcpy(dst + (cut ? 3 : 0), base, n + 1);
    for (char *c = dst; *c; c++) if ((unsigned char) *c < 0x20 || *c == 0x7f) *c = '?';
}

int pi__gguf_file_open(pi__gguf_file *f, const char *path, pi_error *err)
{
    *f = (pi__gguf_file) {.fd = -1, .fd_direct = -1};
    pi__gguf_label(f->label, sizeof f->label, path);
    do f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block here */
    while (f->fd < 0 && errno == EINTR);
    struct stat st;
    if (f->fd < 0 || fstat(f->fd, &st) != 0) {
        int e = errno;
        pi__gguf_file_close(f);
        if (e == ENOENT || e == ENOTDIR) return pi__fail(err, PI_ENOENT, "no such file: %s", path);
        if (e == ENAMETOOLONG || e == ELOOP)
            return pi__fail(err, PI_EINVAL, "%s: cannot open: %s", f->label, strerror(e));
        return pi__fail(err, PI_EIO, "%s: cannot open: %s", f->label, strerror(e));
    }
    if (!S_ISREG(st.st_mode)) {
        pi__gguf_file_close(f);
        return pi__fail(err, PI_EINVAL, "%s is %s, not a file: name the .gguf file", f->label,
                        S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
    }
    f->size = (uint64_t) st.st_size;
    f->time = (int64_t) st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (f->size > SIZE_MAX / 2) {
        pi__gguf_file_close(f);
        return pi__fail(err, PI_EUNSUPPORTED, "%s: %llu bytes exceed this machine's address space", f->label,
                        (unsigned long long) f->size);
    }
    return PI_OK;
}

/* Reads all n bytes at off through the page cache. p receives the bytes read; NULL = no progress reports. */
static int read_buffered(const pi__gguf_file *f, uint64_t off, void *dst, size_t n, pi__progress *p, pi_error *err)
{
    for (size_t done = 0; done < n;) {
        size_t want = n - done < READ_CHUNK ? n - done : READ_CHUNK;
        ssize_t got = pread(f->fd, (char *) dst + done, want, (off_t) (off + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return pi__fail(err, PI_EIO, "%s: reading at offset %llu failed: %s", f->label,
                            (unsigned long long) (off + done), strerror(errno));
        }
        if (got == 0) {
            return pi__fail(err, PI_EIO, "%s: the file ends at offset %llu, but had %llu bytes when it was opened",
                            f->label, (unsigned long long) (off + done), (unsigned long long) f->size);
        }
        done += (size_t) got;
        int rc = pi__progress_add(p, (uint64_t) got, err);
        if (rc) return rc;
    }
    return PI_OK;
}

static int load_mapped(pi__gguf_file *f, pi_error *err)
{
    void *p = mmap(NULL, (size_t) f->size, PROT_READ, MAP_PRIVATE, f->fd, 0);
    if (p == MAP_FAILED) {
        return pi__fail(err, errno == ENOMEM ? PI_ENOMEM : PI_EIO,
                        "%s: cannot map the file: %s: use load mode \"read\"", f->label, strerror(errno));
    }
    f->p = p;
    f->image = PI__IMAGE_MAPPED;
    return PI_OK;
}

static int load_copy(pi__gguf_file *f, pi__progress *progress, pi_error *err)
{
    void *p = pi__map((size_t) f->size);
    if (!p) {
        return pi__fail(err, PI_ENOMEM, "%s: no memory for its %llu bytes: use load mode \"mmap\"", f->label,
                        (unsigned long long) f->size);
    }
    f->p = p;
    f->image = PI__IMAGE_OWNED;
    int rc = pi__progress_begin(progress, PI_LOAD_READ, f->size, err);
    return rc ? rc : read_buffered(f, 0, p, (size_t) f->size, progress, err);
}

/* Opens the file again without the page cache. /proc/self/fd refers to the same inode as fd, even if the path has
 * changed. */
static void open_direct(pi__gguf_file *f)
{
#ifdef O_DIRECT
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", f->fd);
    f->fd_direct = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
#endif
}

int pi__gguf_file_load(pi__gguf_file *f, int mode, pi__progress *p, pi_error *err)
{
    f->mode = mode;
    int rc = mode == PI__LOAD_READ ? load_copy(f, p, err) : load_mapped(f, err);
    if (rc == PI_OK && mode == PI__LOAD_DIO) {
        open_direct(f);
    } else if (rc == PI_OK) {
        close(f->fd);
        f->fd = -1;
    }
    return rc;
}

void pi__gguf_file_borrow(pi__gguf_file *f, const void *p, size_t n)
{
    *f = (pi__gguf_file) {.p = p, .size = n, .image = PI__IMAGE_BORROWED, .fd = -1, .fd_direct = -1};
    pi__gguf_label(f->label, sizeof f->label, "(memory)");
}

/* Reads up to n bytes at off by O_DIRECT, through an aligned buffer; returns the bytes copied. If these are fewer
 * than n, the caller continues with read_buffered, which also reports errors. */
static size_t read_direct(const pi__gguf_file *f, uint64_t off, void *dst, size_t n)
{
    size_t cap = n / DIO_ALIGN * DIO_ALIGN + 2 * DIO_ALIGN, done = 0;
    if (cap > DIO_CHUNK) cap = DIO_CHUNK;
    char *buf = pi__map(cap);
    if (!buf) return 0;
    while (done < n) {
        size_t skip = (size_t) ((off + done) % DIO_ALIGN);
        size_t want = n - done < cap - skip ? (skip + (n - done) + DIO_ALIGN - 1) / DIO_ALIGN * DIO_ALIGN : cap;
        if (want > cap) want = cap;
        ssize_t got = pread(f->fd_direct, buf, want, (off_t) (off + done - skip));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 || (size_t) got <= skip) break;
        size_t take = (size_t) got - skip < n - done ? (size_t) got - skip : n - done;
        memcpy((char *) dst + done, buf + skip, take);
        done += take;
    }
    pi__unmap(buf, cap);
    return done;
}

int pi__gguf_file_read(const pi__gguf_file *f, uint64_t off, void *dst, size_t n, pi_error *err)
{
    if (n == 0) return PI_OK;
    if (f->fd < 0) {
        memcpy(dst, f->p + off, n);
        return PI_OK;
    }
    size_t done = f->fd_direct >= 0 ? read_direct(f, off, dst, n) : 0;
    if (done == n) return PI_OK;
    int rc = read_buffered(f, off + done, (char *) dst + done, n - done, NULL, err);
    if (f->mode == PI__LOAD_DIO) posix_fadvise(f->fd, (off_t) off, (off_t) n, POSIX_FADV_DONTNEED);
    return rc;
}

void pi__gguf_file_close(pi__gguf_file *f)
{
    if (f->image == PI__IMAGE_MAPPED) munmap((void *) (uintptr_t) f->p, (size_t) f->size);
    if (f->image == PI__IMAGE_OWNED) pi__unmap((void *) (uintptr_t) f->p, (size_t) f->size);
    if (f->fd >= 0) close(f->fd);
    if (f->fd_direct >= 0) close(f->fd_direct);
    f->p = NULL;
    f->image = PI__IMAGE_NONE;
    f->fd = f->fd_direct = -1;
}
