/* LoRA adapters. Logits match a model with the adapter merged into its matrices. Results are bitwise independent of
 * the batch's other adapters and of splitting the model over devices. Prefixes of different adapters are never
 * shared. Also loading and unloading while requests run, and errors of invalid files. */
#include <math.h>
#include <pthread.h>

#include "adapter_file.h"
#include "counting_alloc.h"
#include "discrete_device.h"
#include "model/adapter.h"
#include "model_jobs.h"
#include "rounds.h"

static char model[256], plain[256], merged[256], file[5][256];

/* a, b: all matrices; c: some matrices, in F16; d: equal to a, under another name; e: rank 37, in BF16. */
static const adapter_spec specs[5] = {
    {.seed = 1, .rank = 8, .alpha = 16}, {.seed = 2, .rank = 4, .alpha = 4},
    {.seed = 3, .rank = 16, .alpha = 16, .type = PI__F16, .only = "attn_"},
    {.seed = 1, .rank = 8, .alpha = 16}, {.seed = 5, .rank = 37, .alpha = 0, .type = PI__BF16}};
static const char *const names[5] = {"a", "b", "c", "d", "e"};

static pi__config config(const char *path)
{
    return (pi__config) {.model = path, .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 32, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 4096,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

static void write_model(const char *arch)
{
    pi_error err = {0};
    tiny_path(model, "lora-model"), tiny_path(plain, "lora-plain"), tiny_path(merged, "lora-merged");
    if (tiny_write(model, &(tiny_spec) {.arch = arch}, &err)) fail_msg("%s: %s", arch, err.msg);
}

static void write_adapters(const char *of)
{
    pi_error err = {0};
    for (int i = 0; i < 5; i++) {
        char what[32];
        snprintf(what, sizeof what, "lora-%s", names[i]);
        tiny_path(file[i], what);
        if (adapter_write(file[i], of, &specs[i], &err)) fail_msg("adapter: %s", err.msg);
    }
}

static void load(pi__core *e, const char *name, const char *path)
{
    pi_error err = {0};
    if (pi__core_lora_load(e, name, path, 0, &err)) fail_msg("load: %s", err.msg);
}

static void load_all(pi__core *e)
{
    for (int i = 0; i < 5; i++) load(e, names[i], file[i]);
}

/* -------------------------------------------------------------------------------------------------- merged weights */

typedef struct row_log { float *row[64]; size_t n; int count; } row_log;

static void on_row(void *ud, uint32_t pos, const float *row, size_t n)
{
    row_log *l = ud;
    (void) pos;
    assert_true(l->count < 64);
    l->row[l->count] = malloc(n * sizeof *row);
    memcpy(l->row[l->count++], row, n * sizeof *row);
    l->n = n;
}

static void logits_of(const char *path, const char *adapter, float scale, row_log *out)
{
    static job j[N_JOBS];
    pi__config c = config(path);
    pi_error err = {0};
    c.type_k = c.type_v = PI__F32;
    pi__core *e = job_core(&c);
    const pi__lora_ask ask = {.name = "it", .scale = scale};
    if (adapter) load(e, "it", adapter);
    jobs_fill(j);
    j[2].thinks = false;
    j[2].lora = &ask, j[2].n_lora = adapter != NULL;
    pi__job p = job_ready(e, &j[2], PI__LOGITS_ALL, NULL);
    p.on_logits = on_row, p.logits_ud = out;
    if (pi__core_submit(e, &p, 1, &j[2].seq, &err)) fail_msg("submit: %s", err.msg);
    job_await(&j[2], PI_OK);
    pi__core_close(e);
}

static double difference(const row_log *a, const row_log *b)
{
    double most = 0;
    assert_int_equal(a->count, b->count);
    for (int r = 0; r < a->count; r++)
        for (size_t i = 0; i < a->n; i++) most = fmax(most, fabs((double) a->row[r][i] - (double) b->row[r][i]));
    return most;
}

static void drop(row_log *l)
{
    for (int i = 0; i < l->count; i++) free(l->row[i]);
    *l = (row_log) {0};
}

static const char *const archs[] = {
    "gemma3",    "gemma2",  "llama3",    "llama-bias",     "mixtral",       "qwen2",      "qwen3",  "qwen3moe",
    "phi3",      "gpt-oss", "glm4moe",   "minimax-m2",     "granite",       "granitemoe", "qwen35", "qwen35moe",
    "qwen3next", "gemma4",  "deepseek2", "deepseek2-lite", "deepseek2-old", "deepseek3",  "olmo2",  "glm4",
    "qwen2moe",  "apertus", "starcoder2", "cohere2",       "ernie4_5-moe",  "bailingmoe2",
    "qwen2vl",   "qwen3vl", "qwen3vlmoe", "granitehybrid", "nemotron_h_moe", "falcon-h1", "lfm2",
    "glm-dsa",   "granite_swa-moe", "afmoe", "laguna", "mimo2", "mimo2-stacked", "kimi-linear", "bailingmoe3",
    "jamba",     "nanbeige"};

static void test_merged(void **st)
{
    (void) st;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (emulated() && i % 5) continue;
        static row_log want, got, base;
        pi_error err = {0};
        const adapter_spec s = {.seed = 7, .rank = 8, .alpha = 32, .size = 4};
        write_model(archs[i]);
        tiny_path(file[0], "lora-a");
        int rc = adapter_merge(plain, model, NULL, 0, &err);
        if (!rc) rc = adapter_merge(merged, model, &s, 0.5f, &err);
        if (!rc) rc = adapter_write(file[0], plain, &s, &err);
        if (rc) fail_msg("%s: %s", archs[i], err.msg);
        logits_of(merged, NULL, 0, &want);
        logits_of(plain, file[0], 0.5f, &got);
        logits_of(plain, NULL, 0, &base);
        const double off = difference(&got, &want), does = difference(&base, &want);
        if (getenv("PI_TEST_VERBOSE")) print_message("%s: %.2g of %.2g\n", archs[i], off, does);
        if (off > 1e-4 || does < 0.05)
            fail_msg("%s: %g from merged weights, which differ by %g from the model's", archs[i], off, does);
        drop(&want), drop(&got), drop(&base);
        unlink(model), unlink(plain), unlink(merged), unlink(file[0]);
    }
}

/* -------------------------------------------------------------------------------- fused keys and values of latents */

/* Sizes of deepseek2-old; PART is the rank of the adapter. */
enum { HEADS = 3, KEY = 32, VALUE = 64, LATENT = 96, EACH = KEY + VALUE, PART = 8 };

/* Converts rows of attn_kv_b, n values each, into key rows [HEADS][n][KEY] (transposed) or value rows
 * [HEADS][VALUE][n]. */
static void turn_keys(const float *both, int64_t n, float *to)
{
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < KEY; k++) *to++ = both[(h * EACH + k) * n + i];
}

static void take_values(const float *both, int64_t n, float *to)
{
    for (int64_t h = 0; h < HEADS; h++)
        memcpy(to + h * VALUE * n, both + (h * EACH + KEY) * n, (size_t) (VALUE * n) * sizeof *to);
}

/* A tensor that replaces a part of attn_kv_b in a file, and the function that computes it. */
typedef struct part {
    const char *of, *to;                 /* "attn_kv_b.weight", and the new name after the layer prefix */
    int n_dims;
    int64_t ne[3];
    void (*make)(const float *, int64_t, float *);
} part;

static void turn(const float *a, int64_t n, float *to) /* [PART, LATENT] */
{
    (void) n;
    for (int64_t i = 0; i < LATENT; i++)
        for (int64_t k = 0; k < PART; k++) to[i * PART + k] = a[k * LATENT + i];
}

static void keep(const float *a, int64_t n, float *to) { memcpy(to, a, (size_t) (n * PART) * sizeof *to); }

static const part parts[] = { /* for a model, and for its adapter */
    {"attn_kv_b.weight", "attn_k_b.weight", 3, {KEY, LATENT, HEADS}, turn_keys},
    {"attn_kv_b.weight", "attn_v_b.weight", 3, {LATENT, VALUE, HEADS}, take_values},
    {"attn_kv_b.weight.lora_a", "attn_k_b.weight.lora_b", 2, {PART, LATENT}, turn},
    {"attn_kv_b.weight.lora_b", "attn_k_b.weight.lora_a", 3, {KEY, PART, HEADS}, turn_keys},
    {"attn_kv_b.weight.lora_a", "attn_v_b.weight.lora_a", 2, {LATENT, PART}, keep},
    {"attn_kv_b.weight.lora_b", "attn_v_b.weight.lora_b", 3, {PART, VALUE, HEADS}, take_values}};
enum { N_PARTS = sizeof parts / sizeof *parts };

/* Returns the new name of the tensor for that part; NULL = the part is not computed from this tensor. */
static const char *part_name(const pi__tensor *t, const part *p, char name[96])
{
    int n = 0, layer;
    if (sscanf(t->cname, "blk.%d.%n", &layer, &n) != 1 || !n || strcmp(t->cname + n, p->of)) return NULL;
    snprintf(name, 96, "blk.%d.%s", layer, p->to);
    return name;
}

static int write_parts(pi__gguf_writer *w, const pi__gguf *g, const pi__tensor *t, bool data, pi_error *err)
{
    static float of[LATENT * HEADS * EACH];
    char name[96];
    int rc = PI_OK;
    bool any = false;
    for (int p = 0; p < N_PARTS && !rc; p++) {
        if (!part_name(t, &parts[p], name)) continue;
        any = true;
        assert_int_equal(t->type, PI__F32);
        const int64_t n = parts[p].ne[0] * parts[p].ne[1] * (parts[p].n_dims > 2 ? HEADS : 1);
        if (data) parts[p].make((const float *) (const void *) pi__gguf_tensor_data(g, t), t->ne[0], of);
        if (data) rc = pi__gguf_writer_data(w, of, (size_t) n * sizeof *of, err);
        else pi__gguf_put_tensor(w, name, PI__F32, parts[p].n_dims, parts[p].ne);
    }
    if (any) return rc;
    if (!data) pi__gguf_put_tensor(w, t->cname, t->type, t->n_dims, t->ne);
    return data ? pi__gguf_writer_data(w, pi__gguf_tensor_data(g, t), t->size, err) : PI_OK;
}

/* Copies the file of a model or adapter, with attn_kv_b replaced by its parts. */
static void take_apart(const char *to, const char *from)
{
    pi_error err = {0};
    pi__gguf *g;
    pi__gguf_writer *w;
    int rc = pi__gguf_open(&g, from, PI__LOAD_READ, &err);
    if (!rc) rc = pi__gguf_writer_open(&w, to, 0, &err);
    if (rc) fail_msg("%s", err.msg);
    for (size_t i = 0; i < pi__gguf_n_kv(g); i++) pi__gguf_put_kv(w, pi__gguf_kv_at(g, i));
    for (size_t i = 0; i < pi__gguf_n_tensors(g); i++) write_parts(w, g, pi__gguf_tensor_at(g, i), false, &err);
    rc = pi__gguf_writer_begin(w, &err);
    for (size_t i = 0; i < pi__gguf_n_tensors(g) && !rc; i++)
        rc = write_parts(w, g, pi__gguf_tensor_at(g, i), true, &err);
    const int end = pi__gguf_writer_close(w, !rc, &err);
    pi__gguf_close(g);
    if (rc || end) fail_msg("%s", err.msg);
}

/* An adapter for attn_kv_b works with a model file that has attn_kv_b, and with one that has attn_k_b and attn_v_b. An
 * equivalent adapter with separate pairs, in which all heads share one matrix, gives bitwise the same result. */
static void test_as_one(void **st)
{
    if (crossed()) skip(); /* does not depend on the processor */
    static row_log want, got, apart, base;
    const adapter_spec s = {.seed = 7, .rank = PART, .alpha = 32, .size = 8, .only = "attn_kv_b"};
    pi_error err = {0};
    (void) st;
    write_model("deepseek2-old");
    tiny_path(file[0], "lora-a"), tiny_path(file[1], "lora-b");
    int rc = adapter_merge(plain, model, NULL, 0, &err);
    if (!rc) rc = adapter_write(file[0], plain, &s, &err);
    if (rc) fail_msg("%s", err.msg);
    take_apart(merged, plain);
    take_apart(file[1], file[0]);
    logits_of(plain, file[0], 0.5f, &want);
    logits_of(merged, file[0], 0.5f, &got);
    logits_of(merged, file[1], 0.5f, &apart);
    logits_of(merged, NULL, 0, &base);
    const double off = difference(&got, &want), does = difference(&base, &want);
    if (off > 1e-4 || does < 0.05) fail_msg("%g from the file with attn_kv_b; the adapter changes %g", off, does);
    assert_true(difference(&got, &apart) == 0);
    drop(&want), drop(&got), drop(&apart), drop(&base);
    unlink(model), unlink(plain), unlink(merged), unlink(file[0]), unlink(file[1]);
}

/* --------------------------------------------------------------------------------------------------- mixed batches */

static const pi__lora_ask asks[N_JOBS][3] = {
    {{"a", 1}, {"b", 0.5f}, {"c", -1}}, {{"b", 1}}, {{"a", 1}}, {{"a", 0.25f}}, {{"e", 1}, {"a", 1}}};
static const size_t n_asks[N_JOBS] = {3, 1, 1, 1, 2};

/* Fills the jobs; the bits of mask `base` select jobs without an adapter. */
static void fill(job *j, unsigned base)
{
    jobs_fill(j);
    for (int i = 0; i < N_JOBS; i++)
        if (!(base >> i & 1)) j[i].lora = asks[i], j[i].n_lora = n_asks[i];
}

static uint32_t run(const pi__config *c, bool together, bool adapters, job *j)
{
    uint32_t preempted = 0;
    pi__core *e = job_core(c);
    if (adapters) load_all(e);
    for (int round = 0; round <= c->prefix_cache; round++) {
        if (together) jobs_submit(e, j, PI__LOGITS_ALL, NULL);
        for (int i = 0; i < N_JOBS; i++) {
            if (!together) job_submit(e, &j[i], PI__LOGITS_ALL, NULL);
            job_await(&j[i], PI_OK);
            preempted += j[i].n_preempted;
        }
    }
    pi__core_close(e);
    return preempted;
}

static void company(const char *arch)
{
    static job want[N_JOBS], got[N_JOBS], base[N_JOBS];
    write_model(arch);
    write_adapters(model);
    pi__config c = config(model);
    fill(want, 0), fill(base, 31);
    run(&c, false, true, want);
    run(&c, false, false, base);
    for (int i = 0; i < N_JOBS; i++) assert_true(want[i].rows != base[i].rows);
    /* some with an adapter, some without, in steps of other sizes */
    for (unsigned mask = 0; mask < 32; mask = mask * 2 + 5) {
        c = config(model);
        c.max_batch_tokens = mask % 3 ? 13 : 300;
        c.block_size = mask % 2 ? 32 : 16;
        c.params.cpu.n_threads = 1 + (int32_t) mask % 3;
        fill(got, mask);
        run(&c, true, true, got);
        for (int i = 0; i < N_JOBS; i++) {
            const job *of = mask >> i & 1 ? &base[i] : &want[i];
            if (got[i].rows != of->rows) fail_msg("%s: logits of job %d differ in the company of %x", arch, i, mask);
            assert_memory_equal(got[i].tokens, of->tokens, sizeof of->tokens);
        }
    }
    c = config(model);
    c.prefix_cache = true;
    fill(got, 0);
    for (int i = 0; i < N_JOBS; i++) got[i].logits_from = want[i].logits_from = want[i].n_prompt - 1;
    run(&c, false, true, want);
    run(&c, true, true, got);
    jobs_check(got, want, arch, 2);
    assert_true(got[N_JOBS - 1].n_cached >= 200);
    static const int drafters[] = {PI__SPEC_NGRAM, PI__SPEC_MTP};
    for (int d = 0; d <= !strcmp(arch, "qwen35"); d++) { /* drafts depend on the adapter, results do not */
        c = config(model);
        c.spec = drafters[d];
        c.n_draft = 3, c.ngram_n = 1, c.ngram_m = 3;
        run(&c, true, true, got);
        jobs_check(got, want, arch, 4 + d);
        uint32_t n_drafted = 0;
        for (int i = 0; i < N_JOBS; i++) n_drafted += got[i].n_drafted;
        assert_true(n_drafted > 0);
    }
    c = config(model);
    c.kv_tokens = 400;
    if (!run(&c, true, true, got) && strcmp(arch, "gemma3")) fail_msg("%s: nobody was preempted", arch);
    jobs_check(got, want, arch, 3);
    unlink(model);
    for (int i = 0; i < 5; i++) unlink(file[i]);
}

static void test_company(void **st)
{
    static const char *const of[] = {"gemma3", "llama3", "qwen35", "mixtral", "deepseek2"};
    (void) st;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!emulated() || i == 1) company(of[i]);
}

/* --------------------------------------------------------------------------------------- models split over devices */

/* Configures a split: tensor parallel, pipeline stages, or a device plus the CPU. */
static void divide(pi__config *c, int how)
{
    c->device = how < 2 ? "cpu,cpu,cpu" : how < 4 ? "cpu,cpu" : how < 5 ? "far,far" : "far";
    if (how == 1) c->device = "cpu,cpu";
    c->tensor = how < 2;
    c->layers = how >= 2 && how < 5;
    if (how == 3) c->max_batch_tokens = 300; /* all prompts in one step */
    if (how > 4)
        c->placement = (pi__placement_rules) {.limited = how == 5, .gpu_layers = 1, .n_cpu_moe = how == 6 ? 2 : 0};
}

static void test_divided(void **st)
{
    if (crossed()) skip(); /* does not depend on the processor */
    static const char *const of[] = {"mixtral", "llama3", "gpt-oss", "gemma4", "qwen35moe", "deepseek2"};
    static job want[N_JOBS], got[N_JOBS];
    (void) st;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (emulated() && i) continue;
        write_model(of[i]);
        write_adapters(model);
        pi__config c = config(model);
        fill(want, 2);
        run(&c, false, true, want);
        for (int how = 0; how < 7; how++) {
            c = config(model);
            c.params.cpu.n_threads = 1;
            divide(&c, how);
            fill(got, 2);
            run(&c, how != 4, true, got);
            jobs_check(got, want, of[i], how);
        }
        unlink(model);
        for (int k = 0; k < 5; k++) unlink(file[k]);
    }
}

/* -------------------------------------------------------------------------------------------------------- prefixes */

/* Returns the number of prompt tokens that a request with these adapters finds in the cache. */
static uint32_t found(pi__core *e, const pi__lora_ask *ask, size_t n)
{
    static job j[N_JOBS];
    jobs_fill(j);
    j[4].lora = ask, j[4].n_lora = n;
    job_submit(e, &j[4], PI__LOGITS_NONE, NULL);
    job_await(&j[4], PI_OK);
    return j[4].n_cached;
}

static void test_prefixes(void **st)
{
    if (crossed()) skip(); /* does not depend on the processor */
    static const pi__lora_ask a = {"a", 1}, b = {"b", 1}, half = {"a", 0.5f}, none = {"a", 0}, same = {"d", 1};
    static const pi__lora_ask two[2] = {{"a", 1}, {"b", 1}};
    static const pi__lora_ask owt[2] = {{"b", 1}, {"a", 1}};
    (void) st;
    write_model("llama3");
    write_adapters(model);
    pi__config c = config(model);
    c.prefix_cache = true;
    pi__core *e = job_core(&c);
    pi_error err = {0};
    load_all(e);
    assert_int_equal(found(e, NULL, 0), 0);
    assert_int_equal(found(e, &a, 1), 0);
    assert_int_equal(found(e, &b, 1), 0);
    assert_int_equal(found(e, &half, 1), 0);
    assert_int_equal(found(e, two, 2), 0);
    assert_true(found(e, NULL, 0) >= 200);
    assert_true(found(e, &none, 1) >= 200);
    assert_true(found(e, &a, 1) >= 200);
    assert_true(found(e, &same, 1) >= 200); /* equal values under another name */
    assert_true(found(e, &half, 1) >= 200);
    assert_true(found(e, owt, 2) >= 200);
    assert_int_equal(pi__core_lora_unload(e, "a", &err), PI_OK);
    load(e, "a", file[1]); /* another adapter under this name: it finds b's prefixes and not a's */
    pi__lora_ask quarter = {"a", 0.25f};
    assert_int_equal(found(e, &half, 1), 0);
    assert_true(found(e, &a, 1) >= 200);
    assert_int_equal(found(e, &quarter, 1), 0);
    assert_int_equal(pi__core_lora_unload(e, "a", &err), PI_OK);
    load(e, "a", file[0]);
    assert_true(found(e, &half, 1) >= 200);
    pi__core_close(e);
    unlink(model);
    for (int i = 0; i < 5; i++) unlink(file[i]);
}

/* ---------------------------------------------------------------------------------------------- loading under load */

typedef struct shift { pi__core *e; atomic_int stop, loads; } shift;

static void *load_and_unload(void *ud)
{
    shift *s = ud;
    for (int i = 0; !atomic_load(&s->stop); i++) {
        pi_error err = {0};
        const int rc = pi__core_lora_load(s->e, "moving", file[i % 2 ? 0 : 3], 0, &err);
        if (rc && rc != PI_EBUSY) fail_msg("load: %s", err.msg); /* a collision with the other thread's call */
        atomic_fetch_add(&s->loads, !rc);
        pi_lora l = {.size = sizeof l};
        for (size_t k = 0; !pi__core_lora_at(s->e, k, &l); k++) assert_true(l.n_matrices > 0);
        if (!rc) assert_int_equal(pi__core_lora_unload(s->e, "moving", &err), PI_OK);
    }
    return NULL;
}

static void test_under_load(void **st)
{
    if (crossed()) skip(); /* does not depend on the processor */
    enum { ROUNDS = 60 };
    static const pi__lora_ask moving = {"moving", 1}, a = {"a", 1};
    static job want[N_JOBS], base[N_JOBS], got[N_JOBS];
    (void) st;
    write_model("llama3");
    write_adapters(model);
    pi__config c = config(model);
    jobs_fill(want), jobs_fill(base);
    for (int i = 0; i < N_JOBS; i++) want[i].lora = &a, want[i].n_lora = 1;
    run(&c, false, true, want);
    run(&c, false, false, base);
    shift s = {.e = job_core(&c)};
    pthread_t t[2];
    int with = 0;
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, load_and_unload, &s), 0);
    for (int round = 0; round < ROUNDS || (!with && round < 100 * ROUNDS); round++) {
        const int i = round % N_JOBS;
        pi_error err = {0};
        bool there = false;
        jobs_fill(got);
        got[i].lora = &moving, got[i].n_lora = 1;
        pi__job p = job_ready(s.e, &got[i], PI__LOGITS_ALL, NULL);
        const int rc = pi__core_submit(s.e, &p, 1, &got[i].seq, &err);
        there = !rc;
        if (rc && rc != PI_ENOENT) fail_msg("submit: %s", err.msg);
        job_submit(s.e, &got[(i + 1) % N_JOBS], PI__LOGITS_ALL, NULL);
        job_await(&got[(i + 1) % N_JOBS], PI_OK);
        assert_true(got[(i + 1) % N_JOBS].rows == base[(i + 1) % N_JOBS].rows);
        if (!there) continue;
        job_await(&got[i], PI_OK);
        assert_true(got[i].rows == want[i].rows);
        with++;
    }
    atomic_store(&s.stop, 1);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    assert_true(s.loads > 2 && with > 0);
    pi__core_close(s.e);
    unlink(model);
    for (int i = 0; i < 5; i++) unlink(file[i]);
}

static void *replace(void *ud)
{
    shift *s = ud;
    for (int i = 0; !atomic_load(&s->stop); i++) {
        pi_error err = {0};
        if (pi__core_lora_replace(s->e, "moving", file[i % 2], &err)) fail_msg("replace: %s", err.msg);
        atomic_fetch_add(&s->loads, 1);
        /* not an adapter file: nothing changes */
        assert_int_equal(pi__core_lora_replace(s->e, "moving", model, &err), PI_EFORMAT);
    }
    return NULL;
}

static pi_lora described(pi__core *e, size_t i)
{
    pi_lora l = {.size = sizeof l};
    assert_int_equal(pi__core_lora_at(e, i, &l), PI_OK);
    return l;
}

/* While an adapter is replaced repeatedly, every request finds it and uses exactly one of the two versions. */
static void test_replace(void **st)
{
    if (crossed()) skip(); /* does not depend on the processor */
    static const pi__lora_ask moving = {"moving", 1};
    static job want[2], got;
    (void) st;
    write_model("llama3");
    write_adapters(model);
    pi__config c = config(model);
    pi_error err = {0};
    static job all[N_JOBS];
    shift s = {.e = job_core(&c)};
    for (int k = 0; k < 2; k++) {
        load(s.e, "moving", file[k]);
        jobs_fill(all);
        want[k] = all[1];
        want[k].lora = &moving, want[k].n_lora = 1;
        job_submit(s.e, &want[k], PI__LOGITS_ALL, NULL);
        job_await(&want[k], PI_OK);
        if (!k) assert_int_equal(pi__core_lora_unload(s.e, "moving", &err), PI_OK);
    }
    assert_true(want[0].rows != want[1].rows);
    load(s.e, "behind", file[2]);
    assert_int_equal(pi__core_lora_scale(s.e, "moving", 0.5f, &err), PI_OK);
    pthread_t t;
    int of[2] = {0};
    assert_int_equal(pthread_create(&t, NULL, replace, &s), 0);
    for (int round = 0; round < 60 || ((!of[0] || !of[1]) && round < 3000); round++) {
        jobs_fill(all);
        got = all[1];
        got.lora = &moving, got.n_lora = 1;
        job_submit(s.e, &got, PI__LOGITS_ALL, NULL);
        job_await(&got, PI_OK);
        assert_true(got.rows == want[0].rows || got.rows == want[1].rows);
        of[got.rows == want[1].rows]++;
        assert_string_equal(described(s.e, 0).name, "moving");
        assert_true(described(s.e, 0).scale == 0.5f);
        assert_string_equal(described(s.e, 1).name, "behind");
    }
    atomic_store(&s.stop, 1);
    pthread_join(t, NULL);
    assert_true(s.loads > 2 && of[0] && of[1]);
    assert_int_equal(pi__core_lora_replace(s.e, "none", file[0], &err), PI_ENOENT);
    assert_int_equal(pi__core_lora_replace(s.e, "moving", "/none", &err), PI_ENOENT);
    assert_int_equal(pi__core_lora_at(s.e, 2, &(pi_lora) {.size = sizeof(pi_lora)}), PI_ENOENT);
    pi__core_close(s.e);
    unlink(model);
    for (int i = 0; i < 5; i++) unlink(file[i]);
}

/* A running request keeps an unloaded adapter until the request ends. */
static void test_unload_in_use(void **st)
{
    if (crossed()) skip(); /* does not depend on the processor */
    static const pi__lora_ask a = {"a", 1};
    static job j[N_JOBS];
    (void) st;
    write_model("llama3");
    write_adapters(model);
    pi__config c = config(model);
    pi__core *e = job_core(&c);
    pi_error err = {0};
    load_all(e);
    jobs_fill(j);
    for (int i = 0; i < N_JOBS; i++) j[i].lora = &a, j[i].n_lora = 1;
    jobs_submit(e, j, PI__LOGITS_ALL, NULL);
    assert_int_equal(pi__core_lora_unload(e, "a", &err), PI_OK);
    assert_int_equal(pi__core_lora_unload(e, "a", &err), PI_ENOENT);
    load(e, "a", file[1]); /* while they run */
    for (int i = 0; i < N_JOBS; i++) job_await(&j[i], PI_OK);
    static job want[N_JOBS];
    static const pi__lora_ask d = {"d", 1};
    jobs_fill(want);
    for (int i = 0; i < N_JOBS; i++) {
        want[i].lora = &d, want[i].n_lora = 1;
        job_submit(e, &want[i], PI__LOGITS_ALL, NULL);
        job_await(&want[i], PI_OK);
        assert_true(j[i].rows == want[i].rows);
    }
    pi_lora l = {.size = sizeof l};
    int n = 0;
    while (!pi__core_lora_at(e, (size_t) n, &l)) assert_int_equal(l.n_running, 0), n++;
    assert_int_equal(n, 5);
    pi__core_close(e);
    unlink(model);
    for (int i = 0; i < 5; i++) unlink(file[i]);
}

/* ----------------------------------------------------------------------------------------------------------- files */

static void refused(pi__core *e, const char *path, int code, const char *why)
{
    pi_error err = {0};
    const int rc = pi__core_lora_load(e, "bad", path, 0, &err);
    if (!rc) fail_msg("loaded, where \"%s\" was expected", why);
    if (!strstr(err.msg, why) || (code && rc != code)) fail_msg("not \"%s\" (%d) but: %s (%d)", why, code, err.msg, rc);
}

static void write_bytes(const char *path, const char *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void refused_spec(pi__core *e, const char *path, const adapter_spec *s, int code, const char *why)
{
    pi_error err = {0};
    if (adapter_write(path, model, s, &err)) fail_msg("%s", err.msg);
    refused(e, path, code, why);
}

/* The number of adapters with a default scale, which requests without a selection use, has the limit of one request.
 * More adapters may be loaded with scale 0. */
static void test_too_many_for_all(void **st)
{
    char path[256], name[16];
    pi_error err = {0};
    (void) st;
    write_model("gemma3");
    tiny_path(path, "lora-some");
    const adapter_spec s = {.seed = 1, .rank = 2, .only = "blk.1.attn_q"};
    assert_int_equal(adapter_write(path, model, &s, &err), PI_OK);
    pi__config c = config(model);
    pi__core *e = job_core(&c);
    for (int i = 0; i < PI__MAX_LORA; i++) {
        snprintf(name, sizeof name, "all-%d", i);
        if (pi__core_lora_load(e, name, path, 0.5f, &err)) fail_msg("%s", err.msg);
    }
    assert_int_equal(pi__core_lora_load(e, "one more", path, 1, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "more than 8"));
    assert_int_equal(pi__core_lora_load(e, "chosen", path, 0, &err), PI_OK);
    assert_int_equal(pi__core_lora_scale(e, "chosen", 1, &err), PI_EINVAL);
    assert_int_equal(pi__core_lora_scale(e, "all-3", 2, &err), PI_OK);
    assert_int_equal(pi__core_lora_scale(e, "all-3", 0, &err), PI_OK);
    assert_int_equal(pi__core_lora_scale(e, "chosen", 1, &err), PI_OK);
    static job j[N_JOBS];
    jobs_fill(j);
    pi__job p = job_ready(e, &j[0], PI__LOGITS_NONE, NULL);
    p.params.lora_given = false;
    if (pi__core_submit(e, &p, 1, &j[0].seq, &err)) fail_msg("submit: %s", err.msg);
    job_await(&j[0], PI_OK);
    pi__core_close(e);
    unlink(model), unlink(path);
}

/* A NaN or infinity is reported as an error, also for embedding vectors, and the request's cached blocks are not
 * reused. */
static void test_overflow(void **st)
{
    static const pi__lora_ask huge = {"huge", 3e38f};
    static job want, j;
    static job all[N_JOBS];
    char path[256];
    pi_error err = {0};
    (void) st;
    write_model("gemma3");
    tiny_path(path, "lora-huge");
    assert_int_equal(adapter_write(path, model, &(adapter_spec) {.seed = 1, .rank = 2, .size = 1000}, &err), PI_OK);
    pi__config c = config(model);
    c.kv_tokens = 320; /* uses the same blocks repeatedly */
    pi__core *e = job_core(&c);
    if (pi__core_lora_load(e, "huge", path, 0, &err)) fail_msg("%s", err.msg);
    jobs_fill(all);
    want = j = all[N_JOBS - 1];
    job_submit(e, &want, PI__LOGITS_ALL, NULL);
    job_await(&want, PI_OK);
    for (int vectors = 0; vectors < 2; vectors++) {
        job bad = all[1];
        bad.lora = &huge, bad.n_lora = 1;
        pi__job p = job_ready(e, &bad, vectors ? PI__LOGITS_LAST : PI__LOGITS_NONE, NULL);
        p.params.hidden = vectors;
        if (vectors) p.params.max_tokens = 0, p.on_logits = NULL;
        if (pi__core_submit(e, &p, 1, &bad.seq, &err)) fail_msg("submit: %s", err.msg);
        job_await(&bad, PI_EINTERNAL);
        pi__core_cache_clear(e, NULL);
        job_submit(e, &j, PI__LOGITS_ALL, NULL);
        job_await(&j, PI_OK);
        assert_true(j.rows == want.rows);
        assert_memory_equal(j.tokens, want.tokens, N_GEN * sizeof *j.tokens);
    }
    pi__core_close(e);
    unlink(model), unlink(path);
}

/* Layers that layer exit skips also skip their adapter matrices. */
static void test_layer_exit(void **st)
{
    char path[256];
    pi_error err = {0};
    pi_lora l = {.size = sizeof l};
    (void) st;
    write_model("llama3");
    tiny_path(path, "lora-all");
    assert_int_equal(adapter_write(path, model, &(adapter_spec) {.seed = 1, .rank = 2, .only = "attn_q"}, &err), PI_OK);
    pi__config c = config(model);
    c.n_layer_exit = 2;
    pi__core *e = job_core(&c);
    if (pi__core_lora_load(e, "a", path, 0, &err)) fail_msg("%s", err.msg);
    assert_int_equal(pi__core_lora_at(e, 0, &l), PI_OK);
    assert_int_equal(l.n_matrices, 2);
    refused_spec(e, path,
                 &(adapter_spec) {.seed = 1, .rank = 2, .only = "attn_q", .more = "blk.3.attn_q.weight.lora_a"},
                 PI_EINVAL, "no matrix of this name"); /* belongs to a model with more layers */
    pi__core_close(e);
    unlink(model), unlink(path);
}

/* An adapter for the output matrix is refused by a model with tied embeddings. */
static void test_tied(void **st)
{
    char bad[256];
    (void) st;
    write_model("gemma3");
    tiny_path(bad, "lora-bad");
    pi__config c = config(model);
    pi__core *e = job_core(&c);
    refused_spec(e, bad, &(adapter_spec) {.seed = 1, .rank = 4, .only = "attn_", .more = "output.weight.lora_a"},
                 PI_EINVAL, "output matrix is token_embd.weight");
    pi__core_close(e);
    unlink(model), unlink(bad);
}

/* Invalid adapters for per-head matrices are refused. */
static void test_refused_heads(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    char bad[256], other[256];
    pi_error err = {0};
    write_model("deepseek2-old");
    tiny_path(bad, "lora-bad"), tiny_path(other, "lora-other");
    pi__config c = config(model);
    pi__core *e = job_core(&c);
    adapter_spec s = {.seed = 1, .rank = 4, .only = "attn_kv_b", .more = "blk.1.attn_k_b.weight.lora_a"};
    refused_spec(e, bad, &s, PI_EFORMAT, "changes blk.1.attn_k_b.weight twice");
    s.only = "attn_output";
    refused_spec(e, bad, &s, PI_EFORMAT, "blk.1.attn_k_b.weight.lora_b is missing");
    s.more = "blk.2.attn_kv_b.weight.lora_b";
    refused_spec(e, bad, &s, PI_EFORMAT, "blk.2.attn_kv_b.weight.lora_a is missing");
    s.more = NULL;
    static const char *const archs_of[] = {"deepseek2-old", "deepseek2"};
    for (int i = 0; i < 2; i++) {
        s.only = i ? "attn_v_b" : "attn_kv_b";
        assert_int_equal(tiny_write(other, &(tiny_spec) {.arch = archs_of[i], .sizes = "H=2"}, &err), PI_OK);
        assert_int_equal(adapter_write(bad, other, &s, &err), PI_OK);
        refused(e, bad, PI_EINVAL, i ? "attn_v_b.weight has 2 matrices" : "attn_kv_b.weight has 1 matrices");
    }
    pi__core_close(e);
    unlink(model), unlink(bad), unlink(other);
}

static void test_refused(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    char bad[256];
    write_model("mixtral");
    tiny_path(bad, "lora-bad");
    pi__config c = config(model);
    pi__core *e = job_core(&c);
    adapter_spec s = {.seed = 1, .rank = 4, .alpha = 4};
    refused(e, "/nonexistent/a.gguf", PI_ENOENT, "/nonexistent/a.gguf");
    char far_too_long[8192];
    memset(far_too_long, 'x', sizeof far_too_long);
    far_too_long[sizeof far_too_long - 1] = 0;
    refused(e, far_too_long, PI_EINVAL, "cannot open");
    refused(e, model, PI_EFORMAT, "this file is not an adapter");
    s.arch = "qwen3";
    refused_spec(e, bad, &s, PI_EINVAL, "made for another model");
    s.arch = NULL, s.alpha = INFINITY;
    refused_spec(e, bad, &s, PI_EFORMAT, "adapter.lora.alpha");
    s.alpha = 4, s.only = "attn_", s.more = "blk.0.ffn_gate_exps.weight.lora_a";
    refused_spec(e, bad, &s, PI_EFORMAT, "blk.0.ffn_gate_exps.weight.lora_b is missing");
    s.more = "token_embd.weight.lora_b";
    refused_spec(e, bad, &s, PI_EFORMAT, "token_embd.weight.lora_a is missing");
    s.more = "blk.99.attn_q.weight.lora_a";
    refused_spec(e, bad, &s, PI_EINVAL, "no matrix of this name");
    s.more = "blk.0.attn_q.weight";
    refused_spec(e, bad, &s, PI_EFORMAT, "does not end in .lora_a");
    s.more = NULL, s.only = "nothing";
    refused_spec(e, bad, &s, PI_EFORMAT, "changes no matrix");
    s.only = "blk.1.attn_k.weight", s.rank = PI__MAX_LORA_RANK + 1;
    refused_spec(e, bad, &s, PI_EUNSUPPORTED, "rank 513");
    s.rank = 4, s.size = NAN;
    refused_spec(e, bad, &s, PI_EFORMAT, "not finite");
    pi_error err = {0};
    char narrow[256];
    tiny_path(narrow, "lora-narrow");
    assert_int_equal(tiny_write(narrow, &(tiny_spec) {.arch = "mixtral", .sizes = "E=32"}, &err), PI_OK);
    s.size = 0;
    assert_int_equal(adapter_write(bad, narrow, &s, &err), PI_OK);
    refused(e, bad, PI_EINVAL, "columns");
    assert_int_equal(adapter_write(bad, model, &s, &err), PI_OK);
    model_file f = model_read(bad);
    model_find(f, ".lora_b")[6] = 'c';
    write_bytes(bad, f.p, f.n);
    refused(e, bad, 0, "lora_c");
    free(f.p);
    assert_int_equal(pi__core_lora_load(e, "good", (adapter_write(bad, model, &s, &err), bad), 0, &err), PI_OK);
    assert_int_equal(pi__core_lora_load(e, "good", bad, 0, &err), PI_EBUSY);
    pi__core_close(e);
    unlink(model), unlink(bad), unlink(narrow);
}

/* Every truncation of a file, and files with changed bytes, are refused or loaded, without any other effect. */
static void test_damaged(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    char bad[256];
    pi_error err = {0};
    uint64_t rng = 5;
    write_model("llama3");
    tiny_path(bad, "lora-bad");
    const adapter_spec s = {.seed = 1, .rank = 2, .alpha = 4, .only = "blk.1.attn_"};
    assert_int_equal(adapter_write(bad, model, &s, &err), PI_OK);
    pi__config c = config(model);
    pi__core *e = job_core(&c);
    model_file f = model_read(bad);
    for (size_t n = 0; n < f.n; n += n < 900 ? emulated() ? 7 : 1 : 61) {
        write_bytes(bad, f.p, n);
        if (!pi__core_lora_load(e, "bad", bad, 0, &err)) fail_msg("the first %zu bytes of %zu were loaded", n, f.n);
        assert_true(err.msg[0]);
    }
    int loaded = 0;
    for (int round = 0; round < rounds(2000); round++) {
        char old[4];
        size_t at[4];
        for (int k = 0; k < 4; k++) {
            at[k] = tiny_random(&rng) % (round % 2 ? f.n : 900);
            old[k] = f.p[at[k]];
            f.p[at[k]] = (char) (round % 3 ? f.p[at[k]] ^ (1 << tiny_random(&rng) % 8) : (int) tiny_random(&rng));
        }
        write_bytes(bad, f.p, f.n);
        if (!pi__core_lora_load(e, "bad", bad, 0, &err))
            loaded++, assert_int_equal(pi__core_lora_unload(e, "bad", &err), PI_OK);
        for (int k = 4; k-- > 0;) f.p[at[k]] = old[k];
    }
    assert_true(loaded > 0 && loaded < rounds(2000));
    write_bytes(bad, f.p, f.n);
    assert_int_equal(pi__core_lora_load(e, "bad", bad, 0, &err), PI_OK);
    free(f.p);
    pi__core_close(e);
    unlink(model), unlink(bad);
}

/* Loading with each allocation failing in turn returns an error and frees all memory. */
static void test_out_of_memory(void **st)
{
    (void) st;
    if (crossed()) skip(); /* does not depend on the processor */
    static counting_alloc a;
    pi_error err = {0};
    pi__model m = {0};
    pi__arch arch = {.name = "llama"};
    pi__backend *be;
    write_model("llama3");
    write_adapters(model);
    const pi__log log = {0};
    assert_int_equal(pi__cpu_create(&be, &(pi__cpu_params) {.n_threads = 1, .poll = 1}, &log, &err), PI_OK);
    pi__lora_target target = {.name = "blk.1.attn_q.weight", .n_in = 128, .n_out = 128, .n_mat = 1};
    m.arch = &arch, m.be = be, m.lora_target = &target, m.n_lora_target = 1, m.lim.max_n_in = 128;
    char some[256];
    tiny_path(some, "lora-some");
    assert_int_equal(
        adapter_write(some, model, &(adapter_spec) {.seed = 1, .rank = 2, .only = "blk.1.attn_q.weight"}, &err), PI_OK);
    for (long i = 0;; i++) {
        pi__adapter *ad = NULL;
        counting_use(&a, i);
        int rc = pi__adapter_read(&ad, &m, some, &err);
        if (!rc) rc = pi__adapter_place(ad, be, &err);
        pi__adapter_free(ad, be);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        if (a.count <= i) {
            if (rc) fail_msg("%s", err.msg);
            assert_true(i > 4);
            break;
        }
        assert_int_equal(rc, PI_ENOMEM);
    }
    be->dev->destroy(be);
    unlink(model), unlink(some);
    for (int i = 0; i < 5; i++) unlink(file[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged), cmocka_unit_test(test_as_one), cmocka_unit_test(test_company),
        cmocka_unit_test(test_divided), cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_under_load), cmocka_unit_test(test_replace),
        cmocka_unit_test(test_unload_in_use), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_tied), cmocka_unit_test(test_refused_heads),
        cmocka_unit_test(test_tied), cmocka_unit_test(test_too_many_for_all),
        cmocka_unit_test(test_overflow), cmocka_unit_test(test_layer_exit),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
