/* Vision models: rows of images equal those of transformers (tower_expected.h), for every piece size, thread count and
 * image before. Invalid files are refused with an error that names the fault and the remedy. Opening, loading and
 * running with each allocation failing in turn return an error. */
#include "tower_fixture.h"

#include "backend/split.h"
#include "backend/stages.h"
#include "backend/tensor.h"
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

/* Parts keep their bound, down to 16 patches, and change no bit. */
static void test_parts(void **st)
{
    (void) st;
    for (int i = 0; i < N_CASES; i++) {
        fixture f;
        size_t n;
        make(&f, "cpu", tower_cases[i].tower, 0, 1, 512);
        pi__picture *p = picture_of(&f, &tower_cases[i]);
        float *want = rows_of(&f, &tower_cases[i], &n), *got = f.be->dev->alloc(f.be, n * sizeof *got);
        double all = 0, largest = 0;
        int n_small = 0;
        pi_error err = {0};
        pi__image_part part = {.max_work = 1};
        pi__tower_begin(f.t, p);
        for (; !part.done; n_small++) {
            assert_int_equal(pi__tower_step(f.t, got, &part, &err), PI_OK);
            all += part.work;
            largest = part.work > largest ? part.work : largest;
        }
        assert_memory_equal(got, want, n * sizeof *got);
        const int n_patches = p->grid.patch_cols * p->grid.patch_rows;
        if (!strstr(tower_cases[i].tower, "qwen25") && !(largest * n_patches <= all * 64))
            fail_msg("%s: a part has %g of %g multiply-adds", tower_cases[i].tower, largest, all);
        memset(got, 0, n * sizeof *got);
        part = (pi__image_part) {.max_work = all / 5 > largest ? all / 5 : largest};
        pi__tower_begin(f.t, p);
        int n_large = 0;
        for (; !part.done; n_large++) {
            assert_int_equal(pi__tower_step(f.t, got, &part, &err), PI_OK);
            assert_true(part.work <= part.max_work);
        }
        assert_memory_equal(got, want, n * sizeof *got);
        assert_true(n_large >= 2 && n_large < n_small);
        f.be->dev->free(f.be, want, n * sizeof *want);
        f.be->dev->free(f.be, got, n * sizeof *got);
        pi__picture_release(p);
        drop(&f);
    }
}

/* The reported work has the multiply-adds of all matrices and of attention, DeepStack's projectors included. Sizes: see
 * vision-qwen3vl in random_towers.c; heads of 24 values are computed as 32. */
static void test_work(void **st)
{
    (void) st;
    enum { LAYERS = 3, E = 48, HEADS = 2, DIM = 32, F = 64, O = N_TEXT, PIXELS = 3 * 4 * 4, EACH = 4, N_DEEP = 2 };
    for (int i = 0; i < N_CASES; i++) {
        fixture f;
        size_t n_rows;
        double all = 0;
        pi_error err = {0};
        if (strcmp(tower_cases[i].tower, "vision-qwen3vl") != 0) continue;
        make(&f, "cpu", tower_cases[i].tower, 0, 1, 64);
        float *rows = rows_of(&f, &tower_cases[i], &n_rows);
        pi__picture *p = picture_of(&f, &tower_cases[i]);
        const double n = p->grid.patch_cols * p->grid.patch_rows;
        pi__tower_begin(f.t, p);
        for (pi__image_part part = {0}; !part.done; all += part.work)
            assert_int_equal(pi__tower_step(f.t, rows, &part, &err), PI_OK);
        const double layer = 4.0 * E * E + 2.0 * E * F + 2 * n * HEADS * DIM, mlp = EACH * E * (double) (EACH * E + O);
        const double want = n * (E * PIXELS + LAYERS * layer) + n / EACH * (N_DEEP + 1) * mlp;
        if (fabs(all - want) > 0.5) fail_msg("%g multiply-adds, expected %g", all, want);
        f.be->dev->free(f.be, rows, n_rows * sizeof *rows);
        pi__picture_release(p);
        drop(&f);
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
    refused("vision-gemma3", "x=1", &text, "tensor v.class_embd");
    refused("vision-gemma3", "y=1", &text, "tensor v.patch_embd.weight.1");
    refused("vision-qwen3vl", NULL, &text, "has 2 DeepStack layers, but the model reads 0");
    refused("vision-qwen35", "S=35", &text, "not a square");
    text.n_deepstack = 2;
    refused("vision-qwen35", NULL, &text, "has 0 DeepStack layers, but the model reads 2");
    text = text_of("");
    text.token = no_token;
    refused("vision-qwen35", NULL, &text, "no token <|vision_start|>");
}


/* Two CPU devices as one backend: layers split, matrices split, a device with a CPU beside it. */
static pi__backend *combined(int how)
{
    pi__backend *dev[2], *be = NULL;
    pi_error err = {0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pi__cpu_create(&dev[i], &(pi__cpu_params) {.n_threads = 1}, &(pi__log) {0}, &err), PI_OK);
    const int rc = how == 0   ? pi__stages_create(&be, dev, 2, 4, &err)
                   : how == 1 ? pi__tensor_create(&be, dev, 2, &err)
                              : pi__split_create(&be, dev[0], dev[1], &err);
    if (rc) fail_msg("%s", err.msg);
    return be;
}

static void test_combined(void **st)
{
    (void) st;
    static const char *const name[] = {"stages", "tensor", "split"};
    for (int how = 0; how < 3; how++)
        for (int i = 0; i < N_CASES; i++) {
            const tower_case *c = &tower_cases[i];
            fixture f = {0};
            pi_error err = {0};
            f.be = combined(how);
            tiny_path(f.path, c->tower);
            assert_int_equal(tiny_write(f.path, &(tiny_spec) {.arch = c->tower}, &err), PI_OK);
            if (open_file(&f, c->tower, &err) || load(&f, 64, &err))
                fail_msg("%s, %s: %s", name[how], c->tower, err.msg);
            const double worst = difference(&f, c);
            if (!(worst < 1e-4)) fail_msg("%s, %s: difference %g", name[how], c->tower, worst);
            drop(&f);
        }
}

/* Reads a file into memory; the caller frees it. */
static uint8_t *read_file(const char *path, size_t *n)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    *n = (size_t) ftell(in);
    rewind(in);
    uint8_t *p = malloc(*n);
    assert_int_equal(fread(p, 1, *n, in), *n);
    fclose(in);
    return p;
}

static void write_file(const char *path, const uint8_t *p, size_t n)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(p, 1, n, out), n);
    fclose(out);
}

/* Opens the file of f, and if it is valid and small, loads it and runs an image. Nothing may crash or read memory that
 * it does not own (the sanitizers). Returns true if the file was valid. */
static bool try_file(fixture *f, const char *tower)
{
    pi_error err = {0};
    pi__limits lim = {.max_tokens = 64, .max_seqs = 1, .max_rows = 1, .max_ctx = 64, .n_vocab = 1};
    pi__picture *p = NULL;
    f->t = NULL;
    if (open_file(f, tower, &err)) {
        assert_true(*err.msg);
        return false;
    }
    const size_t size = pi__tower_scratch(f->t, &lim);
    uint8_t *rgb = image_of(20, 30);
    bool ran = size < 64 << 20 && pi__tower_pool_bytes(f->t) < 64 << 20 && !load(f, 64, &err) &&
               !pi__picture_create(&p, pi__tower_rules(f->t), 20, 30, rgb, 0, 9, &err);
    if (ran && p->grid.n_tokens <= 300) {
        const size_t n = (size_t) p->grid.n_tokens * (size_t) pi__tower_width(f->t) * sizeof(float);
        float *rows = f->be->dev->alloc(f->be, n);
        run(f, p, rows);
        f->be->dev->free(f->be, rows, n);
    }
    pi__picture_release(p);
    pi__tower_free(f->t);
    free(rgb);
    return ran;
}

/* Each number of the metadata becomes other numbers, and bytes of the header change at random. */
static void test_changed(void **st)
{
    (void) st;
    static const char *const key[] = {
        "embedding_length", "feed_forward_length", "block_count", "image_size", "patch_size", "head_count",
        "layer_norm_epsilon", "scale_factor", "spatial_merge_size", "n_wa_pattern", "window_size"};
    static const uint32_t value[] = {0, 1, 2, 3, 5, 7, 16, 63, 64, 4096, 65535, 0x7fffffff, 0x80000000, UINT32_MAX};
    static const char *const towers[] = {"vision-gemma3", "vision-qwen3vl", "vision-gemma4", "vision-gemma4u",
                                         "vision-pixtral", "vision-qwen25vl"};
    int n_valid = 0, n_invalid = 0;
    for (size_t k = 0; k < sizeof towers / sizeof *towers; k++) {
        fixture f = {0};
        pi_error err = {0};
        size_t n;
        uint64_t rng = k + 1;
        tiny_path(f.path, "changed");
        assert_int_equal(tiny_write(f.path, &(tiny_spec) {.arch = towers[k]}, &err), PI_OK);
        assert_int_equal(create(&f, "cpu", 1, &err), PI_OK);
        uint8_t *file = read_file(f.path, &n);
        for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
            uint8_t *at = memmem(file, n, key[i], strlen(key[i]));
            if (!at) continue;
            at += strlen(key[i]) + 4; /* the type comes first */
            uint32_t was;
            memcpy(&was, at, 4);
            for (size_t v = 0; v < sizeof value / sizeof *value; v++) {
                memcpy(at, &value[v], 4);
                write_file(f.path, file, n);
                if (try_file(&f, towers[k])) n_valid++;
                else n_invalid++;
            }
            memcpy(at, &was, 4);
        }
        for (int i = 0; i < 150; i++) {
            uint8_t *at = file + tiny_random(&rng) % 4000, was = *at;
            *at = (uint8_t) tiny_random(&rng);
            write_file(f.path, file, n);
            try_file(&f, towers[k]);
            *at = was;
        }
        free(file);
        f.t = NULL;
        drop(&f);
    }
    print_message("%d valid, %d invalid\n", n_valid, n_invalid);
    assert_true(n_valid > 10 && n_invalid > 300);
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
                                       cmocka_unit_test(test_same_bits), cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_work),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_combined),
                                       cmocka_unit_test(test_changed),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
