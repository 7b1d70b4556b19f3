/* Image files: pixels equal Pillow's, limits hold before anything is decoded, damaged and foreign files are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "image_files_expected.h"
#include "media/image.h"

enum { N_EXPECTED = sizeof image_expected / sizeof *image_expected, LOSSY = 3 /* libraries round differently */ };

typedef struct file {
    uint8_t *p;
    size_t n;
} file;

static file load(const char *name)
{
    char path[512];
    file f = {NULL, 0};
    pi_error err = {0};
    const image_limits limits = image_default_limits();
    snprintf(path, sizeof path, "%s/%s", PI_IMAGES, name);
    if (image_read_file(path, &limits, &f.p, &f.n, &err)) fail_msg("%s", err.msg);
    return f;
}

static uint32_t adler(const uint8_t *p, size_t n)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) a = (a + p[i]) % 65521, b = (b + a) % 65521;
    return b << 16 | a;
}

static int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

/* True if this build lacks the file's format; the refusal names it. */
static bool is_missing(int rc, const pi_error *err)
{
    return rc == PI_EUNSUPPORTED && strstr(err->msg, "lacks its library");
}

static void test_pixels(void **state)
{
    (void) state;
    const image_limits limits = image_default_limits();
    size_t n_read = 0;
    for (size_t i = 0; i < N_EXPECTED; i++) {
        const struct image_expected *e = &image_expected[i];
        file f = load(e->file);
        image_head head;
        uint8_t *rgb = NULL;
        pi_error err = {0};
        int rc = image_head_read(f.p, f.n, &limits, &head, &err);
        if (is_missing(rc, &err)) {
            free(f.p);
            continue;
        }
        if (!rc) rc = image_decode(f.p, f.n, &head, NULL, &rgb, &err);
        if (rc) fail_msg("%s: %s", e->file, err.msg);
        assert_int_equal(head.width, e->width);
        assert_int_equal(head.height, e->height);
        const size_t n = (size_t) e->width * e->height * 3;
        if (!e->pixels && adler(rgb, n) != e->sum) fail_msg("%s: other pixels", e->file);
        for (size_t k = 0; e->pixels && k < n; k++) {
            const int want = digit(e->pixels[2 * k]) * 16 + digit(e->pixels[2 * k + 1]);
            if (abs(rgb[k] - want) > LOSSY) fail_msg("%s: byte %zu is %d, not %d", e->file, k, rgb[k], want);
        }
        n_read++;
        free(rgb);
        free(f.p);
    }
    assert_true(n_read >= 12); /* GIF and BMP are in every build */
}

static void refuse(const void *p, size_t n, const image_limits *limits, int code, const char *word)
{
    image_head head;
    pi_error err = {0};
    const int rc = image_head_read(p, n, limits, &head, &err);
    if (rc != code || !strstr(err.msg, word)) fail_msg("%s: %d, %s", word, rc, err.msg);
}

static void test_refused(void **state)
{
    (void) state;
    const image_limits limits = image_default_limits();
    static const char svg[] = "\xef\xbb\xbf <?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"/>";
    refuse("", 0, &limits, PI_EINVAL, "empty");
    refuse("\0\0\0\x18" "ftypheic\0\0\0\0mif1", 20, &limits, PI_EUNSUPPORTED, "HEIC");
    refuse("\0\0\0\x18" "ftypavif\0\0\0\0", 16, &limits, PI_EUNSUPPORTED, "AVIF");
    refuse(svg, sizeof svg - 1, &limits, PI_EUNSUPPORTED, "SVG");
    refuse("II*\0\x08\0\0\0", 8, &limits, PI_EUNSUPPORTED, "TIFF");
    refuse("%PDF-1.7", 8, &limits, PI_EUNSUPPORTED, "PDF");
    refuse("hello", 5, &limits, PI_EINVAL, "no known format");
    refuse("GIF89a", 6, &limits, PI_EINVAL, "damaged header");
}

/* Corrects the CRC of the first chunk (IHDR) of a PNG. */
static void png_header_checksum(uint8_t *p)
{
    uint32_t crc = ~0u;
    for (size_t i = 12; i < 29; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    for (int k = 0; k < 4; k++) p[29 + k] = (uint8_t) (~crc >> (24 - 8 * k));
}

/* Returns the position of height and width in the file's frame header (SOF0), which follows length and precision. */
static size_t sides_of_jpeg(const char *name)
{
    file f = load(name);
    size_t at = 2;
    while (at + 4 < f.n && f.p[at + 1] != 0xc0) at += 2 + (size_t) (f.p[at + 2] << 8 | f.p[at + 3]);
    assert_true(at + 9 < f.n);
    free(f.p);
    return at + 5;
}

/* The file with two sides of 65,535 pixels, in numbers of `bytes` bytes at `at`, is refused before it is decoded. */
static void refuse_sides(const char *name, size_t at, size_t bytes, bool big_endian)
{
    const image_limits limits = image_default_limits();
    file f = load(name);
    image_head head;
    pi_error err = {0};
    for (size_t side = 0; side < 2; side++) {
        uint8_t *p = f.p + at + side * bytes;
        memset(p, 0, bytes);
        memset(p + (big_endian ? bytes - 2 : 0), 0xff, 2);
    }
    if (!memcmp(name, "rgb.png", 8)) png_header_checksum(f.p);
    const int rc = image_head_read(f.p, f.n, &limits, &head, &err);
    if (!is_missing(rc, &err) && (rc != PI_ETOOBIG || !strstr(err.msg, "65535 x 65535")))
        fail_msg("%s: %d, %s", name, rc, err.msg);
    free(f.p);
}

/* Sizes are known from the header, so the limits hold for files without any pixels. */
static void test_limits(void **state)
{
    (void) state;
    const image_limits limits = image_default_limits(), small = {.max_bytes = 40, .max_pixels = 76};
    static const uint8_t bomb[] = "GIF89a\xff\xff\xff\xff\0\0\0" "\x2c\0\0\0\0\xff\xff\xff\xff\0\x08";
    static const uint8_t none[] = "GIF89a\0\0\0\0\0\0\0" "\x2c\0\0\0\0\0\0\0\0\0\x08";
    refuse(bomb, sizeof bomb, &limits, PI_ETOOBIG, "65535 x 65535");
    refuse(none, sizeof none, &limits, PI_EINVAL, "no pixels");
    refuse_sides("rgb.png", 16, 4, true);
    refuse_sides("rgb.bmp", 18, 4, false);
    refuse_sides("rgb.jpg", sides_of_jpeg("rgb.jpg"), 2, true);
    file f = load("top_down.bmp");
    refuse(f.p, f.n, &small, PI_ETOOBIG, "bytes");
    const image_limits pixels = {.max_bytes = 1 << 20, .max_pixels = 76}; /* it has 77 */
    refuse(f.p, f.n, &pixels, PI_ETOOBIG, "11 x 7");
    free(f.p);
}

/* Every cut of every file is refused or gives an image of the size in its header; none crashes or reads past the end
 * (sanitizers). */
static void test_cut(void **state)
{
    (void) state;
    const image_limits limits = image_default_limits();
    for (size_t i = 0; i < N_EXPECTED; i++) {
        file f = load(image_expected[i].file);
        size_t refused = 0;
        for (size_t n = 0; n < f.n; n += f.n > 1000 ? 37 : 1) {
            uint8_t *cut = malloc(n ? n : 1), *rgb = NULL;
            image_head head;
            pi_error err = {0};
            if (n) memcpy(cut, f.p, n);
            int rc = image_head_read(cut, n, &limits, &head, &err);
            if (!rc) rc = image_decode(cut, n, &head, NULL, &rgb, &err);
            if (rc && !*err.msg) fail_msg("%s, %zu bytes: no reason", image_expected[i].file, n);
            refused += rc != 0;
            free(rgb);
            free(cut);
        }
        assert_true(refused > f.n / 80);
        free(f.p);
    }
}

/* Reads a mutant. Returns true if it gives an image; a refusal needs a reason. */
static bool reads(const uint8_t *p, size_t n, const image_limits *limits)
{
    uint8_t *rgb = NULL;
    image_head head;
    pi_error err = {0};
    int rc = image_head_read(p, n, limits, &head, &err);
    if (!rc) assert_true((uint64_t) head.width * head.height <= limits->max_pixels);
    if (!rc) rc = image_decode(p, n, &head, NULL, &rgb, &err);
    assert_true(rc ? *err.msg && !rgb : rgb != NULL);
    free(rgb);
    return !rc;
}

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
    return *state;
}

/* 10,000 mutants of all files: changed bytes, large numbers in headers, removed and repeated parts. */
static void test_mutated(void **state)
{
    (void) state;
    enum { N_MUTANTS = 10000 };
    static const uint8_t large[] = {0xff, 0xff, 0x7f, 0xff};
    const image_limits limits = {.max_bytes = 1 << 16, .max_pixels = 1 << 16};
    uint32_t seed = 1;
    size_t n_images = 0, n_refused = 0;
    for (size_t i = 0; i < N_MUTANTS; i++) {
        file f = load(image_expected[i % N_EXPECTED].file);
        uint8_t *p = malloc(f.n); /* of the exact size: sanitizers see a read past its end */
        const size_t n_changed = 1 + next_random(&seed) % 4;
        const size_t at = next_random(&seed) % f.n, from = next_random(&seed) % f.n;
        memcpy(p, f.p, f.n);
        for (size_t k = 0; k < n_changed; k++) {
            const size_t where = next_random(&seed) % (k % 2 ? f.n : f.n < 64 ? f.n : 64);
            p[where] = (uint8_t) next_random(&seed);
        }
        if (i % 5 == 1 && f.n > 64) memcpy(p + 8 + next_random(&seed) % 48, large, sizeof large);
        if (i % 5 == 2) memmove(p + (at < from ? at : from), f.p + from, f.n - from);
        if (reads(p, f.n, &limits)) n_images++;
        else n_refused++;
        free(p);
        free(f.p);
    }
    assert_true(n_images > 100 && n_refused > 1000);
}

/* A work budget that has ended stops the decoding. */
static void test_work(void **state)
{
    (void) state;
    const image_limits limits = image_default_limits();
    for (size_t i = 0; i < N_EXPECTED; i++) {
        file f = load(image_expected[i].file);
        image_head head;
        uint8_t *rgb = NULL;
        pi_error err = {0};
        pi_work *work = pi_work_new(0, 0, -1);
        pi_work_cancel(work);
        int rc = image_head_read(f.p, f.n, &limits, &head, &err);
        if (!is_missing(rc, &err)) assert_int_equal(image_decode(f.p, f.n, &head, work, &rgb, &err), PI_ECANCELED);
        assert_null(rgb);
        pi_work_free(work);
        free(f.p);
    }
}

static void test_files(void **state)
{
    (void) state;
    const image_limits limits = {.max_bytes = 20, .max_pixels = 1000};
    uint8_t *p = NULL;
    size_t n;
    pi_error err = {0};
    assert_int_equal(image_read_file(PI_IMAGES "/none.png", &limits, &p, &n, &err), PI_ENOENT);
    assert_int_equal(image_read_file(PI_IMAGES, &limits, &p, &n, &err), PI_EIO);
    assert_int_equal(image_read_file(PI_IMAGES "/rgb.bmp", &limits, &p, &n, &err), PI_ETOOBIG);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pixels), cmocka_unit_test(test_refused), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_cut), cmocka_unit_test(test_mutated), cmocka_unit_test(test_work),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
