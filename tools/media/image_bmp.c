/* BMP without compression: 1, 4 and 8 bits with a palette, 16, 24 and 32 bits (see image.h).
 *
 *     file header (14 bytes)  header (12, 40 or more)  masks, palette  rows from bottom to top, padded to 4 bytes */
#include <string.h>

#include "media/image_impl.h"

enum { FILE_HEADER = 14, CORE = 12, INFO = 40, RGB_BITS = 0, BITFIELDS = 3, ALPHA_BITFIELDS = 6, ROWS_PER_CHECK = 64 };

typedef struct bmp {
    const uint8_t *palette; /* [n_colors, entry] blue, green, red and, with entry 4, a zero byte */
    size_t n_colors, entry, pixels; /* pixels: position of the rows */
    uint32_t width, height, bits;
    uint32_t mask[3];       /* red, green, blue in a pixel of 16 or 32 bits */
    bool top_down;
    bool compressed;        /* reason of a failure: a compressed file */
    const char *why;        /* reason of a failure */
} bmp;

static bool fail(bmp *b, const char *why)
{
    b->why = why;
    return false;
}

/* Reads sizes and depth of both kinds of header. */
static bool read_fields(const uint8_t *h, uint32_t size, bmp *b, uint32_t *compression, uint32_t *colors)
{
    *compression = RGB_BITS;
    *colors = 0;
    if (size == CORE) {
        b->width = image_le16(h + 4);
        b->height = image_le16(h + 6);
        b->bits = image_le16(h + 10);
        return true;
    }
    const uint32_t rows = image_le32(h + 8);
    b->width = image_le32(h + 4);
    b->top_down = rows >> 31;
    b->height = b->top_down ? 0u - rows : rows;
    b->bits = image_le16(h + 14);
    *compression = image_le32(h + 16);
    *colors = image_le32(h + 32);
    return b->width <= INT32_MAX;
}

static bool read_head(const uint8_t *p, size_t n, bmp *b)
{
    uint32_t compression, colors;
    if (n < FILE_HEADER + CORE) return fail(b, "the file ends early");
    const uint32_t size = image_le32(p + FILE_HEADER);
    if ((size != CORE && size < INFO) || size > 1024 || n - FILE_HEADER < size) return fail(b, "unknown header");
    const uint8_t *h = p + FILE_HEADER;
    if (!read_fields(h, size, b, &compression, &colors)) return fail(b, "its sizes are not valid");
    if (compression != RGB_BITS && compression != BITFIELDS && compression != ALPHA_BITFIELDS)
        return !(b->compressed = true);
    size_t at = FILE_HEADER + size;
    b->pixels = image_le32(p + 10);
    if (b->bits == 16 || b->bits == 32) {
        const uint32_t usual[2][3] = {{0x7C00, 0x3E0, 0x1F}, {0xFF0000, 0xFF00, 0xFF}};
        memcpy(b->mask, usual[b->bits == 32], sizeof b->mask);
        if (compression != RGB_BITS) { /* masks are in a longer header, or after a short one */
            if (n - FILE_HEADER < INFO + 12) return fail(b, "the file ends early");
            for (int c = 0; c < 3; c++) b->mask[c] = image_le32(h + INFO + 4 * c);
        }
        return true;
    }
    if (compression != RGB_BITS) return fail(b, "its compression does not fit its depth");
    if (b->bits == 24) return true;
    if (b->bits != 1 && b->bits != 4 && b->bits != 8) return fail(b, "unknown color depth");
    b->entry = size == CORE ? 3 : 4;
    b->n_colors = colors && colors < 1u << b->bits ? colors : 1u << b->bits;
    if (n < at || n - at < b->n_colors * b->entry) return fail(b, "its palette is not complete");
    b->palette = p + at;
    return true;
}

bool image_bmp_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h)
{
    bmp b = {.why = NULL};
    (void) read_head(p, n, &b); /* image_decode_bmp reports reasons; sizes are enough here */
    *w = b.width;
    *h = b.height;
    return b.width || b.height;
}

/* Extracts one channel of a pixel and scales it to 8 bits. */
static uint8_t channel(uint32_t v, uint32_t mask)
{
    if (!mask) return 0;
    const uint32_t shift = (uint32_t) __builtin_ctz(mask), max = mask >> shift;
    return (uint8_t) ((uint64_t) ((v & mask) >> shift) * 255 / max);
}

static void put_row(const bmp *b, const uint8_t *in, uint8_t *out)
{
    for (uint32_t x = 0; x < b->width; x++, out += 3) {
        const size_t i = x;
        if (b->bits == 24) {
            out[0] = in[3 * i + 2], out[1] = in[3 * i + 1], out[2] = in[3 * i];
        } else if (b->bits > 8) {
            const uint32_t v = b->bits == 16 ? image_le16(in + 2 * i) : image_le32(in + 4 * i);
            for (int c = 0; c < 3; c++) out[c] = channel(v, b->mask[c]);
        } else {
            const uint32_t per = 8 / b->bits, shift = (per - 1 - x % per) * b->bits;
            const size_t color = in[i / per] >> shift & ((1u << b->bits) - 1);
            const uint8_t *e = color < b->n_colors ? b->palette + color * b->entry : (const uint8_t *) "\0\0\0";
            out[0] = e[2], out[1] = e[1], out[2] = e[0];
        }
    }
}

int image_decode_bmp(const image_job *j)
{
    bmp b = {.why = NULL};
    const bool ok = read_head(j->p, j->n, &b);
    if (b.compressed) return image_fail(j->err, PI_EUNSUPPORTED, "the image is a compressed BMP file: send PNG");
    if (!ok) return image_damaged(j, b.why);
    if (b.width != j->width || b.height != j->height) return image_damaged(j, "its header changed");
    const size_t stride = ((size_t) b.width * b.bits + 31) / 32 * 4;
    if (b.pixels > j->n || (j->n - b.pixels) / stride < b.height) return image_damaged(j, "the file ends early");
    for (uint32_t y = 0; y < b.height; y++) {
        const uint32_t row = b.top_down ? y : b.height - 1 - y;
        if (y % ROWS_PER_CHECK == 0 && pi_work_check(j->work)) return pi_work_check(j->work);
        put_row(&b, j->p + b.pixels + y * stride, j->out + (size_t) row * b.width * 3);
    }
    return PI_OK;
}
