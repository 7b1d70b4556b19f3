/* Vision models: rows of images equal those of transformers (tower_expected.h), for every piece size, thread count and
 * image before. Invalid files are refused with an error that names the fault and the remedy. Opening, loading and
 * running with each allocation failing in turn return an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/alloc.h"
#include "counting_alloc.h"
#include "model/tower.h"
#include "random_model.h"
#include "tower_expected.h"

enum { N_CASES = sizeof tower_cases / sizeof *tower_cases, N_TEXT = 64 };

/* As image_of of gen_towers.py. */
static uint8_t *image_of(int w, int h)
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

static int32_t any_token(void *ud, const char *text)
{
    (void) ud;
    return (int32_t) strlen(text);
}

static int32_t no_token(void *ud, const char *text)
{
    (void) ud, (void) text;
    return -1;
}

static pi__tower_text text_of(const char *tower)
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

static int open_file(fixture *f, const char *tower, pi_error *err)
{
    const pi__tower_text text = text_of(tower);
    return pi__tower_open(&f->t, f->path, f->be, &text, &(pi__tower_use) {.load_mode = PI__LOAD_MMAP}, err);
}

static int load(fixture *f, int32_t max_tokens, pi_error *err)
{
    pi__limits lim = {.max_tokens = max_tokens, .max_seqs = 1, .max_rows = 1, .max_ctx = 64, .n_vocab = 1};
    pi__tower_scratch(f->t, &lim);
    int rc = f->be->dev->reserve(f->be, &lim, err);
    if (!rc) rc = pi__model_load(pi__tower_model(f->t), &lim, NULL, err);
    return rc;
}

static void make_backend(fixture *f, int32_t n_threads)
{
    pi_error err = {0};
    const pi__cpu_params p = {.n_threads = n_threads, .poll = 1};
    assert_int_equal(pi__cpu_create(&f->be, &p, &(pi__log) {0}, &err), PI_OK);
}

static void make(fixture *f, const char *tower, int32_t n_threads, int32_t max_tokens)
{
    pi_error err = {0};
    *f = (fixture) {0};
    make_backend(f, n_threads);
    tiny_path(f->path, tower);
    assert_int_equal(tiny_write(f->path, &(tiny_spec) {.arch = tower}, &err), PI_OK);
    if (open_file(f, tower, &err) || load(f, max_tokens, &err)) fail_msg("%s: %s", tower, err.msg);
}

static void drop(fixture *f)
{
    pi__tower_free(f->t);
    f->be->dev->destroy(f->be);
    if (*f->path) unlink(f->path);
}

/* Returns the picture of a case. The generator's limits are 4 to 24 tokens. */
static pi__picture *picture_of(const fixture *f, const tower_case *c)
{
    pi_error err = {0};
    pi__picture *p;
    uint8_t *rgb = image_of(c->width, c->height);
    if (pi__picture_create(&p, pi__tower_rules(f->t), (uint32_t) c->width, (uint32_t) c->height, rgb, 4, 24, &err))
        fail_msg("%s", err.msg);
    free(rgb);
    return p;
}

static void run(fixture *f, pi__picture *p, float *rows)
{
    bool done = false;
    pi_error err = {0};
    pi__tower_begin(f->t, p);
    while (!done) assert_int_equal(pi__tower_step(f->t, rows, &done, &err), PI_OK);
}

static float *rows_of(fixture *f, const tower_case *c, size_t *n)
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

static void test_expected(void **st)
{
    (void) st;
    for (int i = 0; i < N_CASES; i++) {
        const tower_case *c = &tower_cases[i];
        fixture f;
        size_t n;
        double worst = 0;
        make(&f, c->tower, 2, 64);
        float *rows = rows_of(&f, c, &n);
        for (size_t k = 0; k < n; k++) {
            const size_t row = k / (size_t) c->n, width = (size_t) c->n, step = (size_t) c->step;
            if (row % step) continue;
            const double d = fabs((double) rows[k] - (double) c->rows[row / step * width + k % width]);
            if (!(d <= worst)) worst = d;
        }
        print_message("%s %dx%d: largest difference %.2g\n", c->tower, c->width, c->height, worst);
        assert_true(worst < 1e-4);
        f.be->dev->free(f.be, rows, n * sizeof *rows);
        drop(&f);
    }
}

/* Pieces, threads and the image before do not change a bit. */
static void test_same_bits(void **st)
{
    (void) st;
    for (int i = 0; i + 1 < N_CASES; i++) {
        fixture a, b;
        size_t n, m;
        if (strcmp(tower_cases[i].tower, tower_cases[i + 1].tower) != 0) continue;
        make(&a, tower_cases[i].tower, 1, 512);
        make(&b, tower_cases[i].tower, 3, 64);
        for (int k = 1; k >= 0; k--) {
            float *x = rows_of(&a, &tower_cases[i + k], &n), *y = rows_of(&b, &tower_cases[i + k], &m);
            assert_int_equal(n, m);
            assert_memory_equal(x, y, n * sizeof *x);
            a.be->dev->free(a.be, x, n * sizeof *x);
            b.be->dev->free(b.be, y, m * sizeof *y);
        }
        assert_memory_equal(pi__tower_digest(a.t), pi__tower_digest(b.t), sizeof(pi__digest));
        drop(&a);
        *b.path = 0; /* both have the same file */
        drop(&b);
    }
}

static void refused(const char *tower, const char *sizes, const pi__tower_text *text, const char *what)
{
    fixture f = {0};
    pi_error err = {0};
    make_backend(&f, 1);
    tiny_path(f.path, "refused");
    assert_int_equal(tiny_write(f.path, &(tiny_spec) {.arch = tower, .sizes = sizes}, &err), PI_OK);
    const int rc = pi__tower_open(&f.t, f.path, f.be, text, &(pi__tower_use) {.load_mode = PI__LOAD_READ}, &err);
    assert_int_not_equal(rc, PI_OK);
    assert_null(f.t);
    if (!strstr(err.msg, what)) fail_msg("\"%s\" does not have \"%s\"", err.msg, what);
    drop(&f);
}

static void test_refused(void **st)
{
    (void) st;
    pi__tower_text text = text_of("");
    refused("gemma3", NULL, &text, "expected \"clip\"");
    refused("vision-gemma3", "O=32", &text, "makes rows of 32 values, but the model has 64");
    refused("vision-gemma3", "H=5", &text, "not a multiple of head_count 5");
    refused("vision-gemma3", "I=26", &text, "image_size 26");
    refused("vision-gemma3", "I=0", &text, "image_size is 0");
    refused("vision-gemma3", "S=35", &text, "v.position_embd.weight");
    refused("vision-qwen3vl", NULL, &text, "has 2 DeepStack layers, but the model reads 0");
    refused("vision-qwen35", "S=35", &text, "not a square");
    text.n_deepstack = 2;
    refused("vision-qwen35", NULL, &text, "has 0 DeepStack layers, but the model reads 2");
    text = text_of("");
    text.token = no_token;
    refused("vision-qwen35", NULL, &text, "no token <|vision_start|>");
}


/* Opens, loads and runs with each allocation failing in turn. */
static void test_out_of_memory(void **st)
{
    (void) st;
    static counting_alloc a;
    const tower_case *c = &tower_cases[2];
    fixture f = {0};
    pi_error err = {0};
    tiny_path(f.path, "memory");
    assert_int_equal(tiny_write(f.path, &(tiny_spec) {.arch = c->tower}, &err), PI_OK);
    uint8_t *rgb = image_of(c->width, c->height);
    for (long i = 0;; i++) {
        pi__picture *p = NULL;
        f.t = NULL, f.be = NULL;
        counting_use(&a, i);
        int rc = pi__cpu_create(&f.be, &(pi__cpu_params) {.n_threads = 1, .poll = 1}, &(pi__log) {0}, &err);
        if (!rc) rc = open_file(&f, c->tower, &err);
        if (!rc) rc = load(&f, 64, &err);
        if (!rc)
            rc = pi__picture_create(&p, pi__tower_rules(f.t), (uint32_t) c->width, (uint32_t) c->height, rgb, 4, 24,
                                    &err);
        if (!rc) pi__tower_begin(f.t, p);
        pi__picture_release(p);
        pi__tower_free(f.t);
        if (f.be) f.be->dev->destroy(f.be);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        if (rc) assert_int_equal(rc, PI_ENOMEM);
        if (a.count > i) continue;
        assert_int_equal(rc, PI_OK);
        assert_true(i > 50);
        break;
    }
    free(rgb);
    unlink(f.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expected), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
