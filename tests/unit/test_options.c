/* The option table and the configuration built from it: every row is consistent, values are validated, and errors
 * name the fault. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/config.h"
#include "api/options.h"
#include "backend/cpu/pool.h"
#include "sampler/params.h"

static void each_row_is_consistent(void **state)
{
    (void) state;
    pi_options *o = pi_options_new();
    assert_non_null(o);
    pi_option_info a = {.size = sizeof a}, b = {.size = sizeof b};
    size_t n = 0;
    for (; !pi_options_describe(n, &a); n++) {
        pi_error err = {0};
        assert_true(*a.key && *a.help && *a.section);
        assert_true(!*a.flags == !strcmp(a.key, "n")); /* for programs only: the tool has --copies */
        if (strcmp(a.type, "enum") == 0) assert_non_null(strchr(a.range, '|'));
        if (*a.def && pi_options_set(o, a.key, a.def, &err)) fail_msg("%s: %s", a.key, err.msg);
        for (size_t k = 0; k < n; k++) {
            b.size = sizeof b;
            pi_options_describe(k, &b);
            assert_string_not_equal(a.key, b.key);
        }
    }
    assert_true(n == PI__N_OPTIONS);
    assert_int_equal(pi_options_describe(n, &a), PI_ENOENT);
    pi_options_free(o);
}

/* The last device is the CPU, which exists in every build and on every machine. */
static void devices_end_with_the_cpu(void **state)
{
    (void) state;
    pi_device d = {.size = sizeof d};
    size_t n = 0;
    while (!pi_device_describe(n, &d)) n++;
    assert_true(n >= 1);
    assert_string_equal(d.name, "cpu");
    assert_true(d.usable && d.memory_bytes > 0 && *d.desc && !*d.lacks);
    assert_int_equal(pi_device_describe(n, &d), PI_ENOENT);
    struct { uint32_t size; char name[16], after[4]; } old = {offsetof(pi_device, desc), "", "old"};
    assert_int_equal(pi_device_describe(n - 1, (pi_device *) &old), PI_OK);
    assert_string_equal(old.name, "cpu");
    assert_string_equal(old.after, "old");
    assert_int_equal(pi_device_describe(0, NULL), PI_EINVAL);
}

/* No two rows accept the same spelling on one command line. */
static void spellings_are_unique(void **state)
{
    (void) state;
    static const char *const own[] = {"bench", "eval", "tokenize", "quantize", "inspect", "run", "chat"};
    pi_option_info a = {.size = sizeof a}, b = {.size = sizeof b};
    for (size_t i = 0; !pi_options_describe(i, &a); i++) {
        for (size_t k = 0; k < i && !pi_options_describe(k, &b); k++) {
            bool separate = false;
            for (int s = 0; s < 7; s++) separate |= !strcmp(a.section, own[s]) != !strcmp(b.section, own[s]);
            for (const char *p = a.flags; *p && !separate;) {
                size_t len = strcspn(p, " ?="), step = strcspn(p, " ");
                for (const char *q = b.flags; *q;) {
                    size_t qlen = strcspn(q, " ?="), qstep = strcspn(q, " ");
                    if (len == qlen && !memcmp(p, q, len)) fail_msg("%.*s: %s and %s", (int) len, p, a.key, b.key);
                    q += qstep + (q[qstep] == ' ');
                }
                p += step + (p[step] == ' ');
            }
        }
    }
}

static void older_callers_get_a_shorter_struct(void **state)
{
    (void) state;
    pi_option_info a;
    memset(&a, 0x55, sizeof a);
    a.size = offsetof(pi_option_info, flags);
    assert_int_equal(pi_options_describe(0, &a), PI_OK);
    assert_int_equal(a.size, offsetof(pi_option_info, flags));
    assert_string_equal(a.key, "model");
    assert_int_equal((unsigned char) ((char *) &a)[offsetof(pi_option_info, flags)], 0x55);
    a.size = 0;
    assert_int_equal(pi_options_describe(0, &a), PI_EINVAL);
    assert_int_equal(pi_options_describe(0, NULL), PI_EINVAL);
}

static void whole_numbers(void **state)
{
    (void) state;
    static const struct { const char *text; int64_t value; bool ok; } cases[] = {
        {"0", 0, true}, {"-1", -1, true}, {"+7", 7, true}, {"9223372036854775807", INT64_MAX, true},
        {"9223372036854775808", 0, false}, {"-9223372036854775808", INT64_MIN, true},
        {"-9223372036854775809", 0, false}, {"-8388608Ti", INT64_MIN, true}, {"-8388609Ti", 0, false},
        {"32k", 32000, true}, {"32K", 32768, true}, {"32Ki", 32768, true},
        {"2kB", 2000, true}, {"2KB", 2000, true}, {"2KiB", 2048, true}, {"1.5GiB", 1610612736, true}, {"1.5", 0, false},
        {"0.5M", 524288, true}, {"3g", 3000000000, true}, {"1T", 1099511627776, true}, {"9999999999T", 0, false},
        {"", 0, false}, {"-", 0, false}, {"k", 0, false}, {"1x", 0, false}, {"1 ", 0, false}, {" 1", 0, false},
        {"0x10", 0, false}, {"1e3", 0, false}, {"2kb", 0, false}, {"1.25Mi", 1310720, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t v = 0;
        bool ok = pi__parse_int(cases[i].text, true, &v);
        if (ok != cases[i].ok || (ok && v != cases[i].value)) {
            fail_msg("'%s': %d, %lld", cases[i].text, ok, (long long) v);
        }
    }
    int64_t v;
    assert_false(pi__parse_int("1k", false, &v));
}

static void decimal_numbers_in_any_locale(void **state)
{
    (void) state;
    static const char *const good[] = {"0.8",  ".5",         "5.",  "-0.25",        "1e-3",
                                       "1E+2", "123456.789", "0.1", "3.4028234e38", "1e-400"};
    static const char *const bad[] = {"", ".", "-", "1,5", "1e", "0x1p3", "nan", "inf", "1e999", "1 ", "--1"};
    setlocale(LC_ALL, "de_DE.UTF-8"); /* if the locale is installed, a comma is the decimal point */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double v;
        if (pi__parse_float(bad[i], false, &v)) fail_msg("'%s' is %g", bad[i], v);
    }
    setlocale(LC_ALL, "C");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double v, want = strtod(good[i], NULL);
        if (!pi__parse_float(good[i], false, &v)) fail_msg("'%s'", good[i]);
        if ((float) v != (float) want) fail_msg("'%s': %.17g, not %.17g", good[i], v, want);
    }
    double v;
    assert_true(pi__parse_float("-inf", true, &v) && isinf(v) && v < 0);
}

static void biases(void **state)
{
    (void) state;
    int32_t id;
    double b;
    assert_true(pi__parse_logit_bias("15043+1.5", &id, &b) && id == 15043 && b == 1.5f);
    assert_true(pi__parse_logit_bias("7-1", &id, &b) && id == 7 && b == -1);
    assert_true(pi__parse_logit_bias("7-inf", &id, &b) && isinf(b) && b < 0);
    assert_true(pi__parse_logit_bias("7=-2e1", &id, &b) && b == -20);
    static const char *const bad[] = {"", "7", "+1", "7+", "a+1", "7+x", "7+inf ", "-7+1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (pi__parse_logit_bias(bad[i], &id, &b)) fail_msg("'%s'", bad[i]);
    }
    static const char *const far[] = {
        "2147483648+1", "99999999999999999999+1", "7+1e30", "7-1e30", "7+1e999", "7-1e999", "7+inf", "5+1e38",
        "5-1000001"};
    pi_options *o = pi_options_new();
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        pi_error err = {0};
        assert_int_equal(pi_options_set(o, "logit-bias", far[i], &err), PI_EINVAL);
        if (!strstr(err.msg, "out of range") || !strstr(err.msg, "1000000")) fail_msg("'%s': %s", far[i], err.msg);
    }
    assert_int_equal(pi_options_set(o, "logit-bias", "5-1e6", NULL), PI_OK);
    pi_options_free(o);
}

static void stop_strings_are_text(void **state)
{
    (void) state;
    pi_error err = {0};
    pi_options *o = pi_options_new();
    static const char *const bad[] = {"\xE6\x97", "a\xFF", "\x97\xA5", "\xED\xA0\x80", "\xC0\xAF"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pi_options_set(o, "stop", bad[i], &err), PI_EINVAL);
        assert_non_null(strstr(err.msg, "not UTF-8"));
    }
    assert_int_equal(pi_options_set(o, "stop", "\xE6\x97\xA5", &err), PI_OK);
    pi_options_free(o);
}

static void chains(void **state)
{
    (void) state;
    uint8_t a[PI__SMP_N + 1], b[PI__SMP_N + 1];
    const char *all = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
    assert_int_equal(pi__parse_samplers(all, a, NULL), PI_OK);
    assert_int_equal(pi__parse_samplers("edskypmxt", b, NULL), PI_OK);
    assert_memory_equal(a, b, PI__SMP_TEMPERATURE + 2);
    for (int i = 0; i <= PI__SMP_TEMPERATURE; i++) assert_int_equal(a[i], i);
    assert_int_equal(a[PI__SMP_TEMPERATURE + 1], PI__SMP_N);
    assert_int_equal(pi__parse_samplers("ka", a, NULL), PI_OK);
    assert_int_equal(pi__parse_samplers("top_k;adaptive_p", b, NULL), PI_OK);
    assert_true(a[0] == PI__SMP_TOP_K && a[1] == PI__SMP_ADAPTIVE_P && a[2] == PI__SMP_N);
    assert_memory_equal(a, b, 3);
    assert_int_equal(pi__parse_samplers("temp", a, NULL), PI_OK);
    assert_true(a[0] == PI__SMP_TEMPERATURE && a[1] == PI__SMP_N);
    assert_int_equal(pi__parse_samplers("Top-K;TEMPERATURE", a, NULL), PI_OK);
    assert_true(a[0] == PI__SMP_TOP_K && a[1] == PI__SMP_TEMPERATURE && a[2] == PI__SMP_N);
    assert_int_equal(pi__parse_samplers("", a, NULL), PI_OK);
    assert_int_equal(a[0], PI__SMP_N);
    pi_error err = {0};
    assert_int_equal(pi__parse_samplers("top_k;topk", a, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "'topk'"));
    assert_int_equal(pi__parse_samplers("kk", a, &err), PI_EINVAL);
    assert_int_equal(pi__parse_samplers("top_k;top-k", a, &err), PI_EINVAL);
}

static void distances(void **state)
{
    (void) state;
    assert_int_equal(pi__edit_distance("", ""), 0);
    assert_int_equal(pi__edit_distance("abc", ""), 3);
    assert_int_equal(pi__edit_distance("ctx-sise", "ctx-size"), 1);
    assert_int_equal(pi__edit_distance("tpo-k", "top-k"), 1);
    assert_int_equal(pi__edit_distance("kitten", "sitting"), 3);
}

static int set(pi_options *o, const char *key, const char *value, pi_error *err)
{
    *err = (pi_error) {0};
    return pi_options_set(o, key, value, err);
}

static void errors_name_key_value_and_range(void **state)
{
    (void) state;
    pi_options *o = pi_options_new();
    pi_error err;
    assert_int_equal(set(o, "ctx-sise", "1", &err), PI_EINVAL);
    assert_string_equal(err.msg, "the library has no option 'ctx-sise': did you mean 'ctx-size'?");
    assert_int_equal(set(o, "n_pred", "1", &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "n-predict"));
    assert_int_equal(set(o, "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "1", &err), PI_EINVAL);
    assert_string_equal(err.msg, "the library has no option 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz'");
    assert_int_equal(set(o, "top-p", "1.5", &err), PI_EINVAL);
    assert_string_equal(err.msg, "top-p: '1.5' is out of range (0..1)");
    assert_int_equal(set(o, "cache-type-k", "f61", &err), PI_EINVAL);
    assert_string_equal(
        err.msg,
        "cache-type-k: 'f61' is not an allowed value (f32|f16|bf16|q8_0|q5_1|q5_0|q4_1|q4_0|iq4_nl|tq4_0|tq3_0)");
    assert_int_equal(set(o, "threads", "two", &err), PI_EINVAL);
    assert_string_equal(err.msg, "threads: 'two' is not a whole number (-1..1024)");
    assert_int_equal(set(o, "prefix-cache", "maybe", &err), PI_EINVAL);
    assert_int_equal(set(o, "cpu-mask", "0xfg", &err), PI_EINVAL);
    assert_int_equal(set(o, "stop-token", "-4", &err), PI_EINVAL);
    assert_int_equal(set(o, "samplers", "top_z", &err), PI_EINVAL);
    assert_int_equal(set(o, "temp", NULL, &err), PI_EINVAL);
    assert_int_equal(set(o, NULL, "1", &err), PI_EINVAL);
    assert_int_equal(set(NULL, "temp", "1", &err), PI_EINVAL);
    assert_int_equal(pi_options_set(o, "nothing", "1", NULL), PI_EINVAL);
    pi_options_free(o);
    pi_options_free(NULL);
}

static void fuse_takes_the_names_of_rules(void **state)
{
    static const struct { const char *value; bool off; uint32_t rules; } right[] = {
        {"auto", false, 0}, {"ON", false, 0}, {"off", true, 0}, {"glu", false, 1}, {"Added,glu", false, 3}};
    static const char *const wrong[] = {"", "glue", "glu,", ",glu", "on,glu", "gl"};
    (void) state;
    pi_options *o = pi_options_new();
    pi_error err;
    bool off;
    uint32_t rules;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        assert_int_equal(set(o, "cuda-fuse", right[i].value, &err), PI_OK);
        assert_true(pi__parse_fuse(right[i].value, &off, &rules));
        assert_int_equal(off, right[i].off);
        assert_int_equal(rules, right[i].rules);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(set(o, "cuda-fuse", wrong[i], &err), PI_EINVAL);
    assert_string_equal(err.msg, "cuda-fuse: 'gl' is not auto, on, off, or names of rules with commas: "
                                 "docs/design/cuda.md has the names");
    pi_options_free(o);
}

static void values_are_stored_typed(void **state)
{
    (void) state;
    pi_options *o = pi_options_new();
    pi_error err;
    const pi__opt_set *s = &o->set;
    assert_int_equal(pi__opt_int(s, PI__OPT_UBATCH_SIZE), 512);
    assert_true(pi__opt_is(s, PI__OPT_BLOCK_SIZE, "16"));
    assert_true(pi__opt_bool(s, PI__OPT_PREFIX_CACHE));
    assert_true((float) pi__opt_float(s, PI__OPT_TEMP) == 0.8f);
    assert_int_equal(set(o, "ctx_size", "8K", &err), 0);
    assert_int_equal(set(o, "max-num-batched-tokens", "64", &err), 0);
    assert_int_equal(set(o, "temperature", "-1.5", &err), 0);
    assert_int_equal(set(o, "kv-cache-bytes", "1.5GiB", &err), 0);
    assert_int_equal(set(o, "model", "a", &err) | set(o, "model", "b.gguf", &err), 0);
    assert_int_equal(set(o, "cache-type-v", "Q8_0", &err), 0);
    assert_int_equal(pi__opt_int(s, PI__OPT_CTX_SIZE), 8192);
    assert_int_equal(pi__opt_int(s, PI__OPT_UBATCH_SIZE), 64);
    assert_true(pi__opt_float(s, PI__OPT_TEMP) == -1.5);
    assert_int_equal(pi__opt_int(s, PI__OPT_KV_BYTES), 1610612736);
    assert_string_equal(pi__opt_str(s, PI__OPT_MODEL), "b.gguf");
    assert_true(pi__opt_is(s, PI__OPT_CACHE_TYPE_V, "q8_0"));
    assert_int_not_equal(set(o, "ctx-size", "-5", &err), 0);
    assert_int_equal(pi__opt_int(s, PI__OPT_CTX_SIZE), 8192);
    pi_options_set_log(o, NULL, NULL, 99);
    assert_int_equal(pi__opt_int(s, PI__OPT_LOG_LEVEL), PI_LOG_DEBUG);
    assert_int_equal(set(o, "prompt", "of the command line alone", &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "the library has no option 'prompt'"));
    pi_options_free(o);
}

static void ranges_and_numbers(void **state)
{
    (void) state;
    uint64_t mask = 0;
    double v[4];
    assert_true(pi__parse_range("0-3", &mask) && mask == 0xf);
    assert_true(pi__parse_range("2-2", &mask) && mask == 4);
    assert_true(pi__parse_range("0-63", &mask) && mask == UINT64_MAX);
    assert_true(pi__parse_range("62-", &mask) && mask == UINT64_C(3) << 62);
    assert_true(pi__parse_range("-1", &mask) && mask == 3);
    static const char *const bad[] = {"", "3", "3-1", "0-64", "a-b", "1-2-3", "--", "0x0-1", "00000000-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(pi__parse_range(bad[i], NULL));
    assert_int_equal(pi__parse_numbers("3,1/0.5", v, 4), 3);
    assert_true(v[0] == 3 && v[1] == 1 && v[2] == 0.5);
    assert_int_equal(pi__parse_numbers("7", v, 0), 1);
    static const char *const none[] = {"", "0,0", "1,,2", "1,", "-1,2", "1;2", "a", "1e400"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_int_equal(pi__parse_numbers(none[i], v, 4), 0);
}

/* Each word of the table selects the instruction set with that name. */
static void instruction_sets(void **state)
{
    (void) state;
    pi_options *o = pi_options_new();
    pi_option_info info = {.size = sizeof info};
    char words[128];
    int n = 0;
    for (size_t i = 0; !info.key || strcmp(info.key, "cpu-isa"); i++)
        assert_int_equal(pi_options_describe(i, &info), PI_OK);
    snprintf(words, sizeof words, "%s", info.range);
    for (char *word = strtok(words, "|"); word; word = strtok(NULL, "|"), n++) {
        assert_int_equal(pi_options_set(o, "cpu-isa", word, NULL), PI_OK);
        assert_string_equal(pi__cpu_params_of(o).isa, word);
    }
    assert_true(n > 1);
    pi_options_free(o);
}

/* Several of our options correspond to one option of llama.cpp. */
static void flags_become_one_config(void **state)
{
    (void) state;
    pi_options *o = pi_options_new();
    pi_error err;
    static pi__config c;
    assert_int_equal(set(o, "model", "m.gguf", &err) | set(o, "device", "cpu", &err), 0);
    assert_int_equal(pi__config_of(o, &c, &err), PI_OK);
    assert_int_equal(c.max_batch_tokens, 512);
    assert_true(!c.tensor && !c.mlock && c.placement.fit && !c.fit_margin && !c.params.cpu.n_batch &&
                !c.params.cpu.affinity);
    assert_int_equal(set(o, "batch-size", "2048", &err) | set(o, "split-mode", "layer", &err) |
                         set(o, "load-mode", "mlock", &err) | set(o, "fit", "off", &err) |
                         set(o, "fit-target", "512,2048", &err) | set(o, "threads-batch", "7", &err) |
                         set(o, "cpu-mask", "10", &err) | set(o, "cpu-range", "0-1", &err) |
                         set(o, "cpu-strict", "1", &err) | set(o, "numa", "isolate", &err) | set(o, "prio", "2", &err) |
                         set(o, "main-gpu", "1", &err) | set(o, "tensor-split", "3,1", &err),
                     0);
    assert_int_equal(pi__config_of(o, &c, &err), PI_OK);
    assert_int_equal(c.max_batch_tokens, 512);
    assert_true(c.layers && !c.tensor && c.mlock && c.load_mode == PI__LOAD_READ && !c.placement.fit &&
                c.fit_margin == UINT64_C(2) << 30);
    assert_true(c.params.cpu.n_batch == 7 && c.params.cpu.affinity == 0x13 && c.params.cpu.strict == PI__STRICT_YES);
    assert_true(c.params.cpu.numa == PI__NUMA_ISOLATE && c.params.cpu.prio == 2);
    assert_string_equal(c.device, "cpu"); /* the CPU has no device number */
    assert_int_equal(set(o, "batch-size", "100", &err) | set(o, "load-mode", "mmap+mlock", &err), 0);
    assert_int_equal(pi__config_of(o, &c, &err), PI_OK);
    assert_true(c.max_batch_tokens == 100 && c.mlock && c.load_mode == PI__LOAD_MMAP);
    assert_int_equal(set(o, "cpu-range", "3-99", &err), PI_EINVAL);
    assert_int_equal(set(o, "tensor-split", "a", &err), PI_EINVAL);
    assert_int_equal(set(o, "prio", "4", &err), PI_EINVAL);
    pi_options_free(o);
}

static void lists_grow_and_clear(void **state)
{
    (void) state;
    pi_options *o = pi_options_new();
    pi_error err;
    assert_int_equal(set(o, "stop", "a", &err) | set(o, "stop", "\n\n", &err), 0);
    const pi__opt_list *l = pi__opt_list_of(&o->set, PI__OPT_STOP);
    assert_true(l->n == 2 && !strcmp(l->item[1], "\n\n"));
    pi__opt_set copy;
    assert_int_equal(pi__opt_copy(&copy, &o->set, true), PI_OK);
    assert_int_equal(set(o, "stop", "", &err), 0);
    assert_int_equal(l->n, 0);
    assert_int_equal(pi__opt_list_of(&copy, PI__OPT_STOP)->n, 2);
    assert_int_equal(pi__opt_int(&copy, PI__OPT_UBATCH_SIZE), 512);
    pi__opt_clear(&copy);
    pi_options_free(o);
}

static void scopes(void **state)
{
    (void) state;
    pi__opt_set s;
    pi_error err = {0};
    assert_int_equal(pi__opt_init(&s), PI_OK);
    assert_int_equal(pi__opt_set_text(&s, 1u << PI_SCOPE_REQUEST, "ctx-size", "1", &err), PI_EINVAL);
    assert_string_equal(err.msg, "'ctx-size' is an option of the engine");
    assert_int_equal(pi__opt_set_text(&s, 1u << PI_SCOPE_REQUEST, "prompt", "1", &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "the library has no option 'prompt'"));
    assert_int_equal(pi__opt_set_text(&s, 1u << PI_SCOPE_REQUEST, "temp", "1", &err), PI_OK);
    pi__opt_clear(&s);
}

/* Each allocation fails in turn. */
static int countdown;
static void *failing_malloc(void *ud, size_t n) { (void) ud; return countdown-- > 0 ? malloc(n) : NULL; }
static void *failing_realloc(void *ud, void *p, size_t n) { (void) ud; return countdown-- > 0 ? realloc(p, n) : NULL; }
static void plain_free(void *ud, void *p) { (void) ud; free(p); }

static void out_of_memory(void **state)
{
    (void) state;
    const pi_allocator a = {sizeof a, NULL, failing_malloc, failing_realloc, plain_free, NULL, NULL};
    assert_int_equal(pi_set_allocator(&a), PI_OK);
    bool done = false;
    int tries = 0;
    for (; !done && tries < 1000; tries++) {
        countdown = tries;
        pi__opt_set copy;
        pi_error err = {0};
        pi_options *o = pi_options_new();
        int rc = o ? PI_OK : PI_ENOMEM;
        if (!rc) rc = pi_options_set(o, "model", "m.gguf", &err);
        if (!rc) rc = pi_options_set(o, "stop", "x", &err);
        if (!rc) rc = pi__opt_copy(&copy, &o->set, false);
        if (!rc) pi__opt_clear(&copy);
        done = !rc;
        if (rc != PI_OK && rc != PI_ENOMEM) fail_msg("try %d: %s", tries, pi_err_name(rc));
        pi_options_free(o);
    }
    pi_set_allocator(NULL);
    assert_true(done && tries > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_is_consistent),
        cmocka_unit_test(devices_end_with_the_cpu),
        cmocka_unit_test(spellings_are_unique),
        cmocka_unit_test(older_callers_get_a_shorter_struct),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(decimal_numbers_in_any_locale),
        cmocka_unit_test(biases),
        cmocka_unit_test(stop_strings_are_text),
        cmocka_unit_test(chains),
        cmocka_unit_test(distances),
        cmocka_unit_test(errors_name_key_value_and_range),
        cmocka_unit_test(fuse_takes_the_names_of_rules),
        cmocka_unit_test(values_are_stored_typed),
        cmocka_unit_test(ranges_and_numbers),
        cmocka_unit_test(flags_become_one_config), cmocka_unit_test(lists_grow_and_clear),
        cmocka_unit_test(scopes), cmocka_unit_test(instruction_sets),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
