/* Reading a GGUF (v2, v3, little-endian), one file or splits.
 *
 * Everything in the file is hostile until checked: each offset, size, count and string is compared with the file's
 * length in overflow-safe arithmetic before it is used, and nothing is allocated by a count that the remaining bytes
 * could not hold. An error names the field, the file offset and what was expected.
 * A reader is immutable once open: any number of threads may use it. */
#ifndef PI__GGUF_H
#define PI__GGUF_H

#include "base/progress.h"
#include "pagedinfer.h"

enum pi__gguf_type { /* value types of metadata, as in the format */
    PI__GGUF_U8, PI__GGUF_I8, PI__GGUF_U16, PI__GGUF_I16, PI__GGUF_U32, PI__GGUF_I32, PI__GGUF_F32, PI__GGUF_BOOL,
    PI__GGUF_STR, PI__GGUF_ARR, PI__GGUF_U64, PI__GGUF_I64, PI__GGUF_F64, PI__GGUF_N_TYPES
};

typedef struct pi__str { /* bytes in the file image: not NUL terminated */
    const char *p;
    size_t n;
} pi__str;

typedef struct pi__gguf_kv {
    pi__str key;       /* unique in the file */
    int32_t type;      /* enum pi__gguf_type */
    int32_t arr_type;  /* of an array's elements, never PI__GGUF_ARR (nested arrays are refused) */
    uint64_t n;        /* elements of an array, 1 otherwise */
    const void *data;  /* the value in the file: numbers little-endian, maybe unaligned; strings: use strs */
    pi__str *strs;     /* elements of a string or string array, else NULL */
} pi__gguf_kv;

typedef struct pi__tensor {
    pi__str name;      /* unique across splits */
    char cname[128];   /* the same, NUL terminated, cut */
    int32_t type;      /* enum pi__type (formats.h) */
    int32_t n_dims;    /* 1..4 (a tensor that the file gives no dimensions has one of 1) */
    int64_t ne[4];     /* elements a dimension, at least 1, ne[0] contiguous; unused ones are 1 */
    uint64_t offset;   /* in its file, from the file's start; a multiple of 8 */
    uint64_t size;     /* bytes */
    int32_t file;      /* split number */
} pi__tensor;

enum pi__load_mode { PI__LOAD_MMAP, PI__LOAD_READ, PI__LOAD_DIO };

typedef struct pi__gguf pi__gguf;

/* Opens path; with general split naming (-00001-of-00003.gguf) and split.count > 1 all its siblings too. */
int pi__gguf_open(pi__gguf **out, const char *path, int load_mode, pi_error *err);
/* The same; p (or NULL) is told of the bytes of each file that is copied into memory. */
int pi__gguf_open_with(pi__gguf **out, const char *path, int load_mode, pi__progress *p, pi_error *err);
/* The same from a file image that stays valid until close; one file only, for tests and fuzzers. */
int pi__gguf_open_memory(pi__gguf **out, const void *p, size_t n, pi_error *err);
void pi__gguf_close(pi__gguf *g);
/* Metadata as the user has it: "KEY=TYPE:VALUE", TYPE int, float, bool or str, in the place of the file's or beside it. Only
 * while nobody else uses g, and before pointers to metadata are taken. PI_EINVAL: no such rule. */
int pi__gguf_override_kv(pi__gguf *g, const char *rule, pi_error *err);

uint32_t pi__gguf_version(const pi__gguf *g);
uint32_t pi__gguf_alignment(const pi__gguf *g);
int32_t pi__gguf_n_files(const pi__gguf *g);
uint64_t pi__gguf_file_size(const pi__gguf *g, int32_t file);
int64_t pi__gguf_file_time(const pi__gguf *g, int32_t file); /* when it was last written, ns since 1970; 0: an image in memory */
size_t pi__gguf_n_kv(const pi__gguf *g); /* of the first file */
const pi__gguf_kv *pi__gguf_kv_at(const pi__gguf *g, size_t i);
/* NULL: absent. O(1). */
const pi__gguf_kv *pi__gguf_find(const pi__gguf *g, const char *key);

/* "u32"; "?" for a number that is not in the enum. */
const char *pi__gguf_type_name(int32_t type);
/* s as text for people: escapes for quotes, control characters and invalid UTF-8, cut with "..." to fit cap bytes with
 * the final NUL. Returns its length. */
size_t pi__str_escape(char *dst, size_t cap, pi__str s);

/* Scalars with conversion: an integer is read from any integer type (and bool) that holds it. def where absent.
 * PI_EFORMAT (err names key, the type found and the range wanted) where present but unfit. */
int pi__gguf_get_u32(const pi__gguf *g, const char *key, uint32_t *out, uint32_t def, pi_error *err);
/* From any number type. */
int pi__gguf_get_f32(const pi__gguf *g, const char *key, float *out, float def, pi_error *err);
/* From bool, or an integer that is 0 or 1. */
int pi__gguf_get_bool(const pi__gguf *g, const char *key, bool *out, bool def, pi_error *err);
/* *out.p is NULL where absent. */
int pi__gguf_get_str(const pi__gguf *g, const char *key, pi__str *out, pi_error *err);
/* Element i of an array (or i = 0 of a scalar). The caller checked i < kv->n and the element type. */
uint64_t pi__gguf_elem_u64(const pi__gguf_kv *kv, uint64_t i);
int64_t pi__gguf_elem_i64(const pi__gguf_kv *kv, uint64_t i);
double pi__gguf_elem_f64(const pi__gguf_kv *kv, uint64_t i); /* from any number type */
pi__str pi__gguf_elem_str(const pi__gguf_kv *kv, uint64_t i);

/* ---- metadata as text for programs (gguf_text.c) */

/* Text in the cap bytes at p, cut there; n counts all of it. No final NUL. */
typedef struct pi__sink {
    char *p;
    size_t cap, n;
} pi__sink;
void pi__sink_add(pi__sink *t, const char *s, size_t n);
void pi__sink_puts(pi__sink *t, const char *s);
/* As a JSON string; bytes that are no UTF-8 become U+FFFD. */
void pi__sink_json(pi__sink *t, pi__str s);
/* A value: an array is JSON, and of its elements the first ones, at most so many; a scalar is JSON too, or as it is. */
void pi__gguf_value_text(pi__sink *t, const pi__gguf_kv *kv, uint64_t most, bool json);

/* All metadata, in one piece of memory (pi__free); its strs are NULL: for pi__gguf_value_text alone. NULL: out of memory. */
typedef struct pi__gguf_copy {
    size_t n;         /* entries */
    pi__gguf_kv *kv;  /* [n] behind this, in the order of the file */
} pi__gguf_copy;
pi__gguf_copy *pi__gguf_copy_of(const pi__gguf *g);
const pi__gguf_kv *pi__gguf_copy_find(const pi__gguf_copy *c, const char *key); /* NULL: absent */

size_t pi__gguf_n_tensors(const pi__gguf *g); /* of all splits */
const pi__tensor *pi__gguf_tensor_at(const pi__gguf *g, size_t i);
const pi__tensor *pi__gguf_find_tensor(const pi__gguf *g, const char *name); /* NULL: absent. O(1). */

/* The tensor's bytes where the file is mapped or was read whole; NULL with PI__LOAD_DIO (use pi__gguf_read). */
const void *pi__gguf_tensor_data(const pi__gguf *g, const pi__tensor *t);
/* Copies n bytes from offset off of the tensor. Works in every mode. PI_EIO, PI_EINVAL. */
int pi__gguf_read(const pi__gguf *g, const pi__tensor *t, uint64_t off, void *dst, size_t n, pi_error *err);
/* The caller copied what it wanted of n tensor bytes from off: a mapped file's pages leave resident memory. */
void pi__gguf_drop(const pi__gguf *g, const pi__tensor *t, uint64_t off, uint64_t n);

/* ---- writing. Metadata first, then tensor headers, then data in the same order. The file appears under its name when
 * it is complete, until then it is path.PID.N.part: a reader never sees half of it, and a model can be rewritten onto
 * itself. A path that is a device (/dev/null) is written directly. One thread at a time. */
typedef struct pi__gguf_writer pi__gguf_writer;
/* alignment 0: the default of 32; otherwise a power of two, at least 8. */
int pi__gguf_writer_open(pi__gguf_writer **out, const char *path, uint32_t alignment, pi_error *err);
/* Everything is copied. The first failure (out of memory; PI_EINVAL for an empty key, a shape that the type cannot
 * hold and the like) is remembered and returned by _begin. general.alignment is the writer's own: put is ignored. */
/* scalar: a value of type; STR: a pi__str. data: n values of arr_type; STR: pi__str[n]. */
void pi__gguf_put(pi__gguf_writer *w, const char *key, int type, const void *scalar);
void pi__gguf_put_arr(pi__gguf_writer *w, const char *key, int arr_type, uint64_t n, const void *data);
void pi__gguf_put_kv(pi__gguf_writer *w, const pi__gguf_kv *kv); /* copy from a reader */
void pi__gguf_put_tensor(pi__gguf_writer *w, const char *name, int type, int n_dims, const int64_t *ne);
/* Checks that keys and names are unique, and writes the header. */
int pi__gguf_writer_begin(pi__gguf_writer *w, pi_error *err);
/* The next bytes of tensor data; padding between tensors is added by itself. */
int pi__gguf_writer_data(pi__gguf_writer *w, const void *data, size_t n, pi_error *err);
/* Flushes and closes; a file whose tensors are incomplete is an error. On error, and with commit false, the file is
 * removed. Frees w. */
int pi__gguf_writer_close(pi__gguf_writer *w, bool commit, pi_error *err);

#endif
