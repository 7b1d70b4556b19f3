/* The size of the cache without cache options: a burst is limited by memory, not by one context. Lengths that are
 * refused and reported, waits for blocks, and several engines in one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/system_memory.h"
#include "pagedinfer.h"
#include "random_model.h"

enum { BURST = 8, PROMPT = 545, MIB = 1 << 20 };

static char model[256], hybrid[256], conv[256], encoder[256], adapter[256];

/* The lines that an engine has logged. */
typedef struct lines {
    char text[16384];
    size_t n;
    int waits;
} lines;

static void on_log(void *ud, int level, const char *msg)
{
    lines *l = ud;
    (void) level;
    l->waits += strstr(msg, "wait for cache blocks") != NULL;
    if (l->n + strlen(msg) + 2 < sizeof l->text) l->n += (size_t) sprintf(l->text + l->n, "%s\n", msg);
}

static int setup(void **state)
{
    const tiny_spec s = {.ctx = 8192};
    (void) state;
    const tiny_spec h = {.ctx = 8192, .arch = "qwen35"}, b = {.ctx = 8192, .arch = "bert"};
    const tiny_spec c = {.ctx = 8192, .arch = "lfm2"};
    return tiny_write(tiny_path(model, "memory-size"), &s, NULL) |
           tiny_write(tiny_path(hybrid, "memory-hybrid"), &h, NULL) |
           tiny_write(tiny_path(conv, "memory-conv"), &c, NULL) |
           tiny_write(tiny_path(encoder, "memory-encoder"), &b, NULL);
}

static int teardown(void **state)
{
    (void) state;
    return unlink(model) | unlink(hybrid) | unlink(conv) | unlink(encoder);
}

#define LIST(...) ((const char *const[]) {__VA_ARGS__, NULL})

static pi_options *options_of(const char *const *kv)
{
    pi_options *o = pi_options_new();
    pi_error err = {0};
    assert_non_null(o);
    int rc = pi_options_set(o, "model", model, &err) | pi_options_set(o, "threads", "1", &err) |
             pi_options_set(o, "device", "cpu", &err);
    for (; *kv && !rc; kv++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int) strcspn(*kv, "="), *kv);
        rc = pi_options_set(o, key, strchr(*kv, '=') + 1, &err);
    }
    if (rc) fail_msg("%s", err.msg);
    return o;
}

static int try_open(pi_engine **e, const char *const *kv, lines *log, pi_error *err)
{
    pi_options *o = options_of(kv);
    if (log) pi_options_set_log(o, on_log, log, PI_LOG_INFO);
    *err = (pi_error) {0};
    const int rc = pi_engine_open(e, o, err);
    pi_options_free(o);
    return rc;
}

static pi_engine *open_with(const char *const *kv, lines *log)
{
    pi_engine *e = NULL;
    pi_error err;
    if (try_open(&e, kv, log, &err)) fail_msg("%s", err.msg);
    return e;
}

static pi_plan memory_of(const pi_engine *e)
{
    pi_plan p = {.size = sizeof p};
    pi_info i = {.size = sizeof i};
    assert_int_equal(pi_engine_memory(e, &p), PI_OK);
    assert_int_equal(pi_engine_info(e, &i), PI_OK);
    assert_int_equal(i.ctx_size, p.ctx_size);
    return p;
}

static pi_stats stats_of(const pi_engine *e)
{
    pi_stats s = {.size = sizeof s};
    assert_int_equal(pi_engine_stats(e, &s), PI_OK);
    return s;
}

/* Starts a request with n prompt tokens that no other seed shares. */
static pi_request *start(pi_engine *e, uint32_t seed, int32_t n, const char *max_tokens)
{
    static int32_t ids[8192];
    uint64_t rng = seed;
    pi_error err = {0};
    pi_request *r = pi_request_new(e);
    assert_non_null(r);
    for (int32_t i = 0; i < n; i++) ids[i] = TINY_PIECE0 + (int32_t) (tiny_random(&rng) % TINY_N_PIECES);
    int rc = pi_request_prompt_tokens(r, ids, (size_t) n, &err);
    if (!rc) rc = pi_request_set(r, "no-stop", "true", &err);
    if (!rc) rc = pi_request_set(r, "max-tokens", max_tokens, &err);
    if (!rc) rc = pi_request_submit(r, &err);
    if (rc) fail_msg("%s", err.msg);
    return r;
}

/* Runs a burst and returns the largest number of requests that ran at the same time. */
static uint32_t run_burst(pi_engine *e)
{
    pi_request *r[BURST];
    uint32_t most = 0;
    for (uint32_t i = 0; i < BURST; i++) r[i] = start(e, i + 1, PROMPT, "1000");
    for (int i = 0; i < BURST; i++) {
        int rc;
        while ((rc = pi_request_wait(r[i], 1)) == PI_ETIMEDOUT) {
            const pi_stats s = stats_of(e);
            if (s.n_running > most) most = s.n_running;
        }
        assert_int_equal(rc, PI_OK);
        pi_result result = {.size = sizeof result};
        assert_int_equal(pi_request_result(r[i], &result), PI_OK);
        assert_int_equal(result.generated_tokens, 1000);
        pi_request_free(r[i]);
    }
    return most;
}

static void burst_runs_at_once(void **state)
{
    (void) state;
    static lines log;
    log = (lines) {.n = 0};
    pi_engine *e = open_with(LIST("ctx-size=2048", "parallel=8"), &log);
    const pi_plan p = memory_of(e);
    assert_int_equal(p.cache_limit, PI_CACHE_LIMIT_PARALLEL);
    assert_true(p.n_requests == BURST && p.n_requests_1k == 2 * BURST && p.max_requests == BURST);
    assert_true(p.kv_tokens == 2048 * BURST && p.ctx_size == 2048 && p.free_bytes > p.total_bytes);
    assert_non_null(strstr(log.text, "8  of 2048 tokens fit the cache, or 16 of 1024; at most 8 run at the same time"));
    assert_non_null(strstr(log.text, "for more raise parallel"));
    assert_int_equal(run_burst(e), BURST);
    const pi_stats s = stats_of(e);
    assert_true(s.n_block_waits == 0 && s.n_preempted == 0 && !log.waits);
    pi_engine_close(e);
}

/* Snapshots of short convolutions take an eighth of the cache, and are taken more often than snapshot-interval. */
static void small_snapshots(void **state)
{
    (void) state;
    char file[300];
    snprintf(file, sizeof file, "model=%s", conv);
    pi_engine *e = open_with(LIST(file, "ctx-size=2048", "parallel=2"), NULL);
    const pi_plan p = memory_of(e);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p.n_groups; i++)
        if (!strcmp(p.group[i].name, "recurrent")) bytes = p.group[i].n_blocks * p.group[i].block_bytes;
    assert_in_range(bytes, p.kv_bytes / 12, p.kv_bytes / 8);
    pi_request *r = start(e, 1, 1000, "1");
    assert_int_equal(pi_request_wait(r, -1), PI_OK);
    pi_request_free(r);
    assert_in_range(stats_of(e).n_snapshots_saved, 14, 40); /* each 64 tokens, and at turns */
    pi_engine_close(e);
}

/* With a pool of one context the burst waits: each waiting request is counted once, and one line is logged. */
static void waits_are_counted(void **state)
{
    (void) state;
    static lines log;
    log = (lines) {.n = 0};
    pi_engine *e = open_with(LIST("ctx-size=2048", "parallel=8", "kv-cache-tokens=2048"), &log);
    const pi_plan p = memory_of(e);
    assert_true(p.cache_limit == PI_CACHE_LIMIT_OPTION && p.n_requests == 1 && p.n_requests_1k == 2);
    assert_in_range(run_burst(e), 1, 3);
    const pi_stats s = stats_of(e);
    assert_in_range(s.n_block_waits, 1, BURST);
    assert_int_equal(log.waits, 1);
    pi_engine_close(e);
}

/* The reported length is one that a request can use. A longer ctx-size is refused, with the length that fits. */
static void lengths_are_real(void **state)
{
    (void) state;
    pi_engine *e = NULL;
    pi_error err;
    assert_int_equal(try_open(&e, LIST("ctx-size=4096", "kv-cache-tokens=2048"), NULL, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "ctx-size is 4096"));
    assert_non_null(strstr(err.msg, "lower ctx-size to 2048"));
    e = open_with(LIST("kv-cache-tokens=2048"), NULL);
    assert_true(memory_of(e).ctx_size == 2048 && memory_of(e).n_requests == 1);
    pi_request *r = start(e, 1, 2047, "1");
    assert_int_equal(pi_request_wait(r, -1), PI_OK);
    pi_request_free(r);
    pi_engine_close(e);
    static lines log;
    log = (lines) {.n = 0};
    e = open_with(LIST("ctx-size=16384", "parallel=1"), &log); /* longer than in training: a warning */
    assert_int_equal(memory_of(e).ctx_size, 16384);
    assert_non_null(strstr(log.text, "trained for 8192"));
    pi_engine_close(e);
    log = (lines) {.n = 0};
    e = open_with(LIST("ctx-size=16384", "parallel=1", "rope-scale=2"), &log);
    assert_null(strstr(log.text, "trained for"));
    pi_engine_close(e);
}

/* Memory of a pool that was not written is reserved: another engine does not count on it. */
static void unwritten_pools_are_reserved(void **state)
{
    (void) state;
    pi_engine *e = open_with(LIST("ctx-size=4096", "kv-cache-tokens=64k", "parallel=16"), NULL);
    const pi_plan p = memory_of(e);
    const uint64_t before = pi__reserved_memory();
    assert_in_range(before, p.kv_bytes, p.kv_bytes + MIB);
    pi_request *r = start(e, 1, 4000, "8");
    assert_int_equal(pi_request_wait(r, -1), PI_OK);
    pi_request_free(r);
    const uint64_t after = pi__reserved_memory();
    assert_true(after < before && before - after >= stats_of(e).group[0].committed_bytes);
    pi_engine *second = open_with(LIST("ctx-size=256", "kv-cache-tokens=256", "parallel=16"), NULL);
    assert_true(pi__reserved_memory() > after);
    pi_engine_close(e);
    assert_in_range(pi__reserved_memory(), 1, 2 * MIB);
    pi_engine_close(second);
    assert_int_equal(pi__reserved_memory(), 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CAN_LIMIT = false }; /* sanitizers map terabytes */
#else
enum { CAN_LIMIT = true };
#endif

/* Limits the process to this number of bytes more than it has mapped now. */
static void limit_memory(uint64_t more)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &pages), 1);
    (void) fclose(f);
    const struct rlimit r = {(rlim_t) (pages * (uint64_t) sysconf(_SC_PAGESIZE) + more), RLIM_INFINITY};
    assert_int_equal(setrlimit(RLIMIT_AS, &r), 0);
}

static int unlimit(void **state)
{
    const struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
    (void) state;
    return setrlimit(RLIMIT_AS, &r);
}

/* Little memory: the cache is what fits, the first engine leaves memory for a second one, and both work. */
static void small_memory(void **state)
{
    (void) state;
    if (!CAN_LIMIT) skip();
    const char *const *kv = LIST("parallel=2048");
    pi_engine *e[2];
    limit_memory(UINT64_C(256) * MIB);
    for (int i = 0; i < 2; i++) {
        e[i] = open_with(kv, NULL);
        const pi_plan p = memory_of(e[i]);
        assert_int_equal(p.cache_limit, PI_CACHE_LIMIT_MEMORY);
        assert_in_range(p.total_bytes, p.free_bytes / 2, p.free_bytes);
        assert_true(p.free_bytes <= UINT64_C(192) * MIB);
        pi_request *r = start(e[i], 5, 100, "8");
        assert_int_equal(pi_request_wait(r, -1), PI_OK);
        pi_request_free(r);
    }
    for (int i = 0; i < 2; i++) pi_engine_close(e[i]);
}

/* Whatever the engine has besides the cache, the plan uses nine tenths of the free memory. */
static void everything_counts(void **state)
{
    (void) state;
    enum { ADAPTER = 64 };
    char draft[300], other[300], bert[300], lora[300];
    snprintf(draft, sizeof draft, "model-draft=%s", model);
    snprintf(other, sizeof other, "model=%s", hybrid);
    snprintf(bert, sizeof bert, "model=%s", encoder);
    snprintf(lora, sizeof lora, "lora-scaled=%s:0.5", tiny_path(adapter, "memory-adapter"));
    const char *const sets[][2] = {{"threads=1"}, {draft}, {other}, {bert}, {lora}, {"spec-type=ngram"},
                                   {"device=cpu,cpu", "split-mode=layer"}, {"device=cpu,cpu", "split-mode=tensor"},
                                   {"kv-commit=full"}};
    if (!CAN_LIMIT) skip();
    FILE *f = fopen(adapter, "w");
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), (off_t) ADAPTER * MIB) | fclose(f), 0);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        pi_error err;
        pi_plan p = {.size = sizeof p};
        pi_options *o = options_of(LIST("parallel=1000", "ubatch-size=1024", sets[i][0],
                                        sets[i][1] ? sets[i][1] : "threads=1"));
        limit_memory(UINT64_C(640) * MIB);
        const int rc = pi_engine_plan(o, &p, &err);
        (void) unlimit(NULL);
        pi_options_free(o);
        if (rc) fail_msg("%s: %s", sets[i][0], err.msg);
        uint64_t all = p.total_bytes;
        if (sets[i][1] && strstr(sets[i][1], "tensor")) all += p.weights_bytes + p.kv_bytes; /* of the second device */
        if (sets[i][0] == lora) all += ADAPTER * MIB;
        if (p.cache_limit != PI_CACHE_LIMIT_MEMORY) fail_msg("%s: limit %d", sets[i][0], p.cache_limit);
        if (all > p.free_bytes / 10 * 9 + MIB || all < p.free_bytes / 10 * 8)
            fail_msg("%s: %.1f MiB of %.1f", sets[i][0], (double) all / MIB, (double) p.free_bytes / MIB);
    }
    assert_int_equal(unlink(adapter), 0);
}

/* Returns the number after `text` in the message. */
static unsigned long number_after(const char *msg, const char *text)
{
    const char *at = strstr(msg, text);
    if (!at) fail_msg("no '%s' in: %s", text, msg);
    return strtoul(at + strlen(text), NULL, 10);
}

/* Without memory, opening fails with numbers. The ctx-size of the message works. */
static void too_little_memory(void **state)
{
    (void) state;
    char ctx[32];
    pi_engine *e = NULL;
    pi_error err;
    if (!CAN_LIMIT) skip();
    limit_memory(UINT64_C(160) * MIB);
    assert_int_equal(try_open(&e, LIST("ctx-size=200000000", "parallel=1"), NULL, &err), PI_EINVAL);
    assert_in_range(number_after(err.msg, "the cache that fits the "), 1, 96);
    const unsigned long fits = number_after(err.msg, "lower ctx-size to ");
    assert_in_range(fits, 8192, 199999999);
    snprintf(ctx, sizeof ctx, "ctx-size=%lu", fits / 8 * 7);
    e = open_with(LIST(ctx, "parallel=1"), NULL);
    assert_int_equal(memory_of(e).ctx_size, fits / 8 * 7);
    pi_engine_close(e);
    limit_memory(UINT64_C(48) * MIB); /* less than stacks need */
    assert_int_equal(try_open(&e, LIST("ctx-size=256"), NULL, &err), PI_ENOMEM);
    assert_int_equal(number_after(err.msg, "with its cache, and "), 0);
    (void) unlimit(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_snapshots),
        cmocka_unit_test(burst_runs_at_once), cmocka_unit_test(waits_are_counted), cmocka_unit_test(lengths_are_real),
        cmocka_unit_test(unwritten_pools_are_reserved), cmocka_unit_test_teardown(small_memory, unlimit),
        cmocka_unit_test_teardown(everything_counts, unlimit), cmocka_unit_test_teardown(too_little_memory, unlimit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
