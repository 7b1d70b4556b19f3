/* PNG by libpng (see image.h). All kinds of PNG become 8-bit RGB: palettes and grey are expanded, 16-bit samples keep
 * their high byte, alpha is dropped. Gamma and colour profiles are ignored, as Pillow does.
 *
 * libpng reports errors by longjmp. Everything that must survive it is in struct reader. */
#include "media/image_impl.h"

#ifndef PI_HAVE_PNG
int image_decode_png(const image_job *j) { return image_damaged(j, "this build has no libpng"); }
#else

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHUNKS = 1024, MAX_CHUNK_BYTES = 8 << 20, ROWS_PER_CHECK = 64 };

typedef struct reader {
    const image_job *j;
    size_t at;        /* bytes read */
    png_structp png;
    png_infop info;
    char why[96];     /* libpng's text of an error */
    jmp_buf out;
} reader;

static void on_error(png_structp png, png_const_charp text)
{
    reader *r = png_get_error_ptr(png);
    snprintf(r->why, sizeof r->why, "%s", text);
    longjmp(r->out, 1);
}

static void on_warning(png_structp png, png_const_charp text) { (void) png, (void) text; }

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    reader *r = png_get_io_ptr(png);
    if (n > r->j->n - r->at) png_error(png, "the file ends early");
    memcpy(to, r->j->p + r->at, n);
    r->at += n;
}

/* Sets the conversion to RGB. */
static void convert(reader *r)
{
    const int color = png_get_color_type(r->png, r->info);
    if (png_get_bit_depth(r->png, r->info) == 16) png_set_strip_16(r->png);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(r->png);
    if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(r->png);
    if (!(color & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(r->png);
    png_set_strip_alpha(r->png);
}

/* Reads all rows; interlaced files take several passes over them. */
static bool read_rows(reader *r)
{
    const size_t row = (size_t) r->j->width * 3;
    const int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    if (png_get_rowbytes(r->png, r->info) != row) png_error(r->png, "unexpected row size");
    for (int pass = 0; pass < passes; pass++) {
        for (uint32_t y = 0; y < r->j->height; y++) {
            if (y % ROWS_PER_CHECK == 0 && pi_work_check(r->j->work)) return false;
            png_read_row(r->png, r->j->out + y * row, NULL);
        }
    }
    return true;
}

static int decode(reader *r)
{
    if (setjmp(r->out)) return image_damaged(r->j, r->why);
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE);
    png_set_chunk_cache_max(r->png, MAX_CHUNKS);
    png_set_chunk_malloc_max(r->png, MAX_CHUNK_BYTES);
    png_read_info(r->png, r->info);
    if (png_get_image_width(r->png, r->info) != r->j->width || png_get_image_height(r->png, r->info) != r->j->height)
        return image_damaged(r->j, "its header changed");
    convert(r);
    return read_rows(r) ? PI_OK : pi_work_check(r->j->work);
}

int image_decode_png(const image_job *j)
{
    reader *r = calloc(1, sizeof *r);
    if (!r) return image_fail(j->err, PI_ENOMEM, "out of memory for an image");
    r->j = j;
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    const int rc = r->info ? decode(r) : image_fail(j->err, PI_ENOMEM, "out of memory for an image");
    png_destroy_read_struct(&r->png, &r->info, NULL);
    free(r);
    return rc;
}
#endif
