/* Opening an engine: progress, cancellation at every callback, files that cannot run by themselves, GPU layers
 * without a GPU. Also the metadata of an engine and of a file as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "random_model.h"

static char model_path[256], gemma4_path[256], assistant_path[256], head_path[256], ds4_path[256], qwen_path[256];

static pi_options *options(const char *model)
{
    static const char *const values[][2] = {
        {"ctx-size", "64"}, {"threads", "1"}, {"parallel", "2"}, {"cache-ram", "0"}};
    pi_options *o = pi_options_new();
    pi_error err = {0};
    assert_non_null(o);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_int_equal(pi_options_set(o, values[i][0], values[i][1], &err), PI_OK);
    assert_int_equal(pi_options_set(o, "model", model, &err), PI_OK);
    return o;
}

static void set(pi_options *o, const char *key, const char *value)
{
    pi_error err = {0};
    if (pi_options_set(o, key, value, &err)) fail_msg("%s", err.msg);
}

/* -------------------------------------------------------------------------------------------------------- progress */

typedef struct watch {
    long cancel_at;       /* the call that cancels; negative = do not cancel */
    long n;               /* number of calls */
    int stage;            /* stage of the last call */
    uint64_t done, total; /* values of the last call */
    int n_read, n_weights; /* number of times that a stage began */
} watch;

static bool on_progress(void *ud, int stage, uint64_t done, uint64_t total)
{
    watch *w = ud;
    if (!done) { /* a stage begins; the previous one must be complete */
        assert_true(w->done == w->total);
        assert_true(stage >= w->stage);
        if (stage == PI_LOAD_READ) w->n_read++;
        else w->n_weights++;
    } else {
        assert_int_equal(stage, w->stage);
        assert_true(done >= w->done && done <= total && total == w->total);
    }
    w->stage = stage;
    w->done = done;
    w->total = total;
    return w->n++ == w->cancel_at;
}

/* Opens with cancellation at call w->cancel_at and closes; checks that nothing leaks. Returns the number of calls. */
static long open_canceled(pi_options *o, watch *w)
{
    static counting_alloc a;
    pi_engine *e = NULL;
    pi_error err = {0};
    counting_use(&a, -1);
    pi_options_set_progress(o, on_progress, w);
    const int rc = pi_engine_open(&e, o, &err);
    assert_int_equal(rc, w->cancel_at < 0 ? PI_OK : PI_ECANCELED);
    if (rc) assert_null(e);
    if (rc) assert_non_null(strstr(err.msg, "canceled"));
    pi_engine_close(e);
    pi_set_allocator(NULL);
    assert_int_equal(a.live, 0);
    return w->n;
}

/* Each load mode, with and without a drafter file; canceled at every call, or at some. */
static void test_progress(void **st)
{
    (void) st;
    static const char *const modes[] = {"mmap", "read", "dio"};
    for (int i = 0; i < 6; i++) {
        const bool drafter = i >= 3, read = i % 3 == 1;
        pi_options *o = options(drafter ? gemma4_path : model_path);
        set(o, "load-mode", modes[i % 3]);
        if (drafter) set(o, "model-draft", assistant_path);
        watch w = {.cancel_at = -1};
        const long n = open_canceled(o, &w);
        assert_true(n > 30);
        assert_int_equal(w.stage, PI_LOAD_WEIGHTS);
        assert_true(w.total > 10000 && w.done == w.total);
        assert_int_equal(w.n_weights, 1);
        assert_int_equal(w.n_read, read ? 1 + drafter : 0);
        for (long at = 0; at < n; at += at > 3 && i != 4 ? 9 : 1) {
            watch cut = {.cancel_at = at};
            assert_int_equal(open_canceled(o, &cut), at + 1);
        }
        pi_options_free(o);
    }
}

/* pi_engine_plan loads nothing, calls no progress callback, and copies no file, for any load-mode. */
static void test_plan(void **st)
{
    (void) st;
    static counting_alloc a;
    pi_options *o = options(model_path);
    pi_plan p = {.size = sizeof p};
    pi_error err = {0};
    watch w = {.cancel_at = 0};
    FILE *f = fopen(model_path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long size = ftell(f);
    fclose(f);
    set(o, "load-mode", "read");
    pi_options_set_progress(o, on_progress, &w);
    counting_use(&a, -1);
    assert_int_equal(pi_engine_plan(o, &p, &err), PI_OK);
    pi_set_allocator(NULL);
    assert_int_equal(w.n, 0);
    assert_true(a.largest < (size_t) size);
    pi_options_free(o);
}

/* ------------------------------------------------------------------------------------------------------------ logs */

typedef struct lines {
    int n;
    char text[300]; /* the last line about gpu-layers */
} lines;

static void on_log(void *ud, int level, const char *msg)
{
    lines *l = ud;
    assert_int_equal(level, PI_LOG_WARN);
    if (!strstr(msg, "gpu-layers")) return;
    l->n++;
    snprintf(l->text, sizeof l->text, "%s", msg);
}

/* Returns the number of log lines about gpu-layers for an engine with these options; layers NULL = option not set. */
static int lines_of(const char *layers, const char *device, lines *l)
{
    pi_options *o = options(model_path);
    pi_engine *e = NULL;
    pi_error err = {0};
    *l = (lines) {0};
    if (layers) set(o, "gpu-layers", layers);
    set(o, "device", device);
    pi_options_set_log(o, on_log, l, PI_LOG_WARN);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_engine_close(e);
    pi_options_free(o);
    return l->n;
}

static void test_no_gpu(void **st)
{
    (void) st;
    lines l;
    pi_device d = {.size = sizeof d};
    assert_int_equal(pi_device_describe(0, &d), PI_OK);
    if (strcmp(d.name, "cpu") && d.usable) skip(); /* a GPU exists */
    assert_int_equal(lines_of("20", "auto", &l), 1);
    assert_non_null(strstr(l.text, "all layers run on the CPU"));
    assert_non_null(strstr(l.text, strcmp(d.name, "cpu") ? d.lacks : "PAGEDINFER_CUDA"));
    assert_int_equal(lines_of("all", "auto", &l), 1);
    assert_int_equal(lines_of("-1", "auto", &l), 1);
    assert_int_equal(lines_of("0", "auto", &l), 0);
    assert_int_equal(lines_of("auto", "auto", &l), 0);
    assert_int_equal(lines_of(NULL, "auto", &l), 0);
    assert_int_equal(lines_of("20", "cpu", &l), 0); /* the CPU was requested explicitly */
    assert_int_equal(lines_of("20", "none", &l), 0);
}

/* -------------------------------------------------------------------------------------------------------- drafters */

static void test_drafters(void **st)
{
    (void) st;
    const char *const drafters[] = {assistant_path, head_path, ds4_path};
    for (int i = 0; i < 3; i++) {
        pi_options *o = options(drafters[i]);
        pi_engine *e = NULL;
        pi_error err = {0};
        assert_int_equal(pi_engine_open(&e, o, &err), PI_EUNSUPPORTED);
        if (!strstr(err.msg, "is a drafter") || !strstr(err.msg, "-md")) fail_msg("%s", err.msg);
        pi_options_free(o);
    }
}

typedef struct found {
    const char *text; /* text to find */
    int n;            /* number of lines that contain it */
} found;

static void look(void *ud, const char *line)
{
    found *f = ud;
    if (strstr(line, f->text)) f->n++;
}

static void test_kinds(void **st)
{
    (void) st;
    const struct { const char *path, *json, *line; } files[] = {
        {model_path, "\"kind\": \"model\"", NULL},
        {gemma4_path, "\"kind\": \"model\"", NULL},
        {qwen_path, "\"kind\": \"model with a draft head\"", "a model with a draft head"},
        {assistant_path, "\"kind\": \"drafter\"", "a drafter: "},
        {head_path, "\"kind\": \"drafter\"", "a drafter: "},
        {ds4_path, "\"kind\": \"drafter\"", "a drafter: "},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        found json = {files[i].json, 0}, line = {files[i].line ? files[i].line : "a drafter", 0};
        assert_int_equal(pi_model_json(files[i].path, 0, look, &json, NULL), PI_OK);
        assert_int_equal(pi_model_inspect(files[i].path, false, look, &line, NULL), PI_OK);
        if (json.n != 1 || line.n != (files[i].line != NULL)) fail_msg("file %zu", i);
    }
}

/* -------------------------------------------------------------------------------------------------------- metadata */

static void expect_meta(const pi_engine *e, const char *key, const char *value)
{
    char text[4000];
    const int64_t n = pi_engine_meta(e, key, text, sizeof text);
    if (n != (int64_t) strlen(value) || strcmp(text, value)) fail_msg("%s is %lld bytes, %s", key, (long long) n, text);
}

/* Every key of the file is accessible by index, and each value equals the file reader's. */
static void test_metadata(void **st)
{
    (void) st;
    pi_options *o = options(model_path);
    pi_engine *e = NULL;
    pi_error err = {0};
    pi__gguf *g;
    char key[200], small[4];
    set(o, "override-kv", "general.author=str:nobody, says \"who\"");
    set(o, "override-kv", "general.name=str:other");
    assert_int_equal(pi_engine_open(&e, o, &err), PI_OK);
    pi_options_free(o);
    assert_int_equal(pi__gguf_open(&g, model_path, PI__LOAD_MMAP, &err), PI_OK);
    size_t n = 0;
    for (; pi_engine_meta_key(e, n, key, sizeof key) >= 0; n++) {
        static char text[200000], want[200000];
        const int64_t len = pi_engine_meta(e, key, text, sizeof text);
        const pi__gguf_kv *kv = pi__gguf_find(g, key);
        pi__sink t = {.p = want, .cap = sizeof want};
        assert_true(len >= 0 && (size_t) len < sizeof text);
        if (!kv || !strcmp(key, "general.name")) continue;
        pi__gguf_value_text(&t, kv, UINT64_MAX, false);
        assert_int_equal(len, t.n);
        assert_memory_equal(text, want, t.n);
    }
    assert_int_equal(n, pi__gguf_n_kv(g) + 1);
    assert_int_equal(pi_engine_meta_key(e, n, key, sizeof key), PI_ENOENT);
    pi__gguf_close(g);
    expect_meta(e, "general.architecture", "gemma3");
    expect_meta(e, "general.author", "nobody, says \"who\"");
    expect_meta(e, "general.name", "other");
    expect_meta(e, "gemma3.context_length", "512");
    expect_meta(e, "tokenizer.ggml.bos_token_id", "2");
    assert_int_equal(pi_engine_meta(e, "general.architecture", small, sizeof small), 6);
    assert_string_equal(small, "gem");
    assert_int_equal(pi_engine_meta(e, "general.architecture", NULL, 0), 6);
    assert_int_equal(pi_engine_meta(e, "general", small, sizeof small), PI_ENOENT);
    assert_int_equal(pi_engine_meta(e, NULL, small, sizeof small), PI_EINVAL);
    assert_int_equal(pi_engine_meta(e, "general.name", NULL, 1), PI_EINVAL);
    assert_int_equal(pi_engine_meta_key(e, 0, NULL, 1), PI_EINVAL);
    pi_engine_close(e);
}

/* Checks a value formatted as text, plain and as JSON. */
static void expect_text(const pi__gguf_kv *kv, uint64_t most, const char *plain, const char *json)
{
    for (int i = 0; i < 2; i++) {
        char buf[200];
        pi__sink t = {.p = buf, .cap = sizeof buf - 1};
        pi__gguf_value_text(&t, kv, most, i);
        assert_true(t.n < sizeof buf);
        buf[t.n] = 0;
        assert_string_equal(buf, i ? json : plain);
    }
}

#define SCALAR(t, ...) ((pi__gguf_kv) {.type = t, .arr_type = t, .n = 1, .data = __VA_ARGS__})
#define ARRAY(t, k, ...) ((pi__gguf_kv) {.type = PI__GGUF_ARR, .arr_type = t, .n = k, .data = __VA_ARGS__})

static void test_values(void **st)
{
    (void) st;
    pi__str strs[3] = {{"a\"\\\n\xff\xc3\xa9", 7}, {"", 0}, {"z", 1}};
    pi__gguf_kv words = {.type = PI__GGUF_ARR, .arr_type = PI__GGUF_STR, .n = 3, .strs = strs};
    pi__gguf_kv word = {.type = PI__GGUF_STR, .arr_type = PI__GGUF_STR, .n = 1, .strs = strs};
    expect_text(&SCALAR(PI__GGUF_U64, (uint64_t[]) {UINT64_MAX}), 9, "18446744073709551615", "18446744073709551615");
    expect_text(&SCALAR(PI__GGUF_I8, (int8_t[]) {-128}), 9, "-128", "-128");
    expect_text(&SCALAR(PI__GGUF_BOOL, (uint8_t[]) {1}), 9, "true", "true");
    expect_text(&SCALAR(PI__GGUF_F32, (float[]) {1e-6f}), 9, "1e-06", "1e-06");
    expect_text(&SCALAR(PI__GGUF_F32, (float[]) {0.1f}), 9, "0.1", "0.1");
    expect_text(&SCALAR(PI__GGUF_F32, (float[]) {-1000}), 9, "-1000", "-1000.0");
    expect_text(&SCALAR(PI__GGUF_F32, (float[]) {1.0f / 0.0f}), 9, "inf", "null");
    expect_text(&SCALAR(PI__GGUF_F64, (double[]) {0.1}), 9, "0.1", "0.1");
    expect_text(&ARRAY(PI__GGUF_I32, 3, (int32_t[]) {1, -2, 3}), 9, "[1, -2, 3]", "[1, -2, 3]");
    expect_text(&ARRAY(PI__GGUF_I32, 3, (int32_t[]) {1, -2, 3}), 2, "[1, -2]", "[1, -2]");
    expect_text(&ARRAY(PI__GGUF_I32, 0, (int32_t[]) {0}), 9, "[]", "[]");
    expect_text(&word, 9, "a\"\\\n\xff\xc3\xa9", "\"a\\\"\\\\\\u000a\xef\xbf\xbd\xc3\xa9\"");
    expect_text(&words, 9, "[\"a\\\"\\\\\\u000a\xef\xbf\xbd\xc3\xa9\", \"\", \"z\"]",
                "[\"a\\\"\\\\\\u000a\xef\xbf\xbd\xc3\xa9\", \"\", \"z\"]");
}

/* --------------------------------------------------------------------------------------------------- files as JSON */

static int json_lines(pi_error *err)
{
    found f = {"{", 0};
    return pi_model_json(model_path, PI_JSON_TENSORS | PI_JSON_ALL, look, &f, err);
}

static void test_json(void **st)
{
    (void) st;
    static counting_alloc a;
    pi_error err = {0};
    found key = {"{\"key\": ", 0}, tensor = {"{\"tensor\": ", 0}, cut = {"\"cut\": true", 0}, none = {"{", 0};
    assert_int_equal(pi_model_json(model_path, 0, look, &key, &err), PI_OK);
    assert_true(key.n > 15);
    assert_int_equal(pi_model_json(model_path, 0, look, &tensor, &err), PI_OK);
    assert_int_equal(tensor.n, 0);
    assert_int_equal(pi_model_json(model_path, PI_JSON_TENSORS, look, &tensor, &err), PI_OK);
    assert_true(tensor.n > 20);
    assert_int_equal(pi_model_json(model_path, 0, look, &cut, &err), PI_OK);
    assert_int_equal(cut.n, 3); /* the vocabulary */
    cut.n = 0;
    assert_int_equal(pi_model_json(model_path, PI_JSON_ALL, look, &cut, &err), PI_OK);
    assert_int_equal(cut.n, 0);
    assert_int_equal(pi_model_json("/nowhere/m.gguf", 0, look, &none, &err), PI_ENOENT);
    assert_int_equal(pi_model_json(NULL, 0, look, &none, &err), PI_EINVAL);
    assert_int_equal(pi_model_json(model_path, 0, NULL, NULL, &err), PI_EINVAL);
    assert_int_equal(none.n, 0);
    for (long i = 0;; i++) { /* each allocation fails */
        counting_use(&a, i);
        const int rc = json_lines(&err);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        assert_int_equal(rc, a.count > i ? PI_ENOMEM : PI_OK);
        if (!rc) break;
    }
}

static int write_all(void **st)
{
    (void) st;
    pi_error err = {0};
    int rc = tiny_write(tiny_path(model_path, "opening"), NULL, &err);
    if (!rc) rc = tiny_write(tiny_path(gemma4_path, "opening4"), &(tiny_spec) {.arch = "gemma4"}, &err);
    if (!rc) rc = tiny_write(tiny_path(assistant_path, "assistant"), &(tiny_spec) {.arch = "gemma4-assistant"}, &err);
    if (!rc) rc = tiny_write(tiny_path(head_path, "head"), &(tiny_spec) {.arch = "deepseek4-draft"}, &err);
    if (!rc) rc = tiny_write(tiny_path(ds4_path, "mtp"), &(tiny_spec) {.arch = "deepseek4-mtp"}, &err);
    return rc ? rc : tiny_write(tiny_path(qwen_path, "qwen"), &(tiny_spec) {.arch = "qwen35"}, &err);
}

static int remove_all(void **st)
{
    (void) st;
    const char *const all[] = {model_path, gemma4_path, assistant_path, head_path, ds4_path, qwen_path};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) unlink(all[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_progress), cmocka_unit_test(test_plan),     cmocka_unit_test(test_no_gpu),
        cmocka_unit_test(test_drafters), cmocka_unit_test(test_kinds),    cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_values),   cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, write_all, remove_all);
}
