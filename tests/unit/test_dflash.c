/* DFlash drafters on tiny random models. Tokens and logits never depend on the drafter, for any batch, preemption,
 * prefix reuse and placement of layers. Drafts are the same in all of these. Invalid files are refused with an error
 * that names the fault. */
#include "discrete_device.h"
#include "model_jobs.h"

#include <unistd.h>

#include "engine/config.h"
#include "open_oom.h"
#include "random_model.h"
#include "rounds.h"

static char model_path[256], draft_path[256];

static pi__config config(void)
{
    return (pi__config) {.model = model_path,
                         .draft_model = draft_path,
                         .n_draft = 7,
                         .max_batch_tokens = 64,
                         .max_seqs = 8,
                         .max_queue = 20,
                         .block_size = 16,
                         .snapshot_interval = 64,
                         .type_k = PI__F16,
                         .type_v = PI__F16,
                         .kv_tokens = 4096,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

static void write_model(const char *path, const char *arch, const char *sizes)
{
    pi_error err = {0};
    if (tiny_write(path, &(tiny_spec) {.arch = arch, .sizes = sizes}, &err)) fail_msg("%s: %s", arch, err.msg);
}

/* Draft statistics of a run. */
typedef struct drafted {
    unsigned long long n, accepted;
} drafted;

/* Waits for final stats: a request may end shortly before its last step is counted. */
static drafted counted(pi__core *e)
{
    pi_stats st = {.size = sizeof st};
    for (int i = 0; i < 10000; i++, usleep(1000)) {
        assert_int_equal(pi__core_stats(e, &st), PI_OK);
        if (!st.n_running && !st.n_waiting) break;
    }
    return (drafted) {st.n_drafted, st.n_accepted};
}

/* Runs all jobs together `times` times and returns the draft statistics of the last run. All jobs arrive in one step,
 * because chunk boundaries of a prompt depend on the other sequences of its steps. A prompt whose last chunk is a
 * single token would get its first drafts one step earlier. */
static drafted run(const pi__config *c, int times, const pi__logit_bias *bias, job *jobs)
{
    pi__core *e = job_core(c);
    drafted before = {0}, after;
    for (int k = 0; k < times; k++) {
        before = counted(e);
        jobs_submit(e, jobs, PI__LOGITS_GENERATED, bias);
        for (int i = 0; i < N_JOBS; i++) job_await(&jobs[i], PI_OK);
    }
    after = counted(e);
    pi__core_close(e);
    return (drafted) {after.n - before.n, after.accepted - before.accepted};
}

/* Targets, each with a drafter that has a distinct feature. */
static const struct {
    const char *target, *target_sizes, *drafter, *sizes;
} pairs[] = {
    {"gemma4", "", "dflash", "v=1"},
    {"gemma4", "", "gemma4-dflash-draft", "x=1 p=1 w=1"},
    {"qwen35", "", "dflash", "g=1 v=1 t=1 s=1"},
    {"qwen35moe", "", "qwen35-dflash-draft", "x=1 g=1 v=1"},
    {"qwen3", "", "dflash", "g=1 v=1 B=96 t=1 o=1 w=1 N=1"},
    {"gemma4", "", "dflash", "v=1 M=320 c=1"},
    {"gemma4", "", "dflash", "v=1 k=3 i=4 R=32 J=3"},
    {"qwen35", "", "dflash", "g=1 v=1 k=9 i=64 R=64 p=1 K=40 w=1"},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static void write_pair(int i)
{
    write_model(model_path, pairs[i].target, pairs[i].target_sizes);
    write_model(draft_path, pairs[i].drafter, pairs[i].sizes);
}

/* Number of ways to place the model on a device and the CPU. */
enum { N_WAYS = 5 };
static void place(pi__config *c, int way)
{
    c->device = "far";
    c->placement = (pi__placement_rules) {.limited = way < 4, .gpu_layers = way, .kv_on_cpu = way == 4};
}

/* Runs together, with other steps, another block size, prefixes, preemption, two devices as one, and a device plus
 * CPU; tokens are always the same. */
static void same_tokens(const job *want)
{
    static job got[N_JOBS];
    jobs_fill(got);
    pi__config c = config();
    assert_true(run(&c, 1, NULL, got).n > 0);
    jobs_check(got, want, "together", 1);
    c.max_batch_tokens = 7; /* less than a block of drafts */
    c.block_size = 32;
    run(&c, 1, NULL, got);
    jobs_check(got, want, "step budget", 7);
    c = config();
    c.prefix_cache = true;
    c.n_draft = 3;
    run(&c, 2, NULL, got);
    jobs_check(got, want, "prefixes", 1);
    assert_true(got[N_JOBS - 1].n_cached >= 240);
    c.kv_tokens = 400;
    run(&c, 1, NULL, got);
    jobs_check(got, want, "preemption", 1);
    c = config();
    c.device = "cpu,cpu";
    c.tensor = true;
    run(&c, 1, NULL, got);
    jobs_check(got, want, "devices", 2);
    for (int way = 0; way < N_WAYS; way++) {
        c = config();
        place(&c, way);
        c.prefix_cache = way == 2;
        assert_true(run(&c, 1 + c.prefix_cache, NULL, got).n > 0);
        jobs_check(got, want, "placement", way);
    }
}

static void test_same_tokens(void **st)
{
    (void) st;
    static job want[N_JOBS];
    for (int i = 0; i < N_PAIRS; i += emulated() ? N_PAIRS : 1) { /* emulation is slow: only the first pair */
        write_pair(i);
        pi__config c = config();
        c.draft_model = NULL;
        jobs_fill(want);
        jobs_run(&c, false, PI__LOGITS_GENERATED, want);
        same_tokens(want);
    }
}

/* A logit bias makes the target generate one token. The drafter's head knows this token and one other, so the number
 * of correct drafts depends on the drafter's complete context. */
enum { SAID = 40 };
static const pi__logit_bias says = {SAID, 1000};

static void test_same_drafts(void **st)
{
    (void) st;
    static job jobs[N_JOBS];
    static const char *const sizes[][3] = {{"gemma4", "dflash", "v=1 K=64 O=40"},
                                           {"qwen35", "dflash", "g=1 v=1 w=1 K=64 O=40"},
                                           {"gemma4", "dflash", "v=1 K=64 O=40 k=3 i=8 R=64 J=2"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_model(model_path, sizes[i][0], "");
        write_model(draft_path, sizes[i][1], sizes[i][2]);
        jobs_fill(jobs);
        pi__config c = config();
        const drafted alone = run(&c, 1, &says, jobs);
        assert_true(alone.accepted > 0 && alone.accepted < alone.n);
        c.prefix_cache = true;
        const drafted again = run(&c, 2, &says, jobs);
        assert_true(jobs[N_JOBS - 1].n_cached >= 240);
        assert_true(again.n == alone.n && again.accepted == alone.accepted);
        c = config();
        c.block_size = 64;
        c.max_batch_tokens = 300;
        const drafted other = run(&c, 1, &says, jobs);
        assert_true(other.n == alone.n && other.accepted == alone.accepted);
        for (int way = 0; way < N_WAYS; way++) {
            c = config();
            place(&c, way);
            const drafted placed = run(&c, 1, &says, jobs);
            if (placed.n != alone.n || placed.accepted != alone.accepted)
                fail_msg("%s, placement %d: %llu of %llu drafts are right, %llu of %llu on one", sizes[i][0], way,
                         placed.accepted, placed.n, alone.accepted, alone.n);
        }
    }
}

/* All drafts are correct, and the number of steps shrinks accordingly. */
static void test_accepted(void **st)
{
    (void) st;
    static job jobs[N_JOBS];
    write_model(model_path, "gemma4", "");
    write_model(draft_path, "dflash", "v=1 K=1 O=40");
    jobs_fill(jobs);
    for (int i = 0; i < N_JOBS; i++) jobs[i].thinks = false, jobs[i].mirostat = 0;
    pi__config c = config();
    c.n_draft = 3;
    const drafted d = run(&c, 1, &says, jobs);
    assert_true(d.n == d.accepted && d.n >= N_JOBS * (N_GEN - N_GEN / 4 - 1));
}

/* DSpark: every token follows itself and the target generates a single token, so all drafts are correct. The drafter
 * makes the maximum number of drafts, or none if its confidence head reports low confidence. */
static void test_markov(void **st)
{
    (void) st;
    static job jobs[N_JOBS];
    static const struct {
        const char *sizes;
        float p_min;
        bool drafts;
    } cases[] = {{"v=1 M=320", 0, true},
                 {"v=1 M=320 z=1", 0, true},
                 {"v=1 M=320 c=1", 0.9f, true},
                 {"v=1 M=320 c=2", 0.1f, false},
                 {"v=1 M=320 c=2", 0, true}};
    write_model(model_path, "gemma4", "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_model(draft_path, "dflash", cases[i].sizes);
        jobs_fill(jobs);
        for (int k = 0; k < N_JOBS; k++) jobs[k].thinks = false, jobs[k].mirostat = 0;
        pi__config c = config();
        c.n_draft = 3;
        c.draft_p_min = cases[i].p_min;
        const drafted d = run(&c, 1, &says, jobs);
        if (d.n != d.accepted || (d.n > 0) != cases[i].drafts)
            fail_msg("%s: %llu drafts, %llu accepted", cases[i].sizes, d.n, d.accepted);
        if (cases[i].drafts) assert_true(d.n >= N_JOBS * (N_GEN - N_GEN / 4 - 1));
    }
}

/* A request without the drafter reads nothing from the drafter's cache, and its blocks are not a prefix for a request
 * with the drafter. */
static void test_choice(void **st)
{
    (void) st;
    static job want[N_JOBS], got[N_JOBS];
    write_pair(0);
    pi__config c = config();
    jobs_fill(want), jobs_fill(got);
    run(&c, 1, NULL, want);
    c.prefix_cache = true;
    pi__core *e = job_core(&c);
    static const int specs[] = {PI__SPEC_NONE, PI__SPEC_DRAFT, PI__SPEC_NONE, PI__SPEC_DRAFT};
    for (int k = 0; k < 4; k++) {
        const drafted before = counted(e);
        for (int i = 0; i < N_JOBS; i++) {
            got[i].spec = specs[k];
            job_submit(e, &got[i], PI__LOGITS_GENERATED, NULL);
        }
        for (int i = 0; i < N_JOBS; i++) job_await(&got[i], PI_OK);
        jobs_check(got, want, "chosen", k);
        assert_true((counted(e).n > before.n) == (specs[k] == PI__SPEC_DRAFT));
        if (k == 1) assert_int_equal(got[N_JOBS - 1].n_cached, 0);
        if (k > 1) assert_true(got[N_JOBS - 1].n_cached >= 240);
    }
    pi__core_close(e);
}

/* No draft has a probability above the high threshold; some drafts exceed the low threshold. */
static void test_p_min(void **st)
{
    (void) st;
    static job jobs[N_JOBS];
    write_model(model_path, "gemma4", "");
    for (int i = 0; i < 2; i++) {
        write_model(draft_path, "dflash", i ? "v=1 k=3 i=4 R=32" : "v=1");
        jobs_fill(jobs);
        pi__config c = config();
        c.draft_p_min = 0.999f;
        assert_int_equal(run(&c, 1, NULL, jobs).n, 0);
        c.draft_p_min = 1e-6f;
        assert_true(run(&c, 1, NULL, jobs).n > 0);
    }
}

/* Opening fails with the current drafter file. */
static void refused(const pi__config *c, const char *why)
{
    model_file f = model_read(draft_path);
    model_refused(c, f, why);
    free(f.p);
}

static void test_refused(void **st)
{
    (void) st;
    static const bad_value list[] = {{"block_size", 4, 1, "block_size is 1"},
                                     {"block_size", 4, 1000, "block_size is 1000"},
                                     {"attention.head_count", 4, 3, "head_count 3 is not a multiple"},
                                     {"attention.head_count_kv", 4, 0, "head_count_kv is 0"},
                                     {"attention.key_length", 4, 48, "key_length 48"},
                                     {"attention.value_length", 4, 64, "value_length 64"},
                                     {"rope.dimension_count", 4, 7, "dimension_count is 7"},
                                     {"embedding_length", 4, 32, "fc.weight has shape"},
                                     {"block_count", 4, 3, "blk.2.attn_norm.weight is missing"},
                                     {"feed_forward_length", 4, 64, "ffn_gate.weight has shape"},
                                     {"target_layers", 16, 7, "reads layer 7 of its model"},
                                     {"target_layers", 16, UINT32_MAX, "reads layer -1"},
                                     {"target_layers", 4, 6, "target_layers needs 1 to 16"}};
    static const bad_value window[] = {{"sliding_window_pattern", 4, 1, "needs a bool for each"}};
    static const bad_value mask[] = {{"mask_token_id", 4, TINY_VOCAB, "mask_token_id must be one of"}};
    static const char *const needed[] = {"fc.weight",           "enc.output_norm.weight",   "output_norm.weight",
                                         "blk.1.attn_q.weight", "blk.0.attn_k_norm.weight", "blk.1.ffn_norm.weight",
                                         "output.weight"};
    static const char *const markov[] = {"markov_w2.weight"};
    static const bad_value selector[] = {{"conv_kernel_size", 4, 0, "conv_kernel_size is 0"},
                                         {"conv_kernel_size", 4, 4, "attn_conv_base has shape"},
                                         {"conv_group_size", 4, 24, "not a multiple of conv_group_size 24"},
                                         {"conv_group_size", 4, 8, "attn_conv_proj.weight has shape"},
                                         {"selector_rank", 4, 33, "selector_hidden.weight has shape"},
                                         {"selector_top_k", 4, 65, "selector_top_k is 65"}};
    static const char *const selecting[] = {"selector_predecessor.weight", "selector_successor.weight",
                                            "blk.0.attn_conv_base", "blk.1.ffn_conv_proj.weight"};
    pi__config c = config();
    write_model(model_path, "gemma4", "");
    write_model(draft_path, "dflash", "v=1 w=1 K=9");
    models_refused(&c, "dflash.attention.", window, 1);
    write_model(draft_path, "dflash", "v=1 K=9");
    models_refused(&c, "dflash.", list, sizeof list / sizeof *list);
    models_refused(&c, "tokenizer.ggml.", mask, 1);
    model_needs(&c, needed, sizeof needed / sizeof *needed);
    write_model(draft_path, "dflash", "v=1 K=9 O=312");
    refused(&c, "d2t: number 1 is 313");
    write_model(draft_path, "dflash", "v=1 E=32");
    refused(&c, "its embedding has 32 values");
    write_model(draft_path, "dflash", "v=1 M=320");
    model_needs(&c, markov, 1);
    write_model(draft_path, "dflash", "v=1 k=3 i=4 R=32");
    models_refused(&c, "dflash.", selector, sizeof selector / sizeof *selector);
    model_needs(&c, selecting, sizeof selecting / sizeof *selecting);
    write_model(draft_path, "dflash", "v=1 k=3 i=4 R=32 M=320");
    refused(&c, "a Markov head and a selector");
    write_model(model_path, "deepseek4", "");
    write_model(draft_path, "dflash", "v=1");
    refused(&c, "cannot draft for a deepseek4 model");
}

/* Opening with each allocation failing in turn returns an error and frees all memory. */
static void test_out_of_memory(void **st)
{
    (void) st;
    pi__config c = config();
    write_model(model_path, "gemma4", "");
    write_model(draft_path, "dflash", "v=1 w=1 K=9 k=2 i=3 R=32");
    c.params.cpu.n_threads = 1;
    open_out_of_memory(&c);
}

static int make_paths(void **st)
{
    (void) st;
    return !tiny_path(model_path, "target") || !tiny_path(draft_path, "dflash");
}

static int remove_models(void **st)
{
    (void) st;
    return unlink(model_path) | unlink(draft_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_same_drafts), cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_markov), cmocka_unit_test(test_choice), cmocka_unit_test(test_p_min),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, make_paths, remove_models);
}
