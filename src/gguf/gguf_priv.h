/* Internals of the GGUF reader: files, metadata, the string index, error texts. */
#ifndef PI__GGUF_PRIV_H
#define PI__GGUF_PRIV_H

#include "base/alloc.h"
#include "base/error.h"
#include "gguf/gguf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are read in place: little-endian");

enum {
    PI__GGUF_HEAD = 24,           /* bytes: magic, version, tensor count, metadata count */
    PI__GGUF_DEFAULT_ALIGNMENT = 32,
    PI__GGUF_MAX_NAME = 1 << 16,  /* max bytes of a key or a tensor name */
    PI__GGUF_MAX_STRS = 1 << 26,  /* max strings in an array, far above any vocabulary */
    PI__GGUF_MAX_SPLITS = 65535   /* split.count is a u16 in the format */
};

/* ---- one file and its bytes (gguf_map.c) */

enum pi__gguf_image { PI__IMAGE_NONE, PI__IMAGE_MAPPED, PI__IMAGE_OWNED, PI__IMAGE_BORROWED };

typedef struct pi__gguf_file {
    const uint8_t *p;    /* size bytes; with PI__LOAD_DIO used only for the header, not for tensor data */
    uint64_t size;       /* bytes in the file */
    int64_t time;        /* last modification, ns since 1970 */
    uint64_t data_start; /* start of tensor data; tensor offsets in the file are relative to it */
    int image;           /* enum pi__gguf_image: kind of the memory at p, which determines how to release it */
    int mode;            /* enum pi__load_mode */
    int fd;              /* buffered descriptor; -1 = closed */
    int fd_direct;       /* O_DIRECT descriptor; -1 = not supported by the file system */
    char label[48];      /* file name for messages, truncated at the front */
} pi__gguf_file;

/* Opens a regular file and reads its size. On failure nothing is left open. */
int pi__gguf_file_open(pi__gguf_file *f, const char *path, pi_error *err);
/* Makes f->p valid for the load mode. p receives the bytes copied; NULL = no progress reports. The caller closes f
 * in any case. */
int pi__gguf_file_load(pi__gguf_file *f, int mode, pi__progress *p, pi_error *err);
/* Uses a file image in memory that outlives f. */
void pi__gguf_file_borrow(pi__gguf_file *f, const void *p, size_t n);
/* Reads n bytes at off; the caller has checked them against the size. Any thread. */
int pi__gguf_file_read(const pi__gguf_file *f, uint64_t off, void *dst, size_t n, pi_error *err);
void pi__gguf_file_close(pi__gguf_file *f);
/* Writes the last component of a path, truncated at the front to fit. */
void pi__gguf_label(char *dst, size_t cap, const char *path);

/* ---- strings -> index (gguf_index.c) */

/* A map from strings to indices of n items that begin with a pi__str. Open addressing over a keyed hash: a hostile
 * file cannot choose strings that collide. The map stores only indices; the items must not move. */
typedef struct pi__strmap {
    uint32_t *slot;    /* item + 1; 0 = empty */
    size_t mask;       /* slots - 1, a power of two minus one */
    uint64_t key[2];   /* random key of the hash */
    const char *items; /* first item */
    size_t stride;     /* bytes between items */
} pi__strmap;

/* Builds the map of n items. Returns PI_OK, PI_ENOMEM, or PI_EINVAL if two items are equal, with *dup the index of
 * the later one. The caller frees m in any case. */
int pi__strmap_build(pi__strmap *m, const void *items, size_t stride, size_t n, size_t *dup);
/* Returns the index of the item with this string of n bytes; -1 = absent. */
int64_t pi__strmap_find(const pi__strmap *m, const char *s, size_t n);
void pi__strmap_free(pi__strmap *m);

/* ---- metadata (gguf_read.c, gguf_get.c) */

typedef struct pi__gguf_meta {
    pi__gguf_kv *kv;  /* [n] in file order */
    size_t n;         /* entries */
    pi__strmap index; /* by key */
} pi__gguf_meta;

const pi__gguf_kv *pi__gguf_meta_find(const pi__gguf_meta *m, const char *key);
/* pi__gguf_get_u32 for the metadata of any file. */
int pi__gguf_meta_u32(const pi__gguf_meta *m, const pi__gguf_file *f, const char *key, uint32_t *out, uint32_t def,
                      pi_error *err);

/* A metadata entry set by the user (gguf_override.c). */
typedef struct pi__gguf_override {
    struct pi__gguf_override *next; /* NULL = last */
    union {
        int64_t i;
        double f;
        uint8_t b;
    };                     /* target of pi__gguf_kv.data */
    pi__str s;             /* value of a string */
    int32_t type;          /* enum pi__gguf_type */
    char text[];           /* the rule; the key and a string value point into it */
} pi__gguf_override;

struct pi__gguf {
    uint32_t version;      /* GGUF version of the first file */
    uint32_t alignment;    /* alignment of tensor data in the first file */
    pi__gguf_file *file;   /* [n_files] */
    size_t n_files;        /* open files */
    size_t cap_files;      /* entries allocated */
    pi__gguf_meta meta;    /* metadata of the first file */
    pi__tensor *tensor;    /* [n_tensors] of all files, in order */
    size_t n_tensors;      /* tensors */
    size_t cap_tensors;    /* entries allocated */
    pi__strmap by_name;    /* index over tensor[] */
    pi__gguf_override *overrides; /* list, newest first */
};

/* Checks the magic and version in the first n bytes of a file, before anything else is read, and sets *version. */
int pi__gguf_check_head(const pi__gguf_file *f, const uint8_t *head, size_t n, uint32_t *version, pi_error *err);
/* Parses f, with loaded bytes and a checked header, as file number `file` of g, and adds its tensors to g. m
 * receives its metadata; the caller frees m in any case. */
int pi__gguf_parse(pi__gguf *g, pi__gguf_file *f, int32_t file, pi__gguf_meta *m, pi_error *err);
void pi__gguf_meta_free(pi__gguf_meta *m);
void pi__gguf_free_overrides(pi__gguf *g);

/* ---- errors (gguf_error.c) */

/* The subject of an error. */
typedef struct pi__gguf_where {
    const char *field; /* "type of metadata" */
    const pi__str *name; /* key or tensor that it belongs to; NULL = none */
    uint64_t elem;     /* element of an array; UINT64_MAX = none */
} pi__gguf_where;

/* Formats "FILE: FIELD 'NAME'[ELEM] at offset OFF: TEXT"; returns code. */
int pi__gguf_fail(const pi__gguf_file *f, uint64_t off, const pi__gguf_where *w, pi_error *err, int code,
                  const char *fmt, ...) __attribute__((format(printf, 6, 7)));

#endif
