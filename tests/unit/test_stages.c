/* Several devices as stages of a pipeline (split-mode layer). Tokens and logits are bitwise identical to one device,
 * for every architecture, number of devices and microbatch size. A failing stage ends the step, and an impossible
 * placement is refused. The devices are CPUs, some with memory that the host cannot read ("far"). */
#include "discrete_device.h"
#include "model_jobs.h"

#include "backend/stages.h"
#include "counting_alloc.h"

typedef struct model {
    const char *arch, *sizes; /* see tiny_spec */
    int n_layer;
} model;

static const model models[] = {
    {"gemma3", "L=4", 4},   {"gemma4", NULL, 6},  {"qwen35", NULL, 5},      {"qwen35moe", NULL, 5},
    {"deepseek4", NULL, 4}, {"llama3", "L=4", 4}, {"llama-bias", "L=4", 4}, {"mixtral", "L=4", 4},
    {"qwen2", "L=4", 4},    {"qwen3", "L=4", 4},  {"qwen3moe", "L=4", 4},   {"phi3", "L=4", 4},
    {"gemma2", NULL, 4},    {"glm4moe", NULL, 4}, {"deepseek3", NULL, 4},   {"cohere2", NULL, 4},
    {"starcoder2", "L=4", 4}, {"qwen2moe", "L=4", 4}, {"olmo3", NULL, 4},
    {"lfm2", NULL, 5},       {"glm-dsa", NULL, 4},
    {"laguna", NULL, 4},     {"mimo2", NULL, 4},     {"kimi-linear", NULL, 4},
    {"jamba", NULL, 4},
};
enum { GEMMA4 = 1, QWEN35 = 2, DEEPSEEK4 = 4, GLM4MOE = 13, N_MODELS = sizeof models / sizeof *models };

static char path[256], head_path[256];
static job want[N_JOBS], got[N_JOBS];

static pi__config config(const char *device)
{
    return (pi__config) {.model = path,
                         .device = device,
                         .max_batch_tokens = 128,
                         .max_seqs = 8,
                         .max_queue = 20,
                         .block_size = 16,
                         .snapshot_interval = 64,
                         .type_k = PI__F16,
                         .type_v = PI__F16,
                         .kv_tokens = 4096,
                         .layers = true,
                         .params.cpu = {.n_threads = 1, .poll = 1}};
}

static void written(int rc, const pi_error *err)
{
    if (rc) fail_msg("%s", err->msg);
}

/* Writes the model and runs it on one device. */
static void begin(int i)
{
    pi_error err = {0};
    written(tiny_write(path, &(tiny_spec) {.arch = models[i].arch, .sizes = models[i].sizes}, &err), &err);
    pi__config c = config("cpu");
    jobs_fill(want);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want);
}

static void check(const pi__config *c, int i, const char *how, int n)
{
    char what[96];
    snprintf(what, sizeof what, "%s, %s", models[i].arch, how);
    jobs_fill(got);
    jobs_run(c, true, PI__LOGITS_GENERATED, got);
    jobs_check(got, want, what, n);
}

/* 2 stages of CPUs, and 4 of devices with their own memory: prompts in microbatches, and decode. */
static void test_same_bits(void **st)
{
    (void) st;
    for (int i = 0; i < N_MODELS; i++) {
        begin(i);
        pi__config c = config("cpu,cpu");
        check(&c, i, "stages", 2);
        c = config("far,far,far,far");
        c.prefix_cache = true;
        check(&c, i, "stages", 4);
        assert_true(got[N_JOBS - 1].n_cached >= 128); /* one block of DeepSeek V4 */
    }
}

/* Steps of other lengths, preemption, and parts of unequal size. */
static void test_batches(void **st)
{
    (void) st;
    begin(QWEN35);
    pi__config c = config("far,far");
    c.max_batch_tokens = 11;
    check(&c, QWEN35, "steps of", 11);
    c.max_batch_tokens = 300;
    c.snapshot_interval = 16;
    c.prefix_cache = true;
    check(&c, QWEN35, "steps of", 300);
    assert_true(got[N_JOBS - 1].n_cached >= 200);
    begin(0);
    c = config("cpu,cpu,cpu");
    c.part[0] = 1, c.part[1] = 5, c.part[2] = 1;
    c.kv_tokens = 400; /* enough for all prompts, not for the answers */
    check(&c, 0, "preemption", 1);
    uint32_t preempted = 0;
    for (int i = 0; i < N_JOBS; i++) preempted += got[i].n_preempted;
    assert_true(preempted > 0);
}

/* Drafts of the model's own head, of a head in its own file, and by layer exit, which needs only the first stage. */
static void test_drafts(void **st)
{
    (void) st;
    pi_error err = {0};
    begin(QWEN35);
    pi__config c = config("far,far");
    c.spec = PI__SPEC_MTP;
    c.n_draft = 3;
    check(&c, QWEN35, "drafts of a head", 3);
    begin(GLM4MOE);
    c = config("far,far");
    c.spec = PI__SPEC_MTP;
    c.n_draft = 3;
    check(&c, GLM4MOE, "drafts of a head", 3);
    begin(QWEN35);
    c = config("cpu,cpu,cpu");
    c.spec = PI__SPEC_LAYER_EXIT;
    c.n_draft = 2, c.draft_layers = 2;
    check(&c, QWEN35, "drafts of layers", 2);
    begin(GEMMA4); /* the drafter reads captured layers of all stages */
    written(tiny_write(head_path, &(tiny_spec) {.arch = "dflash", .sizes = "v=1"}, &err), &err);
    c = config("far,far,far");
    c.draft_model = head_path;
    c.n_draft = 4;
    check(&c, GEMMA4, "drafts of blocks", 4);
    c.device = "cpu,cpu"; /* microbatches, and two layers with queries for the other stage, in rows of two lengths */
    for (int i = 0; i < 4; i++) check(&c, GEMMA4, "drafts of blocks, in microbatches", 4);
    begin(DEEPSEEK4);
    written(tiny_write(head_path, &(tiny_spec) {.arch = "deepseek4-draft"}, &err), &err);
    c = config("cpu,cpu");
    c.draft_model = head_path;
    c.n_draft = 2;
    check(&c, DEEPSEEK4, "drafts of a file", 2);
}

/* Each device has its layers' weights and cache; the sums equal a single device's. */
static void test_plan(void **st)
{
    (void) st;
    pi_plan one = {.size = sizeof one}, four = one;
    pi_error err = {0};
    begin(0);
    pi__config c = config("cpu");
    written(pi__core_plan(&c, &one, &err), &err);
    c = config("cpu,cpu,cpu,cpu");
    written(pi__core_plan(&c, &four, &err), &err);
    assert_int_equal(four.n_places, 4);
    assert_int_equal(strncmp(four.place[1].name, "layers 1-1: cpu", 15), 0);
    uint64_t kv = 0;
    for (int i = 0; i < 4; i++) {
        assert_true(four.place[i].weights_bytes > 0 && four.place[i].weights_bytes < one.weights_bytes);
        kv += four.place[i].kv_bytes;
    }
    assert_int_equal(kv, one.kv_bytes);
    assert_int_equal(four.kv_bytes, one.kv_bytes);
}

/* ---- individual microbatches */

enum { N = 32, T = 64 };

static pi__device_fns ops; /* the CPU's functions, except finish */
static int (*cpu_finish)(pi__backend *be, pi_error *err);
static pi__backend *dev[2];
static int n_finished[2]; /* calls of finish per device */
static bool fails;        /* the second device's finish fails */

static int counted_finish(pi__backend *be, pi_error *err)
{
    n_finished[be == dev[1]]++;
    if (fails && be == dev[1]) return pi__fail(err, PI_EDEVICE, "it was told to fail");
    return cpu_finish(be, err);
}

/* Returns a matrix of one stage: a diagonal of 2 + stage. */
static pi__weight matrix(pi__backend *be, int32_t stage)
{
    float rows[N][N];
    pi__weight w = {.type = PI__F32, .placement = stage, .n_in = N, .n_out = N, .n_mat = 1};
    for (int i = 0; i < N * N; i++) rows[i / N][i % N] = i / N == i % N ? (float) (2 + stage) : 0;
    w.size = be->at[stage]->dev->weight_size(be->at[stage], &w);
    w.data = be->at[stage]->dev->alloc(be->at[stage], w.size);
    assert_non_null(w.data);
    be->at[stage]->dev->weight_load(be->at[stage], &w, 0, 0, N, rows);
    return w;
}

/* Computes y = second * (first * x) for T tokens of two sequences. */
static int multiply(pi__backend *be, const pi__weight w[2], float *x, float *mid, float *y, pi_error *err)
{
    int32_t zeros[T + 1] = {0}, pos[T], seq[T], start[3] = {0, 24, T}, len[2] = {24, 40}, verified[2] = {24, 40};
    for (int i = 0; i < T; i++) seq[i] = i >= 24, pos[i] = i % 24;
    for (int i = 24; i < T; i++) pos[i] = i - 24;
    const pi__batch b = {.n_tokens = T,
                         .n_seqs = 2,
                         .token = zeros,
                         .pos = pos,
                         .seq = seq,
                         .seq_start = start,
                         .seq_len = len,
                         .n_verified = verified,
                         .state_slot = zeros,
                         .save_start = zeros};
    const pi__batch *own = be->dev->begin(be, &b, PI__STEP_ANY);
    assert_ptr_equal(own, &b);
    for (int i = 0; i < 2; i++) {
        const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = i ? mid : x, .ldx = N};
        pi__op_linear(be, NULL, &(pi__linear) {.in = in, .n_rows = T, .n_lin = 1, .lin = {{&w[i], i ? y : mid, N}}});
    }
    return be->dev->finish(be, err);
}

static void test_microbatches(void **st)
{
    (void) st;
    pi__backend *be;
    pi_error err = {0};
    float ones[T][N], out[T][N];
    for (int i = 0; i < 2; i++) {
        written(pi__cpu_create(&dev[i], &(pi__cpu_params) {.n_threads = 1}, &(pi__log) {0}, &err), &err);
        ops = *dev[i]->dev;
    }
    cpu_finish = ops.finish;
    ops.finish = counted_finish;
    dev[0]->dev = dev[1]->dev = &ops;
    written(pi__stages_create(&be, dev, 2, 20, &err), &err);
    pi__limits lim = {.max_tokens = T,
                      .max_seqs = 2,
                      .max_rows = 1,
                      .max_ctx = 64,
                      .max_n_in = N,
                      .max_n_out = N,
                      .max_n_head = 1,
                      .max_head_dim = 32};
    written(be->dev->reserve(be, &lim, &err), &err);
    const pi__weight w[2] = {matrix(be, 0), matrix(be, 1)};
    float *x = be->dev->alloc(be, sizeof ones), *mid = be->dev->alloc(be, sizeof ones),
          *y = be->dev->alloc(be, sizeof ones);
    assert_true(x && mid && y);
    for (int i = 0; i < T * N; i++) ones[i / N][i % N] = (float) i;
    be->dev->upload(be, x, ones, sizeof ones);
    memset(n_finished, 0, sizeof n_finished);
    written(multiply(be, w, x, mid, y, &err), &err);
    assert_true(n_finished[0] >= 3 && n_finished[1] >= 3); /* microbatches of about 21 tokens */
    be->dev->download(be, out, y, sizeof out);
    written(be->dev->finish(be, &err), &err);
    for (int i = 0; i < T * N; i++) assert_true(out[i / N][i % N] == 6 * (float) i);

    fails = true; /* no other stage waits for the failed one, and the failure is temporary */
    assert_int_equal(multiply(be, w, x, mid, y, &err), PI_EDEVICE);
    assert_non_null(strstr(err.msg, "it was told to fail"));
    fails = false;
    written(multiply(be, w, x, mid, y, &err), &err);
    for (int i = 0; i < 2; i++) be->at[i]->dev->free(be->at[i], w[i].data, w[i].size);
    be->dev->free(be, x, sizeof ones);
    be->dev->free(be, mid, sizeof ones);
    be->dev->free(be, y, sizeof ones);
    be->dev->destroy(be);
}

static void refused(const pi__config *c, int code, const char *word)
{
    pi__core *e = NULL;
    pi_error err = {0};
    assert_int_equal(pi__core_open(&e, c, &err), code);
    assert_null(e);
    if (!strstr(err.msg, word)) fail_msg("%s", err.msg);
}

static void test_refused(void **st)
{
    (void) st;
    begin(0);
    pi__config c = config("cpu,cpu,cpu,cpu,cpu");
    refused(&c, PI_EINVAL, "the model has 4 layers");
    c = config("cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu");
    refused(&c, PI_EUNSUPPORTED, "at most 8");
    c = config("far,far");
    c.placement = (pi__placement_rules) {.limited = true, .gpu_layers = 2};
    refused(&c, PI_EUNSUPPORTED, "unset gpu-layers");
    pi_error err = {0};
    written(tiny_write(path, &(tiny_spec) {.arch = "nanbeige"}, &err), &err);
    c = config("cpu,cpu");
    refused(&c, PI_EUNSUPPORTED, "cannot be divided between devices");
}

/* Opening with each allocation failing in turn returns an error and frees all memory. */
static void test_out_of_memory(void **st)
{
    static counting_alloc a;
    (void) st;
    begin(0);
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

static int setup(void **st)
{
    (void) st;
    tiny_path(path, "stages");
    tiny_path(head_path, "head");
    return 0;
}

static int teardown(void **st)
{
    (void) st;
    return unlink(path) | unlink(head_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_microbatches), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_batches),      cmocka_unit_test(test_drafts),
                                       cmocka_unit_test(test_plan),         cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
