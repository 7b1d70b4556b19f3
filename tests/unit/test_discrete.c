/* The cache's tiers with a discrete device. Evicted blocks come back, and results are bitwise identical for any
 * behavior of copies. The host cache keeps its budget, clearing a salt removes its entries, and prefixes go to disk
 * and back. Covers one device, a device plus the CPU, and pipeline stages. */
#include "open_oom.h"
#include "discrete_device.h"
#include "model_jobs.h"
#include "random_model.h"
#include "rounds.h"

enum { PROMPTS = 6, LONG = 260 };

/* Returns the number of trials of n to run; fewer under a slow emulator. */
static int trials(int n) { return emulated() ? (n + 1) / 3 : n; }

static char path[2][256]; /* gemma3: full and window groups; qwen35: a full and a recurrent one */

/* Pools hold little more than one request. */
static pi__config config(int model)
{
    return (pi__config) {.model = path[model],
                         .device = "far",
                         .max_batch_tokens = 32,
                         .max_seqs = 2,
                         .max_queue = 20,
                         .ctx_size = 320,
                         .block_size = 16,
                         .snapshot_interval = 64,
                         .type_k = PI__F16,
                         .type_v = PI__F16,
                         .kv_tokens = 320,
                         .prefix_cache = true,
                         .cache_ram = 16 << 20,
                         .params.cpu = {.n_threads = 1}};
}

/* Splits the layers over several devices; each device has a shard of each block. */
static void as_stages(pi__config *c, const char *device)
{
    c->device = device;
    c->layers = true;
}

static void fill(job *j, uint32_t seed)
{
    uint64_t rng = seed;
    memset(j, 0, sizeof *j);
    j->n_prompt = LONG;
    for (int32_t i = 0; i < LONG; i++) j->prompt[i] = (int32_t) (tiny_random(&rng) % TINY_VOCAB);
}

static pi_stats stats_of(pi__core *e)
{
    pi_stats s = {.size = sizeof s};
    pi__core_stats(e, &s);
    return s;
}

/* Waits until copies have ended and the statistics no longer change. */
static void settle(pi__core *e)
{
    uint64_t last = UINT64_MAX;
    for (int calm = 0; calm < 15;) {
        pi_stats s = stats_of(e);
        uint64_t now = s.host_writes + s.disk_writes;
        calm = now == last ? calm + 1 : 0;
        last = now;
        usleep(2000);
    }
}

static void ask(pi__core *e, job *j, uint32_t seed)
{
    fill(j, seed);
    job_submit(e, j, PI__LOGITS_GENERATED, NULL);
    job_await(j, PI_OK);
    settle(e);
}

static void check_same(const job *a, const job *b)
{
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
    assert_true(a->rows == b->rows);
}

/* Returns the results without a discrete device. */
static const job *wanted(int model)
{
    static job want[2][PROMPTS];
    static bool known[2];
    if (known[model]) return want[model];
    known[model] = true;
    pi__config c = config(model);
    c.device = "cpu";
    c.prefix_cache = false;
    pi__core *e = job_core(&c);
    for (int i = 0; i < PROMPTS; i++) ask(e, &want[model][i], (uint32_t) i + 1);
    assert_int_equal(stats_of(e).host_entries + stats_of(e).host_writes, 0);
    pi__core_close(e);
    return want[model];
}

/* Each prompt evicts the previous one; all are found when they are sent again. */
static void evicted_comes_back(void **st)
{
    (void) st;
    for (int trial = 0; trial < trials(6); trial++) {
        int model = trial % 2;
        const job *want = wanted(model);
        static job got;
        pi__config c = config(model);
        if (trial > 3) as_stages(&c, "far,far");
        /* two block shards */
        else if (trial > 1) c.placement = (pi__placement_rules) {.limited = true, .gpu_layers = model ? 4 : 2};
        pi__core *e = job_core(&c);
        for (int round = 0; round < 3; round++)
            for (int i = 0; i < PROMPTS; i++) {
                ask(e, &got, (uint32_t) i + 1);
                check_same(&got, &want[i]);
                assert_int_equal(got.n_cached, round ? 256 : 0);
            }
        pi_stats s = stats_of(e);
        assert_true(s.host_entries > 5 * 16 && s.host_bytes <= 16 << 20 && s.host_reads >= 2 * 5 * 16);
        pi__core_cache_clear(e, NULL);
        assert_int_equal(stats_of(e).host_entries, 0);
        ask(e, &got, 1);
        check_same(&got, &want[0]);
        assert_int_equal(got.n_cached, 0);
        pi__core_close(e);

        c.cache_ram = 0;
        e = job_core(&c);
        ask(e, &got, 1);
        ask(e, &got, 2);
        ask(e, &got, 1);
        assert_int_equal(got.n_cached, 0);
        assert_int_equal(stats_of(e).host_writes, 0);
        pi__core_close(e);
    }
}

/* Evicted blocks also come back if layers have different cache types, including rotated ones. */
static void types_come_back(void **st)
{
    (void) st;
    job want[2], got;
    pi__config c = config(0);
    pi_error err = {0};
    if (pi__cache_rules_parse(&c.cache_types, "L0:q8_0,*.k:tq4_0,*.v:tq3_0", &err)) fail_msg("%s", err.msg);
    for (int far = 0; far < 2; far++) {
        c.device = far ? "far" : "cpu";
        pi__core *e = job_core(&c);
        for (int i = 0; i < 4; i++) {
            ask(e, far ? &got : &want[i % 2], (uint32_t) (i % 2) + 1);
            if (far) check_same(&got, &want[i % 2]);
            if (far) assert_int_equal(got.n_cached, i < 2 ? 0 : 256);
        }
        pi__core_close(e);
    }
}

/* Many concurrent requests in pools that are too small. Copies are torn, late or refused, or stop working halfway;
 * results do not change. */
static void copies_change_nothing(void **st)
{
    (void) st;
    for (int trial = 0; trial < trials(10); trial++) {
        int model = trial % 2;
        const job *want = wanted(model);
        static job got[PROMPTS];
        pi__config c = config(model);
        if (trial > 7) as_stages(&c, "far,far");
        c.max_seqs = 4;
        c.kv_tokens = 480;
        if (trial == 6 || trial == 7) atomic_store(&discrete_device.pins, trial == 6 ? 0 : 2);
        discrete_device.rng = (uint64_t) trial;
        pi__core *e = job_core(&c);
        for (int round = 0; round < 5; round++) {
            discrete_device.refuse = trial >= 2 ? 7 * round : -1;
            for (int i = 0; i < PROMPTS; i++) fill(&got[i], (uint32_t) i + 1);
            for (int i = 0; i < PROMPTS; i++) {
                job_submit(e, &got[i], PI__LOGITS_GENERATED, NULL);
                if ((trial == 4 || trial == 8) && round == 3 && i == 3) discrete_device.dead = true;
            }
            for (int i = 0; i < PROMPTS; i++) {
                job_await(&got[i], PI_OK);
                check_same(&got[i], &want[i]);
            }
        }
        if (trial == 6) assert_int_equal(stats_of(e).host_writes, 0); /* no pinned memory for it */
        if (trial < 4) assert_true(stats_of(e).host_writes > 0);
        pi__core_close(e);
        discrete_device.refuse = -1;
        discrete_device.dead = false;
        atomic_store(&discrete_device.pins, 1 << 20);
    }
}

/* The host tier evicts least recently used entries; its size stays within the budget that the plan reports. */
static void budget(void **st)
{
    (void) st;
    pi__config c = config(0);
    pi_plan p = {.size = sizeof p};
    assert_int_equal(pi__core_plan(&c, &p, NULL), PI_OK);
    assert_true(p.host_cache_bytes > (15 << 20) && p.host_cache_bytes <= (16 << 20) + 8192);
    uint64_t pools = p.kv_bytes;
    c.cache_ram = (int64_t) (3 * pools); /* about three requests */
    assert_int_equal(pi__core_plan(&c, &p, NULL), PI_OK);
    assert_true(p.host_cache_bytes <= 3 * pools + 8192);
    static job got;
    pi__core *e = job_core(&c);
    for (int i = 0; i < PROMPTS; i++) ask(e, &got, (uint32_t) i + 1);
    assert_true(stats_of(e).host_bytes <= 3 * pools && stats_of(e).host_bytes > pools);
    ask(e, &got, PROMPTS - 1); /* the second most recent is in the host tier */
    assert_int_equal(got.n_cached, 256);
    ask(e, &got, 1); /* the first was evicted */
    assert_int_equal(got.n_cached, 0);
    pi__core_close(e);
    c.cache_ram = 100; /* less than one block */
    assert_int_equal(pi__core_plan(&c, &p, NULL), PI_OK);
    assert_int_equal(p.host_cache_bytes, 0);
    c.cache_ram = -1;
    assert_int_equal(pi__core_plan(&c, &p, NULL), PI_OK);
    assert_true(p.host_cache_bytes > 16 << 20);
    c.device = "cpu";
    assert_int_equal(pi__core_plan(&c, &p, NULL), PI_OK);
    assert_int_equal(p.host_cache_bytes, 0);
}

/* Prefixes on disk, with a host tier that keeps them and without one. */
static void disk(void **st)
{
    (void) st;
    for (int trial = 0; trial < trials(8); trial++) {
        int model = trial % 2;
        const job *want = wanted(model);
        char dir[] = "/tmp/pagedinfer-far-XXXXXX", cmd[100];
        assert_non_null(mkdtemp(dir));
        static job got;
        pi__config c = config(model);
        c.prefix_dir = dir;
        c.prefix_dir_bytes = 64 << 20;
        c.cache_ram = trial < 2 || trial > 5 ? 16 << 20 : 0;
        c.placement.kv_on_cpu = trial == 4; /* all blocks in the host's memory */
        if (trial > 4) as_stages(&c, trial > 5 ? "cpu,cpu" : "far,far");
        for (int round = 0; round < 4; round++) { /* one engine per round */
            pi__core *e = job_core(&c);
            for (int i = 0; i < 3; i++) {
                ask(e, &got, (uint32_t) i + 1);
                check_same(&got, &want[i]);
                assert_int_equal(got.n_cached, round == 1 || round == 2 ? 256 : 0);
            }
            pi_stats s = stats_of(e);
            assert_true((s.disk_reads > 0) == (round == 1 || round == 2));
            /* blocks in host memory are not copied */
            assert_true((s.host_entries > 0) == (c.cache_ram > 0 && trial < 6));
            if (round == 2) pi__core_cache_clear(e, ""); /* also removes the files */
            pi__core_close(e);
        }
        snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
        assert_int_equal(system(cmd), 0);
    }
}

static uint64_t snapshot_bytes(const pi__config *c)
{
    pi_plan p = {.size = sizeof p};
    assert_int_equal(pi__core_plan(c, &p, NULL), PI_OK);
    for (uint32_t i = 0; i < p.n_groups; i++)
        if (!strcmp(p.group[i].name, "recurrent")) return p.group[i].block_bytes;
    fail_msg("no snapshots");
    return 0;
}

/* Pipeline stages save states and copy them to disk while requests are preempted, and load them again. Few snapshots,
 * pools for hardly two of four requests, the same prompts in every round. */
static void disk_of_stages(void **st)
{
    (void) st;
    const job *want = wanted(1);
    uint32_t preempted = 0;
    uint64_t reads = 0;
    for (int trial = 0; trial < trials(4); trial++) {
        char dir[] = "/tmp/pagedinfer-far-XXXXXX", cmd[100];
        assert_non_null(mkdtemp(dir));
        static job got[PROMPTS];
        pi__config c = config(1);
        as_stages(&c, trial % 2 ? "far,far" : "cpu,cpu");
        c.prefix_dir = dir;
        c.prefix_dir_bytes = 64 << 20;
        c.cache_ram = 0;
        c.max_seqs = 4;
        c.kv_tokens = 480;
        c.snapshot_interval = 16 << (trial / 2);
        c.snapshot_bytes = 4 * snapshot_bytes(&c);
        pi__core *e = job_core(&c);
        for (int round = 0; round < 5; round++) {
            for (int i = 0; i < PROMPTS; i++) fill(&got[i], (uint32_t) i + 1);
            for (int i = 0; i < PROMPTS; i++) job_submit(e, &got[i], PI__LOGITS_GENERATED, NULL);
            for (int i = 0; i < PROMPTS; i++) {
                job_await(&got[i], PI_OK);
                check_same(&got[i], &want[i]);
                preempted += got[i].n_preempted;
            }
        }
        reads += stats_of(e).disk_reads;
        pi__core_close(e);
        snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
        assert_int_equal(system(cmd), 0);
    }
    assert_true(preempted > 0 && reads > 0);
}

/* Opening with each allocation failing in turn returns an error and frees all memory. */
static void out_of_memory(void **st)
{
    (void) st;
    char dir[] = "/tmp/pagedinfer-far-XXXXXX", cmd[100];
    assert_non_null(mkdtemp(dir));
    pi__config c = config(0);
    c.prefix_dir = dir;
    c.prefix_dir_bytes = 1 << 20;
    c.cache_ram = 1 << 20;
    open_out_of_memory(&c);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
}

static int setup(void **st)
{
    (void) st;
    pi_error err;
    return tiny_write(tiny_path(path[0], "far-gemma3"), NULL, &err) ||
           tiny_write(tiny_path(path[1], "far-qwen35"), &(tiny_spec) {.arch = "qwen35"}, &err);
}

static int teardown(void **st)
{
    (void) st;
    return unlink(path[0]) || unlink(path[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evicted_comes_back), cmocka_unit_test(types_come_back),
        cmocka_unit_test(copies_change_nothing), cmocka_unit_test(budget),
        cmocka_unit_test(disk), cmocka_unit_test(disk_of_stages), cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
