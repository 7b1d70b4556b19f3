/* pi_quantize: rewrites a GGUF with its matrices in other formats.
 *
 * The type of every tensor is planned and checked before the output exists. Then tensors are processed one at a time,
 * in slabs of a few million values: all threads convert pieces of the slab to floats and to the new format, and the
 * slab is appended to the output. Memory: one slab in, one slab out and two pieces per thread, independent of the
 * model's size. The result does not depend on the number of threads, because blocks are independent. The output
 * appears under its name only when it is complete. */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/quantize_imatrix.h"
#include "api/quantize_mix.h"
#include "api/quantize_prune.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/versioned.h"
#include "formats/formats.h"

#define PIECE 16384 /* values that a thread takes at a time; a multiple of every block size */
#define MAX_THREADS 256
#define MIB (1024.0 * 1024.0)

typedef struct settings {
    pi__mix mix;           /* rules for the types of tensors */
    int n_threads;         /* at least 1 */
    bool allow_requantize; /* accept quantized input */
    bool dry_run;          /* plan and report, write nothing */
    const char *prune;     /* layers to remove, "0,3"; NULL = no pruning */
    const char *imatrix;        /* path of the importance file; NULL = no file */
    const char *const *options; /* the caller's options; repeatable ones are read from here */
} settings;

typedef struct item { /* a tensor of the plan */
    const pi__tensor *t; /* input tensor */
    int32_t type;        /* output type */
    uint64_t size;       /* output bytes */
} item;

typedef struct slab { /* values being converted, shared by the threads */
    const uint8_t *in;  /* input blocks of type `from` */
    uint8_t *out;       /* output blocks of type `to` */
    int64_t n;          /* values; a multiple of both block sizes */
    int32_t from, to;   /* enum pi__type */
    const pi__tensor *t; /* the tensor */
    int64_t first;      /* index of the slab's first value in the tensor */
    const float *importance; /* importance of its columns, per expert, or NULL */
    atomic_llong next;  /* first value that no thread has taken */
    atomic_llong n_odd; /* values that the target cannot hold: not finite, or too large */
} slab;

typedef struct worker {
    slab *s;
    float *x; /* [2][PIECE] values, then weights */
} worker;

typedef struct run { /* state of one pi_quantize */
    settings set;
    pi__gguf *g;
    pi__gguf_writer *w;
    item *items;         /* in file order */
    size_t n_items;
    uint8_t *in, *out;   /* input slab, output slab */
    float *pieces;       /* PIECE values and PIECE weights per thread */
    pi__imatrix imatrix; /* importance of columns */
    pi__prune prune;     /* layers to remove */
    int64_t slab_values; /* values per slab */
    pi_line_fn progress;
    void *ud;
} run;

const char *pi_quantize_type(size_t i)
{
    const pi__ftype *f = pi__ftype_at(i);
    return f ? f->name : NULL;
}

int pi_quantize_describe(size_t i, pi_quantize_info *out)
{
    const pi__ftype *f = pi__ftype_at(i);
    if (!f) return PI_ENOENT;
    if (pi__versioned_check(out)) return PI_EINVAL;
    const pi__type_info *t = f->type < 0 ? NULL : pi__type_info_of(f->type);
    double bits = t ? (double) t->type_size * 8 / (double) t->blck_size : 0;
    pi_quantize_info info = {0, f->number, f->name, t ? t->name : "", bits};
    return pi__versioned_copy(out, &info, sizeof info);
}

static void log_run(const run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void log_run(const run *r, const char *fmt, ...)
{
    char line[400];
    if (!r->progress) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    r->progress(r->ud, line);
}

/* --------------------------------------------------------------------------------------------------------- options */

static int flag_value(const char *key, const char *v, bool *out, pi_error *err)
{
    static const char *const words[] = {"0", "1", "false", "true", "off", "on", "no", "yes"};
    for (int i = 0; i < 8; i++) {
        if (strcmp(v, words[i]) == 0) {
            *out = i & 1;
            return PI_OK;
        }
    }
    return pi__fail(err, PI_EINVAL, "%s=%.80s: expected 0 or 1", key, v);
}

static int type_value(const char *key, const char *v, int32_t *out, pi_error *err)
{
    *out = pi__type_from_name(v);
    if (*out >= 0 && pi__type_info_of(*out)->writable) return PI_OK;
    return pi__fail(err, PI_EINVAL, "%s=%.80s: this type cannot be written", key, v);
}

/* Returns the value of "key=value", or NULL if option has another key. */
static const char *value_of(const char *option, const char *key)
{
    size_t n = 0;
    while (key[n] && (option[n] == key[n] || (option[n] == '_' && key[n] == '-'))) n++;
    return !key[n] && option[n] == '=' ? option + n + 1 : NULL;
}

static bool is_list(const char *key)
{
    return !strcmp(key, "override-kv") || !strcmp(key, "include-weights") || !strcmp(key, "exclude-weights");
}

static int set_option(settings *s, const char *option, pi_error *err)
{
    char key[32];
    const char *eq = strchr(option, '='), *v = eq ? eq + 1 : "1"; /* a name without a value means 1 */
    size_t n = eq ? (size_t) (eq - option) : strlen(option);
    if (n >= sizeof key) n = sizeof key - 1;
    for (size_t i = 0; i < n; i++) key[i] = option[i] == '_' ? '-' : option[i];
    key[n] = 0;
    if (strcmp(key, "pure") == 0) return flag_value(key, v, &s->mix.pure, err);
    if (strcmp(key, "leave-output-tensor") == 0) return flag_value(key, v, &s->mix.leave_output, err);
    if (strcmp(key, "allow-requantize") == 0) return flag_value(key, v, &s->allow_requantize, err);
    if (strcmp(key, "dry-run") == 0) return flag_value(key, v, &s->dry_run, err);
    if (strcmp(key, "prune-layers") == 0) {
        s->prune = *v ? v : NULL;
        return PI_OK;
    }
    if (is_list(key) && eq) return PI_OK; /* read by override_metadata and is_weighted */
    if (strcmp(key, "output-tensor-type") == 0) return type_value(key, v, &s->mix.output_type, err);
    if (strcmp(key, "token-embedding-type") == 0) return type_value(key, v, &s->mix.embd_type, err);
    if (strcmp(key, "tensor-type") == 0) return pi__mix_add_rule(&s->mix, v, err);
    if (strcmp(key, "imatrix") == 0) {
        s->imatrix = *v ? v : NULL;
        return PI_OK;
    }
    if (strcmp(key, "keep-split") == 0) {
        bool keep = false;
        int rc = flag_value(key, v, &keep, err);
        return rc != PI_OK || !keep ? rc : pi__fail(err, PI_EUNSUPPORTED, "keep-split is not supported: leave it out");
    }
    if (strcmp(key, "threads") == 0) {
        char *end;
        long threads = strtol(v, &end, 10);
        if (end == v || *end || threads < 0 || threads > MAX_THREADS) {
            return pi__fail(err, PI_EINVAL, "threads=%.80s: expected 0..%d", v, MAX_THREADS);
        }
        if (threads > 0) s->n_threads = (int) threads;
        return PI_OK;
    }
    return pi__fail(err, PI_EINVAL, "unknown option '%.80s'; known: allow-requantize, dry-run, exclude-weights, "
                    "imatrix, include-weights, keep-split, leave-output-tensor, output-tensor-type, override-kv, "
                    "prune-layers, pure, tensor-type, threads, token-embedding-type", key);
}

static int get_settings(settings *s, const char *type, const char *const *options, pi_error *err)
{
    const pi__ftype *f = type ? pi__ftype_find(type) : NULL;
    if (!f) return pi__fail(err, PI_EINVAL, "unknown type '%.80s'; known: Q4_K_M, Q8_0, BF16, ...", type ? type : "");
    pi__mix_init(&s->mix, f);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    s->n_threads = n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int) n;
    int rc = PI_OK;
    bool include = false, exclude = false;
    s->options = options;
    for (size_t i = 0; options && options[i] && rc == PI_OK; i++) {
        rc = set_option(s, options[i], err);
        include |= value_of(options[i], "include-weights") != NULL;
        exclude |= value_of(options[i], "exclude-weights") != NULL;
    }
    if (rc == PI_OK && include && exclude)
        rc = pi__fail(err, PI_EINVAL, "include-weights and exclude-weights exclude each other: give one of them");
    return rc;
}

static int override_metadata(const settings *s, pi__gguf *g, pi_error *err)
{
    int rc = PI_OK;
    for (size_t i = 0; s->options && s->options[i] && rc == PI_OK; i++) {
        const char *rule = value_of(s->options[i], "override-kv");
        if (rule) rc = pi__gguf_override_kv(g, rule, err);
    }
    return rc;
}

/* True if the importance matrix applies to t. Entries of include-weights and exclude-weights match parts of its
 * name. */
static bool is_weighted(const settings *s, const pi__tensor *t)
{
    bool listed = false, found = false;
    for (size_t i = 0; s->options && s->options[i]; i++) {
        const char *in = value_of(s->options[i], "include-weights"), *ex = value_of(s->options[i], "exclude-weights");
        const char *part = in ? in : ex;
        if (part && memmem(t->name.p, t->name.n, part, strlen(part))) {
            if (ex) return false;
            found = true;
        }
        listed |= in != NULL;
    }
    return found || !listed;
}

/* ------------------------------------------------------------------------------------------------------------ plan */

static int compare_items(const void *a, const void *b)
{
    return pi__mix_order((*(item *const *) a)->t, (*(item *const *) b)->t);
}

static int64_t n_values(const pi__tensor *t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

static int check_item(const run *r, const item *it, pi_error *err)
{
    const pi__tensor *t = it->t;
    const pi__type_info *from = pi__type_info_of(t->type);
    if (it->type == t->type) return PI_OK;
    if (pi__mix_needs_imatrix(t, it->type) && !(is_weighted(&r->set, t) && pi__imatrix_has(&r->imatrix, t))) {
        return pi__fail(err, PI_EINVAL, "tensor %.60s: %s needs its importance: set imatrix=FILE to a file that has it "
                        "('pagedinfer imatrix' writes one), or choose Q2_K or more bits", t->cname,
                        pi__type_info_of(it->type)->name);
    }
    if (!from->readable) {
        return pi__fail(err, PI_EUNSUPPORTED, "tensor %.80s: %s cannot be converted", t->cname, from->name);
    }
    if (from->blck_size > 1 && !r->set.allow_requantize) {
        return pi__fail(err, PI_EINVAL, "tensor %.60s is already quantized (%s), which adds error: start from F16, "
                        "BF16 or F32, or set allow-requantize=1", t->cname, from->name);
    }
    return PI_OK;
}

/* Plans the type of every tensor. pi__mix_type is called layer by layer, independent of the order in the file. */
static int make_plan(run *r, pi_error *err)
{
    r->n_items = pi__gguf_n_tensors(r->g);
    r->items = pi__calloc(r->n_items, sizeof *r->items);
    item **sorted = pi__calloc(r->n_items, sizeof(item *));
    int rc = r->items && sorted ? pi__mix_begin(&r->set.mix, r->g, err) : pi__fail_mem(err, "the list of tensors");
    if (rc != PI_OK) goto out;
    size_t n_all = r->n_items;
    r->set.mix.n_layer -= r->prune.n_gone;
    r->n_items = 0;
    for (size_t i = 0; i < n_all; i++) {
        const pi__tensor *t = pi__gguf_tensor_at(r->g, i);
        if (pi__prune_drops(&r->prune, t)) continue;
        r->items[r->n_items].t = t;
        sorted[r->n_items] = &r->items[r->n_items];
        r->n_items++;
    }
    qsort(sorted, r->n_items, sizeof(item *), compare_items);
    for (size_t i = 0; i < r->n_items && rc == PI_OK; i++) {
        item *it = sorted[i];
        rc = pi__mix_type(&r->set.mix, it->t, &it->type, err);
        if (rc != PI_OK) break;
        const pi__type_info *to = pi__type_info_of(it->type);
        it->size = it->type == it->t->type ? it->t->size : (uint64_t) n_values(it->t) / to->blck_size * to->type_size;
        rc = check_item(r, it, err);
    }
out:
    pi__free(sorted);
    return rc;
}

static bool key_is(const pi__gguf_kv *kv, const char *name)
{
    return kv->key.n == strlen(name) && memcmp(kv->key.p, name, kv->key.n) == 0;
}

static bool has_prefix(const pi__gguf_kv *kv, const char *prefix)
{
    return kv->key.n >= strlen(prefix) && memcmp(kv->key.p, prefix, strlen(prefix)) == 0;
}

static bool is_copy(const run *r) { return r->set.mix.ftype->type < 0; }

static bool is_overridden(const run *r, const pi__gguf_kv *kv)
{
    for (size_t i = 0; r->set.options && r->set.options[i]; i++) {
        const char *rule = value_of(r->set.options[i], "override-kv");
        if (rule && strcspn(rule, "=") == kv->key.n && !memcmp(rule, kv->key.p, kv->key.n)) return true;
    }
    return false;
}

static bool has_suffix(const pi__gguf_kv *kv, const char *suffix)
{
    size_t n = strlen(suffix);
    return kv->key.n >= n && memcmp(kv->key.p + kv->key.n - n, suffix, n) == 0;
}

/* Copies a metadata entry. Values from override-kv have 64 bits; they are written with 32 bits if they fit, as in
 * other files. The number of layers excludes removed ones. */
static int put_kv(const run *r, const pi__gguf_kv *kv, pi_error *err)
{
    bool layers = r->prune.n_gone && has_suffix(kv, ".block_count");
    int64_t v = kv->type == PI__GGUF_I64 ? pi__gguf_elem_i64(kv, 0) : -1;
    bool number = kv->type == PI__GGUF_F64 || (v >= 0 && v <= UINT32_MAX);
    if (!layers && (!number || !is_overridden(r, kv))) {
        pi__gguf_put_kv(r->w, kv);
        return PI_OK;
    }
    char *key = pi__strndup(kv->key.p, kv->key.n);
    if (!key) return pi__fail_mem(err, "a key of the metadata");
    uint32_t u = layers ? (uint32_t) (r->prune.n_layer - r->prune.n_gone) : (uint32_t) v;
    float f = kv->type == PI__GGUF_F64 ? (float) pi__gguf_elem_f64(kv, 0) : 0;
    if (!layers && kv->type == PI__GGUF_F64) pi__gguf_put(r->w, key, PI__GGUF_F32, &f);
    else pi__gguf_put(r->w, key, PI__GGUF_U32, &u);
    pi__free(key);
    return PI_OK;
}

/* Writes all metadata except keys about formats and splits. */
static int write_header(run *r, const char *path, pi_error *err)
{
    static const char *const dropped[] = {"general.quantization_version", "general.file_type", "split.no",
                                          "split.count", "split.tensors.count", "quantize.imatrix.file",
                                          "quantize.imatrix.dataset", "quantize.imatrix.entries_count",
                                          "quantize.imatrix.chunks_count"};
    int rc = pi__gguf_writer_open(&r->w, path, pi__gguf_alignment(r->g), err);
    if (rc != PI_OK) return rc;
    for (size_t i = 0; i < pi__gguf_n_kv(r->g); i++) {
        const pi__gguf_kv *kv = pi__gguf_kv_at(r->g, i);
        bool keep = true;
        for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++) keep = keep && !key_is(kv, dropped[k]);
        keep |= is_copy(r) && !has_prefix(kv, "split.");
        if (keep) rc = put_kv(r, kv, err);
        if (rc != PI_OK) return rc;
    }
    if (r->imatrix.g) {
        pi__str file = {r->set.imatrix, strlen(r->set.imatrix)};
        pi__gguf_put(r->w, "quantize.imatrix.file", PI__GGUF_STR, &file);
        pi__gguf_put(r->w, "quantize.imatrix.entries_count", PI__GGUF_U32, &r->imatrix.n);
        pi__gguf_put(r->w, "quantize.imatrix.chunks_count", PI__GGUF_U32, &r->imatrix.n_chunks);
    }
    uint32_t version = 2, ftype = (uint32_t) r->set.mix.ftype->number;
    if (!is_copy(r)) {
        pi__gguf_put(r->w, "general.quantization_version", PI__GGUF_U32, &version);
        pi__gguf_put(r->w, "general.file_type", PI__GGUF_U32, &ftype);
    }
    for (size_t i = 0; i < r->n_items; i++) {
        const pi__tensor *t = r->items[i].t;
        char *name = pi__malloc(t->name.n + 1);
        if (!name) return pi__fail_mem(err, "a tensor's name");
        pi__prune_name(&r->prune, t, name);
        pi__gguf_put_tensor(r->w, name, r->items[i].type, t->n_dims, t->ne);
        pi__free(name);
    }
    return pi__gguf_writer_begin(r->w, err);
}

/* ------------------------------------------------------------------------------------------------------ conversion */

static long long count_odd(const float *x, int64_t n)
{
    long long odd = 0;
    for (int64_t i = 0; i < n; i++) odd += !(fabsf(x[i]) <= 65504.0f);
    return odd;
}

/* Fills w with the weights of n values from index `at` of the tensor on. Each row has the weights of its expert's
 * columns. */
static void gather_weights(const slab *s, int64_t at, int64_t n, float *w)
{
    const pi__tensor *t = s->t;
    while (n > 0) {
        int64_t row = at / t->ne[0], col = at % t->ne[0], expert = row / t->ne[1] % t->ne[2];
        int64_t take = t->ne[0] - col < n ? t->ne[0] - col : n;
        memcpy(w, s->importance + expert * t->ne[0] + col, (size_t) take * sizeof *w);
        w += take;
        at += take;
        n -= take;
    }
}

static void *convert_pieces(void *arg)
{
    worker *wk = arg;
    slab *s = wk->s;
    const pi__type_info *from = pi__type_info_of(s->from), *to = pi__type_info_of(s->to);
    for (;;) {
        long long at = atomic_fetch_add(&s->next, PIECE);
        if (at >= s->n) return NULL;
        int64_t n = s->n - at < PIECE ? s->n - at : PIECE;
        pi__dequantize_row(s->from, s->in + pi__row_size(from, at), wk->x, n);
        if (to->blck_size > 1) {
            long long odd = count_odd(wk->x, n);
            if (odd) atomic_fetch_add(&s->n_odd, odd);
        }
        float *w = s->importance ? wk->x + PIECE : NULL;
        if (w) gather_weights(s, s->first + at, n, w);
        pi__quantize_row(s->to, wk->x, s->out + pi__row_size(to, at), n, w);
    }
}

/* Converts a slab with all threads. If a thread cannot be started, the others do its work. */
static void convert_slab(const run *r, slab *s)
{
    pthread_t id[MAX_THREADS];
    worker wk[MAX_THREADS];
    int n = 0, started = 0;
    int64_t n_pieces = (s->n + PIECE - 1) / PIECE;
    while (n < r->set.n_threads && n < n_pieces) {
        wk[n] = (worker) {s, r->pieces + (size_t) n * 2 * PIECE};
        n++;
    }
    for (int i = 1; i < n; i++) {
        if (!pi__thread_start(&id[started], convert_pieces, &wk[i])) break;
        started++;
    }
    convert_pieces(&wk[0]);
    for (int i = 0; i < started; i++) pthread_join(id[i], NULL);
}

static int convert_slabs(const run *r, const item *it, const float *importance, long long *n_odd, pi_error *err)
{
    const pi__type_info *from = pi__type_info_of(it->t->type), *to = pi__type_info_of(it->type);
    int64_t total = n_values(it->t);
    for (int64_t at = 0; at < total; at += r->slab_values) {
        int64_t n = total - at < r->slab_values ? total - at : r->slab_values;
        slab s = {.in = r->in, .out = r->out, .n = n, .from = it->t->type, .to = it->type, .t = it->t, .first = at,
                  .importance = importance};
        int rc = pi__gguf_read(r->g, it->t, pi__row_size(from, at), r->in, pi__row_size(from, n), err);
        if (rc != PI_OK) return rc;
        convert_slab(r, &s);
        *n_odd += s.n_odd;
        rc = pi__gguf_writer_data(r->w, r->out, pi__row_size(to, n), err);
        if (rc != PI_OK) return rc;
    }
    return PI_OK;
}

static int convert_tensor(const run *r, const item *it, long long *n_odd, pi_error *err)
{
    float *importance = NULL;
    int rc = is_weighted(&r->set, it->t) ? pi__imatrix_weights(&r->imatrix, it->t, &importance, err) : PI_OK;
    if (rc == PI_OK) rc = convert_slabs(r, it, importance, n_odd, err);
    pi__free(importance);
    return rc;
}

static int copy_tensor(const run *r, const item *it, pi_error *err)
{
    size_t step = (size_t) r->slab_values;
    int rc = PI_OK;
    for (uint64_t at = 0; at < it->size && rc == PI_OK; at += step) {
        size_t n = it->size - at < step ? (size_t) (it->size - at) : step;
        rc = pi__gguf_read(r->g, it->t, at, r->in, n, err);
        if (rc == PI_OK) rc = pi__gguf_writer_data(r->w, r->in, n, err);
    }
    return rc;
}

static void report_tensor(const run *r, size_t i, long long n_odd)
{
    const item *it = &r->items[i];
    const pi__tensor *t = it->t;
    const char *from = pi__type_info_of(t->type)->name, *to = pi__type_info_of(it->type)->name;
    log_run(r, "[%4zu/%4zu] %-36s - [%lld, %lld, %lld, %lld], %s -> %s, %.3f -> %.3f MiB", i + 1, r->n_items, t->cname,
            (long long) t->ne[0], (long long) t->ne[1], (long long) t->ne[2], (long long) t->ne[3], from, to,
            (double) t->size / MIB, (double) it->size / MIB);
    if (n_odd) log_run(r, "warning: %s: %lld values are not finite or above 65504: stored as 0 or clamped",
                       t->cname, n_odd);
}

static int write_tensors(run *r, pi_error *err)
{
    uint64_t before = 0, after = 0, values = 0;
    for (size_t i = 0; i < r->n_items; i++) {
        const item *it = &r->items[i];
        long long n_odd = 0;
        int rc = r->set.dry_run             ? PI_OK
                 : it->type == it->t->type ? copy_tensor(r, it, err)
                                           : convert_tensor(r, it, &n_odd, err);
        if (rc != PI_OK) return rc;
        if (!r->set.dry_run) pi__gguf_drop(r->g, it->t, 0, it->t->size);
        report_tensor(r, i, n_odd);
        before += it->t->size;
        after += it->size;
        values += (uint64_t) n_values(it->t);
    }
    double n = values ? (double) values : 1;
    log_run(r, "model size: %.2f MiB (%.2f bits per weight)", (double) before / MIB, (double) before * 8 / n);
    log_run(r, "quantized size: %.2f MiB (%.2f bits per weight)", (double) after / MIB, (double) after * 8 / n);
    return PI_OK;
}

static int get_buffers(run *r, pi_error *err)
{
    int64_t least = 1 << 20, wanted = (int64_t) r->set.n_threads * 8 * PIECE;
    r->slab_values = wanted > least ? wanted : least;
    r->in = pi__malloc((size_t) r->slab_values * sizeof(float)); /* floats are the widest type */
    r->out = pi__malloc((size_t) r->slab_values * sizeof(float));
    r->pieces = pi__malloc((size_t) r->set.n_threads * 2 * PIECE * sizeof(float));
    return r->in && r->out && r->pieces ? PI_OK : pi__fail_mem(err, "conversion buffers");
}

/* Refuses an output that is the input file. */
static int check_paths(const char *in, const char *out, bool dry_run, pi_error *err)
{
    struct stat a, b;
    if (dry_run && in) return PI_OK;
    if (!in || !out || !*out) return pi__fail(err, PI_EINVAL, "pi_quantize needs an input and an output file");
    if (stat(in, &a) != 0 || stat(out, &b) != 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino) return PI_OK;
    return pi__fail(err, PI_EINVAL, "%.160s is both input and output: give another output file", out);
}

int pi_quantize(const char *in, const char *out, const char *type, const char *const *options, pi_line_fn progress,
                void *ud, pi_error *err)
{
    run r = {.progress = progress, .ud = ud};
    int rc = get_settings(&r.set, type, options, err);
    if (rc == PI_OK) rc = check_paths(in, out, r.set.dry_run, err);
    if (rc == PI_OK) rc = pi__gguf_open(&r.g, in, PI__LOAD_MMAP, err);
    if (rc == PI_OK) rc = override_metadata(&r.set, r.g, err);
    if (rc == PI_OK && r.set.imatrix) rc = pi__imatrix_open(&r.imatrix, r.set.imatrix, err);
    r.set.mix.imatrix = r.imatrix.g != NULL;
    if (rc == PI_OK && r.set.prune) rc = pi__prune_init(&r.prune, r.set.prune, r.g, err);
    if (rc == PI_OK) rc = make_plan(&r, err);
    if (rc == PI_OK && !r.set.dry_run) rc = get_buffers(&r, err);
    if (rc == PI_OK && !r.set.dry_run) rc = write_header(&r, out, err);
    if (rc == PI_OK) rc = write_tensors(&r, err);
    if (rc == PI_OK && !r.set.dry_run) {
        rc = pi__gguf_writer_close(r.w, true, err);
    } else {
        pi__gguf_writer_close(r.w, false, NULL);
    }
    pi__free(r.in);
    pi__free(r.out);
    pi__free(r.pieces);
    pi__free(r.items);
    pi__mix_free(&r.set.mix);
    pi__prune_free(&r.prune);
    pi__imatrix_close(&r.imatrix);
    pi__gguf_close(r.g);
    return rc;
}
