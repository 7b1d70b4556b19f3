/* Several processes as one engine; here they are threads with a test transport. Results are bitwise identical to one
 * process, for every kind of model and batch. A process that dies at any call, or runs out of memory, ends with
 * errors on all others, in time and without leaks. tests/scripts/check_ranks.py uses real processes, and MPI. */
#include "model_jobs.h"

#include "backend/ranks.h"
#include "backend/tensor_orders.h"
#include "base/clock.h"
#include "base/error.h"
#include "adapter_file.h"
#include "random_model.h"

enum { MOST = 4 };

/* Shared state of the test transport. */
typedef struct place {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t n, n_here;        /* ranks; ranks that wait for the others */
    uint64_t round;           /* number of completed collective calls */
    char *buf[MOST];          /* buffer of each rank during a collective call */
    size_t n_bytes[MOST];     /* bytes in it */
    /* type of the rank's call; false = bcast. After a changed command, ranks may make different calls */
    bool gathers[MOST];
    const void *mail[MOST];   /* message in transit from rank 0; NULL = no message */
    size_t n_mail[MOST];      /* bytes in it */
    long n_calls, die_at;     /* calls of the victim; the call at which it dies, negative = never */
    int32_t victim;
    /* messages sent to rank 1 so far; the message in which a word changes, negative = none changes */
    long n_orders, change_at;
    uint32_t seed;            /* random seed of the change */
} place;

typedef struct process {
    pi__ranks r;              /* first member: the library sees only this */
    place *at;
    pthread_t thread;
    int code;                 /* result of pi__tensor_follow */
    pi_error err;
} process;

/* True if this call is at or after the victim's death. */
static bool is_dead(place *p, int32_t rank)
{
    return rank == p->victim && p->die_at >= 0 && p->n_calls++ >= p->die_at;
}

/* Waits until the transport changes; the caller holds the lock. Returns false on timeout. */
static bool wait_here(place *p, const struct timespec *until)
{
    return pthread_cond_timedwait(&p->changed, &p->lock, until) == 0;
}

static bool meet(place *p, int32_t rank, void *buf, const struct timespec *until)
{
    const uint64_t round = p->round;
    p->buf[rank] = buf;
    if (++p->n_here == p->n) {
        p->n_here = 0;
        p->round++;
        pthread_cond_broadcast(&p->changed);
    }
    while (p->round == round)
        if (!wait_here(p, until) && p->round == round) {
            p->n_here--;
            return false;
        }
    return true;
}

static struct timespec until(double ms) { return pi__deadline(ms < 0 ? 1e7 : ms); }

static uint32_t next_random(place *p) { return p->seed = p->seed * 1664525u + 1013904223u; }

/* Replaces a word of a message to rank 1: a count, an offset, a length, a flag or an address. */
static void change_word(place *p, char *buf, size_t n)
{
    static const int64_t words[] = {0,
                                    1,
                                    2,
                                    7,
                                    64,
                                    4096,
                                    1 << 20,
                                    INT32_MAX,
                                    (int64_t) INT32_MAX + 1,
                                    UINT32_MAX,
                                    (int64_t) 1 << 32,
                                    (int64_t) 1 << 40,
                                    INT64_MAX,
                                    INT64_MIN,
                                    -1,
                                    -2};
    if (n < 4 || p->n_orders++ != p->change_at) return;
    const size_t size = n >= 8 && next_random(p) >> 16 & 1 ? 8 : 4, at = (next_random(p) >> 8) % (n / size) * size;
    int64_t w = words[(next_random(p) >> 16) % (sizeof words / sizeof *words)];
    int32_t old;
    memcpy(&old, buf + at, sizeof old);
    if (next_random(p) >> 16 & 1) w = old + (w > 0 && w < 100 ? w : 1); /* or slightly more than before */
    memcpy(buf + at, &w, size);
}

static bool place_bcast(pi__ranks *r, void *buf, size_t n, double ms)
{
    place *p = ((process *) r)->at;
    const struct timespec t = until(ms);
    pthread_mutex_lock(&p->lock);
    p->n_bytes[r->rank] = n, p->gathers[r->rank] = false;
    bool ok = !is_dead(p, r->rank) && meet(p, r->rank, buf, &t) && !p->gathers[0];
    if (ok && r->rank) memcpy(buf, p->buf[0], n < p->n_bytes[0] ? n : p->n_bytes[0]);
    if (ok && r->rank == 1 && p->change_at >= 0) change_word(p, buf, n);
    ok = ok && meet(p, r->rank, buf, &t);
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static bool place_gather(pi__ranks *r, void *buf, size_t n, double ms)
{
    place *p = ((process *) r)->at;
    const struct timespec t = until(ms);
    pthread_mutex_lock(&p->lock);
    p->n_bytes[r->rank] = n, p->gathers[r->rank] = true;
    bool ok = !is_dead(p, r->rank) && meet(p, r->rank, buf, &t);
    for (int32_t i = 0; i < r->n && ok; i++) ok = p->gathers[i] && p->n_bytes[i] == n;
    for (int32_t i = 0; i < r->n && ok; i++)
        if (i != r->rank) memcpy((char *) buf + (size_t) i * n, p->buf[i] + (size_t) i * n, n);
    ok = ok && meet(p, r->rank, buf, &t);
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static bool place_send(pi__ranks *r, int32_t to, const void *from, size_t n, double ms)
{
    place *p = ((process *) r)->at;
    const struct timespec t = until(ms);
    pthread_mutex_lock(&p->lock);
    bool ok = !is_dead(p, r->rank);
    if (ok) p->mail[to] = from, p->n_mail[to] = n;
    pthread_cond_broadcast(&p->changed);
    while (ok && p->mail[to]) ok = wait_here(p, &t) || !p->mail[to];
    p->mail[to] = NULL;
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static bool place_receive(pi__ranks *r, void *to, size_t n, double ms)
{
    place *p = ((process *) r)->at;
    const struct timespec t = until(ms);
    pthread_mutex_lock(&p->lock);
    bool ok = !is_dead(p, r->rank);
    while (ok && !p->mail[r->rank]) ok = wait_here(p, &t) || p->mail[r->rank];
    if (ok) memcpy(to, p->mail[r->rank], n < p->n_mail[r->rank] ? n : p->n_mail[r->rank]);
    if (ok) p->mail[r->rank] = NULL;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static void *follow(void *arg)
{
    process *p = arg;
    p->code = pi__tensor_follow(&p->r, &(pi__log) {0}, &p->err);
    return NULL;
}

static place here;
static process proc[MOST];

/* Starts n processes; `victim` dies at its call die_at. */
static pi__ranks *start(int32_t n, double timeout_ms, int32_t victim, long die_at)
{
    static const pi__ranks_fns fns = {place_bcast, place_gather, place_send, place_receive};
    pi_error err = {0};
    here = (place) {.n = n, .victim = victim, .die_at = die_at, .change_at = -1};
    pthread_mutex_init(&here.lock, NULL);
    (void) pi__cond_init(&here.changed);
    for (int32_t i = 0; i < n; i++) {
        proc[i] = (process) {.r = {.fns = &fns, .rank = i, .n = n, .local = i, .n_local = n, .timeout_ms = timeout_ms},
                             .at = &here};
        assert_int_equal(pi__ranks_begin(&proc[i].r, &err), PI_OK);
    }
    for (int32_t i = 1; i < n; i++) assert_int_equal(pthread_create(&proc[i].thread, NULL, follow, &proc[i]), 0);
    return &proc[0].r;
}

/* Waits for all processes. They end with PI_OK if code is PI_OK, otherwise with PI_OK or `code`. */
static void stop(int code)
{
    const int32_t n = here.n;
    pi__ranks_end(&proc[0].r);
    for (int32_t i = 1; i < n; i++) {
        pthread_join(proc[i].thread, NULL);
        if (!code || proc[i].code) assert_int_equal(proc[i].code, code);
        if (proc[i].code) assert_non_null(strstr(proc[i].err.msg, "rank-timeout"));
        pi__ranks_end(&proc[i].r);
    }
    pthread_cond_destroy(&here.changed);
    pthread_mutex_destroy(&here.lock);
}

static char path[256];

static pi__config config(pi__ranks *ranks)
{
    return (pi__config) {.model = path,
                         .max_batch_tokens = 64,
                         .max_seqs = 8,
                         .max_queue = 20,
                         .block_size = 16,
                         .snapshot_interval = 64,
                         .type_k = PI__F16,
                         .type_v = PI__F16,
                         .kv_tokens = 4096,
                         .device = "cpu",
                         .ranks = ranks,
                         .params.cpu = {.n_threads = 1, .poll = 1}};
}

enum { PATIENT_MS = 60000, HASTY_MS = 80 };

static void write_model(const tiny_spec *spec)
{
    pi_error err = {0};
    tiny_path(path, "processes");
    if (tiny_write(path, spec, &err)) fail_msg("%s", err.msg);
}

/* n processes give the bits of one process, for single requests and batches, with several engines in sequence. */
static void same_bits(const tiny_spec *spec, int32_t n, int spec_kind)
{
    static job want[N_JOBS], got[N_JOBS];
    write_model(spec);
    jobs_fill(want), jobs_fill(got);
    pi__config c = config(NULL);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    c = config(start(n, PATIENT_MS, 0, -1));
    jobs_run(&c, false, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "processes", n);
    c.max_batch_tokens = 11;
    c.prefix_cache = true;
    c.kv_commit = true;
    c.spec = spec_kind;
    c.n_draft = spec_kind == PI__SPEC_NONE ? 0 : 3;
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "steps of 11, processes", n);
    stop(PI_OK);
    unlink(path);
}

static void test_bits(void **st)
{
    (void) st;
    same_bits(&(tiny_spec) {.type = PI__Q4_K, .sizes = "E=256 H=8 G=4 F=256"}, 2, PI__SPEC_NONE);
    same_bits(&(tiny_spec) {.arch = "gemma4"}, 4, PI__SPEC_NONE);
    same_bits(&(tiny_spec) {.arch = "qwen35moe"}, 3, PI__SPEC_MTP);
    same_bits(&(tiny_spec) {.arch = "deepseek4"}, 2, PI__SPEC_NONE);
    same_bits(&(tiny_spec) {.arch = "deepseek3"}, 2, PI__SPEC_NONE);
}

/* Runs requests with adapters that request all logits rows, which exceed the rows per pass. */
static void run_adapted(const pi__config *c, const char *adapter, job *j)
{
    static const pi__lora_ask whole = {"a", 1}, half = {"a", 0.5f};
    pi_error err = {0};
    pi__core *e = job_core(c);
    if (pi__core_lora_load(e, "a", adapter, 0, &err)) fail_msg("%s", err.msg);
    jobs_fill(j);
    for (int i = 0; i < N_JOBS; i++)
        if (i != 1) j[i].lora = i % 2 ? &half : &whole, j[i].n_lora = 1;
    jobs_submit(e, j, PI__LOGITS_ALL, NULL);
    for (int i = 0; i < N_JOBS; i++) job_await(&j[i], PI_OK);
    pi__core_close(e);
}

static void test_adapters(void **st)
{
    static job want[N_JOBS], got[N_JOBS];
    char adapter[256];
    pi_error err = {0};
    (void) st;
    write_model(&(tiny_spec) {.arch = "mixtral"});
    tiny_path(adapter, "processes-adapter");
    if (adapter_write(adapter, path, &(adapter_spec) {.seed = 3, .rank = 8, .alpha = 16}, &err))
        fail_msg("%s", err.msg);
    pi__config c = config(NULL);
    run_adapted(&c, adapter, want);
    for (int32_t n = 2; n < 4; n++) {
        c = config(start(n, PATIENT_MS, 0, -1));
        c.max_batch_tokens = n == 3 ? 300 : c.max_batch_tokens;
        run_adapted(&c, adapter, got);
        jobs_check(got, want, "adapters, processes", n);
        stop(PI_OK);
    }
    unlink(path), unlink(adapter);
}

/* Opens an engine and runs one request; returns the first error code. */
static int attempt(pi__ranks *ranks, double *took)
{
    static job j[N_JOBS];
    pi_error err = {0};
    pi__core *e = NULL;
    pi__config c = config(ranks);
    jobs_fill(j);
    int rc = pi__core_open(&e, &c, &err);
    job *one = &j[1];
    const pi__job ready = rc ? (pi__job) {0} : job_ready(e, one, PI__LOGITS_GENERATED, NULL);
    if (!rc && !(rc = pi__core_submit(e, &ready, 1, &one->seq, &err))) {
        for (int i = 0; i < 60000 && !atomic_load(&one->done); i++) usleep(1000);
        assert_true(atomic_load(&one->done));
        rc = one->code;
        pi__seq_release(one->seq);
        if (rc == PI_EDEVICE) assert_int_equal(pi__core_state(e), PI_STATE_FAILED);
    }
    const double start = pi__now_ms();
    pi__core_close(e);
    *took = pi__now_ms() - start;
    return rc;
}

/* The victim dies at its n-th call. */
static void test_deaths(void **st)
{
    (void) st;
    static const long at[] = {0, 1, 3, 8, 20, 45, 90, 180, 300};
    double took;
    write_model(NULL);
    int n_failed = 0, n_done = 0;
    for (int32_t victim = 0; victim < 3; victim += 2)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            pi__ranks *r = start(3, HASTY_MS, victim, at[i]);
            const int rc = attempt(r, &took);
            /* an allocation fails with PI_ENOMEM if a rank dies during it */
            if (rc && rc != PI_ENOMEM) assert_int_equal(rc, PI_EDEVICE);
            assert_true(took < 20 * HASTY_MS);
            n_failed += rc != PI_OK, n_done += rc == PI_OK;
            stop(PI_EDEVICE);
        }
    assert_true(n_failed >= 12);
    pi__ranks *r = start(3, PATIENT_MS, 1, -1);
    assert_int_equal(attempt(r, &took), PI_OK); /* the same run succeeds if no process dies */
    stop(PI_OK);
    unlink(path);
}

/* With commands changed in transit, rank 1 executes them or ends, within its own memory. */
static void test_changed_orders(void **st)
{
    (void) st;
    static const char *const arch[] = {NULL, "qwen35moe", "deepseek4", "gemma4"};
    const long rounds = getenv("PAGEDINFER_LONG") ? 4000 : 120;
    int n_refused = 0;
    double took;
    for (long i = 0; i < rounds; i++) {
        if (i % (rounds / 4) == 0) write_model(&(tiny_spec) {.arch = arch[i / (rounds / 4) % 4]});
        pi__ranks *r = start(2, HASTY_MS, 0, -1);
        here.seed = (uint32_t) i * 2654435761u + 1;
        here.change_at = (next_random(&here) >> 8) % 400;
        n_refused += attempt(r, &took) != PI_OK;
        pi__ranks_end(&proc[0].r);
        pthread_join(proc[1].thread, NULL);
        pi__ranks_end(&proc[1].r);
        pthread_cond_destroy(&here.changed);
        pthread_mutex_destroy(&here.lock);
    }
    assert_true(n_refused > rounds / 10);
    unlink(path);
}

/* A worker rank that is idle for longer than the timeout stays connected. One of three attempts must succeed, because
 * the machine may be slow. */
static void test_idle(void **st)
{
    (void) st;
    enum { TIMEOUT_MS = 800 };
    double took;
    int rc = PI_EDEVICE;
    write_model(NULL);
    for (int i = 0; i < 3 && rc; i++) {
        pi__ranks *r = start(2, TIMEOUT_MS, 0, -1);
        usleep((TIMEOUT_MS + TIMEOUT_MS / 2) * 1000);
        rc = attempt(r, &took);
        stop(rc);
    }
    assert_int_equal(rc, PI_OK);
    unlink(path);
}

/* ---- out of memory: the n-th allocation of any thread fails */

static atomic_long n_allocs, live, fail_at;

static bool fails(void) { return atomic_fetch_add(&n_allocs, 1) == atomic_load(&fail_at); }
static void *hook_malloc(void *ud, size_t n)
{
    (void) ud;
    void *p = fails() ? NULL : malloc(n);
    if (p) atomic_fetch_add(&live, 1);
    return p;
}
static void hook_free(void *ud, void *p)
{
    (void) ud;
    if (p) atomic_fetch_sub(&live, 1);
    free(p);
}
static void *hook_realloc(void *ud, void *p, size_t n)
{
    (void) ud;
    void *q = fails() ? NULL : realloc(p, n);
    if (q && !p) atomic_fetch_add(&live, 1);
    return q;
}
static void *hook_map(void *ud, size_t n)
{
    void *p = hook_malloc(ud, 0);
    void *q = p ? aligned_alloc(4096, (n + 4095) / 4096 * 4096) : NULL;
    free(p);
    if (q) memset(q, 0, n);
    return q;
}
static void hook_unmap(void *ud, void *p, size_t n)
{
    (void) n;
    hook_free(ud, p);
}

static void test_out_of_memory(void **st)
{
    (void) st;
    const pi_allocator hooks = {sizeof hooks, NULL, hook_malloc, hook_realloc, hook_free, hook_map, hook_unmap};
    write_model(NULL);
    for (long i = 0;; i += 1 + i / 40) {
        double took;
        atomic_store(&n_allocs, 0), atomic_store(&live, 0), atomic_store(&fail_at, i);
        assert_int_equal(pi_set_allocator(&hooks), PI_OK);
        const int rc = attempt(start(2, HASTY_MS, 0, -1), &took);
        stop(PI_EDEVICE);
        pi_set_allocator(NULL);
        assert_int_equal(atomic_load(&live), 0);
        if (rc) assert_true(rc == PI_ENOMEM || rc == PI_EDEVICE);
        if (atomic_load(&n_allocs) > i) continue;
        assert_true(i > 40);
        break;
    }
    unlink(path);
}

/* Environment variables of a launcher, and the expected rank and number of ranks. */
static void launched(const char *rank, const char *a, const char *n, const char *b, int32_t want_rank, int32_t want_n)
{
    pi__launch got;
    pi_error err = {0};
    if (rank) setenv(rank, a, 1);
    if (n) setenv(n, b, 1);
    const int rc = pi__ranks_launched(&got, &err);
    if (rank) unsetenv(rank);
    if (n) unsetenv(n);
    assert_int_equal(rc, want_n < 0 ? PI_EUNSUPPORTED : PI_OK);
    if (rc) assert_non_null(strstr(err.msg, "mpirun"));
    else assert_true(got.rank == want_rank && got.n == want_n);
}

static void test_launchers(void **st)
{
    (void) st;
    static const char *const mpirun[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
    launched(NULL, "", NULL, "", 0, 1);
    launched(mpirun[0], "3", mpirun[1], "4", 3, 4);
    launched(mpirun[0], "4", mpirun[1], "4", 0, 1); /* inconsistent */
    launched(mpirun[0], "", mpirun[1], "4", 0, 1);
    launched(mpirun[0], "1x", mpirun[1], "4", 0, 1);
    launched("SLURM_PROCID", "0", NULL, "", 0, 1); /* commands of a batch script are not ranks */
    launched("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", 1, 2);
    launched("PMI_RANK", "1", "PMI_SIZE", "8", 1, 8);
    launched("RANK", "0", "WORLD_SIZE", "2", 0, -1); /* without an address to meet at */
    launched("RANK", "0", "WORLD_SIZE", "1", 0, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    launched("RANK", "0", "WORLD_SIZE", "2", 0, -1);
    setenv("MASTER_PORT", "29500", 1);
    launched("RANK", "1", "WORLD_SIZE", "2", 1, 2);
    launched("RANK", "2", "WORLD_SIZE", "2", 0, 1);
    setenv("MASTER_PORT", "port", 1);
    launched("RANK", "1", "WORLD_SIZE", "2", 0, -1);
    unsetenv("MASTER_ADDR"), unsetenv("MASTER_PORT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits),     cmocka_unit_test(test_adapters),
                                       cmocka_unit_test(test_deaths),   cmocka_unit_test(test_changed_orders),
                                       cmocka_unit_test(test_idle),     cmocka_unit_test(test_out_of_memory),
                                       cmocka_unit_test(test_launchers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
