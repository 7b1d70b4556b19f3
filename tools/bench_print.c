/* Output of `pagedinfer bench`: llama-bench's table, CSV, JSON and SQL, with the names that its scripts read.
 *
 * Two additional columns: steady_avg_ts and steady_stddev_ts, the decode speed without the first tokens. */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "options.h"

typedef struct stat2 { double mean, sd; } stat2;

static stat2 stat_of(const double *v, size_t n)
{
    stat2 s = {0, 0};
    for (size_t i = 0; i < n; i++) s.mean += v[i] / (double) n;
    for (size_t i = 0; i < n; i++) s.sd += (v[i] - s.mean) * (v[i] - s.mean);
    s.sd = n > 1 ? sqrt(s.sd / (double) (n - 1)) : 0;
    return s;
}

static double speed_of(const bench_test *t, double ns) { return (double) (t->n_prompt + t->n_gen) * 1e9 / ns; }

static stat2 speeds(const bench *b, const bench_test *t)
{
    stat2 s = {0, 0};
    double *v = malloc((b->n_sample + 1) * sizeof *v);
    for (size_t i = 0; v && i < b->n_sample; i++) v[i] = speed_of(t, b->sample_ns[i]);
    if (v) s = stat_of(v, b->n_sample);
    free(v);
    return s;
}

/* ---------------------------------------------------------------------------------------------------------- fields */

typedef struct field {
    const char *name;
    char type;        /* 's' text, 'i' integer, 'f' number, 'b' bool: 0 or 1, in JSON false or true */
    const char *text; /* its value */
    char buf[64];     /* storage of text, if needed */
} field;
enum { MOST_FIELDS = 64 };

typedef struct fields {
    field f[MOST_FIELDS];
    size_t n;
    char backend[64], cpu[128], gpu[256];
} fields;

static void add_text(fields *fs, const char *name, const char *text)
{
    fs->f[fs->n] = (field) {.name = name, .type = 's', .text = text};
    fs->n++;
}

static void add_int(fields *fs, const char *name, int64_t v)
{
    field *f = &fs->f[fs->n++];
    *f = (field) {.name = name, .type = 'i'};
    snprintf(f->buf, sizeof f->buf, "%lld", (long long) v);
    f->text = f->buf;
}

static void add_bool(fields *fs, const char *name, bool v)
{
    fs->f[fs->n++] = (field) {.name = name, .type = 'b', .text = v ? "1" : "0"};
}

static void add_number(fields *fs, const char *name, double v)
{
    field *f = &fs->f[fs->n++];
    *f = (field) {.name = name, .type = 'f'};
    snprintf(f->buf, sizeof f->buf, "%f", v);
    f->text = f->buf;
}

/* Converts a device name such as "cpu (avx512-vnni)" to "CPU". */
static void backend_name(const bench *b, char *out, size_t size)
{
    const char *d = b->info.device ? b->info.device : "cpu";
    size_t n = 0;
    for (; d[n] && d[n] != ' ' && n + 1 < size; n++) out[n] = (char) toupper((unsigned char) d[n]);
    out[n] = 0;
}

static void cpu_name(char *out, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    out[0] = 0;
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon || !colon[1]) continue;
        snprintf(out, size, "%.*s", (int) strcspn(colon + 2, "\n"), colon + 2);
    }
    if (f) fclose(f);
}

/* Returns the name of the model's device; "" for the CPU. */
static void gpu_name(const bench *b, char *out, size_t size)
{
    const char *used = b->info.device ? b->info.device : "cpu";
    pi_device d = {.size = sizeof d};
    size_t n = 0;
    out[0] = 0;
    if (!strncmp(used, "cpu", 3)) return; /* does not initialize a GPU driver */
    for (size_t i = 0; !pi_device_describe(i, &d); i++, d.size = sizeof d) {
        if (strcmp(d.name, "cpu") && d.usable && strstr(used, d.name) && n < size)
            n += (size_t) snprintf(out + n, size - n, "%s%s", n ? ", " : "", *d.desc ? d.desc : d.name);
    }
}

/* Returns an option's value, or llama-bench's text for an empty value. */
static const char *value_or(const bench *b, const char *key, const char *empty)
{
    const char *v = bench_value(b, key);
    return *v ? v : empty;
}

static int64_t int_value(const bench *b, const char *key)
{
    int64_t v;
    return options_int(bench_value(b, key), &v) ? v : 0;
}

static bool bool_value(const bench *b, const char *key)
{
    bool v;
    return options_bool(bench_value(b, key), &v) && v;
}

/* Adds the engine's settings under llama-bench's names, for scripts. */
static void collect_settings(const bench *b, fields *fs)
{
    const char *layers = bench_value(b, "gpu-layers"), *mode = bench_value(b, "load-mode");
    int64_t n_ubatch = int_value(b, "ubatch-size"), n_batch = int_value(b, "batch-size"), ngl;
    bool some = options_int(layers, &ngl);
    add_int(fs, "n_batch", n_batch > 0 ? n_batch : n_ubatch);
    add_int(fs, "n_ubatch", n_ubatch);
    add_int(fs, "n_threads", b->info.n_threads);
    add_text(fs, "cpu_mask", value_or(b, "cpu-mask", "0x0"));
    add_bool(fs, "cpu_strict", bool_value(b, "cpu-strict"));
    add_int(fs, "poll", int_value(b, "poll"));
    add_text(fs, "type_k", bench_value(b, "cache-type-k"));
    add_text(fs, "type_v", bench_value(b, "cache-type-v"));
    add_int(fs, "n_gpu_layers", some ? ngl : !strcmp(layers, "all") ? 99 : -1);
    add_int(fs, "n_cpu_moe", int_value(b, "n-cpu-moe"));
    add_text(fs, "split_mode", bench_value(b, "split-mode"));
    add_int(fs, "main_gpu", int_value(b, "main-gpu"));
    add_bool(fs, "no_kv_offload", !bool_value(b, "kv-offload"));
    add_int(fs, "flash_attn", 1); /* always uses fused attention */
    add_text(fs, "devices", bench_value(b, "device"));
    add_text(fs, "tensor_split", value_or(b, "tensor-split", "0.00"));
    add_text(fs, "tensor_buft_overrides", value_or(b, "override-tensor", "none"));
    add_text(fs, "load_mode", mode);
    add_text(fs, "lazy_mode", "auto");
    add_bool(fs, "use_mmap", !strcmp(mode, "auto") || !strncmp(mode, "mmap", 4));
    add_bool(fs, "use_direct_io", !strcmp(mode, "dio"));
    add_bool(fs, "embeddings", false);
    add_int(fs, "no_op_offload", !bool_value(b, "op-offload"));
    add_bool(fs, "no_host", bool_value(b, "no-host"));
    add_bool(fs, "repack", true);
    add_int(fs, "fit_target", int_value(b, "fit-target"));
    add_int(fs, "fit_min_ctx", int_value(b, "fit-ctx"));
    add_int(fs, "block_size", int_value(b, "block-size"));
}

/* Collects all fields; t == NULL: only their names. */
static void collect(const bench *b, const bench_test *t, fields *fs)
{
    static const bench_test none;
    stat2 ns = stat_of(b->sample_ns, t ? b->n_sample : 0), ts = {0, 0}, steady = {0, 0};
    time_t now = time(NULL);
    struct tm tm;
    if (t) ts = speeds(b, t);
    if (t && b->n_sample && b->steady[0] > 0) steady = stat_of(b->steady, b->n_sample);
    if (!t) t = &none;
    fs->n = 0;
    backend_name(b, fs->backend, sizeof fs->backend);
    cpu_name(fs->cpu, sizeof fs->cpu);
    gpu_name(b, fs->gpu, sizeof fs->gpu);
    add_text(fs, "build_commit", build_commit);
    add_int(fs, "build_number", build_number);
    add_text(fs, "cpu_info", fs->cpu);
    add_text(fs, "gpu_info", fs->gpu);
    add_text(fs, "backends", fs->backend);
    add_text(fs, "model_filename", bench_value(b, "model"));
    add_text(fs, "model_type", b->info.type_desc ? b->info.type_desc : "");
    add_int(fs, "model_size", (int64_t) b->info.file_bytes);
    add_int(fs, "model_n_params", (int64_t) b->info.n_params);
    collect_settings(b, fs);
    add_int(fs, "n_prompt", t->n_prompt);
    add_int(fs, "n_gen", t->n_gen);
    add_int(fs, "n_depth", t->n_depth);
    add_text(fs, "test_time", "");
    if (gmtime_r(&now, &tm)) strftime(fs->f[fs->n - 1].buf, sizeof fs->f[0].buf, "%FT%TZ", &tm);
    fs->f[fs->n - 1].text = fs->f[fs->n - 1].buf;
    add_int(fs, "avg_ns", (int64_t) ns.mean);
    add_int(fs, "stddev_ns", (int64_t) ns.sd);
    add_number(fs, "avg_ts", ts.mean);
    add_number(fs, "stddev_ts", ts.sd);
    add_number(fs, "steady_avg_ts", steady.mean);
    add_number(fs, "steady_stddev_ts", steady.sd);
}

/* -------------------------------------------------------------------------------------------------- CSV, JSON, SQL */

static void put_quoted(FILE *f, const char *s, char quote)
{
    fputc(quote, f);
    for (; *s; s++) {
        if (*s == quote) fputc(quote, f);
        fputc(*s, f);
    }
    fputc(quote, f);
}

static void put_json_text(FILE *f, const char *s)
{
    json_t *v = json_string(s);
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL; /* NULL also for a file name that is not UTF-8 */
    fputs(text ? text : "\"\"", f);
    free(text);
    json_decref(v);
}

static void put_json(const bench *b, const fields *fs, const bench_test *t, FILE *f, const char *indent,
                     const char *sep)
{
    for (size_t i = 0; i < fs->n; i++) {
        fprintf(f, "%s\"%s\": ", indent, fs->f[i].name);
        if (fs->f[i].type == 's') put_json_text(f, fs->f[i].text);
        else if (fs->f[i].type == 'b') fputs(*fs->f[i].text == '1' ? "true" : "false", f);
        else fputs(fs->f[i].text, f);
        fputs(sep, f);
    }
    fprintf(f, "%s\"samples_ns\": [", indent);
    for (size_t i = 0; i < b->n_sample; i++) fprintf(f, "%s%.0f", i ? ", " : "", b->sample_ns[i]);
    fprintf(f, "]%s%s\"samples_ts\": [", sep, indent);
    for (size_t i = 0; i < b->n_sample; i++) fprintf(f, "%s%f", i ? ", " : "", speed_of(t, b->sample_ns[i]));
    fputc(']', f);
}

static void print_sql_header(const fields *fs, FILE *f)
{
    fprintf(f, "CREATE TABLE IF NOT EXISTS llama_bench (\n");
    for (size_t i = 0; i < fs->n; i++) {
        const char *type = fs->f[i].type == 's' ? "TEXT" : fs->f[i].type == 'f' ? "REAL" : "INTEGER";
        fprintf(f, "  %s %s%s\n", fs->f[i].name, type, i + 1 < fs->n ? "," : "");
    }
    fprintf(f, ");\n\n");
}

static void print_sql_test(const fields *fs, FILE *f)
{
    fprintf(f, "INSERT INTO llama_bench (");
    for (size_t i = 0; i < fs->n; i++) fprintf(f, "%s%s", i ? ", " : "", fs->f[i].name);
    fprintf(f, ") VALUES (");
    for (size_t i = 0; i < fs->n; i++) {
        if (i) fprintf(f, ", ");
        put_quoted(f, fs->f[i].text, '\'');
    }
    fprintf(f, ");\n");
}

/* ----------------------------------------------------------------------------------------------------------- table */

/* True if the option has a column in addition to the fixed ones: it has several values or not the default. */
static bool has_column(const sweep_key *k)
{
    static const char *const never[] = {"model", "threads", "ctx-size", "kv-cache-tokens", "kv-cache-bytes", "parallel",
                                        "log-level"};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        if (!strcmp(k->key, never[i])) return false;
    }
    return k->n > 1 || strcmp(k->value[0], k->def) != 0;
}

static const char *column_name(const sweep_key *k, int *width)
{
    static const struct { const char *key, *name; int width; } known[] = {
        {"ubatch-size", "n_ubatch", 8}, {"batch-size", "n_batch", 7}, {"cache-type-k", "type_k", 6},
        {"cache-type-v", "type_v", 6}, {"gpu-layers", "ngl", 3}, {"kv-offload", "kv-offload", 10}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!strcmp(k->key, known[i].key)) {
            *width = known[i].width;
            return known[i].name;
        }
    }
    *width = strlen(k->key) > 10 ? (int) strlen(k->key) : 10;
    return k->key;
}

/* A negative width means left-aligned. */
static void put_rule(FILE *f, int width)
{
    fputc(' ', f);
    for (int i = 1; i < abs(width); i++) fputc('-', f);
    fprintf(f, "%c |", width > 0 ? ':' : '-');
}

static void print_md_header(const bench *b, FILE *f)
{
    static const struct { const char *name; int width; } head[] = {
        {"model", -30}, {"size", 10}, {"params", 10}, {"backend", -10}, {"threads", 7}},
        tail[] = {{"test", 15}, {"t/s", 20}, {"steady t/s", 20}};
    int width;
    fputc('|', f);
    for (size_t i = 0; i < 5; i++) fprintf(f, " %*s |", head[i].width, head[i].name);
    for (size_t i = 0; i < b->n_key; i++) {
        if (!has_column(&b->key[i])) continue;
        const char *name = column_name(&b->key[i], &width);
        fprintf(f, " %*s |", width, name);
    }
    for (size_t i = 0; i < 3; i++) fprintf(f, " %*s |", tail[i].width, tail[i].name);
    fprintf(f, "\n|");
    for (size_t i = 0; i < 5; i++) put_rule(f, head[i].width);
    for (size_t i = 0; i < b->n_key; i++) {
        if (!has_column(&b->key[i])) continue;
        column_name(&b->key[i], &width);
        put_rule(f, width);
    }
    for (size_t i = 0; i < 3; i++) put_rule(f, tail[i].width);
    fputc('\n', f);
}

static void test_name(const bench_test *t, char out[64])
{
    int n = t->n_gen == 0      ? snprintf(out, 64, "pp%d", t->n_prompt)
            : t->n_prompt == 0 ? snprintf(out, 64, "tg%d", t->n_gen)
                               : snprintf(out, 64, "pp%d+tg%d", t->n_prompt, t->n_gen);
    if (t->n_depth) snprintf(out + n, 64 - (size_t) n, " @ d%d", t->n_depth);
}

static void print_md_test(const bench *b, FILE *f, const bench_test *t)
{
    char size[32], params[32], backend[16], test[64], speed[64], steady[64] = "";
    double bytes = (double) b->info.file_bytes, n = (double) b->info.n_params;
    stat2 s = speeds(b, t), st = stat_of(b->steady, b->n_sample);
    int width;
    if (bytes < 1024.0 * 1024 * 1024) snprintf(size, sizeof size, "%.2f MiB", bytes / 1024 / 1024);
    else snprintf(size, sizeof size, "%.2f GiB", bytes / 1024 / 1024 / 1024);
    if (n < 1e9) snprintf(params, sizeof params, "%.2f M", n / 1e6);
    else snprintf(params, sizeof params, "%.2f B", n / 1e9);
    backend_name(b, backend, sizeof backend);
    test_name(t, test);
    snprintf(speed, sizeof speed, "%.2f ± %.2f", s.mean, s.sd);
    if (b->n_sample && b->steady[0] > 0) snprintf(steady, sizeof steady, "%.2f ± %.2f", st.mean, st.sd);
    const char *desc = b->info.type_desc ? b->info.type_desc : "";
    fprintf(f, "| %-30s | %10s | %10s | %-10s | %7u |", desc, size, params, backend, b->info.n_threads);
    for (size_t i = 0; i < b->n_key; i++) {
        if (!has_column(&b->key[i])) continue;
        column_name(&b->key[i], &width);
        fprintf(f, " %*s |", width, b->key[i].value[b->key[i].at]);
    }
    fprintf(f, " %15s | %21s | %*s |\n", test, speed, *steady ? 21 : 20, steady); /* ± is two bytes and one column */
}

/* --------------------------------------------------------------------------------------------------------- formats */

void bench_print_header(const bench *b, const char *format, FILE *f)
{
    fields fs;
    collect(b, NULL, &fs);
    if (!strcmp(format, "md")) print_md_header(b, f);
    if (!strcmp(format, "json")) fprintf(f, "[");
    if (!strcmp(format, "sql")) print_sql_header(&fs, f);
    if (strcmp(format, "csv")) return;
    for (size_t i = 0; i < fs.n; i++) fprintf(f, "%s%s", i ? "," : "", fs.f[i].name);
    fputc('\n', f);
}

void bench_print_test(const bench *b, const char *format, FILE *f, const bench_test *t)
{
    fields fs;
    if (!strcmp(format, "none")) return;
    if (!strcmp(format, "md")) {
        print_md_test(b, f, t);
        return;
    }
    collect(b, t, &fs);
    if (!strcmp(format, "csv")) {
        for (size_t i = 0; i < fs.n; i++) {
            if (i) fputc(',', f);
            put_quoted(f, fs.f[i].text, '"');
        }
        fputc('\n', f);
    } else if (!strcmp(format, "json")) {
        fprintf(f, "%s\n  {\n", b->any_output ? "," : "");
        put_json(b, &fs, t, f, "    ", ",\n");
        fprintf(f, "\n  }");
    } else if (!strcmp(format, "jsonl")) {
        fputc('{', f);
        put_json(b, &fs, t, f, "", ", ");
        fprintf(f, "}\n");
    } else {
        print_sql_test(&fs, f);
    }
}

void bench_print_footer(const bench *b, const char *format, FILE *f)
{
    (void) b;
    if (!strcmp(format, "md"))
        fprintf(f, "\nbuild: %s (%d), pagedinfer %s\n", build_commit, build_number, pi_version());
    if (!strcmp(format, "json")) fprintf(f, "\n]\n");
}
