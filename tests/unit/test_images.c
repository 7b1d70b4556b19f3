/* Prompts with images, on tiny random models of every kind of attention and position: results do not depend on the
 * batch, the step size, the prefix cache, preemption or drafts. Images of equal size are never confused. An image is
 * encoded once for all requests that wait for it, and not at all if its blocks are cached. Logits agree with
 * transformers (tests/golden/images_NAME.txt, written by tests/scripts/gen_image_prompts.py). */
#include <math.h>

#include "discrete_device.h"
#include "image_jobs.h"
#include "model/tower.h"
#include "open_oom.h"
#include "random_model.h"
#include "rounds.h"

enum { N_IMAGE_JOBS = MAX_IMAGE_JOBS };

/* ---- models */

typedef struct model {
    const char *name, *arch;
    int attention;             /* enum pi__span_attention */
    bool mrope;
    int n_embd, n_deepstack;
    int spec;                  /* a drafter besides lookup that the model has */
    bool golden;               /* has a golden */
} model;
enum { GEMMA3, QWEN3VL = 5 /* indices of models */ };
static const model models[] = {
    {"gemma3", "gemma3", PI__SPAN_ALL, false, 64, 0, PI__SPEC_LAYER_EXIT, true},
    {"gemma4", "gemma4", PI__SPAN_SLIDING, false, 64, 0, PI__SPEC_LAYER_EXIT, false},
    {"gemma4-e", "gemma4-e", PI__SPAN_CAUSAL, false, 64, 0, PI__SPEC_LAYER_EXIT, true},
    {"gemma4-vision", "gemma4-vision", PI__SPAN_SLIDING, false, 64, 0, PI__SPEC_LAYER_EXIT, true},
    {"qwen2vl", "qwen2vl", PI__SPAN_CAUSAL, true, 128, 0, PI__SPEC_LAYER_EXIT, true},
    {"qwen3vl", "qwen3vl", PI__SPAN_CAUSAL, true, 96, 2, PI__SPEC_LAYER_EXIT, true},
    {"qwen3vlmoe", "qwen3vlmoe", PI__SPAN_CAUSAL, true, 96, 1, PI__SPEC_LAYER_EXIT, true},
    {"qwen35", "qwen35", PI__SPAN_CAUSAL, true, 64, 0, PI__SPEC_MTP, true},
    {"qwen35moe", "qwen35moe", PI__SPAN_CAUSAL, true, 64, 0, PI__SPEC_MTP, false},
};
enum { N_MODELS = sizeof models / sizeof *models };
static char path[N_MODELS][256];

/* Sets up the configuration of model i, and e as its encoder. */
static pi__config config_of(int i, encoder *e)
{
    const model *m = &models[i];
    set_encoder(e, m->n_embd, m->n_deepstack, m->attention, m->mrope);
    return (pi__config) {.model = path[i], .max_batch_tokens = 64, .max_seqs = 8, .max_queue = 20, .block_size = 16,
                         .snapshot_interval = 512, .type_k = PI__F32, .type_v = PI__F32, .kv_tokens = 4096,
                         .encoder = &e->fns, .mmproj_cache = 1, .params.cpu = {.n_threads = 2, .poll = 1}};
}

/* ---- requests */

/* Requests with no, one, two and three images; at the start, in the middle, adjacent, and at the end. Two have the same
 * images after the same text. */
static void fill_jobs(image_job *r)
{
    uint64_t rng = 5;
    memset(r, 0, N_IMAGE_JOBS * sizeof *r);
    add_text(&r[0], 37, &rng);
    add_text(&r[1], 12, &rng), add_image(&r[1], 3, 5, 1), add_text(&r[1], 9, &rng);
    add_image(&r[2], 4, 4, 2), add_text(&r[2], 3, &rng), add_image(&r[2], 2, 7, 3), add_text(&r[2], 20, &rng);
    add_text(&r[3], 60, &rng), add_image(&r[3], 5, 8, 4), add_text(&r[3], 70, &rng);
    add_image(&r[3], 6, 6, 1), add_image(&r[3], 1, 4, 5);
    uint64_t again = 9;
    add_text(&r[4], 40, &again), add_image(&r[4], 6, 3, 6), add_text(&r[4], 40, &again);
    again = 9;
    add_text(&r[5], 40, &again), add_image(&r[5], 6, 3, 6), add_text(&r[5], 45, &again);
    for (int i = 0; i < N_IMAGE_JOBS; i++) r[i].j.spec = PI__SPEC_NONE;
}

/* Runs all requests, together or one by one; twice if the prefix cache is on. Returns the number of encoded images. */
static uint64_t run(const pi__config *c, bool together, int32_t logits, image_job *r)
{
    pi__core *e = job_core(c);
    for (int round = 0; round <= c->prefix_cache; round++) {
        if (together) submit_all(e, r, N_IMAGE_JOBS, logits);
        for (int i = 0; i < N_IMAGE_JOBS; i++) {
            if (!together) submit(e, &r[i], logits);
            job_await(&r[i].j, PI_OK);
        }
    }
    const uint64_t n = pi__core_counters(e)->n_images_encoded;
    pi__core_close(e);
    return n;
}

static void check(const image_job *got, const image_job *want, const char *model, const char *what, int value)
{
    for (int i = 0; i < N_IMAGE_JOBS; i++) {
        if (memcmp(got[i].j.tokens, want[i].j.tokens, sizeof want[i].j.tokens))
            fail_msg("%s, %s %d: tokens of request %d differ", model, what, value, i);
        if (got[i].j.rows != want[i].j.rows) fail_msg("%s, %s %d: logits of request %d differ", model, what, value, i);
    }
}

static void test_same_bits(void **st)
{
    (void) st;
    for (int i = 0; i < N_MODELS; i++) {
        static image_job want[N_IMAGE_JOBS], got[N_IMAGE_JOBS];
        const bool whole = models[i].attention != PI__SPAN_CAUSAL;
        encoder e;
        pi__config c = config_of(i, &e);
        fill_jobs(want), fill_jobs(got);
        run(&c, false, PI__LOGITS_GENERATED, want);
        for (int32_t ub = whole ? 47 : 7; ub <= 400; ub = ub * 6 + 1) {
            c = config_of(i, &e);
            c.max_batch_tokens = ub;
            c.block_size = ub == 7 || ub == 47 ? 32 : 64;
            c.params.cpu.n_threads = ub < 48 ? 3 : 1;
            run(&c, true, PI__LOGITS_GENERATED, got);
            check(got, want, models[i].name, "step budget", ub);
        }
        c = config_of(i, &e);
        c.prefix_cache = true;
        run(&c, true, PI__LOGITS_GENERATED, got);
        check(got, want, models[i].name, "prefix", 1);
        assert_true(got[3].j.n_cached >= 100);
        c = config_of(i, &e);
        c.kv_tokens = 304; /* enough for each prompt, not for all of them */
        run(&c, true, PI__LOGITS_GENERATED, got);
        check(got, want, models[i].name, "preemption", 1);
        uint32_t preempted = 0;
        for (int k = 0; k < N_IMAGE_JOBS; k++) preempted += got[k].j.n_preempted;
        if (!preempted) fail_msg("%s: no preemption", models[i].name);
        release_images(want, N_IMAGE_JOBS), release_images(got, N_IMAGE_JOBS);
    }
}

/* Rows of all prompt positions do not depend on the chunks, and asking for them changes no token. */
static void test_all_rows(void **st)
{
    (void) st;
    for (int i = 0; i < N_MODELS; i++) {
        static image_job want[N_IMAGE_JOBS], got[N_IMAGE_JOBS], plain[N_IMAGE_JOBS];
        encoder e;
        pi__config c = config_of(i, &e);
        fill_jobs(want), fill_jobs(got), fill_jobs(plain);
        run(&c, false, PI__LOGITS_ALL, want);
        run(&c, true, PI__LOGITS_NONE, plain);
        for (int k = 0; k < N_IMAGE_JOBS; k++)
            assert_memory_equal(plain[k].j.tokens, want[k].j.tokens, sizeof want[k].j.tokens);
        c = config_of(i, &e);
        c.max_batch_tokens = models[i].attention == PI__SPAN_CAUSAL ? 11 : 50;
        run(&c, true, PI__LOGITS_ALL, got);
        check(got, want, models[i].name, "all rows in steps of", c.max_batch_tokens);
        release_images(want, N_IMAGE_JOBS), release_images(got, N_IMAGE_JOBS), release_images(plain, N_IMAGE_JOBS);
    }
}

/* Drafts change no result: by lookup in the text, and by the model's own drafter. */
static void test_drafts(void **st)
{
    (void) st;
    for (int i = 0; i < N_MODELS; i++) {
        static image_job want[N_IMAGE_JOBS], got[N_IMAGE_JOBS];
        const int kinds[2] = {PI__SPEC_NGRAM, models[i].spec};
        encoder e;
        pi__config c = config_of(i, &e);
        fill_jobs(want), fill_jobs(got);
        run(&c, false, PI__LOGITS_NONE, want);
        for (int k = 0; k < 2; k++) {
            uint32_t drafted = 0;
            c = config_of(i, &e);
            c.spec = kinds[k];
            c.n_draft = 3;
            c.ngram_n = 1;
            c.ngram_shared = 512;
            c.prefix_cache = true;
            for (int n = 0; n < N_IMAGE_JOBS; n++) got[n].j.spec = PI__SPEC_AUTO;
            run(&c, true, PI__LOGITS_NONE, got);
            check(got, want, models[i].name, "drafter", kinds[k]);
            for (int n = 0; n < N_IMAGE_JOBS; n++) drafted += got[n].j.n_drafted;
            if (!drafted) fail_msg("%s: drafter %d drafted nothing", models[i].name, kinds[k]);
        }
        release_images(want, N_IMAGE_JOBS), release_images(got, N_IMAGE_JOBS);
    }
}

/* Several devices, and a device with the CPU: rows of images and their positions reach every part. */
static void test_devices(void **st)
{
    (void) st;
    for (int i = 0; i < N_MODELS; i++) {
        static image_job want[N_IMAGE_JOBS], got[N_IMAGE_JOBS];
        encoder e;
        pi__config c = config_of(i, &e);
        fill_jobs(want), fill_jobs(got);
        run(&c, false, PI__LOGITS_GENERATED, want);
        for (int how = 0; how < 5; how++) {
            c = config_of(i, &e);
            c.params.cpu.n_threads = 1;
            c.device = how == 0 ? "cpu,cpu" : how == 1 ? "cpu,cpu" : how == 2 ? "far,far" : "far";
            c.tensor = how == 0;
            c.layers = how == 1 || how == 2;
            if (how > 2) c.placement = (pi__placement_rules) {.limited = true, .gpu_layers = how - 2};
            run(&c, how % 2, PI__LOGITS_GENERATED, got);
            check(got, want, models[i].name, "devices", how);
        }
        release_images(want, N_IMAGE_JOBS), release_images(got, N_IMAGE_JOBS);
    }
}

/* Two images of equal size after the same text: the second request reuses only the text, and gets its own image. */
static void test_never_confused(void **st)
{
    (void) st;
    for (int i = 0; i < N_MODELS; i++) {
        image_job r[3] = {0}, alone = {0};
        encoder e;
        pi__config c = config_of(i, &e);
        const uint8_t seed[3] = {20, 21, 20};
        for (int k = 0; k < 4; k++) {
            image_job *to = k < 3 ? &r[k] : &alone;
            uint64_t rng = 77;
            add_text(to, 48, &rng), add_image(to, 6, 6, k < 3 ? seed[k] : 21), add_text(to, 48, &rng);
            to->j.spec = PI__SPEC_NONE;
        }
        c.prefix_cache = true;
        pi__core *core = job_core(&c);
        for (int k = 0; k < 3; k++) submit(core, &r[k], PI__LOGITS_GENERATED), job_await(&r[k].j, PI_OK);
        assert_true(r[0].j.n_cached == 0 && r[1].j.n_cached <= 48 && r[2].j.n_cached >= 84);
        assert_int_equal(pi__core_counters(core)->n_images_encoded, 2); /* the third one is in the prefix cache */
        pi__core_close(core);
        core = job_core(&c);
        submit(core, &alone, PI__LOGITS_GENERATED), job_await(&alone.j, PI_OK);
        pi__core_close(core);
        assert_true(r[1].j.rows == alone.j.rows && r[0].j.rows == r[2].j.rows && r[0].j.rows != r[1].j.rows);
        release_images(r, 3), release_images(&alone, 1);
    }
}

/* Requests with the same image that arrive together encode it once. */
static void test_encoded_once(void **st)
{
    (void) st;
    image_job r[N_IMAGE_JOBS] = {0};
    encoder e;
    pi__config c = config_of(QWEN3VL, &e);
    for (int k = 0; k < N_IMAGE_JOBS; k++) {
        uint64_t rng = 100 + (uint64_t) k;
        add_text(&r[k], 5 + k, &rng), add_image(&r[k], 5, 5, 30), add_text(&r[k], 7, &rng);
        r[k].j.spec = PI__SPEC_NONE;
    }
    assert_int_equal(run(&c, true, PI__LOGITS_NONE, r), 1);
    assert_int_equal(e.n_begun, 1);
    release_images(r, N_IMAGE_JOBS);
}

/* An error of the encoder ends the request with that image; the others run. A device error fails the engine. */
static void test_encoder_errors(void **st)
{
    (void) st;
    for (int k = 0; k < 2; k++) {
        image_job r[2] = {0};
        encoder e;
        pi__config c = config_of(k ? GEMMA3 : QWEN3VL, &e);
        uint64_t rng = 3;
        e.fail = PI_ENOMEM;
        add_text(&r[0], 5, &rng), add_image(&r[0], 2, 2, 13), add_text(&r[0], 5, &rng);
        add_text(&r[1], 5, &rng), add_image(&r[1], 2, 2, 14), add_text(&r[1], 5, &rng);
        r[0].j.spec = r[1].j.spec = PI__SPEC_NONE;
        pi__core *core = job_core(&c);
        submit_all(core, r, 2, PI__LOGITS_NONE);
        job_await(&r[0].j, PI_ENOMEM), job_await(&r[1].j, PI_OK);
        assert_int_equal(pi__core_state(core), PI_STATE_READY);
        e.fail = PI_EDEVICE;
        submit(core, &r[0], PI__LOGITS_NONE);
        job_await(&r[0].j, PI_EDEVICE);
        assert_int_equal(pi__core_state(core), PI_STATE_FAILED);
        pi__core_close(core);
        release_images(r, 2);
    }
}

/* A canceled request drops the image that only it waits for. */
static void test_cancel(void **st)
{
    (void) st;
    image_job r[1] = {0};
    atomic_int gate = 0;
    encoder e;
    pi__config c = config_of(QWEN3VL, &e);
    uint64_t rng = 3;
    e.gate = &gate;
    add_text(&r[0], 5, &rng), add_image(&r[0], 2, 2, 13);
    r[0].j.spec = PI__SPEC_NONE;
    pi__core *core = job_core(&c);
    submit(core, &r[0], PI__LOGITS_NONE);
    usleep(20000);
    pi__seq_cancel(core, r[0].j.seq);
    atomic_store(&gate, 1);
    job_await(&r[0].j, PI_ECANCELED);
    pi__core_close(core);
    assert_null(e.picture);
    assert_int_equal(e.n_cancelled, 1);
    assert_int_equal(atomic_load(&r[0].media[0].picture->refs), 1);
    release_images(r, 1);
}

/* With step-target-ms, each decode step of another stream is followed by one bounded part of the image. Without it, or
 * if no stream decodes, the encoder's own bound applies. */
static void test_step_target(void **st)
{
    (void) st;
    static const double target_ms[] = {1e-3, 0, 1e6}; /* below the time of a step, none, and far above */
    for (int k = 0; k < 3; k++) {
        image_job r[2] = {0};
        encoder e;
        pi__config c = config_of(k == 1 ? GEMMA3 : QWEN3VL, &e);
        uint64_t rng = 3;
        c.step_target_ms = target_ms[k];
        pi__core *core = e.core = job_core(&c);
        add_text(&r[0], 5, &rng);
        add_text(&r[1], 4, &rng), add_image(&r[1], 2, 2, 51), add_text(&r[1], 3, &rng);
        r[0].j.spec = r[1].j.spec = PI__SPEC_NONE;
        submit_all(core, r, 2, PI__LOGITS_NONE);
        job_await(&r[0].j, PI_OK), job_await(&r[1].j, PI_OK);
        assert_int_equal(e.n_calls, PIECES);
        assert_true(e.max_work[0] == 0); /* after the prompts, before the first decode step */
        for (int i = 1; i < PIECES; i++) {
            assert_int_equal(e.n_tokens[i], e.n_tokens[i - 1] + 1);
            assert_true(k == 2 ? e.max_work[i] > 1 : e.max_work[i] == (k == 0));
        }
        pi__core_close(core);
        release_images(r, 2);
    }
}

static void refused(pi__core *core, const pi__job *p, int code, const char *why)
{
    pi_error err = {0};
    pi__seq *seq;
    assert_int_equal(pi__core_submit(core, p, 1, &seq, &err), code);
    if (!strstr(err.msg, why)) fail_msg("not \"%s\" but: %s", why, err.msg);
}

static void test_refused(void **st)
{
    (void) st;
    image_job r[1] = {0};
    encoder e;
    uint64_t rng = 3;
    pi_error err = {0};
    add_text(&r[0], 5, &rng), add_image(&r[0], 6, 8, 1), add_text(&r[0], 3, &rng), add_image(&r[0], 2, 3, 2);
    r[0].j.spec = PI__SPEC_NONE;
    pi__config c = config_of(GEMMA3, &e);
    c.max_batch_tokens = 50;
    pi__core *core = job_core(&c);
    const pi__job good = ready(core, &r[0], PI__LOGITS_NONE);
    refused(core, &good, PI_ETOOBIG, "raise ubatch-size to 55");
    pi__core_close(core);
    c = config_of(QWEN3VL, &e);
    core = job_core(&c);
    for (int k = 0; k < 7; k++) {
        pi__media_span media[2] = {r[0].media[0], r[0].media[1]};
        pi__job p = good;
        p.media = media;
        if (k == 0) media[0].start = -1;
        if (k == 1) media[1].start--, media[1].start -= 3;
        if (k == 2) media[1].n++;
        if (k == 3) media[0].rows = 7;
        if (k == 4) media[0].cols = INT32_MAX;
        if (k == 5) media[1].start = INT32_MAX;
        if (k == 6) media[1].picture = NULL;
        refused(core, &p, PI_EINVAL, "image ");
    }
    pi__core_close(core);
    e.fns.max_tokens = 40;
    core = job_core(&c);
    refused(core, &good, PI_ETOOBIG, "raise mmproj-cache");
    pi__core_close(core);
    c.encoder = NULL;
    core = job_core(&c);
    refused(core, &good, PI_EUNSUPPORTED, "option mmproj");
    pi__core_close(core);
    c.encoder = &e.fns;
    e.fns.width++;
    assert_int_equal(pi__core_open(&core, &c, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "rows have 289 values, and the model needs 288"));
    c = config_of(GEMMA3, &e);
    e.fns.mrope = true;
    assert_int_equal(pi__core_open(&core, &c, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "gemma3.rope.dimension_sections"));
    release_images(r, 1);
}

/* Opening with each allocation failing in turn returns an error and frees all memory. */
static void test_out_of_memory(void **st)
{
    (void) st;
    encoder e;
    pi__config c = config_of(QWEN3VL, &e);
    if (crossed()) skip(); /* does not depend on the processor */
    c.params.cpu.n_threads = 1;
    assert_true(open_out_of_memory(&c) > 20);
}

/* ---- goldens */

typedef struct golden_case {
    image_job r;
    int32_t want[N_GEN];
    int32_t n_rows, at[8];     /* positions of logits */
    float row[8][TINY_VOCAB];
    double worst;
} golden_case;

static void compare_row(void *ud, uint32_t pos, const float *row, size_t n)
{
    golden_case *g = ud;
    for (int32_t i = 0; i < g->n_rows; i++) {
        if (g->at[i] != (int32_t) pos) continue;
        for (size_t k = 0; k < n; k++) {
            const double diff = fabs((double) row[k] - (double) g->row[i][k]);
            if (!(diff <= g->worst)) g->worst = diff;
        }
    }
}

static int32_t number(FILE *in)
{
    int v;
    assert_int_equal(fscanf(in, "%d", &v), 1);
    return v;
}

/* Reads a case: items of the prompt (t n ids, or i rows cols seed), tokens, rows of logits. */
static bool read_case(FILE *in, golden_case *g)
{
    char what[8];
    memset(g, 0, sizeof *g);
    g->r.j.spec = PI__SPEC_NONE;
    while (fscanf(in, "%7s", what) == 1) {
        if (!strcmp(what, "t"))
            for (int32_t n = number(in); n > 0; n--) g->r.j.prompt[g->r.j.n_prompt++] = number(in);
        if (!strcmp(what, "i")) {
            const int32_t rows = number(in), cols = number(in);
            add_image(&g->r, rows, cols, (uint8_t) number(in));
        }
        if (!strcmp(what, "greedy"))
            for (int i = 0; i < N_GEN; i++) g->want[i] = number(in);
        if (!strcmp(what, "row")) {
            g->at[g->n_rows] = number(in);
            for (int i = 0; i < TINY_VOCAB; i++) assert_int_equal(fscanf(in, "%f", &g->row[g->n_rows][i]), 1);
            g->n_rows++;
        }
        if (!strcmp(what, "end")) return true;
    }
    return false;
}

static void test_golden(void **st)
{
    (void) st;
    for (int i = 0; i < N_MODELS; i++) {
        static golden_case g;
        char name[512];
        encoder e;
        int n = 0;
        if (!models[i].golden) continue;
        snprintf(name, sizeof name, "%s/images_%s.txt", PI_GOLDEN_DIR, models[i].name);
        FILE *in = fopen(name, "r");
        if (!in) fail_msg("cannot open %s", name);
        const pi__config c = config_of(i, &e);
        for (; read_case(in, &g); n++) {
            pi__core *core = job_core(&c);
            pi_error err = {0};
            pi__job p = ready(core, &g.r, PI__LOGITS_ALL);
            p.on_logits = compare_row;
            p.logits_ud = &g;
            assert_int_equal(pi__core_submit(core, &p, 1, &g.r.j.seq, &err), PI_OK);
            job_await(&g.r.j, PI_OK);
            pi__core_close(core);
            if (!(g.worst <= 5e-4)) fail_msg("%s, case %d: logits are off by %g", models[i].name, n, g.worst);
            if (memcmp(g.r.j.tokens, g.want, sizeof g.want)) fail_msg("%s, case %d: other tokens", models[i].name, n);
            release_images(&g.r, 1);
        }
        assert_true(n >= 3);
        fclose(in);
    }
}

int main(void)
{
    pi_error err = {0};
    for (int i = 0; i < N_MODELS; i++) {
        /* matrices of F16, as the goldens': products with Q8_0 would round activations */
        const tiny_spec spec = {.arch = models[i].arch, .type = models[i].spec == PI__SPEC_MTP ? PI__F16 : PI__F32};
        tiny_path(path[i], models[i].name);
        if (tiny_write(path[i], &spec, &err)) return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),      cmocka_unit_test(test_all_rows),     cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_never_confused), cmocka_unit_test(test_encoded_once),
        cmocka_unit_test(test_encoder_errors), cmocka_unit_test(test_cancel),       cmocka_unit_test(test_step_target),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_golden),         cmocka_unit_test(test_devices),
        cmocka_unit_test(test_out_of_memory),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < N_MODELS; i++) unlink(path[i]);
    return rc;
}
