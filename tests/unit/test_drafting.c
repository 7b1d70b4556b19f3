/* Drafters on tiny random models with every kind of cache. Tokens and logits do not depend on the drafter or the
 * number of drafts, in batches of one and of sixteen. Covers prefix hits, preemption, small steps, and different
 * drafters in one batch. Also unit tests: the n-gram index, the estimated value of drafts, and the texts that lookup
 * searches. */
#include "engine/draft_worth.h"
#include "engine/ngrams.h"
#include "model_jobs.h"
#include "open_oom.h"

enum { CROWD = 16, N_ARCHS = 8 };

static const char *const archs[N_ARCHS] = {"gemma3",    "gemma4",    "qwen35",  "qwen35moe",
                                           "deepseek4", "qwen3next", "glm4moe", "deepseek3"};
static char path[N_ARCHS][256], small_path[256], other_path[256];

static pi__config config(int arch)
{
    return (pi__config) {.model = path[arch],
                         .n_draft = 3,
                         .max_batch_tokens = 64,
                         .max_seqs = CROWD,
                         .max_queue = 40,
                         .block_size = 16,
                         .snapshot_interval = 512,
                         .type_k = PI__F16,
                         .type_v = PI__F16,
                         .kv_tokens = 8192,
                         .ngram_n = 2,
                         .ngram_m = 16,
                         .params.cpu = {.n_threads = 2, .poll = 1}};
}

/* Creates repetitive prompts; some share a prefix. */
static void crowd_fill(job *jobs)
{
    uint64_t rng = 5;
    static int32_t text[300];
    for (int k = 0; k < 300; k++) text[k] = (int32_t) (tiny_random(&rng) % TINY_VOCAB);
    for (int i = 0; i < CROWD; i++) {
        job *j = &jobs[i];
        memset(j, 0, sizeof *j);
        j->n_prompt = i == 0 ? 1 : i == 1 ? 250 : 20 + 7 * i;
        j->mirostat = i == 3 ? 2 : 0;
        for (int32_t k = 0; k < j->n_prompt; k++)
            j->prompt[k] = k < 40 && i % 3 ? text[k] : text[(k % (5 + i)) + 10 * i];
    }
}

/* Runs the jobs one by one or together, job i with drafter kinds[i % n_kinds]; twice if the prefix cache is on. */
static void crowd_run(const pi__config *c, int n_jobs, const int *kinds, int n_kinds, job *jobs, pi_stats *st)
{
    pi__core *e = job_core(c);
    for (int round = 0; round <= c->prefix_cache; round++) {
        for (int i = 0; i < n_jobs; i++) {
            jobs[i].spec = n_kinds ? kinds[i % n_kinds] : PI__SPEC_AUTO;
            job_submit(e, &jobs[i], PI__LOGITS_GENERATED, NULL);
            if (!n_kinds) job_await(&jobs[i], PI_OK);
        }
        for (int i = 0; i < n_jobs && n_kinds; i++) job_await(&jobs[i], PI_OK);
    }
    *st = (pi_stats) {.size = sizeof *st};
    assert_int_equal(pi__core_stats(e, st), PI_OK);
    pi__core_close(e);
}

static void same(const job *got, const job *want, int n, const char *what, int value)
{
    for (int i = 0; i < n; i++) {
        if (memcmp(got[i].tokens, want[i].tokens, sizeof want[i].tokens))
            fail_msg("%s %d: tokens of job %d differ", what, value, i);
        if (got[i].rows != want[i].rows) fail_msg("%s %d: logits of job %d differ", what, value, i);
    }
}

static job want[CROWD], got[CROWD];

/* Each drafter with all requests; the draft model is the target itself, so its drafts are correct. */
static void every_drafter(void **state)
{
    (void) state;
    static const int kinds[] = {PI__SPEC_NGRAM, PI__SPEC_LAYER_EXIT, PI__SPEC_DRAFT};
    pi_stats st;
    uint64_t accepted[3] = {0};
    for (int a = 0; a < N_ARCHS; a++) {
        pi__config c = config(a);
        crowd_fill(want);
        crowd_run(&c, CROWD, NULL, 0, want, &st);
        assert_int_equal(st.n_drafted, 0);
        for (int k = 0; k < 3; k++) {
            c = config(a);
            c.spec = kinds[k];
            c.draft_model = kinds[k] == PI__SPEC_DRAFT ? path[a] : NULL;
            c.max_batch_tokens = k == 2 ? 24 : 64;
            c.prefix_cache = k != 1;
            crowd_fill(got);
            crowd_run(&c, CROWD, &kinds[k], 1, got, &st);
            same(got, want, CROWD, archs[a], kinds[k]);
            if (k && !st.n_drafted) fail_msg("%s: drafter %d: no drafts", archs[a], kinds[k]);
            accepted[k] += st.n_accepted;
            if (kinds[k] == PI__SPEC_DRAFT) /* a greedy drafter cannot predict sampled tokens */
                for (int i = 0; i < CROWD; i++)
                    if (!got[i].mirostat) assert_int_equal(got[i].n_accepted, got[i].n_drafted);
        }
    }
    assert_true(accepted[0] > 0 && accepted[2] > 0);
}

/* Different drafters and no drafter in one batch, in a cache that is too small for all. */
static void mixed_drafters(void **state)
{
    (void) state;
    static const int kinds[] = {PI__SPEC_NGRAM, PI__SPEC_DRAFT, PI__SPEC_NONE, PI__SPEC_LAYER_EXIT, PI__SPEC_AUTO};
    pi_stats st;
    uint64_t preempted = 0;
    for (int a = 0; a < N_ARCHS; a++) {
        pi__config c = config(a);
        crowd_fill(want);
        crowd_run(&c, CROWD, NULL, 0, want, &st);
        c.spec = PI__SPEC_DRAFT;
        c.spec_also = 1u << PI__SPEC_NGRAM | 1u << PI__SPEC_LAYER_EXIT;
        c.draft_model = a < 2 ? small_path : path[a];
        c.draft_layers = 1;
        c.draft_adaptive = a % 2;
        c.prefix_cache = true;
        c.ngram_shared = a % 2 ? 4096 : 0;
        c.kv_tokens = a == 4 ? 3 * 128 : 272;
        crowd_fill(got);
        crowd_run(&c, CROWD, kinds, 5, got, &st);
        same(got, want, CROWD, archs[a], -1);
        preempted += st.n_preempted;
        for (int i = 0; i < CROWD; i++) /* requests without a drafter get no drafts */
            if (kinds[i % 5] == PI__SPEC_NONE) assert_int_equal(got[i].n_drafted, 0);
    }
    assert_true(preempted > 0);
}

/* An MTP head together with lookup. The head processes every prompt token even in many chunks, and drafts as it does
 * after one chunk. */
static void heads_see_all_of_a_prompt(void **state)
{
    (void) state;
    static const int mtp = PI__SPEC_MTP;
    pi_stats one, many;
    pi__config c = config(2);
    c.spec = PI__SPEC_MTP;
    c.spec_also = 1u << PI__SPEC_NGRAM;
    c.max_batch_tokens = 512;
    crowd_fill(want);
    crowd_run(&c, 6, &mtp, 1, want, &one);
    c.max_batch_tokens = 16;
    crowd_fill(got);
    crowd_run(&c, 6, &mtp, 1, got, &many);
    same(got, want, 6, "chunks", 16);
    for (int i = 0; i < 6; i++) assert_int_equal(got[i].n_accepted, want[i].n_accepted);
}

/* With adaptive draft length, a head that is always wrong stops drafting; its catch-up work later does not change
 * results. */
static void heads_that_rest(void **state)
{
    (void) state;
    static const int mtp = PI__SPEC_MTP;
    pi_stats st;
    for (int a = 2; a < N_ARCHS; a++) {
        if (a == 4) continue; /* its head is in a separate file */
        pi__config c = config(a);
        crowd_fill(want);
        crowd_run(&c, CROWD, NULL, 0, want, &st);
        c.spec = PI__SPEC_MTP;
        c.draft_adaptive = true;
        c.prefix_cache = true;
        c.max_batch_tokens = a == 2 ? 24 : 64;
        crowd_fill(got);
        crowd_run(&c, CROWD, &mtp, 1, got, &st);
        same(got, want, CROWD, archs[a], mtp);
    }
}

static void what_does_not_go_together(void **state)
{
    (void) state;
    pi__core *e = NULL;
    pi_error err = {0};
    pi__config c = config(0);
    c.draft_model = other_path;
    assert_int_equal(pi__core_open(&e, &c, &err), PI_EINVAL);
    if (!strstr(err.msg, "another vocabulary")) fail_msg("%s", err.msg);
    c = config(7);
    c.spec = PI__SPEC_MTP;
    model_file f = model_read(c.model); /* the metadata state a head that the file does not contain */
    model_find(f, "nextn.eh_proj")[0] = 'X';
    model_refused(&c, f, "the file has no draft head");
    free(f.p);
    c = config(0);
    c.spec = PI__SPEC_LAYER_EXIT;
    c.draft_layers = 64;
    assert_int_equal(pi__core_open(&e, &c, &err), PI_EINVAL);
    c = config(0);
    c.n_layer_exit = 64;
    assert_int_equal(pi__core_open(&e, &c, &err), PI_EINVAL);
    if (!strstr(err.msg, "n-layer-exit")) fail_msg("%s", err.msg);
    c = config(0);
    c.n_expert = 1;
    assert_int_equal(pi__core_open(&e, &c, &err), PI_EINVAL);
    c = config(0);
    c.spec = PI__SPEC_NGRAM;
    e = job_core(&c);
    static job j;
    crowd_fill(want);
    j = want[2];
    pi__job p = {.prompt = j.prompt, .n_prompt = 4, .ud = &j, .on_token = job_on_token, .on_done = job_on_done};
    p.params = (pi__gen_params) {.max_tokens = 1, .n_logprobs = -1, .spec = PI__SPEC_DRAFT};
    assert_int_equal(pi__core_submit(e, &p, 1, &j.seq, &err), PI_EINVAL);
    if (!strstr(err.msg, "spec-type draft")) fail_msg("%s", err.msg);
    pi__core_close(e);
}

/* Opening with all drafters enabled, with each allocation failing in turn. */
static void out_of_memory(void **state)
{
    (void) state;
    pi__config c = config(0);
    c.max_seqs = 2;
    c.spec = PI__SPEC_DRAFT;
    c.spec_also = 1u << PI__SPEC_NGRAM | 1u << PI__SPEC_LAYER_EXIT;
    c.draft_model = small_path;
    c.ngram_shared = 300;
    assert_true(open_out_of_memory(&c) > 20);
    pi_plan plan = {.size = sizeof plan}, without = {.size = sizeof without};
    assert_int_equal(pi__core_plan(&c, &plan, NULL), PI_OK);
    c.spec = PI__SPEC_NONE;
    c.spec_also = 0;
    assert_int_equal(pi__core_plan(&c, &without, NULL), PI_OK);
    assert_true(plan.weights_bytes > without.weights_bytes && plan.kv_bytes > without.kv_bytes);
    assert_true(plan.scratch_bytes > without.scratch_bytes);
}

/* Fewer layers or experts: other results, but the same for one request and for a batch. */
static void less_of_a_model(void **state)
{
    (void) state;
    static const int none = PI__SPEC_NONE;
    pi_stats st;
    for (int a = 0; a < N_ARCHS; a++) {
        pi__config c = config(a);
        crowd_fill(want);
        crowd_run(&c, 4, NULL, 0, want, &st);
        c.n_layer_exit = a == 2 || a == 3 ? 4 : 2;
        if (a == 3) c.n_expert = 1;
        crowd_fill(got);
        crowd_run(&c, 4, NULL, 0, got, &st);
        int other = 0;
        for (int i = 0; i < 4; i++) other += got[i].rows != want[i].rows;
        assert_int_equal(other, a == 2 ? other : 4);
        crowd_fill(want);
        crowd_run(&c, 4, &none, 1, want, &st);
        same(got, want, 4, archs[a], -2);
    }
}

/* ---- parts */

static void places_of_n_grams(void **state)
{
    (void) state;
    static const int32_t t[] = {7, 3, 5, 9, 2, 7, 3, 5, 8, 1, 6, 2, 7, 3, 5};
    pi__ngrams g;
    int32_t length;
    pi__text text = {.token = t, .mask = INT32_MAX, .end = 14};
    assert_int_equal(pi__ngrams_init(&g, 300, 3, NULL), PI_OK);
    assert_int_equal(pi__ngrams_find(&g, &text, t, 2, 0, &length), -1); /* shorter than n */
    for (int32_t i = 2; i < 14; i++) pi__ngrams_add(&g, &text, i);
    assert_int_equal(pi__ngrams_find(&g, &text, t, 15, 0, &length), 7); /* 2 7 3 5, not the 7 3 5 at the front */
    assert_int_equal(length, 4);
    assert_int_equal(pi__ngrams_find(&g, &text, (const int32_t[]) {7, 3, 6}, 3, 0, &length), -1);
    pi__ngrams_clear(&g);
    assert_int_equal(pi__ngrams_find(&g, &text, t, 15, 0, &length), -1);
    pi__ngrams_destroy(&g);
}

/* The index does not return evicted positions, and every search has bounded length for any text. */
static void index_is_bounded(void **state)
{
    (void) state;
    enum { N = 5000 };
    static int32_t t[N];
    pi__ngrams g;
    int32_t length, found = 0;
    uint64_t rng = 3;
    for (int i = 0; i < N; i++) t[i] = i % 1000 < 10 ? i % 1000 : (int32_t) (tiny_random(&rng) % 100000) + 100;
    assert_int_equal(pi__ngrams_init(&g, 256, 3, NULL), PI_OK);
    for (int32_t i = 2; i < N; i++) {
        const pi__text text = {.token = t, .mask = INT32_MAX, .end = i};
        const int32_t at = pi__ngrams_find(&g, &text, t, i + 1, 0, &length);
        if (at >= 0) assert_true(at > i - 257 && at < i && length >= 3);
        found += at >= 0;
        pi__ngrams_add(&g, &text, i);
    }
    assert_int_equal(found, 0); /* repetitions are 1000 tokens apart */
    for (int i = 0; i < N; i++) t[i] = 4;
    const pi__text text = {.token = t, .mask = INT32_MAX, .end = N - 1};
    for (int32_t i = 2; i < N - 1; i++) pi__ngrams_add(&g, &text, i);
    assert_int_equal(pi__ngrams_find(&g, &text, t, N, 0, &length), N - 2);
    assert_int_equal(length, PI__MOST_MATCH);
    pi__ngrams_destroy(&g);
}

/* Simulates sequences whose drafts are correct with probability `right`, on a machine with step time base + row *
 * rows, +-10%. Returns time without drafting divided by time with it, from the first step on, for the same number of
 * tokens. *made = drafts per sequence and step. */
static double speedup(int n_seqs, double right, double base, double row, double *made)
{
    enum { STEPS = 1500 };
    static pi__worth w;
    static pi__seq s[CROWD];
    pi__seq *all[CROWD];
    uint64_t rng = 9;
    double with = 0, tokens = 0, drafts = 0;
    memset(&w, 0, sizeof w);
    memset(s, 0, sizeof s);
    for (int i = 0; i < n_seqs; i++) all[i] = &s[i], s[i].spec.kind = PI__SPEC_NGRAM, s[i].spec.level = 2;
    for (int step = 0; step < STEPS; step++) {
        int rows = n_seqs;
        for (int i = 0; i < n_seqs; i++) s[i].n_wish = 16;
        pi__worth_choose(&w, all, n_seqs, n_seqs, false);
        for (int i = 0; i < n_seqs; i++) rows += s[i].n_wish;
        const double ms = (base + row * rows) * (0.9 + 0.2e-3 * (tiny_random(&rng) % 1000));
        pi__worth_step(&w, n_seqs, rows, ms);
        with += ms;
        int right_ones = 0;
        for (int i = 0; i < n_seqs; i++) {
            int n = 0;
            while (n < s[i].n_wish && tiny_random(&rng) % 1000 < 1000 * right) n++;
            if (s[i].n_wish) pi__worth_verified(&w, &s[i], s[i].n_wish, n);
            drafts += s[i].n_wish;
            right_ones += n;
            tokens += 1 + n;
        }
        pi__worth_settle(&w, PI__SPEC_NGRAM, n_seqs, rows, rows - n_seqs, right_ones);
    }
    *made = drafts / STEPS / n_seqs;
    return tokens / n_seqs * (base + row * n_seqs) / with;
}

static void drafts_follow_what_they_are_worth(void **state)
{
    (void) state;
    double made;
    assert_true(speedup(1, 0.95, 10, 0.1, &made) > 4 && made > 8); /* a row is almost free and usually correct */
    assert_true(speedup(1, 0.6, 10, 2, &made) > 1 && made < 3);    /* a row costs a sixth of a step */
    speedup(1, 0.02, 10, 1, &made);
    assert_true(made < 0.2);                                       /* drafts are wrong */
    speedup(16, 0.5, 0.1, 1, &made);
    /* rows dominate the step time, as in a full batch */
    assert_true(made < 0.1);
    assert_true(speedup(16, 0.9, 20, 0.2, &made) > 2);
    static const double right[] = {0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95}, row[] = {0.01, 0.1, 0.4, 1, 5};
    static const int seqs[] = {1, 4, CROWD};
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < 5; k++)
            for (int n = 0; n < 3; n++) {
                const double gain = speedup(seqs[n], right[i], 10, row[k], &made);
                if (gain < 0.97)
                    fail_msg("%d sequences, right %g, row %g: %g times as fast", seqs[n], right[i], row[k], gain);
            }
}

/* Simulates consecutive requests with a draft model whose drafts are correct with probability `right`. A draft pass
 * takes `pass` of a 10 ms step; each of the 300 prompt tokens takes `pass` ms. Returns time without the draft model
 * divided by time with it. *n_caught = number of prompts that the draft model computed. */
static double model_speedup(double right, double pass, float share, int *n_caught)
{
    enum { REQUESTS = 30, ANSWER = 150, PROMPT = 300, MOST = 3, KIND = PI__SPEC_DRAFT };
    static pi__worth w;
    static pi__seq s;
    pi__seq *all[1] = {&s};
    uint64_t rng = 4;
    double with = 0, none = 0;
    memset(&w, 0, sizeof w);
    w.share[KIND] = share;
    *n_caught = 0;
    for (int i = 0; i < REQUESTS; i++) {
        bool seen = false;
        memset(&s, 0, sizeof s);
        s.spec.kind = KIND, s.n_tokens = s.n_prompt = PROMPT, s.max_total = PROMPT + ANSWER;
        for (int n = 0; n < ANSWER; n++, none += 10) {
            if (!seen && pi__worth_wants(&w, &s, s.n_tokens, MOST)) {
                pi__worth_caught_up(&w, KIND, s.n_tokens, s.n_tokens * pass, true);
                with += s.n_tokens * pass;
                ++*n_caught;
                seen = true;
            }
            s.n_wish = seen && n + 1 < ANSWER ? w.pass_ms[KIND] > 0 ? MOST : 1 : 0;
            pi__worth_choose(&w, all, s.n_wish > 0, 1, false);
            int k = 0;
            const int made = s.n_wish;
            while (k < made && tiny_random(&rng) % 1000 < 1000 * right) k++;
            const double ms = 10 + 0.5 * made;
            pi__worth_step(&w, 1, 1 + made, ms);
            if (made) pi__worth_drafting(&w, KIND, made, 10 * pass * made);
            if (made) pi__worth_verified(&w, &s, made, k);
            pi__worth_settle(&w, KIND, 1, 1 + made, made, k);
            with += ms + 10 * pass * made;
            for (; k && n + 1 < ANSWER; k--) n++, s.n_tokens++, none += 10;
            s.n_tokens++;
        }
        pi__worth_ended(&w, ANSWER);
    }
    return none / with;
}

static void models_that_do_not_help_cost_nothing(void **state)
{
    (void) state;
    static const double right[] = {0, 0.2, 0.5, 0.9}, pass[] = {0.02, 0.1, 0.3, 1};
    int n;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            for (int known = 0; known < 2; known++) {
                const double gain = model_speedup(right[i], pass[k], known ? (float) pass[k] : 0, &n);
                if (gain < 0.97) fail_msg("right %g, a pass %g of a step: %g times as fast", right[i], pass[k], gain);
            }
    assert_true(model_speedup(0.9, 0.02, 0.02f, &n) > 2 && n == 30);
    assert_true(model_speedup(0.9, 0.1, 0.1f, &n) > 1.3);
    model_speedup(1, 1, 1, &n);
    assert_int_equal(n, 0); /* the target itself as the draft model: no prompt is computed twice */
    model_speedup(0, 0.1, 0.1f, &n);
    assert_true(n <= 20); /* limited by the time available */
}

/* A draft model and layer exit, with two devices that act as one. */
static void devices_as_one(void **state)
{
    (void) state;
    static const int kinds[] = {PI__SPEC_DRAFT, PI__SPEC_LAYER_EXIT};
    pi_stats st;
    for (int a = 0; a < 4; a++) { /* covers models with the small draft model's vocabulary */
        pi__config c = config(a);
        crowd_fill(want), crowd_fill(got);
        crowd_run(&c, 4, NULL, 0, want, &st);
        c.device = "cpu,cpu";
        c.tensor = true;
        c.spec_also = 1u << PI__SPEC_LAYER_EXIT;
        c.spec = PI__SPEC_DRAFT;
        c.draft_model = small_path;
        crowd_run(&c, 4, kinds, 2, got, &st);
        same(got, want, 4, archs[a], 2);
        assert_true(st.n_drafted > 0);
    }
}

/* The cache of a request without the draft head is not a prefix for a request with it: the head's keys and values are
 * missing. The reverse direction is a hit. */
static void prefixes_of_heads(void **state)
{
    (void) state;
    static const int specs[] = {PI__SPEC_NONE, PI__SPEC_MTP, PI__SPEC_NONE, PI__SPEC_MTP};
    pi__config c = config(2);
    c.spec = PI__SPEC_MTP;
    c.prefix_cache = true;
    c.snapshot_interval = 16;
    crowd_fill(want);
    pi__core *e = job_core(&c);
    for (int k = 0; k < 4; k++) {
        job *j = &want[1], first = *j;
        j->spec = specs[k];
        job_submit(e, j, PI__LOGITS_GENERATED, NULL);
        job_await(j, PI_OK);
        if (k) same(j, &first, 1, "prefix", k);
        assert_true(k < 2 ? j->n_cached == 0 : j->n_cached >= 224);
        assert_true((j->n_drafted > 0) == (specs[k] == PI__SPEC_MTP));
    }
    pi__core_close(e);
}

/* A request finds the text of an ended request with the same salt, but not with another salt. */
static void texts_of_tenants(void **state)
{
    (void) state;
    uint32_t accepted[2];
    for (int k = 0; k < 2; k++) {
        pi__config c = config(0);
        c.spec = PI__SPEC_NGRAM;
        c.ngram_shared = 1000;
        c.prefix_cache = true;
        pi__core *e = job_core(&c);
        for (int i = 0; i < 2; i++) {
            job *j = &got[i];
            pi_error err = {0};
            memset(j, 0, sizeof *j);
            for (j->n_prompt = 0; j->n_prompt < 9; j->n_prompt++) j->prompt[j->n_prompt] = 11 + 13 * j->n_prompt;
            pi__job p = {.prompt = j->prompt, .n_prompt = (size_t) j->n_prompt, .ud = j, .on_token = job_on_token,
                         .on_done = job_on_done};
            p.params = (pi__gen_params) {
                .max_tokens = N_GEN,
                .no_stop = true,
                .cache = true,
                .n_logprobs = -1,
                .salt = k && i ? "b" : "a",
                .sampling = {.temp = 0, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .chain = {PI__SMP_N}}};
            if (pi__core_submit(e, &p, 1, &j->seq, &err)) fail_msg("%s", err.msg);
            job_await(j, PI_OK);
        }
        pi__core_close(e);
        assert_memory_equal(got[0].tokens, got[1].tokens, sizeof got[0].tokens);
        accepted[k] = got[1].n_accepted - got[0].n_accepted;
    }
    assert_true(accepted[0] > 0);
    assert_int_equal(accepted[1], 0);
}

static int write_models(void **state)
{
    (void) state;
    int rc = PI_OK;
    for (int a = 0; a < N_ARCHS && !rc; a++)
        rc = tiny_write(tiny_path(path[a], archs[a]), &(tiny_spec) {.arch = archs[a]}, NULL);
    if (!rc) rc = tiny_write(tiny_path(small_path, "small"), &(tiny_spec) {.sizes = "L=1", .seed = 4}, NULL);
    return rc ? rc : tiny_write(tiny_path(other_path, "other"), &(tiny_spec) {.arch = "qwen3"}, NULL);
}

static int remove_models(void **state)
{
    (void) state;
    int rc = unlink(small_path) | unlink(other_path);
    for (int a = 0; a < N_ARCHS; a++) rc |= unlink(path[a]);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drafter),
        cmocka_unit_test(mixed_drafters),
        cmocka_unit_test(heads_see_all_of_a_prompt),
        cmocka_unit_test(what_does_not_go_together),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(less_of_a_model),
        cmocka_unit_test(places_of_n_grams),
        cmocka_unit_test(index_is_bounded),
        cmocka_unit_test(drafts_follow_what_they_are_worth),
        cmocka_unit_test(models_that_do_not_help_cost_nothing),
        cmocka_unit_test(heads_that_rest),
        cmocka_unit_test(texts_of_tenants),
        cmocka_unit_test(prefixes_of_heads),
        cmocka_unit_test(devices_as_one),
    };
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
