/* Queries on an open GGUF: metadata, tensors, tensor data. Read-only, no memory, any thread.
 *
 * Numbers in the file are unaligned, so all of them are copied. A conversion that would change the value is an
 * error, which names the key, the value found and the expected range. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gguf/gguf_priv.h"

uint32_t pi__gguf_version(const pi__gguf *g) { return g->version; }
uint32_t pi__gguf_alignment(const pi__gguf *g) { return g->alignment; }
int32_t pi__gguf_n_files(const pi__gguf *g) { return (int32_t) g->n_files; }
uint64_t pi__gguf_file_size(const pi__gguf *g, int32_t file) { return g->file[file].size; }
int64_t pi__gguf_file_time(const pi__gguf *g, int32_t file) { return g->file[file].time; }
size_t pi__gguf_n_kv(const pi__gguf *g) { return g->meta.n; }
const pi__gguf_kv *pi__gguf_kv_at(const pi__gguf *g, size_t i) { return &g->meta.kv[i]; }
const pi__gguf_kv *pi__gguf_find(const pi__gguf *g, const char *key) { return pi__gguf_meta_find(&g->meta, key); }
size_t pi__gguf_n_tensors(const pi__gguf *g) { return g->n_tensors; }
const pi__tensor *pi__gguf_tensor_at(const pi__gguf *g, size_t i) { return &g->tensor[i]; }

const pi__gguf_kv *pi__gguf_meta_find(const pi__gguf_meta *m, const char *key)
{
    int64_t i = pi__strmap_find(&m->index, key, strlen(key));
    return i < 0 ? NULL : &m->kv[i];
}

const pi__tensor *pi__gguf_find_tensor(const pi__gguf *g, const char *name)
{
    int64_t i = pi__strmap_find(&g->by_name, name, strlen(name));
    return i < 0 ? NULL : &g->tensor[i];
}

int32_t pi__gguf_layer(const char *name, const char **rest)
{
    int32_t layer = 0;
    if (!strncmp(name, "enc.", 4)) name += 4;
    if (strncmp(name, "blk.", 4) || name[4] == '.') return -1;
    for (name += 4; *name >= '0' && *name <= '9'; name++)
        if ((layer = 10 * layer + (*name - '0')) > 999999) return -1;
    if (*name != '.') return -1;
    if (rest) *rest = name + 1;
    return layer;
}

const char *pi__gguf_type_name(int32_t type)
{
    static const char name[PI__GGUF_N_TYPES][5] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool",
                                                   "str", "arr", "u64", "i64", "f64"};
    return type >= 0 && type < PI__GGUF_N_TYPES ? name[type] : "?";
}

/* -------------------------------------------------------------------------------------------------------- elements */

typedef struct number { /* any metadata number */
    enum { NONE, UNSIGNED, SIGNED, FLOATING } kind;
    uint64_t u; /* UNSIGNED */
    int64_t i;  /* SIGNED */
    double f;   /* FLOATING */
} number;

static number load(const pi__gguf_kv *kv, uint64_t at)
{
    const uint8_t *p = kv->data;
#define LOAD(type, c_type, k, field)                                                                                   \
    case type: {                                                                                                       \
        c_type v;                                                                                                      \
        memcpy(&v, p + at * sizeof v, sizeof v);                                                                       \
        return (number) {.kind = k, .field = v};                                                                       \
    }
    switch (kv->arr_type) {
    LOAD(PI__GGUF_U8, uint8_t, UNSIGNED, u)
    LOAD(PI__GGUF_U16, uint16_t, UNSIGNED, u)
    LOAD(PI__GGUF_U32, uint32_t, UNSIGNED, u)
    LOAD(PI__GGUF_U64, uint64_t, UNSIGNED, u)
    LOAD(PI__GGUF_I8, int8_t, SIGNED, i)
    LOAD(PI__GGUF_I16, int16_t, SIGNED, i)
    LOAD(PI__GGUF_I32, int32_t, SIGNED, i)
    LOAD(PI__GGUF_I64, int64_t, SIGNED, i)
    LOAD(PI__GGUF_F32, float, FLOATING, f)
    LOAD(PI__GGUF_F64, double, FLOATING, f)
    case PI__GGUF_BOOL: return (number) {.kind = UNSIGNED, .u = p[at] != 0};
    }
#undef LOAD
    return (number) {.kind = NONE};
}

/* Numbers outside the result's range are clamped, and NaN becomes 0: a hostile file must not lead to undefined
 * casts. */
uint64_t pi__gguf_elem_u64(const pi__gguf_kv *kv, uint64_t i)
{
    number v = load(kv, i);
    if (v.kind == SIGNED) return (uint64_t) v.i;
    if (v.kind == FLOATING) return v.f >= 0x1p64 ? UINT64_MAX : v.f > 0 ? (uint64_t) v.f : 0;
    return v.u;
}

int64_t pi__gguf_elem_i64(const pi__gguf_kv *kv, uint64_t i)
{
    number v = load(kv, i);
    if (v.kind == UNSIGNED) return (int64_t) v.u;
    if (v.kind == FLOATING)
        return v.f >= 0x1p63 ? INT64_MAX : v.f <= -0x1p63 ? INT64_MIN : v.f == v.f ? (int64_t) v.f : 0;
    return v.i;
}

double pi__gguf_elem_f64(const pi__gguf_kv *kv, uint64_t i)
{
    number v = load(kv, i);
    return v.kind == UNSIGNED ? (double) v.u : v.kind == SIGNED ? (double) v.i : v.f;
}

pi__str pi__gguf_elem_str(const pi__gguf_kv *kv, uint64_t i) { return kv->strs ? kv->strs[i] : (pi__str) {NULL, 0}; }

/* -------------------------------------------------------------------------------------------------------- getters */

static int fail_unfit(const pi__gguf_file *f, const pi__gguf_kv *kv, const char *want, pi_error *err)
{
    char found[48];
    pi__gguf_where w = {"metadata", &kv->key, UINT64_MAX};
    number v = kv->type == PI__GGUF_ARR ? (number) {.kind = NONE} : load(kv, 0);
    if (kv->type == PI__GGUF_ARR) snprintf(found, sizeof found, "an array of %s", pi__gguf_type_name(kv->arr_type));
    else if (kv->type == PI__GGUF_STR) snprintf(found, sizeof found, "a string");
    else if (v.kind == UNSIGNED)
        snprintf(found, sizeof found, "%s %llu", pi__gguf_type_name(kv->type), (unsigned long long) v.u);
    else if (v.kind == SIGNED) snprintf(found, sizeof found, "%s %lld", pi__gguf_type_name(kv->type), (long long) v.i);
    else snprintf(found, sizeof found, "%s %g", pi__gguf_type_name(kv->type), v.f);
    uint64_t at = (uint64_t) ((uintptr_t) kv->data - (uintptr_t) f->p);
    if (at >= f->size) {
        char key[80];
        pi__str_escape(key, sizeof key, kv->key);
        return pi__fail(err, PI_EINVAL, "override-kv: %s is %s, expected %s", key, found, want);
    }
    return pi__gguf_fail(f, at, &w, err, PI_EFORMAT, "found %s, expected %s: convert the model again", found, want);
}

static number scalar(const pi__gguf_kv *kv) { return kv->type == PI__GGUF_ARR ? (number) {.kind = NONE} : load(kv, 0); }

int pi__gguf_meta_u32(const pi__gguf_meta *m, const pi__gguf_file *f, const char *key, uint32_t *out, uint32_t def,
                      pi_error *err)
{
    const pi__gguf_kv *kv = pi__gguf_meta_find(m, key);
    *out = def;
    if (!kv) return PI_OK;
    number v = scalar(kv);
    if (v.kind == SIGNED && v.i >= 0) v = (number) {.kind = UNSIGNED, .u = (uint64_t) v.i};
    if (v.kind != UNSIGNED || v.u > UINT32_MAX) return fail_unfit(f, kv, "an integer 0..4294967295", err);
    *out = (uint32_t) v.u;
    return PI_OK;
}

int pi__gguf_get_u32(const pi__gguf *g, const char *key, uint32_t *out, uint32_t def, pi_error *err)
{
    return pi__gguf_meta_u32(&g->meta, &g->file[0], key, out, def, err);
}

int pi__gguf_get_f32(const pi__gguf *g, const char *key, float *out, float def, pi_error *err)
{
    const pi__gguf_kv *kv = pi__gguf_find(g, key);
    *out = def;
    if (!kv) return PI_OK;
    number v = scalar(kv);
    bool fits = kv->type != PI__GGUF_BOOL && v.kind != NONE && !(isfinite(v.f) && fabs(v.f) > FLT_MAX);
    if (!fits) return fail_unfit(&g->file[0], kv, "a number in the range of f32", err);
    *out = (float) pi__gguf_elem_f64(kv, 0);
    return PI_OK;
}

int pi__gguf_get_bool(const pi__gguf *g, const char *key, bool *out, bool def, pi_error *err)
{
    const pi__gguf_kv *kv = pi__gguf_find(g, key);
    *out = def;
    if (!kv) return PI_OK;
    number v = scalar(kv);
    if (v.kind == SIGNED && v.i >= 0) v = (number) {.kind = UNSIGNED, .u = (uint64_t) v.i};
    if (v.kind != UNSIGNED || v.u > 1) return fail_unfit(&g->file[0], kv, "a bool", err);
    *out = v.u == 1;
    return PI_OK;
}

int pi__gguf_get_str(const pi__gguf *g, const char *key, pi__str *out, pi_error *err)
{
    const pi__gguf_kv *kv = pi__gguf_find(g, key);
    *out = (pi__str) {NULL, 0};
    if (!kv) return PI_OK;
    if (kv->type != PI__GGUF_STR) return fail_unfit(&g->file[0], kv, "a string", err);
    *out = kv->strs[0];
    return PI_OK;
}

/* --------------------------------------------------------------------------------------------------- tensor bytes */

const void *pi__gguf_tensor_data(const pi__gguf *g, const pi__tensor *t)
{
    const pi__gguf_file *f = &g->file[t->file];
    return f->mode == PI__LOAD_DIO ? NULL : f->p + t->offset;
}

int pi__gguf_read(const pi__gguf *g, const pi__tensor *t, uint64_t off, void *dst, size_t n, pi_error *err)
{
    const pi__gguf_file *f = &g->file[t->file];
    if (off > t->size || n > t->size - off) {
        pi__gguf_where w = {"data of tensor", &t->name, UINT64_MAX};
        return pi__gguf_fail(f, t->offset, &w, err, PI_EINVAL, "reading %zu bytes at %llu, but it has %llu", n,
                             (unsigned long long) off, (unsigned long long) t->size);
    }
    return pi__gguf_file_read(f, t->offset + off, dst, n, err);
}

/* Rounds outwards to pages: a page shared with an adjacent tensor is reloaded from the page cache when that tensor
 * is read. */
void pi__gguf_drop(const pi__gguf *g, const pi__tensor *t, uint64_t off, uint64_t n)
{
    const pi__gguf_file *f = &g->file[t->file];
    if (f->image != PI__IMAGE_MAPPED || f->mode != PI__LOAD_MMAP) return;
    if (off > t->size || n > t->size - off) return;
    uint64_t page = (uint64_t) sysconf(_SC_PAGESIZE), begin = (t->offset + off) / page * page;
    madvise((void *) (uintptr_t) (f->p + begin), (size_t) (t->offset + off + n - begin), MADV_DONTNEED);
}
