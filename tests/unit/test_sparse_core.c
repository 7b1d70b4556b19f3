/* Sparse prefill in the engine. Tokens and all prompt rows are bitwise identical in every batch, with any step
 * budget, with cached prefixes (memory or disk), and after preemption. If all blocks are chosen, they equal dense
 * prefill. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/core.h"
#include "random_model.h"

enum { MAX_PROMPT = 1800, MAX_GEN = 12, N_JOBS = 4, B = PI__SPARSE_BLOCK };

typedef struct job {
    int32_t prompt[MAX_PROMPT], n_prompt, n_gen;
    bool scored, no_cache;
    int32_t tokens[MAX_GEN], n_tokens;
    uint64_t rows; /* hash of all received logits rows */
    pi__job_end end;
    atomic_int done;
    pi__seq *seq;
} job;

static char model_path[256];

static bool on_token(void *ud, const pi__token_out *t)
{
    job *j = ud;
    assert_true(j->n_tokens < MAX_GEN);
    j->tokens[j->n_tokens++] = t->id;
    return false;
}

static void on_done(void *ud, const pi__job_end *end)
{
    job *j = ud;
    j->end = *end;
    atomic_store(&j->done, 1);
}

static void on_logits(void *ud, uint32_t pos, const float *row, size_t n)
{
    job *j = ud;
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
    return (pi__config) {.model = model_path,
                         .max_batch_tokens = 512,
                         .max_seqs = 8,
                         .max_queue = 100,
                         .block_size = 16,
                         .type_k = PI__F16,
                         .type_v = PI__F16,
                         .prefix_cache = true,
                         .kv_tokens = 16384,
                         .snapshot_interval = 512,
                         .sparsity = 0.97f,
                         .sparse_from = 200,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

static pi__core *open_core(const pi__config *c)
{
    pi__core *e;
    pi_error err = {0};
    if (pi__core_open(&e, c, &err)) fail_msg("open: %s", err.msg);
    return e;
}

static void submit(pi__core *e, job *j)
{
    pi_error err = {0};
    pi__job p = {.prompt = j->prompt,
                 .n_prompt = (size_t) j->n_prompt,
                 .ud = j,
                 .on_token = on_token,
                 .on_done = on_done,
                 .on_logits = on_logits,
                 .logits_ud = j};
    p.params = (pi__gen_params) {.max_tokens = j->n_gen, .no_stop = true, .cache = !j->no_cache, .n_logprobs = -1,
                                 .logits = j->scored ? PI__LOGITS_ALL : PI__LOGITS_GENERATED,
                                 .sampling = {.top_p = 1, .typical_p = 1, .repeat_penalty = 1, .chain = {PI__SMP_N}}};
    j->n_tokens = 0;
    j->rows = 1469598103934665603u;
    atomic_store(&j->done, 0);
    if (pi__core_submit(e, &p, 1, &j->seq, &err)) fail_msg("submit: %s", err.msg);
}

static void wait_job(job *j)
{
    for (int i = 0; i < 120000 && !atomic_load(&j->done); i++) usleep(1000);
    assert_true(atomic_load(&j->done));
    pi__seq_release(j->seq);
    assert_int_equal(j->end.code, PI_OK);
}

static void run(pi__core *e, job *j)
{
    submit(e, j);
    wait_job(j);
}

/* Fills prompts; some share their first 1,000 tokens. */
static void fill(job *j, uint32_t seed, int32_t n_prompt)
{
    uint64_t shared = 5, own = seed;
    memset(j, 0, sizeof *j);
    j->n_prompt = n_prompt;
    j->n_gen = MAX_GEN;
    for (int32_t i = 0; i < n_prompt; i++)
        j->prompt[i] = (int32_t) (tiny_random(i < 1000 ? &shared : &own) % TINY_VOCAB);
}

static void make_jobs(job *j)
{
    static const int32_t lengths[N_JOBS] = {1500, 1297, 140, 1664};
    for (int i = 0; i < N_JOBS; i++) {
        fill(&j[i], 100 + (uint32_t) i, lengths[i]);
        j[i].scored = i % 2;
    }
}

static void assert_same(const job *a, const job *b, const char *how)
{
    if (a->n_tokens != b->n_tokens || memcmp(a->tokens, b->tokens, (size_t) a->n_tokens * sizeof *a->tokens) ||
        a->rows != b->rows)
        fail_msg("%s: a request of %d tokens differs", how, a->n_prompt);
}

static pi_stats stats_of(const pi__core *e)
{
    pi_stats s = {.size = sizeof s};
    usleep(20000); /* the step thread publishes after the callback */
    pi__core_stats(e, &s);
    return s;
}

static job plain[N_JOBS], other[N_JOBS];

/* Runs all jobs concurrently, or one after the other. */
static void run_as(const pi__config *c, bool at_once, const char *how)
{
    pi__core *e = open_core(c);
    make_jobs(other);
    for (int i = 0; i < N_JOBS; i++) at_once ? submit(e, &other[i]) : run(e, &other[i]);
    for (int i = 0; i < N_JOBS && at_once; i++) wait_job(&other[i]);
    pi__core_close(e);
    for (int i = 0; i < N_JOBS; i++) assert_same(&plain[i], &other[i], how);
}

/* Runs the jobs one by one; the results are the reference for later runs. */
static void run_plain(const pi__config *c, bool sparse)
{
    pi__core *e = open_core(c);
    make_jobs(plain);
    for (int i = 0; i < N_JOBS; i++) run(e, &plain[i]);
    const pi_stats s = stats_of(e);
    assert_int_equal(s.key_blocks_possible > 0, sparse);
    if (sparse) assert_true(s.key_blocks_attended < s.key_blocks_possible);
    pi__core_close(e);
}

static void company_changes_nothing(void)
{
    pi__config c = base_config();
    c.prefix_cache = false;
    run_plain(&c, true);
    run_as(&c, true, "together");
    c.max_batch_tokens = 136;
    run_as(&c, true, "together, steps of 136");
    c.params.cpu.n_threads = 1;
    c.block_size = 64;
    c.max_batch_tokens = 300;
    c.step_target_ms = 1;
    run_as(&c, true, "together, one thread, blocks of 64, steps of 300 that should take a millisecond");
    c = base_config();
    run_as(&c, false, "one after the other, with prefixes");
    c.kv_tokens = 2048; /* hardly enough for more than one request */
    c.max_batch_tokens = 200;
    run_as(&c, true, "with preemption");
}

static void all_blocks_are_dense(void)
{
    pi__config c = base_config();
    c.sparsity = 0;
    run_plain(&c, false);
    job dense[N_JOBS];
    memcpy(dense, plain, sizeof dense);
    c.sparsity = 1e-30f;
    run_as(&c, true, "all blocks are chosen");
    c.sparsity = 2;
    run_plain(&c, true);
    assert_true(plain[0].rows != dense[0].rows); /* otherwise sparsity had no effect */
    assert_int_equal(plain[2].rows, dense[2].rows); /* too short to be sparse */
}

/* A prompt reuses other prompts' prefixes, which equal its own computation. */
static void prefixes(void)
{
    char dir[] = "/tmp/pagedinfer-sparse-XXXXXX", cmd[400];
    static job a, alone, b;
    assert_non_null(mkdtemp(dir));
    pi__config c = base_config();
    c.prefix_dir = dir;
    c.prefix_dir_bytes = 64 << 20;
    pi__core *e = open_core(&c);
    fill(&a, 1, 1500);
    run(e, &a);
    assert_int_equal(a.end.cached_tokens, 0);
    b = a;
    run(e, &b);
    assert_int_equal(b.end.cached_tokens, 1488);
    assert_same(&a, &b, "again");
    /* The next turn is sparse at positions where the first turn was dense (near its end), so this part is a miss. */
    fill(&b, 1, 1500);
    memcpy(b.prompt + 1500, a.tokens, MAX_GEN * sizeof(int32_t));
    b.n_prompt = 1700;
    for (int i = 1500 + MAX_GEN; i < 1700; i++) b.prompt[i] = i % TINY_VOCAB;
    alone = b;
    alone.no_cache = true;
    run(e, &alone);
    run(e, &b);
    assert_int_equal(alone.end.cached_tokens, 0);
    /* 1500 tokens fill or begin 12 blocks; the last two of them are dense */
    assert_int_equal(b.end.cached_tokens, 10 * B);
    assert_same(&alone, &b, "the next turn");
    /* A prompt that diverges after 1,000 tokens, and one that is dense there. */
    fill(&b, 9, 1500);
    run(e, &b);
    /* depends on retained windows or snapshots */
    assert_true(b.end.cached_tokens >= 2 * B && b.end.cached_tokens <= 7 * B);
    assert_int_equal(b.end.cached_tokens % B, 0);
    alone = b;
    alone.no_cache = true;
    run(e, &alone);
    assert_same(&alone, &b, "one that leaves it");
    fill(&b, 9, 1010);
    run(e, &b);
    assert_true(b.end.cached_tokens > 0 && b.end.cached_tokens <= 6 * B);
    alone = b;
    alone.no_cache = true;
    run(e, &alone);
    assert_same(&alone, &b, "a shorter one");
    pi__core_close(e);
    e = open_core(&c);
    b = a;
    run(e, &b);
    assert_int_equal(b.end.cached_tokens, 1488);
    assert_same(&a, &b, "from disk");
    pi__core_close(e);
    c.sparsity = 0.5f;
    e = open_core(&c);
    b = a;
    run(e, &b);
    assert_int_equal(b.end.cached_tokens, 0); /* prefixes of another sparsity do not match */
    pi__core_close(e);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
}

static void refuse(const pi__config *c, int code, const char *words)
{
    pi__core *e;
    pi_error err = {0};
    assert_int_equal(pi__core_open(&e, c, &err), code);
    if (!strstr(err.msg, words)) fail_msg("'%s' does not say '%s'", err.msg, words);
}

static void each(const char *arch, const char *sizes)
{
    pi_error err;
    const tiny_spec spec = {.arch = arch, .ctx = 4096, .sizes = sizes};
    assert_int_equal(tiny_write(tiny_path(model_path, "sparse"), &spec, &err), PI_OK);
}

static void gemma3(void **st)
{
    (void) st;
    each("gemma3", "L=4 P=2");
    company_changes_nothing();
    all_blocks_are_dense();
    prefixes();
    pi__config c = base_config();
    c.max_batch_tokens = 130;
    refuse(&c, PI_EINVAL, "raise ubatch-size to 136, or lower parallel");
    unlink(model_path);
}

static void qwen35(void **st)
{
    (void) st;
    each("qwen35", NULL);
    company_changes_nothing();
    prefixes();
    unlink(model_path);
}

static void deepseek4(void **st)
{
    (void) st;
    each("deepseek4", NULL);
    pi__config c = base_config();
    refuse(&c, PI_EUNSUPPORTED, "no full attention");
    unlink(model_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gemma3), cmocka_unit_test(qwen35), cmocka_unit_test(deepseek4)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
