/* Gemma 4 with everything it can have, on a tiny random model: however requests are run together and cut into steps, the
 * logits are the same bits; tokens that the file suppresses never come; what is wrong in a file is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/core.h"
#include "formats/formats.h"
#include "tiny_gemma4.h"

enum { N_JOBS = 5, N_GEN = 12 };

/* One request and what came of it. */
typedef struct job {
    int32_t prompt[300];
    int32_t n_prompt;
    int32_t tokens[N_GEN], n_tokens;
    uint64_t rows; /* hash of the logits it got */
    atomic_int done;
    int code;
    uint32_t n_cached, n_preempted;
    pi__seq *seq;
} job;

static char model_path[256];

static bool on_token(void *ud, const pi__token_out *t)
{
    job *j = ud;
    assert_true(j->n_tokens < N_GEN);
    j->tokens[j->n_tokens++] = t->id;
    return false;
}

static void on_done(void *ud, const pi__job_end *end)
{
    job *j = ud;
    j->code = end->code;
    j->n_cached = end->cached_tokens;
    j->n_preempted = end->n_preempted;
    atomic_store(&j->done, 1);
}

static void on_logits(void *ud, uint32_t pos, const float *row, size_t n)
{
    job *j = ud;
    uint64_t h = j->rows ^ (pos + 1) * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &row[i], sizeof u);
        h = (h ^ u) * 0x100000001b3u;
    }
    j->rows = h;
}

static pi__config config(void)
{
    return (pi__config) {.model = model_path, .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 512, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 4096,
                         .cpu = {.n_threads = 2, .poll = 1}};
}

static void fill(job *jobs)
{
    static const int32_t lengths[N_JOBS] = {1, 17, 39, 41, 250}; /* the window is 40 */
    uint64_t rng = 99;
    for (int i = 0; i < N_JOBS; i++) {
        memset(&jobs[i], 0, sizeof jobs[i]);
        jobs[i].n_prompt = lengths[i];
        for (int32_t k = 0; k < lengths[i]; k++) jobs[i].prompt[k] = (int32_t) (tiny_random(&rng) % TINY_VOCAB);
    }
}

static void submit(pi__core *e, job *j, int32_t logits, const pi__logit_bias *bias)
{
    pi_error err = {0};
    pi__job p = {.prompt = j->prompt, .n_prompt = (size_t) j->n_prompt, .ud = j, .on_token = on_token, .on_done = on_done,
                 .on_logits = on_logits, .logits_ud = j};
    p.params = (pi__gen_params) {.max_tokens = N_GEN, .no_stop = true, .cache = true, .n_logprobs = -1, .logits = logits,
                                 .sampling = {.top_p = 1, .typical_p = 1, .repeat_penalty = 1, .chain = {PI__SMP_N},
                                              .bias = bias, .n_bias = bias ? 1 : 0}};
    j->n_tokens = 0;
    j->rows = 0;
    atomic_store(&j->done, 0);
    if (pi__core_submit(e, &p, &j->seq, &err)) fail_msg("submit: %s", err.msg);
}

static void await(job *j)
{
    for (int i = 0; i < 60000 && !atomic_load(&j->done); i++) usleep(1000);
    assert_true(atomic_load(&j->done));
    assert_int_equal(j->code, PI_OK);
    assert_int_equal(j->n_tokens, N_GEN);
    pi__seq_release(j->seq);
}

static pi__core *open_core(const pi__config *c)
{
    pi__core *e;
    pi_error err = {0};
    if (pi__core_open(&e, c, &err)) fail_msg("open: %s", err.msg);
    return e;
}

/* All jobs, together or one after the other, twice where prefixes are kept. */
static void run(const pi__config *c, bool together, int32_t logits, job *jobs)
{
    pi__core *e = open_core(c);
    for (int round = 0; round <= c->prefix_cache; round++)
        for (int i = 0; i < N_JOBS; i++) {
            submit(e, &jobs[i], logits, NULL);
            if (!together) await(&jobs[i]);
            if (together && i == N_JOBS - 1)
                for (int k = 0; k < N_JOBS; k++) await(&jobs[k]);
        }
    pi__core_close(e);
}

static void check(const job *got, const job *want, const char *what, int value)
{
    for (int i = 0; i < N_JOBS; i++) {
        if (memcmp(got[i].tokens, want[i].tokens, sizeof want[i].tokens)) fail_msg("%s %d: tokens of job %d differ", what, value, i);
        if (got[i].rows != want[i].rows) fail_msg("%s %d: logits of job %d differ", what, value, i);
    }
}

static void test_same_bits(void **st)
{
    (void) st;
    static job want[N_JOBS], got[N_JOBS];
    pi__config c = config();
    fill(want);
    fill(got);
    run(&c, false, PI__LOGITS_GENERATED, want);
    for (int32_t ub = 1; ub <= 300; ub = ub * 6 + 1) {
        c = config();
        c.max_batch_tokens = ub;
        c.block_size = ub == 7 ? 32 : ub == 43 ? 64 : 16;
        c.cpu.n_threads = ub == 7 ? 3 : 1;
        run(&c, ub > 1, PI__LOGITS_GENERATED, got);
        check(got, want, "step budget", ub);
    }
    c = config();
    c.prefix_cache = true;
    run(&c, true, PI__LOGITS_GENERATED, got);
    check(got, want, "prefix", 1);
    assert_true(got[N_JOBS - 1].n_cached >= 200);
    c = config();
    c.kv_tokens = 400; /* enough for all prompts, not for the answers */
    run(&c, true, PI__LOGITS_GENERATED, got);
    check(got, want, "preemption", 1);
    uint32_t preempted = 0;
    for (int i = 0; i < N_JOBS; i++) preempted += got[i].n_preempted;
    assert_true(preempted > 0);
}

/* With the logits of the whole prompt, too, in any chunks: tokens as before, rows the same. */
static void test_all_rows(void **st)
{
    (void) st;
    static job want[N_JOBS], got[N_JOBS], plain[N_JOBS];
    pi__config c = config();
    fill(want), fill(got), fill(plain);
    run(&c, false, PI__LOGITS_ALL, want);
    run(&c, true, PI__LOGITS_NONE, plain);
    for (int i = 0; i < N_JOBS; i++) assert_memory_equal(plain[i].tokens, want[i].tokens, sizeof want[i].tokens);
    c.max_batch_tokens = 11;
    run(&c, true, PI__LOGITS_ALL, got);
    check(got, want, "all rows in steps of", 11);
}

/* Window layers with a cache type of their own: only their blocks change, and with them the logits. */
static void test_window_type(void **st)
{
    (void) st;
    static job f16[N_JOBS], same[N_JOBS], mixed[N_JOBS];
    pi__config c[3] = {config(), config(), config()};
    pi_plan plan[3];
    pi_error err = {0};
    c[1].window_differs = c[2].window_differs = true;
    c[1].type_window = PI__F16;
    c[2].type_window = PI__Q8_0;
    for (int i = 0; i < 3; i++) {
        plan[i].size = sizeof plan[i];
        assert_int_equal(pi__core_plan(&c[i], &plan[i], &err), PI_OK);
        assert_int_equal(plan[i].n_groups, 2);
    }
    assert_memory_equal(&plan[0], &plan[1], sizeof plan[0]);
    for (int g = 0; g < 2; g++) {
        const bool less = plan[2].group[g].block_bytes < plan[0].group[g].block_bytes;
        assert_int_equal(less, plan[0].group[g].window > 0);
    }
    fill(f16), fill(same), fill(mixed);
    run(&c[0], true, PI__LOGITS_GENERATED, f16);
    run(&c[1], true, PI__LOGITS_GENERATED, same);
    run(&c[2], true, PI__LOGITS_GENERATED, mixed);
    check(same, f16, "f16 window", 1);
    for (int i = 0; i < N_JOBS; i++) assert_true(mixed[i].rows != f16[i].rows);
}

static void test_suppressed(void **st)
{
    (void) st;
    static const pi__logit_bias liked[3] = {{TINY_UNK, 1000}, {TINY_BYTE0, 1000}, {TINY_BYTE0 + 1, 1000}};
    pi__config c = config();
    pi__core *e = open_core(&c);
    for (int b = 0; b < 3; b++) {
        static job jobs[N_JOBS];
        fill(jobs);
        submit(e, &jobs[1], PI__LOGITS_NONE, &liked[b]);
        await(&jobs[1]);
        for (int i = 0; i < N_GEN; i++) assert_int_equal(jobs[1].tokens[i] == liked[b].id, b == 2);
    }
    pi__core_close(e);
}

/* ---- files that are refused */

typedef struct file {
    char *p;
    size_t n;
} file;

static char *find(file f, const char *text)
{
    for (size_t i = 0; i + strlen(text) < f.n; i++)
        if (!memcmp(f.p + i, text, strlen(text))) return f.p + i;
    fail_msg("no %s in the file", text);
    return NULL;
}

static file read_model(void)
{
    file f;
    FILE *in = fopen(model_path, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    f.n = (size_t) ftell(in);
    rewind(in);
    f.p = malloc(f.n);
    assert_int_equal(fread(f.p, 1, f.n, in), f.n);
    fclose(in);
    return f;
}

/* The file opens no more, and the error says why. */
static void assert_refused(file f, const char *why)
{
    char path[300];
    snprintf(path, sizeof path, "%s.bad", model_path);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(f.p, 1, f.n, out), f.n);
    assert_int_equal(fclose(out), 0);
    pi__config c = config();
    pi__core *e = NULL;
    pi_error err = {0};
    c.model = path;
    c.max_seqs = 1;
    assert_int_not_equal(pi__core_open(&e, &c, &err), PI_OK);
    if (!strstr(err.msg, why)) fail_msg("not \"%s\" but: %s", why, err.msg);
    unlink(path);
}

static void test_refused_numbers(void **st)
{
    (void) st;
    static const struct { const char *key; uint32_t v; const char *why; } list[] = {
        {"gemma4.attention.key_length", 48, "key_length 48"},
        {"gemma4.attention.value_length", 32, "value_length 32"},
        {"gemma4.attention.key_length_swa", 16, "key_length_swa is 16"},
        {"gemma4.rope.dimension_count", 32, "dimension_count 32"},
        {"gemma4.attention.head_count", 3, "3 heads for 2"}, {"gemma4.attention.head_count", 0, "head_count is 0"},
        {"gemma4.attention.shared_kv_layers", 6, "shared_kv_layers is 6"},
        {"gemma4.attention.shared_kv_layers", 5, "shares the cache"},
        {"gemma4.attention.sliding_window", 0, "sliding_window is 0"},
        {"gemma4.expert_used_count", 6, "expert_used_count is 6"},
        {"gemma4.expert_count", 0, "blk.0.ffn_gate_inp.weight"},
        {"gemma4.expert_count", 4, "blk.0.ffn_gate_inp.weight"},
        {"gemma4.expert_feed_forward_length", 16, "blk.0.ffn_gate_exps.weight"},
        {"gemma4.embedding_length_per_layer_input", 64, "per_layer_token_embd.weight"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        file f = read_model();
        memcpy(find(f, list[i].key) + strlen(list[i].key) + 4, &list[i].v, 4); /* after the type */
        assert_refused(f, list[i].why);
        free(f.p);
    }
}

static void test_refused_arrays(void **st)
{
    (void) st;
    static const struct { const char *key; size_t at; uint32_t v; const char *why; } list[] = { /* element type, number, data */
        {"gemma4.attention.sliding_window_pattern", 4, PI__GGUF_U8, "bool for each layer"},
        {"gemma4.attention.head_count_kv", 16, 4, "blk.0.attn_qkv.weight"},
        {"gemma4.attention.head_count_kv", 20, 0, "of layer 1 is 0"},
        {"gemma4.attention.head_count_kv", 4, PI__GGUF_F32, "whole number"},
        {"gemma4.feed_forward_length", 36, 96, "blk.5.ffn_gate.weight"},
        {"gemma4.feed_forward_length", 36, UINT32_MAX, "of layer 5 is -1"},
        {"tokenizer.ggml.suppress_tokens", 16, TINY_VOCAB, "suppress_tokens has token"},
        {"tokenizer.ggml.suppress_tokens", 4, PI__GGUF_F32, "suppress_tokens is not"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        file f = read_model();
        memcpy(find(f, list[i].key) + strlen(list[i].key) + list[i].at, &list[i].v, 4);
        assert_refused(f, list[i].why);
        free(f.p);
    }
}

static void test_refused_tensors(void **st)
{
    (void) st;
    static const char *const needed[] = {
        "rope_freqs.weight", "output_norm.weight", "per_layer_token_embd.weight", "per_layer_model_proj.weight",
        "blk.1.attn_v.weight", "blk.2.attn_k.weight", "blk.5.attn_q.weight", "blk.0.ffn_gate_inp.scale",
        "blk.1.ffn_down_exps.weight", "blk.2.ffn_up_exps.weight", "blk.3.post_norm.weight", "blk.4.inp_gate.weight"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        file f = read_model();
        find(f, needed[i])[0] = 'X';
        assert_refused(f, needed[i]);
        free(f.p);
    }
    /* Values: the 32 factors are the only place with 8 ones and then 1e30. */
    float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1e30f}, bad = 0;
    for (int k = 0; k < 2; k++) {
        file f = read_model();
        size_t i = 0;
        while (i + sizeof ones < f.n && memcmp(f.p + i, ones, sizeof ones)) i++;
        assert_true(i + sizeof ones < f.n);
        bad = k ? NAN : 0;
        memcpy(f.p + i, &bad, 4);
        assert_refused(f, "rope_freqs.weight: value 0");
        memcpy(f.p + i, ones, 4);
        bad = INFINITY; /* the last value of the file, before its padding */
        i = f.n / 32 * 32;
        memcpy(f.p + (i == f.n ? f.n - 32 : i), &bad, 4);
        assert_refused(f, "blk.5.layer_output_scale.weight is not");
        free(f.p);
    }
}

static int make_model(void **st)
{
    (void) st;
    pi_error err = {0};
    return tiny_gemma4_write(tiny_path(model_path, "gemma4"), 512, &err);
}

static int remove_model(void **st)
{
    (void) st;
    return unlink(model_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),       cmocka_unit_test(test_all_rows),       cmocka_unit_test(test_suppressed),
        cmocka_unit_test(test_window_type),
        cmocka_unit_test(test_refused_numbers), cmocka_unit_test(test_refused_arrays), cmocka_unit_test(test_refused_tensors),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
