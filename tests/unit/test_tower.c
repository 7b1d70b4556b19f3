/* Vision models: rows of images equal those of transformers (tower_expected.h), for every piece size, thread count and
 * image before. Invalid files are refused with an error that names the fault and the remedy. Opening, loading and
 * running with each allocation failing in turn return an error. */
#include "tower_fixture.h"

#include "base/alloc.h"
#include "counting_alloc.h"

static int32_t no_token(void *ud, const char *text)
{
    (void) ud, (void) text;
    return -1;
}

static void test_expected(void **st)
{
    (void) st;
    for (int i = 0; i < N_CASES; i++) {
        const tower_case *c = &tower_cases[i];
        fixture f;
        make(&f, "cpu", c->tower, 0, 2, 64);
        const double worst = difference(&f, c);
        print_message("%s %dx%d: largest difference %.2g\n", c->tower, c->width, c->height, worst);
        assert_true(worst < 1e-4);
        drop(&f);
    }
}

/* Matrices may have any type: 16-bit floats and quantised ones change the rows a little. */
static void test_types(void **st)
{
    (void) st;
    static const struct { int32_t type; double least, most; } types[] = {
        {PI__F16, 1e-6, 0.01}, {PI__BF16, 1e-5, 0.05}, {PI__Q8_0, 1e-4, 0.05}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < N_CASES; k++) {
            fixture f;
            if (strcmp(tower_cases[k].tower, "vision-pixtral12") != 0) continue; /* rows of multiples of 32 values */
            make(&f, "cpu", tower_cases[k].tower, types[i].type, 1, 64);
            const double worst = difference(&f, &tower_cases[k]);
            if (!(worst > types[i].least && worst < types[i].most)) fail_msg("type %d: %g", types[i].type, worst);
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
        make(&a, "cpu", tower_cases[i].tower, 0, 1, 512);
        make(&b, "cpu", tower_cases[i].tower, 0, 3, 64);
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
    assert_int_equal(create(&f, "cpu", 1, &err), PI_OK);
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
        int rc = create(&f, "cpu", 1, &err);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expected), cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
