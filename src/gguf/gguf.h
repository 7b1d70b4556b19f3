/* GGUF reader (v2, v3, little-endian), for one file or splits.
 *
 * All data in the file is hostile until checked. Each offset, size, count and string is compared with the file's
 * length in overflow-safe arithmetic before it is used. No allocation is sized by a count that the remaining bytes
 * could not hold. An error names the field, the file offset and the expected value. A reader is immutable once
 * open: any number of threads may use it. */
#ifndef PI__GGUF_H
#define PI__GGUF_H

#include "base/progress.h"
#include "pagedinfer.h"

enum pi__gguf_type { /* value types of metadata, as in the format */
    PI__GGUF_U8, PI__GGUF_I8, PI__GGUF_U16, PI__GGUF_I16, PI__GGUF_U32, PI__GGUF_I32, PI__GGUF_F32, PI__GGUF_BOOL,
    PI__GGUF_STR, PI__GGUF_ARR, PI__GGUF_U64, PI__GGUF_I64, PI__GGUF_F64, PI__GGUF_N_TYPES
};

typedef struct pi__str { /* bytes in the file image, not NUL-terminated */
    const char *p;
    size_t n;
} pi__str;

typedef struct pi__gguf_kv {
    pi__str key;       /* unique in the file */
    int32_t type;      /* enum pi__gguf_type */
    int32_t arr_type;  /* element type of an array, never PI__GGUF_ARR (nested arrays are refused) */
    uint64_t n;        /* elements of an array; 1 for a scalar */
    const void *data;  /* the value in the file: numbers are little-endian, maybe unaligned; for strings use strs */
    pi__str *strs;     /* elements of a string or string array; else NULL */
} pi__gguf_kv;

typedef struct pi__tensor {
    pi__str name;      /* unique across splits */
    char cname[128];   /* name, NUL-terminated and truncated */
    int32_t type;      /* enum pi__type (formats.h) */
    int32_t n_dims;    /* 1..4 (a tensor without dimensions in the file has one dimension of 1) */
    int64_t ne[4];     /* elements per dimension, at least 1, ne[0] contiguous; unused dimensions are 1 */
    uint64_t offset;   /* bytes from the start of the tensor's file; a multiple of 8 */
    uint64_t size;     /* bytes */
    int32_t file;      /* split number */
} pi__tensor;

enum pi__load_mode { PI__LOAD_MMAP, PI__LOAD_READ, PI__LOAD_DIO };

typedef struct pi__gguf pi__gguf;

/* Opens path. If its name has the usual form for splits (-00001-of-00003.gguf) and split.count > 1, also opens all
 * other splits. */
int pi__gguf_open(pi__gguf **out, const char *path, int load_mode, pi_error *err);
/* Likewise. p receives the bytes of each file that is copied into memory; NULL = no progress reports. */
int pi__gguf_open_with(pi__gguf **out, const char *path, int load_mode, pi__progress *p, pi_error *err);
/* Opens a file image that is valid until close; a single file, for tests and fuzzers. */
int pi__gguf_open_memory(pi__gguf **out, const void *p, size_t n, pi_error *err);
void pi__gguf_close(pi__gguf *g);
/* Sets a metadata entry by the rule "KEY=TYPE:VALUE", TYPE int, float, bool or str: replaces the file's entry or
 * adds one. Must be called before other code uses g, and before pointers to metadata are taken. Returns PI_EINVAL
 * for a malformed rule. */
int pi__gguf_override_kv(pi__gguf *g, const char *rule, pi_error *err);

uint32_t pi__gguf_version(const pi__gguf *g);
uint32_t pi__gguf_alignment(const pi__gguf *g);
int32_t pi__gguf_n_files(const pi__gguf *g);
uint64_t pi__gguf_file_size(const pi__gguf *g, int32_t file);
/* last modification, ns since 1970; 0 = an image in memory */
int64_t pi__gguf_file_time(const pi__gguf *g, int32_t file);
size_t pi__gguf_n_kv(const pi__gguf *g); /* entries of the first file */
const pi__gguf_kv *pi__gguf_kv_at(const pi__gguf *g, size_t i);
/* Returns NULL if the key is absent. O(1). */
const pi__gguf_kv *pi__gguf_find(const pi__gguf *g, const char *key);

/* Returns the name, for example "u32"; "?" for a number that is not in the enum. */
const char *pi__gguf_type_name(int32_t type);
/* Writes s as readable text: quotes, control characters and invalid UTF-8 are escaped. The text is truncated with
 * "..." to fit cap bytes with the final NUL. Returns its length. */
size_t pi__str_escape(char *dst, size_t cap, pi__str s);

/* Read a scalar and convert it; *out is def if the key is absent. An integer may have any integer type (or bool) if its
 * value fits. Return PI_EFORMAT if the type or the value does not fit; err names the key, the type found and the
 * expected range. */
int pi__gguf_get_u32(const pi__gguf *g, const char *key, uint32_t *out, uint32_t def, pi_error *err);
/* Accepts any number type. */
int pi__gguf_get_f32(const pi__gguf *g, const char *key, float *out, float def, pi_error *err);
/* Accepts bool, or an integer that is 0 or 1. */
int pi__gguf_get_bool(const pi__gguf *g, const char *key, bool *out, bool def, pi_error *err);
/* *out.p is NULL if the key is absent. */
int pi__gguf_get_str(const pi__gguf *g, const char *key, pi__str *out, pi_error *err);
/* Return element i of an array (i = 0 for a scalar). The caller has checked i < kv->n and the element type. */
uint64_t pi__gguf_elem_u64(const pi__gguf_kv *kv, uint64_t i);
int64_t pi__gguf_elem_i64(const pi__gguf_kv *kv, uint64_t i);
double pi__gguf_elem_f64(const pi__gguf_kv *kv, uint64_t i); /* converts from any number type */
pi__str pi__gguf_elem_str(const pi__gguf_kv *kv, uint64_t i);

/* ---- metadata as text for other programs (gguf_text.c) */

/* Text output to the cap bytes at p, truncated there; n counts all bytes written. No final NUL. */
typedef struct pi__sink {
    char *p;
    size_t cap, n;
} pi__sink;
void pi__sink_add(pi__sink *t, const char *s, size_t n);
void pi__sink_puts(pi__sink *t, const char *s);
/* Writes s as a JSON string; bytes that are not UTF-8 become U+FFFD. */
void pi__sink_json(pi__sink *t, pi__str s);
/* Writes kv's value to t. An array is written as JSON, up to its first `most` elements. A scalar is written as JSON
 * if json, else as plain text. */
void pi__gguf_value_text(pi__sink *t, const pi__gguf_kv *kv, uint64_t most, bool json);

/* A copy of all metadata in one allocation (pi__free). Its strs are NULL: use only pi__gguf_value_text. */
typedef struct pi__gguf_copy {
    size_t n;         /* entries */
    pi__gguf_kv *kv;  /* [n] after this struct, in file order */
} pi__gguf_copy;
pi__gguf_copy *pi__gguf_copy_of(const pi__gguf *g); /* NULL = out of memory */
const pi__gguf_kv *pi__gguf_copy_find(const pi__gguf_copy *c, const char *key); /* NULL if absent */

size_t pi__gguf_n_tensors(const pi__gguf *g); /* tensors of all splits */
const pi__tensor *pi__gguf_tensor_at(const pi__gguf *g, size_t i);
const pi__tensor *pi__gguf_find_tensor(const pi__gguf *g, const char *name); /* NULL if absent; O(1) */
/* Returns N of a name "blk.N.REST" or "enc.blk.N.REST" (encoders of T5), at most 999999; -1 for other names. *rest
 * receives REST; NULL = not needed. */
int32_t pi__gguf_layer(const char *name, const char **rest);

/* Returns the tensor's bytes if the file is mapped or was read into memory; NULL with PI__LOAD_DIO (use
 * pi__gguf_read). */
const void *pi__gguf_tensor_data(const pi__gguf *g, const pi__tensor *t);
/* Copies n bytes from offset off of the tensor, in every load mode. Returns PI_EIO or PI_EINVAL on failure. */
int pi__gguf_read(const pi__gguf *g, const pi__tensor *t, uint64_t off, void *dst, size_t n, pi_error *err);
/* Releases n bytes of the tensor from off, which the caller has copied: a mapped file's pages leave resident
 * memory. */
void pi__gguf_drop(const pi__gguf *g, const pi__tensor *t, uint64_t off, uint64_t n);

/* ---- Writing: first metadata, then tensor headers, then data in the same order. Until it is complete, the file
 * is named path.PID.N.part; then it is renamed to path. So a reader never sees an incomplete file, and a model can
 * be rewritten in place. A path that is a device (/dev/null) is written directly. One thread at a time. */
typedef struct pi__gguf_writer pi__gguf_writer;
/* alignment: a power of two, at least 8; 0 = the default of 32. */
int pi__gguf_writer_open(pi__gguf_writer **out, const char *path, uint32_t alignment, pi_error *err);
/* The put functions copy their arguments. The first failure is stored and returned by _begin: out of memory, or
 * PI_EINVAL for an empty key, a shape that the type cannot hold and the like. The writer sets general.alignment
 * itself: a put of it is ignored. */
/* scalar: a value of type; STR: a pi__str. data: n values of arr_type; STR: pi__str[n]. */
void pi__gguf_put(pi__gguf_writer *w, const char *key, int type, const void *scalar);
void pi__gguf_put_arr(pi__gguf_writer *w, const char *key, int arr_type, uint64_t n, const void *data);
void pi__gguf_put_kv(pi__gguf_writer *w, const pi__gguf_kv *kv); /* copies an entry of a reader */
void pi__gguf_put_tensor(pi__gguf_writer *w, const char *name, int type, int n_dims, const int64_t *ne);
/* Checks that keys and names are unique, and writes the header. */
int pi__gguf_writer_begin(pi__gguf_writer *w, pi_error *err);
/* Writes the next bytes of tensor data. Padding between tensors is added automatically. */
int pi__gguf_writer_data(pi__gguf_writer *w, const void *data, size_t n, pi_error *err);
/* Flushes and closes the file, and frees w. commit: renames the complete file to its path; a file with incomplete
 * tensors is an error. On error, and if commit is false, the file is removed. */
int pi__gguf_writer_close(pi__gguf_writer *w, bool commit, pi_error *err);

#endif
