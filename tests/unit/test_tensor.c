/* Several devices as one (split-mode tensor); the devices are CPUs. Logits are bitwise identical to one device for
 * every architecture, number of devices and batch. If one device fails, all fail, and none waits forever. */
#include "model_jobs.h"

#include "backend/link.h"
#include "backend/tensor.h"
#include "base/error.h"
#include "counting_alloc.h"
#include "random_model.h"

static char path[256];

static pi__config config(const char *device)
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
                         .device = device,
                         .tensor = true,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

/* 1, 2 and 4 devices, one request at a time; then 2 devices with all kinds of batches. */
static void same_bits(void)
{
    static job want[N_JOBS], got[N_JOBS];
    jobs_fill(want), jobs_fill(got);
    pi__config c = config("cpu");
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
    for (int n = 2; n <= 4; n++) {
        c = config(n == 2 ? "cpu,cpu" : n == 3 ? "cpu,cpu,cpu" : "cpu,cpu,cpu,cpu");
        jobs_run(&c, n != 2, PI__LOGITS_GENERATED, got);
        jobs_check(got, want, "devices", n);
    }
    c = config("cpu,cpu");
    c.max_batch_tokens = 11;
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "steps of", 11);
    c.prefix_cache = true;
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "prefixes", 1);
    assert_true(got[N_JOBS - 1].n_cached >= 200);
    c.prefix_cache = false;
    c.max_batch_tokens = 64;
    c.kv_tokens = 400; /* enough for all prompts, not for the answers */
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "preemption", 1);
    uint32_t preempted = 0;
    for (int i = 0; i < N_JOBS; i++) preempted += got[i].n_preempted;
    assert_true(preempted > 0);
}

/* Drafts of the model's own head change no token and no row. */
static void drafts(void)
{
    static job want[N_JOBS], got[N_JOBS];
    jobs_fill(want), jobs_fill(got);
    pi__config c = config("cpu");
    jobs_run(&c, true, PI__LOGITS_GENERATED, want);
    c = config("cpu,cpu");
    c.spec = PI__SPEC_MTP;
    c.n_draft = 3;
    jobs_run(&c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, "drafts of", 3);
}

/* Requests are correct while others are canceled in the middle of their prefill or decode. */
static void beside_cancelled(void)
{
    static job want[N_JOBS], got[N_JOBS], other;
    jobs_fill(want), jobs_fill(got);
    pi__config c = config("cpu");
    jobs_run(&c, true, PI__LOGITS_GENERATED, want);
    c = config("cpu,cpu");
    c.max_batch_tokens = 16;
    pi__core *e = job_core(&c);
    for (int i = 0; i < N_JOBS; i++) {
        other = got[4];
        job_submit(e, &other, PI__LOGITS_NONE, NULL);
        job_submit(e, &got[i], PI__LOGITS_GENERATED, NULL);
        if (i % 2) usleep(500);
        pi__seq_cancel(e, other.seq);
        job_await(&got[i], PI_OK);
        while (!atomic_load(&other.done)) usleep(100);
        pi__seq_release(other.seq);
    }
    pi__core_close(e);
    jobs_check(got, want, "beside cancelled ones", 1);
}

/* Each device needs only a part of the bytes of a single device. */
static void smaller(bool cache)
{
    pi_plan one = {.size = sizeof one}, two = one;
    pi_error err = {0};
    pi__config c = config("cpu");
    assert_int_equal(pi__core_plan(&c, &one, &err), PI_OK);
    c = config("cpu,cpu");
    assert_int_equal(pi__core_plan(&c, &two, &err), PI_OK);
    assert_in_range(two.weights_bytes, one.weights_bytes / 2, one.weights_bytes * 3 / 4);
    if (cache) assert_true(two.kv_bytes < one.kv_bytes);
}

/* Opening with each allocation failing in turn returns an error and frees all memory. */
static void out_of_memory(void)
{
    static counting_alloc a;
    pi__config c = config("cpu,cpu");
    c.kv_tokens = 64;
    for (long i = 0;; i++) {
        pi__core *e = NULL;
        pi_error err = {0};
        counting_use(&a, i);
        int rc = pi__core_open(&e, &c, &err);
        pi__core_close(e);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        if (rc) assert_int_equal(rc, PI_ENOMEM);
        if (a.count <= i) {
            assert_int_equal(rc, PI_OK);
            assert_true(i > 40);
            return;
        }
    }
}

static void written(int rc, pi_error *err)
{
    if (rc) fail_msg("%s", err->msg);
}

static void test_gemma3(void **st)
{
    (void) st;
    pi_error err = {0};
    tiny_path(path, "tensor");
    const tiny_spec specs[] = {{.type = PI__F32}, {.type = PI__Q4_K, .sizes = "E=256 H=8 G=4 F=256"}};
    for (int i = 0; i < 2; i++) {
        written(tiny_write(path, &specs[i], &err), &err);
        same_bits();
        smaller(i == 1);
    }
    beside_cancelled();
    out_of_memory();
    unlink(path);
}

static void test_gemma4(void **st)
{
    (void) st;
    pi_error err = {0};
    tiny_path(path, "tensor");
    written(tiny_write(path, &(tiny_spec) {.arch = "gemma4"}, &err), &err);
    same_bits();
    smaller(true);
    unlink(path);
}

static void test_qwen35(void **st)
{
    (void) st;
    pi_error err = {0};
    tiny_path(path, "tensor");
    for (int moe = 0; moe < 2; moe++) {
        written(tiny_write(path, &(tiny_spec) {.arch = moe ? "qwen35moe" : "qwen35"}, &err), &err);
        same_bits();
        smaller(true);
    }
    drafts();
    unlink(path);
}

/* ---- failures: two CPUs; the second one fails on request */

static pi__device_fns ops;          /* the CPU's functions, except finish */
static pi__device_opt opt;          /* likewise, except join */
static int (*cpu_finish)(pi__backend *be, pi_error *err);
static pi__backend *second;          /* the device that fails */
static int fail_finish;              /* error code of the failure; 0 = no failure */
static pi__link_ops link_ops;        /* the local link's functions, except gather */
static bool (*local_gather)(pi__link *l, int32_t rank, float *buf, size_t count);
static bool fail_gather;             /* true = the second rank's gather fails */

static int failing_finish(pi__backend *be, pi_error *err)
{
    if (be == second && fail_finish) return pi__fail(err, fail_finish, "it was told to fail");
    return cpu_finish(be, err);
}

static bool failing_gather(pi__link *l, int32_t rank, float *buf, size_t count)
{
    return !(rank == 1 && fail_gather) && local_gather(l, rank, buf, count);
}

static int join(pi__link **out, pi__backend *const *be, int32_t n, pi_error *err)
{
    (void) be;
    int rc = pi__link_local(out, n, err);
    if (rc) return rc;
    link_ops = *(*out)->ops;
    local_gather = link_ops.gather;
    link_ops.gather = failing_gather;
    (*out)->ops = &link_ops;
    return PI_OK;
}

static pi__backend *two_cpus(void)
{
    pi__backend *dev[2], *be;
    pi_error err = {0};
    for (int i = 0; i < 2; i++) {
        written(pi__cpu_create(&dev[i], &(pi__cpu_params) {.n_threads = 1}, &(pi__log) {0}, &err), &err);
        ops = *dev[i]->dev;
        opt = *dev[i]->opt;
        cpu_finish = ops.finish;
    }
    ops.finish = failing_finish;
    opt.join = join;
    dev[0]->dev = dev[1]->dev = &ops;
    dev[0]->opt = dev[1]->opt = &opt;
    second = dev[1];
    written(pi__tensor_create(&be, dev, 2, &err), &err);
    return be;
}

enum { N_IN = 32, N_OUT = 64, ROWS = 3 };

/* Computes y = W x on be and returns the result of finish; each row of W is constant. */
static int multiply(pi__backend *be, const pi__weight *w, float *x, float *y, pi_error *err)
{
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = N_IN};
    pi__op_linear(be, NULL, &(pi__linear) {.in = in, .n_rows = ROWS, .n_lin = 1, .lin = {{w, y, N_OUT}}});
    return be->dev->finish(be, err);
}

static void test_failures(void **st)
{
    (void) st;
    float rows[N_OUT][N_IN], ones[ROWS][N_IN];
    pi_error err = {0};
    for (int i = 0; i < N_OUT * N_IN; i++) rows[i / N_IN][i % N_IN] = (float) (i / N_IN);
    for (int i = 0; i < ROWS * N_IN; i++) ones[i / N_IN][i % N_IN] = 1.0f;
    pi__backend *be = two_cpus();
    pi__limits lim = {.max_tokens = 4,
                      .max_seqs = 1,
                      .max_rows = 1,
                      .max_ctx = 16,
                      .max_n_in = N_IN,
                      .max_n_out = N_OUT,
                      .max_n_head = 1,
                      .max_head_dim = 32};
    written(be->dev->reserve(be, &lim, &err), &err);
    pi__weight w = {.type = PI__F32, .n_in = N_IN, .n_out = N_OUT, .n_mat = 1};
    w.size = be->dev->weight_size(be, &w);
    assert_int_equal(w.size, sizeof rows / 2);
    w.data = be->dev->alloc(be, w.size);
    float *x = be->dev->alloc(be, sizeof ones), *y = be->dev->alloc(be, ROWS * N_OUT * sizeof *y);
    assert_true(w.data && x && y);
    be->dev->weight_load(be, &w, 0, 0, N_OUT, rows);
    be->dev->upload(be, x, ones, sizeof ones);
    written(multiply(be, &w, x, y, &err), &err);
    for (int i = 0; i < ROWS * N_OUT; i++) assert_true(y[i] == (float) (i % N_OUT * N_IN));

    fail_finish = PI_ENOMEM; /* a temporary failure */
    assert_int_equal(multiply(be, &w, x, y, &err), PI_ENOMEM);
    assert_non_null(strstr(err.msg, "device 2 of 2: it was told to fail"));
    fail_finish = 0;
    written(multiply(be, &w, x, y, &err), &err);
    fail_gather = true; /* a permanent failure: no rank may wait for a rank that left */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(multiply(be, &w, x, y, &err), PI_EDEVICE);
        assert_non_null(strstr(err.msg, "did not respond"));
        fail_gather = false;
    }
    be->dev->free(be, w.data, w.size);
    be->dev->free(be, x, sizeof ones);
    be->dev->free(be, y, ROWS * N_OUT * sizeof *y);
    be->dev->destroy(be);
}

static void test_refused(void **st)
{
    (void) st;
    pi_error err = {0};
    pi__core *e = NULL;
    tiny_path(path, "tensor");
    written(tiny_write(path, NULL, &err), &err);
    pi__config c = config("cpu,cpu");
    c.tensor = false;
    assert_int_equal(pi__core_open(&e, &c, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "split-mode tensor"));
    c = config("cpu,cpu");
    c.prefix_dir = "/tmp";
    assert_int_equal(pi__core_open(&e, &c, &err), PI_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "prefix-cache-dir"));
    static const char *const names[] = {"cpu,", ",cpu", "cpu,nothing", "cpu1",
                                        ("cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,"
                                         "cpu,cpu,cpu,cpu,cpu,cpu")};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        c = config(names[i]);
        assert_int_equal(pi__core_open(&e, &c, &err), PI_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, "is not in this build"));
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemma3),   cmocka_unit_test(test_gemma4),
                                       cmocka_unit_test(test_qwen35),   cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
