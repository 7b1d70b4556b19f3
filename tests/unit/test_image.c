/* Sizes, resampling, pixels and pictures of images. Expected values are those of Pillow and transformers
 * (image_expected.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "image/grid.h"
#include "image_expected.h"
#include "image/picture.h"
#include "image/pixels.h"
#include "image/resize.h"

#define SIZE(a) ((int) (sizeof(a) / sizeof *(a)))

/* As image_of of gen_images.py. */
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

static void test_resize(void **st)
{
    (void) st;
    for (int i = 0; i < SIZE(resized); i++) {
        const size_t n = (size_t) (resized[i].to_w * resized[i].to_h * 3);
        uint8_t *from = image_of(resized[i].w, resized[i].h), *to = malloc(n);
        const pi__pixels in = {resized[i].w, resized[i].h, from};
        char hex[PI__DIGEST_HEX];
        pi__hasher h;
        assert_true(pi__resize(&in, resized[i].to_w, resized[i].to_h, resized[i].filter, to));
        pi__sha256_begin(&h);
        pi__sha256_add(&h, to, n);
        const pi__digest d = pi__sha256_end(&h);
        pi__digest_hex(&d, hex);
        assert_string_equal(hex, resized[i].hash);
        free(from);
        free(to);
    }
}

/* The rules of Qwen3-VL, Gemma 4, Pixtral and Gemma 3. */
static pi__image_rules rules_of(int sizing)
{
    pi__image_rules r = {.sizing = sizing, .patch = 16, .merge = 2, .default_min = 64, .default_max = 4096,
                         .max_tokens = 4096, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.5f, 0.5f, 0.5f}};
    if (sizing == PI__SIZING_FILLED) {
        static const uint32_t budget[] = {70, 140, 280, 560, 1120};
        r.merge = 3, r.default_min = 1, r.default_max = 280, r.max_tokens = 1120;
        memcpy(r.budget, budget, sizeof budget);
    }
    if (sizing == PI__SIZING_LONGEST) r.patch = 14, r.image_size = 1540, r.default_min = 1, r.row_breaks = true;
    if (sizing == PI__SIZING_SQUARE)
        r.patch = 14, r.merge = 4, r.image_size = 896, r.default_min = r.default_max = r.max_tokens = 256;
    return r;
}

static void test_sizes(void **st)
{
    (void) st;
    for (int i = 0; i < SIZE(sized); i++) {
        const pi__image_rules r = rules_of(sized[i].sizing);
        pi__image_grid g;
        pi_error err = {0};
        const uint32_t w = (uint32_t) sized[i].w, h = (uint32_t) sized[i].h;
        const int rc = pi__image_grid_of(&r, w, h, 0, (uint32_t) sized[i].max, &g, &err);
        assert_int_equal(rc, PI_OK);
        if (g.width != sized[i].to_w || g.height != sized[i].to_h)
            fail_msg("%d x %d: %d x %d, expected %d x %d", sized[i].w, sized[i].h, g.width, g.height, sized[i].to_w,
                     sized[i].to_h);
        assert_int_equal(g.patch_cols * r.patch, g.width);
        assert_int_equal(g.rows * r.merge, g.patch_rows);
        assert_int_equal(g.n_tokens, g.cols * g.rows + (r.row_breaks ? g.rows - 1 : 0));
    }
    const pi__image_rules r = rules_of(PI__SIZING_SQUARE);
    pi__image_grid g;
    assert_int_equal(pi__image_grid_of(&r, 5, 65535, 0, 3, &g, NULL), PI_OK);
    assert_int_equal(g.width, 896);
    assert_int_equal(g.n_tokens, 256);
}

/* No size and no wish makes more tokens than the limit, or none. */
static void test_limits(void **st)
{
    (void) st;
    static const uint32_t side[] = {1, 2, 13, 14, 15, 16, 31, 33, 100, 999, 4097, 65535},
                          wish[] = {0, 1, 2, 3, 69, 71, 5000, UINT32_MAX};
    for (int sizing = PI__SIZING_SQUARE; sizing <= PI__SIZING_LONGEST; sizing++) {
        const pi__image_rules r = rules_of(sizing);
        for (int i = 0; i < SIZE(side) * SIZE(side); i++)
            for (int k = 0; k < SIZE(wish) * SIZE(wish); k++) {
                const uint32_t w = side[i % SIZE(side)], h = side[i / SIZE(side)], min = wish[k % SIZE(wish)],
                               max = wish[k / SIZE(wish)];
                pi__image_grid g;
                pi_error err = {0};
                const int rc = pi__image_grid_of(&r, w, h, min, max, &g, &err);
                const bool far = sizing == PI__SIZING_ALIGNED && (w > 200 * h || h > 200 * w);
                assert_int_equal(rc, (min && max && min > max) || far ? PI_EINVAL : PI_OK);
                if (rc) continue;
                const uint32_t most = max && max < r.max_tokens && sizing != PI__SIZING_SQUARE ? max : r.max_tokens;
                assert_true(g.n_tokens >= 1 && g.cols >= 1 && g.rows >= 1);
                /* the smallest budget is a limit, too */
                if ((uint32_t) g.n_tokens > most && !(sizing == PI__SIZING_FILLED && g.n_tokens <= 70))
                    fail_msg("%u x %u: %d tokens, at most %u", w, h, g.n_tokens, most);
            }
    }
}

static void test_refused(void **st)
{
    (void) st;
    const pi__image_rules r = rules_of(PI__SIZING_ALIGNED);
    static const struct { uint32_t w, h, min, max; const char *why; } bad[] = {
        {0, 5, 0, 0, "0 x 5 pixels"}, {5, 0, 0, 0, "5 x 0 pixels"}, {65536, 5, 0, 0, "65536 x 5"},
        {UINT32_MAX, UINT32_MAX, 0, 0, "1 to 65535"}, {1, 201, 0, 0, "200 times"}, {9, 9, 5, 4, "lower the first"}};
    for (int i = 0; i < SIZE(bad); i++) {
        pi__image_grid g;
        pi_error err = {0};
        assert_int_equal(pi__image_grid_of(&r, bad[i].w, bad[i].h, bad[i].min, bad[i].max, &g, &err), PI_EINVAL);
        if (!strstr(err.msg, bad[i].why)) fail_msg("\"%s\" does not have \"%s\"", err.msg, bad[i].why);
    }
}

/* Patches: each pixel is read once, at its place. */
static void test_patches(void **st)
{
    (void) st;
    enum { P = 4, COLS = 6, ROWS = 4, MERGE = 2 };
    pi__image_rules r = {.sizing = PI__SIZING_ALIGNED, .patch = P, .merge = MERGE, .mean = {0.5f, 0.25f, 0},
                         .std = {0.5f, 1, 2}, .default_min = 6, .default_max = 6, .max_tokens = 6};
    static const int32_t order[COLS * ROWS] = {0,  1,  6,  7,  2,  3,  8,  9,  4,  5,  10, 11,
                                               12, 13, 18, 19, 14, 15, 20, 21, 16, 17, 22, 23};
    uint8_t *rgb = image_of(COLS * P, ROWS * P);
    pi__picture *p;
    pi__pixel_values v;
    assert_int_equal(pi__picture_create(&p, &r, COLS * P, ROWS * P, rgb, 0, 0, NULL), PI_OK);
    assert_memory_equal(p->rgb, rgb, COLS * P * ROWS * P * 3);
    pi__pixel_values_init(&v, &r);
    for (int32_t i = 0; i < COLS * ROWS; i++) {
        float out[3 * P * P];
        int32_t col, row;
        pi__patch_place(&p->grid, MERGE, i, &col, &row);
        assert_int_equal(row * COLS + col, order[i]);
        pi__patch_read(&v, p, P, col, row, out);
        for (int k = 0; k < 3 * P * P; k++) {
            const int c = k / (P * P), y = row * P + k / P % P, x = col * P + k % P;
            const double want = (rgb[(y * COLS * P + x) * 3 + c] / 255.0 - (double) r.mean[c]) / (double) r.std[c];
            assert_true(fabs(want - (double) out[k]) < 1e-6);
        }
    }
    assert_ptr_equal(pi__picture_ref(p), p);
    pi__picture_release(p);
    assert_int_equal(atomic_load(&p->refs), 1);
    pi__picture_release(p);
    pi__picture_release(NULL);
    free(rgb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resize), cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_limits), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_patches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
