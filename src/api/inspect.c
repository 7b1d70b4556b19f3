/* The contents of a model file, as lines for people (pi_model_inspect) and for programs (pi_model_json): metadata,
 * totals, tensors.
 *
 *     gemma.gguf: GGUF v3, 253113024 bytes, alignment 32
 *     general.architecture                        str          "gemma3"
 *     tokenizer.ggml.tokens                       str[262144]  ["<pad>", "<eos>", "<bos>", "<unk>", ...]
 *     tensors: 236, 268098176 parameters (268.10 M), 241468928 bytes (230.28 MiB)
 *       F32         109 tensors        94208 parameters         376832 bytes
 *     blk.0.attn_k.weight  [640, 256]  Q5_0  112640 bytes  file 0  offset 11700480
 *
 * Every string of the file is escaped and, for people, truncated. Memory: the GGUF reader's. A line for people is
 * built on the stack; lines for programs share a buffer that grows to the longest. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"
#include "gguf/gguf.h"
#include "model/model.h"

enum {
    LINE_MAX_BYTES = 1000,
    KEY_MAX_BYTES = 200,     /* maximum bytes shown of a key or tensor name */
    STR_MAX_BYTES = 200,     /* maximum bytes shown of a string value */
    ELEM_STR_MAX_BYTES = 40, /* maximum bytes shown of a string in an array */
    ARRAY_MAX_BYTES = 300    /* an array's elements are shown until the line has this many bytes */
};

typedef struct line { /* text, truncated at LINE_MAX_BYTES */
    char text[LINE_MAX_BYTES];
    size_t n; /* bytes, without the final NUL */
} line;

static void add_text(line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add_text(line *l, const char *fmt, ...)
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
    add_text(l, "%s", buf);
}

/* Adds the shortest decimal that reads back as v. */
static void add_float(line *l, double v, bool single)
{
    char buf[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (single ? strtof(buf, NULL) == (float) v : strtod(buf, NULL) == v) break;
    }
    add_text(l, "%s", buf);
}

static void add_value(line *l, const pi__gguf_kv *kv, uint64_t i, size_t str_max)
{
    switch (kv->arr_type) {
    case PI__GGUF_STR:
        add_text(l, "\"");
        add_str(l, pi__gguf_elem_str(kv, i), str_max);
        add_text(l, "\"");
        break;
    case PI__GGUF_BOOL: add_text(l, "%s", pi__gguf_elem_u64(kv, i) ? "true" : "false"); break;
    case PI__GGUF_F32: add_float(l, pi__gguf_elem_f64(kv, i), true); break;
    case PI__GGUF_F64: add_float(l, pi__gguf_elem_f64(kv, i), false); break;
    case PI__GGUF_I8: case PI__GGUF_I16: case PI__GGUF_I32: case PI__GGUF_I64:
        add_text(l, "%lld", (long long) pi__gguf_elem_i64(kv, i));
        break;
    default: add_text(l, "%llu", (unsigned long long) pi__gguf_elem_u64(kv, i));
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
    add_text(&l, "%*s  %-12s ", l.n < 42 ? (int) (42 - l.n) : 0, "", type);
    if (kv->type != PI__GGUF_ARR) {
        add_value(&l, kv, 0, STR_MAX_BYTES);
    } else {
        uint64_t i = 0;
        add_text(&l, "[");
        for (; i < kv->n && i < 8 && l.n < ARRAY_MAX_BYTES; i++) {
            if (i > 0) add_text(&l, ", ");
            add_value(&l, kv, i, ELEM_STR_MAX_BYTES);
        }
        add_text(&l, i < kv->n ? ", ...]" : "]");
    }
    fn(ud, l.text);
}

/* Adds "268098176 parameters (268.10 M)" or "1234 bytes (1.21 KiB)": the number, and a rounded form if it is
 * large. */
static void add_amount(line *l, uint64_t v, const char *what, double step, const char *const units[4])
{
    double r = (double) v;
    int u = -1;
    while (r >= step && u < 3) {
        r /= step;
        u++;
    }
    add_text(l, "%llu %s", (unsigned long long) v, what);
    if (u >= 0) add_text(l, " (%.2f %s)", r, units[u]);
}

static uint64_t n_elements(const pi__tensor *t)
{
    return (uint64_t) t->ne[0] * (uint64_t) t->ne[1] * (uint64_t) t->ne[2] * (uint64_t) t->ne[3];
}

typedef struct total {
    uint64_t tensors, params, bytes;
} total;

static void add_tensor(total *to, const pi__tensor *t)
{
    to->tensors++;
    to->params += n_elements(t);
    to->bytes += t->size;
}

static void count_tensors(const pi__gguf *g, total by_type[PI__N_TYPES], total *all)
{
    for (size_t i = 0; i < pi__gguf_n_tensors(g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(g, i);
        add_tensor(&by_type[t->type], t);
        add_tensor(all, t);
    }
}

static void show_totals(const pi__gguf *g, pi_line_fn fn, void *ud)
{
    static const char *const thousands[4] = {"K", "M", "B", "T"}, *const binary[4] = {"KiB", "MiB", "GiB", "TiB"};
    total by_type[PI__N_TYPES] = {{0, 0, 0}}, all = {0, 0, 0};
    count_tensors(g, by_type, &all);
    line l = {.n = 0};
    add_text(&l, "tensors: %zu, ", pi__gguf_n_tensors(g));
    add_amount(&l, all.params, "parameters", 1000, thousands);
    add_text(&l, ", ");
    add_amount(&l, all.bytes, "bytes", 1024, binary);
    fn(ud, l.text);
    for (int32_t type = 0; type < PI__N_TYPES; type++) {
        if (by_type[type].tensors == 0) continue;
        l.n = 0;
        add_text(&l, "  %-8s %6llu tensors %16llu parameters %16llu bytes", pi__type_info_of(type)->name,
                 (unsigned long long) by_type[type].tensors, (unsigned long long) by_type[type].params,
                 (unsigned long long) by_type[type].bytes);
        fn(ud, l.text);
    }
}

static void show_tensor(const pi__tensor *t, pi_line_fn fn, void *ud)
{
    line l = {.n = 0};
    add_str(&l, t->name, KEY_MAX_BYTES);
    add_text(&l, "%*s  [", l.n < 34 ? (int) (34 - l.n) : 0, "");
    for (int d = 0; d < t->n_dims; d++) add_text(&l, "%s%lld", d ? ", " : "", (long long) t->ne[d]);
    add_text(&l, "]  %s  %llu bytes  file %d  offset %llu", pi__type_info_of(t->type)->name,
             (unsigned long long) t->size, t->file, (unsigned long long) t->offset);
    fn(ud, l.text);
}

static uint64_t bytes_of_files(const pi__gguf *g)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < pi__gguf_n_files(g); i++) bytes += pi__gguf_file_size(g, i);
    return bytes;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Adds a line for a file that is not a plain model: a draft head, a drafter, a vocabulary. */
static void show_kind(const pi__gguf *g, pi_line_fn fn, void *ud)
{
    static const char *const text[] = {
        [PI__KIND_WITH_HEAD] = "a model with a draft head (spec-type mtp)",
        [PI__KIND_DRAFTER] = "a drafter: give it as model-draft (-md) with its model",
        [PI__KIND_VOCABULARY] = "a vocabulary without tensors",
    };
    const char *kind = text[pi__model_kind(g)];
    if (kind) fn(ud, kind);
}

int pi_model_inspect(const char *path, bool tensors, pi_line_fn fn, void *ud, pi_error *err)
{
    if (!path || !fn) return pi__fail(err, PI_EINVAL, "pi_model_inspect: path and fn must not be NULL");
    pi__gguf *g;
    int rc = pi__gguf_open(&g, path, PI__LOAD_MMAP, err);
    if (rc != PI_OK) return rc;

    line l = {.n = 0};
    const char *base = base_name(path);
    add_str(&l, (pi__str) {base, strlen(base)}, STR_MAX_BYTES);
    add_text(&l, ": GGUF v%u, ", pi__gguf_version(g));
    if (pi__gguf_n_files(g) > 1) add_text(&l, "%d files, ", pi__gguf_n_files(g));
    add_text(&l, "%llu bytes, alignment %u, %zu metadata entries", (unsigned long long) bytes_of_files(g),
             pi__gguf_alignment(g), pi__gguf_n_kv(g));
    fn(ud, l.text);
    show_kind(g, fn, ud);

    for (size_t i = 0; i < pi__gguf_n_kv(g); i++) show_kv(pi__gguf_kv_at(g, i), fn, ud);
    show_totals(g, fn, ud);
    for (size_t i = 0; tensors && i < pi__gguf_n_tensors(g); i++) show_tensor(pi__gguf_tensor_at(g, i), fn, ud);
    pi__gguf_close(g);
    return PI_OK;
}

/* ---------------------------------------------------------------------------------------------------- for programs */

enum { LONG_ARRAY = 64, FIRST_ELEMENTS = 8 }; /* an array of more than LONG_ARRAY elements shows the first ones */

/* Arguments of the functions that write one line; each function reads the fields that it needs. */
typedef struct item {
    const pi__gguf *g;
    const char *path;
    const pi__gguf_kv *kv;
    const pi__tensor *t;
    uint64_t most; /* maximum elements shown of an array */
} item;

static void add_count(pi__sink *t, const char *name, uint64_t n)
{
    char buf[64];
    pi__sink_add(t, buf, (size_t) snprintf(buf, sizeof buf, "\"%s\": %llu", name, (unsigned long long) n));
}

static void json_file(pi__sink *t, const item *it)
{
    static const char *const kind[] = {"model", "model with a draft head", "drafter", "vocabulary"};
    const char *base = base_name(it->path);
    char buf[160];
    pi__sink_puts(t, "{\"file\": ");
    pi__sink_json(t, (pi__str) {base, strlen(base)});
    snprintf(buf, sizeof buf, ", \"version\": %u, \"alignment\": %u, \"bytes\": %llu, \"files\": %d, \"kind\": \"%s\"}",
             pi__gguf_version(it->g), pi__gguf_alignment(it->g), (unsigned long long) bytes_of_files(it->g),
             pi__gguf_n_files(it->g), kind[pi__model_kind(it->g)]);
    pi__sink_puts(t, buf);
}

static void json_kv(pi__sink *t, const item *it)
{
    const pi__gguf_kv *kv = it->kv;
    pi__sink_puts(t, "{\"key\": ");
    pi__sink_json(t, kv->key);
    pi__sink_puts(t, ", \"type\": \"");
    pi__sink_puts(t, pi__gguf_type_name(kv->arr_type));
    pi__sink_puts(t, "\", ");
    if (kv->type == PI__GGUF_ARR) {
        add_count(t, "length", kv->n);
        pi__sink_puts(t, kv->n > it->most ? ", \"cut\": true, " : ", ");
    }
    pi__sink_puts(t, "\"value\": ");
    pi__gguf_value_text(t, kv, it->most, true);
    pi__sink_puts(t, "}");
}

static void json_total(pi__sink *t, const total *n)
{
    add_count(t, "tensors", n->tensors);
    pi__sink_puts(t, ", ");
    add_count(t, "parameters", n->params);
    pi__sink_puts(t, ", ");
    add_count(t, "bytes", n->bytes);
}

static void json_totals(pi__sink *t, const item *it)
{
    total by_type[PI__N_TYPES] = {{0, 0, 0}}, all = {0, 0, 0};
    bool any = false;
    count_tensors(it->g, by_type, &all);
    pi__sink_puts(t, "{");
    json_total(t, &all);
    pi__sink_puts(t, ", \"types\": {");
    for (int32_t type = 0; type < PI__N_TYPES; type++) {
        if (!by_type[type].tensors) continue; /* unused or unknown type number */
        const char *name = pi__type_info_of(type)->name;
        pi__sink_puts(t, any ? ", " : "");
        pi__sink_json(t, (pi__str) {name, strlen(name)});
        pi__sink_puts(t, ": {");
        json_total(t, &by_type[type]);
        pi__sink_puts(t, "}");
        any = true;
    }
    pi__sink_puts(t, "}}");
}

static void json_tensor(pi__sink *t, const item *it)
{
    char buf[64];
    pi__sink_puts(t, "{\"tensor\": ");
    pi__sink_json(t, it->t->name);
    pi__sink_puts(t, ", \"type\": \"");
    pi__sink_puts(t, pi__type_info_of(it->t->type)->name);
    pi__sink_puts(t, "\", \"shape\": [");
    for (int d = 0; d < it->t->n_dims; d++)
        pi__sink_add(t, buf, (size_t) snprintf(buf, sizeof buf, "%s%lld", d ? ", " : "", (long long) it->t->ne[d]));
    pi__sink_puts(t, "], ");
    add_count(t, "bytes", it->t->size);
    pi__sink_puts(t, ", ");
    add_count(t, "file", (uint64_t) it->t->file);
    pi__sink_puts(t, ", ");
    add_count(t, "offset", it->t->offset);
    pi__sink_puts(t, "}");
}

typedef struct json_out {
    pi_line_fn fn; /* receives lines */
    void *ud;
    char *line;    /* [cap] line buffer; grows */
    size_t cap;
    int rc;        /* after a failure nothing more is written */
    pi_error *err;
} json_out;

/* Writes a line. If the buffer is too small, grows it and writes the line again. */
static void emit_item(json_out *o, void (*write)(pi__sink *, const item *), const item *it)
{
    for (int i = 0; i < 2 && !o->rc; i++) {
        pi__sink t = {.p = o->line, .cap = o->cap};
        write(&t, it);
        if (t.n < o->cap) {
            o->line[t.n] = 0;
            o->fn(o->ud, o->line);
            return;
        }
        if (!pi__grow(&o->line, &o->cap, t.n + 1, 1)) o->rc = pi__fail_mem(o->err, "a line of the file's contents");
    }
}

int pi_model_json(const char *path, int flags, pi_line_fn fn, void *ud, pi_error *err)
{
    if (!path || !fn) return pi__fail(err, PI_EINVAL, "pi_model_json: path and fn must not be NULL");
    pi__gguf *g;
    json_out o = {.fn = fn, .ud = ud, .err = err};
    o.rc = pi__gguf_open(&g, path, PI__LOAD_MMAP, err);
    if (o.rc) return o.rc;
    item it = {.g = g, .path = path};
    emit_item(&o, json_file, &it);
    for (size_t i = 0; i < pi__gguf_n_kv(g); i++) {
        it.kv = pi__gguf_kv_at(g, i);
        it.most = it.kv->n > LONG_ARRAY && !(flags & PI_JSON_ALL) ? FIRST_ELEMENTS : UINT64_MAX;
        emit_item(&o, json_kv, &it);
    }
    emit_item(&o, json_totals, &it);
    for (size_t i = 0; flags & PI_JSON_TENSORS && i < pi__gguf_n_tensors(g); i++) {
        it.t = pi__gguf_tensor_at(g, i);
        emit_item(&o, json_tensor, &it);
    }
    pi__free(o.line);
    pi__gguf_close(g);
    return o.rc;
}
