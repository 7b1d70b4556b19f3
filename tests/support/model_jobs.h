/* Runs requests on an engine with a tiny model. Each request's tokens and a hash of its logits allow bitwise
 * comparison of runs. Also modifies copies of the model file; the loader must refuse them with an error that names
 * the fault. */
#ifndef MODEL_JOBS_H
#define MODEL_JOBS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/core.h"
#include "random_model.h"

enum { N_JOBS = 5, N_GEN = 12 };

/* One request and its results. */
typedef struct job {
    int32_t prompt[300];
    int32_t n_prompt;
    int32_t logits_from; /* first row of logits, with PI__LOGITS_ALL */
    int32_t mirostat;    /* sample with Mirostat, which has a state per request; 0 = greedy */
    int spec;            /* PI__SPEC_* of the drafter */
    const pi__lora_ask *lora; /* adapters */
    size_t n_lora;
    bool thinks;         /* the prompt ends inside a thought; its end tag is forced after 4 tokens */
    int32_t tokens[N_GEN], n_tokens;
    uint64_t rows; /* hash of the received logits rows */
    atomic_int done;
    int code;
    uint32_t n_cached, n_preempted, n_drafted, n_accepted;
    pi__seq *seq;
} job;

static bool job_on_token(void *ud, const pi__token_out *t)
{
    job *j = ud;
    assert_true(j->n_tokens < N_GEN);
    j->tokens[j->n_tokens++] = t->id;
    return false;
}

static void job_on_done(void *ud, const pi__job_end *end)
{
    job *j = ud;
    j->code = end->code;
    j->n_cached = end->cached_tokens;
    j->n_preempted = end->n_preempted;
    j->n_drafted = end->n_drafted;
    j->n_accepted = end->n_accepted;
    atomic_store(&j->done, 1);
}

static void job_on_logits(void *ud, uint32_t pos, const float *row, size_t n)
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

static void jobs_fill(job *jobs)
{
    static const int32_t lengths[N_JOBS] = {1, 17, 39, 41, 250};
    uint64_t rng = 99;
    for (int i = 0; i < N_JOBS; i++) {
        memset(&jobs[i], 0, sizeof jobs[i]);
        jobs[i].n_prompt = lengths[i];
        jobs[i].mirostat = i == 3 ? 2 : 0;
        jobs[i].thinks = i == 2;
        for (int32_t k = 0; k < lengths[i]; k++) jobs[i].prompt[k] = (int32_t) (tiny_random(&rng) % TINY_VOCAB);
    }
}

/* Replaces the prompt's last tokens by an opening tag. */
static void job_open_thought(pi__core *e, job *j)
{
    pi__ids tag = {0};
    assert_int_equal(pi__tokenize(pi__core_vocab(e), "<think>", 7, false, true, &tag), PI_OK);
    assert_true(tag.n < (size_t) j->n_prompt);
    memcpy(j->prompt + j->n_prompt - tag.n, tag.p, tag.n * sizeof *tag.p);
    pi__free(tag.p);
}

static pi__job job_ready(pi__core *e, job *j, int32_t logits, const pi__logit_bias *bias)
{
    pi__job p = {.prompt = j->prompt, .n_prompt = (size_t) j->n_prompt, .ud = j, .on_token = job_on_token,
                 .on_done = job_on_done, .on_logits = job_on_logits, .logits_ud = j};
    p.params = (pi__gen_params) {.max_tokens = N_GEN,
                                 .no_stop = true,
                                 .cache = true,
                                 .n_logprobs = -1,
                                 .logits = logits,
                                 .lora_given = true,
                                 .lora = j->lora,
                                 .n_lora = j->n_lora,
                                 .logits_from = j->logits_from,
                                 .spec = j->spec,
                                 .limit_thoughts = j->thinks,
                                 .thought_budget = 4,
                                 .sampling = {.seed = 11,
                                              .temp = j->mirostat ? 1 : 0,
                                              .mirostat = j->mirostat,
                                              .mirostat_tau = 3,
                                              .mirostat_eta = 0.3f,
                                              .top_p = 1,
                                              .typical_p = 1,
                                              .repeat_penalty = 1,
                                              .chain = {PI__SMP_N},
                                              .bias = bias,
                                              .n_bias = bias ? 1 : 0}};
    if (j->thinks) job_open_thought(e, j);
    j->n_tokens = 0;
    j->rows = 0;
    atomic_store(&j->done, 0);
    return p;
}

static void job_submit(pi__core *e, job *j, int32_t logits, const pi__logit_bias *bias)
{
    pi_error err = {0};
    const pi__job p = job_ready(e, j, logits, bias);
    if (pi__core_submit(e, &p, 1, &j->seq, &err)) fail_msg("submit: %s", err.msg);
}

/* Submits all requests in one call, so that no step starts with only some of them. */
static void jobs_submit(pi__core *e, job *jobs, int32_t logits, const pi__logit_bias *bias)
{
    pi_error err = {0};
    pi__job p[N_JOBS];
    pi__seq *seq[N_JOBS];
    for (int i = 0; i < N_JOBS; i++) p[i] = job_ready(e, &jobs[i], logits, bias);
    if (pi__core_submit(e, p, N_JOBS, seq, &err)) fail_msg("submit: %s", err.msg);
    for (int i = 0; i < N_JOBS; i++) jobs[i].seq = seq[i];
}

/* Waits until the request has ended and checks its code. */
static void job_await(job *j, int code)
{
    for (int i = 0; i < 60000 && !atomic_load(&j->done); i++) usleep(1000);
    assert_true(atomic_load(&j->done));
    assert_int_equal(j->code, code);
    if (!code) assert_int_equal(j->n_tokens, N_GEN);
    pi__seq_release(j->seq);
}

static pi__core *job_core(const pi__config *c)
{
    pi__core *e;
    pi_error err = {0};
    if (pi__core_open(&e, c, &err)) fail_msg("open: %s", err.msg);
    return e;
}

/* Runs all jobs, together or one by one; twice if the prefix cache is on. */
static void jobs_run(const pi__config *c, bool together, int32_t logits, job *jobs)
{
    pi__core *e = job_core(c);
    for (int round = 0; round <= c->prefix_cache; round++) {
        if (together) jobs_submit(e, jobs, logits, NULL);
        for (int i = 0; i < N_JOBS; i++) {
            if (!together) job_submit(e, &jobs[i], logits, NULL);
            job_await(&jobs[i], PI_OK);
        }
    }
    pi__core_close(e);
}

static void jobs_check(const job *got, const job *want, const char *what, int value)
{
    for (int i = 0; i < N_JOBS; i++) {
        if (memcmp(got[i].tokens, want[i].tokens, sizeof want[i].tokens))
            fail_msg("%s %d: tokens of job %d differ", what, value, i);
        if (got[i].rows != want[i].rows) fail_msg("%s %d: logits of job %d differ", what, value, i);
    }
}

/* Requesting logits of all prompt rows changes no tokens, and rows do not depend on the chunk size. */
static inline void jobs_all_rows(pi__config c)
{
    static job want[N_JOBS], got[N_JOBS], plain[N_JOBS];
    jobs_fill(want), jobs_fill(got), jobs_fill(plain);
    jobs_run(&c, false, PI__LOGITS_ALL, want);
    jobs_run(&c, true, PI__LOGITS_NONE, plain);
    for (int i = 0; i < N_JOBS; i++) assert_memory_equal(plain[i].tokens, want[i].tokens, sizeof want[i].tokens);
    c.max_batch_tokens = 11;
    jobs_run(&c, true, PI__LOGITS_ALL, got);
    jobs_check(got, want, "all rows in steps of", 11);
}

/* ---- files that must be refused */

typedef struct model_file {
    char *p;
    size_t n;
} model_file;

static inline model_file model_read(const char *path)
{
    model_file f;
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    f.n = (size_t) ftell(in);
    rewind(in);
    f.p = malloc(f.n);
    assert_non_null(f.p);
    assert_int_equal(fread(f.p, 1, f.n, in), f.n);
    fclose(in);
    return f;
}

static inline char *model_find(model_file f, const char *text)
{
    for (size_t i = 0; i + strlen(text) < f.n; i++)
        if (!memcmp(f.p + i, text, strlen(text))) return f.p + i;
    fail_msg("no %s in the file", text);
    return NULL;
}

/* Path of the file to modify: the drafter's if one is configured, otherwise the model's. */
static inline const char *model_file_of(const pi__config *c) { return c->draft_model ? c->draft_model : c->model; }

/* Opening the modified file fails with an error that contains `why`. */
static inline void model_refused(const pi__config *c0, model_file f, const char *why)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.bad", model_file_of(c0));
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(f.p, 1, f.n, out), f.n);
    assert_int_equal(fclose(out), 0);
    pi__config c = *c0;
    pi__core *e = NULL;
    pi_error err = {0};
    if (c.draft_model) c.draft_model = path;
    else c.model = path;
    c.max_seqs = 1;
    if (!pi__core_open(&e, &c, &err)) fail_msg("opened, where \"%s\" was expected", why);
    if (!strstr(err.msg, why)) fail_msg("not \"%s\" but: %s", why, err.msg);
    unlink(path);
}

/* Four bytes of a file to overwrite, and the expected error. */
typedef struct bad_value {
    const char *key; /* metadata key without `prefix` */
    /* offset in bytes from the end of the key: 4 = a number or an array's element type, 16 = the first element */
    size_t at;
    uint32_t v;      /* value to write */
    const char *why; /* expected part of the error text */
} bad_value;

static inline void models_refused(const pi__config *c, const char *prefix, const bad_value *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char key[96];
        snprintf(key, sizeof key, "%s%s", prefix, list[i].key);
        model_file f = model_read(model_file_of(c));
        memcpy(model_find(f, key) + strlen(key) + list[i].at, &list[i].v, 4);
        model_refused(c, f, list[i].why);
        free(f.p);
    }
}

/* Opening fails without any one of these tensors. */
static inline void model_needs(const pi__config *c, const char *const *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        model_file f = model_read(model_file_of(c));
        model_find(f, name[i])[0] = 'X';
        model_refused(c, f, name[i]);
        free(f.p);
    }
}

#endif
