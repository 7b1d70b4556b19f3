/* One model on several backends, for every architecture: split over two or three devices (split-mode tensor), and
 * split between a device and the CPU. Tokens and logits are bitwise identical to a single CPU for any placement. */
#include "discrete_device.h"
#include "model_jobs.h"

static const char *const archs[] = {"gemma3",     "gemma4",    "qwen35",   "qwen35moe", "deepseek4", "llama3",
                                    "llama-bias", "mixtral",   "qwen2",    "mistral3",  "qwen3",     "qwen3moe",
                                    "phi3",       "phi3-long", "gpt-oss",  "glm4moe",   "gemma2",    "minimax-m2",
                                    "granitemoe", "deepseek3", "deepseek2", "olmo3",   "exaone4-large", "glm4",
                                    "ernie4_5-moe", "hunyuan-moe", "qwen2moe", "apertus", "starcoder2", "cohere2",
                                    "qwen2vl", "qwen3vl", "qwen3vlmoe", "granitehybrid", "nemotron_h_moe-latent",
                                    "falcon-h1", "mamba2", "jamba", "nanbeige", "lfm2moe", "mistral4", "glm-dsa",
                                    "phimoe", "afmoe", "laguna", "mimo2-stacked", "bailingmoe3"};
enum { DEEPSEEK4 = 4, GLM4MOE = 15, N_MODELS = sizeof archs / sizeof *archs };

static char path[N_MODELS][256], head_path[256];

static pi__config config(int model)
{
    return (pi__config) {.model = path[model],
                         .device = "cpu",
                         .max_batch_tokens = 32,
                         .max_seqs = 4,
                         .max_queue = 20,
                         .block_size = 16,
                         .snapshot_interval = 64,
                         .type_k = PI__F16,
                         .type_v = PI__F16,
                         .kv_tokens = 2048,
                         .prefix_cache = true,
                         .params.cpu = {.n_threads = 1}};
}

/* Under a slow emulator, tests every ninth placement only. */
static bool left_out(int i) { return getenv("PI_TEST_EMULATED") && i % 9; }

static const job *wanted(int model)
{
    static job want[N_MODELS][N_JOBS];
    static bool known[N_MODELS];
    if (known[model]) return want[model];
    pi__config c = config(model);
    jobs_fill(want[model]);
    jobs_run(&c, false, PI__LOGITS_GENERATED, want[model]);
    known[model] = true;
    return want[model];
}

static void check(const pi__config *c, int model, const char *how, int n)
{
    static job got[N_JOBS];
    jobs_fill(got);
    jobs_run(c, n % 2, PI__LOGITS_GENERATED, got);
    jobs_check(got, wanted(model), how, n);
}

static void test_tensor(void **st)
{
    (void) st;
    for (int i = 0; i < 2 * N_MODELS; i++) {
        if (left_out(i)) continue;
        const int model = i / 2, n = 2 + i % 2;
        pi__config c = config(model);
        c.device = n == 2 ? "cpu,cpu" : "cpu,cpu,cpu";
        c.tensor = true;
        check(&c, model, "devices", n);
    }
}

static void test_split(void **st)
{
    (void) st;
    for (int i = 0; i < 4 * N_MODELS; i++) {
        if (left_out(i)) continue;
        const int model = i / 4, how = i % 4;
        pi__config c = config(model);
        c.device = "far";
        c.placement = (pi__placement_rules) {.limited = how < 2, .gpu_layers = how + 1, .n_cpu_moe = how == 2 ? 2 : 0,
                                      .kv_on_cpu = how == 3};
        check(&c, model, "split", how);
    }
}

/* Drafts of the head after the last layer. */
static void test_own_head(void **st)
{
    (void) st;
    for (int i = 0; i < 3; i++) {
        if (left_out(i)) continue;
        pi__config c = config(GLM4MOE);
        c.spec = PI__SPEC_MTP;
        c.n_draft = 3;
        c.device = i == 0 ? "cpu,cpu" : "far";
        c.tensor = i == 0;
        if (i) c.placement = (pi__placement_rules) {.limited = true, .gpu_layers = i};
        check(&c, GLM4MOE, "drafts of its own head", i);
    }
}

/* Drafts of a head in its own file. */
static void test_drafts(void **st)
{
    (void) st;
    for (int i = 0; i < 3; i++) {
        if (left_out(i)) continue;
        pi__config c = config(DEEPSEEK4);
        c.draft_model = head_path;
        c.n_draft = 2;
        c.device = i == 0 ? "cpu,cpu" : "far";
        c.tensor = i == 0;
        if (i) c.placement = (pi__placement_rules) {.limited = true, .gpu_layers = i};
        check(&c, DEEPSEEK4, "drafts", i);
    }
}

static int setup(void **st)
{
    (void) st;
    pi_error err;
    int rc = 0;
    for (int i = 0; i < N_MODELS && !rc; i++) rc = tiny_write(tiny_path(path[i], archs[i]),
                                                              &(tiny_spec) {.arch = archs[i]}, &err);
    return rc ? rc : tiny_write(tiny_path(head_path, "head"), &(tiny_spec) {.arch = "deepseek4-draft"}, &err);
}

static int teardown(void **st)
{
    (void) st;
    int rc = unlink(head_path);
    for (int i = 0; i < N_MODELS; i++) rc |= unlink(path[i]);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tensor), cmocka_unit_test(test_split),
                                       cmocka_unit_test(test_drafts), cmocka_unit_test(test_own_head)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
