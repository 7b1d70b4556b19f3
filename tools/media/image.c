/* Recognises image files, checks limits, decodes and turns the pixels upright (see image.h). */
#include "media/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "media/image_impl.h"

#ifdef PI_HAVE_PNG
#define WITH_PNG "PNG, "
#else
#define WITH_PNG ""
#endif
#ifdef PI_HAVE_JPEG
#define WITH_JPEG "JPEG, "
#else
#define WITH_JPEG ""
#endif
#ifdef PI_HAVE_WEBP
#define WITH_WEBP "WebP, "
#else
#define WITH_WEBP ""
#endif

const char *image_formats(void) { return WITH_PNG WITH_JPEG WITH_WEBP "GIF, BMP"; }

image_limits image_default_limits(void) { return (image_limits) {.max_bytes = 32 << 20, .max_pixels = 64 << 20}; }

int image_fail(pi_error *err, int code, const char *fmt, ...)
{
    va_list args;
    if (!err) return code;
    err->code = code;
    va_start(args, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, args);
    va_end(args);
    return code;
}

int image_damaged(const image_job *j, const char *why)
{
    return image_fail(j->err, PI_EINVAL, "the image is damaged (%.120s): send the complete file", why);
}

/* --------------------------------------------------------------------------------------------------------- formats */

typedef struct signature {
    size_t at;          /* position of the bytes */
    const char *bytes;
    size_t n;
} signature;

static bool has(const uint8_t *p, size_t n, const signature *s)
{
    return n >= s->at && n - s->at >= s->n && !memcmp(p + s->at, s->bytes, s->n);
}

static bool find_format(const uint8_t *p, size_t n, enum image_format *out)
{
    static const struct { enum image_format format; signature s; } known[] = {
        {IMAGE_PNG, {0, "\x89PNG\r\n\x1a\n", 8}}, {IMAGE_JPEG, {0, "\xff\xd8\xff", 3}}, {IMAGE_WEBP, {8, "WEBP", 4}},
        {IMAGE_GIF, {0, "GIF87a", 6}}, {IMAGE_GIF, {0, "GIF89a", 6}}, {IMAGE_BMP, {0, "BM", 2}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!has(p, n, &known[i].s) || (known[i].format == IMAGE_WEBP && memcmp(p, "RIFF", 4) != 0)) continue;
        *out = known[i].format;
        return true;
    }
    return false;
}

/* Returns the name of a format that no build reads, for the error; NULL = unknown bytes. */
static const char *foreign_name(const uint8_t *p, size_t n)
{
    static const struct { const char *name; signature s; } known[] = {
        {"HEIC", {4, "ftypheic", 8}}, {"HEIC", {4, "ftypheix", 8}}, {"HEIC", {4, "ftyphevc", 8}},
        {"HEIC", {4, "ftypmif1", 8}}, {"HEIC", {4, "ftypmsf1", 8}}, {"AVIF", {4, "ftypavif", 8}},
        {"AVIF", {4, "ftypavis", 8}}, {"TIFF", {0, "II*\0", 4}}, {"TIFF", {0, "MM\0*", 4}}, {"PDF", {0, "%PDF", 4}},
        {"JPEG XL", {0, "\xff\x0a", 2}}, {"JPEG XL", {4, "JXL \r\n", 6}}, {"JPEG 2000", {4, "jP  \r\n", 6}},
        {"ICO", {0, "\0\0\1\0", 4}}, {"PSD", {0, "8BPS", 4}}, {"MP4", {4, "ftyp", 4}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (has(p, n, &known[i].s)) return known[i].name;
    size_t at = n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (at < n && (p[at] == ' ' || (p[at] >= '\t' && p[at] <= '\r'))) at++;
    const size_t left = n - at < 1024 ? n - at : 1024;
    return left && p[at] == '<' && memmem(p + at, left, "<svg", 4) ? "SVG" : NULL;
}

static bool built_in(enum image_format f, const char **name)
{
    static const struct { const char *name; bool there; } all[] = {
        [IMAGE_PNG] = {"PNG", sizeof WITH_PNG > 1}, [IMAGE_JPEG] = {"JPEG", sizeof WITH_JPEG > 1},
        [IMAGE_WEBP] = {"WebP", sizeof WITH_WEBP > 1}, [IMAGE_GIF] = {"GIF", true}, [IMAGE_BMP] = {"BMP", true},
    };
    *name = all[f].name;
    return all[f].there;
}

static bool read_sizes(const uint8_t *p, size_t n, image_head *h)
{
    uint32_t *w = &h->coded_width, *rows = &h->coded_height;
    switch (h->format) {
    case IMAGE_PNG: return image_png_head(p, n, w, rows, &h->orientation);
    case IMAGE_JPEG: return image_jpeg_head(p, n, w, rows, &h->orientation);
    case IMAGE_WEBP: return image_webp_head(p, n, w, rows, &h->orientation);
    case IMAGE_GIF: return image_gif_head(p, n, w, rows);
    case IMAGE_BMP: return image_bmp_head(p, n, w, rows);
    }
    return false;
}

int image_head_read(const void *bytes, size_t n, const image_limits *limits, image_head *out, pi_error *err)
{
    const uint8_t *p = bytes;
    image_head h = {.orientation = 1};
    const char *name;
    if (!n) return image_fail(err, PI_EINVAL, "the image is empty: send a file");
    if (n > limits->max_bytes)
        return image_fail(err, PI_ETOOBIG, "the image has %zu bytes, the limit is %zu: send a smaller file", n,
                          limits->max_bytes);
    if (!find_format(p, n, &h.format)) {
        name = foreign_name(p, n);
        return name ? image_fail(err, PI_EUNSUPPORTED, "the image is a %s file: send %s", name, image_formats())
                    : image_fail(err, PI_EINVAL, "the image has no known format: send %s", image_formats());
    }
    if (!built_in(h.format, &name))
        return image_fail(err, PI_EUNSUPPORTED, "the image is a %s file, and this build lacks its library: send %s",
                          name, image_formats());
    if (!read_sizes(p, n, &h))
        return image_fail(err, PI_EINVAL, "the image is a %s file with a damaged header: send the complete file", name);
    if (!h.coded_width || !h.coded_height)
        return image_fail(err, PI_EINVAL, "the image has no pixels (%u x %u)", h.coded_width, h.coded_height);
    if (h.coded_width > IMAGE_MAX_SIDE || h.coded_height > IMAGE_MAX_SIDE ||
        (uint64_t) h.coded_width * h.coded_height > limits->max_pixels)
        return image_fail(err, PI_ETOOBIG, "the image has %u x %u pixels, the limit is %llu: send a smaller one",
                          h.coded_width, h.coded_height, (unsigned long long) limits->max_pixels);
    const bool swapped = h.orientation >= 5;
    h.width = swapped ? h.coded_height : h.coded_width;
    h.height = swapped ? h.coded_width : h.coded_height;
    *out = h;
    return PI_OK;
}

/* ----------------------------------------------------------------------------------------------------- orientation */

/* Turns pixels [rows, cols, 3] upright. Row and column of the stored pixel for result (y, x), with Y = rows - 1 and
 * X = cols - 1:
 *
 *     1  y, x        3  Y - y, X - x        5  x, y          7  Y - x, X - y
 *     2  y, X - x    4  Y - y, x            6  Y - x, y      8  x, X - y                    */
static uint8_t *upright(const uint8_t *in, uint32_t cols, uint32_t rows, int orientation)
{
    const bool swapped = orientation >= 5;
    const bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const uint32_t w = swapped ? rows : cols, h = swapped ? cols : rows;
    uint8_t *out = malloc((size_t) w * h * 3), *to = out;
    for (uint32_t y = 0; out && y < h; y++) {
        for (uint32_t x = 0; x < w; x++, to += 3) {
            size_t r = swapped ? x : y, c = swapped ? y : x;
            if (flip_y) r = rows - 1 - r;
            if (flip_x) c = cols - 1 - c;
            memcpy(to, in + (r * cols + c) * 3, 3);
        }
    }
    return out;
}

int image_decode(const void *bytes, size_t n, const image_head *head, pi_work *work, uint8_t **rgb, pi_error *err)
{
    static int (*const decode[])(const image_job *) = {image_decode_png, image_decode_jpeg, image_decode_webp,
                                                       image_decode_gif, image_decode_bmp};
    image_job j = {bytes, n, head->coded_width, head->coded_height, NULL, work, err};
    *rgb = NULL;
    j.out = calloc((size_t) j.width * j.height, 3);
    if (!j.out) return image_fail(err, PI_ENOMEM, "out of memory for an image of %u x %u pixels", j.width, j.height);
    int rc = decode[head->format](&j);
    if (!rc && pi_work_check(work)) rc = image_fail(err, pi_work_check(work), "decoding an image: %s",
                                                    pi_strerror(pi_work_check(work)));
    if (!rc && head->orientation > 1) {
        uint8_t *turned = upright(j.out, j.width, j.height, head->orientation);
        if (!turned) rc = image_fail(err, PI_ENOMEM, "out of memory for an image of %u x %u pixels", j.width, j.height);
        free(j.out);
        j.out = turned;
    }
    if (rc) free(j.out);
    else *rgb = j.out;
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------- files */

static int read_all(int fd, size_t n, uint8_t **out)
{
    uint8_t *p = malloc(n ? n : 1);
    if (!p) return PI_ENOMEM;
    for (size_t have = 0; have < n;) {
        const ssize_t got = read(fd, p + have, n - have);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            free(p);
            return PI_EIO;
        }
        have += (size_t) got;
    }
    *out = p;
    return PI_OK;
}

int image_read_file(const char *path, const image_limits *limits, uint8_t **bytes, size_t *n, pi_error *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int rc = PI_OK;
    if (fd < 0) return image_fail(err, errno == ENOENT ? PI_ENOENT : PI_EIO, "%.150s: %s", path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) rc = image_fail(err, PI_EIO, "%.150s: not a file", path);
    else if ((uint64_t) st.st_size > limits->max_bytes)
        rc = image_fail(err, PI_ETOOBIG, "%.150s: %llu bytes, the limit of an image is %zu", path,
                        (unsigned long long) st.st_size, limits->max_bytes);
    else if ((rc = read_all(fd, (size_t) st.st_size, bytes)))
        (void) image_fail(err, rc, "%.150s: %s", path, pi_strerror(rc));
    else *n = (size_t) st.st_size;
    (void) close(fd);
    return rc;
}
