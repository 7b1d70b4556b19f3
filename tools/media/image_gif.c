/* GIF: the first frame (see image.h).
 *
 *     header, screen size, global palette, extensions, then the first image: its rectangle, its palette, LZW data
 *
 * The result has the screen's size, or the frame's where that is larger. Pixels outside the frame have the transparent
 * color, else color 0, as in Pillow. LZW codes index a table of 4,096 strings. Each is an earlier string and one byte,
 * so a string is written backwards from its end. */
#include <stdlib.h>
#include <string.h>

#include "media/image_impl.h"

enum { CODES = 4096, COLORS = 256, EXTENSION = 0x21, IMAGE = 0x2C, CONTROL = 0xF9, INTERLACED = 0x40, PALETTE = 0x80 };

typedef struct gif {
    const uint8_t *p;
    size_t n, at;
    uint32_t width, height;             /* screen */
    uint32_t left, top, cols, rows;     /* the first frame */
    const uint8_t *palette;             /* [n_colors, 3], NULL = none: colors are grey */
    size_t n_colors;
    bool interlaced;
    int transparent;                    /* color; -1 = none */
} gif;

static bool need(const gif *g, size_t n) { return g->n - g->at >= n; }

static bool read_palette(gif *g, uint8_t flags)
{
    const size_t n = (size_t) 2 << (flags & 7);
    if (!(flags & PALETTE)) return true;
    if (!need(g, 3 * n)) return false;
    g->palette = g->p + g->at;
    g->n_colors = n;
    g->at += 3 * n;
    return true;
}

/* Skips blocks, each a length and bytes, up to the one of length 0. */
static bool skip_blocks(gif *g)
{
    while (need(g, 1)) {
        const size_t n = g->p[g->at++];
        if (!n) return true;
        if (!need(g, n)) return false;
        g->at += n;
    }
    return false;
}

static bool read_extension(gif *g)
{
    if (!need(g, 1)) return false;
    const uint8_t label = g->p[g->at++];
    if (label == CONTROL && need(g, 6) && g->p[g->at] == 4)
        g->transparent = g->p[g->at + 1] & 1 ? g->p[g->at + 4] : -1;
    return skip_blocks(g);
}

/* Reads up to the LZW data of the first frame. */
static bool read_head(gif *g)
{
    if (g->n < 13) return false;
    g->transparent = -1;
    g->width = image_le16(g->p + 6);
    g->height = image_le16(g->p + 8);
    const uint8_t flags = g->p[10];
    g->at = 13;
    if (!read_palette(g, flags)) return false;
    while (need(g, 1)) {
        const uint8_t kind = g->p[g->at++];
        if (kind == EXTENSION && read_extension(g)) continue;
        if (kind != IMAGE || !need(g, 9)) return false;
        const uint8_t *d = g->p + g->at;
        g->left = image_le16(d);
        g->top = image_le16(d + 2);
        g->cols = image_le16(d + 4);
        g->rows = image_le16(d + 6);
        g->interlaced = d[8] & INTERLACED;
        g->at += 9;
        if (g->left + g->cols > g->width) g->width = g->left + g->cols;
        if (g->top + g->rows > g->height) g->height = g->top + g->rows;
        return read_palette(g, d[8]);
    }
    return false;
}

bool image_gif_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h)
{
    gif g = {.p = p, .n = n};
    if (!read_head(&g)) return false;
    *w = g.width;
    *h = g.height;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------- LZW */

typedef struct lzw {
    gif *g;
    size_t block;             /* bytes left in the current block */
    uint32_t bits, n_bits;    /* bits read and not used, lowest first */
    uint16_t before[CODES];   /* code of a string without its last byte */
    uint8_t last[CODES];      /* last byte of a string */
    uint8_t string[CODES];    /* a string, written from its end */
} lzw;

/* Reads a code of `size` bits; -1 = the data end. */
static int next_code(lzw *z, uint32_t size)
{
    while (z->n_bits < size) {
        if (!z->block) {
            if (!need(z->g, 1) || !(z->block = z->g->p[z->g->at]) || !need(z->g, 1 + z->block)) return -1;
            z->g->at++;
        }
        z->bits |= (uint32_t) z->g->p[z->g->at++] << z->n_bits;
        z->n_bits += 8;
        z->block--;
    }
    const int code = (int) (z->bits & ((1u << size) - 1));
    z->bits >>= size;
    z->n_bits -= size;
    return code;
}

/* Decodes n color indices to out. Returns the number decoded before the data end; SIZE_MAX = damaged. */
static size_t unpack(lzw *z, uint8_t *out, size_t n, const image_job *j)
{
    if (!need(z->g, 1)) return SIZE_MAX;
    const uint32_t min = z->g->p[z->g->at++];
    if (min < 1 || min > 8) return SIZE_MAX;
    const int clear = 1 << min, end = clear + 1;
    int next = end + 1, previous = -1;
    uint32_t size = min + 1;
    size_t done = 0;
    for (int i = 0; i < clear; i++) z->last[i] = (uint8_t) i;
    while (done < n) {
        int code = next_code(z, size);
        if (code < 0 || code == end) break;
        if (code == clear) {
            next = end + 1, previous = -1, size = min + 1;
            if (pi_work_check(j->work)) break;
            continue;
        }
        if (code > next || (code == next && previous < 0) || (previous < 0 && code >= clear)) return SIZE_MAX;
        size_t from = CODES;
        const int own = code;
        if (code == next) from--, code = previous; /* the string is the previous one and its first byte */
        for (; code >= clear; code = z->before[code]) z->string[--from] = z->last[code];
        z->string[--from] = z->last[code];
        if (own == next) z->string[CODES - 1] = z->string[from];
        if (previous >= 0 && next < CODES) {
            z->before[next] = (uint16_t) previous;
            z->last[next] = z->string[from];
            next++;
        }
        if (next == 1 << size && size < 12) size++;
        previous = own;
        for (; from < CODES && done < n; from++) out[done++] = z->string[from];
    }
    return done;
}

/* ---------------------------------------------------------------------------------------------------------- pixels */

static void put(const gif *g, uint8_t *to, uint8_t color)
{
    static const uint8_t black[3];
    if (!g->palette) memset(to, color, 3);
    else memcpy(to, color < g->n_colors ? g->palette + 3 * color : black, 3);
}

/* Returns the frame's row that is stored as row i: interlaced frames store every 8th row, then the ones between. */
static uint32_t row_of(const gif *g, uint32_t i)
{
    static const uint32_t first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    if (!g->interlaced) return i;
    for (int pass = 0; pass < 4; pass++) {
        const uint32_t n = g->rows > first[pass] ? (g->rows - first[pass] + step[pass] - 1) / step[pass] : 0;
        if (i < n) return first[pass] + i * step[pass];
        i -= n;
    }
    return 0;
}

int image_decode_gif(const image_job *j)
{
    gif g = {.p = j->p, .n = j->n};
    if (!read_head(&g) || g.width != j->width || g.height != j->height) return image_damaged(j, "its header changed");
    const size_t n = (size_t) g.cols * g.rows, all = (size_t) g.width * g.height;
    const uint8_t outside = g.transparent >= 0 ? (uint8_t) g.transparent : 0;
    lzw *z = calloc(1, sizeof *z);
    uint8_t *index = malloc(n ? n : 1);
    int rc = z && index ? PI_OK : image_fail(j->err, PI_ENOMEM, "out of memory for an image");
    if (!rc) z->g = &g;
    const size_t done = rc ? 0 : unpack(z, index, n, j);
    if (!rc && done != n && !pi_work_check(j->work)) rc = image_damaged(j, done == SIZE_MAX ? "its data are not valid"
                                                                             : "the file ends early");
    for (size_t i = 0; !rc && n != all && i < all; i++) put(&g, j->out + 3 * i, outside);
    for (uint32_t i = 0; !rc && done == n && i < g.rows; i++) {
        uint8_t *to = j->out + ((size_t) (g.top + row_of(&g, i)) * g.width + g.left) * 3;
        for (uint32_t x = 0; x < g.cols; x++) put(&g, to + 3 * (size_t) x, index[(size_t) i * g.cols + x]);
    }
    free(index);
    free(z);
    return rc;
}
