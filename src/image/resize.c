/* Implementation of resize.h. The arithmetic follows Pillow's description of its resampling: weights in double, then in
 * fixed point, sums in 32-bit integers. */
#include "image/resize.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "image/grid.h"

enum { BITS = 22 /* fractional bits of a weight */ };

/* The weights of one pass. Output index i is the sum of the inputs first[i] .. first[i] + n[i] - 1. */
typedef struct taps {
    int32_t max_n;   /* weights reserved per output index */
    int32_t *first;  /* [n_out] */
    int32_t *n;      /* [n_out] */
    int32_t *weight; /* [n_out, max_n] fixed point */
} taps;

static double sinc(double x) { return x == 0 ? 1 : sin(x * 3.14159265358979323846) / (x * 3.14159265358979323846); }

/* Returns the value of the filter at x. Bicubic has a = -0.5. */
static double filter_at(int32_t filter, double x)
{
    const double a = -0.5, s = fabs(x);
    if (filter == PI__FILTER_BILINEAR) return s < 1 ? 1 - s : 0;
    if (filter == PI__FILTER_LANCZOS) return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    return s < 1 ? ((a + 2) * s - (a + 3)) * s * s + 1 : s < 2 ? (((s - 5) * s + 8) * s - 4) * a : 0;
}

static double support_of(int32_t filter)
{
    return filter == PI__FILTER_BILINEAR ? 1 : filter == PI__FILTER_BICUBIC ? 2 : 3;
}

static void free_taps(taps *t)
{
    pi__free(t->first);
    pi__free(t->n);
    pi__free(t->weight);
}

/* Fills in the weights of output index i. w: scratch, [max_n]. */
static void set_taps(taps *t, int32_t i, int32_t n_in, double scale, int32_t filter, double *w)
{
    const double wide = scale > 1 ? scale : 1, support = support_of(filter) * wide, center = (i + 0.5) * scale;
    int32_t first = (int32_t) (center - support + 0.5), end = (int32_t) (center + support + 0.5);
    if (first < 0) first = 0;
    if (end > n_in) end = n_in;
    double sum = 0;
    const double narrow = 1.0 / wide;
    for (int32_t j = 0; j < end - first; j++) sum += w[j] = filter_at(filter, (j + first - center + 0.5) * narrow);
    t->first[i] = first;
    t->n[i] = end - first;
    int32_t *out = t->weight + (size_t) i * (size_t) t->max_n;
    for (int32_t j = 0; j < end - first; j++) {
        const double v = (sum != 0 ? w[j] / sum : w[j]) * (1 << BITS);
        out[j] = (int32_t) (v < 0 ? v - 0.5 : v + 0.5);
    }
}

static bool make_taps(taps *t, int32_t n_in, int32_t n_out, int32_t filter)
{
    const double scale = (double) n_in / n_out, wide = scale > 1 ? scale : 1;
    size_t n;
    *t = (taps) {.max_n = (int32_t) ceil(support_of(filter) * wide) * 2 + 1};
    double *w = pi__calloc((size_t) t->max_n, sizeof *w);
    t->first = pi__calloc((size_t) n_out, sizeof *t->first);
    t->n = pi__calloc((size_t) n_out, sizeof *t->n);
    if (pi__mul_ok((size_t) n_out, (size_t) t->max_n, &n)) t->weight = pi__calloc(n, sizeof *t->weight);
    const bool ok = w && t->first && t->n && t->weight;
    for (int32_t i = 0; i < n_out && ok; i++) set_taps(t, i, n_in, scale, filter, w);
    pi__free(w);
    if (!ok) free_taps(t);
    return ok;
}

static uint8_t byte_of(int32_t sum)
{
    sum >>= BITS;
    return (uint8_t) (sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* out [n_out, 3] = one row of pixels after the horizontal pass. */
static void resize_row(const taps *t, int32_t n_out, const uint8_t *row, uint8_t *out)
{
    for (int32_t i = 0; i < n_out; i++) {
        const int32_t *w = t->weight + (size_t) i * (size_t) t->max_n;
        const uint8_t *p = row + 3 * (size_t) t->first[i];
        int32_t r = 1 << (BITS - 1), g = r, b = r;
        for (int32_t j = 0; j < t->n[i]; j++) r += p[3 * j] * w[j], g += p[3 * j + 1] * w[j], b += p[3 * j + 2] * w[j];
        out[3 * i] = byte_of(r), out[3 * i + 1] = byte_of(g), out[3 * i + 2] = byte_of(b);
    }
}

/* out [n] = the weighted sum of n_tap rows of n bytes. The sums of a part of the row stay in the cache. */
static void resize_column(const int32_t *w, int32_t n_tap, const uint8_t *rows, size_t n, uint8_t *out)
{
    enum { PART = 1024 };
    int32_t sum[PART];
    for (size_t at = 0; at < n; at += PART) {
        const size_t k = n - at < PART ? n - at : PART;
        for (size_t i = 0; i < k; i++) sum[i] = 1 << (BITS - 1);
        for (int32_t j = 0; j < n_tap; j++) {
            const uint8_t *p = rows + (size_t) j * n + at;
            for (size_t i = 0; i < k; i++) sum[i] += p[i] * w[j];
        }
        for (size_t i = 0; i < k; i++) out[at + i] = byte_of(sum[i]);
    }
}

static bool resize_width(const pi__pixels *in, int32_t width, int32_t filter, uint8_t *out)
{
    taps t;
    if (!make_taps(&t, in->width, width, filter)) return false;
    for (int32_t y = 0; y < in->height; y++)
        resize_row(&t, width, in->rgb + 3 * (size_t) y * (size_t) in->width, out + 3 * (size_t) y * (size_t) width);
    free_taps(&t);
    return true;
}

static bool resize_height(const pi__pixels *in, int32_t height, int32_t filter, uint8_t *out)
{
    taps t;
    const size_t row = 3 * (size_t) in->width;
    if (!make_taps(&t, in->height, height, filter)) return false;
    for (int32_t y = 0; y < height; y++)
        resize_column(t.weight + (size_t) y * (size_t) t.max_n, t.n[y], in->rgb + (size_t) t.first[y] * row, row,
                      out + (size_t) y * row);
    free_taps(&t);
    return true;
}

bool pi__resize(const pi__pixels *in, int32_t width, int32_t height, int32_t filter, uint8_t *out)
{
    if (in->width == width && in->height == height) {
        memcpy(out, in->rgb, 3 * (size_t) width * (size_t) height);
        return true;
    }
    if (in->height == height) return resize_width(in, width, filter, out);
    if (in->width == width) return resize_height(in, height, filter, out);
    uint8_t *between = pi__malloc(3 * (size_t) width * (size_t) in->height);
    const pi__pixels wide = {width, in->height, between};
    const bool ok = between && resize_width(in, width, filter, between) && resize_height(&wide, height, filter, out);
    pi__free(between);
    return ok;
}
