/* Requests with images (see model_jobs.h), and an encoder for them: its rows are random values, seeded by the picture's
 * first byte. */
#ifndef IMAGE_JOBS_H
#define IMAGE_JOBS_H

#include "model_jobs.h"

#include "engine/stats.h"
#include "image/picture.h"

enum { MAX_IMAGES = 3, MAX_IMAGE_JOBS = 6, PIECES = 3 /* calls of step per image */, MAX_ROWS = 48, MAX_CALLS = 64 };

/* ---- the encoder */

typedef struct encoder {
    pi__encoder fns;
    int n_embd;
    pi__picture *picture;      /* being encoded, or NULL */
    int pieces;                /* calls of step for it so far */
    int n_begun, n_cancelled;
    int fail;                  /* error code of step for the image with seed 13; 0 = none */
    atomic_int *gate;          /* step waits until this is nonzero; NULL = it does not wait */
    pi__core *core;            /* counted: its generated tokens at each call of step; NULL = not counted */
    int n_calls;
    double max_work[MAX_CALLS];
    uint64_t n_tokens[MAX_CALLS];
} encoder;

static void encoder_begin(void *ud, pi__picture *p)
{
    encoder *e = ud;
    assert_null(e->picture);
    e->picture = pi__picture_ref(p);
    e->pieces = 0;
    e->n_begun++;
}

static void encoder_drop(encoder *e)
{
    pi__picture_release(e->picture);
    e->picture = NULL;
}

static void encoder_cancel(void *ud)
{
    encoder *e = ud;
    if (e->picture) e->n_cancelled++;
    encoder_drop(e);
}

static int encoder_step(void *ud, pi__backend *be, float *rows, pi__image_part *part, pi_error *err)
{
    encoder *e = ud;
    assert_non_null(e->picture);
    while (e->gate && !atomic_load(e->gate)) usleep(100);
    part->work = 1000;
    if (e->core && e->n_calls < MAX_CALLS) {
        e->max_work[e->n_calls] = part->max_work;
        e->n_tokens[e->n_calls++] = pi__core_counters(e->core)->generated_tokens;
    }
    if (e->fail && e->picture->rgb[0] == 13) {
        const int code = e->fail;
        err->code = code;
        snprintf(err->msg, sizeof err->msg, "the encoder failed");
        encoder_drop(e);
        return code;
    }
    part->done = ++e->pieces == PIECES;
    if (!part->done) return PI_OK;
    const size_t n = (size_t) e->picture->grid.n_tokens * (size_t) e->fns.width;
    float *host = malloc(n * sizeof *host);
    uint64_t rng = 1000 + e->picture->rgb[0];
    assert_non_null(host);
    for (size_t i = 0; i < n; i++) {
        const float amp = (int) (i % (size_t) e->fns.width) < e->n_embd ? 1.0f : 0.5f;
        host[i] = ((float) (tiny_random(&rng) >> 7) / (1 << 23) - 1.0f) * amp;
    }
    be->dev->upload(be, rows, host, n * sizeof *host);
    free(host);
    encoder_drop(e);
    return be->dev->finish(be, err);
}

/* Sets up e as the encoder of a model with this width and these DeepStack layers. attention: enum
 * pi__span_attention. */
static void set_encoder(encoder *e, int n_embd, int n_deepstack, int attention, bool mrope)
{
    *e = (encoder) {.n_embd = n_embd};
    e->fns = (pi__encoder) {.ud = e, .width = n_embd * (1 + n_deepstack), .max_tokens = MAX_ROWS,
                            .attention = attention, .mrope = mrope, .begin = encoder_begin, .step = encoder_step,
                            .cancel = encoder_cancel};
}

/* ---- requests */

typedef struct image_job {
    job j;
    pi__media_span media[MAX_IMAGES];
    int32_t n_media;
} image_job;

/* Adds an image to a prompt: its tokens, with a soft token that is a valid id. The seed is its content. */
static void add_image(image_job *r, int32_t rows, int32_t cols, uint8_t seed)
{
    pi_error err = {0};
    const pi__image_rules rules = {.sizing = PI__SIZING_ALIGNED, .filter = PI__FILTER_BICUBIC, .patch = 1, .merge = 1,
                                   .default_min = 1, .default_max = 1000, .max_tokens = 1000};
    uint8_t pixels[3 * MAX_ROWS];
    memset(pixels, seed, sizeof pixels);
    assert_true(rows * cols <= MAX_ROWS);
    pi__media_span *s = &r->media[r->n_media++];
    *s = (pi__media_span) {.start = r->j.n_prompt, .n = rows * cols, .rows = rows, .cols = cols,
                           .id = pi__hash(PI__HASH_FINGERPRINT, &seed, 1)};
    const uint32_t w = (uint32_t) cols, h = (uint32_t) rows;
    assert_int_equal(pi__picture_create(&s->picture, &rules, w, h, pixels, 0, 0, &err), PI_OK);
    assert_true(s->picture->grid.cols == cols && s->picture->grid.rows == rows);
    for (int32_t i = 0; i < s->n; i++) r->j.prompt[r->j.n_prompt++] = 7;
}

static void add_text(image_job *r, int32_t n, uint64_t *rng)
{
    for (int32_t i = 0; i < n; i++) r->j.prompt[r->j.n_prompt++] = (int32_t) (tiny_random(rng) % TINY_VOCAB);
}

static void release_images(image_job *r, int n)
{
    for (int i = 0; i < n; i++)
        for (int32_t k = 0; k < r[i].n_media; k++) pi__picture_release(r[i].media[k].picture);
}

static pi__job ready(pi__core *e, image_job *r, int32_t logits)
{
    pi__job p = job_ready(e, &r->j, logits, NULL);
    p.media = r->media;
    p.n_media = r->n_media;
    return p;
}

static inline void submit(pi__core *e, image_job *r, int32_t logits)
{
    pi_error err = {0};
    const pi__job p = ready(e, r, logits);
    if (pi__core_submit(e, &p, 1, &r->j.seq, &err)) fail_msg("submit: %s", err.msg);
}

static void submit_all(pi__core *e, image_job *r, int n, int32_t logits)
{
    pi_error err = {0};
    pi__job p[MAX_IMAGE_JOBS] = {0};
    pi__seq *seq[MAX_IMAGE_JOBS] = {0};
    for (int i = 0; i < n; i++) p[i] = ready(e, &r[i], logits);
    if (pi__core_submit(e, p, (size_t) n, seq, &err)) fail_msg("submit: %s", err.msg);
    for (int i = 0; i < n; i++) r[i].j.seq = seq[i];
}

#endif
