/* Internals of the GGUF reader: files, metadata, the string index, error texts. */
#ifndef PI__GGUF_PRIV_H
#define PI__GGUF_PRIV_H

#include "base/alloc.h"
#include "base/error.h"
#include "gguf/gguf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values of a GGUF are read as they lie: little-endian");

enum {
    PI__GGUF_HEAD = 24,           /* bytes: magic, version, tensor count, metadata count */
    PI__GGUF_DEFAULT_ALIGNMENT = 32,
    PI__GGUF_MAX_NAME = 1 << 16,  /* bytes of a key or a tensor's name */
    PI__GGUF_MAX_STRS = 1 << 26,  /* strings in an array: far beyond any vocabulary */
    PI__GGUF_MAX_SPLITS = 65535   /* split.count is a u16 in the format */
};

/* ---- one file and its bytes (gguf_map.c) */

enum pi__gguf_image { PI__IMAGE_NONE, PI__IMAGE_MAPPED, PI__IMAGE_OWNED, PI__IMAGE_BORROWED };

typedef struct pi__gguf_file {
    const uint8_t *p;    /* size bytes; with dio only for the header: tensor bytes are not read through it */
    uint64_t size;       /* bytes in the file */
    int64_t time;        /* of its last change, ns since 1970 */
    uint64_t data_start; /* where tensor data begins; tensor offsets in the file count from here */
    int image;           /* enum pi__gguf_image: how p is given back */
    int mode;            /* enum pi__load_mode */
    int fd;              /* buffered descriptor, -1 when not needed any more */
    int fd_direct;       /* O_DIRECT descriptor, -1: the file system has none */
    char label[48];      /* file name for messages, cut in front */
} pi__gguf_file;

/* Opens a regular file and learns its size. On failure nothing is left to close. */
int pi__gguf_file_open(pi__gguf_file *f, const char *path, pi_error *err);
/* Makes f->p valid as mode says; p (or NULL) is told of bytes copied. The caller closes f in any case. */
int pi__gguf_file_load(pi__gguf_file *f, int mode, pi__progress *p, pi_error *err);
/* A file image in memory that outlives f. */
void pi__gguf_file_borrow(pi__gguf_file *f, const void *p, size_t n);
/* n bytes at off, which the caller checked against the size. Any thread. */
int pi__gguf_file_read(const pi__gguf_file *f, uint64_t off, void *dst, size_t n, pi_error *err);
void pi__gguf_file_close(pi__gguf_file *f);
/* The last part of a path, cut in front to fit. */
void pi__gguf_label(char *dst, size_t cap, const char *path);

/* ---- strings -> index (gguf_index.c) */

/* Finds among n items, each of which begins with a pi__str. Open addressing over a keyed hash: a hostile file cannot
 * choose strings that collide. Holds positions only; the items must stay where they are. */
typedef struct pi__strmap {
    uint32_t *slot;    /* item + 1, 0: empty */
    size_t mask;       /* slots - 1, a power of two minus one */
    uint64_t key[2];   /* of the hash, random */
    const char *items; /* first item */
    size_t stride;     /* bytes an item */
} pi__strmap;

/* PI_OK, PI_ENOMEM, or PI_EINVAL with *dup the later one of two equal items. Free in any case. */
int pi__strmap_build(pi__strmap *m, const void *items, size_t stride, size_t n, size_t *dup);
/* -1: absent. */
int64_t pi__strmap_find(const pi__strmap *m, const char *s, size_t n);
void pi__strmap_free(pi__strmap *m);

/* ---- metadata (gguf_read.c, gguf_get.c) */

typedef struct pi__gguf_meta {
    pi__gguf_kv *kv;  /* n of them, in the order of the file */
    size_t n;         /* entries */
    pi__strmap index; /* by key */
} pi__gguf_meta;

const pi__gguf_kv *pi__gguf_meta_find(const pi__gguf_meta *m, const char *key);
/* pi__gguf_get_u32 on metadata of any file. */
int pi__gguf_meta_u32(const pi__gguf_meta *m, const pi__gguf_file *f, const char *key, uint32_t *out, uint32_t def,
                      pi_error *err);

/* Metadata that was set over the file's (gguf_override.c). */
typedef struct pi__gguf_override {
    struct pi__gguf_override *next; /* or NULL */
    union {
        int64_t i;
        double f;
        uint8_t b;
    };                     /* what pi__gguf_kv.data points to */
    pi__str s;             /* of a string */
    int32_t type;          /* enum pi__gguf_type */
    char text[];           /* as given: the key, and a string's bytes, lie in it */
} pi__gguf_override;

struct pi__gguf {
    uint32_t version;      /* of the first file */
    uint32_t alignment;    /* of the first file */
    pi__gguf_file *file;   /* n_files of them */
    size_t n_files;        /* files open */
    size_t cap_files;      /* entries allocated */
    pi__gguf_meta meta;    /* of the first file */
    pi__tensor *tensor;    /* of all files, in order */
    size_t n_tensors;      /* tensors */
    size_t cap_tensors;    /* entries allocated */
    pi__strmap by_name;    /* over tensor[] */
    pi__gguf_override *overrides; /* the last one first */
};

/* The first n bytes of a file: is it one that this reader knows at all? Before anything else is read of it. */
int pi__gguf_check_head(const pi__gguf_file *f, const uint8_t *head, size_t n, uint32_t *version, pi_error *err);
/* Parses f, whose bytes are there and whose head was checked, as number `file` of g: its tensors are added to g. m gets
 * its metadata and is to be freed in any case. */
int pi__gguf_parse(pi__gguf *g, pi__gguf_file *f, int32_t file, pi__gguf_meta *m, pi_error *err);
void pi__gguf_meta_free(pi__gguf_meta *m);
void pi__gguf_free_overrides(pi__gguf *g);

/* ---- errors (gguf_error.c) */

/* The subject of an error. */
typedef struct pi__gguf_where {
    const char *field; /* "type of metadata" */
    const pi__str *name; /* key or tensor it belongs to, NULL: none */
    uint64_t elem;     /* element of an array, UINT64_MAX: not one */
} pi__gguf_where;

/* "FILE: FIELD 'NAME'[ELEM] at offset OFF: TEXT"; returns code. */
int pi__gguf_fail(const pi__gguf_file *f, uint64_t off, const pi__gguf_where *w, pi_error *err, int code,
                  const char *fmt, ...) __attribute__((format(printf, 6, 7)));

#endif
