/* Random vision models on a device, and the expected rows of images (tower_expected.h). */
#ifndef TOWER_FIXTURE_H
#define TOWER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "backend/devices.h"
#include "model/tower.h"
#include "random_model.h"
#include "tower_expected.h"

enum { N_CASES = sizeof tower_cases / sizeof *tower_cases, N_TEXT = 64 };

/* As image_of of gen_towers.py. */
static inline uint8_t *image_of(int w, int h)
{
    uint8_t *p = malloc((size_t) (w * h * 3));
    uint32_t s = (uint32_t) (w * 65536 + h);
    for (int i = 0; i < w * h * 3; i++) {
        s = (s * 1103515245u + 12345u) & 0x7fffffff;
        const int c = i % 3, x = i / 3 % w, y = i / 3 / w;
        p[i] = (uint8_t) (x * 255 / (w > 1 ? w - 1 : 1) * (c + 1) / 3 + y * (3 - c) * 40 / h + (int) (s >> 16) % 64);
    }
    return p;
}

static inline int32_t any_token(void *ud, const char *text)
{
    (void) ud;
    return (int32_t) strlen(text);
}

static inline pi__tower_text text_of(const char *tower)
{
    return (pi__tower_text) {.arch = "test", .n_embd = N_TEXT, .n_deepstack = strcmp(tower, "vision-qwen3vl") ? 0 : 2,
                             .token = any_token};
}

/* A tower on a CPU backend. */
typedef struct fixture {
    pi__backend *be;
    pi__tower *t;
    char path[256];
} fixture;

static inline int open_file(fixture *f, const char *tower, pi_error *err)
{
    const pi__tower_text text = text_of(tower);
    return pi__tower_open(&f->t, f->path, f->be, &text, &(pi__tower_use) {.load_mode = PI__LOAD_MMAP}, err);
}

static inline int load(fixture *f, int32_t max_tokens, pi_error *err)
{
    pi__limits lim = {.max_tokens = max_tokens, .max_seqs = 1, .max_rows = 1, .max_ctx = 64, .n_vocab = 1};
    pi__tower_scratch(f->t, &lim);
    int rc = f->be->dev->reserve(f->be, &lim, err);
    if (!rc) rc = pi__model_load(pi__tower_model(f->t), &lim, NULL, err);
    return rc;
}

static inline int create(fixture *f, const char *device, int32_t n_threads, pi_error *err)
{
    const pi__device_params p = {.cpu = {.n_threads = n_threads, .poll = 1}};
    return pi__device_create(&f->be, device, PI__SPLIT_NONE, &p, &(pi__log) {0}, err);
}

/* Writes, opens and loads a random model. type: of its matrices, 0 = F32. */
static inline void make(fixture *f, const char *device, const char *tower, int32_t type, int32_t n_threads,
                        int32_t max_tokens)
{
    pi_error err = {0};
    *f = (fixture) {0};
    tiny_path(f->path, tower);
    if (tiny_write(f->path, &(tiny_spec) {.arch = tower, .type = type}, &err) || create(f, device, n_threads, &err) ||
        open_file(f, tower, &err) || load(f, max_tokens, &err))
        fail_msg("%s: %s", tower, err.msg);
}

static inline void drop(fixture *f)
{
    pi__tower_free(f->t);
    f->be->dev->destroy(f->be);
    if (*f->path) unlink(f->path);
}

/* Returns the picture of a case. The generator's limits are 4 to 24 tokens. */
static inline pi__picture *picture_of(const fixture *f, const tower_case *c)
{
    pi_error err = {0};
    pi__picture *p;
    uint8_t *rgb = image_of(c->width, c->height);
    if (pi__picture_create(&p, pi__tower_rules(f->t), (uint32_t) c->width, (uint32_t) c->height, rgb, 4, 24, &err))
        fail_msg("%s", err.msg);
    free(rgb);
    return p;
}

/* Runs a picture in parts of at most this work; 0 = the tower's own bound. Returns the number of parts. */
static inline int run_parts(fixture *f, pi__picture *p, float *rows, double max_work)
{
    pi__image_part part = {.max_work = max_work};
    pi_error err = {0};
    int n = 0;
    pi__tower_begin(f->t, p);
    for (; !part.done; n++) assert_int_equal(pi__tower_step(f->t, rows, &part, &err), PI_OK);
    return n;
}

static inline void run(fixture *f, pi__picture *p, float *rows) { run_parts(f, p, rows, 0); }

static inline float *rows_of(fixture *f, const tower_case *c, size_t *n)
{
    pi__picture *p = picture_of(f, c);
    assert_int_equal(p->grid.n_tokens, c->n_tokens);
    assert_int_equal(pi__tower_width(f->t), c->n);
    *n = (size_t) (c->n_tokens * c->n);
    float *rows = f->be->dev->alloc(f->be, *n * sizeof *rows);
    run(f, p, rows);
    assert_int_equal(atomic_load(&p->refs), 1);
    pi__picture_release(p);
    return rows;
}

/* Returns the largest difference of a case's rows from the expected ones. */
static inline double difference(fixture *f, const tower_case *c)
{
    size_t n;
    pi_error err = {0};
    double worst = 0;
    float *rows = rows_of(f, c, &n), *host = malloc(n * sizeof *host);
    f->be->dev->download(f->be, host, rows, n * sizeof *host);
    assert_int_equal(f->be->dev->finish(f->be, &err), PI_OK);
    for (size_t k = 0; k < n; k++) {
        const size_t row = k / (size_t) c->n, width = (size_t) c->n, step = (size_t) c->step;
        if (row % step) continue;
        const double d = fabs((double) host[k] - (double) c->rows[row / step * width + k % width]);
        if (!(d <= worst)) worst = d;
    }
    free(host);
    f->be->dev->free(f->be, rows, n * sizeof *rows);
    return worst;
}

#endif
