/* The engine on a tiny random model: batch-invariant (the batch composition never changes a result), free of leaks,
 * with a reason for every error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "counting_alloc.h"
#include "engine/core.h"
#include "formats/formats.h"
#include "random_model.h"

enum { MAX_GEN = 64 };

static char model_path[256];

enum { SAMPLED_NOT, SAMPLED_MIROSTAT_1, SAMPLED_MIROSTAT_2, SAMPLED_ADAPTIVE, SAMPLED_N };

/* One request and its result. */
typedef struct job {
    int32_t prompt[600];
    int32_t n_prompt, n_gen;          /* prompt tokens; tokens to generate */
    int32_t logits;                   /* PI__LOGITS_* */
    int32_t logits_from;              /* with PI__LOGITS_ALL */
    bool no_cache;
    const char *salt;
    /* on_logits blocks the step thread until this is nonzero; new requests wait meanwhile */
    atomic_int *gate;
    int32_t first_at;                 /* number of requests that had their first token earlier */
    double deadline_ms;
    int sampled;                      /* SAMPLED_*: sampler with a state that every token changes */
    int32_t tokens[MAX_GEN], n_tokens;
    uint64_t rows;                    /* hash of all received logits rows */
    pi__job_end end;
    char msg[240];
    atomic_int done;
    int32_t stop_after;               /* on_token requests a stop after this number of tokens; 0 = never */
    pi__seq *seq;
} job;

static int32_t n_first; /* requests that got their first token; only the step thread counts */

static bool on_token(void *ud, const pi__token_out *t)
{
    job *j = ud;
    if (!j->n_tokens) j->first_at = n_first++;
    assert_true(j->n_tokens < MAX_GEN);
    j->tokens[j->n_tokens++] = t->id;
    return j->stop_after && j->n_tokens == j->stop_after;
}

static void on_done(void *ud, const pi__job_end *end)
{
    job *j = ud;
    j->end = *end;
    snprintf(j->msg, sizeof j->msg, "%s", end->msg);
    assert_int_equal(atomic_exchange(&j->done, 1), 0);
}

static void on_logits(void *ud, uint32_t pos, const float *row, size_t n)
{
    job *j = ud;
    while (j->gate && !atomic_load(j->gate)) usleep(100);
    uint64_t h = j->rows ^ (pos + 1) * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &row[i], sizeof u);
        h = (h ^ u) * 0x100000001b3u;
    }
    j->rows = h;
}

static pi__config base_config(void)
{
    return (pi__config){.model = model_path, .max_batch_tokens = 64, .max_seqs = 40, .max_queue = 100, .block_size = 16,
                        .type_k = PI__F16, .type_v = PI__F16, .prefix_cache = true, .kv_tokens = 16384,
                        .snapshot_interval = 512,
                        .params.cpu = {.n_threads = 2, .poll = 1}};
}

static pi__core *open_core(const pi__config *c)
{
    pi__core *e;
    pi_error err = {0};
    if (pi__core_open(&e, c, &err)) fail_msg("open: %s", err.msg);
    return e;
}

static pi__job job_of(job *j)
{
    pi__job p = {.prompt = j->prompt,
                 .n_prompt = (size_t) j->n_prompt,
                 .ud = j,
                 .on_token = on_token,
                 .on_done = on_done,
                 .on_logits = on_logits,
                 .logits_ud = j};
    p.params = (pi__gen_params) {.max_tokens = j->n_gen,
                                 .no_stop = true,
                                 .cache = !j->no_cache,
                                 .salt = j->salt,
                                 .n_logprobs = -1,
                                 .logits = j->logits,
                                 .logits_from = j->logits_from,
                                 .deadline_ms = j->deadline_ms,
                                 .sampling = {.top_p = 1, .typical_p = 1, .repeat_penalty = 1, .chain = {PI__SMP_N}}};
    if (j->sampled) {
        pi__sampling *sp = &p.params.sampling;
        sp->seed = 3;
        sp->temp = 1;
        sp->mirostat = j->sampled == SAMPLED_ADAPTIVE ? 0 : j->sampled;
        sp->mirostat_tau = 3;
        sp->mirostat_eta = 0.3f;
        sp->adaptive_target = 0.1f;
        sp->adaptive_decay = 0.8f;
        sp->chain[0] = PI__SMP_ADAPTIVE_P;
        sp->chain[1] = PI__SMP_N;
    }
    j->n_tokens = 0;
    j->rows = 1469598103934665603u;
    atomic_store(&j->done, 0);
    return p;
}

/* Submits n jobs in one call. */
static int submit_all(pi__core *e, job *j, size_t n, pi_error *err)
{
    pi__job p[8] = {{0}};
    pi__seq *seq[8];
    for (size_t i = 0; i < n; i++) p[i] = job_of(&j[i]);
    int rc = pi__core_submit(e, p, n, seq, err);
    for (size_t i = 0; i < n; i++) j[i].seq = seq[i];
    return rc;
}

static int submit(pi__core *e, job *j, pi_error *err) { return submit_all(e, j, 1, err); }

static void must_submit(pi__core *e, job *j)
{
    pi_error err = {0};
    if (submit(e, j, &err)) fail_msg("submit: %s", err.msg);
}

static void wait_done(job *j)
{
    for (int i = 0; i < 60000 && !atomic_load(&j->done); i++) usleep(1000);
    assert_true(atomic_load(&j->done));
}

static void wait_job(job *j)
{
    wait_done(j);
    pi__seq_release(j->seq);
    j->seq = NULL;
}

static void fill(job *j, uint32_t seed, int32_t n_prompt, int32_t n_gen)
{
    uint64_t rng = seed;
    memset(j, 0, sizeof *j);
    j->n_prompt = n_prompt;
    j->n_gen = n_gen;
    j->logits = PI__LOGITS_GENERATED;
    for (int32_t i = 0; i < n_prompt; i++) j->prompt[i] = (int32_t) (tiny_random(&rng) % TINY_VOCAB);
}

/* Waits until all blocks of all pools are free. */
static void check_all_free(pi__core *e)
{
    pi_stats s = {.size = sizeof s};
    for (int i = 0; i < 1000; i++) { /* the step thread publishes its stats after the callback */
        pi__core_stats(e, &s);
        bool all = s.n_running == 0 && s.n_waiting == 0;
        for (uint32_t g = 0; g < s.n_groups; g++) all = all && s.group[g].n_free == s.group[g].n_blocks;
        if (all) return;
        usleep(1000);
    }
    fail_msg("blocks are still in use after every request ended");
}

enum { N_JOBS = 32 };
static job plain[N_JOBS], other[N_JOBS];

static void make_jobs(job *jobs)
{
    static const int32_t lengths[8] = {1, 5, 16, 33, 64, 100, 150, 300};
    for (int i = 0; i < N_JOBS; i++) {
        fill(&jobs[i], 100 + (uint32_t) i, lengths[i % 8] + i / 8, 12 + i % 5);
        jobs[i].sampled = i / 3 % SAMPLED_N;
    }
}

static void same_answers(const char *how)
{
    for (int i = 0; i < N_JOBS; i++) {
        assert_int_equal(other[i].end.code, PI_OK);
        if (plain[i].n_tokens != other[i].n_tokens ||
            memcmp(plain[i].tokens, other[i].tokens, (size_t) plain[i].n_tokens * sizeof(int32_t)) ||
            plain[i].rows != other[i].rows) fail_msg("request %d differs: %s", i, how);
    }
}

/* Runs all jobs with this configuration, `at_once` of them concurrently, and compares with the plain run. */
static void run_as(const pi__config *c, int at_once, const char *how)
{
    pi__core *e = open_core(c);
    make_jobs(other);
    for (int i = 0; i < N_JOBS; i += at_once) {
        for (int k = i; k < i + at_once; k++) must_submit(e, &other[k]);
        for (int k = i; k < i + at_once; k++) wait_job(&other[k]);
    }
    check_all_free(e);
    pi__core_close(e);
    same_answers(how);
}

static void batch_composition_changes_nothing(void **st)
{
    (void) st;
    pi__config c = base_config();
    c.prefix_cache = false;
    pi__core *e = open_core(&c);
    make_jobs(plain);
    for (int i = 0; i < N_JOBS; i++) {
        must_submit(e, &plain[i]);
        wait_job(&plain[i]);
        assert_int_equal(plain[i].n_tokens, plain[i].n_gen);
        assert_int_equal(plain[i].end.reason, PI_FINISH_LENGTH);
    }
    pi__core_close(e);
    run_as(&c, 32, "32 at once");
    c.params.cpu.n_threads = 1;
    run_as(&c, 8, "1 thread, 8 at once");
    c.params.cpu.n_batch = 4;
    run_as(&c, 16, "1 thread, 4 where there are prompts");
    c.params.cpu.n_batch = 0;
    c.params.cpu.n_threads = 3;
    c.max_batch_tokens = 16;
    run_as(&c, 16, "3 threads, budget 16");
    c.max_batch_tokens = 512;
    c.block_size = 32;
    run_as(&c, 32, "budget 512, blocks of 32");
    c.block_size = 64;
    c.max_batch_tokens = 7;
    run_as(&c, 4, "blocks of 64, budget 7");
    c.max_batch_tokens = 1;
    run_as(&c, 32, "budget 1");
    c = base_config();
    run_as(&c, 32, "prefix reuse, nothing to reuse");
    /* may sum floats in another order, so results are not compared; it must still load and run */
    c.params.cpu.isa = "generic";
    e = open_core(&c);
    pi__core_close(e);
}

static void prefix_hits_change_nothing(void **st)
{
    (void) st;
    pi__config c = base_config();
    pi__core *e = open_core(&c);
    static job a, b;
    fill(&a, 7, 200, 20);
    must_submit(e, &a);
    wait_job(&a);
    assert_int_equal(a.end.cached_tokens, 0);
    assert_string_equal(a.end.miss_reason, "not in the cache");
    fill(&b, 7, 200, 20);
    must_submit(e, &b);
    wait_job(&b);
    assert_int_equal(b.end.cached_tokens, 192);
    assert_string_equal(b.end.miss_reason, "");
    assert_memory_equal(a.tokens, b.tokens, 20 * sizeof(int32_t));
    assert_true(a.rows == b.rows);

    /* the next turn: the answer is part of the prompt */
    memcpy(b.prompt + 200, a.tokens, 20 * sizeof(int32_t));
    b.n_prompt = 224;
    must_submit(e, &b);
    wait_job(&b);
    assert_true(b.end.cached_tokens >= 208);
    static job low_priority;
    memcpy(&low_priority, &b, sizeof low_priority);
    low_priority.no_cache = true;
    must_submit(e, &low_priority);
    wait_job(&low_priority);
    assert_int_equal(low_priority.end.cached_tokens, 0);
    assert_memory_equal(low_priority.tokens, b.tokens, 20 * sizeof(int32_t));
    assert_true(low_priority.rows == b.rows);

    pi__core_cache_clear(e, NULL);
    must_submit(e, &b);
    wait_job(&b);
    assert_int_equal(b.end.cached_tokens, 0);
    check_all_free(e);
    pi__core_close(e);
}

/* Jobs of one call share their prompt. With the cache off, no other job does, and no prefix stays in memory or goes
 * to disk. */
static void jobs_of_one_call(void **st)
{
    (void) st;
    enum { N = 6 };
    char dir[] = "/tmp/pagedinfer-family-XXXXXX", cmd[400];
    assert_non_null(mkdtemp(dir));
    static job alone, j[2][N], next;
    pi_error err = {0};
    pi_stats s = {.size = sizeof s};
    for (int keep = 0; keep < 2; keep++) {
        pi__config c = base_config();
        c.max_batch_tokens = 32;
        c.prefix_dir = dir;
        c.prefix_dir_bytes = 64 << 20;
        pi__core *e = open_core(&c);
        for (int k = 0; k < 2; k++) /* two sample groups with the same prompt */
            for (int i = 0; i < N; i++) {
                fill(&j[k][i], 7, 260, 20);
                j[k][i].no_cache = !keep;
            }
        int all_computed = 0;
        for (int k = 0; k < 2; k++) assert_int_equal(submit_all(e, j[k], N, &err), PI_OK);
        for (int k = 0; k < 2; k++) {
            /* misses of this group; the group with the first completed directory scan computes the prompt */
            int computed = 0;
            for (int i = 0; i < N; i++) {
                wait_job(&j[k][i]);
                const bool found = j[k][i].end.cached_tokens > 0;
                assert_int_equal(j[k][i].end.cached_tokens, found ? 256 : 0);
                assert_string_equal(j[k][i].end.miss_reason, found  ? ""
                                                             : keep ? "not in the cache"
                                                                    : "prefix cache disabled");
                computed += !found;
            }
            all_computed += computed;
            if (!keep) assert_int_equal(computed, 1);
        }
        assert_int_equal(all_computed, keep ? 1 : 2);
        check_all_free(e);
        pi__core_stats(e, &s);
        for (uint32_t g = 0; g < s.n_groups; g++) assert_true((s.group[g].n_cached > 0) == keep);
        fill(&next, 7, 260, 20);
        next.no_cache = !keep;
        must_submit(e, &next);
        wait_job(&next);
        assert_int_equal(next.end.cached_tokens, keep ? 256 : 0);
        if (!keep) alone = next;
        for (int i = 0; i < 2 * N; i++) {
            assert_memory_equal(j[i / N][i % N].tokens, alone.tokens, 20 * sizeof(int32_t));
            assert_true(j[i / N][i % N].rows == alone.rows);
        }
        pi__core_close(e); /* writes staged prefixes */
        snprintf(cmd, sizeof cmd, "test %s \"$(find %s -type f -size +1k)\"", keep ? "-n" : "-z", dir);
        assert_int_equal(system(cmd), 0);
    }
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
}

/* Sample groups in a cache that is too small for all of their sequences at the same time. */
static void a_family_without_room(void **st)
{
    (void) st;
    enum { N = 8 };
    pi__config c = base_config();
    c.kv_tokens = 512;
    c.max_seqs = 5;
    pi__core *e = open_core(&c);
    static job alone, j[N];
    pi_error err = {0};
    fill(&alone, 21, 130, MAX_GEN);
    alone.no_cache = true;
    must_submit(e, &alone);
    wait_job(&alone);
    for (int i = 0; i < N; i++) {
        fill(&j[i], 21, 130, MAX_GEN);
        j[i].no_cache = true;
    }
    for (int round = 0; round < 3; round++) {
        assert_int_equal(submit_all(e, j, N, &err), PI_OK);
        if (round == 2) pi__seq_cancel(e, j[0].seq); /* another sequence then does the prefill */
        for (int i = 0; i < N; i++) {
            wait_job(&j[i]);
            if (i || round < 2) assert_memory_equal(j[i].tokens, alone.tokens, sizeof alone.tokens);
        }
    }
    check_all_free(e);
    pi_stats s = {.size = sizeof s};
    pi__core_stats(e, &s);
    assert_true(s.n_preempted > 0 && s.group[0].n_cached == 0);
    assert_int_equal(submit_all(e, j, N, &err), PI_OK);
    pi__core_close(e); /* with a sample group in every state */
    for (int i = 0; i < N; i++) pi__seq_release(j[i].seq);
}

static void preemption_changes_nothing(void **st)
{
    (void) st;
    pi__config c = base_config();
    c.kv_tokens = 512; /* every request fits by itself, 32 concurrent ones do not */
    pi__core *e = open_core(&c);
    make_jobs(other);
    uint64_t preempted = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N_JOBS; i++) {
            other[i].no_cache = round == 1;
            must_submit(e, &other[i]);
        }
        for (int i = 0; i < N_JOBS; i++) wait_job(&other[i]);
        same_answers("too few blocks");
        check_all_free(e);
    }
    pi_stats s = {.size = sizeof s};
    pi__core_stats(e, &s);
    preempted = s.n_preempted;
    assert_true(preempted > 0);
    pi__core_close(e);
}

/* Concurrent requests with a common prefix compute the prefix once. */
static void shared_prefix_is_computed_once(void **st)
{
    (void) st;
    pi__config c = base_config();
    for (int salted = 0; salted < 2; salted++) {
        pi__core *e = open_core(&c);
        static job j[16];
        for (int i = 0; i < 16; i++) {
            fill(&j[i], 77, 260, 4);
            j[i].prompt[259] = i; /* the last token differs */
            j[i].salt = salted ? i % 2 ? "one" : "two" : NULL;
        }
        for (int i = 0; i < 16; i++) must_submit(e, &j[i]);
        uint64_t computed = 0;
        for (int i = 0; i < 16; i++) {
            wait_job(&j[i]);
            computed += 260 - j[i].end.cached_tokens;
        }
        int tenants = salted ? 2 : 1;
        assert_int_equal(computed, tenants * 260 + (16 - tenants) * 4);
        check_all_free(e);
        pi__core_close(e);
    }
}

/* A burst is served in order of arrival, and none of its steps leaves token budget unused. */
static void burst(void **st)
{
    (void) st;
    enum { N = 128, LEN = 24 };
    pi__config c = base_config();
    c.max_seqs = 64;
    c.max_queue = 200;
    c.prefix_cache = false;
    pi__core *e = open_core(&c);
    static job j[N], hold;
    static atomic_int all_there;
    fill(&hold, 1, 64, 1);
    hold.gate = &all_there;
    n_first = 0;
    must_submit(e, &hold);
    for (int i = 0; i < N; i++) {
        fill(&j[i], 1000 + (uint32_t) i, LEN, 2);
        j[i].logits = PI__LOGITS_NONE;
        must_submit(e, &j[i]);
    }
    atomic_store(&all_there, 1);
    wait_job(&hold);
    for (int i = 0; i < N; i++) wait_job(&j[i]);
    for (int i = 1; i < N; i++) assert_true(j[i].first_at > j[i - 1].first_at);
    pi_stats s = {.size = sizeof s};
    pi__core_stats(e, &s);
    uint64_t tokens = 64 + N * (LEN + 1);
    assert_in_range(s.n_steps, tokens / 64, tokens / 64 + 6);
    pi__core_close(e);
}

/* During a prefill of many steps, decode continues, and short prompts that arrive later do not wait for the
 * prefill. */
static void long_prompt(void **st)
{
    (void) st;
    pi__config c = base_config();
    c.max_batch_tokens = 8;
    pi__core *e = open_core(&c);
    static job streams, huge, later;
    static atomic_int all_there;
    fill(&streams, 1, 4, 60);
    streams.gate = &all_there;
    fill(&huge, 2, 440, 1);
    fill(&later, 3, 20, 1);
    n_first = 0;
    must_submit(e, &streams);
    must_submit(e, &huge);
    must_submit(e, &later);
    atomic_store(&all_there, 1);
    wait_job(&streams);
    wait_job(&later);
    wait_job(&huge);
    assert_true(streams.first_at < huge.first_at);
    assert_true(later.first_at < huge.first_at);
    assert_int_equal(huge.n_tokens, 1);
    pi__core_close(e);
}

/* Memory follows the blocks in use: committed at the first write, released when no request runs. */
static void memory_follows_use(void **st)
{
    (void) st;
    pi__config c = base_config();
    c.prefix_cache = false;
    pi__core *e = open_core(&c);
    pi_stats s = {.size = sizeof s};
    pi__core_stats(e, &s);
    assert_int_equal(s.group[0].committed_bytes + s.group[1].committed_bytes, 0);
    static job j;
    fill(&j, 1, 300, 4);
    must_submit(e, &j);
    wait_job(&j);
    check_all_free(e);
    for (int i = 0; i < 100; i++) { /* the idle engine trims after a while */
        pi__core_stats(e, &s);
        if (!s.group[0].committed_bytes && !s.group[1].committed_bytes) break;
        usleep(50000);
    }
    assert_int_equal(s.group[0].committed_bytes + s.group[1].committed_bytes, 0);
    must_submit(e, &j);
    wait_job(&j);
    uint64_t rows = j.rows;
    pi__core_close(e);

    c.kv_commit = true;
    e = open_core(&c);
    pi__core_stats(e, &s);
    pi_plan p = {.size = sizeof p};
    assert_int_equal(pi__core_plan(&c, &p, NULL), PI_OK);
    assert_int_equal(s.group[0].committed_bytes + s.group[1].committed_bytes, p.kv_bytes);
    must_submit(e, &j);
    wait_job(&j);
    assert_true(j.rows == rows);
    pi__core_close(e);
}

/* Prefixes on disk are found after a restart, with the same result; damaged files are a miss. */
static void disk_tier(void **st)
{
    (void) st;
    char dir[] = "/tmp/pagedinfer-tier-XXXXXX", cmd[400];
    assert_non_null(mkdtemp(dir));
    pi__config c = base_config();
    c.prefix_dir = dir;
    c.prefix_dir_bytes = 64 << 20;
    static job a, b[3];
    fill(&a, 7, 260, 20);
    pi__core *e = open_core(&c);
    must_submit(e, &a);
    wait_job(&a);
    pi__core_close(e); /* writes staged prefixes */
    for (int round = 0; round < 5; round++) {
        if (round == 2) { /* truncate every file by a few bytes */
            snprintf(cmd, sizeof cmd, "find %s -type f -size +1k -exec truncate -s -7 {} +", dir);
            assert_int_equal(system(cmd), 0);
        }
        e = open_core(&c);
        for (int i = 0; i < 3; i++) {
            fill(&b[i], 7, 260, 20);
            must_submit(e, &b[i]);
        }
        for (int i = 0; i < 3; i++) {
            wait_job(&b[i]);
            assert_memory_equal(a.tokens, b[i].tokens, 20 * sizeof(int32_t));
            assert_true(a.rows == b[i].rows);
        }
        /* the request that computes the missing prefix need not be the first */
        uint32_t least = b[0].end.cached_tokens;
        for (int i = 1; i < 3; i++) least = b[i].end.cached_tokens < least ? b[i].end.cached_tokens : least;
        assert_int_equal(least, round == 2 || round == 4 ? 0 : 256);
        check_all_free(e);
        pi_stats st_now = {.size = sizeof st_now};
        for (int i = 0; i < 3000; i++) { /* asynchronous writes are counted at the latest when the engine is idle */
            pi__core_stats(e, &st_now);
            if (least || st_now.disk_writes) break;
            usleep(1000);
        }
        assert_true((st_now.disk_reads > 0) == (least > 0) && (st_now.disk_writes > 0) == (least == 0));
        if (round == 3) pi__core_cache_clear(e, ""); /* also removes the files */
        pi__core_close(e);
    }
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
}

/* Waits for n finished files below dir and returns their number; n 0 = waits until no file was added for half a
 * second. */
static int files_in(const char *dir, int n)
{
    char cmd[400];
    int now = 0, same = 0;
    snprintf(cmd, sizeof cmd, "find %s -type f ! -name 'tmp-*' | wc -l", dir);
    for (int i = 0; i < 1000 && (n ? now < n : same < 25); i++) {
        const int before = now;
        usleep(20000);
        FILE *f = popen(cmd, "r");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%d", &now), 1);
        pclose(f);
        same = now && now == before ? same + 1 : 0;
    }
    return now;
}

/* Two engines on one directory: an engine finds prefixes that the other one computed, without being reopened. */
static void shared_directory(void **st)
{
    (void) st;
    char dir[] = "/tmp/pagedinfer-tier-XXXXXX", cmd[400];
    int each = 0; /* files per request */
    assert_non_null(mkdtemp(dir));
    pi__config c = base_config();
    c.prefix_dir = dir;
    c.prefix_dir_bytes = 64 << 20;
    pi__core *e[2] = {open_core(&c), open_core(&c)};
    for (uint32_t seed = 1; seed <= 6; seed++) {
        static job a, b;
        fill(&a, seed, 260, 20);
        must_submit(e[seed % 2], &a);
        wait_job(&a);
        assert_int_equal(a.end.cached_tokens, 0);
        const int files = files_in(dir, each * (int) seed);
        if (!each) each = files;
        assert_int_equal(files, each * (int) seed);
        fill(&b, seed, 260, 20);
        must_submit(e[!(seed % 2)], &b);
        wait_job(&b);
        assert_int_equal(b.end.cached_tokens, 256);
        assert_memory_equal(a.tokens, b.tokens, 20 * sizeof(int32_t));
        assert_true(a.rows == b.rows);
    }
    pi__core_close(e[0]);
    pi__core_close(e[1]);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
}

static void all_rows(void **st)
{
    (void) st;
    pi__config c = base_config();
    uint64_t rows = 0;
    for (int budget = 5; budget <= 320; budget *= 4) {
        c.max_batch_tokens = budget;
        pi__core *e = open_core(&c);
        for (int twice = 0; twice < 2; twice++) { /* the second request finds the prefix and must not use it */
            static job j;
            fill(&j, 9, 150, 1);
            j.logits = PI__LOGITS_ALL;
            must_submit(e, &j);
            wait_job(&j);
            if (rows) assert_true(rows == j.rows);
            rows = j.rows;
            assert_int_equal(j.end.cached_tokens, 0);
        }
        pi__core_close(e);
    }
}

/* Scores a prompt of 200 tokens from position `from` on. */
static void score(pi__core *e, job *j, uint32_t seed, int32_t from)
{
    fill(j, seed, 200, 0);
    j->logits = PI__LOGITS_ALL;
    j->logits_from = from;
    must_submit(e, j);
}

/* The prefix before the first requested logits row comes from the cache, and computed prefixes become available to
 * other requests. */
static void scoring_reuses(void **st)
{
    (void) st;
    char dir[] = "/tmp/pagedinfer-score-XXXXXX", cmd[400];
    assert_non_null(mkdtemp(dir));
    pi__config c = base_config();
    c.prefix_dir = dir;
    c.prefix_dir_bytes = 64 << 20;
    pi__core *e = open_core(&c);
    static job low_priority, j, plain_one, many[8];
    score(e, &low_priority, 21, 100);
    wait_job(&low_priority);
    assert_int_equal(low_priority.end.cached_tokens, 0);
    assert_string_equal(low_priority.end.miss_reason, "not in the cache");
    fill(&plain_one, 21, 200, 4); /* the scoring request's prompt is in the cache */
    must_submit(e, &plain_one);
    wait_job(&plain_one);
    assert_int_equal(plain_one.end.cached_tokens, 192);
    static const int32_t from[5] = {100, 0, 7, 199, 150}, cached[5] = {96, 0, 0, 192, 144};
    static const char *const why[5] = {
        "logits of the remaining prompt requested", "logits of all prompt tokens requested",
        "logits of the remaining prompt requested", "", "logits of the remaining prompt requested"};
    for (int reopened = 0; reopened < 2; reopened++) { /* from the pools, then from disk */
        for (int i = 0; i < 5; i++) {
            score(e, &j, 21, from[i]);
            wait_job(&j);
            assert_int_equal(j.end.code, PI_OK);
            if (!i) assert_true(j.rows == low_priority.rows);
            assert_string_equal(j.end.miss_reason, why[i]);
            assert_int_equal(j.end.cached_tokens, cached[i]);
        }
        check_all_free(e);
        pi__core_close(e);
        e = open_core(&c);
    }
    /* a new prompt: one request computes the part before `from` for all */
    for (int i = 0; i < 8; i++) score(e, &many[i], 22, 160);
    uint64_t computed = 0;
    for (int i = 0; i < 8; i++) {
        wait_job(&many[i]);
        assert_true(many[i].rows == many[0].rows);
        computed += 200 - many[i].end.cached_tokens;
    }
    assert_int_equal(computed, 200 + 7 * 40);
    pi__core_close(e);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
}

typedef struct log_lines {
    int n;          /* number of warnings */
    char last[200]; /* text of the last warning */
} log_lines;

/* Called by the submitting thread and by the step thread. */
static void count_warning(void *ud, int level, const char *msg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    log_lines *l = ud;
    if (level != PI_LOG_WARN) return;
    pthread_mutex_lock(&lock);
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", msg);
    pthread_mutex_unlock(&lock);
}

/* max-tokens beyond the context: generates the number that fits and logs one line. */
static void what_fits(void **st)
{
    (void) st;
    static job j, many[3];
    log_lines lines = {0};
    pi__config c = base_config();
    c.kv_tokens = 256;
    c.device = "cpu"; /* avoids a warning about a missing GPU */
    c.log = (pi__log) {count_warning, &lines, PI_LOG_WARN};
    pi__core *e = open_core(&c);
    fill(&j, 1, 200, 56);
    must_submit(e, &j);
    wait_job(&j);
    assert_int_equal(j.n_tokens, 56);
    assert_int_equal(lines.n, 0);
    fill(&j, 1, 200, 57);
    must_submit(e, &j);
    wait_job(&j);
    assert_int_equal(j.n_tokens, 56);
    assert_int_equal(j.end.reason, PI_FINISH_LENGTH);
    assert_int_equal(lines.n, 1);
    assert_non_null(strstr(lines.last, "max-tokens: of 57 tokens, 56 fit after a prompt of 200: the cache holds 256"));
    for (int i = 0; i < 3; i++) fill(&many[i], 3, 250, INT32_MAX); /* samples of one request: one line */
    pi_error err;
    assert_int_equal(submit_all(e, many, 3, &err), PI_OK);
    for (int i = 0; i < 3; i++) wait_job(&many[i]);
    for (int i = 0; i < 3; i++) assert_int_equal(many[i].n_tokens, 6);
    assert_int_equal(lines.n, 3); /* they also wait for blocks */
    pi__core_close(e);
}

/* Returns the KiB of this process that are locked. */
static long locked_kib(void)
{
    char line[256];
    long n = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmLck: %ld", &n);
    if (f) fclose(f);
    return n;
}

/* True if mlock has a visible effect; under sanitizers it has none, and emulators may ignore it. */
static bool locking_shows(void)
{
    static char page[65536];
    const long before = locked_kib();
    const bool shows = !mlock(page, sizeof page) && locked_kib() > before;
    munlock(page, sizeof page);
    return shows;
}

static void mlock_or_a_line(void **st)
{
    (void) st;
    pi__config c = base_config();
    log_lines lines = {0};
    const bool shows = locking_shows();
    const long before = locked_kib();
    c.device = "cpu";
    c.mlock = true;
    c.log = (pi__log) {count_warning, &lines, PI_LOG_WARN};
    pi__core *e = open_core(&c);
    if (lines.n) assert_non_null(strstr(lines.last, "ulimit -l"));
    else assert_true(!shows || locked_kib() > before);
    pi__core_close(e);
    assert_int_equal(locked_kib(), before);
}

static void refusals(void **st)
{
    (void) st;
    pi__config c = base_config();
    c.kv_tokens = 256;
    c.max_queue = 3;
    pi__core *e = open_core(&c);
    static job j, many[8];
    pi_error err = {0};
    fill(&j, 1, 0, 5);
    assert_int_equal(submit(e, &j, &err), PI_EINVAL);
    fill(&j, 1, 256, 5);
    assert_int_equal(submit(e, &j, &err), PI_ETOOBIG);
    assert_non_null(strstr(err.msg, "255"));
    fill(&j, 1, 10, 5);
    j.prompt[3] = TINY_VOCAB;
    assert_int_equal(submit(e, &j, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "prompt token 3"));
    j.prompt[3] = -1;
    assert_int_equal(submit(e, &j, &err), PI_EINVAL);

    static atomic_int go;
    fill(&j, 1, 10, 5);
    j.gate = &go;
    must_submit(e, &j);
    for (int i = 0; i < 8; i++) fill(&many[i], 2, 10, 5);
    assert_int_equal(submit_all(e, many, 4, &err), PI_ETOOBIG);
    assert_non_null(strstr(err.msg, "queue of 3"));
    int rc = PI_EBUSY;
    for (int i = 0; i < 10000 && rc == PI_EBUSY; i++, usleep(1000)) rc = submit_all(e, many, 3, &err);
    assert_int_equal(rc, PI_OK); /* the request is in a step that does not end, so it is no longer queued */
    assert_int_equal(submit(e, &many[3], &err), PI_EBUSY);
    many[5].prompt[0] = -1;
    assert_int_equal(submit_all(e, many + 4, 2, &err), PI_EINVAL);
    atomic_store(&go, 1);
    wait_job(&j);
    for (int i = 0; i < 3; i++) wait_job(&many[i]);
    pi_stats s = {.size = sizeof s};
    pi__core_stats(e, &s);
    assert_int_equal(s.n_finished, 4);

    static atomic_int all_there;
    int busy = 0;
    for (int i = 0; i < 8; i++) { /* more than can run and wait at the same time */
        fill(&many[i], (uint32_t) i, 190, 60);
        many[i].gate = &all_there;
        rc = submit(e, &many[i], &err);
        assert_true(rc == PI_OK || rc == PI_EBUSY);
        busy += rc == PI_EBUSY;
    }
    atomic_store(&all_there, 1);
    assert_true(busy > 0);
    for (int i = 0; i < 8; i++)
        if (many[i].seq) wait_job(&many[i]);
    assert_int_equal(pi__core_drain(e, 1000), PI_OK);
    assert_int_equal(pi__core_state(e), PI_STATE_DRAINING);
    fill(&j, 1, 10, 5);
    assert_int_equal(submit(e, &j, &err), PI_ECLOSED);
    pi__core_close(e);
}

typedef struct chain { /* requests, each submitted when the previous one ends */
    pi__core *e;
    job j[40];
    atomic_int n_ended;
} chain;

static void submit_next(void *ud, const pi__job_end *end)
{
    chain *c = ud;
    int32_t n = c->n_ended + (end != NULL);
    if (n < 40) {
        pi_error err = {0};
        fill(&c->j[n], 1, 10, 0);
        if (n % 4 == 3) c->j[n].deadline_ms = 1e-6; /* ends while it waits */
        pi__job p = job_of(&c->j[n]);
        p.on_done = submit_next;
        p.ud = c;
        if (pi__core_submit(c->e, &p, 1, &c->j[n].seq, &err)) fail_msg("request %d: %s", n, err.msg);
    }
    atomic_store(&c->n_ended, n);
}

/* A caller that is notified of an end can submit the next request, even with a queue of minimal length. */
static void room_after_an_end(void **st)
{
    (void) st;
    pi__config c = base_config();
    c.max_queue = 1;
    static chain ch;
    ch.e = open_core(&c);
    submit_next(&ch, NULL);
    for (int i = 0; i < 10000 && ch.n_ended < 40; i++) usleep(1000);
    assert_int_equal(ch.n_ended, 40);
    for (int i = 0; i < 40; i++) pi__seq_release(ch.j[i].seq);
    pi__core_close(ch.e);
}

static void ends(void **st)
{
    (void) st;
    pi__config c = base_config();
    c.max_seqs = 2;
    pi__core *e = open_core(&c);
    static job run[4], late, none, stop;
    for (int i = 0; i < 4; i++) { /* two run, two wait */
        fill(&run[i], (uint32_t) i, 400, MAX_GEN);
        must_submit(e, &run[i]);
    }
    for (int i = 3; i >= 0; i--) {
        pi__seq_cancel(e, run[i].seq);
        pi__seq_cancel(e, run[i].seq);
    }
    for (int i = 0; i < 4; i++) {
        wait_job(&run[i]);
        assert_true(run[i].end.reason == PI_FINISH_CANCEL || run[i].end.reason == PI_FINISH_LENGTH);
    }
    fill(&late, 3, 400, MAX_GEN);
    late.deadline_ms = 0.001;
    must_submit(e, &late);
    wait_job(&late);
    assert_int_equal(late.end.code, PI_ETIMEDOUT);
    fill(&none, 3, 40, 0);
    must_submit(e, &none);
    wait_job(&none);
    assert_int_equal(none.end.reason, PI_FINISH_LENGTH);
    assert_int_equal(none.n_tokens, 0);
    fill(&stop, 3, 40, 20);
    stop.stop_after = 3;
    must_submit(e, &stop);
    wait_job(&stop);
    assert_int_equal(stop.end.reason, PI_FINISH_STOP);
    assert_int_equal(stop.n_tokens, 3);
    for (int i = 0; i < 20; i++) { /* when the end is reported, the stats show the blocks as free */
        pi_stats s = {.size = sizeof s};
        fill(&stop, 9, 200, MAX_GEN);
        must_submit(e, &stop);
        if (i % 2) usleep(500);
        pi__seq_cancel(e, stop.seq);
        wait_job(&stop);
        pi__core_stats(e, &s);
        assert_int_equal(s.n_running + s.n_waiting, 0);
        for (uint32_t g = 0; g < s.n_groups; g++) assert_int_equal(s.group[g].n_free, s.group[g].n_blocks);
    }
    check_all_free(e);
    for (int i = 0; i < 4; i++) must_submit(e, &run[i]);
    pi__core_close(e); /* with requests in every state */
    for (int i = 0; i < 4; i++) {
        assert_true(run[i].done);
        assert_true(run[i].end.code == PI_ECLOSED || run[i].end.code == PI_OK);
        pi__seq_release(run[i].seq);
    }
}

static void plan_is_what_is_taken(void **st)
{
    (void) st;
    pi__config c = base_config();
    pi_plan p = {.size = sizeof p};
    pi_error err = {0};
    assert_int_equal(pi__core_plan(&c, &p, &err), PI_OK);
    assert_int_equal(p.n_groups, 2);
    assert_int_equal(p.total_bytes, p.weights_bytes + p.kv_bytes + p.scratch_bytes);
    assert_int_equal(p.kv_tokens, 16384);
    uint64_t all = p.kv_bytes;
    c.kv_tokens = 0;
    c.kv_bytes = all / 2;
    assert_int_equal(pi__core_plan(&c, &p, &err), PI_OK);
    assert_true(p.kv_bytes <= all / 2 && p.kv_bytes > all / 3);
    c.kv_bytes = 100;
    assert_int_equal(pi__core_plan(&c, &p, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "kv-cache-bytes"));
    c = base_config();
    c.type_k = PI__Q8_0;
    c.type_v = PI__Q4_0;
    assert_int_equal(pi__core_plan(&c, &p, &err), PI_OK);
    assert_true(p.kv_bytes < all);
}

/* Returns the bytes that an engine allocates, and the planned bytes. */
static uint64_t bytes_taken(const pi__config *c, uint64_t *planned)
{
    static counting_alloc a;
    pi_plan p = {.size = sizeof p};
    pi_error err = {0};
    if (pi__core_plan(c, &p, &err)) fail_msg("plan: %s", err.msg);
    *planned = p.total_bytes;
    counting_use(&a, -1);
    pi__core *e = open_core(c);
    const uint64_t n = a.bytes;
    pi__core_close(e);
    pi_set_allocator(NULL);
    assert_int_equal(a.live, 0);
    return n;
}

/* Block tables, block hashes and step arrays are sized by the pools, not by the model's context. The plan includes
 * them: a larger engine allocates as many more bytes as its plan states. */
static void tables_are_planned(void **st)
{
    (void) st;
    pi__config c = base_config();
    uint64_t small_plan, long_plan, large_plan;
    c.kv_tokens = 256;
    c.max_seqs = 1;
    c.override_kv = (const char *const[]) {"gemma3.context_length=int:256"};
    c.n_override_kv = 1;
    const uint64_t small = bytes_taken(&c, &small_plan);
    c.override_kv = (const char *const[]) {"gemma3.context_length=int:268435456"};
    assert_int_equal(bytes_taken(&c, &long_plan), small);
    assert_int_equal(long_plan, small_plan);
    c.max_seqs = 40;
    c.kv_tokens = 65536;
    const uint64_t large = bytes_taken(&c, &large_plan);
    assert_true(large - small > 40 * 65536 / 16 * 2 * sizeof(int32_t));
    assert_in_range(large - small, large_plan - small_plan - 4096, large_plan - small_plan + 4096);
}

/* Opening, one request and closing, with allocation i failing, for every i. */
static void out_of_memory(void **st)
{
    (void) st;
    static counting_alloc a;
    pi__config c = base_config();
    c.kv_tokens = 256;
    c.params.cpu.n_threads = 1;
    long failures = 0;
    for (long i = 0;; i++) {
        counting_use(&a, i);
        pi__core *e;
        pi_error err = {0};
        static job j[2];
        for (int k = 0; k < 2; k++) {
            fill(&j[k], 5, 40, 4);
            j[k].no_cache = true;
        }
        int rc = pi__core_open(&e, &c, &err);
        if (!rc) {
            rc = submit_all(e, j, 2, &err);
            for (int k = 0; k < 2 && !rc; k++) wait_done(&j[k]);
            pi__core_close(e);
            for (int k = 0; k < 2; k++) pi__seq_release(j[k].seq); /* the counting allocator is single-threaded */
        }
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        if (a.count <= i) {
            assert_int_equal(rc, PI_OK);
            assert_true(j[0].n_tokens == 4 && j[1].n_tokens == 4);
            break;
        }
        if (rc) {
            assert_int_equal(rc, PI_ENOMEM);
            assert_true(err.msg[0]);
            failures++;
        }
    }
    assert_true(failures > 50);
}

static int setup(void **st)
{
    (void) st;
    pi_error err = {0};
    return tiny_write(tiny_path(model_path, "core"), NULL, &err);
}

static int teardown(void **st)
{
    (void) st;
    return unlink(model_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_composition_changes_nothing), cmocka_unit_test(prefix_hits_change_nothing),
        cmocka_unit_test(jobs_of_one_call), cmocka_unit_test(a_family_without_room),
        cmocka_unit_test(preemption_changes_nothing),
        cmocka_unit_test(shared_prefix_is_computed_once), cmocka_unit_test(burst), cmocka_unit_test(long_prompt),
        cmocka_unit_test(memory_follows_use), cmocka_unit_test(disk_tier), cmocka_unit_test(shared_directory),
        cmocka_unit_test(all_rows), cmocka_unit_test(scoring_reuses), cmocka_unit_test(what_fits),
        cmocka_unit_test(mlock_or_a_line), cmocka_unit_test(refusals),
        cmocka_unit_test(room_after_an_end),
        cmocka_unit_test(ends), cmocka_unit_test(plan_is_what_is_taken),
        cmocka_unit_test(tables_are_planned), cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
