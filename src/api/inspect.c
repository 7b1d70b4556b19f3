/* The contents of a model file, as lines for people (pi_model_inspect): metadata, totals, tensors.
 *
 *     gemma.gguf: GGUF v3, 253113024 bytes, alignment 32
 *     general.architecture                        str          "gemma3"
 *     tokenizer.ggml.tokens                       str[262144]  ["<pad>", "<eos>", "<bos>", "<unk>", ...]
 *     tensors: 236, 268098176 parameters (268.10 M), 241468928 bytes (230.28 MiB)
 *       F32         109 tensors        94208 parameters         376832 bytes
 *     blk.0.attn_k.weight  [640, 256]  Q5_0  112640 bytes  file 0  offset 11700480
 *
 * Every string of the file is escaped and cut. Memory: only the reader's; a line is built on the stack. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/formats.h"
#include "gguf/gguf.h"

enum {
    LINE_MAX_BYTES = 1000,
    KEY_MAX_BYTES = 200,     /* of a key or tensor name shown */
    STR_MAX_BYTES = 200,     /* of a string value shown */
    ELEM_STR_MAX_BYTES = 40, /* of a string in an array shown */
    ARRAY_MAX_BYTES = 300    /* no more elements once the line is this long */
};

typedef struct line { /* text that grows to LINE_MAX_BYTES and is cut there */
    char text[LINE_MAX_BYTES];
    size_t n; /* bytes, without the final NUL */
} line;

static void add(line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, fmt, ap);
    va_end(ap);
    if (n > 0) l->n = (size_t) n < sizeof l->text - l->n ? l->n + (size_t) n : sizeof l->text - 1;
}

static void add_str(line *l, pi__str s, size_t max)
{
    char buf[STR_MAX_BYTES + 1];
    pi__str_escape(buf, max < sizeof buf ? max : sizeof buf, s);
    add(l, "%s", buf);
}

/* The shortest decimal that reads back as v. */
static void add_float(line *l, double v, bool single)
{
    char buf[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (single ? strtof(buf, NULL) == (float) v : strtod(buf, NULL) == v) break;
    }
    add(l, "%s", buf);
}

static void add_value(line *l, const pi__gguf_kv *kv, uint64_t i, size_t str_max)
{
    switch (kv->arr_type) {
    case PI__GGUF_STR:
        add(l, "\"");
        add_str(l, pi__gguf_elem_str(kv, i), str_max);
        add(l, "\"");
        break;
    case PI__GGUF_BOOL: add(l, "%s", pi__gguf_elem_u64(kv, i) ? "true" : "false"); break;
    case PI__GGUF_F32: add_float(l, pi__gguf_elem_f64(kv, i), true); break;
    case PI__GGUF_F64: add_float(l, pi__gguf_elem_f64(kv, i), false); break;
    case PI__GGUF_I8: case PI__GGUF_I16: case PI__GGUF_I32: case PI__GGUF_I64:
        add(l, "%lld", (long long) pi__gguf_elem_i64(kv, i));
        break;
    default: add(l, "%llu", (unsigned long long) pi__gguf_elem_u64(kv, i));
    }
}

static void show_kv(const pi__gguf_kv *kv, pi_line_fn fn, void *ud)
{
    line l = {.n = 0};
    char type[40];
    add_str(&l, kv->key, KEY_MAX_BYTES);
    if (kv->type == PI__GGUF_ARR) {
        snprintf(type, sizeof type, "%s[%llu]", pi__gguf_type_name(kv->arr_type), (unsigned long long) kv->n);
    } else {
        snprintf(type, sizeof type, "%s", pi__gguf_type_name(kv->type));
    }
    add(&l, "%*s  %-12s ", l.n < 42 ? (int) (42 - l.n) : 0, "", type);
    if (kv->type != PI__GGUF_ARR) {
        add_value(&l, kv, 0, STR_MAX_BYTES);
    } else {
        uint64_t i = 0;
        add(&l, "[");
        for (; i < kv->n && i < 8 && l.n < ARRAY_MAX_BYTES; i++) {
            if (i > 0) add(&l, ", ");
            add_value(&l, kv, i, ELEM_STR_MAX_BYTES);
        }
        add(&l, i < kv->n ? ", ...]" : "]");
    }
    fn(ud, l.text);
}

/* Adds "268098176 parameters (268.10 M)" or "1234 bytes (1.21 KiB)": the number, and in round where it is long. */
static void add_amount(line *l, uint64_t v, const char *what, double step, const char *const units[4])
{
    double r = (double) v;
    int u = -1;
    while (r >= step && u < 3) {
        r /= step;
        u++;
    }
    add(l, "%llu %s", (unsigned long long) v, what);
    if (u >= 0) add(l, " (%.2f %s)", r, units[u]);
}

static uint64_t elements(const pi__tensor *t)
{
    return (uint64_t) t->ne[0] * (uint64_t) t->ne[1] * (uint64_t) t->ne[2] * (uint64_t) t->ne[3];
}

static void show_totals(const pi__gguf *g, pi_line_fn fn, void *ud)
{
    static const char *const thousands[4] = {"K", "M", "B", "T"}, *const binary[4] = {"KiB", "MiB", "GiB", "TiB"};
    struct { uint64_t tensors, params, bytes; } by_type[PI__N_TYPES] = {{0, 0, 0}}, all = {0, 0, 0};
    for (size_t i = 0; i < pi__gguf_n_tensors(g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(g, i);
        by_type[t->type].tensors++;
        by_type[t->type].params += elements(t);
        by_type[t->type].bytes += t->size;
        all.params += elements(t);
        all.bytes += t->size;
    }
    line l = {.n = 0};
    add(&l, "tensors: %zu, ", pi__gguf_n_tensors(g));
    add_amount(&l, all.params, "parameters", 1000, thousands);
    add(&l, ", ");
    add_amount(&l, all.bytes, "bytes", 1024, binary);
    fn(ud, l.text);
    for (int32_t type = 0; type < PI__N_TYPES; type++) {
        if (by_type[type].tensors == 0) continue;
        l.n = 0;
        add(&l, "  %-8s %6llu tensors %16llu parameters %16llu bytes", pi__type_info_of(type)->name,
            (unsigned long long) by_type[type].tensors, (unsigned long long) by_type[type].params,
            (unsigned long long) by_type[type].bytes);
        fn(ud, l.text);
    }
}

static void show_tensor(const pi__tensor *t, pi_line_fn fn, void *ud)
{
    line l = {.n = 0};
    add_str(&l, t->name, KEY_MAX_BYTES);
    add(&l, "%*s  [", l.n < 34 ? (int) (34 - l.n) : 0, "");
    for (int d = 0; d < t->n_dims; d++) add(&l, "%s%lld", d ? ", " : "", (long long) t->ne[d]);
    add(&l, "]  %s  %llu bytes  file %d  offset %llu", pi__type_info_of(t->type)->name, (unsigned long long) t->size,
        t->file, (unsigned long long) t->offset);
    fn(ud, l.text);
}

int pi_model_inspect(const char *path, bool tensors, pi_line_fn fn, void *ud, pi_error *err)
{
    if (!path || !fn) return pi__fail(err, PI_EINVAL, "pi_model_inspect: path and fn must not be NULL");
    pi__gguf *g;
    int rc = pi__gguf_open(&g, path, PI__LOAD_MMAP, err);
    if (rc != PI_OK) return rc;

    line l = {.n = 0};
    uint64_t bytes = 0;
    for (int32_t i = 0; i < pi__gguf_n_files(g); i++) bytes += pi__gguf_file_size(g, i);
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    add_str(&l, (pi__str) {base, strlen(base)}, STR_MAX_BYTES);
    add(&l, ": GGUF v%u, ", pi__gguf_version(g));
    if (pi__gguf_n_files(g) > 1) add(&l, "%d files, ", pi__gguf_n_files(g));
    add(&l, "%llu bytes, alignment %u, %zu metadata entries", (unsigned long long) bytes, pi__gguf_alignment(g),
        pi__gguf_n_kv(g));
    fn(ud, l.text);

    for (size_t i = 0; i < pi__gguf_n_kv(g); i++) show_kv(pi__gguf_kv_at(g, i), fn, ud);
    show_totals(g, fn, ud);
    for (size_t i = 0; tensors && i < pi__gguf_n_tensors(g); i++) show_tensor(pi__gguf_tensor_at(g, i), fn, ud);
    pi__gguf_close(g);
    return PI_OK;
}
