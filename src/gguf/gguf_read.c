/* Parsing a GGUF.
 *
 *     magic "GGUF" | version u32 | n_tensors u64 | n_kv u64                      24 bytes
 *     n_kv x       | key str | type u32 | value, or element type u32, n u64, n values
 *     n_tensors x  | name str | n_dims u32 | ne u64 x n_dims | type u32 | offset u64
 *     padding to general.alignment
 *     tensor data, each tensor at its offset from here                            str: length u64, bytes
 *
 * A cursor reads the file once and never passes its end: c->pos <= size always holds, and every length is compared
 * with size - pos. Each count is first compared with the number that the remaining bytes can hold, so memory is
 * bounded by a small multiple of the file: 48 bytes per entry, 16 per string, about 220 per tensor, plus the
 * indexes. Time is linear in the metadata, except for a sort of the tensors by offset if the file has them
 * unordered. */
#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "gguf/gguf_priv.h"

typedef struct cursor {
    const pi__gguf_file *f; /* file that is read */
    uint64_t pos;           /* next byte, <= f->size */
    pi_error *err;          /* receives failures */
} cursor;

static const uint8_t value_size[PI__GGUF_N_TYPES] = {
    [PI__GGUF_U8] = 1,  [PI__GGUF_I8] = 1,  [PI__GGUF_U16] = 2, [PI__GGUF_I16] = 2,
    [PI__GGUF_U32] = 4, [PI__GGUF_I32] = 4, [PI__GGUF_F32] = 4, [PI__GGUF_BOOL] = 1,
    [PI__GGUF_U64] = 8, [PI__GGUF_I64] = 8, [PI__GGUF_F64] = 8,
};

static uint64_t left(const cursor *c) { return c->f->size - c->pos; }

#define FAIL(c, at, w, code, ...) pi__gguf_fail((c)->f, at, w, (c)->err, code, __VA_ARGS__)

static int fail_cut(const cursor *c, const pi__gguf_where *w, uint64_t want)
{
    return FAIL(c, c->pos, w, PI_EFORMAT,
                "needs %llu bytes, but the file ends after %llu: it is truncated or damaged, fetch it again",
                (unsigned long long) want, (unsigned long long) left(c));
}

static int read_u32(cursor *c, const pi__gguf_where *w, uint32_t *out)
{
    *out = 0;
    if (left(c) < sizeof *out) return fail_cut(c, w, sizeof *out);
    memcpy(out, c->f->p + c->pos, sizeof *out);
    c->pos += sizeof *out;
    return PI_OK;
}

static int read_u64(cursor *c, const pi__gguf_where *w, uint64_t *out)
{
    *out = 0;
    if (left(c) < sizeof *out) return fail_cut(c, w, sizeof *out);
    memcpy(out, c->f->p + c->pos, sizeof *out);
    c->pos += sizeof *out;
    return PI_OK;
}

static int read_str(cursor *c, const pi__gguf_where *w, uint64_t max, pi__str *out)
{
    uint64_t at = c->pos, n;
    int rc = read_u64(c, w, &n);
    if (rc != PI_OK) return rc;
    if (n > left(c)) {
        return FAIL(c, at, w, PI_EFORMAT,
                    "a length of %llu bytes, but the file ends after %llu: it is truncated or damaged, fetch it again",
                    (unsigned long long) n, (unsigned long long) left(c));
    }
    if (n > max) {
        return FAIL(c, at, w, PI_EFORMAT, "a length of %llu bytes, at most %llu are allowed", (unsigned long long) n,
                    (unsigned long long) max);
    }
    *out = (pi__str) {(const char *) c->f->p + c->pos, (size_t) n};
    c->pos += n;
    return PI_OK;
}

/* ---------------------------------------------------------------------------------------------------------- header */

int pi__gguf_check_head(const pi__gguf_file *f, const uint8_t *head, size_t n, uint32_t *version, pi_error *err)
{
    pi__gguf_where magic = {"magic", NULL, UINT64_MAX}, field = {"version", NULL, UINT64_MAX};
    if (n == 0) return pi__fail(err, PI_EFORMAT, "%s: the file is empty, fetch it again", f->label);
    if (n >= 4 && memcmp(head, "FUGG", 4) == 0) {
        return pi__gguf_fail(f, 0, &magic, err, PI_EUNSUPPORTED,
                             "a big-endian GGUF: convert it with gguf-py's gguf_convert_endian");
    }
    if (memcmp(head, "GGUF", n < 4 ? n : 4) != 0) {
        char found[24];
        pi__str_escape(found, sizeof found, (pi__str) {(const char *) head, n < 4 ? n : 4});
        return pi__gguf_fail(f, 0, &magic, err, PI_EFORMAT,
                             "found \"%s\", not \"GGUF\": this is not a GGUF model file",
                             found);
    }
    if (n < PI__GGUF_HEAD) {
        return pi__fail(
            err, PI_EFORMAT,
            "%s: header at offset 0: needs %d bytes, but the file ends after %zu: it is truncated, fetch it again",
            f->label,
            PI__GGUF_HEAD, n);
    }
    memcpy(version, head + 4, 4);
    if (*version == 2 || *version == 3) return PI_OK;
    if ((*version & 0xffff) == 0 && *version != 0) {
        return pi__gguf_fail(f, 4, &field, err, PI_EUNSUPPORTED,
                             "a big-endian GGUF (version %u): convert it with gguf-py's gguf_convert_endian",
                             *version >> 24);
    }
    return pi__gguf_fail(f, 4, &field, err, PI_EUNSUPPORTED, "GGUF version %u, this build reads 2 and 3: %s", *version,
                         *version < 2 ? "convert the model again with current tools" : "use a newer libpagedinfer");
}

/* -------------------------------------------------------------------------------------------------------- metadata */

/* Reads the value's n elements of type elem. */
static int read_values(cursor *c, pi__gguf_kv *kv, int32_t elem, uint64_t n)
{
    pi__gguf_where w = {"value of", &kv->key, UINT64_MAX};
    uint64_t least = elem == PI__GGUF_STR ? sizeof(uint64_t) : value_size[elem];
    if (n > left(c) / least) {
        return FAIL(c, c->pos, &w, PI_EFORMAT,
                    "%llu values of type %s, but the file ends after %llu bytes: it is truncated or damaged, "
                    "fetch it again",
                    (unsigned long long) n, pi__gguf_type_name(elem), (unsigned long long) left(c));
    }
    kv->n = n;
    kv->data = c->f->p + c->pos;
    if (elem != PI__GGUF_STR) {
        c->pos += n * least;
        return PI_OK;
    }
    if (n > PI__GGUF_MAX_STRS) {
        return FAIL(c, c->pos, &w, PI_EFORMAT, "%llu strings, at most %d are allowed", (unsigned long long) n,
                    PI__GGUF_MAX_STRS);
    }
    if (n == 0) return PI_OK;
    kv->strs = pi__malloc((size_t) n * sizeof *kv->strs);
    if (!kv->strs) return pi__fail_mem(c->err, "the metadata's strings");
    bool array = kv->type == PI__GGUF_ARR;
    for (uint64_t i = 0; i < n; i++) {
        if (array) w.elem = i;
        int rc = read_str(c, &w, UINT64_MAX, &kv->strs[i]);
        if (rc != PI_OK) return rc;
    }
    return PI_OK;
}

static int fail_value_type(const cursor *c, uint64_t at, const pi__gguf_where *w, uint32_t type)
{
    return FAIL(c, at, w, PI_EFORMAT, "%u is not a GGUF value type (0..%d): the file is damaged, fetch it again",
                type, PI__GGUF_N_TYPES - 1);
}

static int read_kv(cursor *c, pi__gguf_kv *kv)
{
    pi__gguf_where w = {"metadata key", NULL, UINT64_MAX};
    uint64_t at = c->pos, n = 1;
    int rc = read_str(c, &w, PI__GGUF_MAX_NAME, &kv->key);
    if (rc != PI_OK) return rc;
    if (kv->key.n == 0) return FAIL(c, at, &w, PI_EFORMAT, "the key is empty: the file is damaged, fetch it again");

    uint32_t type, elem;
    at = c->pos;
    w = (pi__gguf_where) {"type of", &kv->key, UINT64_MAX};
    if ((rc = read_u32(c, &w, &type)) != PI_OK) return rc;
    if (type >= PI__GGUF_N_TYPES) return fail_value_type(c, at, &w, type);
    elem = type;
    if (type == PI__GGUF_ARR) {
        w.field = "element type of";
        at = c->pos;
        if ((rc = read_u32(c, &w, &elem)) != PI_OK) return rc;
        if (elem >= PI__GGUF_N_TYPES) return fail_value_type(c, at, &w, elem);
        if (elem == PI__GGUF_ARR)
            return FAIL(c, at, &w, PI_EUNSUPPORTED, "an array of arrays is not supported");
        w.field = "element count of";
        if ((rc = read_u64(c, &w, &n)) != PI_OK) return rc;
    }
    kv->type = (int32_t) type;
    kv->arr_type = (int32_t) elem;
    return read_values(c, kv, (int32_t) elem, n);
}

void pi__gguf_meta_free(pi__gguf_meta *m)
{
    for (size_t i = 0; i < m->n; i++) pi__free(m->kv[i].strs);
    pi__free(m->kv);
    pi__strmap_free(&m->index);
    *m = (pi__gguf_meta) {0};
}

/* Reads n metadata entries into m and builds their index. The caller has checked that the remaining bytes can hold n
 * entries, and frees m in any case. */
static int read_meta(cursor *c, uint64_t n, pi__gguf_meta *m)
{
    m->kv = pi__calloc((size_t) n, sizeof *m->kv);
    if (!m->kv) return pi__fail_mem(c->err, "the metadata's entries");
    m->n = (size_t) n;
    for (size_t i = 0; i < m->n; i++) {
        int rc = read_kv(c, &m->kv[i]);
        if (rc != PI_OK) return rc;
    }
    size_t dup;
    int rc = pi__strmap_build(&m->index, m->kv, sizeof *m->kv, m->n, &dup);
    if (rc == PI_ENOMEM) return pi__fail_mem(c->err, "the index of the metadata");
    if (rc == PI_OK) return PI_OK;
    pi__gguf_where w = {"metadata key", &m->kv[dup].key, UINT64_MAX};
    uint64_t at = (uint64_t) ((const uint8_t *) m->kv[dup].key.p - c->f->p) - sizeof(uint64_t);
    return FAIL(c, at, &w, PI_EFORMAT, "the key occurs twice: the file is damaged or was written wrongly");
}

static int read_alignment(const cursor *c, const pi__gguf_meta *m, uint32_t *out)
{
    int rc = pi__gguf_meta_u32(m, c->f, "general.alignment", out, PI__GGUF_DEFAULT_ALIGNMENT, c->err);
    if (rc != PI_OK) return rc;
    if (*out >= 8 && (*out & (*out - 1)) == 0) return PI_OK;
    const pi__gguf_kv *kv = pi__gguf_meta_find(m, "general.alignment");
    pi__gguf_where w = {"value of", &kv->key, UINT64_MAX};
    return FAIL(c, (uint64_t) ((const uint8_t *) kv->data - c->f->p), &w, PI_EFORMAT,
                "alignment is %u, expected a power of two, at least 8", *out);
}

/* --------------------------------------------------------------------------------------------------------- tensors */

static int read_shape(cursor *c, pi__tensor *t)
{
    pi__gguf_where w = {"dimensions of tensor", &t->name, UINT64_MAX};
    uint64_t at = c->pos, count = 1;
    uint32_t n_dims;
    int rc = read_u32(c, &w, &n_dims);
    if (rc != PI_OK) return rc;
    if (n_dims > 4)
        return FAIL(c, at, &w, PI_EFORMAT, "%u dimensions, at most 4 are allowed: the file is damaged", n_dims);
    t->n_dims = n_dims ? (int32_t) n_dims : 1;
    for (uint32_t d = 0; d < 4; d++) {
        t->ne[d] = 1;
        if (d >= n_dims) continue;
        uint64_t ne;
        w.elem = d;
        at = c->pos;
        if ((rc = read_u64(c, &w, &ne)) != PI_OK) return rc;
        if (ne == 0 || ne > INT64_MAX || __builtin_mul_overflow(count, ne, &count) || count > INT64_MAX) {
            return FAIL(c, at, &w, PI_EFORMAT, "%llu elements %s: the file is damaged", (unsigned long long) ne,
                        ne == 0 ? "(a tensor may not be empty)" : "exceed the size limit of a tensor");
        }
        t->ne[d] = (int64_t) ne;
    }
    return PI_OK;
}

/* Returns the name of a format with a retired number, for the message; NULL = none. */
static const char *removed_type(uint32_t type)
{
    switch (type) {
    case 4: return "Q4_2";
    case 5: return "Q4_3";
    case 31: return "Q4_0_4_4";
    case 32: return "Q4_0_4_8";
    case 33: return "Q4_0_8_8";
    case 36: return "IQ4_NL_4_4";
    case 37: return "IQ4_NL_4_8";
    case 38: return "IQ4_NL_8_8";
    }
    return NULL;
}

static int read_type(cursor *c, pi__tensor *t)
{
    pi__gguf_where w = {"type of tensor", &t->name, UINT64_MAX};
    uint64_t at = c->pos, count = 1, size;
    uint32_t type;
    int rc = read_u32(c, &w, &type);
    if (rc != PI_OK) return rc;
    const pi__type_info *info = type < PI__N_TYPES ? pi__type_info_of((int32_t) type) : NULL;
    if (!info) {
        const char *old = removed_type(type);
        if (old)
            return FAIL(c, at, &w, PI_EUNSUPPORTED,
                        "type %u (%s) was removed from the format: quantize the model again", type, old);
        return FAIL(c, at, &w, PI_EUNSUPPORTED, "type %u is unknown: the file is damaged or newer than this build",
                    type);
    }
    for (int d = 0; d < 4; d++) count *= (uint64_t) t->ne[d]; /* read_shape has checked for overflow */
    if (t->ne[0] % info->blck_size != 0) {
        return FAIL(c, at, &w, PI_EFORMAT,
                    "rows of %lld values cannot be stored in %s, which has blocks of %u: the file is damaged",
                    (long long) t->ne[0], info->name, info->blck_size);
    }
    if (__builtin_mul_overflow(count / info->blck_size, (uint64_t) info->type_size, &size)) {
        return FAIL(c, at, &w, PI_EFORMAT, "%llu values of type %s exceed the size limit: the file is damaged",
                    (unsigned long long) count, info->name);
    }
    t->type = (int32_t) type;
    t->size = size;
    return PI_OK;
}

/* Reads a tensor's header. t->offset is relative to the data's start until check_extents. */
static int read_tensor(cursor *c, pi__tensor *t)
{
    pi__gguf_where w = {"tensor name", NULL, UINT64_MAX};
    uint64_t at = c->pos;
    int rc = read_str(c, &w, PI__GGUF_MAX_NAME, &t->name);
    if (rc != PI_OK) return rc;
    if (t->name.n == 0) return FAIL(c, at, &w, PI_EFORMAT, "the name is empty: the file is damaged, fetch it again");
    size_t n = t->name.n < sizeof t->cname - 1 ? t->name.n : sizeof t->cname - 1;
    memcpy(t->cname, t->name.p, n);
    t->cname[n] = 0;
    if ((rc = read_shape(c, t)) != PI_OK) return rc;
    if ((rc = read_type(c, t)) != PI_OK) return rc;
    w = (pi__gguf_where) {"offset of tensor", &t->name, UINT64_MAX};
    return read_u64(c, &w, &t->offset);
}

/* Restores the heap property of order[0..n) below i; the largest offset is on top. */
static void sift(uint32_t *order, const pi__tensor *t, size_t i, size_t n)
{
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && t[order[k]].offset < t[order[k + 1]].offset) k++;
        if (t[order[i]].offset >= t[order[k]].offset) return;
        uint32_t tmp = order[i];
        order[i] = order[k];
        order[k] = tmp;
    }
}

/* Sorts the n tensors by offset, into order. Heap sort: libc's qsort may allocate, and may take quadratic time. */
static void sort_by_offset(uint32_t *order, const pi__tensor *t, size_t n)
{
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t) i;
        sorted = sorted && (i == 0 || t[i - 1].offset <= t[i].offset);
    }
    if (sorted) return;
    for (size_t i = n / 2; i-- > 0;) sift(order, t, i, n);
    for (size_t i = n; i-- > 1;) {
        uint32_t tmp = order[0];
        order[0] = order[i];
        order[i] = tmp;
        sift(order, t, 0, i);
    }
}

/* Checks that every tensor lies inside the file, is aligned, and overlaps no other tensor. Makes the offsets
 * absolute. */
static int check_extents(const cursor *c, pi__tensor *t, size_t n, uint32_t alignment)
{
    const pi__gguf_file *f = c->f;
    pi__gguf_where w = {"data of tensor", NULL, UINT64_MAX};
    for (size_t i = 0; i < n; i++) {
        uint64_t begin, end;
        w.name = &t[i].name;
        if (t[i].offset % alignment != 0) {
            return FAIL(c, f->data_start, &w, PI_EFORMAT,
                        "begins at %llu, not a multiple of the alignment %u: the file is damaged",
                        (unsigned long long) t[i].offset, alignment);
        }
        if (__builtin_add_overflow(f->data_start, t[i].offset, &begin) || begin > f->size) begin = f->size;
        if (__builtin_add_overflow(begin, t[i].size, &end) || end > f->size) {
            return FAIL(c, begin, &w, PI_EFORMAT,
                        "%llu bytes reach beyond the file's %llu bytes: it is truncated or damaged, fetch it again",
                        (unsigned long long) t[i].size, (unsigned long long) f->size);
        }
        t[i].offset = begin;
    }
    if (n < 2) return PI_OK;
    uint32_t *order = pi__malloc(n * sizeof *order);
    if (!order) return pi__fail_mem(c->err, "the order of the tensors");
    sort_by_offset(order, t, n);
    int rc = PI_OK;
    for (size_t i = 1; i < n && rc == PI_OK; i++) {
        const pi__tensor *a = &t[order[i - 1]], *b = &t[order[i]];
        if (b->offset - a->offset >= a->size) continue;
        char other[40];
        pi__str_escape(other, sizeof other, a->name);
        w.name = &b->name;
        if (a->type == PI__Q2_0 && b->offset - a->offset >= a->size / 36 * 34)
            rc = FAIL(c, b->offset, &w, PI_EUNSUPPORTED,
                      "tensor '%s' is Q2_0 in groups of 128 values, an older layout: get a file with groups of 64 "
                      "(Q2_g64)", other);
        else rc = FAIL(c, b->offset, &w, PI_EFORMAT, "overlaps tensor '%s': the file is damaged", other);
    }
    pi__free(order);
    return rc;
}

/* Reads n tensor headers and appends the tensors to g->tensor. The caller has checked that the remaining bytes can hold
 * n headers. */
static int read_tensors(pi__gguf *g, cursor *c, pi__gguf_file *f, uint64_t n, uint32_t alignment, int32_t file)
{
    if (n == 0) return PI_OK; /* a file with only a vocabulary */
    if (n > UINT32_MAX / 4 - g->n_tensors ||
        !pi__grow(&g->tensor, &g->cap_tensors, g->n_tensors + (size_t) n, sizeof *g->tensor)) {
        return pi__fail_mem(c->err, "the list of tensors");
    }
    pi__tensor *t = g->tensor + g->n_tensors;
    memset(t, 0, (size_t) n * sizeof *t);
    for (size_t i = 0; i < n; i++) {
        t[i].file = file;
        int rc = read_tensor(c, &t[i]);
        if (rc != PI_OK) return rc;
    }
    if (__builtin_add_overflow(c->pos, alignment - 1, &f->data_start)) f->data_start = f->size;
    f->data_start &= ~(uint64_t) (alignment - 1);
    int rc = check_extents(c, t, (size_t) n, alignment);
    if (rc == PI_OK) g->n_tensors += (size_t) n;
    return rc;
}

/* ------------------------------------------------------------------------------------------------------- the file */

int pi__gguf_parse(pi__gguf *g, pi__gguf_file *f, int32_t file, pi__gguf_meta *m, pi_error *err)
{
    cursor c = {f, 8, err};
    pi__gguf_where w = {"n_tensors", NULL, UINT64_MAX};
    uint64_t n_tensors, n_kv = 0;
    uint32_t alignment;
    int rc = read_u64(&c, &w, &n_tensors);
    w.field = "n_kv";
    if (rc == PI_OK) rc = read_u64(&c, &w, &n_kv);
    if (rc != PI_OK) return rc;
    /* The smallest entry has 14 bytes: key length 8, key 1, type 4, value 1. The smallest tensor has 25: name
     * length 8, name 1, n_dims 4, type 4, offset 8. */
    if (n_kv > left(&c) / 14 || n_kv > UINT32_MAX / 4) {
        return FAIL(&c, 16, &w, PI_EFORMAT,
                    "%llu entries do not fit into the %llu bytes that follow: the file is truncated or damaged",
                    (unsigned long long) n_kv, (unsigned long long) left(&c));
    }
    w.field = "n_tensors";
    if (n_tensors > (left(&c) - 14 * n_kv) / 25) {
        return FAIL(&c, 8, &w, PI_EFORMAT,
                    "%llu tensors do not fit into the %llu bytes that follow: the file is truncated or damaged",
                    (unsigned long long) n_tensors, (unsigned long long) left(&c));
    }
    if ((rc = read_meta(&c, n_kv, m)) != PI_OK) return rc;
    if ((rc = read_alignment(&c, m, &alignment)) != PI_OK) return rc;
    if (n_tensors > left(&c) / 25) {
        return FAIL(&c, 8, &w, PI_EFORMAT,
                    "%llu tensors do not fit into the %llu bytes after the metadata: the file is truncated or damaged",
                    (unsigned long long) n_tensors, (unsigned long long) left(&c));
    }
    if (file == 0) g->alignment = alignment;
    return read_tensors(g, &c, f, n_tensors, alignment, file);
}
